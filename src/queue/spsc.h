/* needs: queues */
#pragma once
/* tests: unit/queue/queue_spsc, model/model */
#include "base/platform.h"
#include "base/wake.h"
/* ---- lanes: layout, attach, wait ---- */

#define DLPI_SPSC_MAGIC UINT64_C(0x31656e616c706c64) /* "dlplane1" */
#define DLPI_MPSC_MAGIC UINT64_C(0x316c646e62706c64) /* "dlpbndl1" */
#define DLPI_QUEUE_VERSION 2u
/* Sizes and places that sharers must agree on, in one number. */
#define DLPI_QUEUE_LAYOUT \
    ((uint32_t)(sizeof(dlp_spsc) << 16 ^ sizeof(dlp_mpsc) << 4 ^ DLPI_LINE ^ sizeof(size_t) << 28))

_Static_assert(sizeof(dlp_spsc) == 5 * DLPI_LINE, "lane header");
_Static_assert(offsetof(dlp_spsc, tail) == DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, head) == 2 * DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, producer_wake) == 3 * DLPI_LINE, "waiters' own block");
_Static_assert(offsetof(dlp_spsc, consumer_wake) == 4 * DLPI_LINE, "waiters' own block");
_Static_assert(sizeof(dlp_mpsc) == 2 * DLPI_LINE, "bundle header");
_Static_assert(offsetof(dlp_mpsc, consumer_wake) == DLPI_LINE, "waiter's own block");
_Static_assert(sizeof(dlp_spsc_tx) == 256 && sizeof(dlp_spsc_rx) == 256, "handles are padded");

static int dlpi_queue_mem_ok(const void *mem) {
    return mem && (uintptr_t)mem % DLP_QUEUE_ALIGN == 0;
}

DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity) {
    if (record_bytes == 0 || record_bytes % 8 || record_bytes > DLP_QUEUE_MAX_RECORD ||
        capacity == 0 || (capacity & (capacity - 1)) || capacity > DLP_QUEUE_MAX_CAPACITY)
        return 0;
    return dlpi_line_up(dlpi_sum(sizeof(dlp_spsc), dlpi_times(record_bytes, capacity)));
}

DLPI_COLD DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes,
                                   uint64_t capacity, int shared) {
    uint64_t need = dlp_spsc_bytes(record_bytes, capacity);
    if (!dlpi_queue_mem_ok(mem) || need == 0 || need > bytes || need > SIZE_MAX) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    memset(lane, 0, sizeof *lane);
    lane->version = DLPI_QUEUE_VERSION;
    lane->layout = DLPI_QUEUE_LAYOUT;
    lane->record_bytes = record_bytes;
    lane->shared = shared != 0;
    lane->capacity = capacity;
    lane->slots_offset = sizeof(dlp_spsc);
    lane->total_bytes = need;
    DLPI_STORE_REL(&lane->magic, DLPI_SPSC_MAGIC); /* LM1 -> LM2 */
    return DLP_OK;
}

/* Read a lane's header once, into *copy, and check it. Returns DLP_OK or DLP_ERR_CORRUPT. */
DLPI_COLD static int dlpi_spsc_check(const dlp_spsc *lane, uint64_t bytes, dlp_spsc *copy) {
    if (bytes < sizeof *lane || DLPI_LOAD_ACQ(&lane->magic) != DLPI_SPSC_MAGIC) /* LM2 <- LM1 */
        return DLP_ERR_CORRUPT;
    copy->version = DLPI_LOAD_RLX(&lane->version); /* LM3, six words that init wrote before LM1 */
    copy->layout = DLPI_LOAD_RLX(&lane->layout);
    copy->record_bytes = DLPI_LOAD_RLX(&lane->record_bytes);
    copy->shared = DLPI_LOAD_RLX(&lane->shared);
    copy->capacity = DLPI_LOAD_RLX(&lane->capacity);
    copy->slots_offset = DLPI_LOAD_RLX(&lane->slots_offset);
    copy->total_bytes = DLPI_LOAD_RLX(&lane->total_bytes);
    uint64_t need = dlp_spsc_bytes(copy->record_bytes, copy->capacity);
    if (copy->version != DLPI_QUEUE_VERSION || copy->layout != DLPI_QUEUE_LAYOUT ||
        copy->shared > 1 || need == 0 || need > bytes || copy->total_bytes != need ||
        copy->slots_offset != sizeof *lane)
        return DLP_ERR_CORRUPT;
    copy->head = DLPI_LOAD_ACQ(&lane->head); /* LH2 <- LH1, before tail: head never passes tail */
    copy->tail = DLPI_LOAD_ACQ(&lane->tail); /* LT2 <- LT1 */
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    if (DLPI_LOAD_RLX(&lane->closed) != 0) return DLP_ERR_STATE; /* LE1: its producer is gone */
    memset(tx, 0, sizeof *tx);
    tx->tail = copy.tail;
    tx->head_seen = copy.head;
    tx->capacity = copy.capacity;
    tx->slots = (unsigned char *)mem + copy.slots_offset;
    tx->lane = lane;
    tx->wake_word = &lane->consumer_wake;
    tx->record_bytes = copy.record_bytes;
    tx->shared = copy.shared;
    dlpi_wait_policy(2, &tx->spin_ns, &tx->yields);
    dlpi_wake_join(&lane->consumer_wake, (int)copy.shared);
    dlpi_wake_join(&lane->producer_wake, (int)copy.shared);
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!rx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(rx, 0, sizeof *rx);
    rx->head = rx->published = copy.head;
    rx->tail_seen = copy.tail;
    rx->publish_every = copy.capacity >= 8 ? copy.capacity / 8 : 1;
    rx->slip_most = DLPI_SLIP_MOST;
    rx->capacity = copy.capacity;
    rx->slots = (unsigned char *)mem + copy.slots_offset;
    rx->lane = lane;
    rx->record_bytes = copy.record_bytes;
    rx->shared = copy.shared;
    dlpi_wait_policy(2, &rx->spin_ns, &rx->yields);
    dlpi_wake_join(&lane->consumer_wake, (int)copy.shared);
    dlpi_wake_join(&lane->producer_wake, (int)copy.shared);
    return DLP_OK;
}

static bool dlpi_spsc_has_room(void *handle) {
    return dlpi_spsc_room((dlp_spsc_tx *)handle, 1) != 0;
}

static bool dlpi_spsc_has_stock(void *handle) {
    return dlpi_spsc_has((dlp_spsc_rx *)handle) != DLP_EMPTY;
}

DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms) {
    dlpi_waiter w = {&tx->lane->producer_wake, tx->shared, tx->spin_ns, tx->yields,
                     dlpi_spsc_has_room,       tx};
    int r = dlpi_await(&w, timeout_ms);
    int64_t room = r == DLP_OK ? dlpi_spsc_room(tx, 1) : 0;
    return room < 0 ? (int)room : r;
}

DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->lane->consumer_wake, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_spsc_has_stock,      rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK ? dlpi_spsc_has(rx) : r;
}

DLPI_COLD DLPDEF void dlp_spsc_close(dlp_spsc_tx *tx) {
    tx->closed = 1;
    tx->reserved = 0;
    tx->head_seen = tx->tail - tx->capacity;       /* no room, so that each push looks */
    DLPI_STORE_REL(&tx->lane->closed, tx->closed); /* LE1 -> LE2, after the last LT1 */
    DLPI_KEEP_ORDER();
    if (DLPI_LOAD_RLX(tx->wake_word) != 0) /* LB1 <- LB3 */
        dlpi_wake_sleeper(tx->wake_word, tx->shared);
}

/* Return what is left of timeout_ms since *begin. The first call sets *begin, which must be 0. A
   time-out of 0 or below (DLP_NOWAIT, for ever) is returned as it is. */
static int dlpi_time_left(int timeout_ms, uint64_t *begin) {
    if (timeout_ms <= 0) return timeout_ms;
    uint64_t now = dlpi_now_ns();
    if (*begin == 0) *begin = now;
    uint64_t gone = (now - *begin) / 1000000u;
    return gone < (uint64_t)timeout_ms ? timeout_ms - (int)gone : DLP_NOWAIT;
}

DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_spsc_try_push_burst(tx, from + done * tx->record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_spsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_spsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_spsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_spsc_try_pop_burst(rx, records, max);
}
