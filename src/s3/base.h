#pragma once
/* tests: unit/s3/s3_sign, system/s3/s3_engine */
#include "s3/platform.h"
#include "api/s3_client.h"
#define DLPI_S3_LINE 128u     /* what different threads write lies so far apart */
#define DLPI_S3_MS 1000000ull /* in nanoseconds */

static inline uint64_t dlpi_s3_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Return the Unix time. */
static inline int64_t dlpi_s3_real_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

/* Copy a string, cut if it is too long, always terminated. Returns true if all of it fitted. */
static bool dlpi_s3_copy(char *to, size_t size, const char *from) {
    size_t n = strlen(from), take;
    if (size == 0) return false;
    take = n < size ? n : size - 1;
    memmove(to, from, take);
    to[take] = '\0';
    return n < size;
}

/* Replace the control bytes of a text, which keys may hold, so that it is one line. */
static inline void dlpi_s3_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) *text = '?';
}

/* True if a list, with blanks around each word, has the word. NULL and "" are in no list. */
static bool dlpi_s3_listed(const char *list, const char *word) {
    size_t n = word ? strlen(word) : 0;
    if (n == 0 || strchr(word, ' ')) return false;
    while ((list = strstr(list, word)) != NULL && (list[-1] != ' ' || list[n] != ' ')) list++;
    return list != NULL;
}

/* Zero what was secret. explicit_bzero is a call that the optimiser does not take out. */
static inline void dlpi_s3_wipe(void *at, size_t n) { explicit_bzero(at, n); }

/* Set code, errnum and message of *err, if err is not NULL. Returns code. */
DLPI_PRINTF(4, 5)
static int dlpi_s3_set_error(dlp_s3_error *err, int code, int errnum, const char *format, ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    err->errnum = errnum;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

/* Return the next of a series of random numbers (xorshift64*; Vigna 2016). *state must not be 0. */
static inline uint64_t dlpi_s3_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}
