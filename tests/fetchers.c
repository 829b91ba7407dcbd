/* The topologies of the loader beside the economic, and fetchers with several items at once in one
   worker: the same bytes as an inline pipe, whatever fails; batches to workers in turn; memory as
   planned; resume, epochs, stops. fetchers [seed] */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include "pipe_rig.h"
#include "fetchers.h"

/* ---- bytes ---- */

static void bytes__any_topology__as_inline(uint64_t seed) {
    uint64_t random = seed;
    for (int policy = 0; policy < POLICIES; policy++) {
        digest inline_;
        job base;
        job_init(&base, policy);
        job_run(&base, &inline_);
        CHECK(policy == RAISES ? inline_.rc == DLP_ERR_CALLBACK : inline_.rc == DLP_END);
        for (int i = 0; i < test_share(KINDS, KINDS); i++) {
            digest got;
            job j;
            job_init(&j, policy);
            job_kind(&j, i);
            j.d.num_workers = 1 + (int32_t)test_pick(&random, 4);
            if (j.d.fetcher) j.d.in_flight = (int32_t)test_pick(&random, 9);
            if (j.d.fetcher && j.d.topology) j.d.batch_pool = test_pick(&random, 4) * 14;
            job_run(&j, &got);
            CHECK(digest_same(&got, &inline_));
            if (!digest_same(&got, &inline_))
                printf("  kind %d policy %d workers %d: rc %d, %d batches, skips %d\n", i, policy,
                       j.d.num_workers, got.rc, got.n, (int)got.skips);
        }
    }
}

/* ---- turns ---- */

/* Each batch wholly by one worker, the workers in turn. */
static void turns__classic__batch_by_batch(void) {
    for (int n = 1; n < 6; n++) {
        job j;
        digest got;
        job_init(&j, FINE);
        job_kind(&j, CLASSIC);
        j.d.num_workers = n;
        j.d.epochs = 1; /* who had an item is noted by its index */
        job_run(&j, &got);
        CHECK(got.rc == DLP_END && got.n > 3 * n);
        for (int b = 0; b < got.n; b++) CHECK(got.worker[b] == (uint32_t)(b % n));
    }
}

/* ---- memory ---- */

static void memory__classic__workers_times_prefetch(void) {
    for (int n = 1; n < 5; n++)
        for (int each = 0; each < 4; each++) {
            job j;
            dlp_pipe *p;
            dlp_stats s;
            uint32_t want = (uint32_t)(n * (each ? each : 2));
            job_init(&j, FINE);
            job_kind(&j, CLASSIC);
            j.d.num_workers = n;
            j.d.pipe.prefetch_factor = each;
            j.d.pipe.max_held = 3;
            CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
            CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
            CHECK(s.prefetch_factor == want && s.slots == want + 3);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void memory__too_many_batches__refused(void) {
    job j;
    dlp_pipe *p;
    dlp_error err;
    job_init(&j, FINE);
    job_kind(&j, CLASSIC);
    j.d.num_workers = 64;
    j.d.pipe.prefetch_factor = 65;
    CHECK(dlp_loader_open(&p, &j.d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "prefetch_factor") == 0);
    j.d.topology = -1;
    CHECK(dlp_loader_open(&p, &j.d, &err) == DLP_ERR_ARG && strcmp(err.field, "topology") == 0);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    bytes__any_topology__as_inline(seed);
    turns__classic__batch_by_batch();
    memory__classic__workers_times_prefetch();
    memory__too_many_batches__refused();
    return test_end("fetchers");
}
