/* What the queue tests share: checks, guarded memory, a random sequence, records that prove
   themselves. Included behind dlpipe.h's implementation. */
#ifndef QUEUE_CHECK_H
#define QUEUE_CHECK_H

#include <sys/wait.h>
#include "posix.h"
#include "tries.h"

static int failures;
static const char *test_name;

#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            failures++; \
            fprintf(stderr, "%s: line %d: %s\n", test_name, __LINE__, #cond); \
        } \
    } while (0)

#define RUN(test) (test_name = #test, test())

static int done(const char *program) {
    printf("%s: %s\n", program, failures ? "FAILED" : "passed");
    return failures ? 1 : 0;
}

static inline uint64_t scramble(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static inline uint64_t draw(uint64_t *state) {
    return scramble(*state += UINT64_C(0x9E3779B97F4A7C15));
}

/* A mapping that ends at a page no one may touch, and begins behind one. */
typedef struct guarded {
    unsigned char *base, *mem;
    size_t whole;
} guarded;

static inline guarded guarded_map(uint64_t bytes, int shared) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = ((size_t)bytes + page - 1) / page * page;
    guarded g;
    g.whole = inner + 2 * page;
    int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    void *at = mmap(NULL, g.whole, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    g.base = (unsigned char *)at;
    mprotect(g.base, page, PROT_NONE);
    mprotect(g.base + page + inner, page, PROT_NONE);
    g.mem = g.base + page + inner - bytes; /* queues take whole 128-byte blocks */
    return g;
}

static inline void guarded_unmap(guarded *g) { munmap(g->base, g->whole); }

/* A record of `bytes` whose every word follows from its producer and number. */
static inline void record_make(void *record, uint32_t bytes, uint64_t producer, uint64_t number) {
    uint64_t word = producer << 48 | number;
    memcpy(record, &word, 8);
    for (uint32_t at = 8; at < bytes; at += 8) {
        word = scramble(word + at);
        memcpy((unsigned char *)record + at, &word, 8);
    }
}

static inline int record_ok(const void *record, uint32_t bytes, uint64_t producer,
                            uint64_t number) {
    unsigned char want[1024];
    record_make(want, bytes, producer, number);
    return memcmp(record, want, bytes) == 0;
}

/* Wait for a child. Returns its exit status, or 1000 if it was killed. */
static inline int child_status(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

#endif
