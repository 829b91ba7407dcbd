/* Trace files, timelines and explanations, from lanes and stats that a small queueing simulation makes.
   Arguments: none to test; "draw DIR" to write sample pictures into a directory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Allocations of the header are counted, and the n-th fails. */
static int alloc_fail_at = -1, alloc_calls, alloc_live;

static void *test_malloc(size_t n) {
    if (alloc_calls++ == alloc_fail_at) {
        return NULL;
    }
    alloc_live++;
    return malloc(n);
}

static void *test_calloc(size_t n, size_t size) {
    void *p = test_malloc(n * size);
    return p ? memset(p, 0, n * size) : NULL;
}

static void test_free(void *p) {
    alloc_live -= p != NULL;
    free(p);
}

#define malloc(n) test_malloc(n)
#define calloc(n, size) test_calloc(n, size)
#define free(p) test_free(p)
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#undef malloc
#undef calloc
#undef free

static int failures, checks;
static const char *test_name = "";

#define CHECK(c, ...) \
    do { \
        checks++; \
        if (!(c)) { \
            failures++; \
            printf("FAIL %s, line %d: %s: ", test_name, __LINE__, #c); \
            printf(__VA_ARGS__); \
            printf("\n"); \
        } \
    } while (0)

static char dir[64];

static const char *in_dir(const char *name) {
    static char path[2][160];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", dir, name);
    return path[which];
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    size_t cap = 1 << 16, got = 0;
    if (f == NULL) {
        return NULL;
    }
    for (size_t k = 1; k > 0; got += k) {
        s = realloc(s, cap *= 2);
        if (s == NULL) {
            abort();
        }
        k = fread(s + got, 1, cap - got - 1, f);
    }
    fclose(f);
    s[got] = 0;
    *n = got;
    return s;
}

static uint64_t random_state = 1;

static uint64_t rnd(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- a simulated pipe: item workers that claim in order, an optional collate, a trainer ---- */

typedef struct sim {
    int workers;              /* 0: inline */
    int collates;             /* batch workers; 0: no collate */
    uint32_t prefetch, batch;
    int batches, per_epoch;
    uint64_t item_ns, collate_ns, step_ns;
    int skew;                 /* one item in 20 takes `skew` times as long; 0: none */
    int jitter;               /* percent of item_ns */
    double cpu;               /* share of busy time on a core */
    uint32_t cpus;
    int transfer;             /* the batch stage is a transfer stage */
} sim;

enum { SIM_LANES = 1100, SIM_EVENTS = 100000 };

typedef struct sim_out {
    dlp_stats stats;
    dlpi_lane lanes[SIM_LANES];
    dlp_trace_event *events[SIM_LANES];
    int n_lanes;
} sim_out;

static sim_out world;

static void lane_event(int lane, uint64_t begin, uint64_t end, uint16_t kind, uint64_t sequence, uint32_t epoch, uint16_t items) {
    dlpi_lane *l = &world.lanes[lane];
    dlp_trace_event *e = world.events[lane];
    if (e == NULL) {
        e = world.events[lane] = calloc(SIM_EVENTS, sizeof *e);
    }
    if (e == NULL) {
        abort();
    }
    l->events = e;
    if (end <= begin || l->n == SIM_EVENTS) {
        return;
    }
    if (l->n > 0 && e[l->n - 1].kind == kind && e[l->n - 1].sequence == sequence && e[l->n - 1].end_ns == begin && kind == DLP_TRACE_WORK) {
        e[l->n - 1].end_ns = end;
        e[l->n - 1].items = (uint16_t)(e[l->n - 1].items + items);
        return;
    }
    e[l->n++] = (dlp_trace_event){begin, end, sequence, epoch, kind, items};
}

static void sim_names(const sim *d) {
    world.n_lanes = 1 + d->workers + d->collates;
    snprintf(world.lanes[0].name, 32, "trainer");
    world.lanes[0].group = -1;
    for (int i = 1; i < world.n_lanes; i++) {
        bool fetch = i <= d->workers;
        world.lanes[i].group = fetch ? 0 : 1;
        snprintf(world.lanes[i].name, 32, "%s %d", fetch ? "fetch" : d->transfer ? "transfer" : "batch", fetch ? i - 1 : i - 1 - d->workers);
    }
    for (int i = 0; i < world.n_lanes; i++) {
        world.lanes[i].n = 0;
        lane_event(i, 0, 0, 1, 0, 0, 0);
    }
}

static uint64_t sim_service(const sim *d) {
    uint64_t t = d->item_ns;
    if (d->jitter > 0) {
        t = t - t * (uint64_t)d->jitter / 100 + rnd() % (2 * t * (uint64_t)d->jitter / 100 + 1);
    }
    return d->skew > 0 && rnd() % 20 == 0 ? t * (uint64_t)d->skew : t;
}

static int earliest(const uint64_t *t, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        best = t[i] < t[best] ? i : best;
    }
    return best;
}

static const dlp_stats *simulate(const sim *d) {
    static uint64_t taken[1 << 17], worker_free[1024], collate_free[1024];
    uint64_t trainer = 0;
    dlp_stats *s = &world.stats;
    memset(s, 0, sizeof *s);
    memset(worker_free, 0, sizeof worker_free);
    memset(collate_free, 0, sizeof collate_free);
    random_state = 88172645463325252u;
    sim_names(d);
    s->n_stages = d->collates > 0 ? 2 : 1;
    s->stages[0] = (dlp_stage_stats){.name = "fetch", .kind = DLP_STAGE_FETCH, .workers = d->workers};
    s->stages[1] = (dlp_stage_stats){.name = "batch", .kind = d->transfer ? DLP_STAGE_TRANSFER : DLP_STAGE_BATCH, .workers = d->collates, .unit_is_batch = 1};
    for (int b = 0; b < d->batches; b++) {
        uint32_t epoch = d->per_epoch > 0 ? (uint32_t)(b / d->per_epoch) : 0;
        uint64_t open = b < (int)d->prefetch ? 0 : taken[b - (int)d->prefetch], ready = 0, seq = (uint64_t)b;
        for (uint32_t i = 0; i < d->batch; i++) {
            uint64_t t = sim_service(d);
            s->stages[0].busy_ns += t;
            if (d->workers == 0) {
                ready = (ready > trainer ? ready : trainer) + t;
                continue;
            }
            int w = earliest(worker_free, d->workers);
            uint64_t begin = worker_free[w] > open ? worker_free[w] : open;
            lane_event(1 + w, worker_free[w], begin, DLP_TRACE_BLOCKED, seq, epoch, 0);
            s->stages[0].blocked_ns += begin - worker_free[w];
            worker_free[w] = begin + t;
            lane_event(1 + w, begin, begin + t, DLP_TRACE_WORK, seq, epoch, 1);
            ready = ready > begin + t ? ready : begin + t;
        }
        if (d->collates > 0) {
            int w = earliest(collate_free, d->collates);
            uint64_t begin = collate_free[w] > ready ? collate_free[w] : ready;
            lane_event(1 + d->workers + w, collate_free[w], begin, DLP_TRACE_STARVED, seq, epoch, 0);
            s->stages[1].starved_ns += begin - collate_free[w];
            s->stages[1].busy_ns += d->collate_ns;
            ready = collate_free[w] = begin + d->collate_ns;
            lane_event(1 + d->workers + w, begin, ready, DLP_TRACE_WORK, seq, epoch, (uint16_t)d->batch);
        }
        uint64_t got = ready > trainer ? ready : trainer;
        lane_event(0, trainer, got, DLP_TRACE_WAIT, seq, epoch, 0);
        if (d->per_epoch > 0 && b % d->per_epoch == 0 && b > 0) {
            world.events[0][world.lanes[0].n > 0 ? world.lanes[0].n - 1 : 0].epoch = epoch;
        }
        s->wait_ns += got - trainer;
        s->first_batch_ns = b == 0 ? got : s->first_batch_ns;
        taken[b] = got;
        trainer = got + d->step_ns;
        lane_event(0, got, trainer, DLP_TRACE_STEP, seq, epoch, (uint16_t)d->batch);
        s->step_ns += d->step_ns;
    }
    s->batches = (uint64_t)d->batches;
    s->items = s->stages[0].items = s->batches * d->batch;
    s->stages[1].items = s->batches;
    s->bytes = s->items * 1000;
    s->elapsed_ns = trainer;
    s->batch_size = d->batch;
    s->prefetch_factor = d->prefetch;
    s->max_held = 1;
    s->slots = d->prefetch + 1;
    s->cpus = d->cpus;
    s->n_workers = (uint32_t)(d->workers + d->collates);
    s->plan_bytes = 1000 * d->batch * s->slots;
    for (int i = 0; i < 2; i++) {
        s->stages[i].cpu_ns = (uint64_t)((double)s->stages[i].busy_ns * d->cpu);
    }
    s->stages[0].p50_ns = d->item_ns;
    s->stages[0].p99_ns = d->skew ? d->item_ns * (uint64_t)d->skew : d->item_ns;
    return s;
}

/* Keep the newest n events of each lane, as a trace ring does. */
static void sim_ring(int n) {
    for (int i = 0; i < world.n_lanes; i++) {
        int drop = world.lanes[i].n - n;
        if (drop > 0) {
            world.lanes[i].events += drop;
            world.lanes[i].n -= drop;
        }
    }
}

/* ---- a JSON reader: valid or not, and the values of the events ---- */

typedef struct json {
    const char *s, *end;
    bool bad;
    int events, names, depth;
    const dlpi_lane *lanes;     /* what events should say */
    int next[SIM_LANES];
    int wrong;
} json;

static void json_space(json *j) {
    while (j->s < j->end && strchr(" \t\r\n", *j->s) != NULL) {
        j->s++;
    }
}

static bool json_take(json *j, char c) {
    json_space(j);
    if (j->s < j->end && *j->s == c) {
        j->s++;
        return true;
    }
    return false;
}

/* A string, unescaped into out (cut at size). */
static void json_string(json *j, char *out, size_t size) {
    size_t n = 0;
    if (!json_take(j, '"')) {
        j->bad = true;
        return;
    }
    while (j->s < j->end && *j->s != '"') {
        unsigned char c = (unsigned char)*j->s++;
        if (c < 0x20) {
            j->bad = true;
        }
        if (c == '\\') {
            c = j->s < j->end ? (unsigned char)*j->s++ : 0;
            if (c == 'u') {
                for (int i = 0; i < 4 && j->s < j->end; i++) {
                    j->bad = j->bad || strchr("0123456789abcdefABCDEF", *j->s++) == NULL;
                }
                c = '?';
            } else if (c == 0 || strchr("\"\\/bfnrt", c) == NULL) {
                j->bad = true;
            }
        } else if (c >= 0x80) {
            const char *p = j->s - 1;
            if (dlpi_utf8_next(&p, j->end) == 0xfffd && memcmp(j->s - 1, "\xef\xbf\xbd", 3) != 0) {
                j->bad = true;
            }
            while (j->s < p) {
                if (n + 1 < size) {
                    out[n++] = (char)c;
                }
                c = (unsigned char)*j->s++;
            }
        }
        if (n + 1 < size) {
            out[n++] = (char)c;
        }
    }
    out[n] = 0;
    j->bad = j->bad || !json_take(j, '"');
}

typedef struct json_fields {
    char ph[8], ts[40], dur[40], name[64], cat[16];
    uint64_t sequence, epoch, items;
    int tid;
} json_fields;

static void json_value(json *j, json_fields *f, const char *key);

static void json_number(json *j, char *out, size_t size) {
    size_t n = 0;
    const char *b = j->s;
    if (j->s < j->end && *j->s == '-') {
        j->s++;
    }
    const char *digits = j->s;
    while (j->s < j->end && (strchr("0123456789.", *j->s) != NULL)) {
        j->s++;
    }
    bool zero = digits < j->end && digits[0] == '0' && digits + 1 < j->s && digits[1] != '.';
    if (digits == j->s || *digits == '.' || j->s[-1] == '.' || zero) {
        j->bad = true;
        j->s = j->end;
        return;
    }
    for (; b < j->s && n + 1 < size; b++) {
        out[n++] = *b;
    }
    out[n] = 0;
}

static void json_event_done(json *j, const json_fields *f) {
    char ts[40], dur[40];
    if (strcmp(f->ph, "M") == 0 && strcmp(f->name, "thread_name") == 0) {
        j->names++;
    }
    if (strcmp(f->ph, "X") != 0) {
        return;
    }
    j->events++;
    int lane = f->tid - 1;
    if (j->lanes == NULL || lane < 0 || lane >= SIM_LANES) {
        return;
    }
    const dlp_trace_event *e = &j->lanes[lane].events[j->next[lane]++];
    snprintf(ts, sizeof ts, "%" PRIu64 ".%03u", e->begin_ns / 1000, (unsigned)(e->begin_ns % 1000));
    snprintf(dur, sizeof dur, "%" PRIu64 ".%03u", (e->end_ns - e->begin_ns) / 1000, (unsigned)((e->end_ns - e->begin_ns) % 1000));
    j->wrong += strcmp(ts, f->ts) != 0 || strcmp(dur, f->dur) != 0 || f->sequence != e->sequence || f->epoch != e->epoch || f->items != e->items;
}

static void json_object(json *j, json_fields *outer, const char *outer_key) {
    json_fields mine;
    memset(&mine, 0, sizeof mine);
    bool args = strcmp(outer_key, "args") == 0;
    json_fields *f = args ? outer : &mine;
    if (json_take(j, '}')) {
        return;
    }
    do {
        char key[64];
        json_string(j, key, sizeof key);
        j->bad = j->bad || !json_take(j, ':');
        json_value(j, f, args && strcmp(key, "name") == 0 ? "args.name" : key);
    } while (!j->bad && json_take(j, ','));
    j->bad = j->bad || !json_take(j, '}');
    if (strcmp(outer_key, "traceEvents") == 0) {
        json_event_done(j, f);
    }
}

static void json_value(json *j, json_fields *f, const char *key) {
    char value[64] = "";
    if (j->bad || ++j->depth > 20) {
        j->bad = true;
        return;
    }
    if (json_take(j, '{')) {
        json_object(j, f, key);
    } else if (json_take(j, '[')) {
        if (!json_take(j, ']')) {
            do {
                json_value(j, f, key);
            } while (!j->bad && json_take(j, ','));
            j->bad = j->bad || !json_take(j, ']');
        }
    } else if (j->s < j->end && *j->s == '"') {
        json_string(j, value, sizeof value);
    } else {
        json_number(j, value, sizeof value);
    }
    j->depth--;
    struct { const char *key; char *to; size_t size; } texts[] = {
        {"ph", f->ph, sizeof f->ph}, {"ts", f->ts, sizeof f->ts}, {"dur", f->dur, sizeof f->dur}, {"name", f->name, sizeof f->name}, {"cat", f->cat, sizeof f->cat}};
    for (size_t i = 0; i < 5; i++) {
        if (strcmp(key, texts[i].key) == 0) {
            snprintf(texts[i].to, texts[i].size, "%.30s", value);
        }
    }
    uint64_t *to = strcmp(key, "sequence") == 0 ? &f->sequence : strcmp(key, "epoch") == 0 ? &f->epoch : strcmp(key, "items") == 0 ? &f->items : NULL;
    if (to != NULL) {
        *to = strtoull(value, NULL, 10);
    }
    if (strcmp(key, "tid") == 0) {
        f->tid = atoi(value);
    }
}

static json json_check(const char *path, const dlpi_lane *lanes) {
    static json j;
    json_fields f;
    size_t n = 0;
    char *s = slurp(path, &n);
    memset(&f, 0, sizeof f);
    memset(&j, 0, sizeof j);
    j.bad = s == NULL;
    if (s != NULL) {
        j.s = s;
        j.end = s + n;
        j.lanes = lanes;
        json_space(&j);
        json_value(&j, &f, "");
        json_space(&j);
        j.bad = j.bad || j.s != j.end;
    }
    free(s);
    j.lanes = NULL;
    return j;
}

/* ---- an XML reader: well-formed or not, and the boxes of what is drawn ---- */

typedef struct box {
    double x, y, w, h;
    char kind[12], text[400];
    int titled;
} box;

typedef struct svg {
    box *rects, *texts;
    int n_rects, n_texts, lane_font;
    double width, height;
    size_t bytes;
    char bad[80];
} svg;

static void svg_fail(svg *g, const char *why) {
    if (g->bad[0] == 0) {
        snprintf(g->bad, sizeof g->bad, "%.79s", why);
    }
}

/* Check text up to `stop`, append it to out. */
static const char *xml_text(svg *g, const char *s, const char *end, char stop, char *out, size_t size) {
    size_t n = strlen(out);
    while (s < end && *s != stop) {
        const char *b = s;
        if (*s == '<') {
            svg_fail(g, "< in an attribute");
        }
        if (*s == '&') {
            const char *semi = memchr(s, ';', (size_t)(end - s));
            bool known = semi != NULL && semi - s > 2 && s[1] == '#';
            for (const char *p = s + 2; known && p < semi; p++) {
                known = *p >= '0' && *p <= '9';
            }
            if (!known) {
                svg_fail(g, "bad entity");
                return end;
            }
            if (n + 1 < size) {
                out[n++] = (char)atoi(s + 2);
            }
            s = semi + 1;
            continue;
        }
        uint32_t c = dlpi_utf8_next(&s, end);
        if ((c == 0xfffd && !(end - b >= 3 && memcmp(b, "\xef\xbf\xbd", 3) == 0)) && *b != '\n') {
            svg_fail(g, "a character that XML or good taste forbids");
        }
        for (; b < s && n + 1 < size; b++) {
            out[n++] = *b;
        }
    }
    out[n] = 0;
    return s;
}

typedef struct xml_element {
    char name[16], kind[12];
    double x, y, w, h;
} xml_element;

static const char *xml_attributes(svg *g, const char *s, const char *end, xml_element *e) {
    while (s < end && *s != '>' && *s != '/') {
        char key[32] = "", value[400] = "";
        size_t n = 0;
        for (; s < end && (*s == ' ' || *s == '\n'); s++) {
        }
        for (; s < end && *s != '=' && n + 1 < sizeof key; s++) {
            key[n++] = *s;
        }
        key[n] = 0;
        if (end - s < 3 || s[1] != '"' || n == 0 || strspn(key, "abcdefghijklmnopqrstuvwxyzB-") != n) {
            svg_fail(g, "attribute without quotes");
            return end;
        }
        s = xml_text(g, s + 2, end, '"', value, sizeof value);
        s += s < end;
        double v = atof(value);
        double *to = !strcmp(key, "x") ? &e->x : !strcmp(key, "y") ? &e->y : !strcmp(key, "width") ? &e->w : !strcmp(key, "height") ? &e->h : NULL;
        if (to != NULL) {
            *to = v;
        }
        if (!strcmp(key, "class")) {
            snprintf(e->kind, sizeof e->kind, "%.11s", value);
        }
    }
    return s;
}

static box *svg_box(box **list, int *n, const xml_element *e) {
    if ((*n & (*n - 1)) == 0) {
        *list = realloc(*list, sizeof(box) * (size_t)(*n ? *n * 2 : 1));
    }
    if (*list == NULL) {
        abort();
    }
    box *b = &(*list)[(*n)++];
    memset(b, 0, sizeof *b);
    b->x = e->x;
    b->y = e->y;
    b->w = e->w;
    b->h = e->h;
    memcpy(b->kind, e->kind, sizeof b->kind);
    return b;
}

/* Font, anchor and a generous width: no common sans-serif font is wider. */
static void svg_text_box(const svg *g, box *b) {
    double font = !strcmp(b->kind, "title") ? 16 : !strcmp(b->kind, "head") ? 12 : !strcmp(b->kind, "lane") ? g->lane_font : !strncmp(b->kind, "num", 3) ? 10 : 11;
    int units = dlpi_text_units(b->text, strlen(b->text));
    b->w = units * 0.66 * font;
    bool middle = !strcmp(b->kind, "tick") || !strncmp(b->kind, "num", 3);
    b->x -= middle ? b->w / 2 : !strcmp(b->kind, "lane") ? b->w : 0;
    b->y -= font * 0.8;
    b->h = font;
}

static void svg_parse(svg *g, const char *s, const char *end) {
    xml_element stack[8];
    int depth = 0, roots = 0, in_text = -1;
    char sink[400];
    while (s < end) {
        sink[0] = 0;
        bool title = depth > 0 && !strcmp(stack[depth - 1].name, "title");
        if (in_text >= 0 && !title) {
            s = xml_text(g, s, end, '<', g->texts[in_text].text, sizeof g->texts[in_text].text);
        } else {
            s = xml_text(g, s, end, '<', sink, sizeof sink);
            if (title && g->n_rects > 0) {
                g->rects[g->n_rects - 1].titled = (int)strlen(sink);
                snprintf(g->rects[g->n_rects - 1].text, 400, "%s", sink);
            }
        }
        if (s == end) {
            break;
        }
        bool closing = s + 1 < end && s[1] == '/';
        s += closing ? 2 : 1;
        xml_element e;
        memset(&e, 0, sizeof e);
        for (size_t n = 0; s < end && *s >= 'a' && *s <= 'z' && n + 1 < sizeof e.name; s++) {
            e.name[n++] = *s;
        }
        if (closing) {
            if (depth == 0 || strcmp(stack[depth - 1].name, e.name) != 0 || *s != '>') {
                svg_fail(g, "tags do not balance");
                return;
            }
            depth--;
            in_text = strcmp(e.name, "text") == 0 ? -1 : in_text;
            s++;
            continue;
        }
        s = xml_attributes(g, s, end, &e);
        bool empty = s < end && *s == '/';
        s += empty;
        if (s >= end || *s != '>' || (depth == 0 && (roots++ > 0 || strcmp(e.name, "svg") != 0))) {
            svg_fail(g, "bad tag or root");
            return;
        }
        s++;
        if (!strcmp(e.name, "svg")) {
            g->width = e.w;
            g->height = e.h;
        } else if (!strcmp(e.name, "rect")) {
            svg_box(&g->rects, &g->n_rects, &e);
        } else if (!strcmp(e.name, "text")) {
            svg_box(&g->texts, &g->n_texts, &e);
            in_text = g->n_texts - 1;
        }
        if (!empty) {
            if (depth == 8) {
                svg_fail(g, "too deep");
                return;
            }
            stack[depth++] = e;
        }
    }
    if (depth != 0 || roots != 1) {
        svg_fail(g, "elements left open");
    }
}

static int box_compare(const void *a, const void *b) {
    const box *p = a, *q = b;
    return p->y < q->y ? -1 : p->y > q->y ? 1 : p->x < q->x ? -1 : p->x > q->x;
}

static svg svg_read(const char *path) {
    svg g;
    size_t n = 0;
    char *s = slurp(path, &n);
    memset(&g, 0, sizeof g);
    g.bytes = n;
    if (s == NULL) {
        svg_fail(&g, "no file");
        return g;
    }
    const char *font = strstr(s, ".lane{font-size:");
    g.lane_font = font ? atoi(font + 16) : 0;
    svg_parse(&g, s, s + n);
    for (int i = 0; i < g.n_texts; i++) {
        svg_text_box(&g, &g.texts[i]);
    }
    free(s);
    return g;
}

static void svg_free(svg *g) {
    free(g->rects);
    free(g->texts);
}

static bool is_stretch(const box *b) {
    return b->titled > 0;
}

/* Everything inside the canvas, no two texts on each other, no two stretches of a lane on each other.
   Stretches of a lane share their top or bottom edge; lanes are at least 4 px apart and do not touch. */
static void svg_check_boxes(svg *g) {
    CHECK(g->bad[0] == 0, "%s", g->bad);
    for (int i = 0; i < g->n_rects; i++) {
        const box *b = &g->rects[i];
        CHECK(b->x >= 0 && b->y >= 0 && b->w >= 0 && b->h > 0 && b->x + b->w <= g->width + 0.01 && b->y + b->h <= g->height + 0.01,
              "rect %.2f %.2f %.2f %.2f outside", b->x, b->y, b->w, b->h);
    }
    qsort(g->texts, (size_t)g->n_texts, sizeof(box), box_compare);
    for (int i = 0; i < g->n_texts; i++) {
        const box *a = &g->texts[i];
        CHECK(a->x >= 0 && a->y >= 0 && a->x + a->w <= g->width && a->y + a->h <= g->height + 1, "text outside: '%s'", a->text);
        for (int k = i + 1; k < g->n_texts && g->texts[k].y < a->y + a->h; k++) {
            const box *b = &g->texts[k];
            CHECK(b->x >= a->x + a->w || a->x >= b->x + b->w, "texts overlap: '%s' and '%s'", a->text, b->text);
        }
    }
    qsort(g->rects, (size_t)g->n_rects, sizeof(box), box_compare);
    for (int i = 0; i < g->n_rects; i++) {
        const box *a = &g->rects[i];
        for (int k = i + 1; is_stretch(a) && k < g->n_rects && g->rects[k].y < a->y + a->h; k++) {
            const box *b = &g->rects[k];
            if (is_stretch(b) && b->x < a->x + a->w - 0.005 && a->x < b->x + b->w - 0.005) {
                CHECK(false, "stretches overlap: %.2f+%.2f and %.2f+%.2f at y %.0f: %s | %s", a->x, a->w, b->x, b->w, a->y, a->text, b->text);
                return;
            }
        }
    }
}

static int svg_count_texts(const svg *g, const char *kind) {
    int n = 0;
    for (int i = 0; i < g->n_texts; i++) {
        n += strcmp(g->texts[i].kind, kind) == 0;
    }
    return n;
}

static const box *svg_find_text(const svg *g, const char *part) {
    for (int i = 0; i < g->n_texts; i++) {
        if (strstr(g->texts[i].text, part) != NULL) {
            return &g->texts[i];
        }
    }
    return NULL;
}

/* ---- sample pictures ---- */

static const struct { const char *name; sim d; int ring; } samples[] = {
    {"w4", {.workers = 4, .prefetch = 2, .batch = 16, .batches = 200, .per_epoch = 33, .item_ns = 3000000, .jitter = 40, .step_ns = 11000000, .cpu = 0.2, .cpus = 8}, 102},
    {"w4collate", {.workers = 4, .collates = 2, .prefetch = 2, .batch = 16, .batches = 200, .per_epoch = 40, .item_ns = 2000000, .collate_ns = 9000000, .step_ns = 6000000, .cpu = 0.2, .cpus = 8}, 102},
    {"w16", {.workers = 16, .collates = 2, .prefetch = 4, .batch = 32, .batches = 200, .per_epoch = 60, .item_ns = 8000000, .skew = 10, .jitter = 30, .collate_ns = 4000000, .step_ns = 18000000, .cpu = 0.2, .cpus = 32}, 102},
    {"w64", {.workers = 64, .collates = 4, .prefetch = 4, .batch = 64, .batches = 300, .per_epoch = 70, .item_ns = 40000000, .jitter = 50, .collate_ns = 20000000, .step_ns = 45000000, .cpu = 0.2, .cpus = 96}, 102},
    {"w300", {.workers = 300, .prefetch = 4, .batch = 64, .batches = 300, .item_ns = 40000000, .jitter = 50, .step_ns = 12000000, .cpu = 0.2, .cpus = 96}, 102},
    {"w1", {.workers = 1, .prefetch = 2, .batch = 8, .batches = 100, .item_ns = 1500, .jitter = 20, .step_ns = 9000, .cpu = 1, .cpus = 8}, 102},
    {"w0", {.workers = 0, .prefetch = 1, .batch = 8, .batches = 100, .per_epoch = 25, .item_ns = 1000000, .step_ns = 3000000, .cpu = 1, .cpus = 8}, 102},
    {"slow", {.workers = 3, .prefetch = 2, .batch = 4, .batches = 40, .item_ns = 10000000000u, .jitter = 30, .step_ns = 1000, .cpu = 0.1, .cpus = 8}, 102},
};

static int draw(const char *to) {
    snprintf(dir, sizeof dir, "%.60s", to);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        char name[64], words[4096];
        simulate(&samples[i].d);
        sim_ring(samples[i].ring);
        snprintf(name, sizeof name, "%s.svg", samples[i].name);
        if (dlpi_lanes_write_timeline(world.lanes, world.n_lanes, &world.stats, in_dir(name)) != 0) {
            perror(in_dir(name));
            return 1;
        }
        snprintf(name, sizeof name, "%s.json", samples[i].name);
        if (dlpi_lanes_write_trace(world.lanes, world.n_lanes, in_dir(name)) != 0) {
            perror(in_dir(name));
            return 1;
        }
        dlp_stats_explain(&world.stats, words, sizeof words);
        printf("-- %s\n%s", samples[i].name, words);
    }
    return dlpi_lanes_write_timeline(NULL, 0, NULL, in_dir("empty.svg")) != 0;
}
