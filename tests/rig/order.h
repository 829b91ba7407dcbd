/* What order.c and samplers.c in tests/unit/order share: a test runner and some statistics. */
#ifndef DLPIPE_TESTS_ORDER_H
#define DLPIPE_TESTS_ORDER_H

static const char *test_name;
static int test_failed, tests_failed, tests_run, printing;

#define CHECK(condition, ...) \
    do { \
        if (!(condition) && test_failed++ < 5) { \
            fprintf(stderr, "%s: line %d: %s: ", test_name, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
        } \
    } while (0)

#define RUN(test) \
    do { \
        test_name = #test; \
        test_failed = 0; \
        test(); \
        tests_run++; \
        tests_failed += test_failed > 0; \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define TWO(k) ((uint64_t)1 << (k))
typedef unsigned long long ull;

/* --- Statistics ------------------------------------------------------------------------------- */

static double root(double x, int k) { /* no libm needed */
    double r = x > 1 ? x : 1;
    for (int i = 0; i < 300; i++) {
        double power = 1;
        for (int j = 1; j < k; j++) power *= r;
        r += (x / power - r) / k;
    }
    return r;
}

static double absolute(double x) { return x < 0 ? -x : x; }

/* A chi-square value as standard deviations of a normal variable (Wilson, Hilferty 1931). */
static double chi_z(double x, double freedom) {
    double spread = 2 / (9 * freedom);
    return (root(x / freedom, 3) - (1 - spread)) / root(spread, 2);
}

static double chi_uniform(const uint64_t *count, uint64_t cells, double expected) {
    double x = 0;
    for (uint64_t i = 0; i < cells; i++)
        x += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    return chi_z(x, (double)(cells - 1));
}

static void *get(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(78);
    }
    return p;
}

static int compare_words(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* A number for a list of numbers, for pins. */
static uint64_t digest(const uint64_t *values, uint64_t n) {
    uint64_t h = n;
    for (uint64_t i = 0; i < n; i++) h = dlp_hash(h, values[i], i, 0);
    return h;
}

#endif
