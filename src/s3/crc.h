#pragma once
/* tests: unit/s3/s3_crc, system/s3/s3_sums */
#include "s3/sha256.h"
/* ---- CRC-32C, CRC-64/NVME and CRC-32 (ISO-HDLC), of bodies ----
   All are one computation: reflected, with all ones before and after. A CRC of 32 bits with
   polynomial P is one of 64 bits with P * x^32, whose upper half stays 0. Bit i of a word is the
   coefficient of x^(63 - i). A processor that multiplies polynomials folds bits over those that
   follow (Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel,
   2009). Others look eight bytes up at once. Tables and constants are made from the polynomial,
   when a client is opened. */

enum { DLPI_S3_CRC_NONE = 0, DLPI_S3_CRC32C, DLPI_S3_CRC64NVME, DLPI_S3_CRC32, DLPI_S3_CRCS };

typedef struct dlpi_s3_crc_table {
    uint64_t poly, ones;
    uint64_t wide[2], all[2], next[2]; /* x^n for folding over 256 bytes, 128 and 16 */
    uint64_t byte[8][256];             /* byte[k][b]: b with k zero bytes after it */
    int32_t way; /* 0: tables; 1, 2: products of 128 bits, and of twice as many */
} dlpi_s3_crc_table;

static dlpi_s3_crc_table dlpi_s3_crc_tables[DLPI_S3_CRCS] = {
    [DLPI_S3_CRC32C] = {.poly = 0x82f63b78, .ones = 0xffffffff},
    [DLPI_S3_CRC64NVME] = {.poly = 0x9a6c9329ac4bc9b5, .ones = UINT64_MAX},
    [DLPI_S3_CRC32] = {.poly = 0xedb88320, .ones = 0xffffffff}};

static const char *dlpi_s3_crc_name(int kind) {
    static const char *const names[] = {"none", "CRC32C", "CRC64NVME", "CRC32"};
    return names[kind];
}

/* Multiply two polynomials, modulo the table's. */
static uint64_t dlpi_s3_crc_times(const dlpi_s3_crc_table *t, uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    for (; a; a <<= 1) {
        sum ^= b & (0 - (a >> 63));
        b = b >> 1 ^ (t->poly & (0 - (b & 1)));
    }
    return sum;
}

/* Return x^n, modulo the table's polynomial. */
static uint64_t dlpi_s3_crc_power(const dlpi_s3_crc_table *t, uint64_t n) {
    uint64_t power = 1ull << 63, square = 1ull << 62;
    for (; n; n >>= 1) {
        if (n & 1) power = dlpi_s3_crc_times(t, power, square);
        square = dlpi_s3_crc_times(t, square, square);
    }
    return power;
}

/* Return what a piece with this CRC contributes to the CRC of a whole in which so many bytes follow
   it. The CRC of the whole is the exclusive or of the contributions of its pieces. */
static uint64_t dlpi_s3_crc_shift(int kind, uint64_t crc, uint64_t bytes) {
    const dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
    uint64_t eight = bytes ? dlpi_s3_crc_power(t, 8) : 0; /* 8 * bytes might not fit */
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) crc = dlpi_s3_crc_times(t, crc, eight);
        eight = dlpi_s3_crc_times(t, eight, eight);
    }
    return crc;
}

/* Return the register after n bytes, by tables. */
static uint64_t dlpi_s3_crc_plain(const dlpi_s3_crc_table *t, uint64_t crc, const uint8_t *p,
                                  size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        for (int i = 0; i < 8; i++) crc ^= (uint64_t)p[i] << (8 * i);
        crc = t->byte[7][crc & 255] ^ t->byte[6][crc >> 8 & 255] ^ t->byte[5][crc >> 16 & 255] ^
              t->byte[4][crc >> 24 & 255] ^ t->byte[3][crc >> 32 & 255] ^
              t->byte[2][crc >> 40 & 255] ^ t->byte[1][crc >> 48 & 255] ^ t->byte[0][crc >> 56];
    }
    for (; n > 0; p++, n--) crc = crc >> 8 ^ t->byte[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
typedef __m128i dlpi_s3_lane;
#define DLPI_S3_CRC_TARGET DLPI_TARGET("pclmul,sse2")
#define DLPI_S3_LANE(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define DLPI_S3_LANE_KEEP(p, lane) _mm_storeu_si128((__m128i *)(void *)(p), lane)
#define DLPI_S3_LANE_XOR(a, b) _mm_xor_si128(a, b)
#define DLPI_S3_LANE_LOWS(a, b) _mm_clmulepi64_si128(a, b, 0x00)
#define DLPI_S3_LANE_HIGHS(a, b) _mm_clmulepi64_si128(a, b, 0x11)
static int dlpi_s3_crc_way(void) {
    if (!__builtin_cpu_supports("pclmul")) return 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") ? 2 : 1;
}
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(DLPIPE_NO_SIMD) && \
    (defined(__ARM_FEATURE_AES) || !defined(__clang__))
typedef uint64x2_t dlpi_s3_lane;
#define DLPI_S3_CRC_TARGET DLPI_TARGET("+crypto")
#define DLPI_S3_LANE(p) vreinterpretq_u64_u8(vld1q_u8((const uint8_t *)(p)))
#define DLPI_S3_LANE_KEEP(p, lane) vst1q_u8(p, vreinterpretq_u8_u64(lane))
#define DLPI_S3_LANE_XOR(a, b) veorq_u64(a, b)
#define DLPI_S3_LANE_TIMES(a, b, i) \
    vreinterpretq_u64_p128(vmull_p64(vgetq_lane_u64(a, i), vgetq_lane_u64(b, i)))
#define DLPI_S3_LANE_LOWS(a, b) DLPI_S3_LANE_TIMES(a, b, 0)
#define DLPI_S3_LANE_HIGHS(a, b) DLPI_S3_LANE_TIMES(a, b, 1)
static int dlpi_s3_crc_way(void) { return (getauxval(AT_HWCAP) & 1u << 4) != 0; /* HWCAP_PMULL */ }
#else
#define DLPI_S3_CRC_PLAIN
#endif

/* Eight lanes side by side, each in a register. */
#define DLPI_S3_LANES(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)

#ifndef DLPI_S3_CRC_PLAIN
#define DLPI_S3_LANE_FOLD(lane, by, more) \
    DLPI_S3_LANE_XOR(DLPI_S3_LANE_XOR(DLPI_S3_LANE_LOWS(lane, by), DLPI_S3_LANE_HIGHS(lane, by)), \
                     more)
#define DLPI_S3_LANE_BEGIN(i) dlpi_s3_lane lane##i = DLPI_S3_LANE(p + 16 * (i));
#define DLPI_S3_LANE_STEP(i) lane##i = DLPI_S3_LANE_FOLD(lane##i, all, DLPI_S3_LANE(p + 16 * (i)));
#define DLPI_S3_LANE_JOIN(i) one = DLPI_S3_LANE_FOLD(one, next, lane##i);

/* Return the register after n bytes, a multiple of 16 and at least 128, by products. */
DLPI_S3_CRC_TARGET static uint64_t dlpi_s3_crc_fast(const dlpi_s3_crc_table *t, uint64_t crc,
                                                    const uint8_t *p, size_t n) {
    dlpi_s3_lane all = DLPI_S3_LANE(t->all), next = DLPI_S3_LANE(t->next), one;
    uint64_t first[2] = {crc, 0};
    uint8_t last[16] = {0};
    DLPI_S3_LANES(DLPI_S3_LANE_BEGIN)
    lane0 = DLPI_S3_LANE_XOR(lane0, DLPI_S3_LANE(first));
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) { DLPI_S3_LANES(DLPI_S3_LANE_STEP) }
    one = DLPI_S3_LANE(last);
    DLPI_S3_LANES(DLPI_S3_LANE_JOIN)
    for (; n; p += 16, n -= 16) one = DLPI_S3_LANE_FOLD(one, next, DLPI_S3_LANE(p));
    DLPI_S3_LANE_KEEP(last, one);
    return dlpi_s3_crc_plain(t, 0, last, 16);
}
#else
#define dlpi_s3_crc_fast dlpi_s3_crc_plain
static int dlpi_s3_crc_way(void) { return 0; }
#endif

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#define DLPI_S3_WIDE(i) _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * (i)))
#define DLPI_S3_WIDE_BEGIN(i) __m256i lane##i = DLPI_S3_WIDE(i);
#define DLPI_S3_WIDE_STEP(i) \
    lane##i = _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(lane##i, by, 0x00), \
                                                _mm256_clmulepi64_epi128(lane##i, by, 0x11)), \
                               DLPI_S3_WIDE(i));
#define DLPI_S3_WIDE_KEEP(i) _mm256_storeu_si256((__m256i *)(void *)(left + 32 * (i)), lane##i);

/* Return the register after n bytes, a multiple of 256, by products that are twice as wide. What
   they leave stands for all bytes before it. */
DLPI_TARGET("avx2,vpclmulqdq")
static uint64_t dlpi_s3_crc_wide(const dlpi_s3_crc_table *t, uint64_t crc, const uint8_t *p,
                                 size_t n) {
    __m256i by = _mm256_broadcastsi128_si256(DLPI_S3_LANE(t->wide));
    uint8_t left[256];
    DLPI_S3_LANES(DLPI_S3_WIDE_BEGIN)
    lane0 = _mm256_xor_si256(lane0, _mm256_set_epi64x(0, 0, 0, (int64_t)crc));
    for (p += 256, n -= 256; n; p += 256, n -= 256) { DLPI_S3_LANES(DLPI_S3_WIDE_STEP) }
    DLPI_S3_LANES(DLPI_S3_WIDE_KEEP)
    return dlpi_s3_crc_fast(t, 0, left, sizeof left);
}
#else
#define dlpi_s3_crc_wide dlpi_s3_crc_fast
#endif

/* Compute the tables of all CRCs, and find out the fastest way to use them. It runs once in a
   process. */
DLPI_COLD static void dlpi_s3_crc_make(void) {
    for (int kind = 1; kind < DLPI_S3_CRCS; kind++) {
        dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
        for (uint64_t b = 0; b < 256; b++) {
            uint64_t crc = b;
            for (int k = 0; k < 8; k++) {
                for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (t->poly & (0 - (crc & 1)));
                t->byte[k][b] = crc;
            }
        }
        t->all[0] = dlpi_s3_crc_power(t, 1024 + 63);
        t->all[1] = dlpi_s3_crc_power(t, 1024 - 1);
        t->next[0] = dlpi_s3_crc_power(t, 128 + 63);
        t->next[1] = dlpi_s3_crc_power(t, 127);
        t->wide[0] = dlpi_s3_crc_power(t, 2048 + 63);
        t->wide[1] = dlpi_s3_crc_power(t, 2047);
        t->way = dlpi_s3_crc_way();
    }
}

/* Make the tables, before the first dlpi_s3_crc_add. Returns true if the CRC of a body costs
   little. Products of 256 bits take 2.7 us for 100 KB, products of 128 bits 4.4 us, tables 100 us
   (Xeon of 2023). A request for such a body takes 17 to 39 us. */
static bool dlpi_s3_crc_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, dlpi_s3_crc_make);
    return dlpi_s3_crc_tables[DLPI_S3_CRC32C].way == 2;
}

/* Return the CRC of bytes that follow others. crc: the CRC of the others; 0 if there are none. */
static uint64_t dlpi_s3_crc_add(int kind, uint64_t crc, const void *bytes, size_t n) {
    const dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
    const uint8_t *p = (const uint8_t *)bytes;
    size_t wide = t->way == 2 && n >= 4096 ? n / 256 * 256 : 0, narrow; /* else as fast without */
    crc ^= t->ones;
    if (wide) crc = dlpi_s3_crc_wide(t, crc, p, wide);
    p += wide;
    n -= wide;
    narrow = t->way && n >= 128 ? n / 16 * 16 : 0;
    if (narrow) crc = dlpi_s3_crc_fast(t, crc, p, narrow);
    return dlpi_s3_crc_plain(t, crc, p + narrow, n - narrow) ^ t->ones;
}
