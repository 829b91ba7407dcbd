/* Ranks: for a fixed global batch the union over the ranks is the batch of one rank, whatever
   the world. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

#define WORLD_MAX 8

typedef struct world {
    uint32_t n;
    rig r[WORLD_MAX];
    dlp_pipe *p[WORLD_MAX];
} world;

static int world_open(world *w, const rig *like, uint32_t n, const dlp_state *resume) {
    w->n = n;
    for (uint32_t i = 0; i < n; i++) {
        w->r[i] = *like;
        w->r[i].pipe.rank = i;
        w->r[i].pipe.world_size = n;
        w->r[i].pipe.resume = resume;
        if (rig_open(&w->r[i], &w->p[i]) != DLP_OK) return DLP_ERR_ARG;
    }
    return DLP_OK;
}

static void world_close(world *w) {
    for (uint32_t i = 0; i < w->n; i++) CHECK(dlp_pipe_close(w->p[i]) == DLP_OK);
}

/* One step of all ranks: global batch k of the epoch. Each rank's rows are where they belong, so
   they are no one else's, and together all; states, taken after it, are the same bytes everywhere.
   */
static int world_step(world *w, uint64_t epoch, uint64_t k, dlp_state *state) {
    int ok = 1;
    uint64_t rows = 0, first, from, whole;
    rig one = w->r[0];
    one.pipe.rank = 0;
    one.pipe.world_size = 1;
    rig_share(&one, k, &first, &from, &whole);
    for (uint32_t i = 0; i < w->n; i++) {
        dlp_batch *b;
        dlp_state mine;
        int rc = dlp_pipe_next_timeout(w->p[i], &b, 20000);
        if (rc != DLP_OK) {
            rig_say(w->p[i], rc);
            return 0;
        }
        ok &= rig_batch_same(&w->r[i], b, epoch, k) && b->position == first + rows;
        ok &= b->flags == (k + 1 == rig_batches(&w->r[i]) ? DLP_BATCH_LAST : 0);
        rows += b->count;
        ok &= dlp_pipe_state(w->p[i], b, &mine) == DLP_OK;
        if (i == 0) *state = mine;
        ok &= memcmp(&mine, state, sizeof mine) == 0;
        ok &= dlp_pipe_release(w->p[i], b) == DLP_OK;
    }
    return ok && rows == whole;
}

static void ranks__any_world__union_is_the_global_batch(void) {
    uint64_t random = 3;
    static const uint32_t batches[] = {24, 5, 3, 40, 840, 1};
    static const int workers[] = {0, 2, 0, 1};
    for (uint32_t n = 1; n <= WORLD_MAX; n++)
        for (int last = 0; last < 3; last++)
            for (int i = 0; i < 6; i++) {
                world w;
                rig like;
                dlp_state state;
                uint32_t size = batches[i];
                if (last == DLP_LAST_DROP && size > 203) continue;
                rig_init(&like, 203, size);
                rig_order(&like, DLP_ORDER_SHUFFLED);
                like.batch.last = last;
                like.pipe.epochs = 2;
                like.pipe.allow_uneven = size % n != 0;
                like.sampler.threaded = (int32_t)test_pick(&random, 2);
                rig_workers(&like, workers[test_pick(&random, 4)], (int)test_pick(&random, 2));
                like.n_item_maps = (int)test_pick(&random, 2);
                like.n_batch_maps = (int)test_pick(&random, 2);
                like.n_transfers = (int)test_pick(&random, 2);
                like.transfer.workers.num_workers = (int32_t)test_pick(&random, 2);
                if (test_pick(&random, 2)) like.batch.collate = dlp_collate_pack;
                if (world_open(&w, &like, n, NULL) != DLP_OK) return;
                for (uint64_t e = 0; e < 2; e++)
                    for (uint64_t k = 0; k < rig_batches(&like); k++)
                        CHECK(world_step(&w, e, k, &state));
                for (uint32_t r = 0; r < n; r++) {
                    dlp_batch *b;
                    CHECK(dlp_pipe_next_timeout(w.p[r], &b, 20000) == DLP_END);
                }
                world_close(&w);
            }
}

static int passes_at_once(int kind) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t began = test_now_ns(), took;
    int rc = DLP_OK;
    uint64_t n = 0;
    rig_init(&r, 60, 2);
    r.pipe.rank = 0; /* rows of rank 0 of 8: 2 * 1 / 8 = 0 */
    r.pipe.world_size = 8;
    r.pipe.allow_uneven = 1;
    rig_workers(&r, kind & 1 ? 2 : 0, kind >> 1 & 1);
    r.sampler.threaded = kind >> 2 & 1;
    r.n_batch_maps = kind >> 3 & 1;
    r.n_transfers = kind >> 4 & 1;
    r.transfer.workers.num_workers = kind >> 5 & 1;
    r.pipe.prefetch_factor = 1;
    if (kind % 3 == 0) r.batch.collate = dlp_collate_pad;
    if (rig_open(&r, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(b->count == 0 && b->valid_count == 0 && b->in_epoch == n &&
              rig_batch_same(&r, b, 0, n));
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && n == 30);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    took = (test_now_ns() - began) / 1000000;
    if (rc != DLP_END || took >= 1000) printf("  kind %d: %d ms\n", kind, (int)took);
    return took < 1000;
}

/* A batch of which this rank has no row goes through every stage, at once: nobody sleeps over
   it. */
static void ranks__no_rows_for_this_rank__passes_every_stage(void) {
    for (int kind = 0; kind < 64; kind++) CHECK_ONE_OF_5(passes_at_once(kind));
}

static void ranks__batch_not_divisible__named_unless_uneven(void) {
    rig r;
    dlp_pipe *p;
    dlp_error err;
    rig_init(&r, 203, 10);
    r.pipe.world_size = 4;
    CHECK(rig_try(&r, &p, &err) == DLP_ERR_ARG);
    CHECK(strstr(err.message, "10") != NULL && strstr(err.message, "4") != NULL);
    r.pipe.allow_uneven = 1;
    if (rig_open(&r, &p) == DLP_OK) CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Four ranks stop behind any batch; three, two or one go on from any one's state as if nothing
   had been. */
static void ranks__resume_in_another_world__goes_on(void) {
    static const uint32_t after[] = {3, 2, 1};
    for (int last = 0; last < 3; last++) {
        rig like;
        rig_init(&like, 100, 12);
        rig_order(&like, DLP_ORDER_SHUFFLED);
        like.batch.last = last;
        like.pipe.epochs = 2;
        for (uint64_t stop = 1; stop <= rig_batches(&like) + 1; stop++)
            for (int i = 0; i < 3; i++) {
                world w;
                dlp_state state, other;
                uint64_t n = rig_batches(&like);
                rig_workers(&like, i == 1 ? 2 : 0, 0);
                if (world_open(&w, &like, 4, NULL) != DLP_OK) return;
                for (uint64_t k = 0; k < stop; k++) CHECK(world_step(&w, k / n, k % n, &state));
                world_close(&w);
                if (world_open(&w, &like, after[i], &state) != DLP_OK) return;
                for (uint64_t k = stop; k < 2 * n; k++) CHECK(world_step(&w, k / n, k % n, &other));
                world_close(&w);
            }
    }
}

int main(void) {
    ranks__batch_not_divisible__named_unless_uneven();
    ranks__no_rows_for_this_rank__passes_every_stage();
    ranks__any_world__union_is_the_global_batch();
    ranks__resume_in_another_world__goes_on();
    return test_end("pipe_ranks");
}
