/* needs: split */
/* Chunks loaded by worker processes, some of which are killed. shm_chunks [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/chunks_rig.h"
#include "../../rig/shm_rig.h"

static source *shared_source;

static void kit_shared(kit *k, uint32_t kind) {
    kit_init(k, 97, 20, 6);
    kit_vary(k, kind);
    memset(shared_source, 0, sizeof *shared_source);
    *shared_source = k->own;
    k->s = shared_source;
    k->d.user = shared_source;
    k->d.workers.num_workers = 1 + (int32_t)(kind % 3);
    k->d.workers.placement = DLP_PLACE_PROCESSES;
}

static void preload_some(kit *k, uint32_t kind) {
    k->d.preload = (int32_t)(kind % 3);
    if (k->d.preload == DLP_PRELOAD_DEVICE && k->d.device == NULL) k->d.preload = DLP_PRELOAD_CPU;
    if (k->d.preload) k->d.shuffle_rows = 0;
    if (k->d.preload && k->d.shuffle_chunks) k->d.within_chunks = 1; /* for the ranks' sake */
}

static void processes__any_kind__same_bytes(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(30, 200); kind++) {
        kit k;
        dlp_pipe *p;
        kit_shared(&k, kind);
        preload_some(&k, kind / 2);
        k.d.pipe.world_size = 1 + kind % 2;
        k.d.pipe.rank = kind % k.d.pipe.world_size;
        if ((p = kit_open(&k)) == NULL) return;
        drain_from(&k, p, 0, 0);
        for (int c = 0; c < 4 && k.d.preload && k.d.pipe.world_size == 1; c++)
            CHECK(k.s->calls[c] == 1);
        kit_close(&k, p);
    }
}

/* A loader that dies in the middle of its work, half of which is written: the first time for some
   chunks. */
static int load_and_die(void *user, dlp_chunk *c) {
    source *s = user;
    int call = __atomic_add_fetch(&s->calls[32 + c->index], 1, __ATOMIC_RELAXED);
    if (call == 1 && c->index % 2 == 1) {
        memset(c->data[0], 0xee, c->count * 12);
        kill(getpid(), SIGKILL);
    }
    return load(user, c);
}

static void killed__in_a_load__loses_nothing(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(12, 100); kind++) {
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        kit_shared(&k, kind);
        preload_some(&k, kind);
        k.d.load = load_and_die;
        if ((p = kit_open(&k)) == NULL) return;
        drain_from(&k, p, 0, 0);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.stages[2].restarts == 2);
        for (int c = 0; c < 4 && k.d.preload; c++) CHECK(k.s->calls[c] == 1);
        kit_close(&k, p);
    }
}

/* Killed from outside at random, while views are held and epochs are left: what is held stays. */
static void killed__at_random__bytes_stay(uint64_t seed) {
    uint64_t deaths = 0;
    dlp_shm_desc shm = {0};
    shm.max_kills = 100; /* here a chunk is not to blame */
    for (uint32_t kind = 0; kind < (uint32_t)test_share(10, 200); kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b, *held[2] = {NULL, NULL};
        dlp_worker_stats w;
        dlp_stats s;
        uint64_t random = seed + kind, epoch = 0, at = 0;
        expected e;
        int rc;
        kit_shared(&k, kind);
        preload_some(&k, kind);
        k.s->sleep_us = 300;
        k.d.epochs = 3;
        k.d.pipe.max_held = 3;
        k.d.pipe.shm = &shm;
        oracle(&k.d, 0, 0, &e);
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(view_same(&k.d, b, epoch, at));
            for (int i = 0; i < 2; i++) CHECK(held[i] == NULL || bytes_same(held[i]));
            if (held[0]) dlp_pipe_release(p, held[0]);
            held[0] = held[1];
            held[1] = b;
            if (++at == e.per_epoch) at = 0, epoch++;
            if (test_pick(&random, 6) == 0 &&
                dlp_pipe_worker_stats(p, test_pick(&random, (uint32_t)k.d.workers.num_workers),
                                      &w) == DLP_OK &&
                w.process && w.pid > 0)
                kill(w.pid, SIGKILL);
            if (at > 0 && test_pick(&random, 20) == 0 && dlp_pipe_next_epoch(p) == DLP_OK)
                at = 0, epoch++;
        }
        CHECK(rc == DLP_END && epoch == 3 && k.s->failures == 0);
        if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
        dlp_pipe_stats(p, &s);
        deaths += s.stages[2].restarts;
        for (int i = 0; i < 2; i++) CHECK(held[i] && bytes_same(held[i]));
        for (int i = 0; i < 2; i++)
            if (held[i]) dlp_pipe_release(p, held[i]);
        kit_close(&k, p);
    }
    CHECK(deaths > 0);
}

/* What a monitor sees of batches are views. */
static void monitor__of_chunks__counts_views(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    dlp_monitor *m = NULL;
    char who[32];
    kit_shared(&k, 0);
    k.d.within_chunks = 1;
    snprintf(who, sizeof who, "%d", (int)getpid());
    if ((p = kit_open(&k)) == NULL) return;
    for (int i = 0; i < 7; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_monitor_open(&m, who, NULL) == DLP_OK);
    CHECK(m && dlp_monitor_stats(m, &s) == DLP_OK && s.batches == 7);
    CHECK(s.items == 38 && s.chunks.taken == 2 && s.stages[4].kind == DLP_STAGE_SPLIT);
    CHECK(m && dlp_monitor_batches_per_epoch(m) == 19 && s.batch_size == k.d.batch_size);
    dlp_monitor_close(m);
    kit_close(&k, p);
}

/* Wait until nothing moves, for what a view says to be what the pipe says. */
static void queues_same(dlp_pipe *p, dlp_monitor *m, dlp_chunk_stats *c) {
    dlp_stats a, b;
    int same = 0;
    for (int i = 0; i < 200 && same < 3; i++) {
        CHECK(dlp_pipe_stats(p, &a) == DLP_OK && dlp_monitor_refresh(m, NULL) == DLP_OK);
        CHECK(dlp_monitor_stats(m, &b) == DLP_OK);
        same = memcmp(&a.chunks, &b.chunks, sizeof a.chunks) == 0 ? same + 1 : 0;
        CHECK(a.batch_size == b.batch_size);
        sleep_us(5000);
    }
    CHECK(same == 3);
    *c = b.chunks;
}

/* The queues of chunks, seen from outside: with and without a device, and where chunks stay. */
static void monitor__of_chunks__all_five_queues(void) {
    for (int kind = 0; kind < 4; kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_monitor *m = NULL;
        dlp_chunk_stats c;
        char who[32];
        kit_shared(&k, 0);
        k.d.device = kind == 1 || kind == 3 ? dlp_device_host() : NULL;
        k.d.preload = kind == 2 ? DLP_PRELOAD_CPU : kind == 3 ? DLP_PRELOAD_DEVICE : 0;
        k.d.cpu_buffers = kind < 2 ? 3 : 0;
        if (k.d.preload) k.d.shuffle_rows = 0;
        snprintf(who, sizeof who, "%d", (int)getpid());
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_monitor_open(&m, who, NULL) == DLP_OK);
        if (m == NULL) return;
        for (int i = 0; i < 12; i++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            queues_same(p, m, &c);
            CHECK(c.per_epoch == 5 && c.cpu_buffers > 0 && c.preload == k.d.preload);
            CHECK((c.device_buffers > 0) == (k.d.device != NULL) && c.in_use > 0);
            CHECK(c.taken > 0 && c.taken <= (uint64_t)i + 1 && c.loadable <= 5);
            dlp_pipe_release(p, b);
        }
        if (kind == 2) CHECK(c.cpu_free < c.cpu_buffers);
        if (kind == 3) CHECK(c.device_free < c.device_buffers);
        dlp_monitor_close(m);
        kit_close(&k, p);
    }
}

int main(int argc, char **argv) {
    SHM_NEEDS("shm_chunks");
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared_source = shm_shared(sizeof *shared_source);
    processes__any_kind__same_bytes();
    killed__in_a_load__loses_nothing();
    killed__at_random__bytes_stay(argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    monitor__of_chunks__counts_views();
    monitor__of_chunks__all_five_queues();
    return test_end("shm_chunks");
}
