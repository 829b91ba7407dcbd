/* Batches as DLPack tensors: layout against the structs of dlpack.h, contents, and who gives a
   batch back when: deleters of any thread, before and after close. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

/* As dlpack.h 1.0 has them, under its own names. */
typedef struct {
    uint32_t major, minor;
} DLPackVersion;
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLExtDev = 12 } DLDeviceType;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#include "../../../dlpipe.h"
#include "../../rig/pipe_rig.h"
#include <signal.h>
#include <sys/wait.h>

#define SAME(ours, field, theirs, theirs_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, theirs_field), #field)
SAME(dlp_dl_tensor, data, DLTensor, data);
SAME(dlp_dl_tensor, device_type, DLTensor, device);
SAME(dlp_dl_tensor, device_id, DLTensor, device.device_id);
SAME(dlp_dl_tensor, ndim, DLTensor, ndim);
SAME(dlp_dl_tensor, code, DLTensor, dtype.code);
SAME(dlp_dl_tensor, bits, DLTensor, dtype.bits);
SAME(dlp_dl_tensor, lanes, DLTensor, dtype.lanes);
SAME(dlp_dl_tensor, shape, DLTensor, shape);
SAME(dlp_dl_tensor, strides, DLTensor, strides);
SAME(dlp_dl_tensor, byte_offset, DLTensor, byte_offset);
SAME(dlp_managed_tensor, manager_ctx, DLManagedTensor, manager_ctx);
SAME(dlp_managed_tensor, deleter, DLManagedTensor, deleter);
SAME(dlp_managed_tensor_v1, minor, DLManagedTensorVersioned, version.minor);
SAME(dlp_managed_tensor_v1, manager_ctx, DLManagedTensorVersioned, manager_ctx);
SAME(dlp_managed_tensor_v1, deleter, DLManagedTensorVersioned, deleter);
SAME(dlp_managed_tensor_v1, flags, DLManagedTensorVersioned, flags);
SAME(dlp_managed_tensor_v1, dl_tensor, DLManagedTensorVersioned, dl_tensor);
_Static_assert(sizeof(dlp_managed_tensor) == sizeof(DLManagedTensor), "size");
_Static_assert(sizeof(dlp_managed_tensor_v1) == sizeof(DLManagedTensorVersioned), "size");

static void setup(rig *r, int workers, int held) {
    rig_init(r, 100, 8);
    r->pipe.epochs = 2;
    r->fetch.num_workers = workers;
    r->pipe.prefetch_factor = 3;
    r->pipe.max_held = held;
    rig_order(r, DLP_ORDER_SHUFFLED);
}

static DLManagedTensor *lend(dlp_pipe *p, dlp_batch *b, int field) {
    dlp_managed_tensor *t = NULL;
    int rc = dlp_batch_dlpack(p, b, field, &t);
    CHECK(rc == DLP_OK && t != NULL);
    return (DLManagedTensor *)(void *)t;
}

/* Is what the two tensors show batch k of epoch e? They are looked at as a stranger would. */
static int shows(rig *r, const DLTensor *words, const DLTensor *labels, uint64_t e, uint64_t k) {
    const uint64_t *w = words->data;
    const uint32_t *l = labels->data;
    int ok = words->ndim == 2 && labels->ndim == 1 && words->shape[1] == 3 &&
             words->strides[0] == 3 && words->strides[1] == 1 && labels->strides[0] == 1 &&
             words->shape[0] == labels->shape[0] && words->dtype.code == 1 &&
             words->dtype.bits == 64 && words->dtype.lanes == 1 && labels->dtype.bits == 32 &&
             words->byte_offset == 0 && words->device.device_id == 0;
    for (int64_t i = 0; ok && i < words->shape[0]; i++) {
        uint64_t position = k * 8 + (uint64_t)i, index = rig_index(r, e, position % 100), want[3];
        rig_words(r->sampler.seed, index, e, position % 100, want);
        ok = memcmp(w + i * words->strides[0], want, sizeof want) == 0 && l[i] == index;
    }
    return ok;
}

static void tensors__of_all_batches__show_them(void) {
    for (int k = 0; k < 4; k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        setup(&r, k & 1, 1);
        r.n_transfers = k >> 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            dlp_managed_tensor_v1 *v = NULL;
            DLManagedTensor *words = lend(p, b, 0);
            DLManagedTensorVersioned *labels;
            CHECK(dlp_batch_dlpack_v1(p, b, 1, &v) == DLP_OK);
            labels = (DLManagedTensorVersioned *)(void *)v;
            CHECK(labels->version.major == 1 && labels->version.minor == 0 && labels->flags == 0);
            CHECK(words->dl_tensor.device.device_type == kDLCPU);
            CHECK(shows(&r, &words->dl_tensor, &labels->dl_tensor, n / 13, n % 13));
            n++;
            words->deleter(words);
            labels->deleter(labels);
        }
        CHECK(n == 26 && dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        rig_free(&r);
    }
}

static void batch__until_its_last_tensor__held(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *a, *b, *c;
    DLManagedTensor *words, *labels, *again;
    dlp_stats s;
    setup(&r, 1, 2);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &a) == DLP_OK);
    words = lend(p, a, 0);
    labels = lend(p, a, 1);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_next(p, &c) == DLP_ERR_HELD);
    CHECK(dlp_pipe_release(p, a) == DLP_OK); /* which waits for the tensors */
    CHECK(dlp_pipe_next(p, &c) == DLP_ERR_HELD);
    words->deleter(words);
    CHECK(dlp_pipe_next(p, &c) == DLP_ERR_HELD);
    again = lend(p, a, 0); /* still held: one more */
    labels->deleter(labels);
    CHECK(dlp_pipe_next(p, &c) == DLP_ERR_HELD);
    again->deleter(again);
    CHECK(dlp_pipe_next(p, &c) == DLP_OK);
    CHECK(rig_batch_same(&r, b, 0, 1) && rig_batch_same(&r, c, 0, 2));
    CHECK(a == c || dlp_pipe_release(p, a) == DLP_ERR_ARG); /* gone */
    CHECK(dlp_pipe_release(p, b) == DLP_OK);                /* never lent: at once */
    words = lend(p, c, 0);
    words->deleter(words);
    CHECK(dlp_pipe_release(p, c) == DLP_OK && dlp_pipe_release(p, c) == DLP_ERR_ARG);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.held == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* ---- deleters in other threads ---- */

typedef struct bin {
    pthread_mutex_t lock;
    DLManagedTensor *tensors[64];
    int n, over;
    rig *r;
} bin;

static void *deleters(void *arg) {
    bin *d = arg;
    for (;;) {
        DLManagedTensor *t = NULL;
        int over;
        pthread_mutex_lock(&d->lock);
        if (d->n > 0) t = d->tensors[--d->n];
        over = d->over;
        pthread_mutex_unlock(&d->lock);
        if (t)
            t->deleter(t);
        else if (over)
            return NULL;
        else
            sched_yield();
    }
}

static void deleters__of_other_threads__batches_go_round(void) {
    int rounds = test_share(40, 2000);
    bin d = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t t[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, deleters, &d) == 0);
    for (int k = 0; k < rounds; k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0, stop = k % 2 ? 26 : 3 + (uint64_t)k % 20;
        int rc = DLP_OK;
        setup(&r, k % 3, 3);
        if (rig_open(&r, &p) != DLP_OK) break;
        while (n < stop) {
            DLManagedTensor *words, *labels;
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            if (rc == DLP_ERR_HELD) {
                sched_yield();
                continue;
            }
            if (rc != DLP_OK) break;
            words = lend(p, b, 0);
            labels = lend(p, b, 1);
            CHECK(shows(&r, &words->dl_tensor, &labels->dl_tensor, n / 13, n % 13));
            n++;
            if (n % 3 == 0) CHECK(dlp_pipe_release(p, b) == DLP_OK);
            pthread_mutex_lock(&d.lock);
            d.tensors[d.n++] = words;
            d.tensors[d.n++] = labels;
            pthread_mutex_unlock(&d.lock);
        }
        CHECK(rc == DLP_OK && n == stop);
        CHECK(dlp_pipe_close(p) == DLP_OK); /* tensors may be alive: who deletes the last frees */
        rig_free(&r);
    }
    pthread_mutex_lock(&d.lock);
    d.over = 1;
    pthread_mutex_unlock(&d.lock);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    CHECK(d.n == 0);
}

static int gone; /* the device was closed: the pipe is freed */
static void device_close(void *user) {
    (void)user;
    gone++;
}

/* Each order of: delete a's tensors, delete b's, release c; the pipe goes with the last. */
static void close__tensors_alive__the_last_frees(void) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int k = 0; k < 12; k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b[3];
        DLManagedTensor *t[2], *early;
        dlp_device d = *dlp_device_host();
        d.close = device_close;
        setup(&r, 1, 4);
        r.n_transfers = 1;
        r.transfer.transfer.device = &d;
        gone = 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int i = 0; i < 3; i++) CHECK(dlp_pipe_next(p, &b[i]) == DLP_OK);
        for (int i = 0; i < 2; i++) t[i] = lend(p, b[i], 0);
        early = lend(p, b[1], 1);
        if (k >= 6) early->deleter(early);
        CHECK(dlp_pipe_close(p) == DLP_OK && gone == 0);
        if (k < 6) early->deleter(early);
        for (int i = 0; i < 3; i++) {
            int what = orders[k % 6][i];
            const uint64_t *seen;
            uint64_t want[3], index;
            CHECK(gone == 0);
            if (what == 2) {
                CHECK(rig_batch_same(&r, b[2], 0, 2) && dlp_pipe_release(p, b[2]) == DLP_OK);
                continue;
            }
            seen = t[what]->dl_tensor.data;
            index = rig_index(&r, 0, (uint64_t)what * 8);
            rig_words(42, index, 0, (uint64_t)what * 8, want);
            CHECK(memcmp(seen, want, sizeof want) == 0);
            t[what]->deleter(t[what]);
        }
        CHECK(gone == 1);
        rig_free(&r);
    }
}

/* Deleted while nobody calls: close finds it. */
static void close__tensors_deleted__frees(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    DLManagedTensor *t;
    dlp_device d = *dlp_device_host();
    d.close = device_close;
    setup(&r, 1, 1);
    r.n_transfers = 1;
    r.transfer.transfer.device = &d;
    gone = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    t = lend(p, b, 0);
    t->deleter(t);
    CHECK(dlp_pipe_close(p) == DLP_OK && gone == 1);
    rig_free(&r);
}

/* Closed again while tensors and a batch keep it: nothing more happens, in any order. */
static void close__again_while_exported__does_nothing(void) {
    for (int order = 0; order < 6; order++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b[3];
        DLManagedTensor *t[2];
        setup(&r, order % 2 ? 2 : 0, 3);
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int i = 0; i < 3; i++) CHECK(dlp_pipe_next(p, &b[i]) == DLP_OK);
        for (int i = 0; i < 2; i++) t[i] = lend(p, b[i], 0);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
        for (int i = 0; i < 3; i++) { /* one after the other; the pipe is there until the last */
            int which = (i + order / 2) % 3;
            CHECK(dlp_pipe_close(p) == DLP_OK);
            if (which == 2) {
                CHECK(dlp_pipe_release(p, b[2]) == DLP_OK);
                if (i < 2) CHECK(dlp_pipe_release(p, b[2]) == DLP_ERR_ARG);
            } else {
                t[which]->deleter(t[which]);
            }
            if (i < 2) CHECK(dlp_pipe_next_timeout(p, &b[which], 0) == DLP_ERR_STATE);
        }
        rig_free(&r);
    }
}

static void close__again_while_batches_are_held__does_nothing(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b[2];
    setup(&r, 2, 2);
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 2; i++) CHECK(dlp_pipe_next(p, &b[i]) == DLP_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
        CHECK(dlp_pipe_release(p, b[i]) == DLP_OK);
    }
    rig_free(&r);
}

static void fork__child_deletes__parent_not_touched(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    DLManagedTensor *t;
    int status = -1;
    pid_t pid;
    setup(&r, 0, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    t = lend(p, b, 0);
    pid = fork();
    if (pid == 0) {
        if (!inside_forked(p)) _exit(0); /* emulators do not wipe the page that tells */
        inside_exported_lock();          /* as if another thread had it when it forked */
        t->deleter(t);
        _exit(0);
    }
    CHECK(pid > 0);
    for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; i++) {
        struct timespec ms = {0, 5000000};
        nanosleep(&ms, NULL);
        if (i == 4000) kill(pid, SIGKILL);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    t->deleter(t);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

static void calls__bad_arguments__refused(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_managed_tensor *t = NULL;
    DLManagedTensor *good;
    setup(&r, 0, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_batch_dlpack(NULL, b, 0, &t) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack(p, NULL, 0, &t) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack(p, b, -1, &t) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack(p, b, 2, &t) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack(p, b, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack_v1(p, b, 0, NULL) == DLP_ERR_ARG && t == NULL);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_batch_dlpack(p, b, 0, &t) == DLP_ERR_ARG);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    good = lend(p, b, 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_batch_dlpack(p, b, 0, &t) == DLP_ERR_STATE);
    good->deleter(good);
    rig_free(&r);
}

/* ---- index, valid, lengths, offsets ---- */

enum { RAGGED_ITEMS = 50, RAGGED_MAX = 7, RAGGED_BATCH = 8 };

static uint64_t ragged_rows(uint64_t index) { return index * 5 % (RAGGED_MAX + 1); }

static int ragged_fetch(void *user, dlp_item *it) {
    uint16_t *words = it->data[1];
    (void)user;
    if (it->index == 3) return DLP_SKIP;
    *(uint32_t *)it->data[0] = (uint32_t)it->index;
    it->length[1] = ragged_rows(it->index);
    for (uint64_t i = 0; i < it->length[1]; i++) words[i] = (uint16_t)(it->index * 100 + i);
    return 0;
}

/* Of each item a number, "id", and 0..7 "words". */
static int ragged_open(dlp_pipe **p, dlp_collate_fn collate, int transfers, int held) {
    static const dlp_field fields[2] = {{"id", DLP_U32, 0, {0}, 0, 0},
                                        {"words", DLP_U16, 1, {RAGGED_MAX}, 1, 0}};
    dlp_loader_desc d;
    dlp_error err = {0};
    memset(&d, 0, sizeof d);
    d.dataset.n_items = RAGGED_ITEMS;
    d.dataset.fields = fields;
    d.dataset.n_fields = 2;
    d.dataset.fetch = ragged_fetch;
    d.batch_size = RAGGED_BATCH;
    d.num_workers = 2;
    d.shuffle = 1;
    d.collate = collate;
    d.pipe.max_held = held;
    if (transfers) d.device = dlp_device_host();
    CHECK(dlp_loader_open(p, &d, &err) == DLP_OK);
    return err.code == 0;
}

static DLManagedTensor *rows_of(dlp_pipe *p, dlp_batch *b, int what, int field) {
    dlp_managed_tensor *t = NULL;
    dlp_error err;
    CHECK(dlp_batch_dlpack_rows(p, b, what, field, &t, &err) == DLP_OK && t != NULL);
    return (DLManagedTensor *)(void *)t;
}

/* A tensor of n elements in one dimension, on the host, as a stranger sees it. */
static int flat(const DLTensor *t, uint64_t n, int code, int bits) {
    return t->ndim == 1 && t->shape[0] == (int64_t)n && t->strides[0] == 1 && t->byte_offset == 0 &&
           t->device.device_type == kDLCPU && t->device.device_id == 0 && t->dtype.code == code &&
           t->dtype.bits == bits && t->dtype.lanes == 1;
}

/* What the tensors say of each row, against what fetch wrote. */
static void rows_same(const dlp_batch *b, const DLTensor *index, const DLTensor *valid,
                      const DLTensor *lengths) {
    const int64_t *i = index->data, *n = lengths->data;
    const uint8_t *v = valid->data;
    CHECK(flat(index, b->count, 0, 64) && flat(valid, b->count, 1, 8) &&
          flat(lengths, b->count, 0, 64));
    for (uint32_t r = 0; r < b->count; r++) {
        CHECK(i[r] == (int64_t)b->index[r] && v[r] == (i[r] != 3));
        CHECK(n[r] == (i[r] == 3 ? 0 : (int64_t)ragged_rows((uint64_t)i[r])));
    }
}

static void rows__of_ragged_batches__shown(void) {
    for (int transfers = 0; transfers < 2; transfers++) {
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t rows = 0, skipped = 0;
        if (!ragged_open(&p, NULL, transfers, 1)) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            dlp_managed_tensor_v1 *v = NULL;
            DLManagedTensor *index = rows_of(p, b, DLP_ROWS_INDEX, -1);
            DLManagedTensor *valid = rows_of(p, b, DLP_ROWS_VALID, 77);
            DLManagedTensorVersioned *lengths;
            CHECK(dlp_batch_dlpack_rows_v1(p, b, DLP_ROWS_LENGTHS, 1, &v, NULL) == DLP_OK);
            lengths = (DLManagedTensorVersioned *)(void *)v;
            CHECK(lengths->version.major == 1 && lengths->flags == 1); /* to be read only */
            rows_same(b, &index->dl_tensor, &valid->dl_tensor, &lengths->dl_tensor);
            rows += b->count;
            skipped += b->count - b->valid_count;
            lengths->deleter(lengths);
            index->deleter(index);
            valid->deleter(valid);
        }
        CHECK(rows == RAGGED_ITEMS && skipped == 1 && dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void rows__of_packed_batches__have_offsets(void) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t rows = 0;
    if (!ragged_open(&p, dlp_collate_pack, 0, 1)) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        DLManagedTensor *words = lend(p, b, 1), *offsets = rows_of(p, b, DLP_ROWS_OFFSETS, 1);
        const uint16_t *w = words->dl_tensor.data;
        const int64_t *at = offsets->dl_tensor.data;
        CHECK(flat(&offsets->dl_tensor, b->count + 1u, 0, 64) && at[0] == 0);
        CHECK(at[b->count] == words->dl_tensor.shape[0]);
        for (uint32_t r = 0; r < b->count; r++)
            for (int64_t i = at[r]; i < at[r + 1]; i++)
                CHECK(w[i] == b->index[r] * 100 + (uint64_t)(i - at[r]));
        rows += b->count;
        offsets->deleter(offsets);
        words->deleter(words);
    }
    CHECK(rows == RAGGED_ITEMS);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* They hold the batch, and outlive the pipe, each alone. */
static void rows__until_the_last__batch_held(void) {
    for (int what = DLP_ROWS_INDEX; what <= DLP_ROWS_LENGTHS; what++) {
        dlp_pipe *p;
        dlp_batch *b, *next;
        DLManagedTensor *t, *index;
        int64_t first;
        if (!ragged_open(&p, NULL, what % 2, 1)) return;
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        t = rows_of(p, b, what, 1);
        CHECK(dlp_pipe_release(p, b) == DLP_OK && dlp_pipe_next(p, &next) == DLP_ERR_HELD);
        t->deleter(t);
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        t = rows_of(p, b, what, 1);
        index = rows_of(p, b, DLP_ROWS_INDEX, 0);
        first = (int64_t)b->index[0];
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(t->dl_tensor.data != NULL && *(int64_t *)index->dl_tensor.data == first);
        t->deleter(t);
        CHECK(*(int64_t *)index->dl_tensor.data ==
              first); /* the pipe's memory goes with this one */
        index->deleter(index);
    }
}

static void rows__that_are_not_there__refused(void) {
    dlp_pipe *p;
    dlp_batch *b, *next;
    dlp_managed_tensor *t = NULL;
    dlp_managed_tensor_v1 *v = NULL;
    dlp_error err;
    if (!ragged_open(&p, NULL, 0, 1)) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_batch_dlpack_rows(p, b, DLP_ROWS_LENGTHS, 0, &t, &err) == DLP_ERR_ARG);
    CHECK(err.code == DLP_ERR_ARG && strcmp(err.field, "id") == 0);
    CHECK(strcmp(err.message, "field \"id\" has no lengths: it is not ragged") == 0);
    CHECK(dlp_batch_dlpack_rows_v1(p, b, DLP_ROWS_OFFSETS, 1, &v, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message, "field \"words\" has no offsets: it is not packed") == 0);
    CHECK(dlp_batch_dlpack_rows(p, b, DLP_ROWS_OFFSETS, 2, &t, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message, "field is 2, must be below 2") == 0);
    CHECK(dlp_batch_dlpack_rows(p, b, DLP_ROWS_LENGTHS, -1, &t, NULL) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack_rows(p, b, 0, 1, &t, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "what") == 0);
    CHECK(dlp_batch_dlpack_rows(p, b, 5, 1, &t, NULL) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack_rows(p, b, DLP_ROWS_INDEX, 0, NULL, &err) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack_rows(NULL, b, DLP_ROWS_INDEX, 0, &t, &err) == DLP_ERR_ARG);
    CHECK(dlp_batch_dlpack_rows(p, NULL, DLP_ROWS_INDEX, 0, &t, &err) == DLP_ERR_ARG);
    CHECK(t == NULL && v == NULL);
    CHECK(dlp_pipe_release(p, b) == DLP_OK); /* nothing of that holds it */
    CHECK(dlp_batch_dlpack_rows(p, b, DLP_ROWS_INDEX, 0, &t, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message, "the batch is not held") == 0);
    CHECK(dlp_pipe_next(p, &next) == DLP_OK && dlp_pipe_release(p, next) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int my_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    (void)user;
    (void)buffer;
    if (bytes) memcpy(dev, host, (size_t)bytes);
    return 0;
}

static void device__of_the_user__said(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    DLManagedTensor *t;
    dlp_device d = *dlp_device_host();
    d.copy = my_copy;
    setup(&r, 0, 1);
    r.n_transfers = 1;
    r.transfer.transfer.device = &d;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    t = lend(p, b, 0);
    CHECK(t->dl_tensor.device.device_type == kDLExtDev && t->dl_tensor.data == b->fields[0].data);
    t->deleter(t);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

int main(void) {
    tensors__of_all_batches__show_them();
    batch__until_its_last_tensor__held();
    deleters__of_other_threads__batches_go_round();
    close__tensors_alive__the_last_frees();
    close__tensors_deleted__frees();
    close__again_while_exported__does_nothing();
    close__again_while_batches_are_held__does_nothing();
    fork__child_deletes__parent_not_touched();
    calls__bad_arguments__refused();
    device__of_the_user__said();
    rows__of_ragged_batches__shown();
    rows__of_packed_batches__have_offsets();
    rows__until_the_last__batch_held();
    rows__that_are_not_there__refused();
    return test_end("dlpack");
}
