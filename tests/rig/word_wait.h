/* The portable wait on a word (DLPIPE_PORTABLE_WAIT): who is woken, in which order, by which bits;
   words that share a bucket; waits that end by time; a fork while locks are held; wakes that race
   with waits. */
#ifndef WORD_WAIT_H
#define WORD_WAIT_H

#include "posix.h"
#include <sys/wait.h>

enum { SLEEPERS = 6, FAR_NS = 1000000000 };

/* ---- threads that sleep ---- */

typedef struct sleeper {
    pthread_t thread;
    uint32_t *word, bits, expect;
    uint64_t ns;
    int result;    /* of the wait */
    uint32_t rose; /* the number of its return, from 1; 0: it sleeps */
} sleeper;

static uint32_t risen;

static void *sleep_on(void *arg) {
    sleeper *s = arg;
    s->result = dlpi_futex_wait(s->word, s->expect, s->bits, s->ns, 0);
    DLPI_STORE_SEQ(&s->rose, DLPI_ADD_SEQ(&risen, 1u) + 1);
    return NULL;
}

/* Return how many threads the bucket of a word has. */
static int asleep(const uint32_t *word) {
    dlpi_bucket *b = dlpi_bucket_of(word);
    int n = 0;
    dlpi_mutex_lock(&b->lock);
    for (const dlpi_word_sleeper *s = b->first; s != NULL; s = s->next) n++;
    dlpi_mutex_unlock(&b->lock);
    return n;
}

/* Let a thread sleep, and return once it does. */
static void begin(sleeper *s, uint32_t *word, uint32_t bits) {
    const int before = asleep(word);
    const uint64_t until = test_now_ns() + 20 * (uint64_t)FAR_NS;
    *s = (sleeper){.word = word, .bits = bits, .ns = 60 * (uint64_t)FAR_NS};
    CHECK(pthread_create(&s->thread, NULL, sleep_on, s) == 0);
    while (asleep(word) == before && test_now_ns() < until) test_pause(100000);
    CHECK(asleep(word) == before + 1);
}

static int rises(const sleeper *s) {
    const uint64_t until = test_now_ns() + 20 * (uint64_t)FAR_NS;
    while (DLPI_LOAD_SEQ(&s->rose) == 0 && test_now_ns() < until) test_pause(100000);
    return DLPI_LOAD_SEQ(&s->rose) != 0;
}

static void end(sleeper *s) {
    CHECK(rises(s));
    CHECK(pthread_join(s->thread, NULL) == 0 && s->result == 0);
}

/* ---- one after the other ---- */

static void wait__another_value__returns_at_once(void) {
    uint32_t word = 7;
    const uint64_t began = test_now_ns();
    CHECK(dlpi_futex_wait(&word, 6, ~0u, 60 * (uint64_t)FAR_NS, 0) == 0);
    CHECK(test_now_ns() - began < 20 * (uint64_t)FAR_NS && asleep(&word) == 0);
}

static void wait__nobody_wakes__ends_in_time(void) {
    static const uint64_t ns[] = {0, 1, 1000000, 30000000};
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        const uint64_t began = test_now_ns();
        CHECK(dlpi_futex_wait(&word, 0, 1, ns[i], 0) == 1);
        CHECK(test_now_ns() - began >= ns[i] && asleep(&word) == 0);
    }
}

static void wake__some__the_first_that_came(void) {
    static sleeper s[SLEEPERS];
    uint32_t word = 0;
    for (int i = 0; i < SLEEPERS; i++) begin(&s[i], &word, 1u << i);
    dlpi_futex_wake(&word, 1, ~0u, 0);
    CHECK(rises(&s[0]) && asleep(&word) == SLEEPERS - 1);
    dlpi_futex_wake(&word, 2, ~0u & ~2u, 0); /* not the second */
    CHECK(rises(&s[2]) && rises(&s[3]) && asleep(&word) == SLEEPERS - 3);
    dlpi_futex_wake(&word, INT_MAX, 1, 0); /* nobody has this bit any more */
    CHECK(asleep(&word) == SLEEPERS - 3);
    dlpi_futex_wake(&word, 0, ~0u, 0);
    CHECK(asleep(&word) == SLEEPERS - 3);
    dlpi_futex_wake(&word, INT_MAX, ~0u, 0);
    for (int i = 0; i < SLEEPERS; i++) end(&s[i]);
    CHECK(asleep(&word) == 0);
}

static void wake__a_word_of_the_same_bucket__others_sleep_on(void) {
    static uint32_t words[4096];
    static sleeper a, b;
    int other = 1;
    while (dlpi_bucket_of(&words[other]) != dlpi_bucket_of(&words[0])) other++;
    begin(&a, &words[0], 1);
    begin(&b, &words[other], 1);
    dlpi_futex_wake(&words[other], INT_MAX, ~0u, 0);
    end(&b);
    CHECK(DLPI_LOAD_SEQ(&a.rose) == 0 && asleep(&words[0]) == 1);
    dlpi_futex_wake(&words[0], INT_MAX, ~0u, 0);
    end(&a);
}

static void wait__words_of_a_pipe__in_many_buckets(void) {
    static uint64_t lines[8 * 64];
    int used[DLPI_BUCKETS] = {0}, n = 0;
    for (int i = 0; i < 64; i++)
        used[dlpi_bucket_of((uint32_t *)(void *)&lines[8 * i]) - dlpi_buckets] = 1;
    for (int i = 0; i < DLPI_BUCKETS; i++) n += used[i];
    CHECK(n >= 32); /* lines of 64 bytes that follow each other */
}

/* ---- a fork: the child has no lock and no sleeper of its parent ---- */

/* Fork while this thread has all locks. Returns the child's status: it waits, wakes and is gone, or
   is ended by a signal if it sleeps for ever. */
static int forked(uint32_t *word) {
    int status = -1;
    for (int i = 0; i < DLPI_BUCKETS; i++) dlpi_mutex_lock(&dlpi_buckets[i].lock);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (dlpi_bucket_of(word)->first != NULL) _exit(1);
        if (dlpi_futex_wait(word, 0, 1, 1000000, 0) != 1) _exit(2);
        dlpi_futex_wake(word, 1, 1, 0);
        _exit(0);
    }
    for (int i = 0; i < DLPI_BUCKETS; i++) dlpi_mutex_unlock(&dlpi_buckets[i].lock);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

/* It must come first: later a thread has waited. */
static void fork__threads_woke_alone__child_has_no_lock(void) {
    uint32_t word = 0;
    dlpi_futex_wake(&word, 1, 1, 0);
    CHECK(forked(&word) == 0);
}

static void fork__locked_buckets__child_has_none_of_them(void) {
    static sleeper s;
    uint32_t word = 0;
    begin(&s, &word, 1);
    CHECK(forked(&word) == 0);
    CHECK(asleep(&word) == 1);
    dlpi_futex_wake(&word, 1, 1, 0);
    end(&s);
}

/* ---- stress: each turn of a word is waited for, and no wake is lost ---- */

enum { PLAYERS = 4, WORDS = 3 };

typedef struct table {
    uint32_t word[WORDS]; /* turns taken */
    uint32_t late;        /* waits that ended by time */
    uint32_t turns;
} table;

typedef struct player {
    pthread_t thread;
    table *t;
    uint32_t number;
} player;

/* Take each turn of a word whose number is ours modulo PLAYERS, then wake the next player alone. A
   wake that is lost ends a wait of 10 s. */
static void *play(void *arg) {
    const player *me = arg;
    table *t = me->t;
    for (uint32_t turn = me->number; turn < t->turns; turn += PLAYERS)
        for (uint32_t w = 0; w < WORDS; w++) {
            uint32_t now;
            while ((now = DLPI_LOAD_ACQ(&t->word[w])) != turn)
                if (dlpi_futex_wait(&t->word[w], now, 1u << me->number, 10 * (uint64_t)FAR_NS, 0))
                    DLPI_ADD_SEQ(&t->late, 1u);
            DLPI_STORE_REL(&t->word[w], turn + 1);
            dlpi_futex_wake(&t->word[w], 1, 1u << (turn + 1) % PLAYERS, 0);
        }
    return NULL;
}

static void wake__at_any_moment__none_lost(void) {
    static table t;
    player p[PLAYERS];
    t.turns = getenv("SOAK") ? 2000000 : getenv("SHORT") ? 4000 : 20000;
    for (uint32_t i = 0; i < PLAYERS; i++) {
        p[i] = (player){.t = &t, .number = i};
        CHECK(pthread_create(&p[i].thread, NULL, play, &p[i]) == 0);
    }
    for (int i = 0; i < PLAYERS; i++) CHECK(pthread_join(p[i].thread, NULL) == 0);
    CHECK(t.late == 0);
    for (int w = 0; w < WORDS; w++) CHECK(t.word[w] == t.turns && asleep(&t.word[w]) == 0);
}

#endif
