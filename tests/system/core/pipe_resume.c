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
                r.repeat.epochs = 2;
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
            r.repeat.epochs = 2;
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
            r.repeat.epochs = 2;
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
        r.repeat.epochs = 3;
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
        other.sampler.world_size = 4;
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
        r.repeat.epochs = 2;
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

enum { IN_ORDER, WINDOWED, LISTED, LISTED_AGAIN, IN_STREAM, IN_PARTS, FUZZED };

static int fuzz_stream(void *user, dlp_item *it) {
    return it->index >= 75 ? DLP_END : rig_fetch(user, it);
}
static int fuzz_part(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 0;
    return 0;
}

static void fuzz_rig(rig *r, lists *l, int kind) {
    static const uint64_t items[5] = {15, 15, 15, 15, 15};
    rig_init(r, 75, 8);
    r->repeat.epochs = 2;
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
    r->parts = (inside_part_desc){
        .n_parts = 5, .items = items, .max_part_bytes = 8, .load = fuzz_part, .shuffle_parts = 1};
}

/* One field, a little beside what it was, or anything. */
static void fuzz_state(inside_state *s, uint64_t *random) {
    uint64_t v = test_random(random) >> test_pick(random, 64), k = test_pick(random, 3);
    uint64_t near = test_pick(random, 2) ? v : k - 1;
    uint32_t bit = test_pick(random, test_pick(random, 2) ? 12 : INSIDE_GAPS);
    switch (test_pick(random, 8)) {
    case 0: s->epoch += near; break;
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

/* Written down once more, from what a state is said to be. */
static int fuzz_canonical(const inside_state *s, int kind) {
    uint64_t most = kind == IN_STREAM ? (UINT64_C(1) << 48) / 8 : 10, left = 0;
    uint32_t used = 0;
    int tail = 0;
    for (uint32_t k = 0; k < INSIDE_GAPS; k++)
        if (fuzz_consumed(s, s->batch + k)) used = k + 1;
    for (uint32_t i = s->sampler_bytes; i < sizeof s->sampler; i++) tail |= s->sampler[i];
    if (s->epoch >= inside_epochs_most() || used != s->gaps_used || tail) return 0;
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

int main(void) {
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
