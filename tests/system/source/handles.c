/* needs: files lines tokens arrays */
/* Descriptors of sources: a handle that dies while a source is read is opened again, or an error
   says what became of the file; mapped shards leave descriptors free, and too few of them are told
   with a number. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include "../../rig/indexed_rig.h"
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { ROWS = 300, WIDTH = 8 };

/* ---- a pread that fails: of any file, so many times ---- */

static int stale_reads;

ssize_t pread(int fd, void *to, size_t n, off_t at);
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (__atomic_load_n(&stale_reads, __ATOMIC_RELAXED) > 0 &&
        __atomic_sub_fetch(&stale_reads, 1, __ATOMIC_SEQ_CST) >= 0) {
        errno = ESTALE;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

/* While descriptors are spoilt, no worker opens a path again. Else the descriptor that a worker has
   just opened would be spoilt, too, and would die twice in one read. */
static pthread_mutex_t spoils = PTHREAD_MUTEX_INITIALIZER;

int open(const char *path, int flags, ...);
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
    va_end(more);
    pthread_mutex_lock(&spoils);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    pthread_mutex_unlock(&spoils);
    return fd;
}

/* ---- files, and sources of them ---- */

enum { LINES_RING, LINES_THREADS, LINES_ALONE, TAR, TOKENS, TOKENS_MAPPED, ARRAYS, KINDS };

static const char *const names[KINDS] = {"lines",  "lines",  "lines", "tar",
                                         "tokens", "tokens", "npy"};
static const dlp_field ragged = {"txt", DLP_U8, 1, {WIDTH}, 1, 0};

/* Write the file of a kind: row i has the number i. Returns its path, which stays. */
static const char *make(int kind) {
    static char bytes[ROWS * 2048], paths[KINDS][300];
    static const char head[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '<u4', 'fortran_order': False, "
                               "'shape': (300,), }";
    size_t n = 0;
    memset(bytes, 0, sizeof bytes);
    if (kind == ARRAYS) {
        memset(bytes, ' ', 80);
        memcpy(bytes, head, sizeof head - 1);
        n = 80;
        bytes[79] = '\n';
    }
    const uint32_t rows = kind == TOKENS || kind == TOKENS_MAPPED ? ROWS + 1 : ROWS;
    for (uint32_t i = 0; i < rows; i++) {
        char *at = bytes + n;
        if (kind == TAR) {
            unsigned sum = 0;
            snprintf(at, 100, "%06u.txt", i);
            memcpy(at + 100, "0000644\0000000000\0000000000\000", 24);
            memcpy(at + 124, "00000000006\00000000000000\0        0", 33);
            memcpy(at + 257, "ustar\00000", 8);
            for (int k = 0; k < 512; k++) sum += (unsigned char)at[k];
            snprintf(at + 148, 8, "%06o", sum);
            snprintf(at + 512, 7, "%06u", i);
            n += 1024;
        } else if (kind >= TOKENS) {
            memcpy(at, &i, 4);
            n += 4;
        } else {
            n += (size_t)snprintf(at, 8, "%06u\n", i);
        }
    }
    if (kind == TAR) n += 1024;
    snprintf(paths[kind], sizeof paths[0], "%s", rig_write(names[kind], bytes, n));
    return paths[kind];
}

static int open_source(int kind, const char *const *paths, uint64_t n, dlp_source **s,
                       dlp_error *e) {
    const dlp_lines_desc lines = {.paths = paths,
                                  .n_paths = n,
                                  .index = "",
                                  .in_flight = kind == LINES_ALONE ? 0 : 4,
                                  .use_threads = kind == LINES_THREADS};
    const dlp_tar_desc tar = {
        .paths = paths, .n_paths = n, .fields = &ragged, .n_fields = 1, .index = ""};
    const dlp_tokens_desc tokens = {.paths = paths,
                                    .n_paths = n,
                                    .length = 1,
                                    .format = DLP_TOKENS_U32,
                                    .reads = kind == TOKENS,
                                    .insist = 1};
    const dlp_array_column column = {.name = "x", .paths = paths, .n_paths = n};
    const dlp_arrays_desc arrays = {.columns = &column, .n_columns = 1, .reads = 1};
    if (kind == TAR) return dlp_tar_open(s, &tar, e);
    if (kind == ARRAYS) return dlp_arrays_open(s, &arrays, e);
    return kind == TOKENS || kind == TOKENS_MAPPED ? dlp_tokens_open(s, &tokens, e)
                                                   : dlp_lines_open(s, &lines, e);
}

/* The number that a row has, or UINT32_MAX. */
static uint32_t number(const dlp_batch *b, uint32_t row) {
    const dlp_tensor *t = &b->fields[0];
    const uint8_t *at = (const uint8_t *)t->data + row * (t->bytes / b->count);
    uint32_t n = 0;
    if (t->lengths == NULL) return memcpy(&n, at, 4), n;
    if (t->lengths[row] != 6) return UINT32_MAX;
    for (int i = 0; i < 6; i++) n = n * 10 + (uint32_t)(at[i] - '0');
    return n;
}

/* ---- handles that die ---- */

/* What becomes of a descriptor that dies. */
enum { UNREADABLE, CLOSED, REPLACED };

/* Let each descriptor of a file die. first: what becomes of the one with the lowest number, which a
   second one may have replaced; how: of all others. *number becomes the lowest number if another
   file has it then. Returns how many there were. */
static int spoil(const char *path, int first, int how, int *number) {
    char at[40], to[300];
    int n = 0;
    pthread_mutex_lock(&spoils);
    for (int fd = 3; fd < 200; fd++) {
        const int what = n == 0 ? first : how;
        ssize_t k;
        snprintf(at, sizeof at, "/proc/self/fd/%d", fd);
        if ((k = readlink(at, to, sizeof to - 1)) < 0) continue;
        to[k] = 0;
        if (strncmp(to, path, strlen(path)) != 0) continue; /* behind it may stand (deleted) */
        n++;
        if (what == CLOSED) {
            close(fd);
        } else {
            const char *by = what == REPLACED ? "/dev/null" : at;
            int other = (int)syscall(SYS_openat, AT_FDCWD, by, O_WRONLY | O_CLOEXEC, 0);
            CHECK(other >= 0 && dup2(other, fd) == fd);
            close(other);
            if (what == REPLACED) *number = fd;
        }
    }
    pthread_mutex_unlock(&spoils);
    return n;
}

/* What happens to the file as its handle dies. */
enum { STAYS, TWICE, TWICE_CLOSED, TWICE_REPLACED, LONGER, TOUCHED, REMOVED, AWAY };

static const char *away_path;

static void *come_back(void *arg) {
    char from[320];
    (void)arg;
    snprintf(from, sizeof from, "%s.away", away_path);
    usleep(30000);
    CHECK(rename(from, away_path) == 0);
    return NULL;
}

static void happens(const char *path, int what, pthread_t *thread) {
    char to[320];
    int fd;
    switch (what) {
    case LONGER:
        fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        CHECK(write(fd, "x", 1) == 1);
        close(fd);
        break;
    case TOUCHED: rig_time(path, 1000000000); break;
    case REMOVED: CHECK(unlink(path) == 0); break;
    case AWAY:
        snprintf(to, sizeof to, "%s.away", path);
        CHECK(rename(path, to) == 0);
        away_path = path;
        CHECK(pthread_create(thread, NULL, come_back, NULL) == 0);
        break;
    default: break;
    }
}

/* Read a source whose handle dies behind the first batches. Returns 1 if all rows came right, 0 if
   the pipe failed, with its error in *e. */
static int die(int kind, int what, dlp_error *e) {
    const char *path = make(kind);
    dlp_loader_desc d = {.batch_size = 4,
                         .num_workers = kind == LINES_ALONE ? 0 : 2,
                         .epochs = 2,
                         .shuffle = 1,
                         .pipe.prefetch_factor = 1};
    dlp_source *s = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    pthread_t thread = 0;
    int rows = 0, wrong = 0, batches = 0, rc, first, how, theirs = -1, fds = rig_fds();
    if (what == AWAY) {
        d.num_workers = 2;
        d.workers.retries = 50;
        d.workers.retry_backoff_ms = 5;
    }
    rc = open_source(kind, &path, 1, &s, e);
    if (rc != DLP_OK) printf("  %d: %s\n", kind, e->message);
    CHECK(rc == DLP_OK);
    d.source = s;
    CHECK(dlp_loader_open(&p, &d, e) == DLP_OK);
    if (p == NULL) return 0;
    for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || rc == DLP_EPOCH_END; batches++) {
        if (rc == DLP_EPOCH_END) continue;
        for (uint32_t i = 0; i < b->count; i++, rows++) wrong += number(b, i) != b->index[i];
        dlp_pipe_release(p, b);
        if (batches != 5 && !(what >= TWICE && what <= TWICE_REPLACED && batches == 50)) continue;
        happens(path, what, &thread);
        how = kind == TOKENS_MAPPED ? CLOSED : UNREADABLE;
        first = batches != 50 ? how : what == TWICE_CLOSED ? CLOSED : REPLACED;
        if (what == TWICE) first = how;
        CHECK(spoil(path, first, how, &theirs) > (first != how));
        if (kind == TOKENS_MAPPED) usleep(20000); /* the next tick of the clock looks */
    }
    if (thread != 0) pthread_join(thread, NULL);
    *e = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK && wrong == 0);
    if (theirs >= 0) {
        char at[40], to[300];
        snprintf(at, sizeof at, "/proc/self/fd/%d", theirs);
        CHECK(readlink(at, to, sizeof to) == 9 && memcmp(to, "/dev/null", 9) == 0);
        close(theirs);
    }
    CHECK(rig_fds() == fds);
    if (rc == DLP_END) CHECK(rows == 2 * ROWS);
    return rc == DLP_END;
}

static void handles__that_die__are_opened_again(void) {
    dlp_error e;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int what = STAYS; what <= TWICE_REPLACED; what++) {
            /* Only the number of a descriptor that a second one has replaced may be reused. */
            if (kind == TOKENS_MAPPED && what > TWICE) continue;
            const int ok = die(kind, what, &e);
            if (!ok) printf("  %s, %d: %s\n", names[kind], what, e.message);
            CHECK(ok);
        }
    }
    CHECK(die(LINES_THREADS, AWAY, &e) == 1); /* the server is not back yet: retries help now */
    CHECK(die(TAR, AWAY, &e) == 1);
}

static void handles__of_a_file_that_changed__an_error_that_says_so(void) {
    dlp_error e;
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(die(kind, LONGER, &e) == 0 && e.code == DLP_ERR_CALLBACK && strlen(e.message) <= 160);
        CHECK(rig_says(&e, (const char *const[]){names[kind], "its handle died, and the file was",
                                                 "changed", "open the source again", ""}));
        CHECK(die(kind, TOUCHED, &e) == 0 && e.code == DLP_ERR_CALLBACK);
        CHECK(rig_says(&e, (const char *const[]){names[kind], "the file was changed", ""}));
        CHECK(die(kind, REMOVED, &e) == 0 && e.code == DLP_ERR_CALLBACK);
        CHECK(rig_says(&e, (const char *const[]){names[kind], "the path: No such file", ""}));
    }
}

static void handles__of_whole_files__are_opened_again(void) {
    static const char *paths[ROWS];
    dlp_files_desc f = {.n_items = 40, .paths = paths, .fields = &ragged, .n_fields = 1};
    dlp_loader_desc d = {.batch_size = 4, .num_workers = 1};
    dlp_source *s = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rows = 0, rc;
    f.use_threads = 1;
    for (int i = 0; i < 40; i++) {
        char name[16], text[8];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(text, sizeof text, "%06d", i);
        paths[i] = strdup(rig_write(name, text, 6));
    }
    CHECK(dlp_files_open(&s, &f, NULL) == DLP_OK);
    d.source = s;
    __atomic_store_n(&stale_reads, 1, __ATOMIC_SEQ_CST); /* of one item */
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++, rows++) CHECK(number(b, i) == b->index[i]);
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END && rows == 40);
    __atomic_store_n(&stale_reads, 0, __ATOMIC_SEQ_CST);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
    for (int i = 0; i < 40; i++) free((void *)(uintptr_t)paths[i]);
}

/* Return the only descriptor of a file. */
static int number_of(const char *path) {
    char at[40], to[300];
    int found = -1;
    for (int fd = 3; fd < 200; fd++) {
        ssize_t k;
        snprintf(at, sizeof at, "/proc/self/fd/%d", fd);
        if ((k = readlink(at, to, sizeof to - 1)) < 0) continue;
        to[k] = 0;
        if (strcmp(to, path) != 0) continue;
        CHECK(found < 0);
        found = fd;
    }
    return found;
}

/* The program closes a descriptor of a source, and gets its number for a file of its own. */
static void handles__that_somebody_closed__their_numbers_are_left_alone(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        const char *path = make(kind);
        dlp_loader_desc d = {.batch_size = 4, .epochs = 2, .pipe.prefetch_factor = 1};
        int low = open("/dev/null", O_RDONLY | O_CLOEXEC), mine, old, rows = 0, rc, batches = 0;
        dlp_source *s = NULL;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        CHECK(open_source(kind, &path, 1, &s, NULL) == DLP_OK);
        d.source = s;
        d.num_workers = kind == LINES_ALONE ? 0 : 1;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        old = number_of(path);
        CHECK(old > low);
        for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || rc == DLP_EPOCH_END;) {
            if (rc == DLP_EPOCH_END) continue;
            for (uint32_t i = 0; i < b->count; i++, rows++) CHECK(number(b, i) == b->index[i]);
            dlp_pipe_release(p, b);
            if (batches++ != 5) continue;
            close(low); /* the source gets this number, for it is lower */
            close(old);
            usleep(20000);
        }
        if (rc != DLP_END) printf("  %d: %s\n", kind, dlp_pipe_error(p)->message);
        CHECK(rc == DLP_END && rows == 2 * ROWS);
        mine = fcntl(low, F_DUPFD_CLOEXEC, old);
        CHECK(mine == old);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
        CHECK(fcntl(mine, F_GETFD) >= 0);
        close(mine);
    }
}

/* ---- many shards, few descriptors ---- */

enum { SHARDS = 150, LIMIT = 100 };

static void limit_fds(rlim_t most) {
    struct rlimit r;
    CHECK(getrlimit(RLIMIT_NOFILE, &r) == 0);
    r.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
}

/* Open SHARDS files of a kind under LIMIT descriptors; all rows come, or an error says the number
   that is needed. */
static void many(int kind, const char *const *paths) {
    dlp_loader_desc d = {.batch_size = 100, .num_workers = 1, .shuffle = 1};
    dlp_source *s = NULL;
    dlp_pipe *p = NULL;
    dlp_error e = {0};
    dlp_batch *b;
    int rc, rows = 0, used = rig_fds();
    rc = open_source(kind, paths, SHARDS, &s, &e);
    if (kind != TOKENS_MAPPED) {
        CHECK(rc == DLP_ERR_SYSTEM && e.errnum == EMFILE && strlen(e.message) <= 160);
        CHECK(rig_says(&e, (const char *const[]){"open: Too many open files; set ulimit -n to ",
                                                 " or more, it is 100", ""}));
        if (rc != DLP_OK) {
            const char *at = strstr(e.message, "ulimit -n to ");
            const long needed = at != NULL ? atol(at + 13) : 0;
            CHECK(needed >= SHARDS + 10 && needed < SHARDS + 80);
            limit_fds((rlim_t)needed); /* which is enough indeed */
            CHECK(open_source(kind, paths, SHARDS, &s, &e) == DLP_OK);
        }
    } else {
        CHECK(rc == DLP_OK);
        CHECK(rig_fds() <= LIMIT / 2 + 4);
    }
    d.source = s;
    CHECK(dlp_loader_open(&p, &d, &e) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++, rows++) CHECK(number(b, i) == b->index[i] % ROWS);
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END && rows == SHARDS * ROWS);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_source_close(s) == DLP_OK && rig_fds() == used);
}

/* The last shard has no descriptor. It is cut: an error, and no SIGBUS; another file takes its
   path: the shard is read as it was. */
static void cut_or_replaced(const char *const *paths, int cut) {
    dlp_loader_desc d = {.batch_size = 100, .num_workers = 1};
    dlp_source *s = NULL;
    dlp_pipe *p = NULL;
    dlp_error e = {0};
    dlp_batch *b;
    int rc, rows = 0;
    make(TOKENS); /* the first of them */
    CHECK(open_source(TOKENS_MAPPED, paths, SHARDS, &s, &e) == DLP_OK);
    if (cut) {
        CHECK(truncate(paths[SHARDS - 1], 8) == 0);
    } else {
        rig_write("other", "x", 1);
        CHECK(rename(in_rig("other"), paths[SHARDS - 1]) == 0);
    }
    d.source = s;
    CHECK(dlp_loader_open(&p, &d, &e) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++, rows++) CHECK(number(b, i) == b->index[i] % ROWS);
        dlp_pipe_release(p, b);
    }
    CHECK(rc == (cut ? DLP_ERR_CALLBACK : DLP_END));
    if (cut) CHECK(rig_says(dlp_pipe_error(p), (const char *const[]){"was cut to 8 bytes", ""}));
    CHECK(rows == (cut ? (SHARDS - 1) * ROWS : SHARDS * ROWS));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
}

static void handles__fewer_than_shards__mapped_ones_do_without(void) {
    static const int kinds[] = {TOKENS_MAPPED, TOKENS, ARRAYS, TAR, LINES_ALONE};
    static char copies[SHARDS][300];
    const char *paths[SHARDS];
    struct rlimit before;
    char command[800];
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *path = make(kinds[k]);
        for (int i = 0; i < SHARDS; i++) {
            snprintf(copies[i], sizeof copies[i], "%.200s.%03d", path, i);
            paths[i] = copies[i];
            unlink(copies[i]);
            if (kinds[k] == TOKENS_MAPPED && i == SHARDS - 1) {
                snprintf(command, sizeof command, "cp %s %s", path, copies[i]);
                CHECK(system(command) == 0);
            } else {
                CHECK(link(path, copies[i]) == 0);
            }
        }
        limit_fds(LIMIT);
        many(kinds[k], paths);
        limit_fds(LIMIT);
        if (kinds[k] == TOKENS_MAPPED) {
            cut_or_replaced(paths, 0);
            unlink(copies[SHARDS - 1]);
            snprintf(command, sizeof command, "cp %s %s", path, copies[SHARDS - 1]);
            CHECK(system(command) == 0);
            cut_or_replaced(paths, 1);
        }
        limit_fds(before.rlim_cur);
    }
}

int main(void) {
    rig_begin("handles");
    handles__that_die__are_opened_again();
    handles__of_a_file_that_changed__an_error_that_says_so();
    handles__of_whole_files__are_opened_again();
    handles__that_somebody_closed__their_numbers_are_left_alone();
    handles__fewer_than_shards__mapped_ones_do_without();
    rig_end();
    return test_end("handles");
}
