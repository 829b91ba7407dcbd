/* The gather link: words placed by hand, each call beside late closers and dead writers, and
   threads that complete rows while a reader takes batches in order. SOAK=1: 50 times as long. */
/* own: inside: the words of rows that are done */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../rig/check.h"

enum { WORDS = 40, WRITERS = 3, RECORDS = 4, ROWS = 70 };

static const uint64_t batches[] = {
    0, 1, UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 39) - 1, (UINT64_C(1) << 47) - 2};
enum { BATCHES = sizeof batches / sizeof *batches };

static const uint32_t counts[] = {1, 2, 31, 32, 33, 63, 64, 65, 100, 1000};
enum { COUNTS = sizeof counts / sizeof *counts };

static void fill(dlpi_gather_word *done, uint64_t b, uint32_t from, uint32_t to) {
    for (uint32_t row = from, end; row < to; row = end) {
        end = (row / DLPI_WORD_ROWS + 1) * DLPI_WORD_ROWS;
        if (end > to) end = to;
        dlpi_gather_publish(&done[row / DLPI_WORD_ROWS], b, dlpi_unit_mask(row, end));
    }
}

static void publish__older_generation__counts_as_empty(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i];
        dlpi_gather_word done = (b - 1) << 32 | UINT32_MAX;
        CHECK(dlpi_gather_bits(&done, 0, b) == 0);
        CHECK(dlpi_gather_publish(&done, b, 4) == 4);
        CHECK(dlpi_gather_publish(&done, b, 3) == 7);
        CHECK(dlpi_gather_publish(&done, b, 3) == 7); /* done twice is done */
        CHECK(dlpi_gather_bits(&done, 0, b) == 7);
        CHECK(dlpi_gather_bits(&done, 0, b + 1) == 0 && dlpi_gather_bits(&done, 0, b - 1) == 0);
        dlpi_gather_take_back(&done, 5);
        CHECK(dlpi_gather_bits(&done, 0, b) == 2);
    }
}

static void masks__rows_of_a_word__their_bits(void) {
    for (uint32_t row = 0; row < 96; row++)
        for (uint32_t end = row + 1; end <= (row / 32 + 1) * 32; end++) {
            uint32_t mask = dlpi_unit_mask(row, end);
            CHECK((uint32_t)__builtin_popcount(mask) == end - row);
            CHECK((mask & 1u << row % 32) != 0 && (mask & 1u << (end - 1) % 32) != 0);
        }
    for (int k = 0; k < COUNTS; k++) {
        uint32_t all = 0;
        for (uint32_t i = 0; i * 32 < counts[k]; i++)
            all += (uint32_t)__builtin_popcount(dlpi_word_full(counts[k], i));
        CHECK(all == counts[k]);
    }
}

/* Each row in turn is the one that is missing. */
static void full__one_row_missing__not_full(void) {
    for (int i = 0; i < BATCHES; i++)
        for (int k = 0; k < COUNTS; k++) {
            uint64_t b = batches[i], scan;
            uint32_t n = counts[k];
            dlpi_gather_word done[WORDS];
            for (int w = 0; w < WORDS; w++) done[w] = (b - 1) << 32 | UINT32_MAX;
            fill(done, b, 0, n);
            CHECK(dlpi_gather_full(done, NULL, b, n, b));
            CHECK(!dlpi_gather_full(done, NULL, b + 1, n, b));
            for (uint32_t row = 0; row < n; row++) {
                scan = 0; /* of another batch, or of none: begins at the first word */
                dlpi_gather_take_back(&done[row / 32], 1u << row % 32);
                CHECK(!dlpi_gather_full(done, NULL, b, n, b));
                CHECK(!dlpi_gather_full(done, &scan, b, n, b));
                dlpi_gather_publish(&done[row / 32], b, 1u << row % 32);
                CHECK(dlpi_gather_full(done, &scan, b, n, b));
            }
        }
}

/* Words below the hint are not read again; a batch that went back has another hint. */
static void scan__batch_went_back__begins_again(void) {
    uint64_t b = 5, scan = 0;
    dlpi_gather_word done[WORDS] = {0}, ready = b; /* the batch before is out */
    fill(done, b, 0, 96);
    CHECK(!dlpi_gather_full(done, &scan, b, 100, dlpi_gather_look(&ready)));
    CHECK((scan & 0xffff) == 3);
    done[0] = 0; /* nobody may do that: it shows that the hint was used */
    fill(done, b, 96, 100);
    CHECK(dlpi_gather_full(done, &scan, b, 100, dlpi_gather_look(&ready)));
    dlpi_gather_undo(&ready, b);
    CHECK(!dlpi_gather_full(done, &scan, b, 100, dlpi_gather_look(&ready)));
    fill(done, b, 0, 32);
    CHECK(dlpi_gather_full(done, &scan, b, 100, dlpi_gather_look(&ready)));
    CHECK(!dlpi_gather_full(done, &scan, b + (UINT64_C(1) << 31), 100, ready)); /* not its hint */
}

static void close__two_closers__one_lets_it_out(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], first, second;
        dlpi_gather_word ready = b; /* batch b - 1 is out */
        first = dlpi_gather_look(&ready);
        second = dlpi_gather_ready(&ready);
        CHECK(!dlpi_ready_is(first, b) && !dlpi_ready_past(first, b));
        CHECK(dlpi_gather_close(&ready, first, b));
        CHECK(!dlpi_gather_close(&ready, second, b));
        CHECK(dlpi_ready_is(ready, b) && dlpi_ready_past(ready, b));
        CHECK(!dlpi_ready_is(ready, b + 1) && !dlpi_ready_past(ready, b + 1));
    }
}

/* It has read ready, and sleeps while the batch goes back and comes again. */
static void close__late_closer__fails(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], late;
        dlpi_gather_word ready = b;
        late = dlpi_gather_look(&ready);
        CHECK(dlpi_gather_close(&ready, late, b));
        dlpi_gather_undo(&ready, b);
        CHECK(!dlpi_ready_is(ready, b) && !dlpi_ready_past(ready, b));
        CHECK(!dlpi_gather_close(&ready, late, b));
        CHECK(dlpi_gather_close(&ready, dlpi_gather_look(&ready), b));
        CHECK(dlpi_ready_is(ready, b));
    }
}

static void pass__batch_went_back_before__its_count_stays(void) {
    dlpi_gather_word ready = 8, other = 8;
    for (uint64_t b = 8; b < 12; b++) {
        dlpi_gather_undo(&ready, b);
        dlpi_gather_pass(&ready, b);
        CHECK(dlpi_ready_is(ready, b) && ready >> DLPI_READY_BITS == b - 7);
    }
    dlpi_gather_skip(&ready, 12);
    CHECK(dlpi_ready_is(ready, 12) && ready >> DLPI_READY_BITS == 4);
    dlpi_gather_put(&other, 12);
    CHECK(other == 13);
    other = UINT64_C(0xffff) << DLPI_READY_BITS | 13;
    dlpi_gather_undo(&other, 12); /* the count comes round */
    CHECK(other == 12);
}

/* What recovery reads of a dead writer's unit. */
static void missing__any_generation__of_this_batch_alone(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i];
        dlpi_gather_word done = b << 32 | 0x0f;
        CHECK(dlpi_gather_missing(&done, b, 0xff) == 0xf0);
        CHECK(dlpi_gather_missing(&done, b, 0x0f) == 0);
        CHECK(dlpi_gather_missing(&done, b + 1, 0xff) == 0xff); /* not begun */
        CHECK(dlpi_gather_missing(&done, b - 1, 0xff) == 0);    /* out long ago */
    }
}

/* ---- threads ---- */

static struct {
    dlpi_gather_word done[WORDS], ready;
    uint64_t scan;
    uint32_t row[ROWS];
} rec[RECORDS];
static uint64_t tail, base, last;
static uint32_t closers;

/* Rows are dealt by number; each third is done twice, as after a recovery. */
static void *complete_rows(void *arg) {
    uint32_t who = *(uint32_t *)arg;
    for (uint64_t b = 0; b < last; b++) {
        uint32_t r = (uint32_t)(b % RECORDS);
        while (dlpi_credit_seen(&tail) <= b) sched_yield();
        for (uint32_t row = who; row < ROWS; row += WRITERS) {
            uint32_t i = row / 32, bits;
            uint64_t seen;
            rec[r].row[row]++;
            /* not its last one: behind that the record may be another batch's */
            for (int again = row % 3 == 0 && row + WRITERS < ROWS; again >= 0; again--) {
                bits = dlpi_gather_publish(&rec[r].done[i], b, 1u << row % 32);
                if (bits != dlpi_word_full(ROWS, i)) continue;
                seen = dlpi_gather_look(&rec[r].ready);
                if (dlpi_ready_past(seen, b)) continue;
                if (!dlpi_gather_full(rec[r].done, &rec[r].scan, b, ROWS, seen)) continue;
                if (dlpi_gather_close(&rec[r].ready, seen, b)) DLPI_ADD_SEQ(&closers, 1u);
            }
        }
    }
    return NULL;
}

static void threads__rows_completed_twice__each_batch_once_in_order(void) {
    pthread_t thread[WRITERS];
    uint32_t who[WRITERS];
    last = getenv("SOAK") ? 1000000 : 20000;
    for (uint32_t r = 0; r < RECORDS; r++) memset(rec[r].done, 0xff, sizeof rec[r].done);
    for (uint32_t i = 0; i < WRITERS; i++) {
        who[i] = i;
        CHECK(pthread_create(&thread[i], NULL, complete_rows, &who[i]) == 0);
    }
    while (base < last) {
        uint32_t r = (uint32_t)(base % RECORDS), wrong = 0;
        if (tail < last && tail - base < RECORDS) {
            dlpi_credit_publish(&tail, tail + 1);
            continue;
        }
        while (!dlpi_ready_is(dlpi_gather_ready(&rec[r].ready), base)) sched_yield();
        for (uint32_t row = 0; row < ROWS; row++) wrong += rec[r].row[row] != base / RECORDS + 1;
        CHECK(wrong == 0 && dlpi_gather_full(rec[r].done, NULL, base, ROWS, base));
        base++;
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(thread[i], NULL);
    CHECK(closers == last);
}

int main(void) {
    publish__older_generation__counts_as_empty();
    masks__rows_of_a_word__their_bits();
    full__one_row_missing__not_full();
    scan__batch_went_back__begins_again();
    close__two_closers__one_lets_it_out();
    close__late_closer__fails();
    pass__batch_went_back_before__its_count_stays();
    missing__any_generation__of_this_batch_alone();
    threads__rows_completed_twice__each_batch_once_in_order();
    return test_end("queue_gather");
}
