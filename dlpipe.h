/* dlpipe.h - v0.1.0 - data-loading pipelines for C11 - MIT licence - header-only, no dependencies
   Made from src/ by "make headers": edit there.

   Decides which items come when, fetches them with many workers straight into batches, and hands
   the batches over in order, so that a training step does not wait.

   >>use        DO THIS, THEN THAT
   1  Copy this file into your tree. In exactly one C file, before any system header:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
      everywhere else just include it. Link with -lpthread where libc wants it.
   2  Say what an item is (dlp_field), how many there are, and how to write one (dlp_dataset.fetch).
   3  Open a pipe. The first three build and start it out of one desc. Zero in a field of a desc
      means the default that its comment tells; begin with {0}, or designated initialisers.
          dlp_loader_open   items: economic, or by .topology classic or concurrent; without an end
                            known by .dataset.stream (>>loader, >>streams; of files: >>files;
                            of objects in S3: dlpipe_s3.h, >>s3-source)
          dlp_parts_open    files, or archives, that hold many items each (>>parts)
          dlp_chunks_open   data read in large pieces, of which batches are views (>>chunks)
          dlp_pipe_open     and stages added and linked by hand, some of your own (>>pipe)
   4  dlp_pipe_next lends a batch, dlp_pipe_release gives it back. Until DLP_END.
   5  dlp_pipe_close. Before that, dlp_pipe_explain says which stage is the slow one.
   Which topology suits what, with an example of each: >>concepts.

   >>contents   search for the anchor
   To read first:
   >>use            DO THIS, THEN THAT
   >>example        A WHOLE PROGRAM
   >>concepts       WORDS, AND WHO OWNS A BATCH WHEN
   >>streams        DATASETS WITHOUT A LENGTH
   >>threads        WHAT MAY BE CALLED FROM WHERE
   >>memory         ERRORS, LOG, MEMORY
   >>options        COMPILE-TIME OPTIONS
   >>limits         LIMITS AND CAVEATS
   The base:
   >>errors         CODES AND ERROR RECORDS
   >>atomics        THE ONE SHIM OVER THE COMPILER'S ATOMICS
   >>queues         SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   >>order          HASHES, KEYED PERMUTATIONS
   Items, batches, orders:
   >>dataset        FIELDS, DATASETS, ITEMS
   >>batch          WHAT THE CALLER GETS
   >>state          RESUME
   >>samplers       WHICH ITEMS, IN WHICH ORDER
   >>mixing         DATASETS MIXED BY WEIGHTS
   >>buckets        ITEMS OF LIKE LENGTH BATCHED TOGETHER
   Pipes, by hand and ready-made:
   >>kinds          THE KINDS OF STAGES
   >>stages         WHO DOES THE WORK
   >>pipe           WIRING, RUNNING
   >>loader         ALL IN ONE CALL
   >>chunks         BATCHES THAT ARE VIEWS INTO CHUNKS
   >>parts          PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   Looking at them:
   >>stats          COUNTERS, TRACE, PICTURES, WORDS
   >>predict        WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   Where batches go, where items come from:
   >>devices        GPUS: CUDA, OPENCL
   >>dlpack         TENSORS FOR OTHER LIBRARIES
   >>files          ITEMS OUT OF FILES, MANY AT ONCE
   The implementation: the base, orders:
   >>impl-platform  SYSTEM HEADERS, SWITCHES
   >>impl-clock     TIME
   >>impl-errors    CODES AND ERROR RECORDS
   >>impl-queues    SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   >>impl-order     HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   >>impl-part-order  THE ORDER OF PARTS
   >>impl-mixing    DATASETS MIXED BY WEIGHTS
   >>impl-buckets   ITEMS OF LIKE LENGTH BATCHED TOGETHER
   The implementation: what is shared, and the stages' work:
   >>impl-region    WHAT IS SHARED: ONE MAPPING, OFFSETS ONLY
   >>impl-ops       WHAT A KIND OF STAGE IS TO THE REST
   >>impl-pipe      THE PIPE AS THIS PROCESS SEES IT
   >>impl-bells     SLEEP AND WAKE
   >>impl-fail      FIRST CAUSES
   >>impl-debug     WRITES PAST A ROW, USES AFTER RELEASE
   >>impl-wanted    BATCHES THAT NOBODY WANTS ANY MORE
   >>impl-seen      WHAT OBSERVERS SEE
   >>impl-dispatch  WHO WAKES WHOM
   >>impl-feed      THE SAMPLER: POSITIONS INTO FREE SLOTS
   >>impl-claim     CLAIMS AND COMPLETION
   >>impl-run       CALLBACKS, FAILURES, CLOCKS
   >>impl-collate   BATCHES OUT OF ITEMS
   >>impl-workers   STEPS, WAITING, THREADS
   >>impl-recover   WHAT A DEAD WORKER HAD
   >>impl-fetch     FETCH: ROWS WRITTEN FOR THE FIRST TIME
   >>impl-cache     ITEMS KEPT FROM ONE EPOCH TO THE NEXT
   >>impl-map       MAPS: OF ITEMS, AND OF WHOLE BATCHES, IN PLACE
   >>impl-batch     THE BATCH STAGE
   >>impl-transfer  BATCHES TO THE DEVICE
   >>impl-state     RESUME
   >>impl-sampler   SAMPLER AND REPEAT, AS STAGES
   >>impl-lists     LISTS OF A BATCH SAMPLER
   >>impl-parts     PART QUEUE: THE ORDER, THE CELLS, WHAT TO LOAD NEXT
   >>impl-tune      WORKERS ADDED AND RETIRED WHILE THE PIPE RUNS
   >>impl-deliver   NEXT AND RELEASE
   >>impl-split     CHUNKS LOADED, AND SPLIT INTO VIEWS
   The implementation: start, looking, devices, files, calls:
   >>impl-build     CHECKS, LAYOUT, PLAN, START, CLOSE
   >>impl-stats     COUNTERS AND TRACE, READ
   >>impl-predict   WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   >>impl-devices   GPUS: CUDA, OPENCL
   >>impl-dlpack    TENSORS FOR OTHER LIBRARIES
   >>impl-files     ITEMS OUT OF FILES, MANY AT ONCE
   >>impl-part-files  PART QUEUE: FILES, DOWNLOADS
   >>impl-public    THE PUBLIC CALLS
   >>impl-kinds     THE TABLE OF ALL KINDS
   >>impl-pictures  TRACE, TIMELINE, WORDS
   >>licence        MIT

   >>example    A WHOLE PROGRAM (examples/loader.c)

     #define DLPIPE_IMPLEMENTATION
     #include "dlpipe.h" // before any system header
     #include <stdio.h>

     static int fetch(void *user, dlp_item *item) { // called by many workers at once
         float *x = item->data[0];                  // this item's place in the batch
         for (int i = 0; i < 3; i++) x[i] = (float)item->index * ((float *)user)[i];
         return 0;
     }

     int main(void) {
         float scale[3] = {1, 10, 100};
         dlp_field field = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
         dlp_loader_desc desc = {
             .dataset = {.n_items = 1000, .fields = &field, .n_fields = 1, .fetch = fetch,
                         .user = scale},
             .batch_size = 64,
             .num_workers = 4,
             .shuffle = 1,
             .epochs = 2,
         };
         dlp_pipe *pipe = NULL;
         dlp_batch *batch = NULL;
         dlp_error err;
         int code;
         if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
         while ((code = dlp_pipe_next(pipe, &batch, DLP_FOREVER)) == DLP_OK) {
             const float *x = batch->fields[0].data; // [count][3]
             printf("epoch %d: %d items, the first %g\n", (int)batch->epoch, (int)batch->count,
                    (double)x[0]);
             dlp_pipe_release(pipe, batch);
         }
         if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
         return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
     }

   >>concepts   WORDS, AND WHO OWNS A BATCH WHEN
   An item is one sample, known by its dataset index. A position is a place in an epoch's order; the
   sampler maps (seed, epoch, position) to an index. A field is one array of an item. A batch has
   count rows: each field is one contiguous array [count, shape...]. A stage takes work from the
   stage before it and passes it on, by 0 workers (inline: in the caller's next) or n threads.
   Stages form a chain; those in brackets may be left out:

     sampler -> [repeat] -> fetch -> [cache] -> [item maps] -> batch -> [batch maps]
        ^                                                                    |
        |                                                                    v
        +--- credits: free batch slots <--- release <--- next <--- [split] <--- [transfer]

   Between sampler (or repeat) and fetch there may be a part queue. Ready-made wirings (topologies),
   and what they hold in memory, beside records that a plan tells:

     topology    rule                                  memory                          example
     economic    any worker takes the next items of    prefetch_factor + max_held      loader.c
                 any batch, oldest first               batches, however many workers
     classic     a whole batch to each of N workers,   N x prefetch_factor + max_held  concurrent.c
                 in turn                               batches
     concurrent  classic, and in_flight items at once  as classic; prefetch_factor is  concurrent.c
                 in each worker, of a batch or a pool  batch_pool / rows if more
     part queue  workers load the next parts; fetch    queue_size parts, and the       parts.c
                 takes items out of those loaded       batches of the loader behind it
     chunk       load a chunk into a CPU buffer, copy  cpu_buffers + device_buffers    chunks.c
                 it to the device, cut it into views   chunks
     your own    stages, samplers, links by hand       what dlp_pipe_plan says         stages.c

   Take the economic one first: it wants the least memory, and no slow worker holds up the others; a
   fetcher (in_flight items at once in each worker: threads, or requests begun and given back) goes
   with it, and with a part queue, as well. Each may repeat: with epochs (a repeat stage) workers
   live for all of them, and begin the next before the present one is over; memory is the same.

   Order and content of every batch depend on (seed, epoch, position) alone: not on the number of
   workers, their timing, the topology, or the number of ranks. (Parts and chunks are part of the
   order.) Only desc.unordered lets batches of one epoch overtake each other; their contents stay
   the same.

   Without a collate, fetch writes an item where the caller will read it: nothing is copied. A slot
   goes round, and one store moves it on:

     state   who may touch its bytes                      what moves it on
     FREE    nobody                                       sampler: pub, then tail: it is OPEN
     OPEN    of each run of rows, the worker whose        worker: the bits of its rows in done; who
             number is in the run's own word              makes the last stage's full: ready: READY
     READY   nobody                                       caller, in next: it is HELD
     HELD    the caller                                   caller, in release: used = 0: it is FREE

   Which worker takes which rows is its stage's dispatch: any run of any batch, or whole batches
   in turn.

   At most prefetch_factor batches are OPEN or READY, at most max_held are HELD. A slot comes back
   when it is released, never when it is received; a transfer stage, too, keeps the host slot of a
   batch until then. With a split stage an item is a chunk of rows, and what next lends are views of
   it: the chunk comes back with its last view, its CPU buffer once it is on the device (>>chunks).
   With a collate, items lie in prefetch_factor item cells, and the collate writes the slot. Words
   of a slot carry its generation and are never reset, so that a late worker finds an older batch's
   work closed (the argument is above >>impl-region).

   A cache keeps what fetch wrote, up to a budget of bytes, and gives it out in later epochs without
   a call of fetch: for fetches whose result depends on the index alone. All workers share it,
   threads and processes. An item has one cell (its index modulo the number of cells), and who comes
   first keeps it: where all items fit, all are kept; else the share that fits is what hits.

   >>streams    DATASETS WITHOUT A LENGTH (examples/stream.c)
   With dataset.stream = 1 nobody says how many items there are; fetch of an index returns DLP_END
   when there is no such item. The first row of an epoch for which it does ends the epoch: the rows
   before it are delivered, in a batch that may be short (DLP_LAST_DROP: is dropped), and the pipe
   goes on with the next epoch, at index 0, or with DLP_END. Order, resume, seek, retries, crashes
   are as with a length; what a stream cannot have (another order, padding, unordered delivery,
   replacement of items, a cache, chunks, parts, consumers in other processes) start refuses.
   * The end is found when a row meets it. If that is a batch's first row, the batch before was the
     last and did not know: it has no DLP_BATCH_LAST. DLP_EPOCH_END and the next epoch follow.
   * Workers run ahead, so fetch is called for indices behind the end, at most prefetch_factor
     batches of them, and what it does there, or how it fails, does not count (but is in statistics
     and dlp_pipe_skips): max_skips counts items as their batches are delivered.
   * Where any item can be read by its index, take as many workers as you like. A source that can
     only be read on takes num_workers = 1 (or 0) and no fetcher, and sees indices rise one by one;
     but for a retry, a resume, a seek, a new epoch, and a worker process that takes over from one
     that died. So fetch compares item->index with its own place, and skips, begins anew, or fails.
   * Each rank gives the rows it has: at the end one may have a batch more than another.
   * An epoch may have no item at all, but not with epochs = DLP_FOREVER: that is an error.

   >>threads    WHAT MAY BE CALLED FROM WHERE
   (Worker processes: dlpipe_shm.h, >>shm-concepts. "The stage's threads" are then its processes.)
   "Caller" is whoever drains the pipe: one thread at a time, any thread; handing over is your lock.

     call                                              from              while the pipe runs
     dlp_pipe_open, add_*, link, plan, start           caller            plan only
     dlp_loader_open, dlp_parts_open, dlp_chunks_open  any               -
     dlp_pipe_next, release, next_epoch, state,        caller            yes
     seek, state_at, set_workers
     dlp_pipe_error, warning, batches_per_epoch        caller            yes
     dlp_pipe_stop                                     any, and signal   yes; from open until close
                                                       handlers
     dlp_pipe_stats, worker_stats, skips, explain,     any               yes; from start until close
     trace*, write_*
     dlp_pipe_close                                    caller            no other call under way
     dlp_item_*, dlp_collate_*, dlp_chunk_*,           in the callback   yes
     dlp_part_*
     dlp_chunks_run                                    caller            yes
     dlp_pipe_release_after, dlp_batch_dlpack*         caller            yes
     the deleter of a tensor                           any               yes; and after close
     dlp_device_cuda, _opencl, _describe, _close       any               yes; not under start, close
     dlp_hash, dlp_permutation_*, dlp_code_*,          any               yes
     dlp_mix_*, dlp_buckets_*                          any               yes; close behind pipes
     dlp_files_open, _backend, _worker_bytes, _close   any               yes; close behind pipes
     dlp_files_wire, _async                            any               before its pipes start
     dlp_s3_*: in dlpipe_s3.h, beside each
     dlp_error_format, dlp_plan_format,                any               yes
     dlp_stats_explain, dlp_stats_predict, dlp_ranks_from_env

     callback                     runs in
     fetch, load (chunks, parts), the stage's threads, several at once; inline: the caller's next;
     item, batch maps, collate    fetch, with DLP_FETCH_THREADS: in_flight threads of each worker
     async submit, reap           the stage's threads, each for its own worker_state
     locate, decode of files      as fetch; with DLP_FETCH_ASYNC the worker itself, one at a time
     download (files as parts)    in load, one at a time for each file
     count (parts)                dlp_pipe_add_parts
     worker_init, worker_exit     the worker itself; inline: start and close
     sampler.function             item workers and their DLP_FETCH_THREADS, several at once: must be
                                  pure; while it runs no other item of its worker is completed
     batch sampler, bucket length the caller (start, next, release, next_epoch, seek), or, if
                                  threaded, one thread; with desc.resume its first calls in start
     on_step, on_epoch            dlp_chunks_run
     device                       open, alloc: start; free, close: close; copy, record, done: the
                                  transfer thread, or next
     log                          start, close

   A callback may block. It must not call next, release or close of its own pipe, and must not
   leave by longjmp or an exception. Any number of pipes may live in a process. A child that was
   forked after start has none of the workers: there every call returns DLP_ERR_FORKED (Linux).
   The library installs no signal handlers and blocks no signals.

   >>memory     ERRORS, LOG, MEMORY
   0 is OK, positive codes are flow control, negative ones are errors. Outputs are untouched after a
   failure. The first error of a pipe stays: next, next_epoch and the calls before start return its
   code from then on, and dlp_pipe_error has the record (stage, worker, item, errno, words). A pipe
   in error can be looked at, its state can be saved, held batches can be released; then it is
   closed. The library never prints, exits or aborts. Warnings go to desc.log, and the first eight
   to dlp_pipe_warning. None of its descriptors is 0, 1 or 2, in a program that closed these either.

     when         allocates
     open         the pipe's record; nothing per batch
     add_*        a copy of affinity; 8 bytes for each part
     dlp_mix_open, dlp_buckets_open, dlp_files_open: records of their own, that pipes then borrow
     plan         nothing: the bytes of what start would allocate, line by line
     start        one region (a sealed memfd on Linux, else anonymous memory) with slots, cells,
                  counters and trace rings; the process's own records; device buffers; threads
     workers      what worker_init does; those of >>files dlp_files_worker_bytes, as they begin; of
                  a source of objects dlp_s3_source_worker_bytes, and its dlp_s3_io
     next .. stop nothing
     write_*      for the length of the call
     close        frees it all, or, with batches held, the last release does

   start holds the plan against limit_bytes, the budget, what the memory cgroup leaves, MemAvailable
   and the address space, and fails with the sum before anything is allocated. Sums and products of
   a plan stop at UINT64_MAX.

   >>options    COMPILE-TIME OPTIONS
   [impl] where DLPIPE_IMPLEMENTATION is defined; [all TUs] in every file that includes this.

     DLPIPE_IMPLEMENTATION  [one TU]   compile the functions here
     DLPIPE_STATIC          [all TUs]  every function is static; each file that uses the library
                                       has an implementation of its own
     DLPIPE_CUDA            [impl]     dlp_device_cuda, which looks for libcuda.so.1 when called
     DLPIPE_OPENCL          [impl]     dlp_device_opencl, likewise libOpenCL.so.1; both want -ldl
                                       where libc has dlopen apart
     DLPIPE_NO_FUTEX        [impl]     mutex and condition variables in place of futexes (so outside
                                       Linux). Wake-ups cost more; dlp_pipe_stop is then not for
                                       signal handlers
     DLPIPE_NO_MEMBARRIER   [impl]     queues: one more atomic read-modify-write for each burst
     DLPIPE_NO_MEMFD        [impl]     the region is anonymous memory
     DLPIPE_NO_URING        [impl]     >>files reads by threads
     DLPIPE_NO_SIMD         [impl]     no AVX2; shuffled orders are computed slower, same numbers
     DLPIPE_NO_INT128       [impl]     no __int128: same numbers, slower
     DLPIPE_DEBUG           [impl]     a callback that writes past its row, part, chunk or batch is
                                       an error that names it; released batches are overwritten.
                                       On by itself under the address sanitizer (see below)
     DLPIPE_NO_DEBUG        [impl]     not even then

   With DLPIPE_DEBUG fetch and item maps write into a cell of the worker's own that has 256 guard
   bytes on both sides of each field; the row is copied in before the callback, and out behind it.
   Parts, chunks and batches have guard bytes around each field where they lie. Behind each callback
   they are looked at, and one that has changed is DLP_ERR_CORRUPT: "fetch wrote 4 bytes past field
   "x" of item 7". No policy retries it or leaves it out. Not seen: a write that jumps over the
   guard bytes, or to other rows of the callback's own chunk or batch; a byte, if it is the very one
   that lay there. release fills what it takes back with 0xdb (not: batches on a device, chunks that
   stay, batches for consumers in other processes); under the address sanitizer a touch of it is
   reported until somebody begins with the next batch there. Orders, bytes and states stay the same.
   It costs two copies of each row, 0.15 us or so for each field of an item, a memset of each batch,
   and in the plan "guarded cells", one for each item that can be in a callback at once, and larger
   cells. Without it none of this is in the code.

   The implementation defines _GNU_SOURCE while it is compiled; so it comes before the first system
   header (an include of this one without it counts, too), or the file is compiled with
   -D_GNU_SOURCE. It is C11 for gcc and clang (C17 and C23 as well), for 64-bit targets; C++11 and
   later may include the declarations. Whatever else is tried ends with one #error that says what to
   do.

   >>limits     LIMITS AND CAVEATS
   * 64-bit Linux first (LP64); other POSIX systems are kept in mind, Windows is not. 32-bit targets
     and compilers other than gcc and clang are refused by an #error.
   * batch_size is the GLOBAL batch: of world_size ranks each gets batch_size / world_size rows. The
     last batch of an epoch may give ranks different counts, 0 among them (DLP_LAST_SHORT).
   * A thread cannot be killed. A callback that never returns makes close give up after
     close_timeout_ms with DLP_ERR_BUSY, which names it; the memory is kept, and close can be tried
     again. deadline_ms reports such a callback while next waits; it does not end it.
   * DLP_PLACE_PROCESSES needs dlpipe_shm.h; without it it is refused with DLP_ERR_UNSUPPORTED.
   * Sleeping workers look round, should a wake-up have been lost: of each 32 the first asleep every
     100 ms, the others, who rely on it, every 1 s. Idle threads that all looked ten times a second
     would cost more than waiting may (0.1 % of a core).
   * fills_rows = 0 zeroes every row before fetch, so that bytes that no callback wrote are zero. It
     costs a memset of each row; fetch that writes every byte says fills_rows = 1.
   * A row that DLP_ON_ERROR_REPLACE filled shows an item that may come twice in that epoch.
   * A worker with several items in flight claims them one by one: for items that wait, not for
     such as take a microsecond.
   * Where batches go to workers in turn (classic, concurrent), one slow worker holds up the order
     for all, as it does in other loaders; in the economic topology others take its items.
   * A stage of the user's is 1:1: it may leave items out, but not make three of two. (Batches of
     as many tokens as fit: >>buckets, dlp_collate_pack.)
   * Views into chunks come in order, to one caller: no unordered, no consumers in other processes,
     no ragged fields, no collate. Chunks that stay (preload) keep their rows in one order. A batch
     never crosses a chunk.
   * A part queue holds whole parts: queue_size x max_part_bytes. It loads a part once more where
     two streams have a share of it, and each epoch anew, but for parts still in their cells. A part
     that can't be loaded is tried again in the next epoch. queue_size is held against the worst
     order that the counts allow, before the start.
   * A stream comes in the order of its indices, without much that wants a length: >>streams.
   * Sources of >>files and of objects, and dlp_chunks_open, are not for worker processes that begin
     by exec.
   * At most 16 stages, 16 fields, 1024 workers a stage, 2^20 rows a batch, 2^48 items;
     prefetch_factor 4096 (320 if unordered), max_held 256 (63 with a transfer stage).
   * An order never changes under its name: tests pin its numbers. A better one gets a new name.

   Decided this way, because:
   * Workers claim runs of rows by compare-and-swap on the run's own word, and that word is the only
     record of it: an index popped from a shared queue first and recorded later would be lost with a
     worker that dies in between. done words have 32 rows and the batch's generation beside them, so
     that one swap completes rows and refuses those of an older batch; a count-down could not be
     done twice. A run takes what costs about 8 us, at most 32 rows: short items would be all claim,
     and long ones in runs would leave the other workers idle.
   * Items for a collate have cells of their own, prefetch_factor of them, since what a collate
     reads and what it writes may differ in shape; a plan shows them on a line.
   * Workers with items in flight look for new batches every ms, also while they wait for what is
     out: a bell that ends the wait of a source (a poll, an io_uring, a library's own) does not
     exist for all sources, and 1 ms is little where items take longer than that.
   * All workers_max of a tuned stage exist from the start, and are parked: what is started later
     could fail, would allocate, and would fork in the middle of a run.
   * Rank r of W gets rows r * n / W and so on of each global batch, and streams r * C / W and so on
     of a part queue, rather than every W-th of them: its rows are neighbours, and a global batch is
     the ranks' batches laid end to end, whatever W is.
   * A part queue wants the number of items in each part before it starts (items, count), also with
     steps_per_epoch: only so are order, state and the worst need of cells known. Who cannot know
     them has a stream.
   * Whole batches for each worker, and many items at once in one, are rules of claiming, not other
     machinery: what order, recovery, resume and policies rest on is the claim word alone. With many
     in flight a unit is one row, so that each completes by itself.
   * Of many in flight any may have killed its process. Each of them counts one death, and is then
     run alone: so an innocent is never blamed twice. (max_kills of 1 therefore means 2 there.)
   * A batch is fed only when its parts are loaded, so no item worker ever waits for one, and no
     part needs a count of its readers: it may go when the batches fed with it have gone. The feeder
     computes the indices of such a batch (it has the tables anyhow), so workers, in processes too,
     need nothing but the cell that a row comes from.
   * A map changes its cell in place, and half of a change may have been made. So a retry, and the
     death of a worker process, send a row back to fetch, and a batch to its collate (whose item
     cells are kept until then) or to fetch, unless the map says that it is idempotent.
*/

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* asked for here, before the first system header; taken back at the end */
#define DLPI_ASKED_GNU_SOURCE
#endif

#ifndef DLPIPE_H
#define DLPIPE_H

#ifdef DLPIPE_S3_ALONE
#error "include dlpipe.h before dlpipe_s3.h"
#endif
#if !defined(__GNUC__)
#error dlpipe.h wants gcc or clang, for their builtins of atomics: compile with one of them
#elif __SIZEOF_POINTER__ != 8 || !defined(__linux__)
#error dlpipe.h wants 64-bit Linux: compile for that, without -m32 or -mx32
#endif

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DLPDEF
#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 1
#define DLPIPE_VERSION_PATCH 0

/* DLPIPE_STATIC [impl and all TUs]: make every function static, for use inside one file. */
#ifdef DLPIPE_STATIC
#define DLPDEF static __attribute__((unused))
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>errors     CODES AND ERROR RECORDS
   0 is OK, positive is flow control, negative is an error. */

#ifndef DLP_CODES
#define DLP_CODES(X) \
    X(OK, 0, "ok", "") \
    X(FULL, 1, "queue is full", "take records out, or wait") \
    X(EMPTY, 2, "queue is empty", "put records in, or wait") \
    X(TIMEOUT, 3, "nothing came within the time-out", "call again, or look at dlp_pipe_explain") \
    X(END, 4, "no more batches", "close the pipe") \
    X(EPOCH_END, 5, "an epoch ended", "call next again for the next epoch") \
    X(STOPPED, 6, "the pipe was stopped", "close the pipe") \
    X(SKIP, 7, "this item is left out", "returned by a callback, see the error policies") \
    X(ERR_ARG, -1, "a parameter or desc field is out of range", "") \
    X(ERR_MEMORY, -2, "memory could not be had", "ask for fewer or smaller batches") \
    X(ERR_LIMIT, -3, "the plan is above a byte limit", "lower prefetch_factor or batch_size") \
    X(ERR_GRAPH, -4, "the stages do not form a pipeline", "add them in order, or link them") \
    X(ERR_STATE, -5, "a call came at the wrong time", "see the function's documentation") \
    X(ERR_HELD, -6, "max_held batches are held already", "release one, or raise max_held") \
    X(ERR_CALLBACK, -7, "a callback failed", "") \
    X(ERR_LENGTH, -8, "a callback wrote a wrong length", "") \
    X(ERR_DEADLINE, -9, "a callback is past its deadline", "raise deadline_ms") \
    X(ERR_BUSY, -10, "a callback is still running", "call close again when it has returned") \
    X(ERR_RESUME, -11, "a saved state does not fit", "open the pipe as it was then") \
    X(ERR_CORRUPT, -12, "shared memory or a state is damaged", "do not use it") \
    X(ERR_SYSTEM, -13, "a system call failed", "") \
    X(ERR_DEVICE, -14, "the device backend failed", "") \
    X(ERR_BUDGET, -15, "more items failed than max_skips allows", "mend the data or raise it") \
    X(ERR_UNSUPPORTED, -16, "not available on this system", "") \
    X(ERR_KILLED, -17, "worker processes were killed", "") \
    X(ERR_FORKED, -18, "this process is a fork of the owner", "use the pipe where it began") \
    X(ERR_REMOTE, -19, "the server refused, or did not answer", "")

enum {
#define DLPI_X(name, value, text, hint) DLP_##name = value,
    DLP_CODES(DLPI_X)
#undef DLPI_X
        DLP_CODES_END_ = 127
};

/* Special values. Zero always means the documented default. */
#define DLP_NONE (-1)    /* none of it */
#define DLP_FOREVER (-2) /* without end */
#define DLP_NOWAIT (-1)  /* for time-outs: do not wait */
#endif

#define DLP_MAX_FIELDS 16
#define DLP_MAX_DIMS 8
#define DLP_MAX_STAGES 16
#define DLP_MAX_WORKERS 1024 /* per stage */

/* What went wrong first, with its place. Strings are always terminated. Fields that do not apply
   are 0, worker -1. */
typedef struct dlp_error {
    int32_t code;     /* DLP_ERR_*, or 0 */
    int32_t errnum;   /* errno, or 0 */
    int32_t worker;   /* worker number in its stage, -1: none */
    int32_t has_item; /* 1: index, epoch, position say which item */
    uint64_t index, epoch, position;
    char stage[32];    /* stage name, or "" */
    char field[48];    /* desc or dataset field at fault, or "" */
    char message[256]; /* what happened, in words; the user's own message where there is one */
} dlp_error;

/* Name ("DLP_ERR_ARG"), text and hint of a code ("": it has none); "unknown code" for others. Any
   thread. */
DLPDEF const char *dlp_code_name(int code);
DLPDEF const char *dlp_code_text(int code);
DLPDEF const char *dlp_code_hint(int code);

/* Write one line that says all an error record knows, what errno means, and the hint if there is
   one; of a record without an error, its code 0. Returns the length that the whole line has, like
   snprintf. err, buf: borrowed. Any thread. */
DLPDEF int dlp_error_format(const dlp_error *err, char *buf, size_t size);

/* ---------------------------------------------------------------------------------------------
   >>atomics    THE ONE SHIM OVER THE COMPILER'S ATOMICS
   Here, before the queues, whose fast paths are inline in every file that includes this header.
   Each use carries a label and names its partner. A checker may define these before inclusion. */
#ifndef DLPI_LINE
#ifndef DLPI_LOAD_RLX
#define DLPI_LOAD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define DLPI_LOAD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define DLPI_STORE_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_SEQ(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_RLX(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DLPI_OR_SEQ(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_AND_SEQ(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Strong compare-and-swap; *e gets the value found on failure. */
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif

/* Keep the compiler from moving memory accesses across; no instruction. Only where the other side
   issues a heavy barrier (see dlpi_await), or for a crash to see stores in program order. */
#ifndef DLPI_KEEP_ORDER
#define DLPI_KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

#define DLPI_LINE 128u /* two cache lines: the adjacent-line prefetcher moves pairs */
#define DLPI_UNUSED(x) ((void)(x))
#define DLPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DLPI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#ifdef __OPTIMIZE__
#define DLPI_INLINE static inline __attribute__((always_inline))
#else /* without optimisation gcc warns of branches that it has not yet seen to be dead */
#define DLPI_INLINE static inline __attribute__((unused))
#endif

DLPI_INLINE void dlpi_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* A word of a record, whatever type the user sees there. */
typedef uint64_t __attribute__((may_alias)) dlpi_word;
#endif

/* ---------------------------------------------------------------------------------------------
   >>queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   A lane carries records of one size from one producer to one consumer; a bundle is a lane per
   producer with one consumer. Both live in memory that the caller gives, of DLP_QUEUE_ALIGN
   alignment, which may be a mapping shared by processes (shared = 1); in it are only offsets, never
   pointers. Who uses a queue attaches to it and gets a handle: an ordinary struct in memory of his
   own, used by one thread at a time. A successor (of a thread, or of a process that died) attaches
   again and goes on where the published counters are: records not yet published are lost with the
   producer, and records taken by the consumer since its counter was last published come again.

     static unsigned char mem[...] aligned to DLP_QUEUE_ALIGN, dlp_spsc_bytes(8, 1024) long
     dlp_spsc_init(mem, sizeof mem, 8, 1024, 0);
     producer: dlp_spsc_tx tx; dlp_spsc_attach_tx(&tx, mem, sizeof mem);
               dlp_spsc_push(&tx, &value, DLP_FOREVER);
     consumer: dlp_spsc_rx rx; dlp_spsc_attach_rx(&rx, mem, sizeof mem);
               dlp_spsc_pop(&rx, &value, DLP_FOREVER);

   try_ never waits. Calls with timeout_ms wait: 0 or DLP_FOREVER without end, DLP_NOWAIT not at
   all. A waiter spins, then yields if there are more peers than cores, then sleeps; spin_ns and
   yields of the handle say how long and may be changed between calls. A producer that sleeps is
   woken when half of the ring is free. Every sleep ends after 100 ms at most, to look again.
   Memory that others write is not trusted: counters out of range make a call return
   DLP_ERR_CORRUPT, and no address is ever computed from them. */

#define DLP_QUEUE_ALIGN 128          /* alignment of the memory of a queue */
#define DLP_QUEUE_MAX_RECORD 1048576 /* record bytes */
#define DLP_QUEUE_MAX_CAPACITY (UINT64_C(1) << 32)
#define DLP_MPSC_MAX_PRODUCERS 4096

/* A lane as it lies in memory, followed by its slots. Blocks of 128 bytes, one writer each. For
   looking; use the calls below. Counters run free and wrap at 2^64. */
typedef struct dlp_spsc {
    uint64_t magic; /* written last by init; read-only from then on */
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity;     /* records, a power of two */
    uint64_t slots_offset; /* from the lane's beginning */
    uint64_t total_bytes;
    unsigned char pad0[80];
    uint64_t tail; /* records pushed; written by the producer */
    unsigned char pad1[120];
    uint64_t head; /* records taken, published from time to time; by the consumer */
    unsigned char pad2[120];
    uint32_t producer_bell; /* futex word: the producer sleeps */
    unsigned char pad3[124];
    uint32_t consumer_bell; /* futex word: the consumer sleeps (a bundle has its own) */
    unsigned char pad4[124];
} dlp_spsc;

/* Producer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_tx {
    uint64_t tail;      /* next record's number */
    uint64_t head_seen; /* the consumer's counter when last read */
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint32_t *bell; /* of the consumer */
    uint64_t reserved;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields; /* before sleeping; may be changed */
    unsigned char pad[184];   /* two handles side by side share no line */
} dlp_spsc_tx;

/* Consumer's handle. Private to one thread at a time. */
typedef struct dlp_spsc_rx {
    uint64_t head;      /* next record's number */
    uint64_t tail_seen; /* the producer's counter when last read */
    uint64_t published; /* what lane->head says */
    uint64_t publish_every;
    uint64_t capacity;
    unsigned char *slots;
    dlp_spsc *lane;
    uint64_t peeked;
    uint32_t record_bytes, shared;
    uint32_t spin_ns, yields;
    uint32_t slip, slip_most; /* pauses before a look, see dlpi_spsc_look_rx */
    unsigned char pad[168];
} dlp_spsc_rx;

/* A bundle as it lies in memory, followed by ready words, owner words and lanes. */
typedef struct dlp_mpsc {
    uint64_t magic;
    uint32_t version, layout;
    uint32_t record_bytes, shared;
    uint64_t capacity; /* records of each lane */
    uint32_t producers, ready_words;
    uint64_t ready_offset, owners_offset, lanes_offset, lane_bytes, total_bytes;
    unsigned char pad0[48];
    uint32_t consumer_bell;
    unsigned char pad1[124];
} dlp_mpsc;

/* A producer's handle of a bundle: a lane's, and where to say that the lane is ready. */
typedef struct dlp_mpsc_tx {
    dlp_spsc_tx lane;
    uint64_t *ready; /* NULL: 16 producers or fewer */
    uint64_t ready_bit;
    uint32_t *owner;
} dlp_mpsc_tx;

/* The consumer's handle of a bundle. */
typedef struct dlp_mpsc_rx {
    dlp_spsc_rx *at;  /* lane in turn */
    uint32_t left;    /* records it may still give in this turn */
    uint32_t quantum; /* records of a turn: 64; may be changed, 1 or more */
    uint32_t turn;    /* its number */
    uint32_t producers, ready_words, word;
    uint64_t bits; /* lanes of ready word `word` still to visit */
    uint64_t finds;
    dlp_spsc_rx *lanes;
    dlp_mpsc *bundle;
    uint32_t shared, spin_ns, yields;
    unsigned char pad[128];
} dlp_mpsc_rx;

/* Bytes that a lane takes. record_bytes: a multiple of 8, 8..DLP_QUEUE_MAX_RECORD; capacity: a
   power of two, 1..DLP_QUEUE_MAX_CAPACITY. Returns 0 if either is out of range. Any thread. */
DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity);

/* Make an empty lane in mem. mem: borrowed, aligned to DLP_QUEUE_ALIGN; shared: 1 if more than one
   process will use it. Returns DLP_OK, DLP_ERR_ARG (also if bytes are too few). Before anybody
   attaches. Does not wait or allocate. */
DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         int shared);

/* Become the producer (the consumer) of the lane in mem. bytes: what is mapped there. Returns
   DLP_OK, DLP_ERR_ARG, DLP_ERR_CORRUPT if what lies there is no lane of this version and layout
   that fits in bytes. One of each at a time. Makes system calls; does not allocate. */
DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes);
DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes);

/* Wait until a record can be pushed (popped). Returns DLP_OK, DLP_TIMEOUT, or DLP_ERR_CORRUPT.
   Sleeps when it has to. Source: event counts (Reed, Kanodia 1979). */
DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms);
DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms);

/* Push n records, in pieces as room comes. Returns how many were pushed: n, or fewer when the time
   was up; DLP_ERR_CORRUPT. Waits. */
DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms);

/* Pop 1 to max records. Returns how many; 0 when the time was up; DLP_ERR_CORRUPT. Waits. */
DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms);

/* The same for bundles. producers: 1..DLP_MPSC_MAX_PRODUCERS; capacity: of each producer's lane. */
DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers);
DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         uint32_t producers, int shared);

/* Become producer number `producer`, or, with DLP_NONE, any that nobody has claimed. The first form
   takes the place from its owner, who must be gone. Returns the number;
   DLP_ERR_ARG, DLP_ERR_CORRUPT, DLP_ERR_BUSY when all are claimed. Any thread. */
DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer);
/* Give the place back for others to claim. What was pushed stays. */
DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx);

/* Become the consumer. lanes: [n_lanes] borrowed as long as rx is used; n_lanes at least the number
   of producers, else DLP_ERR_ARG. */
DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes, void *mem,
                              uint64_t bytes);
DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms);
DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms);
DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms);
DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms);

/* For the inline calls below. */
DLPDEF void dlpi_bell_ring(uint32_t *bell, uint32_t shared);
DLPDEF void dlpi_spsc_room_bell(dlp_spsc_rx *rx);
DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx);

/* ---- the calls on the fast path, inline in every file that includes this header ----

   Labelled atomics of a lane:
     label  where                   access          partner, and what it carries
     D1     slot words, producer    store relaxed   plain reads behind T2; one store, not torn
     T1     lane->tail, producer    store release   T2: the records below it are written
     T2     lane->tail, consumer    load acquire    T1
     H1     lane->head, consumer    store release   H2: the slots below it may be written again
     H2     lane->head, producer    load acquire    H1
     B1     a bell, waker           load relaxed    B3: ordered behind T1 or H1, see dlpi_await
     B2     a bell, waker           rmw seq_cst     B3: takes the sleeper bit, then wakes
     B3     a bell, sleeper         rmw seq_cst     B1, B2: before it looks again by T2 or H2
     M1     magic, init             store release   M2: the header is written
     M2     magic, attach           load acquire    M1
   Why full, empty and wrap are right:
   1 tail and head run free over 2^64 and only ever grow; tail - head, modulo 2^64, is the number of
     records in the ring, 0..capacity, whatever the counters' values. A capacity that is a power of
     two divides 2^64, so that a counter's low bits go on in step over the wrap.
   2 The producer alone writes tail and the slots in [tail, head + capacity); the consumer alone
     writes head.
   3 head_seen is an old head: head_seen <= head <= tail. tail - head_seen == capacity may be a
     false "full", never a false "room"; full is reported only after H2 has looked again.
   4 tail_seen likewise: empty is reported only after T2 has looked again.
   5 T1 -> T2: what the consumer reads in [head, tail_seen) was written before that tail.
   6 H1 -> H2: a slot that the producer writes again was read before that head.
   7 The consumer publishes head after an eighth of the ring, and always before it reports empty;
     the producer publishes tail in every call. So neither waits for what the other keeps to
     itself, unless a consumer stops between pops without calling dlp_spsc_publish: then the
     producer misses less than an eighth of the ring.
   8 A counter read from memory is used only if tail - head <= capacity, and slots are addressed by
     the private counter alone.
   Progress: the try_ calls, reserve, commit, peek and release are wait-free, but for the one system
   call that wakes a sleeper. A crash between any two instructions leaves the lane as it was before
   the call or after it. */

DLPI_INLINE unsigned char *dlpi_slot(unsigned char *slots, uint64_t capacity, uint64_t number,
                                     uint32_t record_bytes) {
    return slots + (number & (capacity - 1)) * record_bytes;
}

/* Read the consumer's counter again. Returns how many records fit, or DLP_ERR_CORRUPT. */
DLPI_INLINE int64_t dlpi_spsc_look_tx(dlp_spsc_tx *tx) {
    uint64_t head = DLPI_LOAD_ACQ(&tx->lane->head); /* H2 <- H1 */
    uint64_t used = tx->tail - head;
    if (DLPI_UNLIKELY(used > tx->capacity)) return DLP_ERR_CORRUPT;
    tx->head_seen = head;
    return (int64_t)(tx->capacity - used);
}

/* Records that fit, as many as are known of if that is `want` at least. */
DLPI_INLINE int64_t dlpi_spsc_room(dlp_spsc_tx *tx, uint64_t want) {
    uint64_t room = tx->capacity - (tx->tail - tx->head_seen);
    return DLPI_LIKELY(room >= want) ? (int64_t)room : dlpi_spsc_look_tx(tx);
}

/* Publish n records that are written. One store, and one look at the bell. */
DLPI_INLINE void dlpi_spsc_publish_tx(dlp_spsc_tx *tx, uint64_t n) {
    tx->tail += n;
    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* T1 -> T2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->bell) != 0)) /* B1 <- B3 */
        dlpi_bell_ring(tx->bell, tx->shared);
}

/* Publish the consumer's counter now, which it else does after an eighth of the ring or when it
   finds the lane empty. For a consumer that stops for a while. Wait-free, but for waking. */
DLPI_INLINE void dlp_spsc_publish(dlp_spsc_rx *rx) {
    rx->published = rx->head;
    DLPI_STORE_REL(&rx->lane->head, rx->head); /* H1 -> H2 */
    DLPI_KEEP_ORDER();
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_bell) != 0)) /* B1 <- B3 */
        dlpi_spsc_room_bell(rx);
}

#define DLPI_SLIP_MOST 8u /* pauses, about 0.2 us */

/* Read the producer's counter again; publish ours if there is nothing. Returns how many records
   there are, or DLP_ERR_CORRUPT.
   Each look takes the line of tail from the producer, who pays for it at his next push. A consumer
   that is the faster one would look after every few records and slow both down; so while looks find
   some records, but less than an eighth of the ring, single pops let a few pauses more pass before
   the next look. One record at a time, as in a ping-pong, never slips. */
DLPI_INLINE int64_t dlpi_spsc_look_rx(dlp_spsc_rx *rx, uint32_t pauses) {
    for (; DLPI_UNLIKELY(pauses > 0); pauses--) dlpi_pause();
    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail); /* T2 <- T1 */
    uint64_t stock = tail - rx->head;
    if (DLPI_UNLIKELY(stock > rx->capacity)) return DLP_ERR_CORRUPT;
    rx->tail_seen = tail;
    if (stock < 2)
        rx->slip = stock == 0 ? rx->slip / 2 : 0;
    else if (stock < rx->publish_every && rx->slip < rx->slip_most)
        rx->slip++;
    if (stock == 0 && rx->published != rx->head) dlp_spsc_publish(rx);
    return (int64_t)stock;
}

DLPI_INLINE int64_t dlpi_spsc_stock(dlp_spsc_rx *rx, uint64_t want) {
    uint64_t stock = rx->tail_seen - rx->head;
    if (DLPI_LIKELY(stock >= want)) return (int64_t)stock;
    return dlpi_spsc_look_rx(rx, want == 1 ? rx->slip : 0);
}

/* Give n slots back. */
DLPI_INLINE void dlpi_spsc_take(dlp_spsc_rx *rx, uint64_t n) {
    rx->head += n;
    if (DLPI_UNLIKELY(rx->head - rx->published >= rx->publish_every)) dlp_spsc_publish(rx);
}

/* Copy a record into its slot, word by word: the caller has often just written it field by field,
   and a wider load would wait until those stores have left the store buffer, behind all earlier
   records on their way to the other core. Where the compiler sees how large the caller's object
   is, only the sizes that fit remain, and it has nothing to warn about. */
DLPI_INLINE void dlpi_put_words(void *slot, const void *record, uint64_t words) {
    dlpi_word *to = (dlpi_word *)slot;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)record + i * 8, 8);
        DLPI_STORE_RLX(to + i, word); /* D1, behind it T1 */
    }
}

DLPI_INLINE void dlpi_put_record(void *slot, const void *record, uint32_t bytes) {
    if (bytes == 8)
        dlpi_put_words(slot, record, 1);
    else if (bytes == 64 && __builtin_object_size(record, 0) >= 64)
        dlpi_put_words(slot, record, 8);
    else if (bytes == 16 && __builtin_object_size(record, 0) >= 16)
        dlpi_put_words(slot, record, 2);
    else if (bytes == 32 && __builtin_object_size(record, 0) >= 32)
        dlpi_put_words(slot, record, 4);
    else if (bytes <= 128 || __builtin_object_size(record, 0) <= 128)
        dlpi_put_words(slot, record, bytes / 8);
    else
        memcpy(slot, record, bytes);
}

DLPI_INLINE void dlpi_get_record(void *record, const void *slot, uint32_t bytes) {
    if (bytes == 8)
        memcpy(record, slot, 8);
    else if (bytes == 64 && __builtin_object_size(record, 0) >= 64)
        memcpy(record, slot, 64);
    else if (bytes == 16 && __builtin_object_size(record, 0) >= 16)
        memcpy(record, slot, 16);
    else if (bytes == 32 && __builtin_object_size(record, 0) >= 32)
        memcpy(record, slot, 32);
    else
        memcpy(record, slot, bytes);
}

/* Records that the caller has just written, by words of 8 bytes as a rule, into slots. libc copies
   with loads of 32 or 64 bytes, and a load that is wider than the stores before it waits until
   these have left the store buffer: some processors take twice as long for records of 64 bytes
   (18.5 ns instead of 9.3), where others gain a tenth. Word by word is never far from the best. One
   word is one store however it is copied, and of large records most has left the buffer. */
static inline void dlpi_put_records(void *slots, const void *records, uint64_t n,
                                    uint32_t record_bytes) {
    if (record_bytes == 8 || record_bytes > 256)
        memcpy(slots, records, n * record_bytes);
    else
        dlpi_put_words(slots, records, n * (record_bytes / 8));
}

/* Copy n records into the ring, or (out) from it, in one piece or two. */
static inline void dlpi_copy_in(unsigned char *slots, uint64_t capacity, uint64_t number,
                                uint32_t record_bytes, const void *records, uint64_t n) {
    uint64_t first = capacity - (number & (capacity - 1));
    if (first > n) first = n;
    dlpi_put_records(dlpi_slot(slots, capacity, number, record_bytes), records, first,
                     record_bytes);
    if (first < n)
        dlpi_put_records(slots, (const unsigned char *)records + first * record_bytes, n - first,
                         record_bytes);
}

static inline void dlpi_copy_out(const unsigned char *slots, uint64_t capacity, uint64_t number,
                                 uint32_t record_bytes, void *records, uint64_t n) {
    uint64_t at = number & (capacity - 1), first = capacity - at;
    if (first > n) first = n;
    memcpy(records, slots + at * record_bytes, first * record_bytes);
    if (first < n)
        memcpy((unsigned char *)records + first * record_bytes, slots, (n - first) * record_bytes);
}

/* Lend room for up to n records, one behind the other in memory. *records: where to write them,
   valid until commit or abort. Returns how many (fewer than n at the ring's end too), 0 if the lane
   is full, DLP_ERR_CORRUPT. Wait-free. */
static inline int64_t dlp_spsc_reserve(dlp_spsc_tx *tx, uint64_t n, void **records) {
    int64_t room = dlpi_spsc_room(tx, n);
    uint64_t at = tx->tail & (tx->capacity - 1);
    uint64_t most = tx->capacity - at < n ? tx->capacity - at : n;
    if (DLPI_UNLIKELY(room <= 0)) return room;
    if ((uint64_t)room < most) most = (uint64_t)room;
    tx->reserved = most;
    *records = tx->slots + at * tx->record_bytes;
    return (int64_t)most;
}

/* Publish the first n of the records reserved; the others are given up. Returns DLP_OK,
   DLP_ERR_ARG if fewer were reserved. Wait-free, but for waking. */
static inline int dlp_spsc_commit(dlp_spsc_tx *tx, uint64_t n) {
    if (DLPI_UNLIKELY(n > tx->reserved)) return DLP_ERR_ARG;
    tx->reserved = 0;
    if (n > 0) dlpi_spsc_publish_tx(tx, n);
    return DLP_OK;
}

/* Give up what was reserved. */
static inline void dlp_spsc_abort(dlp_spsc_tx *tx) { tx->reserved = 0; }

/* Push a copy of one record. Returns DLP_OK, DLP_FULL, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_push(dlp_spsc_tx *tx, const void *record) {
    int64_t room = dlpi_spsc_room(tx, 1);
    if (DLPI_UNLIKELY(room <= 0)) return room == 0 ? DLP_FULL : DLP_ERR_CORRUPT;
    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes), record,
                    tx->record_bytes);
    dlpi_spsc_publish_tx(tx, 1);
    return DLP_OK;
}

/* Push copies of up to n records. Returns how many, 0 if the lane is full, DLP_ERR_CORRUPT. One
   store publishes them all. Wait-free, but for waking. */
static inline int64_t dlp_spsc_try_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n) {
    int64_t room = dlpi_spsc_room(tx, n);
    if (DLPI_UNLIKELY(room <= 0 || n == 0)) return n == 0 ? 0 : room;
    if ((uint64_t)room < n) n = (uint64_t)room;
    dlpi_copy_in(tx->slots, tx->capacity, tx->tail, tx->record_bytes, records, n);
    dlpi_spsc_publish_tx(tx, n);
    return (int64_t)n;
}

/* Lend up to n records, one behind the other in memory, until release. Returns how many (fewer
   than n at the ring's end too), 0 if the lane is empty, DLP_ERR_CORRUPT. The records lie in
   memory that the producer can still write: between processes that do not trust each other copy,
   check, use. Wait-free. */
static inline int64_t dlp_spsc_peek(dlp_spsc_rx *rx, uint64_t n, const void **records) {
    int64_t stock = dlpi_spsc_stock(rx, n);
    uint64_t at = rx->head & (rx->capacity - 1);
    uint64_t most = rx->capacity - at < n ? rx->capacity - at : n;
    if (DLPI_UNLIKELY(stock <= 0)) return stock;
    if ((uint64_t)stock < most) most = (uint64_t)stock;
    rx->peeked = most;
    *records = rx->slots + at * rx->record_bytes;
    return (int64_t)most;
}

/* Give the first n of the peeked records back; the others are not taken. Returns DLP_OK,
   DLP_ERR_ARG if fewer were peeked. Wait-free, but for waking. */
static inline int dlp_spsc_release(dlp_spsc_rx *rx, uint64_t n) {
    if (DLPI_UNLIKELY(n > rx->peeked)) return DLP_ERR_ARG;
    rx->peeked = 0;
    dlpi_spsc_take(rx, n);
    return DLP_OK;
}

/* Pop one record into *record. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for
   waking. */
DLPI_INLINE int dlp_spsc_try_pop(dlp_spsc_rx *rx, void *record) {
    int64_t stock = dlpi_spsc_stock(rx, 1);
    if (DLPI_UNLIKELY(stock <= 0)) return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head, rx->record_bytes),
                    rx->record_bytes);
    dlpi_spsc_take(rx, 1);
    return DLP_OK;
}

/* Pop up to max records. Returns how many, 0 if the lane is empty, DLP_ERR_CORRUPT. Wait-free, but
   for waking. */
static inline int64_t dlp_spsc_try_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max) {
    int64_t stock = dlpi_spsc_stock(rx, max);
    if (DLPI_UNLIKELY(stock <= 0 || max == 0)) return max == 0 ? 0 : stock;
    if ((uint64_t)stock < max) max = (uint64_t)stock;
    dlpi_copy_out(rx->slots, rx->capacity, rx->head, rx->record_bytes, records, max);
    dlpi_spsc_take(rx, max);
    return (int64_t)max;
}

/* Push (pop) one record, waiting for room (for a record). Returns DLP_OK, DLP_TIMEOUT,
   DLP_ERR_CORRUPT. */
DLPI_INLINE int dlp_spsc_push(dlp_spsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_spsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_spsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_push(tx, record) : r;
}

DLPI_INLINE int dlp_spsc_pop(dlp_spsc_rx *rx, void *record, int timeout_ms) {
    int r = dlp_spsc_try_pop(rx, record);
    if (DLPI_LIKELY(r != DLP_EMPTY)) return r;
    r = dlp_spsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_spsc_try_pop(rx, record) : r;
}

/* Bundles. Labelled atomics beyond those of the lanes:
     label  where                       access         partner
     R1     a ready word, producer      load relaxed   R3: the bit is set already, nothing to do
     R2     a ready word, producer      rmw seq_cst    R3: behind T1
     R3     a ready word, consumer      rmw seq_cst    R2: cleared before the lanes are drained
     O1     an owner word               rmw seq_cst    O1: one claimer wins
   Ready bits are hints that save the consumer from looking at idle lanes. R1 may see a bit that R3
   is just clearing while T1 is on its way, and the hint is then lost; therefore every 64th search
   looks at all lanes, and so does every search that would else report empty. Hence empty is
   reported only after T2 found each lane empty, and a lane waits at most 64 turns.
   Order is kept per producer, not among producers. No producer waits for another. Progress as for
   lanes; a search takes as many steps as there are producers, at most. */

DLPI_INLINE void dlpi_mpsc_say_ready(dlp_mpsc_tx *tx) {
    if (tx->ready && !(DLPI_LOAD_RLX(tx->ready) & tx->ready_bit)) /* R1 <- R3 */
        DLPI_OR_SEQ(tx->ready, tx->ready_bit);                    /* R2 -> R3 */
}

/* These are dlp_spsc_ calls on the producer's own lane. */
DLPI_INLINE int dlp_mpsc_try_push(dlp_mpsc_tx *tx, const void *record) {
    int r = dlp_spsc_try_push(&tx->lane, record);
    dlpi_mpsc_say_ready(tx);
    return r;
}

static inline int64_t dlp_mpsc_try_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n) {
    int64_t done = dlp_spsc_try_push_burst(&tx->lane, records, n);
    dlpi_mpsc_say_ready(tx);
    return done;
}

static inline int64_t dlp_mpsc_reserve(dlp_mpsc_tx *tx, uint64_t n, void **records) {
    return dlp_spsc_reserve(&tx->lane, n, records);
}

static inline int dlp_mpsc_commit(dlp_mpsc_tx *tx, uint64_t n) {
    int r = dlp_spsc_commit(&tx->lane, n);
    dlpi_mpsc_say_ready(tx);
    return r;
}

static inline void dlp_mpsc_abort(dlp_mpsc_tx *tx) { dlp_spsc_abort(&tx->lane); }

DLPI_INLINE int dlp_mpsc_push(dlp_mpsc_tx *tx, const void *record, int timeout_ms) {
    int r = dlp_mpsc_try_push(tx, record);
    if (DLPI_LIKELY(r != DLP_FULL)) return r;
    r = dlp_mpsc_wait_tx(tx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_push(tx, record) : r;
}

/* Have a lane with records in turn. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
DLPI_INLINE int dlpi_mpsc_turn(dlp_mpsc_rx *rx) {
    if (DLPI_LIKELY(rx->left > 0 && rx->at->tail_seen != rx->at->head)) return DLP_OK;
    return dlpi_mpsc_find(rx);
}

/* Pop one record of some producer, in turns of `quantum` records. *producer (may be NULL): whose.
   Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. Wait-free, but for waking. */
DLPI_INLINE int dlp_mpsc_try_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK)) return r;
    rx->left--;
    if (producer) *producer = rx->turn;
    return dlp_spsc_try_pop(rx->at, record);
}

/* Lend up to n records of one producer until dlp_mpsc_release. As dlp_spsc_peek. */
static inline int64_t dlp_mpsc_peek(dlp_mpsc_rx *rx, uint64_t n, const void **records,
                                    uint32_t *producer) {
    int r = dlpi_mpsc_turn(rx);
    if (DLPI_UNLIKELY(r != DLP_OK)) return r == DLP_EMPTY ? 0 : r;
    if (producer) *producer = rx->turn;
    return dlp_spsc_peek(rx->at, n < rx->left ? n : rx->left, records);
}

static inline int dlp_mpsc_release(dlp_mpsc_rx *rx, uint64_t n) {
    int r = dlp_spsc_release(rx->at, n);
    if (r == DLP_OK) rx->left -= (uint32_t)n;
    return r;
}

/* Pop up to max records, of several producers if need be. Returns how many, 0: empty;
   DLP_ERR_CORRUPT. */
static inline int64_t dlp_mpsc_try_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max) {
    unsigned char *to = (unsigned char *)records;
    uint64_t done = 0;
    while (done < max) {
        int r = dlpi_mpsc_turn(rx);
        if (r != DLP_OK) return done > 0 || r == DLP_EMPTY ? (int64_t)done : r;
        uint64_t n = max - done < rx->left ? max - done : rx->left;
        uint64_t stock = rx->at->tail_seen - rx->at->head;
        n = n < stock ? n : stock;
        dlpi_copy_out(rx->at->slots, rx->at->capacity, rx->at->head, rx->at->record_bytes,
                      to + done * rx->at->record_bytes, n);
        dlpi_spsc_take(rx->at, n);
        rx->left -= (uint32_t)n;
        done += n;
    }
    return (int64_t)done;
}

DLPI_INLINE int dlp_mpsc_pop(dlp_mpsc_rx *rx, void *record, uint32_t *producer, int timeout_ms) {
    int r = dlp_mpsc_try_pop(rx, record, producer);
    if (DLPI_LIKELY(r != DLP_EMPTY)) return r;
    r = dlp_mpsc_wait_rx(rx, timeout_ms);
    return r == DLP_OK ? dlp_mpsc_try_pop(rx, record, producer) : r;
}

/* ---------------------------------------------------------------------------------------------
   >>order      HASHES, KEYED PERMUTATIONS
   Everything here is a pure function of its arguments: the same numbers on every machine and
   compiler, for ever. A better algorithm will get a new name. */

/* Mix four numbers into 64 well-mixed bits.
   seed, a, b, c: any values; their order matters - returns the hash - any thread, never waits
   source: one round per word of "Mix13", D. Stafford, Better Bit Mixing (2011), the finaliser of
   SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014). */
DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

#define DLP_PERMUTATION_TABLE 1024 /* smaller permutations are tables */
#define DLP_PERMUTATION_ROUNDS 10  /* at most */

/* A keyed permutation of 0..n-1, in the caller's memory. Read n, seed and epoch; leave the rest.
   After init it is read-only, holds no pointer and may be copied and shared. */
typedef struct dlp_permutation {
    uint64_t n, seed, epoch;                  /* as given to init */
    uint32_t right_bits;                      /* a number is left << right_bits | right */
    uint32_t left_values;                     /* left is 0..left_values-1 */
    uint32_t rounds;                          /* 0: table */
    uint32_t simd;                            /* which code runs a block; never which numbers */
    uint32_t key[2 * DLP_PERMUTATION_ROUNDS]; /* two of each round */
    uint16_t table[DLP_PERMUTATION_TABLE];    /* n < DLP_PERMUTATION_TABLE: all images */
} dlp_permutation;

/* Choose the permutation of 0..n-1 that belongs to (n, seed, epoch).
   p: written whole; n: 1..2^48; seed, epoch: any values - returns 0, or DLP_ERR_ARG with p
   untouched - any thread - never waits or allocates; some microseconds below DLP_PERMUTATION_TABLE
   numbers, else a tenth of one
   source: Fisher-Yates (Durstenfeld, CACM 7/1964) for tables; else a Feistel network on Z_a x Z_b
   with cycle walking (Black, Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002). */
DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);

/* Return the number at a position.
   position: 0..n-1 - returns UINT64_MAX for others - any thread - never waits. */
DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position);

/* Return the position of a number: the inverse of dlp_permutation_at.
   value: 0..n-1 - returns UINT64_MAX for others - any thread - never waits; below
   DLP_PERMUTATION_TABLE numbers looks through the table. */
DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value);

/* Write the numbers at positions first .. first+count-1: as dlp_permutation_at, several times as
   fast where the processor has AVX2.
   first, count: any; UINT64_MAX is written for positions of n or more; out: [count], borrowed - any
   thread - never waits. */
DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out);

/* ---------------------------------------------------------------------------------------------
   >>dataset    FIELDS, DATASETS, ITEMS */

/* Element type: DLPack's type code and bits (https://dmlc.github.io/dlpack). */
typedef uint32_t dlp_dtype;
#define DLP_DTYPE(code, bits) ((uint32_t)(code) << 16 | (uint32_t)(bits))
#define DLP_U8 DLP_DTYPE(1, 8)
#define DLP_U16 DLP_DTYPE(1, 16)
#define DLP_U32 DLP_DTYPE(1, 32)
#define DLP_U64 DLP_DTYPE(1, 64)
#define DLP_I8 DLP_DTYPE(0, 8)
#define DLP_I16 DLP_DTYPE(0, 16)
#define DLP_I32 DLP_DTYPE(0, 32)
#define DLP_I64 DLP_DTYPE(0, 64)
#define DLP_F16 DLP_DTYPE(2, 16)
#define DLP_F32 DLP_DTYPE(2, 32)
#define DLP_F64 DLP_DTYPE(2, 64)
#define DLP_BF16 DLP_DTYPE(4, 16)
#define DLP_BOOL DLP_DTYPE(6, 8)

/* One array of an item. An item of a fixed-size field has shape[0..ndim-1]; ndim 0 is a scalar.
   Of a ragged field (ragged = 1) shape[0] is the most rows an item may have; its cell has room for
   all of them, and what an item leaves free is zeroed. */
typedef struct dlp_field {
    const char *name;            /* copied; required, unique, 1..31 bytes */
    dlp_dtype dtype;             /* 0: DLP_U8, with a warning */
    int32_t ndim;                /* 0..DLP_MAX_DIMS-1 */
    int64_t shape[DLP_MAX_DIMS]; /* elements, each 1 or more */
    int32_t ragged;              /* 1: an item's first dimension varies from 0 to shape[0] */
    int64_t max_per_batch;       /* ragged with a collate: most rows (of dimension 0, all items
                                        together) in a batch; 0: batch rows * shape[0] */
} dlp_field;

/* An item that a callback is to write or change. Valid during the call only. */
typedef struct dlp_item {
    uint64_t index; /* dataset index */
    uint64_t epoch;
    uint64_t position; /* place in the epoch's global order */
    uint32_t row;      /* row in its batch */
    uint32_t attempt;  /* 0, then 1.. for each retry, in whichever stage */
    uint32_t n_fields;
    uint32_t worker;    /* worker number in its stage */
    void *worker_state; /* what worker_init left */
    void **data;        /* [n_fields] where each field of this item is, aligned to its dtype */
    uint64_t *length;   /* [n_fields] ragged fields: rows written, to be set by fetch; in an item
                            map: as the stage before left it. Fixed-size fields: leave it 0 */
    uint64_t seed;      /* the sampler's seed */
    void *internal;
    const struct dlp_part *part; /* fetch behind a part queue: the part that has this item, else
                            NULL */
} dlp_item;

/* Return a random number for augmenting this item, from (seed, epoch, position) alone: the same
   whatever worker runs it.
   salt: any, tells several draws apart - any thread - never waits. Source: dlp_hash. */
DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt);

/* Say why a callback fails.
   errnum: errno or 0; format: as printf's, cut at 255 bytes - returns DLP_ERR_CALLBACK, to be
   returned by the callback - inside the callback only, with its own item - does not wait. */
DLPDEF int dlp_item_fail(const dlp_item *item, int errnum, const char *format, ...);

/* Write the item (fetch), or change it in place (an item map).
   user: dataset.user, or the map's - returns 0, DLP_SKIP to leave the item out (with
   DLP_ON_ERROR_REPLACE: to have another in its place), DLP_END where a stream has no such item
   (fetch only), or any other value for failure, best by dlp_item_fail: DLP_ERR_LENGTH keeps its
   code, all others are DLP_ERR_CALLBACK, whose message has the number - called by all workers of
   the stage at once; may block. What is done to the item itself, but for length, is not looked
   at. */
typedef int (*dlp_item_fn)(void *user, dlp_item *item);

typedef struct dlp_dataset {
    uint64_t n_items;        /* 1..2^48; not read with stream = 1; with a part queue 0: the sum of
                                 its counts */
    const dlp_field *fields; /* [n_fields] copied */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    uint32_t fills_rows;     /* 0: each row is zeroed before fetch, which costs a memset of it.
                                 1: fetch promises to write every byte of every fixed-size field */
    dlp_item_fn fetch;       /* required, but for DLP_FETCH_ASYNC */
    void *user;              /* borrowed until close */
    int32_t stream;          /* 1: nobody knows how many items there are: see >>streams. n_items is
                                 then not read */
} dlp_dataset;

/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CALLER GETS */

/* One field of a batch. With shape, dtype and data it is what a DLTensor of DLPack needs (its
   strides are those of a dense array in C order). */
typedef struct dlp_tensor {
    const char *name;
    void *data;     /* the array is aligned to 64 bytes, each row to its dtype;
                                     after a transfer stage: where the device's alloc put it */
    uint64_t bytes; /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS]; /* [count, item shape...], or as a collate made it */
    const uint64_t *lengths;     /* ragged: [count] rows of each item, else NULL; host memory */
    const uint64_t *offsets;     /* packed: [count + 1] where each item begins, else NULL; host */
    uint64_t byte_offset;        /* where the array begins behind data: for views into a chunk on a
                                     device whose addresses are handles, else 0 */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch lent to the caller until released. Read its fields; do not change them (data may be
   written, it is the caller's until release). */
typedef struct dlp_batch {
    uint64_t sequence; /* 0.. over the life of the pipe, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;    /* first row's place in the epoch's global order */
    uint64_t in_epoch;    /* number of this batch in its epoch */
    uint32_t count;       /* rows; 0 only where ranks share a short batch */
    uint32_t valid_count; /* rows with valid[] = 1 */
    uint32_t flags;       /* DLP_BATCH_LAST */
    uint32_t n_fields;
    const dlp_tensor *fields; /* [n_fields] */
    const uint64_t *index;    /* [count] dataset index of each row */
    const uint8_t *valid;     /* [count] 0: padding, or left out (_SHORT, DLP_SKIP) */
    void *internal;
} dlp_batch;

/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* Everything up to some batch is consumed: save it anywhere, give it back as .resume. The same
   bytes on every rank. Versioned and checksummed; opaque. It fits a pipe with the same items, order
   and its parameters, seed, global batch and last rule (with a split stage also chunk_rows and
   shuffle_rows); workers, prefetch_factor, topology, rank and world_size may differ. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;

/* ---------------------------------------------------------------------------------------------
   >>samplers   WHICH ITEMS, IN WHICH ORDER */

enum {
    DLP_ORDER_SEQUENTIAL = 0,
    DLP_ORDER_SHUFFLED,    /* a keyed permutation of the epoch: each index once */
    DLP_ORDER_REPLACEMENT, /* uniform with replacement */
    DLP_ORDER_WEIGHTED,    /* with replacement, by integer weights */
    DLP_ORDER_FUNCTION,    /* the user's pure function of (epoch, position) */
    DLP_ORDER_BATCHES,     /* the user's batch sampler */
    DLP_ORDER_PARTS        /* that of a part queue, see >>parts */
};

enum {
    DLP_LAST_SHORT = 0, /* the last batch of an epoch may be short */
    DLP_LAST_DROP,      /* ... is dropped */
    DLP_LAST_PAD        /* ... is filled from the epoch's beginning; valid[] is 0 there */
};

#define DLP_SAMPLER_STATE_BYTES 128

/* The user's own batch sampler. Called by one thread at a time: the caller's in start, next,
   release, next_epoch and seek, or the sampler's own (threaded = 1). It is asked for batches ahead
   of their delivery; what save gives is kept with the batch it stands behind. */
typedef struct dlp_batch_sampler {
    /* Fill index[0..max-1] with the next batch of this epoch (global: all ranks see the same list).
       max: batch_size - returns the number of indices (1..max), 0 at the epoch's end (an epoch has
       at least one batch), negative for failure. Required. */
    int64_t (*next)(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
    /* Begin an epoch. May be NULL. Returns 0, or negative for failure. */
    int (*begin)(void *user, uint64_t epoch);
    /* Save all that the sampler needs to go on (at most DLP_SAMPLER_STATE_BYTES, returned as
       length), and take it back (returns 0). Both or neither; with neither, resume replays the
       epoch's batches. After restore, begin is not called for that epoch. */
    int (*save)(void *user, void *bytes);
    int (*restore)(void *user, const void *bytes, size_t n);
    void *user; /* borrowed until close */
    /* Say why the last call failed: words for the pipe's error, valid until the next call. May be
       NULL, and return NULL. */
    const char *(*why)(void *user);
} dlp_batch_sampler;

typedef struct dlp_sampler_desc {
    int32_t order;              /* DLP_ORDER_* */
    int32_t threaded;           /* 0: inline in the caller's next/release; 1: a thread of its own */
    uint64_t seed;              /* any value */
    uint64_t samples_per_epoch; /* REPLACEMENT, WEIGHTED, FUNCTION: draws per epoch, at most 2^48;
                                  0: the number of items, or n_subset. Else 0 */
    const uint64_t *subset;     /* NULL: all items; else the order runs over subset[0..n_subset-1];
                                  borrowed until close. Not for BATCHES, whose lists are taken as
                                  they are */
    uint64_t n_subset;
    const uint64_t *weights; /* WEIGHTED: [items, or n_subset], sum 1..2^63; copied at start */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position); /* FUNCTION: dataset index
                                  of a position or, with a subset, place in the subset; pure; called
                                  by many threads at once. Past the end: DLP_ERR_CALLBACK */
    void *function_user;                                                 /* borrowed until close */
    uint64_t function_id;      /* FUNCTION, BATCHES: the user's number for this order, part of a
                                  state's fingerprint; else 0, or what a source that knows its data
                                  (>>tokens, >>arrays) sets */
    dlp_batch_sampler batches; /* BATCHES; the struct is copied */
    uint32_t rank, world_size; /* 0, 0: one rank */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
    /* FUNCTION: the dataset index (or place in the subset) that stands in for a failed item
       (DLP_ON_ERROR_REPLACE), from `random` bits that belong to (seed, epoch, position, attempt);
       pure, as function. NULL: that at another position of the epoch. */
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
} dlp_sampler_desc;

typedef struct dlp_repeat_desc {
    int64_t epochs;    /* 0: one; DLP_FOREVER */
    int32_t epoch_end; /* 1: next returns DLP_EPOCH_END once behind each epoch */
} dlp_repeat_desc;

/* Rank and world size as the launcher of a parallel job says them in the environment, for the two
   fields above. In this order: torchrun (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK, _SIZE),
   MVAPICH (MV2_COMM_WORLD_RANK, _SIZE), MPICH and Intel MPI (PMI_RANK, PMI_SIZE), Slurm's srun
   (SLURM_PROCID, SLURM_STEP_NUM_TASKS).
   rank, world_size: written on success; 0 of 1 where no launcher says anything; err: may be NULL -
   returns DLP_OK; DLP_ERR_ARG: a pair that is half set, no number, or rank not below world_size;
   err->field names the variable - any thread, while none changes the environment. */
DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>mixing     DATASETS MIXED BY WEIGHTS
   A mix is an order over several datasets laid end to end: first all items of dataset 0, then those
   of dataset 1, and so on. Positions go to datasets by a fixed schedule, whose period is the sum of
   the weights (divided by their greatest common divisor): in each period dataset d comes weights[d]
   times, and at no position is it a whole item ahead of its share or behind it. Draws of a dataset
   are counted over all epochs; the k-th takes item k % n_items of pass k / n_items, each pass
   shuffled anew. So none comes twice in a pass, small datasets go round more often, and no dataset
   is cut off at the same place by each epoch. Everything follows from (seed, epoch, position) in
   constant time, so ranks, resume, padding and workers are as with any order. */

enum {
    DLP_MIX_ALL = 0, /* an epoch lasts until each dataset gave as many items as it has */
    DLP_MIX_FIRST,   /* ... is over before one dataset gave more than it has */
    DLP_MIX_LARGEST  /* ... until the dataset with most items gave as many as it has */
};

typedef struct dlp_mix_desc {
    uint32_t n;                 /* required; datasets, 1..1024 */
    int32_t shuffle;            /* 1: each pass in an order of its own; 0: 0, 1, 2.. */
    const uint64_t *n_items;    /* required; [n] copied; each 1 or more, all together up to 2^48 */
    const uint64_t *weights;    /* [n] copied; NULL: all alike; 0: never. Divided by their greatest
                                   common divisor their sum is at most 2^20 */
    uint64_t seed;              /* any value; the sampler's too */
    uint64_t samples_per_epoch; /* 0: as until says; at most 2^48 */
    int32_t until;              /* DLP_MIX_* */
} dlp_mix_desc;

typedef struct dlp_mix dlp_mix;

/* Make a mix.
   out: to be closed behind the pipes that use it; err: written on failure, may be NULL - returns
   DLP_OK, DLP_ERR_ARG (err->field names it), DLP_ERR_MEMORY - any thread - allocates 4 bytes per
   position of the period, 32 per dataset; a tenth of a second for the longest period.
   Source: earliest deadline first on windows [j/w, (j+1)/w): Baruah, Cohen, Plaxton, Varvel,
   Proportionate Progress, Algorithmica 15 (1996). */
DLPDEF int dlp_mix_open(dlp_mix **out, const dlp_mix_desc *desc, dlp_error *err);

/* Let a sampler follow the mix: sets all fields but threaded, rank, world_size and allow_uneven,
   which stay. The pipe's dataset has dlp_mix_items items. A
   replacement for a failed item comes from the same dataset. (Worker processes that begin by exec
   build a mix of their own in shm.init and call dlp_mix_at in a function of the user's.)
   mix: borrowed until the pipe is closed - returns DLP_OK, DLP_ERR_ARG - any thread. */
DLPDEF int dlp_mix_sampler(const dlp_mix *mix, dlp_sampler_desc *to);

/* Return the items of all datasets together: what dlp_dataset.n_items is to be. 0: mix is NULL. */
DLPDEF uint64_t dlp_mix_items(const dlp_mix *mix);

/* Return the dataset index at a position. Any thread; does not wait; some 50 ns. */
DLPDEF uint64_t dlp_mix_at(const dlp_mix *mix, uint64_t epoch, uint64_t position);

/* Say which item of which dataset an index is: for fetch.
   dataset, item: written on success - returns DLP_OK, DLP_ERR_ARG (index past the items) - any
   thread - does not wait. */
DLPDEF int dlp_mix_locate(const dlp_mix *mix, uint64_t index, uint32_t *dataset, uint64_t *item);

/* Free the mix, behind the pipes that use it. NULL does nothing. Any thread. */
DLPDEF void dlp_mix_close(dlp_mix *mix);

/* ---------------------------------------------------------------------------------------------
   >>buckets    ITEMS OF LIKE LENGTH BATCHED TOGETHER
   A batch of ragged items is padded to its longest. A batch sampler that knows lengths before the
   fetch makes batches of items of like length, and can hold rows x longest under a budget of
   tokens: the order's next `window` positions are sorted by length (ties by position), cut into
   batches, and the batches of the window shuffled. So an item moves by less than a window, every
   rank computes the same lists, and a state is 24 bytes: resuming reads one window, whatever has
   gone before. While a window is given out the next one is read, a few items with each batch; what
   is left for its turn is a counting sort, 3 to 7 ns per item (100 batches of 64: 0.02 ms, of
   1,024: 0.5 ms). Windows of 100,000 items and more want sampler.threaded = 1. */

typedef struct dlp_buckets_desc {
    uint64_t n_items;        /* required; the dataset's */
    const uint32_t *lengths; /* [n_items] tokens of each item; borrowed until dlp_buckets_close.
                                 Read through at open. Or: */
    uint32_t (*length)(void *user, uint64_t index); /* pure; called where the sampler runs */
    void *length_user;
    uint64_t lengths_id;   /* with length: your number for these lengths, part of a state's
                                 fingerprint (of an array a hash is) */
    uint32_t batch_size;   /* required; most rows of a batch, that of the pipe */
    uint32_t window;       /* items sorted together, up to 2^24; 0: 100 batches. Rounded up to
                                 whole batches (with max_tokens: to a multiple of divisible_by) */
    uint64_t max_tokens;   /* most rows x longest in a (global) batch, padding counted; 0: no
                                 bound. An item too long for it is an error that names it */
    uint32_t divisible_by; /* rows of a batch are a multiple of this, which divides batch_size;
                                 so every world size that divides it gives each rank as many rows,
                                 and the same global batches. 0: 1 */
    int32_t shuffle;       /* 1: batches of a window in a keyed order, and (order NULL) items
                                 too; 0: short ones first */
    uint64_t seed;         /* any value */
    int32_t last;          /* DLP_LAST_SHORT: all items come, the epoch's last rows fill no batch
                                 (nor divisible_by). DLP_LAST_DROP: the positions that would be left
                                 over are left out */
    const dlp_sampler_desc *order; /* the order whose windows are sorted, any but BATCHES (a mix, a
                                 subset); copied, what it points to is borrowed. NULL: all items,
                                 shuffled or in turn as shuffle says */
} dlp_buckets_desc;

typedef struct dlp_buckets dlp_buckets;

/* Make a batch sampler.
   out: to be closed behind the pipe that uses it, one pipe at a time; err: written on failure, may
   be NULL - returns DLP_OK, DLP_ERR_ARG (err->field names it; of lengths the message has the item
   and its length), DLP_ERR_MEMORY - any thread - allocates 44 bytes per item of the window, and
   the table of weights of a weighted order; reads all of lengths. */
DLPDEF int dlp_buckets_open(dlp_buckets **out, const dlp_buckets_desc *desc, dlp_error *err);

/* Let a sampler follow it: sets all fields but threaded, rank, world_size and allow_uneven. The
   pipe's batch_size is the buckets'. What DLP_ON_ERROR_REPLACE puts in a row may be longer.
   b: borrowed until the pipe is closed - returns DLP_OK, DLP_ERR_ARG - any thread. */
DLPDEF int dlp_buckets_sampler(dlp_buckets *b, dlp_sampler_desc *to);

/* Free it, behind the pipe that uses it. NULL does nothing. Any thread. */
DLPDEF void dlp_buckets_close(dlp_buckets *b);

/* ---------------------------------------------------------------------------------------------
   >>kinds      THE KINDS OF STAGES
   A row for each: name, number (never another one: monitors read it), and the table of what it does
   (the implementation's; src/core/ops.h says what stands in it). */

#define DLPI_STAGE_KINDS(KIND) \
    KIND(SAMPLER, 1, dlpi_sampler_ops) \
    KIND(REPEAT, 2, dlpi_repeat_ops) \
    KIND(FETCH, 3, dlpi_fetch_ops) \
    KIND(MAP_ITEM, 4, dlpi_map_item_ops) \
    KIND(BATCH, 5, dlpi_batch_ops) \
    KIND(MAP_BATCH, 6, dlpi_map_batch_ops) \
    KIND(TRANSFER, 7, dlpi_transfer_ops) \
    KIND(CACHE, 8, dlpi_cache_ops) \
    KIND(SPLIT, 9, dlpi_split_ops) \
    KIND(PARTS, 10, dlpi_parts_ops)

/* How they follow each other, in words. */
#define DLPI_STAGE_ORDER \
    "sampler, repeat, parts, fetch, cache, item maps, batch, batch maps, transfer, split"

#define DLPI_KIND_NUMBER(name, number, ops) DLP_STAGE_##name = number,
enum { DLPI_STAGE_KINDS(DLPI_KIND_NUMBER) DLP_STAGE_KINDS_END };
#undef DLPI_KIND_NUMBER

/* ---------------------------------------------------------------------------------------------
   >>stages     WHO DOES THE WORK */

enum {
    DLP_ON_ERROR_RAISE = 0, /* next returns the error when it reaches the batch */
    DLP_ON_ERROR_REPLACE,   /* another item takes the row, chosen by (seed, epoch, position, k)
                               alone; an item may so come twice in an epoch. 100 a row at most */
    DLP_ON_ERROR_SHORT      /* the row is left out: zero bytes, valid[] = 0 */
};

enum {
    DLP_DISPATCH_CLAIM = 0,  /* workers claim runs of items by compare-and-swap */
    DLP_DISPATCH_BATCHES = 2 /* a whole batch to each worker in turn: worker i of n works on batches
                                whose sequence % n is i, and on no others */
};

enum { DLP_PLACE_THREADS = 0, DLP_PLACE_PROCESSES = 1 /* needs dlpipe_shm.h */ };

/* How the workers of a stage run; the same part in each stage's desc. */
typedef struct dlp_workers_desc {
    int32_t num_workers;      /* 0: inline in the caller's next; at most DLP_MAX_WORKERS */
    int32_t placement;        /* DLP_PLACE_* */
    int32_t dispatch;         /* DLP_DISPATCH_* */
    int32_t on_error;         /* DLP_ON_ERROR_*; stages of whole batches: DLP_ON_ERROR_RAISE */
    int32_t retries;          /* more tries of an item that failed in this stage; 0..100; failures
                                 in other stages do not count. From a map that is not idempotent
                                 the row goes back to fetch, the batch to its collate, or to fetch,
                                 and through all stages again */
    int32_t retry_backoff_ms; /* wait before the first retry, doubled each time to at most 64 times;
                                 0..3600000; 0: none. Items wait, not their worker; batches do */
    int64_t max_skips;        /* failed items, of all stages together, that may be replaced or left
                                 out before one that fails here is DLP_ERR_BUDGET; 0: no limit here;
                                 DLP_NONE: none. Those that a callback left by DLP_SKIP do not
                                 count */
    int32_t deadline_ms;      /* 0: none. Threads: a callback that takes longer makes next return
                                 DLP_ERR_DEADLINE; looked at while next waits. Processes: the worker
                                 is killed, the item has failed */
    int32_t idempotent;       /* 1: a stage that changes a cell may run on it again */
    int (*worker_init)(void *user, int worker, void **state); /* in the worker, before its first
                                 item; returns 0, or failure: DLP_ERR_CALLBACK. May be NULL */
    void (*worker_exit)(void *user, int worker, void *state); /* in the worker, at its end */
    void *worker_user;                                        /* borrowed until close */
    const int32_t *affinity; /* [n_affinity] CPU 0..1023 of worker i is affinity[i % n_affinity];
                                 copied; a hint, on Linux */
    int32_t n_affinity;      /* 0..4096; 0: wherever the system likes */
    uint64_t stack_bytes;    /* of each thread, under 4 GiB; 0: the system's */
    const char *name;        /* stage name, copied, cut at 31 bytes; NULL: "fetch", "batch", "map";
                                 11 bytes of it show in thread names */
    int32_t workers_min;     /* 0: 1; at most num_workers; 0 if workers_max is */
    int32_t workers_max;     /* 0: num_workers for good. Else next adds and retires workers of this
                                 stage between these two, from num_workers on, by what the last
                                 moments showed (>>impl-tune, dlp_pipe_explain). Memory, threads or
                                 processes, and worker_init are for all workers_max from the start;
                                 those in excess sleep. At most DLP_MAX_WORKERS; not with
                                 DLP_DISPATCH_BATCHES (classic, concurrent) */
    int (*tell)(void *user, char *buf, size_t size); /* what these workers wait for now, such as a
                                 server that is away, as a line of dlp_pipe_explain; returns as
                                 snprintf, 0: nothing. user: worker_user. By who calls explain, at
                                 any time until close; must not wait. May be NULL */
} dlp_workers_desc;

/* How a worker fetches: one item after the other, or up to in_flight of them at once. */
enum {
    DLP_FETCH_SEQUENTIAL = 0,
    DLP_FETCH_THREADS, /* dataset.fetch, in in_flight threads of the worker's, which share its
                          worker_state: for callbacks that wait */
    DLP_FETCH_ASYNC    /* dlp_async: requests are begun and given back, all in the worker itself */
};

/* An asynchronous source: many requests in flight in one thread of the worker. user: dataset.user;
   worker_state: what worker_init left. Both are called by that thread alone. Rows are zeroed before
   submit, as before a fetch. Behind a stop reap is called until nothing is out, then worker_exit.
   In worker processes nothing may write to an item once its process is dead: let requests that the
   kernel ends later fill buffers of your own. */
typedef struct dlp_async {
    /* Begin to fetch an item; it stays valid, at its place, until reap gives it back. Returns 0:
       begun; DLP_FULL: no room now, it will be offered again after a reap; DLP_SKIP, DLP_END
       (of a stream) or failure: it is over. */
    int (*submit)(void *user, void *worker_state, dlp_item *item);
    /* Give back items that are over, done[i] with code[i] (as fetch returns it), 0..max of them.
       Waits at most timeout_ms for the first (DLP_NOWAIT: not at all). Negative: the source is
       broken, and touches no item any more. */
    int (*reap)(void *user, void *worker_state, dlp_item **done, int *code, int max,
                int timeout_ms);
} dlp_async;

typedef struct dlp_fetch_desc {
    const dlp_dataset *dataset; /* copied; required */
    dlp_workers_desc workers;
    int32_t fetcher;     /* DLP_FETCH_*; but for the sequential, num_workers is 1 or more */
    int32_t in_flight;   /* THREADS, ASYNC: items at once in a worker; 0: 16; at most 1024 */
    uint32_t batch_pool; /* with DLP_DISPATCH_BATCHES: items of the batches that a worker has
                                   open at once, counted from the oldest that is not whole (256: 4
                                   batches of 64); 0: as many batches as keep in_flight items under
                                   way; less than a batch: one. Not with another dispatch */
    dlp_async async;     /* ASYNC; the struct is copied, dataset.fetch may be NULL then */
} dlp_fetch_desc;

/* Keep what fetch wrote, from one epoch to the next, in memory that all workers share. No workers
   of its own: the fetch stage looks here before it calls fetch. Nothing is ever thrown out, so that
   the share of items that fit is the share of later lookups that hit; order and bytes of batches
   are the same with and without. Only for a fetch whose result depends on the index alone, not on
   epoch, position or attempt (an item map behind the cache may, and still augments each time).
   Items whose fetch calls dlp_item_random are not kept; nor those that failed or were left out.
   Empty after a resume. */
typedef struct dlp_cache_desc {
    uint64_t bytes; /* required: budget, 2^46 at most; one item's cell takes its rows and
                                 lengths, each rounded up to 8 bytes, and 8 more. What is above the
                                 cells for all items is not taken */
} dlp_cache_desc;

/* What a collate sees. Valid during the call only. It reads in, writes out; its cells are zeroed
   before. Rows with valid[] = 0 hold padding, or zeros. */
typedef struct dlp_collate {
    uint64_t sequence, epoch, position;
    uint32_t count;
    uint32_t worker;
    void *worker_state;
    const uint64_t *index; /* [count] */
    const uint8_t *valid;  /* [count] */
    uint32_t n_in, n_out;
    const struct dlp_collate_in {
        const dlp_field *field;
        const void *data;        /* row i is at data + i * stride */
        uint64_t stride;         /* bytes */
        const uint64_t *lengths; /* ragged: [count], else NULL */
    } * in;
    struct dlp_collate_out {
        const dlp_field *field;
        void *data;
        uint64_t capacity; /* bytes */
        int32_t ndim;      /* to be set, with shape; preset to the field's [count, shape...] */
        int64_t shape[DLP_MAX_DIMS];
        uint64_t *lengths; /* [count], preset to zero */
        uint64_t *offsets; /* [count + 1]; a collate that packs sets has_offsets */
        int32_t has_offsets;
    } * out;
    void *internal;
} dlp_collate;

/* Make a batch out of items. Returns 0, or any other value for failure, best by dlp_collate_fail; a
   shape that does not fit capacity is DLP_ERR_LENGTH - called by all batch workers at once. */
typedef int (*dlp_collate_fn)(void *user, dlp_collate *c);

/* Built-in collates, to be given as batch_desc.collate. pad: ragged fields become [count, longest
   in the batch, ...], zeros behind the shorter. pack: [rows of all items, ...] with offsets. Fixed
   fields are copied as they are.
   user: not used; out_fields must be NULL or the dataset's - returns 0, or DLP_ERR_CALLBACK: other
   out_fields, or more rows than max_per_batch (the message names the item). */
DLPDEF int dlp_collate_pad(void *user, dlp_collate *c);
DLPDEF int dlp_collate_pack(void *user, dlp_collate *c);

/* As dlp_item_fail, for a collate. */
DLPDEF int dlp_collate_fail(const dlp_collate *c, int errnum, const char *format, ...);

typedef struct dlp_batch_desc {
    uint32_t batch_size;         /* rows of the global batch (of all ranks); required, 1..2^20 */
    int32_t last;                /* DLP_LAST_*; not for DLP_ORDER_BATCHES, whose lists say it */
    dlp_collate_fn collate;      /* NULL: rows are written in place, nothing is copied */
    void *collate_user;          /* borrowed until close */
    const dlp_field *out_fields; /* with a collate: fields of the batch, [n_out_fields]; NULL: the
                                   dataset's; copied */
    uint32_t n_out_fields;
    int32_t batch_workers;    /* 0: without a collate none (the last item worker closes it), with
                                   one min(prefetch_factor, 64) of them (inline if items are
                                   inline), as the plan tells; DLP_NONE: inline; at most
                                   DLP_MAX_WORKERS */
    dlp_workers_desc workers; /* num_workers is set from batch_workers */
} dlp_batch_desc;

/* A 1:1 stage of the user's. Give item (before the batch stage) or batch (behind it), not both.
   Cells are changed in place; count, index and shapes stay. */
typedef struct dlp_map_desc {
    dlp_item_fn item; /* lengths of ragged fields may be changed */
    int (*batch)(void *user, dlp_batch *batch, void *worker_state); /* 0, or failure */
    void *user;                                                     /* borrowed until close */
    dlp_workers_desc workers;
} dlp_map_desc;

/* A device, as the transfer stage sees it. open, register_memory, alloc: called by start; free,
   unregister_memory, close: by close (or the last release); copy, record, done: by the transfer
   thread, or, inline, by next. Functions return 0 or failure (DLP_ERR_DEVICE). */
typedef struct dlp_device {
    const char *name;                                                 /* borrowed until close */
    int (*open)(void *user);                                          /* may be NULL */
    void (*close)(void *user);                                        /* may be NULL */
    int (*register_memory)(void *user, void *mem, uint64_t bytes);    /* NULL: pageable copies */
    void (*unregister_memory)(void *user, void *mem, uint64_t bytes); /* or NULL */
    int (*alloc)(void *user, uint64_t bytes, void **dev);
    void (*free)(void *user, void *dev);
    /* Begin a copy. Put an event behind the copies of this buffer. 1: it passed, 0: not yet. */
    int (*copy)(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer);
    int (*record)(void *user, uint32_t buffer);
    int (*done)(void *user, uint32_t buffer);
    void *user;      /* borrowed until close */
    int32_t handles; /* 1: what alloc gives is a handle that nothing can be added to (cl_mem) */
} dlp_device;

/* Return a device whose memory is the host's and whose copies are memcpy. Static; any thread. */
DLPDEF const dlp_device *dlp_device_host(void);

typedef struct dlp_transfer_desc {
    const dlp_device *device; /* copied; NULL: dlp_device_host() */
    int32_t device_buffers;   /* 0: max_held + 1; max_held + 1..64 */
    int32_t threaded;         /* 0: inline; 1: a thread */
} dlp_transfer_desc;

/* Cut each item, a chunk of many rows, into batches that are views. It is the last stage. The batch
   stage before it has batch_size 1 and no collate; the first dimension of every field is rows. The
   pipe's max_held, batches_per_epoch, states and statistics then speak of views: see >>chunks. */
typedef struct dlp_split_desc {
    uint64_t chunk_rows;       /* rows of an item, on all ranks together; required, 1..2^48 */
    uint64_t n_rows;           /* rows of all items: item i has rows i * chunk_rows and so on, the
                                  last what is left; 0: all items are full. A last item that is not
                                  full wants DLP_ORDER_SEQUENTIAL or _SHUFFLED without a subset */
    uint32_t batch_size;       /* rows of the global batch; required, 1..2^20 */
    int32_t last;              /* DLP_LAST_SHORT or _DROP: for what is left of each item */
    int32_t shuffle_rows;      /* 1: what fetch writes is in the order of dlp_chunk_row; not with a
                                  cache */
    uint32_t rank, world_size; /* 0, 0: one rank. Fetch writes this rank's rows, one batch's behind
                                  the other's; the sampler has no ranks: all load every item */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
} dlp_split_desc;

/* ---------------------------------------------------------------------------------------------
   >>pipe       WIRING, RUNNING
   open -> add stages -> (link) -> (plan) -> start -> next, release ... -> close. Fields of a
   call's comment: parameters - what it returns - threads - whether it waits or allocates.
   "Caller": whoever drains the pipe, one thread at a time. */

typedef struct dlp_pipe dlp_pipe;
typedef int32_t dlp_stage; /* a stage of a pipe; negative: DLP_ERR_*, see dlp_pipe_error */

/* A byte limit that several pipes share; zero used before the first. Pipes may start in several
   threads. A pipe gives its bytes back when it is freed. */
typedef struct dlp_budget {
    uint64_t limit_bytes;
    uint64_t used_bytes; /* kept by dlpipe */
} dlp_budget;

struct dlp_shm_desc;

typedef struct dlp_pipe_desc {
    int32_t prefetch_factor;  /* batches between sampler and next; 0: 2 (1 when all is inline); at
                                  most 4096, 320 when unordered */
    int32_t max_held;         /* batches the caller may hold at once; 0: 1; at most 256, 63 with a
                                  transfer stage */
    int32_t unordered;        /* 1: batches of an epoch come in the order of completion */
    int32_t close_timeout_ms; /* how long close waits for running callbacks; 0: 5000; DLP_NOWAIT;
                                  DLP_FOREVER */
    uint64_t limit_bytes;     /* 0: none; the plan must fit */
    dlp_budget *budget;       /* NULL: none; borrowed until close */
    uint32_t trace_bytes;     /* trace ring of each worker; 0: 4096; at most 64 MiB */
    int32_t no_memfd;         /* 1: anonymous memory, cannot be observed from outside */
    const dlp_state *resume;  /* NULL: from the beginning; copied */
    void (*log)(void *user, const char *message); /* warnings, in start, and of batches held in
                                  close; NULL: for dlp_pipe_warning only */
    void *log_user;                               /* borrowed until close */
    const char *name;                             /* copied, cut at 31 bytes; for people */
    const struct dlp_shm_desc *shm;               /* of dlpipe_shm.h; NULL: its defaults; copied */
} dlp_pipe_desc;

/* Make a pipe without stages.
   out: the pipe, to be closed; desc: NULL is {0}, copied; err: written on failure, may be NULL -
   returns DLP_OK, DLP_ERR_ARG (err->field names the field), DLP_ERR_MEMORY - any thread - allocates
   the pipe's own record only, does not wait. */
DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err);

/* Add a stage. Stages are chained in the order in which they are added, unless a link says
   otherwise.
   desc: copied, its pointers as their comments say - returns the stage, 0 or more, or DLP_ERR_ARG
   (a field is out of range), DLP_ERR_GRAPH (more than DLP_MAX_STAGES), DLP_ERR_MEMORY (add_fetch,
   add_map, add_batch: of affinity), DLP_ERR_UNSUPPORTED (placement), DLP_ERR_STATE (after start),
   or the code of an error before - caller - does not wait. An error stays with the pipe: it is
   enough to look at what start returns. */
DLPDEF dlp_stage dlp_pipe_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_repeat(dlp_pipe *p, const dlp_repeat_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_cache(dlp_pipe *p, const dlp_cache_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_map(dlp_pipe *p, const dlp_map_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_batch(dlp_pipe *p, const dlp_batch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_split(dlp_pipe *p, const dlp_split_desc *desc);

/* Let a stage pass its work to another. The chain is: sampler, [repeat], [parts], fetch, [cache],
   [item maps], batch, [batch maps], [transfer], [split]; what is in brackets may be missing. Needed
   only for another order than that of adding: a stage that no link leads to follows the one added
   before it, unless that one is linked to another; then it is an error that names it.
   from, to: stages of this pipe, each linked once on each side - returns DLP_OK, DLP_ERR_ARG (no
   such stage), DLP_ERR_GRAPH (linked already), DLP_ERR_STATE (after start), or the code of an error
   before - caller - does not wait or allocate. */
DLPDEF int dlp_pipe_link(dlp_pipe *p, dlp_stage from, dlp_stage to);

/* One line of a memory plan. */
typedef struct dlp_plan_line {
    char what[48];
    uint64_t count, bytes_each, bytes;
} dlp_plan_line;
typedef struct dlp_plan {
    uint64_t total_bytes, limit_bytes;
    uint64_t slots;      /* prefetch_factor + max_held */
    uint64_t slot_bytes; /* one batch with its per-row records */
    uint32_t n_lines;
    dlp_plan_line lines[32];
} dlp_plan;

/* Check the wiring and tell, line by line, the bytes that start will allocate (or has allocated).
   Stacks of threads are not among them. What is above 2^64 stays at UINT64_MAX, in lines and in the
   sum; start refuses it.
   out: written on success - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_GRAPH (the message names the
   stage), or the code of an error before - caller - does not wait; allocates nothing. */
DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out);

/* Write a plan as text, a line for each of its lines and the total.
   buf, size: borrowed; cut and terminated like snprintf's; NULL with size 0 asks for the length -
   returns the length of the whole text, or DLP_ERR_ARG (plan is NULL) - any thread - does not wait
   or allocate. */
DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size);

/* Plan, hold the plan against the limits, allocate all there is to allocate, start the workers.
   Returns DLP_OK, what dlp_pipe_plan returns, DLP_ERR_LIMIT (limit_bytes, budget, memory cgroup,
   available memory, address space: the message has the sum; of worker processes, ulimit -f),
   DLP_ERR_MEMORY, DLP_ERR_SYSTEM (no thread could be made), DLP_ERR_RESUME and DLP_ERR_CORRUPT (of
   resume; err.field names what differs), DLP_ERR_DEVICE, DLP_ERR_CALLBACK (an inline worker_init; a
   batch sampler that resumes), DLP_ERR_STATE (started already) - caller - allocates; waits for no
   worker. After a failure: close. */
DLPDEF int dlp_pipe_start(dlp_pipe *p);

/* Lend the next batch to the caller.
   out: written on DLP_OK only; timeout_ms: 0 or DLP_FOREVER without end, DLP_NOWAIT not at all -
   returns DLP_OK; DLP_END: all epochs are delivered; DLP_EPOCH_END, once behind each epoch if asked
   for; DLP_TIMEOUT; DLP_STOPPED; DLP_ERR_HELD (max_held batches are held: nothing is lost, release
   one); DLP_ERR_CALLBACK, _LENGTH, _BUDGET, _DEADLINE, _DEVICE, which stay (dlp_pipe_error);
   DLP_ERR_ARG; DLP_ERR_STATE (not started, closed, shm.serve_only); what start failed with - caller
   - runs inline stages, also past timeout_ms while a callback of theirs runs; else spins for some
   us, then sleeps. Never allocates. An item's error comes when its batch's turn comes, those before
   it are delivered; worker_init and deadline fail at once. */
DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out, int timeout_ms);

/* Give a batch back, in any order; its slot is free for the sampler at once.
   batch: as next gave it; not to be touched again - returns DLP_OK, or DLP_ERR_ARG (not a batch
   that is held) - caller; also after an error, a stop and a close. After a close the last release
   frees the pipe - does not wait or allocate; runs the sampler if that is inline. */
DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch);

/* Leave the rest of the present epoch: next goes on with the first batch of the one after it, and
   no DLP_EPOCH_END comes before that. Does nothing else when the present epoch's last batch has
   been delivered, or none of its batches yet.
   Batches that are held stay valid - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE, or the code of the
   pipe's error - caller - does not wait; calls that run are finished, items not begun are not. */
DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p);

/* Jump to a saved state, of this pipe or of another with the same order: next goes on behind it, as
   if the pipe had been resumed there. Workers go on; batches that are held stay valid; work under
   way for the old place is dropped as next_epoch drops it, and a pipe that had delivered all goes
   on again.
   state: copied; err: written on failure, may be NULL - returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_RESUME, DLP_ERR_CORRUPT (the state, as with desc.resume; err->field names what differs);
   DLP_ERR_UNSUPPORTED (consumers in other processes); DLP_ERR_STATE (not started, closed, or 2^14
   seeks with no batch between them); the code of the pipe's error. But for that last one the pipe
   goes on where it was. A batch sampler that fails to restore, or has failed ahead, is the pipe's
   error, told by next - caller - does not wait or allocate; runs the sampler if that is inline. */
DLPDEF int dlp_pipe_seek(dlp_pipe *p, const dlp_state *state, dlp_error *err);

/* Make the state that stands before a batch, for dlp_pipe_seek or desc.resume.
   epoch: below 2^47, may be past the last; batch: in the epoch, below dlp_pipe_batches_per_epoch
   where that is known; out: written on success - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not
   started) - caller - does not wait or allocate. A batch sampler will replay the epoch's lists up
   to there: dlp_pipe_state of a batch has its bytes, which is quicker. */
DLPDEF int dlp_pipe_state_at(const dlp_pipe *p, uint64_t epoch, uint64_t batch, dlp_state *out);

/* Ask the pipe to stop: next, asleep or not, returns DLP_STOPPED and workers end after the callback
   they are in. For good: only close follows.
   p: NULL does nothing - any thread and any signal handler, from open until close is called - does
   not wait or allocate; keeps errno. */
DLPDEF void dlp_pipe_stop(dlp_pipe *p);

/* Stop, wait for the workers, free everything.
   p: NULL is DLP_OK - returns DLP_OK: the pipe is gone or, with batches held, goes with the last
   release, or the last tensor's deleter: until then release and close are the calls still allowed,
   and close does nothing, DLP_OK; DLP_ERR_BUSY: a callback has not returned within
   close_timeout_ms, dlp_pipe_error names it; nothing was freed, call close again - caller; no other
   call may be under way - waits up to close_timeout_ms. */
DLPDEF int dlp_pipe_close(dlp_pipe *p);

/* Return what went wrong first; code 0, worker -1: nothing. Never NULL. Behind a next that returned
   DLP_ERR_HELD it tells that, until a batch is released; the pipe is not in error then.
   The record is the pipe's, until close (after DLP_ERR_BUSY it tells that) - caller - does not
   wait. */
DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p);

/* Return the i-th warning, NULL behind the last. The first eight are kept, until close - caller. */
DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i);

/* Save where the pipe is.
   batch: "this one and all before it are consumed", a batch that is held; NULL, and for unordered
   pipes always: all that next has given; out: 248 bytes to be kept anywhere - returns DLP_OK,
   DLP_ERR_ARG (not held), DLP_ERR_STATE (not started) - caller; also after an error or a stop -
   does not wait or allocate. */
DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out);

/* Let a stage work with n workers from now on, whatever the tuner would do. Those above the number
   finish what they have claimed. Order and bytes are the same.
   stage: with workers_max set; n: workers_min..workers_max; 0: the tuner decides again - returns
   DLP_OK, DLP_ERR_ARG (no such stage, or number), DLP_ERR_STATE (not started, closed) - caller -
   does not wait or allocate. */
DLPDEF int dlp_pipe_set_workers(dlp_pipe *p, dlp_stage stage, int n);

/* Return the number of batches in an epoch; -1: not started, DLP_ORDER_BATCHES, or a stream.
   Caller. */
DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p);

/* ---------------------------------------------------------------------------------------------
   >>loader     ALL IN ONE CALL
   Three ways to give items to N item workers. Order and bytes of the batches are the same.

   economic     any worker takes the next items of any batch, oldest first: it is whole soonest.
                Memory: prefetch_factor + max_held batches, however many workers there are.
   classic      a whole batch to each worker in turn, as PyTorch's DataLoader does; batch b is all
                worker b % N's. For sources that like to see neighbours together, and to compare.
                Memory: N x prefetch_factor + max_held batches.
   concurrent   classic, and inside each worker in_flight items at once, by a fetcher; of one batch,
                or of the several of a batch pool. For sources with latency: stores, networks.
                Memory: as classic, prefetch_factor being batch_pool / rows if that is more, or,
                where neither is given, 1 + in_flight / rows rounded up (2 at least); and the
                records of the items in flight. */

enum { DLP_TOPOLOGY_ECONOMIC = 0, DLP_TOPOLOGY_CLASSIC, DLP_TOPOLOGY_CONCURRENT };

typedef struct dlp_loader_desc {
    dlp_dataset dataset; /* required */
    uint32_t batch_size; /* required; global batch */
    int32_t num_workers; /* item workers; 0: inline (not with a fetcher) */
    int32_t shuffle;     /* 1: DLP_ORDER_SHUFFLED; same as sampler.order */
    int32_t drop_last;   /* 1: DLP_LAST_DROP; last is then that, or 0 */
    int32_t last;        /* DLP_LAST_* */
    int64_t epochs;      /* 0: one; DLP_FOREVER */
    int32_t epoch_end;   /* 1: next returns DLP_EPOCH_END between epochs */
    uint64_t seed;       /* same as sampler.seed; 0: that one */
    dlp_sampler_desc sampler;
    dlp_workers_desc workers; /* num_workers: 0, or as above */
    dlp_collate_fn collate;   /* from here as in dlp_batch_desc */
    void *collate_user;
    const dlp_field *out_fields;
    uint32_t n_out_fields;
    int32_t batch_workers;
    const dlp_device *device; /* not NULL: a transfer stage on this device */
    int32_t device_buffers;
    int32_t transfer_threaded;
    dlp_pipe_desc pipe; /* pipe.prefetch_factor is for each worker in a topology other than
                                    the economic; num_workers times that is at most 4096 */
    int32_t topology;   /* DLP_TOPOLOGY_*; sets workers.dispatch, but for the economic */
    int32_t fetcher;    /* from here as in dlp_fetch_desc; not in the classic topology */
    int32_t in_flight;
    uint32_t batch_pool; /* the concurrent topology only */
    dlp_async async;
    uint64_t cache_bytes; /* 0: no cache; else as dlp_cache_desc.bytes */
} dlp_loader_desc;

/* Open, wire and start sampler -> repeat -> fetch [-> cache] -> batch [-> transfer].
   out: a pipe that runs, to be closed; desc: copied as the stages' are; err: written on failure,
   may be NULL - returns DLP_OK, or what dlp_pipe_open, _add_*, _link and _start return; then
   nothing is left to close - any thread, which is the caller - allocates all there is to allocate.
   Source: RFC-0001-economic-dataloader (github.com/pytorch/rfcs, pull request 69), whose items go
   to any free worker, so that memory follows prefetch_factor and not the number of workers; for the
   classic topology torch.utils.data.DataLoader. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>chunks     BATCHES THAT ARE VIEWS INTO CHUNKS
   For data that is best read in large pieces. A chunk of many rows is loaded at once into a CPU
   buffer, copied at once to the device, and cut there: a batch is a view into it, and nothing is
   copied row by row. Loading chunk k + 2, copying k + 1 and computing on k go on side by side.

     sampler ----> load --------> transfer --------> split ----> next() ... release()
     loadable      free CPU       filled CPU         filled device        a chunk's last view
     chunks        buffers        buffers            buffers              gives its buffer back

   A CPU buffer is free again when its chunk is on the device; without a device views lie in it.
   The pipe's items are chunks: the sampler orders them, errors name them, workers' counters count
   them. Batches are views everywhere else. Each is aligned to its row, not to 64 bytes.

   A batch never crosses a chunk: what is left of a chunk is a short batch or none, so that
   dlp_pipe_batches_per_epoch is known from the start. The order is that of the chunks (sequential,
   or a keyed permutation of each epoch), and in a chunk that of its rows (as they are, or a keyed
   permutation of each chunk and epoch). Position counts the rows delivered before. The global batch
   j of a chunk is its rows [j * batch_size, (j + 1) * batch_size) in that order; of it, rank r of W
   has rows r * n / W and so on, and loads no others. */

/* Rows that a callback is to load. Valid during the call only. */
typedef struct dlp_chunk {
    uint64_t index; /* chunk */
    uint64_t first; /* dataset index of the first row to be written; see dlp_chunk_row */
    uint64_t count; /* rows; of one rank all that are wanted of the chunk */
    uint64_t chunk_first, chunk_rows; /* the chunk as it is in the dataset: first row, rows */
    uint64_t epoch;
    uint64_t seed;    /* the pipe's */
    uint32_t attempt; /* 0, then 1.. for each retry */
    uint32_t n_fields;
    uint32_t worker;    /* worker number */
    int32_t shuffled;   /* 1: ask dlp_chunk_row which rows */
    void *worker_state; /* what worker_init left */
    void **data;        /* [n_fields] where row 0 of each field goes, the others behind it */
    const void *internal;
} dlp_chunk;

/* Return the dataset index of the k-th row to be written: first + k, or, with shuffle_rows, the row
   that the chunk's permutation has there.
   k: 0..count - 1 - returns UINT64_MAX for others - in the callback - does not wait. */
DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k);

/* As dlp_item_fail, for a chunk: in load only. */
DLPDEF int dlp_chunk_fail(const dlp_chunk *c, int errnum, const char *format, ...);

/* Write rows. Called once a chunk; with ranks, once for each batch of it.
   user: chunks_desc.user - returns 0, DLP_SKIP, or failure, as a fetch does - called by all workers
   at once; may block. */
typedef int (*dlp_chunk_fn)(void *user, dlp_chunk *c);

enum {
    DLP_PRELOAD_NONE = 0,
    DLP_PRELOAD_CPU,    /* each chunk has a CPU buffer of its own and is loaded once */
    DLP_PRELOAD_DEVICE, /* each has a device buffer of its own: loaded and copied once */
    DLP_PRELOAD_AUTO    /* DEVICE, else CPU, else NONE: the first that fits in limit_bytes */
};

enum {
    DLP_PASS_TRAIN = 0,
    DLP_PASS_EVALUATE, /* one epoch in the dataset's order, each row once */
    DLP_PASS_PREDICT   /* the same */
};

typedef struct dlp_chunks_desc {
    uint64_t n_items;        /* rows of the dataset; required, 1..2^48 */
    const dlp_field *fields; /* [n_fields] of a row; ndim at most DLP_MAX_DIMS - 2; copied */
    uint32_t n_fields;
    uint32_t fills_rows;       /* 0: zeroed before load; 1: load writes every byte of its rows */
    uint64_t chunk_rows;       /* rows of a chunk, on all ranks together; required, 1..2^46 */
    uint32_t batch_size;       /* rows of the global batch; required, 1..2^20 */
    int32_t last;              /* DLP_LAST_SHORT or _DROP, for what is left of each chunk */
    int32_t shuffle_chunks;    /* 1: the chunks' order is a permutation of each epoch */
    int32_t shuffle_rows;      /* 1: so is that of the rows in a chunk; not with a preload */
    dlp_chunk_fn load;         /* required */
    void *user;                /* borrowed until close */
    dlp_workers_desc workers;  /* loaders; num_workers 0: inline. Errors are a chunk's; with a
                                    preload on_error is DLP_ON_ERROR_RAISE. Start by exec needs a
                                    fetch with a name: wire dlp_pipe_add_split yourself */
    int32_t cpu_buffers;       /* 0: 2, without a device max_held + 1, which is the least then;
                                    with a preload this and max_held are at most 64 together */
    int32_t device_buffers;    /* 0: max_held + 1; max_held + 1..64 */
    const dlp_device *device;  /* not NULL: a transfer stage on this device */
    int32_t transfer_inline;   /* 0: a thread of its own copies; 1: the caller does */
    int32_t preload;           /* DLP_PRELOAD_* */
    int64_t epochs;            /* 0: one; DLP_FOREVER */
    int32_t epoch_end;         /* 1: next returns DLP_EPOCH_END between epochs */
    int32_t pass;              /* DLP_PASS_*; EVALUATE, PREDICT: one epoch, shuffle_*, last and
                                    epochs are not read */
    uint64_t seed;             /* any value */
    uint32_t rank, world_size; /* 0, 0: one rank */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
    dlp_pipe_desc pipe;        /* max_held counts views; prefetch_factor and unordered stay 0 */
} dlp_chunks_desc;

/* Open, wire and start sampler -> repeat -> load -> batch [-> transfer] -> split.
   out: a pipe that runs, to be closed; desc: copied as the stages' are; err: written on failure,
   may be NULL - returns DLP_OK, or what dlp_pipe_open, _add_*, _link and _start return; then
   nothing is left to close - any thread, which is the caller - allocates all there is to allocate.
   Source: chunked loading with double buffering, as deepcpp does it. */
DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err);

/* What a run came to. */
typedef struct dlp_run_result {
    uint64_t steps, items; /* batches and rows that on_step took */
    uint64_t epochs;       /* ended in this run */
    uint64_t elapsed_ns;
    dlp_state state; /* behind the last step that was made */
} dlp_run_result;

typedef struct dlp_run_desc {
    int (*on_step)(void *user, dlp_batch *batch); /* required. Not 0: stop behind this step */
    int (*on_epoch)(void *user, uint64_t epoch);  /* behind an epoch's last step; or NULL. Not 0:
                                                      stop */
    void *user;                                   /* borrowed */
    uint64_t max_steps;                           /* stop behind so many; 0: no limit */
    dlp_run_result *result;                       /* written in any case; NULL: not wanted */
} dlp_run_desc;

/* Drive a pipe: a step for each batch, which is released behind it, until the epochs are over.
   p: any pipe that runs, with no batch held - returns DLP_END: all is done; DLP_OK: a callback or
   max_steps stopped it, and another run goes on behind the last step; DLP_STOPPED: dlp_pipe_stop
   did, from any thread or signal handler (result.state says where to resume); DLP_ERR_ARG; or what
   dlp_pipe_next returns - caller - waits for batches; does not allocate. */
DLPDEF int dlp_chunks_run(dlp_pipe *p, const dlp_run_desc *desc);

/* ---------------------------------------------------------------------------------------------
   >>parts      PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   Items that come in parts (shard files, archives, ranges of one file): part workers load the next
   parts into queue_size cells, while fetch takes items out of those that are there.

     sampler -> [repeat] -> parts -> fetch -> ...
     order of               load into a  reads
     parts, items           part cell    item.part

   An epoch's order: the parts in their order, or in a keyed permutation; inside each its items in
   their order, or in a keyed permutation; and all of it one after another, T items. This is cut
   into C streams as long as each other to within one item. Row i of a full batch of B rows is the
   next of stream i / (B / C), the last short batch takes what is left of each stream in turn. So
   every item comes once, batches mix items of C parts, and a rank of W, where W divides C, reads
   C / W streams and loads their parts only. A part that lies across the border of two streams
   is loaded by both. With steps_per_epoch an epoch has that many full batches, on every rank, and a
   stream that ends before begins again. A batch is fed when all parts that it needs are there:
   fetch never waits for a part. Parts that are still in their cells are not loaded again. */

/* A part. Valid during the call only. */
typedef struct dlp_part {
    uint64_t index;     /* 0..n_parts - 1 */
    void *data;         /* aligned to 4096; load writes it; fetch may only read it */
    uint64_t bytes;     /* load: to be set, at most capacity; fetch: as load set it. What lies
                            behind is not defined */
    uint64_t capacity;  /* max_part_bytes */
    uint64_t items;     /* in this part */
    uint64_t first;     /* dataset index of its first item: the items of all parts before it */
    uint64_t item;      /* fetch: number of this item in the part, 0.. */
    uint32_t attempt;   /* load: 0, then 1.. for each retry */
    uint32_t worker;    /* load: worker number */
    void *worker_state; /* load: what worker_init left */
    void *internal;
} dlp_part;

/* Say why a load fails: as dlp_item_fail; the error names the part already. In load only. */
DLPDEF int dlp_part_fail(const dlp_part *part, int errnum, const char *format, ...);

/* Load a part: write part->data, set part->bytes. user: part_desc.user - returns 0, DLP_SKIP to
   leave its rows out, or any other value for failure, best by dlp_part_fail - called by all part
   workers at once; may block; should the worker die, another begins it anew. */
typedef int (*dlp_part_fn)(void *user, dlp_part *part);

typedef struct dlp_part_desc {
    uint64_t n_parts;      /* required, 1..2^31 */
    const uint64_t *items; /* [n_parts] items in each, 0 or more; copied; NULL: count tells */
    int (*count)(void *user, uint64_t part, uint64_t *items); /* asked for each part while the stage
                                  is added; returns 0, or failure: DLP_ERR_CALLBACK */
    uint64_t manifest_id;     /* the user's number for this list of parts (a hash of names, say),
                                  part of a state's fingerprint, as the counts are */
    uint64_t max_part_bytes;  /* required: of the largest part, 1..2^46 */
    uint32_t queue_size;      /* part cells, 2..4096; 0: as many as one batch of this rank may
                                  need, and one more. Fewer than that need is an error of start */
    uint32_t streams;         /* C, divides batch_size; 0: 1. Part of the order: it stays the same
                                  when world_size changes */
    int32_t shuffle_parts;    /* 1: parts in an order of each epoch's own */
    int32_t shuffle_items;    /* 1: items inside a part, likewise */
    uint64_t steps_per_epoch; /* 0: every item once. Else full batches in an epoch */
    dlp_part_fn load;         /* required */
    void *user;               /* borrowed until close */
    dlp_workers_desc workers; /* the part workers; 0 of them: loaded in next. on_error: RAISE: an
                                  error of the first batch that needs the part; SHORT: the part's
                                  rows are left out. dispatch: CLAIM; workers_max: 0. name NULL:
                                  "parts" */
} dlp_part_desc;

/* Add the part queue, between sampler (or repeat) and fetch. The sampler has order DLP_ORDER_PARTS;
   dataset.n_items is 0 or the sum of the counts; DLP_ON_ERROR_REPLACE of fetch takes another item
   of the same part.
   desc: copied - returns as dlp_pipe_add_fetch; DLP_ERR_CALLBACK of count - caller - allocates 8
   bytes a part. */
DLPDEF dlp_stage dlp_pipe_add_parts(dlp_pipe *p, const dlp_part_desc *desc);

typedef struct dlp_parts_desc {
    dlp_part_desc parts;
    dlp_loader_desc loader; /* all as there; shuffle: parts and items are shuffled */
} dlp_parts_desc;

/* Open, wire and start sampler -> repeat -> parts -> fetch [-> cache] -> batch [-> transfer].
   out, desc, err, threads: as dlp_loader_open - returns as that does, and DLP_ERR_CALLBACK of count
   - allocates all there is to allocate; calls count.
   Source: the part queue of distributed trainers: a list of files, shuffled and sharded by rank, of
   which the next is read into a bounded queue while items come from the present one. */
DLPDEF int dlp_parts_open(dlp_pipe **out, const dlp_parts_desc *desc, dlp_error *err);

/* A file that is a part, or a range of one. */
typedef struct dlp_part_file {
    const char *path;
    uint64_t offset;
    uint64_t bytes; /* 0: to the file's end */
} dlp_part_file;

/* Files as parts: .load = dlp_part_files_load, .user = &files. */
typedef struct dlp_part_files {
    const dlp_part_file *files; /* [n_files] by part index; borrowed until close */
    uint64_t n_files;
    const char *dir; /* the cache, or wherever they are; NULL: paths as they are, else
                                  dir/path; directories exist already */
    /* NULL: the files are there. Else called for one that is not: write the whole of it to fd, a
       new file that gets its name once it is complete and safe on disk. path: of that name -
       returns 0, or failure, best by dlp_part_fail - by part workers; for one file once at a time,
       also among processes: others wait for it. */
    int (*download)(void *user, const dlp_part *part, const char *path, int fd);
    void *user;
} dlp_part_files;

/* Read a part from its file, after a download if need be. Errors name the path.
   What is downloaded has the name path.tmp and a lock (flock) on it, is synced, then renamed. So a
   file under its own name is whole, and is used; what a process that died has left under the other
   name has no lock, and whoever wants that file next begins it anew. No link is followed there, and
   nothing but a regular file with one name is written. In a directory that all may write to, files
   count only if they are this user's or the directory's owner's (else EACCES), and new ones have
   mode 0600; a directory for each user is better.
   files: a dlp_part_files; part: as load gets it - returns 0; DLP_ERR_CALLBACK (a system call
   or download failed, the file is shorter than the range), DLP_ERR_LENGTH (more bytes than
   capacity, or of download) - in load only - waits for the disk, the download, the lock. */
DLPDEF int dlp_part_files_load(void *files, dlp_part *part);

/* ---------------------------------------------------------------------------------------------
   >>stats      COUNTERS, TRACE, PICTURES, WORDS
   All of these may be called by any thread, from start until close is called; they wait for nobody
   and hold up nobody. Numbers are read while others write them: each is right, together they are a
   few items apart. */

enum {
    DLP_WORKER_IDLE = 0,
    DLP_WORKER_STARTING,
    DLP_WORKER_BUSY,
    DLP_WORKER_STARVED,
    DLP_WORKER_BLOCKED,
    DLP_WORKER_EXITED,
    DLP_WORKER_PARKED /* above the number that the tuner lets work */
};

typedef struct dlp_worker_stats {
    int32_t stage, worker; /* stage as added; worker in its stage */
    int32_t state;         /* DLP_WORKER_* */
    int32_t tid;           /* for display */
    uint64_t items;        /* items done (batches for batch stages) */
    uint64_t bytes;
    uint64_t busy_ns;       /* in callbacks */
    uint64_t starved_ns;    /* waiting for input */
    uint64_t blocked_ns;    /* waiting for a free cell: all that may be in flight is done here,
                                   and the caller has not taken it */
    uint64_t cpu_ns;        /* of its thread, and of those of DLP_FETCH_THREADS; 0 if not
                                   known */
    uint64_t current_index; /* item in work (batch for batch stages), UINT64_MAX: none */
    uint64_t current_age_ns;
    int32_t process;       /* 1: a process of its own; 0: a thread, or inline */
    int32_t pid;           /* of the process it runs in; for display; 0: not begun */
    int32_t restarts;      /* times that it died and was begun anew */
    int32_t died_by;       /* the signal that ended it last; 0: none, it exited */
    uint64_t core_wait_ns; /* those threads were ready to run, but others had the cores, or a
                                   CPU quota was used up; 0 if not known (/proc/thread-self) */
} dlp_worker_stats;

typedef struct dlp_stage_stats {
    char name[32];
    int32_t kind;          /* DLP_STAGE_* */
    int32_t workers;       /* 0: inline; of a tuned stage those that work now */
    int32_t unit_is_batch; /* 1: items count batches */
    uint64_t items, bytes, retried, replaced, left_out;
    uint64_t busy_ns, starved_ns, blocked_ns, cpu_ns; /* summed over workers */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns;          /* time of one item, 0: not known yet */
    uint64_t ready;     /* batches waiting before it; the first stage: 0 */
    uint64_t restarts;  /* worker processes that died and were begun anew */
    int32_t died_by;    /* the signal that ended one of them last, 0: none, it exited */
    int32_t in_flight;  /* items that each worker may have under way at once; 0: one */
    uint64_t flight_ns; /* that all items were under way, added up; 0 with in_flight 0.
                                   flight_ns / busy_ns is how many a worker had at once */
    int32_t workers_min, workers_max; /* 0: not tuned */
    uint32_t cells, loaded;   /* part queue: its cells, and those with a part that is there, */
    uint32_t loading, in_use; /* is asked for or being loaded; of those there, one that a batch
                                   needs which is fed and not delivered */
    uint64_t core_wait_ns;    /* summed over workers */
} dlp_stage_stats;

enum {
    DLP_TUNE_BUSY = 1, /* one more: the trainer waited, and all workers of the stage were busy */
    DLP_TUNE_IDLE,     /* fewer: batches were ready, and workers had nothing to do */
    DLP_TUNE_CORES,    /* no more, although it is busy: its workers compute, the cores are taken */
    DLP_TUNE_SET       /* dlp_pipe_set_workers */
};

/* What became of the number of a stage's workers, and why. */
typedef struct dlp_tune_note {
    uint64_t at_ns; /* since start */
    int32_t stage, from, to;
    int32_t reason; /* DLP_TUNE_* */
} dlp_tune_note;

#define DLP_TUNE_NOTES 16

/* The chunks of a pipe with a split stage, and where their buffers are; without one all is 0. Its
   five queues: loadable, cpu_free, cpu_filled, device_free, device_filled. */
typedef struct dlp_chunk_stats {
    uint64_t taken;       /* chunks that were cut, or begun to be */
    uint64_t loadable;    /* chunks of the epoch fed last that are not yet given to a loader */
    uint64_t cpu_buffers; /* 0: a monitor of an older version's pipe can't tell */
    uint64_t cpu_free, cpu_loading;
    uint64_t cpu_filled;     /* loaded; of those, not copied yet where there is a device */
    uint64_t device_buffers; /* 0: no device */
    uint64_t device_free, device_copying;
    uint64_t device_filled; /* copied, not yet cut */
    uint64_t in_use;        /* chunks being cut, or with views held */
    int32_t preload;        /* DLP_PRELOAD_CPU, _DEVICE: all chunks stay; else _NONE */
    int32_t pad0;
    uint64_t per_epoch; /* chunks that an epoch has */
} dlp_chunk_stats;

typedef struct dlp_stats {
    uint64_t elapsed_ns;     /* since start */
    uint64_t batches, items; /* delivered */
    uint64_t bytes;          /* of fields delivered */
    uint64_t wait_ns;        /* the caller waited in next */
    uint64_t step_ns;        /* the caller was elsewhere, between next and next */
    uint64_t step_p50_ns, step_p95_ns;
    uint64_t first_batch_ns; /* from start to the first batch */
    uint64_t epoch;          /* of the batch delivered last */
    uint32_t batch_size;     /* rows of this rank's full batch */
    uint32_t prefetch_factor, max_held;
    uint32_t in_flight; /* batches between sampler and next */
    uint32_t ready;     /* ... of them complete */
    uint32_t held;
    uint32_t slots;
    uint32_t cpus; /* that the process may use */
    uint32_t n_stages, n_workers;
    uint64_t plan_bytes;
    dlp_stage_stats stages[DLP_MAX_STAGES];
    uint64_t cache_hits, cache_misses; /* items that the cache had, and had not */
    uint64_t cache_bytes;              /* of cells in use */
    uint64_t cache_capacity;           /* of all its cells; 0: there is no cache */
    uint64_t cache_all_bytes;          /* of the cells that all items of the dataset would take */
    dlp_chunk_stats chunks;
    uint64_t tunes; /* decisions of the tuner; the newest, the oldest of them first: */
    dlp_tune_note tune[DLP_TUNE_NOTES];
    uint64_t part_wait_ns;    /* of wait_ns: the part queue was empty */
    dlp_worker_stats longest; /* who is at its item the longest now; current_age_ns 0: nobody */
    dlp_error first_skip;     /* why an item was replaced or left out for the first time; code 0:
                                   none was */
} dlp_stats;

/* Read the counters of the pipe and its stages.
   out: written on success - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out);

/* Read the counters of one worker, and what it works on now.
   i: 0..n_workers - 1 of dlp_stats, in the order of the stages, inline ones and the transfer among
   them - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out);

/* An item that was replaced or left out. */
typedef struct dlp_skip {
    uint64_t epoch, position, index, new_index; /* new_index UINT64_MAX: left out */
    int32_t code, errnum, stage, worker;
    char message[128]; /* why, as in an error record, cut */
} dlp_skip;

/* Copy the newest skips, oldest of them first.
   out: [max], may be NULL with max 0; max: 64 are kept; total: how many there were in all, may be
   NULL - returns the number copied, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total);

/* Say in words which stage limits throughput and what to change: lines, the first beginning
   "Limit: ". An item that is in work unusually long (a second, or 100 ms and twice its stage's p99)
   has a line that begins "Longest: ": with the stage, the worker, its thread, the item, how long.
   buf, size: borrowed; cut and terminated like snprintf's; NULL with size 0 asks for the length -
   returns the length of the whole text, or DLP_ERR_ARG (explain: or dlp_pipe_stats' error) - any
   thread - does not wait or allocate; takes dlp_stats_predict's time where prefetch_factor is the
   limit. */
DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size);
DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size);

enum {
    DLP_TRACE_WORK = 1,
    DLP_TRACE_WAIT,
    DLP_TRACE_STEP,
    DLP_TRACE_EPOCH,
    DLP_TRACE_STARVED,
    DLP_TRACE_BLOCKED
};

/* A stretch of time in a lane (a worker, or the trainer). Stretches of a lane do not overlap. */
typedef struct dlp_trace_event {
    uint64_t begin_ns, end_ns; /* since start */
    uint64_t sequence;         /* batch */
    uint32_t epoch;
    uint16_t kind;  /* DLP_TRACE_* */
    uint16_t items; /* done in it, of one batch */
} dlp_trace_event;

/* Return the number of trace lanes, or DLP_ERR_ARG, DLP_ERR_STATE (not started). Lane 0 is the
   trainer; the others are the workers, in the order of dlp_pipe_worker_stats. */
DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p);

/* Copy the newest events of a lane, oldest of them first.
   out: [max], may be NULL with max 0; name: [32], may be NULL - returns the number copied,
   DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name);

/* Write the trace as Chrome trace-event JSON (for Perfetto), or as one self-contained SVG of the
   newest stretch. path: borrowed; a new or regular file is written as path.tmp and renamed,
   anything else (device, pipe, link) in place, but not what another user put into a directory that
   all may write to - returns 0, DLP_ERR_ARG, DLP_ERR_MEMORY,
   DLP_ERR_SYSTEM with errno, or dlp_pipe_trace's error; after a failure the old file is there as it
   was - progress: allocates for the length of the call and writes a file; keep it off the step
   path. Source: Trace Event Format (the Chromium project's document of that name). */
DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path);
DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path);

/* ---------------------------------------------------------------------------------------------
   >>predict    WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   A pipe that ran for a while has measured what its items, batches and steps take. From that the
   same pipe is run again in virtual time, event by event, with other numbers of workers, batches in
   flight, cores or steps: claims of runs, order of delivery and all. Item times are drawn so that
   their p50, p95, p99 and mean are those measured; the part of them that was CPU time shares the
   cores; where others had some of those, as many as were left for the pipe. What costs of its own
   come with more workers (a disk's queue, a memory bus, a network) is not known to it; nor what
   items would take alone, where the cores were full when measured. Of stages that ran inline CPU
   time is not measured: they are taken to compute all the time. */

typedef struct dlp_predict_desc {
    int32_t num_workers;             /* fetch; 0: as measured; DLP_NONE: inline */
    int32_t batch_workers;           /* the batch stage, if it has a collate; likewise */
    int32_t workers[DLP_MAX_STAGES]; /* likewise, by stage as in dlp_stats; not 0: goes before the
                                        two above */
    uint32_t prefetch_factor;        /* 0: as measured; above 128 taken as 128 */
    uint32_t cpus;                   /* cores; 0: as measured, less those that others had */
    int64_t step_ns;   /* a step of the trainer, the mean; 0: as measured; DLP_NONE: none */
    int32_t step_idle; /* 1: a step keeps no core busy (it waits for a device); so always
                                with a transfer stage */
    int32_t unordered; /* 1: batches are delivered as they are complete */
} dlp_predict_desc;

typedef struct dlp_predict {
    double items_per_s, batches_per_s;
    double wait_share; /* of the trainer's time, 0..1: in next, inline stages included */
    double cores;      /* kept busy, in the mean */
    double busy_share[DLP_MAX_STAGES]; /* of the time of a stage's workers, 0..1; inline: of the
                                          trainer's */
    uint64_t batches;                  /* that were simulated */
} dlp_predict;

/* Foretell how a measured pipe would run otherwise.
   measured: of dlp_pipe_stats, best some hundred batches after the start; what_if: NULL: as
   measured; out: written on success - returns DLP_OK, DLP_ERR_ARG (a number out of range; more than
   1024 workers in all), DLP_ERR_STATE (no more than prefetch_factor batches were delivered yet) -
   any thread - does not wait or allocate; takes 40 KiB of stack and 1 to 30 ms. */
DLPDEF int dlp_stats_predict(const dlp_stats *measured, const dlp_predict_desc *what_if,
                             dlp_predict *out);

/* ---------------------------------------------------------------------------------------------
   >>devices    GPUS: CUDA, OPENCL
   Ready-made devices for the transfer stage. DLPIPE_CUDA, DLPIPE_OPENCL [impl] compile them in, and
   no toolkit is needed: the libraries are looked for when a device is made. A device serves one
   pipe at a time, one after another.

     dlp_device gpu;
     if (dlp_device_cuda(&gpu, NULL, &err) != DLP_OK) ...     // then loader_desc.device = &gpu
     ... the pipe, until it is closed and its last batch released ...
     dlp_device_close(&gpu);

   A batch that next lends has arrived: nothing need wait for its copy. Release is the other way
   round: the next copy must not overwrite what kernels still read. Choose one of these:
   * the kernels are done (their stream was synchronised): dlp_pipe_release;
   * dlp_pipe_release_after: the buffer is written again behind what a stream was given until then;
   * desc.consumer: the same for all batches of the pipe, with dlp_pipe_release (and DLPack);
   * desc.stream or desc.queue is the one the kernels run on: they and copies then take turns.
   No thread waits in any of the last three.

   CUDA pins the slots once, in start (cuMemHostRegister), so that copies run beside the host; where
   that is refused, copies are pageable: slower, and the copying thread takes part. OpenCL has no
   such call; it copies from ordinary memory. A field of a batch has, for data, the CUdeviceptr or
   the cl_mem (one per field and buffer, as large as the field can become); of a view into a chunk,
   the CUdeviceptr of its first row, or the chunk's cl_mem and byte_offset. */

typedef struct dlp_cuda_desc {
    int32_t device;       /* ordinal; not read if context is given; 0: the first */
    int32_t has_consumer; /* 1: consumer is one, also if it is NULL (the default stream) */
    void *context;        /* CUcontext, borrowed; NULL: the device's primary one (that of the
                               runtime API), retained until close */
    void *stream;         /* CUstream for the copies, borrowed; NULL: one of its own */
    void *consumer;       /* CUstream whose work reads the batches, borrowed: copies into a buffer
                               wait for all that it was given before. Not to be captured */
    const char *library;  /* NULL: "libcuda.so.1" */
} dlp_cuda_desc;

typedef struct dlp_opencl_desc {
    int32_t device;      /* of all devices of all platforms, in their order, or, if it is given,
                               of context's; not read with queue; 0: the first */
    void *context;       /* cl_context, retained until close; NULL: queue's, or one of its own */
    void *queue;         /* cl_command_queue for the copies, likewise; NULL: one of its own */
    void *consumer;      /* cl_command_queue whose work reads the batches, likewise: copies into
                               a buffer wait for all that it was given before; NULL: none */
    const char *library; /* NULL: "libOpenCL.so.1" */
} dlp_opencl_desc;

/* Make a device out of a GPU.
   out: to be closed; desc: NULL is {0}, copied; err: written on failure, may be NULL - returns
   DLP_OK; DLP_ERR_UNSUPPORTED: not compiled in, no driver, or one without devices; DLP_ERR_ARG:
   there is no such device; DLP_ERR_DEVICE: another call failed; DLP_ERR_MEMORY. Messages name the
   call, its error and the number; so do those of pipes whose device fails - any thread - allocates,
   and waits for the driver. Libraries stay loaded. */
DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err);
DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err);

/* What a device is made of, to enqueue work beside its copies. */
typedef struct dlp_device_info {
    const char *kind;  /* "cuda", "opencl" */
    char name[128];    /* what the driver calls it */
    int32_t device;    /* ordinal (cuda) */
    int32_t pinned;    /* 1: the slots of the pipe that uses it are pinned; since start */
    void *context;     /* CUcontext, cl_context */
    void *queue;       /* CUstream, cl_command_queue of the copies */
    void *device_id;   /* cl_device_id (opencl) */
    char unpinned[96]; /* why they are not: the call and its error, or "" */
} dlp_device_info;

/* Tell what a device is made of.
   device: of dlp_device_cuda or _opencl; out: written on success - returns DLP_OK, or DLP_ERR_ARG
   (of another make) - while no start or close of its pipe is under way - does not wait. */
DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out);

/* Free what dlp_device_cuda or _opencl made.
   device: zeroed; zero already: DLP_OK - returns DLP_OK, DLP_ERR_ARG (of another make),
   DLP_ERR_BUSY (a pipe uses it, or batches of one are held: nothing is freed) - any thread - may
   wait for the driver. */
DLPDEF int dlp_device_close(dlp_device *device);

/* Give a batch back while work that reads it is still queued: its buffer is written again only
   behind all that stream was given until now.
   p, batch: as for dlp_pipe_release; stream: CUstream (NULL: the default stream), or
   cl_command_queue, of the device's context; err: written on failure, may be NULL - returns DLP_OK;
   DLP_ERR_UNSUPPORTED: the pipe has no such device; DLP_ERR_DEVICE: then the batch is still held;
   else what dlp_pipe_release returns - caller - does not wait for the work, but after close the
   last release does. */
DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>dlpack     TENSORS FOR OTHER LIBRARIES
   A field of a batch as a tensor that numpy, PyTorch, JAX and others take over without a copy
   (numpy.from_dlpack). The structs are those of dlpack.h 0.8, DLManagedTensor, and 1.0,
   DLManagedTensorVersioned, byte for byte: cast the pointer. Both headers may be included. */

typedef struct dlp_dl_tensor {
    void *data;
    int32_t device_type; /* 1: host, 2: CUDA, 4: OpenCL (data is a cl_mem), 12: a device of the
                                user's, who may write here what it is */
    int32_t device_id;   /* CUDA: ordinal; else 0 */
    int32_t ndim;
    uint8_t code, bits;   /* of dlp_dtype */
    uint16_t lanes;       /* 1 */
    int64_t *shape;       /* [ndim] */
    int64_t *strides;     /* [ndim] elements; never NULL */
    uint64_t byte_offset; /* as dlp_tensor has it */
} dlp_dl_tensor;

typedef struct dlp_managed_tensor {
    dlp_dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct dlp_managed_tensor *self);
} dlp_managed_tensor;

typedef struct dlp_managed_tensor_v1 {
    uint32_t major, minor; /* 1, 0 */
    void *manager_ctx;
    void (*deleter)(struct dlp_managed_tensor_v1 *self);
    uint64_t flags; /* 0: may be written */
    dlp_dl_tensor dl_tensor;
} dlp_managed_tensor_v1;

/* Make a tensor of a field. From the first one of a batch on, the batch is held until its last
   tensor is deleted; it then goes back within the caller's next dlp_pipe_next, _release or _close.
   So make all that are wanted before calling one of these. dlp_pipe_release of such a batch is
   DLP_OK, and gives it back when that is so; it need not be called, nor may it after close. A batch
   with tensors counts among max_held. Tensors outlive close: the pipe's memory goes with the last.
   A tensor may be deleted while kernels that read it are queued (PyTorch does): give the device
   their stream as consumer.
   batch: one that is held; field: 0..n_fields-1; out: to be deleted by its deleter, once, by any
   thread - returns DLP_OK, DLP_ERR_ARG (not held, no such field), DLP_ERR_STATE (closed),
   DLP_ERR_MEMORY, DLP_ERR_FORKED - caller - allocates the tensor; does not wait.
   Source: dlpack.h (github.com/dmlc/dlpack), v0.8 and v1.0. */
DLPDEF int dlp_batch_dlpack(dlp_pipe *p, dlp_batch *batch, int field, dlp_managed_tensor **out);
DLPDEF int dlp_batch_dlpack_v1(dlp_pipe *p, dlp_batch *batch, int field,
                               dlp_managed_tensor_v1 **out);

/* ---------------------------------------------------------------------------------------------
   >>files      ITEMS OUT OF FILES, MANY AT ONCE
   A dataset whose items are local files, or stretches of files. Each worker keeps in_flight of them
   under way at once: by an io_uring of its own on Linux 5.6 and later, else (the kernel is older,
   or the system forbids it, or use_threads asks for it) by in_flight threads that pread. Orders and
   bytes are the same. It pays where reading waits, for a disk or a network; a file that is in
   memory already costs as much as by fetch, or a little more.

     dlp_files_desc files_desc = {.n_items = n, .paths = paths, .fields = &field, .n_fields = 1};
     dlp_files_open(&files, &files_desc, &err);
     dlp_files_wire(files, &desc.dataset, &desc.workers); // desc: of the loader, or fetch_desc
     desc.fetcher = DLP_FETCH_ASYNC;                      // without these three: one at a time
     desc.in_flight = 16;
     desc.async = dlp_files_async(files);
     ... the pipe, until it is closed; dlp_files_close(files);

   Without a decode the bytes go from the kernel into the row of field 0, with no copy between: a
   ragged field's length is set, one of fixed size wants exactly its bytes. Files are read through
   the page cache, never by direct I/O: a worker process that is killed then leaves no transfer
   behind that could still write into a row. What is no regular file is refused before it is read.
   Errors name path, errno, item, and bytes where they matter; stages' policies apply to them. Not
   for worker processes that begin by exec: what is called here has no names there. */

enum { DLP_FILES_ROOM = 4096 /* bytes for a path, its end included */ };

/* Where an item's bytes are. locate finds fd -1, path at room, room empty, the rest 0. */
typedef struct dlp_extent {
    const char *path; /* written into room, or a string that stays until close */
    char *room;       /* DLP_FILES_ROOM bytes */
    int32_t fd;       /* not -1: read this open file and leave it open; no path then */
    uint64_t offset;  /* where the item begins */
    uint64_t length;  /* its bytes; 0: to the file's end. With fd and a length the file may
                                be a block device */
} dlp_extent;

typedef struct dlp_files_desc {
    uint64_t n_items;        /* 1..2^48 */
    const dlp_field *fields; /* [n_fields] as in dlp_dataset; borrowed until start */
    uint32_t n_fields;
    int32_t use_threads; /* 1: threads, also where io_uring is to be had */
    const char *const
        *paths; /* [n_items] item i is the whole file paths[i]; borrowed until close */
    int (*locate)(void *user, const dlp_item *item, dlp_extent *out); /* in place of paths; returns
                                as fetch does; pure; called by all workers at once */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    /* write item out of bytes, which are valid during the call; returns
                                as fetch does; in the worker itself. NULL: direct */
    void *user;         /* of all callbacks here; borrowed until close */
    uint64_t max_bytes; /* with a decode: most bytes of an item, 1..2^40; more of them is
                                DLP_ERR_LENGTH. Direct: not used, field 0 says it */
    int32_t direct;     /* 1: bytes go into field 0 also with a decode, which finds them there
                                and writes the other fields */
    int32_t in_flight;  /* files that a worker has in hand at once; 0: 16; 1..256; at least the
                                stage's in_flight, of which more would wait */
    int (*worker_init)(void *user, int worker, void **state); /* for decode's worker_state; as in */
    void (*worker_exit)(void *user, int worker, void *state); /* dlp_workers_desc; may be NULL */
} dlp_files_desc;

typedef struct dlp_files dlp_files;

/* Make a source.
   out: to be closed; desc: copied; err: written on failure, may be NULL - returns DLP_OK,
   DLP_ERR_ARG (err->field names it), DLP_ERR_MEMORY - any thread - allocates its own record; files
   are opened by workers. */
DLPDEF int dlp_files_open(dlp_files **out, const dlp_files_desc *desc, dlp_error *err);

/* Enter the source into a loader's desc, or a fetch stage's: n_items, fields, fetch and user of the
   dataset (and fills_rows, where it writes every byte), worker_init, worker_exit and worker_user of
   the workers. files: borrowed until the pipe is closed. Before the pipe is made; any number of
   pipes may use one source - any thread - does not wait or allocate. */
DLPDEF void dlp_files_wire(dlp_files *files, dlp_dataset *dataset, dlp_workers_desc *workers);

/* Return what DLP_FETCH_ASYNC wants; workers that begin from now on have a ring, or threads. Before
   start - any thread - does not wait or allocate. */
DLPDEF dlp_async dlp_files_async(dlp_files *files);

/* Tell how files will be read: "io_uring", or "threads: " and why. A worker that gets no ring of
   its own (a limit on locked memory, say) has threads all the same. The source's, until close - any
   thread - does not wait. */
DLPDEF const char *dlp_files_backend(const dlp_files *files);

/* Return the bytes that each worker allocates when it begins. They are not in the pipe's plan. Any
   thread; does not wait. */
DLPDEF uint64_t dlp_files_worker_bytes(const dlp_files *files);

/* Free the source.
   files: NULL is DLP_OK - returns DLP_OK, or DLP_ERR_BUSY (a worker of this process uses it: close
   the pipe first) - any thread - does not wait. */
DLPDEF int dlp_files_close(dlp_files *files);

/* ---------------------------------------------------------------------------------------------
   >>tokens     TOKENS OUT OF SHARDS, FOR LANGUAGE MODELS (examples/tokens.c)
   A dataset of windows of length + 1 tokens, cut out of files (shards) of uint16 or uint32 tokens:
   a step takes tokens [0, T) of a row as its input and [1, T + 1) as its targets. A window begins
   every stride tokens and never crosses a shard; what is left at a shard's end is in no item.

     dlp_tokens_loader_desc desc = {
         .tokens = {.pattern = "fineweb10B/fineweb_train_*.bin", .length = 1024},
         .loader = {.batch_size = 64, .num_workers = 1, .shuffle = 1, .epochs = DLP_FOREVER},
     };
     dlp_tokens *tokens;
     dlp_pipe *pipe;
     dlp_error err;
     if (dlp_tokens_loader_open(&pipe, &tokens, &desc, &err) != DLP_OK) ...
     ... the pipe, until it is closed: b->fields[0].data is uint16_t [64][1025]
     dlp_tokens_close(tokens);

   The shuffle is that of the pipe: over all windows of all shards, in an order of each epoch's own,
   in no memory. So are ranks and states: a run resumes exactly, with any number of ranks and
   workers, and a state of other shards (their number, the tokens in each), or of another length or
   stride is refused: DLP_ERR_RESUME.

   Shards are mapped, and a window is copied once, from the mapping into its row. Read-ahead: the
   next MiB where windows come in order; else the windows that come read_ahead items later, as long
   as a probe now and then (one in 32) finds such a one not in memory. A shard that was cut since it
   was opened is an error of the item that needs it, found within a tick of the kernel's clock (some
   ms); one that is cut, or whose disk fails, while it is copied ends the process by SIGBUS, as any
   mapping does. `reads` turns both into errors, for a system call a window. */

enum {
    DLP_TOKENS_AUTO = 0, /* LLMC if the first shard begins with one of its magic numbers, else
                            NANOGPT */
    DLP_TOKENS_LLMC,     /* 256 int32, then tokens. [0] and [1] are 20240520 and 1 (uint16, GPT-2),
                            or 20240801 and 7 (uint32, Llama 3), [2] is the number of tokens */
    DLP_TOKENS_NANOGPT,  /* uint16 from the first byte on */
    DLP_TOKENS_U16,      /* header_bytes of anything, then uint16 ... */
    DLP_TOKENS_U32       /* ... or uint32 */
};

typedef struct dlp_tokens_desc {
    const char *pattern; /* glob(3), without braces and tildes: shards in the order of their paths'
                            bytes, whatever the locale. Or */
    const char *const *paths; /* [n_paths] shards in this order; copied */
    uint64_t n_paths;         /* 1..2^20. One descriptor is open for each shard: ulimit -n */
    int32_t format;           /* DLP_TOKENS_*, the same for all; little-endian */
    uint32_t windows;         /* 0: an item is one window, [T + 1]. 1..2^20: it is so many that
                                 follow each other in their shard, [windows, T + 1]: a micro-batch
                                 as one item, for a batch_size of 1 */
    uint64_t header_bytes;    /* _U16, _U32: before a shard's first token, any number; else 0 */
    uint64_t length;          /* T, required, 1..2^30 */
    uint64_t stride;          /* tokens from one window to the next, 1..2^48; 0: T, so that each
                                 token is a target once */
    int32_t widen;            /* 1: rows are DLP_I32, whatever the shards have. 0: as they have it,
                                 DLP_U16 or DLP_U32 */
    int32_t reads;            /* 1: pread in place of mappings */
    int32_t read_ahead;       /* items from one that is read to the one asked for, where they are
                                 shuffled; best a multiple of batch_size. 0: 256, or with
                                 dlp_tokens_loader_open 4 * batch_size; DLP_NONE: none is asked for,
                                 in any order */
} dlp_tokens_desc;

typedef struct dlp_tokens_shard {
    const char *path;
    uint64_t header_bytes;
    uint64_t tokens;
    uint64_t first_item, items; /* dataset indices first_item and so on */
    uint64_t left_out;          /* tokens at its end that no item has */
} dlp_tokens_shard;

typedef struct dlp_tokens_info {
    uint64_t n_items, tokens, left_out; /* of all shards */
    uint64_t length, stride, windows;   /* as they came out: none is 0 */
    dlp_dtype stored, dtype;            /* in the shards; of a row */
    uint64_t id; /* a number that differs where shards' number or lengths, length, stride or windows
                    do: what states know this dataset by */
    uint64_t n_shards;
    const dlp_tokens_shard *shards; /* [n_shards] */
} dlp_tokens_info;

typedef struct dlp_tokens dlp_tokens;

/* Open all shards and count their windows.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names file and
   byte - returns DLP_OK; DLP_ERR_ARG (a field; no file matches; not one whole item in all of them);
   DLP_ERR_SYSTEM (a file cannot be opened or mapped: errnum); DLP_ERR_CORRUPT (wrong magic or
   version, a number of tokens that is not the file's, half a token); DLP_ERR_UNSUPPORTED (a
   big-endian machine); DLP_ERR_MEMORY - any thread - waits for the disk; allocates some 150 bytes a
   shard; mappings are not in the pipe's plan.
   Source: dataloader.h of llm.c (github.com/karpathy/llm.c), train.py of nanoGPT. */
DLPDEF int dlp_tokens_open(dlp_tokens **out, const dlp_tokens_desc *desc, dlp_error *err);

/* Tell what was found. The source's, until close. Any thread; does not wait. */
DLPDEF const dlp_tokens_info *dlp_tokens_describe(const dlp_tokens *tokens);

/* Enter the source into a loader's desc, or the descs of a fetch stage and a sampler: n_items,
   fields (one, "tokens"), fills_rows, fetch and user of the dataset; worker_init, worker_exit and
   worker_user of the workers; and function_id of the sampler (but for DLP_ORDER_FUNCTION and
   _BATCHES, where that is yours: mix info.id into it), for states.
   tokens: borrowed until the pipe is closed. Before the pipe is made; any number of pipes may use
   one source - any thread - does not wait or allocate. */
DLPDEF void dlp_tokens_wire(dlp_tokens *tokens, dlp_dataset *dataset, dlp_workers_desc *workers,
                            dlp_sampler_desc *sampler);

/* Free the source.
   tokens: NULL is DLP_OK - returns DLP_OK, or DLP_ERR_BUSY (a worker of this process uses it: close
   the pipe first) - any thread - does not wait. */
DLPDEF int dlp_tokens_close(dlp_tokens *tokens);

typedef struct dlp_tokens_loader_desc {
    dlp_tokens_desc tokens;
    dlp_loader_desc loader; /* all as there; dataset and workers.worker_* are not read */
} dlp_tokens_loader_desc;

/* Open the shards, and a pipe of them that runs.
   out, tokens: both to be closed, the pipe first; desc: copied; err: may be NULL - returns as
   dlp_tokens_open and dlp_loader_open; after a failure nothing is left to close - any thread, which
   is the pipe's caller - as both of them. */
DLPDEF int dlp_tokens_loader_open(dlp_pipe **out, dlp_tokens **tokens,
                                  const dlp_tokens_loader_desc *desc, dlp_error *err);

enum {
    DLP_EOT_BEGINS = 0, /* the end-of-text token is a document's first, as in llm.c's shards */
    DLP_EOT_ENDS        /* ... its last, as in nanoGPT's */
};

/* Find the documents in a row: start[0] is 0, start[i] is where the next one begins, and behind the
   last of n documents start[n] is length: the cumulative lengths that attention within documents
   wants (cu_seqlens), for the first `length` tokens of a row. A call for whoever needs it, in the
   step or in a batch map, rather than a field of every batch: which would be ragged, with room for
   length + 1 numbers in every row.
   tokens: [length], a row of a batch; dtype: DLP_U16, DLP_U32 or DLP_I32; eot: the token; rule:
   DLP_EOT_*; start: [room], written as far as there is room; length + 1 always suffices - returns
   n, 1 or more, or 0: length is 0 or 2^31 and more, or dtype none of those - any thread - does not
   wait or allocate. */
DLPDEF uint64_t dlp_tokens_documents(const void *tokens, dlp_dtype dtype, uint64_t length,
                                     uint32_t eot, int rule, int32_t *start, uint64_t room);

/* ---------------------------------------------------------------------------------------------
   >>folder     FOLDERS OF PICTURES, A DIRECTORY FOR EACH CLASS (examples/folder.c)
   One call lists a tree into paths and classes, as an image folder is laid out:

     train/cat/a.jpg  train/cat/more/b.JPEG  train/dog/c.png  ->  classes "cat" 0, "dog" 1

     dlp_folder *folder;
     dlp_folder_open(&folder, &(dlp_folder_desc){.path = "train"}, &err);
     dlp_files_desc files_desc = {.n_items = folder->n_files, .paths = folder->paths,
                                  .fields = fields, .n_fields = 2, .decode = decode,
                                  .max_bytes = 64 << 20, .user = folder};
     ... as in >>files; in decode: label = folder->labels[item->index]

   A class is a directory right below path; classes are numbered in the order of their names' bytes.
   Its files are those below it, however deep, in the order of their paths' bytes: so an item's
   index is the same on every machine, whatever locale or file system. Of them only regular files
   with one of the extensions count; names that begin with a dot, files and directories, are left
   out. Symbolic links are followed; one that leads back to a directory that it lies in is refused,
   and so is one that leads nowhere, if its extension counts. Reading and decoding are the fetch's:
   nothing is opened here but directories. */

typedef struct dlp_folder_desc {
    const char *path;              /* required */
    const char *const *extensions; /* [n_extensions] without the dot, any case, ASCII; NULL:
                                            jpg jpeg png bmp ppm webp */
    uint32_t n_extensions;
    uint64_t max_files; /* more are DLP_ERR_LIMIT; 0: 2^31 */
} dlp_folder_desc;

/* Read it; all of it is the folder's own, until close. */
typedef struct dlp_folder {
    uint64_t n_files;
    const char *const *paths; /* [n_files] desc.path/class/..., for dlp_files_desc.paths */
    const uint32_t *labels;   /* [n_files] class of each */
    uint32_t n_classes;
    const char *const *classes;  /* [n_classes] names */
    const uint64_t *class_files; /* [n_classes] files of each; 0 is possible */
    uint64_t left_out;           /* files below classes that do not count, and files of no class */
    uint64_t id;                 /* a number that differs where names of classes or files do: for
                    dlp_sampler_desc.function_id, so that a state of another folder is refused */
} dlp_folder;

/* List a folder.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names the path
   - returns DLP_OK; DLP_ERR_ARG (a field; no directory in path, no file that counts);
   DLP_ERR_SYSTEM (a directory cannot be read, a link leads nowhere or, ELOOP, back: errnum);
   DLP_ERR_LIMIT (max_files, 2^20 directories); DLP_ERR_MEMORY - any thread - waits for the disk;
   allocates the paths and some 20 bytes a file.
   Source: the layout of torchvision.datasets.ImageFolder. */
DLPDEF int dlp_folder_open(dlp_folder **out, const dlp_folder_desc *desc, dlp_error *err);

/* Free a folder. folder: NULL does nothing; no pipe or source uses its arrays any more - any thread
   - does not wait. */
DLPDEF void dlp_folder_close(dlp_folder *folder);

/* ---------------------------------------------------------------------------------------------
   >>arrays     ROWS OUT OF ARRAYS: IDX, CIFAR, NPY
   A dataset whose items are rows: of MNIST's IDX files, of CIFAR's .bin, of numpy's .npy. A column
   is a list of files whose rows follow each other, and becomes a field (CIFAR's: two or three);
   item i has row i of each column.

     dlp_array_column columns[] = {{.name = "image", .path = "train-images-idx3-ubyte"},
                                   {.name = "label", .path = "train-labels-idx1-ubyte"}};
     dlp_arrays_loader_desc desc = {.arrays = {.columns = columns, .n_columns = 2},
                                    .loader = {.batch_size = 64, .shuffle = 1}};
     if (dlp_arrays_loader_open(&pipe, &arrays, &desc, &err) != DLP_OK) ...
     ... the pipe, until it is closed: fields[0] is uint8_t [64][28][28], fields[1] [64]
     dlp_arrays_close(arrays);

     format   of a file                                             fields
     IDX      magic 0 0 type dimensions, 32-bit big-endian sizes;   one, of the file's type: U8, I8,
              numbers are big-endian and come out as the            I16, I32, F32, F64
              machine's own
     CIFAR10  records of a label and 32 x 32 pixels, by channels    "label", "image" [3][32][32], U8
     CIFAR100 the same with two labels                              "coarse", "fine", "image"
     NPY      version 1, 2 or 3; C order; little-endian b1, i1, i2, one
              i4, i8, u1, u2, u4, u8, f2, f4, f8

   A file has to be exactly as long as its header says. Files are mapped, and a row is copied once,
   into the batch; what is said of that, of files that are cut, and of `reads`, in >>tokens holds
   here, too. The rows of an item, not whole chunks: the load of >>chunks copies as well, so there
   is nothing that it would save. */

enum {
    DLP_ARRAY_AUTO = 0, /* IDX or NPY, by the first file's first bytes; CIFAR's have no magic */
    DLP_ARRAY_IDX,
    DLP_ARRAY_NPY,
    DLP_ARRAY_CIFAR10,
    DLP_ARRAY_CIFAR100
};

typedef struct dlp_array_column {
    const char *name;         /* of the field, copied, 1..31 bytes; NULL for CIFAR's, which have
                                 names */
    const char *path;         /* a file, or */
    const char *const *paths; /* [n_paths] files, whose rows are of one type and shape */
    uint64_t n_paths;         /* 0 with path; else 1..2^16 */
    int32_t format;           /* DLP_ARRAY_* */
} dlp_array_column;

typedef struct dlp_arrays_desc {
    const dlp_array_column *columns; /* [n_columns] of equally many rows; copied */
    uint32_t n_columns;              /* 1..DLP_MAX_FIELDS; as many fields at most */
    int32_t reads;                   /* 1: pread in place of mappings */
} dlp_arrays_desc;

typedef struct dlp_arrays_info {
    uint64_t n_items; /* rows */
    uint32_t n_fields;
    const dlp_field *fields; /* [n_fields] */
    uint64_t id; /* a number that differs where the fields or the rows of a file do: what states
                    know this dataset by. Contents are not looked at */
} dlp_arrays_info;

typedef struct dlp_arrays dlp_arrays;

/* Open all files and read their headers.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names file and
   byte - returns DLP_OK; DLP_ERR_ARG (a field; columns of different lengths; no rows);
   DLP_ERR_SYSTEM (a file cannot be opened, read or mapped: errnum); DLP_ERR_CORRUPT (no such
   format, a header that is cut or contradicts the file's length); DLP_ERR_UNSUPPORTED (a type, an
   order or a number of dimensions that is not among those above; a big-endian machine);
   DLP_ERR_MEMORY - any thread - waits for the disk; mappings are not in the pipe's plan.
   Source: yann.lecun.com/exdb/mnist (IDX); cs.toronto.edu/~kriz/cifar.html; numpy.lib.format. */
DLPDEF int dlp_arrays_open(dlp_arrays **out, const dlp_arrays_desc *desc, dlp_error *err);

/* Tell what was found. The source's, until close. Any thread; does not wait. */
DLPDEF const dlp_arrays_info *dlp_arrays_describe(const dlp_arrays *arrays);

/* Enter the source into a loader's desc, or the descs of a fetch stage and a sampler, as
   dlp_tokens_wire does. */
DLPDEF void dlp_arrays_wire(dlp_arrays *arrays, dlp_dataset *dataset, dlp_workers_desc *workers,
                            dlp_sampler_desc *sampler);

/* Free the source. As dlp_tokens_close. */
DLPDEF int dlp_arrays_close(dlp_arrays *arrays);

typedef struct dlp_arrays_loader_desc {
    dlp_arrays_desc arrays;
    dlp_loader_desc loader; /* all as there; dataset and workers.worker_* are not read */
} dlp_arrays_loader_desc;

/* Open the files, and a pipe of them that runs.
   out, arrays: both to be closed, the pipe first; desc: copied; err: may be NULL - returns as
   dlp_arrays_open and dlp_loader_open; after a failure nothing is left to close - any thread, which
   is the pipe's caller - as both of them. */
DLPDEF int dlp_arrays_loader_open(dlp_pipe **out, dlp_arrays **arrays,
                                  const dlp_arrays_loader_desc *desc, dlp_error *err);

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_H */

/* =============================================================================================
   IMPLEMENTATION
   Where it can't be, one line says so, and nothing is compiled that would say it more often. */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#if defined(__cplusplus)
#error define DLPIPE_IMPLEMENTATION in a C file (C11); C++ files include dlpipe.h without it
#undef DLPIPE_IMPLEMENTATION
#elif defined(__GLIBC__) && !defined(__USE_GNU)
#error include dlpipe.h with DLPIPE_IMPLEMENTATION before any system header, or -D_GNU_SOURCE
#undef DLPIPE_IMPLEMENTATION
#endif
#endif

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#define DLPIPE_IMPLEMENTATION_DONE

/* ---------------------------------------------------------------------------------------------
   >>impl-platform   SYSTEM HEADERS, SWITCHES */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* DLPIPE_DEBUG, DLPIPE_NO_DEBUG [impl]: see >>impl-debug. What that looks for the address sanitizer
   does not see by itself: rows are neighbours in one mapping. */
#if defined(__SANITIZE_ADDRESS__)
#define DLPI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DLPI_ASAN 1
#endif
#endif
#ifndef DLPI_ASAN
#define DLPI_ASAN 0
#endif
#if (defined(DLPIPE_DEBUG) || DLPI_ASAN) && !defined(DLPIPE_NO_DEBUG)
#define DLPI_DEBUG 1
#else
#define DLPI_DEBUG 0
#endif
#if DLPI_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Bytes of a plan, added and multiplied: what is too much stays at UINT64_MAX, which no limit
   allows, and never comes round to a number that looks small. */
static inline uint64_t dlpi_sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t dlpi_times(uint64_t a, uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* The next multiple of align; UINT64_MAX stays what it is. */
static inline uint64_t dlpi_round_up(uint64_t bytes, uint64_t align) {
    uint64_t up = dlpi_sum(bytes, align - 1);
    return up == UINT64_MAX ? up : up / align * align;
}

/* What is left of a sum without one of its parts. */
static inline uint64_t dlpi_less(uint64_t sum, uint64_t part) {
    if (sum == UINT64_MAX) return sum;
    return part < sum ? sum - part : 0;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-clock      TIME */

static inline uint64_t dlpi_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void dlpi_nap(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-errors     CODES AND ERROR RECORDS */

typedef struct dlpi_code {
    int value;
    const char *name, *text, *hint;
} dlpi_code;

static const dlpi_code dlpi_codes[] = {
#define DLPI_X(name, value, text, hint) {value, "DLP_" #name, text, hint},
    DLP_CODES(DLPI_X)
#undef DLPI_X
};

static const dlpi_code *dlpi_code_find(int code) {
    static const dlpi_code unknown = {0, "unknown code", "unknown code", ""};
    for (size_t i = 0; i < sizeof dlpi_codes / sizeof *dlpi_codes; i++)
        if (dlpi_codes[i].value == code) return &dlpi_codes[i];
    return &unknown;
}

DLPDEF const char *dlp_code_name(int code) { return dlpi_code_find(code)->name; }
DLPDEF const char *dlp_code_text(int code) { return dlpi_code_find(code)->text; }
DLPDEF const char *dlp_code_hint(int code) { return dlpi_code_find(code)->hint; }

/* errno in words, unless the message has them already. */
static void dlpi_errno_text(const dlp_error *e, char *buf, size_t size) {
    const char *text = strerror(e->errnum);
    bool said = strstr(e->message, text) != NULL;
    snprintf(buf, size, " (errno %d%s%s)", (int)e->errnum, said ? "" : ": ", said ? "" : text);
}

DLPDEF int dlp_error_format(const dlp_error *e, char *buf, size_t size) {
    char place[64] = "", worker[24] = "", item[128] = "", errnum[128] = "";
    const dlpi_code *c = dlpi_code_find(e->code);
    if (e->code == 0) return snprintf(buf, size, "%s: %s", c->name, c->text);
    if (e->worker >= 0) snprintf(worker, sizeof worker, "worker %d", (int)e->worker);
    if (e->has_item)
        snprintf(item, sizeof item, "item %" PRIu64 " (epoch %" PRIu64 ", position %" PRIu64 ")",
                 e->index, e->epoch, e->position);
    if (e->stage[0]) snprintf(place, sizeof place, "stage \"%s\"", e->stage);
    if (e->errnum) dlpi_errno_text(e, errnum, sizeof errnum);
    return snprintf(
        buf, size, "%s: %s%s%s%s%s%s%s%s%s%s%s", c->name, place, place[0] && worker[0] ? " " : "",
        worker, (place[0] || worker[0]) && item[0] ? ", " : "", item,
        place[0] || worker[0] || item[0] ? ": " : "", e->message[0] ? e->message : c->text, errnum,
        c->hint[0] ? " [" : "", c->hint, c->hint[0] ? "]" : "");
}

/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   Futexes and the heavy barrier first, then lanes, then bundles. */

#define DLPI_SLEEP_MAX_NS 100000000u /* every sleep ends by then: a waker can die before it wakes */

/* Futex words are plain uint32_t. The waker changes the word before it wakes, so that a sleeper
   that has not slept yet sees another value than it expects. */
/* The kernel's numbers (futex(2)), so that no kernel header is needed. */
enum { DLPI_FUTEX_WAIT_BITSET = 9, DLPI_FUTEX_WAKE_BITSET = 10, DLPI_FUTEX_PRIVATE = 128 };

static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    uint64_t until = dlpi_now_ns() + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
    struct timespec t;
    t.tv_sec = (time_t)(until / 1000000000u);
    t.tv_nsec = (long)(until % 1000000000u);
    int op = DLPI_FUTEX_WAIT_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    long r = syscall(SYS_futex, word, op, expect, &t, NULL, bits);
    int timed_out = r != 0 && errno == ETIMEDOUT;
    errno = saved;
    return timed_out;
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    int op = DLPI_FUTEX_WAKE_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    (void)syscall(SYS_futex, word, op, n, NULL, NULL, bits);
    errno = saved;
}

#ifndef DLPI_SYSTEM /* both dlpipe.h and dlpipe_s3.h have it */
#define DLPI_SYSTEM

/* fd, or a copy of it that is none of the first three, as are all descriptors of ours: where a
   program has closed those (a daemon), what somebody prints would go into our file. -1: as fd, or
   there is no other; errno tells. */
__attribute__((unused)) static int dlpi_fd_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* The same for two, of pipe2 or socketpair, which returned rc. Returns 0, or -1 with errno. */
__attribute__((unused)) static int dlpi_pair_above(int rc, int *fd) {
    if (rc != 0) return rc;
    fd[0] = dlpi_fd_above(fd[0]);
    fd[1] = dlpi_fd_above(fd[1]);
    if (fd[0] >= 0 && fd[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    fd[0] = fd[1] = -1;
    return -1;
}

/* What the environment says of paths, credentials, servers, processes: nothing where the program
   has more rights than who started it (setuid), and wrote that. */
__attribute__((unused)) static const char *dlpi_env(const char *name) {
    return secure_getenv(name);
}

/* May a file be as large as that? Growing it past the limit on files (ulimit -f) would end the
   program, by SIGXFSZ. If not, errno is EFBIG. */
__attribute__((unused)) static bool dlpi_file_may_be(uint64_t bytes) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        bytes <= most.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* A stream for files that are read or written as text. mode: as flags. NULL: errno. */
__attribute__((unused)) static FILE *dlpi_stream_open(const char *path, int flags,
                                                      const char *mode) {
    int fd = dlpi_fd_above(open(path, flags | O_CLOEXEC, 0666));
    FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (f == NULL && fd >= 0) close(fd);
    return f;
}

#endif

/* ---- what cgroups and /proc say ---- */

/* The first n numbers, 1 or 2, behind key on its line of a small file; key NULL: on the first line.
   Allocates nothing. */
static bool dlpi_read_numbers(const char *path, const char *key, uint64_t *to, int n) {
    char text[4096];
    size_t skip = key ? strlen(key) : 0, len = 0;
    uint64_t number[2];
    const char *line = text;
    ssize_t got;
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return false;
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0) len += (size_t)got;
    close(fd);
    text[len] = 0;
    while (skip > 0 && strncmp(line, key, skip) != 0) {
        if ((line = strchr(line, '\n')) == NULL) return false;
        line++;
    }
    if (sscanf(line + skip, "%" SCNu64 " %" SCNu64, &number[0], &number[1]) < n) return false;
    memcpy(to, number, (size_t)n * sizeof *to);
    return true;
}

static uint64_t dlpi_read_number(const char *path, const char *key) { /* UINT64_MAX: not there */
    uint64_t value;
    return dlpi_read_numbers(path, key, &value, 1) ? value : UINT64_MAX;
}

static uint64_t dlpi_cgroup_number(const char *dir, const char *file, const char *key) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return dlpi_read_number(path, key);
}

/* A controller's cgroups, of one version of them. */
typedef struct dlpi_cgroups {
    const char *controller; /* names the line of /proc/self/cgroup; "": version 2 */
    const char *root;
    uint64_t (*leaves)(const char *dir); /* what the one in dir leaves; UINT64_MAX: no limit */
} dlpi_cgroups;

/* The place of this process in a line of /proc/self/cgroup ("4:cpu,cpuacct:/a", "0::/a"); NULL:
   another controller's. */
static const char *dlpi_cgroup_place(const char *controller, const char *line) {
    size_t n = strlen(controller);
    const char *kind = strchr(line, ':'), *place = kind ? strchr(kind + 1, ':') : NULL;
    if (place == NULL || place[1] != '/' || place[2] == 0) return NULL;
    while (++kind, strncmp(kind, controller, n) != 0 || (kind[n] != ',' && kind[n] != ':')) {
        kind += strcspn(kind, ",:");
        if (kind == place) return NULL;
    }
    return place + 1;
}

/* The least that this process's cgroup and those above it leave; UINT64_MAX: no limit is known. */
static uint64_t dlpi_cgroup_least(const dlpi_cgroups *v) {
    char dir[512], line[480];
    const size_t root = strlen(v->root);
    uint64_t least = UINT64_MAX;
    FILE *f = dlpi_stream_open("/proc/self/cgroup", O_RDONLY, "r");
    snprintf(dir, sizeof dir, "%s", v->root);
    while (f && fgets(line, sizeof line, f)) {
        const char *place;
        line[strcspn(line, "\n")] = 0;
        if ((place = dlpi_cgroup_place(v->controller, line)) != NULL)
            snprintf(dir + root, sizeof dir - root, "%s", place);
    }
    if (f) fclose(f);
    for (;;) {
        uint64_t left = v->leaves(dir);
        if (left < least) least = left;
        if (strlen(dir) <= root) return least;
        *strrchr(dir, '/') = 0;
    }
}

/* Cores that a quota stands for, rounded up. */
static uint64_t dlpi_quota_cpus(uint64_t quota, uint64_t period) {
    if (quota == UINT64_MAX || period == UINT64_MAX || period == 0) return UINT64_MAX;
    return quota > period ? (quota - 1) / period + 1 : 1;
}

static uint64_t dlpi_cgroup_cpu_v2(const char *dir) { /* "max 100000", or two numbers */
    char path[600];
    uint64_t n[2];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    return dlpi_read_numbers(path, NULL, n, 2) ? dlpi_quota_cpus(n[0], n[1]) : UINT64_MAX;
}

static uint64_t dlpi_cgroup_cpu_v1(const char *dir) { /* a quota of -1: none */
    return dlpi_quota_cpus(dlpi_cgroup_number(dir, "cpu.cfs_quota_us", NULL),
                           dlpi_cgroup_number(dir, "cpu.cfs_period_us", NULL));
}

/* Cores that this process may use: its affinity mask, and the quotas of its cgroups. */
static int dlpi_cpu_count(void) {
    static const dlpi_cgroups v1 = {"cpu", "/sys/fs/cgroup/cpu", dlpi_cgroup_cpu_v1};
    static const dlpi_cgroups v2 = {"", "/sys/fs/cgroup", dlpi_cgroup_cpu_v2};
    uint64_t one = dlpi_cgroup_least(&v1), two = dlpi_cgroup_least(&v2);
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    if (n < 1) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (one > two) one = two;
    return n < 1 ? 1 : one < (uint64_t)n ? (int)one : n;
}

/* ---- the heavy barrier: makes every other participant's T1 or H1 visible, paid by who goes to
   sleep ---- */

/* The kernel's numbers (membarrier(2)). */
enum {
    DLPI_MB_GLOBAL = 1 << 1,
    DLPI_MB_REGISTER_GLOBAL = 1 << 2,
    DLPI_MB_PRIVATE = 1 << 3,
    DLPI_MB_REGISTER_PRIVATE = 1 << 4
};

static int dlpi_membarrier(int command) {
    int saved = errno;
    long r = syscall(SYS_membarrier, command, 0, 0);
    errno = saved;
    return r == 0;
}

/* Let this process take part. Returns 0 where the kernel or a filter refuses. */
static int dlpi_heavy_register(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_REGISTER_GLOBAL : DLPI_MB_REGISTER_PRIVATE);
}

static int dlpi_heavy_barrier(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_GLOBAL : DLPI_MB_PRIVATE);
}

/* ---- bells: an event count for one sleeper ----
   A bell is a futex word. DLPI_BELL_SLEEPER: its owner sleeps or is about to. DLPI_BELL_RMW: some
   participant has no heavy barrier; it is set once and stays, and makes every waker come to
   dlpi_bell_ring, whose read-modify-write (B2) then is the order.
   Sleeper: B3 sets the bit; heavy barrier; looks again (T2 or H2); sleeps while the word is
   unchanged.
   Waker:   T1 or H1; B1.
   With the barrier: either B1 comes before it in the waker's program, and then so does T1, which
   the barrier makes visible to the sleeper's second look; or B1 comes after it and sees the bit.
   Without: B2 and B3 are one order. If B2 is later it sees the bit. If B3 is later it reads what B2
   wrote, or later, and the second look sees T1, which came before B2.
   A participant that sets DLPI_BELL_RMW while others run may miss a wake-up until they have seen
   the bit; so may anyone whose waker dies between T1 and B2. Both end with the sleep, within 100
   ms. */
#define DLPI_BELL_SLEEPER 1u
#define DLPI_BELL_RMW 2u

static void dlpi_bell_join(uint32_t *bell, int shared) {
    if (!dlpi_heavy_register(shared)) DLPI_OR_SEQ(bell, DLPI_BELL_RMW); /* -> B1 */
}

DLPDEF void dlpi_bell_ring(uint32_t *bell, uint32_t shared) {
    if (DLPI_AND_SEQ(bell, ~DLPI_BELL_SLEEPER) & DLPI_BELL_SLEEPER) /* B2 <- B3 */
        dlpi_futex_wake(bell, 1, ~0u, (int)shared);
}

/* Wake a producer that sleeps on a full lane, once half of it is free. */
DLPDEF void dlpi_spsc_room_bell(dlp_spsc_rx *rx) {
    uint32_t *bell = &rx->lane->producer_bell;
    if (!(DLPI_OR_SEQ(bell, 0u) & DLPI_BELL_SLEEPER)) /* B2 <- B3 */
        return;
    uint64_t used = DLPI_LOAD_ACQ(&rx->lane->tail) - rx->head; /* T2 <- T1 */
    if (used <= rx->capacity / 2 || used > rx->capacity) dlpi_bell_ring(bell, rx->shared);
}

/* One who waits: on which bell, how patiently, and for what. */
typedef struct dlpi_waiter {
    uint32_t *bell;
    uint32_t shared, spin_ns, yields;
    int (*look)(void *handle); /* not 0: it has come, or an error has */
    void *handle;
} dlpi_waiter;

static int dlpi_await_awake(const dlpi_waiter *w, uint64_t begin, uint64_t until) {
    uint64_t end = until - begin < w->spin_ns ? until : begin + w->spin_ns;
    if (w->spin_ns > 0) {
        for (uint32_t i = 1;; i++) {
            if (w->look(w->handle)) return 1;
            if (i % 16 == 0 && dlpi_now_ns() >= end) break;
            dlpi_pause();
        }
    }
    for (uint32_t i = 0; i < w->yields; i++) {
        if (w->look(w->handle)) return 1;
        sched_yield();
    }
    return w->look(w->handle);
}

static int dlpi_await_asleep(const dlpi_waiter *w, uint64_t until) {
    for (;;) {
        uint32_t set = DLPI_OR_SEQ(w->bell, DLPI_BELL_SLEEPER); /* B3 -> B1, B2 */
        set |= DLPI_BELL_SLEEPER;
        if (!(set & DLPI_BELL_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
            DLPI_OR_SEQ(w->bell, DLPI_BELL_RMW); /* -> B1 */
            set |= DLPI_BELL_RMW;
        }
        int come = w->look(w->handle);
        uint64_t now = come ? 0 : dlpi_now_ns();
        if (come || now >= until) {
            DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER); /* takes B3 back */
            return come ? DLP_OK : DLP_TIMEOUT;
        }
        uint64_t most = until - now < DLPI_SLEEP_MAX_NS ? until - now : DLPI_SLEEP_MAX_NS;
        dlpi_futex_wait(w->bell, set, ~0u, most, (int)w->shared);
        if (w->look(w->handle)) { /* before the bit is set again, which would ask for a wake-up */
            if (DLPI_LOAD_RLX(w->bell) & DLPI_BELL_SLEEPER) /* B3, own bit, if no waker took it */
                DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER);
            return DLP_OK;
        }
    }
}

/* Wait until look says so. Returns DLP_OK or DLP_TIMEOUT. */
static int dlpi_await(const dlpi_waiter *w, int timeout_ms) {
    if (w->look(w->handle)) return DLP_OK;
    if (timeout_ms == DLP_NOWAIT) return DLP_TIMEOUT;
    uint64_t begin = dlpi_now_ns(), until = UINT64_MAX;
    if (timeout_ms > 0) until = begin + (uint64_t)timeout_ms * 1000000u;
    if (dlpi_await_awake(w, begin, until)) return DLP_OK;
    return dlpi_await_asleep(w, until);
}

/* How patiently to wait where this many threads take part: on spare cores a spin about as long as a
   wake-up takes; else make way soon, but a few times before paying for sleep. */
static void dlpi_wait_policy(uint32_t peers, uint32_t *spin_ns, uint32_t *yields) {
    static uint32_t cpus;
    uint32_t n = DLPI_LOAD_RLX(&cpus); /* C1, any value read twice is the same */
    if (n == 0) {
        n = (uint32_t)dlpi_cpu_count();
        DLPI_STORE_RLX(&cpus, n); /* C1 */
    }
    *spin_ns = peers <= n ? 10000 : 1000;
    *yields = peers <= n ? 0 : 50;
}

/* ---- lanes: layout, attach, wait ---- */

#define DLPI_SPSC_MAGIC UINT64_C(0x31656e616c706c64) /* "dlplane1" */
#define DLPI_MPSC_MAGIC UINT64_C(0x316c646e62706c64) /* "dlpbndl1" */
#define DLPI_QUEUE_VERSION 1u
/* Sizes and places that sharers must agree on, in one number. */
#define DLPI_QUEUE_LAYOUT \
    ((uint32_t)(sizeof(dlp_spsc) << 16 ^ sizeof(dlp_mpsc) << 4 ^ DLPI_LINE ^ sizeof(size_t) << 28))

_Static_assert(sizeof(dlp_spsc) == 5 * DLPI_LINE, "lane header");
_Static_assert(offsetof(dlp_spsc, tail) == DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, head) == 2 * DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, producer_bell) == 3 * DLPI_LINE, "waiters' own block");
_Static_assert(offsetof(dlp_spsc, consumer_bell) == 4 * DLPI_LINE, "waiters' own block");
_Static_assert(sizeof(dlp_mpsc) == 2 * DLPI_LINE, "bundle header");
_Static_assert(offsetof(dlp_mpsc, consumer_bell) == DLPI_LINE, "waiter's own block");
_Static_assert(sizeof(dlp_spsc_tx) == 256 && sizeof(dlp_spsc_rx) == 256, "handles are padded");

static uint64_t dlpi_line_up(uint64_t bytes) { return dlpi_round_up(bytes, DLPI_LINE); }

static int dlpi_queue_mem_ok(const void *mem) {
    return mem && (uintptr_t)mem % DLP_QUEUE_ALIGN == 0;
}

DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity) {
    if (record_bytes == 0 || record_bytes % 8 || record_bytes > DLP_QUEUE_MAX_RECORD ||
        capacity == 0 || (capacity & (capacity - 1)) || capacity > DLP_QUEUE_MAX_CAPACITY)
        return 0;
    return dlpi_line_up(dlpi_sum(sizeof(dlp_spsc), dlpi_times(record_bytes, capacity)));
}

DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         int shared) {
    uint64_t need = dlp_spsc_bytes(record_bytes, capacity);
    if (!dlpi_queue_mem_ok(mem) || need == 0 || need > bytes || need > SIZE_MAX) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    memset(lane, 0, sizeof *lane);
    lane->version = DLPI_QUEUE_VERSION;
    lane->layout = DLPI_QUEUE_LAYOUT;
    lane->record_bytes = record_bytes;
    lane->shared = shared != 0;
    lane->capacity = capacity;
    lane->slots_offset = sizeof(dlp_spsc);
    lane->total_bytes = need;
    DLPI_STORE_REL(&lane->magic, DLPI_SPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* The header as read once, checked against the bytes there are. */
static int dlpi_spsc_check(const dlp_spsc *lane, uint64_t bytes, dlp_spsc *copy) {
    if (bytes < sizeof *lane || DLPI_LOAD_ACQ(&lane->magic) != DLPI_SPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    copy->version = DLPI_LOAD_RLX(&lane->version); /* M3, six words that init wrote before M1 */
    copy->layout = DLPI_LOAD_RLX(&lane->layout);
    copy->record_bytes = DLPI_LOAD_RLX(&lane->record_bytes);
    copy->shared = DLPI_LOAD_RLX(&lane->shared);
    copy->capacity = DLPI_LOAD_RLX(&lane->capacity);
    copy->slots_offset = DLPI_LOAD_RLX(&lane->slots_offset);
    copy->total_bytes = DLPI_LOAD_RLX(&lane->total_bytes);
    uint64_t need = dlp_spsc_bytes(copy->record_bytes, copy->capacity);
    if (copy->version != DLPI_QUEUE_VERSION || copy->layout != DLPI_QUEUE_LAYOUT ||
        copy->shared > 1 || need == 0 || need > bytes || copy->total_bytes != need ||
        copy->slots_offset != sizeof *lane)
        return DLP_ERR_CORRUPT;
    copy->head = DLPI_LOAD_ACQ(&lane->head); /* H2 <- H1, before tail: head never passes tail */
    copy->tail = DLPI_LOAD_ACQ(&lane->tail); /* T2 <- T1 */
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(tx, 0, sizeof *tx);
    tx->tail = copy.tail;
    tx->head_seen = copy.head;
    tx->capacity = copy.capacity;
    tx->slots = (unsigned char *)mem + copy.slots_offset;
    tx->lane = lane;
    tx->bell = &lane->consumer_bell;
    tx->record_bytes = copy.record_bytes;
    tx->shared = copy.shared;
    dlpi_wait_policy(2, &tx->spin_ns, &tx->yields);
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!rx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(rx, 0, sizeof *rx);
    rx->head = rx->published = copy.head;
    rx->tail_seen = copy.tail;
    rx->publish_every = copy.capacity >= 8 ? copy.capacity / 8 : 1;
    rx->slip_most = DLPI_SLIP_MOST;
    rx->capacity = copy.capacity;
    rx->slots = (unsigned char *)mem + copy.slots_offset;
    rx->lane = lane;
    rx->record_bytes = copy.record_bytes;
    rx->shared = copy.shared;
    dlpi_wait_policy(2, &rx->spin_ns, &rx->yields);
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

static int dlpi_spsc_has_room(void *handle) {
    return dlpi_spsc_room((dlp_spsc_tx *)handle, 1) != 0;
}

static int dlpi_spsc_has_stock(void *handle) {
    return dlpi_spsc_stock((dlp_spsc_rx *)handle, 1) != 0;
}

DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms) {
    dlpi_waiter w = {&tx->lane->producer_bell, tx->shared, tx->spin_ns, tx->yields,
                     dlpi_spsc_has_room,       tx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_room(tx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->lane->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_spsc_has_stock,      rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_stock(rx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

/* What is left of timeout_ms since begin, as a time-out again. */
static int dlpi_time_left(int timeout_ms, uint64_t *begin) {
    if (timeout_ms <= 0) return timeout_ms;
    uint64_t now = dlpi_now_ns();
    if (*begin == 0) *begin = now;
    uint64_t gone = (now - *begin) / 1000000u;
    return gone < (uint64_t)timeout_ms ? timeout_ms - (int)gone : DLP_NOWAIT;
}

DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_spsc_try_push_burst(tx, from + done * tx->record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_spsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_spsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_spsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_spsc_try_pop_burst(rx, records, max);
}

/* ---- bundles ---- */

#ifndef DLPI_MPSC_SCAN      /* a checker may define these two before inclusion */
#define DLPI_MPSC_SCAN 16u  /* up to so many producers the consumer just looks at their tails */
#define DLPI_MPSC_SWEEP 64u /* every so many searches all lanes are looked at */
#endif
#define DLPI_MPSC_QUANTUM 64u

/* Offsets and sizes of a bundle; all 0 if a parameter is out of range. */
static dlp_mpsc dlpi_mpsc_plan(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    dlp_mpsc plan;
    memset(&plan, 0, sizeof plan);
    uint64_t lane = dlp_spsc_bytes(record_bytes, capacity);
    if (lane == 0 || producers == 0 || producers > DLP_MPSC_MAX_PRODUCERS) return plan;
    plan.version = DLPI_QUEUE_VERSION;
    plan.layout = DLPI_QUEUE_LAYOUT;
    plan.record_bytes = record_bytes;
    plan.capacity = capacity;
    plan.producers = producers;
    plan.ready_words = producers > DLPI_MPSC_SCAN ? (producers + 63) / 64 : 0;
    plan.ready_offset = sizeof(dlp_mpsc);
    plan.owners_offset = plan.ready_offset + plan.ready_words * (uint64_t)DLPI_LINE;
    plan.lanes_offset = plan.owners_offset + dlpi_line_up(producers * sizeof(uint32_t));
    plan.lane_bytes = lane;
    plan.total_bytes = dlpi_sum(plan.lanes_offset, dlpi_times(lane, producers));
    return plan;
}

DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    return dlpi_mpsc_plan(record_bytes, capacity, producers).total_bytes;
}

static void *dlpi_at(void *mem, uint64_t offset) { return (unsigned char *)mem + offset; }

DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         uint32_t producers, int shared) {
    dlp_mpsc plan = dlpi_mpsc_plan(record_bytes, capacity, producers);
    if (!dlpi_queue_mem_ok(mem) || plan.total_bytes == 0 || plan.total_bytes > bytes ||
        plan.total_bytes > SIZE_MAX)
        return DLP_ERR_ARG;
    plan.shared = shared != 0;
    memset(mem, 0, (size_t)plan.lanes_offset);
    memcpy(mem, &plan, sizeof plan);
    for (uint32_t i = 0; i < producers; i++) {
        void *lane = dlpi_at(mem, plan.lanes_offset + i * plan.lane_bytes);
        int r = dlp_spsc_init(lane, plan.lane_bytes, record_bytes, capacity, shared);
        if (r != DLP_OK) return r;
    }
    DLPI_STORE_REL(&((dlp_mpsc *)mem)->magic, DLPI_MPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* Check what lies in memory against what its few free parameters make of it. */
static int dlpi_mpsc_check(const dlp_mpsc *bundle, uint64_t bytes, dlp_mpsc *copy) {
    if (bytes < sizeof *bundle || DLPI_LOAD_ACQ(&bundle->magic) != DLPI_MPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    dlp_mpsc found;
    memcpy(&found, bundle, offsetof(dlp_mpsc, pad0)); /* what init wrote before M1 */
    *copy = dlpi_mpsc_plan(found.record_bytes, found.capacity, found.producers);
    if (copy->total_bytes == 0 || copy->total_bytes > bytes || found.shared > 1)
        return DLP_ERR_CORRUPT;
    copy->shared = found.shared;
    copy->magic = found.magic;
    return memcmp(copy, &found, offsetof(dlp_mpsc, pad0)) == 0 ? DLP_OK : DLP_ERR_CORRUPT;
}

static int dlpi_mpsc_claim(uint32_t *owners, uint32_t producers) {
    for (uint32_t i = 0; i < producers; i++) {
        uint32_t free_owner = 0;
        if (DLPI_CAS_SEQ(&owners[i], &free_owner, 1u)) /* O1 */
            return (int)i;
    }
    return DLP_ERR_BUSY;
}

DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer) {
    dlp_mpsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem) || producer < DLP_NONE) return DLP_ERR_ARG;
    dlp_mpsc *bundle = (dlp_mpsc *)mem;
    if (dlpi_mpsc_check(bundle, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    uint32_t *owners = (uint32_t *)dlpi_at(mem, copy.owners_offset);
    if (producer >= (int)copy.producers) return DLP_ERR_ARG;
    int mine = producer == DLP_NONE ? dlpi_mpsc_claim(owners, copy.producers) : producer;
    if (mine < 0) return mine;
    DLPI_STORE_SEQ(&owners[mine], 1u); /* O1 */
    memset(tx, 0, sizeof *tx);
    uint64_t at = copy.lanes_offset + (uint64_t)mine * copy.lane_bytes;
    int r = dlp_spsc_attach_tx(&tx->lane, dlpi_at(mem, at), copy.lane_bytes);
    if (r != DLP_OK || tx->lane.record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
    tx->lane.bell = &bundle->consumer_bell;
    tx->lane.shared = copy.shared;
    tx->owner = &owners[mine];
    if (copy.ready_words) {
        uint64_t word = copy.ready_offset + (uint64_t)(mine / 64) * DLPI_LINE;
        tx->ready = (uint64_t *)dlpi_at(mem, word);
        tx->ready_bit = UINT64_C(1) << (mine % 64);
    }
    dlpi_wait_policy(copy.producers + 1, &tx->lane.spin_ns, &tx->lane.yields);
    dlpi_bell_join(&bundle->consumer_bell, (int)copy.shared);
    return mine;
}

DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) { DLPI_STORE_SEQ(tx->owner, 0u); /* O1 */ }

DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes, void *mem,
                              uint64_t bytes) {
    dlp_mpsc copy;
    if (!rx || !lanes || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    if (dlpi_mpsc_check((dlp_mpsc *)mem, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    if (n_lanes < copy.producers) return DLP_ERR_ARG;
    for (uint32_t i = 0; i < copy.producers; i++) {
        void *lane = dlpi_at(mem, copy.lanes_offset + i * copy.lane_bytes);
        int r = dlp_spsc_attach_rx(&lanes[i], lane, copy.lane_bytes);
        if (r != DLP_OK || lanes[i].record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
        lanes[i].slip_most = 0; /* other lanes may have records */
    }
    memset(rx, 0, sizeof *rx);
    rx->bundle = (dlp_mpsc *)mem;
    rx->lanes = rx->at = lanes;
    rx->quantum = DLPI_MPSC_QUANTUM;
    rx->producers = copy.producers;
    rx->ready_words = copy.ready_words;
    rx->shared = copy.shared;
    dlpi_wait_policy(copy.producers + 1, &rx->spin_ns, &rx->yields);
    dlpi_bell_join(&rx->bundle->consumer_bell, (int)copy.shared);
    return DLP_OK;
}

/* Give lane i its turn if it has records. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
static int dlpi_mpsc_try_turn(dlp_mpsc_rx *rx, uint32_t i) {
    int64_t stock = dlpi_spsc_stock(&rx->lanes[i], 1);
    if (stock <= 0) return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    rx->at = &rx->lanes[i];
    rx->turn = i;
    rx->left = rx->quantum > 0 ? rx->quantum : 1;
    return DLP_OK;
}

/* Look at all lanes, from the one behind that in turn on. */
static int dlpi_mpsc_sweep(dlp_mpsc_rx *rx) {
    uint32_t i = rx->turn;
    for (uint32_t k = 0; k < rx->producers; k++) {
        i = i + 1 < rx->producers ? i + 1 : 0;
        int r = dlpi_mpsc_try_turn(rx, i);
        if (r != DLP_EMPTY) return r;
    }
    return DLP_EMPTY;
}

static uint64_t *dlpi_mpsc_ready_word(dlp_mpsc_rx *rx, uint32_t word) {
    return (uint64_t *)dlpi_at(rx->bundle, sizeof(dlp_mpsc) + word * (uint64_t)DLPI_LINE);
}

/* Go through the lanes whose bits are set. */
static int dlpi_mpsc_follow(dlp_mpsc_rx *rx) {
    for (uint32_t k = 0; k <= rx->ready_words; k++) {
        while (rx->bits) {
            uint32_t i = rx->word * 64 + (uint32_t)__builtin_ctzll(rx->bits);
            rx->bits &= rx->bits - 1;
            int r = i < rx->producers ? dlpi_mpsc_try_turn(rx, i) : DLP_EMPTY;
            if (r != DLP_EMPTY) return r;
        }
        rx->word = rx->word + 1 < rx->ready_words ? rx->word + 1 : 0;
        uint64_t *ready = dlpi_mpsc_ready_word(rx, rx->word);
        if (DLPI_LOAD_RLX(ready) != 0)                    /* R3, not worth a write if clear */
            rx->bits = DLPI_XCHG_SEQ(ready, (uint64_t)0); /* R3 <- R2 */
    }
    return DLP_EMPTY;
}

DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx) {
    if (rx->ready_words == 0) return dlpi_mpsc_sweep(rx);
    if (rx->left == 0 && rx->at->tail_seen != rx->at->head) /* its turn is over, but it has more */
        DLPI_OR_SEQ(dlpi_mpsc_ready_word(rx, rx->turn / 64), UINT64_C(1) << rx->turn % 64); /* R2 */
    rx->left = 0;
    int r = DLP_EMPTY;
    if (++rx->finds % DLPI_MPSC_SWEEP != 0) r = dlpi_mpsc_follow(rx);
    return r == DLP_EMPTY ? dlpi_mpsc_sweep(rx) : r;
}

static int dlpi_mpsc_has_stock(void *handle) {
    return dlpi_mpsc_turn((dlp_mpsc_rx *)handle) != DLP_EMPTY;
}

DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms) {
    return dlp_spsc_wait_tx(&tx->lane, timeout_ms);
}

DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->bundle->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_mpsc_has_stock,        rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK ? dlpi_mpsc_turn(rx) : r;
}

DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_mpsc_try_push_burst(tx, from + done * tx->lane.record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_mpsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_mpsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_mpsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_mpsc_try_pop_burst(rx, records, max);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-order      HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   Two rules. Numbers drawn for different uses never share keys: each use has a domain word,
   absorbed right after the seed. And nothing here may ever change a number, or every saved state
   and published run changes with it; tests/unit/order.c pins them. */

/* DLPIPE_NO_SIMD [impl]: plain C only. Slower, same numbers. */
#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#define DLPI_ORDER_AVX2
#include <immintrin.h>
#endif

#define DLPI_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, so that 0 is no fixed point */
#define DLPI_MAX_ITEMS ((uint64_t)1 << 48)

/* These numbers are part of every order. */
enum {
    DLPI_DOMAIN_PERMUTATION = 1,
    DLPI_DOMAIN_DRAW,
    DLPI_DOMAIN_WEIGHTED,
    DLPI_DOMAIN_REPLACEMENT,
    DLPI_DOMAIN_ITEM,
    DLPI_DOMAIN_PARAMS,
    DLPI_DOMAIN_ROWS = 16,
    DLPI_DOMAIN_MIX = 32,
    DLPI_DOMAIN_BUCKETS,
    DLPI_DOMAIN_PARTS,
    DLPI_DOMAIN_PART_ITEMS
};

static inline uint64_t dlpi_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One more word into a hash. For a fixed h a bijection of word, and the other way round. */
static inline uint64_t dlpi_absorb(uint64_t h, uint64_t word) {
    return dlpi_mix((h ^ word) + DLPI_GOLDEN);
}

static inline uint64_t dlpi_hash_in(uint64_t domain, uint64_t seed, uint64_t a) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), domain), a);
}

DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), a), b), c);
}

/* The high half of a * b; the low half goes to *low. */
static inline uint64_t dlpi_multiply(uint64_t a, uint64_t b, uint64_t *low) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
}

/* A range 0..n-1 that numbers are drawn from without bias: the high half of random * n, where a
   random word whose low half is below `reject` = 2^64 mod n is drawn again, so that equally many
   words lead to every value (Lemire, ACM TOMACS 29/1, 2019). */
typedef struct dlpi_range {
    uint64_t n, reject;
} dlpi_range;

static inline dlpi_range dlpi_range_of(uint64_t n) {
    dlpi_range range = {n, (0 - n) % n}; /* NOLINT: n is 1 or more */
    return range;
}

static inline uint64_t dlpi_below(dlpi_range range, uint64_t random) {
    uint64_t low, high = dlpi_multiply(random, range.n, &low);
    while (DLPI_UNLIKELY(low < range.reject)) {
        random = dlpi_absorb(random, range.n);
        high = dlpi_multiply(random, range.n, &low);
    }
    return high;
}

/* --- Keyed permutation -----------------------------------------------------------------------

   A number below n is written as (left, right): right has a power of two of values, 2^right_bits,
   about the square root of n, and left has a = ceil(n / 2^right_bits) values. Rounds by turns add a
   keyed hash of right to left (mod a) and of left to right (mod 2^right_bits). Each is undone by
   the subtraction, so all together is a bijection of a * 2^right_bits >= n numbers. Results from n
   up are put through again until they fall below n, which always ends (the cycle comes back to
   where it began, which is below n) and is a bijection of 0..n-1. Fewer than 2^right_bits numbers
   lie above n, one in 32 at the most, also just above a power of two; splitting takes no division;
   and the additions, not exclusive ors, give odd permutations as often as even ones.

   Few rounds on few values can be told from a random permutation by counting pairs of positions
   (the number needed grows as n^2 at 6 rounds, n^3 at 8; tests/unit/order.c counts): hence 10
   rounds below 2^12 numbers, 8 below 2^15, 6 above, and tables made by an exact shuffle below
   DLP_PERMUTATION_TABLE, where even that would not do. */

/* A product whose bits 24..47 and bits 0..31 (of those the high ones more) are well mixed; the two
   kinds of rounds take what they need of it. */
static inline uint64_t dlpi_round_hash(uint32_t half, const uint32_t key[2]) {
    uint64_t z = (uint64_t)(half ^ key[0]) * 0x85ebca6bu;
    return (uint64_t)((uint32_t)z ^ (uint32_t)(z >> 32) ^ key[1]) * 0xc2b2ae35u;
}

/* What a round adds to left: 0..left_values-1. */
static inline uint32_t dlpi_round_left(const dlp_permutation *p, uint32_t right,
                                       const uint32_t key[2]) {
    return (uint32_t)((uint64_t)(uint32_t)dlpi_round_hash(right, key) * p->left_values >> 32);
}

/* What a round adds to right, to be cut to right_bits. */
static inline uint32_t dlpi_round_right(uint32_t left, const uint32_t key[2]) {
    return (uint32_t)(dlpi_round_hash(left, key) >> 24);
}

/* x, or x - a where x >= a: without a branch, for it would be mispredicted half the time. */
static inline uint32_t dlpi_wrap(uint32_t x, uint32_t a) {
    uint32_t less = x - a;
    return x < a ? x : less;
}

static inline uint64_t dlpi_permutation_step(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        left = dlpi_wrap(left + dlpi_round_left(p, right, &p->key[2 * i]), a);
        right = (right + dlpi_round_right(left, &p->key[2 * i + 2])) & mask;
    }
    return (uint64_t)left << p->right_bits | right;
}

static inline uint64_t dlpi_permutation_unstep(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = p->rounds; i > 0; i -= 2) {
        right = (right - dlpi_round_right(left, &p->key[2 * i - 2])) & mask;
        left = dlpi_wrap(left + a - dlpi_round_left(p, right, &p->key[2 * i - 4]), a);
    }
    return (uint64_t)left << p->right_bits | right;
}

static void dlpi_permutation_shuffle(dlp_permutation *p, uint64_t key) {
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t j = (uint32_t)dlpi_below(dlpi_range_of(i + 1u), dlpi_absorb(key, i));
        p->table[i] = p->table[j];
        p->table[j] = (uint16_t)i;
    }
}

/* The shape and the round keys of a network of p->n numbers, DLP_PERMUTATION_TABLE or more. */
static void dlpi_permutation_rounds(dlp_permutation *p, uint64_t key) {
    uint32_t log2_n = 0;
    /* cppcheck-suppress ctuuninitvar; n is set */
    while (p->n >> (log2_n + 1)) log2_n++;
    p->right_bits = (log2_n + 1) / 2;
    p->left_values = (uint32_t)((p->n - 1) >> p->right_bits) + 1;
    p->rounds = log2_n < 12 ? 10 : log2_n < 15 ? 8 : 6;
    for (uint32_t i = 0; i < p->rounds; i++) {
        uint64_t word = dlpi_absorb(key, i);
        p->key[2 * i] = (uint32_t)word;
        p->key[2 * i + 1] = (uint32_t)(word >> 32);
    }
}

DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch) {
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PERMUTATION, seed, epoch), n);
    if (n < 1 || n > DLPI_MAX_ITEMS) return DLP_ERR_ARG;
    memset(p, 0, sizeof *p);
    p->n = n;
    p->seed = seed;
    p->epoch = epoch;
    if (n < DLP_PERMUTATION_TABLE) {
        dlpi_permutation_shuffle(p, key);
        return DLP_OK;
    }
    dlpi_permutation_rounds(p, key);
#ifdef DLPI_ORDER_AVX2
    p->simd = __builtin_cpu_supports("avx2") ? 1 : 0;
#endif
    return DLP_OK;
}

DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position) {
    uint64_t x = position;
    if (DLPI_UNLIKELY(position >= p->n)) return UINT64_MAX;
    if (p->rounds == 0) return p->table[position];
    do { x = dlpi_permutation_step(p, x); } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value) {
    uint64_t x = value;
    if (DLPI_UNLIKELY(value >= p->n)) return UINT64_MAX;
    if (p->rounds == 0) {
        for (x = 0; p->table[x] != value; x++) {}
        return x;
    }
    do { x = dlpi_permutation_unstep(p, x); } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

#ifdef DLPI_ORDER_AVX2
#define DLPI_AVX2 __attribute__((target("avx2")))

/* dlpi_round_hash of four halves, each in the low word of a lane. */
DLPI_AVX2 static inline __m256i dlpi_round_hash4(__m256i half, __m256i key0, __m256i key1) {
    __m256i z = _mm256_mul_epu32(_mm256_xor_si256(half, key0), _mm256_set1_epi64x(0x85ebca6b));
    z = _mm256_xor_si256(_mm256_xor_si256(z, key1), _mm256_srli_epi64(z, 32));
    return _mm256_mul_epu32(z, _mm256_set1_epi64x(0xc2b2ae35));
}

/* dlpi_permutation_step of the 16 numbers from x on: four vectors of four lanes, so that
   multiplications overlap. */
DLPI_AVX2 static inline void dlpi_permutation_step16(const dlp_permutation *p, uint64_t x,
                                                     uint64_t *out) {
    const __m128i shift = _mm_cvtsi32_si128((int)p->right_bits);
    const __m256i a = _mm256_set1_epi64x(p->left_values);
    const __m256i mask = _mm256_set1_epi64x((1ll << p->right_bits) - 1);
    __m256i left[4], right[4];
    for (int v = 0; v < 4; v++) {
        __m256i number = _mm256_add_epi64(_mm256_set1_epi64x((long long)(x + 4 * (uint64_t)v)),
                                          _mm256_setr_epi64x(0, 1, 2, 3));
        left[v] = _mm256_srl_epi64(number, shift);
        right[v] = _mm256_and_si256(number, mask);
    }
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        const uint32_t *key = &p->key[2 * i];
        __m256i key0 = _mm256_set1_epi32((int)key[0]), key1 = _mm256_set1_epi32((int)key[1]);
        __m256i key2 = _mm256_set1_epi32((int)key[2]), key3 = _mm256_set1_epi32((int)key[3]);
        for (int v = 0; v < 4; v++) {
            __m256i h = _mm256_mul_epu32(dlpi_round_hash4(right[v], key0, key1), a);
            __m256i sum = _mm256_add_epi32(left[v], _mm256_srli_epi64(h, 32));
            left[v] = _mm256_min_epu32(sum, _mm256_sub_epi32(sum, a));
            h = _mm256_srli_epi64(dlpi_round_hash4(left[v], key2, key3), 24);
            right[v] = _mm256_and_si256(_mm256_add_epi32(right[v], h), mask);
        }
    }
    for (int v = 0; v < 4; v++)
        _mm256_storeu_si256((__m256i *)(void *)(out + 4 * v),
                            _mm256_or_si256(_mm256_sll_epi64(left[v], shift), right[v]));
}

DLPI_AVX2 static uint32_t dlpi_permutation_block_avx2(const dlp_permutation *p, uint64_t first,
                                                      uint32_t count, uint64_t *out) {
    uint32_t done = 0;
    for (; count - done >= 16; done += 16) {
        dlpi_permutation_step16(p, first + done, out + done);
        for (uint32_t i = done; i < done + 16; i++)
            while (DLPI_UNLIKELY(out[i] >= p->n)) out[i] = dlpi_permutation_step(p, out[i]);
    }
    return done;
}
#endif

DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out) {
    uint64_t inside = first < p->n ? p->n - first : 0;
    uint32_t valid = inside < count ? (uint32_t)inside : count, done = 0;
#ifdef DLPI_ORDER_AVX2
    if (p->simd) done = dlpi_permutation_block_avx2(p, first, valid, out);
#endif
    for (; done < valid; done++) out[done] = dlp_permutation_at(p, first + done);
    for (; done < count; done++) out[done] = UINT64_MAX;
}

/* --- Weights ---------------------------------------------------------------------------------

   Walker's alias method in integers: n buckets of `total` units each, item i owns n * weight[i]
   units. A draw picks a bucket, then a unit in it; units below `own` are the bucket's item's, the
   others its alias's. Every quantity is exact, so frequencies are exactly weight / total. Built by
   a sweep with two cursors and one residue, so without memory beside the table
   (Huebschle-Schneider, Sanders, Parallel Weighted Random Sampling, ESA 2019). Entry 0 of the table
   holds the total. */
typedef struct dlpi_alias {
    uint64_t own, alias;
} dlpi_alias;

static inline uint64_t dlpi_order_domain(const dlp_sampler_desc *d, uint64_t n_items) {
    return d->subset ? d->n_subset : n_items;
}

/* The next item from i on whose n * weight is above total (heavy) or not; n if there is none. */
static uint64_t dlpi_alias_next(const uint64_t *weights, uint64_t n, uint64_t total, uint64_t i,
                                int heavy) {
    for (; i < n; i++) {
        uint64_t low, high = dlpi_multiply(n, weights[i], &low);
        if ((high != 0 || low > total) == heavy) break;
    }
    return i;
}

/* Each turn closes a bucket: the light one at `light` with the heavy item's units on top, or, once
   the heavy item has no more than a bucket left, its own, with units of the next heavy one on top.
   What is left of the heavy item is high:low. Units and space are equal at every turn, so a light
   item is there while the residue is above a bucket, and lights left at the end fill theirs
   exactly. */
static void dlpi_alias_build(const uint64_t *weights, uint64_t n, uint64_t total, dlpi_alias *t) {
    uint64_t light = dlpi_alias_next(weights, n, total, 0, 0);
    uint64_t heavy = dlpi_alias_next(weights, n, total, 0, 1);
    uint64_t low = 0, high = heavy < n ? dlpi_multiply(n, weights[heavy], &low) : 0;
    while (heavy < n) {
        if (high != 0 || low > total) {
            uint64_t own = n * weights[light], space = total - own;
            t[light].own = own;
            t[light].alias = heavy;
            high -= low < space;
            low -= space;
            light = dlpi_alias_next(weights, n, total, light + 1, 0);
        } else {
            uint64_t next = dlpi_alias_next(weights, n, total, heavy + 1, 1), space = total - low;
            t[heavy].own = low;
            t[heavy].alias = next < n ? next : heavy;
            heavy = next;
            if (heavy < n) {
                high = dlpi_multiply(n, weights[heavy], &low);
                high -= low < space;
                low -= space;
            }
        }
    }
    for (; light < n; light = dlpi_alias_next(weights, n, total, light + 1, 0)) {
        t[light].own = total;
        t[light].alias = light;
    }
}

static uint64_t dlpi_order_table_bytes(const dlp_sampler_desc *d, uint64_t n_items) {
    if (d->order != DLP_ORDER_WEIGHTED) return 0;
    return dlpi_times(dlpi_sum(dlpi_order_domain(d, n_items), 1), sizeof(dlpi_alias));
}

static void dlpi_order_build(const dlp_sampler_desc *d, uint64_t n_items, void *table) {
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    dlpi_alias *t = (dlpi_alias *)table;
    if (d->order != DLP_ORDER_WEIGHTED) return;
    for (uint64_t i = 0; i < n; i++) total += d->weights[i];
    t[0].own = total;
    t[0].alias = n;
    dlpi_alias_build(d->weights, n, total, t + 1);
}

/* --- What a sampler's desc means -------------------------------------------------------------- */

static uint64_t dlpi_order_samples(const dlp_sampler_desc *d, uint64_t n_items) {
    if (d->order == DLP_ORDER_BATCHES) return 0; /* only the user's sampler knows */
    return d->samples_per_epoch ? d->samples_per_epoch : dlpi_order_domain(d, n_items);
}

static int dlpi_order_fault(dlp_error *err, const char *field, const char *format, ...) {
    va_list args;
    if (!err) return DLP_ERR_ARG;
    memset(err, 0, sizeof *err);
    err->code = DLP_ERR_ARG;
    err->worker = -1;
    snprintf(err->field, sizeof err->field, "%s", field);
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return DLP_ERR_ARG;
}

static int dlpi_order_check_subset(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    if (!d->subset && d->n_subset)
        return dlpi_order_fault(err, "sampler.subset", "subset is NULL but n_subset is %" PRIu64,
                                d->n_subset);
    if (!d->subset) return DLP_OK;
    if (d->n_subset < 1 || d->n_subset > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "sampler.n_subset", "n_subset is %" PRIu64 ", must be 1..2^48",
                                d->n_subset);
    for (uint64_t i = 0; i < d->n_subset; i++)
        if (d->subset[i] >= n_items)
            return dlpi_order_fault(err, "sampler.subset",
                                    "subset[%" PRIu64 "] is %" PRIu64 ", n_items is %" PRIu64, i,
                                    d->subset[i], n_items);
    return DLP_OK;
}

static int dlpi_order_check_weights(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    const uint64_t most = (uint64_t)1 << 63;
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    if (d->order != DLP_ORDER_WEIGHTED) {
        if (!d->weights) return DLP_OK;
        return dlpi_order_fault(err, "sampler.weights",
                                "weights need order DLP_ORDER_WEIGHTED, order is %d",
                                (int)d->order);
    }
    if (!d->weights)
        return dlpi_order_fault(err, "sampler.weights",
                                "DLP_ORDER_WEIGHTED needs weights, weights is NULL");
    for (uint64_t i = 0; i < n; i++) {
        if (d->weights[i] > most - total)
            return dlpi_order_fault(err, "sampler.weights",
                                    "weights[%" PRIu64 "] = %" PRIu64 " takes the sum above 2^63",
                                    i, d->weights[i]);
        total += d->weights[i];
    }
    if (total == 0)
        return dlpi_order_fault(err, "sampler.weights",
                                "all %" PRIu64 " weights are 0, the sum must be 1..2^63", n);
    return DLP_OK;
}

/* Check all of a desc but rank, world_size and batches. Returns 0, or DLP_ERR_ARG and fills err. */
static int dlpi_order_check(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    uint64_t draws = d->samples_per_epoch;
    bool one_each = d->order == DLP_ORDER_SEQUENTIAL || d->order == DLP_ORDER_SHUFFLED;
    bool listed = d->order == DLP_ORDER_BATCHES || d->order == DLP_ORDER_PARTS;
    int rc;
    if (n_items < 1 || n_items > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "dataset.n_items", "n_items is %" PRIu64 ", must be 1..2^48",
                                n_items);
    if (d->order < DLP_ORDER_SEQUENTIAL || d->order > DLP_ORDER_PARTS)
        return dlpi_order_fault(err, "sampler.order", "order is %d, must be 0..%d", (int)d->order,
                                (int)DLP_ORDER_PARTS);
    if (d->threaded < 0 || d->threaded > 1)
        return dlpi_order_fault(err, "sampler.threaded", "threaded is %d, must be 0 or 1",
                                (int)d->threaded);
    if ((rc = dlpi_order_check_subset(d, n_items, err)) != DLP_OK) return rc;
    if ((rc = dlpi_order_check_weights(d, n_items, err)) != DLP_OK) return rc;
    if (draws > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "sampler.samples_per_epoch",
                                "samples_per_epoch is %" PRIu64 ", must be at most 2^48", draws);
    if (draws && (listed || (one_each && draws != dlpi_order_domain(d, n_items))))
        return dlpi_order_fault(err, "sampler.samples_per_epoch",
                                "samples_per_epoch is %" PRIu64 ", must be 0 for order %d", draws,
                                (int)d->order);
    if ((d->order == DLP_ORDER_FUNCTION) != (d->function != NULL))
        return dlpi_order_fault(err, "sampler.function",
                                "function is %s but order is %d: DLP_ORDER_FUNCTION needs one",
                                d->function ? "set" : "NULL", (int)d->order);
    if (d->replacement && d->order != DLP_ORDER_FUNCTION)
        return dlpi_order_fault(err, "sampler.replacement",
                                "a replacement needs order DLP_ORDER_FUNCTION, order is %d",
                                (int)d->order);
    return DLP_OK;
}

static uint64_t dlpi_order_hash_array(uint64_t h, const uint64_t *values, uint64_t n) {
    uint64_t lane[4];
    for (uint64_t k = 0; k < 4; k++) lane[k] = dlpi_absorb(h, k);
    for (uint64_t i = 0; i < n; i++) lane[i & 3] = dlpi_absorb(lane[i & 3], values[i]);
    return dlpi_absorb(dlp_hash(lane[0], lane[1], lane[2], lane[3]), n);
}

/* A number that differs where subset, weights, samples or function_id do, for a saved state's
   fingerprint. */
static uint64_t dlpi_order_params_hash(const dlp_sampler_desc *d, uint64_t n_items) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARAMS, d->function_id, dlpi_order_samples(d, n_items));
    h = dlpi_order_hash_array(h, d->subset, d->subset ? d->n_subset : 0);
    return dlpi_order_hash_array(h, d->weights, d->weights ? dlpi_order_domain(d, n_items) : 0);
}

/* --- Positions to dataset indices ------------------------------------------------------------- */

/* One worker's view of the order; it is process-local and holds pointers. */
typedef struct dlpi_order {
    int32_t kind;  /* DLP_ORDER_* */
    int32_t ready; /* 1: key[] and permutation are those of `epoch` */
    uint64_t n_items;
    uint64_t domain;  /* items of the subset, or all */
    uint64_t samples; /* positions of an epoch, 0: not known */
    uint64_t seed, epoch;
    uint64_t key[3];           /* REPLACEMENT, WEIGHTED: of this epoch */
    dlpi_range buckets, units; /* REPLACEMENT: the domain. WEIGHTED: and the units of a bucket */
    const uint64_t *subset;    /* or NULL */
    const dlpi_alias *alias;   /* or NULL */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position);
    void *user;
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
    dlp_permutation permutation;
} dlpi_order;

static void dlpi_order_init(dlpi_order *o, const dlp_sampler_desc *d, uint64_t n_items,
                            const void *table) {
    const dlpi_alias *t = (const dlpi_alias *)table;
    memset(o, 0, sizeof *o);
    o->kind = d->order;
    o->n_items = n_items;
    o->domain = dlpi_order_domain(d, n_items);
    o->samples = dlpi_order_samples(d, n_items);
    o->seed = d->seed;
    o->subset = d->subset;
    o->function = d->function;
    o->user = d->function_user;
    o->replacement = d->replacement;
    o->buckets = dlpi_range_of(o->domain);
    if (d->order == DLP_ORDER_WEIGHTED) {
        o->alias = t + 1;
        o->units = dlpi_range_of(t[0].own);
    }
}

static void dlpi_order_begin(dlpi_order *o, uint64_t epoch) {
    uint64_t domain = o->kind == DLP_ORDER_WEIGHTED ? DLPI_DOMAIN_WEIGHTED : DLPI_DOMAIN_DRAW;
    if (o->kind == DLP_ORDER_SHUFFLED)
        dlp_permutation_init(&o->permutation, o->domain, o->seed, epoch);
    for (uint64_t i = 0; i < 3; i++)
        o->key[i] = dlpi_absorb(dlpi_hash_in(domain, o->seed, epoch), i);
    o->epoch = epoch;
    o->ready = 1;
}

/* Two keyed rounds: with one, epochs could draw from one sequence in another order. */
static inline uint64_t dlpi_order_random(const dlpi_order *o, uint64_t position) {
    return dlpi_absorb(dlpi_absorb(o->key[0], position), o->key[1]);
}

static inline uint64_t dlpi_order_weighted(const dlpi_order *o, uint64_t position) {
    uint64_t random = dlpi_order_random(o, position);
    uint64_t bucket = dlpi_below(o->buckets, random);
    uint64_t unit = dlpi_below(o->units, dlpi_absorb(random, o->key[2]));
    const dlpi_alias *entry = &o->alias[bucket];
    return unit < entry->own ? bucket : entry->alias;
}

/* Write the dataset indices of positions first .. first+count-1 of an epoch. A function's result
   that is out of range comes out as n_items or more: the caller checks. */
static void dlpi_order_block(dlpi_order *o, uint64_t epoch, uint64_t first, uint32_t count,
                             uint64_t *out) {
    if (DLPI_UNLIKELY(!o->ready || o->epoch != epoch)) dlpi_order_begin(o, epoch);
    switch (o->kind) {
    case DLP_ORDER_SHUFFLED: dlp_permutation_block(&o->permutation, first, count, out); break;
    case DLP_ORDER_REPLACEMENT:
        for (uint32_t i = 0; i < count; i++)
            out[i] = dlpi_below(o->buckets, dlpi_order_random(o, first + i));
        break;
    case DLP_ORDER_WEIGHTED:
        for (uint32_t i = 0; i < count; i++) out[i] = dlpi_order_weighted(o, first + i);
        break;
    case DLP_ORDER_FUNCTION:
        for (uint32_t i = 0; i < count; i++) out[i] = o->function(o->user, epoch, first + i);
        break;
    default:
        for (uint32_t i = 0; i < count; i++) out[i] = first + i;
    }
    if (o->subset)
        for (uint32_t i = 0; i < count; i++)
            out[i] = out[i] < o->domain ? o->subset[out[i]] : UINT64_MAX;
}

/* The index that stands in when the item at a position fails for the k-th time, k >= 1: the one at
   a keyed position of the epoch, or, for draws with replacement, one more draw, at a position
   behind any epoch's end. Copies the view, for the epoch need not be the one that it is at. */
static uint64_t dlpi_order_replacement(const dlpi_order *o, uint64_t epoch, uint64_t position,
                                       uint32_t k) {
    dlpi_order view = *o;
    uint64_t index = 0, behind = (uint64_t)1 << 63;
    uint64_t random = dlpi_absorb(
        dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, o->seed, epoch), position), k);
    bool drawn = o->kind == DLP_ORDER_REPLACEMENT || o->kind == DLP_ORDER_WEIGHTED;
    uint64_t positions = o->samples ? o->samples : o->domain;
    uint64_t other = drawn ? behind | random : dlpi_below(dlpi_range_of(positions), random);
    if (o->replacement) {
        index = o->replacement(o->user, epoch, position, random);
        return !o->subset ? index : index < o->domain ? o->subset[index] : UINT64_MAX;
    }
    dlpi_order_block(&view, epoch, other, 1, &index);
    return index;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-part-order THE ORDER OF PARTS
   Which item stands at which position of an epoch whose items come in parts, and how many parts a
   batch can need. It knows counts and permutations, and nothing of cells, slots or threads. */

/* The parts of an epoch, in their order. */
typedef struct dlpi_part_order {
    uint64_t epoch;
    int ready;
    uint64_t *first; /* [n_parts + 1] items before each */
    dlp_permutation order;
} dlpi_part_order;

/* What the order follows from. */
typedef struct dlpi_part_plan {
    uint64_t n_parts;
    uint64_t *first; /* [n_parts + 1] items of the parts before each */
    uint64_t streams, steps;
    uint64_t batch;   /* rows of a full batch, on all ranks */
    uint64_t samples; /* positions of an epoch */
    uint64_t seed;
    bool shuffle_parts, shuffle_items;
    dlpi_part_order orders[2]; /* of the epoch that is scheduled, and of the one looked at ahead */
} dlpi_part_plan;

/* A stretch of positions whose items lie in one part, one after the other before they are
   shuffled. */
typedef struct dlpi_piece {
    uint64_t part, item; /* the first of them in the part's order */
    uint64_t n;
    uint64_t steady; /* as many batches after this one have these rows in the same part */
} dlpi_piece;

static inline uint64_t dlpi_parts_items(const dlpi_part_plan *q) { return q->first[q->n_parts]; }

static inline uint64_t dlpi_part_size(const dlpi_part_plan *q, uint64_t part) {
    return q->first[part + 1] - q->first[part];
}

/* Where stream s begins in the epoch's items, one after another: s * T / C. */
static uint64_t dlpi_stream_first(const dlpi_part_plan *q, uint64_t s) {
    uint64_t t = dlpi_parts_items(q), c = q->streams;
    return t / c * s + t % c * s / c;
}

/* Full batches whose rows are cut evenly among the streams. */
static uint64_t dlpi_parts_full(const dlpi_part_plan *q) {
    return q->steps ? q->steps : dlpi_parts_items(q) / q->batch;
}

/* The stream that row r of the last, short batch comes from; what streams before it have left is
   taken off r. */
static uint32_t dlpi_rest_stream(const dlpi_part_plan *q, uint64_t *r) {
    uint64_t taken = dlpi_parts_full(q) * (q->batch / q->streams);
    uint64_t low = 0, high = q->streams; /* rests of streams below low are at most r */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (dlpi_stream_first(q, mid) - mid * taken <= *r)
            low = mid;
        else
            high = mid;
    }
    *r -= dlpi_stream_first(q, low) - low * taken;
    return (uint32_t)low;
}

/* Place g of the epoch's items, and how many from it on are one stream's (n, at most that given),
   for the position at of the epoch. */
static uint64_t dlpi_parts_place(const dlpi_part_plan *q, uint64_t at, uint64_t *n, uint64_t *end) {
    uint64_t each = q->batch / q->streams, full = dlpi_parts_full(q);
    uint64_t k = at / q->batch, r = at % q->batch, s, left, offset;
    if (k < full) {
        s = r / each;
        left = each - r % each;
        offset = k * each + r % each;
    } else {
        s = dlpi_rest_stream(q, &r);
        offset = full * each + r;
        left = UINT64_MAX;
    }
    *end = dlpi_stream_first(q, s + 1);
    if (q->steps) offset %= *end - dlpi_stream_first(q, s);
    offset += dlpi_stream_first(q, s);
    if (left > *end - offset) left = *end - offset;
    if (*n > left) *n = left;
    return offset;
}

/* The last of the n + 1 sums that is not above g. */
static uint64_t dlpi_sum_find(const uint64_t *first, uint64_t n, uint64_t g) {
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (first[mid] <= g)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The parts of an epoch in their order, with the sums of their items. */
static const dlpi_part_order *dlpi_part_order_of(dlpi_part_plan *q, uint64_t epoch) {
    uint64_t n = q->n_parts, sum = 0;
    dlpi_part_order *o = &q->orders[epoch & 1];
    if (DLPI_LIKELY(o->ready && o->epoch == epoch)) return o;
    o->epoch = epoch;
    o->ready = 1;
    dlp_permutation_init(&o->order, n, dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, 0), epoch);
    for (uint64_t j = 0; j < n; j++) {
        o->first[j] = sum;
        sum += dlpi_part_size(q, dlp_permutation_at(&o->order, j));
    }
    o->first[n] = sum;
    return o;
}

/* What position `at` of an epoch is, and as many as n after it. Past the epoch's last item (a batch
   that is padded) it begins again. */
static void dlpi_parts_piece(dlpi_part_plan *q, uint64_t epoch, uint64_t at, uint64_t n,
                             dlpi_piece *x) {
    uint64_t end, j, part_end, g;
    at %= q->samples;
    if (n > q->samples - at) n = q->samples - at;
    g = dlpi_parts_place(q, at, &n, &end);
    if (q->shuffle_parts) {
        const dlpi_part_order *o = dlpi_part_order_of(q, epoch);
        j = dlpi_sum_find(o->first, q->n_parts, g);
        x->part = dlp_permutation_at(&o->order, j);
        x->item = g - o->first[j];
        part_end = o->first[j + 1];
    } else {
        x->part = dlpi_sum_find(q->first, q->n_parts, g);
        x->item = g - q->first[x->part];
        part_end = q->first[x->part + 1];
    }
    if (end > part_end) end = part_end;
    x->n = n < end - g ? n : end - g;
    x->steady = (end - g - x->n) / (q->batch / q->streams);
}

/* The permutation of a part's items. */
static const dlp_permutation *dlpi_part_items(const dlpi_part_plan *q, dlp_permutation *items,
                                              uint64_t part, uint64_t epoch) {
    uint64_t n = dlpi_part_size(q, part);
    uint64_t seed = dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, q->seed, part);
    if (items->n != n || items->seed != seed || items->epoch != epoch)
        dlp_permutation_init(items, n, seed, epoch);
    return items;
}

/* Dataset indices of a piece. */
static void dlpi_piece_indices(const dlpi_part_plan *q, dlp_permutation *items, uint64_t epoch,
                               const dlpi_piece *x, uint64_t *index) {
    uint64_t first = q->first[x->part];
    if (q->shuffle_items)
        dlp_permutation_block(dlpi_part_items(q, items, x->part, epoch), x->item, (uint32_t)x->n,
                              index);
    for (uint64_t i = 0; i < x->n; i++)
        index[i] = first + (q->shuffle_items ? index[i] : x->item + i);
}

/* A number that differs where counts or id do. */
static uint64_t dlpi_parts_manifest(const dlpi_part_plan *q, uint64_t id) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARTS, id, q->n_parts);
    return dlpi_order_hash_array(h, q->first, q->n_parts + 1);
}

/* ---- how many parts a batch can need ---- */

/* Items in all parts of at most `size` items together; where there are more than n, any number
   above n. */
static uint64_t dlpi_parts_up_to(const dlpi_part_plan *q, uint64_t size, uint64_t n) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < q->n_parts && all <= n; i++)
        if (dlpi_part_size(q, i) <= size) all += dlpi_part_size(q, i);
    return all;
}

/* How many whole parts can lie within n items at most. Those are the smallest: all that have at
   most `low` items, which is the largest size such that these have no more than n together, and of
   those with one item more as many as there is room for. */
static uint64_t dlpi_parts_within(const dlpi_part_plan *q, uint64_t n) {
    uint64_t low = 0, high = n + 1, count = 0, sum = 0;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (dlpi_parts_up_to(q, mid, n) <= n)
            low = mid;
        else
            high = mid;
    }
    for (uint64_t i = 0; i < q->n_parts; i++) {
        uint64_t items = dlpi_part_size(q, i);
        if (items > 0 && items <= low) sum += items, count++;
    }
    return count + (n - sum) / (low + 1);
}

static uint64_t dlpi_parts_not_empty(const dlpi_part_plan *q) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < q->n_parts; i++) n += dlpi_part_size(q, i) > 0;
    return n;
}

/* The most parts that count rows from position `at` on can need, whatever the order of parts. The
   rows are runs of neighbours, one of each stream. A run begins in one part and ends in another,
   maybe; every other part that it touches lies in it whole, within the rows between its first and
   its last. So there are at most two parts for each run, and as many as lie within all rows
   between; where streams begin again, a run may be two. */
static uint64_t dlpi_parts_need(const dlpi_part_plan *q, uint64_t at, uint64_t count) {
    uint64_t ends = 0, between = 0, all, not_empty = dlpi_parts_not_empty(q);
    uint64_t runs = q->steps != 0 ? 2 : 1;
    for (uint64_t r = 0; r < count;) {
        uint64_t end, pos = (at + r) % q->samples, n = count - r;
        if (n > q->samples - pos) n = q->samples - pos;
        dlpi_parts_place(q, pos, &n, &end);
        ends += (n < 2 ? n : 2) * runs;
        between += n < 2 ? 0 : n - 2;
        r += n;
    }
    all = ends + dlpi_parts_within(q, between);
    if (all > count) all = count; /* each row needs one */
    return all < not_empty ? all : not_empty;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-mixing     DATASETS MIXED BY WEIGHTS
   The schedule of one period is a table: which dataset, and how many of it came before. It is made
   as one processor would serve tasks whose j-th turn may run from floor(j * period / weight) on
   and must have run before ceil((j + 1) * period / weight), earliest deadline first. The turns fill
   the period exactly, and for one processor that rule meets all deadlines that can be met; so
   every turn lies in its window, which is to say that counts are within one of their shares. */

#define DLPI_MIX_DATASETS 1024
#define DLPI_MIX_PERIOD ((uint64_t)1 << 20)
#define DLPI_MIX_RANK_BITS 20 /* of a schedule's entry; the dataset is above them */
#define DLPI_MIX_NOBODY UINT32_MAX

typedef struct dlpi_mix_part {
    uint64_t first; /* index of its first item */
    uint64_t items;
    uint64_t weight; /* turns in a period */
    uint64_t key;    /* of its shuffles */
} dlpi_mix_part;

struct dlp_mix {
    uint64_t period, samples, total, seed, id;
    uint32_t n;
    int32_t shuffle;
    uint32_t *schedule;  /* [period] dataset << DLPI_MIX_RANK_BITS | turns of it before */
    dlpi_mix_part *part; /* [n] */
};

/* --- Shuffles ---

   A number's place among n, without a table: a Feistel network from DLP_PERMUTATION_TABLE on;
   below, where such networks are poor, swap-or-not: each round pairs x with k - x (mod n), and a
   keyed coin of the pair says whether the two change places (Hoang, Morris, Rogaway, An
   Enciphering Scheme Based on a Card Shuffle, CRYPTO 2012). A few hundred ns. */
#define DLPI_MIX_ROUNDS 64

static uint64_t dlpi_mix_small(uint64_t n, uint64_t key, uint64_t x) {
    for (uint64_t r = 0; r < DLPI_MIX_ROUNDS; r++) {
        uint64_t word = dlpi_absorb(key, r);
        uint64_t turn = (uint64_t)(uint32_t)word * n >> 32;
        uint64_t other = turn >= x ? turn - x : turn + n - x;
        uint64_t pair = x > other ? x : other;
        if (dlpi_mix(word + pair * DLPI_GOLDEN) >> 63) x = other;
    }
    return x;
}

static uint64_t dlpi_mix_shuffled(const dlpi_mix_part *part, uint64_t pass, uint64_t x) {
    uint64_t key = dlpi_absorb(dlpi_absorb(part->key, pass), part->items);
    dlp_permutation p;
    if (part->items < DLP_PERMUTATION_TABLE) return dlpi_mix_small(part->items, key, x);
    p.n = part->items; /* without its table, which is most of the bytes */
    dlpi_permutation_rounds(&p, key);
    do { x = dlpi_permutation_step(&p, x); } while (DLPI_UNLIKELY(x >= p.n));
    return x;
}

/* --- The schedule --- */

/* Turns that may run, by deadline, then dataset: a binary heap. */
typedef struct dlpi_mix_heap {
    uint32_t n;
    uint32_t key[DLPI_MIX_DATASETS]; /* deadline << 10 | dataset; a deadline is at most 2^20 */
} dlpi_mix_heap;

static void dlpi_mix_push(dlpi_mix_heap *h, uint32_t key) {
    uint32_t i = h->n++;
    for (; i > 0 && h->key[(i - 1) / 2] > key; i = (i - 1) / 2) h->key[i] = h->key[(i - 1) / 2];
    h->key[i] = key;
}

static uint32_t dlpi_mix_pop(dlpi_mix_heap *h) {
    uint32_t top = h->key[0], last = h->key[--h->n], i = 0, child;
    for (; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->key[child + 1] < h->key[child]) child++;
        if (h->key[child] >= last) break;
        h->key[i] = h->key[child];
    }
    h->key[i] = last;
    return top;
}

static uint32_t dlpi_mix_deadline(const dlp_mix *m, uint32_t d, uint64_t turn) {
    uint64_t weight = m->part[d].weight;
    return (uint32_t)(((turn + 1) * m->period + weight - 1) / weight) << 10 | d;
}

/* Entries of times to come hold the datasets whose next turn may run from then on: the first of
   them, and link[] the others. */
static void dlpi_mix_schedule(dlp_mix *m) {
    uint32_t link[DLPI_MIX_DATASETS] = {0}, turns[DLPI_MIX_DATASETS] = {0};
    dlpi_mix_heap ready = {0};
    for (uint64_t t = 0; t < m->period; t++) m->schedule[t] = DLPI_MIX_NOBODY;
    for (uint32_t d = 0; d < m->n; d++)
        if (m->part[d].weight > 0) dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, 0));
    for (uint64_t t = 0; t < m->period; t++) {
        uint32_t d = m->schedule[t];
        uint64_t from;
        for (; d != DLPI_MIX_NOBODY; d = link[d])
            dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, turns[d]));
        d = dlpi_mix_pop(&ready) & (DLPI_MIX_DATASETS - 1);
        m->schedule[t] = d << DLPI_MIX_RANK_BITS | turns[d]++;
        if (turns[d] == m->part[d].weight) continue;
        from = turns[d] * m->period / m->part[d].weight; /* NOLINT: it had a turn: not 0 */
        if (from <= t + 1) {
            dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, turns[d]));
        } else {
            link[d] = m->schedule[from];
            m->schedule[from] = d;
        }
    }
}

/* --- The length of an epoch --- */

/* Positions in which, wherever they begin, dataset d comes at least `items` times: whole periods,
   or, since counts are within one of their shares at both ends, the share of one more item. */
static uint64_t dlpi_mix_enough(const dlp_mix *m, const dlpi_mix_part *part) {
    uint64_t w = part->weight, whole = (part->items + w - 1) / w;
    uint64_t periods = (part->items + 1) / w, rest = (part->items + 1) % w, share;
    if (whole > DLPI_MAX_ITEMS / m->period) return UINT64_MAX;
    whole *= m->period;
    share = periods * m->period + (rest * m->period + w - 1) / w;
    return share < whole ? share : whole;
}

/* Positions in which it comes at most `items` times; 1 where there are none. */
static uint64_t dlpi_mix_within(const dlp_mix *m, const dlpi_mix_part *part) {
    uint64_t w = part->weight, whole = part->items / w;
    uint64_t periods = (part->items - 1) / w, rest = (part->items - 1) % w, share;
    if (whole > DLPI_MAX_ITEMS / m->period) return UINT64_MAX;
    whole *= m->period;
    share = periods * m->period + rest * m->period / w;
    share = share > whole ? share : whole;
    return share > 0 ? share : 1;
}

static uint64_t dlpi_mix_samples(const dlp_mix *m, int32_t until) {
    uint64_t samples = until == DLP_MIX_FIRST ? UINT64_MAX : 0, most = 0;
    for (uint32_t d = 0; d < m->n; d++) {
        const dlpi_mix_part *part = &m->part[d];
        uint64_t here;
        if (part->weight == 0) continue;
        here = until == DLP_MIX_FIRST ? dlpi_mix_within(m, part) : dlpi_mix_enough(m, part);
        if (until == DLP_MIX_FIRST ? here < samples
            : until == DLP_MIX_ALL ? here > samples
                                   : part->items > most)
            samples = here;
        if (part->items > most) most = part->items;
    }
    return samples;
}

/* --- Checks --- */

static uint64_t dlpi_gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int dlpi_mix_no_memory(dlp_error *err, const char *what) {
    dlpi_order_fault(err, "", "no memory for %s", what);
    if (err) err->code = DLP_ERR_MEMORY, err->errnum = ENOMEM;
    return DLP_ERR_MEMORY;
}

static int dlpi_mix_check(const dlp_mix_desc *d, dlp_error *err) {
    uint64_t total = 0;
    if (d->n < 1 || d->n > DLPI_MIX_DATASETS)
        return dlpi_order_fault(err, "mix.n", "n is %" PRIu32 ", must be 1..1024", d->n);
    if (!d->n_items) return dlpi_order_fault(err, "mix.n_items", "n_items is NULL");
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->n_items[i] < 1 || d->n_items[i] > DLPI_MAX_ITEMS - total)
            return dlpi_order_fault(err, "mix.n_items",
                                    "n_items[%" PRIu32 "] is %" PRIu64
                                    ": each must be 1 or more, the sum at most 2^48",
                                    i, d->n_items[i]);
        total += d->n_items[i];
    }
    if (d->shuffle < 0 || d->shuffle > 1)
        return dlpi_order_fault(err, "mix.shuffle", "shuffle is %d, must be 0 or 1",
                                (int)d->shuffle);
    if (d->until < DLP_MIX_ALL || d->until > DLP_MIX_LARGEST)
        return dlpi_order_fault(err, "mix.until", "until is %d, must be 0..%d", (int)d->until,
                                (int)DLP_MIX_LARGEST);
    if (d->samples_per_epoch > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "mix.samples_per_epoch",
                                "samples_per_epoch is %" PRIu64 ", must be at most 2^48",
                                d->samples_per_epoch);
    return DLP_OK;
}

/* The weights' greatest common divisor and what they add up to when divided by it. */
static int dlpi_mix_weights(const dlp_mix_desc *d, uint64_t *divisor, uint64_t *period,
                            dlp_error *err) {
    uint64_t sum = 0, g = 0;
    for (uint32_t i = 0; i < d->n; i++) g = dlpi_gcd(d->weights ? d->weights[i] : 1, g);
    if (g == 0) return dlpi_order_fault(err, "mix.weights", "all %" PRIu32 " weights are 0", d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t w = d->weights ? d->weights[i] / g : 1;
        if (w > DLPI_MIX_PERIOD - sum)
            return dlpi_order_fault(err, "mix.weights",
                                    "weights[%" PRIu32 "] = %" PRIu64 " takes the sum, divided by "
                                    "the greatest common divisor %" PRIu64 ", above 2^20: round "
                                    "the weights",
                                    i, d->weights[i], g);
        sum += w;
    }
    *divisor = g;
    *period = sum;
    return DLP_OK;
}

static void dlpi_mix_fill(dlp_mix *m, const dlp_mix_desc *d, uint64_t divisor) {
    m->n = d->n;
    m->shuffle = d->shuffle;
    m->seed = d->seed;
    for (uint32_t i = 0; i < d->n; i++) {
        dlpi_mix_part *part = &m->part[i];
        part->first = m->total;
        part->items = d->n_items[i];
        part->weight = d->weights ? d->weights[i] / divisor : 1;
        part->key = dlpi_hash_in(DLPI_DOMAIN_MIX, d->seed, i);
        m->total += part->items;
    }
    m->samples = d->samples_per_epoch ? d->samples_per_epoch : dlpi_mix_samples(m, d->until);
    m->id = dlpi_hash_in(DLPI_DOMAIN_MIX, (uint64_t)d->shuffle, d->n); /* the pipe has the seed */
    for (uint32_t i = 0; i < d->n; i++)
        m->id = dlpi_absorb(dlpi_absorb(m->id, m->part[i].items), m->part[i].weight);
}

/* --- The order --- */

static const dlpi_mix_part *dlpi_mix_turn(const dlp_mix *m, uint64_t epoch, uint64_t position,
                                          uint64_t *draw) {
    uint64_t at = epoch * m->samples + position;
    uint32_t entry = m->schedule[at % m->period];
    const dlpi_mix_part *part = &m->part[entry >> DLPI_MIX_RANK_BITS];
    *draw = at / m->period * part->weight + (entry & (DLPI_MIX_PERIOD - 1));
    return part;
}

DLPDEF uint64_t dlp_mix_at(const dlp_mix *m, uint64_t epoch, uint64_t position) {
    uint64_t draw;
    const dlpi_mix_part *part = dlpi_mix_turn(m, epoch, position, &draw);
    uint64_t pass = draw / part->items, item = draw % part->items;
    return part->first + (m->shuffle ? dlpi_mix_shuffled(part, pass, item) : item);
}

static uint64_t dlpi_mix_function(void *user, uint64_t epoch, uint64_t position) {
    return dlp_mix_at((const dlp_mix *)user, epoch, position);
}

static uint64_t dlpi_mix_replacement(void *user, uint64_t epoch, uint64_t position,
                                     uint64_t random) {
    uint64_t draw;
    const dlpi_mix_part *part = dlpi_mix_turn((const dlp_mix *)user, epoch, position, &draw);
    return part->first + dlpi_below(dlpi_range_of(part->items), random);
}

DLPDEF int dlp_mix_open(dlp_mix **out, const dlp_mix_desc *desc, dlp_error *err) {
    uint64_t divisor = 1, period = 1;
    dlp_mix *m;
    int rc;
    if (!out || !desc) return dlpi_order_fault(err, "mix", "out or desc is NULL");
    if ((rc = dlpi_mix_check(desc, err)) != DLP_OK) return rc;
    if ((rc = dlpi_mix_weights(desc, &divisor, &period, err)) != DLP_OK) return rc;
    m = calloc(1, sizeof *m + desc->n * sizeof *m->part + period * sizeof *m->schedule);
    if (!m) return dlpi_mix_no_memory(err, "the mix");
    m->part = (dlpi_mix_part *)(m + 1);
    m->schedule = (uint32_t *)(m->part + desc->n);
    m->period = period;
    dlpi_mix_fill(m, desc, divisor);
    if (m->samples > DLPI_MAX_ITEMS) {
        free(m);
        return dlpi_order_fault(err, "mix.samples_per_epoch",
                                "an epoch would have more than 2^48 "
                                "samples: say how many");
    }
    dlpi_mix_schedule(m);
    *out = m;
    return DLP_OK;
}

/* Of a sampler's desc only what has nothing to do with the order stays. */
static void dlpi_mix_clear(dlp_sampler_desc *to) {
    dlp_sampler_desc clear = {0};
    clear.threaded = to->threaded;
    clear.rank = to->rank;
    clear.world_size = to->world_size;
    clear.allow_uneven = to->allow_uneven;
    *to = clear;
}

DLPDEF int dlp_mix_sampler(const dlp_mix *mix, dlp_sampler_desc *to) {
    if (!mix || !to) return DLP_ERR_ARG;
    dlpi_mix_clear(to);
    to->order = DLP_ORDER_FUNCTION;
    to->function = dlpi_mix_function;
    to->replacement = dlpi_mix_replacement;
    to->function_user = (void *)(uintptr_t)mix; /* which only reads it */
    to->function_id = mix->id;
    to->seed = mix->seed;
    to->samples_per_epoch = mix->samples;
    return DLP_OK;
}

DLPDEF uint64_t dlp_mix_items(const dlp_mix *mix) { return mix ? mix->total : 0; }

DLPDEF int dlp_mix_locate(const dlp_mix *mix, uint64_t index, uint32_t *dataset, uint64_t *item) {
    uint32_t low = 0, high;
    if (!mix || !dataset || !item || index >= mix->total) return DLP_ERR_ARG;
    for (high = mix->n; high - low > 1;) { /* it lies in [low, high) */
        uint32_t middle = low + (high - low) / 2;
        if (mix->part[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    *dataset = low;
    *item = index - mix->part[low].first;
    return DLP_OK;
}

DLPDEF void dlp_mix_close(dlp_mix *mix) { free(mix); }

/* ---------------------------------------------------------------------------------------------
   >>impl-buckets    ITEMS OF LIKE LENGTH BATCHED TOGETHER */

#define DLPI_BUCKETS_WINDOW ((uint64_t)1 << 24)
#define DLPI_BUCKETS_ROWS (1u << 20)

/* The positions of a window: number * window on, in an epoch. */
typedef struct dlpi_window {
    uint64_t epoch, number;
    uint32_t n, read; /* positions, and how many of them are in the arrays */
    uint64_t *index;  /* [window] */
    uint64_t *key;    /* [window] length << 32 | place in index */
} dlpi_window;

struct dlp_buckets {
    dlp_buckets_desc d;
    dlp_sampler_desc base;
    dlpi_order order;
    uint64_t positions; /* of an epoch that come */
    uint64_t windows;   /* of an epoch */
    uint64_t longest;   /* that an item may be */
    uint64_t id;
    void *table; /* of a weighted order, or NULL */
    dlpi_window now, ahead;
    uint64_t *scratch; /* [window] */
    uint32_t *cut;     /* [window + 1] where the batches of now begin, in its sorted keys */
    uint32_t batches, at, step; /* of now; given out; positions to read ahead with each */
    dlp_permutation turn;       /* of the batches of now */
    char why[256];
};

static uint32_t dlpi_buckets_length(const dlp_buckets *b, uint64_t index) {
    return b->d.lengths ? b->d.lengths[index] : b->d.length(b->d.length_user, index);
}

/* Why an item can be in no batch. */
static int dlpi_buckets_too_long(dlp_buckets *b, uint64_t index, uint32_t length) {
    snprintf(b->why, sizeof b->why,
             "item %" PRIu64 " has length %" PRIu32 ", but of max_tokens %" PRIu64
             " a row can have %" PRIu64 " (divisible_by %" PRIu32 ")",
             index, length, b->d.max_tokens, b->longest, b->d.divisible_by);
    return -1;
}

static void dlpi_window_set(const dlp_buckets *b, dlpi_window *w, uint64_t epoch, uint64_t number) {
    uint64_t left = b->positions - number * b->d.window;
    w->epoch = epoch;
    w->number = number;
    w->n = left < b->d.window ? (uint32_t)left : b->d.window;
    w->read = 0;
}

/* Read up to `most` more positions of a window. */
static int dlpi_window_read(dlp_buckets *b, dlpi_window *w, uint32_t most) {
    uint32_t from = w->read, n = w->n - from < most ? w->n - from : most;
    dlpi_order_block(&b->order, w->epoch, w->number * b->d.window + from, n, w->index + from);
    for (uint32_t i = from; i < from + n; i++) {
        uint32_t length;
        if (w->index[i] >= b->d.n_items) {
            snprintf(b->why, sizeof b->why, "the order gave an index past the items");
            return -1;
        }
        length = dlpi_buckets_length(b, w->index[i]);
        if (length > b->longest) return dlpi_buckets_too_long(b, w->index[i], length);
        w->key[i] = (uint64_t)length << 32 | i;
    }
    w->read = from + n;
    return 0;
}

/* One pass of a counting sort by eleven bits of the keys. */
static void dlpi_window_pass(const uint64_t *from, uint64_t *to, uint32_t n, int shift) {
    uint32_t begin[2048] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++) begin[from[i] >> shift & 2047]++;
    for (uint32_t k = 0; k < 2048; k++) {
        uint32_t count = begin[k];
        begin[k] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++) to[begin[from[i] >> shift & 2047]++] = from[i];
}

/* Sort by length. Keys come in the order of their places, which each pass keeps. */
static void dlpi_window_sort(dlp_buckets *b, dlpi_window *w) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < w->n; i++) all |= w->key[i];
    for (int shift = 32; shift < 64 && all >> shift != 0; shift += 11) {
        uint64_t *sorted = b->scratch;
        dlpi_window_pass(w->key, sorted, w->n, shift);
        b->scratch = w->key;
        w->key = sorted;
    }
}

/* Rows of the batch that begins at sorted place i: as many as the bounds leave, then down to a
   multiple of divisible_by, unless it is all that is left. */
static uint32_t dlpi_window_rows(const dlp_buckets *b, const dlpi_window *w, uint32_t i) {
    uint32_t left = w->n - i, rows = 1, most = left < b->d.batch_size ? left : b->d.batch_size;
    if (b->d.max_tokens == 0) rows = most;
    while (rows < most && (rows + UINT64_C(1)) * (w->key[i + rows] >> 32) <= b->d.max_tokens)
        rows++;
    return rows == left ? rows : rows - rows % b->d.divisible_by;
}

static void dlpi_window_cut(dlp_buckets *b) {
    uint64_t key = dlpi_hash_in(DLPI_DOMAIN_BUCKETS, b->d.seed, b->now.epoch);
    uint32_t i = 0;
    for (b->batches = 0; i < b->now.n; b->batches++) {
        b->cut[b->batches] = i;
        i += dlpi_window_rows(b, &b->now, i);
    }
    b->cut[b->batches] = i;
    b->step = (b->d.window + b->batches - 1) / b->batches; /* NOLINT: a window has positions */
    dlp_permutation_init(&b->turn, b->batches, key, b->now.number);
}

/* Make a window the present one, and begin to read the one behind it. */
static int dlpi_buckets_seek(dlp_buckets *b, uint64_t epoch, uint64_t number) {
    bool last = number + 1 == b->windows;
    if (b->ahead.n > 0 && b->ahead.epoch == epoch && b->ahead.number == number) {
        dlpi_window other = b->now;
        b->now = b->ahead;
        b->ahead = other;
    } else {
        dlpi_window_set(b, &b->now, epoch, number);
    }
    b->batches = b->at = b->ahead.n = 0;
    if (dlpi_window_read(b, &b->now, b->now.n) != 0) return -1;
    dlpi_window_sort(b, &b->now);
    dlpi_window_cut(b);
    dlpi_window_set(b, &b->ahead, last ? epoch + 1 : epoch, last ? 0 : number + 1);
    return 0;
}

static int dlpi_buckets_begin(void *user, uint64_t epoch) {
    return dlpi_buckets_seek((dlp_buckets *)user, epoch, 0);
}

static int64_t dlpi_buckets_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    dlp_buckets *b = (dlp_buckets *)user;
    uint32_t turn, from, n;
    if (max < b->d.batch_size) {
        snprintf(b->why, sizeof b->why,
                 "the pipe's batch_size %" PRIu64 " is below the buckets', "
                 "%" PRIu32,
                 max, b->d.batch_size);
        return -1;
    }
    if (b->at == b->batches) {
        if (b->now.number + 1 >= b->windows) return 0;
        if (dlpi_buckets_seek(b, epoch, b->now.number + 1) != 0) return -1;
    }
    turn = b->d.shuffle ? (uint32_t)dlp_permutation_at(&b->turn, b->at) : b->at;
    from = b->cut[turn];
    n = b->cut[turn + 1] - from;
    for (uint32_t i = 0; i < n; i++) index[i] = b->now.index[(uint32_t)b->now.key[from + i]];
    b->at++;
    /* what is wrong there is told when its turn comes */
    if (dlpi_window_read(b, &b->ahead, b->step) != 0) dlpi_window_set(b, &b->ahead, 0, 0);
    return n;
}

static int dlpi_buckets_save(void *user, void *bytes) {
    const dlp_buckets *b = (const dlp_buckets *)user;
    uint64_t words[3] = {b->now.epoch, b->now.number, b->at};
    memcpy(bytes, words, sizeof words);
    return (int)sizeof words;
}

static int dlpi_buckets_restore(void *user, const void *bytes, size_t n) {
    dlp_buckets *b = (dlp_buckets *)user;
    uint64_t words[3] = {0, UINT64_MAX, 0};
    if (n == sizeof words) memcpy(words, bytes, sizeof words);
    if (words[1] < b->windows) {
        if (dlpi_buckets_seek(b, words[0], words[1]) != 0) return -1;
        if (words[2] <= b->batches) {
            b->at = (uint32_t)words[2];
            return 0;
        }
    }
    snprintf(b->why, sizeof b->why, "the state is of other buckets");
    return -1;
}

static const char *dlpi_buckets_why(void *user) { return ((dlp_buckets *)user)->why; }

/* --- Open --- */

static int dlpi_buckets_check(const dlp_buckets_desc *d, dlp_error *err) {
    uint32_t by = d->divisible_by ? d->divisible_by : 1;
    if (d->n_items < 1 || d->n_items > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "buckets.n_items", "n_items is %" PRIu64 ", must be 1..2^48",
                                d->n_items);
    if ((d->lengths != NULL) == (d->length != NULL))
        return dlpi_order_fault(err, "buckets.lengths", "give lengths or length, and not both");
    if (d->batch_size < 1 || d->batch_size > DLPI_BUCKETS_ROWS || d->batch_size % by != 0)
        return dlpi_order_fault(err, "buckets.batch_size",
                                "batch_size is %" PRIu32 ", must be 1..2^20 and a multiple of "
                                "divisible_by %" PRIu32,
                                d->batch_size, by);
    if (d->window > DLPI_BUCKETS_WINDOW)
        return dlpi_order_fault(err, "buckets.window", "window is %" PRIu32 ", must be 0..2^24",
                                d->window);
    if (d->max_tokens != 0 && d->max_tokens < by)
        return dlpi_order_fault(err, "buckets.max_tokens",
                                "max_tokens is %" PRIu64 ", below divisible_by %" PRIu32,
                                d->max_tokens, by);
    if (d->shuffle < 0 || d->shuffle > 1)
        return dlpi_order_fault(err, "buckets.shuffle", "shuffle is %d, must be 0 or 1",
                                (int)d->shuffle);
    if (d->last != DLP_LAST_SHORT && d->last != DLP_LAST_DROP)
        return dlpi_order_fault(err, "buckets.last",
                                "last is %d, must be DLP_LAST_SHORT or DLP_LAST_DROP",
                                (int)d->last);
    if (d->order && (d->order->order == DLP_ORDER_BATCHES || d->order->order == DLP_ORDER_PARTS))
        return dlpi_order_fault(err, "buckets.order", "order is %s",
                                d->order->order == DLP_ORDER_BATCHES
                                    ? "DLP_ORDER_BATCHES, which has no positions to sort"
                                    : "DLP_ORDER_PARTS, which only a part queue knows");
    return d->order ? dlpi_order_check(d->order, d->n_items, err) : DLP_OK;
}

/* Resolve what zero means. */
static int dlpi_buckets_resolve(dlp_buckets *b, dlp_error *err) {
    dlp_buckets_desc *d = &b->d;
    uint64_t unit, window, samples;
    if (d->order)
        b->base = *d->order;
    else
        b->base.order = d->shuffle ? DLP_ORDER_SHUFFLED : DLP_ORDER_SEQUENTIAL;
    if (!d->order) b->base.seed = d->seed;
    if (d->divisible_by == 0) d->divisible_by = 1;
    unit = d->max_tokens ? d->divisible_by : d->batch_size;
    window = d->window ? d->window : UINT64_C(100) * d->batch_size;
    if (window > DLPI_BUCKETS_WINDOW) window = DLPI_BUCKETS_WINDOW;
    d->window = (uint32_t)((window + unit - 1) / unit * unit);
    samples = dlpi_order_samples(&b->base, d->n_items);
    b->positions = d->last == DLP_LAST_DROP ? samples - samples % unit : samples;
    b->windows = (b->positions + d->window - 1) / d->window;
    b->longest = d->max_tokens ? d->max_tokens / d->divisible_by : UINT32_MAX;
    if (b->positions > 0) return DLP_OK;
    return dlpi_order_fault(
        err, "buckets.last",
        "DLP_LAST_DROP leaves nothing of %" PRIu64 " samples: a batch has %" PRIu64, samples, unit);
}

/* Look for items that are too long, and hash the lengths, four strands at once. */
static int dlpi_buckets_scan(dlp_buckets *b, uint64_t *hash) {
    uint64_t lane[4] = {1, 2, 3, 4};
    *hash = b->d.lengths_id;
    if (!b->d.lengths) return 0;
    for (uint64_t i = 0; i < b->d.n_items; i++) {
        uint32_t length = b->d.lengths[i];
        if (length > b->longest) return dlpi_buckets_too_long(b, i, length);
        lane[i & 3] = dlpi_absorb(lane[i & 3], length);
    }
    *hash = dlp_hash(lane[0], lane[1], lane[2], lane[3]);
    return 0;
}

static void dlpi_buckets_id(dlp_buckets *b, uint64_t lengths) {
    const dlp_buckets_desc *d = &b->d;
    const uint64_t words[] = {lengths,           d->batch_size,
                              d->window,         d->max_tokens,
                              d->divisible_by,   (uint64_t)d->shuffle,
                              (uint64_t)d->last, (uint64_t)b->base.order,
                              b->base.seed,      dlpi_order_params_hash(&b->base, d->n_items)};
    b->id = dlpi_order_hash_array(dlpi_hash_in(DLPI_DOMAIN_BUCKETS, 0, 0), words,
                                  sizeof words / sizeof *words);
}

static int dlpi_buckets_allocate(dlp_buckets *b, dlp_error *err) {
    uint64_t table = dlpi_order_table_bytes(&b->base, b->d.n_items);
    size_t n = b->d.window;
    b->now.index = malloc(n * 8);
    b->now.key = malloc(n * 8);
    b->ahead.index = malloc(n * 8);
    b->ahead.key = malloc(n * 8);
    b->scratch = malloc(n * 8);
    b->cut = malloc((n + 1) * sizeof *b->cut);
    if (table) b->table = malloc(table);
    if (b->now.index && b->now.key && b->ahead.index && b->ahead.key && b->scratch && b->cut &&
        (b->table || !table))
        return DLP_OK;
    return dlpi_mix_no_memory(err, "the windows");
}

DLPDEF int dlp_buckets_open(dlp_buckets **out, const dlp_buckets_desc *desc, dlp_error *err) {
    dlp_buckets *b;
    uint64_t lengths;
    int rc;
    if (!out || !desc) return dlpi_order_fault(err, "buckets", "out or desc is NULL");
    if ((rc = dlpi_buckets_check(desc, err)) != DLP_OK) return rc;
    if ((b = calloc(1, sizeof *b)) == NULL) return dlpi_mix_no_memory(err, "the buckets");
    b->d = *desc;
    rc = dlpi_buckets_resolve(b, err);
    if (rc == DLP_OK && dlpi_buckets_scan(b, &lengths) != 0)
        rc = dlpi_order_fault(err, "buckets.lengths", "%s", b->why);
    if (rc == DLP_OK) rc = dlpi_buckets_allocate(b, err);
    if (rc != DLP_OK) {
        dlp_buckets_close(b);
        return rc;
    }
    dlpi_buckets_id(b, lengths);
    dlpi_order_build(&b->base, b->d.n_items, b->table);
    dlpi_order_init(&b->order, &b->base, b->d.n_items, b->table);
    *out = b;
    return DLP_OK;
}

DLPDEF int dlp_buckets_sampler(dlp_buckets *b, dlp_sampler_desc *to) {
    if (!b || !to) return DLP_ERR_ARG;
    dlpi_mix_clear(to);
    to->order = DLP_ORDER_BATCHES;
    to->batches.next = dlpi_buckets_next;
    to->batches.begin = dlpi_buckets_begin;
    to->batches.save = dlpi_buckets_save;
    to->batches.restore = dlpi_buckets_restore;
    to->batches.why = dlpi_buckets_why;
    to->batches.user = b;
    to->function_id = b->id;
    to->seed = b->d.seed;
    return DLP_OK;
}

DLPDEF void dlp_buckets_close(dlp_buckets *b) {
    if (!b) return;
    free(b->now.index);
    free(b->now.key);
    free(b->ahead.index);
    free(b->ahead.key);
    free(b->scratch);
    free(b->cut);
    free(b->table);
    free(b);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-region     WHAT IS SHARED: ONE MAPPING, OFFSETS ONLY

   header | control | bells | records | workers | slots' rows and words | trace rings |
   what stages have of their own: rows in flight, kept items, parts, what stays | item cells |
   batch cells

   A batch slot goes round like this; each arrow is one store that publishes the step:

     FREE --feeder: pub--> OPEN --workers: own, done--> ... --last stage: ready--> READY
       ^                                                                             |
       +----------------------- caller: used = 0 <-- HELD <-- caller: delivered -----+

   Per slot and per stage that has workers there is a record of words (dlpi_sst):
     own[u]   who works on unit u (a run of up to 32 rows of an item stage, of one row where workers
              have several in flight; the whole batch of a batch stage): generation (39 bits) and
              worker + 1. A compare-and-swap that puts a worker's number there IS the claim; nothing
              else records it.
     done[i]  which of rows 32 i .. 32 i + 31 are complete: generation (32 bits), a bit for each.
              A batch stage has no rows: done[0] is how often the batch failed there.
     ready    sequence + 1 of the batch that left this stage, and how often batches went back.
   Words are never reset: one of an older generation counts as empty.

   label  atomic            written by                 read by (partner)
   T1     ctl.tail          feeder, after the slot     workers, caller (T1)
   P1     slot.pub          feeder, after its fields   workers before a claim (P1)
   O1     own[u]            claiming worker (CAS)      other claimers (O1)
   D1     done[i]           worker, after its rows     completers, next stage (D1)
   D2     scan              completer, after done      completers (D2)
   Y1     ready             completer of the last row  next stage, caller (Y1)
   Z1     word of what is kept  worker that keeps it      workers (Z1)
   C1     slot.used         caller at release          feeder (C1)
   V1     ctl.delivered     caller                     feeder (V1)
   X2     running, at_once  worker, around a callback  recovery, of a dead worker (X2)
   A1     sbell.active      caller, in next            workers (A1), see >>impl-tune
   B1     bell.mask, word   sleeper, waker             (B1): sequentially consistent with T1, D1, Y1

   Why a claim is right. A worker that claims unit u of batch b has read own[u] older than b, and
   pub of generation b with u below its unit count. Slots are reused only after every unit of b was
   claimed and done, and own[u] only grows, so if the slot went on since, the swap fails. Units of b
   freed again (dlpi_rows_redo) get generation b - 1, which is older than b and than nothing later,
   and a number that none of their claims and none of their earlier frees had.
   Why a batch leaves once. done[i] becomes full by one swap; whoever made a word full then looks at
   the others. The swaps are totally ordered, so the last of them sees all full; several may, and
   then the swap on ready lets one through.
   DLP_DISPATCH_BATCHES narrows who may try, by sequence and number alone, and a worker process that
   takes a dead one's place has its number: so each unit has somebody who may claim it, always. */

#define DLPI_MAGIC 0x31657069706c6400u
#define DLPI_FORMAT 2u
#define DLPI_GEN_BITS 39
#define DLPI_GEN_MASK ((UINT64_C(1) << DLPI_GEN_BITS) - 1)
#define DLPI_RUN_SHIFT_MAX 5u
#define DLPI_WORD_ROWS 32u
#define DLPI_HIST 160u
#define DLPI_SKIP_RING 64u
#define DLPI_PARK 64
#define DLPI_FREED UINT32_C(0x800000) /* in own[u], where a worker's number is far below */
#define DLPI_REDO UINT32_C(0x1000000) /* in own[u]: the worker gives it up, see dlpi_rows_redo */
#define DLPI_GOES_BACK UINT64_C(0)
#define DLPI_WINDOW_MAX 320u /* batches that an unordered state can tell apart */
#define DLPI_REPLACE_MAX 100u
#define DLPI_NO_SLOT UINT32_MAX
#define DLPI_EPOCH_MASK ((UINT64_C(1) << 48) - 1)
#define DLPI_MAX_EPOCH (UINT64_C(1) << 47)
#define DLPI_SEEKS_MAX (UINT32_C(1) << 14)
#define DLPI_WENT_BACK INT_MIN
#define DLPI_OVERRUN (INT_MIN + 1)
#define DLPI_GUARD ((uint64_t)DLPI_DEBUG * 256) /* bytes around a field: see >>impl-debug */
#define DLPI_NOBODY (UINT32_MAX / 2)
#define DLPI_FEEDER (DLPI_NOBODY + 1)

/* What observers read: the header, this table, and what its records speak of. Types are only ever
   added, structs only ever grow at their ends, and a record says how far its elements are apart: so
   an older monitor reads a newer region. What else changes takes a new DLPI_FORMAT. */
enum {
    DLPI_REC_CTL = 1,
    DLPI_REC_WORKERS,
    DLPI_REC_SLOTS,
    DLPI_REC_CELLS,
    DLPI_REC_ITEM_CELLS,
    DLPI_REC_TRACE,
    DLPI_REC_TABLE,
    DLPI_REC_ORDER,
    DLPI_REC_PIPE,
    DLPI_REC_STAGES,
    DLPI_REC_TAKEN,
    DLPI_REC_FIELDS,
    DLPI_REC_SHARE,
    DLPI_REC_KEPT,
    DLPI_REC_SOURCE,
    DLPI_REC_SOURCE_CELLS,
    DLPI_REC_LENDER,
    DLPI_REC_RESIDENT, /* a word for each of what stays */
    DLPI_REC_SINK,     /* a word for each of its buffers */
    DLPI_REC_COUNT
};

typedef struct dlpi_record {
    uint32_t type, id;
    uint64_t offset, stride, count;
} dlpi_record;

typedef struct dlpi_region {
    uint64_t magic;
    uint32_t format, header_bytes;
    uint64_t layout; /* of all structs: who maps the region must agree */
    uint64_t view;   /* of what observers read: who reads it must agree */
    uint64_t total_bytes;
    uint32_t n_records, record_bytes;
    uint64_t records_at; /* records[] from the region's beginning */
    uint64_t reserved;
    dlpi_record records[DLPI_REC_COUNT];
} dlpi_region;

/* Where what a batch slot has lies in it; source: what the source of batches keeps there. */
typedef struct dlpi_slot_layout {
    uint64_t index, lengths, item_lengths, offsets, fmeta, rec, valid, source;
} dlpi_slot_layout;

/* The pipe, for those who have nothing but the region. */
typedef struct dlpi_pipe_rec {
    char name[32];
    uint64_t token[2];     /* random: a name's record carries the same */
    uint64_t started_real; /* CLOCK_REALTIME, ns; for display */
    int32_t pid, memfd;    /* of the caller; for display */
    uint32_t uid, n_stages, n_workers, n_work, n_item_work;
    uint32_t prefetch, max_held, n_slots, ring, window, batch_rows;
    uint32_t words_max, units_max, trace_events;
    int32_t cpus, unordered, staged, threaded;                     /* threaded: the sampler */
    uint64_t plan_bytes, global_batch, batches_per_epoch, samples; /* UINT64_MAX: not known */
    uint64_t item_cell_stride, off_bells, reserved;
    dlpi_slot_layout slot;
} dlpi_pipe_rec;

/* A stage, in the order in which they were added. */
typedef struct dlpi_stage_rec {
    char name[32];
    int32_t kind, id;
    int32_t work;                    /* place among the stages with workers, -1: none */
    int32_t first_worker, n_workers; /* n_workers counts an inline one */
    int32_t num_workers;             /* 0: inline */
    int32_t placement, unit_is_batch, deadline_ms;
    int32_t in_flight;
    uint64_t sst_offset;         /* in a slot */
    int32_t active, workers_min; /* workers_min 0: not tuned */
} dlpi_stage_rec;

/* A field of the batches. */
typedef struct dlpi_field_rec {
    char name[32];
    uint32_t dtype;
    int32_t ndim, ragged, pad0;
    int64_t shape[DLP_MAX_DIMS];
    uint64_t elem_bytes, row_bytes, capacity, offset; /* offset: in a cell */
} dlpi_field_rec;

/* Items that are kept: cells [n_cells] of cell_bytes each, from cells_at of the region on. */
typedef struct dlpi_kept_rec {
    uint64_t n_cells, cell_bytes, cells_at, n_items;
} dlpi_kept_rec;

/* Consumers in other processes: see dlpipe_shm.h. They sleep on word while no batch is ready. */
typedef struct dlpi_share {
    uint32_t word;        /* B1 futex */
    uint32_t over;        /* H1 1: all is fed and consumed */
    uint64_t sleepers;    /* B1 a bit for each consumer */
    uint64_t handed_back; /* how often somebody left batches to others */
    uint32_t mode, max_consumers, n_slots, serve_only;
    uint64_t takers_at, admits_at, consumers_at, consumer_bytes; /* from here; read-only */
    uint8_t pad[DLPI_LINE - 72];
} dlpi_share;

/* Where up to 32 workers of a stage sleep. */
typedef struct dlpi_bell {
    uint32_t word; /* futex; counts the wakes */
    uint32_t mask; /* a bit for each sleeper */
    uint8_t pad[DLPI_LINE - 8];
} dlpi_bell;

/* A dlp_skip; its message has a place of its own. */
typedef struct dlpi_skip {
    uint64_t epoch, position, index, new_index;
    int32_t code, errnum, stage, worker;
} dlpi_skip;

#define DLPI_SKIP_WORDS (sizeof((dlp_skip *)0)->message / 8)

typedef struct dlpi_ctl {
    uint64_t tail;     /* T1 batches published; feeder */
    uint32_t fed_all;  /* T1 no batch will follow: 1, and the feeder's life above it; 0 */
    int32_t feed_code; /* T1 DLP_ERR_* that ended the feeding */
    uint8_t pad0[DLPI_LINE - 16];
    uint64_t base;      /* V1 oldest batch not delivered; caller */
    uint64_t delivered; /* V1 batches delivered; caller */
    uint64_t held;
    uint64_t items, bytes, wait_ns, step_ns, first_ns, epoch, started_ns;
    uint64_t pad1[6];
    uint64_t want; /* B1 batch + 1 that the caller sleeps for, UINT64_MAX any, 0 awake */
    uint32_t caller_word;
    uint32_t feeder_sleeps; /* B1 */
    uint32_t feeder_word;
    uint8_t pad2[DLPI_LINE - 20];
    uint64_t cancel; /* N1 batches of marks below this one are not wanted; caller */
    uint32_t stop;
    uint32_t error_claim; /* E1 1 + who writes error */
    uint32_t error_ready;
    uint32_t shared; /* 1: workers are processes */
    dlp_error error;
    uint64_t skips, failures;
    dlpi_skip skip_ring[DLPI_SKIP_RING];
    uint32_t processes;      /* J1 1: worker processes are there, 2: they could not be started */
    uint32_t closing;        /* J2 1: the caller waits for their end */
    uint32_t processes_word; /* J1 futex */
    uint32_t pad4;
    uint64_t restarts; /* of worker processes; supervisor */
    uint64_t views;    /* delivered, where a lender hands them out; caller */
    uint64_t tunes;    /* caller */
    dlp_tune_note tune[DLP_TUNE_NOTES];
    uint64_t source_wait_ns; /* the caller waited for what the source waits for; caller */
    uint64_t source_moves;   /* Q2 counts what the source may wait for; its workers */
    uint32_t source_waits;   /* scheduler: 1: the source waits, and no batch is on its way */
    uint32_t first_ready;    /* K3 1: first_skip is complete */
    dlp_error first_skip;
    uint64_t skip_words[DLPI_SKIP_RING][DLPI_SKIP_WORDS]; /* K1 messages of skip_ring */
    uint32_t error_more; /* E1 1: there was another error, of which nothing is kept */
    uint32_t pad5;
} dlpi_ctl;

typedef struct dlpi_sbell { /* one for each stage */
    uint64_t rewind;        /* R1 counts units freed again */
    uint32_t shared;        /* 1: sleepers may be in another process than their wakers */
    uint32_t active;        /* A1 workers below this number may claim; caller */
    uint8_t pad[DLPI_LINE - 16];
    dlpi_bell bell[(DLP_MAX_WORKERS + 31) / 32];
} dlpi_sbell;

/* A worker's own block: it alone writes, anybody reads. */
typedef struct dlpi_wblock {
    uint64_t items, bytes, busy_ns, starved_ns, blocked_ns, cpu_ns;
    uint64_t current, current_position, current_epoch, since_ns, units;
    uint64_t retried, replaced, left_out;
    uint64_t item_ns; /* moving average */
    uint64_t trace_head;
    int32_t state, tid;
    uint64_t max_ns;
    uint64_t running; /* X2 slot (32), row + 1 (32; all ones: the batch) in a callback; 0: none */
    char message[256];
    int32_t message_errno, process; /* 1: in a process of its own */
    uint32_t hist[DLPI_HIST];
    int32_t pid;
    int32_t restarts, died_by; /* the supervisor's words */
    int32_t pad0;
    uint64_t kept_hits, kept_misses, kept_items;
    uint64_t kept_cell;    /* Z2 number + 1 of the cell that it writes, 0: none */
    uint64_t in_flight_ns; /* that items were under way, added up */
    uint64_t core_wait_ns;
} dlpi_wblock;

/* A batch slot. The first blocks are the feeder's and the caller's; workers write there only when a
   row fails. The last begins with what the feeder tells the workers and goes on with the words of
   the first stage (dlpi_sst), so that a small batch travels in one cache line. */
typedef struct dlpi_bslot {
    uint64_t sequence, in_epoch;
    uint64_t begins, after; /* global position where the batch begins and ends */
    uint32_t flags;
    uint32_t used;   /* C1 1 from publication to release */
    uint32_t dirty;  /* some row is padding, left out, tried again or replaced */
    uint32_t failed; /* F1 1: error is complete, 2 + worker: who writes it */
    uint32_t dbuf;
    uint32_t frees; /* O1 counts units freed again */
    dlp_error error;
    uint32_t batch_rec; /* of the batch in its batch stages, as rows have one */
    uint32_t killed_by; /* signal that ended the last worker that died over this slot */
    uint8_t pad1[5 * DLPI_LINE - 64 - sizeof(dlp_error)];
    uint64_t pub; /* P1 generation, count, padded, run shift */
    uint64_t epoch, position;
    uint32_t count;
    uint16_t cell; /* item cells of this batch, or its own, see DLPI_CELLS_* */
    uint16_t life; /* N1 how many seeks came before it was fed */
} dlpi_bslot;

/* The words of a stage. Behind them, where there is more than one done word, stands a hint (scan):
   done words below are full; generation (32), redo count (16) and word (16). */
typedef struct dlpi_sst {
    uint64_t ready;    /* Y1 */
    uint64_t next;     /* hint: units below are claimed; generation (39) and unit (25) */
    uint64_t words[1]; /* done[n_words], own[n_units], scan */
} dlpi_sst;

/* What a collate made of a field, per slot. */
typedef struct dlpi_fmeta {
    uint64_t bytes;
    int32_t ndim, has_offsets;
    int64_t shape[DLP_MAX_DIMS];
} dlpi_fmeta;

_Static_assert(sizeof(dlpi_record) == 32, "region layout");
_Static_assert(sizeof(dlpi_region) == 64 + 32 * DLPI_REC_COUNT, "region layout");
_Static_assert(sizeof(dlpi_pipe_rec) == 256, "region layout");
_Static_assert(sizeof(dlpi_stage_rec) == 88, "region layout");
_Static_assert(sizeof(dlp_tune_note) == 24, "region layout");
_Static_assert(sizeof(dlpi_field_rec) == 144, "region layout");
_Static_assert(sizeof(dlpi_share) == DLPI_LINE, "region layout");
_Static_assert(sizeof(dlpi_kept_rec) == 32, "region layout");
_Static_assert(offsetof(dlpi_wblock, kept_hits) == offsetof(dlpi_wblock, pad0) + 4, "no padding");
_Static_assert(sizeof(dlpi_wblock) == offsetof(dlpi_wblock, core_wait_ns) + 8, "no hidden padding");
_Static_assert(sizeof(dlpi_bell) == DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, base) == DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, want) == 2 * DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, cancel) == 3 * DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_bslot, pub) == 5 * DLPI_LINE, "region layout");
_Static_assert(sizeof(dlpi_bslot) == 5 * DLPI_LINE + 32, "region layout");
_Static_assert(sizeof(dlp_trace_event) == 32, "region layout");

/* ---------------------------------------------------------------------------------------------
   >>impl-ops        WHAT A KIND OF STAGE IS TO THE REST
   The core knows no kind of stage by its name. A stage carries the table of its kind, set when it
   is added, and what a kind keeps for itself lies in the stage's own block (self). A function that
   is NULL has nothing to do for that kind. Tables of roles are given by the one stage of a pipe
   that has the role, and are NULL everywhere else:

     source   what the rows of a batch are, and when a batch may be scheduled; of several stages
              that have the role the last one has it
     keeper   rows that need not be fetched again
     lender   what the consumer gets in a batch's place, and the states that go with it
     sink     the last stage of a chain whose results lie elsewhere than in the slot's cell

   Nothing here is called for a single row, but for what a source or a keeper that is there does
   with it: a claimed run of rows, or a batch, costs one call. */

struct dlpi_worker;
struct dlpi_stage;
struct dlpi_unit;
struct dlpi_death;
struct dlpi_state;
struct dlpi_place;
struct dlpi_source_state;
typedef struct dlpi_words dlpi_words;
typedef struct dlpi_seen dlpi_seen;

/* What the rows of batches are. */
typedef struct dlpi_source_ops {
    /* building, by the caller */
    int (*sizes)(dlp_pipe *p);                 /* samples and batches of an epoch; or it is wrong */
    uint64_t (*slot_bytes)(const dlp_pipe *p); /* it keeps in a slot; NULL: none */
    size_t row_bytes;                          /* of what `row` writes for one row */
    /* whoever schedules batches */
    int (*rows)(dlp_pipe *p, uint64_t *rows);  /* of the present global batch; 0: epoch's end */
    bool (*ready)(dlp_pipe *p, uint64_t rows); /* may it be scheduled now? NULL: always */
    void (*fill)(dlp_pipe *p, uint32_t s);     /* what the source writes into slot s for it */
    int (*step)(dlp_pipe *p); /* the present batch is scheduled: to the next; NULL: nothing to do */
    void (*ahead)(dlp_pipe *p); /* look beyond it; NULL: nothing to look for */
    int (*seek)(dlp_pipe *p, const struct dlpi_place *to);
    /* a worker of the first stage */
    void (*indices)(struct dlpi_worker *w, const struct dlpi_unit *t); /* NULL: fill wrote them */
    uint64_t (*item)(struct dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                     uint64_t position, uint32_t k); /* the row's own: k 0; or in its place: 1.. */
    void (*row)(struct dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                void *own); /* what its callback has besides; own: [row_bytes], while it is there */
    /* states, by the caller */
    const char *const *words; /* [n_words] of 8 bytes that config puts first in its own part */
    uint32_t n_words;
    void (*config)(const dlp_pipe *p, struct dlpi_state *s); /* what of it changes the order */
    const struct dlpi_source_state *(*state)(const dlp_pipe *p, uint32_t s,
                                             int after); /* before, or after, the batch in slot s;
                                                            NULL: the position says all */
    const char *(*never_saved)(const dlp_pipe *p, const struct dlpi_state *s); /* the field that
                                                            has what is never saved, or NULL */
} dlpi_source_ops;

typedef struct dlpi_keeper_ops {                                 /* by workers of the first stage */
    void (*ahead)(const dlp_pipe *p, const struct dlpi_unit *t); /* a run will ask for its rows */
    bool (*get)(struct dlpi_worker *w, const struct dlpi_unit *t, uint32_t row);
    void (*put)(struct dlpi_worker *w);     /* the row that was fetched just now */
    void (*recover)(struct dlpi_worker *w); /* by the supervisor: it died */
} dlpi_keeper_ops;

typedef struct dlpi_lender_ops { /* by the consumer; v: number of what is handed out */
    struct {
        const char *slots, *cells, *zeros, *results;
    } words;            /* of the plan, in the place of a batch's */
    const char *params; /* of states: what config changes */
    int (*next)(dlp_pipe *p, dlp_batch **out, int timeout_ms);
    void (*drop)(dlp_pipe *p, uint32_t v);
    uint32_t (*slot)(const dlp_pipe *p, uint32_t v); /* whose cell it lies in */
    uint64_t (*batches)(const dlp_pipe *p);          /* of an epoch */
    void (*leave)(dlp_pipe *p);                      /* the rest of the epoch is not wanted */
    void (*state)(const dlp_pipe *p, uint32_t v, struct dlpi_state *to); /* behind v */
    void (*config)(const dlp_pipe *p, struct dlpi_state *s);
    uint64_t (*position)(const dlp_pipe *p, uint64_t epoch, uint64_t k); /* rows before batch k */
    void (*seek)(dlp_pipe *p, const struct dlpi_state *s, struct dlpi_place *to);
    uint64_t (*bytes)(const dlp_pipe *p, uint32_t s, uint32_t field); /* for the sink, of a slot */
    uint32_t (*cell)(dlp_pipe *p); /* DLPI_CELLS_STAY: by the scheduler, of its present batch */
} dlpi_lender_ops;

/* What a lender says of results that stay where the sink has put them (p->stay): by the sink. */
typedef struct dlpi_stay_ops {
    uint32_t (*place)(const dlp_pipe *p, uint32_t s); /* its own; DLPI_NO_SLOT: it has none */
    bool (*left)(const dlp_pipe *p, uint32_t s);      /* left out: it does not stay */
    uint32_t (*source)(const dlp_pipe *p, uint32_t s, uint64_t b); /* in which slot's cell it is
                                                                 for batch b, or DLPI_NO_SLOT */
} dlpi_stay_ops;

typedef struct dlpi_sink_ops {              /* by the consumer */
    const char *words;                      /* of the plan, for its buffers */
    uint64_t (*buffers)(const dlp_pipe *p); /* how many: a batch in each */
    void (*data)(const dlp_pipe *p, uint32_t s, uint32_t field, uint64_t at,
                 dlp_tensor *t);            /* point t at this byte of the batch in slot s */
    void (*freed)(dlp_pipe *p, uint32_t s); /* that slot was given back */
} dlpi_sink_ops;

enum { DLPI_UNIT_NONE, DLPI_UNIT_ROWS, DLPI_UNIT_BATCHES, DLPI_UNIT_CELLS };

typedef struct dlpi_stage_ops {
    int kind;     /* DLP_STAGE_* */
    int rank;     /* place in a chain: never falls */
    int many;     /* 1: several of them may follow each other */
    int unit;     /* DLPI_UNIT_*: what its workers take; cells: of its own, not of slots */
    int in_order; /* 1: one worker, which takes batches in their order, and never dies */
    size_t self_bytes;
    const char *own; /* the desc's name of the callback that is stage.own */
    /* building, by the caller */
    int (*check)(dlp_pipe *p, struct dlpi_stage *st);   /* behind those of the whole chain */
    void (*layout)(dlp_pipe *p, struct dlpi_stage *st); /* its areas of the region */
    const char *private_words;                          /* their line of the plan; NULL: none */
    uint64_t (*private_bytes)(const dlp_pipe *p, const struct dlpi_stage *st);
    bool (*alloc)(dlp_pipe *p, struct dlpi_stage *st); /* those; false: no memory */
    void (*live)(dlp_pipe *p, struct dlpi_stage *st);  /* the region is there */
    void (*describe)(const dlp_pipe *p,
                     const struct dlpi_stage *st);    /* its record, for observers */
    int (*begin)(dlp_pipe *p, struct dlpi_stage *st); /* before threads start */
    void (*end)(dlp_pipe *p, struct dlpi_stage *st);  /* when all workers are gone */
    void (*release)(struct dlpi_stage *st);           /* what add and alloc took */
    void (*worker)(struct dlpi_worker *w); /* its record is set up: what is its kind's of it */
    /* work, by a worker of the stage */
    int (*enter)(struct dlpi_worker *w);  /* behind worker_init; else the pipe has the error */
    void (*leave)(struct dlpi_worker *w); /* before worker_exit */
    bool (*step)(struct dlpi_worker *w);  /* what is there to do, without waiting: did it move? */
    bool (*find)(struct dlpi_worker *w, struct dlpi_unit *t); /* claim a unit */
    void (*run)(struct dlpi_worker *w, const struct dlpi_unit *t);
    bool (*full)(const struct dlpi_worker *w);           /* no room for a unit, whatever comes */
    bool (*owes)(const struct dlpi_worker *w);           /* something of its own is to come back */
    uint64_t (*due)(struct dlpi_worker *w, uint64_t ns); /* when it must look again: ns at most */
    void (*recover)(struct dlpi_worker *w, const struct dlpi_death *why); /* by the supervisor */
    /* by observers: its figures, out of words of the region, live or copied; false: they say what
       can't be */
    bool (*seen)(const dlpi_words *words, dlpi_seen *s, int32_t stage);
    /* roles */
    const dlpi_source_ops *source;
    const dlpi_keeper_ops *keeper;
    const dlpi_lender_ops *lender;
    const dlpi_sink_ops *sink;
} dlpi_stage_ops;

/* ---------------------------------------------------------------------------------------------
   >>impl-pipe       THE PIPE AS THIS PROCESS SEES IT */

typedef struct dlpi_field { /* a field laid out in a cell */
    dlp_field f;
    char name[32];
    uint64_t elem_bytes, row_bytes;
    uint64_t capacity; /* bytes in a cell */
    uint64_t offset;   /* in a cell */
    uint64_t max_rows; /* ragged: of dimension 0, per batch */
} dlpi_field;

typedef struct dlpi_fields {
    uint32_t n;
    uint32_t any_ragged;
    uint64_t cell_bytes;
    dlpi_field at[DLP_MAX_FIELDS];
} dlpi_fields;

typedef struct dlpi_stage {
    int kind; /* DLP_STAGE_* */
    const dlpi_stage_ops *ops;
    void *self;               /* [ops->self_bytes] what its kind keeps; NULL: nothing */
    int id;                   /* as added */
    int link_next, link_prev; /* by dlp_pipe_link, -1 none */
    int next, prev;           /* the chain, -1 none */
    char name[32];
    dlp_workers_desc w;
    int32_t *affinity;
    /* what it does */
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    dlp_collate_fn collate;
    void (*own)(void); /* what else its kind calls (ops->own), as another type */
    void *user;
    dlp_sampler_desc sampler;
    dlp_repeat_desc repeat;
    dlp_dataset dataset;
    int32_t in_flight; /* items at once in a worker, 0: one after the other */
    dlp_batch_desc batching;
    dlp_field fields[DLP_MAX_FIELDS]; /* the dataset's or the batch's, copied */
    char field_names[DLP_MAX_FIELDS][32];
    /* laid out at start */
    int work;                    /* place among the stages with workers, -1: none */
    int first_worker, n_workers; /* n_workers counts an inline one */
    int begin, tuned;            /* workers at first; 1: n_workers is workers_max */
    uint64_t sst_offset;         /* in a slot */
} dlpi_stage;

typedef struct dlpi_parked { /* a row between two attempts: see dlpi_park */
    /* DLPI_GOES_BACK: to the first stage, once no other row of its unit waits here */
    uint64_t due_ns;
    uint64_t gen;
    uint32_t slot, row;
} dlpi_parked;

/* Where dlp_item_fail writes; what item->internal points at. */
typedef struct dlpi_note {
    char *message; /* [256] */
    int32_t *errnum;
    struct dlpi_worker *w;
    uint32_t drew; /* 1: the callback called dlp_item_random */
    uint32_t said; /* row + 1 of the item whose words these are, 0: nothing was said */
} dlpi_note;

typedef struct dlpi_cpu { /* of a thread, as it was noted last */
    uint64_t noted_ns, used_ns, waited_ns;
} dlpi_cpu;

typedef struct dlpi_worker {
    dlp_pipe *p;
    dlpi_stage *st;
    int id, global;
    dlpi_wblock *wb;
    dlp_trace_event *trace;
    dlpi_sbell *bell;
    uint64_t mark;         /* of the batch that its item is in */
    const uint64_t *index; /* of that batch's rows */
    bool extras;           /* see dlpi_row_extras; known since dlpi_item_at */
    uint64_t low;          /* every batch below has no unit to claim */
    uint64_t tail_seen;    /* ctl.tail when last read */
    uint64_t rewind_seen;
    uint64_t claim_end; /* batches from here on are not to be claimed; 0: none */
    void *self;         /* what its kind keeps for it, or NULL */
    uint64_t *at_once;  /* X2 [n_at_once] in the region: rows in callbacks, each as wb->running has
                           the only one; NULL: there is but that */
    uint32_t n_at_once;
    dlpi_note note;
    uint32_t until_clock, clock_every;
    uint32_t units_untimed, items_untimed;
    uint64_t last_ns; /* last clock reading, 0: none since waiting */
    uint64_t wait_ns; /* since when it waits, 0: it does not */
    bool blocked;     /* ... for want of free cells, not of input */
    dlpi_cpu cpu;     /* of its own thread */
    dlp_trace_event event;
    int n_parked, parked_most;
    dlpi_parked *parked; /* [parked_most] */
    dlpi_parked parked_own[DLPI_PARK];
    void *state;
    dlp_item item;
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
    const char *bad_field; /* the one whose length is wrong, or NULL */
    int returned;          /* by the callback that failed */
    /* item and data are what callbacks see, and may spoil; the library goes by index, and by: */
    dlp_item given;                /* what the batch's items have alike */
    uint64_t position;             /* of its first row */
    uint8_t *cell[DLP_MAX_FIELDS]; /* fields of its first row */
    dlp_batch batch;
    dlp_tensor tensors[DLP_MAX_FIELDS];
    struct dlp_collate_in in[DLP_MAX_FIELDS];
    struct dlp_collate_out out[DLP_MAX_FIELDS];
    uint64_t cursor; /* of a stage in order: the next batch */
    uint32_t near_n; /* positions near_first.. of near_epoch have the indices near[] */
    uint64_t near_first, near_epoch, near[64];
    dlpi_order order;
    pthread_t thread;
    int started, joined;    /* joined -1: inline, has begun */
    int process;            /* 1: runs in a process of its own */
    void *own;              /* [source->row_bytes] of the row in its callback */
    uint8_t pad[DLPI_LINE]; /* workers lie side by side and share no line */
} dlpi_worker;

typedef struct dlpi_cell_use { /* the batch that item cells were given to last */
    uint64_t b;
    uint32_t slot;
    uint32_t given;
} dlpi_cell_use;

typedef struct dlpi_held { /* what a dead worker had, and was not done */
    uint64_t b;            /* a unit of which no callback ran: its batch, or a cell's ticket */
    uint32_t slot, unit;
    uint32_t missing; /* its rows that were not done; 0: there is none */
    bool ran;         /* a callback ran, and has the blame */
} dlpi_held;

typedef struct dlpi_death { /* of a worker process */
    uint32_t signal;        /* that ended it, 0: it called exit */
    bool late;              /* it was killed because an item was past its deadline */
    dlpi_held *held;        /* written by dlpi_recover; or NULL */
} dlpi_death;

/* The source's own part of a state: of bytes that it alone understands. */
typedef struct dlpi_source_state {
    uint32_t bytes, pad;
    uint8_t at[DLP_SAMPLER_STATE_BYTES];
} dlpi_source_state;

typedef struct dlpi_place {          /* where the feeder is to go on: a checked state */
    uint64_t epoch, batch, position; /* the first batch not consumed */
    uint32_t sampler_bytes, life;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t window[DLPI_WINDOW_MAX / 8]; /* bit k: batch + k is consumed too */
} dlpi_place;

typedef struct dlpi_feeder { /* used by whoever runs the sampler: the caller or its thread */
    uint64_t epoch, in_epoch, position;
    uint64_t published;
    uint32_t slot_turn;
    uint32_t cell_turn;
    dlpi_cell_use *cells; /* [prefetch] */
    int ended;
    uint32_t run_shift;
    uint64_t cost_ns;
    /* resume of an unordered pipe: bitmap of batches consumed behind the prefix */
    uint64_t skip_base;
    uint8_t skip_bits[DLPI_WINDOW_MAX / 8];
    uint32_t life; /* seeks that it has followed, modulo 2^16 */
} dlpi_feeder;

typedef struct dlpi_tuned {            /* a stage as the tuner saw it last */
    uint64_t busy_ns, done_ns, cpu_ns; /* busy with the present call, without it, CPU */
    uint64_t core_wait_ns;
    double share;     /* of its working workers' time that was busy */
    double cpu_share; /* of busy time, spent on a core, or ready to run on one */
    int active, set;  /* 1: by dlp_pipe_set_workers */
    int cores_said;
    uint32_t hot, cold; /* looks in a row that asked for more, for fewer */
    uint32_t patience;  /* how many it takes for fewer */
    uint64_t changed;   /* look of the last change */
} dlpi_tuned;

typedef struct dlpi_tuner {
    uint64_t every_ns; /* 0: nothing is tuned */
    uint64_t due_ns, last_ns, looks;
    uint64_t wait_from; /* the caller waits since then, 0: it does not */
    uint64_t waited_ns;
    dlpi_tuned at[DLP_MAX_STAGES];
} dlpi_tuner;

/* What dlpipe_shm.h adds: its implementation gives this table, where there is one. */
typedef struct dlpi_shm_calls dlpi_shm_calls;
static const dlpi_shm_calls *dlpi_shm; /* defined again, with its value, by dlpipe_shm.h */
struct dlpi_shm_calls {
    int (*open)(dlp_pipe *p);    /* check and copy d.shm */
    int (*resolve)(dlp_pipe *p); /* the wiring is known: does it go with d.shm? */
    /* consumers in other processes: by the feeder */
    bool (*keep)(dlp_pipe *p); /* who came, who went; did anything change? */
    bool (*may_feed)(dlp_pipe *p);
    bool (*slot_free)(dlp_pipe *p, uint32_t s);
    uint64_t (*bytes)(const dlp_pipe *p); /* that begin will take beside the region */
    int (*begin)(dlp_pipe *p);            /* the region is there: name it, start the processes */
    int (*look)(dlp_pipe *p);             /* while the caller waits: DLP_OK, or what is wrong */
    void (*nudge)(dlp_pipe *p);           /* stop was asked for; any thread, signal handlers */
    void (*await)(dlp_pipe *p);           /* close: until no process is left */
    void (*end)(dlp_pipe *p);             /* give up what open and begin took */
};

/* The cell that slot s writes its batch in: that of its own number; one of prefetch_factor, free
   again when the batch has left cell_end; or the one where the bytes of the batch stay, which the
   lender says. Behind all of those that stay lies one that nobody writes: a batch that is left out
   is there for as long as it is held, while one of the next epoch may write into its own cell. */
enum { DLPI_CELLS_OWN = 0, DLPI_CELLS_TURN, DLPI_CELLS_STAY };

/* Areas of the region. One that observers read has the type of its record for an id. */
enum {
    DLPI_AREA_BELLS = DLPI_REC_COUNT,
    DLPI_AREA_AT_ONCE,
    DLPI_AREA_KEPT,
    DLPI_AREA_ZEROS,
    DLPI_AREA_GUARD
};

typedef struct dlpi_area {
    const char *words;      /* its line of the plan; NULL: it has none, or it is part of one */
    uint32_t record, align; /* record: DLPI_REC_*, 0: none */
    uint64_t offset, stride, count;
} dlpi_area;

struct dlp_pipe {
    dlp_pipe_desc d;
    char name[32];
    dlp_state resume;
    int prepared; /* the region is there, and its processes */
    int started, ended, epoch_end_due, stopped_said;
    int closing;         /* 1: close was called, 2: no thread of the pipe is left */
    uint32_t stop_asked; /* S2: stop may be called from the first moment on */
    uint32_t can_ring;   /* S2: ctl and bells are there */
    int32_t pid;
    int in_worker; /* 1: this is one of its worker processes: a callback may call stop */
    dlp_error err;
    dlp_error held_err; /* of the last next that returned DLP_ERR_HELD */
    int n_warnings;
    char warnings[8][160];
    int n_stages;
    dlpi_stage stages[DLP_MAX_STAGES];
    /* the chain, once checked */
    dlpi_stage *sampler, *repeat, *fetch, *batcher;
    dlpi_stage *keeper, *lender, *sink; /* the stages with these roles, or NULL */
    const dlpi_stay_ops *stay;          /* the lender's, where the sink's results stay; or NULL */
    const dlpi_source_ops *source;      /* what the rows of batches are, and */
    dlpi_stage *source_stage;           /* whose table that is */
    dlpi_stage *rows_end;               /* after it nobody asks for a batch's rows again */
    bool source_waited;                 /* this wait of the caller's was for the source */
    dlpi_stage *work[DLP_MAX_STAGES];   /* stages with workers: */
    int n_item_work;                    /* first those of rows, in order; behind them, up to */
    int n_work;                         /* those of batches; behind them, up to */
    int n_staffed;                      /* those of cells of their own */
    dlpi_fields items, batches;         /* item cells; batch cells */
    int staged;                         /* items are written in cells of their own */
    dlpi_stage *cell_end;               /* behind it nobody needs what lies in turning cells */
    int cells;                          /* DLPI_CELLS_*: where a slot's batch lies */
    uint32_t n_cells, n_out;            /* batch cells; batches that can be lent at once */
    uint32_t max_kills;                 /* as dlp_shm_desc */
    uint32_t batch_rows;                /* rows of this rank, at most */
    uint64_t samples, batches_per_epoch;
    uint32_t prefetch, max_held, n_slots, ring, window;
    uint32_t rank, world;
    uint64_t global_batch;
    uint64_t params_hash; /* of the sampler's arrays and numbers, for states */
    int32_t last;
    int cpus, peers;
    int spin_rounds, yield_rounds;
    /* layout */
    dlpi_area areas[DLPI_AREA_GUARD + 1]; /* by id; dlpi_layout has the order in which they lie */
    uint64_t region_bytes, share_bytes;
    dlpi_slot_layout slot;
    uint64_t off_tries, tries_bytes; /* in a slot; tries_bytes 0: no stage tries again */
    uint32_t words_max, units_max, trace_events;
    uint64_t plan_private, plan_bytes; /* plan_bytes: of region, private records, the sink's */
    int n_workers, n_threads, n_procs;
    int huge_pages;    /* DLP_HUGE_* */
    void *shm;         /* what dlpipe_shm.h keeps */
    dlpi_share *share; /* or NULL */
    /* live */
    uint8_t *alive; /* a page that is zero in a process forked from this one */
    uint8_t *region;
    int memfd;
    int name_fd;       /* dlpipe_shm.h: record and lock of the pipe's name, -1: none */
    char shm_name[64]; /* "": none */
    dlpi_ctl *ctl;
    dlpi_sbell *bells;
    uint32_t *disp;
    dlpi_worker *workers;
    dlpi_worker *trainer; /* its trace and clock only */
    dlp_batch *out;       /* [n_out] what the caller sees */
    dlp_tensor *out_fields;
    uint8_t *ones;
    uint8_t *held;  /* [n_out] */
    uint8_t *taken; /* [ring] in the region; unordered: delivered; caller */
    uint64_t *index_buffer;
    uint8_t *own_rows; /* [workers of fetch][1 + in_flight] of source->row_bytes; NULL: none */
    uint64_t budget_bytes;
    struct dlpi_lent *lent; /* [n_out] batches given away as tensors; NULL: never */
    uint32_t n_lent;
    int lent_closed;
    uint64_t deadline_ns; /* the shortest of the stages, 0: none */
    int open_end;         /* 1: nobody knows where an epoch ends, until a row says so */
    dlpi_place place;     /* where to go on in the life that it says; under dlpi_place_lock */
    /* What the caller writes with every batch lies apart from what workers read. The feeder's own
       part is the sampler thread's where there is one. */
    uint8_t pad0[DLPI_LINE];
    uint64_t base;
    uint64_t n_held;
    uint64_t last_return_ns;
    uint64_t looked_ns;     /* for the processes */
    uint32_t life;          /* seeks, modulo 2^16 */
    uint32_t seeks;         /* since the last batch was delivered */
    uint64_t epoch_now;     /* of the batch delivered last */
    int epoch_open;         /* some batch of epoch_now delivered, and not its last */
    uint64_t last_sequence; /* unordered: the last batch of the epoch, UINT64_MAX: not seen */
    uint64_t win_base;      /* unordered: batches of the epoch delivered without a gap */
    uint8_t win[DLPI_WINDOW_MAX];
    uint64_t high; /* batches up to the highest delivered; the state behind that: */
    uint64_t after_epoch, after_batch, after_position;
    dlpi_source_state after_source;
    uint32_t calls_untimed, call_clock_every;
    uint32_t clock_off; /* inline: this call is not timed */
    uint64_t inline_ns; /* inline: what the last call that was timed took */
    dlpi_tuner tune;
    uint8_t pad1[DLPI_LINE];
    dlpi_feeder feed;
    uint8_t pad2[DLPI_LINE];
    uint32_t live_word; /* futex: threads that ended */
};

static inline uint64_t dlpi_area_bytes(const dlp_pipe *p, int id) {
    return dlpi_times(p->areas[id].stride, p->areas[id].count);
}
/* Put an area behind those that are there. */
static inline void dlpi_area_add(dlp_pipe *p, int id, const char *words, uint64_t stride,
                                 uint64_t count, uint32_t align) {
    dlpi_area *a = &p->areas[id];
    uint32_t record = id < DLPI_REC_COUNT && count > 0 ? (uint32_t)id : 0;
    *a = (dlpi_area){words, record, align, dlpi_round_up(p->region_bytes, align), stride, count};
    p->region_bytes = dlpi_sum(a->offset, dlpi_area_bytes(p, id));
}
static inline void *dlpi_area_at(const dlp_pipe *p, int id, uint64_t i) {
    return p->region + p->areas[id].offset + i * p->areas[id].stride;
}
static inline dlpi_bslot *dlpi_slot_at(const dlp_pipe *p, uint32_t s) {
    return dlpi_area_at(p, DLPI_REC_SLOTS, s);
}
static inline dlpi_sst *dlpi_sst_at(const dlp_pipe *p, uint32_t s, const dlpi_stage *st) {
    return (dlpi_sst *)(void *)((uint8_t *)dlpi_slot_at(p, s) + st->sst_offset);
}
static inline uint64_t *dlpi_done(dlpi_sst *t) { return t->words; }
static inline uint64_t *dlpi_own(const dlp_pipe *p, dlpi_sst *t) { return t->words + p->words_max; }
static inline uint64_t *dlpi_scan(const dlp_pipe *p, dlpi_sst *t) {
    return t->words + p->words_max + p->units_max;
}
/* What the source keeps with the batch in slot s: [source->slot_bytes]. */
static inline void *dlpi_slot_source(const dlp_pipe *p, uint32_t s) {
    return (uint8_t *)dlpi_slot_at(p, s) + p->slot.source;
}
static inline uint64_t *dlpi_slot_index(const dlp_pipe *p, uint32_t s) {
    return (uint64_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.index);
}
/* How often the present item of each row failed in an item stage: replacement (8) | tries (8), so
   that those of an item that was replaced do not count. */
static inline uint16_t *dlpi_slot_tries(const dlp_pipe *p, uint32_t s, const dlpi_stage *st) {
    uint8_t *base = (uint8_t *)dlpi_slot_at(p, s) + p->off_tries;
    return (uint16_t *)(void *)base + (size_t)st->work * p->batch_rows;
}
static inline uint32_t *dlpi_slot_rec(const dlp_pipe *p, uint32_t s) {
    return (uint32_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.rec);
}
static inline uint64_t *dlpi_slot_lengths(const dlp_pipe *p, uint32_t s, uint32_t field,
                                          int items) {
    uint8_t *base =
        (uint8_t *)dlpi_slot_at(p, s) + (items ? p->slot.item_lengths : p->slot.lengths);
    return (uint64_t *)(void *)base + (size_t)field * p->batch_rows;
}
static inline uint64_t *dlpi_slot_offsets(const dlp_pipe *p, uint32_t s, uint32_t field) {
    uint8_t *base = (uint8_t *)dlpi_slot_at(p, s) + p->slot.offsets;
    return (uint64_t *)(void *)base + (size_t)field * ((size_t)p->batch_rows + 1);
}
static inline dlpi_fmeta *dlpi_slot_fmeta(const dlp_pipe *p, uint32_t s) {
    return (dlpi_fmeta *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.fmeta);
}
static inline uint64_t dlpi_cells_bytes(const dlp_pipe *p) {
    return dlpi_sum(dlpi_area_bytes(p, DLPI_REC_CELLS), dlpi_area_bytes(p, DLPI_AREA_ZEROS));
}
static inline uint8_t *dlpi_batch_cell(const dlp_pipe *p, uint32_t s) {
    return dlpi_area_at(p, DLPI_REC_CELLS,
                        p->cells == DLPI_CELLS_OWN ? s : dlpi_slot_at(p, s)->cell);
}
static inline uint8_t *dlpi_item_cell(const dlp_pipe *p, uint32_t s) {
    if (!p->staged) return dlpi_batch_cell(p, s);
    return dlpi_area_at(p, DLPI_REC_ITEM_CELLS, dlpi_slot_at(p, s)->cell);
}
static inline uint32_t dlpi_slot_of(const dlp_pipe *p, uint64_t b) {
    return DLPI_LOAD_RLX(&p->disp[b & (p->ring - 1)]); /* T1 ordered by the tail that covers b */
}

/* What became of a row so far: one word, changed by one store, so that a worker that dies has made
   a change or has not. All that the row's index and fate depend on is in it.
   state (2) | tries of the present index in all stages (7) | which replacement (7) |
   workers killed (7) | by which stage (4) | 1: held its worker past the deadline (1) |
   1: its failure is raised (1) |
   1: left out, to be counted by max_skips of that stage when it is delivered (1) |
   1: an item of it was replaced because it failed, not because its callback left it out (1) */
enum { DLPI_ROW_OK = 0, DLPI_ROW_PAD = 1, DLPI_ROW_LEFT = 2, DLPI_ROW_END = 3 /* of the epoch */ };
#define DLPI_REC_LATE (UINT32_C(1) << 27)
#define DLPI_REC_RAISED (UINT32_C(1) << 28)
#define DLPI_REC_COUNTS (UINT32_C(1) << 29)
#define DLPI_REC_FAILED (UINT32_C(1) << 30)
static inline uint32_t dlpi_rec_state(uint32_t rec) { return rec & 3u; }
static inline uint32_t dlpi_rec_tries(uint32_t rec) { return rec >> 2 & 127u; }
static inline uint32_t dlpi_rec_repl(uint32_t rec) { return rec >> 9 & 127u; }
static inline uint32_t dlpi_rec_kills(uint32_t rec) { return rec >> 16 & 127u; }
static inline uint32_t dlpi_rec_stage(uint32_t rec) { return rec >> 23 & 15u; }
static inline uint32_t dlpi_rec(uint32_t state, uint32_t tries, uint32_t repl) {
    return state | tries << 2 | repl << 9;
}
static inline uint32_t dlpi_rec_killed(uint32_t rec, uint32_t stage, bool late) {
    uint32_t kills = dlpi_rec_stage(rec) == stage ? dlpi_rec_kills(rec) : 0;
    if (kills < 127) kills++;
    return (rec & (0xffffu | DLPI_REC_RAISED | DLPI_REC_COUNTS | DLPI_REC_FAILED)) | kills << 16 |
           stage << 23 | (late ? DLPI_REC_LATE : 0);
}

/* pub: generation (39) | count (21) | padded (1) | run shift (3)
   own: generation (39) | worker + 1 (25), or that and DLPI_REDO, or DLPI_FREED and a number */
static inline uint64_t dlpi_gen(uint64_t word) { return word >> 25; }
static inline uint64_t dlpi_gen_word(uint64_t b, uint64_t low) { return b << 25 | low; }
static inline uint32_t dlpi_gen_low(uint64_t word) { return (uint32_t)word & 0x1ffffffu; }
static inline uint64_t dlpi_pub(uint64_t b, uint32_t count, uint32_t padded, uint32_t shift) {
    return dlpi_gen_word(b, (uint64_t)count << 4 | padded << 3 | shift);
}
static inline uint32_t dlpi_pub_count(uint64_t pub) { return (uint32_t)(pub >> 4) & 0x1fffffu; }
static inline bool dlpi_pub_padded(uint64_t pub) { return (pub >> 3 & 1u) != 0; }
static inline uint32_t dlpi_pub_shift(uint64_t pub) { return (uint32_t)pub & 7u; }
static inline uint32_t dlpi_units(uint32_t count, uint32_t shift) {
    return (count + (1u << shift) - 1u) >> shift;
}
/* Is generation g older than batch b? Both modulo 2^39, at most 2^38 apart. */
static inline bool dlpi_older(uint64_t g, uint64_t b) {
    return ((b - g) & DLPI_GEN_MASK) - 1 < (UINT64_C(1) << (DLPI_GEN_BITS - 1));
}
/* ready: redo count (16) | sequence + 1 (48). A batch that goes back to an earlier stage gets
   another count, so that who read the word before cannot swap it any more. */
#define DLPI_READY_BITS 48
#define DLPI_READY_MASK ((UINT64_C(1) << DLPI_READY_BITS) - 1)
static inline bool dlpi_ready_is(uint64_t word, uint64_t b) {
    return ((word ^ (b + 1)) & DLPI_READY_MASK) == 0;
}
static inline uint64_t dlpi_ready_word(uint64_t word, uint64_t b) {
    return (word & ~DLPI_READY_MASK) | ((b + 1) & DLPI_READY_MASK);
}
/* Has batch b, or a later one in its slot, left the stage? */
static inline bool dlpi_ready_past(uint64_t word, uint64_t b) {
    return (word & DLPI_READY_MASK) > (b & DLPI_READY_MASK);
}
static inline uint32_t dlpi_word_full(uint32_t count, uint32_t word) {
    uint32_t rows = count - word * DLPI_WORD_ROWS;
    return rows >= DLPI_WORD_ROWS ? UINT32_MAX : (UINT32_C(1) << rows) - 1u;
}
/* Of a fetch worker's row in a callback (0), or of the i-th in flight; NULL: nothing. */
static inline void *dlpi_own_row(const dlp_pipe *p, const dlpi_worker *w, size_t i) {
    size_t each = 1 + (size_t)p->fetch->in_flight;
    if (p->own_rows == NULL || w->st->work != 0) return NULL;
    return p->own_rows + ((size_t)w->id * each + i) * p->source->row_bytes;
}

/* Which rows of a global batch are this rank's, whether epochs are over, an item's random
   numbers. */

/* The rows [*first, *first + what is returned) of n that are those of a rank. */
static uint32_t dlpi_rows_of_rank(uint64_t rank, uint64_t world, uint64_t n, uint64_t *first) {
    *first = rank * n / world;
    return (uint32_t)((rank + 1) * n / world - *first);
}

/* This rank's rows of a global batch of c rows: [first, first + count). */
static void dlpi_rank_rows(const dlp_pipe *p, uint64_t c, uint64_t *first, uint32_t *count) {
    *count = dlpi_rows_of_rank(p->rank, p->world, c, first);
}

static bool dlpi_epochs_over(const dlp_pipe *p, uint64_t epoch) {
    int64_t n = p->repeat ? p->repeat->repeat.epochs : 1;
    if (n == DLP_FOREVER) return false;
    return epoch >= (uint64_t)(n == 0 ? 1 : n);
}

DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_ITEM, item->seed, item->epoch);
    if (item->internal != NULL) /* also by threads of the callback's own */
        DLPI_STORE_RLX(&((dlpi_note *)item->internal)->drew, 1u);
    return dlpi_absorb(dlpi_absorb(h, item->position), salt);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-bells      SLEEP AND WAKE
   A sleeper: read word, set its bit (B1, sequentially consistent), look for work once more, sleep
   while word is unchanged. A waker: publish by a sequentially consistent store or swap, read mask
   (B1); take bits out, bump word, wake. Either the waker sees the bit or the sleeper sees the work.
   Every sleep ends after 100 ms and looks again. */

#define DLPI_SLEEP_NS UINT64_C(100000000)
#define DLPI_CPU_NOTE_NS UINT64_C(50000000)
#define DLPI_FULL_NS UINT64_C(20000000) /* a worker that has no room for work */

/* Wake at most n sleepers of a stage. Call after a sequentially consistent publication. */
static void dlpi_ring(dlpi_sbell *sb, uint32_t n_workers, uint32_t n) {
    for (uint32_t g = 0; g * 32u < n_workers && n > 0; g++) {
        dlpi_bell *bell = &sb->bell[g];
        uint32_t mask = DLPI_LOAD_SEQ(&bell->mask); /* B1 -> B1 */
        uint32_t bits = 0;
        while (mask != 0 && n > 0) {
            bits |= mask & (0u - mask);
            mask &= mask - 1u;
            n--;
        }
        if (bits == 0) continue;
        bits &= DLPI_AND_SEQ(&bell->mask, ~bits); /* B1: whoever takes a bit out wakes it */
        if (bits == 0) continue;
        DLPI_ADD_SEQ(&bell->word, 1u); /* B1 -> B1 */
        dlpi_futex_wake(&bell->word, __builtin_popcount(bits), bits, (int)sb->shared);
    }
}

static void dlpi_ring_worker(dlpi_sbell *sb, uint32_t worker) {
    dlpi_bell *bell = &sb->bell[worker / 32u];
    uint32_t bit = 1u << worker % 32u;
    if ((DLPI_LOAD_SEQ(&bell->mask) & bit) == 0) return;      /* B1 -> B1 */
    if ((DLPI_AND_SEQ(&bell->mask, ~bit) & bit) == 0) return; /* B1 */
    DLPI_ADD_SEQ(&bell->word, 1u);                            /* B1 -> B1 */
    dlpi_futex_wake(&bell->word, 1, bit, (int)sb->shared);
}

/* There is work on batch b for a stage of threads or processes: wake n of its workers or, where
   batches go to workers in turn, the one that may take it. */
static void dlpi_ring_batch(const dlp_pipe *p, const dlpi_stage *st, uint64_t b, uint32_t n) {
    dlpi_sbell *sb = &p->bells[st->work];
    if (st->w.dispatch == DLP_DISPATCH_BATCHES)
        dlpi_ring_worker(sb, (uint32_t)(b % (uint64_t)st->n_workers));
    else
        dlpi_ring(sb, (uint32_t)st->n_workers, n);
}

/* A waiter that is alone on its flag and word: the feeder thread. */
static void dlpi_ring_one(const dlpi_ctl *ctl, uint32_t *sleeps, uint32_t *word) {
    if (DLPI_LOAD_SEQ(sleeps) == 0) return;     /* B1 -> B1 */
    if (DLPI_XCHG_SEQ(sleeps, 0u) == 0) return; /* B1 */
    DLPI_ADD_SEQ(word, 1u);                     /* B1 -> B1 */
    dlpi_futex_wake(word, 1, UINT32_MAX, (int)ctl->shared);
}
static void dlpi_ring_feeder(dlpi_ctl *ctl) {
    dlpi_ring_one(ctl, &ctl->feeder_sleeps, &ctl->feeder_word);
}

/* Batch b became ready for the caller. Call after a sequentially consistent publication. */
static void dlpi_ring_caller(dlpi_ctl *ctl, uint64_t b) {
    uint64_t want = DLPI_LOAD_SEQ(&ctl->want); /* B1 -> B1 */
    if (DLPI_LIKELY(want == 0) || (want != UINT64_MAX && want != b + 1 && b != UINT64_MAX)) return;
    if (DLPI_XCHG_SEQ(&ctl->want, UINT64_C(0)) == 0) return; /* B1: one wake for a sleep */
    DLPI_ADD_SEQ(&ctl->caller_word, 1u);                     /* B1 -> B1 */
    dlpi_futex_wake(&ctl->caller_word, 1, UINT32_MAX, (int)ctl->shared);
}

/* What the source waits for may be there. After a sequentially consistent publication. */
static void dlpi_ring_scheduler(const dlp_pipe *p) {
    if (p->sampler->sampler.threaded)
        dlpi_ring_feeder(p->ctl);
    else
        dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* A batch became ready, or nothing will follow. After a sequentially consistent publication. */
static void dlpi_ring_share(dlpi_share *share) {
    if (share == NULL || DLPI_LOAD_SEQ(&share->sleepers) == 0) return; /* B1 -> B1 */
    DLPI_ADD_SEQ(&share->word, 1u);                                    /* B1 -> B1 */
    dlpi_futex_wake(&share->word, INT_MAX, UINT32_MAX, 1);
}

/* Wake workers from..to-1 that are parked: no bit says so. After a store of active. */
static void dlpi_ring_parked(dlpi_sbell *sb, uint32_t from, uint32_t to) {
    while (from < to) {
        dlpi_bell *bell = &sb->bell[from / 32u];
        uint32_t end = (from / 32u + 1) * 32u < to ? (from / 32u + 1) * 32u : to, bits = 0;
        for (; from < end; from++) bits |= 1u << from % 32u;
        DLPI_ADD_SEQ(&bell->word, 1u); /* B1 -> B1 */
        dlpi_futex_wake(&bell->word, 32, bits, (int)sb->shared);
    }
}

static void dlpi_ring_all(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        if (st->w.num_workers > 0) dlpi_ring(&p->bells[i], (uint32_t)st->n_workers, UINT32_MAX);
        if (st->tuned) dlpi_ring_parked(&p->bells[i], 0, (uint32_t)st->n_workers);
    }
    dlpi_ring_feeder(p->ctl);
    dlpi_ring_caller(p->ctl, UINT64_MAX);
    dlpi_ring_share(p->share);
}

static void dlpi_wake_word(uint32_t *word) {
    DLPI_ADD_SEQ(word, 1u); /* B1 -> B1 */
    dlpi_futex_wake(word, INT_MAX, UINT32_MAX, 1);
}

/* Wake everybody, whatever the masks say: a waker may have died between taking a sleeper's bit and
   waking it. */
static void dlpi_wake_all(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        for (int g = 0; st->w.num_workers > 0 && g * 32 < st->n_workers; g++)
            dlpi_wake_word(&p->bells[i].bell[g].word);
    }
    dlpi_wake_word(&p->ctl->feeder_word);
    dlpi_wake_word(&p->ctl->caller_word);
    if (p->share) dlpi_wake_word(&p->share->word);
}

/* Of one writer at a time, read by observers. */
static inline void dlpi_bump(uint64_t *counter, uint64_t n) {
    DLPI_STORE_RLX(counter, DLPI_LOAD_RLX(counter) + n); /* statistics */
}

/* How many workers of the stage may claim. */
static inline int dlpi_active(const dlp_pipe *p, const dlpi_stage *st) {
    return (int)DLPI_LOAD_SEQ(&p->bells[st->work].active); /* A1 <- A1 */
}

/* Is the worker above that number? In a mask or behind a claim it may still be for a moment. */
static inline bool dlpi_retired(const dlpi_worker *w) {
    return (uint32_t)w->id >= DLPI_LOAD_SEQ(&w->bell->active); /* A1 <- A1, behind B1 */
}

static inline bool dlpi_stopped(const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&p->ctl->stop) != 0; /* S1: a flag; what it guards is joined */
}

/* ---------------------------------------------------------------------------------------------
   >>impl-fail       FIRST CAUSES */

static void dlpi_copy_text(char *to, size_t size, const char *from) {
    size_t n = from ? strlen(from) : 0;
    if (n >= size) n = size - 1;
    if (n > 0) memcpy(to, from, n);
    to[n] = 0;
}

/* Fill an error record; returns code. */
__attribute__((format(printf, 4, 5))) static int dlpi_error_set(dlp_error *e, int code,
                                                                const char *field,
                                                                const char *format, ...) {
    va_list args;
    if (e == NULL) return code;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->worker = -1;
    dlpi_copy_text(e->field, sizeof e->field, field);
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return code;
}

/* The pipe's error, as seen by the caller's thread: the first one stays. */
static int dlpi_pipe_fail(dlp_pipe *p, const dlp_error *e) {
    if (p->err.code == 0) p->err = *e;
    return p->err.code;
}

/* An error that belongs to no batch (a worker's init, the sampler): kept in the region. who: the
   worker that writes it, DLPI_FEEDER, or DLPI_NOBODY for others that do not die alone. */
static void dlpi_ctl_fail(dlp_pipe *p, uint32_t who, const dlp_error *e) {
    uint32_t none = 0;
    if (DLPI_CAS_SEQ(&p->ctl->error_claim, &none, who + 1u)) { /* E1: the first one stays */
        p->ctl->error = *e;
        DLPI_STORE_SEQ(&p->ctl->error_ready, 1u); /* E1 -> E1 */
    } else if (who != DLPI_FEEDER) {
        DLPI_STORE_SEQ(&p->ctl->error_more, 1u); /* E1 -> E1 */
    }
    dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* Is the error to be told now? The feeder's comes behind the batches that were fed before (over:
   they are all delivered), unless somebody else has failed, too: then they may never come. */
static bool dlpi_error_due(const dlpi_ctl *ctl, bool over) {
    if (DLPI_LOAD_SEQ(&ctl->error_ready) == 0) return false;               /* E1 <- E1 */
    return over || DLPI_LOAD_RLX(&ctl->error_claim) != DLPI_FEEDER + 1u || /* E1: before ready */
           DLPI_LOAD_SEQ(&ctl->error_more) != 0;                           /* E1 <- E1 */
}

/* An error of one row or batch: next reports it when it reaches the batch. The first stays. Should
   its writer die half-way, dlpi_recover_errors ends it. */
static void dlpi_slot_fail(dlpi_bslot *s, uint32_t who, const dlp_error *e) {
    uint32_t none = 0;
    if (!DLPI_CAS_SEQ(&s->failed, &none, who + 2u)) return; /* F1: the first one stays */
    s->error = *e;
    DLPI_STORE_REL(&s->failed, 1u); /* F1 -> F1; ordered before ready by done */
}

/* An item, which e describes, was replaced or left out: for dlp_pipe_skips. The first one stays. */
static void dlpi_skip_put(dlpi_ctl *ctl, int stage, const dlp_error *e, int code,
                          uint64_t new_index) {
    uint64_t words[DLPI_SKIP_WORDS] = {0};
    uint64_t n = DLPI_ADD_SEQ(&ctl->skips, UINT64_C(1)); /* K1: a place in the ring of its own */
    dlpi_skip *k = &ctl->skip_ring[n % DLPI_SKIP_RING];
    dlpi_copy_text((char *)words, sizeof words, e->message);
    DLPI_STORE_RLX(&k->code, 0);
    DLPI_STORE_RLX(&k->epoch, e->epoch);
    DLPI_STORE_RLX(&k->position, e->position);
    DLPI_STORE_RLX(&k->index, e->index);
    DLPI_STORE_RLX(&k->new_index, new_index);
    DLPI_STORE_RLX(&k->errnum, e->errnum);
    DLPI_STORE_RLX(&k->stage, stage);
    DLPI_STORE_RLX(&k->worker, e->worker);
    for (size_t i = 0; i < DLPI_SKIP_WORDS; i++)
        DLPI_STORE_RLX(&ctl->skip_words[n % DLPI_SKIP_RING][i], words[i]); /* K1: before code */
    DLPI_STORE_REL(&k->code, code); /* K1 -> K1: 0 while it is written */
    if (n != 0) return;
    ctl->first_skip = *e;
    DLPI_STORE_REL(&ctl->first_ready, 1u); /* K3 -> K3 */
}

/* n more items failed, and may be replaced or left out if all that failed in any stage are no more
   than max; 0: no limit, but they count. */
static bool dlpi_failures_add(dlpi_ctl *ctl, uint64_t n, int64_t max) {
    uint64_t all = DLPI_ADD_SEQ(&ctl->failures, n) + n; /* K2 <-> K2 */
    return max == 0 || all <= (uint64_t)max;
}

/* What began it: behind the words of an item that was one too many. */
static void dlpi_error_first(const dlpi_ctl *ctl, dlp_error *e) {
    char own[120];
    if (DLPI_LOAD_ACQ(&ctl->first_ready) == 0) return; /* K3 <- K3 */
    dlpi_copy_text(own, sizeof own, e->message);
    snprintf(e->message, sizeof e->message,
             "%s; the first left out or replaced, item %" PRIu64 ": %.80s", own,
             ctl->first_skip.index, ctl->first_skip.message);
}

__attribute__((format(printf, 2, 3))) static void dlpi_warn(dlp_pipe *p, const char *format, ...) {
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (p->n_warnings < 8) memcpy(p->warnings[p->n_warnings++], text, sizeof text);
    if (p->d.log) p->d.log(p->d.log_user, text);
}

static void dlpi_note_write(dlpi_note *note, int errnum, const char *format, va_list args) {
    vsnprintf(note->message, sizeof((dlpi_wblock *)0)->message, format, args);
    *note->errnum = errnum;
    if (note->w != NULL) /* else a source is tried without a pipe */
        note->said = (uint32_t)DLPI_LOAD_RLX(&note->w->wb->running); /* X2, own */
}

/* What was said before was said of something else. */
static void dlpi_words_forget(dlpi_worker *w) {
    w->wb->message[0] = 0;
    w->wb->message_errno = 0;
    w->note.said = 0;
}

/* Nothing of a failure is left for the next one. */
static void dlpi_failure_forget(dlpi_worker *w) {
    dlpi_words_forget(w);
    w->bad_field = NULL;
    memset(w->length, 0, sizeof w->length);
}

/* Say in the library's words why what the worker has in hand fails. Returns code. */
__attribute__((format(printf, 3, 4))) static int dlpi_say(dlpi_worker *w, int code,
                                                          const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(w->wb->message, sizeof w->wb->message, format, args);
    va_end(args);
    w->wb->message_errno = 0;
    return code;
}

/* The code of the failure of a callback that returned rc, or 0. What follows decides by codes of
   the library's own (killed, past a deadline, over a budget), and a callback's number must never
   be taken for one of them: here, and nowhere else, numbers become codes. */
static int dlpi_returned(dlpi_worker *w, int rc) {
    w->returned = rc;
    return rc == 0 ? 0 : DLP_ERR_CALLBACK;
}

/* The same of a fetch, an item map or a load, which may return more than 0 and failure. */
static int dlpi_item_returned(dlpi_worker *w, int rc) {
    bool may = rc == DLP_SKIP || rc == DLP_ERR_LENGTH ||
               (rc == DLP_END && w->p->open_end && w->st == w->p->fetch);
    int code = dlpi_returned(w, rc);
    return may ? rc : code;
}

/* Describe a failed callback of worker w. */
static void dlpi_describe(const dlpi_worker *w, int code, dlp_error *e) {
    const char *name = dlp_code_name(w->returned);
    bool known = strncmp(name, "DLP_", 4) == 0;
    memset(e, 0, sizeof *e);
    e->code = code < 0 ? code : DLP_ERR_CALLBACK;
    if (DLPI_DEBUG && code == DLPI_OVERRUN) e->code = DLP_ERR_CORRUPT;
    e->worker = w->id;
    e->errnum = w->wb->message_errno;
    dlpi_copy_text(e->stage, sizeof e->stage, w->st->name);
    dlpi_copy_text(e->field, sizeof e->field, w->bad_field);
    if (w->wb->message[0])
        dlpi_copy_text(e->message, sizeof e->message, w->wb->message);
    else
        snprintf(e->message, sizeof e->message, "the callback returned %d%s%s%s", w->returned,
                 known ? " (" : "", known ? name : "", known ? ")" : "");
}

static void dlpi_describe_item(const dlpi_worker *w, const dlp_item *it, int code, dlp_error *e) {
    dlpi_describe(w, code, e);
    e->has_item = 1;
    e->index = it->index;
    e->epoch = it->epoch;
    e->position = it->position;
}

/* ---- what a desc may say ---- */

/* Refuse what the caller asked for: the pipe's error, unless it has one. Returns the code of that
   which it has then. */
__attribute__((format(printf, 5, 6))) static int dlpi_refuse(dlp_pipe *p, int code,
                                                             const char *stage, const char *field,
                                                             const char *format, ...) {
    dlp_error e;
    va_list args;
    dlpi_error_set(&e, code, field, "%s", "");
    va_start(args, format);
    vsnprintf(e.message, sizeof e.message, format, args);
    va_end(args);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    return dlpi_pipe_fail(p, &e);
}

static int dlpi_no_memory(dlp_pipe *p, const char *field, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_MEMORY, field, "malloc of %s failed", what);
    e.errnum = ENOMEM;
    return dlpi_pipe_fail(p, &e);
}

static int dlpi_bad(dlp_pipe *p, const char *stage, const char *field, const char *words,
                    int64_t got) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is %" PRId64 ", must be %s", field, got,
                       words);
}

static int dlpi_bad_graph(dlp_pipe *p, const char *stage, const char *what) {
    return dlpi_refuse(p, DLP_ERR_GRAPH, stage, "", "%s", what);
}

/* The same of field i, called name: err.field is "fields[].what", the message tells which of them
   it is, and which dimension. */
__attribute__((format(printf, 6, 7))) static int dlpi_bad_field(dlp_pipe *p, const char *stage,
                                                                uint32_t i, const char *name,
                                                                const char *what,
                                                                const char *format, ...) {
    char field[48], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(field, sizeof field, "fields[].%s", what);
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "fields[%" PRIu32 "] \"%.31s\": %s", i,
                       name ? name : "", text);
}

#define DLPI_CELL_MAX (UINT64_C(1) << 46) /* bytes, and elements, of anything */

/* A number of a desc, and what it may be: a row of a desc's table. */
typedef struct dlpi_bound {
    const char *field; /* as errors name it */
    size_t offset;
    int type; /* DLPI_I32 .. */
    int64_t low, high;
    const char *words; /* the same in words */
} dlpi_bound;

/* DLPI_IN: offset and type of a member; DLPI_AT: its name before them. */
enum { DLPI_I32 = 0, DLPI_U32, DLPI_I64 };
#define DLPI_TYPE(at) _Generic(at, int32_t * : DLPI_I32, uint32_t * : DLPI_U32, default : DLPI_I64)
#define DLPI_IN(desc, member) offsetof(desc, member), DLPI_TYPE(&((desc *)0)->member)
#define DLPI_AT(desc, member) #member, DLPI_IN(desc, member)
#define DLPI_ROWS(table) table, sizeof table / sizeof *table

static int64_t dlpi_bound_got(const dlpi_bound *b, const void *desc) {
    const uint8_t *at = (const uint8_t *)desc + b->offset;
    int64_t wide; /* of a uint64_t, too: from 2^63 on it is below every bound */
    int32_t narrow;
    memcpy(&narrow, at, sizeof narrow);
    if (b->type == DLPI_I32) return narrow;
    if (b->type == DLPI_U32) return (uint32_t)narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* The first of n rows that does not hold, or NULL. */
static const dlpi_bound *dlpi_out_of_bounds(const void *desc, const dlpi_bound *b, size_t n) {
    for (; n > 0; n--, b++) {
        int64_t got = dlpi_bound_got(b, desc);
        if (got < b->low || got > b->high) return b;
    }
    return NULL;
}

static int dlpi_check_bounds(dlp_pipe *p, const char *stage, const void *desc,
                             const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(desc, bounds, n);
    return b ? dlpi_bad(p, stage, b->field, b->words, dlpi_bound_got(b, desc)) : DLP_OK;
}

/* The same of field i. */
static int dlpi_check_field(dlp_pipe *p, const char *stage, uint32_t i, const dlp_field *f,
                            const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(f, bounds, n);
    if (b == NULL) return DLP_OK;
    return dlpi_bad_field(p, stage, i, f->name, b->field, "%s is %" PRId64 ", must be %s", b->field,
                          dlpi_bound_got(b, f), b->words);
}

/* A number whose bounds follow from others. */
static int dlpi_within(dlp_pipe *p, const char *stage, const char *field, int64_t got, int64_t low,
                       int64_t high, const char *words) {
    return got < low || got > high ? dlpi_bad(p, stage, field, words, got) : DLP_OK;
}

/* ---- workers, of each stage that has them ---- */

static int dlpi_check_affinity(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_workers_desc *w = &st->w;
    int rc = DLP_OK;
    if (w->n_affinity > 0 && w->affinity == NULL)
        return dlpi_bad(p, st->name, "affinity", "n_affinity CPU numbers", 0);
    for (int i = 0; i < w->n_affinity && rc == DLP_OK; i++)
        rc = dlpi_within(p, st->name, "affinity", w->affinity[i], 0, 1023, "CPU numbers 0..1023");
    return rc;
}

static int dlpi_check_workers(dlp_pipe *p, const dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, num_workers), 0, DLP_MAX_WORKERS, "0..1024"},
        {DLPI_AT(dlp_workers_desc, placement), 0, DLP_PLACE_PROCESSES,
         "DLP_PLACE_THREADS or DLP_PLACE_PROCESSES"},
        {DLPI_AT(dlp_workers_desc, dispatch), 0, DLP_DISPATCH_BATCHES,
         "DLP_DISPATCH_CLAIM or DLP_DISPATCH_BATCHES"},
        {DLPI_AT(dlp_workers_desc, on_error), 0, DLP_ON_ERROR_SHORT, "DLP_ON_ERROR_*"},
        {DLPI_AT(dlp_workers_desc, retries), 0, 100, "0..100"},
        {DLPI_AT(dlp_workers_desc, retry_backoff_ms), 0, 3600000, "0..3600000"},
        {DLPI_AT(dlp_workers_desc, max_skips), DLP_NONE, INT64_MAX, "DLP_NONE, or 0 and more"},
        {DLPI_AT(dlp_workers_desc, deadline_ms), 0, INT32_MAX, "0 and more"},
        {DLPI_AT(dlp_workers_desc, n_affinity), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_workers_desc, idempotent), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_workers_desc, stack_bytes), 0, UINT32_MAX, "under 4 GiB"},
    };
    int rc = dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(bounds));
    if (rc != DLP_OK || (rc = dlpi_check_affinity(p, st)) != DLP_OK) return rc;
    if (st->w.dispatch != DLP_DISPATCH_CLAIM && st->w.dispatch != DLP_DISPATCH_BATCHES)
        return dlpi_bad(p, st->name, "dispatch", "DLP_DISPATCH_CLAIM or DLP_DISPATCH_BATCHES",
                        st->w.dispatch);
    if (st->w.placement != DLP_PLACE_PROCESSES || dlpi_shm != NULL) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, st->name, "placement",
                       "DLP_PLACE_PROCESSES needs dlpipe_shm.h, included in the file that has "
                       "DLPIPE_IMPLEMENTATION");
}

/* The same of a stage of whole batches. */
static int dlpi_check_batch_workers(dlp_pipe *p, const dlpi_stage *st) {
    int rc = dlpi_within(p, st->name, "on_error", st->w.on_error, 0, 0,
                         "DLP_ON_ERROR_RAISE for a stage of whole batches");
    return rc != DLP_OK ? rc : dlpi_check_workers(p, st);
}

/* Rank and world_size of a desc, and the rows of a batch that they share. */
static int dlpi_check_ranks(dlp_pipe *p, const dlpi_stage *st, uint32_t rank, uint64_t world,
                            uint64_t batch_size, bool uneven) {
    int rc = dlpi_within(p, st->name, "rank", rank, 0, world ? (int64_t)world - 1 : 0,
                         "0..world_size - 1");
    if (rc != DLP_OK || world == 0 || uneven || batch_size % world == 0) return rc;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "world_size",
                       "batch_size %" PRIu64 " can't be divided by world_size %" PRIu64
                       "; set allow_uneven for ranks of different counts",
                       batch_size, world);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-debug      WRITES PAST A ROW, USES AFTER RELEASE
   With DLPIPE_DEBUG only: else the compiler drops all of it, and cells have no room for it.
   A cell is [from, to) and has its fields (spans) apart; what lies between them and around them is
   painted, and a byte that is found changed says which callback went past which end of a field, and
   how far. Cells of the region lie where they always do and are painted once. Rows are neighbours,
   so item callbacks write into guarded cells instead: one for each that can be in a callback at
   once, behind the batch cells. The row is copied in, its alignment with it, the cell is painted,
   and behind the callback the row is copied out. A chunk is a row that fills a cell of its own, and
   stays there.
   What release takes back is overwritten, and poisoned under the address sanitizer. It stays so
   until somebody begins with the slot's next batch, each process for itself: shadow memory is its
   own. Label U3: dlpi_poisoned, by the caller at release, and by who has unpoisoned all of it. */

#define DLPI_POISON 0xdb

typedef struct dlpi_span {
    uint8_t *at;
    uint64_t bytes;
    const char *name; /* of the field, NULL: there is but one */
} dlpi_span;

typedef struct dlpi_guarded {
    uint8_t *from, *to;
    uint32_t n;
    dlpi_span span[DLP_MAX_FIELDS];
} dlpi_guarded;

/* No two bytes of a run of 64 are alike. By address, which pages have alike in all processes. */
static const uint8_t dlpi_paint_bytes[64] = {
    0xa7, 0xf2, 0x9d, 0xc8, 0xb3, 0xee, 0x99, 0xd4, 0xaf, 0xfa, 0x85, 0xd0, 0xbb, 0xe6, 0x91, 0xdc,
    0xa5, 0xf0, 0x9b, 0xc6, 0xb1, 0xec, 0x97, 0xd2, 0xad, 0xf8, 0x83, 0xce, 0xb9, 0xe4, 0x8f, 0xda,
    0xa3, 0xfe, 0x89, 0xc4, 0xbf, 0xea, 0x95, 0xc0, 0xab, 0xf6, 0x81, 0xcc, 0xb7, 0xe2, 0x8d, 0xd8,
    0xa1, 0xfc, 0x87, 0xc2, 0xbd, 0xe8, 0x93, 0xde, 0xa9, 0xf4, 0x9f, 0xca, 0xb5, 0xe0, 0x8b, 0xd6};

static void dlpi_paint(uint8_t *at, const uint8_t *to) {
    while (at < to) {
        size_t k = (uintptr_t)at % 64, n = 64 - k < (size_t)(to - at) ? 64 - k : (size_t)(to - at);
        memcpy(at, dlpi_paint_bytes + k, n);
        at += n;
    }
}

/* The first byte of [at, to) that is not as it was painted; to: none. */
static uint8_t *dlpi_paint_first(uint8_t *at, uint8_t *to) {
    while (at < to) {
        size_t k = (uintptr_t)at % 64, n = 64 - k < (size_t)(to - at) ? 64 - k : (size_t)(to - at);
        if (memcmp(at, dlpi_paint_bytes + k, n) != 0) break;
        at += n;
    }
    while (at < to && *at == dlpi_paint_bytes[(uintptr_t)at % 64]) at++;
    return at;
}

/* What lies before span i, or behind the last. */
static uint8_t *dlpi_gap(const dlpi_guarded *c, uint32_t i, uint8_t **to) {
    *to = i < c->n ? c->span[i].at : c->to;
    return i > 0 ? c->span[i - 1].at + c->span[i - 1].bytes : c->from;
}

static void dlpi_guarded_paint(const dlpi_guarded *c) {
    for (uint32_t i = 0; i <= c->n; i++) {
        uint8_t *to, *from = dlpi_gap(c, i, &to);
        dlpi_paint(from, to);
    }
}

/* A callback of worker w that had cell c has returned rc: did it keep to the fields? what, number:
   whose they are. Returns rc, or DLPI_OVERRUN with the message. */
static int dlpi_guarded_check(dlpi_worker *w, const dlpi_note *note, const dlpi_guarded *c,
                              const char *what, uint64_t number, int rc) {
    for (uint32_t i = 0; i <= c->n; i++) {
        uint8_t *to, *from = dlpi_gap(c, i, &to), *first = dlpi_paint_first(from, to), *last = to;
        const dlpi_span *s;
        bool before;
        uint64_t n;
        if (first == to) continue;
        while (last[-1] == dlpi_paint_bytes[(uintptr_t)(last - 1) % 64]) last--;
        before = i == 0 || (i < c->n && first - from > to - last); /* the end that is nearer */
        s = &c->span[before ? i : i - 1];
        n = (uint64_t)(before ? to - first : last - from);
        snprintf(note->message, sizeof w->wb->message,
                 "%s wrote %" PRIu64 " byte%s %s %s%s%s of %s %" PRIu64, w->st->name, n,
                 n == 1 ? "" : "s", before ? "before" : "past", s->name ? "field \"" : "the bytes",
                 s->name ? s->name : "", s->name ? "\"" : "", what, number);
        *note->errnum = 0;
        w->bad_field = s->name;
        dlpi_guarded_paint(c); /* others that have it later are not to blame */
        return DLPI_OVERRUN;
    }
    return rc;
}

/* A failure that is not tried again. */
static inline bool dlpi_never_again(int rc) {
    return rc == DLP_ERR_KILLED || (DLPI_DEBUG && rc == DLPI_OVERRUN);
}
static inline bool dlpi_never_skipped(int code) { return DLPI_DEBUG && code == DLP_ERR_CORRUPT; }

/* Fields as they lie in a cell of one of the region's areas. */
static void dlpi_guarded_cell(const dlp_pipe *p, int area, uint8_t *cell, dlpi_guarded *c) {
    const dlpi_fields *fs = area == DLPI_REC_CELLS ? &p->batches : &p->items;
    c->from = cell;
    c->to = cell + p->areas[area].stride;
    c->n = fs->n;
    for (uint32_t f = 0; f < fs->n; f++)
        c->span[f] = (dlpi_span){cell + fs->at[f].offset, fs->at[f].capacity, fs->at[f].name};
}

static void dlpi_guards_paint(dlp_pipe *p) {
    dlpi_guarded c;
    if (!DLPI_DEBUG) return;
    for (int area = DLPI_REC_CELLS; area <= DLPI_REC_ITEM_CELLS; area++)
        for (uint64_t i = 0; i < p->areas[area].count; i++) {
            dlpi_guarded_cell(p, area, dlpi_area_at(p, area, i), &c);
            dlpi_guarded_paint(&c);
        }
}

/* A collate, or a batch map, has returned rc. */
static inline int dlpi_guard_batch(dlpi_worker *w, uint32_t s, int rc) {
    const dlp_pipe *p;
    uint64_t batch;
    dlpi_guarded c;
    if (!DLPI_DEBUG) return rc;
    p = w->p;
    batch = dlpi_slot_at(p, s)->sequence;
    dlpi_guarded_cell(p, DLPI_REC_CELLS, dlpi_batch_cell(p, s), &c);
    rc = dlpi_guarded_check(w, &w->note, &c, "batch", batch, rc);
    if (w->st->collate == NULL || rc == DLPI_OVERRUN) return rc;
    dlpi_guarded_cell(p, DLPI_REC_ITEM_CELLS, dlpi_item_cell(p, s), &c);
    return dlpi_guarded_check(w, &w->note, &c, "items of batch", batch, rc);
}

/* ---- guarded cells ---- */

/* How many items of one fetch worker can be in a callback. */
static uint64_t dlpi_guard_each(const dlp_pipe *p) {
    return p->fetch->in_flight > 0 ? (uint64_t)p->fetch->in_flight : 1;
}

static uint64_t dlpi_guard_cells(const dlp_pipe *p) {
    uint64_t n = 0;
    for (int i = 0; DLPI_DEBUG && i < p->n_item_work && p->lender == NULL; i++)
        n += (uint64_t)p->work[i]->n_workers * (i == 0 ? dlpi_guard_each(p) : 1);
    return n;
}

/* Where field f lies in a guarded cell, but for up to 63 bytes; n fields: the cell's bytes. */
static uint64_t dlpi_guard_at(const dlp_pipe *p, uint32_t f) {
    uint64_t at = DLPI_GUARD;
    for (uint32_t i = 0; i < f; i++)
        at = (at + 63 + p->items.at[i].row_bytes + 2 * DLPI_GUARD + 63) & ~UINT64_C(63);
    return at;
}

static uint64_t dlpi_guard_stride(const dlp_pipe *p) {
    if (!DLPI_DEBUG) return 0;
    return (dlpi_guard_at(p, p->items.n) + DLPI_LINE - 1) / DLPI_LINE * DLPI_LINE;
}

/* The number of the cell that worker w has for its i-th attempt. */
static uint64_t dlpi_guard_cell(const dlpi_worker *w, uint64_t i) {
    const dlp_pipe *p = w->p;
    uint64_t first = (uint64_t)p->fetch->n_workers * dlpi_guard_each(p);
    if (w->st->work == 0) return (uint64_t)w->id * dlpi_guard_each(p) + i;
    return first + (uint64_t)(w->global - p->fetch->n_workers);
}

/* A guarded cell for a row of slot s. */
static void dlpi_guarded_row(const dlp_pipe *p, uint64_t cell, uint32_t s, uint32_t row,
                             dlpi_guarded *c, uint8_t **rows) {
    c->from = dlpi_area_at(p, DLPI_AREA_GUARD, cell);
    c->to = c->from + p->areas[DLPI_AREA_GUARD].stride;
    c->n = p->items.n;
    for (uint32_t f = 0; f < c->n; f++) {
        const dlpi_field *d = &p->items.at[f];
        rows[f] = dlpi_item_cell(p, s) + d->offset + row * d->row_bytes;
        c->span[f].at = c->from + dlpi_guard_at(p, f) + ((uintptr_t)rows[f] & 63);
        c->span[f].bytes = d->row_bytes;
        c->span[f].name = d->name;
    }
}

/* A callback is about to have the item, a row of slot s: in this cell. */
static inline void dlpi_guard_in(const dlpi_worker *w, dlp_item *it, uint64_t cell, uint32_t s,
                                 uint32_t row) {
    dlpi_guarded c;
    uint8_t *rows[DLP_MAX_FIELDS];
    if (!DLPI_DEBUG || w->p->lender) return;
    dlpi_guarded_row(w->p, cell, s, row, &c, rows);
    dlpi_guarded_paint(&c);
    for (uint32_t f = 0; f < c.n; f++) {
        memcpy(c.span[f].at, rows[f], c.span[f].bytes);
        it->data[f] = c.span[f].at;
    }
}

/* It returned rc. The row has what it wrote, and the item's data is the row again. */
static inline int dlpi_guard_out(dlpi_worker *w, dlp_item *it, uint64_t cell, uint32_t s,
                                 uint32_t row, int rc) {
    const dlp_pipe *p;
    dlpi_guarded c;
    uint8_t *rows[DLP_MAX_FIELDS];
    if (!DLPI_DEBUG) return rc;
    p = w->p;
    if (p->lender) {
        dlpi_guarded_cell(p, DLPI_REC_CELLS, dlpi_batch_cell(p, s), &c);
        return dlpi_guarded_check(w, it->internal, &c, "chunk", it->index, rc);
    }
    dlpi_guarded_row(p, cell, s, row, &c, rows);
    for (uint32_t f = 0; f < c.n; f++) {
        memcpy(rows[f], c.span[f].at, c.span[f].bytes);
        it->data[f] = rows[f];
    }
    return dlpi_guarded_check(w, it->internal, &c, "item", it->index, rc);
}

/* ---- what was released ---- */

static inline uint8_t *dlpi_poisoned(const dlp_pipe *p, uint32_t s) {
    return &p->held[p->n_out + s];
}

static void dlpi_poison_bytes(void *at, uint64_t bytes) {
    memset(at, DLPI_POISON, (size_t)bytes);
#if DLPI_ASAN
    __asan_poison_memory_region(at, (size_t)bytes);
#endif
}

static void dlpi_unpoison_bytes(void *at, uint64_t bytes) {
#if DLPI_ASAN
    __asan_unpoison_memory_region(at, (size_t)bytes);
#else
    DLPI_UNUSED(at);
    DLPI_UNUSED(bytes);
#endif
}

/* The caller has given back batch, or view, s: nobody else may read it. */
static inline void dlpi_poison(const dlp_pipe *p, uint32_t s) {
    if (!DLPI_DEBUG || p->cells != DLPI_CELLS_OWN || p->sink || p->share) return;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlp_tensor *t = &p->out_fields[(size_t)s * p->batches.n + f];
        dlpi_poison_bytes(t->data, p->lender ? t->bytes : p->batches.at[f].capacity);
    }
    if (p->lender) s = p->lender->ops->lender->slot(p, s);
    DLPI_STORE_REL(dlpi_poisoned(p, s), (uint8_t)1); /* U3 -> U3 */
}

/* Somebody begins with a batch in slot s. */
static inline void dlpi_unpoison(const dlp_pipe *p, uint32_t s) {
    if (!DLPI_DEBUG || DLPI_LOAD_ACQ(dlpi_poisoned(p, s)) == 0) return; /* U3 <- U3 */
    dlpi_unpoison_bytes(dlpi_batch_cell(p, s), p->areas[DLPI_REC_CELLS].stride);
    DLPI_STORE_REL(dlpi_poisoned(p, s), (uint8_t)0); /* U3 -> U3 */
}

/* The region's addresses will be others'. */
static inline void dlpi_unpoison_all(const dlp_pipe *p) {
    if (!DLPI_DEBUG || p->region == NULL) return;
    dlpi_unpoison_bytes(dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
}

/* ---- fields: checked, copied, laid out in a cell ---- */

static uint64_t dlpi_dtype_bytes(dlp_dtype t) {
    uint32_t bits = t & 0xffffu, code = t >> 16;
    if (code > 6 || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) return 0;
    return bits / 8;
}

/* Field i, of which d has a copy. */
static int dlpi_field_check(dlp_pipe *p, const char *stage, const dlpi_field *d, uint32_t i) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_field, ndim), 0, DLP_MAX_DIMS - 1, "0..7"},
        {DLPI_AT(dlp_field, ragged), 0, 1, "0, or 1 with ndim of at least 1"},
        {DLPI_AT(dlp_field, max_per_batch), 0, (int64_t)DLPI_CELL_MAX, "0 and more"},
    };
    const dlp_field *f = &d->f;
    int rc;
    if (d->elem_bytes == 0)
        return dlpi_bad_field(p, stage, i, f->name, "dtype",
                              "dtype is %#" PRIx32 ", must be a DLP_DTYPE of 8, 16, 32 or 64 bits",
                              f->dtype);
    if ((rc = dlpi_check_field(p, stage, i, f, DLPI_ROWS(bounds))) != DLP_OK) return rc;
    if (f->ndim > 0) return DLP_OK;
    if (f->ragged)
        return dlpi_bad_field(p, stage, i, f->name, "ragged",
                              "ragged is 1, must be 0, or 1 with ndim of at least 1");
    if (f->shape[0] > 1)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "ndim is 0, which is one element, but shape[0] is %" PRId64
                              ": set ndim, or no shape",
                              f->shape[0]);
    return DLP_OK;
}

/* How large an item is in field i, and a batch of so many rows. */
static int dlpi_field_measure(dlp_pipe *p, const char *stage, dlpi_field *d, uint32_t i,
                              uint64_t rows) {
    const dlp_field *f = &d->f;
    uint64_t n = 1;
    for (int k = 0; k < f->ndim; k++) {
        if (f->shape[k] < 1)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "shape[%d] is %" PRId64 ", must be 1 and more", k, f->shape[k]);
        if ((uint64_t)f->shape[k] > DLPI_CELL_MAX / n)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "with shape[%d], which is %" PRId64
                                  ", an item has more than 2^46 elements",
                                  k, f->shape[k]);
        n *= (uint64_t)f->shape[k];
    }
    d->row_bytes = n * d->elem_bytes;
    if (d->row_bytes > DLPI_CELL_MAX / rows)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "%" PRIu64 " items of %" PRIu64
                              " bytes are more than 2^46 in a batch",
                              rows, d->row_bytes);
    d->capacity = d->row_bytes * rows;
    return DLP_OK;
}

/* Copy and measure field i. rows: of a batch. */
static int dlpi_field_init(dlp_pipe *p, const char *stage, dlpi_field *d, const dlp_field *f,
                           uint32_t i, uint64_t rows, bool pooled) {
    int rc;
    memset(d, 0, sizeof *d);
    d->f = *f;
    dlpi_copy_text(d->name, sizeof d->name, f->name);
    d->f.name = d->name;
    if (d->f.dtype == 0) d->f.dtype = DLP_U8;
    d->elem_bytes = dlpi_dtype_bytes(d->f.dtype);
    if ((rc = dlpi_field_check(p, stage, d, i)) != DLP_OK) return rc;
    if ((rc = dlpi_field_measure(p, stage, d, i, rows)) != DLP_OK) return rc;
    if (pooled && f->ragged && f->max_per_batch > 0) {
        uint64_t unit = d->row_bytes / (uint64_t)f->shape[0];
        if ((uint64_t)f->max_per_batch <= DLPI_CELL_MAX / unit &&
            (uint64_t)f->max_per_batch * unit < d->capacity)
            d->capacity = (uint64_t)f->max_per_batch * unit;
    }
    return DLP_OK;
}

/* The names of a stage's fields are the user's until here. */
static int dlpi_keep_names(dlp_pipe *p, dlpi_stage *st, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const char *name = st->fields[i].name;
        if (name == NULL || name[0] == 0 || strlen(name) >= sizeof st->field_names[i])
            return dlpi_bad_field(p, st->name, i, name, "name",
                                  "name has %zu bytes, must have 1 to 31",
                                  name ? strlen(name) : (size_t)0);
        dlpi_copy_text(st->field_names[i], sizeof st->field_names[i], name);
        st->fields[i].name = st->field_names[i];
        if (st->fields[i].dtype == 0)
            dlpi_warn(p, "%s: fields[%" PRIu32 "] \"%s\" has no dtype: bytes (DLP_U8) are taken",
                      st->name, i, name);
    }
    return DLP_OK;
}

/* Lay fields out in a cell, each 64-byte aligned. */
static int dlpi_fields_init(dlp_pipe *p, const char *stage, dlpi_fields *fs, const dlp_field *f,
                            uint32_t n, bool pooled) {
    uint64_t at = DLPI_GUARD;
    memset(fs, 0, sizeof *fs);
    fs->n = n;
    for (uint32_t i = 0; i < n; i++) {
        int rc = dlpi_field_init(p, stage, &fs->at[i], &f[i], i, p->batch_rows, pooled);
        if (rc != DLP_OK) return rc;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(fs->at[i].name, fs->at[j].name) == 0)
                return dlpi_bad_field(p, stage, i, fs->at[i].name, "name",
                                      "name is that of fields[%" PRIu32 "] already", j);
        fs->any_ragged |= f[i].ragged != 0;
        fs->at[i].offset = at;
        at = dlpi_round_up(dlpi_sum(at, dlpi_sum(fs->at[i].capacity, 2 * DLPI_GUARD)), 64);
        fs->cell_bytes = dlpi_sum(fs->cell_bytes, fs->at[i].row_bytes);
    }
    return DLP_OK;
}

static uint64_t dlpi_fields_bytes(const dlpi_fields *fs) {
    const dlpi_field *last = &fs->at[fs->n - 1];
    return dlpi_round_up(dlpi_sum(last->offset, dlpi_sum(last->capacity, DLPI_GUARD)), 4096);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-wanted     BATCHES THAT NOBODY WANTS ANY MORE
   The caller may leave an epoch (dlp_pipe_next_epoch, the end of a stream) or its place
   (dlp_pipe_seek) while batches of it are under way. Each batch has a mark: the seeks before it was
   fed (its life, 16 bits) above its epoch (48 bits). ctl.cancel is the least mark that is wanted,
   and only the caller moves it, up, by one store: by an epoch, or to the next life's epoch 0.
   Workers compare before each row, whoever passes batches on before each batch, and next drops
   what comes to it below the mark: so a batch may be half done, or fed after the store, and does no
   harm. Lives wrap: 2^14 seeks at most come between two batches that are delivered.

   N1: the store carries nothing for those who compare. What a seek has for the feeder (where to go
   on) lies behind dlpi_place_lock, held for a copy only; the feeder looks for it when ctl.cancel
   has another life than its own, and feeds for the old one until then. That no batch will follow
   (ctl.fed_all) is likewise said for one life.

   Where the end is open (a stream), it is the first row of the epoch whose record says so
   (DLPI_ROW_END). That is one more fate of a row, written before the row is done: so when a batch
   is closed, its end is known, to whoever looks and as often as he looks, after a death as well.
   Rows of a batch up to its end are counted where they are needed; the batch's words keep the rows
   that it was fed with. What failed after the end has not happened. */

static inline uint64_t dlpi_mark(uint64_t life, uint64_t epoch) {
    return (life << 48) + epoch; /* epochs are below DLPI_MAX_EPOCH */
}
static inline uint32_t dlpi_mark_life(uint64_t mark) { return (uint32_t)(mark >> 48); }

static inline bool dlpi_mark_wanted(const dlpi_ctl *ctl, uint64_t mark) {
    return (int64_t)(mark - DLPI_LOAD_RLX(&ctl->cancel)) >= 0; /* N1 */
}
static inline uint64_t dlpi_slot_mark(const dlpi_bslot *slot) {
    return dlpi_mark(slot->life, slot->epoch);
}
static inline bool dlpi_wanted(const dlpi_ctl *ctl, const dlpi_bslot *slot) {
    return dlpi_mark_wanted(ctl, dlpi_slot_mark(slot));
}

/* Rows of the batch in slot s before the epoch's end, where a row finds it. */
static uint32_t dlpi_rows_before_end(const dlp_pipe *p, uint32_t s) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    uint32_t n = dlpi_slot_at(p, s)->count, r = 0;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return n;
    while (r < n && dlpi_rec_state(rec[r]) != DLPI_ROW_END) r++;
    return r;
}

/* Did a row of this batch find the end? */
static inline bool dlpi_slot_ended(const dlp_pipe *p, uint32_t s) {
    return p->open_end && dlpi_rows_before_end(p, s) < dlpi_slot_at(p, s)->count;
}

/* Rows that a batch whose items are done has for those behind. */
static uint32_t dlpi_slot_rows(const dlp_pipe *p, uint32_t s) {
    uint32_t n = dlpi_rows_before_end(p, s);
    return p->last == DLP_LAST_DROP && n < dlpi_slot_at(p, s)->count ? 0 : n;
}

/* The first row of those that will be delivered whose failure is raised; their number: none. */
static uint32_t dlpi_row_raised(const dlp_pipe *p, uint32_t s) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    uint32_t n = dlpi_slot_rows(p, s), r = 0;
    while (r < n && (rec[r] & DLPI_REC_RAISED) == 0) r++;
    return r;
}

/* Is the error of slot s that of a row after the epoch's end, or of one that is dropped? */
static bool dlpi_error_behind(const dlp_pipe *p, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    return dlpi_slot_ended(p, s) && slot->error.has_item &&
           slot->error.position >= slot->position + dlpi_slot_rows(p, s);
}

/* Has the batch in slot s, whose items are done, failed? */
static bool dlpi_slot_failed(const dlp_pipe *p, uint32_t s) {
    if (DLPI_LIKELY(DLPI_LOAD_ACQ(&dlpi_slot_at(p, s)->failed) == 0)) return false; /* F1 <- F1 */
    return !dlpi_error_behind(p, s) || dlpi_row_raised(p, s) < dlpi_slot_rows(p, s);
}

/* Its error. Of several rows the first to fail has written the record: if that one lay behind the
   end, the others' words are lost. */
static void dlpi_slot_error(const dlp_pipe *p, uint32_t s, dlp_error *e) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t r = dlpi_row_raised(p, s);
    *e = slot->error;
    if (!dlpi_error_behind(p, s)) return;
    dlpi_error_set(e, DLP_ERR_CALLBACK, "",
                   "the item failed; its words were lost to those of an "
                   "item behind the stream's end");
    dlpi_copy_text(e->stage, sizeof e->stage, slot->error.stage);
    e->has_item = 1;
    e->index = dlpi_slot_index(p, s)[r];
    e->epoch = slot->epoch;
    e->position = slot->position + r;
}

/* Has nobody behind the items anything to do with this batch? */
static bool dlpi_slot_idle(const dlp_pipe *p, uint32_t s) {
    return !dlpi_wanted(p->ctl, dlpi_slot_at(p, s)) || dlpi_slot_failed(p, s) ||
           (dlpi_slot_ended(p, s) && dlpi_slot_rows(p, s) == 0);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-seen       WHAT OBSERVERS SEE
   Statistics, traces and words are made of a dlpi_seen alone. It is filled from a live pipe, whose
   memory it points into (dlpi_seen_pipe), or from a checked copy of a region (dlpipe_shm.h): so the
   same functions speak of both. The figures that only some kinds of stages have are counted by
   those kinds, out of words of the region, which are read in place or through a file. */

typedef struct dlpi_seen_stage {
    char name[32];
    int32_t kind, work;              /* work: place among the stages with workers, -1: none */
    int32_t first_worker, n_workers; /* n_workers counts an inline one */
    int32_t workers;                 /* 0: inline */
    int32_t workers_min, active;     /* workers_min 0: not tuned; active: may work now */
    int32_t in_flight;
    bool process;                                    /* its workers are processes */
    const dlpi_stage_ops *ops;                       /* NULL: of a kind that is not known here */
    uint64_t ready_at;                               /* in a slot */
    int (*tell)(void *user, char *buf, size_t size); /* or NULL */
    void *tell_user;
} dlpi_seen_stage;

struct dlpi_seen {
    uint64_t now_ns;
    const dlpi_ctl *ctl;
    const uint64_t *delivered; /* batches, as the caller counts them */
    const uint32_t *order;     /* [ring] slots of the batches */
    const uint8_t *taken;      /* [ring] */
    const uint8_t *slots;      /* [n_slots] */
    const uint8_t *blocks;     /* [n_workers + 1] dlpi_wblock; the last: the caller's */
    const uint8_t *trace;      /* [n_workers + 1] rings of trace_events */
    uint64_t slot_stride, block_stride, trace_stride;
    uint32_t n_stages, n_work, n_item_work, n_workers;
    uint32_t ring, n_slots, prefetch, max_held, batch_rows, trace_events;
    uint32_t cpus;
    uint64_t plan_bytes;
    int32_t work[DLP_MAX_STAGES]; /* [n_work] stages with workers, in order */
    int32_t final;                /* the stage behind which a batch is ready for the caller */
    dlpi_seen_stage stages[DLP_MAX_STAGES];
    dlp_stats figures; /* of it, what kinds of stages have filled */
};

/* Words of the region, by the records that they are in. */
struct dlpi_words {
    const dlpi_record *rec; /* [DLPI_REC_COUNT]; type 0: there is none */
    /* read a word at an offset of the region, in a record that ends at end */
    bool (*read)(void *from, uint64_t at, uint64_t end, uint32_t bytes, uint64_t *to);
    void *from;
};

/* Fill the figures that kinds of stages count by themselves. False: words say what can't be. */
static bool dlpi_seen_kinds(const dlpi_words *words, dlpi_seen *s) {
    memset(&s->figures, 0, sizeof s->figures);
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_stage_ops *ops = s->stages[i].ops;
        if (ops && ops->seen && !ops->seen(words, s, (int32_t)i)) return false;
    }
    return true;
}

#define DLPI_WORDS_MAX (UINT64_C(1) << 24) /* more are not counted */

/* Read a word of 4 or 8 bytes at an offset inside element i of a record. False: there is none. */
static bool dlpi_word_at(const dlpi_words *w, int type, uint64_t i, uint64_t at, uint32_t bytes,
                         uint64_t *to) {
    const dlpi_record *r = &w->rec[type];
    if (r->type == 0 || i >= r->count || at > r->stride || bytes > r->stride - at) return false;
    at += r->offset + i * r->stride;
    return at % bytes == 0 && w->read(w->from, at, r->offset + r->count * r->stride, bytes, to);
}

/* How many words of a record, of 4 or 8 bytes each, have bits of the mask, or none of them? */
static bool dlpi_words_count(const dlpi_words *w, int type, uint64_t mask, bool none, uint64_t *n) {
    const dlpi_record *r = &w->rec[type];
    *n = 0;
    if (r->type == 0 || r->count == 0) return true;
    if (r->count > DLPI_WORDS_MAX || (r->stride != 4 && r->stride != 8)) return false;
    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t word;
        if (!dlpi_word_at(w, type, i, 0, (uint32_t)r->stride, &word)) return false;
        *n += ((word & mask) == 0) == none;
    }
    return true;
}

/* What a stage's record says of its workers, row->n_workers at most. */
static void dlpi_seen_numbers(const dlpi_stage_rec *r, dlpi_seen_stage *row) {
    const int32_t n = row->n_workers, active = DLPI_LOAD_RLX(&r->active); /* statistics */
    row->workers = r->num_workers;
    row->workers_min = r->workers_min > 0 && r->workers_min <= n ? r->workers_min : 0;
    row->active = active >= 1 && active <= n ? active : n;
    row->in_flight = r->in_flight < 0 || r->in_flight > 1024 ? 0 : r->in_flight;
    row->process = r->placement == DLP_PLACE_PROCESSES && r->num_workers > 0;
}

/* ---- a live pipe ---- */

static bool dlpi_word_live(void *region, uint64_t at, uint64_t end, uint32_t bytes, uint64_t *to) {
    const uint8_t *word = (const uint8_t *)region + at;
    DLPI_UNUSED(end);
    /* statistics, here and below */
    if (bytes == 4)
        *to = DLPI_LOAD_RLX((const uint32_t *)(const void *)word);
    else
        *to = DLPI_LOAD_RLX((const uint64_t *)(const void *)word);
    return true;
}

/* rec: [DLPI_REC_COUNT], written. */
static dlpi_words dlpi_words_live(const dlp_pipe *p, dlpi_record *rec) {
    for (int i = 0; i < DLPI_REC_COUNT; i++) {
        const dlpi_area *a = &p->areas[i];
        rec[i] = (dlpi_record){a->record, 0, a->offset, a->stride, a->count};
    }
    return (dlpi_words){rec, dlpi_word_live, p->region};
}

static void dlpi_seen_pipe_stage(const dlp_pipe *p, const dlpi_stage *st, dlpi_seen_stage *row) {
    dlpi_copy_text(row->name, sizeof row->name, st->name);
    row->kind = st->kind;
    row->work = st->work;
    row->ops = st->ops;
    row->tell = st->w.tell;
    row->tell_user = st->w.worker_user;
    if (st->work < 0) return;
    row->first_worker = st->first_worker;
    row->n_workers = st->n_workers;
    dlpi_seen_numbers(dlpi_area_at(p, DLPI_REC_STAGES, (uint64_t)st->id), row);
    row->ready_at = st->sst_offset + offsetof(dlpi_sst, ready);
}

/* Where all is that the pipe, which has been started, shows; but for the figures of kinds. */
static void dlpi_seen_pipe(const dlp_pipe *p, dlpi_seen *s) {
    memset(s, 0, offsetof(dlpi_seen, figures));
    s->now_ns = dlpi_now_ns();
    s->ctl = p->ctl;
    s->delivered = &p->ctl->delivered;
    s->order = p->disp;
    s->taken = p->taken;
    s->slots = dlpi_area_at(p, DLPI_REC_SLOTS, 0);
    s->blocks = dlpi_area_at(p, DLPI_REC_WORKERS, 0);
    s->trace = dlpi_area_at(p, DLPI_REC_TRACE, 0);
    s->slot_stride = p->areas[DLPI_REC_SLOTS].stride;
    s->block_stride = p->areas[DLPI_REC_WORKERS].stride;
    s->trace_stride = p->areas[DLPI_REC_TRACE].stride;
    s->n_stages = (uint32_t)p->n_stages;
    s->n_work = (uint32_t)p->n_work;
    s->n_item_work = (uint32_t)p->n_item_work;
    s->n_workers = (uint32_t)p->n_workers;
    s->ring = p->ring;
    s->n_slots = p->n_slots;
    s->prefetch = p->prefetch;
    s->max_held = p->max_held;
    s->batch_rows = p->batch_rows;
    s->trace_events = p->trace_events;
    s->cpus = (uint32_t)p->cpus;
    s->plan_bytes = p->plan_bytes;
    for (int i = 0; i < p->n_work; i++) s->work[i] = p->work[i]->id;
    s->final = s->work[p->n_work - 1];
    for (int i = 0; i < p->n_stages; i++) dlpi_seen_pipe_stage(p, &p->stages[i], &s->stages[i]);
}

/* All that it shows. */
static void dlpi_seen_all(const dlp_pipe *p, dlpi_seen *s) {
    dlpi_record rec[DLPI_REC_COUNT];
    dlpi_words words = dlpi_words_live(p, rec);
    dlpi_seen_pipe(p, s);
    dlpi_seen_kinds(&words, s); /* true: its records are its own */
}

/* ---- of what is seen ---- */

static const dlpi_wblock *dlpi_seen_block(const dlpi_seen *s, uint32_t worker) {
    return (const dlpi_wblock *)(const void *)(s->blocks + worker * s->block_stride);
}

/* The stage of a worker; NULL: it is the caller. */
static const dlpi_seen_stage *dlpi_seen_owner(const dlpi_seen *s, uint32_t worker) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        if (st->work >= 0 && worker - (uint32_t)st->first_worker < (uint32_t)st->n_workers)
            return st;
    }
    return NULL;
}

static uint32_t dlpi_seen_slot(const dlpi_seen *s, uint64_t b) {
    return DLPI_LOAD_RLX(&s->order[b & (s->ring - 1)]); /* T1 ordered by the tail that covers b */
}

/* Has batch b, in that slot, left the stage? */
static bool dlpi_seen_left(const dlpi_seen *s, uint64_t b, uint32_t slot, int32_t stage) {
    const uint8_t *word = s->slots + slot * s->slot_stride + s->stages[stage].ready_at;
    /* Y1 <- Y1 */
    return dlpi_ready_is(DLPI_LOAD_ACQ((const uint64_t *)(const void *)word), b);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-dispatch   WHO WAKES WHOM
   Nobody is given work: workers look for it and claim it. What is here only says who looks. */

/* There is work on batch b for a stage: its workers do it or, of an inline one, the caller. */
static void dlpi_wake_stage(dlp_pipe *p, const dlpi_stage *st, uint64_t b) {
    if (st->w.num_workers > 0)
        dlpi_ring_batch(p, st, b, 1);
    else
        dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* Batch b left the stage with this place among those that have workers: the next one, or
   the caller, goes on with it. */
static void dlpi_wake_next(dlp_pipe *p, int work, uint64_t b) {
    if (work + 1 < p->n_work) {
        dlpi_wake_stage(p, p->work[work + 1], b);
    } else {
        dlpi_ring_caller(p->ctl, b);
        dlpi_ring_share(p->share);
    }
}

/* Look again for units freed again in stages first..last; where batches go to workers in turn, only
   one of them can take what was freed: all look. */
static void dlpi_rewind(dlp_pipe *p, int first, int last) {
    for (int k = first; k <= last; k++) {
        const dlpi_stage *st = p->work[k];
        uint32_t n = st->w.dispatch == DLP_DISPATCH_BATCHES ? UINT32_MAX : 1;
        DLPI_ADD_SEQ(&p->bells[k].rewind, UINT64_C(1)); /* R1 -> R1 */
        if (st->w.num_workers > 0) dlpi_ring(&p->bells[k], (uint32_t)st->n_workers, n);
    }
    dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* Wake as many item workers as the new work can use: a wake-up costs several microseconds. The
   caller is the worker of an inline stage: a sampler's thread wakes it. */
static void dlpi_feed_wake(dlp_pipe *p, uint64_t n) {
    dlpi_stage *st = p->work[0];
    uint64_t units = n * p->batch_rows, ns = units * p->feed.cost_ns;
    if (st->w.num_workers == 0) {
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        return;
    }
    if (st->w.dispatch == DLP_DISPATCH_BATCHES) {
        uint64_t most = (uint64_t)st->n_workers;
        for (uint64_t i = n < most ? n : most; i > 0; i--)
            dlpi_ring_batch(p, st, p->feed.published - i, 1);
        return;
    }
    if (p->feed.cost_ns != 0 && ns / 10000 + 1 < units) units = ns / 10000 + 1;
    if (units > (uint64_t)st->n_workers) units = (uint64_t)st->n_workers;
    dlpi_ring(&p->bells[0], (uint32_t)st->n_workers, (uint32_t)units);
}

/* Batches from `first` on of which this rank has no row: ready as they are fed, so nobody's work
   shows them to the stage behind the items. */
static void dlpi_feed_empty(dlp_pipe *p, uint64_t first) {
    for (uint64_t b = first; b != p->feed.published; b++)
        if (dlpi_slot_at(p, dlpi_slot_of(p, b))->count == 0)
            dlpi_wake_next(p, p->n_item_work - 1, b);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-feed       THE SAMPLER: POSITIONS INTO FREE SLOTS
   Run by the caller, or by a thread of its own. A batch is fed while fewer than prefetch_factor
   are between here and next, a slot is free, and (unordered) the window reaches that far. */

/* Begin with an epoch. */
static void dlpi_feed_epoch(dlpi_feeder *f, uint64_t epoch) {
    f->epoch = epoch;
    f->in_epoch = 0;
    f->position = 0;
    memset(f->skip_bits, 0, sizeof f->skip_bits);
}

/* How many rows a run takes: at most 8 us of work, from what items cost lately. A claim, a
   completion and a clock reading cost a quarter of a microsecond together, because each lets the
   loads and stores under way end. A run lies in one done word, and there are runs for all workers
   that can run at once. */
static uint32_t dlpi_run_shift(dlp_pipe *p, uint32_t count) {
    const dlpi_stage *st = p->work[0];
    uint64_t sum = 0, n = 0;
    uint32_t shift = 0;
    int active = dlpi_active(p, st);
    uint32_t at_once = (uint32_t)(active < p->cpus ? active : p->cpus);
    if (st->in_flight > 0) return 0; /* rows are claimed one by one: what is that beside the wait */
    if (st->w.dispatch == DLP_DISPATCH_BATCHES) at_once = 1; /* all runs go to one worker */
    for (int i = 0; i < active; i++) {
        uint64_t ns = DLPI_LOAD_RLX(&p->workers[st->first_worker + i].wb->item_ns); /* a hint */
        if (ns != 0) sum += ns, n++;
    }
    if (n == 0) return 0;
    p->feed.cost_ns = sum / n;
    while (shift < DLPI_RUN_SHIFT_MAX && (p->feed.cost_ns << (shift + 1)) <= 8000 &&
           (2u << shift) * at_once <= count)
        shift++;
    return shift;
}

/* Do items cost another thing than they did? One worker is asked, in turn. */
static bool dlpi_cost_moved(const dlp_pipe *p, uint64_t turn) {
    const dlpi_stage *st = p->work[0];
    uint64_t was = p->feed.cost_ns, k = turn % (uint64_t)dlpi_active(p, st), ns;
    ns = DLPI_LOAD_RLX(&p->workers[(uint64_t)st->first_worker + k].wb->item_ns); /* a hint */
    return ns != 0 && (ns / 4 > was || was / 4 > ns);
}

/* Item cells for batch b in slot s. A cell is free again when the batch that it was given to has
   left the stage behind which nobody needs its items: no word says so but that stage's own. There
   are as many as batches may be between here and next, so one is free. */
static uint32_t dlpi_feed_cell(dlp_pipe *p, uint32_t s, uint64_t b) {
    dlpi_cell_use *use = p->feed.cells;
    uint32_t i = p->feed.cell_turn;
    for (uint32_t n = 0; n + 1 < p->prefetch; n++, i = i + 1 == p->prefetch ? 0 : i + 1) {
        dlpi_sst *sst = dlpi_sst_at(p, use[i].slot, p->cell_end);
        if (!use[i].given) break;
        if (dlpi_ready_past(DLPI_LOAD_ACQ(&sst->ready), use[i].b)) break; /* Y1 <- Y1 */
    }
    use[i].b = b;
    use[i].slot = s;
    use[i].given = 1;
    p->feed.cell_turn = i + 1 == p->prefetch ? 0 : i + 1;
    return i;
}

static uint32_t dlpi_feed_place(dlp_pipe *p, uint32_t s, uint64_t b) {
    if (p->cells == DLPI_CELLS_STAY) return p->lender->ops->lender->cell(p);
    return p->staged || p->cells == DLPI_CELLS_TURN ? dlpi_feed_cell(p, s, b) : s;
}

/* Rows of slot s beyond the epoch's last sample. */
static void dlpi_feed_padding(dlp_pipe *p, uint32_t s) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t real = slot->position < p->samples ? p->samples - slot->position : 0;
    if (slot->position + slot->count <= p->samples) return;
    for (uint64_t r = real; r < slot->count; r++) dlpi_slot_rec(p, s)[r] = DLPI_ROW_PAD;
    slot->dirty = 1;
}

/* Words of slot s for the scheduler's present batch. c: rows of the global batch. */
static void dlpi_feed_words(dlp_pipe *p, uint32_t s, uint64_t c) {
    dlpi_feeder *f = &p->feed;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t first;
    uint32_t count;
    dlpi_rank_rows(p, c, &first, &count);
    slot->sequence = f->published;
    slot->epoch = f->epoch;
    DLPI_STORE_RLX(&slot->in_epoch, f->in_epoch); /* statistics, too, by any thread */
    slot->position = f->position + first;
    slot->begins = f->position;
    slot->after = f->position + c;
    slot->count = count;
    slot->flags = 0;
    slot->cell = (uint16_t)dlpi_feed_place(p, s, f->published);
    slot->life = (uint16_t)f->life;
    slot->failed = 0;
    slot->batch_rec = 0;
    if (slot->dirty) {
        memset(dlpi_slot_rec(p, s), 0, p->batch_rows * sizeof(uint32_t));
        memset((uint8_t *)slot + p->off_tries, 0, p->tries_bytes);
    }
    slot->dirty = 0;
}

/* Set up slot s for the scheduler's present batch and make it visible. */
static void dlpi_feed_slot(dlp_pipe *p, uint32_t s, uint64_t c) {
    dlpi_feeder *f = &p->feed;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t b = f->published;
    dlpi_feed_words(p, s, c);
    p->source->fill(p, s);
    if (slot->count == 0) { /* nobody will work on it */
        dlpi_stage *last = p->work[p->n_item_work - 1];
        uint64_t *ready = &dlpi_sst_at(p, s, last)->ready;
        DLPI_STORE_REL(ready, dlpi_ready_word(DLPI_LOAD_RLX(ready), b)); /* Y1 -> Y1 */
    }
    if (b < 64 || (b & 63) == 0 || ((b & 7) == 0 && dlpi_cost_moved(p, b >> 3)))
        f->run_shift = dlpi_run_shift(p, slot->count);
    DLPI_STORE_RLX(&slot->used, p->share && p->share->serve_only ? 0u : 1u); /* C1: feeder only */
    DLPI_STORE_REL(&slot->pub, dlpi_pub(b, slot->count, slot->dirty, f->run_shift)); /* P1 -> P1 */
    DLPI_STORE_RLX(&p->disp[b & (p->ring - 1)], s); /* T1: ordered by the tail that follows */
}

/* A slot that is free, or DLPI_NO_SLOT. */
static uint32_t dlpi_feed_free(dlp_pipe *p) {
    dlpi_feeder *f = &p->feed;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        uint32_t s = f->slot_turn;
        f->slot_turn = s + 1 == p->n_slots ? 0 : s + 1;
        if (DLPI_LOAD_SEQ(&dlpi_slot_at(p, s)->used) != 0) continue; /* C1 <- C1 */
        if (p->share == NULL || dlpi_shm->slot_free(p, s)) return s;
    }
    return DLPI_NO_SLOT;
}

/* Nothing will follow. dlpi_feed says so, once the batches before it are visible. */
static void dlpi_feed_end(dlp_pipe *p, int code) {
    p->feed.ended = 1;
    DLPI_STORE_RLX(&p->ctl->feed_code, code); /* T1: ordered by fed_all */
}

/* Is batch k of the epoch in the resumed state's window of batches consumed out of order? */
static bool dlpi_feed_skips(const dlpi_feeder *f) {
    uint64_t k = f->in_epoch - f->skip_base;
    if (f->in_epoch < f->skip_base || k >= DLPI_WINDOW_MAX) return false;
    return (f->skip_bits[k / 8] >> (k % 8) & 1) != 0;
}

/* Rows of the present global batch where each has as many, but the epoch's last. */
static int dlpi_feed_rows(dlp_pipe *p, uint64_t *rows) {
    const dlpi_feeder *f = &p->feed;
    *rows = f->in_epoch < p->batches_per_epoch ? p->global_batch : 0;
    if (p->last == DLP_LAST_SHORT && f->position + *rows > p->samples)
        *rows = p->samples - f->position;
    return DLP_OK;
}

static int dlpi_feed_step(dlp_pipe *p, uint64_t rows) {
    p->feed.position += rows;
    p->feed.in_epoch++;
    return p->source->step ? p->source->step(p) : DLP_OK;
}

/* Go on where each batch has as many rows. */
static int dlpi_feed_seek(dlp_pipe *p, const dlpi_place *to) {
    p->feed.in_epoch = to->batch;
    p->feed.position = to->batch * p->global_batch;
    return DLP_OK;
}

/* The next batch that is wanted: goes past those that a resumed unordered pipe had consumed. */
static int dlpi_feed_settle(dlp_pipe *p, uint64_t *rows) {
    int rc = p->source->rows(p, rows);
    while (rc == DLP_OK && *rows > 0 && dlpi_feed_skips(&p->feed)) {
        if ((rc = dlpi_feed_step(p, *rows)) == DLP_OK) rc = p->source->rows(p, rows);
    }
    return rc;
}

/* Publish the next batch if there is one. Returns 1 when it moved on, 0 not, negative error. */
static int dlpi_feed_one(dlp_pipe *p) {
    dlpi_feeder *f = &p->feed;
    uint64_t rows, cancel = DLPI_LOAD_RLX(&p->ctl->cancel); /* N1: a hint; next drops the rest */
    uint32_t s;
    int rc;
    if (dlpi_mark_life(cancel) == f->life && f->epoch < (cancel & DLPI_EPOCH_MASK))
        dlpi_feed_epoch(f, cancel & DLPI_EPOCH_MASK);
    if (dlpi_epochs_over(p, f->epoch)) return dlpi_feed_end(p, 0), 0;
    if ((rc = dlpi_feed_settle(p, &rows)) != DLP_OK) return dlpi_feed_end(p, rc), rc;
    if (rows != 0) {
        if (p->source->ready && !p->source->ready(p, rows)) return 0;
        if ((s = dlpi_feed_free(p)) == DLPI_NO_SLOT) return 0;
        dlpi_feed_slot(p, s, rows);
        f->published++;
        rc = dlpi_feed_step(p, rows);
        if (rc == DLP_OK) rc = dlpi_feed_settle(p, &rows);
        if (rc != DLP_OK) return dlpi_feed_end(p, rc), rc;
        if (rows != 0) return 1;
        dlpi_slot_at(p, s)->flags = DLP_BATCH_LAST; /* before the tail that shows the batch */
    }
    dlpi_feed_epoch(f, f->epoch + 1);
    return 1;
}

/* Go on at another place. */
static int dlpi_feed_goto(dlp_pipe *p, const dlpi_place *to) {
    dlpi_feeder *f = &p->feed;
    uint32_t skipped = 0,
             window = p->d.unordered && p->ring > DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX : p->ring;
    dlpi_feed_epoch(f, to->epoch);
    f->skip_base = to->batch;
    memcpy(f->skip_bits, to->window, sizeof f->skip_bits);
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) skipped += to->window[k / 8] >> k % 8 & 1u;
    /* all that a state must tell apart fits in its bitmap */
    if (window + skipped > DLPI_WINDOW_MAX)
        window = skipped < DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX - skipped : 1;
    p->window = p->d.unordered ? window : p->ring;
    return p->source->seek(p, to);
}

/* ctl.fed_all of a feeder that has ended. */
static inline uint32_t dlpi_fed_word(uint32_t life) { return life << 1 | 1u; }

static pthread_mutex_t dlpi_place_lock = PTHREAD_MUTEX_INITIALIZER;

/* The caller has sought: follow it. A feeder that failed stays where it is, and says so anew. */
static void dlpi_feed_follow(dlp_pipe *p) {
    dlpi_feeder *f = &p->feed;
    dlpi_place to;
    int rc;
    if (DLPI_LIKELY(dlpi_mark_life(DLPI_LOAD_SEQ(&p->ctl->cancel)) == f->life)) return; /* N1, B1 */
    pthread_mutex_lock(&dlpi_place_lock);
    to = p->place;
    pthread_mutex_unlock(&dlpi_place_lock);
    f->life = to.life;
    if (f->ended && DLPI_LOAD_RLX(&p->ctl->feed_code) != 0) {     /* our own store */
        DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1 */
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        return;
    }
    f->ended = 0;
    DLPI_STORE_SEQ(&p->ctl->fed_all, 0u); /* T1 -> T1 */
    if ((rc = dlpi_feed_goto(p, &to)) == DLP_OK) return;
    dlpi_feed_end(p, rc);
    DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1 */
    dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* Feed all that may be fed, once there are `burst` credits; returns how many batches. */
static uint64_t dlpi_feed(dlp_pipe *p, uint64_t burst) {
    dlpi_feeder *f = &p->feed;
    uint64_t before = f->published;
    dlpi_feed_follow(p);
    if (f->ended) return 0;
    if (p->share && !dlpi_shm->may_feed(p)) return 0;
    if (p->source->ahead) p->source->ahead(p);
    if (before - DLPI_LOAD_SEQ(&p->ctl->delivered) + burst > p->prefetch) return 0; /* V1 <- V1 */
    while (!f->ended) {
        uint64_t out = f->published - DLPI_LOAD_SEQ(&p->ctl->delivered); /* V1 <- V1 */
        uint64_t base = DLPI_LOAD_SEQ(&p->ctl->base);                    /* V1 <- V1 */
        if (out >= p->prefetch || f->published - base >= p->window) break;
        if (dlpi_feed_one(p) <= 0) break;
    }
    if (f->published != before) {
        DLPI_STORE_SEQ(&p->ctl->tail, f->published); /* T1 -> T1: all slots above are published */
        dlpi_feed_wake(p, f->published - before);
        if (p->world > 1) dlpi_feed_empty(p, before);
        if (p->source->ahead) p->source->ahead(p);
    }
    if (f->ended) {
        DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1: after the tail */
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        dlpi_ring_share(p->share);
    }
    return f->published - before;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-claim      CLAIMS AND COMPLETION */

typedef struct dlpi_unit { /* a claimed piece of work */
    uint64_t b;
    uint32_t slot, unit;
    uint32_t row, end; /* rows [row, end); a batch stage has the whole batch */
    /* first stage: nobody had it before, and no row is padding: no row's record need be read */
    bool plain;
} dlpi_unit;

static inline dlpi_stage *dlpi_stage_before(const dlpi_worker *w) {
    return w->st->work > 0 ? w->p->work[w->st->work - 1] : NULL;
}
static inline bool dlpi_is_item_stage(const dlp_pipe *p, const dlpi_stage *st) {
    return st->work < p->n_item_work;
}

/* The bits of done[i] of batch b, none when the word is of another generation. */
static inline uint32_t dlpi_done_bits(const uint64_t *done, uint32_t i, uint64_t b) {
    uint64_t word = DLPI_LOAD_SEQ(&done[i]); /* D1 <- D1 */
    return (uint32_t)(word >> 32) == (uint32_t)b ? (uint32_t)word : 0;
}

static inline uint32_t dlpi_unit_mask(uint32_t row, uint32_t end) {
    uint32_t n = end - row;
    uint32_t ones = n >= DLPI_WORD_ROWS ? UINT32_MAX : (UINT32_C(1) << n) - 1u;
    return ones << (row % DLPI_WORD_ROWS);
}

/* Is the input of this unit there? Rows this stage did already need no input. */
static bool dlpi_input_ready(const dlpi_worker *w, const dlpi_unit *t, dlpi_sst *mine) {
    const dlp_pipe *p = w->p;
    dlpi_stage *up = dlpi_stage_before(w);
    dlpi_sst *theirs;
    uint32_t i = t->row / DLPI_WORD_ROWS, mask;
    if (up == NULL) return true;
    theirs = dlpi_sst_at(p, t->slot, up);
    if (!dlpi_is_item_stage(p, w->st))
        return dlpi_ready_is(DLPI_LOAD_SEQ(&theirs->ready), t->b); /* Y1 <- Y1 */
    mask = dlpi_unit_mask(t->row, t->end);
    return ((dlpi_done_bits(dlpi_done(theirs), i, t->b) |
             dlpi_done_bits(dlpi_done(mine), i, t->b)) &
            mask) == mask;
}

/* The rows of unit t->unit. */
static void dlpi_unit_rows(const dlp_pipe *p, const dlpi_stage *st, uint32_t count, uint32_t shift,
                           dlpi_unit *t) {
    bool whole = !dlpi_is_item_stage(p, st);
    t->row = whole ? 0 : t->unit << shift;
    t->end = whole || count - t->row <= 1u << shift ? count : t->row + (1u << shift);
}

/* What own[u] is for a unit of batch b that was freed again: nobody's, older than b, and another
   value each time: a claimer that read the one before, and slept while the unit was claimed and
   freed once more, finds it changed. */
static uint64_t dlpi_own_freed(const dlp_pipe *p, uint32_t s, uint64_t b) {
    /* O1: a number of its own */
    uint32_t n = DLPI_ADD_SEQ(&dlpi_slot_at(p, s)->frees, 1u);
    return dlpi_gen_word(b - 1, DLPI_FREED | (n & (DLPI_FREED - 1)));
}

/* May rows of this unit be taken for untouched? */
static inline bool dlpi_plain(const dlpi_worker *w, uint64_t pub, uint64_t own) {
    return w->st->work == 0 && !dlpi_pub_padded(pub) && (own & DLPI_FREED) == 0;
}

/* Try to claim unit t->unit of batch t->b. own was read before. */
static bool dlpi_claim(const dlpi_worker *w, const dlpi_unit *t, dlpi_sst *sst, uint64_t own) {
    uint64_t mine = dlpi_gen_word(t->b, (uint64_t)w->global + 1u);
    return DLPI_CAS_SEQ(&dlpi_own(w->p, sst)[t->unit], &own, mine); /* O1 <-> O1 */
}

/* Look for a unit of batch b. Sets *all_claimed when none of its units will need a claim. */
static bool dlpi_find_in(dlpi_worker *w, uint64_t b, bool hints, dlpi_unit *t, bool *all_claimed) {
    const dlp_pipe *p = w->p;
    uint32_t s = (uint32_t)(b % p->n_slots), n, u = 0, count, shift, from;
    uint64_t pub = DLPI_LOAD_ACQ(&dlpi_slot_at(p, s)->pub); /* P1 <- P1 */
    dlpi_sst *sst;
    *all_claimed = true;
    /* a guess that saves a line when slots go round in turn */
    if (dlpi_gen(pub) != (b & DLPI_GEN_MASK)) {
        s = dlpi_slot_of(p, b);
        pub = DLPI_LOAD_ACQ(&dlpi_slot_at(p, s)->pub);          /* P1 <- P1 */
        if (dlpi_gen(pub) != (b & DLPI_GEN_MASK)) return false; /* the slot went on */
    }
    sst = dlpi_sst_at(p, s, w->st);
    count = dlpi_pub_count(pub);
    shift = dlpi_pub_shift(pub);
    n = dlpi_is_item_stage(p, w->st) ? dlpi_units(count, shift) : 1u;
    if (hints) {
        uint64_t next = DLPI_LOAD_RLX(&sst->next); /* a hint; rewind makes everybody ignore it */
        if (dlpi_gen(next) == (b & DLPI_GEN_MASK)) u = dlpi_gen_low(next);
    }
    t->b = b;
    t->slot = s;
    for (from = u; u < n; u++) {
        uint64_t own = DLPI_LOAD_ACQ(&dlpi_own(p, sst)[u]); /* O1 <- O1 */
        t->unit = u;
        dlpi_unit_rows(p, w->st, count, shift, t);
        if (dlpi_older(dlpi_gen(own), b)) {
            t->plain = dlpi_plain(w, pub, own);
            if (dlpi_input_ready(w, t, sst) && dlpi_claim(w, t, sst, own)) {
                if (u == from) DLPI_STORE_RLX(&sst->next, dlpi_gen_word(b, u + 1)); /* a hint */
                if (b + 1 != w->tail_seen) /* we are behind: begin to fetch the next batch's line */
                    __builtin_prefetch(&dlpi_slot_at(p, (uint32_t)((b + 1) % p->n_slots))->pub, 1);
                *all_claimed = *all_claimed && u + 1 == n;
                return true;
            }
            *all_claimed = false;
        } else if (u == from) {
            from = u + 1; /* claimed by somebody: the prefix grows */
        }
    }
    return false;
}

/* May this worker take work on batch b? */
static inline bool dlpi_batch_mine(const dlpi_worker *w, uint64_t b) {
    return w->st->w.dispatch != DLP_DISPATCH_BATCHES ||
           b % (uint64_t)w->st->n_workers == (uint64_t)w->id;
}

/* Find and claim the oldest work of this stage. */
static bool dlpi_find(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    uint64_t rewind = DLPI_LOAD_SEQ(&w->bell->rewind); /* R1 <- R1 */
    /* T1 <- T1 */
    uint64_t tail = w->low == w->tail_seen ? DLPI_LOAD_SEQ(&p->ctl->tail) : w->tail_seen;
    bool hints = rewind == w->rewind_seen, all;
    if (!hints) tail = DLPI_LOAD_SEQ(&p->ctl->tail); /* T1 <- T1 */
    if (!hints || tail - w->low > p->ring) {
        uint64_t oldest = tail > p->ring ? tail - p->ring : 0;
        if (!hints || w->low < oldest) w->low = oldest;
    }
    for (uint64_t b = w->low;; b++) {
        if (b == tail) {                         /* end of what was seen: is there more? */
            tail = DLPI_LOAD_SEQ(&p->ctl->tail); /* T1 <- T1 */
            if (b == tail) break;
        }
        w->tail_seen = tail;
        if (w->claim_end != 0 && b >= w->claim_end) return false;
        all = true;
        if (dlpi_batch_mine(w, b) && dlpi_find_in(w, b, hints, t, &all)) return true;
        if (all && b == w->low) w->low = b + 1;
    }
    w->tail_seen = tail;
    w->rewind_seen = rewind; /* only after a whole look without hints */
    return false;
}

/* Are all done words of this stage full for batch b? Starts at the hint, moves it; one word has
   no hint. seen: ready as it was before; the hint is for its redo count only. */
static bool dlpi_all_done(const dlp_pipe *p, dlpi_sst *sst, uint64_t b, uint32_t count,
                          uint64_t seen) {
    uint64_t *scan = p->words_max > 1 ? dlpi_scan(p, sst) : NULL;
    uint64_t key = (b << 16 | seen >> DLPI_READY_BITS) << 16;
    /* D2 <- D2: rows of the words it skips are ours to pass on */
    uint64_t hint = scan ? DLPI_LOAD_ACQ(scan) : 0;
    uint32_t i = scan && (hint ^ key) >> 16 == 0 ? (uint32_t)hint & 0xffffu : 0, from = i;
    uint32_t words = (count + DLPI_WORD_ROWS - 1) / DLPI_WORD_ROWS;
    for (; i < words; i++) {
        uint64_t word = DLPI_LOAD_SEQ(&dlpi_done(sst)[i]); /* D1 <- D1 */
        if (word != ((b & UINT32_MAX) << 32 | dlpi_word_full(count, i))) break;
    }
    if (scan && i != from) DLPI_STORE_REL(scan, key | i); /* D2 -> D2: full words stay full */
    return i == words;
}

/* Let batch b leave the last item stage if all of its rows are done. seen: ready, read before. */
static bool dlpi_close_batch(const dlp_pipe *p, dlpi_sst *sst, uint64_t b, uint32_t count,
                             uint64_t seen) {
    /* closed, and the slot may have gone on to a batch without rows */
    if (dlpi_ready_past(seen, b)) return false;
    if (!dlpi_all_done(p, sst, b, count, seen)) return false;
    return DLPI_CAS_SEQ(&sst->ready, &seen, dlpi_ready_word(seen, b)); /* Y1 -> Y1 */
}

/* Is the claim of unit t in stage st one that was given up again? */
static bool dlpi_freed(const dlp_pipe *p, const dlpi_stage *st, const dlpi_unit *t) {
    const uint64_t *own = dlpi_own(p, dlpi_sst_at(p, t->slot, st));
    uint64_t now = DLPI_LOAD_RLX(&own[t->unit]); /* O1: ordered by our claim, see rows_redo */
    return dlpi_gen(now) == ((t->b - 1) & DLPI_GEN_MASK) && (now & DLPI_FREED) != 0;
}

/* Batch t->b left the stage of w: show it to the next stage, or to the caller. ready was written.
   Of a batch that went back, who looked for it there may have done so before it was ready, and goes
   by its hints since: call again. */
static void dlpi_ready_wake(dlp_pipe *p, const dlpi_worker *w, const dlpi_unit *t) {
    const dlpi_stage *next = w->st->work + 1 < p->n_work ? p->work[w->st->work + 1] : NULL;
    dlpi_unit whole = {t->b, t->slot, 0, 0, 0, false};
    if (next != NULL && dlpi_freed(p, next, &whole))
        DLPI_ADD_SEQ(&p->bells[next->work].rewind, UINT64_C(1)); /* R1 -> R1 */
    dlpi_wake_next(p, w->st->work, t->b);
}

/* Rows of unit t are done in this item stage, and there is another one behind it. Who looked there
   for units freed again may have done so before the rows were back, and goes by its hints since:
   call again. */
static void dlpi_pass_items(dlpi_worker *w, const dlpi_unit *t, uint32_t done) {
    dlp_pipe *p = w->p;
    dlpi_stage *next = p->work[w->st->work + 1];
    uint32_t mask = dlpi_unit_mask(t->row, t->end);
    if ((done & mask) != mask) return;
    /* R1 -> R1 */
    if (dlpi_freed(p, next, t)) DLPI_ADD_SEQ(&p->bells[next->work].rewind, UINT64_C(1));
    dlpi_wake_stage(p, next, t->b);
}

/* Set done bits. Whoever fills the last word of the last item stage closes the batch. */
static void dlpi_complete(dlpi_worker *w, const dlpi_unit *t, uint32_t mask) {
    dlp_pipe *p = w->p;
    dlpi_sst *sst = dlpi_sst_at(p, t->slot, w->st);
    uint32_t i = t->row / DLPI_WORD_ROWS;
    uint32_t count = dlpi_slot_at(p, t->slot)->count;
    uint64_t *done = &dlpi_done(sst)[i];
    uint64_t old = DLPI_LOAD_RLX(done), now; /* D1: the swap below orders it */
    if (mask == 0) return;
    do {
        now = (old >> 32 == (t->b & UINT32_MAX) ? old : t->b << 32) | mask;
    } while (!DLPI_CAS_SEQ(done, &old, now)); /* D1 -> D1 */
    if (w->st->work + 1 < p->n_item_work) {
        dlpi_pass_items(w, t, (uint32_t)now);
        return;
    }
    if ((uint32_t)now != dlpi_word_full(count, i)) return;
    {
        uint64_t seen = DLPI_LOAD_ACQ(&sst->ready); /* Y1 <- Y1: before the look at the words */
        if (!dlpi_close_batch(p, sst, t->b, count, seen)) return;
    }
    dlpi_ready_wake(p, w, t);
}

/* A unit of batch b that worker w is about to give up. */
static uint64_t dlpi_own_redo(const dlpi_worker *w, uint64_t b) {
    return dlpi_gen_word(b, DLPI_REDO | ((uint32_t)w->global + 1u));
}

/* Send rows of a unit (bits of its done word) back to the first stage: they get their indices from
   the slot and are done all over again. Bits first, then the claims, then the call to look again:
   whoever reads a freed claim finds the bits of the stages before it gone, so no stage runs before
   the one behind it. The claims of the stages before carry our mark from before the first bit goes:
   who dies in between is known by his own claim, or, once that is freed, by the mark; and who
   recovers their last owner sees that they are no longer his. The first stage's is freed last, so
   up to that store nobody can begin anew. */
static void dlpi_rows_redo(const dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    dlp_pipe *p = w->p;
    uint64_t freed = dlpi_own_freed(p, t->slot, t->b);
    uint64_t *first = dlpi_own(p, dlpi_sst_at(p, t->slot, p->work[0]));
    for (int k = 0; k < w->st->work; k++) {
        uint64_t *own = dlpi_own(p, dlpi_sst_at(p, t->slot, p->work[k]));
        DLPI_STORE_SEQ(&own[t->unit], dlpi_own_redo(w, t->b)); /* O1 -> O1 of recovery */
    }
    for (int k = 0; k < w->st->work; k++) {
        uint64_t *done = &dlpi_done(dlpi_sst_at(p, t->slot, p->work[k]))[t->row / DLPI_WORD_ROWS];
        DLPI_AND_SEQ(done, ~(uint64_t)rows); /* D1 -> D1 */
    }
    for (int k = 1; k <= w->st->work; k++) { /* ours is the last of these */
        uint64_t *own = dlpi_own(p, dlpi_sst_at(p, t->slot, p->work[k]));
        DLPI_STORE_SEQ(&own[t->unit], freed); /* O1 -> O1 */
    }
    DLPI_STORE_SEQ(&first[t->unit], freed); /* O1 -> O1 */
    dlpi_rewind(p, 0, w->st->work);
}

/* Undo that batch b left stage k: no row of it is done, and its ready becomes that of the batch
   before, with another count, so that a closer that has read it cannot swap it. In this order: a
   closer finds ready past its batch, or rows missing. */
static void dlpi_stage_undo(dlp_pipe *p, int k, uint32_t s, uint64_t b) {
    dlpi_sst *sst = dlpi_sst_at(p, s, p->work[k]);
    for (uint32_t i = 0; k < p->n_item_work && i < p->words_max; i++)
        DLPI_AND_SEQ(&dlpi_done(sst)[i], ~(uint64_t)UINT32_MAX); /* D1 -> D1 */
    if (k + 1 >= p->n_item_work) {
        uint64_t next = (DLPI_LOAD_SEQ(&sst->ready) >> DLPI_READY_BITS) + 1;          /* Y1 <- Y1 */
        DLPI_STORE_SEQ(&sst->ready, next << DLPI_READY_BITS | (b & DLPI_READY_MASK)); /* Y1 -> Y1 */
    }
}

/* How many claims a stage has of a batch. */
static uint32_t dlpi_stage_units(const dlp_pipe *p, int k, uint64_t pub) {
    return k < p->n_item_work ? dlpi_units(dlpi_pub_count(pub), dlpi_pub_shift(pub)) : 1u;
}

/* Where rows or batches of stage st go back to: the nearest stage that writes their cells whole. */
static int dlpi_redo_first(const dlp_pipe *p, const dlpi_stage *st, uint64_t pub) {
    if (dlpi_is_item_stage(p, st)) return 0;
    return p->staged ? p->batcher->work : dlpi_pub_count(pub) > 0 ? 0 : p->n_item_work;
}

static void dlpi_own_set(dlp_pipe *p, int k, uint32_t s, uint64_t pub, uint64_t word) {
    uint64_t *own = dlpi_own(p, dlpi_sst_at(p, s, p->work[k]));
    for (uint32_t u = 0; u < dlpi_stage_units(p, k, pub); u++)
        DLPI_STORE_SEQ(&own[u], word); /* O1 -> O1 */
}

/* Send batch b, claimed by the stage of w and perhaps half changed by it, back to the nearest stage
   that writes its cell whole: the collate, or fetch. Marks, then stages are undone, then claims are
   given up, those of that stage last, as in dlpi_rows_redo. */
static void dlpi_batch_redo(const dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    uint64_t freed = dlpi_own_freed(p, s, b);
    uint64_t pub = DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->pub); /* claimed */
    int first = dlpi_redo_first(p, w->st, pub);
    for (int k = first; k < w->st->work; k++) dlpi_own_set(p, k, s, pub, dlpi_own_redo(w, b));
    for (int k = first; k < w->st->work; k++) dlpi_stage_undo(p, k, s, b);
    for (int k = first + 1; k <= w->st->work; k++) dlpi_own_set(p, k, s, pub, freed);
    dlpi_own_set(p, first, s, pub, freed);
    dlpi_rewind(p, first, w->st->work);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-run        CALLBACKS, FAILURES, CLOCKS */

static uint32_t dlpi_hist_bucket(uint64_t ns) { /* four to an octave */
    uint32_t log, sub;
    if (ns < 4) return (uint32_t)ns;
    log = 63u - (uint32_t)__builtin_clzll(ns);
    sub = (uint32_t)(ns >> (log - 2)) & 3u;
    log = (log - 1) * 4u + sub;
    return log < DLPI_HIST ? log : DLPI_HIST - 1;
}
static uint64_t dlpi_hist_value(uint32_t bucket) { /* the bucket's middle */
    uint32_t log = bucket / 4u + 1u, sub = bucket % 4u;
    if (bucket < 4) return bucket;
    return (UINT64_C(4) + sub) * (UINT64_C(1) << (log - 2)) + (UINT64_C(1) << (log - 2)) / 2;
}

static void dlpi_trace_put(dlpi_worker *w, const dlp_trace_event *e) {
    uint64_t head = DLPI_LOAD_RLX(&w->wb->trace_head);
    uint64_t *to = (uint64_t *)(void *)&w->trace[head % w->p->trace_events];
    uint64_t from[sizeof *e / 8];
    memcpy(from, e, sizeof *e);
    for (size_t i = 0; i < sizeof *e / 8; i++)
        /* G1 -> G1: who sees a word of it sees the head before it */
        DLPI_STORE_REL(&to[i], from[i]);
    DLPI_STORE_REL(&w->wb->trace_head, head + 1); /* G1 -> G1 */
}

static void dlpi_trace_flush(dlpi_worker *w) {
    if (w->event.kind != 0 && w->event.end_ns > w->event.begin_ns) dlpi_trace_put(w, &w->event);
    w->event.kind = 0;
}

/* A stretch [from, to) of one kind; work on the same batch without a gap becomes one event. */
static void dlpi_trace_add(dlpi_worker *w, int kind, uint64_t from, uint64_t to, uint64_t b,
                           uint64_t epoch, uint32_t items) {
    dlp_trace_event *e = &w->event;
    uint64_t zero = w->p->ctl->started_ns;
    if (e->kind == kind && e->sequence == b && e->end_ns + zero == from &&
        e->items + items < 65536u) {
        e->end_ns = to - zero;
        e->items = (uint16_t)(e->items + items);
        return;
    }
    dlpi_trace_flush(w);
    e->begin_ns = from - zero;
    e->end_ns = to - zero;
    e->sequence = b;
    e->epoch = (uint32_t)epoch;
    e->kind = (uint16_t)kind;
    e->items = (uint16_t)(items < 65536u ? items : 65535u);
}

/* The wait ends now. Booked before the work that ended it, so that a lane stays in order. */
static void dlpi_wait_over(dlpi_worker *w, uint64_t now) {
    uint64_t from = w->wait_ns;
    w->wait_ns = 0;
    if (from == 0 || now <= from) return;
    dlpi_bump(w->blocked ? &w->wb->blocked_ns : &w->wb->starved_ns, now - from);
    if (now - from > 20000)
        dlpi_trace_add(w, w->blocked ? DLP_TRACE_BLOCKED : DLP_TRACE_STARVED, from, now,
                       w->event.sequence, w->event.epoch, 0);
}

/* One clock reading for every clock_every units, so that it costs under a fortieth of the work. */
static void dlpi_clock_in(dlpi_worker *w) {
    if (w->last_ns != 0 || (w->p->clock_off && !w->started)) return;
    w->last_ns = dlpi_now_ns();
    dlpi_wait_over(w, w->last_ns);
    w->units_untimed = w->items_untimed = 0;
    w->until_clock = w->clock_every;
    DLPI_STORE_RLX(&w->wb->since_ns, w->last_ns);
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_BUSY);
}

/* Add what the calling thread, one of the worker's, has used of the cores since it was here last,
   and how long it waited for one. The second is asked of a file, so not at each short sleep. */
static void dlpi_cpu_note(dlpi_worker *w, dlpi_cpu *cpu, uint64_t now) {
    struct timespec t;
    uint64_t ns, sched[2];
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0) {
        ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        dlpi_bump(&w->wb->cpu_ns, ns - cpu->used_ns);
        cpu->used_ns = ns;
    }
    if (now - cpu->noted_ns <= DLPI_CPU_NOTE_NS) return;
    cpu->noted_ns = now;
    if (!dlpi_read_numbers("/proc/thread-self/schedstat", NULL, sched, 2)) return;
    dlpi_bump(&w->wb->core_wait_ns, sched[1] - cpu->waited_ns);
    cpu->waited_ns = sched[1];
}

/* Of the time that work took: how long it was ready to run and others had the cores. 0 of what
   hardly computes: on a busy machine that gets its core late each time that it wakes up, and is
   done sooner with more workers all the same. */
static uint64_t dlpi_core_wait(uint64_t took, uint64_t cpu, uint64_t wait) {
    uint64_t most = took > cpu ? took - cpu : 0;
    if (wait > most) wait = most;
    return cpu >= (took - wait) / 10 * 3 ? wait : 0;
}

static void dlpi_clock_out(dlpi_worker *w, uint64_t b, uint64_t epoch, uint32_t items) {
    dlpi_wblock *wb = w->wb;
    uint64_t now, ns, each, average;
    if (w->last_ns == 0) return; /* an inline worker in a call that is not timed */
    w->items_untimed += items;
    w->units_untimed++;
    if (--w->until_clock > 0) return;
    now = dlpi_now_ns();
    ns = now - w->last_ns;
    each = w->items_untimed ? ns / w->items_untimed : ns;
    average = DLPI_LOAD_RLX(&wb->item_ns);
    average = average == 0 ? each : (average * 7 + each) / 8;
    if (w->items_untimed > 0) /* what was not run says nothing of what an item costs */
        DLPI_STORE_RLX(&wb->item_ns, average ? average : 1);
    DLPI_STORE_RLX(&wb->hist[dlpi_hist_bucket(each)],
                   wb->hist[dlpi_hist_bucket(each)] + w->items_untimed);
    if (each > wb->max_ns) DLPI_STORE_RLX(&wb->max_ns, each);
    dlpi_bump(&wb->busy_ns, w->started ? ns : ns * w->p->call_clock_every);
    dlpi_trace_add(w, DLP_TRACE_WORK, w->last_ns, now, b, epoch, w->items_untimed);
    ns /= w->units_untimed;
    w->clock_every = ns >= 1000 ? 1 : ns >= 500 ? 2 : ns >= 125 ? 8 : 32;
    w->until_clock = w->clock_every;
    w->units_untimed = w->items_untimed = 0;
    w->last_ns = now;
    DLPI_STORE_RLX(&wb->since_ns, now);
    if (w->started && now - w->cpu.noted_ns > DLPI_CPU_NOTE_NS) /* who never rests, too */
        dlpi_cpu_note(w, &w->cpu, now);
}

/* The worker stops working: close the books on what was not timed yet. */
static void dlpi_clock_stop(dlpi_worker *w) {
    if (w->last_ns == 0) return;
    if (w->units_untimed > 0) {
        w->until_clock = 1;
        w->units_untimed--; /* counted again by clock_out */
        dlpi_clock_out(w, w->event.sequence, w->event.epoch, 0);
    }
    w->last_ns = 0;
}

static void dlpi_skip_note(const dlpi_worker *w, int code, uint64_t new_index) {
    dlp_error e;
    dlpi_describe_item(w, &w->item, code, &e);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    dlpi_skip_put(w->p->ctl, w->st->id, &e, e.code, new_index);
}

/* May one more failed item be replaced or left out? What fails after an end that a row finds does
   not count, and only who delivers knows what that is: dlpi_end_budget. */
static bool dlpi_skip_allowed(const dlpi_worker *w) {
    int64_t max = w->st->w.max_skips;
    if (max == DLP_NONE || w->p->open_end) return max != DLP_NONE;
    return dlpi_failures_add(w->p->ctl, 1, max);
}

/* The one store that changes a row's fate. All that follows from it comes behind it. */
static inline void dlpi_rec_set(const dlp_pipe *p, uint32_t s, uint32_t row, uint32_t rec) {
    DLPI_STORE_REL(&dlpi_slot_rec(p, s)[row], rec); /* X1: a crash cuts before or behind it */
}

/* A row that is left out has zeros. Each stage that comes by clears it once more: who left it out
   may have died before it was clear, a batch map may have changed it since. */
static void dlpi_row_clear(const dlp_pipe *p, const dlpi_unit *t, uint32_t row) {
    uint8_t *cell = dlpi_item_cell(p, t->slot);
    if (p->cells == DLPI_CELLS_STAY) {
        dlpi_slot_at(p, t->slot)->cell = (uint16_t)p->n_cells; /* of zeros; ordered by done */
        return;
    }
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        memset(cell + d->offset + row * d->row_bytes, 0, d->row_bytes);
        if (d->f.ragged) dlpi_slot_lengths(p, t->slot, f, 1)[row] = 0;
    }
}

static void dlpi_row_leave(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t bits) {
    const dlp_pipe *p = w->p;
    uint32_t repl = dlpi_rec_repl(dlpi_slot_rec(p, t->slot)[row]); /* its index goes by it */
    DLPI_STORE_RLX(&dlpi_slot_at(p, t->slot)->dirty, 1u);          /* ordered by done */
    dlpi_rec_set(p, t->slot, row, dlpi_rec(DLPI_ROW_LEFT, 0, repl) | bits);
    dlpi_row_clear(p, t, row);
}

/* The epoch ended before this row, or at it. */
static void dlpi_row_end(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    DLPI_STORE_RLX(&dlpi_slot_at(w->p, t->slot)->dirty, 1u); /* ordered by done */
    dlpi_rec_set(w->p, t->slot, row, DLPI_ROW_END);
}

/* Was the epoch seen to end at a row of this unit, in a life or a stage before? */
static inline bool dlpi_rec_ended(const dlpi_unit *t, uint32_t rec) {
    return !t->plain && dlpi_rec_state(rec) == DLPI_ROW_END;
}

enum { DLPI_ROW_DONE, DLPI_ROW_AGAIN, DLPI_ROW_LATER, DLPI_ROW_REDO };

static uint64_t dlpi_backoff_ns(const dlpi_stage *st, uint32_t tries) {
    uint32_t doublings = tries > 7 ? 6 : tries - 1;
    return (uint64_t)st->w.retry_backoff_ms * 1000000u << doublings;
}

/* The row waits, until due_ns, for its next attempt. A worker that has several rows at once parks
   them here, too: what is tried again, and how, is the same. */
static void dlpi_park(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint64_t due_ns) {
    dlpi_parked *k = &w->parked[w->n_parked++]; /* room is kept: who has none claims nothing */
    if (w->at_once == NULL)                     /* else that is of a row which is out */
        DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2: it only waits, and is not to blame */
    k->due_ns = due_ns;
    k->gen = t->b;
    k->slot = t->slot;
    k->row = row;
}

static int dlpi_row_retry(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t tries) {
    dlpi_bump(&w->wb->retried, 1);
    if (w->st->w.retry_backoff_ms == 0)
        return w->st->work == 0 || w->st->w.idempotent ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
    dlpi_park(w, t, row, dlpi_now_ns() + dlpi_backoff_ns(w->st, tries));
    return DLPI_ROW_LATER;
}

static int dlpi_row_raise(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_error e;
    dlpi_describe_item(w, &w->item, code, &e);
    if (code == DLP_ERR_BUDGET) dlpi_error_first(w->p->ctl, &e);
    dlpi_slot_fail(dlpi_slot_at(w->p, t->slot), (uint32_t)w->global, &e);
    dlpi_row_leave(w, t, row, DLPI_REC_RAISED);
    return DLPI_ROW_DONE;
}

/* Nothing is left to take a row's place: say so, and what was wrong with the last. */
static void dlpi_row_exhausted(dlpi_worker *w, int code, bool failed) {
    int errnum = w->wb->message_errno;
    dlp_error e;
    dlpi_describe(w, code, &e);
    if (failed)
        dlpi_say(w, 0,
                 "the item and %u replacements for it failed or were left out, the last: "
                 "%.150s",
                 DLPI_REPLACE_MAX, e.message);
    else
        dlpi_say(w, 0, "left out by stage \"%.31s\" %u times: the item and %u replacements for it",
                 w->st->name, DLPI_REPLACE_MAX + 1, DLPI_REPLACE_MAX);
    w->wb->message_errno = errnum;
}

/* Another item takes the row: the next replacement for its position. */
static int dlpi_row_replace(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    const dlp_pipe *p = w->p;
    uint64_t *index = dlpi_slot_index(p, t->slot), other;
    uint32_t rec = dlpi_slot_rec(p, t->slot)[row], repl = dlpi_rec_repl(rec) + 1;
    uint32_t failed = (rec & DLPI_REC_FAILED) | (code == DLP_SKIP ? 0 : DLPI_REC_FAILED);
    if (repl > DLPI_REPLACE_MAX) {
        dlpi_row_exhausted(w, code, failed != 0);
        return dlpi_row_raise(w, t, row, code);
    }
    other = p->source->item(w, t->slot, row, w->item.epoch, w->item.position, repl);
    dlpi_rec_set(p, t->slot, row, dlpi_rec(dlpi_rec_state(rec), 0, repl) | failed);
    DLPI_STORE_REL(&index[row], other); /* X1: behind it */
    dlpi_bump(&w->wb->replaced, 1);
    dlpi_skip_note(w, code, other);
    return w->st->work == 0 ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
}

static const char *dlpi_signal_text(uint32_t killed_by) {
    static const struct {
        uint32_t number;
        const char *text;
    } names[] = {{6, "SIGABRT"},  {7, "SIGBUS"},   {8, "SIGFPE"},        {9, "SIGKILL"},
                 {11, "SIGSEGV"}, {15, "SIGTERM"}, {0, "a call of exit"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == killed_by) return names[i].text;
    return "a signal";
}

static int dlpi_killed_say(dlpi_worker *w, uint32_t s, uint32_t rec) {
    return dlpi_say(w, DLP_ERR_KILLED,
                    "the callback's process died %u times here, the last time by %s",
                    dlpi_rec_kills(rec), dlpi_signal_text(dlpi_slot_at(w->p, s)->killed_by));
}

/* How many deaths make an item poison. Of several in flight none was alone the first time. */
static uint32_t dlpi_kills_most(const dlpi_worker *w) {
    return w->at_once != NULL && w->p->max_kills < 2 ? 2 : w->p->max_kills;
}

/* How often the row's present item failed in this stage before. A worker that dies between the
   store of the record and that of this count has not counted its try: there is one more. */
static uint32_t dlpi_row_tries(const dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                               uint32_t rec) {
    uint32_t word;
    if (w->st->w.retries == 0) return 0;
    word = dlpi_slot_tries(w->p, t->slot, w->st)[row];
    return word >> 8 == dlpi_rec_repl(rec) ? word & 255u : 0;
}

/* The item's callback failed: what becomes of the row, by the stage's policy. Where workers die in
   what the policy calls (the sampler's functions, for a replacement), it is an error. */
static int dlpi_row_failed(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_pipe *p = w->p;
    const dlpi_stage *st = w->st;
    uint32_t rec = dlpi_slot_rec(p, t->slot)[row], all = dlpi_rec_tries(rec), tries;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    if (DLPI_DEBUG && code == DLPI_OVERRUN) return dlpi_row_raise(w, t, row, code);
    if (code == DLP_END) { /* of the epoch */
        dlpi_row_end(w, t, row);
        return DLPI_ROW_DONE;
    }
    DLPI_STORE_RLX(&slot->dirty, 1u); /* ordered by done */
    if (dlpi_rec_stage(rec) == (uint32_t)st->work && dlpi_rec_kills(rec) > dlpi_kills_most(w))
        return dlpi_row_raise(w, t, row, dlpi_killed_say(w, t->slot, rec));
    tries = dlpi_row_tries(w, t, row, rec);
    if (code != DLP_SKIP && code != DLP_ERR_KILLED && (int)tries < st->w.retries) {
        dlpi_rec_set(p, t->slot, row,
                     dlpi_rec(dlpi_rec_state(rec), all < 127 ? all + 1 : all, dlpi_rec_repl(rec)) |
                         (rec & DLPI_REC_FAILED));
        DLPI_KEEP_ORDER(); /* X1: a crash in between costs no try */
        dlpi_slot_tries(p, t->slot, st)[row] = (uint16_t)(dlpi_rec_repl(rec) << 8 | ++tries);
        return dlpi_row_retry(w, t, row, tries);
    }
    if (code != DLP_SKIP && st->w.on_error == DLP_ON_ERROR_RAISE)
        return dlpi_row_raise(w, t, row, code);
    if (code != DLP_SKIP && !dlpi_skip_allowed(w)) return dlpi_row_raise(w, t, row, DLP_ERR_BUDGET);
    if (st->w.on_error == DLP_ON_ERROR_REPLACE && dlpi_wanted(p->ctl, slot))
        return dlpi_row_replace(w, t, row, code);
    dlpi_row_leave(w, t, row,
                   code != DLP_SKIP && p->open_end ? DLPI_REC_COUNTS | (uint32_t)st->work << 23
                                                   : 0);
    dlpi_bump(&w->wb->left_out, 1);
    dlpi_skip_note(w, code, UINT64_MAX);
    return DLPI_ROW_DONE;
}

/* Who killed its workers too often, or held one past its deadline, is not run again: it has failed.
   rec: of the row, or of the batch. Returns 0 or the code, with the message. */
static int dlpi_rec_verdict(dlpi_worker *w, uint32_t s, uint32_t rec) {
    const dlpi_stage *st = w->st;
    if (DLPI_LIKELY(dlpi_rec_kills(rec) == 0) || dlpi_rec_stage(rec) != (uint32_t)st->work)
        return 0;
    if (rec & DLPI_REC_LATE)
        return dlpi_say(w, DLP_ERR_DEADLINE,
                        "the callback ran past its deadline_ms %d, its worker was killed",
                        st->w.deadline_ms);
    return dlpi_rec_kills(rec) < dlpi_kills_most(w) ? 0 : dlpi_killed_say(w, s, rec);
}

/* Ragged lengths as the callback left them; tails are cleared. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_row_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        uint64_t n = w->length[f], unit;
        if (!d->f.ragged) {
            if (n == 0) continue;
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "field \"%s\" has a fixed size, a length of %" PRIu64 " was set",
                            d->name, n);
        }
        if (n > (uint64_t)d->f.shape[0]) {
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "field \"%s\" has %" PRIu64 " rows, its maximum is %" PRId64, d->name,
                            n, d->f.shape[0]);
        }
        unit = d->row_bytes / (uint64_t)d->f.shape[0];
        memset((uint8_t *)w->data[f] + n * unit, 0, d->row_bytes - n * unit);
        dlpi_slot_lengths(p, t->slot, f, 1)[row] = n;
    }
    return 0;
}

/* Lengths as the stage before left them. */
static void dlpi_item_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->items.n; f++)
        w->length[f] = w->st->work > 0 ? dlpi_slot_lengths(p, t->slot, f, 1)[row] : 0;
}

static inline bool dlpi_lengths_set(const dlpi_worker *w) {
    uint64_t any = w->p->items.any_ragged;
    for (uint32_t f = 0; f < w->p->items.n; f++) any |= w->length[f];
    return any != 0;
}

/* The sampler's function gave an index that the dataset does not have. */
static int dlpi_row_no_item(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    dlpi_say(w, 0, "sampler.function gave index %" PRIu64 ", the dataset has %" PRIu64 " items",
             w->item.index, w->p->fetch->dataset.n_items);
    return dlpi_row_raise(w, t, row, DLP_ERR_CALLBACK);
}

/* May the row be one that need not be fetched? */
static inline bool dlpi_row_kept(const dlpi_worker *w) {
    return w->st->work == 0 && w->p->keeper != NULL;
}

static inline bool dlpi_row_zeroed(const dlpi_worker *w) {
    return w->st->work == 0 && !w->p->fetch->dataset.fills_rows;
}

/* The row begins as zeros, where fetch does not write all of it. */
static inline void dlpi_row_zero(dlpi_worker *w) {
    const dlpi_fields *items = &w->p->items;
    if (!dlpi_row_zeroed(w)) return;
    for (uint32_t f = 0; f < items->n; f++) memset(w->data[f], 0, items->at[f].row_bytes);
}

static bool dlpi_row_has_extras(const dlpi_worker *w) {
    return dlpi_row_kept(w) || dlpi_row_zeroed(w) || w->own != NULL || w->p->items.any_ragged ||
           w->st->w.deadline_ms != 0;
}

/* What the source has for the row's callback. Apart: the address of the item would take a register
   of every row. */
__attribute__((noinline)) static void dlpi_row_own(dlpi_worker *w, uint32_t s, uint32_t row) {
    w->p->source->row(w, &w->item, s, row, w->own);
}

/* What some pipes want before a row's callback: asked for once a unit, not for each row, since an
   empty callback takes less time than the questions. Returns true if the row was kept. */
static bool dlpi_row_extras(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    if (dlpi_row_kept(w)) {
        DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2: no callback is to blame, if we die */
        if (p->keeper->ops->keeper->get(w, t, row)) return true;
        dlpi_bump(&w->wb->kept_misses, 1);
        w->note.drew = 0;
    }
    if (p->items.any_ragged) dlpi_item_lengths(w, t, row);
    dlpi_row_zero(w);
    if (w->own != NULL) dlpi_row_own(w, t->slot, row);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->wb->since_ns, dlpi_now_ns());
    return false;
}

/* The worker's item is to be one of this slot. */
static void dlpi_item_slot(dlpi_worker *w, uint32_t s) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint8_t *cell = dlpi_item_cell(p, s);
    for (uint32_t f = 0; f < p->items.n; f++) w->cell[f] = cell + p->items.at[f].offset;
    w->index = dlpi_slot_index(p, s);
    w->given.epoch = slot->epoch;
    w->given.worker_state = w->state;
    w->position = slot->position;
}

/* Make it that of this row, whatever a callback has made of it: one copy of the whole costs less
   than to look what of it has changed. Returns its position. */
static inline uint64_t dlpi_item_row(dlpi_worker *w, uint32_t row) {
    const dlp_pipe *p = w->p;
    uint64_t position = w->position + row;
    if (DLPI_UNLIKELY(position >= p->samples)) position %= p->samples;
    w->item = w->given;
    w->item.index = w->index[row];
    w->item.position = position;
    w->item.row = row;
    for (uint32_t f = 0, n = p->items.n; f < n; f++)
        w->data[f] = w->cell[f] + row * p->items.at[f].row_bytes;
    return position;
}

/* The code of what the callback of a row returned. Words that an item before has left are not
   those of this one. */
static int dlpi_row_returned(dlpi_worker *w, uint32_t row, int rc) {
    dlpi_item_row(w, row);
    if (w->note.said != row + 1) dlpi_words_forget(w);
    return dlpi_item_returned(w, rc);
}

/* The row's callback came to rc, a code that is not 0: what becomes of the row. Apart from those
   that are done, which are to cost little. */
__attribute__((noinline)) static int dlpi_row_wrong(dlpi_worker *w, const dlpi_unit *t,
                                                    uint32_t row, int rc) {
    int what = dlpi_row_failed(w, t, row, rc);
    dlpi_failure_forget(w);
    return what;
}

/* The row's callback is done. lengths: it set some. */
static int dlpi_row_finish(dlpi_worker *w, const dlpi_unit *t, uint32_t row, bool lengths) {
    int rc;
    dlpi_item_row(w, row);
    rc = lengths ? dlpi_row_lengths(w, t, row) : 0;
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_row_wrong(w, t, row, rc);
    if (dlpi_row_kept(w) && w->note.drew == 0) w->p->keeper->ops->keeper->put(w);
    return DLPI_ROW_DONE;
}

/* Call the stage's callback on one row, once. rec: its record. */
__attribute__((noinline)) static int dlpi_row_try(dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                                                  uint32_t rec) {
    const dlp_pipe *p = w->p;
    dlpi_wblock *wb = w->wb;
    dlp_item *it = &w->item;
    uint64_t index, position = dlpi_item_row(w, row);
    int rc = 0;
    bool lengths;
    index = it->index;
    DLPI_STORE_RLX(&wb->current, index); /* for observers */
    if (DLPI_UNLIKELY(rec != 0)) it->attempt = dlpi_rec_tries(rec);
    if (DLPI_UNLIKELY(index >= p->fetch->dataset.n_items)) return dlpi_row_no_item(w, t, row);
    DLPI_STORE_RLX(&wb->current_position, position);
    if (w->extras && dlpi_row_extras(w, t, row)) return DLPI_ROW_DONE;
    DLPI_STORE_RLX(&wb->running, (uint64_t)t->slot << 32 | (row + 1u)); /* X2 to recovery */
    if (DLPI_UNLIKELY(rec != 0)) rc = dlpi_rec_verdict(w, t->slot, rec);
    if (DLPI_LIKELY(rc == 0)) {
        if (DLPI_DEBUG) dlpi_guard_in(w, it, dlpi_guard_cell(w, 0), t->slot, row);
        rc = w->st->item(w->st->user, it);
        if (DLPI_UNLIKELY(DLPI_DEBUG || rc != 0)) rc = dlpi_row_returned(w, row, rc);
        if (DLPI_DEBUG) rc = dlpi_guard_out(w, it, dlpi_guard_cell(w, 0), t->slot, row, rc);
    }
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_row_wrong(w, t, row, rc);
    lengths = dlpi_lengths_set(w);
    if (DLPI_UNLIKELY(lengths || (w->extras && dlpi_row_kept(w))))
        return dlpi_row_finish(w, t, row, lengths);
    return DLPI_ROW_DONE;
}

/* The row is to be tried again, until it is done, parked, or goes back. */
static int dlpi_row_again(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    int what;
    do what = dlpi_row_try(w, t, row, dlpi_slot_rec(w->p, t->slot)[row]);
    while (what == DLPI_ROW_AGAIN);
    return what;
}

/* Call the stage's callback on one row until it is done, parked, or goes back. */
static inline int dlpi_row_run(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    int what = dlpi_row_try(w, t, row, t->plain ? 0 : dlpi_slot_rec(w->p, t->slot)[row]);
    return DLPI_LIKELY(what != DLPI_ROW_AGAIN) ? what : dlpi_row_again(w, t, row);
}

/* Begin a run of rows. */
static void dlpi_item_at(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    dlpi_item_slot(w, t->slot);
    w->mark = dlpi_slot_mark(slot);
    w->extras = dlpi_row_has_extras(w);
    w->note.said = 0;                                   /* of a run before */
    DLPI_STORE_RLX(&w->wb->current_epoch, slot->epoch); /* for observers */
}

/* Indices of rows [row, end), by the first stage's worker. */
static inline void dlpi_unit_indices(dlpi_worker *w, const dlpi_unit *t) {
    if (w->p->source->indices) w->p->source->indices(w, t);
}

/* Rows of a claimed unit that go back to the first stage. While others of the unit are parked they
   wait for those: the unit is freed as a whole. */
static void dlpi_unit_redo(dlpi_worker *w, const dlpi_unit *t, uint32_t rows, bool waits) {
    uint32_t first = t->row / DLPI_WORD_ROWS * DLPI_WORD_ROWS;
    if (!waits) {
        dlpi_rows_redo(w, t, rows);
        return;
    }
    for (; rows; rows &= rows - 1)
        dlpi_park(w, t, first + (uint32_t)__builtin_ctz(rows), DLPI_GOES_BACK);
}

/* The indices of rows of which some may have been run, replaced, or left by a worker that died:
   each follows from its record alone. */
static void dlpi_unit_indices_again(dlpi_worker *w, const dlpi_unit *t, uint32_t already) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint64_t *index = dlpi_slot_index(p, t->slot);
    for (uint32_t r = t->row; r < t->end; r++) {
        uint64_t at = (slot->position + r) % p->samples;
        uint32_t repl = dlpi_rec_repl(dlpi_slot_rec(p, t->slot)[r]);
        if (already >> r % DLPI_WORD_ROWS & 1u) continue;
        index[r] = p->source->item(w, t->slot, r, slot->epoch, at, repl);
    }
}

/* One row of a unit whose records say something, or that may be the epoch's end. Counts in *left
   what was not run, and sets *ended once the epoch is over. Returns DLPI_ROW_*. */
static int dlpi_unit_row(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t *left,
                         bool *ended) {
    const dlp_pipe *p = w->p;
    const uint32_t *rec = &dlpi_slot_rec(p, t->slot)[row];
    bool open = p->open_end != 0;
    int what = DLPI_ROW_DONE;
    if (!t->plain && dlpi_rec_state(*rec) == DLPI_ROW_LEFT) {
        dlpi_row_clear(p, t, row);
    } else if (open && (*ended || dlpi_rec_ended(t, *rec))) {
        dlpi_row_end(w, t, row);
    } else if (dlpi_mark_wanted(p->ctl, w->mark)) {
        what = dlpi_row_run(w, t, row);
        if (!open || dlpi_rec_state(*rec) != DLPI_ROW_END) return what;
        *ended = true;
    }
    ++*left;
    return what;
}

/* Work on a claimed unit of an item stage. */
static void dlpi_unit_items(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    dlpi_sst *sst = dlpi_sst_at(p, t->slot, w->st);
    uint32_t already = dlpi_done_bits(dlpi_done(sst), t->row / DLPI_WORD_ROWS, t->b) &
                       dlpi_unit_mask(t->row, t->end);
    uint32_t mask = 0;
    uint32_t redo = 0, later = 0, left = 0;
    bool simple = t->plain && p->open_end == 0, ended = false;
    DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2: it may be a row of this number */
    if (t->plain)
        dlpi_unit_indices(w, t);
    else if (w->st->work == 0)
        dlpi_unit_indices_again(w, t, already);
    if (p->keeper != NULL && w->st->work == 0 && t->end - t->row > 1)
        p->keeper->ops->keeper->ahead(p, t);
    dlpi_unpoison(p, t->slot);
    dlpi_item_at(w, t);
    for (uint32_t r = t->row; r < t->end; r++) {
        uint32_t bit = UINT32_C(1) << r % DLPI_WORD_ROWS;
        int what = DLPI_ROW_DONE;
        if (already & bit) continue;
        if (DLPI_UNLIKELY(!simple))
            what = dlpi_unit_row(w, t, r, &left, &ended);
        else if (dlpi_mark_wanted(p->ctl, w->mark))
            what = dlpi_row_run(w, t, r);
        else
            left++;
        if (what == DLPI_ROW_DONE) mask |= bit;
        if (what == DLPI_ROW_REDO) redo |= bit;
        if (what == DLPI_ROW_LATER) later |= bit;
    }
    left = (uint32_t)__builtin_popcount(mask) - left;
    dlpi_bump(&w->wb->items, left);
    dlpi_bump(&w->wb->bytes, left * p->items.cell_bytes);
    dlpi_clock_out(w, t->b, w->given.epoch, left);
    dlpi_complete(w, t, mask);
    if (redo != 0) dlpi_unit_redo(w, t, redo, later != 0);
}

/* A parked row that is tried again here when it is due; the others go back to the first stage. */
static bool dlpi_parked_stays(const dlpi_worker *w, const dlpi_parked *k) {
    return w->st->work == 0 || (w->st->w.idempotent && k->due_ns != DLPI_GOES_BACK);
}

/* Parked rows of t's unit; may all of them go back now? */
static bool dlpi_group_due(const dlpi_worker *w, const dlpi_unit *t, uint64_t now, uint32_t *rows) {
    uint32_t shift = dlpi_pub_shift(DLPI_LOAD_RLX(&dlpi_slot_at(w->p, t->slot)->pub)); /* claimed */
    *rows = 0;
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        if (k->slot != t->slot || k->row >> shift != t->unit) continue;
        if (k->due_ns > now || dlpi_parked_stays(w, k)) return false;
        *rows |= UINT32_C(1) << k->row % DLPI_WORD_ROWS;
    }
    return true;
}

/* Can this parked row, which is due, do anything now? */
static bool dlpi_parked_moves(const dlpi_worker *w, const dlpi_parked *k, uint64_t now) {
    /* claimed */
    uint32_t shift = dlpi_pub_shift(DLPI_LOAD_RLX(&dlpi_slot_at(w->p, k->slot)->pub)), rows;
    dlpi_unit t = {k->gen, k->slot, k->row >> shift, k->row, k->row + 1, false};
    return dlpi_parked_stays(w, k) || dlpi_group_due(w, &t, now, &rows);
}

static void dlpi_parked_remove(dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    uint32_t word = t->row / DLPI_WORD_ROWS;
    int n = 0;
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        bool in = k->slot == t->slot && k->row / DLPI_WORD_ROWS == word &&
                  (rows >> k->row % DLPI_WORD_ROWS & 1u) != 0;
        if (!in) w->parked[n++] = *k;
    }
    w->n_parked = n;
}

/* One row is done. n: 1, or 0 if nobody worked on it. */
static void dlpi_row_done(dlpi_worker *w, const dlpi_unit *t, uint32_t n) {
    dlpi_bump(&w->wb->items, n);
    dlpi_bump(&w->wb->bytes, n * w->p->items.cell_bytes);
    dlpi_complete(w, t, UINT32_C(1) << t->row % DLPI_WORD_ROWS);
}

/* Does a row that is done count: did its stream not end there? */
static bool dlpi_row_counts(const dlpi_worker *w, const dlpi_unit *t) {
    return dlpi_rec_state(dlpi_slot_rec(w->p, t->slot)[t->row]) != DLPI_ROW_END;
}

/* One more try of a parked row, by a worker that has one at a time. */
static void dlpi_row_parked(dlpi_worker *w, const dlpi_unit *t) {
    bool wanted;
    int what = DLPI_ROW_DONE;
    dlpi_clock_in(w);
    dlpi_item_at(w, t);
    wanted = dlpi_mark_wanted(w->p->ctl, w->mark);
    if (wanted) what = dlpi_row_run(w, t, t->row);
    dlpi_clock_out(w, t->b, w->given.epoch, wanted);
    if (what == DLPI_ROW_DONE) dlpi_row_done(w, t, wanted && dlpi_row_counts(w, t));
    if (what == DLPI_ROW_REDO) dlpi_park(w, t, t->row, DLPI_GOES_BACK);
}

/* A parked row that is due: let it be tried again, or send it and those of its unit back. Returns
   whether there was one. */
static bool dlpi_unpark(dlpi_worker *w, void (*try_again)(dlpi_worker *, const dlpi_unit *)) {
    const dlp_pipe *p = w->p;
    uint64_t now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        dlpi_parked k = w->parked[i];
        dlpi_unit t = {k.gen, k.slot, 0, k.row, k.row + 1, false};
        bool cancelled = !dlpi_wanted(p->ctl, dlpi_slot_at(p, k.slot));
        bool again = dlpi_parked_stays(w, &k) || cancelled;
        uint32_t rows, group = 1;
        if (k.due_ns > now && !cancelled) continue;
        /* claimed */
        t.unit = k.row >> dlpi_pub_shift(DLPI_LOAD_RLX(&dlpi_slot_at(p, k.slot)->pub));
        if (!again && !dlpi_group_due(w, &t, now, &group)) continue;
        rows = again ? UINT32_C(1) << k.row % DLPI_WORD_ROWS : group;
        dlpi_parked_remove(w, &t, rows);
        if (again)
            try_again(w, &t);
        else
            dlpi_rows_redo(w, &t, rows);
        return true;
    }
    return false;
}

/* ---- a worker of rows ---- */

/* Is there no room for another unit whose rows may all be parked? */
static bool dlpi_rows_full(const dlpi_worker *w) {
    return w->n_parked + (int)DLPI_WORD_ROWS > w->parked_most;
}

static inline bool dlpi_unit_find(dlpi_worker *w, dlpi_unit *t) {
    if (dlpi_rows_full(w) || DLPI_UNLIKELY(dlpi_retired(w))) return false;
    return dlpi_find(w, t);
}

static bool dlpi_rows_find(dlpi_worker *w, dlpi_unit *t) { return dlpi_unit_find(w, t); }

static void dlpi_rows_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_unit_items(w, t);
}

static bool dlpi_rows_step(dlpi_worker *w) {
    dlpi_unit t;
    bool moved = w->n_parked > 0 && dlpi_unpark(w, dlpi_row_parked);
    if (!dlpi_unit_find(w, &t)) return moved;
    dlpi_rows_run(w, &t);
    return true;
}

static bool dlpi_rows_owes(const dlpi_worker *w) { return w->n_parked > 0; }

/* ns until a parked row may move. One that is due may wait for others of its unit. */
static uint64_t dlpi_rows_due(dlpi_worker *w, uint64_t ns) {
    uint64_t now;
    if (w->n_parked == 0) return ns;
    now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        if (k->due_ns > now && k->due_ns - now < ns) ns = k->due_ns - now;
        if (k->due_ns <= now && dlpi_parked_moves(w, k, now)) return 0;
    }
    return ns;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-collate    BATCHES OUT OF ITEMS */

/* UINT64_MAX when it is too much */
static uint64_t dlpi_shape_count(const int64_t *shape, int ndim) {
    uint64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && n > (UINT64_C(1) << 62) / (uint64_t)shape[i]))
            return UINT64_MAX;
        n *= (uint64_t)shape[i];
    }
    return n;
}

static void dlpi_rows_valid(const dlp_pipe *p, uint32_t s, uint8_t *valid) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    for (uint32_t r = 0; r < dlpi_slot_at(p, s)->count; r++)
        valid[r] = dlpi_rec_state(rec[r]) == DLPI_ROW_OK;
}

/* What a collate may use of batch t. */
static void dlpi_collate_begin(dlpi_worker *w, const dlpi_unit *t, dlp_collate *c) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint8_t *valid = (uint8_t *)dlpi_slot_at(p, t->slot) + p->slot.valid;
    memset(c, 0, sizeof *c);
    dlpi_rows_valid(p, t->slot, valid);
    c->sequence = slot->sequence;
    c->epoch = slot->epoch;
    c->position = slot->position;
    c->count = dlpi_slot_rows(p, t->slot);
    c->worker = (uint32_t)w->id;
    c->worker_state = w->state;
    c->index = dlpi_slot_index(p, t->slot);
    c->valid = valid;
    c->n_in = p->items.n;
    c->n_out = p->batches.n;
    c->in = w->in;
    c->out = w->out;
    c->internal = &w->note;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        struct dlp_collate_in in = {&d->f, dlpi_item_cell(p, t->slot) + d->offset, d->row_bytes,
                                    d->f.ragged ? dlpi_slot_lengths(p, t->slot, f, 1) : NULL};
        w->in[f] = in;
    }
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        struct dlp_collate_out *out = &w->out[f];
        memset(out, 0, sizeof *out);
        out->field = &d->f;
        out->data = dlpi_batch_cell(p, t->slot) + d->offset;
        out->capacity = d->capacity;
        out->ndim = d->f.ndim + 1;
        out->shape[0] = c->count;
        for (int i = 0; i < d->f.ndim; i++) out->shape[i + 1] = d->f.shape[i];
        out->lengths = dlpi_slot_lengths(p, t->slot, f, 0);
        out->offsets = dlpi_slot_offsets(p, t->slot, f);
        memset(out->lengths, 0, c->count * sizeof *out->lengths);
        memset(out->offsets, 0, (c->count + 1) * sizeof *out->offsets);
        memset(out->data, 0, (size_t)d->capacity);
    }
}

/* Take over what the collate said of its fields. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_collate_end(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        const struct dlp_collate_out *out = &w->out[f];
        dlpi_fmeta *m = &dlpi_slot_fmeta(p, t->slot)[f];
        uint64_t n = out->ndim >= 0 && out->ndim <= DLP_MAX_DIMS
                         ? dlpi_shape_count(out->shape, out->ndim)
                         : UINT64_MAX;
        if (n > d->capacity / d->elem_bytes) {
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "the collate gave field \"%s\" a shape that does "
                            "not fit its %" PRIu64 " bytes",
                            d->name, d->capacity);
        }
        m->bytes = n * d->elem_bytes;
        m->ndim = out->ndim;
        m->has_offsets = out->has_offsets != 0;
        memcpy(m->shape, out->shape, sizeof m->shape);
    }
    return 0;
}

/* The row bytes of a dimension-0 row of an item field. */
static uint64_t dlpi_unit_bytes(const struct dlp_collate_in *in) {
    return in->field->ragged ? in->stride / (uint64_t)in->field->shape[0] : in->stride;
}

/* The row that has the most rows of dimension 0. */
static uint32_t dlpi_longest(const dlp_collate *c, const struct dlp_collate_in *in) {
    uint32_t longest = 0;
    for (uint32_t r = 1; r < c->count; r++)
        if (in->lengths[r] > in->lengths[longest]) longest = r;
    return longest;
}

static bool dlpi_fields_alike(const dlp_field *a, const dlp_field *b) {
    bool alike = a->dtype == b->dtype && a->ndim == b->ndim && a->ragged == b->ragged;
    for (int i = 0; alike && i < a->ndim; i++) alike = a->shape[i] == b->shape[i];
    return alike;
}

static int dlpi_collate_fields(const dlp_collate *c) {
    bool alike = c->n_in == c->n_out;
    for (uint32_t f = 0; alike && f < c->n_in; f++)
        alike = dlpi_fields_alike(c->in[f].field, c->out[f].field);
    return alike ? 0
                 : dlp_collate_fail(
                       c, 0, "a built-in collate needs out_fields to be NULL, or the dataset's");
}

DLPDEF int dlp_collate_pad(void *user, dlp_collate *c) {
    DLPI_UNUSED(user);
    if (dlpi_collate_fields(c) != 0) return DLP_ERR_CALLBACK;
    for (uint32_t f = 0; f < c->n_in; f++) {
        const struct dlp_collate_in *in = &c->in[f];
        struct dlp_collate_out *out = &c->out[f];
        bool ragged = in->field->ragged != 0 && c->count > 0;
        uint32_t longest = ragged ? dlpi_longest(c, in) : 0;
        uint64_t unit = dlpi_unit_bytes(in), wide = ragged              ? in->lengths[longest]
                                                    : in->field->ragged ? 0
                                                                        : 1;
        if (unit * wide * c->count > out->capacity)
            return dlp_collate_fail(c, 0,
                                    "field \"%s\": %" PRIu32 " rows padded to the %" PRIu64
                                    " of item %" PRIu64 " are more than max_per_batch",
                                    in->field->name, c->count, wide, c->index[longest]);
        for (uint32_t r = 0; r < c->count; r++) {
            uint64_t n = in->field->ragged ? in->lengths[r] : 1;
            memcpy((uint8_t *)out->data + r * wide * unit,
                   (const uint8_t *)in->data + r * in->stride, (size_t)(n * unit));
            if (in->field->ragged) out->lengths[r] = n;
        }
        if (in->field->ragged) out->shape[1] = (int64_t)wide;
    }
    return 0;
}

static int dlpi_pack_field(const dlp_collate *c, const struct dlp_collate_in *in,
                           struct dlp_collate_out *out) {
    uint64_t unit = dlpi_unit_bytes(in), at = 0;
    for (uint32_t r = 0; r < c->count; r++) {
        uint64_t n = in->lengths[r];
        if ((at + n) * unit > out->capacity)
            return dlp_collate_fail(c, 0,
                                    "field \"%s\" has more rows in this batch than max_per_batch; "
                                    "item %" PRIu64 " is the first past it",
                                    in->field->name, c->index[r]);
        memcpy((uint8_t *)out->data + at * unit, (const uint8_t *)in->data + r * in->stride,
               (size_t)(n * unit));
        out->lengths[r] = n;
        out->offsets[r] = at;
        at += n;
    }
    out->offsets[c->count] = at;
    out->has_offsets = 1;
    out->ndim = in->field->ndim;
    for (int i = 1; i < in->field->ndim; i++) out->shape[i] = in->field->shape[i];
    out->shape[0] = (int64_t)at;
    return 0;
}

DLPDEF int dlp_collate_pack(void *user, dlp_collate *c) {
    DLPI_UNUSED(user);
    if (dlpi_collate_fields(c) != 0) return DLP_ERR_CALLBACK;
    for (uint32_t f = 0; f < c->n_in; f++) {
        const struct dlp_collate_in *in = &c->in[f];
        int rc = 0;
        if (in->field->ragged)
            rc = dlpi_pack_field(c, in, &c->out[f]);
        else
            memcpy(c->out[f].data, in->data, (size_t)(in->stride * c->count));
        if (rc != 0) return rc;
    }
    return 0;
}

/* The batch in slot s as a callback or the caller sees it. */
static void dlpi_batch_view(const dlp_pipe *p, uint32_t s, dlp_batch *b, dlp_tensor *fields) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    b->sequence = slot->sequence;
    b->epoch = slot->epoch;
    b->position = slot->position;
    b->in_epoch = slot->in_epoch;
    b->count = dlpi_slot_rows(p, s);
    b->flags = slot->flags;
    if (b->count < slot->count) b->flags |= DLP_BATCH_LAST; /* a stream has ended here */
    b->valid_count = b->count;
    b->valid = p->ones;
    if (DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty)) { /* ordered by ready */
        uint8_t *valid = (uint8_t *)dlpi_slot_at(p, s) + p->slot.valid;
        dlpi_rows_valid(p, s, valid);
        b->valid = valid;
        b->valid_count = 0;
        for (uint32_t r = 0; r < b->count; r++) b->valid_count += valid[r];
    }
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        if (p->staged) {
            const dlpi_fmeta *m = &dlpi_slot_fmeta(p, s)[f];
            fields[f].bytes = m->bytes;
            fields[f].ndim = m->ndim;
            memcpy(fields[f].shape, m->shape, sizeof m->shape);
            fields[f].offsets = m->has_offsets ? dlpi_slot_offsets(p, s, f) : NULL;
        } else {
            fields[f].bytes = b->count * d->row_bytes;
            fields[f].shape[0] = b->count;
        }
    }
}

/* The parts of a view that stay the same for slot s. */
static void dlpi_batch_view_init(const dlp_pipe *p, uint32_t s, dlp_batch *b, dlp_tensor *fields) {
    memset(b, 0, sizeof *b);
    b->n_fields = p->batches.n;
    b->fields = fields;
    b->index = dlpi_slot_index(p, s);
    b->internal = (void *)(uintptr_t)s;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        memset(&fields[f], 0, sizeof fields[f]);
        fields[f].name = d->name;
        fields[f].data = dlpi_batch_cell(p, s) + d->offset;
        fields[f].dtype = d->f.dtype;
        fields[f].ndim = d->f.ndim + 1;
        for (int i = 0; i < d->f.ndim; i++) fields[f].shape[i + 1] = d->f.shape[i];
        if (d->f.ragged) fields[f].lengths = dlpi_slot_lengths(p, s, f, 0);
    }
}

static int dlpi_batch_callback(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlp_collate c;
    int rc;
    if (w->st->kind == DLP_STAGE_MAP_BATCH) {
        dlpi_batch_view_init(p, t->slot, &w->batch, w->tensors);
        dlpi_batch_view(p, t->slot, &w->batch, w->tensors);
        rc = dlpi_returned(w, w->st->batch(w->st->user, &w->batch, w->state));
        return dlpi_guard_batch(w, t->slot, rc);
    }
    if (w->st->collate == NULL) return 0; /* batch workers without a collate only close */
    dlpi_collate_begin(w, t, &c);
    rc = dlpi_returned(w, w->st->collate(w->st->user, &c));
    rc = dlpi_guard_batch(w, t->slot, rc);
    return rc != 0 ? rc : dlpi_collate_end(w, t);
}

/* Wait before a retry, in pieces: a stop ends it. */
static void dlpi_batch_backoff(const dlpi_worker *w, uint64_t ns) {
    const uint64_t piece = 20000000;
    for (; ns > piece && !dlpi_stopped(w->p); ns -= piece) dlpi_nap(piece);
    if (!dlpi_stopped(w->p)) dlpi_nap(ns);
}

/* Does this stage change the batch in place, so that half of a change may have been made? */
static bool dlpi_batch_in_place(const dlpi_stage *st) {
    return st->kind == DLP_STAGE_MAP_BATCH && !st->w.idempotent;
}

/* A batch callback begins: its time counts from now, and what it says is of this batch. */
static void dlpi_batch_begins(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_words_forget(w);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->wb->since_ns, dlpi_now_ns());
    DLPI_STORE_RLX(&w->wb->running, (uint64_t)t->slot << 32 | UINT32_MAX); /* X2 to recovery */
}

/* The wait before a retry is no callback's time. */
static void dlpi_batch_pauses(dlpi_worker *w, uint64_t ns) {
    DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2 */
    if (ns == 0) return;
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->wb->since_ns, dlpi_now_ns() + ns);
    dlpi_batch_backoff(w, ns);
}

/* How often batch b failed in this stage: a stage of batches has its done words for that.
   batch + 1 (56) | tries (8) */
static uint32_t dlpi_batch_tries(const dlpi_worker *w, const dlpi_unit *t) {
    uint64_t word = DLPI_LOAD_RLX(dlpi_done(dlpi_sst_at(w->p, t->slot, w->st))); /* X1: claimed */
    return word >> 8 == t->b + 1 ? (uint32_t)word & 255u : 0;
}

static void dlpi_batch_failed(const dlpi_worker *w, const dlpi_unit *t, uint32_t tries) {
    dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    uint32_t all = dlpi_rec_tries(DLPI_LOAD_RLX(&slot->batch_rec)); /* X1: claimed */
    DLPI_STORE_REL(dlpi_done(dlpi_sst_at(w->p, t->slot, w->st)), (t->b + 1) << 8 | tries); /* X1 */
    DLPI_STORE_REL(&slot->batch_rec, dlpi_rec(0, all < 127 ? all + 1 : all, 0));           /* X1 */
}

/* Run the callback once more, until it succeeds or its tries are used up. Returns 0 or the code of
   a failure; DLPI_WENT_BACK, which is no code: the batch goes through the stages before once
   more. */
static int dlpi_batch_try(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    for (;;) {
        uint32_t rec = DLPI_LOAD_RLX(&slot->batch_rec), tries; /* X1: ours, claimed */
        int rc;
        dlpi_batch_begins(w, t);
        rc = dlpi_rec_verdict(w, t->slot, rec);
        if (rc == 0) rc = dlpi_batch_callback(w, t);
        tries = dlpi_batch_tries(w, t) + 1;
        if (rc == 0 || dlpi_never_again(rc) || (int)tries > w->st->w.retries) return rc;
        dlpi_bump(&w->wb->retried, 1);
        dlpi_batch_failed(w, t, tries);
        dlpi_batch_pauses(w, w->st->w.retry_backoff_ms ? dlpi_backoff_ns(w->st, tries) : 0);
        if (dlpi_stopped(w->p)) return rc;
        dlpi_failure_forget(w);
        if (!dlpi_batch_in_place(w->st)) continue;
        dlpi_clock_out(w, t->b, slot->epoch, 0);
        dlpi_batch_redo(w, t->slot, t->b);
        return DLPI_WENT_BACK;
    }
}

/* Work on a claimed batch. */
static void dlpi_unit_batch(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    bool skip = dlpi_slot_idle(p, t->slot);
    uint64_t *ready;
    int rc = 0;
    DLPI_STORE_RLX(&w->wb->current, t->b); /* for observers */
    dlpi_unpoison(p, t->slot);
    if (!skip) rc = dlpi_batch_try(w, t);
    if (rc == DLPI_WENT_BACK) return;
    if (rc != 0) {
        dlp_error e;
        dlpi_describe(w, rc, &e);
        e.epoch = slot->epoch;
        e.position = slot->position;
        dlpi_slot_fail(slot, (uint32_t)w->global, &e);
        dlpi_failure_forget(w);
    }
    dlpi_bump(&w->wb->items, 1);
    dlpi_bump(&w->wb->bytes, p->batches.cell_bytes * slot->count);
    dlpi_clock_out(w, t->b, slot->epoch, 1);
    ready = &dlpi_sst_at(p, t->slot, w->st)->ready;
    DLPI_STORE_SEQ(ready, dlpi_ready_word(DLPI_LOAD_RLX(ready), t->b)); /* Y1 -> Y1 */
    dlpi_ready_wake(p, w, t);
}

static void dlpi_batches_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_unit_batch(w, t);
}

static bool dlpi_batches_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_unit_find(w, &t)) return false;
    dlpi_batches_run(w, &t);
    return true;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-workers    STEPS, WAITING, THREADS
   A stage is a step: claim a unit, work on it, pass it on, say whether anything moved. Where it
   runs is decided elsewhere: dlpi_step is called by the caller for inline stages and by threads. */

/* ns until a worker has to look for itself, whoever wakes it; at most a sleep. */
static uint64_t dlpi_worker_due(dlpi_worker *w) {
    return w->st->ops->due != NULL ? w->st->ops->due(w, DLPI_SLEEP_NS) : DLPI_SLEEP_NS;
}

static inline bool dlpi_owes(const dlpi_worker *w) {
    return w->st->ops->owes != NULL && w->st->ops->owes(w);
}

static inline bool dlpi_full(const dlpi_worker *w) {
    return w->st->ops->full != NULL && w->st->ops->full(w);
}

/* Retired, and nothing that it has claimed is still to come back? */
static inline bool dlpi_may_park(const dlpi_worker *w) {
    return DLPI_UNLIKELY(dlpi_retired(w)) && !dlpi_owes(w);
}

/* The last look before a sleep. What was claimed is run once the worker is no longer taken for
   asleep; a stage whose units nobody else can take does them at once. */
static bool dlpi_last_look(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_stage_ops *ops = w->st->ops;
    return ops->find != NULL ? ops->find(w, t) : ops->step(w);
}

/* Nobody wakes a worker that is retired or has no room for work: it looks often whether the pipe
   stops. */
static void dlpi_worker_rest(const dlpi_worker *w, uint64_t ns) {
    if (ns > 0 && !dlpi_stopped(w->p)) dlpi_nap(ns < DLPI_FULL_NS ? ns : DLPI_FULL_NS);
}

/* The worker can take no work from here on. Returns whether somebody woke it while it could: who
   wakes clears the bit, so of the two one alone finds it set. */
static bool dlpi_bit_clear(dlpi_bell *bell, uint32_t bit) {
    if ((DLPI_LOAD_SEQ(&bell->mask) & bit) == 0) return true; /* B1 <- B1 */
    return (DLPI_AND_SEQ(&bell->mask, ~bit) & bit) == 0;      /* B1 <-> B1 */
}

/* Why no wake-up is lost: the word is read, then the bit is set, then the worker looks once more. A
   batch that is published before that look is found by it; who publishes one behind it sees the bit
   (B1 is sequentially consistent with what the look reads), clears it and changes the word, so the
   futex does not sleep, or is woken.
   Why none is wasted: a set bit says that its worker can take work now. So it is cleared before
   work that the last look found; a wake-up that came in between was for other work, and is passed
   on; and who has no room for work sets none.
   Should a wake-up be lost all the same (its sender died), the first of those asleep looks after
   DLPI_SLEEP_NS. The others rely on it for ten times as long: many that each look would cost more
   than idleness may. */
static void dlpi_worker_sleep(dlpi_worker *w) {
    dlpi_bell *bell = &w->bell->bell[w->id / 32];
    uint32_t bit = 1u << w->id % 32, asleep;
    uint64_t ns = dlpi_worker_due(w);
    dlpi_unit t;
    bool found = false, woken;
    uint32_t word = DLPI_LOAD_SEQ(&bell->word); /* B1 <- B1: before the bit */
    if (dlpi_may_park(w)) return;
    if (dlpi_full(w) || dlpi_retired(w)) {
        dlpi_worker_rest(w, ns);
        return;
    }
    asleep = DLPI_OR_SEQ(&bell->mask, bit); /* B1 -> B1 */
    if (!dlpi_owes(w) && (asleep & (bit - 1u)) != 0) ns *= 10;
    if (ns > 0 && !dlpi_stopped(w->p)) {
        found = dlpi_last_look(w, &t);
        if (!found && !dlpi_retired(w))
            dlpi_futex_wait(&bell->word, word, bit, ns, (int)w->bell->shared);
    }
    woken = dlpi_bit_clear(bell, bit);
    if (woken && (found || dlpi_retired(w)) && w->st->w.dispatch != DLP_DISPATCH_BATCHES)
        dlpi_ring(w->bell, (uint32_t)w->st->n_workers, 1);
    if (found && w->st->ops->find != NULL) w->st->ops->run(w, &t);
}

/* Sleep until the tuner lets this worker work again: no bit in the mask, so that nobody rings it
   for work, and a look round each second only. */
static void dlpi_worker_park(dlpi_worker *w) {
    dlpi_bell *bell = &w->bell->bell[w->id / 32];
    dlpi_clock_stop(w);
    dlpi_trace_flush(w);
    DLPI_STORE_RLX(&w->wb->current, UINT64_MAX);
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_PARKED);
    dlpi_cpu_note(w, &w->cpu, dlpi_now_ns());
    while (!dlpi_stopped(w->p)) {
        uint32_t word = DLPI_LOAD_SEQ(&bell->word); /* B1 <- B1: before the look at active */
        if (!dlpi_retired(w)) break;
        dlpi_futex_wait(&bell->word, word, 1u << w->id % 32, 10 * DLPI_SLEEP_NS,
                        (int)w->bell->shared);
    }
    w->tail_seen = w->low; /* dlpi_find reads the tail, and does not go through all since then */
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_STARVED);
}

/* Does this worker wait for the caller, who has not taken the batches that are there? All units
   that were fed are claimed here, and there is no credit to feed more. */
static bool dlpi_no_credit(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t delivered = DLPI_LOAD_RLX(&p->ctl->delivered); /* statistics, as the tail */
    uint64_t tail = DLPI_LOAD_RLX(&p->ctl->tail);
    if (tail - delivered < p->prefetch) return false;
    return w->low == tail;
}

/* Nothing to do: spin a little, yield where threads outnumber the cores, then sleep. */
static void dlpi_worker_wait(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    bool (*step)(dlpi_worker *) = w->st->ops->step;
    if (dlpi_may_park(w)) {
        dlpi_worker_park(w);
        return;
    }
    dlpi_clock_stop(w);
    w->wait_ns = dlpi_now_ns();
    DLPI_STORE_RLX(&w->wb->current, UINT64_MAX);
    w->blocked = w->st->ops->unit == DLPI_UNIT_CELLS || dlpi_no_credit(w);
    DLPI_STORE_RLX(&w->wb->state, w->blocked ? DLP_WORKER_BLOCKED : DLP_WORKER_STARVED);
    for (int i = 0; i < p->spin_rounds + p->yield_rounds; i++) {
        if (i < p->spin_rounds)
            dlpi_pause();
        else
            sched_yield();
        if (step(w) || dlpi_stopped(p) || dlpi_may_park(w)) goto moved;
    }
    dlpi_cpu_note(w, &w->cpu, w->wait_ns);
    dlpi_trace_flush(w); /* who looks while it sleeps sees all that it did */
    while (!dlpi_stopped(p)) {
        dlpi_worker_sleep(w);
        if (w->last_ns != 0 || step(w) || dlpi_may_park(w)) break; /* it worked, or is over */
    }
moved:
    if (w->wait_ns != 0) dlpi_wait_over(w, dlpi_now_ns());
}

static void dlpi_tid_note(dlpi_worker *w) { /* for people */
    DLPI_STORE_RLX(&w->wb->tid, (int32_t)syscall(SYS_gettid));
    DLPI_STORE_RLX(&w->wb->pid, (int32_t)getpid());
}

static int dlpi_worker_begin(dlpi_worker *w) {
    const dlp_workers_desc *d = &w->st->w;
    int rc;
    dlp_error e;
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_STARTING);
    dlpi_tid_note(w);
    rc = d->worker_init ? d->worker_init(d->worker_user, w->id, &w->state) : 0;
    if (rc == 0 && w->st->ops->enter != NULL && (rc = w->st->ops->enter(w)) != DLP_OK) {
        if (d->worker_exit) d->worker_exit(d->worker_user, w->id, w->state);
        return rc;
    }
    if (rc == 0) return DLP_OK;
    dlpi_words_forget(w); /* of who died before in this place */
    dlpi_describe(w, dlpi_returned(w, rc), &e);
    snprintf(e.message, sizeof e.message, "worker_init returned %d", rc);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_CALLBACK;
}

static void dlpi_worker_end(dlpi_worker *w, int began) {
    const dlp_workers_desc *d = &w->st->w;
    if (w->st->ops->leave != NULL) w->st->ops->leave(w);
    dlpi_clock_stop(w);
    dlpi_trace_flush(w);
    DLPI_STORE_RLX(&w->wb->current, UINT64_MAX);
    if (began == DLP_OK && d->worker_exit) d->worker_exit(d->worker_user, w->id, w->state);
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_EXITED);
}

static void dlpi_thread_dress(const dlpi_worker *w) {
    char name[16];
    const dlpi_stage *st = w->st;
    snprintf(name, sizeof name, "%.11s-%d", st->name, w->id);
    pthread_setname_np(pthread_self(), name);
    if (st->w.n_affinity > 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)st->affinity[w->id % st->w.n_affinity], &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}

static void dlpi_thread_over(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_EXITED);
    DLPI_ADD_SEQ(&p->live_word, 1u); /* L1 -> L1: close counts the threads that ended */
    dlpi_futex_wake(&p->live_word, INT_MAX, UINT32_MAX, 0);
}

static void *dlpi_thread_worker(void *arg) {
    dlpi_worker *w = arg;
    int began;
    dlpi_thread_dress(w);
    began = dlpi_worker_begin(w);
    while (began == DLP_OK && !dlpi_stopped(w->p))
        if (!w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_worker_end(w, began);
    dlpi_thread_over(w);
    return NULL;
}

/* Where there are consumers, the feeder also keeps their books, until they have all. Where there
   are none, the caller may seek back when all is fed. */
static bool dlpi_feeder_step(dlp_pipe *p) {
    bool moved = p->share && dlpi_shm->keep(p);
    return dlpi_feed(p, 1) > 0 || moved;
}

static bool dlpi_feeder_over(const dlp_pipe *p) {
    return p->feed.ended && p->share != NULL && DLPI_LOAD_RLX(&p->share->over) != 0; /* H1 */
}

static void *dlpi_thread_feeder(void *arg) {
    dlpi_worker *w = arg;
    dlp_pipe *p = w->p;
    dlpi_ctl *ctl = p->ctl;
    dlpi_thread_dress(w);
    while (!dlpi_stopped(p) && !dlpi_feeder_over(p)) {
        uint32_t word;
        if (dlpi_feeder_step(p)) continue;
        word = DLPI_LOAD_SEQ(&ctl->feeder_word); /* B1 <- B1 */
        DLPI_STORE_SEQ(&ctl->feeder_sleeps, 1u); /* B1 -> B1 */
        if (!dlpi_feeder_step(p) && !dlpi_stopped(p) && !dlpi_feeder_over(p))
            dlpi_futex_wait(&ctl->feeder_word, word, UINT32_MAX, /* dead consumers ring no bell */
                            p->share ? DLPI_SLEEP_NS / 2 : DLPI_SLEEP_NS, (int)ctl->shared);
        DLPI_STORE_SEQ(&ctl->feeder_sleeps, 0u); /* B1 */
    }
    dlpi_thread_over(w);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-recover    WHAT A DEAD WORKER HAD
   Done by one process, the supervisor of dlpipe_shm.h, while the other workers go on; after the
   kernel has said that worker w is dead, so that no store of it is to come. What it had is what own
   words carry its number. Of each such unit the record of completion is read before anything is
   given up: the done word of its rows once (an item stage), ready (a batch stage). If it is of a
   newer batch, or complete, there is nothing to give up. If it is not, nobody but the dead one
   could complete the unit, so its batch can neither be closed nor leave the slot, and what follows
   is alone with it:
     rows of the first stage, or of an idempotent one   their unit is freed
     rows of another item stage, or given to another
     item by an idempotent one                          go back to fetch (dlpi_rows_redo)
     a batch in a collate, or in an idempotent map      its claim is freed
     a batch in another map                             goes back (dlpi_batch_redo)
   A worker may also die between setting the last bit and closing the batch, between closing it and
   waking, between taking a sleeper's bit and waking him, while it sends rows or a batch back, and
   while it writes an error. So each full batch is closed, every stage looks again without hints,
   everybody is woken whatever the masks say, claims that carry its mark are freed, and a
   half-written error is replaced by one that is whole. All of it may be done twice. */

/* The 64-bit batch number of a generation near the tail. */
static uint64_t dlpi_gen_batch(const dlp_pipe *p, uint64_t gen) {
    uint64_t tail = DLPI_LOAD_SEQ(&p->ctl->tail); /* T1 <- T1 */
    uint64_t ahead = (gen - tail) & DLPI_GEN_MASK;
    bool behind = ahead >> (DLPI_GEN_BITS - 1) != 0;
    return tail + ahead - (behind ? DLPI_GEN_MASK + 1 : 0);
}

/* Did the dead worker run a row (UINT32_MAX: the batch) of unit t when it died? Of several at once
   each may be what killed it; but who was late is known. */
static bool dlpi_was_running(const dlpi_worker *w, const dlpi_unit *t, const dlpi_death *why,
                             uint32_t *row) {
    uint64_t running = DLPI_LOAD_RLX(&w->wb->running); /* X2 of a dead worker */
    for (uint32_t i = 0; !why->late && i < w->n_at_once; i++) {
        uint64_t one = DLPI_LOAD_RLX(&w->at_once[i]); /* X2 of a dead worker */
        if (one == ((uint64_t)t->slot << 32 | (t->row + 1u))) running = one;
    }
    if (running == 0 || running >> 32 != t->slot) return false;
    *row = (uint32_t)running == UINT32_MAX ? UINT32_MAX : (uint32_t)running - 1;
    return true;
}

/* Rows of unit t that are not done; 0 when the unit is complete or its batch gone. */
static uint32_t dlpi_unit_missing(const uint64_t *done, const dlpi_unit *t) {
    uint64_t word = DLPI_LOAD_SEQ(&done[t->row / DLPI_WORD_ROWS]); /* D1 <- D1 */
    uint32_t mask = dlpi_unit_mask(t->row, t->end);
    int32_t newer = (int32_t)((uint32_t)(word >> 32) - (uint32_t)t->b);
    if (newer > 0) return 0;
    return newer == 0 ? mask & ~(uint32_t)word : mask;
}

/* Was one of these rows given to another item? Then fetch has perhaps not seen it yet. */
static bool dlpi_rows_replaced(const dlp_pipe *p, const dlpi_unit *t, uint32_t rows) {
    for (uint32_t r = t->row; r < t->end; r++)
        if ((rows >> r % DLPI_WORD_ROWS & 1u) != 0 &&
            dlpi_rec_repl(dlpi_slot_rec(p, t->slot)[r]) > 0)
            return true;
    return false;
}

/* The dead worker had this unit; ran: its callback, too. */
static void dlpi_held_note(const dlpi_death *why, bool ran, const dlpi_unit *t, uint32_t missing) {
    dlpi_held *held = why->held;
    if (held == NULL) return;
    held->ran |= ran;
    if (held->ran || held->missing != 0) return;
    held->b = t->b;
    held->slot = t->slot;
    held->unit = t->unit;
    held->missing = missing;
}

static void dlpi_recover_unit(dlpi_worker *w, dlpi_unit *t, dlpi_sst *sst, uint64_t own,
                              const dlpi_death *why) {
    dlp_pipe *p = w->p;
    uint32_t missing = dlpi_unit_missing(dlpi_done(sst), t), row;
    bool ran;
    if (missing == 0) return;
    /* O1 <- O1: a later stage that sends rows back has marked the claim before it took the bits */
    if (DLPI_LOAD_SEQ(&dlpi_own(p, sst)[t->unit]) != own) return;
    ran = dlpi_was_running(w, t, why, &row) && row >= t->row && row < t->end &&
          (missing >> row % DLPI_WORD_ROWS & 1u) != 0;
    dlpi_held_note(why, ran, t, missing);
    if (ran) {
        uint32_t rec = dlpi_slot_rec(p, t->slot)[row];
        DLPI_STORE_RLX(&dlpi_slot_at(p, t->slot)->dirty, 1u); /* ordered by the claim to come */
        dlpi_slot_at(p, t->slot)->killed_by = why->signal;
        dlpi_rec_set(p, t->slot, row, dlpi_rec_killed(rec, (uint32_t)w->st->work, why->late));
    }
    if (w->st->work == 0 || (w->st->w.idempotent && !dlpi_rows_replaced(p, t, missing)))
        DLPI_CAS_SEQ(&dlpi_own(p, sst)[t->unit], &own, dlpi_own_freed(p, t->slot, t->b)); /* O1 */
    else
        dlpi_rows_redo(w, t, missing);
}

static void dlpi_recover_batch(dlpi_worker *w, uint32_t s, uint64_t b, dlpi_sst *sst, uint64_t own,
                               const dlpi_death *why) {
    dlp_pipe *p = w->p;
    dlpi_unit whole = {b, s, 0, 0, 0, false};
    uint32_t row;
    bool ran;
    if (dlpi_ready_past(DLPI_LOAD_SEQ(&sst->ready), b)) return; /* Y1 <- Y1 */
    if (DLPI_LOAD_SEQ(dlpi_own(p, sst)) != own) return;         /* O1 <- O1: as above */
    ran = dlpi_was_running(w, &whole, why, &row) && row == UINT32_MAX;
    dlpi_held_note(why, ran, &whole, 1);
    if (ran) {
        uint32_t *rec = &dlpi_slot_at(p, s)->batch_rec;
        dlpi_slot_at(p, s)->killed_by = why->signal;
        /* X1 */
        DLPI_STORE_REL(rec, dlpi_rec_killed(*rec, (uint32_t)w->st->work, why->late));
    }
    if (dlpi_batch_in_place(w->st))
        dlpi_batch_redo(w, s, b);
    else
        DLPI_CAS_SEQ(dlpi_own(p, sst), &own, dlpi_own_freed(p, s, b)); /* O1 -> O1 */
}

/* w died while it gave up units of batch b: its own claim is free by now, so all is undone, and
   what is left to do is to free the claims that carry its mark. */
static void dlpi_recover_redo(dlpi_worker *w, uint32_t s, uint64_t b, uint64_t pub) {
    dlp_pipe *p = w->p;
    uint64_t mark = dlpi_own_redo(w, b);
    for (int k = w->st->work - 1; k >= dlpi_redo_first(p, w->st, pub); k--) {
        uint64_t *own = dlpi_own(p, dlpi_sst_at(p, s, p->work[k]));
        for (uint32_t u = 0; u < dlpi_stage_units(p, k, pub); u++)
            if (DLPI_LOAD_SEQ(&own[u]) == mark)                   /* O1 <- O1 */
                DLPI_STORE_SEQ(&own[u], dlpi_own_freed(p, s, b)); /* O1 -> O1 */
    }
}

/* What w had of the batch in slot s; and close that batch if the one who should have is dead. */
static void dlpi_recover_slot(dlpi_worker *w, uint32_t s, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    uint64_t pub = DLPI_LOAD_SEQ(&dlpi_slot_at(p, s)->pub); /* P1 <- P1 */
    uint64_t b = dlpi_gen_batch(p, dlpi_gen(pub)),
             mine = dlpi_gen_word(b, (uint64_t)w->global + 1u);
    uint32_t count = dlpi_pub_count(pub), shift = dlpi_pub_shift(pub);
    bool items = dlpi_is_item_stage(p, w->st);
    uint32_t units = dlpi_stage_units(p, w->st->work, pub);
    dlpi_sst *sst = dlpi_sst_at(p, s, w->st),
             *last = dlpi_sst_at(p, s, p->work[p->n_item_work - 1]);
    for (uint32_t u = 0; u < units; u++) {
        uint64_t own = DLPI_LOAD_SEQ(&dlpi_own(p, sst)[u]); /* O1 <- O1 */
        dlpi_unit t = {b, s, u, 0, 0, false};
        if (own != mine) continue;
        dlpi_unit_rows(p, w->st, count, shift, &t);
        if (items)
            dlpi_recover_unit(w, &t, sst, own, why);
        else
            dlpi_recover_batch(w, s, b, sst, own, why);
    }
    dlpi_recover_redo(w, s, b, pub);
    if (count > 0) dlpi_close_batch(p, last, b, count, DLPI_LOAD_SEQ(&last->ready)); /* Y1 <- Y1 */
}

static void dlpi_slots_recover(dlpi_worker *w, const dlpi_death *why) {
    for (uint32_t s = 0; s < w->p->n_slots; s++) dlpi_recover_slot(w, s, why);
}

/* An error that the dead worker was writing down. */
static void dlpi_recover_errors(dlpi_worker *w, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "",
                   "a callback failed, and its process was killed (%s) "
                   "while it wrote down how",
                   dlpi_signal_text(why->signal));
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    e.worker = w->id;
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_bslot *slot = dlpi_slot_at(p, s);
        if (DLPI_LOAD_SEQ(&slot->failed) != (uint32_t)w->global + 2u) continue; /* F1 <- F1 */
        slot->error = e;
        DLPI_STORE_SEQ(&slot->failed, 1u); /* F1 -> F1 */
    }
    if (DLPI_LOAD_SEQ(&p->ctl->error_claim) == (uint32_t)w->global + 1u && /* E1 <- E1 */
        DLPI_LOAD_SEQ(&p->ctl->error_ready) == 0) {                        /* E1 <- E1 */
        p->ctl->error = e;
        DLPI_STORE_SEQ(&p->ctl->error_ready, 1u); /* E1 -> E1 */
    }
}

/* No row of the worker's is in a callback; or it is dead, and what it had is of no interest. */
static void dlpi_running_forget(dlpi_worker *w) {
    DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2 */
    for (uint32_t i = 0; i < w->n_at_once; i++)
        DLPI_STORE_RLX(&w->at_once[i], UINT64_C(0)); /* X2 */
}

__attribute__((unused)) /* but by dlpipe_shm.h */
static void
dlpi_recover(dlpi_worker *w, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    dlpi_recover_errors(w, why);
    if (p->keeper != NULL) p->keeper->ops->keeper->recover(w);
    w->st->ops->recover(w, why);
    DLPI_AND_SEQ(&w->bell->bell[w->id / 32].mask, ~(1u << w->id % 32)); /* B1 */
    dlpi_running_forget(w);
    DLPI_STORE_RLX(&w->wb->current, UINT64_MAX); /* for observers */
    dlpi_rewind(p, 0, p->n_work - 1);
    dlpi_wake_all(p);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-fetch      FETCH: ROWS WRITTEN FOR THE FIRST TIME
   One at a time: the worker's own item is its attempt (see >>impl-run). Or several in flight: the
   stage has the second table then, and a worker an attempt for each row that it has in hand: the
   item, its lengths, its message. It claims units of one row, as any worker does, as long as there
   is room; gives the rows to its source; and completes each when the source gives it back. An
   attempt is in one list at a time:

     FREE --claim--> WAITS --submit--> OUT --reap--> FREE: the row is done, or parked (back-off)
       |               ^                 |
       +- parked, due -+----- again <----+

   What becomes of a row that failed, when it is tried again, where it waits until then (dlpi_park)
   and how it is completed is as everywhere; the worker's own item is that of the attempt which is
   settled just now. Between two attempts a row is parked, and has no attempt.

   The source is the user's (dlp_async), or threads of the worker's own that run dataset.fetch. With
   an asynchronous source all is done by the worker's own thread. Its threads, if it has some, work
   in its place: the one that is through with an item completes it and claims and sends what there
   is room for, then takes the next item of what is to do. So while something is out, nobody waits
   for the worker, which on cores that are all busy would get its turn milliseconds later. All that
   is the worker's is under threads.lock then, which the worker itself holds but for its sleep while
   rows are out: they wake it when it is to look for new batches, when a row was parked, when
   nothing is out, and when the pipe stops. What is to do has a lock of its own, taken after the
   other, so that a row is begun while others are claimed.
   A row that is out and begun has its place in w->at_once (X2), so that recovery knows which rows
   may have killed a worker: each of them counts a kill. From then on such a row is out alone, so
   the next death says whose it was: an innocent row counts one kill at most, the guilty one dies
   alone until it is poison. A row that waits is in no source's hands, and is never blamed.
   While something is out and there is room, the worker looks for new batches every ms: nobody wakes
   it for them. With nothing out it sleeps as others do. */

#define DLPI_REAP_MOST 64
#define DLPI_REAP_ROOM_MS 1 /* while more could be claimed, if there were more */
#define DLPI_REAP_FULL_MS 50

typedef struct dlpi_attempt { /* at one row, which a worker has in hand */
    dlp_item item;            /* first: what a source gives back is the attempt */
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
    dlpi_note note;
    char message[256];
    int32_t errnum;
    int32_t code; /* what its callback returned, in a thread */
    uint64_t gen;
    uint32_t slot, row;
    uint64_t since_ns;
    uint32_t in; /* which list it is in */
    struct dlpi_attempt *next, *prev;
    void *own; /* [source->row_bytes] */
} dlpi_attempt;

typedef struct dlpi_attempt_list {
    dlpi_attempt *first, *last;
} dlpi_attempt_list;

enum { DLPI_ATTEMPT_FREE, DLPI_ATTEMPT_WAITS, DLPI_ATTEMPT_OUT, DLPI_ATTEMPT_LISTS };

/* The threads of a worker with DLP_FETCH_THREADS, and what they are to do. */
typedef struct dlpi_fetch_threads {
    pthread_mutex_t lock; /* of all that is the worker's, while rows are out */
    bool full;            /* when the worker fell asleep: it sleeps long then */
    bool parked;          /* a row was, since then */
    uint32_t word;        /* W2 futex */
    pthread_mutex_t todo_lock;
    pthread_cond_t come; /* something is to do, or all is over */
    dlpi_attempt **todo; /* [n_all] in a circle */
    uint64_t n_todo, n_begun;
    int over; /* to be changed with both locks */
    uint32_t n_threads;
    pthread_t *threads; /* [n_all] */
} dlpi_fetch_threads;

typedef struct dlpi_in_flight { /* of one worker */
    dlpi_attempt *all;          /* [n_all] */
    uint32_t n_all, n_out;
    dlpi_attempt_list list[DLPI_ATTEMPT_LISTS];
    uint64_t oldest;  /* batch that has a row here */
    bool oldest_left; /* a row of it was done: it may be another one */
    bool alone, broken;
    dlpi_fetch_threads threads;
} dlpi_in_flight;

typedef struct dlpi_fetch { /* what the stage keeps for itself, with many at once */
    int fetcher;            /* DLP_FETCH_* */
    uint32_t batch_pool;
    dlp_async async;
    dlpi_in_flight *workers; /* [n_workers], and theirs: */
    dlpi_attempt *attempts;
    dlpi_parked *parked;
    dlpi_attempt **todo;
    pthread_t *threads;
} dlpi_fetch;

static inline const dlpi_fetch *dlpi_fetch_of(const dlpi_worker *w) { return w->st->self; }
static inline dlpi_in_flight *dlpi_in_flight_of(const dlpi_worker *w) { return w->self; }

/* The source of a stage that has rows in flight; NULL: it is no such stage. */
__attribute__((unused)) /* but by dlpipe_shm.h */
static dlp_async *
dlpi_fetch_async(const dlpi_stage *st) {
    return st->in_flight > 0 ? &((dlpi_fetch *)st->self)->async : NULL;
}

/* Rows that a worker can have: in hand, and parked, as many as other workers may have. */
static uint64_t dlpi_in_flight_rows(const dlpi_stage *st) {
    return (uint64_t)st->in_flight + DLPI_PARK;
}

/* A callback is about to have the row. */
static void dlpi_attempt_begin(dlpi_worker *w, dlpi_attempt *a) {
    const dlpi_in_flight *fl = w->self;
    DLPI_STORE_RLX(&a->since_ns, dlpi_now_ns()); /* 0 before, for dlpi_in_flight_show */
    DLPI_STORE_RLX(&w->at_once[a - fl->all],
                   (uint64_t)a->slot << 32 | (a->row + 1u)); /* X2 to recovery */
}

static void dlpi_attempt_put(dlpi_in_flight *fl, dlpi_attempt *a, uint32_t list) {
    dlpi_attempt_list *l = &fl->list[list];
    a->in = list;
    a->next = NULL;
    a->prev = l->last;
    if (l->last)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
}

static void dlpi_attempt_move(dlpi_in_flight *fl, dlpi_attempt *a, uint32_t list) {
    dlpi_attempt_list *l = &fl->list[a->in];
    if (a->prev)
        a->prev->next = a->next;
    else
        l->first = a->next;
    if (a->next)
        a->next->prev = a->prev;
    else
        l->last = a->prev;
    dlpi_attempt_put(fl, a, list);
}

static dlpi_unit dlpi_attempt_unit(const dlpi_attempt *a) { /* runs are of one row here */
    dlpi_unit t = {a->gen, a->slot, a->row, a->row, a->row + 1, false};
    return t;
}

/* What observers and the supervisor see: the item that is out longest. */
static void dlpi_in_flight_show(dlpi_worker *w) {
    const dlpi_attempt *a = dlpi_in_flight_of(w)->list[DLPI_ATTEMPT_OUT].first;
    uint64_t since = a == NULL ? 0 : DLPI_LOAD_RLX(&a->since_ns); /* of dlpi_attempt_begin */
    const dlpi_bslot *slot;
    dlpi_wblock *wb = w->wb;
    if (since == 0) {
        DLPI_STORE_RLX(&wb->running, UINT64_C(0)); /* X2 */
        DLPI_STORE_RLX(&wb->current, UINT64_MAX);  /* for observers, here and below */
        return;
    }
    slot = dlpi_slot_at(w->p, a->slot);
    DLPI_STORE_RLX(&wb->current_epoch, slot->epoch);
    DLPI_STORE_RLX(&wb->current_position, (slot->position + a->row) % w->p->samples);
    DLPI_STORE_RLX(&wb->current, dlpi_slot_index(w->p, a->slot)[a->row]);
    DLPI_STORE_RLX(&wb->since_ns, since);
    DLPI_STORE_RLX(&wb->running, (uint64_t)a->slot << 32 | (a->row + 1u)); /* X2 to recovery */
}

/* The row of an attempt is done. n: as of dlpi_row_done. */
static void dlpi_attempt_done(dlpi_worker *w, dlpi_attempt *a, uint32_t n) {
    dlpi_in_flight *fl = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    fl->oldest_left |= a->gen == fl->oldest;
    dlpi_attempt_move(fl, a, DLPI_ATTEMPT_FREE);
    dlpi_row_done(w, &t, n);
}

/* The failure policies speak of the worker's item: make it that of the attempt. Of what the
   callback had its lengths and words are taken, the rest is as the slot says. */
static void dlpi_attempt_load(dlpi_worker *w, const dlpi_attempt *a) {
    const dlp_pipe *p = w->p;
    dlpi_item_slot(w, a->slot);
    dlpi_item_row(w, a->row);
    w->item.attempt = dlpi_rec_tries(dlpi_slot_rec(p, a->slot)[a->row]);
    memcpy(w->length, a->length, p->items.n * sizeof *w->length);
    dlpi_words_forget(w);
    w->wb->message_errno = a->errnum; /* also without words */
    if (a->message[0] != 0) memcpy(w->wb->message, a->message, sizeof a->message);
}

/* The item of an attempt is the worker's, with what is the attempt's own. */
static void dlpi_attempt_item(const dlpi_worker *w, dlpi_attempt *a) {
    a->item = w->item;
    a->item.data = a->data;
    a->item.length = a->length;
    a->item.internal = &a->note;
}

/* The callback of an attempt came to rc, a code: done, or what the policy says. */
static void dlpi_attempt_over(dlpi_worker *w, dlpi_attempt *a, int rc) {
    dlpi_in_flight *fl = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    int what = DLPI_ROW_DONE;
    if (DLPI_DEBUG) { /* the callback may have changed any of its item */
        dlpi_item_slot(w, a->slot);
        dlpi_item_row(w, a->row);
        dlpi_attempt_item(w, a);
        rc = dlpi_guard_out(w, &a->item, dlpi_guard_cell(w, (uint64_t)(a - fl->all)), a->slot,
                            a->row, rc);
    }
    if (rc != DLP_ERR_KILLED && rc != DLP_ERR_DEADLINE) dlpi_attempt_load(w, a); /* else it is */
    if (rc == 0 && dlpi_lengths_set(w)) rc = dlpi_row_lengths(w, &t, a->row);
    if (rc == 0 && w->p->keeper != NULL && a->note.drew == 0) w->p->keeper->ops->keeper->put(w);
    if (rc != 0) what = dlpi_row_wrong(w, &t, a->row, rc);
    if (what == DLPI_ROW_DONE) {
        dlpi_attempt_done(w, a, dlpi_row_counts(w, &t));
        return;
    }
    fl->threads.parked |= what == DLPI_ROW_LATER;
    dlpi_attempt_move(fl, a, what == DLPI_ROW_LATER ? DLPI_ATTEMPT_FREE : DLPI_ATTEMPT_WAITS);
}

/* Set the item up for its next try. */
static void dlpi_attempt_point(dlpi_worker *w, dlpi_attempt *a) {
    const dlp_pipe *p = w->p;
    a->message[0] = 0;
    a->errnum = 0;
    a->note.drew = 0;
    memset(a->length, 0, sizeof a->length);
    dlpi_attempt_load(w, a);
    dlpi_attempt_item(w, a);
    memcpy(a->data, w->data, sizeof a->data);
    if (a->own != NULL) p->source->row(w, &a->item, a->slot, a->row, a->own);
    dlpi_row_zero(w);
}

/* Give an item to the source: the user's, or the worker's threads. As dlp_async.submit. */
static int dlpi_attempt_submit(dlpi_worker *w, dlpi_attempt *a) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    if (dlpi_fetch_of(w)->fetcher == DLP_FETCH_ASYNC)
        return dlpi_fetch_of(w)->async.submit(w->st->user, w->state, &a->item);
    pthread_mutex_lock(&pool->todo_lock);
    pool->todo[pool->n_todo++ % dlpi_in_flight_of(w)->n_all] = a;
    pthread_cond_signal(&pool->come);
    pthread_mutex_unlock(&pool->todo_lock);
    return 0;
}

/* Is the row done without its source: left out, cancelled, no item of the dataset, or kept? Else
   its item is set up. */
static bool dlpi_attempt_settled(dlpi_worker *w, dlpi_attempt *a, uint32_t rec) {
    const dlp_pipe *p = w->p;
    dlpi_unit t = dlpi_attempt_unit(a);
    uint32_t state = dlpi_rec_state(rec);
    if (state == DLPI_ROW_LEFT) dlpi_row_clear(p, &t, a->row);
    if (state == DLPI_ROW_LEFT || state == DLPI_ROW_END ||
        !dlpi_wanted(p->ctl, dlpi_slot_at(p, a->slot))) {
        dlpi_attempt_done(w, a, 0);
        return true;
    }
    dlpi_attempt_load(w, a);
    if (DLPI_UNLIKELY(w->item.index >= p->fetch->dataset.n_items)) {
        dlpi_row_no_item(w, &t, a->row);
        dlpi_failure_forget(w);
        dlpi_attempt_done(w, a, 1);
        return true;
    }
    dlpi_attempt_point(w, a);
    if (p->keeper == NULL || !p->keeper->ops->keeper->get(w, &t, a->row)) return false;
    dlpi_attempt_done(w, a, 1);
    return true;
}

/* Offer an item that is set up to the source. Returns false if it has no room for it. */
static bool dlpi_attempt_offer(dlpi_worker *w, dlpi_attempt *a, bool alone) {
    dlpi_in_flight *fl = w->self;
    int rc;
    DLPI_STORE_RLX(&a->since_ns, UINT64_C(0)); /* its thread begins it */
    if (dlpi_fetch_of(w)->fetcher == DLP_FETCH_ASYNC) dlpi_attempt_begin(w, a);
    dlpi_attempt_move(fl, a, DLPI_ATTEMPT_OUT);
    if (fl->n_out == 0) dlpi_in_flight_show(w);
    rc = dlpi_attempt_submit(w, a);
    if (rc != DLP_FULL && w->p->keeper != NULL) dlpi_bump(&w->wb->kept_misses, 1);
    if (rc == 0) {
        fl->n_out++;
        fl->alone = alone;
        return true;
    }
    DLPI_STORE_RLX(&w->at_once[a - fl->all], UINT64_C(0)); /* X2 */
    if (rc == DLP_FULL)
        dlpi_attempt_move(fl, a, DLPI_ATTEMPT_WAITS);
    else
        dlpi_attempt_over(w, a, dlpi_item_returned(w, rc));
    dlpi_in_flight_show(w);
    return rc != DLP_FULL;
}

/* Send the first attempt that waits. Returns false while it has to wait on: for its source, or, as
   a row that may have killed a worker is out alone, for others to come back. */
static bool dlpi_attempt_send(dlpi_worker *w) {
    dlpi_in_flight *fl = w->self;
    dlpi_attempt *a = fl->list[DLPI_ATTEMPT_WAITS].first;
    uint32_t rec = dlpi_slot_rec(w->p, a->slot)[a->row];
    bool alone = dlpi_rec_kills(rec) > 0 && dlpi_rec_stage(rec) == (uint32_t)w->st->work;
    int rc;
    if (fl->n_out > 0 && (alone || fl->alone)) return false;
    dlpi_unpoison(w->p, a->slot);
    if (dlpi_attempt_settled(w, a, rec)) return true;
    dlpi_guard_in(w, &a->item, dlpi_guard_cell(w, (uint64_t)(a - fl->all)), a->slot, a->row);
    if ((rc = dlpi_rec_verdict(w, a->slot, rec)) == 0) return dlpi_attempt_offer(w, a, alone);
    dlpi_attempt_over(w, a, rc);
    return true;
}

/* A free attempt is to be at this row. */
static void dlpi_attempt_at(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *fl = w->self;
    dlpi_attempt *a = fl->list[DLPI_ATTEMPT_FREE].first;
    a->gen = t->b;
    a->slot = t->slot;
    a->row = t->row;
    dlpi_attempt_move(fl, a, DLPI_ATTEMPT_WAITS);
}

/* A unit was claimed: an attempt has it now. */
static void dlpi_attempt_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *fl = w->self;
    uint32_t already =
        dlpi_done_bits(dlpi_done(dlpi_sst_at(w->p, t->slot, w->st)), t->row / DLPI_WORD_ROWS, t->b);
    if (already >> t->row % DLPI_WORD_ROWS & 1u) return;
    if (t->plain)
        dlpi_unit_indices(w, t);
    else
        dlpi_unit_indices_again(w, t, already);
    if (t->b < fl->oldest) fl->oldest = t->b;
    dlpi_attempt_at(w, t);
}

/* Up to which batch may this worker claim? oldest: of the batches it has a row of. */
static void dlpi_in_flight_bound(dlpi_worker *w) {
    const dlpi_stage *st = w->st;
    const dlpi_in_flight *fl = w->self;
    uint64_t rows = w->p->batch_rows, many = (uint64_t)st->in_flight, open;
    uint32_t pool = dlpi_fetch_of(w)->batch_pool;
    open = pool > 0 ? pool / rows : 1 + (many + rows - 1) / rows;
    if (open == 0) open = 1;
    w->claim_end = 0;
    if (st->w.dispatch == DLP_DISPATCH_BATCHES && fl->oldest != UINT64_MAX)
        w->claim_end = fl->oldest + open * (uint64_t)st->n_workers;
}

static void dlpi_in_flight_oldest(dlpi_worker *w) {
    dlpi_in_flight *fl = w->self;
    if (!fl->oldest_left || w->st->w.dispatch != DLP_DISPATCH_BATCHES) return;
    fl->oldest = UINT64_MAX;
    fl->oldest_left = false;
    for (uint32_t i = DLPI_ATTEMPT_WAITS; i < DLPI_ATTEMPT_LISTS; i++)
        for (const dlpi_attempt *a = fl->list[i].first; a != NULL; a = a->next)
            if (a->gen < fl->oldest) fl->oldest = a->gen;
    for (int i = 0; i < w->n_parked; i++)
        if (w->parked[i].gen < fl->oldest) fl->oldest = w->parked[i].gen;
}

/* Is there no room for another row, should all that the worker has be parked? */
static bool dlpi_in_flight_no_room(const dlpi_worker *w) {
    const dlpi_in_flight *fl = w->self;
    uint32_t n = fl->n_out + (uint32_t)w->n_parked;
    for (const dlpi_attempt *a = fl->list[DLPI_ATTEMPT_WAITS].first; a != NULL; a = a->next) n++;
    return n >= (uint32_t)w->parked_most;
}

/* Claim a row, if there is room for one. */
static bool dlpi_in_flight_find(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_in_flight *fl = w->self;
    if (fl->broken || dlpi_retired(w) || fl->list[DLPI_ATTEMPT_WAITS].first != NULL ||
        fl->n_out >= fl->n_all || (fl->n_out > 0 && fl->alone) || dlpi_in_flight_no_room(w))
        return false;
    dlpi_in_flight_oldest(w);
    dlpi_in_flight_bound(w);
    return dlpi_find(w, t);
}

static inline bool dlpi_attempt_free(const dlpi_in_flight *fl) {
    return fl->list[DLPI_ATTEMPT_FREE].first != NULL;
}

/* Send what waits or is due, and what can be claimed. Returns whether anything moved. */
static bool dlpi_in_flight_fill(dlpi_worker *w) {
    dlpi_in_flight *fl = w->self;
    bool moved = false;
    dlpi_unit t;
    if (fl->broken) return false;
    while (w->n_parked > 0 && dlpi_attempt_free(fl) && dlpi_unpark(w, dlpi_attempt_at)) continue;
    for (; !dlpi_stopped(w->p); moved = true) {
        if (fl->list[DLPI_ATTEMPT_WAITS].first == NULL) {
            if (!dlpi_in_flight_find(w, &t)) break;
            dlpi_clock_in(w);
            dlpi_attempt_take(w, &t);
        } else if (fl->n_out >= fl->n_all) {
            break;
        } else {
            dlpi_clock_in(w);
            if (!dlpi_attempt_send(w)) break;
        }
    }
    return moved;
}

/* As dlpi_rows_due; while all attempts are in hand, what is parked waits for one of them. */
static uint64_t dlpi_in_flight_due(dlpi_worker *w, uint64_t ns) {
    return dlpi_attempt_free(w->self) ? dlpi_rows_due(w, ns) : ns;
}

/* ---- what comes back ---- */

static void dlpi_in_flight_broken(dlpi_worker *w, const char *what, int rc) {
    dlp_error e;
    dlpi_words_forget(w);
    dlpi_describe(w, DLP_ERR_CALLBACK, &e);
    snprintf(e.message, sizeof e.message, "async.reap %s %d", what, rc);
    dlpi_in_flight_of(w)->broken = true;
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
}

/* The attempt of an item that the source gave back; NULL: it has no such item. */
static dlpi_attempt *dlpi_attempt_of(const dlpi_in_flight *fl, const dlp_item *item) {
    uintptr_t at = (uintptr_t)item - (uintptr_t)fl->all;
    if (at % sizeof *fl->all != 0 || at / sizeof *fl->all >= fl->n_all) return NULL;
    return fl->all[at / sizeof *fl->all].in == DLPI_ATTEMPT_OUT ? &fl->all[at / sizeof *fl->all]
                                                                : NULL;
}

/* The time of what came back: the worker was busy since it was here last. */
static void dlpi_in_flight_clock(dlpi_worker *w, const dlpi_attempt *a, uint64_t now, uint32_t n) {
    dlpi_wblock *wb = w->wb;
    uint64_t ns = now - w->last_ns, each = ns / n, average = DLPI_LOAD_RLX(&wb->item_ns);
    average = average == 0 ? each : (average * 7 + each) / 8;
    DLPI_STORE_RLX(&wb->item_ns, average ? average : 1); /* statistics, here and below */
    dlpi_bump(&wb->busy_ns, ns);
    dlpi_trace_add(w, DLP_TRACE_WORK, w->last_ns, now, a->gen, dlpi_slot_at(w->p, a->slot)->epoch,
                   n);
    w->last_ns = now;
}

/* An item is out no longer: book how long it was. */
static void dlpi_attempt_back(dlpi_worker *w, dlpi_attempt *a, uint64_t now) {
    dlpi_in_flight *fl = w->self;
    uint64_t since = DLPI_LOAD_RLX(&a->since_ns), ns = now > since ? now - since : 0;
    uint32_t *bucket = &w->wb->hist[dlpi_hist_bucket(ns)];
    DLPI_STORE_RLX(&w->at_once[a - fl->all], UINT64_C(0)); /* X2 */
    fl->n_out--;
    fl->alone = false;
    dlpi_attempt_move(fl, a, DLPI_ATTEMPT_WAITS); /* in no source's hands */
    DLPI_STORE_RLX(bucket, *bucket + 1);          /* statistics, here and below */
    if (ns > w->wb->max_ns) DLPI_STORE_RLX(&w->wb->max_ns, ns);
    dlpi_bump(&w->wb->in_flight_ns, ns);
}

/* n items came back, a the first of them. */
static void dlpi_in_flight_came(dlpi_worker *w, const dlpi_attempt *a, uint64_t now, int n) {
    dlpi_in_flight_show(w);
    if (w->last_ns != 0) dlpi_in_flight_clock(w, a, now, (uint32_t)n);
}

/* Take what the source gives back within timeout_ms. Returns how many, negative: it is broken. */
static int dlpi_in_flight_reap(dlpi_worker *w, dlpi_attempt **back, int *code, int timeout_ms) {
    const dlp_async *async = &dlpi_fetch_of(w)->async;
    dlp_item *done[DLPI_REAP_MOST];
    uint64_t now;
    int n = async->reap(w->st->user, w->state, done, code, DLPI_REAP_MOST, timeout_ms);
    if (n < 0 || n > DLPI_REAP_MOST) return dlpi_in_flight_broken(w, "returned", n), -1;
    if (n == 0) return 0;
    now = dlpi_now_ns();
    for (int i = 0; i < n; i++) {
        back[i] = dlpi_attempt_of(dlpi_in_flight_of(w), done[i]);
        if (back[i] == NULL)
            return dlpi_in_flight_broken(w, "gave back what was not out, at place", i), -1;
        dlpi_attempt_back(w, back[i], now);
    }
    dlpi_in_flight_came(w, back[0], now, n);
    return n;
}

/* Is there nothing to look for, whatever comes in? */
static bool dlpi_in_flight_full(const dlpi_worker *w) {
    const dlpi_in_flight *fl = w->self;
    return fl->n_out >= fl->n_all || fl->alone || fl->list[DLPI_ATTEMPT_WAITS].first != NULL ||
           dlpi_in_flight_no_room(w);
}

static int dlpi_in_flight_patience(dlpi_worker *w) {
    int ms = dlpi_in_flight_full(w) ? DLPI_REAP_FULL_MS : DLPI_REAP_ROOM_MS;
    uint64_t due = dlpi_in_flight_due(w, (uint64_t)ms * 1000000u) / 1000000u;
    return due < 1 ? 1 : (int)due;
}

/* ---- threads as a source: each does the worker's work, under its lock ---- */

/* An item is through in its own thread: complete it, and send others. Returns whether the worker,
   which sleeps, is to look for itself. */
static bool dlpi_fetch_thread_done(dlpi_worker *w, dlpi_attempt *a, dlpi_cpu *cpu) {
    dlpi_in_flight *fl = w->self;
    dlpi_fetch_threads *pool = &fl->threads;
    uint64_t now = dlpi_now_ns();
    dlpi_attempt_back(w, a, now); /* in the end, too: what close waits for is another one */
    dlpi_in_flight_came(w, a, now, 1);
    /* the more threads, the rarer each: the worker's lock is held */
    if (now - cpu->noted_ns > DLPI_CPU_NOTE_NS * (1 + pool->n_threads / 8))
        dlpi_cpu_note(w, cpu, now);
    if (pool->over) return false;
    if (!dlpi_stopped(w->p)) {
        dlpi_attempt_over(w, a, dlpi_item_returned(w, a->code));
        dlpi_in_flight_fill(w);
        if (fl->n_out > 0 && !pool->parked && (!pool->full || dlpi_in_flight_full(w))) return false;
    }
    DLPI_ADD_SEQ(&pool->word, 1u); /* W2 -> W2 */
    return true;
}

/* Take what is to do, when there is something. Returns NULL when all is over. */
static dlpi_attempt *dlpi_fetch_thread_next(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_attempt *a = NULL;
    pthread_mutex_lock(&pool->todo_lock);
    while (!pool->over && (pool->n_begun == pool->n_todo || dlpi_stopped(w->p)))
        pthread_cond_wait(&pool->come, &pool->todo_lock);
    if (!pool->over) a = pool->todo[pool->n_begun++ % dlpi_in_flight_of(w)->n_all];
    pthread_mutex_unlock(&pool->todo_lock);
    return a;
}

static void *dlpi_thread_fetch(void *arg) {
    dlpi_worker *w = arg;
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_cpu cpu = {0, 0, 0};
    dlpi_attempt *a;
    while ((a = dlpi_fetch_thread_next(w)) != NULL) {
        bool wake;
        dlpi_attempt_begin(w, a);
        a->code = w->st->item(w->st->user, &a->item);
        pthread_mutex_lock(&pool->lock);
        wake = dlpi_fetch_thread_done(w, a, &cpu);
        pthread_mutex_unlock(&pool->lock); /* who is woken may run at once, in our place */
        if (wake) dlpi_futex_wake(&pool->word, 1, UINT32_MAX, 0);
    }
    return NULL;
}

/* The worker sleeps, and leaves its work to its threads. */
static void dlpi_fetch_threads_wait(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    uint64_t ns = (uint64_t)dlpi_in_flight_patience(w) * 1000000u;
    uint32_t word = DLPI_LOAD_SEQ(&pool->word); /* W2 <- W2 */
    pool->full = dlpi_in_flight_full(w);
    pool->parked = false;
    pthread_mutex_unlock(&pool->lock);
    dlpi_futex_wait(&pool->word, word, UINT32_MAX, ns, 0);
    pthread_mutex_lock(&pool->lock);
    dlpi_in_flight_show(w); /* what is out longest may have begun since */
}

/* The worker has the lock. */
static void dlpi_fetch_threads_end(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    pthread_mutex_lock(&pool->todo_lock);
    pool->over = 1;
    pthread_cond_broadcast(&pool->come);
    pthread_mutex_unlock(&pool->todo_lock);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    pool->n_threads = 0;
    pthread_cond_destroy(&pool->come);
    pthread_mutex_destroy(&pool->todo_lock);
    pthread_mutex_destroy(&pool->lock);
}

/* Start the threads of a worker whose source they are. It has the lock then. */
static int dlpi_fetch_threads_begin(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    const char *what = "pthread_attr_init";
    pthread_attr_t attr;
    int rc, attr_rc;
    dlp_error e;
    if (dlpi_fetch_of(w)->fetcher != DLP_FETCH_THREADS) return DLP_OK;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->todo_lock, NULL);
    pthread_cond_init(&pool->come, NULL);
    pthread_mutex_lock(&pool->lock);
    rc = attr_rc = pthread_attr_init(&attr);
    if (rc == 0) what = "pthread_create";
    if (rc == 0 && w->st->w.stack_bytes)
        rc = pthread_attr_setstacksize(&attr, (size_t)w->st->w.stack_bytes);
    while (rc == 0 && pool->n_threads < (uint32_t)w->st->in_flight) {
        rc = pthread_create(&pool->threads[pool->n_threads], &attr, dlpi_thread_fetch, w);
        if (rc == 0) pool->n_threads++;
    }
    if (attr_rc == 0) pthread_attr_destroy(&attr);
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_SYSTEM, "in_flight", "%s of thread %u of %d failed: %s", what,
                   pool->n_threads + 1, w->st->in_flight, strerror(rc));
    e.errnum = rc;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_fetch_threads_end(w);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_SYSTEM;
}

/* ---- what a worker does ---- */

static bool dlpi_in_flight_step(dlpi_worker *w) {
    dlpi_in_flight *fl = w->self;
    dlpi_attempt *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST], n;
    bool moved = dlpi_in_flight_fill(w);
    if (fl->broken || (fl->n_out == 0 && fl->list[DLPI_ATTEMPT_WAITS].first == NULL)) return moved;
    if (dlpi_stopped(w->p)) return true;
    if (dlpi_fetch_of(w)->fetcher == DLP_FETCH_THREADS) {
        dlpi_fetch_threads_wait(w);
        return true;
    }
    n = dlpi_in_flight_reap(w, back, code, dlpi_in_flight_patience(w));
    for (int i = 0; i < n; i++) dlpi_attempt_over(w, back[i], dlpi_item_returned(w, code[i]));
    if (n == 0 && fl->n_out == 0) dlpi_nap(1000000); /* a source without room, and without items */
    return true;
}

/* The pipe stops: the source's hands are to be empty before worker_exit. What comes back now is not
   wanted any more. close waits for this as for any callback. */
static void dlpi_in_flight_end(dlpi_worker *w) {
    dlpi_in_flight *fl = w->self;
    dlpi_attempt *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST];
    if (dlpi_fetch_of(w)->fetcher == DLP_FETCH_ASYNC)
        while (fl->n_out > 0 && !fl->broken) dlpi_in_flight_reap(w, back, code, DLPI_REAP_FULL_MS);
    else if (fl->threads.n_threads > 0)
        dlpi_fetch_threads_end(w);
    dlpi_running_forget(w);
}

static void dlpi_in_flight_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_attempt_take(w, t);
}

static bool dlpi_in_flight_owes(const dlpi_worker *w) {
    const dlpi_in_flight *fl = w->self;
    return fl->n_out > 0 || fl->list[DLPI_ATTEMPT_WAITS].first != NULL || w->n_parked > 0;
}

/* ---- what the stage keeps ---- */

static void dlpi_fetch_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_area_add(p, DLPI_AREA_AT_ONCE, NULL, dlpi_line_up((uint64_t)st->in_flight * 8),
                  (uint64_t)st->n_workers, DLPI_LINE);
}

static bool dlpi_fetch_threaded(const dlpi_stage *st) {
    return ((const dlpi_fetch *)st->self)->fetcher == DLP_FETCH_THREADS;
}

static uint64_t dlpi_fetch_bytes(const dlp_pipe *p, const dlpi_stage *st) {
    uint64_t each = sizeof(dlpi_attempt);
    DLPI_UNUSED(p);
    if (dlpi_fetch_threaded(st)) each += sizeof(dlpi_attempt *) + sizeof(pthread_t);
    each = sizeof(dlpi_in_flight) + dlpi_times((uint64_t)st->in_flight, each) +
           dlpi_times(dlpi_in_flight_rows(st), sizeof(dlpi_parked));
    return dlpi_times((uint64_t)st->n_workers, each);
}

static bool dlpi_fetch_alloc(dlp_pipe *p, dlpi_stage *st) {
    dlpi_fetch *f = st->self;
    size_t n = (size_t)st->n_workers, all = n * (size_t)st->in_flight;
    DLPI_UNUSED(p);
    f->todo = NULL;
    f->threads = NULL;
    f->workers = calloc(n, sizeof *f->workers);
    f->attempts = calloc(all, sizeof *f->attempts);
    f->parked = calloc(n * (size_t)dlpi_in_flight_rows(st), sizeof *f->parked);
    if (dlpi_fetch_threaded(st)) {
        f->todo = calloc(all, sizeof *f->todo);
        f->threads = calloc(all, sizeof *f->threads);
        if (f->todo == NULL || f->threads == NULL) return false;
    }
    return f->workers != NULL && f->attempts != NULL && f->parked != NULL;
}

static void dlpi_fetch_release(dlpi_stage *st) {
    dlpi_fetch *f = st->self;
    free(f->workers);
    free(f->attempts);
    free(f->parked);
    free(f->todo);
    free(f->threads);
}

/* A worker gets its attempts. */
static void dlpi_in_flight_init(dlpi_worker *w) {
    const dlpi_fetch *f = dlpi_fetch_of(w);
    dlpi_in_flight *fl = &f->workers[w->id];
    size_t each = (size_t)w->st->in_flight, from = (size_t)w->id * each;
    memset(fl, 0, sizeof *fl);
    fl->n_all = (uint32_t)each;
    fl->oldest = UINT64_MAX;
    fl->all = f->attempts + from;
    if (f->fetcher == DLP_FETCH_THREADS) {
        fl->threads.todo = f->todo + from;
        fl->threads.threads = f->threads + from;
    }
    for (size_t i = 0; i < each; i++) {
        dlpi_attempt *a = &fl->all[i];
        a->item = w->item;
        a->item.data = a->data;
        a->item.length = a->length;
        a->note.message = a->message;
        a->note.errnum = &a->errnum;
        a->note.w = w;
        a->item.internal = &a->note;
        a->own = dlpi_own_row(w->p, w, 1 + i);
        dlpi_attempt_put(fl, a, DLPI_ATTEMPT_FREE);
    }
    w->parked_most = (int)dlpi_in_flight_rows(w->st);
    w->parked = f->parked + (size_t)w->id * (size_t)w->parked_most;
    w->at_once = dlpi_area_at(w->p, DLPI_AREA_AT_ONCE, (uint64_t)w->id);
    w->n_at_once = fl->n_all;
    w->self = fl;
}

/* ---- what a desc may say ---- */

static int dlpi_dataset_check(dlp_pipe *p, const dlpi_stage *st, const dlp_fetch_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlpi_stage, dataset.stream), 0, 1, "0 or 1"},
        {DLPI_AT(dlpi_stage, dataset.n_items), 0, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlpi_stage, dataset.n_fields), 1, DLP_MAX_FIELDS, "1..16"},
        {DLPI_AT(dlpi_stage, dataset.fills_rows), 0, 1, "0 or 1"},
    };
    int rc;
    if (st->dataset.fetch == NULL && d->fetcher != DLP_FETCH_ASYNC)
        return dlpi_bad(p, st->name, "dataset.fetch", "a function", 0);
    rc = dlpi_check_bounds(p, st->name, st, DLPI_ROWS(bounds));
    if (rc != DLP_OK || st->dataset.fields != NULL) return rc;
    return dlpi_bad(p, st->name, "dataset.fields", "n_fields fields", 0);
}

/* How many items are under way at once. */
static int dlpi_fetcher_check(dlp_pipe *p, const dlpi_stage *st, const dlp_fetch_desc *d) {
    bool many = d->fetcher != DLP_FETCH_SEQUENTIAL;
    bool pooled = many && st->w.dispatch == DLP_DISPATCH_BATCHES;
    dlpi_within(p, st->name, "fetcher", d->fetcher, 0, DLP_FETCH_ASYNC, "DLP_FETCH_*");
    dlpi_within(p, st->name, "in_flight", d->in_flight, 0, many ? 1024 : 1,
                many ? "0..1024" : "0 or 1 with DLP_FETCH_SEQUENTIAL");
    dlpi_within(p, st->name, "batch_pool", d->batch_pool, 0, pooled ? INT32_MAX : 0,
                pooled ? "under 2^31"
                       : "0 without DLP_DISPATCH_BATCHES and a fetcher of many items");
    dlpi_within(p, st->name, "num_workers", st->w.num_workers, many, DLP_MAX_WORKERS,
                "1..1024 with a fetcher of many items");
    if (d->fetcher == DLP_FETCH_ASYNC && (d->async.submit == NULL || d->async.reap == NULL))
        dlpi_bad(p, st->name, d->async.submit ? "async.reap" : "async.submit", "a function", 0);
    return p->err.code; /* the first of them */
}

/* The stage has the desc's dataset already. Keep what else it says. */
static int dlpi_fetch_check(dlp_pipe *p, dlpi_stage *st, const dlp_fetch_desc *d) {
    dlpi_fetch *many = st->self; /* NULL with DLP_FETCH_SEQUENTIAL */
    int rc = dlpi_dataset_check(p, st, d);
    if (rc == DLP_OK) rc = dlpi_check_workers(p, st);
    if (rc != DLP_OK || (rc = dlpi_fetcher_check(p, st, d)) != DLP_OK || many == NULL) return rc;
    st->in_flight = d->in_flight > 0 ? d->in_flight : 16;
    many->fetcher = d->fetcher;
    many->batch_pool = d->batch_pool;
    if (d->fetcher == DLP_FETCH_ASYNC) many->async = d->async;
    return DLP_OK;
}

static const dlpi_stage_ops dlpi_fetch_ops = {
    .kind = DLP_STAGE_FETCH,
    .rank = 4,
    .unit = DLPI_UNIT_ROWS,
    .step = dlpi_rows_step,
    .find = dlpi_rows_find,
    .run = dlpi_rows_run,
    .full = dlpi_rows_full,
    .owes = dlpi_rows_owes,
    .due = dlpi_rows_due,
    .recover = dlpi_slots_recover,
};

static const dlpi_stage_ops dlpi_fetch_many_ops = {
    .kind = DLP_STAGE_FETCH,
    .rank = 4,
    .unit = DLPI_UNIT_ROWS,
    .self_bytes = sizeof(dlpi_fetch),
    .layout = dlpi_fetch_layout,
    .private_bytes = dlpi_fetch_bytes,
    .private_words = "items in flight, and parked",
    .alloc = dlpi_fetch_alloc,
    .release = dlpi_fetch_release,
    .worker = dlpi_in_flight_init,
    .enter = dlpi_fetch_threads_begin,
    .leave = dlpi_in_flight_end,
    .step = dlpi_in_flight_step,
    .find = dlpi_in_flight_find,
    .run = dlpi_in_flight_run,
    .full = dlpi_in_flight_no_room,
    .owes = dlpi_in_flight_owes,
    .due = dlpi_in_flight_due,
    .recover = dlpi_slots_recover,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-cache      ITEMS KEPT FROM ONE EPOCH TO THE NEXT
   A cell is a word, the item's rows, and the lengths of its ragged fields. The word:
     0                            empty
     (index + 1) << 15 | w + 1    worker w (among all) writes it: nobody else touches the bytes
     (index + 1) << 15            full, for ever: its bytes are only read from then on
   A swap from 0 is the claim (Z1); the store of the full word releases the bytes to whoever loads
   it. The number of the cell stands in the worker's own block (Z2) from before the claim until
   behind that store: so whoever recovers a dead worker knows the one cell that it may have left
   half written, and empties it, if the word says that it is the dead one's. One cell is enough for
   a worker with many items out, too: what comes back is kept one by one, by the worker itself or
   with its lock. */

#define DLPI_CACHE_WRITER 15
_Static_assert(DLP_MAX_STAGES *DLP_MAX_WORKERS < 1 << DLPI_CACHE_WRITER, "word of a cache cell");

typedef struct dlpi_cache_cell {
    uint64_t word; /* Z1 */
    uint8_t bytes[8];
} dlpi_cache_cell;

typedef struct dlpi_cache { /* what the stage keeps for itself */
    uint64_t bytes;         /* its budget */
    uint64_t n_cells, cell_bytes, n_items;
} dlpi_cache;

static inline const dlpi_cache *dlpi_cache_of(const dlp_pipe *p) { return p->keeper->self; }

static inline uint64_t dlpi_round8(uint64_t n) { return (n + 7) & ~UINT64_C(7); } /* of a row */

static uint64_t dlpi_cache_cell_bytes(const dlp_pipe *p) {
    uint64_t bytes = offsetof(dlpi_cache_cell, bytes);
    for (uint32_t f = 0; f < p->items.n; f++) {
        bytes = dlpi_sum(bytes, dlpi_round8(p->items.at[f].row_bytes));
        if (p->items.at[f].f.ragged) bytes = dlpi_sum(bytes, 8);
    }
    return bytes;
}

static inline uint64_t dlpi_cache_at(const dlp_pipe *p, uint64_t index) {
    uint64_t n = dlpi_cache_of(p)->n_cells;
    return index < n ? index : index % n;
}

static inline dlpi_cache_cell *dlpi_cache_cell_at(const dlp_pipe *p, uint64_t cell) {
    return dlpi_area_at(p, DLPI_AREA_KEPT, cell);
}

static inline uint64_t dlpi_cache_full(uint64_t index) { return (index + 1) << DLPI_CACHE_WRITER; }

/* Begin to load the cells of a run, which lie anywhere: their misses overlap. */
static void dlpi_cache_ahead(const dlp_pipe *p, const dlpi_unit *t) {
    const uint64_t *index = dlpi_slot_index(p, t->slot);
    for (uint32_t r = t->row; r < t->end; r++)
        __builtin_prefetch(dlpi_cache_cell_at(p, dlpi_cache_at(p, index[r])));
}

/* Write the item's row from the cache; false: it is not there. The index is one of the dataset. */
static bool dlpi_cache_get(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    const dlpi_cache_cell *cell = dlpi_cache_cell_at(p, dlpi_cache_at(p, w->item.index));
    const uint8_t *from = cell->bytes;
    if (DLPI_LOAD_ACQ(&cell->word) != dlpi_cache_full(w->item.index)) return false; /* Z1 <- Z1 */
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        memcpy(w->data[f], from, d->row_bytes);
        from += dlpi_round8(d->row_bytes);
        if (!d->f.ragged) continue;
        memcpy(&dlpi_slot_lengths(p, t->slot, f, 1)[row], from, 8);
        from += 8;
    }
    dlpi_bump(&w->wb->kept_hits, 1);
    return true;
}

/* Keep the row that fetch has just written, if its cell is nobody's. */
static void dlpi_cache_put(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t at = dlpi_cache_at(p, w->item.index), full = dlpi_cache_full(w->item.index), empty = 0;
    dlpi_cache_cell *cell = dlpi_cache_cell_at(p, at);
    uint8_t *to = cell->bytes;
    if (DLPI_LOAD_RLX(&cell->word) != 0) return; /* Z1: what is read is not used */
    DLPI_STORE_RLX(&w->wb->kept_cell, at + 1);   /* Z2 to recovery; the swap keeps it before */
    if (DLPI_CAS_SEQ(&cell->word, &empty, full | ((uint64_t)w->global + 1))) { /* Z1 -> Z1 */
        for (uint32_t f = 0; f < p->items.n; f++) {
            const dlpi_field *d = &p->items.at[f];
            memcpy(to, w->data[f], d->row_bytes);
            to += dlpi_round8(d->row_bytes);
            if (!d->f.ragged) continue;
            memcpy(to, &w->length[f], 8);
            to += 8;
        }
        DLPI_STORE_REL(&cell->word, full); /* Z1 -> Z1 */
        dlpi_bump(&w->wb->kept_items, 1);
    }
    DLPI_STORE_REL(&w->wb->kept_cell, UINT64_C(0)); /* Z2: behind the full word */
}

/* The cell that a dead worker may have been writing. */
static void dlpi_cache_recover(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    uint64_t at = DLPI_LOAD_SEQ(&w->wb->kept_cell); /* Z2 of a dead worker */
    uint64_t *word, seen;
    if (at == 0 || at > dlpi_cache_of(p)->n_cells) return;
    word = &dlpi_cache_cell_at(p, at - 1)->word;
    seen = DLPI_LOAD_SEQ(word); /* Z1 <- Z1 */
    if ((seen & ((1u << DLPI_CACHE_WRITER) - 1)) == (uint64_t)w->global + 1)
        DLPI_STORE_SEQ(word, UINT64_C(0));          /* Z1 -> Z1 */
    DLPI_STORE_SEQ(&w->wb->kept_cell, UINT64_C(0)); /* Z2 */
}

/* What the desc says, when the stage is added. */
static int dlpi_cache_desc(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_cache *c = st->self;
    return dlpi_within(p, st->name, "cache.bytes", (int64_t)c->bytes, 1, DLPI_CELL_MAX, "1..2^46");
}

/* Without room for an item it would be one in name only. */
static int dlpi_cache_check(dlp_pipe *p, dlpi_stage *st) {
    char words[64];
    uint64_t least = dlpi_cache_cell_bytes(p);
    snprintf(words, sizeof words, "%" PRIu64 " (one item) to 2^46", least);
    return dlpi_within(p, st->name, "cache.bytes", (int64_t)dlpi_cache_of(p)->bytes, (int64_t)least,
                       DLPI_CELL_MAX, words);
}

/* Cells for all items, or as many as the budget has room for. */
static void dlpi_cache_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_cache *c = st->self;
    uint64_t n;
    c->cell_bytes = dlpi_cache_cell_bytes(p);
    c->n_items = p->fetch->dataset.n_items;
    n = c->bytes / c->cell_bytes;
    c->n_cells = n < c->n_items ? n : c->n_items;
    dlpi_area_add(p, DLPI_REC_KEPT, NULL, sizeof(dlpi_kept_rec), 1, 8);
    dlpi_area_add(p, DLPI_AREA_KEPT, "cache cells", c->cell_bytes, c->n_cells, 4096);
}

static void dlpi_cache_describe(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_cache *c = st->self;
    dlpi_kept_rec *r = dlpi_area_at(p, DLPI_REC_KEPT, 0);
    r->n_cells = c->n_cells;
    r->cell_bytes = c->cell_bytes;
    r->cells_at = p->areas[DLPI_AREA_KEPT].offset;
    r->n_items = c->n_items;
}

/* What of the cache is in use; a record that says nonsense is taken for no cache. */
static bool dlpi_cache_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    dlp_stats *out = &s->figures;
    uint64_t kept = 0, cells, bytes, items;
    DLPI_UNUSED(stage);
    if (words->rec[DLPI_REC_KEPT].count != 1) return true;
    if (!dlpi_word_at(words, DLPI_REC_KEPT, 0, offsetof(dlpi_kept_rec, n_cells), 8, &cells) ||
        !dlpi_word_at(words, DLPI_REC_KEPT, 0, offsetof(dlpi_kept_rec, cell_bytes), 8, &bytes) ||
        !dlpi_word_at(words, DLPI_REC_KEPT, 0, offsetof(dlpi_kept_rec, n_items), 8, &items) ||
        cells == 0 || bytes == 0 || cells > items || cells > UINT64_MAX / bytes)
        return true;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const dlpi_wblock *wb = dlpi_seen_block(s, i);
        out->cache_hits += DLPI_LOAD_RLX(&wb->kept_hits); /* statistics, here and below */
        out->cache_misses += DLPI_LOAD_RLX(&wb->kept_misses);
        kept += DLPI_LOAD_RLX(&wb->kept_items);
    }
    out->cache_bytes = kept * bytes;
    out->cache_capacity = cells * bytes;
    out->cache_all_bytes = dlpi_times(items, bytes);
    return true;
}

static const dlpi_keeper_ops dlpi_cache_keeper = {
    .ahead = dlpi_cache_ahead,
    .get = dlpi_cache_get,
    .put = dlpi_cache_put,
    .recover = dlpi_cache_recover,
};

static const dlpi_stage_ops dlpi_cache_ops = {
    .kind = DLP_STAGE_CACHE,
    .rank = 5,
    .self_bytes = sizeof(dlpi_cache),
    .check = dlpi_cache_check,
    .layout = dlpi_cache_layout,
    .describe = dlpi_cache_describe,
    .seen = dlpi_cache_seen,
    .keeper = &dlpi_cache_keeper,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-map        MAPS: OF ITEMS, AND OF WHOLE BATCHES, IN PLACE */

static int dlpi_map_check(dlp_pipe *p, dlpi_stage *st) {
    if ((st->item == NULL) == (st->batch == NULL))
        return dlpi_bad(p, st->name, "item", "given, or batch, and not both", 0);
    return st->batch ? dlpi_check_batch_workers(p, st) : dlpi_check_workers(p, st);
}

static const dlpi_stage_ops dlpi_map_item_ops = {
    .kind = DLP_STAGE_MAP_ITEM,
    .rank = 6,
    .many = 1,
    .unit = DLPI_UNIT_ROWS,
    .step = dlpi_rows_step,
    .find = dlpi_rows_find,
    .run = dlpi_rows_run,
    .full = dlpi_rows_full,
    .owes = dlpi_rows_owes,
    .due = dlpi_rows_due,
    .recover = dlpi_slots_recover,
};

static const dlpi_stage_ops dlpi_map_batch_ops = {
    .kind = DLP_STAGE_MAP_BATCH,
    .rank = 8,
    .many = 1,
    .unit = DLPI_UNIT_BATCHES,
    .step = dlpi_batches_step,
    .find = dlpi_rows_find,
    .run = dlpi_batches_run,
    .recover = dlpi_slots_recover,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-batch      THE BATCH STAGE
   It has workers only where there is a collate, or where batch workers are asked for. */

static int dlpi_batch_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_batch_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_batch_desc, last), 0, 2, "DLP_LAST_*"},
        {DLPI_AT(dlp_batch_desc, batch_workers), DLP_NONE, DLP_MAX_WORKERS, "DLP_NONE or 0..1024"},
    };
    const dlp_batch_desc *d = &st->batching;
    bool own = d->out_fields != NULL;
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (own && d->collate == NULL)
        dlpi_bad(p, st->name, "out_fields", "NULL without a collate", d->n_out_fields);
    dlpi_within(p, st->name, "n_out_fields", d->n_out_fields, own, own ? DLP_MAX_FIELDS : 0,
                own ? "1..16" : "0 without out_fields");
    return p->err.code != 0 ? p->err.code : dlpi_check_batch_workers(p, st);
}

static const dlpi_stage_ops dlpi_batch_ops = {
    .kind = DLP_STAGE_BATCH,
    .rank = 7,
    .unit = DLPI_UNIT_BATCHES,
    .step = dlpi_batches_step,
    .find = dlpi_rows_find,
    .run = dlpi_batches_run,
    .recover = dlpi_slots_recover,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-transfer   BATCHES TO THE DEVICE
   One thread, or the caller. Batches go in their order (unordered: as they become ready) into the
   device buffers; a batch is ready when the event behind its copies has passed. None of a later
   epoch goes while one of the oldest is to come: the caller takes no other before, and it could
   find no buffer. */

typedef struct dlpi_transfer { /* what the stage keeps */
    dlp_transfer_desc d;
    dlp_device device;
    int open, registered;
    void **data;    /* [device_buffers * fields] */
    uint8_t *begun; /* [ring] copies of batches behind the next one */
} dlpi_transfer;

static dlpi_transfer *dlpi_transfer_of(const dlpi_stage *st) { return st->self; }

/* C2 of device buffers: slot + 1 in it, 0 free */
static uint32_t *dlpi_dev_slot(const dlp_pipe *p, uint64_t i) {
    return dlpi_area_at(p, DLPI_REC_SINK, i);
}

static void dlpi_transfer_error(const dlpi_stage *st, const char *what, int rc, dlp_error *e) {
    const dlp_device *d = &dlpi_transfer_of(st)->device;
    dlpi_error_set(e, DLP_ERR_DEVICE, "", "device \"%s\": %s returned %d", d->name ? d->name : "",
                   what, rc);
    dlpi_copy_text(e->stage, sizeof e->stage, st->name);
}

static int dlpi_transfer_fail(dlp_pipe *p, dlpi_bslot *slot, const char *what, int rc) {
    dlp_error e;
    dlpi_transfer_error(p->sink, what, rc, &e);
    e.epoch = slot->epoch;
    e.position = slot->position;
    dlpi_slot_fail(slot, DLPI_NOBODY, &e);
    return DLP_ERR_DEVICE;
}

static void dlpi_transfer_ready(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bump(&w->wb->items, 1);
    DLPI_STORE_SEQ(&dlpi_sst_at(p, s, w->st)->ready, b + 1); /* Y1 -> Y1 */
    dlpi_ring_caller(p->ctl, b);
}

/* Bytes of a field to be copied. */
static uint64_t dlpi_transfer_bytes(const dlpi_worker *w, uint32_t s, uint32_t f) {
    const dlp_pipe *p = w->p;
    return p->lender ? p->lender->ops->lender->bytes(p, s, f) : w->tensors[f].bytes;
}

/* Copy what lies in slot `from`, for the batch in slot s, into the memory of device buffer `to`,
   behind events of number `buffer`. */
static int dlpi_transfer_copy(dlpi_worker *w, uint32_t s, uint32_t from, uint32_t to,
                              uint32_t buffer) {
    dlp_pipe *p = w->p;
    const dlpi_transfer *x = dlpi_transfer_of(w->st);
    const dlp_device *d = &x->device;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    int rc;
    dlpi_batch_view_init(p, from, &w->batch, w->tensors);
    dlpi_batch_view(p, from, &w->batch, w->tensors);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        uint64_t bytes = dlpi_transfer_bytes(w, s, f);
        void *dev = x->data[(size_t)to * p->batches.n + f];
        rc = d->copy(d->user, dev, w->tensors[f].data, bytes, buffer);
        if (rc != 0) return dlpi_transfer_fail(p, slot, "copy", rc);
        dlpi_bump(&w->wb->bytes, bytes);
    }
    rc = d->record(d->user, buffer);
    return rc != 0 ? dlpi_transfer_fail(p, slot, "record", rc) : DLP_OK;
}

/* The same, where what was copied stays in a device buffer of its own. dev_slot says 1: it is on
   its way there, 2: it is there. Whoever loaded it copies it even if the epoch was left, for nobody
   will load it again. Events have the slot's number. */
static bool dlpi_transfer_stay(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool left = !dlpi_wanted(p->ctl, slot),
         failed = DLPI_LOAD_ACQ(&slot->failed) != 0; /* F1 <- F1 */
    uint32_t state, from;
    slot->dbuf = failed ? DLPI_NO_SLOT : p->stay->place(p, s);
    if (slot->dbuf == DLPI_NO_SLOT) {
        dlpi_transfer_ready(w, s, b);
        return true;
    }
    state = DLPI_LOAD_ACQ(dlpi_dev_slot(p, slot->dbuf)); /* C2 <- C2 */
    if (state == 1) return false;                        /* maybe out of this cell */
    from = state == 0 ? p->stay->source(p, s, b) : DLPI_NO_SLOT;
    if (from == s || (from != DLPI_NO_SLOT && !left)) {
        dlpi_clock_in(w);
        DLPI_STORE_RLX(dlpi_dev_slot(p, slot->dbuf), 1u); /* C2: only this thread */
        if (dlpi_transfer_copy(w, s, from, slot->dbuf, s) != DLP_OK)
            dlpi_transfer_ready(w, s, b);
        else
            w->parked[w->n_parked++] = (dlpi_parked){0, b, s, s};
        dlpi_clock_out(w, b, slot->epoch, 1);
        return true;
    }
    if (state == 0 && !left) dlpi_transfer_fail(p, slot, "an earlier copy of this chunk", -1);
    dlpi_transfer_ready(w, s, b);
    return true;
}

/* Begin the copy of batch b in slot s if a buffer is free. Returns whether it was taken. */
static bool dlpi_transfer_begin(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t buffers = (uint32_t)dlpi_transfer_of(w->st)->d.device_buffers, i = 0;
    if (p->stay != NULL) return dlpi_transfer_stay(w, s, b);
    slot->dbuf = DLPI_NO_SLOT;
    if (dlpi_slot_idle(p, s)) {
        dlpi_transfer_ready(w, s, b);
        return true;
    }
    while (i < buffers && DLPI_LOAD_ACQ(dlpi_dev_slot(p, i)) != 0) i++; /* C2 <- C2 */
    if (i == buffers) return false;
    DLPI_STORE_RLX(dlpi_dev_slot(p, i), s + 1); /* C2: only this thread takes */
    slot->dbuf = i;
    dlpi_clock_in(w);
    if (dlpi_transfer_copy(w, s, s, i, i) != DLP_OK)
        dlpi_transfer_ready(w, s, b);
    else
        w->parked[w->n_parked++] = (dlpi_parked){0, b, s, i};
    dlpi_clock_out(w, b, slot->epoch, 1);
    return true;
}

/* Copies whose events have passed. */
static bool dlpi_transfer_poll(dlpi_worker *w) {
    const dlp_device *d = &dlpi_transfer_of(w->st)->device;
    bool moved = false;
    for (int i = 0; i < w->n_parked;) {
        dlpi_parked k = w->parked[i];
        int done = d->done(d->user, k.row);
        if (done == 0) {
            i++;
            continue;
        }
        if (done != 1)
            dlpi_transfer_fail(w->p, dlpi_slot_at(w->p, k.slot), "done", done);
        else if (w->p->stay != NULL)
            DLPI_STORE_SEQ(dlpi_dev_slot(w->p, dlpi_slot_at(w->p, k.slot)->dbuf), /* C2 -> C2 */
                           w->p->stay->left(w->p, k.slot) ? 0u : 2u);
        memmove(&w->parked[i], &w->parked[i + 1], (size_t)(--w->n_parked - i) * sizeof k);
        dlpi_transfer_ready(w, k.slot, k.gen);
        moved = true;
    }
    return moved;
}

static bool dlpi_transfer_step(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    uint64_t tail = DLPI_LOAD_SEQ(&p->ctl->tail); /* T1 <- T1 */
    dlpi_stage *up = p->work[w->st->work - 1];
    uint8_t *begun = dlpi_transfer_of(w->st)->begun;
    bool moved = dlpi_transfer_poll(w);
    uint64_t mark =
        w->cursor != tail ? dlpi_slot_mark(dlpi_slot_at(p, dlpi_slot_of(p, w->cursor))) : 0;
    for (uint64_t b = w->cursor; b != tail; b++) {
        uint32_t s = dlpi_slot_of(p, b);
        bool taken = begun[b & (p->ring - 1)] != 0;
        if (!taken && dlpi_slot_mark(dlpi_slot_at(p, s)) != mark) break;
        /* Y1 <- Y1 */
        if (!taken && dlpi_ready_is(DLPI_LOAD_SEQ(&dlpi_sst_at(p, s, up)->ready), b)) {
            if (!dlpi_transfer_begin(w, s, b)) break;
            begun[b & (p->ring - 1)] = 1;
            moved = taken = true;
        }
        if (taken && b == w->cursor) begun[w->cursor++ & (p->ring - 1)] = 0;
        if (!taken && !p->d.unordered) break;
    }
    return dlpi_transfer_poll(w) || moved;
}

/* No event wakes a worker when a copy is through: it looks often. */
static uint64_t dlpi_transfer_due(dlpi_worker *w, uint64_t ns) {
    return w->n_parked > 0 && ns > 20000 ? 20000 : ns;
}

/* ---- the consumer's side ---- */

/* The pipe's device, or NULL. */
static const dlp_device *dlpi_transfer_device(const dlp_pipe *p) {
    return p->sink ? &dlpi_transfer_of(p->sink)->device : NULL;
}

/* The number of the events of what slot s has. */
__attribute__((unused)) /* without devices that have streams */
static uint32_t
dlpi_transfer_events(const dlp_pipe *p, uint32_t s) {
    return p->stay != NULL ? s : dlpi_slot_at(p, s)->dbuf;
}

static void dlpi_transfer_data(const dlp_pipe *p, uint32_t s, uint32_t field, uint64_t at,
                               dlp_tensor *t) {
    const dlpi_transfer *x = dlpi_transfer_of(p->sink);
    uint8_t *base = x->data[dlpi_slot_at(p, s)->dbuf * p->batches.n + field];
    t->data = x->device.handles ? base : base + at;
    t->byte_offset = x->device.handles ? at : 0;
}

static void dlpi_transfer_freed(dlp_pipe *p, uint32_t s) {
    uint32_t buffer = dlpi_slot_at(p, s)->dbuf;
    if (buffer == DLPI_NO_SLOT || p->stay != NULL) return;
    DLPI_STORE_SEQ(dlpi_dev_slot(p, buffer), 0u); /* C2 -> C2 */
    dlpi_ring(&p->bells[p->sink->work], 1, 1);
}

static uint64_t dlpi_transfer_buffers(const dlp_pipe *p) {
    return (uint64_t)dlpi_transfer_of(p->sink)->d.device_buffers;
}

/* ---- building ---- */

static void dlpi_transfer_layout(dlp_pipe *p, dlpi_stage *st) {
    uint64_t buffers = (uint64_t)dlpi_transfer_of(st)->d.device_buffers;
    dlpi_area_add(p, DLPI_REC_SINK, NULL, sizeof(uint32_t), buffers, DLPI_LINE);
}

/* What dlpi_transfer_alloc asks for. */
static uint64_t dlpi_transfer_private(const dlp_pipe *p, const dlpi_stage *st) {
    uint64_t buffers = (uint64_t)dlpi_transfer_of(st)->d.device_buffers;
    return dlpi_sum(dlpi_times(dlpi_times(buffers, p->batches.n), sizeof(void *)), p->ring);
}

static bool dlpi_transfer_alloc(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    x->begun = calloc(p->ring, 1);
    x->data = calloc((size_t)x->d.device_buffers * p->batches.n, sizeof *x->data);
    return x->begun != NULL && x->data != NULL;
}

static void dlpi_transfer_release(dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    free(x->begun);
    free(x->data);
}

static int dlpi_transfer_start(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    const dlp_device *d = &x->device;
    uint32_t n = (uint32_t)x->d.device_buffers * p->batches.n;
    int rc = d->open ? d->open(d->user) : 0;
    dlp_error e;
    const char *what = "open";
    if (rc == 0) x->open = 1;
    if (rc == 0 && d->register_memory) {
        what = "register_memory";
        rc = d->register_memory(d->user, dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
        x->registered = rc == 0;
    }
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        what = "alloc";
        rc = d->alloc(d->user, p->batches.at[i % p->batches.n].capacity, &x->data[i]);
    }
    if (rc == 0) return DLP_OK;
    dlpi_transfer_error(st, what, rc, &e);
    return dlpi_pipe_fail(p, &e);
}

static void dlpi_transfer_end(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    const dlp_device *d = &x->device;
    uint32_t n = (uint32_t)x->d.device_buffers * p->batches.n;
    if (!x->open) return;
    for (uint32_t i = 0; i < n; i++)
        if (x->data[i]) d->free(d->user, x->data[i]);
    if (x->registered && d->unregister_memory)
        d->unregister_memory(d->user, dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
    if (d->close) d->close(d->user);
    x->open = 0;
}

static const dlpi_sink_ops dlpi_transfer_sink = {
    .words = "device buffers",
    .buffers = dlpi_transfer_buffers,
    .data = dlpi_transfer_data,
    .freed = dlpi_transfer_freed,
};

static int dlpi_transfer_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = st->self;
    const dlp_device *d = &x->device;
    int held = p->d.max_held ? p->d.max_held : 1;
    if (!d->alloc || !d->free || !d->copy || !d->record || !d->done)
        return dlpi_bad(p, st->name, "device", "a device with alloc, free, copy, record and done",
                        0);
    if (x->d.device_buffers == 0) x->d.device_buffers = held + 1;
    dlpi_within(p, st->name, "device_buffers", x->d.device_buffers, held + 1, DLPI_PARK,
                "max_held + 1..64");
    dlpi_within(p, st->name, "threaded", x->d.threaded, 0, 1, "0 or 1");
    return p->err.code;
}

static const dlpi_stage_ops dlpi_transfer_ops = {
    .kind = DLP_STAGE_TRANSFER,
    .rank = 9,
    .unit = DLPI_UNIT_BATCHES,
    .in_order = 1,
    .self_bytes = sizeof(dlpi_transfer),
    .layout = dlpi_transfer_layout,
    .private_bytes = dlpi_transfer_private,
    .alloc = dlpi_transfer_alloc,
    .begin = dlpi_transfer_start,
    .end = dlpi_transfer_end,
    .release = dlpi_transfer_release,
    .step = dlpi_transfer_step,
    .due = dlpi_transfer_due,
    .sink = &dlpi_transfer_sink,
};

static int dlpi_host_alloc(void *user, uint64_t bytes, void **dev) {
    DLPI_UNUSED(user);
    *dev = NULL;
    return posix_memalign(dev, 4096, bytes ? (size_t)bytes : 1);
}
static void dlpi_host_free(void *user, void *dev) {
    DLPI_UNUSED(user);
    free(dev);
}
static int dlpi_host_copy(void *user, void *dev, const void *host, uint64_t bytes,
                          uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    if (bytes > 0) memcpy(dev, host, (size_t)bytes);
    return 0;
}
static int dlpi_host_record(void *user, uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    return 0;
}
static int dlpi_host_done(void *user, uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    return 1;
}
DLPDEF const dlp_device *dlp_device_host(void) {
    static const dlp_device host = {"host",         NULL,           NULL,
                                    NULL,           NULL,           dlpi_host_alloc,
                                    dlpi_host_free, dlpi_host_copy, dlpi_host_record,
                                    dlpi_host_done, NULL,           0};
    return &host;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-state      RESUME
   Fixed size, little-endian words; what changes the order is in it field by field, so that a
   mismatch names the field. */

typedef struct dlpi_state {
    uint64_t magic;
    uint64_t check; /* hash of all that follows */
    uint64_t n_items, seed, params;
    uint32_t global_batch;
    uint16_t order, last;
    uint64_t epoch, batch, position; /* the first batch not consumed */
    uint32_t window_used, sampler_bytes;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t window[DLPI_WINDOW_MAX / 8]; /* bit k: batch + k is consumed too */
} dlpi_state;

_Static_assert(sizeof(dlpi_state) <= sizeof(dlp_state), "a state must fit");

#define DLPI_STATE_MAGIC UINT64_C(0x3131657461747364) /* "dstate11" */

static uint64_t dlpi_state_check(const dlpi_state *s) {
    uint64_t h = DLPI_STATE_MAGIC;
    const uint8_t *bytes = (const uint8_t *)s;
    for (size_t i = offsetof(dlpi_state, n_items); i + 8 <= sizeof *s; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = dlp_hash(h, word, i, 0);
    }
    return h;
}

static void dlpi_state_config(const dlp_pipe *p, dlpi_state *s) {
    memset(s, 0, sizeof *s);
    s->magic = DLPI_STATE_MAGIC;
    s->n_items = p->open_end ? UINT64_MAX : p->fetch->dataset.n_items;
    s->seed = p->sampler->sampler.seed;
    s->params = p->params_hash;
    s->global_batch = (uint32_t)p->global_batch;
    s->order = (uint16_t)p->sampler->sampler.order;
    s->last = (uint16_t)p->last;
    if (p->source->config) p->source->config(p, s);
    if (p->lender) p->lender->ops->lender->config(p, s);
}

/* The source's own part of a state. At an epoch's beginning there is none. */
static void dlpi_state_source(dlpi_state *to, const dlpi_source_state *from) {
    to->sampler_bytes = to->batch > 0 ? from->bytes : 0;
    memset(to->sampler, 0, sizeof to->sampler);
    if (to->batch > 0) memcpy(to->sampler, from->at, sizeof to->sampler);
}

/* The state behind the batch in slot s, when all before it is consumed too. */
static void dlpi_state_after(const dlp_pipe *p, uint32_t s, uint32_t flags, dlpi_state *to) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool last = (flags & DLP_BATCH_LAST) != 0;
    to->epoch = last ? slot->epoch + 1 : slot->epoch;
    to->batch = last ? 0 : slot->in_epoch + 1;
    to->position = last ? 0 : slot->after;
    if (p->source->state) dlpi_state_source(to, p->source->state(p, s, 1));
}

/* Is batch k of the present epoch delivered, or was it consumed in the life before? */
static bool dlpi_state_consumed(const dlp_pipe *p, uint64_t k) {
    return k < p->win_base || (k - p->win_base < DLPI_WINDOW_MAX && p->win[k % DLPI_WINDOW_MAX]);
}

/* Unordered: the batches without a gap from the epoch's beginning, and a bit for each behind them.
   When all that was fed is delivered, what stands behind the highest stays, for the sampler's state
   is known there. */
static void dlpi_state_window(const dlp_pipe *p, dlpi_state *to) {
    uint64_t tail = DLPI_LOAD_ACQ(&p->ctl->tail); /* T1 <- T1 */
    uint32_t s = p->base != tail ? dlpi_slot_of(p, p->base) : DLPI_NO_SLOT;
    /* sought since */
    if (s != DLPI_NO_SLOT && dlpi_slot_at(p, s)->life != p->life) s = DLPI_NO_SLOT;
    if (!p->epoch_open || (s != DLPI_NO_SLOT && dlpi_slot_at(p, s)->epoch != p->epoch_now)) return;
    if (s != DLPI_NO_SLOT) {
        to->epoch = p->epoch_now;
        to->batch = p->win_base;
        to->position = dlpi_slot_at(p, s)->begins;
        if (p->source->state) dlpi_state_source(to, p->source->state(p, s, 0));
    }
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if (!dlpi_state_consumed(p, to->batch + k)) continue;
        to->window[k / 8] = (uint8_t)(to->window[k / 8] | 1u << k % 8);
        to->window_used = k + 1;
    }
}

/* Keep in mind what was delivered, for states asked for later. Unordered, the one that ends its
   epoch need not be the highest. */
static void dlpi_state_note(dlp_pipe *p, uint64_t b, uint32_t s, uint32_t flags) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    if (p->d.unordered) {
        p->win[slot->in_epoch % DLPI_WINDOW_MAX] = 1;
        while (p->win[p->win_base % DLPI_WINDOW_MAX]) p->win[p->win_base++ % DLPI_WINDOW_MAX] = 0;
        if (flags & DLP_BATCH_LAST) p->win_base = 0;
    }
    if (b + 1 > p->high) {
        p->high = b + 1;
        p->after_epoch = slot->epoch;
        p->after_batch = slot->in_epoch + 1;
        p->after_position = slot->after;
        if (p->source->state) p->after_source = *p->source->state(p, s, 1);
    }
    if (flags & DLP_BATCH_LAST) {
        p->after_epoch = slot->epoch + 1;
        p->after_batch = p->after_position = 0;
    }
}

/* The state behind all that was delivered. */
static void dlpi_state_now(const dlp_pipe *p, dlpi_state *to) {
    to->epoch = p->after_epoch;
    to->batch = p->after_batch;
    to->position = p->after_position;
    if (p->source->state) dlpi_state_source(to, &p->after_source);
    if (p->d.unordered) dlpi_state_window(p, to);
}

static int dlpi_state_differs(dlp_error *e, const char *field, uint64_t was, uint64_t is) {
    return dlpi_error_set(e, DLP_ERR_RESUME, field,
                          "the state was saved with %s %" PRIu64 ", this pipe has %" PRIu64, field,
                          was, is);
}

static uint64_t dlpi_epoch_batches(const dlp_pipe *p) {
    return p->lender ? p->lender->ops->lender->batches(p) : p->batches_per_epoch;
}

/* The caller's books stand behind a checked state. */
static void dlpi_state_books(dlp_pipe *p, const dlpi_state *s) {
    p->epoch_now = p->after_epoch = s->epoch;
    p->after_batch = s->batch;
    p->after_position = s->position;
    p->win_base = s->batch;
    p->epoch_open = s->batch > 0;
    p->last_sequence = UINT64_MAX;
    memset(p->win, 0, sizeof p->win);
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if ((s->window[k / 8] >> k % 8 & 1) == 0) continue;
        p->win[(s->batch + k) % DLPI_WINDOW_MAX] = 1;
        p->epoch_open = 1;
    }
    while (p->win[p->win_base % DLPI_WINDOW_MAX]) p->win[p->win_base++ % DLPI_WINDOW_MAX] = 0;
    p->after_source.bytes = s->sampler_bytes;
    memcpy(p->after_source.at, s->sampler, sizeof p->after_source.at);
}

/* Where the feeder goes on. */
static void dlpi_state_place(dlp_pipe *p, const dlpi_state *s, uint32_t life, dlpi_place *to) {
    to->epoch = s->epoch;
    to->batch = s->batch;
    to->position = s->position;
    to->sampler_bytes = s->sampler_bytes;
    to->life = life;
    memcpy(to->sampler, s->sampler, sizeof to->sampler);
    memcpy(to->window, s->window, sizeof to->window);
    if (p->lender) p->lender->ops->lender->seek(p, s, to);
}

/* Rows of the epoch before batch k of it, where they follow from k. */
static uint64_t dlpi_state_position(const dlp_pipe *p, uint64_t epoch, uint64_t k) {
    return p->lender ? p->lender->ops->lender->position(p, epoch, k) : k * p->global_batch;
}

/* The highest bit of the window is the last that is used. */
static bool dlpi_window_canonical(const dlpi_state *s) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++)
        if ((s->window[k / 8] >> k % 8 & 1) != 0) used = k + 1;
    return s->window_used == used;
}

/* Of a window, is something of the epoch left, and nothing of the next one in it? A state behind a
   whole epoch stands at the next one's beginning. */
static bool dlpi_window_fits(const dlpi_state *s, uint64_t most) {
    uint64_t left = most - s->batch;
    for (uint64_t k = 0; k < left && k < DLPI_WINDOW_MAX; k++)
        if ((s->window[k / 8] >> k % 8 & 1) == 0) return s->window_used <= left;
    return left > DLPI_WINDOW_MAX;
}

/* The field of a state with this pipe's order, if any, that has what is never saved. To go on from
   there would leave batches out, or give them twice, and nobody would be told. */
static const char *dlpi_state_never_saved(const dlp_pipe *p, const dlpi_state *s, uint64_t most) {
    if (p->source->state == NULL && s->sampler_bytes != 8 * p->source->n_words)
        return "sampler_bytes";
    for (uint32_t i = s->sampler_bytes; i < DLP_SAMPLER_STATE_BYTES; i++)
        if (s->sampler[i] != 0) return "sampler";
    if (p->source->never_saved) return p->source->never_saved(p, s);
    if (s->batch >= most) return "batch";
    if (!dlpi_window_fits(s, most)) return "window";
    return s->position == dlpi_state_position(p, s->epoch, s->batch) ? NULL : "position";
}

/* Is a saved state whole, and of this pipe's order? */
static int dlpi_state_check_all(const dlp_pipe *p, const dlp_state *state, dlpi_state *s,
                                const char *field, dlp_error *e) {
    dlpi_state mine;
    const char *wrong;
    uint64_t most = p->open_end ? p->samples / p->global_batch : dlpi_epoch_batches(p);
    memcpy(s, state->bytes, sizeof *s);
    dlpi_state_config(p, &mine);
    if (s->magic != DLPI_STATE_MAGIC || s->check != dlpi_state_check(s) ||
        !dlpi_window_canonical(s) || s->sampler_bytes > DLP_SAMPLER_STATE_BYTES ||
        s->epoch >= DLPI_MAX_EPOCH)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "this is no state of this version, or it is damaged");
    if (s->n_items != mine.n_items)
        return dlpi_state_differs(e, "n_items", s->n_items, mine.n_items);
    if (s->order != mine.order) return dlpi_state_differs(e, "order", s->order, mine.order);
    if (s->seed != mine.seed) return dlpi_state_differs(e, "seed", s->seed, mine.seed);
    if (s->global_batch != mine.global_batch)
        return dlpi_state_differs(e, "batch_size", s->global_batch, mine.global_batch);
    if (s->last != mine.last) return dlpi_state_differs(e, "last", s->last, mine.last);
    for (size_t i = 0; i < p->source->n_words; i++) {
        uint64_t was, is;
        memcpy(&was, s->sampler + i * 8, 8);
        memcpy(&is, mine.sampler + i * 8, 8);
        if (was != is) return dlpi_state_differs(e, p->source->words[i], was, is);
    }
    if (s->params != mine.params)
        return dlpi_state_differs(e,
                                  p->lender ? p->lender->ops->lender->params
                                            : "params (subset, weights, samples, function_id)",
                                  s->params, mine.params);
    if (s->window_used > 0 && !p->d.unordered) return dlpi_state_differs(e, "unordered", 1, 0);
    if ((wrong = dlpi_state_never_saved(p, s, most)) != NULL)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field, "the state's %s has what is never saved",
                              wrong);
    return DLP_OK;
}

/* Begin behind desc.resume. */
static int dlpi_state_take(dlp_pipe *p) {
    dlpi_state s;
    dlpi_place to;
    dlp_error e;
    int rc = dlpi_state_check_all(p, &p->resume, &s, "resume", &e);
    if (rc != DLP_OK) return dlpi_pipe_fail(p, &e);
    dlpi_state_books(p, &s);
    dlpi_state_place(p, &s, 0, &to);
    return dlpi_feed_goto(p, &to) == DLP_OK ? DLP_OK : dlpi_pipe_fail(p, &p->ctl->error);
}

/* ---- how long an epoch is: for sources, which say of what ---- */

/* Are there items, and can the sampler's order be had of them? */
static int dlpi_check_items(dlp_pipe *p) {
    dlp_error e;
    if (p->fetch->dataset.n_items == 0)
        return dlpi_bad(p, p->fetch->name, "dataset.n_items", "1..2^48", 0);
    if (dlpi_order_check(&p->sampler->sampler, p->fetch->dataset.n_items, &e) == DLP_OK)
        return DLP_OK;
    dlpi_copy_text(e.stage, sizeof e.stage, p->sampler->name);
    return dlpi_pipe_fail(p, &e);
}

/* An order that another source than this pipe's goes with. */
static int dlpi_bad_order(dlp_pipe *p) {
    return dlpi_bad(p, p->sampler->name, "sampler.order",
                    "DLP_ORDER_PARTS with a part queue, and only then", p->sampler->sampler.order);
}

/* Nobody knows the epoch's length. */
static int dlpi_epoch_open(dlp_pipe *p) {
    p->samples = DLPI_MAX_ITEMS;
    p->batches_per_epoch = UINT64_MAX;
    return DLP_OK;
}

/* An epoch of n samples. */
static int dlpi_epoch_of(dlp_pipe *p, uint64_t n) {
    p->samples = n;
    p->batches_per_epoch = n / p->global_batch;
    if (p->last != DLP_LAST_DROP && n % p->global_batch != 0) p->batches_per_epoch++;
    if (p->batches_per_epoch != 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, p->batcher->name, "last",
                       "DLP_LAST_DROP leaves no batch: %" PRIu64
                       " samples an epoch, batch_size %" PRIu64,
                       n, p->global_batch);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-sampler    SAMPLER AND REPEAT, AS STAGES: KEYED ORDERS
   What they do is done by whoever schedules batches: see >>impl-feed. The item at a position of an
   epoch follows from the seed alone, so the workers compute indices, and a state is a position. Of
   a dataset without a length positions are counted until a row says that the epoch is over. */

static int dlpi_keyed_sizes(dlp_pipe *p) {
    const dlp_sampler_desc *d = &p->sampler->sampler;
    int rc;
    if (d->order == DLP_ORDER_PARTS) return dlpi_bad_order(p);
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    if (p->open_end) {
        p->samples = dlpi_order_samples(d, p->fetch->dataset.n_items);
        p->batches_per_epoch = UINT64_MAX;
        return DLP_OK;
    }
    return dlpi_epoch_of(p, dlpi_order_samples(d, p->fetch->dataset.n_items));
}

/* A few indices, out of a block of 64 kept from the last time: a block costs little more than
   one. */
static void dlpi_near_indices(dlpi_worker *w, uint64_t epoch, uint64_t first, uint32_t n,
                              uint64_t *index) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = first + i, from = at & ~UINT64_C(63), left = w->p->samples - from;
        if (w->near_n == 0 || w->near_first != from || w->near_epoch != epoch) {
            w->near_n = left < 64 ? (uint32_t)left : 64;
            w->near_first = from;
            w->near_epoch = epoch;
            dlpi_order_block(&w->order, epoch, from, w->near_n, w->near);
        }
        index[i] = w->near[at - from];
    }
}

static void dlpi_keyed_indices(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint64_t *index = dlpi_slot_index(p, t->slot) + t->row;
    uint64_t at = slot->position + t->row;
    uint32_t n = t->end - t->row;
    while (n > 0) { /* padding goes on at the epoch's beginning */
        uint64_t first = at % p->samples;
        uint32_t take = p->samples - first < n ? (uint32_t)(p->samples - first) : n;
        if (take < 8 && w->st->n_workers <= 4)
            dlpi_near_indices(w, slot->epoch, first, take, index);
        else
            dlpi_order_block(&w->order, slot->epoch, first, take, index);
        index += take;
        at += take;
        n -= take;
    }
}

static uint64_t dlpi_keyed_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                uint64_t position, uint32_t k) {
    uint64_t index;
    DLPI_UNUSED(s);
    DLPI_UNUSED(row);
    if (k > 0) return dlpi_order_replacement(&w->order, epoch, position, k);
    dlpi_order_block(&w->order, epoch, position, 1, &index);
    return index;
}

static const dlpi_source_ops dlpi_keyed_source = {
    .sizes = dlpi_keyed_sizes,
    .rows = dlpi_feed_rows,
    .fill = dlpi_feed_padding,
    .seek = dlpi_feed_seek,
    .indices = dlpi_keyed_indices,
    .item = dlpi_keyed_item,
};

static const dlpi_stage_ops dlpi_sampler_ops = {
    .kind = DLP_STAGE_SAMPLER,
    .rank = 1,
    .source = &dlpi_keyed_source,
};

static int dlpi_repeat_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_repeat_desc, epochs), DLP_FOREVER, INT64_MAX, "DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_repeat_desc, epoch_end), 0, 1, "0 or 1"},
    };
    if (st->repeat.epochs == DLP_NONE)
        return dlpi_bad(p, st->name, "epochs", bounds[0].words, DLP_NONE);
    return dlpi_check_bounds(p, st->name, &st->repeat, DLPI_ROWS(bounds));
}

static const dlpi_stage_ops dlpi_repeat_ops = {.kind = DLP_STAGE_REPEAT, .rank = 2};

/* ---------------------------------------------------------------------------------------------
   >>impl-lists      LISTS OF A BATCH SAMPLER
   The user's batch sampler gives the indices of each global batch. Whoever schedules asks for one
   list ahead: that there is none is the only sign that a batch is its epoch's last. So what the
   sampler saves belongs to a batch that is scheduled later, and each slot has both states: before
   its list, and after it. */

typedef struct dlpi_lists {
    bool begun; /* the epoch below: n and index are its list fetched ahead */
    uint64_t epoch;
    int64_t n;                       /* 0: it has no other */
    uint64_t *index;                 /* [global_batch] */
    dlpi_source_state before, after; /* that list, as the sampler saves it */
} dlpi_lists;

static inline dlpi_lists *dlpi_lists_of(const dlp_pipe *p) { return p->source_stage->self; }

static int dlpi_lists_sizes(dlp_pipe *p) {
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    const char *name = p->sampler->name;
    int rc = dlpi_check_items(p);
    if (rc != DLP_OK) return rc;
    if (b->next == NULL) return dlpi_bad(p, name, "batches.next", "a function", 0);
    if ((b->save == NULL) != (b->restore == NULL))
        return dlpi_bad(p, name, "batches.restore", "given together with batches.save", 0);
    return dlpi_epoch_open(p);
}

static uint64_t dlpi_lists_private(const dlp_pipe *p, const dlpi_stage *st) {
    DLPI_UNUSED(st);
    return dlpi_times(p->global_batch, 8);
}

static bool dlpi_lists_alloc(dlp_pipe *p, dlpi_stage *st) {
    dlpi_lists *l = st->self;
    l->index = malloc((size_t)p->global_batch * 8);
    return l->index != NULL;
}

static void dlpi_lists_release(dlpi_stage *st) { free(((dlpi_lists *)st->self)->index); }

static uint64_t dlpi_lists_slot_bytes(const dlp_pipe *p) {
    DLPI_UNUSED(p);
    return 2 * sizeof(dlpi_source_state);
}

static int dlpi_lists_fail(dlp_pipe *p, const char *what, int64_t got) {
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    const char *why = b->why && got < 0 ? b->why(b->user) : NULL;
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "sampler.batches", "%s returned %" PRId64 "%s%s", what,
                   got, why ? ": " : "", why ? why : "");
    dlpi_copy_text(e.stage, sizeof e.stage, p->sampler->name);
    e.epoch = p->feed.epoch;
    dlpi_ctl_fail(p, DLPI_FEEDER, &e);
    return DLP_ERR_CALLBACK;
}

/* Ask for one list; keeps the states before and after it. */
static int dlpi_lists_next(dlp_pipe *p) {
    dlpi_lists *l = dlpi_lists_of(p);
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    int64_t n = b->next(b->user, p->feed.epoch, l->index, p->global_batch);
    if (n < 0 || (uint64_t)n > p->global_batch)
        return dlpi_lists_fail(p, "the batch sampler's next", n);
    for (int64_t i = 0; i < n; i++)
        if (l->index[i] >= p->fetch->dataset.n_items)
            return dlpi_lists_fail(p, "the batch sampler's next gave an index past the items; it",
                                   n);
    l->n = n;
    l->before = l->after;
    if (b->save) {
        int32_t bytes = b->save(b->user, l->after.at);
        if (bytes < 0 || bytes > DLP_SAMPLER_STATE_BYTES)
            return dlpi_lists_fail(p, "the batch sampler's save", bytes);
        l->after.bytes = (uint32_t)bytes;
        memset(l->after.at + bytes, 0, (size_t)(DLP_SAMPLER_STATE_BYTES - bytes));
    }
    return DLP_OK;
}

static int dlpi_lists_begin(dlp_pipe *p) {
    dlpi_lists *l = dlpi_lists_of(p);
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    int rc = b->begin ? b->begin(b->user, p->feed.epoch) : 0;
    l->begun = true;
    l->epoch = p->feed.epoch;
    l->n = 0;
    if (rc != 0) return dlpi_lists_fail(p, "the batch sampler's begin", rc);
    return dlpi_lists_next(p);
}

static int dlpi_lists_rows(dlp_pipe *p, uint64_t *rows) {
    const dlpi_lists *l = dlpi_lists_of(p);
    int rc = l->begun && l->epoch == p->feed.epoch ? DLP_OK : dlpi_lists_begin(p);
    *rows = (uint64_t)l->n;
    if (rc != DLP_OK || *rows > 0 || p->feed.in_epoch > 0) return rc;
    return dlpi_lists_fail(p, "the batch sampler's first next of an epoch", 0);
}

static void dlpi_lists_fill(dlp_pipe *p, uint32_t s) {
    const dlpi_lists *l = dlpi_lists_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlpi_source_state *states = dlpi_slot_source(p, s);
    memcpy(dlpi_slot_index(p, s), l->index + (slot->position - slot->begins),
           (size_t)slot->count * 8u);
    states[0] = l->before;
    states[1] = l->after;
}

/* Go on from the saved bytes, or replay the epoch's lists. */
static int dlpi_lists_seek(dlp_pipe *p, const dlpi_place *to) {
    dlpi_lists *l = dlpi_lists_of(p);
    dlpi_feeder *f = &p->feed;
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    int rc;
    l->begun = false;
    if (to->batch == 0) return DLP_OK;
    if (b->restore && to->sampler_bytes > 0) {
        /* it stands before the list asked for next */
        l->after.bytes = to->sampler_bytes;
        memcpy(l->after.at, to->sampler, sizeof l->after.at);
        rc = b->restore(b->user, to->sampler, to->sampler_bytes);
        f->in_epoch = to->batch;
        f->position = to->position;
        l->begun = true;
        l->epoch = f->epoch;
        return rc != 0 ? dlpi_lists_fail(p, "the batch sampler's restore", rc) : dlpi_lists_next(p);
    }
    rc = dlpi_lists_begin(p);
    while (rc == DLP_OK && f->in_epoch < to->batch && l->n > 0)
        rc = dlpi_feed_step(p, (uint64_t)l->n);
    if (rc == DLP_OK && f->in_epoch < to->batch)
        return dlpi_lists_fail(
            p, "the batch sampler ended the epoch before the saved state; its next", 0);
    return rc;
}

static uint64_t dlpi_lists_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                uint64_t position, uint32_t k) {
    if (k == 0) return dlpi_slot_index(w->p, s)[row];
    return dlpi_order_replacement(&w->order, epoch, position, k);
}

static const dlpi_source_state *dlpi_lists_state(const dlp_pipe *p, uint32_t s, int after) {
    return (const dlpi_source_state *)dlpi_slot_source(p, s) + after;
}

/* Lists have a row each, at least. A state that was not saved but made, by dlp_pipe_state_at, knows
   neither rows nor what the sampler would save. */
static bool dlpi_lists_fit(const dlp_pipe *p, const dlpi_state *s) {
    if (s->batch == 0) return s->position == 0 && s->sampler_bytes == 0;
    if (s->position == 0) return s->sampler_bytes == 0;
    return s->position >= s->batch && s->position <= dlpi_times(s->batch, p->global_batch);
}

static const char *dlpi_lists_never_saved(const dlp_pipe *p, const dlpi_state *s) {
    return dlpi_lists_fit(p, s) ? NULL : "position";
}

static const dlpi_source_ops dlpi_lists_source = {
    .sizes = dlpi_lists_sizes,
    .slot_bytes = dlpi_lists_slot_bytes,
    .rows = dlpi_lists_rows,
    .fill = dlpi_lists_fill,
    .step = dlpi_lists_next,
    .seek = dlpi_lists_seek,
    .item = dlpi_lists_item,
    .state = dlpi_lists_state,
    .never_saved = dlpi_lists_never_saved,
};

/* A sampler stage whose order is DLP_ORDER_BATCHES. */
static const dlpi_stage_ops dlpi_lists_ops = {
    .kind = DLP_STAGE_SAMPLER,
    .rank = 1,
    .self_bytes = sizeof(dlpi_lists),
    .private_bytes = dlpi_lists_private,
    .alloc = dlpi_lists_alloc,
    .release = dlpi_lists_release,
    .source = &dlpi_lists_source,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-parts      PART QUEUE: THE CELLS, WHAT TO LOAD NEXT, LOADING IT
   The source of batches whose items come in parts. The scheduler alone does all of it, but for the
   word of each cell. It computes the indices of a batch as it schedules it, looks ahead for the
   parts that come next in the order of this rank's rows, and gives each of them a free cell and a
   ticket. A part stays in its cell while a batch up to the one looked at last needs it, and until
   all batches scheduled that need it have left the last stage that could send rows back to fetch.
   A unit of the part workers is a cell with an open ticket, the oldest first.

   cell.state: ticket (39 bits) and what is with it. Tickets only grow.

     CLOSED --feeder: OPEN--> OPEN --worker: a swap, its number--> ... --worker--> LOADED or FAILED
       ^  ^                    |  ^                                 |                  |
       |  +--feeder: a swap ---+  +-- failed, or dead: tried again -+                  |
       +----------------------- feeder: no batch needs it any more --------------------+

   label  atomic            written by                    read by (partner)
   Q1     cell.state        feeder: OPEN, CLOSED;         part workers before a claim; feeder, who
                            worker: claim, LOADED,        then reads the part, or shows it to item
                            FAILED; recovery: OPEN        workers with the batch (P1, T1)
   Q2     ctl.source_moves  worker, after Q1; recovery    feeder (Q2): look again for a free cell;
                                                          before it sleeps, so behind B1
   B1     bell.mask, word   as everywhere

   Why a claim is right. The swap that puts a worker's number there IS the claim. It fails unless
   the word is that of the very ticket that was read, and open: after a cell was given to another
   part its ticket is another. Fields of the cell are read behind the swap, and the feeder writes
   them only while the word is LOADED or FAILED, which no worker changes, or CLOSED, which it makes
   it by a swap that fails if a worker has come first. So while a worker's number stands there
   nobody but it writes fields or bytes. tests/model/model_parts.pml goes through all of this.
   Why a death costs no part. Nothing but the word tells who loads. A worker that dies before it
   says LOADED leaves its number there; recovery, which is alone with a dead worker's words, makes
   it OPEN again, and the next worker begins at the first byte: nobody reads bytes that are not
   LOADED. One that dies behind LOADED has done all but counting the load and waking: recovery
   counts one (Q2), and wakes everybody.
   Why it can't stand still. When the feeder waits for a free cell for a part of batch k, each cell
   that is not k's own belongs to batches before k. All parts of those are in cells, so they are
   loaded and fed, they leave (workers never wait for a part), and their cells come free. So it is
   enough that one batch's parts fit into the cells: dlpi_parts_need holds the worst case of them
   against queue_size before the start. */

#define DLPI_PART_OPEN UINT32_C(0x1000000)
#define DLPI_PART_LOADED UINT32_C(0x1000001)
#define DLPI_PART_FAILED UINT32_C(0x1000002)
#define DLPI_PART_CLOSED UINT32_C(0)
#define DLPI_PART_GUARD ((uint64_t)DLPI_DEBUG * 4096) /* before a part, which is aligned so */
#define DLPI_PART_HINTS 64u

/* A part cell, in region. The feeder writes it while nobody may load; who loads writes the rest. */
typedef struct dlpi_pcell {
    uint64_t state; /* Q1 ticket (39), what is with it (25): see >>impl-parts */
    uint64_t part, first, items, epoch;
    uint64_t bytes;
    uint64_t due_ns; /* a failed load is tried again then */
    uint32_t rec;    /* tries, workers killed: as a row's */
    uint32_t killed_by;
    dlp_error error; /* of a load that failed */
    uint64_t used;   /* batch fed last that needs it, + 1; feeder, for observers */
    uint8_t pad[(DLPI_LINE << 2) - 72 - sizeof(dlp_error)];
} dlpi_pcell;

_Static_assert(sizeof(dlpi_pcell) == 4 * DLPI_LINE, "region layout");

typedef struct dlpi_part_use { /* what the scheduler knows of a cell */
    uint64_t part, epoch;      /* whose need gave it its ticket; 0: sought since */
    uint64_t until;            /* epochs from this one on want it loaded anew; UINT64_MAX: none */
    uint64_t need_epoch, need; /* the last batch known to need it */
    uint64_t used;             /* batch scheduled last that needs it, + 1 */
    uint64_t ticket;           /* 0: never given */
    bool needed;               /* by that batch; false: by none that is to be scheduled */
    dlp_permutation items;     /* of (part, epoch) asked for last */
} dlpi_part_use;

typedef struct dlpi_part_place { /* what a search for free cells depends on */
    uint64_t epoch, batch;       /* to be scheduled next */
    uint64_t left, loads;
} dlpi_part_place;

/* What the stage keeps. */
typedef struct dlpi_parts {
    dlp_part_desc d;
    uint32_t n_cells;
    uint8_t pad[DLPI_LINE]; /* part workers read what is above; below is the scheduler's */
    dlpi_part_plan plan;
    uint64_t *tables;   /* of both orders */
    dlpi_part_use *use; /* [n_cells] */
    uint64_t tickets;
    uint64_t epoch, batch; /* how far ahead parts are asked for: up to before this batch */
    uint64_t left;         /* no batch below it will need its parts again */
    bool stuck;            /* no cell was free, when all was at: */
    dlpi_part_place stuck_at;
    uint32_t hint[DLPI_PART_HINTS];
} dlpi_parts;

static inline dlpi_parts *dlpi_parts_of(const dlp_pipe *p) { return p->source_stage->self; }

static inline dlpi_pcell *dlpi_pcell_at(const dlp_pipe *p, uint32_t i) {
    return dlpi_area_at(p, DLPI_REC_SOURCE, i);
}
static inline uint8_t *dlpi_part_bytes(const dlp_pipe *p, uint32_t i) {
    return (uint8_t *)dlpi_area_at(p, DLPI_REC_SOURCE_CELLS, i) + DLPI_PART_GUARD;
}
/* Which part cell each row of slot s comes from. */
static inline uint32_t *dlpi_slot_pcell(const dlp_pipe *p, uint32_t s) {
    return dlpi_slot_source(p, s);
}
static inline uint32_t dlpi_part_state(const dlp_pipe *p, uint32_t c) {
    return dlpi_gen_low(DLPI_LOAD_SEQ(&dlpi_pcell_at(p, c)->state)); /* Q1 <- Q1 */
}

/* ---- what the desc may say, and what follows ---- */

static int dlpi_parts_bounds(dlp_pipe *p, const dlpi_stage *st, const dlp_part_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_part_desc, n_parts), 1, INT64_C(1) << 31, "1..2^31"},
        {DLPI_AT(dlp_part_desc, max_part_bytes), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_part_desc, queue_size), 0, 4096, "0, or 2..4096"},
        {DLPI_AT(dlp_part_desc, streams), 0, 1 << 20, "0..2^20, a divisor of batch_size"},
        {DLPI_AT(dlp_part_desc, shuffle_parts), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_part_desc, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_part_desc, steps_per_epoch), 0, DLPI_MAX_ITEMS, "0..2^48"},
        {"dispatch", DLPI_IN(dlp_part_desc, workers.dispatch), 0, 0,
         "DLP_DISPATCH_CLAIM for parts"},
        {"workers_max", DLPI_IN(dlp_part_desc, workers.workers_max), 0, 0,
         "0 for parts: they are not tuned"},
        {"workers_min", DLPI_IN(dlp_part_desc, workers.workers_min), 0, 0,
         "0 for parts: they are not tuned"},
    };
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (d->queue_size == 1) dlpi_bad(p, st->name, "queue_size", "0, or 2..4096", 1);
    if (d->workers.on_error == DLP_ON_ERROR_REPLACE)
        dlpi_bad(p, st->name, "on_error", "DLP_ON_ERROR_RAISE or _SHORT for parts", 1);
    if (d->load == NULL) dlpi_bad(p, st->name, "load", "a function", 0);
    if (d->items == NULL && d->count == NULL)
        dlpi_bad(p, st->name, "items", "n_parts counts, or count a function", 0);
    return p->err.code != 0 ? p->err.code : dlpi_check_workers(p, st);
}

/* Items of part i, of which there may be as many as room. */
static int dlpi_parts_count_one(dlp_pipe *p, const dlpi_stage *st, const dlp_part_desc *d,
                                uint64_t i, uint64_t room, uint64_t *items) {
    int rc = 0;
    if (d->items)
        *items = d->items[i];
    else
        rc = d->count(d->user, i, items);
    if (rc != 0)
        return dlpi_refuse(p, DLP_ERR_CALLBACK, st->name, "count",
                           "part %" PRIu64 ": count returned %d", i, rc);
    if (*items <= room) return DLP_OK;
    return dlpi_refuse(
        p, DLP_ERR_ARG, st->name, "items",
        "part %" PRIu64 " has %" PRIu64 " items, and with it there are more than 2^48", i, *items);
}

/* Take the desc: its numbers, and the items before each part. */
static int dlpi_parts_take(dlp_pipe *p, dlpi_stage *st, const dlp_part_desc *d) {
    dlpi_parts *q = st->self;
    uint64_t items = 0;
    int rc = dlpi_parts_bounds(p, st, d);
    if (rc != DLP_OK) return rc;
    q->d = *d;
    q->d.items = NULL;
    st->own = (void (*)(void))d->load;
    st->user = d->user;
    q->plan.n_parts = d->n_parts;
    q->plan.streams = d->streams ? d->streams : 1;
    q->plan.steps = d->steps_per_epoch;
    q->plan.shuffle_parts = d->shuffle_parts != 0;
    q->plan.shuffle_items = d->shuffle_items != 0;
    q->plan.first = calloc((size_t)d->n_parts + 1, sizeof *q->plan.first);
    if (q->plan.first == NULL) return dlpi_no_memory(p, "items", "the parts' counts");
    for (uint64_t i = 0; i < d->n_parts && rc == DLP_OK; i++) {
        rc = dlpi_parts_count_one(p, st, d, i, DLPI_MAX_ITEMS - q->plan.first[i], &items);
        q->plan.first[i + 1] = q->plan.first[i] + items;
    }
    return rc;
}

/* The sum of the counts is the dataset's. */
static int dlpi_parts_items_are(dlp_pipe *p, const dlpi_stage *st, uint64_t items) {
    dlp_dataset *ds = &p->fetch->dataset;
    if (p->open_end)
        return dlpi_bad_graph(p, st->name,
                              "this stage wants to know the number of items, and a "
                              "stream has none");
    if (ds->n_items != 0 && ds->n_items != items)
        return dlpi_refuse(p, DLP_ERR_ARG, p->fetch->name, "dataset.n_items",
                           "n_items is %" PRIu64 ", the parts have %" PRIu64 " items", ds->n_items,
                           items);
    ds->n_items = items;
    return DLP_OK;
}

/* What its numbers must be to others. */
static int dlpi_parts_fit(dlp_pipe *p, const dlpi_stage *st, const dlpi_part_plan *q) {
    uint64_t items = dlpi_parts_items(q);
    int rc = dlpi_parts_items_are(p, st, items);
    if (rc != DLP_OK) return rc;
    if (p->sampler->sampler.subset || p->sampler->sampler.weights)
        return dlpi_bad(p, p->sampler->name, "sampler.subset",
                        "NULL with DLP_ORDER_PARTS, as weights", 1);
    if (q->streams > p->global_batch || p->global_batch % q->streams != 0)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "streams",
                           "batch_size %" PRIu64 " can't be divided by streams %" PRIu64,
                           p->global_batch, q->streams);
    if (q->steps == 0) return DLP_OK;
    dlpi_within(p, st->name, "items", (int64_t)items, (int64_t)q->streams, INT64_MAX,
                "one for each stream with steps_per_epoch");
    dlpi_within(p, st->name, "steps_per_epoch", (int64_t)q->steps, 0,
                (int64_t)(DLPI_MAX_ITEMS / p->global_batch), "at most 2^48 items in an epoch");
    return p->err.code;
}

static int dlpi_parts_sizes(dlp_pipe *p) {
    dlpi_part_plan *q = &dlpi_parts_of(p)->plan;
    int rc;
    if (p->sampler->sampler.order != DLP_ORDER_PARTS) return dlpi_bad_order(p);
    if ((rc = dlpi_parts_fit(p, p->source_stage, q)) != DLP_OK) return rc;
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    q->batch = p->global_batch;
    q->seed = p->sampler->sampler.seed;
    q->samples = q->steps ? q->steps * p->global_batch
                          : dlpi_order_samples(&p->sampler->sampler, p->fetch->dataset.n_items);
    return dlpi_epoch_of(p, q->samples);
}

/* This rank's rows of global batch k of an epoch; returns the position of the first. */
static uint64_t dlpi_parts_rows(const dlp_pipe *p, uint64_t k, uint32_t *count) {
    uint64_t at = k * p->global_batch, first;
    bool cut = p->last == DLP_LAST_SHORT && p->samples - at < p->global_batch;
    dlpi_rank_rows(p, cut ? p->samples - at : p->global_batch, &first, count);
    return at + first;
}

/* How many parts batch k can need here, at most. */
static uint64_t dlpi_parts_need_of(const dlp_pipe *p, const dlpi_parts *q, uint64_t k) {
    uint32_t count;
    uint64_t at = dlpi_parts_rows(p, k, &count);
    return dlpi_parts_need(&q->plan, at, count);
}

/* How many cells there are. All batches but the last are alike. */
static int dlpi_parts_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_parts *q = st->self;
    uint64_t need = dlpi_parts_need_of(p, q, 0);
    uint64_t tail = dlpi_parts_need_of(p, q, p->batches_per_epoch - 1);
    if (tail > need) need = tail;
    q->n_cells = q->d.queue_size;
    if (q->n_cells == 0 && need < 4096) q->n_cells = need < 1 ? 2 : (uint32_t)need + 1;
    if (q->n_cells >= need && q->n_cells > 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "queue_size",
                       "a batch may need %" PRIu64 " parts at once (batch_size, streams, the "
                       "smallest parts), queue_size is %" PRIu32 "; 0 takes what is needed",
                       need, q->d.queue_size);
}

/* ---- memory ---- */

static uint64_t dlpi_parts_slot_bytes(const dlp_pipe *p) { return dlpi_times(p->batch_rows, 4); }

static void dlpi_parts_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_parts *q = st->self;
    uint64_t stride = dlpi_round_up(dlpi_sum(q->d.max_part_bytes, DLPI_GUARD), 4096);
    dlpi_area_add(p, DLPI_REC_SOURCE, "part cells: records", sizeof(dlpi_pcell), q->n_cells,
                  DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_SOURCE_CELLS, "part cells", dlpi_sum(stride, DLPI_PART_GUARD),
                  q->n_cells, 4096);
}

/* Sums in the order given (since add), and in those of two epochs; what is known of the cells. */
static uint64_t dlpi_parts_private(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_parts *q = st->self;
    DLPI_UNUSED(p);
    return dlpi_sum(dlpi_times(q->plan.n_parts + 1, q->plan.shuffle_parts ? 24 : 8),
                    dlpi_times(q->n_cells, sizeof(dlpi_part_use)));
}

static bool dlpi_parts_alloc(dlp_pipe *p, dlpi_stage *st) {
    dlpi_parts *q = st->self;
    size_t sums = (size_t)q->plan.n_parts + 1;
    DLPI_UNUSED(p);
    q->use = calloc(q->n_cells, sizeof *q->use);
    if (!q->plan.shuffle_parts) return q->use != NULL;
    q->tables = calloc(sums, 2 * sizeof *q->tables);
    if (q->tables == NULL) return false;
    q->plan.orders[0].first = q->tables;
    q->plan.orders[1].first = q->tables + sums;
    return q->use != NULL;
}

static void dlpi_parts_release(dlpi_stage *st) {
    dlpi_parts *q = st->self;
    free(q->plan.first);
    free(q->tables);
    free(q->use);
}

static void dlpi_guarded_part(const dlp_pipe *p, uint64_t most, uint8_t *bytes, dlpi_guarded *c) {
    c->from = bytes - DLPI_PART_GUARD;
    c->to = c->from + p->areas[DLPI_REC_SOURCE_CELLS].stride;
    c->n = 1;
    c->span[0] = (dlpi_span){bytes, most, NULL};
}

static void dlpi_parts_live(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_parts *q = st->self;
    for (uint32_t i = 0; DLPI_DEBUG && i < q->n_cells; i++) {
        dlpi_guarded c;
        dlpi_guarded_part(p, q->d.max_part_bytes, dlpi_part_bytes(p, i), &c);
        dlpi_guarded_paint(&c);
    }
}

/* ---- looking ahead ---- */

/* The cell that has the part for this epoch, or will have; n_cells: none. hint: of the place in
   the batch, where it was the last time. */
static uint32_t dlpi_part_find_cell(dlp_pipe *p, uint64_t epoch, uint64_t part, uint32_t place) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t *hint = &q->hint[place % DLPI_PART_HINTS];
    for (uint32_t i = 0, c = *hint; i <= q->n_cells; c = i++) {
        const dlpi_part_use *u = &q->use[c];
        if (u->ticket == 0 || u->part != part || u->epoch > epoch || u->until <= epoch) continue;
        *hint = c;
        return c;
    }
    return q->n_cells;
}

/* A cell whose part no batch needs any more, closed; n_cells: none. at: the batch to be scheduled
   next. */
static uint32_t dlpi_part_free_cell(dlp_pipe *p, const dlpi_part_place *at) {
    dlpi_parts *q = dlpi_parts_of(p);
    for (uint32_t c = 0; c < q->n_cells; c++) {
        dlpi_part_use *u = &q->use[c];
        uint64_t *state = &dlpi_pcell_at(p, c)->state, now = DLPI_LOAD_SEQ(state); /* Q1 <- Q1 */
        uint32_t low = dlpi_gen_low(now);
        if (u->ticket == 0) return c;
        if (u->needed &&
            (u->need_epoch > at->epoch || (u->need_epoch == at->epoch && u->need >= at->batch)))
            continue;
        if (u->used > q->left) continue;
        if (low == DLPI_PART_LOADED || low == DLPI_PART_FAILED) return c;
        if (low == DLPI_PART_OPEN && /* an epoch that was left */
            DLPI_CAS_SEQ(state, &now, dlpi_gen_word(u->ticket, DLPI_PART_CLOSED))) /* Q1 -> Q1 */
            return c;
    }
    return q->n_cells;
}

/* Have the part loaded into cell c. */
static void dlpi_part_issue(dlp_pipe *p, uint32_t c, uint64_t epoch, uint64_t part) {
    dlpi_parts *q = dlpi_parts_of(p);
    dlpi_part_use *u = &q->use[c];
    dlpi_pcell *cell = dlpi_pcell_at(p, c);
    u->part = part;
    u->epoch = epoch;
    u->until = UINT64_MAX;
    u->used = 0;
    DLPI_STORE_RLX(&cell->used, UINT64_C(0)); /* for observers */
    u->ticket = ++q->tickets;
    cell->part = part;
    cell->first = q->plan.first[part];
    cell->items = dlpi_part_size(&q->plan, part);
    cell->epoch = epoch;
    cell->bytes = 0;
    DLPI_STORE_RLX(&cell->due_ns, UINT64_C(0)); /* ordered by state */
    cell->rec = 0;
    DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(u->ticket, DLPI_PART_OPEN)); /* Q1 -> Q1, B1 */
}

/* The cell of a part that the batch looked at needs, which is given one if it has none; n_cells:
   none is free, or the part is in one since an epoch before, and it is not known yet whether its
   load fails: then this epoch tries again. *fresh counts tickets. */
static uint32_t dlpi_part_want(dlp_pipe *p, const dlpi_part_place *at, uint64_t part,
                               uint32_t place, uint32_t *fresh) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t c = dlpi_part_find_cell(p, q->epoch, part, place);
    if (c < q->n_cells && q->use[c].need_epoch < q->epoch) { /* a new epoch, a new try */
        uint32_t low = dlpi_part_state(p, c);
        if (low != DLPI_PART_FAILED) return low == DLPI_PART_LOADED ? c : q->n_cells;
        q->use[c].until = q->epoch;
        c = q->n_cells;
    }
    if (c < q->n_cells || (c = dlpi_part_free_cell(p, at)) == q->n_cells) return c;
    dlpi_part_issue(p, c, q->epoch, part);
    ++*fresh;
    return c;
}

/* Cells for all parts of the batch looked at. Returns how many batches after it need no other
   parts, or -1: a cell is missing. A batch and the next take neighbours from each stream, so the
   parts stay the same until the first of its pieces comes to its part's end (steady); only full
   batches are alike, so never past the last of them. */
static int64_t dlpi_parts_look(dlp_pipe *p, const dlpi_part_place *at, uint32_t *fresh) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint64_t from, steady = UINT64_MAX, full = dlpi_parts_full(&q->plan);
    uint32_t count, place = 0;
    from = dlpi_parts_rows(p, q->batch, &count);
    for (uint64_t r = 0; r < count; place++) {
        dlpi_piece x;
        uint32_t c;
        dlpi_parts_piece(&q->plan, q->epoch, from + r, count - r, &x);
        if ((c = dlpi_part_want(p, at, x.part, place, fresh)) == q->n_cells) return -1;
        q->use[c].needed = true;
        q->use[c].need_epoch = q->epoch;
        q->use[c].need = q->batch;
        if (x.steady < steady) steady = x.steady;
        r += x.n;
    }
    if (q->batch >= full || count == 0) return 0;
    if (steady > full - 1 - q->batch) steady = full - 1 - q->batch;
    for (uint32_t c = 0; c < q->n_cells && steady > 0; c++)
        if (q->use[c].need_epoch == q->epoch && q->use[c].need == q->batch)
            q->use[c].need += steady;
    return (int64_t)steady;
}

/* The scheduler goes on at another place, maybe an earlier one. What was asked for beyond it is
   needed no more, and a part that is in a cell, or on its way there, will do for any epoch: it must
   not take a second cell, there may be none. What has failed is tried again. */
static int dlpi_parts_seek(dlp_pipe *p, const dlpi_place *to) {
    dlpi_parts *q = dlpi_parts_of(p);
    q->epoch = to->epoch;
    q->batch = to->batch;
    q->stuck = false;
    for (uint32_t c = 0; c < q->n_cells; c++) {
        dlpi_part_use *u = &q->use[c];
        uint32_t low = dlpi_part_state(p, c);
        u->needed = false;
        if (u->until != UINT64_MAX || low == DLPI_PART_FAILED)
            u->until = 0;
        else
            u->epoch = 0;
    }
    return dlpi_feed_seek(p, to);
}

/* Batches that have left the last stage that may send rows back. */
static void dlpi_parts_leave(dlp_pipe *p) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint64_t base = DLPI_LOAD_SEQ(&p->ctl->base); /* V1 <- V1 */
    if (q->left < base) q->left = base;           /* delivered: their slots may be others' */
    for (; q->left < p->feed.published; q->left++) {
        dlpi_sst *sst = dlpi_sst_at(p, dlpi_slot_of(p, q->left), p->rows_end);
        if (!dlpi_ready_past(DLPI_LOAD_ACQ(&sst->ready), q->left)) break; /* Y1 <- Y1 */
    }
}

/* The batch to be scheduled next, and all else on which it depends whether a cell is free. A caller
   that has left the epoch wants the next one's first. */
static dlpi_part_place dlpi_parts_now(dlp_pipe *p) {
    uint64_t cancel = DLPI_LOAD_RLX(&p->ctl->cancel); /* N1: a hint */
    dlpi_part_place at = {p->feed.epoch, p->feed.in_epoch, 0, 0};
    at.loads = DLPI_LOAD_SEQ(&p->ctl->source_moves); /* Q2 <- Q2, B1 */
    if (dlpi_mark_life(cancel) == p->feed.life && at.epoch < (cancel & DLPI_EPOCH_MASK)) {
        at.epoch = cancel & DLPI_EPOCH_MASK;
        at.batch = 0;
    }
    dlpi_parts_leave(p);
    at.left = dlpi_parts_of(p)->left;
    return at;
}

/* Ask for parts until there is no free cell, at most to the end of the epoch after the one that is
   scheduled. Returns how many. */
static uint32_t dlpi_parts_ask(dlp_pipe *p, const dlpi_part_place *at) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t fresh = 0;
    while (q->epoch <= at->epoch + 1 && !dlpi_epochs_over(p, q->epoch)) {
        int64_t steady = dlpi_parts_look(p, at, &fresh);
        q->stuck = steady < 0;
        if (q->stuck) break;
        q->batch += (uint64_t)steady + 1;
        if (q->batch < p->batches_per_epoch) continue;
        q->batch = 0;
        q->epoch++;
    }
    return fresh;
}

/* Ask for the parts that come next. A search that found no free cell is not begun again until
   something has changed on which it depends. */
static void dlpi_parts_ahead(dlp_pipe *p) {
    dlpi_parts *q = dlpi_parts_of(p);
    const dlpi_stage *st = p->source_stage;
    dlpi_part_place at;
    uint32_t fresh;
    if (p->feed.ended) return;
    at = dlpi_parts_now(p);
    if (q->epoch < at.epoch || (q->epoch == at.epoch && q->batch < at.batch)) {
        q->epoch = at.epoch;
        q->batch = at.batch;
    }
    if (q->stuck && memcmp(&q->stuck_at, &at, sizeof at) == 0) return;
    q->stuck = false;
    q->stuck_at = at;
    if ((fresh = dlpi_parts_ask(p, &at)) == 0) return;
    if (st->w.num_workers == 0)
        dlpi_ring_caller(p->ctl, UINT64_MAX);
    else
        dlpi_ring(&p->bells[st->work], (uint32_t)st->n_workers, fresh);
}

/* Are all parts there that the present batch needs? If one is missing, and no batch is on its way,
   the consumer will wait for it. */
static bool dlpi_parts_there(dlp_pipe *p, uint64_t rows) {
    dlpi_parts *q = dlpi_parts_of(p);
    const dlpi_feeder *f = &p->feed;
    uint64_t from, at;
    uint32_t count, place = 0;
    bool there = q->epoch > f->epoch || (q->epoch == f->epoch && q->batch > f->in_epoch);
    dlpi_rank_rows(p, rows, &from, &count);
    at = f->position + from;
    for (uint64_t r = 0; there && r < count; place++) {
        dlpi_piece x;
        uint32_t low;
        dlpi_parts_piece(&q->plan, f->epoch, at + r, count - r, &x);
        low = dlpi_part_state(p, dlpi_part_find_cell(p, f->epoch, x.part, place));
        there = low == DLPI_PART_LOADED || low == DLPI_PART_FAILED;
        r += x.n;
    }
    DLPI_STORE_RLX(&p->ctl->source_waits, /* for the caller's books */
                   !there && f->published == DLPI_LOAD_SEQ(&p->ctl->delivered)); /* V1 <- V1 */
    return there;
}

/* ---- a batch is scheduled ---- */

/* Is a part that can't be loaded an error of the batch that needs n rows of it? *e: what is wrong
   with the part, and, if it is one, with the batch. */
static bool dlpi_part_raises(dlp_pipe *p, uint32_t n, dlp_error *e) {
    const dlp_workers_desc *d = &p->source_stage->w;
    if (e->code == DLP_SKIP) return false;
    if (d->on_error == DLP_ON_ERROR_RAISE || dlpi_never_skipped(e->code)) return true;
    if (d->max_skips != DLP_NONE && dlpi_failures_add(p->ctl, n, d->max_skips)) return false;
    e->code = DLP_ERR_BUDGET;
    return true;
}

/* Rows [row, row + n) of a part that can't be loaded: left out, or an error of this batch. */
static void dlpi_part_rows_fail(dlp_pipe *p, uint32_t s, const dlpi_pcell *cell, uint32_t row,
                                uint32_t n) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlpi_worker *first = &p->workers[p->source_stage->first_worker];
    dlp_error e = cell->error;
    bool raise = dlpi_part_raises(p, n, &e);
    slot->dirty = 1;
    e.epoch = slot->epoch;
    for (uint32_t r = row; r < row + n; r++) dlpi_slot_rec(p, s)[r] = DLPI_ROW_LEFT;
    if (raise) {
        e.position = slot->position + row;
        if (e.code == DLP_ERR_BUDGET) dlpi_error_first(p->ctl, &e);
        dlpi_slot_fail(slot, DLPI_NOBODY, &e);
        return;
    }
    e.has_item = 1;
    for (uint32_t r = row; r < row + n; r++) {
        e.position = slot->position + r;
        e.index = dlpi_slot_index(p, s)[r];
        dlpi_skip_put(p->ctl, p->source_stage->id, &e, e.code ? e.code : DLP_SKIP, UINT64_MAX);
    }
    dlpi_bump(&first->wb->left_out, n); /* the scheduler is its one writer */
}

/* The rows of the batch in slot s: their indices, and the cells that they come from. */
static void dlpi_parts_fill(dlp_pipe *p, uint32_t s) {
    dlpi_parts *q = dlpi_parts_of(p);
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t *index = dlpi_slot_index(p, s);
    uint32_t place = 0;
    dlpi_feed_padding(p, s);
    for (uint32_t r = 0; r < slot->count; place++) {
        dlpi_piece x;
        uint32_t c, n;
        dlpi_pcell *cell;
        dlpi_parts_piece(&q->plan, slot->epoch, slot->position + r, slot->count - r, &x);
        c = dlpi_part_find_cell(p, slot->epoch, x.part, place);
        cell = dlpi_pcell_at(p, c);
        n = (uint32_t)x.n;
        dlpi_piece_indices(&q->plan, &q->use[c].items, slot->epoch, &x, index + r);
        for (uint32_t i = r; i < r + n; i++) dlpi_slot_pcell(p, s)[i] = c;
        q->use[c].used = slot->sequence + 1;
        DLPI_STORE_RLX(&cell->used, slot->sequence + 1); /* for observers */
        if (dlpi_part_state(p, c) == DLPI_PART_FAILED) dlpi_part_rows_fail(p, s, cell, r, n);
        r += n;
    }
}

/* ---- a row of it is fetched ---- */

static void dlpi_part_row(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row, void *own) {
    const dlp_pipe *p = w->p;
    uint32_t c = dlpi_slot_pcell(p, s)[row];
    const dlpi_pcell *cell = dlpi_pcell_at(p, c);
    dlp_part *part = own;
    part->index = cell->part;
    part->data = dlpi_part_bytes(p, c);
    part->bytes = cell->bytes;
    part->items = cell->items;
    part->first = cell->first;
    part->item = it->index - cell->first;
    it->part = part;
}

/* In place of an item that failed: one of the same part, for no other may be here. */
static uint64_t dlpi_part_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                               uint64_t position, uint32_t k) {
    const dlp_pipe *p = w->p;
    const dlpi_pcell *cell = dlpi_pcell_at(p, dlpi_slot_pcell(p, s)[row]);
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, p->sampler->sampler.seed, epoch);
    uint64_t random = dlpi_absorb(dlpi_absorb(h, position), k);
    if (k == 0) return dlpi_slot_index(p, s)[row];
    return cell->first + dlpi_below(dlpi_range_of(cell->items), random);
}

/* ---- states ---- */

/* What else the order depends on. */
static const char *const dlpi_parts_words[] = {"parts (counts, manifest_id)", "streams",
                                               "steps_per_epoch", "shuffle_parts", "shuffle_items"};
#define DLPI_PARTS_WORDS (sizeof dlpi_parts_words / sizeof *dlpi_parts_words)

static void dlpi_parts_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_parts *q = dlpi_parts_of(p);
    const uint64_t words[DLPI_PARTS_WORDS] = {dlpi_parts_manifest(&q->plan, q->d.manifest_id),
                                              q->plan.streams, q->plan.steps, q->plan.shuffle_parts,
                                              q->plan.shuffle_items};
    memcpy(s->sampler, words, sizeof words);
    s->sampler_bytes = sizeof words;
}

static const dlpi_source_ops dlpi_parts_source = {
    .sizes = dlpi_parts_sizes,
    .slot_bytes = dlpi_parts_slot_bytes,
    .row_bytes = sizeof(dlp_part),
    .rows = dlpi_feed_rows,
    .ready = dlpi_parts_there,
    .fill = dlpi_parts_fill,
    .ahead = dlpi_parts_ahead,
    .seek = dlpi_parts_seek,
    .item = dlpi_part_item,
    .row = dlpi_part_row,
    .words = dlpi_parts_words,
    .n_words = DLPI_PARTS_WORDS,
    .config = dlpi_parts_config,
};

/* ---- part workers ---- */

/* When an open cell may be tried; 0: now. */
static inline uint64_t dlpi_part_due(const dlpi_pcell *cell) {
    return DLPI_LOAD_RLX(&cell->due_ns); /* ordered by state, or of a ticket that is past */
}

static bool dlpi_part_find(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    for (;;) {
        uint64_t oldest = 0, now = 0, mine;
        for (uint32_t c = 0; c < dlpi_parts_of(p)->n_cells; c++) {
            const dlpi_pcell *cell = dlpi_pcell_at(p, c);
            uint64_t state = DLPI_LOAD_SEQ(&cell->state), due; /* Q1 <- Q1, B1 */
            if (dlpi_gen_low(state) != DLPI_PART_OPEN) continue;
            if (oldest != 0 && dlpi_older(dlpi_gen(oldest), dlpi_gen(state))) continue;
            if ((due = dlpi_part_due(cell)) != 0) {
                if (now == 0) now = dlpi_now_ns();
                if (due > now) continue;
            }
            oldest = state;
            t->slot = c;
        }
        if (oldest == 0) return false;
        t->b = dlpi_gen(oldest);
        t->unit = t->row = t->end = 0;
        t->plain = false;
        mine = dlpi_gen_word(t->b, (uint64_t)w->global + 1u);
        if (DLPI_CAS_SEQ(&dlpi_pcell_at(p, t->slot)->state, &oldest, mine)) return true; /* Q1 */
    }
}

/* ns until a part may be tried again, at most ns. */
static uint64_t dlpi_parts_due(dlpi_worker *w, uint64_t ns) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = 0; c < dlpi_parts_of(p)->n_cells; c++) {
        const dlpi_pcell *cell = dlpi_pcell_at(p, c);
        uint64_t due, now;
        if (dlpi_gen_low(DLPI_LOAD_ACQ(&cell->state)) != DLPI_PART_OPEN) continue; /* Q1 <- Q1 */
        if ((due = dlpi_part_due(cell)) == 0) continue;
        now = dlpi_now_ns();
        if (due <= now) return 0;
        if (due - now < ns) ns = due - now;
    }
    return ns;
}

/* Who killed its workers too often, or held one past its deadline, has failed. */
static int dlpi_part_verdict(dlpi_worker *w, const dlpi_pcell *cell) {
    uint32_t rec = cell->rec;
    if (rec & DLPI_REC_LATE)
        return dlpi_say(w, DLP_ERR_DEADLINE,
                        "the load ran past its deadline_ms %d, its worker was killed",
                        w->st->w.deadline_ms);
    if (dlpi_rec_kills(rec) < w->p->max_kills) return 0;
    return dlpi_say(w, DLP_ERR_KILLED,
                    "the loading process died %u times here, the last time by %s",
                    dlpi_rec_kills(rec), dlpi_signal_text(cell->killed_by));
}

/* A load has returned rc. */
static inline int dlpi_guard_part(dlpi_worker *w, uint64_t part, uint8_t *bytes, int rc) {
    dlpi_guarded c;
    if (!DLPI_DEBUG) return rc;
    dlpi_guarded_part(w->p, dlpi_parts_of(w->p)->d.max_part_bytes, bytes, &c);
    return dlpi_guarded_check(w, &w->note, &c, "part", part, rc);
}

/* One try. Returns 0, or what is wrong. */
static int dlpi_part_try(dlpi_worker *w, uint32_t c, dlpi_pcell *cell) {
    uint8_t *bytes = dlpi_part_bytes(w->p, c);
    uint64_t most = dlpi_parts_of(w->p)->d.max_part_bytes;
    dlp_part part = {.index = cell->part,
                     .data = bytes,
                     .capacity = most,
                     .items = cell->items,
                     .first = cell->first,
                     .attempt = dlpi_rec_tries(cell->rec),
                     .worker = (uint32_t)w->id,
                     .worker_state = w->state,
                     .internal = w};
    int rc = dlpi_part_verdict(w, cell);
    if (rc != 0) return rc;
    rc = dlpi_item_returned(w, ((dlp_part_fn)w->st->own)(w->st->user, &part));
    rc = dlpi_guard_part(w, cell->part, bytes, rc);
    if (rc != 0) return rc;
    if (part.bytes > most)
        return dlpi_say(w, DLP_ERR_LENGTH,
                        "load set bytes to %" PRIu64 ", max_part_bytes is %" PRIu64, part.bytes,
                        most);
    cell->bytes = part.bytes;
    return 0;
}

static void dlpi_part_error(const dlpi_worker *w, dlpi_pcell *cell, int code) {
    dlp_error e;
    dlpi_describe(w, code, &e);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    cell->error = e;
    snprintf(cell->error.message, sizeof e.message, "part %" PRIu64 ": %.220s", cell->part,
             e.message);
}

/* Try until it is loaded, has failed, or is to be tried later. Returns what the cell then is. */
static uint32_t dlpi_part_tries(dlpi_worker *w, uint32_t c, dlpi_pcell *cell) {
    for (;;) {
        uint32_t tries = dlpi_rec_tries(cell->rec);
        int rc;
        if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->wb->since_ns, dlpi_now_ns());
        DLPI_STORE_RLX(&w->wb->running, (uint64_t)c << 32 | UINT32_MAX); /* X2 to recovery */
        dlpi_words_forget(w);
        rc = dlpi_part_try(w, c, cell);
        DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2 */
        if (rc == 0) return DLPI_PART_LOADED;
        if (rc == DLP_SKIP || dlpi_never_again(rc) || (int)tries >= w->st->w.retries) {
            dlpi_part_error(w, cell, rc);
            dlpi_failure_forget(w);
            return DLPI_PART_FAILED;
        }
        dlpi_failure_forget(w);
        dlpi_bump(&w->wb->retried, 1);
        cell->rec = dlpi_rec(0, tries + 1, 0);
        if (dlpi_stopped(w->p)) return DLPI_PART_OPEN;
        if (w->st->w.retry_backoff_ms == 0) continue;
        DLPI_STORE_RLX(&cell->due_ns, /* ordered by state */
                       dlpi_now_ns() + dlpi_backoff_ns(w->st, tries + 1));
        return DLPI_PART_OPEN;
    }
}

/* Load the part of a cell that is ours, and tell the feeder. */
static void dlpi_part_run(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_pcell *cell = dlpi_pcell_at(p, t->slot);
    uint64_t part = cell->part, epoch = cell->epoch, bytes;
    uint32_t what;
    dlpi_clock_in(w);
    DLPI_STORE_RLX(&w->wb->current, part); /* for observers */
    what = dlpi_part_tries(w, t->slot, cell);
    bytes = cell->bytes;
    if (what == DLPI_PART_LOADED) {
        dlpi_bump(&w->wb->items, 1);
        dlpi_bump(&w->wb->bytes, bytes);
    }
    dlpi_clock_out(w, part, epoch, 1);
    DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(t->b, what)); /* Q1 -> Q1, B1 */
    if (what == DLPI_PART_OPEN) return; /* its time comes, and who sleeps first looks at it */
    DLPI_ADD_SEQ(&p->ctl->source_moves, UINT64_C(1)); /* Q2 -> Q2 */
    dlpi_ring_scheduler(p);
}

/* What a dead part worker had: its part is loaded by another one. */
static void dlpi_part_recover(dlpi_worker *w, const dlpi_death *why) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = 0; c < dlpi_parts_of(p)->n_cells; c++) {
        dlpi_pcell *cell = dlpi_pcell_at(p, c);
        uint64_t state = DLPI_LOAD_SEQ(&cell->state); /* Q1 <- Q1 */
        dlpi_unit t = {dlpi_gen(state), c, 0, 0, 0, false};
        bool ran = DLPI_LOAD_RLX(&w->wb->running) == ((uint64_t)c << 32 | UINT32_MAX); /* X2 */
        if (dlpi_gen_low(state) != (uint32_t)w->global + 1u) continue;
        dlpi_held_note(why, ran, &t, 1);
        if (ran) {
            cell->killed_by = why->signal;
            cell->rec = dlpi_rec_killed(cell->rec, (uint32_t)w->st->work, why->late);
        }
        DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(dlpi_gen(state), DLPI_PART_OPEN)); /* Q1 -> Q1 */
    }
    /* Q2 -> Q2: it may have died behind LOADED, before this */
    DLPI_ADD_SEQ(&p->ctl->source_moves, UINT64_C(1));
}

static bool dlpi_part_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_part_find(w, &t)) return false;
    dlpi_part_run(w, &t);
    return true;
}

/* One more part cell: base: batches below it are delivered. */
static void dlpi_part_count(dlp_stage_stats *out, uint64_t state, uint64_t used, uint64_t base) {
    uint32_t low = dlpi_gen_low(state);
    if (low == DLPI_PART_LOADED) out->loaded++;
    if (low == DLPI_PART_LOADED && used > base) out->in_use++;
    if (low != DLPI_PART_CLOSED && low <= DLPI_PART_OPEN) out->loading++;
}

/* The part cells, counted. Those of an older version do not say for which batch they are. */
static bool dlpi_parts_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const dlpi_record *r = &words->rec[DLPI_REC_SOURCE];
    const uint64_t at = offsetof(dlpi_pcell, used);
    dlp_stage_stats *out = &s->figures.stages[stage];
    uint64_t state, used = 0, base = DLPI_LOAD_RLX(&s->ctl->base); /* statistics */
    if (r->type == 0) return true;
    if (r->count > 4096) return false;
    for (uint64_t c = 0; c < r->count; c++) {
        if (!dlpi_word_at(words, DLPI_REC_SOURCE, c, offsetof(dlpi_pcell, state), 8, &state) ||
            (r->stride >= at + 8 && !dlpi_word_at(words, DLPI_REC_SOURCE, c, at, 8, &used)))
            return false;
        dlpi_part_count(out, state, used, base);
    }
    out->cells = (uint32_t)r->count;
    return true;
}

static const dlpi_stage_ops dlpi_parts_ops = {
    .kind = DLP_STAGE_PARTS,
    .rank = 3,
    .unit = DLPI_UNIT_CELLS,
    .self_bytes = sizeof(dlpi_parts),
    .own = "load",
    .check = dlpi_parts_check,
    .layout = dlpi_parts_layout,
    .private_words = "part tables",
    .private_bytes = dlpi_parts_private,
    .alloc = dlpi_parts_alloc,
    .live = dlpi_parts_live,
    .release = dlpi_parts_release,
    .step = dlpi_part_step,
    .find = dlpi_part_find,
    .run = dlpi_part_run,
    .due = dlpi_parts_due,
    .recover = dlpi_part_recover,
    .seen = dlpi_parts_seen,
    .source = &dlpi_parts_source,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-tune       WORKERS ADDED AND RETIRED WHILE THE PIPE RUNS
   All workers_max of a stage are there from the start: threads and processes cost memory, which is
   planned, but no time while they are parked (one wake-up a second each). Starting and ending them
   live would allocate, could fail, and would fork in the middle of a run. A worker whose number is
   not below sbell.active (A1) claims nothing more. It finishes what it has claimed, rows that wait
   for another try included, and parks. One writer: the caller.

   The tuner runs in next, on clock readings that are there anyhow, every 100 ms at most. It looks
   at the time since the last look:
     more     the trainer waited (5 % of the time or more) and the stage's workers were busy (85 %),
              twice in a row, or once if it waited a quarter of the time: one more, or half as many
              again if it waited half the time. Of several stages the busiest. Not beyond the items
              in flight, nor, by what its workers burn of the cores, or would if others did not
              have them, beyond those
     fewer    the trainer did not wait (2 %) and without one of them the others would have been busy
              for less than 75 % of the time, `patience` times in a row: one less, or a quarter less
              if they hardly worked at all
   What it takes for fewer (75 % of one less) and for more (85 %) is apart, so that at the same load
   one never follows from the other; should a worker be missed soon after it was retired, patience
   is doubled. What a look saw is from before the change; so each change begins the counts anew. */

#define DLPI_TUNE_EVERY_NS UINT64_C(100000000)
#define DLPI_TUNE_PATIENCE 3u

static void dlpi_tune_note(dlp_pipe *p, const dlpi_stage *st, int from, int to, int reason,
                           uint64_t now) {
    dlpi_ctl *ctl = p->ctl;
    uint64_t n = DLPI_LOAD_RLX(&ctl->tunes);
    dlp_tune_note *k = &ctl->tune[n % DLP_TUNE_NOTES];
    DLPI_STORE_RLX(&k->at_ns, now - ctl->started_ns); /* for people, as what follows */
    DLPI_STORE_RLX(&k->stage, st->id);
    DLPI_STORE_RLX(&k->from, from);
    DLPI_STORE_RLX(&k->to, to);
    DLPI_STORE_RLX(&k->reason, reason);
    DLPI_STORE_REL(&ctl->tunes, n + 1); /* A2 -> A2: behind the note */
}

/* Let n workers of the stage work. */
static void dlpi_tune_set(dlp_pipe *p, dlpi_stage *st, int n, int reason, uint64_t now) {
    dlpi_sbell *sb = &p->bells[st->work];
    dlpi_stage_rec *rec = dlpi_area_at(p, DLPI_REC_STAGES, (uint64_t)st->id);
    dlpi_tuned *t = &p->tune.at[st->work];
    int from = dlpi_active(p, st);
    t->hot = t->cold = 0;
    if (n == from) return;
    t->cores_said = 0;
    t->changed = p->tune.looks;
    DLPI_STORE_SEQ(&sb->active, (uint32_t)n); /* A1 -> A1 */
    DLPI_STORE_RLX(&rec->active, n);          /* for observers */
    dlpi_tune_note(p, st, from, n, reason, now);
    if (n > from) {
        dlpi_ring_parked(sb, (uint32_t)from, (uint32_t)n);
    } else { /* a wake-up that a retired one has taken goes to somebody else */
        for (int k = n; k < from; k++) dlpi_ring_worker(sb, (uint32_t)k);
        dlpi_ring(sb, (uint32_t)st->n_workers, UINT32_MAX);
    }
}

/* How busy the stage was since the last look; a call under way counts up to now. */
static void dlpi_tune_measure(const dlp_pipe *p, const dlpi_stage *st, dlpi_tuned *t, uint64_t now,
                              uint64_t ns) {
    uint64_t busy = 0, done = 0, cpu = 0, wait = 0, ran;
    for (int k = 0; k < st->n_workers; k++) {
        const dlpi_wblock *b = p->workers[st->first_worker + k].wb;
        uint64_t since = DLPI_LOAD_RLX(&b->since_ns); /* statistics, here and below */
        done += DLPI_LOAD_RLX(&b->busy_ns);
        cpu += DLPI_LOAD_RLX(&b->cpu_ns);
        wait += DLPI_LOAD_RLX(&b->core_wait_ns);
        if (DLPI_LOAD_RLX(&b->state) == DLP_WORKER_BUSY && now > since) busy += now - since;
    }
    busy += done;
    t->active = dlpi_active(p, st);
    t->share = busy > t->busy_ns ? (double)(busy - t->busy_ns) / ((double)ns * t->active) : 0;
    if (done > t->done_ns && cpu > t->cpu_ns) {
        double share;
        ran = cpu - t->cpu_ns;
        ran += dlpi_core_wait(done - t->done_ns, ran, wait - t->core_wait_ns);
        share = (double)ran / (double)(done - t->done_ns);
        t->cpu_share = (t->cpu_share + (share < 1 ? share : 1)) / 2;
        t->done_ns = done;
        t->cpu_ns = cpu;
        t->core_wait_ns = wait;
    }
    t->busy_ns = busy;
}

/* Workers beyond the items (or batches) in flight have nothing to do. */
static int dlpi_tune_most(const dlp_pipe *p, const dlpi_stage *st) {
    uint64_t n = dlpi_is_item_stage(p, st) ? (uint64_t)p->prefetch * p->batch_rows : p->prefetch;
    return n < (uint64_t)st->n_workers ? (int)n : st->n_workers;
}

/* Would one more worker of stage i compute on a core that another one has? */
static bool dlpi_tune_no_core(const dlp_pipe *p, int i) {
    double used = p->tune.at[i].cpu_share;
    for (int k = 0; k < p->n_work; k++)
        if (p->work[k]->w.num_workers > 0)
            used += p->tune.at[k].active * p->tune.at[k].share * p->tune.at[k].cpu_share;
    return p->tune.at[i].cpu_share > 0.5 && used > p->cpus + 0.25;
}

static bool dlpi_tune_more(dlp_pipe *p, double waited, uint64_t now) {
    dlpi_stage *st;
    dlpi_tuned *t;
    int best = -1, n;
    for (int i = 0; i < p->n_work; i++) {
        t = &p->tune.at[i];
        t->hot = waited >= 0.05 && t->share >= 0.85 ? t->hot + 1 : 0;
        if (!p->work[i]->tuned || t->set || t->hot < (waited >= 0.25 ? 1u : 2u)) continue;
        if (t->active >= dlpi_tune_most(p, p->work[i])) continue;
        if (best < 0 || t->share > p->tune.at[best].share) best = i;
    }
    if (best < 0) return false;
    st = p->work[best];
    t = &p->tune.at[best];
    if (dlpi_tune_no_core(p, best)) {
        if (!t->cores_said) dlpi_tune_note(p, st, t->active, t->active, DLP_TUNE_CORES, now);
        t->cores_said = 1;
        return false;
    }
    /* missed soon after it was retired? */
    if (t->patience > 0 && p->tune.looks - t->changed < 20 && t->patience < 256) t->patience *= 2;
    n = t->active + (waited >= 0.5 && t->active > 2 ? t->active / 2 : 1);
    dlpi_tune_set(p, st, n < dlpi_tune_most(p, st) ? n : dlpi_tune_most(p, st), DLP_TUNE_BUSY, now);
    return true;
}

static bool dlpi_tune_fewer(dlp_pipe *p, double waited, uint64_t now) {
    for (int i = 0; i < p->n_work; i++) {
        dlpi_stage *st = p->work[i];
        dlpi_tuned *t = &p->tune.at[i];
        int n = t->active - (t->share < 0.3 && t->active >= 8 ? t->active / 4 : 1);
        bool idle = waited < 0.02 && n >= st->w.workers_min && t->share * t->active < 0.75 * n;
        t->cold = st->tuned && !t->set && idle ? t->cold + 1 : 0;
        if (t->cold == 0) continue;
        if (t->patience == 0 || p->tune.looks - t->changed > 300) t->patience = DLPI_TUNE_PATIENCE;
        if (t->cold < t->patience) continue;
        dlpi_tune_set(p, st, n, DLP_TUNE_IDLE, now);
        return true;
    }
    return false;
}

static void dlpi_tune_look(dlp_pipe *p, uint64_t now) {
    dlpi_tuner *t = &p->tune;
    uint64_t ns = now - t->last_ns, waited = DLPI_LOAD_RLX(&p->ctl->wait_ns), before = t->waited_ns;
    double share;
    if (t->wait_from != 0 && now > t->wait_from) waited += now - t->wait_from;
    share = waited > before && ns > 0 ? (double)(waited - before) / (double)ns : 0;
    t->due_ns = now + t->every_ns;
    t->waited_ns = waited;
    t->last_ns = now;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.num_workers > 0)
            dlpi_tune_measure(p, p->work[i], &t->at[i], now, ns ? ns : 1);
    if (t->looks++ == 0) return; /* what comes before is the start */
    if (!dlpi_tune_more(p, share, now)) dlpi_tune_fewer(p, share, now);
}

static inline void dlpi_tune(dlp_pipe *p, uint64_t now) {
    if (DLPI_UNLIKELY(p->tune.every_ns != 0) && now >= p->tune.due_ns) dlpi_tune_look(p, now);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-deliver    NEXT AND RELEASE */

static dlpi_stage *dlpi_final(const dlp_pipe *p) { return p->work[p->n_work - 1]; }

static bool dlpi_ready(const dlp_pipe *p, uint64_t b, uint32_t s) {
    /* Y1 <- Y1 */
    return dlpi_ready_is(DLPI_LOAD_SEQ(&dlpi_sst_at(p, s, dlpi_final(p))->ready), b);
}

/* The batch to deliver now. Returns DLP_OK, DLP_EMPTY, or DLP_END when none will come. */
static int dlpi_take(dlp_pipe *p, uint64_t *b, uint32_t *s) {
    uint32_t over = DLPI_LOAD_SEQ(&p->ctl->fed_all); /* T1 <- T1: before tail */
    uint64_t tail = DLPI_LOAD_SEQ(&p->ctl->tail);    /* T1 <- T1 */
    uint64_t mark;
    if (p->base == tail) return over == dlpi_fed_word(p->life) ? DLP_END : DLP_EMPTY;
    *b = p->base;
    *s = dlpi_slot_of(p, *b);
    if (dlpi_ready(p, *b, *s)) return DLP_OK;
    if (!p->d.unordered) return DLP_EMPTY;
    mark = dlpi_slot_mark(dlpi_slot_at(p, *s));
    while (++*b != tail) {
        if (p->taken[*b & (p->ring - 1)]) continue;
        *s = dlpi_slot_of(p, *b);
        if (dlpi_slot_mark(dlpi_slot_at(p, *s)) != mark) return DLP_EMPTY;
        if (dlpi_ready(p, *b, *s)) return DLP_OK;
    }
    return DLP_EMPTY;
}

/* Batch b is taken: count it, move base. Returns the flags it is delivered with. */
static uint32_t dlpi_taken(dlp_pipe *p, uint64_t b, uint32_t flags) {
    dlpi_ctl *ctl = p->ctl;
    bool threaded = p->sampler->sampler.threaded != 0;
    if (flags & DLP_BATCH_LAST) p->last_sequence = b;
    DLPI_STORE_RLX(&p->taken[b & (p->ring - 1)], (uint8_t)1); /* statistics read it */
    for (; p->taken[p->base & (p->ring - 1)]; p->base++)
        DLPI_STORE_RLX(&p->taken[p->base & (p->ring - 1)], (uint8_t)0);
    DLPI_STORE_REL(&ctl->base, p->base); /* V1 -> V1 */
    if (threaded) {
        DLPI_STORE_SEQ(&ctl->delivered, DLPI_LOAD_RLX(&ctl->delivered) + 1); /* V1 -> V1, B1 */
        dlpi_ring_feeder(ctl);
    } else {
        DLPI_STORE_REL(&ctl->delivered, DLPI_LOAD_RLX(&ctl->delivered) + 1); /* V1 -> V1 */
    }
    if (p->last_sequence != UINT64_MAX && p->base > p->last_sequence) {
        p->last_sequence = UINT64_MAX;
        return flags | DLP_BATCH_LAST;
    }
    return flags & ~(uint32_t)DLP_BATCH_LAST;
}

/* Give slot s back to the feeder. */
static void dlpi_slot_free(dlp_pipe *p, uint32_t s) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    if (p->sink) p->sink->ops->sink->freed(p, s);
    if (p->sampler->sampler.threaded) {
        DLPI_STORE_SEQ(&slot->used, 0u); /* C1 -> C1 */
        dlpi_ring_feeder(p->ctl);
    } else {
        DLPI_STORE_REL(&slot->used, 0u); /* C1 -> C1 */
    }
}

/* How many credits to gather before they are fed. The tail is read by every worker, so each
   publication costs a trip of its line between cores; a caller that takes batches faster than that
   feeds several at once. At most a quarter of the credits wait, and none while the caller waits. */
static uint64_t dlpi_burst(const dlp_pipe *p) {
    return p->call_clock_every >= 32 && p->prefetch >= 8 ? p->prefetch / 4 : 1;
}

static void dlpi_feed_inline(dlp_pipe *p, uint64_t burst) {
    if (!p->sampler->sampler.threaded && !dlpi_stopped(p)) dlpi_feed(p, burst);
}

/* Hand batch b in slot s to the caller. */
static void dlpi_deliver(dlp_pipe *p, uint64_t b, uint32_t s, dlp_batch **out) {
    dlp_batch *batch = &p->out[s];
    dlpi_ctl *ctl = p->ctl;
    uint64_t bytes = 0;
    dlpi_batch_view(p, s, batch, p->out_fields + (size_t)s * p->batches.n);
    batch->flags = dlpi_taken(p, b, batch->flags);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        dlp_tensor *t = &p->out_fields[(size_t)s * p->batches.n + f];
        if (p->sink) p->sink->ops->sink->data(p, s, f, 0, t);
        bytes += t->bytes;
    }
    dlpi_state_note(p, b, s, batch->flags);
    p->held[s] = 1;
    p->n_held++;
    p->epoch_now = batch->epoch;
    p->epoch_open = (batch->flags & DLP_BATCH_LAST) == 0;
    if (!p->epoch_open && p->repeat && p->repeat->repeat.epoch_end) p->epoch_end_due = 1;
    DLPI_STORE_RLX(&ctl->held, p->n_held);
    DLPI_STORE_RLX(&ctl->epoch, batch->epoch);
    dlpi_bump(&ctl->items, batch->count);
    dlpi_bump(&ctl->bytes, bytes);
    dlpi_feed_inline(p, dlpi_burst(p));
    *out = batch;
}

/* What takes a batch's place when there is none: an error of the pipe, or DLP_OK. */
static int dlpi_next_error(dlp_pipe *p, bool over) {
    return dlpi_error_due(p->ctl, over) ? dlpi_pipe_fail(p, &p->ctl->error) : DLP_OK;
}

/* Run what is inline; returns whether anything moved. */
static bool dlpi_inline_steps(dlp_pipe *p) {
    bool moved = false;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers > 0) continue;
        if (st->ops->step(&p->workers[st->first_worker])) moved = true;
    }
    return moved;
}

static void dlpi_inline_rest(dlp_pipe *p) {
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        if (w->started || w->last_ns == 0) continue;
        dlpi_clock_stop(w);
        DLPI_STORE_RLX(&w->wb->current, UINT64_MAX);
        DLPI_STORE_RLX(&w->wb->state, DLP_WORKER_IDLE);
    }
}

/* What worker w works on now: index as read before. */
static void dlpi_describe_current(const dlpi_worker *w, uint64_t index, dlp_error *e) {
    dlpi_copy_text(e->stage, sizeof e->stage, w->st->name);
    e->worker = w->id;
    if (index == UINT64_MAX || !dlpi_is_item_stage(w->p, w->st)) return;
    e->has_item = 1;
    e->index = index;
    e->epoch = DLPI_LOAD_RLX(&w->wb->current_epoch); /* for people */
    e->position = DLPI_LOAD_RLX(&w->wb->current_position);
}

/* A callback past its deadline, if any. */
static int dlpi_deadline(dlp_pipe *p, uint64_t now) {
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        uint64_t limit = (uint64_t)w->st->w.deadline_ms * 1000000u;
        uint64_t since = DLPI_LOAD_RLX(&w->wb->since_ns), index = DLPI_LOAD_RLX(&w->wb->current);
        dlp_error e;
        /* an inline callback has returned: we are here; of processes the supervisor takes care */
        if (limit == 0 || !w->started || w->process) continue;
        if (DLPI_LOAD_RLX(&w->wb->state) != DLP_WORKER_BUSY) continue;
        if (index == UINT64_MAX || now < since + limit) continue;
        dlpi_error_set(&e, DLP_ERR_DEADLINE, "",
                       "the callback runs for %" PRIu64 " ms, its deadline_ms is %d",
                       (now - since) / 1000000u, w->st->w.deadline_ms);
        dlpi_describe_current(w, index, &e);
        return dlpi_pipe_fail(p, &e);
    }
    return DLP_OK;
}

static inline int dlpi_at_work(const dlp_pipe *p) { return p->n_threads + p->n_procs; }

/* What the source waits for may have come while we were awake, and woken nobody: could it go on? */
static bool dlpi_source_fed(dlp_pipe *p) {
    if (p->source->ready == NULL || p->sampler->sampler.threaded) return false;
    return dlpi_feed(p, 1) > 0;
}

/* Sleep until the wanted batch may be there, at most ns. */
static void dlpi_caller_sleep(dlp_pipe *p, uint64_t ns) {
    dlpi_ctl *ctl = p->ctl;
    uint64_t b, want = p->d.unordered || dlpi_at_work(p) < p->n_workers ? UINT64_MAX : p->base + 1;
    uint32_t s, word = DLPI_LOAD_SEQ(&ctl->caller_word); /* B1 <- B1 */
    for (int i = 0; i < p->n_workers; i++)
        if (!p->workers[i].started) {
            uint64_t due = dlpi_worker_due(&p->workers[i]);
            if (due < ns) ns = due;
        }
    DLPI_STORE_SEQ(&ctl->want, want); /* B1 -> B1 */
    if (dlpi_take(p, &b, &s) == DLP_EMPTY && !dlpi_inline_steps(p) && !dlpi_source_fed(p) &&
        !dlpi_stopped(p) && !dlpi_error_due(ctl, false)) /* E1 <- E1, behind B1 */
        dlpi_futex_wait(&ctl->caller_word, word, UINT32_MAX, ns, (int)ctl->shared);
    DLPI_STORE_SEQ(&ctl->want, UINT64_C(0)); /* B1 */
}

/* Are the processes still there? Who comes back without having waited need not look each time. */
static int dlpi_next_look(dlp_pipe *p, uint64_t now, uint64_t until) {
    if (now >= until && now - p->looked_ns < DLPI_SLEEP_NS / 10) return DLP_OK;
    p->looked_ns = now;
    return dlpi_shm->look(p);
}

/* Spin, then yield, before the first sleep. Returns whether to look again at once. Without a
   timeout (until 0) there is one look more; a spin is so short that the clock need not be read. */
static bool dlpi_next_spin(const dlp_pipe *p, uint64_t until, int *rounds) {
    bool yields = *rounds >= p->spin_rounds;
    if (dlpi_at_work(p) == 0 || *rounds >= p->spin_rounds + p->yield_rounds) return false;
    ++*rounds;
    if (yields)
        sched_yield(); /* others may keep the core for long */
    else
        dlpi_pause();
    return until != 0 && (!yields || until == UINT64_MAX || dlpi_now_ns() < until);
}

/* One sleep, and what is looked after before it. DLP_OK: look again. */
static int dlpi_next_sleep(dlp_pipe *p, uint64_t until) {
    uint64_t now, ns = DLPI_SLEEP_NS;
    int rc;
    if (DLPI_LOAD_RLX(&p->ctl->source_waits) != 0) p->source_waited = true; /* for the books */
    now = dlpi_now_ns();
    dlpi_tune(p, now);
    if (p->shm && (rc = dlpi_next_look(p, now, until)) != DLP_OK) return rc;
    if (now >= until) return DLP_TIMEOUT;
    if ((rc = dlpi_deadline(p, now)) != DLP_OK) return rc;
    if (until - now < ns) ns = until - now;
    if (p->deadline_ns != 0 && p->deadline_ns / 4 < ns) ns = p->deadline_ns / 4;
    dlpi_caller_sleep(p, ns);
    return DLP_OK;
}

/* Wait until dlpi_take has something. until: absolute, UINT64_MAX for ever. */
static int dlpi_next_wait(dlp_pipe *p, uint64_t until, uint64_t *b, uint32_t *s) {
    int rc, rounds = 0;
    while ((rc = dlpi_take(p, b, s)) == DLP_EMPTY) {
        if (dlpi_stopped(p)) return DLP_STOPPED;
        if ((rc = dlpi_next_error(p, false)) != DLP_OK) return rc;
        dlpi_feed_inline(p, 1);
        if (dlpi_inline_steps(p)) {
            if (until != 0 && until != UINT64_MAX && dlpi_now_ns() >= until &&
                dlpi_take(p, b, s) == DLP_EMPTY) /* it may be ready since */
                return DLP_TIMEOUT;
            continue;
        }
        if (dlpi_next_spin(p, until, &rounds)) continue;
        if ((rc = dlpi_next_sleep(p, until)) != DLP_OK) return rc;
    }
    return rc;
}

/* The trainer's clock: one reading a call, fewer when calls are close together. Where everything is
   inline, the calls not timed take the time of the last one that was. */
static void dlpi_trainer_step(dlp_pipe *p, uint64_t now) {
    dlpi_worker *w = p->trainer;
    uint64_t from = p->last_return_ns, each, waited;
    uint32_t calls = p->calls_untimed + 1;
    p->calls_untimed = 0;
    p->last_return_ns = now;
    if (from == 0 || now <= from) return;
    each = (now - from) / calls;
    waited = p->inline_ns * (calls - 1);
    dlpi_bump(&p->ctl->wait_ns, waited < now - from ? waited : 0);
    dlpi_bump(&p->ctl->step_ns, now - from - (waited < now - from ? waited : 0));
    DLPI_STORE_RLX(&w->wb->hist[dlpi_hist_bucket(each)],
                   w->wb->hist[dlpi_hist_bucket(each)] + calls);
    dlpi_trace_add(w, DLP_TRACE_STEP, from, now, p->base - 1, p->epoch_now, calls);
    p->call_clock_every = each >= 2000 ? 1 : each >= 500 ? 4 : 32;
}

static void dlpi_trainer_waited(dlp_pipe *p, uint64_t from, uint64_t to) {
    bool for_source = p->source_waited;
    p->last_return_ns = to;
    p->source_waited = false;
    if (to <= from) return;
    dlpi_bump(&p->ctl->wait_ns, to - from);
    if (for_source) dlpi_bump(&p->ctl->source_wait_ns, to - from);
    dlpi_trace_add(p->trainer, DLP_TRACE_WAIT, from, to, p->base, p->epoch_now, 0);
}

/* Take a batch, waiting with the books kept. */
static int dlpi_next_take(dlp_pipe *p, int timeout_ms, uint64_t *b, uint32_t *s) {
    int rc;
    uint64_t from, until = UINT64_MAX;
    dlpi_feed_inline(p, dlpi_burst(p));
    rc = dlpi_take(p, b, s);
    if (rc == DLP_OK) {
        if (p->calls_untimed + 1 < p->call_clock_every) {
            p->calls_untimed++;
            return rc;
        }
        dlpi_trainer_step(p, dlpi_now_ns());
        dlpi_tune(p, p->last_return_ns);
        return rc;
    }
    if (dlpi_at_work(p) == 0 && timeout_ms == 0 && p->calls_untimed + 1 < p->call_clock_every) {
        p->calls_untimed++;
        p->clock_off = 1;
        if (rc == DLP_EMPTY) rc = dlpi_next_wait(p, until, b, s);
        p->clock_off = 0;
        return rc == DLP_END && dlpi_next_error(p, true) != DLP_OK ? p->err.code : rc;
    }
    from = dlpi_now_ns();
    dlpi_trainer_step(p, from);
    if (timeout_ms > 0) until = from + (uint64_t)timeout_ms * 1000000u;
    if (timeout_ms == DLP_NOWAIT) until = 0;
    p->tune.wait_from = from;
    if (rc == DLP_EMPTY) rc = dlpi_next_wait(p, until, b, s);
    p->tune.wait_from = 0;
    if (rc == DLP_END && dlpi_next_error(p, true) != DLP_OK) rc = p->err.code;
    dlpi_inline_rest(p);
    dlpi_trainer_waited(p, from, dlpi_now_ns());
    dlpi_tune(p, p->last_return_ns);
    if (dlpi_at_work(p) == 0) p->inline_ns = p->last_return_ns - from;
    return rc;
}

/* The caller leaves this epoch for the one after it. */
static void dlpi_epoch_leave(dlp_pipe *p, uint64_t epoch) {
    p->epoch_open = 0;
    if (p->lender) p->lender->ops->lender->leave(p);
    p->last_sequence = UINT64_MAX;
    p->win_base = 0;
    memset(p->win, 0, sizeof p->win);
    p->after_epoch = epoch + 1;
    p->after_batch = p->after_position = 0;
    DLPI_STORE_SEQ(&p->ctl->cancel, dlpi_mark(p->life, epoch + 1)); /* N1 -> N1 */
    dlpi_ring_all(p);
}

/* Go on behind a checked state. */
static void dlpi_seek(dlp_pipe *p, const dlpi_state *s) {
    p->life = (p->life + 1) & 0xffffu;
    p->seeks++;
    p->epoch_end_due = 0;
    dlpi_state_books(p, s);
    pthread_mutex_lock(&dlpi_place_lock);
    dlpi_state_place(p, s, p->life, &p->place);
    pthread_mutex_unlock(&dlpi_place_lock);
    DLPI_STORE_SEQ(&p->ctl->cancel, dlpi_mark(p->life, 0)); /* N1 -> N1 */
    dlpi_ring_all(p);
    dlpi_feed_inline(p, 1);
}

/* The epoch has ended before batch b, in slot s. Returns DLP_OK: go on with the next epoch. */
static int dlpi_end_over(dlp_pipe *p, uint64_t b, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t epoch = slot->epoch;
    bool empty = slot->in_epoch == 0 && dlpi_rows_before_end(p, s) == 0;
    dlp_error e;
    dlpi_taken(p, b, 0);
    dlpi_slot_free(p, s);
    p->epoch_now = epoch;
    if (empty && p->repeat && p->repeat->repeat.epochs == DLP_FOREVER) {
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "epochs",
                       "the stream has no item in an epoch, and epochs go on for ever");
        dlpi_copy_text(e.stage, sizeof e.stage, p->fetch->name);
        e.epoch = epoch;
        return dlpi_pipe_fail(p, &e);
    }
    return p->repeat && p->repeat->repeat.epoch_end ? DLP_EPOCH_END : DLP_OK;
}

/* The words for a failed item that is one too many; its errno is in the list of skips, if that goes
   back so far. */
static int dlpi_budget_fail(dlp_pipe *p, uint32_t s, uint32_t row, const dlpi_stage *st) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlp_skip skip[DLPI_SKIP_RING];
    dlp_error e;
    int n = dlp_pipe_skips(p, skip, (int)DLPI_SKIP_RING, NULL);
    dlpi_error_set(&e, DLP_ERR_BUDGET, "max_skips",
                   "the item failed, and max_skips %" PRId64 " are used up", st->w.max_skips);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    e.has_item = 1;
    e.index = dlpi_slot_index(p, s)[row];
    e.epoch = slot->epoch;
    e.position = slot->position + row;
    for (int i = 0; i < n; i++) {
        if (skip[i].epoch != e.epoch || skip[i].position != e.position) continue;
        e.errnum = skip[i].errnum;
        e.worker = skip[i].worker;
    }
    return dlpi_pipe_fail(p, &e);
}

/* Count the failed items that come before the end that a row has found. */
static int dlpi_end_budget(dlp_pipe *p, uint32_t s) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    uint32_t n;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return DLP_OK;
    n = dlpi_rows_before_end(p, s);
    for (uint32_t r = 0; r < n; r++) {
        const dlpi_stage *st = p->work[dlpi_rec_stage(rec[r])];
        if ((rec[r] & DLPI_REC_COUNTS) == 0) continue;
        if (!dlpi_failures_add(p->ctl, 1, st->w.max_skips)) return dlpi_budget_fail(p, s, r, st);
    }
    return DLP_OK;
}

/* The slot of the next batch that is wanted and has not failed. */
static int dlpi_next_slot(dlp_pipe *p, int timeout_ms, uint64_t *b, uint32_t *s) {
    for (;;) {
        dlpi_bslot *slot;
        int rc = dlpi_next_take(p, timeout_ms, b, s);
        if (rc != DLP_OK) return rc;
        slot = dlpi_slot_at(p, *s);
        if (!dlpi_wanted(p->ctl, slot)) { /* of an epoch, or a place, that was left */
            dlpi_taken(p, *b, slot->flags);
            dlpi_slot_free(p, *s);
            continue;
        }
        if (dlpi_slot_failed(p, *s)) {
            dlp_error e;
            dlpi_slot_error(p, *s, &e);
            return dlpi_pipe_fail(p, &e);
        }
        if ((rc = dlpi_end_budget(p, *s)) != DLP_OK) return rc;
        if (dlpi_slot_ended(p, *s)) {
            dlpi_epoch_leave(p, slot->epoch);
            if (dlpi_slot_rows(p, *s) == 0) {
                if ((rc = dlpi_end_over(p, *b, *s)) != DLP_OK) return rc;
                continue;
            }
        }
        p->seeks = 0;         /* none of an older life is left */
        dlpi_unpoison(p, *s); /* who did it may have been another process */
        if (DLPI_LOAD_RLX(&p->ctl->first_ns) == 0)
            DLPI_STORE_RLX(&p->ctl->first_ns, dlpi_now_ns() - p->ctl->started_ns);
        return DLP_OK;
    }
}

static int dlpi_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    uint64_t b;
    uint32_t s;
    int rc = dlpi_next_slot(p, timeout_ms, &b, &s);
    if (rc == DLP_OK) dlpi_deliver(p, b, s, out);
    return rc;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-split      CHUNKS LOADED, AND SPLIT INTO VIEWS
   With a split stage the items of the pipe are chunks, one to a core batch, and what the caller
   gets are views. Where view k of an epoch is follows by arithmetic: all chunks have chunk_rows
   rows but the dataset's last one, whose place in an epoch's order is known (dlpi_chunk_odd).
   The loaders' side is a fetch. The splitter is the caller's: it takes a chunk as dlpi_next takes a
   batch, and hands out views of it. refs counts, for each slot, the views held, and one more while
   the chunk is being split. A chunk is taken only when the one before is split to its end; so each
   chunk that is out has a view that is held, but for the one just taken, which max_held - 1 others
   can precede: never more than max_held chunks are out, as many as the pipe has slots for. */

typedef struct dlpi_split { /* what the stage keeps */
    dlp_split_desc d;
    dlp_chunk_fn load; /* from here what dlp_chunks_open was given */
    void *user;
    int preload; /* DLP_PRELOAD_NONE, _CPU, _DEVICE */
    int fills_rows;
    uint64_t per_epoch;          /* batches */
    uint32_t view_rows;          /* rows of this rank's full batch */
    uint32_t slot;               /* with the chunk that is being split, DLPI_NO_SLOT: none */
    dlpi_order order;            /* of the chunks */
    uint64_t chunk, rows, views; /* that chunk's number, its rows on all ranks, its batches */
    uint64_t at;                 /* its next view */
    uint64_t skip;               /* views of the next chunk that were consumed before a resume */
    uint64_t batches, position;  /* of the epoch, before it */
    uint64_t sequence;
    uint32_t turn;
    uint32_t *refs;              /* [n_slots] views held, and 1 while it is split */
    uint32_t *slot_of;           /* [n_out] */
    uint64_t *after;             /* [n_out] global position where the view ends */
    uint64_t *index;             /* [n_out][view_rows] */
    uint8_t *valid;              /* [2][view_rows] of a view that has all rows, of one of none */
    dlp_permutation permutation; /* of its rows */
    uint8_t pad[DLPI_LINE];
    dlpi_order scheduled; /* the scheduler's, where each chunk has its own cell */
} dlpi_split;

/* Chunks, for observers. Words of those that stay, and of the sink's buffers, have records of
   their own. */
typedef struct dlpi_chunk_rec {
    uint64_t per_epoch, cpu_buffers;
    int32_t preload;
    uint32_t in_epoch_at, used_at; /* in a slot */
    uint32_t view_rows;            /* of this rank's full batch; 0: an older version's */
} dlpi_chunk_rec;

_Static_assert(sizeof(dlpi_chunk_rec) == 32, "region layout");

static dlpi_split *dlpi_split_of(const dlp_pipe *p) { return p->lender->self; }

static uint64_t dlpi_chunk_count(const dlp_pipe *p) { return p->fetch->dataset.n_items; }

static uint64_t dlpi_chunk_rows_all(const dlp_pipe *p) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return d->n_rows ? d->n_rows : d->chunk_rows * dlpi_chunk_count(p);
}

/* Rows of chunk c as it is in the dataset. */
static uint64_t dlpi_chunk_size(const dlp_pipe *p, uint64_t c) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    if (d->n_rows == 0 || c + 1 < dlpi_chunk_count(p)) return d->chunk_rows;
    return d->n_rows - c * d->chunk_rows;
}

/* Of a chunk's rows, those that come in batches, and how many batches that makes. */
static uint64_t dlpi_chunk_kept(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return d->last == DLP_LAST_DROP ? rows - rows % d->batch_size : rows;
}
static uint64_t dlpi_chunk_views(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return (dlpi_chunk_kept(p, rows) + d->batch_size - 1) / d->batch_size;
}

/* This rank's rows of a global batch of n: [*first, *first + count). */
static uint32_t dlpi_chunk_share(const dlp_pipe *p, uint64_t n, uint64_t *first) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return dlpi_rows_of_rank(d->rank, d->world_size ? d->world_size : 1, n, first);
}

/* Rows of the global batch j of a chunk. */
static uint64_t dlpi_chunk_batch(const dlp_pipe *p, uint64_t rows, uint64_t j) {
    uint64_t left = dlpi_chunk_kept(p, rows) - j * dlpi_split_of(p)->d.batch_size;
    return left < dlpi_split_of(p)->d.batch_size ? left : dlpi_split_of(p)->d.batch_size;
}

/* Where in its buffer batch j of a chunk begins: full batches of this rank lie before it. */
static uint64_t dlpi_chunk_row_at(const dlp_pipe *p, uint64_t j) {
    uint64_t first;
    return j * dlpi_chunk_share(p, dlpi_split_of(p)->d.batch_size, &first);
}

/* This rank's rows of a chunk. */
static uint64_t dlpi_chunk_local(const dlp_pipe *p, uint64_t rows) {
    uint64_t first, full = dlpi_chunk_kept(p, rows) / dlpi_split_of(p)->d.batch_size;
    uint64_t rest = dlpi_chunk_kept(p, rows) % dlpi_split_of(p)->d.batch_size;
    return dlpi_chunk_row_at(p, full) + dlpi_chunk_share(p, rest, &first);
}

/* Where in an epoch's order the chunk that is not full stands; UINT64_MAX: all are. */
static uint64_t dlpi_chunk_odd(const dlp_pipe *p, dlpi_order *o, uint64_t epoch) {
    uint64_t last = dlpi_chunk_count(p) - 1;
    if (dlpi_chunk_size(p, last) == dlpi_split_of(p)->d.chunk_rows) return UINT64_MAX;
    if (o->kind != DLP_ORDER_SHUFFLED) return last;
    if (!o->ready || o->epoch != epoch) dlpi_order_begin(o, epoch);
    return dlp_permutation_find(&o->permutation, last);
}

/* Batches and rows of the epoch before the chunk at a position of its order. */
static uint64_t dlpi_chunk_before(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t at,
                                  uint64_t *rows) {
    uint64_t full = dlpi_split_of(p)->d.chunk_rows, odd = dlpi_chunk_odd(p, o, epoch);
    uint64_t less = odd < at ? dlpi_chunk_size(p, dlpi_chunk_count(p) - 1) : full;
    *rows = at * dlpi_chunk_kept(p, full) + dlpi_chunk_kept(p, less) - dlpi_chunk_kept(p, full);
    return at * dlpi_chunk_views(p, full) + dlpi_chunk_views(p, less) - dlpi_chunk_views(p, full);
}

/* The other way: which chunk of the order has batch k of the epoch, and as which of its views? */
static uint64_t dlpi_chunk_find(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t k,
                                uint64_t *view) {
    uint64_t each = dlpi_chunk_views(p, dlpi_split_of(p)->d.chunk_rows);
    uint64_t odd = dlpi_chunk_odd(p, o, epoch), few;
    *view = k % each;
    if (odd == UINT64_MAX || k < odd * each) return k / each;
    few = dlpi_chunk_views(p, dlpi_chunk_size(p, dlpi_chunk_count(p) - 1));
    k -= odd * each;
    *view = k < few ? k : (k - few) % each;
    return k < few ? odd : odd + 1 + (k - few) / each;
}

/* Bytes of one row of a field, whose first dimension is a chunk's rows. */
static uint64_t dlpi_row_bytes(const dlpi_field *d) {
    return d->row_bytes / (uint64_t)d->f.shape[0];
}

/* Of a field, what the chunk in slot s has. */
static uint64_t dlpi_chunk_bytes(const dlp_pipe *p, uint32_t s, uint32_t f) {
    uint64_t rows = dlpi_chunk_local(p, dlpi_chunk_size(p, dlpi_slot_index(p, s)[0]));
    return rows * dlpi_row_bytes(&p->batches.at[f]);
}

/* The order of the rows of chunk c. */
static void dlpi_chunk_permute(const dlp_pipe *p, uint64_t epoch, uint64_t c,
                               dlp_permutation *out) {
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_ROWS, p->sampler->sampler.seed, c), 1);
    dlp_permutation_init(out, dlpi_chunk_size(p, c), key, epoch);
}

/* ---- chunks that stay (preload) ----
   A word of the region for each chunk says who loads it: batch + 1 (48 bits), its slot (15), and in
   the lowest bit whether it is there. So the last chunk of one epoch and the first of the next, if
   they are one and the same and both on their way, are not loaded twice; and what a worker that was
   killed has begun is begun again by the batch's next worker, or by another once the batch is gone.

   label  atomic            written by                      read by
   Q1     a chunk's word    a loader, before and after      loaders, the sink (Q1) */

static uint64_t *dlpi_chunk_word(const dlp_pipe *p, uint64_t c) {
    return dlpi_area_at(p, DLPI_REC_RESIDENT, c);
}
static uint64_t dlpi_chunk_key(const dlp_pipe *p, uint32_t s) {
    return (dlpi_slot_at(p, s)->sequence + 1) << 16 | (uint64_t)s << 1;
}

/* Was the chunk in slot s left out? Its rows are zeros, and it is not there for later epochs. */
static bool dlpi_chunk_left(const dlp_pipe *p, uint32_t s) {
    return DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) && /* ordered by ready */
           dlpi_rec_state(dlpi_slot_rec(p, s)[0]) == DLPI_ROW_LEFT;
}

/* The chunk that the scheduler's present batch is; it has a cell of its own. */
static uint32_t dlpi_chunk_cell(dlp_pipe *p) {
    uint64_t c = 0;
    dlpi_order_block(&dlpi_split_of(p)->scheduled, p->feed.epoch, p->feed.in_epoch, 1, &c);
    return (uint32_t)c;
}

/* Where each chunk has a place of the sink's own: its number. */
static uint32_t dlpi_chunk_place(const dlp_pipe *p, uint32_t s) {
    uint64_t c = dlpi_slot_index(p, s)[0];
    return c < dlpi_chunk_count(p) ? (uint32_t)c : DLPI_NO_SLOT;
}

/* The slot whose cell has the bytes of a chunk that the sink has not got yet, as batch b in slot s
   finds it. Of two batches on their way that are the same chunk either may have loaded it: the
   later one shares its cell, which it keeps, for it waits at the sink behind b. The earlier one
   would have copied it, had the copy not failed. */
static uint32_t dlpi_chunk_source(const dlp_pipe *p, uint32_t s, uint64_t b) {
    uint64_t word = DLPI_LOAD_SEQ(dlpi_chunk_word(p, dlpi_slot_index(p, s)[0])); /* Q1 <- Q1 */
    if (dlpi_chunk_left(p, s)) return s;                                         /* its zeros */
    if ((word & 1) == 0 || (word >> 16) - 1 < b) return DLPI_NO_SLOT;
    return (word >> 16) - 1 == b ? s : (uint32_t)(word >> 1 & 0x7fff);
}

static const dlpi_stay_ops dlpi_chunk_stay = {dlpi_chunk_place, dlpi_chunk_left, dlpi_chunk_source};

/* ---- loading ---- */

/* A call of load as it is made. */
typedef struct dlpi_load_call {
    dlpi_worker *w;
    uint64_t from; /* place of the first row in the chunk's order */
    uint64_t at;   /* row of the buffer where they go */
    dlp_chunk c;
    void *data[DLP_MAX_FIELDS];
    dlp_permutation order; /* of a shuffled chunk's rows */
} dlpi_load_call;

DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k) {
    const dlpi_load_call *l = c->internal;
    if (k >= c->count) return UINT64_MAX;
    return c->chunk_first +
           (c->shuffled ? dlp_permutation_at(&l->order, l->from + k) : l->from + k);
}

DLPDEF int dlp_chunk_fail(const dlp_chunk *c, int errnum, const char *format, ...) {
    const dlpi_load_call *l = c->internal;
    va_list args;
    va_start(args, format);
    dlpi_note_write(&l->w->note, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

/* Load the run of rows that has gathered in l, if any. */
static int dlpi_load_run(dlpi_load_call *l, const dlp_item *it) {
    const dlp_pipe *p = l->w->p;
    const dlpi_split *d = dlpi_split_of(p);
    dlp_chunk shown; /* theirs to spoil */
    if (l->c.count == 0) return 0;
    for (uint32_t f = 0; f < p->items.n; f++) {
        uint64_t bytes = dlpi_row_bytes(&p->items.at[f]);
        l->data[f] = (uint8_t *)it->data[f] + l->at * bytes;
        if (!d->fills_rows) memset(l->data[f], 0, l->c.count * bytes);
    }
    l->c.first = dlp_chunk_row(&l->c, 0);
    shown = l->c;
    return d->load(d->user, &shown);
}

/* Load what this rank wants of a chunk. A chunk that stands in for another one has to have as many
   rows as that: what batches there are is known in advance. */
static int dlpi_chunk_load(dlpi_worker *w, const dlp_item *it) {
    const dlp_pipe *p = w->p;
    bool odd = it->position == dlpi_chunk_odd(p, &w->order, it->epoch);
    uint64_t rows = dlpi_chunk_size(p, odd ? dlpi_chunk_count(p) - 1 : 0), first;
    dlpi_load_call l;
    int rc;
    l.w = w;
    l.from = l.at = 0;
    l.c = (dlp_chunk){.index = it->index,
                      .chunk_rows = dlpi_chunk_size(p, it->index),
                      .epoch = it->epoch,
                      .seed = it->seed,
                      .attempt = it->attempt,
                      .n_fields = it->n_fields,
                      .worker = it->worker,
                      .shuffled = dlpi_split_of(p)->d.shuffle_rows,
                      .worker_state = it->worker_state,
                      .data = l.data,
                      .internal = &l};
    l.c.chunk_first = it->index * dlpi_split_of(p)->d.chunk_rows;
    if (l.c.chunk_rows < rows) return DLP_SKIP;
    if (l.c.shuffled) dlpi_chunk_permute(p, it->epoch, it->index, &l.order);
    for (uint64_t j = 0; j < dlpi_chunk_views(p, rows); j++) {
        uint32_t n = dlpi_chunk_share(p, dlpi_chunk_batch(p, rows, j), &first);
        first += j * dlpi_split_of(p)->d.batch_size;
        if (l.c.count > 0 && first == l.from + l.c.count) {
            l.c.count += n;
            continue;
        }
        if ((rc = dlpi_load_run(&l, it)) != 0) return rc;
        l.from = first;
        l.at = dlpi_chunk_row_at(p, j);
        l.c.count = n;
    }
    return dlpi_load_run(&l, it);
}

/* The fetch of a pipe of chunks. */
static int dlpi_chunk_fetch(void *user, dlp_item *it) {
    dlpi_worker *w = ((const dlpi_note *)it->internal)->w;
    const dlp_pipe *p = w->p;
    uint32_t s = (uint32_t)(DLPI_LOAD_RLX(&w->wb->running) >> 32); /* X2, own */
    uint64_t *word, key;
    int rc;
    DLPI_UNUSED(user);
    if (dlpi_split_of(p)->preload == DLP_PRELOAD_NONE) return dlpi_chunk_load(w, it);
    word = dlpi_chunk_word(p, it->index);
    key = dlpi_chunk_key(p, s);
    while (!dlpi_stopped(p)) {
        uint64_t was = DLPI_LOAD_SEQ(word); /* Q1 <- Q1 */
        uint32_t other = (uint32_t)(was >> 1 & 0x7fff);
        if (was & 1) return 0;
        if (was != 0 && was != key) {
            /* Y1 <- Y1: another batch loads it, unless that is gone */
            uint64_t ready = DLPI_LOAD_SEQ(&dlpi_sst_at(p, other, p->work[0])->ready);
            if (!dlpi_ready_past(ready, (was >> 16) - 1)) {
                dlpi_nap(200000);
                continue;
            }
        }
        if (!DLPI_CAS_SEQ(word, &was, key)) continue; /* Q1 -> Q1 */
        rc = dlpi_chunk_load(w, it);
        DLPI_STORE_SEQ(word, rc == 0 ? key | 1 : UINT64_C(0)); /* Q1 -> Q1 */
        return rc;
    }
    return 0; /* nobody will see it */
}

/* ---- the splitter ---- */

static void dlpi_split_unref(dlp_pipe *p, uint32_t s) {
    if (--dlpi_split_of(p)->refs[s] == 0) dlpi_slot_free(p, s);
}

/* Begin to split the chunk in slot s. */
static void dlpi_split_take(dlp_pipe *p, uint32_t s) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool odd = slot->position == dlpi_chunk_odd(p, &c->order, slot->epoch);
    c->slot = s;
    c->refs[s] = 1;
    c->chunk = dlpi_slot_index(p, s)[0];
    c->rows = dlpi_chunk_size(p, odd ? dlpi_chunk_count(p) - 1 : 0);
    c->views = dlpi_chunk_views(p, c->rows);
    c->batches = dlpi_chunk_before(p, &c->order, slot->epoch, slot->position, &c->position);
    c->at = c->skip;
    c->skip = 0;
    if (c->d.shuffle_rows) dlpi_chunk_permute(p, slot->epoch, c->chunk, &c->permutation);
}

/* The dataset indices of a view's rows: rows [from, from + count) of the chunk's order. */
static void dlpi_split_indices(const dlpi_split *c, uint64_t from, uint32_t count,
                               uint64_t *index) {
    uint64_t first = c->chunk * c->d.chunk_rows;
    bool shuffled = c->d.shuffle_rows != 0;
    if (shuffled) dlp_permutation_block(&c->permutation, from, count, index);
    for (uint32_t i = 0; i < count; i++) index[i] = first + (shuffled ? index[i] : from + i);
}

/* Point the fields of view v at row `row` of the chunk. Returns their bytes. */
static uint64_t dlpi_split_fields(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t count) {
    uint32_t s = dlpi_split_of(p)->slot;
    uint64_t sum = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        uint64_t unit = dlpi_row_bytes(d), at = row * unit;
        if (p->sink)
            p->sink->ops->sink->data(p, s, f, at, t);
        else
            t->data = dlpi_batch_cell(p, s) + d->offset + at;
        t->bytes = count * unit;
        t->shape[0] = count;
        sum += t->bytes;
    }
    return sum;
}

static uint32_t dlpi_split_free_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    uint32_t v = c->turn;
    while (p->held[v]) v = v + 1 == p->n_out ? 0 : v + 1; /* fewer than max_held are */
    c->turn = v + 1 == p->n_out ? 0 : v + 1;
    return v;
}

/* What states and next_epoch go by, as dlpi_state_note and dlpi_deliver keep it for batches. */
static void dlpi_split_note(dlp_pipe *p, const dlp_batch *b, uint64_t after) {
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    p->epoch_now = b->epoch;
    p->epoch_open = !last;
    if (last && p->repeat && p->repeat->repeat.epoch_end) p->epoch_end_due = 1;
    p->after_epoch = last ? b->epoch + 1 : b->epoch;
    p->after_batch = last ? 0 : b->in_epoch + 1;
    p->after_position = last ? 0 : after;
}

/* Hand out the next view of the chunk that is being split. */
static dlp_batch *dlpi_split_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, c->slot);
    uint32_t v = dlpi_split_free_view(p);
    uint64_t first, j = c->at++, n = dlpi_chunk_batch(p, c->rows, j);
    dlp_batch *b = &p->out[v];
    bool left = dlpi_chunk_left(p, c->slot);
    b->count = dlpi_chunk_share(p, n, &first);
    first += j * c->d.batch_size;
    b->sequence = c->sequence++;
    b->epoch = slot->epoch;
    b->in_epoch = c->batches + j;
    b->position = c->position + first;
    b->flags = b->in_epoch + 1 == c->per_epoch ? DLP_BATCH_LAST : 0;
    b->valid = left ? c->valid + c->view_rows : c->valid;
    b->valid_count = left ? 0 : b->count;
    b->index = c->index + (size_t)v * c->view_rows;
    dlpi_split_indices(c, first, b->count, c->index + (size_t)v * c->view_rows);
    dlpi_bump(&p->ctl->bytes, dlpi_split_fields(p, v, dlpi_chunk_row_at(p, j), b->count));
    dlpi_bump(&p->ctl->items, b->count);
    dlpi_bump(&p->ctl->views, 1);
    c->slot_of[v] = c->slot;
    c->after[v] = c->position + j * c->d.batch_size + n;
    c->refs[c->slot]++;
    p->held[v] = 1;
    DLPI_STORE_RLX(&p->ctl->held, ++p->n_held); /* statistics */
    DLPI_STORE_RLX(&p->ctl->epoch, b->epoch);
    dlpi_split_note(p, b, c->after[v]);
    return b;
}

/* dlp_pipe_next, where batches are views. */
static int dlpi_split_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    dlpi_split *c = dlpi_split_of(p);
    if (c->slot != DLPI_NO_SLOT) {
        /* of an epoch, or a place, that was left? */
        if (!dlpi_wanted(p->ctl, dlpi_slot_at(p, c->slot))) {
            dlpi_split_unref(p, c->slot);
            c->slot = DLPI_NO_SLOT;
        } else if (p->calls_untimed + 1 >= p->call_clock_every) {
            dlpi_trainer_step(p, dlpi_now_ns());
        } else {
            p->calls_untimed++;
        }
    }
    if (c->slot == DLPI_NO_SLOT) {
        uint64_t b;
        uint32_t s;
        int rc = dlpi_next_slot(p, timeout_ms, &b, &s);
        if (rc != DLP_OK) return rc;
        dlpi_taken(p, b, dlpi_slot_at(p, s)->flags);
        dlpi_split_take(p, s);
        dlpi_feed_inline(p, 1);
    }
    *out = dlpi_split_view(p);
    if (c->at == c->views) {
        dlpi_split_unref(p, c->slot);
        c->slot = DLPI_NO_SLOT;
    }
    return DLP_OK;
}

/* The state behind view v. */
static void dlpi_split_state(const dlp_pipe *p, uint32_t v, dlpi_state *to) {
    const dlp_batch *b = &p->out[v];
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    to->epoch = last ? b->epoch + 1 : b->epoch;
    to->batch = last ? 0 : b->in_epoch + 1;
    to->position = last ? 0 : dlpi_split_of(p)->after[v];
}

static void dlpi_split_drop(dlp_pipe *p, uint32_t v) {
    dlpi_split_unref(p, dlpi_split_of(p)->slot_of[v]);
}

static uint32_t dlpi_split_slot(const dlp_pipe *p, uint32_t v) {
    return dlpi_split_of(p)->slot_of[v];
}

static void dlpi_split_leave(dlp_pipe *p) { dlpi_split_of(p)->skip = 0; }

static uint64_t dlpi_split_batches(const dlp_pipe *p) { return dlpi_split_of(p)->per_epoch; }

static void dlpi_split_config(const dlp_pipe *p, dlpi_state *s) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    s->n_items = dlpi_chunk_rows_all(p);
    s->params = dlp_hash(s->params, d->chunk_rows, (uint64_t)d->shuffle_rows, DLPI_STATE_MAGIC);
    s->global_batch = d->batch_size;
    s->last = (uint16_t)d->last;
}

static uint64_t dlpi_split_position(const dlp_pipe *p, uint64_t epoch, uint64_t k) {
    dlpi_order order = dlpi_split_of(p)->order;
    uint64_t view, rows, at = dlpi_chunk_find(p, &order, epoch, k, &view);
    dlpi_chunk_before(p, &order, epoch, at, &rows);
    return rows + view * dlpi_split_of(p)->d.batch_size;
}

/* The scheduler goes on with the chunk that has the state's batch, whose views before that the
   splitter skips. */
static void dlpi_split_seek(dlp_pipe *p, const dlpi_state *s, dlpi_place *to) {
    dlpi_split *c = dlpi_split_of(p);
    to->batch = to->position = dlpi_chunk_find(p, &c->order, s->epoch, s->batch, &c->skip);
}

/* ---- building ---- */

static int dlpi_split_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_split_desc, chunk_rows), 1, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlp_split_desc, n_rows), 0, DLPI_MAX_ITEMS, "0..2^48"},
        {DLPI_AT(dlp_split_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_split_desc, last), 0, 1, "DLP_LAST_SHORT or DLP_LAST_DROP"},
        {DLPI_AT(dlp_split_desc, shuffle_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_split_desc, allow_uneven), 0, 1, "0 or 1"},
    };
    const dlp_split_desc *d = &((const dlpi_split *)st->self)->d;
    int rc = dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    return dlpi_check_ranks(p, st, d->rank, d->world_size, d->batch_size, d->allow_uneven != 0);
}

/* Can the order and the batches before it be split? */
static int dlpi_split_chain(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_batch_desc *before = &p->batcher->batching;
    if (before->batch_size == 1 && !before->collate && p->world == 1 &&
        p->sampler->sampler.order != DLP_ORDER_BATCHES && !p->d.unordered)
        return DLP_OK;
    return dlpi_bad_graph(p, st->name,
                          "a split stage wants items one by one: batch_size 1, no "
                          "collate, no batch sampler, no ranks there, in order");
}

static int dlpi_split_rows(dlp_pipe *p, const dlpi_stage *st, uint64_t n, uint64_t odd) {
    const dlp_sampler_desc *order = &p->sampler->sampler;
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    bool counted = order->order == DLP_ORDER_SEQUENTIAL || order->order == DLP_ORDER_SHUFFLED;
    dlpi_within(p, st->name, "chunk_rows", (int64_t)d->chunk_rows, 1, (int64_t)(DLPI_MAX_ITEMS / n),
                "such that all rows are at most 2^48");
    if (d->n_rows != 0 && (d->n_rows - 1) / d->chunk_rows + 1 != n)
        dlpi_bad(p, st->name, "n_rows", "chunk_rows for each item, at most, and so many",
                 (int64_t)d->n_rows);
    if (p->keeper != NULL)
        dlpi_within(p, st->name, "shuffle_rows", d->shuffle_rows, 0, 0,
                    "0 with a cache: rows stay as they were fetched, not as an epoch has them");
    if (odd != d->chunk_rows && (!counted || order->subset))
        dlpi_bad(p, st->name, "n_rows", "full items for this order", (int64_t)d->n_rows);
    if (dlpi_chunk_views(p, odd) == 0)
        dlpi_bad(p, st->name, "last", "such that the last item has a batch; leave it out", 1);
    return p->err.code;
}

/* Into how many views is the wiring split? */
static int dlpi_split_resolve(dlp_pipe *p, const dlpi_stage *st) {
    dlpi_split *c = dlpi_split_of(p);
    const dlp_split_desc *d = &c->d;
    uint64_t n = dlpi_chunk_count(p), world = d->world_size ? d->world_size : 1;
    uint64_t odd = dlpi_chunk_size(p, n - 1);
    int rc = dlpi_split_chain(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_rows(p, st, n, odd)) != DLP_OK) return rc;
    c->view_rows = (uint32_t)((d->batch_size + world - 1) / world);
    if (c->view_rows > d->chunk_rows) c->view_rows = (uint32_t)d->chunk_rows;
    c->per_epoch =
        (p->batches_per_epoch - 1) * dlpi_chunk_views(p, d->chunk_rows) + dlpi_chunk_views(p, odd);
    return DLP_OK;
}

/* The most rows that this rank has of a chunk. */
static uint64_t dlpi_split_room(const dlp_split_desc *d) {
    uint64_t world = d->world_size ? d->world_size : 1, rest = d->chunk_rows % d->batch_size;
    uint64_t rows = d->chunk_rows / d->batch_size * ((d->batch_size + world - 1) / world);
    return d->last == DLP_LAST_DROP ? rows : rows + (rest + world - 1) / world;
}

/* The fields of chunks. */
static int dlpi_split_check_fields(dlp_pipe *p, const dlpi_stage *st) {
    uint64_t room = dlpi_split_room(&dlpi_split_of(p)->d);
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlp_field *d = &p->items.at[f].f;
        int64_t rows = d->ndim ? d->shape[0] : 0;
        if (d->ragged)
            return dlpi_bad_field(p, st->name, f, d->name, "ragged",
                                  "ragged is 1, must be 0 before a split stage");
        if (rows < (int64_t)room)
            return dlpi_bad_field(
                p, st->name, f, d->name, "shape[0]",
                "shape[0] is %" PRId64 ", one rank has %" PRIu64 " rows of a chunk", rows, room);
    }
    return DLP_OK;
}

static int dlpi_split_check_preload(dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = dlpi_split_of(p);
    if (c->preload == DLP_PRELOAD_NONE) return DLP_OK;
    dlpi_within(p, st->name, "preload", (int64_t)dlpi_chunk_count(p), 1, UINT16_MAX,
                "of at most 65535 chunks");
    dlpi_within(p, st->name, "cpu_buffers", p->n_slots, 1, DLPI_PARK,
                "together with max_held at most 64 with a preload");
    dlpi_within(p, st->name, "shuffle_rows", c->d.shuffle_rows, 0, 0,
                "0 with a preload: rows stay as they were loaded");
    dlpi_within(p, st->name, "on_error", p->fetch->w.on_error, 0, 0,
                "DLP_ON_ERROR_RAISE with a preload");
    return p->err.code;
}

/* What the wiring says of chunks, and where they lie. */
static int dlpi_split_check_all(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_split *c = st->self;
    int rc = dlpi_split_resolve(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_check_fields(p, st)) != DLP_OK) return rc;
    if (c->preload == DLP_PRELOAD_CPU) {
        p->cells = DLPI_CELLS_STAY;
        p->n_cells = (uint32_t)dlpi_chunk_count(p);
    } else if (p->sink) { /* what the sink has leaves its cell */
        p->cells = DLPI_CELLS_TURN;
        p->cell_end = p->sink;
        p->n_cells = p->prefetch;
    }
    p->stay = c->preload == DLP_PRELOAD_DEVICE ? &dlpi_chunk_stay : NULL;
    return dlpi_split_check_preload(p, st);
}

static void dlpi_split_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_split *c = st->self;
    uint64_t words = c->preload ? dlpi_chunk_count(p) : 0;
    dlpi_area_add(p, DLPI_REC_RESIDENT, "chunks that stay: words", 8, words, DLPI_LINE);
    p->areas[DLPI_REC_RESIDENT].record = DLPI_REC_RESIDENT; /* of none, too */
    dlpi_area_add(p, DLPI_REC_LENDER, NULL, sizeof(dlpi_chunk_rec), 1, 8);
}

/* For observers. */
static void dlpi_split_describe(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = st->self;
    dlpi_chunk_rec *r = dlpi_area_at(p, DLPI_REC_LENDER, 0);
    r->per_epoch = p->batches_per_epoch;
    r->cpu_buffers = p->n_cells;
    r->preload = c->preload;
    r->in_epoch_at = (uint32_t)offsetof(dlpi_bslot, in_epoch);
    r->used_at = (uint32_t)offsetof(dlpi_bslot, used);
    r->view_rows = c->view_rows;
}

/* What dlpi_split_alloc asks for. */
static uint64_t dlpi_split_private(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = st->self;
    uint64_t view = sizeof *c->slot_of + sizeof *c->after;
    view = dlpi_sum(view, dlpi_times(c->view_rows, sizeof *c->index));
    return dlpi_sum(dlpi_sum(dlpi_times(p->n_slots, sizeof *c->refs), dlpi_times(p->n_out, view)),
                    2 * (uint64_t)c->view_rows);
}

static bool dlpi_split_alloc(dlp_pipe *p, dlpi_stage *st) {
    dlpi_split *c = st->self;
    c->refs = calloc(p->n_slots, sizeof *c->refs);
    c->slot_of = calloc(p->n_out, sizeof *c->slot_of);
    c->after = calloc(p->n_out, sizeof *c->after);
    c->index = calloc((size_t)p->n_out * c->view_rows, sizeof *c->index);
    c->valid = calloc(2, c->view_rows);
    if (c->valid != NULL) memset(c->valid, 1, c->view_rows);
    return c->refs && c->slot_of && c->after && c->index && c->valid;
}

static void dlpi_split_release(dlpi_stage *st) {
    dlpi_split *c = st->self;
    free(c->refs);
    free(c->slot_of);
    free(c->after);
    free(c->index);
    free(c->valid);
}

/* The parts of views that stay the same, and the orders. */
static void dlpi_split_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_split *c = st->self;
    void *table = dlpi_area_at(p, DLPI_REC_TABLE, 0);
    for (uint32_t v = 0; v < p->n_out; v++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n];
        dlpi_batch_view_init(p, 0, &p->out[v], t);
        p->out[v].internal = (void *)(uintptr_t)v;
        for (uint32_t f = 0; f < p->batches.n; f++) {
            t[f].ndim = p->batches.at[f].f.ndim; /* the chunk's rows are the view's */
            for (int i = 1; i < t[f].ndim; i++) t[f].shape[i] = p->batches.at[f].f.shape[i];
        }
    }
    dlpi_order_init(&c->scheduled, &p->sampler->sampler, dlpi_chunk_count(p), table);
    dlpi_order_init(&c->order, &p->sampler->sampler, dlpi_chunk_count(p), table);
    c->slot = DLPI_NO_SLOT;
}

static const dlpi_lender_ops dlpi_split_lender = {
    .words = {"chunk records", "CPU chunk buffers", "CPU chunk buffer of zeros",
              "device chunk buffers"},
    .params = "params (chunk_rows, shuffle_rows)",
    .next = dlpi_split_next,
    .drop = dlpi_split_drop,
    .slot = dlpi_split_slot,
    .leave = dlpi_split_leave,
    .batches = dlpi_split_batches,
    .state = dlpi_split_state,
    .config = dlpi_split_config,
    .position = dlpi_split_position,
    .seek = dlpi_split_seek,
    .bytes = dlpi_chunk_bytes,
    .cell = dlpi_chunk_cell,
};

/* ---- for observers ---- */

typedef struct dlpi_chunk_counts {
    uint64_t per_epoch, fed;             /* chunks of the epoch fed last; of those, fed */
    uint64_t cpu_buffers, resident, out; /* out: slots not given back */
    uint64_t device_buffers, device_free;
    int32_t preload;
} dlpi_chunk_counts;

/* The record of the chunks, and where the words of a slot are that it speaks of. */
static bool dlpi_chunk_record(const dlpi_words *words, dlpi_seen *s, dlpi_chunk_counts *x,
                              uint64_t *in_epoch_at, uint64_t *used_at) {
    uint64_t preload, rows;
    if (!dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, per_epoch), 8,
                      &x->per_epoch) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, cpu_buffers), 8,
                      &x->cpu_buffers) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, preload), 4, &preload) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, in_epoch_at), 4,
                      in_epoch_at) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, used_at), 4, used_at) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, view_rows), 4, &rows))
        return false;
    x->preload = (int32_t)preload;
    if (rows >= 1 && rows <= 1u << 30) s->batch_rows = (uint32_t)rows; /* 0: an older version's */
    return true;
}

static bool dlpi_chunk_counted(const dlpi_words *words, dlpi_seen *s, uint64_t tail,
                               dlpi_chunk_counts *x) {
    uint64_t in_epoch_at, used_at, used;
    memset(x, 0, sizeof *x);
    if (!dlpi_chunk_record(words, s, x, &in_epoch_at, &used_at)) return false;
    if (tail > 0) {
        uint32_t slot = dlpi_seen_slot(s, tail - 1);
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, in_epoch_at, 8, &x->fed)) return false;
        x->fed++;
    }
    for (uint32_t slot = 0; slot < s->n_slots; slot++) {
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, used_at, 4, &used)) return false;
        x->out += used != 0;
    }
    x->device_buffers = words->rec[DLPI_REC_SINK].count;
    return dlpi_words_count(words, DLPI_REC_RESIDENT, 1, false, &x->resident) &&
           dlpi_words_count(words, DLPI_REC_SINK, UINT64_MAX, true, &x->device_free);
}

/* Chunks on their way. buffers: of a device, whose copies are the last stage. Returns how many are
   ready for the caller. */
static uint64_t dlpi_chunks_under_way(const dlpi_seen *s, uint64_t tail, uint64_t buffers,
                                      dlp_chunk_stats *c) {
    const int32_t loaded = s->work[s->n_work - 1 - (s->n_work > 1 && buffers > 0)];
    uint64_t ready = 0;
    for (uint64_t b = DLPI_LOAD_ACQ(&s->ctl->base); b < tail; b++) { /* V1 <- V1 */
        uint32_t slot = dlpi_seen_slot(s, b);
        bool there = dlpi_seen_left(s, b, slot, loaded);
        if (dlpi_seen_left(s, b, slot, s->final))
            ready++;
        else if (there)
            c->cpu_filled++;
        else
            c->cpu_loading++;
    }
    return ready;
}

/* Where the chunks are. Those in the caller's hands are what is neither free nor on its way. */
static bool dlpi_chunks_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    dlp_chunk_stats *c = &s->figures.chunks;
    uint64_t tail = DLPI_LOAD_ACQ(&s->ctl->tail), ready, used; /* T1 <- T1 */
    bool transfer = words->rec[DLPI_REC_SINK].count > 0;
    dlpi_chunk_counts x;
    DLPI_UNUSED(stage);
    s->delivered = &s->ctl->views;
    c->taken = DLPI_LOAD_RLX(&s->ctl->delivered);           /* statistics */
    if (words->rec[DLPI_REC_LENDER].type == 0) return true; /* of an older version */
    if (!dlpi_chunk_counted(words, s, tail, &x)) return false;
    if (x.cpu_buffers == 0) return true;
    ready = dlpi_chunks_under_way(s, tail, x.device_buffers, c);
    c->preload = x.preload;
    c->cpu_buffers = x.cpu_buffers;
    c->per_epoch = x.per_epoch;
    c->loadable = x.fed < x.per_epoch ? x.per_epoch - x.fed : 0;
    used = c->cpu_loading + c->cpu_filled + ready;
    c->in_use = x.out > used ? x.out - used : 0;
    if (!transfer) c->cpu_filled += ready;
    used = c->cpu_loading + c->cpu_filled + (transfer ? 0 : c->in_use);
    if (x.preload == DLP_PRELOAD_CPU) used = x.resident;
    c->cpu_free = used < x.cpu_buffers ? x.cpu_buffers - used : 0; /* read while it changed? */
    if (!transfer) return true;
    c->device_buffers = x.device_buffers;
    c->device_free = x.device_free;
    c->device_filled = ready;
    used = x.device_free + ready + c->in_use;
    if (x.preload == DLP_PRELOAD_DEVICE) return true;
    c->device_copying = used < x.device_buffers ? x.device_buffers - used : 0;
    return true;
}

static const dlpi_stage_ops dlpi_split_ops = {
    .kind = DLP_STAGE_SPLIT,
    .rank = 10,
    .self_bytes = sizeof(dlpi_split),
    .check = dlpi_split_check_all,
    .seen = dlpi_chunks_seen,
    .layout = dlpi_split_layout,
    .private_bytes = dlpi_split_private,
    .alloc = dlpi_split_alloc,
    .live = dlpi_split_live,
    .describe = dlpi_split_describe,
    .release = dlpi_split_release,
    .lender = &dlpi_split_lender,
};

/* ---------------------------------------------------------------------------------------------
   >>impl-build      CHECKS, LAYOUT, PLAN, START, CLOSE */

static dlpi_stage *dlpi_add(dlp_pipe *p, const dlpi_stage_ops *ops, const char *name,
                            const dlp_workers_desc *w) {
    dlpi_stage *st;
    if (p->prepared || p->err.code != 0) return NULL;
    if (p->n_stages == DLP_MAX_STAGES) {
        dlpi_bad_graph(p, name, "more than 16 stages");
        return NULL;
    }
    st = &p->stages[p->n_stages];
    memset(st, 0, sizeof *st);
    st->ops = ops;
    st->kind = ops->kind;
    st->id = p->n_stages;
    st->link_next = st->link_prev = st->next = st->prev = st->work = -1;
    if (ops->self_bytes > 0 && (st->self = calloc(1, ops->self_bytes)) == NULL) {
        dlp_error e;
        dlpi_error_set(&e, DLP_ERR_MEMORY, name, "malloc of what a stage keeps failed");
        e.errnum = ENOMEM;
        dlpi_pipe_fail(p, &e);
        return NULL;
    }
    if (w) st->w = *w;
    dlpi_copy_text(st->name, sizeof st->name, w && w->name ? w->name : name);
    st->w.name = st->name;
    return st;
}

/* The stage is complete: keep it, if rc, what its checks say, is DLP_OK. Its borrowed arrays are
   copied here. */
static dlp_stage dlpi_added(dlp_pipe *p, dlpi_stage *st, int rc) {
    if (rc != DLP_OK) return rc;
    if (st->w.n_affinity > 0) {
        size_t bytes = (size_t)st->w.n_affinity * sizeof *st->affinity;
        st->affinity = malloc(bytes);
        if (st->affinity == NULL) return dlpi_no_memory(p, "affinity", "the CPU numbers");
        memcpy(st->affinity, st->w.affinity, bytes);
    }
    p->n_stages++;
    return st->id;
}

static int dlpi_add_refused(const dlp_pipe *p) {
    return p->err.code != 0 ? p->err.code : DLP_ERR_STATE;
}

/* The links, and where none leads to a stage, that from the stage added before it. Done again by
   each plan and start: stages and links may have come since. */
static void dlpi_chain(dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        p->stages[i].next = p->stages[i].link_next;
        p->stages[i].prev = p->stages[i].link_prev;
    }
    for (int i = 1; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i], *before = st - 1;
        if (st->prev >= 0 || st->kind == DLP_STAGE_SAMPLER || before->next >= 0) continue;
        before->next = i;
        st->prev = i - 1;
    }
}

static int dlpi_check_chain(dlp_pipe *p, int first) {
    int seen = 0, before = 0;
    uint32_t visited = 0;
    for (int at = first; at >= 0; at = p->stages[at].next) {
        dlpi_stage *st = &p->stages[at];
        int rank = st->ops->rank;
        if (++seen > p->n_stages) return dlpi_bad_graph(p, st->name, "the links make a cycle");
        if (rank < before || (rank == before && !st->ops->many))
            return dlpi_bad_graph(p, st->name,
                                  "this stage can't follow the one before it; the order "
                                  "is " DLPI_STAGE_ORDER);
        before = rank;
        visited |= 1u << at;
        if (st->kind == DLP_STAGE_SAMPLER) p->sampler = st;
        if (st->kind == DLP_STAGE_REPEAT) p->repeat = st;
        if (st->kind == DLP_STAGE_FETCH) p->fetch = st;
        if (st->kind == DLP_STAGE_BATCH) p->batcher = st;
        if (st->ops->sink != NULL) p->sink = st;
        if (st->ops->keeper != NULL) p->keeper = st;
        if (st->ops->lender != NULL) p->lender = st;
        if (st->ops->source == NULL) continue;
        p->source = st->ops->source;
        p->source_stage = st;
    }
    for (int i = 0; i < p->n_stages; i++)
        if (i != first && p->stages[i].prev < 0)
            return dlpi_bad_graph(p, p->stages[i].name,
                                  "no stage leads to this one: that added before it has a link to "
                                  "another");
    for (int i = 0; i < p->n_stages; i++)
        if ((visited >> i & 1u) == 0)
            return dlpi_bad_graph(p, p->stages[i].name, "the links make a cycle");
    return DLP_OK;
}

static int dlpi_check_graph(dlp_pipe *p) {
    int first = -1, rc;
    dlpi_chain(p);
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].kind == DLP_STAGE_SAMPLER) {
            if (first >= 0) return dlpi_bad_graph(p, p->stages[i].name, "a pipe has one sampler");
            first = i;
        }
    if (first < 0) return dlpi_bad_graph(p, "", "there is no sampler stage");
    if (p->stages[first].prev >= 0)
        return dlpi_bad_graph(p, p->stages[first].name, "nothing can come before the sampler");
    if ((rc = dlpi_check_chain(p, first)) != DLP_OK) return rc;
    if (p->fetch == NULL) return dlpi_bad_graph(p, "", "there is no fetch stage");
    if (p->batcher == NULL) return dlpi_bad_graph(p, "", "there is no batch stage");
    return DLP_OK;
}

static bool dlpi_all_inline(const dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].w.num_workers > 0) return false;
    return p->batcher->batching.batch_workers <= 0 && !p->sampler->sampler.threaded;
}

/* All is laid out for workers_max; num_workers, where it begins, is kept apart. */
static void dlpi_list_tuned(dlpi_stage *s) {
    if (s->kind == DLP_STAGE_BATCH || !s->tuned) s->begin = s->w.num_workers;
    s->tuned = s->w.workers_max > 0;
    if (s->tuned) s->w.num_workers = s->w.workers_max;
}

/* Workers that come and go; where they begin has bounds of its own. */
static int dlpi_check_tuned(dlp_pipe *p, dlpi_stage *st) {
    dlp_workers_desc *w = &st->w;
    dlpi_within(p, st->name, "workers_max", w->workers_max, 0, DLP_MAX_WORKERS, "0..1024");
    dlpi_within(p, st->name, "workers_min", w->workers_min, 0, w->workers_max,
                "0..workers_max, 0 without that");
    if (!st->tuned) return p->err.code;
    if (w->workers_min == 0) w->workers_min = 1;
    dlpi_within(p, st->name, "dispatch", w->dispatch, DLP_DISPATCH_CLAIM, DLP_DISPATCH_CLAIM,
                "DLP_DISPATCH_CLAIM with workers_max: else a batch has its worker");
    dlpi_within(p, st->name, "num_workers", st->begin, w->workers_min, w->workers_max,
                "workers_min..workers_max (and at least 1)");
    p->tune.every_ns = DLPI_TUNE_EVERY_NS;
    return p->err.code;
}

/* Batch workers that nobody asked for: beyond so many a collate is no longer what is slow, and as
   processes they would be forked by the thousand. */
#define DLPI_COLLATORS 64

/* Does the stage want workers? A batch stage does if somebody must run it. */
static bool dlpi_wants_workers(const dlpi_stage *st) {
    if (st->kind != DLP_STAGE_BATCH) return st->ops->unit != DLPI_UNIT_NONE;
    return st->collate != NULL || st->batching.batch_workers > 0;
}

/* Of a unit, the stages that have workers, in order. */
static void dlpi_list_unit(dlp_pipe *p, int unit) {
    for (int at = p->sampler->id; at >= 0; at = p->stages[at].next) {
        dlpi_stage *st = &p->stages[at];
        if (st->ops->unit != unit || !dlpi_wants_workers(st)) continue;
        st->work = p->n_staffed;
        dlpi_list_tuned(st);
        st->n_workers = st->w.num_workers > 0 ? st->w.num_workers : 1;
        if (st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES)
            p->n_procs += st->n_workers;
        p->work[p->n_staffed++] = st;
    }
}

static void dlpi_list_work(dlp_pipe *p) {
    const dlp_batch_desc *b = &p->batcher->batching;
    dlpi_stage *st = p->batcher;
    st->w.num_workers = b->batch_workers > 0 ? b->batch_workers : 0;
    if (b->batch_workers == 0 && b->collate && p->fetch->w.num_workers > 0)
        st->w.num_workers = p->prefetch < DLPI_COLLATORS ? (int32_t)p->prefetch : DLPI_COLLATORS;
    p->n_staffed = p->n_procs = 0;
    dlpi_list_unit(p, DLPI_UNIT_ROWS);
    p->n_item_work = p->n_staffed;
    dlpi_list_unit(p, DLPI_UNIT_BATCHES);
    p->n_work = p->n_staffed;
    dlpi_list_unit(p, DLPI_UNIT_CELLS);
}

/* This rank's rows of a batch. */
static int dlpi_sampler_ranks(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_sampler_desc *d = &st->sampler;
    int rc = dlpi_within(p, st->name, "sampler.allow_uneven", d->allow_uneven, 0, 1, "0 or 1");
    if (rc != DLP_OK) return rc;
    p->world = d->world_size ? d->world_size : 1;
    p->rank = d->rank;
    p->batch_rows = (uint32_t)((p->global_batch + p->world - 1) / p->world);
    return dlpi_check_ranks(p, st, p->rank, p->world, p->global_batch, d->allow_uneven != 0);
}

/* ---- a row finds the end (a stream): what needs a length, or another item in an item's place, is
   not possible ---- */

static int dlpi_open_end_order(dlp_pipe *p) {
    const char *sampler = p->sampler->name;
    bool one = p->world == 1;
    dlpi_within(p, sampler, "order", p->sampler->sampler.order, DLP_ORDER_SEQUENTIAL,
                DLP_ORDER_SEQUENTIAL, "DLP_ORDER_SEQUENTIAL, and shuffle 0, with a stream");
    if (p->sampler->sampler.subset) dlpi_bad(p, sampler, "subset", "NULL with a stream", 1);
    dlpi_within(p, sampler, "unordered", p->d.unordered, 0, 0,
                "0 with a stream, whose end comes in order");
    dlpi_within(p, sampler, "batch_size", (int64_t)p->global_batch, p->world, 1 << 20,
                "world_size or more with a stream: a rank without rows sees no end");
    dlpi_within(p, p->batcher->name, "last", p->last, DLP_LAST_SHORT,
                one ? DLP_LAST_DROP : DLP_LAST_SHORT,
                one ? "DLP_LAST_SHORT or DLP_LAST_DROP with a stream"
                    : "DLP_LAST_SHORT with a stream of several ranks, none of which knows "
                      "whether the others' rows of a batch are there");
    return p->err.code;
}

static int dlpi_open_end_check(dlp_pipe *p) {
    int rc = dlpi_open_end_order(p);
    if (rc != DLP_OK) return rc;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.on_error == DLP_ON_ERROR_REPLACE)
            return dlpi_bad(p, p->work[i]->name, "on_error",
                            "DLP_ON_ERROR_RAISE or _SHORT with a stream, "
                            "which knows no other item",
                            DLP_ON_ERROR_REPLACE);
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->keeper != NULL || p->stages[i].ops->lender != NULL)
            return dlpi_bad_graph(p, p->stages[i].name,
                                  "this stage wants to know the number of items, and a stream has "
                                  "none");
    if (p->share_bytes == 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, "", "shm.share", "a stream has no consumers");
}

/* Rank, batch and epoch arithmetic. */
static int dlpi_check_sizes(dlp_pipe *p) {
    int rc;
    p->global_batch = p->batcher->batching.batch_size;
    p->last = p->batcher->batching.last;
    if ((rc = dlpi_sampler_ranks(p, p->sampler)) != DLP_OK) return rc;
    return p->source->sizes(p);
}

static int dlpi_check_pipe(dlp_pipe *p) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pipe_desc, prefetch_factor), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_pipe_desc, max_held), 0, 256, "0..256"},
        {DLPI_AT(dlp_pipe_desc, unordered), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, close_timeout_ms), DLP_FOREVER, INT32_MAX,
         "DLP_NOWAIT, DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_pipe_desc, trace_bytes), 0, 64 << 20, "0..67108864"},
        {DLPI_AT(dlp_pipe_desc, no_memfd), 0, 1, "0 or 1"},
    };
    int rc = dlpi_check_bounds(p, "", &p->d, DLPI_ROWS(bounds));
    if (rc != DLP_OK || p->d.shm == NULL) return rc;
    if (dlpi_shm != NULL) return dlpi_shm->open(p);
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, "", "shm",
                       "dlp_pipe_desc.shm needs dlpipe_shm.h, included in the file that has "
                       "DLPIPE_IMPLEMENTATION");
}

static uint64_t dlpi_pow2(uint64_t n) {
    uint64_t v = 1;
    while (v < n) v *= 2;
    return v;
}

/* How many batches are under way, and where their numbers are kept. */
static int dlpi_resolve_slots(dlp_pipe *p) {
    p->prefetch = dlpi_all_inline(p) ? 1 : 2;
    if (p->d.prefetch_factor) p->prefetch = (uint32_t)p->d.prefetch_factor;
    p->max_held = p->d.max_held ? (uint32_t)p->d.max_held : 1;
    p->n_slots = p->prefetch + p->max_held;
    p->n_cells = p->n_slots;
    p->n_out = p->lender ? p->max_held : p->n_slots;
    p->ring = (uint32_t)dlpi_pow2(p->n_slots * (p->d.unordered ? 4u : 1u));
    p->window = p->d.unordered && p->ring > DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX : p->ring;
    if (p->window >= p->prefetch) return DLP_OK;
    return dlpi_bad(p, "", "prefetch_factor", "at most 320 with unordered = 1",
                    (int64_t)p->prefetch);
}

static int dlpi_resolve_work(dlp_pipe *p) {
    int rc = DLP_OK;
    dlpi_list_work(p);
    for (int i = 0; i < p->n_work && rc == DLP_OK; i++) rc = dlpi_check_tuned(p, p->work[i]);
    if (rc == DLP_OK && p->n_procs > 0 && p->shm == NULL) rc = dlpi_shm->open(p);
    return rc == DLP_OK && p->shm ? dlpi_shm->resolve(p) : rc;
}

/* From which stage on a batch's parts and cell are free. A batch that is half changed is fetched,
   or collated, again. */
static void dlpi_resolve_ends(dlp_pipe *p) {
    p->rows_end = p->work[p->n_item_work - 1];
    p->cell_end = p->batcher;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->kind == DLP_STAGE_MAP_BATCH && !p->work[i]->w.idempotent) {
            p->cell_end = p->work[i];
            if (!p->staged) p->rows_end = p->work[i];
        }
}

static int dlpi_resolve_items(dlp_pipe *p) {
    const dlp_dataset *ds = &p->fetch->dataset;
    int rc = dlpi_fields_init(p, p->fetch->name, &p->items, ds->fields, ds->n_fields, false);
    return rc;
}

static int dlpi_resolve_batches(dlp_pipe *p) {
    const dlp_dataset *ds = &p->fetch->dataset;
    const dlp_batch_desc *d = &p->batcher->batching;
    bool own = p->staged && d->out_fields != NULL;
    return dlpi_fields_init(p, p->batcher->name, &p->batches, own ? d->out_fields : ds->fields,
                            own ? d->n_out_fields : ds->n_fields, p->staged);
}

/* What each kind has to say of the chain. */
static int dlpi_check_stages(dlp_pipe *p) {
    int rc = DLP_OK;
    for (int i = 0; i < p->n_stages && rc == DLP_OK; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->ops->check != NULL) rc = st->ops->check(p, st);
    }
    return rc;
}

/* Everything that follows from the descs; p->err tells what does not fit. */
static int dlpi_resolve(dlp_pipe *p) {
    int rc;
    if ((rc = dlpi_check_graph(p)) != DLP_OK) return rc;
    p->staged = p->batcher->collate != NULL;
    if ((rc = dlpi_check_sizes(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_slots(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_work(p)) != DLP_OK) return rc;
    if (p->open_end && (rc = dlpi_open_end_check(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_items(p)) != DLP_OK) return rc;
    dlpi_resolve_ends(p);
    if ((rc = dlpi_check_stages(p)) != DLP_OK) return rc;
    return dlpi_resolve_batches(p);
}

/* Where things lie in a slot and in the region. */
static uint64_t dlpi_take_bytes(uint64_t *at, uint64_t bytes, uint64_t align) {
    uint64_t from = dlpi_round_up(*at, align);
    *at = dlpi_sum(from, bytes);
    return from;
}

static void dlpi_layout_slots(dlp_pipe *p) {
    uint64_t at = sizeof(dlpi_bslot), rows = p->batch_rows;
    uint64_t words8 = dlpi_times(rows, 8), cells = dlpi_times(rows, 4);
    uint64_t out_lengths = p->staged || p->items.any_ragged ? dlpi_times(p->batches.n, words8) : 0;
    bool in_lengths = p->staged && p->items.any_ragged;
    p->words_max = (p->batch_rows + DLPI_WORD_ROWS - 1) / DLPI_WORD_ROWS;
    p->units_max = p->batch_rows;
    for (int i = 0; i < p->n_work; i++) {
        dlpi_stage *st = p->work[i];
        uint64_t words =
            i < p->n_item_work ? (uint64_t)p->words_max + p->units_max : p->words_max + 1u;
        words = dlpi_times(words + (p->words_max > 1 ? 1 : 0), 8);
        st->sst_offset = dlpi_take_bytes(&at, offsetof(dlpi_sst, words) + words, DLPI_LINE);
    }
    at = dlpi_line_up(at);
    p->slot.index = dlpi_take_bytes(&at, words8, 1);
    p->slot.lengths = dlpi_take_bytes(&at, out_lengths, 1);
    p->slot.item_lengths = p->staged ? at : p->slot.lengths;
    dlpi_take_bytes(&at, in_lengths ? dlpi_times(p->items.n, words8) : 0, 1);
    p->slot.offsets = dlpi_take_bytes(&at, p->staged ? dlpi_times(p->batches.n, words8 + 8) : 0, 1);
    p->slot.fmeta = dlpi_take_bytes(&at, p->staged ? p->batches.n * sizeof(dlpi_fmeta) : 0, 1);
    p->slot.source = dlpi_take_bytes(&at, p->source->slot_bytes ? p->source->slot_bytes(p) : 0, 1);
    p->slot.rec = dlpi_take_bytes(&at, cells, 1);
    p->tries_bytes = 0;
    for (int i = 0; i < p->n_item_work; i++)
        if (p->work[i]->w.retries > 0)
            p->tries_bytes = dlpi_times(2u * (uint64_t)p->n_item_work, rows);
    p->off_tries = dlpi_take_bytes(&at, p->tries_bytes, 1);
    p->slot.valid = dlpi_take_bytes(&at, rows, 1);
    dlpi_area_add(p, DLPI_REC_SLOTS,
                  p->lender ? p->lender->ops->lender->words.slots : "batch slots: row records",
                  dlpi_line_up(at), p->n_slots, DLPI_LINE);
}

/* What kinds keep in this process and have a line of the plan for. */
static uint64_t dlpi_worded_bytes(const dlp_pipe *p) {
    uint64_t bytes = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage_ops *ops = p->stages[i].ops;
        if (ops->private_words != NULL)
            bytes = dlpi_sum(bytes, ops->private_bytes(p, &p->stages[i]));
    }
    return bytes;
}

/* Rows that can be in a callback of fetch at once, beside one of each worker: those in flight. */
static uint64_t dlpi_own_rows_bytes(const dlp_pipe *p) {
    uint64_t each = 1 + (uint64_t)p->fetch->in_flight;
    return dlpi_times(dlpi_times((uint64_t)p->fetch->n_workers, each), p->source->row_bytes);
}

/* The sink's buffers: how many, bytes of one, all of them. */
static uint64_t dlpi_sink_buffers(const dlp_pipe *p) {
    return p->sink ? p->sink->ops->sink->buffers(p) : 0;
}
static uint64_t dlpi_sink_each(const dlp_pipe *p) {
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) bytes = dlpi_sum(bytes, p->batches.at[f].capacity);
    return bytes;
}
static uint64_t dlpi_sink_bytes(const dlp_pipe *p) {
    return dlpi_times(dlpi_sink_buffers(p), dlpi_sink_each(p));
}

static uint64_t dlpi_worker_records(const dlp_pipe *p) {
    return dlpi_times((uint64_t)p->n_workers + 1, sizeof(dlpi_worker));
}

/* What dlpi_private_alloc asks for, with the pipe itself. */
static uint64_t dlpi_private_bytes(const dlp_pipe *p) {
    uint64_t tensors = p->batches.n * sizeof(dlp_tensor);
    uint64_t each[] = {
        sizeof *p + 4096,
        dlpi_worker_records(p),
        dlpi_times(p->n_out, 1 + sizeof(dlp_batch) + tensors),
        dlpi_times(p->n_slots, DLPI_DEBUG),
        p->batch_rows,
        dlpi_times(p->prefetch, sizeof(dlpi_cell_use)),
        dlpi_own_rows_bytes(p),
    };
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) bytes = dlpi_sum(bytes, each[i]);
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage *st = &p->stages[i];
        bytes = dlpi_sum(bytes, (uint64_t)st->w.n_affinity * sizeof(int32_t));
        bytes = dlpi_sum(bytes, st->ops->self_bytes);
        if (st->ops->private_bytes != NULL) bytes = dlpi_sum(bytes, st->ops->private_bytes(p, st));
    }
    return bytes;
}

/* Number the workers of all stages. */
static void dlpi_layout_workers(dlp_pipe *p) {
    p->n_workers = 0;
    for (int i = 0; i < p->n_staffed; i++) {
        p->work[i]->first_worker = p->n_workers;
        p->n_workers += p->work[i]->n_workers;
    }
}

static void dlpi_layout_control(dlp_pipe *p) {
    uint64_t bells = (uint64_t)p->n_staffed;
    dlpi_area_add(p, DLPI_REC_CTL, NULL, sizeof(dlpi_ctl), 1, DLPI_LINE);
    dlpi_area_add(p, DLPI_AREA_BELLS, NULL, sizeof(dlpi_sbell), bells, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_ORDER, NULL, sizeof(uint32_t), p->ring, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_TAKEN, NULL, 1, p->ring, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_PIPE, NULL, sizeof(dlpi_pipe_rec), 1, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_STAGES, NULL, sizeof(dlpi_stage_rec), (uint64_t)p->n_stages, 8);
    dlpi_area_add(p, DLPI_REC_FIELDS, NULL, sizeof(dlpi_field_rec), p->batches.n, 8);
    dlpi_area_add(p, DLPI_REC_WORKERS, NULL, dlpi_line_up(sizeof(dlpi_wblock)),
                  (uint64_t)p->n_workers + 1, DLPI_LINE);
}

/* The order's table, up to the end of a page. */
static void dlpi_layout_table(dlp_pipe *p) {
    uint64_t from = dlpi_round_up(p->region_bytes, DLPI_LINE);
    uint64_t bytes = dlpi_order_table_bytes(&p->sampler->sampler, p->fetch->dataset.n_items);
    bytes = dlpi_round_up(dlpi_sum(from, bytes), 4096) - from;
    dlpi_area_add(p, DLPI_REC_TABLE, "sampler table", bytes, 1, DLPI_LINE);
}

static void dlpi_layout_trace(dlp_pipe *p) {
    uint64_t bytes = p->d.trace_bytes ? p->d.trace_bytes : 4096;
    p->trace_events = (uint32_t)(bytes / sizeof(dlp_trace_event));
    if (p->trace_events < 4) p->trace_events = 4;
    dlpi_area_add(p, DLPI_REC_TRACE, "trace rings", p->trace_events * sizeof(dlp_trace_event),
                  (uint64_t)p->n_workers + 1, 4096);
}

/* What each kind has of its own. */
static void dlpi_layout_stages(dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->ops->layout != NULL) st->ops->layout(p, st);
    }
}

static void dlpi_layout_cells(dlp_pipe *p) {
    dlpi_area_add(p, DLPI_REC_ITEM_CELLS, "item cells for the collate",
                  p->staged ? dlpi_fields_bytes(&p->items) : 0, p->staged ? p->prefetch : 0, 4096);
    dlpi_area_add(p, DLPI_REC_CELLS,
                  p->lender ? p->lender->ops->lender->words.cells : "batch slots: fields",
                  dlpi_fields_bytes(&p->batches), p->n_cells, 4096);
    dlpi_area_add(p, DLPI_AREA_ZEROS, p->lender ? p->lender->ops->lender->words.zeros : NULL,
                  dlpi_fields_bytes(&p->batches), p->cells == DLPI_CELLS_STAY,
                  4096); /* cell n_cells: behind the others */
    dlpi_area_add(p, DLPI_AREA_GUARD, "guarded cells", dlpi_guard_stride(p), dlpi_guard_cells(p),
                  DLPI_LINE);
}

/* Each concern puts its areas into the region, one behind the other. */
static void dlpi_layout(dlp_pipe *p) {
    p->region_bytes = sizeof(dlpi_region);
    dlpi_layout_workers(p);
    dlpi_layout_control(p);
    dlpi_layout_slots(p);
    dlpi_layout_table(p);
    dlpi_layout_trace(p);
    dlpi_area_add(p, DLPI_REC_SHARE, "consumers", p->share_bytes, p->share_bytes > 0, 4096);
    dlpi_layout_stages(p);
    dlpi_layout_cells(p);
    p->region_bytes = dlpi_round_up(p->region_bytes, p->huge_pages > 0 ? 2u << 20 : 4096);
    p->plan_private = dlpi_private_bytes(p);
    p->plan_bytes = dlpi_sum(dlpi_sum(p->region_bytes, p->plan_private), dlpi_sink_bytes(p));
}

static void dlpi_plan_add(dlp_plan *plan, const char *what, uint64_t count, uint64_t each) {
    dlp_plan_line *l = &plan->lines[plan->n_lines];
    if (count == 0 || each == 0) return;
    dlpi_copy_text(l->what, sizeof l->what, what);
    l->count = count;
    l->bytes_each = each;
    l->bytes = dlpi_times(count, each);
    plan->total_bytes = dlpi_sum(plan->total_bytes, l->bytes);
    plan->n_lines++;
}

static void dlpi_plan_area(const dlp_pipe *p, dlp_plan *plan, int id) {
    dlpi_plan_add(plan, p->areas[id].words, p->areas[id].count, p->areas[id].stride);
}

/* What kinds keep in this process that has a line of its own: of each worker, or once. */
static void dlpi_plan_kinds(const dlp_pipe *p, dlp_plan *plan) {
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage *st = &p->stages[i];
        uint64_t n = st->ops->worker != NULL ? (uint64_t)st->n_workers : 1;
        if (st->ops->private_words != NULL)
            dlpi_plan_add(plan, st->ops->private_words, n, st->ops->private_bytes(p, st) / n);
    }
}

static void dlpi_plan_sink(const dlp_pipe *p, dlp_plan *plan) {
    if (p->sink == NULL) return;
    dlpi_plan_add(plan,
                  p->lender ? p->lender->ops->lender->words.results : p->sink->ops->sink->words,
                  dlpi_sink_buffers(p), dlpi_sink_each(p));
}

static void dlpi_plan_fill(const dlp_pipe *p, dlp_plan *plan) {
    uint64_t each = p->areas[DLPI_REC_WORKERS].stride + sizeof(dlpi_worker);
    uint64_t named, own, collators = p->batcher->work >= 0 ? (uint64_t)p->batcher->n_workers : 0;
    memset(plan, 0, sizeof *plan);
    plan->slots = p->n_slots;
    plan->slot_bytes = dlpi_sum(p->areas[DLPI_REC_CELLS].stride, p->areas[DLPI_REC_SLOTS].stride);
    plan->limit_bytes = p->d.limit_bytes;
    dlpi_plan_area(p, plan, DLPI_REC_CELLS);
    dlpi_plan_area(p, plan, DLPI_AREA_ZEROS);
    dlpi_plan_area(p, plan, DLPI_REC_SLOTS);
    dlpi_plan_add(plan, p->areas[DLPI_REC_RESIDENT].words, 1,
                  dlpi_area_bytes(p, DLPI_REC_RESIDENT));
    dlpi_plan_area(p, plan, DLPI_REC_ITEM_CELLS);
    dlpi_plan_area(p, plan, DLPI_AREA_KEPT);
    dlpi_plan_area(p, plan, DLPI_AREA_GUARD);
    dlpi_plan_sink(p, plan);
    dlpi_plan_area(p, plan, DLPI_REC_TABLE);
    dlpi_plan_area(p, plan, DLPI_REC_SHARE);
    dlpi_plan_area(p, plan, DLPI_REC_TRACE);
    dlpi_plan_add(plan, "worker records", (uint64_t)p->n_workers + 1 - collators, each);
    dlpi_plan_add(plan, "worker records: of the batch stage", collators, each);
    dlpi_plan_area(p, plan, DLPI_REC_SOURCE_CELLS);
    dlpi_plan_area(p, plan, DLPI_REC_SOURCE);
    named = plan->total_bytes;
    dlpi_plan_kinds(p, plan);
    named = dlpi_less(named, dlpi_sink_bytes(p));
    named = dlpi_less(named, dlpi_worker_records(p));
    if (p->shm) dlpi_plan_add(plan, "start by exec: what workers are told", 1, dlpi_shm->bytes(p));
    dlpi_plan_add(plan, "control and alignment", 1, dlpi_less(p->region_bytes, named));
    own = dlpi_less(dlpi_less(p->plan_private, dlpi_worker_records(p)), dlpi_worded_bytes(p));
    dlpi_plan_add(plan, "this process: pipe and views", 1, own);
}

/* ---- start ---- */

/* Of a memory limit; the cgroup's cache of files does not count, it gives way. */
static uint64_t dlpi_memory_left(const char *dir, uint64_t max, uint64_t used,
                                 const char *const *given) {
    if (max == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = dlpi_cgroup_number(dir, "memory.stat", given[i]);
        if (bytes != UINT64_MAX) used -= bytes < used ? bytes : used;
    }
    return used > max ? 0 : max - used;
}

static uint64_t dlpi_cgroup_memory_v2(const char *dir) {
    static const char *const given[2] = {"inactive_file", "active_file"};
    return dlpi_memory_left(dir, dlpi_cgroup_number(dir, "memory.max", NULL),
                            dlpi_cgroup_number(dir, "memory.current", NULL), given);
}

static uint64_t dlpi_cgroup_memory_v1(const char *dir) {
    static const char *const given[2] = {"total_inactive_file", "total_active_file"};
    return dlpi_memory_left(dir, dlpi_cgroup_number(dir, "memory.limit_in_bytes", NULL),
                            dlpi_cgroup_number(dir, "memory.usage_in_bytes", NULL), given);
}

static uint64_t dlpi_cgroup_left(void) {
    static const dlpi_cgroups v1 = {"memory", "/sys/fs/cgroup/memory", dlpi_cgroup_memory_v1};
    static const dlpi_cgroups v2 = {"", "/sys/fs/cgroup", dlpi_cgroup_memory_v2};
    uint64_t one = dlpi_cgroup_least(&v1), two = dlpi_cgroup_least(&v2);
    return one < two ? one : two;
}

static int dlpi_over(dlp_pipe *p, const dlp_plan *plan, uint64_t limit, const char *field,
                     const char *what) {
    const dlp_plan_line *big = &plan->lines[0];
    for (uint32_t i = 1; i < plan->n_lines; i++)
        if (plan->lines[i].bytes > big->bytes) big = &plan->lines[i];
    return dlpi_refuse(p, DLP_ERR_LIMIT, "", field,
                       "the plan needs %" PRIu64 " bytes, %s is %" PRIu64
                       "; the largest part is %" PRIu64 " x %" PRIu64 " bytes for %s",
                       plan->total_bytes, what, limit, big->count, big->bytes_each, big->what);
}

/* Hold the plan against every limit before anything is allocated. */
static int dlpi_check_limits(dlp_pipe *p, const dlp_plan *plan) {
    uint64_t all = plan->total_bytes, left, used, kib;
    dlp_budget *budget = p->d.budget;
    if (p->d.limit_bytes && all > p->d.limit_bytes)
        return dlpi_over(p, plan, p->d.limit_bytes, "limit_bytes", "limit_bytes");
    if (all > PTRDIFF_MAX)
        return dlpi_over(p, plan, PTRDIFF_MAX, "limit_bytes", "what can be addressed");
    left = dlpi_cgroup_left();
    if (all > left) return dlpi_over(p, plan, left, "limit_bytes", "what the memory cgroup leaves");
    kib = dlpi_read_number("/proc/meminfo", "MemAvailable:");
    if (kib != UINT64_MAX && all / 1024 > kib)
        return dlpi_over(p, plan, kib * 1024, "limit_bytes", "the memory available");
    if (budget) {
        used = DLPI_ADD_SEQ(&budget->used_bytes, all); /* M1: each pipe adds before it looks */
        if (used > budget->limit_bytes || all > budget->limit_bytes - used) {
            DLPI_ADD_SEQ(&budget->used_bytes, 0 - all); /* M1 */
            return dlpi_over(p, plan, used > budget->limit_bytes ? 0 : budget->limit_bytes - used,
                             "budget", "what the budget leaves");
        }
        p->budget_bytes = all;
    }
    return DLP_OK;
}

static int dlpi_system_fail(dlp_pipe *p, int code, const char *call) {
    dlp_error e;
    int errnum = errno;
    dlpi_error_set(&e, code, "", "%s failed: %s", call, strerror(errnum));
    e.errnum = errnum;
    return dlpi_pipe_fail(p, &e);
}

/* Have all of the region's memory now: no process is to be killed in the middle of a batch because
   there is none. */
static int dlpi_region_reserve(dlp_pipe *p) {
    const uint64_t piece = 2u << 20; /* any signal interrupts it (before Linux 6.13), and undoes it:
                                        of a whole region a program with a timer would get none */
    for (uint64_t at = 0; at < p->region_bytes;) {
        uint64_t n = p->region_bytes - at < piece ? p->region_bytes - at : piece;
        int rc = posix_fallocate(p->memfd, (off_t)at, (off_t)n);
        if (rc == 0) at += n;
        if (rc == 0 || rc == EINTR) continue;
        errno = rc;
        return dlpi_system_fail(p, DLP_ERR_MEMORY, "reserving the region's memory");
    }
    return DLP_OK;
}

/* In a process that was forked later this page is zero: a pipe is its owner's alone. NULL: none. */
static uint8_t *dlpi_alive_page(void) {
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, 4096, 18); /* MADV_WIPEONFORK (Linux 4.14); before that, forks are not noticed */
    *(uint8_t *)at = 1;
    return at;
}

static int dlpi_alive_map(dlp_pipe *p) {
    p->alive = dlpi_alive_page();
    if (p->alive == NULL) return dlpi_system_fail(p, DLP_ERR_MEMORY, "mmap of a page");
    return DLP_OK;
}

static inline bool dlpi_forked(const dlp_pipe *p) { return p->alive != NULL && *p->alive == 0; }

static int dlpi_region_too_large(dlp_pipe *p) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_LIMIT, "",
                   "the region is a file in memory of %" PRIu64 " bytes, "
                   "more than files may have here (ulimit -f, RLIMIT_FSIZE)",
                   p->region_bytes);
    e.errnum = EFBIG;
    return dlpi_pipe_fail(p, &e);
}

/* A sealed memfd where there is one, so that others can look; else anonymous memory. */
static int dlpi_region_map(dlp_pipe *p) {
    size_t bytes = (size_t)p->region_bytes;
    void *at = MAP_FAILED;
    bool must = p->shm != NULL; /* processes and names need it, and memory that is there */
    p->memfd = -1;
    if (must && !dlpi_file_may_be(bytes)) return dlpi_region_too_large(p);
    if ((!p->d.no_memfd || must) && dlpi_file_may_be(bytes)) {
        /* close on exec, may be sealed, huge pages */
        p->memfd =
            dlpi_fd_above((int)syscall(SYS_memfd_create, "dlpipe", p->huge_pages > 1 ? 7u : 3u));
        if (p->memfd >= 0 && ftruncate(p->memfd, (off_t)bytes) == 0) {
            fcntl(p->memfd, 1033, 6); /* F_ADD_SEALS: no shrink, no growth */
            at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->memfd, 0);
        }
    }
    if (at == MAP_FAILED && must)
        return dlpi_system_fail(p, DLP_ERR_MEMORY,
                                p->huge_pages > 1
                                    ? "mmap of the region in huge pages (see vm.nr_hugepages)"
                                    : "mmap of the region as a memfd");
    if (at == MAP_FAILED) {
        if (p->memfd >= 0) close(p->memfd);
        p->memfd = -1;
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (at == MAP_FAILED) return dlpi_system_fail(p, DLP_ERR_MEMORY, "mmap of the region");
    p->region = at;
    if (p->huge_pages == 1 && madvise(at, bytes, 14) != 0) /* MADV_HUGEPAGE */
        dlpi_warn(p, "transparent huge pages are not to be had for the region: %s",
                  strerror(errno));
    return p->n_procs > 0 ? dlpi_region_reserve(p) : DLP_OK;
}

static uint64_t dlpi_layout_hash(void) {
    uint64_t sizes =
        sizeof(dlpi_region) + (sizeof(dlpi_ctl) << 16) + ((uint64_t)sizeof(dlpi_wblock) << 32);
    return dlp_hash(DLPI_MAGIC, sizes, sizeof(dlpi_bslot), DLPI_LINE + DLPI_GUARD);
}

/* Where observers find what they read. Sizes are not in it: structs may grow at their ends. */
static uint64_t dlpi_view_hash(void) {
    static const size_t at[] = {offsetof(dlpi_ctl, tail),
                                offsetof(dlpi_ctl, base),
                                offsetof(dlpi_ctl, delivered),
                                offsetof(dlpi_ctl, held),
                                offsetof(dlpi_ctl, items),
                                offsetof(dlpi_ctl, bytes),
                                offsetof(dlpi_ctl, wait_ns),
                                offsetof(dlpi_ctl, step_ns),
                                offsetof(dlpi_ctl, first_ns),
                                offsetof(dlpi_ctl, epoch),
                                offsetof(dlpi_ctl, started_ns),
                                offsetof(dlpi_ctl, stop),
                                offsetof(dlpi_ctl, error_ready),
                                offsetof(dlpi_ctl, error),
                                offsetof(dlpi_ctl, skips),
                                offsetof(dlpi_ctl, skip_ring),
                                offsetof(dlpi_wblock, items),
                                offsetof(dlpi_wblock, bytes),
                                offsetof(dlpi_wblock, busy_ns),
                                offsetof(dlpi_wblock, cpu_ns),
                                offsetof(dlpi_wblock, current),
                                offsetof(dlpi_wblock, since_ns),
                                offsetof(dlpi_wblock, retried),
                                offsetof(dlpi_wblock, left_out),
                                offsetof(dlpi_wblock, trace_head),
                                offsetof(dlpi_wblock, state),
                                offsetof(dlpi_wblock, max_ns),
                                offsetof(dlpi_wblock, hist),
                                offsetof(dlpi_wblock, pid),
                                offsetof(dlpi_sst, ready),
                                sizeof(dlpi_skip),
                                sizeof(dlp_error),
                                sizeof(dlp_trace_event),
                                DLPI_HIST,
                                DLPI_SKIP_RING};
    uint64_t h = DLPI_FORMAT;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) h = dlp_hash(h, at[i], i, DLPI_MAGIC);
    return h;
}

static void dlpi_token(uint64_t *token) {
    struct timespec t;
    if (syscall(SYS_getrandom, token, 16, 1) == 16) return; /* GRND_NONBLOCK */
    clock_gettime(CLOCK_REALTIME, &t);
    token[0] = dlp_hash((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec, (uint64_t)getpid(), 1);
    token[1] = dlp_hash(token[0], dlpi_now_ns(), (uint64_t)(uintptr_t)token, 2);
}

static void dlpi_stage_describe(const dlpi_stage *st, dlpi_stage_rec *r) {
    dlpi_copy_text(r->name, sizeof r->name, st->name);
    r->kind = st->kind;
    r->id = st->id;
    r->work = st->work;
    r->placement = st->w.placement;
    r->deadline_ms = st->w.deadline_ms;
    if (st->work < 0) return;
    r->first_worker = st->first_worker;
    r->n_workers = st->n_workers;
    r->num_workers = st->w.num_workers;
    r->unit_is_batch = st->ops->unit == DLPI_UNIT_BATCHES;
    r->sst_offset = st->sst_offset;
    r->in_flight = st->in_flight;
    r->active = st->tuned ? st->begin : st->n_workers;
    r->workers_min = st->tuned ? st->w.workers_min : 0;
}

static void dlpi_pipe_describe(const dlp_pipe *p, dlpi_pipe_rec *r) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    dlpi_copy_text(r->name, sizeof r->name, p->name);
    dlpi_token(r->token);
    r->started_real = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    r->pid = (int32_t)getpid();
    r->memfd = p->memfd;
    r->uid = (uint32_t)geteuid();
    r->n_stages = (uint32_t)p->n_stages;
    r->n_workers = (uint32_t)p->n_workers;
    r->n_work = (uint32_t)p->n_work;
    r->n_item_work = (uint32_t)p->n_item_work;
    r->prefetch = p->prefetch;
    r->max_held = p->max_held;
    r->n_slots = p->n_slots;
    r->ring = p->ring;
    r->window = p->window;
    r->batch_rows = p->batch_rows;
    r->words_max = p->words_max;
    r->units_max = p->units_max;
    r->trace_events = p->trace_events;
    r->cpus = p->cpus;
    r->unordered = p->d.unordered;
    r->staged = p->staged;
    r->threaded = p->sampler->sampler.threaded;
    r->plan_bytes = p->plan_bytes;
    r->global_batch = p->global_batch;
    r->batches_per_epoch = dlpi_epoch_batches(p);
    r->samples = p->samples;
    r->item_cell_stride = p->areas[DLPI_REC_ITEM_CELLS].stride;
    r->off_bells = p->areas[DLPI_AREA_BELLS].offset;
    r->slot = p->slot;
}

static void dlpi_fields_describe(const dlp_pipe *p, dlpi_field_rec *r) {
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        dlpi_copy_text(r[f].name, sizeof r[f].name, d->name);
        r[f].dtype = d->f.dtype;
        r[f].ndim = d->f.ndim;
        r[f].ragged = d->f.ragged;
        memcpy(r[f].shape, d->f.shape, sizeof r[f].shape);
        r[f].elem_bytes = d->elem_bytes;
        r[f].row_bytes = d->row_bytes;
        r[f].capacity = d->capacity;
        r[f].offset = d->offset;
    }
}

/* Fill header and records; the magic comes last, so that a half-made region is none. */
static void dlpi_region_init(dlp_pipe *p) {
    dlpi_region *r = (dlpi_region *)(void *)p->region;
    dlpi_stage_rec *stages = dlpi_area_at(p, DLPI_REC_STAGES, 0);
    r->format = DLPI_FORMAT;
    r->header_bytes = sizeof *r;
    r->record_bytes = sizeof(dlpi_record);
    r->records_at = offsetof(dlpi_region, records);
    r->layout = dlpi_layout_hash();
    r->view = dlpi_view_hash();
    r->total_bytes = p->region_bytes;
    dlpi_pipe_describe(p, dlpi_area_at(p, DLPI_REC_PIPE, 0));
    for (int i = 0; i < p->n_stages; i++) dlpi_stage_describe(&p->stages[i], &stages[i]);
    dlpi_fields_describe(p, dlpi_area_at(p, DLPI_REC_FIELDS, 0));
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->describe != NULL) p->stages[i].ops->describe(p, &p->stages[i]);
    for (const dlpi_area *a = p->areas; a < p->areas + DLPI_REC_COUNT; a++)
        if (a->record != 0)
            r->records[r->n_records++] =
                (dlpi_record){a->record, 0, a->offset, a->stride, a->count};
    DLPI_STORE_REL(&r->magic, DLPI_MAGIC); /* I1 -> I1 of an observer, which checks it first */
}

/* What stages keep, and what the source gives callbacks. */
static bool dlpi_stages_alloc(dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->ops->alloc && !st->ops->alloc(p, st)) return false;
    }
    if (p->source->row_bytes == 0) return true;
    p->own_rows = calloc(dlpi_own_rows_bytes(p), 1);
    return p->own_rows != NULL;
}

static int dlpi_private_alloc(dlp_pipe *p) {
    p->workers = calloc((size_t)p->n_workers + 1, sizeof *p->workers);
    p->out = calloc(p->n_out, sizeof *p->out);
    p->out_fields = calloc((size_t)p->n_out * p->batches.n, sizeof *p->out_fields);
    p->ones = calloc(p->batch_rows, 1);
    p->held = calloc(p->n_out + p->n_slots * (size_t)DLPI_DEBUG, 1); /* and dlpi_poisoned */
    p->feed.cells = calloc(p->prefetch, sizeof *p->feed.cells);
    if (p->workers && p->out && p->out_fields && p->ones && p->held && p->feed.cells &&
        dlpi_stages_alloc(p))
        return DLP_OK;
    errno = ENOMEM;
    return dlpi_system_fail(p, DLP_ERR_MEMORY, "malloc of the pipe's own records");
}

static void dlpi_private_free(dlp_pipe *p) {
    void *all[] = {p->workers, p->out, p->out_fields, p->ones, p->held, p->feed.cells, p->own_rows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void dlpi_worker_init(dlp_pipe *p, dlpi_stage *st, int id, int global) {
    dlpi_worker *w = &p->workers[global];
    w->p = p;
    w->st = st;
    w->id = id;
    w->global = global;
    w->wb = dlpi_area_at(p, DLPI_REC_WORKERS, (uint64_t)global);
    w->trace = dlpi_area_at(p, DLPI_REC_TRACE, (uint64_t)global);
    w->wb->current = UINT64_MAX;
    if (w->wb->pid == 0 && st->w.placement != DLP_PLACE_PROCESSES)
        w->wb->pid = (int32_t)getpid(); /* 0: this is not a supervisor that began by exec */
    w->clock_every = 1;
    w->item.data = w->data;
    w->item.length = w->length;
    w->item.n_fields = p->items.n;
    w->item.worker = (uint32_t)id;
    w->item.seed = p->sampler->sampler.seed;
    w->note.message = w->wb->message;
    w->note.w = w;
    w->note.errnum = &w->wb->message_errno;
    w->note.said = 0;
    w->item.internal = &w->note;
    w->parked = w->parked_own;
    w->parked_most = DLPI_PARK;
    w->own = dlpi_own_row(p, w, 0);
    if (st->work >= 0) w->bell = &p->bells[st->work];
    w->given = w->item;
    if (st->ops->worker != NULL) st->ops->worker(w);
    dlpi_order_init(&w->order, &p->sampler->sampler, p->fetch->dataset.n_items,
                    dlpi_area_at(p, DLPI_REC_TABLE, 0));
}

static int dlpi_thread_start(dlp_pipe *p, dlpi_worker *w, void *(*run)(void *)) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) {
        errno = rc;
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pthread_attr_init");
    }
    if (w->st->w.stack_bytes &&
        pthread_attr_setstacksize(&attr, (size_t)w->st->w.stack_bytes) != 0) {
        pthread_attr_destroy(&attr);
        return dlpi_refuse(p, DLP_ERR_ARG, w->st->name, "stack_bytes",
                           "%" PRIu64 " is no stack size of this system", w->st->w.stack_bytes);
    }
    w->started = 1;
    rc = pthread_create(&w->thread, &attr, run, w);
    pthread_attr_destroy(&attr);
    if (rc == 0) {
        p->n_threads++;
        return DLP_OK;
    }
    w->started = 0;
    errno = rc;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pthread_create");
}

/* How long to spin: about 10 us where everybody has a core; else a little, then give the core
   away. */
static void dlpi_wait_rule(dlp_pipe *p) {
    int begin = 1;
    p->peers = 1;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0) continue;
        p->peers += st->n_workers;
        if (i < p->n_work && !st->ops->in_order) begin += st->tuned ? st->begin : st->n_workers;
    }
    if (p->sampler->sampler.threaded) p->peers++;
    p->spin_rounds = p->peers <= p->cpus ? 300 : 30;
    p->yield_rounds = p->peers <= p->cpus ? 0 : 50;
    if (begin - 1 > p->cpus)
        dlpi_warn(p,
                  "%d worker threads on %d cores: more than can run at once (fine when items wait, "
                  "not when they compute)",
                  begin - 1, p->cpus);
    if ((uint64_t)p->fetch->w.num_workers > (uint64_t)p->prefetch * p->batch_rows)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor x batch_size = %" PRIu64
                  " items in flight: the rest will idle",
                  p->fetch->w.num_workers, (uint64_t)p->prefetch * p->batch_rows);
    else if ((uint64_t)p->fetch->w.num_workers * (uint64_t)p->fetch->in_flight >
             (uint64_t)p->prefetch * p->batch_rows)
        dlpi_warn(
            p,
            "num_workers %d x in_flight %d is more than prefetch_factor x batch_size = %" PRIu64
            " items",
            p->fetch->w.num_workers, p->fetch->in_flight, (uint64_t)p->prefetch * p->batch_rows);
    else if (p->fetch->w.dispatch == DLP_DISPATCH_BATCHES &&
             (uint64_t)p->fetch->w.num_workers > p->prefetch)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor %" PRIu32
                  " batches in flight: workers that have no batch idle",
                  p->fetch->w.num_workers, p->prefetch);
}

static int dlpi_start_threads(dlp_pipe *p) {
    int rc = DLP_OK;
    for (int i = 0; i < p->n_staffed && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers && rc == DLP_OK; k++) {
            dlpi_worker *w = &p->workers[st->first_worker + k];
            if (st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES) {
                w->started = w->joined = w->process = 1;
            } else if (st->w.num_workers > 0) {
                rc = dlpi_thread_start(p, w, dlpi_thread_worker);
            } else if (dlpi_worker_begin(w) != DLP_OK) {
                rc = dlpi_pipe_fail(p, &p->ctl->error);
            } else {
                w->joined = -1; /* an inline worker that has begun */
            }
        }
    }
    if (rc == DLP_OK && p->sampler->sampler.threaded)
        rc = dlpi_thread_start(p, p->trainer, dlpi_thread_feeder);
    return rc;
}

static void dlpi_live_point(dlp_pipe *p) {
    p->ctl = dlpi_area_at(p, DLPI_REC_CTL, 0);
    p->bells = dlpi_area_at(p, DLPI_AREA_BELLS, 0);
    p->disp = dlpi_area_at(p, DLPI_REC_ORDER, 0);
    p->share = p->share_bytes > 0 ? dlpi_area_at(p, DLPI_REC_SHARE, 0) : NULL;
    p->taken = dlpi_area_at(p, DLPI_REC_TAKEN, 0);
    memset(p->ones, 1, p->batch_rows);
}

static void dlpi_live_workers(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers; k++) dlpi_worker_init(p, st, k, st->first_worker + k);
    }
    p->trainer = &p->workers[p->n_workers];
    dlpi_worker_init(p, p->sampler, 0, p->n_workers);
}

static int dlpi_live_init(dlp_pipe *p) {
    int rc;
    dlpi_live_point(p);
    DLPI_STORE_SEQ(&p->can_ring, 1u);                                          /* S2 -> S2 */
    if (DLPI_LOAD_SEQ(&p->stop_asked) != 0) DLPI_STORE_SEQ(&p->ctl->stop, 1u); /* S2 <- S2, S1 */
    p->ctl->shared = p->n_procs > 0 || p->share_bytes > 0;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        p->bells[i].shared = p->ctl->shared;
        p->bells[i].active = (uint32_t)(st->tuned ? st->begin : st->n_workers);
    }
    p->ctl->started_ns = dlpi_now_ns();
    p->last_sequence = UINT64_MAX;
    p->call_clock_every = 1;
    dlpi_order_build(&p->sampler->sampler, p->fetch->dataset.n_items,
                     dlpi_area_at(p, DLPI_REC_TABLE, 0));
    p->params_hash = dlpi_order_params_hash(&p->sampler->sampler, p->fetch->dataset.n_items);
    for (int i = 0; i < p->n_staffed; i++) {
        uint64_t deadline = (uint64_t)p->work[i]->w.deadline_ms * 1000000u;
        if (deadline && (p->deadline_ns == 0 || deadline < p->deadline_ns))
            p->deadline_ns = deadline;
    }
    dlpi_live_workers(p);
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_bslot *slot = dlpi_slot_at(p, s);
        slot->pub = dlpi_gen_word(DLPI_GEN_MASK, 0); /* of a batch long gone */
        slot->dbuf = DLPI_NO_SLOT;
        for (int i = 0; i < p->n_work; i++) {
            uint64_t *words = dlpi_sst_at(p, s, p->work[i])->words;
            uint64_t n = i < p->n_item_work ? p->units_max : 1u;
            for (uint32_t k = 0; k < p->words_max; k++) words[k] = ~UINT64_C(0) << 32;
            for (uint64_t k = 0; k < n; k++)
                words[p->words_max + k] = dlpi_gen_word(DLPI_GEN_MASK, 1);
        }
        if (p->lender == NULL)
            dlpi_batch_view_init(p, s, &p->out[s], &p->out_fields[(size_t)s * p->batches.n]);
    }
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->live != NULL) p->stages[i].ops->live(p, &p->stages[i]);
    dlpi_feed_epoch(&p->feed, 0);
    if (p->d.resume && (rc = dlpi_state_take(p)) != DLP_OK) return rc;
    dlpi_guards_paint(p);
    dlpi_region_init(p);
    return DLP_OK;
}

/* All that processes share with this one, and the processes. */
static int dlpi_prepare(dlp_pipe *p) {
    dlp_plan plan;
    int rc;
    if ((rc = dlp_pipe_plan(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_check_limits(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_private_alloc(p)) != DLP_OK) return rc;
    if ((rc = dlpi_alive_map(p)) != DLP_OK) return rc;
    if ((rc = dlpi_region_map(p)) != DLP_OK) return rc;
    dlpi_wait_rule(p);
    p->prepared = 1;
    if ((rc = dlpi_live_init(p)) != DLP_OK) return rc;
    return p->shm ? dlpi_shm->begin(p) : DLP_OK;
}

static int dlpi_start(dlp_pipe *p) {
    int rc = p->prepared ? p->err.code : dlpi_prepare(p);
    if (rc != DLP_OK) return rc;
    p->started = 1;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->ops->begin != NULL && (rc = st->ops->begin(p, st)) != DLP_OK) return rc;
    }
    if ((rc = dlpi_start_threads(p)) != DLP_OK) return rc;
    dlpi_feed_inline(p, 1);
    return DLP_OK;
}

/* ---- close ---- */

static uint32_t dlpi_running(const dlp_pipe *p) {
    return (uint32_t)p->n_threads - DLPI_LOAD_SEQ(&p->live_word); /* L1 <- L1 */
}

static void dlpi_stop_now(dlp_pipe *p) {
    DLPI_STORE_SEQ(&p->ctl->stop, 1u); /* S1 -> S1 */
    dlpi_ring_all(p);
    if (p->shm) dlpi_shm->nudge(p);
}

/* Wait for the threads, at most until `until`. */
static bool dlpi_await_threads(dlp_pipe *p, uint64_t until) {
    while (dlpi_running(p) > 0) {
        uint32_t word = DLPI_LOAD_SEQ(&p->live_word); /* L1 <- L1 */
        uint64_t now = dlpi_now_ns(), ns = DLPI_SLEEP_NS;
        if (dlpi_running(p) == 0) break;
        if (now >= until) return false;
        if (until - now < ns) ns = until - now;
        dlpi_futex_wait(&p->live_word, word, UINT32_MAX, ns, 0);
        dlpi_ring_all(p);
    }
    for (int i = 0; i <= p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        if (w->started && !w->joined) pthread_join(w->thread, NULL);
        if (w->started) w->joined = 1;
    }
    return true;
}

/* Which callback still runs: of a worker that works, else of one that has not ended (its init or
   exit, the sampler's, the device's). */
static int dlpi_busy(dlp_pipe *p) {
    dlp_error e;
    dlpi_worker *who = NULL;
    dlpi_error_set(&e, DLP_ERR_BUSY, "", "a callback has not returned within close_timeout_ms");
    for (int i = 0; i <= p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        int state = DLPI_LOAD_RLX(&w->wb->state); /* for people */
        if (!w->started || w->process || state == DLP_WORKER_EXITED) continue;
        if (who == NULL || state == DLP_WORKER_BUSY) who = w;
        if (state == DLP_WORKER_BUSY) break;
    }
    if (who) dlpi_describe_current(who, DLPI_LOAD_RLX(&who->wb->current), &e); /* for people */
    p->err = e;
    return e.code;
}

/* Of all stages; one more than there are may have been refused while it was added. */
static void dlpi_selves_free(dlp_pipe *p) {
    for (int i = 0; i < DLP_MAX_STAGES; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->self == NULL) continue;
        if (st->ops->release != NULL) st->ops->release(st);
        free(st->self);
    }
}

static void dlpi_free(dlp_pipe *p) {
    for (int i = 0; p->workers && i < p->n_stages; i++)
        if (p->stages[i].ops->end != NULL) p->stages[i].ops->end(p, &p->stages[i]);
    for (int i = 0; i < p->n_stages; i++) free(p->stages[i].affinity);
    if (p->shm) dlpi_shm->end(p);
    dlpi_unpoison_all(p);
    if (p->region) munmap(p->region, (size_t)p->region_bytes);
    if (p->alive) munmap(p->alive, 4096);
    if (p->memfd >= 0) close(p->memfd);
    if (p->budget_bytes) DLPI_ADD_SEQ(&p->d.budget->used_bytes, 0 - p->budget_bytes); /* M1 */
    free(p->lent);
    dlpi_private_free(p);
    dlpi_selves_free(p);
    free(p);
}

/* Threads are gone or never were: inline workers end. */
static void dlpi_close_rest(dlp_pipe *p) {
    for (int i = 0; p->ctl && i < p->n_workers; i++) {
        if (p->workers[i].joined != -1) continue;
        p->workers[i].joined = 1;
        dlpi_worker_end(&p->workers[i], DLP_OK);
    }
}

static int dlpi_shut(dlp_pipe *p) {
    uint64_t ns =
        p->d.close_timeout_ms ? (uint64_t)p->d.close_timeout_ms * 1000000u : UINT64_C(5000000000);
    uint64_t until = p->d.close_timeout_ms == DLP_FOREVER ? UINT64_MAX : dlpi_now_ns() + ns;
    if (p->d.close_timeout_ms == DLP_NOWAIT) until = 0;
    if (p->closing == 0) p->closing = 1;
    if (p->ctl) {
        dlpi_stop_now(p);
        if (p->shm) dlpi_shm->await(p);
        if (!dlpi_await_threads(p, until)) return dlpi_busy(p);
        dlpi_close_rest(p);
    }
    p->closing = 2;
    return DLP_OK;
}

static int dlpi_close(dlp_pipe *p) {
    int rc = dlpi_shut(p);
    if (rc == DLP_OK && p->n_held == 0) dlpi_free(p);
    return rc;
}

/* The caller is done with the batch in slot s, or with view s. */
static void dlpi_give_back(dlp_pipe *p, uint32_t s) {
    p->held[s] = 0;
    p->n_held--;
    DLPI_STORE_RLX(&p->ctl->held, p->n_held); /* statistics */
    if (p->closing) {
        if (p->n_held == 0 && p->closing == 2) dlpi_free(p); /* else close is called again */
        return;
    }
    dlpi_poison(p, s);
    if (p->lender)
        p->lender->ops->lender->drop(p, s);
    else
        dlpi_slot_free(p, s);
    dlpi_feed_inline(p, dlpi_burst(p));
}

/* ---------------------------------------------------------------------------------------------
   >>impl-stats      COUNTERS AND TRACE, READ */

static void dlpi_worker_stats(const dlpi_seen *s, uint32_t i, dlp_worker_stats *out) {
    const dlpi_wblock *b = dlpi_seen_block(s, i);
    const dlpi_seen_stage *st = dlpi_seen_owner(s, i);
    /* statistics, here and below */
    uint64_t since = DLPI_LOAD_RLX(&b->since_ns), now = s->now_ns;
    memset(out, 0, sizeof *out);
    out->stage = (int32_t)(st - s->stages);
    out->worker = (int32_t)i - st->first_worker;
    out->state = DLPI_LOAD_RLX(&b->state);
    out->tid = DLPI_LOAD_RLX(&b->tid);
    out->items = DLPI_LOAD_RLX(&b->items);
    out->bytes = DLPI_LOAD_RLX(&b->bytes);
    out->busy_ns = DLPI_LOAD_RLX(&b->busy_ns);
    out->starved_ns = DLPI_LOAD_RLX(&b->starved_ns);
    out->blocked_ns = DLPI_LOAD_RLX(&b->blocked_ns);
    out->cpu_ns = DLPI_LOAD_RLX(&b->cpu_ns);
    out->core_wait_ns = DLPI_LOAD_RLX(&b->core_wait_ns);
    out->current_index = DLPI_LOAD_RLX(&b->current);
    if (out->current_index != UINT64_MAX && now > since) out->current_age_ns = now - since;
    out->process = st->process;
    out->pid = DLPI_LOAD_RLX(&b->pid);
    out->restarts = DLPI_LOAD_RLX(&b->restarts);
    out->died_by = DLPI_LOAD_RLX(&b->died_by);
}

static uint64_t dlpi_hist_sum(const dlpi_seen *s, const dlpi_seen_stage *st, uint64_t *hist) {
    uint64_t n = 0;
    memset(hist, 0, DLPI_HIST * sizeof *hist);
    for (int k = 0; k < st->n_workers; k++) {
        const dlpi_wblock *b = dlpi_seen_block(s, (uint32_t)(st->first_worker + k));
        for (uint32_t i = 0; i < DLPI_HIST; i++) {
            uint32_t c = DLPI_LOAD_RLX(&b->hist[i]); /* statistics */
            hist[i] += c;
            n += c;
        }
    }
    return n;
}

static uint64_t dlpi_percentile(const uint64_t *hist, uint64_t n, uint32_t percent) {
    uint64_t want = (n * percent + 99) / 100, seen = 0;
    for (uint32_t i = 0; i < DLPI_HIST && n > 0; i++)
        if ((seen += hist[i]) >= want) return dlpi_hist_value(i);
    return 0;
}

static void dlpi_stage_add_worker(const dlpi_wblock *b, dlp_stage_stats *out) {
    uint64_t most = DLPI_LOAD_RLX(&b->max_ns); /* statistics, here and below */
    out->items += DLPI_LOAD_RLX(&b->items);
    out->bytes += DLPI_LOAD_RLX(&b->bytes);
    out->retried += DLPI_LOAD_RLX(&b->retried);
    out->replaced += DLPI_LOAD_RLX(&b->replaced);
    out->left_out += DLPI_LOAD_RLX(&b->left_out);
    out->busy_ns += DLPI_LOAD_RLX(&b->busy_ns);
    out->starved_ns += DLPI_LOAD_RLX(&b->starved_ns);
    out->blocked_ns += DLPI_LOAD_RLX(&b->blocked_ns);
    out->cpu_ns += DLPI_LOAD_RLX(&b->cpu_ns);
    out->core_wait_ns += DLPI_LOAD_RLX(&b->core_wait_ns);
    out->flight_ns += DLPI_LOAD_RLX(&b->in_flight_ns);
    if (most > out->max_ns) out->max_ns = most;
    out->restarts += (uint64_t)DLPI_LOAD_RLX(&b->restarts);
    if (DLPI_LOAD_RLX(&b->died_by) != 0) out->died_by = DLPI_LOAD_RLX(&b->died_by);
}

/* out: with the figures of its kind. */
static void dlpi_stage_stats(const dlpi_seen *s, const dlpi_seen_stage *st, dlp_stage_stats *out) {
    uint64_t hist[DLPI_HIST], n;
    dlpi_copy_text(out->name, sizeof out->name, st->name);
    out->kind = st->kind;
    if (st->work < 0) return;
    out->workers = st->workers;
    if (st->workers_min > 0) {
        out->workers = st->active;
        out->workers_min = st->workers_min;
        out->workers_max = st->n_workers;
    }
    /* items: of the first stages, and of what stands beside them all */
    out->unit_is_batch = st->work >= (int)s->n_item_work && st->work < (int)s->n_work;
    out->in_flight = st->in_flight;
    for (int k = 0; k < st->n_workers; k++)
        dlpi_stage_add_worker(dlpi_seen_block(s, (uint32_t)(st->first_worker + k)), out);
    n = dlpi_hist_sum(s, st, hist);
    out->p50_ns = dlpi_percentile(hist, n, 50);
    out->p95_ns = dlpi_percentile(hist, n, 95);
    out->p99_ns = dlpi_percentile(hist, n, 99);
}

/* Batches complete and not delivered; and what waits before each stage. */
static void dlpi_ready_stats(const dlpi_seen *s, dlp_stats *out) {
    uint64_t tail = DLPI_LOAD_ACQ(&s->ctl->tail); /* T1 <- T1 */
    /* V1 <- V1: any thread may look */
    for (uint64_t b = DLPI_LOAD_ACQ(&s->ctl->base); b < tail; b++) {
        uint32_t slot;
        if (DLPI_LOAD_RLX(&s->taken[b & (s->ring - 1)])) continue; /* statistics */
        slot = dlpi_seen_slot(s, b);
        out->in_flight++;
        if (dlpi_seen_left(s, b, slot, s->final)) out->ready++;
        for (uint32_t i = 1; i < s->n_work; i++) {
            bool in = dlpi_seen_left(s, b, slot, s->work[i - 1]);
            if (in && !dlpi_seen_left(s, b, slot, s->work[i])) out->stages[s->work[i]].ready++;
        }
    }
}

static void dlpi_tune_stats(const dlpi_seen *s, dlp_stats *out) {
    uint64_t n = DLPI_LOAD_ACQ(&s->ctl->tunes); /* A2 <- A2 */
    uint64_t kept = n < DLP_TUNE_NOTES ? n : DLP_TUNE_NOTES;
    out->tunes = n;
    for (uint64_t i = 0; i < kept; i++) {
        const dlp_tune_note *k = &s->ctl->tune[(n - kept + i) % DLP_TUNE_NOTES];
        dlp_tune_note *to = &out->tune[i];
        to->at_ns = DLPI_LOAD_RLX(&k->at_ns); /* statistics, here and below */
        to->stage = DLPI_LOAD_RLX(&k->stage);
        to->from = DLPI_LOAD_RLX(&k->from);
        to->to = DLPI_LOAD_RLX(&k->to);
        to->reason = DLPI_LOAD_RLX(&k->reason);
    }
}

/* The worker whose item, batch, chunk or part is in work the longest. */
static void dlpi_longest_stats(const dlpi_seen *s, dlp_worker_stats *out) {
    uint32_t longest = UINT32_MAX;
    uint64_t least = s->now_ns;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const dlpi_wblock *b = dlpi_seen_block(s, i);
        uint64_t since = DLPI_LOAD_RLX(&b->since_ns); /* statistics, here and below */
        if (DLPI_LOAD_RLX(&b->state) != DLP_WORKER_BUSY || since >= least) continue;
        if (DLPI_LOAD_RLX(&b->current) == UINT64_MAX) continue;
        longest = i;
        least = since;
    }
    if (longest != UINT32_MAX) dlpi_worker_stats(s, longest, out);
}

static void dlpi_stats(const dlpi_seen *s, dlp_stats *out) {
    const dlpi_ctl *ctl = s->ctl;
    const dlpi_wblock *caller = dlpi_seen_block(s, s->n_workers);
    uint64_t hist[DLPI_HIST], n = 0;
    *out = s->figures;
    out->elapsed_ns = s->now_ns - ctl->started_ns;
    out->batches = DLPI_LOAD_RLX(s->delivered); /* statistics, here and below */
    out->items = DLPI_LOAD_RLX(&ctl->items);
    out->bytes = DLPI_LOAD_RLX(&ctl->bytes);
    out->wait_ns = DLPI_LOAD_RLX(&ctl->wait_ns);
    out->part_wait_ns = DLPI_LOAD_RLX(&ctl->source_wait_ns);
    if (DLPI_LOAD_ACQ(&ctl->first_ready) != 0) out->first_skip = ctl->first_skip; /* K3 <- K3 */
    out->step_ns = DLPI_LOAD_RLX(&ctl->step_ns);
    out->first_batch_ns = DLPI_LOAD_RLX(&ctl->first_ns);
    out->epoch = DLPI_LOAD_RLX(&ctl->epoch);
    for (uint32_t i = 0; i < DLPI_HIST; i++) n += hist[i] = DLPI_LOAD_RLX(&caller->hist[i]);
    out->step_p50_ns = dlpi_percentile(hist, n, 50);
    out->step_p95_ns = dlpi_percentile(hist, n, 95);
    out->batch_size = s->batch_rows;
    out->prefetch_factor = s->prefetch;
    out->max_held = s->max_held;
    out->held = (uint32_t)DLPI_LOAD_RLX(&ctl->held);
    out->slots = s->n_slots;
    out->cpus = s->cpus;
    out->n_stages = s->n_stages;
    out->n_workers = s->n_workers;
    out->plan_bytes = s->plan_bytes;
    for (uint32_t i = 0; i < s->n_stages; i++) dlpi_stage_stats(s, &s->stages[i], &out->stages[i]);
    dlpi_ready_stats(s, out);
    dlpi_tune_stats(s, out);
    dlpi_longest_stats(s, &out->longest);
}

static int dlpi_skips(const dlpi_seen *s, dlp_skip *out, int max, uint64_t *total) {
    uint64_t n = DLPI_LOAD_ACQ(&s->ctl->skips); /* K1 <- K1 */
    uint64_t from = n > DLPI_SKIP_RING ? n - DLPI_SKIP_RING : 0;
    int copied = 0;
    if (n - from > (uint64_t)max) from = n - (uint64_t)max;
    for (; from != n; from++) {
        const dlpi_skip *k = &s->ctl->skip_ring[from % DLPI_SKIP_RING];
        uint64_t words[DLPI_SKIP_WORDS];
        if (DLPI_LOAD_ACQ(&k->code) == 0) continue;   /* K1 <- K1: being written */
        out[copied].epoch = DLPI_LOAD_RLX(&k->epoch); /* NOLINT: max is 0 where out is NULL */
        out[copied].position = DLPI_LOAD_RLX(&k->position);
        out[copied].index = DLPI_LOAD_RLX(&k->index);
        out[copied].new_index = DLPI_LOAD_RLX(&k->new_index);
        out[copied].errnum = DLPI_LOAD_RLX(&k->errnum);
        out[copied].stage = DLPI_LOAD_RLX(&k->stage);
        out[copied].worker = DLPI_LOAD_RLX(&k->worker);
        for (size_t i = 0; i < DLPI_SKIP_WORDS; i++)
            words[i] = DLPI_LOAD_RLX(&s->ctl->skip_words[from % DLPI_SKIP_RING][i]); /* K1 <- K1 */
        memcpy(out[copied].message, words, sizeof words);
        out[copied].message[sizeof words - 1] = 0;
        out[copied++].code = DLPI_LOAD_RLX(&k->code);
    }
    if (total) *total = n;
    return copied;
}

/* Of lane 0 the caller, of lane i worker i - 1. */
static int dlpi_trace_lane(const dlpi_seen *s, uint32_t lane, dlp_trace_event *out, int max,
                           char *name) {
    const uint32_t worker = lane == 0 ? s->n_workers : lane - 1;
    const dlpi_wblock *wb = dlpi_seen_block(s, worker);
    const uint8_t *ring = s->trace + worker * s->trace_stride;
    const dlpi_seen_stage *st = dlpi_seen_owner(s, worker);
    uint64_t head = DLPI_LOAD_ACQ(&wb->trace_head), from; /* G1 <- G1 */
    /* the oldest is written over next */
    uint64_t n = head < s->trace_events ? head : s->trace_events - 1;
    int copied = 0;
    if (name && st == NULL)
        dlpi_copy_text(name, 32, "trainer");
    else if (name)
        snprintf(name, 32, "%.24s-%d", st->name, (int)worker - st->first_worker);
    if (n > (uint64_t)max) n = (uint64_t)max;
    for (from = head - n; from != head; from++) {
        const uint64_t *at =
            (const uint64_t *)(const void *)(ring + from % s->trace_events * sizeof *out);
        uint64_t words[sizeof *out / 8], now;
        /* G1 <- G1 */
        for (size_t i = 0; i < sizeof *out / 8; i++) words[i] = DLPI_LOAD_ACQ(&at[i]);
        /* G1: written over, or about to be? then not this one */
        now = DLPI_LOAD_RLX(&wb->trace_head);
        if (now - from >= s->trace_events) continue;
        memcpy(&out[copied++], words, sizeof *out);
    }
    return copied;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-predict    WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   Each stage has a clock of its own, which runs slower than time while the cores are too few for
   all that want them; workers end their work at a reading of their stage's clock. The next event is
   the end that comes first. Rows of a batch are counted, not told apart: an item stage may begin as
   many as the stage before has done. */

#define DLPI_SIM_WORKERS 1024
#define DLPI_SIM_BATCHES 128 /* in flight */
#define DLPI_SIM_EVENTS 30000
#define DLPI_SIM_RUN_NS 250.0 /* to claim and complete a run, see dlpi_run_shift */

/* Times of one kind of work: `low` with probability p_low, `top` with p_top, else `high`. */
typedef struct dlpi_sim_times {
    double mean, low, high, top, p_low, p_top;
    uint64_t drawn; /* so many were drawn */
} dlpi_sim_times;

typedef struct dlpi_sim_stage {
    int32_t id;              /* in dlp_stats */
    uint32_t workers, first; /* 0: inline; where the work of the first of them is */
    uint32_t working;        /* of them: a heap */
    uint64_t low;            /* all batches before it are claimed */
    bool batches;
    dlpi_sim_times times;
    double cpu; /* share of busy time that is CPU time */
    double clock, rate;
    double busy_ns; /* of all workers */
    uint32_t n;     /* in work, the trainer too if it is at it */
    uint32_t rated; /* of them when the rate was found */
} dlpi_sim_stage;

typedef struct dlpi_sim_work { /* of a worker, and of the trainer */
    double end;                /* by its stage's clock */
    uint32_t batch, stage;
} dlpi_sim_work;

/* Workers of a stage are all alike: those that work are a heap of their work, the first to end on
   top. */

#define DLPI_SIM_REST UINT32_MAX

typedef struct dlpi_sim_batch {
    uint32_t claimed[DLP_MAX_STAGES], done[DLP_MAX_STAGES]; /* runs, of batch stages 1 */
    bool taken;
} dlpi_sim_batch;

typedef struct dlpi_sim {
    dlpi_sim_stage stage[DLP_MAX_STAGES + 1]; /* the last of them: the trainer's steps */
    uint32_t n_stages, n_workers;
    uint32_t runs, rows_a_run, claims_a_run; /* runs of a batch; a run may stand for several */
    uint32_t prefetch, rows;
    double cpus;
    bool unordered;
    uint64_t base, fed, taken, ended; /* batches; all before base are taken */
    double now, wait_ns, cpu_ns;
    double use; /* cores in use */
    dlpi_sim_work trainer;
    dlpi_sim_work worker[DLPI_SIM_WORKERS];
    dlpi_sim_batch batch[DLPI_SIM_BATCHES];
} dlpi_sim;

static double dlpi_sim_clamp(double x, double least, double most) {
    return x > least ? x < most ? x : most : least;
}

/* p50, p95 and p99, so often that the mean comes out: the slowest hundredth takes p99, and where
   p95 is no more than p50, up to a twentieth. Where no split gives the mean, all are scaled. */
static void dlpi_sim_times_of(dlpi_sim_times *t, double mean, double p50, double p95, double p99) {
    double is;
    memset(t, 0, sizeof *t);
    t->mean = t->low = t->high = t->top = mean;
    t->p_low = 0.5;
    t->p_top = 0.01;
    if (!(p50 > 0) || p99 < 1.1 * p50) return;
    t->low = t->high = p50;
    t->top = p99;
    if (p95 > 1.1 * p50) {
        t->high = p95;
        t->p_low = (0.99 * p95 + 0.01 * p99 - mean) / (p95 - p50);
        t->p_low = dlpi_sim_clamp(t->p_low, 0.5, 0.99);
    } else {
        t->p_top = dlpi_sim_clamp((mean - p50) / (p99 - p50), 0.01, 0.05);
    }
    is = t->p_low * t->low + (1 - t->p_low - t->p_top) * t->high + t->p_top * t->top;
    t->low *= mean / is;
    t->high *= mean / is;
    t->top *= mean / is;
}

/* One in each 64th of the distribution, in an order that changes with each 64 draws: so that a few
   hundred have the right mean. */
static double dlpi_sim_draw(dlpi_sim_times *t, uint32_t salt) {
    uint64_t n = t->drawn++, turn = dlpi_mix((n >> 6) * DLPI_GOLDEN + salt);
    uint64_t part = (((n ^ turn) & 63) * (turn >> 8 | 1) + (turn >> 32)) & 63;
    double within = (double)(dlpi_mix(n + turn) >> 40) / 16777216.0;
    double u = ((double)part + within) / 64;
    return u < t->p_low ? t->low : u < 1 - t->p_top ? t->high : t->top;
}

/* What a run of rows takes, or a batch in a batch stage. */
static double dlpi_sim_takes(const dlpi_sim *m, dlpi_sim_stage *g) {
    uint32_t n = g->batches ? 1 : m->rows_a_run, drawn = n < 64 ? n : 64;
    double sum = 0;
    for (uint32_t i = 0; i < drawn; i++) sum += dlpi_sim_draw(&g->times, (uint32_t)g->id);
    return sum * n / drawn + (g->batches ? 0 : DLPI_SIM_RUN_NS * m->claims_a_run);
}

/* --- Cores --- */

/* Cores in use where work on a core takes `slow` times as long. */
static double dlpi_sim_use(const dlpi_sim *m, double slow) {
    double use = 0;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        const dlpi_sim_stage *g = &m->stage[k];
        use += g->n * g->cpu / (1 - g->cpu + g->cpu * slow);
    }
    return use;
}

/* How fast each stage's clock runs with the work that there is now. */
static void dlpi_sim_rates(dlpi_sim *m) {
    double use, least = 1, most = 1, slow = 1;
    bool same = true;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        same = same && m->stage[k].rated == m->stage[k].n;
        m->stage[k].rated = m->stage[k].n;
    }
    if (same) return;
    use = dlpi_sim_use(m, 1);
    m->use = use < m->cpus ? use : m->cpus;
    if (use > m->cpus) {
        while (dlpi_sim_use(m, most) > m->cpus) most *= 2;
        for (int i = 0; i < 12; i++) {
            slow = (least + most) / 2;
            if (dlpi_sim_use(m, slow) > m->cpus)
                least = slow;
            else
                most = slow;
        }
    }
    for (uint32_t k = 0; k <= m->n_stages; k++)
        m->stage[k].rate = 1 / (1 - m->stage[k].cpu + m->stage[k].cpu * slow);
}

/* --- Work --- */

static dlpi_sim_batch *dlpi_sim_at(dlpi_sim *m, uint64_t b) {
    return &m->batch[b % DLPI_SIM_BATCHES];
}

static uint32_t dlpi_sim_units(const dlpi_sim *m, uint32_t k) {
    return m->stage[k].batches ? 1 : m->runs;
}

/* Runs of a batch that stage k may have claimed by now. */
static uint32_t dlpi_sim_open(const dlpi_sim *m, const dlpi_sim_batch *b, uint32_t k) {
    if (k == 0) return dlpi_sim_units(m, k);
    if (!m->stage[k].batches) return b->done[k - 1];
    return b->done[k - 1] == dlpi_sim_units(m, k - 1);
}

static bool dlpi_sim_complete(const dlpi_sim *m, const dlpi_sim_batch *b) {
    return b->done[m->n_stages - 1] == dlpi_sim_units(m, m->n_stages - 1);
}

/* Begin the oldest work that there is for stage k. */
static bool dlpi_sim_begin(dlpi_sim *m, uint32_t k, dlpi_sim_work *w) {
    dlpi_sim_stage *g = &m->stage[k];
    if (g->low < m->base) g->low = m->base;
    while (g->low < m->fed && dlpi_sim_at(m, g->low)->claimed[k] == dlpi_sim_units(m, k)) g->low++;
    for (uint64_t i = g->low; i < m->fed; i++) {
        dlpi_sim_batch *b = dlpi_sim_at(m, i);
        if (b->claimed[k] >= dlpi_sim_open(m, b, k)) continue;
        b->claimed[k]++;
        g->n++;
        w->end = g->clock + dlpi_sim_takes(m, g);
        w->batch = (uint32_t)(i % DLPI_SIM_BATCHES);
        w->stage = k;
        return true;
    }
    return false;
}

static void dlpi_sim_feed(dlpi_sim *m) {
    while (m->fed - m->taken < m->prefetch && m->fed - m->base < DLPI_SIM_BATCHES)
        memset(dlpi_sim_at(m, m->fed++), 0, sizeof *m->batch);
}

/* The trainer wants a batch: takes one, or works for inline stages, the last first. */
static void dlpi_sim_next(dlpi_sim *m) {
    dlpi_sim_stage *steps = &m->stage[m->n_stages];
    for (uint64_t i = m->base; i < m->fed; i++) {
        dlpi_sim_batch *b = dlpi_sim_at(m, i);
        if (!b->taken && dlpi_sim_complete(m, b)) {
            b->taken = true;
            m->taken++;
            while (m->base < m->fed && dlpi_sim_at(m, m->base)->taken) m->base++;
            dlpi_sim_feed(m);
            m->trainer.stage = m->n_stages;
            m->trainer.end = steps->clock;
            if (steps->times.mean > 0) m->trainer.end += dlpi_sim_draw(&steps->times, 77);
            steps->n++;
            return;
        }
        if (!m->unordered) break;
    }
    for (uint32_t k = m->n_stages; k-- > 0;)
        if (m->stage[k].workers == 0 && dlpi_sim_begin(m, k, &m->trainer)) return;
}

static void dlpi_sim_push(dlpi_sim *m, dlpi_sim_stage *g, const dlpi_sim_work *w) {
    dlpi_sim_work *heap = &m->worker[g->first];
    uint32_t i = g->working++;
    for (; i > 0 && heap[(i - 1) / 2].end > w->end; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = *w;
}

/* Take off the top. */
static void dlpi_sim_pop(dlpi_sim *m, dlpi_sim_stage *g) {
    dlpi_sim_work *heap = &m->worker[g->first], last = heap[--g->working];
    uint32_t i = 0, child;
    for (; (child = 2 * i + 1) < g->working; i = child) {
        if (child + 1 < g->working && heap[child + 1].end < heap[child].end) child++;
        if (heap[child].end >= last.end) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
}

/* Give work to all who rest. */
static void dlpi_sim_dispatch(dlpi_sim *m) {
    dlpi_sim_work w;
    if (m->trainer.stage == DLPI_SIM_REST) dlpi_sim_next(m);
    for (uint32_t k = 0; k < m->n_stages; k++) {
        dlpi_sim_stage *g = &m->stage[k];
        while (g->working < g->workers && dlpi_sim_begin(m, k, &w)) dlpi_sim_push(m, g, &w);
    }
}

/* Whose work ends first, and after what time. NULL: nobody works. */
static const dlpi_sim_work *dlpi_sim_first(const dlpi_sim *m, double *after) {
    const dlpi_sim_work *first = NULL;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        const dlpi_sim_work *w = k == m->n_stages ? &m->trainer : &m->worker[m->stage[k].first];
        double left;
        if (k == m->n_stages ? w->stage == DLPI_SIM_REST : m->stage[k].working == 0) continue;
        left = (w->end - m->stage[w->stage].clock) / m->stage[w->stage].rate;
        if (first != NULL && left >= *after) continue;
        first = w;
        *after = left > 0 ? left : 0;
    }
    return first;
}

/* One event. Returns false where nothing can happen any more. */
static bool dlpi_sim_event(dlpi_sim *m) {
    double after = 0;
    const dlpi_sim_work *w;
    dlpi_sim_stage *g;
    dlpi_sim_rates(m);
    if ((w = dlpi_sim_first(m, &after)) == NULL) return false;
    m->now += after;
    m->cpu_ns += m->use * after;
    if (m->trainer.stage != m->n_stages) m->wait_ns += after;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        g = &m->stage[k];
        g->clock += g->rate * after;
        g->busy_ns += g->n * after;
    }
    g = &m->stage[w->stage];
    g->n--;
    if (w->stage == m->n_stages)
        m->ended++;
    else
        m->batch[w->batch].done[w->stage]++;
    if (w == &m->trainer)
        m->trainer.stage = DLPI_SIM_REST;
    else
        dlpi_sim_pop(m, g);
    dlpi_sim_dispatch(m);
    return true;
}

/* --- Out of a measured pipe --- */

static uint32_t dlpi_sim_workers(const dlp_predict_desc *d, const dlp_stage_stats *g, uint32_t i) {
    int32_t n = d->workers[i];
    if (n == 0 && g->kind == DLP_STAGE_FETCH) n = d->num_workers;
    if (n == 0 && g->kind == DLP_STAGE_BATCH) n = d->batch_workers;
    if (n == 0) n = g->workers;
    return n > 0 ? (uint32_t)n : 0;
}

/* Of the time that a stage's work took, how long it waited for a core. */
static double dlpi_stage_core_wait(const dlp_stage_stats *g) {
    uint64_t took = g->in_flight > 1 ? g->flight_ns : g->busy_ns;
    return (double)dlpi_core_wait(took, g->cpu_ns, g->core_wait_ns);
}

/* Cores that were busy while it was measured; *wanted: with those that were waited for. */
static double dlpi_sim_measured_cores(const dlp_stats *s, bool step_idle, double *wanted) {
    double ns = (double)s->wait_ns + (double)s->step_ns, cpu = step_idle ? 0 : (double)s->step_ns;
    double waits = 0;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        cpu += (double)s->stages[i].cpu_ns;
        waits += dlpi_stage_core_wait(&s->stages[i]);
    }
    *wanted = ns > 0 ? (cpu + waits) / ns : 0;
    return ns > 0 ? cpu / ns : 0;
}

/* A stage as measured. Where all cores were busy, one that computes was kept waiting for them: then
   it takes what is left without that, which is its CPU time if nobody knows how long it waited. */
static void dlpi_sim_stage_of(dlpi_sim_stage *to, const dlp_stage_stats *g, bool full) {
    double busy = (double)g->busy_ns, cpu = (double)g->cpu_ns, scale = 1;
    double mean = busy / (double)g->items, wait = full ? dlpi_stage_core_wait(g) : 0;
    to->batches = g->unit_is_batch != 0;
    to->cpu = g->cpu_ns == 0 || cpu > busy ? 1 : cpu / busy; /* not known: as if it computed */
    if (wait > 0 && g->in_flight <= 1) {
        scale = (busy - wait) / busy;
        to->cpu = cpu / (busy - wait);
    } else if (full && to->cpu > 0.3) {
        scale = to->cpu;
        to->cpu = 1;
    }
    dlpi_sim_times_of(&to->times, mean * scale, (double)g->p50_ns * scale,
                      (double)g->p95_ns * scale, (double)g->p99_ns * scale);
}

static int dlpi_sim_stages(dlpi_sim *m, const dlp_stats *s, const dlp_predict_desc *d) {
    dlpi_sim_stage *steps;
    bool idle = d->step_idle != 0, full;
    double used, wanted;
    for (uint32_t i = 0; i < s->n_stages; i++) idle |= s->stages[i].kind == DLP_STAGE_TRANSFER;
    used = dlpi_sim_measured_cores(s, idle, &wanted);
    full = wanted > 0.9 * (s->cpus ? s->cpus : 1);
    if (full && d->cpus == 0 && used < 0.9 * m->cpus) m->cpus = used > 0.1 ? used : 0.1;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        dlpi_sim_stage *to = &m->stage[m->n_stages];
        if (g->items == 0 || g->busy_ns == 0 || g->kind < DLP_STAGE_FETCH) continue;
        dlpi_sim_stage_of(to, g, full);
        to->id = (int32_t)i;
        to->workers = dlpi_sim_workers(d, g, i);
        to->first = m->n_workers;
        if (to->workers > DLPI_SIM_WORKERS - m->n_workers) return DLP_ERR_ARG;
        m->n_workers += to->workers;
        m->n_stages++;
    }
    if (m->n_stages == 0) return DLP_ERR_STATE;
    steps = &m->stage[m->n_stages];
    if (d->step_ns == 0)
        dlpi_sim_times_of(&steps->times, (double)s->step_ns / (double)s->batches,
                          (double)s->step_p50_ns, (double)s->step_p95_ns, (double)s->step_p95_ns);
    else
        dlpi_sim_times_of(&steps->times, d->step_ns > 0 ? (double)d->step_ns : 0, 0, 0, 0);
    steps->cpu = idle ? 0 : 1;
    return DLP_OK;
}

/* Runs as dlpi_run_shift makes them; then fewer and longer ones, so that `batches` stay within the
   events that a simulation may have. */
static void dlpi_sim_runs(dlpi_sim *m, uint64_t batches) {
    const dlpi_sim_stage *g = &m->stage[0];
    uint32_t at_once = g->workers < m->cpus ? g->workers : (uint32_t)m->cpus, shift = 0;
    uint64_t most = DLPI_SIM_EVENTS / (batches * m->n_stages) + 1;
    while (shift < DLPI_RUN_SHIFT_MAX && g->times.mean * (double)(2u << shift) <= 8000 &&
           (2u << shift) * at_once <= m->rows)
        shift++;
    m->rows_a_run = 1u << shift;
    m->claims_a_run = 1;
    if (m->rows_a_run > m->rows) m->rows_a_run = m->rows;
    while ((m->rows + m->rows_a_run - 1) / m->rows_a_run > most) { /* NOLINT: never 0 */
        m->rows_a_run *= 2;
        m->claims_a_run *= 2;
    }
    m->runs = (m->rows + m->rows_a_run - 1) / m->rows_a_run;
}

static bool dlpi_sim_range(const dlp_predict_desc *d) {
    bool ok = d->num_workers >= DLP_NONE && d->batch_workers >= DLP_NONE &&
              d->num_workers <= DLP_MAX_WORKERS && d->batch_workers <= DLP_MAX_WORKERS &&
              d->step_ns >= DLP_NONE;
    for (int i = 0; i < DLP_MAX_STAGES; i++)
        ok = ok && d->workers[i] >= DLP_NONE && d->workers[i] <= DLP_MAX_WORKERS;
    return ok;
}

static int dlpi_sim_init(dlpi_sim *m, const dlp_stats *s, const dlp_predict_desc *d) {
    int rc;
    memset(m, 0, sizeof *m);
    if (s->n_stages > DLP_MAX_STAGES || s->cpus > 65536 || d->cpus > 65536) return DLP_ERR_ARG;
    if (s->batches <= s->prefetch_factor || s->items == 0) return DLP_ERR_STATE;
    m->cpus = d->cpus ? d->cpus : s->cpus ? s->cpus : 1;
    m->prefetch = d->prefetch_factor ? d->prefetch_factor : s->prefetch_factor;
    if (m->prefetch < 1) m->prefetch = 1;
    if (m->prefetch > DLPI_SIM_BATCHES) m->prefetch = DLPI_SIM_BATCHES;
    m->rows = (uint32_t)((s->items + s->batches / 2) / s->batches);
    if (m->rows < 1) m->rows = 1;
    if (m->rows > 1u << 20) m->rows = 1u << 20;
    m->unordered = d->unordered != 0;
    if ((rc = dlpi_sim_stages(m, s, d)) != DLP_OK) return rc;
    for (uint32_t k = 0; k <= m->n_stages; k++) m->stage[k].rated = UINT32_MAX;
    m->trainer.stage = DLPI_SIM_REST;
    return DLP_OK;
}

static void dlpi_sim_result(const dlpi_sim *m, double from, uint64_t batches, dlp_predict *out) {
    double ns = m->now - from > 0 ? m->now - from : 1;
    memset(out, 0, sizeof *out);
    out->batches_per_s = (double)batches * 1e9 / ns;
    out->items_per_s = out->batches_per_s * m->rows;
    out->wait_share = m->wait_ns / ns;
    out->cores = m->cpu_ns / ns;
    out->batches = m->ended;
    for (uint32_t k = 0; k < m->n_stages; k++) {
        const dlpi_sim_stage *g = &m->stage[k];
        out->busy_share[g->id] = g->busy_ns / (ns * (g->workers ? g->workers : 1));
    }
}

/* Enough batches for 4,096 items, and to fill the pipe four times; a quarter are the start-up. */
static uint64_t dlpi_sim_batches(const dlpi_sim *m) {
    uint64_t n = 4096 / m->rows < 64 ? 64 : 4096 / m->rows;
    return n > UINT64_C(4) * m->prefetch ? n : UINT64_C(4) * m->prefetch;
}

DLPDEF int dlp_stats_predict(const dlp_stats *measured, const dlp_predict_desc *what_if,
                             dlp_predict *out) {
    static const dlp_predict_desc as_measured;
    const dlp_predict_desc *d = what_if ? what_if : &as_measured;
    dlpi_sim m;
    uint64_t batches, warm;
    double from = 0;
    int rc;
    if (measured == NULL || out == NULL || !dlpi_sim_range(d)) return DLP_ERR_ARG;
    if ((rc = dlpi_sim_init(&m, measured, d)) != DLP_OK) return rc;
    batches = dlpi_sim_batches(&m);
    warm = batches / 4;
    dlpi_sim_runs(&m, batches);
    dlpi_sim_feed(&m);
    dlpi_sim_dispatch(&m);
    while (m.ended < batches) {
        uint64_t before = m.ended;
        if (!dlpi_sim_event(&m)) return DLP_ERR_ARG;
        if (m.ended == before || m.ended != warm) continue;
        from = m.now; /* the start-up is over */
        m.wait_ns = m.cpu_ns = 0;
        for (uint32_t k = 0; k < m.n_stages; k++) m.stage[k].busy_ns = 0;
    }
    dlpi_sim_result(&m, from, batches - warm, out);
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-devices    GPUS: CUDA, OPENCL
   Types and numbers of both are as their headers have had them since CUDA 4 and OpenCL 1.2; only
   the calls used here are declared, and looked up by name. Callbacks of a device run in one thread
   at a time (start; then the transfer thread, or next; then close), so its record has no atomics,
   but for the word that says whether a pipe has it. What dlp_pipe_release_after writes of a buffer
   is the caller's until its release frees the buffer (C2), which the transfer then takes.

   A callback can return a number only. What it stands for is added to the device's name, which is
   in the message that the pipe makes of the number. */

typedef struct dlpi_gpu {
    char name[160]; /* of dlp_device: "cuda:0", and after a failure what failed */
    char base[24];
    uint32_t used; /* U1: a pipe has it open */
    int dirty;     /* copies were enqueued since open */
    dlp_device_info info;
    uint8_t ordered[DLPI_PARK]; /* a copy into the buffer has waited for its readers */
    uint8_t due[DLPI_PARK];     /* release_after left an event for the next copy */
} dlpi_gpu;

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
#include <dlfcn.h>

typedef struct dlpi_symbol {
    const char *name;
    size_t at; /* of the pointer in the table of calls */
} dlpi_symbol;

/* Load a library and fill a table of calls. */
static int dlpi_gpu_load(void *calls, const dlpi_symbol *symbols, size_t n, const char *library,
                         dlp_error *err) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *why = dlerror();
        dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library", "no driver: %s", why ? why : library);
        return DLP_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(lib, symbols[i].name);
        if (symbol == NULL) {
            dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library",
                           "%s has no %s: the driver is too old", library, symbols[i].name);
            return DLP_ERR_UNSUPPORTED;
        }
        memcpy((char *)calls + symbols[i].at, &symbol, sizeof symbol);
    }
    return DLP_OK;
}

/* Take the device for a pipe. */
static int dlpi_gpu_open(dlpi_gpu *g) {
    if (DLPI_XCHG_SEQ(&g->used, 1u) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
    memcpy(g->name, g->base, sizeof g->base);
    memset(g->ordered, 0, sizeof g->ordered);
    memset(g->due, 0, sizeof g->due);
    g->dirty = 0;
    return 0;
}

static void dlpi_gpu_leave(void *user) {
    DLPI_STORE_SEQ(&((dlpi_gpu *)user)->used, 0u); /* U1 -> U1 */
}

static void dlpi_gpu_note(dlpi_gpu *g, const char *what) {
    size_t n = strlen(g->base);
    if (strcmp(g->name, g->base) == 0) /* the first failure stays */
        snprintf(g->name + n, sizeof g->name - n, ": %s", what);
}
#endif

#ifdef DLPIPE_CUDA

typedef struct dlpi_cuda_calls {
    int (*init)(unsigned flags);
    int (*error_name)(int rc, const char **name);
    int (*device_get)(int *device, int ordinal);
    int (*device_count)(int *count);
    int (*device_name)(char *name, int size, int device);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
    int (*ctx_device)(int *device);
    int (*ctx_push)(void *context);
    int (*ctx_pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream, void *event, unsigned flags);
    int (*stream_sync)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_sync)(void *event);
    int (*mem_alloc)(unsigned long long *address, size_t bytes);
    int (*mem_free)(unsigned long long address);
    int (*host_register)(void *mem, size_t bytes, unsigned flags);
    int (*host_unregister)(void *mem);
    int (*copy)(unsigned long long to, const void *from, size_t bytes, void *stream);
} dlpi_cuda_calls;

#define DLPI_CU(field, name) \
    { name, offsetof(dlpi_cuda_calls, field) }
static const dlpi_symbol dlpi_cuda_symbols[] = {
    DLPI_CU(init, "cuInit"),
    DLPI_CU(error_name, "cuGetErrorName"),
    DLPI_CU(device_get, "cuDeviceGet"),
    DLPI_CU(device_count, "cuDeviceGetCount"),
    DLPI_CU(device_name, "cuDeviceGetName"),
    DLPI_CU(primary_retain, "cuDevicePrimaryCtxRetain"),
    DLPI_CU(primary_release, "cuDevicePrimaryCtxRelease"),
    DLPI_CU(ctx_device, "cuCtxGetDevice"),
    DLPI_CU(ctx_push, "cuCtxPushCurrent_v2"),
    DLPI_CU(ctx_pop, "cuCtxPopCurrent_v2"),
    DLPI_CU(stream_create, "cuStreamCreate"),
    DLPI_CU(stream_destroy, "cuStreamDestroy_v2"),
    DLPI_CU(stream_wait, "cuStreamWaitEvent"),
    DLPI_CU(stream_sync, "cuStreamSynchronize"),
    DLPI_CU(event_create, "cuEventCreate"),
    DLPI_CU(event_destroy, "cuEventDestroy_v2"),
    DLPI_CU(event_record, "cuEventRecord"),
    DLPI_CU(event_query, "cuEventQuery"),
    DLPI_CU(event_sync, "cuEventSynchronize"),
    DLPI_CU(mem_alloc, "cuMemAlloc_v2"),
    DLPI_CU(mem_free, "cuMemFree_v2"),
    DLPI_CU(host_register, "cuMemHostRegister_v2"),
    DLPI_CU(host_unregister, "cuMemHostUnregister"),
    DLPI_CU(copy, "cuMemcpyHtoDAsync_v2"),
};
#undef DLPI_CU

enum {
    DLPI_CU_NOT_READY = 600,
    DLPI_CU_STREAM_NON_BLOCKING = 1,
    DLPI_CU_EVENT_DISABLE_TIMING = 2,
    DLPI_CU_REGISTER_PORTABLE = 1
};

typedef struct dlpi_cuda {
    dlpi_gpu gpu; /* first */
    dlpi_cuda_calls call;
    void *context, *stream, *consumer;
    int has_consumer, own_stream, retained, device;
    void *copied[DLPI_PARK];  /* event behind the copies into a buffer */
    void *readers[DLPI_PARK]; /* event behind the work that reads it */
} dlpi_cuda;

static void dlpi_cuda_words(const dlpi_cuda *c, int rc, const char *what, char *out, size_t size) {
    const char *name = NULL;
    if (c->call.error_name(rc, &name) != 0 || name == NULL) name = "unknown error";
    snprintf(out, size, "%s: %s (%d)", what, name, rc);
}

/* A call of a callback returned rc. */
static int dlpi_cuda_said(dlpi_cuda *c, int rc, const char *what) {
    char words[96];
    if (rc == 0) return 0;
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    dlpi_gpu_note(&c->gpu, words);
    return rc;
}

static int dlpi_cuda_fail(const dlpi_cuda *c, int rc, const char *what, int code, const char *field,
                          dlp_error *err) {
    char words[96];
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    return dlpi_error_set(err, code, field, "%s", words);
}

static int dlpi_cuda_enter(dlpi_cuda *c) {
    return dlpi_cuda_said(c, c->call.ctx_push(c->context), "cuCtxPushCurrent");
}

/* rc: of what was done inside. */
static int dlpi_cuda_leave(dlpi_cuda *c, int rc) {
    void *was;
    int popped = c->call.ctx_pop(&was);
    return rc != 0 ? rc : dlpi_cuda_said(c, popped, "cuCtxPopCurrent");
}

static int dlpi_cuda_open(void *user) {
    dlpi_cuda *c = user;
    int rc = dlpi_gpu_open(&c->gpu);
    if (rc == 0) c->gpu.info.unpinned[0] = 0;
    return rc;
}

/* Nothing enqueued may touch the slots or the buffers when they go. */
static void dlpi_cuda_drain(dlpi_cuda *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.stream_sync(c->stream);
    if (c->has_consumer) c->call.stream_sync(c->consumer);
    for (uint32_t i = 0; i < DLPI_PARK; i++)
        if (c->gpu.due[i]) c->call.event_sync(c->readers[i]);
}

static void dlpi_cuda_unregister(void *user, void *mem, uint64_t bytes) {
    dlpi_cuda *c = user;
    DLPI_UNUSED(bytes);
    if (!c->gpu.info.pinned || dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.host_unregister(mem);
    c->gpu.info.pinned = 0;
    dlpi_cuda_leave(c, 0);
}

/* Pageable copies are right, too: only a failed push fails. */
static int dlpi_cuda_register(void *user, void *mem, uint64_t bytes) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = c->call.host_register(mem, (size_t)bytes, DLPI_CU_REGISTER_PORTABLE);
    c->gpu.info.pinned = rc == 0;
    if (rc != 0)
        dlpi_cuda_words(c, rc, "cuMemHostRegister", c->gpu.info.unpinned,
                        sizeof c->gpu.info.unpinned);
    rc = dlpi_cuda_leave(c, 0);
    if (rc != 0) dlpi_cuda_unregister(c, mem, bytes);
    return rc;
}

static int dlpi_cuda_alloc(void *user, uint64_t bytes, void **dev) {
    dlpi_cuda *c = user;
    unsigned long long address = 0;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_said(c, c->call.mem_alloc(&address, bytes ? (size_t)bytes : 1), "cuMemAlloc");
    if (rc == 0) *dev = (void *)(uintptr_t)address;
    return dlpi_cuda_leave(c, rc);
}

static void dlpi_cuda_free(void *user, void *dev) {
    dlpi_cuda *c = user;
    if (dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.mem_free((unsigned long long)(uintptr_t)dev);
    dlpi_cuda_leave(c, 0);
}

/* Put the copies that follow behind what still reads the buffer. */
static int dlpi_cuda_order(dlpi_cuda *c, uint32_t buffer) {
    void *event = c->readers[buffer];
    int rc = 0;
    if (c->gpu.ordered[buffer]) return 0;
    if (c->gpu.due[buffer])
        rc = dlpi_cuda_said(c, c->call.stream_wait(c->stream, event, 0), "cuStreamWaitEvent");
    if (rc == 0 && c->has_consumer) { /* which may be another stream than release_after's */
        rc = dlpi_cuda_said(c, c->call.event_record(event, c->consumer), "cuEventRecord");
        if (rc == 0)
            rc = dlpi_cuda_said(c, c->call.stream_wait(c->stream, event, 0), "cuStreamWaitEvent");
    }
    if (rc != 0) return rc;
    c->gpu.due[buffer] = 0;
    c->gpu.ordered[buffer] = 1;
    return 0;
}

static int dlpi_cuda_copy(void *user, void *dev, const void *host, uint64_t bytes,
                          uint32_t buffer) {
    dlpi_cuda *c = user;
    unsigned long long to = (unsigned long long)(uintptr_t)dev;
    int rc;
    if (bytes == 0) return 0;
    if ((rc = dlpi_cuda_enter(c)) != 0) return rc;
    rc = dlpi_cuda_order(c, buffer);
    c->gpu.dirty = 1;
    if (rc == 0)
        rc = dlpi_cuda_said(c, c->call.copy(to, host, (size_t)bytes, c->stream),
                            "cuMemcpyHtoDAsync");
    return dlpi_cuda_leave(c, rc);
}

static int dlpi_cuda_record(void *user, uint32_t buffer) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    c->gpu.ordered[buffer] = 0;
    rc = dlpi_cuda_said(c, c->call.event_record(c->copied[buffer], c->stream), "cuEventRecord");
    return dlpi_cuda_leave(c, rc);
}

static int dlpi_cuda_done(void *user, uint32_t buffer) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c), query;
    if (rc != 0) return -rc;
    query = c->call.event_query(c->copied[buffer]);
    rc = query == DLPI_CU_NOT_READY ? 0 : dlpi_cuda_said(c, query, "cuEventQuery");
    rc = dlpi_cuda_leave(c, rc);
    if (rc != 0) return -rc;
    return query != DLPI_CU_NOT_READY;
}

static int dlpi_cuda_release_after(void *user, uint32_t buffer, void *stream, dlp_error *err) {
    dlpi_cuda *c = user;
    void *was;
    int rc = c->call.ctx_push(c->context);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuCtxPushCurrent", DLP_ERR_DEVICE, "", err);
    if (c->gpu.due[buffer]) /* of another view of the same chunk: behind both */
        rc = c->call.stream_wait(stream, c->readers[buffer], 0);
    if (rc == 0) rc = c->call.event_record(c->readers[buffer], stream);
    c->call.ctx_pop(&was);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuEventRecord", DLP_ERR_DEVICE, "stream", err);
    c->gpu.due[buffer] = 1;
    return DLP_OK;
}

static void dlpi_cuda_end(dlpi_cuda *c) {
    void *was;
    if (c->context && c->call.ctx_push(c->context) == 0) {
        for (int i = 0; i < DLPI_PARK; i++) {
            if (c->copied[i]) c->call.event_destroy(c->copied[i]);
            if (c->readers[i]) c->call.event_destroy(c->readers[i]);
        }
        if (c->own_stream) c->call.stream_destroy(c->stream);
        c->call.ctx_pop(&was);
    }
    if (c->retained) c->call.primary_release(c->device);
    free(c);
}

/* Find the device and its context. */
static int dlpi_cuda_find(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    const char *library = d->library ? d->library : "libcuda.so.1";
    size_t n = sizeof dlpi_cuda_symbols / sizeof *dlpi_cuda_symbols;
    int count = 0, rc = dlpi_gpu_load(&c->call, dlpi_cuda_symbols, n, library, err);
    if (rc != DLP_OK) return rc;
    if ((rc = c->call.init(0)) != 0)
        return dlpi_cuda_fail(c, rc, "cuInit", DLP_ERR_UNSUPPORTED, "", err);
    if ((c->context = d->context) != NULL) return DLP_OK;
    if ((rc = c->call.device_count(&count)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGetCount", DLP_ERR_DEVICE, "", err);
    if (count == 0) return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "no CUDA device");
    if (d->device < 0 || d->device >= count)
        return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: there are devices 0..%d",
                              (int)d->device, count - 1);
    if ((rc = c->call.device_get(&c->device, d->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGet", DLP_ERR_DEVICE, "device", err);
    if ((rc = c->call.primary_retain(&c->context, c->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDevicePrimaryCtxRetain", DLP_ERR_DEVICE, "device", err);
    c->retained = 1;
    return DLP_OK;
}

/* Stream and events; the context is current. Returns a CUresult, *what is its call. */
static int dlpi_cuda_make(dlpi_cuda *c, const dlp_cuda_desc *d, const char **what) {
    int rc;
    *what = "cuCtxGetDevice";
    if (d->context && (rc = c->call.ctx_device(&c->device)) != 0) return rc;
    *what = "cuDeviceGetName";
    rc = c->call.device_name(c->gpu.info.name, sizeof c->gpu.info.name - 1, c->device);
    if (rc != 0) return rc;
    *what = "cuStreamCreate";
    if ((c->stream = d->stream) == NULL) {
        rc = c->call.stream_create(&c->stream, DLPI_CU_STREAM_NON_BLOCKING);
        if (rc != 0) return rc;
        c->own_stream = 1;
    }
    *what = "cuEventCreate";
    for (int i = 0; i < DLPI_PARK; i++) {
        rc = c->call.event_create(&c->copied[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc == 0) rc = c->call.event_create(&c->readers[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc != 0) return rc;
    }
    return 0;
}

static int dlpi_cuda_begin(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    const char *what = "cuCtxPushCurrent", *popping = "cuCtxPopCurrent";
    void *was;
    int rc = dlpi_cuda_find(c, d, err), popped;
    if (rc != DLP_OK) return rc;
    if ((rc = c->call.ctx_push(c->context)) == 0) {
        rc = dlpi_cuda_make(c, d, &what);
        popped = c->call.ctx_pop(&was);
        if (rc == 0 && popped != 0) rc = popped, what = popping;
    }
    if (rc != 0) return dlpi_cuda_fail(c, rc, what, DLP_ERR_DEVICE, "", err);
    c->consumer = d->consumer;
    c->has_consumer = d->has_consumer || d->consumer;
    c->gpu.info.kind = "cuda";
    c->gpu.info.device = c->device;
    c->gpu.info.context = c->context;
    c->gpu.info.queue = c->stream;
    snprintf(c->gpu.base, sizeof c->gpu.base, "cuda:%d", c->device);
    dlpi_copy_text(c->gpu.name, sizeof c->gpu.name, c->gpu.base);
    return DLP_OK;
}

DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    dlp_cuda_desc zero;
    dlpi_cuda *c;
    int rc;
    memset(&zero, 0, sizeof zero);
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if ((c = calloc(1, sizeof *c)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the device failed");
    if ((rc = dlpi_cuda_begin(c, desc ? desc : &zero, err)) != DLP_OK) {
        dlpi_cuda_end(c);
        return rc;
    }
    *out = (dlp_device){c->gpu.name,
                        dlpi_cuda_open,
                        dlpi_gpu_leave,
                        dlpi_cuda_register,
                        dlpi_cuda_unregister,
                        dlpi_cuda_alloc,
                        dlpi_cuda_free,
                        dlpi_cuda_copy,
                        dlpi_cuda_record,
                        dlpi_cuda_done,
                        c,
                        0};
    return DLP_OK;
}

static bool dlpi_is_cuda(const dlp_device *d) { return d->copy == dlpi_cuda_copy; }

#else

DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    DLPI_UNUSED(out);
    DLPI_UNUSED(desc);
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "compiled without DLPIPE_CUDA, which goes with DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_CUDA */

#ifdef DLPIPE_OPENCL

typedef struct dlpi_cl_calls {
    int32_t (*platforms)(uint32_t room, void **out, uint32_t *n);
    int32_t (*devices)(void *platform, uint64_t type, uint32_t room, void **out, uint32_t *n);
    int32_t (*device_info)(void *device, uint32_t what, size_t size, void *out, size_t *used);
    void *(*context_create)(const intptr_t *properties, uint32_t n, void *const *devices,
                            void (*notify)(const char *, const void *, size_t, void *), void *user,
                            int32_t *rc);
    int32_t (*context_info)(void *context, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*context_retain)(void *context);
    int32_t (*context_release)(void *context);
    void *(*queue_create)(void *context, void *device, uint64_t properties, int32_t *rc);
    int32_t (*queue_info)(void *queue, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*queue_retain)(void *queue);
    int32_t (*queue_release)(void *queue);
    void *(*buffer_create)(void *context, uint64_t flags, size_t size, void *host, int32_t *rc);
    int32_t (*buffer_release)(void *buffer);
    int32_t (*write)(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                     const void *from, uint32_t n_wait, void *const *wait, void **event);
    int32_t (*marker)(void *queue, uint32_t n_wait, void *const *wait, void **event);
    int32_t (*event_info)(void *event, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*event_release)(void *event);
    int32_t (*events_wait)(uint32_t n, void *const *events);
    int32_t (*flush)(void *queue);
    int32_t (*finish)(void *queue);
} dlpi_cl_calls;

#define DLPI_CL(field, name) \
    { name, offsetof(dlpi_cl_calls, field) }
static const dlpi_symbol dlpi_cl_symbols[] = {
    DLPI_CL(platforms, "clGetPlatformIDs"),
    DLPI_CL(devices, "clGetDeviceIDs"),
    DLPI_CL(device_info, "clGetDeviceInfo"),
    DLPI_CL(context_create, "clCreateContext"),
    DLPI_CL(context_info, "clGetContextInfo"),
    DLPI_CL(context_retain, "clRetainContext"),
    DLPI_CL(context_release, "clReleaseContext"),
    DLPI_CL(queue_create, "clCreateCommandQueue"),
    DLPI_CL(queue_info, "clGetCommandQueueInfo"),
    DLPI_CL(queue_retain, "clRetainCommandQueue"),
    DLPI_CL(queue_release, "clReleaseCommandQueue"),
    DLPI_CL(buffer_create, "clCreateBuffer"),
    DLPI_CL(buffer_release, "clReleaseMemObject"),
    DLPI_CL(write, "clEnqueueWriteBuffer"),
    DLPI_CL(marker, "clEnqueueMarkerWithWaitList"),
    DLPI_CL(event_info, "clGetEventInfo"),
    DLPI_CL(event_release, "clReleaseEvent"),
    DLPI_CL(events_wait, "clWaitForEvents"),
    DLPI_CL(flush, "clFlush"),
    DLPI_CL(finish, "clFinish"),
};
#undef DLPI_CL

enum {
    DLPI_CL_PLATFORM_NOT_FOUND = -1001,
    DLPI_CL_DEVICE_NOT_FOUND = -1,
    DLPI_CL_CONTEXT_DEVICES = 0x1081,
    DLPI_CL_QUEUE_CONTEXT = 0x1090,
    DLPI_CL_QUEUE_DEVICE = 0x1091,
    DLPI_CL_DEVICE_NAME = 0x102B,
    DLPI_CL_EVENT_STATUS = 0x11D3,
    DLPI_CL_READ_WRITE = 1,
    DLPI_CL_ROOM = 32 /* platforms, and devices of each, that are looked at */
};
#define DLPI_CL_ALL_DEVICES UINT64_C(0xFFFFFFFF)

/* Names of error codes -1..-72, as CL/cl.h has them. */
static const char *dlpi_cl_name(int32_t rc) {
    static const char *const low[] = {"DEVICE_NOT_FOUND",
                                      "DEVICE_NOT_AVAILABLE",
                                      "COMPILER_NOT_AVAILABLE",
                                      "MEM_OBJECT_ALLOCATION_FAILURE",
                                      "OUT_OF_RESOURCES",
                                      "OUT_OF_HOST_MEMORY",
                                      "PROFILING_INFO_NOT_AVAILABLE",
                                      "MEM_COPY_OVERLAP",
                                      "IMAGE_FORMAT_MISMATCH",
                                      "IMAGE_FORMAT_NOT_SUPPORTED",
                                      "BUILD_PROGRAM_FAILURE",
                                      "MAP_FAILURE",
                                      "MISALIGNED_SUB_BUFFER_OFFSET",
                                      "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"};
    static const char *const high[] = {
        "INVALID_VALUE",         "INVALID_DEVICE_TYPE", "INVALID_PLATFORM",
        "INVALID_DEVICE",        "INVALID_CONTEXT",     "INVALID_QUEUE_PROPERTIES",
        "INVALID_COMMAND_QUEUE", "INVALID_HOST_PTR",    "INVALID_MEM_OBJECT"};
    if (rc < 0 && rc >= -14) return low[-1 - rc];
    if (rc <= -30 && rc >= -38) return high[-30 - rc];
    switch (rc) {
    case -57: return "INVALID_EVENT_WAIT_LIST";
    case -58: return "INVALID_EVENT";
    case -59: return "INVALID_OPERATION";
    case -61: return "INVALID_BUFFER_SIZE";
    case DLPI_CL_PLATFORM_NOT_FOUND: return "PLATFORM_NOT_FOUND_KHR";
    default: return "ERROR";
    }
}

typedef struct dlpi_cl {
    dlpi_gpu gpu; /* first */
    dlpi_cl_calls call;
    void *context, *queue, *consumer;
    void *copied[DLPI_PARK];   /* marker behind the copies into a buffer */
    void *readers[DLPI_PARK];  /* marker behind the work that reads it, of release_after */
    void *consumed[DLPI_PARK]; /* the same, of the consumer */
} dlpi_cl;

static int dlpi_cl_said(dlpi_cl *c, int32_t rc, const char *what) {
    char words[96];
    if (rc == 0) return 0;
    snprintf(words, sizeof words, "%s: CL_%s (%d)", what, dlpi_cl_name(rc), (int)rc);
    dlpi_gpu_note(&c->gpu, words);
    return rc;
}

static int dlpi_cl_fail(int32_t rc, const char *what, int code, const char *field, dlp_error *err) {
    return dlpi_error_set(err, code, field, "%s: CL_%s (%d)", what, dlpi_cl_name(rc), (int)rc);
}

static int dlpi_cl_open(void *user) { return dlpi_gpu_open(&((dlpi_cl *)user)->gpu); }

static void dlpi_cl_forget(dlpi_cl *c, void **event) {
    if (*event) c->call.event_release(*event);
    *event = NULL;
}

/* Nothing enqueued may touch the slots or the buffers when they go. */
static void dlpi_cl_drain(dlpi_cl *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.finish(c->queue);
    if (c->consumer) c->call.finish(c->consumer);
    for (int i = 0; i < DLPI_PARK; i++) {
        if (c->readers[i]) c->call.events_wait(1, &c->readers[i]);
        dlpi_cl_forget(c, &c->copied[i]);
        dlpi_cl_forget(c, &c->readers[i]);
        dlpi_cl_forget(c, &c->consumed[i]);
    }
}

static int dlpi_cl_alloc(void *user, uint64_t bytes, void **dev) {
    dlpi_cl *c = user;
    int32_t rc = 0;
    void *buffer =
        c->call.buffer_create(c->context, DLPI_CL_READ_WRITE, bytes ? (size_t)bytes : 1, NULL, &rc);
    if (rc != 0) return dlpi_cl_said(c, rc, "clCreateBuffer");
    *dev = buffer;
    return 0;
}

static void dlpi_cl_free(void *user, void *dev) {
    dlpi_cl *c = user;
    dlpi_cl_drain(c);
    c->call.buffer_release(dev);
}

/* Copies of a queue may overtake each other: each waits by itself. Waiting for the consumer's
   commands ends only if they have been sent to the device, hence the flush. */
static int dlpi_cl_order(dlpi_cl *c, uint32_t buffer) {
    int32_t rc;
    if (c->gpu.ordered[buffer] || c->consumer == NULL) return 0;
    rc = c->call.marker(c->consumer, 0, NULL, &c->consumed[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 1;
    return dlpi_cl_said(c, c->call.flush(c->consumer), "clFlush");
}

static int dlpi_cl_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    dlpi_cl *c = user;
    void *wait[2];
    uint32_t n = 0;
    int rc;
    if (bytes == 0) return 0;
    c->gpu.dirty = 1;
    if ((rc = dlpi_cl_order(c, buffer)) != 0) return rc;
    if (c->readers[buffer]) wait[n++] = c->readers[buffer];
    if (c->consumed[buffer]) wait[n++] = c->consumed[buffer];
    return dlpi_cl_said(
        c, c->call.write(c->queue, dev, 0, 0, (size_t)bytes, host, n, n ? wait : NULL, NULL),
        "clEnqueueWriteBuffer");
}

static int dlpi_cl_record(void *user, uint32_t buffer) {
    dlpi_cl *c = user;
    int32_t rc = c->call.marker(c->queue, 0, NULL, &c->copied[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 0;
    dlpi_cl_forget(c, &c->readers[buffer]); /* the runtime keeps what commands wait for */
    dlpi_cl_forget(c, &c->consumed[buffer]);
    return dlpi_cl_said(c, c->call.flush(c->queue), "clFlush");
}

static int dlpi_cl_done(void *user, uint32_t buffer) {
    dlpi_cl *c = user;
    int32_t status = 0;
    int32_t rc =
        c->call.event_info(c->copied[buffer], DLPI_CL_EVENT_STATUS, sizeof status, &status, NULL);
    if (rc != 0) return dlpi_cl_said(c, rc, "clGetEventInfo");
    if (status > 0) return 0;
    dlpi_cl_forget(c, &c->copied[buffer]);
    return status == 0 ? 1 : dlpi_cl_said(c, status, "the copy ended with");
}

static int dlpi_cl_release_after(void *user, uint32_t buffer, void *queue, dlp_error *err) {
    dlpi_cl *c = user;
    void *event = NULL;
    int32_t rc;
    if (queue == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "stream", "the queue is NULL");
    rc = c->call.marker(queue, 0, NULL, &event);
    if (rc == 0 && c->readers[buffer]) { /* of another view of the same chunk: behind both */
        void *both[2] = {event, c->readers[buffer]};
        rc = c->call.marker(queue, 2, both, &event);
        c->call.event_release(both[0]);
    }
    if (rc != 0)
        return dlpi_cl_fail(rc, "clEnqueueMarkerWithWaitList", DLP_ERR_DEVICE, "stream", err);
    if ((rc = c->call.flush(queue)) != 0) {
        c->call.event_release(event);
        return dlpi_cl_fail(rc, "clFlush", DLP_ERR_DEVICE, "stream", err);
    }
    dlpi_cl_forget(c, &c->readers[buffer]);
    c->readers[buffer] = event;
    return DLP_OK;
}

static void dlpi_cl_end(dlpi_cl *c) {
    dlpi_cl_drain(c);
    if (c->consumer) c->call.queue_release(c->consumer);
    if (c->queue) c->call.queue_release(c->queue);
    if (c->context) c->call.context_release(c->context);
    free(c);
}

/* The n-th device of all platforms. */
static int dlpi_cl_nth(dlpi_cl *c, int32_t nth, dlp_error *err) {
    void *platforms[DLPI_CL_ROOM], *devices[DLPI_CL_ROOM];
    uint32_t n_platforms = 0, seen = 0;
    int32_t rc = c->call.platforms(DLPI_CL_ROOM, platforms, &n_platforms);
    if (rc == DLPI_CL_PLATFORM_NOT_FOUND)
        n_platforms = 0;
    else if (rc != 0)
        return dlpi_cl_fail(rc, "clGetPlatformIDs", DLP_ERR_UNSUPPORTED, "", err);
    if (n_platforms > DLPI_CL_ROOM) n_platforms = DLPI_CL_ROOM;
    for (uint32_t i = 0; i < n_platforms; i++) {
        uint32_t n = 0;
        rc = c->call.devices(platforms[i], DLPI_CL_ALL_DEVICES, DLPI_CL_ROOM, devices, &n);
        if (rc == DLPI_CL_DEVICE_NOT_FOUND) continue;
        if (rc != 0) return dlpi_cl_fail(rc, "clGetDeviceIDs", DLP_ERR_DEVICE, "", err);
        if (n > DLPI_CL_ROOM) n = DLPI_CL_ROOM;
        if (nth >= 0 && (uint32_t)nth - seen < n) {
            c->gpu.info.device_id = devices[(uint32_t)nth - seen];
            return DLP_OK;
        }
        seen += n;
    }
    if (seen == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "no OpenCL %s",
                              n_platforms ? "device" : "platform is installed");
    return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: there are devices 0..%u", (int)nth,
                          seen - 1);
}

/* Context and device of the user's queue, or of the user's context, or of their own. */
static int dlpi_cl_find(dlpi_cl *c, const dlp_opencl_desc *d, dlp_error *err) {
    void *devices[DLPI_CL_ROOM];
    void **device = &c->gpu.info.device_id, *context = d->context;
    size_t used = 0;
    int32_t rc = 0;
    if (d->queue) {
        rc = c->call.queue_info(d->queue, DLPI_CL_QUEUE_DEVICE, sizeof *device, device, NULL);
        if (rc == 0)
            rc =
                c->call.queue_info(d->queue, DLPI_CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
        if (rc != 0) return dlpi_cl_fail(rc, "clGetCommandQueueInfo", DLP_ERR_DEVICE, "queue", err);
    } else if (context) {
        rc = c->call.context_info(context, DLPI_CL_CONTEXT_DEVICES, sizeof devices, devices, &used);
        if (rc != 0) return dlpi_cl_fail(rc, "clGetContextInfo", DLP_ERR_DEVICE, "context", err);
        if (d->device < 0 || (size_t)d->device >= used / sizeof *devices)
            return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: the context has %u devices",
                                  (int)d->device, (unsigned)(used / sizeof *devices));
        *device = devices[d->device];
    } else {
        if ((rc = dlpi_cl_nth(c, d->device, err)) != DLP_OK) return rc;
        c->context = c->call.context_create(NULL, 1, device, NULL, NULL, &rc);
        if (rc == 0) return DLP_OK;
        c->context = NULL;
        return dlpi_cl_fail(rc, "clCreateContext", DLP_ERR_DEVICE, "device", err);
    }
    if ((rc = c->call.context_retain(context)) != 0)
        return dlpi_cl_fail(rc, "clRetainContext", DLP_ERR_DEVICE, "context", err);
    c->context = context;
    return DLP_OK;
}

/* Keep a queue of the user's. */
static int dlpi_cl_keep(dlpi_cl *c, void *queue, void **to, const char *field, dlp_error *err) {
    int32_t rc = c->call.queue_retain(queue);
    if (rc != 0) return dlpi_cl_fail(rc, "clRetainCommandQueue", DLP_ERR_DEVICE, field, err);
    *to = queue;
    return DLP_OK;
}

static int dlpi_cl_begin(dlpi_cl *c, const dlp_opencl_desc *d, dlp_error *err) {
    const char *library = d->library ? d->library : "libOpenCL.so.1";
    size_t n = sizeof dlpi_cl_symbols / sizeof *dlpi_cl_symbols;
    dlp_device_info *info = &c->gpu.info;
    int32_t rc = dlpi_gpu_load(&c->call, dlpi_cl_symbols, n, library, err);
    if (rc != DLP_OK || (rc = dlpi_cl_find(c, d, err)) != DLP_OK) return rc;
    if (d->queue && (rc = dlpi_cl_keep(c, d->queue, &c->queue, "queue", err)) != DLP_OK) return rc;
    if (d->queue == NULL) {
        void *queue = c->call.queue_create(c->context, info->device_id, 0, &rc);
        if (rc != 0) return dlpi_cl_fail(rc, "clCreateCommandQueue", DLP_ERR_DEVICE, "", err);
        c->queue = queue;
    }
    if (d->consumer && (rc = dlpi_cl_keep(c, d->consumer, &c->consumer, "consumer", err)) != DLP_OK)
        return rc;
    rc = c->call.device_info(info->device_id, DLPI_CL_DEVICE_NAME, sizeof info->name - 1,
                             info->name, NULL);
    if (rc != 0) info->name[0] = 0; /* for people only, and it may be too long */
    info->kind = "opencl";
    info->context = c->context;
    info->queue = c->queue;
    dlpi_copy_text(info->unpinned, sizeof info->unpinned, "OpenCL cannot pin memory");
    dlpi_copy_text(c->gpu.base, sizeof c->gpu.base, "opencl");
    dlpi_copy_text(c->gpu.name, sizeof c->gpu.name, c->gpu.base);
    return DLP_OK;
}

DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err) {
    dlp_opencl_desc zero;
    dlpi_cl *c;
    int rc;
    memset(&zero, 0, sizeof zero);
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if ((c = calloc(1, sizeof *c)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the device failed");
    if ((rc = dlpi_cl_begin(c, desc ? desc : &zero, err)) != DLP_OK) {
        dlpi_cl_end(c);
        return rc;
    }
    *out =
        (dlp_device){c->gpu.name,  dlpi_cl_open, dlpi_gpu_leave, NULL,         NULL, dlpi_cl_alloc,
                     dlpi_cl_free, dlpi_cl_copy, dlpi_cl_record, dlpi_cl_done, c,    1};
    return DLP_OK;
}

static bool dlpi_is_cl(const dlp_device *d) { return d->copy == dlpi_cl_copy; }

#else

DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err) {
    DLPI_UNUSED(out);
    DLPI_UNUSED(desc);
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "compiled without DLPIPE_OPENCL, which goes with DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_OPENCL */

/* Which make a device is of: 0 another, 1 CUDA, 2 OpenCL. */
static int dlpi_gpu_make(const dlp_device *d) {
    DLPI_UNUSED(d);
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(d)) return 1;
#endif
#ifdef DLPIPE_OPENCL
    if (dlpi_is_cl(d)) return 2;
#endif
    return 0;
}

DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out) {
    if (device == NULL || out == NULL || dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    *out = ((const dlpi_gpu *)device->user)->info;
    return DLP_OK;
}

DLPDEF int dlp_device_close(dlp_device *device) {
    if (device == NULL || (device->copy == NULL && device->user == NULL)) return DLP_OK;
    if (dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    if (DLPI_LOAD_SEQ(&((dlpi_gpu *)device->user)->used) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(device)) dlpi_cuda_end(device->user), device->user = NULL;
#endif
#ifdef DLPIPE_OPENCL
    if (device->user && dlpi_is_cl(device)) dlpi_cl_end(device->user);
#endif
    memset(device, 0, sizeof *device);
    return DLP_OK;
}

/* The number of the events of the buffer that batch s (of a split pipe, view s) lies in. */
__attribute__((unused)) /* without these devices */
static uint32_t
dlpi_release_buffer(const dlp_pipe *p, uint32_t s) {
    return dlpi_transfer_events(p, p->lender ? p->lender->ops->lender->slot(p, s) : s);
}

DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream, dlp_error *err) {
    const dlp_device *d;
    uint32_t s;
    int rc = DLP_OK, make;
    if (p == NULL || batch == NULL || !p->started)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "no batch, or no pipe that was started");
    if (dlpi_forked(p)) return dlpi_error_set(err, DLP_ERR_FORKED, "", "forked after start");
    s = (uint32_t)(uintptr_t)batch->internal;
    if (s >= p->n_out || batch != &p->out[s] || !p->held[s])
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "not a batch that is held");
    d = dlpi_transfer_device(p);
    make = d ? dlpi_gpu_make(d) : 0;
    if (make == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "the pipe's device is none of these");
#ifdef DLPIPE_CUDA
    if (make == 1) rc = dlpi_cuda_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
#ifdef DLPIPE_OPENCL
    if (make == 2) rc = dlpi_cl_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
    DLPI_UNUSED(stream);
    if (rc != DLP_OK) return rc;
    return dlp_pipe_release(p, batch);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-dlpack     TENSORS FOR OTHER LIBRARIES
   Release is the caller's call, deleters are anybody's: a deleter only counts down, and the caller
   looks, in its next call, which batches are free. After close no such call need come, so that from
   then on whoever takes the count to zero gives back. All of that under one lock, which nobody
   holds while a callback or a device runs. */

typedef struct dlpi_lent {
    uint32_t tensors; /* not yet deleted */
    uint32_t lent;    /* 1: the batch goes back by its tensors */
} dlpi_lent;

typedef struct dlpi_export {
    union {
        dlp_managed_tensor v0;
        dlp_managed_tensor_v1 v1;
    } tensor;
    int64_t shape[DLP_MAX_DIMS], strides[DLP_MAX_DIMS];
    dlp_pipe *p;
    uint32_t slot;
} dlpi_export;

_Static_assert(sizeof(dlp_dl_tensor) == 48 && offsetof(dlp_dl_tensor, ndim) == 16 &&
                   offsetof(dlp_dl_tensor, code) == 20 && offsetof(dlp_dl_tensor, shape) == 24 &&
                   offsetof(dlp_dl_tensor, byte_offset) == 40,
               "DLTensor of dlpack.h");
_Static_assert(sizeof(dlp_managed_tensor) == 64 && offsetof(dlp_managed_tensor, deleter) == 56,
               "DLManagedTensor of dlpack.h");
_Static_assert(sizeof(dlp_managed_tensor_v1) == 80 &&
                   offsetof(dlp_managed_tensor_v1, manager_ctx) == 8 &&
                   offsetof(dlp_managed_tensor_v1, flags) == 24 &&
                   offsetof(dlp_managed_tensor_v1, dl_tensor) == 32,
               "DLManagedTensorVersioned of dlpack.h");

static pthread_mutex_t dlpi_lent_lock = PTHREAD_MUTEX_INITIALIZER;

/* A batch goes back to a pipe that is closed; under the lock. Returns whether it was the last. */
static bool dlpi_lent_drop(dlp_pipe *p, uint32_t s) {
    p->lent[s].lent = 0;
    p->held[s] = 0;
    return --p->n_held == 0;
}

/* Is batch s, if it was lent, free? It is the caller's again then. */
static bool dlpi_lent_back(dlp_pipe *p, uint32_t s) {
    bool back;
    pthread_mutex_lock(&dlpi_lent_lock);
    back = p->lent[s].lent && p->lent[s].tensors == 0;
    if (back) p->lent[s].lent = 0;
    pthread_mutex_unlock(&dlpi_lent_lock);
    if (back) p->n_lent--;
    return back;
}

/* Give back what has no more tensors. */
static void dlpi_lent_sweep(dlp_pipe *p) {
    uint32_t left = p->n_lent;
    for (uint32_t s = 0; left > 0; s++) {
        if (p->lent[s].lent == 0) continue; /* before close only the caller writes it */
        left--;
        if (dlpi_lent_back(p, s)) dlpi_give_back(p, s);
    }
}

/* dlp_pipe_release, where batches have been lent. */
static int dlpi_lent_release(dlp_pipe *p, uint32_t s) {
    bool last;
    if (!p->lent_closed) { /* written by the caller */
        if (!p->lent[s].lent) dlpi_give_back(p, s);
        dlpi_lent_sweep(p);
        return DLP_OK;
    }
    pthread_mutex_lock(&dlpi_lent_lock);
    last = p->lent[s].lent == 0 && dlpi_lent_drop(p, s);
    pthread_mutex_unlock(&dlpi_lent_lock);
    if (last) dlpi_free(p);
    return DLP_OK;
}

/* dlp_pipe_close, where batches have been lent: those that still are keep the pipe. */
static int dlpi_lent_close(dlp_pipe *p) {
    bool last;
    int rc;
    dlpi_lent_sweep(p);
    if ((rc = dlpi_shut(p)) != DLP_OK) return rc;
    pthread_mutex_lock(&dlpi_lent_lock);
    p->lent_closed = 1;
    for (uint32_t s = 0; s < p->n_out; s++)
        if (p->lent[s].lent && p->lent[s].tensors == 0) dlpi_lent_drop(p, s);
    last = p->n_held == 0;
    pthread_mutex_unlock(&dlpi_lent_lock);
    if (last) dlpi_free(p);
    return DLP_OK;
}

/* In a child forked from the pipe's process the lock may be held by nobody for ever. */
static void dlpi_export_free(dlpi_export *x) {
    dlp_pipe *p = x->p; /* lives at least as long as its tensors */
    bool last = false;
    if (!dlpi_forked(p)) {
        pthread_mutex_lock(&dlpi_lent_lock);
        if (--p->lent[x->slot].tensors == 0 && p->lent_closed) last = dlpi_lent_drop(p, x->slot);
        pthread_mutex_unlock(&dlpi_lent_lock);
    }
    if (last) dlpi_free(p);
    free(x);
}

static void dlpi_delete_v0(dlp_managed_tensor *self) { dlpi_export_free(self->manager_ctx); }
static void dlpi_delete_v1(dlp_managed_tensor_v1 *self) { dlpi_export_free(self->manager_ctx); }

static int32_t dlpi_dl_device(const dlp_pipe *p, int32_t *id) {
    const dlp_device *d = p->sink ? dlpi_transfer_device(p) : dlp_device_host();
    int make = dlpi_gpu_make(d);
    *id = make == 1 ? ((const dlpi_gpu *)d->user)->info.device : 0;
    if (make != 0) return make == 1 ? 2 : 4;
    return d->copy == dlp_device_host()->copy ? 1 : 12;
}

static void dlpi_export_fill(dlpi_export *x, const dlp_tensor *t, dlp_dl_tensor *out) {
    int64_t stride = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        x->shape[i] = t->shape[i];
        x->strides[i] = stride;
        stride *= t->shape[i];
    }
    memset(out, 0, sizeof *out);
    out->data = t->data;
    out->device_type = dlpi_dl_device(x->p, &out->device_id);
    out->ndim = t->ndim;
    out->code = (uint8_t)(t->dtype >> 16);
    out->bits = (uint8_t)t->dtype;
    out->lanes = 1;
    out->shape = x->shape;
    out->strides = x->strides;
    out->byte_offset = t->byte_offset;
}

/* Lend a batch, or lend it once more. */
static int dlpi_export_new(dlp_pipe *p, const dlp_batch *batch, int field, dlpi_export **out) {
    uint32_t s;
    dlpi_export *x;
    if (p == NULL || batch == NULL || !p->started) return DLP_ERR_ARG;
    if (p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    s = (uint32_t)(uintptr_t)batch->internal;
    if (s >= p->n_out || batch != &p->out[s] || !p->held[s]) return DLP_ERR_ARG;
    if (field < 0 || (uint32_t)field >= batch->n_fields) return DLP_ERR_ARG;
    if (p->lent == NULL && (p->lent = calloc(p->n_out, sizeof *p->lent)) == NULL)
        return DLP_ERR_MEMORY;
    if ((x = calloc(1, sizeof *x)) == NULL) return DLP_ERR_MEMORY;
    x->p = p;
    x->slot = s;
    pthread_mutex_lock(&dlpi_lent_lock);
    p->n_lent += p->lent[s].lent == 0;
    p->lent[s].lent = 1;
    p->lent[s].tensors++;
    pthread_mutex_unlock(&dlpi_lent_lock);
    *out = x;
    return DLP_OK;
}

DLPDEF int dlp_batch_dlpack(dlp_pipe *p, dlp_batch *batch, int field, dlp_managed_tensor **out) {
    dlpi_export *x = NULL;
    int rc = out ? dlpi_export_new(p, batch, field, &x) : DLP_ERR_ARG;
    if (rc != DLP_OK) return rc;
    dlpi_export_fill(x, &batch->fields[field], &x->tensor.v0.dl_tensor);
    x->tensor.v0.manager_ctx = x;
    x->tensor.v0.deleter = dlpi_delete_v0;
    *out = &x->tensor.v0;
    return DLP_OK;
}

DLPDEF int dlp_batch_dlpack_v1(dlp_pipe *p, dlp_batch *batch, int field,
                               dlp_managed_tensor_v1 **out) {
    dlpi_export *x = NULL;
    int rc = out ? dlpi_export_new(p, batch, field, &x) : DLP_ERR_ARG;
    if (rc != DLP_OK) return rc;
    dlpi_export_fill(x, &batch->fields[field], &x->tensor.v1.dl_tensor);
    x->tensor.v1.major = 1;
    x->tensor.v1.manager_ctx = x;
    x->tensor.v1.deleter = dlpi_delete_v1;
    *out = &x->tensor.v1;
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-files      ITEMS OUT OF FILES, MANY AT ONCE
   A worker has in_flight records (dlpi_file). One is free; or at work: opened, measured, read until
   it has its bytes; or over, in the order in which they came to an end; settled, by the driver, it
   is free again. One at work is with the kernel (each has one entry in the ring at most, so that
   neither of its queues can overflow), or with a thread of the crew. What goes wrong is kept in the
   record as a number, and put into words when it is settled: only the driver may speak of an item.

   The kernel writes into rows only as long as the process lives: buffered reads copy in the context
   of one of its threads. And worker_exit waits until no request is left, for the rows' sake.

     label  who stores                        who loads
     IO1    driver: tail of submissions       the kernel, in io_uring_enter
     IO2    the kernel: tail of completions   driver; the entries before it are written
     IO3    driver: head of completions       the kernel: room again
     IO4    crew: a file is over              driver, before it sleeps: one more is in the list */

enum { DLPI_FILES_MOST = 256 };

#ifndef DLPI_FILE_READ_MOST /* bytes that one read is asked for; tests want less */
#define DLPI_FILE_READ_MOST (UINT32_C(1) << 30)
#endif

enum {
    DLPI_FILE_FINE,
    DLPI_FILE_NO_OPEN,
    DLPI_FILE_NO_STAT,
    DLPI_FILE_IRREGULAR,
    DLPI_FILE_OUTSIDE, /* the stretch is not within the file */
    DLPI_FILE_TOO_BIG,
    DLPI_FILE_TOO_SMALL,
    DLPI_FILE_RAGGED, /* not a whole number of rows */
    DLPI_FILE_NO_READ,
    DLPI_FILE_SHRANK
};

typedef struct dlpi_file {
    struct dlpi_file *next; /* in the list that it is in */
    dlp_item *item;
    dlp_extent at;
    uint8_t *buffer;          /* for decode; NULL: direct */
    uint8_t *to;              /* where its bytes go */
    uint64_t size, want, got; /* of the file, where known; of the item */
    int fd;                   /* -1: not open */
    int what, errnum;         /* DLPI_FILE_*: what went wrong */
} dlpi_file;

typedef struct dlpi_files_list {
    dlpi_file *first, *last;
} dlpi_files_list;

typedef struct dlpi_sqe { /* io_uring's, include/uapi/linux/io_uring.h */
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t offset, address;
    uint32_t bytes, op_flags;
    uint64_t user_data, rest[3];
} dlpi_sqe;

typedef struct dlpi_cqe {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
} dlpi_cqe;

typedef struct dlpi_uring {
    int fd; /* -1: none */
    void *map, *sqe_map;
    size_t map_bytes, sqe_bytes;
    uint32_t *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    uint32_t tail, queued; /* of these many the kernel does not know yet */
    dlpi_sqe *sqe;
    dlpi_cqe *cqe;
} dlpi_uring;

struct dlp_files {
    dlp_files_desc d;
    int asked;         /* for async: workers make a ring or a crew */
    uint32_t users;    /* U2: workers of this process */
    uint64_t capacity; /* most bytes of an item */
    uint64_t unit;     /* bytes of a row of field 0; of all of it, if that is not ragged */
    bool ragged;       /* field 0 is */
    bool ring;         /* this system has io_uring */
    char backend[96];
};

typedef struct dlpi_files_worker {
    dlp_files *files;
    void *state;     /* what the user's worker_init left */
    dlpi_file *file; /* [in_flight] */
    void *memory;    /* rooms and buffers */
    dlpi_uring uring;
    pthread_mutex_t lock; /* of the lists, and of what follows */
    pthread_cond_t work;  /* there is something to do, or to end */
    pthread_cond_t room;  /* a record is free */
    dlpi_files_list free, todo, over;
    int at_work;        /* todo's, and those that the ring or the crew has */
    int stop, waits;    /* the driver sleeps */
    uint32_t over_word; /* IO4 */
    int n_crew;
    pthread_t *crew; /* [in_flight] */
} dlpi_files_worker;

static void dlpi_files_put(dlpi_files_list *l, dlpi_file *q) {
    q->next = NULL;
    if (l->first == NULL)
        l->first = q;
    else
        l->last->next = q;
    l->last = q;
}

static dlpi_file *dlpi_files_take(dlpi_files_list *l) {
    dlpi_file *q = l->first;
    if (q) l->first = q->next;
    return q;
}

/* ---- one file, step by step ---- */

static bool dlpi_file_fails(dlpi_file *q, int what, int errnum) {
    q->what = what;
    q->errnum = errnum;
    return false;
}

static void dlpi_file_close(dlpi_file *q) {
    if (q->fd >= 0 && q->at.fd < 0) close(q->fd);
    q->fd = -1;
}

/* Does an item of want bytes fit? */
static bool dlpi_file_fits(const dlp_files *f, dlpi_file *q) {
    if (q->want > f->capacity) return dlpi_file_fails(q, DLPI_FILE_TOO_BIG, 0);
    if (!f->d.direct) return true;
    if (!f->ragged && q->want < f->capacity) return dlpi_file_fails(q, DLPI_FILE_TOO_SMALL, 0);
    if (q->want % f->unit != 0) return dlpi_file_fails(q, DLPI_FILE_RAGGED, 0);
    return true;
}

/* It is open: what is there to read? Returns whether there is anything. */
static bool dlpi_file_measure(const dlp_files *f, dlpi_file *q) {
    struct stat st;
    q->want = q->at.length;
    if (q->at.fd < 0 || q->at.length == 0) {
        if (fstat(q->fd, &st) != 0) return dlpi_file_fails(q, DLPI_FILE_NO_STAT, errno);
        if (!S_ISREG(st.st_mode))
            return dlpi_file_fails(q, DLPI_FILE_IRREGULAR, S_ISDIR(st.st_mode) ? EISDIR : 0);
        q->size = (uint64_t)st.st_size;
        if (q->at.offset > q->size || q->at.length > q->size - q->at.offset)
            return dlpi_file_fails(q, DLPI_FILE_OUTSIDE, 0);
        if (q->want == 0) q->want = q->size - q->at.offset;
    }
    return dlpi_file_fits(f, q) && q->want > 0;
}

/* O_NONBLOCK: who opens a pipe that nobody writes to would wait for ever. On regular files it means
   nothing to open, but io_uring would take it for a wish not to wait for the disk. */
#define DLPI_FILE_OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/* fd: as open returned it, or -errno. Returns whether there is anything to read. */
static bool dlpi_file_opened(const dlp_files *f, dlpi_file *q, int fd) {
    if (fd >= 0 && q->at.fd < 0 && (fd = dlpi_fd_above(fd)) < 0) fd = -errno;
    if (fd < 0) return dlpi_file_fails(q, DLPI_FILE_NO_OPEN, -fd);
    q->fd = fd;
    if (!dlpi_file_measure(f, q)) return false;
    if (q->at.fd < 0) (void)fcntl(fd, F_SETFL, 0);
    return true;
}

static uint32_t dlpi_file_rest(const dlpi_file *q) {
    uint64_t rest = q->want - q->got;
    return rest < DLPI_FILE_READ_MOST ? (uint32_t)rest : DLPI_FILE_READ_MOST;
}

/* n: as pread returned it, or -errno. Returns whether there is more to read. */
static bool dlpi_file_got(dlpi_file *q, int64_t n) {
    if (n < 0) return dlpi_file_fails(q, DLPI_FILE_NO_READ, (int)-n);
    if (n == 0) return dlpi_file_fails(q, DLPI_FILE_SHRANK, 0);
    q->got += (uint64_t)n;
    return q->got < q->want;
}

static void dlpi_file_read_all(dlpi_file *q) {
    int64_t n;
    do {
        do n = pread(q->fd, q->to + q->got, dlpi_file_rest(q), (off_t)(q->at.offset + q->got));
        while (n < 0 && errno == EINTR);
    } while (dlpi_file_got(q, n < 0 ? -errno : n));
}

static int dlpi_file_open_now(const dlpi_file *q) {
    int fd;
    if (q->at.fd >= 0) return q->at.fd;
    do fd = open(q->at.path, DLPI_FILE_OPEN_FLAGS);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

/* All of it, in this thread. */
static void dlpi_file_run(const dlp_files *f, dlpi_file *q) {
    if (dlpi_file_opened(f, q, dlpi_file_open_now(q))) dlpi_file_read_all(q);
    dlpi_file_close(q);
}

/* Ask where item is. Returns 0, or what locate returned. */
static int dlpi_file_begin(const dlp_files *f, dlpi_file *q, dlp_item *item) {
    int rc = 0;
    char *room = q->at.room;
    q->item = item;
    q->to = q->buffer ? q->buffer : item->data[0];
    q->size = q->want = q->got = 0;
    q->what = q->errnum = 0;
    q->fd = -1;
    memset(&q->at, 0, sizeof q->at);
    q->at.fd = -1;
    q->at.path = q->at.room = room;
    room[0] = 0;
    if (f->d.paths)
        q->at.path = f->d.paths[item->index];
    else
        rc = f->d.locate(f->d.user, item, &q->at);
    q->at.room = room;  /* whatever locate made of it */
    if (rc == DLP_FULL) /* which would be taken for a submit that has no room */
        return dlp_item_fail(item, 0, "locate returned %d (DLP_FULL)", rc);
    if (rc == 0 && q->at.path == NULL && q->at.fd < 0)
        return dlp_item_fail(item, EINVAL, "there is no path for this item");
    if (rc == 0 && q->at.offset > INT64_MAX)
        return dlp_item_fail(item, EINVAL, "offset %" PRIu64 " is past any file", q->at.offset);
    return rc;
}

/* How messages call the file: the end of a long path says more than its beginning. */
static const char *dlpi_file_name(const dlpi_file *q, char *buf, size_t size) {
    size_t n;
    if (q->at.fd >= 0) {
        snprintf(buf, size, "file descriptor %d", q->at.fd);
        return buf;
    }
    n = strlen(q->at.path);
    if (n < size) return q->at.path;
    snprintf(buf, size, "...%s", q->at.path + n - (size - 4));
    return buf;
}

static int dlpi_file_complain(const dlp_files *f, const dlpi_file *q) {
    char buf[152];
    const char *name = dlpi_file_name(q, buf, sizeof buf);
    switch (q->what) {
    case DLPI_FILE_NO_OPEN: return dlp_item_fail(q->item, q->errnum, "%s: cannot be opened", name);
    case DLPI_FILE_NO_STAT: return dlp_item_fail(q->item, q->errnum, "%s: fstat failed", name);
    case DLPI_FILE_IRREGULAR:
        return dlp_item_fail(q->item, q->errnum, "%s: %s", name,
                             q->errnum ? "is a directory" : "is no regular file");
    case DLPI_FILE_OUTSIDE:
        return dlp_item_fail(q->item, 0,
                             "%s: has %" PRIu64 " bytes, the item has %" PRIu64 " from %" PRIu64,
                             name, q->size, q->at.length, q->at.offset);
    case DLPI_FILE_TOO_BIG:
    case DLPI_FILE_TOO_SMALL:
        dlp_item_fail(q->item, 0, "%s: %" PRIu64 " bytes, %s %" PRIu64, name, q->want,
                      f->d.direct && !f->ragged ? "the field takes" : "the most are", f->capacity);
        return DLP_ERR_LENGTH;
    case DLPI_FILE_RAGGED:
        dlp_item_fail(q->item, 0, "%s: %" PRIu64 " bytes are not whole rows of %" PRIu64, name,
                      q->want, f->unit);
        return DLP_ERR_LENGTH;
    case DLPI_FILE_NO_READ:
        return dlp_item_fail(q->item, q->errnum, "%s: cannot be read, at byte %" PRIu64, name,
                             q->at.offset + q->got);
    default:
        return dlp_item_fail(q->item, 0, "%s: ended after %" PRIu64 " of %" PRIu64 " bytes", name,
                             q->got, q->want);
    }
}

/* Make an item of what was read. Returns what fetch returns. */
static int dlpi_file_settle(const dlpi_files_worker *w, const dlpi_file *q) {
    const dlp_files *f = w->files;
    if (q->what != DLPI_FILE_FINE) return dlpi_file_complain(f, q);
    if (f->d.direct && f->ragged) q->item->length[0] = q->got / f->unit;
    if (f->d.decode == NULL) return 0;
    return f->d.decode(f->d.user, w->state, q->item, q->to, q->got);
}

/* ---- io_uring ---- */

#ifndef SYS_io_uring_setup /* the same everywhere but on alpha */
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

typedef struct dlpi_uring_params { /* struct io_uring_params */
    uint32_t sq_entries, cq_entries, flags, thread_cpu, thread_idle, features, wq_fd, rest[3];
    struct {
        uint32_t head, tail, mask, entries, flags, dropped, array, rest[3];
    } sq;
    struct {
        uint32_t head, tail, mask, entries, overflow, cqes, flags, rest[3];
    } cq;
} dlpi_uring_params;

_Static_assert(sizeof(dlpi_sqe) == 64 && sizeof(dlpi_cqe) == 16, "io_uring's layout");
_Static_assert(sizeof(dlpi_uring_params) == 120, "io_uring's layout");

enum {
    DLPI_URING_OPENAT = 18,
    DLPI_URING_READ = 22,
    DLPI_URING_SINGLE_MMAP = 1, /* of features */
    DLPI_URING_PROBE = 8,       /* of io_uring_register */
    DLPI_URING_OPS = 64,
    DLPI_URING_SQES_AT = 0x10000000 /* offset in the ring's file */
};

/* Has the kernel both operations? */
static bool dlpi_uring_can(int fd) {
    struct {
        uint8_t last, n;
        uint16_t rest0;
        uint32_t rest[3];
        struct {
            uint8_t op, rest0;
            uint16_t flags; /* 1: supported */
            uint32_t rest;
        } op[DLPI_URING_OPS];
    } probe;
    memset(&probe, 0, sizeof probe);
    return syscall(SYS_io_uring_register, fd, DLPI_URING_PROBE, &probe, DLPI_URING_OPS) == 0 &&
           (probe.op[DLPI_URING_OPENAT].flags & 1) != 0 &&
           (probe.op[DLPI_URING_READ].flags & 1) != 0;
}

static void dlpi_uring_close(dlpi_uring *u) {
    if (u->map) munmap(u->map, u->map_bytes);
    if (u->sqe_map) munmap(u->sqe_map, u->sqe_bytes);
    if (u->fd >= 0) close(u->fd);
    memset(u, 0, sizeof *u);
    u->fd = -1;
}

static void *dlpi_uring_map(int fd, size_t bytes, off_t at) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
    return map == MAP_FAILED ? NULL : map;
}

static int dlpi_uring_maps(dlpi_uring *u, const dlpi_uring_params *p) {
    size_t sq = p->sq.array + p->sq_entries * sizeof(uint32_t);
    size_t cq = p->cq.cqes + p->cq_entries * sizeof(dlpi_cqe);
    uint8_t *base;
    u->map_bytes = sq > cq ? sq : cq;
    u->sqe_bytes = p->sq_entries * sizeof(dlpi_sqe);
    u->map = dlpi_uring_map(u->fd, u->map_bytes, 0);
    if (u->map) u->sqe_map = dlpi_uring_map(u->fd, u->sqe_bytes, DLPI_URING_SQES_AT);
    if (u->sqe_map == NULL) return errno;
    base = u->map;
    u->sq_tail = (uint32_t *)(void *)(base + p->sq.tail);
    u->cq_head = (uint32_t *)(void *)(base + p->cq.head);
    u->cq_tail = (uint32_t *)(void *)(base + p->cq.tail);
    u->sq_mask = p->sq_entries - 1;
    u->cq_mask = p->cq_entries - 1;
    u->cqe = (dlpi_cqe *)(void *)(base + p->cq.cqes);
    u->sqe = u->sqe_map;
    for (uint32_t i = 0; i < p->sq_entries; i++) /* entry i is always at place i */
        ((uint32_t *)(void *)(base + p->sq.array))[i] = i;
    return 0;
}

/* Make a ring for n requests. Returns 0 or errno. */
static int dlpi_uring_open(dlpi_uring *u, uint32_t n) {
    dlpi_uring_params p;
    int rc;
    memset(u, 0, sizeof *u);
    memset(&p, 0, sizeof p);
    u->fd = dlpi_fd_above((int)syscall(SYS_io_uring_setup, n, &p));
    if (u->fd < 0) return errno;
    rc = ENOSYS;
    if ((p.features & DLPI_URING_SINGLE_MMAP) != 0 && dlpi_uring_can(u->fd))
        rc = dlpi_uring_maps(u, &p);
    if (rc != 0) dlpi_uring_close(u);
    return rc;
}

/* Give the kernel what is queued. Returns 0, also where it took only some, or errno. */
static int dlpi_uring_enter(dlpi_uring *u) {
    long n;
    DLPI_STORE_REL(u->sq_tail, u->tail); /* IO1 -> IO1: the entries before it */
    while (u->queued > 0) {
        n = syscall(SYS_io_uring_enter, u->fd, u->queued, 0u, 0u, NULL, (size_t)0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EBUSY ? 0 : errno;
        if (n == 0) break;
        u->queued -= (uint32_t)n;
    }
    return 0;
}

/* Sleep until there is a completion, or the time is over. */
static void dlpi_uring_wait(const dlpi_uring *u, int timeout_ms) {
    struct pollfd p = {u->fd, POLLIN, 0};
    (void)poll(&p, 1, timeout_ms);
}

static dlpi_sqe *dlpi_uring_put(dlpi_uring *u, uint8_t opcode, const dlpi_file *q) {
    dlpi_sqe *e = &u->sqe[u->tail++ & u->sq_mask];
    memset(e, 0, sizeof *e);
    e->opcode = opcode;
    e->user_data = (uint64_t)(uintptr_t)q;
    u->queued++;
    return e;
}

static bool dlpi_uring_take(dlpi_uring *u, dlpi_cqe *out) {
    uint32_t head = DLPI_LOAD_RLX(u->cq_head);           /* ours */
    if (head == DLPI_LOAD_ACQ(u->cq_tail)) return false; /* IO2 <- IO2 */
    *out = u->cqe[head & u->cq_mask];
    DLPI_STORE_REL(u->cq_head, head + 1); /* IO3 -> IO3 */
    return true;
}

/* ---- files by io_uring ---- */

static void dlpi_files_over(dlpi_files_worker *w, dlpi_file *q) {
    dlpi_file_close(q);
    w->at_work--;
    dlpi_files_put(&w->over, q);
}

static void dlpi_files_ring_read(dlpi_files_worker *w, const dlpi_file *q) {
    dlpi_sqe *e = dlpi_uring_put(&w->uring, DLPI_URING_READ, q);
    e->fd = q->fd;
    e->offset = q->at.offset + q->got;
    e->address = (uint64_t)(uintptr_t)(q->to + q->got);
    e->bytes = dlpi_file_rest(q);
}

static void dlpi_files_ring_begin(dlpi_files_worker *w, dlpi_file *q) {
    dlpi_sqe *e;
    w->at_work++;
    if (q->at.fd >= 0) {
        if (dlpi_file_opened(w->files, q, q->at.fd))
            dlpi_files_ring_read(w, q);
        else
            dlpi_files_over(w, q);
        return;
    }
    e = dlpi_uring_put(&w->uring, DLPI_URING_OPENAT, q);
    e->fd = AT_FDCWD;
    e->address = (uint64_t)(uintptr_t)q->at.path;
    e->op_flags = DLPI_FILE_OPEN_FLAGS;
}

/* A request came back. What the kernel would not do by the ring is done here, which is seldom. */
static void dlpi_files_ring_step(dlpi_files_worker *w, dlpi_file *q, int result) {
    bool refused = result == -EAGAIN || result == -EINTR || result == -EOPNOTSUPP;
    bool more;
    if (q->fd < 0)
        more = dlpi_file_opened(w->files, q, refused ? dlpi_file_open_now(q) : result);
    else if (refused)
        more = (dlpi_file_read_all(q), false);
    else
        more = dlpi_file_got(q, result);
    if (more)
        dlpi_files_ring_read(w, q);
    else
        dlpi_files_over(w, q);
}

/* Let the ring move. Returns 0 or errno. */
static int dlpi_files_ring_move(dlpi_files_worker *w) {
    dlpi_cqe e;
    int rc = dlpi_uring_enter(&w->uring);
    while (rc == 0 && dlpi_uring_take(&w->uring, &e))
        dlpi_files_ring_step(w, (dlpi_file *)(uintptr_t)e.user_data, e.result);
    if (rc == 0 && w->uring.queued > 0) rc = dlpi_uring_enter(&w->uring); /* their next steps */
    return rc;
}

/* Wait until the kernel has nothing of ours: it may write where requests point. */
static void dlpi_files_ring_drain(dlpi_files_worker *w) {
    dlpi_cqe e;
    while (w->at_work > (int)w->uring.queued) {
        while (dlpi_uring_take(&w->uring, &e)) {
            dlpi_file *q = (dlpi_file *)(uintptr_t)e.user_data;
            if (q->fd < 0) q->fd = e.result;
            dlpi_files_over(w, q);
        }
        if (w->at_work > (int)w->uring.queued) dlpi_uring_wait(&w->uring, 100);
    }
}

/* ---- files by threads ---- */

static void *dlpi_files_crew_thread(void *arg) {
    dlpi_files_worker *w = arg;
    dlpi_file *q;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->todo.first == NULL && !w->stop) pthread_cond_wait(&w->work, &w->lock);
        if (w->stop) break;
        q = dlpi_files_take(&w->todo);
        pthread_mutex_unlock(&w->lock);
        dlpi_file_run(w->files, q);
        pthread_mutex_lock(&w->lock);
        dlpi_files_over(w, q);
        DLPI_ADD_SEQ(&w->over_word, 1u); /* IO4 -> IO4 */
        if (w->waits) dlpi_futex_wake(&w->over_word, 1, UINT32_MAX, 0);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void dlpi_files_crew_begin(dlpi_files_worker *w, dlpi_file *q) {
    pthread_mutex_lock(&w->lock);
    w->at_work++;
    dlpi_files_put(&w->todo, q);
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

static void dlpi_files_crew_wait(dlpi_files_worker *w, uint64_t ns) {
    uint32_t word = DLPI_LOAD_SEQ(&w->over_word); /* IO4 <- IO4: before the list */
    pthread_mutex_lock(&w->lock);
    w->waits = w->over.first == NULL;
    pthread_mutex_unlock(&w->lock);
    if (w->waits) dlpi_futex_wait(&w->over_word, word, UINT32_MAX, ns, 0);
    pthread_mutex_lock(&w->lock);
    w->waits = 0;
    pthread_mutex_unlock(&w->lock);
}

static void dlpi_files_crew_end(dlpi_files_worker *w) {
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_crew; i++) pthread_join(w->crew[i], NULL);
    w->n_crew = 0;
}

/* Returns 0 if there is one thread at least, or errno. */
static int dlpi_files_crew_start(dlpi_files_worker *w) {
    int rc = 0;
    while (w->n_crew < w->files->d.in_flight && rc == 0) {
        rc = pthread_create(&w->crew[w->n_crew], NULL, dlpi_files_crew_thread, w);
        if (rc == 0) w->n_crew++;
    }
    return w->n_crew > 0 ? 0 : rc;
}

/* ---- what a pipe calls ---- */

static dlpi_file *dlpi_files_get(dlpi_files_worker *w, bool waits) {
    dlpi_file *q;
    pthread_mutex_lock(&w->lock);
    while (waits && w->free.first == NULL) pthread_cond_wait(&w->room, &w->lock);
    q = dlpi_files_take(&w->free);
    pthread_mutex_unlock(&w->lock);
    return q;
}

static void dlpi_files_give(dlpi_files_worker *w, dlpi_file *q) {
    pthread_mutex_lock(&w->lock);
    dlpi_files_put(&w->free, q);
    pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

static int dlpi_files_no_worker(const dlp_item *item) {
    return dlp_item_fail(item, 0, "a source of files wants the workers that dlp_files_wire sets");
}

/* dlp_dataset.fetch: the whole file, now. */
static int dlpi_files_fetch(void *user, dlp_item *item) {
    const dlp_files *f = user;
    dlpi_files_worker *w = item->worker_state;
    dlpi_file *q;
    int rc;
    if (w == NULL || w->files != f) return dlpi_files_no_worker(item);
    q = dlpi_files_get(w, true);
    rc = dlpi_file_begin(f, q, item);
    if (rc == 0) {
        dlpi_file_run(f, q);
        rc = dlpi_file_settle(w, q);
    }
    dlpi_files_give(w, q);
    return rc;
}

static int dlpi_files_submit(void *user, void *worker_state, dlp_item *item) {
    const dlp_files *f = user;
    dlpi_files_worker *w = worker_state;
    dlpi_file *q;
    int rc;
    if (w == NULL || w->files != f) return dlpi_files_no_worker(item);
    q = dlpi_files_get(w, false);
    if (q == NULL) return DLP_FULL;
    rc = dlpi_file_begin(f, q, item);
    if (rc != 0) {
        dlpi_files_give(w, q);
        return rc;
    }
    if (w->uring.fd >= 0) {
        dlpi_files_ring_begin(w, q);
        return 0;
    }
    dlpi_files_crew_begin(w, q);
    return 0;
}

/* Settle what is over. At most one that failed, as the last: a worker keeps the words of one. */
static int dlpi_files_settle(dlpi_files_worker *w, dlp_item **done, int *code, int max) {
    int n = 0, rc = 0;
    while (n < max && rc == 0) {
        dlpi_file *q;
        pthread_mutex_lock(&w->lock);
        q = dlpi_files_take(&w->over);
        pthread_mutex_unlock(&w->lock);
        if (q == NULL) break;
        rc = dlpi_file_settle(w, q);
        done[n] = q->item;
        code[n++] = rc;
        dlpi_files_give(w, q);
    }
    return n;
}

static bool dlpi_files_idle(dlpi_files_worker *w) {
    bool idle;
    pthread_mutex_lock(&w->lock);
    idle = w->at_work == 0 && w->over.first == NULL;
    pthread_mutex_unlock(&w->lock);
    return idle;
}

/* Sleep until something may have moved, or for ns. */
static void dlpi_files_wait(dlpi_files_worker *w, uint64_t ns) {
    if (w->uring.fd >= 0) {
        if (w->at_work > (int)w->uring.queued)
            dlpi_uring_wait(&w->uring, (int)(ns / 1000000u) + 1);
        else
            dlpi_nap(1000000); /* the kernel is short of memory for requests */
        return;
    }
    dlpi_files_crew_wait(w, ns);
}

static int dlpi_files_reap(void *user, void *worker_state, dlp_item **done, int *code, int max,
                           int timeout_ms) {
    dlpi_files_worker *w = worker_state;
    uint64_t until = 0, now;
    int n;
    DLPI_UNUSED(user);
    for (;;) {
        if (w->uring.fd >= 0 && dlpi_files_ring_move(w) != 0) return DLP_ERR_SYSTEM;
        n = dlpi_files_settle(w, done, code, max);
        if (n > 0 || timeout_ms == DLP_NOWAIT || dlpi_files_idle(w)) return n;
        now = dlpi_now_ns();
        if (until == 0)
            until = now + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000u : DLPI_SLEEP_NS);
        if (now >= until) return 0;
        dlpi_files_wait(w, until - now < DLPI_SLEEP_NS ? until - now : DLPI_SLEEP_NS);
    }
}

static uint64_t dlpi_files_stride(const dlp_files *f) { /* of a record's room and buffer */
    return dlpi_sum(DLP_FILES_ROOM, f->d.direct ? 0 : dlpi_round_up(f->d.max_bytes, 64));
}

static void dlpi_files_worker_free(dlpi_files_worker *w) {
    if (w == NULL) return;
    if (w->files) {
        dlpi_uring_close(&w->uring);
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->work);
        pthread_cond_destroy(&w->room);
        DLPI_ADD_SEQ(&w->files->users, UINT32_MAX); /* U2 -> U2 */
    }
    free(w->memory);
    free(w->file);
    free(w->crew);
    free(w);
}

static dlpi_files_worker *dlpi_files_worker_new(dlp_files *f) {
    size_t n = (size_t)f->d.in_flight, stride = (size_t)dlpi_files_stride(f);
    dlpi_files_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->file = calloc(n, sizeof *w->file);
    w->crew = calloc(n, sizeof *w->crew);
    if (w->file == NULL || w->crew == NULL ||
        posix_memalign(&w->memory, 64, (size_t)dlpi_times(n, stride)) != 0) {
        dlpi_files_worker_free(w);
        return NULL;
    }
    w->files = f;
    DLPI_ADD_SEQ(&f->users, 1u); /* U2 -> U2 */
    w->uring.fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->room, NULL);
    for (size_t i = 0; i < n; i++) {
        dlpi_file *q = &w->file[i];
        q->at.room = (char *)w->memory + i * stride;
        q->buffer = f->d.direct ? NULL : (uint8_t *)w->memory + i * stride + DLP_FILES_ROOM;
        q->fd = -1;
        dlpi_files_put(&w->free, q);
    }
    return w;
}

/* Nothing of ours is left with the kernel or a thread, and no file open. */
static void dlpi_files_worker_stop(dlpi_files_worker *w) {
    dlpi_files_crew_end(w);
    if (w->uring.fd >= 0) dlpi_files_ring_drain(w);
    for (int i = 0; i < w->files->d.in_flight; i++) dlpi_file_close(&w->file[i]);
}

static int dlpi_files_worker_init(void *user, int worker, void **state) {
    dlp_files *f = user;
    dlpi_files_worker *w = dlpi_files_worker_new(f);
    int rc = w ? 0 : ENOMEM;
    if (rc == 0 && f->asked)
        if (!f->ring || dlpi_uring_open(&w->uring, (uint32_t)f->d.in_flight) != 0)
            rc = dlpi_files_crew_start(w);
    if (rc == 0 && f->d.worker_init) rc = f->d.worker_init(f->d.user, worker, &w->state);
    if (rc == 0) {
        *state = w;
        return 0;
    }
    if (w) dlpi_files_worker_stop(w);
    dlpi_files_worker_free(w);
    return rc;
}

static void dlpi_files_worker_exit(void *user, int worker, void *state) {
    dlp_files *f = user;
    dlpi_files_worker *w = state;
    dlpi_files_worker_stop(w);
    if (f->d.worker_exit) f->d.worker_exit(f->d.user, worker, w->state);
    dlpi_files_worker_free(w);
}

/* ---- the source ---- */

static uint64_t dlpi_files_field_bytes(const dlp_field *f) { /* 0: there is no such field */
    uint64_t n, each = dlpi_dtype_bytes(f->dtype ? f->dtype : DLP_U8);
    if (f->ndim < (f->ragged ? 1 : 0) || f->ndim >= DLP_MAX_DIMS) return 0;
    n = dlpi_shape_count(f->shape, f->ndim);
    return n > DLPI_CELL_MAX ? 0 : n * each;
}

/* The first thing that is wrong with a desc, or NULL. */
static const char *dlpi_files_wrong(const dlp_files_desc *d, const char **field) {
    bool direct = d->direct || !d->decode;
    if (d->n_items == 0 || d->n_items > DLPI_MAX_ITEMS)
        return *field = "n_items", "1 to 2^48 items";
    if (d->fields == NULL || d->n_fields == 0)
        return *field = "fields", "there must be one at least";
    if ((d->paths == NULL) == (d->locate == NULL))
        return *field = "paths", "give either paths or locate";
    if (d->in_flight < 0 || d->in_flight > DLPI_FILES_MOST) return *field = "in_flight", "0 to 256";
    if (!direct && (d->max_bytes == 0 || d->max_bytes > UINT64_C(1) << 40))
        return *field = "max_bytes", "with a decode 1 to 2^40";
    if (direct && dlpi_files_field_bytes(d->fields) == 0)
        return *field = "fields[0]", "a dtype of 8 to 64 bits, a shape of 1 and more";
    return NULL;
}

static void dlpi_files_choose(dlp_files *f) {
    dlpi_uring u;
    int rc;
    if (f->d.use_threads) {
        dlpi_copy_text(f->backend, sizeof f->backend, "threads: use_threads is set");
        return;
    }
    rc = dlpi_uring_open(&u, 1);
    dlpi_uring_close(&u);
    f->ring = rc == 0;
    if (f->ring)
        dlpi_copy_text(f->backend, sizeof f->backend, "io_uring");
    else
        snprintf(f->backend, sizeof f->backend, "threads: io_uring is %s here (errno %d)",
                 rc == EPERM || rc == EACCES ? "forbidden" : "not to be had", rc);
}

DLPDEF int dlp_files_open(dlp_files **out, const dlp_files_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlp_files *f;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    wrong = dlpi_files_wrong(desc, &field);
    if (wrong) return dlpi_error_set(err, DLP_ERR_ARG, field, "%s: %s", field, wrong);
    f = calloc(1, sizeof *f);
    if (f == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    f->d = *desc;
    f->d.direct = desc->direct || desc->decode == NULL;
    f->d.in_flight = desc->in_flight ? desc->in_flight : 16;
    f->capacity = f->d.max_bytes;
    if (f->d.direct) {
        f->ragged = desc->fields[0].ragged != 0;
        f->capacity = dlpi_files_field_bytes(desc->fields);
        f->unit = f->ragged ? f->capacity / (uint64_t)desc->fields[0].shape[0] : f->capacity;
    }
    dlpi_files_choose(f);
    *out = f;
    return DLP_OK;
}

DLPDEF void dlp_files_wire(dlp_files *f, dlp_dataset *dataset, dlp_workers_desc *workers) {
    dataset->n_items = f->d.n_items;
    dataset->fields = f->d.fields;
    dataset->n_fields = f->d.n_fields;
    if (f->d.direct && f->d.n_fields == 1) dataset->fills_rows = 1;
    dataset->fetch = dlpi_files_fetch;
    dataset->user = f;
    workers->worker_init = dlpi_files_worker_init;
    workers->worker_exit = dlpi_files_worker_exit;
    workers->worker_user = f;
}

DLPDEF dlp_async dlp_files_async(dlp_files *f) {
    dlp_async async = {dlpi_files_submit, dlpi_files_reap};
    f->asked = 1;
    return async;
}

DLPDEF const char *dlp_files_backend(const dlp_files *f) { return f->backend; }

DLPDEF uint64_t dlp_files_worker_bytes(const dlp_files *f) {
    uint64_t each = dlpi_files_stride(f) + sizeof(dlpi_file) + sizeof(pthread_t);
    if (f->asked && f->ring) each += sizeof(dlpi_sqe) + 2 * sizeof(dlpi_cqe) + sizeof(uint32_t);
    return dlpi_sum(sizeof(dlpi_files_worker), dlpi_times((uint64_t)f->d.in_flight, each));
}

DLPDEF int dlp_files_close(dlp_files *f) {
    if (f == NULL) return DLP_OK;
    if (DLPI_LOAD_SEQ(&f->users) != 0) return DLP_ERR_BUSY; /* U2 <- U2 */
    free(f);
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-part-files PART QUEUE: FILES, DOWNLOADS
   Who downloads a file holds the lock of its temporary name. After waiting for the lock one looks
   again: the file may be there by now, and what one has open may have been renamed or removed. A
   file gets its own name by one rename, after its bytes are on disk; so whoever dies before has
   left nothing under that name, and the kernel has given back the lock. */

#include <sys/file.h>
#include <sys/stat.h>

#define DLPI_PATH_MAX 4096

/* The last bytes of a path, which say more than the first. */
static const char *dlpi_path_end(const char *path) {
    size_t n = strlen(path);
    return n > 150 ? path + n - 150 : path;
}

static int dlpi_file_fail(const dlp_part *part, const char *path, const char *call) {
    int errnum = errno;
    return dlp_part_fail(part, errnum, "%s: %s: %s", dlpi_path_end(path), call, strerror(errnum));
}

/* The download's own words, with the path before them. */
static int dlpi_download_fail(const dlp_part *part, const char *path, int rc) {
    const dlpi_wblock *wb = ((dlpi_worker *)part->internal)->wb;
    char text[256];
    memcpy(text, wb->message, sizeof text);
    if (text[0] == 0) snprintf(text, sizeof text, "download returned %d", rc);
    dlp_part_fail(part, wb->message_errno, "%s: %.100s", dlpi_path_end(path), text);
    return rc == DLP_ERR_LENGTH ? rc : DLP_ERR_CALLBACK; /* no part is left out by a download */
}

static bool dlpi_file_is(int fd, const char *path) {
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* dir: [DLPI_PATH_MAX] */
static void dlpi_directory_of(char *dir, const char *path) {
    char *slash;
    dlpi_copy_text(dir, DLPI_PATH_MAX, path);
    slash = strrchr(dir, '/');
    if (slash == NULL)
        dlpi_copy_text(dir, DLPI_PATH_MAX, ".");
    else
        slash[slash == dir] = 0;
}

/* Make a rename last. */
static int dlpi_directory_sync(const char *path) {
    char dir[DLPI_PATH_MAX];
    int fd, rc;
    dlpi_directory_of(dir, path);
    fd = dlpi_fd_above(open(dir, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return -1;
    rc = fsync(fd);
    close(fd);
    return rc;
}

/* Where all may write, others may have put anything under any name. There a file or link counts
   only if it is this user's or the directory's owner's (the rule of Linux' protected_symlinks). */
static bool dlpi_directory_shared(const char *path, struct stat *dir) {
    char name[DLPI_PATH_MAX];
    dlpi_directory_of(name, path);
    return stat(name, dir) == 0 && (dir->st_mode & S_IWOTH) != 0;
}

static bool dlpi_file_trusted(const struct stat *file, const char *path) {
    struct stat dir;
    return !dlpi_directory_shared(path, &dir) || file->st_uid == geteuid() ||
           file->st_uid == dir.st_uid;
}

/* A new file, never one that lies there or that a link leads to. */
static int dlpi_file_new(const char *path, mode_t mode) {
    return dlpi_fd_above(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

/* The same; a leftover is replaced. */
static int dlpi_file_anew(const char *path) {
    return unlink(path) == 0 || errno == ENOENT ? dlpi_file_new(path, 0666) : -1;
}

/* The temporary file, new or as another download left it: -1 with errno if what lies under its name
   can't be that. */
static int dlpi_download_open(const char *tmp) {
    struct stat st;
    mode_t mode = dlpi_directory_shared(tmp, &st) ? 0600 : 0666; /* nobody else is to lock it */
    int fd;
    do {
        if ((fd = dlpi_file_new(tmp, mode)) >= 0 || errno != EEXIST) return fd;
        fd = dlpi_fd_above(open(tmp, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    } while (fd < 0 && errno == ENOENT); /* it got its own name in between */
    if (fd < 0) return -1;
    /* a second name of it would be a file that is somebody's, to be written over */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1 &&
        dlpi_file_trusted(&st, tmp))
        return fd;
    close(fd);
    errno = EACCES;
    return -1;
}

/* The temporary file, locked and empty; -1: failed; -2: path is there by now. */
static int dlpi_download_begin(const dlp_part *part, const char *path, const char *tmp) {
    for (;;) {
        int fd = dlpi_download_open(tmp), rc;
        if (fd < 0) return dlpi_file_fail(part, tmp, "open"), -1;
        while ((rc = flock(fd, LOCK_EX)) != 0 && errno == EINTR) continue;
        if (rc == 0 && access(path, F_OK) == 0) {
            if (dlpi_file_is(fd, tmp)) unlink(tmp);
            close(fd);
            return -2;
        }
        if (rc == 0 && dlpi_file_is(fd, tmp)) {
            if (ftruncate(fd, 0) == 0) return fd;
            rc = -1;
        }
        if (rc != 0) dlpi_file_fail(part, tmp, "flock or ftruncate");
        close(fd);
        if (rc != 0) return -1;
    }
}

static int dlpi_download(const dlp_part_files *f, const dlp_part *part, const char *path) {
    char tmp[DLPI_PATH_MAX];
    int fd, rc;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp) {
        errno = ENAMETOOLONG;
        return dlpi_file_fail(part, path, "open");
    }
    if ((fd = dlpi_download_begin(part, path, tmp)) < 0) return fd == -2 ? 0 : DLP_ERR_CALLBACK;
    rc = f->download(f->user, part, path, fd);
    if (rc != 0)
        rc = dlpi_download_fail(part, path, rc);
    else if (fsync(fd) != 0)
        rc = dlpi_file_fail(part, tmp, "fsync");
    else if (rename(tmp, path) != 0)
        rc = dlpi_file_fail(part, path, "rename");
    else if (dlpi_directory_sync(path) != 0)
        rc = dlpi_file_fail(part, path, "fsync of its directory");
    if (rc != 0) unlink(tmp); /* while the lock is ours */
    close(fd);
    return rc;
}

/* Bytes [offset, offset + n) of the file, all of them. */
static int dlpi_file_read(const dlp_part *part, int fd, const char *path, uint64_t offset,
                          uint64_t n) {
    uint8_t *to = part->data;
    while (n > 0) {
        ssize_t got = pread(fd, to, n < (1u << 30) ? (size_t)n : 1u << 30, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return dlpi_file_fail(part, path, "read");
        if (got == 0)
            return dlp_part_fail(part, 0, "%s: it was cut while it was read", dlpi_path_end(path));
        to += got;
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

static int dlpi_part_read(const dlp_part_file *file, dlp_part *part, int fd, const char *path) {
    struct stat st;
    uint64_t size, n = file->bytes;
    if (fstat(fd, &st) != 0) return dlpi_file_fail(part, path, "fstat");
    size = (uint64_t)st.st_size;
    if (file->offset > size || n > size - file->offset)
        return dlp_part_fail(part, 0,
                             "%s: %" PRIu64 " bytes from %" PRIu64 " on are past its %" PRIu64,
                             dlpi_path_end(path), n, file->offset, size);
    if (n == 0) n = size - file->offset;
    part->bytes = n;
    if (n <= part->capacity) return dlpi_file_read(part, fd, path, file->offset, n);
    dlp_part_fail(part, 0, "%s: %" PRIu64 " bytes, max_part_bytes is %" PRIu64, dlpi_path_end(path),
                  n, part->capacity);
    return DLP_ERR_LENGTH;
}

/* What is kept from downloads is told from what others put there; all else is as the user says. */
static int dlpi_part_open(const dlp_part_files *f, const char *path) {
    struct stat st;
    int more = 0;
    if (f->download && lstat(path, &st) == 0) {
        errno = EACCES;
        if (!dlpi_file_trusted(&st, path)) return -1;
        more = S_ISLNK(st.st_mode) ? 0 : O_NOFOLLOW | O_NONBLOCK;
    }
    return dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC | more));
}

DLPDEF int dlp_part_files_load(void *files, dlp_part *part) {
    const dlp_part_files *f = files;
    char path[DLPI_PATH_MAX];
    const char *name;
    int fd, rc = 0;
    if (part->index >= f->n_files)
        return dlp_part_fail(part, 0, "there are %" PRIu64 " files", f->n_files);
    name = f->files[part->index].path;
    if (snprintf(path, sizeof path, "%s%s%s", f->dir ? f->dir : "", f->dir ? "/" : "", name) >=
        (int)sizeof path) {
        errno = ENAMETOOLONG;
        return dlpi_file_fail(part, name, "open");
    }
    fd = dlpi_part_open(f, path);
    if (fd < 0 && errno == ENOENT && f->download) {
        if ((rc = dlpi_download(f, part, path)) != 0) return rc;
        fd = dlpi_part_open(f, path);
    }
    if (fd < 0) return dlpi_file_fail(part, path, "open");
    rc = dlpi_part_read(&f->files[part->index], part, fd, path);
    close(fd);
    return rc;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-mapped     FILES THAT ARE MAPPED
   What >>tokens and >>arrays read. A file is mapped once, when its source is opened, and a row is
   copied out of the mapping into its place in the batch; no call of the system is made for it. With
   `reads` nothing is mapped and each row is a pread: slower, but a disk that fails, or a file that
   is cut in that moment, is then an error of the item, where a mapping ends the process by SIGBUS.

   So that a file that was cut since does not do that, its size is asked for before a row is read;
   not for each row, which would cost more than the row, but once in each tick of the coarse clock
   (1 to 10 ms, as the kernel is built) in which the file is read.

   label  atomic          written by                      read by
   U4     users           workers, as they begin and end  close of the source
   -      checked_ns,     any worker; what is lost is one fstat or one madvise
          advised, cold                                   any worker */

#include <sys/uio.h>

enum {
    DLPI_MAPPED_BLOCK = 1 << 20, /* bytes asked for at once, ahead of what is read in order */
    DLPI_MAPPED_COLD = 8         /* so many probes in a row find the data in memory: stop asking */
};

typedef struct dlpi_mapped {
    char *path;           /* its own */
    const uint8_t *bytes; /* NULL: the file is empty, or read */
    uint64_t size;
    uint64_t checked_ns; /* when it was last seen to be as long as that; 0: never */
    uint32_t advised;    /* 1 + MADV_SEQUENTIAL or MADV_RANDOM; 0: neither */
    int fd;              /* -1: not open */
} dlpi_mapped;

static inline uint64_t dlpi_coarse_ns(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#else
    return dlpi_now_ns() / 1000000u * 1000000u;
#endif
}

/* A failure at a file: "path: words". at: the byte that it is about. */
__attribute__((format(printf, 5, 6))) static int dlpi_mapped_error(dlp_error *err, int code,
                                                                   const char *path, uint64_t at,
                                                                   const char *format, ...) {
    char words[120];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return dlpi_error_set(err, code, "paths", "%.110s: byte %" PRIu64 ": %s",
                          strlen(path) > 110 ? path + strlen(path) - 110 : path, at, words);
}

static int dlpi_mapped_system(dlp_error *err, const char *path, const char *call, int errnum) {
    int code = errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM;
    dlpi_error_set(err, code, "paths", "%s: %s: %s", dlpi_path_end(path), call, strerror(errnum));
    if (err) err->errnum = errnum;
    return code;
}

static void dlpi_mapped_close(dlpi_mapped *m) {
    if (m->bytes) munmap((void *)(uintptr_t)m->bytes, (size_t)m->size);
    if (m->fd >= 0) close(m->fd);
    free(m->path);
    memset(m, 0, sizeof *m);
    m->fd = -1;
}

/* Open a regular file, and map it unless it is to be read. m: written whole; closed by the caller,
   also after a failure. */
static int dlpi_mapped_open(dlpi_mapped *m, const char *path, bool reads, dlp_error *err) {
    struct stat st;
    void *map;
    memset(m, 0, sizeof *m);
    m->fd = -1;
    if (path == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "paths: one of them is NULL");
    if ((m->path = strdup(path)) == NULL) return dlpi_mapped_system(err, path, "strdup", ENOMEM);
    do m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe: not to wait for ever */
    while (m->fd < 0 && errno == EINTR);
    if (m->fd >= 0) m->fd = dlpi_fd_above(m->fd);
    if (m->fd < 0) return dlpi_mapped_system(err, path, "open", errno);
    if (fstat(m->fd, &st) != 0) return dlpi_mapped_system(err, path, "fstat", errno);
    if (!S_ISREG(st.st_mode))
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "%s: %s", dlpi_path_end(path),
                              S_ISDIR(st.st_mode) ? "is a directory" : "is no regular file");
    m->size = (uint64_t)st.st_size;
    if (reads || m->size == 0) return DLP_OK;
    map = mmap(NULL, (size_t)m->size, PROT_READ, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED) return dlpi_mapped_system(err, path, "mmap", errno);
    m->bytes = map;
    return DLP_OK;
}

/* Read [at, at + n) of a file, n bytes. Returns how many there were; -1: errno. */
static int64_t dlpi_mapped_pread(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to) {
    uint64_t got = 0;
    while (got < n) {
        uint64_t rest = n - got < (1u << 30) ? n - got : 1u << 30;
        ssize_t k = pread(m->fd, (uint8_t *)to + got, (size_t)rest, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (uint64_t)k;
    }
    return (int64_t)got;
}

/* The same of what a file begins with, as its source is opened. what: of its format. */
static int dlpi_mapped_head(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const char *what, dlp_error *err) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", errno);
    if ((uint64_t)got == n) return DLP_OK;
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, at + (uint64_t)got,
                             "the file ends in its %s of %" PRIu64 " bytes", what, n);
}

/* Is the file still as long as it was? Says so if not. */
static int dlpi_mapped_check(dlpi_mapped *m, const dlp_item *item) {
    uint64_t now = dlpi_coarse_ns();
    struct stat st;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->checked_ns) == now)) return 0;
    if (fstat(m->fd, &st) != 0)
        return dlp_item_fail(item, errno, "%s: fstat failed", dlpi_path_end(m->path));
    if ((uint64_t)st.st_size < m->size)
        return dlp_item_fail(
            item, 0, "%s: was cut to %" PRIu64 " bytes, it had %" PRIu64 " when it was opened",
            dlpi_path_end(m->path), (uint64_t)st.st_size, m->size);
    DLPI_STORE_RLX(&m->checked_ns, now);
    return 0;
}

/* Copy bytes [at, at + n) of a file that is read. */
static int dlpi_mapped_read(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                            const dlp_item *item) {
    int64_t got = dlpi_mapped_pread(m, at, n, to);
    if (DLPI_LIKELY(got == (int64_t)n)) return 0;
    if (got < 0)
        return dlp_item_fail(item, errno, "%s: cannot be read, at byte %" PRIu64,
                             dlpi_path_end(m->path), at);
    return dlp_item_fail(item, 0,
                         "%s: ended at byte %" PRIu64 ", it had %" PRIu64 " when it was opened",
                         dlpi_path_end(m->path), at + (uint64_t)got, m->size);
}

/* Copy bytes [at, at + n), which are within the file as it was opened. */
static inline int dlpi_mapped_copy(const dlpi_mapped *m, uint64_t at, uint64_t n, void *to,
                                   const dlp_item *item) {
    if (DLPI_UNLIKELY(m->bytes == NULL)) return dlpi_mapped_read(m, at, n, to, item);
    memcpy(to, m->bytes + at, (size_t)n);
    return 0;
}

/* ---- read-ahead ---- */

/* Tell the system once how the file will be read: MADV_SEQUENTIAL or MADV_RANDOM. */
static inline void dlpi_mapped_advise(dlpi_mapped *m, int advice) {
    uint32_t word = 1u + (uint32_t)advice;
    if (DLPI_LIKELY(DLPI_LOAD_RLX(&m->advised) == word)) return;
    DLPI_STORE_RLX(&m->advised, word);
    if (m->bytes)
        (void)madvise((void *)(uintptr_t)m->bytes, (size_t)m->size, advice);
    else
        (void)posix_fadvise(m->fd, 0, 0,
                            advice == MADV_RANDOM ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
}

/* Is the byte at `at` in memory? A read that would wait for the disk is refused (Linux 4.14). */
static bool dlpi_mapped_is_here(const dlpi_mapped *m, uint64_t at) {
#if defined(SYS_preadv2)
    enum { NO_WAIT = 8 }; /* RWF_NOWAIT */
    char byte;
    struct iovec to = {&byte, 1};
    return syscall(SYS_preadv2, m->fd, &to, 1L, (long)at, 0L, (long)NO_WAIT) >= 0 ||
           errno != EAGAIN;
#else
    (void)m;
    (void)at;
    return false;
#endif
}

/* Ask for bytes [at, at + n), as far as the file has them, without waiting: what MADV_WILLNEED does
   to a mapping, too. */
static void dlpi_mapped_will_need(const dlpi_mapped *m, uint64_t at, uint64_t n) {
    if (at < m->size) (void)posix_fadvise(m->fd, (off_t)at, (off_t)n, POSIX_FADV_WILLNEED);
}

/* ---- workers that use a source ---- */

static int dlpi_users_enter(void *user, int worker, void **state) {
    (void)worker;
    (void)state;
    DLPI_ADD_SEQ((uint32_t *)user, 1u); /* U4 -> U4 */
    return 0;
}

static void dlpi_users_leave(void *user, int worker, void *state) {
    (void)worker;
    (void)state;
    DLPI_ADD_SEQ((uint32_t *)user, UINT32_MAX); /* U4 -> U4: one less */
}

static void dlpi_users_wire(uint32_t *users, dlp_workers_desc *workers) {
    workers->worker_init = dlpi_users_enter;
    workers->worker_exit = dlpi_users_leave;
    workers->worker_user = users;
}

static bool dlpi_users_any(const uint32_t *users) {
    return DLPI_LOAD_SEQ(users) != 0; /* U4 <- U4 */
}

/* A saved state knows which data it is of by the sampler's function_id, but where that is the
   user's own number for an order. */
static void dlpi_source_id(uint64_t id, dlp_sampler_desc *sampler) {
    if (sampler->function == NULL && sampler->batches.next == NULL) sampler->function_id = id;
}

#include <glob.h>
/* ---------------------------------------------------------------------------------------------
   >>impl-tokens     TOKENS OUT OF SHARDS
   first[i] is the dataset index of the first item of shard i, and first[n_shards] that of none: so
   the shard of an item is found by halving. Within a shard all is arithmetic. */

enum {
    DLPI_LLMC_WORDS = 256,
    DLPI_LLMC_BYTES = 4 * DLPI_LLMC_WORDS,
    DLPI_LLMC_U16 = 20240520,
    DLPI_LLMC_U32 = 20240801
};
#define DLPI_TOKENS_SHARDS (UINT64_C(1) << 20)

struct dlp_tokens {
    dlp_tokens_info info;
    dlp_field field;
    int32_t format, read_ahead;
    bool reads;
    uint64_t width;        /* bytes of a token in a shard */
    uint64_t item_step;    /* bytes from one item to the next */
    uint64_t row_bytes;    /* of a window as it is delivered */
    uint64_t header_bytes; /* of DLP_TOKENS_U16 and _U32 */
    uint32_t users;        /* U4 */
    uint32_t cold;         /* above 0: data are not all in memory */
    uint64_t *first;       /* [n_shards + 1] */
    dlpi_mapped *files;    /* [n_shards] */
    dlp_tokens_shard *shards;
};

/* ---- which shards ---- */

static int dlpi_tokens_by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Where glob could not look: what it makes of its errors has neither the path nor errno. */
static _Thread_local struct dlpi_glob_note {
    int errnum;
    char path[160];
} dlpi_glob_note;

static int dlpi_glob_failed(const char *path, int errnum) {
    dlpi_glob_note.errnum = errnum;
    dlpi_copy_text(dlpi_glob_note.path, sizeof dlpi_glob_note.path, dlpi_path_end(path));
    return errnum != ENOENT && errnum != ENOTDIR; /* else it matches nothing there */
}

/* The paths that match, sorted. found: to be given to globfree, whatever is returned. */
static int dlpi_tokens_glob(const char *pattern, glob_t *found, dlp_error *err) {
    int rc;
    memset(found, 0, sizeof *found);
    rc = glob(pattern, GLOB_NOSORT, dlpi_glob_failed, found);
    if (rc == GLOB_NOSPACE) return dlpi_mapped_system(err, pattern, "glob", ENOMEM);
    if (rc == GLOB_ABORTED)
        return dlpi_mapped_system(err, dlpi_glob_note.path, "opendir", dlpi_glob_note.errnum);
    if (rc != 0 || found->gl_pathc == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "pattern", "%s: no file matches",
                              dlpi_path_end(pattern));
    qsort(found->gl_pathv, found->gl_pathc, sizeof *found->gl_pathv, dlpi_tokens_by_bytes);
    return DLP_OK;
}

/* ---- what a shard has ---- */

static uint32_t dlpi_little32(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool dlpi_llmc_magic(uint32_t word) {
    return word == DLPI_LLMC_U16 || word == DLPI_LLMC_U32;
}

/* Which format is it, by the first shard? */
static int dlpi_tokens_guess(dlp_tokens *t, const dlpi_mapped *m, dlp_error *err) {
    uint8_t head[4] = {0};
    int64_t got = dlpi_mapped_pread(m, 0, sizeof head, head);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", errno);
    t->format =
        got == 4 && dlpi_llmc_magic(dlpi_little32(head)) ? DLP_TOKENS_LLMC : DLP_TOKENS_NANOGPT;
    return DLP_OK;
}

static int dlpi_tokens_width(dlp_tokens *t, const dlpi_mapped *m, uint64_t width, dlp_error *err) {
    if (t->width != 0 && t->width != width)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "tokens of %" PRIu64 " bytes, the first shard's have %" PRIu64,
                                 width, t->width);
    t->width = width;
    return DLP_OK;
}

/* What llm.c's header says has to be what the file is. */
static int dlpi_tokens_llmc(dlp_tokens *t, const dlpi_mapped *m, dlp_tokens_shard *s,
                            dlp_error *err) {
    uint8_t head[DLPI_LLMC_BYTES];
    uint32_t magic, version, tokens, known;
    int rc = dlpi_mapped_head(m, 0, sizeof head, head, "header", err);
    if (rc != DLP_OK) return rc;
    magic = dlpi_little32(head);
    version = dlpi_little32(head + 4);
    tokens = dlpi_little32(head + 8);
    if (!dlpi_llmc_magic(magic))
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "magic %" PRIu32 ", llm.c's are %d and %d", magic, DLPI_LLMC_U16,
                                 DLPI_LLMC_U32);
    known = magic == DLPI_LLMC_U16 ? 1 : 7;
    if (version != known)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 4,
                                 "version %" PRIu32 ", known is %" PRIu32, version, known);
    if ((rc = dlpi_tokens_width(t, m, magic == DLPI_LLMC_U16 ? 2 : 4, err)) != DLP_OK) return rc;
    if (m->size != DLPI_LLMC_BYTES + tokens * t->width)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 8,
                                 "%" PRIu32 " tokens want %" PRIu64 " bytes, the file has %" PRIu64,
                                 tokens, DLPI_LLMC_BYTES + tokens * t->width, m->size);
    s->header_bytes = DLPI_LLMC_BYTES;
    s->tokens = tokens;
    return DLP_OK;
}

/* Tokens behind a header that says nothing. */
static int dlpi_tokens_raw(dlp_tokens *t, const dlpi_mapped *m, dlp_tokens_shard *s,
                           dlp_error *err) {
    uint64_t bytes, width = t->format == DLP_TOKENS_U32 ? 4 : 2;
    int rc = dlpi_tokens_width(t, m, width, err);
    uint8_t head[4];
    if (rc != DLP_OK) return rc;
    if (m->size < t->header_bytes)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size,
                                 "the file ends in its header of %" PRIu64 " bytes",
                                 t->header_bytes);
    bytes = m->size - t->header_bytes;
    if (bytes % width != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size - bytes % width,
                                 "ends in %" PRIu64 " bytes of a token of %" PRIu64, bytes % width,
                                 width);
    if (t->format == DLP_TOKENS_NANOGPT && dlpi_mapped_pread(m, 0, 4, head) == 4 &&
        dlpi_llmc_magic(dlpi_little32(head)))
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "begins with a magic of llm.c: DLP_TOKENS_LLMC?");
    s->header_bytes = t->header_bytes;
    s->tokens = bytes / width;
    return DLP_OK;
}

/* Items of a shard, and what they leave. */
static void dlpi_tokens_count(const dlp_tokens *t, dlp_tokens_shard *s) {
    uint64_t row = t->info.length + 1, windows = 0;
    if (s->tokens >= row) windows = (s->tokens - row) / t->info.stride + 1;
    s->items = windows / t->info.windows;
    s->left_out = s->tokens;
    if (s->items > 0) /* behind the last window; tokens between windows do not count */
        s->left_out -= (s->items * t->info.windows - 1) * t->info.stride + row;
}

static int dlpi_tokens_shard_open(dlp_tokens *t, uint64_t i, const char *path, dlp_error *err) {
    dlpi_mapped *m = &t->files[i];
    dlp_tokens_shard *s = &t->shards[i];
    int rc = dlpi_mapped_open(m, path, t->reads, err);
    s->path = m->path;
    if (rc == DLP_OK && t->format == DLP_TOKENS_AUTO) rc = dlpi_tokens_guess(t, m, err);
    if (rc == DLP_OK)
        rc = t->format == DLP_TOKENS_LLMC ? dlpi_tokens_llmc(t, m, s, err)
                                          : dlpi_tokens_raw(t, m, s, err);
    if (rc != DLP_OK) return rc;
    dlpi_tokens_count(t, s);
    if (s->items > DLPI_MAX_ITEMS - t->first[i])
        return dlpi_error_set(err, DLP_ERR_ARG, "paths",
                              "%s: with it there are more than 2^48 items", dlpi_path_end(path));
    s->first_item = t->first[i];
    t->first[i + 1] = t->first[i] + s->items;
    t->info.tokens = dlpi_sum(t->info.tokens, s->tokens);
    t->info.left_out = dlpi_sum(t->info.left_out, s->left_out);
    t->info.id = dlp_hash(t->info.id, s->tokens, i, 0);
    return DLP_OK;
}

/* ---- open, close ---- */

/* The first thing that is wrong with a desc, or NULL. */
static const char *dlpi_tokens_wrong(const dlp_tokens_desc *d, const char **field) {
    static const struct {
        const char *field, *text;
    } wrongs[] = {{"pattern", "give either pattern or paths"},
                  {"n_paths", "1 to 2^20 with paths, 0 with a pattern"},
                  {"format", "DLP_TOKENS_*"},
                  {"windows", "0 to 2^20"},
                  {"header_bytes", "0, but for DLP_TOKENS_U16 and _U32; under 2^62"},
                  {"length", "1 to 2^30"},
                  {"stride", "0 to 2^48"},
                  {"widen", "0 or 1"},
                  {"reads", "0 or 1"},
                  {"read_ahead", "DLP_NONE, or 0 and more"}};
    bool raw = d->format == DLP_TOKENS_U16 || d->format == DLP_TOKENS_U32;
    const bool is[] = {(d->pattern == NULL) == (d->paths == NULL),
                       d->paths ? d->n_paths == 0 || d->n_paths > DLPI_TOKENS_SHARDS
                                : d->n_paths != 0,
                       d->format < DLP_TOKENS_AUTO || d->format > DLP_TOKENS_U32,
                       d->windows > 1u << 20,
                       d->header_bytes > (raw ? UINT64_C(1) << 62 : 0),
                       d->length == 0 || d->length > UINT64_C(1) << 30,
                       d->stride > UINT64_C(1) << 48,
                       d->widen != 0 && d->widen != 1,
                       d->reads != 0 && d->reads != 1,
                       d->read_ahead < DLP_NONE};
    _Static_assert(sizeof is / sizeof *is == sizeof wrongs / sizeof *wrongs, "one for each");
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        if (is[i]) return *field = wrongs[i].field, wrongs[i].text;
    return NULL;
}

static void dlpi_tokens_free(dlp_tokens *t) {
    for (uint64_t i = 0; t->files && i < t->info.n_shards; i++) dlpi_mapped_close(&t->files[i]);
    free(t->files);
    free(t->shards);
    free(t->first);
    free(t);
}

/* A source of n shards, none of them open yet; NULL: no memory. */
static dlp_tokens *dlpi_tokens_new(const dlp_tokens_desc *d, uint64_t n) {
    dlp_tokens *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->format = d->format;
    t->reads = d->reads != 0;
    t->read_ahead = d->read_ahead ? d->read_ahead : 256;
    t->header_bytes = d->header_bytes;
    t->info.length = d->length;
    t->info.stride = d->stride ? d->stride : d->length;
    t->info.windows = d->windows ? d->windows : 1;
    t->info.id = dlp_hash(UINT64_C(0x736e656b6f74), t->info.length, t->info.stride,
                          t->info.windows); /* "tokens" */
    t->files = calloc((size_t)n, sizeof *t->files);
    t->shards = calloc((size_t)n, sizeof *t->shards);
    t->first = calloc((size_t)n + 1, sizeof *t->first);
    if (t->files && t->shards && t->first) {
        for (uint64_t i = 0; i < n; i++) t->files[i].fd = -1;
        t->info.n_shards = n;
        t->info.shards = t->shards;
        return t;
    }
    dlpi_tokens_free(t);
    return NULL;
}

/* What a row is, once the shards are known. */
static void dlpi_tokens_rows(dlp_tokens *t, bool widen) {
    dlp_field *f = &t->field;
    t->info.stored = t->width == 4 ? DLP_U32 : DLP_U16;
    t->info.dtype = widen ? DLP_I32 : t->info.stored;
    t->info.n_items = t->first[t->info.n_shards];
    t->row_bytes = (t->info.length + 1) * (t->info.dtype == DLP_U16 ? 2 : 4);
    t->item_step = dlpi_times(dlpi_times(t->info.stride, t->info.windows), t->width);
    f->name = "tokens";
    f->dtype = t->info.dtype;
    if (t->info.windows > 1) f->shape[f->ndim++] = (int64_t)t->info.windows;
    f->shape[f->ndim++] = (int64_t)t->info.length + 1;
}

static int dlpi_tokens_open_paths(dlp_tokens **out, const dlp_tokens_desc *d,
                                  const char *const *paths, uint64_t n, dlp_error *err) {
    dlp_tokens *t = dlpi_tokens_new(d, n);
    int rc = DLP_OK;
    if (t == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    for (uint64_t i = 0; i < n && rc == DLP_OK; i++)
        rc = dlpi_tokens_shard_open(t, i, paths[i], err);
    if (rc == DLP_OK && t->first[n] == 0)
        rc = dlpi_error_set(err, DLP_ERR_ARG, "length",
                            "%" PRIu64 " tokens in %" PRIu64 " shards: not one item of %" PRIu64
                            " windows of %" PRIu64 " tokens in any of them",
                            t->info.tokens, n, t->info.windows, t->info.length + 1);
    if (rc != DLP_OK) {
        dlpi_tokens_free(t);
        return rc;
    }
    dlpi_tokens_rows(t, d->widen != 0);
    *out = t;
    return DLP_OK;
}

DLPDEF int dlp_tokens_open(dlp_tokens **out, const dlp_tokens_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    glob_t found;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    wrong = dlpi_tokens_wrong(desc, &field);
    if (wrong) return dlpi_error_set(err, DLP_ERR_ARG, field, "%s: %s", field, wrong);
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "tokens are little-endian");
    if (desc->paths) return dlpi_tokens_open_paths(out, desc, desc->paths, desc->n_paths, err);
    rc = dlpi_tokens_glob(desc->pattern, &found, err);
    if (rc == DLP_OK && found.gl_pathc > DLPI_TOKENS_SHARDS)
        rc = dlpi_error_set(err, DLP_ERR_ARG, "pattern", "%zu files match, 2^20 is the most",
                            (size_t)found.gl_pathc);
    if (rc == DLP_OK)
        rc = dlpi_tokens_open_paths(out, desc, (const char *const *)found.gl_pathv, found.gl_pathc,
                                    err);
    globfree(&found);
    return rc;
}

DLPDEF const dlp_tokens_info *dlp_tokens_describe(const dlp_tokens *t) { return &t->info; }

DLPDEF int dlp_tokens_close(dlp_tokens *t) {
    if (t == NULL) return DLP_OK;
    if (dlpi_users_any(&t->users)) return DLP_ERR_BUSY;
    dlpi_tokens_free(t);
    return DLP_OK;
}

/* ---- rows ---- */

/* The shard of an item: the last one that begins at it or before. */
static inline uint64_t dlpi_tokens_find(const dlp_tokens *t, uint64_t index) {
    uint64_t low = 0, n = t->info.n_shards;
    while (n > 1) {
        uint64_t half = n / 2;
        low = t->first[low + half] <= index ? low + half : low;
        n -= half;
    }
    return low;
}

/* Where in its file item begins. */
static inline uint64_t dlpi_tokens_at(const dlp_tokens *t, uint64_t shard, uint64_t index) {
    return t->shards[shard].header_bytes + (index - t->first[shard]) * t->item_step;
}

/* n tokens of 16 bits, not aligned, become as many of 32. They may lie in the second half of where
   these go, since what is written never overtakes what is still to be read: a block is read whole
   before it is written. */
static void dlpi_tokens_widen(const uint8_t *from, uint64_t n, uint8_t *to) {
    typedef uint16_t narrow __attribute__((vector_size(16)));
    typedef uint32_t wide __attribute__((vector_size(32)));
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        narrow v;
        wide w;
        memcpy(&v, from + 2 * i, sizeof v);
        w = __builtin_convertvector(v, wide);
        memcpy(to + 4 * i, &w, sizeof w);
    }
    for (; i < n; i++) {
        uint32_t w = (uint32_t)from[2 * i] | (uint32_t)from[2 * i + 1] << 8;
        memcpy(to + 4 * i, &w, sizeof w);
    }
}

/* One window. The only copy that is made of it. */
static inline int dlpi_tokens_row(const dlp_tokens *t, const dlpi_mapped *m, uint64_t at,
                                  uint8_t *to, const dlp_item *it) {
    uint64_t n = t->info.length + 1, bytes = n * t->width;
    uint8_t *behind = to + (t->row_bytes - bytes);
    int rc;
    if (t->row_bytes == bytes) return dlpi_mapped_copy(m, at, bytes, to, it);
    if (DLPI_LIKELY(m->bytes != NULL)) {
        dlpi_tokens_widen(m->bytes + at, n, to);
        return 0;
    }
    rc = dlpi_mapped_read(m, at, bytes, behind, it);
    if (rc == 0) dlpi_tokens_widen(behind, n, to);
    return rc;
}

/* Bytes of an item in its shard. */
static inline uint64_t dlpi_tokens_span(const dlp_tokens *t) {
    return t->item_step + (t->info.length + 1) * t->width - t->info.stride * t->width;
}

/* The next indices of a shuffled order, as this thread has computed them last. Nothing in it is of
   one source: it follows from n, seed and epoch. */
enum {
    DLPI_LOOK_BLOCK = 64,
    DLPI_LOOK_NEXT = 3,    /* rows from the one that is copied to the one that is meant */
    DLPI_LOOK_BYTES = 4096 /* of it; behind these the caches go on by themselves */
};

typedef struct dlpi_look {
    uint64_t n, seed, epoch, first; /* n 0: nothing yet */
    uint64_t index[DLPI_LOOK_BLOCK + DLPI_LOOK_NEXT];
} dlpi_look;

static _Thread_local dlpi_look dlpi_tokens_look;

__attribute__((noinline)) static void dlpi_look_fill(dlpi_look *l, uint64_t n, const dlp_item *it) {
    uint64_t first = it->position / DLPI_LOOK_BLOCK * DLPI_LOOK_BLOCK;
    uint64_t count = DLPI_LOOK_BLOCK + DLPI_LOOK_NEXT;
    dlp_permutation order;
    l->n = n;
    l->seed = it->seed;
    l->epoch = it->epoch;
    l->first = first;
    if (first >= n || dlp_permutation_init(&order, n, it->seed, it->epoch) != DLP_OK) return;
    if (count > n - first) count = n - first;
    dlp_permutation_block(&order, first, (uint32_t)count, l->index);
    for (; count < DLPI_LOOK_BLOCK + DLPI_LOOK_NEXT; count++) l->index[count] = 0;
}

/* Have the caches fetch a row that comes soon: windows out of order lie where nobody guesses them,
   and each waits for the page tables and the memory otherwise, a quarter of what a row costs. */
static inline void dlpi_tokens_touch(const dlp_tokens *t, const dlp_item *it) {
    dlpi_look *l = &dlpi_tokens_look;
    uint64_t k = it->position % DLPI_LOOK_BLOCK, shard, bytes = dlpi_tokens_span(t);
    const uint8_t *at;
    if (DLPI_UNLIKELY(l->n != t->info.n_items || l->first != it->position - k ||
                      l->epoch != it->epoch || l->seed != it->seed))
        dlpi_look_fill(l, t->info.n_items, it);
    if (DLPI_UNLIKELY(l->index[k] != it->index)) return; /* another order */
    shard = dlpi_tokens_find(t, l->index[k + DLPI_LOOK_NEXT]);
    if (t->files[shard].bytes == NULL) return;
    at = t->files[shard].bytes + dlpi_tokens_at(t, shard, l->index[k + DLPI_LOOK_NEXT]);
    for (uint64_t i = 0; i < bytes && i < DLPI_LOOK_BYTES; i += 64) __builtin_prefetch(at + i);
}

/* Ask the system for what comes read_ahead items after this one, if it is not in memory, or others
   were not a moment ago. */
__attribute__((noinline)) static void dlpi_tokens_shuffled_ahead(dlp_tokens *t, const dlp_item *it,
                                                                 bool probe) {
    uint64_t next = it->position + (uint64_t)t->read_ahead, shard, at;
    uint32_t cold = DLPI_LOAD_RLX(&t->cold);
    dlp_permutation order;
    if (next >= t->info.n_items ||
        dlp_permutation_init(&order, t->info.n_items, it->seed, it->epoch) != DLP_OK ||
        dlp_permutation_at(&order, it->position) != it->index)
        return;
    next = dlp_permutation_at(&order, next);
    shard = dlpi_tokens_find(t, next);
    at = dlpi_tokens_at(t, shard, next);
    if (probe) {
        bool here = dlpi_mapped_is_here(&t->files[shard], at);
        cold = !here ? (uint32_t)DLPI_MAPPED_COLD : cold > 0 ? cold - 1 : 0;
        DLPI_STORE_RLX(&t->cold, cold);
    }
    if (cold > 0) dlpi_mapped_will_need(&t->files[shard], at, dlpi_tokens_span(t));
}

static inline void dlpi_tokens_shuffled(dlp_tokens *t, const dlp_item *it, dlpi_mapped *m) {
    /* one of 64 positions, whichever of them are this rank's */
    bool probe = it->position * UINT64_C(0x9e3779b97f4a7c15) >> 58 == 0;
    dlpi_mapped_advise(m, MADV_RANDOM);
    if (t->info.n_items >= DLP_PERMUTATION_TABLE && !t->reads) dlpi_tokens_touch(t, it);
    if (DLPI_LIKELY(!probe && DLPI_LOAD_RLX(&t->cold) == 0) || t->read_ahead == DLP_NONE) return;
    dlpi_tokens_shuffled_ahead(t, it, probe);
}

/* The first item of a block asks for the next one. */
static inline void dlpi_tokens_in_order(const dlp_tokens *t, dlpi_mapped *m, uint64_t at) {
    dlpi_mapped_advise(m, MADV_SEQUENTIAL);
    if (at % DLPI_MAPPED_BLOCK >= t->item_step || t->read_ahead == DLP_NONE) return;
    at += dlpi_tokens_span(t);
    if (!dlpi_mapped_is_here(m, at)) dlpi_mapped_will_need(m, at, DLPI_MAPPED_BLOCK);
}

static int dlpi_tokens_fetch(void *user, dlp_item *it) {
    dlp_tokens *t = user;
    uint64_t shard = dlpi_tokens_find(t, it->index), at = dlpi_tokens_at(t, shard, it->index);
    dlpi_mapped *m = &t->files[shard];
    uint8_t *to = it->data[0];
    int rc = m->bytes ? dlpi_mapped_check(m, it) : 0;
    if (DLPI_UNLIKELY(rc != 0)) return rc;
    if (it->position == it->index) /* the dataset's own order: the item tells */
        dlpi_tokens_in_order(t, m, at);
    else
        dlpi_tokens_shuffled(t, it, m);
    for (uint64_t i = 0; i < t->info.windows && rc == 0; i++)
        rc = dlpi_tokens_row(t, m, at + i * t->info.stride * t->width, to + i * t->row_bytes, it);
    return rc;
}

DLPDEF void dlp_tokens_wire(dlp_tokens *t, dlp_dataset *dataset, dlp_workers_desc *workers,
                            dlp_sampler_desc *sampler) {
    dataset->n_items = t->info.n_items;
    dataset->fields = &t->field;
    dataset->n_fields = 1;
    dataset->fills_rows = 1;
    dataset->fetch = dlpi_tokens_fetch;
    dataset->user = t;
    dataset->stream = 0;
    dlpi_users_wire(&t->users, workers);
    dlpi_source_id(t->info.id, sampler);
}

DLPDEF int dlp_tokens_loader_open(dlp_pipe **out, dlp_tokens **tokens,
                                  const dlp_tokens_loader_desc *desc, dlp_error *err) {
    dlp_tokens_desc source;
    dlp_loader_desc loader;
    dlp_tokens *t;
    int rc;
    if (out == NULL || tokens == NULL || desc == NULL) {
        const char *name = out == NULL ? "out" : tokens == NULL ? "tokens" : "desc";
        return dlpi_error_set(err, DLP_ERR_ARG, name, "%s is NULL", name);
    }
    source = desc->tokens;
    loader = desc->loader;
    if (source.read_ahead == 0 && loader.batch_size <= 1u << 20)
        source.read_ahead = 4 * (int32_t)loader.batch_size;
    if ((rc = dlp_tokens_open(&t, &source, err)) != DLP_OK) return rc;
    dlp_tokens_wire(t, &loader.dataset, &loader.workers, &loader.sampler);
    if ((rc = dlp_loader_open(out, &loader, err)) != DLP_OK) {
        dlp_tokens_close(t);
        return rc;
    }
    *tokens = t;
    return DLP_OK;
}

/* ---- documents ---- */

/* Of each of tokens[0..length - 2] that is eot, the place behind it. (Where eot is a document's
   first token, tokens begin with the row's second: so that is the token's own place.) */
static inline uint64_t dlpi_tokens_starts(const void *tokens, bool wide, uint64_t length,
                                          uint32_t eot, int32_t *start, uint64_t room) {
    const uint16_t *narrow = tokens;
    const uint32_t *words = tokens;
    uint64_t n = 1;
    for (uint64_t i = 0; i + 1 < length; i++) {
        if (DLPI_LIKELY((wide ? words[i] : narrow[i]) != eot)) continue;
        if (n < room) start[n] = (int32_t)i + 1;
        n++;
    }
    return n;
}

DLPDEF uint64_t dlp_tokens_documents(const void *tokens, dlp_dtype dtype, uint64_t length,
                                     uint32_t eot, int rule, int32_t *start, uint64_t room) {
    bool wide = dtype == DLP_U32 || dtype == DLP_I32;
    uint64_t n;
    if ((dtype != DLP_U16 && !wide) || length == 0 || length > INT32_MAX) return 0;
    if (rule != DLP_EOT_ENDS) tokens = (const uint8_t *)tokens + (wide ? 4 : 2);
    n = wide ? dlpi_tokens_starts(tokens, true, length, eot, start, room)
             : dlpi_tokens_starts(tokens, false, length, eot, start, room);
    if (room > 0) start[0] = 0;
    if (n < room) start[n] = (int32_t)length;
    return n;
}

#include <dirent.h>
/* ---------------------------------------------------------------------------------------------
   >>impl-folder     FOLDERS OF PICTURES
   Directories are a list that is worked off from its beginning: each is read to its end and closed
   before the next, so that one descriptor is open at a time, and depth costs no stack. Each knows
   its parent: a directory that is one of its own ancestors (device and inode) is a loop. */

enum { DLPI_FOLDER_DIRS = 1 << 20 };

typedef struct dlpi_folder_dir {
    char *path;
    uint64_t parent; /* in the list; its own number: the root */
    uint32_t label;
    dev_t dev;
    ino_t ino;
} dlpi_folder_dir;

typedef struct dlpi_folder_file {
    char *path;
    uint32_t label;
} dlpi_folder_file;

typedef struct dlpi_folder {
    dlp_folder shown; /* first: what the caller has */
    dlp_folder_desc d;
    dlpi_folder_dir *dirs;
    uint64_t n_dirs, dirs_room;
    dlpi_folder_file *files;
    uint64_t n_files, files_room;
    char **paths;
    uint32_t *labels;
    char **classes;
    uint64_t *class_files;
} dlpi_folder;

static int dlpi_folder_memory(dlp_error *err) {
    dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the list of files");
    if (err) err->errnum = ENOMEM;
    return DLP_ERR_MEMORY;
}

static int dlpi_folder_system(dlp_error *err, const char *path, const char *what, int errnum) {
    dlpi_error_set(err, DLP_ERR_SYSTEM, "path", "%s: %s: %s", dlpi_path_end(path), what,
                   strerror(errnum));
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

/* Room for one more record. Returns the array, or NULL, which leaves the old one. */
static void *dlpi_folder_room(void *array, uint64_t n, uint64_t *room, size_t each) {
    uint64_t more = *room ? 2 * *room : 64;
    void *grown;
    if (n < *room) return array;
    grown = realloc(array, (size_t)dlpi_times(more, each));
    if (grown) *room = more;
    return grown;
}

/* "dir/name", allocated; NULL: no memory. */
static char *dlpi_folder_join(const char *dir, const char *name) {
    size_t a = strlen(dir), b = strlen(name);
    char *path = malloc(a + b + 2);
    if (path == NULL) return NULL;
    memcpy(path, dir, a);
    path[a] = '/';
    memcpy(path + a + 1, name, b + 1);
    return path;
}

/* Letters of ASCII alone: what counts does not depend on the locale. */
static bool dlpi_folder_same(const char *a, const char *b) {
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        char y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y) return false;
        if (x == 0) return true;
    }
}

static bool dlpi_folder_counts(const dlp_folder_desc *d, const char *name) {
    static const char *const usual[] = {"jpg", "jpeg", "png", "bmp", "ppm", "webp"};
    const char *const *of = d->extensions ? d->extensions : usual;
    uint32_t n = d->extensions ? d->n_extensions : sizeof usual / sizeof *usual;
    const char *dot = strrchr(name, '.');
    for (uint32_t i = 0; dot && i < n; i++)
        if (dlpi_folder_same(dot + 1, of[i])) return true;
    return false;
}

static int dlpi_folder_add_file(dlpi_folder *f, char *path, uint32_t label, dlp_error *err) {
    dlpi_folder_file *files;
    if (f->n_files >= f->d.max_files) {
        free(path);
        return dlpi_error_set(err, DLP_ERR_LIMIT, "max_files",
                              "%s: has more than %" PRIu64 " files that count",
                              dlpi_path_end(f->d.path), f->d.max_files);
    }
    files = dlpi_folder_room(f->files, f->n_files, &f->files_room, sizeof *files);
    if (files == NULL) {
        free(path);
        return dlpi_folder_memory(err);
    }
    f->files = files;
    files[f->n_files++] = (dlpi_folder_file){path, label};
    return DLP_OK;
}

/* path: taken. st: of the directory. */
static int dlpi_folder_add_dir(dlpi_folder *f, char *path, uint64_t parent, const struct stat *st,
                               dlp_error *err) {
    dlpi_folder_dir *dirs;
    int rc = DLP_OK;
    for (uint64_t i = parent; f->n_dirs > 0 && rc == DLP_OK; i = f->dirs[i].parent) {
        if (f->dirs[i].dev == st->st_dev && f->dirs[i].ino == st->st_ino)
            rc = dlpi_folder_system(err, path, "leads back to a directory that it lies in", ELOOP);
        if (f->dirs[i].parent == i) break;
    }
    if (rc == DLP_OK && f->n_dirs == DLPI_FOLDER_DIRS)
        rc = dlpi_error_set(err, DLP_ERR_LIMIT, "path", "%s: has more than 2^20 directories",
                            dlpi_path_end(f->d.path));
    dirs = rc == DLP_OK ? dlpi_folder_room(f->dirs, f->n_dirs, &f->dirs_room, sizeof *dirs) : NULL;
    if (dirs == NULL) {
        free(path);
        return rc == DLP_OK ? dlpi_folder_memory(err) : rc;
    }
    f->dirs = dirs;
    dirs[f->n_dirs] =
        (dlpi_folder_dir){path, parent, f->n_dirs ? dirs[parent].label : 0, st->st_dev, st->st_ino};
    f->n_dirs++;
    return DLP_OK;
}

/* One name of directory k. */
static int dlpi_folder_entry(dlpi_folder *f, uint64_t k, const char *name, dlp_error *err) {
    bool counts = k > 0 && dlpi_folder_counts(&f->d, name);
    char *path;
    struct stat st;
    if (name[0] == '.') {
        f->shown.left_out += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
        return DLP_OK;
    }
    if ((path = dlpi_folder_join(f->dirs[k].path, name)) == NULL) return dlpi_folder_memory(err);
    if (stat(path, &st) != 0) {
        int errnum = errno, rc = DLP_OK;
        if (counts || (errnum != ENOENT && errnum != ELOOP))
            rc = dlpi_folder_system(err, path, "stat", errnum);
        else
            f->shown.left_out++; /* a link that leads nowhere, of a name that does not count */
        free(path);
        return rc;
    }
    if (S_ISDIR(st.st_mode)) return dlpi_folder_add_dir(f, path, k, &st, err);
    if (counts && S_ISREG(st.st_mode)) return dlpi_folder_add_file(f, path, f->dirs[k].label, err);
    f->shown.left_out++;
    free(path);
    return DLP_OK;
}

static int dlpi_folder_read(dlpi_folder *f, uint64_t k, dlp_error *err) {
    int fd = dlpi_fd_above(open(f->dirs[k].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    int rc = DLP_OK;
    if (dir == NULL) {
        rc = dlpi_folder_system(err, f->dirs[k].path, "open", errno);
        if (fd >= 0) close(fd);
        return rc;
    }
    while (rc == DLP_OK && (errno = 0, e = readdir(dir)) != NULL)
        rc = dlpi_folder_entry(f, k, e->d_name, err);
    if (rc == DLP_OK && errno != 0) rc = dlpi_folder_system(err, f->dirs[k].path, "read", errno);
    closedir(dir);
    return rc;
}

static int dlpi_folder_by_path(const void *a, const void *b) {
    return strcmp(((const dlpi_folder_dir *)a)->path, ((const dlpi_folder_dir *)b)->path);
}

static int dlpi_folder_by_class(const void *a, const void *b) {
    const dlpi_folder_file *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* The root's directories are the classes: in their order, numbered, with their names. */
static int dlpi_folder_classes(dlpi_folder *f, dlp_error *err) {
    uint64_t n = f->n_dirs - 1;
    size_t root = strlen(f->dirs[0].path) + 1;
    if (n == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "path", "%s: has no directories, which are classes",
                              dlpi_path_end(f->d.path));
    qsort(f->dirs + 1, (size_t)n, sizeof *f->dirs, dlpi_folder_by_path);
    f->classes = calloc((size_t)n, sizeof *f->classes);
    f->class_files = calloc((size_t)n, sizeof *f->class_files);
    if (f->classes == NULL || f->class_files == NULL) return dlpi_folder_memory(err);
    f->shown.n_classes = (uint32_t)n;
    for (uint64_t i = 0; i < n; i++) {
        f->dirs[i + 1].label = (uint32_t)i;
        if ((f->classes[i] = strdup(f->dirs[i + 1].path + root)) == NULL)
            return dlpi_folder_memory(err);
    }
    return DLP_OK;
}

static uint64_t dlpi_folder_hash(uint64_t h, const char *text) {
    for (; *text; text++) h = dlpi_absorb(h, (uint8_t)*text);
    return dlpi_absorb(h, 256); /* no byte: the end of this one */
}

/* Sort the files, and show all. */
static int dlpi_folder_finish(dlpi_folder *f, dlp_error *err) {
    uint64_t n = f->n_files, h = dlpi_absorb(n, f->shown.n_classes);
    size_t root = strlen(f->dirs[0].path);
    if (n == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "path",
                              "%s: no file below its %" PRIu32 " classes counts (extensions)",
                              dlpi_path_end(f->d.path), f->shown.n_classes);
    qsort(f->files, (size_t)n, sizeof *f->files, dlpi_folder_by_class);
    f->paths = calloc((size_t)n, sizeof *f->paths);
    f->labels = calloc((size_t)n, sizeof *f->labels);
    if (f->paths == NULL || f->labels == NULL) return dlpi_folder_memory(err);
    for (uint64_t i = 0; i < n; i++) {
        f->paths[i] = f->files[i].path;
        f->labels[i] = f->files[i].label;
        f->class_files[f->labels[i]]++;
        h = dlpi_folder_hash(h, f->paths[i] + root);
    }
    f->n_files = 0; /* they are among paths now */
    for (uint32_t i = 0; i < f->shown.n_classes; i++) h = dlpi_folder_hash(h, f->classes[i]);
    f->shown.id = h;
    f->shown.n_files = n;
    f->shown.paths = (const char *const *)f->paths;
    f->shown.labels = f->labels;
    f->shown.classes = (const char *const *)f->classes;
    f->shown.class_files = f->class_files;
    return DLP_OK;
}

static void dlpi_folder_dirs_free(dlpi_folder *f) {
    for (uint64_t i = 0; i < f->n_dirs; i++) free(f->dirs[i].path);
    for (uint64_t i = 0; i < f->n_files; i++) free(f->files[i].path);
    free(f->dirs);
    free(f->files);
    f->dirs = NULL;
    f->files = NULL;
    f->n_dirs = f->n_files = 0;
}

/* All of the tree. */
static int dlpi_folder_list(dlpi_folder *f, dlp_error *err) {
    struct stat st;
    char *root;
    int rc;
    if (stat(f->d.path, &st) != 0) return dlpi_folder_system(err, f->d.path, "stat", errno);
    if ((root = strdup(f->d.path)) == NULL) return dlpi_folder_memory(err);
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--) root[n - 1] = 0;
    if ((rc = dlpi_folder_add_dir(f, root, 0, &st, err)) != DLP_OK) return rc;
    if ((rc = dlpi_folder_read(f, 0, err)) != DLP_OK) return rc;
    if ((rc = dlpi_folder_classes(f, err)) != DLP_OK) return rc;
    for (uint64_t k = 1; k < f->n_dirs && rc == DLP_OK; k++) rc = dlpi_folder_read(f, k, err);
    return rc == DLP_OK ? dlpi_folder_finish(f, err) : rc;
}

DLPDEF int dlp_folder_open(dlp_folder **out, const dlp_folder_desc *desc, dlp_error *err) {
    dlpi_folder *f;
    int rc;
    if (out == NULL || desc == NULL || desc->path == NULL || desc->path[0] == 0) {
        const char *name = out == NULL ? "out" : desc == NULL ? "desc" : "path";
        return dlpi_error_set(err, DLP_ERR_ARG, name, "%s: required", name);
    }
    if ((desc->extensions == NULL) != (desc->n_extensions == 0))
        return dlpi_error_set(err, DLP_ERR_ARG, "extensions",
                              "extensions: none, or all of n_extensions");
    if ((f = calloc(1, sizeof *f)) == NULL) return dlpi_folder_memory(err);
    f->d = *desc;
    if (f->d.max_files == 0 || f->d.max_files > UINT64_C(1) << 31)
        f->d.max_files = UINT64_C(1) << 31;
    rc = dlpi_folder_list(f, err);
    dlpi_folder_dirs_free(f);
    if (rc != DLP_OK) {
        dlp_folder_close(&f->shown);
        return rc;
    }
    *out = &f->shown;
    return DLP_OK;
}

DLPDEF void dlp_folder_close(dlp_folder *folder) {
    dlpi_folder *f = (dlpi_folder *)(void *)folder;
    if (f == NULL) return;
    for (uint64_t i = 0; i < f->shown.n_files; i++) free(f->paths[i]);
    for (uint32_t i = 0; f->classes && i < f->shown.n_classes; i++) free(f->classes[i]);
    free(f->paths);
    free(f->labels);
    free(f->classes);
    free(f->class_files);
    free(f);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-arrays     ROWS OUT OF ARRAYS
   A header is read and checked once; then a file is a place where rows begin, their number and
   their bytes. Nothing of a header is believed before it is held against the length of the file. */

enum { DLPI_NPY_HEADER_MOST = 1 << 16, DLPI_CIFAR_PIXELS = 3 * 32 * 32 };
#define DLPI_ARRAY_FILES (UINT64_C(1) << 16)

typedef struct dlpi_array_file {
    dlpi_mapped m;
    uint64_t data;  /* where rows begin */
    uint64_t first; /* row of the column that its first one is */
    uint64_t rows;
} dlpi_array_file;

typedef struct dlpi_array {
    int32_t format;
    uint32_t n_fields, field; /* its fields are [field, field + n_fields) of all */
    uint64_t n_files, rows;
    uint64_t row_bytes; /* of all its fields together */
    uint64_t swap;      /* bytes of a number that is big-endian; 1: of none */
    dlpi_array_file *files;
} dlpi_array;

struct dlp_arrays {
    dlp_arrays_info info;
    dlp_field fields[DLP_MAX_FIELDS];
    char names[DLP_MAX_FIELDS][32];
    uint64_t field_bytes[DLP_MAX_FIELDS];
    uint32_t n_columns, users; /* U4 */
    bool reads;
    dlpi_array columns[DLP_MAX_FIELDS];
};

/* What a file says of itself. */
typedef struct dlpi_array_head {
    dlp_dtype dtype;
    uint32_t ndim;
    uint64_t shape[DLP_MAX_DIMS]; /* rows, then those of a row */
    uint64_t data, swap;
} dlpi_array_head;

/* ---- IDX ---- */

static uint32_t dlpi_big32(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
}

static int dlpi_idx_head(const dlpi_mapped *m, dlpi_array_head *h, dlp_error *err) {
    static const dlp_dtype types[] = {DLP_U8, DLP_I8, 0, DLP_I16, DLP_I32, DLP_F32, DLP_F64};
    uint8_t b[4 + 4 * DLP_MAX_DIMS];
    int rc = dlpi_mapped_head(m, 0, 4, b, "header", err);
    if (rc != DLP_OK) return rc;
    if (b[0] != 0 || b[1] != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "is not IDX: its first 2 bytes "
                                 "are not 0");
    if (b[2] < 8 || b[2] > 14 || types[b[2] - 8] == 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 2, "type %d is none of IDX's",
                                 b[2]);
    if (b[3] < 1 || b[3] > DLP_MAX_DIMS)
        return dlpi_mapped_error(err, DLP_ERR_UNSUPPORTED, m->path, 3,
                                 "%d dimensions, 1 to %d are known", b[3], DLP_MAX_DIMS);
    h->dtype = types[b[2] - 8];
    h->ndim = b[3];
    if ((rc = dlpi_mapped_head(m, 4, 4 * h->ndim, b, "header", err)) != DLP_OK) return rc;
    for (uint32_t i = 0; i < h->ndim; i++) h->shape[i] = dlpi_big32(b + 4 * i);
    h->data = 4 + 4 * h->ndim;
    h->swap = dlpi_dtype_bytes(h->dtype);
    return DLP_OK;
}

/* ---- npy ---- */

/* A Python literal of a dictionary, of which three keys are wanted, as numpy writes it. */
typedef struct dlpi_npy {
    const char *text, *at, *end;
    const dlpi_mapped *m;
    uint64_t begins; /* byte of the file where text begins */
    dlp_error *err;
} dlpi_npy;

static int dlpi_npy_bad(const dlpi_npy *n, int code, const char *words) {
    return dlpi_mapped_error(n->err, code, n->m->path, n->begins + (uint64_t)(n->at - n->text),
                             "npy header: %s", words);
}

static void dlpi_npy_space(dlpi_npy *n) {
    while (n->at < n->end && (*n->at == ' ' || *n->at == '\n' || *n->at == '\t')) n->at++;
}

/* Is this the next character that is not white space? If so, go past it. */
static bool dlpi_npy_is(dlpi_npy *n, char c) {
    dlpi_npy_space(n);
    if (n->at == n->end || *n->at != c) return false;
    n->at++;
    return true;
}

static bool dlpi_npy_word(dlpi_npy *n, const char *word) {
    size_t bytes = strlen(word);
    dlpi_npy_space(n);
    if ((size_t)(n->end - n->at) < bytes || memcmp(n->at, word, bytes) != 0) return false;
    n->at += bytes;
    return true;
}

/* 'text', without escapes. */
static bool dlpi_npy_string(dlpi_npy *n, char *to, size_t size) {
    char quote;
    size_t i = 0;
    dlpi_npy_space(n);
    if (n->at == n->end || (*n->at != '\'' && *n->at != '"')) return false;
    quote = *n->at++;
    for (; n->at < n->end && *n->at != quote; n->at++) {
        if (i + 1 == size || *n->at == '\\') return false;
        to[i++] = *n->at;
    }
    to[i] = 0;
    return dlpi_npy_is(n, quote);
}

static bool dlpi_npy_number(dlpi_npy *n, uint64_t *to) {
    uint64_t v = 0;
    const char *begin;
    dlpi_npy_space(n);
    for (begin = n->at; n->at < n->end && *n->at >= '0' && *n->at <= '9'; n->at++) {
        uint64_t digit = (uint64_t)(*n->at - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *to = v;
    return n->at > begin;
}

static int dlpi_npy_descr(dlpi_npy *n, dlpi_array_head *h) {
    static const struct {
        const char *name;
        dlp_dtype dtype;
    } types[] = {{"b1", DLP_BOOL}, {"i1", DLP_I8},  {"u1", DLP_U8},  {"i2", DLP_I16},
                 {"u2", DLP_U16},  {"i4", DLP_I32}, {"u4", DLP_U32}, {"i8", DLP_I64},
                 {"u8", DLP_U64},  {"f2", DLP_F16}, {"f4", DLP_F32}, {"f8", DLP_F64}};
    char descr[16];
    dlpi_npy_space(n);
    if (n->at < n->end && *n->at == '[')
        return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "a structured type");
    if (!dlpi_npy_string(n, descr, sizeof descr))
        return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no type after 'descr'");
    if (descr[0] == '>') return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "a big-endian type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strchr("<|=", descr[0]) && strcmp(descr + 1, types[i].name) == 0) {
            h->dtype = types[i].dtype;
            return DLP_OK;
        }
    return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED,
                        "a type that is not one of b1, i1 .. i8, u1 .. u8, "
                        "f2 .. f8");
}

static int dlpi_npy_shape(dlpi_npy *n, dlpi_array_head *h) {
    if (!dlpi_npy_is(n, '(')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no tuple after 'shape'");
    while (!dlpi_npy_is(n, ')')) {
        if (h->ndim == DLP_MAX_DIMS)
            return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "more than 8 dimensions");
        if (!dlpi_npy_number(n, &h->shape[h->ndim]))
            return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no number of 64 bits in 'shape'");
        h->ndim++;
        if (dlpi_npy_is(n, ',')) continue;
        if (!dlpi_npy_is(n, ')')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no end of 'shape'");
        break;
    }
    if (h->ndim == 0) return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "a scalar, which has no rows");
    return DLP_OK;
}

static int dlpi_npy_order(dlpi_npy *n, bool *fortran) {
    *fortran = dlpi_npy_word(n, "True");
    if (*fortran || dlpi_npy_word(n, "False")) return DLP_OK;
    return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no True or False after 'fortran_order'");
}

/* One key and its value. seen: a bit for each that was there. */
static int dlpi_npy_entry(dlpi_npy *n, dlpi_array_head *h, uint32_t *seen, bool *fortran) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[24];
    uint32_t k = 0;
    if (!dlpi_npy_string(n, key, sizeof key)) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no key");
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3 || (*seen >> k & 1) != 0)
        return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "a key that is not its own, or twice");
    *seen |= 1u << k;
    if (!dlpi_npy_is(n, ':')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no colon after a key");
    if (k == 0) return dlpi_npy_descr(n, h);
    return k == 1 ? dlpi_npy_order(n, fortran) : dlpi_npy_shape(n, h);
}

static int dlpi_npy_parse(dlpi_npy *n, dlpi_array_head *h) {
    uint32_t seen = 0;
    bool fortran = false;
    int rc;
    if (!dlpi_npy_is(n, '{')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no dictionary");
    while (!dlpi_npy_is(n, '}')) {
        if ((rc = dlpi_npy_entry(n, h, &seen, &fortran)) != DLP_OK) return rc;
        if (dlpi_npy_is(n, ',')) continue;
        if (!dlpi_npy_is(n, '}')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no end of it");
        break;
    }
    dlpi_npy_space(n);
    if (n->at != n->end) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "something behind its end");
    if (seen != 7) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "descr, fortran_order or shape missing");
    if (fortran && h->ndim > 1)
        return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "Fortran order: rows lie apart");
    return DLP_OK;
}

static int dlpi_npy_head(const dlpi_mapped *m, dlpi_array_head *h, dlp_error *err) {
    uint8_t b[12];
    uint64_t bytes, prefix;
    char *text;
    dlpi_npy n;
    int rc = dlpi_mapped_head(m, 0, 10, b, "header", err);
    if (rc != DLP_OK) return rc;
    if (memcmp(b, "\x93NUMPY", 6) != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0, "is not npy: another magic");
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return dlpi_mapped_error(err, DLP_ERR_UNSUPPORTED, m->path, 6,
                                 "npy version %d.%d, 1.0 to 3.0 are known", b[6], b[7]);
    prefix = b[6] == 1 ? 10 : 12;
    if ((rc = dlpi_mapped_head(m, 0, prefix, b, "header", err)) != DLP_OK) return rc;
    bytes = (uint64_t)b[8] | (uint64_t)b[9] << 8;
    if (prefix == 12) bytes |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    if (bytes > DLPI_NPY_HEADER_MOST)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 8,
                                 "an npy header of %" PRIu64 " bytes, %d is the most", bytes,
                                 DLPI_NPY_HEADER_MOST);
    if ((text = malloc((size_t)bytes + 1)) == NULL)
        return dlpi_mapped_system(err, m->path, "malloc", ENOMEM);
    rc = dlpi_mapped_head(m, prefix, bytes, text, "header", err);
    n = (dlpi_npy){text, text, text + bytes, m, prefix, err};
    if (rc == DLP_OK) rc = dlpi_npy_parse(&n, h);
    free(text);
    h->data = prefix + bytes;
    h->swap = 1;
    return rc;
}

/* ---- files and columns ---- */

static int dlpi_array_guess(const dlpi_mapped *m, int32_t *format, dlp_error *err) {
    uint8_t b[4] = {1};
    int64_t got = dlpi_mapped_pread(m, 0, 4, b);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", errno);
    if (got == 4 && memcmp(b, "\x93NUM", 4) == 0)
        *format = DLP_ARRAY_NPY;
    else if (got == 4 && b[0] == 0 && b[1] == 0 && b[2] >= 8 && b[2] <= 14)
        *format = DLP_ARRAY_IDX;
    else
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "begins neither as npy nor as IDX; CIFAR's wants its format");
    return DLP_OK;
}

/* CIFAR's files have no header: a number of records. */
static int dlpi_cifar_head(const dlpi_mapped *m, uint64_t labels, dlpi_array_head *h,
                           dlp_error *err) {
    uint64_t record = labels + DLPI_CIFAR_PIXELS;
    if (m->size % record != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size - m->size % record,
                                 "ends in %" PRIu64 " bytes of a record of %" PRIu64,
                                 m->size % record, record);
    h->dtype = DLP_U8;
    h->ndim = 2;
    h->shape[0] = m->size / record;
    h->shape[1] = record;
    h->swap = 1;
    return DLP_OK;
}

static int dlpi_array_head_of(int32_t format, const dlpi_mapped *m, dlpi_array_head *h,
                              dlp_error *err) {
    memset(h, 0, sizeof *h);
    switch (format) {
    case DLP_ARRAY_IDX: return dlpi_idx_head(m, h, err);
    case DLP_ARRAY_NPY: return dlpi_npy_head(m, h, err);
    case DLP_ARRAY_CIFAR10: return dlpi_cifar_head(m, 1, h, err);
    default: return dlpi_cifar_head(m, 2, h, err);
    }
}

/* Bytes of a row; is the file as long as all of them? */
static int dlpi_array_measure(const dlpi_mapped *m, const dlpi_array_head *h, uint64_t *row,
                              dlp_error *err) {
    uint64_t bytes = dlpi_dtype_bytes(h->dtype);
    for (uint32_t i = 1; i < h->ndim; i++) bytes = dlpi_times(bytes, h->shape[i]);
    *row = bytes;
    if (bytes == 0 || bytes > DLPI_CELL_MAX)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0, "rows of %" PRIu64 " bytes",
                                 bytes);
    bytes = dlpi_sum(dlpi_times(bytes, h->shape[0]), h->data);
    if (bytes == m->size) return DLP_OK;
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size < bytes ? m->size : bytes,
                             "its header wants %" PRIu64 " bytes, the file has %" PRIu64, bytes,
                             m->size);
}

static void dlpi_array_field(dlp_arrays *a, dlpi_array *c, const char *name, dlp_dtype dtype,
                             const uint64_t *shape, uint32_t ndim) {
    uint32_t k = a->info.n_fields++;
    dlp_field *f = &a->fields[k];
    c->n_fields++;
    dlpi_copy_text(a->names[k], sizeof a->names[k], name);
    f->name = a->names[k];
    f->dtype = dtype;
    f->ndim = (int32_t)ndim;
    a->field_bytes[k] = dlpi_dtype_bytes(dtype);
    for (uint32_t i = 0; i < ndim; i++) {
        f->shape[i] = (int64_t)shape[i];
        a->field_bytes[k] *= shape[i];
    }
}

/* The fields of a column, by its first file. */
static int dlpi_array_fields(dlp_arrays *a, dlpi_array *c, const dlp_array_column *d,
                             const dlpi_array_head *h, dlp_error *err) {
    static const uint64_t pixels[] = {3, 32, 32};
    bool cifar = c->format >= DLP_ARRAY_CIFAR10, fine = c->format == DLP_ARRAY_CIFAR100;
    c->field = a->info.n_fields;
    if (c->field + (cifar ? 2 : 1) + fine > DLP_MAX_FIELDS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                              "columns: they have more than 16 fields");
    if (cifar) {
        if (fine) dlpi_array_field(a, c, "coarse", DLP_U8, NULL, 0);
        dlpi_array_field(a, c, fine ? "fine" : "label", DLP_U8, NULL, 0);
        dlpi_array_field(a, c, "image", DLP_U8, pixels, 3);
    } else {
        dlpi_array_field(a, c, d->name, h->dtype, h->shape + 1, h->ndim - 1);
    }
    c->swap = h->swap;
    return DLP_OK;
}

/* Are the rows of a further file as those of the first? */
static bool dlpi_array_like(const dlp_arrays *a, const dlpi_array *c, const dlpi_array_head *h) {
    const dlp_field *f = &a->fields[c->field];
    if (c->format >= DLP_ARRAY_CIFAR10) return true;
    if (f->dtype != h->dtype || (uint32_t)f->ndim + 1 != h->ndim) return false;
    for (uint32_t i = 1; i < h->ndim; i++)
        if ((uint64_t)f->shape[i - 1] != h->shape[i]) return false;
    return true;
}

static int dlpi_array_file_open(dlp_arrays *a, dlpi_array *c, const dlp_array_column *d, uint64_t i,
                                dlp_error *err) {
    dlpi_array_file *f = &c->files[i];
    dlpi_array_head h;
    uint64_t row = 0;
    int rc = dlpi_mapped_open(&f->m, d->path ? d->path : d->paths[i], a->reads, err);
    if (rc == DLP_OK && c->format == DLP_ARRAY_AUTO) rc = dlpi_array_guess(&f->m, &c->format, err);
    if (rc == DLP_OK) rc = dlpi_array_head_of(c->format, &f->m, &h, err);
    if (rc == DLP_OK) rc = dlpi_array_measure(&f->m, &h, &row, err);
    if (rc == DLP_OK && i == 0) rc = dlpi_array_fields(a, c, d, &h, err);
    if (rc != DLP_OK) return rc;
    if (!dlpi_array_like(a, c, &h))
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, f->m.path, 0,
                                 "its rows are not as those of the column's first file");
    c->row_bytes = row;
    f->data = h.data;
    f->first = c->rows;
    f->rows = h.shape[0];
    c->rows = dlpi_sum(c->rows, f->rows);
    a->info.id = dlp_hash(a->info.id, f->rows, row, (uint64_t)h.dtype << 32 | h.ndim);
    return DLP_OK;
}

static int dlpi_array_column_open(dlp_arrays *a, const dlp_array_column *d, dlp_error *err) {
    dlpi_array *c = &a->columns[a->n_columns++];
    uint64_t n = d->path ? 1 : d->n_paths;
    int rc = DLP_OK;
    c->format = d->format;
    c->files = calloc((size_t)n, sizeof *c->files);
    if (c->files == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the files");
    for (uint64_t i = 0; i < n; i++) c->files[i].m.fd = -1;
    c->n_files = n;
    for (uint64_t i = 0; i < n && rc == DLP_OK; i++) rc = dlpi_array_file_open(a, c, d, i, err);
    return rc;
}

/* ---- open, close ---- */

static int dlpi_arrays_check(const dlp_arrays_desc *d, dlp_error *err) {
    const char *wrong = NULL;
    if (d->columns == NULL || d->n_columns == 0 || d->n_columns > DLP_MAX_FIELDS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns", "columns: 1 to 16");
    if (d->reads != 0 && d->reads != 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "reads", "reads: 0 or 1");
    for (uint32_t i = 0; i < d->n_columns && wrong == NULL; i++) {
        const dlp_array_column *c = &d->columns[i];
        bool cifar = c->format >= DLP_ARRAY_CIFAR10;
        size_t name = c->name ? strlen(c->name) : 0;
        if (c->format < DLP_ARRAY_AUTO || c->format > DLP_ARRAY_CIFAR100)
            wrong = "format: DLP_ARRAY_*";
        else if (cifar ? c->name != NULL : name == 0 || name > 31)
            wrong = cifar ? "name: NULL, for CIFAR's fields have theirs" : "name: 1 to 31 bytes";
        else if ((c->path == NULL) == (c->paths == NULL))
            wrong = "path: give either path or paths";
        else if (c->path ? c->n_paths != 0 : c->n_paths == 0 || c->n_paths > DLPI_ARRAY_FILES)
            wrong = "n_paths: 1 to 2^16 with paths, 0 with a path";
        if (wrong)
            return dlpi_error_set(err, DLP_ERR_ARG, "columns", "columns[%" PRIu32 "].%s", i, wrong);
    }
    return DLP_OK;
}

static void dlpi_arrays_free(dlp_arrays *a) {
    for (uint32_t k = 0; k < a->n_columns; k++) {
        for (uint64_t i = 0; i < a->columns[k].n_files; i++)
            dlpi_mapped_close(&a->columns[k].files[i].m);
        free(a->columns[k].files);
    }
    free(a);
}

/* All columns have as many rows. */
static int dlpi_arrays_rows(dlp_arrays *a, dlp_error *err) {
    uint64_t rows = a->columns[0].rows;
    for (uint32_t k = 1; k < a->n_columns; k++)
        if (a->columns[k].rows != rows)
            return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                                  "\"%s\" has %" PRIu64 " rows, \"%s\" has %" PRIu64,
                                  a->names[a->columns[k].field], a->columns[k].rows,
                                  a->names[a->columns[0].field], rows);
    if (rows == 0 || rows > DLPI_MAX_ITEMS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns", "%" PRIu64 " rows, 1 to 2^48 can be",
                              rows);
    a->info.n_items = rows;
    a->info.fields = a->fields;
    return DLP_OK;
}

DLPDEF int dlp_arrays_open(dlp_arrays **out, const dlp_arrays_desc *desc, dlp_error *err) {
    dlp_arrays *a;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    if ((rc = dlpi_arrays_check(desc, err)) != DLP_OK) return rc;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "this machine is big-endian");
    if ((a = calloc(1, sizeof *a)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    a->reads = desc->reads != 0;
    for (uint32_t i = 0; i < desc->n_columns && rc == DLP_OK; i++)
        rc = dlpi_array_column_open(a, &desc->columns[i], err);
    if (rc == DLP_OK) rc = dlpi_arrays_rows(a, err);
    if (rc != DLP_OK) {
        dlpi_arrays_free(a);
        return rc;
    }
    *out = a;
    return DLP_OK;
}

DLPDEF const dlp_arrays_info *dlp_arrays_describe(const dlp_arrays *a) { return &a->info; }

DLPDEF int dlp_arrays_close(dlp_arrays *a) {
    if (a == NULL) return DLP_OK;
    if (dlpi_users_any(&a->users)) return DLP_ERR_BUSY;
    dlpi_arrays_free(a);
    return DLP_OK;
}

/* ---- rows ---- */

/* Numbers of `width` bytes become little-endian, where they lie. */
static void dlpi_array_swap(uint8_t *to, uint64_t bytes, uint64_t width) {
    for (uint64_t i = 0; i + width <= bytes; i += width)
        for (uint64_t k = 0; k < width / 2; k++) {
            uint8_t b = to[i + k];
            to[i + k] = to[i + width - 1 - k];
            to[i + width - 1 - k] = b;
        }
}

/* The file of a column that has a row: the last one that begins at it or before. */
static dlpi_array_file *dlpi_array_find(const dlpi_array *c, uint64_t row) {
    uint64_t low = 0, n = c->n_files;
    while (n > 1) {
        uint64_t half = n / 2;
        low = c->files[low + half].first <= row ? low + half : low;
        n -= half;
    }
    return &c->files[low];
}

static int dlpi_array_row(const dlp_arrays *a, const dlpi_array *c, dlp_item *it) {
    dlpi_array_file *f = dlpi_array_find(c, it->index);
    uint64_t at = f->data + (it->index - f->first) * c->row_bytes;
    int rc = f->m.bytes ? dlpi_mapped_check(&f->m, it) : 0;
    dlpi_mapped_advise(&f->m, it->position == it->index ? MADV_SEQUENTIAL : MADV_NORMAL);
    for (uint32_t k = c->field; k < c->field + c->n_fields && rc == 0; k++) {
        rc = dlpi_mapped_copy(&f->m, at, a->field_bytes[k], it->data[k], it);
        at += a->field_bytes[k];
    }
    if (rc == 0 && c->swap > 1) dlpi_array_swap(it->data[c->field], c->row_bytes, c->swap);
    return rc;
}

static int dlpi_arrays_fetch(void *user, dlp_item *it) {
    const dlp_arrays *a = user;
    int rc = 0;
    for (uint32_t k = 0; k < a->n_columns && rc == 0; k++)
        rc = dlpi_array_row(a, &a->columns[k], it);
    return rc;
}

DLPDEF void dlp_arrays_wire(dlp_arrays *a, dlp_dataset *dataset, dlp_workers_desc *workers,
                            dlp_sampler_desc *sampler) {
    dataset->n_items = a->info.n_items;
    dataset->fields = a->fields;
    dataset->n_fields = a->info.n_fields;
    dataset->fills_rows = 1;
    dataset->fetch = dlpi_arrays_fetch;
    dataset->user = a;
    dataset->stream = 0;
    dlpi_users_wire(&a->users, workers);
    dlpi_source_id(a->info.id, sampler);
}

DLPDEF int dlp_arrays_loader_open(dlp_pipe **out, dlp_arrays **arrays,
                                  const dlp_arrays_loader_desc *desc, dlp_error *err) {
    dlp_loader_desc loader;
    dlp_arrays *a;
    int rc;
    if (out == NULL || arrays == NULL || desc == NULL) {
        const char *name = out == NULL ? "out" : arrays == NULL ? "arrays" : "desc";
        return dlpi_error_set(err, DLP_ERR_ARG, name, "%s is NULL", name);
    }
    loader = desc->loader;
    if ((rc = dlp_arrays_open(&a, &desc->arrays, err)) != DLP_OK) return rc;
    dlp_arrays_wire(a, &loader.dataset, &loader.workers, &loader.sampler);
    if ((rc = dlp_loader_open(out, &loader, err)) != DLP_OK) {
        dlp_arrays_close(a);
        return rc;
    }
    *arrays = a;
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-public     THE PUBLIC CALLS */

DLPDEF int dlp_item_fail(const dlp_item *item, int errnum, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dlpi_note_write(item->internal, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

DLPDEF int dlp_collate_fail(const dlp_collate *c, int errnum, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dlpi_note_write(c->internal, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err) {
    dlp_pipe *p;
    int rc;
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    p = calloc(1, sizeof *p);
    if (p == NULL) {
        dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the pipe failed");
        if (err) err->errnum = ENOMEM;
        return DLP_ERR_MEMORY;
    }
    p->memfd = p->name_fd = p->err.worker = -1;
    if (desc) p->d = *desc;
    dlpi_copy_text(p->name, sizeof p->name, p->d.name);
    p->d.name = p->name;
    if (p->d.resume) {
        p->resume = *p->d.resume;
        p->d.resume = &p->resume;
    }
    p->cpus = dlpi_cpu_count();
    p->max_kills = 3;
    if ((rc = dlpi_check_pipe(p)) != DLP_OK) {
        if (err) *err = p->err;
        free(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-kinds      THE TABLE OF ALL KINDS */

#define DLPI_KIND_OPS(name, number, ops) [number] = &ops,
static const dlpi_stage_ops *const dlpi_kinds[] = {DLPI_STAGE_KINDS(DLPI_KIND_OPS)};
#undef DLPI_KIND_OPS

/* A sampler's table. */
static const dlpi_stage_ops *dlpi_sampler_kind(const dlp_sampler_desc *d) {
    return d->order == DLP_ORDER_BATCHES ? &dlpi_lists_ops : &dlpi_sampler_ops;
}

/* The stage's table, in a process that has but the rest of its record. */
__attribute__((unused)) /* but by dlpipe_shm.h */
static const dlpi_stage_ops *
dlpi_ops_of(const dlpi_stage *st) {
    if (st->kind == DLP_STAGE_SAMPLER) return dlpi_sampler_kind(&st->sampler);
    return st->in_flight > 0 ? &dlpi_fetch_many_ops : dlpi_kinds[st->kind];
}

/* A variable of the environment that is a number up to 2^31 - 1; -1: not set; -2: no number. */
static int64_t dlpi_env_number(const char *name) {
    const char *text = getenv(name);
    int64_t n = 0;
    if (text == NULL) return -1;
    if (text[0] == 0) return -2;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > INT32_MAX / 10) return -2;
        n = n * 10 + (*text - '0');
    }
    return n <= INT32_MAX ? n : -2;
}

DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err) {
    static const char *const names[][2] = {
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    };
    const size_t n = sizeof names / sizeof *names;
    if (rank == NULL || world_size == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, rank ? "world_size" : "rank", "it is NULL");
    for (size_t i = 0; i < n; i++) {
        int64_t r = dlpi_env_number(names[i][0]), w = dlpi_env_number(names[i][1]);
        bool slurm = i == n - 1; /* its batch scripts have a SLURM_PROCID, and are no rank */
        if ((r == -1 && w == -1) || (slurm && (r == -1 || w == -1))) continue;
        if (r < 0 || w < 1)
            return dlpi_error_set(
                err, DLP_ERR_ARG, names[i][r < 0 ? 0 : 1],
                "%s is %s, must be a number; it goes with %s", names[i][r < 0 ? 0 : 1],
                (r < 0 ? r : w) == -1 ? "not set" : "none", names[i][r < 0 ? 1 : 0]);
        if (r >= w)
            return dlpi_error_set(err, DLP_ERR_ARG, names[i][0],
                                  "%s is %d, must be below %s, which is %d", names[i][0], (int)r,
                                  names[i][1], (int)w);
        *rank = (uint32_t)r;
        *world_size = (uint32_t)w;
        return DLP_OK;
    }
    *rank = 0;
    *world_size = 1;
    return DLP_OK;
}

DLPDEF dlp_stage dlp_pipe_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, dlpi_sampler_kind(desc), "sampler", NULL);
    if (st == NULL) return dlpi_add_refused(p);
    st->sampler = *desc;
    return dlpi_added(p, st, DLP_OK);
}

DLPDEF dlp_stage dlp_pipe_add_repeat(dlp_pipe *p, const dlp_repeat_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_repeat_ops, "repeat", NULL)) == NULL) return dlpi_add_refused(p);
    st->repeat = *desc;
    return dlpi_added(p, st, dlpi_repeat_check(p, st));
}

DLPDEF dlp_stage dlp_pipe_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc) {
    dlpi_stage *st;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, desc->fetcher ? &dlpi_fetch_many_ops : &dlpi_fetch_ops, "fetch",
                  &desc->workers);
    if (st == NULL) return dlpi_add_refused(p);
    if (desc->dataset == NULL) return dlpi_bad(p, st->name, "dataset", "a dataset", 0);
    st->dataset = *desc->dataset;
    p->open_end = st->dataset.stream;
    if (p->open_end) st->dataset.n_items = DLPI_MAX_ITEMS;
    st->item = st->dataset.fetch;
    st->user = st->dataset.user;
    if ((rc = dlpi_fetch_check(p, st, desc)) != DLP_OK) return rc;
    memcpy(st->fields, st->dataset.fields, st->dataset.n_fields * sizeof *st->fields);
    st->dataset.fields = st->fields;
    return dlpi_added(p, st, dlpi_keep_names(p, st, st->dataset.n_fields));
}

DLPDEF dlp_stage dlp_pipe_add_cache(dlp_pipe *p, const dlp_cache_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_cache_ops, "cache", NULL)) == NULL) return dlpi_add_refused(p);
    ((dlpi_cache *)st->self)->bytes = desc->bytes;
    return dlpi_added(p, st, dlpi_cache_desc(p, st));
}

DLPDEF dlp_stage dlp_pipe_add_map(dlp_pipe *p, const dlp_map_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, desc->batch ? &dlpi_map_batch_ops : &dlpi_map_item_ops, "map", &desc->workers);
    if (st == NULL) return dlpi_add_refused(p);
    st->item = desc->item;
    st->batch = desc->batch;
    st->user = desc->user;
    return dlpi_added(p, st, dlpi_map_check(p, st));
}

DLPDEF dlp_stage dlp_pipe_add_batch(dlp_pipe *p, const dlp_batch_desc *desc) {
    dlpi_stage *st;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_batch_ops, "batch", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    st->batching = *desc;
    st->collate = desc->collate;
    st->user = desc->collate_user;
    if ((rc = dlpi_batch_check(p, st)) == DLP_OK && desc->out_fields) {
        memcpy(st->fields, desc->out_fields, desc->n_out_fields * sizeof *st->fields);
        st->batching.out_fields = st->fields;
        rc = dlpi_keep_names(p, st, desc->n_out_fields);
    }
    return dlpi_added(p, st, rc);
}

DLPDEF dlp_stage dlp_pipe_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_transfer_ops, "transfer", NULL)) == NULL)
        return dlpi_add_refused(p);
    dlpi_transfer_of(st)->d = *desc;
    dlpi_transfer_of(st)->device = desc->device ? *desc->device : *dlp_device_host();
    st->w.num_workers = desc->threaded;
    return dlpi_added(p, st, dlpi_transfer_check(p, st));
}

DLPDEF dlp_stage dlp_pipe_add_split(dlp_pipe *p, const dlp_split_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_split_ops, "split", NULL)) == NULL) return dlpi_add_refused(p);
    ((dlpi_split *)st->self)->d = *desc;
    return dlpi_added(p, st, dlpi_split_check(p, st));
}

DLPDEF int dlp_pipe_link(dlp_pipe *p, dlp_stage from, dlp_stage to) {
    if (p == NULL) return DLP_ERR_ARG;
    if (p->prepared || p->err.code != 0) return dlpi_add_refused(p);
    if (from < 0 || from >= p->n_stages)
        return dlpi_bad(p, "", "from", "a stage of this pipe", from);
    if (to < 0 || to >= p->n_stages) return dlpi_bad(p, "", "to", "a stage of this pipe", to);
    if (p->stages[from].link_next >= 0)
        return dlpi_bad_graph(p, p->stages[from].name, "a stage is linked to one stage only");
    if (p->stages[to].link_prev >= 0)
        return dlpi_bad_graph(p, p->stages[to].name, "one stage only can be linked to this one");
    p->stages[from].link_next = to;
    p->stages[to].link_prev = from;
    return DLP_OK;
}

DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out) {
    dlp_plan plan;
    int rc;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->prepared) {
        if (p->err.code != 0) return p->err.code;
        if ((rc = dlpi_resolve(p)) != DLP_OK) return rc;
        dlpi_layout(p);
    }
    dlpi_plan_fill(p, &plan);
    *out = plan;
    return DLP_OK;
}

DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size) {
    int n = 0;
    if (plan == NULL) return DLP_ERR_ARG;
    for (uint32_t i = 0; i <= plan->n_lines; i++) {
        const dlp_plan_line *l = &plan->lines[i];
        char *at = (size_t)n < size ? buf + n : NULL;
        size_t left = at ? size - (size_t)n : 0;
        if (i < plan->n_lines)
            n += snprintf(at, left, "%-28s %8" PRIu64 " x %12" PRIu64 " = %14" PRIu64 " bytes\n",
                          l->what, l->count, l->bytes_each, l->bytes);
        else
            n += snprintf(at, left, "%-28s %23s = %14" PRIu64 " bytes\n", "total", "",
                          plan->total_bytes);
    }
    return n;
}

DLPDEF int dlp_pipe_start(dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    return p->started ? DLP_ERR_STATE : dlpi_start(p);
}

/* The caller holds all that it may. No error of the pipe's: told until it has released one. */
static int dlpi_held_fail(dlp_pipe *p) {
    return dlpi_error_set(&p->held_err, DLP_ERR_HELD, "max_held",
                          "%" PRIu64 " %s held, max_held is %" PRIu32 ": release %s first",
                          p->n_held, p->n_held == 1 ? "batch is" : "batches are", p->max_held,
                          p->n_held == 1 ? "it" : "one");
}

DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (timeout_ms < DLP_FOREVER) return DLP_ERR_ARG;
    if (p->share != NULL && p->share->serve_only) return DLP_ERR_STATE; /* consumers have all */
    if (p->lent) dlpi_lent_sweep(p);
    if (p->err.code != 0) return p->err.code;
    if (dlpi_stopped(p)) return DLP_STOPPED;
    if (p->n_held >= p->max_held) return dlpi_held_fail(p);
    p->held_err.code = 0;
    if (p->epoch_end_due) {
        p->epoch_end_due = 0;
        return DLP_EPOCH_END;
    }
    if (p->lender) return p->lender->ops->lender->next(p, out, timeout_ms);
    return dlpi_next(p, out, timeout_ms);
}

DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch) {
    uint32_t s;
    if (p == NULL || batch == NULL || !p->started) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    s = (uint32_t)(uintptr_t)batch->internal;
    if (s >= p->n_out || batch != &p->out[s] || !p->held[s]) return DLP_ERR_ARG;
    if (p->lent) return dlpi_lent_release(p, s);
    dlpi_give_back(p, s);
    return DLP_OK;
}

DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->share != NULL && p->share->serve_only) return DLP_ERR_STATE;
    if (p->err.code != 0) return p->err.code;
    p->epoch_end_due = 0;
    if (!p->epoch_open) return DLP_OK;
    dlpi_epoch_leave(p, p->epoch_now);
    dlpi_feed_inline(p, 1);
    return DLP_OK;
}

DLPDEF int dlp_pipe_seek(dlp_pipe *p, const dlp_state *state, dlp_error *err) {
    dlpi_state s;
    int rc;
    if (p == NULL || state == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, p ? "state" : "pipe", "it is NULL");
    if (!p->started || p->closing)
        return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe does not run");
    if (dlpi_forked(p))
        return dlpi_error_set(err, DLP_ERR_FORKED, "", "the pipe is another process's");
    if (p->share != NULL)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "shm.share",
                              "a pipe with consumers goes on only");
    if (p->err.code != 0) {
        if (err) *err = p->err;
        return p->err.code;
    }
    if (p->seeks >= DLPI_SEEKS_MAX)
        return dlpi_error_set(err, DLP_ERR_STATE, "", "%u seeks without a batch between them",
                              DLPI_SEEKS_MAX);
    if ((rc = dlpi_state_check_all(p, state, &s, "state", err)) != DLP_OK) return rc;
    dlpi_seek(p, &s);
    return DLP_OK;
}

DLPDEF int dlp_pipe_state_at(const dlp_pipe *p, uint64_t epoch, uint64_t batch, dlp_state *out) {
    dlpi_state s;
    uint64_t most;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    most = p->samples / p->global_batch;
    if (p->batches_per_epoch != UINT64_MAX) most = dlpi_epoch_batches(p);
    if (epoch >= DLPI_MAX_EPOCH || batch >= most) return DLP_ERR_ARG;
    dlpi_state_config(p, &s);
    s.epoch = epoch;
    s.batch = batch;
    if (p->source->state == NULL) s.position = dlpi_state_position(p, epoch, batch);
    s.check = dlpi_state_check(&s);
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &s, sizeof s);
    return DLP_OK;
}

DLPDEF int dlp_pipe_set_workers(dlp_pipe *p, dlp_stage stage, int n) {
    dlpi_stage *st;
    if (p == NULL) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (stage < 0 || stage >= p->n_stages) return DLP_ERR_ARG;
    st = &p->stages[stage];
    if (!st->tuned || n < 0 || n > st->n_workers) return DLP_ERR_ARG;
    if (n > 0 && n < st->w.workers_min) return DLP_ERR_ARG;
    p->tune.at[st->work].set = n > 0;
    if (n > 0) dlpi_tune_set(p, st, n, DLP_TUNE_SET, dlpi_now_ns());
    return DLP_OK;
}

DLPDEF void dlp_pipe_stop(dlp_pipe *p) {
    int saved = errno;
    if (p == NULL) return;
    DLPI_STORE_SEQ(&p->stop_asked, 1u);     /* S2 -> S2 */
    if (DLPI_LOAD_SEQ(&p->can_ring) != 0 && /* S2 <- S2: what start made is there, */
        (!dlpi_forked(p) || p->in_worker))  /* and may be asked whose it is */
        dlpi_stop_now(p);
    errno = saved;
}

DLPDEF int dlp_pipe_close(dlp_pipe *p) {
    if (p == NULL) return DLP_OK;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->closing == 2) return DLP_OK;                  /* what is out keeps it, and frees it */
    if (p->lent == NULL && !p->closing && p->n_held > 0) /* tensors are given away on purpose */
        dlpi_warn(p, "close: %" PRIu64 " %s held: the pipe's memory goes with the last release",
                  p->n_held, p->n_held == 1 ? "batch is" : "batches are");
    return p->lent ? dlpi_lent_close(p) : dlpi_close(p);
}

DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p) {
    static const dlp_error none = {DLP_ERR_ARG, 0, -1, 0, 0, 0, 0, "", "pipe", "the pipe is NULL"};
    if (p == NULL) return &none;
    return p->err.code == 0 && p->held_err.code != 0 && p->n_held >= p->max_held ? &p->held_err
                                                                                 : &p->err;
}

DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i) {
    return p != NULL && i >= 0 && i < p->n_warnings ? p->warnings[i] : NULL;
}

DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out) {
    dlpi_state s;
    uint32_t slot = 0;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->share != NULL && p->share->serve_only) return DLP_ERR_STATE; /* who is how far? */
    if (batch != NULL) {
        slot = (uint32_t)(uintptr_t)batch->internal;
        if (slot >= p->n_out || batch != &p->out[slot] || !p->held[slot]) return DLP_ERR_ARG;
    }
    dlpi_state_config(p, &s);
    if (batch == NULL || p->d.unordered)
        dlpi_state_now(p, &s);
    else if (p->lender)
        p->lender->ops->lender->state(p, slot, &s);
    else
        dlpi_state_after(p, slot, batch->flags, &s);
    s.check = dlpi_state_check(&s);
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &s, sizeof s);
    return DLP_OK;
}

DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p) {
    if (p == NULL || !p->started || p->batches_per_epoch == UINT64_MAX) return -1;
    return (int64_t)dlpi_epoch_batches(p);
}

/* ---- the loader ---- */

static int dlpi_loader_check(dlp_pipe *p, const dlp_loader_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_loader_desc, shuffle), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, drop_last), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, topology), 0, DLP_TOPOLOGY_CONCURRENT, "DLP_TOPOLOGY_*"},
    };
    int rc = dlpi_check_bounds(p, "", d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    /* what can be said twice is said the same, or once */
    if (d->workers.num_workers != 0 && d->workers.num_workers != d->num_workers)
        return dlpi_bad(p, "", "workers.num_workers", "0, or as the loader's num_workers",
                        d->workers.num_workers);
    if (d->shuffle && d->sampler.order != 0 && d->sampler.order != DLP_ORDER_SHUFFLED)
        return dlpi_bad(p, "", "sampler.order", "0 or DLP_ORDER_SHUFFLED with shuffle",
                        d->sampler.order);
    if (d->seed != 0 && d->sampler.seed != 0 && d->seed != d->sampler.seed)
        return dlpi_bad(p, "", "sampler.seed", "0, or as the loader's seed",
                        (int64_t)d->sampler.seed);
    if (d->drop_last && d->last != DLP_LAST_SHORT && d->last != DLP_LAST_DROP)
        return dlpi_bad(p, "", "last", "0 or DLP_LAST_DROP with drop_last", d->last);
    return DLP_OK;
}

/* The stages of a loader, as its desc has them; a topology changes some of it before they are
   added. */
typedef struct dlpi_loader {
    dlp_sampler_desc sampler;
    dlp_repeat_desc repeat;
    dlp_fetch_desc fetch;
    dlp_batch_desc batch;
    dlp_transfer_desc transfer;
    dlp_cache_desc cache;
} dlpi_loader;

static void dlpi_loader_stages(const dlp_loader_desc *d, dlpi_loader *l) {
    memset(l, 0, sizeof *l);
    l->sampler = d->sampler;
    if (d->shuffle) l->sampler.order = DLP_ORDER_SHUFFLED;
    if (d->seed) l->sampler.seed = d->seed;
    l->repeat.epochs = d->epochs;
    l->repeat.epoch_end = d->epoch_end;
    l->fetch.dataset = &d->dataset;
    l->fetch.workers = d->workers;
    l->fetch.workers.num_workers = d->num_workers;
    l->fetch.fetcher = d->fetcher;
    l->fetch.in_flight = d->in_flight;
    l->fetch.batch_pool = d->batch_pool;
    l->fetch.async = d->async;
    l->batch.batch_size = d->batch_size;
    l->batch.last = d->drop_last ? DLP_LAST_DROP : d->last;
    l->batch.collate = d->collate;
    l->batch.collate_user = d->collate_user;
    l->batch.out_fields = d->out_fields;
    l->batch.n_out_fields = d->n_out_fields;
    l->batch.batch_workers = d->batch_workers;
    l->batch.workers.placement = d->workers.placement;
    l->transfer.device = d->device;
    l->transfer.device_buffers = d->device_buffers;
    l->transfer.threaded = d->transfer_threaded;
    l->cache.bytes = d->cache_bytes;
}

/* A whole batch to each worker in turn; each has a worker beside it that collates its batches. */
static int dlpi_loader_classic(dlp_pipe *p, dlpi_loader *l) {
    int64_t n = l->fetch.workers.num_workers, each = p->d.prefetch_factor;
    int rc = dlpi_within(p, "", "num_workers", n, 0, DLP_MAX_WORKERS, "0..1024");
    if (rc != DLP_OK || n == 0) return rc; /* inline: one worker has all, whatever the topology */
    if (each == 0) each = 2;
    rc = dlpi_within(p, "", "prefetch_factor", each, 1, 4096 / n, "at most 4096 / num_workers");
    if (rc != DLP_OK) return rc;
    p->d.prefetch_factor = (int32_t)(n * each);
    l->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    l->batch.workers.dispatch = DLP_DISPATCH_BATCHES;
    if (l->batch.collate && l->batch.batch_workers == 0) l->batch.batch_workers = (int32_t)n;
    return DLP_OK;
}

/* Classic, and several items at once in each worker: as many batches for each as these are of. */
static int dlpi_loader_concurrent(dlp_pipe *p, dlpi_loader *l) {
    uint64_t world = l->sampler.world_size ? l->sampler.world_size : 1;
    uint64_t rows = (l->batch.batch_size + world - 1) / world, many = 16, need = 1;
    if (l->fetch.in_flight > 0) many = (uint64_t)l->fetch.in_flight;
    if (rows > 0 && l->fetch.batch_pool > 0)
        need = l->fetch.batch_pool / rows;
    else if (rows > 0 && p->d.prefetch_factor == 0 && l->fetch.fetcher != DLP_FETCH_SEQUENTIAL)
        need = 1 + (many + rows - 1) / rows;
    if (p->d.prefetch_factor == 0) p->d.prefetch_factor = 2;
    if (need > (uint64_t)p->d.prefetch_factor)
        p->d.prefetch_factor = need < INT32_MAX ? (int32_t)need : INT32_MAX;
    return dlpi_loader_classic(p, l);
}

static int dlpi_loader_topology(dlp_pipe *p, const dlp_loader_desc *d, dlpi_loader *l) {
    int rc;
    if (d->topology == DLP_TOPOLOGY_ECONOMIC) return DLP_OK;
    if (d->topology == DLP_TOPOLOGY_CONCURRENT) return dlpi_loader_concurrent(p, l);
    rc = dlpi_within(p, "", "fetcher", d->fetcher, 0, 0,
                     "DLP_FETCH_SEQUENTIAL in the classic topology (the concurrent has others)");
    return rc == DLP_OK ? dlpi_loader_classic(p, l) : rc;
}

/* parts: of dlp_parts_open, or NULL. */
static int dlpi_loader_wire(dlp_pipe *p, const dlp_loader_desc *d, const dlp_part_desc *parts) {
    dlpi_loader l;
    int rc;
    dlpi_loader_stages(d, &l);
    if (parts) l.sampler.order = DLP_ORDER_PARTS;
    if ((rc = dlpi_loader_topology(p, d, &l)) != DLP_OK) return rc;
    dlp_pipe_add_sampler(p, &l.sampler);
    dlp_pipe_add_repeat(p, &l.repeat);
    if (parts) dlp_pipe_add_parts(p, parts);
    dlp_pipe_add_fetch(p, &l.fetch);
    if (d->cache_bytes > 0) dlp_pipe_add_cache(p, &l.cache);
    dlp_pipe_add_batch(p, &l.batch);
    if (d->device) dlp_pipe_add_transfer(p, &l.transfer);
    return dlp_pipe_start(p); /* or the code of what could not be added */
}

static int dlpi_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, const dlp_part_desc *parts,
                            dlp_error *err) {
    dlp_pipe *p;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    if ((rc = dlp_pipe_open(&p, &desc->pipe, err)) != DLP_OK) return rc;
    rc = dlpi_loader_check(p, desc);
    if (rc == DLP_OK) rc = dlpi_loader_wire(p, desc, parts);
    if (rc != DLP_OK) {
        if (err) *err = p->err;
        dlp_pipe_close(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}

/* ---- chunks ---- */

/* A row's fields. */
static int dlpi_chunks_check_fields(dlp_pipe *p, const dlp_chunks_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_field, ndim), 0, DLP_MAX_DIMS - 2, "0..6"},
        {DLPI_AT(dlp_field, ragged), 0, 0, "0"},
    };
    if (d->fields == NULL) return dlpi_bad(p, "load", "fields", "n_fields fields", 0);
    for (uint32_t i = 0; i < d->n_fields; i++) {
        int rc = dlpi_check_field(p, "load", i, &d->fields[i], DLPI_ROWS(bounds));
        if (rc != DLP_OK) return rc;
    }
    return DLP_OK;
}

static int dlpi_chunks_check(dlp_pipe *p, const dlp_chunks_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_chunks_desc, n_items), 1, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlp_chunks_desc, chunk_rows), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_chunks_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_chunks_desc, last), 0, 1, "DLP_LAST_SHORT or DLP_LAST_DROP"},
        {DLPI_AT(dlp_chunks_desc, n_fields), 1, DLP_MAX_FIELDS, "1..16"},
        {DLPI_AT(dlp_chunks_desc, fills_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, shuffle_chunks), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, shuffle_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, preload), 0, DLP_PRELOAD_AUTO, "DLP_PRELOAD_*"},
        {DLPI_AT(dlp_chunks_desc, pass), 0, DLP_PASS_PREDICT, "DLP_PASS_*"},
        {DLPI_AT(dlp_chunks_desc, cpu_buffers), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_chunks_desc, transfer_inline), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, pipe.prefetch_factor), 0, 0, "0: cpu_buffers says it"},
    };
    int64_t held = d->pipe.max_held > 0 ? d->pipe.max_held : 1;
    int rc;
    if (d->load == NULL) return dlpi_bad(p, "load", "load", "a function", 0);
    if ((rc = dlpi_check_bounds(p, "load", d, DLPI_ROWS(bounds))) != DLP_OK) return rc;
    if ((rc = dlpi_chunks_check_fields(p, d)) != DLP_OK) return rc;
    if (d->cpu_buffers == 0 || d->device != NULL) return DLP_OK;
    return dlpi_within(p, "load", "cpu_buffers", d->cpu_buffers, held + 1, 4096,
                       "at least max_held + 1 without a device");
}

/* The order and the counts of a pass. */
static void dlpi_chunks_pass(const dlp_chunks_desc *d, dlp_sampler_desc *sampler,
                             dlp_repeat_desc *repeat, dlp_split_desc *split) {
    bool train = d->pass == DLP_PASS_TRAIN;
    *split = (dlp_split_desc){d->chunk_rows,
                              d->n_items,
                              d->batch_size,
                              train ? d->last : DLP_LAST_SHORT,
                              train ? d->shuffle_rows : 0,
                              d->rank,
                              d->world_size,
                              d->allow_uneven};
    memset(sampler, 0, sizeof *sampler);
    sampler->seed = d->seed;
    if (train && d->shuffle_chunks) sampler->order = DLP_ORDER_SHUFFLED;
    *repeat = (dlp_repeat_desc){train ? d->epochs : 1, d->epoch_end};
}

/* A chunk's fields: one more dimension before a row's. */
static void dlpi_chunks_fields(const dlp_chunks_desc *d, const dlp_split_desc *split,
                               dlp_field *out) {
    uint64_t room = dlpi_split_room(split);
    for (uint32_t f = 0; f < d->n_fields; f++) {
        out[f] = d->fields[f];
        out[f].ndim = d->fields[f].ndim + 1;
        out[f].shape[0] = room ? (int64_t)room : 1;
        for (int i = 0; i < d->fields[f].ndim; i++) out[f].shape[i + 1] = d->fields[f].shape[i];
    }
}

/* What the split stage keeps for the fetch. */
static void dlpi_chunks_keep(dlpi_split *to, const dlp_chunks_desc *d, int preload) {
    to->load = d->load;
    to->user = d->user;
    to->preload = preload;
    to->fills_rows = (int)d->fills_rows;
}

static int dlpi_chunks_wire(dlp_pipe *p, const dlp_chunks_desc *d, int preload) {
    dlp_field fields[DLP_MAX_FIELDS];
    dlp_sampler_desc sampler;
    dlp_repeat_desc repeat;
    dlp_split_desc split;
    dlp_dataset chunks = {
        .fields = fields, .n_fields = d->n_fields, .fills_rows = 1, .fetch = dlpi_chunk_fetch};
    dlp_fetch_desc fetch = {.dataset = &chunks, .workers = d->workers};
    dlp_batch_desc batch;
    dlp_transfer_desc transfer = {d->device, d->device_buffers, d->transfer_inline == 0};
    int32_t held = d->pipe.max_held > 0 ? d->pipe.max_held : 1;
    dlp_stage to_device = 0, views;
    dlpi_chunks_pass(d, &sampler, &repeat, &split);
    dlpi_chunks_fields(d, &split, fields);
    chunks.n_items = (d->n_items - 1) / d->chunk_rows + 1;
    if (split.last == DLP_LAST_DROP && chunks.n_items > 1 &&
        d->n_items - (chunks.n_items - 1) * d->chunk_rows < d->batch_size)
        split.n_rows = --chunks.n_items * d->chunk_rows; /* the last chunk has no batch */
    if (fetch.workers.name == NULL) fetch.workers.name = "load";
    memset(&batch, 0, sizeof batch);
    batch.batch_size = 1;
    p->d.prefetch_factor = d->cpu_buffers ? d->cpu_buffers : d->device ? 2 : held + 1;
    if (d->device == NULL) p->d.prefetch_factor -= held;
    dlp_pipe_add_sampler(p, &sampler);
    dlp_pipe_add_repeat(p, &repeat);
    dlp_pipe_add_fetch(p, &fetch);
    dlp_pipe_add_batch(p, &batch);
    if (d->device) to_device = dlp_pipe_add_transfer(p, &transfer);
    views = dlp_pipe_add_split(p, &split);
    if (p->err.code != 0) return p->err.code;
    dlpi_chunks_keep(p->stages[views].self, d, preload);
    if (preload == DLP_PRELOAD_DEVICE && d->device == NULL)
        return dlpi_bad(p, "load", "preload", "DLP_PRELOAD_CPU without a device", preload);
    if (preload == DLP_PRELOAD_DEVICE && chunks.n_items <= INT32_MAX) /* one for each chunk */
        dlpi_transfer_of(&p->stages[to_device])->d.device_buffers = (int32_t)chunks.n_items;
    return DLP_OK;
}

/* Is there a preload that DLP_PRELOAD_AUTO may choose? */
static bool dlpi_chunks_fit(dlp_pipe *p, const dlp_chunks_desc *d, int preload) {
    dlp_plan plan;
    return d->pipe.limit_bytes > 0 && dlpi_chunks_wire(p, d, preload) == DLP_OK &&
           dlp_pipe_plan(p, &plan) == DLP_OK && plan.total_bytes <= d->pipe.limit_bytes;
}

/* Open and wire it with this preload; *fits: whether that may be chosen of several. */
static int dlpi_chunks_try(dlp_pipe **out, const dlp_chunks_desc *d, int preload, bool *fits,
                           dlp_error *err) {
    dlp_pipe *p;
    int rc = dlp_pipe_open(&p, &d->pipe, err);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_chunks_check(p, d)) == DLP_OK) {
        if (fits)
            *fits = dlpi_chunks_fit(p, d, preload);
        else
            rc = dlpi_chunks_wire(p, d, preload);
    }
    *out = p;
    return rc;
}

DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err) {
    dlp_pipe *p = NULL;
    int rc = DLP_OK, preload;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    preload = desc->preload;
    if (preload == DLP_PRELOAD_AUTO) {
        bool fits = false;
        preload = desc->device ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU;
        for (; rc == DLP_OK && !fits && preload > DLP_PRELOAD_NONE; preload -= !fits) {
            rc = dlpi_chunks_try(&p, desc, preload, &fits, err);
            if (rc == DLP_OK) dlp_pipe_close(p), p = NULL;
        }
        if (rc != DLP_OK && p == NULL) return rc;
    }
    if (rc == DLP_OK && (rc = dlpi_chunks_try(&p, desc, preload, NULL, err)) == DLP_OK)
        rc = dlp_pipe_start(p);
    if (rc != DLP_OK) {
        if (p && err) *err = p->err;
        dlp_pipe_close(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}

static int dlpi_run_step(dlp_pipe *p, const dlp_run_desc *d, dlp_run_result *r, dlp_batch *b) {
    uint64_t epoch = b->epoch;
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    int rc = d->on_step(d->user, b), stop;
    r->steps++;
    r->items += b->count;
    stop = rc != 0 || (d->max_steps != 0 && r->steps == d->max_steps);
    if (dlp_pipe_state(p, b, &r->state) != DLP_OK) return DLP_ERR_STATE;
    if ((rc = dlp_pipe_release(p, b)) != DLP_OK) return rc;
    r->epochs += last;
    if (last && d->on_epoch && d->on_epoch(d->user, epoch) != 0) stop = 1;
    return stop ? DLP_END : DLP_OK;
}

DLPDEF int dlp_chunks_run(dlp_pipe *p, const dlp_run_desc *desc) {
    dlp_run_result r;
    dlp_batch *b = NULL;
    int rc, step = DLP_OK;
    uint64_t begin = dlpi_now_ns();
    memset(&r, 0, sizeof r);
    if (p == NULL || desc == NULL || desc->on_step == NULL) return DLP_ERR_ARG;
    if ((rc = dlp_pipe_state(p, NULL, &r.state)) != DLP_OK) return rc;
    while (step == DLP_OK) {
        rc = dlp_pipe_next(p, &b, DLP_FOREVER);
        if (rc == DLP_OK && b != NULL)
            step = dlpi_run_step(p, desc, &r, b);
        else if (rc != DLP_EPOCH_END)
            break;
    }
    r.elapsed_ns = dlpi_now_ns() - begin;
    if (desc->result) *desc->result = r;
    if (step < 0) return step;
    return step == DLP_END ? DLP_OK : rc;
}

DLPDEF int dlp_part_fail(const dlp_part *part, int errnum, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dlpi_note_write(&((dlpi_worker *)part->internal)->note, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

DLPDEF dlp_stage dlp_pipe_add_parts(dlp_pipe *p, const dlp_part_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_parts_ops, "parts", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    return dlpi_added(p, st, dlpi_parts_take(p, st, desc));
}

DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err) {
    return dlpi_loader_open(out, desc, NULL, err);
}

DLPDEF int dlp_parts_open(dlp_pipe **out, const dlp_parts_desc *desc, dlp_error *err) {
    dlp_part_desc parts;
    if (desc == NULL) return dlpi_loader_open(out, NULL, NULL, err);
    parts = desc->parts;
    if (desc->loader.shuffle == 1) parts.shuffle_parts = parts.shuffle_items = 1;
    return dlpi_loader_open(out, &desc->loader, &parts, err);
}

/* ---------------------------------------------------------------------------------------------
   >>impl-pictures   TRACE, TIMELINE, WORDS
   Nothing here runs on a hot path: it reads what stats and trace give, may allocate for the length
   of a call, and writes files. No figure is printed with %f: the decimal point would follow the
   caller's locale, and neither JSON nor SVG may. */

#include <sys/stat.h>

/* One lane of a trace: a worker's events in the order of time. group: stage, -1 for the trainer. */
typedef struct dlpi_lane {
    char name[32];
    int group;
    const dlp_trace_event *events;
    int n;
} dlpi_lane;

/* A number as text, by value, to stand in an argument list. */
typedef struct dlpi_num {
    char s[40];
} dlpi_num;

/* v with three digits or more: 0.12, 4.56, 12.3, 1234, 56,789, 1.23 million. */
static dlpi_num dlpi_num_of(double v) {
    dlpi_num r;
    const char *unit = "";
    if (!(v > 0)) { v = 0; }
    if (v >= 1e15) { v = 1e15; }
    if (v >= 1e6) {
        v /= 1e6;
        unit = " million";
    }
    uint64_t q = v < 9.995 ? 100 : v < 99.95 ? 10 : 1;
    uint64_t x = (uint64_t)(v * (double)q + 0.5);
    if (q == 1 && x >= 10000 && x < 1000000) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ",%03u%s", x / 1000, (unsigned)(x % 1000), unit);
    } else if (q == 1) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%s", x, unit);
    } else if (q == 10) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%u%s", x / 10, (unsigned)(x % 10), unit);
    } else {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%02u%s", x / 100, (unsigned)(x % 100), unit);
    }
    return r;
}

/* A share as a percentage without its sign: 0, 0.4, 12, 99.6, 100. */
static dlpi_num dlpi_num_percent(double share) {
    dlpi_num r;
    double p = share > 1 ? 100 : share > 0 ? share * 100 : 0;
    uint64_t x = (uint64_t)(p * 10 + 0.5);
    if (x == 0 || x == 1000 || (x >= 100 && x < 990)) {
        snprintf(r.s, sizeof r.s, "%" PRIu64, (x + 5) / 10);
    } else {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%" PRIu64, x / 10, x % 10);
    }
    return r;
}

static dlpi_num dlpi_num_bytes(double v) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; v >= 1024 && u < 4; u++) { v /= 1024; }
    dlpi_num n = dlpi_num_of(v), r;
    if (u == 0) { snprintf(n.s, sizeof n.s, "%d", (int)(v + 0.5)); }
    snprintf(r.s, sizeof r.s, "%.24s %s", n.s, units[u]);
    return r;
}

/* A time in the unit that suits `reference`, with decimals enough to tell `resolution` apart. */
static dlpi_num dlpi_num_time(uint64_t ns, uint64_t reference, uint64_t resolution) {
    const char *name = reference >= 1000000000u ? "s"
                       : reference >= 1000000u  ? "ms"
                       : reference >= 1000u     ? "us"
                                                : "ns";
    uint64_t unit = *name == 's'   ? 1000000000u
                    : *name == 'm' ? 1000000u
                    : *name == 'u' ? 1000u
                                   : 1u,
             q = unit;
    char fraction[12] = ".000000000";
    int decimals = 0;
    dlpi_num r;
    for (; q > resolution && q > 1 && decimals < 9; q /= 10) { decimals++; }
    uint64_t v = ns / q + (ns % q >= (q + 1) / 2 ? 1 : 0), scale = unit / q, rest = v % scale;
    fraction[decimals > 0 ? decimals + 1 : 0] = 0;
    for (int i = decimals; i > 0; i--, rest /= 10) { fraction[i] = (char)('0' + rest % 10); }
    snprintf(r.s, sizeof r.s, "%" PRIu64 "%s %s", v / scale, fraction, name);
    return r;
}

/* A duration with about three digits. */
static dlpi_num dlpi_num_ns(uint64_t ns) { return dlpi_num_time(ns, ns, ns / 100); }

/* ---- a file that is whole or not there ---- */

typedef struct dlpi_out {
    int fd;
    int errnum; /* first failure; nothing is written after it */
    size_t n;
    char *temporary; /* renamed at the end; NULL: written in place */
    const char *path;
    char buf[8192];
} dlpi_out;

static void dlpi_out_flush(dlpi_out *o) {
    size_t done = 0;
    struct stat st;
    bool file = fstat(o->fd, &st) == 0 && S_ISREG(st.st_mode);
    off_t at = file ? lseek(o->fd, 0, SEEK_CUR) : 0;
    if (file && o->errnum == 0 && at >= 0 && !dlpi_file_may_be((uint64_t)at + o->n))
        o->errnum = errno;
    while (done < o->n && o->errnum == 0) {
        ssize_t k = write(o->fd, o->buf + done, o->n - done);
        if (k > 0) {
            done += (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            o->errnum = k == 0 ? EIO : errno;
        }
    }
    o->n = 0;
}

static void dlpi_out_bytes(dlpi_out *o, const char *s, size_t n) {
    if (n > sizeof o->buf - o->n) { dlpi_out_flush(o); }
    memcpy(o->buf + o->n, s, n);
    o->n += n;
}

/* Print at most 1023 bytes: strings of unknown length go through dlpi_out_escaped. */
__attribute__((format(printf, 2, 3))) static void dlpi_out_print(dlpi_out *o, const char *format,
                                                                 ...) {
    char line[1024];
    va_list a;
    va_start(a, format);
    int n = vsnprintf(line, sizeof line, format, a);
    va_end(a);
    if (n < 0 || (size_t)n >= sizeof line) {
        o->errnum = o->errnum ? o->errnum : EOVERFLOW;
        return;
    }
    dlpi_out_bytes(o, line, (size_t)n);
}

/* A regular or new file is written beside itself and renamed, so that a failure leaves what was
   there. Anything else (a device, a pipe, a link such as /dev/stdout) is written in place: renaming
   over it would put a file where the device was. */
static int dlpi_out_open(dlpi_out *o, const char *path) {
    struct stat st;
    o->errnum = 0;
    o->n = 0;
    o->path = path;
    o->temporary = NULL;
    bool in_place = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (in_place && !dlpi_file_trusted(&st, path)) {
        errno = EACCES;
        return DLP_ERR_SYSTEM;
    }
    if (in_place) {
        o->fd = dlpi_fd_above(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
        return o->fd < 0 ? DLP_ERR_SYSTEM : DLP_OK;
    }
    size_t n = strlen(path);
    if ((o->temporary = malloc(n + 5)) == NULL) { return DLP_ERR_MEMORY; }
    memcpy(o->temporary, path, n);
    memcpy(o->temporary + n, ".tmp", 5);
    o->fd = dlpi_file_anew(o->temporary);
    if (o->fd < 0) {
        int e = errno;
        free(o->temporary);
        errno = e;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
}

static int dlpi_out_close(dlpi_out *o) {
    dlpi_out_flush(o);
    if (close(o->fd) != 0 && o->errnum == 0) { o->errnum = errno; }
    if (o->temporary != NULL) {
        if (o->errnum == 0 && rename(o->temporary, o->path) != 0) { o->errnum = errno; }
        if (o->errnum != 0) { unlink(o->temporary); }
        free(o->temporary);
    }
    if (o->errnum != 0) {
        errno = o->errnum;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
}

/* Step over one character and return its code point; 0xFFFD for whatever is not well-formed UTF-8,
   and for characters that no picture should carry: controls, marks that turn the writing direction,
   and what XML forbids. */
static uint32_t dlpi_utf8_next(const char **s, const char *end) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)*(*s)++;
    int more = c < 0x80 ? 0 : c >= 0xf0 && c < 0xf8 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c >= 0x80 && (c < 0xc2 || c >= 0xf8)) { return 0xfffd; }
    c &= more == 3 ? 7u : more == 2 ? 15u : more == 1 ? 31u : 127u;
    for (int i = 0; i < more; i++) {
        if (*s == end || ((unsigned char)**s & 0xc0) != 0x80) { return 0xfffd; }
        c = c << 6 | ((unsigned char)*(*s)++ & 0x3f);
    }
    bool bad = c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
               (c & 0xfffe) == 0xfffe || c < 0x20 || (c >= 0x7f && c < 0xa0) ||
               (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
    return bad ? 0xfffd : c;
}

/* Width of a text in units that no common sans-serif font exceeds at 0.66 em each. */
static int dlpi_text_units(const char *s, size_t n) {
    int units = 0;
    for (const char *end = s + n; s != end;) { units += dlpi_utf8_next(&s, end) < 0x250 ? 1 : 2; }
    return units;
}

static void dlpi_out_char(dlpi_out *o, uint32_t c, bool json) {
    char b[8];
    if (json && (c == '"' || c == '\\')) {
        dlpi_out_print(o, "\\%c", (int)c);
    } else if (!json && (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')) {
        dlpi_out_print(o, "&#%d;", (int)c);
    } else if (c < 0x80) {
        b[0] = (char)c;
        dlpi_out_bytes(o, b, 1);
    } else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        b[0] = (char)((more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u) | c >> (6 * more));
        for (int i = 1; i <= more; i++) { b[i] = (char)(0x80u | (c >> (6 * (more - i)) & 0x3f)); }
        dlpi_out_bytes(o, b, (size_t)more + 1);
    }
}

/* Write a name of at most `max` bytes, cut to `units` of width, as JSON or XML text. */
static void dlpi_out_escaped(dlpi_out *o, const char *s, size_t max, int units, bool json) {
    size_t n = strnlen(s, max);
    const char *end = s + n;
    bool cut = dlpi_text_units(s, n) > units;
    int used = 0;
    while (s != end) {
        uint32_t c = dlpi_utf8_next(&s, end);
        used += c < 0x250 ? 1 : 2;
        if (cut && used > units - 2) {
            dlpi_out_char(o, 0x2026, json);
            return;
        }
        dlpi_out_char(o, c, json);
    }
}

/* ---- Chrome trace-event JSON:
   https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ---- */

static void dlpi_json_event(dlpi_out *o, int tid, const dlp_trace_event *e) {
    static const char *const kinds[] = {"other", "work",    "wait",   "step",
                                        "epoch", "starved", "blocked"};
    const char *kind = kinds[e->kind < 7 ? e->kind : 0];
    uint64_t dur = e->end_ns > e->begin_ns ? e->end_ns - e->begin_ns : 0;
    dlpi_out_print(o,
                   ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64
                   ".%03u,\"cat\":\"%s\",",
                   tid, e->begin_ns / 1000, (unsigned)(e->begin_ns % 1000), dur / 1000,
                   (unsigned)(dur % 1000), kind);
    if (e->kind == DLP_TRACE_WORK || e->kind == DLP_TRACE_STEP) {
        dlpi_out_print(o, "\"name\":\"%s %" PRIu64 "\"",
                       e->kind == DLP_TRACE_WORK ? "batch" : "step", e->sequence);
    } else if (e->kind == DLP_TRACE_EPOCH) {
        dlpi_out_print(o, "\"name\":\"epoch %" PRIu32 "\"", e->epoch);
    } else {
        dlpi_out_print(o, "\"name\":\"%s\"", kind);
    }
    dlpi_out_print(o, ",\"args\":{\"sequence\":%" PRIu64 ",\"epoch\":%" PRIu32 ",\"items\":%u}}",
                   e->sequence, e->epoch, (unsigned)e->items);
}

static void dlpi_json_write(dlpi_out *o, const dlpi_lane *lanes, int n_lanes) {
    dlpi_out_print(
        o,
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"writer\":\"dlpipe "
        "%d.%d.%d\"},\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"dlpipe\"}}",
        DLPIPE_VERSION_MAJOR, DLPIPE_VERSION_MINOR, DLPIPE_VERSION_PATCH);
    for (int i = 0; i < n_lanes; i++) {
        dlpi_out_print(
            o,
            ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"",
            i + 1);
        dlpi_out_escaped(o, lanes[i].name, sizeof lanes[i].name, INT_MAX, true);
        dlpi_out_print(o,
                       "\"}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\","
                       "\"args\":{\"sort_index\":%d}}",
                       i + 1, i);
        for (int k = 0; k < lanes[i].n; k++) { dlpi_json_event(o, i + 1, &lanes[i].events[k]); }
    }
    dlpi_out_print(o, "\n]}\n");
}

static int dlpi_lanes_write_trace(const dlpi_lane *lanes, int n_lanes, const char *path) {
    dlpi_out o;
    int rc = dlpi_out_open(&o, path);
    if (rc != DLP_OK) { return rc; }
    dlpi_json_write(&o, lanes, n_lanes);
    return dlpi_out_close(&o);
}

/* ---- the timeline: one SVG ---- */

enum {
    DLPI_SVG_LEFT = 160, /* px: lane names */
    DLPI_SVG_PLOT = 1000,
    DLPI_SVG_WIDTH = 1200,
    DLPI_SVG_TOP = 84, /* title, window, legend */
    DLPI_SVG_AXIS = 20,
    DLPI_SVG_HEADING = 22,
    DLPI_SVG_GAP = 6,
    DLPI_SVG_BORDERS = 200,  /* epoch borders drawn at most */
    DLPI_SVG_BORDER = 14,    /* the line of epoch numbers */
    DLPI_SVG_LANES = 512,    /* drawn at most */
    DLPI_SVG_EVENTS = 16000, /* aimed at in the window */
    DLPI_SVG_STEPS = 32,     /* of the trainer, aimed at */
    DLPI_SVG_RECTS = 40000,  /* never more */
    DLPI_SVG_COLOURS = 6
};

/* What is drawn: a window of time, and how large. */
typedef struct dlpi_view {
    uint64_t t0, t1;
    uint64_t least_ns; /* what is narrower is merged with its neighbours */
    double scale;      /* hundredths of a pixel per ns */
    int pitch, bar, font;
    int trainer_pitch;
    int per_group; /* lanes drawn of each group */
    int height;
    int n_borders;
    struct {
        int x;
        uint32_t epoch;
    } borders[DLPI_SVG_BORDERS];
    const char *which; /* words for the choice of the window */
} dlpi_view;

static int dlpi_u64_compare(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static const char *dlpi_group_name(const dlp_stats *s, int group) {
    if (group < 0) { return "trainer"; }
    return s != NULL && group < DLP_MAX_STAGES && (uint32_t)group < s->n_stages
               ? s->stages[group].name
               : "stage";
}

/* Lanes from i on that belong to one group. */
static int dlpi_group_size(const dlpi_lane *lanes, int n_lanes, int i) {
    int k = i;
    while (k < n_lanes && lanes[k].group == lanes[i].group) { k++; }
    return k - i;
}

static int dlpi_view_pitch(const dlpi_view *v, const dlpi_lane *lane) {
    return lane->group < 0 ? v->trainer_pitch : v->pitch;
}

/* Height of a lane's stretches; the rest of its pitch is white. */
static int dlpi_view_bar(const dlpi_view *v, const dlpi_lane *lane) {
    int pitch = dlpi_view_pitch(v, lane);
    return pitch - (pitch >= 11 ? 3 : 1);
}

/* The event with which the newest part of a lane begins that can be told apart: so many events of a
   worker, so many steps of the trainer. */
static int dlpi_lane_first(const dlpi_lane *lane, int limit) {
    int i = lane->n, left = lane->group < 0 ? DLPI_SVG_STEPS : limit;
    while (i > 0 && left > 0) {
        i--;
        left -= lane->group >= 0 || lane->events[i].kind == DLP_TRACE_STEP;
    }
    return i;
}

/* Choose the newest stretch of time in which every lane has records and no more of them than can be
   told apart. One lane whose ring reaches back far less than the others' (tiny items) does not
   decide: then the middle lane does, and that lane begins late. */
static int dlpi_view_window(dlpi_view *v, const dlpi_lane *lanes, int n_lanes) {
    uint64_t *starts = malloc(((size_t)n_lanes + 1) * sizeof *starts), oldest = UINT64_MAX;
    uint64_t steps = 0; /* the trainer's first that is wanted */
    int limit = DLPI_SVG_EVENTS / (n_lanes + 1), m = 0;
    if (starts == NULL) { return DLP_ERR_MEMORY; }
    limit = limit > 240 ? 240 : limit < 40 ? 40 : limit;
    v->t0 = v->t1 = 0;
    for (int i = 0; i < n_lanes; i++) {
        int n = lanes[i].n;
        if (n > 0) {
            const dlp_trace_event *e = lanes[i].events;
            starts[m] = e[dlpi_lane_first(&lanes[i], limit)].begin_ns;
            steps = lanes[i].group < 0 ? starts[m] : steps;
            m++;
            oldest = e[0].begin_ns < oldest ? e[0].begin_ns : oldest;
            v->t1 = e[n - 1].end_ns > v->t1 ? e[n - 1].end_ns : v->t1;
        }
    }
    v->which = "all that is recorded";
    if (m > 0) {
        qsort(starts, (size_t)m, sizeof *starts, dlpi_u64_compare);
        uint64_t last = starts[m - 1], middle = starts[m / 2];
        bool most = last >= v->t1 || (v->t1 > middle && (v->t1 - last) < (v->t1 - middle) / 8);
        v->t0 = most ? middle : last;
        v->t0 = v->t0 < steps ? steps : v->t0; /* a picture of steps, however rarely others work */
        v->t0 = v->t0 < v->t1 ? v->t0 : oldest < v->t1 ? oldest : v->t1;
        if (v->t0 > oldest) {
            v->which = most ? "the newest stretch that most lanes have recorded"
                            : "the newest stretch that all lanes have recorded";
        }
    }
    free(starts);
    return DLP_OK;
}

/* Hundredths of a pixel. Monotone in t, so stretches that do not overlap in time do not overlap
   in x. */
static int dlpi_view_x(const dlpi_view *v, uint64_t t) {
    t = t < v->t0 ? v->t0 : t > v->t1 ? v->t1 : t;
    return DLPI_SVG_LEFT * 100 + (int)((double)(t - v->t0) * v->scale);
}

static void dlpi_view_border(dlpi_view *v, uint64_t t, uint32_t epoch) {
    int x = dlpi_view_x(v, t) / 100, n = v->n_borders;
    if (t > v->t0 && t < v->t1 && n < DLPI_SVG_BORDERS &&
        (n == 0 || x >= v->borders[n - 1].x + 4)) {
        v->borders[n].x = x;
        v->borders[n].epoch = epoch;
        v->n_borders++;
    }
}

/* Borders are where the trainer's steps change epoch: at the border's own event if there is one
   between the two steps, else where the second begins. */
static void dlpi_view_borders(dlpi_view *v, const dlpi_lane *trainer) {
    bool known = false;
    uint32_t epoch = 0;
    uint64_t border = UINT64_MAX;
    for (int i = 0; i < trainer->n; i++) {
        const dlp_trace_event *e = &trainer->events[i];
        if (e->kind == DLP_TRACE_EPOCH) {
            border = e->begin_ns;
        } else if (e->kind == DLP_TRACE_STEP) {
            if (known && e->epoch != epoch) {
                dlpi_view_border(v, border != UINT64_MAX ? border : e->begin_ns, e->epoch);
            }
            known = true;
            epoch = e->epoch;
            border = UINT64_MAX;
        }
    }
}

static void dlpi_view_layout(dlpi_view *v, const dlpi_lane *lanes, int n_lanes) {
    static const struct {
        int lanes, pitch;
    } sizes[] = {{6, 26}, {12, 20}, {24, 16}, {48, 13}, {100, 11}, {200, 6}, {INT_MAX, 4}};
    int groups = 0, drawn = 0, trainers = 0, s = 0;
    for (int i = 0; i < n_lanes; i += dlpi_group_size(lanes, n_lanes, i)) { groups++; }
    v->per_group = groups > 0 ? DLPI_SVG_LANES / groups : 0;
    v->per_group = v->per_group < 1 ? 1 : v->per_group;
    for (int i = 0, n; i < n_lanes; i += n) {
        n = dlpi_group_size(lanes, n_lanes, i);
        int shown = n < v->per_group ? n : v->per_group;
        drawn += shown;
        trainers += lanes[i].group < 0 ? shown : 0;
    }
    while (drawn > sizes[s].lanes) { s++; }
    v->pitch = sizes[s].pitch;
    v->trainer_pitch = v->pitch > 22 ? v->pitch : 22;
    v->font = v->pitch < 12 ? 9 : v->pitch < 15 ? 10 : 12;
    if (v->t1 > v->t0) {
        v->scale = DLPI_SVG_PLOT * 100.0 / (double)(v->t1 - v->t0);
        if (n_lanes > 0 && lanes[0].group < 0) { dlpi_view_borders(v, &lanes[0]); }
    }
    v->height = DLPI_SVG_TOP + 2 * DLPI_SVG_AXIS + groups * (DLPI_SVG_HEADING + DLPI_SVG_GAP) +
                (drawn - trainers) * v->pitch + trainers * v->trainer_pitch +
                (v->n_borders > 0 ? DLPI_SVG_BORDER : 0);
    if (v->t1 > v->t0) {
        uint64_t length = v->t1 - v->t0;
        /* Two rects may follow for each least_ns of a lane: one merged, one that was wide. */
        int most = DLPI_SVG_RECTS / 2 / (drawn + 1);
        v->least_ns = length / (uint64_t)(most > 2000 ? 2000 : most < 20 ? 20 : most) + 1;
    }
}

static void dlpi_svg_text(dlpi_out *o, const char *kind, int x, int y, const char *s, int units) {
    dlpi_out_print(o, "<text class=\"%s\" x=\"%d\" y=\"%d\">", kind, x, y);
    dlpi_out_escaped(o, s, 512, units, false);
    dlpi_out_print(o, "</text>\n");
}

static void dlpi_svg_style(dlpi_out *o, const dlpi_view *v) {
    dlpi_out_print(o,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "viewBox=\"0 0 %d %d\" "
                   "font-family=\"Helvetica,Arial,sans-serif\">\n<style>\n",
                   DLPI_SVG_WIDTH, v->height, DLPI_SVG_WIDTH, v->height);
    /* The palette of Okabe and Ito (https://jfly.uni-koeln.de/color), in an order in which
       neighbours differ in lightness too. */
    dlpi_out_print(
        o,
        ".w0{fill:#0072b2}.w1{fill:#e69f00}.w2{fill:#009e73}.w3{fill:#56b4e9}.w4{fill:#d55e00}.w5{"
        "fill:#cc79a7}\n"
        ".q{fill:#333}.s{fill:#c9d3de}.b{fill:#e8c9a0}.e{fill:#888}.t{fill:#f4f5f6}.bg{fill:#fff}\n"
        ".grid{stroke:#dcdfe3;stroke-width:1}.border{stroke:#333;stroke-width:1.2;stroke-dasharray:"
        "5 3}\n");
    dlpi_out_print(o,
                   "text{fill:#222;font-size:11px}.title{font-size:16px;font-weight:bold}\n"
                   ".sub,.tick{fill:#555}.epoch{font-weight:bold}.tick,.epoch,.num0,.num1{text-"
                   "anchor:middle}.head{font-size:12px;font-weight:bold}\n"
                   ".lane{font-size:%dpx;text-anchor:end}.num0,.num1{font-size:9px;pointer-events:"
                   "none}.num0{fill:#fff}\n"
                   "</style>\n",
                   v->font);
    dlpi_out_print(o, "<rect class=\"bg\" x=\"0\" y=\"0\" width=\"%d\" height=\"%d\"/>\n",
                   DLPI_SVG_WIDTH, v->height);
}

/* Time that a lane spent in each kind, inside the window. */
static void dlpi_lane_sums(const dlpi_lane *lane, const dlpi_view *v, uint64_t sum[7]) {
    uint64_t seen = v->t0;
    for (int i = 0; i < lane->n; i++) {
        uint64_t b = lane->events[i].begin_ns, e = lane->events[i].end_ns;
        b = b < seen ? seen : b;
        e = e > v->t1 ? v->t1 : e;
        if (e > b && lane->events[i].kind < 7) {
            sum[lane->events[i].kind] += e - b;
            seen = e;
        }
    }
}

static void dlpi_svg_header(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n_lanes,
                            const dlp_stats *s) {
    char line[400];
    uint64_t length = v->t1 - v->t0, sum[7] = {0};
    int at = 0;
    if (n_lanes > 0 && lanes[0].group < 0) { dlpi_lane_sums(&lanes[0], v, sum); }
    uint64_t trainer = sum[DLP_TRACE_WAIT] + sum[DLP_TRACE_STEP];
    if (s != NULL && s->items > 0 && s->elapsed_ns > 0) {
        double run = (double)s->wait_ns + (double)s->step_ns;
        at = snprintf(line, sizeof line, "%s items/s; the trainer waited %s %% of the run",
                      dlpi_num_of((double)s->items * 1e9 / (double)s->elapsed_ns).s,
                      dlpi_num_percent(run > 0 ? (double)s->wait_ns / run : 0).s);
    } else {
        at = snprintf(line, sizeof line, "%s", length > 0 ? "Timeline" : "Nothing is recorded yet");
    }
    if (trainer > 0) {
        snprintf(line + at, sizeof line - (size_t)at, "%s%s %% of this window",
                 at > 8 ? ", " : "; the trainer waited ",
                 dlpi_num_percent((double)sum[DLP_TRACE_WAIT] / (double)trainer).s);
    }
    dlpi_svg_text(o, "title", 16, 27, line, 104);
    if (length == 0) { return; }
    at = snprintf(line, sizeof line, "Shown: %s, from %s after the start, %s.",
                  dlpi_num_ns(length).s, dlpi_num_time(v->t0, v->t1, length / 100).s, v->which);
    if (s != NULL) {
        snprintf(line + at, sizeof line - (size_t)at,
                 " batch_size %u, prefetch_factor %u, %u worker%s.", (unsigned)s->batch_size,
                 (unsigned)s->prefetch_factor, (unsigned)s->n_workers,
                 s->n_workers == 1 ? "" : "s");
    }
    dlpi_svg_text(o, "sub", 16, 46, line, 158);
}

static void dlpi_svg_legend(dlpi_out *o) {
    static const struct {
        const char *kind, *text;
        int y, height;
    } keys[] = {{NULL, "work and steps, a colour and number per batch", 0, 0},
                {"s", "starved: no input", 10, 4},
                {"b", "blocked: no free cell", 0, 4},
                {"q", "the trainer waits", 0, 14},
                {"e", "between epochs", 0, 14}};
    int x = 16, y = 56;
    for (int i = 0; i < (int)(sizeof keys / sizeof *keys); i++) {
        if (keys[i].kind == NULL) {
            for (int c = 0; c < DLPI_SVG_COLOURS; c++, x += 10) {
                dlpi_out_print(
                    o, "<rect class=\"w%d\" x=\"%d\" y=\"%d\" width=\"9\" height=\"14\"/>\n", c, x,
                    y);
            }
        } else {
            dlpi_out_print(o, "<rect class=\"t\" x=\"%d\" y=\"%d\" width=\"18\" height=\"14\"/>\n",
                           x, y);
            dlpi_out_print(o, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"18\" height=\"%d\"/>\n",
                           keys[i].kind, x, y + keys[i].y, keys[i].height);
            x += 18;
        }
        dlpi_svg_text(o, "key", x + 5, y + 11, keys[i].text, 60);
        x += 5 + (int)strlen(keys[i].text) * 7 + 18;
    }
}

/* 1, 2 or 5 times a power of ten ns, so that at most ten fit. */
static uint64_t dlpi_tick_step(uint64_t length) {
    uint64_t step = 1;
    for (int i = 0; length / step > 10; i++) { step = i % 3 == 1 ? step / 2 * 5 : step * 2; }
    return step;
}

static void dlpi_svg_ticks(dlpi_out *o, const dlpi_view *v, int y) {
    uint64_t length = v->t1 - v->t0, step = dlpi_tick_step(length);
    for (uint64_t t = 0;; t += step) {
        int x = dlpi_view_x(v, v->t0 + t);
        dlpi_svg_text(o, "tick", x / 100, y, dlpi_num_time(t, length, step).s, 11);
        if (length - t < step) { break; }
    }
}

static void dlpi_svg_grid(dlpi_out *o, const dlpi_view *v, int y, int height) {
    uint64_t length = v->t1 - v->t0, step = dlpi_tick_step(length);
    dlpi_out_print(o, "<path class=\"grid\" d=\"");
    for (uint64_t t = 0;; t += step) {
        dlpi_out_print(o, "M%d.5 %dv%d", dlpi_view_x(v, v->t0 + t) / 100, y, height);
        if (length - t < step) { break; }
    }
    dlpi_out_print(o, "\"/>\n");
}

/* Neighbouring stretches that are drawn as one rect. */
typedef struct dlpi_run {
    uint64_t begin, end;
    uint64_t sum[7];    /* ns of each kind */
    uint64_t low, high; /* batches worked on */
    uint64_t sequence, longest;
    uint64_t items;
    uint32_t epoch;
    int n; /* stretches; 0: none open */
} dlpi_run;

static int dlpi_run_kind(const dlpi_run *r) {
    int best = 1;
    for (int k = 2; k < 7; k++) { best = r->sum[k] > r->sum[best] ? k : best; }
    return best;
}

static void dlpi_run_title(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane,
                           const dlpi_run *r, int kind) {
    static const char *const words[] = {"",        "work",   "waiting", "step", "between epochs",
                                        "starved", "blocked"};
    uint64_t length = r->end - r->begin;
    bool on_batch = kind == DLP_TRACE_WORK || kind == DLP_TRACE_STEP;
    dlpi_out_print(o, "<title>");
    dlpi_out_escaped(o, lane->name, sizeof lane->name, 32, false);
    dlpi_out_print(o, ": ");
    if (r->n > 1) {
        dlpi_out_print(o, "%d stretches, %s %% ", r->n,
                       dlpi_num_percent((double)r->sum[kind] / (double)length).s);
    }
    dlpi_out_print(o, "%s", words[kind]);
    if (on_batch && r->low == r->high) {
        dlpi_out_print(o, ", batch %" PRIu64 " of epoch %" PRIu32, r->sequence, r->epoch);
    } else if (on_batch) {
        dlpi_out_print(o, ", batches %" PRIu64 " to %" PRIu64, r->low, r->high);
    }
    if (r->items > 0 && on_batch) {
        dlpi_out_print(o, ", %" PRIu64 " item%s", r->items, r->items == 1 ? "" : "s");
    }
    dlpi_out_print(o, ", %s, at %s</title>", dlpi_num_ns(length).s,
                   dlpi_num_time(r->begin - v->t0, v->t1 - v->t0, (v->t1 - v->t0) / 10000).s);
}

/* Whether no epoch border crosses these pixels. */
static bool dlpi_view_clear(const dlpi_view *v, int x, int end) {
    for (int i = 0; i < v->n_borders; i++) {
        if (v->borders[i].x + 1 >= x && v->borders[i].x <= end) { return false; }
    }
    return true;
}

static void dlpi_run_draw(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, const dlpi_run *r,
                          int y) {
    static const char *const kinds[] = {"", "w", "q", "w", "e", "s", "b"};
    int kind = dlpi_run_kind(r), a = dlpi_view_x(v, r->begin), w = dlpi_view_x(v, r->end) - a;
    int h = dlpi_view_bar(v, lane), thin = h * 3 / 10 < 1 ? 1 : h * 3 / 10;
    char number[24];
    if (w <= 0) { return; }
    w -= w > 300 ? 50 : 0; /* a hair of white between neighbours */
    if (kind == DLP_TRACE_STARVED || kind == DLP_TRACE_BLOCKED) {
        y += kind == DLP_TRACE_STARVED ? h - thin : 0;
        h = thin;
    }
    dlpi_out_print(o, "<rect class=\"%s", kinds[kind]);
    int colour = (int)(r->sequence % DLPI_SVG_COLOURS);
    bool on_batch = kind == DLP_TRACE_WORK || kind == DLP_TRACE_STEP;
    if (on_batch) { dlpi_out_print(o, "%d", colour); }
    dlpi_out_print(o, "\" x=\"%d.%02d\" y=\"%d\" width=\"%d.%02d\" height=\"%d\">", a / 100,
                   a % 100, y, w / 100, w % 100, h);
    dlpi_run_title(o, v, lane, r, kind);
    dlpi_out_print(o, "</rect>\n");
    int digits = snprintf(number, sizeof number, "%" PRIu64, r->sequence);
    int x = (a + w / 2) / 100, half = digits * 3;
    if (on_batch && r->n == 1 && h >= 11 && w > digits * 600 + 250 &&
        dlpi_view_clear(v, x - half, x + half)) {
        dlpi_svg_text(o, colour % 2 ? "num1" : "num0", x, y + h / 2 + 3, number, 24);
    }
}

static void dlpi_run_add(dlpi_run *r, const dlp_trace_event *e, uint64_t begin, uint64_t end) {
    if (r->n == 0) {
        memset(r, 0, sizeof *r);
        r->begin = begin;
        r->low = UINT64_MAX;
    }
    r->n++;
    r->end = end;
    r->sum[e->kind] += end - begin;
    if (e->kind != DLP_TRACE_WORK && e->kind != DLP_TRACE_STEP) { return; }
    r->items += e->items;
    r->low = e->sequence < r->low ? e->sequence : r->low;
    r->high = e->sequence > r->high ? e->sequence : r->high;
    if (end - begin > r->longest) {
        r->longest = end - begin;
        r->sequence = e->sequence;
        r->epoch = e->epoch;
    }
}

/* Draw what of a lane lies in the window. Events are not trusted to be in order: each begins no
   earlier than the last one ended. */
static void dlpi_svg_lane(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, int y) {
    dlpi_run r;
    uint64_t seen = v->t0;
    r.n = 0;
    for (int i = 0; i < lane->n; i++) {
        const dlp_trace_event *e = &lane->events[i];
        uint64_t b = e->begin_ns < seen ? seen : e->begin_ns,
                 end = e->end_ns > v->t1 ? v->t1 : e->end_ns;
        if (e->kind < 1 || e->kind > 6 || end <= b) { continue; }
        bool wide = end - b >= v->least_ns;
        if (r.n > 0 && (wide || b - r.end >= v->least_ns || r.end - r.begin >= v->least_ns)) {
            dlpi_run_draw(o, v, lane, &r, y);
            r.n = 0;
        }
        dlpi_run_add(&r, e, b, end);
        seen = end;
    }
    if (r.n > 0) { dlpi_run_draw(o, v, lane, &r, y); }
}

/* What a stage's stretches are, where they are not one item after another of the batches that the
   trainer gets. */
static void dlpi_svg_of_stage(dlpi_out *o, const dlp_stats *s, const dlp_stage_stats *st) {
    if (st->in_flight > 1) {
        dlpi_out_print(o, "; each has up to %d items under way", (int)st->in_flight);
    }
    if (st->kind == DLP_STAGE_PARTS) {
        dlpi_out_print(o, "; numbers are parts");
    } else if (s->chunks.cpu_buffers > 0) {
        dlpi_out_print(o, "; numbers are chunks");
    }
}

static void dlpi_svg_heading(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                             const dlp_stats *s, int y) {
    uint64_t sum[7] = {0};
    int silent = 0;
    double whole = (double)(v->t1 - v->t0) * n;
    for (int i = 0; i < n; i++) {
        dlpi_lane_sums(&lanes[i], v, sum);
        silent += lanes[i].n == 0;
    }
    dlpi_out_print(o, "<text class=\"head\" x=\"16\" y=\"%d\">", y + 14);
    dlpi_out_escaped(o, dlpi_group_name(s, lanes[0].group), 32, 24, false);
    dlpi_out_print(o, "<tspan font-weight=\"normal\" fill=\"#555\">");
    if (lanes[0].group < 0) {
        dlpi_out_print(o, ": in its step %s %%, waiting %s %% of this window",
                       dlpi_num_percent((double)sum[DLP_TRACE_STEP] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_WAIT] / whole).s);
    } else {
        dlpi_out_print(o, ": %d worker%s, at work %s %%, starved %s %%, blocked %s %%", n,
                       n == 1 ? "" : "s", dlpi_num_percent((double)sum[DLP_TRACE_WORK] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_STARVED] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_BLOCKED] / whole).s);
    }
    if (lanes[0].group < 0 && s != NULL && s->n_workers == 0) {
        dlpi_out_print(o, "; without workers, that is where items are fetched");
    }
    uint32_t stages = s == NULL ? 0 : s->n_stages < DLP_MAX_STAGES ? s->n_stages : DLP_MAX_STAGES;
    if (lanes[0].group >= 0 && (uint32_t)lanes[0].group < stages) {
        dlpi_svg_of_stage(o, s, &s->stages[lanes[0].group]);
    }
    if (silent > 0 && n > 1) { dlpi_out_print(o, "; %d recorded nothing", silent); }
    if (n > v->per_group) { dlpi_out_print(o, "; the first %d are drawn", v->per_group); }
    dlpi_out_print(o, "</tspan></text>\n");
}

/* What a lane has recorded is on grey ground; what its ring has forgotten is white. */
static void dlpi_svg_track(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, int y) {
    int a = lane->n > 0 ? dlpi_view_x(v, lane->events[0].begin_ns) : INT_MAX,
        end = (DLPI_SVG_LEFT + DLPI_SVG_PLOT) * 100;
    if (a < end) {
        dlpi_out_print(
            o, "<rect class=\"t\" x=\"%d.%02d\" y=\"%d\" width=\"%d.%02d\" height=\"%d\"/>\n",
            a / 100, a % 100, y, (end - a) / 100, (end - a) % 100, dlpi_view_bar(v, lane));
    }
}

/* One group: heading, tracks, grid, lanes, epoch borders. Returns the y below it. */
static int dlpi_svg_group(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                          const dlp_stats *s, int y) {
    int drawn = n < v->per_group ? n : v->per_group, pitch = dlpi_view_pitch(v, lanes),
        bar = dlpi_view_bar(v, lanes);
    int font = pitch > v->font ? v->font : 9, every = pitch >= 11 ? 1 : (font + 1 + pitch) / pitch;
    dlpi_svg_heading(o, v, lanes, n, s, y);
    y += DLPI_SVG_HEADING;
    for (int i = 0; i < drawn; i++) { dlpi_svg_track(o, v, &lanes[i], y + i * pitch); }
    dlpi_svg_grid(o, v, y, drawn * pitch);
    for (int i = 0; i < drawn; i++) {
        int top = y + i * pitch;
        if (i % every == 0) {
            dlpi_out_print(o, "<text class=\"lane\" x=\"%d\" y=\"%d\">", DLPI_SVG_LEFT - 8,
                           top + bar / 2 + font * 4 / 10);
            dlpi_out_escaped(o, lanes[i].name, sizeof lanes[i].name,
                             (DLPI_SVG_LEFT - 16) * 100 / (66 * font), false);
            dlpi_out_print(o, "</text>\n");
        }
        dlpi_svg_lane(o, v, &lanes[i], top);
    }
    for (int i = 0; i < v->n_borders; i++) {
        dlpi_out_print(o, "<path class=\"border\" d=\"M%d.5 %dv%d\"/>\n", v->borders[i].x, y - 2,
                       drawn * pitch + 2);
    }
    return y + drawn * pitch + DLPI_SVG_GAP;
}

/* Numbers of the epochs under their borders, as far as there is room. Returns the y below. */
static int dlpi_svg_epochs(dlpi_out *o, const dlpi_view *v, int y) {
    int last = -1000;
    for (int i = 0; i < v->n_borders; i++) {
        char words[40];
        int x = v->borders[i].x;
        if (x < last + 140) { continue; }
        snprintf(words, sizeof words, "epoch %" PRIu32, v->borders[i].epoch);
        last = x;
        dlpi_svg_text(o, "epoch", x > DLPI_SVG_WIDTH - 60 ? DLPI_SVG_WIDTH - 60 : x, y + 6, words,
                      16);
    }
    return v->n_borders > 0 ? y + DLPI_SVG_BORDER : y;
}

static int dlpi_svg_write(dlpi_out *o, const dlpi_lane *lanes, int n_lanes, const dlp_stats *s) {
    dlpi_view v;
    memset(&v, 0, sizeof v);
    int rc = dlpi_view_window(&v, lanes, n_lanes), y = DLPI_SVG_TOP + DLPI_SVG_AXIS;
    if (rc != DLP_OK) { return rc; }
    dlpi_view_layout(&v, lanes, n_lanes);
    if (v.t1 == v.t0) { v.height = DLPI_SVG_TOP; }
    dlpi_svg_style(o, &v);
    dlpi_svg_header(o, &v, lanes, n_lanes, s);
    if (v.t1 > v.t0) {
        dlpi_svg_legend(o);
        dlpi_svg_ticks(o, &v, y - 4);
        for (int i = 0, n; i < n_lanes; i += n) {
            n = dlpi_group_size(lanes, n_lanes, i);
            y = dlpi_svg_group(o, &v, lanes + i, n, s, y);
        }
        y = dlpi_svg_epochs(o, &v, y);
        dlpi_svg_ticks(o, &v, y + 10);
    }
    dlpi_out_print(o, "</svg>\n");
    return DLP_OK;
}

static int dlpi_lanes_write_timeline(const dlpi_lane *lanes, int n_lanes, const dlp_stats *s,
                                     const char *path) {
    dlpi_out o;
    int rc = dlpi_out_open(&o, path);
    if (rc != DLP_OK) { return rc; }
    rc = dlpi_svg_write(&o, lanes, n_lanes, s);
    if (rc != DLP_OK) { o.errnum = ENOMEM; }
    int closed = dlpi_out_close(&o);
    return rc != DLP_OK ? rc : closed;
}

/* ---- words ---- */

/* Text built by several calls, cut like snprintf's. */
typedef struct dlpi_text {
    char *buf;
    size_t size, len;
} dlpi_text;

__attribute__((format(printf, 2, 3))) static void dlpi_text_add(dlpi_text *t, const char *format,
                                                                ...) {
    size_t room = t->len < t->size ? t->size - t->len : 0;
    va_list a;
    va_start(a, format);
    int n = vsnprintf(room > 0 ? t->buf + t->len : NULL, room, format, a);
    va_end(a);
    t->len += n > 0 ? (size_t)n : 0;
}

/* What limits: a stage, or one of the names below. */
enum {
    DLPI_LIMIT_TRAINER = -1,
    DLPI_LIMIT_CORES = -2,
    DLPI_LIMIT_PREFETCH = -3,
    DLPI_LIMIT_UNKNOWN = -4
};

typedef struct dlpi_verdict {
    int limiting_stage; /* or DLPI_LIMIT_* */
    int next_limit; /* what bounds rate_plus_one; the same as limiting_stage: nothing else does */
    double rate;    /* items/s now */
    double
        /* items/s that one more worker of limiting_stage would give (moved out of the caller, if
           it is inline); rate where no worker helps */
        rate_plus_one;
} dlpi_verdict;

/* dlp_stats as shares of the time the caller spent in next and in its steps. */
typedef struct dlpi_load {
    double ns;   /* that time */
    double rows; /* per batch */
    /* items per batch, as stages count them: rows, but 1 chunk where there are views */
    double units;
    double rate;
    double wait;   /* share of the caller, inline stages included */
    double caller; /* share of the caller in steps and inline stages */
    double cores;  /* share of the process's cores that was used, or waited for */
    double used;   /* share of them that was used */
    double util
        [DLP_MAX_STAGES]; /* busy share of the workers that can have work at once; 0 if inline */
    double useful[DLP_MAX_STAGES]; /* workers that can have work at once */
    int busiest;                   /* stage with the largest util, -1: none has workers */
    int heaviest;                  /* inline stage with the most time, -1: none has any */
    int n;
} dlpi_load;

static bool dlpi_stage_takes_batches(const dlp_stage_stats *g) {
    return g->unit_is_batch || g->kind == DLP_STAGE_BATCH || g->kind == DLP_STAGE_MAP_BATCH ||
           g->kind == DLP_STAGE_TRANSFER;
}

/* How many units of its work a stage may have at once. */
static double dlpi_stage_at_once(const dlp_stats *s, const dlp_stage_stats *g, double rows) {
    if (g->kind == DLP_STAGE_PARTS) { return g->cells; }
    return s->prefetch_factor * (dlpi_stage_takes_batches(g) ? 1.0 : rows);
}

static void dlpi_load_of(dlpi_load *l, const dlp_stats *s) {
    memset(l, 0, sizeof *l);
    l->n = s->n_stages < DLP_MAX_STAGES ? (int)s->n_stages : DLP_MAX_STAGES;
    l->ns = (double)s->wait_ns + (double)s->step_ns;
    l->busiest = l->heaviest = -1;
    if (s->batches == 0 || !(l->ns > 0)) { return; }
    l->rows = (double)s->items / (double)s->batches;
    l->units = s->chunks.taken > 0 ? 1 : l->rows;
    l->rate = (double)s->items * 1e9 / l->ns;
    l->wait = (double)s->wait_ns / l->ns;
    l->caller = (double)s->step_ns / l->ns;
    double cpu_ns = 0, waits_ns = 0, cores_ns;
    bool device = false;
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        cpu_ns += (double)g->cpu_ns;
        waits_ns += dlpi_stage_core_wait(g);
        device = device || g->kind == DLP_STAGE_TRANSFER;
        if (g->workers <= 0) {
            l->caller += (double)g->busy_ns / l->ns;
            if (g->busy_ns > 0 &&
                (l->heaviest < 0 || g->busy_ns > s->stages[l->heaviest].busy_ns)) {
                l->heaviest = i;
            }
            continue;
        }
        double most = dlpi_stage_at_once(s, g, l->rows);
        l->useful[i] = most > 0 && most < g->workers ? most : g->workers;
        l->util[i] = (double)g->busy_ns / (l->useful[i] * l->ns);
        if (l->busiest < 0 || l->util[i] > l->util[l->busiest]) { l->busiest = i; }
    }
    /* A step on the host keeps a core busy; one behind a transfer stage keeps the device busy. */
    cores_ns = l->ns * (s->cpus > 0 ? s->cpus : 1);
    l->used = (cpu_ns + (device ? 0 : (double)s->step_ns)) / cores_ns;
    l->cores = l->used + waits_ns / cores_ns;
    l->caller = l->caller > 1 ? 1 : l->caller;
}

/* Lower *rate to a bound and remember whose it is. */
static void dlpi_verdict_bound(dlpi_verdict *v, double bound, int whose) {
    if (bound < v->rate_plus_one) {
        v->rate_plus_one = bound;
        v->next_limit = whose;
    }
}

/* Predict one more worker: in proportion, until the next limit is as busy as this one is now. */
static void dlpi_verdict_predict(dlpi_verdict *v, const dlpi_load *l, const dlp_stats *s) {
    int i = v->limiting_stage;
    const dlp_stage_stats *g = &s->stages[i];
    double reach = g->workers > 0 ? (l->util[i] < 1 ? l->util[i] : 1) : 1, caller = l->caller;
    if (g->workers > 0) {
        double now = g->workers, more = l->useful[i] < now ? now : now + 1;
        double most = dlpi_stage_at_once(s, g, l->rows);
        v->rate_plus_one = l->rate * more / now;
        dlpi_verdict_bound(v, l->rate * (most > now ? most / now : 1), DLPI_LIMIT_PREFETCH);
    } else {
        double share = (double)g->busy_ns / l->ns;
        caller -= share < caller ? share : caller;
        v->rate_plus_one = share > 0 ? l->rate / share : l->rate;
    }
    for (int k = 0; k < l->n; k++) {
        if (k != i && l->util[k] > 0) { dlpi_verdict_bound(v, l->rate * reach / l->util[k], k); }
    }
    if (caller > 0) { dlpi_verdict_bound(v, l->rate * reach / caller, DLPI_LIMIT_TRAINER); }
    if (l->cores > 0) { dlpi_verdict_bound(v, l->rate / l->cores, DLPI_LIMIT_CORES); }
    v->rate_plus_one = v->rate_plus_one > v->rate ? v->rate_plus_one : v->rate;
}

/* Find the limit. The caller is it when it hardly waits. Otherwise the cores, if they are full; a
   stage, if its workers hardly rest; and if everybody waits at times, there are too few batches in
   flight. */
static dlpi_verdict dlpi_verdict_of(const dlp_stats *s) {
    dlpi_load l;
    dlpi_load_of(&l, s);
    dlpi_verdict v = {DLPI_LIMIT_UNKNOWN, DLPI_LIMIT_UNKNOWN, l.rate, l.rate};
    if (s->batches == 0 || s->items == 0 || !(l.ns > 0) || s->batches <= s->prefetch_factor) {
        return v;
    }
    double inline_share = l.heaviest >= 0 ? (double)s->stages[l.heaviest].busy_ns / l.ns : 0;
    double busiest = l.busiest >= 0 ? l.util[l.busiest] : 0;
    if (l.caller >= 0.95 || (l.caller >= 0.9 && l.caller >= busiest)) {
        v.limiting_stage = inline_share >= 0.1 ? l.heaviest : DLPI_LIMIT_TRAINER;
    } else if (l.cores >= 0.9) {
        v.limiting_stage = DLPI_LIMIT_CORES;
    } else if (busiest >= 0.8) {
        v.limiting_stage =
            l.useful[l.busiest] < s->stages[l.busiest].workers ? DLPI_LIMIT_PREFETCH : l.busiest;
    } else {
        v.limiting_stage = l.busiest >= 0    ? DLPI_LIMIT_PREFETCH
                           : l.heaviest >= 0 ? l.heaviest
                                             : DLPI_LIMIT_UNKNOWN;
    }
    v.next_limit = v.limiting_stage;
    if (v.limiting_stage >= 0) { dlpi_verdict_predict(&v, &l, s); }
    return v;
}

static dlpi_num dlpi_limit_name(const dlp_stats *s, int limit) {
    dlpi_num r;
    const char *const names[] = {"the trainer", "the cores", "prefetch_factor", "not known"};
    if (limit < 0) {
        snprintf(r.s, sizeof r.s, "%s", names[-1 - limit]);
    } else {
        snprintf(r.s, sizeof r.s, "'%.31s'", s->stages[limit].name);
    }
    return r;
}

/* The desc field that gives a stage more workers. */
static const char *dlpi_stage_field(const dlp_stage_stats *g) {
    switch (g->kind) {
    case DLP_STAGE_BATCH: return "batch_workers";
    case DLP_STAGE_FETCH: return "num_workers";
    default: return "workers.num_workers";
    }
}

static bool dlpi_of_chunks(const dlp_stats *s) { return s->chunks.cpu_buffers > 0; }

/* What takes a stage out of the caller. */
static const char *dlpi_stage_setting(const dlp_stats *s, const dlp_stage_stats *g) {
    switch (g->kind) {
    case DLP_STAGE_SAMPLER: return "sampler.threaded = 1";
    case DLP_STAGE_BATCH: return "batch_workers = 1";
    case DLP_STAGE_TRANSFER:
        return dlpi_of_chunks(s) ? "transfer_inline = 0" : "transfer_threaded = 1";
    case DLP_STAGE_FETCH: return "num_workers = 1";
    default: return "workers.num_workers = 1";
    }
}

static void dlpi_explain_inline(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                                const dlpi_verdict *v) {
    const dlp_stage_stats *g = &s->stages[v->limiting_stage];
    dlpi_text_add(t,
                  "Limit: stage '%.31s' runs inline in the caller (0 workers) and takes %s %% of "
                  "its time; steps take %s %%.\n",
                  g->name, dlpi_num_percent((double)g->busy_ns / l->ns).s,
                  dlpi_num_percent((double)s->step_ns / l->ns).s);
    if (v->rate_plus_one < v->rate * 1.05) {
        dlpi_text_add(t, "Change: a worker would give nothing: %s the limit already.\n",
                      v->next_limit == DLPI_LIMIT_CORES ? "the cores are" : "the rest is");
    } else {
        dlpi_text_add(t,
                      "Change: set %s; that should give about %s items/s; then the limit is %s.\n",
                      dlpi_stage_setting(s, g), dlpi_num_of(v->rate_plus_one).s,
                      v->next_limit == v->limiting_stage ? "that worker"
                                                         : dlpi_limit_name(s, v->next_limit).s);
    }
}

/* Workers that have several items at once are busy while one is out: what limits them is how many
   are, and how long each takes. */
static void dlpi_explain_flights(dlpi_text *t, const dlp_stage_stats *g, const dlpi_load *l) {
    double out = (double)g->flight_ns / (double)g->busy_ns;
    dlpi_text_add(t,
                  "Limit: requests in flight: each of the %d worker%s of '%.31s' has %s of %d out, "
                  "which take p50 %s; the trainer waits %s %% of the time.\n",
                  g->workers, g->workers == 1 ? "" : "s", g->name, dlpi_num_of(out).s,
                  (int)g->in_flight, dlpi_num_ns(g->p50_ns).s, dlpi_num_percent(l->wait).s);
    if (out >= 0.8 * g->in_flight) {
        dlpi_text_add(t,
                      "Change: raise in_flight, or %s; twice as many give up to %s items/s, if the "
                      "source bears them and prefetch_factor has as many items.\n",
                      dlpi_stage_field(g), dlpi_num_of(2 * l->rate).s);
    } else {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor (and batch_pool, if it is set): there are too "
                      "few items to have %d out; or the source refuses more.\n",
                      (int)g->in_flight);
    }
}

static void dlpi_explain_stage(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                               const dlpi_verdict *v) {
    const dlp_stage_stats *g = &s->stages[v->limiting_stage];
    int w = g->workers;
    bool batches = dlpi_stage_takes_batches(g);
    if (g->in_flight > 1 && g->busy_ns > 0) {
        dlpi_explain_flights(t, g, l);
        return;
    }
    dlpi_text_add(t,
                  "Limit: stage '%.31s': its %d worker%s %s %% busy, and the trainer waits %s %% "
                  "of the time.\n",
                  g->name, w, w == 1 ? " is" : "s are",
                  dlpi_num_percent(l->util[v->limiting_stage]).s, dlpi_num_percent(l->wait).s);
    if (g->kind == DLP_STAGE_TRANSFER || g->kind == DLP_STAGE_SAMPLER ||
        g->kind == DLP_STAGE_REPEAT) {
        dlpi_text_add(
            t, g->kind == DLP_STAGE_TRANSFER
                   ? "Change: it has one thread: move fewer bytes (smaller dtypes, pad less), give "
                     "the device register_memory, or raise device_buffers.\n"
                   : "Change: it has one thread: make the sampler's own function cheaper.\n");
    } else if (w < g->workers_max) {
        dlpi_text_add(t, "Change: workers are added as they are missed, up to workers_max = %d.\n",
                      g->workers_max);
    } else if (batches && w >= (int)s->prefetch_factor) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, and %s with it: each batch in "
                      "flight has a worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->next_limit == DLPI_LIMIT_PREFETCH) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, then %s: every item in flight has a "
                      "worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->rate_plus_one < v->rate * 1.02) {
        dlpi_text_add(t,
                      "Change: make it cheaper; one more worker would give nothing, for %s would "
                      "be the limit.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    } else {
        dlpi_text_add(t, "Change: raise %s; %d should give about %s items/s", dlpi_stage_field(g),
                      w + 1, dlpi_num_of(v->rate_plus_one).s);
        dlpi_text_add(t, v->next_limit == v->limiting_stage ? ".\n" : "; then the limit is %s.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    }
}

/* Items/s with more batches in flight; 0 where the simulation does not even give what was measured,
   or no more than that. */
static double dlpi_explain_deeper(const dlp_stats *s, const dlpi_load *l, uint64_t prefetch) {
    dlp_predict_desc d = {.prefetch_factor = (uint32_t)prefetch};
    dlp_predict now, then;
    if (dlp_stats_predict(s, NULL, &now) != DLP_OK || dlp_stats_predict(s, &d, &then) != DLP_OK) {
        return 0;
    }
    bool fits = now.items_per_s > 0.85 * l->rate && now.items_per_s < 1.15 * l->rate;
    return fits && then.items_per_s > 1.02 * l->rate ? then.items_per_s : 0;
}

static void dlpi_explain_prefetch(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    const dlp_stage_stats *g = &s->stages[l->busiest];
    const char *what = s->chunks.taken > 0 ? "chunk" : "batch";
    dlpi_text_add(t,
                  "Limit: prefetch_factor = %u: the trainer waits %s %% of the time while the "
                  "workers of '%.31s' are only %s %% busy.\n",
                  (unsigned)s->prefetch_factor, dlpi_num_percent(l->wait).s, g->name,
                  dlpi_num_percent((double)g->busy_ns / (l->ns * g->workers)).s);
    double need = l->units > 0 ? g->workers / l->units : 0;
    uint64_t more = 2 * (uint64_t)s->prefetch_factor + (s->prefetch_factor == 0);
    while (more < 4096 && (double)more < need + 1) { more *= 2; }
    more = more > 4096 ? 4096 : more;
    double deeper = dlpi_explain_deeper(s, l, more);
    dlpi_text_add(t, "Change: raise %s, for instance to %" PRIu64,
                  s->chunks.taken > 0 ? "cpu_buffers, and so prefetch_factor" : "prefetch_factor",
                  more);
    if (deeper > 0) {
        dlpi_text_add(t, "; that should give about %s items/s", dlpi_num_of(deeper).s);
    }
    dlpi_text_add(
        t, "; each %s more takes about %s.\n", what,
        dlpi_num_bytes((double)s->bytes / (double)(s->chunks.taken ? s->chunks.taken : s->batches))
            .s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *k = &s->stages[i];
        bool parts = k->kind == DLP_STAGE_PARTS;
        if (k->p50_ns > 0 && k->p99_ns / 4 >= k->p50_ns) {
            dlpi_text_add(t,
                          "Skew: times of '%.31s' are uneven (p50 %s, p99 %s): slow %ss hold up "
                          "the order; %s hide them%s.\n",
                          k->name, dlpi_num_ns(k->p50_ns).s, dlpi_num_ns(k->p99_ns).s,
                          parts                 ? "part"
                          : s->chunks.taken > 0 ? "chunk"
                                                : "item",
                          parts                 ? "more part cells (queue_size)"
                          : s->chunks.taken > 0 ? "more chunks in flight"
                                                : "more batches in flight",
                          parts || s->chunks.taken > 0 ? "" : ", or unordered = 1");
        }
    }
}

static void dlpi_explain_cores(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    bool taken = l->used < 0.9 && l->cores > l->used;
    dlpi_text_add(t, "Limit: the cores: workers and trainer keep %s of %u busy",
                  dlpi_num_of(l->used * s->cpus).s, (unsigned)s->cpus);
    if (taken) {
        dlpi_text_add(t, ", and wait for one %s %% of the time that they could run",
                      dlpi_num_percent(1 - l->used / l->cores).s);
    }
    dlpi_text_add(t, "; more workers would give nothing.\n");
    if (l->busiest >= 0) {
        dlpi_text_add(t, "Change: make '%.31s' cheaper, or use more cores%s.\n",
                      s->stages[l->busiest].name,
                      taken ? ": others have these, or the CPU quota is used up" : "");
    }
}

static void dlpi_explain_trainer(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Limit: the trainer: it waits for batches only %s %% of the time.\n",
                  dlpi_num_percent(l->wait).s);
    dlpi_text_add(t, "Change: nothing in the pipe; steps take %s",
                  dlpi_num_ns(s->step_ns / s->batches).s);
    if (l->busiest >= 0) {
        dlpi_text_add(t, " and the busiest workers ('%.31s') are %s %% busy",
                      s->stages[l->busiest].name, dlpi_num_percent(l->util[l->busiest]).s);
    }
    dlpi_text_add(t, ".\n");
}

/* Was the part queue empty while the trainer waited? */
static void dlpi_explain_parts(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->kind != DLP_STAGE_PARTS || (double)s->part_wait_ns < 0.02 * l->ns) { continue; }
        dlpi_text_add(
            t,
            "Parts: part queue empty: the trainer waits for parts %s %% of the time; "
            "workers of '%.31s' load one in %s and are %s %% busy; %s "
            "parts.workers.num_workers (%d) and queue_size (%u).\n",
            dlpi_num_percent((double)s->part_wait_ns / l->ns).s, g->name, dlpi_num_ns(g->p50_ns).s,
            dlpi_num_percent((double)g->busy_ns / (l->ns * (g->workers > 0 ? g->workers : 1))).s,
            g->workers > 0 ? "raise" : "set", g->workers, (unsigned)g->cells);
    }
}

/* Figures and facts that hold whatever the limit is. */
static void dlpi_explain_rest(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Measured: %s items/s (%s batches/s)", dlpi_num_of(l->rate).s,
                  dlpi_num_of(l->rows > 0 ? l->rate / l->rows : 0).s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->p50_ns > 0) {
            dlpi_text_add(t, "; '%.31s' takes p50 %s, p99 %s", g->name, dlpi_num_ns(g->p50_ns).s,
                          dlpi_num_ns(g->p99_ns).s);
        }
    }
    dlpi_text_add(t, ".\n");
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->workers > 0 && g->kind != DLP_STAGE_PARTS && g->workers - l->useful[i] >= 1) {
            dlpi_text_add(t,
                          "Idle: %d of the %d workers of '%.31s' never have work: only "
                          "prefetch_factor%s = %s %s are in flight.\n",
                          (int)(g->workers - l->useful[i]), g->workers, g->name,
                          dlpi_stage_takes_batches(g) ? "" : " x batch_size",
                          dlpi_num_of(l->useful[i]).s,
                          dlpi_stage_takes_batches(g) ? "batches" : "items");
        }
    }
}

/* What a unit of a stage's work is called. */
static const char *dlpi_stage_unit(const dlp_stats *s, const dlp_stage_stats *g) {
    if (g->kind == DLP_STAGE_PARTS) return "part";
    if (dlpi_of_chunks(s)) return "chunk";
    return dlpi_stage_takes_batches(g) ? "batch" : "item";
}

/* Who hangs, or seems to. */
static void dlpi_explain_longest(dlpi_text *t, const dlp_stats *s, int n_stages) {
    const dlp_worker_stats *w = &s->longest;
    const dlp_stage_stats *g = &s->stages[w->stage >= 0 && w->stage < n_stages ? w->stage : 0];
    uint64_t age = w->current_age_ns;
    if (age < 100000000 || (age < 1000000000 && age / 2 < g->p99_ns)) return;
    dlpi_text_add(t,
                  "Longest: worker %d of '%.31s' (thread %d of process %d) has been at %s %" PRIu64
                  " for %s; p99 is %s.\n",
                  w->worker, g->name, w->tid, w->pid, dlpi_stage_unit(s, g), w->current_index,
                  dlpi_num_ns(age).s, g->p99_ns ? dlpi_num_ns(g->p99_ns).s : "not known");
}

static void dlpi_explain_errors(dlpi_text *t, const dlp_stats *s, int n_stages) {
    for (int i = 0; i < n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->retried + g->replaced + g->left_out > 0) {
            dlpi_text_add(t,
                          "Errors: stage '%.31s': %" PRIu64 " retried, %" PRIu64
                          " replaced, %" PRIu64 " left out; dlp_pipe_skips names the last two.\n",
                          g->name, g->retried, g->replaced, g->left_out);
        }
        if (g->restarts > 0) {
            dlpi_text_add(t,
                          "Deaths: workers of '%.31s' were replaced %" PRIu64
                          " times, the last of them died by %s; no item is lost.\n",
                          g->name, g->restarts, dlpi_signal_text((uint32_t)g->died_by));
        }
    }
    if (s->first_skip.code != 0) {
        char line[640];
        dlp_error_format(&s->first_skip, line, sizeof line);
        dlpi_text_add(t, "First replaced or left out: %s\n", line);
    }
}

/* How many workers tuned stages have, and the last decisions. */
static void dlpi_explain_tune(dlpi_text *t, const dlp_stats *s, int n_stages) {
    static const char *const why[] = {
        "", "the trainer waited, its workers were busy", "batches were ready, workers had no work",
        "busy, but its workers compute and the cores are taken", "set by dlp_pipe_set_workers"};
    uint64_t kept = s->tunes < DLP_TUNE_NOTES ? s->tunes : DLP_TUNE_NOTES;
    for (int i = 0; i < n_stages; i++)
        if (s->stages[i].workers_max > 0)
            dlpi_text_add(
                t, "Workers: %d of '%.31s' at work, of %d to %d; changed %" PRIu64 " times.\n",
                s->stages[i].workers, s->stages[i].name, s->stages[i].workers_min,
                s->stages[i].workers_max, s->tunes);
    for (uint64_t i = kept > 4 ? kept - 4 : 0; i < kept; i++) {
        const dlp_tune_note *k = &s->tune[i];
        if (k->stage < 0 || k->stage >= n_stages || k->reason < 1 || k->reason > DLP_TUNE_SET)
            continue;
        dlpi_text_add(t, "Tuned: after %s '%.31s' %d -> %d: %s.\n", dlpi_num_ns(k->at_ns).s,
                      s->stages[k->stage].name, k->from, k->to, why[k->reason]);
    }
}

/* Each epoch's first lookup of an item that is not kept yet misses, and what has no cell always. */
static void dlpi_explain_cache(dlpi_text *t, const dlp_stats *s) {
    uint64_t looks = s->cache_hits + s->cache_misses;
    if (s->cache_capacity == 0) return;
    dlpi_text_add(t, "Cache: %s %% of %s lookups hit; %s of %s are in use",
                  dlpi_num_percent(looks > 0 ? (double)s->cache_hits / (double)looks : 0).s,
                  dlpi_num_of((double)looks).s, dlpi_num_bytes((double)s->cache_bytes).s,
                  dlpi_num_bytes((double)s->cache_capacity).s);
    if (s->cache_capacity >= s->cache_all_bytes)
        dlpi_text_add(t, "; it has room for all items.\n");
    else
        dlpi_text_add(
            t, "; that is room for %s %% of the items, cache.bytes = %" PRIu64 " would keep all.\n",
            dlpi_num_percent((double)s->cache_capacity / (double)s->cache_all_bytes).s,
            s->cache_all_bytes);
}

/* Where the chunks are: the queues of a pipe that splits. */
static void dlpi_explain_chunks(dlpi_text *t, const dlp_chunk_stats *c) {
    if (c->cpu_buffers == 0) return;
    dlpi_text_add(t,
                  "Chunks: %" PRIu64 " loadable in this epoch; %" PRIu64
                  " CPU chunk buffers: %" PRIu64 " free, %" PRIu64 " loading, %" PRIu64 " filled",
                  c->loadable, c->cpu_buffers, c->cpu_free, c->cpu_loading, c->cpu_filled);
    if (c->device_buffers > 0)
        dlpi_text_add(t,
                      "; %" PRIu64 " device chunk buffers: %" PRIu64 " free, %" PRIu64
                      " being copied, %" PRIu64 " filled",
                      c->device_buffers, c->device_free, c->device_copying, c->device_filled);
    dlpi_text_add(t, "; %" PRIu64 " in use.%s\n", c->in_use,
                  c->preload ? " Chunks are loaded once and stay." : "");
}

static void dlpi_explain_memory(dlpi_text *t, const dlp_stats *s) {
    if (s->plan_bytes > 0) {
        dlpi_text_add(
            t,
            s->chunks.cpu_buffers
                ? "Memory: %s are planned, with records of %u chunks (prefetch_factor %u + "
                  "max_held %u).\n"
                : "Memory: %s are planned, with %u batch slots (prefetch_factor %u + "
                  "max_held %u).\n",
            dlpi_num_bytes((double)s->plan_bytes).s, (unsigned)s->slots,
            (unsigned)s->prefetch_factor, (unsigned)s->max_held);
    }
}

DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_load l;
    if (s == NULL || (buf == NULL && size > 0)) { return DLP_ERR_ARG; }
    dlpi_verdict v = dlpi_verdict_of(s);
    dlpi_load_of(&l, s);
    if (v.limiting_stage >= 0) {
        (s->stages[v.limiting_stage].workers > 0 ? dlpi_explain_stage
                                                 : dlpi_explain_inline)(&t, s, &l, &v);
    } else if (v.limiting_stage == DLPI_LIMIT_TRAINER) {
        dlpi_explain_trainer(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_CORES) {
        dlpi_explain_cores(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_PREFETCH) {
        dlpi_explain_prefetch(&t, s, &l);
    } else if (s->batches == 0) {
        dlpi_text_add(&t,
                      "Limit: not known: no batch has been delivered yet, %s after the start.\n",
                      dlpi_num_ns(s->elapsed_ns).s);
    } else {
        dlpi_text_add(&t,
                      "Limit: not known yet: %" PRIu64
                      " batch%s delivered, and the first prefetch_factor = %u are the start-up.\n",
                      s->batches, s->batches == 1 ? " is" : "es are", (unsigned)s->prefetch_factor);
    }
    dlpi_explain_longest(&t, s, l.n);
    if (l.rate > 0) {
        dlpi_explain_parts(&t, s, &l);
        dlpi_explain_rest(&t, s, &l);
    }
    dlpi_explain_errors(&t, s, l.n);
    dlpi_explain_tune(&t, s, l.n);
    dlpi_explain_cache(&t, s);
    dlpi_explain_chunks(&t, &s->chunks);
    dlpi_explain_memory(&t, s);
    return t.len < INT_MAX ? (int)t.len : INT_MAX;
}

/* ---- of what is seen ---- */

static void dlpi_lanes_free(dlpi_lane *lanes, int n) {
    for (int i = 0; i < n; i++) { free((void *)lanes[i].events); }
    free(lanes);
}

/* Copy one lane's events. Their number is not known beforehand: ask again with more room until
   some is left. */
static int dlpi_lane_take(const dlpi_seen *s, uint32_t i, dlpi_lane *lane) {
    for (int room = 256;; room *= 4) {
        dlp_trace_event *events = malloc((size_t)room * sizeof *events);
        if (events == NULL) { return DLP_ERR_MEMORY; }
        int n = dlpi_trace_lane(s, i, events, room, lane->name);
        if (n < room || room >= 1 << 22) {
            lane->events = events;
            lane->n = n;
            return DLP_OK;
        }
        free(events);
    }
}

static int dlpi_lanes_take(const dlpi_seen *s, dlpi_lane **out, int *n_out) {
    const uint32_t n = s->n_workers + 1;
    int rc = DLP_OK;
    dlpi_lane *lanes = calloc((size_t)n + 1, sizeof *lanes);
    if (lanes == NULL) { return DLP_ERR_MEMORY; }
    for (uint32_t i = 0; i < n && rc == DLP_OK; i++) {
        lanes[i].group = i == 0 ? -1 : (int)(dlpi_seen_owner(s, i - 1) - s->stages);
        rc = dlpi_lane_take(s, i, &lanes[i]);
    }
    if (rc != DLP_OK) {
        dlpi_lanes_free(lanes, (int)n);
        return rc;
    }
    *out = lanes;
    *n_out = (int)n;
    return DLP_OK;
}

/* For the eye: stages as they were added, from top to bottom. Part workers are numbered last, which
   is not their place. */
static void dlpi_lanes_sort(dlpi_lane *lanes, int n) {
    for (int i = 1; i < n; i++) {
        dlpi_lane lane = lanes[i];
        int at = i;
        for (; at > 0 && lanes[at - 1].group > lane.group; at--) { lanes[at] = lanes[at - 1]; }
        lanes[at] = lane;
    }
}

/* What workers wait for, in their own words. */
static void dlpi_explain_waits(dlpi_text *t, const dlpi_seen *s) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        char line[256];
        if (st->tell && st->tell(st->tell_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %s.\n", st->name, line);
    }
}

static int dlpi_explain(const dlpi_seen *s, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlp_stats stats;
    int n;
    dlpi_stats(s, &stats);
    if ((n = dlp_stats_explain(&stats, buf, size)) < 0) return n;
    t.len = (size_t)n;
    dlpi_explain_waits(&t, s);
    return t.len < INT_MAX ? (int)t.len : INT_MAX;
}

static int dlpi_write_trace(const dlpi_seen *s, const char *path) {
    dlpi_lane *lanes;
    int n, rc = dlpi_lanes_take(s, &lanes, &n);
    if (rc != DLP_OK) { return rc; }
    rc = dlpi_lanes_write_trace(lanes, n, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}

static int dlpi_write_timeline(const dlpi_seen *s, const char *path) {
    dlp_stats stats;
    dlpi_lane *lanes;
    int n, rc;
    dlpi_stats(s, &stats);
    rc = dlpi_lanes_take(s, &lanes, &n);
    if (rc != DLP_OK) { return rc; }
    dlpi_lanes_sort(lanes, n);
    rc = dlpi_lanes_write_timeline(lanes, n, &stats, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}

/* ---- looking at a pipe ---- */

/* May it be looked at? DLP_OK, or why not. */
static int dlpi_may_look(const dlp_pipe *p) {
    if (!p->started || p->trainer == NULL) return DLP_ERR_STATE;
    return dlpi_forked(p) ? DLP_ERR_FORKED : DLP_OK;
}

DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out) {
    dlpi_seen s;
    int rc = p == NULL || out == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    dlpi_stats(&s, out);
    return DLP_OK;
}

DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out) {
    dlpi_seen s;
    int rc = p == NULL || out == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    if (i >= (uint32_t)p->n_workers) return DLP_ERR_ARG;
    dlpi_seen_pipe(p, &s);
    dlpi_worker_stats(&s, i, out);
    return DLP_OK;
}

DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total) {
    dlpi_seen s;
    int rc = p == NULL || max < 0 || (out == NULL && max > 0) ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_pipe(p, &s);
    return dlpi_skips(&s, out, max, total);
}

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlpi_seen s;
    int rc = p == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    return dlpi_explain(&s, buf, size);
}

DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    return p->started ? p->n_workers + 1 : DLP_ERR_STATE;
}

DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name) {
    dlpi_seen s;
    int rc = p == NULL || max < 0 || (out == NULL && max > 0) ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    if (lane < 0 || lane > p->n_workers) return DLP_ERR_ARG;
    dlpi_seen_pipe(p, &s);
    return dlpi_trace_lane(&s, (uint32_t)lane, out, max, name);
}

DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path) {
    dlpi_seen s;
    int rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_pipe(p, &s);
    return dlpi_write_trace(&s, path);
}

DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path) {
    dlpi_seen s;
    int rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    return dlpi_write_timeline(&s, path);
}

#ifdef DLPI_ASKED_GNU_SOURCE
#undef DLPI_ASKED_GNU_SOURCE
#undef _GNU_SOURCE
#endif
#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>licence    MIT
   MIT License. Copyright (c) 2026 the dlpipe authors.
   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:
   The above copyright notice and this permission notice shall be included in all copies or
   substantial portions of the Software.
   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
