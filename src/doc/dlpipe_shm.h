#pragma once
/* dlpipe_shm.h - v0.1.0 - worker processes for dlpipe.h - MIT licence - header-only, Linux 5.4+
   Made from src/ by "make headers": edit there.

   The same pipeline with workers as processes in shared memory: killed workers cost time, not data.
   And a view from outside: monitors that look at a running or stuck pipe, programs that share one.

   >>shm-use        DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_shm.h"
   2  Say .placement = DLP_PLACE_PROCESSES in the dlp_workers_desc of a stage. That is all.
   3  A name, several programs on one pipe, huge pages: dlp_pipe_desc.shm, a dlp_shm_desc
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
         .fetch = {.workers = {.placement = DLP_PLACE_PROCESSES}}, // and one more field
     };

   Order, bytes, states, errors and calls are those of dlpipe.h; so is the memory bound.

   >>shm-concepts   WHO STARTS WHOM, WHO SEES WHAT

     owner --- fork ---> supervisor --- fork ---> worker 0, 1, ...; a spare
       |                               |                       |
       +----------- the region: one sealed memory file --------+---- subscribers (named pipes)
                                                               +.... monitors (read only)

   The owner is the program that opened the pipe: it schedules items, transfers and takes batches.
   The supervisor watches all of them and replaces dead workers. Workers run fetch, maps and
   collates, and load parts (the stage of a part queue may be of processes as any other).
   Subscribers are other programs, or threads, that take batches of the pipe, by a dlp_subscriber.
   What a worker's callbacks see of the program's memory is a copy of it as it was in open, in
   replacements too: what they write there, counters say, the program does not
   see, and what the program changes later they do not. Open files are shared, offsets among them:
   use pread, or open in worker_init.
   A worker process is in a process group of its own, with default signal handlers, but for SIGINT,
   SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which it ignores, unless worker_init says otherwise: these
   go to all of a job (Slurm's --signal, a terminal that closes), and a job that is told to stop can
   still save its state (examples/checkpoint.c). The supervisor ignores them, too. A worker's
   standard input is /dev/null. It ends by _exit.

   Ways to start, by what the program has when it starts the pipe:

     no threads yet      nothing to do: open forks
     threads, a device   open with `later` before they are made, dlp_pipe_start afterwards (CUDA:
                         dlp_cuda_desc.later, too); or shm.allow_fork_with_threads
   Without one of these open refuses: DLP_ERR_STATE.

   >>shm-deaths     WHO DIES, AND WHAT FOLLOWS
   By SIGKILL at any instruction, or any other way:

     a worker            is replaced, in a fraction of a millisecond where a core is free. What it
                         worked on is done again; no position is lost or comes twice, order and
                         bytes are the same. An item that kills its worker max_kills times has
                         failed: DLP_ERR_KILLED, under its stage's on_error. Of several items in
                         flight in a worker each counts its first death, and runs alone from then
                         on: max_kills counts as 2 at least there. Workers that die so often in
                         worker_init, or with the same work and not in a callback of the stage (in
                         a function of the sampler, say), are an error of the stage. Whatever they
                         die of, once some 64 died in a row no more than 100 a second are replaced.
     a part worker       likewise: its part is loaded by another from the beginning; a part that
                         kills, or takes past its deadline_ms, has failed
     patience            deadline_ms of a stage of processes: the worker is killed, the item has
                         failed (DLP_ERR_DEADLINE), with retries if there are any. Only time in
                         which the supervisor ran itself counts, so a stopped job loses nothing.
     the supervisor      the workers die with it, next returns DLP_ERR_KILLED
     the owner           the supervisor kills the workers, removes the name, ends: within 1 s.
                         Memory goes with the last of them. exec in the owner is the same.
     a subscriber        see >>shm-subscriber
     all at once         nothing is left but the record of a name, whose lock is free: the next pipe
                         of that name takes it over, dlp_shm_remove_stale removes it
   A stage that changes a cell in place is never run on it twice: the row goes back to fetch, the
   batch to its collate, or to fetch; unless the stage is idempotent.
   Counters may count a failed item twice, once before and once after a death: skips towards
   max_skips, retries, items of a worker. Nothing that is delivered depends on them.

   >>shm-memory     MEMORY, ERRORS
   The region is reserved whole in start (fallocate), after the plan has been compared with limits,
   memory cgroups of both versions, and what is available: no worker dies because memory for a
   batch is missing. It lies in an unnamed memory file, sealed against shrinking and growing: there
   is nothing in /dev/shm, but, for a named pipe, a record of 128 bytes. Each process adds its stack
   and the pages that it changes; worker records, one for each worker, are in the plan.
   Errors are those of dlpipe.h, and DLP_ERR_KILLED, DLP_ERR_FORKED: a process that the user forked
   has a pipe's handle but not the pipe; each call says so, and close frees nothing there.

   >>shm-limits     LIMITS AND CAVEATS
   * Linux 5.4 or later (pidfds), with /proc mounted.
   * dlpipe_shm.h is compiled in the same file as dlpipe.h's implementation.
   * A process that the program forks itself, and that does not exec, inherits the pipe's memory
     file and lock: a name is taken until it ends.
   * The supervisor is a child of the owner. A program that waits for any child (waitpid(-1)) may
     see it end at close; that, and SIGCHLD ignored, does no harm. It ends at close and not before:
     do not wait for all children, until there are none, while the pipe is open.
   * Monitors and subscribers must be of the same user, or root, and see the same /proc: not from
     another container. A subscriber can write to the region: it is trusted.
   * A blocked pipe of 16 worker processes takes a little more than 0.1 % of a core (0.12 measured;
     of 2, 0.07), since each of them and the supervisor check now and then.
*/
