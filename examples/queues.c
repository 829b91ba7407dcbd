/* queues: four processes write to one, through a queue in memory that they share.

   Each writer has a lane of its own: no writer waits for another, and its records come in its
   order. One of the four is killed (SIGKILL) half way, with a record begun and not pushed. What it
   had pushed is there; the reader sees how far that is, and a successor goes on from there in the
   same lane. A record that is marked so is the end of a writer's stream.

   cc -O2 queues.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 4, CAPACITY = 256, RECORDS = 20000, VICTIM = 2, WAIT_MS = 30000 };

typedef struct record { /* a multiple of 8 bytes */
    uint64_t number;    /* in its writer's stream, 0.. */
    uint64_t last;      /* 1: the end of the stream */
} record;

/* A writer's process: push records from this number on, in bursts, then the end. */
static int write_stream(void *mem, uint64_t bytes, int writer, uint64_t from, int is_killed) {
    dlp_mpsc_tx tx;
    record burst[10];
    if (dlp_mpsc_attach_tx(&tx, mem, bytes, writer) != writer) return 1;
    for (uint64_t n = from; n < RECORDS;) {
        uint64_t k = 0;
        for (; k < 10 && n + k < RECORDS; k++) burst[k] = (record){n + k, 0};
        if (dlp_mpsc_push_burst(&tx, burst, k, WAIT_MS) != (int64_t)k) return 1;
        n += k;
        if (is_killed && n >= RECORDS / 2) {
            void *at = NULL;
            while (dlp_mpsc_reserve(&tx, 1, &at) != 1) usleep(100);
            *(record *)at = (record){n, 0}; /* without a commit nobody sees it */
            raise(SIGKILL);
        }
    }
    if (dlp_mpsc_push(&tx, &(record){RECORDS, 1}, WAIT_MS) != DLP_OK) return 1;
    dlp_mpsc_detach_tx(&tx);
    return 0;
}

static pid_t start_writer(void *mem, uint64_t bytes, int writer, uint64_t from, int is_killed) {
    pid_t pid = fork();
    if (pid == 0) _exit(write_stream(mem, bytes, writer, from, is_killed));
    return pid;
}

/* What the reader knows of each writer. */
typedef struct stream {
    pid_t pid;
    uint64_t next; /* number that comes next: all before it have come */
    int ended;
} stream;

/* Take one record. Returns 0: none came within the time; negative: failure. */
static int take(dlp_mpsc_rx *rx, stream *of, int timeout_ms) {
    record r;
    uint32_t writer = 0;
    int rc = dlp_mpsc_pop(rx, &r, &writer, timeout_ms);
    if (rc == DLP_TIMEOUT || rc == DLP_EMPTY) return 0;
    if (rc != DLP_OK) return -1;
    if (r.number != of[writer].next) return -1; /* lost, or twice */
    if (r.last)
        of[writer].ended = 1;
    else
        of[writer].next++;
    return 1;
}

/* Start a successor for each writer that is dead before its stream has ended. The queue was empty
   after the death: all that the dead one had pushed has come. */
static int replace_dead(void *mem, uint64_t bytes, dlp_mpsc_rx *rx, stream *of) {
    for (int w = 0; w < WRITERS; w++) {
        int status, rc;
        if (of[w].ended || waitpid(of[w].pid, &status, WNOHANG) != of[w].pid) continue;
        while ((rc = take(rx, of, DLP_NOWAIT)) > 0) continue;
        if (rc < 0) return 1;
        if (of[w].ended) continue;
        if (!WIFSIGNALED(status)) return 1;
        printf("writer %d: killed by signal %d after %llu records, which have all come\n", w,
               WTERMSIG(status), (unsigned long long)of[w].next);
        fflush(stdout);
        of[w].pid = start_writer(mem, bytes, w, of[w].next, 0);
        if (of[w].pid < 0) return 1;
    }
    return 0;
}

int main(void) {
    uint64_t bytes = dlp_mpsc_bytes(sizeof(record), CAPACITY, WRITERS), total = 0;
    void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    dlp_spsc_rx lanes[WRITERS];
    dlp_mpsc_rx rx;
    stream of[WRITERS] = {{0, 0, 0}};
    int left = WRITERS, bad = 0;
    if (mem == MAP_FAILED || dlp_mpsc_init(mem, bytes, sizeof(record), CAPACITY, WRITERS, 1))
        return 1;
    if (dlp_mpsc_attach_rx(&rx, lanes, WRITERS, mem, bytes) != DLP_OK) return 1;
    for (int w = 0; w < WRITERS && !bad; w++)
        bad = (of[w].pid = start_writer(mem, bytes, w, 0, w == VICTIM)) < 0;
    while (left > 0 && !bad) {
        int got = take(&rx, of, 10);
        bad = got < 0 || (got == 0 && replace_dead(mem, bytes, &rx, of));
        left = 0;
        for (int w = 0; w < WRITERS; w++) left += !of[w].ended;
    }
    for (int w = 0; w < WRITERS; w++) {
        if (bad && of[w].pid > 0) kill(of[w].pid, SIGKILL);
        total += of[w].next;
        printf("writer %d: %llu records\n", w, (unsigned long long)of[w].next);
    }
    while (wait(NULL) > 0) continue;
    printf("%llu records of %d writers, each once and in order\n", (unsigned long long)total,
           WRITERS);
    return bad || total != (uint64_t)WRITERS * RECORDS;
}
