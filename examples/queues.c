/* queues: four processes write to one, through a queue in memory that they share.

   Each writer has a lane of its own: no writer waits for another, and its records come in its
   order. One of the four is killed (SIGKILL) half way, with a record begun and not pushed. What it
   had pushed is there; the reader sees how far that is, and a successor goes on from there in the
   same lane. A writer closes its lane behind its last record, and when all have, the reader is told
   the end. Writers and reader go through all the ways that there are to write and to read; a lane
   alone, of one writer and one reader, has the same ones (one_to_one).

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
    uint64_t writer;
} record;

/* Push n records, in one of four ways. Returns 0. */
static int write_burst(dlp_mpsc_tx *tx, const record *burst, uint64_t n, uint64_t way) {
    if (way % 4 == 0) return dlp_mpsc_push_burst(tx, burst, n, WAIT_MS) != (int64_t)n;
    for (uint64_t k = 0; k < n;) {
        void *at = NULL;
        int64_t room = 0;
        if (way % 4 == 1) { /* as many as there is room for */
            room = dlp_mpsc_try_push_burst(tx, burst + k, n - k);
        } else if (way % 4 == 2) { /* one */
            int rc = dlp_mpsc_try_push(tx, &burst[k]);
            room = rc == DLP_FULL ? 0 : rc == DLP_OK ? 1 : rc;
        } else if ((room = dlp_mpsc_reserve(tx, n - k, &at)) > 0) { /* in place: no copy is made */
            memcpy(at, burst + k, (size_t)room * sizeof *burst);
            if (dlp_mpsc_commit(tx, (uint64_t)room) != DLP_OK) return 1;
        }
        if (room < 0) return 1;
        k += (uint64_t)room;
        if (k < n && dlp_mpsc_wait_tx(tx, WAIT_MS) != DLP_OK) return 1;
    }
    return 0;
}

/* A writer's process: push records from this number on, in bursts, and close. */
static int write_stream(void *mem, uint64_t bytes, int writer, uint64_t from, int is_killed) {
    dlp_mpsc_tx tx;
    record burst[10];
    void *at = NULL;
    if (dlp_mpsc_attach_tx(&tx, mem, bytes, writer) != writer) return 1;
    for (uint64_t n = from; n < RECORDS;) {
        uint64_t k = 0;
        for (; k < 10 && n + k < RECORDS; k++) burst[k] = (record){n + k, (uint64_t)writer};
        if (write_burst(&tx, burst, k, n / 10) != 0) return 1;
        n += k;
        if (is_killed && n >= RECORDS / 2) {
            while (dlp_mpsc_reserve(&tx, 1, &at) != 1) usleep(100);
            *(record *)at = (record){n, (uint64_t)writer}; /* without a commit nobody sees it */
            raise(SIGKILL);
        }
    }
    if (dlp_mpsc_reserve(&tx, 1, &at) == 1) dlp_mpsc_abort(&tx); /* thought better of it */
    dlp_mpsc_close(&tx);
    return dlp_mpsc_reserve(&tx, 1, &at) != DLP_ERR_STATE; /* a push behind its own close */
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
} stream;

/* Read up to 8 records, in one of five ways. Returns how many, 0: none came within the time, or all
   writers have closed, and wait_rx tells which. */
static int64_t read_burst(dlp_mpsc_rx *rx, record *to, int timeout_ms) {
    static unsigned turn;
    const void *at = NULL;
    int64_t n;
    int rc;
    switch (turn++ % 5) {
    case 0: /* one, whose writer is told */
        rc = dlp_mpsc_pop(rx, to, NULL, timeout_ms);
        return rc == DLP_OK ? 1 : rc < 0 ? rc : 0;
    case 1: return dlp_mpsc_pop_burst(rx, to, 8, timeout_ms);
    case 2: /* in place: they stay where they are until they are released */
        if ((n = dlp_mpsc_peek(rx, 8, &at, NULL)) <= 0 || at == NULL) break;
        memcpy(to, at, (size_t)n * sizeof *to);
        return dlp_mpsc_release(rx, (uint64_t)n) == DLP_OK ? n : -1;
    case 3:
        rc = dlp_mpsc_try_pop(rx, to, NULL);
        if (rc == DLP_EMPTY || rc == DLP_END) break;
        return rc == DLP_OK ? 1 : rc;
    default:
        if ((n = dlp_mpsc_try_pop_burst(rx, to, 8)) == 0) break;
        return n;
    }
    rc = dlp_mpsc_wait_rx(rx, timeout_ms); /* what comes is for the next way */
    return rc == DLP_OK ? read_burst(rx, to, DLP_NOWAIT) : rc < 0 ? rc : 0;
}

/* Take records. Returns 1 if some came, 0 if none came within the time, or -1. */
static int take(dlp_mpsc_rx *rx, stream *of, int timeout_ms) {
    record r[8] = {{0}};
    int64_t n = read_burst(rx, r, timeout_ms);
    for (int64_t i = 0; i < n; i++) {
        stream *from = &of[r[i].writer % WRITERS];
        if (r[i].number != from->next++) return -1; /* lost, or twice */
    }
    return n < 0 ? -1 : n > 0;
}

/* A lane alone, here with both ends in one thread. Returns 0 if each record came once, in order. */
static int one_to_one(void) {
    static _Alignas(DLP_QUEUE_ALIGN) unsigned char mem[4096];
    uint64_t numbers[4] = {2, 3, 4, 5}, got[4] = {0}, next = 0;
    const void *seen = NULL;
    void *at = NULL;
    dlp_spsc_tx tx;
    dlp_spsc_rx rx;
    int bad = dlp_spsc_bytes(8, 16) > sizeof mem || dlp_spsc_init(mem, sizeof mem, 8, 16, 0) ||
              dlp_spsc_attach_tx(&tx, mem, sizeof mem) || dlp_spsc_attach_rx(&rx, mem, sizeof mem);
    if (bad) return 1;
    bad = dlp_spsc_push(&tx, &(uint64_t){0}, WAIT_MS) != DLP_OK ||
          dlp_spsc_try_push(&tx, &(uint64_t){1}) != DLP_OK ||
          dlp_spsc_push_burst(&tx, numbers, 2, WAIT_MS) != 2 ||
          dlp_spsc_try_push_burst(&tx, numbers + 2, 2) != 2 ||
          dlp_spsc_wait_tx(&tx, WAIT_MS) != DLP_OK || dlp_spsc_reserve(&tx, 1, &at) != 1;
    if (bad) return 1;
    *(uint64_t *)at = 6;
    bad = dlp_spsc_commit(&tx, 1) != DLP_OK;
    if (dlp_spsc_reserve(&tx, 1, &at) == 1) dlp_spsc_abort(&tx);
    bad |= dlp_spsc_wait_rx(&rx, WAIT_MS) != DLP_OK;
    bad |= dlp_spsc_pop(&rx, got, WAIT_MS) != DLP_OK || got[0] != next++;
    bad |= dlp_spsc_try_pop(&rx, got) != DLP_OK || got[0] != next++;
    bad |= dlp_spsc_pop_burst(&rx, got, 2, WAIT_MS) != 2 || got[0] != next || got[1] != next + 1;
    bad |= dlp_spsc_try_pop_burst(&rx, got, 2) != 2 || got[0] != next + 2 || got[1] != next + 3;
    bad |= dlp_spsc_peek(&rx, 1, &seen) != 1 || *(const uint64_t *)seen != next + 4;
    bad |= dlp_spsc_release(&rx, 1) != DLP_OK;
    dlp_spsc_publish(&rx); /* its room is the writer's now, not when a few more were read */
    bad |= dlp_spsc_try_pop(&rx, got) != DLP_EMPTY;
    dlp_spsc_close(&tx);
    return bad || dlp_spsc_try_pop(&rx, got) != DLP_END;
}

/* Start a successor for each writer that was killed before it closed. The queue was empty after the
   death: all that the dead one had pushed has come. */
static int replace_dead(void *mem, uint64_t bytes, dlp_mpsc_rx *rx, stream *of) {
    for (int w = 0; w < WRITERS; w++) {
        int status, rc;
        if (of[w].pid < 0 || waitpid(of[w].pid, &status, WNOHANG) != of[w].pid) continue;
        of[w].pid = -1;
        while ((rc = take(rx, of, DLP_NOWAIT)) > 0) continue;
        if (rc < 0) return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue; /* it has closed */
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
    stream of[WRITERS] = {{0, 0}};
    int bad = 0, status;
    if (mem == MAP_FAILED || dlp_mpsc_init(mem, bytes, sizeof(record), CAPACITY, WRITERS, 1))
        return 1;
    if (dlp_mpsc_attach_rx(&rx, lanes, WRITERS, mem, bytes) != DLP_OK) return 1;
    for (int w = 0; w < WRITERS && !bad; w++)
        bad = (of[w].pid = start_writer(mem, bytes, w, 0, w == VICTIM)) < 0;
    while (!bad && dlp_mpsc_wait_rx(&rx, DLP_NOWAIT) != DLP_END) {
        int got = take(&rx, of, 10);
        bad = got < 0 || (got == 0 && replace_dead(mem, bytes, &rx, of));
    }
    for (int w = 0; w < WRITERS; w++) {
        if (bad && of[w].pid > 0) kill(of[w].pid, SIGKILL);
        total += of[w].next;
        printf("writer %d: %llu records\n", w, (unsigned long long)of[w].next);
    }
    while (wait(&status) > 0) bad |= status != 0;
    printf("%llu records of %d writers, each once and in order\n", (unsigned long long)total,
           WRITERS);
    return bad || total != (uint64_t)WRITERS * RECORDS || one_to_one();
}
