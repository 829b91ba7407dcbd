#pragma once
/* tests: unit/s3/s3_sign */
#include "api/atomics.h"
#include "s3/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-text         HASHES, URIS, TIMES, XML */

/* Bytes of somebody else's memory. */
typedef struct dlpi_s3_span {
    const char *at;
    size_t n;
} dlpi_s3_span;

static bool dlpi_s3_span_is(dlpi_s3_span s, const char *text) {
    return strlen(text) == s.n && memcmp(s.at, text, s.n) == 0;
}

/* ---- SHA-256 (FIPS 180-4) and HMAC (RFC 2104). By the processor's instructions for it, where it
   has them: 1.6 GB/s or so on x86, against 0.3 GB/s. */

typedef struct dlpi_s3_sha {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64]; /* the last bytes % 64 of what came */
} dlpi_s3_sha;

static const uint32_t dlpi_s3_sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define DLPI_S3_ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define DLPI_S3_ROUND(a, b, c, d, e, f, g, h, i) \
    do { \
        uint32_t t_ = (h) + (DLPI_S3_ROR(e, 6) ^ DLPI_S3_ROR(e, 11) ^ DLPI_S3_ROR(e, 25)) + \
                      (((e) & ((f) ^ (g))) ^ (g)) + dlpi_s3_sha_k[i] + w[(i)&15]; \
        (d) += t_; \
        (h) = t_ + (DLPI_S3_ROR(a, 2) ^ DLPI_S3_ROR(a, 13) ^ DLPI_S3_ROR(a, 22)) + \
              (((a) & (b)) | ((c) & ((a) | (b)))); \
    } while (0)

/* Compute the next 16 words of the schedule, in place. */
static inline void dlpi_s3_sha_schedule(uint32_t w[16]) {
    for (int i = 0; i < 16; i++) {
        uint32_t x = w[(i + 1) & 15], y = w[(i + 14) & 15];
        w[i] += (DLPI_S3_ROR(x, 7) ^ DLPI_S3_ROR(x, 18) ^ x >> 3) + w[(i + 9) & 15] +
                (DLPI_S3_ROR(y, 17) ^ DLPI_S3_ROR(y, 19) ^ y >> 10);
    }
}

/* Hash blocks of 64 bytes, without special instructions of the CPU. */
static void dlpi_s3_sha_plain(uint32_t state[8], const uint8_t *p, size_t blocks) {
    for (; blocks > 0; blocks--, p += 64) {
        uint32_t w[16], s[8];
        memcpy(s, state, sizeof s);
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                   (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 0; i < 64; i += 8) {
            if (i > 0 && i % 16 == 0) dlpi_s3_sha_schedule(w);
            DLPI_S3_ROUND(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], i);
            DLPI_S3_ROUND(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], i + 1);
            DLPI_S3_ROUND(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], i + 2);
            DLPI_S3_ROUND(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], i + 3);
            DLPI_S3_ROUND(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], i + 4);
            DLPI_S3_ROUND(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], i + 5);
            DLPI_S3_ROUND(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], i + 6);
            DLPI_S3_ROUND(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], i + 7);
        }
        for (int i = 0; i < 8; i++) state[i] += s[i];
    }
}

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#include <cpuid.h>
#include <immintrin.h>

/* Four rounds: words 4 * i .. 4 * i + 3, which for i >= 4 come from the four groups before them. */
#define DLPI_S3_SHA_FOUR(i) \
    { \
        if ((i) >= 4) \
            m[(i)&3] = _mm_sha256msg2_epu32( \
                _mm_add_epi32(_mm_sha256msg1_epu32(m[(i)&3], m[((i) + 1) & 3]), \
                              _mm_alignr_epi8(m[((i) + 3) & 3], m[((i) + 2) & 3], 4)), \
                m[((i) + 3) & 3]); \
        kw = _mm_add_epi32( \
            m[(i)&3], _mm_loadu_si128((const __m128i *)(const void *)(dlpi_s3_sha_k + 4 * (i)))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, kw); \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(kw, 0x0E)); \
    }

#define DLPI_S3_SHA_ALL(x) \
    x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15)

/* Hash blocks of 64 bytes by the SHA instructions of x86-64. The CPU must have them. */
DLPI_TARGET("sha,sse4.1,ssse3")
static void dlpi_s3_sha_fast(uint32_t state[8], const uint8_t *p, size_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    __m128i m[4], kw, feba, dchg;
    for (; blocks > 0; blocks--, p += 64) {
        __m128i abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++) {
            m[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
            m[i] = _mm_shuffle_epi8(m[i], swap);
        }
        DLPI_S3_SHA_ALL(DLPI_S3_SHA_FOUR)
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static bool dlpi_s3_sha_has_fast(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && \
    (defined(__ARM_FEATURE_SHA2) || \
     !defined(__clang__)) /* clang has them only if always allowed */
#include <arm_neon.h>
#include <sys/auxv.h>

/* Hash blocks of 64 bytes by the SHA instructions of Arm. The CPU must have them. */
DLPI_TARGET("+crypto")
static void dlpi_s3_sha_fast(uint32_t state[8], const uint8_t *p, size_t blocks) {
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), m[4];
    for (; blocks > 0; blocks--, p += 64) {
        uint32x4_t abcd_before = abcd, efgh_before = efgh;
        for (int i = 0; i < 4; i++) m[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
        for (int i = 0; i < 16; i++) {
            uint32x4_t kw, before = abcd;
            if (i >= 4)
                m[i & 3] = vsha256su1q_u32(vsha256su0q_u32(m[i & 3], m[(i + 1) & 3]),
                                           m[(i + 2) & 3], m[(i + 3) & 3]);
            kw = vaddq_u32(m[i & 3], vld1q_u32(dlpi_s3_sha_k + 4 * i));
            abcd = vsha256hq_u32(abcd, efgh, kw);
            efgh = vsha256h2q_u32(efgh, before, kw);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

static bool dlpi_s3_sha_has_fast(void) {
    return (getauxval(AT_HWCAP) & 1u << 6) != 0; /* HWCAP_SHA2 */
}
#else
#define dlpi_s3_sha_fast dlpi_s3_sha_plain
static bool dlpi_s3_sha_has_fast(void) { return false; }
#endif

/* Hash blocks of 64 bytes in the fastest way that the CPU has. */
static void dlpi_s3_sha_blocks(uint32_t state[8], const uint8_t *p, size_t blocks) {
    static int32_t way; /* 0: not looked yet, which several threads may do; each finds the same */
    int32_t w = DLPI_LOAD_RLX(&way);
    if (w == 0) {
        w = dlpi_s3_sha_has_fast() ? 2 : 1;
        DLPI_STORE_RLX(&way, w);
    }
    if (w == 2)
        dlpi_s3_sha_fast(state, p, blocks);
    else
        dlpi_s3_sha_plain(state, p, blocks);
}

static void dlpi_s3_sha_begin(dlpi_s3_sha *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, first, sizeof first);
    s->bytes = 0;
}

/* Hash n more bytes of a message. */
static void dlpi_s3_sha_add(dlpi_s3_sha *s, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t have = (size_t)(s->bytes & 63), take;
    if (n == 0) return;
    s->bytes += n;
    if (have > 0) {
        take = n < 64 - have ? n : 64 - have;
        memcpy(s->block + have, p, take);
        if (have + take < 64) return;
        dlpi_s3_sha_blocks(s->state, s->block, 1);
        p += take;
        n -= take;
    }
    if (n >= 64) dlpi_s3_sha_blocks(s->state, p, n / 64);
    if (n % 64 > 0) memcpy(s->block, p + n / 64 * 64, n % 64);
}

static void dlpi_s3_sha_adds(dlpi_s3_sha *s, const char *text) {
    dlpi_s3_sha_add(s, text, strlen(text));
}

/* Write the hash of a message. The state cannot be used any more then. */
static void dlpi_s3_sha_end(dlpi_s3_sha *s, uint8_t out[32]) {
    uint64_t bits = s->bytes * 8;
    size_t have = (size_t)(s->bytes & 63);
    s->block[have++] = 0x80;
    if (have > 56) {
        memset(s->block + have, 0, 64 - have);
        dlpi_s3_sha_blocks(s->state, s->block, 1);
        have = 0;
    }
    memset(s->block + have, 0, 56 - have);
    for (int i = 0; i < 8; i++) s->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
    dlpi_s3_sha_blocks(s->state, s->block, 1);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void dlpi_s3_sha256(const void *data, size_t n, uint8_t out[32]) {
    dlpi_s3_sha s;
    dlpi_s3_sha_begin(&s);
    dlpi_s3_sha_add(&s, data, n);
    dlpi_s3_sha_end(&s, out);
}

/* A key made ready: what the two hashes are after their first block. */
typedef struct dlpi_s3_hmac_key {
    uint32_t inner[8], outer[8];
} dlpi_s3_hmac_key;

/* Prepare a key of n bytes for messages. *k is as secret as the key. */
static void dlpi_s3_hmac_begin(dlpi_s3_hmac_key *k, const void *key, size_t n) {
    dlpi_s3_sha s;
    uint8_t pad[64] = {0};
    if (n > sizeof pad)
        dlpi_s3_sha256(key, n, pad);
    else if (n > 0)
        memcpy(pad, key, n);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    dlpi_s3_sha_begin(&s);
    memcpy(k->inner, s.state, sizeof k->inner);
    memcpy(k->outer, s.state, sizeof k->outer);
    dlpi_s3_sha_blocks(k->inner, pad, 1);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    dlpi_s3_sha_blocks(k->outer, pad, 1);
    dlpi_s3_wipe(pad, sizeof pad);
}

/* Begin to hash a message under a key; end it by dlpi_s3_hmac_end, not by dlpi_s3_sha_end. */
static void dlpi_s3_hmac_message(dlpi_s3_sha *s, const dlpi_s3_hmac_key *k) {
    memcpy(s->state, k->inner, sizeof s->state);
    s->bytes = 64;
}

/* Write the HMAC of a message that dlpi_s3_hmac_message began. */
static void dlpi_s3_hmac_end(dlpi_s3_sha *s, const dlpi_s3_hmac_key *k, uint8_t out[32]) {
    uint8_t inner[32];
    dlpi_s3_sha_end(s, inner);
    memcpy(s->state, k->outer, sizeof s->state);
    s->bytes = 64;
    dlpi_s3_sha_add(s, inner, sizeof inner);
    dlpi_s3_sha_end(s, out);
}

/* Write the HMAC of one message. `out` may be the key or the data. */
static void dlpi_s3_hmac(const void *key, size_t key_bytes, const void *data, size_t n,
                         uint8_t out[32]) {
    dlpi_s3_hmac_key k;
    dlpi_s3_sha s;
    dlpi_s3_hmac_begin(&k, key, key_bytes);
    dlpi_s3_hmac_message(&s, &k);
    dlpi_s3_sha_add(&s, data, n);
    dlpi_s3_hmac_end(&s, &k, out);
    dlpi_s3_wipe(&k, sizeof k);
    dlpi_s3_wipe(&s, sizeof s);
}

/* Write 2 * n small hex digits and a terminator. */
static void dlpi_s3_hex(char *to, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        to[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    to[2 * n] = '\0';
}
