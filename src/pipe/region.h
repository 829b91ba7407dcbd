#pragma once
/* tests: model/model_slots, system/shm/monitor, fuzz/fuzz_region */
#include "api/atomics.h"
#include "api/stats.h"
#include "base/platform.h"
#include "base/sleepers.h"
#include "queue/claim.h"
#include "queue/credit.h"
#include "queue/first.h"
#include "queue/gather.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-region     WHAT IS SHARED: ONE MAPPING, OFFSETS ONLY

   header | control | waiters | records | workers | slots' rows and words | trace rings |
   what stages have of their own: rows in flight, kept items, parts, what stays | item cells |
   batch cells

   A batch slot goes round like this; each arrow is one store that publishes the step:

     FREE --scheduler: header--> OPEN --workers: owner, done--> ... --last stage: ready--> READY
       ^                                                                             |
       +----------------------- consumer: used = 0 <-- HELD <-- consumer: delivered -----+

   Per slot and per stage that has workers there is a record of words (dlpi_stage_words):
     owner[u] who works on unit u (a run of up to 32 rows of an item stage, of one row where workers
              have several in flight; the whole batch of a batch stage): see >>impl-claims
     done[i]  which of rows 32 i .. 32 i + 31 are complete: see >>impl-gather. Not of a batch stage.
     ready    sequence + 1 of the batch that left this stage, and how often batches went back.
   Words are never reset: one of an older generation counts as empty.

   Atomics are those of the links, each with its table: >>impl-claims (P1, O1, R1), >>impl-gather
   (D1, D2, Y1), >>impl-credit (T1, V1, C1, C2, Q2), >>impl-first (E1, F1, K3); and of sleep and
   wake, >>impl-sleepers (B1, A1). Besides:

   label  atomic            written by                 read by (partner)
   Z1     word of what is kept  worker that keeps it      workers (Z1)
   X2     running, at_once  worker, around a callback  recovery, of a dead worker (X2)
   X4     op                worker, around a callback  recovery, of a dead worker (X4)
   X3     mark of a ragged row  worker, around a callback  the next worker of the row (X3)

   Slots are reused only after every unit of their batch was claimed and done.
   DLP_DISPATCH_BATCHES narrows who may try, by sequence and number alone, and a worker process that
   takes a dead one's place has its number: so each unit has somebody who may claim it, always. */

#define DLPI_MAGIC 0x31657069706c6400u
#define DLPI_FORMAT 6u
#define DLPI_RUN_SHIFT_MAX 5u
#define DLPI_HIST 160u
#define DLPI_SKIP_RING 64u
#define DLPI_PARK 64
#define DLPI_DEVICE_BUFFERS DLPI_PARK /* copies under way wait as items do that are tried again */
#define DLPI_GOES_BACK UINT64_C(0)
#define DLPI_GAPS_MAX 320u /* batches behind the first gap, of which an unordered state has a bit */
#define DLPI_REPLACE_MAX 100u
#define DLPI_NO_SLOT UINT32_MAX
#define DLPI_EPOCH_MASK ((UINT64_C(1) << 48) - 1)
#define DLPI_MAX_EPOCH (UINT64_C(1) << 47)
#define DLPI_SEEKS_MAX (UINT32_C(1) << 14)
#define DLPI_WENT_BACK INT_MIN
#define DLPI_OVERRUN (INT_MIN + 1)
#define DLPI_REDZONE ((uint64_t)DLPI_DEBUG * 256) /* bytes around a field: see >>impl-debug */
#define DLPI_NOBODY (UINT32_MAX / 2)
#define DLPI_BY_SCHEDULER (DLPI_NOBODY + 1)

/* Areas of the region. The pipe has those below. Each stage has up to DLPI_OWN_AREAS of its own, by
   numbers of its kind; DLPI_OWN gives their ids. Observers read the header, the table of records,
   and the areas of which records speak. These are the pipe's areas below DLPI_REC_COUNT, and all
   areas of a stage but the last. Numbers are only ever added, structs only ever grow at their ends,
   and a record says how far its elements are apart. So an older monitor reads a newer region. What
   else changes takes a new DLPI_FORMAT. The plan has the areas of one class by their ids. */
enum {
    DLPI_REC_CTL = 1,
    DLPI_REC_ITEM_CELLS,
    DLPI_REC_CELLS,
    DLPI_REC_ZEROS,
    DLPI_REC_SLOTS,
    DLPI_REC_TABLE,
    DLPI_REC_SHARE,
    DLPI_REC_TRACE,
    DLPI_REC_WORKERS,
    DLPI_REC_ORDER,
    DLPI_REC_PIPE,
    DLPI_REC_STAGES,
    DLPI_REC_TAKEN,
    DLPI_REC_FIELDS,
    DLPI_REC_COUNTERS, /* of the user's */
    DLPI_REC_COUNT,
    DLPI_AREA_WAITERS = DLPI_REC_COUNT,
    DLPI_AREA_GUARD,
    DLPI_AREA_MARKS,     /* of ragged rows: >>impl-marks */
    DLPI_AREA_MADE,      /* of fields that a collate makes */
    DLPI_AREA_READS,     /* outside the region: what workers of sources allocate */
    DLPI_AREA_OWN,       /* of the stages: DLPI_OWN */
    DLPI_OWN_LINK = 0,   /* the number of cells of inputs, and of the sink's buffers, for links */
    DLPI_OWN_HIDDEN = 3, /* the number of the one that no observer reads */
    DLPI_OWN_AREAS,
    DLPI_AREAS = DLPI_AREA_OWN + DLPI_OWN_AREAS * DLP_MAX_STAGES
};
#define DLPI_OWN(stage, number) (DLPI_AREA_OWN + (int)(stage)*DLPI_OWN_AREAS + (number))
#define DLPI_RECORDS 37 /* more than are used: few stages show observers more than one area */

/* A counter of the user's, as it is now: words, which observers copy one by one. */
typedef struct dlpi_counter_rec {
    uint64_t value, most; /* bits of a double */
    uint64_t at_ns, noted;
    char name[32], unit[16];
} dlpi_counter_rec;

typedef struct dlpi_record { /* an area that the region has */
    int32_t stage;           /* the stage that owns it; -1: the pipe */
    uint32_t number;         /* DLPI_REC_*, or the number among the areas of the stage */
    uint64_t offset, stride, count;
} dlpi_record;

typedef struct dlpi_region {
    uint64_t magic;
    uint32_t format, header_bytes;
    uint64_t layout; /* hash of the layout of all structs; processes that map the region compare */
    uint64_t view;   /* hash of the words that observers read: an observer compares it */
    uint64_t total_bytes;
    uint32_t n_records, record_bytes;
    uint64_t records_at; /* records[] from the region's beginning */
    uint64_t reserved;
    dlpi_record records[DLPI_RECORDS];
} dlpi_region;

/* Where what a batch slot has lies in it; source: what the source of batches keeps there. */
typedef struct dlpi_slot_layout {
    uint64_t traced; /* numbers and lists of rows; 0: nowhere */
    uint64_t index, lengths, item_lengths, offsets, fmeta, fate, valid, source;
} dlpi_slot_layout;

/* How many there are of what observers go through. Members of the pipe, of its record and of
   dlpi_seen, which are copied at once. */
#define DLPI_SHAPE \
    uint32_t prefetch, max_held, n_slots, ring, reach, batch_rows; \
    uint32_t words_max, units_max, trace_events;
typedef struct dlpi_shape {
    DLPI_SHAPE
} dlpi_shape;
#define DLPI_SHAPE_MEMBERS \
    union { \
        struct { \
            DLPI_SHAPE \
        }; \
        dlpi_shape shape; \
    }

/* The pipe, for those who have nothing but the region. */
typedef struct dlpi_pipe_rec {
    char name[32];
    uint64_t token[2];     /* random: a name's record carries the same */
    uint64_t started_real; /* CLOCK_REALTIME, ns; for display */
    int32_t pid, memfd;    /* of the consumer; for display */
    uint32_t uid, n_stages, n_workers, n_work, n_item_work;
    DLPI_SHAPE_MEMBERS;
    int32_t cpus, reserved0, has_item_cells, n_links; /* n_links: dlp_link behind this record */
    uint64_t plan_bytes, global_batch, batches_per_epoch, samples; /* UINT64_MAX: not known */
    uint64_t reserved[2];
    dlpi_slot_layout slot;
} dlpi_pipe_rec;

/* A stage, in the order in which they were added. */
typedef struct dlpi_stage_rec {
    char name[32];
    int32_t kind, id;
    int32_t work;                    /* place among the stages with workers; -1: it has none */
    int32_t first_worker, n_workers; /* n_workers counts an inline one */
    int32_t num_workers;             /* 0: the consumer does the work */
    int32_t placement, zeroes;       /* zeroes 1: each row is cleared before its fetch */
    int32_t in_flight, workers_min;  /* workers_min 0: the tuner does not change the stage */
    uint64_t stage_words_offset;     /* bytes from the start of a slot's record to its words */
    uint64_t active;                 /* workers that may claim; the tuner stores it in one word */
} dlpi_stage_rec;

typedef struct dlpi_field_rec {
    char name[32];
    uint32_t dtype;
    int32_t ndim, ragged, pad0;
    int64_t shape[DLP_MAX_DIMS];
    uint64_t elem_bytes, row_bytes, capacity, offset; /* offset: in a cell */
} dlpi_field_rec;

/* Consumers beside the one that calls next: see >>impl-share. */
typedef struct dlpi_share {
    dlpi_sleepers sleepers; /* B1 a bit for each subscriber */
    uint64_t handed_back;   /* H7 counts subscribers that left batches which others may take now */
    uint32_t mode, max_subscribers, n_slots, serve_only;
    uint64_t takers_at, admits_at, subscribers_at, subscriber_bytes; /* bytes from this record */
    uint32_t one_each; /* 1: a batch is for one subscriber; 0: for each of them */
    uint32_t over;     /* H1 1: all batches are fed and consumed */
    uint32_t after; /* subscribers take batches that have left the stage of this place in work[] */
    uint8_t pad[DLPI_LINE - 84];
} dlpi_share;

/* A dlp_skip; its message has a place of its own. */
typedef struct dlpi_skip {
    uint64_t epoch, position, index, new_index;
    int32_t code, errnum, stage, worker;
} dlpi_skip;

#define DLPI_SKIP_WORDS (sizeof((dlp_skip *)0)->message / 8)

typedef struct dlpi_ctl {
    uint64_t tail;         /* T1 batches published; scheduler */
    uint32_t end_of_input; /* T1 0: batches follow. Else 1, and above it the scheduler's seek_no */
    int32_t schedule_code; /* T1 DLP_ERR_* that ended the feeding */
    uint8_t pad0[DLPI_LINE - 16];
    uint64_t base;      /* V1 oldest batch not delivered; consumer */
    uint64_t delivered; /* V1 batches delivered; consumer */
    uint64_t held;      /* batches that the user holds */
    /* The consumer's statistics: items and bytes delivered, ns that it waited and worked, ns until
       the first batch, present epoch, time of the start. */
    uint64_t items, bytes, wait_ns, step_ns, first_ns, epoch, started_ns;
    uint64_t borders, border_ns, set_epoch_ns; /* set_epoch: epochs; ns of waits; of calls */
    uint64_t pad1[3];
    dlpi_sleepers consumer;  /* B1 its mask: batch + 1 that it sleeps for, UINT64_MAX any */
    dlpi_sleepers scheduler; /* B1 its thread */
    uint32_t consumer_cpu;   /* W2 core + 1 */
    uint8_t pad2[DLPI_LINE - 36];
    uint64_t cancel; /* N1 batches of generations below this one are cancelled; consumer */
    uint32_t stop;
    uint32_t error_claim; /* E1 1 + number of the worker that writes error; 0: none */
    uint32_t error_ready; /* E1 1: error is complete */
    uint32_t pad3;
    dlp_error error;
    uint64_t skips, failures;
    dlpi_skip skip_ring[DLPI_SKIP_RING];
    uint32_t processes;      /* J1 1: worker processes are there, 2: they could not be started */
    uint32_t closing;        /* J2 1: the consumer waits for their end */
    uint32_t processes_word; /* J1 futex */
    uint32_t pad4;
    uint64_t restarts; /* worker processes that were started again; supervisor */
    uint64_t views;    /* views delivered, if a lender hands out views; consumer */
    uint64_t tunes;    /* notes written into tune[] so far; consumer */
    dlp_tune_note tune[DLP_TUNE_NOTES];
    uint64_t source_wait_ns; /* ns that the consumer waited because the source waited; consumer */
    uint64_t source_moves;   /* Q2 counts inputs that were loaded or failed; the source's workers */
    uint32_t source_waits;   /* 1: the source waits, and no batch is under way; scheduler */
    uint32_t first_ready;    /* K3 1: first_skip is complete */
    dlp_error first_skip;
    uint64_t skip_words[DLPI_SKIP_RING][DLPI_SKIP_WORDS]; /* K1 messages of skip_ring */
    uint32_t error_more; /* E1 1: there was another error, which is not kept */
    uint32_t keep_awake; /* W1 workers of a stage that wait awake, 0: see >>impl-awake; consumer */
} dlpi_ctl;

typedef struct dlpi_group { /* 32 workers of a stage */
    dlpi_sleepers at;       /* B1 */
    uint8_t pad[DLPI_LINE - sizeof(dlpi_sleepers)];
} dlpi_group;

typedef struct dlpi_waiters { /* one for each stage */
    uint64_t rescan;          /* R1 counts units freed again */
    uint64_t cores;           /* W2 bits of the cores where workers began to wait of late */
    uint32_t active;          /* A1 workers below this number may claim; consumer */
    uint8_t pad[DLPI_LINE - 20];
    dlpi_group group[(DLP_MAX_WORKERS + 31) / 32];
} dlpi_waiters;

/* A worker's own block: it alone writes, anybody reads. */
typedef struct dlpi_worker_block {
    uint64_t items, bytes, busy_ns, starved_ns, blocked_ns, cpu_ns;
    uint64_t current, current_position, current_epoch, since_ns, units;
    uint64_t retried, replaced, left_out; /* of rows, batches, inputs; summed by dlp_pipe_stats */
    uint64_t item_ns;                     /* ns of an item, moving average */
    uint64_t trace_head;
    int32_t state, tid;
    uint64_t max_ns, max_index; /* time and index of the slowest item */
    uint64_t running; /* X2 slot (32), row + 1 (32; all ones: the batch) in a callback; 0: none */
    char message[256];
    int32_t message_errno, process; /* 1: in a process of its own */
    uint32_t hist[DLPI_HIST];
    int32_t pid;
    int32_t restarts, died_by; /* starts after a death; signal of the last death; supervisor */
    uint32_t op; /* X4 1 + row of the table whose callback runs; 0: the stage's own, or not told */
    uint64_t kept_hits, kept_misses, kept_bytes; /* kept_bytes: of cells that it filled */
    uint64_t kept_cell;    /* Z2 number + 1 of the cell that it writes, 0: none */
    uint64_t in_flight_ns; /* sum of the ns that each item was under way */
    uint64_t core_wait_ns; /* ns that its thread was ready and waited for a core */
    /* Its samples of what clearing costs (>>impl-clears): ns of all work; of clears; of clears that
       writes_all_bytes = 1 would leave out. Then the named field, its room, the weight of its vote,
       and how many bytes of it were cleared and used in so many rows. */
    uint64_t clear_of_ns, clear_ns, clear_spared_ns;
    uint64_t clear_name[4], clear_room, clear_weight, clear_bytes, clear_used, clear_rows;
} dlpi_worker_block;

/* A batch slot. The first blocks are the scheduler's and the consumer's; workers write there only
   when a row fails. The last begins with what the scheduler tells the workers. A batch of one row
   has the words of the first stage (dlpi_stage_words) there, too, and travels in one cache line,
   once to its worker and once back. Of a longer one they have a line of their own: the consumer
   that waits for it reads them again and again while workers still read the header. */
typedef struct dlpi_bslot {
    uint64_t sequence, in_epoch;
    uint64_t begins, after; /* global position where the batch begins and ends */
    uint32_t flags;
    uint32_t used;   /* C1 1 from publication to release */
    uint32_t dirty;  /* some row is padding, left out, tried again or replaced */
    uint32_t failed; /* F1 1: error is complete; 2 + worker: that worker writes it; 0: no error */
    uint32_t dbuf;   /* device buffer that has the batch; DLPI_NO_SLOT: none */
    uint32_t frees;  /* O1 counts units freed again */
    dlp_error error;
    uint32_t batch_fate; /* fate of the batch in its batch stages, in the form of a row's fate */
    uint32_t killed_by;  /* signal that ended the last worker that died over this slot */
    uint8_t pad1[5 * DLPI_LINE - 64 - sizeof(dlp_error)];
    dlpi_claim_word header; /* P1 generation, count, padded, run shift */
    uint64_t epoch, position;
    uint32_t count;
    uint16_t cell;    /* number of the batch's cell, see DLPI_CELLS_* */
    uint16_t seek_no; /* N1 seeks before the batch was scheduled, modulo 2^16 */
} dlpi_bslot;

#define DLPI_HEADER_REST 32u /* bytes of the header's cache line of 64 that come after it */

/* The words of a stage. Behind them, where there is more than one done word, stands a hint (scan):
   done words below are full; generation (32), redo count (16) and word (16). */
typedef struct dlpi_stage_words {
    dlpi_gather_word ready; /* Y1 */
    dlpi_claim_word next;   /* cursor: units below it are claimed; a hint */
    uint64_t words[1];      /* done[n_words], owner[n_units], scan */
} dlpi_stage_words;

/* What a collate made of a field, per slot. */
typedef struct dlpi_fmeta {
    uint64_t bytes;
    int32_t ndim, has_offsets;
    int64_t shape[DLP_MAX_DIMS];
} dlpi_fmeta;

_Static_assert(sizeof(dlpi_record) == 32, "region layout");
_Static_assert(sizeof(dlpi_counter_rec) == 80, "region layout");
_Static_assert(sizeof(dlpi_region) == 64 + 32 * DLPI_RECORDS, "region layout");
_Static_assert(sizeof(dlpi_pipe_rec) == 256, "region layout");
_Static_assert(sizeof(dlpi_stage_rec) == 88, "region layout");
_Static_assert(sizeof(dlp_tune_note) == 24, "region layout");
_Static_assert(sizeof(dlpi_field_rec) == 144, "region layout");
_Static_assert(sizeof(dlpi_share) == DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_worker_block, kept_hits) == offsetof(dlpi_worker_block, op) + 4,
               "no padding");
_Static_assert(sizeof(dlpi_worker_block) == offsetof(dlpi_worker_block, clear_rows) + 8,
               "no hidden padding");
_Static_assert(sizeof(dlpi_group) == DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, base) == DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, consumer) == 2 * DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_ctl, cancel) == 3 * DLPI_LINE, "region layout");
_Static_assert(offsetof(dlpi_bslot, header) == 5 * DLPI_LINE, "region layout");
_Static_assert(sizeof(dlpi_bslot) == 5 * DLPI_LINE + 64 - DLPI_HEADER_REST, "region layout");
_Static_assert(sizeof(dlp_trace_event) == 32, "region layout");
