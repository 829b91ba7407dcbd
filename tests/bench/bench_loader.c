/* bench_loader: what a loader of dlpipe.h costs, beside PyTorch's DataLoader and a memcpy loop.

   bench_loader [-o lines.jsonl] [-t bench_loader_torch.py] [scenario...]
   One JSON object per line on standard output and in the file; progress on standard error. Without
   scenarios, all of them. QUICK=1, SHORT=1: shorter samples. PYTHON: who has torch.
   Benches whose name ends in _proc have worker processes, as PyTorch has; the others have threads.
   Rounds and lines are those of bench_rig.h. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

#include "bench_rig.h"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

/* ---- ours ------------------------------------------------------------------------------------ */

/* What a loader is to load, and how. */
struct load {
    const uint8_t *source; /* [n_source][row_bytes] random bytes; NULL: rows hold their own index */
    uint64_t n_items, n_source, row_bytes;
    uint32_t batch;
    int workers, prefetch, dispatch, unordered, placement;
    bool zeroed; /* the loader zeroes rows before fetch writes them */
    dlp_item_fn fetch;
    int64_t epochs;
    uint32_t stride;           /* batches between two looks at the clock */
    double seconds;            /* length of a sample */
    uint64_t cost_ns, slow_ns; /* of an item, and of every twentieth */
};

static int fetch_copy(void *user, dlp_item *item) {
    const struct load *l = user;
    memcpy(item->data[0], l->source + item->index * l->row_bytes, l->row_bytes);
    return 0;
}

static int fetch_nothing(void *user, dlp_item *item) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(item);
    return 0;
}

static int fetch_index(void *user, dlp_item *item) {
    DLPI_UNUSED(user);
    memcpy(item->data[0], &item->index, sizeof item->index);
    return 0;
}

static uint64_t cost_of(const struct load *l, uint64_t index) {
    return index % 20 == 7 ? l->slow_ns : l->cost_ns;
}

static int fetch_sleep(void *user, dlp_item *item) {
    uint64_t ns = cost_of(user, item->index);
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    return fetch_index(user, item);
}

static uint64_t thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spinning is work: it needs that much of a core, however long that takes. */
static int fetch_spin(void *user, dlp_item *item) {
    uint64_t until = thread_cpu_ns() + cost_of(user, item->index);
    while (thread_cpu_ns() < until) {}
    return fetch_index(user, item);
}

/* Let sleeps end when they should: the default slack of 50 us is a twentieth of the short ones. */
static int exact_sleeps(void *user, int worker, void **state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    DLPI_UNUSED(state);
    return prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
}

/* The same with worker processes. */
static struct load with_processes(const struct load *l) {
    struct load copy = *l;
    copy.placement = DLP_PLACE_PROCESSES;
    return copy;
}

static dlp_pipe *loader_open(const struct load *l) {
    const dlp_field field = {
        .name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {(int64_t)l->row_bytes}};
    const dlp_loader_desc desc = {
        .dataset = {.n_items = l->n_items,
                    .fields = &field,
                    .n_fields = 1,
                    .writes_all_bytes = !l->zeroed,
                    .fetch = l->fetch,
                    .user = (void *)(uintptr_t)l},
        .batch_size = l->batch,
        .num_workers = l->workers,
        .shuffle = 1,
        .epochs = l->epochs,
        .seed = 20250131,
        .workers = {.dispatch = l->dispatch,
                    .placement = l->placement,
                    .worker_init = l->fetch == fetch_sleep ? exact_sleeps : NULL},
        .pipe = {.prefetch_factor = l->prefetch, .unordered = l->unordered}};
    dlp_pipe *p = NULL;
    dlp_error err;
    char text[512];
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) {
        dlp_error_format(&err, text, sizeof text);
        say(" [open: %s]", text);
        failures++;
        return NULL;
    }
    return p;
}

/* The next batch, or NULL at the end and on failure. */
static dlp_batch *loader_next(dlp_pipe *p) {
    dlp_batch *b = NULL;
    char text[512];
    int code = dlp_pipe_next_timeout(p, &b, WAIT_MS);
    if (code == DLP_OK) { return b; }
    if (code != DLP_END) {
        dlp_error_format(dlp_pipe_error(p), text, sizeof text);
        say(" [next: %s: %s]", dlp_code_name(code), text);
        failures++;
    }
    return NULL;
}

static void loader_close(dlp_pipe *p) {
    if (dlp_pipe_close(p) != DLP_OK) {
        say(" [close failed]");
        failures++;
    }
}

/* Take and release batches. Returns the number of items in them. */
static uint64_t loader_take(dlp_pipe *p, uint64_t batches) {
    uint64_t items = 0;
    for (uint64_t i = 0; i < batches; i++) {
        dlp_batch *b = loader_next(p);
        if (b == NULL) { break; }
        items += b->count;
        dlp_pipe_release(p, b);
    }
    return items;
}

/* Take batches until the time is up. Returns items a second, not a number on failure. */
static double loader_rate_of(dlp_pipe *p, const struct load *l) {
    uint64_t items = 0;
    double begin = seconds_now(), now = begin;
    while (now - begin < l->seconds) {
        uint64_t got = loader_take(p, l->stride);
        if (got == 0) { return NAN; }
        items += got;
        now = seconds_now();
    }
    return (double)items / (now - begin);
}

/* Items a second in the steady state: every slot has been through the pipe several times. */
static double sample_rate(void *arg) {
    struct load l = *(const struct load *)arg;
    l.epochs = DLP_FOREVER;
    dlp_pipe *p = loader_open(&l);
    if (p == NULL) { return NAN; }
    loader_take(p, 2 * ((uint64_t)l.prefetch + 1) + 64 / l.batch);
    double rate = loader_rate_of(p, &l);
    loader_close(p);
    return rate;
}

static double sample_ns_per_item(void *arg) { return 1e9 / sample_rate(arg); }

static bool row_is_right(const struct load *l, const dlp_batch *b, uint32_t row) {
    uint64_t index = b->index[row], got;
    const uint8_t *data = (const uint8_t *)b->fields[0].data + row * l->row_bytes;
    if (l->source != NULL) {
        return memcmp(data, l->source + index * l->row_bytes, l->row_bytes) == 0;
    }
    memcpy(&got, data, sizeof got);
    return got == index;
}

/* One epoch, untimed: every item once, every byte right. Counts a failure otherwise. */
static void verify(const struct load *load, const char *title) {
    struct load l = *load;
    uint64_t seen = 0, wrong = 0;
    l.epochs = 1;
    if (l.fetch == fetch_nothing) { l.fetch = fetch_index; }
    uint8_t *mark = calloc(l.n_items, 1);
    dlp_pipe *p = mark == NULL ? NULL : loader_open(&l);
    for (dlp_batch *b; p != NULL && (b = loader_next(p)) != NULL; dlp_pipe_release(p, b)) {
        for (uint32_t row = 0; row < b->count; row++) {
            bool fresh = b->index[row] < l.n_items && mark[b->index[row]]++ == 0;
            wrong += !fresh || !row_is_right(&l, b, row);
            seen++;
        }
    }
    if (p != NULL) { loader_close(p); }
    free(mark);
    if (seen != l.n_items || wrong != 0) {
        say("%s: %" PRIu64 " of %" PRIu64 " items, %" PRIu64 " of them wrong\n", title, seen,
            l.n_items, wrong);
        failures++;
    }
}

/* ---- the memcpy loop ------------------------------------------------------------------------- */

struct copier {
    const struct load *load;
    uint64_t *order; /* [n_items] a shuffle */
    uint8_t *slots;  /* [n_slots][batch][row_bytes] */
    uint64_t n_slots, at, batches;
};

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool copier_open(struct copier *c, const struct load *l) {
    c->load = l;
    c->n_slots = (uint64_t)l->prefetch + 1;
    c->at = c->batches = 0;
    c->order = malloc(l->n_items * sizeof *c->order);
    uint64_t bytes = (c->n_slots * l->batch * l->row_bytes + 4095) / 4096 * 4096;
    c->slots = aligned_alloc(4096, bytes);
    if (c->order == NULL || c->slots == NULL) { return false; }
    memset(c->slots, 0, bytes);
    for (uint64_t i = 0; i < l->n_items; i++) {
        uint64_t j = mix(i + 1) % (i + 1);
        c->order[i] = c->order[j];
        c->order[j] = i;
    }
    return true;
}

static void copier_close(struct copier *c) {
    free(c->order);
    free(c->slots);
}

static void copier_batch(struct copier *c) {
    const struct load *l = c->load;
    uint8_t *slot = c->slots + c->batches++ % c->n_slots * l->batch * l->row_bytes;
    for (uint32_t row = 0; row < l->batch; row++) {
        uint64_t index = c->order[c->at];
        c->at = c->at + 1 == l->n_items ? 0 : c->at + 1;
        memcpy(slot + row * l->row_bytes, l->source + index * l->row_bytes, l->row_bytes);
    }
}

static double sample_memcpy(void *arg) {
    struct copier *c = arg;
    for (uint64_t i = 0; i < 2 * c->n_slots; i++) { copier_batch(c); }
    uint64_t items = 0;
    double begin = seconds_now(), now = begin;
    while (now - begin < c->load->seconds) {
        for (uint32_t i = 0; i < c->load->stride; i++) { copier_batch(c); }
        items += (uint64_t)c->load->stride * c->load->batch;
        now = seconds_now();
    }
    return (double)items / (now - begin);
}

/* The batch copied last lies in its slot as it should. */
static void copier_verify(struct copier *c, const char *title) {
    const struct load *l = c->load;
    uint64_t from = c->at;
    copier_batch(c);
    const uint8_t *slot = c->slots + (c->batches - 1) % c->n_slots * l->batch * l->row_bytes;
    for (uint32_t row = 0; row < l->batch; row++) {
        uint64_t index = c->order[(from + row) % l->n_items];
        if (memcmp(slot + row * l->row_bytes, l->source + index * l->row_bytes, l->row_bytes) !=
            0) {
            say("%s: the memcpy loop copied wrong bytes\n", title);
            failures++;
            return;
        }
    }
}

/* ---- small and large items ------------------------------------------------------------------- */

/* How PyTorch's workers hand tensors over: 0 by file descriptor, its default; 1 by file name. */
static const char *const sharing_name[] = {"file_descriptor", "file_system"};

struct torch_rate {
    const struct load *load;
    uint64_t per_epoch;
    int sharing;
};

static double sample_torch_rate(void *arg) {
    const struct torch_rate *t = arg;
    const struct load *l = t->load;
    double rate;
    bool good =
        torch_ask(&rate, 1, "rate %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %d %d %d", l->n_source,
                  l->row_bytes, t->per_epoch, l->batch, l->workers, l->prefetch, t->sharing);
    return good ? rate : NAN;
}

static bool torch_verified(const struct load *l) {
    double n;
    return torch_ask(&n, 1, "verify %" PRIu64 " %" PRIu64 " %u %d %d", l->n_source, l->row_bytes,
                     l->batch, l->workers, l->prefetch);
}

static uint8_t *random_bytes(uint64_t n) {
    uint64_t *words = malloc((n + 7) / 8 * 8);
    for (uint64_t i = 0; words != NULL && i < (n + 7) / 8; i++) {
        words[i] = mix(i + 0x9e3779b97f4a7c15u);
    }
    if (words == NULL) {
        say("no memory for a source of %" PRIu64 " bytes\n", n);
        failures++;
    }
    return (uint8_t *)words;
}

static const char *libc_version(void) {
#if defined(__GLIBC__)
    return gnu_get_libc_version();
#else
    return "libc";
#endif
}

/* Who takes part in a copying bench, by contender number. */
enum { COPY_OURS, COPY_MEMCPY, COPY_ZEROED, COPY_PROC, COPY_TORCH };

/* Lines of ours (or of one of its variants) beside the memcpy loop and both settings of PyTorch. */
static void copy_lines(const char *name, const struct series *s, const struct load *l, int who,
                       double wanted_memcpy, double wanted_torch) {
    struct measure m = {.bench = name, .unit = "item/s"};
    size_t keys =
        (size_t)snprintf(m.extra, sizeof m.extra,
                         ",\"prefetch\":%d,\"workers\":%d,\"batch\":%u,\"item_bytes\":%" PRIu64,
                         l->prefetch, l->workers, l->batch, l->row_bytes);
    char *rest = m.extra + keys;
    snprintf(rest, sizeof m.extra - keys, ",\"wanted\":%g", wanted_memcpy);
    put(&m, s, who, COPY_MEMCPY);
    for (int i = 0; i < 2; i++) {
        snprintf(rest, sizeof m.extra - keys, ",\"sharing\":\"%s\",\"wanted\":%g", sharing_name[i],
                 wanted_torch);
        if (COPY_TORCH + i < s->n_who) {
            put(&m, s, who, COPY_TORCH + i);
        } else {
            put_skipped(name, "torch", torch_reason(), m.extra);
        }
    }
}

static void copy_bench(const char *name, const char *zeroed_name, struct load *l,
                       uint64_t torch_items, double wanted_memcpy, double wanted_torch) {
    struct series s = {0};
    struct copier copier;
    struct load zeroed = *l, proc = with_processes(l);
    struct torch_rate theirs[] = {{l, torch_items, 0}, {l, torch_items, 1}};
    char title[64], proc_name[64];
    zeroed.zeroed = true;
    snprintf(title, sizeof title, "%s prefetch %d", name, l->prefetch);
    snprintf(proc_name, sizeof proc_name, "%s_proc", name);
    if (!copier_open(&copier, l)) {
        failures++;
        copier_close(&copier);
        return;
    }
    verify(l, title);
    verify(&zeroed, zeroed_name);
    verify(&proc, proc_name);
    copier_verify(&copier, title);
    compete(&s, "ours", "", sample_rate, l);
    compete(&s, "memcpy", libc_version(), sample_memcpy, &copier);
    compete(&s, "zeroed", "", sample_rate, &zeroed);
    compete(&s, "proc", "", sample_rate, &proc);
    if (torch_verified(l)) {
        compete(&s, "torch", torch.version, sample_torch_rate, &theirs[0]);
        compete(&s, "torch", torch.version, sample_torch_rate, &theirs[1]);
    }
    run_rounds(&s, title, quick ? 5 : 7);
    copy_lines(name, &s, l, COPY_OURS, wanted_memcpy, wanted_torch);
    copy_lines(zeroed_name, &s, l, COPY_ZEROED, wanted_memcpy, wanted_torch);
    copy_lines(proc_name, &s, l, COPY_PROC, wanted_memcpy, wanted_torch);
    copier_close(&copier);
}

static void bench_small(void) {
    struct load l = {.n_items = 60000,
                     .n_source = 60000,
                     .row_bytes = 784,
                     .batch = 64,
                     .workers = 2,
                     .fetch = fetch_copy,
                     .stride = 32,
                     .seconds = quick ? 0.15 : 0.4};
    uint8_t *source = random_bytes(l.n_source * l.row_bytes);
    l.source = source;
    for (int i = 0; source != NULL && i < 2; i++) {
        l.prefetch = i == 0 ? 2 : 16;
        copy_bench("small_items", "small_items_zeroed", &l, quick ? 30000 : 60000,
                   i == 0 ? 0.8 : 1.2, i == 0 ? 60 : 90);
    }
    torch_ask(NULL, 0, "drop");
    free(source);
}

static void bench_large(void) {
    struct load l = {.n_items = 256,
                     .n_source = 256,
                     .row_bytes = MIB,
                     .batch = 16,
                     .workers = 2,
                     .prefetch = 2,
                     .fetch = fetch_copy,
                     .stride = 2,
                     .seconds = quick ? 0.3 : 0.8};
    uint8_t *source = random_bytes(l.n_source * l.row_bytes);
    l.source = source;
    if (source != NULL) {
        copy_bench("large_items", "large_items_zeroed", &l, quick ? 512 : 1024, 1.05, 14);
    }
    torch_ask(NULL, 0, "drop");
    free(source);
}

/* ---- what the pipeline itself costs ---------------------------------------------------------- */

/* Batches of 64 rows, and of one row, as tables, games and inference have them: those with few
   batches ahead, too. */
static void bench_overhead(void) {
    static const int workers[] = {1, 2, 4, 16};
    static const struct {
        const char *threads, *processes;
        uint32_t batch;
        int prefetch, wanted;
    } rows[] = {{"overhead_ns_b64", "overhead_ns_b64_proc", 64, 16, 15},
                {"overhead_ns_b1", "overhead_ns_b1_proc", 1, 16, 50},
                {"overhead_ns_b1_p2", "overhead_ns_b1_p2_proc", 1, 2, 0}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
            struct load l = {.n_items = 1000000,
                             .row_bytes = 8,
                             .batch = rows[r].batch,
                             .workers = workers[i],
                             .prefetch = rows[r].prefetch,
                             .fetch = fetch_nothing,
                             .stride = rows[r].batch == 1 ? 512 : 64,
                             .seconds = quick ? 0.1 : 0.4};
            struct load proc = with_processes(&l);
            struct series s = {0};
            struct measure m = {
                .bench = rows[r].threads, .unit = "ns/item", .lower_is_better = true};
            int n = snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"prefetch\":%d", workers[i],
                             rows[r].prefetch);
            if (rows[r].wanted > 0)
                snprintf(m.extra + n, sizeof m.extra - (size_t)n, ",\"wanted\":%d", rows[r].wanted);
            verify(&l, m.bench);
            verify(&proc, m.bench);
            compete(&s, "ours", "", sample_ns_per_item, &l);
            compete(&s, "proc", "", sample_ns_per_item, &proc);
            run_rounds(&s, m.bench, quick ? 5 : 7);
            put(&m, &s, 0, -1);
            m.bench = rows[r].processes;
            put(&m, &s, 1, -1);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* In a process of its own, so that no other scenario's memory is in the way: print the growth of
   memory while the consumer is slower than the workers. Sampled as the torch side does. */
static int peak_main(int workers, int placement) {
    struct load l = {.placement = placement,
                     .n_items = 64,
                     .n_source = 64,
                     .row_bytes = MIB,
                     .batch = 16,
                     .workers = workers,
                     .prefetch = 2,
                     .fetch = fetch_copy,
                     .epochs = DLP_FOREVER};
    uint8_t *source = random_bytes(l.n_source * l.row_bytes);
    uint64_t top = 0;
    l.source = source;
    if (source == NULL) { return 1; }
    resident_bytes(getpid()); /* what reading /proc costs is there before */
    uint64_t before = resident_bytes(getpid());
    dlp_pipe *p = loader_open(&l);
    dlp_batch *held = p == NULL ? NULL : loader_next(p);
    double begin = seconds_now();
    for (int still = 0; held != NULL && still < 4 && seconds_now() - begin < 20;) {
        sleep_us(100000);
        uint64_t now = resident_bytes(getpid()) - before;
        still = (double)now > (double)top * 1.01 ? 0 : still + 1;
        top = now > top ? now : top;
        dlp_pipe_release(p, held);
        held = loader_next(p);
    }
    if (held == NULL) { return 1; }
    dlp_stats stats;
    uint64_t plan = dlp_pipe_stats(p, &stats) == DLP_OK ? stats.plan_bytes : 0;
    printf("%" PRIu64 " %" PRIu64 "\n", top, plan);
    dlp_pipe_release(p, held);
    loader_close(p);
    free(source);
    return failures != 0;
}

struct peak {
    int workers, placement;
    uint64_t plan_bytes;
};

static double sample_peak(void *arg) {
    struct peak *peak = arg;
    char command[80];
    uint64_t top = 0;
    snprintf(command, sizeof command, "exec /proc/%d/exe --peak %d %d", (int)getpid(),
             peak->workers, peak->placement);
    FILE *f = popen(command, "r");
    bool good = f != NULL && fscanf(f, "%" SCNu64 " %" SCNu64, &top, &peak->plan_bytes) == 2;
    good = f != NULL && pclose(f) == 0 && good;
    failures += !good;
    return good ? (double)top : NAN;
}

static double sample_torch_peak(void *arg) {
    const struct peak *peak = arg;
    double bytes;
    bool good = torch_ask(&bytes, 1, "peak %d 2 16 %" PRIu64 " 64", peak->workers, MIB);
    return good ? bytes : NAN;
}

static void bench_peak(void) {
    static const int workers[] = {1, 2, 4, 8, 16, 64};
    struct load l = {.n_items = 64,
                     .n_source = 64,
                     .row_bytes = MIB,
                     .batch = 16,
                     .workers = 2,
                     .prefetch = 2,
                     .fetch = fetch_copy};
    uint8_t *source = random_bytes(l.n_source * l.row_bytes);
    l.source = source;
    for (size_t i = 0; source != NULL && i < sizeof workers / sizeof *workers; i++) {
        /* Quick: torch fills its queues for a second in each of the small ones, and for seven here.
         */
        bool with_torch = torch.pid > 0 && !(quick && workers[i] > 16);
        struct peak peak[] = {{workers[i], DLP_PLACE_THREADS, 0},
                              {workers[i], DLP_PLACE_PROCESSES, 0}};
        struct series s = {0};
        char name[32], why[300];
        l.workers = workers[i];
        snprintf(name, sizeof name, "peak_bytes_w%d", workers[i]);
        snprintf(why, sizeof why, "%s", torch.pid > 0 ? "not in the quick form" : torch_reason());
        verify(&l, name);
        compete(&s, "ours", "", sample_peak, &peak[0]);
        compete(&s, "proc", "", sample_peak, &peak[1]);
        if (with_torch) { compete(&s, "torch", torch.version, sample_torch_peak, &peak[0]); }
        run_rounds(&s, name, quick ? 1 : 3);
        for (int who = 0; who < 2; who++) {
            struct measure m = {.bench = name, .unit = "B", .lower_is_better = true};
            snprintf(name, sizeof name, "peak_bytes_w%d%s", workers[i], who ? "_proc" : "");
            snprintf(m.extra, sizeof m.extra,
                     ",\"prefetch\":2,\"batch_bytes\":%" PRIu64 ",\"plan_bytes\":%" PRIu64
                     ",\"wanted\":%" PRIu64 "%s",
                     16 * MIB, peak[who].plan_bytes, 3 * 16 * MIB + MIB,
                     ",\"few_rounds\":\"memory hardly varies, and a sample is long\"");
            put(&m, &s, who, with_torch ? 2 : -1);
            if (!with_torch) { put_skipped(name, "torch", why, m.extra); }
        }
    }
    torch_ask(NULL, 0, "drop");
    free(source);
}

/* A line of ours (contender a) beside torch (contender b), or alone and that torch is missing. */
static void put_or_skip(const struct measure *m, const struct series *s, int a, int b) {
    bool with_torch = b < s->n_who;
    put(m, s, a, with_torch ? b : -1);
    if (!with_torch) { put_skipped(m->bench, "torch", torch_reason(), m->extra); }
}

/* ---- the first batch ------------------------------------------------------------------------- */

static double sample_first(void *arg) {
    double begin = seconds_now();
    dlp_pipe *p = loader_open(arg);
    dlp_batch *b = p == NULL ? NULL : loader_next(p);
    double took = (seconds_now() - begin) * 1e3;
    if (b == NULL) { return NAN; }
    dlp_pipe_release(p, b);
    loader_close(p);
    return took;
}

static double sample_torch_first(void *arg) {
    const struct load *l = arg;
    double ms;
    bool good = torch_ask(&ms, 1, "first %" PRIu64 " %" PRIu64 " %d %u", l->n_items,
                          l->cost_ns / 1000, l->workers, l->batch);
    return good ? ms : NAN;
}

/* What no loader of processes can beat: a process that forks so many, each of which works once. */
static double sample_forks(void *arg) {
    const struct load *l = arg;
    int fd[2], left = l->workers;
    char done[64];
    ssize_t got;
    double begin = seconds_now();
    if (pipe2(fd, O_CLOEXEC) != 0) { return NAN; }
    pid_t supervisor = fork();
    if (supervisor == 0) {
        for (int i = 0; i < l->workers; i++) {
            if (fork() == 0) {
                sleep_us(l->cost_ns / 1000);
                _exit(write(fd[1], "", 1) != 1);
            }
        }
        while (wait(NULL) > 0) {}
        _exit(0);
    }
    close(fd[1]);
    while (left > 0 && (got = read(fd[0], done, sizeof done)) > 0) { left -= (int)got; }
    double took = (seconds_now() - begin) * 1e3;
    close(fd[0]);
    if (supervisor > 0) { waitpid(supervisor, NULL, 0); }
    return left == 0 ? took : NAN;
}

static void bench_first(void) {
    struct load l = {.n_items = 16,
                     .row_bytes = 8,
                     .batch = 16,
                     .workers = 16,
                     .prefetch = 2,
                     .fetch = fetch_sleep,
                     .cost_ns = 5000000,
                     .slow_ns = 5000000};
    struct load proc = with_processes(&l);
    struct series s = {0};
    verify(&l, "first_batch_ms");
    verify(&proc, "first_batch_ms_proc");
    compete(&s, "ours", "", sample_first, &l);
    compete(&s, "proc", "", sample_first, &proc);
    compete(&s, "bare forks", "", sample_forks, &l);
    if (torch.pid > 0) { compete(&s, "torch", torch.version, sample_torch_first, &l); }
    run_rounds(&s, "first_batch_ms", 7);
    for (int who = 0; who < 2; who++) {
        struct measure m = {.bench = who ? "first_batch_ms_proc" : "first_batch_ms",
                            .unit = "ms",
                            .lower_is_better = true,
                            .extra = ",\"workers\":16,\"batch\":16,\"item_ms\":5,\"wanted\":7"};
        if (who == 1) { put(&m, &s, who, 2); }
        put_or_skip(&m, &s, who, 3);
    }
}

/* ---- payloads -------------------------------------------------------------------------------- */

/* Processor time of this process and of all below it, but for torch's. idle: and but for the
   calling thread's, which only sleeps, and looks at all this. */
static double own_tree_seconds(bool idle) {
    return bench_tree_seconds(getpid(), torch.pid) - (idle ? (double)thread_cpu_ns() * 1e-9 : 0);
}

/* One size of item, the settings that all contenders share, and who of them a sample is for. */
struct payload {
    const char *size;
    struct load load;
    uint64_t per_epoch; /* torch */
    int sharing;
};

static double sample_bytes(void *arg) {
    const struct payload *y = arg;
    struct load l = y->load;
    return sample_rate(&l) * (double)l.row_bytes;
}

/* Processor seconds of all threads and processes per GiB, in the steady state. */
static double sample_cpu(void *arg) {
    struct load l = ((const struct payload *)arg)->load;
    l.epochs = DLP_FOREVER;
    dlp_pipe *p = loader_open(&l);
    if (p == NULL) { return NAN; }
    loader_take(p, 2 * ((uint64_t)l.prefetch + 1) + 64 / l.batch);
    double cpu = own_tree_seconds(false), begin = seconds_now();
    double rate = loader_rate_of(p, &l), took = seconds_now() - begin;
    cpu = own_tree_seconds(false) - cpu;
    loader_close(p);
    return cpu / (rate * took * (double)l.row_bytes / (1024.0 * (double)MIB));
}

/* Ask torch for a figure of one epoch of a loader whose workers are up. */
static double torch_payload(const char *command, const struct payload *y) {
    const struct load *l = &y->load;
    double figure;
    bool good = torch_ask(&figure, 1, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %d %d %d", command,
                          l->n_source, l->row_bytes, y->per_epoch, l->batch, l->workers,
                          l->prefetch, y->sharing);
    return good ? figure : NAN;
}

static double sample_torch_bytes(void *arg) {
    const struct payload *y = arg;
    return torch_payload("rate", y) * (double)y->load.row_bytes;
}

static double sample_torch_cpu(void *arg) { return torch_payload("cpu", arg); }

/* Threads, processes and both settings of torch on one size, as a rate or as processor time. */
static void payload_series(const struct payload *size, const char *name, const char *unit,
                           bool cpu) {
    struct payload y[4] = {*size, *size, *size, *size};
    struct series s = {0};
    y[1].load = with_processes(&size->load);
    y[3].sharing = 1;
    for (int i = 0; i < 2; i++) {
        compete(&s, i ? "proc" : "ours", "", cpu ? sample_cpu : sample_bytes, &y[i]);
    }
    for (int i = 2; torch.pid > 0 && i < 4; i++) {
        compete(&s, "torch", torch.version, cpu ? sample_torch_cpu : sample_torch_bytes, &y[i]);
    }
    run_rounds(&s, name, 5);
    for (int who = 0; who < 2; who++) {
        for (int i = 0; i < 2; i++) {
            char full[64];
            struct measure m = {.bench = full, .unit = unit, .lower_is_better = cpu};
            snprintf(full, sizeof full, "%s%s", name, who ? "_proc" : "");
            snprintf(m.extra, sizeof m.extra,
                     ",\"item_bytes\":%" PRIu64 ",\"batch\":%u,\"prefetch\":%d,\"workers\":%d,"
                     "\"sharing\":\"%s\"",
                     size->load.row_bytes, size->load.batch, size->load.prefetch,
                     size->load.workers, sharing_name[i]);
            put_or_skip(&m, &s, who, i + 2);
        }
    }
}

static void payload_one(struct payload *y) {
    struct load *l = &y->load, proc;
    char name[64];
    uint8_t *source = random_bytes(l->n_items * l->row_bytes);
    if (source == NULL) { return; }
    l->n_source = l->n_items;
    l->source = source;
    l->workers = l->prefetch = 2;
    l->fetch = fetch_copy;
    l->seconds = quick ? 0.2 : 0.5;
    proc = with_processes(l);
    snprintf(name, sizeof name, "payload_%s", y->size);
    verify(l, name);
    verify(&proc, name);
    if (torch.pid > 0 && !torch_verified(l)) { failures++; }
    payload_series(y, name, "B/s", false);
    payload_series(y, "cpu_s_per_gib", "s/GiB", true);
    torch_ask(NULL, 0, "drop");
    free(source);
}

/* Torch's samples are about as long as ours: an epoch of per_epoch items. */
static void bench_payload(void) {
    struct payload sizes[] = {
        {.size = "1KiB",
         .load = {.n_items = 65536, .row_bytes = 1024, .batch = 64, .stride = 32},
         .per_epoch = quick ? 32768 : 65536},
        {.size = "32KiB",
         .load = {.n_items = 8192, .row_bytes = 32 * 1024, .batch = 64, .stride = 8},
         .per_epoch = quick ? 8192 : 16384},
        {.size = "1MiB",
         .load = {.n_items = 256, .row_bytes = MIB, .batch = 16, .stride = 2},
         .per_epoch = quick ? 512 : 1024},
        {.size = "32MiB",
         .load = {.n_items = 8, .row_bytes = 32 * MIB, .batch = 2, .stride = 1},
         .per_epoch = quick ? 32 : 48}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { payload_one(&sizes[i]); }
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Milliseconds until the call that starts the loader has returned: all workers are forked. */
static double sample_start(void *arg) {
    double begin = seconds_now();
    dlp_pipe *p = loader_open(arg);
    double took = (seconds_now() - begin) * 1e3;
    if (p == NULL) { return NAN; }
    loader_close(p);
    return took;
}

struct torch_start {
    int workers, heap_mib, first;
};

static double sample_torch_start(void *arg) {
    const struct torch_start *t = arg;
    double ms[2];
    bool good = torch_ask(ms, 2, "start %d 16 %d", t->workers, t->heap_mib);
    return good ? ms[t->first] : NAN;
}

/* With 16 workers and items that cost nothing: until the first batch is there, and until the call
   returns. Once as the program is, once with a heap of 1 GiB in use, which every fork has to copy
   the page tables of. */
static void start_one(int heap_mib) {
    struct load l = {.n_items = 64,
                     .row_bytes = 8,
                     .batch = 16,
                     .workers = 16,
                     .prefetch = 2,
                     .fetch = fetch_index};
    struct load proc = with_processes(&l);
    struct torch_start theirs[] = {{16, heap_mib, 0}, {16, heap_mib, 1}};
    struct series s = {0};
    uint8_t *heap = heap_mib > 0 ? random_bytes((uint64_t)heap_mib * MIB) : NULL;
    verify(&l, "start_ms_w16");
    verify(&proc, "start_ms_w16_proc");
    for (int first = 0; first < 2; first++) {
        compete(&s, "ours", "", first ? sample_first : sample_start, &l);
        compete(&s, "proc", "", first ? sample_first : sample_start, &proc);
        if (torch.pid > 0) {
            compete(&s, "torch", torch.version, sample_torch_start, &theirs[first]);
        }
    }
    run_rounds(&s, "start_ms_w16", quick ? 5 : 7);
    int each = s.n_who / 2;
    for (int i = 0; i < 4; i++) {
        struct measure m = {.bench = i % 2 ? "start_ms_w16_proc" : "start_ms_w16",
                            .unit = "ms",
                            .lower_is_better = true};
        snprintf(m.extra, sizeof m.extra, ",\"until\":\"%s\",\"heap_mib\":%d",
                 i / 2 ? "first_batch" : "started", heap_mib);
        put_or_skip(&m, &s, i / 2 * each + i % 2, each == 3 ? i / 2 * each + 2 : s.n_who);
    }
    torch_ask(NULL, 0, "drop");
    free(heap);
}

static void bench_start(void) {
    start_one(0);
    start_one(1024);
}

/* ---- epoch borders --------------------------------------------------------------------------- */

enum { BORDERS = 20 };

struct gap {
    const struct load *load;
    int persistent;            /* torch: workers outlive the epoch */
    double inside[MAX_ROUNDS]; /* the last samples' 95th percentiles, microseconds */
    int n;
};

static size_t gap_samples(const struct gap *g) {
    return g->n < MAX_ROUNDS ? (size_t)g->n : MAX_ROUNDS;
}

/* Median gap between the last batch of an epoch and the first of the next, microseconds. */
static double sample_gap(void *arg) {
    struct gap *g = arg;
    struct load l = *g->load;
    double at_border[BORDERS], took = NAN;
    uint64_t per_epoch = (l.n_items + l.batch - 1) / l.batch, n_inside = 0, n_border = 0, epoch = 0;
    double *inside = malloc((BORDERS + 1) * per_epoch * sizeof *inside);
    l.epochs = BORDERS + 1;
    dlp_pipe *p = inside == NULL ? NULL : loader_open(&l);
    double last = 0;
    for (dlp_batch *b; p != NULL && (b = loader_next(p)) != NULL; dlp_pipe_release(p, b)) {
        double now = seconds_now() * 1e6;
        if (b->sequence == 0) {
            epoch = b->epoch;
        } else if (b->epoch != epoch && n_border < BORDERS) {
            at_border[n_border++] = now - last;
            epoch = b->epoch;
        } else {
            inside[n_inside++] = now - last;
        }
        last = now;
    }
    if (p != NULL) { loader_close(p); }
    if (n_border == BORDERS) {
        took = quantile(at_border, n_border, 0.5);
        g->inside[g->n++ % MAX_ROUNDS] = quantile(inside, n_inside, 0.95);
    }
    free(inside);
    return took;
}

static double sample_torch_gap(void *arg) {
    struct gap *g = arg;
    const struct load *l = g->load;
    double answer[2];
    if (!torch_ask(answer, 2, "gap %" PRIu64 " %" PRIu64 " %u %d %d %d %d", l->n_items,
                   l->row_bytes, l->batch, l->workers, l->prefetch, g->persistent, BORDERS)) {
        return NAN;
    }
    g->inside[g->n++ % MAX_ROUNDS] = answer[1];
    return answer[0];
}

/* The lines of one placement (contender who), beside torch's two ways, which follow ours. */
static void gap_lines(const char *name, const struct series *s, int who, struct gap *ours,
                      struct gap *theirs) {
    struct measure m = {.bench = name, .unit = "us", .lower_is_better = true};
    double inside = quantile(ours->inside, gap_samples(ours), 0.5);
    for (int i = 0; i < 2; i++) {
        int keys = snprintf(m.extra, sizeof m.extra,
                            ",\"persistent\":%d,\"borders\":%d,\"ours_inside_p95\":%.4g", i,
                            BORDERS, inside);
        if (theirs != NULL) {
            snprintf(m.extra + keys, sizeof m.extra - (size_t)keys, ",\"theirs_inside_p95\":%.4g",
                     quantile(theirs[i].inside, gap_samples(&theirs[i]), 0.5));
            put(&m, s, who, i + 2);
        } else {
            put_skipped(m.bench, "torch", torch_reason(), m.extra);
        }
    }
    if (theirs == NULL) {
        snprintf(m.extra, sizeof m.extra, ",\"borders\":%d,\"ours_inside_p95\":%.4g", BORDERS,
                 inside);
        put(&m, s, who, -1);
    }
}

static void bench_gap(void) {
    struct load l = {.n_items = quick ? 3200 : 6400,
                     .row_bytes = 784,
                     .batch = 64,
                     .workers = 2,
                     .prefetch = 2,
                     .fetch = fetch_copy};
    struct load proc;
    struct gap ours[2] = {{.load = &l}, {.load = &proc}};
    struct gap theirs[2] = {{.load = &l}, {.load = &l, .persistent = 1}};
    struct series s = {0};
    l.n_source = l.n_items;
    uint8_t *source = random_bytes(l.n_source * l.row_bytes);
    l.source = source;
    if (source == NULL) { return; }
    proc = with_processes(&l);
    verify(&l, "epoch_gap");
    verify(&proc, "epoch_gap_proc");
    bool with_torch = torch_verified(&l);
    compete(&s, "ours", "", sample_gap, &ours[0]);
    compete(&s, "proc", "", sample_gap, &ours[1]);
    for (int i = 0; with_torch && i < 2; i++) {
        compete(&s, "torch", torch.version, sample_torch_gap, &theirs[i]);
    }
    run_rounds(&s, "epoch_gap", quick ? 5 : 7);
    gap_lines("epoch_gap", &s, 0, &ours[0], with_torch ? theirs : NULL);
    gap_lines("epoch_gap_proc", &s, 1, &ours[1], with_torch ? theirs : NULL);
    torch_ask(NULL, 0, "drop");
    free(source);
}

/* ---- skewed costs ---------------------------------------------------------------------------- */

static void skew_one(bool spin, int dispatch, int unordered, int prefetch) {
    struct load l = {.n_items = 1280,
                     .row_bytes = 8,
                     .batch = 64,
                     .prefetch = prefetch,
                     .dispatch = dispatch,
                     .unordered = unordered,
                     .stride = 1};
    l.workers = spin ? 2 : 16;
    l.cost_ns = spin ? 50000 : 1000000;
    l.slow_ns = 20 * l.cost_ns;
    l.fetch = spin ? fetch_spin : fetch_sleep;
    l.seconds = spin ? (quick ? 0.1 : 0.4) : (quick ? 0.2 : 0.8);
    int parallel = spin && cpus_allowed() < l.workers ? cpus_allowed() : l.workers;
    char name[64];
    snprintf(name, sizeof name, "skew_%s_%s_%s_p%d", spin ? "spin" : "sleep",
             dispatch == DLP_DISPATCH_CLAIM ? "claim" : "in_turn",
             unordered ? "unordered" : "ordered", prefetch);
    struct measure m = {.bench = name, .unit = "item/s"};
    struct load proc = with_processes(&l);
    struct series s = {0};
    bool with_proc = dispatch == DLP_DISPATCH_CLAIM;
    verify(&l, name);
    compete(&s, "ours", "", sample_rate, &l);
    if (with_proc) {
        verify(&proc, name);
        compete(&s, "proc", "", sample_rate, &proc);
    }
    run_rounds(&s, name, 5);
    m.ideal = parallel * 1e9 / (0.95 * (double)l.cost_ns + 0.05 * (double)l.slow_ns);
    snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"prefetch\":%d%s", l.workers, prefetch,
             !spin && !unordered && prefetch == 4 ? ",\"wanted_of_ideal\":0.9" : "");
    put(&m, &s, 0, -1);
    if (with_proc) {
        strcat(name, "_proc");
        put(&m, &s, 1, -1);
    }
}

static void bench_skew(void) {
    for (int i = 0; i < 16; i++) {
        skew_one(i & 8, i & 4 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM, (i & 2) != 0,
                 i & 1 ? 4 : 2);
    }
}

/* ---- a blocked pipe -------------------------------------------------------------------------- */

/* Percent of a core that all threads and processes use together while nobody takes batches. */
static double sample_idle(void *arg) {
    const struct load *l = arg;
    dlp_pipe *p = loader_open(l);
    if (p == NULL || loader_take(p, 100) == 0) { return NAN; }
    sleep_us(200000);
    double cpu = own_tree_seconds(true), begin = seconds_now();
    sleep_us((uint64_t)(l->seconds * 1e6));
    double percent = 100 * (own_tree_seconds(true) - cpu) / (seconds_now() - begin);
    loader_close(p);
    return percent;
}

/* The floor: a thread that does nothing but sleep, 100 ms at a time. */
static void *sleep_on(void *until) {
    uint32_t word = 0;
    while (dlpi_now_ns() < *(uint64_t *)until)
        dlpi_futex_wait(&word, 0, UINT32_MAX, DLPI_SLEEP_NS, 0);
    return NULL;
}

static double sample_sleeper(void *arg) {
    const struct load *l = arg;
    uint64_t begin = dlpi_now_ns(), until = begin + (uint64_t)(l->seconds * 1e9);
    double cpu = own_tree_seconds(true);
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_on, &until) != 0) { return NAN; }
    pthread_join(thread, NULL);
    return 1e11 * (own_tree_seconds(true) - cpu) / (double)(dlpi_now_ns() - begin);
}

static void bench_idle(void) {
    static const int workers[] = {2, 16};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        struct load l = {.n_items = 60000,
                         .row_bytes = 8,
                         .batch = 64,
                         .workers = workers[i],
                         .prefetch = 2,
                         .fetch = fetch_index,
                         .epochs = DLP_FOREVER,
                         .seconds = quick ? 0.6 : 1.5};
        struct load proc = with_processes(&l);
        struct series s = {0};
        struct measure m = {.bench = "idle_cpu", .unit = "% of a core", .lower_is_better = true};
        verify(&l, m.bench);
        verify(&proc, m.bench);
        compete(&s, "ours", "", sample_idle, &l);
        compete(&s, "proc", "", sample_idle, &proc);
        compete(&s, "one sleeper", "", sample_sleeper, &l);
        run_rounds(&s, m.bench, 5);
        snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"wanted\":0.1", workers[i]);
        put(&m, &s, 0, 2);
        m.bench = "idle_cpu_proc";
        put(&m, &s, 1, 2);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {{"small", bench_small}, {"overhead", bench_overhead}, {"large", bench_large},
                 {"peak", bench_peak},   {"first", bench_first},       {"start", bench_start},
                 {"gap", bench_gap},     {"payload", bench_payload},   {"skew", bench_skew},
                 {"idle", bench_idle}};

static bool is_wanted(const char *name, char **list, int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i], name) == 0) { return true; }
    }
    return n == 0;
}

static int usage(void) {
    say("bench_loader [-o lines.jsonl] [-t bench_loader_torch.py] [scenario...]\nscenarios:");
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        say(" %s", scenarios[i].name);
    }
    say("\n");
    return 2;
}

int main(int argc, char **argv) {
    int option;
    if (argc == 4 && strcmp(argv[1], "--peak") == 0) {
        return peak_main(atoi(argv[2]), atoi(argv[3]));
    }
    torch_script = "tests/bench/bench_loader_torch.py";
    quick = asked_for("QUICK") || asked_for("SHORT");
    while ((option = getopt(argc, argv, "o:t:")) != -1) {
        if (option == 't') {
            torch_script = optarg;
        } else if (option != 'o') {
            return usage();
        } else if (!lines_to(optarg, "w")) {
            return 1;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    torch_begin();
    double begin = seconds_now();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (is_wanted(scenarios[i].name, argv + optind, argc - optind)) {
            double from = seconds_now();
            scenarios[i].run();
            say("%s: %.1f s\n", scenarios[i].name, seconds_now() - from);
        }
    }
    torch_end("");
    say("%d failures, %.0f s\n", failures, seconds_now() - begin);
    return failures != 0;
}
