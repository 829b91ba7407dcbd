#pragma once
#include "api/atomics.h"
#include "base/clock.h"
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

typedef struct dlpi_lot_waiter {
    struct dlpi_lot_waiter *next;
    uint32_t *word;
    uint32_t bits;
    int woken;
    pthread_cond_t cond;
} dlpi_lot_waiter;

static struct {
    pthread_mutex_t lock;
    dlpi_lot_waiter *first;
} dlpi_park_lot[DLPI_PARK_BUCKETS];
static pthread_once_t dlpi_park_once = PTHREAD_ONCE_INIT;

static void dlpi_park_begin(void) {
    for (uint32_t i = 0; i < DLPI_PARK_BUCKETS; i++)
        pthread_mutex_init(&dlpi_park_lot[i].lock, NULL);
}

static uint32_t dlpi_park_bucket(const uint32_t *word) {
    return (uint32_t)(((uintptr_t)word * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

static int dlpi_lot_nap(const uint32_t *word, uint32_t expect, uint64_t timeout_ns) {
    uint64_t begin = dlpi_now_ns(), nap = 50000;
    while (DLPI_LOAD_SEQ(word) == expect) { /* W1, any change of the word */
        uint64_t gone = dlpi_now_ns() - begin;
        if (gone >= timeout_ns) return 1;
        if (nap > timeout_ns - gone) nap = timeout_ns - gone;
        struct timespec t = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
        nanosleep(&t, NULL);
        if (nap < 1000000) nap *= 2;
    }
    return 0;
}

static int dlpi_lot_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns) {
    pthread_mutex_t *lock = &dlpi_park_lot[dlpi_park_bucket(word)].lock;
    dlpi_lot_waiter **list = &dlpi_park_lot[dlpi_park_bucket(word)].first;
    dlpi_lot_waiter me = {NULL, word, bits, 0, PTHREAD_COND_INITIALIZER};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t at = (uint64_t)t.tv_nsec + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
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
            while (*list != &me) list = &(*list)->next;
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
    if (shared) return dlpi_lot_nap(word, expect, timeout_ns);
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    return dlpi_lot_wait(word, expect, bits, timeout_ns);
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    if (shared) return;
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    uint32_t bucket = dlpi_park_bucket(word);
    pthread_mutex_lock(&dlpi_park_lot[bucket].lock);
    dlpi_lot_waiter **at = &dlpi_park_lot[bucket].first;
    while (*at && n > 0) {
        dlpi_lot_waiter *sleeper = *at;
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
