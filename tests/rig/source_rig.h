/* What tests of sources share: a directory of files that are made up, sources opened that must be
   refused, rows fetched without a pipe. Behind dlpipe.h and check.h. */
#ifndef SOURCE_RIG_H
#define SOURCE_RIG_H

static char rig_dir[64];
static char rig_paths[64][300]; /* in_rig: a few are valid at once */

static inline const char *in_rig(const char *name) {
    static int turn;
    char *path = rig_paths[turn++ % 64];
    snprintf(path, sizeof rig_paths[0], "%s/%s", rig_dir, name);
    return path;
}

static inline void rig_begin(const char *what) {
    snprintf(rig_dir, sizeof rig_dir, "/tmp/dlpipe-%s-XXXXXX", what);
    CHECK(mkdtemp(rig_dir) != NULL);
}

static inline void rig_end(void) {
#ifdef _WIN32
    CHECK(test_remove(rig_dir));
#else
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", rig_dir);
    CHECK(system(command) == 0 && access(rig_dir, F_OK) != 0);
#endif
}

static inline const char *rig_write(const char *name, const void *bytes, size_t n) {
    const char *path = in_rig(name);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n);
    if (f) CHECK(fclose(f) == 0);
    return path;
}

static inline int rig_fds(void) {
#ifdef _WIN32 /* the C library of Wine opens files of its own there */
    return 0;
#else
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
#endif
}

/* The message has all of these words, in this order; a word "" ends them. */
static inline int rig_says(const dlp_error *err, const char *const *words) {
    const char *at = err->message;
    for (; *words && (*words)[0]; words++) {
        at = strstr(at, *words);
        if (at == NULL) {
            printf("no '%s' in '%s' (%s, %s)\n", *words, err->message, dlp_code_name(err->code),
                   err->field);
            return 0;
        }
        at += strlen(*words);
    }
    return 1;
}

/* Run a case as a user who may not read all files; not where that cannot be. */
static inline void rig_as_nobody(void (*one)(void)) {
#ifdef _WIN32
    (void)one;
#else
    pid_t pid;
    int status = -1;
    fflush(stdout);
    if ((pid = fork()) == 0) {
        if (getuid() == 0 && (setgid(61234) != 0 || setuid(61234) != 0)) _exit(0);
        one();
        fflush(stdout);
        _exit(test_failures != 0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
#endif
}

#endif
