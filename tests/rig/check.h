/* Checks that count, by any thread, and the line that ends a test. */
#ifndef CHECK_H
#define CHECK_H

#include "posix.h"
#include "tries.h"

static int test_failures;
static long test_checks;

#define CHECK(x) \
    do { \
        __atomic_add_fetch(&test_checks, 1, __ATOMIC_RELAXED); \
        if (!(x)) { \
            if (__atomic_add_fetch(&test_failures, 1, __ATOMIC_RELAXED) < 20) \
                printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x); \
        } \
    } while (0)

static inline int *test_late(void) {
    static int late;
    return &late;
}

/* A claim about time, in a case that test_tries runs: no failure yet, as others may have kept the
   machine busy. */
#define CHECK_SOON(x) \
    do { \
        __atomic_add_fetch(&test_checks, 1, __ATOMIC_RELAXED); \
        if (!(x)) { \
            ++*test_late(); \
            printf("%s:%d: %s: not in time: %s\n", __FILE__, __LINE__, __func__, #x); \
        } \
    } while (0)

/* Run a case again as long as claims about time do not hold: all of them must, in one of five. */
static inline void test_tries(void (*one)(void)) {
    int tries = 0;
    do {
        *test_late() = 0;
        one();
    } while (*test_late() > 0 && ++tries < 5);
    CHECK(*test_late() == 0);
}

/* A case that cannot be run here, and why. The others count: if they are well, the program as a
   whole is skipped, with these words. */
static inline const char **test_lack(void) {
    static const char *why;
    return &why;
}

static inline void test_skip(const char *why) { *test_lack() = why; }

static inline int test_end(const char *name) {
    printf("%s: %ld checks, %d failed\n", name, test_checks, test_failures);
    if (test_failures) return 1;
    if (*test_lack()) printf("skipped in part: %s\n", *test_lack());
    return *test_lack() ? 77 : 0;
}

#endif
