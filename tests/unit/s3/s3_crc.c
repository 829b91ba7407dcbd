/* CRC-32C, CRC-64/NVME and CRC-32: known answers of the CRC catalogue, the definition bit by bit,
   each way to compute them, and CRCs of pieces put together. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_s3.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"

enum { CRC32C = 1, CRC64NVME, CRC32 };

static const char *const digits = "123456789";

/* By the definition: bit after bit, in the width of the polynomial. */
static uint64_t by_bits(int kind, const uint8_t *p, size_t n) {
    static const uint64_t polys[] = {0, 0x82f63b78u, 0x9a6c9329ac4bc9b5u, 0xedb88320u};
    uint64_t poly = polys[kind];
    uint64_t ones = kind == CRC64NVME ? UINT64_MAX : 0xffffffffu, crc = ones;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ poly : crc >> 1;
    }
    return crc ^ ones;
}

static uint64_t random_next(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static void all_ways(void (*test)(int kind)) {
    for (int kind = CRC32C; kind <= CRC32; kind++) {
        int best = inside_s3_crc_way(kind, -1);
        for (int way = best; way >= 0; way--) {
            inside_s3_crc_way(kind, way);
            test(kind);
        }
        inside_s3_crc_way(kind, -1);
    }
}

static void crc__catalogue__known_answers(int kind) {
    static const uint8_t zeros[32];
    static const uint64_t checks[] = {0, 0xe3069283u, 0xae8b14860a799888u, 0xcbf43926u};
    CHECK(inside_s3_crc(kind, 0, digits, 9) == checks[kind]);
    CHECK(inside_s3_crc(kind, 0, digits, 0) == 0);
    if (kind == CRC32C) CHECK(inside_s3_crc(kind, 0, zeros, 32) == 0x8a9136aau);
}

static void crc__random_bytes__as_the_definition(int kind) {
    static uint8_t bytes[20000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)random_next();
    for (size_t n = 0; n < 700; n++) {
        size_t at = (size_t)(random_next() % 64);
        CHECK(inside_s3_crc(kind, 0, bytes + at, n) == by_bits(kind, bytes + at, n));
    }
    for (int i = 0; i < 300; i++) {
        size_t n = (size_t)(random_next() % 19000), at = (size_t)(i % 33);
        CHECK(inside_s3_crc(kind, 0, bytes + at, n) == by_bits(kind, bytes + at, n));
    }
}

static void crc__pieces__make_the_whole(int kind) {
    static uint8_t bytes[900];
    uint64_t whole;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)random_next();
    whole = by_bits(kind, bytes, sizeof bytes);
    for (size_t a = 0; a <= sizeof bytes; a++) {
        size_t b = a + (size_t)(random_next() % (sizeof bytes - a + 1)), end = sizeof bytes;
        uint64_t first = inside_s3_crc(kind, 0, bytes, a);
        uint64_t second = inside_s3_crc(kind, 0, bytes + a, b - a);
        uint64_t third = inside_s3_crc(kind, 0, bytes + b, end - b);
        CHECK(inside_s3_crc(kind, first, bytes + a, end - a) == whole);
        CHECK((inside_s3_crc_shift(kind, first, end - a) ^
               inside_s3_crc_shift(kind, second, end - b) ^ inside_s3_crc_shift(kind, third, 0)) ==
              whole);
    }
}

/* A piece before very many zero bytes: the shift of a shift is the shift of the sum. */
static void crc__shift__adds_up(int kind) {
    uint64_t crc = inside_s3_crc(kind, 0, digits, 9);
    for (int i = 0; i < 60; i++) {
        uint64_t n = random_next() >> (1 + i), m = random_next() >> 2;
        CHECK(inside_s3_crc_shift(kind, inside_s3_crc_shift(kind, crc, n), m) ==
              inside_s3_crc_shift(kind, crc, n + m));
    }
}

static void base64__numbers__whole_or_none(void) {
    static const struct {
        const char *text;
        size_t bytes;
        int good;
        uint64_t value;
    } cases[] = {
        {"4waSgw==", 4, 1, 0xe3069283u},
        {"rosUhgp5mIg=", 8, 1, 0xae8b14860a799888u},
        {"AAAAAA==", 4, 1, 0},
        {"/////w==", 4, 1, 0xffffffffu},
        {"//////////8=", 8, 1, UINT64_MAX},
        {"4waSgw=", 4, 0, 0},
        {"4waSgw===", 4, 0, 0},
        {"4waSgx==", 4, 0, 0}, /* bits behind the last byte */
        {"4waS=w==", 4, 0, 0},
        {"4wa-gw==", 4, 0, 0},
        {"4waSgw==-2", 4, 0, 0},
        {"rosUhgp5mIg=", 4, 0, 0},
        {"rosUhgp5mIh=", 8, 0, 0},
        {"", 4, 0, 0},
        {"========", 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t out = 77;
        int good = inside_s3_base64(cases[i].text, strlen(cases[i].text), cases[i].bytes, &out);
        CHECK(good == cases[i].good && out == (good ? cases[i].value : 77));
    }
    CHECK(!inside_s3_base64("4wa\0gw==", 8, 4, NULL));
}

int main(void) {
    all_ways(crc__catalogue__known_answers);
    all_ways(crc__random_bytes__as_the_definition);
    all_ways(crc__pieces__make_the_whole);
    all_ways(crc__shift__adds_up);
    base64__numbers__whole_or_none();
    return test_end("s3_crc");
}
