#pragma once
/* dlpipe.h - v0.1.0 - data-loading pipelines for C11 - MIT licence - header-only, no dependencies
   Made from src/ by "make headers": edit there.

   Decides which items come when, fetches them with many workers straight into batches, and hands
   the batches over in order, so that a training step does not wait. It needs 64-bit Linux.

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
          dlp_tokens_loader_open  items: windows of a language model's token shards (>>tokens)
          dlp_arrays_loader_open  items: rows of MNIST's, CIFAR's or numpy's files (>>arrays)
          with dlp_folder_open and >>files: pictures, a directory for each class (>>folder)
          dlp_parts_open    files, or archives, that hold many items each (>>parts)
          dlp_chunks_open   data read in large pieces, of which batches are views (>>chunks)
          dlp_pipe_open     and stages added one by one, some of your own (>>pipe)
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
   >>ranks          MANY PROCESSES: LAUNCHERS, CORES, RESTARTS
   >>mixing         DATASETS MIXED BY WEIGHTS
   >>buckets        ITEMS OF LIKE LENGTH BATCHED TOGETHER
   Pipes, by hand and ready-made:
   >>kinds          THE KINDS OF STAGES
   >>stages         WHO DOES THE WORK
   >>pipe           WIRING, RUNNING
   >>guard          ITEMS WHOSE NUMBERS ARE NOT WHAT THEY SHOULD BE
   >>loader         ALL IN ONE CALL
   >>chunks         BATCHES THAT ARE VIEWS INTO CHUNKS
   >>parts          PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   >>found          PARTS WHOSE ITEMS ARE COUNTED BY LOAD
   Looking at them:
   >>stats          COUNTERS, TRACE, PICTURES, WORDS
   >>predict        WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   Where batches go, where items come from:
   >>devices        GPUS: CUDA, OPENCL
   >>dlpack         TENSORS FOR OTHER LIBRARIES
   >>files          ITEMS OUT OF FILES, MANY AT ONCE
   >>tokens         TOKENS OUT OF SHARDS, FOR LANGUAGE MODELS
   >>folder         FOLDERS OF PICTURES, A DIRECTORY FOR EACH CLASS
   >>arrays         ROWS OUT OF ARRAYS: IDX, CIFAR, NPY
   The implementation: the base, orders:
   >>impl-platform  SYSTEM HEADERS, SWITCHES
   >>impl-clock     TIME
   >>impl-errors    CODES AND ERROR RECORDS
   >>impl-queues    SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   >>impl-sleepers  SLEEP AND WAKE: MANY SLEEPERS BEHIND ONE WORD
   >>impl-claims    CLAIM: ONE WRITER, MANY READERS
   >>impl-gather    GATHER: MANY WRITERS, ONE READER IN ORDER
   >>impl-credit    CREDITS: COUNTERS AND CELLS THAT COME BACK
   >>impl-first     FIRST: MANY WRITERS, ONE RECORD, THE FIRST ONE STAYS
   >>impl-order     HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   >>impl-part-order  THE ORDER OF PARTS
   >>impl-found-order  THE ORDER OF INPUTS WHOSE ITEMS NOBODY HAS COUNTED
   >>impl-mixing    DATASETS MIXED BY WEIGHTS
   >>impl-buckets   ITEMS OF LIKE LENGTH BATCHED TOGETHER
   The implementation: what is shared, and the stages' work:
   >>impl-region    WHAT IS SHARED: ONE MAPPING, OFFSETS ONLY
   >>impl-ops       WHAT A KIND OF STAGE IS TO THE REST
   >>impl-pipe      THE PIPE AS THIS PROCESS SEES IT
   >>impl-waiters     WHO SLEEPS, WHO WAKES
   >>impl-fail      FIRST CAUSES
   >>impl-debug     WRITES PAST A ROW, USES AFTER RELEASE
   >>impl-cancel    BATCHES THAT ARE CANCELLED
   >>impl-seen      WHAT OBSERVERS SEE
   >>impl-links     THE TABLE OF LINKS
   >>impl-dispatch  WHO WAKES WHOM
   >>impl-feed      THE SCHEDULER: POSITIONS INTO FREE SLOTS
   >>impl-claim     CLAIMS AND COMPLETION
   >>impl-run       CALLBACKS, FAILURES, CLOCKS
   >>impl-collate   BATCHES OUT OF ITEMS
   >>impl-workers   STEPS, WAITING, THREADS
   >>impl-recover   WHAT A DEAD WORKER HAD
   >>impl-fetch     FETCH: ROWS WRITTEN FOR THE FIRST TIME
   >>impl-cache     ITEMS KEPT FROM ONE EPOCH TO THE NEXT
   >>impl-map       MAPS: OF ITEMS, AND OF WHOLE BATCHES, IN PLACE
   >>impl-guard     NUMBERS OF ITEMS, CHECKED AND COUNTED
   >>impl-batch     THE BATCH STAGE
   >>impl-transfer  BATCHES TO THE DEVICE: DOUBLE BUFFERING
   >>impl-state     RESUME: STATES AND THEIR FINGERPRINT
   >>impl-sampler   SAMPLER AND REPEAT, AS STAGES: KEYED ORDERS
   >>impl-lists     LISTS OF A BATCH SAMPLER
   >>impl-cells     INPUT CELLS: WHAT THE WORKERS OF A SOURCE LOAD
   >>impl-parts     PART QUEUE: WHAT TO LOAD NEXT, LOADING IT
   >>impl-found     INPUTS WHOSE ITEMS NOBODY HAS COUNTED
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
   >>impl-mapped    FILES THAT ARE MAPPED
   >>impl-tokens    TOKENS OUT OF SHARDS
   >>impl-folder    FOLDERS OF PICTURES
   >>impl-arrays    ROWS OUT OF ARRAYS
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
         while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
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
     your own    stages, samplers                      what dlp_pipe_plan says         stages.c

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
   work closed (why: >>impl-claims, >>impl-gather).

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
     that died. So fetch compares item->index with its own place, and skips, begins again, or fails.
   * Each rank gives the rows it has: at the end one may have a batch more than another.
   * An epoch may have no item at all, but not with epochs = DLP_FOREVER: that is an error.

   >>threads    WHAT MAY BE CALLED FROM WHERE
   (Worker processes: dlpipe_shm.h, >>shm-concepts. "The stage's threads" are then its processes.)
   "Caller" is whoever drains the pipe: one thread at a time, any thread; handing over is your lock.

     call                                              from              while the pipe runs
     dlp_pipe_open, add_*, link, plan, start           caller            plan only
     dlp_loader_open, dlp_parts_open, dlp_chunks_open  any               -
     dlp_tokens_loader_open, dlp_arrays_loader_open    any               -
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
     dlp_files_wire                                    any               before its pipes start
     dlp_tokens_open, _describe, _close                any               yes; close behind pipes
     dlp_tokens_wire                                   any               before its pipes start
     dlp_tokens_documents                              any               yes
     dlp_folder_open, _close                           any               yes; close behind pipes
     dlp_arrays_open, _describe, _close                any               yes; close behind pipes
     dlp_arrays_wire                                   any               before its pipes start
     dlp_s3_*: in dlpipe_s3.h, beside each
     dlp_error_format, dlp_plan_format, dlp_link_name, any               yes
     dlp_stats_explain, dlp_stats_predict, dlp_ranks_*

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
     dlp_tokens_open, dlp_arrays_open: likewise, and a mapping and a descriptor for each file
     dlp_folder_open: paths, labels, names of classes
     plan         nothing: the bytes of what start would allocate, line by line
     start        one region (a sealed memfd or, where there is none, anonymous memory) with slots,
                  cells, counters and trace rings; the process's own records; device buffers;
                  threads
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
     DLPIPE_NO_SIMD         [impl]     no AVX2; shuffled orders are computed slower, same numbers
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
   -D_GNU_SOURCE. It is C11 for gcc and clang (C17 and C23 as well), for 64-bit Linux; C++11 and
   later may include the declarations. Whatever else is tried ends with one #error that says what to
   do.

   >>limits     LIMITS AND CAVEATS
   * batch_size is the GLOBAL batch: of world_size ranks each gets batch_size / world_size rows. The
     last batch of an epoch may give ranks different counts, 0 among them (DLP_LAST_PARTIAL).
   * A thread cannot be killed. A callback that never returns makes close give up after
     close_timeout_ms with DLP_ERR_BUSY, which names it; the memory is kept, and close can be tried
     again. deadline_ms reports such a callback while next waits; it does not end it.
   * DLP_PLACE_PROCESSES needs dlpipe_shm.h; without it it is refused with DLP_ERR_UNSUPPORTED.
   * Sleeping workers check, should a wake-up have been lost: of each 32 the first asleep every
     100 ms, the others, who rely on it, every 1 s. Idle threads that all looked ten times a second
     would cost more than waiting may (0.1 % of a core).
   * writes_all_bytes = 0 zeroes every row before fetch, so that bytes that no callback wrote are
   zero. It
     costs a memset of each row; fetch that writes every byte says writes_all_bytes = 1.
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
     two streams have a share of it, and each epoch again, but for parts still in their cells. A
     part that can't be loaded is tried again in the next epoch. queue_size is held against the
     worst order that the counts allow, before the start.
   * A stream comes in the order of its indices, without much that wants a length: >>streams.
   * Sources of >>files, >>tokens, >>arrays and of objects, and dlp_chunks_open, are not for worker
     processes that begin by exec.
   * A file that is mapped (>>tokens, >>arrays) and is cut, or cannot be read, in the moment in
     which a row is copied out of it ends the process by SIGBUS. What was cut before is an error; so
     is all of it with `reads`.
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
     out: a wake-up that ends the wait of a source (a poll, an io_uring, a library's own) does not
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
     part needs a count of its readers: it may go when the batches fed with it have gone. The
     scheduler computes the indices of such a batch (it has the tables anyhow), so workers, in
     processes too, need nothing but the cell that a row comes from.
   * A map changes its cell in place, and half of a change may have been made. So a retry, and the
     death of a worker process, send a row back to fetch, and a batch to its collate (whose item
     cells are kept until then) or to fetch, unless the map says that it is idempotent.
*/
