#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>order      HASHES, KEYED PERMUTATIONS
   Everything here is a pure function of its arguments: the same numbers on every machine and
   compiler, for ever. A better algorithm will get a new name. */

/* Mix four numbers into 64 well-mixed bits.
   seed, a, b, c: any values; their order matters - returns the hash - any thread, never waits
   source: one round per word of "Mix13", D. Stafford, Better Bit Mixing (2011), the finaliser of
   SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014). */
DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

#define DLP_PERMUTATION_TABLE 1024 /* smaller permutations are tables */
#define DLP_PERMUTATION_ROUNDS 10  /* at most */

/* A keyed permutation of 0..n-1, in the caller's memory. Read n, seed and epoch; leave the rest.
   After init it is read-only, holds no pointer and may be copied and shared. */
typedef struct dlp_permutation {
    uint64_t n, seed, epoch;                  /* as given to init */
    uint32_t right_bits;                      /* a number is left << right_bits | right */
    uint32_t left_values;                     /* left is 0..left_values-1 */
    uint32_t rounds;                          /* 0: table */
    uint32_t simd;                            /* which code runs a block; never which numbers */
    uint32_t key[2 * DLP_PERMUTATION_ROUNDS]; /* two of each round */
    uint16_t table[DLP_PERMUTATION_TABLE];    /* n < DLP_PERMUTATION_TABLE: all images */
} dlp_permutation;

/* Choose the permutation of 0..n-1 that belongs to (n, seed, epoch).
   p: written whole; n: 1..2^48; seed, epoch: any values - returns 0, or DLP_ERR_ARG with p
   untouched - any thread - never waits or allocates; some microseconds below DLP_PERMUTATION_TABLE
   numbers, else a tenth of one
   source: Fisher-Yates (Durstenfeld, CACM 7/1964) for tables; else a Feistel network on Z_a x Z_b
   with cycle walking (Black, Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002). */
DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);

/* Return the number at a position.
   position: 0..n-1 - returns UINT64_MAX for others - any thread - never waits. */
DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position);

/* Return the position of a number: the inverse of dlp_permutation_at.
   value: 0..n-1 - returns UINT64_MAX for others - any thread - never waits; below
   DLP_PERMUTATION_TABLE numbers looks through the table. */
DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value);

/* Write the numbers at positions first .. first+count-1: as dlp_permutation_at, several times as
   fast where the processor has AVX2.
   first, count: any; UINT64_MAX is written for positions of n or more; out: [count], borrowed - any
   thread - never waits. */
DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out);
