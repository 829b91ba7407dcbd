/* Credits and firsts: words placed by hand, threads that pass cells round by counters which wrap,
   many writers of one record, and processes that die with a cell or half-way through a record.
   SOAK=1: 50 times as long. */
/* own: inside: the words of credits */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../rig/check.h"

enum { CELLS = 5, WRITERS = 4 };

static uint64_t rounds(uint64_t n) { return getenv("SOAK") ? 50 * n : n; }

static void counter__around_its_end__seen_as_published(void) {
    static const uint64_t at[] = {0, 1, UINT64_C(1) << 32, UINT64_MAX, 0};
    uint64_t counter = 7;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        dlpi_credit_publish(&counter, at[i]);
        CHECK(dlpi_credit_seen(&counter) == at[i] && dlpi_credit_look(&counter) == at[i]);
        dlpi_credit_publish_quiet(&counter, at[i] + 1);
        CHECK(dlpi_credit_seen(&counter) == at[i] + 1);
    }
    dlpi_credit_publish(&counter, UINT64_MAX);
    dlpi_credit_add(&counter);
    CHECK(dlpi_credit_look(&counter) == 0);
}

static void cell__taken__held_until_given_back(void) {
    uint32_t cell = 0;
    CHECK(dlpi_credit_held(&cell) == 0 && dlpi_credit_held_look(&cell) == 0);
    dlpi_credit_take(&cell, 7);
    CHECK(dlpi_credit_held(&cell) == 7 && dlpi_credit_held_look(&cell) == 7);
    dlpi_credit_done(&cell, 2); /* something else is with it now */
    CHECK(dlpi_credit_held(&cell) == 2);
    dlpi_credit_done(&cell, 0);
    CHECK(dlpi_credit_held(&cell) == 0);
    dlpi_credit_take(&cell, UINT32_MAX);
    dlpi_credit_done_quiet(&cell);
    CHECK(dlpi_credit_held(&cell) == 0);
}

static void end__closed__says_how(void) {
    uint32_t end = 0;
    CHECK(dlpi_credit_closed(&end) == 0);
    dlpi_credit_close(&end, 3);
    CHECK(dlpi_credit_closed(&end) == 3);
}

static void first__taken__second_writes_nothing(void) {
    uint32_t word = 0;
    CHECK(dlpi_first_seen(&word) == 0 && dlpi_first_look(&word) == 0);
    CHECK(dlpi_first_take(&word, 2 + 9));
    CHECK(!dlpi_first_take(&word, 2 + 4) && dlpi_first_seen(&word) == 2 + 9);
    dlpi_first_publish(&word);
    CHECK(!dlpi_first_take(&word, 2 + 4) && dlpi_first_seen(&word) == 1);
    word = 0;
    CHECK(dlpi_first_take(&word, 2));
    dlpi_first_publish_quiet(&word);
    CHECK(dlpi_first_look(&word) == 1);
}

/* ---- threads ---- */

static struct ring { /* one puts numbers into cells, one takes them; counters begin before 2^64 */
    uint64_t counter, first, n;
    uint32_t end, held[CELLS];
    uint64_t cell[CELLS];
} ring;

static void *fill_cells(void *quiet) {
    for (uint64_t i = 0; i < ring.n; i++) {
        uint32_t c = (uint32_t)(i % CELLS);
        while (dlpi_credit_held(&ring.held[c]) != 0) sched_yield();
        dlpi_credit_take(&ring.held[c], 1);
        ring.cell[c] = i * 3;
        if (quiet)
            dlpi_credit_publish_quiet(&ring.counter, ring.first + i + 1);
        else
            dlpi_credit_publish(&ring.counter, ring.first + i + 1);
    }
    dlpi_credit_close(&ring.end, 1);
    return NULL;
}

/* Returns how many numbers came, and were right. */
static uint64_t empty_cells(bool quiet) {
    uint64_t at = 0, right = 0;
    for (;;) {
        uint32_t end = dlpi_credit_closed(&ring.end); /* before the counter */
        uint64_t tail = quiet ? dlpi_credit_look(&ring.counter) : dlpi_credit_seen(&ring.counter);
        if (ring.first + at == tail && end) return right;
        if (ring.first + at == tail) sched_yield();
        for (; ring.first + at != tail; at++) {
            uint32_t c = (uint32_t)(at % CELLS);
            right += ring.cell[c] == at * 3;
            if (quiet)
                dlpi_credit_done_quiet(&ring.held[c]);
            else
                dlpi_credit_done(&ring.held[c], 0);
        }
    }
}

static void threads__counter_wraps__each_cell_once_and_none_after_the_end(void) {
    for (int quiet = 0; quiet < 2; quiet++) {
        pthread_t thread;
        memset(&ring, 0, sizeof ring);
        ring.n = rounds(20000);
        ring.counter = ring.first = UINT64_MAX - ring.n / 2;
        CHECK(pthread_create(&thread, NULL, fill_cells, quiet ? &ring : NULL) == 0);
        CHECK(empty_cells(quiet != 0) == ring.n);
        pthread_join(thread, NULL);
        CHECK(ring.counter == ring.first + ring.n && ring.counter < ring.first);
    }
}

static uint64_t added;

static void *add_many(void *arg) {
    const uint64_t *n = arg;
    for (uint64_t i = 0; i < *n; i++) dlpi_credit_add(&added);
    return NULL;
}

static void threads__many_add__none_is_lost(void) {
    pthread_t thread[WRITERS];
    uint64_t n = rounds(20000);
    for (int i = 0; i < WRITERS; i++) CHECK(pthread_create(&thread[i], NULL, add_many, &n) == 0);
    for (int i = 0; i < WRITERS; i++) pthread_join(thread[i], NULL);
    CHECK(dlpi_credit_seen(&added) == WRITERS * n);
}

static struct error { /* a record that the first writes */
    uint32_t word;
    uint32_t who;
    uint64_t text[4];
} * errors;
static uint64_t n_errors;

static void *write_first(void *arg) {
    const uint32_t *me = arg;
    uint64_t wrote = 0;
    for (uint64_t i = 0; i < n_errors; i++) {
        struct error *e = &errors[i];
        if ((i / 2 + *me) % 2 == 0 && dlpi_first_take(&e->word, 2 + *me)) { /* half only read */
            e->who = *me;
            for (int k = 0; k < 4; k++) e->text[k] = *me * 10 + (uint64_t)k;
            if (i & 1)
                dlpi_first_publish(&e->word);
            else
                dlpi_first_publish_quiet(&e->word);
            wrote++;
        }
        if ((i & 1 ? dlpi_first_seen(&e->word) : dlpi_first_look(&e->word)) != 1) continue;
        for (int k = 0; k < 4; k++) CHECK(e->text[k] == e->who * 10 + (uint64_t)k);
    }
    return (void *)(uintptr_t)wrote;
}

static void threads__many_firsts__one_writes_each_and_others_read_it_whole(void) {
    pthread_t thread[WRITERS];
    uint32_t me[WRITERS];
    uint64_t wrote = 0;
    n_errors = rounds(20000);
    errors = calloc((size_t)n_errors, sizeof *errors);
    CHECK(errors != NULL);
    for (uint32_t i = 0; i < WRITERS; i++) {
        me[i] = i;
        CHECK(pthread_create(&thread[i], NULL, write_first, &me[i]) == 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *n;
        pthread_join(thread[i], &n);
        wrote += (uintptr_t)n;
    }
    CHECK(wrote == n_errors);
    for (uint64_t i = 0; i < n_errors; i++) CHECK(dlpi_first_seen(&errors[i].word) == 1);
    free(errors);
}

/* ---- processes that die ---- */

struct shared {
    uint64_t counter;
    uint32_t held, word;
};

/* Its last store is what step says; then it is killed. */
static void die_at(struct shared *s, int step) {
    dlpi_credit_take(&s->held, 4);
    if (step == 0) kill(getpid(), SIGKILL);
    dlpi_credit_publish(&s->counter, 1);
    if (step == 1) kill(getpid(), SIGKILL);
    dlpi_credit_done(&s->held, 0);
    if (step == 2) kill(getpid(), SIGKILL);
    if (!dlpi_first_take(&s->word, 2 + 4)) _exit(1);
    if (step == 3) kill(getpid(), SIGKILL);
    dlpi_first_publish(&s->word);
    kill(getpid(), SIGKILL);
}

/* Whatever step it died at, its words say what is with the cell, and who wrote the record. */
static void processes__killed_at_each_step__words_tell(void) {
    for (int step = 0; step <= 4; step++) {
        struct shared *s =
            mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status = 0;
        pid_t pid = s != MAP_FAILED ? fork() : -1;
        if (pid == 0) die_at(s, step);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(dlpi_credit_held(&s->held) == (step < 2 ? 4 : 0));
        CHECK(dlpi_credit_seen(&s->counter) == (step > 0));
        CHECK(dlpi_first_seen(&s->word) == (step < 3 ? 0 : step == 3 ? 2 + 4 : 1));
        if (step == 3) { /* recovery ends the record for it; nobody comes between */
            CHECK(!dlpi_first_take(&s->word, 2));
            dlpi_first_publish(&s->word);
        }
        CHECK(dlpi_first_take(&s->word, 2) == (step < 3));
        munmap(s, sizeof *s);
    }
}

int main(void) {
    counter__around_its_end__seen_as_published();
    cell__taken__held_until_given_back();
    end__closed__says_how();
    first__taken__second_writes_nothing();
    processes__killed_at_each_step__words_tell();
    threads__counter_wraps__each_cell_once_and_none_after_the_end();
    threads__many_add__none_is_lost();
    threads__many_firsts__one_writes_each_and_others_read_it_whole();
    return test_end("queue_credit");
}
