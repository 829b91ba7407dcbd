/* needs: mix */
#pragma once
/* tests: unit/order/mixing, system/stages/boxes */
#include "order/order.h"
/* ---- sort items by length: a key is length << 32 | place ---- */

/* Sort n keys by 11 of their bits, from bit `shift` on: one stable pass of a counting sort. */
static void dlpi_keys_pass(const uint64_t *from, uint64_t *to, uint32_t n, int shift) {
    uint32_t begin[2048] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++) begin[from[i] >> shift & 2047]++;
    for (uint32_t k = 0; k < 2048; k++) {
        uint32_t count = begin[k];
        begin[k] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++) to[begin[from[i] >> shift & 2047]++] = from[i];
}

/* Sort the n keys at *key by length. Keys of equal length keep their order: each pass is stable.
   spare: [n] memory. The two arrays may change places. */
static void dlpi_keys_sort(uint64_t **key, uint64_t **spare, uint32_t n) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++) all |= (*key)[i];
    for (int shift = 32; shift < 64 && all >> shift != 0; shift += 11) {
        uint64_t *sorted = *spare;
        dlpi_keys_pass(*key, sorted, n, shift);
        *spare = *key;
        *key = sorted;
    }
}
