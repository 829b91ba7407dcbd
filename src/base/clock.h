#pragma once
/* tests: unit/queue/queue_wait */
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-clock      TIME */

static inline uint64_t dlpi_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void dlpi_sleep(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}
