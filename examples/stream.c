/* Lines of a file, of a pipe or of a terminal, as a stream: nobody knows how many there will be,
   and of a pipe none can be read twice. Prints a line for each batch of four.

   stream [-s STATE-FILE] [-n MOST] [-b BATCH] [FILE]     FILE: standard input if it is left out

     tail -f log | stream
     seq 100 | stream -s state -n 5; seq 100 | stream -s state

   -n ends after MOST batches. -s keeps where it is in STATE-FILE; the next call goes on from there,
   and passes over the lines before. -b jumps to a batch while the pipe runs: in a file to any, in
   a pipe, whose lines are gone once they are read, to those not begun.
   One worker reads, because such a source can only be read on; it sees indices rise one by one,
   but for the jumps, so it compares each with its own place. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 4, LONGEST = 200 };

typedef struct source {
    int fd;
    uint64_t place; /* lines read */
    char chunk[4096];
    size_t at, filled;
    bool ended;                 /* after the last byte */
    volatile sig_atomic_t stop; /* 1: the program ends, so nothing is worth waiting for */
} source;

/* The next byte; -1: there is none, -2: reading failed, or the program ends. A worker that waits in
   read cannot be ended: so it waits in pieces. */
static int byte(source *s) {
    while (s->at == s->filled) {
        struct pollfd p = {s->fd, POLLIN, 0};
        ssize_t n;
        if (s->ended) return -1;
        if (s->stop) return -2;
        if (poll(&p, 1, 50) == 0) continue;
        n = read(s->fd, s->chunk, sizeof s->chunk);
        if (n < 0 && errno != EINTR) return -2;
        s->ended = n == 0;
        s->filled = n > 0 ? (size_t)n : 0;
        s->at = 0;
    }
    return (unsigned char)s->chunk[s->at++];
}

/* Read a line; what is longer than size is lost. Returns its length, or -1, -2. */
static int line(source *s, char *to, int size) {
    int n = 0, c = byte(s);
    if (c < 0) return c;
    for (; c >= 0 && c != '\n'; c = byte(s))
        if (n < size) to[n++] = (char)c;
    if (c == -2) return -2;
    s->place++;
    return n;
}

static int fetch(void *user, dlp_item *item) {
    source *s = user;
    int n = 0;
    if (item->index < s->place) { /* back: from the beginning once more, where there is one */
        if (lseek(s->fd, 0, SEEK_SET) != 0)
            return dlp_fail(item->call, errno, "line %llu is gone, the input is at line %llu",
                            (unsigned long long)item->index, (unsigned long long)s->place);
        s->place = s->at = s->filled = 0;
        s->ended = false;
    }
    while (n >= 0 && s->place <= item->index) n = line(s, item->data[0], LONGEST);
    if (n == -1) return DLP_END;
    if (n == -2) return dlp_fail(item->call, errno, "reading failed");
    item->length[0] = (uint64_t)n;
    return 0;
}

/* ---- the state, in a file ---- */

/* Returns 1: there is one; 0: there is no file; -1: it is no state, or cannot be read: better to
   stop than to begin again and write over it. */
static int state_load(const char *path, dlp_state *state) {
    FILE *f = path ? fopen(path, "rb") : NULL;
    bool ok = f && fread(state->bytes, sizeof state->bytes, 1, f) == 1 && fgetc(f) == EOF;
    if (!f && (!path || errno == ENOENT)) return 0;
    if (!ok)
        fprintf(stderr, "%s: %s; it is left as it is\n", path,
                f ? "not a file that this program has written" : strerror(errno));
    if (f) fclose(f);
    return ok ? 1 : -1;
}

static bool state_save(const char *path, const dlp_state *state) { /* whole, or the old one stays */
    char draft[4096];
    FILE *f;
    bool ok;
    snprintf(draft, sizeof draft, "%s.tmp", path);
    f = fopen(draft, "wb");
    ok = f && fwrite(state->bytes, sizeof state->bytes, 1, f) == 1;
    if (f && fclose(f) != 0) ok = false;
    return ok && rename(draft, path) == 0;
}

static void print(const dlp_batch *b) {
    const char *text = b->fields[0].data;
    const uint64_t *n = b->fields[0].lengths;
    printf("batch %llu, lines %llu..%llu:", (unsigned long long)b->in_epoch,
           (unsigned long long)b->index[0], (unsigned long long)b->index[b->count - 1]);
    for (uint32_t i = 0; i < b->count; i++) printf(" [%.*s]", (int)n[i], text + i * LONGEST);
    printf("\n");
    fflush(stdout);
}

static int say(const dlp_error *e) {
    char text[700];
    dlp_error_format(e, text, sizeof text);
    fprintf(stderr, "stream: %s\n", text);
    return 1;
}

/* Batches, until there are no more or `most` are printed. */
static int run(dlp_pipe *p, long most, const char *path) {
    dlp_batch *b;
    dlp_state state;
    int rc = DLP_OK;
    while (most-- > 0 && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        print(b);
        if (path && (dlp_pipe_state(p, b, &state) != DLP_OK || !state_save(path, &state))) {
            fprintf(stderr, "stream: %s: %s\n", path, strerror(errno));
            dlp_pipe_release(p, b);
            return 1;
        }
        dlp_pipe_release(p, b);
    }
    return rc == DLP_OK || rc == DLP_END ? 0 : say(dlp_pipe_error(p));
}

static int usage(void) {
    fputs("usage: stream [-s STATE-FILE] [-n MOST] [-b BATCH] [FILE]\n", stderr);
    return 2;
}

int main(int argc, char **argv) {
    static source s;
    dlp_field field = {.name = "line", .dtype = DLP_U8, .ndim = 1, .shape = {LONGEST}, .ragged = 1};
    dlp_loader_desc desc = {
        .dataset = {.fields = &field, .n_fields = 1, .fetch = fetch, .user = &s, .open_end = 1},
        .batch_size = BATCH,
        .num_workers = 1};
    const char *path = NULL;
    long most = LONG_MAX, jump = -1;
    dlp_state state;
    dlp_pipe *p;
    dlp_error err;
    int c, rc = 0;
    while ((c = getopt(argc, argv, "s:n:b:")) != -1) {
        if (c == 's')
            path = optarg;
        else if (c == 'n')
            most = atol(optarg);
        else if (c == 'b')
            jump = atol(optarg);
        else
            return usage();
    }
    if (argc - optind > 1) return usage();
    if (optind < argc && (s.fd = open(argv[optind], O_RDONLY)) < 0) return perror(argv[optind]), 1;
    rc = state_load(path, &state);
    if (rc < 0) return 1;
    if (rc > 0) desc.pipe.resume = &state;
    rc = DLP_OK;
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) return say(&err);
    if (jump >= 0) {
        rc = dlp_pipe_state_at(p, 0, (uint64_t)jump, &state);
        if (rc == DLP_OK) rc = dlp_pipe_seek(p, &state, NULL);
    }
    if (rc == DLP_OK) rc = run(p, most, path);
    s.stop = 1;
    return dlp_pipe_close(p) == DLP_OK ? rc : 1;
}
