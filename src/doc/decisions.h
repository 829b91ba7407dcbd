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
   stage keeps the host slot of a batch until the batch is released. Words of a slot carry its
   generation and are never reset. So a late worker finds an older batch's work closed (why: in the
   sections >>impl-claims and >>impl-gather).

   The reasons for these decisions:
   * Workers claim runs of rows by compare-and-swap on the run's own word. That word is the only
     record of the claim. If an index were popped from a shared queue first and recorded later, a
     worker that dies in between would lose it. A done word has 32 rows and the batch's generation.
     So one swap completes rows, and refuses rows of an older batch. A count-down could not be
     repeated. A run has rows that cost about 16 us together, at most 32 rows. With shorter runs,
     short items would be all claim. With longer runs, long items would leave other workers idle.
     8 us were 3 to 8 % slower for items of 784 bytes that memory delivers in 0.4 us.
   * The claimant of a batch of one row alone writes its done word, so it stores the bit. It still
     swaps ready: recovery of another worker closes each batch whose bits are full, and the slot may
     have gone on before the claimant comes to ready. A store there was tried, and model_slots found
     this. The only worker of a stage claims by a store: nobody else writes a free unit's word.
   * A consumer that helps threads is one more worker of their stage. It claims units as they do, so
     nothing else knows of it. What it makes itself is in its own cache. With 784 bytes an item, one
     thread and the consumer took 0.62 to 0.79 of the processor time that two threads and the
     consumer took. Where no other program ran, they made 1.3 times as many items with 16 batches
     ahead, and 2.5 times with 2. The pipeline of TBB took 0.65 to 0.78 of their time. There each
     batch is consumed by the thread that has filled it, so no line goes from core to core. No
     consumer with a thread of its own can have that. The rest is what any worker does beside a
     plain loop: an inline worker took as much time for an item as the first two.
   * Items for a collate have their own cells, prefetch_factor of them, since what a collate reads
     and what it writes may differ in shape. A plan shows these cells on a line.
   * Sleeping workers check for lost wake-ups. In each group of 32 workers the first one asleep
     checks every 100 ms. The others rely on it, and check every 1 s. If all idle threads checked
     ten times a second, that would cost more than waiting may (0.1 % of a core).
   * A waiter without a core of its own yields 50 times before it sleeps, also if other programs
     want the core. It was tried not to yield for 5 to 100 ms after a yield of 0.3 ms. At a load of
     11 to 20 that gave 1.3 to 1.9 times the items. Beside one thread that takes half a core it gave
     0.63 to 0.88 times the items, and trainers run like that.
   * Workers, the scheduler's thread, the consumer and subscribers sleep by one loop. Lanes look
     awake by the same function, but sleep by a loop of their own. One word of a lane is mask and
     futex, and the sleeper pays a heavy barrier, so that a push costs no ordered look at the word.
   * A stop, a seek and the tuner wake all sleepers by the word, as recovery does. They are rare. A
     list of the sleepers that rest or have no bit would be one more thing to keep right.
   * Workers with items in flight look for new batches every millisecond, also while they wait for
     these items. Not every source has a wake-up that could end such a wait (a poll, an io_uring, a
     library's own). 1 ms is little if items take longer than that.
   * All workers_max of a tuned stage exist from the start, and are parked. A worker that started
     later could fail, would allocate, and would fork in the middle of a run.
   * Rank r of W gets rows r * n / W and so on of each global batch, and streams r * C / W and so on
     of a part queue. It does not get every W-th of them. So its rows are neighbours. A global batch
     is the ranks' batches laid end to end, whatever W is.
   * A part queue needs the number of items in each part before it starts (items, count), also with
     steps_per_epoch. Without these numbers its order, its state and the largest need of cells are
     unknown. A program that cannot know the numbers uses a stream.
   * Parts whose items are counted, and inputs whose items nobody has counted, share their cells,
     their loading workers and the search for free cells (inputs/cells.h). They do not share the
     choice of what is loaded next. With counts, each batch of any epoch tells which parts it needs.
     So parts are requested batch by batch, and one part may lie in two streams or serve two epochs
     in one cell. A state is a number, and batches may come in any order. Without counts a stream
     can only be read on. Whole inputs are requested stream by stream. Each belongs to one stream
     and is loaded for each pass again. A state has a cursor for each stream, there are lists for up
     to 2^22 cells, and the consumer takes batches in order. Parts as inputs would lose same-order
     golden numbers, unordered delivery, state_at, split views and caches. Inputs as parts would
     need counts. A failed part leaves all its rows out. A failed input has rows that nobody knows,
     so its stream ends before it. If the input counted as some number of rows, an epoch could end,
     or a batch wait, as if the input were whole.
   * Whole batches for each worker, and many items at once in one worker, are rules of claiming, not
     other machinery. Order, recovery, resume and policies rest on the claim word alone. With many
     items in flight a unit is one row, so that each item completes by itself.
   * Any one of many items in flight may have killed its process. Each of them counts one death, and
     then runs alone. So an innocent item is never blamed twice. (max_kills of 1 therefore means 2
     there.)
   * A batch is scheduled only when its parts are loaded. So no item worker ever waits for a part.
     No part needs a count of its readers: it may go when the batches scheduled with it have gone.
     The scheduler computes the indices of such a batch, since it has the tables anyhow. So workers,
     in processes too, need nothing but the cell that a row comes from.
   * Transfer takes batches by the gather words of the stage before it, and gives them by its own
     words; its buffers are credits. Lanes beside these words would say the same again. In unordered
     delivery there is no order that a lane could have. Chunks work alike: a cell is claimed, then
     done.
   * The work of a worker's threads (DLP_FETCH_THREADS, files) waits behind a lock and a condition
     variable. The threads die only with their process, so no record need say which thread has a
     row. A claim link in its place was 16 lines more. With items that take no time it was as fast
     with 1 and 16 threads, 1.4 times slower with 4 and 7 % faster with 64.
   * The helper of S3 is asked for names and credentials by key. A caller that asked asks again for
     the result. A table behind a lock serves for that: nothing is taken out of it, and it outlives
     the callers.
   * A map changes its cell in place, and may have made half of a change when it fails. So a retry,
     and the death of a worker process, send a row back to fetch. They send a batch back to its
     collate (whose item cells are kept until then) or to fetch. A map that says that it is
     idempotent runs again instead.
   * Rows that run in the attempt of another row are one callback of the other row's stage, which
     calls their callbacks. So retries, deadlines, deaths, caches and items in flight needed no line
     of their own. The price is one copy of the item for each callback but the last. The alternative
     was an attempt with several callbacks and the number of the running one. It would have told
     which callback killed a worker.
   * Callbacks that make or change an item are called at 11 places. Six places call a type of
     callback of their own: filter, expand, load, fetch_rows, submit, reap. The other five call a
     fetch or map: a row, an op, an input, an item of a part, and a map with fields in another
     order. A row's callback is no op, because a test for each row costs more than an empty
     callback. The order of fields would add 16 bytes to each op.
   * The fetch of an item of a part is no op. It was tried as the first op of its items, which
     saved 19 lines of code. But the loop over ops copies the item. And a cell whose items have ops
     leaves the plain loop. An item of 8 bytes then took 673 instructions instead of 399, in parts
     of four items. The fetch of an input would pay for the copy, too.
   * Batch slots and input cells have two functions each for laying out an item, opening its marks,
     and storing its lengths. In a slot a field is an array, and its lengths and marks lie beside
     it. In a cell an item has its fields, lengths and marks together. What works on one item with
     known addresses is common: closing its marks. One record for both layouts would add a distance
     for each field to the loop over plain rows.
   * The stage behind makers takes over the dataset of the fetch before them, and copies. A dataset
     of its own was not tried. Nobody would check that of the fetch then, so the fetch would need
     checks that name its row, and a copy of its fields that the plan counts.
   * Recovery of slots and of cells shares the blame for a death, and no loop. A unit of a slot can
     be claimed, done, complete or sent back by several stages. A cell has one word, and is free
     again by one store. */
