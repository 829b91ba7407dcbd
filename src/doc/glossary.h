#pragma once
/* ---------------------------------------------------------------------------------------------
   >>glossary   WORDS OF THIS HEADER AND OF PYTORCH
   The second column is the name that users of PyTorch know for it.

     word             in PyTorch                 is
     item             sample                     what one call of fetch writes; known by its index
     index            index, key                 number of an item in the dataset, 0..n_items - 1
     position         -                          a place in an epoch's order: position -> index
     field            an element of the tuple    one array of an item: name, dtype, shape
     ragged field     list of tensors            field whose first dimension varies between items
     dataset          map-style Dataset          number of items, fields, fetch
     fetch            Dataset.__getitem__        writes item `index` into its place in the batch
     stream           IterableDataset            a dataset whose length nobody knows (>>streams)
     push, pusher     a queue in IterableDataset items that other threads or programs push (>>push)
     sampler          Sampler                    the order: sequential, shuffled, weighted, yours
     batch sampler    BatchSampler               sampler that lists the indices of each batch
     buckets          length-grouped sampler     batches of items of similar length (>>buckets)
     mix              weighted concatenation     one order over several datasets (>>mixing)
     seed             generator                  with epoch and position, decides the order
     epoch            epoch                      one pass over the order
     determinism      manual_seed, generator     order and content follow from the seed (>>concepts)
     evaluate         a second DataLoader        a second pipe, in order (examples/evaluate.c)
     stop early       break                      dlp_pipe_close, or _next_epoch: leave the epoch
     cancel           -                          dlp_pipe_stop, from any thread or signal handler
     repeat           persistent_workers=True    stage that begins the next epoch without a gap
     batch            a batch of tensors         count rows; each field is [count, shape...]
     batch_size       batch_size x world size    rows of the global batch, of all ranks together
     sequence         -                          a batch's number over the life of its pipe
     row              -                          an item's place in a batch
     valid            -                          per row: 0 is padding, or an item left out
     last             drop_last                  what to do with an epoch's last, short batch
     collate          collate_fn                 makes a batch out of items; without one no copy
     map              transform                  changes an item, or a whole batch, in place
     scratch          -                          fields from fetch to a map, which no batch has
     guard            -                          finds NaN and numbers out of range (>>guard)
     item_random      worker seeds               random bits of (seed, epoch, position) alone
     loader           DataLoader                 a desc and a call that open a whole pipe
     pipe             DataLoader, its iterator   an open table of nodes, which runs
     next, release    next(iter), del batch      lend a batch; give its memory back
     next_timeout     timeout                    next that waits so many ms at most
     unordered        in_order=False             batches come when they are complete
     consumer         the training loop          the thread that calls next and release
     stage            DataPipe, node             a step of the pipe: fetch, batch, transfer...
     topology         -                          a ready-made table (>>concepts)
     worker           worker                     a thread or process of a stage
     num_workers      num_workers                0: inline, in the consumer's next
     placement        multiprocessing_context    threads or processes (dlpipe_shm.h)
     worker_init      worker_init_fn             called in a worker before its first item
     worker_state     worker_info, globals       what worker_init left for the callbacks
     fetcher          asyncio in a dataset       how a worker has several items in flight at once
     in flight        -                          begun and not yet complete
     prefetch_factor  prefetch_factor x workers  batches between sampler and next, for all workers
     max_held         -                          batches that the consumer may hold at once
     slot             -                          memory of one batch; it goes round
     credit           -                          a free slot, as the sampler sees it
     cell             -                          memory of one thing: an item, a part, a chunk
     region           shared memory of tensors   one mapping that holds a whole pipe
     plan             -                          list of the bytes that a pipe needs, before start
     limit, budget    -                          most bytes of one plan, of several plans
     link             multiprocessing.Queue      the lock-free queue between two stages
     cache            a dict in __getitem__      items kept in memory after their first fetch
     part             shard (a tar, a file)      a file or range that holds many items (>>parts)
     part queue       -                          stage that loads the next parts ahead
     chunk            -                          rows loaded, and moved to a device, as one
     split, view      tensor slice               a batch that lies inside a chunk (>>chunks)
     transfer         pin_memory, .to(device)    stage that copies batches to a device
     device           torch.device               CUDA, OpenCL, host, or nine functions of yours
     rank, world_size rank, world_size           the share of each global batch of this process
     state            state_dict                 248 bytes: all batches up to one are consumed
     resume, seek     load_state_dict            begin at a state, or jump to it while running
     fingerprint      -                          hash of what decides the order; states have it
     on_error         try in __getitem__         policy for failed items: raise, replace, drop
     retries          -                          more tries of a failed item, with a pause
     max_skips        -                          most items that may be replaced or left out
     deadline_ms      -                          longest time that a callback may take
     tuned stage      -                          stage whose number of workers is adjusted
     trace, timeline  profiler                   what each worker did and when; JSON or SVG
     explain          -                          says in words which stage is the slow one
     predict          -                          estimate for other numbers of workers
     supervisor       -                          process that replaces dead workers (dlpipe_shm.h)
     monitor          -                          a program that looks into a pipe from outside
     subscriber       -                          another program, or a thread, that takes batches */
