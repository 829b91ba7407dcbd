/* needs: files */
/* Items out of files: the same bytes by a ring, by threads and one at a time, in whatever pieces
   reads come; errors that name the file; nothing left open and nothing written after the end.

   Submit and reap are driven here directly, in orders and moments that a pipe would seldom give. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/sources.h"
#include <sys/resource.h>
#if defined(__has_include)
#if __has_include(<linux/filter.h>) && __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#define HAVE_SECCOMP
#endif
#endif

enum { FILES = 120, MOST = 20000 };

static char dir[64];
static char *paths[FILES];
static uint64_t sizes[FILES];

static uint8_t byte_at(uint64_t index, uint64_t at) {
    return (uint8_t)(dlp_hash(7, index, at / 8, 0) >> at % 8 * 8);
}

static uint8_t expected[FILES][MOST]; /* byte_at of each */
static const uint8_t zeros[MOST];

static void write_file(const char *path, uint64_t index, uint64_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    if (f == NULL) return;
    CHECK(fwrite(expected[index], 1, n, f) == n);
    fclose(f);
}

static void make_files(void) {
    uint64_t random = 3;
    snprintf(dir, sizeof dir, "/tmp/dlpipe-files-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    for (uint64_t i = 0; i < FILES; i++)
        for (uint64_t k = 0; k < MOST; k++) expected[i][k] = byte_at(i, k);
    for (uint64_t i = 0; i < FILES; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%d", dir, (int)i);
        paths[i] = strdup(path);
        sizes[i] = i % 10 == 0 ? 0 : i == 11 ? MOST : i == 12 ? 3000 : test_pick(&random, MOST);
        write_file(path, i, sizes[i]);
    }
}

static void remove_files(void) {
    for (int i = 0; i < FILES; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    CHECK(rmdir(dir) == 0);
}

static int count_in(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    if (d == NULL) return -1;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int count_fds(void) { return count_in("/proc/self/fd"); }

static int has_ring(void) {
    static const char *const none[1] = {"none"};
    const dlp_field field = {"bytes", DLP_U8, 1, {MOST}, 1, 0};
    const dlp_files_desc desc = {.n_items = 1, .paths = none, .fields = &field, .n_fields = 1};
    dlp_source *f;
    int has;
    CHECK(dlp_files_open(&f, &desc, NULL) == DLP_OK);
    has = strcmp(dlp_files_backend(f), "io_uring") == 0;
    CHECK(dlp_source_close(f) == DLP_OK);
    return has;
}

/* ---- a driver: what the fetch stage does, without a pipe ---- */

typedef struct place { /* of an item */
    dlp_item item;
    void *data[1];
    uint64_t length[1];
    uint8_t bytes[MOST];
    int out, code; /* with the source; given back with this */
    char message[256];
    int errnum;
} place;

static place places[FILES];
static char fake_message[256]; /* where an item's words go */
static int32_t fake_errnum;

static void place_set(uint64_t i) {
    place *p = &places[i];
    memset(p, 0, sizeof *p);
    memset(p->bytes, 0xee, sizeof p->bytes);
    p->item.index = i;
    p->item.data = p->data;
    p->item.length = p->length;
    p->item.call = inside_call(0, fake_message, &fake_errnum);
    p->data[0] = p->bytes;
}

static void place_over(dlp_item *item, int code) {
    place *p = (place *)(void *)item;
    CHECK(p->out == 1);
    p->out = 0;
    p->code = code;
    if (code == 0) return;
    memcpy(p->message, fake_message, sizeof p->message);
    p->errnum = fake_errnum;
    memset(fake_message, 0, sizeof fake_message);
}

static int is_right(uint64_t i, const uint8_t *bytes, uint64_t n) {
    return memcmp(bytes, expected[i], n) == 0;
}

typedef struct driver {
    dlp_source *files;
    dlp_source fetch;
    void *state;
} driver;

static const dlp_field ragged = {"bytes", DLP_U8, 1, {MOST}, 1, 0};

static void driver_open(driver *d, dlp_files_desc *desc) {
    dlp_error err;
    memset(d, 0, sizeof *d);
    desc->n_items = desc->n_items ? desc->n_items : FILES;
    if (desc->fields == NULL) desc->fields = &ragged;
    desc->n_fields = 1;
    if (desc->paths == NULL && desc->locate == NULL) desc->paths = (const char *const *)paths;
    CHECK(dlp_files_open(&d->files, desc, &err) == DLP_OK);
    source_into(d->files, &d->fetch);
}

static void driver_start(driver *d) {
    CHECK(d->fetch.workers.worker_init(d->fetch.workers.worker_user, 0, &d->state) == 0);
}

static void driver_close(driver *d) {
    CHECK(dlp_source_close(d->files) == DLP_ERR_BUSY);
    d->fetch.workers.worker_exit(d->fetch.workers.worker_user, 0, d->state);
    CHECK(dlp_source_close(d->files) == DLP_OK);
}

static int driver_submit(driver *d, uint64_t i) {
    int rc = d->fetch.async.submit(d->files, d->state, &places[i].item);
    if (rc == DLP_FULL) return rc;
    places[i].out = 1;
    if (rc != 0) place_over(&places[i].item, rc);
    return rc;
}

static int driver_reap(driver *d, int timeout_ms) {
    dlp_item *done[7];
    int code[7], failed = 0;
    int n = d->fetch.async.reap(d->files, d->state, done, code, 7, timeout_ms);
    CHECK(n >= 0 && n <= 7);
    for (int i = 0; i < n; i++) {
        CHECK(failed == 0); /* one that failed is the last: the message is its own */
        failed = code[i];
        place_over(done[i], code[i]);
    }
    return n;
}

/* Items [from, to), as many at once as the source takes. Returns the most at once. */
static int driver_run(driver *d, uint64_t from, uint64_t to) {
    uint64_t next = from;
    int out = 0, most = 0, idle = 0;
    for (uint64_t i = from; i < to; i++) place_set(i);
    while ((next < to || out > 0) && idle < 100) {
        int n;
        while (next < to) {
            int rc = driver_submit(d, next);
            if (rc == DLP_FULL) break;
            out += rc == 0;
            next++;
        }
        if (out > most) most = out;
        n = driver_reap(d, out % 3 == 0 ? DLP_NOWAIT : 1000);
        out -= n;
        idle = n > 0 || out % 3 == 0 ? 0 : idle + 1;
    }
    CHECK(out == 0);
    return most;
}

static void check_all(void) {
    int wrong = 0;
    for (uint64_t i = 0; i < FILES; i++)
        wrong += places[i].code != 0 || places[i].length[0] != sizes[i] ||
                 !is_right(i, places[i].bytes, sizes[i]) ||
                 (sizes[i] < MOST && places[i].bytes[sizes[i]] != 0xee);
    CHECK(wrong == 0);
}

static void files__ring_and_threads__the_same_bytes(void) {
    for (int threads = 0; threads < 2; threads++)
        for (int k = 1; k <= 64; k *= 4) {
            int before = count_fds();
            driver d;
            dlp_files_desc desc = {.use_threads = threads, .in_flight = k};
            driver_open(&d, &desc);
            CHECK(strstr(dlp_files_backend(d.files), threads ? "use_threads" : "io_uring") != NULL);
            driver_start(&d);
            CHECK(driver_run(&d, 0, FILES) == k);
            check_all();
            driver_close(&d);
            CHECK(count_fds() == before);
        }
}

/* ---- decode, locate ---- */

typedef struct sums {
    uint64_t of[FILES], n[FILES];
    int inits, exits;
} sums;

static uint64_t sum_of(const uint8_t *bytes, uint64_t n) {
    uint64_t sum = n;
    for (uint64_t i = 0; i < n; i++) sum = sum * 31 + bytes[i];
    return sum;
}

static int sums_init(void *user, int worker, void **state) {
    (void)worker;
    ((sums *)user)->inits++;
    *state = user;
    return 0;
}

static void sums_exit(void *user, int worker, void *state) {
    (void)worker;
    ((sums *)user)->exits += state == user;
}

static int sums_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    sums *s = state;
    CHECK(user == state);
    s->of[item->index] = sum_of(bytes, n);
    s->n[item->index] = n;
    return item->index == 17 ? DLP_SKIP : 0;
}

static void files__decode__sees_the_bytes_and_its_state(void) {
    for (int kind = 0; kind < 4; kind++) {
        static sums s;
        int wrong = 0;
        driver d;
        dlp_files_desc desc = {.use_threads = kind & 1,
                               .decode = sums_decode,
                               .user = &s,
                               .worker_init = sums_init,
                               .worker_exit = sums_exit,
                               .max_bytes = kind >> 1 ? 0 : MOST,
                               .direct = kind >> 1};
        memset(&s, 0, sizeof s);
        driver_open(&d, &desc);
        driver_start(&d);
        driver_run(&d, 0, FILES);
        driver_close(&d);
        for (uint64_t i = 0; i < FILES; i++) {
            int touched = places[i].bytes[0] != 0xee || places[i].length[0] != 0;
            wrong += places[i].code != (i == 17 ? DLP_SKIP : 0) || s.n[i] != sizes[i];
            wrong += sizes[i] > 1 && touched != desc.direct;
            wrong += s.of[i] != sum_of(expected[i], sizes[i]);
        }
        CHECK(wrong == 0 && s.inits == 1 && s.exits == 1);
    }
}

static int shared_fd;

/* By turns: a path made up in room, a path that stays, an open file with and without a length. */
static int locate(void *user, const dlp_item *item, dlp_extent *out) {
    uint64_t i = item->index;
    CHECK(out->fd == -1 && out->path == out->room && out->room[0] == 0 && out->length == 0);
    (void)user;
    if (i % 4 == 0) snprintf(out->room, DLP_FILES_ROOM, "%s", paths[11]);
    if (i % 4 == 1) out->path = paths[11];
    if (i % 4 >= 2) out->fd = shared_fd;
    out->offset = 100 * i;
    out->length = i % 4 == 3 ? 0 : 50 * i;
    if (i == 40) return dlp_fail(item->call, 5, "no item 40");
    if (i == 41) out->path = NULL;
    return 0;
}

static void files__locate__stretches_of_files(void) {
    int before = count_fds();
    for (int threads = 0; threads < 2; threads++) {
        driver d;
        dlp_files_desc desc = {.use_threads = threads, .locate = locate};
        int wrong = 0;
        shared_fd = open(paths[11], O_RDONLY | O_CLOEXEC);
        driver_open(&d, &desc);
        driver_start(&d);
        driver_run(&d, 1, FILES);
        driver_close(&d);
        for (uint64_t i = 1; i < FILES; i++) {
            uint64_t n = i % 4 == 3 ? MOST - 100 * i : 50 * i;
            if (i == 40 || i == 41) continue;
            wrong += places[i].code != 0 || places[i].length[0] != n;
            wrong += memcmp(places[i].bytes, expected[11] + 100 * i, n) != 0;
        }
        CHECK(wrong == 0);
        CHECK(places[40].code == DLP_ERR_CALLBACK && places[40].errnum == 5 &&
              strcmp(places[40].message, "no item 40") == 0);
        CHECK(places[41].code == DLP_ERR_CALLBACK && strstr(places[41].message, "no path"));
        CHECK(fcntl(shared_fd, F_GETFD) >= 0); /* it is the user's */
        close(shared_fd);
    }
    CHECK(count_fds() == before);
}

/* ---- what goes wrong ---- */

enum { BAD = 9 };
static char bad_path[BAD][400];
static dlp_field bad_field;

static int bad_locate(void *user, const dlp_item *item, dlp_extent *out) {
    (void)user;
    out->path = bad_path[item->index];
    if (item->index == 4) out->offset = 2001;
    if (item->index == 5) out->length = 2001;
    if (item->index == 8) out->offset = UINT64_MAX;
    return 0;
}

static void check_bad(uint64_t i, int code, int errnum, const char *words) {
    const place *p = &places[i];
    const char *path = bad_path[i], *name = strlen(path) > 100 ? path + strlen(path) - 100 : path;
    int ok = p->code == code && p->errnum == errnum && strstr(p->message, words) != NULL &&
             (i == 8 || strstr(p->message, name) != NULL);
    CHECK(ok);
    if (!ok) printf("  %d: code %d, errno %d: %s\n", (int)i, p->code, p->errnum, p->message);
}

static void files__bad__errors_name_them(void) {
    for (int i = 0; i < BAD; i++) snprintf(bad_path[i], 200, "%s/bad%d", dir, i);
    for (int i = 0; i < 3; i++) snprintf(bad_path[i], 400, "%s/bad%0230d", dir, i);
    CHECK(mkdir(bad_path[1], 0700) == 0);
    CHECK(mkfifo(bad_path[2], 0600) == 0);
    write_file(bad_path[3], 3, 2001);
    for (int i = 4; i < 6; i++) write_file(bad_path[i], 4, 2000);
    write_file(bad_path[6], 6, 1999);
    write_file(bad_path[7], 7, 0);
    write_file(bad_path[8], 8, 1);
    for (int kind = 0; kind < 6; kind++) { /* ring, threads, one at a time; ragged, fixed size */
        int before = count_fds(), fixed = kind >= 3;
        driver d;
        dlp_files_desc desc = {.use_threads = kind % 3 == 1,
                               .locate = bad_locate,
                               .fields = &bad_field,
                               .n_items = BAD};
        bad_field = ragged;
        bad_field.shape[0] = 1000;
        bad_field.dtype = DLP_U16; /* rows of two bytes */
        bad_field.ragged = !fixed;
        driver_open(&d, &desc);
        driver_start(&d);
        for (uint64_t i = 0; i < BAD; i++) place_set(i);
        if (kind % 3 < 2)
            driver_run(&d, 0, BAD);
        else
            for (uint64_t i = 0; i < BAD; i++) {
                places[i].item.worker_state = d.state;
                places[i].out = 1;
                place_over(&places[i].item, d.fetch.dataset->fetch(d.files, &places[i].item));
            }
        driver_close(&d);
        check_bad(0, DLP_ERR_CALLBACK, ENOENT, "cannot be opened");
        check_bad(1, DLP_ERR_CALLBACK, EISDIR, "is a directory");
        check_bad(2, DLP_ERR_CALLBACK, 0, "no regular file");
        check_bad(3, DLP_ERR_LENGTH, 0,
                  fixed ? "2001 bytes, the field takes 2000" : "2001 bytes, the most are 2000");
        check_bad(4, DLP_ERR_CALLBACK, 0, "has 2000 bytes, the item needs 0 from 2001");
        check_bad(5, DLP_ERR_CALLBACK, 0, "has 2000 bytes, the item needs 2001 from 0");
        check_bad(6, DLP_ERR_LENGTH, 0,
                  fixed ? "1999 bytes, the field takes 2000"
                        : "1999 bytes are not whole rows of 2");
        check_bad(8, DLP_ERR_CALLBACK, EINVAL, "past any file");
        if (fixed)
            check_bad(7, DLP_ERR_LENGTH, 0, "0 bytes, the field takes 2000");
        else
            CHECK(places[7].code == 0 && places[7].length[0] == 0);
        CHECK(count_fds() == before);
    }
    for (int i = 0; i < BAD; i++) remove(bad_path[i]);
}

static void files__no_more_descriptors__told_and_over(void) {
    struct rlimit had, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &had) == 0);
    for (int threads = 0; threads < 2; threads++) {
        driver d;
        dlp_files_desc desc = {.use_threads = threads, .in_flight = 8};
        int failed = 0;
        driver_open(&d, &desc);
        driver_start(&d);
        none = had;
        none.rlim_cur = 3; /* of which all are in use */
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        driver_run(&d, 0, FILES);
        for (int i = 0; i < FILES; i++)
            failed += places[i].code == DLP_ERR_CALLBACK && places[i].errnum == EMFILE;
        CHECK(failed == FILES);
        CHECK(setrlimit(RLIMIT_NOFILE, &had) == 0);
        driver_run(&d, 0, FILES);
        check_all();
        driver_close(&d);
    }
}

/* ---- files that change ---- */

static int truncate_locate(void *user, const dlp_item *item, dlp_extent *out) {
    (void)user;
    (void)item;
    out->fd = shared_fd;
    return 0;
}

/* Shorter between measuring and reading: by the ring an open file is measured in submit. */
static void files__truncated_meanwhile__error(void) {
    char path[100];
    driver d;
    dlp_files_desc desc = {.locate = truncate_locate};
    if (!has_ring()) return;
    snprintf(path, sizeof path, "%s/shrinks", dir);
    write_file(path, 1, 10000);
    shared_fd = open(path, O_RDWR | O_CLOEXEC);
    driver_open(&d, &desc);
    driver_start(&d);
    place_set(0);
    CHECK(driver_submit(&d, 0) == 0);
    CHECK(ftruncate(shared_fd, 7000) == 0);
    for (int i = 0; i < 10 && places[0].out; i++) driver_reap(&d, 1000);
    CHECK(places[0].code == DLP_ERR_CALLBACK);
    CHECK(strstr(places[0].message, "ended after 7000 of 10000 bytes") != NULL);
    driver_close(&d);
    close(shared_fd);
    unlink(path);
}

static int flipping;
static void *flip(void *arg) {
    while (__atomic_load_n(&flipping, __ATOMIC_SEQ_CST)) {
        if (truncate(arg, 5000) != 0 || truncate(arg, 10000) != 0) break;
    }
    return NULL;
}

/* Shorter, longer, all the time: an item is whole at one of the lengths, or says that it is not */
static void files__flipping_length__whole_or_told(void) {
    char path[100];
    const char *const path_of[1] = {path};
    snprintf(path, sizeof path, "%s/flips", dir);
    write_file(path, 1, 10000);
    for (int threads = 0; threads < 2; threads++) {
        driver d;
        pthread_t thread;
        dlp_files_desc desc = {.use_threads = threads, .paths = path_of, .n_items = 1};
        driver_open(&d, &desc);
        driver_start(&d);
        __atomic_store_n(&flipping, 1, __ATOMIC_SEQ_CST);
        CHECK(pthread_create(&thread, NULL, flip, path) == 0);
        for (int i = 0; i < test_share(300, 20000); i++) {
            const place *p = &places[0];
            driver_run(&d, 0, 1);
            if (p->code == 0)
                CHECK(p->length[0] == 5000 || p->length[0] == 10000);
            else
                CHECK(strstr(p->message, "ended after") && strstr(p->message, "/flips"));
            CHECK(p->code != 0 || is_right(1, p->bytes, 5000));
        }
        __atomic_store_n(&flipping, 0, __ATOMIC_SEQ_CST);
        pthread_join(thread, NULL);
        driver_close(&d);
    }
    unlink(path);
}

/* ---- the end ---- */

/* Out of memory, so that reads are under way for a while. */
static void chill(int first) {
    for (int i = 0; i < 32; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        if (first) (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

/* Ended with files under way: nothing stays open, and no row is written after worker_exit. */
static void files__ended_in_flight__nothing_comes_after(void) {
    for (int threads = 0; threads < 2; threads++)
        for (int reaps = 0; reaps < 4; reaps++) {
            int before = count_fds(), touched = 0;
            struct timespec pause = {0, 3000000};
            driver d;
            dlp_files_desc desc = {.use_threads = threads, .in_flight = 32};
            chill(threads + reaps == 0);
            driver_open(&d, &desc);
            driver_start(&d);
            for (uint64_t i = 0; i < 32; i++) {
                place_set(i);
                CHECK(driver_submit(&d, i) == 0);
            }
            place_set(32);
            CHECK(driver_submit(&d, 32) == DLP_FULL);
            for (int i = 0; i < reaps; i++) driver_reap(&d, DLP_NOWAIT);
            driver_close(&d);
            CHECK(count_fds() == before);
            for (int i = 0; i < 32; i++) memset(places[i].bytes, 0x77, MOST);
            nanosleep(&pause, NULL);
            for (int i = 0; i < 32; i++)
                for (int k = 0; k < MOST; k++) touched += places[i].bytes[k] != 0x77;
            CHECK(touched == 0);
        }
}

static void *write_late(void *arg) {
    static const char bytes[1000] = {1};
    struct timespec pause = {0, 60000000};
    nanosleep(&pause, NULL);
    CHECK(write(*(int *)arg, bytes, sizeof bytes) == sizeof bytes);
    return NULL;
}

static int pipe_locate(void *user, const dlp_item *item, dlp_extent *out) {
    (void)item;
    out->fd = *(const int *)user;
    out->length = 1000;
    return 0;
}

/* A request that the kernel holds for a while, as a slow disk does: the end waits for it. */
static void files__ended_while_the_kernel_reads__waits(void) {
    int ends[2];
    pthread_t writer;
    uint64_t begin;
    driver d;
    dlp_files_desc desc = {.locate = pipe_locate, .user = ends};
    if (!has_ring()) return;
    CHECK(pipe(ends) == 0);
    driver_open(&d, &desc);
    driver_start(&d);
    place_set(0);
    CHECK(driver_submit(&d, 0) == 0);
    CHECK(driver_reap(&d, DLP_NOWAIT) == 0);
    CHECK(driver_reap(&d, 3) == 0);
    begin = test_now_ns();
    CHECK(pthread_create(&writer, NULL, write_late, &ends[1]) == 0);
    driver_close(&d);
    CHECK(test_now_ns() - begin >= 50000000);
    CHECK(places[0].bytes[0] == 1); /* it was written before, and not after */
    pthread_join(writer, NULL);
    close(ends[0]);
    close(ends[1]);
}

static void files__nothing_under_way__reap_returns_at_once(void) {
    for (int threads = 0; threads < 2; threads++) {
        driver d;
        dlp_files_desc desc = {.use_threads = threads};
        uint64_t best = UINT64_MAX;
        driver_open(&d, &desc);
        driver_start(&d);
        for (int tries = 0; tries < 5 && best >= 2000000000u; tries++) {
            uint64_t begin = test_now_ns();
            CHECK(driver_reap(&d, 5000) == 0);
            if (test_now_ns() - begin < best) best = test_now_ns() - begin;
        }
        CHECK(best < 2000000000u);
        driver_close(&d);
    }
}

/* ---- where there is no io_uring ---- */

#ifdef HAVE_SECCOMP
/* From now on io_uring_setup fails, as container runtimes have it. */
static int forbid_uring(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 425, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void files__forbidden__threads_and_it_says_so(void) {
    if (!has_ring()) return;
    for (int late = 0; late < 2; late++) { /* 1: the source finds it, its worker does not */
        int status = 0;
        pid_t child;
        fflush(stdout);
        child = fork();
        if (child == 0) {
            driver d;
            dlp_files_desc desc = {.in_flight = 8};
            int threads = count_in("/proc/self/task");
            test_failures = 0;
            if (!late && !forbid_uring()) _exit(77);
            driver_open(&d, &desc);
            if (!late) CHECK(strstr(dlp_files_backend(d.files), "threads: io_uring is forbidden"));
            if (late && !forbid_uring()) _exit(77);
            driver_start(&d);
            CHECK(driver_run(&d, 0, FILES) == 8);
            check_all();
            CHECK(count_in("/proc/self/task") == threads + 8);
            driver_close(&d);
            fflush(stdout);
            _exit(test_failures != 0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
        if (WEXITSTATUS(status) == 77) printf("no seccomp here: left out\n");
    }
}
#endif

/* ---- in a pipe ---- */

typedef struct run {
    int workers, shuffle, fetcher, processes;
    int kill_at; /* batch while which is held a worker process is killed; 0: none */
    int kills;
} run;

static int count_restarts(dlp_pipe *p) {
    dlp_worker_stats w;
    int n = 0;
    for (uint32_t i = 0; dlp_pipe_worker_stats(p, i, &w) == DLP_OK; i++) n += w.restarts;
    return n;
}

/* Kills one, waits for its replacement, and returns 1 when it has come. The caller holds a batch
 * and more are to come: without the wait the other worker may finish them all before. */
static int kill_one(dlp_pipe *p) {
    const struct timespec step = {.tv_nsec = 1000000};
    int before = count_restarts(p);
    dlp_worker_stats w;
    for (uint32_t i = 0; dlp_pipe_worker_stats(p, i, &w) == DLP_OK; i++)
        if (w.process && w.pid > 0) {
            CHECK(kill(w.pid, SIGKILL) == 0);
            for (int n = 0; n < 20000 && count_restarts(p) == before; n++) nanosleep(&step, NULL);
            return count_restarts(p) > before;
        }
    return 0;
}

static int check_batch(const dlp_batch *b) {
    int wrong = 0;
    for (uint32_t r = 0; r < b->count; r++) {
        const uint8_t *row = (const uint8_t *)b->fields[0].data + r * MOST;
        uint64_t i = b->index[r], n = b->fields[0].lengths[r];
        wrong += n != sizes[i] || !is_right(i, row, n) || memcmp(row + n, zeros, MOST - n) != 0;
    }
    return wrong;
}

/* Returns the rows that came before the end or an error. */
static int run_pipe(driver *d, run *how, dlp_error *err) {
    dlp_loader_desc desc = {
        .batch_size = 16, .num_workers = how->workers, .shuffle = how->shuffle, .epochs = 2};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc, rows = 0, wrong = 0;
    memset(err, 0, sizeof *err);
    if (how->processes) desc.workers.placement = DLP_PLACE_PROCESSES;
    desc.fetcher = how->fetcher;
    desc.in_flight = how->fetcher ? 8 : 0;
    source_own(&desc, d->files);
    rc = dlp_loader_open(&p, &desc, err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return -1;
    for (int n = 1; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; n++) {
        wrong += check_batch(b);
        rows += (int)b->count;
        if (n == how->kill_at) how->kills += kill_one(p);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(wrong == 0);
    if (rc != DLP_END) *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rows;
}

static void check_pipe(int threads, int workers, int fetcher) {
    dlp_files_desc desc = {.use_threads = threads};
    run shuffled = {.workers = workers, .shuffle = 1, .fetcher = fetcher};
    run in_order = {.workers = workers, .fetcher = fetcher};
    int before = count_fds();
    dlp_error err;
    driver d;
    driver_open(&d, &desc);
    CHECK(run_pipe(&d, &shuffled, &err) == 2 * FILES);
    CHECK(err.code == 0);
    CHECK(unlink(paths[100]) == 0);
    CHECK(run_pipe(&d, &in_order, &err) == 96); /* the batches before it */
    CHECK(err.code == DLP_ERR_CALLBACK && err.errnum == ENOENT && err.has_item &&
          err.index == 100 && strstr(err.message, paths[100]));
    write_file(paths[100], 100, sizes[100]);
    CHECK(dlp_source_close(d.files) == DLP_OK);
    CHECK(count_fds() == before);
}

static void files__pipe__rows_are_files(void) {
    check_pipe(0, 0, DLP_FETCH_SEQUENTIAL);
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher++) check_pipe(0, 3, fetcher);
    check_pipe(1, 3, DLP_FETCH_ASYNC);
}

/* A worker is killed with requests under way: another does them again. */
static void files__worker_processes__killed_and_right(void) {
    const char *missing = shm_missing();
    if (missing) {
        printf("worker processes are left out: %s\n", missing);
        return;
    }
    for (int threads = 0; threads < 2; threads++) {
        dlp_files_desc desc = {.use_threads = threads};
        run how = {
            .workers = 2, .shuffle = 1, .processes = 1, .kill_at = 3, .fetcher = DLP_FETCH_ASYNC};
        int before = count_fds();
        dlp_error err;
        driver d;
        driver_open(&d, &desc);
        CHECK(run_pipe(&d, &how, &err) == 2 * FILES);
        CHECK(err.code == 0 && how.kills == 1);
        CHECK(dlp_source_close(d.files) == DLP_OK);
        CHECK(count_fds() == before);
    }
}

/* ---- descs ---- */

static void check_refused(dlp_files_desc desc, const char *field) {
    dlp_source *f = NULL;
    dlp_error err;
    CHECK(dlp_files_open(&f, &desc, &err) == DLP_ERR_ARG && f == NULL);
    CHECK(strcmp(err.field, field) == 0 && strstr(err.message, field) != NULL);
    CHECK(dlp_files_open(&f, &desc, NULL) == DLP_ERR_ARG);
}

static void files__bad_descs__name_the_field(void) {
    dlp_files_desc good = {
        .n_items = FILES, .paths = (const char *const *)paths, .fields = &ragged, .n_fields = 1};
    dlp_field field = ragged;
    dlp_files_desc desc = good;
    dlp_source *f = NULL;
    desc.n_items = 0;
    check_refused(desc, "n_items");
    desc = good, desc.paths = NULL;
    check_refused(desc, "paths");
    desc = good, desc.locate = locate;
    check_refused(desc, "paths");
    desc = good, desc.n_fields = 0;
    check_refused(desc, "fields");
    desc = good, desc.in_flight = 257;
    check_refused(desc, "in_flight");
    desc = good, desc.in_flight = -1;
    check_refused(desc, "in_flight");
    desc = good, desc.decode = sums_decode;
    check_refused(desc, "max_bytes");
    desc = good, desc.fields = &field;
    field.shape[0] = 0;
    check_refused(desc, "fields[0]");
    field.shape[0] = -1;
    check_refused(desc, "fields[0]");
    field = ragged, field.ndim = 0;
    check_refused(desc, "fields[0]");
    field = ragged, field.dtype = 5;
    check_refused(desc, "fields[0]");
    CHECK(dlp_files_open(NULL, &good, NULL) == DLP_ERR_ARG);
    CHECK(dlp_files_open(&f, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_source_close(NULL) == DLP_OK);
    CHECK(dlp_files_open(&f, &good, NULL) == DLP_OK);
    CHECK(dlp_files_worker_bytes(f) > 16 * DLP_FILES_ROOM);
    CHECK(dlp_source_close(f) == DLP_OK);
}

/* What each worker reads into has a line of the plan, and is in its sum. */
/* A decode of a pipe whose workers may run before the pipe is closed. */
static int no_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    (void)user, (void)state, (void)item, (void)bytes, (void)n;
    return 0;
}

static void files__plan__has_the_memory_of_workers(void) {
    dlp_files_desc desc = {.n_items = FILES,
                           .paths = (const char *const *)paths,
                           .fields = &ragged,
                           .n_fields = 1,
                           .in_flight = 4};
    for (int direct = 0; direct < 2; direct++) {
        dlp_loader_desc loader = {.batch_size = 16, .num_workers = 3};
        uint64_t sum = 0, each;
        dlp_source *f = NULL;
        dlp_pipe *p = NULL;
        dlp_plan plan;
        int found = 0;
        desc.decode = direct ? NULL : no_decode;
        desc.max_bytes = direct ? 0 : 5 << 20;
        CHECK(dlp_files_open(&f, &desc, NULL) == DLP_OK);
        each = dlp_files_worker_bytes(f);
        loader.source = f;
        CHECK(dlp_loader_open(&p, &loader, NULL) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) {
            const dlp_plan_line *l = &plan.lines[i];
            sum += l->bytes;
            if (strcmp(l->what, "workers of the source: what they read") != 0) continue;
            CHECK(l->count == 3 && l->bytes_each == each && l->bytes == 3 * each);
            found++;
        }
        CHECK(found == 1 && sum == plan.total_bytes && (direct || each > 4 * (5u << 20)));
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(f) == DLP_OK);
    }
}

int main(void) {
    inside_file_read_most = 3000; /* so that most files take several reads */
    if (!has_ring()) printf("no io_uring here: what needs it is left out\n");
    make_files();
    files__bad_descs__name_the_field();
    files__plan__has_the_memory_of_workers();
    files__ring_and_threads__the_same_bytes();
    files__decode__sees_the_bytes_and_its_state();
    files__locate__stretches_of_files();
    files__bad__errors_name_them();
    files__no_more_descriptors__told_and_over();
    files__truncated_meanwhile__error();
    files__flipping_length__whole_or_told();
    files__ended_in_flight__nothing_comes_after();
    files__ended_while_the_kernel_reads__waits();
    files__nothing_under_way__reap_returns_at_once();
#ifdef HAVE_SECCOMP
    files__forbidden__threads_and_it_says_so();
#endif
    files__pipe__rows_are_files();
    files__worker_processes__killed_and_right();
    remove_files();
    return test_end("files");
}
