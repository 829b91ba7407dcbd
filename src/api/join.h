/* needs: join */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>join       SEVERAL DATASETS IN ONE PIPE
   A second fetch node (>>graph), also one of the rows of a loader, fetches from a dataset of its
   own. It has its own workers, placement, fetcher (many items in flight, asynchronous), retries and
   error policy. So images may come from an object store by hundreds of requests, and their labels
   from a file by one worker. A pipe may have several joins. A fetch node with `of` is a mix,
   without `of` a zip. A zip runs in the attempt of the first fetch (>>graph, Attempts) if it says
   nothing in workers, fetches one item at a time, and has no source.

     zip   The dataset has as many items as the pipe, and other fields. A row has the fields of item
           i of each dataset. The callback of the join sees the fields of its own dataset. Callbacks
           of later stages see the fields of all stages above, in the order of the stages. A cache
           keeps the fields of the stages in front of it. A fetch node without a source has the
           items of the pipe. Behind a load with counts it goes by the number of the item in all
           parts, and it has no part.
     mix   The dataset has the same fields, and its items have the next numbers. If the datasets
           before it have n items together, its item i is item n + i of the pipe. It stands directly
           after fetch or another mix. dlp_mix_sampler gives an order, by weights. Each stage
           fetches the rows of its own dataset and lets the others pass. Its statistics count its
           own rows.

   A slow source keeps only its own workers busy. Give it enough workers, or items in flight, for
   its share of the rows. Give prefetch_factor enough batches, so that the other sources go on
   meanwhile. Rows of other datasets pass the stage of a mixed dataset even if all its workers are
   busy: the worker that has fetched a row lets it pass. There are three exceptions. At the stage of
   the first dataset, that of fetch, rows wait for a free worker; so do not put the slowest dataset
   first. Rows that were tried again or replaced wait, too. And rows wait at the last stage before a
   cache, because the cache keeps them. In a zip all rows go through all stages, in order. A batch
   is ready when its last row is ready. Each source is fetched once for a row. If an item of a join
   fails, the error policy of the join holds: it is tried again, left out, or replaced.
   DLP_ON_ERROR_REPLACE replaces the whole row: fetch and all joins in front of this one fetch the
   new item. An error names the stage. Its index is the number in the pipe. In a mix the message
   also has the number in the dataset.

   open compares the datasets, and refuses those that do not go together (DLP_ERR_ARG,
   DLP_ERR_GRAPH). The datasets have no open_end and no filter. A join cannot be combined with:
     streams, pushed items   no item of another dataset belongs to a pushed item: push both together
     views of chunks         rows are not written one by one: put the fields into the chunks
     scratch amid a mix      all datasets of the mix write the fields: end them after the last one
     expand, pack, filters,  inputs are made from the fields of one dataset before there are rows:
     parts without counts    read the other data in the callback that reads the input
     parts (a mix alone)     one manifest gives the order of the parts: put all parts into it */
