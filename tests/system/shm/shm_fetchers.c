/* Topologies and fetchers in worker processes: the same bytes as an inline pipe, also when workers
   are killed with many items in flight; and of those it is only the culprit that becomes poison.
   shm_fetchers [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/fetchers.h"

static dlp_shm_desc shm_;

static void process_kind(job *j, int kind, uint64_t *random) {
    job_kind(j, kind);
    j->d.workers.placement = DLP_PLACE_PROCESSES;
    j->d.num_workers = 1 + (int32_t)test_pick(random, 3);
    j->d.pipe.shm = &shm_;
    if (j->d.fetcher) j->d.in_flight = 1 + (int32_t)test_pick(random, 8);
    if (j->d.fetcher && j->d.topology) j->d.batch_pool = test_pick(random, 4) * 14;
}

static void say(const char *what, int kind, const job *j, const digest *got, const digest *want) {
    char text[700];
    dlp_error_format(&got->err, text, sizeof text);
    printf("  %s: kind %d policy %d workers %d in_flight %d: rc %d, %d batches, skips %d, not "
           "rc %d, %d, %d: %s\n",
           what, kind, j->policy, j->d.num_workers, j->d.in_flight, got->rc, got->n,
           (int)got->skips, want->rc, want->n, (int)want->skips, text);
}

static void bytes__processes__as_inline(uint64_t *random) {
    for (int policy = 0; policy < POLICIES; policy += 1 + (getenv("SHORT") != NULL)) {
        digest want;
        job base;
        job_init(&base, policy);
        job_run(&base, &want);
        for (int kind = 0; kind < KINDS; kind++) {
            digest got;
            job j;
            job_init(&j, policy);
            process_kind(&j, kind, random);
            shm_ = (dlp_shm_desc){0};
            job_run(&j, &got);
            CHECK(digest_same(&got, &want));
            if (!digest_same(&got, &want)) say("bytes", kind, &j, &got, &want);
        }
    }
}

/* Items that kill their process, with others in flight there. Two deaths make poison: so nobody
   else may be blamed twice. */
static void poison__many_in_flight__only_the_culprit(uint64_t *random) {
    for (int policy = POISON_REPLACED; policy <= POISON_LEFT_OUT; policy++) {
        digest want;
        job base;
        job_init(&base, policy);
        base.d.epochs = 1;
        job_run(&base, &want);
        CHECK(want.rc == DLP_END && want.skips > 3);
        for (int kind = CLASSIC; kind < KINDS; kind++) {
            digest got;
            job j;
            job_init(&j, policy);
            process_kind(&j, kind, random);
            j.d.epochs = 1;
            j.kills = 1;
            shm_ = (dlp_shm_desc){.max_kills = j.d.fetcher && kind % 2 ? 1 : 2};
            job_run(&j, &got);
            CHECK(digest_same(&got, &want));
            /* each dies with others once, then alone */
            CHECK(got.restarts > 0 && got.restarts <= 2 * got.skips);
            if (!digest_same(&got, &want)) say("poison", kind, &j, &got, &want);
        }
    }
}

/* An item that never returns is late; the others in flight are not, and are not blamed, unless they
   had no core for so long. */
static bool deadline_try(uint64_t *random, bool last) {
    digest want, got;
    job base, j;
    job_init(&base, POISON_REPLACED);
    base.d.epochs = 1;
    base.d.dataset.n_items = 150;
    job_run(&base, &want);
    CHECK(want.skips > 0);
    job_init(&j, POISON_REPLACED);
    process_kind(&j, THREADS, random);
    j.d.epochs = 1;
    j.d.dataset.n_items = 150;
    j.d.batch_pool = 8 * 14; /* there is work for the others until it is late */
    j.pause_us = 8000;
    j.kills = 2;
    j.d.in_flight = 4;
    j.d.workers.deadline_ms = 60;
    shm_ = (dlp_shm_desc){.max_kills = 1};
    job_run(&j, &got);
    CHECK(!last || digest_same(&got, &want));
    if (!digest_same(&got, &want)) say("deadline", THREADS, &j, &got, &want);
    return digest_same(&got, &want);
}

static void deadline__many_in_flight__only_the_culprit(uint64_t *random) {
    for (int tries = 1; !deadline_try(random, tries == 5) && tries < 5; tries++) continue;
}

/* Workers killed from outside at any moment. */
static void kills__at_random__same_bytes(uint64_t *random) {
    for (int kind = CLASSIC; kind < KINDS; kind++) {
        digest want, got;
        job base, j;
        dlp_pipe *p;
        dlp_batch *b;
        int kills = 0;
        job_init(&base, RETRIES);
        job_run(&base, &want);
        job_init(&j, RETRIES);
        process_kind(&j, kind, random);
        j.pause_us = 200;
        shm_ = (dlp_shm_desc){.max_kills = 24};
        memset(&got, 0, sizeof got);
        CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
        while ((got.rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            dlp_worker_stats s;
            digest_take(&j, &got, b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            if (test_pick(random, 5) != 0) continue;
            test_pause(test_pick(random, 1000) * 1000u);
            CHECK(dlp_pipe_worker_stats(p, test_pick(random, (uint32_t)j.d.num_workers), &s) == 0);
            if (s.pid > 0 && s.state != DLP_WORKER_STARTING) kills += kill(s.pid, SIGKILL) == 0;
        }
        got.err = *dlp_pipe_error(p);
        for (int ms = 0; ms < 20000 && kills > 0 && inside_restarts(p) == 0; ms++)
            test_pause(1000000);
        CHECK(inside_restarts(p) > 0 || kills == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(kills > 0 && digest_same(&got, &want));
        if (!digest_same(&got, &want)) say("kills", kind, &j, &got, &want);
    }
}

/* Threads run as everybody else, though workers are forked with short slices. */
static uint64_t *slice_of_thread; /* UINT64_MAX: none was begun */

static uint64_t slice_now(void) {
    struct { /* sched_setattr(2) */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {0};
    return syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0u) == 0 ? attr.runtime : 0;
}

static int slice_fetch(void *user, dlp_item *it) {
    __atomic_store_n(slice_of_thread, slice_now(), __ATOMIC_SEQ_CST);
    return job_fetch(user, it);
}
static void *slice_thread(void *arg) {
    __atomic_store_n(slice_of_thread, slice_now(), __ATOMIC_SEQ_CST);
    return arg;
}
static int slice_init(void *user, int worker, void **state) {
    pthread_t thread;
    (void)user;
    (void)worker;
    (void)state;
    return pthread_create(&thread, NULL, slice_thread, NULL) || pthread_join(thread, NULL);
}

static void threads__of_processes__usual_slices(uint64_t *random) {
    slice_of_thread = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int kind = CLASSIC; kind <= THREADS; kind += THREADS - CLASSIC) {
        job j;
        digest got;
        job_init(&j, FINE);
        process_kind(&j, kind, random);
        j.d.epochs = 1;
        if (kind == CLASSIC)
            j.d.workers.worker_init = slice_init;
        else
            j.d.dataset.fetch = slice_fetch;
        shm_ = (dlp_shm_desc){0};
        *slice_of_thread = UINT64_MAX;
        job_run(&j, &got);
        CHECK(got.rc == DLP_END && *slice_of_thread == slice_now());
    }
}

int main(int argc, char **argv) {
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("shm_fetchers");
    bytes__processes__as_inline(&random);
    poison__many_in_flight__only_the_culprit(&random);
    deadline__many_in_flight__only_the_culprit(&random);
    kills__at_random__same_bytes(&random);
    threads__of_processes__usual_slices(&random);
    return test_end("shm_fetchers");
}
