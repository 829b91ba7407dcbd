/* needs: parts */
/* How patiently producers and reader of pushed items wait: as those that are attached have cores,
   not as there are places. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"
#include "../../rig/inside_push.h"
#include "../../rig/push_loader.h"

enum { CORES = 8, LANES = 200, ROOM = 4 };

static const dlp_field FIELDS[1] = {{.name = "number", .dtype = DLP_U64}};

static dlp_push *opened(uint32_t places) {
    dlp_push *push = NULL;
    dlp_push_desc d = {
        .fields = FIELDS, .n_fields = 1, .max_producers = places, .capacity = ROOM, .writers = 99};
    CHECK(dlp_push_open(&push, &d, NULL) == DLP_OK);
    return push;
}

static dlp_pusher *attached(const dlp_push *push) {
    dlp_pusher *u = NULL;
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
    return u;
}

/* So many times it waits for room, in vain, after the lane is full. */
static void wait_for_room(dlp_pusher *u, int times) {
    uint64_t i = 0;
    const void *data[1] = {&i};
    while (dlp_pusher_push(u, data, DLP_NOWAIT) == DLP_OK) i++;
    while (times-- > 0) CHECK(dlp_pusher_push(u, data, 1) == DLP_TIMEOUT);
}

typedef struct patience {
    uint32_t spin_ns, yields;
} patience;

static int spins(patience w) { return w.spin_ns > 1000 && w.yields == 0; }
static int makes_way(patience w) { return w.spin_ns <= 1000 && w.yields > 0; }

static patience of_pusher(const dlp_pusher *u) {
    patience w;
    inside_pusher_wait(u, &w.spin_ns, &w.yields);
    return w;
}

static patience of_reader(const dlp_push *push) {
    patience w;
    inside_push_wait(push, &w.spin_ns, &w.yields);
    return w;
}

/* Of 8 cores the reader and the consumer have one each: 6 producers may spin, 7 may not. */
static void producers__as_many_as_are_attached(void) {
    dlp_push *push = opened(0);
    dlp_pusher *all[CORES];
    for (int i = 0; i < CORES - 2; i++) all[i] = attached(push);
    CHECK(spins(of_pusher(all[0]))); /* before its first wait */
    wait_for_room(all[0], 1);
    CHECK(spins(of_pusher(all[0])));
    all[CORES - 2] = attached(push);
    CHECK(makes_way(of_pusher(all[CORES - 2])));
    wait_for_room(all[0], 1);
    CHECK(makes_way(of_pusher(all[0])));
    dlp_pusher_close(all[1]);
    wait_for_room(all[0], 1);
    CHECK(spins(of_pusher(all[0])));
    for (int i = 0; i < CORES - 1; i++)
        if (i != 1) dlp_pusher_close(all[i]);
    CHECK(dlp_push_close(push) == DLP_OK);
}

/* Many places are counted again only now and then. */
static void many_places__counted_again_in_the_end(void) {
    dlp_push *push = opened(LANES);
    dlp_pusher *first = attached(push), *more[CORES];
    wait_for_room(first, 2);
    CHECK(spins(of_pusher(first)));
    for (int i = 0; i < CORES; i++) more[i] = attached(push);
    wait_for_room(first, 1 + LANES / 64);
    CHECK(makes_way(of_pusher(first)));
    for (int i = 0; i < CORES; i++) dlp_pusher_close(more[i]);
    dlp_pusher_close(first);
    CHECK(dlp_push_close(push) == DLP_OK);
}

static void *push_late(void *arg) {
    uint64_t i = 0;
    const void *data[1] = {&i};
    poll(NULL, 0, 20);
    CHECK(dlp_pusher_push(arg, data, 20000) == DLP_OK);
    return NULL;
}

/* The reader, which waits for the ends of 99 producers, of whom n are there. */
static void reader__as_many_as_are_attached(void) {
    for (int n = CORES - 2; n < CORES; n++) {
        push_loader d = {.push = {.fields = FIELDS, .n_fields = 1, .writers = 99},
                         .loader = {.batch_size = 1}};
        dlp_pusher *all[CORES];
        dlp_push *push = NULL;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        pthread_t thread;
        CHECK(push_loader_open(&p, &push, &d, NULL) == DLP_OK);
        for (int i = 0; i < n; i++) all[i] = attached(push);
        pthread_create(&thread, NULL, push_late, all[0]);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        dlp_pipe_release(p, b);
        pthread_join(thread, NULL);
        CHECK((n + 2 <= CORES ? spins : makes_way)(of_reader(push)));
        for (int i = 0; i < n; i++) dlp_pusher_close(all[i]);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_push_close(push) == DLP_OK);
    }
}

int main(void) {
    inside_wait_cpus(CORES);
    producers__as_many_as_are_attached();
    many_places__counted_again_in_the_end();
    reader__as_many_as_are_attached();
    return test_end("push_waits");
}
