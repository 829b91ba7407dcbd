#pragma once
#include "api/codes.h"
#include "api/atomics.h"
/* ---------------------------------------------------------------------------------------------
   >>queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   A lane carries records of one size from one producer to one consumer. A bundle has one consumer,
   and a lane for each producer. Both lie in memory that the caller gives, aligned to
   DLP_QUEUE_ALIGN. The memory may be a mapping that processes share (shared = 1): it has offsets
   only, never pointers. A thread attaches to a queue to use it, and gets a handle. A handle is an
   ordinary struct in the thread's own memory, which one thread at a time uses.
   If a thread or its process dies, a successor attaches again, and goes on at the published
   counters. Records that the producer had not published are lost with it. Records that the consumer
   had taken since it last published its counter come again.
   A producer that has pushed its last record closes. The consumer gets what is left, and then
   DLP_END. A bundle ends when all of its producers have closed, as many as it was made with.

     static unsigned char mem[...] aligned to DLP_QUEUE_ALIGN, dlp_spsc_bytes(8, 1024) long
     dlp_spsc_init(mem, sizeof mem, 8, 1024, 0);
     producer: dlp_spsc_tx tx; dlp_spsc_attach_tx(&tx, mem, sizeof mem);
               dlp_spsc_push(&tx, &value, DLP_FOREVER);
     consumer: dlp_spsc_rx rx; dlp_spsc_attach_rx(&rx, mem, sizeof mem);
               dlp_spsc_pop(&rx, &value, DLP_FOREVER);
               dlp_spsc_close(&tx); the last pop then returns DLP_END
     of a bundle: dlp_mpsc_pop(&rx, &value, &producer, DLP_FOREVER); NULL: whose it is does not
               matter

   A try_ call never waits. Calls with timeout_ms wait that many milliseconds; 0 or DLP_FOREVER: no
   limit; DLP_NOWAIT: they do not wait. A waiter spins, then yields if there are more peers than
   cores, then sleeps. spin_ns and yields of the handle tell how long, and may be changed between
   calls. A producer that sleeps is woken when half of the ring is free. Every sleep ends after 100
   ms at most, to look again.
   Memory that others write is not trusted. If counters are out of range, a call returns
   DLP_ERR_CORRUPT. No address is ever computed from these counters. */

#define DLP_QUEUE_ALIGN 128          /* alignment of the memory of a queue */
#define DLP_QUEUE_MAX_RECORD 1048576 /* record bytes */
#define DLP_QUEUE_MAX_CAPACITY (UINT64_C(1) << 32)
#define DLP_MPSC_MAX_PRODUCERS 4096

/* A lane as it lies in memory, followed by its slots. It consists of blocks of 128 bytes, each with
   one writer. A program may look at it, but uses the calls below. Counters run free and wrap at
   2^64. */
typedef struct dlp_spsc {
    uint64_t magic; /* init writes it last; read-only from then on */
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity;     /* records, a power of two */
    uint64_t slots_offset; /* bytes from the lane's beginning */
    uint64_t total_bytes;
    unsigned char pad0[80];
    uint64_t tail;   /* records pushed; the producer writes it */
    uint32_t closed; /* 1: the producer pushes no more, and has written its last tail */
    unsigned char pad1[116];
    uint64_t head; /* records taken; the consumer writes it from time to time */
    unsigned char pad2[120];
    uint32_t producer_wake; /* futex word of a producer that sleeps */
    unsigned char pad3[124];
    uint32_t consumer_wake; /* futex word of a consumer that sleeps (a bundle has its own) */
    unsigned char pad4[124];
} dlp_spsc;

/* Handle of a producer. One thread at a time uses it. */
typedef struct dlp_spsc_tx {
    uint64_t tail;      /* number of the next record */
    uint64_t head_seen; /* the consumer's counter, as last read */
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint32_t *wake_word; /* the consumer's */
    uint64_t reserved;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields; /* how long to spin and yield before a sleep */
    uint32_t closed;          /* 1: this producer has closed */
    unsigned char pad[180];   /* so that two handles side by side share no line */
} dlp_spsc_tx;

/* Handle of a consumer. One thread at a time uses it. */
typedef struct dlp_spsc_rx {
    uint64_t head;      /* number of the next record */
    uint64_t tail_seen; /* the producer's counter, as last read */
    uint64_t published; /* value of lane->head */
    uint64_t publish_every;
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint64_t peeked;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields;
    uint32_t slip, slip_most; /* pauses before a look: dlpi_spsc_look_rx */
    uint32_t ended;           /* 1: the last look found the lane closed, and no record */
    unsigned char pad[164];
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

/* Handle of a bundle's producer: the handle of its lane, and the place where it says that the lane
   is ready. */
typedef struct dlp_mpsc_tx {
    dlp_spsc_tx lane;
    uint64_t *ready; /* NULL: the bundle has 16 producers or fewer */
    uint64_t ready_bit;
    uint32_t *owner;
} dlp_mpsc_tx;

/* Handle of a bundle's consumer. */
typedef struct dlp_mpsc_rx {
    dlp_spsc_rx *at;  /* the lane whose turn it is */
    uint32_t left;    /* records that this lane may still give in its turn */
    uint32_t quantum; /* records of a turn, 1 or more; 64; may be changed */
    uint32_t turn;    /* number of this lane */
    uint32_t producers, ready_words, word;
    uint64_t bits; /* lanes of ready word `word` still to visit */
    uint64_t finds;
    dlp_spsc_rx *lanes;
    dlp_mpsc *bundle;
    uint32_t shared, spin_ns, yields;
    unsigned char pad[128];
} dlp_mpsc_rx;

/* Return the bytes that a lane takes, or 0 if a parameter is out of range.
   record_bytes: a multiple of 8, 8..DLP_QUEUE_MAX_RECORD; capacity: records, a power of two,
   1..DLP_QUEUE_MAX_CAPACITY. Any thread. */
DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity); /* needs: queues */

/* Make an empty lane in mem, before any thread attaches.
   mem: borrowed, aligned to DLP_QUEUE_ALIGN; bytes: size of mem; record_bytes, capacity: as in
   dlp_spsc_bytes; shared: 1 if more than one process will use the lane.
   Returns DLP_OK, or DLP_ERR_ARG (too few bytes, too). Does not wait or allocate. */
DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, /* needs: queues */
                         uint64_t capacity, int shared);

/* Become the producer (tx) or the consumer (rx) of the lane in mem. A lane has one of each at a
   time. bytes: number of bytes mapped at mem.
   Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_CORRUPT: mem has no lane of this version and layout that
   fits in bytes; or, to a producer, DLP_ERR_STATE: the producer before it has closed the lane.
   Makes system calls; does not allocate. */
DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes); /* needs: queues */
DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes); /* needs: queues */

/* Wait until a record can be pushed (tx) or popped (rx). Sleeps if it must.
   Returns DLP_OK, DLP_TIMEOUT, or DLP_ERR_CORRUPT; to a producer that has closed, DLP_ERR_STATE; to
   a consumer that has taken the last record of a closed lane, DLP_END. Source: event counts (Reed,
   Kanodia 1979). */
DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms);
DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms);

/* Close the lane: its producer pushes no more. Reserved records are given up. A consumer that waits
   is woken. It gets the records that are left, and then DLP_END, each time that it asks.
   Each later push of this handle returns DLP_ERR_STATE, and so does each later dlp_spsc_attach_tx.
   dlp_spsc_init opens the lane again. Closing is one store. So a producer that is killed in this
   call leaves the lane open or closed, and a successor that attaches is told which. Calling it
   again changes nothing. Does not wait or allocate. */
DLPDEF void dlp_spsc_close(dlp_spsc_tx *tx); /* needs: queues */

/* Push n records, in pieces as room comes. Waits for room.
   Returns how many were pushed: n, or fewer if the time was up; DLP_ERR_CORRUPT; or DLP_ERR_STATE:
   this producer has closed. */
DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records,
                                   uint64_t n, /* needs: queues */
                                   int timeout_ms);

/* Pop 1 to max records. Waits for the first.
   Returns how many were popped; 0 if the time was up, or if the lane is closed and has no record
   left; or DLP_ERR_CORRUPT. With DLP_FOREVER, 0 means closed; else dlp_spsc_wait_rx tells. */
DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, /* needs: queues */
                                  int timeout_ms);

/* Return the bytes of a bundle, and make an empty bundle, as dlp_spsc_bytes and dlp_spsc_init do
   for a lane. producers: 1..DLP_MPSC_MAX_PRODUCERS; capacity: records of each producer's lane. */
DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, /* needs: queues */
                               uint32_t producers);
DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, /* needs: queues */
                         uint64_t capacity, uint32_t producers, int shared);

/* Become a producer of the bundle in mem.
   producer: its number; the place is taken from its owner, who must be gone; DLP_NONE: any number
   that nobody has claimed.
   Returns the number, DLP_ERR_ARG, DLP_ERR_CORRUPT, DLP_ERR_BUSY: all numbers are claimed or
   closed; or DLP_ERR_STATE: this number was closed. Any thread. */
DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes,
                              int producer); /* needs: queues */
/* Give a producer's number back, for others to claim. Records that were pushed stay. */
DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx); /* needs: queues */
/* Close the lane of this producer, as dlp_spsc_close does. Nobody can claim its number again.
   The consumer gets DLP_END when all numbers of the bundle are closed and all records taken. If a
   bundle was made for more producers than come, attach to the other numbers and close them. */
DLPDEF void dlp_mpsc_close(dlp_mpsc_tx *tx); /* needs: queues */

/* Become the consumer of the bundle in mem.
   lanes: [n_lanes] borrowed as long as rx is used; n_lanes: the number of producers, or more.
   Returns DLP_OK, DLP_ERR_ARG, or DLP_ERR_CORRUPT. */
DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes,
                              uint32_t n_lanes, /* needs: queues */
                              void *mem, uint64_t bytes);
/* Wait, push or pop, as the dlp_spsc_ calls of these names do. A pop takes records of several
   producers, in turns. DLP_END: all producers have closed, and no record is left. */
DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms);
DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms);
DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records,
                                   uint64_t n, /* needs: queues */
                                   int timeout_ms);
DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, /* needs: queues */
                                  int timeout_ms);

/* The inline calls below call these. */
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
     LE1    lane->closed, producer  store release   LE2: the last tail is written
     LE2    lane->closed, consumer  load acquire    LE1: before LT2, which reads the last tail
     LB1    a wake word, waker      load relaxed    LB3: ordered after LT1, LH1 or LE1, dlpi_await
     LB2    a wake word, waker      rmw seq_cst     LB3: takes the sleeper bit, then wakes
     LB3    a wake word, sleeper    rmw seq_cst     LB1, LB2: before it looks by LT2, LH2 or LE2
     LM1    magic, init             store release   LM2: the header is written
     LM2    magic, attach           load acquire    LM1
     LM3    the header, attach      load relaxed    ordered by LM2: init wrote it before LM1
   Why full, empty and wrap are right:
   1 tail and head run free over 2^64 and only ever grow. tail - head, modulo 2^64, is the number of
     records in the ring, 0..capacity, whatever the counters' values. A capacity is a power of two,
     so it divides 2^64, and a counter's low bits go on in step over the wrap.
   2 The producer alone writes tail and the slots in [tail, head + capacity). The consumer alone
     writes head.
   3 head_seen is an old head: head_seen <= head <= tail. tail - head_seen == capacity may be a
     false "full", never a false "room". Full is reported only after LH2 has looked again.
   4 tail_seen is an old tail: head <= tail_seen <= tail. Empty is reported only after LT2 has
     looked again.
   5 LT1 -> LT2: what the consumer reads in [head, tail_seen) was written before that tail.
   6 LH1 -> LH2: a slot that the producer writes again was read before that head.
   7 The consumer publishes head after an eighth of the ring, and always before it reports empty.
     The producer publishes tail in every call. So neither waits for a number that the other has not
     published. One case is left: a consumer stops between pops and does not call dlp_spsc_publish.
     Then the producer misses less than an eighth of the ring.
   8 A counter read from memory is used only if tail - head <= capacity. The private counter alone
     gives the addresses of slots.
   9 LE1 -> LE2: closed is set once, after the last LT1, and never cleared. A look reads closed
     before tail. If closed is set, tail is the last one. If there is no record by it, there will
     never be one. So DLP_END is final, and no record comes after it.
   Progress: the try_ calls, reserve, commit, peek and release are wait-free, except for the one
   system call that wakes a sleeper. A crash between any two instructions leaves the lane as it was
   before the call or after it. */

DLPI_INLINE unsigned char *dlpi_slot(unsigned char *slots, uint64_t capacity, uint64_t number,
                                     uint32_t record_bytes) {
    return slots + (number & (capacity - 1)) * record_bytes;
}

/* Read the consumer's counter again. Returns how many records fit, DLP_ERR_CORRUPT, or
   DLP_ERR_STATE. A producer that has closed always comes here: its handle knows of no room. */
DLPI_INLINE int64_t dlpi_spsc_look_tx(dlp_spsc_tx *tx) {
    if (DLPI_UNLIKELY(tx->closed)) return DLP_ERR_STATE;
    uint64_t head = DLPI_LOAD_ACQ(&tx->lane->head); /* LH2 <- LH1 */
    uint64_t used = tx->tail - head;
    if (DLPI_UNLIKELY(used > tx->capacity)) return DLP_ERR_CORRUPT;
    tx->head_seen = head;
    return (int64_t)(tx->capacity - used);
}

/* Return how many records fit, or the error of dlpi_spsc_look_tx. Reads the consumer's counter
   again only if fewer than `want` are known to fit. */
DLPI_INLINE int64_t dlpi_spsc_room(dlp_spsc_tx *tx, uint64_t want) {
    uint64_t room = tx->capacity - (tx->tail - tx->head_seen);
    return DLPI_LIKELY(room >= want) ? (int64_t)room : dlpi_spsc_look_tx(tx);
}

/* Publish n records that are written: one store, and one look at the wake word. */
DLPI_INLINE void dlpi_spsc_publish_tx(dlp_spsc_tx *tx, uint64_t n) {
    tx->tail += n;
    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* LT1 -> LT2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->wake_word) != 0)) /* LB1 <- LB3 */
        dlpi_wake_sleeper(tx->wake_word, tx->shared);
}

/* Publish the consumer's counter now. A consumer that stops for a while calls this. Else the
   counter is published after an eighth of the ring, or when the lane is found empty. Wait-free,
   except for a wake-up. */
DLPI_INLINE void dlp_spsc_publish(dlp_spsc_rx *rx) {
    rx->published = rx->head;
    DLPI_STORE_REL(&rx->lane->head, rx->head); /* LH1 -> LH2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_wake) != 0)) /* LB1 <- LB3 */
        dlpi_spsc_room_wake(rx);
}

#define DLPI_SLIP_MOST 8u /* pauses, about 0.2 us */

/* Read the producer's counter again, after some pauses. If there is no record, publish the
   consumer's counter. Returns how many records there are, or DLP_ERR_CORRUPT.
   Each look takes the line of tail from the producer, which pays for it at its next push. A faster
   consumer would look after every few records, and slow both down. So while looks find some
   records, but less than an eighth of the ring, single pops wait a few pauses more before the next
   look. A consumer of one record at a time, as in a ping-pong, never waits so. */
DLPI_INLINE int64_t dlpi_spsc_look_rx(dlp_spsc_rx *rx, uint32_t pauses) {
    for (; DLPI_UNLIKELY(pauses > 0); pauses--) dlpi_pause();
    uint32_t closed = DLPI_LOAD_ACQ(&rx->lane->closed); /* LE2 <- LE1, before LT2 */
    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail);     /* LT2 <- LT1 */
    uint64_t stock = tail - rx->head;
    if (DLPI_UNLIKELY(stock > rx->capacity)) return DLP_ERR_CORRUPT;
    rx->tail_seen = tail;
    rx->ended = stock == 0 && closed != 0;
    if (stock < 2)
        rx->slip = stock == 0 ? rx->slip / 2 : 0;
    else if (stock < rx->publish_every && rx->slip < rx->slip_most)
        rx->slip++;
    if (stock == 0 && rx->published != rx->head) dlp_spsc_publish(rx);
    return (int64_t)stock;
}

/* Return how many records can be popped, or DLP_ERR_CORRUPT. Reads the producer's counter again
   only if fewer than `want` are known. */
DLPI_INLINE int64_t dlpi_spsc_stock(dlp_spsc_rx *rx, uint64_t want) {
    uint64_t stock = rx->tail_seen - rx->head;
    if (DLPI_LIKELY(stock >= want)) return (int64_t)stock;
    return dlpi_spsc_look_rx(rx, want == 1 ? rx->slip : 0);
}

/* Return DLP_OK if a record can be popped, DLP_EMPTY, DLP_END or DLP_ERR_CORRUPT. */
DLPI_INLINE int dlpi_spsc_has(dlp_spsc_rx *rx) {
    int64_t stock = dlpi_spsc_stock(rx, 1);
    if (DLPI_LIKELY(stock > 0)) return DLP_OK;
    return stock < 0 ? DLP_ERR_CORRUPT : rx->ended ? DLP_END : DLP_EMPTY;
}

/* Give n slots back to the producer. */
DLPI_INLINE void dlpi_spsc_take(dlp_spsc_rx *rx, uint64_t n) {
    rx->head += n;
    if (DLPI_UNLIKELY(rx->head - rx->published >= rx->publish_every)) dlp_spsc_publish(rx);
}

/* Copy a record into its slot, word by word. The caller has often just written the record field by
   field. A wider load would wait until these stores have left the store buffer, behind all earlier
   records on their way to the other core. If the compiler sees the size of the caller's object,
   only the sizes that fit remain, and it has nothing to warn about. */
DLPI_INLINE void dlpi_put_words(void *slot, const void *record, uint64_t words) {
    dlpi_word *to = (dlpi_word *)slot;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)record + i * 8, 8);
        DLPI_STORE_RLX(to + i, word); /* LD1, after it LT1 */
    }
}

/* Copy a record into its slot. bytes: a multiple of 8. Common sizes are constants here, so that the
   compiler unrolls the copy. */
DLPI_INLINE void dlpi_put_record(void *slot, const void *record, uint32_t bytes) {
    if (bytes == 8)
        dlpi_put_words(slot, record, 1);
    else if (bytes == 64 && DLPI_BYTES_AT(record) >= 64)
        dlpi_put_words(slot, record, 8);
    else if (bytes == 16 && DLPI_BYTES_AT(record) >= 16)
        dlpi_put_words(slot, record, 2);
    else if (bytes == 32 && DLPI_BYTES_AT(record) >= 32)
        dlpi_put_words(slot, record, 4);
    else if (bytes <= 128 || DLPI_BYTES_AT(record) <= 128)
        dlpi_put_words(slot, record, bytes / 8);
    else
        memcpy(slot, record, bytes);
}

/* Copy a record out of its slot. Common sizes are constants here, so that the compiler unrolls the
   copy. */
DLPI_INLINE void dlpi_get_record(void *record, const void *slot, uint32_t bytes) {
    if (bytes == 8)
        memcpy(record, slot, 8);
    else if (bytes == 64 && DLPI_BYTES_AT(record) >= 64)
        memcpy(record, slot, 64);
    else if (bytes == 16 && DLPI_BYTES_AT(record) >= 16)
        memcpy(record, slot, 16);
    else if (bytes == 32 && DLPI_BYTES_AT(record) >= 32)
        memcpy(record, slot, 32);
    else
        memcpy(record, slot, bytes);
}

/* Copy records that the caller has just written into slots, as a rule by words of 8 bytes. libc
   copies with loads of 32 or 64 bytes. A load that is wider than the stores before it waits until
   these have left the store buffer. With records of 64 bytes some processors then take twice as
   long (18.5 ns instead of 9.3), where others gain a tenth. Word by word is never far from the
   best. One word is one store however it is copied. Most of a large record has left the buffer. */
static inline void dlpi_put_records(void *slots, const void *records, uint64_t n,
                                    uint32_t record_bytes) {
    if (record_bytes == 8 || record_bytes > 256)
        memcpy(slots, records, n * record_bytes);
    else
        dlpi_put_words(slots, records, n * (record_bytes / 8));
}

/* Copy n records into the ring (in), or from it (out), in one piece or two. */
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

/* Copy n records out of a ring, from record `number` on, in two parts if they wrap. n is at most
   capacity, which is a power of two. */
static inline void dlpi_copy_out(const unsigned char *slots, uint64_t capacity, uint64_t number,
                                 uint32_t record_bytes, void *records, uint64_t n) {
    uint64_t at = number & (capacity - 1), first = capacity - at;
    if (first > n) first = n;
    memcpy(records, slots + at * record_bytes, first * record_bytes);
    if (first < n)
        memcpy((unsigned char *)records + first * record_bytes, slots, (n - first) * record_bytes);
}

/* Lend room for up to n records, which lie one after the other in memory.
   records: gets the place where to write them, valid until commit or abort.
   Returns how many (at the ring's end, too, fewer than n); 0 if the lane is full; DLP_ERR_CORRUPT;
   or DLP_ERR_STATE: this producer has closed. Wait-free. */
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

/* Publish the first n reserved records, and give up the others.
   Returns DLP_OK, or DLP_ERR_ARG: fewer were reserved. Wait-free, except for a wake-up. */
static inline int dlp_spsc_commit(dlp_spsc_tx *tx, uint64_t n) {
    if (DLPI_UNLIKELY(n > tx->reserved)) return DLP_ERR_ARG;
    tx->reserved = 0;
    if (n > 0) dlpi_spsc_publish_tx(tx, n);
    return DLP_OK;
}

/* Give up all reserved records. */
static inline void dlp_spsc_abort(dlp_spsc_tx *tx) { tx->reserved = 0; }

/* Push a copy of one record. Returns DLP_OK, DLP_FULL, DLP_ERR_CORRUPT, or DLP_ERR_STATE: this
   producer has closed. Wait-free, except for a wake-up. */
DLPI_INLINE int dlp_spsc_try_push(dlp_spsc_tx *tx, const void *record) {
    int64_t room = dlpi_spsc_room(tx, 1);
    if (DLPI_UNLIKELY(room <= 0)) return room == 0 ? DLP_FULL : (int)room;
    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes), record,
                    tx->record_bytes);
    dlpi_spsc_publish_tx(tx, 1);
    return DLP_OK;
}

/* Push copies of up to n records. One store publishes them all. Returns how many, 0 if the lane is
   full, or an error as dlp_spsc_try_push does. Wait-free, except for a wake-up. */
static inline int64_t dlp_spsc_try_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n) {
    int64_t room = dlpi_spsc_room(tx, n);
    if (DLPI_UNLIKELY(room <= 0 || n == 0)) return n == 0 ? 0 : room;
    if ((uint64_t)room < n) n = (uint64_t)room;
    dlpi_copy_in(tx->slots, tx->capacity, tx->tail, tx->record_bytes, records, n);
    dlpi_spsc_publish_tx(tx, n);
    return (int64_t)n;
}

/* Lend up to n records, which lie one after the other in memory, until dlp_spsc_release.
   records: gets their place. The producer can still write there. If processes do not trust each
   other, copy the records, check the copy, and use the copy.
   Returns how many (at the ring's end, too, fewer than n); 0 if the lane is empty or has ended
   (dlp_spsc_wait_rx tells which); or DLP_ERR_CORRUPT. Wait-free. */
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

/* Give the first n peeked records back. The others stay in the lane.
   Returns DLP_OK, or DLP_ERR_ARG: fewer were peeked. Wait-free, except for a wake-up. */
static inline int dlp_spsc_release(dlp_spsc_rx *rx, uint64_t n) {
    if (DLPI_UNLIKELY(n > rx->peeked)) return DLP_ERR_ARG;
    rx->peeked = 0;
    dlpi_spsc_take(rx, n);
    return DLP_OK;
}

/* Pop one record into *record. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT, or DLP_END: the lane is
   closed and has no record left. Wait-free, except for a wake-up. */
DLPI_INLINE int dlp_spsc_try_pop(dlp_spsc_rx *rx, void *record) {
    int r = dlpi_spsc_has(rx);
    if (DLPI_UNLIKELY(r != DLP_OK)) return r;
    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head, rx->record_bytes),
                    rx->record_bytes);
    dlpi_spsc_take(rx, 1);
    return DLP_OK;
}

/* Pop up to max records. Returns how many, 0 if the lane is empty or has ended (dlp_spsc_wait_rx
   tells which), or DLP_ERR_CORRUPT. Wait-free, except for a wake-up. */
static inline int64_t dlp_spsc_try_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max) {
    int64_t stock = dlpi_spsc_stock(rx, max);
    if (DLPI_UNLIKELY(stock <= 0 || max == 0)) return max == 0 ? 0 : stock;
    if ((uint64_t)stock < max) max = (uint64_t)stock;
    dlpi_copy_out(rx->slots, rx->capacity, rx->head, rx->record_bytes, records, max);
    dlpi_spsc_take(rx, max);
    return (int64_t)max;
}

/* Push one record, after a wait for room. Returns DLP_OK, DLP_TIMEOUT, DLP_ERR_CORRUPT, or
   DLP_ERR_STATE: this producer has closed. */
DLPI_INLINE int dlp_spsc_push(dlp_spsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_spsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_spsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_push(tx, record) : r;
}

/* Pop one record, after a wait for it. Returns DLP_OK, DLP_TIMEOUT, DLP_ERR_CORRUPT, or DLP_END:
   the lane is closed and has no record left. */
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
   DLP_END is reported only by such a search, which found that each lane has ended (9 above). A lane
   that has ended stays so. So it does not matter that the lanes are looked at one by one.
   Records of one producer keep their order; records of several have none. No producer waits for
   another. Progress is as for lanes. A search takes as many steps as there are producers, at
   most. */

DLPI_INLINE void dlpi_mpsc_say_ready(dlp_mpsc_tx *tx) {
    if (tx->ready && !(DLPI_LOAD_RLX(tx->ready) & tx->ready_bit)) /* LR1 <- LR3 */
        DLPI_OR_SEQ(tx->ready, tx->ready_bit);                    /* LR2 -> LR3 */
}

/* The calls of a producer below do what the dlp_spsc_ calls of their names do, on the producer's
   own lane. */
DLPI_INLINE int dlp_mpsc_try_push(dlp_mpsc_tx *tx, const void *record) {
    int r = dlp_spsc_try_push(&tx->lane, record);
    dlpi_mpsc_say_ready(tx);
    return r;
}

/* Push up to n records, as dlp_spsc_try_push_burst does. */
static inline int64_t dlp_mpsc_try_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n) {
    int64_t done = dlp_spsc_try_push_burst(&tx->lane, records, n);
    dlpi_mpsc_say_ready(tx);
    return done;
}

/* Lend room for records, as dlp_spsc_reserve does. */
static inline int64_t dlp_mpsc_reserve(dlp_mpsc_tx *tx, uint64_t n, void **records) {
    return dlp_spsc_reserve(&tx->lane, n, records);
}

/* Publish records of the reserved room, as dlp_spsc_commit does. */
static inline int dlp_mpsc_commit(dlp_mpsc_tx *tx, uint64_t n) {
    int r = dlp_spsc_commit(&tx->lane, n);
    dlpi_mpsc_say_ready(tx);
    return r;
}

/* Give the reserved room back, as dlp_spsc_abort does. */
static inline void dlp_mpsc_abort(dlp_mpsc_tx *tx) { dlp_spsc_abort(&tx->lane); }

/* Push one record, after a wait for room, as dlp_spsc_push does. */
DLPI_INLINE int dlp_mpsc_push(dlp_mpsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_mpsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_mpsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_push(tx, record) : r;
}

/* Give a lane that has records its turn. Returns DLP_OK, DLP_EMPTY (no lane has any), DLP_END (all
   lanes have ended), or DLP_ERR_CORRUPT. */
DLPI_INLINE int dlpi_mpsc_turn(dlp_mpsc_rx *rx) {
    if (DLPI_LIKELY(rx->left > 0 && rx->at->tail_seen != rx->at->head)) return DLP_OK;
    return dlpi_mpsc_find(rx);
}

/* Pop one record of any producer. Producers have turns of `quantum` records.
   producer: gets the number of the record's producer; may be NULL.
   Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT, or DLP_END: all producers have closed, and no record
   is left. Wait-free, except for a wake-up. */
DLPI_INLINE int dlp_mpsc_try_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK)) return r;
    rx->left--;
    if (producer) *producer = rx->turn;
    return dlp_spsc_try_pop(rx->at, record);
}

/* Lend up to n records of one producer until dlp_mpsc_release. Returns as dlp_spsc_peek.
   producer: gets its number; may be NULL. */
static inline int64_t dlp_mpsc_peek(dlp_mpsc_rx *rx, uint64_t n, const void **records,
                                    uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (producer) *producer = rx->turn;
    if (DLPI_UNLIKELY(r != DLP_OK)) return r < 0 ? r : 0;
    return dlp_spsc_peek(rx->at, n < rx->left ? n : rx->left, records);
}

/* Give lent records back, as dlp_spsc_release does. */
static inline int dlp_mpsc_release(dlp_mpsc_rx *rx, uint64_t n) {
    int r = dlp_spsc_release(rx->at, n);
    if (r == DLP_OK) rx->left -= (uint32_t)n;
    return r;
}

/* Pop up to max records, of several producers if need be. Returns how many, 0 if all lanes are
   empty or have ended (dlp_mpsc_wait_rx tells which), or DLP_ERR_CORRUPT. */
static inline int64_t dlp_mpsc_try_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max) {
    unsigned char *to = (unsigned char *)records;
    uint64_t done = 0;
    while (done < max) {
        int r = dlpi_mpsc_turn(rx);
        if (r != DLP_OK) return done > 0 || r > 0 ? (int64_t)done : r;
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

/* Pop one record of any producer. Waits for it.
   producer: gets the number of the record's producer; may be NULL.
   Returns DLP_OK, DLP_TIMEOUT, DLP_ERR_CORRUPT, or DLP_END as dlp_mpsc_try_pop. */
DLPI_INLINE int dlp_mpsc_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer, int timeout_ms) {
    int r = dlp_mpsc_try_pop(rx, record, producer);
    if (DLPI_LIKELY(r != DLP_EMPTY)) return r;
    r = dlp_mpsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_pop(rx, record, producer) : r;
}
