/* The claim link: words placed by hand, each call beside late and dead readers, and threads that
   claim, free and finish units of batches around the end of generations. SOAK=1: 50 times as long.
 */
/* own: inside: the words of claims */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../rig/check.h"

enum { UNITS = 70, READERS = 3 };

static const uint64_t batches[] = {0,
                                   1,
                                   2,
                                   UINT64_C(1) << 32,
                                   (UINT64_C(1) << 38) - 1,
                                   UINT64_C(1) << 38,
                                   DLPI_GEN_MASK - 1,
                                   DLPI_GEN_MASK,
                                   DLPI_GEN_MASK + 1,
                                   DLPI_GEN_MASK + 2,
                                   (UINT64_C(5) << 39) - 1,
                                   UINT64_C(5) << 39};
enum { BATCHES = sizeof batches / sizeof *batches };

static uint64_t mine(uint64_t b, uint32_t who) { return dlpi_gen_word(b, who + 1u); }

static void head__packed__read_back(void) {
    static const uint32_t counts[] = {0, 1, 31, 32, 33, 1000, 0x1fffff};
    for (int i = 0; i < BATCHES; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            for (uint32_t shift = 0; shift <= 5; shift++) {
                dlpi_claim_word head = 0;
                uint64_t word;
                dlpi_claim_publish(&head, dlpi_header(batches[i], counts[k], k & 1u, shift));
                word = dlpi_claim_head(&head);
                CHECK(word == dlpi_claim_head_now(&head));
                CHECK(dlpi_gen(word) == (batches[i] & DLPI_GEN_MASK));
                CHECK(dlpi_header_count(word) == counts[k] && dlpi_header_shift(word) == shift);
                CHECK(dlpi_header_padded(word) == ((k & 1) != 0));
                CHECK(dlpi_units(counts[k], shift) << shift >= counts[k]);
                CHECK(counts[k] == 0 || (dlpi_units(counts[k], shift) - 1u) << shift < counts[k]);
            }
}

static void older__around_the_end_of_generations__as_counted(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], half = UINT64_C(1) << (DLPI_GEN_BITS - 1);
        CHECK(!dlpi_older(b & DLPI_GEN_MASK, b));
        CHECK(dlpi_older((b - 1) & DLPI_GEN_MASK, b));
        CHECK(dlpi_older((b - half) & DLPI_GEN_MASK, b));
        CHECK(!dlpi_older((b - half - 1) & DLPI_GEN_MASK, b));
        CHECK(!dlpi_older((b + 1) & DLPI_GEN_MASK, b));
    }
}

static void take__two_readers__one_has_it(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], seen;
        dlpi_claim_word own = mine(b - 2, 1); /* of the batch before in this record */
        seen = dlpi_claim_look(&own);
        CHECK(dlpi_older(dlpi_gen(seen), b));
        CHECK(dlpi_claim_take(&own, seen, mine(b, 0)));
        CHECK(!dlpi_claim_take(&own, seen, mine(b, 1)));
        CHECK(dlpi_claim_owner(&own) == mine(b, 0));
        CHECK(!dlpi_older(dlpi_gen(dlpi_claim_look(&own)), b));
    }
}

/* It has read the word, and sleeps while the record goes round. */
static void take__late_reader__fails(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i];
        dlpi_claim_word own = mine(b - 2, 1);
        uint64_t seen = dlpi_claim_look(&own);
        for (uint64_t later = b; later < b + 6; later += 2) {
            CHECK(dlpi_claim_take(&own, dlpi_claim_look(&own), mine(later, 1)));
            CHECK(!dlpi_claim_take(&own, seen, mine(b, 0)));
            CHECK(!dlpi_older(dlpi_gen(dlpi_claim_look(&own)), b));
        }
    }
}

static void freed__any_batch__claimed_by_one_who_reads_it_then(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], first, second;
        uint32_t frees = DLPI_FREED - 2; /* the number comes round here */
        dlpi_claim_word own = mine(b, 0);
        CHECK(!dlpi_claim_was_freed(&own, b));
        for (int k = 0; k < 4; k++) {
            first = dlpi_claim_freed(&frees, b);
            dlpi_claim_free(&own, first);
            CHECK(dlpi_claim_was_freed(&own, b) && !dlpi_claim_was_freed(&own, b + 1));
            CHECK(dlpi_older(dlpi_gen(first), b) && (dlpi_gen_low(first) & DLPI_FREED) != 0);
            CHECK((dlpi_gen_low(first) & DLPI_REDO) == 0);
            CHECK(dlpi_claim_take(&own, first, mine(b, 1)));
            CHECK(!dlpi_claim_was_freed(&own, b));
            second = dlpi_claim_freed(&frees, b);
            CHECK(second != first);
            dlpi_claim_free(&own, second);
            CHECK(!dlpi_claim_take(&own, first, mine(b, 2))); /* who slept over both */
            CHECK(dlpi_claim_take(&own, dlpi_claim_look(&own), mine(b, 2)));
        }
    }
}

/* A mark is nobody's claim and no free unit: neither its old owner nor a claimer takes it. */
static void mark__unit_goes_back__nobody_takes_it(void) {
    for (int i = 0; i < BATCHES; i++) {
        uint64_t b = batches[i], mark = dlpi_claim_reserved(b, 1);
        uint32_t frees = 0;
        dlpi_claim_word own = mine(b, 0);
        dlpi_claim_free(&own, mark);
        CHECK(dlpi_claim_owner(&own) == mark && mark != mine(b, 1) && mark != mine(b, 0));
        CHECK(!dlpi_older(dlpi_gen(mark), b) && !dlpi_claim_was_freed(&own, b));
        CHECK(!dlpi_claim_take(&own, mine(b, 0), dlpi_claim_freed(&frees, b))); /* its recovery */
        dlpi_claim_free(&own, dlpi_claim_freed(&frees, b));
        CHECK(dlpi_claim_was_freed(&own, b));
    }
}

/* Units of batch b that are not claimed. */
static uint32_t left(const dlpi_claim_word *own, uint64_t b) {
    uint32_t n = 0;
    for (uint32_t u = 0; u < UNITS; u++) n += dlpi_older(dlpi_gen(dlpi_claim_look(&own[u])), b);
    return n;
}

/* Recovery finds what carries the dead one's number, of this generation alone. */
static void recovery__dead_reader__its_units_and_no_others(void) {
    uint64_t b = DLPI_GEN_MASK; /* the next is generation 0 */
    uint32_t frees = 0, found = 0;
    dlpi_claim_word own[UNITS];
    for (uint32_t u = 0; u < UNITS; u++) own[u] = u % 3 == 2 ? mine(b - 1, 0) : mine(b, u % 3);
    CHECK(left(own, b) == UNITS / 3 && left(own, b + 1) == UNITS);
    for (uint32_t u = 0; u < UNITS; u++) {
        if (dlpi_claim_owner(&own[u]) != mine(b, 0)) continue;
        CHECK(u % 3 == 0);
        CHECK(dlpi_claim_take(&own[u], mine(b, 0), dlpi_claim_freed(&frees, b)));
        CHECK(!dlpi_claim_take(&own[u], mine(b, 0), dlpi_claim_freed(&frees, b))); /* once more */
        found++;
    }
    CHECK(found == (UNITS + 2) / 3);
    CHECK(left(own, b) == UNITS / 3 + found);
}

static void cursor__other_batch__from_the_first_unit(void) {
    for (int i = 0; i < BATCHES; i++) {
        dlpi_claim_word cursor = 0;
        uint64_t b = batches[i];
        dlpi_claim_advance(&cursor, b, 33);
        CHECK(dlpi_claim_cursor(&cursor, b) == 33);
        CHECK(dlpi_claim_cursor(&cursor, b + 1) == 0 && dlpi_claim_cursor(&cursor, b - 1) == 0);
    }
}

/* A record whose word says what is with it: open, somebody's, closed. */
static void close__reader_came_first__refused(void) {
    uint64_t open = dlpi_gen_word(7, DLPI_REDO), closed = dlpi_gen_word(7, 0);
    dlpi_claim_word state = open;
    CHECK(dlpi_claim_take(&state, open, closed) && state == closed);
    CHECK(!dlpi_claim_take(&state, open, mine(7, 0)));
    state = open;
    CHECK(dlpi_claim_take(&state, open, mine(7, 0)));
    CHECK(!dlpi_claim_take(&state, open, closed) && state == mine(7, 0));
    dlpi_claim_done(&state, closed);
    CHECK(dlpi_claim_owner(&state) == closed);
}

static void rescan__each__seen(void) {
    uint64_t rescans = 0, before = dlpi_claim_rescans(&rescans);
    dlpi_claim_rescan(&rescans);
    CHECK(dlpi_claim_rescans(&rescans) == before + 1);
}

/* ---- threads ---- */

static struct {
    dlpi_claim_word head, own[UNITS];
    uint32_t frees, stop;
    uint64_t left;        /* units of the present batch that are not finished */
    uint32_t work[UNITS]; /* of the owner alone: the thread sanitizer looks at it */
} rec;

/* Every 8th claim is given up again; the others are worked on once. */
static void *claim_units(void *arg) {
    uint32_t who = *(uint32_t *)arg, turn = who;
    while (!DLPI_LOAD_RLX(&rec.stop)) {
        uint64_t head = dlpi_claim_head(&rec.head), b = dlpi_gen(head);
        for (uint32_t u = 0; u < dlpi_header_count(head); u++) {
            uint64_t seen = dlpi_claim_look(&rec.own[u]);
            if (!dlpi_older(dlpi_gen(seen), b)) continue;
            if (!dlpi_claim_take(&rec.own[u], seen, mine(b, who))) continue;
            if (++turn % 8 == 0) {
                dlpi_claim_free(&rec.own[u], dlpi_claim_freed(&rec.frees, b));
                continue;
            }
            rec.work[u]++;
            DLPI_ADD_SEQ(&rec.left, ~UINT64_C(0));
        }
        sched_yield();
    }
    return NULL;
}

static void threads__batches_and_frees__each_unit_done_once(void) {
    uint64_t n = getenv("SOAK") ? 100000 : 2000, from = DLPI_GEN_MASK - n / 2;
    pthread_t thread[READERS];
    uint32_t who[READERS];
    for (uint32_t u = 0; u < UNITS; u++) rec.own[u] = mine(from - 1, 0);
    rec.head = dlpi_header(from - 1, 0, 0, 0);
    for (uint32_t i = 0; i < READERS; i++) {
        who[i] = i;
        CHECK(pthread_create(&thread[i], NULL, claim_units, &who[i]) == 0);
    }
    for (uint64_t k = 0; k < n; k++) {
        uint32_t wrong = 0;
        DLPI_STORE_SEQ(&rec.left, (uint64_t)UNITS);
        dlpi_claim_publish(&rec.head, dlpi_header(from + k, UNITS, 0, 0));
        while (DLPI_LOAD_SEQ(&rec.left) != 0) sched_yield();
        for (uint32_t u = 0; u < UNITS; u++) wrong += rec.work[u] != k + 1;
        CHECK(wrong == 0 && left(rec.own, from + k) == 0);
    }
    DLPI_STORE_RLX(&rec.stop, 1u);
    for (int i = 0; i < READERS; i++) pthread_join(thread[i], NULL);
    CHECK(rec.frees > 0);
}

/* Which of two generations is older, on both sides of the wrap. */
static void older__both_sides_of_the_wrap__as_counted(void) {
    const uint64_t mask = DLPI_GEN_MASK, half = UINT64_C(1) << (DLPI_GEN_BITS - 1);
    CHECK(dlpi_older(4, 5) && !dlpi_older(5, 5) && !dlpi_older(6, 5));
    CHECK(dlpi_older(mask, 0) && dlpi_older(mask, UINT64_C(1) << DLPI_GEN_BITS) &&
          !dlpi_older(0, mask));
    CHECK(dlpi_older(0, half) && !dlpi_older(half - 1, 0) && dlpi_older(half, 0));
    CHECK(dlpi_older(mask - 3, 2) && !dlpi_older(2, mask - 3));
}

int main(void) {
    head__packed__read_back();
    older__around_the_end_of_generations__as_counted();
    older__both_sides_of_the_wrap__as_counted();
    take__two_readers__one_has_it();
    take__late_reader__fails();
    freed__any_batch__claimed_by_one_who_reads_it_then();
    mark__unit_goes_back__nobody_takes_it();
    recovery__dead_reader__its_units_and_no_others();
    cursor__other_batch__from_the_first_unit();
    close__reader_came_first__refused();
    rescan__each__seen();
    threads__batches_and_frees__each_unit_done_once();
    return test_end("queue_claim");
}
