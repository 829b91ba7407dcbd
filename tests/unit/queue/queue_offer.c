/* Offers: words placed by hand; and a thread that uses cells again beside readers that are late. */
/* own: inside: the words of offers */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"

#include <pthread.h>

enum { CELLS = 3, WORDS = 16, READERS = 2 };

static const uint64_t batches[] = {0, 1, 7, UINT64_C(1) << 39, (UINT64_C(1) << 62) + 5};

static void word__offered__taken_once_then_given(void) {
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        uint64_t b = batches[i], word = b / 2;
        CHECK(dlpi_offer_open(dlpi_offer_look(&word), b) && !dlpi_offer_over(&word, b));
        CHECK(dlpi_offer_take(&word, b) && !dlpi_offer_take(&word, b));
        CHECK(!dlpi_offer_open(dlpi_offer_look(&word), b) && !dlpi_offer_over(&word, b));
        CHECK(!dlpi_offer_withdraw(&word, b)); /* it is held */
        dlpi_offer_give(&word, b);
        CHECK(dlpi_offer_over(&word, b) && dlpi_offer_withdraw(&word, b));
        CHECK(!dlpi_offer_take(&word, b));
        CHECK(dlpi_offer_open(dlpi_offer_look(&word), b + 1) && dlpi_offer_take(&word, b + 1));
    }
}

static void word__withdrawn__not_taken(void) {
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        uint64_t b = batches[i], word = 0;
        CHECK(dlpi_offer_withdraw(&word, b) && dlpi_offer_over(&word, b));
        CHECK(!dlpi_offer_take(&word, b));
        CHECK(b == 0 || !dlpi_offer_take(&word, b - 1)); /* of a batch before it, read late */
    }
}

/* Left as taken by one that died: the next in its place is offered later batches. */
static void word__of_a_dead_reader__the_next_goes_on(void) {
    uint64_t word = 9 | DLPI_OFFER_TAKEN;
    CHECK(dlpi_offer_open(dlpi_offer_look(&word), 9) && dlpi_offer_take(&word, 9));
    dlpi_offer_give(&word, 9);
    word = 9 | DLPI_OFFER_TAKEN;
    CHECK(dlpi_offer_withdraw(&word, 12) && dlpi_offer_over(&word, 12));
}

static struct {
    uint64_t which[CELLS];        /* batch + 1 */
    uint64_t bytes[CELLS][WORDS]; /* plain: the offers alone guard them */
    uint64_t word[READERS][CELLS];
    uint32_t end;
    uint64_t taken[READERS], wrong[READERS];
} w;

static void *reader(void *arg) {
    size_t me = (size_t)arg, k = 0;
    while (!DLPI_LOAD_ACQ(&w.end)) {
        uint64_t b = DLPI_LOAD_SEQ(&w.which[k]) - 1;
        k = (k + 1) % CELLS;
        if (b + 1 == 0) continue;
        size_t cell = b % CELLS;
        if (!dlpi_offer_take(&w.word[me][cell], b)) continue;
        for (int i = 0; i < WORDS; i++) w.wrong[me] += w.bytes[cell][i] != b * WORDS + (uint64_t)i;
        w.taken[me]++;
        dlpi_offer_give(&w.word[me][cell], b);
    }
    return NULL;
}

static void cells__used_again_beside_readers__never_under_them(void) {
    pthread_t threads[READERS];
    uint64_t n = getenv("SOAK") ? 20000000 : getenv("SHORT") ? 100000 : 500000, withdrawn = 0;
    memset(&w, 0, sizeof w);
    for (size_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, (void *)i) == 0);
    for (uint64_t b = 0; b < n; b++) {
        size_t k = b % CELLS;
        for (size_t i = 0; i < READERS && b >= CELLS; i++) {
            while (!dlpi_offer_withdraw(&w.word[i][k], b - CELLS)) sched_yield();
            withdrawn++;
        }
        for (int i = 0; i < WORDS; i++) w.bytes[k][i] = b * WORDS + (uint64_t)i;
        DLPI_STORE_SEQ(&w.which[k], b + 1);
    }
    for (int i = 0; i < 10000 && w.taken[0] == 0 && i >= 0; i++) sched_yield();
    DLPI_STORE_REL(&w.end, 1u);
    for (size_t i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < READERS; i++) CHECK(w.wrong[i] == 0);
    CHECK(w.taken[0] + w.taken[1] > 0 && withdrawn == (n - CELLS) * READERS);
}

int main(void) {
    word__offered__taken_once_then_given();
    word__withdrawn__not_taken();
    word__of_a_dead_reader__the_next_goes_on();
    cells__used_again_beside_readers__never_under_them();
    return test_end("queue_offer");
}
