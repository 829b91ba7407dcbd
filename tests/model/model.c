/* Lanes, bundles, sleep and wake-up: every interleaving of small cases, with every value that a
   load's order permits (model.h tells how), on the header's own code.

   Without arguments: all scenarios, which must hold. SOAK=1: larger ones too.
   For mutants.sh: "quick": the small scenarios alone, up to the first that fails, told in one
   line; "weaken": each ordered access made relaxed, in turn, which some scenario must notice. */
#include "model.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else

enum { MAX_RECORDS = 6, MEMORY = 4096 };

/* How each side goes about it. */
typedef enum style { SINGLE, BURST, IN_PLACE, BLOCKING, BLOCKING_BURST, FOLLOW } style;

typedef struct shape {
    style push, pop;
    uint64_t capacity, start; /* counters' first value */
    uint64_t publish_every;   /* 0: as attached */
    int records;              /* of each producer */
    int producers;            /* 0: a lane; else a bundle of so many */
    int lanes;                /* of the bundle, 0: as many */
    int spurious;             /* wake-ups that nobody sent, at most */
    int ready;                /* the bundle has ready words */
    uint32_t sweep;           /* 0: 64 */
    int claim;                /* producers claim a lane, and give it back */
    int close;                /* producers close, and the consumer reads to the end */
} shape;

/* All that the threads of a scenario use lies here. */
static struct {
    _Alignas(128) unsigned char queue[MEMORY];
    dlp_spsc_tx tx[3];
    dlp_mpsc_tx mtx[3];
    dlp_spsc_rx rx;
    dlp_mpsc_rx mrx;
    dlp_spsc_rx lanes[2];
    uint64_t popped[2]; /* per lane */
    uint64_t total;
    int ended; /* the consumer was told DLP_END */
} w;
static shape is;

static uint64_t queue_bytes(void) { return sizeof w.queue; }

/* A record: which lane, which number, which life of its producer. */
static uint64_t record_of(int lane, uint64_t number, int life) {
    return UINT64_C(0xAB) << 56 | (uint64_t)lane << 48 | (uint64_t)life << 40 | (number + 1);
}

static void list_lane(int i, dlp_spsc *lane) {
    static const char *const names[2][5] = {
        {"tail", "head", "producer wake word", "consumer wake word", "closed"},
        {"tail 1", "head 1", "producer wake word 1", "own wake word 1", "closed 1"}};
    model_list_atom(names[i][0], &lane->tail, 8, is.capacity);
    model_list_atom(names[i][1], &lane->head, 8, is.capacity);
    model_list_atom(names[i][2], &lane->producer_wake, 4, 0);
    model_list_atom(names[i][3], &lane->consumer_wake, 4, 0);
    if (is.close) model_list_atom(names[i][4], &lane->closed, 4, 0);
    for (uint64_t k = 0; k < is.capacity; k++)
        model_list_slot((unsigned char *)lane + lane->slots_offset + k * 8, 8);
}

static int attach_lane_tx(int i) {
    int r = dlp_spsc_attach_tx(&w.tx[i], w.queue, queue_bytes());
    MODEL_CHECK(r == DLP_OK || (r == DLP_ERR_STATE && is.close));
    w.tx[i].spin_ns = w.tx[i].yields = 0;
    return r;
}

static void attach_lane_rx(void) {
    MODEL_CHECK(dlp_spsc_attach_rx(&w.rx, w.queue, queue_bytes()) == DLP_OK);
    w.rx.spin_ns = w.rx.yields = 0;
    if (is.publish_every) w.rx.publish_every = is.publish_every;
}

static void lane_setup(void) {
    MODEL_CHECK(dlp_spsc_init(w.queue, queue_bytes(), 8, is.capacity, 0) == DLP_OK);
    dlp_spsc *lane = (dlp_spsc *)(void *)w.queue;
    lane->head = lane->tail = is.start;
    attach_lane_tx(0);
    attach_lane_rx();
    list_lane(0, lane);
}

static int all_producers(void) { return is.producers ? is.producers : 1; }

static uint32_t closed_bit(const dlp_spsc *lane) { return is.close ? model_bit(&lane->closed) : 0; }

static dlp_spsc *bundle_lane(int i) {
    const dlp_mpsc *b = (const dlp_mpsc *)(void *)w.queue;
    return (dlp_spsc *)(void *)(w.queue + b->lanes_offset + (uint64_t)i * b->lane_bytes);
}

static void attach_bundle_tx(int i, int producer) {
    MODEL_CHECK(dlp_mpsc_attach_tx(&w.mtx[i], w.queue, queue_bytes(), producer) == producer);
    w.mtx[i].lane.spin_ns = w.mtx[i].lane.yields = 0;
}

static void attach_bundle_rx(void) {
    MODEL_CHECK(dlp_mpsc_attach_rx(&w.mrx, w.lanes, 2, w.queue, queue_bytes()) == DLP_OK);
    w.mrx.spin_ns = w.mrx.yields = 0;
}

static void bundle_setup(void) {
    model_scan = is.ready ? 0 : 16;
    model_sweep = is.sweep ? is.sweep : 64;
    int lanes = is.lanes ? is.lanes : is.producers;
    int r = dlp_mpsc_init(w.queue, queue_bytes(), 8, is.capacity, (uint32_t)lanes, 0);
    MODEL_CHECK(r == DLP_OK);
    dlp_mpsc *b = (dlp_mpsc *)(void *)w.queue;
    for (int i = 0; i < lanes; i++) bundle_lane(i)->head = bundle_lane(i)->tail = is.start;
    for (int i = 0; i < is.producers && !is.claim; i++) attach_bundle_tx(i, i);
    attach_bundle_rx();
    model_list_atom("wake word", &b->consumer_wake, 4, 0);
    if (b->ready_words) model_list_atom("ready word", w.queue + b->ready_offset, 8, 0);
    for (int i = 0; i < lanes; i++)
        model_list_atom(i ? "owner 1" : "owner 0", w.queue + b->owners_offset + i * 4, 4, 0);
    for (int i = 0; i < lanes; i++) list_lane(i, bundle_lane(i));
}

/* ---- producers ---- */

static uint64_t tx_digest(int i) {
    return model_digest(&w.tx[i], sizeof w.tx[i], model_digest(&w.mtx[i], sizeof w.mtx[i], 1));
}

/* Push record `number` and perhaps some behind it. Returns how many, 0 if there was no room. */
static int64_t lane_push(dlp_spsc_tx *tx, int life, uint64_t number, uint64_t left) {
    uint64_t records[MAX_RECORDS];
    void *room;
    for (uint64_t k = 0; k < MAX_RECORDS; k++) records[k] = record_of(0, number + k, life);
    switch (is.push) {
    case SINGLE: return dlp_spsc_try_push(tx, records) == DLP_OK;
    case BURST: return dlp_spsc_try_push_burst(tx, records, left);
    case BLOCKING: return dlp_spsc_push(tx, records, DLP_FOREVER) == DLP_OK;
    case BLOCKING_BURST: return dlp_spsc_push_burst(tx, records, left, DLP_FOREVER);
    default: break;
    }
    int64_t n = dlp_spsc_reserve(tx, left, &room);
    for (int64_t k = 0; k < n; k++) model_copy((unsigned char *)room + 8 * k, &records[k], 8);
    if (n > 0) MODEL_CHECK(dlp_spsc_commit(tx, (uint64_t)n) == DLP_OK);
    return n;
}

static void lane_produce(int i, int life) {
    uint64_t n = (uint64_t)is.records;
    for (uint64_t done = w.tx[i].tail - is.start; done < n;) {
        int64_t k = lane_push(&w.tx[i], life, done, n - done);
        MODEL_CHECK(k >= 0);
        done += (uint64_t)k;
        if (k > 0)
            model_here(tx_digest(i));
        else
            model_poll(tx_digest(i), model_bit(&w.tx[i].lane->head));
    }
    if (!is.close) return;
    dlp_spsc_close(&w.tx[i]);
    MODEL_CHECK(lane_push(&w.tx[i], life, n, 1) <= 0);
}

static void lane_producer(void) { lane_produce(0, 0); }

static void lane_successor(void) {
    if (attach_lane_tx(1) != DLP_OK) return; /* the producer before it died behind its close */
    model_here(tx_digest(1));
    lane_produce(1, 1);
}

static void bundle_produce(int i, int life) {
    dlp_mpsc_tx *tx = &w.mtx[i];
    int lane = (int)(((unsigned char *)tx->lane.lane - (unsigned char *)bundle_lane(0)) /
                     (ptrdiff_t)((const dlp_mpsc *)(void *)w.queue)->lane_bytes);
    uint64_t n = (uint64_t)is.records, done = is.claim ? 0 : tx->lane.tail - is.start;
    while (done < n) {
        uint64_t number = is.claim ? tx->lane.tail - is.start : done;
        uint64_t record = record_of(lane, number, life);
        int r = is.push == BLOCKING ? dlp_mpsc_push(tx, &record, DLP_FOREVER)
                                    : dlp_mpsc_try_push(tx, &record);
        MODEL_CHECK(r == DLP_OK || (r == DLP_FULL && is.push != BLOCKING));
        done += r == DLP_OK;
        if (r == DLP_OK)
            model_here(tx_digest(i) + done);
        else
            model_poll(tx_digest(i) + done, model_bit(&tx->lane.lane->head));
    }
    if (is.close) dlp_mpsc_close(tx);
}

static void bundle_claimer(int i) {
    dlp_mpsc_tx *tx = &w.mtx[i];
    const dlp_mpsc *b = (const dlp_mpsc *)(void *)w.queue;
    int lane;
    while ((lane = dlp_mpsc_attach_tx(tx, w.queue, queue_bytes(), DLP_NONE)) == DLP_ERR_BUSY)
        model_poll(77, model_bit(w.queue + b->owners_offset));
    MODEL_CHECK(lane >= 0 && lane < (int)b->producers);
    tx->lane.spin_ns = tx->lane.yields = 0;
    model_here(tx_digest(i));
    bundle_produce(i, i);
    dlp_mpsc_detach_tx(tx);
}

static void bundle_producer_0(void) {
    if (is.claim)
        bundle_claimer(0);
    else
        bundle_produce(0, 0);
}

static void bundle_producer_1(void) {
    if (is.claim)
        bundle_claimer(1);
    else
        bundle_produce(1, 0);
}

static void bundle_successor(void) { /* of producer 0, as the thread behind it */
    attach_bundle_tx(2, 0);
    model_here(tx_digest(2));
    bundle_produce(2, 1);
}

/* ---- consumers ---- */

static uint64_t rx_digest(void) {
    dlp_mpsc_rx m = w.mrx;
    m.finds %= model_sweep;
    uint64_t h = model_digest(&w.rx, sizeof w.rx, model_digest(&m, sizeof m, w.total));
    return model_digest(w.lanes, sizeof w.lanes, model_digest(w.popped, sizeof w.popped, h));
}

/* Every record once, each lane's in order, as it was written. */
static void took(uint64_t record) {
    int lane = (int)(record >> 48 & 0xff), life = (int)(record >> 40 & 0xff);
    MODEL_CHECK(lane < 2 && life < 2);
    MODEL_CHECK(record == record_of(lane, w.popped[lane], life));
    w.popped[lane]++;
    w.total++;
}

/* One record, or none. The end comes behind all that was pushed. */
static int64_t came(int r) {
    MODEL_CHECK(r != DLP_END || (is.close && w.total == (uint64_t)(is.records * all_producers())));
    w.ended |= r == DLP_END;
    return r == DLP_OK;
}

/* Is the consumer to go on? Without closing, it counts the records. */
static int goes_on(void) {
    return is.close ? !w.ended : w.total < (uint64_t)(is.records * all_producers());
}

static int64_t lane_pop(uint64_t *records) {
    const void *stock;
    switch (is.pop) {
    case SINGLE: return came(dlp_spsc_try_pop(&w.rx, records));
    case BURST: return dlp_spsc_try_pop_burst(&w.rx, records, MAX_RECORDS);
    case BLOCKING: return came(dlp_spsc_pop(&w.rx, records, DLP_FOREVER));
    case BLOCKING_BURST: return dlp_spsc_pop_burst(&w.rx, records, MAX_RECORDS, DLP_FOREVER);
    default: break;
    }
    int64_t n = dlp_spsc_peek(&w.rx, MAX_RECORDS, &stock);
    for (int64_t k = 0; k < n; k++) {
        model_copy(&records[k], (const unsigned char *)stock + 8 * k, 8);
        took(records[k]);
    }
    if (n > 0) MODEL_CHECK(dlp_spsc_release(&w.rx, (uint64_t)n) == DLP_OK);
    return n;
}

static void lane_consume(void) {
    uint64_t records[MAX_RECORDS];
    while (goes_on()) {
        int64_t n = lane_pop(records);
        MODEL_CHECK(n >= 0);
        for (int64_t k = 0; k < n && is.pop != IN_PLACE; k++) took(records[k]);
        if (n == 0 && is.close && is.pop != SINGLE) /* which of the two was it? */
            n = came(dlp_spsc_wait_rx(&w.rx, DLP_NOWAIT));
        if (n > 0)
            model_here(rx_digest());
        else if (goes_on())
            model_poll(rx_digest(), model_bit(&w.rx.lane->tail) | closed_bit(w.rx.lane));
    }
    if (is.close) MODEL_CHECK(dlp_spsc_pop(&w.rx, records, DLP_FOREVER) == DLP_END);
}

/* Takes the place of a consumer that died: what was taken but not published comes again. What a pop
   has given back may never have reached its caller; who works in place loses nothing. */
static void lane_consumer_successor(void) {
    attach_lane_rx();
    MODEL_CHECK(w.rx.head - is.start <= w.total + (is.pop != IN_PLACE));
    w.total = w.popped[0] = w.rx.head - is.start;
    model_here(rx_digest());
    lane_consume();
}

/* By the hints alone. Where each producer pushes once no hint can be lost. */
static void bundle_follow(void) {
    uint64_t record;
    uint32_t producer;
    const dlp_mpsc *b = (const dlp_mpsc *)(void *)w.queue;
    while (w.total < 2) {
        if (dlpi_mpsc_follow(&w.mrx) == DLP_OK) {
            MODEL_CHECK(dlp_mpsc_try_pop(&w.mrx, &record, &producer) == DLP_OK);
            took(record);
            model_here(rx_digest());
        } else if (w.mrx.bits == 0) { /* none that was fetched, but not yet followed */
            model_poll(rx_digest(), model_bit(w.queue + b->ready_offset));
        }
    }
}

static int64_t bundle_pop(uint64_t *records) {
    uint32_t producer = 9;
    if (is.pop == BURST) return dlp_mpsc_try_pop_burst(&w.mrx, records, MAX_RECORDS);
    int r = is.pop == BLOCKING ? dlp_mpsc_pop(&w.mrx, records, &producer, DLP_FOREVER)
                               : dlp_mpsc_try_pop(&w.mrx, records, &producer);
    MODEL_CHECK(r == DLP_OK || r == DLP_END || (r == DLP_EMPTY && is.pop != BLOCKING));
    MODEL_CHECK(r != DLP_OK || (records[0] >> 48 & 0xff) == producer);
    return came(r);
}

static void bundle_consume(void) {
    uint64_t records[MAX_RECORDS];
    if (is.pop == FOLLOW) bundle_follow();
    while (goes_on()) {
        int64_t n = bundle_pop(records);
        MODEL_CHECK(n >= 0);
        for (int64_t k = 0; k < n; k++) took(records[k]);
        if (n == 0 && is.close && is.pop == BURST) n = came(dlp_mpsc_wait_rx(&w.mrx, DLP_NOWAIT));
        if (n > 0) {
            model_here(rx_digest());
        } else if (goes_on()) {
            uint32_t tails = 0;
            for (uint32_t i = 0; i < w.mrx.producers; i++)
                tails |= model_bit(&bundle_lane((int)i)->tail) | closed_bit(bundle_lane((int)i));
            model_poll(rx_digest(), tails);
        }
    }
}

/* When all is over: the counters say what was moved, and nobody's wake word is left on. */
static void lane_end(void) {
    const dlp_spsc *lane = (const dlp_spsc *)(void *)w.queue;
    uint64_t n = (uint64_t)is.records;
    MODEL_CHECK(lane->tail - is.start == n && w.total == n);
    MODEL_CHECK(n - (lane->head - is.start) < w.rx.publish_every);
    if (world.deaths == 0)
        MODEL_CHECK(!(lane->consumer_wake & DLPI_WAKE_SLEEPER) &&
                    !(lane->producer_wake & DLPI_WAKE_SLEEPER));
}

static void bundle_end(void) {
    const dlp_mpsc *b = (const dlp_mpsc *)(void *)w.queue;
    uint64_t pushed = 0;
    for (uint32_t i = 0; i < b->producers; i++) pushed += bundle_lane((int)i)->tail - is.start;
    MODEL_CHECK(pushed == w.total && w.total == (uint64_t)(is.records * is.producers));
}

/* ---- scenarios ---- */

typedef struct trial {
    shape shape;
    int membarrier;
    model_scenario scenario;
    int large; /* 1: not for mutants; 2: for SOAK=1 alone */
} trial;

#define WRAP (UINT64_MAX - 1)
#define LANE(label, large, barrier, ...) \
    { \
        {__VA_ARGS__}, barrier, {label, lane_setup, {lane_producer, lane_consume}, lane_end, 0}, \
            large \
    }
#define BUNDLE(label, large, barrier, ...) \
    { \
        {__VA_ARGS__}, barrier, \
            {label, \
             bundle_setup, \
             {bundle_producer_0, bundle_producer_1, bundle_consume}, \
             bundle_end, \
             0}, \
            large \
    }
#define AFTER_DEATH(label, large, mortal, setup, end, barrier, a, b, c, d, ...) \
    { {__VA_ARGS__}, barrier, {label, setup, {a, b, c, d}, end, 1 + mortal}, large }

static const trial trials[] = {
    LANE("lane__capacity_1_single__fifo", 0, 1, SINGLE, SINGLE, 1, WRAP, .records = 3),
    LANE("lane__capacity_2_single__fifo", 0, 1, SINGLE, SINGLE, 2, WRAP, .records = 4),
    LANE("lane__capacity_2_burst__fifo", 0, 1, BURST, BURST, 2, WRAP, .records = 4),
    LANE("lane__capacity_2_in_place__fifo", 0, 1, IN_PLACE, IN_PLACE, 2, WRAP, .records = 4),
    LANE("lane__capacity_4_burst_against_single__fifo", 0, 1, BURST, SINGLE, 4, WRAP, .records = 6),
    LANE("lane__head_published_lazily__fifo", 0, 1, SINGLE, SINGLE, 2, WRAP, .publish_every = 2,
         .records = 4),
    LANE("lane__head_published_lazily_burst__fifo", 0, 1, BURST, SINGLE, 4, WRAP,
         .publish_every = 3, .records = 6),
    LANE("lane__blocking_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP, .records = 3),
    LANE("lane__blocking_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP, .records = 3),
    LANE("lane__blocking_capacity_2_membarrier__all_wake", 1, 1, BLOCKING, BLOCKING, 2, WRAP,
         .records = 4),
    LANE("lane__blocking_capacity_2_rmw__all_wake", 1, 0, BLOCKING, BLOCKING, 2, WRAP,
         .records = 4),
    LANE("lane__blocking_lazy_membarrier__all_wake", 1, 1, BLOCKING, BLOCKING, 2, WRAP,
         .publish_every = 2, .records = 4),
    LANE("lane__blocking_lazy_rmw__all_wake", 1, 0, BLOCKING, BLOCKING, 2, WRAP, .publish_every = 2,
         .records = 4),
    LANE("lane__blocking_spurious_wakeups_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP,
         .records = 2, .spurious = 2),
    LANE("lane__blocking_spurious_wakeups_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP,
         .records = 2, .spurious = 2),
    LANE("lane__blocking_burst_membarrier__all_wake", 0, 1, BLOCKING_BURST, BLOCKING_BURST, 2, WRAP,
         .records = 4),
    LANE("lane__blocking_burst_rmw__all_wake", 0, 0, BLOCKING_BURST, BLOCKING_BURST, 2, WRAP,
         .records = 4),
    LANE("lane__blocking_push_polling_pop__all_wake", 0, 1, BLOCKING, SINGLE, 2, WRAP,
         .records = 4),
    LANE("lane__closed__end_behind_the_last_record", 0, 1, SINGLE, SINGLE, 2, WRAP, .records = 3,
         .close = 1),
    LANE("lane__closed_burst__end_behind_the_last_record", 0, 1, BURST, BURST, 2, WRAP,
         .records = 3, .close = 1),
    LANE("lane__closed_in_place__end_behind_the_last_record", 0, 1, IN_PLACE, IN_PLACE, 2, WRAP,
         .records = 3, .close = 1),
    LANE("lane__closed_blocking_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP,
         .records = 2, .close = 1),
    LANE("lane__closed_blocking_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP, .records = 2,
         .close = 1),
    LANE("lane__closed_blocking_burst_membarrier__all_wake", 0, 1, BLOCKING_BURST, BLOCKING_BURST,
         2, WRAP, .records = 2, .close = 1),
    LANE("lane__blocking_capacity_4_membarrier__all_wake", 2, 1, BLOCKING, BLOCKING, 4, WRAP,
         .publish_every = 2, .records = 6),
    LANE("lane__blocking_capacity_4_rmw__all_wake", 2, 0, BLOCKING, BLOCKING, 4, WRAP,
         .publish_every = 2, .records = 6),
    AFTER_DEATH("lane__producer_dies__successor_goes_on", 0, 0, lane_setup, lane_end, 1,
                lane_producer, lane_successor, lane_consume, NULL, SINGLE, SINGLE, 2, WRAP,
                .records = 4),
    AFTER_DEATH("lane__closer_dies__open_or_closed", 0, 0, lane_setup, lane_end, 1, lane_producer,
                lane_successor, lane_consume, NULL, SINGLE, SINGLE, 2, WRAP, .records = 3,
                .close = 1),
    AFTER_DEATH("lane__closer_dies_blocking__open_or_closed", 0, 0, lane_setup, lane_end, 1,
                lane_producer, lane_successor, lane_consume, NULL, BLOCKING, BLOCKING, 1, WRAP,
                .records = 2, .close = 1),
    AFTER_DEATH("lane__producer_dies_in_burst__successor_goes_on", 0, 0, lane_setup, lane_end, 1,
                lane_producer, lane_successor, lane_consume, NULL, BURST, SINGLE, 2, WRAP,
                .records = 4),
    AFTER_DEATH("lane__blocked_producer_dies__successor_goes_on", 1, 0, lane_setup, lane_end, 1,
                lane_producer, lane_successor, lane_consume, NULL, BLOCKING, BLOCKING, 1, WRAP,
                .records = 3),
    AFTER_DEATH("lane__blocked_producer_dies_rmw__successor_goes_on", 0, 0, lane_setup, lane_end, 0,
                lane_producer, lane_successor, lane_consume, NULL, BLOCKING, BLOCKING, 1, WRAP,
                .records = 2),
    AFTER_DEATH("lane__consumer_dies__successor_goes_on", 0, 1, lane_setup, lane_end, 1,
                lane_producer, lane_consume, lane_consumer_successor, NULL, SINGLE, SINGLE, 2, WRAP,
                .publish_every = 2, .records = 4),
    AFTER_DEATH("lane__consumer_dies_in_place__nothing_lost", 0, 1, lane_setup, lane_end, 1,
                lane_producer, lane_consume, lane_consumer_successor, NULL, SINGLE, IN_PLACE, 2,
                WRAP, .records = 4),
    AFTER_DEATH("lane__blocked_consumer_dies__successor_goes_on", 1, 1, lane_setup, lane_end, 1,
                lane_producer, lane_consume, lane_consumer_successor, NULL, BLOCKING, BLOCKING, 1,
                WRAP, .records = 3),
    AFTER_DEATH("lane__blocked_consumer_dies_rmw__successor_goes_on", 1, 1, lane_setup, lane_end, 0,
                lane_producer, lane_consume, lane_consumer_successor, NULL, BLOCKING, BLOCKING, 1,
                WRAP, .records = 2),
    BUNDLE("bundle__scan__fifo_per_producer", 0, 1, SINGLE, SINGLE, 1, WRAP, .records = 2,
           .producers = 2),
    BUNDLE("bundle__burst__fifo_per_producer", 0, 1, SINGLE, BURST, 1, WRAP, .records = 2,
           .producers = 2),
    BUNDLE("bundle__each_hint_followed__leads_to_its_record", 0, 1, SINGLE, FOLLOW, 1, WRAP,
           .records = 1, .producers = 2, .ready = 1),
    {{SINGLE, SINGLE, 1, WRAP, .records = 3, .producers = 1, .ready = 1, .sweep = 2},
     1,
     {"bundle__one_producer_ready_bits__fifo",
      bundle_setup,
      {bundle_producer_0, bundle_consume},
      bundle_end,
      0},
     0},
    {{BLOCKING, BLOCKING, 1, WRAP, .records = 3, .producers = 1, .ready = 1, .sweep = 2},
     1,
     {"bundle__one_producer_blocking_ready_bits__all_wake",
      bundle_setup,
      {bundle_producer_0, bundle_consume},
      bundle_end,
      0},
     1},
    BUNDLE("bundle__ready_bits__fifo_per_producer", 0, 1, SINGLE, SINGLE, 1, WRAP, .records = 1,
           .producers = 2, .ready = 1, .sweep = 2),
    BUNDLE("bundle__ready_bits_2_records__fifo_per_producer", 2, 1, SINGLE, SINGLE, 1, WRAP,
           .records = 2, .producers = 2, .ready = 1, .sweep = 2),
    BUNDLE("bundle__blocking_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP, .records = 1,
           .producers = 2),
    BUNDLE("bundle__blocking_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP, .records = 1,
           .producers = 2),
    BUNDLE("bundle__blocking_ready_bits_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP,
           .records = 1, .producers = 2, .ready = 1, .sweep = 64),
    BUNDLE("bundle__blocking_ready_bits_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP,
           .records = 1, .producers = 2, .ready = 1, .sweep = 64),
    BUNDLE("bundle__blocking_2_records_membarrier__all_wake", 2, 1, BLOCKING, BLOCKING, 1, WRAP,
           .records = 2, .producers = 2),
    BUNDLE("bundle__closed__end_behind_the_last_of_both", 0, 1, SINGLE, SINGLE, 1, WRAP,
           .records = 1, .producers = 2, .close = 1),
    BUNDLE("bundle__closed_burst__end_behind_the_last_of_both", 0, 1, SINGLE, BURST, 1, WRAP,
           .records = 1, .producers = 2, .close = 1),
    BUNDLE("bundle__closed_ready_bits__end_behind_the_last_of_both", 1, 1, SINGLE, SINGLE, 1, WRAP,
           .records = 1, .producers = 2, .ready = 1, .close = 1),
    BUNDLE("bundle__closed_blocking_membarrier__all_wake", 0, 1, BLOCKING, BLOCKING, 1, WRAP,
           .records = 0, .producers = 2, .close = 1),
    BUNDLE("bundle__closed_blocking_rmw__all_wake", 0, 0, BLOCKING, BLOCKING, 1, WRAP, .records = 0,
           .producers = 2, .close = 1),
    BUNDLE("bundle__closed_blocking_1_record_membarrier__all_wake", 2, 1, BLOCKING, BLOCKING, 1,
           WRAP, .records = 1, .producers = 2, .close = 1),
    BUNDLE("bundle__two_claim_and_close__one_lane_each", 0, 1, SINGLE, SINGLE, 1, WRAP,
           .records = 1, .producers = 2, .claim = 1, .close = 1),
    BUNDLE("bundle__two_claim_two_lanes__one_each", 0, 1, SINGLE, SINGLE, 1, WRAP, .records = 1,
           .producers = 2, .claim = 1),
    BUNDLE("bundle__two_claim_one_lane__one_after_the_other", 0, 1, SINGLE, SINGLE, 1, WRAP,
           .records = 1, .producers = 2, .lanes = 1, .claim = 1),
    AFTER_DEATH("bundle__producer_dies__successor_goes_on", 1, 0, bundle_setup, bundle_end, 1,
                bundle_producer_0, bundle_successor, bundle_producer_1, bundle_consume, BLOCKING,
                BLOCKING, 1, WRAP, .records = 1, .producers = 2),
};
enum { TRIALS = sizeof trials / sizeof *trials };

static int try_one(const trial *t, int loud) {
    is = t->shape;
    model.spurious = is.spurious;
    model.membarrier = t->membarrier;
    return model_run(&t->scenario, loud);
}

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A bundle of two producers with ready words, on raw memory, nothing else running. */
static void bundle_alone(uint32_t quantum) {
    static const shape two = {SINGLE, SINGLE, 4, WRAP, .producers = 2, .ready = 1};
    is = two;
    model.running = -1;
    model.membarrier = 1;
    memset(&w, 0, sizeof w);
    model.atoms = model.slots = 0;
    bundle_setup();
    w.mrx.quantum = quantum;
}

/* A consumer that looks again and again at a bundle where nothing comes leaves the producers' cache
   lines alone. */
static int bundle__nothing_comes__writes_nothing(void) {
    uint64_t record = record_of(0, 0, 0), found = 0;
    bundle_alone(1);
    dlp_mpsc_try_push(&w.mtx[1], &record);
    while (dlp_mpsc_try_pop(&w.mrx, &record, NULL) == DLP_OK) found++;
    uint64_t before = model.raw_writes;
    for (int i = 0; i < 9; i++) found += dlp_mpsc_try_pop(&w.mrx, &record, NULL) == DLP_OK;
    return found != 1 || model.raw_writes != before;
}

/* A lane whose turn is over while it has more comes again soon, however busy the others are. */
static int bundle__turn_is_over__lane_stays_ready(void) {
    uint64_t record = record_of(0, 0, 0);
    uint32_t producer, of_0 = 0;
    bundle_alone(1);
    for (int i = 0; i < 3; i++) dlp_mpsc_try_push(&w.mtx[0], &record);
    for (int i = 0; i < 8; i++) {
        dlp_mpsc_try_push(&w.mtx[1], &record);
        of_0 += dlp_mpsc_try_pop(&w.mrx, &record, &producer) == DLP_OK && producer == 0;
    }
    return of_0 != 3;
}

static int check_alone(void) {
    static const struct {
        const char *name;
        int (*test)(void);
    } tests[] = {
        {"bundle__nothing_comes__writes_nothing", bundle__nothing_comes__writes_nothing},
        {"bundle__turn_is_over__lane_stays_ready", bundle__turn_is_over__lane_stays_ready},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (tests[i].test()) {
            printf("caught by %s: FAILED\n", tests[i].name);
            return 1;
        }
    return 0;
}

/* Scenes of so many states: also without the orders that come to the same (model_reduce.h), which
   has to lead to the same final states. */
enum { FEW = 100000 };

static int differs_reduced(const trial *t) {
    uint64_t states = model.states, n = model_outcomes.n, all = model_outcomes.all;
    if (states > FEW) return 0;
    model.reduce = 1;
    int r = try_one(t, 1) || model_outcomes.n != n || model_outcomes.all != all;
    model.reduce = 0;
    if (r)
        printf("%s: %llu final states of %llu, and %llu of %llu\n", t->scenario.name,
               (unsigned long long)n, (unsigned long long)states,
               (unsigned long long)model_outcomes.n, (unsigned long long)model.states);
    return r;
}

static int check_all(int quick) {
    uint64_t states = 0, steps = 0;
    double begin = seconds();
    int bad = check_alone(), count = 0;
    for (int i = 0; i < TRIALS && !(bad && quick); i++) {
        double t = seconds();
        if (trials[i].large && (quick || (trials[i].large > 1 && !getenv("SOAK")))) continue;
        int r = try_one(&trials[i], !quick);
        bad += r;
        count++;
        if (r && quick) printf("caught by %s: %s\n", trials[i].scenario.name, model.failure);
        states += model.states;
        steps += model.steps;
        if (quick) continue;
        printf("%-55s %8llu states %9llu steps %6llu ends %6.2f s %s\n", trials[i].scenario.name,
               (unsigned long long)model.states, (unsigned long long)model.steps,
               (unsigned long long)model.ends, seconds() - t, r ? "FAILED" : "");
        fflush(stdout);
        bad += !r && differs_reduced(&trials[i]);
    }
    printf("%d scenarios, %llu states, %llu steps, %.1f s; no bound on preemptions or steps\n",
           count, (unsigned long long)states, (unsigned long long)steps, seconds() - begin);
    return bad;
}

/* Accesses whose order nothing needs. They keep it because it costs nothing where they are. */
static const struct {
    const char *func, *name, *why;
} unneeded[] = {
    {"dlpi_spsc_room_wake", "LOAD_ACQ",
     "the wake word before it has brought the tail of who sleeps"},
    {"dlpi_await_asleep", "AND_SEQ", "takes a bit back, carries nothing"},
    {"dlp_mpsc_attach_tx", "XCHG_SEQ",
     "who gives a number to another producer, or the kernel, has the order"},
};

static const char *why_unneeded(int site) {
    for (size_t i = 0; i < sizeof unneeded / sizeof *unneeded; i++)
        if (strcmp(unneeded[i].func, model.site[site].func) == 0 &&
            strcmp(unneeded[i].name, model.site[site].name) == 0)
            return unneeded[i].why;
    return NULL;
}

/* Every ordered access that was met, made relaxed, one by one (DLPI_KEEP_ORDER: left out). */
static int weaken_all(void) {
    int bad = check_all(1), sites = model.sites, caught = 0, kept = 0;
    if (bad) return bad;
    for (int i = 0; i < sites; i++) {
        if (model.site[i].order == M_RLX) continue;
        const char *by = NULL, *why = why_unneeded(i);
        model.site[i].weak = 1;
        for (int k = 0; k < TRIALS && !by; k++)
            if (!trials[k].large && try_one(&trials[k], 0)) by = trials[k].scenario.name;
        model.site[i].weak = 0;
        printf("weakened %s in %s: %s%s\n", model.site[i].name, model.site[i].func,
               by    ? "caught by "
               : why ? "not needed, "
                     : "NOT CAUGHT",
               by    ? by
               : why ? why
                     : "");
        fflush(stdout);
        if (!by == !why) { /* caught though not needed, or not caught though needed */
            fprintf(stderr, "weakened %s in %s, line %d: %s\n", model.site[i].name,
                    model.site[i].func, model.site[i].line,
                    by ? "is needed after all" : "no scenario notices");
            bad++;
        }
        caught += by != NULL;
        kept += !by;
    }
    printf("%d orders weakened, %d caught, %d not needed\n", caught + kept, caught, kept);
    return bad;
}

static int is_arg(int argc, char **argv, const char *arg) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], arg) == 0) return 1;
    return 0;
}

int main(int argc, char **argv) {
    model.memory = (unsigned char *)&w;
    model.memory_bytes = sizeof w;
    int bad = is_arg(argc, argv, "weaken") ? weaken_all() : check_all(is_arg(argc, argv, "quick"));
    printf("model: %s\n", bad ? "FAILED" : "passed");
    return bad != 0;
}
#endif
