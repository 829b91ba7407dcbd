#pragma once
/* tests: system/formats/lines, system/formats/tar */
#include "api/codes.h"
#include "api/errors.h"
#include "api/order.h"
#include "formats/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>formats-impl-index     WHERE ITEMS LIE IN A FILE
   A file of items is cut at n + 1 places: item i lies in bytes [at[i], at[i + 1]). An index file
   holds 8 words that say which file it belongs to, and then these places. All words are in the
   machine's order. The index is a hint: two places are compared with the file's length whenever
   they are read, and a format compares the bytes there with what it expects. So an index that is
   cut, old or made up gives errors, and no read outside a buffer.

   A new index is written under a name of its own, and renamed. So several processes may write the
   same index at once, and a reader maps a whole one. A writer that dies leaves that other name. */

enum { DLPI_INDEX_WORDS = 8, DLPI_FORMATS_PATH = 4096 };

/* What an index is about. */
typedef struct dlpi_index_key {
    uint64_t kind;           /* of places: DLPI_INDEX_* */
    uint64_t bytes, time_ns; /* of the file: its length, its last change */
} dlpi_index_key;

enum { DLPI_INDEX_LINES = 1, DLPI_INDEX_NO_EMPTY = 2, DLPI_INDEX_TAR = 3 };

typedef struct dlpi_index {
    const uint64_t *at; /* [n + 1]; in a mapping another process may change them */
    uint64_t n;         /* items */
    uint64_t most;      /* bytes of the longest item */
    void *memory;       /* that at lies in */
    size_t mapped;      /* bytes of the mapping; 0: memory is of malloc */
} dlpi_index;

/* Write an error record. Returns code. */
__attribute__((format(printf, 5, 6))) static int dlpi_formats_error(dlp_error *err, int code,
                                                                    int errnum, const char *field,
                                                                    const char *format, ...) {
    va_list args;
    if (err == NULL) return code;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->errnum = errnum;
    err->worker = -1;
    snprintf(err->field, sizeof err->field, "%s", field);
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

/* The end of a path, which says more than its beginning. */
static const char *dlpi_formats_name(const char *path) {
    size_t n = strlen(path);
    return n > 100 ? path + n - 100 : path;
}

/* A system call failed at a file. errnum: of the call. */
static int dlpi_formats_system(dlp_error *err, const char *path, const char *call, int errnum) {
    return dlpi_formats_error(err, errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, errnum,
                              "path", "%s: %s: %s", dlpi_formats_name(path), call,
                              strerror(errnum));
}

/* fd, or a copy of it above 2: in a program that closed the first three, what somebody prints
   would go into the file. Returns -1 with errno if fd is -1 or no copy can be made. */
static int dlpi_formats_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* Open for reading. O_NONBLOCK: the open of a named pipe does not wait. */
static int dlpi_formats_open(const char *path) {
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return dlpi_formats_above(fd);
}

/* Read n bytes from byte `at` on. Returns how many there were, or -1 and errno. */
static int64_t dlpi_formats_read(int fd, uint64_t at, uint64_t n, void *to) {
    uint64_t got = 0;
    while (got < n) {
        uint64_t rest = n - got < (1u << 30) ? n - got : 1u << 30;
        ssize_t k = pread(fd, (uint8_t *)to + got, (size_t)rest, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (uint64_t)k;
    }
    return (int64_t)got;
}

static dlpi_index_key dlpi_index_key_of(const struct stat *st, uint64_t kind) {
    return (dlpi_index_key){kind, (uint64_t)st->st_size,
                            (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                (uint64_t)st->st_mtim.tv_nsec};
}

/* ---- index files ---- */

static void dlpi_index_head(uint64_t head[DLPI_INDEX_WORDS], const dlpi_index_key *key,
                            const dlpi_index *x) {
    const uint64_t first = UINT64_C(0x0131787069706c64); /* "dlpipx1", and its version */
    const uint64_t words[DLPI_INDEX_WORDS - 1] = {first, key->kind, key->bytes, key->time_ns,
                                                  x->n,  x->most,   0};
    head[DLPI_INDEX_WORDS - 1] = 0;
    for (int i = 0; i < DLPI_INDEX_WORDS - 1; i++) {
        head[i] = words[i];
        head[DLPI_INDEX_WORDS - 1] = dlp_hash(head[DLPI_INDEX_WORDS - 1], words[i], 0, 0);
    }
}

/* The name of the index of a file: beside it, or in a directory, where a number tells files of one
   name apart. Returns false if it is too long. */
static bool dlpi_index_path(char to[DLPI_FORMATS_PATH], const char *directory, const char *path) {
    const char *slash = strrchr(path, '/');
    uint64_t number = 0;
    int n;
    if (directory == NULL) {
        n = snprintf(to, DLPI_FORMATS_PATH, "%s.dlpidx", path);
    } else {
        for (const char *c = path; *c; c++) number = dlp_hash(number, (uint8_t)*c, 0, 0);
        n = snprintf(to, DLPI_FORMATS_PATH, "%s/%s.%016" PRIx64 ".dlpidx", directory,
                     slash != NULL ? slash + 1 : path, number);
    }
    return n > 0 && n < DLPI_FORMATS_PATH;
}

/* Does a mapped index belong to the file? bytes: of the mapping. */
static bool dlpi_index_fits(dlpi_index *x, const dlpi_index_key *key, uint64_t bytes) {
    uint64_t head[DLPI_INDEX_WORDS], want[DLPI_INDEX_WORDS];
    memcpy(head, x->memory, sizeof head);
    x->n = head[4];
    x->most = head[5];
    dlpi_index_head(want, key, x);
    return memcmp(head, want, sizeof head) == 0 && x->most <= key->bytes && x->n <= key->bytes &&
           bytes == (DLPI_INDEX_WORDS + x->n + 1) * sizeof(uint64_t);
}

static void dlpi_index_free(dlpi_index *x) {
    if (x->mapped > 0)
        munmap(x->memory, x->mapped);
    else
        free(x->memory);
    memset(x, 0, sizeof *x);
}

/* Map the index file, if there is one that fits. */
static bool dlpi_index_map(dlpi_index *x, const char *path, const dlpi_index_key *key) {
    int fd = dlpi_formats_open(path);
    struct stat st;
    void *map = MAP_FAILED;
    memset(x, 0, sizeof *x);
    if (fd < 0) return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size >= (DLPI_INDEX_WORDS + 1) * sizeof(uint64_t))
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return false;
    x->memory = map;
    x->mapped = (size_t)st.st_size;
    x->at = (const uint64_t *)map + DLPI_INDEX_WORDS;
    if (dlpi_index_fits(x, key, x->mapped)) return true;
    dlpi_index_free(x);
    return false;
}

static int dlpi_index_put(int fd, const void *bytes, uint64_t n) {
    const uint8_t *from = bytes;
    while (n > 0) {
        ssize_t k = write(fd, from, n < (1u << 30) ? (size_t)n : 1u << 30);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        from += k;
        n -= (uint64_t)k;
    }
    return 0;
}

/* Write an index file. Returns 0 or errno. A file above the limit (ulimit -f) would end the program
   by SIGXFSZ. */
static int dlpi_index_write(const dlpi_index *x, const char *path, const dlpi_index_key *key) {
    char name[DLPI_FORMATS_PATH + 16];
    uint64_t head[DLPI_INDEX_WORDS];
    struct rlimit most;
    struct timespec now;
    int fd, rc;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 &&
        most.rlim_cur / sizeof(uint64_t) < DLPI_INDEX_WORDS + x->n + 1)
        return EFBIG;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, "%s.%08x.new", path,
             (unsigned)dlp_hash((uint64_t)getpid(), (uint64_t)(uintptr_t)x, (uint64_t)now.tv_sec,
                                (uint64_t)now.tv_nsec));
    fd = dlpi_formats_above(open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (fd < 0) return errno;
    dlpi_index_head(head, key, x);
    rc = dlpi_index_put(fd, head, sizeof head);
    if (rc == 0) rc = dlpi_index_put(fd, x->at, (x->n + 1) * sizeof *x->at);
    if (close(fd) != 0 && rc == 0) rc = errno;
    if (rc == 0 && rename(name, path) != 0) rc = errno;
    if (rc != 0) unlink(name);
    return rc;
}

/* Where item i lies. Returns false if the index cannot be that of a file of so many bytes. */
static inline bool dlpi_index_item(const dlpi_index *x, uint64_t bytes, uint64_t i, uint64_t *from,
                                   uint64_t *to) {
    memcpy(from, x->at + i, sizeof *from); /* copied once, then checked */
    memcpy(to, x->at + i + 1, sizeof *to);
    return *from < *to && *to <= bytes;
}
