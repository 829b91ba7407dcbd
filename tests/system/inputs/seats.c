/* needs: parts pack lines mix */
/* Sources of a zip or mix that have a worker_state each, and requests: every worker has a seat for
   each of them. Two such sources are mixed 7 : 3, then filtered, expanded, shuffled in windows and
   packed, in threads and in processes, with workers that die, resumed at every batch by other
   workers. The rows are those that a plain program makes of the mix, and the states are those of
   sources without a state. Then: the calls of worker_init and worker_exit, also where one fails;
   how requests are divided; which input is blamed for a death; deadlines; ready sources. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/source_rig.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 8, ROOM = 64, BATCHES = 512, ROWS = 2048, TOKENS = 16, EPOCHS = 2, WORKERS = 32 };

static const dlp_field words_ = {
    .name = "words", .dtype = DLP_U16, .ndim = 1, .shape = {9}, .ragged = 1};

static const dlp_field number_ = {.name = "number", .dtype = DLP_U64};
static const dlp_field numbers_ = {
    .name = "numbers", .dtype = DLP_U16, .ndim = 1, .shape = {9}, .ragged = 1};

static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- the data: item i of branch b has words of its own ---- */

static uint32_t words_of(uint32_t b, uint64_t i) { return 1 + (uint32_t)(i * 5 + b) % 9; }
static uint16_t word_of(uint32_t b, uint64_t i, uint32_t k) {
    return (uint16_t)(b * 8000 + i * 10 + k + 1);
}
static int kept(uint64_t i) { return i % 3 != 0; }

/* ---- a source with a state, which answers later, in any order ---- */

typedef struct branch {
    uint32_t id;
    int async, states; /* it makes requests; its workers have a state */
} branch;

typedef struct store { /* the state of a seat */
    const branch *of;
    pid_t process;
    int worker;
    dlp_item *held[ROOM];
    uint64_t due[ROOM];
    uint32_t n, calls, refused;
} store;

typedef struct shared { /* of all processes */
    uint32_t enters[MOST], exits[MOST], most[MOST];
    uint32_t kills, random_kills, alone_wrong, calls, wrong;
    char log[WORKERS][64]; /* a: worker_init of branch 0; A: worker_exit */
} shared;

static struct {
    uint64_t delay_ns;
    int32_t fails;           /* worker_init of this branch fails in worker 0 */
    uint32_t kills, item;    /* the item of that branch that kills its worker */
    uint32_t deaths, silent; /* so often; it is answered so many ms late */
    int in_order, traced;    /* the datasets of a list have no mix; rows tell their list */
    uint32_t wrong, times; /* the item of that branch fails so often in each epoch; 0: none does */
    int ragged;            /* a second fetch writes as many numbers as the first writes words */
    uint32_t slow_us;      /* of a fetch without requests */
    uint32_t decode_us;    /* of each answer, in reap */
    uint32_t kill_every;   /* one of so many calls kills, but no item twice */
    int max_kills;
} how;

static branch branches_[MOST];
static shared *all_;
static uint8_t *killed_; /* [MOST][256] by random_kills */
static pid_t caller_;
static __thread uint32_t held_; /* requests that this worker has out, in all its seats */

static void note(int worker, char letter) {
    char *log = all_->log[worker % WORKERS];
    const size_t n = strlen(log);
    if (n + 1 < sizeof all_->log[0]) log[n] = letter;
}

static int store_open(void *user, int worker, void **state) {
    const branch *b = user;
    store *s;
    if (how.fails == (int32_t)b->id && worker == 0) return 7;
    s = calloc(1, sizeof *s);
    if (s == NULL) return 1;
    *s = (store){.of = b, .process = getpid(), .worker = worker};
    __atomic_add_fetch(&all_->enters[b->id], 1, __ATOMIC_SEQ_CST);
    note(worker, (char)('a' + b->id));
    *state = s;
    return 0;
}
static void store_close(void *user, int worker, void *state) {
    const branch *b = user;
    store *s = state;
    CHECK(s->of == b && s->worker == worker && s->n == 0);
    __atomic_add_fetch(&all_->exits[b->id], 1, __ATOMIC_SEQ_CST);
    note(worker, (char)('A' + b->id));
    free(s);
}

static void die(uint32_t *count) {
    __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    kill(getpid(), SIGKILL);
}

static void die_now_and_then(const branch *b, uint64_t i) {
    uint8_t *of = &killed_[b->id * 256 + i % 256];
    if (how.kill_every == 0 || getpid() == caller_) return;
    if (__atomic_add_fetch(&all_->calls, 1, __ATOMIC_SEQ_CST) % how.kill_every != 0) return;
    if (__atomic_exchange_n(of, 1, __ATOMIC_SEQ_CST) == 0) die(&all_->random_kills);
}

static int bad(const branch *b, uint64_t i) { return how.kills == b->id && how.item == i; }

/* True if the state is that of this branch, made by this worker in this process. */
static int own(const branch *b, const store *s, const dlp_item *it) {
    return s != NULL && s->of == b && s->process == getpid() && s->worker == (int)it->worker;
}

static int answer(const branch *b, dlp_item *it) {
    uint16_t *to = it->data[0];
    if (b->states) CHECK(own(b, it->worker_state, it));
    die_now_and_then(b, it->index);
    it->length[0] = words_of(b->id, it->index);
    for (uint32_t k = 0; k < it->length[0]; k++) to[k] = word_of(b->id, it->index, k);
    return 0;
}

static int fetch(void *user, dlp_item *it) {
    const branch *b = user;
    if (how.slow_us > 0) usleep(how.slow_us);
    if (how.fails >= 0) usleep(1000); /* the worker that fails comes in time */
    if (how.wrong == b->id && how.item == it->index && it->attempt < how.times) {
        __atomic_add_fetch(&all_->wrong, 1, __ATOMIC_SEQ_CST);
        return dlp_fail(it->call, 0, "no words for %d", (int)it->index);
    }
    if (bad(b, it->index) && it->epoch == 0 && how.deaths > 0) {
        if (all_->kills > 0 && held_ > 0) all_->alone_wrong++;
        if (all_->kills < how.deaths) die(&all_->kills);
    }
    return answer(b, it);
}

static dlp_mix *mix_;

/* Fetch an item of all datasets of mix_. */
static int fetch_all(void *user, dlp_item *it) {
    dlp_item one = *it;
    uint32_t b;
    (void)user;
    CHECK(dlp_mix_locate(mix_, it->index, &b, &one.index) == DLP_OK);
    return answer(&branches_[b], &one);
}

/* The second fetch of a branch: a number. */
static int fetch_more(void *user, dlp_item *it) {
    const branch *b = user;
    if (b->states) CHECK(own(b, it->worker_state, it));
    CHECK(it->n_fields == 1);
    die_now_and_then(b, it->index);
    if (how.wrong == b->id && how.item == it->index && it->attempt < how.times) {
        __atomic_add_fetch(&all_->wrong, 1, __ATOMIC_SEQ_CST);
        return dlp_fail(it->call, 0, "no number for %d", (int)it->index);
    }
    if (how.ragged) { /* a number for each word */
        it->length[0] = words_of(b->id - 4, it->index);
        for (uint32_t k = 0; k < it->length[0]; k++)
            ((uint16_t *)it->data[0])[k] = (uint16_t)(b->id * 1000 + it->index + k);
    } else {
        *(uint64_t *)it->data[0] = b->id * 1000 + it->index;
    }
    return 0;
}

static int submit(void *user, void *state, dlp_item *it) {
    const branch *b = user;
    store *s = state;
    if (!well(s != NULL && own(b->states ? b : s->of, s, it))) return DLP_ERR_CALLBACK;
    if (s->n == ROOM || ++s->calls % 11 == 3) return DLP_FULL;
    if (bad(b, it->index) && all_->kills > 0 && s->refused++ < 5) return DLP_FULL;
    s->held[s->n] = it;
    s->due[s->n++] =
        test_now_ns() + how.delay_ns + dlp_hash(1, it->index, s->calls, 0) % (how.delay_ns + 1);
    held_++;
    if (s->n > __atomic_load_n(&all_->most[b->id], __ATOMIC_SEQ_CST))
        __atomic_store_n(&all_->most[b->id], s->n, __ATOMIC_SEQ_CST);
    if (bad(b, it->index) && it->epoch == 0 && how.deaths > 0) {
        if (all_->kills > 0 && held_ > 1) all_->alone_wrong++;
        if (all_->kills < how.deaths) die(&all_->kills);
    }
    return 0;
}

static int reap_by(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms,
                   int (*by)(void *user, dlp_item *it)) {
    const branch *b = user;
    store *s = state;
    const uint64_t until = test_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    int n = 0;
    if (!well(s->of == b || !b->states)) return -1;
    do {
        for (uint32_t i = s->n; i > 0 && n < max; i--) { /* the last first */
            if (s->due[i - 1] > test_now_ns()) continue;
            if (how.silent != 0 && bad(b, s->held[i - 1]->index) &&
                test_now_ns() < s->due[i - 1] + how.silent * UINT64_C(1000000))
                continue;
            done[n] = s->held[i - 1];
            if (how.decode_us > 0) usleep(how.decode_us);
            code[n] = by(user, done[n]);
            n++;
            held_--;
            s->held[i - 1] = s->held[--s->n];
            s->due[i - 1] = s->due[s->n];
        }
        if (n == 0 && until > test_now_ns()) usleep(100);
    } while (n == 0 && test_now_ns() < until);
    return n;
}

static int answer_it(void *user, dlp_item *it) { return answer(user, it); }
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    return reap_by(user, state, done, code, max, timeout_ms, answer_it);
}
static int reap_more(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    return reap_by(user, state, done, code, max, timeout_ms, fetch_more);
}

static const dlp_async source_ = {.submit = submit, .reap = reap};
static const dlp_async more_source_ = {.submit = submit, .reap = reap_more};

/* ---- rows behind ---- */

static int keep(void *user, const dlp_item *it) {
    const uint64_t first = ((const uint16_t *)it->data[0])[0];
    (void)user;
    return kept(first % 8000 / 10);
}
static int twice(void *user, dlp_expand *x) {
    (void)user;
    for (int i = 0; i < 2; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        memcpy(it->data[0], x->item->data[0], x->item->length[0] * 2);
        it->length[0] = x->item->length[0];
    }
    return 0;
}

enum { NOTHING, FILTER, EXPAND, WINDOW, FILTER_WINDOW, PACK, FILTER_PACK, KINDS };
enum { WINDOW_ITEMS = 10 };

typedef struct table {
    dlp_node row[32];
    char names[32][16];
    const char *from[MOST + 1];
    uint64_t weights[MOST];
    uint32_t n, items[MOST], n_branches;
    dlp_workers_desc w;
    int32_t workers[MOST];
    uint32_t in_flight;
    int later; /* each branch has a second fetch: 1: by a callback, 2: by a source with a state,
                  3: by requests of such a source, 4: by requests, with the first fetch's state */
    uint32_t later_in_flight;
    dlp_workers_desc more; /* what a second fetch says of its failures */
} table;

static dlp_node *row(table *t, const char *name, uint32_t k, int32_t verb) {
    if (k < MOST)
        snprintf(t->names[t->n], sizeof t->names[0], "%s%u", name, (unsigned)k);
    else
        snprintf(t->names[t->n], sizeof t->names[0], "%s", name);
    t->row[t->n] = (dlp_node){.name = t->names[t->n], .verb = verb};
    return &t->row[t->n++];
}

/* A second fetch of branch k, by a callback or by a source. Its state is that of branch 4 + k. */
static void later_row(table *t, uint32_t k) {
    static dlp_dataset items[MOST];
    static dlp_source sources[MOST];
    const dlp_field *field = how.ragged ? &numbers_ : &number_;
    branch *b = &branches_[4 + k];
    dlp_node *to = row(t, "more", k, DLP_FETCH);
    *b = (branch){.id = 4 + k, .states = t->later == 2 || t->later == 3};
    to->workers = t->more;
    items[k] = (dlp_dataset){
        .n_items = t->items[k], .fields = field, .n_fields = 1, .fetch = fetch_more, .user = b};
    sources[k] = (dlp_source){
        .dataset = &items[k],
        .workers = {.worker_init = store_open, .worker_exit = store_close, .worker_user = b}};
    if (t->later == 3) {
        items[k].fetch = NULL;
        sources[k].async = more_source_;
        sources[k].fetcher = DLP_FETCH_ASYNC;
        sources[k].in_flight = (int32_t)t->later_in_flight;
    }
    if (t->later == 2 || t->later == 3)
        to->fetch.source = &sources[k];
    else
        to->fetch =
            (dlp_node_fetch){.fetch = fetch_more, .user = b, .fields = field, .n_fields = 1};
    if (t->later == 4) {
        to->fetch.fetch = NULL;
        to->fetch.async = &more_source_;
        to->fetch.in_flight = t->later_in_flight;
    }
}

static void rows_behind(table *t, int kind);

/* Write the rows of a table: its branches, a mix, and what stands behind. */
static void rows(table *t, int kind) {
    dlp_node *to;
    t->n = 0;
    for (uint32_t k = 0; k < t->n_branches; k++) {
        branch *b = &branches_[k];
        row(t, "list", k, DLP_LIST)->list.n_items = t->items[k];
        to = row(t, "read", k, DLP_FETCH);
        to->fetch = (dlp_node_fetch){.fields = &words_, .n_fields = 1, .user = b};
        if (b->async)
            to->fetch.async = &source_, to->fetch.in_flight = t->in_flight;
        else
            to->fetch.fetch = fetch;
        to->workers = t->w;
        to->workers.num_workers = t->workers[k];
        if (b->states) {
            to->workers.worker_init = store_open;
            to->workers.worker_exit = store_close;
            to->workers.worker_user = b;
        }
        if (t->later) later_row(t, k);
        t->from[k] = t->names[t->n - 1];
    }
    t->from[t->n_branches] = NULL;
    if (t->n_branches > 1) {
        to = row(t, "both", MOST, DLP_MIX);
        to->from = t->from;
        to->mix.weights = t->weights;
    }
    rows_behind(t, kind);
}

/* Write the rows of a table whose list is a mix of n datasets. by: 0: one fetch has all items, 1:
   each dataset has a fetch with a callback, 2: with a source that has a state. */
static void rows_of(table *t, int kind, uint32_t n, int by) {
    static dlp_dataset items[MOST];
    static dlp_source sources[MOST];
    dlp_node *to;
    t->n = 0;
    to = row(t, "list", MOST, DLP_LIST);
    if (!how.in_order)
        to->list.mix = mix_;
    else if (by == 0)
        to->list.n_items = dlp_mix_items(mix_);
    for (uint32_t k = 0; k < (by == 0 ? 1 : n); k++) {
        branch *b = &branches_[k];
        to = row(t, "read", k, DLP_FETCH);
        b->states = by == 2;
        to->fetch = (dlp_node_fetch){
            .fetch = by ? fetch : fetch_all, .fields = &words_, .n_fields = 1, .user = b};
        to->workers = k == 0 ? t->w : t->more;
        if (k == 0) to->workers.num_workers = t->workers[0];
        if (by == 2) {
            items[k] = (dlp_dataset){.n_items = t->items[k],
                                     .fields = &words_,
                                     .n_fields = 1,
                                     .fetch = fetch,
                                     .user = b};
            sources[k] = (dlp_source){.dataset = &items[k],
                                      .workers = {.worker_init = store_open,
                                                  .worker_exit = store_close,
                                                  .worker_user = b}};
            to->fetch = (dlp_node_fetch){.source = &sources[k]};
        }
        to->fetch.of = by ? k + 1 : 0;
    }
    if (t->later) later_row(t, 0);
    rows_behind(t, kind);
}

/* Write the rows that make items, and the batch. */
static void rows_behind(table *t, int kind) {
    if (kind == FILTER || kind == FILTER_WINDOW || kind == FILTER_PACK)
        row(t, "keep", MOST, DLP_FILTER)->filter.keep = keep;
    if (kind == EXPAND)
        row(t, "twice", MOST, DLP_EXPAND)->expand =
            (dlp_node_expand){.expand = twice, .max_out = 2, .fields = &words_, .n_fields = 1};
    if (kind == WINDOW || kind == FILTER_WINDOW)
        row(t, "window", MOST, DLP_WINDOW)->window.items = WINDOW_ITEMS;
    if (kind == PACK || kind == FILTER_PACK) row(t, "cut", MOST, DLP_PACK)->pack.tokens = TOKENS;
    row(t, "batch", MOST, DLP_BATCH)->batch.batch_size = 5;
}

/* Set up the branches of the next table. states: 0: plain fetches, by one worker each. */
static void begin(table *t, uint32_t n, int states, int async) {
    memset(t, 0, sizeof *t);
    memset(&how, 0, sizeof how);
    memset(killed_, 0, MOST * 256);
    how.fails = -1;
    how.kills = UINT32_MAX;
    how.delay_ns = 50000;
    t->n_branches = n;
    t->in_flight = t->later_in_flight = 16;
    for (uint32_t k = 0; k < n; k++) {
        branches_[k] = (branch){.id = k, .async = async, .states = states};
        t->weights[k] = k == 0 ? 7 : 3;
        t->items[k] = k == 0 ? 140 : 60;
        t->workers[k] = 1;
    }
}

typedef struct told {
    uint32_t n, n_rows, n_words, epoch_rows[EPOCHS], epoch_words[EPOCHS];
    int rc;
    uint64_t hash[BATCHES];
    dlp_state state[BATCHES];
    uint16_t first[ROWS];         /* word of each row */
    uint16_t word[ROWS * TOKENS]; /* of all rows, one after the other */
    dlp_error err;
    uint32_t in_flight;
} told;

static void tell(told *t, const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t r = 0; r < b->count; r++) {
        const dlp_tensor *f = &b->fields[0];
        const uint16_t *w = (const uint16_t *)f->data + r * (uint64_t)f->shape[1];
        h = dlp_hash(h, b->index[r], b->valid[r], f->lengths[r]);
        for (uint64_t k = 0; k < f->lengths[r]; k++) h = dlp_hash(h, w[k], k, 0);
        for (uint64_t k = 0; k < f->lengths[r] && b->n_fields > 2; k++) /* packed */
            h = dlp_hash(h, ((const uint16_t *)b->fields[1].data)[r * TOKENS + k], k, 1);
        if (b->n_fields == 2) h = dlp_hash(h, ((const uint64_t *)b->fields[1].data)[r], 0, 0);
        if (!b->valid[r] || t->n_rows == ROWS || b->epoch >= EPOCHS) continue;
        if (b->list != NULL) CHECK(b->list[r] == w[0] / 8000);
        t->first[t->n_rows++] = w[0];
        t->epoch_rows[b->epoch]++;
        for (uint64_t k = 0; k < f->lengths[r] && t->n_words < ROWS * TOKENS; k++)
            t->word[t->n_words++] = w[k], t->epoch_words[b->epoch]++;
    }
    t->hash[t->n] = h;
}

static void run(const table *t, const dlp_state *resume, told *to) {
    static dlp_stats s;
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = how.max_kills};
    const dlp_pipe_desc d = {
        .seed = 5, .epochs = EPOCHS, .resume = resume, .shm = &shm, .trace_rows = how.traced};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(to, 0, sizeof *to);
    memset(all_, 0, sizeof *all_);
    to->rc = dlp_pipe_open(&p, t->row, t->n, &d, &to->err);
    if (to->rc != DLP_OK) {
        printf("open: %s, %s: %s\n", to->err.stage, to->err.field, to->err.message);
        return;
    }
    while ((to->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && to->n < BATCHES) {
        tell(to, b);
        CHECK(dlp_pipe_state(p, b, &to->state[to->n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    to->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    const int both = dlp_node_stage(p, t->n_branches > 1 ? "both" : "keep");
    if (both >= 0) to->in_flight = (uint32_t)s.stages[both].in_flight;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (all_->kills + all_->random_kills + how.silent > 0) return;
    for (uint32_t k = 0; k < MOST; k++) CHECK(all_->enters[k] == all_->exits[k]);
}

static int alike(const told *a, const told *b, uint32_t from) {
    const int ok = a->rc == DLP_END && b->rc == DLP_END && a->n == b->n - from && a->n > 0 &&
                   memcmp(a->hash, b->hash + from, a->n * sizeof *a->hash) == 0 &&
                   memcmp(a->state, b->state + from, a->n * sizeof *a->state) == 0;
    if (!ok)
        printf("  %u of %u batches, code %d: %s: %s\n", a->n, b->n, a->rc, a->err.stage,
               a->err.message);
    return ok;
}

/* ---- the plain program ---- */

/* True if the rows of the mix alone are in the order of the lists, 7 to 3 in each 10 rows. */
static int mixed_well(const told *mix) {
    uint32_t next[2] = {0, 0}, in_ten[2] = {0, 0};
    for (uint32_t r = 0; r < mix->n_rows; r++) {
        const uint32_t b = mix->first[r] / 8000, i = mix->first[r] % 8000 / 10;
        if (b > 1 || i != next[b] % (b == 0 ? 140 : 60)) return 0;
        next[b]++, in_ten[b]++;
        if (r % 10 == 9 && (in_ten[0] != 7 || in_ten[1] != 3)) return 0;
        if (r % 10 == 9) in_ten[0] = in_ten[1] = 0;
    }
    return mix->n_rows == 400;
}

/* Write the first words of the rows that the plain program makes of the mix in one epoch, and their
   words, too. Returns how many rows. */
static uint32_t plain(const told *mix, uint64_t epoch, int kind, uint16_t *to, uint16_t *word,
                      uint32_t *n_words) {
    uint32_t n = 0;
    *n_words = 0;
    for (uint32_t r = (uint32_t)epoch * 200; r < (uint32_t)epoch * 200 + 200; r++) {
        const uint32_t b = mix->first[r] / 8000, i = mix->first[r] % 8000 / 10;
        if ((kind == FILTER || kind == FILTER_WINDOW || kind == FILTER_PACK) && !kept(i)) continue;
        for (int k = 0; k < (kind == EXPAND ? 2 : 1); k++) to[n++] = mix->first[r];
        for (uint32_t k = 0; k < words_of(b, i); k++) word[(*n_words)++] = word_of(b, i, k);
    }
    return n;
}

static int by_word(const void *a, const void *b) {
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* True if the rows are those of the plain program. Behind a window they are in any order in it. */
static int planned(const told *mix, told *got, int kind) {
    static uint16_t rows_of[ROWS], words[ROWS * TOKENS];
    uint32_t at = 0, at_word = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint32_t n_words;
        const uint32_t n = plain(mix, epoch, kind, rows_of, words, &n_words);
        if (kind == PACK || kind == FILTER_PACK) {
            if (got->epoch_words[epoch] != n_words ||
                memcmp(got->word + at_word, words, n_words * 2) != 0)
                return 0;
        } else {
            if (got->epoch_rows[epoch] != n) return 0;
            for (uint32_t k = 0; (kind == WINDOW || kind == FILTER_WINDOW) && k < n;
                 k += WINDOW_ITEMS) {
                const uint32_t in = n - k < WINDOW_ITEMS ? n - k : WINDOW_ITEMS;
                qsort(rows_of + k, in, 2, by_word);
                qsort(got->first + at + k, in, 2, by_word);
            }
            if (memcmp(got->first + at, rows_of, n * 2) != 0) return 0;
        }
        at += got->epoch_rows[epoch];
        at_word += got->epoch_words[epoch];
    }
    return 1;
}

/* ---- what is tested ---- */

static void mix__each_kind_behind_it__rows_of_the_plain_program(void) {
    static told mix, want, got;
    static table t;
    begin(&t, 2, 0, 0);
    rows(&t, NOTHING);
    run(&t, NULL, &mix);
    CHECK(mixed_well(&mix));
    for (int kind = FILTER; kind < KINDS; kind++) {
        begin(&t, 2, 0, 0);
        rows(&t, kind);
        run(&t, NULL, &want);
        CHECK(want.rc == DLP_END);
        for (int i = 0; i < 8; i++) {
            begin(&t, 2, 1, i % 4 != 3);
            if (i % 4 == 2) branches_[0].async = 0;
            t.workers[0] = 1 + i % 3;
            t.workers[1] = 1 + i / 3;
            t.in_flight = i == 0 ? 1 : 6;
            t.w.placement = i >= 4 && shm_missing() == NULL ? DLP_PLACE_PROCESSES : 0;
            rows(&t, kind);
            run(&t, NULL, &got);
            if (!well(alike(&got, &want, 0))) printf("  kind %d, case %d\n", kind, i);
            CHECK(planned(&mix, &got, kind));
            CHECK(all_->enters[0] == all_->enters[1] && all_->enters[0] > 0);
            CHECK(all_->enters[0] == (uint32_t)(t.workers[0] + t.workers[1]) ||
                  t.w.placement == DLP_PLACE_PROCESSES);
        }
        for (uint32_t k = 0; k + 1 < want.n; k += 3) { /* resumed, by other workers */
            begin(&t, 2, 1, k % 2 == 0);
            t.workers[0] = 1 + (int32_t)(k % 4);
            t.in_flight = 1 + k % 20;
            if (k % 7 == 1) branches_[1].async = 0;
            if (k % 5 == 1 && branches_[0].async + branches_[1].async == 0)
                t.workers[0] = t.workers[1] = DLP_NONE;
            rows(&t, kind);
            run(&t, &want.state[k], &got);
            CHECK(alike(&got, &want, k + 1));
        }
    }
}

static void workers__die__same_rows(void) {
    static told want, got;
    static table t;
    uint32_t deaths = 0;
    if (shm_missing() != NULL) return;
    for (int kind = FILTER; kind < KINDS; kind++) {
        begin(&t, 2, 0, 0);
        rows(&t, kind);
        run(&t, NULL, &want);
        for (int i = 0; i < 3; i++) {
            uint32_t dead;
            begin(&t, 2, 1, 1);
            if (i == 2) branches_[0].async = 0;
            t.workers[0] = 2;
            t.w.placement = DLP_PLACE_PROCESSES;
            how.kill_every = 23 + (uint32_t)kind;
            how.max_kills = 100;
            rows(&t, kind);
            run(&t, NULL, &got);
            if (!well(alike(&got, &want, 0))) printf("  kind %d, case %d\n", kind, i);
            dead = all_->random_kills;
            deaths += dead;
            /* a worker that replaces a dead one enters all seats again */
            CHECK(all_->enters[0] == all_->enters[1] && all_->enters[0] <= 3 + dead);
            CHECK(all_->exits[0] == all_->exits[1]);
        }
        for (uint32_t k = 4; k + 1 < want.n; k += 17) {
            begin(&t, 2, 1, 1);
            t.workers[0] = 1 + (int32_t)(k % 3);
            t.w.placement = DLP_PLACE_PROCESSES;
            how.kill_every = 31;
            how.max_kills = 100;
            rows(&t, kind);
            run(&t, &want.state[k], &got);
            CHECK(alike(&got, &want, k + 1));
            deaths += all_->random_kills;
        }
    }
    printf("  %u workers died\n", deaths);
    CHECK(deaths > 50);
}

/* The log of worker 0 must be `first`, and those of the others `others`. A process may come too
   late to begin. */
static void logs(const table *t, int32_t workers, const char *first, const char *others) {
    uint32_t begun = 0;
    for (int32_t i = 0; i < workers; i++) {
        const char *want = i == 0 ? first : others, *log = all_->log[i];
        begun += log[0] != 0;
        if (t->w.placement == DLP_PLACE_PROCESSES && log[0] == 0) continue;
        if (!well(strcmp(log, want) == 0))
            printf("  worker %d of %d: \"%s\", not \"%s\"\n", (int)i, (int)workers, log, want);
    }
    CHECK(begun > 0 || first[0] == 0);
}

static void init__each_branch__in_order_and_left_in_reverse(void) {
    static told got;
    static table t;
    for (int i = 0; i < 4; i++) {
        begin(&t, 3, 1, i & 1);
        if (i & 2) t.w.placement = DLP_PLACE_PROCESSES;
        if (i & 2 && shm_missing() != NULL) continue;
        rows(&t, FILTER);
        run(&t, NULL, &got);
        CHECK(got.rc == DLP_END);
        logs(&t, 3, "abcCBA", "abcCBA");
    }
}

static void init__fails_in_a_later_seat__the_others_are_left(void) {
    static told got;
    static table t;
    for (int i = 0; i < 12; i++) {
        char name[8];
        const char *first[] = {"", "aA", "abBA"};
        begin(&t, 3, 1, i & 1);
        if (i & 2) t.w.placement = DLP_PLACE_PROCESSES;
        if (i & 2 && shm_missing() != NULL) continue;
        how.fails = i / 4;
        how.delay_ns = 5000000;
        snprintf(name, sizeof name, "read%d", i / 4);
        rows(&t, i % 3 == 0 ? NOTHING : FILTER);
        run(&t, NULL, &got);
        if (!well(got.rc == DLP_ERR_CALLBACK && strcmp(got.err.stage, name) == 0))
            printf("  case %d: code %d: %s: %s\n", i, got.rc, got.err.stage, got.err.message);
        CHECK(strstr(got.err.message, "worker_init returned 7") != NULL);
        logs(&t, 1, first[i / 4], "");
    }
}

/* The consumer has a seat for each branch, too. */
static void init__in_the_consumer__one_seat_each(void) {
    static told want, got;
    static table t;
    begin(&t, 2, 0, 0);
    rows(&t, FILTER);
    run(&t, NULL, &want);
    begin(&t, 2, 1, 0);
    t.workers[0] = t.workers[1] = DLP_NONE;
    rows(&t, FILTER);
    run(&t, NULL, &got);
    CHECK(alike(&got, &want, 0));
    logs(&t, 1, "abBA", "");
}

/* Branches that are called alike have one seat. */
static void init__same_source_twice__one_seat(void) {
    static told got;
    static table t;
    for (int async = 0; async < 2; async++) {
        begin(&t, 3, 1, async);
        rows(&t, FILTER);
        t.row[3].workers.worker_user = t.row[5].workers.worker_user = &branches_[0];
        t.row[3].fetch.user = t.row[5].fetch.user = &branches_[0];
        run(&t, NULL, &got);
        CHECK(got.rc == DLP_END);
        logs(&t, 3, "aA", "aA");
        if (async) CHECK(got.in_flight == 16 && all_->most[0] > 1 && all_->most[0] <= 32);
    }
}

/* A second fetch by a source has a seat of its own: in a list, and in branches of a mix. */
static void later_fetch__by_a_source__has_its_own_state(void) {
    static told want, got;
    static table t;
    uint32_t deaths = 0;
    for (int i = 0; i < 24; i++) {
        const uint32_t n = 1 + (i & 1);
        const int kind = i / 12 ? FILTER_WINDOW : i % 5 == 4 ? FILTER_PACK : FILTER;
        uint32_t dead;
        begin(&t, n, 0, 0);
        t.later = 1;
        how.ragged = kind == FILTER_PACK;
        rows(&t, kind);
        run(&t, NULL, &want);
        CHECK(want.rc == DLP_END && want.n_rows > 20);
        begin(&t, n, i & 2, i & 4);
        if (!branches_[0].states) branches_[0].async = branches_[1].async = 0;
        t.later = 2;
        how.ragged = kind == FILTER_PACK;
        t.workers[0] = 1 + i % 3;
        if (i % 4 == 3 && shm_missing() == NULL) {
            t.w.placement = DLP_PLACE_PROCESSES;
            how.kill_every = i & 8 ? 29 : 0;
            how.max_kills = 100;
        }
        rows(&t, kind);
        run(&t, NULL, &got);
        if (!well(alike(&got, &want, 0))) printf("  case %d\n", i);
        dead = all_->random_kills;
        deaths += dead;
        for (uint32_t k = 0; k < n; k++) CHECK(all_->enters[4 + k] == all_->enters[4]);
        CHECK(all_->enters[4] >= (uint32_t)t.workers[0] || t.w.placement == DLP_PLACE_PROCESSES);
        if (dead == 0 && branches_[0].states)
            logs(&t, t.workers[0], n == 1 ? "aeEA" : "aebfFBEA", n == 1 ? "aeEA" : "aebfFBEA");
        for (uint32_t k = 0; k + 1 < want.n; k += 13) {
            begin(&t, n, i & 2, 0);
            t.later = 2;
            how.ragged = kind == FILTER_PACK;
            t.workers[0] = 1 + (int32_t)(k % 3);
            rows(&t, kind);
            run(&t, &want.state[k], &got);
            CHECK(alike(&got, &want, k + 1));
        }
    }
    CHECK(deaths > 10 || shm_missing() != NULL);
}

/* A second fetch by requests: many cells of a worker wait for their answers. The rows are those of
   a second fetch that reads one item after the other. */
static void later_fetch__by_requests__same_rows(void) {
    static const int kinds[] = {FILTER, EXPAND, PACK, FILTER_WINDOW, FILTER_PACK, WINDOW};
    static told want, got;
    static table t;
    uint32_t deaths = 0;
    for (int i = 0; i < 36; i++) {
        const uint32_t n = 1 + (i & 1);
        const int kind = kinds[i / 2 % 6];
        const int async = i % 3 == 0; /* the first fetch, too */
        uint32_t dead;
        begin(&t, n, 0, 0);
        t.later = 1;
        how.ragged = kind == PACK || kind == FILTER_PACK;
        rows(&t, kind);
        run(&t, NULL, &want);
        CHECK(want.rc == DLP_END && want.n_rows > 20);
        begin(&t, n, 1, async);
        t.later = async || i % 4 == 1 ? 3 : 4;
        how.ragged = kind == PACK || kind == FILTER_PACK;
        t.workers[0] = 1 + i / 12;
        t.later_in_flight = i % 5 == 0 ? 1 : 3 + (uint32_t)i % 11;
        if (i % 7 == 0) branches_[0].async = 0; /* of two branches one */
        if (i >= 12 && shm_missing() == NULL) {
            t.w.placement = DLP_PLACE_PROCESSES;
            how.kill_every = i >= 24 ? 29 : 0;
            how.max_kills = 100;
        }
        rows(&t, kind);
        run(&t, NULL, &got);
        if (!well(alike(&got, &want, 0))) printf("  case %d\n", i);
        dead = all_->random_kills;
        deaths += dead;
        for (uint32_t k = 0; k < n && dead == 0; k++)
            CHECK(all_->most[4 + k] > (t.later_in_flight > 2));
        for (uint32_t k = 0; k < n; k++) CHECK(all_->most[4 + k] <= t.later_in_flight * 2);
        for (uint32_t k = (uint32_t)i % 5; k + 1 < want.n; k += 13) {
            begin(&t, n, 1, k % 2);
            t.later = k % 2 ? 3 : 4 - (int)(k / 13 % 2);
            how.ragged = kind == PACK || kind == FILTER_PACK;
            t.workers[0] = 1 + (int32_t)(k % 3);
            t.later_in_flight = 1 + k % 9;
            rows(&t, kind);
            run(&t, &want.state[k], &got);
            if (!well(alike(&got, &want, k + 1))) printf("  case %d, resumed at %u\n", i, k);
        }
    }
    printf("  %u workers died\n", deaths);
    CHECK(deaths > 10 || shm_missing() != NULL);
}

/* 64 inputs wait for 5 ms each: one after the other, or 16 at once in one worker. */
static void later_fetch__by_requests__many_at_once(void) {
    static told got;
    static table t;
    uint64_t ns[2];
    for (int many = 0; many < 2; many++) {
        begin(&t, 1, 1, 0);
        t.items[0] = 64;
        t.later = 3;
        t.later_in_flight = many ? 16 : 1;
        how.delay_ns = 3333333; /* to twice as long */
        rows(&t, FILTER);
        ns[many] = test_now_ns();
        run(&t, NULL, &got);
        ns[many] = test_now_ns() - ns[many];
        CHECK(got.rc == DLP_END && all_->most[4] == t.later_in_flight);
        CHECK((int)got.in_flight == (int)t.later_in_flight);
    }
    printf("  128 requests of 5 ms: %.0f ms one by one, %.0f ms with 16 at once\n",
           (double)ns[0] / 1e6, (double)ns[1] / 1e6);
    CHECK_SOON(ns[1] * 8 < ns[0]);
}

/* The fetches of a list's datasets, each with a state of its own, are one fetch of all items. So
   they are in front of a second fetch. */
static void fetch_of_each_dataset__before_makers__as_one_fetch(void) {
    static told want, got;
    static table t;
    uint32_t deaths = 0;
    for (int i = 0; i < 24; i++) {
        const int kind = FILTER + i % (KINDS - FILTER);
        const uint32_t n = 2 + (uint32_t)i % 2;
        begin(&t, 1, 0, 0);
        for (uint32_t k = 0; k < n; k++) t.items[k] = 40 + 30 * k, t.weights[k] = 3 - k;
        for (uint32_t k = 0; k < n; k++) branches_[k] = (branch){.id = k};
        CHECK(dlp_mix_open(&mix_,
                           &(dlp_mix_desc){.n = n,
                                           .n_items = (uint64_t[]){t.items[0], t.items[1], 100},
                                           .weights = t.weights,
                                           .seed = 5,
                                           .shuffle = 1},
                           NULL) == DLP_OK);
        t.items[2] = 100;
        how.in_order = i % 4 == 3;
        how.traced = i % 4 == 2;
        t.later = i % 2 == 1 && kind != PACK && kind != FILTER_PACK; /* also without a mix */
        rows_of(&t, kind, n, 0);
        run(&t, NULL, &want);
        CHECK(want.rc == DLP_END && want.n_rows > 20);
        t.workers[0] = 1 + i % 3;
        if (i >= 12 && shm_missing() == NULL) {
            t.w.placement = DLP_PLACE_PROCESSES;
            how.kill_every = i >= 18 ? 29 : 0;
            how.max_kills = 100;
        }
        rows_of(&t, kind, n, how.in_order ? 2 : 1 + i / 6 % 2);
        run(&t, NULL, &got);
        if (!well(alike(&got, &want, 0))) printf("  case %d\n", i);
        deaths += all_->random_kills;
        if (i >= 6 && i < 12)
            logs(&t, t.workers[0], n == 2 ? "abBA" : "abcCBA", n == 2 ? "abBA" : "abcCBA");
        t.w.placement = 0;
        for (uint32_t k = 0; k + 1 < want.n; k += 11) {
            t.workers[0] = 1 + (int32_t)(k % 3);
            rows_of(&t, kind, n, how.in_order ? 2 : 1 + (int)k % 2);
            run(&t, &want.state[k], &got);
            if (!well(alike(&got, &want, k + 1))) printf("  case %d, resumed at %u\n", i, k);
        }
        dlp_mix_close(mix_);
    }
    CHECK(deaths > 5 || shm_missing() != NULL);
}

/* What fails is tried again, left out and named by the row of its dataset. */
static void fetch_of_a_dataset__fails__what_its_row_says(void) {
    static told got;
    static table t;
    CHECK(dlp_mix_open(&mix_, &(dlp_mix_desc){.n = 2, .n_items = (uint64_t[]){40, 70}, .seed = 5},
                       NULL) == DLP_OK);
    for (int i = 0; i < 8; i++) {
        const int enough = i & 1, drops = i & 2;
        begin(&t, 1, 0, 0);
        for (uint32_t k = 0; k < 2; k++) branches_[k] = (branch){.id = k}, t.items[k] = 40 + 30 * k;
        t.more.retries = 1 + enough;
        t.more.on_error = drops ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE;
        t.more.max_skips = drops ? 9 : 0;
        how.wrong = 1;
        how.item = 31;
        how.times = 2;
        rows_of(&t, FILTER, 2, i & 4 ? 2 : 1);
        run(&t, NULL, &got);
        CHECK(all_->wrong > 0 && all_->wrong % 2 == 0);
        if (enough || drops) {
            uint32_t n = 0;
            CHECK(got.rc == DLP_END);
            for (uint32_t r = 0; r < got.n_rows; r++) n += got.first[r] == word_of(1, 31, 0);
            CHECK(enough ? n == all_->wrong / 2 : n == 0);
        } else {
            CHECK(got.rc == DLP_ERR_CALLBACK && got.err.index == 40 + 31);
            CHECK(strcmp(got.err.stage, "read1") == 0 &&
                  strstr(got.err.message, "no words for 31"));
        }
        if (got.rc != DLP_END && (enough || drops)) printf("  case %d: %s\n", i, got.err.message);
    }
    dlp_mix_close(mix_);
}

static void fetch_of_a_dataset__that_cannot_be__refused_by_name(void) {
    static const char *const words[] = {"no async or in_flight", "give all datasets the same",
                                        "has no fetch node", "must be 2"};
    static table t;
    CHECK(dlp_mix_open(&mix_, &(dlp_mix_desc){.n = 2, .n_items = (uint64_t[]){40, 70}, .seed = 1},
                       NULL) == DLP_OK);
    for (int i = 0; i < 4; i++) {
        dlp_plan plan;
        dlp_error e;
        begin(&t, 1, 0, 0);
        t.items[0] = 40, t.items[1] = 70;
        rows_of(&t, FILTER, 2, 1);
        if (i == 0) t.row[2].fetch.async = &source_, t.row[2].fetch.fetch = NULL;
        if (i == 1) t.row[2].fetch.fields = &number_;
        if (i == 2) memmove(&t.row[2], &t.row[3], 3 * sizeof t.row[0]), t.n--;
        if (i == 3) t.row[2].fetch.of = 1;
        CHECK(dlp_nodes_plan(t.row, t.n, &(dlp_pipe_desc){.seed = 1}, &plan, &e) != DLP_OK);
        if (!well(strstr(e.message, words[i]) != NULL)) printf("  %d: %s\n", i, e.message);
    }
    dlp_mix_close(mix_);
}

static void later_fetch__that_cannot_be__refused_by_name(void) {
    static table t;
    for (int i = 0; i < 5; i++) {
        const char *words[] = {"leave in_flight out", "has 139 items, must have 140",
                               "leave worker_init", "third later fetch by a source",
                               "write this row above"};
        dlp_dataset items, first;
        dlp_source source, other;
        dlp_plan plan;
        dlp_error e;
        begin(&t, 1, 1, 0);
        t.later = 2;
        rows(&t, NOTHING);
        source = *t.row[2].fetch.source;
        items = *source.dataset;
        source.dataset = &items;
        t.row[2].fetch.source = &source;
        if (i == 0) t.row[2].fetch.in_flight = 3;
        if (i == 1) {
            first = (dlp_dataset){.n_items = 140, .fields = &words_, .n_fields = 1, .fetch = fetch};
            other = (dlp_source){.dataset = &first};
            items.n_items = 139;
            t.row[0].list.n_items = 0;
            t.row[1].fetch = (dlp_node_fetch){.source = &other};
        }
        if (i == 2) t.row[2].workers.worker_init = store_open;
        if (i == 4) items.fetch = NULL, source.async = source_;
        t.n--;
        for (uint32_t k = 1; k < 3 && i == 3; k++)
            row(&t, "more", k, DLP_FETCH)->fetch.source = &source;
        row(&t, "keep", MOST, DLP_FILTER)->filter.keep = keep;
        row(&t, "batch", MOST, DLP_BATCH)->batch.batch_size = 5;
        CHECK(dlp_nodes_plan(t.row, t.n, &(dlp_pipe_desc){.seed = 1}, &plan, &e) != DLP_OK);
        if (!well(strstr(e.message, words[i]) != NULL)) printf("  %s\n", e.message);
        CHECK(strstr(e.message, "more") != NULL || strstr(e.stage, "more") != NULL);
    }
}

/* Sources without a worker_init need no seat: only two later fetches may have one. */
static void later_fetch__many_by_sources__two_with_a_state(void) {
    for (int states = 1; states < 4; states++) {
        dlp_field fields[4];
        dlp_dataset items[4];
        dlp_source sources[4];
        static table t;
        dlp_plan plan;
        dlp_error e;
        int rc;
        begin(&t, 1, 0, 0);
        rows(&t, NOTHING);
        t.n--;
        for (uint32_t k = 0; k < 4; k++) {
            static const char *const names[] = {"a", "b", "c", "d"};
            fields[k] = (dlp_field){.name = names[k], .dtype = DLP_U64};
            items[k] = (dlp_dataset){.n_items = 140,
                                     .fields = &fields[k],
                                     .n_fields = 1,
                                     .fetch = fetch_more,
                                     .user = &branches_[4]};
            sources[k] = (dlp_source){.dataset = &items[k]};
            if ((int)k < states) sources[k].workers.worker_init = store_open;
            row(&t, "more", k, DLP_FETCH)->fetch.source = &sources[3 - k]; /* these last */
        }
        row(&t, "keep", MOST, DLP_FILTER)->filter.keep = keep;
        row(&t, "batch", MOST, DLP_BATCH)->batch.batch_size = 5;
        rc = dlp_nodes_plan(t.row, t.n, &(dlp_pipe_desc){.seed = 1}, &plan, &e);
        if (!well(states < 3 ? rc == DLP_OK : rc == DLP_ERR_GRAPH && strcmp(e.stage, "more3") == 0))
            printf("  %d: %s: %s\n", states, e.stage, e.message);
    }
}

/* Requests of a branch with 2 workers and one with 1 are divided among 3 workers. */
static void requests__of_each_branch__divided_among_all_workers(void) {
    static told got;
    static table t;
    begin(&t, 2, 1, 1);
    t.workers[0] = 2;
    how.delay_ns = 2000000;
    rows(&t, FILTER);
    run(&t, NULL, &got);
    CHECK(got.rc == DLP_END && got.in_flight == 11 + 6);
    CHECK(all_->most[0] == 11 && all_->most[1] == 6);
}

/* Let input 31 of branch `of` kill its worker process so many times, in case i of a table. Fewer
   than three times its rows come, and each time it was alone in all seats. */
static void dies_alone(table *t, int i, uint32_t of, uint32_t deaths, const told *want) {
    static told got;
    t->w.placement = DLP_PLACE_PROCESSES;
    t->workers[0] = 1 + i % 3;
    how.kills = of;
    how.item = 31;
    how.deaths = deaths;
    rows(t, FILTER);
    run(t, NULL, &got);
    CHECK(all_->kills == deaths);
    if (!well(all_->alone_wrong == 0)) printf("  case %d\n", i);
    if (deaths >= 3)
        CHECK(got.rc == DLP_ERR_KILLED && got.err.index == 31);
    else if (!well(alike(&got, want, 0)))
        printf("  case %d\n", i);
}

/* What may have killed a worker is alone in all its seats: a request of a second fetch, or what an
   input of a first fetch is made of while second fetches are out. */
static void later_fetch__kills__is_alone_in_all_seats(void) {
    static told want;
    static table t;
    if (shm_missing() != NULL) return;
    for (int i = 0; i < 24; i++) {
        const uint32_t n = 1 + (i & 1), of = i % 4 < 2 ? 4 : 0;
        begin(&t, n, 0, 0);
        t.later = 1;
        rows(&t, FILTER);
        run(&t, NULL, &want);
        begin(&t, n, 1, i & 4);
        t.later = 3;
        t.later_in_flight = i & 8 ? 2 : 12;
        dies_alone(&t, i, of, 1 + (uint32_t)i / 8, &want);
    }
}

/* True if the rows of all epochs are those of branch 0 that are kept, without `item`. */
static int all_but(const told *got, uint32_t item) {
    uint32_t next = 0, wrong = 0;
    for (uint32_t r = 0; r < got->n_rows; r++) {
        if (r == got->epoch_rows[0]) next = 0;
        while (!kept(next) || next == item) next++;
        wrong += got->first[r] != word_of(0, next++, 0);
    }
    return wrong == 0 && got->n_rows > 180;
}

/* An answer of a second fetch that fails is tried again from the first fetch on, as its row says,
   then it fails the input, by the name of the row. */
static void later_fetch__fails__what_its_row_says(void) {
    static told got;
    static table t;
    for (int i = 0; i < 16; i++) {
        const int enough = i & 1, drops = i & 2, async = i & 4;
        begin(&t, 1, 1, async);
        t.later = async || i & 8 ? 3 : 4;
        t.more.retries = 1 + enough;
        t.more.retry_backoff_ms = i & 8 ? 1 : 0;
        t.w.retries = 7; /* of the first fetch */
        t.more.on_error = drops ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE;
        t.more.max_skips = drops ? 5 : 0;
        t.workers[0] = 1 + i % 3;
        how.wrong = 4;
        how.item = 31;
        how.times = 2;
        rows(&t, FILTER);
        run(&t, NULL, &got);
        /* of two epochs; or of one, and the next one may have been begun */
        const bool tried = enough || drops ? all_->wrong == 4 : all_->wrong >= 2;
        CHECK(tried && all_->wrong <= 4);
        if (enough) {
            CHECK(got.rc == DLP_END && all_but(&got, UINT32_MAX));
        } else if (drops) {
            CHECK(got.rc == DLP_END && all_but(&got, 31));
        } else {
            CHECK(got.rc == DLP_ERR_CALLBACK && got.err.index == 31);
            CHECK(strcmp(got.err.stage, "more0") == 0 && strstr(got.err.message, "no number"));
        }
        if (!tried) printf("  case %d: %s: %s\n", i, got.err.stage, got.err.message);
    }
}

/* A request of a second fetch that is never answered costs its worker and its input, and nothing
   else. The deadline is that of its row. */
static void later_fetch__past_its_deadline__its_input_alone_is_left_out(void) {
    static told got;
    static table t;
    if (shm_missing() != NULL) return;
    for (int i = 0; i < 6; i++) {
        begin(&t, 1, 1, i & 1);
        t.later = 3;
        t.w.placement = DLP_PLACE_PROCESSES;
        t.workers[0] = 1 + i % 2;
        t.more.on_error = DLP_ON_ERROR_DROP;
        t.more.max_skips = 5;
        t.more.deadline_ms = 200;
        how.kills = 4;
        how.item = 31;
        how.silent = 1000000;
        rows(&t, i < 4 ? FILTER : FILTER_WINDOW);
        run(&t, NULL, &got);
        CHECK(got.rc == DLP_END);
        if (i < 4) CHECK(all_but(&got, 31));
        if (got.rc != DLP_END) printf("  case %d: %s\n", i, got.err.message);
    }
    begin(&t, 1, 1, 0); /* in a thread it is the pipe's error */
    t.later = 3;
    t.more.deadline_ms = 100;
    how.kills = 4;
    how.item = 31;
    how.silent = 500;
    rows(&t, FILTER);
    run(&t, NULL, &got);
    CHECK(got.rc == DLP_ERR_DEADLINE && strcmp(got.err.stage, "more0") == 0);
    if (got.rc != DLP_ERR_DEADLINE) printf("  %d: %s\n", got.rc, got.err.message);
}

/* What may have killed a worker is alone in all its seats, until it is poison. */
static void input__kills__is_alone_in_all_seats(void) {
    static told want;
    static table t;
    if (shm_missing() != NULL) return;
    for (int i = 0; i < 12; i++) {
        const uint32_t of = i & 1;
        begin(&t, 2, 0, 0);
        rows(&t, FILTER);
        run(&t, NULL, &want);
        begin(&t, 2, 1, 1);
        if (i & 2) branches_[of].async = 0;
        dies_alone(&t, i, of, 1 + (uint32_t)i / 4, &want);
    }
}

/* A request that is never answered costs its worker and its input, and nothing else, also while
   another seat of the worker goes on. */
static void request__past_its_deadline__its_input_alone_is_left_out(void) {
    static told got;
    static table t;
    if (shm_missing() != NULL) return;
    for (int i = 0; i < 4; i++) {
        uint32_t next[2] = {0, 0};
        begin(&t, 2, 1, 1);
        if (i & 2) branches_[1 - (i & 1)].async = 0;
        t.w.placement = DLP_PLACE_PROCESSES;
        t.w.on_error = DLP_ON_ERROR_DROP;
        t.w.max_skips = 5;
        t.w.deadline_ms = 200;
        how.kills = i & 1;
        how.item = 31;
        how.silent = 1000000;
        rows(&t, FILTER);
        run(&t, NULL, &got);
        CHECK(got.rc == DLP_END && got.n_rows > 200);
        if (got.rc != DLP_END) printf("  case %d: %s\n", i, got.err.message);
        for (uint32_t r = 0; r < got.n_rows; r++) {
            const uint32_t b = got.first[r] / 8000, k = got.first[r] % 8000 / 10;
            if (r == got.epoch_rows[0]) next[0] = next[1] = 0;
            while (!kept(next[b]) || (b == how.kills && next[b] == how.item)) next[b]++;
            CHECK(k == next[b]++);
        }
    }
}

/* Time in which a worker is in callbacks of other seats does not count for a request. */
static void request__while_other_seats_load__not_late(void) {
    static told got;
    static table t;
    for (int processes = 0; processes < 2; processes++) {
        if (processes && shm_missing() != NULL) continue;
        begin(&t, 3, 1, 0);
        branches_[2].async = 1;
        for (uint32_t k = 0; k < 3; k++) t.items[k] = 12, t.weights[k] = 1;
        t.w.placement = processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
        t.w.deadline_ms = 100;
        how.slow_us = 60000;
        rows(&t, FILTER);
        run(&t, NULL, &got);
        CHECK_SOON(got.rc == DLP_END);
        if (got.rc != DLP_END) printf("  %s\n", got.err.message);
    }
}

/* Nor does time in which a worker is in reap of other seats, which decode what they have read. */
static void request__while_other_seats_decode__not_late(void) {
    static told got;
    static table t;
    for (int processes = 0; processes < 2; processes++) {
        if (processes && shm_missing() != NULL) continue;
        begin(&t, 4, 1, 1);
        for (uint32_t k = 0; k < 4; k++) t.items[k] = 64, t.weights[k] = 1;
        t.in_flight = 32;
        t.w.placement = processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
        t.w.deadline_ms = 200;
        how.decode_us = 10000; /* 8 answers of each seat */
        rows(&t, NOTHING);
        run(&t, NULL, &got);
        CHECK_SOON(got.rc == DLP_END);
        if (got.rc != DLP_END) printf("  %s\n", got.err.message);
    }
}

/* Workers with 8 seats wait for all of them at once: 32 requests of 20 ms each. */
static void sources__eight_in_a_worker__all_requests_are_out(void) {
    static told got;
    static table t;
    uint64_t ns;
    begin(&t, 8, 1, 1);
    for (uint32_t k = 0; k < 8; k++) t.items[k] = 64, t.weights[k] = 1;
    t.in_flight = 32;
    how.delay_ns = 10000000;
    rows(&t, FILTER);
    ns = test_now_ns();
    run(&t, NULL, &got);
    ns = test_now_ns() - ns;
    CHECK(got.rc == DLP_END && got.n_rows > 600);
    CHECK(all_->most[0] <= 4);
    printf("  1024 requests of 10 to 20 ms, 256 at once, took %.0f ms\n", (double)ns / 1e6);
    CHECK_SOON(ns < 400000000);
}

/* ---- ready sources ---- */

static int parse(void *user, void *state, dlp_item *it, const char *line, uint64_t n) {
    const unsigned long x = strtoul(line, NULL, 10);
    (void)user, (void)state, (void)n;
    *(uint64_t *)it->data[0] = x;
    return 0;
}
static int keep_number(void *user, const dlp_item *it) {
    (void)user;
    return kept(*(const uint64_t *)it->data[0] % 1000);
}

/* Bytes of the sources' workers in a plan. */
static uint64_t planned_bytes(const dlp_plan *plan) {
    for (uint32_t i = 0; i < plan->n_lines; i++)
        if (strstr(plan->lines[i].what, "what they read") != NULL) return plan->lines[i].bytes;
    return 0;
}

/* Two corpora of lines, then two folders of files, are mixed 7 : 3 and filtered. */
static void ready_sources__mixed_and_filtered__each_item_once(void) {
    static const dlp_field number = {.name = "x", .dtype = DLP_U64};
    static char name[2][100][64];
    static const char *paths[2][100];
    static dlp_plan plan;
    for (int files = 0; files < 2; files++) {
        dlp_source *source[2] = {NULL, NULL};
        uint64_t next[2] = {0, 0}, n = 0;
        const uint64_t most[2] = {70, 30};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error e;
        int rc = DLP_OK;
        for (uint32_t k = 0; k < 2; k++) {
            char text[100 * 8];
            size_t at = 0;
            for (uint64_t i = 0; i < most[k]; i++) {
                const uint64_t x = k * 1000 + i;
                snprintf(name[k][i], sizeof name[0][0], "f%u-%u", (unsigned)k, (unsigned)i);
                snprintf(name[k][i], sizeof name[0][0], "%s", rig_write(name[k][i], &x, 8));
                paths[k][i] = name[k][i];
                at += (size_t)sprintf(text + at, "%u\n", (unsigned)x);
            }
            if (files)
                rc |= dlp_files_open(
                    &source[k],
                    &(dlp_files_desc){
                        .n_items = most[k], .fields = &number, .n_fields = 1, .paths = paths[k]},
                    &e);
            else
                rc |= dlp_lines_open(&source[k],
                                     &(dlp_lines_desc){.path = rig_write(k ? "b" : "a", text, at),
                                                       .fields = &number,
                                                       .n_fields = 1,
                                                       .parse = parse,
                                                       .index = ""},
                                     &e);
        }
        if (!well(rc == DLP_OK)) return;
        {
            const uint64_t weights[] = {7, 3};
            const dlp_node nodes[] = {
                {.name = "some", .verb = DLP_LIST},
                {.name = "a", .verb = DLP_FETCH, .fetch = {.source = source[0]}},
                {.name = "more", .verb = DLP_LIST},
                {.name = "b", .verb = DLP_FETCH, .fetch = {.source = source[1]}},
                {.name = "both",
                 .verb = DLP_MIX,
                 .from = (const char *[]){"a", "b", NULL},
                 .mix = {.weights = weights}},
                {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_number}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 5}}};
            CHECK(dlp_nodes_plan(DLP_NODES(nodes), NULL, &plan, &e) == DLP_OK);
            CHECK(planned_bytes(&plan) ==
                  2 * (source[0]->dataset->worker_bytes + source[1]->dataset->worker_bytes));
            rc = dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 1}, &e);
            if (!well(rc == DLP_OK)) printf("open: %s, %s: %s\n", e.stage, e.field, e.message);
        }
        while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                const uint64_t x = ((const uint64_t *)b->fields[0].data)[r], k = x / 1000;
                if (!b->valid[r] || !well(k < 2)) continue;
                while (!kept(next[k])) next[k]++;
                CHECK(x % 1000 == next[k]++);
                n++;
            }
            dlp_pipe_release(p, b);
        }
        CHECK(n == 46 + 20);
        if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int k = 0; k < 2; k++) dlp_source_close(source[k]);
    }
}

int main(void) {
    caller_ = getpid();
    all_ = mmap(NULL, sizeof *all_ + MOST * 256, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (all_ == MAP_FAILED) return 1;
    killed_ = (uint8_t *)(all_ + 1);
    rig_begin("seats");
    mix__each_kind_behind_it__rows_of_the_plain_program();
    workers__die__same_rows();
    init__each_branch__in_order_and_left_in_reverse();
    init__fails_in_a_later_seat__the_others_are_left();
    init__in_the_consumer__one_seat_each();
    init__same_source_twice__one_seat();
    later_fetch__by_a_source__has_its_own_state();
    fetch_of_each_dataset__before_makers__as_one_fetch();
    fetch_of_a_dataset__fails__what_its_row_says();
    fetch_of_a_dataset__that_cannot_be__refused_by_name();
    later_fetch__by_requests__same_rows();
    later_fetch__kills__is_alone_in_all_seats();
    later_fetch__fails__what_its_row_says();
    later_fetch__past_its_deadline__its_input_alone_is_left_out();
    test_tries(later_fetch__by_requests__many_at_once);
    later_fetch__that_cannot_be__refused_by_name();
    later_fetch__many_by_sources__two_with_a_state();
    requests__of_each_branch__divided_among_all_workers();
    input__kills__is_alone_in_all_seats();
    request__past_its_deadline__its_input_alone_is_left_out();
    test_tries(request__while_other_seats_load__not_late);
    test_tries(request__while_other_seats_decode__not_late);
    test_tries(sources__eight_in_a_worker__all_requests_are_out);
    ready_sources__mixed_and_filtered__each_item_once();
    rig_end();
    if (shm_missing() != NULL) test_skip(shm_missing());
    return test_end("seats");
}
