/* needs: parts split join scratch guard cache pack tokens arrays files lines pictures */
/* Each field of each desc is used or refused: the walk sets one field (tests/rig/fields.h) at each
   place that a wiring has for its desc, and runs the wiring. What is seen must differ (plan, order,
   rows, states, warnings, calls, threads), or an error must name the field. A field may show only
   where callbacks fail or are slow. So a field that shows nothing is tried in those moods, too.
     fields              the walk
     fields WIRING.FIELD one field, with what is seen: rows.workers_desc.retries */
#define _GNU_SOURCE
#include "../../rig/fields.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/array_views.h"
#include "../../rig/arrays_loader.h"
#include "../../rig/tokens_loader.h"

#define ITEMS 23
#define ROW_BYTES 512
#define TEXT (1 << 18)

/* ---- what a wiring is made of ---- */

enum { FETCH, JOINED, MAP, BATCH_MAP, COLLATE, LOAD, EXPAND, CHUNK, CALLS };

typedef struct descs {
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_field fields[3], label, raw, raw_next;
    dlp_dataset dataset, joined;
    dlp_source fetch;
    dlp_node map, batch_map, decode, batch, transfer, guard, expand, filter, pack, split;
    walked_join join;
    walked_ends ends;
    dlp_node_cache cache;
    dlp_guard_field guarded, guarded_next;
    dlp_node_load parts;
    dlp_loader_desc loader;
    dlp_chunks_desc chunks;
    dlp_files_desc files;
    dlp_tokens_desc tokens;
    dlp_arrays_desc arrays;
    dlp_array_column column, column_next;
    dlp_buckets_desc buckets;
    dlp_mix_desc mix;
} descs;

/* Rows of a chain that stand besides list, fetch and batch: bits. */
enum {
    HAS_PARTS = 1,
    HAS_EXPAND = 2,
    HAS_PACK = 4,
    HAS_JOIN = 8,
    HAS_ENDS = 16,
    HAS_GUARD = 32,
    HAS_CACHE = 64,
    HAS_MAP = 128,
    HAS_BATCH_MAP = 256,
    HAS_TRANSFER = 512,
    HAS_SPLIT = 1024,
    HAS_FILTER = 2048
};

typedef struct place {
    const char *type;
    size_t offset; /* in descs */
    const char *name;
} place;

typedef struct wiring {
    const char *name;
    void (*set)(void);
    int (*open)(dlp_error *err);
    const place *places;
    int stages;    /* HAS_* */
    int processes; /* unused unless 1 */
} wiring;

typedef struct mood {
    const char *name;
    int call; /* whose callbacks */
    int kind;
} mood;

enum {
    CALM,
    ONCE,
    AGAIN,
    ALWAYS,
    REPLACED,
    SKIPS,
    SLOW,
    LAZY,
    RANKS,
    ODD_RANKS,
    SHARED,
    AGREED,
    EPOCHS
};

static descs now_;
static const dlp_dataset *live_; /* whose fields fetch writes */
static const wiring *wiring_;
static mood mood_;
static int workers_; /* of each stage that has some */
static dlp_pipe *pipe_;
static dlp_batch *held_; /* beyond close */
static dlp_source *files_;
static dlp_source *tokens_;
static dlp_source *arrays_;
static dlp_buckets *buckets_;
static dlp_mix *mix_;
static char name_[32], name_path_[64];
static char dir_[64], paths_text_[ITEMS][96], tokens_path_[96], column_path_[96];
static const char *paths_[ITEMS], *shards_[2];

/* ---- what is seen ---- */

static char text_[TEXT];
static size_t said_;
static uint32_t calls_[CALLS], others_[32], once_[CALLS];
static uint64_t failed_ns_;
static int threads_, same_, waited_, salted_, stacks_, pinned_;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (said_ < TEXT - 1) {
        int n = vsnprintf(text_ + said_, TEXT - said_, format, args);
        said_ += n > 0 ? (size_t)n : 0;
        if (said_ > TEXT - 1) said_ = TEXT - 1;
    }
    va_end(args);
}

static void count(uint32_t *at) { __atomic_add_fetch(at, 1, __ATOMIC_RELAXED); }

/* What the library asks the system for its threads. */
int pthread_attr_setstacksize(pthread_attr_t *attr, size_t bytes) {
    static int (*real)(pthread_attr_t *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_attr_setstacksize");
    __atomic_add_fetch(&stacks_, (int)(bytes >> 12), __ATOMIC_RELAXED);
    return real(attr, bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *), void *arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    __atomic_add_fetch(&threads_, 1, __ATOMIC_RELAXED);
    return real(thread, attr, f, arg);
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set) {
    static int (*real)(pthread_t, size_t, const cpu_set_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_setaffinity_np");
    __atomic_store_n(&pinned_, 1, __ATOMIC_RELAXED);
    return real(thread, size, set);
}

static uint64_t digest(uint64_t h, const void *bytes, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3;
    return h;
}

static int memory_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, to, sizeof to - 1) > 0 && strncmp(to, "/memfd:", 7) == 0) n++;
    }
    if (d) closedir(d);
    return n;
}

/* ---- callbacks ---- */

static int salt(const void *user) { return user == USER ? 100 : 0; }

static int trouble(int call, uint64_t index, uint32_t attempt, dlp_call *to) {
    uint64_t failed = __atomic_load_n(&failed_ns_, __ATOMIC_RELAXED);
    if (attempt > 0 && failed && test_now_ns() - failed > 90000000)
        __atomic_store_n(&waited_, 1, __ATOMIC_RELAXED);
    count(&calls_[call]);
    if (mood_.call != call || index % 5 != 2) return 0;
    if (mood_.kind == SLOW && index == 7) test_pause(25000000);
    if (mood_.kind == SKIPS) return DLP_SKIP;
    if (mood_.kind == ALWAYS || mood_.kind == REPLACED ||
        ((mood_.kind == ONCE || mood_.kind == AGAIN) && attempt == 0)) {
        __atomic_store_n(&failed_ns_, test_now_ns(), __ATOMIC_RELAXED);
        return dlp_fail(to, 5, "trouble");
    }
    return 0;
}

static uint64_t unit_bytes(const dlp_field *f, int from) {
    uint64_t n = (f->dtype & 0xffff) / 8;
    if (n == 0) n = 1;
    for (int i = from; i < f->ndim; i++) n *= (uint64_t)f->shape[i];
    return n;
}

static void fill(void *to, uint64_t bytes, uint64_t index, int add) {
    for (uint64_t k = 0; k < bytes; k++)
        ((uint8_t *)to)[k] = (uint8_t)(index * 3 + k + (uint64_t)add + 1);
}

static void write_field(const dlp_field *f, void *to, uint64_t *length, uint64_t index, int add) {
    uint64_t rows = f->ragged ? index % ((uint64_t)f->shape[0] + 1) : 0;
    uint64_t bytes = f->ragged ? rows * unit_bytes(f, 1) : unit_bytes(f, 0);
    if (mood_.kind == LAZY && index / 4 % 2 && !f->ragged) bytes--;
    if (f->ragged && length) *length = rows;
    if (f->dtype == DLP_F32 && f->ndim == 0) {
        float x = index % 11 == 5 ? NAN : index % 11 == 7 ? INFINITY : (float)(index % 5);
        memcpy(to, &x, bytes);
    } else {
        fill(to, bytes, index, add);
    }
}

static void write_item(dlp_item *it, const dlp_field *f, uint32_t n, int add) {
    for (uint32_t i = 0; i < n && i < it->n_fields; i++)
        write_field(&f[i], it->data[i], &it->length[i], it->index, add);
}

static int fetch(void *user, dlp_item *it) {
    int rc = trouble(FETCH, it->index, it->attempt, it->call), add = salt(user);
    if (it->index >= ITEMS && live_->open_end) return DLP_END;
    if (it->part) add += ((const uint8_t *)it->part->data)[0] + (int)it->part->item;
    if (rc == 0) write_item(it, live_->fields, live_->n_fields, add);
    if (rc == 0 && wiring_->stages & HAS_ENDS) fill(it->data[live_->n_fields], 1, it->index, 7);
    return rc;
}

static int fetch_joined(void *user, dlp_item *it) {
    int rc = trouble(JOINED, it->index, it->attempt, it->call);
    const dlp_dataset *d = now_.join.fetch.dataset;
    if (rc == 0) write_item(it, d->fields, d->n_fields, 50 + salt(user));
    return rc;
}

static int map(void *user, dlp_item *it) {
    int rc = trouble(MAP, it->index, it->attempt, it->call);
    if (rc == 0) *(uint8_t *)it->data[0] = (uint8_t)(*(uint8_t *)it->data[0] + 1 + salt(user));
    return rc;
}

static int decode(void *user, dlp_item *it) {
    (void)user;
    *(uint8_t *)it->data[0] = *((const uint8_t *)it->data[now_.fetch.dataset->n_fields]);
    return 0;
}

static int map_batch(void *user, dlp_batch *b, void *state) {
    int rc = trouble(BATCH_MAP, b->sequence, b->sequence == 2 ? once_[0]++ : 1, b->call);
    (void)state;
    if (b->fields[0].bytes) *(uint8_t *)b->fields[0].data = (uint8_t)(9 + salt(user));
    return rc;
}

static int collate(void *user, dlp_collate *c) {
    int rc = trouble(COLLATE, c->sequence, c->sequence == 2 ? once_[1]++ : 1, c->call);
    if (rc == 0) rc = dlp_collate_pad(NULL, c);
    if (rc == 0) ((uint8_t *)c->out[0].data)[1] = (uint8_t)(19 + salt(user));
    return rc;
}

static int init(void *user, int worker, void **state) {
    (void)worker;
    (void)state;
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    count(&others_[0]);
    return 0;
}
static void leave(void *user, int worker, void *state) {
    (void)user, (void)worker, (void)state;
    count(&others_[1]);
}

static int load(void *user, dlp_part *part) {
    int rc = trouble(LOAD, part->index, part->attempt, part->call);
    ((uint8_t *)part->data)[0] = (uint8_t)(part->index + (uint64_t)salt(user));
    if (now_.parts.max_items && part->items == 0) part->items = part->index % 3 + 1;
    part->bytes = 8;
    return rc;
}

static int expand(void *user, dlp_expand *x) {
    int rc = trouble(EXPAND, x->item->index, x->item->attempt, x->call);
    const dlp_node_expand *d = &now_.expand.expand;
    for (uint64_t j = 0; rc == 0 && j < x->item->index % 3; j++) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL) return -1;
        write_item(to, d->n_fields ? d->fields : live_->fields,
                   d->n_fields ? d->n_fields : live_->n_fields,
                   salt(user) + (int)j + ((const uint8_t *)x->item->data[0])[11]);
    }
    return rc;
}

static int keep(void *user, const dlp_item *it) {
    (void)user;
    return it->index % 3 != 1;
}

static int chunk(void *user, dlp_chunk *c) {
    int rc = trouble(CHUNK, c->index, c->attempt, c->call);
    const dlp_chunks_desc *d = &now_.chunks;
    for (uint64_t k = 0; rc == 0 && d->rows_at == NULL && k < c->count; k++)
        for (uint32_t f = 0; f < c->n_fields; f++) {
            uint64_t bytes = unit_bytes(&d->fields[f], 0);
            fill((uint8_t *)c->data[f] + k * bytes,
                 bytes - (mood_.kind == LAZY && (k + c->index) % 2), dlp_chunk_row(c, k),
                 salt(user));
        }
    return rc;
}

static uint64_t at_function(void *user, uint64_t epoch, uint64_t position) {
    return (position * 7 + epoch + (salt(user) ? 3 : 0)) % ITEMS;
}

static int64_t lists(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    static uint64_t at;
    int64_t n = 0;
    (void)epoch;
    if (max == 0) return (int64_t)(at = 0);
    while (n < (int64_t)max && at < ITEMS) index[n++] = (at++ + (salt(user) ? 5 : 0)) % ITEMS;
    if (n == 0) at = 0;
    return n;
}
static int lists_begin(void *user, uint64_t epoch) {
    uint64_t none;
    (void)epoch;
    lists(user, 0, &none, 0);
    return 0;
}

/* ---- those of rows ---- */

static int other_item(void *user, dlp_item *it) {
    count(&others_[2]);
    if (it->index >= ITEMS) return DLP_END;
    return salt(user) ? 0 : 0;
}
static int other_batch(void *user, dlp_batch *b, void *state) {
    (void)user, (void)b, (void)state;
    count(&others_[3]);
    return 0;
}
static int other_collate(void *user, dlp_collate *c) {
    count(&others_[4]);
    return dlp_collate_pad(NULL, c) + 0 * salt(user);
}
static int other_init(void *user, int worker, void **state) {
    count(&others_[5]);
    return init(user, worker, state);
}
static void other_exit(void *user, int worker, void *state) {
    count(&others_[6]);
    leave(user, worker, state);
}
static int other_tell(void *user, char *buf, size_t size) {
    (void)user;
    count(&others_[7]);
    return snprintf(buf, size, "told");
}
static uint64_t other_function(void *user, uint64_t epoch, uint64_t position) {
    count(&others_[8]);
    return at_function(user, epoch, position + 1);
}
static uint64_t other_replacement(void *user, uint64_t epoch, uint64_t position, uint64_t random) {
    (void)user, (void)epoch, (void)random;
    count(&others_[9]);
    return position % ITEMS;
}
static int other_set_epoch(void *user, uint64_t epoch) {
    (void)epoch;
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    count(&others_[10]);
    return 0;
}
static void other_log(void *user, const char *message) {
    (void)message;
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    count(&others_[11]);
}
static int other_count(void *user, uint64_t part, uint64_t *items) {
    (void)user;
    *items = part % 4;
    return 0;
}
static int other_load(void *user, dlp_part *part) {
    count(&others_[12]);
    return load(user, part);
}
static int64_t other_agree(void *user, int64_t mine, int most) {
    (void)most;
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    count(&others_[13]);
    return mine;
}
static int other_expand(void *user, dlp_expand *x) {
    (void)user, (void)x;
    count(&others_[14]);
    return 0;
}
static int other_keep(void *user, const dlp_item *it) {
    (void)user;
    count(&others_[31]);
    return it->index % 2 == 0;
}
static int other_chunk(void *user, dlp_chunk *c) {
    count(&others_[15]);
    return chunk(user, c);
}
static const void *other_rows_at(void *user, uint64_t index, uint32_t field) {
    static uint64_t room[4096];
    (void)user, (void)field;
    count(&others_[16]);
    return &room[index];
}
static int64_t other_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    count(&others_[17]);
    return lists(user, epoch, index, max > 2 ? 2 : max);
}
static int other_begin(void *user, uint64_t epoch) {
    count(&others_[18]);
    return lists_begin(user, epoch);
}
static int other_save(void *user, void *bytes) {
    (void)user;
    memset(bytes, 1, 8);
    count(&others_[19]);
    return 8;
}
static int other_restore(void *user, const void *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return 0;
}
static const char *other_why(void *user) {
    (void)user;
    count(&others_[20]);
    return "because";
}
static int other_locate(void *user, const dlp_item *item, dlp_extent *out) {
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    out->path = paths_[item->index % ITEMS];
    count(&others_[21]);
    return 0;
}
static int other_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    (void)state;
    if (salt(user)) __atomic_store_n(&salted_, 1, __ATOMIC_RELAXED);
    count(&others_[22]);
    if (n > 0 && !now_.files.direct)
        memcpy((uint8_t *)item->data[0] + item->index / 4 % 2, bytes, 1);
    return 0;
}
static uint32_t other_length(void *user, uint64_t index) {
    return (uint32_t)(index * (salt(user) ? 5 : 1) % 7 + 1);
}

static int other_copy(void *user, void *to, const void *host, uint64_t bytes, uint32_t buffer) {
    count(&others_[23]);
    return dlp_device_host()->copy(user, to, host, bytes, buffer);
}

/* ---- descs ---- */

static void set_workers(dlp_workers_desc *w) {
    w->num_workers = workers_ ? workers_ : DLP_NONE;
    w->worker_init = init;
    w->worker_exit = leave;
}

static void set_base(void) {
    memset(&now_, 0, sizeof now_);
    now_.fields[0] = (dlp_field){"x", DLP_U32, 1, {3}, 0, 0};
    now_.fields[1] = (dlp_field){"g", DLP_F32, 0, {0}, 0, 0};
    now_.fields[2] = (dlp_field){"r", DLP_U8, 1, {4}, 1, 0};
    now_.label = (dlp_field){"y", DLP_U16, 0, {0}, 0, 0};
    now_.raw = (dlp_field){"raw", DLP_U32, 1, {24}, 0, 0};
    now_.raw_next = (dlp_field){"raw_next", DLP_U8, 0, {0}, 0, 0};
    now_.dataset.n_items = ITEMS;
    now_.dataset.fields = now_.fields;
    now_.dataset.n_fields = 3;
    now_.dataset.fetch = fetch;
    now_.joined = now_.dataset;
    now_.joined.fields = &now_.label;
    now_.joined.n_fields = 1;
    now_.joined.fetch = fetch_joined;
    now_.fetch.dataset = &now_.dataset;
    now_.join.fetch.dataset = &now_.joined;
    now_.pipe.epochs = 2;
    now_.sampler.seed = 5;
    now_.batch = (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 4}};
    now_.map = (dlp_node){.verb = DLP_MAP, .map = {.item = map}};
    now_.decode = (dlp_node){.verb = DLP_MAP, .map = {.item = decode}};
    now_.batch_map = (dlp_node){.verb = DLP_MAP, .map = {.batch = map_batch}};
    now_.transfer.verb = DLP_TRANSFER;
    now_.filter.verb = DLP_FILTER;
    now_.expand.verb = DLP_EXPAND;
    now_.pack.verb = DLP_PACK;
    now_.split.verb = DLP_SPLIT;
    now_.decode.workers.idempotent = 1;
    now_.ends = (walked_ends){&now_.raw, 1, 0};
    now_.cache.bytes = 1 << 16;
    now_.guarded = (dlp_guard_field){"g", 0, 0, 0, 0};
    now_.guarded_next = (dlp_guard_field){"x", 0, 3, 0, 0};
    now_.guard = (dlp_node){.verb = DLP_GUARD, .guard = {&now_.guarded, 1}};
    set_workers(&now_.fetch.workers);
    set_workers(&now_.map.workers);
    set_workers(&now_.batch_map.workers);
    set_workers(&now_.join.fetch.workers);
    set_workers(&now_.parts.workers);
    set_workers(&now_.expand.workers);
    set_workers(&now_.filter.workers);
    set_workers(&now_.pack.workers);
    set_workers(&now_.chunks.workers);
    set_workers(&now_.guard.workers);
    now_.decode.workers.num_workers = workers_;
    now_.guard.workers.on_error = DLP_ON_ERROR_DROP;
    now_.batch.workers.num_workers = workers_ ? workers_ : DLP_NONE;
    now_.pipe.prefetch_factor = 3;
    now_.pipe.max_held = 2;
    live_ = &now_.dataset;
}

static void set_rows(void) {
    set_base();
    now_.sampler.order = DLP_ORDER_SHUFFLED;
    now_.batch.batch.collate = collate;
    now_.batch.workers.worker_init = init;
    now_.batch.workers.worker_exit = leave;
}
static void set_plain(void) { set_base(); }
static void set_subset(void) {
    static const uint64_t numbers[] = {1, 3, 5, 7, 9, 11, 0, 2, 4, 6};
    set_base();
    now_.sampler.subset = numbers;
    now_.sampler.n_subset = 10;
}
static void set_weighted(void) {
    static const uint64_t numbers[ITEMS] = {1, 3, 5, 7, 9, 11, 0, 2, 4, 6};
    set_base();
    now_.sampler.order = DLP_ORDER_WEIGHTED;
    now_.sampler.weights = numbers;
}
static void set_function(void) {
    set_base();
    now_.sampler.order = DLP_ORDER_FUNCTION;
    now_.sampler.function = at_function;
}
static void set_lists(void) {
    set_base();
    now_.sampler.order = DLP_ORDER_BATCHES;
    now_.sampler.batches.next = lists;
    now_.sampler.batches.begin = lists_begin;
}
static void set_parts(void) {
    static const uint64_t items[] = {3, 4, 2, 5, 1, 3, 4, 2, 3};
    set_base();
    now_.sampler.order = DLP_ORDER_PARTS;
    now_.dataset.n_items = 0;
    now_.parts.n_parts = 8;
    now_.parts.items = items;
    now_.parts.load = load;
    now_.parts.max_part_bytes = 4096;
}
static void set_found(void) {
    set_parts();
    now_.parts.items = NULL;
    now_.parts.n_parts = 12;
    now_.parts.max_items = 3;
    now_.pipe.streams = 2;
}
static void set_expand(void) {
    set_base();
    now_.expand.expand.expand = expand;
    now_.expand.expand.max_out = 3;
    now_.pipe.streams = 2;
}
static void set_filter(void) {
    set_base();
    now_.filter.filter.keep = keep;
    now_.pipe.streams = 2;
}
static void set_pack(void) {
    set_base();
    now_.fields[0] = (dlp_field){"tokens", DLP_U32, 1, {16}, 1, 0};
    now_.dataset.n_fields = 1;
    now_.pack.pack.tokens = 7;
    now_.pipe.streams = 2;
}
static void set_fit(void) {
    set_pack();
    now_.pack.pack.rule = DLP_PACK_FIT;
}
static void set_split(void) {
    set_base();
    now_.dataset.n_fields = 1;
    now_.batch.batch.batch_size = 1;
    now_.split.split.chunk_rows = 3;
    now_.split.split.batch_size = 4;
}
static void set_mixed(void) {
    set_base();
    now_.joined.fields = now_.fields;
    now_.joined.n_fields = 3;
    now_.join.how = 1;
}
static void set_stream(void) {
    set_base();
    now_.dataset.n_items = 0;
    now_.dataset.open_end = 1;
}
static void set_in_flight(void) {
    set_base();
    now_.fetch.fetcher = DLP_FETCH_THREADS;
    now_.fetch.in_flight = 3;
}
static void set_loader(void) {
    dlp_loader_desc *l = &now_.loader;
    set_base();
    l->dataset = now_.dataset;
    l->workers = now_.fetch.workers;
    l->workers.num_workers = 0;
    l->num_workers = workers_ ? workers_ : DLP_NONE;
    l->batch_size = 4;
    l->pipe = now_.pipe;
    l->pipe.epochs = 0;
    l->pipe.seed = 0;
    l->seed = 5;
    l->epochs = 2;
    live_ = &l->dataset;
}
static void set_classic(void) {
    set_loader();
    now_.loader.collate = collate;
    now_.loader.topology = workers_ ? DLP_TOPOLOGY_CLASSIC : DLP_TOPOLOGY_CONCURRENT;
}
static void set_chunks(void) {
    dlp_chunks_desc *d = &now_.chunks;
    set_base();
    d->n_items = 40;
    d->fields = now_.fields;
    d->n_fields = 2;
    d->chunk_rows = 5;
    d->batch_size = 4;
    d->load = chunk;
    d->epochs = 2;
    d->pipe.max_held = 2;
}
static void set_preload(void) {
    set_chunks();
    now_.chunks.preload = DLP_PRELOAD_CPU;
}
static void set_files(void) {
    set_loader();
    now_.loader.dataset = (dlp_dataset){0};
    memset(&now_.loader.workers, 0, sizeof now_.loader.workers);
    now_.loader.num_workers = 2;
    now_.files.n_items = ITEMS;
    now_.files.paths = paths_;
    now_.files.fields = &now_.fields[2];
    now_.files.n_fields = 1;
    now_.fields[2].shape[0] = 8;
}
static void set_decoded(void) {
    set_files();
    now_.files.fields = now_.fields;
    now_.files.n_fields = 2;
    now_.files.decode = other_decode;
    now_.files.max_bytes = 64;
}
static void set_tokens(void) {
    set_files();
    now_.loader.num_workers = workers_ ? workers_ : DLP_NONE;
    now_.tokens.paths = shards_;
    now_.tokens.n_paths = 1;
    now_.tokens.format = DLP_TOKENS_U16;
    now_.tokens.length = 4;
}
static void set_arrays(void) {
    set_tokens();
    now_.column.name = "a";
    now_.column.path = column_path_;
    now_.column_next = now_.column;
    now_.column_next.name = "b";
    now_.arrays.columns = &now_.column;
    now_.arrays.n_columns = 1;
}
static void set_array_chunks(void) {
    set_arrays();
    now_.chunks.batch_size = 4;
    now_.chunks.chunk_rows = 5;
    now_.chunks.pipe.max_held = 2;
    now_.chunks.shuffle_chunks = 1;
    memset(&now_.chunks.workers, 0, sizeof now_.chunks.workers);
    now_.chunks.workers.num_workers = workers_ ? workers_ : DLP_NONE;
}
static void set_buckets(void) {
    static const uint32_t lengths[ITEMS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};
    set_base();
    now_.buckets.n_items = ITEMS;
    now_.buckets.lengths = lengths;
    now_.buckets.batch_size = 4;
    now_.buckets.window = 8;
}
static void set_length(void) {
    set_buckets();
    now_.buckets.lengths = NULL;
    now_.buckets.length = other_length;
}
static void set_mix(void) {
    static const uint64_t items[] = {13, 10, 2};
    set_base();
    now_.mix.n = 2;
    now_.mix.n_items = items;
}

/* ---- opening ---- */

static int open_chain(dlp_error *err) {
    const int has = wiring_->stages, made = has & (HAS_EXPAND | HAS_FILTER | HAS_PACK);
    const uint32_t mixed = (has & HAS_JOIN) && now_.join.how == 1;
    rig_table t = {.n = 0};
    dlp_source f = now_.fetch;
    dlp_node batch = now_.batch;
    int rc;
    if (made) f.workers = (dlp_workers_desc){.num_workers = 0}; /* those of the maker */
    if (made && batch.batch.copy_workers == 0)
        batch.batch.copy_workers = workers_ ? workers_ : DLP_NONE;
    table_list(&t, &now_.sampler);
    if (has & HAS_PARTS) table_load(&t, &now_.parts);
    table_fetch(&t, &f, mixed);
    if (has & HAS_ENDS) table_ends(&t, now_.ends.fields, now_.ends.n_fields, now_.ends.n_cells);
    if (has & HAS_EXPAND) table_row(&t, now_.expand);
    if (has & HAS_FILTER) table_row(&t, now_.filter);
    if (has & HAS_PACK) table_row(&t, now_.pack);
    if (has & HAS_JOIN) table_fetch(&t, &now_.join.fetch, mixed ? 2 : 0);
    if (has & HAS_ENDS) table_row(&t, now_.decode);
    if (has & HAS_GUARD) table_row(&t, now_.guard);
    if (has & HAS_CACHE) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = now_.cache});
    if (has & HAS_MAP) table_row(&t, now_.map);
    table_row(&t, batch);
    if (has & HAS_BATCH_MAP) table_row(&t, now_.batch_map);
    if (has & HAS_TRANSFER) table_row(&t, now_.transfer);
    if (has & HAS_SPLIT) table_row(&t, now_.split);
    rc = table_pipe(&t, &pipe_, &now_.pipe, err);
    if (rc != DLP_OK) pipe_ = NULL;
    if (rc != DLP_OK || (rc = dlp_pipe_start(pipe_)) == DLP_OK) return rc;
    *err = *dlp_pipe_error(pipe_);
    return rc;
}

static int open_loader(dlp_error *err) { return dlp_loader_open(&pipe_, &now_.loader, err); }
static int open_chunks(dlp_error *err) { return dlp_chunks_open(&pipe_, &now_.chunks, err); }
static int open_files(dlp_error *err) {
    int rc = dlp_files_open(&files_, &now_.files, err);
    if (rc != DLP_OK) return rc;
    now_.loader.source = files_;
    return open_loader(err);
}
static int open_tokens(dlp_error *err) {
    tokens_loader d = {now_.tokens, now_.loader};
    return tokens_loader_open(&pipe_, &tokens_, &d, err);
}
static int open_tokens_wire(dlp_error *err) {
    int rc = dlp_tokens_open(&tokens_, &now_.tokens, err);
    if (rc != DLP_OK) return rc;
    source_items(tokens_, &now_.loader.dataset, &now_.loader.workers);
    now_.loader.sampler.function_id = tokens_->id;
    return open_loader(err);
}
static int open_arrays(dlp_error *err) {
    arrays_loader d = {now_.arrays, now_.loader};
    return arrays_loader_open(&pipe_, &arrays_, &d, err);
}
static int open_array_chunks(dlp_error *err) {
    array_views d = {now_.arrays, now_.chunks};
    return array_views_open(&pipe_, &arrays_, &d, err);
}
static int open_buckets(dlp_error *err) {
    int rc = dlp_buckets_open(&buckets_, &now_.buckets, err);
    if (rc == DLP_OK) rc = dlp_buckets_sampler(buckets_, &now_.sampler);
    return rc == DLP_OK ? open_chain(err) : rc;
}
static int open_mix(dlp_error *err) {
    int rc = dlp_mix_open(&mix_, &now_.mix, err);
    if (rc == DLP_OK) rc = dlp_mix_sampler(mix_, &now_.sampler);
    now_.dataset.n_items = 100;
    return rc == DLP_OK ? open_chain(err) : rc;
}

static void close_all(void) {
    dlp_pipe_close(pipe_);
    if (held_) dlp_pipe_release(pipe_, held_);
    held_ = NULL;
    dlp_source_close(files_);
    dlp_source_close(tokens_);
    dlp_buckets_close(buckets_);
    dlp_mix_close(mix_);
    pipe_ = NULL, files_ = NULL, tokens_ = NULL, buckets_ = NULL, mix_ = NULL;
}

/* ---- wirings ---- */

#define AT(type, member) \
    { #type, offsetof(descs, member), #member }
#define MADE \
    AT(dlp_pipe_desc, pipe), AT(dlp_sampler_desc, sampler), \
        AT(dlp_batch_sampler, sampler.batches), AT(dlp_dataset, dataset), \
        AT(dlp_node_batch, batch.batch), AT(dlp_workers_desc, batch.workers)
#define CHAIN MADE, AT(dlp_source, fetch), AT(dlp_workers_desc, fetch.workers)
#define LOADER \
    AT(dlp_loader_desc, loader), AT(dlp_pipe_desc, loader.pipe), \
        AT(dlp_sampler_desc, loader.sampler), AT(dlp_batch_sampler, loader.sampler.batches), \
        AT(dlp_dataset, loader.dataset), AT(dlp_workers_desc, loader.workers), \
        AT(dlp_async, loader.async), AT(dlp_node_cache, loader.cache), \
        AT(dlp_workers_desc, loader.batch_workers)

static const place at_rows_[] = {CHAIN,
                                 AT(dlp_field, fields[0]),
                                 AT(dlp_field, fields[1]),
                                 AT(dlp_field, fields[2]),
                                 AT(dlp_async, fetch.async),
                                 AT(dlp_node_map, map.map),
                                 AT(dlp_workers_desc, map.workers),
                                 AT(dlp_node_map, batch_map.map),
                                 AT(dlp_workers_desc, batch_map.workers),
                                 AT(dlp_node_transfer, transfer.transfer),
                                 AT(transfer_queue, transfer.queue),
                                 {0}};
static const place at_chain_[] = {CHAIN, {0}};
static const place at_order_[] = {
    AT(dlp_sampler_desc, sampler), AT(dlp_batch_sampler, sampler.batches), {0}};
static const place at_parts_[] = {
    CHAIN, AT(dlp_node_load, parts), AT(dlp_workers_desc, parts.workers), {0}};
static const place at_expand_[] = {
    MADE, AT(dlp_node_expand, expand.expand), AT(dlp_workers_desc, expand.workers), {0}};
static const place at_filter_[] = {
    MADE, AT(dlp_node_filter, filter.filter), AT(dlp_workers_desc, filter.workers), {0}};
static const place at_pack_[] = {
    MADE, AT(dlp_node_pack, pack.pack), AT(dlp_workers_desc, pack.workers), {0}};
static const place at_split_[] = {CHAIN, AT(dlp_node_split, split.split), {0}};
static const place at_join_[] = {CHAIN,
                                 AT(walked_join, join),
                                 AT(dlp_source, join.fetch),
                                 AT(dlp_workers_desc, join.fetch.workers),
                                 AT(dlp_dataset, joined),
                                 AT(dlp_field, label),
                                 AT(dlp_node_guard, guard.guard),
                                 AT(dlp_guard_field, guarded),
                                 AT(dlp_workers_desc, guard.workers),
                                 AT(dlp_node_cache, cache),
                                 {0}};
static const place at_mixed_[] = {CHAIN,
                                  AT(walked_join, join),
                                  AT(dlp_source, join.fetch),
                                  AT(dlp_workers_desc, join.fetch.workers),
                                  AT(dlp_dataset, joined),
                                  {0}};
static const place at_scratch_[] = {CHAIN, AT(dlp_field, raw), AT(walked_ends, ends), {0}};
static const place at_loader_[] = {LOADER, {0}};
static const place at_chunks_[] = {AT(dlp_chunks_desc, chunks),
                                   AT(dlp_pipe_desc, chunks.pipe),
                                   AT(dlp_workers_desc, chunks.workers),
                                   AT(dlp_field, fields[0]),
                                   {0}};
static const place at_files_[] = {LOADER, AT(dlp_files_desc, files), {0}};
static const place at_decoded_[] = {AT(dlp_files_desc, files), {0}};
static const place at_tokens_[] = {LOADER, AT(dlp_tokens_desc, tokens), {0}};
static const place at_wired_[] = {AT(dlp_dataset, loader.dataset), {0}};
static const place at_arrays_[] = {
    LOADER, AT(dlp_arrays_desc, arrays), AT(dlp_array_column, column), {0}};
static const place at_array_chunks_[] = {AT(dlp_arrays_desc, arrays),
                                         AT(dlp_chunks_desc, chunks),
                                         AT(dlp_workers_desc, chunks.workers),
                                         {0}};
static const place at_buckets_[] = {AT(dlp_buckets_desc, buckets), {0}};
static const place at_mix_[] = {AT(dlp_mix_desc, mix), {0}};

static const wiring wirings_[] = {
    {"rows", set_rows, open_chain, at_rows_, HAS_MAP | HAS_BATCH_MAP | HAS_TRANSFER, 0},
    {"plain", set_plain, open_chain, at_chain_, 0, 0},
    {"subset", set_subset, open_chain, at_order_, 0, 0},
    {"weighted", set_weighted, open_chain, at_order_, 0, 0},
    {"function", set_function, open_chain, at_order_, 0, 0},
    {"lists", set_lists, open_chain, at_order_, 0, 0},
    {"parts", set_parts, open_chain, at_parts_, HAS_PARTS, 0},
    {"found", set_found, open_chain, at_parts_, HAS_PARTS, 0},
    {"expand", set_expand, open_chain, at_expand_, HAS_EXPAND, 0},
    {"filter", set_filter, open_chain, at_filter_, HAS_FILTER, 0},
    {"pack", set_pack, open_chain, at_pack_, HAS_PACK, 0},
    {"fit", set_fit, open_chain, at_pack_, HAS_PACK, 0},
    {"split", set_split, open_chain, at_split_, HAS_SPLIT, 0},
    {"join", set_plain, open_chain, at_join_, HAS_JOIN | HAS_GUARD | HAS_CACHE, 0},
    {"scratch", set_plain, open_chain, at_scratch_, HAS_ENDS, 0},
    {"mixed", set_mixed, open_chain, at_mixed_, HAS_JOIN, 0},
    {"stream", set_stream, open_chain, at_chain_, 0, 0},
    {"in_flight", set_in_flight, open_chain, at_chain_, 0, 0},
    {"loader", set_loader, open_loader, at_loader_, 0, 0},
    {"classic", set_classic, open_loader, at_loader_, 0, 0},
    {"chunks", set_chunks, open_chunks, at_chunks_, 0, 0},
    {"preload", set_preload, open_chunks, at_chunks_, 0, 0},
    {"files", set_files, open_files, at_files_, 0, 0},
    {"decoded", set_decoded, open_files, at_decoded_, 0, 0},
    {"tokens", set_tokens, open_tokens, at_tokens_, 0, 0},
    {"tokens_wire", set_tokens, open_tokens_wire, at_wired_, 0, 0},
    {"arrays", set_arrays, open_arrays, at_arrays_, 0, 0},
    {"array_chunks", set_array_chunks, open_array_chunks, at_array_chunks_, 0, 0},
    {"buckets", set_buckets, open_buckets, at_buckets_, 0, 0},
    {"length", set_length, open_buckets, at_buckets_, 0, 0},
    {"mix", set_mix, open_mix, at_mix_, 0, 0},
};
#define N_WIRINGS (sizeof wirings_ / sizeof *wirings_)

static const mood moods_[] = {
    {"calm", -1, CALM},         {"slow", FETCH, SLOW},
    {"once", FETCH, ONCE},      {"again", FETCH, AGAIN},
    {"always", FETCH, ALWAYS},  {"skips", FETCH, SKIPS},
    {"lazy", -1, LAZY},         {"ranks", -1, RANKS},
    {"epochs", -1, EPOCHS},     {"replaced", FETCH, REPLACED},
    {"odd", -1, ODD_RANKS},     {"shared", -1, SHARED},
    {"agreed", -1, AGREED},     {"slow", MAP, SLOW},
    {"once", MAP, ONCE},        {"again", MAP, AGAIN},
    {"always", MAP, ALWAYS},    {"slow", JOINED, SLOW},
    {"once", JOINED, ONCE},     {"again", JOINED, AGAIN},
    {"always", JOINED, ALWAYS}, {"slow", BATCH_MAP, SLOW},
    {"once", BATCH_MAP, ONCE},  {"again", BATCH_MAP, AGAIN},
    {"slow", COLLATE, SLOW},    {"once", COLLATE, ONCE},
    {"again", COLLATE, AGAIN},  {"slow", LOAD, SLOW},
    {"once", LOAD, ONCE},       {"again", LOAD, AGAIN},
    {"always", LOAD, ALWAYS},   {"slow", EXPAND, SLOW},
    {"once", EXPAND, ONCE},     {"again", EXPAND, AGAIN},
    {"always", EXPAND, ALWAYS}, {"slow", CHUNK, SLOW},
    {"once", CHUNK, ONCE},      {"again", CHUNK, AGAIN},
    {"always", CHUNK, ALWAYS},
};
#define N_MOODS (sizeof moods_ / sizeof *moods_)

/* ---- a run ---- */

static void *at_place(const place *p) { return (char *)&now_ + p->offset; }

static void set_mood(void) {
    const int unknown =
        now_.parts.max_items > 0 || (wiring_->stages & (HAS_EXPAND | HAS_FILTER | HAS_PACK)) != 0;
    for (const place *p = wiring_->places; p->type; p++) {
        dlp_workers_desc *w = at_place(p);
        if (strcmp(p->type, "dlp_workers_desc") != 0 || strstr(p->name, "guard")) continue;
        if (mood_.kind == AGAIN) w->retries = 2;
        if (mood_.kind == REPLACED &&
            (strstr(p->name, "fetch") || strcmp(p->name, "loader.workers") == 0))
            w->on_error = DLP_ON_ERROR_REPLACE;
        if (mood_.kind == ALWAYS && strncmp(p->name, "batch", 5) != 0)
            w->on_error = DLP_ON_ERROR_DROP;
    }
    if (mood_.kind == REPLACED) now_.fetch.workers.on_error = DLP_ON_ERROR_REPLACE;
    if (mood_.kind == SHARED) {
        if (unknown || (wiring_->stages & HAS_PARTS)) now_.pipe.streams = 1;
        now_.pipe.uneven = unknown;
    }
    if (mood_.kind == AGREED) {
        if (unknown) now_.pipe.agree = other_agree;
    }
    if (mood_.kind >= RANKS && mood_.kind <= AGREED) {
        const uint32_t n = mood_.kind == ODD_RANKS ? 3 : 2;
        now_.pipe.world_size = now_.loader.pipe.world_size = n;
        now_.chunks.pipe.world_size = n;
    }
    if (mood_.kind == EPOCHS) {
        now_.pipe.set_epoch = now_.loader.pipe.set_epoch = other_set_epoch;
        now_.chunks.pipe.set_epoch = other_set_epoch;
        now_.pipe.log = now_.loader.pipe.log = other_log;
    }
}

static void say_field(const dlp_tensor *t, uint32_t rows) {
    say(" %s %x", t->name, t->dtype);
    for (int i = 0; i < t->ndim; i++) say(" %d", (int)t->shape[i]);
    say(" = %016" PRIx64, digest(1, (const char *)t->data + t->byte_offset, t->bytes));
    if (t->lengths) say(" lengths %016" PRIx64, digest(1, t->lengths, rows * 8));
    if (t->offsets) say(" offsets %016" PRIx64, digest(1, t->offsets, (rows + 1) * 8));
}

static void say_batch(const dlp_batch *b) {
    say("batch %d of %d, %d, at %d:", (int)b->sequence, (int)b->epoch, (int)b->in_epoch,
        (int)b->position);
    for (uint32_t i = 0; i < b->count; i++) say(" %d%s", (int)b->index[i], b->valid[i] ? "" : "-");
    for (uint32_t i = 0; i < b->n_fields; i++) say_field(&b->fields[i], b->count);
    say(" flags %d\n", (int)b->flags);
}

static void say_start(void) {
    static dlp_plan plan;
    static char buf[16384];
    static dlp_stats stats;
    if (dlp_pipe_plan(pipe_, &plan) == DLP_OK && dlp_plan_format(&plan, buf, sizeof buf) > 0)
        say("%s", buf);
    for (int i = 0; dlp_pipe_warning(pipe_, i); i++)
        say("warning: %s\n", dlp_pipe_warning(pipe_, i));
    say("name %d\n", access(name_path_, F_OK) == 0);
    say("files %d batches %d\n", memory_files(), (int)dlp_pipe_batches_per_epoch(pipe_));
    if (dlp_pipe_stats(pipe_, &stats) == DLP_OK)
        for (uint32_t i = 0; i < stats.n_stages; i++)
            say("stage %s %d\n", stats.stages[i].name, (int)stats.stages[i].workers);
    say("budget %d\n", (int)(other_budget_.used_bytes >> 10));
    other_budget_.used_bytes = other_budget_.used_bytes; /* given back by close */
}

static int consume(dlp_state *state) {
    static char buf[65536];
    static dlp_stats stats;
    dlp_batch *b;
    int rc = DLP_OK, n = 0;
    while (n++ < 60) {
        rc = dlp_pipe_next_timeout(pipe_, &b, 10000);
        if (rc == DLP_EPOCH_END) say("epoch end\n");
        if (rc == DLP_EPOCH_END) continue;
        if (rc != DLP_OK) break;
        say_batch(b);
        if (n <= 2) {
            dlp_state s;
            if (dlp_pipe_state(pipe_, b, &s) == DLP_OK)
                say("state %016" PRIx64 "\n", digest(1, &s, sizeof s));
            if (state) *state = s;
        }
        if (held_) dlp_pipe_release(pipe_, held_);
        held_ = b;
    }
    dlp_pipe_explain(pipe_, buf, sizeof buf);
    if (dlp_pipe_stats(pipe_, &stats) == DLP_OK && rc == DLP_END)
        for (uint32_t i = 0; i < stats.n_stages; i++)
            say("%d again, %d replaced, %d left out\n", (int)stats.stages[i].retried,
                (int)stats.stages[i].replaced, (int)stats.stages[i].left_out);
    return rc;
}

/* Returns whether it was refused; all that is seen is in text_. */
static int run(const field_row *row, const place *at, dlp_error *err, dlp_state *state) {
    int rc;
    memset(err, 0, sizeof *err);
    memset(calls_, 0, sizeof calls_);
    memset(others_, 0, sizeof others_);
    memset(once_, 0, sizeof once_);
    failed_ns_ = 0;
    threads_ = waited_ = salted_ = stacks_ = pinned_ = 0;
    same_ = 0;
    said_ = 0;
    text_[0] = 0;
    wiring_->set();
    set_mood();
    if (row && memcmp((char *)at_place(at) + row->offset, row->value, row->size) == 0) same_ = 1;
    if (row) memcpy((char *)at_place(at) + row->offset, row->value, row->size);
    rc = wiring_->open(err);
    if (rc != DLP_OK) {
        close_all();
        say("refused: %s: %s: %s: %s\n", dlp_code_name(rc), err->stage, err->field, err->message);
        return 1;
    }
    say_start();
    rc = consume(state);
    say("then %s %s: %s: %s\n", dlp_code_name(rc), dlp_pipe_error(pipe_)->stage,
        dlp_pipe_error(pipe_)->field, dlp_pipe_error(pipe_)->message);
    close_all();
    if (arrays_) dlp_source_close(arrays_);
    arrays_ = NULL;
    for (int i = 0; rc == DLP_END && i < CALLS; i++)
        say("calls %d: %d\n", i, live_->open_end ? calls_[i] > 0 : (int)calls_[i]);
    for (int i = 0; rc == DLP_END && i < 32; i++) say("others %d: %d\n", i, others_[i] > 0);
    say("threads %d waited %d salted %d stacks %d pinned %d\n", threads_, waited_, salted_, stacks_,
        pinned_);
    return 0;
}

/* ---- the walk ---- */

static char *base_[2][N_WIRINGS][N_MOODS];
static dlp_state states_[2][N_WIRINGS];
static int verbose_;

static const char *base_of(size_t w, size_t m) {
    char **at = &base_[workers_ > 0][w][m];
    dlp_error err;
    if (*at) return *at;
    run(NULL, NULL, &err, m == 0 ? &states_[workers_ > 0][w] : NULL);
    *at = strdup(text_);
    for (int again = 0; again < 1 && workers_ == 0; again++) {
        run(NULL, NULL, &err, NULL);
        CHECK(strcmp(text_, *at) == 0);
        if (strcmp(text_, *at) != 0) {
            size_t i = 0;
            while (text_[i] == (*at)[i]) i++;
            while (i > 0 && text_[i - 1] != '\n') i--;
            printf("unsteady: %s.%d %s %d:\n  %.*s\n  %.*s\n", wirings_[w].name, workers_,
                   mood_.name, mood_.call, (int)strcspn(*at + i, "\n"), *at + i,
                   (int)strcspn(text_ + i, "\n"), text_ + i);
        }
    }
    CHECK(m > 0 || strstr(*at, "then DLP_END"));
    if (m == 0 && !strstr(*at, "then DLP_END"))
        printf("base %s.%d: %s", wirings_[w].name, workers_, *at);
    return *at;
}

static int names(const dlp_error *err, const field_row *row) {
    const char *dot = strrchr(err->field, '.');
    return strstr(dot ? dot + 1 : err->field, row->name) || strstr(err->message, row->name);
}

enum { IGNORED, CHANGED, REFUSED, MISNAMED, SAME };

static int judge(size_t w, const place *at, const field_row *row) {
    dlp_error err;
    for (size_t m = 0; m < N_MOODS; m++) {
        int refused;
        const char *base;
        mood_ = moods_[m];
        base = base_of(w, m);
        if (mood_.call >= 0) {
            char none[24];
            snprintf(none, sizeof none, "calls %d: 0\n", mood_.call);
            if (strstr(base_of(w, 0), none)) continue;
        }
        other_state_ = states_[workers_ > 0][w];
        refused = run(row, at, &err, NULL);
        if (verbose_) printf("--- %s\n%s", mood_.name, text_);
        if (same_) return SAME;
        if (strcmp(text_, base) == 0) continue;
        if (strncmp(base, "refused", 7) == 0) return CHANGED;
        if (refused) return row->rule == IN_ANY_WORDS || names(&err, row) ? REFUSED : MISNAMED;
        return CHANGED;
    }
    return IGNORED;
}

/* Fields that mean something else to a stage with workers. */
static int of_workers(const field_row *row) {
    return strcmp(row->type, "dlp_workers_desc") == 0 && wiring_->set == set_rows;
}

/* What a wiring grants though it shows nothing there, each for a reason. */
static const struct {
    const char *what, *why;
} granted_[] = {
    {"expand.dataset.filter", "expand leaves out what fetch skips, anyway"},
    {"filter.dataset.filter", "a filter leaves out what fetch skips, anyway"},
    {"pack.dataset.filter", "pack leaves out what fetch skips, anyway"},
    {"fit.dataset.filter", "pack leaves out what fetch skips, anyway"},
    {"pack.dataset.writes_all_bytes", "a document has the bytes that fetch says, and no others"},
    {"fit.dataset.writes_all_bytes", "a document has the bytes that fetch says, and no others"},
    {"parts.0.dataset.writes_all_bytes", "here each cell is used once, and was zeros before"},
    {"scratch.raw.name", "an ended field's name stands in errors alone"},
    {"loader.0.loader.topology", "inline one worker has all, whatever the topology"},
    {"classic.0.loader.topology", "inline one worker has all, whatever the topology"},
    {"tokens.0.loader.topology", "inline one worker has all, whatever the topology"},
    {"arrays.0.loader.topology", "inline one worker has all, whatever the topology"},
    {"preload.chunks.writes_all_bytes", "each buffer is zero before its one load"},
    {"files.loader.async.submit", "the source sets it, after this"},
    {"files.loader.async.reap", "the source sets it, after this"},
    {"files.loader.workers.on_error", "no file fails here: system/source/files.c"},
    {"files.loader.workers.retries", "no file fails here: system/source/files.c"},
    {"files.loader.workers.deadline_ms", "no file is slow here: system/source/files.c"},
    {"tokens.loader.workers.on_error", "a mapping does not fail"},
    {"tokens.loader.workers.retries", "a mapping does not fail"},
    {"tokens.2.loader.workers.deadline_ms", "a mapping is not slow"},
    {"arrays.loader.workers.on_error", "a mapping does not fail"},
    {"arrays.loader.workers.retries", "a mapping does not fail"},
    {"arrays.2.loader.workers.deadline_ms", "a mapping is not slow"},
    {"array_chunks.chunks.workers.on_error", "a mapping does not fail"},
    {"array_chunks.chunks.workers.retries", "a mapping does not fail"},
    {"tokens_wire.loader.dataset.n_items", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.fields", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.n_fields", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.warning", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.worker_bytes", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.writes_all_bytes", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.fetch", "the source sets it, after this"},
    {"tokens_wire.loader.dataset.user", "the source sets it, after this"},
};
#define N_GRANTED (sizeof granted_ / sizeof *granted_)

/* Both with and without the number of workers. */
static int is_granted(const char *name, const char *at, const char *field) {
    static char with[160], without[160];
    snprintf(with, sizeof with, "%s.%d.%s.%s", name, workers_, at, field);
    snprintf(without, sizeof without, "%s.%s.%s", name, at, field);
    for (size_t i = 0; i < N_GRANTED; i++)
        if (strcmp(granted_[i].what, with) == 0 || strcmp(granted_[i].what, without) == 0) return 1;
    return 0;
}

static char doing_[128];

static void crashed(int number) {
    fflush(stdout);
    printf("signal %d in %s\n", number, doing_);
    fflush(stdout);
    _exit(1);
}

static int is_walked(const field_row *row, const place *at, int seen, const char *only) {
    if (strcmp(row->type, at->type) != 0) return 0;
    snprintf(doing_, sizeof doing_, "%s.%d.%s.%s", wiring_->name, workers_, at->name, row->name);
    if (only) return strncmp(only, doing_, strlen(only)) == 0;
    if (getenv("SOAK")) return 1;
    return (workers_ == 0 || of_workers(row)) && !(row->rule == SOMEWHERE && seen);
}

/* One field at one place. Returns whether the library has seen it. */
static int step(size_t w, const place *at, const field_row *row, const char *what) {
    const int granted = is_granted(wiring_->name, at->name, row->name);
    const int wanted = row->rule < SOMEWHERE && !granted;
    int is = judge(w, at, row), seen, ignored;
    /* On a busy machine next may look for a callback past its deadline when that has returned. */
    for (int tries = 0; tries < 20 && is == IGNORED && wanted; tries++) is = judge(w, at, row);
    seen = is == CHANGED || is == REFUSED;
    ignored = is == IGNORED && wanted;
    CHECK(!ignored && is != MISNAMED && !(seen && granted));
    if (ignored) printf("ignored: %s\n", what);
    if (is == MISNAMED) printf("misnamed: %s: %s", what, text_);
    if (seen && granted) printf("is seen, and need not be granted: %s\n", what);
    if (verbose_) printf("%s is %d\n", what, is);
    return seen;
}

static void walk(const char *only) {
    static int seen[N_ROWS];
    for (size_t w = 0; w < N_WIRINGS; w++)
        for (workers_ = 0; workers_ <= 2; workers_ += 2) {
            wiring_ = &wirings_[w];
            if (workers_ == 0 && wiring_->set == set_in_flight) continue;
            for (const place *at = wiring_->places; at->type; at++)
                for (size_t r = 0; r < N_ROWS; r++) {
                    if (!is_walked(&rows_[r], at, seen[r], only)) continue;
                    seen[r] |= step(w, at, &rows_[r], doing_);
                }
        }
    for (size_t r = 0; r < N_ROWS && !only; r++) {
        CHECK(seen[r]);
        if (!seen[r]) printf("never seen: %s.%s\n", rows_[r].type, rows_[r].name);
    }
}

/* An array and its count, of which a wiring has both: neither is given without the other. */
static void pairs(void) {
    static const uint64_t none[8];
    workers_ = 0;
    mood_ = moods_[0];
    for (size_t w = 0; w < N_WIRINGS; w++)
        for (const place *at = wirings_[w].places; at->type; at++)
            for (size_t k = 0; k < 2 * N_PAIRS; k++) {
                const field_pair *pair = &pairs_[k / 2];
                field_row row = {
                    pair->type, pair->name[k % 2], pair->offset[k % 2], pair->size[k % 2],
                    none,       IN_ANY_WORDS};
                dlp_error err;
                wiring_ = &wirings_[w];
                if (wiring_->set == set_in_flight || strcmp(pair->type, at->type) != 0) continue;
                snprintf(doing_, sizeof doing_, "%s.%s.%s", wiring_->name, at->name, row.name);
                if (is_granted(wiring_->name, at->name, row.name)) continue;
                if (!run(&row, at, &err, NULL) && !same_) CHECK(0 && "an array without its count");
                if (!same_ && strncmp(text_, "refused", 7) != 0) printf("taken: %s\n", doing_);
            }
}

/* The library's list of members of a desc of workers has each of them. By this list it knows which
   rows say something, and which workers are alike. */
static void workers(void) {
    for (size_t r = 0; r < N_ROWS; r++) {
        const char *name;
        size_t at = 0;
        if (strcmp(rows_[r].type, "dlp_workers_desc") != 0) continue;
        for (size_t i = 0; (name = inside_workers_member(i, &at)) != NULL; i++)
            if (strcmp(name, rows_[r].name) == 0 && at == rows_[r].offset) break;
        CHECK(name != NULL);
        if (name == NULL) printf("not in the list of workers: %s\n", rows_[r].name);
    }
}

/* ---- files ---- */

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void make_files(void) {
    static const char head[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': False, "
                               "'shape': (24, 2), }";
    uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    snprintf(dir_, sizeof dir_, "/tmp/dlpipe_fields.%d", (int)getpid());
    CHECK(mkdir(dir_, 0700) == 0);
    for (int i = 0; i < ITEMS; i++) {
        snprintf(paths_text_[i], sizeof paths_text_[i], "%s/%d", dir_, i);
        paths_[i] = paths_text_[i];
        write_file(paths_[i], bytes + i, (size_t)i % 5 + 1);
    }
    snprintf(tokens_path_, sizeof tokens_path_, "%s/tokens", dir_);
    shards_[0] = shards_[1] = tokens_path_;
    for (int i = 0; i < 64; i++) other_paths_[i] = paths_[(i + 1) % ITEMS];
    write_file(tokens_path_, bytes, 400);
    snprintf(column_path_, sizeof column_path_, "%s/column.npy", dir_);
    memset(bytes, ' ', 128);
    memcpy(bytes, head, sizeof head - 1);
    bytes[127] = '\n';
    write_file(column_path_, bytes, 128 + 96);
}

static void remove_files(void) {
    for (int i = 0; i < ITEMS; i++) unlink(paths_[i]);
    unlink(tokens_path_);
    unlink(column_path_);
    rmdir(dir_);
}

int main(int argc, char **argv) {
    static const dlp_source other_source = {.dataset = &other_dataset_};
    make_files();
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    other_dataset_ =
        (dlp_dataset){.n_items = 11, .fields = other_fields_, .n_fields = 2, .fetch = other_item};
    other_device_ = *dlp_device_host();
    other_device_.copy = other_copy;
    other_row_ = (dlp_node){.name = "other", .verb = DLP_FETCH, .fetch = {.source = &other_source}};
    snprintf(name_, sizeof name_, "fields.%d", (int)getpid());
    snprintf(name_path_, sizeof name_path_, "/dev/shm/dlpipe.%s", name_);
    other_shm_.name = name_;
    other_budget_.limit_bytes = 1 << 30;
    verbose_ = argc > 1;
    walk(argc > 1 ? argv[1] : NULL);
    if (argc == 1) pairs();
    if (argc == 1) workers();
    remove_files();
    return test_end("fields");
}
