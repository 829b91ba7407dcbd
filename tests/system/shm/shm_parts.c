/* needs: parts */
/* Part queues with worker processes: the same order and bytes whatever runs where and whoever is
   killed; parts that kill, loads that never end, downloads cut off. shm_parts [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/parts_rig.h"
#include "../../rig/shm_rig.h"

static parts_seen *seen; /* shared */

static void processes(parts_rig *r, int32_t parts, int32_t items) {
    r->d.parts.workers.placement = r->d.workers.placement = DLP_PLACE_PROCESSES;
    r->d.parts.workers.num_workers = so_many((uint64_t)parts);
    r->d.num_workers = items;
}

/* ---- any wiring ---- */

static void any_case(uint64_t *random) {
    static const uint32_t streams[] = {1, 2, 4, 8};
    parts_rig r;
    dlp_shm_desc shm;
    int before = test_failures;
    if (before > 5) return;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    parts_init(&r, seen, 1 + test_pick(random, 30), NULL);
    if (r.total < 8) return;
    processes(&r, (int32_t)test_pick(random, 4), (int32_t)test_pick(random, 4));
    if (test_pick(random, 4) == 0)
        r.d.parts.workers.placement = DLP_PLACE_THREADS;
    else if (test_pick(random, 3) == 0)
        r.d.workers.placement = DLP_PLACE_THREADS;
    r.d.pipe.streams = streams[test_pick(random, 4)];
    r.d.drop_last = r.total >= 8 ? (int32_t)test_pick(random, 3) : 0;
    if (test_pick(random, 4) == 0) r.d.pipe.steps_per_epoch = 1 + test_pick(random, 12);
    r.d.sampler.threaded = (int32_t)test_pick(random, 2);
    r.d.epochs = 1 + test_pick(random, 3);
    r.d.pipe.prefetch_factor = (int32_t)test_pick(random, 5);
    if (test_pick(random, 4) == 0) r.d.collate = dlp_collate_pad;
    r.d.pipe.shm = &shm;
    if (test_pick(random, 3) == 0) seen->kill_every = 2 + test_pick(random, 9);
    if (r.d.parts.workers.num_workers == DLP_NONE ||
        r.d.parts.workers.placement == DLP_PLACE_THREADS)
        seen->kill_every = 0; /* it would be us */
    CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r) * r.d.epochs);
    if (test_failures != before)
        printf("  parts %d streams %u last %d steps %d workers %d (%d) %d (%d) threaded %d "
               "prefetch %d kill every %u\n",
               (int)r.d.parts.n_parts, r.d.pipe.streams, r.d.drop_last,
               (int)r.d.pipe.steps_per_epoch, r.d.parts.workers.num_workers,
               r.d.parts.workers.placement, r.d.num_workers, r.d.workers.placement,
               r.d.sampler.threaded, r.d.pipe.prefetch_factor, seen->kill_every);
}

static void run__any_wiring__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(60, 1000); i++) any_case(&seed);
}

/* ---- deaths ---- */

/* Workers of both stages die from outside at any moment, and each third load kills its worker. */
static void kill__anybody_at_any_moment__nothing_lost(void) {
    static uint64_t order[2 * PARTS_ITEMS];
    uint64_t random = 3;
    parts_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_shm_desc shm;
    dlp_stats s;
    uint64_t n = 0, epoch = UINT64_MAX;
    int rc, ok = 1, kills = 0;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 50;
    parts_init(&r, seen, 30, NULL);
    processes(&r, 3, 2);
    r.d.pipe.streams = 2;
    r.d.epochs = test_share(8, 100);
    r.d.pipe.shm = &shm;
    seen->kill_every = 3;
    if (parts_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        dlp_worker_stats w;
        if (b->epoch != epoch) parts_order(&r, epoch = b->epoch, order);
        ok &= parts_batch_same(&r, b, order, 0) && b->sequence == n++;
        dlp_pipe_release(p, b);
        if (test_pick(&random, 4) != 0) continue;
        dlp_pipe_worker_stats(p, test_pick(&random, 5), &w);
        if (w.pid > 0 && w.pid != getpid() && w.process && kill(w.pid, SIGKILL) == 0) kills++;
    }
    CHECK(rc == DLP_END && ok && seen->wrong == 0);
    CHECK(n == parts_batches(&r) * (uint64_t)r.d.epochs && kills > 5);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.stages[2].restarts > 5);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Runs until an error; returns the batches before it. */
static uint64_t run_to_error(parts_rig *r, dlp_error *err) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0;
    memset(err, 0, sizeof *err);
    if (parts_open(r, &p) != DLP_OK) return UINT64_MAX;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        dlp_pipe_release(p, b);
        n++;
    }
    *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

static void kill__by_a_part__it_has_failed(void) {
    parts_rig r;
    dlp_error err;
    parts_init(&r, seen, 20, NULL);
    processes(&r, 2, 1);
    seen->poison = 4;
    run_to_error(&r, &err);
    CHECK(err.code == DLP_ERR_KILLED && strcmp(err.stage, "parts") == 0);
    CHECK(strstr(err.message, "part 3: the load's process died 3 times") != NULL);
    CHECK(strstr(err.message, "SIGKILL") != NULL && seen->loaded[3] == 0);
    r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    CHECK(parts_run_on(&r, 4) == (int64_t)parts_batches(&r));
}

/* A loader says what is wrong with part 3, and dies: nobody else's words, nor those of its next
   try. */
static uint32_t last_words_of; /* part that fails without words */

static int last_words_load(void *user, dlp_part *part) {
    parts_seen *s = user;
    if (part->index == 3 && __atomic_fetch_add(&s->failed, 1, __ATOMIC_SEQ_CST) == 0) {
        dlp_fail(part->call, 12, "famous last words");
        raise(SIGKILL);
    }
    return part->index == last_words_of ? -3 : parts_load(user, part);
}

static void kill__by_a_part_that_said_why__words_are_forgotten(void) {
    for (last_words_of = 3; last_words_of < 5; last_words_of++) {
        parts_rig r;
        dlp_error err;
        char words[64];
        parts_init(&r, seen, 20, NULL);
        processes(&r, 1, 1);
        r.d.shuffle = 0;
        r.d.parts.load = last_words_load;
        run_to_error(&r, &err);
        snprintf(words, sizeof words, "part %u: the callback returned -3", last_words_of);
        CHECK(seen->failed == 2 && err.code == DLP_ERR_CALLBACK && err.errnum == 0);
        CHECK(strstr(err.message, words) != NULL);
    }
}

static void deadline__load_never_ends__killed_and_tried_again(void) {
    parts_rig r;
    dlp_error err;
    bool culprit = false;
    for (int tries = 0; tries < 5 && !culprit; tries++) { /* another may get no core for so long */
        parts_init(&r, seen, 20, NULL);
        processes(&r, 2, 1);
        seen->stuck_part = 4;
        r.d.parts.workers.deadline_ms = 60;
        run_to_error(&r, &err);
        CHECK(err.code == DLP_ERR_DEADLINE);
        culprit = strstr(err.message, "part 3: the load ran past") != NULL;
        if (!culprit) parts_say(err.code, &err);
    }
    CHECK(culprit);
    r.d.parts.workers.retries = 4;
    CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r));
}

/* ---- downloads ---- */

static parts_rig *downloads_of;
static uint32_t *downloads; /* shared */

/* The first one for each file dies half-way. */
static int download(void *user, const dlp_part *part, const char *path, int fd) {
    uint64_t half = (part->items + 1) / 2;
    char bytes[8] = "garbage";
    (void)user;
    (void)path;
    if (lseek(fd, 0, SEEK_END) != 0) return 1; /* nothing of the dead one is in it */
    if (__atomic_fetch_add(&downloads[part->index], 1, __ATOMIC_SEQ_CST) == 0) {
        for (uint64_t i = 0; i < half; i++)
            if (write(fd, bytes, sizeof bytes) != sizeof bytes) return 1;
        raise(SIGKILL);
    }
    return parts_write(downloads_of, part->index, fd);
}

static void download__killed_half_way__never_taken_for_whole(void) {
    parts_rig r;
    dlp_part_files f;
    int half = 0;
    parts_init(&r, seen, 20, NULL);
    parts_files(&r, &f, 0);
    f.download = download;
    downloads_of = &r;
    processes(&r, 3, 1);
    CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r));
    for (uint64_t k = 0; k < 20; k++) {
        char path[128];
        struct stat st;
        CHECK(downloads[k] == (r.items[k] ? 2 : 0));
        parts_path(path, parts_names[k], "");
        if (r.items[k]) half += stat(path, &st) != 0 || (uint64_t)st.st_size != r.items[k] * 8;
        parts_path(path, parts_names[k], ".tmp");
        half += access(path, F_OK) == 0;
    }
    CHECK(half == 0);
}

/* ---- seen from outside ---- */

/* Wait until the loaders rest: what is seen from outside is the same as from within. */
static void at_rest(dlp_pipe *p, dlp_monitor *m, dlp_stats *own, dlp_stats *s) {
    dlp_error err;
    for (int i = 0; i < 1000; i++) {
        CHECK(dlp_pipe_stats(p, own) == DLP_OK && dlp_monitor_refresh(m, &err) == DLP_OK);
        CHECK(dlp_monitor_stats(m, s) == DLP_OK);
        if (own->stages[2].loading == 0 && own->stages[2].loaded == s->stages[2].loaded &&
            own->stages[2].in_use == s->stages[2].in_use)
            return;
        parts_pause(5000);
    }
}

static void monitor__part_queue__cells_and_workers(void) {
    parts_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_monitor *m;
    dlp_stats s, own;
    dlp_error err;
    char who[32], text[4000];
    parts_init(&r, seen, 20, NULL);
    processes(&r, 2, 1);
    r.d.epochs = DLP_FOREVER;
    if (parts_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 50 && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; i++)
        dlp_pipe_release(p, b);
    snprintf(who, sizeof who, "%d", (int)getpid());
    if (dlp_monitor_open(&m, who, &err) != DLP_OK) {
        parts_say(err.code, &err);
        CHECK(0);
    } else {
        for (int ms = 0; ms < 20000; ms++) { /* until there is no more to do for the loaders */
            CHECK(dlp_monitor_refresh(m, &err) == DLP_OK && dlp_monitor_stats(m, &s) == DLP_OK);
            if (s.stages[2].loaded > 0) break;
            test_pause(1000000);
        }
        CHECK(s.stages[2].kind == DLP_STAGE_PARTS);
        CHECK(dlp_pipe_stats(p, &own) == DLP_OK && s.stages[2].cells == own.stages[2].cells);
        CHECK(s.stages[2].cells > 0 && s.stages[2].loaded > 0);
        CHECK(s.stages[2].items > 10 && s.stages[2].workers == 2);
        at_rest(p, m, &own, &s);
        /* next schedules batches: where loaders were late, none may be ahead since the last */
        for (int i = 0; i < 50 && own.stages[2].in_use == 0; i++) {
            if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
            at_rest(p, m, &own, &s);
        }
        CHECK(s.stages[2].loading == 0 && s.stages[2].loaded == own.stages[2].loaded);
        CHECK(s.stages[2].in_use > 0 && s.stages[2].in_use == own.stages[2].in_use);
        CHECK(s.stages[2].in_use <= s.stages[2].loaded);
        CHECK(dlp_monitor_explain(m, text, sizeof text) > 0);
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("shm_parts");
    seen = shm_shared(sizeof *seen);
    downloads = shm_shared(PARTS_MAX * sizeof *downloads);
    CHECK(parts_dir_make());
    run__any_wiring__as_written_down(seed);
    kill__anybody_at_any_moment__nothing_lost();
    kill__by_a_part__it_has_failed();
    kill__by_a_part_that_said_why__words_are_forgotten();
    deadline__load_never_ends__killed_and_tried_again();
    download__killed_half_way__never_taken_for_whole();
    monitor__part_queue__cells_and_workers();
    parts_dir_clear(1);
    CHECK(shm_mappings() == 0);
    return test_end("shm_parts");
}
