/* Streams and seeks where the workers are processes, and die. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"

#define ROWS 4u /* of a batch */

static struct common { /* shared by all processes */
    uint64_t length;
    uint64_t dies_at; /* index + 1 at which a callback dies, 0: none */
    int stage;        /* ... of this stage: 0 fetch, 1 item map, 2 collate, 3 batch map */
    int deaths;       /* that are still to come */
    int strayed;      /* an item map saw an item that is not there */
} * common;

static void die_here(int stage, uint64_t index) {
    if (common->dies_at != index + 1 || common->stage != stage) return;
    if (__atomic_fetch_sub(&common->deaths, 1, __ATOMIC_SEQ_CST) > 0) raise(SIGKILL);
}

static int fetch(void *user, dlp_item *it) {
    die_here(0, it->index);
    if (it->index >= common->length) return DLP_END;
    return rig_fetch(user, it);
}

static int item_map(void *user, dlp_item *it) {
    if (it->index >= common->length) common->strayed = 1;
    die_here(1, it->index);
    return rig_item_map(user, it);
}

static int collate(void *user, dlp_collate *c) {
    if (c->count == 0 || c->index[c->count - 1] >= common->length) return -1;
    die_here(2, c->index[c->count - 1]);
    return dlp_collate_pad(user, c);
}

static int batch_map(void *user, dlp_batch *b, void *state) {
    if (b->count == 0 || b->index[b->count - 1] >= common->length) return -1;
    if (((b->flags & DLP_BATCH_LAST) != 0) != (b->count < ROWS)) return -2;
    rig_batch_map(user, b, state);
    die_here(3, b->index[b->count - 1]); /* it is changed by now */
    return 0;
}

static void stream_init(rig *r, uint64_t length, int maps, int workers) {
    memset(common, 0, sizeof *common);
    common->length = length;
    rig_init(r, length, ROWS); /* the rig reads n_items, the pipe does not */
    r->dataset.open_end = 1;
    r->dataset.fetch = fetch;
    r->pipe.epochs = 2;
    r->pipe.epoch_end = 1;
    r->pipe.prefetch_factor = 3;
    shm_processes(r, workers, maps == 2);
    r->n_item_maps = maps > 0;
    r->n_batch_maps = maps > 0;
    r->item_map[0].map.item = item_map;
    r->batch_map[0].map.batch = batch_map;
    if (maps == 2) r->batch.collate = collate;
}

static int take_epochs(rig *r, dlp_pipe *p, uint64_t length) {
    uint64_t n = (length + ROWS - 1) / ROWS;
    dlp_batch *b;
    int ok = 1, rc = DLP_OK;
    for (uint64_t e = 0; e < 2 && rc == DLP_OK; e++) {
        for (uint64_t k = 0; k < n; k++) {
            if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) {
                rig_say(p, rc);
                return 0;
            }
            ok &= rig_batch_same(r, b, e, k);
            ok &= b->flags == (k == length / ROWS ? DLP_BATCH_LAST : 0);
            ok &= dlp_pipe_release(p, b) == DLP_OK;
        }
        ok &= dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END;
    }
    return ok && dlp_pipe_next_timeout(p, &b, 20000) == DLP_END && !common->strayed;
}

static void shm_streams__every_length__as_with_a_length(void) {
    for (int maps = 0; maps < 3; maps++)
        for (uint64_t length = 0; length <= 2 * ROWS + 1; length++) {
            rig r;
            dlp_pipe *p;
            if (test_share(8, 8) < 8 && length % 3 != 1) continue;
            stream_init(&r, length, maps, 1 + (int)(length & 1));
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(take_epochs(&r, p, length));
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* A worker dies over each row near the end, before it and behind it, in every stage. */
static void shm_streams__killed_near_the_end__ends_there_again(void) {
    const uint64_t length = 2 * ROWS + 2;
    for (int stage = 0; stage < 4; stage++)
        for (uint64_t at = length - 3; at <= length + 2; at++) {
            rig r;
            dlp_pipe *p;
            dlp_stats stats;
            uint64_t restarts = 0;
            if (stage > 1 && at != length - 1) continue; /* batches die by their last row */
            if (stage == 1 && at >= length) continue;    /* a map may not see it */
            stream_init(&r, length, stage > 0 ? 2 : at & 1, 2);
            common->dies_at = at + 1;
            common->stage = stage;
            common->deaths = 2;
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(take_epochs(&r, p, length));
            CHECK(at > length || __atomic_load_n(&common->deaths, __ATOMIC_SEQ_CST) <= 0);
            CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
            for (uint32_t i = 0; i < stats.n_stages; i++) restarts += stats.stages[i].restarts;
            CHECK(at > length || restarts > 0);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* An index behind the end that kills whoever asks for it: nobody minds. Before it: an error. */
static void shm_streams__poison__counts_before_the_end_only(void) {
    for (int behind = 0; behind < 2; behind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        stream_init(&r, 6, 0, 2);
        common->dies_at = behind ? 8 : 6;
        common->deaths = 1000;
        if (rig_open(&r, &p) != DLP_OK) return;
        if (behind) {
            CHECK(take_epochs(&r, p, 6));
        } else {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                  dlp_pipe_release(p, b) == DLP_OK);
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_KILLED);
            CHECK(dlp_pipe_error(p)->index == 5);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* One pipe of processes: from every batch to every batch, while workers die. */
static void shm_streams__seek__exact(void) {
    const uint64_t length = 3 * ROWS + 1, n = 4;
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_state at;
    stream_init(&r, length, 2, 2);
    r.pipe.epoch_end = 0;
    r.sampler.threaded = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (uint64_t from = 0; from < 2 * n; from++)
        for (uint64_t to = 0; to < 2 * n; to += 1 + from % 2) {
            uint64_t ahead = (from + to) % 3;
            CHECK(dlp_pipe_state_at(p, from / n, from % n, &at) == DLP_OK);
            CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            for (uint64_t k = from; k < from + ahead && k < 2 * n; k++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                      rig_batch_same(&r, b, k / n, k % n));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            common->dies_at = to % 3 == 0 ? to % n * ROWS + 1 : 0;
            common->deaths = from == to;
            CHECK(dlp_pipe_state_at(p, to / n, to % n, &at) == DLP_OK);
            CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                  rig_batch_same(&r, b, to / n, to % n));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* What needs all subscribers' consent is refused. */
static void shm_streams__subscribers__refused(void) {
    char name[64];
    dlp_shm_desc shm = {.name = name, .share = DLP_SHARE_EACH};
    rig r;
    dlp_pipe *p;
    dlp_error e;
    dlp_state state;
    snprintf(name, sizeof name, "dlpipe_streams_test_%d", (int)getpid());
    stream_init(&r, 6, 0, 1);
    r.pipe.shm = &shm;
    CHECK(rig_try(&r, &p, &e) == DLP_ERR_UNSUPPORTED && strcmp(e.field, "shm.share") == 0);
    r.dataset.open_end = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_state_at(p, 0, 1, &state) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_ERR_UNSUPPORTED && strcmp(e.field, "shm.share") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    SHM_NEEDS("shm_streams");
    common = shm_shared(sizeof *common);
    shm_streams__every_length__as_with_a_length();
    shm_streams__killed_near_the_end__ends_there_again();
    shm_streams__poison__counts_before_the_end_only();
    shm_streams__seek__exact();
    shm_streams__subscribers__refused();
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return test_end("shm_streams");
}
