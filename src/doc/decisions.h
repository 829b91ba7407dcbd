#pragma once
/* ---------------------------------------------------------------------------------------------
   >>impl-decisions  HOW A BATCH SLOT GOES ROUND, AND WHY IT IS SO
   One store moves a slot from state to state:

     state   its bytes belong to                          what moves it on
     FREE    nobody                                       sampler: header, then tail: it is OPEN
     OPEN    of each run of rows, the worker whose        worker: the bits of its rows in done; the
             number is in the run's owner word            one that makes the last stage's full
                                                          closes the batch (ready): READY
     READY   nobody                                       consumer, in next: it is HELD
     HELD    the consumer                                 consumer, in release: used = 0: it is FREE

   Which worker takes which rows is its stage's dispatch: any run of any batch, or whole batches in
   turn. At most prefetch_factor batches are OPEN or READY, at most max_held are HELD. A transfer
   stage keeps the host slot of a batch until that is released. Words of a slot carry its generation
   and are never reset, so that a late worker finds an older batch's work closed (why: in the
   sections >>impl-claims and >>impl-gather).

   Decided this way, because:
   * Workers claim runs of rows by compare-and-swap on the run's own word, and that word is the only
     record of it: an index popped from a shared queue first and recorded later would be lost with a
     worker that dies in between. done words have 32 rows and the batch's generation beside them, so
     that one swap completes rows and refuses those of an older batch; a count-down could not be
     done twice. A run takes what costs about 8 us, at most 32 rows: short items would be all claim,
     and long ones in runs would leave the other workers idle.
   * The claimant of a batch of one row alone writes its done word, so it stores the bit. It still
     swaps ready: recovery of another worker closes each batch whose bits are full, and the slot may
     have gone on before the claimant comes to ready. A store there was tried, and model_slots found
     this. The only worker of a stage claims by a store: nobody else writes a free unit's word.
   * Items for a collate have cells of their own, prefetch_factor of them, since what a collate
     reads and what it writes may differ in shape; a plan shows them on a line.
   * Sleeping workers check for lost wake-ups: of each 32 the first asleep every 100 ms, the others,
     which rely on it, every 1 s. Idle threads that all checked ten times a second would cost more
     than waiting may (0.1 % of a core).
   * A waiter without a core of its own yields 50 times before it sleeps, also if other programs
     want the core. It was tried not to yield for 5 to 100 ms after a yield of 0.3 ms. At a load of
     11 to 20 that gave 1.3 to 1.9 times the items. Beside one thread that takes half a core it gave
     0.63 to 0.88 times the items, and that is what trainers have.
   * Workers, the scheduler's thread, the consumer and subscribers sleep by one loop. Lanes look
     awake by the same function, but sleep by a loop of their own. One word of a lane is mask and
     futex, and the sleeper pays a heavy barrier, so that a push costs no ordered look at the word.
   * A stop, a seek and the tuner wake all sleepers by the word, as recovery does. They are rare,
     and a list of those that rest or have no bit would have to be right as well.
   * Workers with items in flight look for new batches every ms, also while they wait for what is
     out: a wake-up that ends the wait of a source (a poll, an io_uring, a library's own) does not
     exist for all sources, and 1 ms is little where items take longer than that.
   * All workers_max of a tuned stage exist from the start, and are parked: what is started later
     could fail, would allocate, and would fork in the middle of a run.
   * Rank r of W gets rows r * n / W and so on of each global batch, and streams r * C / W and so on
     of a part queue, rather than every W-th of them: its rows are neighbours, and a global batch is
     the ranks' batches laid end to end, whatever W is.
   * A part queue wants the number of items in each part before it starts (items, count), also with
     steps_per_epoch: only so are order, state and the worst need of cells known. A program that
     cannot know them has a stream.
   * Parts whose items are counted, and inputs whose items nobody has counted, share their cells,
     who loads them and the search for free ones (inputs/cells.h), and not what is loaded next. By
     the counts each batch of any epoch says which parts it needs: parts are asked for batch by
     batch, one may lie in two streams or serve two epochs in one cell, a state is a number, and
     batches may come in any order. Without counts a stream can only be read on: whole inputs, each
     of one stream, loaded for each pass again, are asked for stream by stream, with a cursor for
     each in a state, lists for up to 2^22 cells, and the consumer in order. Parts as inputs
     would lose same-order golden numbers, unordered delivery, state_at, split views and caches;
     inputs as parts would need counts. A failed part leaves all its rows out. A failed
     input has rows that nobody knows, so its stream ends before it. If the input counted as some
     number of rows, an epoch could end, or a batch wait, as if the input were whole.
   * Whole batches for each worker, and many items at once in one, are rules of claiming, not other
     machinery: what order, recovery, resume and policies rest on is the claim word alone. With many
     in flight a unit is one row, so that each completes by itself.
   * Of many in flight any may have killed its process. Each of them counts one death, and is then
     run alone: so an innocent is never blamed twice. (max_kills of 1 therefore means 2 there.)
   * A batch is scheduled only when its parts are loaded, so no item worker ever waits for one, and
     no part needs a count of its readers: it may go when the batches scheduled with it have gone.
     The scheduler computes the indices of such a batch (it has the tables anyhow), so workers, in
     processes too, need nothing but the cell that a row comes from.
   * Transfer takes batches by the gather words of the stage before and gives them by its own, and
     its buffers are credits: lanes beside them would say the same again, and in unordered delivery
     there is no order that a lane could have. So, too, chunks: a cell is claimed, then done.
   * What the threads of a worker are to do (DLP_FETCH_THREADS, files) waits behind a lock and a
     condition variable. They die with their process alone, so no record need say who has it. The
     same as a claim link was 16 lines more and, with items that take no time, as fast with 1 and 16
     threads, 1.4 times slower with 4 and 7 % faster with 64.
   * The helper of S3 is asked for names and credentials by key, and what it found is asked for
     again: a table behind a lock, of which nothing is taken, and which outlives those who asked.
   * A map changes its cell in place, and half of a change may have been made. So a retry, and the
     death of a worker process, send a row back to fetch, and a batch to its collate (whose item
     cells are kept until then) or to fetch, unless the map says that it is idempotent.
   * Rows that run in the attempt of another row are one callback of that row's stage, which calls
     theirs. So retries, deadlines, deaths, caches and items in flight needed no line of their own.
     The price is one copy of the item for each callback but the last. Callbacks of an attempt with
     a number of the one that runs would have told apart which of them killed a worker. */
