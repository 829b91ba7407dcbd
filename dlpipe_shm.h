/* dlpipe_shm.h - v0.2.0 - worker processes for dlpipe.h - MIT licence - header-only, Linux 5.4+
   Made from src/ by "make headers": edit there.

   dlpipe_shm.h runs the workers of a pipeline as processes in shared memory. A killed worker costs
   time, not data. Other programs can look at a running or stuck pipe (monitors), or share one.

   >>shm-use        DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_shm.h"
   2  Set .placement = DLP_PLACE_PROCESSES in the dlp_workers_desc of a stage. That is all.
   3  For a name, several programs on one pipe, or huge pages, set dlp_pipe_desc.shm: a dlp_shm_desc
      (>>shm-start).
   4  Look at it from outside: examples/dlpipe_top.c, or dlp_monitor_open.
   5  Several programs, one pipe: >>shm-subscriber, examples/share.c.

   >>contents       search for the anchor
   >>shm-use        DO THIS, THEN THAT
   >>shm-example    WHAT CHANGES IN A PROGRAM
   >>shm-concepts   WHO STARTS WHOM, WHO SEES WHAT
   >>shm-deaths     WHO DIES, AND WHAT FOLLOWS
   >>shm-memory     MEMORY, ERRORS
   >>shm-limits     LIMITS AND CAVEATS
   >>shm-start      FORK, EARLY FORK
   >>shm-names      NAMED PIPES
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   >>shm-subscriber SEVERAL SUBSCRIBERS OF ONE PIPE
   The implementation:
   >>shm-impl-names >>shm-impl-monitor >>shm-impl-supervisor >>shm-impl-subscriber
   >>shm-impl-start >>shm-impl-public >>shm-history >>shm-licence

   >>shm-example    WHAT CHANGES IN A PROGRAM

     #define DLPIPE_IMPLEMENTATION
     #include "dlpipe.h"
     #include "dlpipe_shm.h"                         // one more include
     ...
     dlp_loader_desc desc = {
         .dataset = {.n_items = 1000, .fields = &field, .n_fields = 1, .fetch = fetch},
         .batch_size = 64,
         .num_workers = 4,
         .workers = {.placement = DLP_PLACE_PROCESSES}, // and one more field
     };

   Order, bytes, states, errors, calls and the memory limit are those of dlpipe.h.

   >>shm-concepts   WHO STARTS WHOM, WHO SEES WHAT

     owner --- fork ---> supervisor --- fork ---> worker 0, 1, ...; a spare
       |                               |                       |
       +----------- the region: one sealed memory file --------+---- subscribers (named pipes)
                                                               +.... monitors (read only)

   The owner is the program that opened the pipe. It schedules items, transfers and takes batches.
   The supervisor watches all processes and replaces dead workers. Workers run fetch, maps and
   collates, and load parts (the stage of a part queue may have processes, as any other).
   Subscribers are other programs, or threads, that take batches of the pipe by a dlp_subscriber.
   The callbacks of a worker see a copy of the program's memory as it was in open. A worker that
   replaces another sees the same copy. The program does not see what callbacks write there, such as
   counters. Callbacks do not see what the program changes later. Open files are shared, and so are
   their offsets: use pread, or open the file in worker_init. A worker process has a process group
   of its own and default signal handlers. It ignores SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2,
   unless worker_init changes that. These signals go to all processes of a job (Slurm's --signal, a
   terminal that closes). So a job that is told to stop can still save its state
   (examples/checkpoint.c). The supervisor ignores these signals, too. A worker's standard input is
   /dev/null. A worker ends by _exit.

   How to start depends on what the program has when it starts the pipe:

     no threads yet      nothing to do: open forks
     threads, a device   open with `later` before they are made, dlp_pipe_start afterwards (CUDA:
                         dlp_cuda_desc.later, too); or shm.allow_fork_with_threads
   In all other cases open refuses: DLP_ERR_STATE.

   >>shm-deaths     WHO DIES, AND WHAT FOLLOWS
   A process may die by SIGKILL at any instruction, or in any other way:

     a worker            is replaced, in a fraction of a millisecond if a core is free. Its work is
                         done again. No position is lost or comes twice; order and bytes are the
                         same. An item that kills its worker max_kills times has failed:
                         DLP_ERR_KILLED, under its stage's on_error. If several items are in flight
                         in a worker, its death counts for each of them; they run alone from then
                         on. There max_kills counts as at least 2. Workers may also die max_kills
                         times in worker_init, or with the same work outside of the stage's
                         callbacks (in a function of the sampler, say). That is an error of the
                         stage. After some 64 deaths in a row, of any cause, at most 100 workers a
                         second are replaced.
     a part worker       likewise: another worker loads its part from the beginning; a part that
                         kills its worker so often, or takes longer than its deadline_ms, has failed
     patience            deadline_ms of a stage of processes: the worker is killed, and the item has
                         failed (DLP_ERR_DEADLINE), after its retries if there are any. Only time in
                         which the supervisor itself ran counts, so a stopped job loses nothing.
     the supervisor      the workers die with it; next returns DLP_ERR_KILLED
     the owner           the supervisor kills the workers, removes the name and ends: within 1 s.
                         The kernel frees the memory with the last process. exec in the owner has
                         the same effect.
     a subscriber        see >>shm-subscriber
     all at once         only the record of a name is left, and its lock is free: the next pipe of
                         that name takes it over, or dlp_shm_remove_stale removes it
   A stage that changes a cell in place never runs on it twice, unless the stage is idempotent.
   After a death the row goes back to fetch; the batch goes back to its collate, or to fetch.
   Counters may count a failed item twice, once before a death and once after it: skips towards
   max_skips, retries, items of a worker. No delivered byte depends on them.

   >>shm-memory     MEMORY, ERRORS
   start reserves the whole region (fallocate). Before, it compares the plan with the limits, the
   memory cgroups of both versions, and the available memory. So no worker dies because memory for a
   batch is missing. The region lies in an unnamed memory file, sealed against shrinking and
   growing. /dev/shm has nothing of it, except a record of 128 bytes for a named pipe. Each process
   adds its stack and the pages that it changes. The plan has the worker records, one for each
   worker. Errors are those of dlpipe.h, and DLP_ERR_KILLED and DLP_ERR_FORKED. A process that the
   user forked has a pipe's handle but not the pipe: each call returns DLP_ERR_FORKED there, and
   close frees nothing.

   >>shm-limits     LIMITS AND CAVEATS
   * Linux 5.4 or later (pidfds), with /proc mounted.
   * dlpipe_shm.h is compiled in the same file as dlpipe.h's implementation.
   * If the program itself forks a process that does not exec, that process inherits the pipe's
     memory file and lock. So the name stays taken until that process ends.
   * The supervisor is a child of the owner. A program that waits for any child (waitpid(-1)) may
     see it end at close. That does no harm, nor does ignoring SIGCHLD. The supervisor does not end
     before close: do not wait for the end of all children while the pipe is open.
   * Monitors and subscribers must run as the same user, or root, and see the same /proc: they
     cannot be in another container. A subscriber can write to the region: it is trusted.
   * A blocked pipe of 16 worker processes takes a little more than 0.1 % of a core (measured: 0.12;
     with 2 processes 0.07). Each process and the supervisor check now and then.
*/

#ifndef DLPIPE_SHM_H
#define DLPIPE_SHM_H

#if !defined(__linux__)
#error dlpipe_shm.h wants 64-bit Linux; leave it out elsewhere: dlpipe.h alone has worker threads
#define DLPIPE_SHM_IMPLEMENTATION_DONE
#endif

#include "dlpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK */

enum {
    DLP_HUGE_NONE = 0,
    DLP_HUGE_TRANSPARENT, /* ask the kernel (madvise); a warning if it declines */
    DLP_HUGE_RESERVED     /* use the pool of reserved huge pages; start fails if it is too small */
};

enum {
    DLP_SHARE_NONE = 0,
    DLP_SHARE_EACH, /* every subscriber gets every batch; the slowest sets the pace */
    DLP_SHARE_ONE   /* each batch goes to one subscriber */
};

typedef struct dlp_shm_desc {
    const char *name; /* name of the pipe, 1..63 of A-Z a-z 0-9 . _ -, no dot first; NULL: none */
    int32_t allow_fork_with_threads; /* 1: fork even if the process has threads. Locks that these
                               threads hold stay locked in the workers for ever: know what you do.
                               The thread of a push with a path holds none, and does not count */
    int32_t max_kills;       /* worker deaths that one item may cause, 1..100; then the item has
                               failed (DLP_ERR_KILLED); 0: 3. It also counts the deaths in
                               worker_init, and outside of callbacks with the same work */
    int32_t grace_ms;        /* milliseconds that close gives workers to finish before it kills
                               them; 0: 300 */
    int32_t huge_pages;      /* DLP_HUGE_* */
    int32_t share;           /* DLP_SHARE_*; needs a name */
    int32_t max_subscribers; /* with share: programs at once, 1..64; 0: 8 */
    int32_t serve_only;      /* with share: 1: this process takes no batches (see dlp_shm_serve) and
                               has no place in the order: dlp_pipe_next, _next_epoch and _state
                               return DLP_ERR_STATE. DLP_SHARE_ONE needs 1; a transfer needs 0 */
    int32_t wait_subscribers; /* with share: subscribers that must come before the first fetch,
                               up to max_subscribers; 0: none (serve_only: one) */
} dlp_shm_desc;

/* ---------------------------------------------------------------------------------------------
   >>shm-names      NAMED PIPES
   A name is a small record in /dev/shm ("dlpipe.NAME", mode 0600) that says where the pipe is. The
   pipe's processes hold a lock on it. The kernel frees the lock when the last of them ends. A name
   whose lock is free belongs to nobody, and the next pipe of that name takes it over. The pid in
   the record is for people only. */

typedef struct dlp_shm_name {
    char name[64];
    int32_t pid;     /* process id of the owner, as the owner sees it; 0: unreadable record */
    int32_t alive;   /* 1: the lock is held; 0: stale; -1: not known, another user's */
    uint32_t uid;    /* user id of the owner */
    uint64_t age_ms; /* milliseconds since the name was made; 0: not known */
} dlp_shm_name;

/* List the names on this machine. It opens each record and tries its lock for a moment.
   out: [max]; NULL if max is 0. Returns the number of names, which may be above max; DLP_ERR_ARG;
   DLP_ERR_SYSTEM with errno (no /dev/shm). Any thread may call it. It allocates as opendir. */
DLPDEF int dlp_shm_names(dlp_shm_name *out, int max);

/* Remove names whose owners are gone: whose lock is free. Process ids do not count. The kernel
   frees the memory of dead pipes by itself.
   name: one name; NULL: all names of this user. Returns the number of removed names, which is 0 if
   the name is in use or does not exist; DLP_ERR_ARG (not a name); DLP_ERR_SYSTEM with errno
   (another user's, not a regular file, or no /dev/shm). Any thread may call it. It allocates what
   opendir does. */
DLPDEF int dlp_shm_remove_stale(const char *name);

/* ---------------------------------------------------------------------------------------------
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   A monitor copies a pipe's records out of its region and reads the copy. It opens the region
   read-only and never maps it. So it cannot disturb a pipe, and a pipe cannot stop it. A pipe that
   runs, hangs or is stopped (SIGSTOP) looks the same. A monitor needs the rights of a debugger: the
   same user, or root. It checks the copy before use; a torn or hostile region is an error. */

typedef struct dlp_monitor dlp_monitor;

typedef struct dlp_monitor_info {
    char name[32];         /* dlp_pipe_desc.name */
    char shm_name[64];     /* name by which it was opened, or "" */
    int32_t pid, memfd;    /* process, and number of its descriptor, where the pipe was found */
    uint32_t uid;          /* user id of the owner, as the owner said */
    int32_t stopped;       /* 1: stop or close was called */
    uint64_t started_ns;   /* start of the pipe, nanoseconds of CLOCK_REALTIME */
    uint64_t trace_events; /* most events of a lane that are copied */
} dlp_monitor_info;

/* Find a pipe and make the first copy.
   out: to be closed; err: written on failure, may be NULL; who: copied. who is "PID"; or "PID:PIPE"
   if the process has several pipes (PIPE is dlp_pipe_desc.name, or the number of the memfd); or a
   name. Digits alone are a PID.
   Returns DLP_OK; DLP_ERR_ARG (who is empty, or fits several pipes, which the message lists);
   DLP_ERR_STATE (the owner is gone, has no pipe, or the pipe is still starting); DLP_ERR_SYSTEM
   with errno (no such process or name, no permission); DLP_ERR_UNSUPPORTED (a pipe of another
   version); DLP_ERR_CORRUPT; DLP_ERR_MEMORY. Any thread may call it. It allocates; it waits up to
   200 ms for a pipe that starts. */
DLPDEF int dlp_monitor_open(dlp_monitor **out, const char *who, dlp_error *err);

/* Copy the pipe's records again: a few KiB for each worker, and at most 64 MiB of traces.
   err: written on failure, may be NULL. Returns DLP_OK; DLP_ERR_STATE (the owner is gone or has
   closed the pipe; the last copy stays); DLP_ERR_CORRUPT; DLP_ERR_SYSTEM; DLP_ERR_ARG. One thread
   at a time may call it. It does not allocate. */
DLPDEF int dlp_monitor_refresh(dlp_monitor *m, dlp_error *err);

/* Read the copy, as the calls of >>stats read a pipe: dlp_monitor_stats as dlp_pipe_stats, and so
   on. Parameters and results are the same, but DLP_ERR_STATE and DLP_ERR_FORKED are not returned.
   All figures are of the last refresh. A stage's own text about its wait ("Waits: ") is known in
   the owner alone. Any thread may call them, but not while refresh runs. None of them waits. */
DLPDEF int dlp_monitor_stats(const dlp_monitor *m, dlp_stats *out);
DLPDEF int dlp_monitor_worker_stats(const dlp_monitor *m, uint32_t i, dlp_worker_stats *out);
DLPDEF int dlp_monitor_skips(const dlp_monitor *m, dlp_skip *out, int max, uint64_t *total);
DLPDEF DLPI_LESS_EXPLAIN
int dlp_monitor_explain(const dlp_monitor *m, char *buf, size_t size);
DLPDEF int dlp_monitor_trace_lanes(const dlp_monitor *m);
DLPDEF int dlp_monitor_trace(const dlp_monitor *m, int lane, dlp_trace_event *out, int max,
                             char *name);

/* Return the number of batches in an epoch; -1 if it is not known, or m is NULL; DLP_FOREVER if an
   epoch has no end. Not while refresh runs. */
DLPDEF int64_t dlp_monitor_batches_per_epoch(const dlp_monitor *m);

/* Return the error that a worker or the sampler of the pipe met before the last refresh; code 0:
   none. m: NULL gives code DLP_ERR_ARG. The record is valid until refresh or dlp_monitor_close. */
DLPDEF const dlp_error *dlp_monitor_error(const dlp_monitor *m);

/* Tell which pipe the monitor watches, and whose it is. out: written on DLP_OK. Returns DLP_OK;
   DLP_ERR_ARG. Not while refresh runs. */
DLPDEF int dlp_monitor_about(const dlp_monitor *m, dlp_monitor_info *out);

/* Free the monitor and its copy. m: NULL is fine. */
DLPDEF void dlp_monitor_close(dlp_monitor *m);

/* Write a picture of the pipe as it was at the last refresh. Parameters and results are those of
   dlp_pipe_write_trace, dlp_pipe_write_timeline and dlp_pipe_write_window. Counters of the user
   have no curves. Any thread may call them, but not while refresh runs. They allocate for the
   length of the call. */
DLPDEF DLPI_LESS_PICTURES
int dlp_monitor_write_trace(const dlp_monitor *m, const char *path, dlp_error *err);
DLPDEF DLPI_LESS_PICTURES
int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path, dlp_error *err);
DLPDEF DLPI_LESS_PICTURES
int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                             const dlp_trace_window *window, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>shm-subscriber   SEVERAL SUBSCRIBERS OF ONE PIPE
   Programs that train on the same batches share one pipe, its workers and its memory. The pipe has
   a name and dlp_shm_desc.share; its sampler runs in a thread. A subscriber gets the batches that
   are scheduled after it comes. Batches stay where the workers wrote them; nothing is copied.

     DLP_SHARE_EACH  Every subscriber gets every batch in order. So does the pipe's consumer, unless
                     serve_only is set. A slot is free when all have released it. So the slowest
                     subscriber sets the pace, even if it is stopped or never asks. With serve_only,
                     batches that are scheduled and not taken when the last subscriber leaves are
                     lost. The next subscriber begins after them.
     DLP_SHARE_ONE   Each batch goes to one subscriber: the next one that asks. If a subscriber dies
                     or closes, the batches that it held go to others. dlp_pipe_desc.max_held is the
                     sum of the batches that all subscribers hold. If each subscriber holds a batch
                     and asks for one more, they may wait for ever. That happens if there are no
                     more slots (prefetch_factor + max_held) than subscribers.

   A transfer copies for the pipe's consumer alone. Subscribers take the same batches on the host,
   before the transfer, and also while it copies. serve_only must then be 0.

   examples/share.c shows both. The last batch of an epoch has DLP_BATCH_LAST in its flags. Only the
   pipe's owner gets DLP_EPOCH_END, and only the owner can save states. The error of an item goes to
   each subscriber that gets its batch, and to the owner. Other errors go to the owner; when it
   closes the pipe, the subscribers learn of it.

   When the owner closes the pipe, a subscriber that has all batches gets DLP_END. Other subscribers
   take the batches that are ready, then get DLP_STOPPED. Batches that a subscriber holds stay valid
   until dlp_subscriber_close.

   A subscriber that dies blocks nobody. Its place is a lock, which the kernel frees; the pipe looks
   for free locks every 50 ms. If the subscriber forks, the child keeps the place until it ends,
   execs, or closes the subscriber. All other calls return DLP_ERR_FORKED in the child. Subscribers
   map the pipe's memory and could write to it. They are trusted as programs of the same user are.
   They check what they read. */

typedef struct dlp_subscriber dlp_subscriber;

/* What happens to batches that a subscriber has not taken when the pipe needs their slots; with
   DLP_SHARE_EACH. A batch that a subscriber holds is never overwritten, and its slot is not used.
   If subscribers may miss batches, add the batches that they hold to the pipe's max_held. The other
   subscribers then keep their slots. A pipe with serve_only waits until there is a subscriber with
   DLP_BEHIND_WAIT. A missed batch may have DLP_BATCH_LAST: look at batch->epoch. */
enum {
    DLP_BEHIND_WAIT = 0,   /* the pipe waits for the subscriber, which gets all batches */
    DLP_BEHIND_DROP_NEW,   /* it keeps the oldest batches, as many as it may still hold, and misses
                            newer ones; a subscriber that keeps up misses none */
    DLP_BEHIND_KEEP_NEWEST /* it misses the oldest batches; next goes on to the newest max_held of
                            the ready ones; while it waits in next, the batch it waits for stays */
};

typedef struct dlp_subscriber_desc {
    int32_t max_held;    /* batches held at once; at most the pipe's max_held; 0: 1 */
    int32_t when_behind; /* DLP_BEHIND_*; with DLP_SHARE_ONE: 0 */
} dlp_subscriber_desc;

/* Subscribe to the pipe of that name. A thread of the pipe's own process may subscribe too, such as
   a logger beside the consumer (DLP_SHARE_EACH, serve_only 0). With DLP_BEHIND_KEEP_NEWEST it slows
   nothing. It closes its subscriber itself, before or after the pipe is closed.
   out: to be closed; name: dlp_shm_desc.name; desc: copied; NULL is {0}; err: written on failure,
   may be NULL. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE (the owner is gone, the pipe is not
   shared, or all places are taken); DLP_ERR_SYSTEM (errnum ENOENT: no such name yet, so try again);
   DLP_ERR_UNSUPPORTED, _CORRUPT, _MEMORY as dlp_monitor_open. Any thread may call it; one thread at
   a time then uses the subscriber. It allocates and maps; it waits up to 200 ms for a pipe that
   starts. */
DLPDEF int dlp_subscriber_open(dlp_subscriber **out, const char *name,
                               const dlp_subscriber_desc *desc, dlp_error *err);

/* Take the next batch, or wait for it: without end, or at most timeout_ms (0: no wait; negative: no
   limit). Other subscribers may have the same batch: it is read-only.
   out: written on DLP_OK; valid until release or close. Returns the codes of dlp_pipe_next and
   dlp_pipe_next_timeout without DLP_EPOCH_END; DLP_ERR_KILLED (the pipe's owner is gone);
   DLP_ERR_CORRUPT; DLP_ERR_FORKED. DLP_END: all batches are consumed. With DLP_SHARE_ONE it comes
   when all are also released, since another subscriber may die. A subscriber that holds a batch
   gets it earlier, and may call again after its release. */
DLPDEF int dlp_subscriber_next(dlp_subscriber *c, dlp_batch **out);
DLPDEF int dlp_subscriber_next_timeout(dlp_subscriber *c, dlp_batch **out, int timeout_ms);

/* Give a batch back, in any order. batch: as next gave it; do not use it any more. Returns DLP_OK;
   DLP_ERR_ARG (not held); DLP_ERR_FORKED. It does not wait. */
DLPDEF int dlp_subscriber_release(dlp_subscriber *c, dlp_batch *batch);

/* Return the number of batches that the subscriber missed, by when_behind, up to its last call of
   next. c: NULL is 0. */
DLPDEF uint64_t dlp_subscriber_missed(const dlp_subscriber *c);

/* Return the subscriber's first error; code 0: none. Never NULL. The record is valid until
   close. */
DLPDEF const dlp_error *dlp_subscriber_error(const dlp_subscriber *c);

/* Leave the pipe and free the subscriber. Batches that it still holds are no longer valid: their
   memory is unmapped. c: NULL is fine. */
DLPDEF void dlp_subscriber_close(dlp_subscriber *c);

/* Wait while other programs consume, in the pipe's process, with serve_only.
   timeout_ms: longest wait; 0 or DLP_FOREVER: no limit; DLP_NOWAIT: no wait. Returns DLP_END: all
   is consumed; DLP_TIMEOUT; DLP_STOPPED; the error codes of dlp_pipe_next; DLP_ERR_STATE (not
   started, or not serve_only). The consumer calls it. */
DLPDEF int dlp_shm_serve(dlp_pipe *p, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_SHM_H */

/* =============================================================================================
   IMPLEMENTATION
   It rests on dlpipe.h's; where that can't be, an #error of dlpipe.h has said why. */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#include "dlpipe.h"
#endif

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_SHM_IMPLEMENTATION_DONE)
#define DLPIPE_SHM_IMPLEMENTATION_DONE
#ifdef DLPIPE_THREADS_ONLY
#error "dlpipe_shm.h: processes share memory; compile without DLPIPE_THREADS_ONLY"
#endif

#ifndef _GNU_SOURCE /* dlpipe.h has taken it back */
#define _GNU_SOURCE
#define DLPI_SHM_ASKED_GNU_SOURCE
#endif
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#ifdef DLPI_SHM_ASKED_GNU_SOURCE
#undef DLPI_SHM_ASKED_GNU_SOURCE
#undef _GNU_SOURCE
#endif

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-names       RECORDS AND LOCKS
   A name is a file. The process that holds its lock (flock, on the open file description) owns the
   name. After it got the lock, a process looks whether the path still leads to the file that it
   locked. If not, the name was removed in between, and the process begins again. The lock is
   inherited by fork. The kernel frees it when the last process that has it is gone.
     The file is made by O_EXCL, then locked, then written. A creator that dies in between leaves a
     stale name, complete or not. A name whose lock is free is taken over in place. Only the holder
     of the lock removes a name.
   A process that lists names takes each lock for a moment. So a creator that finds the lock held
   looks again for 50 ms. */

#ifndef DLPI_SHM_DIR
#define DLPI_SHM_DIR "/dev/shm"
#endif
#define DLPI_NAME_PREFIX "dlpipe."
#define DLPI_NAME_PATH (sizeof DLPI_SHM_DIR + sizeof DLPI_NAME_PREFIX + 64)
#define DLPI_NAME_MAGIC UINT64_C(0x656d616e706c6400)
#define DLPI_NAME_FORMAT 1u

/* Open the directory of a descriptor that was just opened, or is -1. Returns NULL with errno. */
DLPI_COLD
static DIR *dlpi_dir_open(int fd) {
    DIR *dir;
    fd = dlpi_fd_above(fd);
    dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL && fd >= 0) close(fd);
    return dir;
}

typedef struct dlpi_name_rec {
    uint64_t magic;
    uint32_t format, bytes;
    char name[64];
    int32_t pid, memfd;
    uint32_t uid, pad0;
    uint64_t token[2];
    uint64_t started_real; /* CLOCK_REALTIME of the start, ns */
    uint64_t check;        /* hash of all fields before it */
} dlpi_name_rec;
_Static_assert(sizeof(dlpi_name_rec) == 128, "record layout");

/* True if a name has 1 to 63 of A-Z a-z 0-9 . _ - and no dot first. It may then be part of a path.
   */
DLPI_COLD
static bool dlpi_name_ok(const char *name) {
    size_t n = name ? strnlen(name, 64) : 0;
    if (n < 1 || n > 63 || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

/* Write the path of a name into path[DLPI_NAME_PATH]. A signal handler may call this. */
DLPI_COLD
static void dlpi_name_path(const char *name, char *path) {
    static const char head[] = DLPI_SHM_DIR "/" DLPI_NAME_PREFIX;
    size_t n = strnlen(name, 63);
    memcpy(path, head, sizeof head - 1);
    memcpy(path + sizeof head - 1, name, n);
    path[sizeof head - 1 + n] = 0;
}

/* True if the path leads to the file that is open as fd. A signal handler may call this. */
DLPI_COLD
static bool dlpi_name_is(const char *path, int fd) {
    struct stat at, open_file;
    return fstat(fd, &open_file) == 0 && lstat(path, &at) == 0 && at.st_dev == open_file.st_dev &&
           at.st_ino == open_file.st_ino;
}

/* True if only this user can write the record fd; else errno tells. reads: root reads
   everybody's. */
DLPI_COLD
static bool dlpi_name_ours(int fd, bool reads) {
    struct stat st;
    if (fstat(fd, &st) != 0) return false;
    errno = EACCES;
    if (st.st_uid != geteuid() && !(reads && geteuid() == 0)) return false;
    return S_ISREG(st.st_mode) && (st.st_mode & 077) == 0;
}

DLPI_COLD
static uint64_t dlpi_name_check(const dlpi_name_rec *r) {
    uint64_t words[offsetof(dlpi_name_rec, check) / 8], h = DLPI_NAME_MAGIC;
    memcpy(words, r, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++) h = dlp_hash(h, words[i], i, 1);
    return h;
}

/* Check the n bytes of a record's file. *out is written on success only. Returns 0 or a code. */
DLPI_COLD
static int dlpi_name_parse(const void *bytes, size_t n, dlpi_name_rec *out) {
    dlpi_name_rec r;
    if (n < sizeof r) return DLP_ERR_CORRUPT;
    memcpy(&r, bytes, sizeof r);
    if (r.magic != DLPI_NAME_MAGIC) return DLP_ERR_CORRUPT;
    if (r.format != DLPI_NAME_FORMAT) return DLP_ERR_UNSUPPORTED;
    if (r.bytes < sizeof r || r.check != dlpi_name_check(&r)) return DLP_ERR_CORRUPT;
    if (!dlpi_name_ok(r.name)) return DLP_ERR_CORRUPT; /* nor is it terminated, then */
    if (r.pid <= 0 || r.memfd < 0) return DLP_ERR_CORRUPT;
    *out = r;
    return DLP_OK;
}

/* Read all of `bytes` bytes at an offset of a file. Returns false if they are not there. */
DLPI_COLD
static bool dlpi_shm_read(int fd, void *to, uint64_t bytes, uint64_t offset) {
    uint8_t *at = to;
    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes < (1u << 30) ? (size_t)bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return true;
}

DLPI_COLD
static int dlpi_name_read(int fd, dlpi_name_rec *out) {
    dlpi_name_rec r;
    if (!dlpi_shm_read(fd, &r, sizeof r, 0)) return DLP_ERR_CORRUPT;
    return dlpi_name_parse(&r, sizeof r, out);
}

/* Open, or make, the file at path and lock it. Returns its descriptor, or -1 with errno.
   EWOULDBLOCK means that another process holds the lock: then *owner is its pid, or 0. */
DLPI_COLD
static int dlpi_name_lock(const char *path, int32_t *owner) {
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    struct timespec pause = {0, 2000000};
    int held = 0;
    for (int tries = 0; held < 25 && tries < 1000; tries++) {
        int errnum, fd = dlpi_fd_above(open(path, flags | O_CREAT | O_EXCL, 0600));
        if (fd >= 0)
            fchmod(fd, 0600); /* whatever the umask */
        else if (errno == EEXIST)
            fd = dlpi_fd_above(open(path, flags));
        if (fd < 0 && errno == ENOENT) continue; /* removed in between */
        if (fd < 0) return -1;
        errnum = dlpi_name_ours(fd, false) ? 0 : errno;
        if (errnum == 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) errnum = errno;
        if (errnum == 0 && dlpi_name_is(path, fd)) return fd;
        if (errnum == EWOULDBLOCK) {
            dlpi_name_rec r;
            *owner = dlpi_name_read(fd, &r) == DLP_OK ? r.pid : 0;
            held++;
            nanosleep(&pause, NULL);
        }
        close(fd);
        errno = errnum;
        if (errnum != 0 && errnum != EWOULDBLOCK) return -1;
    }
    errno = held > 0 ? EWOULDBLOCK : ENOENT; /* or there is no such directory */
    return -1;
}

/* Fail the pipe because of its name. errnum: errno, or 0. Returns code. */
DLPI_COLD
static int dlpi_name_fail(dlp_pipe *p, int code, int errnum, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, code, "shm.name", "%s%s%s: " DLPI_SHM_DIR "/" DLPI_NAME_PREFIX "%s", what,
                   errnum ? ": " : "", errnum ? strerror(errnum) : "", p->shm_name);
    e.errnum = errnum;
    return dlpi_pipe_fail(p, &e);
}

DLPI_COLD
static int dlpi_name_clash(dlp_pipe *p, int32_t owner) {
    char what[96] = "the name is taken; choose another";
    if (owner > 0)
        snprintf(what, sizeof what, "process %d has the name; choose another", (int)owner);
    return dlpi_name_fail(p, DLP_ERR_STATE, 0, what);
}

/* Make the pipe's name known. p->shm_name is checked, the region has its token. Leaves p->name_fd
   open and locked, to be inherited by fork. Only one process removes it. Returns 0 or a code. */
DLPI_COLD
static int dlpi_name_create(dlp_pipe *p) {
    const dlpi_pipe_rec *pipe = dlpi_area_at(p, DLPI_REC_PIPE, 0);
    char path[DLPI_NAME_PATH];
    dlpi_name_rec r;
    int32_t owner = 0;
    int fd;
    if (p->memfd < 0) return dlpi_name_fail(p, DLP_ERR_UNSUPPORTED, 0, "a name needs a memfd");
    dlpi_name_path(p->shm_name, path);
    fd = dlpi_name_lock(path, &owner);
    if (fd < 0 && errno == EWOULDBLOCK) return dlpi_name_clash(p, owner);
    if (fd < 0) return dlpi_name_fail(p, DLP_ERR_SYSTEM, errno, "the name can't be made");
    memset(&r, 0, sizeof r);
    r.magic = DLPI_NAME_MAGIC;
    r.format = DLPI_NAME_FORMAT;
    r.bytes = sizeof r;
    dlpi_copy_text(r.name, sizeof r.name, p->shm_name);
    r.pid = pipe->pid;
    r.memfd = p->memfd;
    r.uid = pipe->uid;
    memcpy(r.token, pipe->token, sizeof r.token);
    r.started_real = pipe->started_real;
    r.check = dlpi_name_check(&r);
    p->name_fd = fd;
    errno = 0;
    if (ftruncate(fd, 0) == 0 && pwrite(fd, &r, sizeof r, 0) == (ssize_t)sizeof r) return DLP_OK;
    owner = errno ? errno : ENOSPC;
    unlink(path);
    close(fd);
    p->name_fd = -1;
    return dlpi_name_fail(p, DLP_ERR_SYSTEM, owner, "the name can't be written");
}

/* Remove the name while its lock is held, then close its file. A signal handler may call this. */
DLPI_COLD
static void dlpi_name_remove(dlp_pipe *p) {
    char path[DLPI_NAME_PATH];
    int saved = errno;
    if (p->name_fd < 0) return;
    dlpi_name_path(p->shm_name, path);
    if (dlpi_name_is(path, p->name_fd)) unlink(path);
    close(p->name_fd);
    p->name_fd = -1;
    errno = saved;
}

/* Describe the record at path. Returns DLP_OK, or DLP_ERR_SYSTEM with errno if none of ours is
   there. */
DLPI_COLD
static int dlpi_name_look(const char *path, dlp_shm_name *out) {
    struct stat st;
    dlpi_name_rec r;
    int fd;
    if (lstat(path, &st) != 0) return DLP_ERR_SYSTEM;
    errno = EINVAL;
    if (!S_ISREG(st.st_mode)) return DLP_ERR_SYSTEM;
    out->uid = (uint32_t)st.st_uid;
    out->alive = -1;
    fd = dlpi_fd_above(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0) return errno == EACCES ? DLP_OK : DLP_ERR_SYSTEM;
    out->alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (dlpi_name_read(fd, &r) == DLP_OK) {
        uint64_t ns = dlpi_real_ns();
        out->pid = r.pid;
        out->age_ms = ns > r.started_real ? (ns - r.started_real) / 1000000u : 0;
    }
    close(fd);
    return DLP_OK;
}

/* Remove a name without an owner. Returns 1 if it is removed, 0 if it is in use or not there;
   DLP_ERR_SYSTEM with errno if it is not ours. */
DLPI_COLD
static int dlpi_name_sweep(const char *path) {
    int removed = 0, errnum, fd;
    fd = dlpi_fd_above(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0) return errno == ENOENT ? 0 : DLP_ERR_SYSTEM;
    errnum = dlpi_name_ours(fd, false) ? 0 : errno;
    if (errnum == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        removed = dlpi_name_is(path, fd) && unlink(path) == 0;
    close(fd);
    errno = errnum;
    return errnum ? DLP_ERR_SYSTEM : removed;
}

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-monitor     COPY, CHECK, THEN USE
   Everything is read by pread into private memory, checked there, and never read again. Each size,
   count, index and string is checked. Numbers that are only printed are not. Then a dlpi_seen
   (>>impl-seen) points to the checked copy, as it points to the memory of a live pipe. The copy has
   no slots, only the ready words of all stages, side by side. */

#define DLPI_VIEW_TRACE (UINT64_C(64) << 20) /* bytes of traces copied, at most */
#define DLPI_VIEW_SLOTS 65536u
#define DLPI_VIEW_RING (1u << 20)

struct dlp_monitor {
    int fd;           /* the region's file; -1: closed */
    int proc, number; /* descriptor of /proc/PID, and the memfd's number there; -1: not watched */
    dlp_monitor_info info;
    dlpi_area areas[DLPI_AREAS]; /* the areas that the region's records describe */
    dlpi_pipe_rec pipe;
    dlpi_seen seen;               /* points to the copies below */
    dlp_error error;              /* error of the pipe; code 0: none */
    uint64_t per_epoch;           /* batches of an epoch; UINT64_MAX: not known */
    dlpi_ctl *ctl;                /* [2] the checked copy; the copy that is being read */
    uint32_t *order;              /* [2][ring] as ctl */
    uint8_t *taken;               /* [ring] */
    uint64_t *ready;              /* [n_slots][n_work] */
    uint8_t *slot_seen;           /* [n_slots] */
    uint64_t *trace_head;         /* [n_workers + 1] in the region, when copied */
    uint64_t *trace_n;            /* [n_workers + 1] events that the copy has */
    dlp_trace_event *trace;       /* [n_workers + 1][seen.trace_events] */
    dlpi_worker_block *blocks;    /* [n_workers + 1] */
    uint64_t block_at, block_end; /* offsets of the region that block[] has a copy of */
    uint8_t block[4096];
};

#define DLPI_VIEW_FAULT(err, ...) dlpi_error_set(err, DLP_ERR_CORRUPT, "", __VA_ARGS__)

/* Read n bytes at an offset inside element i of an area. Returns false if they are not there. */
DLPI_COLD
static bool dlpi_view_read(const dlp_monitor *m, int id, uint64_t i, uint64_t offset, void *to,
                           uint64_t n) {
    const dlpi_area *r = &m->areas[id];
    if (i >= r->count || offset > r->stride || n > r->stride - offset) return false;
    return dlpi_shm_read(m->fd, to, n, r->offset + i * r->stride + offset);
}

/* Check one record of the region's map, and note its area. A record of an unknown area is skipped.
   Returns 0, or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_view_record(dlp_monitor *m, const dlpi_record *r, uint64_t total, dlp_error *err) {
    const int id = dlpi_record_id(r);
    if (id == 0) return DLP_OK; /* of a newer version */
    if (m->areas[id].count != 0) return DLPI_VIEW_FAULT(err, "area %d is there twice", id);
    if (r->offset % 8 != 0 || r->offset > total ||
        (r->count > 0 && r->stride > (total - r->offset) / r->count))
        return DLPI_VIEW_FAULT(err, "area %d is outside the region", id);
    m->areas[id] = (dlpi_area){NULL, 0, r->offset, r->stride, r->count};
    return DLP_OK;
}

/* Read the region's header and its map of areas, and check both. Returns 0, or a DLP_ERR code with
   *err filled: DLP_ERR_STATE while the pipe starts, DLP_ERR_UNSUPPORTED for another layout. */
DLPI_COLD
static int dlpi_view_header(dlp_monitor *m, dlp_error *err) {
    dlpi_region h;
    struct stat st;
    uint64_t bytes;
    memset(m->areas, 0, sizeof m->areas);
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        return DLPI_VIEW_FAULT(err, "this is no file of memory");
    bytes = (uint64_t)st.st_size;
    if (!dlpi_shm_read(m->fd, &h, offsetof(dlpi_region, records), 0))
        return DLPI_VIEW_FAULT(err, "the region has no header");
    if (h.magic == 0) return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe is still starting");
    if (h.magic != DLPI_MAGIC) return DLPI_VIEW_FAULT(err, "this memory is no pipe's");
    if (h.format != DLPI_FORMAT)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                              "the pipe's region has format %u, this program reads format %u",
                              h.format, DLPI_FORMAT);
    if (h.view != dlpi_view_hash())
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                              "the pipe's region has another layout than this program reads");
    if (h.total_bytes > bytes || h.n_records > 1024 || h.record_bytes < sizeof(dlpi_record) ||
        h.record_bytes > 4096 || h.records_at > h.total_bytes ||
        (uint64_t)h.n_records * h.record_bytes > h.total_bytes - h.records_at)
        return DLPI_VIEW_FAULT(err, "the region's header is damaged");
    for (uint32_t i = 0; i < h.n_records; i++) {
        dlpi_record r;
        int rc;
        if (!dlpi_shm_read(m->fd, &r, sizeof r, h.records_at + (uint64_t)i * h.record_bytes))
            return DLPI_VIEW_FAULT(err, "record %u can't be read", i);
        if ((rc = dlpi_view_record(m, &r, h.total_bytes, err)) != DLP_OK) return rc;
    }
    return DLP_OK;
}

/* True if the area has `count` elements, each of at least `stride` bytes. */
DLPI_COLD
static bool dlpi_view_has(const dlp_monitor *m, int id, uint64_t stride, uint64_t count) {
    return m->areas[id].stride >= stride && m->areas[id].count == count;
}

/* True if a pipe can have these numbers. All that is read later is counted by them. The bounds are
   those that start holds a pipe to, so that no damaged pipe makes a monitor read, or allocate,
   without end. */
DLPI_COLD
static bool dlpi_view_numbers_ok(const dlpi_pipe_rec *r) {
    return r->n_stages >= 1 && r->n_stages <= DLP_MAX_STAGES && r->n_work >= 1 &&
           r->n_work <= r->n_stages && r->n_item_work <= r->n_work && r->n_workers >= 1 &&
           r->n_workers <= DLP_MAX_STAGES * DLP_MAX_WORKERS && r->batch_rows >= 1 &&
           r->batch_rows <= 1u << 30 && r->n_slots >= 1 && r->n_slots <= DLPI_VIEW_SLOTS &&
           r->prefetch < r->n_slots && r->max_held >= 1 &&
           r->max_held <= r->n_slots - r->prefetch && r->ring >= 1 && r->ring <= DLPI_VIEW_RING &&
           (r->ring & (r->ring - 1)) == 0 && r->trace_events >= 2 && r->trace_events <= 1u << 30 &&
           r->cpus >= 0;
}

/* True if the areas are there that every pipe has. Each must have as many elements as the pipe's
   record says, large enough to be read. There is one for each worker, and one for the consumer. */
DLPI_COLD
static bool dlpi_view_areas_ok(const dlp_monitor *m, const dlpi_pipe_rec *r) {
    const uint64_t lanes = (uint64_t)r->n_workers + 1;
    return dlpi_view_has(m, DLPI_REC_STAGES, sizeof(dlpi_stage_rec), r->n_stages) &&
           dlpi_view_has(m, DLPI_REC_CTL, sizeof(dlpi_ctl), 1) &&
           dlpi_view_has(m, DLPI_REC_ORDER, 4, r->ring) && m->areas[DLPI_REC_ORDER].stride == 4 &&
           dlpi_view_has(m, DLPI_REC_TAKEN, 1, r->ring) && m->areas[DLPI_REC_TAKEN].stride == 1 &&
           dlpi_view_has(m, DLPI_REC_WORKERS, sizeof(dlpi_worker_block), lanes) &&
           m->areas[DLPI_REC_WORKERS].stride % 8 == 0 &&
           dlpi_view_has(m, DLPI_REC_SLOTS, 8, r->n_slots) &&
           dlpi_view_has(m, DLPI_REC_TRACE, r->trace_events * sizeof(dlp_trace_event), lanes);
}

/* Read the pipe's record, and check it against the map of areas. Returns 0, or a DLP_ERR code with
   *err filled. */
DLPI_COLD
static int dlpi_view_pipe(dlp_monitor *m, dlp_error *err) {
    dlpi_pipe_rec *r = &m->pipe;
    if (!dlpi_view_has(m, DLPI_REC_PIPE, sizeof *r, 1) ||
        !dlpi_view_read(m, DLPI_REC_PIPE, 0, 0, r, sizeof *r))
        return DLPI_VIEW_FAULT(err, "the region does not describe its pipe");
    r->name[sizeof r->name - 1] = 0;
    if (dlpi_view_numbers_ok(r) && dlpi_view_areas_ok(m, r)) return DLP_OK;
    return DLPI_VIEW_FAULT(err, "the region's description of its pipe is damaged");
}

/* True if a stage's record is valid. owned[] and *works note which workers and places are taken. */
DLPI_COLD
static bool dlpi_view_stage_ok(const dlp_monitor *m, dlpi_stage_rec *s, int32_t id, uint8_t *owned,
                               uint32_t *works) {
    const dlpi_pipe_rec *p = &m->pipe;
    const dlpi_stage_ops *ops = dlpi_kind_ops(s->kind);
    if (s->id != id || s->kind < 1 || s->kind > 255 || s->work < -1) return false;
    if (s->work < 0) s->first_worker = s->n_workers = s->num_workers = 0;
    if (s->work < 0) return true;
    if (s->work >= DLP_MAX_STAGES || (*works >> s->work & 1) != 0) return false;
    if (ops && ((uint32_t)s->work >= p->n_work) != (ops->unit == DLPI_UNIT_CELLS)) return false;
    *works |= 1u << s->work;
    if (s->n_workers < 1 || s->n_workers > DLP_MAX_WORKERS || s->first_worker < 0 ||
        (uint32_t)s->first_worker > p->n_workers ||
        (uint32_t)s->n_workers > p->n_workers - (uint32_t)s->first_worker)
        return false;
    for (int32_t k = 0; k < s->n_workers; k++)
        if (owned[s->first_worker + k]++ != 0) return false;
    if (s->num_workers != 0 && (uint32_t)(s->n_workers - s->num_workers) > 1) return false;
    return s->stage_words_offset % 8 == 0 &&
           s->stage_words_offset <= m->areas[DLPI_REC_SLOTS].stride - 8;
}

/* Read the records of all stages, and check them. Each worker and each place must belong to one
   stage. Returns 0, or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_view_stages(dlp_monitor *m, dlp_error *err) {
    uint8_t *owned = calloc((size_t)m->pipe.n_workers + 1, 1);
    uint32_t works = 0;
    bool ok = true;
    if (owned == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    for (uint32_t i = 0; ok && i < m->pipe.n_stages; i++) {
        dlpi_stage_rec *s = &m->seen.stages[i].r;
        ok = dlpi_view_read(m, DLPI_REC_STAGES, i, 0, s, sizeof *s) &&
             dlpi_view_stage_ok(m, s, (int32_t)i, owned, &works);
        s->name[sizeof s->name - 1] = 0;
    }
    for (uint32_t i = 0; ok && i < m->pipe.n_workers; i++) ok = owned[i] == 1;
    for (uint32_t i = 0; ok && i < m->pipe.n_work; i++) ok = (works >> i & 1) != 0;
    free(owned);
    return ok ? DLP_OK : DLPI_VIEW_FAULT(err, "the region's description of its stages is damaged");
}

/* Make stage i visible to readers of m->seen. Numbers that its record may have wrong are mended. */
DLPI_COLD
static void dlpi_view_stage(dlp_monitor *m, uint32_t i) {
    dlpi_seen *s = &m->seen;
    dlpi_seen_stage *row = &s->stages[i];
    dlpi_stage_rec *r = &row->r;
    row->ops = dlpi_kind_ops(r->kind); /* NULL: of a newer version */
    r->workers_min = dlpi_seen_within(r->workers_min, r->n_workers, 0);
    r->active = (uint64_t)dlpi_seen_within((int32_t)r->active, r->n_workers, r->n_workers);
    r->in_flight = dlpi_seen_within(r->in_flight, 1024, 0);
    r->zeroes = r->zeroes != 0;
    r->placement = r->placement == DLP_PLACE_PROCESSES && r->num_workers > 0;
    if (r->work < 0 || (uint32_t)r->work >= s->n_work) return;
    row->ready_at = (uint64_t)r->work * sizeof *m->ready;
    s->work[r->work] = (int32_t)i;
}

/* Point the view of the pipe at the monitor's own copies of the region's areas. */
DLPI_COLD
static void dlpi_view_point(dlp_monitor *m) {
    dlpi_seen *s = &m->seen;
    s->ctl = &m->ctl[0];
    s->delivered = &s->ctl->delivered;
    s->rec[DLPI_REC_ORDER] = (dlpi_seen_area){(const uint8_t *)m->order, sizeof *m->order};
    s->rec[DLPI_REC_TAKEN] = (dlpi_seen_area){m->taken, 1};
    s->rec[DLPI_REC_SLOTS] =
        (dlpi_seen_area){(const uint8_t *)m->ready, s->n_work * sizeof *m->ready};
    s->rec[DLPI_REC_WORKERS] = (dlpi_seen_area){(const uint8_t *)m->blocks, sizeof *m->blocks};
    s->rec[DLPI_REC_TRACE] =
        (dlpi_seen_area){(const uint8_t *)m->trace, s->trace_events * sizeof *m->trace};
    for (uint32_t i = 0; i < s->n_stages; i++) dlpi_view_stage(m, i);
    s->final = s->work[s->n_work - 1];
    s->areas = m->areas;
}

/* Allocate the copies, by checked numbers (have), or free them (!have). False: there is no
   memory. */
DLPI_COLD
static bool dlpi_view_blocks(dlp_monitor *m, bool have) {
    const dlpi_pipe_rec *r = &m->pipe;
    const uint64_t lanes = (uint64_t)r->n_workers + 1;
    const dlpi_block all[] = {
        {offsetof(dlp_monitor, ctl), 2 * sizeof *m->ctl},
        {offsetof(dlp_monitor, order), (uint64_t)r->ring * 2 * sizeof *m->order},
        {offsetof(dlp_monitor, taken), r->ring},
        {offsetof(dlp_monitor, ready), (uint64_t)r->n_slots * r->n_work * sizeof *m->ready},
        {offsetof(dlp_monitor, slot_seen), r->n_slots},
        {offsetof(dlp_monitor, trace_head), lanes * sizeof *m->trace_head},
        {offsetof(dlp_monitor, trace_n), lanes * sizeof *m->trace_n},
        {offsetof(dlp_monitor, trace), lanes * m->seen.trace_events * sizeof *m->trace},
        {offsetof(dlp_monitor, blocks), lanes * sizeof *m->blocks},
    };
    return dlpi_blocks_keep(m, all, sizeof all / sizeof *all, have);
}

/* Make room for what the records say, still without its numbers. Returns 0 or DLP_ERR_MEMORY. */
DLPI_COLD
static int dlpi_view_make(dlp_monitor *m, dlp_error *err) {
    const dlpi_pipe_rec *r = &m->pipe;
    dlpi_seen *s = &m->seen;
    size_t lanes = (size_t)r->n_workers + 1;
    uint64_t most = DLPI_VIEW_TRACE / sizeof(dlp_trace_event) / lanes;
    m->error.worker = -1;
    m->per_epoch =
        r->batches_per_epoch <= INT64_MAX || r->batches_per_epoch == (uint64_t)DLP_FOREVER
            ? r->batches_per_epoch
            : UINT64_MAX;
    s->n_stages = r->n_stages;
    s->n_work = r->n_work;
    s->n_item_work = r->n_item_work;
    s->n_workers = r->n_workers;
    s->shape = r->shape;
    s->cpus = (uint32_t)r->cpus;
    s->plan_bytes = r->plan_bytes;
    if (s->trace_events > most) s->trace_events = (uint32_t)most;
    if (!dlpi_view_blocks(m, true)) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    dlpi_view_point(m);
    return DLP_OK;
}

/* Copy the words `ready` of all slots that hold batches from..to - 1. The order must be copied and
   checked. Returns false if a word cannot be read. */
DLPI_COLD
static bool dlpi_view_ready(dlp_monitor *m, uint64_t from, uint64_t to) {
    const dlpi_seen *s = &m->seen;
    memset(m->slot_seen, 0, s->n_slots);
    for (uint64_t b = from; b < to; b++) {
        uint32_t slot = m->order[b & (s->ring - 1)];
        if (m->slot_seen[slot] != 0) continue;
        m->slot_seen[slot] = 1;
        for (uint32_t i = 0; i < s->n_stages; i++) {
            const dlpi_stage_rec *r = &s->stages[i].r;
            if (r->work < 0 || (uint32_t)r->work >= s->n_work) continue;
            if (!dlpi_view_read(m, DLPI_REC_SLOTS, slot,
                                r->stage_words_offset + offsetof(dlpi_stage_words, ready),
                                m->ready + (size_t)slot * s->n_work + r->work, 8))
                return false;
        }
    }
    return true;
}

/* Copy counters and slots: the tail first, the base last. So a batch that is counted as in flight
   was so all the time, and its slot was not given to another while we looked. False: they are
   torn. */
DLPI_COLD
static bool dlpi_view_ctl(dlp_monitor *m) {
    const dlpi_seen *s = &m->seen;
    dlpi_ctl *c = &m->ctl[1];
    uint32_t *order = m->order + s->ring;
    uint64_t tail;
    if (!dlpi_view_read(m, DLPI_REC_CTL, 0, offsetof(dlpi_ctl, tail), &tail, 8) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c) ||
        !dlpi_shm_read(m->fd, order, s->ring * sizeof *order, m->areas[DLPI_REC_ORDER].offset))
        return false;
    for (uint32_t i = 0; i < s->ring; i++)
        if (order[i] >= s->n_slots) return false;
    if (c->base < tail && tail - c->base > s->ring) return false;
    memcpy(m->order, order, s->ring * sizeof *order);
    if (!dlpi_view_ready(m, c->base, tail)) return false;
    if (!dlpi_shm_read(m->fd, m->taken, s->ring, m->areas[DLPI_REC_TAKEN].offset) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c))
        return false;
    if (c->base < tail && tail - c->base > s->ring) return false;
    c->tail = tail;
    dlpi_error_end(&c->error);
    dlpi_error_end(&c->first_skip);
    m->ctl[0] = *c;
    if (c->error_ready != 0) m->error = c->error;
    return true;
}

/* Copy the newest events of lane i, if any are new. Returns false if they cannot be read. */
DLPI_COLD
static bool dlpi_view_trace(dlp_monitor *m, uint32_t i) {
    const dlpi_seen *s = &m->seen;
    dlp_trace_event *to = m->trace + (size_t)i * s->trace_events;
    uint64_t head, now, ring = m->pipe.trace_events, n, from, first, drop;
    const uint64_t each = sizeof *to, at = offsetof(dlpi_worker_block, trace_head);
    if (!dlpi_view_read(m, DLPI_REC_WORKERS, i, at, &head, 8)) return false;
    if (head == m->trace_head[i]) return true;
    n = head < ring ? head : ring - 1;
    if (n > s->trace_events - 1) n = s->trace_events - 1;
    from = head - n;
    first = n < ring - from % ring ? n : ring - from % ring; /* up to the ring's end */
    if (!dlpi_view_read(m, DLPI_REC_TRACE, i, from % ring * each, to, first * each) ||
        !dlpi_view_read(m, DLPI_REC_TRACE, i, 0, to + first, (n - first) * each) ||
        !dlpi_view_read(m, DLPI_REC_WORKERS, i, at, &now, 8))
        return false;
    drop = now - from >= ring ? now - from - ring + 1 : 0; /* written over meanwhile */
    if (drop > n) drop = n;
    memmove(to, to + drop, (size_t)((n - drop) * each));
    m->trace_head[i] = head;
    m->trace_n[i] = n - drop;
    return true;
}

/* Copy the records and the newest events of all workers and of the consumer. Returns false if they
   cannot be read. */
DLPI_COLD
static bool dlpi_view_workers(dlp_monitor *m) {
    for (uint32_t i = 0; i <= m->seen.n_workers; i++) {
        dlpi_worker_block *b = &m->blocks[i];
        if (!dlpi_view_trace(m, i) || !dlpi_view_read(m, DLPI_REC_WORKERS, i, 0, b, sizeof *b))
            return false;
        b->trace_head = m->trace_n[i];
        b->message[sizeof b->message - 1] = 0;
    }
    return true;
}

/* Copy how many workers of each stage are active. Returns false if a number cannot be read. */
DLPI_COLD
static bool dlpi_view_tuned(dlp_monitor *m) {
    for (uint32_t i = 0; i < m->seen.n_stages; i++) {
        dlpi_stage_rec *r = &m->seen.stages[i].r;
        if (!dlpi_view_read(m, DLPI_REC_STAGES, i, offsetof(dlpi_stage_rec, active), &r->active,
                            sizeof r->active))
            return false;
        r->active = (uint64_t)dlpi_seen_within((int32_t)r->active, r->n_workers, r->n_workers);
    }
    return true;
}

/* Read a word, and keep those beside it for the next call. Returns false if it cannot be read. */
DLPI_COLD
static bool dlpi_view_word(void *from, uint64_t at, uint64_t end, uint32_t bytes, uint64_t *to) {
    dlp_monitor *m = from;
    uint32_t half;
    if (at < m->block_at || at + bytes > m->block_end) {
        uint64_t n = end - at < sizeof m->block ? end - at : sizeof m->block;
        m->block_at = m->block_end = 0;
        if (!dlpi_shm_read(m->fd, m->block, n, at)) return false;
        m->block_at = at;
        m->block_end = at + n;
    }
    if (bytes == 8) {
        memcpy(to, m->block + (at - m->block_at), 8);
    } else {
        memcpy(&half, m->block + (at - m->block_at), sizeof half);
        *to = half;
    }
    return true;
}

DLPI_COLD
static bool dlpi_view_kinds(dlp_monitor *m) {
    const dlpi_words words = {m->areas, dlpi_view_word, m};
    m->block_at = m->block_end = 0;
    return dlpi_seen_kinds(&words, &m->seen);
}

/* Copy all numbers. What is torn is read again; what stays so is damaged. Returns 0 or a code. */
DLPI_COLD
static int dlpi_view_load(dlp_monitor *m, dlp_error *err) {
    dlpi_seen *s = &m->seen;
    bool ok = false;
    for (int tries = 0; !ok && tries < 4; tries++) ok = dlpi_view_ctl(m);
    if (!ok || !dlpi_view_workers(m) || !dlpi_view_tuned(m) || !dlpi_view_kinds(m))
        return DLPI_VIEW_FAULT(err, "the region's counters are damaged");
    s->now_ns = dlpi_now_ns();
    if (s->now_ns < s->ctl->started_ns) s->now_ns = s->ctl->started_ns;
    m->info.stopped = s->ctl->stop != 0;
    return DLP_OK;
}

/* Check and copy the region that is open as m->fd. Returns 0, or a code with *err filled. */
DLPI_COLD
static int dlpi_view_open(dlp_monitor *m, dlp_error *err) {
    int rc = dlpi_view_header(m, err);
    if (rc == DLP_OK) rc = dlpi_view_pipe(m, err);
    if (rc == DLP_OK) rc = dlpi_view_stages(m, err);
    if (rc == DLP_OK) rc = dlpi_view_make(m, err);
    if (rc == DLP_OK) rc = dlpi_view_load(m, err);
    if (rc != DLP_OK) return rc;
    memcpy(m->info.name, m->pipe.name, sizeof m->info.name);
    m->info.uid = m->pipe.uid;
    m->info.started_ns = m->pipe.started_real;
    m->info.trace_events = m->seen.trace_events - 1;
    return DLP_OK;
}

/* ---- find the region of a process or name ---- */

/* True if descriptor `number` of a process is a region's memory. proc: the process's directory of
   /proc, opened. */
DLPI_COLD
static bool dlpi_proc_is_region(int proc, int number) {
    char path[24], link[32];
    ssize_t n;
    snprintf(path, sizeof path, "fd/%d", number);
    n = readlinkat(proc, path, link, sizeof link - 1);
    if (n < 0) return false;
    link[n] = 0;
    return strcmp(link, "/memfd:dlpipe (deleted)") == 0;
}

/* Open descriptor `number` of a process, read only. Returns a descriptor, or -1 with errno. */
DLPI_COLD
static int dlpi_proc_open(int proc, int number) {
    char path[24];
    int fd;
    snprintf(path, sizeof path, "fd/%d", number);
    fd = dlpi_fd_above(openat(proc, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) return -1;
    if (fcntl(fd, 1034) >= 0) return fd; /* F_GET_SEALS: memory, which cannot make us wait */
    close(fd);
    errno = EINVAL;
    return -1;
}

/* True if a process still runs. proc: its directory of /proc, opened. A zombie does not run. */
DLPI_COLD
static bool dlpi_proc_lives(int proc) {
    char stat[512];
    const char *state;
    int fd = dlpi_fd_above(openat(proc, "stat", O_RDONLY | O_CLOEXEC));
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    stat[n] = 0;
    state = strrchr(stat, ')'); /* after the command's name */
    return state != NULL && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

/* Check that the owner still has the pipe. Returns DLP_OK, or DLP_ERR_STATE with *err filled. */
DLPI_COLD
static int dlpi_owner_check(const dlp_monitor *m, dlp_error *err) {
    char path[24];
    struct stat ours, theirs;
    if (m->proc < 0) return DLP_OK; /* a region without an owner, in tests */
    snprintf(path, sizeof path, "fd/%d", m->number);
    if (m->fd >= 0 && fstat(m->fd, &ours) == 0 && fstatat(m->proc, path, &theirs, 0) == 0 &&
        ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
        return DLP_OK;
    if (dlpi_proc_lives(m->proc))
        return dlpi_error_set(err, DLP_ERR_STATE, "", "process %d has closed the pipe",
                              (int)m->info.pid);
    return dlpi_error_set(err, DLP_ERR_STATE, "", "process %d, the pipe's owner, is gone",
                          (int)m->info.pid);
}

DLPI_COLD
static int dlpi_who_system(dlp_error *err, int errnum, const char *what, int pid) {
    dlpi_error_set(err, DLP_ERR_SYSTEM, "who", "%s %d: %s", what, pid, strerror(errnum));
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

/* Open the directory of process pid in /proc as m->proc. Returns 0, or a DLP_ERR code with *err
   filled. */
DLPI_COLD
static int dlpi_proc_enter(dlp_monitor *m, int32_t pid, dlp_error *err) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    m->info.pid = pid;
    m->proc = dlpi_fd_above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return m->proc >= 0 ? DLP_OK
                        : dlpi_who_system(err, errno == ENOENT ? ESRCH : errno, "process", pid);
}

/* True if the region at fd is the wanted pipe's, whose name goes to name[32]. which: a name or a
   number; NULL means any. */
DLPI_COLD
static bool dlpi_proc_wanted(int fd, int number, const char *which, char *name) {
    dlp_monitor look;
    char digits[16];
    memset(&look, 0, sizeof look);
    look.fd = fd;
    snprintf(digits, sizeof digits, "%d", number);
    if (dlpi_view_header(&look, NULL) == DLP_OK && dlpi_view_pipe(&look, NULL) == DLP_OK)
        dlpi_copy_text(name, 32, look.pipe.name);
    else
        name[0] = 0;
    return which == NULL || strcmp(which, digits) == 0 || strcmp(which, name) == 0;
}

DLPI_COLD
static bool dlpi_inode_seen(const ino_t *seen, int n, ino_t inode) {
    for (int i = 0; i < n; i++)
        if (seen[i] == inode) return true;
    return false;
}

/* Find the wanted pipe of the process and open it. It fails unless there is just one. which: a name
   or a number; NULL means any. */
DLPI_COLD
static int dlpi_proc_find(dlp_monitor *m, const char *which, dlp_error *err) {
    DIR *dir = dlpi_dir_open(openat(m->proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int found = 0, used = 0;
    char list[160] = "";
    const struct dirent *d;
    struct stat st;
    ino_t seen[16];
    if (dir == NULL) return dlpi_who_system(err, errno, "looking into process", (int)m->info.pid);
    while ((d = readdir(dir)) != NULL) {
        int fd, number = d->d_name[0] >= '0' && d->d_name[0] <= '9' ? atoi(d->d_name) : -1;
        char name[32] = "";
        if (number < 0 || !dlpi_proc_is_region(m->proc, number)) continue;
        if ((fd = dlpi_proc_open(m->proc, number)) < 0) continue;
        if (found < 16 && fstat(fd, &st) == 0 && dlpi_proc_wanted(fd, number, which, name) &&
            !dlpi_inode_seen(seen, found, st.st_ino)) { /* not a second number of the same */
            seen[found++] = st.st_ino;
            if ((size_t)used < sizeof list)
                used += snprintf(list + used, sizeof list - (size_t)used, "%s%d \"%s\"",
                                 found > 1 ? ", " : "", number, name);
            if (m->fd >= 0) close(m->fd);
            m->fd = fd;
            m->number = number;
            continue;
        }
        close(fd);
    }
    closedir(dir);
    if (found == 1) return DLP_OK;
    if (found == 0)
        return dlpi_error_set(err, DLP_ERR_STATE, "who",
                              which ? "process %d has no pipe \"%.32s\" that runs"
                                    : "process %d has no pipe that runs and can be observed",
                              (int)m->info.pid, which ? which : "");
    return dlpi_error_set(err, DLP_ERR_ARG, "who",
                          "process %d has %d pipes; say %d:PIPE, one of %s", (int)m->info.pid,
                          found, (int)m->info.pid, list);
}

/* Read and check the record of a name whose owner lives. Returns 0, or a code with *err filled. */
DLPI_COLD
static int dlpi_who_name(const char *name, dlpi_name_rec *r, dlp_error *err) {
    char path[DLPI_NAME_PATH];
    int fd, rc, errnum = 0;
    bool alive, begun;
    struct stat st;
    dlpi_name_path(name, path);
    fd = dlpi_fd_above(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 || !dlpi_name_ours(fd, true)) errnum = errno;
    if (errnum != 0) {
        if (fd >= 0) close(fd);
        dlpi_error_set(err, DLP_ERR_SYSTEM, "who", "%s%s: %s",
                       errnum == ENOENT ? "no pipe of that name: " : "", path, strerror(errnum));
        if (err) err->errnum = errnum;
        return DLP_ERR_SYSTEM;
    }
    alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
    begun = fstat(fd, &st) == 0 && st.st_size > 0; /* it is made, locked, then written */
    rc = dlpi_name_read(fd, r);
    close(fd);
    if (!alive)
        return dlpi_error_set(err, DLP_ERR_STATE, "who", "the owner of \"%s\" is gone", name);
    if (!begun) return dlpi_error_set(err, DLP_ERR_STATE, "who", "\"%s\" is still starting", name);
    if (rc == DLP_ERR_UNSUPPORTED)
        return dlpi_error_set(err, rc, "who", "the record of \"%s\" has another format", name);
    if (rc != DLP_OK || strcmp(r->name, name) != 0)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "who", "the record of \"%s\" is damaged", name);
    return DLP_OK;
}

/* Find the region of a pipe by its shm.name, and open it. Returns 0, or a DLP_ERR code with *err
   filled. The region must have the token of the name's record. */
DLPI_COLD
static int dlpi_who_by_name(dlp_monitor *m, const char *name, dlp_error *err) {
    dlpi_name_rec r;
    int rc;
    if (!dlpi_name_ok(name))
        return dlpi_error_set(err, DLP_ERR_ARG, "who",
                              "who is neither a process nor a name (A-Z a-z 0-9 . _ -)");
    if ((rc = dlpi_who_name(name, &r, err)) != DLP_OK) return rc;
    if ((rc = dlpi_proc_enter(m, r.pid, err)) != DLP_OK) return rc;
    m->number = r.memfd;
    if (dlpi_proc_is_region(m->proc, r.memfd)) m->fd = dlpi_proc_open(m->proc, r.memfd);
    if (m->fd >= 0 && dlpi_view_header(m, err) == DLP_OK && dlpi_view_pipe(m, err) == DLP_OK &&
        memcmp(m->pipe.token, r.token, sizeof r.token) == 0) {
        dlpi_copy_text(m->info.shm_name, sizeof m->info.shm_name, name);
        return DLP_OK;
    }
    return dlpi_error_set(err, DLP_ERR_STATE, "who",
                          "\"%s\" is not visible in process %d, which may be another user's, or "
                          "in another container",
                          name, (int)r.pid);
}

/* Find the region of `who`: a name, a process, or a process and one of its pipes, as "pid:pipe".
   Returns 0, or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_who_find(dlp_monitor *m, const char *who, dlp_error *err) {
    size_t digits = strspn(who, "0123456789");
    int rc;
    if (digits == 0 || digits > 9 || (who[digits] != 0 && who[digits] != ':'))
        return dlpi_who_by_name(m, who, err);
    if ((rc = dlpi_proc_enter(m, (int32_t)atoi(who), err)) != DLP_OK) return rc;
    return dlpi_proc_find(m, who[digits] == ':' ? who + digits + 1 : NULL, err);
}

/* Open a monitor of the pipe `who`. Returns 0, or a DLP_ERR code with *err filled; *out is then
   untouched. */
DLPI_COLD
static int dlpi_monitor_try(const char *who, dlp_monitor **out, dlp_error *err) {
    dlp_monitor *m = calloc(1, sizeof *m);
    int rc;
    if (m == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    m->fd = m->proc = m->number = -1;
    rc = dlpi_who_find(m, who, err);
    m->info.memfd = m->number;
    if (rc == DLP_OK) rc = dlpi_view_open(m, err);
    if (rc != DLP_OK) {
        dlp_monitor_close(m);
        return rc;
    }
    *out = m;
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-supervisor  WORKERS ARE STARTED, WATCHED AND REPLACED
   caller --fork--> supervisor --fork--> workers

   The supervisor has one thread, works on no item, and sleeps in poll. It sees
     a worker's death    by the worker's pidfd: waits for it, gives back what it had (dlpi_recover),
                         forks another in its place
     the caller's death  by the caller's pidfd, which the caller opened before the fork: kills the
                         workers and ends. Also if the caller becomes another program by exec: then
                         the nudge socket, whose other end is the caller's, closes
     its own             that is the kernel's work: the workers get SIGKILL with their parent
   and the caller sees the supervisor's death by its pidfd while it waits in next.
   It keeps a spare process that is forked already and waits to take a dead worker's place: on busy
   cores one that slept is run at once, one just forked waits for its turn.
   Spare and supervisor ask for short time slices (Linux 6.12): where workers fill the cores, a
   replacement would else wait milliseconds for its first turn.
   There is no journal: what a dead worker had is read off the words of claims and completion, each
   written by one store (dlpipe.h, >>impl-recover); giving it back may be interrupted, and done
   again.
   Nobody's death is concluded from a clock, and none from a number: a pid may be another's by then.
   The end of all of them is seen by a pipe (alive) of which each holds the writing end. */

typedef struct dlpi_proc { /* the supervisor's record of a worker process */
    dlpi_worker *w;
    pid_t pid;              /* 0: there is no process now */
    uint32_t deaths;        /* deaths in a row of processes that completed no item */
    uint64_t items;         /* items that the worker had completed when this process began */
    dlpi_lost held;         /* the unit that it had at its death, if no callback ran */
    uint32_t held_deaths;   /* deaths in a row of workers that had this unit */
    uint64_t due_ns;        /* time at which it may be replaced; 0: it lives, or will not be */
    uint64_t watched_item;  /* for the deadline: the item that runs */
    uint32_t watched_op;    /* the row whose callback runs */
    uint64_t watched_since; /* time at which the worker says that this item began */
    uint64_t ran_ns;        /* ns for which the supervisor itself saw the item run */
    bool late;              /* the process was killed because the item was past its deadline */
} dlpi_proc;

typedef struct dlpi_shm_state { /* dlp_pipe.shm */
    dlp_shm_desc d;
    pid_t supervisor;
    int caller_fd, supervisor_fd; /* pidfds */
    int nudge[2], alive[2];       /* [0] is read, [1] written */
    int n_procs;
    dlpi_proc *procs;      /* [n_procs] */
    struct pollfd *fds;    /* [n_procs + 3] caller, nudge, workers, spare: after procs */
    pid_t spare;           /* a process that waits to replace a worker; 0: none */
    int task;              /* socket that tells the spare process which worker it replaces */
    uint64_t spare_due_ns; /* time at which the next spare process may be forked */
    uint64_t restart_ns;   /* time of the last restart that a turn was given to */
    /* The scheduler's record of subscribers. */
    uint64_t bound;     /* a bit for each subscriber that is admitted */
    uint64_t unwaited;  /* a bit for each of these that the pipe does not wait for */
    uint64_t looked_ns; /* time of the last look at their locks */
    uint64_t frees;     /* counts batches that were handed back, for new words of takers */
    uint64_t left_at;   /* cursor of the subscriber that left last */
    bool enough;        /* wait_subscribers subscribers have come */
} dlpi_shm_state;

DLPI_COLD
static dlpi_shm_state *dlpi_shm_of(const dlp_pipe *p) { return p->shm; }

DLPI_COLD
static void dlpi_fd_close(int *fd) {
    if (*fd < 0) return; /* and not written: in a worker the page would have to be copied */
    close(*fd);
    *fd = -1;
}

DLPI_COLD
static int dlpi_shm_fail(dlp_pipe *p, int code, const char *field, const char *message) {
    return dlpi_refuse(p, code, "", field, "%s", message);
}

DLPI_COLD
static size_t dlpi_procs_bytes(const dlpi_shm_state *s) {
    size_t n = (size_t)s->n_procs;
    return n * sizeof *s->procs + (n + 3) * sizeof *s->fds;
}

/* Allocate the records of worker processes. The memory is shared, though the supervisor alone uses
   it: private pages that it writes between two forks would be copied, and each worker would keep
   one of its own. */
DLPI_COLD
static int dlpi_procs_alloc(dlp_pipe *p) {
    dlpi_shm_state *s = p->shm;
    int n = 0;
    void *at;
    s->n_procs = p->n_procs;
    at = mmap(NULL, dlpi_procs_bytes(s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "mmap of the processes' records failed");
    s->procs = at;
    s->fds = (struct pollfd *)(void *)(s->procs + s->n_procs);
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0 || st->w.placement != DLP_PLACE_PROCESSES) continue;
        for (int k = 0; k < st->n_workers; k++) s->procs[n++].w = &p->workers[st->first_worker + k];
    }
    return DLP_OK;
}

typedef struct dlpi_sched_attr { /* sched_setattr(2), Linux */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} dlpi_sched_attr;

/* Run in slices of ns (0: the system's). A thread with short slices gets a core sooner when it
   wakes, or is forked (Linux 6.12; before that, nothing changes). Where workers fill the cores, a
   replacement would else wait some ms for a core, and its supervisor before it. */
DLPI_COLD
static void dlpi_slice(uint64_t ns) {
    dlpi_sched_attr attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getscheduler, 0) != 0) return; /* the user has another policy */
    attr.nice = getpriority(PRIO_PROCESS, 0);
    attr.runtime = ns;
    syscall(SYS_sched_setattr, 0, &attr, 0u);
}

/* ---- a worker process ---- */

/* Be the process of worker w until the pipe stops. The exit status is 2 if the worker cannot begin.
   */
_Noreturn static void dlpi_process_worker(dlp_pipe *p, dlpi_worker *w) {
    int began;
    /* threads that are begun here are to run as everybody else: they would inherit the slice */
    if (w->st->w.worker_init || w->st->in_flight > 0 || w->seat != NULL) dlpi_slice(0);
    DLPI_STORE_RLX(&w->block->pid, (int32_t)getpid()); /* for people */
    dlpi_thread_dress(w);
    began = dlpi_worker_begin(w);
    if (began == DLP_OK && !dlpi_stopped(p) && !w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_slice(0); /* it has begun: from here on as everybody else */
    while (began == DLP_OK && !dlpi_stopped(p))
        if (!w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_worker_end(w, began);
    _exit(began == DLP_OK ? 0 : 2);
}

/* ---- the supervisor ---- */

/* Set *set to the signals that are sent to all of a job and are the caller's business. */
DLPI_COLD
static void dlpi_job_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
}

/* Handle signals as a new program does, but ignore those of a job; unblock all of them. */
DLPI_COLD
static void dlpi_process_signals(void) {
    sigset_t none, job;
    dlpi_job_signals(&job);
    for (int i = 1; i < 65; i++)
        if (i != SIGKILL && i != SIGSTOP) signal(i, sigismember(&job, i) == 1 ? SIG_IGN : SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

DLPI_COLD
static void dlpi_process_stdin(void) {
    int fd = dlpi_fd_above(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (fd > 0) dup2(fd, 0);
    if (fd > 0) close(fd);
}

/* Be the spare process: wait to be told which worker to be. task: the socket that tells it. */
_Noreturn static void dlpi_process_spare(dlp_pipe *p, int task) {
    int k = 0;
    ssize_t n;
    prctl(PR_SET_NAME, "dlpipe-spare");
    while ((n = read(task, &k, sizeof k)) < 0 && errno == EINTR) continue;
    if (n != (ssize_t)sizeof k) _exit(0);
    close(task);
    dlpi_process_worker(p, dlpi_shm_of(p)->procs[k].w);
}

/* Give back what a dead worker had. We killed it for no fault of its item, so no item is blamed. */
DLPI_COLD
static void dlpi_recover_blameless(dlpi_worker *w) {
    const dlpi_death why = {SIGKILL, false, NULL};
    dlpi_running_forget(w);
    dlpi_recover(w, &why);
}

/* Fork, and watch the child. The child is worker k or, if k is n_procs, the spare, which reads its
   task from `task`. Returns the child's pid, or -errno. */
DLPI_COLD
static pid_t dlpi_proc_fork(dlp_pipe *p, int k, int task) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    pid_t me = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* die with the supervisor */
        /* it died before we asked; by a call that is bound already: else each of them looks for
           getppid in the C library, for ten page faults */
        if (syscall(SYS_getppid) != me) _exit(1);
        dlpi_fd_close(&s->task);
        if (k < s->n_procs) dlpi_process_worker(p, s->procs[k].w);
        dlpi_process_spare(p, task);
    }
    if (pid < 0) return -errno;
    s->fds[k + 2].fd = dlpi_pidfd_open(pid);
    if (s->fds[k + 2].fd >= 0) return pid;
    kill(pid, SIGKILL); /* no descriptor is left to watch it by; but it may have had work */
    waitpid(pid, NULL, 0);
    if (k < s->n_procs) dlpi_recover_blameless(s->procs[k].w);
    return -EMFILE;
}

/* Make the spare process worker k. Returns its pid, or 0 if there is no spare. */
DLPI_COLD
static pid_t dlpi_spare_take(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    pid_t pid = s->spare;
    ssize_t n;
    if (pid == 0) return 0;
    n = send(s->task, &k, sizeof k, MSG_NOSIGNAL); /* fails: it is dead, and will be seen to be */
    DLPI_UNUSED(n);
    dlpi_fd_close(&s->task);
    s->fds[k + 2].fd = s->fds[s->n_procs + 2].fd;
    s->fds[s->n_procs + 2].fd = -1;
    s->spare = 0;
    return pid;
}

/* The first spare waits until the workers are likely to have begun: it would take their cores. */
#define DLPI_SPARE_NS UINT64_C(20000000)

/* Fork the spare process, if there is none and its time has come. A failure is no error: the next
   call tries again. */
DLPI_COLD
static void dlpi_spare_keep(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int task[2], rc;
    pid_t pid;
    if (s->spare != 0 || dlpi_stopped(p) || dlpi_now_ns() < s->spare_due_ns) return;
    /* a socket, as nudge is */
    rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, task);
    if (dlpi_pair_above(rc, task) != 0) return;
    s->task = task[1];
    pid = dlpi_proc_fork(p, s->n_procs, task[0]);
    close(task[0]);
    s->spare = pid > 0 ? pid : 0;
    if (pid <= 0) dlpi_fd_close(&s->task);
}

#define DLPI_TURN_NS UINT64_C(10000000)

/* Return when a process that died may be replaced: at once; but whatever it is that makes processes
   die, for long they are not forked more often than 100 times a second. Each death gets a turn, 10
   ms after the one before; of the turns that nobody took, one for each worker and 64 more are
   kept. */
DLPI_COLD
static uint64_t dlpi_restart_turn(dlpi_shm_state *s) {
    uint64_t now = dlpi_now_ns(), saved = (64 + (uint64_t)s->n_procs) * DLPI_TURN_NS;
    if (now > saved && s->restart_ns < now - saved) s->restart_ns = now - saved;
    s->restart_ns += DLPI_TURN_NS;
    return s->restart_ns > now ? s->restart_ns : now;
}

/* Note that the spare process has ended, and when the next one may be forked. */
DLPI_COLD
static void dlpi_spare_ended(dlpi_shm_state *s) {
    waitpid(s->spare, NULL, 0);
    s->spare_due_ns = dlpi_restart_turn(s);
    s->spare = 0;
    dlpi_fd_close(&s->task);
    dlpi_fd_close(&s->fds[s->n_procs + 2].fd);
}

/* Start worker k, as the spare or by a fork. Returns 0 or errno. */
DLPI_COLD
static int dlpi_proc_start(dlp_pipe *p, int k) {
    dlpi_proc *proc = &dlpi_shm_of(p)->procs[k];
    pid_t pid;
    DLPI_STORE_RLX(&proc->w->block->state, DLP_WORKER_STARTING); /* for people, and for its death */
    DLPI_STORE_RLX(&proc->w->block->process, 1);                 /* for people */
    proc->items = DLPI_LOAD_RLX(&proc->w->block->items);         /* of a dead process */
    proc->due_ns = 0;
    pid = dlpi_spare_take(p, k);
    if (pid == 0) pid = dlpi_proc_fork(p, k, -1);
    if (pid < 0) return -pid;
    proc->pid = pid;
    proc->late = false;
    proc->watched_item = proc->ran_ns = 0;
    return 0;
}

/* Fail the pipe because of a worker process. errnum: errno, or 0. */
DLPI_COLD
static void dlpi_proc_fail(dlp_pipe *p, const dlpi_worker *w, int code, int errnum,
                           const char *what) {
    dlp_error e;
    dlpi_error_set(&e, code, "", "%s%s%s", what, errnum ? ": " : "",
                   errnum ? strerror(errnum) : "");
    e.errnum = errnum;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_ctl_fail(p, DLPI_NOBODY, &e);
}

/* Start worker k, and try again for half a second if that fails. Then the pipe has the error. */
DLPI_COLD
static void dlpi_proc_restart(dlp_pipe *p, int k) {
    dlpi_proc *proc = &dlpi_shm_of(p)->procs[k];
    int errnum = dlpi_proc_start(p, k);
    for (int i = 0; errnum != 0 && i < 50 && !dlpi_stopped(p); i++) {
        dlpi_sleep(10000000);
        errnum = dlpi_proc_start(p, k);
    }
    if (errnum != 0)
        dlpi_proc_fail(p, proc->w, DLP_ERR_SYSTEM, errnum, "a worker process can't be replaced");
}

/* True if the worker may be replaced after its process ended. state: the worker's at its end. */
DLPI_COLD
static bool dlpi_proc_again(dlp_pipe *p, dlpi_proc *proc, int state, uint32_t signal_) {
    char text[128];
    if (dlpi_stopped(p)) return false;
    if (state == DLP_WORKER_EXITED) return false; /* worker_init has failed */
    if (state != DLP_WORKER_STARTING || ++proc->deaths < p->max_kills) return true;
    snprintf(text, sizeof text, "the worker process died %u times in worker_init (%s)",
             proc->deaths, dlpi_signal_text(signal_));
    dlpi_proc_fail(p, proc->w, DLP_ERR_KILLED, 0, text);
    return false;
}

/* Return how many workers of this stage in a row, with this one, died with the same undone work
   *h. */
DLPI_COLD
static uint32_t dlpi_held_deaths(dlpi_shm_state *s, dlpi_proc *proc, const dlpi_lost *h) {
    uint32_t most = 0;
    for (int k = 0; k < s->n_procs; k++) {
        const dlpi_proc *q = &s->procs[k];
        bool same = q->w->st == proc->w->st && q->held.b == h->b && q->held.slot == h->slot &&
                    q->held.unit == h->unit && q->held.missing == h->missing;
        if (same && q->held_deaths > most) most = q->held_deaths;
    }
    proc->held = *h;
    proc->held_deaths = most + 1;
    return most + 1;
}

/* Write into `text` which work a dead worker had; the text is empty if it had none. */
DLPI_COLD
static void dlpi_held_text(dlp_pipe *p, const dlpi_proc *proc, const dlpi_lost *h, char *text,
                           size_t size) {
    const dlpi_bslot *slot;
    uint32_t first = 0;
    text[0] = 0;
    if (h->missing == 0) return;
    if (proc->w->st->ops->unit == DLPI_UNIT_CELLS) {
        proc->w->st->ops->tell(p, h->slot, text, size);
        return;
    }
    slot = dlpi_slot_at(p, h->slot);
    if (dlpi_is_item_stage(p, proc->w->st))
        first = h->unit << dlpi_header_shift(DLPI_LOAD_RLX(&slot->header)); /* it is not done */
    snprintf(text, size, " (epoch %" PRIu64 ", positions from %" PRIu64 ")", slot->epoch,
             slot->position + first);
}

/* True if workers died too often to be replaced; then the pipe has the error. A worker died at
   work, and no callback of its stage ran: in what else the library calls (the sampler's functions),
   or because its memory was overwritten. No item is to blame, and the next one dies there, too. So
   deaths with the same work count, whoever had it; or, without work, in lives that completed
   nothing. */
DLPI_COLD
static bool dlpi_proc_hopeless(dlp_pipe *p, dlpi_proc *proc, int state, const dlpi_death *why) {
    const dlpi_lost *h = why->lost;
    bool works = state == DLP_WORKER_BUSY || state == DLP_WORKER_STARTING; /* else it slept */
    char text[256], what[80];
    uint32_t n;
    if (!works || h->ran || why->late) {
        proc->deaths = 0;
        return false;
    }
    if (h->missing != 0)
        n = dlpi_held_deaths(dlpi_shm_of(p), proc, h);
    else if (state == DLP_WORKER_STARTING)
        return false; /* counted by dlpi_proc_again */
    else if (DLPI_LOAD_RLX(&proc->w->block->items) != proc->items)
        n = proc->deaths = 0; /* dead */
    else
        n = ++proc->deaths;
    if (n < p->max_kills) return false;
    dlpi_held_text(p, proc, h, what, sizeof what);
    snprintf(text, sizeof text,
             "worker processes died %u times at the same work%s, last by %s, but not in the "
             "stage's callback; look at functions of the sampler",
             n, what, dlpi_signal_text(why->signal));
    dlpi_proc_fail(p, proc->w, DLP_ERR_KILLED, 0, text);
    return true;
}

/* True if it was killed for a late item that it finished in the end, and had begun another one. */
DLPI_COLD
static bool dlpi_proc_next_item(const dlpi_proc *proc) {
    const dlpi_worker_block *block = proc->w->block;
    return proc->late &&
           (DLPI_LOAD_RLX(&block->running) != proc->watched_item || /* X2 of the dead */
            DLPI_LOAD_RLX(&block->since_ns) != proc->watched_since);
}

/* Give back what worker k had, whose process has ended, and start a new process if it may be
   replaced. Only the supervisor may call this. */
DLPI_COLD
static void dlpi_proc_ended(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_proc *proc = &s->procs[k];
    dlpi_worker_block *block = proc->w->block;
    dlpi_lost held = {0};
    dlpi_death why = {0, proc->late, &held};
    int status = 0, state;
    bool again;
    while (waitpid(proc->pid, &status, 0) < 0 && errno == EINTR) continue;
    proc->pid = 0;
    dlpi_fd_close(&s->fds[k + 2].fd);
    why.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
    state = DLPI_LOAD_RLX(&block->state); /* of a dead process */
    again = dlpi_proc_again(p, proc, state, why.signal);
    if (again) { /* said before others go on: what they make of it may be the caller's last batch */
        DLPI_STORE_RLX(&block->died_by, (int32_t)why.signal);                  /* statistics */
        DLPI_STORE_RLX(&block->restarts, DLPI_LOAD_RLX(&block->restarts) + 1); /* statistics */
        dlpi_bump(&p->ctl->restarts, 1);
    }
    if (!dlpi_stopped(p) && dlpi_proc_next_item(proc))
        dlpi_recover_blameless(proc->w);
    else if (!dlpi_stopped(p))
        dlpi_recover(proc->w, &why);
    if (!again || dlpi_proc_hopeless(p, proc, state, &why)) return;
    proc->due_ns = dlpi_restart_turn(s);
    if (proc->due_ns <= dlpi_now_ns()) dlpi_proc_restart(p, k);
}

DLPI_COLD
static void dlpi_procs_due(dlp_pipe *p, uint64_t now) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    for (int k = 0; k < s->n_procs && !dlpi_stopped(p); k++)
        if (s->procs[k].due_ns != 0 && s->procs[k].due_ns <= now) dlpi_proc_restart(p, k);
}

/* Return when the first process that waits for a turn may start; UINT64_MAX if none waits. */
DLPI_COLD
static uint64_t dlpi_next_turn(const dlp_pipe *p) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t due = UINT64_MAX;
    if (dlpi_stopped(p)) return due;
    if (s->spare == 0 && s->spare_due_ns > dlpi_now_ns()) due = s->spare_due_ns;
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].due_ns != 0 && s->procs[k].due_ns < due) due = s->procs[k].due_ns;
    return due;
}

/* Kill workers whose callback runs past its deadline. Only time that we ourselves ran counts. */
DLPI_COLD
static void dlpi_procs_deadlines(dlp_pipe *p, uint64_t passed) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    for (int k = 0; k < s->n_procs; k++) {
        dlpi_proc *proc = &s->procs[k];
        const dlpi_worker_block *block = proc->w->block;
        const uint32_t op = DLPI_LOAD_RLX(&block->op); /* X4 */
        const int32_t ms = dlpi_limit_ms(proc->w->st, dlpi_row_numbered(p, op));
        const uint64_t limit = (uint64_t)ms * 1000000u;
        uint64_t item = DLPI_LOAD_RLX(&block->running),
                 since = DLPI_LOAD_RLX(&block->since_ns); /* X2 */
        if (limit == 0 || proc->pid == 0 || proc->late) continue;
        if (item == 0 || item != proc->watched_item || since != proc->watched_since ||
            op != proc->watched_op)
            proc->ran_ns = 0;
        else
            proc->ran_ns += passed;
        proc->watched_item = item;
        proc->watched_op = op;
        proc->watched_since = since;
        if (proc->ran_ns < limit || DLPI_LOAD_RLX(&block->state) != DLP_WORKER_BUSY) continue;
        proc->late = true;
        kill(proc->pid, SIGKILL);
    }
}

DLPI_COLD
static void dlpi_procs_kill(dlpi_shm_state *s) {
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) kill(s->procs[k].pid, SIGKILL);
    if (s->spare != 0) kill(s->spare, SIGKILL);
}

/* Kill all worker processes, wait for their deaths, and exit with this code. */
_Noreturn static void dlpi_supervisor_end(dlp_pipe *p, int code) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_procs_kill(s);
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) waitpid(s->procs[k].pid, NULL, 0);
    if (s->spare != 0) waitpid(s->spare, NULL, 0);
    _exit(code);
}

/* End all after the caller's death: kill the workers and remove the name. Nobody else will. */
_Noreturn static void dlpi_caller_dead(dlp_pipe *p) {
    dlpi_procs_kill(dlpi_shm_of(p));
    dlpi_name_remove(p);
    dlpi_supervisor_end(p, 0);
}

DLPI_COLD
static bool dlpi_caller_gone(const dlpi_shm_state *s) {
    struct pollfd fds[2] = {s->fds[0], s->fds[1]};
    if (poll(fds, 2, 0) <= 0) return false;
    return fds[0].revents != 0 || (fds[1].revents & (POLLHUP | POLLERR)) != 0;
}

/* Return the ms that poll may sleep. kill_at: when to kill the workers, or 0. All that happens
   wakes it by a descriptor, and a check costs as much as a worker's; so only deadlines want it
   often. */
DLPI_COLD
static int dlpi_supervisor_sleep(const dlp_pipe *p, uint64_t kill_at) {
    uint64_t ns = p->deadline_ns != 0 ? DLPI_SLEEP_NS : 10 * DLPI_SLEEP_NS, now = dlpi_now_ns();
    uint64_t turn = dlpi_next_turn(p);
    if (p->deadline_ns != 0 && p->deadline_ns / 4 < ns) ns = p->deadline_ns / 4;
    if (turn < now + ns) ns = turn > now ? turn - now : 0;
    if (kill_at != 0 && kill_at < now + ns)
        ns = kill_at > now ? kill_at - now : 10000000; /* they die slowly */
    return (int)((ns + 999999) / 1000000);
}

/* Sleep until something happens, at most ms. Returns how many have events; -1 after a signal. Where
   poll refuses all at once (more than the limit of descriptors, which others may lower; no memory),
   look at each by itself, 100 times a second: our end would be that of the pipe. */
DLPI_COLD
static int dlpi_supervisor_poll(const dlpi_shm_state *s, int ms) {
    int n = poll(s->fds, (nfds_t)s->n_procs + 3, ms);
    if (n >= 0 || errno == EINTR) return n;
    dlpi_sleep(ms < 10 ? (uint64_t)ms * 1000000u : 10000000u);
    n = 0;
    for (int k = 0; k < s->n_procs + 3; k++) {
        s->fds[k].revents = 0;
        n += s->fds[k].fd >= 0 && poll(&s->fds[k], 1, 0) > 0;
    }
    return n;
}

/* Watch the processes until the pipe stops and no worker is left; then end this process. */
_Noreturn static void dlpi_supervise(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t kill_at = 0, looked = dlpi_now_ns(), now;
    for (;;) {
        char byte[64];
        bool alive = false;
        int sleep = dlpi_supervisor_sleep(p, kill_at);
        int n = dlpi_supervisor_poll(s, sleep);
        if (n > 0 && s->fds[0].revents != 0) dlpi_caller_dead(p);
        if (n > 0 && (s->fds[1].revents & POLLIN) != 0 &&
            read(s->nudge[0], byte, sizeof byte) < 0 && errno != EAGAIN && errno != EINTR)
            dlpi_supervisor_end(p, 1);
        if (n > 0 && (s->fds[1].revents & (POLLHUP | POLLERR)) != 0) dlpi_caller_dead(p);
        for (int k = 0; n > 0 && k < s->n_procs; k++)
            if (s->procs[k].pid != 0 && s->fds[k + 2].revents != 0) dlpi_proc_ended(p, k);
        if (n > 0 && s->spare != 0 && s->fds[s->n_procs + 2].revents != 0) dlpi_spare_ended(s);
        now = dlpi_now_ns();
        dlpi_procs_due(p, now);
        dlpi_spare_keep(p);
        if (p->deadline_ns != 0) { /* a sleep that was much longer: we were stopped, too */
            uint64_t most = (uint64_t)sleep * 2000000u + 10000000u, passed = now - looked;
            dlpi_procs_deadlines(p, passed < most ? passed : 0);
        }
        looked = now;
        if (!dlpi_stopped(p)) continue;
        for (int k = 0; k < s->n_procs && !alive; k++) alive = s->procs[k].pid != 0;
        if (!alive) dlpi_supervisor_end(p, 0);
        if (kill_at == 0 && DLPI_LOAD_ACQ(&p->ctl->closing) != 0) /* J2 <- J2 */
            kill_at = now + (uint64_t)s->d.grace_ms * 1000000u;
        if (kill_at != 0 && now >= kill_at) dlpi_procs_kill(s);
    }
}

/* Start workers for the first time: the first of each stage (first), or the others (!first).
   Returns 0, or errno: then the pipe has the error. */
DLPI_COLD
static int dlpi_procs_begin(dlp_pipe *p, bool first) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int errnum = 0;
    for (int k = 0; errnum == 0 && k < s->n_procs && (first || !dlpi_stopped(p)); k++) {
        const dlpi_worker *w = s->procs[k].w;
        if (dlpi_caller_gone(s)) dlpi_caller_dead(p);
        if ((w->id == 0) != first || (errnum = dlpi_proc_start(p, k)) == 0) continue;
        dlpi_proc_fail(p, w, DLP_ERR_SYSTEM, errnum, "a worker process can't be started");
    }
    return errnum;
}

/* Be the supervisor process. The first worker of each stage is there before start returns; the
   others come meanwhile: a fork of a large program takes long, 17 ms a GiB. */
_Noreturn static void dlpi_supervisor(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int errnum;
    setpgid(0, 0);
    dlpi_process_signals();
    dlpi_process_stdin();
    dlpi_slice(100000);
    prctl(PR_SET_NAME, "dlpipe");
    dlpi_fd_close(&s->nudge[1]);
    dlpi_fd_close(&s->alive[0]);
    s->fds[0] = (struct pollfd){s->caller_fd, POLLIN, 0};
    s->fds[1] = (struct pollfd){s->nudge[0], POLLIN, 0};
    for (int k = 0; k <= s->n_procs; k++) s->fds[k + 2] = (struct pollfd){-1, POLLIN, 0};
    s->task = -1;
    s->spare_due_ns = dlpi_now_ns() + DLPI_SPARE_NS;
    p->in_worker = 1; /* of its children: this process runs no callback */
    sched_yield();    /* bound here, once: else each worker has a page of its own to note it in */
    errnum = dlpi_procs_begin(p, true);
    DLPI_STORE_REL(&p->ctl->processes, errnum == 0 ? 1u : 2u); /* J1 -> J1 */
    dlpi_event_ring(&p->ctl->processes_word, UINT32_MAX, 1);
    if (errnum == 0) errnum = dlpi_procs_begin(p, false);
    if (errnum != 0) dlpi_supervisor_end(p, 1);
    dlpi_supervise(p);
}

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-subscriber    WHO HOLDS WHAT
   label  atomic                  written by                    read by (partner)
   H1     share.over              scheduler                     serve, subscribers (H1)
   H5     taker[slot]             subscribers (CAS), scheduler  subscribers, scheduler (H5)
   H7     share.handed_back       scheduler, after H5           subscribers, before H5 (H7)
   H1 and H7 are an end and a counter of >>impl-credit, H5 is an owner word of >>impl-claims. The
   others stand in >>impl-share.

   A subscriber takes a place of the memory file (>>impl-places). Then it makes present odd, and the
   scheduler admits it at a batch: from there on it has each batch (>>impl-share). The scheduler
   sees a subscriber leave when present changes, or its lock is free. In DLP_SHARE_ONE a
   batch is claimed by a compare-and-swap on the slot's taker, as workers claim units, and handed
   back as units are freed again: with a number of its own.

   Which batch is the oldest that nobody has? A subscriber that waits must not read the words of all
   slots at each look. So it keeps a cursor. Each batch below the cursor was taken, or was handed
   back after the subscriber read the count handed_back. The cursor passes a batch if the batch's
   slot still has the batch's header (P1), and a taker that is not older (H5). A taken batch becomes
   free only when it is handed back. For that the scheduler stores the taker's word, then the count,
   then wakes all. So a subscriber that reads the old count looks again later. One that reads the
   new count sees the word. It then searches all slots. It also does so if the slot of the batch at
   the cursor has another batch by now. A batch that is ready is below the tail (T1), as its workers
   have read that tail. So a subscriber whose cursor is at the tail may sleep. */

#define DLPI_LOOK_NS UINT64_C(50000000)

_Static_assert((int)DLP_BEHIND_DROP_NEW == (int)DLP_FULL_DROP_NEW &&
                   (int)DLP_BEHIND_KEEP_NEWEST == (int)DLP_FULL_KEEP_NEWEST,
               "one word for both");

/* ---- the scheduler's side ---- */

static uint64_t *dlpi_shm_taker(dlpi_share *h, uint32_t s) {
    return (uint64_t *)(void *)((uint8_t *)h + h->takers_at) + s;
}

/* Free the batches that subscriber i took and did not give back, for other subscribers to take. */
static void dlpi_shm_hand_back(dlp_pipe *p, uint32_t i) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    bool any = false;
    for (uint32_t k = 0; k < p->n_slots; k++) {
        uint64_t b = dlpi_share_given(p, k) - 1, mine = dlpi_gen_word(b, i + 1u), freed;
        if (b + 1 == 0 || dlpi_claim_owner(dlpi_shm_taker(h, k)) != mine) continue; /* H5 */
        if (dlpi_offer_over(&dlpi_share_released(h, i)[k], b)) continue;            /* H4 <- H4 */
        freed = dlpi_gen_word(b - 1, DLPI_FREED | (s->frees++ & (DLPI_FREED - 1)));
        any |= dlpi_claim_take(dlpi_shm_taker(h, k), mine, freed); /* H5 -> H5 */
    }
    if (any) dlpi_credit_add(&h->handed_back); /* H7 -> H7 */
}

/* Note if subscriber i has come or left. locks: also ask for its lock. Returns true if it has. */
static bool dlpi_shm_look_at(dlp_pipe *p, uint32_t i, bool locks) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    dlpi_admit *admit = dlpi_share_admit(h, i);
    uint64_t bit = UINT64_C(1) << i;
    uint64_t present = dlpi_credit_seen(&dlpi_share_block(h, i)->present); /* H2 <- H2 */
    bool moved = false;
    if ((s->bound & bit) != 0 && (present != DLPI_LOAD_RLX(&admit->present) ||
                                  (locks && !dlpi_place_taken(p->memfd, i)))) { /* H2 */
        s->bound &= ~bit;
        if ((s->unwaited & bit) == 0)
            s->left_at = dlpi_credit_seen(&dlpi_share_block(h, i)->cursor); /* H3 <- H3 */
        if (h->mode == DLP_SHARE_ONE) dlpi_shm_hand_back(p, i);
        dlpi_sleepers_leave(&h->sleepers, bit); /* B1 */
        moved = true;
    }
    if ((s->bound & bit) == 0 && (present & 1) != 0 &&
        present != DLPI_LOAD_RLX(&admit->present)) { /* H2 */
        DLPI_STORE_RLX(&admit->join, p->schedule.published);
        dlpi_credit_publish(&admit->present, present); /* H2 -> H2 */
        s->bound |= bit;
        s->unwaited &= ~bit;
        if (dlpi_share_block(h, i)->behind != DLP_BEHIND_WAIT) s->unwaited |= bit;
        moved = true;
    }
    if (moved) dlpi_sleepers_ring(&h->sleepers, 0);
    return moved;
}

/* Return the first batch that is not yet taken by all that the pipe waits for (serve_only). */
static uint64_t dlpi_shm_base(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    uint64_t base = DLPI_LOAD_RLX(&p->ctl->base), least = p->schedule.published; /* our own */
    if (h->mode == DLP_SHARE_ONE) {
        while (base != p->schedule.published) {
            uint32_t k = dlpi_slot_of(p, base);
            uint64_t taker = dlpi_claim_owner(dlpi_shm_taker(h, k)); /* H5 <- H5 */
            if (dlpi_share_given(p, k) == base + 1 && dlpi_older(dlpi_gen(taker), base)) break;
            base++;
        }
        return base;
    }
    for (uint32_t i = 0; i < h->max_subscribers; i++) {
        uint64_t at = dlpi_credit_seen(&dlpi_share_block(h, i)->cursor); /* H3 <- H3 */
        if (((s->bound & ~s->unwaited) >> i & 1) == 0) continue;
        if (at < DLPI_LOAD_RLX(&dlpi_share_admit(h, i)->join)) /* H2: our own */
            at = dlpi_share_admit(h, i)->join;
        if (at < least) least = at;
    }
    /* nobody is here: what is left waits for the next, or, once nothing follows, for nobody */
    if ((s->bound & ~s->unwaited) == 0 && !p->schedule.ended && s->left_at < least)
        least = s->left_at;
    return least > base ? least : base;
}

/* Count batches [from, to) as taken, and note the errors of those that failed. */
static void dlpi_shm_taken(dlp_pipe *p, uint64_t from, uint64_t to) {
    for (uint64_t b = from; b != to; b++) {
        dlpi_bslot *slot = dlpi_slot_at(p, dlpi_slot_of(p, b));
        uint64_t bytes = 0;
        if (slot->sequence != b) continue;
        for (uint32_t f = 0; f < p->batches.n; f++)
            bytes += dlpi_field_bytes(p, dlpi_slot_of(p, b), f, slot->count);
        dlpi_bump(&p->ctl->items, slot->count);
        dlpi_bump(&p->ctl->bytes, bytes);
        DLPI_STORE_RLX(&p->ctl->epoch, slot->epoch); /* statistics */
        if (dlpi_first_look(&slot->failed) == 1)     /* F1 <- F1 */
            dlpi_ctl_fail(p, DLPI_NOBODY, &slot->error);
    }
    dlpi_credit_publish(&p->ctl->base, to);      /* V1 -> V1 */
    dlpi_credit_publish(&p->ctl->delivered, to); /* V1 -> V1 */
}

/* True if all that the pipe waits for have given back the batch in slot k. */
static bool dlpi_shm_given_back(dlp_pipe *p, uint32_t k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    uint64_t b = dlpi_share_given(p, k) - 1;
    if (b + 1 == 0) return true;
    if (h->serve_only && b >= DLPI_LOAD_RLX(&p->ctl->base)) return false; /* V1: not counted yet */
    /* Y1 <- Y1 */
    if (!dlpi_ready_past(dlpi_gather_ready(&dlpi_stage_words_at(p, k, dlpi_final(p))->ready), b))
        return false;
    if (h->mode == DLP_SHARE_ONE) {
        const uint64_t taker = dlpi_claim_owner(dlpi_shm_taker(h, k)); /* H5 <- H5 */
        const uint32_t who = dlpi_gen_low(taker) - 1;
        return dlpi_gen(taker) == (b & DLPI_GEN_MASK) && who < h->max_subscribers &&
               dlpi_offer_over(&dlpi_share_released(h, who)[k], b); /* H4 <- H4 */
    }
    return dlpi_share_each_gave(p, s->bound & ~s->unwaited, k, b);
}

/* True if slot k is free: its open offers are withdrawn, and the scheduler must use it at once. */
static bool dlpi_shm_slot_free(dlp_pipe *p, uint32_t k) {
    const uint64_t late = dlpi_shm_of(p)->bound & dlpi_shm_of(p)->unwaited;
    return dlpi_shm_given_back(p, k) && dlpi_share_withdraw(p, late, k);
}

/* Tell all subscribers that the pipe is over, once its last batches are given back. The scheduler
   calls this. */
static void dlpi_shm_over(dlp_pipe *p) {
    if (!p->schedule.ended || DLPI_LOAD_RLX(&p->share->over) != 0) return; /* H1: our own */
    /* V1 */
    if (p->share->serve_only && DLPI_LOAD_RLX(&p->ctl->base) != p->schedule.published) return;
    for (uint32_t k = 0; k < p->n_slots; k++)
        if (!dlpi_shm_given_back(p, k)) return;
    dlpi_credit_close(&p->share->over, 1u); /* H1 -> H1 */
    dlpi_sleepers_ring(&p->share->sleepers, 0);
    dlpi_sleepers_ring(&p->ctl->consumer, 0);
}

/* Serve the subscribers, by the scheduler, before it feeds. Returns 1 if anything changed, or -1 if
   all is over. */
static int dlpi_shm_keep(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t now = dlpi_now_ns(), base;
    bool moved = false, locks = now - s->looked_ns >= DLPI_LOOK_NS;
    for (uint32_t i = 0; i < p->share->max_subscribers; i++) moved |= dlpi_shm_look_at(p, i, locks);
    if (locks) s->looked_ns = now;
    /* V1 */
    if (p->share->serve_only && (base = dlpi_shm_base(p)) != DLPI_LOAD_RLX(&p->ctl->base)) {
        dlpi_shm_taken(p, DLPI_LOAD_RLX(&p->ctl->base), base); /* V1 */
        moved = true;
    }
    dlpi_shm_over(p);
    return DLPI_LOAD_RLX(&p->share->over) != 0 ? -1 : moved; /* H1: our own */
}

static bool dlpi_shm_may_schedule(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (DLPI_ONES(s->bound) >= s->d.wait_subscribers) s->enough = true;
    return s->enough && ((s->bound & ~s->unwaited) != 0 || !p->share->serve_only);
}

static const dlpi_sharing_ops dlpi_share_ops = {
    .words = "shm.share",
    .programs = true,
    .keep = dlpi_shm_keep,
    .may_schedule = dlpi_shm_may_schedule,
    .slot_free = dlpi_shm_slot_free,
    .holds = dlpi_role_none,
    .leave = dlpi_role_yes,
};

/* Check that the pipe can be shared, and set what follows from sharing: a scheduler thread that
   looks after subscribers. Returns 0 or a DLP_ERR code. */
static int dlpi_shm_share_resolve(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    const dlpi_stage *of = p->lender_stage;
    const char *bad = of               ? "a split: views can't be shared"
                      : p->d.unordered ? "unordered: a shared pipe delivers in order"
                      : p->barrier     ? "set_epoch: a subscriber may be epochs behind"
                                       : NULL;
    if (s->d.share == DLP_SHARE_NONE) return DLP_OK;
    if (p->sharing != &dlpi_share_ops) /* an out's, which is a stage */
        return dlpi_refuse(p, DLP_ERR_ARG, "", "shm.share",
                           "shm.share must be 0 with several outs; let a thread of this process "
                           "subscribe instead");
    if (p->shm_name[0] == 0)
        return dlpi_shm_fail(p, DLP_ERR_ARG, "shm.name", "shm.share needs shm.name; set it");
    if (s->d.share == DLP_SHARE_ONE && !s->d.serve_only)
        return dlpi_shm_fail(p, DLP_ERR_ARG, "shm.serve_only",
                             "shm.serve_only is 0, must be 1 with DLP_SHARE_ONE");
    if (bad != NULL)
        return dlpi_refuse(p, DLP_ERR_ARG, of != NULL ? of->name : "", "shm.share",
                           "shm.share must be 0 with %s", bad);
    if (p->sink_stage != NULL && s->d.serve_only)
        return dlpi_refuse(p, DLP_ERR_ARG, p->sink_stage->name, "shm.serve_only",
                           "shm.serve_only must be 0 with a transfer, whose batches are taken by "
                           "this process alone; leave the transfer out, or set 0");
    for (int i = 0; i < p->n_staffed; i++)
        if (p->work[i]->w.num_workers == 0 && p->work[i] != p->sink_stage)
            return dlpi_refuse(p, DLP_ERR_ARG, p->work[i]->name, "shm.share",
                               "shm.share needs workers, and this stage has none; set num_workers");
    p->sampler->w.num_workers = 1;
    p->others = 1;
    p->used_at_first = s->d.serve_only ? 0u : 1u;
    p->scheduler_sleep_ns = DLPI_SLEEP_NS / 2; /* a dead subscriber wakes nobody */
    return DLP_OK;
}

/* Add the area of the subscribers to the region, if the pipe is shared. */
DLPI_COLD static void dlpi_shm_areas(dlp_pipe *p) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share h;
    if (p->sharing != &dlpi_share_ops) return;
    dlpi_area_told(
        p, DLPI_REC_SHARE, DLPI_PLAN_RECORDS, "subscribers",
        dlpi_share_layout(&h, (uint32_t)s->d.share, (uint32_t)s->d.max_subscribers, p->n_slots), 1,
        4096);
}

/* Set up the area of the subscribers, once the region is mapped. No slot has a taker then. Returns
   0. */
static int dlpi_shm_share_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (p->sharing != &dlpi_share_ops) return DLP_OK;
    p->share = dlpi_area_at(p, DLPI_REC_SHARE, 0);
    dlpi_share_layout(p->share, (uint32_t)s->d.share, (uint32_t)s->d.max_subscribers, p->n_slots);
    p->share->serve_only = (uint32_t)s->d.serve_only;
    p->share->one_each = s->d.share == DLP_SHARE_ONE;
    /* a transfer copies beside them */
    p->share->after = (uint32_t)p->n_work - 1 - (p->sink_stage != NULL);
    for (uint32_t k = 0; k < p->n_slots; k++)
        *dlpi_shm_taker(p->share, k) = dlpi_gen_word(DLPI_GEN_MASK, 1);
    return DLP_OK;
}

/* ---- serve_only: this program takes no batch, and waits until the pipe ends ---- */

/* True if the wait of dlpi_serve is over; its code is then in rc. who: a dlpi_next_wait. */
static bool dlpi_serve_look(void *who) {
    dlpi_next_wait *k = who;
    int rc = dlpi_next_error(k->p, true);
    if (dlpi_stopped(k->p)) rc = DLP_STOPPED;
    if (rc == DLP_OK && dlpi_credit_closed(&k->p->share->over) != 0) rc = DLP_END; /* H1 <- H1 */
    if (k->rc == DLP_EMPTY && rc != DLP_OK) k->rc = rc;
    return k->rc != DLP_EMPTY;
}

static const dlpi_wait_ops dlpi_serve_waits = {dlpi_serve_look, dlpi_next_patience, NULL, NULL};

/* Wait until the pipe is over or fails. Returns DLP_END, DLP_STOPPED, DLP_TIMEOUT or the pipe's
   error. */
static int dlpi_serve(dlp_pipe *p, int timeout_ms) {
    dlpi_next_wait k = {.p = p, .until = UINT64_MAX, .rc = DLP_EMPTY};
    if (timeout_ms > 0) k.until = dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    if (timeout_ms == DLP_NOWAIT) k.until = 0;
    if (!dlpi_serve_look(&k))
        dlpi_wait_asleep(&dlpi_serve_waits, &k, &p->ctl->consumer, DLPI_ANY - 1);
    return k.rc;
}

/* ---- a subscriber's side ---- */

struct dlp_subscriber {
    dlpi_subscriber s;
    dlp_monitor *m; /* monitor of the pipe, with its checked records */
    int fd;         /* the region's file, which holds its place */
    uint8_t *map;   /* mapping of the region, of `bytes` bytes */
    uint64_t bytes;
    dlpi_share layout; /* the checked copy of the offsets of s.share, which is in the mapping */
    dlpi_field_rec fields[DLP_MAX_FIELDS];
    uint32_t n_fields, at; /* at: the slot of the batch at the cursor, with DLP_SHARE_ONE */
    /* DLP_SHARE_ONE: 1 + handed_back at the last search, 0: none yet; the taker's word that it will
       swap; the words of all slots. */
    uint64_t back, taker, *takers;
    uint64_t looked_ns; /* time of its last look whether the owner lives */
    uint8_t *alive;     /* a page that has the mark of this process */
};

/* True if n words of `each` bytes at offset `at` lie inside a slot, and are aligned. */
static bool dlpi_in_slot(const dlp_subscriber *c, uint64_t at, uint64_t n, uint64_t each) {
    uint64_t stride = c->m->areas[DLPI_REC_SLOTS].stride;
    return at % (each < 8 ? each : 8) == 0 && at <= stride && n <= (stride - at) / each;
}

/* True if a slot has, within its stride, all that next reads of one. The numbers are another
   program's: next adds them to addresses and does not look again. No product here overflows: rows
   are few, a stride is within the region, and dlpi_in_slot divides. */
static bool dlpi_subscriber_slots_ok(const dlp_subscriber *c) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    const uint64_t rows = p->batch_rows, n = c->n_fields;
    return rows <= 1u << 20 && dlpi_in_slot(c, 0, 1, sizeof(dlpi_bslot)) &&
           dlpi_in_slot(c, c->s.final_at, 1, 16) && dlpi_in_slot(c, p->slot.index, rows, 8) &&
           dlpi_in_slot(c, p->slot.fate, rows, 4) && dlpi_in_slot(c, p->slot.traced, 3 * rows, 2) &&
           p->slot.traced % 4 == 0 && p->slot.lengths % 8 == 0 &&
           (!p->has_item_cells || (dlpi_in_slot(c, p->slot.offsets, n * (rows + 1), 8) &&
                                   dlpi_in_slot(c, p->slot.fmeta, n, sizeof(dlpi_fmeta))));
}

/* True if a cell has a field's rows, as many bytes of each as its shape says. What a collate made
   has as many rows as it pleased, within the field's capacity, and lengths, as ragged ones have. */
static bool dlpi_subscriber_field_ok(const dlp_subscriber *c, const dlpi_field_rec *r) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    const uint64_t cell = c->m->areas[DLPI_REC_CELLS].stride, rows = p->batch_rows;
    uint64_t items;
    if (r->ndim < 0 || r->ndim >= DLP_MAX_DIMS || r->elem_bytes < 1 || r->elem_bytes > 8)
        return false;
    items = dlpi_shape_count(r->shape, r->ndim);
    return items != UINT64_MAX && r->row_bytes / r->elem_bytes == items && r->offset <= cell &&
           r->capacity <= cell - r->offset &&
           (p->has_item_cells || r->capacity / rows >= r->row_bytes) &&
           ((!r->ragged && !p->has_item_cells) ||
            dlpi_in_slot(c, p->slot.lengths, c->n_fields * rows, 8));
}

/* True if all parts of a slot lie in the slot, and all fields in the cell. Others may write the
   region, so the numbers checked here are a copy, which is not read again. */
static bool dlpi_subscriber_layout_ok(const dlp_subscriber *c) {
    bool ok =
        c->m->areas[DLPI_REC_CELLS].count >= c->m->pipe.n_slots && dlpi_subscriber_slots_ok(c);
    for (uint32_t f = 0; ok && f < c->n_fields; f++)
        ok = dlpi_subscriber_field_ok(c, &c->fields[f]);
    return ok;
}

/* Read the record of sharing, and check it against the layout that this program computes. Returns
   false if it is damaged. */
static bool dlpi_subscriber_share_ok(dlp_subscriber *c) {
    const dlpi_area *r = &c->m->areas[DLPI_REC_SHARE];
    dlpi_share want, *h = &c->layout;
    return dlpi_view_read(c->m, DLPI_REC_SHARE, 0, 0, h, sizeof *h) &&
           (h->mode == DLP_SHARE_EACH || h->mode == DLP_SHARE_ONE) && h->max_subscribers >= 1 &&
           h->max_subscribers <= 64 && h->n_slots == c->m->pipe.n_slots &&
           h->after < c->m->pipe.n_work &&
           dlpi_share_layout(&want, h->mode, h->max_subscribers, h->n_slots) <= r->stride &&
           want.takers_at == h->takers_at && want.admits_at == h->admits_at &&
           want.subscribers_at == h->subscribers_at && want.subscriber_bytes == h->subscriber_bytes;
}

/* True if the pipe lets other programs subscribe. A pipe of several outs has the area of shares
   too, with mode 0. */
static bool dlpi_subscriber_may(const dlp_subscriber *c) {
    dlpi_share h;
    return c->m->areas[DLPI_REC_SHARE].count > 0 &&
           (!dlpi_view_read(c->m, DLPI_REC_SHARE, 0, 0, &h, sizeof h) || h.mode != 0);
}

/* Read the fields and the record of sharing of a pipe, and check them. Returns 0, or a DLP_ERR code
   with *err filled: DLP_ERR_STATE if the pipe is not shared. */
static int dlpi_subscriber_check(dlp_subscriber *c, dlp_error *err) {
    const dlpi_area *fields = c->m->areas + DLPI_REC_FIELDS;
    bool ok = fields->count >= 1 && fields->count <= DLP_MAX_FIELDS;
    if (!dlpi_subscriber_may(c))
        return dlpi_error_set(err, DLP_ERR_STATE, "name",
                              "the pipe is not shared; set shm.share of the pipe");
    c->n_fields = (uint32_t)fields->count;
    for (uint32_t f = 0; ok && f < c->n_fields; f++) {
        ok = dlpi_view_read(c->m, DLPI_REC_FIELDS, f, 0, &c->fields[f], sizeof c->fields[f]);
        c->fields[f].name[31] = 0;
    }
    c->s.ring = c->m->pipe.ring;
    dlpi_wait_share(c->m->pipe.n_workers + 2, (uint32_t)dlpi_cpu_count(), &c->s.wait.spin_ns,
                    &c->s.wait.yields);
    ok = ok && dlpi_subscriber_share_ok(c);
    for (uint32_t i = 0; i < c->m->pipe.n_stages; i++)
        if (c->m->seen.stages[i].r.work == (int32_t)c->layout.after)
            c->s.final_at = c->m->seen.stages[i].r.stage_words_offset;
    ok = ok && dlpi_subscriber_layout_ok(c);
    return ok ? DLP_OK
              : dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region's description is damaged");
}

/* Map the region, which is sealed: nobody can shrink it. Returns 0, or a code with *err filled. */
static int dlpi_subscriber_map(dlp_subscriber *c, dlp_error *err) {
    char path[40];
    struct stat st;
    void *at;
    uint64_t end = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->m->fd);
    c->fd = dlpi_fd_above(open(path, O_RDWR | O_CLOEXEC));
    if (c->fd < 0 || fstat(c->fd, &st) != 0)
        return dlpi_error_set(err, DLP_ERR_SYSTEM, "name", "opening the region: %s",
                              strerror(errno));
    if ((fcntl(c->fd, 1034) & 6) != 6) /* F_GET_SEALS: shrink, grow */
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region is not sealed");
    c->bytes = (uint64_t)st.st_size;
    for (int i = 1; i < DLPI_AREAS; i++) {
        const dlpi_area *r = &c->m->areas[i];
        uint64_t to = r->offset + r->stride * r->count; /* checked by the monitor */
        if (r->count > 0 && to > end) end = to;
    }
    if (end > c->bytes)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region is shorter than it says");
    at = mmap(NULL, (size_t)c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (at == MAP_FAILED)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "name", "mmap: %s", strerror(errno));
    c->map = at;
    c->s.share = (dlpi_share *)(void *)(c->map + c->m->areas[DLPI_REC_SHARE].offset);
    c->takers = (uint64_t *)(void *)((uint8_t *)c->s.share + c->layout.takers_at);
    c->s.ctl = (dlpi_ctl *)(void *)(c->map + c->m->areas[DLPI_REC_CTL].offset);
    c->s.slots = c->map + c->m->areas[DLPI_REC_SLOTS].offset;
    c->s.slot_stride = c->m->areas[DLPI_REC_SLOTS].stride;
    c->s.order = (const uint32_t *)(const void *)(c->map + c->m->areas[DLPI_REC_ORDER].offset);
    c->s.n_slots = c->layout.n_slots;
    c->s.paces = c->layout.serve_only != 0;
    return DLP_OK;
}

/* Take a free place among the subscribers, and tell the scheduler. Returns 0, or DLP_ERR_STATE with
   *err filled if all places are taken. */
static int dlpi_subscriber_place(dlp_subscriber *c, dlp_error *err) {
    uint64_t present;
    for (uint32_t i = 0; i < c->layout.max_subscribers; i++) {
        if (!dlpi_place_take(c->fd, i)) continue;
        c->s.index = i;
        c->s.mine = (dlpi_cblock *)(void *)((uint8_t *)c->s.share + c->layout.subscribers_at +
                                            i * c->layout.subscriber_bytes);
        c->s.released = (uint64_t *)(void *)(c->s.mine + 1);
        present = DLPI_LOAD_RLX(&c->s.mine->present); /* H2: of the one before, which is gone */
        c->s.present = present % 2 == 0 ? present + 1 : present + 2;
        DLPI_STORE_RLX(&c->s.mine->pid, dlpi_process_number()); /* for people */
        DLPI_STORE_RLX(&c->s.mine->held, 0u);                   /* for people */
        DLPI_STORE_RLX(&c->s.mine->missed, UINT64_C(0));        /* for people */
        DLPI_STORE_RLX(&c->s.mine->max_held, c->s.max_held);    /* for people */
        DLPI_STORE_RLX(&c->s.mine->behind, c->s.behind);        /* H2: ordered by present */
        dlpi_credit_publish(&c->s.mine->cursor, UINT64_C(0));   /* H3 */
        dlpi_subscriber_keep(&c->s);
        dlpi_credit_publish(&c->s.mine->present, c->s.present); /* H2 -> H2 */
        dlpi_wake_scheduler(c->s.ctl);
        return DLP_OK;
    }
    return dlpi_error_set(err, DLP_ERR_STATE, "name", "all %u places for subscribers are taken",
                          c->layout.max_subscribers);
}

/* Check the subscriber's desc, and allocate its loans. Returns 0, or a DLP_ERR code with *err
   filled. The caller frees the loans, also after a failure. */
static int dlpi_subscriber_loans(dlp_subscriber *c, const dlp_subscriber_desc *desc,
                                 dlp_error *err) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    uint32_t most = p->max_held < 1 || p->max_held > 256 ? 1 : p->max_held;
    if (desc && (desc->max_held < 0 || (uint32_t)desc->max_held > most))
        return dlpi_error_set(err, DLP_ERR_ARG, "max_held", "max_held is %d, must be at most %u",
                              desc->max_held, most);
    if (desc && (desc->when_behind < 0 || desc->when_behind > DLP_BEHIND_KEEP_NEWEST))
        return dlpi_error_set(err, DLP_ERR_ARG, "when_behind",
                              "when_behind is %d, must be a DLP_BEHIND_*", desc->when_behind);
    if (desc && desc->when_behind != DLP_BEHIND_WAIT && c->layout.mode != DLP_SHARE_EACH)
        return dlpi_error_set(err, DLP_ERR_ARG, "when_behind",
                              "when_behind must be 0 with DLP_SHARE_ONE");
    c->s.behind = desc ? (uint32_t)desc->when_behind : DLP_BEHIND_WAIT;
    c->s.max_held = desc && desc->max_held ? (uint32_t)desc->max_held : 1;
    c->s.loans = calloc(c->s.max_held, sizeof *c->s.loans);
    for (uint32_t i = 0; c->s.loans && i < c->s.max_held; i++)
        if ((c->s.loans[i].valid = malloc(p->batch_rows)) == NULL) break;
    if (c->s.loans && c->s.loans[c->s.max_held - 1].valid) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
}

/* Fill *t with field f of the batch in slot s. Returns false if the field's shape does not fit.
   What others can write is copied, checked, then used. */
static bool dlpi_subscriber_field(const dlp_subscriber *c, uint32_t s, uint32_t f, uint32_t count,
                                  dlp_tensor *t) {
    const dlpi_field_rec *r = &c->fields[f];
    const dlpi_pipe_rec *p = &c->m->pipe;
    const dlpi_area *cells = &c->m->areas[DLPI_REC_CELLS];
    uint8_t *slot = (uint8_t *)dlpi_subscriber_slot(&c->s, s);
    memset(t, 0, sizeof *t);
    t->name = r->name;
    t->data = c->map + cells->offset + s * cells->stride + r->offset;
    t->dtype = r->dtype;
    t->ndim = r->ndim + 1;
    t->shape[0] = count;
    for (int i = 0; i < r->ndim; i++) t->shape[i + 1] = r->shape[i];
    t->bytes = count * r->row_bytes;
    if (r->ragged)
        t->lengths = (uint64_t *)(void *)(slot + p->slot.lengths) + (size_t)f * p->batch_rows;
    if (p->has_item_cells) {
        dlpi_fmeta m = ((dlpi_fmeta *)(void *)(slot + p->slot.fmeta))[f];
        uint64_t n =
            m.ndim >= 0 && m.ndim <= DLP_MAX_DIMS ? dlpi_shape_count(m.shape, m.ndim) : UINT64_MAX;
        if (n > r->capacity / r->elem_bytes || m.bytes != n * r->elem_bytes) return false;
        t->bytes = m.bytes;
        t->ndim = m.ndim;
        memcpy(t->shape, m.shape, sizeof m.shape);
        if (m.has_offsets)
            t->offsets = (uint64_t *)(void *)(slot + p->slot.offsets) +
                         (size_t)f * ((size_t)p->batch_rows + 1);
    }
    return true;
}

/* Fill the loan's batch with what slot s has. Returns 0 or DLP_ERR_CORRUPT. */
static int dlpi_subscriber_show(dlpi_subscriber *of, uint32_t s, dlpi_loan *loan) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    const dlpi_pipe_rec *p = &c->m->pipe;
    dlpi_bslot *slot = dlpi_subscriber_slot(of, s);
    const uint32_t *rec = (const uint32_t *)(const void *)((uint8_t *)slot + p->slot.fate);
    const bool dirty = DLPI_LOAD_RLX(&slot->dirty) != 0; /* ordered by ready */
    dlp_batch *v = &loan->batch;
    memset(v, 0, sizeof *v);
    v->epoch = slot->epoch;
    v->position = slot->position;
    v->in_epoch = slot->in_epoch;
    v->count = slot->count;
    v->flags = slot->flags;
    if (v->count > p->batch_rows)
        return dlpi_subscriber_fail(of, DLP_ERR_CORRUPT, "a batch has more rows than a slot");
    v->n_fields = c->n_fields;
    v->fields = loan->fields;
    v->index = (uint64_t *)(void *)((uint8_t *)slot + p->slot.index);
    if (p->slot.traced > 0) {
        v->number = (const uint32_t *)(const void *)((const uint8_t *)slot + p->slot.traced);
        v->list = (const uint16_t *)(v->number + p->batch_rows);
    }
    v->valid = loan->valid;
    v->valid_count = v->count;
    memset(loan->valid, 1, v->count);
    for (uint32_t r = 0; dirty && r < v->count; r++)
        v->valid_count -= !(loan->valid[r] = dlpi_fate_state(rec[r]) == DLPI_ROW_OK);
    for (uint32_t f = 0; f < c->n_fields; f++)
        if (!dlpi_subscriber_field(c, s, f, v->count, &loan->fields[f]))
            return dlpi_subscriber_fail(of, DLP_ERR_CORRUPT,
                                        "a batch has a shape that does not fit");
    return DLP_OK;
}

/* Search all slots for the oldest batch that nobody has (DLP_SHARE_ONE), handed back ones among
   them. Its slot, c->at, stays as it is until somebody claims it by the word c->taker. Returns the
   batch's number; UINT64_MAX: there is none. */
static uint64_t dlpi_subscriber_search(dlp_subscriber *c) {
    uint64_t b = UINT64_MAX;
    for (uint32_t k = 0; k < c->layout.n_slots; k++) {
        const dlpi_bslot *slot = dlpi_subscriber_slot(&c->s, k);
        uint64_t word = dlpi_claim_owner(&c->takers[k]);             /* H5 <- H5 */
        uint64_t gen = dlpi_gen(dlpi_claim_head_now(&slot->header)); /* P1 <- P1 */
        uint64_t at = DLPI_LOAD_RLX(&slot->sequence);                /* P1: ordered by header */
        if (gen == DLPI_GEN_MASK || gen != (at & DLPI_GEN_MASK)) continue;
        if (!dlpi_older(dlpi_gen(word), at) || at >= b) continue;
        b = at;
        c->at = k;
        c->taker = word;
    }
    return b;
}

/* Move the cursor to the oldest batch that nobody has. Returns DLP_OK if that batch is ready,
   DLP_EMPTY if it is not, DLP_SKIP if there is none, or an error. While a search looks at a slot,
   one before it may get an older batch. That one was published before the batch that was found, so
   a search that begins now sees it: two searches must agree. If they find none, all batches below
   the tail, which was read before, are taken. */
static int dlpi_subscriber_first(dlp_subscriber *c) {
    const uint64_t back = dlpi_credit_seen(&c->s.share->handed_back); /* H7 <- H7 */
    const uint64_t tail = dlpi_credit_seen(&c->s.ctl->tail);          /* T1 <- T1 */
    uint64_t b, before;
    for (; back + 1 == c->back; c->s.cursor++) {
        int rc = c->s.cursor < tail ? dlpi_subscriber_ready(&c->s, c->s.cursor, &c->at) : DLP_SKIP;
        if (rc < 0 || c->s.cursor >= tail) return rc;
        if (rc == DLP_SKIP) break;                      /* the slot has another batch */
        c->taker = dlpi_claim_owner(&c->takers[c->at]); /* H5 <- H5 */
        if (dlpi_older(dlpi_gen(c->taker), c->s.cursor)) return rc;
    }
    for (before = dlpi_subscriber_search(c); (b = dlpi_subscriber_search(c)) != before;) before = b;
    c->back = back + 1;
    c->s.cursor = b != UINT64_MAX ? b : tail;
    if (b == UINT64_MAX) return DLP_SKIP;
    return dlpi_subscriber_is_ready(&c->s, b, c->at) ? DLP_OK : DLP_EMPTY;
}

/* Take the oldest free batch (DLP_SHARE_ONE). Returns DLP_OK, DLP_EMPTY, DLP_END or an error. */
static int dlpi_subscriber_one(dlp_subscriber *c, dlp_batch **out) {
    for (;;) {
        uint32_t over = dlpi_credit_closed(&c->s.ctl->end_of_input), s; /* T1 <- T1 */
        if (dlpi_credit_closed(&c->s.share->over) != 0) return DLP_END; /* H1 <- H1 */
        int rc = dlpi_subscriber_first(c);
        /* whoever holds one waits for nobody */
        if (rc == DLP_SKIP) return over && c->s.n_held > 0 ? DLP_END : DLP_EMPTY;
        if (rc != DLP_OK) return rc;
        const uint64_t b = c->s.cursor++;
        s = c->at;
        if (!dlpi_claim_take(&c->takers[s], c->taker, dlpi_gen_word(b, c->s.index + 1u)))
            continue;                  /* H5 <-> H5: another has it */
        dlpi_wake_scheduler(c->s.ctl); /* a credit */
        /* the next batch may have been ready before this one, and have woken somebody in vain */
        if (dlpi_sleepers_mask(&c->s.share->sleepers) != 0 && /* B1 <- B1 */
            dlpi_subscriber_first(c) == DLP_OK)
            dlpi_wake_subscribers(c->s.share, INT_MAX);
        rc = dlpi_subscriber_have(&c->s, b, s, out);
        if (rc != DLP_SKIP) return rc;
    }
}

/* Take the subscriber's next batch, if there is one now. Returns DLP_OK, DLP_EMPTY, DLP_END or an
   error's code. Until the scheduler admits the subscriber, there is none. */
static int dlpi_subscriber_try(dlpi_subscriber *of, dlp_batch **out) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    const dlpi_admit *admit;
    if (c->s.err.code != 0) return c->s.err.code;
    if (!c->s.admitted) {
        admit = (const dlpi_admit *)(const void *)((uint8_t *)c->s.share + c->layout.admits_at) +
                c->s.index;
        if (dlpi_credit_seen(&admit->present) != c->s.present)                       /* H2 <- H2 */
            return dlpi_credit_closed(&c->s.share->over) != 0 ? DLP_END : DLP_EMPTY; /* H1 <- H1 */
        c->s.admitted = true;
        c->s.cursor = DLPI_LOAD_RLX(&admit->join);            /* H2: ordered by present */
        dlpi_credit_publish(&c->s.mine->cursor, c->s.cursor); /* H3 -> H3 */
    }
    if (c->s.behind != DLP_BEHIND_WAIT) return dlpi_subscriber_late(of, out);
    return c->layout.mode == DLP_SHARE_EACH ? dlpi_subscriber_each(of, out)
                                            : dlpi_subscriber_one(c, out);
}

static void dlpi_subscriber_wake(const dlpi_subscriber *c) { dlpi_wake_scheduler(c->ctl); }

/* Check that the owner lives, at most each DLPI_LOOK_NS. Returns 0 or DLP_ERR_KILLED. */
static int dlpi_subscriber_watch(dlpi_subscriber *of) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    uint64_t now = dlpi_now_ns();
    dlp_error e;
    if (now - c->looked_ns < DLPI_LOOK_NS) return DLP_OK;
    c->looked_ns = now;
    if (dlpi_owner_check(c->m, &e) == DLP_OK || DLPI_LOAD_RLX(&of->ctl->stop) != 0) /* S1 */
        return DLP_OK;
    return dlpi_subscriber_fail(of, DLP_ERR_KILLED, "the owner of the pipe is gone");
}

static const dlpi_subscriber_ops dlpi_subscriber_outside = {
    dlpi_subscriber_try, dlpi_subscriber_show, dlpi_subscriber_wake, dlpi_subscriber_watch};

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-start       THE CALLER: START, WATCH, CLOSE */

/* True if a thread has left, or will once it has a core: a thread that was joined is in the
   kernel's list until then. It has no lock of the program by then. */
DLPI_COLD
static bool dlpi_thread_leaves(const char *tid) {
    char path[64], line[512];
    const char *at;
    unsigned flags = 0;
    bool there;
    FILE *f;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    if ((f = dlpi_stream_open(path, O_RDONLY, "r")) == NULL) return errno == ENOENT;
    there = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    if (!there) return true; /* it has left in between */
    at = strrchr(line, ')');
    if (at == NULL || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1) return false;
    return (flags & 4) != 0; /* PF_EXITING */
}

/* True if a thread is the library's own that answers the producers of a push. It takes no lock, so
   a fork copies none that it holds. */
DLPI_COLD
static bool dlpi_thread_answers(const char *tid) {
    char path[64], name[20];
    ssize_t n;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", tid);
    if ((fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC))) < 0) return false;
    n = read(fd, name, sizeof name);
    close(fd);
    return n == (ssize_t)sizeof DLPI_PUSH_THREAD &&
           memcmp(name, DLPI_PUSH_THREAD, (size_t)n - 1) == 0;
}

/* Return how many threads the process has that may hold a lock. Returns 1 if that cannot be found
   out. */
DLPI_COLD
static int dlpi_threads_here(void) {
    DIR *d = dlpi_dir_open(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int n = 0;
    if (d == NULL) return 1;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.' && !dlpi_thread_leaves(e->d_name) &&
             !dlpi_thread_answers(e->d_name);
    closedir(d);
    return n;
}

/* Check a shm desc by itself. Returns 0 or the code of the first error. */
DLPI_COLD
static int dlpi_shm_check(dlp_pipe *p, const dlp_shm_desc *d) {
    static const dlpi_bound bounds[] = {
        {"shm.allow_fork_with_threads", DLPI_IN(dlp_shm_desc, allow_fork_with_threads), 0, 1,
         "0 or 1"},
        {"shm.max_kills", DLPI_IN(dlp_shm_desc, max_kills), 0, 100, "0..100"},
        {"shm.grace_ms", DLPI_IN(dlp_shm_desc, grace_ms), 0, 3600000, "0..3600000"},
        {"shm.huge_pages", DLPI_IN(dlp_shm_desc, huge_pages), 0, 2, "DLP_HUGE_*"},
        {"shm.share", DLPI_IN(dlp_shm_desc, share), 0, 2, "DLP_SHARE_*"},
        {"shm.max_subscribers", DLPI_IN(dlp_shm_desc, max_subscribers), 0, 64, "0..64"},
        {"shm.serve_only", DLPI_IN(dlp_shm_desc, serve_only), 0, 1, "0 or 1"},
    };
    dlpi_check_bounds(p, "", d, DLPI_ROWS(bounds));
    dlpi_within(p, "", "shm.wait_subscribers", d->wait_subscribers, 0,
                d->max_subscribers ? d->max_subscribers : 8, "0..max_subscribers");
    if (d->name != NULL && !dlpi_name_ok(d->name))
        dlpi_refuse(p, DLP_ERR_ARG, "", "shm.name",
                    "shm.name must have 1 to 63 of A-Z a-z 0-9 . _ -, no dot first");
    return p->err.code; /* the first of them */
}

/* Make the state for the shm desc, or for worker processes. Returns 0, or the pipe's error. */
DLPI_COLD
static int dlpi_shm_make(dlp_pipe *p) {
    dlpi_shm_state *s;
    int rc;
    if (p->d.shm && (rc = dlpi_shm_check(p, p->d.shm)) != DLP_OK) return rc;
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "calloc of a record failed");
    if (p->d.shm) s->d = *p->d.shm;
    dlpi_copy_text(p->shm_name, sizeof p->shm_name, s->d.name);
    s->d.name = NULL;
    if (s->d.max_kills) p->max_kills = (uint32_t)s->d.max_kills;
    if (s->d.grace_ms == 0) s->d.grace_ms = 300;
    if (s->d.max_subscribers == 0) s->d.max_subscribers = 8;
    if (s->d.share != DLP_SHARE_NONE) p->sharing = &dlpi_share_ops;
    p->huge_pages = s->d.huge_pages;
    s->caller_fd = s->supervisor_fd = -1;
    s->nudge[0] = s->nudge[1] = s->alive[0] = s->alive[1] = -1;
    p->shm = s;
    p->needs_file = 1;
    return DLP_OK;
}

DLPI_COLD
static int dlpi_shm_open(dlp_pipe *p) { return p->d.shm ? dlpi_shm_make(p) : DLP_OK; }

DLPI_COLD
static int dlpi_shm_processes(dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st DLPI_UNREAD) {
    return DLP_OK;
}

DLPI_COLD
static int dlpi_shm_resolve(dlp_pipe *p) {
    int rc = p->n_procs > 0 && p->shm == NULL ? dlpi_shm_make(p) : DLP_OK;
    p->others = p->n_procs > 0;
    return rc == DLP_OK && p->shm ? dlpi_shm_share_resolve(p) : rc;
}

/* Refuse to fork a process of several threads, unless the desc allows it. Returns 0 or a code. */
DLPI_COLD
static int dlpi_shm_may_fork(dlp_pipe *p) {
    char text[256];
    int n = dlpi_threads_here();
    if (dlpi_shm_of(p)->d.allow_fork_with_threads) return DLP_OK;
    /* a thread that was joined may be in the kernel's list for a moment more */
    for (int i = 0; n > 1 && i < 20; i++, n = dlpi_threads_here()) dlpi_sleep(1000000);
    if (n <= 1) return DLP_OK;
    snprintf(text, sizeof text,
             "the process has %d threads, and a fork copies their locks; start workers earlier "
             "(later of the pipe's desc), or set shm.allow_fork_with_threads",
             n);
    return dlpi_shm_fail(p, DLP_ERR_STATE, "placement", text);
}

/* Make what the supervisor needs before it is forked: its table, sockets, and a descriptor of this
   process. Returns 0 or a DLP_ERR code. */
DLPI_COLD
static int dlpi_shm_prepare(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc = dlpi_procs_alloc(p);
    if (rc != DLP_OK) return rc;
    s->caller_fd = dlpi_pidfd_open(getpid());
    if (s->caller_fd < 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pidfd_open (Linux 5.4)");
    /* a socket: writing to a pipe whose reader has died would raise SIGPIPE in the caller */
    rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s->nudge);
    if (dlpi_pair_above(rc, s->nudge) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "socketpair");
    if (dlpi_pair_above(pipe2(s->alive, O_CLOEXEC), s->alive) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pipe2");
    return DLP_OK;
}

DLPI_COLD
static bool dlpi_supervisor_gone(const dlpi_shm_state *s) {
    struct pollfd fd = {s->supervisor_fd, POLLIN, 0};
    return s->supervisor_fd >= 0 && poll(&fd, 1, 0) > 0;
}

/* Fail the pipe if the supervisor was killed. Returns DLP_OK, or the code of the pipe's error. */
DLPI_COLD
static int dlpi_shm_look(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if (s == NULL || !dlpi_supervisor_gone(s) || dlpi_stopped(p)) return DLP_OK;
    if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc; /* why it ended */
    return dlpi_shm_fail(p, DLP_ERR_KILLED, "",
                         "the supervisor process was killed, and the worker processes with it");
}

/* Wait until each stage has a worker process. Returns 0, or a code if the start has failed. */
DLPI_COLD
static int dlpi_shm_started(dlp_pipe *p) {
    dlpi_ctl *ctl = p->ctl;
    for (;;) {
        uint32_t word = dlpi_event_count(&ctl->processes_word); /* J1 <- J1 */
        int rc;
        if (DLPI_LOAD_ACQ(&ctl->processes) == 1) return DLP_OK; /* J1 <- J1 */
        if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc;
        if ((rc = dlpi_shm_look(p)) != DLP_OK) return rc;
        if (dlpi_stopped(p) && dlpi_supervisor_gone(dlpi_shm_of(p))) return DLP_OK;
        dlpi_futex_wait(&ctl->processes_word, word, UINT32_MAX, DLPI_SLEEP_NS, 1);
    }
}

/* Fork the supervisor, with all signals blocked. Returns 0 or a DLP_ERR code. The child never
   returns. */
DLPI_COLD
static int dlpi_fork_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    sigset_t all, before;
    int rc = dlpi_shm_may_fork(p);
    if (rc != DLP_OK) return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the user's runs in the child */
    s->supervisor = fork();
    if (s->supervisor == 0) dlpi_supervisor(p);
    rc = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = rc;
    if (s->supervisor > 0) return DLP_OK;
    s->supervisor = 0;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "fork of the supervisor");
}

/* Prepare and fork the supervisor, and close the ends of its sockets that only the supervisor uses.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD
static int dlpi_supervisor_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if ((rc = dlpi_shm_prepare(p)) != DLP_OK) return rc;
    if ((rc = dlpi_fork_begin(p)) != DLP_OK) return rc;
    setpgid(s->supervisor, s->supervisor); /* here, too: whoever comes first */
    s->supervisor_fd = dlpi_pidfd_open(s->supervisor);
    dlpi_fd_close(&s->nudge[0]);
    dlpi_fd_close(&s->alive[1]);
    return s->supervisor_fd < 0 ? dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pidfd_open") : DLP_OK;
}

/* From making its sockets until the caller has closed the ends that are the supervisor's, a pipe
   keeps other threads from forking supervisors of theirs. They would inherit those ends: then close
   waits for the end of both, and of two that have each other's nudge neither sees the caller exec.
   Later supervisors inherit the caller's ends alone, of those before them: the last of them sees
   it, and at its end the one before. The word is the process's number: a child that another thread
   forks meanwhile finds its parent's, and nobody is there to take it back. */
static dlpi_claim_word dlpi_begins;

DLPI_COLD
static void dlpi_begins_enter(void) {
    uint64_t own = (uint64_t)getpid(), was;
    while ((was = dlpi_claim_owner(&dlpi_begins)) == own || /* O1 <- O1 */
           !dlpi_claim_take(&dlpi_begins, was, own))        /* O1 */
        dlpi_sleep(100000);
}

/* Begin sharing, make the pipe's name, and start the worker processes. One pipe of a process forks
   at a time. Returns 0 or a DLP_ERR code. */
DLPI_COLD
static int dlpi_shm_begin(dlp_pipe *p) {
    int rc;
    if (dlpi_shm_of(p) == NULL) return DLP_OK;
    if ((rc = dlpi_shm_share_begin(p)) != DLP_OK) return rc;
    if (p->shm_name[0] && (rc = dlpi_name_create(p)) != DLP_OK) return rc;
    if (p->n_procs == 0) return DLP_OK;
    dlpi_begins_enter();
    rc = dlpi_supervisor_begin(p);
    dlpi_claim_free(&dlpi_begins, 0); /* O1 -> O1 */
    return rc == DLP_OK ? dlpi_shm_started(p) : rc;
}

DLPI_COLD
static void dlpi_shm_nudge(dlp_pipe *p) {
    ssize_t n = 0;
    if (dlpi_shm_of(p) == NULL) return;
    if (dlpi_shm_of(p)->nudge[1] >= 0) n = send(dlpi_shm_of(p)->nudge[1], "", 1, MSG_NOSIGNAL);
    DLPI_UNUSED(n); /* full: it is awake; nobody there: there is nothing to be told */
}

/* Wait until all processes are dead: none has the pipe `alive`. Returns false after ms. */
DLPI_COLD
static bool dlpi_shm_dead(const dlpi_shm_state *s, int ms) {
    uint64_t until = dlpi_now_ns() + (uint64_t)ms * 1000000u, now;
    for (;;) {
        struct pollfd fd = {s->alive[0], POLLIN, 0};
        if (poll(&fd, 1, ms) > 0) return true;
        now = dlpi_now_ns();
        if (now >= until) return false;
        ms = (int)((until - now) / 1000000u) + 1;
    }
}

/* End the worker processes, and wait for the supervisor's death. If it does not end within the
   grace period, its process group is killed. */
DLPI_COLD
static void dlpi_shm_await(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    siginfo_t info;
    if (s == NULL || s->supervisor <= 0) return;
    DLPI_STORE_REL(&p->ctl->closing, 1u); /* J2 -> J2 */
    dlpi_shm_nudge(p);
    if (!dlpi_shm_dead(s, s->d.grace_ms + 400)) { /* it may be stopped: then so are its duties */
        kill(-s->supervisor, SIGKILL);
        dlpi_shm_dead(s, 1000);
    }
    if (s->supervisor_fd >= 0) /* the user may have waited for it, or ignore SIGCHLD */
        while (waitid((idtype_t)3, (id_t)s->supervisor_fd, &info, WEXITED) < 0 && errno == EINTR)
            continue; /* 3: P_PIDFD */
    else
        waitpid(s->supervisor, NULL, 0);
    s->supervisor = 0;
}

/* Remove the pipe's name, and free all that the pipe's processes needed. The supervisor must have
   ended. */
DLPI_COLD
static void dlpi_shm_end(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (s == NULL) return;
    dlpi_name_remove(p);
    dlpi_fd_close(&s->caller_fd);
    dlpi_fd_close(&s->supervisor_fd);
    for (int i = 0; i < 2; i++) {
        dlpi_fd_close(&s->nudge[i]);
        dlpi_fd_close(&s->alive[i]);
    }
    if (s->procs != NULL) munmap(s->procs, dlpi_procs_bytes(s));
    free(s);
    p->shm = NULL;
}

static const dlpi_beside_ops dlpi_shm_table = {
    .open = dlpi_shm_open,
    .processes = dlpi_shm_processes,
    .resolve = dlpi_shm_resolve,
    .layout = dlpi_shm_areas,
    .begin = dlpi_shm_begin,
    .look = dlpi_shm_look,
    .nudge = dlpi_shm_nudge,
    .await = dlpi_shm_await,
    .end = dlpi_shm_end,
};
static const dlpi_beside_ops *dlpi_shm = &dlpi_shm_table;

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-public      THE PUBLIC CALLS */

/* Call `each` for all names in /dev/shm. Returns DLP_OK, or DLP_ERR_SYSTEM if that is not there. */
DLPI_COLD
static int dlpi_names_each(void (*each)(const char *name, const char *path, void *to), void *to) {
    DIR *dir = dlpi_dir_open(open(DLPI_SHM_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const struct dirent *d;
    const size_t n = sizeof DLPI_NAME_PREFIX - 1;
    if (dir == NULL) return DLP_ERR_SYSTEM;
    while ((d = readdir(dir)) != NULL) {
        char path[DLPI_NAME_PATH];
        if (strncmp(d->d_name, DLPI_NAME_PREFIX, n) != 0 || !dlpi_name_ok(d->d_name + n)) continue;
        dlpi_name_path(d->d_name + n, path);
        each(d->d_name + n, path, to);
    }
    closedir(dir);
    return DLP_OK;
}

typedef struct dlpi_names_list {
    dlp_shm_name *out;
    int n, max;
} dlpi_names_list;

/* Append a name to the list *to, if its record can be read. Names beyond the list's room are only
   counted. */
DLPI_COLD
static void dlpi_shm_names_add(const char *name, const char *path, void *to) {
    dlpi_names_list *l = to;
    dlp_shm_name one;
    memset(&one, 0, sizeof one);
    dlpi_copy_text(one.name, sizeof one.name, name);
    if (dlpi_name_look(path, &one) != DLP_OK) return;
    if (l->n < l->max) l->out[l->n] = one;
    if (l->n < INT_MAX) l->n++;
}

DLPI_COLD
static void dlpi_names_sweep(const char *name DLPI_UNREAD, const char *path, void *to) {
    if (dlpi_name_sweep(path) == 1) ++*(int *)to;
}

DLPI_COLD
DLPDEF int dlp_shm_names(dlp_shm_name *out, int max) {
    dlpi_names_list l = {out, 0, max};
    if (max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    return dlpi_names_each(dlpi_shm_names_add, &l) == DLP_OK ? l.n : DLP_ERR_SYSTEM;
}

DLPI_COLD
DLPDEF int dlp_shm_remove_stale(const char *name) {
    char path[DLPI_NAME_PATH];
    int n = 0;
    if (name == NULL) return dlpi_names_each(dlpi_names_sweep, &n) == DLP_OK ? n : DLP_ERR_SYSTEM;
    if (!dlpi_name_ok(name)) return DLP_ERR_ARG;
    dlpi_name_path(name, path);
    return dlpi_name_sweep(path);
}

DLPI_COLD
DLPDEF int dlp_monitor_open(dlp_monitor **out, const char *who, dlp_error *err) {
    const struct timespec pause = {0, 10000000};
    if (out == NULL || who == NULL || who[0] == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "who" : "out", "%s is missing",
                              out ? "who" : "out");
    for (int tries = 0;; tries++) {
        dlp_error e;
        int rc = dlpi_monitor_try(who, out, &e);
        if (rc == DLP_OK) return rc;
        if (rc != DLP_ERR_STATE || tries == 20) { /* it may be about to start */
            if (err) *err = e;
            return rc;
        }
        nanosleep(&pause, NULL);
    }
}

DLPI_COLD
DLPDEF int dlp_monitor_refresh(dlp_monitor *m, dlp_error *err) {
    int rc;
    if (m == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "m", "m is NULL");
    if ((rc = dlpi_owner_check(m, err)) == DLP_OK) return dlpi_view_load(m, err);
    if (m->fd >= 0) close(m->fd); /* else we would keep the pipe's memory */
    m->fd = -1;
    return rc;
}

DLPI_COLD
DLPDEF int dlp_monitor_stats(const dlp_monitor *m, dlp_stats *out) {
    if (m == NULL || out == NULL) return DLP_ERR_ARG;
    dlpi_stats(&m->seen, out);
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_monitor_worker_stats(const dlp_monitor *m, uint32_t i, dlp_worker_stats *out) {
    if (m == NULL || out == NULL || i >= m->seen.n_workers) return DLP_ERR_ARG;
    dlpi_worker_stats(&m->seen, i, out);
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_monitor_skips(const dlp_monitor *m, dlp_skip *out, int max, uint64_t *total) {
    if (m == NULL || max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    return dlpi_skips(&m->seen, out, max, total);
}

DLPI_COLD
DLPDEF int dlp_monitor_trace_lanes(const dlp_monitor *m) {
    return m == NULL ? DLP_ERR_ARG : (int)m->seen.n_workers + 1;
}

DLPI_COLD
DLPDEF int dlp_monitor_trace(const dlp_monitor *m, int lane, dlp_trace_event *out, int max,
                             char *name) {
    if (m == NULL || max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    if (lane < 0 || (uint32_t)lane > m->seen.n_workers) return DLP_ERR_ARG;
    return dlpi_trace_lane(&m->seen, (uint32_t)lane, out, max, name);
}

DLPI_COLD
DLPDEF int64_t dlp_monitor_batches_per_epoch(const dlp_monitor *m) {
    return m == NULL ? -1 : (int64_t)m->per_epoch; /* UINT64_MAX: not known */
}

DLPI_COLD
DLPDEF const dlp_error *dlp_monitor_error(const dlp_monitor *m) {
    static const dlp_error none = {DLP_ERR_ARG, 0, -1, 0, 0, 0, 0, "", "m", "the monitor is NULL"};
    return m == NULL ? &none : &m->error;
}

DLPI_COLD
DLPDEF int dlp_monitor_about(const dlp_monitor *m, dlp_monitor_info *out) {
    if (m == NULL || out == NULL) return DLP_ERR_ARG;
    *out = m->info;
    return DLP_OK;
}

DLPI_COLD
DLPDEF void dlp_monitor_close(dlp_monitor *m) {
    if (m == NULL) return;
    dlpi_view_blocks(m, false);
    if (m->fd >= 0) close(m->fd);
    if (m->proc >= 0) close(m->proc);
    free(m);
}

DLPI_COLD
DLPDEF int dlp_subscriber_open(dlp_subscriber **out, const char *name,
                               const dlp_subscriber_desc *desc, dlp_error *err) {
    dlp_subscriber *c;
    int rc;
    if (out == NULL || name == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "name" : "out", "out or name is NULL");
    c = calloc(1, sizeof *c);
    if (c == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    c->fd = -1;
    c->s.ops = &dlpi_subscriber_outside;
    c->s.err.worker = -1;
    rc = dlp_monitor_open(&c->m, name, err);
    if (rc == DLP_OK && c->m == NULL) rc = DLP_ERR_STATE; /* an open monitor is one */
    if (rc == DLP_OK) rc = dlpi_subscriber_check(c, err);
    if (rc == DLP_OK) rc = dlpi_subscriber_loans(c, desc, err);
    if (rc == DLP_OK && dlpi_alive_page(&c->alive) != 0)
        rc = dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    if (rc == DLP_OK) rc = dlpi_subscriber_map(c, err);
    if (rc == DLP_OK) rc = dlpi_subscriber_place(c, err);
    if (rc != DLP_OK) {
        dlp_subscriber_close(c);
        return rc;
    }
    *out = c;
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_subscriber_next(dlp_subscriber *c, dlp_batch **out) {
    return dlp_subscriber_next_timeout(c, out, -1);
}

DLPI_COLD
DLPDEF int dlp_subscriber_next_timeout(dlp_subscriber *c, dlp_batch **out, int timeout_ms) {
    if (c == NULL || out == NULL) return DLP_ERR_ARG;
    if (!dlpi_page_marked(c->alive)) return DLP_ERR_FORKED;
    return dlpi_subscriber_next(&c->s, out, timeout_ms);
}

DLPI_COLD
DLPDEF int dlp_subscriber_release(dlp_subscriber *c, dlp_batch *batch) {
    if (c == NULL || batch == NULL) return DLP_ERR_ARG;
    if (!dlpi_page_marked(c->alive)) return DLP_ERR_FORKED;
    return dlpi_subscriber_release(&c->s, batch);
}

DLPI_COLD
DLPDEF uint64_t dlp_subscriber_missed(const dlp_subscriber *c) { return c ? c->s.missed : 0; }

DLPI_COLD
DLPDEF const dlp_error *dlp_subscriber_error(const dlp_subscriber *c) {
    return c == NULL ? dlp_pipe_error(NULL) : &c->s.err;
}

DLPI_COLD
DLPDEF void dlp_subscriber_close(dlp_subscriber *c) {
    if (c == NULL) return;
    if (c->s.mine != NULL && dlpi_page_marked(c->alive)) dlpi_subscriber_leave(&c->s);
    if (c->map != NULL) dlpi_pages_free(c->map, c->bytes);
    if (c->fd >= 0) close(c->fd);
    if (c->alive != NULL) dlpi_pages_free(c->alive, 4096);
    for (uint32_t i = 0; c->s.loans != NULL && i < c->s.max_held; i++) free(c->s.loans[i].valid);
    free(c->s.loans);
    dlp_monitor_close(c->m);
    free(c);
}

DLPI_COLD
DLPDEF int dlp_shm_serve(dlp_pipe *p, int timeout_ms) {
    if (p == NULL || timeout_ms < DLP_FOREVER) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->err.code != 0) return p->err.code;
    if (p->share == NULL || !p->share->serve_only) return DLP_ERR_STATE;
    return dlpi_serve(p, timeout_ms);
}

#ifndef DLPIPE_NO_EXPLAIN
/* ---- a monitor explains a pipe ---- */

DLPI_COLD
DLPDEF int dlp_monitor_explain(const dlp_monitor *m, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    if (m == NULL || (buf == NULL && size > 0)) return DLP_ERR_ARG;
    dlpi_explain(&t, &m->seen);
    return dlpi_text_length(&t);
}
#endif /* DLPIPE_NO_EXPLAIN */

#ifndef DLPIPE_NO_PICTURES
/* ---- pictures of a monitored pipe ---- */

DLPI_COLD
DLPDEF int dlp_monitor_write_trace(const dlp_monitor *m, const char *path, dlp_error *err) {
    const int rc = dlpi_picture_args("m", m, path, NULL, err);
    if (rc != DLP_OK) return rc;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){0}, dlpi_json_write, path, err);
}

DLPI_COLD
DLPDEF int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                                    const dlp_trace_window *window, dlp_error *err) {
    const int rc = dlpi_picture_args("m", m, path, window, err);
    if (rc != DLP_OK) return rc;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){.window = window}, dlpi_svg_write, path,
                              err);
}

DLPI_COLD
DLPDEF int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path, dlp_error *err) {
    return dlp_monitor_write_window(m, path, NULL, err);
}
#endif /* DLPIPE_NO_PICTURES */

#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>shm-history          VERSIONS
   0.1.0   The first version. Its number is always that of dlpipe.h.
   0.2.0   As dlpipe.h.

   >>shm-licence          MIT
   The licence is that of dlpipe.h. */
