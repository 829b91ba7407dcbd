/* SPSC lanes: states placed by hand, every record size, hostile memory, stress in threads and
   processes. Arguments: seed (default 1). SOAK=1: 50 times as long. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../rig/queue_check.h"

static uint64_t seed = 1, work = 1;

typedef struct lane {
    guarded map;
    uint64_t bytes;
    dlp_spsc *spsc;
    dlp_spsc_tx tx;
    dlp_spsc_rx rx;
} lane;

/* A lane whose counters stand at `at`, attached on both sides. */
static void lane_open_at(lane *q, uint32_t record_bytes, uint64_t capacity, uint64_t at) {
    q->bytes = dlp_spsc_bytes(record_bytes, capacity);
    q->map = guarded_map(q->bytes, 0);
    q->spsc = (dlp_spsc *)(void *)q->map.mem;
    CHECK(dlp_spsc_init(q->map.mem, q->bytes, record_bytes, capacity, 0) == DLP_OK);
    q->spsc->head = q->spsc->tail = at;
    CHECK(dlp_spsc_attach_tx(&q->tx, q->map.mem, q->bytes) == DLP_OK);
    CHECK(dlp_spsc_attach_rx(&q->rx, q->map.mem, q->bytes) == DLP_OK);
}

static void lane_close(lane *q) { guarded_unmap(&q->map); }

static void bytes__parameters_out_of_range__zero(void) {
    CHECK(dlp_spsc_bytes(0, 8) == 0);
    CHECK(dlp_spsc_bytes(4, 8) == 0);
    CHECK(dlp_spsc_bytes(12, 8) == 0);
    CHECK(dlp_spsc_bytes(8, 0) == 0);
    CHECK(dlp_spsc_bytes(8, 3) == 0);
    CHECK(dlp_spsc_bytes(8, UINT64_C(1) << 33) == 0);
    CHECK(dlp_spsc_bytes(DLP_QUEUE_MAX_RECORD + 8, 8) == 0);
    CHECK(dlp_spsc_bytes(8, 1) == sizeof(dlp_spsc) + 128);
    CHECK(dlp_spsc_bytes(DLP_QUEUE_MAX_RECORD, DLP_QUEUE_MAX_CAPACITY) > UINT64_C(1) << 52);
}

static void init__bad_memory__err_arg(void) {
    guarded g = guarded_map(4096, 0);
    CHECK(dlp_spsc_init(NULL, 4096, 8, 8, 0) == DLP_ERR_ARG);
    CHECK(dlp_spsc_init(g.mem + 8, 4000, 8, 8, 0) == DLP_ERR_ARG);
    CHECK(dlp_spsc_init(g.mem, dlp_spsc_bytes(8, 8) - 1, 8, 8, 0) == DLP_ERR_ARG);
    CHECK(dlp_spsc_init(g.mem, 4096, 8, 7, 0) == DLP_ERR_ARG);
    dlp_spsc_tx tx;
    CHECK(dlp_spsc_attach_tx(&tx, g.mem, 4096) == DLP_ERR_CORRUPT); /* no lane there */
    CHECK(dlp_spsc_attach_tx(&tx, g.mem + 64, 4000) == DLP_ERR_ARG);
    CHECK(dlp_spsc_attach_tx(NULL, g.mem, 4096) == DLP_ERR_ARG);
    guarded_unmap(&g);
}

static void attach__any_header_byte_damaged__corrupt(void) {
    lane q;
    lane_open_at(&q, 16, 8, 5);
    for (uint32_t i = 0; i < offsetof(dlp_spsc, pad0); i++) {
        dlp_spsc_tx tx;
        dlp_spsc_rx rx;
        q.map.mem[i] ^= 0x5A;
        CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_ERR_CORRUPT);
        CHECK(dlp_spsc_attach_rx(&rx, q.map.mem, q.bytes) == DLP_ERR_CORRUPT);
        q.map.mem[i] ^= 0x5A;
    }
    dlp_spsc_tx tx;
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes - 128) == DLP_ERR_CORRUPT);
    q.spsc->tail = 5 + 9; /* one more than fits */
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_ERR_CORRUPT);
    q.spsc->tail = 4; /* behind head */
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_ERR_CORRUPT);
    q.spsc->tail = 5 + 8;
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_OK);
    CHECK(dlp_spsc_try_push(&tx, "0123456789abcdef") == DLP_FULL);
    lane_close(&q);
}

static void counters__out_of_range__corrupt(void) {
    uint64_t value = 7, out = 0;
    void *room;
    const void *stock;
    lane q;
    lane_open_at(&q, 8, 4, 100);
    for (int i = 0; i < 4; i++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    q.spsc->head = 105; /* beyond tail */
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_try_push_burst(&q.tx, &value, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_reserve(&q.tx, 1, &room) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_push(&q.tx, &value, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_push_burst(&q.tx, &value, 1, 1) == DLP_ERR_CORRUPT);
    q.spsc->head = 99; /* more than capacity behind */
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_ERR_CORRUPT);
    q.spsc->head = 100;
    q.spsc->tail = 105;
    CHECK(dlp_spsc_try_pop(&q.rx, &out) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_try_pop_burst(&q.rx, &out, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_peek(&q.rx, 1, &stock) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_pop(&q.rx, &out, 1) == DLP_ERR_CORRUPT);
    CHECK(dlp_spsc_pop_burst(&q.rx, &out, 1, 1) == DLP_ERR_CORRUPT);
    q.spsc->tail = 99;
    CHECK(dlp_spsc_try_pop(&q.rx, &out) == DLP_ERR_CORRUPT);
    CHECK(out == 0); /* outputs are untouched on failure */
    lane_close(&q);
}

/* A peer that writes anything anywhere in the lane, between any two calls: errors are allowed,
   touching the guard pages is not. */
static void calls__peer_scribbles__stay_in_range(void) {
    unsigned char buf[64 * 24];
    memset(buf, 1, sizeof buf);
    uint64_t state = seed;
    for (int round = 0; round < 400; round++) {
        lane q;
        lane_open_at(&q, 24, UINT64_C(1) << draw(&state) % 7, draw(&state));
        for (int step = 0; step < 200; step++) {
            uint64_t near_tail = q.tx.tail + draw(&state) % 200 - 100;
            uint64_t junk = draw(&state) % 2 ? near_tail : draw(&state);
            uint64_t n = 1 + draw(&state) % 64;
            void *room;
            const void *stock;
            switch (draw(&state) % 11) {
            case 0: q.spsc->head = junk; break;
            case 1: q.spsc->tail = junk; break;
            case 2: q.spsc->capacity = junk; break;
            case 3: q.spsc->slots_offset = junk; break;
            case 4: q.spsc->producer_wake = (uint32_t)junk; break;
            case 5: q.spsc->consumer_wake = (uint32_t)junk; break;
            case 9: q.spsc->closed = (uint32_t)junk & 1; break;
            case 6: (void)dlp_spsc_try_push_burst(&q.tx, buf, n); break;
            case 7: (void)dlp_spsc_try_pop_burst(&q.rx, buf, n); break;
            case 8:
                if (dlp_spsc_reserve(&q.tx, n, &room) > 0)
                    memset(room, 2, 24), dlp_spsc_commit(&q.tx, 1);
                break;
            default:
                if (dlp_spsc_peek(&q.rx, n, &stock) > 0)
                    memcpy(buf, stock, 24), dlp_spsc_release(&q.rx, 1);
            }
        }
        lane_close(&q);
    }
}

static void fill_and_drain(uint32_t bytes, uint64_t capacity, uint64_t at) {
    unsigned char record[256], none[256];
    lane q;
    lane_open_at(&q, bytes, capacity, at);
    uint64_t pushed = 0, popped = 0;
    CHECK(dlp_spsc_try_pop(&q.rx, record) == DLP_EMPTY);
    for (uint64_t lap = 0; lap < 3; lap++) {
        for (; pushed - popped < capacity; pushed++) {
            record_make(record, bytes, 1, pushed);
            CHECK(dlp_spsc_try_push(&q.tx, record) == DLP_OK);
        }
        CHECK(dlp_spsc_try_push(&q.tx, record) == DLP_FULL);
        uint64_t keep = lap == 2 ? 0 : capacity / 3; /* so that laps begin at different slots */
        for (; pushed - popped > keep; popped++) {
            CHECK(dlp_spsc_try_pop(&q.rx, record) == DLP_OK);
            CHECK(record_ok(record, bytes, 1, popped));
        }
        dlp_spsc_publish(&q.rx);
    }
    memset(none, 0x77, sizeof none);
    memcpy(record, none, sizeof record);
    CHECK(dlp_spsc_try_pop(&q.rx, record) == DLP_EMPTY);
    CHECK(memcmp(record, none, sizeof record) == 0);
    CHECK(q.spsc->tail == at + pushed && q.spsc->head == at + pushed);
    lane_close(&q);
}

static void push_pop__every_record_size_capacity_and_wrap__same_records(void) {
    static const uint64_t places[] = {0, UINT64_MAX - 2, UINT64_MAX, UINT64_MAX / 2, 1234567};
    for (uint32_t bytes = 8; bytes <= 256; bytes += 8)
        for (uint64_t capacity = 1; capacity <= 64; capacity *= capacity == 4 ? 4 : 2)
            for (uint32_t i = 0; i < sizeof places / sizeof *places; i++)
                fill_and_drain(bytes, capacity, places[i]);
}

static void burst_steps(uint32_t bytes, uint64_t capacity, uint64_t at) {
    unsigned char in[80 * 64], out[80 * 64];
    uint64_t state = seed + bytes, pushed = 0, popped = 0;
    lane q;
    lane_open_at(&q, bytes, capacity, at);
    for (int step = 0; step < 400; step++) {
        uint64_t n = draw(&state) % 80;
        for (uint64_t i = 0; i < n; i++) record_make(in + i * bytes, bytes, 2, pushed + i);
        dlp_spsc_publish(&q.rx);
        uint64_t room = capacity - (pushed - popped);
        int64_t k = dlp_spsc_try_push_burst(&q.tx, in, n);
        CHECK(k == (int64_t)(n < room ? n : room));
        pushed += (uint64_t)k;
        uint64_t m = draw(&state) % 80, stock = pushed - popped;
        k = dlp_spsc_try_pop_burst(&q.rx, out, m);
        CHECK(k == (int64_t)(m < stock ? m : stock));
        for (uint64_t i = 0; i < (uint64_t)k; i++)
            CHECK(record_ok(out + i * bytes, bytes, 2, popped + i));
        popped += (uint64_t)k;
    }
    lane_close(&q);
}

static void burst__any_length_over_the_wrap__as_many_as_fit(void) {
    for (uint32_t bytes = 8; bytes <= 64; bytes += 8)
        for (uint64_t capacity = 1; capacity <= 64; capacity *= 2)
            burst_steps(bytes, capacity, UINT64_MAX - 1000);
}

static void reserve__wrap_full_abort__contiguous_and_exact(void) {
    void *room = NULL;
    const void *stock = NULL;
    uint64_t value;
    lane q;
    lane_open_at(&q, 8, 8, UINT64_MAX - 4);          /* slot 3 */
    CHECK(dlp_spsc_reserve(&q.tx, 100, &room) == 5); /* to the ring's end */
    CHECK(room == q.tx.slots + 3 * 8);
    CHECK(dlp_spsc_commit(&q.tx, 6) == DLP_ERR_ARG);
    dlp_spsc_abort(&q.tx);
    CHECK(dlp_spsc_commit(&q.tx, 1) == DLP_ERR_ARG);
    CHECK(dlp_spsc_peek(&q.rx, 1, &stock) == 0); /* nothing was published */
    CHECK(dlp_spsc_reserve(&q.tx, 5, &room) == 5);
    for (uint64_t i = 0; i < 5; i++) memcpy((unsigned char *)room + 8 * i, &i, 8);
    CHECK(dlp_spsc_commit(&q.tx, 4) == DLP_OK); /* the fifth is given up */
    CHECK(dlp_spsc_commit(&q.tx, 1) == DLP_ERR_ARG);
    CHECK(dlp_spsc_reserve(&q.tx, 2, &room) == 1);
    value = 4;
    memcpy(room, &value, 8);
    CHECK(dlp_spsc_commit(&q.tx, 1) == DLP_OK);
    CHECK(dlp_spsc_reserve(&q.tx, 8, &room) == 3);
    CHECK(room == q.tx.slots);
    CHECK(dlp_spsc_commit(&q.tx, 3) == DLP_OK);
    CHECK(dlp_spsc_reserve(&q.tx, 1, &room) == 0);
    CHECK(dlp_spsc_peek(&q.rx, 100, &stock) == 5);
    for (uint64_t i = 0; i < 5; i++)
        CHECK(memcmp((const unsigned char *)stock + 8 * i, &i, 8) == 0);
    CHECK(dlp_spsc_release(&q.rx, 6) == DLP_ERR_ARG);
    CHECK(dlp_spsc_release(&q.rx, 2) == DLP_OK);
    CHECK(dlp_spsc_release(&q.rx, 1) == DLP_ERR_ARG);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK && value == 2);
    lane_close(&q);
}

static void head__lazy__published_after_an_eighth_or_when_empty(void) {
    uint64_t value = 0;
    lane q;
    lane_open_at(&q, 8, 64, 0);
    for (int i = 0; i < 20; i++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(q.spsc->tail == 20);
    for (int i = 0; i < 7; i++) CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    CHECK(q.spsc->head == 0);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    CHECK(q.spsc->head == 8);
    for (int i = 8; i < 20; i++) CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    CHECK(q.spsc->head == 16);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_EMPTY);
    CHECK(q.spsc->head == 20);
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    dlp_spsc_publish(&q.rx);
    CHECK(q.spsc->head == 21);
    lane_close(&q);
}

static void attach__successor__goes_on_from_published_counters(void) {
    void *room;
    uint64_t value = 1;
    lane q;
    lane_open_at(&q, 8, 16, UINT64_MAX);
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    value = 2;
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(dlp_spsc_reserve(&q.tx, 1, &room) == 1); /* dies here: never published */
    value = 99;
    memcpy(room, &value, 8);
    dlp_spsc_tx tx;
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_OK);
    value = 3;
    CHECK(dlp_spsc_try_push(&tx, &value) == DLP_OK);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK && value == 1); /* and dies */
    dlp_spsc_rx rx;
    CHECK(dlp_spsc_attach_rx(&rx, q.map.mem, q.bytes) == DLP_OK);
    for (uint64_t i = 1; i <= 3; i++) CHECK(dlp_spsc_try_pop(&rx, &value) == DLP_OK && value == i);
    CHECK(dlp_spsc_try_pop(&rx, &value) == DLP_EMPTY);
    lane_close(&q);
}

static void close__records_left__they_come_then_the_end(void) {
    const void *stock = NULL;
    void *room = NULL;
    uint64_t value = 1, out[4] = {0};
    lane q;
    lane_open_at(&q, 8, 4, UINT64_MAX - 1);
    CHECK(dlp_spsc_wait_rx(&q.rx, DLP_NOWAIT) == DLP_TIMEOUT);
    for (value = 1; value <= 3; value++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(dlp_spsc_reserve(&q.tx, 1, &room) == 1); /* never published */
    dlp_spsc_close(&q.tx);
    dlp_spsc_close(&q.tx);
    CHECK(dlp_spsc_wait_rx(&q.rx, DLP_FOREVER) == DLP_OK);
    CHECK(dlp_spsc_pop(&q.rx, out, DLP_FOREVER) == DLP_OK && out[0] == 1);
    CHECK(dlp_spsc_peek(&q.rx, 1, &stock) == 1 && dlp_spsc_release(&q.rx, 1) == DLP_OK);
    CHECK(dlp_spsc_pop_burst(&q.rx, out, 4, DLP_FOREVER) == 1 && out[0] == 3);
    for (int i = 0; i < 2; i++) { /* the end stays */
        CHECK(dlp_spsc_try_pop(&q.rx, out) == DLP_END);
        CHECK(dlp_spsc_pop(&q.rx, out, DLP_FOREVER) == DLP_END);
        CHECK(dlp_spsc_wait_rx(&q.rx, DLP_FOREVER) == DLP_END);
        CHECK(dlp_spsc_wait_rx(&q.rx, DLP_NOWAIT) == DLP_END);
        CHECK(dlp_spsc_pop_burst(&q.rx, out, 4, DLP_FOREVER) == 0);
        CHECK(dlp_spsc_try_pop_burst(&q.rx, out, 4) == 0);
        CHECK(dlp_spsc_peek(&q.rx, 1, &stock) == 0);
    }
    CHECK(out[0] == 3); /* outputs are untouched */
    q.spsc->tail += 5;
    CHECK(dlp_spsc_try_pop(&q.rx, out) == DLP_ERR_CORRUPT);
    lane_close(&q);
}

/* Also where the ring has room that the handle knows of. */
static void close__then_push__err_state(void) {
    uint64_t value = 7, in[9] = {0};
    void *room = NULL;
    lane q;
    lane_open_at(&q, 8, 8, 3);
    CHECK(dlp_spsc_reserve(&q.tx, 2, &room) == 2);
    dlp_spsc_close(&q.tx);
    CHECK(dlp_spsc_commit(&q.tx, 1) == DLP_ERR_ARG); /* closing gave it up */
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_ERR_STATE);
    CHECK(dlp_spsc_push(&q.tx, &value, DLP_FOREVER) == DLP_ERR_STATE);
    CHECK(dlp_spsc_try_push_burst(&q.tx, in, 9) == DLP_ERR_STATE);
    CHECK(dlp_spsc_push_burst(&q.tx, in, 9, DLP_FOREVER) == DLP_ERR_STATE);
    CHECK(dlp_spsc_reserve(&q.tx, 1, &room) == DLP_ERR_STATE);
    CHECK(dlp_spsc_wait_tx(&q.tx, DLP_FOREVER) == DLP_ERR_STATE);
    CHECK(q.spsc->tail == 3);
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_END && value == 7);
    lane_close(&q);
}

static void close__successors__producer_told_consumer_goes_on(void) {
    uint64_t value = 1;
    dlp_spsc_tx tx;
    dlp_spsc_rx rx;
    lane q;
    lane_open_at(&q, 8, 16, 0);
    CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    dlp_spsc_close(&q.tx);
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_ERR_STATE);
    CHECK(dlp_spsc_attach_rx(&rx, q.map.mem, q.bytes) == DLP_OK);
    CHECK(dlp_spsc_try_pop(&rx, &value) == DLP_OK && value == 1);
    CHECK(dlp_spsc_try_pop(&rx, &value) == DLP_END);
    CHECK(dlp_spsc_init(q.map.mem, q.bytes, 8, 16, 0) == DLP_OK); /* open again */
    CHECK(dlp_spsc_attach_tx(&tx, q.map.mem, q.bytes) == DLP_OK);
    CHECK(dlp_spsc_attach_rx(&rx, q.map.mem, q.bytes) == DLP_OK);
    CHECK(dlp_spsc_try_push(&tx, &value) == DLP_OK);
    CHECK(dlp_spsc_try_pop(&rx, &value) == DLP_OK && dlp_spsc_try_pop(&rx, &value) == DLP_EMPTY);
    lane_close(&q);
}

/* ---- stress: every call of both sides, in random order and length ---- */

typedef struct stress {
    void *mem;
    uint64_t bytes, records, seed;
    uint32_t record_bytes;
    uint64_t bad;
} stress;

static void *stress_producer(void *arg) {
    stress *s = (stress *)arg;
    uint64_t state = s->seed, n = 0;
    unsigned char in[40 * 64];
    dlp_spsc_tx tx;
    if (dlp_spsc_attach_tx(&tx, s->mem, s->bytes) != DLP_OK) exit(1);
    while (n < s->records) {
        uint64_t want = 1 + draw(&state) % 40, left = s->records - n;
        want = want < left ? want : left;
        uint64_t kind = draw(&state) % 5;
        int64_t k = 0;
        void *room;
        for (uint64_t i = 0; kind < 4 && i < want; i++)
            record_make(in + i * s->record_bytes, s->record_bytes, 3, n + i);
        if (kind == 0) {
            k = dlp_spsc_try_push(&tx, in) == DLP_OK;
        } else if (kind == 1) {
            k = dlp_spsc_push(&tx, in, DLP_FOREVER) == DLP_OK;
        } else if (kind == 2) {
            k = dlp_spsc_try_push_burst(&tx, in, want);
        } else if (kind == 3) {
            k = dlp_spsc_push_burst(&tx, in, want, 0);
            if (k != (int64_t)want) exit(1);
        } else {
            k = dlp_spsc_reserve(&tx, want, &room);
            for (int64_t i = 0; i < k; i++)
                record_make((unsigned char *)room + (uint64_t)i * s->record_bytes, s->record_bytes,
                            3, n + (uint64_t)i);
            if (k > 0 && draw(&state) % 8 == 0)
                dlp_spsc_abort(&tx), k = 0;
            else
                dlp_spsc_commit(&tx, (uint64_t)(k > 0 ? k : 0));
        }
        if (k < 0) exit(1);
        n += (uint64_t)k;
    }
    dlp_spsc_close(&tx);
    return NULL;
}

static void *stress_consumer(void *arg) {
    stress *s = (stress *)arg;
    uint64_t state = ~s->seed, n = 0;
    unsigned char out[40 * 64];
    dlp_spsc_rx rx;
    if (dlp_spsc_attach_rx(&rx, s->mem, s->bytes) != DLP_OK) exit(1);
    for (int r = DLP_OK; r != DLP_END;) {
        uint64_t want = 1 + draw(&state) % 40, kind = draw(&state) % 5;
        int64_t k;
        const void *stock = out;
        if (kind == 0)
            k = (r = dlp_spsc_try_pop(&rx, out)) == DLP_OK;
        else if (kind == 1)
            k = (r = dlp_spsc_pop(&rx, out, 0)) == DLP_OK;
        else if (kind == 2)
            k = dlp_spsc_try_pop_burst(&rx, out, want);
        else if (kind == 3)
            k = dlp_spsc_pop_burst(&rx, out, want, DLP_FOREVER);
        else
            k = dlp_spsc_peek(&rx, want, &stock);
        for (int64_t i = 0; i < k; i++)
            s->bad += !record_ok((const unsigned char *)stock + (uint64_t)i * s->record_bytes,
                                 s->record_bytes, 3, n + (uint64_t)i);
        if (k < 0 || (kind == 4 && dlp_spsc_release(&rx, (uint64_t)k) != DLP_OK)) exit(1);
        if (k == 0 && kind > 1 && draw(&state) % 2) r = dlp_spsc_wait_rx(&rx, DLP_NOWAIT);
        if (k == 0 && kind == 3) r = DLP_END; /* a burst that waits for ever says so */
        n += (uint64_t)k;
    }
    s->bad += n != s->records || dlp_spsc_try_pop(&rx, out) != DLP_END;
    return NULL;
}

static void stress_one(uint32_t record_bytes, uint64_t capacity, int processes) {
    stress s = {NULL, dlp_spsc_bytes(record_bytes, capacity), 40000 * work, seed, record_bytes, 0};
    guarded map = guarded_map(s.bytes, processes);
    s.mem = map.mem;
    CHECK(dlp_spsc_init(s.mem, s.bytes, record_bytes, capacity, processes) == DLP_OK);
    dlp_spsc *spsc = (dlp_spsc *)s.mem;
    spsc->head = spsc->tail = 0 - s.records / 2; /* the counters wrap half way */
    pthread_t thread = pthread_self();
    pid_t pid = 0;
    if (processes) {
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            stress_producer(&s);
            _exit(0);
        }
    } else {
        CHECK(pthread_create(&thread, NULL, stress_producer, &s) == 0);
    }
    stress_consumer(&s);
    if (processes)
        CHECK(child_status(pid) == 0);
    else
        pthread_join(thread, NULL);
    if (s.bad)
        fprintf(stderr,
                "record_bytes %u capacity %llu processes %d seed %llu: head %llx tail %llx\n",
                record_bytes, (unsigned long long)capacity, processes, (unsigned long long)seed,
                (unsigned long long)spsc->head, (unsigned long long)spsc->tail);
    CHECK(s.bad == 0);
    guarded_unmap(&map);
}

static void stress__threads__every_record_once_in_order(void) {
    static const uint32_t sizes[] = {8, 16, 24, 32, 64};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t capacity = 1; capacity <= 1024; capacity *= 8)
            stress_one(sizes[i], capacity * 2 - (capacity == 1), 0);
}

/* A producer's process is killed at any moment, also while it closes. Its successor is told whether
   it has closed, and if not, goes on. */
static void stress__closers_killed__every_record_once_then_the_end(void) {
    uint64_t state = seed, bytes = dlp_spsc_bytes(8, 64);
    for (int round = 0; round < 40; round++) {
        guarded map = guarded_map(bytes, 1);
        dlp_spsc_tx tx;
        dlp_spsc_rx rx;
        uint64_t got, next = 0;
        CHECK(dlp_spsc_init(map.mem, bytes, 8, 64, 1) == DLP_OK);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            if (dlp_spsc_attach_tx(&tx, map.mem, bytes) != DLP_OK) _exit(1);
            for (uint64_t i = 0; i < 50; i++) dlp_spsc_try_push(&tx, &i);
            dlp_spsc_close(&tx);
            for (;;) pause();
        }
        const dlp_spsc *spsc = (const dlp_spsc *)(void *)map.mem;
        while (round % 4 && DLPI_LOAD_SEQ(&spsc->tail) == 0) sched_yield();
        for (uint64_t wait = draw(&state) % 400; wait > 0; wait--) dlpi_pause();
        kill(pid, SIGKILL);
        CHECK(child_status(pid) == 1000);
        int r = dlp_spsc_attach_tx(&tx, map.mem, bytes);
        if (r == DLP_OK) {
            for (uint64_t i = tx.tail; i < 50; i++) CHECK(dlp_spsc_try_push(&tx, &i) == DLP_OK);
            dlp_spsc_close(&tx);
        }
        CHECK(r == DLP_OK || r == DLP_ERR_STATE);
        CHECK(dlp_spsc_attach_rx(&rx, map.mem, bytes) == DLP_OK);
        while ((r = dlp_spsc_pop(&rx, &got, DLP_FOREVER)) == DLP_OK) CHECK(got == next++);
        CHECK(r == DLP_END && next == 50);
        guarded_unmap(&map);
    }
}

static void stress__processes__every_record_once_in_order(void) {
    stress_one(8, 1024, 1);
    stress_one(8, 1, 1);
    stress_one(64, 16, 1);
    stress_one(40, 128, 1);
}

int main(int argc, char **argv) {
    if (argc > 1) seed = strtoull(argv[1], NULL, 0);
    if (getenv("SOAK")) work = 50;
    RUN(bytes__parameters_out_of_range__zero);
    RUN(init__bad_memory__err_arg);
    RUN(attach__any_header_byte_damaged__corrupt);
    RUN(counters__out_of_range__corrupt);
    RUN(calls__peer_scribbles__stay_in_range);
    RUN(push_pop__every_record_size_capacity_and_wrap__same_records);
    RUN(burst__any_length_over_the_wrap__as_many_as_fit);
    RUN(reserve__wrap_full_abort__contiguous_and_exact);
    RUN(head__lazy__published_after_an_eighth_or_when_empty);
    RUN(attach__successor__goes_on_from_published_counters);
    RUN(close__records_left__they_come_then_the_end);
    RUN(close__then_push__err_state);
    RUN(close__successors__producer_told_consumer_goes_on);
    RUN(stress__threads__every_record_once_in_order);
    RUN(stress__closers_killed__every_record_once_then_the_end);
    RUN(stress__processes__every_record_once_in_order);
    return done("queue_spsc");
}
