/* needs: parts */
/* Resume: from the state of every batch on, the rest of the run comes out as if it had never
   stopped. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/digest.h"

/* ---- a batch sampler: lists of changing length, told by a counter that save and restore carry
   ---- */

typedef struct lists {
    uint64_t epoch, n, at; /* at: lists given in this epoch */
    /* changes with each list, so that nothing but the saved state knows it */
    uint64_t walk;
    int loose; /* the state is forged: the epoch may be another than it says */
} lists;

#define LISTS 9u

static int64_t lists_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    lists *l = user;
    uint64_t count = l->at == LISTS ? 0 : 1 + (l->at * 5 + epoch) % max;
    CHECK(l->loose || epoch == l->epoch);
    for (uint64_t i = 0; i < count; i++) index[i] = (l->walk = l->walk * 5 + 3) % l->n;
    if (count > 0) l->at++;
    return (int64_t)count;
}

static int lists_begin(void *user, uint64_t epoch) {
    lists *l = user;
    l->epoch = epoch;
    l->at = 0;
    l->walk = epoch * 17;
    return 0;
}

static int lists_save(void *user, void *bytes) {
    lists *l = user;
    uint64_t words[3] = {l->epoch, l->at, l->walk};
    memcpy(bytes, words, sizeof words);
    return (int)sizeof words;
}

static int lists_restore(void *user, const void *bytes, size_t n) {
    lists *l = user;
    uint64_t words[3];
    if (l->loose && n != sizeof words) return 1;
    CHECK(n == sizeof words);
    memcpy(words, bytes, sizeof words);
    l->epoch = words[0];
    l->at = words[1];
    l->walk = words[2];
    return 0;
}

static void rig_lists(rig *r, lists *l, int with_save) {
    memset(l, 0, sizeof *l);
    l->n = r->dataset.n_items;
    r->sampler.order = DLP_ORDER_BATCHES;
    r->sampler.batches.next = lists_next;
    r->sampler.batches.begin = lists_begin;
    r->sampler.batches.save = with_save ? lists_save : NULL;
    r->sampler.batches.restore = with_save ? lists_restore : NULL;
    r->sampler.batches.user = l;
}

/* ---- runs ---- */

#define RUN_MAX 128

/* Whatever its flags: the last of an unordered run is another one each time. */
static seen seen_plain(const dlp_batch *b) {
    dlp_batch plain = *b;
    plain.flags = 0;
    return seen_of(&plain);
}

/* Take batches until `stop` were (or the end); then the state, of the last batch or of all.
   Returns the number. */
static int run_some(rig *r, int stop, seen *out, dlp_state *states) {
    dlp_pipe *p;
    dlp_batch *b;
    int n = 0, rc = DLP_OK;
    if (rig_open(r, &p) != DLP_OK) return -1;
    while (n < stop && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        dlp_state now;
        out[n] = seen_plain(b);
        CHECK(b->sequence < RUN_MAX);
        batch_spoil(b);
        CHECK(dlp_pipe_state(p, b, &now) == DLP_OK);
        if (states) states[n] = now;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        n++;
        if (states) {
            CHECK(dlp_pipe_state(p, NULL, &now) == DLP_OK); /* all that was delivered: the same */
            CHECK(r->pipe.unordered || memcmp(&now, &states[n - 1], sizeof now) == 0);
            states[n - 1] = now;
            if (r->sampler.batches.save) {
                inside_state s;
                memcpy(&s, &now, sizeof s);
                CHECK(s.batch == 0 || s.sampler_bytes == 24); /* a state need not be replayed */
            }
        }
    }
    CHECK(rc == DLP_OK || rc == DLP_END);
    if (rc != DLP_OK && rc != DLP_END) rig_say(p, rc);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

static void check_every_stop(rig *r) {
    static seen whole[RUN_MAX], rest[RUN_MAX];
    static dlp_state states[RUN_MAX];
    int n = run_some(r, RUN_MAX, whole, states), ok = 1;
    CHECK(n > 10);
    for (int stop = 1; stop <= n; stop++) {
        rig again = *r;
        int got;
        again.pipe.resume = &states[stop - 1];
        got = run_some(&again, RUN_MAX, rest, NULL);
        ok &= got == n - stop;
        for (int i = 0; ok && i < got; i++)
            ok &= memcmp(&rest[i], &whole[stop + i], sizeof rest[i]) == 0;
    }
    CHECK(ok);
    if (!ok)
        printf("  order %d last %d threaded %d workers %d\n", r->sampler.order, r->batch.last,
               r->sampler.threaded, r->fetch.num_workers);
}

static void resume__every_batch_every_order__rest_is_the_same(void) {
    for (int order = 0; order <= DLP_ORDER_BATCHES + 1; order++)
        for (int last = 0; last < 3; last++)
            for (int kind = 0; kind < 4; kind++) {
                rig r;
                lists l;
                rig_init(&r, 75, 8);
                if (order >= DLP_ORDER_BATCHES)
                    rig_lists(&r, &l, order == DLP_ORDER_BATCHES);
                else
                    rig_order(&r, order);
                r.batch.last = last;
                r.pipe.epochs = 2;
                r.sampler.threaded = kind & 1;
                rig_workers(&r, kind & 2, 0);
                check_every_stop(&r);
                rig_free(&r);
            }
}

static int seen_before(const seen *a, const seen *b) {
    if (a->epoch != b->epoch) return a->epoch < b->epoch;
    return a->in_epoch < b->in_epoch;
}

static void sort_seen(seen *s, int n) {
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && seen_before(&s[j], &s[j - 1]); j--) {
            seen t = s[j];
            s[j] = s[j - 1];
            s[j - 1] = t;
        }
}

/* Items of some batches are slow, so that batches overtake each other. */
static int slow_fetch(void *user, dlp_item *it) {
    if (it->position % 24 == 3) {
        struct timespec t = {0, 1500000};
        nanosleep(&t, NULL);
    }
    return rig_fetch(user, it);
}

/* Unordered, in three lives: each batch of all epochs in exactly one of them. */
static void check_lives(rig *r, int first, int second, const seen *whole, int n) {
    static seen got[3 * RUN_MAX];
    static dlp_state states[RUN_MAX];
    rig again = *r;
    int a = run_some(r, first, got, states), b, c, ok;
    dlp_state from = states[first - 1];
    again.pipe.resume = &from;
    b = run_some(&again, second, got + a, states);
    if (b == second) {
        from = states[second - 1];
        c = run_some(&again, RUN_MAX, got + a + b, NULL);
    } else
        c = 0;
    sort_seen(got, a + b + c);
    ok = a + b + c == n;
    for (int i = 0; ok && i < n; i++) ok &= memcmp(&got[i], &whole[i], sizeof got[i]) == 0;
    CHECK(ok);
    if (!ok)
        printf("  order %d threaded %d: lives of %d, %d, %d batches; all are %d\n",
               r->sampler.order, r->sampler.threaded, a, b, c, n);
}

static void resume__unordered__every_batch_in_one_life(void) {
    static seen whole[RUN_MAX];
    int step = getenv("SHORT") ? 13 : 1;
    for (int order = 1; order <= DLP_ORDER_BATCHES + 1; order += order == 1 ? 4 : 1)
        for (int threaded = 0; threaded < 2; threaded++) {
            rig r;
            lists l;
            int n;
            rig_init(&r, 75, 8);
            if (order >= DLP_ORDER_BATCHES)
                rig_lists(&r, &l, order == DLP_ORDER_BATCHES);
            else
                rig_order(&r, order);
            r.dataset.fetch = slow_fetch;
            r.pipe.epochs = 2;
            r.sampler.threaded = threaded;
            n = run_some(&r, RUN_MAX, whole, NULL);
            rig_workers(&r, 3, 0);
            r.pipe.unordered = 1;
            r.pipe.prefetch_factor = 4;
            for (int first = 1; first < n; first += step)
                for (int second = 1; second < 6; second += 2)
                    check_lives(&r, first, second, whole, n);
        }
}

/* The unordered state right after resume, before the sampler's thread fed anything, keeps what
   it was given. */
static void resume__unordered_state_of_state__keeps_the_window(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    int windows = 0;
    for (int threaded = 0; threaded < 2; threaded++) {
        rig r;
        rig_init(&r, 200, 8);
        r.dataset.fetch = slow_fetch;
        rig_workers(&r, 3, 0);
        r.pipe.unordered = 1;
        r.pipe.prefetch_factor = 4;
        r.sampler.threaded = threaded;
        for (int stop = 2; stop < 20; stop++) {
            dlp_state now;
            dlp_pipe *p;
            inside_state was, is;
            if (run_some(&r, stop, got, states) != stop) return;
            r.pipe.resume = &states[stop - 1];
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(dlp_pipe_state(p, NULL, &now) == DLP_OK);
            memcpy(&was, &states[stop - 1], sizeof was);
            memcpy(&is, &now, sizeof is);
            windows += was.gaps_used > 0;
            CHECK(was.batch == is.batch && memcmp(was.gaps, is.gaps, sizeof is.gaps) == 0);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            r.pipe.resume = NULL;
        }
    }
    CHECK(windows > 0); /* some batches did overtake */
}

/* Many batches behind the prefix were consumed: there are as many in flight as without. */
static void resume__unordered_wide_window__schedules_on(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    rig r;
    inside_state wide;
    dlp_state state;
    dlp_pipe *p;
    dlp_stats stats;
    rig_init(&r, 400, 8);
    r.pipe.unordered = 1;
    r.pipe.prefetch_factor = 4;
    CHECK(run_some(&r, 3, got, states) == 3);
    memcpy(&wide, &states[2], sizeof wide);
    for (int k = 1; k < 32; k++) wide.gaps[k / 8] = (uint8_t)(wide.gaps[k / 8] | 1u << k % 8);
    wide.gaps_used = 32;
    inside_state_seal(&wide);
    memcpy(&state, &wide, sizeof state);
    r.pipe.resume = &state;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.in_flight == 4);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(run_some(&r, RUN_MAX, got, NULL) == 50 - 3 - 31);
}

/* Resume an unordered epoch, leave it at once: the next is whole, whatever was consumed of the
   left one. */
static void resume__unordered_then_next_epoch__epoch_whole(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    for (int threaded = 0; threaded < 2; threaded++)
        for (int stop = 1; stop < 24; stop++) {
            rig r;
            dlp_pipe *p;
            dlp_batch *b;
            int rc, n = 0;
            rig_init(&r, 200, 8);
            r.dataset.fetch = slow_fetch;
            rig_workers(&r, 3, 0);
            r.pipe.unordered = 1;
            r.pipe.prefetch_factor = 4;
            r.pipe.epochs = 2;
            r.sampler.threaded = threaded;
            if (run_some(&r, stop, got, states) != stop) return;
            r.pipe.resume = &states[stop - 1];
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                CHECK(rig_batch_same(&r, b, 1, b->in_epoch));
                n++;
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(rc == DLP_END && n == 25);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* next_epoch before the state: the state is the border, and so is what follows. */
static void resume__behind_next_epoch__at_the_border(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state state;
        static seen got[RUN_MAX];
        rig_init(&r, 75, 8);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        r.pipe.epochs = 3;
        r.sampler.threaded = kind & 1;
        r.pipe.unordered = kind >> 1;
        rig_workers(&r, kind & 2, 0);
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int i = 0; i < 3; i++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        r.pipe.resume = &state;
        CHECK(run_some(&r, RUN_MAX, got, NULL) == 20);
        CHECK(got[0].epoch == 1 && (kind & 2 || got[0].in_epoch == 0));
    }
}

/* ---- states that do not fit ---- */

static int resume_error(const rig *like, const dlp_state *state, dlp_error *err) {
    rig r = *like;
    dlp_pipe *p;
    int rc;
    memset(err, 0, sizeof *err);
    r.pipe.resume = state;
    rc = rig_try(&r, &p, err);
    if (rc == DLP_OK) dlp_pipe_close(p);
    return rc;
}

static void resume__other_configuration__names_the_field(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    static const uint64_t subset[60] = {1, 2, 3};
    static const char *names[] = {"n_items", "order",  "seed",    "batch_size",
                                  "last",    "subset", "samples", "function_id"};
    uint64_t samples = 60;
    rig r;
    rig_init(&r, 75, 8);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    CHECK(run_some(&r, 4, got, states) == 4);
    for (int field = 0; field < 8; field++) {
        rig other = r;
        dlp_error err;
        if (field == 0) other.dataset.n_items = 76;
        if (field == 1) other.sampler.order = DLP_ORDER_SEQUENTIAL;
        if (field == 2) other.sampler.seed++;
        if (field == 3) other.batch.batch_size = 9;
        if (field == 4) other.batch.last = DLP_LAST_PAD;
        if (field == 5) {
            other.sampler.subset = subset;
            other.sampler.n_subset = 60;
        }
        if (field == 6) { /* drawn, so that the number can be chosen */
            static dlp_state drawn[RUN_MAX];
            other.sampler.order = DLP_ORDER_REPLACEMENT;
            CHECK(run_some(&other, 4, got, drawn) == 4);
            other.sampler.samples_per_epoch = samples;
            CHECK(resume_error(&other, &drawn[3], &err) == DLP_ERR_RESUME &&
                  strstr(err.field, names[field]));
            continue;
        }
        if (field == 7) other.sampler.function_id = 5;
        CHECK(resume_error(&other, &states[3], &err) == DLP_ERR_RESUME);
        CHECK(strstr(err.field, names[field]) != NULL && strstr(err.message, names[field]) != NULL);
    }
    { /* what may differ */
        rig other = r;
        dlp_error err;
        rig_workers(&other, 2, 1);
        other.pipe.prefetch_factor = 7;
        other.pipe.unordered = 1;
        other.sampler.threaded = 1;
        other.pipe.world_size = 4;
        other.n_item_maps = 1;
        CHECK(resume_error(&other, &states[3], &err) == DLP_OK);
    }
}

static void resume__any_bit_flipped__refused(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    dlp_state state;
    rig r;
    lists l;
    dlp_error err;
    uint64_t random = 11;
    int refused = 0;
    rig_init(&r, 75, 8);
    rig_lists(&r, &l, 1);
    CHECK(run_some(&r, 4, got, states) == 4);
    state = states[3];
    CHECK(resume_error(&r, &state, &err) == DLP_OK);
    for (size_t bit = 0; bit < 8 * sizeof state; bit++) {
        state.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += resume_error(&r, &state, &err) == DLP_ERR_CORRUPT;
        state.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK(refused == 8 * (int)sizeof state);
    for (size_t n = 0; n < sizeof state; n++) { /* cut off: the rest is zero */
        dlp_state cut;
        memset(&cut, 0, sizeof cut);
        memcpy(&cut, &state, n);
        CHECK(resume_error(&r, &cut, &err) == DLP_ERR_CORRUPT ||
              memcmp(&cut, &state, sizeof cut) == 0);
    }
    for (int i = 0; i < 200; i++) {
        for (size_t k = 0; k < sizeof state; k++) state.bytes[k] = (uint8_t)test_random(&random);
        CHECK(resume_error(&r, &state, &err) == DLP_ERR_CORRUPT);
    }
}

/* Right checksum, senseless content: an error, or a run that ends, and never a crash. */
static void resume__forged_state__harmless(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    uint64_t random = 12;
    for (int i = 0; i < 400; i++) {
        rig r;
        lists l;
        inside_state forged;
        dlp_state state;
        dlp_pipe *p;
        dlp_batch *b;
        int rc, n = 0;
        rig_init(&r, 75, 8);
        if (i & 1)
            rig_lists(&r, &l, i & 2);
        else
            rig_order(&r, DLP_ORDER_SHUFFLED);
        r.pipe.unordered = i >> 2 & 1;
        r.pipe.epochs = 2;
        CHECK(run_some(&r, 4, got, states) == 4);
        memcpy(&forged, &states[3], sizeof forged);
        if (i & 1) l.loose = 1;
        for (int k = 0; k < 3; k++) {
            uint64_t v = test_random(&random) >> test_pick(&random, 64);
            switch (test_pick(&random, 7)) {
            case 0: forged.epoch = v; break;
            case 1: forged.batch = v; break;
            case 2: forged.position = v; break;
            case 3: forged.gaps_used = (uint32_t)v; break;
            case 4: forged.gaps[v % sizeof forged.gaps] = (uint8_t)(v >> 8); break;
            case 5:
                forged.sampler_bytes =
                    r.sampler.batches.restore ? forged.sampler_bytes : (uint32_t)v;
                break;
            default: forged.epoch = v % 3;
            }
        }
        inside_state_seal(&forged);
        memcpy(&state, &forged, sizeof state);
        r.pipe.resume = &state;
        if (rig_try(&r, &p, NULL) != DLP_OK) continue;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && ++n < 60) {
            for (uint32_t k = 0; k < b->count; k++) CHECK(b->index[k] < 75);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END || rc == DLP_ERR_CALLBACK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- right checksum, and what was never saved ---- */

enum { END_DUE = 0x100 }; /* in `last`: the end of an epoch was not told */
enum { IN_ORDER, WINDOWED, LISTED, LISTED_AGAIN, IN_STREAM, IN_PARTS, FUZZED };

static int fuzz_stream(void *user, dlp_item *it) {
    return it->index >= 75 ? DLP_END : rig_fetch(user, it);
}
static int fuzz_whole(void *user, dlp_item *it) { /* the last batch does not know the end */
    return it->index >= 80 ? DLP_END : rig_fetch(user, it);
}
static int fuzz_part(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 0;
    return 0;
}

static void fuzz_rig(rig *r, lists *l, int kind) {
    static const uint64_t items[5] = {15, 15, 15, 15, 15};
    rig_init(r, 75, 8);
    r->pipe.epochs = 2;
    if (kind == LISTED || kind == LISTED_AGAIN)
        rig_lists(r, l, kind == LISTED);
    else if (kind < LISTED)
        rig_order(r, DLP_ORDER_SHUFFLED);
    r->pipe.unordered = kind == WINDOWED;
    r->dataset.open_end = kind == IN_STREAM;
    if (kind == IN_STREAM) r->dataset.fetch = fuzz_stream;
    if (kind != IN_PARTS) return;
    r->sampler.order = DLP_ORDER_PARTS;
    r->dataset.n_items = 0;
    r->parts = (dlp_node_load){
        .n_parts = 5, .items = items, .max_part_bytes = 8, .load = fuzz_part, .shuffle_parts = 1};
}

/* One field, a little beside what it was, or anything. */
static void fuzz_state(inside_state *s, uint64_t *random) {
    uint64_t v = test_random(random) >> test_pick(random, 64), k = test_pick(random, 3);
    uint64_t near = test_pick(random, 2) ? v : k - 1;
    uint32_t bit = test_pick(random, test_pick(random, 2) ? 12 : INSIDE_GAPS);
    switch (test_pick(random, 9)) {
    case 0: s->epoch += near; break;
    case 7: s->last ^= END_DUE; break;
    case 1: s->batch += near; break;
    case 2: s->position += near * (test_pick(random, 2) ? 8 : 1); break;
    case 3: s->gaps_used += (uint32_t)near; break;
    case 4: s->gaps[bit / 8] = (uint8_t)(s->gaps[bit / 8] | 1u << bit % 8); break;
    case 5:
        s->gaps[bit / 8] = (uint8_t)(s->gaps[bit / 8] | 1u << bit % 8);
        if (s->gaps_used <= bit) s->gaps_used = bit + 1;
        break;
    case 6: s->sampler_bytes += (uint32_t)near; break;
    default: s->sampler[v % sizeof s->sampler] ^= (uint8_t)(1u << k);
    }
    if (test_pick(random, 3) == 0) s->position = s->batch * 8;
}

static int fuzz_consumed(const inside_state *s, uint64_t k) {
    if (k < s->batch) return 1;
    k -= s->batch;
    return k < INSIDE_GAPS && (s->gaps[k / 8] >> k % 8 & 1) != 0;
}

/* Clear the bits that say what the data are: no pipe here knows that. */
static void fuzz_numbers(inside_state *s) {
    s->epoch &= (UINT64_C(1) << 48) - 1;
    s->batch &= (UINT64_C(1) << 48) - 1;
    s->sampler_bytes &= 0xff;
}

/* Written down once more, from what a state is said to be. */
static int fuzz_canonical(const inside_state *s, int kind) {
    uint64_t most = kind == IN_STREAM ? (UINT64_C(1) << 48) / 8 : 10, left = 0;
    uint32_t used = 0;
    int tail = 0;
    for (uint32_t k = 0; k < INSIDE_GAPS; k++)
        if (s->gaps[k / 8] >> k % 8 & 1) used = k + 1;
    for (uint32_t i = s->sampler_bytes; i < sizeof s->sampler; i++) tail |= s->sampler[i];
    if (s->epoch >= inside_epochs_most() || used != s->gaps_used || tail) return 0;
    if (s->last == END_DUE && (s->epoch == 0 || s->batch != 0 || used > 0)) return 0;
    if (kind != WINDOWED && used > 0) return 0;
    if (kind == LISTED || kind == LISTED_AGAIN) {
        if (s->batch == 0) return s->position == 0 && s->sampler_bytes == 0;
        if (s->position == 0) return s->sampler_bytes == 0;
        return s->position >= s->batch && s->position <= s->batch * 8;
    }
    if (s->sampler_bytes != (kind == IN_PARTS ? 40 : 0)) return 0;
    if (s->batch >= most || s->batch + used > most || s->position != s->batch * 8) return 0;
    for (uint64_t k = s->batch; k < most && left == 0; k++) left += !fuzz_consumed(s, k);
    return left > 0;
}

/* All of its epoch that the state does not call consumed, each once. */
static void fuzz_run(rig *r, const inside_state *s) {
    uint32_t got[10] = {0};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_state now;
    inside_state is;
    CHECK(rig_open(r, &p) == DLP_OK);
    CHECK(dlp_pipe_state(p, NULL, &now) == DLP_OK);
    memcpy(&is, &now, sizeof is);
    CHECK(is.epoch == s->epoch);
    for (uint64_t k = 0; k < 10; k++) CHECK(fuzz_consumed(s, k) == fuzz_consumed(&is, k));
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        if (b->epoch == s->epoch && b->in_epoch < 10) got[b->in_epoch]++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_error(p)->code == DLP_OK);
    for (uint64_t k = 0; s->epoch < 2 && k < 10; k++)
        CHECK(got[k] == (fuzz_consumed(s, k) ? 0 : 1));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A state with a right checksum is as the library saves them, or it is refused; nothing of an epoch
   is left out, or comes twice, without a word. */
static void resume__never_saved__refused(void) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    uint64_t random = 3;
    int taken = 0, refused = 0;
    for (int i = 0; i < test_share(2500, 100000); i++) {
        int kind = (int)test_pick(&random, FUZZED), n, good;
        rig r;
        lists l;
        inside_state s;
        dlp_state state;
        dlp_error err;
        fuzz_rig(&r, &l, kind);
        n = run_some(&r, (int)test_pick(&random, 9), got, kind == LISTED ? NULL : states);
        if (n == 0 || kind == LISTED) { /* from the beginning, or as dlp_pipe_state_at makes it */
            dlp_pipe *p;
            CHECK(rig_open(&r, &p) == DLP_OK);
            CHECK(dlp_pipe_state_at(p, 0, kind == LISTED ? (uint64_t)n : 0, &states[0]) == DLP_OK);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            n = 1;
        }
        memcpy(&s, &states[n - 1], sizeof s);
        CHECK(fuzz_canonical(&s, kind));
        for (uint32_t k = 1 + test_pick(&random, 3); k > 0; k--) fuzz_state(&s, &random);
        inside_state_seal(&s);
        memcpy(&state, &s, sizeof state);
        fuzz_numbers(&s);
        good = fuzz_canonical(&s, kind);
        l.loose = 1;
        r.pipe.resume = &state;
        n = resume_error(&r, &state, &err);
        if (kind == LISTED || kind == LISTED_AGAIN) {
            if (!good) CHECK(n == DLP_ERR_CORRUPT || n == DLP_ERR_RESUME);
        } else if (good != (n == DLP_OK) && !(kind == IN_PARTS && n == DLP_ERR_RESUME)) {
            printf("  kind %d: batch %d, position %d, used %d, bytes %d: %d\n", kind, (int)s.batch,
                   (int)s.position, (int)s.gaps_used, (int)s.sampler_bytes, n);
            CHECK(good == (n == DLP_OK));
        }
        CHECK(n == DLP_OK || n == DLP_ERR_CORRUPT || n == DLP_ERR_RESUME || n == DLP_ERR_CALLBACK);
        taken += n == DLP_OK;
        refused += n == DLP_ERR_CORRUPT;
        if (n == DLP_OK && kind <= WINDOWED && s.epoch < 3) fuzz_run(&r, &s);
        rig_free(&r);
    }
    CHECK(taken > 30 && refused > 30);
}

/* ---- the end of an epoch ---- */

enum { EVENTS = 40 };

/* What next gives: batches, and ends of epochs; and what a state says behind each. */
typedef struct events {
    int n;
    seen at[EVENTS];              /* epoch 99: the end of an epoch */
    dlp_state behind[EVENTS + 1]; /* [0]: before the first */
} events;

/* All events of a pipe. The batch that is given last is held until the next one. */
static void run_events(rig *r, events *e) {
    dlp_pipe *p;
    dlp_batch *b, *held = NULL;
    int rc = DLP_OK;
    memset(e, 0, sizeof *e);
    if (rig_open(r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_state(p, NULL, &e->behind[0]) == DLP_OK);
    while (e->n < EVENTS) {
        dlp_state of_held;
        rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK && rc != DLP_EPOCH_END) break;
        if (rc == DLP_OK && held != NULL) CHECK(dlp_pipe_release(p, held) == DLP_OK);
        if (rc == DLP_OK) held = b;
        e->at[e->n].epoch = 99;
        if (rc == DLP_OK) e->at[e->n] = seen_plain(b);
        CHECK(dlp_pipe_state(p, NULL, &e->behind[++e->n]) == DLP_OK);
        if (rc == DLP_EPOCH_END && (held == NULL || !(held->flags & DLP_BATCH_LAST))) continue;
        CHECK(dlp_pipe_state(p, held, &of_held) == DLP_OK);
        CHECK(memcmp(&of_held, &e->behind[e->n], sizeof of_held) == 0);
    }
    CHECK(rc == DLP_END);
    if (held != NULL) CHECK(dlp_pipe_release(p, held) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void end_rig(rig *r, lists *l, int kind) {
    fuzz_rig(r, l, kind);
    r->pipe.epoch_end = 1;
    r->pipe.max_held = 2;
}

/* From the state behind each batch and each end on, all that is left comes: an end that was not
   told comes first, and one that was told does not come again. */
static void end__state_at_each_event__rest_is_the_same(void) {
    static events all, rest;
    for (int kind = 0; kind < FUZZED; kind++)
        for (int workers = 0; workers < 2; workers++) {
            rig r;
            lists l;
            int ok = 1, ends = 0;
            end_rig(&r, &l, kind);
            if (kind != WINDOWED && kind < LISTED) rig_workers(&r, 2 * workers, 0);
            if (kind == IN_STREAM && workers) r.dataset.fetch = fuzz_whole;
            run_events(&r, &all);
            CHECK(all.n >= 20);
            for (int k = 0; k < all.n; k++) ends += all.at[k].epoch == 99;
            CHECK(ends == 2 && all.at[all.n - 1].epoch == 99);
            for (int k = 0; k <= all.n; k++) {
                rig again = r;
                again.pipe.resume = &all.behind[k];
                run_events(&again, &rest);
                ok &= rest.n == all.n - k;
                ok &= memcmp(&rest.behind[0], &all.behind[k], sizeof rest.behind[0]) == 0;
                for (int i = 0; ok && i < rest.n; i++)
                    ok &= memcmp(&rest.at[i], &all.at[k + i], sizeof rest.at[0]) == 0;
            }
            CHECK(ok);
            if (!ok) printf("  kind %d, workers %d\n", kind, workers);
            rig_free(&r);
        }
}

/* Take n events, and return the code of the last call. */
static int end_skip(dlp_pipe *p, int n) {
    dlp_batch *b;
    int rc = DLP_OK;
    while (n-- > 0)
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    return rc;
}

/* A seek to such a state, a pipe that does not tell ends, an epoch that is left, other ranks. */
static void end__not_told__only_where_it_is_asked_for(void) {
    rig r;
    lists l;
    dlp_pipe *p;
    dlp_state due, told, now;
    end_rig(&r, &l, IN_ORDER);
    r.batch.batch_size = 10;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(end_skip(p, 8) == DLP_OK && dlp_pipe_state(p, NULL, &due) == DLP_OK);
    CHECK(end_skip(p, 1) == DLP_EPOCH_END && dlp_pipe_state(p, NULL, &told) == DLP_OK);
    CHECK(memcmp(&due, &told, sizeof due) != 0);
    CHECK(end_skip(p, 3) == DLP_OK && dlp_pipe_seek(p, &due, NULL) == DLP_OK);
    CHECK(dlp_pipe_state(p, NULL, &now) == DLP_OK && memcmp(&now, &due, sizeof now) == 0);
    CHECK(end_skip(p, 1) == DLP_EPOCH_END && end_skip(p, 1) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &due, NULL) == DLP_OK && dlp_pipe_seek(p, &told, NULL) == DLP_OK);
    CHECK(end_skip(p, 1) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &due, NULL) == DLP_OK && dlp_pipe_next_epoch(p) == DLP_OK);
    CHECK(end_skip(p, 1) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    r.pipe.resume = &due;
    r.pipe.world_size = 2;
    for (r.pipe.rank = 0; r.pipe.rank < 2; r.pipe.rank++) {
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(end_skip(p, 1) == DLP_EPOCH_END && end_skip(p, 1) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    r.pipe.rank = 0;
    r.pipe.epoch_end = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(end_skip(p, 1) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
}

/* One of several ranks has not told the end yet: the ranks that go on from all states tell it. */
static void end__merged__told_unless_all_have(void) {
    rig r;
    lists l;
    dlp_pipe *p;
    dlp_state two[2], all;
    end_rig(&r, &l, IN_ORDER);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(end_skip(p, 10) == DLP_OK && dlp_pipe_state(p, NULL, &two[0]) == DLP_OK);
    CHECK(end_skip(p, 1) == DLP_EPOCH_END && dlp_pipe_state(p, NULL, &two[1]) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_state_merge(&all, two, 2, NULL) == DLP_OK && memcmp(&all, &two[0], sizeof all) == 0);
    CHECK(dlp_state_merge(&all, two, 1, NULL) == DLP_OK && memcmp(&all, &two[0], sizeof all) == 0);
    CHECK(dlp_state_merge(&all, &two[1], 1, NULL) == DLP_OK &&
          memcmp(&all, &two[1], sizeof all) == 0);
    all = two[0];
    two[0] = two[1];
    two[1] = all;
    CHECK(dlp_state_merge(&all, two, 2, NULL) == DLP_OK && memcmp(&all, &two[1], sizeof all) == 0);
}

/* ---- states that an older version saved ---- */

/* Saved behind `stop` batches by the version before a state knew of ends: its words. */
static const struct golden {
    int kind, stop;
    uint64_t word[31];
} goldens[] = {
    {IN_ORDER,
     3,
     {0x3131657461747364, 0xe657261e6de186aa, 0x4b, 0x2a, 0x2156f65e2e65821, 0x100000008, 0, 0x3,
      0x18}},
    {IN_ORDER,
     10,
     {0x3131657461747364, 0xc7e3c5d9ff2f93e1, 0x4b, 0x2a, 0x2156f65e2e65821, 0x100000008, 0x1}},
    {WINDOWED,
     3,
     {0x3131657461747364,
      0x15fc24c740dd8be8,
      0x4b,
      0x2a,
      0x2156f65e2e65821,
      0x100000008,
      0,
      0x3,
      0x18,
      0x4,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0xa}},
    {WINDOWED,
     10,
     {0x3131657461747364, 0xc7e3c5d9ff2f93e1, 0x4b, 0x2a, 0x2156f65e2e65821, 0x100000008, 0x1}},
    {LISTED,
     3,
     {0x3131657461747364, 0xa1fad38d5e6b677, 0x4b, 0x2a, 0xe5dda060e402b4cd, 0x500000008, 0, 0x3,
      0xa, 0x1800000000, 0, 0x3, 0x6fc23a}},
    {LISTED,
     9,
     {0x3131657461747364, 0xe2b036df4544e5be, 0x4b, 0x2a, 0xe5dda060e402b4cd, 0x500000008, 0x1}},
    {LISTED_AGAIN,
     3,
     {0x3131657461747364, 0x756025ca0a8e7ac5, 0x4b, 0x2a, 0xe5dda060e402b4cd, 0x500000008, 0, 0x3,
      0xa}},
    {LISTED_AGAIN,
     9,
     {0x3131657461747364, 0xe2b036df4544e5be, 0x4b, 0x2a, 0xe5dda060e402b4cd, 0x500000008, 0x1}},
    {IN_STREAM,
     3,
     {0x3131657461747364, 0xb28aab123cf3653a, 0xffffffffffffffff, 0x2a, 0xe8a403789c6a1e5a, 0x8, 0,
      0x3, 0x18}},
    {IN_STREAM,
     10,
     {0x3131657461747364, 0xb22df52edec7f459, 0xffffffffffffffff, 0x2a, 0xe8a403789c6a1e5a, 0x8,
      0x1}},
    {IN_PARTS,
     3,
     {0x3131657461747364, 0xe5aea9d8179868fc, 0x4b, 0x2a, 0x2156f65e2e65821, 0x600000008, 0, 0x3,
      0x18, 0x2800000000, 0x420b59f97d9f569c, 0x1, 0, 0x1}},
    {IN_PARTS,
     10,
     {0x3131657461747364, 0x5102e23004a1ad67, 0x4b, 0x2a, 0x2156f65e2e65821, 0x600000008, 0x1, 0, 0,
      0x2800000000, 0x420b59f97d9f569c, 0x1, 0, 0x1}}};

/* A state behind so many batches. Of an unordered pipe, two batches behind the next are consumed,
   too. */
static void golden_state(rig *r, int kind, int stop, dlp_state *to) {
    static seen got[RUN_MAX];
    static dlp_state states[RUN_MAX];
    inside_state s;
    CHECK(run_some(r, stop, got, states) == stop);
    memcpy(&s, &states[stop - 1], sizeof s);
    if (kind == WINDOWED && s.batch > 0) {
        s.gaps[0] = 10;
        s.gaps_used = 4;
        inside_state_seal(&s);
    }
    memcpy(to, &s, sizeof s);
}

/* They are saved as they were, and the run goes on behind them as it did. Behind the last batch of
   an epoch such a state does not say whether the end was told. So it is not told again. */
static void golden__states__resumed_and_saved_as_ever(void) {
    static events all, rest;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        const struct golden *g = &goldens[i];
        rig r, plain;
        lists l;
        dlp_state state, now;
        int skip = g->stop + (g->stop > 8), ok = 1;
        end_rig(&r, &l, g->kind);
        plain = r;
        plain.pipe.epoch_end = 0;
        golden_state(&plain, g->kind, g->stop, &now);
        memcpy(&state, g->word, sizeof state);
        CHECK(memcmp(&state, &now, sizeof state) == 0);
        run_events(&r, &all);
        r.pipe.resume = &state;
        if (g->kind == WINDOWED) {
            inside_state s;
            memcpy(&s, &state, sizeof s);
            r.pipe.epoch_end = 0;
            fuzz_run(&r, &s);
            continue;
        }
        run_events(&r, &rest);
        ok = rest.n == all.n - skip;
        for (int k = 0; ok && k < rest.n; k++)
            ok = memcmp(&rest.at[k], &all.at[skip + k], sizeof rest.at[0]) == 0;
        CHECK(ok);
        if (!ok) printf("  kind %d behind %d: %d of %d\n", g->kind, g->stop, rest.n, all.n);
        rig_free(&r);
    }
}

int main(void) {
    golden__states__resumed_and_saved_as_ever();
    end__state_at_each_event__rest_is_the_same();
    end__not_told__only_where_it_is_asked_for();
    end__merged__told_unless_all_have();
    resume__never_saved__refused();
    resume__every_batch_every_order__rest_is_the_same();
    resume__unordered__every_batch_in_one_life();
    resume__unordered_state_of_state__keeps_the_window();
    resume__unordered_wide_window__schedules_on();
    resume__unordered_then_next_epoch__epoch_whole();
    resume__behind_next_epoch__at_the_border();
    resume__other_configuration__names_the_field();
    resume__any_bit_flipped__refused();
    resume__forged_state__harmless();
    return test_end("pipe_resume");
}
