/* needs: queues */
#pragma once
/* tests: unit/queue/queue_mpsc, model/model, model/mutants */
#include "queue/spsc.h"
/* ---- bundles ---- */

#ifndef DLPI_MPSC_SCAN      /* a checker may define these two before inclusion */
#define DLPI_MPSC_SCAN 16u  /* up to so many producers the consumer just looks at their tails */
#define DLPI_MPSC_SWEEP 64u /* every so many searches all lanes are looked at */
#endif
#define DLPI_MPSC_QUANTUM 64u

/* Return the header of a bundle: offsets and sizes. All are 0 if a parameter is out of range. */
DLPI_COLD static dlp_mpsc dlpi_mpsc_plan(uint32_t record_bytes, uint64_t capacity,
                                         uint32_t producers) {
    dlp_mpsc plan;
    memset(&plan, 0, sizeof plan);
    uint64_t lane = dlp_spsc_bytes(record_bytes, capacity);
    if (lane == 0 || producers == 0 || producers > DLP_MPSC_MAX_PRODUCERS) return plan;
    plan.version = DLPI_QUEUE_VERSION;
    plan.layout = DLPI_QUEUE_LAYOUT;
    plan.record_bytes = record_bytes;
    plan.capacity = capacity;
    plan.producers = producers;
    plan.ready_words = producers > DLPI_MPSC_SCAN ? (producers + 63) / 64 : 0;
    plan.ready_offset = sizeof(dlp_mpsc);
    plan.owners_offset = plan.ready_offset + plan.ready_words * (uint64_t)DLPI_LINE;
    plan.lanes_offset = plan.owners_offset + dlpi_line_up(producers * sizeof(uint32_t));
    plan.lane_bytes = lane;
    plan.total_bytes = dlpi_sum(plan.lanes_offset, dlpi_times(lane, producers));
    return plan;
}

DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    return dlpi_mpsc_plan(record_bytes, capacity, producers).total_bytes;
}

static void *dlpi_at(void *mem, uint64_t offset) { return (unsigned char *)mem + offset; }

static dlp_spsc *dlpi_mpsc_lane(void *mem, const dlp_mpsc *plan, uint32_t i) {
    return (dlp_spsc *)dlpi_at(mem, plan->lanes_offset + i * plan->lane_bytes);
}

DLPI_COLD DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes,
                                   uint64_t capacity, uint32_t producers, int shared) {
    dlp_mpsc plan = dlpi_mpsc_plan(record_bytes, capacity, producers);
    if (!dlpi_queue_mem_ok(mem) || plan.total_bytes == 0 || plan.total_bytes > bytes ||
        plan.total_bytes > SIZE_MAX)
        return DLP_ERR_ARG;
    plan.shared = shared != 0;
    memset(mem, 0, (size_t)plan.lanes_offset);
    memcpy(mem, &plan, sizeof plan);
    for (uint32_t i = 0; i < producers; i++) {
        dlp_spsc *lane = dlpi_mpsc_lane(mem, &plan, i);
        int r = dlp_spsc_init(lane, plan.lane_bytes, record_bytes, capacity, shared);
        if (r != DLP_OK) return r;
    }
    DLPI_STORE_REL(&((dlp_mpsc *)mem)->magic, DLPI_MPSC_MAGIC); /* LM1 -> LM2 */
    return DLP_OK;
}

/* Check the header of a bundle, and copy it. Returns DLP_OK or DLP_ERR_CORRUPT. */
static int dlpi_mpsc_check(const dlp_mpsc *bundle, uint64_t bytes, dlp_mpsc *copy) {
    if (bytes < sizeof *bundle || DLPI_LOAD_ACQ(&bundle->magic) != DLPI_MPSC_MAGIC) /* LM2 <- LM1 */
        return DLP_ERR_CORRUPT;
    dlp_mpsc found;
    memcpy(&found, bundle, offsetof(dlp_mpsc, pad0)); /* what init wrote before LM1 */
    *copy = dlpi_mpsc_plan(found.record_bytes, found.capacity, found.producers);
    if (copy->total_bytes == 0 || copy->total_bytes > bytes || found.shared > 1)
        return DLP_ERR_CORRUPT;
    copy->shared = found.shared;
    copy->magic = found.magic;
    return memcmp(copy, &found, offsetof(dlp_mpsc, pad0)) == 0 ? DLP_OK : DLP_ERR_CORRUPT;
}

/* Take the first lane without a producer. A lane that is closed is never given back. Returns its
   number, or DLP_ERR_BUSY if there is none. */
static int dlpi_mpsc_claim(void *mem, const dlp_mpsc *plan, uint32_t *owners) {
    for (uint32_t i = 0; i < plan->producers; i++) {
        uint32_t free_owner = 0;
        if (DLPI_CAS_SEQ(&owners[i], &free_owner, 1u) &&               /* LO1 */
            DLPI_LOAD_RLX(&dlpi_mpsc_lane(mem, plan, i)->closed) == 0) /* LE1, before its LO1 */
            return (int)i;
    }
    return DLP_ERR_BUSY;
}

DLPI_COLD DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer) {
    dlp_mpsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem) || producer < DLP_NONE) return DLP_ERR_ARG;
    dlp_mpsc *bundle = (dlp_mpsc *)mem;
    if (dlpi_mpsc_check(bundle, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    uint32_t *owners = (uint32_t *)dlpi_at(mem, copy.owners_offset);
    if (producer >= (int)copy.producers) return DLP_ERR_ARG;
    int mine = producer == DLP_NONE ? dlpi_mpsc_claim(mem, &copy, owners) : producer;
    if (mine < 0) return mine;
    if (mine == producer) /* LO1 <- LO1: what the producer before it did; else the claim had it */
        (void)DLPI_XCHG_SEQ(&owners[mine], 1u);
    memset(tx, 0, sizeof *tx);
    int r =
        dlp_spsc_attach_tx(&tx->lane, dlpi_mpsc_lane(mem, &copy, (uint32_t)mine), copy.lane_bytes);
    if (r == DLP_ERR_STATE) return r;
    if (r != DLP_OK || tx->lane.record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
    tx->lane.wake_word = &bundle->consumer_wake;
    tx->lane.shared = copy.shared;
    tx->owner = &owners[mine];
    if (copy.ready_words) {
        uint64_t word = copy.ready_offset + (uint64_t)(mine / 64) * DLPI_LINE;
        tx->ready = (uint64_t *)dlpi_at(mem, word);
        tx->ready_bit = UINT64_C(1) << (mine % 64);
    }
    dlpi_wait_policy(copy.producers + 1, &tx->lane.spin_ns, &tx->lane.yields);
    dlpi_wake_join(&bundle->consumer_wake, (int)copy.shared);
    return mine;
}

DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) { DLPI_STORE_SEQ(tx->owner, 0u); /* LO1 */ }

DLPDEF void dlp_mpsc_close(dlp_mpsc_tx *tx) { dlp_spsc_close(&tx->lane); }

DLPI_COLD DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes,
                                        void *mem, uint64_t bytes) {
    dlp_mpsc copy;
    if (!rx || !lanes || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    if (dlpi_mpsc_check((dlp_mpsc *)mem, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    if (n_lanes < copy.producers) return DLP_ERR_ARG;
    for (uint32_t i = 0; i < copy.producers; i++) {
        int r = dlp_spsc_attach_rx(&lanes[i], dlpi_mpsc_lane(mem, &copy, i), copy.lane_bytes);
        if (r != DLP_OK || lanes[i].record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
        lanes[i].slip_most = 0; /* other lanes may have records */
    }
    memset(rx, 0, sizeof *rx);
    rx->bundle = (dlp_mpsc *)mem;
    rx->lanes = rx->at = lanes;
    rx->quantum = DLPI_MPSC_QUANTUM;
    rx->producers = copy.producers;
    rx->ready_words = copy.ready_words;
    rx->shared = copy.shared;
    dlpi_wait_policy(copy.producers + 1, &rx->spin_ns, &rx->yields);
    dlpi_wake_join(&rx->bundle->consumer_wake, (int)copy.shared);
    return DLP_OK;
}

/* Give lane i the next turn if it has records. Returns DLP_OK, DLP_EMPTY, DLP_END or
   DLP_ERR_CORRUPT. */
static int dlpi_mpsc_try_turn(dlp_mpsc_rx *rx, uint32_t i) {
    int r = dlpi_spsc_has(&rx->lanes[i]);
    if (r > 0) return r;
    rx->at = &rx->lanes[i];
    rx->turn = i;
    if (r < 0) return r;
    rx->left = rx->quantum > 0 ? rx->quantum : 1;
    return DLP_OK;
}

/* Look at all lanes, from the next one on, and give the first with records its turn. Returns
   DLP_OK, DLP_EMPTY, DLP_END if all lanes have ended, or DLP_ERR_CORRUPT. */
static int dlpi_mpsc_sweep(dlp_mpsc_rx *rx) {
    uint32_t i = rx->turn, ended = 0;
    for (uint32_t k = 0; k < rx->producers; k++) {
        i = i + 1 < rx->producers ? i + 1 : 0;
        int r = dlpi_mpsc_try_turn(rx, i);
        if (r <= 0) return r;
        ended += r == DLP_END;
    }
    return ended == rx->producers ? DLP_END : DLP_EMPTY;
}

static uint64_t *dlpi_mpsc_ready_word(dlp_mpsc_rx *rx, uint32_t word) {
    return (uint64_t *)dlpi_at(rx->bundle, sizeof(dlp_mpsc) + word * (uint64_t)DLPI_LINE);
}

/* Give the first lane whose ready bit is set, and which has records, its turn. Returns DLP_OK,
   DLP_EMPTY or DLP_ERR_CORRUPT. */
static int dlpi_mpsc_follow(dlp_mpsc_rx *rx) {
    for (uint32_t k = 0; k <= rx->ready_words; k++) {
        while (rx->bits) {
            uint32_t i = rx->word * 64 + DLPI_CTZ(rx->bits);
            rx->bits &= rx->bits - 1;
            int r = i < rx->producers ? dlpi_mpsc_try_turn(rx, i) : DLP_EMPTY;
            if (r <= 0) return r;
        }
        rx->word = rx->word + 1 < rx->ready_words ? rx->word + 1 : 0;
        uint64_t *ready = dlpi_mpsc_ready_word(rx, rx->word);
        if (DLPI_LOAD_RLX(ready) != 0)                    /* LR3, not worth a write if clear */
            rx->bits = DLPI_XCHG_SEQ(ready, (uint64_t)0); /* LR3 <- LR2 */
    }
    return DLP_EMPTY;
}

/* End the present lane's turn, and give the next lane with records its turn. Returns as
   dlpi_mpsc_sweep. Every DLPI_MPSC_SWEEP calls all lanes are looked at, whatever the
   ready bits say. */
DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx) {
    if (rx->ready_words == 0) return dlpi_mpsc_sweep(rx);
    if (rx->left == 0 && rx->at->tail_seen != rx->at->head) /* its turn is over, but it has more */
        /* LR2 */
        DLPI_OR_SEQ(dlpi_mpsc_ready_word(rx, rx->turn / 64), UINT64_C(1) << rx->turn % 64);
    rx->left = 0;
    int r = DLP_EMPTY;
    if (++rx->finds % DLPI_MPSC_SWEEP != 0) r = dlpi_mpsc_follow(rx);
    return r == DLP_EMPTY ? dlpi_mpsc_sweep(rx) : r;
}

static bool dlpi_mpsc_has_stock(void *handle) {
    return dlpi_mpsc_turn((dlp_mpsc_rx *)handle) != DLP_EMPTY;
}

DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms) {
    return dlp_spsc_wait_tx(&tx->lane, timeout_ms);
}

DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->bundle->consumer_wake, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_mpsc_has_stock,        rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK ? dlpi_mpsc_turn(rx) : r;
}

DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_mpsc_try_push_burst(tx, from + done * tx->lane.record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_mpsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_mpsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_mpsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_mpsc_try_pop_burst(rx, records, max);
}
