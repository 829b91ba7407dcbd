#pragma once
/* tests: unit/queue/queue_wait, model/model */
#include "api/atomics.h"
#include "base/clock.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   Futexes and the heavy barrier first, then lanes, then bundles. */

#define DLPI_SLEEP_MAX_NS 100000000u /* every sleep ends by then: a waker can die before it wakes */

/* Futex words are plain uint32_t. The waker changes the word before it wakes, so that a sleeper
   that has not slept yet sees another value than it expects. */
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
