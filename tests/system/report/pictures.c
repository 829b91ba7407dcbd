/* needs: pictures */
/* Trace files, timelines and explanations, from lanes and stats that a small queueing simulation
   makes. Arguments: none to test; "draw DIR" to write sample pictures into a directory. */
/* own: hook: each allocation may fail */
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
    if (alloc_calls++ == alloc_fail_at) { return NULL; }
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

#define malloc test_malloc
#define calloc test_calloc
#define free test_free
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
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
    static char path[16][160];
    static unsigned which;
    which = (which + 1) % 16;
    snprintf(path[which], sizeof path[which], "%s/%s", dir, name);
    return path[which];
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    size_t cap = 1 << 16, got = 0;
    if (f == NULL) { return NULL; }
    for (size_t k = 1; k > 0; got += k) {
        s = realloc(s, cap *= 2);
        if (s == NULL) { abort(); }
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

/* ---- a simulated pipe: item workers that claim in order, an optional collate, a consumer ---- */

typedef struct sim {
    int workers;  /* 0: inline */
    int collates; /* batch workers; 0: no collate */
    uint32_t prefetch, batch;
    int batches, per_epoch;
    uint64_t item_ns, collate_ns, step_ns;
    int skew;   /* one item in 20 takes `skew` times as long; 0: none */
    int jitter; /* percent of item_ns */
    double cpu; /* share of busy time on a core */
    uint32_t cpus;
    int transfer; /* the batch stage is a transfer stage */
} sim;

enum { SIM_LANES = 1100, SIM_EVENTS = 100000 };

typedef struct sim_out {
    dlp_stats stats;
    dlpi_lane lanes[SIM_LANES];
    dlp_trace_event *events[SIM_LANES];
    int n_lanes;
} sim_out;

static sim_out world;

static void lane_event(int lane, uint64_t begin, uint64_t end, uint16_t kind, uint64_t sequence,
                       uint32_t epoch, uint16_t items) {
    dlpi_lane *l = &world.lanes[lane];
    dlp_trace_event *e = world.events[lane];
    if (e == NULL) { e = world.events[lane] = calloc(SIM_EVENTS, sizeof *e); }
    if (e == NULL) { abort(); }
    l->events = e;
    if (end <= begin || l->n == SIM_EVENTS) { return; }
    if (l->n > 0 && e[l->n - 1].kind == kind && e[l->n - 1].sequence == sequence &&
        e[l->n - 1].end_ns == begin && kind == DLP_TRACE_WORK) {
        e[l->n - 1].end_ns = end;
        e[l->n - 1].items = (uint16_t)(e[l->n - 1].items + items);
        return;
    }
    e[l->n++] = (dlp_trace_event){begin, end, sequence, epoch, kind, items};
}

static void sim_names(const sim *d) {
    world.n_lanes = 1 + d->workers + d->collates;
    snprintf(world.lanes[0].name, 32, "consumer");
    world.lanes[0].group = -1;
    for (int i = 1; i < world.n_lanes; i++) {
        bool fetch = i <= d->workers;
        world.lanes[i].group = fetch ? 0 : 1;
        snprintf(world.lanes[i].name, 32, "%s %d",
                 fetch         ? "fetch"
                 : d->transfer ? "transfer"
                               : "batch",
                 fetch ? i - 1 : i - 1 - d->workers);
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
    for (int i = 1; i < n; i++) { best = t[i] < t[best] ? i : best; }
    return best;
}

static const dlp_stats *simulate(const sim *d) {
    static uint64_t taken[1 << 17], worker_free[1024], collate_free[1024];
    uint64_t consumer = 0;
    dlp_stats *s = &world.stats;
    memset(s, 0, sizeof *s);
    memset(worker_free, 0, sizeof worker_free);
    memset(collate_free, 0, sizeof collate_free);
    random_state = 88172645463325252u;
    sim_names(d);
    s->n_stages = d->collates > 0 ? 2 : 1;
    s->stages[0] =
        (dlp_stage_stats){.name = "fetch", .kind = DLP_STAGE_FETCH, .workers = d->workers};
    s->stages[1] = (dlp_stage_stats){.name = "batch",
                                     .kind = d->transfer ? DLP_STAGE_TRANSFER : DLP_STAGE_BATCH,
                                     .workers = d->collates,
                                     .unit_is_batch = 1};
    for (int b = 0; b < d->batches; b++) {
        uint32_t epoch = d->per_epoch > 0 ? (uint32_t)(b / d->per_epoch) : 0;
        uint64_t open = b < (int)d->prefetch ? 0 : taken[b - (int)d->prefetch], ready = 0,
                 seq = (uint64_t)b;
        for (uint32_t i = 0; i < d->batch; i++) {
            uint64_t t = sim_service(d);
            s->stages[0].busy_ns += t;
            if (d->workers == 0) {
                ready = (ready > consumer ? ready : consumer) + t;
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
            lane_event(1 + d->workers + w, collate_free[w], begin, DLP_TRACE_STARVED, seq, epoch,
                       0);
            s->stages[1].starved_ns += begin - collate_free[w];
            s->stages[1].busy_ns += d->collate_ns;
            ready = collate_free[w] = begin + d->collate_ns;
            lane_event(1 + d->workers + w, begin, ready, DLP_TRACE_WORK, seq, epoch,
                       (uint16_t)d->batch);
        }
        uint64_t got = ready > consumer ? ready : consumer;
        lane_event(0, consumer, got, DLP_TRACE_WAIT, seq, epoch, 0);
        if (d->per_epoch > 0 && b % d->per_epoch == 0 && b > 0) {
            world.events[0][world.lanes[0].n > 0 ? world.lanes[0].n - 1 : 0].epoch = epoch;
        }
        s->wait_ns += got - consumer;
        s->first_batch_ns = b == 0 ? got : s->first_batch_ns;
        taken[b] = got;
        consumer = got + d->step_ns;
        lane_event(0, got, consumer, DLP_TRACE_STEP, seq, epoch, (uint16_t)d->batch);
        s->step_ns += d->step_ns;
    }
    s->batches = (uint64_t)d->batches;
    s->items = s->stages[0].items = s->batches * d->batch;
    s->stages[1].items = s->batches;
    s->bytes = s->items * 1000;
    s->elapsed_ns = consumer;
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

static int lanes_timeline(const dlpi_lane *lanes, int n, const dlp_stats *s, const char *path) {
    dlpi_picture p = {.lanes = lanes, .n_lanes = n, .stats = s};
    return dlpi_picture_write(&p, dlpi_svg_write, path, NULL);
}

static int lanes_trace(const dlpi_lane *lanes, int n, const char *path) {
    dlpi_picture p = {.lanes = lanes, .n_lanes = n};
    return dlpi_picture_write(&p, dlpi_json_write, path, NULL);
}

/* ---- a JSON reader: valid or not, and the values of the events ---- */

typedef struct json {
    const char *s, *end;
    bool bad;
    int events, names, depth;
    const dlpi_lane *lanes; /* what events should say */
    int next[SIM_LANES];
    int wrong;
} json;

static void json_space(json *j) {
    while (j->s < j->end && strchr(" \t\r\n", *j->s) != NULL) { j->s++; }
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
        if (c < 0x20) { j->bad = true; }
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
                if (n + 1 < size) { out[n++] = (char)c; }
                c = (unsigned char)*j->s++;
            }
        }
        if (n + 1 < size) { out[n++] = (char)c; }
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
    if (j->s < j->end && *j->s == '-') { j->s++; }
    const char *digits = j->s;
    while (j->s < j->end && (strchr("0123456789.", *j->s) != NULL)) { j->s++; }
    bool zero = digits < j->end && digits[0] == '0' && digits + 1 < j->s && digits[1] != '.';
    if (digits == j->s || *digits == '.' || j->s[-1] == '.' || zero) {
        j->bad = true;
        j->s = j->end;
        return;
    }
    for (; b < j->s && n + 1 < size; b++) { out[n++] = *b; }
    out[n] = 0;
}

static void json_event_done(json *j, const json_fields *f) {
    char ts[40], dur[40];
    if (strcmp(f->ph, "M") == 0 && strcmp(f->name, "thread_name") == 0) { j->names++; }
    if (strcmp(f->ph, "X") != 0) { return; }
    j->events++;
    int lane = f->tid - 1;
    if (j->lanes == NULL || lane < 0 || lane >= SIM_LANES) { return; }
    const dlp_trace_event *e = &j->lanes[lane].events[j->next[lane]++];
    snprintf(ts, sizeof ts, "%" PRIu64 ".%03u", e->begin_ns / 1000, (unsigned)(e->begin_ns % 1000));
    snprintf(dur, sizeof dur, "%" PRIu64 ".%03u", (e->end_ns - e->begin_ns) / 1000,
             (unsigned)((e->end_ns - e->begin_ns) % 1000));
    j->wrong += strcmp(ts, f->ts) != 0 || strcmp(dur, f->dur) != 0 || f->sequence != e->sequence ||
                f->epoch != e->epoch || f->items != e->items;
}

static void json_object(json *j, json_fields *outer, const char *outer_key) {
    json_fields mine;
    memset(&mine, 0, sizeof mine);
    bool args = strcmp(outer_key, "args") == 0;
    json_fields *f = args ? outer : &mine;
    if (json_take(j, '}')) { return; }
    do {
        char key[64];
        json_string(j, key, sizeof key);
        j->bad = j->bad || !json_take(j, ':');
        json_value(j, f, args && strcmp(key, "name") == 0 ? "args.name" : key);
    } while (!j->bad && json_take(j, ','));
    j->bad = j->bad || !json_take(j, '}');
    if (strcmp(outer_key, "traceEvents") == 0) { json_event_done(j, f); }
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
            do { json_value(j, f, key); } while (!j->bad && json_take(j, ','));
            j->bad = j->bad || !json_take(j, ']');
        }
    } else if (j->s < j->end && *j->s == '"') {
        json_string(j, value, sizeof value);
    } else {
        json_number(j, value, sizeof value);
    }
    j->depth--;
    struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {{"ph", f->ph, sizeof f->ph},
                 {"ts", f->ts, sizeof f->ts},
                 {"dur", f->dur, sizeof f->dur},
                 {"name", f->name, sizeof f->name},
                 {"cat", f->cat, sizeof f->cat}};
    for (size_t i = 0; i < 5; i++) {
        if (strcmp(key, texts[i].key) == 0) {
            snprintf(texts[i].to, texts[i].size, "%.30s", value);
        }
    }
    uint64_t *to = strcmp(key, "sequence") == 0 ? &f->sequence
                   : strcmp(key, "epoch") == 0  ? &f->epoch
                   : strcmp(key, "items") == 0  ? &f->items
                                                : NULL;
    if (to != NULL) { *to = strtoull(value, NULL, 10); }
    if (strcmp(key, "tid") == 0) { f->tid = atoi(value); }
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
    int n_rects, n_texts, lane_font, n_borders;
    int borders[300]; /* x of the epoch borders, once for each group */
    double width, height;
    size_t bytes;
    char bad[80];
} svg;

static void svg_fail(svg *g, const char *why) {
    if (g->bad[0] == 0) { snprintf(g->bad, sizeof g->bad, "%.79s", why); }
}

/* Check text up to `stop`, append it to out. */
static const char *xml_text(svg *g, const char *s, const char *end, char stop, char *out,
                            size_t size) {
    size_t n = strlen(out);
    while (s < end && *s != stop) {
        const char *b = s;
        if (*s == '<') { svg_fail(g, "< in an attribute"); }
        if (*s == '&') {
            const char *semi = memchr(s, ';', (size_t)(end - s));
            bool known = semi != NULL && semi - s > 2 && s[1] == '#';
            for (const char *p = s + 2; known && p < semi; p++) { known = *p >= '0' && *p <= '9'; }
            if (!known) {
                svg_fail(g, "bad entity");
                return end;
            }
            if (n + 1 < size) { out[n++] = (char)atoi(s + 2); }
            s = semi + 1;
            continue;
        }
        uint32_t c = dlpi_utf8_next(&s, end);
        if ((c == 0xfffd && !(end - b >= 3 && memcmp(b, "\xef\xbf\xbd", 3) == 0)) && *b != '\n') {
            svg_fail(g, "a character that XML or good taste forbids");
        }
        for (; b < s && n + 1 < size; b++) { out[n++] = *b; }
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
        for (; s < end && (*s == ' ' || *s == '\n'); s++) {}
        for (; s < end && *s != '=' && n + 1 < sizeof key; s++) { key[n++] = *s; }
        key[n] = 0;
        if (end - s < 3 || s[1] != '"' || n == 0 ||
            strspn(key, "abcdefghijklmnopqrstuvwxyzBTU-") != n) {
            svg_fail(g, "attribute without quotes");
            return end;
        }
        s = xml_text(g, s + 2, end, '"', value, sizeof value);
        s += s < end;
        double v = atof(value);
        double *to = !strcmp(key, "x")        ? &e->x
                     : !strcmp(key, "y")      ? &e->y
                     : !strcmp(key, "width")  ? &e->w
                     : !strcmp(key, "height") ? &e->h
                                              : NULL;
        if (to != NULL) { *to = v; }
        if (!strcmp(key, "class")) { snprintf(e->kind, sizeof e->kind, "%.11s", value); }
    }
    return s;
}

static box *svg_box(box **list, int *n, const xml_element *e) {
    if ((*n & (*n - 1)) == 0) { *list = realloc(*list, sizeof(box) * (size_t)(*n ? *n * 2 : 1)); }
    if (*list == NULL) { abort(); }
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
    double font = !strcmp(b->kind, "title")     ? 16
                  : !strcmp(b->kind, "head")    ? 12
                  : !strcmp(b->kind, "lane")    ? g->lane_font
                  : !strncmp(b->kind, "num", 3) ? 9
                                                : 11;
    int units = dlpi_text_units(b->text, strlen(b->text));
    b->w = units * 0.66 * font;
    bool middle =
        !strcmp(b->kind, "tick") || !strcmp(b->kind, "epoch") || !strncmp(b->kind, "num", 3);
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
        if (s == end) { break; }
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
    if (depth != 0 || roots != 1) { svg_fail(g, "elements left open"); }
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
    for (const char *b = s; (b = strstr(b, "class=\"border\" d=\"M")) != NULL && g.n_borders < 300;
         b++) {
        g.borders[g.n_borders++] = atoi(b + 19);
    }
    svg_parse(&g, s, s + n);
    for (int i = 0; i < g.n_texts; i++) { svg_text_box(&g, &g.texts[i]); }
    free(s);
    return g;
}

static void svg_free(svg *g) {
    free(g->rects);
    free(g->texts);
}

static bool is_stretch(const box *b) { return b->titled > 0; }

/* Everything inside the canvas, no two texts on each other, no two stretches of a lane on each
   other. Stretches of a lane share their top or bottom edge; lanes are at least 4 px apart and do
   not touch. */
static void svg_check_boxes(svg *g) {
    CHECK(g->bad[0] == 0, "%s", g->bad);
    for (int i = 0; i < g->n_rects; i++) {
        const box *b = &g->rects[i];
        CHECK(b->x >= 0 && b->y >= 0 && b->w >= 0 && b->h > 0 && b->x + b->w <= g->width + 0.01 &&
                  b->y + b->h <= g->height + 0.01,
              "rect %.2f %.2f %.2f %.2f outside", b->x, b->y, b->w, b->h);
    }
    qsort(g->texts, (size_t)g->n_texts, sizeof(box), box_compare);
    for (int i = 0; i < g->n_texts; i++) {
        const box *a = &g->texts[i];
        for (int k = 0; k < g->n_borders && strncmp(a->kind, "num", 3) == 0; k++) {
            CHECK(g->borders[k] < a->x || g->borders[k] > a->x + a->w,
                  "a border crosses the number %s", a->text);
        }
        CHECK(a->x >= 0 && a->y >= 0 && a->x + a->w <= g->width && a->y + a->h <= g->height + 1,
              "text outside: '%s'", a->text);
        for (int k = i + 1; k < g->n_texts && g->texts[k].y < a->y + a->h; k++) {
            const box *b = &g->texts[k];
            CHECK(b->x >= a->x + a->w || a->x >= b->x + b->w, "texts overlap: '%s' and '%s'",
                  a->text, b->text);
        }
    }
    if (g->n_texts > 0) {
        double bottom = g->texts[g->n_texts - 1].y;
        CHECK(g->n_texts < 5 || g->height - bottom < 40, "%.0f px of nothing at the bottom",
              g->height - bottom);
    }
    qsort(g->rects, (size_t)g->n_rects, sizeof(box), box_compare);
    for (int i = 0; i < g->n_rects; i++) {
        const box *a = &g->rects[i];
        for (int k = i + 1; is_stretch(a) && k < g->n_rects && g->rects[k].y < a->y + a->h; k++) {
            const box *b = &g->rects[k];
            if (is_stretch(b) && b->x < a->x + a->w - 0.005 && a->x < b->x + b->w - 0.005) {
                CHECK(false, "stretches overlap: %.2f+%.2f and %.2f+%.2f at y %.0f: %s | %s", a->x,
                      a->w, b->x, b->w, a->y, a->text, b->text);
                return;
            }
        }
    }
}

static int svg_count_texts(const svg *g, const char *kind) {
    int n = 0;
    for (int i = 0; i < g->n_texts; i++) { n += strcmp(g->texts[i].kind, kind) == 0; }
    return n;
}

static const box *svg_find_text(const svg *g, const char *part) {
    for (int i = 0; i < g->n_texts; i++) {
        if (strstr(g->texts[i].text, part) != NULL) { return &g->texts[i]; }
    }
    return NULL;
}

/* ---- sample pictures ---- */

static const struct {
    const char *name;
    sim d;
    int ring;
} samples[] = {
    {"w4",
     {.workers = 4,
      .prefetch = 2,
      .batch = 16,
      .batches = 200,
      .per_epoch = 33,
      .item_ns = 3000000,
      .jitter = 40,
      .step_ns = 11000000,
      .cpu = 0.2,
      .cpus = 8},
     102},
    {"w4collate",
     {.workers = 4,
      .collates = 2,
      .prefetch = 2,
      .batch = 16,
      .batches = 200,
      .per_epoch = 40,
      .item_ns = 2000000,
      .collate_ns = 9000000,
      .step_ns = 6000000,
      .cpu = 0.2,
      .cpus = 8},
     102},
    {"w16",
     {.workers = 16,
      .collates = 2,
      .prefetch = 4,
      .batch = 32,
      .batches = 200,
      .per_epoch = 60,
      .item_ns = 8000000,
      .skew = 10,
      .jitter = 30,
      .collate_ns = 4000000,
      .step_ns = 18000000,
      .cpu = 0.2,
      .cpus = 32},
     102},
    {"w64",
     {.workers = 64,
      .collates = 4,
      .prefetch = 4,
      .batch = 64,
      .batches = 300,
      .per_epoch = 70,
      .item_ns = 40000000,
      .jitter = 50,
      .collate_ns = 20000000,
      .step_ns = 45000000,
      .cpu = 0.2,
      .cpus = 96},
     102},
    {"w300",
     {.workers = 300,
      .prefetch = 4,
      .batch = 64,
      .batches = 300,
      .item_ns = 40000000,
      .jitter = 50,
      .step_ns = 12000000,
      .cpu = 0.2,
      .cpus = 96},
     102},
    {"w1",
     {.workers = 1,
      .prefetch = 2,
      .batch = 8,
      .batches = 100,
      .item_ns = 1500,
      .jitter = 20,
      .step_ns = 9000,
      .cpu = 1,
      .cpus = 8},
     102},
    {"w0",
     {.workers = 0,
      .prefetch = 1,
      .batch = 8,
      .batches = 100,
      .per_epoch = 25,
      .item_ns = 1000000,
      .step_ns = 3000000,
      .cpu = 1,
      .cpus = 8},
     102},
    {"slow",
     {.workers = 3,
      .prefetch = 2,
      .batch = 4,
      .batches = 40,
      .item_ns = 10000000000u,
      .jitter = 30,
      .step_ns = 1000,
      .cpu = 0.1,
      .cpus = 8},
     102},
};

static int draw(const char *to) {
    snprintf(dir, sizeof dir, "%.60s", to);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        char name[64], words[4096];
        simulate(&samples[i].d);
        sim_ring(samples[i].ring);
        snprintf(name, sizeof name, "%s.svg", samples[i].name);
        if (lanes_timeline(world.lanes, world.n_lanes, &world.stats, in_dir(name)) != 0) {
            perror(in_dir(name));
            return 1;
        }
        snprintf(name, sizeof name, "%s.json", samples[i].name);
        if (lanes_trace(world.lanes, world.n_lanes, in_dir(name)) != 0) {
            perror(in_dir(name));
            return 1;
        }
        dlp_stats_explain(&world.stats, words, sizeof words);
        printf("-- %s\n%s", samples[i].name, words);
    }
    return lanes_timeline(NULL, 0, NULL, in_dir("empty.svg")) != 0;
}

/* ---- numbers and names ---- */

static void expect(const char *got, const char *want) {
    CHECK(strcmp(got, want) == 0, "'%s', wanted '%s'", got, want);
}

static void numbers__all_magnitudes__short_and_rounded(void) {
    expect(dlpi_num_of(0).s, "0.00");
    expect(dlpi_num_of(0.126).s, "0.13");
    expect(dlpi_num_of(9.996).s, "10.0");
    expect(dlpi_num_of(99.96).s, "100");
    expect(dlpi_num_of(1234.4).s, "1234");
    expect(dlpi_num_of(56789).s, "56,789");
    expect(dlpi_num_of(1230000).s, "1.23 million");
    expect(dlpi_num_of(-1).s, "0.00");
    expect(dlpi_num_of(1e300).s, "1000000000 million");
    expect(dlpi_num_percent(0.0004).s, "0");
    expect(dlpi_num_percent(0.083).s, "8.3");
    expect(dlpi_num_percent(0.424).s, "42");
    expect(dlpi_num_percent(0.996).s, "99.6");
    expect(dlpi_num_percent(7).s, "100");
    expect(dlpi_num_ns(0).s, "0 ns");
    expect(dlpi_num_ns(999).s, "999 ns");
    expect(dlpi_num_ns(1234).s, "1.23 us");
    expect(dlpi_num_ns(12345678).s, "12.3 ms");
    expect(dlpi_num_ns(10000000000u).s, "10.0 s");
    expect(dlpi_num_ns(UINT64_MAX).s, "18446744074 s");
    expect(dlpi_num_time(1999999999u, 2000000000u, 100000000u).s, "2.0 s");
    expect(dlpi_num_bytes(1536).s, "1.50 KiB");
    expect(dlpi_num_bytes(17).s, "17 bytes");
}

static void names__utf8__kept_or_replaced(void) {
    static const struct {
        const char *s;
        uint32_t c;
        int used;
    } cases[] = {{"a", 'a', 1},
                 {"\xc3\xa9", 0xe9, 2},
                 {"\xe2\x82\xac", 0x20ac, 3},
                 {"\xf0\x9f\x98\x80", 0x1f600, 4},
                 {"\xc0\x80", 0xfffd, 1},
                 {"\xc3", 0xfffd, 1},
                 {"\xe0\x80\x80", 0xfffd, 3},
                 {"\xed\xa0\x80", 0xfffd, 3},
                 {"\xf5\x80\x80\x80", 0xfffd, 4},
                 {"\xff", 0xfffd, 1},
                 {"\x80", 0xfffd, 1},
                 {"\x01", 0xfffd, 1},
                 {"\x7f", 0xfffd, 1},
                 {"\xe2\x80\xae", 0xfffd, 3},
                 {"\xe0\x82\xa2", 0xfffd, 3},
                 {"\xef\xbf\xbf", 0xfffd, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i].s;
        uint32_t c = dlpi_utf8_next(&s, cases[i].s + strlen(cases[i].s));
        CHECK(c == cases[i].c && s - cases[i].s == cases[i].used, "case %zu: %x after %td", i, c,
              s - cases[i].s);
    }
}

/* ---- JSON ---- */

static void trace_json__simulated_run__every_event_preserved(void) {
    simulate(&samples[1].d);
    int events = 0;
    for (int i = 0; i < world.n_lanes; i++) { events += world.lanes[i].n; }
    CHECK(lanes_trace(world.lanes, world.n_lanes, in_dir("t.json")) == DLP_OK, "%s",
          strerror(errno));
    json j = json_check(in_dir("t.json"), world.lanes);
    CHECK(!j.bad && j.events == events && j.names == world.n_lanes && j.wrong == 0,
          "bad %d, %d of %d events, %d names, %d wrong", j.bad, j.events, events, j.names, j.wrong);
}

static void trace_json__no_lanes__valid(void) {
    CHECK(lanes_trace(NULL, 0, in_dir("t.json")) == DLP_OK, "%s", strerror(errno));
    json j = json_check(in_dir("t.json"), NULL);
    CHECK(!j.bad && j.events == 0, "%d", j.events);
}

static const char *const hostile[] = {
    "\"quoted\" \\back\\",
    "</text><script>x</script>",
    "a&b;&#0;&lt;",
    "\x01\x02\n\t\x1f\x7f",
    "\xff\xfe\xc0\x80\xed\xa0\x80",
    "]]>--><!--",
    "no terminator in thirty-two bytes at all",
    "\xe2\x80\xaertl\xe2\x81\xa6",
    ("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97"
     "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe5\xad"),
    "' onload='x",
    ""};
enum { HOSTILE = sizeof hostile / sizeof *hostile };

static void hostile_world(void) {
    sim d = {.workers = HOSTILE - 1,
             .prefetch = 2,
             .batch = 16,
             .batches = 60,
             .item_ns = 100000,
             .jitter = 90,
             .step_ns = 200000,
             .cpus = 8};
    simulate(&d);
    for (int i = 0; i < HOSTILE; i++) {
        memset(world.lanes[i].name, 0, 32);
        size_t n = strlen(hostile[i]);
        memcpy(world.lanes[i].name, hostile[i], n < 32 ? n : 32);
    }
    snprintf(world.stats.stages[0].name, 32, "<&\"'\x01\xff]]>");
}

static void trace_json__hostile_names__escaped(void) {
    hostile_world();
    CHECK(lanes_trace(world.lanes, HOSTILE, in_dir("t.json")) == DLP_OK, "%s", strerror(errno));
    json j = json_check(in_dir("t.json"), world.lanes);
    CHECK(!j.bad && j.names == HOSTILE && j.wrong == 0, "bad %d, %d names", j.bad, j.names);
}

/* Events of any bytes: out of order, ending before they begin, of no known kind. */
static void garbage_world(int n) {
    random_state = 4242;
    world.n_lanes = 5;
    memset(&world.stats, 0xff, sizeof world.stats);
    for (int i = 0; i < 5; i++) {
        world.lanes[i].n = 0;
        lane_event(i, 0, 0, 1, 0, 0, 0);
        world.lanes[i].group = i - 2;
        for (int k = 0; k < n; k++) {
            uint64_t at = rnd() >> rnd() % 64;
            world.events[i][k] = (dlp_trace_event){at,
                                                   rnd() % 3 ? at + (rnd() >> rnd() % 64) : rnd(),
                                                   rnd(),
                                                   (uint32_t)rnd(),
                                                   (uint16_t)(rnd() % 9),
                                                   (uint16_t)rnd()};
        }
        world.lanes[i].n = n;
    }
    for (int i = 0; i < DLP_MAX_STAGES; i++) { memset(world.stats.stages[i].name, 0xff, 32); }
}

static void garbage__any_bytes__files_still_valid(void) {
    for (int n = 1; n < 3000; n *= 3) {
        garbage_world(n);
        CHECK(lanes_trace(world.lanes, 5, in_dir("t.json")) == DLP_OK, "%s", strerror(errno));
        json j = json_check(in_dir("t.json"), NULL);
        CHECK(!j.bad && j.events == 5 * n, "%d of %d", j.events, 5 * n);
        CHECK(lanes_timeline(world.lanes, 5, &world.stats, in_dir("t.svg")) == DLP_OK, "%s",
              strerror(errno));
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        svg_free(&g);
    }
}

/* ---- SVG ---- */

static void timeline__samples__nothing_overlaps(void) {
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        for (int ring = 0; ring < 2; ring++) {
            simulate(&samples[i].d);
            sim_ring(ring ? samples[i].ring : SIM_EVENTS);
            CHECK(lanes_timeline(world.lanes, world.n_lanes, &world.stats, in_dir("t.svg")) ==
                      DLP_OK,
                  "%s", strerror(errno));
            svg g = svg_read(in_dir("t.svg"));
            svg_check_boxes(&g);
            int groups = 1 + (samples[i].d.workers > 0) + (samples[i].d.collates > 0);
            CHECK(svg_count_texts(&g, "head") == groups, "%s: %d groups", samples[i].name,
                  svg_count_texts(&g, "head"));
            if (world.n_lanes <= 100) {
                CHECK(svg_count_texts(&g, "lane") == world.n_lanes, "%s: %d lanes", samples[i].name,
                      svg_count_texts(&g, "lane"));
            }
            CHECK(g.n_rects > world.n_lanes, "%s: only %d rects", samples[i].name, g.n_rects);
            svg_free(&g);
        }
    }
}

static void ticks__any_length__one_two_or_five(void) {
    for (uint64_t length = 1; length < UINT64_MAX / 3; length += length / 2 + 1) {
        uint64_t step = dlpi_tick_step(length, 10), digit = step;
        while (digit % 10 == 0) { digit /= 10; }
        CHECK(digit == 1 || digit == 2 || digit == 5, "step %" PRIu64, step);
        CHECK(length / step <= 10 && (length < 10 || length / step >= 4), "%" PRIu64 " in %" PRIu64,
              step, length);
    }
}

static void timeline__every_duration__legible(void) {
    for (uint64_t ns = 1; ns < 20000000000u; ns *= 10) {
        sim d = {.workers = 2,
                 .prefetch = 2,
                 .batch = 4,
                 .batches = 2000,
                 .item_ns = ns,
                 .step_ns = 3 * ns,
                 .cpus = 4};
        simulate(&d);
        CHECK(lanes_timeline(world.lanes, world.n_lanes, &world.stats, in_dir("t.svg")) == DLP_OK,
              "%s", strerror(errno));
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        int ticks = svg_count_texts(&g, "tick") / 2,
            numbers = svg_count_texts(&g, "num0") + svg_count_texts(&g, "num1");
        CHECK(ticks >= 4 && ticks <= 11, "%" PRIu64 " ns: %d ticks", ns, ticks);
        CHECK(numbers >= 20, "%" PRIu64 " ns: %d numbers", ns, numbers);
        svg_free(&g);
    }
}

static void timeline__hostile_names__escaped_and_cut(void) {
    hostile_world();
    CHECK(lanes_timeline(world.lanes, HOSTILE, &world.stats, in_dir("t.svg")) == DLP_OK, "%s",
          strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    CHECK(svg_find_text(&g, "</text><script>") != NULL, "the second name is not shown as it is");
    CHECK(svg_find_text(&g, "\xe2\x80\xa6") != NULL, "no name is cut");
    svg_free(&g);
}

static void timeline__nothing_recorded__says_so(void) {
    dlpi_lane lane = {"consumer", -1, NULL, 0};
    for (int n = 0; n < 2; n++) {
        CHECK(lanes_timeline(&lane, n, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        CHECK(svg_find_text(&g, "Nothing is recorded") != NULL, "no words");
        svg_free(&g);
    }
}

static void timeline__64_lanes_of_100000_events__bounded(void) {
    static dlp_trace_event events[100000], sparse[150];
    random_state = 99;
    for (int pattern = 0; pattern < 2; pattern++) {
        dlpi_lane *lanes = calloc(65, sizeof *lanes);
        uint64_t t = 0;
        for (int i = 0; i < 100000; i++) {
            uint64_t length = pattern == 0 ? 1000 : i % 2 ? 4000 : 10;
            events[i] = (dlp_trace_event){
                t, t + length, (uint64_t)i / 7, 0, i % 3 ? DLP_TRACE_WORK : DLP_TRACE_STARVED, 1};
            t += length + rnd() % 3;
        }
        for (uint64_t i = 0; i < 150; i++) {
            sparse[i] = (dlp_trace_event){t / 150 * i, t / 150 * (i + 1), i, 0, DLP_TRACE_WORK, 1};
        }
        /* Pattern 1: most lanes have few events, so the window holds all 100,000 of the others. */
        for (int i = 0; lanes != NULL && i < 65; i++) {
            char name[64];
            lanes[i] = (dlpi_lane){.group = i ? 0 : -1, .events = events, .n = 100000};
            if (pattern == 1 && i < 40) {
                lanes[i].events = sparse;
                lanes[i].n = 150;
            }
            snprintf(name, sizeof name, "%02d is a rather long worker name", i);
            memcpy(lanes[i].name, name, 32);
        }
        CHECK(lanes_timeline(lanes, 65, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        CHECK(g.n_rects > 64 * 50 && g.n_rects < DLPI_SVG_RECTS + 1000 && g.bytes < 8u << 20,
              "%d rects, %zu bytes", g.n_rects, g.bytes);
        svg_free(&g);
        free(lanes);
    }
}

/* Every event that is wide enough to see is drawn where it belongs, in its batch's colour. */
static void timeline__wide_events__drawn_at_their_place(void) {
    static const dlp_trace_event t[] = {{1000, 2000, 7, 0, DLP_TRACE_WAIT, 0},
                                        {2000, 4000, 7, 0, DLP_TRACE_STEP, 4},
                                        {4000, 6000, 8, 1, DLP_TRACE_STEP, 4}};
    static const dlp_trace_event w[] = {{1000, 3000, 8, 0, DLP_TRACE_WORK, 4},
                                        {3000, 5000, 9, 0, DLP_TRACE_STARVED, 0},
                                        {5000, 6000, 9, 0, DLP_TRACE_BLOCKED, 0}};
    static const struct {
        const char *kind;
        double x, w;
    } want[] = {{"q", 160, 200},  {"w1", 360, 400}, {"w2", 760, 400},
                {"w2", 160, 400}, {"s", 560, 400},  {"b", 960, 200}};
    dlpi_lane lanes[2] = {{"consumer", -1, t, 3}, {"fetch 0", 0, w, 3}};
    CHECK(lanes_timeline(lanes, 2, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    for (size_t i = 0; i < 6; i++) {
        bool found = false;
        for (int k = 0; k < g.n_rects; k++) {
            const box *b = &g.rects[k];
            found = found || (b->titled && !strcmp(b->kind, want[i].kind) && b->x == want[i].x &&
                              b->w <= want[i].w && b->w >= want[i].w - 1);
        }
        CHECK(found, "no %s at %.0f", want[i].kind, want[i].x);
    }
    CHECK(svg_find_text(&g, "epoch 1") != NULL, "no epoch border");
    CHECK(svg_find_text(&g, "waited 20 % of this window") != NULL, "share of waiting");
    svg_free(&g);
}

/* The window ends with the newest event and leaves out what some lane has forgotten. */
/* ---- a chosen stretch, tails, the axis ---- */

/* Ten steps of 100 ms with waits of 10 ms between them, but 90 ms before step 6; epochs of four
   steps; one worker, whose ring has lost what was before 400 ms, and which ended at 900 ms. */
static void window_world(dlpi_lane lanes[2]) {
    static dlp_trace_event c[32], w[32];
    uint64_t t = 1000000;
    int n = 0, m = 0;
    memset(lanes, 0, 2 * sizeof *lanes);
    for (uint64_t k = 0; k < 10; k++) {
        uint64_t wait = k == 6 ? 90000000 : k == 0 ? 200000000 : 10000000;
        uint32_t epoch = (uint32_t)k / 4, before = k == 0 ? 0 : (uint32_t)(k - 1) / 4;
        c[n++] = (dlp_trace_event){t, t + wait, k, before, DLP_TRACE_WAIT, 0};
        t += wait;
        c[n++] = (dlp_trace_event){t, t + 100000000, k, epoch, DLP_TRACE_STEP, 4};
        t += 100000000;
    }
    for (uint64_t at = 400000000; at < 900000000; at += 50000000, m++) {
        w[m] = (dlp_trace_event){at, at + 50000000, (uint64_t)m, 0, DLP_TRACE_WORK, 4};
    }
    snprintf(lanes[0].name, 32, "consumer");
    snprintf(lanes[1].name, 32, "fetch 0");
    lanes[0].group = -1;
    lanes[0].events = c;
    lanes[0].n = n;
    lanes[1].events = w;
    lanes[1].n = m;
}

static void window__each_kind__its_stretch(void) {
    static const struct {
        dlp_trace_window w;
        uint64_t t0, t1; /* 0, 0: nothing */
    } cases[] = {{{DLP_WINDOW_TIME, 0, 300, 700}, 300, 700},
                 {{DLP_WINDOW_TIME, 0, 250000000, 0}, 250000000, 1371000000},
                 {{DLP_WINDOW_TIME, 0, 1371000000, 0}, 0, 0},
                 {{DLP_WINDOW_BATCHES, 0, 2, 4}, 411000000, 741000000},
                 {{DLP_WINDOW_BATCHES, 0, 0, 0}, 1000000, 301000000},
                 {{DLP_WINDOW_BATCHES, 0, 10, 99}, 0, 0},
                 {{DLP_WINDOW_EPOCH, 0, 0, 0}, 1000000, 631000000},
                 {{DLP_WINDOW_EPOCH, 0, 2, 0}, 1151000000, 1371000000},
                 {{DLP_WINDOW_EPOCH, 0, 3, 0}, 0, 0},
                 {{DLP_WINDOW_STALL, 0, 0, 0}, 761000000, 1031000000},
                 {{DLP_WINDOW_STALL, 0, 1000, 0}, 850999000, 941001000},
                 {{DLP_WINDOW_STALL, 0, UINT64_MAX, 0}, 0, UINT64_MAX}};
    dlpi_lane lanes[2];
    window_world(lanes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlpi_picture p = {.lanes = lanes, .n_lanes = 2, .window = &cases[i].w};
        dlpi_view v;
        memset(&v, 0, sizeof v);
        CHECK(dlpi_timeline_choose(&v, &p) == DLP_OK && v.t0 == cases[i].t0 && v.t1 == cases[i].t1,
              "case %zu: %" PRIu64 " to %" PRIu64, i, v.t0, v.t1);
        CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "case %zu",
              i);
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        CHECK((svg_find_text(&g, "of the stretch that was asked for") != NULL) ==
                  (cases[i].t1 == 0),
              "case %zu", i);
        svg_free(&g);
    }
}

static void window__stall_without_waits__says_so(void) {
    static const dlp_trace_event e[] = {{5, 50, 0, 0, DLP_TRACE_WAIT, 0},
                                        {50, 100, 0, 0, DLP_TRACE_STEP, 4}};
    dlpi_lane lane = {"consumer", -1, e, 2};
    dlp_trace_window w = {DLP_WINDOW_STALL, 0, 0, 0};
    dlpi_picture p = {.lanes = &lane, .n_lanes = 1, .window = &w};
    CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
          strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    CHECK(svg_find_text(&g, "No wait of the consumer is recorded") != NULL, "no words");
    svg_free(&g);
}

static void window__wrong__refused(void) {
    static const dlp_trace_window bad[] = {{-1, 0, 0, 0},
                                           {DLP_WINDOW_STALL + 1, 0, 0, 0},
                                           {DLP_WINDOW_TIME, 0, 5, 5},
                                           {DLP_WINDOW_TIME, 0, 5, 4},
                                           {DLP_WINDOW_BATCHES, 0, 5, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!dlpi_stretch_good(&bad[i]), "case %zu", i);
    }
    CHECK(dlpi_stretch_good(NULL) && dlpi_stretch_good(&(dlp_trace_window){0, 0, 0, 0}), "newest");
}

static const box *svg_find_rect(const svg *g, const char *kind, double x, double w) {
    for (int i = 0; i < g->n_rects; i++) {
        const box *b = &g->rects[i];
        double dx = b->x - x, dw = b->w - w;
        if (!strcmp(b->kind, kind) && dx * dx < 0.01 && dw * dw < 0.01) { return b; }
    }
    return NULL;
}

/* What a ring has lost, and what is not over yet, is hatched; the axis is time since the start. */
static void window__tails_and_axis__told(void) {
    dlpi_lane lanes[2];
    dlp_trace_window w = {DLP_WINDOW_TIME, 0, 200000000, 1200000000};
    dlpi_picture p = {.lanes = lanes, .n_lanes = 2, .window = &w};
    window_world(lanes);
    CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
          strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    CHECK(svg_find_rect(&g, "n", 160, 200) != NULL, "nothing hatched before");
    CHECK(svg_find_rect(&g, "t", 360, 500) != NULL, "another ground");
    CHECK(svg_find_rect(&g, "n", 860, 300) != NULL, "nothing hatched behind");
    CHECK(svg_find_rect(&g, "n", 160, 1000) == NULL, "the consumer's is recorded");
    CHECK(svg_find_text(&g, "goes on, or not recorded") != NULL, "no key");
    const box *first = svg_find_text(&g, "0.2 s"), *last = svg_find_text(&g, "1.2 s");
    CHECK(first && first->x + first->w / 2 > 159 && first->x + first->w / 2 < 161, "0.2 s");
    CHECK(last && last->x + last->w / 2 > 1159 && last->x + last->w / 2 < 1161, "1.2 s");
    CHECK(svg_find_text(&g, "0.0 s") == NULL, "an axis from 0");
    svg_free(&g);
    w.from = 250000000; /* ticks stay where they are round */
    w.to = 1250000000;
    CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
          strerror(errno));
    g = svg_read(in_dir("t.svg"));
    first = svg_find_text(&g, "0.3 s");
    CHECK(first && first->x + first->w / 2 > 209 && first->x + first->w / 2 < 211, "0.3 s");
    svg_free(&g);
    w.from = 0;
    w.to = 100; /* before all of the worker's */
    lanes[0].events = &(dlp_trace_event){0, 200, 0, 0, DLP_TRACE_STEP, 1};
    lanes[0].n = 1;
    CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
          strerror(errno));
    g = svg_read(in_dir("t.svg"));
    CHECK(svg_find_rect(&g, "n", 160, 1000) != NULL, "a lane without records is not hatched");
    svg_free(&g);
}

/* Hours after the start, and nanoseconds long: fewer numbers, none on another. */
static void window__far_from_the_start__legible(void) {
    for (uint64_t begin = 1; begin < UINT64_MAX / 16; begin *= 7) {
        for (uint64_t length = 10; length < 1000000000000u; length *= 30) {
            dlp_trace_event e = {begin, begin + length, 1, 0, DLP_TRACE_STEP, 1};
            dlpi_lane lane = {"consumer", -1, &e, 1};
            CHECK(lanes_timeline(&lane, 1, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
            svg g = svg_read(in_dir("t.svg"));
            svg_check_boxes(&g);
            CHECK(svg_count_texts(&g, "tick") >= 2, "%d ticks", svg_count_texts(&g, "tick"));
            svg_free(&g);
        }
    }
}

/* ---- counters ---- */

static void counters__step_line__at_its_place(void) {
    dlpi_sample use[] = {{300000000, 50}, {700000000, 100}, {900000000, 0}};
    dlpi_sample memory[] = {{0, 2}, {200000000, 8}, {1200000000, 4}};
    dlpi_curve curves[3] = {
        {"use <1>", "%", 100, use, 3}, {"memory", "GiB", 0, memory, 3}, {"silent", "", 0, NULL, 0}};
    dlpi_lane lanes[2];
    dlp_trace_window w = {DLP_WINDOW_TIME, 0, 200000000, 1200000000};
    dlpi_picture p = {.lanes = lanes, .n_lanes = 2, .curves = curves, .n_curves = 3, .window = &w};
    size_t n;
    window_world(lanes);
    CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
          strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    CHECK(svg_find_rect(&g, "n", 160, 100) != NULL, "before the first value");
    CHECK(svg_find_text(&g, "counters") && svg_find_text(&g, "silent"), "names");
    /* 400 ms of 50, 200 of 100, 300 of 0; and 8 all the time */
    CHECK(svg_find_text(&g, "44.4 %") && svg_find_text(&g, "8.00 GiB"), "means");
    svg_free(&g);
    char *s = slurp(in_dir("t.svg"), &n);
    const char *path = s ? strstr(s, "<path class=\"c\" d=\"M260 ") : NULL;
    CHECK(path != NULL, "where it begins");
    if (path != NULL) { /* up by half of 34 px, to the top, and down */
        int bottom = atoi(strchr(path, ' ') + strlen("class=\"c\" d=\"M260 ") + 1);
        char want[200];
        snprintf(want, sizeof want,
                 "<path class=\"c\" d=\"M260 %dH260V%d.0H660V%d.0H860V%d.0H1160V%dz\"><title>use "
                 "&#60;1&#62;: mean 44.4 %%, from 0.00 to 100</title></path>",
                 bottom, bottom - 17, bottom - 34, bottom, bottom);
        CHECK(strncmp(path, want, strlen(want)) == 0, "%.160s", path);
    }
    free(s);
}

static void counters__trace__one_event_for_each_value(void) {
    dlpi_sample a[] = {{1234567, 0.5}, {2000000, 1e17}, {3000000, 0}, {4000000, 2.9999999}};
    dlpi_curve curves[2] = {{"a \"q\"", "%", 100, a, 4}, {"b", "", 0, a, 1}};
    dlpi_picture p = {.curves = curves, .n_curves = 2};
    static const char *const want[] = {
        ("{\"ph\":\"C\",\"pid\":1,\"ts\":1234.567,\"name\":\"a \\\"q\\\"\","
         "\"args\":{\"%\":0.500000}}"),
        "\"args\":{\"%\":100000000000000000.000000}}", "\"args\":{\"%\":0.000000}}",
        "\"args\":{\"%\":3.000000}}", "\"name\":\"b\",\"args\":{\"value\":0.500000}}"};
    size_t n;
    CHECK(dlpi_picture_write(&p, dlpi_json_write, in_dir("t.json"), NULL) == DLP_OK, "%s",
          strerror(errno));
    json j = json_check(in_dir("t.json"), NULL);
    CHECK(!j.bad, "no JSON");
    char *s = slurp(in_dir("t.json"), &n);
    for (size_t i = 0; s && i < sizeof want / sizeof *want; i++) {
        CHECK(strstr(s, want[i]) != NULL, "no %s in %s", want[i], s);
    }
    free(s);
}

/* Many values in a short stretch, values of any size: bounded, and inside its lane. */
static void counters__any_values__bounded(void) {
    static dlpi_sample many[200000];
    dlpi_curve curve = {"many", "unit-of-11c", 0, many, 200000};
    dlpi_lane lanes[2];
    dlpi_picture p = {.lanes = lanes, .n_lanes = 2, .curves = &curve, .n_curves = 1};
    window_world(lanes);
    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < 200000; i++) {
            many[i].at_ns = kind == 1 ? 600000000 : i * 7000;
            many[i].value = kind == 2 ? 1e300 : kind == 3 ? 0 : (double)(rnd() % 1000);
        }
        CHECK(dlpi_picture_write(&p, dlpi_svg_write, in_dir("t.svg"), NULL) == DLP_OK, "%s",
              strerror(errno));
        svg g = svg_read(in_dir("t.svg"));
        svg_check_boxes(&g);
        CHECK(g.bytes < 40000, "%zu bytes", g.bytes);
        svg_free(&g);
    }
}

static void timeline__short_rings__newest_stretch_of_all_lanes(void) {
    dlpi_view v;
    simulate(&samples[2].d);
    sim_ring(30);
    memset(&v, 0, sizeof v);
    CHECK(dlpi_timeline_window(&v, world.lanes, world.n_lanes) == DLP_OK, "%d", 0);
    uint64_t newest = 0;
    for (int i = 0; i < world.n_lanes; i++) {
        const dlpi_lane *l = &world.lanes[i];
        CHECK(l->events[0].begin_ns <= v.t0, "lane %d begins inside", i);
        newest = l->events[l->n - 1].end_ns > newest ? l->events[l->n - 1].end_ns : newest;
    }
    CHECK(v.t1 == newest && v.t0 < v.t1, "end");
    /* One lane of tiny events must not shrink the window to nothing. */
    static const dlp_trace_event tiny[] = {{1, 2, 0, 0, DLP_TRACE_WORK, 1}};
    dlp_trace_event last = tiny[0];
    last.begin_ns = newest - 10;
    last.end_ns = newest;
    uint64_t t0 = v.t0;
    world.lanes[3].events = &last;
    world.lanes[3].n = 1;
    CHECK(dlpi_timeline_window(&v, world.lanes, world.n_lanes) == DLP_OK, "%d", 0);
    CHECK(v.t0 <= t0 && v.t1 == newest, "window shrank to %" PRIu64, v.t1 - v.t0);
}

static double root(double x, int n) {
    double r = x > 1 ? x : 1;
    for (int i = 0; i < 200 && x > 0; i++) {
        double p = 1;
        for (int k = 1; k < n; k++) { p *= r; }
        r += (x / p - r) / n;
    }
    return x > 0 ? r : 0;
}

/* CIE Lab of a colour as seen with full vision (0), without red (1) or green (2) cones: the
   matrices of Vienot, Brettel and Mollon (1999), "Digital video colourmaps for checking the
   legibility of displays by dichromats". */
static void lab_of(const char *hex, int vision, double lab[3]) {
    static const double see[3][9] = {
        {1, 0, 0, 0, 1, 0, 0, 0, 1},
        {0.11238, 0.88762, 0, 0.11238, 0.88762, 0, 0.00401, -0.00401, 1},
        {0.29275, 0.70725, 0, 0.29275, 0.70725, 0, -0.02234, 0.02234, 1}};
    static const double xyz[9] = {0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505,
                                  0.2126,          0.7152,          0.0722,
                                  0.0193 / 1.089,  0.1192 / 1.089,  0.9505 / 1.089};
    double c[3], d[3], f[3];
    for (int i = 0; i < 3; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        double v = (double)strtol(two, NULL, 16) / 255, u = (v + 0.055) / 1.055;
        c[i] = v <= 0.04045 ? v / 12.92 : u * u * root(u * u, 5);
    }
    for (int i = 0; i < 3; i++) {
        d[i] = see[vision][3 * i] * c[0] + see[vision][3 * i + 1] * c[1] +
               see[vision][3 * i + 2] * c[2];
    }
    for (int i = 0; i < 3; i++) {
        double v = xyz[3 * i] * d[0] + xyz[3 * i + 1] * d[1] + xyz[3 * i + 2] * d[2];
        f[i] = v > 0.008856 ? root(v, 3) : 7.787 * v + 16.0 / 116;
    }
    lab[0] = 116 * f[1] - 16;
    lab[1] = 500 * (f[0] - f[1]);
    lab[2] = 200 * (f[1] - f[2]);
}

/* Lanes where nothing is done are fainter than all work: paler, and of less colour. */
static void palette__waits__quieter_than_work(void) {
    size_t n;
    CHECK(lanes_timeline(NULL, 0, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
    char *s = slurp(in_dir("t.svg"), &n);
    const char *ground = s ? strstr(s, ".t{fill:#") : NULL;
    for (int k = 0; ground != NULL && k < 3; k++) {
        static const char *const quiet[] = {".s{fill:#", ".b{fill:#", ".c{fill:#"};
        const char *at = strstr(s, quiet[k]);
        double q[3], t[3];
        CHECK(at != NULL, "no %s", quiet[k]);
        if (at == NULL) { continue; }
        lab_of(at + 9, 0, q);
        lab_of(ground + 9, 0, t);
        for (int i = 0; i < DLPI_SVG_COLOURS; i++) {
            char name[32];
            double w[3];
            snprintf(name, sizeof name, ".w%d{fill:#", i);
            lab_of(strstr(s, name) + strlen(name), 0, w);
            CHECK(4 * (q[1] * q[1] + q[2] * q[2]) < w[1] * w[1] + w[2] * w[2],
                  "%s beside w%d: colour", quiet[k], i);
            CHECK(t[0] - q[0] > 4 && (k == 2 || t[0] - q[0] < t[0] - w[0]),
                  "%s beside w%d: lightness", quiet[k], i);
        }
    }
    free(s);
}

static void palette__neighbours__told_apart_by_everybody(void) {
    size_t n;
    CHECK(lanes_timeline(NULL, 0, NULL, in_dir("t.svg")) == DLP_OK, "%s", strerror(errno));
    char *s = slurp(in_dir("t.svg"), &n);
    for (int i = 0; s != NULL && i < DLPI_SVG_COLOURS; i++) {
        for (int vision = 0; vision < 3; vision++) {
            char a[32], b[32];
            double p[3], q[3], d = 0;
            snprintf(a, sizeof a, ".w%d{fill:#", i);
            snprintf(b, sizeof b, ".w%d{fill:#", (i + 1) % DLPI_SVG_COLOURS);
            const char *one = strstr(s, a), *two = strstr(s, b);
            CHECK(one != NULL && two != NULL, "colour %d missing", i);
            if (one == NULL || two == NULL) { continue; }
            lab_of(one + strlen(a), vision, p);
            lab_of(two + strlen(b), vision, q);
            for (int k = 0; k < 3; k++) { d += (p[k] - q[k]) * (p[k] - q[k]); }
            CHECK(d > 20 * 20, "colours %d and %d, vision %d: distance squared %.0f", i,
                  (i + 1) % DLPI_SVG_COLOURS, vision, d);
        }
    }
    free(s);
}

/* ---- files ---- */

static bool exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static int write_either(int svg_too, const char *path) {
    return svg_too ? lanes_timeline(world.lanes, world.n_lanes, &world.stats, path)
                   : lanes_trace(world.lanes, world.n_lanes, path);
}

static void files__unwritable_path__error_and_nothing_left(void) {
    simulate(&samples[0].d);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        CHECK(write_either(i, in_dir("missing/x")) == DLP_ERR_SYSTEM && errno == ENOENT, "errno %d",
              errno);
        CHECK(write_either(i, dir) == DLP_ERR_SYSTEM, "a directory was written");
        CHECK(!exists(in_dir("missing")) && exists(dir), "left behind");
        char long_name[5000];
        memset(long_name, 'x', sizeof long_name);
        long_name[sizeof long_name - 1] = 0;
        CHECK(write_either(i, long_name) == DLP_ERR_SYSTEM && errno == ENAMETOOLONG, "errno %d",
              errno);
    }
    CHECK(alloc_live == 0, "%d allocations live", alloc_live);
}

static void files__device_full__error_and_device_kept(void) {
    struct stat st;
    if (stat("/dev/full", &st) != 0) {
        printf("no /dev/full here: not tested\n");
        return;
    }
    for (int i = 0; i < 2; i++) {
        errno = 0;
        CHECK(write_either(i, "/dev/full") == DLP_ERR_SYSTEM && errno == ENOSPC, "errno %d", errno);
        CHECK(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode) && !exists("/dev/full.tmp"),
              "the device was replaced");
    }
}

#ifndef _WIN32 /* which has no limit of a file's size, and links for few */
/* A write that fails in the middle leaves the old file as it was. */
static void files__no_room_in_the_middle__old_file_kept(void) {
    const char *path = in_dir("kept");
    struct rlimit old, small;
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fputs("old", f) >= 0 && fclose(f) == 0, "%s", strerror(errno));
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 20000;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        setrlimit(RLIMIT_FSIZE, &small);
        int rc = write_either(i, path), e = errno;
        setrlimit(RLIMIT_FSIZE, &old);
        size_t n = 0;
        char *s = slurp(path, &n);
        CHECK(rc == DLP_ERR_SYSTEM && e == EFBIG, "%d, errno %d", rc, e);
        CHECK(s != NULL && strcmp(s, "old") == 0 && !exists(in_dir("kept.tmp")),
              "the old file is torn or a temporary is left");
        free(s);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void files__stale_temporary_and_links__not_followed(void) {
    const char *path = in_dir("fresh");
    FILE *f = fopen(in_dir("victim"), "w");
    CHECK(f != NULL && fputs("mine", f) >= 0 && fclose(f) == 0, "%s", strerror(errno));
    CHECK(symlink("victim", in_dir("fresh.tmp")) == 0, "%s", strerror(errno));
    CHECK(lanes_trace(world.lanes, world.n_lanes, path) == DLP_OK, "%s", strerror(errno));
    size_t n = 0;
    char *s = slurp(in_dir("victim"), &n);
    CHECK(s != NULL && strcmp(s, "mine") == 0 && exists(path) && !exists(in_dir("fresh.tmp")),
          "written through a planted link");
    free(s);
    /* A link given as the path itself is the caller's wish. */
    CHECK(symlink("victim", in_dir("link")) == 0, "%s", strerror(errno));
    CHECK(lanes_trace(world.lanes, world.n_lanes, in_dir("link")) == DLP_OK, "%s", strerror(errno));
    struct stat st;
    CHECK(lstat(in_dir("link"), &st) == 0 && S_ISLNK(st.st_mode) &&
              !json_check(in_dir("victim"), NULL).bad,
          "link replaced");
    /* But not a link of another user's in a directory that all may write to. */
    if (geteuid() != 0 || lchown(in_dir("link"), 12, 12) != 0) return; /* only root can give away */
    CHECK(chmod(dir, 01777) == 0 && truncate(in_dir("victim"), 4) == 0, "%s", strerror(errno));
    errno = 0;
    CHECK(lanes_trace(world.lanes, world.n_lanes, in_dir("link")) == DLP_ERR_SYSTEM &&
              errno == EACCES && stat(in_dir("victim"), &st) == 0 && st.st_size == 4,
          "written through another user's link");
    CHECK(chmod(dir, 0700) == 0, "%s", strerror(errno));
}
#endif

static void files__each_allocation_fails__memory_error_and_nothing_left(void) {
    simulate(&samples[0].d);
    unlink(in_dir("m"));
    for (int i = 0; i < 2; i++) {
        for (int k = 0;; k++) {
            alloc_calls = 0;
            alloc_fail_at = k;
            int rc = write_either(i, in_dir("m")), calls = alloc_calls;
            alloc_fail_at = -1;
            CHECK(alloc_live == 0, "%d live", alloc_live);
            if (calls <= k) {
                CHECK(rc == DLP_OK && k > 0, "%d", rc);
                break;
            }
            CHECK(rc == DLP_ERR_MEMORY && !exists(in_dir("m")) && !exists(in_dir("m.tmp")), "%d",
                  rc);
        }
        unlink(in_dir("m"));
    }
}

/* A decimal comma in the caller's locale must not get into the files. */
static void files__locale_with_decimal_comma__same_bytes(void) {
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    size_t n = 0, m = 0;
    simulate(&samples[0].d);
    write_either(1, in_dir("c.svg"));
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++) {
        if (setlocale(LC_ALL, locales[i]) != NULL) {
            write_either(1, in_dir("l.svg"));
            setlocale(LC_ALL, "C");
            char *a = slurp(in_dir("c.svg"), &n), *b = slurp(in_dir("l.svg"), &m);
            CHECK(n == m && a != NULL && b != NULL && memcmp(a, b, n) == 0, "locale %s",
                  locales[i]);
            free(a);
            free(b);
            return;
        }
    }
    printf("no locale with a decimal comma here: not tested\n");
}

/* ---- words ---- */

static const char *explained(const dlp_stats *s) {
    static char words[8192];
    int n = dlp_stats_explain(s, words, sizeof words);
    CHECK(n == (int)strlen(words) && n > 20 && words[n - 1] == '\n', "length %d", n);
    CHECK(strncmp(words, "Limit: ", 7) == 0, "%s", words);
    CHECK(strstr(words, "nan") == NULL && strstr(words, "inf") == NULL &&
              strstr(words, "-1") == NULL,
          "%s", words);
    return words;
}

/* The verdict, and words that must be among the explanation's. */
static void expect_limit(const sim *d, int limit, const char *words1, const char *words2) {
    const dlp_stats *s = simulate(d);
    dlpi_verdict v = dlpi_verdict_of(s);
    const char *w = explained(s);
    CHECK(v.limiting_stage == limit, "limit %d, wanted %d: %s", v.limiting_stage, limit, w);
    CHECK(strstr(w, words1) != NULL && strstr(w, words2) != NULL, "'%s' or '%s' is not in: %s",
          words1, words2, w);
    CHECK(v.rate > 0 && v.rate_plus_one >= v.rate, "%f %f", v.rate, v.rate_plus_one);
    CHECK(limit >= 0 || v.rate_plus_one == v.rate, "%f %f", v.rate, v.rate_plus_one);
}

static void explain__simulated_limits__named(void) {
    expect_limit(&(sim){.workers = 2,
                        .prefetch = 4,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 2000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 0, "raise num_workers; 3 should give about", "stage 'fetch'");
    expect_limit(&(sim){.workers = 8,
                        .prefetch = 2,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 10000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 DLPI_LIMIT_CONSUMER, "Limit: the ", "steps take 10.0 ms");
    /* 8 workers share 2 cores: each item takes four times as long, a quarter of it on a core. */
    expect_limit(&(sim){.workers = 8,
                        .prefetch = 4,
                        .batch = 64,
                        .batches = 300,
                        .item_ns = 4000000,
                        .step_ns = 100000,
                        .cpu = 0.25,
                        .cpus = 2},
                 DLPI_LIMIT_CORES, "Limit: the cores", "of 2 busy");
    expect_limit(&(sim){.workers = 40,
                        .prefetch = 2,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 100000,
                        .cpu = 0.01,
                        .cpus = 8},
                 DLPI_LIMIT_PREFETCH, "raise prefetch_factor",
                 "Idle: 8 of the 40 workers of 'fetch'");
    expect_limit(&(sim){.workers = 16,
                        .prefetch = 2,
                        .batch = 16,
                        .batches = 600,
                        .item_ns = 1000000,
                        .skew = 30,
                        .step_ns = 2000000,
                        .cpu = 0.01,
                        .cpus = 8},
                 DLPI_LIMIT_PREFETCH, "raise prefetch_factor", "Skew: times of 'fetch'");
    expect_limit(&(sim){.workers = 8,
                        .collates = 2,
                        .prefetch = 2,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 100000,
                        .collate_ns = 10000000,
                        .step_ns = 1000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 1, "stage 'batch'", "raise prefetch_factor above 2, and workers.num_workers");
    expect_limit(&(sim){.workers = 8,
                        .collates = 1,
                        .prefetch = 4,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 100000,
                        .collate_ns = 10000000,
                        .step_ns = 1000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 1, "stage 'batch'", "(a loader's batch_workers); 2 should give");
    expect_limit(&(sim){.workers = 8,
                        .collates = 1,
                        .transfer = 1,
                        .prefetch = 4,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 100000,
                        .collate_ns = 10000000,
                        .step_ns = 1000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 1, "move fewer bytes", "its 1 worker is");
    expect_limit(&(sim){.workers = 0,
                        .prefetch = 1,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 100000,
                        .step_ns = 1000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 0, "runs inline", "set num_workers; 1 should give about");
    expect_limit(&(sim){.workers = 0,
                        .prefetch = 1,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 1000,
                        .step_ns = 1000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 DLPI_LIMIT_CONSUMER, "Limit: the ", "Memory: ");
    expect_limit(&(sim){.workers = 0,
                        .prefetch = 1,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 100000,
                        .step_ns = 1000000,
                        .cpu = 1,
                        .cpus = 1},
                 0, "runs inline", "a worker would give nothing");
    expect_limit(&(sim){.workers = 32,
                        .prefetch = 2,
                        .batch = 16,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 100000,
                        .cpu = 0.01,
                        .cpus = 8},
                 0, "every item in flight has a worker", "raise prefetch_factor above 2");
    expect_limit(&(sim){.workers = 2,
                        .prefetch = 4,
                        .batch = 32,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 12000000,
                        .cpu = 0.1,
                        .cpus = 8},
                 0, "3 should give about", "then the limit is the consumer");
    expect_limit(&(sim){.workers = 1,
                        .prefetch = 4,
                        .batch = 32,
                        .batches = 300,
                        .item_ns = 1000000,
                        .step_ns = 12000000,
                        .cpu = 1,
                        .cpus = 1},
                 DLPI_LIMIT_CORES, "Limit: the cores", "more workers would give nothing");
}

/* What explain says one more worker gives, against what one more worker then gives. */
static void explain__one_more_worker__as_predicted(void) {
    int tried = 0;
    for (int workers = 1; workers <= 12; workers++) {
        for (int kind = 0; kind < 5; kind++) {
            sim d = {.workers = workers,
                     .prefetch = 4,
                     .batch = 32,
                     .batches = 400,
                     .item_ns = 1000000,
                     .jitter = 50,
                     .step_ns = 4000000,
                     .cpu = 0.05,
                     .cpus = 64};
            d.collates = kind == 1 ? 2 : 0;
            d.collate_ns = 10000000;
            d.skew = kind == 2 ? 4 : 0;
            d.batch = kind == 3 ? 100 : d.batch;
            d.step_ns = kind == 4 ? 12000000 : d.step_ns;
            dlpi_verdict v = dlpi_verdict_of(simulate(&d));
            if (v.limiting_stage != 0) { continue; }
            d.workers++;
            dlpi_verdict w = dlpi_verdict_of(simulate(&d));
            double ratio = v.rate_plus_one / w.rate;
            tried++;
            CHECK(ratio > 0.93 && ratio < 1.07, "%d workers, kind %d: predicted %.0f, got %.0f",
                  workers, kind, v.rate_plus_one, w.rate);
        }
    }
    CHECK(tried >= 20, "only %d cases were limited by fetch", tried);
}

/* What "set num_workers; 1 should give about 800 items/s, 2 about 1,600" says. Returns how many. */
static int said_of_workers(const char *words, int *workers, double *rates, int most) {
    const char *at = strstr(words, "set num_workers; ");
    int n = 0;
    if (at == NULL) { return 0; }
    for (at += strlen("set num_workers; "); n < most && *at >= '0' && *at <= '9'; n++) {
        double rate = 0, below = 0;
        workers[n] = (int)strtol(at, NULL, 10);
        at = strstr(at, "about ") + strlen("about ");
        for (; (*at >= '0' && *at <= '9') || (*at == ',' && at[1] != ' ') || *at == '.'; at++) {
            if (*at == '.') { below = 1; }
            if (*at == ',' || *at == '.') { continue; }
            rate = 10 * rate + (*at - '0');
            below *= 10;
        }
        rates[n] = below > 0 ? rate / below : rate;
        at = strpbrk(at, ",;("); /* of the next number, or of what is said after the last */
        at += *at == ',' ? 2 : 0;
    }
    return n;
}

/* What an inline stage is told that workers give, against what they then give: 1, 2, 4 and as many
   as items wait, or the consumer or the cores let work. */
static void explain__inline__foretells_1_2_4_and_the_most_that_help(void) {
    static const struct {
        int batch, last;
        uint64_t step_ns;
        double cpu;
        uint32_t cpus;
        const char *limit;
    } cases[] = {{8, 16, 0, 0.01, 64, "then the limit is prefetch_factor"},
                 {6, 12, 0, 0.01, 64, "then the limit is prefetch_factor"},
                 {16, 32, 10000, 0.01, 2, "then the limit is prefetch_factor"},
                 {32, 8, 4000000, 0.01, 64, "then the limit is the consumer"},
                 {8, 4, 2000000, 0.01, 64, "then the limit is the consumer"},
                 {8, 1, 8000000, 0.01, 64, "then the limit is the consumer"},
                 {16, 4, 1000, 1, 4, "then the limit is the cores"},
                 {16, 2, 1000, 1, 2, "then the limit is the cores"},
                 {8, 4, 1000, 0.5, 2, "then the limit is the cores"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim d = {.prefetch = 1,
                 .batch = (uint32_t)cases[i].batch,
                 .batches = 400,
                 .item_ns = 1000000,
                 .jitter = 10,
                 .step_ns = cases[i].step_ns,
                 .cpu = cases[i].cpu,
                 .cpus = cases[i].cpus};
        char words[4096];
        int workers[8], n;
        double rates[8];
        snprintf(words, sizeof words, "%s", explained(simulate(&d)));
        n = said_of_workers(words, workers, rates, 8);
        CHECK(n > 0 && workers[n - 1] == cases[i].last && strstr(words, cases[i].limit) != NULL,
              "case %d: %s", (int)i, words);
        for (int k = 0; k < n; k++) {
            CHECK(k == n - 1 || workers[k] == 1 << k, "case %d: %s", (int)i, words);
            d.workers = workers[k];
            d.prefetch = 2;
            double got = dlpi_verdict_of(simulate(&d)).rate;
            CHECK(rates[k] > 0.9 * got && rates[k] < 1.1 * got,
                  "case %d, %d workers: foretold %.0f, got %.0f: %s", (int)i, d.workers, rates[k],
                  got, words);
        }
    }
}

/* Where few batches in flight and uneven items hold up the order: what more of them give. */
static void explain__prefetch_is_the_limit__foretells_more(void) {
    for (int workers = 8; workers <= 16; workers += 4) {
        sim d = {.workers = workers,
                 .prefetch = 2,
                 .batch = 16,
                 .batches = 600,
                 .item_ns = 1000000,
                 .skew = 30,
                 .step_ns = 200000,
                 .cpu = 0.01,
                 .cpus = 8};
        const dlp_stats *s = simulate(&d);
        if (dlpi_verdict_of(s).limiting_stage != DLPI_LIMIT_PREFETCH) { continue; }
        CHECK(strstr(explained(s), "that should give about") != NULL, "%s", explained(s));
        dlpi_load l;
        dlpi_load_of(&l, s);
        double foretold = dlpi_foretold_deeper(s, &l, 4);
        d.prefetch = 4;
        dlpi_load_of(&l, simulate(&d));
        CHECK(foretold > 0.85 * l.rate && foretold < 1.15 * l.rate,
              "%d workers: foretold %.0f, got %.0f", workers, foretold, l.rate);
    }
}

static void explain__nothing_yet__says_so(void) {
    static dlp_stats s;
    memset(&s, 0, sizeof s);
    CHECK(strstr(explained(&s), "no batch has been delivered") != NULL, "%s", explained(&s));
    s = *simulate(&(sim){.workers = 2,
                         .prefetch = 4,
                         .batch = 16,
                         .batches = 3,
                         .item_ns = 1000,
                         .step_ns = 2000,
                         .cpus = 8});
    CHECK(strstr(explained(&s), "3 batches are delivered") != NULL, "%s", explained(&s));
    CHECK(dlpi_verdict_of(&s).limiting_stage == DLPI_LIMIT_UNKNOWN, "%d",
          dlpi_verdict_of(&s).limiting_stage);
}

static void explain__failed_items__counted(void) {
    dlp_stats *s = &world.stats;
    simulate(&samples[0].d);
    s->stages[0].retried = 12;
    s->stages[0].replaced = 3;
    CHECK(strstr(explained(s), "12 retried, 3 replaced, 0 left out") != NULL, "%s", explained(s));
}

static void explain__small_buffers__cut_like_snprintf(void) {
    char whole[4096], part[4096];
    const dlp_stats *s = simulate(&samples[1].d);
    int n = dlp_stats_explain(s, whole, sizeof whole);
    CHECK(dlp_stats_explain(s, NULL, 0) == n, "size 0");
    for (int size = 1; size <= n + 2; size++) {
        memset(part, 'x', sizeof part);
        int m = dlp_stats_explain(s, part, (size_t)size), kept = size - 1 < n ? size - 1 : n;
        CHECK(m == n && memcmp(part, whole, (size_t)kept) == 0 && part[kept] == 0 &&
                  part[size] == 'x',
              "size %d", size);
    }
    CHECK(dlp_stats_explain(NULL, part, 10) == DLP_ERR_ARG &&
              dlp_stats_explain(s, NULL, 10) == DLP_ERR_ARG,
          "NULL");
}

/* Stats of any bytes: no crash, no division by zero, a sentence. */
static void explain__any_bytes__a_sentence(void) {
    static dlp_stats s;
    char words[8192];
    for (int i = 0; i < 20000; i++) {
        unsigned char *b = (unsigned char *)&s;
        for (size_t k = 0; k < sizeof s; k++) {
            b[k] = (unsigned char)(rnd() % 3 ? 0 : rnd() >> rnd() % 64);
        }
        int n = dlp_stats_explain(&s, words, sizeof words);
        CHECK(n > 0 && strncmp(words, "Limit: ", 7) == 0, "%.100s", words);
    }
}

static int any_fetch(void *user, dlp_item *item) {
    (void)user;
    memset(item->data[0], 1, 64);
    return 0;
}

/* A real pipe that has run, its trace rings full. */
static dlp_pipe *ran_pipe(void) {
    static const dlp_counter counters[2] = {{"use", "%", 100}, {"memory", NULL, 0}};
    static const dlp_field field = {"x", DLP_U8, 1, {64}, 0, 0};
    dlp_loader_desc d;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(&d, 0, sizeof d);
    d.dataset.n_items = 30000;
    d.dataset.fields = &field;
    d.dataset.n_fields = 1;
    d.dataset.fetch = any_fetch;
    d.batch_size = 8;
    d.num_workers = 3;
    d.pipe.trace_bytes = 1 << 17;
    d.pipe.counters = counters;
    d.pipe.n_counters = 2;
    if (dlp_loader_open(&p, &d, NULL) != DLP_OK) return NULL;
    for (uint64_t n = 0; dlp_pipe_next_timeout(p, &b, 10000) == DLP_OK; n++) {
        dlp_pipe_count(p, 0, (double)n);
        dlp_pipe_count(p, 1, (double)(n / 100));
        dlp_pipe_release(p, b);
    }
    return p;
}

/* Events that the pipe's rings hold now. */
static int events_held(dlp_pipe *p) {
    static dlp_trace_event events[5000];
    int total = 0;
    for (int i = 0; i < dlp_pipe_trace_lanes(p); i++)
        total += dlp_pipe_trace(p, i, events, 5000, NULL);
    return total;
}

/* The files of a real pipe hold all events of its rings, however long those are. */
static void pipe__real_run__whole_files(void) {
    dlp_pipe *p = ran_pipe();
    char words[2048];
    CHECK(p != NULL, "open");
    int before = events_held(p);
    CHECK(before > 1000, "%d", before);
    CHECK(dlp_pipe_write_trace(p, in_dir("t.json"), NULL) == DLP_OK, "%s", strerror(errno));
    int after = events_held(p); /* workers that have just gone to sleep may have added some */
    json j = json_check(in_dir("t.json"), NULL);
    CHECK(!j.bad && j.events >= before && j.events <= after, "%d of %d to %d events", j.events,
          before, after);
    CHECK(dlp_pipe_write_timeline(p, in_dir("t.svg"), NULL) == DLP_OK, "%s", strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    svg_free(&g);
    CHECK(dlp_pipe_explain(p, words, sizeof words) > 40 && strstr(words, "Limit: "), "%s", words);
    CHECK(dlp_pipe_write_trace(NULL, "x", NULL) == DLP_ERR_ARG &&
              dlp_pipe_write_timeline(p, NULL, NULL) == DLP_ERR_ARG,
          "NULL");
    CHECK(dlp_pipe_close(p) == DLP_OK, "close");
}

/* A counter's ring keeps the newest; a value that is as the last takes no place. */
static void pipe__counters__kept_and_refused(void) {
    dlp_pipe *p = ran_pipe();
    dlpi_curve curves[DLP_MAX_COUNTERS];
    dlp_pipe_desc d;
    memset(curves, 0, sizeof curves);
    CHECK(p != NULL && dlpi_curves_take(p, curves) == DLP_OK, "take");
    CHECK(curves[0].n == 3750 && curves[1].n == 38, "%d and %d", (int)curves[0].n,
          (int)curves[1].n);
    for (uint64_t i = 1; i < curves[0].n; i++) {
        CHECK(curves[0].samples[i].value == (double)i &&
                  curves[0].samples[i].at_ns >= curves[0].samples[i - 1].at_ns,
              "sample %d", (int)i);
    }
    dlpi_curves_free(curves, 2);
    for (int i = 0; i < 10000; i++) CHECK(dlp_pipe_count(p, 1, i % 2) == DLP_OK, "%d", i);
    CHECK(dlp_pipe_count(p, 1, 77) == DLP_OK && dlpi_curves_take(p, curves) == DLP_OK, "take");
    CHECK(curves[1].n == (1 << 17) / 16 - 1 && curves[1].samples[curves[1].n - 1].value == 77, "%d",
          (int)curves[1].n);
    CHECK(curves[1].samples[0].value != curves[1].samples[1].value, "the oldest");
    dlpi_curves_free(curves, 2);
    CHECK(dlp_pipe_count(NULL, 0, 1) == DLP_ERR_ARG && dlp_pipe_count(p, 2, 1) == DLP_ERR_ARG &&
              dlp_pipe_count(p, 0, -1) == DLP_ERR_ARG &&
              dlp_pipe_count(p, 0, 1e308 * 10) == DLP_ERR_ARG,
          "bad values");
    dlp_error err;
    CHECK(dlp_pipe_write_window(p, in_dir("t.svg"), &(dlp_trace_window){9, 0, 0, 0}, &err) ==
                  DLP_ERR_ARG &&
              strcmp(err.field, "window") == 0,
          "bad window");
    CHECK(dlp_pipe_write_window(p, in_dir("t.svg"), &(dlp_trace_window){DLP_WINDOW_STALL, 0, 0, 0},
                                NULL) == DLP_OK,
          "%s", strerror(errno));
    svg g = svg_read(in_dir("t.svg"));
    svg_check_boxes(&g);
    CHECK(svg_find_text(&g, "use") && svg_find_text(&g, "memory"), "names");
    svg_free(&g);
    CHECK(dlp_pipe_close(p) == DLP_OK, "close");
    memset(&d, 0, sizeof d);
    d.n_counters = 1;
    CHECK(dlpi_pipe_make(&p, &d, NULL) == DLP_ERR_ARG, "counters NULL");
    d.counters = &(dlp_counter){"x", NULL, -1};
    CHECK(dlpi_pipe_make(&p, &d, NULL) == DLP_ERR_ARG, "most below 0");
    d.n_counters = DLP_MAX_COUNTERS + 1;
    CHECK(dlpi_pipe_make(&p, &d, NULL) == DLP_ERR_ARG, "too many");
}

static void pipe__each_allocation_fails__memory_error_and_nothing_left(void) {
    dlp_pipe *p = ran_pipe();
    int live = alloc_live;
    CHECK(p != NULL, "open");
    for (int i = 0; i < 2; i++) {
        for (int k = 0;; k++) {
            alloc_calls = 0;
            alloc_fail_at = k;
            dlp_error err = {0};
            int rc = i ? dlp_pipe_write_timeline(p, in_dir("m"), &err)
                       : dlp_pipe_write_trace(p, in_dir("m"), &err),
                calls = alloc_calls;
            alloc_fail_at = -1;
            CHECK(alloc_live == live, "%d live", alloc_live);
            if (calls <= k) {
                CHECK(rc == DLP_OK && k >= 3, "%d after %d", rc, k);
                break;
            }
            CHECK(err.code == rc && strstr(err.message, "memory") != NULL, "%s", err.message);
            CHECK(rc == DLP_ERR_MEMORY && !exists(in_dir("m")) && !exists(in_dir("m.tmp")), "%d",
                  rc);
        }
        unlink(in_dir("m"));
    }
    CHECK(dlp_pipe_close(p) == DLP_OK, "close");
}

static void run(const char *name, void (*test)(void)) {
    test_name = name;
    test();
}

static void heap__any_order_in__first_to_end_out_first(void) {
    static dlpi_sim m;
    for (int i = 0; i < 300; i++) {
        dlpi_sim_work w = {(double)(rnd() % 200), 0, 0};
        dlpi_sim_push(&m, &m.stage[0], &w);
        if (i % 3 == 2) dlpi_sim_pop(&m, &m.stage[0]);
    }
    CHECK(m.stage[0].working == 200, "%d work", (int)m.stage[0].working);
    for (double last = 0; m.stage[0].working > 0; dlpi_sim_pop(&m, &m.stage[0])) {
        CHECK(m.worker[0].end >= last, "%g, then %g", last, m.worker[0].end);
        last = m.worker[0].end;
    }
}

#define RUN(name) run(#name, name)

static void run_all(void) {
    RUN(numbers__all_magnitudes__short_and_rounded);
    RUN(heap__any_order_in__first_to_end_out_first);
    RUN(names__utf8__kept_or_replaced);
    RUN(trace_json__simulated_run__every_event_preserved);
    RUN(trace_json__no_lanes__valid);
    RUN(trace_json__hostile_names__escaped);
    RUN(garbage__any_bytes__files_still_valid);
    RUN(timeline__samples__nothing_overlaps);
    RUN(ticks__any_length__one_two_or_five);
    RUN(timeline__every_duration__legible);
    RUN(timeline__hostile_names__escaped_and_cut);
    RUN(timeline__nothing_recorded__says_so);
    RUN(timeline__64_lanes_of_100000_events__bounded);
    RUN(timeline__wide_events__drawn_at_their_place);
    RUN(timeline__short_rings__newest_stretch_of_all_lanes);
    RUN(palette__neighbours__told_apart_by_everybody);
    RUN(palette__waits__quieter_than_work);
    RUN(window__each_kind__its_stretch);
    RUN(window__stall_without_waits__says_so);
    RUN(window__wrong__refused);
    RUN(window__tails_and_axis__told);
    RUN(window__far_from_the_start__legible);
    RUN(counters__step_line__at_its_place);
    RUN(counters__trace__one_event_for_each_value);
    RUN(counters__any_values__bounded);
    RUN(pipe__counters__kept_and_refused);
    RUN(files__unwritable_path__error_and_nothing_left);
    RUN(files__device_full__error_and_device_kept);
#ifndef _WIN32
    RUN(files__no_room_in_the_middle__old_file_kept);
    RUN(files__stale_temporary_and_links__not_followed);
#endif
    RUN(files__each_allocation_fails__memory_error_and_nothing_left);
    RUN(files__locale_with_decimal_comma__same_bytes);
    RUN(explain__simulated_limits__named);
    RUN(explain__one_more_worker__as_predicted);
    RUN(explain__inline__foretells_1_2_4_and_the_most_that_help);
    RUN(explain__prefetch_is_the_limit__foretells_more);
    RUN(explain__nothing_yet__says_so);
    RUN(explain__failed_items__counted);
    RUN(explain__small_buffers__cut_like_snprintf);
    RUN(explain__any_bytes__a_sentence);
    RUN(pipe__real_run__whole_files);
    RUN(pipe__each_allocation_fails__memory_error_and_nothing_left);
}

int main(int argc, char **argv) {
    static const char *const left[] = {"t.json", "t.svg", "kept",  "victim",
                                       "fresh",  "link",  "c.svg", "l.svg"};
    if (argc == 3 && strcmp(argv[1], "draw") == 0) { return draw(argv[2]); }
    snprintf(dir, sizeof dir, "/tmp/dlpipe-pictures-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    run_all();
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) { unlink(in_dir(left[i])); }
    test_name = "end";
    CHECK(rmdir(dir) == 0, "%s: files are left", dir);
    printf("pictures: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
