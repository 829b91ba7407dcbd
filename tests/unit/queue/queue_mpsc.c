/* MPSC bundles: places and claims, turns, lost hints, hostile memory, stress in threads and
   processes. Arguments: seed (default 1). SOAK=1: 50 times as long. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../rig/queue_check.h"

#define MOST 200

static uint64_t seed = 1, work = 1;

typedef struct bundle {
    guarded map;
    uint64_t bytes;
    dlp_mpsc_tx tx[MOST];
    dlp_mpsc_rx rx;
    dlp_spsc_rx lanes[MOST];
} bundle;

static bundle *bundle_open(uint64_t capacity, uint32_t producers) {
    bundle *b = (bundle *)calloc(1, sizeof *b);
    if (!b) exit(1);
    b->bytes = dlp_mpsc_bytes(8, capacity, producers);
    b->map = guarded_map(b->bytes, 0);
    CHECK(dlp_mpsc_init(b->map.mem, b->bytes, 8, capacity, producers, 0) == DLP_OK);
    for (uint32_t i = 0; i < producers; i++)
        CHECK(dlp_mpsc_attach_tx(&b->tx[i], b->map.mem, b->bytes, (int)i) == (int)i);
    CHECK(dlp_mpsc_attach_rx(&b->rx, b->lanes, producers, b->map.mem, b->bytes) == DLP_OK);
    return b;
}

static void bundle_close(bundle *b) {
    guarded_unmap(&b->map);
    free(b);
}

static void bytes__parameters_out_of_range__zero(void) {
    CHECK(dlp_mpsc_bytes(8, 8, 0) == 0);
    CHECK(dlp_mpsc_bytes(8, 8, DLP_MPSC_MAX_PRODUCERS + 1) == 0);
    CHECK(dlp_mpsc_bytes(7, 8, 2) == 0);
    CHECK(dlp_mpsc_bytes(8, 9, 2) == 0);
    CHECK(dlp_mpsc_bytes(8, 8, 4096) > 4096 * dlp_spsc_bytes(8, 8));
}

static void attach__wrong_arguments__err_arg(void) {
    bundle *b = bundle_open(8, 3);
    dlp_mpsc_tx tx;
    dlp_mpsc_rx rx;
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 3) == DLP_ERR_ARG);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, -2) == DLP_ERR_ARG);
    CHECK(dlp_mpsc_attach_tx(NULL, b->map.mem, b->bytes, 0) == DLP_ERR_ARG);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem + 8, b->bytes, 0) == DLP_ERR_ARG);
    CHECK(dlp_mpsc_attach_rx(&rx, b->lanes, 2, b->map.mem, b->bytes) == DLP_ERR_ARG);
    CHECK(dlp_mpsc_init(b->map.mem, b->bytes - 1, 8, 8, 3, 0) == DLP_ERR_ARG);
    bundle_close(b);
}

static void attach__any_header_byte_damaged__corrupt(void) {
    bundle *b = bundle_open(8, 20);
    dlp_mpsc_tx tx;
    dlp_mpsc_rx rx;
    for (uint32_t i = 0; i < offsetof(dlp_mpsc, pad0); i++) {
        b->map.mem[i] ^= 0x5A;
        CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 0) == DLP_ERR_CORRUPT);
        CHECK(dlp_mpsc_attach_rx(&rx, b->lanes, 20, b->map.mem, b->bytes) == DLP_ERR_CORRUPT);
        b->map.mem[i] ^= 0x5A;
    }
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes - 128, 0) == DLP_ERR_CORRUPT);
    b->tx[7].lane.lane->magic++;
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 7) == DLP_ERR_CORRUPT);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 6) == 6);
    CHECK(dlp_mpsc_attach_rx(&rx, b->lanes, 20, b->map.mem, b->bytes) == DLP_ERR_CORRUPT);
    bundle_close(b);
}

static void lane__counter_out_of_range__corrupt(void) {
    bundle *b = bundle_open(8, 3);
    uint64_t out;
    b->tx[1].lane.lane->tail = 9;
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, NULL) == DLP_ERR_CORRUPT);
    CHECK(dlp_mpsc_try_pop_burst(&b->rx, &out, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_mpsc_pop(&b->rx, &out, NULL, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_mpsc_pop_burst(&b->rx, &out, 1, 1) == DLP_ERR_CORRUPT);
    bundle_close(b);
}

static void claim__any_place__each_once_then_busy(void) {
    uint64_t bytes = dlp_mpsc_bytes(8, 8, 3);
    guarded g = guarded_map(bytes, 0);
    dlp_mpsc_tx tx[4];
    CHECK(dlp_mpsc_init(g.mem, bytes, 8, 8, 3, 0) == DLP_OK);
    CHECK(dlp_mpsc_attach_tx(&tx[0], g.mem, bytes, DLP_NONE) == 0);
    CHECK(dlp_mpsc_attach_tx(&tx[1], g.mem, bytes, 1) == 1);
    CHECK(dlp_mpsc_attach_tx(&tx[2], g.mem, bytes, DLP_NONE) == 2);
    CHECK(dlp_mpsc_attach_tx(&tx[3], g.mem, bytes, DLP_NONE) == DLP_ERR_BUSY);
    uint64_t value = 5;
    CHECK(dlp_mpsc_try_push(&tx[1], &value) == DLP_OK);
    dlp_mpsc_detach_tx(&tx[1]);
    CHECK(dlp_mpsc_attach_tx(&tx[3], g.mem, bytes, DLP_NONE) == 1);
    CHECK(tx[3].lane.tail == 1); /* what the predecessor pushed stays */
    guarded_unmap(&g);
}

static void pop__all_lanes_full__turns_of_a_quantum(void) {
    bundle *b = bundle_open(256, 3);
    for (uint64_t i = 0; i < 256; i++)
        for (uint32_t p = 0; p < 3; p++) CHECK(dlp_mpsc_try_push(&b->tx[p], &i) == DLP_OK);
    b->rx.quantum = 32;
    uint64_t next[3] = {0, 0, 0}, out;
    uint32_t p = 0, last = 99, run = 0;
    for (int i = 0; i < 3 * 256; i++) {
        CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_OK);
        CHECK(out == next[p]++);
        run = p == last ? run + 1 : 1;
        CHECK(run <= 32);
        last = p;
    }
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_EMPTY);
    bundle_close(b);
}

static void pop__many_lanes_full__no_lane_waits_long(void) {
    bundle *b = bundle_open(1024, 100);
    for (uint64_t i = 0; i < 1024; i++)
        for (uint32_t p = 0; p < 100; p++) CHECK(dlp_mpsc_try_push(&b->tx[p], &i) == DLP_OK);
    b->rx.quantum = 16;
    uint32_t seen[100] = {0}, p = 0;
    uint64_t out;
    for (uint32_t i = 0; i < 300 * 16; i++) {
        CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_OK);
        CHECK(out == seen[p]++);
    }
    for (p = 0; p < 100; p++) CHECK(seen[p] >= 16);
    bundle_close(b);
}

/* A hint that got lost (the record is published, its bit is not set): found before "empty" is said,
   and also while another lane never runs dry. */
static void ready_bit__lost__record_is_found(void) {
    bundle *b = bundle_open(64, 150);
    uint64_t value = 42, out = 0;
    uint32_t p = 0;
    CHECK(dlp_spsc_try_push(&b->tx[149].lane, &value) == DLP_OK); /* past the bundle: no bit */
    CHECK(*b->tx[149].ready == 0);
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_OK && out == 42 && p == 149);
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_EMPTY);
    CHECK(dlp_spsc_try_push(&b->tx[149].lane, &value) == DLP_OK);
    b->rx.quantum = 1;
    int found = 0;
    for (int i = 0; i < 200 && !found; i++) {
        CHECK(dlp_mpsc_try_push(&b->tx[3], &value) == DLP_OK);
        CHECK(dlp_mpsc_try_push(&b->tx[77], &value) == DLP_OK);
        CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_OK);
        found |= p == 149;
        CHECK(dlp_mpsc_try_pop(&b->rx, &out, &p) == DLP_OK);
        found |= p == 149;
    }
    CHECK(found);
    bundle_close(b);
}

static void ready_bit__pushed__set_once_and_cleared_before_draining(void) {
    bundle *b = bundle_open(64, 70);
    uint64_t value = 1, out;
    CHECK(b->tx[69].ready != b->tx[5].ready);
    CHECK(dlp_mpsc_try_push(&b->tx[5], &value) == DLP_OK);
    CHECK(dlp_mpsc_try_push(&b->tx[69], &value) == DLP_OK);
    CHECK(*b->tx[5].ready == UINT64_C(1) << 5);
    CHECK(*b->tx[69].ready == UINT64_C(1) << 5);
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, NULL) == DLP_OK);
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, NULL) == DLP_OK);
    CHECK(*b->tx[5].ready == 0 && *b->tx[69].ready == 0);
    *b->tx[69].ready = ~UINT64_C(0); /* bits of lanes that do not exist, and of idle ones */
    CHECK(dlp_mpsc_try_pop(&b->rx, &out, NULL) == DLP_EMPTY);
    bundle_close(b);
}

static void burst__several_lanes__gathered(void) {
    bundle *b = bundle_open(16, 20);
    uint64_t in[16], out[400];
    void *room = in;
    const void *stock = out;
    uint32_t p = 0;
    for (uint64_t i = 0; i < 16; i++) in[i] = i;
    for (uint32_t k = 0; k < 20; k++) CHECK(dlp_mpsc_try_push_burst(&b->tx[k], in, 16) == 16);
    CHECK(dlp_mpsc_try_push_burst(&b->tx[0], in, 16) == 0);
    CHECK(dlp_mpsc_try_pop_burst(&b->rx, out, 10) == 10);
    CHECK(dlp_mpsc_try_pop_burst(&b->rx, out + 10, 390) == 310);
    for (uint64_t i = 0; i < 320; i++) CHECK(out[i] == i % 16);
    CHECK(dlp_mpsc_try_pop_burst(&b->rx, out, 1) == 0);
    CHECK(dlp_mpsc_reserve(&b->tx[18], 3, &room) == 3);
    memcpy(room, in, 24);
    CHECK(dlp_mpsc_commit(&b->tx[18], 3) == DLP_OK);
    CHECK(dlp_mpsc_peek(&b->rx, 9, &stock, &p) == 3 && p == 18);
    CHECK(dlp_mpsc_release(&b->rx, 4) == DLP_ERR_ARG);
    CHECK(memcmp(stock, in, 24) == 0);
    CHECK(dlp_mpsc_release(&b->rx, 2) == DLP_OK);
    CHECK(dlp_mpsc_pop(&b->rx, out, &p, DLP_NOWAIT) == DLP_OK && out[0] == 2);
    CHECK(dlp_mpsc_reserve(&b->tx[18], 3, &room) == 3);
    dlp_mpsc_abort(&b->tx[18]);
    CHECK(dlp_mpsc_pop(&b->rx, out, &p, DLP_NOWAIT) == DLP_TIMEOUT);
    bundle_close(b);
}

/* With and without ready words. */
static void close__all_producers__records_then_the_end(uint32_t producers) {
    bundle *b = bundle_open(16, producers);
    uint64_t value = 5, out[4] = {0};
    const void *stock = NULL;
    void *room = NULL;
    uint32_t p = 99;
    for (uint32_t i = 0; i + 1 < producers; i++) dlp_mpsc_close(&b->tx[i]);
    CHECK(dlp_mpsc_try_pop(&b->rx, out, &p) == DLP_EMPTY);
    CHECK(dlp_mpsc_wait_rx(&b->rx, DLP_NOWAIT) == DLP_TIMEOUT);
    dlp_mpsc_tx *last = &b->tx[producers - 1];
    for (int i = 0; i < 3; i++) CHECK(dlp_mpsc_try_push(last, &value) == DLP_OK);
    dlp_mpsc_close(last);
    CHECK(dlp_mpsc_wait_rx(&b->rx, DLP_FOREVER) == DLP_OK);
    CHECK(dlp_mpsc_pop(&b->rx, out, &p, DLP_FOREVER) == DLP_OK && p == producers - 1);
    CHECK(dlp_mpsc_pop_burst(&b->rx, out, 4, DLP_FOREVER) == 2);
    for (int i = 0; i < 2; i++) {
        CHECK(dlp_mpsc_try_pop(&b->rx, out, &p) == DLP_END);
        CHECK(dlp_mpsc_pop(&b->rx, out, &p, DLP_FOREVER) == DLP_END);
        CHECK(dlp_mpsc_wait_rx(&b->rx, DLP_FOREVER) == DLP_END);
        CHECK(dlp_mpsc_pop_burst(&b->rx, out, 4, DLP_FOREVER) == 0);
        CHECK(dlp_mpsc_try_pop_burst(&b->rx, out, 4) == 0);
        CHECK(dlp_mpsc_peek(&b->rx, 4, &stock, NULL) == 0);
    }
    CHECK(dlp_mpsc_try_push(last, &value) == DLP_ERR_STATE);
    CHECK(dlp_mpsc_push(last, &value, DLP_FOREVER) == DLP_ERR_STATE);
    CHECK(dlp_mpsc_try_push_burst(last, out, 4) == DLP_ERR_STATE);
    CHECK(dlp_mpsc_push_burst(last, out, 4, DLP_FOREVER) == DLP_ERR_STATE);
    CHECK(dlp_mpsc_reserve(last, 4, &room) == DLP_ERR_STATE);
    CHECK(dlp_mpsc_wait_tx(last, DLP_FOREVER) == DLP_ERR_STATE);
    bundle_close(b);
}

static void close__3_or_70_producers__records_then_the_end(void) {
    close__all_producers__records_then_the_end(3);
    close__all_producers__records_then_the_end(70);
}

static void close__numbers__are_not_claimed_again(void) {
    bundle *b = bundle_open(16, 3);
    dlp_mpsc_tx tx;
    uint64_t value = 1;
    dlp_mpsc_close(&b->tx[1]);
    dlp_mpsc_detach_tx(&b->tx[1]);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, DLP_NONE) == DLP_ERR_BUSY);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 1) == DLP_ERR_STATE);
    dlp_mpsc_detach_tx(&b->tx[2]);
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, DLP_NONE) == 2);
    dlp_mpsc_close(&tx);
    CHECK(dlp_mpsc_try_pop(&b->rx, &value, NULL) == DLP_EMPTY);   /* producer 0 is open */
    CHECK(dlp_mpsc_attach_tx(&tx, b->map.mem, b->bytes, 0) == 0); /* its successor */
    dlp_mpsc_close(&tx);
    CHECK(dlp_mpsc_try_pop(&b->rx, &value, NULL) == DLP_END);
    bundle_close(b);
}

/* ---- stress ---- */

typedef struct stress {
    void *mem;
    uint64_t bytes, records;
    uint32_t record_bytes, producers, me;
} stress;

static void *stress_producer(void *arg) {
    stress *s = (stress *)arg;
    uint64_t state = seed + s->me, n = 0;
    unsigned char in[20 * 64];
    dlp_mpsc_tx tx;
    if (dlp_mpsc_attach_tx(&tx, s->mem, s->bytes, (int)s->me) != (int)s->me) exit(1);
    while (n < s->records) {
        uint64_t want = 1 + draw(&state) % 20, left = s->records - n;
        want = want < left ? want : left;
        for (uint64_t i = 0; i < want; i++)
            record_make(in + i * s->record_bytes, s->record_bytes, s->me, n + i);
        uint64_t kind = draw(&state) % 3;
        int64_t k = 0;
        if (kind == 0)
            k = dlp_mpsc_push(&tx, in, DLP_FOREVER) == DLP_OK;
        else if (kind == 1)
            k = dlp_mpsc_push_burst(&tx, in, want, 50);
        else
            k = dlp_mpsc_try_push_burst(&tx, in, want);
        if (k < 0) exit(1);
        if (k == 0) sched_yield();
        n += (uint64_t)k;
    }
    dlp_mpsc_close(&tx);
    return NULL;
}

static uint64_t stress_consume(const stress *s) {
    uint64_t state = ~seed, next[MOST] = {0}, bad = 0, got = 0;
    unsigned char out[20 * 64];
    dlp_mpsc_rx rx;
    static dlp_spsc_rx lanes[MOST];
    if (dlp_mpsc_attach_rx(&rx, lanes, MOST, s->mem, s->bytes) != DLP_OK) exit(1);
    rx.quantum = 1 + (uint32_t)(draw(&state) % 80);
    for (int r = DLP_OK; r != DLP_END;) {
        uint64_t want = 1 + draw(&state) % 20, kind = draw(&state) % 3;
        int64_t k;
        const void *stock = out;
        if (kind == 0)
            k = (r = dlp_mpsc_pop(&rx, out, NULL, 0)) == DLP_OK;
        else if (kind == 1)
            k = dlp_mpsc_pop_burst(&rx, out, want, 20);
        else
            k = dlp_mpsc_peek(&rx, want, &stock, NULL);
        for (int64_t i = 0; i < k; i++) {
            const unsigned char *record =
                (const unsigned char *)stock + (uint64_t)i * s->record_bytes;
            uint64_t word;
            memcpy(&word, record, 8);
            uint32_t p = (uint32_t)(word >> 48);
            bad += p >= s->producers || !record_ok(record, s->record_bytes, p, next[p]++);
        }
        if (k < 0 || (kind == 2 && k > 0 && dlp_mpsc_release(&rx, (uint64_t)k) != DLP_OK)) exit(1);
        if (k == 0 && kind > 0) r = dlp_mpsc_wait_rx(&rx, DLP_NOWAIT);
        got += (uint64_t)k;
    }
    bad += got != s->records * s->producers;
    return bad + (dlp_mpsc_try_pop(&rx, out, NULL) != DLP_END);
}

static void stress_one(uint32_t producers, uint32_t record_bytes, uint64_t capacity,
                       int processes) {
    stress all[MOST];
    pthread_t threads[MOST];
    pid_t pids[MOST];
    uint64_t bytes = dlp_mpsc_bytes(record_bytes, capacity, producers);
    guarded map = guarded_map(bytes, processes);
    CHECK(dlp_mpsc_init(map.mem, bytes, record_bytes, capacity, producers, processes) == DLP_OK);
    fflush(NULL);
    for (uint32_t i = 0; i < producers; i++) {
        stress one = {map.mem, bytes, 120000 * work / producers, record_bytes, producers, i};
        all[i] = one;
        if (!processes) {
            CHECK(pthread_create(&threads[i], NULL, stress_producer, &all[i]) == 0);
        } else if ((pids[i] = fork()) == 0) {
            stress_producer(&all[i]);
            _exit(0);
        }
    }
    CHECK(stress_consume(&all[0]) == 0);
    for (uint32_t i = 0; i < producers; i++) {
        if (processes)
            CHECK(child_status(pids[i]) == 0);
        else
            pthread_join(threads[i], NULL);
    }
    guarded_unmap(&map);
}

static void stress__threads__each_producers_records_once_in_order(void) {
    stress_one(1, 8, 64, 0);
    stress_one(4, 8, 1024, 0);
    stress_one(4, 24, 2, 0);
    stress_one(16, 16, 16, 0);
    stress_one(17, 8, 8, 0);
    stress_one(70, 64, 32, 0);
}

static void stress__processes__each_producers_records_once_in_order(void) {
    stress_one(1, 8, 64, 1);
    stress_one(4, 64, 128, 1);
    stress_one(20, 8, 16, 1);
}

int main(int argc, char **argv) {
    if (argc > 1) seed = strtoull(argv[1], NULL, 0);
    if (getenv("SOAK")) work = 50;
    RUN(bytes__parameters_out_of_range__zero);
    RUN(attach__wrong_arguments__err_arg);
    RUN(attach__any_header_byte_damaged__corrupt);
    RUN(lane__counter_out_of_range__corrupt);
    RUN(claim__any_place__each_once_then_busy);
    RUN(pop__all_lanes_full__turns_of_a_quantum);
    RUN(pop__many_lanes_full__no_lane_waits_long);
    RUN(ready_bit__lost__record_is_found);
    RUN(ready_bit__pushed__set_once_and_cleared_before_draining);
    RUN(burst__several_lanes__gathered);
    RUN(close__3_or_70_producers__records_then_the_end);
    RUN(close__numbers__are_not_claimed_again);
    RUN(stress__threads__each_producers_records_once_in_order);
    RUN(stress__processes__each_producers_records_once_in_order);
    return done("queue_mpsc");
}
