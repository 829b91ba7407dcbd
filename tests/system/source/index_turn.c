/* needs: files lines tar parts */
/* Processes and threads that open a file at once: one finds its items, the others wait for its
   index. A finder that is killed, fails or stands still; lock files that others left; a file system
   without locks; and the lines of progress. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"
#include "../../rig/source_rig.h"
#include "../../rig/indexed_rig.h"
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { LINES = 40000, BYTES = LINES * 10 };

static const char *path, *index_path, *lock_path; /* of the file that all open */

/* ---- calls that are slow, or fail ---- */

static int read_us, no_locks; /* no_locks: errno of each flock; 0: flock works */

ssize_t pread(int fd, void *to, size_t n, off_t at);
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (read_us > 0 && n > 1000) usleep((useconds_t)read_us);
    return syscall(SYS_pread64, fd, to, n, at);
}

static char letter_left; /* of the record in the lock file that was given up last */

int flock(int fd, int what);
int flock(int fd, int what) {
    if (what == LOCK_UN) CHECK(pread(fd, &letter_left, 1, 0) == 1);
    if (!no_locks) return (int)syscall(SYS_flock, fd, what);
    errno = no_locks;
    return -1;
}

/* ---- opening ---- */

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER; /* sources of several threads */
static int told, told_of_others; /* lines of progress: all; those of another process */
static char last_line[200];

static void hear(void *user, const char *line) {
    CHECK(user == &told && strlen(line) < 160 && strstr(line, "finds its items: ") != NULL);
    pthread_mutex_lock(&hearing);
    snprintf(last_line, sizeof last_line, "%s", line);
    told++;
    told_of_others += strstr(line, "waits for process ") != NULL;
    pthread_mutex_unlock(&hearing);
}

/* Open the file. Returns how often its items were found, or -1. warning: words of the warning that
   must come; NULL: none may come. */
static int opened(const char *warning) {
    const dlp_lines_desc d = {.path = path, .threads = 2, .log = hear, .log_user = &told};
    dlp_source *s = NULL;
    dlp_error e = {0};
    const dlp_index_info *info;
    int found;
    if (dlp_lines_open(&s, &d, &e) != DLP_OK) {
        printf("  %s\n", e.message);
        return -1;
    }
    info = dlp_index_describe(s);
    CHECK(info->n_items == LINES);
    CHECK(warning == NULL ? info->warning == NULL
                          : info->warning != NULL && strstr(info->warning, warning) != NULL);
    if (info->warning != NULL && (warning == NULL || strstr(info->warning, warning) == NULL))
        printf("  %s\n", info->warning);
    found = (int)info->found;
    CHECK(dlp_source_close(s) == DLP_OK);
    return found;
}

static void begin(void) { /* without an index */
    unlink(index_path);
    unlink(lock_path);
    told = told_of_others = 0;
}

static void left_clean(void) {
    CHECK(access(index_path, F_OK) == 0 && access(lock_path, F_OK) != 0);
    CHECK(rig_files(rig_dir) == 2);
}

/* Start a process that opens the file; it ends with 0 or 1, how often it found items, or more. us:
   how long each of its reads takes. */
static pid_t started(int us, const char *warning) {
    pid_t pid;
    fflush(stdout);
    if ((pid = fork()) != 0) return pid;
    read_us = us;
    const int found = opened(warning);
    fflush(stdout);
    _exit(test_failures > 0 || found < 0 ? 99 : found + (told_of_others > 0 ? 10 : 0));
}

static int ended(pid_t pid) {
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Wait until a process has the lock. */
static void locked(void) {
    int taken = 0;
    for (int i = 0; i < 5000 && !taken; i++, usleep(1000)) {
        const int fd = open(lock_path, O_RDWR | O_CLOEXEC);
        taken = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
        if (fd >= 0) close(fd); /* and the lock */
    }
    CHECK(taken);
}

/* ---- cases ---- */

static void turn__processes_at_once__one_finds(void) {
    pid_t pid[6];
    int gate[2], found = 0;
    char byte;
    begin();
    CHECK(pipe(gate) == 0);
    fflush(stdout);
    for (int i = 0; i < 6; i++)
        if ((pid[i] = fork()) == 0) {
            close(gate[1]);
            (void)!read(gate[0], &byte, 1);
            read_us = 1000;
            const int n = opened(NULL);
            fflush(stdout);
            _exit(test_failures > 0 || n < 0 ? 99 : n);
        }
    close(gate[1]); /* all at once */
    for (int i = 0; i < 6; i++) found += ended(pid[i]);
    close(gate[0]);
    CHECK(found == 1);
    left_clean();
}

static void *thread_opens(void *to) {
    *(int *)to = opened(NULL);
    return NULL;
}

static void turn__threads_at_once__one_finds(void) {
    pthread_t thread[4];
    int found[4] = {0}, sum = 0;
    begin();
    read_us = 1000;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, thread_opens, &found[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        sum += found[i];
    }
    read_us = 0;
    CHECK(sum == 1);
    left_clean();
}

/* One source of a file twice, and of two names of it, waits for itself at no time. */
static void turn__a_file_twice_in_a_source__found_once(void) {
    const char *paths[] = {path, path, path};
    const dlp_lines_desc d = {.paths = paths, .n_paths = 3};
    dlp_source *s = NULL;
    begin();
    CHECK(dlp_lines_open(&s, &d, NULL) == DLP_OK && dlp_index_describe(s)->found == 1);
    CHECK(dlp_source_close(s) == DLP_OK);
    left_clean();
}

/* Processes share the files: nobody waits for a file while there is another one. */
static void turn__many_files__are_shared(void) {
    enum { FILES = 6, PROCESSES = 3 };
    const char *paths[FILES];
    pid_t pid[PROCESSES];
    int sum = 0, some = 0;
    begin();
    for (int i = 0; i < FILES; i++) {
        char name[20];
        snprintf(name, sizeof name, "many/%d.jsonl", i);
        paths[i] = strdup(in_rig(name));
        CHECK(i > 0 || mkdir(in_rig("many"), 0755) == 0);
        CHECK(link(path, paths[i]) == 0);
    }
    fflush(stdout);
    for (int k = 0; k < PROCESSES; k++) {
        if ((pid[k] = fork()) != 0) continue;
        const dlp_lines_desc d = {.paths = paths, .n_paths = FILES, .threads = 1};
        dlp_source *s = NULL;
        read_us = 30000;
        CHECK(dlp_lines_open(&s, &d, NULL) == DLP_OK);
        const int found = s != NULL ? (int)dlp_index_describe(s)->found : 0;
        CHECK(s != NULL && dlp_index_describe(s)->n_items == FILES * LINES);
        CHECK(dlp_source_close(s) == DLP_OK);
        fflush(stdout);
        _exit(test_failures > 0 ? 99 : found);
    }
    for (int k = 0; k < PROCESSES; k++) {
        const int found = ended(pid[k]);
        sum += found;
        some += found > 0;
    }
    CHECK(sum == FILES && some > 1);
    CHECK(rig_files(in_rig("many")) == 2 * FILES);
    for (int i = 0; i < FILES; i++) {
        char name[40];
        CHECK(unlink(paths[i]) == 0);
        snprintf(name, sizeof name, "many/%d.jsonl.dlpidx", i);
        CHECK(unlink(in_rig(name)) == 0);
        free((void *)(uintptr_t)paths[i]);
    }
    CHECK(rmdir(in_rig("many")) == 0);
}

static void turn__its_finder_is_killed__another_takes_over(void) {
    pid_t one, other, third;
    begin();
    one = started(100000, NULL);
    locked();
    other = started(1000, NULL);
    third = started(1000, NULL);
    usleep(80000);
    CHECK(waitpid(other, NULL, WNOHANG) == 0 && waitpid(third, NULL, WNOHANG) == 0);
    CHECK(kill(one, SIGKILL) == 0 && ended(one) == -SIGKILL);
    int found = ended(other), more = ended(third);
    CHECK(found >= 10 && more >= 10 && found + more == 21); /* both were told who finds them */
    left_clean();
}

/* The finder cannot write its index: nobody waits for a turn any more. */
static void turn__its_finder_writes_no_index__all_find(void) {
    const struct rlimit few = {4096, RLIM_INFINITY};
    pid_t one, other;
    begin();
    fflush(stdout);
    if ((one = fork()) == 0) {
        CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
        read_us = 20000;
        CHECK(opened("its index file cannot be written (File too large)") == 1);
        fflush(stdout);
        _exit(test_failures > 0);
    }
    locked();
    other = started(0, NULL);
    CHECK(ended(one) == 0 && ended(other) % 10 == 1);
    left_clean();
}

/* Append a member without bytes to a shard: a header of 512 bytes. */
static size_t member(uint8_t *to, const char *name) {
    unsigned sum = 0;
    memset(to, 0, 512);
    snprintf((char *)to, 100, "%s", name);
    memcpy(to + 124, "00000000000", 11); /* its size */
    memset(to + 148, ' ', 8);
    to[156] = '0';
    memcpy(to + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) sum += to[i];
    snprintf((char *)to + 148, 8, "%06o", sum);
    return 512;
}

/* If a file gets no index because of a warning, the finder says so in the lock file, and nobody
   waits. If it gets one in spite of its warning, the others wait. */
static void turn__a_file_with_a_warning__waited_for_if_it_gets_an_index(void) {
    static const dlp_field bin = {"bin", DLP_U8, 1, {9}, 1, 0};
    static uint8_t shard[5 * 512], text[600];
    size_t n = member(shard, "a.bin");
    dlp_lines_desc lines = {.index = NULL};
    dlp_tar_desc tar = {.fields = &bin, .n_fields = 1};
    dlp_source *s = NULL;
    begin();
    letter_left = 0;
    CHECK(opened(NULL) == 1 && letter_left == 'f');
    left_clean();
    for (int i = 0; i < 600; i++) text[i] = i % 6 == 5 ? '\n' : 1;
    lines.path = rig_write("doubt", text, sizeof text);
    CHECK(dlp_lines_open(&s, &lines, NULL) == DLP_OK && letter_left == 'f');
    CHECK(strstr(dlp_index_describe(s)->warning, "looks binary") != NULL);
    CHECK(dlp_source_close(s) == DLP_OK && unlink(in_rig("doubt")) == 0);
    CHECK(unlink(in_rig("doubt.dlpidx")) == 0);
    n += member(shard + n, "b.bin");
    n += member(shard + n, "a.bin");
    tar.path = rig_write("shard", shard, sizeof shard);
    CHECK(dlp_tar_open(&s, &tar, NULL) == DLP_OK && letter_left == 'x');
    CHECK(strstr(dlp_index_describe(s)->warning, "a comes again") != NULL);
    CHECK(dlp_source_close(s) == DLP_OK && unlink(in_rig("shard")) == 0);
    left_clean();
}

static void turn__its_finder_stands_still__nobody_waits_for_ever(void) {
    int fd;
    begin();
    fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0 && write(fd, "f 1 other 7\n", 12) == 12);
    inside_index_stall_ns = 60000000;
    CHECK(opened("the process that makes its index stood still") == 1);
    inside_index_stall_ns = UINT64_C(180000000000);
    CHECK(told_of_others > 0 && strstr(last_line, "items: ") != NULL);
    CHECK(access(index_path, F_OK) == 0 && access(lock_path, F_OK) == 0); /* it is not ours */
    CHECK(opened(NULL) == 0);
    close(fd);
}

static void turn__a_lock_file_that_is_left__taken(void) {
    static const char *const left[] = {"", "f 12345 there 7\n", "x 12345 there 7\n",
                                       "%s%s%n\xff\n"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        int fd;
        begin();
        fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        CHECK(fd >= 0 && write(fd, left[i], strlen(left[i])) == (ssize_t)strlen(left[i]));
        close(fd);
        CHECK(opened(NULL) == 1);
        left_clean();
    }
    begin(); /* what is no lock file is not touched */
    CHECK(symlink(path, lock_path) == 0);
    CHECK(opened("no lock beside its index (") == 1);
    CHECK(rig_bytes(path) == BYTES && unlink(lock_path) == 0);
    begin();
    CHECK(mkdir(lock_path, 0755) == 0);
    CHECK(opened("no lock beside its index (") == 1 && rmdir(lock_path) == 0);
}

static void turn__a_file_system_without_locks__each_finds(void) {
    pid_t one, other;
    begin();
    no_locks = ENOLCK;
    one = started(10000, "no lock beside its index (No locks available); each process");
    other = started(10000, "no lock beside its index (No locks available); each process");
    CHECK(ended(one) == 1 && ended(other) == 1);
    no_locks = 0;
    CHECK(opened(NULL) == 0);
    left_clean();
}

/* Each lock file is stale, or another one, by the time of its lock. */
static void turn__a_lock_file_that_is_never_the_same__found_without(void) {
    begin();
    no_locks = ESTALE;
    CHECK(opened("no lock beside its index (") == 1);
    CHECK(opened(NULL) == 0); /* the index is there */
    no_locks = 0;
    begin();
}

static void turn__a_slow_file__lines_of_progress(void) {
    begin();
    read_us = 5000;
    CHECK(opened(NULL) == 1);
    read_us = 0;
    CHECK(told > 0 && told_of_others == 0);
    CHECK(strstr(last_line, "this process finds its items: ") && strstr(last_line, " of 0.4 MB"));
    left_clean();
    told = 0;
    CHECK(opened(NULL) == 0 && told == 0); /* nothing is found, and nothing told */
    left_clean();
}

int main(void) {
    char *bytes = malloc(BYTES + 1);
    const int fds = rig_fds();
    rig_begin("turn");
    CHECK(bytes != NULL);
    for (int i = 0; i < LINES; i++) snprintf(bytes + i * 10, 11, "%09d\n", i);
    path = strdup(rig_write("x.jsonl", bytes, BYTES));
    free(bytes);
    index_path = strdup(in_rig("x.jsonl.dlpidx"));
    lock_path = strdup(in_rig("x.jsonl.dlpidx.lock"));
    inside_index_tell_ns = 3000000;
    turn__processes_at_once__one_finds();
    turn__a_file_twice_in_a_source__found_once();
    turn__many_files__are_shared();
    turn__its_finder_is_killed__another_takes_over();
    turn__its_finder_writes_no_index__all_find();
    turn__a_file_with_a_warning__waited_for_if_it_gets_an_index();
    turn__its_finder_stands_still__nobody_waits_for_ever();
    turn__a_lock_file_that_is_left__taken();
    turn__a_file_system_without_locks__each_finds();
    turn__a_lock_file_that_is_never_the_same__found_without();
    turn__a_slow_file__lines_of_progress();
    turn__threads_at_once__one_finds();
    CHECK(rig_fds() == fds);
    rig_end();
    free((void *)(uintptr_t)path);
    free((void *)(uintptr_t)index_path);
    free((void *)(uintptr_t)lock_path);
    return test_end("index_turn");
}
