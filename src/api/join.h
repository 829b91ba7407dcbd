/* needs: join */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>join       SEVERAL DATASETS IN ONE PIPE
   A second fetch node (>>graph), or an entry of a loader's joins, fetches out of a dataset of its
   own: with its own workers, placement, fetcher (many in flight, asynchronous), retries and policy.
   So images may come from an object store by hundreds of requests, and their labels out of a file
   by one worker. A pipe may have several. A fetch node with `of` is a DLP_JOIN_MIX, without it a
   DLP_JOIN_ZIP. A source's fetch (dlp_source) can be that of its desc. A DLP_JOIN_ZIP that says
   nothing in workers, fetches one item at a time, and has no source, runs in the attempt of the
   first fetch (>>graph, Attempts).

     DLP_JOIN_ZIP   the dataset has as many items as the pipe, and other fields. A row has the
                    fields of all, out of item i of each. Callbacks of a stage see the fields that
                    are there by then: those of fetch, then those of each join, in their order; a
                    join's own callback sees its dataset's alone. A cache in front of it keeps what
                    is there by then, one after it all.
     DLP_JOIN_MIX   the dataset has the same fields, and its items have the next numbers: after n of
                    the datasets before it item i of its own is item n + i of the pipe. It stands
                    directly after fetch or another such join. dlp_mix_sampler gives the order, by
                    weights, of any of them. Each stage fetches its own rows and lets others pass;
                    its statistics count its own.

   A slow source keeps its own workers busy, and no others: give it as many workers, or items in
   flight, as its share of the rows takes, and prefetch_factor enough batches that the others go on
   meanwhile. A mixed dataset's stage does not hold up the rows of others, not even while all its
   workers are busy: whoever has done a row lets it pass there. But for three: in the first dataset,
   that of fetch, they wait until one of its workers is free, so the slowest is best not the first;
   so do rows that were tried again or replaced; and in the last stage before a cache, which keeps
   what passes. All rows of a zip go through all its stages, in order. A batch is there when its
   last row is. A row is fetched once for each source; an item that fails is tried again, left out,
   or replaced by the join's own policy. DLP_ON_ERROR_REPLACE replaces the whole row: fetch and all
   joins in front fetch the new item. Errors name the stage; their index is the pipe's, and of a mix
   the message has the dataset's own. */

enum { DLP_JOIN_ZIP = 0, DLP_JOIN_MIX };

/* What its dataset must be to the others is found by open (DLP_ERR_ARG, DLP_ERR_GRAPH). Not with
     streams, pushed items   nobody says which of another dataset's items goes with one: push both
     views into chunks       rows are not written one by one: put the fields into the chunks
     scratch amid a mix      all of its datasets write them: let the fields end after the last of it
     expand, pack, filters,  inputs are made of one dataset's fields before there are rows: read the
     parts without counts    others in the callback that reads the input
     parts (a mix alone)     their order is that of one manifest: put all parts into it */
typedef struct dlp_join_desc {
    dlp_fetch_desc fetch; /* as of a fetch stage. The name, if NULL, is "join"; idempotent is not
                             read. Without open_end and filter */
    int32_t how;          /* DLP_JOIN_* */
} dlp_join_desc;
