#pragma once
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
