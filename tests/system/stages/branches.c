/* needs: parts pictures */
/* Tables whose zip or mix joins branches, drawn at random, beside a plain program that writes down
   every row of every stream. Workers, deaths, ranks and places to resume from differ from life to
   life; the rows, and the states of two schedules, do not. What such a table may not say is refused
   with the name of the row. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/inside_push.h"
#include "../../rig/keyed.h"
#include "../../rig/reduce.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_BRANCHES = 4, MOST_STREAMS = 6, MOST_ROWS = 4000, MOST_OUT = 9, EPOCHS = 2, LIVES = 4 };
enum { MOST_LEGS = 3, MOST_PERIOD = 1 << 12 };
enum { FETCH, FETCH_FILTER, EXPAND, EXPAND_FILTER, EXPAND_ALONE, KINDS };

typedef struct branch {
    uint32_t id, n;
    int shuffle, kind, skips, shuffle_items;
    uint32_t torn; /* of so many inputs one can't be read, and is left out; 0: none */
    char list[8], read[8], make[8], keep[8], x[8], t[8];
    dlp_field in, out[2];
} branch;

typedef struct life {
    uint32_t world, stop; /* stop: batches that each rank takes; UINT32_MAX: to the end */
    int workers, copies, prefetch, processes;
    int seeks;     /* before it goes on, the pipe leaves the epoch, and seeks back */
    uint32_t more; /* cells of a branch beyond the default's; 0: the default */
    uint32_t legs; /* of the table: all that begin before the life ends */
} life;

typedef struct config {
    uint64_t seed;
    int zip, map, drops, raises, agrees, flat, sets, steps, last, shared, lives;
    uint32_t n, streams, batch, kill_every;
    uint64_t weights[MOST_BRANCHES], period;
    int has_legs;    /* the table of a mix gives legs, maybe none */
    uint32_t n_legs; /* behind the first one */
    struct leg {
        uint64_t from, weights[MOST_BRANCHES];
        uint64_t period;
    } leg[MOST_LEGS];
    branch at[MOST_BRANCHES];
    life life[LIVES];
} config;

static config now_;
typedef struct shared { /* of all processes */
    uint64_t epoch;     /* that set_epoch began */
    uint32_t early;     /* calls for items of another epoch */
    uint32_t calls, killed[MOST_BRANCHES][256];
} shared;

static shared *shared_;
static pid_t caller_; /* never to be killed */
static int forks_;    /* 0: an emulator or the thread sanitizer has threads of its own */

static uint32_t pick(uint64_t *state, uint32_t n) {
    *state = mixed(*state, 1);
    return (uint32_t)(*state >> 33) % n;
}

/* ---- the data ---- */

static uint64_t word_of(uint32_t id, uint64_t input, uint64_t number) {
    return mixed(mixed(mixed(17, id), input), number);
}
static int is_torn(const branch *b, uint64_t input) {
    return b->torn > 0 && word_of(b->id, input, 1001) % b->torn == 0;
}
static uint32_t made_of(const branch *b, uint64_t input) {
    if (b->kind < EXPAND) return 1;
    return (uint32_t)(word_of(b->id, input, 1000) % (MOST_OUT + 1));
}
/* Of a branch of a zip that only fetches: has the input no item, but a place? */
static int only_place(const branch *b, uint64_t input) {
    return now_.zip && b->kind == FETCH &&
           (is_torn(b, input) || (b->skips && word_of(b->id, input, 1002) % 5 == 0));
}
static int kept(const branch *b, uint64_t input, uint64_t number) {
    return (b->kind != FETCH_FILTER && b->kind != EXPAND_FILTER) ||
           word_of(b->id, input, number) % 3 != 0;
}
static uint64_t list_seed(const branch *b) {
    return b->id > 0 ? mixed(now_.seed, b->id) : now_.seed;
}
/* Which of the n items that are left of an input comes at this place. */
static uint64_t item_at(const branch *b, uint64_t epoch, uint64_t input, uint64_t pass, uint64_t n,
                        uint64_t at) {
    if (!b->shuffle_items || b->kind < EXPAND) return at;
    return permuted(n, mixed(keyed(35, list_seed(b), input), pass), epoch, at);
}
static uint64_t drawn_of(const branch *b, uint64_t epoch, uint64_t position) {
    return mixed(mixed(keyed(5, list_seed(b), epoch), position), 7);
}

/* ---- callbacks ---- */

static int epoch_set(void *user, uint64_t epoch) {
    (void)user;
    __atomic_store_n(&shared_->epoch, epoch, __ATOMIC_SEQ_CST);
    return 0;
}
static void called_for(uint64_t epoch) {
    if (now_.sets && __atomic_load_n(&shared_->epoch, __ATOMIC_SEQ_CST) != epoch)
        __atomic_add_fetch(&shared_->early, 1, __ATOMIC_SEQ_CST);
}

/* A worker dies, but no input kills twice: that would make it the input's fault. */
static void die_now_and_then(const branch *b, uint64_t input, void *bytes, size_t n) {
    uint32_t call = __atomic_add_fetch(&shared_->calls, 1, __ATOMIC_SEQ_CST);
    if (now_.kill_every == 0 || call % now_.kill_every != 0 || getpid() == caller_) return;
    if (__atomic_add_fetch(&shared_->killed[b->id][input], 1, __ATOMIC_SEQ_CST) > 1) return;
    memset(bytes, 0xee, n);
    raise(SIGKILL);
}

static void item_put(const branch *b, dlp_item *it, uint64_t input, uint64_t number,
                     uint64_t random) {
    const uint64_t w[3] = {word_of(b->id, input, number), input << 8 | number, random};
    const uint64_t n = w[0] % 6;
    memcpy(it->data[0], w, sizeof w);
    if (now_.flat) return;
    memset(it->data[1], (int)(b->id + 1), n);
    it->length[1] = n;
}
static int fetch_item(void *user, dlp_item *it) {
    const branch *b = user;
    const uint64_t random = dlp_item_random(it, 7);
    called_for(it->epoch);
    die_now_and_then(b, it->index, it->data[0], 8);
    if (is_torn(b, it->index)) return dlp_fail(it->call, 5, "torn");
    if (only_place(b, it->index)) return DLP_SKIP;
    item_put(b, it, it->index, 0, random);
    return 0;
}
static int fetch_base(void *user, dlp_item *it) {
    const branch *b = user;
    const uint64_t random = dlp_item_random(it, 7);
    called_for(it->epoch);
    die_now_and_then(b, it->index, it->data[0], 8);
    if (is_torn(b, it->index)) return dlp_fail(it->call, 5, "torn");
    memcpy(it->data[0], &random, sizeof random);
    return 0;
}
static int expand(void *user, dlp_expand *x) {
    const branch *b = user;
    uint64_t random = dlp_item_random(x->item, 7);
    if (b->kind == EXPAND_ALONE && is_torn(b, x->item->index)) return dlp_fail(x->call, 5, "torn");
    if (b->kind != EXPAND_ALONE) memcpy(&random, x->item->data[0], sizeof random);
    for (uint32_t i = 0; i < made_of(b, x->item->index); i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return dlp_fail(x->call, 6, "no room");
        item_put(b, it, x->item->index, i, random);
        if (i % 4 == 2) die_now_and_then(b, x->item->index, it->data[0], 16);
    }
    return 0;
}
static int keep(void *user, const dlp_item *it) {
    const branch *b = user;
    const uint64_t *w = it->data[0];
    return kept(b, w[1] >> 8, w[1] & 255);
}
static int add_sum(void *user, dlp_item *it) {
    uint64_t sum = 0;
    (void)user;
    for (uint32_t f = 0; f + 1 < it->n_fields; f += now_.flat ? 1 : 2)
        sum += *(uint64_t *)it->data[f];
    *(uint64_t *)it->data[it->n_fields - 1] = sum;
    return 0;
}

/* ---- the rows, written down ---- */

typedef struct made {
    uint32_t branch, input, number, pass;
} made;
typedef struct rows {
    uint32_t n;
    made at[MOST_ROWS][MOST_BRANCHES]; /* of a mix only the first */
} rows;

static rows rows_[EPOCHS][MOST_STREAMS];

typedef struct reader { /* of a branch, in a stream */
    uint64_t ordinal, number;
    uint32_t barren;
} reader;

/* The next item of a stream of a branch. Returns 0: there is none. */
static int read_on(const branch *b, uint64_t epoch, uint64_t s, reader *x, made *to) {
    const uint64_t c = now_.streams, each = (b->n - s + c - 1) / c;
    while (now_.steps > 0 || x->ordinal < each) {
        const uint64_t pass = x->ordinal / each, j = x->ordinal % each * c + s;
        const uint64_t input =
            b->shuffle ? permuted(b->n, keyed(34, list_seed(b), pass), epoch, j) : j;
        if (now_.raises && is_torn(b, input)) return 0;
        while ((!is_torn(b, input) || only_place(b, input)) && x->number < made_of(b, input)) {
            uint64_t number, n = 0, left[MOST_OUT + 1];
            for (uint64_t i = 0; i < made_of(b, input); i++)
                if (kept(b, input, i)) left[n++] = i;
            if (x->number >= n) break;
            number = left[item_at(b, epoch, input, pass, n, x->number++)];
            *to = (made){b->id, (uint32_t)input, (uint32_t)number, (uint32_t)pass};
            x->barren = 0;
            return 1;
        }
        x->ordinal++;
        x->number = 0;
        if (++x->barren > 4 * each) return 0; /* not to be run */
    }
    return 0;
}

/* Whose turn is t: of all whose next turn may have begun, that of the earliest deadline. */
static uint32_t turn_of(const uint64_t *weights, uint64_t period, uint64_t t) {
    uint64_t turns[MOST_BRANCHES] = {0};
    uint32_t best = 0;
    for (uint64_t at = 0; at <= t; at++) {
        uint64_t soon = UINT64_MAX;
        for (uint32_t b = 0; b < now_.n; b++) {
            const uint64_t w = weights[b], end = w > 0 ? ((turns[b] + 1) * period + w - 1) / w : 0;
            if (turns[b] == w || turns[b] * period / w > at || end >= soon) continue;
            soon = end;
            best = b;
        }
        turns[best]++;
    }
    return best;
}

/* Legs behind the first one that have begun at this row of a stream. */
static uint32_t legs_at(uint64_t row) {
    uint32_t n = 0;
    while (n < now_.n_legs && now_.leg[n].from / now_.streams <= row) n++;
    return n;
}

/* The branch of row `row` of stream s of a mix. turns: [1 + n_legs] of each leg. */
static uint32_t drawn(uint64_t epoch, uint64_t s, uint64_t row, uint32_t (*turns)[MOST_PERIOD]) {
    const uint32_t k = legs_at(row);
    uint64_t phase = mixed(keyed(37, now_.seed, epoch), s);
    if (k == 0) return turns[0][(row + phase % now_.period) % now_.period];
    row -= now_.leg[k - 1].from / now_.streams;
    return turns[k][(row + mixed(phase, k) % now_.leg[k - 1].period) % now_.leg[k - 1].period];
}

static void write_stream(uint64_t epoch, uint64_t s, uint32_t (*turns)[MOST_PERIOD]) {
    rows *r = &rows_[epoch][s];
    reader x[MOST_BRANCHES];
    const uint64_t most =
        now_.steps > 0 ? (uint64_t)now_.steps * (now_.batch / now_.streams) : MOST_ROWS;
    memset(x, 0, sizeof x);
    for (r->n = 0; r->n < most; r->n++) {
        int there = 1;
        for (uint32_t b = 0; now_.zip && there && b < now_.n; b++)
            there = read_on(&now_.at[b], epoch, s, &x[b], &r->at[r->n][b]);
        if (!now_.zip) {
            const uint32_t b = drawn(epoch, s, r->n, turns);
            there = read_on(&now_.at[b], epoch, s, &x[b], &r->at[r->n][0]);
        }
        if (!there) return;
    }
}

/* Batches of an epoch. */
static uint32_t batches_of(uint64_t epoch) {
    const uint32_t m = now_.batch / now_.streams;
    uint32_t most = 0, least = UINT32_MAX;
    if (now_.steps > 0) return (uint32_t)now_.steps;
    for (uint32_t s = 0; s < now_.streams; s++) {
        const uint32_t n = rows_[epoch][s].n;
        if ((n + m - 1) / m > most) most = (n + m - 1) / m;
        if (n / m < least) least = n / m;
    }
    return now_.last == DLP_LAST_DROP ? least : most;
}

/* An epoch without a valid row is an error. So is one without an item of the branch that ended
   it. */
static int is_an_epoch(uint64_t epoch) {
    uint32_t valid = 0, items[MOST_BRANCHES] = {0};
    for (uint32_t s = 0; s < now_.streams; s++) {
        const rows *r = &rows_[epoch][s];
        for (uint32_t i = 0; i < r->n; i++) {
            int whole = 1;
            for (uint32_t k = 0; k < (now_.zip ? now_.n : 1); k++) {
                const made *x = &r->at[i][k];
                items[x->branch]++;
                whole &= !only_place(&now_.at[x->branch], x->input);
            }
            valid += (uint32_t)whole;
        }
    }
    for (uint32_t b = 0; now_.steps == 0 && b < now_.n; b++)
        if (items[b] == 0) return 0;
    return valid > 0;
}

/* Write all rows. Returns 0: this table can't be run. */
static int write_down(void) {
    static uint32_t turns[1 + MOST_LEGS][MOST_PERIOD];
    const uint32_t m = now_.batch / now_.streams;
    for (uint64_t t = 0; t < now_.period; t++) turns[0][t] = turn_of(now_.weights, now_.period, t);
    for (uint32_t k = 0; k < legs_at(UINT64_MAX); k++)
        for (uint64_t t = 0; t < now_.leg[k].period; t++)
            turns[k + 1][t] = turn_of(now_.leg[k].weights, now_.leg[k].period, t);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t s = 0; s < now_.streams; s++) {
            write_stream(epoch, s, turns);
            if (rows_[epoch][s].n == MOST_ROWS) return 0;
            if (now_.steps > 0 && rows_[epoch][s].n < (uint32_t)now_.steps * m) return 0;
        }
        if (batches_of(epoch) == 0 || !is_an_epoch(epoch)) return 0;
    }
    return 1;
}

/* ---- is a batch what it should be? ---- */

static int item_is(const dlp_batch *b, uint32_t r, uint32_t field, const made *x) {
    const branch *of = &now_.at[x->branch];
    const uint64_t *w = (const uint64_t *)b->fields[field].data + 3 * (size_t)r;
    const uint8_t *t =
        now_.flat ? NULL : (const uint8_t *)b->fields[field + 1].data + 5 * (size_t)r;
    const uint64_t word = word_of(x->branch, x->input, x->number), n = word % 6;
    int ok = w[0] == word && w[1] == ((uint64_t)x->input << 8 | x->number) &&
             w[2] == drawn_of(of, b->epoch, (uint64_t)x->pass * of->n + x->input);
    if (now_.flat) return ok;
    ok &= b->fields[field + 1].lengths[r] == n;
    for (uint64_t i = 0; i < 5; i++) ok &= t[i] == (i < n ? x->branch + 1 : 0);
    return ok;
}

static int row_is(const dlp_batch *b, uint32_t r, const made *x) {
    const uint32_t items = now_.zip ? now_.n : 1, each = now_.flat ? 1 : 2; /* fields */
    uint64_t sum = 0;
    int ok = b->index[r] == x->input;
    for (uint32_t k = 0; k < items; k++)
        if (only_place(&now_.at[x[k].branch], x[k].input)) return ok && b->valid[r] == 0;
    ok &= b->valid[r] == 1;
    for (uint32_t k = 0; k < items; k++) {
        ok &= item_is(b, r, each * k, &x[k]);
        sum += word_of(x[k].branch, x[k].input, x[k].number);
    }
    return ok && (!now_.map || ((const uint64_t *)b->fields[each * items].data)[r] == sum);
}

static const char *batch_wrong(const dlp_batch *b, uint64_t epoch, uint32_t k, uint32_t rank,
                               uint32_t world) {
    const uint32_t m = now_.batch / now_.streams;
    uint32_t own = now_.batch / world;
    if (b->epoch != epoch || b->in_epoch != k) return "another batch";
    if (((b->flags & DLP_BATCH_LAST) != 0) != (k + 1 == batches_of(epoch))) return "flags";
    if (now_.streams == 1 && world == 1 && now_.steps == 0 && now_.last <= DLP_LAST_DEFAULT &&
        rows_[epoch][0].n - k * m < m)
        own = rows_[epoch][0].n - k * m;
    if (b->count != own) return "count";
    for (uint32_t r = 0; r < own; r++) {
        const uint32_t g = rank * own + r, at = k * m + g % m;
        const rows *x = &rows_[epoch][g / m];
        if (at >= x->n ? b->valid[r] != 0 : !row_is(b, r, x->at[at])) return "a row";
    }
    return NULL;
}

/* ---- the table ---- */

static uint32_t table_of(dlp_node *to, const life *l, const char **from) {
    dlp_workers_desc w = {.num_workers = l->workers,
                          .placement = l->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS};
    const uint32_t fields = now_.flat ? 1 : 2;
    uint32_t n = 0;
    if (now_.drops) w.on_error = DLP_ON_ERROR_DROP;
    for (uint32_t k = 0; k < now_.n; k++) {
        branch *b = &now_.at[k];
        to[n++] = (dlp_node){
            .name = b->list, .verb = DLP_LIST, .list = {.n_items = b->n, .shuffle = b->shuffle}};
        if (b->kind != EXPAND_ALONE)
            to[n++] = (dlp_node){.name = b->read,
                                 .verb = DLP_FETCH,
                                 .fetch = {.fetch = b->kind < EXPAND ? fetch_item : fetch_base,
                                           .user = b,
                                           .fields = b->kind < EXPAND ? b->out : &b->in,
                                           .n_fields = b->kind < EXPAND ? fields : 1}};
        if (b->kind >= EXPAND)
            to[n++] = (dlp_node){.name = b->make,
                                 .verb = DLP_EXPAND,
                                 .expand = {.expand = expand,
                                            .user = b,
                                            .max_out = MOST_OUT,
                                            .shuffle_items = b->shuffle_items,
                                            .fields = b->out,
                                            .n_fields = fields}};
        if (b->kind == FETCH_FILTER || b->kind == EXPAND_FILTER)
            to[n++] = (dlp_node){
                .name = b->keep, .verb = DLP_FILTER, .filter = {.keep = keep, .user = b}};
        to[n - 1].workers = w;
        to[n - 1].queue.capacity = l->more;
        from[k] = to[n - 1].name;
    }
    from[now_.n] = NULL;
    to[n++] = (dlp_node){
        .name = "both", .from = from, .verb = now_.zip ? DLP_ZIP : DLP_MIX, .batch = {0}};
    if (!now_.zip) to[n - 1].mix.weights = now_.weights;
    if (!now_.zip && now_.has_legs) {
        static dlp_mix_leg legs[MOST_LEGS];
        for (uint32_t k = 0; k < l->legs; k++)
            legs[k] = (dlp_mix_leg){.from = now_.leg[k].from, .weights = now_.leg[k].weights};
        to[n - 1].mix.legs = legs;
        to[n - 1].mix.n_legs = l->legs;
    }
    if (now_.map) {
        static const dlp_field sum = {.name = "sum", .dtype = DLP_U64};
        to[n++] = (dlp_node){.name = "sum",
                             .verb = DLP_MAP,
                             .map = {.item = add_sum, .fields = &sum, .n_fields = 1}};
    }
    to[n++] = (dlp_node){.name = "batch",
                         .verb = DLP_BATCH,
                         .batch = {.batch_size = now_.batch,
                                   .last = now_.last,
                                   .copy_workers = l->copies > 0 ? l->copies : DLP_NONE},
                         .queue = {.capacity = (uint32_t)l->prefetch}};
    return n;
}

static reduce ends_;

static int64_t all_reduce(void *user, int64_t mine, int most) {
    (void)user;
    return reduce_all(&ends_, mine, most);
}

static dlp_pipe *open_rank(const life *l, uint32_t rank, const dlp_state *resume) {
    dlp_node nodes[16];
    const char *from[MOST_BRANCHES + 1];
    dlp_pipe_desc d = {.seed = now_.seed,
                       .epochs = EPOCHS,
                       .streams = now_.streams,
                       .steps_per_epoch = now_.steps,
                       .shared_streams = now_.shared,
                       .set_epoch = now_.sets ? epoch_set : NULL,
                       .agree = now_.agrees ? all_reduce : NULL,
                       .rank = rank,
                       .world_size = l->world,
                       .resume = resume};
    dlp_error e;
    dlp_pipe *p = NULL;
    const uint32_t n = table_of(nodes, l, from);
    if (dlp_pipe_open(&p, nodes, n, &d, &e) == DLP_OK) return p;
    printf("open: %s, %s: %s\n", e.stage, e.field, e.message);
    return NULL;
}

typedef struct place {
    uint64_t epoch;
    uint32_t k;
} place;

static struct {
    int there;
    dlp_state state;
} states_[EPOCHS][MOST_ROWS + 1]; /* after batch k, of all ranks */

/* Note the state at a place, or compare it with the noted one. */
static int state_is(const place *at, const dlp_state *state) {
    const uint64_t epoch = at->epoch < EPOCHS ? at->epoch : 0;
    const uint32_t k = at->epoch < EPOCHS ? at->k : MOST_ROWS;
    if (states_[epoch][k].there)
        return memcmp(state->bytes, states_[epoch][k].state.bytes, sizeof state->bytes) == 0;
    states_[epoch][k].there = 1;
    states_[epoch][k].state = *state;
    return 1;
}

/* Take some batches, leave the epoch for the next one, and go back to where the pipe began. */
static int away_and_back(dlp_pipe *p) {
    dlp_state began;
    dlp_batch *b;
    dlp_error e;
    int ok = dlp_pipe_state(p, NULL, &began) == DLP_OK;
    for (int i = 0; i < 2 && ok && dlp_pipe_next(p, &b) == DLP_OK; i++) dlp_pipe_release(p, b);
    if (dlp_pipe_next_epoch(p) == DLP_OK && dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
    return ok && dlp_pipe_seek(p, &began, &e) == DLP_OK;
}

/* Take batches of one rank from a place on. Returns 0: something was wrong. */
static int run_rank(const life *l, uint32_t rank, place *at, const dlp_state *resume,
                    dlp_state *state) {
    dlp_pipe *p = open_rank(l, rank, resume);
    const char *wrong = NULL;
    int rc = p == NULL;
    if (p != NULL && l->seeks && !away_and_back(p)) wrong = "away and back", rc = DLP_END;
    for (uint32_t i = 0; rc == 0 && i < l->stop; i++) {
        dlp_batch *b;
        if ((rc = dlp_pipe_next(p, &b)) != DLP_OK) break;
        if ((wrong = batch_wrong(b, at->epoch, at->k, rank, l->world)) != NULL) break;
        at->k++;
        if (at->k == batches_of(at->epoch)) at->epoch++, at->k = 0;
        dlp_pipe_state(p, b, state);
        if (l->world == 1 && !state_is(at, state)) wrong = "the state";
        dlp_pipe_release(p, b);
        if (wrong != NULL) break;
    }
    if (rc < 0 && p != NULL)
        wrong = dlp_pipe_error(p)->message, printf("%s %d: ", dlp_pipe_error(p)->stage, rc);
    if (rc == DLP_END && (at->epoch != EPOCHS || at->k != 0)) wrong = "an early end";
    if (rc == DLP_OK && at->epoch == EPOCHS) rc = DLP_END;
    if (wrong != NULL)
        printf("rank %u of %u, epoch %u, batch %u: %s\n", rank, l->world, (unsigned)at->epoch,
               at->k, wrong);
    if (p != NULL) dlp_pipe_close(p);
    CHECK(wrong == NULL && p != NULL);
    return wrong == NULL && p != NULL;
}

/* Go on from life to life, each with other workers and, with steps, other ranks. */
static int run_lives(void) {
    const life alone = {
        .world = 1, .stop = UINT32_MAX, .workers = 2, .prefetch = 1, .legs = now_.n_legs};
    dlp_state state, all[4];
    place at = {0, 0};
    memset(states_, 0, sizeof states_);
    memset(shared_, 0, sizeof *shared_);
    for (int i = 0; i < now_.lives && at.epoch < EPOCHS; i++) {
        life *l = &now_.life[i];
        place end = at;
        dlp_error e;
        /* legs are added while a model trains; the next batch tells if a batch is the last */
        if (l->stop < batches_of(at.epoch) - at.k - 1)
            l->legs =
                legs_at((at.k + l->stop + (now_.steps == 0)) * (now_.batch / now_.streams) - 1);
        for (uint32_t rank = 0; rank < l->world; rank++) {
            end = at;
            if (!run_rank(l, rank, &end, i > 0 ? &state : NULL, &all[rank])) return 0;
        }
        at = end;
        if (dlp_state_merge(&state, all, l->world, &e) != DLP_OK) {
            printf("merge: %s\n", e.message);
            CHECK(0);
            return 0;
        }
        CHECK(state_is(&at, &state));
        CHECK(shared_->early == 0);
    }
    CHECK(at.epoch == EPOCHS);
    at = (place){0, 0};
    return run_rank(&alone, 0, &at, NULL, &state);
}

/* ---- tables at random ---- */

static void name_branch(branch *b) {
    snprintf(b->list, sizeof b->list, "list%u", b->id % 10);
    snprintf(b->read, sizeof b->read, "read%u", b->id % 10);
    snprintf(b->make, sizeof b->make, "make%u", b->id % 10);
    snprintf(b->keep, sizeof b->keep, "keep%u", b->id % 10);
    snprintf(b->x, sizeof b->x, now_.zip ? "x%u" : "x", b->id % 10);
    snprintf(b->t, sizeof b->t, now_.zip ? "t%u" : "t", b->id % 10);
    b->in = (dlp_field){.name = "base", .dtype = DLP_U64};
    b->out[0] = (dlp_field){.name = b->x, .dtype = DLP_U64, .ndim = 1, .shape = {3}};
    b->out[1] = (dlp_field){.name = b->t, .dtype = DLP_U8, .ndim = 1, .shape = {5}, .ragged = 1};
}

static uint64_t gcd(uint64_t a, uint64_t b) { return b == 0 ? a : gcd(b, a % b); }

static void draw_branch(uint64_t *s, uint32_t k) {
    branch *b = &now_.at[k];
    *b = (branch){.id = k,
                  .n = now_.streams + pick(s, pick(s, 4) ? 20 : 150),
                  .shuffle = pick(s, 3) > 0,
                  .kind = (int)pick(s, KINDS),
                  .skips = pick(s, 3) == 0,
                  .shuffle_items = pick(s, 3) == 0,
                  .torn = now_.drops && pick(s, 3) == 0 ? 4 + pick(s, 9) : 0};
    if (now_.zip && now_.drops) b->kind = FETCH;
    if (now_.n == MOST_BRANCHES && b->kind != EXPAND_ALONE) b->kind = FETCH; /* 16 rows */
    now_.weights[k] = 1 + pick(s, pick(s, 3) ? 4 : 40);
}

static void draw_life(uint64_t *s, life *l, int last) {
    const uint32_t worlds[] = {1, 2, 4, 3};
    uint32_t w = now_.steps > 0 ? worlds[pick(s, 4)] : 1;
    if (now_.batch % w != 0 || (!now_.shared && now_.streams % w != 0)) w = 1;
    *l = (life){.world = w,
                .stop = last ? UINT32_MAX : 1 + pick(s, 12),
                .workers = (int)pick(s, 4),
                .copies = (int)pick(s, 3),
                .prefetch = (int)pick(s, 5),
                .seeks = pick(s, 4) == 0,
                .processes = (now_.kill_every > 0 || pick(s, 5) == 0) && forks_};
    l->legs = now_.n_legs;
    if (l->workers == 0) l->workers = DLP_NONE, l->processes = 0;
    if (l->processes) l->copies = 0;
}

/* Divide weights by their greatest common divisor. Returns their sum. */
static uint64_t reduced(uint64_t *weights) {
    uint64_t g = 0, sum = 0;
    for (uint32_t k = 0; k < now_.n; k++) g = gcd(weights[k], g);
    for (uint32_t k = 0; k < now_.n; k++) sum += weights[k] /= g;
    return sum;
}

static void draw_legs(uint64_t *s) {
    uint64_t from = 0;
    now_.has_legs = !now_.zip && pick(s, 2);
    now_.n_legs = now_.has_legs ? pick(s, 1 + MOST_LEGS) : 0;
    for (uint32_t i = 0; i < now_.n_legs; i++) {
        struct leg *l = &now_.leg[i];
        l->from = from += 1 + pick(s, pick(s, 3) ? 30 * now_.streams : 2);
        for (uint32_t k = 0; k < now_.n; k++)
            l->weights[k] = pick(s, 3) ? pick(s, pick(s, 3) ? 4 : 40) : 0;
        l->weights[pick(s, now_.n)] += 1;
        l->period = reduced(l->weights);
    }
}

static void draw(uint64_t seed) {
    uint64_t s = seed;
    do {
        memset(&now_, 0, sizeof now_);
        now_.seed = s;
        now_.zip = (int)pick(&s, 2);
        now_.map = pick(&s, 3) == 0;
        now_.drops = pick(&s, 3) == 0;
        now_.flat = (int)pick(&s, 2);
        now_.sets = pick(&s, 3) == 0;
        now_.n = 2u + (pick(&s, 3) == 0) + (pick(&s, 6) == 0);
        now_.streams = 1 + pick(&s, MOST_STREAMS);
        now_.batch = now_.streams * (1 + pick(&s, 5));
        now_.steps = pick(&s, 2) ? (int)(1 + pick(&s, 20)) : 0;
        now_.shared = (int)pick(&s, 2);
        now_.last = pick(&s, 2) ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        now_.kill_every = pick(&s, 4) == 0 ? 20 + pick(&s, 60) : 0;
        for (uint32_t k = 0; k < now_.n; k++) draw_branch(&s, k);
        now_.period = reduced(now_.weights);
        for (uint32_t k = 0; k < now_.n; k++) name_branch(&now_.at[k]);
        draw_legs(&s);
        now_.lives = 1 + (int)pick(&s, LIVES);
        for (int i = 0; i < now_.lives; i++) draw_life(&s, &now_.life[i], i + 1 == now_.lives);
    } while (!write_down());
}

static void random_tables__beside_a_plain_program__same_rows(uint64_t first, uint64_t n) {
    for (uint64_t seed = first; seed < first + n && test_failures == 0; seed++) {
        draw(seed);
        if (!run_lives())
            printf("seed %llu: %s, %u branches, %u streams, batch %u, steps %d\n",
                   (unsigned long long)seed, now_.zip ? "zip" : "mix", now_.n, now_.streams,
                   now_.batch, now_.steps);
    }
}

/* ---- ranks that agree on ends ---- */

static void *run_agreeing(void *rank) {
    const life l = {.world = 2, .stop = UINT32_MAX, .workers = 1, .legs = now_.n_legs};
    place at = {0, 0};
    dlp_state state;
    if (!run_rank(&l, (uint32_t)(uintptr_t)rank, &at, NULL, &state)) reduce_stop(&ends_);
    return NULL;
}

/* Both ranks end each epoch where one rank would. */
static void two_ranks__agree__end_as_one_rank(void) {
    for (uint64_t seed = 1, n = 0; n < 12 && test_failures == 0; seed++) {
        pthread_t other;
        draw(seed);
        if (now_.steps > 0 || now_.batch % 2 != 0) continue;
        if (now_.streams % 2 != 0 && !now_.shared) continue;
        now_.agrees = 1;
        now_.sets = 0; /* two pipes at once */
        now_.kill_every = 0;
        reduce_init(&ends_, 2);
        CHECK(pthread_create(&other, NULL, run_agreeing, (void *)1) == 0);
        run_agreeing(NULL);
        pthread_join(other, NULL);
        n++;
    }
}

/* ---- one table, changed ---- */

/* Two branches: 40 inputs of 0..9 items, 30 files. */
static void plain(int zip, uint32_t streams, uint32_t batch) {
    memset(&now_, 0, sizeof now_);
    now_.seed = 5;
    now_.zip = zip;
    now_.n = 2;
    now_.streams = streams;
    now_.batch = batch;
    now_.at[0] = (branch){.id = 0, .n = 40, .shuffle = 1, .kind = EXPAND};
    now_.at[1] = (branch){.id = 1, .n = 30, .shuffle = 1, .kind = FETCH};
    now_.weights[0] = 3;
    now_.weights[1] = 1;
    now_.period = 4;
    name_branch(&now_.at[0]);
    name_branch(&now_.at[1]);
}

/* Rows 0 list0, 1 read0, 2 make0, 3 list1, 4 read1, 5 both, 6 batch. */
typedef struct table {
    dlp_node row[16];
    const char *from[MOST_BRANCHES + 1];
    uint32_t n;
    dlp_pipe_desc d;
} table;

static const life life_ = {.world = 1, .stop = UINT32_MAX, .workers = 1};

static void table_begin(table *t) {
    memset(t, 0, sizeof *t);
    t->n = table_of(t->row, &life_, t->from);
    t->d = (dlp_pipe_desc){.seed = now_.seed, .epochs = EPOCHS, .streams = now_.streams};
}

static void row_put(table *t, uint32_t at, dlp_node row) {
    memmove(&t->row[at + 1], &t->row[at], (t->n - at) * sizeof *t->row);
    t->row[at] = row;
    t->n++;
}

/* The table is refused: the error names this row, and has these words. */
static int refused(const table *t, int code, const char *row, const char *words) {
    dlp_pipe *p = NULL;
    dlp_error e;
    const int rc = dlp_pipe_open(&p, t->row, t->n, &t->d, &e);
    const int ok = rc == code && strcmp(e.stage, row) == 0 && strstr(e.message, words) != NULL &&
                   strlen(e.message) <= 160;
    if (!ok)
        printf("%d, not %d of \"%s\": %s, %s: %s\n", rc, code, row, e.stage, e.field, e.message);
    if (p != NULL) dlp_pipe_close(p);
    return ok;
}

static void rows__out_of_place__refused_by_name(void) {
    static const dlp_field z = {.name = "z", .dtype = DLP_U64};
    const dlp_node fetch = {.name = "more",
                            .verb = DLP_FETCH,
                            .fetch = {.fetch = fetch_item, .fields = &z, .n_fields = 1}};
    table t;
    for (int zip = 0; zip < 2; zip++) {
        plain(zip, 2, 8);
#define REFUSED(code, row, words, ...) \
    do { \
        table_begin(&t); \
        __VA_ARGS__; \
        CHECK(refused(&t, code, row, words)); \
    } while (0)
        REFUSED(DLP_ERR_GRAPH, "more", "fetches by index", row_put(&t, 6, fetch));
        REFUSED(DLP_ERR_GRAPH, "again", "stands behind a zip or mix",
                row_put(&t, 6, (dlp_node){.name = "again", .verb = DLP_LOAD}));
        REFUSED(DLP_ERR_GRAPH, "early", "behind the row that joins the branches",
                row_put(&t, 3, (dlp_node){.name = "early", .verb = DLP_BATCH}));
        REFUSED(DLP_ERR_GRAPH, "window", "stands in a branch",
                row_put(&t, 3,
                        (dlp_node){.name = "window", .verb = DLP_WINDOW, .window = {.items = 4}}));
        REFUSED(DLP_ERR_GRAPH, "load", "must stand directly after the list",
                (row_put(&t, 5, (dlp_node){.name = "load", .verb = DLP_LOAD}), t.from[1] = "load"));
        REFUSED(DLP_ERR_ARG, "push", "push.source is NULL",
                (t.row[0] = (dlp_node){.name = "push", .verb = DLP_PUSH}));
        REFUSED(DLP_ERR_GRAPH, "second", "is a second zip or mix",
                row_put(&t, 6, (dlp_node){.name = "second", .verb = DLP_ZIP}));
        REFUSED(DLP_ERR_GRAPH, "both", "from[0] must be \"make0\"", t.row[5].from = NULL);
        REFUSED(DLP_ERR_GRAPH, "both", "from[1] must be \"read1\"", t.from[1] = "list1");
        REFUSED(DLP_ERR_GRAPH, "both", "the last row of each branch",
                (t.from[2] = "read1", t.from[3] = NULL));
        REFUSED(DLP_ERR_GRAPH, "both", "must be 2..16",
                (memmove(&t.row[3], &t.row[5], 2 * sizeof *t.row), t.n -= 2, t.from[1] = NULL));
        REFUSED(DLP_ERR_GRAPH, "list1", "has no load, fetch or expand",
                (memmove(&t.row[4], &t.row[5], 2 * sizeof *t.row), t.n--, t.from[1] = "list1"));
        REFUSED(DLP_ERR_ARG, "list1", "list.n_items", t.row[3].list.n_items = 0);
        REFUSED(DLP_ERR_ARG, "list1", "list.shuffle", t.row[3].list.shuffle = 2);
        REFUSED(DLP_ERR_ARG, "list1", "open_end", t.row[3].list.open_end = 1);
        REFUSED(DLP_ERR_ARG, "list1", "num_workers", t.row[3].workers.num_workers = 1);
        REFUSED(DLP_ERR_ARG, "list1", "list.order.seed",
                t.row[3].list.order = &(dlp_sampler_desc){.seed = 3});
        REFUSED(DLP_ERR_ARG, "list1", "makes items without numbers",
                (t.row[3].list.shuffle = 0,
                 t.row[3].list.order = &(dlp_sampler_desc){.order = DLP_ORDER_BATCHES}));
        REFUSED(DLP_ERR_ARG, "list1", "weights is NULL",
                (t.row[3].list.shuffle = 0,
                 t.row[3].list.order = &(dlp_sampler_desc){.order = DLP_ORDER_WEIGHTED}));
        REFUSED(DLP_ERR_ARG, "read1", "dispatch differs",
                t.row[4].workers.dispatch = DLP_DISPATCH_BATCHES);
        REFUSED(DLP_ERR_ARG, "read1", "placement differs",
                t.row[4].workers.placement = DLP_PLACE_PROCESSES);
        REFUSED(DLP_ERR_ARG, "read1", "num_workers differs",
                t.row[4].workers.num_workers = DLP_NONE);
        REFUSED(DLP_ERR_ARG, "read1", "submit and reap",
                (t.row[4].fetch.fetch = NULL, t.row[4].fetch.async = &(dlp_async){.submit = NULL}));
        REFUSED(DLP_ERR_ARG, "both", "workers is set", t.row[5].workers.num_workers = 1);
        REFUSED(DLP_ERR_ARG, "read1", zip ? "a field of this name" : "fields differ",
                t.row[4].fetch.fields = (const dlp_field[]){
                    {.name = zip ? "x0" : "x", .dtype = DLP_U64},
                    {.name = "t", .dtype = DLP_U8, .ndim = 1, .shape = {5}, .ragged = 1}});
        REFUSED(DLP_ERR_ARG, "list0", "must be",
                t.row[0].list.order = &(dlp_sampler_desc){.order = DLP_ORDER_REPLACEMENT});
        if (zip)
            REFUSED(DLP_ERR_ARG, "make0", "this branch of a zip",
                    (t.row[2].workers.on_error = DLP_ON_ERROR_DROP,
                     t.row[4].workers.on_error = DLP_ON_ERROR_DROP));
        else
            REFUSED(DLP_ERR_ARG, "both", "weights[1] is 0",
                    t.row[5].mix.weights = (const uint64_t[]){3, 0});
    }
    plain(0, 2, 8); /* without a zip or mix behind it, a second list begins nothing */
    REFUSED(DLP_ERR_GRAPH, "list1", "is a second list", (t.row[5] = t.row[6], t.n--));
}

static int keep_wrong(void *user, const dlp_item *it) {
    (void)user;
    return dlp_fail(it->call, 5, "no");
}

static int no_field(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 0, 8);
    return 0;
}

/* The makers of a branch are named as those of a table without branches: by the filter here. */
static void filter__fails_in_a_branch__is_named(void) {
    static const dlp_field y = {.name = "y", .dtype = DLP_U64};
    const dlp_node nodes[] = {
        {.name = "some", .verb = DLP_LIST, .list = {.n_items = 8}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = no_field, .fields = &y, .n_fields = 1}},
        {.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep_wrong}},
        {.name = "more", .verb = DLP_LIST, .list = {.n_items = 8}},
        {.name = "other",
         .verb = DLP_FETCH,
         .fetch = {.fetch = no_field, .fields = &y, .n_fields = 1}},
        {.name = "both", .verb = DLP_MIX, .from = (const char *[]){"good", "other", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &e) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strcmp(dlp_pipe_error(p)->stage, "good") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int dies(void *user, dlp_item *it) {
    (void)it;
    _exit(*(const int *)user);
}

static int no_items(void *user, dlp_expand *x) {
    (void)user, (void)x;
    return 0;
}

#if TEST_PROCESSES
/* A worker process dies in the first of a branch's three rows: the error names that row. */
static void fetch__dies_in_a_branch__is_named(void) {
    static int code = 3;
    static const dlp_field y = {.name = "y", .dtype = DLP_U64};
    const dlp_workers_desc one = {.num_workers = 1, .placement = DLP_PLACE_PROCESSES};
    const dlp_node nodes[] = {
        {.name = "some", .verb = DLP_LIST, .list = {.n_items = 8}},
        {.name = "good",
         .verb = DLP_FETCH,
         .fetch = {.fetch = no_field, .fields = &y, .n_fields = 1},
         .workers = one},
        {.name = "more", .verb = DLP_LIST, .list = {.n_items = 8}},
        {.name = "deadly",
         .verb = DLP_FETCH,
         .fetch = {.fetch = dies, .user = &code, .fields = &y, .n_fields = 1}},
        {.name = "map", .verb = DLP_MAP, .map = {.item = no_field}},
        {.name = "make",
         .verb = DLP_EXPAND,
         .expand = {.expand = no_items, .max_out = 1},
         .workers = one},
        {.name = "both", .verb = DLP_MIX, .from = (const char *[]){"good", "make", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    const dlp_shm_desc shm = {.max_kills = 1, .allow_fork_with_threads = 1};
    const dlp_pipe_desc desc = {.shm = &shm};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    if (!forks_) return;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &e) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_KILLED);
    CHECK(strcmp(dlp_pipe_error(p)->stage, "deadly") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}
#endif

/* An input that can't be read fails the batch that lacks its row, whatever workers do, and the
   error names the node of the branch. */
static void input__fails_in_a_branch__fails_the_batch_that_lacks_it(void) {
    for (int zip = 0; zip < 2; zip++)
        for (int which = 0; which < 2; which++)
            for (int workers = -1; workers < 4; workers += 2) {
                uint32_t whole = 0;
                dlp_batch *b;
                dlp_pipe *p;
                life l = life_;
                int rc;
                plain(zip, 1, 4);
                now_.raises = 1;
                now_.at[which].torn = 26;
                write_down();
                l.workers = workers;
                p = open_rank(&l, 0, NULL);
                while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
                    for (uint32_t r = 0; r < b->count; r++)
                        CHECK(row_is(b, r, rows_[0][0].at[4 * whole + r]));
                    whole++;
                    dlp_pipe_release(p, b);
                }
                CHECK(whole > 1 && whole == rows_[0][0].n / 4);
                CHECK(rc == DLP_ERR_CALLBACK);
                CHECK(strcmp(dlp_pipe_error(p)->stage, which == 0 ? "read0" : "read1") == 0);
                CHECK(strstr(dlp_pipe_error(p)->message, "torn") != NULL);
                dlp_pipe_close(p);
            }
}

static int keep_whole(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}

static int fails_at(void *user, dlp_item *it) {
    if (it->index == *(const uint64_t *)user) return dlp_fail(it->call, 5, "torn");
    memset(it->data[0], 1, 8);
    return 0;
}

/* How a zip or mix of two lists ends: one has `n` items, item `bad` of the other one can't be
   read. swapped: which stands first. behind: a filter stands behind the join. *came: rows that
   came. Returns what next returned last. */
static int end_of_two(int zip, uint64_t n, uint64_t bad, int swapped, int behind, int workers,
                      uint32_t batch, int last, uint64_t *came) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64}, y = {.name = "y", .dtype = DLP_U64};
    static const uint64_t none = UINT64_MAX;
    const uint64_t *user[2] = {swapped ? &none : &bad, swapped ? &bad : &none};
    const uint64_t items[2] = {swapped ? n : 40, swapped ? 40 : n};
    dlp_node nodes[7] = {{.name = "list0", .verb = DLP_LIST, .list = {.n_items = items[0]}},
                         {.name = "read0", .verb = DLP_FETCH},
                         {.name = "list1", .verb = DLP_LIST, .list = {.n_items = items[1]}},
                         {.name = "read1", .verb = DLP_FETCH},
                         {.name = "both",
                          .verb = zip ? DLP_ZIP : DLP_MIX,
                          .from = (const char *[]){"read0", "read1", NULL}},
                         {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_whole}}};
    const uint32_t at = behind ? 6 : 5;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc;
    for (int k = 0; k < 2; k++) {
        nodes[1 + 2 * k].workers.num_workers = workers;
        nodes[1 + 2 * k].fetch = (dlp_node_fetch){.fetch = fails_at,
                                                  .user = (void *)(uintptr_t)user[k],
                                                  .fields = zip && k == 1 ? &y : &x,
                                                  .n_fields = 1};
    }
    nodes[at] = (dlp_node){
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = batch, .last = last}};
    *came = 0;
    if ((rc = dlp_pipe_open(&p, nodes, at + 1, NULL, NULL)) != DLP_OK) return rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        *came += b->valid_count;
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END || strstr(dlp_pipe_error(p)->message, "torn") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

/* The row that would need the failed input does not exist, in whatever order the branches stand. */
static void branch__fails_where_another_ends__the_stream_ends(void) {
    static const int workers[2] = {DLP_NONE, 2};
    uint64_t came;
    for (int k = 0; k < 96; k++) {
        const uint32_t batch = k % 3 == 2 ? 4 : 1 + (uint32_t)k % 3;
        const int swapped = k / 3 & 1, behind = k / 6 & 1, w = workers[k / 12 & 1];
        const int last = k / 24 % 3;
        const uint64_t all = last == DLP_LAST_DROP ? 6 / batch * batch : 6;
        CHECK(end_of_two(1, 6, 6, swapped, behind, w, batch, last, &came) == DLP_END);
        CHECK(came == all);
        CHECK(end_of_two(1, 6, 5, swapped, behind, w, 1, last, &came) == DLP_ERR_CALLBACK);
        CHECK(came == 5);
    }
}

/* With DLP_LAST_DROP the batch does not exist if a branch has too few items for it. Batches of 4
   rows need 4 items of each branch of the zip, or 2 of each branch of the mix. */
static void branch__fails_in_a_batch_that_another_cuts__the_epoch_ends(void) {
    for (int k = 0; k < 8; k++) {
        const int swapped = k & 1, w = k & 2 ? 2 : DLP_NONE, zip = (k & 4) != 0;
        const uint64_t whole = zip ? 4 : 8;
        uint64_t came;
        CHECK(end_of_two(zip, zip ? 7 : 5, 5, swapped, 0, w, 4, DLP_LAST_DROP, &came) == DLP_END);
        CHECK(came == whole);
        CHECK(end_of_two(zip, zip ? 8 : 6, 5, swapped, 0, w, 4, DLP_LAST_DROP, &came) ==
              DLP_ERR_CALLBACK);
        CHECK(came == whole);
        if (!zip) continue;
        CHECK(end_of_two(zip, 7, 5, swapped, 0, w, 4, DLP_LAST_PARTIAL, &came) == DLP_ERR_CALLBACK);
        CHECK(came == whole);
    }
}

/* A plan tells what there is; cells can be as few as a batch needs, not one less. */
static void cells__one_less_than_needed__refused(void) {
    table t;
    dlp_plan plan;
    dlp_error e;
    for (int zip = 0; zip < 2; zip++) {
        /* R = 2 m = 8 rows of a stream: 8 of each branch of a zip, 6 and 2 of a mix of 3 and 1 */
        const uint32_t need[2] = {zip ? 16 : 12, zip ? 16 : 4};
        plain(zip, 2, 8);
        now_.last = DLP_LAST_DROP;
        for (int k = 0; k < 2; k++) {
            table_begin(&t);
            t.row[k == 0 ? 2 : 4].queue.capacity = need[k] - 1;
            CHECK(refused(&t, DLP_ERR_ARG, k == 0 ? "make0" : "read1", "at once"));
        }
        table_begin(&t);
        t.row[2].queue.capacity = need[0];
        t.row[4].queue.capacity = need[1];
        CHECK(dlp_nodes_plan(t.row, t.n, &t.d, &plan, &e) == DLP_OK);
        CHECK(write_down());
        {
            dlp_pipe *p = NULL;
            dlp_batch *b;
            uint32_t k = 0;
            CHECK(dlp_pipe_open(&p, t.row, t.n, &t.d, &e) == DLP_OK);
            while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
                if (k < batches_of(0)) CHECK(batch_wrong(b, 0, k, 0, 1) == NULL);
                dlp_pipe_release(p, b);
                k++;
            }
            CHECK(k == batches_of(0) + batches_of(1));
            if (p != NULL) dlp_pipe_close(p);
        }
    }
}

/* A branch with large cells makes those of another branch no larger. */
static void cells__of_branches__as_large_as_each_needs(void) {
    table t;
    dlp_plan plan;
    dlp_error e;
    plain(0, 2, 8);
    table_begin(&t);
    t.row[2].expand.max_out = 200000; /* 40 to 64 bytes each */
    t.row[2].queue.capacity = 12;
    CHECK(dlp_nodes_plan(t.row, t.n, &t.d, &plan, &e) == DLP_OK);
    CHECK(plan.total_bytes > 12 * UINT64_C(8000000));
    CHECK(inside_debug() || plan.total_bytes < 12 * UINT64_C(13000000)); /* there cells are alike */
}

static int begin_nothing(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    (void)state;
    return 0;
}

static uint32_t seen_;

/* The second branch's: its cells stay in their link until the test has seen them there. */
static int fetch_when_seen(void *user, dlp_item *it) {
    for (int ms = 0; ms < 20000 && !__atomic_load_n(&seen_, __ATOMIC_ACQUIRE); ms++) usleep(1000);
    return fetch_item(user, it);
}

/* The links into the stage of a zip or mix. Returns how many; in `at` those that come first. */
static uint32_t links_into(const dlp_link *links, uint32_t n, const char *to, const dlp_link **at) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(links[i].to, to) == 0 && k < 4) at[k++] = &links[i];
    return k;
}

/* The cells of each branch are a link with its name, and those of rows that are joined. In
   statistics the cells that are asked for, or being loaded, are in it. */
static void links__of_branches__have_their_names(void) {
    static dlp_stats s;
    static dlp_plan plan;
    for (int k = 0; k < 8; k++) {
        const int zip = k & 1, behind = k & 2, seats = k & 4;
        const uint32_t first = behind != 0, want[3] = {70, 50, 60};
        const dlp_link *l[4];
        const dlp_stage_stats *both;
        uint64_t cells = 0, open = 0;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error e;
        table t;
        plain(zip, 2, 8);
        table_begin(&t);
        t.row[2].queue.capacity = 50;
        t.row[4].queue.capacity = 60;
        t.row[2].workers.num_workers = 2;
        t.row[4].workers.num_workers = 3;
        if (seats) t.row[4].workers.worker_init = begin_nothing;
        CHECK(t.row[4].fetch.fetch == fetch_item);
        t.row[4].fetch.fetch = fetch_when_seen;
        __atomic_store_n(&seen_, 0, __ATOMIC_RELEASE);
        if (behind)
            row_put(
                &t, 6,
                (dlp_node){.name = "whole", .verb = DLP_FILTER, .filter = {.keep = keep_whole}});
        if (behind) t.row[6].queue.capacity = 70;
        CHECK(dlp_nodes_plan(t.row, t.n, &t.d, &plan, &e) == DLP_OK);
        CHECK(links_into(plan.links, plan.n_links, "both", l) == 2 + first);
        CHECK(!behind || strcmp(l[0]->from, "joined rows") == 0);
        CHECK(strcmp(l[first]->from, "make0") == 0 && strcmp(l[first + 1]->from, "read1") == 0);
        for (uint32_t i = 0; i < 2 + first; i++) {
            CHECK(l[i]->kind == DLP_LINK_CLAIM && l[i]->from_stage == 0 && l[i]->writers == 1);
            CHECK(l[i]->capacity == want[behind ? i : i + 1] && l[i]->bytes == 8 * l[i]->capacity);
            CHECK(l[i]->readers == 5);
        }
        CHECK(dlp_pipe_open(&p, t.row, t.n, &t.d, &e) == DLP_OK);
        for (uint32_t i = 0, ms = 0; p != NULL && i < 200 && ms<20000; i += open> 0) {
            CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
            CHECK(links_into(s.links, s.n_links, "both", l) == 2 + first);
            both = &s.stages[dlp_node_stage(p, "both")];
            cells = 0;
            for (uint32_t j = 0; j < 2 + first; j++) {
                cells += l[j]->depth;
                CHECK(l[j]->depth <= l[j]->capacity);
                open += j == first + 1 && l[j]->depth > 0;
            }
            CHECK(cells == both->loading && both->cells == 110 + 70 * first);
            if (open > 0)
                __atomic_store_n(&seen_, 1, __ATOMIC_RELEASE);
            else
                usleep(1000), ms++;
            if (dlp_pipe_next_timeout(p, &b, 0) == DLP_OK) dlp_pipe_release(p, b);
        }
        CHECK(open > 0); /* a cell of the second branch was seen there */
        if (p != NULL) dlp_pipe_close(p);
    }
}

/* A state has room for so many paths. */
static void streams__more_than_a_state_has_room_for__refused(void) {
    table t;
    plain(0, 128, 128);
    now_.at[0].n = now_.at[1].n = 1000000;
    table_begin(&t);
    CHECK(refused(&t, DLP_ERR_ARG, "", "128 streams, a state has room for "));
}

/* ---- weights up to 2^20 together ---- */

enum { SHARES = 3, SHARE_ROWS = 4096 };

static const uint32_t share_number_[SHARES] = {0, 1, 2};

static int fetch_share(void *user, dlp_item *it) {
    memcpy(it->data[0], user, sizeof(uint32_t));
    return 0;
}

/* A mix of three lists by these weights. */
static uint32_t share_table(dlp_node *to, const uint64_t *weights) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U32};
    static const char *const lists[] = {"as", "bs", "cs"};
    static const char *const from[] = {"a", "b", "c", NULL};
    uint32_t n = 0;
    for (uint32_t k = 0; k < SHARES; k++) {
        to[n++] = (dlp_node){.name = lists[k], .verb = DLP_LIST, .list = {.n_items = 1 + 6 * k}};
        to[n++] = (dlp_node){.name = from[k],
                             .verb = DLP_FETCH,
                             .fetch = {.fetch = fetch_share,
                                       .user = (void *)(uintptr_t)&share_number_[k],
                                       .fields = &x,
                                       .n_fields = 1},
                             .workers = {.num_workers = DLP_NONE}};
    }
    to[n++] =
        (dlp_node){.name = "both", .from = from, .verb = DLP_MIX, .mix = {.weights = weights}};
    to[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = SHARE_ROWS}};
    return n;
}

/* Take batches, and count the rows of each branch. At each of these places a branch has its share,
   give or take less than two rows. Writes the state behind the last batch. */
static void share_count(const uint64_t *weights, const uint64_t *shares, uint64_t period,
                        uint64_t batches, const dlp_state *resume, uint64_t *got,
                        dlp_state *state) {
    const dlp_pipe_desc d = {.seed = 11, .steps_per_epoch = DLP_FOREVER, .resume = resume};
    const uint64_t all = got[0] + got[1] + got[2];
    dlp_node nodes[2 * SHARES + 2];
    const uint32_t n = share_table(nodes, weights);
    dlp_pipe *p = NULL;
    dlp_batch *b;
    CHECK(dlp_pipe_open(&p, nodes, n, &d, NULL) == DLP_OK);
    for (uint64_t k = 1; p != NULL && k <= batches; k++) {
        const int rc = dlp_pipe_next(p, &b);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) break;
        for (uint32_t r = 0; r < b->count; r++) got[((const uint32_t *)b->fields[0].data)[r] % 3]++;
        for (uint32_t i = 0; i < SHARES; i++) {
            const int64_t share = (int64_t)((all + k * SHARE_ROWS) * shares[i]);
            const int64_t off = (int64_t)(got[i] * period) - share;
            CHECK(off < 2 * (int64_t)period && -off < 2 * (int64_t)period);
        }
        if (k == batches) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* In each period a branch comes as often as its weight says, wherever the period begins, also if
   the run stops in it and goes on. Larger sums are refused. */
static void weights__up_to_2_to_the_20__exact_shares(void) {
    static const uint64_t fit[][SHARES] = {{1, 3, (1 << 19) - 4}, {(1 << 19) - 1, 1 << 19, 1}};
    static const uint64_t above[][SHARES] = {{1, 1 << 20, 1},
                                             {(1 << 20) - 1, 1, 1},
                                             {2, UINT64_C(1) << 21, 2},
                                             {UINT64_MAX, UINT64_MAX - 1, 1},
                                             {UINT64_C(1) << 63, UINT64_C(1) << 63, 1}};
    for (int i = getenv("SHORT") ? 1 : 0; i < 2; i++) {
        const uint64_t period = UINT64_C(1) << (19 + i), whole = period / SHARE_ROWS;
        uint64_t got[SHARES] = {0}, times[SHARES];
        dlp_state state;
        for (int k = 0; k < SHARES; k++) times[k] = fit[i][k] << 40; /* the divisor is no weight */
        share_count(fit[i], fit[i], period, 37, NULL, got, &state);
        share_count(times, fit[i], period, whole - 37, &state, got, &state);
        for (int k = 0; k < SHARES; k++) CHECK(got[k] == fit[i][k]);
    }
    for (int i = 0; i < 5; i++) {
        table t;
        memset(&t, 0, sizeof t);
        t.n = share_table(t.row, above[i]);
        CHECK(refused(&t, DLP_ERR_ARG, "both", "is above 2^20; round the weights"));
    }
}

/* ---- legs ---- */

/* Open a mix of two with these legs, and say what is wrong. Returns the code. */
static int legs_open(const dlp_mix_leg *legs, uint32_t n, const uint64_t *weights,
                     const dlp_state *resume, dlp_error *e, dlp_pipe **p) {
    table t;
    plain(0, 2, 4);
    table_begin(&t);
    t.row[5].mix = (dlp_node_mix){.weights = weights, .legs = legs, .n_legs = n};
    t.d.resume = resume;
    t.d.steps_per_epoch = 40;
    return dlp_pipe_open(p, t.row, t.n, &t.d, e);
}

static void legs__wrong__refused_by_field(void) {
    static const uint64_t one[] = {1, 1}, first[] = {1, 0}, none[] = {0, 0};
    static const struct {
        dlp_mix_leg leg[2];
        uint32_t n;
        const uint64_t *weights;
        const char *words;
    } bad[] = {
        {{{0, one}}, 1, one, "legs[0].from is 0, must be 1..2^43"},
        {{{8, one}, {8, one}}, 2, one, "legs[1].from is 8, must be 9..2^43"},
        {{{(UINT64_C(1) << 43) + 1, one}}, 1, one, "legs[0].from is 8796093022209"},
        {{{8, none}}, 1, one, "legs[0]: all 2 weights are 0"},
        {{{8, first}}, 1, first, "weights[1] is 0 in all legs; set 1 or more"},
        {{{8, one}}, 65, one, "0..64"},
    };
    dlp_error e;
    dlp_pipe *p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(legs_open(bad[i].leg, bad[i].n, bad[i].weights, NULL, &e, &p) == DLP_ERR_ARG);
        CHECK(strstr(e.message, bad[i].words) != NULL && strcmp(e.stage, "both") == 0);
    }
    CHECK(legs_open(NULL, 1, one, NULL, &e, &p) == DLP_ERR_ARG);
    CHECK(strcmp(e.field, "mix.legs") == 0);
}

/* A state of batch 4, behind 8 rows of each stream, goes on with a leg that begins there or later.
   A leg that had begun then, or other weights of one that has, is refused. */
static void legs__added_before_a_resume__only_behind_all_streams(void) {
    static const uint64_t w[] = {3, 1}, other[] = {1, 3};
    static const struct {
        dlp_mix_leg leg[2];
        uint32_t n;
        int code;
    } at[] = {
        {{{8, other}}, 1, DLP_OK},          {{{8, other}, {16, w}}, 2, DLP_OK},
        {{{8, other}, {99, w}}, 2, DLP_OK}, {{{8, other}, {14, w}}, 2, DLP_ERR_RESUME},
        {{{8, w}}, 1, DLP_ERR_RESUME},      {{{10, other}}, 1, DLP_ERR_RESUME},
        {{{16, other}}, 1, DLP_ERR_RESUME}, {{{8, other}}, 0, DLP_ERR_RESUME},
    };
    dlp_state state;
    dlp_error e;
    dlp_pipe *p;
    dlp_batch *b;
    CHECK(legs_open(at[0].leg, 1, w, NULL, &e, &p) == DLP_OK);
    if (test_failures > 0) return;
    for (int i = 0; i < 4; i++) {
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        dlp_pipe_state(p, b, &state);
        dlp_pipe_release(p, b);
    }
    dlp_pipe_close(p);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const int rc = legs_open(at[i].leg, at[i].n, w, &state, &e, &p);
        if (rc != at[i].code) printf("%zu: %d %s\n", i, rc, rc < 0 ? e.message : "");
        CHECK(rc == at[i].code);
        if (rc == DLP_ERR_RESUME) CHECK(strcmp(e.field, "mix.legs") == 0);
        if (rc == DLP_OK) dlp_pipe_close(p);
    }
    CHECK(legs_open(NULL, 0, w, &state, &e, &p) == DLP_ERR_RESUME);
}

int main(int argc, char **argv) {
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : getenv("SHORT") ? 20 : 80;
    caller_ = getpid();
    forks_ = shm_missing() == NULL;
    shared_ =
        mmap(NULL, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared_ == MAP_FAILED) return 1;
    rows__out_of_place__refused_by_name();
    filter__fails_in_a_branch__is_named();
#if TEST_PROCESSES
    fetch__dies_in_a_branch__is_named();
#endif
    input__fails_in_a_branch__fails_the_batch_that_lacks_it();
    branch__fails_where_another_ends__the_stream_ends();
    branch__fails_in_a_batch_that_another_cuts__the_epoch_ends();
    cells__one_less_than_needed__refused();
    cells__of_branches__as_large_as_each_needs();
    links__of_branches__have_their_names();
    streams__more_than_a_state_has_room_for__refused();
    weights__up_to_2_to_the_20__exact_shares();
    two_ranks__agree__end_as_one_rank();
    legs__wrong__refused_by_field();
    legs__added_before_a_resume__only_behind_all_streams();
    random_tables__beside_a_plain_program__same_rows(first, n);
    return test_end("branches");
}
