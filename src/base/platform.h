#pragma once
/* tests: compile/matrix */
#include "api/atomics.h"
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-platform   HEADERS, SWITCHES */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32 /* numbers that its C library lacks; no call returns these */
#ifndef ESTALE
#define ESTALE 4091
#endif
#ifndef ESHUTDOWN
#define ESHUTDOWN 4092
#endif
#ifndef EDQUOT
#define EDQUOT 4093
#endif
#endif

/* DLPIPE_DEBUG, DLPIPE_NO_DEBUG [impl]: see >>impl-debug. What that looks for the address sanitizer
   does not see by itself: rows are neighbours in one mapping. */
#if defined(__SANITIZE_ADDRESS__)
#define DLPI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DLPI_ASAN 1
#endif
#endif
#ifndef DLPI_ASAN
#define DLPI_ASAN 0
#endif
#if (defined(DLPIPE_DEBUG) || DLPI_ASAN) && !defined(DLPIPE_NO_DEBUG)
#define DLPI_DEBUG 1
#else
#define DLPI_DEBUG 0
#endif
#if DLPI_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Make a row of a list of tables an element of an array of pointers to these tables. */
#define DLPI_ROW_OPS(name, number, ops) [number] = &ops,

/* Add bytes of a plan; dlpi_times multiplies them. What is too much stays at UINT64_MAX, which no
   limit allows, and never comes round to a number that looks small. */
static inline uint64_t dlpi_sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t dlpi_times(uint64_t a, uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* Return the next multiple of align; UINT64_MAX, which means too much, stays UINT64_MAX. */
static inline uint64_t dlpi_round_up(uint64_t bytes, uint64_t align) {
    uint64_t up = dlpi_sum(bytes, align - 1);
    return up == UINT64_MAX ? up : up / align * align;
}

static uint64_t dlpi_line_up(uint64_t bytes) { return dlpi_round_up(bytes, DLPI_LINE); }

/* Return sum - part, at least 0. UINT64_MAX, which means too much, stays UINT64_MAX. */
static inline uint64_t dlpi_less(uint64_t sum, uint64_t part) {
    if (sum == UINT64_MAX) return sum;
    return part < sum ? sum - part : 0;
}

/* A block of heap memory of a record. The plan counts these blocks; the start allocates them. */
typedef struct dlpi_block {
    size_t at; /* offset in the record of the pointer to it; a pointer not NULL: it is allocated */
    uint64_t bytes;
} dlpi_block;

/* Allocate n blocks of a record, filled with zeros (have), or free all n (!have). Returns false if
   there is no memory. */
DLPI_COLD DLPI_UNREAD static bool dlpi_blocks_keep(void *record, const dlpi_block *k, size_t n,
                                                   bool have) {
    for (; n > 0; n--, k++) {
        void *at;
        memcpy(&at, (uint8_t *)record + k->at, sizeof at);
        if (!have) free(at);
        if (!have || at != NULL || k->bytes == 0) continue;
        if ((at = calloc(1, (size_t)k->bytes)) == NULL) return false;
        memcpy((uint8_t *)record + k->at, &at, sizeof at);
    }
    return true;
}

/* Compare two numbers of 64 bits for qsort, smaller ones first. */
static int dlpi_u64_compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
