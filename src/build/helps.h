/* needs: help */
#pragma once
/* tests: system/core/helping */
#include "inputs/add.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-helps      THE CONSUMER HELPS THREADS
   A stage of threads may have one worker more: where next would wait, the consumer runs it, as it
   runs that of an inline stage (consumer_helps). It is the last one of the stage: inline_worker. It
   claims and completes units as the threads do, so order, fates and states do not know of it. The
   number of active workers (A1) is that of the threads. So this worker counts as retired, unless
   items are short (dlpi_helps). No bit of a mask is its own: the consumer sleeps, and is woken, as
   without it. A unit that only it could go on with is a parked row, for which next looks itself. */

/* Refuse the consumer's help in a stage whose workers are not threads, or whose rows are not for
   any of them, one at a time. */
static void dlpi_check_helps(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_workers_desc *w = &st->w;
    const bool threads = w->num_workers > 0 && w->num_workers < DLP_MAX_WORKERS &&
                         w->placement == DLP_PLACE_THREADS && !st->tuned;
    const bool any = st->work >= 0 && st->ops->unit == DLPI_UNIT_ROWS && w->dispatch == 0 &&
                     st->in_flight == 0 && (st->dataset == NULL || st->dataset->reader == NULL);
    if (w->consumer_helps != 0 && !(threads && any))
        dlpi_bad(p, st->name, "consumer_helps",
                 "0, or 1 where threads work on rows: without processes, turns, workers_max, a "
                 "fetcher and a push",
                 w->consumer_helps);
}
