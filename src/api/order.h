#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>order      HASHES, KEYED PERMUTATIONS
   Everything here is a pure function of its arguments: it gives the same numbers on every machine
   and with every compiler, for ever. A better algorithm will get a new name. */

/* Mix four numbers into 64 well-mixed bits.
   seed, a, b, c: any values; their order matters. Returns the hash. Any thread. Never waits.
   Source: one round per word of "Mix13", D. Stafford, Better Bit Mixing (2011), the finaliser of
   SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014). */
DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

#define DLP_PERMUTATION_TABLE 1024 /* permutations of fewer numbers are tables */
#define DLP_PERMUTATION_ROUNDS 10  /* most rounds of a permutation */

/* A keyed permutation of 0..n-1, in the caller's memory. You may read n, seed and epoch; leave the
   other fields alone. After init the permutation is read-only and holds no pointer. It may be
   copied and shared. */
typedef struct dlp_permutation {
    uint64_t n, seed, epoch;                  /* as given to init */
    uint32_t right_bits;                      /* a number is left << right_bits | right */
    uint32_t left_values;                     /* left is 0..left_values-1 */
    uint32_t rounds;                          /* number of rounds; 0: the permutation is a table */
    uint32_t simd;                            /* selects the code that computes a block; the numbers
                                  are the same */
    uint32_t key[2 * DLP_PERMUTATION_ROUNDS]; /* two keys of each round */
    uint16_t table[DLP_PERMUTATION_TABLE];    /* if n < DLP_PERMUTATION_TABLE: all images */
} dlp_permutation;

/* Choose the permutation of 0..n-1 that belongs to (n, seed, epoch).
   p: written whole; n: 1..2^48; seed, epoch: any values. Returns 0, or DLP_ERR_ARG, which leaves p
   untouched. Any thread. Never waits or allocates. It takes some microseconds for fewer than
   DLP_PERMUTATION_TABLE numbers, and a tenth of a microsecond for more.
   Source: Fisher-Yates (Durstenfeld, CACM 7/1964) for tables; else a Feistel network on Z_a x Z_b
   with cycle walking (Black, Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002). */
DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);

/* Return the number at a position.
   position: 0..n-1. Returns UINT64_MAX for other positions. Any thread. Never waits. */
DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position);

/* Return the position of a number: the inverse of dlp_permutation_at.
   value: 0..n-1. Returns UINT64_MAX for other values. Any thread. Never waits. If n is below
   DLP_PERMUTATION_TABLE, it searches the table. */
DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value);

/* Write the numbers at positions first .. first+count-1: the numbers of dlp_permutation_at, several
   times as fast if the processor has AVX2.
   first, count: any values; for positions of n or more UINT64_MAX is written; out: [count],
   borrowed during the call. Any thread. Never waits. */
DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out);
