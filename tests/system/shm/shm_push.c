/* needs: parts */
/* Items that are pushed into a pipe with maps, which fail, or whose processes are killed: rows go
   back to fetch, and no item comes twice, or not at all. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/sanitizers.h"
#include "../../rig/shm_rig.h"
#include "../../rig/sources.h"

enum { PIXELS = 5, SOON_MS = 20000 };

static const dlp_field FIELDS[2] = {{.name = "number", .dtype = DLP_U64},
                                    {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {PIXELS}}};

/* Items 0 .. n - 1, and the end. */
static dlp_pusher *push_all(dlp_push *s, uint64_t n) {
    dlp_pusher *u = NULL;
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = s}, NULL) == DLP_OK);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t x[PIXELS];
        const void *data[2] = {&i, x};
        for (int k = 0; k < PIXELS; k++) x[k] = (uint8_t)dlp_hash(i, (uint64_t)k, 0, 0);
        CHECK(dlp_pusher_push(u, data, SOON_MS) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, SOON_MS) == DLP_OK);
    return u;
}

static uint32_t *map_calls; /* shared */
enum { MAP_FAILS = 1, MAP_DIES = 2, MAP_EVERY = 13 };

/* In place, and not idempotent: what it changed and did not finish is fetched again. */
static int map_one(void *user, dlp_item *it) {
    uint8_t *x = it->data[1];
    for (int i = 0; i < PIXELS; i++) x[i] ^= 0xff;
    if (__atomic_add_fetch(map_calls, 1, __ATOMIC_SEQ_CST) % MAP_EVERY != 0) return 0;
    if (*(int *)user == MAP_DIES) raise(SIGKILL);
    return -5;
}

static int map_batch(void *user, dlp_batch *b, void *state) {
    uint8_t *x = b->fields[1].data;
    (void)state;
    for (uint32_t i = 0; i < b->count * PIXELS; i++) x[i] ^= 0xff;
    if (__atomic_add_fetch(map_calls, 1, __ATOMIC_SEQ_CST) % 3 != 0) return 0;
    if (*(int *)user == MAP_DIES) raise(SIGKILL);
    return -5;
}

static dlp_pipe *mapped(dlp_push *push, int *how, int of_batches, int workers) {
    static const dlp_shm_desc shm = {.max_kills = 100};
    dlp_pipe_desc desc = {.shm = *how == MAP_DIES ? &shm : NULL};
    dlp_node map = {.verb = DLP_MAP,
                    .map = {.item = of_batches ? NULL : map_one,
                            .batch = of_batches ? map_batch : NULL,
                            .user = how},
                    .workers = {.num_workers = 2, .retries = *how == MAP_FAILS ? 9 : 0}};
    rig_table t = {.n = 0};
    dlp_pipe *p = NULL;
    if (*how == MAP_DIES) map.workers.placement = DLP_PLACE_PROCESSES;
    table_row(&t,
              (dlp_node){.verb = DLP_PUSH, .push = {push}, .workers = {.num_workers = workers}});
    if (!of_batches) table_row(&t, map);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 8}});
    if (of_batches) table_row(&t, map);
    CHECK(table_pipe(&t, &p, &desc, NULL) == DLP_OK);
    if (dlp_pipe_start(p) != DLP_OK) printf("%s\n", dlp_pipe_error(p)->message);
    return p;
}

/* Its items come all, in their order, and once changed. */
static void take_mapped(dlp_pipe *p, uint64_t items) {
    dlp_batch *b = NULL;
    uint64_t due = 0;
    int rc, ok = 1;
    while ((rc = dlp_pipe_next_timeout(p, &b, SOON_MS)) == DLP_OK) {
        const uint64_t *number = b->fields[0].data;
        const uint8_t *x = b->fields[1].data;
        for (uint32_t i = 0; i < b->count; i++, due++) {
            ok &= number[i] == due;
            for (int k = 0; k < PIXELS; k++)
                ok &= x[i * PIXELS + (unsigned)k] ==
                      (uint8_t)(dlp_hash(number[i], (uint64_t)k, 0, 0) ^ 0xff);
        }
        dlp_pipe_release(p, b);
    }
    if (rc < 0) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(ok && rc == DLP_END && due == items);
}

/* Maps that fail, or whose processes are killed: rows go back to fetch, and have the item that they
   had. Then another pipe of the same lanes. */
static void again__map_fails_or_dies__same_item(void) {
    map_calls = shm_shared(sizeof *map_calls);
    for (int i = 0; i < 8; i++) {
        int how = i % 2 ? MAP_DIES : MAP_FAILS;
        dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .capacity = 1024, .writers = 1};
        dlp_push *s = NULL;
        dlp_pusher *u;
        CHECK(dlp_push_open(&s, &d, NULL) == DLP_OK);
        *map_calls = 0;
        u = push_all(s, 300);
        for (int k = 0; k < 2; k++) {
            dlp_pipe *p = mapped(s, &how, i / 2 % 2, i / 4);
            take_mapped(p, k == 0 ? 300 : 0);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
        dlp_pusher_close(u);
        CHECK(dlp_push_close(s) == DLP_OK);
    }
}

static void *sleeper(void *fd) {
    char c;
    return read(*(int *)fd, &c, 1) == 1 ? fd : NULL;
}

/* A push with a path has a thread that answers producers. It holds no lock, so processes may be
   forked beside it; not beside another thread. */
static void path__worker_processes__forked_beside_its_thread(void) {
    for (int other = 0; other < 2 && !RIG_TSAN; other++) { /* it has a thread of its own */
        char path[64];
        int ends[2], how = 0;
        pthread_t thread;
        dlp_pusher *u;
        dlp_pipe *p;
        dlp_push *s;
        dlp_error e;
        snprintf(path, sizeof path, "/tmp/shm_push.%d", (int)getpid());
        CHECK(dlp_push_open(
                  &s,
                  &(dlp_push_desc){
                      .fields = FIELDS, .n_fields = 2, .writers = 1, .capacity = 512, .path = path},
                  &e) == DLP_OK);
        u = push_all(s, 30);
        CHECK(pipe(ends) == 0);
        if (other) CHECK(pthread_create(&thread, NULL, sleeper, ends) == 0);
        {
            const dlp_node nodes[] = {
                {.name = "push", .verb = DLP_PUSH, .push = {.source = s}},
                {.name = "map",
                 .verb = DLP_MAP,
                 .map = {.item = map_one, .user = &how},
                 .workers = {.num_workers = 2, .placement = DLP_PLACE_PROCESSES}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
            const int rc = dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &e);
            CHECK(rc == (other ? DLP_ERR_STATE : DLP_OK));
            CHECK(!other || strstr(e.message, "the process has 2 threads") != NULL);
            if (rc == DLP_OK) CHECK(dlp_pipe_close(p) == DLP_OK);
        }
        CHECK(write(ends[1], "", 1) == 1);
        if (other) CHECK(pthread_join(thread, NULL) == 0);
        close(ends[0]);
        close(ends[1]);
        dlp_pusher_close(u);
        CHECK(dlp_push_close(s) == DLP_OK);
    }
}

int main(void) {
    SHM_NEEDS("shm_push");
    again__map_fails_or_dies__same_item();
    path__worker_processes__forked_beside_its_thread();
    CHECK(shm_mappings() == 0);
    return test_end("shm_push");
}
