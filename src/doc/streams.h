#pragma once
/* ---------------------------------------------------------------------------------------------
   >>streams    DATASETS WITHOUT A LENGTH (examples/stream.c)
   With dataset.open_end = 1 nobody says how many items there are; fetch of an index returns DLP_END
   when there is no such item. The first row of an epoch for which it does ends the epoch: the rows
   before it are delivered, in a batch that may be short (DLP_LAST_DROP: is dropped), and the pipe
   goes on with the next epoch, at index 0, or with DLP_END. Order, resume, seek, retries, crashes
   are as with a length; what a stream cannot have (another order, padding, unordered delivery,
   replacement of items, a cache, chunks, parts, subscribers) start refuses.
   * The end is found when a row meets it. If that is a batch's first row, the batch before was the
     last and did not know: it has no DLP_BATCH_LAST. DLP_EPOCH_END and the next epoch follow.
   * Workers run ahead, so fetch is called for indices after the end, at most prefetch_factor
     batches of them, and what it does there, or how it fails, does not count (but is in statistics
     and dlp_pipe_skips): max_skips counts items as their batches are delivered.
   * Where any item can be read by its index, take as many workers as you like. A source that can
     only be read on takes num_workers = 1 (or 0) and no fetcher, and sees indices rise one by one;
     but for a retry, a resume, a seek, a new epoch, and a worker process that takes over from one
     that died. So fetch compares item->index with its own place, and skips, begins again, or fails.
   * Each rank gives the rows it has: at the end one may have a batch more than another.
   * An epoch may have no item at all, but not with epochs = DLP_FOREVER: that is an error. */
