#pragma once
#include "api/codes.h"
#include "api/atomics.h"
/* ---------------------------------------------------------------------------------------------
   >>queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   A lane carries records of one size from one producer to one consumer; a bundle is a lane per
   producer with one consumer. Both live in memory that the caller gives, of DLP_QUEUE_ALIGN
   alignment, which may be a mapping shared by processes (shared = 1); in it are only offsets, never
   pointers. A thread that uses a queue attaches to it and gets a handle: an ordinary struct in
   memory of its own, used by one thread at a time. A successor (of a thread, or of a process that
   died) attaches again and goes on where the published counters are: records not yet published are
   lost with the producer, and records taken by the consumer since its counter was last published
   come again.

     static unsigned char mem[...] aligned to DLP_QUEUE_ALIGN, dlp_spsc_bytes(8, 1024) long
     dlp_spsc_init(mem, sizeof mem, 8, 1024, 0);
     producer: dlp_spsc_tx tx; dlp_spsc_attach_tx(&tx, mem, sizeof mem);
               dlp_spsc_push(&tx, &value, DLP_FOREVER);
     consumer: dlp_spsc_rx rx; dlp_spsc_attach_rx(&rx, mem, sizeof mem);
               dlp_spsc_pop(&rx, &value, DLP_FOREVER);

   try_ never waits. Calls with timeout_ms wait: 0 or DLP_FOREVER without end, DLP_NOWAIT not at
   all. A waiter spins, then yields if there are more peers than cores, then sleeps; spin_ns and
   yields of the handle say how long and may be changed between calls. A producer that sleeps is
   woken when half of the ring is free. Every sleep ends after 100 ms at most, to look again.
   Memory that others write is not trusted: counters out of range make a call return
   DLP_ERR_CORRUPT, and no address is ever computed from them. */

#define DLP_QUEUE_ALIGN 128          /* alignment of the memory of a queue */
#define DLP_QUEUE_MAX_RECORD 1048576 /* record bytes */
#define DLP_QUEUE_MAX_CAPACITY (UINT64_C(1) << 32)
#define DLP_MPSC_MAX_PRODUCERS 4096

/* A lane as it lies in memory, followed by its slots. Blocks of 128 bytes, one writer each. For
   looking; use the calls below. Counters run free and wrap at 2^64. */
typedef struct dlp_spsc {
    uint64_t magic; /* written last by init; read-only from then on */
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity;     /* records, a power of two */
    uint64_t slots_offset; /* from the lane's beginning */
    uint64_t total_bytes;
    unsigned char pad0[80];
    uint64_t tail; /* records pushed; written by the producer */
    unsigned char pad1[120];
    uint64_t head; /* records taken, published from time to time; by the consumer */
    unsigned char pad2[120];
    uint32_t producer_wake; /* futex word: the producer sleeps */
    unsigned char pad3[124];
    uint32_t consumer_wake; /* futex word: the consumer sleeps (a bundle has its own) */
    unsigned char pad4[124];
} dlp_spsc;

/* Producer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_tx {
    uint64_t tail;      /* next record's number */
    uint64_t head_seen; /* the consumer's counter when last read */
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint32_t *wake_word; /* of the consumer */
    uint64_t reserved;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields; /* before sleeping; may be changed */
    unsigned char pad[184];   /* two handles side by side share no line */
} dlp_spsc_tx;

/* Consumer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_rx {
    uint64_t head;      /* next record's number */
    uint64_t tail_seen; /* the producer's counter when last read */
    uint64_t published; /* what lane->head says */
    uint64_t publish_every;
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint64_t peeked;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields;
    uint32_t slip, slip_most; /* pauses before a look, see dlpi_spsc_look_rx */
    unsigned char pad[168];
} dlp_spsc_rx;

/* A bundle as it lies in memory, followed by ready words, owner words and lanes. */
typedef struct dlp_mpsc {
    uint64_t magic;
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity; /* records of each lane */
    uint32_t producers, ready_words;
    uint64_t ready_offset, owners_offset, lanes_offset, lane_bytes, total_bytes;
    unsigned char pad0[48];
    uint32_t consumer_wake;
    unsigned char pad1[124];
} dlp_mpsc;

/* A producer's handle of a bundle: a lane's, and where to say that the lane is ready. */
typedef struct dlp_mpsc_tx {
    dlp_spsc_tx lane;
    uint64_t *ready; /* NULL: 16 producers or fewer */
    uint64_t ready_bit;
    uint32_t *owner;
} dlp_mpsc_tx;

/* The consumer's handle of a bundle. */
typedef struct dlp_mpsc_rx {
    dlp_spsc_rx *at;  /* lane in turn */
    uint32_t left;    /* records it may still give in this turn */
    uint32_t quantum; /* records of a turn: 64; may be changed, 1 or more */
    uint32_t turn;    /* its number */
    uint32_t producers, ready_words, word;
    uint64_t bits; /* lanes of ready word `word` still to visit */
    uint64_t finds;
    dlp_spsc_rx *lanes;
    dlp_mpsc *bundle;
    uint32_t shared, spin_ns, yields;
    unsigned char pad[128];
} dlp_mpsc_rx;

/* Bytes that a lane takes. record_bytes: a multiple of 8, 8..DLP_QUEUE_MAX_RECORD; capacity: a
   power of two, 1..DLP_QUEUE_MAX_CAPACITY. Returns 0 if either is out of range. Any thread. */
DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity);

/* Make an empty lane in mem. mem: borrowed, aligned to DLP_QUEUE_ALIGN; shared: 1 if more than one
   process will use it. Returns DLP_OK, DLP_ERR_ARG (also if bytes are too few). Before anybody
   attaches. Does not wait or allocate. */
DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         int shared);

/* Become the producer (the consumer) of the lane in mem. bytes: what is mapped there. Returns
   DLP_OK, DLP_ERR_ARG, DLP_ERR_CORRUPT if what lies there is no lane of this version and layout
   that fits in bytes. One of each at a time. Makes system calls; does not allocate. */
DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes);
DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes);

/* Wait until a record can be pushed (popped). Returns DLP_OK, DLP_TIMEOUT, or DLP_ERR_CORRUPT.
   Sleeps when it has to. Source: event counts (Reed, Kanodia 1979). */
DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms);
DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms);

/* Push n records, in pieces as room comes. Returns how many were pushed: n, or fewer when the time
   was up; DLP_ERR_CORRUPT. Waits. */
DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms);

/* Pop 1 to max records. Returns how many; 0 when the time was up; DLP_ERR_CORRUPT. Waits. */
DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms);

/* The same for bundles. producers: 1..DLP_MPSC_MAX_PRODUCERS; capacity: of each producer's lane. */
DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers);
DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         uint32_t producers, int shared);

/* Become producer number `producer`, or, with DLP_NONE, any that nobody has claimed. The first form
   takes the place from its owner, who must be gone. Returns the number;
   DLP_ERR_ARG, DLP_ERR_CORRUPT, DLP_ERR_BUSY when all are claimed. Any thread. */
DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer);
/* Give the place back for others to claim. What was pushed stays. */
DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx);

/* Become the consumer. lanes: [n_lanes] borrowed as long as rx is used; n_lanes at least the number
   of producers, else DLP_ERR_ARG. */
DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes, void *mem,
                              uint64_t bytes);
DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms);
DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms);
DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms);
DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms);

/* For the inline calls below. */
DLPDEF void dlpi_wake_sleeper(uint32_t *wake_word, uint32_t shared);
DLPDEF void dlpi_spsc_room_wake(dlp_spsc_rx *rx);
DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx);

/* ---- the calls on the fast path, inline in every file that includes this header ----

   Labelled atomics of a lane:
     label  where                   access          partner, and what it carries
     LD1    slot words, producer    store relaxed   plain reads after LT2; one store, not torn
     LT1    lane->tail, producer    store release   LT2: the records below it are written
     LT2    lane->tail, consumer    load acquire    LT1
     LH1    lane->head, consumer    store release   LH2: the slots below it may be written again
     LH2    lane->head, producer    load acquire    LH1
     LB1    a wake word, waker      load relaxed    LB3: ordered after LT1 or LH1, see dlpi_await
     LB2    a wake word, waker      rmw seq_cst     LB3: takes the sleeper bit, then wakes
     LB3    a wake word, sleeper    rmw seq_cst     LB1, LB2: before it looks again by LT2 or LH2
     LM1    magic, init             store release   LM2: the header is written
     LM2    magic, attach           load acquire    LM1
     LM3    the header, attach      load relaxed    ordered by LM2: init wrote it before LM1
   Why full, empty and wrap are right:
   1 tail and head run free over 2^64 and only ever grow; tail - head, modulo 2^64, is the number of
     records in the ring, 0..capacity, whatever the counters' values. A capacity that is a power of
     two divides 2^64, so that a counter's low bits go on in step over the wrap.
   2 The producer alone writes tail and the slots in [tail, head + capacity); the consumer alone
     writes head.
   3 head_seen is an old head: head_seen <= head <= tail. tail - head_seen == capacity may be a
     false "full", never a false "room"; full is reported only after LH2 has looked again.
   4 tail_seen likewise: empty is reported only after LT2 has looked again.
   5 LT1 -> LT2: what the consumer reads in [head, tail_seen) was written before that tail.
   6 LH1 -> LH2: a slot that the producer writes again was read before that head.
   7 The consumer publishes head after an eighth of the ring, and always before it reports empty;
     the producer publishes tail in every call. So neither waits for what the other keeps to
     itself, unless a consumer stops between pops without calling dlp_spsc_publish: then the
     producer misses less than an eighth of the ring.
   8 A counter read from memory is used only if tail - head <= capacity, and slots are addressed by
     the private counter alone.
   Progress: the try_ calls, reserve, commit, peek and release are wait-free, but for the one system
   call that wakes a sleeper. A crash between any two instructions leaves the lane as it was before
   the call or after it. */

DLPI_INLINE unsigned char *dlpi_slot(unsigned char *slots, uint64_t capacity, uint64_t number,
                                     uint32_t record_bytes) {
    return slots + (number & (capacity - 1)) * record_bytes;
}

/* Read the consumer's counter again. Returns how many records fit, or DLP_ERR_CORRUPT. */
DLPI_INLINE int64_t dlpi_spsc_look_tx(dlp_spsc_tx *tx) {
    uint64_t head = DLPI_LOAD_ACQ(&tx->lane->head); /* LH2 <- LH1 */
    uint64_t used = tx->tail - head;
    if (DLPI_UNLIKELY(used > tx->capacity)) return DLP_ERR_CORRUPT;
    tx->head_seen = head;
    return (int64_t)(tx->capacity - used);
}

/* Records that fit, as many as are known of if that is `want` at least. */
DLPI_INLINE int64_t dlpi_spsc_room(dlp_spsc_tx *tx, uint64_t want) {
    uint64_t room = tx->capacity - (tx->tail - tx->head_seen);
    return DLPI_LIKELY(room >= want) ? (int64_t)room : dlpi_spsc_look_tx(tx);
}

/* Publish n records that are written. One store, and one look at the wake word. */
DLPI_INLINE void dlpi_spsc_publish_tx(dlp_spsc_tx *tx, uint64_t n) {
    tx->tail += n;
    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* LT1 -> LT2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->wake_word) != 0)) /* LB1 <- LB3 */
        dlpi_wake_sleeper(tx->wake_word, tx->shared);
}

/* Publish the consumer's counter now, which it else does after an eighth of the ring or when it
   finds the lane empty. For a consumer that stops for a while. Wait-free, but for waking. */
DLPI_INLINE void dlp_spsc_publish(dlp_spsc_rx *rx) {
    rx->published = rx->head;
    DLPI_STORE_REL(&rx->lane->head, rx->head); /* LH1 -> LH2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_wake) != 0)) /* LB1 <- LB3 */
        dlpi_spsc_room_wake(rx);
}

#define DLPI_SLIP_MOST 8u /* pauses, about 0.2 us */

/* Read the producer's counter again; publish ours if there is nothing. Returns how many records
   there are, or DLP_ERR_CORRUPT.
   Each look takes the line of tail from the producer, which pays for it at its next push. A
   consumer that is the faster one would look after every few records and slow both down; so while
   looks find some records, but less than an eighth of the ring, single pops let a few pauses more
   pass before the next look. One record at a time, as in a ping-pong, never slips. */
DLPI_INLINE int64_t dlpi_spsc_look_rx(dlp_spsc_rx *rx, uint32_t pauses) {
    for (; DLPI_UNLIKELY(pauses > 0); pauses--) dlpi_pause();
    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail); /* LT2 <- LT1 */
    uint64_t stock = tail - rx->head;
    if (DLPI_UNLIKELY(stock > rx->capacity)) return DLP_ERR_CORRUPT;
    rx->tail_seen = tail;
    if (stock < 2)
        rx->slip = stock == 0 ? rx->slip / 2 : 0;
    else if (stock < rx->publish_every && rx->slip < rx->slip_most)
        rx->slip++;
    if (stock == 0 && rx->published != rx->head) dlp_spsc_publish(rx);
    return (int64_t)stock;
}

DLPI_INLINE int64_t dlpi_spsc_stock(dlp_spsc_rx *rx, uint64_t want) {
    uint64_t stock = rx->tail_seen - rx->head;
    if (DLPI_LIKELY(stock >= want)) return (int64_t)stock;
    return dlpi_spsc_look_rx(rx, want == 1 ? rx->slip : 0);
}

/* Give n slots back. */
DLPI_INLINE void dlpi_spsc_take(dlp_spsc_rx *rx, uint64_t n) {
    rx->head += n;
    if (DLPI_UNLIKELY(rx->head - rx->published >= rx->publish_every)) dlp_spsc_publish(rx);
}

/* Copy a record into its slot, word by word: the caller has often just written it field by field,
   and a wider load would wait until those stores have left the store buffer, after all earlier
   records on their way to the other core. Where the compiler sees how large the caller's object
   is, only the sizes that fit remain, and it has nothing to warn about. */
DLPI_INLINE void dlpi_put_words(void *slot, const void *record, uint64_t words) {
    dlpi_word *to = (dlpi_word *)slot;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)record + i * 8, 8);
        DLPI_STORE_RLX(to + i, word); /* LD1, after it LT1 */
    }
}

DLPI_INLINE void dlpi_put_record(void *slot, const void *record, uint32_t bytes) {
    if (bytes == 8)
        dlpi_put_words(slot, record, 1);
    else if (bytes == 64 && __builtin_object_size(record, 0) >= 64)
        dlpi_put_words(slot, record, 8);
    else if (bytes == 16 && __builtin_object_size(record, 0) >= 16)
        dlpi_put_words(slot, record, 2);
    else if (bytes == 32 && __builtin_object_size(record, 0) >= 32)
        dlpi_put_words(slot, record, 4);
    else if (bytes <= 128 || __builtin_object_size(record, 0) <= 128)
        dlpi_put_words(slot, record, bytes / 8);
    else
        memcpy(slot, record, bytes);
}

DLPI_INLINE void dlpi_get_record(void *record, const void *slot, uint32_t bytes) {
    if (bytes == 8)
        memcpy(record, slot, 8);
    else if (bytes == 64 && __builtin_object_size(record, 0) >= 64)
        memcpy(record, slot, 64);
    else if (bytes == 16 && __builtin_object_size(record, 0) >= 16)
        memcpy(record, slot, 16);
    else if (bytes == 32 && __builtin_object_size(record, 0) >= 32)
        memcpy(record, slot, 32);
    else
        memcpy(record, slot, bytes);
}

/* Records that the caller has just written, by words of 8 bytes as a rule, into slots. libc copies
   with loads of 32 or 64 bytes, and a load that is wider than the stores before it waits until
   these have left the store buffer: some processors take twice as long for records of 64 bytes
   (18.5 ns instead of 9.3), where others gain a tenth. Word by word is never far from the best. One
   word is one store however it is copied, and of large records most has left the buffer. */
static inline void dlpi_put_records(void *slots, const void *records, uint64_t n,
                                    uint32_t record_bytes) {
    if (record_bytes == 8 || record_bytes > 256)
        memcpy(slots, records, n * record_bytes);
    else
        dlpi_put_words(slots, records, n * (record_bytes / 8));
}

/* Copy n records into the ring, or (out) from it, in one piece or two. */
static inline void dlpi_copy_in(unsigned char *slots, uint64_t capacity, uint64_t number,
                                uint32_t record_bytes, const void *records, uint64_t n) {
    uint64_t first = capacity - (number & (capacity - 1));
    if (first > n) first = n;
    dlpi_put_records(dlpi_slot(slots, capacity, number, record_bytes), records, first,
                     record_bytes);
    if (first < n)
        dlpi_put_records(slots, (const unsigned char *)records + first * record_bytes, n - first,
                         record_bytes);
}

static inline void dlpi_copy_out(const unsigned char *slots, uint64_t capacity, uint64_t number,
                                 uint32_t record_bytes, void *records, uint64_t n) {
    uint64_t at = number & (capacity - 1), first = capacity - at;
    if (first > n) first = n;
    memcpy(records, slots + at * record_bytes, first * record_bytes);
    if (first < n)
        memcpy((unsigned char *)records + first * record_bytes, slots, (n - first) * record_bytes);
}

/* Lend room for up to n records, one after the other in memory. *records: where to write them,
   valid until commit or abort. Returns how many (fewer than n at the ring's end too), 0 if the lane
   is full, DLP_ERR_CORRUPT. Wait-free. */
static inline int64_t dlp_spsc_reserve(dlp_spsc_tx *tx, uint64_t n, void **records) {
    int64_t room = dlpi_spsc_room(tx, n);
    uint64_t at = tx->tail & (tx->capacity - 1);
    uint64_t most = tx->capacity - at < n ? tx->capacity - at : n;
    if (DLPI_UNLIKELY(room <= 0)) return room;
    if ((uint64_t)room < most) most = (uint64_t)room;
    tx->reserved = most;
    *records = tx->slots + at * tx->record_bytes;
    return (int64_t)most;
}

/* Publish the first n of the records reserved; the others are given up. Returns DLP_OK,
   DLP_ERR_ARG if fewer were reserved. Wait-free, but for waking. */
static inline int dlp_spsc_commit(dlp_spsc_tx *tx, uint64_t n) {
    if (DLPI_UNLIKELY(n > tx->reserved)) return DLP_ERR_ARG;
    tx->reserved = 0;
    if (n > 0) dlpi_spsc_publish_tx(tx, n);
    return DLP_OK;
}

/* Give up what was reserved. */
static inline void dlp_spsc_abort(dlp_spsc_tx *tx) { tx->reserved = 0; }

/* Push a copy of one record. Returns DLP_OK, DLP_FULL, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_push(dlp_spsc_tx *tx, const void *record) {
    int64_t room = dlpi_spsc_room(tx, 1);
    if (DLPI_UNLIKELY(room <= 0)) return room == 0 ? DLP_FULL : DLP_ERR_CORRUPT;
    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes), record,
                    tx->record_bytes);
    dlpi_spsc_publish_tx(tx, 1);
    return DLP_OK;
}

/* Push copies of up to n records. Returns how many, 0 if the lane is full, DLP_ERR_CORRUPT. One
   store publishes them all. Wait-free, but for waking. */
static inline int64_t dlp_spsc_try_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n) {
    int64_t room = dlpi_spsc_room(tx, n);
    if (DLPI_UNLIKELY(room <= 0 || n == 0)) return n == 0 ? 0 : room;
    if ((uint64_t)room < n) n = (uint64_t)room;
    dlpi_copy_in(tx->slots, tx->capacity, tx->tail, tx->record_bytes, records, n);
    dlpi_spsc_publish_tx(tx, n);
    return (int64_t)n;
}

/* Lend up to n records, one after the other in memory, until release. Returns how many (fewer
   than n at the ring's end too), 0 if the lane is empty, DLP_ERR_CORRUPT. The records lie in
   memory that the producer can still write: between processes that do not trust each other copy,
   check, use. Wait-free. */
static inline int64_t dlp_spsc_peek(dlp_spsc_rx *rx, uint64_t n, const void **records) {
    int64_t stock = dlpi_spsc_stock(rx, n);
    uint64_t at = rx->head & (rx->capacity - 1);
    uint64_t most = rx->capacity - at < n ? rx->capacity - at : n;
    if (DLPI_UNLIKELY(stock <= 0)) return stock;
    if ((uint64_t)stock < most) most = (uint64_t)stock;
    rx->peeked = most;
    *records = rx->slots + at * rx->record_bytes;
    return (int64_t)most;
}

/* Give the first n of the peeked records back; the others are not taken. Returns DLP_OK,
   DLP_ERR_ARG if fewer were peeked. Wait-free, but for waking. */
static inline int dlp_spsc_release(dlp_spsc_rx *rx, uint64_t n) {
    if (DLPI_UNLIKELY(n > rx->peeked)) return DLP_ERR_ARG;
    rx->peeked = 0;
    dlpi_spsc_take(rx, n);
    return DLP_OK;
}

/* Pop one record into *record. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_pop(dlp_spsc_rx *rx, void *record) {
    int64_t stock = dlpi_spsc_stock(rx, 1);
    if (DLPI_UNLIKELY(stock <= 0)) return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head, rx->record_bytes),
                    rx->record_bytes);
    dlpi_spsc_take(rx, 1);
    return DLP_OK;
}

/* Pop up to max records. Returns how many, 0 if the lane is empty, DLP_ERR_CORRUPT. Wait-free, but
   for waking. */
static inline int64_t dlp_spsc_try_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max) {
    int64_t stock = dlpi_spsc_stock(rx, max);
    if (DLPI_UNLIKELY(stock <= 0 || max == 0)) return max == 0 ? 0 : stock;
    if ((uint64_t)stock < max) max = (uint64_t)stock;
    dlpi_copy_out(rx->slots, rx->capacity, rx->head, rx->record_bytes, records, max);
    dlpi_spsc_take(rx, max);
    return (int64_t)max;
}

/* Push (pop) one record, waiting for room (for a record). Returns DLP_OK, DLP_TIMEOUT,
   DLP_ERR_CORRUPT. */
DLPI_INLINE int dlp_spsc_push(dlp_spsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_spsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_spsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_push(tx, record) : r;
}

DLPI_INLINE int dlp_spsc_pop(dlp_spsc_rx *rx, void *record, int timeout_ms) {
    int r = dlp_spsc_try_pop(rx, record);
    if (DLPI_LIKELY(r != DLP_EMPTY)) return r;
    r = dlp_spsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_pop(rx, record) : r;
}

/* Bundles. Labelled atomics beyond those of the lanes:
     label  where                       access         partner
     LR1    a ready word, producer      load relaxed   LR3: the bit is set already, nothing to do
     LR2    a ready word, producer      rmw seq_cst    LR3: after LT1
     LR3    a ready word, consumer      rmw seq_cst    LR2: cleared before the lanes are drained
     LO1    an owner word               rmw seq_cst    LO1: one claimer wins
   Ready bits are hints that save the consumer from looking at idle lanes. LR1 may see a bit that
   LR3 is just clearing while LT1 is on its way. The hint is then lost. Therefore every 64th search
   looks at all lanes, and so does every search that would else report empty. Hence empty is
   reported only after LT2 found each lane empty, and a lane waits at most 64 turns.
   Order is kept per producer, not among producers. No producer waits for another. Progress as for
   lanes; a search takes as many steps as there are producers, at most. */

DLPI_INLINE void dlpi_mpsc_say_ready(dlp_mpsc_tx *tx) {
    if (tx->ready && !(DLPI_LOAD_RLX(tx->ready) & tx->ready_bit)) /* LR1 <- LR3 */
        DLPI_OR_SEQ(tx->ready, tx->ready_bit);                    /* LR2 -> LR3 */
}

/* These are dlp_spsc_ calls on the producer's own lane. */
DLPI_INLINE int dlp_mpsc_try_push(dlp_mpsc_tx *tx, const void *record) {
    int r = dlp_spsc_try_push(&tx->lane, record);
    dlpi_mpsc_say_ready(tx);
    return r;
}

static inline int64_t dlp_mpsc_try_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n) {
    int64_t done = dlp_spsc_try_push_burst(&tx->lane, records, n);
    dlpi_mpsc_say_ready(tx);
    return done;
}

static inline int64_t dlp_mpsc_reserve(dlp_mpsc_tx *tx, uint64_t n, void **records) {
    return dlp_spsc_reserve(&tx->lane, n, records);
}

static inline int dlp_mpsc_commit(dlp_mpsc_tx *tx, uint64_t n) {
    int r = dlp_spsc_commit(&tx->lane, n);
    dlpi_mpsc_say_ready(tx);
    return r;
}

static inline void dlp_mpsc_abort(dlp_mpsc_tx *tx) { dlp_spsc_abort(&tx->lane); }

DLPI_INLINE int dlp_mpsc_push(dlp_mpsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_mpsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_mpsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_push(tx, record) : r;
}

/* Have a lane with records in turn. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
DLPI_INLINE int dlpi_mpsc_turn(dlp_mpsc_rx *rx) {
    if (DLPI_LIKELY(rx->left > 0 && rx->at->tail_seen != rx->at->head)) return DLP_OK;
    return dlpi_mpsc_find(rx);
}

/* Pop one record of some producer, in turns of `quantum` records. *producer (may be NULL): whose.
   Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for waking. */
DLPI_INLINE int dlp_mpsc_try_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK)) return r;
    rx->left--;
    if (producer) *producer = rx->turn;
    return dlp_spsc_try_pop(rx->at, record);
}

/* Lend up to n records of one producer until dlp_mpsc_release. As dlp_spsc_peek. */
static inline int64_t dlp_mpsc_peek(dlp_mpsc_rx *rx, uint64_t n, const void **records,
                                    uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (producer) *producer = rx->turn;
    if (DLPI_UNLIKELY(r != DLP_OK)) return r == DLP_EMPTY ? 0 : r;
    return dlp_spsc_peek(rx->at, n < rx->left ? n : rx->left, records);
}

static inline int dlp_mpsc_release(dlp_mpsc_rx *rx, uint64_t n) {
    int r = dlp_spsc_release(rx->at, n);
    if (r == DLP_OK) rx->left -= (uint32_t)n;
    return r;
}

/* Pop up to max records, of several producers if need be. Returns how many, 0: empty;
   DLP_ERR_CORRUPT. */
static inline int64_t dlp_mpsc_try_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max) {
    unsigned char *to = (unsigned char *)records;
    uint64_t done = 0;
    while (done < max) {
        int r = dlpi_mpsc_turn(rx);
        if (r != DLP_OK) return done > 0 || r == DLP_EMPTY ? (int64_t)done : r;
        uint64_t n = max - done < rx->left ? max - done : rx->left;
        uint64_t stock = rx->at->tail_seen - rx->at->head;
        n = n < stock ? n : stock;
        dlpi_copy_out(rx->at->slots, rx->at->capacity, rx->at->head, rx->at->record_bytes,
                      to + done * rx->at->record_bytes, n);
        dlpi_spsc_take(rx->at, n);
        rx->left -= (uint32_t)n;
        done += n;
    }
    return (int64_t)done;
}

DLPI_INLINE int dlp_mpsc_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer, int timeout_ms) {
    int r = dlp_mpsc_try_pop(rx, record, producer);
    if (DLPI_LIKELY(r != DLP_EMPTY)) return r;
    r = dlp_mpsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_pop(rx, record, producer) : r;
}
