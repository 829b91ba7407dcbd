#pragma once
#include "api/stats.h"
/* ---------------------------------------------------------------------------------------------
   >>predict    WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   A pipe that ran for a while has measured what its items, batches and steps take. From that the
   same pipe is run again in virtual time, event by event, with other numbers of workers, batches in
   flight, cores or steps: claims of runs, order of delivery and all. Item times are drawn so that
   their p50, p95, p99 and mean are those measured; the part of them that was CPU time shares the
   cores; where others had some of those, as many as were left for the pipe. What costs of its own
   come with more workers (a disk's queue, a memory bus, a network) is not known to it; nor what
   items would take alone, where the cores were full when measured. The CPU time of an inline stage
   is known by samples. If the consumer often waited for a core there, others have the cores, and no
   worker is foretold to help. */

typedef struct dlp_predict_desc {
    int32_t num_workers;             /* fetch; 0: as measured; DLP_NONE: inline */
    int32_t batch_workers;           /* the batch stage, if it has a collate; likewise */
    int32_t workers[DLP_MAX_STAGES]; /* likewise, by stage as in dlp_stats; not 0: goes before the
                                        two above */
    uint32_t prefetch_factor;        /* 0: as measured; above 128 taken as 128 */
    uint32_t cpus;                   /* cores; 0: as measured, less those that others had */
    int64_t step_ns;   /* a step of the consumer, the mean; 0: as measured; DLP_NONE: none */
    int32_t step_idle; /* 1: a step keeps no core busy (it waits for a device); so always
                                with a transfer stage */
    int32_t unordered; /* 1: batches are delivered as they are complete */
} dlp_predict_desc;

typedef struct dlp_predict {
    double items_per_s, batches_per_s;
    double wait_share; /* of the consumer's time, 0..1: in next, inline stages included */
    double cores;      /* kept busy, in the mean */
    double busy_share[DLP_MAX_STAGES]; /* of the time of a stage's workers, 0..1; inline: of the
                                          consumer's */
    uint64_t batches;                  /* that were simulated */
} dlp_predict;

/* Foretell how a measured pipe would run otherwise.
   measured: of dlp_pipe_stats, best some hundred batches after the start; what_if: NULL: as
   measured; out: written on success - returns DLP_OK, DLP_ERR_ARG (a number out of range; more than
   1024 workers in all), DLP_ERR_STATE (no more than prefetch_factor batches were delivered yet) -
   any thread - does not wait or allocate; takes 40 KiB of stack and 1 to 30 ms. */
DLPDEF int dlp_stats_predict(const dlp_stats *measured, const dlp_predict_desc *what_if,
                             dlp_predict *out);
