#pragma once
/* ---------------------------------------------------------------------------------------------
   >>history    VERSIONS
   0.1.0   The first version. Until 1.0.0 a new second number may change names and fields. Orders
           stay: each item keeps its place in the order of its seed and epoch.
   0.2.0   A row that names no workers runs in the workers of the nearest row above that names some,
           or in as many of its own. Before, some of these rows ran in the thread that calls next:
           behind a second fetch, an asynchronous fetch, makers or a map in which fields end, and if
           they set other fields of workers. num_workers = DLP_NONE keeps that thread, its
           worker_state and its random numbers. retries, on_error and max_skips of a row hold in the
           attempt of the row before. dlp_error.stage is the row that failed. num_workers of a batch
           row without a collate is refused, and so is next while another thread is in next:
           dlp_pipe_error tells the refused thread why. C99 is refused. next warns when no batch has
           come for stall_ms. Calls that write pictures take a dlp_error at the end, which may be
           NULL. Queues in memory can be closed, and have the
           version 2: programs that share one are compiled with the same header. A program whose
           header has other structs than the library does not link, or does not begin. Ready sources
           with states or requests of their own can be branches in front of makers, and later
           fetches there: each worker has a state of each source, and takes the inputs of any.
           dlp_item_ahead tells a fetch which items its worker fetches soon. DLP_LAST_PARTIAL is -1;
           0 is DLP_LAST_DEFAULT, which does the same and warns if the last batch is short. The
           struct of a node has the name of its verb: dlp_node_load was dlp_part_desc;
           dlp_node_cache, _expand, _pack, _split and _queue were descs. A loader takes rows behind
           its fetch, where it took joins. Its workers, fetcher, in_flight, batch_pool and async,
           and those of a dlp_source and its dataset, were in a member fetch. dlp_arrays_chunks_open
           takes the two descs of arrays and chunks.
           A row in the attempt of the row before may have a deadline_ms of its own, and may replace
           items behind a fetch. If a process dies there too often, the error names the row whose
           callback ran, and what that row says of failures holds. Each row up to the last maker may
           have a deadline_ms, retries, on_error and max_skips of its own, where one row said them
           for all. A mix may have legs with other weights, and legs may be added before a resume
           (mix.legs). fetch_rows makes several items in a call. A window may stand directly behind
           a fetch, and before a pack. DLP_PACK_FIT, fields that end and a cache may stand behind a
           zip or mix. Maps directly above a window behind a zip or mix run, and the window
           shuffles; before, neither did anything. Where the workers of makers take all cores, next
           copies batches of up to 1 MiB. A window may stand behind a pack, and shuffles its rows.
           With window.group, items of similar length come together. A list may be a range of a
           source (list.first); n_items below the source's number was refused. A map of batches may
           add fields. With trace_rows a batch tells the list and the number of each row's item.
           A later fetch before makers makes requests, and fetches of a list's datasets may stand
           there. A zip or mix may join 16 branches. With expand.max_bytes the items of an input lie
           tight. With workers.consumer_helps next works beside threads. DLPIPE_ONLY_LOADER leaves
           more out: requests of a worker, the tuner, ranks, statistics, queues, lists of batches.
           With DLP_LAST_DROP an epoch that a branch without items ends is an error in each run;
           it was one in some runs.

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
