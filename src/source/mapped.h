#pragma once
/* tests: system/source/tokens, system/source/arrays */
#include "api/dataset.h"
#include "api/stages.h"
#include "inputs/check.h"
#include "source/new_file.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-mapped     FILES THAT ARE MAPPED
   The sources >>tokens and >>arrays read such files. A file is mapped once, when its source is
   opened. A row is copied out of the mapping into its place in the batch, without a system call.
   With `reads` nothing is mapped, and each row is a pread. This is slower, but if the disk fails,
   or the file is cut in this moment, that is an error of the item. With a mapping the process would
   end by SIGBUS.

   A file that was cut earlier does not end the process: its size is read before a row is copied. To
   do this for each row would cost more than the row. So it is done once in each tick of the coarse
   clock (1 to 10 ms, as the kernel is built) in which the file is read.

   label  atomic          written by                      read by
   U4     users           workers, as they begin and end  close of the source
   -      checked_ns,     any worker; a lost update costs one fstat or one madvise
          advised, cold                                   any worker */

#include <sys/uio.h>

enum {
    DLPI_MAPPED_BLOCK = 1 << 20, /* bytes of a read-ahead request, for rows that come in order */
    DLPI_MAPPED_COLD = 8 /* probes in a row that find data in memory, before requests stop */
};

typedef struct dlpi_mapped {
    char *path;           /* owned */
    const uint8_t *bytes; /* the mapping; NULL: the file is empty, or is read */
    uint64_t size;        /* bytes of the file when it was opened */
    uint64_t checked_ns;  /* time at which its size was last found to be the same; 0: never */
    uint32_t advised;     /* 1 + MADV_SEQUENTIAL or MADV_RANDOM; 0: neither */
    int fd;               /* -1: not open */
} dlpi_mapped;

static inline uint64_t dlpi_coarse_ns(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#else
    return dlpi_now_ns() / 1000000u * 1000000u;
#endif
}

/* Set *err to "path: byte at: words". at: the byte that the error is about. Returns code. */
__attribute__((format(printf, 5, 6))) static int dlpi_mapped_error(dlp_error *err, int code,
                                                                   const char *path, uint64_t at,
                                                                   const char *format, ...) {
    char words[120];
    DLPI_PRINT(words, sizeof words, format);
    return dlpi_error_set(err, code, "paths", "%.110s: byte %" PRIu64 ": %s",
                          strlen(path) > 110 ? path + strlen(path) - 110 : path, at, words);
}

static int dlpi_mapped_system(dlp_error *err, const char *path, const char *call, int errnum) {
    int code = errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM;
    dlpi_error_set(err, code, "paths", "%s: %s: %s%s", dlpi_path_end(path), call, strerror(errnum),
                   dlpi_path_cure(errnum));
    if (err) err->errnum = errnum;
    return code;
}

DLPI_COLD static void dlpi_mapped_close(dlpi_mapped *m) {
    if (m->bytes) munmap((void *)(uintptr_t)m->bytes, (size_t)m->size);
    if (m->fd >= 0) close(m->fd);
    free(m->path);
    memset(m, 0, sizeof *m);
    m->fd = -1;
}

/* Open a regular file, and map it unless `reads`. m: is overwritten; the caller closes it, also
   after a failure. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_mapped_open(dlpi_mapped *m, const char *path, bool reads, dlp_error *err) {
    struct stat st;
    void *map;
    memset(m, 0, sizeof *m);
    m->fd = -1;
    if (path == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "paths has a NULL; give all paths");
    if ((m->path = strdup(path)) == NULL) return dlpi_mapped_system(err, path, "strdup", ENOMEM);
    do m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe: not to wait for ever */
    while (m->fd < 0 && errno == EINTR);
    if (m->fd >= 0) m->fd = dlpi_fd_above(m->fd);
    if (m->fd < 0) return dlpi_mapped_system(err, path, "open", errno);
    if (fstat(m->fd, &st) != 0) return dlpi_mapped_system(err, path, "fstat", errno);
    if (!S_ISREG(st.st_mode))
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "%s: %s", dlpi_path_end(path),
                              S_ISDIR(st.st_mode) ? "is a directory" : "is no regular file");
    m->size = (uint64_t)st.st_size;
    if (reads || m->size == 0) return DLP_OK;
    map = mmap(NULL, (size_t)m->size, PROT_READ, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED) return dlpi_mapped_system(err, path, "mmap", errno);
    m->bytes = map;
    return DLP_OK;
}

/* Read n bytes of a file from byte `at` on. Returns how many were read, fewer only at the file's
   end, or -1 with errno. */
static int64_t dlpi_mapped_pread(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to) {
    uint64_t got = 0;
    while (got < n) {
        uint64_t rest = n - got < (1u << 30) ? n - got : 1u << 30;
        ssize_t k = pread(m->fd, (uint8_t *)to + got, (size_t)rest, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (uint64_t)k;
    }
    return (int64_t)got;
}

/* Read n bytes of a file from byte `at` on, as its source is opened. what: the name that an error
   gives to these bytes, such as "header". Returns 0, or a DLP_ERR code and *err. */
static int dlpi_mapped_head(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const char *what, dlp_error *err) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", errno);
    if ((uint64_t)got == n) return DLP_OK;
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, at + (uint64_t)got,
                             "the file ends in its %s of %" PRIu64 " bytes", what, n);
}

/* Check, at most once in a clock tick, that a file is still as long as it was. Returns 0 or a
   failure's code, said in the item's call. */
static int dlpi_mapped_check(dlpi_mapped *m, const dlp_item *item) {
    uint64_t now = dlpi_coarse_ns();
    struct stat st;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->checked_ns) == now)) return 0;
    if (fstat(m->fd, &st) != 0)
        return dlp_fail(item->call, errno, "%s: fstat failed", dlpi_path_end(m->path));
    if ((uint64_t)st.st_size < m->size)
        return dlp_fail(item->call, 0,
                        "%s: was cut to %" PRIu64 " bytes, it had %" PRIu64 " when it was opened",
                        dlpi_path_end(m->path), (uint64_t)st.st_size, m->size);
    DLPI_STORE_RLX(&m->checked_ns, now);
    return 0;
}

/* Copy bytes [at, at + n) out of a file by reading it. Returns 0 or a failure's code. */
static int dlpi_mapped_read(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const dlp_item *item) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (DLPI_LIKELY(got == (int64_t)n)) return 0;
    if (got < 0)
        return dlp_fail(item->call, errno, "%s: cannot be read, at byte %" PRIu64,
                        dlpi_path_end(m->path), at);
    return dlp_fail(item->call, 0,
                    "%s: ended at byte %" PRIu64 ", it had %" PRIu64 " when it was opened",
                    dlpi_path_end(m->path), at + (uint64_t)got, m->size);
}

/* Copy bytes [at, at + n), which lie within the file as it was opened, out of the mapping, or by
   reading. Returns 0 or a failure's code. */
static inline int dlpi_mapped_copy(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                                   const dlp_item *item) {
    if (DLPI_UNLIKELY(m->bytes == NULL)) return dlpi_mapped_read(m, at, n, to, item);
    memcpy(to, m->bytes + at, (size_t)n);
    return 0;
}

/* ---- read-ahead ---- */

/* Tell the system once how the file will be read: MADV_SEQUENTIAL or MADV_RANDOM. */
static inline void dlpi_mapped_advise(dlpi_mapped *m, int advice) {
    uint32_t word = 1u + (uint32_t)advice;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->advised) == word)) return;
    DLPI_STORE_RLX(&m->advised, word);
    if (m->bytes)
        (void)madvise((void *)(uintptr_t)m->bytes, (size_t)m->size, advice);
    else
        (void)posix_fadvise(m->fd, 0, 0,
                            advice == MADV_RANDOM ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
}

/* True if the byte at `at` is in memory, or if that is not known. A read that would wait for the
   disk is refused (Linux 4.14). */
static bool dlpi_mapped_is_here(const dlpi_mapped *m, uint64_t at) {
#if defined(SYS_preadv2)
    enum { NO_WAIT = 8 }; /* RWF_NOWAIT */
    char byte;
    struct iovec to = {&byte, 1};
    return syscall(SYS_preadv2, m->fd, &to, 1L, (long)at, 0L, (long)NO_WAIT) >= 0 ||
           errno != EAGAIN;
#else
    (void)m;
    (void)at;
    return false;
#endif
}

/* Ask for bytes [at, at + n) to be read ahead, without waiting, also for a mapping. */
static void dlpi_mapped_will_need(const dlpi_mapped *m, uint64_t at, uint64_t n) {
    if (at < m->size) (void)posix_fadvise(m->fd, (off_t)at, (off_t)n, POSIX_FADV_WILLNEED);
}

/* ---- workers that use a source ---- */

static int dlpi_users_enter(void *user, int worker, void **state) {
    (void)worker;
    (void)state;
    DLPI_ADD_SEQ((uint32_t *)user, 1u); /* U4 -> U4 */
    return 0;
}

static void dlpi_users_leave(void *user, int worker, void *state) {
    (void)worker;
    (void)state;
    DLPI_ADD_SEQ((uint32_t *)user, UINT32_MAX); /* U4 -> U4: one less */
}

static void dlpi_users_wire(uint32_t *users, dlp_workers_desc *workers) {
    workers->worker_init = dlpi_users_enter;
    workers->worker_exit = dlpi_users_leave;
    workers->worker_user = users;
}

static bool dlpi_users_any(const uint32_t *users) {
    return DLPI_LOAD_SEQ(users) != 0; /* U4 <- U4 */
}

/* Return the number of the file that has an item: the last one that begins at the item or before.
   first: the number of the first file's first item. stride: bytes from there to that of the next of
   n files. */
static inline uint64_t dlpi_file_of(const uint64_t *first, size_t stride, uint64_t n,
                                    uint64_t item) {
    uint64_t low = 0;
    while (n > 1) {
        const uint64_t half = n / 2;
        uint64_t begins;
        memcpy(&begins, (const uint8_t *)first + (low + half) * stride, sizeof begins);
        low = begins <= item ? low + half : low;
        n -= half;
    }
    return low;
}

/* Fill in a source of mapped files: its fetch writes all bytes. users: counts its workers (U4). */
static void dlpi_mapped_source(dlp_source *to, dlp_dataset *dataset, dlp_item_fn fetch,
                               uint32_t *users) {
    dataset->writes_all_bytes = 1;
    dataset->fetch = fetch;
    dataset->user = to;
    to->fetch.dataset = dataset;
    dlpi_users_wire(users, &to->fetch.workers);
}
