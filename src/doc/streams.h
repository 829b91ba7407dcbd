#pragma once
/* ---------------------------------------------------------------------------------------------
   >>streams    DATASETS WITHOUT A LENGTH (examples/stream.c)
   Set dataset.open_end = 1 if nobody knows how many items there are. fetch returns DLP_END for an
   index that has no item. The first row of an epoch with DLP_END ends the epoch. The rows before it
   are delivered, in a batch that may be short (DLP_LAST_DROP drops it). Then the pipe goes on with
   the next epoch, at index 0, or with DLP_END. Order, resume, seek, retries and crashes work as
   with a length. A stream cannot have another order, padding, unordered delivery, replacement of
   items, a cache, chunks, parts or subscribers: start refuses them.
   * The end is found when a row meets it. If that row is the first of a batch, the batch before was
     the last one and did not know it: it has no DLP_BATCH_LAST. DLP_EPOCH_END and the next epoch
     follow.
   * Workers run ahead. So fetch is called for indices after the end, in at most prefetch_factor
     batches. Results and failures of these calls do not count: max_skips counts items when their
     batches are delivered. They do appear in statistics and dlp_pipe_skips.
   * If any item can be read by its index, take as many workers as you like. If a source can only be
     read in order, take num_workers = 1 (or 0) and no fetcher. It then sees indices rise one by
     one. The exceptions are a retry, a resume, a seek, a new epoch, and a worker process that
     replaces a dead one. So fetch must compare item->index with its own place, and skip, begin
     again, or fail.
   * Each rank gives the rows it has. At the end one rank may have a batch more than another.
   * An epoch may have no item at all. With epochs = DLP_FOREVER that is an error. */
