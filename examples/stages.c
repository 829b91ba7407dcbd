/* A longer table: a pipe of seven nodes, which goes on where it was interrupted.

   stages STATE-FILE [MOST]

   Signals of different lengths are put together with signals of about the same length, so that
   little of a batch is padding. An order of our own decides that. A map of our own takes the mean
   out of each signal. One signal in fifty cannot be read, and another takes its place. Prints a
   line for each batch. After MOST batches it writes its state into STATE-FILE and ends. The next
   call goes on from there, and prints what would have followed. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 2000, LONGEST = 96, BATCH = 16, POOL = 8 * BATCH, EPOCHS = 2 };
enum { SEED = 7, THIS_ORDER = 1 /* another number once order_next gives other lists */ };

static uint32_t length_of(uint64_t index) {
    return 1 + (uint32_t)(dlp_hash(SEED, index, 0, 0) % LONGEST);
}

/* ---- the order: a pool of shuffled items, sorted by length, cut into batches ---- */

typedef struct order {
    uint64_t epoch, given; /* all that there is to save: batches given in this epoch */
    dlp_permutation shuffle;
} order;

static int order_begin(void *user, uint64_t epoch) {
    order *o = user;
    o->epoch = epoch;
    o->given = 0;
    return dlp_permutation_init(&o->shuffle, ITEMS, SEED, epoch);
}

static int by_length(const void *a, const void *b) { /* and by index, so that every sort agrees */
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    uint64_t lx = length_of(x), ly = length_of(y);
    return lx != ly ? (lx > ly) - (lx < ly) : (x > y) - (x < y);
}

static int64_t order_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    order *o = user;
    uint64_t pool[POOL], first = o->given * BATCH, from = first / POOL * POOL, n = ITEMS - from;
    (void)epoch; /* order_begin was told */
    if (first >= ITEMS || max < BATCH) return first >= ITEMS ? 0 : -1;
    if (n > POOL) n = POOL;
    dlp_permutation_block(&o->shuffle, from, (uint32_t)n, pool);
    qsort(pool, (size_t)n, sizeof *pool, by_length);
    n -= first - from;
    if (n > BATCH) n = BATCH;
    memcpy(index, pool + (first - from), (size_t)n * sizeof *index);
    o->given++;
    return (int64_t)n;
}

static int order_save(void *user, void *bytes) {
    const order *o = user;
    uint64_t words[2] = {o->epoch, o->given};
    memcpy(bytes, words, sizeof words);
    return (int)sizeof words;
}

static int order_restore(void *user, const void *bytes, size_t n) {
    uint64_t words[2];
    if (n != sizeof words) return -1;
    memcpy(words, bytes, n);
    if (order_begin(user, words[0]) != 0 || words[1] > ITEMS) return -1;
    ((order *)user)->given = words[1];
    return 0;
}

/* ---- the callbacks: fetch writes a signal, centre changes it in place ---- */

static int fetch(void *user, dlp_item *item) {
    float *x = item->data[0];
    (void)user;
    if (item->index % 50 == 17) return dlp_fail(item->call, EIO, "a torn signal");
    item->length[0] = length_of(item->index); /* of a ragged field: rows written */
    for (uint64_t i = 0; i < item->length[0]; i++)
        x[i] = (float)(dlp_item_random(item, i) % 1000) + (float)item->index;
    return 0;
}

static int centre(void *user, dlp_item *item) {
    float *x = item->data[0], mean = 0;
    (void)user;
    for (uint64_t i = 0; i < item->length[0]; i++) mean += x[i] / (float)item->length[0];
    for (uint64_t i = 0; i < item->length[0]; i++) x[i] -= mean;
    return 0;
}

/* ---- the table ---- */

static dlp_pipe *open_pipe(order *o, const dlp_state *resume) {
    const dlp_field signal = {
        .name = "signal", .dtype = DLP_F32, .ndim = 1, .shape = {LONGEST}, .ragged = 1};
    const dlp_guard_field sound = {.name = "signal", .low = -1e6, .high = 1e6}; /* and no NaN */
    const dlp_sampler_desc lists = {.order = DLP_ORDER_BATCHES,
                                    .function_id = THIS_ORDER,
                                    .batches = {.next = order_next,
                                                .begin = order_begin,
                                                .save = order_save,
                                                .restore = order_restore,
                                                .user = o}};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .order = &lists}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &signal, .n_fields = 1},
         .workers = {.num_workers = 3, .on_error = DLP_ON_ERROR_REPLACE, .max_skips = 1000}},
        {.name = "cache", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16}},
        {.name = "centre", .verb = DLP_MAP, .map = {.item = centre}, .workers = {.num_workers = 2}},
        {.name = "guard",
         .verb = DLP_GUARD,
         .guard = {.fields = &sound, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = BATCH, .collate = dlp_collate_pad},
         .queue = {.capacity = 4}},
        {.name = "transfer", .verb = DLP_TRANSFER}, /* to the host, where a GPU would be */
    };
    const dlp_pipe_desc desc = {
        .seed = SEED, .epochs = EPOCHS, .resume = resume, .name = "signals"};
    dlp_pipe *p = NULL;
    dlp_error err;
    char words[512];
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err) == DLP_OK) return p;
    dlp_error_format(&err, words, sizeof words);
    return fprintf(stderr, "%s\n", words), NULL;
}

/* What the plan took for what the table leaves at zero, and what the pipe warns of. */
static void print_plan(dlp_pipe *p) {
    static char text[8192];
    dlp_plan plan;
    dlp_workers_desc guards;
    dlp_permutation shuffle;
    const char *warning;
    if (dlp_pipe_plan(p, &plan) != DLP_OK ||
        dlp_stage_resolved(p, dlp_node_stage(p, "guard"), &guards) != DLP_OK)
        return;
    dlp_plan_format(&plan, text, sizeof text);
    fprintf(stderr, "%s%d '%s' workers\n", text, (int)guards.num_workers, guards.name);
    dlp_permutation_init(&shuffle, ITEMS, SEED, 0);
    fprintf(stderr, "the shuffle begins with item %d, item 0 is number %d of it\n",
            (int)dlp_permutation_at(&shuffle, 0), (int)dlp_permutation_find(&shuffle, 0));
    for (int i = 0; (warning = dlp_pipe_warning(p, i)) != NULL; i++)
        fprintf(stderr, "warning: %s\n", warning);
}

/* What each worker did, and until when; what the guard found. */
static void print_work(dlp_pipe *p) {
    dlp_guard_stats found;
    dlp_worker_stats w;
    dlp_trace_event newest;
    char lane[32];
    for (int i = 1; i < dlp_pipe_trace_lanes(p); i++) /* 0 is the consumer's */
        if (dlp_pipe_trace(p, i, &newest, 1, lane) == 1 &&
            dlp_pipe_worker_stats(p, (uint32_t)i - 1, &w) == DLP_OK)
            fprintf(stderr, "%s: %llu items, until %.3f s\n", lane, (unsigned long long)w.items,
                    (double)newest.end_ns / 1e9);
    if (dlp_pipe_guard_stats(p, dlp_node_stage(p, "guard"), 0, &found) == DLP_OK)
        fprintf(stderr, "guard: %d signals with a NaN, %d with an infinity\n", (int)found.nan,
                (int)found.inf);
}

/* ---- the state, in a file ---- */

/* Returns 1: there is one; 0: there is no file; -1: it is no state, or cannot be read: better to
   stop than to begin again and write over it. */
static int state_load(const char *path, dlp_state *s) {
    FILE *f = fopen(path, "rb");
    bool whole = f && fread(s->bytes, sizeof s->bytes, 1, f) == 1 && fgetc(f) == EOF;
    if (!f && errno == ENOENT) return 0;
    if (!whole)
        fprintf(stderr, "%s: %s; it is left as it is\n", path,
                f ? "not a file that this program has written" : strerror(errno));
    if (f) fclose(f);
    return whole ? 1 : -1;
}

static bool state_save(const char *path, const dlp_state *s) { /* whole, or the old one stays */
    char fresh[1024];
    bool ok = snprintf(fresh, sizeof fresh, "%s.new", path) < (int)sizeof fresh;
    FILE *f = ok ? fopen(fresh, "wb") : NULL;
    ok = f && fwrite(s->bytes, sizeof s->bytes, 1, f) == 1;
    if (f) ok = fclose(f) == 0 && ok;
    return ok && rename(fresh, path) == 0;
}

static void print_batch(const dlp_batch *b) {
    const dlp_tensor *t = &b->fields[0]; /* [count, longest of this batch] */
    const float *x = t->data;
    double sum = 0;
    for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++) sum += (double)x[i] * (double)(i % 7);
    printf("epoch %d batch %3d: %2d signals of up to %2d, sum %.6g\n", (int)b->epoch,
           (int)b->in_epoch, (int)b->count, (int)t->shape[1], sum);
}

int main(int argc, char **argv) {
    int code = DLP_OK, most = argc > 2 ? atoi(argv[2]) : ITEMS;
    uint64_t replaced = 0;
    dlp_state state;
    dlp_batch *b = NULL;
    order o = {0, 0, {0}};
    if (argc < 2 || argc > 3 || argv[1][0] == '-' || most < 1)
        return fprintf(stderr, "usage: stages STATE-FILE [MOST]\n"), 2;
    int resumes = state_load(argv[1], &state);
    dlp_pipe *p = resumes < 0 ? NULL : open_pipe(&o, resumes ? &state : NULL);
    if (!p) return 1;
    print_plan(p);
    for (int n = 0; n < most && (code = dlp_pipe_next_timeout(p, &b, 60000)) == DLP_OK; n++) {
        print_batch(b);
        dlp_pipe_release(p, b);
    }
    if (code == DLP_OK) code = dlp_pipe_state(p, NULL, &state);
    if (code == DLP_OK && !state_save(argv[1], &state)) code = DLP_ERR_SYSTEM;
    dlp_pipe_skips(p, NULL, 0, &replaced);
    fflush(stdout);
    print_work(p);
    if (code == DLP_TIMEOUT) code = DLP_ERR_DEADLINE; /* no batch within a minute */
    fprintf(stderr, "%s; %d signals replaced\n", code < 0 ? dlp_code_text(code) : "done",
            (int)replaced);
    if (code < 0) fprintf(stderr, "%s\n", dlp_code_hint(code));
    return dlp_pipe_close(p) == DLP_OK && code >= 0 ? 0 : 1;
}
