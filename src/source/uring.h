/* needs: files */
#pragma once
/* tests: system/source/files */
#include "build/check.h"
/* ---- io_uring: rings that the kernel shares (io_uring_setup(2)) ---- */

typedef struct dlpi_sqe { /* io_uring's, include/uapi/linux/io_uring.h */
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t offset, address;
    uint32_t bytes, op_flags;
    uint64_t user_data, rest[3];
} dlpi_sqe;

typedef struct dlpi_cqe {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
} dlpi_cqe;

typedef struct dlpi_uring {
    int fd; /* -1: none */
    void *map, *sqe_map;
    size_t map_bytes, sqe_bytes;
    uint32_t *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    uint32_t tail, queued; /* end of the submissions; those that the kernel was not told of yet */
    dlpi_sqe *sqe;
    dlpi_cqe *cqe;
} dlpi_uring;

typedef struct dlpi_uring_params { /* struct io_uring_params */
    uint32_t sq_entries, cq_entries, flags, thread_cpu, thread_idle, features, wq_fd, rest[3];
    struct {
        uint32_t head, tail, mask, entries, flags, dropped, array, rest[3];
    } sq;
    struct {
        uint32_t head, tail, mask, entries, overflow, cqes, flags, rest[3];
    } cq;
} dlpi_uring_params;

_Static_assert(sizeof(dlpi_sqe) == 64 && sizeof(dlpi_cqe) == 16, "io_uring's layout");
_Static_assert(sizeof(dlpi_uring_params) == 120, "io_uring's layout");

enum {
    DLPI_URING_OPENAT = 18,
    DLPI_URING_READ = 22,
    DLPI_URING_SINGLE_MMAP = 1, /* of features */
    DLPI_URING_OPS = 64,
    DLPI_URING_SQES_AT = 0x10000000 /* offset in the ring's file */
};

/* True if the kernel has both operations, open and read. */
static bool dlpi_uring_can(int fd) {
    struct {
        uint8_t last, n;
        uint16_t rest0;
        uint32_t rest[3];
        struct {
            uint8_t op, rest0;
            uint16_t flags; /* 1: supported */
            uint32_t rest;
        } op[DLPI_URING_OPS];
    } probe;
    memset(&probe, 0, sizeof probe);
    return dlpi_ring_probe(fd, &probe, DLPI_URING_OPS) &&
           (probe.op[DLPI_URING_OPENAT].flags & 1) != 0 &&
           (probe.op[DLPI_URING_READ].flags & 1) != 0;
}

/* Unmap and close a ring, which may be open in part. The kernel must have no request of it. */
static void dlpi_uring_close(dlpi_uring *u) {
    if (u->map) dlpi_pages_free(u->map, u->map_bytes);
    if (u->sqe_map) dlpi_pages_free(u->sqe_map, u->sqe_bytes);
    dlpi_handle_close(u->fd);
    memset(u, 0, sizeof *u);
    u->fd = -1;
}

/* Map the queues of a ring. Returns 0 or errno. */
static int dlpi_uring_maps(dlpi_uring *u, const dlpi_uring_params *p) {
    size_t sq = p->sq.array + p->sq_entries * sizeof(uint32_t);
    size_t cq = p->cq.cqes + p->cq_entries * sizeof(dlpi_cqe);
    uint8_t *base;
    int rc;
    u->map_bytes = sq > cq ? sq : cq;
    u->sqe_bytes = p->sq_entries * sizeof(dlpi_sqe);
    if ((rc = dlpi_pages_of(&u->map, u->map_bytes, u->fd, 0)) != 0) return rc;
    rc = dlpi_pages_of(&u->sqe_map, u->sqe_bytes, u->fd, DLPI_URING_SQES_AT);
    if (rc != 0) return rc;
    base = u->map;
    u->sq_tail = (uint32_t *)(void *)(base + p->sq.tail);
    u->cq_head = (uint32_t *)(void *)(base + p->cq.head);
    u->cq_tail = (uint32_t *)(void *)(base + p->cq.tail);
    u->sq_mask = p->sq_entries - 1;
    u->cq_mask = p->cq_entries - 1;
    u->cqe = (dlpi_cqe *)(void *)(base + p->cq.cqes);
    u->sqe = u->sqe_map;
    for (uint32_t i = 0; i < p->sq_entries; i++) /* entry i is always at place i */
        ((uint32_t *)(void *)(base + p->sq.array))[i] = i;
    return 0;
}

/* Make a ring for n requests. Returns 0 or errno. */
DLPI_COLD static int dlpi_uring_open(dlpi_uring *u, uint32_t n) {
    dlpi_uring_params p;
    int rc;
    memset(u, 0, sizeof *u);
    memset(&p, 0, sizeof p);
    if ((rc = dlpi_ring_setup(&u->fd, n, &p)) != 0) return rc;
    rc = ENOSYS;
    if ((p.features & DLPI_URING_SINGLE_MMAP) != 0 && dlpi_uring_can(u->fd))
        rc = dlpi_uring_maps(u, &p);
    if (rc != 0) dlpi_uring_close(u);
    return rc;
}

/* Give the queued requests to the kernel. Returns 0, also if it took only some, or errno. */
static int dlpi_uring_enter(dlpi_uring *u) {
    DLPI_STORE_REL(u->sq_tail, u->tail); /* IO1 -> IO1: the entries before it */
    return dlpi_ring_enter(u->fd, &u->queued);
}

/* Sleep until there is a completion, or timeout_ms are over. */
static void dlpi_uring_wait(const dlpi_uring *u, int timeout_ms) {
    dlpi_ring_wait(u->fd, timeout_ms);
}
