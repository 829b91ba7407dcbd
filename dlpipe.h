/* dlpipe.h - v0.1.0 - data-loading pipelines for C11 - MIT licence - header-only, no dependencies

   >>use        DO THIS, THEN THAT
   In exactly one C file:   #define DLPIPE_IMPLEMENTATION
                            #include "dlpipe.h"
   everywhere else just include it. Link with -lpthread where libc wants it.

   >>contents
*/

#if defined(DLPIPE_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* asked for here, before the first system header; taken back at the end */
#define DLPI_ASKED_GNU_SOURCE
#endif

#ifndef DLPIPE_H
#define DLPIPE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 1
#define DLPIPE_VERSION_PATCH 0

/* DLPIPE_STATIC [impl and all TUs]: make every function static, for use inside one file. */
#ifdef DLPIPE_STATIC
#define DLPDEF static
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>errors     CODES AND ERROR RECORDS
   0 is OK, positive is flow control, negative is an error. */

#define DLP_CODES(X) \
    X(OK, 0, "ok", "") \
    X(FULL, 1, "queue is full", "take records out, or wait") \
    X(EMPTY, 2, "queue is empty", "put records in, or wait") \
    X(TIMEOUT, 3, "nothing came within the time-out", "call again, or look at dlp_pipe_explain") \
    X(END, 4, "no more batches", "close the pipe") \
    X(EPOCH_END, 5, "an epoch ended", "call next again for the next epoch") \
    X(STOPPED, 6, "the pipe was stopped", "close the pipe") \
    X(SKIP, 7, "this item is left out", "returned by a callback, see the error policies") \
    X(ERR_ARG, -1, "a parameter or desc field is out of range", "the message names it") \
    X(ERR_MEMORY, -2, "memory could not be had", "ask for fewer or smaller batches") \
    X(ERR_LIMIT, -3, "the plan is above a byte limit", "lower prefetch_factor or batch_size") \
    X(ERR_GRAPH, -4, "the stages do not form a pipeline", "link every stage once, in order") \
    X(ERR_STATE, -5, "a call came at the wrong time", "see the function's documentation") \
    X(ERR_HELD, -6, "max_held batches are held already", "release one, or raise max_held") \
    X(ERR_CALLBACK, -7, "a callback failed", "the message names stage, worker and item") \
    X(ERR_LENGTH, -8, "a callback wrote a wrong length", "the message names the item and field") \
    X(ERR_DEADLINE, -9, "a callback is past its deadline", "the message names the item") \
    X(ERR_BUSY, -10, "a callback is still running", "call close again when it has returned") \
    X(ERR_RESUME, -11, "a saved state does not fit", "the message names the field that differs") \
    X(ERR_CORRUPT, -12, "shared memory or a state is damaged", "do not use it") \
    X(ERR_SYSTEM, -13, "a system call failed", "the message has the call and errno") \
    X(ERR_DEVICE, -14, "the device backend failed", "the message has its words") \
    X(ERR_BUDGET, -15, "more items failed than max_skips allows", "mend the data or raise it") \
    X(ERR_UNSUPPORTED, -16, "not available on this system", "the message says what is missing")

enum {
#define DLPI_X(name, value, text, hint) DLP_##name = value,
    DLP_CODES(DLPI_X)
#undef DLPI_X
    DLP_CODES_END_ = 127
};

/* Special values. Zero always means the documented default. */
#define DLP_NONE (-1)    /* none of it */
#define DLP_FOREVER (-2) /* without end */
#define DLP_NOWAIT (-1)  /* for time-outs: do not wait */

#define DLP_MAX_FIELDS 16
#define DLP_MAX_DIMS 8
#define DLP_MAX_STAGES 16
#define DLP_MAX_WORKERS 1024 /* per stage */

/* What went wrong first, with its place. Strings are always terminated. Fields that do not apply
   are 0, worker -1. */
typedef struct dlp_error {
    int32_t code;       /* DLP_ERR_*, or 0 */
    int32_t errnum;     /* errno, or 0 */
    int32_t worker;     /* worker number in its stage, -1: none */
    int32_t has_item;   /* 1: index, epoch, position say which item */
    uint64_t index, epoch, position;
    char stage[32];     /* stage name, or "" */
    char field[48];     /* desc or dataset field at fault, or "" */
    char message[256];  /* what happened, in words; the user's own message where there is one */
} dlp_error;

/* Name ("DLP_ERR_ARG"), text and hint of a code; "unknown code" for others. Any thread. */
DLPDEF const char *dlp_code_name(int code);
DLPDEF const char *dlp_code_text(int code);
DLPDEF const char *dlp_code_hint(int code);

/* Write one line that says all an error record knows, ended by the hint. Returns the length that
   the whole line has, like snprintf. err, buf: borrowed. Any thread. */
DLPDEF int dlp_error_format(const dlp_error *err, char *buf, size_t size);

/* ---------------------------------------------------------------------------------------------
   >>atomics    THE ONE SHIM OVER THE COMPILER'S ATOMICS
   Here, before the queues, whose fast paths are inline in every file that includes this header.
   Each use carries a label and names its partner. A checker may define these before inclusion. */
#ifndef DLPI_LOAD_RLX
#define DLPI_LOAD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define DLPI_LOAD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define DLPI_STORE_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_SEQ(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_RLX(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DLPI_OR_SEQ(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_AND_SEQ(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Strong compare-and-swap; *e gets the value found on failure. */
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif

/* Keep the compiler from moving memory accesses across; no instruction. Only where the other side
   issues a heavy barrier (see dlpi_await), or for a crash to see stores in program order. */
#ifndef DLPI_KEEP_ORDER
#define DLPI_KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

#define DLPI_LINE 128u /* two cache lines: the adjacent-line prefetcher moves pairs */
#define DLPI_UNUSED(x) ((void)(x))
#define DLPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DLPI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define DLPI_INLINE static inline __attribute__((always_inline))

DLPI_INLINE void dlpi_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* A word of a record, whatever type the user sees there. */
typedef uint64_t __attribute__((may_alias)) dlpi_word;

/* ---------------------------------------------------------------------------------------------
   >>queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   A lane carries records of one size from one producer to one consumer; a bundle is a lane per
   producer with one consumer. Both live in memory that the caller gives, of DLP_QUEUE_ALIGN
   alignment, which may be a mapping shared by processes (shared = 1); in it are only offsets, never
   pointers. Who uses a queue attaches to it and gets a handle: an ordinary struct in memory of his
   own, used by one thread at a time. A successor (of a thread, or of a process that died) attaches
   again and goes on where the published counters are: records not yet published are lost with the
   producer, and records taken by the consumer since its counter was last published come again.

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
   DLP_ERR_CORRUPT, and no address is ever computed from them.
   DLPIPE_NO_FUTEX, DLPIPE_NO_MEMBARRIER [impl]: portable fall-backs. */

#define DLP_QUEUE_ALIGN 128          /* alignment of the memory of a queue */
#define DLP_QUEUE_MAX_RECORD 1048576 /* record bytes */
#define DLP_QUEUE_MAX_CAPACITY (UINT64_C(1) << 32)
#define DLP_MPSC_MAX_PRODUCERS 4096

/* A lane as it lies in memory, followed by its slots. Blocks of 128 bytes, one writer each. For
   looking; use the calls below. Counters run free and wrap at 2^64. */
typedef struct dlp_spsc {
    uint64_t magic;             /* written last by init; read-only from then on */
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity;          /* records, a power of two */
    uint64_t slots_offset;      /* from the lane's beginning */
    uint64_t total_bytes;
    unsigned char pad0[80];
    uint64_t tail;              /* records pushed; written by the producer */
    unsigned char pad1[120];
    uint64_t head;              /* records taken, published from time to time; by the consumer */
    unsigned char pad2[120];
    uint32_t producer_bell;     /* futex word: the producer sleeps */
    unsigned char pad3[124];
    uint32_t consumer_bell;     /* futex word: the consumer sleeps (a bundle has its own) */
    unsigned char pad4[124];
} dlp_spsc;

/* Producer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_tx {
    uint64_t tail;              /* next record's number */
    uint64_t head_seen;         /* the consumer's counter when last read */
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint32_t *bell;             /* of the consumer */
    uint64_t reserved;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields;   /* before sleeping; may be changed */
    unsigned char pad[184];     /* two handles side by side share no line */
} dlp_spsc_tx;

/* Consumer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_rx {
    uint64_t head;              /* next record's number */
    uint64_t tail_seen;         /* the producer's counter when last read */
    uint64_t published;         /* what lane->head says */
    uint64_t publish_every;
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint64_t peeked;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields;
    uint32_t slip, slip_most;   /* pauses before a look, see dlpi_spsc_look_rx */
    unsigned char pad[168];
} dlp_spsc_rx;

/* A bundle as it lies in memory, followed by ready words, owner words and lanes. */
typedef struct dlp_mpsc {
    uint64_t magic;
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity;          /* records of each lane */
    uint32_t producers, ready_words;
    uint64_t ready_offset, owners_offset, lanes_offset, lane_bytes, total_bytes;
    unsigned char pad0[48];
    uint32_t consumer_bell;
    unsigned char pad1[124];
} dlp_mpsc;

/* A producer's handle of a bundle: a lane's, and where to say that the lane is ready. */
typedef struct dlp_mpsc_tx {
    dlp_spsc_tx lane;
    uint64_t *ready;            /* NULL: 16 producers or fewer */
    uint64_t ready_bit;
    uint32_t *owner;
} dlp_mpsc_tx;

/* The consumer's handle of a bundle. */
typedef struct dlp_mpsc_rx {
    dlp_spsc_rx *at;            /* lane in turn */
    uint32_t left;              /* records it may still give in this turn */
    uint32_t quantum;           /* records of a turn: 64; may be changed, 1 or more */
    uint32_t turn;              /* its number */
    uint32_t producers, ready_words, word;
    uint64_t bits;              /* lanes of ready word `word` still to visit */
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
DLPDEF void dlpi_bell_ring(uint32_t *bell, uint32_t shared);
DLPDEF void dlpi_spsc_room_bell(dlp_spsc_rx *rx);
DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx);

/* ---- the calls on the fast path, inline in every file that includes this header ----

   Labelled atomics of a lane:
     label  where                   access          partner, and what it carries
     D1     slot words, producer    store relaxed   plain reads behind T2; one store, not torn
     T1     lane->tail, producer    store release   T2: the records below it are written
     T2     lane->tail, consumer    load acquire    T1
     H1     lane->head, consumer    store release   H2: the slots below it may be written again
     H2     lane->head, producer    load acquire    H1
     B1     a bell, waker           load relaxed    B3: ordered behind T1 or H1, see dlpi_await
     B2     a bell, waker           rmw seq_cst     B3: takes the sleeper bit, then wakes
     B3     a bell, sleeper         rmw seq_cst     B1, B2: before it looks again by T2 or H2
     M1     magic, init             store release   M2: the header is written
     M2     magic, attach           load acquire    M1
   Why full, empty and wrap are right:
   1 tail and head run free over 2^64 and only ever grow; tail - head, modulo 2^64, is the number of
     records in the ring, 0..capacity, whatever the counters' values. A capacity that is a power of
     two divides 2^64, so that a counter's low bits go on in step over the wrap.
   2 The producer alone writes tail and the slots in [tail, head + capacity); the consumer alone
     writes head.
   3 head_seen is an old head: head_seen <= head <= tail. tail - head_seen == capacity may be a
     false "full", never a false "room"; full is reported only after H2 has looked again.
   4 tail_seen likewise: empty is reported only after T2 has looked again.
   5 T1 -> T2: what the consumer reads in [head, tail_seen) was written before that tail.
   6 H1 -> H2: a slot that the producer writes again was read before that head.
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
    uint64_t head = DLPI_LOAD_ACQ(&tx->lane->head); /* H2 <- H1 */
    uint64_t used = tx->tail - head;
    if (DLPI_UNLIKELY(used > tx->capacity))
        return DLP_ERR_CORRUPT;
    tx->head_seen = head;
    return (int64_t)(tx->capacity - used);
}

/* Records that fit, as many as are known of if that is `want` at least. */
DLPI_INLINE int64_t dlpi_spsc_room(dlp_spsc_tx *tx, uint64_t want) {
    uint64_t room = tx->capacity - (tx->tail - tx->head_seen);
    return DLPI_LIKELY(room >= want) ? (int64_t)room : dlpi_spsc_look_tx(tx);
}

/* Publish n records that are written. One store, and one look at the bell. */
DLPI_INLINE void dlpi_spsc_publish_tx(dlp_spsc_tx *tx, uint64_t n) {
    tx->tail += n;
    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* T1 -> T2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->bell) != 0)) /* B1 <- B3 */
        dlpi_bell_ring(tx->bell, tx->shared);
}

/* Publish the consumer's counter now, which it else does after an eighth of the ring or when it
   finds the lane empty. For a consumer that stops for a while. Wait-free, but for waking. */
DLPI_INLINE void dlp_spsc_publish(dlp_spsc_rx *rx) {
    rx->published = rx->head;
    DLPI_STORE_REL(&rx->lane->head, rx->head); /* H1 -> H2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_bell) != 0)) /* B1 <- B3 */
        dlpi_spsc_room_bell(rx);
}

#define DLPI_SLIP_MOST 8u /* pauses, about 0.2 us */

/* Read the producer's counter again; publish ours if there is nothing. Returns how many records
   there are, or DLP_ERR_CORRUPT.
   Each look takes the line of tail from the producer, who pays for it at his next push. A consumer
   that is the faster one would look after every few records and slow both down; so while looks find
   some records, but less than an eighth of the ring, single pops let a few pauses more pass before
   the next look. One record at a time, as in a ping-pong, never slips. */
DLPI_INLINE int64_t dlpi_spsc_look_rx(dlp_spsc_rx *rx, uint32_t pauses) {
    for (; DLPI_UNLIKELY(pauses > 0); pauses--)
        dlpi_pause();
    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail); /* T2 <- T1 */
    uint64_t stock = tail - rx->head;
    if (DLPI_UNLIKELY(stock > rx->capacity))
        return DLP_ERR_CORRUPT;
    rx->tail_seen = tail;
    if (stock < 2)
        rx->slip = stock == 0 ? rx->slip / 2 : 0;
    else if (stock < rx->publish_every && rx->slip < rx->slip_most)
        rx->slip++;
    if (stock == 0 && rx->published != rx->head)
        dlp_spsc_publish(rx);
    return (int64_t)stock;
}

DLPI_INLINE int64_t dlpi_spsc_stock(dlp_spsc_rx *rx, uint64_t want) {
    uint64_t stock = rx->tail_seen - rx->head;
    if (DLPI_LIKELY(stock >= want))
        return (int64_t)stock;
    return dlpi_spsc_look_rx(rx, want == 1 ? rx->slip : 0);
}

/* Give n slots back. */
DLPI_INLINE void dlpi_spsc_take(dlp_spsc_rx *rx, uint64_t n) {
    rx->head += n;
    if (DLPI_UNLIKELY(rx->head - rx->published >= rx->publish_every))
        dlp_spsc_publish(rx);
}

/* Copy a record into its slot, word by word: the caller has often just written it field by field,
   and a wider load would wait until those stores have left the store buffer, behind all earlier
   records on their way to the other core. Where the compiler sees how large the caller's object
   is, only the sizes that fit remain, and it has nothing to warn about. */
DLPI_INLINE void dlpi_put_words(void *slot, const void *record, uint32_t words) {
    dlpi_word *to = (dlpi_word *)slot;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)record + i * 8, 8);
        DLPI_STORE_RLX(to + i, word); /* D1, behind it T1 */
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

/* Copy n records into the ring, or (out) from it, in one piece or two. */
static inline void dlpi_copy_in(unsigned char *slots, uint64_t capacity, uint64_t number,
                                uint32_t record_bytes, const void *records, uint64_t n) {
    uint64_t first = capacity - (number & (capacity - 1));
    if (first > n)
        first = n;
    memcpy(dlpi_slot(slots, capacity, number, record_bytes), records, first * record_bytes);
    if (first < n)
        memcpy(slots, (const unsigned char *)records + first * record_bytes,
               (n - first) * record_bytes);
}

static inline void dlpi_copy_out(const unsigned char *slots, uint64_t capacity, uint64_t number,
                                 uint32_t record_bytes, void *records, uint64_t n) {
    uint64_t at = number & (capacity - 1), first = capacity - at;
    if (first > n)
        first = n;
    memcpy(records, slots + at * record_bytes, first * record_bytes);
    if (first < n)
        memcpy((unsigned char *)records + first * record_bytes, slots, (n - first) * record_bytes);
}

/* Lend room for up to n records, one behind the other in memory. *records: where to write them,
   valid until commit or abort. Returns how many (fewer than n at the ring's end too), 0 if the lane
   is full, DLP_ERR_CORRUPT. Wait-free. */
static inline int64_t dlp_spsc_reserve(dlp_spsc_tx *tx, uint64_t n, void **records) {
    int64_t room = dlpi_spsc_room(tx, n);
    uint64_t at = tx->tail & (tx->capacity - 1);
    uint64_t most = tx->capacity - at < n ? tx->capacity - at : n;
    if (DLPI_UNLIKELY(room <= 0))
        return room;
    if ((uint64_t)room < most)
        most = (uint64_t)room;
    tx->reserved = most;
    *records = tx->slots + at * tx->record_bytes;
    return (int64_t)most;
}

/* Publish the first n of the records reserved; the others are given up. Returns DLP_OK,
   DLP_ERR_ARG if fewer were reserved. Wait-free, but for waking. */
static inline int dlp_spsc_commit(dlp_spsc_tx *tx, uint64_t n) {
    if (DLPI_UNLIKELY(n > tx->reserved))
        return DLP_ERR_ARG;
    tx->reserved = 0;
    if (n > 0)
        dlpi_spsc_publish_tx(tx, n);
    return DLP_OK;
}

/* Give up what was reserved. */
static inline void dlp_spsc_abort(dlp_spsc_tx *tx) {
    tx->reserved = 0;
}

/* Push a copy of one record. Returns DLP_OK, DLP_FULL, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_push(dlp_spsc_tx *tx, const void *record) {
    int64_t room = dlpi_spsc_room(tx, 1);
    if (DLPI_UNLIKELY(room <= 0))
        return room == 0 ? DLP_FULL : DLP_ERR_CORRUPT;
    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes), record,
                    tx->record_bytes);
    dlpi_spsc_publish_tx(tx, 1);
    return DLP_OK;
}

/* Push copies of up to n records. Returns how many, 0 if the lane is full, DLP_ERR_CORRUPT. One
   store publishes them all. Wait-free, but for waking. */
static inline int64_t dlp_spsc_try_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n) {
    int64_t room = dlpi_spsc_room(tx, n);
    if (DLPI_UNLIKELY(room <= 0 || n == 0))
        return n == 0 ? 0 : room;
    if ((uint64_t)room < n)
        n = (uint64_t)room;
    dlpi_copy_in(tx->slots, tx->capacity, tx->tail, tx->record_bytes, records, n);
    dlpi_spsc_publish_tx(tx, n);
    return (int64_t)n;
}

/* Lend up to n records, one behind the other in memory, until release. Returns how many (fewer
   than n at the ring's end too), 0 if the lane is empty, DLP_ERR_CORRUPT. The records lie in
   memory that the producer can still write: between processes that do not trust each other copy,
   check, use. Wait-free. */
static inline int64_t dlp_spsc_peek(dlp_spsc_rx *rx, uint64_t n, const void **records) {
    int64_t stock = dlpi_spsc_stock(rx, n);
    uint64_t at = rx->head & (rx->capacity - 1);
    uint64_t most = rx->capacity - at < n ? rx->capacity - at : n;
    if (DLPI_UNLIKELY(stock <= 0))
        return stock;
    if ((uint64_t)stock < most)
        most = (uint64_t)stock;
    rx->peeked = most;
    *records = rx->slots + at * rx->record_bytes;
    return (int64_t)most;
}

/* Give the first n of the peeked records back; the others are not taken. Returns DLP_OK,
   DLP_ERR_ARG if fewer were peeked. Wait-free, but for waking. */
static inline int dlp_spsc_release(dlp_spsc_rx *rx, uint64_t n) {
    if (DLPI_UNLIKELY(n > rx->peeked))
        return DLP_ERR_ARG;
    rx->peeked = 0;
    dlpi_spsc_take(rx, n);
    return DLP_OK;
}

/* Pop one record into *record. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_pop(dlp_spsc_rx *rx, void *record) {
    int64_t stock = dlpi_spsc_stock(rx, 1);
    if (DLPI_UNLIKELY(stock <= 0))
        return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head, rx->record_bytes),
                    rx->record_bytes);
    dlpi_spsc_take(rx, 1);
    return DLP_OK;
}

/* Pop up to max records. Returns how many, 0 if the lane is empty, DLP_ERR_CORRUPT. Wait-free, but
   for waking. */
static inline int64_t dlp_spsc_try_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max) {
    int64_t stock = dlpi_spsc_stock(rx, max);
    if (DLPI_UNLIKELY(stock <= 0 || max == 0))
        return max == 0 ? 0 : stock;
    if ((uint64_t)stock < max)
        max = (uint64_t)stock;
    dlpi_copy_out(rx->slots, rx->capacity, rx->head, rx->record_bytes, records, max);
    dlpi_spsc_take(rx, max);
    return (int64_t)max;
}

/* Push (pop) one record, waiting for room (for a record). Returns DLP_OK, DLP_TIMEOUT,
   DLP_ERR_CORRUPT. */
DLPI_INLINE int dlp_spsc_push(dlp_spsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_spsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL))
        return r;
    r = dlp_spsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_push(tx, record) : r;
}

DLPI_INLINE int dlp_spsc_pop(dlp_spsc_rx *rx, void *record, int timeout_ms) {
    int r = dlp_spsc_try_pop(rx, record);
    if (DLPI_LIKELY(r != DLP_EMPTY))
        return r;
    r = dlp_spsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_pop(rx, record) : r;
}

/* Bundles. Labelled atomics beyond those of the lanes:
     label  where                       access         partner
     R1     a ready word, producer      load relaxed   R3: the bit is set already, nothing to do
     R2     a ready word, producer      rmw seq_cst    R3: behind T1
     R3     a ready word, consumer      rmw seq_cst    R2: cleared before the lanes are drained
     O1     an owner word               rmw seq_cst    O1: one claimer wins
   Ready bits are hints that save the consumer from looking at idle lanes. R1 may see a bit that R3
   is just clearing while T1 is on its way, and the hint is then lost; therefore every 64th search
   looks at all lanes, and so does every search that would else report empty. Hence empty is
   reported only after T2 found each lane empty, and a lane waits at most 64 turns.
   Order is kept per producer, not among producers. No producer waits for another. Progress as for
   lanes; a search takes as many steps as there are producers, at most. */

DLPI_INLINE void dlpi_mpsc_say_ready(dlp_mpsc_tx *tx) {
    if (tx->ready && !(DLPI_LOAD_RLX(tx->ready) & tx->ready_bit)) /* R1 <- R3 */
        DLPI_OR_SEQ(tx->ready, tx->ready_bit);                    /* R2 -> R3 */
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

static inline void dlp_mpsc_abort(dlp_mpsc_tx *tx) {
    dlp_spsc_abort(&tx->lane);
}

DLPI_INLINE int dlp_mpsc_push(dlp_mpsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_mpsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL))
        return r;
    r = dlp_mpsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_push(tx, record) : r;
}

/* Have a lane with records in turn. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
DLPI_INLINE int dlpi_mpsc_turn(dlp_mpsc_rx *rx) {
    if (DLPI_LIKELY(rx->left > 0 && rx->at->tail_seen != rx->at->head))
        return DLP_OK;
    return dlpi_mpsc_find(rx);
}

/* Pop one record of some producer, in turns of `quantum` records. *producer (may be NULL): whose.
   Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for waking. */
DLPI_INLINE int dlp_mpsc_try_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK))
        return r;
    rx->left--;
    if (producer)
        *producer = rx->turn;
    return dlp_spsc_try_pop(rx->at, record);
}

/* Lend up to n records of one producer until dlp_mpsc_release. As dlp_spsc_peek. */
static inline int64_t dlp_mpsc_peek(dlp_mpsc_rx *rx, uint64_t n, const void **records,
                                    uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK))
        return r == DLP_EMPTY ? 0 : r;
    if (producer)
        *producer = rx->turn;
    return dlp_spsc_peek(rx->at, n < rx->left ? n : rx->left, records);
}

static inline int dlp_mpsc_release(dlp_mpsc_rx *rx, uint64_t n) {
    int r = dlp_spsc_release(rx->at, n);
    if (r == DLP_OK)
        rx->left -= (uint32_t)n;
    return r;
}

/* Pop up to max records, of several producers if need be. Returns how many, 0: empty;
   DLP_ERR_CORRUPT. */
static inline int64_t dlp_mpsc_try_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max) {
    unsigned char *to = (unsigned char *)records;
    uint64_t done = 0;
    while (done < max) {
        int r = dlpi_mpsc_turn(rx);
        if (r != DLP_OK)
            return done > 0 || r == DLP_EMPTY ? (int64_t)done : r;
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
    if (DLPI_LIKELY(r != DLP_EMPTY))
        return r;
    r = dlp_mpsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_pop(rx, record, producer) : r;
}

/* ---------------------------------------------------------------------------------------------
   >>order      HASHES, KEYED PERMUTATIONS
   ORDER-PUBLIC-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>dataset    FIELDS, DATASETS, ITEMS */

/* Element type: DLPack's type code and bits (https://dmlc.github.io/dlpack). */
typedef uint32_t dlp_dtype;
#define DLP_DTYPE(code, bits) ((uint32_t)(code) << 16 | (uint32_t)(bits))
#define DLP_U8 DLP_DTYPE(1, 8)
#define DLP_U16 DLP_DTYPE(1, 16)
#define DLP_U32 DLP_DTYPE(1, 32)
#define DLP_U64 DLP_DTYPE(1, 64)
#define DLP_I8 DLP_DTYPE(0, 8)
#define DLP_I16 DLP_DTYPE(0, 16)
#define DLP_I32 DLP_DTYPE(0, 32)
#define DLP_I64 DLP_DTYPE(0, 64)
#define DLP_F16 DLP_DTYPE(2, 16)
#define DLP_F32 DLP_DTYPE(2, 32)
#define DLP_F64 DLP_DTYPE(2, 64)
#define DLP_BF16 DLP_DTYPE(4, 16)
#define DLP_BOOL DLP_DTYPE(6, 8)

/* One array of an item. An item of a fixed-size field has shape[0..ndim-1]; ndim 0 is a scalar.
   Of a ragged field (ragged = 1) shape[0] is the most rows an item may have. */
typedef struct dlp_field {
    const char *name;                /* copied; required, unique, under 32 bytes */
    dlp_dtype dtype;                 /* 0: DLP_U8 */
    int32_t ndim;                    /* 0..DLP_MAX_DIMS-1 */
    int64_t shape[DLP_MAX_DIMS];     /* elements, each 1 or more */
    int32_t ragged;                  /* 1: an item's first dimension varies from 0 to shape[0] */
    int64_t max_per_batch;           /* ragged with an out-of-place collate: most rows (of dimension
                                        0, all items together) in a batch; 0: batch_size * shape[0] */
} dlp_field;

/* An item that a callback is to write or change. Valid during the call only. */
typedef struct dlp_item {
    uint64_t index;      /* dataset index */
    uint64_t epoch;
    uint64_t position;   /* place in the epoch's global order */
    uint32_t row;        /* row in its batch */
    uint32_t attempt;    /* 0, then 1.. for each retry */
    uint32_t n_fields;
    uint32_t worker;     /* worker number in its stage */
    void *worker_state;  /* what worker_init left */
    void **data;         /* [n_fields] where each field of this item is, 64-bit aligned at least */
    uint64_t *length;    /* [n_fields] ragged fields: rows written, to be set by fetch; others: leave */
    uint64_t seed;       /* the pipe's seed */
    void *internal;
} dlp_item;

/* A random number for augmenting this item, from (seed, epoch, position) alone: the same whatever
   worker runs it. salt tells several draws apart. Any thread. */
DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt);

/* Say why a callback fails; returns DLP_ERR_CALLBACK, to be returned by it. errnum: errno or 0;
   format: as printf's, cut at 255 bytes. Called inside the callback only. */
DLPDEF int dlp_item_fail(const dlp_item *item, int errnum, const char *format, ...);

/* Write the item. Called by many workers at once. Returns 0, DLP_SKIP to leave the item out, or any
   other value for failure (dlp_item_fail). */
typedef int (*dlp_item_fn)(void *user, dlp_item *item);

typedef struct dlp_dataset {
    uint64_t n_items;         /* 1..2^48 */
    const dlp_field *fields;  /* [n_fields] copied */
    uint32_t n_fields;        /* 1..DLP_MAX_FIELDS */
    uint32_t fills_rows;      /* 0: each row is zeroed before fetch. 1: fetch promises to write every byte
                                 of every fixed-size field, and nothing is zeroed first */
    dlp_item_fn fetch;
    void *user;               /* borrowed until close */
} dlp_dataset;

/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CALLER GETS */

typedef struct dlp_tensor {
    const char *name;
    void *data;                   /* 64-byte aligned; on the device after a transfer stage */
    uint64_t bytes;               /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS];  /* [count, item shape...], or as a collate made it */
    const uint64_t *lengths;      /* ragged: [count] rows of each item, else NULL; host memory */
    const uint64_t *offsets;      /* packed: [count + 1] where each item begins, else NULL; host memory */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch lent to the caller until released. Read its fields; do not change them (data may be
   written, it is the caller's until release). */
typedef struct dlp_batch {
    uint64_t sequence;       /* 0.. over the life of the pipe, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;       /* first row's place in the epoch's global order */
    uint64_t in_epoch;       /* number of this batch in its epoch */
    uint32_t count;          /* rows */
    uint32_t valid_count;    /* rows with valid[] = 1 */
    uint32_t flags;          /* DLP_BATCH_LAST */
    uint32_t n_fields;
    const dlp_tensor *fields;    /* [n_fields] */
    const uint64_t *index;       /* [count] dataset index of each row */
    const uint8_t *valid;        /* [count] 0: padding, or left out by DLP_ON_ERROR_SHORT */
    void *internal;
} dlp_batch;

/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* Everything up to some batch is consumed: save it anywhere, give it back as .resume. The same bytes
   on every rank. Versioned and checksummed; opaque. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;

/* ---------------------------------------------------------------------------------------------
   >>samplers   WHICH ITEMS, IN WHICH ORDER */

enum {
    DLP_ORDER_SEQUENTIAL = 0,
    DLP_ORDER_SHUFFLED,     /* a keyed permutation of the epoch: each index once */
    DLP_ORDER_REPLACEMENT,  /* uniform with replacement */
    DLP_ORDER_WEIGHTED,     /* with replacement, by integer weights */
    DLP_ORDER_FUNCTION,     /* the user's pure function of (epoch, position) */
    DLP_ORDER_BATCHES       /* the user's batch sampler */
};

enum {
    DLP_LAST_SHORT = 0, /* the last batch of an epoch may be short */
    DLP_LAST_DROP,      /* ... is dropped */
    DLP_LAST_PAD        /* ... is filled from the epoch's beginning; valid[] is 0 there */
};

#define DLP_SAMPLER_STATE_BYTES 128

/* The user's own batch sampler. Called by one thread at a time. */
typedef struct dlp_batch_sampler {
    /* Fill index[0..max-1] with the next batch of this epoch (global: all ranks see the same list).
       Returns the number of indices (1..max), 0 at the epoch's end, negative for failure. */
    int64_t (*next)(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
    /* Begin an epoch. May be NULL. Returns 0, or negative for failure. */
    int (*begin)(void *user, uint64_t epoch);
    /* Save all that the sampler needs to go on (at most DLP_SAMPLER_STATE_BYTES, returned as length),
       and take it back. Both or neither; with neither, resume replays the epoch's batches. */
    int (*save)(void *user, void *bytes);
    int (*restore)(void *user, const void *bytes, size_t n);
    void *user;
} dlp_batch_sampler;

typedef struct dlp_sampler_desc {
    int32_t order;             /* DLP_ORDER_* */
    int32_t threaded;          /* 0: inline in the caller's next/release; 1: a thread of its own */
    uint64_t seed;             /* any value */
    uint64_t samples_per_epoch;/* REPLACEMENT, WEIGHTED, FUNCTION: draws per epoch; 0: the number of items */
    const uint64_t *subset;    /* NULL: all items; else the order runs over subset[0..n_subset-1]; borrowed until close */
    uint64_t n_subset;
    const uint64_t *weights;   /* WEIGHTED: [items or n_subset] integer weights, sum 1..2^63; copied at start */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position); /* FUNCTION: index of a position; pure; any thread */
    void *function_user;
    uint64_t function_id;      /* FUNCTION, BATCHES: the user's number for this order, part of a state's fingerprint */
    dlp_batch_sampler batches; /* BATCHES */
    uint32_t rank, world_size; /* 0, 0: one rank */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
} dlp_sampler_desc;

typedef struct dlp_repeat_desc {
    int64_t epochs;            /* 0: one; DLP_FOREVER */
    int32_t epoch_end;         /* 1: next returns DLP_EPOCH_END once after each epoch's last batch */
} dlp_repeat_desc;

/* ---------------------------------------------------------------------------------------------
   >>stages     WHO DOES THE WORK */

enum {
    DLP_ON_ERROR_RAISE = 0, /* next returns the error when it reaches the batch */
    DLP_ON_ERROR_REPLACE,   /* another item takes the row, chosen by (seed, epoch, position, k) alone */
    DLP_ON_ERROR_SHORT      /* the row is left out: zero bytes, valid[] = 0 */
};

enum {
    DLP_DISPATCH_CLAIM = 0, /* workers claim runs of items by compare-and-swap */
    DLP_DISPATCH_LANES      /* items are dealt to the worker with the least queued and outstanding work */
};

enum { DLP_PLACE_THREADS = 0, DLP_PLACE_PROCESSES = 1 /* dlpipe_shm.h */ };

/* How the workers of a stage run; the same part in each stage's desc. */
typedef struct dlp_workers_desc {
    int32_t num_workers;      /* 0: inline in the caller's next; at most DLP_MAX_WORKERS */
    int32_t placement;        /* DLP_PLACE_* */
    int32_t dispatch;         /* DLP_DISPATCH_* */
    int32_t on_error;         /* DLP_ON_ERROR_* */
    int32_t retries;          /* more tries of a failed item; 0..100 */
    int32_t retry_backoff_ms; /* wait before the first retry, doubled each time to at most 64 times; 0: none */
    int64_t max_skips;        /* items that may be replaced or left out before DLP_ERR_BUDGET; 0: no limit; DLP_NONE: none */
    int32_t deadline_ms;      /* 0: none; a callback that takes longer makes next return DLP_ERR_DEADLINE */
    int32_t idempotent;       /* a stage that changes a cell may be run on it again after a failure */
    int (*worker_init)(void *user, int worker, void **state); /* in the worker, before its first item; 0 or failure */
    void (*worker_exit)(void *user, int worker, void *state); /* in the worker, after its last item */
    void *worker_user;        /* borrowed until close */
    const int32_t *affinity;  /* [n_affinity] CPU of worker i is affinity[i % n_affinity]; copied */
    int32_t n_affinity;
    uint64_t stack_bytes;     /* 0: the system's */
    const char *name;         /* stage name, copied; NULL: "fetch", "batch", ...; at most 11 bytes show in thread names */
} dlp_workers_desc;

typedef struct dlp_fetch_desc {
    const dlp_dataset *dataset; /* copied */
    dlp_workers_desc workers;
} dlp_fetch_desc;

/* What a collate sees. Valid during the call only. */
typedef struct dlp_collate {
    uint64_t sequence, epoch, position;
    uint32_t count;
    uint32_t worker;
    void *worker_state;
    const uint64_t *index;      /* [count] */
    const uint8_t *valid;       /* [count] */
    uint32_t n_in, n_out;
    const struct dlp_collate_in {
        const dlp_field *field;
        const void *data;       /* row i is at data + i * stride */
        uint64_t stride;        /* bytes */
        const uint64_t *lengths;/* ragged: [count], else NULL */
    } *in;
    struct dlp_collate_out {
        const dlp_field *field;
        void *data;
        uint64_t capacity;      /* bytes */
        int32_t ndim;           /* to be set, with shape; preset to the field's [count, shape...] */
        int64_t shape[DLP_MAX_DIMS];
        uint64_t *lengths;      /* [count], preset to zero */
        uint64_t *offsets;      /* [count + 1]; a collate that packs sets has_offsets */
        int32_t has_offsets;
    } *out;
    void *internal;
} dlp_collate;

typedef int (*dlp_collate_fn)(void *user, dlp_collate *c);
/* Built-in collates. pad: ragged fields become [count, longest in the batch, ...], zeros behind the
   shorter. pack: [rows of all items, ...] with offsets. Fixed fields are copied as they are. */
DLPDEF int dlp_collate_pad(void *user, dlp_collate *c);
DLPDEF int dlp_collate_pack(void *user, dlp_collate *c);
/* As dlp_item_fail, for a collate. */
DLPDEF int dlp_collate_fail(const dlp_collate *c, int errnum, const char *format, ...);

typedef struct dlp_batch_desc {
    uint32_t batch_size;        /* rows of the global batch (all ranks together); required, 1..2^20 */
    int32_t last;               /* DLP_LAST_* */
    dlp_collate_fn collate;     /* NULL: rows are written in place, nothing is copied */
    void *collate_user;
    const dlp_field *out_fields;/* with a collate: fields of the batch, [n_out_fields]; NULL: the dataset's; copied */
    uint32_t n_out_fields;
    int32_t batch_workers;      /* 0: without a collate none (the last item worker closes the batch), with one
                                   prefetch_factor of them (inline if items are inline); DLP_NONE: inline */
    dlp_workers_desc workers;   /* num_workers is set from batch_workers */
} dlp_batch_desc;

/* A 1:1 stage of the user's. Give item (before the assembler) or batch (after it). Cells are changed in place. */
typedef struct dlp_map_desc {
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    void *user;
    dlp_workers_desc workers;
} dlp_map_desc;

/* A device, as the transfer stage sees it. Called by the stage's one thread, but for close and what says otherwise.
   Functions return 0 or failure. dlp_device_host is a backend that copies to host memory. */
typedef struct dlp_device {
    const char *name;
    int (*open)(void *user);
    void (*close)(void *user);
    int (*register_memory)(void *user, void *mem, uint64_t bytes);   /* may be NULL: copies are pageable */
    void (*unregister_memory)(void *user, void *mem, uint64_t bytes);
    int (*alloc)(void *user, uint64_t bytes, void **dev);
    void (*free)(void *user, void *dev);
    int (*copy)(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer); /* begin a copy */
    int (*record)(void *user, uint32_t buffer);  /* an event behind the copies of this buffer */
    int (*done)(void *user, uint32_t buffer);    /* 1: event passed, 0: not yet, negative: failure */
    void *user;
} dlp_device;
DLPDEF const dlp_device *dlp_device_host(void);

typedef struct dlp_transfer_desc {
    const dlp_device *device;  /* copied; NULL: dlp_device_host() */
    int32_t device_buffers;    /* 0: max_held + 1; max_held + 1..64 */
    int32_t threaded;          /* 0: inline; 1: a thread */
} dlp_transfer_desc;

/* ---------------------------------------------------------------------------------------------
   >>pipe       WIRING, RUNNING */

typedef struct dlp_pipe dlp_pipe;
typedef int32_t dlp_stage; /* a stage of a pipe; negative: DLP_ERR_*, see dlp_pipe_error */

/* A byte limit that several pipes share; zero used before the first. */
typedef struct dlp_budget {
    uint64_t limit_bytes;
    uint64_t used_bytes;       /* kept by dlpipe */
} dlp_budget;

typedef struct dlp_pipe_desc {
    int32_t prefetch_factor;   /* batches between sampler and next; 0: 2 (1 when all is inline); at most 4096 */
    int32_t max_held;          /* batches the caller may hold at once; 0: 1; at most 256 */
    int32_t unordered;         /* 1: batches come in the order of completion */
    int32_t close_timeout_ms;  /* 0: 5000; DLP_NOWAIT; DLP_FOREVER: wait for running callbacks */
    uint64_t limit_bytes;      /* 0: none; the plan must fit */
    dlp_budget *budget;        /* NULL: none; borrowed until close */
    uint32_t trace_bytes;      /* trace ring of each worker; 0: 4096; at most 64 MiB */
    int32_t no_memfd;          /* 1: anonymous memory, cannot be observed from outside */
    const dlp_state *resume;   /* NULL: from the beginning; copied */
    void (*log)(void *user, const char *message); /* warnings; NULL: kept for dlp_pipe_warning only */
    void *log_user;
    const char *name;          /* copied; for people */
} dlp_pipe_desc;

DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err);
DLPDEF dlp_stage dlp_pipe_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_repeat(dlp_pipe *p, const dlp_repeat_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_map(dlp_pipe *p, const dlp_map_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_batch(dlp_pipe *p, const dlp_batch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc);
DLPDEF int dlp_pipe_link(dlp_pipe *p, dlp_stage from, dlp_stage to);

/* One line of a memory plan. */
typedef struct dlp_plan_line {
    char what[48];
    uint64_t count, bytes_each, bytes;
} dlp_plan_line;
typedef struct dlp_plan {
    uint64_t total_bytes, limit_bytes;
    uint64_t slots;              /* prefetch_factor + max_held */
    uint64_t slot_bytes;         /* one batch with its per-row records */
    uint32_t n_lines;
    dlp_plan_line lines[32];
} dlp_plan;
DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out);
DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size);

DLPDEF int dlp_pipe_start(dlp_pipe *p);
DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out, int timeout_ms);
DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch);
DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p);
DLPDEF void dlp_pipe_stop(dlp_pipe *p);
DLPDEF int dlp_pipe_close(dlp_pipe *p);
DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p);
DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i); /* i-th warning, NULL behind the last */
DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out);
DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p); /* -1: not known */

/* ---------------------------------------------------------------------------------------------
   >>loader     ALL IN ONE CALL */

typedef struct dlp_loader_desc {
    dlp_dataset dataset;         /* required */
    uint32_t batch_size;         /* required; global batch */
    int32_t num_workers;         /* item workers; 0: inline */
    int32_t shuffle;             /* 1: DLP_ORDER_SHUFFLED; same as sampler.order */
    int32_t drop_last;           /* 1: DLP_LAST_DROP; same as last */
    int32_t last;                /* DLP_LAST_* */
    int64_t epochs;              /* 0: one; DLP_FOREVER */
    int32_t epoch_end;           /* 1: next returns DLP_EPOCH_END between epochs */
    uint64_t seed;               /* same as sampler.seed */
    dlp_sampler_desc sampler;
    dlp_workers_desc workers;    /* num_workers is set from above */
    dlp_collate_fn collate;
    void *collate_user;
    const dlp_field *out_fields;
    uint32_t n_out_fields;
    int32_t batch_workers;
    const dlp_device *device;    /* not NULL: a transfer stage on this device */
    int32_t device_buffers;
    int32_t transfer_threaded;
    dlp_pipe_desc pipe;
} dlp_loader_desc;

/* Open and start the economic topology. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>stats      COUNTERS, TRACE, PICTURES, WORDS */

enum { DLP_WORKER_IDLE = 0, DLP_WORKER_STARTING, DLP_WORKER_BUSY, DLP_WORKER_STARVED, DLP_WORKER_BLOCKED, DLP_WORKER_EXITED };

typedef struct dlp_worker_stats {
    int32_t stage, worker;      /* stage as added; worker in its stage */
    int32_t state;              /* DLP_WORKER_* */
    int32_t tid;                /* for display */
    uint64_t items;             /* items done (batches for batch stages) */
    uint64_t bytes;
    uint64_t busy_ns;           /* in callbacks */
    uint64_t starved_ns;        /* waiting for input */
    uint64_t blocked_ns;        /* waiting for a free cell behind it */
    uint64_t cpu_ns;            /* of its thread, 0 if not known */
    uint64_t current_index;     /* item in work, UINT64_MAX: none */
    uint64_t current_age_ns;
    uint64_t queued;            /* tickets in its lanes */
} dlp_worker_stats;

typedef struct dlp_stage_stats {
    char name[32];
    int32_t kind;               /* DLP_STAGE_* */
    int32_t workers;            /* 0: inline */
    int32_t unit_is_batch;      /* 1: items count batches */
    uint64_t items, bytes, retried, replaced, left_out;
    uint64_t busy_ns, starved_ns, blocked_ns, cpu_ns;   /* summed over workers */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns;            /* time of one item, 0: not known yet */
    uint64_t ready;             /* items (batches) waiting before it */
} dlp_stage_stats;

enum { DLP_STAGE_SAMPLER = 1, DLP_STAGE_REPEAT, DLP_STAGE_FETCH, DLP_STAGE_MAP_ITEM, DLP_STAGE_BATCH, DLP_STAGE_MAP_BATCH, DLP_STAGE_TRANSFER };

typedef struct dlp_stats {
    uint64_t elapsed_ns;        /* since start */
    uint64_t batches, items;    /* delivered */
    uint64_t bytes;             /* of fields delivered */
    uint64_t wait_ns;           /* the caller waited in next */
    uint64_t step_ns;           /* the caller held batches, or was elsewhere, between next and next */
    uint64_t step_p50_ns, step_p95_ns;
    uint64_t first_batch_ns;    /* from start to the first batch */
    uint64_t epoch;             /* of the batch delivered last */
    uint32_t batch_size;        /* rows of this rank's full batch */
    uint32_t prefetch_factor, max_held;
    uint32_t in_flight;         /* batches between sampler and next */
    uint32_t ready;             /* ... of them complete */
    uint32_t held;
    uint32_t slots;
    uint32_t cpus;              /* that the process may use */
    uint32_t n_stages, n_workers;
    uint64_t plan_bytes;
    dlp_stage_stats stages[DLP_MAX_STAGES];
} dlp_stats;

DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out);
DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out); /* i < n_workers */

/* An item that was replaced or left out. */
typedef struct dlp_skip {
    uint64_t epoch, position, index, new_index; /* new_index UINT64_MAX: left out */
    int32_t code, errnum, stage, worker;
} dlp_skip;
/* Copy the newest skips (at most max, of a ring of 64); *total: how many there were. Returns the number copied. */
DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total);

/* Say in words which stage limits throughput and what to change. Returns the length, as snprintf. */
DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size);
DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size);

enum { DLP_TRACE_WORK = 1, DLP_TRACE_WAIT, DLP_TRACE_STEP, DLP_TRACE_EPOCH, DLP_TRACE_STARVED, DLP_TRACE_BLOCKED };

/* A stretch of time in a lane (a worker, or the trainer). Stretches of a lane do not overlap. */
typedef struct dlp_trace_event {
    uint64_t begin_ns, end_ns;  /* since start */
    uint64_t sequence;          /* batch */
    uint32_t epoch;
    uint16_t kind;              /* DLP_TRACE_* */
    uint16_t items;             /* done in it, of one batch */
} dlp_trace_event;

/* Lane 0 is the trainer; the others are workers in the order of stages. Copies the newest events, oldest first;
   returns their number, or negative. name: [32], may be NULL. */
DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p);
DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name);
/* Write the trace as Chrome trace-event JSON (for Perfetto), or as one self-contained SVG. */
DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path);
DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_H */

/* =============================================================================================
   IMPLEMENTATION */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#define DLPIPE_IMPLEMENTATION_DONE

/* ---------------------------------------------------------------------------------------------
   >>impl-platform   SYSTEM HEADERS, SWITCHES */

#include <errno.h>
#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "dlpipe: include dlpipe.h with DLPIPE_IMPLEMENTATION before any system header, or compile that file with -D_GNU_SOURCE"
#endif
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* DLPIPE_NO_FUTEX, DLPIPE_NO_MEMBARRIER, DLPIPE_NO_MEMFD [impl]: use the portable fall-back. */
#if !defined(__linux__)
#ifndef DLPIPE_NO_FUTEX
#define DLPIPE_NO_FUTEX
#endif
#ifndef DLPIPE_NO_MEMBARRIER
#define DLPIPE_NO_MEMBARRIER
#endif
#ifndef DLPIPE_NO_MEMFD
#define DLPIPE_NO_MEMFD
#endif
#endif

/* ---------------------------------------------------------------------------------------------
   >>impl-clock      TIME */

static inline uint64_t dlpi_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-errors     CODES AND ERROR RECORDS
   IMPL-ERRORS-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   Futexes and the heavy barrier first, then lanes, then bundles. */

#define DLPI_SLEEP_MAX_NS 100000000u /* every sleep ends by then: a waker can die before it wakes */

/* Futex words are plain uint32_t. The waker changes the word before it wakes, so that a sleeper
   that has not slept yet sees another value than it expects. */
#ifndef DLPIPE_NO_FUTEX
/* The kernel's numbers (futex(2)), so that no kernel header is needed. */
enum { DLPI_FUTEX_WAIT_BITSET = 9, DLPI_FUTEX_WAKE_BITSET = 10, DLPI_FUTEX_PRIVATE = 128 };

static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    uint64_t until = dlpi_now_ns() + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
    struct timespec t;
    t.tv_sec = (time_t)(until / 1000000000u);
    t.tv_nsec = (long)(until % 1000000000u);
    int op = DLPI_FUTEX_WAIT_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    long r = syscall(SYS_futex, word, op, expect, &t, NULL, bits);
    int timed_out = r != 0 && errno == ETIMEDOUT;
    errno = saved;
    return timed_out;
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    int op = DLPI_FUTEX_WAKE_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    (void)syscall(SYS_futex, word, op, n, NULL, NULL, bits);
    errno = saved;
}

#else /* DLPIPE_NO_FUTEX */

/* A parking lot: threads that wait stand in a list of their word's bucket, each with a condition
   variable on its stack. Other processes cannot see it: they look again after short sleeps. */
#define DLPI_PARK_BUCKETS 64u

typedef struct dlpi_parked {
    struct dlpi_parked *next;
    uint32_t *word;
    uint32_t bits;
    int woken;
    pthread_cond_t cond;
} dlpi_parked;

static struct {
    pthread_mutex_t lock;
    dlpi_parked *first;
} dlpi_park_lot[DLPI_PARK_BUCKETS];
static pthread_once_t dlpi_park_once = PTHREAD_ONCE_INIT;

static void dlpi_park_begin(void) {
    for (uint32_t i = 0; i < DLPI_PARK_BUCKETS; i++)
        pthread_mutex_init(&dlpi_park_lot[i].lock, NULL);
}

static uint32_t dlpi_park_bucket(const uint32_t *word) {
    return (uint32_t)(((uintptr_t)word * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

static int dlpi_nap(const uint32_t *word, uint32_t expect, uint64_t timeout_ns) {
    uint64_t begin = dlpi_now_ns(), nap = 50000;
    while (DLPI_LOAD_SEQ(word) == expect) { /* W1, any change of the word */
        uint64_t gone = dlpi_now_ns() - begin;
        if (gone >= timeout_ns)
            return 1;
        if (nap > timeout_ns - gone)
            nap = timeout_ns - gone;
        struct timespec t = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
        nanosleep(&t, NULL);
        if (nap < 1000000)
            nap *= 2;
    }
    return 0;
}

static int dlpi_park(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns) {
    pthread_mutex_t *lock = &dlpi_park_lot[dlpi_park_bucket(word)].lock;
    dlpi_parked **list = &dlpi_park_lot[dlpi_park_bucket(word)].first;
    dlpi_parked me = {NULL, word, bits, 0, PTHREAD_COND_INITIALIZER};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t at = (uint64_t)t.tv_nsec +
                  (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
    t.tv_sec += (time_t)(at / 1000000000u);
    t.tv_nsec = (long)(at % 1000000000u);
    int timed_out = 0;
    pthread_mutex_lock(lock);
    if (DLPI_LOAD_SEQ(word) == expect) { /* W1, under the waker's lock */
        me.next = *list;
        *list = &me;
        while (!me.woken && !timed_out)
            timed_out = pthread_cond_timedwait(&me.cond, lock, &t) == ETIMEDOUT;
        if (!me.woken) {
            while (*list != &me)
                list = &(*list)->next;
            *list = me.next;
        }
        timed_out = !me.woken;
    }
    pthread_mutex_unlock(lock);
    pthread_cond_destroy(&me.cond);
    return timed_out;
}

static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    if (shared)
        return dlpi_nap(word, expect, timeout_ns);
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    return dlpi_park(word, expect, bits, timeout_ns);
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    if (shared)
        return;
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    uint32_t bucket = dlpi_park_bucket(word);
    pthread_mutex_lock(&dlpi_park_lot[bucket].lock);
    dlpi_parked **at = &dlpi_park_lot[bucket].first;
    while (*at && n > 0) {
        dlpi_parked *sleeper = *at;
        if (sleeper->word == word && (sleeper->bits & bits)) {
            *at = sleeper->next;
            sleeper->woken = 1;
            pthread_cond_signal(&sleeper->cond);
            n--;
        } else {
            at = &sleeper->next;
        }
    }
    pthread_mutex_unlock(&dlpi_park_lot[bucket].lock);
}
#endif /* DLPIPE_NO_FUTEX */

#if defined(__linux__)
/* Read a small file into buf, terminated. Returns its length, or -1. */
static int dlpi_read_small(const char *path, char *buf, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, buf, size - 1);
    close(fd);
    if (n < 0)
        return -1;
    buf[n] = 0;
    return (int)n;
}

/* Cores that the cgroup v2 quotas of this process and of its parents allow, rounded up. */
static int dlpi_cgroup_cpus(int most) {
    char text[1024], path[1200];
    if (dlpi_read_small("/proc/self/cgroup", text, sizeof text) < 0)
        return most;
    char *own = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!own)
        return most;
    own = strchr(own, '/');
    if (!own)
        return most;
    own[strcspn(own, "\n")] = 0;
    for (;;) {
        char quota[64];
        unsigned long long max, period;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", own);
        if (dlpi_read_small(path, quota, sizeof quota) > 0 &&
            sscanf(quota, "%llu %llu", &max, &period) == 2 && period > 0) {
            unsigned long long cpus = (max + period - 1) / period;
            if (cpus < (unsigned long long)most)
                most = cpus > 0 ? (int)cpus : 1;
        }
        char *slash = strrchr(own, '/');
        if (!slash)
            return most;
        *slash = 0;
    }
}
#endif

/* Cores that this process may use: its affinity mask, and its cgroup's quota where it can be read.
   */
static int dlpi_cpu_count(void) {
#if defined(__linux__)
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return dlpi_cgroup_cpus(n > 0 ? n : 1);
#else
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
#endif
}

/* ---- the heavy barrier: makes every other participant's T1 or H1 visible, paid by who goes to
   sleep ---- */

#ifndef DLPIPE_NO_MEMBARRIER
/* The kernel's numbers (membarrier(2)). */
enum {
    DLPI_MB_GLOBAL = 1 << 1,
    DLPI_MB_REGISTER_GLOBAL = 1 << 2,
    DLPI_MB_PRIVATE = 1 << 3,
    DLPI_MB_REGISTER_PRIVATE = 1 << 4
};

static int dlpi_membarrier(int command) {
    int saved = errno;
    long r = syscall(SYS_membarrier, command, 0, 0);
    errno = saved;
    return r == 0;
}

/* Let this process take part. Returns 0 where the kernel or a filter refuses. */
static int dlpi_heavy_register(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_REGISTER_GLOBAL : DLPI_MB_REGISTER_PRIVATE);
}

static int dlpi_heavy_barrier(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_GLOBAL : DLPI_MB_PRIVATE);
}
#else
static int dlpi_heavy_register(int shared) {
    DLPI_UNUSED(shared);
    return 0;
}

static int dlpi_heavy_barrier(int shared) {
    DLPI_UNUSED(shared);
    return 0;
}
#endif

/* ---- bells: an event count for one sleeper ----
   A bell is a futex word. DLPI_BELL_SLEEPER: its owner sleeps or is about to. DLPI_BELL_RMW: some
   participant has no heavy barrier; it is set once and stays, and makes every waker come to
   dlpi_bell_ring, whose read-modify-write (B2) then is the order.
   Sleeper: B3 sets the bit; heavy barrier; looks again (T2 or H2); sleeps while the word is
   unchanged.
   Waker:   T1 or H1; B1.
   With the barrier: either B1 comes before it in the waker's program, and then so does T1, which
   the barrier makes visible to the sleeper's second look; or B1 comes after it and sees the bit.
   Without: B2 and B3 are one order. If B2 is later it sees the bit. If B3 is later it reads what B2
   wrote, or later, and the second look sees T1, which came before B2.
   A participant that sets DLPI_BELL_RMW while others run may miss a wake-up until they have seen
   the bit; so may anyone whose waker dies between T1 and B2. Both end with the sleep, within 100
   ms. */
#define DLPI_BELL_SLEEPER 1u
#define DLPI_BELL_RMW 2u

static void dlpi_bell_join(uint32_t *bell, int shared) {
    if (!dlpi_heavy_register(shared))
        DLPI_OR_SEQ(bell, DLPI_BELL_RMW); /* -> B1 */
}

DLPDEF void dlpi_bell_ring(uint32_t *bell, uint32_t shared) {
    if (DLPI_AND_SEQ(bell, ~DLPI_BELL_SLEEPER) & DLPI_BELL_SLEEPER) /* B2 <- B3 */
        dlpi_futex_wake(bell, 1, ~0u, (int)shared);
}

/* Wake a producer that sleeps on a full lane, once half of it is free. */
DLPDEF void dlpi_spsc_room_bell(dlp_spsc_rx *rx) {
    uint32_t *bell = &rx->lane->producer_bell;
    if (!(DLPI_OR_SEQ(bell, 0u) & DLPI_BELL_SLEEPER)) /* B2 <- B3 */
        return;
    uint64_t used = DLPI_LOAD_ACQ(&rx->lane->tail) - rx->head; /* T2 <- T1 */
    if (used <= rx->capacity / 2 || used > rx->capacity)
        dlpi_bell_ring(bell, rx->shared);
}

/* One who waits: on which bell, how patiently, and for what. */
typedef struct dlpi_waiter {
    uint32_t *bell;
    uint32_t shared, spin_ns, yields;
    int (*look)(void *handle); /* not 0: it has come, or an error has */
    void *handle;
} dlpi_waiter;

static int dlpi_await_awake(const dlpi_waiter *w, uint64_t begin, uint64_t until) {
    uint64_t end = until - begin < w->spin_ns ? until : begin + w->spin_ns;
    if (w->spin_ns > 0) {
        for (uint32_t i = 1;; i++) {
            if (w->look(w->handle))
                return 1;
            if (i % 16 == 0 && dlpi_now_ns() >= end)
                break;
            dlpi_pause();
        }
    }
    for (uint32_t i = 0; i < w->yields; i++) {
        if (w->look(w->handle))
            return 1;
        sched_yield();
    }
    return w->look(w->handle);
}

static int dlpi_await_asleep(const dlpi_waiter *w, uint64_t until) {
    for (;;) {
        uint32_t set = DLPI_OR_SEQ(w->bell, DLPI_BELL_SLEEPER); /* B3 -> B1, B2 */
        set |= DLPI_BELL_SLEEPER;
        if (!(set & DLPI_BELL_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
            DLPI_OR_SEQ(w->bell, DLPI_BELL_RMW); /* -> B1 */
            set |= DLPI_BELL_RMW;
        }
        int come = w->look(w->handle);
        uint64_t now = come ? 0 : dlpi_now_ns();
        if (come || now >= until) {
            DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER);
            return come ? DLP_OK : DLP_TIMEOUT;
        }
        uint64_t most = until - now < DLPI_SLEEP_MAX_NS ? until - now : DLPI_SLEEP_MAX_NS;
        dlpi_futex_wait(w->bell, set, ~0u, most, (int)w->shared);
        if (w->look(w->handle)) { /* before the bit is set again, which would ask for a wake-up */
            if (DLPI_LOAD_RLX(w->bell) & DLPI_BELL_SLEEPER) /* B3, own bit, if no waker took it */
                DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER);
            return DLP_OK;
        }
    }
}

/* Wait until look says so. Returns DLP_OK or DLP_TIMEOUT. */
static int dlpi_await(const dlpi_waiter *w, int timeout_ms) {
    if (w->look(w->handle))
        return DLP_OK;
    if (timeout_ms == DLP_NOWAIT)
        return DLP_TIMEOUT;
    uint64_t begin = dlpi_now_ns(), until = UINT64_MAX;
    if (timeout_ms > 0)
        until = begin + (uint64_t)timeout_ms * 1000000u;
    if (dlpi_await_awake(w, begin, until))
        return DLP_OK;
    return dlpi_await_asleep(w, until);
}

/* How patiently to wait where this many threads take part: on spare cores a spin about as long as a
   wake-up takes; else make way soon, but a few times before paying for sleep. */
static void dlpi_wait_policy(uint32_t peers, uint32_t *spin_ns, uint32_t *yields) {
    static uint32_t cpus;
    uint32_t n = DLPI_LOAD_RLX(&cpus); /* C1, any value read twice is the same */
    if (n == 0) {
        n = (uint32_t)dlpi_cpu_count();
        DLPI_STORE_RLX(&cpus, n); /* C1 */
    }
    *spin_ns = peers <= n ? 10000 : 1000;
    *yields = peers <= n ? 0 : 50;
}

/* ---- lanes: layout, attach, wait ---- */

#define DLPI_SPSC_MAGIC UINT64_C(0x31656e616c706c64) /* "dlplane1" */
#define DLPI_MPSC_MAGIC UINT64_C(0x316c646e62706c64) /* "dlpbndl1" */
#define DLPI_QUEUE_VERSION 1u
/* Sizes and places that sharers must agree on, in one number. */
#define DLPI_QUEUE_LAYOUT \
    ((uint32_t)(sizeof(dlp_spsc) << 16 ^ sizeof(dlp_mpsc) << 4 ^ DLPI_LINE ^ sizeof(size_t) << 28))

_Static_assert(sizeof(dlp_spsc) == 5 * DLPI_LINE, "lane header");
_Static_assert(offsetof(dlp_spsc, tail) == DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, head) == 2 * DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, producer_bell) == 3 * DLPI_LINE, "waiters' own block");
_Static_assert(offsetof(dlp_spsc, consumer_bell) == 4 * DLPI_LINE, "waiters' own block");
_Static_assert(sizeof(dlp_mpsc) == 2 * DLPI_LINE, "bundle header");
_Static_assert(offsetof(dlp_mpsc, consumer_bell) == DLPI_LINE, "waiter's own block");
_Static_assert(sizeof(dlp_spsc_tx) == 256 && sizeof(dlp_spsc_rx) == 256, "handles are padded");

static uint64_t dlpi_line_up(uint64_t bytes) {
    return (bytes + DLPI_LINE - 1) / DLPI_LINE * DLPI_LINE;
}

static int dlpi_queue_mem_ok(const void *mem) {
    return mem && (uintptr_t)mem % DLP_QUEUE_ALIGN == 0;
}

DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity) {
    if (record_bytes == 0 || record_bytes % 8 || record_bytes > DLP_QUEUE_MAX_RECORD ||
        capacity == 0 || (capacity & (capacity - 1)) || capacity > DLP_QUEUE_MAX_CAPACITY)
        return 0;
    return dlpi_line_up(sizeof(dlp_spsc) + record_bytes * capacity);
}

DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         int shared) {
    uint64_t need = dlp_spsc_bytes(record_bytes, capacity);
    if (!dlpi_queue_mem_ok(mem) || need == 0 || need > bytes || need > SIZE_MAX)
        return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    memset(lane, 0, sizeof *lane);
    lane->version = DLPI_QUEUE_VERSION;
    lane->layout = DLPI_QUEUE_LAYOUT;
    lane->record_bytes = record_bytes;
    lane->shared = shared != 0;
    lane->capacity = capacity;
    lane->slots_offset = sizeof(dlp_spsc);
    lane->total_bytes = need;
    DLPI_STORE_REL(&lane->magic, DLPI_SPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* The header as read once, checked against the bytes there are. */
static int dlpi_spsc_check(const dlp_spsc *lane, uint64_t bytes, dlp_spsc *copy) {
    if (bytes < sizeof *lane || DLPI_LOAD_ACQ(&lane->magic) != DLPI_SPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    copy->version = DLPI_LOAD_RLX(&lane->version); /* M3, six words that init wrote before M1 */
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
    copy->head = DLPI_LOAD_ACQ(&lane->head); /* H2 <- H1, before tail: head never passes tail */
    copy->tail = DLPI_LOAD_ACQ(&lane->tail); /* T2 <- T1 */
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem))
        return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(tx, 0, sizeof *tx);
    tx->tail = copy.tail;
    tx->head_seen = copy.head;
    tx->capacity = copy.capacity;
    tx->slots = (unsigned char *)mem + copy.slots_offset;
    tx->lane = lane;
    tx->bell = &lane->consumer_bell;
    tx->record_bytes = copy.record_bytes;
    tx->shared = copy.shared;
    dlpi_wait_policy(2, &tx->spin_ns, &tx->yields);
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!rx || !dlpi_queue_mem_ok(mem))
        return DLP_ERR_ARG;
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
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

static int dlpi_spsc_has_room(void *handle) {
    return dlpi_spsc_room((dlp_spsc_tx *)handle, 1) != 0;
}

static int dlpi_spsc_has_stock(void *handle) {
    return dlpi_spsc_stock((dlp_spsc_rx *)handle, 1) != 0;
}

DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms) {
    dlpi_waiter w = {&tx->lane->producer_bell, tx->shared, tx->spin_ns, tx->yields,
                     dlpi_spsc_has_room, tx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_room(tx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->lane->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_spsc_has_stock, rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_stock(rx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

/* What is left of timeout_ms since begin, as a time-out again. */
static int dlpi_time_left(int timeout_ms, uint64_t *begin) {
    if (timeout_ms <= 0)
        return timeout_ms;
    uint64_t now = dlpi_now_ns();
    if (*begin == 0)
        *begin = now;
    uint64_t gone = (now - *begin) / 1000000u;
    return gone < (uint64_t)timeout_ms ? timeout_ms - (int)gone : DLP_NOWAIT;
}

DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_spsc_try_push_burst(tx, from + done * tx->record_bytes, n - done);
        if (k < 0)
            return k;
        done += (uint64_t)k;
        if (done == n)
            return (int64_t)done;
        int r = dlp_spsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK)
            return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_spsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0)
        return n;
    int r = dlp_spsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK)
        return r < 0 ? r : 0;
    return dlp_spsc_try_pop_burst(rx, records, max);
}

/* ---- bundles ---- */

#define DLPI_MPSC_SCAN 16u      /* up to so many producers the consumer just looks at their tails */
#define DLPI_MPSC_QUANTUM 64u
#define DLPI_MPSC_SWEEP 64u     /* every so many searches all lanes are looked at */

/* Offsets and sizes of a bundle; all 0 if a parameter is out of range. */
static dlp_mpsc dlpi_mpsc_plan(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    dlp_mpsc plan;
    memset(&plan, 0, sizeof plan);
    uint64_t lane = dlp_spsc_bytes(record_bytes, capacity);
    if (lane == 0 || producers == 0 || producers > DLP_MPSC_MAX_PRODUCERS)
        return plan;
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
    plan.total_bytes = plan.lanes_offset + lane * producers;
    return plan;
}

DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    return dlpi_mpsc_plan(record_bytes, capacity, producers).total_bytes;
}

static void *dlpi_at(void *mem, uint64_t offset) {
    return (unsigned char *)mem + offset;
}

DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         uint32_t producers, int shared) {
    dlp_mpsc plan = dlpi_mpsc_plan(record_bytes, capacity, producers);
    if (!dlpi_queue_mem_ok(mem) || plan.total_bytes == 0 || plan.total_bytes > bytes ||
        plan.total_bytes > SIZE_MAX)
        return DLP_ERR_ARG;
    plan.shared = shared != 0;
    memset(mem, 0, (size_t)plan.lanes_offset);
    memcpy(mem, &plan, sizeof plan);
    for (uint32_t i = 0; i < producers; i++) {
        void *lane = dlpi_at(mem, plan.lanes_offset + i * plan.lane_bytes);
        int r = dlp_spsc_init(lane, plan.lane_bytes, record_bytes, capacity, shared);
        if (r != DLP_OK)
            return r;
    }
    DLPI_STORE_REL(&((dlp_mpsc *)mem)->magic, DLPI_MPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* Check what lies in memory against what its few free parameters make of it. */
static int dlpi_mpsc_check(const dlp_mpsc *bundle, uint64_t bytes, dlp_mpsc *copy) {
    if (bytes < sizeof *bundle || DLPI_LOAD_ACQ(&bundle->magic) != DLPI_MPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    dlp_mpsc found;
    memcpy(&found, bundle, offsetof(dlp_mpsc, pad0)); /* what init wrote before M1 */
    *copy = dlpi_mpsc_plan(found.record_bytes, found.capacity, found.producers);
    if (copy->total_bytes == 0 || copy->total_bytes > bytes || found.shared > 1)
        return DLP_ERR_CORRUPT;
    copy->shared = found.shared;
    copy->magic = found.magic;
    return memcmp(copy, &found, offsetof(dlp_mpsc, pad0)) == 0 ? DLP_OK : DLP_ERR_CORRUPT;
}

static int dlpi_mpsc_claim(uint32_t *owners, uint32_t producers) {
    for (uint32_t i = 0; i < producers; i++) {
        uint32_t free_owner = 0;
        if (DLPI_CAS_SEQ(&owners[i], &free_owner, 1u)) /* O1 */
            return (int)i;
    }
    return DLP_ERR_BUSY;
}

DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer) {
    dlp_mpsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem) || producer < DLP_NONE)
        return DLP_ERR_ARG;
    dlp_mpsc *bundle = (dlp_mpsc *)mem;
    if (dlpi_mpsc_check(bundle, bytes, &copy) != DLP_OK)
        return DLP_ERR_CORRUPT;
    uint32_t *owners = (uint32_t *)dlpi_at(mem, copy.owners_offset);
    if (producer >= (int)copy.producers)
        return DLP_ERR_ARG;
    int mine = producer == DLP_NONE ? dlpi_mpsc_claim(owners, copy.producers) : producer;
    if (mine < 0)
        return mine;
    DLPI_STORE_SEQ(&owners[mine], 1u); /* O1 */
    memset(tx, 0, sizeof *tx);
    uint64_t at = copy.lanes_offset + (uint64_t)mine * copy.lane_bytes;
    int r = dlp_spsc_attach_tx(&tx->lane, dlpi_at(mem, at), copy.lane_bytes);
    if (r != DLP_OK || tx->lane.record_bytes != copy.record_bytes)
        return DLP_ERR_CORRUPT;
    tx->lane.bell = &bundle->consumer_bell;
    tx->lane.shared = copy.shared;
    tx->owner = &owners[mine];
    if (copy.ready_words) {
        uint64_t word = copy.ready_offset + (uint64_t)(mine / 64) * DLPI_LINE;
        tx->ready = (uint64_t *)dlpi_at(mem, word);
        tx->ready_bit = UINT64_C(1) << (mine % 64);
    }
    dlpi_wait_policy(copy.producers + 1, &tx->lane.spin_ns, &tx->lane.yields);
    dlpi_bell_join(&bundle->consumer_bell, (int)copy.shared);
    return mine;
}

DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) {
    DLPI_STORE_SEQ(tx->owner, 0u); /* O1 */
}

DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes, void *mem,
                              uint64_t bytes) {
    dlp_mpsc copy;
    if (!rx || !lanes || !dlpi_queue_mem_ok(mem))
        return DLP_ERR_ARG;
    if (dlpi_mpsc_check((dlp_mpsc *)mem, bytes, &copy) != DLP_OK)
        return DLP_ERR_CORRUPT;
    if (n_lanes < copy.producers)
        return DLP_ERR_ARG;
    for (uint32_t i = 0; i < copy.producers; i++) {
        void *lane = dlpi_at(mem, copy.lanes_offset + i * copy.lane_bytes);
        int r = dlp_spsc_attach_rx(&lanes[i], lane, copy.lane_bytes);
        if (r != DLP_OK || lanes[i].record_bytes != copy.record_bytes)
            return DLP_ERR_CORRUPT;
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
    dlpi_bell_join(&rx->bundle->consumer_bell, (int)copy.shared);
    return DLP_OK;
}

/* Give lane i its turn if it has records. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
static int dlpi_mpsc_try_turn(dlp_mpsc_rx *rx, uint32_t i) {
    int64_t stock = dlpi_spsc_stock(&rx->lanes[i], 1);
    if (stock <= 0)
        return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    rx->at = &rx->lanes[i];
    rx->turn = i;
    rx->left = rx->quantum > 0 ? rx->quantum : 1;
    return DLP_OK;
}

/* Look at all lanes, from the one behind that in turn on. */
static int dlpi_mpsc_sweep(dlp_mpsc_rx *rx) {
    uint32_t i = rx->turn;
    for (uint32_t k = 0; k < rx->producers; k++) {
        i = i + 1 < rx->producers ? i + 1 : 0;
        int r = dlpi_mpsc_try_turn(rx, i);
        if (r != DLP_EMPTY)
            return r;
    }
    return DLP_EMPTY;
}

static uint64_t *dlpi_mpsc_ready_word(dlp_mpsc_rx *rx, uint32_t word) {
    return (uint64_t *)dlpi_at(rx->bundle, sizeof(dlp_mpsc) + word * (uint64_t)DLPI_LINE);
}

/* Go through the lanes whose bits are set. */
static int dlpi_mpsc_follow(dlp_mpsc_rx *rx) {
    for (uint32_t k = 0; k <= rx->ready_words; k++) {
        while (rx->bits) {
            uint32_t i = rx->word * 64 + (uint32_t)__builtin_ctzll(rx->bits);
            rx->bits &= rx->bits - 1;
            int r = i < rx->producers ? dlpi_mpsc_try_turn(rx, i) : DLP_EMPTY;
            if (r != DLP_EMPTY)
                return r;
        }
        rx->word = rx->word + 1 < rx->ready_words ? rx->word + 1 : 0;
        uint64_t *ready = dlpi_mpsc_ready_word(rx, rx->word);
        if (DLPI_LOAD_RLX(ready) != 0)              /* R3, not worth a write if clear */
            rx->bits = DLPI_XCHG_SEQ(ready, (uint64_t)0); /* R3 <- R2 */
    }
    return DLP_EMPTY;
}

DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx) {
    if (rx->ready_words == 0)
        return dlpi_mpsc_sweep(rx);
    if (rx->left == 0) /* its turn is over, but it may have more */
        DLPI_OR_SEQ(dlpi_mpsc_ready_word(rx, rx->turn / 64), UINT64_C(1) << rx->turn % 64); /* R2 */
    rx->left = 0;
    int r = DLP_EMPTY;
    if (++rx->finds % DLPI_MPSC_SWEEP != 0)
        r = dlpi_mpsc_follow(rx);
    return r == DLP_EMPTY ? dlpi_mpsc_sweep(rx) : r;
}

static int dlpi_mpsc_has_stock(void *handle) {
    return dlpi_mpsc_turn((dlp_mpsc_rx *)handle) != DLP_EMPTY;
}

DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms) {
    return dlp_spsc_wait_tx(&tx->lane, timeout_ms);
}

DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->bundle->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_mpsc_has_stock, rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK ? dlpi_mpsc_turn(rx) : r;
}

DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_mpsc_try_push_burst(tx, from + done * tx->lane.record_bytes, n - done);
        if (k < 0)
            return k;
        done += (uint64_t)k;
        if (done == n)
            return (int64_t)done;
        int r = dlp_mpsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK)
            return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_mpsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0)
        return n;
    int r = dlp_mpsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK)
        return r < 0 ? r : 0;
    return dlp_mpsc_try_pop_burst(rx, records, max);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-order      HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   IMPL-ORDER-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-core       REGION, STAGES, WORKERS, PIPE
   IMPL-CORE-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-pictures   TRACE, TIMELINE, WORDS
   IMPL-PICTURES-SECTION */

#ifdef DLPI_ASKED_GNU_SOURCE
#undef DLPI_ASKED_GNU_SOURCE
#undef _GNU_SOURCE
#endif
#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>licence
   MIT License. Copyright (c) 2026 the dlpipe authors.
   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:
   The above copyright notice and this permission notice shall be included in all copies or
   substantial portions of the Software.
   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
