#pragma once
/* dlpipe.h - v0.2.0 - data-loading pipelines for C11 - MIT licence - header-only, no dependencies
   Made from src/ by "make headers": edit there.

   dlpipe decides which items come when. Many workers fetch them straight into batches. The program
   gets the batches in order, so a training step does not wait. dlpipe runs on 64-bit Linux.
   With worker threads it compiles for Windows and macOS, too (>>limits).

   >>use        DO THIS, THEN THAT
   1  Copy this file into your tree. In exactly one C file, before any system header:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
      In all other files just include it. Link with -lpthread if your libc needs it.
   2  Say what an item is (dlp_field), how many there are, and how to write one (dlp_dataset.fetch).
   3  Open a pipe by the call that fits your data. A zero in a desc selects the default that the
      field's comment names. So begin with {0}, or with designated initialisers.
          dlp_loader_open         items that a function of yours writes (>>loader); if nobody knows
                                  how many there are: dataset.open_end (>>streams)
          dlp_files_open          ... that lie in files, many read at once (>>files); folders of
                                  pictures: dlp_folder_open (>>folder)
          dlp_s3_source_open      ... that lie in S3 (dlpipe_s3.h, >>s3-source)
          dlp_lines_open          ... that are lines of text files: JSONL, CSV (>>lines)
          dlp_tar_open            ... that are samples of tar shards, as WebDataset has (>>tar)
          dlp_tokens_open         windows of a language model's token shards (>>tokens)
          dlp_arrays_open         rows of npy, MNIST's or CIFAR's files (>>arrays); batches where
                                  they lie in the files: dlp_arrays_chunks_open (>>array-chunks)
          dlp_push_open           items that other threads or programs push (>>push)
          dlp_loader_open.parts   shard files, archives: each holds many items (>>parts)
          dlp_chunks_open         large pieces, of which batches are views (>>chunks)
          dlp_pipe_open           a table of nodes, which says any of these and more (>>graph);
                                  dlp_loader_nodes gives the table of a loader
   4  Take batches: dlp_pipe_next lends a batch, dlp_pipe_release gives it back. Go on until
      DLP_END.
   5  Close the pipe: dlp_pipe_close. Before that, dlp_pipe_explain repeats the warnings and says
      which stage is the slow one.
   If a call fails, the dlp_error of the open call, or dlp_pipe_error, names the field, the stage,
   the item and the cause. examples/dlpipe_top.c looks into a pipe that hangs.

   >>contents   search for the anchor
   To read first:
   >>use            DO THIS, THEN THAT
   >>example        A WHOLE PROGRAM
   >>concepts       WORDS, TABLES, TOPOLOGIES, WHO OWNS A BATCH WHEN
   >>threads        WHAT MAY BE CALLED FROM WHERE
   >>memory         ERRORS, LOG, MEMORY
   >>options        COMPILE-TIME OPTIONS
   >>limits         LIMITS AND CAVEATS
   >>glossary       WORDS OF THIS HEADER AND OF PYTORCH
   The base:
   >>version        WHICH HEADER, WHICH LIBRARY
   >>errors         CODES AND ERROR RECORDS
   >>atomics        THE ONE SHIM OVER THE COMPILER'S ATOMICS
   >>order          HASHES, KEYED PERMUTATIONS
   Items, batches, orders:
   >>dataset        FIELDS, DATASETS, ITEMS
   >>streams        DATASETS WITHOUT A LENGTH
   >>batch          WHAT THE CONSUMER GETS
   >>state          RESUME
   >>samplers       WHICH ITEMS, IN WHICH ORDER
   >>ranks          MANY PROCESSES: LAUNCHERS, CORES, RESTARTS
   >>mixing         DATASETS MIXED BY WEIGHTS
   >>buckets        ITEMS OF LIKE LENGTH BATCHED TOGETHER
   Pipes, as tables and ready-made:
   >>kinds          THE KINDS OF STAGES
   >>stages         WHO DOES THE WORK
   >>pipe           RUNNING
   >>scratch        READ, THEN DECODE: FIELDS THAT END BEFORE THE BATCH
   >>guard          ITEMS WHOSE NUMBERS ARE NOT WHAT THEY SHOULD BE
   >>join           SEVERAL DATASETS IN ONE PIPE
   >>outs           SEVERAL OUTS OF ONE PIPE
   >>parts          PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   >>loader         ALL IN ONE CALL
   >>chunks         BATCHES THAT ARE VIEWS INTO CHUNKS
   >>found          PARTS WHOSE ITEMS ARE COUNTED BY LOAD
   >>expand         EXPANDERS AND FILTERS: 0..k ITEMS OF ONE INPUT
   >>pack           PACKING: DOCUMENTS INTO ROWS OF T TOKENS
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
   >>array-chunks   ROWS OF MAPPED ARRAYS, WITHOUT A COPY
   >>item-index     INDEX FILES OF LINES AND TAR SHARDS
   >>lines          LINES OF TEXT FILES: JSONL, CSV
   >>tar            TAR SHARDS, WEBDATASET
   >>push           ITEMS THAT OTHER THREADS AND PROGRAMS PUSH
   All of them in one table:
   >>graph          A PIPELINE AS A TABLE OF NODES
   Queues for programs of your own:
   >>queues         QUEUES BETWEEN THREADS AND PROCESSES
   The implementation:
   >>impl-decisions >>impl-system >>impl-platform >>impl-errors >>impl-windows >>impl-word-wait
   >>impl-places >>impl-door >>impl-queues >>impl-sleepers >>impl-claims >>impl-gather >>impl-credit
   >>impl-first >>impl-offer >>impl-order >>impl-identity >>impl-part-order >>impl-found-order
   >>impl-chunk-rows >>impl-mixing >>impl-branches-order >>impl-buckets >>impl-region >>impl-ops
   >>impl-pipe >>impl-roles >>impl-waiters >>impl-awake >>impl-fail >>impl-cancel >>impl-cells
   >>impl-marks >>impl-clears >>impl-debug >>impl-open-end >>impl-gaps >>impl-feed >>impl-claim
   >>impl-programs >>impl-run >>impl-many >>impl-collate >>impl-workers >>impl-recover >>impl-tune
   >>impl-state >>impl-scheduler >>impl-pace >>impl-deliver >>impl-share >>impl-subscriber
   >>impl-in-flight >>impl-seen >>impl-valid >>impl-dataset >>impl-chain >>impl-inputs
   >>impl-arrivals >>impl-boxes >>impl-found >>impl-over >>impl-reads >>impl-branches >>impl-joined
   >>impl-pack >>impl-fetch >>impl-map >>impl-cache >>impl-scratch >>impl-guard >>impl-join
   >>impl-push-cells >>impl-outs >>impl-batch >>impl-transfer >>impl-sampler >>impl-lists
   >>impl-parts >>impl-expand >>impl-split >>impl-kinds >>impl-build >>impl-helps >>impl-placement
   >>impl-links >>impl-mapped >>impl-files >>impl-part-files >>impl-foreign >>impl-tokens
   >>impl-folder >>impl-arrays >>impl-item-index >>impl-index-turn >>impl-indexed >>impl-lines
   >>impl-csv >>impl-tar >>impl-tar-source >>impl-push-memory >>impl-push >>impl-pusher
   >>impl-devices >>impl-dlpack >>impl-stats >>impl-texts >>impl-pictures >>impl-predict
   >>impl-plan-picture >>impl-beside >>impl-public >>impl-graph >>history >>licence

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
             .pipe.log = dlp_log_stderr, // warnings, as lines on stderr
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

   >>concepts   WORDS, TABLES, TOPOLOGIES, WHO OWNS A BATCH WHEN
   An item is one sample. Its dataset index says which one. A field is one array of an item. A batch
   has count rows: each field is one contiguous array [count, shape...]. A position is a place in
   the order of an epoch. The list maps (seed, epoch, position) to a dataset index.

   A pipeline is a table of nodes (>>graph). A node takes records from the node before it, and gives
   records to the node after it. A node has workers of its own, or it runs in the workers of the
   node before it, or in the consumer. The consumer is the thread that calls next and release.
   dlp_pipe_open takes a table. dlp_loader_open fills a table and opens it; dlp_loader_nodes gives
   you that table. Nodes become stages, and the stages form a chain in a fixed order. Stages in
   brackets may be left out. All words: >>glossary.

     list -> [makers] -> fetch -> [rows] -> batch -> [batch maps] -> [transfer] -> [split] -> next
      ^                                                                                        |
      +----------------------------- credits: free slots <--- release <------------------------+

     makers: load, expand, filter, pack: each input makes 0..k items, which lie in cells
     rows:   second fetches, maps, guards, a cache: they work on an item in its place in a batch

   These are the ready-made tables (topologies), and what each holds in memory. A plan also tells
   the bytes of the records.

     topology    rule                                  memory                          example
     economic    any worker takes the next items of    prefetch_factor + max_held      loader.c
                 any batch, oldest first               batches, however many workers
     classic     a whole batch to each of N workers,   N x prefetch_factor + max_held  concurrent.c
                 in turn                               batches
     concurrent  classic, and in_flight items at once  as classic; prefetch_factor is  concurrent.c
                 in each worker, of a batch or a pool  batch_pool / rows if more
     part queue  workers load the next parts; fetch    queue_size parts, and the       parts.c
                 takes items out of loaded parts       batches of the loader after it
     chunk       load a chunk into a CPU buffer, copy  cpu_buffers + device_buffers    chunks.c
                 it to the device, cut it into views   chunks
     filter,     each input makes 0..k items, batches  cells x k items, or few cells   positions.c
     expand      stay full; shuffled in windows        and boxes; the batches
     pack        documents into rows of T tokens, cut  cells x the longest document,   pack.c
                 or fitted in windows                  and the batches
     two fetches some workers read, others decode      the scratch cells, and the      decode.c
                                                       batches
     join        rows of several datasets, zipped or   the batches                     join.c
                 mixed, each with its own workers
     push        other threads and programs give the   a lane of items for each        actors.c
                 items                                 producer, and the batches
     shared      several programs take from one pipe,  the batches                     share.c
                 each with a policy
     outs        threads of the program take the       the batches, and what each      graph.c
                 trainer's batches, too, each with a   out may hold
                 policy
     your own    a table of nodes                      what dlp_nodes_plan says        graph.c

   Lock-free queues in the region join the stages. There are four kinds. The plan and dlp_stats have
   each queue of a pipe, with writers, readers, capacity, bytes and depth. dlp_pipe_write_graph
   draws them:

     kind    writers, readers     a record is taken by             it joins
     spsc    one, one             the reader's own counter         release and the sampler; in and
                                                                   out of transfer and split
     mpsc    many, one            a lane for each writer           producers and a push pipe
     claim   one, many            a swap on its own owner word     the sampler, or a stage, and the
                                                                   workers of the next; part and
                                                                   input cells and their loaders;
                                                                   subscribers that share
     gather  many, one in order   all its completion bits are set  workers and next, or transfer

   Begin with the economic topology. It needs the least memory, and no slow worker delays the
   others. If items wait for a disk or a network, give it a fetcher. Each worker then has in_flight
   items at once: in threads, or as asynchronous requests. A fetcher works with a part queue too.
   Concurrent adds one batch per worker, as in classic, for sources that read neighbours best
   together. Take the part queue if many items lie in one file. Take chunks if rows are small, come
   in large pieces and go to a device. Take classic to compare with loaders that work like it. Each
   topology may repeat: with epochs, its workers live for all epochs. They begin the next epoch
   before the present one is over. The memory is the same.

   Determinism: the order and content of every batch depend on (seed, epoch, position) alone. They
   do not depend on the number of workers, their timing, the topology, or the number of ranks.
   (Parts and chunks are part of the order.) Only desc.unordered lets batches of one epoch overtake
   each other; their contents stay the same.

   To stop early, call dlp_pipe_close in the middle of an epoch. To leave only this epoch, call
   dlp_pipe_next_epoch. To cancel from another thread or a signal handler, call dlp_pipe_stop: next
   returns DLP_STOPPED, and only close follows. Callbacks that run are not cut short.

   To evaluate beside training, open a second pipe for the validation items (examples/evaluate.c).
   Its defaults give each item once in an epoch, in the order of the items. batch->valid marks the
   rows that count. Any number of pipes may be open. For chunks use DLP_PASS_EVALUATE (>>chunks).

   A batch that next lends belongs to the consumer until release. The consumer may read and write
   its arrays, and hold up to max_held batches. The memory of a batch is used again after its
   release, never when it is received. At most prefetch_factor batches are between the sampler and
   next. Without a collate, fetch writes an item where the consumer reads it: nothing is copied.
   With a collate, items lie in cells, and the collate writes the batch. After a transfer stage a
   batch lies on the device; its host memory stays taken until its release. After a split stage
   batches are views of a chunk, which is returned with its last view (>>chunks).

   >>threads    WHAT MAY BE CALLED FROM WHERE
   (Worker processes: dlpipe_shm.h, >>shm-concepts. "The stage's threads" are then its processes.)
   "Consumer" means one thread at a time. Any thread may be it; hand over under a lock of your own.
   If two threads call next at once, the second gets DLP_ERR_STATE. dlp_pipe_error tells it why.

     call                                              from              while the pipe runs
     dlp_pipe_open, dlp_nodes_plan                     any               -
     dlp_pipe_plan, start                              consumer          plan only
     dlp_loader_open, dlp_chunks_open                  any               -
     dlp_arrays_chunks_open                            any               -
     dlp_pipe_next, release, next_epoch, state,        consumer          yes
     seek, state_at, set_workers
     dlp_pipe_error, warning, batches_per_epoch        consumer          yes
     dlp_pipe_stop                                     any, and signal   yes; from open until close
                                                       handlers
     dlp_pipe_stats, worker_stats, skips, explain,     any               yes; from start until close
     trace*, write_*
     dlp_pipe_close                                    consumer          no other call under way
     dlp_item_*, dlp_collate_*, dlp_chunk_*,           in the callback   yes
     dlp_part_*
     dlp_chunks_run                                    consumer          yes
     dlp_pipe_release_after, dlp_batch_dlpack*         consumer          yes
     the deleter of a tensor                           any               yes; and after close
     dlp_device_cuda, _opencl, _describe, _close       any               yes; not under start, close
     dlp_hash, dlp_permutation_*, dlp_code_*,          any               yes
     dlp_tokens_documents, dlp_pack_flatten,
     dlp_csv_floats,
     dlp_error_format, dlp_plan_format, dlp_link_name,
     dlp_pipe_write_graph,
     dlp_stats_explain, dlp_stats_predict,
     dlp_ranks_*
     dlp_mix_*, dlp_buckets_*, dlp_folder_*            any               yes; close after the pipes
     open, describe, close and the others of           any               yes; close after the pipes
     dlp_files_*, dlp_tokens_*, dlp_arrays_*,
     dlp_lines_*, dlp_tar_*, dlp_index_*
     dlp_source_close, dlp_push_* (but for >>push)     any               close after the pipes
     dlp_s3_*: in dlpipe_s3.h, beside each

     callback                     runs in
     fetch, load (chunks, parts), the stage's threads, several at once; inline: the consumer's next;
     item, batch maps, collate    fetch, with DLP_FETCH_THREADS: in_flight threads of each worker
     async submit, reap           the stage's threads, each for its own worker_state
     locate, decode of files      as fetch; with DLP_FETCH_ASYNC the worker itself, one at a time
     download (files as parts)    in load, one at a time for each file
     count (parts)                open
     worker_init, worker_exit     the worker itself; inline: start and close
     sampler.function             item workers and their DLP_FETCH_THREADS, several at once: must be
                                  pure; while it runs, its worker completes no other item
     batch sampler, bucket length the consumer (start, next, release, next_epoch, seek), or, if
                                  threaded, one thread; with desc.resume its first calls in start
     on_step, on_epoch            dlp_chunks_run
     device                       open, alloc: start; free, close: close; copy, record, done: the
                                  transfer thread, or next
     log                          start, next, close; of a push's writers: its fetch worker

   A callback may block. It must not call next, release or close of its own pipe: if the consumer
   runs it, these return DLP_ERR_STATE, and close DLP_ERR_BUSY. It must not leave by longjmp or an
   exception, nor end its thread (pthread_exit): next would wait for ever. Any number of pipes may
   live in a process. A child that was forked after start has no workers: in it every call returns
   DLP_ERR_FORKED. The library installs no signal handlers and blocks no signals.

   >>memory     ERRORS, LOG, MEMORY
   0 is OK, positive codes are flow control, negative codes are errors. Outputs are untouched after
   a failure. The first error of a pipe stays: next, next_epoch and the calls before start return
   its code from then on. dlp_pipe_error has its record (stage, worker, item, errno, text). You can
   still inspect a pipe in error, save its state and release held batches; then close it. The
   library never prints, exits or aborts. Warnings go to desc.log, which may be dlp_log_stderr. The
   first eight warnings are kept for dlp_pipe_warning and dlp_pipe_explain. The library never opens
   descriptors 0 to 2, even if the program closed them.

     when         allocates
     other open   a record; tokens, arrays: and a mapping and a descriptor for each file; folder:
                  paths, labels, names of classes
     nodes_plan   a few KiB, until it returns; it lists the bytes that open would allocate
     open         the pipe's record; one region (a sealed memfd or, where there is none, anonymous
                  memory) with slots, cells, counters and trace rings; the process's own records;
                  device buffers; threads (these two by start, with desc.later)
     workers      what worker_init allocates; as they begin: of >>files dlp_files_worker_bytes, of a
                  source of objects dlp_s3_source_worker_bytes (the plan has both in a line), and
                  its dlp_s3_io
     next .. stop nothing
     write_*      memory for the length of the call
     close        nothing; frees all memory; if batches are held, the last release does

   start compares the plan with limit_bytes, the budget, the rest of the memory cgroup, MemAvailable
   and the address space. If the plan does not fit, start fails before it allocates anything; the
   error tells the sum.

   Security: bytes that come from outside are not trusted. These are data files, index files, saved
   states, answers of servers, and queues and pipes of other processes that this process looks into.
   Wrong bytes are an error in words. They do not make the library read or write outside of its
   memory; make fuzz tries them under the sanitizers. Callbacks of the program are trusted, and so
   are subscribers, which map the memory of a pipe. Names and sockets have mode 0600. A mapped file
   that is cut ends the process (>>limits). If you find a hole, tell the authors in private first,
   and send them the bytes.

   >>options    COMPILE-TIME OPTIONS
   [impl] where DLPIPE_IMPLEMENTATION is defined; [all TUs] in every file that includes this.

     DLPIPE_IMPLEMENTATION  [one TU]   compile the functions here ("undefined reference to dlp_...":
                                       no file has it; "multiple definition": several have;
                                       "undefined ... of_this_header_in_one_C_file": the library was
                                       made with a header whose structs differ)
     DLPIPE_STATIC          [all TUs]  every function is static; each file that uses the library
                                       has an implementation of its own
     DLPIPE_CUDA            [impl]     dlp_device_cuda, which looks for libcuda.so.1 when called
     DLPIPE_OPENCL          [impl]     dlp_device_opencl, likewise libOpenCL.so.1; both want -ldl
                                       where libc has dlopen apart
     DLPIPE_NO_SIMD         [impl]     no AVX2; shuffled orders are computed slower, same numbers
     DLPIPE_DEBUG           [impl]     a callback that writes past its row, part, chunk or batch is
                                       an error that names it; released batches are overwritten.
                                       On by itself under the address sanitizer
     DLPIPE_NO_DEBUG        [impl]     not even then
     DLPIPE_PORTABLE_WAIT   [impl]     threads sleep by mutexes and conditions, and not by futexes;
                                       with DLPIPE_STATIC both ends of a lane are then in one file.
                                       Worker processes sleep by futexes all the same. A signal
                                       handler must not call dlp_pipe_stop then
     DLPIPE_THREADS_ONLY    [impl]     no memory is shared with other processes: the region and the
                                       memory of a push are no files, and a push has no path. A
                                       producer that ends without dlp_pusher_close keeps its number.
                                       Not with dlpipe_shm.h
     DLPIPE_NO_X            [impl]     leaves part X out
     DLPIPE_ONLY_LOADER     [impl]     leaves all parts out; DLPIPE_WITH_X keeps part X, and the
                                       parts that it needs

   PARTS is load, expand, filter, window, zip, mix and push; SPLIT is chunks; TRANSFER is devices;
   RUNS is fetch_rows. FETCHERS is in_flight and async, which files and S3 want. TUNE is
   workers_max; LISTS is DLP_ORDER_BATCHES; RANKS is dlp_ranks_describe, and the warning that a rank
   is not set. STATS is dlp_pipe_stats, skips, traces and counters. The other parts are FILES,
   LINES, TAR, TOKENS, ARRAYS, PACK, JOIN, SCRATCH, GUARD, CACHE, OUT, MIX, BUCKETS, QUEUES, DLPACK,
   EXPLAIN, PREDICT and PICTURES. These parts need others: LINES needs FILES; FILES needs FETCHERS;
   TAR needs LINES and PARTS; PACK needs PARTS. PARTS needs MIX, FETCHERS and QUEUES; BUCKETS needs
   MIX and LISTS. SPLIT and DLPACK need TRANSFER; EXPLAIN needs PREDICT and STATS; PICTURES needs
   STATS. A part is left out with a part that it needs. A macro cuts functions of the
   implementation, and no struct or number that a program sees. So a file that does not know the
   macro may be linked to such an implementation; the linker then misses a call that is left out.
   Define the macro for all files, and such a call is a compile error that names the macro.
   dlp_pipe_open refuses a row whose verb is left out, and a field that asks for a part which is
   left out, and names the macro.

   DLPIPE_DEBUG puts 256 guard bytes around each field while a callback writes it: "fetch wrote 4
   bytes past field "x" of item 7" (DLP_ERR_CORRUPT, which no policy retries). If several rows run
   in one attempt, the message names all of them. It also finds what a callback writes to a ragged
   field behind the length that it sets. It does not see a write that jumps over the guard bytes, or
   to other rows of the callback's own chunk or batch. It costs two copies of each row, a memset of
   each batch, and lines of the plan (>>impl-debug).

   The implementation defines _GNU_SOURCE for itself. So include it before the first system header,
   and before any include of this header without the implementation; or compile the file with
   -D_GNU_SOURCE. It is C11 for gcc and clang (C17 and C23 as well), for 64-bit Linux, Windows
   10 and macOS 13 (>>limits). C++11 and later may include the declarations. Anything else ends
   with one #error that says what to do.

   Compile the implementation with -O2: functions that run seldom are small even at -O2. gcc 12
   makes 660 KB of code and constants out of dlpipe.h alone. The program examples/vendor/main.c is
   721 KB with them. It is 509 KB with -ffunction-sections, -fdata-sections and -Wl,--gc-sections,
   which leave out what the program does not call. With DLPIPE_ONLY_LOADER dlpipe.h has 160 KB of
   code and compiles in 0.3 of the time, and that program has 172 KB. With DLPIPE_WITH_TOKENS, too,
   dlpipe.h has 181 KB. Tables for unwinding (.eh_frame) are a ninth of the code. Debuggers and
   exceptions of C++ callbacks use them; -fno-asynchronous-unwind-tables leaves them out.

   >>limits     LIMITS AND CAVEATS
   * What runs on which system, of 64 bits. Orders, bytes and states are the same on all. Tests
     compare Linux with Wine, and each resumes the states of the other.

                            Linux                Windows 10           macOS 13
       processors           x86-64, aarch64      x86-64               aarch64, x86-64
       compilers            gcc, clang           gcc and clang with   clang
                                                 mingw-w64; clang-cl
       tests                all; aarch64 in an   some, under Wine;    none; compiled and
                            emulator             none on Windows      linked, not run
       worker threads       yes                  yes                  yes
       dlpipe_shm.h         Linux 5.4            #error               #error
       dlpipe_s3.h          yes                  #error               #error
       push with a path     yes                  refused              refused
       reads in flight      io_uring, threads    threads              threads
       threads sleep by     futexes              conditions, as under DLPIPE_PORTABLE_WAIT
       lane of processes    yes                  wakes none: its ends look every 100 ms
       affinity             yes                  the first 64 CPUs    a warning
       huge pages           by dlpipe_shm.h      none                 none
       limits that it sees  cgroups              CPUs of the process  none
       time without a core  measured             not known            not known
       mapped file is cut   SIGBUS               the system refuses   SIGBUS
       paths                bytes                UTF-8, with / or \  bytes
       a short sleep        on time              up to 16 ms more     on time

     clang-cl compiles the declarations. With the headers of mingw-w64 and -fgnuc-version=4.2.1 it
     compiles the implementation, too, without AVX2. It was not tried with a Windows SDK, and
     nothing of it was linked or run. Microsoft's cl is no target. It would want forms of its own
     of the macros DLPI_UNREAD to DLPI_LESS and of >>atomics, of a product of 128 bits, and of
     __builtin_convertvector, __builtin_isnan and __builtin_isinf.
   * batch_size is the GLOBAL batch: each of world_size ranks gets batch_size / world_size rows. The
     last batch of an epoch may give ranks different counts, even 0 (DLP_LAST_PARTIAL).
   * If a callback never returns, next warns after stall_ms, and names the item.
   * A thread cannot be killed. If a callback never returns, close gives up after close_timeout_ms.
     It returns DLP_ERR_BUSY, and the error names the callback. The memory is kept, and close can be
     tried again. deadline_ms reports such a callback while next waits; it does not end it.
   * A worker with several items in flight claims them one by one, and looks for new batches every
     millisecond. Use that for items that wait, not for items that take a microsecond.
   * If batches go to workers in turn (classic, concurrent), one slow worker delays the order for
     all, as in other loaders. In the economic topology other workers take its items.
   * A map gives one item for each item, or leaves items out. For 0 to k items of one: >>expand. For
     rows out of the tokens of many documents: >>pack. (Batches of as many tokens as fit: >>buckets,
     dlp_collate_pack.) Items of several datasets are joined by their numbers alone (>>join), not by
     keys.
   * Views into chunks come in order, to one consumer. They cannot be unordered, have subscribers or
     ragged fields, or go through a collate.
   * A part queue holds whole parts: queue_size x max_part_bytes. If two streams share a part, the
     part is loaded twice. Each epoch loads all parts again, except those still in their cells. A
     part that can't be loaded is tried again in the next epoch. Before the start, queue_size is
     compared with the worst order that the counts allow.
   * A mapped file (>>tokens, >>arrays; >>lines and >>tar with `maps`) may be cut, or fail to read,
     while a row is copied out of it. That ends the process by SIGBUS. A file that was cut earlier
     is an error. If files are read (`reads`, or no `maps`), all of these are errors.
   * At most 16 stages, 16 fields, 1024 workers a stage, 2^20 rows a batch, 2^48 items;
     prefetch_factor 4096 (320 if unordered), max_held 256 (63 with a transfer stage).
   * dlpipe_s3.h needs OpenSSL for https. S3 never ran against AWS. CUDA ran on one H100 and one
     H200: from 1 MiB on, slots are copied at 44 to 55 GB/s ("make gpu").
   * An order never changes under its name: tests pin its numbers. A better one gets a new name.
*/
