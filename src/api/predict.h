/* needs: predict */
#pragma once
#include "api/stats.h"
/* ---------------------------------------------------------------------------------------------
   >>predict    WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   A pipe that ran for a while has measured the times of its items, batches and steps. From these
   times the prediction runs the same pipe in virtual time, event by event: claims of runs, order of
   delivery and all. Numbers of workers, batches in flight, cores or steps may differ. Item times
   are drawn so that their p50, p95, p99 and mean are those measured. The part of them that was CPU
   time shares the cores. If other programs had some cores, it shares those that were left for the
   pipe. The prediction does not know what more workers cost by themselves: a disk's queue, a memory
   bus, a network. If the cores were full while the pipe was measured, it does not know what an item
   would take alone. The CPU time of an inline stage is known by samples. If the consumer often
   waited for a core there, others have the cores, and no worker is predicted to help. */

typedef struct dlp_predict_desc {
    int32_t num_workers;             /* workers of fetch; 0: as measured; DLP_NONE: inline */
    int32_t batch_workers;           /* workers of the batch stage, if it has a collate; 0: as
                                        measured; DLP_NONE: inline */
    int32_t workers[DLP_MAX_STAGES]; /* workers of each stage of dlp_stats; DLP_NONE: inline; 0: as
                                        the two fields above say, else as measured */
    uint32_t prefetch_factor;        /* batches in flight; 0: as measured; above 128 taken as 128 */
    uint32_t cpus;                   /* cores, at most 65536; 0: as measured, less those that others
                                        had */
    int64_t step_ns;   /* mean time of a step of the consumer; 0: as measured; DLP_NONE: none */
    int32_t step_idle; /* 1: a step keeps no core busy, as it waits for a device; with a transfer
                                stage always so */
    int32_t unordered; /* 1: batches are delivered in the order of completion */
} dlp_predict_desc;

typedef struct dlp_predict {
    double items_per_s, batches_per_s;
    double wait_share; /* share of the consumer's time in next, 0..1; inline stages included */
    double cores;      /* mean number of cores kept busy */
    double busy_share[DLP_MAX_STAGES]; /* busy share of the time of a stage's workers, 0..1; of an
                                          inline stage, of the consumer's time */
    uint64_t batches;                  /* batches simulated */
} dlp_predict;

/* Predict the throughput of a measured pipe with other numbers.
   measured: of dlp_pipe_stats, best some hundred batches after the start; what_if: NULL: as
   measured; out: written on success.
   Returns DLP_OK; DLP_ERR_ARG: a number out of range, or more than 1024 workers in all;
   DLP_ERR_STATE: no more than prefetch_factor batches were delivered yet, or no stage has worked.
   Any thread. Does not wait or allocate; takes 40 KiB of stack and 1 to 30 ms. */
DLPDEF int dlp_stats_predict(const dlp_stats *measured, const dlp_predict_desc *what_if,
                             dlp_predict *out);
