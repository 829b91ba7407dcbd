/* needs: parts */
/* How unevenly streams of parts have items, and what an epoch leaves out of them: known numbers, by
   the pipe and by a monitor, with part workers that are killed. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/found_rig.h"

enum { PARTS = 6, EACH = 2 }; /* rows of a stream in a batch */

static const uint32_t COUNTS[PARTS] = {4, 10, 2, 1, 6, 3}; /* streams of 5, 16, 5: 26 */
static found_seen *seen;

static void init(found_rig *r) {
    found_init(r, seen, PARTS, 10);
    memcpy(seen->counts, COUNTS, sizeof COUNTS);
    r->d.pipe.streams = 3;
    r->d.shuffle = 0;
    r->d.batch_size = 3 * EACH;
    r->d.drop_last = DLP_LAST_DROP;
}

static uint64_t take(dlp_pipe *p, uint64_t most, dlp_state *state) {
    dlp_batch *b;
    uint64_t n = 0;
    int rc = DLP_OK;
    while (n < most && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (state) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
        dlp_pipe_release(p, b);
        n++;
    }
    if (rc < 0) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(rc == DLP_OK || rc == DLP_END);
    return n;
}

static dlp_stream_stats spread_of(const dlp_stats *stats) {
    dlp_stream_stats to;
    memset(&to, 0, sizeof to);
    for (int32_t i = 0; i < DLP_MAX_STAGES; i++)
        if (stats->stages[i].kind == DLP_STAGE_FOUND) to = stats->stages[i].spread;
    return to;
}

static dlp_stream_stats spread(dlp_pipe *p, const char *words, const char *more) {
    static dlp_stats stats;
    char text[4096];
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
    CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    CHECK((strstr(text, "Streams: ") != NULL) == (words != NULL));
    CHECK(words == NULL || strstr(text, words) != NULL);
    CHECK(strstr(text, more) != NULL);
    if (test_failures) printf("%s", text);
    return spread_of(&stats);
}

static int is(const dlp_stream_stats *x, uint32_t counted, uint64_t least, uint64_t most,
              uint64_t items, uint64_t left_out) {
    return x->counted == counted && x->least == least && x->most == most && x->items == items &&
           x->left_out == left_out;
}

/* 5 items have 2 full rows: 4 of each stream, 12 of 26. */
static void drop__killed_workers__exact(int processes) {
    dlp_shm_desc shm;
    dlp_stream_stats x;
    found_rig r;
    dlp_pipe *p;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    shm.name = "found_spread";
    init(&r);
    r.d.epochs = 3;
    if (processes) {
        r.d.parts.workers.placement = r.d.workers.placement = DLP_PLACE_PROCESSES;
        r.d.pipe.shm = &shm;
        seen->kill_every = 3;
    }
    /* A stream is counted if its end was seen before the last batch was: again, if one was not. */
    for (int tries = 5;; tries--) {
        static dlp_stats stats;
        CHECK(found_open(&r, &p) == DLP_OK);
        CHECK(take(p, UINT64_MAX, NULL) == 3 * 2);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        if (tries == 0 || spread_of(&stats).counted == 3) break;
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    x = spread(p,
               "3 of the 3 streams of this rank are counted: 5 to 16 items in a pass, each 19 to "
               "62 % of all; an epoch leaves out 54 %.\n",
               "");
    CHECK(x.streams == 3 && x.all == 3 && x.drops == 1 && x.weights == 0);
    CHECK(is(&x, 3, 5, 16, 26, 14));
    if (processes) {
        static dlp_stats stats;
        dlp_monitor *m = NULL;
        CHECK(dlp_monitor_open(&m, shm.name, NULL) == DLP_OK);
        CHECK(dlp_monitor_stats(m, &stats) == DLP_OK);
        CHECK(spread_of(&stats).streams == 3);
        x = spread_of(&stats);
        CHECK(is(&x, 3, 5, 16, 26, 14));
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* 12 rows of each stream: those of 16 items have 4 more in a pass. */
static void steps__what_comes_after_them(void) {
    found_rig r;
    dlp_pipe *p;
    dlp_stream_stats x;
    init(&r);
    r.d.pipe.steps_per_epoch = 6;
    CHECK(found_open(&r, &p) == DLP_OK);
    CHECK(take(p, UINT64_MAX, NULL) == 6);
    x = spread(p, "; an epoch leaves out 15 %.\n", "");
    CHECK(is(&x, 3, 5, 16, 26, 4) && x.drops == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int64_t alone(void *user, int64_t mine, int most) {
    (void)user;
    (void)most;
    return mine;
}

/* A rank knows its own streams; where all end together, another's may end the epoch sooner. */
static void ranks__own_streams_only(void) {
    for (uint32_t rank = 0; rank < 3; rank++) {
        const uint64_t items = rank == 1 ? 16 : 5;
        found_rig r;
        dlp_pipe *p;
        dlp_stream_stats x;
        init(&r);
        r.d.pipe.world_size = 3;
        r.d.pipe.rank = rank;
        if (rank == 2)
            r.d.pipe.agree = alone;
        else
            r.d.pipe.uneven = 1;
        CHECK(found_open(&r, &p) == DLP_OK);
        CHECK(take(p, UINT64_MAX, NULL) == items / EACH);
        x = spread(p,
                   rank == 0   ? "; an epoch leaves out 20 %.\n"
                   : rank == 1 ? NULL
                               : "; an epoch leaves out at least 20 %.\n",
                   "");
        CHECK(x.streams == 1 && x.all == 3 && x.drops == (rank == 2 ? 2 : 1));
        CHECK(is(&x, 1, items, items, items, items % EACH));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Of streams 0 and 2 the state is in their second part; of stream 1 still in the first. */
static void resume__passes_that_are_not_whole__not_counted(void) {
    dlp_state state;
    dlp_stream_stats x;
    found_rig r;
    dlp_pipe *p;
    init(&r);
    r.d.drop_last = DLP_LAST_PARTIAL;
    r.d.epochs = 2;
    CHECK(found_open(&r, &p) == DLP_OK);
    CHECK(take(p, 3, &state) == 3);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (uint32_t epochs = 1; epochs < 3; epochs++) {
        r.d.epochs = epochs;
        r.d.pipe.resume = &state;
        CHECK(found_open(&r, &p) == DLP_OK);
        CHECK(take(p, UINT64_MAX, NULL) == 5 + 8 * (epochs - 1));
        x = spread(p, epochs == 1 ? "1 of the 3 streams" : "3 of the 3 streams", "");
        CHECK(epochs == 1 ? is(&x, 1, 16, 16, 16, 0) : is(&x, 3, 5, 16, 26, 0));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Wherever streams begin again, what is counted is a pass. */
static void seek__anywhere__passes_are_whole(uint64_t random) {
    static dlp_stats stats;
    dlp_state states[8];
    dlp_stream_stats x = {0};
    found_rig r;
    dlp_pipe *p;
    init(&r);
    r.d.pipe.steps_per_epoch = 30;
    r.d.epochs = DLP_FOREVER;
    CHECK(found_open(&r, &p) == DLP_OK);
    for (uint32_t i = 0; i < 200; i++) {
        take(p, 1 + test_pick(&random, 4), &states[i % 8]);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        x = spread_of(&stats);
        if (x.counted > 0) CHECK((x.least == 5 || x.least == 16) && (x.most == 5 || x.most == 16));
        CHECK(x.items == 5 * (x.counted - (x.most == 16)) + (x.most == 16 ? 16 : 0));
        if (i >= 8 && test_pick(&random, 2))
            CHECK(dlp_pipe_seek(p, &states[test_pick(&random, 8)], NULL) == DLP_OK);
    }
    CHECK(x.counted == 3);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* 30 | 20 10 | 20 10, and the last 10 to the first. */
static void weights__known_before_a_part_is(void) {
    static const uint64_t weights[PARTS] = {10, 20, 10, 30, 10, 20};
    dlp_stream_stats x;
    found_rig r;
    dlp_pipe *p;
    init(&r);
    r.d.parts.weights = weights;
    CHECK(found_open(&r, &p) == DLP_OK);
    x = spread(p, NULL,
               "Weights: each of the 3 streams has 30 to 40 % of the weight; if the numbers of "
               "items follow the weights, an epoch leaves out 10 %.\n");
    CHECK(x.weights == 100 && x.weights_least == 30 && x.weights_most == 40);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    seen = shm_shared(sizeof *seen);
    drop__killed_workers__exact(0);
    if (shm_missing() == NULL) drop__killed_workers__exact(1);
    steps__what_comes_after_them();
    ranks__own_streams_only();
    resume__passes_that_are_not_whole__not_counted();
    seek__anywhere__passes_are_whole(1);
    weights__known_before_a_part_is();
    return test_end("found_spread");
}
