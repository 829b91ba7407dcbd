/* What a pipe does now, seen from outside: running, hanging or stopped.

   dlpipe_top [--once] [--json] [--interval MS] PID | PID:PIPE | NAME
   dlpipe_top --timeline SVG [--window stall|epoch:N|batches:A-B|time:A-B] NAME   a picture
   dlpipe_top --list     the names of this machine's pipes
   dlpipe_top --stale    list and remove the names whose owners are gone

   In a terminal the picture is drawn in place: q or Ctrl-C ends it, j and k scroll the workers.
   WORKERS "6/16": 6 of up to 16 are at work, the others parked; "3 x 8": 8 items at once in each.
   "Limit:" is that of the last 5 to 10 seconds, or of as many as the pipe needs for some batches.
   --once prints it once, of rates and limits over one interval; --json prints that as one JSON
   object (then --once is meant). Numbers come by dlp_monitor_*, so the pipe notices nothing. Exit
   codes: 0, 1 no such pipe, 2 wrong usage. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_shm.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Everything that is drawn in one frame. */
typedef struct sample {
    dlp_stats s;
    dlp_worker_stats *workers; /* [s.n_workers] */
    uint64_t skips;
    uint64_t at_ns;
} sample;

typedef struct watch {
    dlp_monitor *monitor;
    dlp_monitor_info about;
    sample now, before; /* before.at_ns 0: there is none, rates are since the start */
    dlp_stats past[2];  /* limits are told of the time since past[0]; past[1] is next */
    uint64_t past_ns;   /* when past[1] was read */
    uint64_t moved_ns;  /* when a batch was last seen to be delivered */
    char owner;         /* state of its process: R, S, T, ... */
    char words[4096];   /* what dlp_stats_explain says of that time */
} watch;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- numbers ---- */

static double share(double part, double whole) {
    double s = whole > 0 ? part / whole : 0;
    return s < 0 ? 0 : s > 1 ? 1 : s;
}

/* Seconds that rates are taken over. */
static double span(const watch *w) {
    if (w->before.at_ns == 0) return (double)w->now.s.elapsed_ns / 1e9;
    return (double)(w->now.at_ns - w->before.at_ns) / 1e9;
}

/* Counters only grow; a difference is of what was read, not of what was printed. */
static double rate(const watch *w, uint64_t now, uint64_t before) {
    double seconds = span(w);
    if (w->before.at_ns == 0) before = 0;
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* Time in callbacks, with that of the one that still runs. */
static uint64_t busy_of(const dlp_worker_stats *k) {
    bool runs = k->state == DLP_WORKER_BUSY && k->current_index != UINT64_MAX;
    return k->busy_ns + (runs ? k->current_age_ns : 0);
}

static double worker_busy(const watch *w, uint32_t i) {
    uint64_t before = w->before.at_ns ? busy_of(&w->before.workers[i]) : 0;
    return share(rate(w, busy_of(&w->now.workers[i]), before), 1e9);
}

/* Share of the workers' time; of an inline stage, of the caller's. */
static double stage_busy(const watch *w, int32_t stage) {
    double busy = 0;
    int n = 0;
    for (uint32_t i = 0; i < w->now.s.n_workers; i++) {
        if (w->now.workers[i].stage != stage) continue;
        busy += worker_busy(w, i);
        n++;
    }
    return n ? busy / n : 0;
}

/* Share of its time that the consumer waited; below 0: it made no step. */
static double wait_share(const watch *w) {
    bool all = w->before.at_ns == 0;
    uint64_t waited = w->now.s.wait_ns - (all ? 0 : w->before.s.wait_ns);
    uint64_t stepped = w->now.s.step_ns - (all ? 0 : w->before.s.step_ns);
    if (waited + stepped == 0) return -1;
    return share((double)waited, (double)waited + (double)stepped);
}

static bool has_workers(const dlp_stage_stats *g) {
    return g->kind != DLP_STAGE_SAMPLER && g->kind != DLP_STAGE_REPEAT &&
           g->kind != DLP_STAGE_OUT && (g->workers > 0 || g->items > 0 || g->busy_ns > 0);
}

static const char *state_name(int32_t state) {
    static const char *const names[] = {"idle",    "starting", "busy",  "starved",
                                        "blocked", "exited",   "parked"};
    return state >= 0 && state < 7 ? names[state] : "?";
}

static const char *owner_state(const watch *w) {
    if (dlp_monitor_error(w->monitor)->code != 0) return "error";
    if (w->owner == 'T' || w->owner == 't') return "stopped";
    return w->about.stopped ? "closing" : "running";
}

/* ---- text ---- */

/* Length of the character at s if it may be printed: no controls, well-formed; else 0. */
static int printable(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    int more = u[0] >= 0xf0 ? 3 : u[0] >= 0xe0 ? 2 : 1;
    if (u[0] < 0x80) return u[0] >= 0x20 && u[0] != 0x7f;
    if (u[0] < 0xc2 || u[0] > 0xf4 || (u[0] == 0xc2 && u[1] < 0xa0)) return 0;
    for (int i = 1; i <= more; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f)) return 0;
    return (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f) ? 0 : more + 1;
}

typedef struct text {
    char s[32];
} text;

/* 0.12, 4.56, 12.3, 789, 1,234, 56.7k, 8.90M */
static text number(double v) {
    static const char units[] = " kMGTP";
    int u = 0;
    text t;
    for (; v >= (u ? 999.5 : 9999.5) && u < 5; u++) v /= 1000;
    if (u == 0 && v >= 999.5)
        snprintf(t.s, sizeof t.s, "%d,%03d", (int)(v + 0.5) / 1000, (int)(v + 0.5) % 1000);
    else
        snprintf(t.s, sizeof t.s, "%.*f%.*s",
                 v < 9.995   ? 2
                 : v < 99.95 ? 1
                             : 0,
                 v, u > 0, &units[u]);
    return t;
}

static text duration(uint64_t ns) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double v = (double)ns;
    int u = 0;
    text t;
    for (; v >= 999.5 && u < 3; u++) v /= 1000;
    if (ns == 0)
        snprintf(t.s, sizeof t.s, "-");
    else if (u < 3 || v < 99.95)
        snprintf(t.s, sizeof t.s, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
    else
        snprintf(t.s, sizeof t.s, "%" PRIu64 ":%02u:%02u", ns / UINT64_C(3600000000000),
                 (unsigned)(ns / UINT64_C(60000000000) % 60), (unsigned)(ns / 1000000000u % 60));
    return t;
}

/* A bar of `width` characters: parts[i] of all as kinds[i], the rest as dots. Whatever is there
   gets one character at least. */
static void bar(char *to, int width, const uint64_t *parts, const char *kinds, uint64_t all) {
    int used = 0;
    for (int i = 0; kinds[i]; i++) {
        int n = all ? (int)(share((double)parts[i], (double)all) * width + 0.5) : 0;
        if (n == 0 && parts[i] > 0) n = 1;
        for (; n > 0 && used < width; n--) to[used++] = kinds[i];
    }
    for (; used < width; used++) to[used] = '.';
    to[used] = 0;
}

/* ---- what is seen ---- */

static void fail(const dlp_error *e) {
    fprintf(stderr, "dlpipe_top: %s: %s\n", dlp_code_name(e->code), e->message);
    if (strncmp(e->message, "no pipe", 7) == 0)
        fprintf(stderr, "dlpipe_top --list shows the names of this machine's pipes.\n");
}

static char process_state(int32_t pid) {
    char path[40], stat[400];
    const char *end;
    size_t n;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if ((f = fopen(path, "r")) == NULL) return '?';
    n = fread(stat, 1, sizeof stat - 1, f);
    fclose(f);
    stat[n] = 0;
    end = strrchr(stat, ')');
    return end && end[1] == ' ' ? end[2] : '?';
}

/* ---- what limits the pipe now ---- */

/* Counters that only grow: of a pipe, and of a stage. */
#define COUNTERS(X) \
    X(elapsed_ns) \
    X(batches) \
    X(items) \
    X(bytes) \
    X(wait_ns) \
    X(step_ns) \
    X(part_wait_ns) X(cache_hits) X(cache_misses) X(epoch_borders) X(epoch_wait_ns) X(set_epoch_ns)
#define STAGE_COUNTERS(X) \
    X(items) \
    X(bytes) \
    X(retried) \
    X(replaced) \
    X(left_out) \
    X(restarts) \
    X(busy_ns) \
    X(starved_ns) \
    X(blocked_ns) X(cpu_ns) X(core_wait_ns) X(in_flight_ns) X(clears.ns) X(clears.spared_ns)
#define LESS(member) k->member -= before->member < k->member ? before->member : k->member;

static void stage_since(dlp_stage_stats *k, const dlp_stage_stats *before) { STAGE_COUNTERS(LESS) }

/* Leave in *k what was counted since *before. */
static void since(dlp_stats *k, const dlp_stats *before) {
    COUNTERS(LESS)
    for (uint32_t i = 0; i < k->n_stages; i++) stage_since(&k->stages[i], &before->stages[i]);
}

/* Go on to a newer begin of the time that limits are told of, if it has enough batches. */
static void move_past(watch *w) {
    const bool first = w->past_ns == 0;
    const uint64_t batches = w->now.s.batches - w->past[1].batches;
    if (!first && w->now.at_ns - w->past_ns < 5000000000u) return;
    if (!first && batches <= w->now.s.prefetch_factor) return;
    w->past[0] = first ? w->now.s : w->past[1];
    w->past[1] = w->now.s;
    w->past_ns = w->now.at_ns;
}

/* Fill w->words. What explain says since the start stays if too few batches came for more, or if it
   is of this moment. */
static void explain(watch *w) {
    dlp_stats s = w->now.s;
    dlp_monitor_explain(w->monitor, w->words, sizeof w->words);
    since(&s, &w->past[0]);
    if (w->before.at_ns != 0 && w->now.s.batches == w->before.s.batches && s.ready > 0)
        snprintf(w->words, sizeof w->words,
                 "Limit: the consumer: it has taken no batch for %s, and %u are ready.\n"
                 "Change: nothing in the pipe.\n",
                 duration(w->now.at_ns - w->moved_ns).s, (unsigned)s.ready);
    else if (s.batches > s.prefetch_factor && strncmp(w->words, "Limit: a lock", 13) != 0)
        dlp_stats_explain(&s, w->words, sizeof w->words);
}

static int look(watch *w, dlp_error *e) {
    const dlp_monitor *m = w->monitor;
    sample last = w->before;
    int rc = dlp_monitor_refresh(w->monitor, e);
    if (rc != DLP_OK) return rc;
    dlp_monitor_about(w->monitor, &w->about);
    w->before = w->now;
    w->now = last;
    dlp_monitor_stats(m, &w->now.s);
    for (uint32_t i = 0; i < w->now.s.n_workers; i++)
        dlp_monitor_worker_stats(m, i, &w->now.workers[i]);
    dlp_monitor_skips(m, NULL, 0, &w->now.skips);
    w->now.at_ns = now_ns();
    w->owner = process_state(w->about.pid);
    if (w->before.at_ns == 0 || w->now.s.batches != w->before.s.batches) w->moved_ns = w->now.at_ns;
    explain(w);
    move_past(w);
    return DLP_OK;
}

static int watch_open(watch *w, const char *who, dlp_error *e) {
    dlp_stats s;
    int rc;
    memset(w, 0, sizeof *w);
    if ((rc = dlp_monitor_open(&w->monitor, who, e)) != DLP_OK) return rc;
    dlp_monitor_stats(w->monitor, &s);
    w->now.workers = calloc((size_t)s.n_workers + 1, sizeof *w->now.workers);
    w->before.workers = calloc((size_t)s.n_workers + 1, sizeof *w->before.workers);
    if (w->now.workers && w->before.workers) return look(w, e);
    e->code = DLP_ERR_MEMORY;
    snprintf(e->message, sizeof e->message, "no memory");
    return e->code;
}

static void watch_close(watch *w) {
    dlp_monitor_close(w->monitor);
    free(w->now.workers);
    free(w->before.workers);
}

/* ---- a frame ---- */

typedef struct screen {
    char *s;
    size_t n, size;
    int columns, rows, row; /* rows 0: no end */
    bool live;              /* in a terminal */
} screen;

static void put(screen *to, const char *s, size_t n) {
    if (to->n + n > to->size) {
        size_t size = (to->size + n) * 2;
        char *more = realloc(to->s, size);
        if (more == NULL) exit(1);
        to->s = more;
        to->size = size;
    }
    memcpy(to->s + to->n, s, n);
    to->n += n;
}

/* One line of text, cut to the screen. style: of ECMA-48 (1 bold, 7 reverse), 0 none. Names come
   from the other process: what could command the terminal is not passed on. */
__attribute__((format(printf, 3, 4))) static void line(screen *to, int style, const char *format,
                                                       ...) {
    char words[1024], code[16];
    va_list args;
    int columns = 0;
    if (to->rows > 0 && to->row >= to->rows) return;
    va_start(args, format);
    vsnprintf(words, sizeof words - 4, format, args);
    va_end(args);
    if (to->row++ > 0) put(to, to->live ? "\r\n" : "\n", to->live ? 2 : 1);
    if (to->live && style) put(to, code, (size_t)snprintf(code, sizeof code, "\033[%dm", style));
    for (const char *s = words; *s && columns < to->columns; columns++) {
        int n = printable(s);
        put(to, n ? s : "?", n ? (size_t)n : 1);
        s += n ? n : 1;
    }
    for (; to->live && style == 7 && columns < to->columns; columns++) put(to, " ", 1);
    if (to->live) put(to, "\033[0m\033[K", 7);
}

static const dlp_stage_stats *stage_of(const dlp_stats *s, int32_t kind) {
    for (uint32_t i = 0; i < s->n_stages; i++)
        if (s->stages[i].kind == kind) return &s->stages[i];
    return NULL;
}

static void draw_header(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s, *b = &w->before.s;
    double waits = wait_share(w);
    char late[64] = "", name[80], epoch[64], wait_text[32], size[32];
    uint64_t idle = w->now.at_ns - w->moved_ns;
    int64_t per_epoch = dlp_monitor_batches_per_epoch(w->monitor);
    if (idle > 2000000000u) snprintf(late, sizeof late, "; no batch for %s", duration(idle).s);
    snprintf(name, sizeof name, "%s",
             w->about.shm_name[0] ? w->about.shm_name
             : w->about.name[0]   ? w->about.name
                                  : "a pipe");
    snprintf(epoch, sizeof epoch, "epoch %" PRIu64, s->epoch);
    if (per_epoch > 0)
        snprintf(epoch, sizeof epoch, "epoch %" PRIu64 " (%" PRId64 " batches each)", s->epoch,
                 per_epoch);
    line(to, 7, " %.40s  pid %d  up %s  %s%s", name, (int)w->about.pid, duration(s->elapsed_ns).s,
         owner_state(w), late);
    snprintf(wait_text, sizeof wait_text, "consumer waits %.0f %%", waits * 100);
    line(to, 1, "%s batches/s  %s items/s  %s MB/s  %s", number(rate(w, s->batches, b->batches)).s,
         number(rate(w, s->items, b->items)).s, number(rate(w, s->bytes, b->bytes) / 1e6).s,
         waits < 0 ? "consumer makes no step" : wait_text);
    snprintf(size, sizeof size, "batch_size %u", (unsigned)s->batch_size);
    if (stage_of(s, DLP_STAGE_SPLIT)) snprintf(size, sizeof size, "of chunks");
    line(to, 0, "%s  %" PRIu64 " batches, %" PRIu64 " items delivered  %s", epoch, s->batches,
         s->items, size);
}

/* One line of words, broken between words where it is too long. */
static void draw_words(screen *to, int style, const char *s) {
    const size_t width = (size_t)(to->columns > 20 ? to->columns : 20);
    for (const char *end = s + strcspn(s, "\n"); s < end;) {
        const size_t left = (size_t)(end - s);
        size_t n = left <= width ? left : width;
        while (n < left && n > 0 && s[n] != ' ') n--;
        if (n == 0) n = left < width ? left : width;
        line(to, style, "%.*s", (int)n, s);
        for (s += n; s < end && *s == ' ';) s++;
    }
}

/* The line of dlp_stats_explain that begins so, or NULL. */
static const char *words_of(const watch *w, const char *head) {
    const char *s = w->words;
    while (s != NULL && strncmp(s, head, strlen(head)) != 0)
        if ((s = strchr(s, '\n')) != NULL) s++;
    return s;
}

/* What limits the pipe and what to change, as dlp_stats_explain says it; or the pipe's error. */
static void draw_limit(screen *to, const watch *w) {
    static const char *const heads[] = {"Limit: ", "Change: ", "Better: ", "Slow: "};
    const dlp_error *e = dlp_monitor_error(w->monitor);
    char words[2048];
    if (e->code != 0) {
        dlp_error_format(e, words, sizeof words);
        draw_words(to, 1, words);
        return;
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (words_of(w, heads[i]) != NULL) draw_words(to, 0, words_of(w, heads[i]));
}

/* The queues of chunks: those of this epoch that nobody loads yet, CPU buffers, device buffers. */
static void draw_chunks(screen *to, const watch *w) {
    const dlp_chunk_stats *c = &w->now.s.chunks;
    int width = to->columns >= 100 ? 40 : 12;
    uint64_t cpu[3] = {c->device_buffers ? 0 : c->in_use, c->cpu_filled, c->cpu_loading};
    uint64_t device[3] = {c->in_use, c->device_filled, c->device_copying};
    char picture[64], cut[32] = "";
    bar(picture, width, &c->loadable, "+", c->per_epoch);
    line(to, 0,
         "chunks [%s] + %" PRIu64 " loadable of %" PRIu64 "  %" PRIu64 " taken  skipped %" PRIu64,
         picture, c->loadable, c->per_epoch, c->taken, w->now.skips);
    bar(picture, width, cpu, "#=-", c->cpu_buffers);
    if (c->device_buffers == 0) snprintf(cut, sizeof cut, " # %" PRIu64 " in use ", c->in_use);
    line(to, 0,
         "  cpu  [%s]%s = %" PRIu64 " filled  - %" PRIu64 " loading  . %" PRIu64
         " free of %" PRIu64,
         picture, cut, c->cpu_filled, c->cpu_loading, c->cpu_free, c->cpu_buffers);
    if (c->device_buffers == 0) return;
    bar(picture, width, device, "#=-", c->device_buffers);
    line(to, 0,
         "  dev  [%s] # %" PRIu64 " in use  = %" PRIu64 " filled  - %" PRIu64 " copying  . %" PRIu64
         " free of %" PRIu64,
         picture, c->in_use, c->device_filled, c->device_copying, c->device_free,
         c->device_buffers);
}

/* Slots of batches that the consumer has given back, and an out that the pipe waits for has not. */
static uint32_t kept_by_outs(const dlp_stats *s) {
    const uint32_t used = s->in_flight + s->held, most = s->slots > used ? s->slots - used : 0;
    uint64_t kept = 0;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        const uint64_t left = s->batches > g->items ? s->batches - g->items : 0;
        if (g->kind != DLP_STAGE_OUT || g->own[DLP_OUT_FULL] != DLP_FULL_WAIT) continue;
        if (left + g->own[DLP_OUT_HELD] > kept) kept = left + g->own[DLP_OUT_HELD];
    }
    kept = kept > s->held ? kept - s->held : 0;
    return kept < most ? (uint32_t)kept : most;
}

static void draw_pool(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s;
    uint32_t ready = s->ready, held = s->held, used = s->in_flight + held;
    uint32_t kept = kept_by_outs(s), empty = s->slots > used ? s->slots - used - kept : 0;
    uint64_t parts[4] = {held, kept, ready, s->in_flight - ready};
    char picture[64], outs[40] = "";
    int width = to->columns >= 100 ? 40 : 12;
    if (s->chunks.cpu_buffers > 0) {
        draw_chunks(to, w);
        return;
    }
    bar(picture, width, parts, "#o=-", s->slots);
    if (kept > 0) snprintf(outs, sizeof outs, "  o %u outs", (unsigned)kept);
    line(to, 0, "%-6s [%s] # %u held%s  = %u ready  - %u open  . %u free of %u  skipped %" PRIu64,
         stage_of(s, DLP_STAGE_SPLIT) ? "chunks" : "slots", picture, (unsigned)held, outs,
         (unsigned)ready, (unsigned)(s->in_flight - ready), (unsigned)empty, (unsigned)s->slots,
         w->now.skips);
}

/* What only some pipes have, a line for each: a part queue, a cache. */
static void draw_extras(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s, *b = &w->before.s;
    const dlp_stage_stats *parts = stage_of(s, DLP_STAGE_PARTS);
    double hits = rate(w, s->cache_hits, b->cache_hits);
    double misses = rate(w, s->cache_misses, b->cache_misses);
    char picture[64];
    int width = to->columns >= 100 ? 40 : 12;
    if (parts) { /* read one after another: a cell may be counted twice, or not at all */
        uint32_t in_use = parts->in_use < parts->loaded ? parts->in_use : parts->loaded;
        uint32_t used = parts->loaded + parts->loading;
        uint64_t cells[3] = {in_use, parts->loaded - in_use, parts->loading};
        bar(picture, width, cells, "#=-", parts->cells);
        line(to, 0, "parts  [%s] # %u in use  = %u loaded  - %u loading  . %u free of %u", picture,
             (unsigned)in_use, (unsigned)(parts->loaded - in_use), (unsigned)parts->loading,
             (unsigned)(used < parts->cells ? parts->cells - used : 0), (unsigned)parts->cells);
    }
    if (s->cache_capacity > 0) {
        bar(picture, width, &s->cache_bytes, "#", s->cache_capacity);
        line(to, 0, "cache  [%s] %s MB of %s  %.0f %% of lookups hit", picture,
             number((double)s->cache_bytes / 1e6).s, number((double)s->cache_capacity / 1e6).s,
             share(hits, hits + misses) * 100);
    }
}

/* Outs beside the first, a line for each. */
static void draw_outs(screen *to, const watch *w) {
    static const char *const when_full[] = {"the pipe waits", "keeps the oldest",
                                            "goes on with the newest"};
    for (uint32_t i = 0; i < w->now.s.n_stages; i++) {
        const dlp_stage_stats *g = &w->now.s.stages[i];
        const uint64_t *own = g->own;
        char picture[64];
        if (g->kind != DLP_STAGE_OUT) continue;
        bar(picture, to->columns >= 100 ? 40 : 12, &own[DLP_OUT_HELD], "#", own[DLP_OUT_CAPACITY]);
        line(to, 0, "out    [%s] %.31s: # %" PRIu64 " held of %" PRIu64 "  missed %" PRIu64 "  %s",
             picture, g->name, own[DLP_OUT_HELD], own[DLP_OUT_CAPACITY], own[DLP_OUT_MISSED],
             own[DLP_OUT_FULL] < 3 ? when_full[own[DLP_OUT_FULL]] : "?");
    }
}

/* The user's own figures, a line for each. */
static void draw_counters(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s;
    for (uint32_t i = 0; i < s->n_counters; i++) {
        const dlp_counter_stats *c = &s->counters[i];
        uint64_t age = s->elapsed_ns > c->at_ns ? s->elapsed_ns - c->at_ns : 1;
        uint64_t height = (uint64_t)(share(c->value, c->most) * 1000);
        char picture[64] = "";
        if (c->most > 0) {
            snprintf(picture, sizeof picture, "[");
            bar(picture + 1, 12, &height, "#", 1000);
            snprintf(picture + 13, sizeof picture - 13, "] of %s", number(c->most).s);
        }
        if (c->noted == 0)
            line(to, 0, "%-15.31s not noted yet", c->name);
        else
            line(to, 0, "%-15.31s %s %.11s  %s  %s ago", c->name, number(c->value).s, c->unit,
                 picture, duration(age).s);
    }
}

static const char *stage_name(const watch *w, int32_t stage) {
    return stage >= 0 && stage < DLP_MAX_STAGES ? w->now.s.stages[stage].name : "?";
}

/* What has been worked on for the longest time: where a pipe hangs. */
static void draw_oldest(screen *to, const watch *w) {
    const dlp_worker_stats *oldest = &w->now.s.longest;
    if (oldest->current_age_ns == 0)
        line(to, 0, "%s", "oldest: nobody works");
    else
        line(to, oldest->current_age_ns > 1000000000u ? 1 : 0,
             "oldest: %.31s-%d works on %" PRIu64 " for %s", stage_name(w, oldest->stage),
             (int)oldest->worker, oldest->current_index, duration(oldest->current_age_ns).s);
}

static void draw_stages(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s;
    char picture[32];
    uint64_t waiting;
    line(to, 0, "%s", "");
    line(to, 7, "%-15s %7s %6s %9s %8s %8s  %s", "STAGE", "WORKERS", "BUSY", "ITEMS/S", "P50",
         "P99", "BATCHES BEFORE IT");
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        char workers[32];
        if (!has_workers(g)) continue;
        waiting = g->ready;
        bar(picture, 10, &waiting, "#", s->prefetch_factor);
        snprintf(workers, sizeof workers, g->workers ? "%d" : "inline", (int)g->workers);
        if (g->workers_max > 0)
            snprintf(workers, sizeof workers, "%d/%d", (int)g->workers, (int)g->workers_max);
        if (g->in_flight > 0)
            snprintf(workers + strlen(workers), sizeof workers - strlen(workers), " x %d",
                     (int)g->in_flight);
        line(to, 0, "%-15.15s %7s %4.0f %% %9s %8s %8s  [%s] %" PRIu64, g->name, workers,
             stage_busy(w, (int32_t)i) * 100,
             number(rate(w, g->items, w->before.s.stages[i].items)).s, duration(g->p50_ns).s,
             duration(g->p99_ns).s, picture, g->ready);
    }
    waiting = s->ready;
    bar(picture, 10, &waiting, "#", s->prefetch_factor);
    line(to, 0, "%-15s %7s %4.0f %% %9s %8s %8s  [%s] %u", "consumer", "",
         wait_share(w) < 0 ? 0 : 100 - wait_share(w) * 100,
         number(rate(w, s->items, w->before.s.items)).s, duration(s->step_p50_ns).s, "", picture,
         (unsigned)s->ready);
}

/* What the queue does beside its kind: whose turn it is, and which batches a slow out keeps. */
static const char *link_rule(const dlp_link *l) {
    if (l->rule == 0) return "";
    if (l->kind == DLP_LINK_CLAIM) return ", in turns";
    return l->rule == DLP_FULL_DROP_NEW ? ", oldest"
           : l->rule == DLP_FULL_REFUSE ? ", refuses"
                                        : ", newest";
}

/* Records in a link. A monitor does not see those in the lanes of a push. */
static text link_depth(const dlp_link *l, const char *unknown) {
    text t;
    if (l->depth == UINT64_MAX)
        snprintf(t.s, sizeof t.s, "%s", unknown);
    else
        snprintf(t.s, sizeof t.s, "%" PRIu64, l->depth);
    return t;
}

/* The queues between stages, if a small screen has room for them and for some workers. */
static void draw_links(screen *to, const watch *w) {
    const dlp_stats *s = &w->now.s;
    const uint64_t none = 0;
    char ends[80], ways[32], picture[32];
    if (to->rows > 0 && to->row + (int)s->n_links + 2 + 6 > to->rows) return;
    line(to, 0, "%s", "");
    line(to, 7, "%-32s %-6s %8s  %s", "LINK", "KIND", "FROM/TO", "IN IT");
    for (uint32_t i = 0; i < s->n_links; i++) {
        const dlp_link *l = &s->links[i];
        snprintf(ends, sizeof ends, "%.15s > %.14s", l->from, l->to);
        snprintf(ways, sizeof ways, "%d/%d", (int)l->writers, (int)l->readers);
        bar(picture, 10, l->depth == UINT64_MAX ? &none : &l->depth, "#", l->capacity);
        line(to, 0, "%-32s %-6s %8s  [%s] %s of %" PRIu64 "%s", ends, dlp_link_name(l->kind), ways,
             picture, link_depth(l, "?").s, l->capacity, link_rule(l));
    }
}

static void draw_worker(screen *to, const watch *w, uint32_t i) {
    const dlp_worker_stats *k = &w->now.workers[i];
    char name[48], index[24] = "-", who[32], more[48] = "";
    snprintf(name, sizeof name, "%.11s-%d", stage_name(w, k->stage), (int)k->worker);
    if (k->current_index != UINT64_MAX) snprintf(index, sizeof index, "%" PRIu64, k->current_index);
    if (k->process)
        snprintf(who, sizeof who, "%d", (int)k->pid);
    else if (k->tid)
        snprintf(who, sizeof who, "%d/%d", (int)k->pid, (int)k->tid);
    else
        snprintf(who, sizeof who, "-");
    if (k->restarts) snprintf(more, sizeof more, "  restarted %d", (int)k->restarts);
    line(to, 0, "%-15s %-8s %15s %4.0f %% %12s %9s %9s%s", name, state_name(k->state), who,
         worker_busy(w, i) * 100, index, duration(k->current_age_ns).s,
         number(rate(w, k->items, w->before.workers[i].items)).s, more);
}

/* Workers from *scroll on, as many as there is room for. */
static void draw_workers(screen *to, const watch *w, uint32_t *scroll) {
    uint32_t n = w->now.s.n_workers, room, from = 0;
    line(to, 0, "%s", "");
    line(to, 7, "%-15s %-8s %15s %6s %12s %9s %9s", "WORKER", "STATE", "PID/TID", "BUSY",
         "ITEM NOW", "FOR", "ITEMS/S");
    room = to->rows == 0 ? n : to->rows > to->row ? (uint32_t)(to->rows - to->row) : 0;
    if (room < n && room > 0) room--; /* for the line that says how many there are */
    if (*scroll > n - (room < n ? room : n)) *scroll = n - (room < n ? room : n);
    if (room < n) from = *scroll;
    for (uint32_t i = from; i < n && i - from < room; i++) draw_worker(to, w, i);
    if (room < n)
        line(to, 0, "workers %u to %u of %u: j, k", (unsigned)from, (unsigned)(from + room),
             (unsigned)n);
}

static void draw(screen *to, const watch *w, uint32_t *scroll) {
    to->n = 0;
    to->row = 0;
    if (to->live) put(to, "\033[H", 3);
    draw_header(to, w);
    draw_limit(to, w);
    draw_pool(to, w);
    draw_extras(to, w);
    draw_outs(to, w);
    draw_counters(to, w);
    draw_oldest(to, w);
    draw_stages(to, w);
    draw_links(to, w);
    draw_workers(to, w, scroll);
    if (to->live)
        put(to, "\033[J", 3);
    else
        put(to, "\n", 1);
}

static void show(const screen *to) {
    size_t done = 0;
    while (done < to->n) {
        ssize_t n = write(STDOUT_FILENO, to->s + done, to->n - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        done += (size_t)n;
    }
}

/* ---- JSON ---- */

static void json_text(const char *key, const char *s) {
    printf("\"%s\":\"", key);
    while (*s) {
        int n = printable(s);
        if (n == 1 && (*s == '"' || *s == '\\')) putchar('\\');
        printf("%.*s", n ? n : 1, n ? s : "?");
        s += n ? n : 1;
    }
    printf("\"");
}

/* A line of words; NULL is empty. */
static void json_words(const char *key, const char *s) {
    char words[2048];
    snprintf(words, sizeof words, "%.*s", (int)(s ? strcspn(s, "\n") : 0), s ? s : "");
    json_text(key, words);
}

static void json_stage(const watch *w, uint32_t i, const char *before) {
    static const char *const kinds[] = {"other",     "sampler",  "repeat", "fetch", "map",  "batch",
                                        "batch_map", "transfer", "cache",  "split", "parts"};
    const int32_t n = (int32_t)(sizeof kinds / sizeof *kinds);
    const dlp_stage_stats *g = &w->now.s.stages[i];
    printf("%s{", before);
    json_text("name", g->name);
    printf(",\"kind\":\"%s\",\"workers\":%d,\"busy\":%.4f,\"items\":%" PRIu64
           ",\"items_per_s\":%.3f,\"bytes\":%" PRIu64 ",",
           kinds[g->kind > 0 && g->kind < n ? g->kind : 0], (int)g->workers,
           stage_busy(w, (int32_t)i), g->items, rate(w, g->items, w->before.s.stages[i].items),
           g->bytes);
    printf("\"p50_ns\":%" PRIu64 ",\"p95_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64
           ",\"max_ns\":%" PRIu64 ",\"ready\":%" PRIu64 ",\"retried\":%" PRIu64
           ",\"replaced\":%" PRIu64 ",\"left_out\":%" PRIu64
           ",\"in_flight\":%d,\"workers_max\":%d,\"cells\":%u,\"loaded\":%u,"
           "\"loading\":%u,\"in_use\":%u}",
           g->p50_ns, g->p95_ns, g->p99_ns, g->max_ns, g->ready, g->retried, g->replaced,
           g->left_out, (int)g->in_flight, (int)g->workers_max, (unsigned)g->cells,
           (unsigned)g->loaded, (unsigned)g->loading, (unsigned)g->in_use);
}

static void json_outs(const dlp_stats *s) {
    const char *before = "";
    printf("\"outs\":[");
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const uint64_t *own = s->stages[i].own;
        if (s->stages[i].kind != DLP_STAGE_OUT) continue;
        printf("%s{", before);
        json_text("name", s->stages[i].name);
        printf(",\"capacity\":%" PRIu64 ",\"held\":%" PRIu64 ",\"missed\":%" PRIu64 ",\"full\":%d}",
               own[DLP_OUT_CAPACITY], own[DLP_OUT_HELD], own[DLP_OUT_MISSED],
               (int)own[DLP_OUT_FULL]);
        before = ",";
    }
    printf("],");
}

static void json_chunks(const dlp_chunk_stats *c) {
    printf("\"chunks\":{\"taken\":%" PRIu64 ",\"per_epoch\":%" PRIu64 ",\"loadable\":%" PRIu64
           ",\"in_use\":%" PRIu64 ",\"preload\":%d,",
           c->taken, c->per_epoch, c->loadable, c->in_use, (int)c->preload);
    printf("\"cpu\":{\"all\":%" PRIu64 ",\"free\":%" PRIu64 ",\"loading\":%" PRIu64
           ",\"filled\":%" PRIu64 "},",
           c->cpu_buffers, c->cpu_free, c->cpu_loading, c->cpu_filled);
    printf("\"device\":{\"all\":%" PRIu64 ",\"free\":%" PRIu64 ",\"copying\":%" PRIu64
           ",\"filled\":%" PRIu64 "}},",
           c->device_buffers, c->device_free, c->device_copying, c->device_filled);
}

static void json_worker(const watch *w, uint32_t i, const char *before) {
    const dlp_worker_stats *k = &w->now.workers[i];
    printf("%s{\"stage\":%d,\"worker\":%d,\"state\":\"%s\",\"process\":%s,\"pid\":%d,\"tid\":%d,",
           before, (int)k->stage, (int)k->worker, state_name(k->state),
           k->process ? "true" : "false", (int)k->pid, (int)k->tid);
    if (k->current_index == UINT64_MAX)
        printf("\"index\":null,");
    else
        printf("\"index\":%" PRIu64 ",", k->current_index);
    printf("\"age_ns\":%" PRIu64 ",\"busy\":%.4f,\"items\":%" PRIu64
           ",\"items_per_s\":%.3f,\"restarts\":%d}",
           k->current_age_ns, worker_busy(w, i), k->items,
           rate(w, k->items, w->before.workers[i].items), (int)k->restarts);
}

static void json_link(const dlp_link *l, const char *before) {
    printf("%s{", before);
    json_text("from", l->from);
    printf(",");
    json_text("to", l->to);
    printf(",\"kind\":\"%s\",\"writers\":%d,\"readers\":%d,\"capacity\":%" PRIu64
           ",\"bytes\":%" PRIu64 ",\"depth\":%s,\"rule\":%d}",
           dlp_link_name(l->kind), (int)l->writers, (int)l->readers, l->capacity, l->bytes,
           link_depth(l, "null").s, (int)l->rule);
}

static void json_counter(const dlp_counter_stats *c, const char *before) {
    printf("%s{", before);
    json_text("name", c->name);
    printf(",");
    json_text("unit", c->unit);
    printf(",\"value\":%.9g,\"most\":%.9g,\"at_s\":%.3f,\"noted\":%" PRIu64 "}", c->value, c->most,
           (double)c->at_ns / 1e9, c->noted);
}

static void json(const watch *w) {
    const dlp_stats *s = &w->now.s, *b = &w->before.s;
    const dlp_error *e = dlp_monitor_error(w->monitor);
    double waits = wait_share(w);
    uint32_t used = s->in_flight + s->held;
    printf("{");
    json_text("name", w->about.name);
    printf(",");
    json_text("shm_name", w->about.shm_name);
    printf(",\"pid\":%d,\"state\":\"%s\",\"uptime_s\":%.3f,\"interval_s\":%.3f,\"epoch\":%" PRIu64
           ",\"batches\":%" PRIu64 ",\"items\":%" PRIu64 ",\"bytes\":%" PRIu64 ",",
           (int)w->about.pid, owner_state(w), (double)s->elapsed_ns / 1e9, span(w), s->epoch,
           s->batches, s->items, s->bytes);
    printf("\"batches_per_s\":%.3f,\"items_per_s\":%.3f,\"bytes_per_s\":%.3f,",
           rate(w, s->batches, b->batches), rate(w, s->items, b->items),
           rate(w, s->bytes, b->bytes));
    if (waits < 0)
        printf("\"wait_share\":null,");
    else
        printf("\"wait_share\":%.4f,", waits);
    json_words("limit", words_of(w, "Limit: "));
    printf(",");
    json_words("change", words_of(w, "Change: "));
    printf(",");
    json_words("better", words_of(w, "Better: "));
    printf(",\"error\":%d,", (int)e->code);
    json_text("error_message", e->code ? e->message : "");
    printf(",\"slots\":{\"all\":%u,\"held\":%u,\"ready\":%u,\"open\":%u,\"free\":%u},"
           "\"prefetch_factor\":%u,\"batch_size\":%u,\"plan_bytes\":%" PRIu64
           ",\"skipped\":%" PRIu64 ",\"cache\":{\"hits\":%" PRIu64 ",\"misses\":%" PRIu64
           ",\"bytes\":%" PRIu64 ",\"capacity\":%" PRIu64 "},",
           (unsigned)s->slots, (unsigned)s->held, (unsigned)s->ready,
           (unsigned)(s->in_flight - s->ready), (unsigned)(s->slots > used ? s->slots - used : 0),
           (unsigned)s->prefetch_factor, (unsigned)s->batch_size, s->plan_bytes, w->now.skips,
           s->cache_hits, s->cache_misses, s->cache_bytes, s->cache_capacity);
    if (s->chunks.cpu_buffers > 0) json_chunks(&s->chunks);
    json_outs(s);
    printf("\"stages\":[");
    for (uint32_t i = 0; i < s->n_stages; i++) json_stage(w, i, i ? "," : "");
    printf("],\"links\":[");
    for (uint32_t i = 0; i < s->n_links; i++) json_link(&s->links[i], i ? "," : "");
    printf("],\"counters\":[");
    for (uint32_t i = 0; i < s->n_counters; i++) json_counter(&s->counters[i], i ? "," : "");
    printf("],\"workers\":[");
    for (uint32_t i = 0; i < s->n_workers; i++) json_worker(w, i, i ? "," : "");
    printf("]}\n");
}

/* ---- the terminal ---- */

static volatile sig_atomic_t asked_end, asked_pause, resized;
static struct termios cooked;

static void on_end(int sig) {
    (void)sig;
    asked_end = 1;
}
static void on_pause(int sig) {
    (void)sig;
    asked_pause = 1;
}
static void on_size(int sig) {
    (void)sig;
    resized = 1;
}

static void terminal_enter(void) {
    static const char enter[] = "\033[?1049h\033[?25l";
    struct termios raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    if (write(STDOUT_FILENO, enter, sizeof enter - 1) < 0) asked_end = 1;
}

static void terminal_leave(void) {
    static const char leave[] = "\033[?25h\033[?1049l";
    if (write(STDOUT_FILENO, leave, sizeof leave - 1) < 0) asked_end = 1;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
}

static void terminal_size(screen *to) {
    struct winsize size;
    to->columns = 80;
    to->rows = to->live ? 24 : 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
    to->columns = size.ws_col;
    if (to->live && size.ws_row > 0) to->rows = size.ws_row;
}

static void handle(int sig, void (*handler)(int)) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = handler;
    sigemptyset(&act.sa_mask);
    sigaction(sig, &act, NULL);
}

/* Wait for a key, a signal or the time. Returns whether there is something new to draw at once. */
static bool await(int ms, uint32_t *scroll) {
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    char keys[64];
    ssize_t n;
    if (poll(&in, 1, ms) <= 0) return true; /* time, or a signal */
    n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0) asked_end = 1; /* the terminal is gone */
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == 'q' || keys[i] == 3) asked_end = 1;
        if (keys[i] == 'j') ++*scroll;
        if (keys[i] == 'k' && *scroll > 0) --*scroll;
    }
    return true;
}

static int run_live(watch *w, int interval_ms) {
    screen to = {NULL, 0, 0, 80, 24, 0, true};
    uint32_t scroll = 0;
    uint64_t due = now_ns();
    dlp_error e;
    int rc = DLP_OK;
    handle(SIGINT, on_end);
    handle(SIGTERM, on_end);
    handle(SIGHUP, on_end);
    handle(SIGTSTP, on_pause);
    handle(SIGWINCH, on_size);
    terminal_enter();
    while (!asked_end) {
        uint64_t now = now_ns();
        if (asked_pause) {
            asked_pause = 0;
            terminal_leave();
            raise(SIGSTOP);
            terminal_enter();
        }
        resized = 0;
        terminal_size(&to);
        if (now >= due) {
            if ((rc = look(w, &e)) != DLP_OK) break;
            due = now + (uint64_t)interval_ms * 1000000u;
        }
        draw(&to, w, &scroll);
        show(&to);
        if (!resized) await((int)((due > now ? due - now : 0) / 1000000u) + 1, &scroll);
    }
    terminal_leave();
    free(to.s);
    if (rc != DLP_OK) fail(&e);
    return 0;
}

static int run_once(watch *w, int interval_ms, bool as_json) {
    struct timespec pause = {interval_ms / 1000, (long)(interval_ms % 1000) * 1000000};
    screen to = {NULL, 0, 0, 80, 0, 0, false};
    uint32_t scroll = 0;
    dlp_error e;
    nanosleep(&pause, NULL);
    if (look(w, &e) != DLP_OK) {
        fail(&e);
        return 1;
    }
    if (as_json) {
        json(w);
        return 0;
    }
    terminal_size(&to);
    draw(&to, w, &scroll);
    show(&to);
    free(to.s);
    return 0;
}

/* ---- names ---- */

static int names(bool remove) {
    dlp_shm_name *all;
    int n = dlp_shm_names(NULL, 0), max, shown = 0;
    if (n < 0) {
        perror("dlpipe_top: /dev/shm");
        return 1;
    }
    max = n + 16;
    all = calloc((size_t)max, sizeof *all);
    if (all == NULL) return 1;
    n = dlp_shm_names(all, max);
    for (int i = 0; i < n && i < max; i++) {
        static const char *const states[] = {"another user's", "stale", "alive"};
        const dlp_shm_name *k = &all[i];
        if (remove && k->alive != 0) continue;
        if (shown++ == 0) printf("%-32s %8s %6s %10s  %s\n", "NAME", "PID", "UID", "AGE", "STATE");
        printf("%-32s %8d %6u %10s  %s\n", k->name, (int)k->pid, (unsigned)k->uid,
               duration(k->age_ms * 1000000u).s,
               !remove                              ? states[k->alive + 1]
               : dlp_shm_remove_stale(k->name) == 1 ? "removed"
                                                    : "left there");
    }
    free(all);
    return 0;
}

/* ---- traces ---- */

/* The newest stretch of each lane, as the monitor copied it. */
static int events(const dlp_monitor *m) {
    static const char *const kinds[] = {"?", "work", "wait", "step", "epoch", "starved", "blocked"};
    for (int i = 0; i < dlp_monitor_trace_lanes(m); i++) {
        dlp_trace_event e;
        char lane[32];
        if (dlp_monitor_trace(m, i, &e, 1, lane) != 1) continue;
        printf("%-20s %-8s %10.3f ms, until %.3f s, batch %llu\n", lane,
               kinds[e.kind <= DLP_TRACE_BLOCKED ? e.kind : 0],
               (double)(e.end_ns - e.begin_ns) / 1e6, (double)e.end_ns / 1e9,
               (unsigned long long)e.sequence);
    }
    return 0;
}

/* newest, stall, epoch:N, batches:A-B, or time:A-B in ms since start. */
static bool window_of(const char *words, dlp_trace_window *to) {
    uint64_t a = 0, b = 0, unit = 1;
    int end = 0;
    memset(to, 0, sizeof *to);
    if (words == NULL || strcmp(words, "newest") == 0) return true;
    if (strcmp(words, "stall") == 0) to->what = DLP_WINDOW_STALL;
    if (sscanf(words, "epoch:%" SCNu64 "%n", &a, &end) == 1) to->what = DLP_WINDOW_EPOCH;
    if (sscanf(words, "batches:%" SCNu64 "-%" SCNu64 "%n", &a, &b, &end) == 2)
        to->what = DLP_WINDOW_BATCHES;
    if (sscanf(words, "time:%" SCNu64 "-%" SCNu64 "%n", &a, &b, &end) == 2) {
        to->what = DLP_WINDOW_TIME;
        unit = 1000000;
    }
    to->from = a * unit;
    to->to = b * unit;
    return to->what != DLP_WINDOW_NEWEST && (to->what == DLP_WINDOW_STALL || words[end] == 0);
}

/* Write what was traced: for Perfetto, or as a picture. */
static int traces(const dlp_monitor *m, const char *trace, const char *timeline,
                  const dlp_trace_window *window) {
    dlp_error err;
    int rc = trace ? dlp_monitor_write_trace(m, trace, &err) : DLP_OK;
    if (rc == DLP_OK && timeline) rc = dlp_monitor_write_window(m, timeline, window, &err);
    if (rc != DLP_OK) fprintf(stderr, "dlpipe_top: %s\n", err.message);
    return rc != DLP_OK;
}

static int usage(void) {
    fprintf(stderr, "usage: dlpipe_top [--once] [--json] [--interval MS] PID|PID:PIPE|NAME\n"
                    "       dlpipe_top --events | --trace JSON | --timeline SVG [--window WHAT]  "
                    "PID|PID:PIPE|NAME\n"
                    "       WHAT: newest, stall, epoch:N, batches:A-B, time:A-B (ms since start)\n"
                    "       dlpipe_top --list | --stale\n");
    return 2;
}

int main(int argc, char **argv) {
    static watch w;
    const char *who = NULL, *trace = NULL, *timeline = NULL, *stretch = NULL;
    dlp_trace_window window;
    bool once = false, as_json = false, newest = false;
    int interval_ms = 0, code;
    dlp_error e;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) return names(false);
        if (strcmp(argv[i], "--stale") == 0) return names(true);
        if (strcmp(argv[i], "--once") == 0)
            once = true;
        else if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--events") == 0)
            newest = true;
        else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc)
            trace = argv[++i];
        else if (strcmp(argv[i], "--timeline") == 0 && i + 1 < argc)
            timeline = argv[++i];
        else if (strcmp(argv[i], "--window") == 0 && i + 1 < argc)
            stretch = argv[++i];
        else if (strcmp(argv[i], "--interval") == 0 && i + 1 < argc)
            interval_ms = atoi(argv[++i]);
        else if (argv[i][0] == '-' || who)
            return usage();
        else
            who = argv[i];
    }
    if (who == NULL || interval_ms < 0 || !window_of(stretch, &window)) return usage();
    if (watch_open(&w, who, &e) != DLP_OK) {
        fail(&e);
        watch_close(&w);
        return 1;
    }
    if (newest)
        code = events(w.monitor);
    else if (trace || timeline)
        code = traces(w.monitor, trace, timeline, &window);
    else if (once || as_json || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &cooked) != 0)
        code = run_once(&w, interval_ms ? interval_ms : 250, as_json);
    else
        code = run_live(&w, interval_ms ? interval_ms : 1000);
    watch_close(&w);
    return code;
}
