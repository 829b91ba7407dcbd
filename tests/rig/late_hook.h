/* Every atomic access of dlpipe.h may be followed by a yield or a sleep, so that threads meet in
   orders that they meet in once a year, or on machines with more cores. Include before it. */
#ifndef LATE_HOOK_H
#define LATE_HOOK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "atomics_hook.h"

static uint32_t late_often; /* in 65536; LATE of the environment */

__attribute__((constructor, unused)) static void late_begin(void) {
    const char *often = getenv("LATE");
    if (often) late_often = (uint32_t)strtoul(often, NULL, 0);
}

__attribute__((unused)) static void atomics_hook(int kind, const void *at) {
    static _Thread_local uint64_t state;
    struct timespec t = {0, 0};
    uint32_t dice;
    (void)kind;
    (void)at;
    if (state == 0) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        state = (uint64_t)(uintptr_t)&state ^ (uint64_t)t.tv_nsec << 20;
    }
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    dice = (uint32_t)(state >> 40) & 0xffffu;
    if (dice >= __atomic_load_n(&late_often, __ATOMIC_RELAXED)) return;
    t = (struct timespec){0, (long)(state >> 33 & 0x3ffff)}; /* up to 0.26 ms */
    if ((state >> 60) < 11)
        sched_yield();
    else
        nanosleep(&t, NULL);
}

#endif
