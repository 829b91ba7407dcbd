#pragma once
/* tests: system/source/tokens, system/source/arrays, system/source/handles */
#include "api/dataset.h"
#include "api/stages.h"
#include "inputs/check.h"
#include "slot/item.h"
#include "queue/credit.h"
#include "queue/first.h"
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

   A mapped file keeps its descriptor only while descriptors are plentiful: at most half of ulimit
   -n are in use. Without a descriptor the file at the path is measured, if it is still this file.

   If a handle is dead (dlpi_handle_dead), the path is opened again. The new descriptor takes the
   place of the old one if length and time are what they were when the source was opened. A mapping
   is then made again at its address. Other threads may still read by the old number. So that number
   is never closed. It stays as `retired`, and becomes a copy of the new descriptor when the next
   handle dies. So a file has at most two numbers, and each has only ever led to this file. But a
   number that somebody else has closed is given up: it may lead to a file of theirs by now. Each
   process has descriptors of its own.

   label  atomic          written by                      read by
   U4     users           workers, as they begin and end  close of the source
   U5     fd              a worker that is busy           any worker
   U6     busy            a worker whose read finds a     such a worker: it waits
                          dead handle: its process' id
   -      checked_ns,     any worker; a lost update costs one fstat or one madvise
          advised, cold                                   any worker */

enum {
    DLPI_MAPPED_BLOCK = 1 << 20, /* bytes of a read-ahead request, for rows that come in order */
    DLPI_MAPPED_COLD = 8 /* probes in a row that find data in memory, before requests stop */
};

/* What is told of reads while the items of a file are found. */
typedef struct dlpi_scan {
    void (*seen)(struct dlpi_scan *scan, uint64_t at); /* bytes up to `at` were read; any thread */
} dlpi_scan;

typedef struct dlpi_mapped {
    char *path;              /* owned */
    const uint8_t *bytes;    /* the mapping; NULL: the file is empty, or is read */
    dlpi_scan *scan;         /* borrowed; NULL: nobody is told of reads */
    uint64_t size;           /* bytes of the file when it was opened */
    uint64_t time_ns;        /* time of its last change, then */
    uint64_t volume, number; /* of the file, then */
    uint64_t checked_ns;     /* time at which its size was last found to be the same; 0: never */
    uint32_t advised;        /* 1 + DLPI_IN_ORDER, and so on; 0: no advice */
    uint32_t busy;           /* U6: process of the thread that opens it again; 0: none */
    int fd;                  /* U5: -1: not open, or mapped and closed */
    int retired;             /* a number that it had before a dead handle; -1: none */
} dlpi_mapped;

/* Set *err to "path: byte at: words". at: the byte that the error is about. Returns code. */
DLPI_PRINTF(5, 6)
static int dlpi_mapped_error(dlp_error *err, int code, const char *path, uint64_t at,
                             const char *format, ...) {
    char words[120];
    DLPI_PRINT(words, sizeof words, format);
    return dlpi_error_set(err, code, "paths", "%.110s: byte %" PRIu64 ": %s",
                          strlen(path) > 110 ? path + strlen(path) - 110 : path, at, words);
}

/* Fill *err with the failure of a system call on a file. Returns DLP_ERR_MEMORY or DLP_ERR_SYSTEM.
   */
static int dlpi_mapped_system(dlp_error *err, const char *path, const char *call, int errnum) {
    int code = errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM;
    dlpi_error_set(err, code, "paths", "%s: %s: %s%s", dlpi_path_end(path), call, strerror(errnum),
                   dlpi_path_cure(errnum));
    if (err) err->errnum = errnum;
    return code;
}

/* Say in *err that no descriptor is left for a file. left: files that the source has still to open,
   this one among them, and keep open. Returns DLP_ERR_SYSTEM. */
DLPI_COLD static int dlpi_mapped_no_fd(dlp_error *err, const char *path, uint64_t left) {
    const uint64_t most = dlpi_fd_limit();
    dlpi_error_set(err, DLP_ERR_SYSTEM, "paths",
                   "%.80s: open: %s; set ulimit -n to %" PRIu64 " or more, it is %" PRIu64,
                   strlen(path) > 80 ? path + strlen(path) - 80 : path, strerror(EMFILE),
                   dlpi_sum(most, left + 32), most);
    if (err) err->errnum = EMFILE;
    return DLP_ERR_SYSTEM;
}

DLPI_COLD static void dlpi_mapped_begin(dlpi_mapped *m) {
    memset(m, 0, sizeof *m);
    m->fd = m->retired = -1;
}

/* Unmap and close a file, and clear its record. */
DLPI_COLD static void dlpi_mapped_close(dlpi_mapped *m) {
    if (m->bytes) dlpi_handle_unmap(m->bytes, m->size);
    dlpi_handle_close(m->fd);
    dlpi_handle_close(m->retired);
    free(m->path);
    dlpi_mapped_begin(m);
}

/* Open a regular file, and map it unless `reads`. m: is overwritten; the caller closes it, also
   after a failure. left: files that the source has still to open, for the words of an error.
   Returns 0, or a DLP_ERR code and *err. */
static int dlpi_mapped_open(dlpi_mapped *m, const char *path, bool reads, uint64_t left,
                            dlp_error *err) {
    dlpi_facts st;
    int rc;
    dlpi_mapped_begin(m);
    if (path == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "paths has a NULL; give all paths");
    if ((m->path = dlpi_string_copy(path)) == NULL)
        return dlpi_mapped_system(err, path, "strdup", ENOMEM);
    rc = dlpi_handle_open(&m->fd, path, DLPI_READ);
    if (rc == EMFILE) return dlpi_mapped_no_fd(err, path, reads ? left : 1);
    if (rc != 0) return dlpi_mapped_system(err, path, "open", rc);
    if ((rc = dlpi_handle_facts(m->fd, &st)) != 0)
        return dlpi_mapped_system(err, path, "fstat", rc);
    if (st.kind != DLPI_IS_FILE)
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "%s: %s", dlpi_path_end(path),
                              st.kind == DLPI_IS_DIRECTORY ? "is a directory"
                                                           : "is no regular file");
    m->size = st.bytes;
    m->time_ns = st.changed_ns;
    m->volume = st.volume;
    m->number = st.number;
    if (reads || m->size == 0) return DLP_OK;
    if ((rc = dlpi_handle_map(m->fd, m->size, &m->bytes)) == 0) return DLP_OK;
    return dlpi_mapped_system(err, path,
                              rc == ENOMEM ? "mmap (see vm.max_map_count, ulimit -v)" : "mmap", rc);
}

/* Close the descriptor of a file whose header was read and whose rows are mapped, unless
   descriptors are plentiful. A descriptor is better for reading ahead. */
DLPI_COLD static void dlpi_mapped_spare(dlpi_mapped *m) {
    if (m->fd < 0 || (uint64_t)m->fd < dlpi_fd_limit() / 2) return;
    if (m->bytes == NULL && m->size > 0) return; /* it is read */
    dlpi_handle_close(m->fd);
    m->fd = -1;
}

/* ---- handles that died ---- */

static inline int dlpi_mapped_fd(const dlpi_mapped *m) {
    return DLPI_LOAD_RLX(&m->fd); /* U5: a number says all */
}

/* True if *st describes the file that was opened, unchanged. Its inode may be another one: the file
   may have been copied back. */
static bool dlpi_mapped_same(const dlpi_mapped *m, const dlpi_facts *st) {
    return st->kind == DLPI_IS_FILE && st->bytes == m->size && st->changed_ns == m->time_ns;
}

/* True if a number is still a descriptor of this file, which may be dead. Somebody may have closed
   it, and opened another file by that number. */
DLPI_COLD static bool dlpi_mapped_owns(const dlpi_mapped *m, int fd) {
    dlpi_facts st;
    const int rc = dlpi_handle_facts(fd, &st);
    return rc == 0 ? dlpi_mapped_same(m, &st) : rc != EBADF;
}

/* Put the descriptor fd in the place of `used`, which is dead, and map the file again. Returns
   false if the system gives no copy of the descriptor. The caller is `busy`. */
DLPI_COLD static bool dlpi_mapped_replace(dlpi_mapped *m, int used, int fd) {
    const bool owned = fd != used && dlpi_mapped_owns(m, used);
    if (m->retired >= 0 && m->retired != fd && dlpi_mapped_owns(m, m->retired)) {
        if (dlpi_handle_become(m->retired, fd) != 0) return false;
        fd = m->retired;
    }
    if (m->bytes != NULL) {
        dlpi_handle_map_again(fd, m->bytes, m->size);
        DLPI_STORE_RLX(&m->advised, 0u);
    }
    m->retired = owned ? used : -1;
    DLPI_STORE_RLX(&m->fd, fd); /* U5: the number says all */
    return true;
}

/* Open the path of a file whose descriptor `used` is dead. Returns true if the file is as it was,
   and has a descriptor again. The caller is `busy`. */
DLPI_COLD static bool dlpi_mapped_revive(dlpi_mapped *m, int used) {
    dlpi_handle fd;
    dlpi_facts st;
    if (dlpi_handle_open(&fd, m->path, DLPI_READ) != 0) return false;
    if (dlpi_handle_facts(fd, &st) == 0 && dlpi_mapped_same(m, &st))
        return dlpi_mapped_replace(m, used, fd);
    dlpi_handle_close(fd);
    return false;
}

/* Open the path again, if errnum says that the descriptor `used` is dead, once for all threads.
   Returns true if the file is as it was, so that the call may be tried again. A process that was
   forked while a thread of its parent was busy takes its place. */
DLPI_COLD static bool dlpi_mapped_again(const dlpi_mapped *file, int used, int errnum) {
    dlpi_mapped *m = (dlpi_mapped *)(uintptr_t)file;
    const uint32_t me = (uint32_t)dlpi_process_number();
    uint32_t owner;
    bool good;
    if (!dlpi_handle_dead(errnum) || used < 0) return false;
    for (;;) {
        if (dlpi_mapped_fd(m) != used) return true;                  /* another thread did it */
        owner = DLPI_LOAD_RLX(&m->busy);                             /* U6: the swap looks again */
        if (owner != 0 && owner != me) DLPI_STORE_RLX(&m->busy, 0u); /* U6: of our parent */
        if (dlpi_first_take(&m->busy, me)) break;                    /* U6 <- U6 */
        dlpi_sleep(1000000);
    }
    good = dlpi_mapped_fd(m) != used || dlpi_mapped_revive(m, used);
    dlpi_credit_done_quiet(&m->busy); /* U6 -> U6: what it did with the descriptors */
    return good;
}

/* Say in the item's call why a file whose handle is dead cannot be read again. Returns the
   failure's code. */
DLPI_COLD static int dlpi_mapped_lost(const dlpi_mapped *m, const dlp_item *item, int errnum) {
    dlpi_facts st;
    const char *path = dlpi_path_end(m->path);
    const int rc = dlpi_path_facts(m->path, true, &st);
    if (rc != 0)
        return dlp_fail(item->call, errnum, "%s: its handle died, and the path: %s", path,
                        strerror(rc));
    if (dlpi_mapped_same(m, &st))
        return dlp_fail(item->call, errnum, "%s: its handle died, and cannot be opened again",
                        path);
    return dlp_fail(item->call, errnum,
                    "%s: its handle died, and the file was changed: %" PRIu64 " bytes, it had "
                    "%" PRIu64 "; open the source again",
                    path, st.bytes, m->size);
}

/* Write what is known of a file into *st. If the file has no descriptor and is no more at its path,
   *st gets what was known when the file was opened. Returns 0 or errno. */
static int dlpi_mapped_stat(const dlpi_mapped *m, dlpi_facts *st) {
    const int fd = dlpi_mapped_fd(m);
    if (fd >= 0) {
        const int rc = dlpi_handle_facts(fd, st);
        return rc != 0 && dlpi_mapped_again(m, fd, rc) ? dlpi_handle_facts(dlpi_mapped_fd(m), st)
                                                       : rc;
    }
    if (dlpi_path_facts(m->path, true, st) == 0 && st->volume == m->volume &&
        st->number == m->number)
        return 0;
    *st = (dlpi_facts){.bytes = m->size};
    return 0;
}

/* ---- reading ---- */

/* Read n bytes of a file from byte `at` on. Returns how many were read, fewer only at the file's
   end, or -errno. */
static int64_t dlpi_mapped_pread(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to) {
    uint64_t got, more;
    const int fd = dlpi_mapped_fd(m);
    int rc = dlpi_handle_read(fd, to, n, at, &got);
    if (rc != 0 && dlpi_mapped_again(m, fd, rc)) {
        rc = dlpi_handle_read(dlpi_mapped_fd(m), (uint8_t *)to + got, n - got, at + got, &more);
        got += more;
    }
    if (rc != 0) return -rc;
    if (got > 0 && m->scan != NULL) m->scan->seen(m->scan, at + got);
    return (int64_t)got;
}

/* Return the next byte of a file, from `at` on, that is not in a hole, or `end`. */
static uint64_t dlpi_mapped_data(const dlpi_mapped *m, uint64_t at, uint64_t end) {
    const uint64_t data = at < end ? dlpi_handle_data(m->fd, at) : at;
    return data < end ? data : end;
}

/* Read n bytes of a file from byte `at` on, as its source is opened. what: the name that an error
   gives to these bytes, such as "header". Returns 0, or a DLP_ERR code and *err. */
static int dlpi_mapped_head(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const char *what, dlp_error *err) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    if ((uint64_t)got == n) return DLP_OK;
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, at + (uint64_t)got,
                             "the file ends in its %s of %" PRIu64 " bytes", what, n);
}

/* Check, at most once in a clock tick, that a file is still as long as it was. Returns 0 or a
   failure's code, said in the item's call. */
static int dlpi_mapped_check(dlpi_mapped *m, const dlp_item *item) {
    uint64_t now = dlpi_coarse_ns();
    dlpi_facts st;
    int rc;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->checked_ns) == now)) return 0;
    if ((rc = dlpi_mapped_stat(m, &st)) != 0) {
        if (dlpi_handle_dead(rc)) return dlpi_mapped_lost(m, item, rc);
        return dlp_fail(item->call, rc, "%s: fstat failed", dlpi_path_end(m->path));
    }
    if (st.bytes < m->size)
        return dlp_fail(item->call, 0,
                        "%s: was cut to %" PRIu64 " bytes, it had %" PRIu64 " when it was opened",
                        dlpi_path_end(m->path), st.bytes, m->size);
    DLPI_STORE_RLX(&m->checked_ns, now);
    return 0;
}

/* Copy bytes [at, at + n) out of a file by reading it. Returns 0 or a failure's code. */
static int dlpi_mapped_read(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const dlp_item *item) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (DLPI_LIKELY(got == (int64_t)n)) return 0;
    if (got < 0 && dlpi_handle_dead((int)-got)) return dlpi_mapped_lost(m, item, (int)-got);
    if (got < 0)
        return dlp_fail(item->call, (int)-got, "%s: cannot be read, at byte %" PRIu64,
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

/* Ask the processor for n bytes of a mapping, which are copied soon. It finds what lies behind a
   page by itself. */
static inline void dlpi_mapped_touch(const uint8_t *at, uint64_t n) {
    for (uint64_t i = 0; i < n && i < 4096; i += 64) DLPI_PREFETCH(at + i);
}

/* Tell the system once how the file will be read. advice: DLPI_IN_ORDER, and so on. */
static inline void dlpi_mapped_advise(dlpi_mapped *m, int advice) {
    const uint32_t word = 1u + (uint32_t)advice;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->advised) == word)) return;
    DLPI_STORE_RLX(&m->advised, word);
    if (m->bytes)
        dlpi_mapping_advise(m->bytes, 0, m->size, advice);
    else
        dlpi_handle_advise(dlpi_mapped_fd(m), 0, 0, advice);
}

/* True if the byte at `at` is in memory, or if that is not known. */
static bool dlpi_mapped_is_here(const dlpi_mapped *m, uint64_t at) {
    return dlpi_handle_is_here(dlpi_mapped_fd(m), m->bytes, at);
}

/* Ask for bytes [at, at + n) to be read ahead, without waiting, also for a mapping. */
static void dlpi_mapped_will_need(const dlpi_mapped *m, uint64_t at, uint64_t n) {
    const int fd = dlpi_mapped_fd(m);
    if (at >= m->size) return;
    if (fd >= 0)
        dlpi_handle_advise(fd, at, n, DLPI_WILL_NEED);
    else
        dlpi_mapping_advise(m->bytes, at, n < m->size - at ? n : m->size - at, DLPI_WILL_NEED);
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
    to->dataset = dataset;
    dlpi_users_wire(users, &to->workers);
}
