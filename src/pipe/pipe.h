#pragma once
/* tests: system/core/pipe_basic, system/core/pipe_wrap */
#include "api/graph.h"
#include "api/queues.h"
#include "base/cpus.h"
#include "order/identity.h"
#include "order/order.h"
#include "pipe/ops.h"
#include "pipe/region.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pipe       THE PIPE AS THIS PROCESS SEES IT */

typedef struct dlpi_field { /* a field laid out in a cell */
    union {
        dlp_field f;
        const char *name; /* the name in f, which the stage owns */
    };
    uint64_t elem_bytes, row_bytes;
    uint64_t capacity; /* bytes in a cell */
    uint64_t offset;   /* in a cell */
} dlpi_field;

_Static_assert(offsetof(dlp_field, name) == 0, "the first member");

typedef struct dlpi_fields {
    uint32_t n;
    uint16_t made; /* of a batch: fields before those that maps of batches add */
    bool any_ragged;
    uint64_t cell_bytes;
    dlpi_field at[DLP_MAX_FIELDS];
} dlpi_fields;

/* What a stage of rows works on: of these fields of the items, and of the items with these numbers.
   A row of another item passes it. */
typedef struct dlpi_scope {
    uint32_t field, n_fields; /* n_fields of an item's fields, from number `field` on */
    uint32_t own;   /* first field that the stage itself adds; the fields' end: it adds none */
    uint8_t zeroes; /* 1: the fields that it adds begin as zeros; 2: only those from `own` on, which
                       rows in its attempt add */
    uint8_t ragged; /* 1: some field of the pipe's items is ragged */
    uint8_t n_cells;         /* entries of w->cell */
    uint8_t shift;           /* a field that begins as zeros has the entry of its number + shift */
    const dlpi_field *cells; /* row_bytes of each: bytes from one row to the next; p->items.at, or
                                of the holder */
    uint64_t first, n_items; /* n_items items, from number `first` on: item 0 of its dataset */
} dlpi_scope;

typedef struct dlpi_stage {
    const dlpi_stage_ops *ops;
    void *self; /* [ops->self_bytes] the record of its kind; NULL: the kind has none */
    int id;     /* its place in the chain, from 0 */
    char name[32];
    dlp_workers_desc w;
    int32_t *affinity;
    /* its callbacks, and what they work on */
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    dlp_collate_fn collate;
    void *user;
    dlp_dataset *dataset; /* in self; NULL: the stage fetches nothing */
    int32_t in_flight;    /* items that a worker has at once; 0: one after the other */
    int32_t timed; /* shortest deadline_ms that a row in its attempts gives; 0: none gives one */
    dlp_field *fields; /* [n_fields] copies of the fields of its desc, with their names */
    uint32_t n_fields;
    /* laid out at start */
    int work;                    /* place among the stages with workers, -1: none */
    int first_worker, n_workers; /* n_workers counts the one that the consumer runs */
    int begin, tuned;            /* workers at the start; 1: the tuner may change their number */
    int at_first;                /* workers that may claim at the start, of n_workers */
    uint64_t stage_words_offset; /* bytes from the start of a slot's record to the stage's words */
    dlpi_scope scope;
    bool lets_pass;        /* units without an item of its own may pass it without a claim */
    bool retries;          /* a row that runs in its attempts has retries of its own */
    int16_t inline_worker; /* number in the pipe of its worker that the consumer runs; -1: none */
    int held; /* DLPI_HELD_*: what it does with fields that end before the batch; 0: nothing */
} dlpi_stage;

typedef struct dlpi_parked { /* a row between two attempts: see dlpi_park */
    /* Time of the next attempt. DLPI_GOES_BACK: the row goes back to the first stage, once no other
       row of its unit is parked here. */
    uint64_t due_ns;
    uint64_t gen; /* number of its batch */
    uint32_t slot, row;
} dlpi_parked;

typedef struct dlpi_policy { /* what becomes of failures: fields of dlp_workers_desc */
    int64_t max_skips;
    int32_t on_error, retries, retry_backoff_ms, deadline_ms;
} dlpi_policy;

typedef struct dlpi_table_row { /* what a row of the table says of its failures */
    char name[32];
    dlpi_policy policy;
    bool own; /* the policy holds; else that of the stage in whose attempts or cells the row runs.
                 Its deadline_ms always holds, if it is not 0 */
} dlpi_table_row;

/* Where dlp_fail writes. */
struct dlp_call {
    char *message; /* [256] */
    int32_t *errnum;
    struct dlpi_worker *w;
    uint32_t used_random; /* 1: the callback called dlp_item_random */
    uint32_t said; /* 1 + row of the item that the message is about; 0: there is no message */
    const dlpi_table_row *row; /* the row of the table that failed; NULL: the stage's own */
};

/* What most workers never write. It lies behind the records of all: else its pages would be theirs,
   as threads and, each for itself, as processes. */
typedef struct dlpi_clear_times { /* ns of a sample of what clearing costs (>>impl-clears) */
    uint64_t of_ns, ns;           /* of all its work; of clears in it */
    uint64_t spared_ns;           /* of clears that writes_all_bytes = 1 would leave out */
} dlpi_clear_times;

typedef struct dlpi_clears {
    dlpi_clear_times now, held; /* the present sample; the one with the most ns so far */
    uint64_t clock_ns;          /* what a reading of the clock takes */
    uint32_t readings;          /* of the clock, for clears of the present sample */
    uint32_t taken;             /* samples so far, at most DLPI_CLEARS_EVERY */
    const dlpi_field *field;    /* the field that the block names; NULL: none */
} dlpi_clears;

typedef struct dlpi_worker_rare {
    dlpi_clears clears;
    dlpi_parked parked[DLPI_PARK];
    dlp_batch batch;
    dlp_tensor tensors[DLP_MAX_FIELDS];
    struct dlp_collate_in in[DLP_MAX_FIELDS];
    struct dlp_collate_out out[DLP_MAX_FIELDS];
} dlpi_worker_rare;

/* What a source of a stage with several sources has in a worker: a worker_state, and requests. The
   seats of a worker lie side by side. */
typedef struct dlpi_seat {
    void *state; /* what worker_init left */
    void *self;  /* its dlpi_in_flight */
    const dlp_workers_desc
        *calls;                /* worker_init, worker_exit; NULL: it has the state of seat `of` */
    const dlpi_table_row *row; /* the row of the table, for errors; NULL: the stage's own name */
    uint32_t number, n;        /* it is number `number` of n seats */
    uint32_t of;               /* a seat before it */
    uint32_t first, end;       /* cells of inputs that are worked on in this seat */
    uint32_t at;               /* the cell after the one that was taken last */
    uint32_t turn;             /* in the first seat: the seat in which the worker waited last */
} dlpi_seat;

typedef struct dlpi_worker {
    dlp_pipe *p;
    dlpi_stage *st;
    int id, global;
    dlpi_worker_block *block;
    dlp_trace_event *trace;
    dlpi_waiters *waiters;
    uint64_t generation;   /* generation of its present batch (>>impl-cancel) */
    const uint64_t *index; /* dataset indices of that batch's rows */
    uint8_t asks;          /* DLPI_ASK_* */
    bool singles, alone;   /* see dlpi_worker_singles, dlpi_worker_alone */
    bool chained;          /* its stage has a program (dlpi_program) */
    uint32_t n_at_once;
    uint64_t low;          /* no batch below this number has a unit to claim */
    uint64_t tail_seen;    /* ctl.tail when it was read last */
    uint64_t rescan_seen;  /* waiters->rescan when it was read last */
    uint32_t input_at;     /* the cell of inputs after the one that it took last */
    uint32_t input_untold; /* inputs that it loaded, and that the scheduler was not told of yet */
    uint64_t claim_end;    /* it claims no batch from this number on; 0: there is no such limit */
    void *self;            /* record of its kind for it, or NULL */
    void *source;          /* record of the source for it, or NULL */
    uint64_t *at_once;     /* X2 [n_at_once] in the region: the rows in callbacks, in the form of
                              block->running; NULL: block->running has the only one */
    dlpi_seat *seat;       /* the seat in which it works; NULL: its stage has one, the worker */
    dlp_call note;
    uint32_t until_clock, clock_every;
    uint32_t units_untimed, items_untimed;
    uint64_t last_ns;        /* last clock reading; 0: none since it waited */
    uint64_t wait_ns;        /* time at which its present wait began; 0: it does not wait */
    bool shows;              /* it tells in block->op whose callback runs */
    bool watched;            /* next watches how long its callbacks take */
    bool blocked;            /* it waits for free cells; false: for input */
    bool clears;             /* its clears are timed: this unit is a sample (>>impl-clears) */
    uint32_t clears_due;     /* readings of the clock until the next sample */
    const uint32_t *untimed; /* *untimed not 0: the consumer runs it, and this call is not timed */
    uint64_t late_ns;        /* since_ns of a callback that one look of next found too late */
    uint32_t waits;          /* counts its waits while workers wait awake */
    uint32_t ahead_own;      /* 1 + place in `index` of the item that asks; 0: it is the row */
    dlpi_cpu cpu;            /* CPU time of its own thread */
    dlp_trace_event event;
    int n_parked, parked_most;
    dlpi_parked *parked; /* [parked_most] */
    void *state;
    dlp_item item;
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
    const char *bad_field;         /* name of the field whose length is wrong, or NULL */
    int returned;                  /* value that the failed callback returned */
    uint32_t passed;               /* rows of this run that have no item of its stage */
    uint32_t ahead_row, ahead_end; /* rows of its unit that dlp_item_ahead tells next; 0: none */
    /* Callbacks see item and data, and may write over them. The library reads `index` and these: */
    dlp_item given;                /* what all items of the batch have in common */
    uint64_t position;             /* position of the batch's first row */
    uint8_t *cell[DLP_MAX_FIELDS]; /* address of each field of the batch's first row */
    uint64_t cursor;               /* in a stage that works in order: the next batch */
    dlpi_thread thread;
    int started, joined; /* joined -1: inline, has begun */
    int process;         /* 1: runs in a process of its own */
    uint32_t next_slot;  /* slot of the batch after the one found last, if slots are used in turn */
    void *extra;         /* [source->row_bytes] what the source shows of the row in its callback */
    uint8_t *held; /* memory of the run's fields that end before the batch; set by the holder */
    dlpi_worker_rare *rare;
    uint8_t pad[DLPI_LINE]; /* records of two workers share no cache line */
} dlpi_worker;

/* Return the first seat of a worker that has seats. */
static inline dlpi_seat *dlpi_seats(const dlpi_worker *w) { return w->seat - w->seat->number; }

typedef struct dlpi_cell_use { /* the batch that has a set of item cells, or had it last */
    uint64_t end;              /* number of the batch after it; 0: no batch was given these cells */
    uint32_t slot;
} dlpi_cell_use;

typedef struct dlpi_lost { /* what a dead worker had claimed and not done */
    uint64_t b;            /* a unit of which no callback ran: its batch, or a cell's ticket */
    uint32_t slot, unit;
    uint32_t missing; /* rows of this unit that were not done; 0: there is no such unit */
    bool ran;         /* a callback ran, so the worker's death is blamed on its item */
} dlpi_lost;

typedef struct dlpi_death { /* the death of a worker process */
    uint32_t signal;        /* signal that ended it; 0: it called exit */
    bool late;              /* it was killed because an item was past its deadline */
    dlpi_lost *lost;        /* written by dlpi_recover; or NULL */
} dlpi_death;

/* The source's own part of a state: of bytes that it alone understands. */
typedef struct dlpi_source_state {
    uint32_t bytes; /* bytes of `at` that are used */
    uint32_t note;  /* bits about the batch, for this process; not saved */
    uint8_t at[DLP_SAMPLER_STATE_BYTES];
} dlpi_source_state;

typedef struct dlpi_state {
    uint64_t magic;
    uint64_t check; /* hash of all that follows */
    uint64_t n_items, seed, params;
    uint32_t global_batch;
    uint16_t order, last;
    uint64_t epoch, batch, position; /* of the first batch that was not consumed */
    uint32_t gaps_used, sampler_bytes;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t gaps[DLPI_GAPS_MAX / 8]; /* bit k: batch + k is consumed too */
    /* What follows is saved in bits of the words above that their numbers do not reach. */
    uint32_t end_due; /* 1: the epoch before has ended, and DLP_EPOCH_END was not returned yet */
    uint32_t
        identity[DLPI_HASHES]; /* what the data are: DLPI_NAMES .. DLPI_CONTENT; 0: not known */
} dlpi_state;

#define DLPI_STATE_BYTES offsetof(dlpi_state, end_due) /* of a saved state */
_Static_assert(DLPI_STATE_BYTES <= sizeof(dlp_state), "a state must fit");

typedef struct dlpi_scheduler { /* private to the thread that schedules: its own, or the consumer */
    uint64_t epoch, in_epoch, position; /* the next batch: its epoch, number and first position */
    uint64_t published;                 /* batches published so far, over all epochs */
    uint64_t alike;       /* batches from the next one on that source->alike has promised */
    uint32_t slot_turn;   /* the slot that is looked at first for the next batch */
    uint32_t cell_turn;   /* the set of item cells that is next, likewise */
    dlpi_cell_use *cells; /* [prefetch] the batch of each set of item cells */
    uint16_t ended;       /* not 0: no further batch follows */
    uint16_t run_shift;   /* new batches are cut into runs of 1 << run_shift rows */
    uint32_t shifted_at;  /* when run_shift was computed, in units of 2^20 ns, modulo 2^32 */
    uint64_t cost_ns;     /* ns of an item in the slowest stage of rows; 0: not known yet */
    /* Resume of an unordered pipe: bitmap of consumed batches after the first gap. */
    uint64_t skip_base; /* batch of the first bit; UINT64_MAX: no bit is set */
    uint8_t skip_bits[DLPI_GAPS_MAX / 8];
    uint32_t seek_no, reach; /* seeks followed, modulo 2^16; batches under way at once, at most */
    uint64_t epoch_asked;    /* I2 generation of the epoch that it waits to begin */
} dlpi_scheduler;

typedef struct dlpi_awake {     /* what the consumer measures: see >>impl-awake */
    uint32_t calls;             /* timed calls since the last estimate */
    uint32_t fits;              /* this many workers of each stage have a core, and the consumer */
    uint32_t put_off;           /* wake-ups left out since the consumer slept last */
    uint64_t cores;             /* cores where workers began to wait before the last estimate */
    uint64_t batch_ns, step_ns; /* averages: workers' busy time of a batch; the consumer's steps */
    uint64_t busy_ns, steps_ns, delivered; /* sums at the last estimate */
} dlpi_awake;

typedef struct dlpi_tuned {            /* a stage at the tuner's last look */
    uint64_t busy_ns, done_ns, cpu_ns; /* busy time with the present calls, without; CPU time */
    uint64_t core_wait_ns;             /* time that workers were ready and waited for a core */
    double share;                      /* busy part of the time of its working workers, 0..1 */
    double cpu_share;                  /* part of the busy time on a core, or ready for one, 0..1 */
    int active, set;    /* workers that may claim; 1: dlp_pipe_set_workers set their number */
    int cores_said;     /* 1: a note says that cores, not workers, are too few */
    uint32_t hot, cold; /* looks in a row that asked for more workers; for fewer */
    uint32_t patience;  /* looks in a row after which a worker is retired */
    uint64_t changed;   /* number of the look with the last change */
} dlpi_tuned;

typedef struct dlpi_tuner {
    uint64_t every_ns;               /* ns between two looks, at least; 0: nothing is tuned */
    uint64_t due_ns, last_ns, looks; /* time of the next look, of the last; number of looks */
    uint64_t waited_ns;              /* time that the consumer had waited, at the last look */
    dlpi_tuned at[DLP_MAX_STAGES];
} dlpi_tuner;

/* Classes of the plan, in the order of their lines, but for INPUTS, which come after the workers'
   records. An area of class WORDS is counted as one. */
enum {
    DLPI_PLAN_SLOTS = 1,
    DLPI_PLAN_WORDS,
    DLPI_PLAN_ITEMS,
    DLPI_PLAN_OWN,
    DLPI_PLAN_SINK,
    DLPI_PLAN_RECORDS,
    DLPI_PLAN_INPUTS
};

typedef struct dlpi_area {
    const char *words;              /* its words in the plan; NULL: it has no line there */
    int plan;                       /* DLPI_PLAN_*: the line of the plan that counts it; 0: none */
    uint64_t offset, stride, count; /* in the region; bytes of an element; elements */
} dlpi_area;

typedef struct dlpi_counter { /* a counter of the user: dlp_pipe_desc.counters */
    char name[32], unit[12];
    double most;
    uint64_t n;      /* W3 samples so far; consumer */
    uint64_t *words; /* [2 * room] two words of each sample: ns since start; bits of the value */
} dlpi_counter;

typedef struct dlpi_datasets {        /* the datasets of fetch and of all joins together */
    dlp_field fields[DLP_MAX_FIELDS]; /* fields of an item; the stages own their names */
    uint32_t n_fields;
    uint64_t n_added;         /* items that later stages add behind those of fetch */
    const dlp_mix *mix;       /* that of the list; NULL: it has none */
    dlpi_source_ops *origins; /* the source's table, if rows are traced (inputs/origin.h) */
    dlp_identity identity;    /* what the data of all sources are, in the order of the table */
} dlpi_datasets;

/* What a pipe does that has given batches away as tensors. */
typedef struct dlpi_exports_ops {
    void (*sweep)(struct dlp_pipe *p);              /* Give back what has no more tensors */
    int (*release)(struct dlp_pipe *p, uint32_t s); /* dlp_pipe_release of batch s */
    int (*close)(struct dlp_pipe *p);               /* dlp_pipe_close */
} dlpi_exports_ops;

typedef struct dlpi_exports {    /* batches given away as tensors: device/dlpack.h */
    const dlpi_exports_ops *ops; /* NULL: no batch was given away yet */
    struct dlpi_exported *slots; /* [n_out]; NULL: no batch was given away yet */
    uint32_t n;                  /* batches that are given away now */
    int closed;                  /* 1: the pipe is closed: the last tensor frees it */
} dlpi_exports;

typedef struct dlpi_pace {     /* how the consumer spends its time: deliver/pace.h */
    uint64_t last_return_ns;   /* time at which the last call of next returned */
    uint64_t wait_from;        /* time at which its present wait began; 0: it does not wait */
    uint64_t set_ns, began_ns; /* time at which set_epoch began, and returned; 0: already counted */
    uint64_t border_ns; /* time at which its wait for an epoch began; 0: it does not wait for one */
    uint64_t inline_ns; /* all inline: ns of the last call that was timed */
    uint32_t calls_untimed, call_clock_every; /* calls since the last timed one, of so many */
    uint32_t burst;       /* credits that are gathered before batches are fed: dlpi_consumer_step */
    uint32_t calls_timed; /* number of calls that the times of this call stand for */
    uint64_t untimed_ns;  /* all inline: ns that passed in the calls not timed, at most */
    uint32_t clock_off;   /* all inline: 1: this call is not timed */
    bool source_waited;   /* the present wait was for the source */
    uint8_t inside;       /* M2 1: a call of the consumer is under way, and may run callbacks */
    uint8_t refused;      /* 1: a thread may have the record of a call that was refused */
} dlpi_pace;

typedef struct dlpi_consumed { /* unordered: batches of the epoch that are delivered */
    uint64_t base;             /* all batches below base; of the others those with 1 in at[] */
    uint8_t at[DLPI_GAPS_MAX];
} dlpi_consumed;

/* A place between two batches. */
typedef struct dlpi_spot {
    uint64_t epoch, batch, position; /* the next batch, and the global position of its first row */
} dlpi_spot;

typedef struct dlpi_after { /* the state after all delivered batches */
    uint64_t high;          /* 1 + the highest number of a delivered batch of the epoch */
    dlpi_spot spot;
    dlpi_source_state source;
} dlpi_after;

/* Bits of epoch_end_due: DLP_EPOCH_END, or the error of an epoch without a valid row. */
enum { DLPI_DUE_END = 1, DLPI_DUE_NONE = 2 };

typedef struct dlpi_warnings { /* written by the consumer; explain reads them in any thread */
    uint64_t n;                /* V1: warnings whose text is complete */
    char text[8][160];
    uint64_t skips_seen; /* entries of the list of skips that were read so far */
    uint32_t told_of;    /* a bit for each stage that a warning about DLP_SKIP has named */
    bool first_seen;     /* the first batch was checked */
    bool valid;          /* the present epoch has, or may have had, a valid row (inputs/valid.h) */
    uint64_t left_out;   /* items that were left out of its batches without a valid row */
    bool data_said;      /* a warning told that a state cannot be compared with the data */
    bool stall_said;     /* a warning told that no batch comes */
    uint64_t stall_at, stall_ns; /* batches delivered when next last looked, and since when */
    bool rooms_seen;             /* the lengths of ragged rows were compared with their rooms */
    uint8_t rooms; /* number, from 1, of the first warning about a room; 0: there is none */
    uint64_t rows; /* rows whose lengths are in `lengths` so far */
    uint64_t lengths[DLP_MAX_FIELDS]; /* sum of the lengths of each ragged field */
} dlpi_warnings;

struct dlp_pipe {
    dlp_pipe_desc d;
    dlpi_counter counters[DLP_MAX_COUNTERS];
    char name[32];
    dlp_state resume;
    int prepared;               /* 1: the region is mapped, and worker processes are started */
    int started, epoch_end_due; /* epoch_end_due: what next returns, DLPI_DUE_* bits */
    int closing;                /* 1: close was called; 2: no thread of the pipe is left */
    uint32_t stop_asked;        /* S2 1: stop was called, maybe before the start */
    uint32_t can_wake;          /* S2 1: ctl and waiters are mapped */
    int in_worker; /* 1: this is one of its worker processes: a callback may call stop */
    dlp_error err;
    dlp_error call_err; /* error of a call that is none of the pipe: next returned DLP_ERR_HELD, or
                              dlp_batch_data NULL */
    dlpi_warnings warnings;
    int n_stages;
    dlpi_stage stages[DLP_MAX_STAGES];
    /* The chain, once it is checked. */
    dlpi_stage *sampler, *fetch, *batcher;
    /* Tables of the roles, never NULL (pipe/roles.h), and the stages that have these roles, NULL if
       no stage has the role. */
    const dlpi_keeper_ops *keeper;
    const dlpi_holder_ops *holder;
    const dlpi_sink_ops *sink;
    const dlpi_lender_ops *lender;
    bool bare;    /* true: scheduling, delivery and release call no role's table */
    bool lends;   /* true: a stage lends; false: whole batches go out without a call of its table */
    bool barrier; /* true: an epoch begins after set_epoch; false: epochs overlap */
    dlpi_stage *keeper_stage, *holder_stage, *sink_stage, *lender_stage;
    int kept_by;                      /* place of the last stage whose work the keeper keeps */
    const dlpi_stay_ops *stay;        /* the lender's table, if the sink's results stay; or NULL */
    const dlpi_source_ops *source;    /* table of the source, which decides the rows of batches */
    dlpi_stage *source_stage;         /* the stage that has this role */
    const dlpi_beside_ops *beside;    /* table for processes and other programs; never NULL */
    const dlpi_sharing_ops *sharing;  /* table for others that take batches; never NULL */
    dlpi_stage *rows_end;             /* after this stage no row of a batch is asked for again */
    dlpi_stage *work[DLP_MAX_STAGES]; /* the stages with workers, in this order: */
    int n_item_work;                  /* [0, n_item_work) stages of rows */
    int n_work;                       /* [n_item_work, n_work) stages of batches */
    int n_staffed;                    /* [n_work, n_staffed) stages with cells of their own */
    dlpi_fields items, batches;       /* the fields laid out in an item cell, and in a batch cell */
    dlpi_datasets datasets;
    const char *node;        /* name of the table's row that is being added; else NULL */
    dlpi_table_row *rows;    /* [DLP_MAX_NODES] of the table */
    uint32_t run_shift_most; /* a run has 1 << this rows at most; 0: rows are claimed one by one */
    int has_item_cells;      /* 1: items have cells of their own; 0: they lie in the batch cell */
    int item_area;           /* DLPI_REC_CELLS or DLPI_REC_ITEM_CELLS: where items are written */
    int cells_from;          /* place in work[] of the stage that writes whole batch cells */
    dlpi_stage *cell_end;    /* after this stage the batch's cell may be given to another batch */
    int cells;               /* DLPI_CELLS_*: where a slot's batch lies */
    uint32_t n_cells, n_out; /* batch cells; batches that can be lent at once */
    uint32_t max_kills;      /* workers that an item may kill: dlp_shm_desc.max_kills */
    uint64_t samples, batches_per_epoch;
    DLPI_SHAPE_MEMBERS;
    uint32_t rank, world;
    int ranks_given;       /* 1: the desc gives world_size */
    uint64_t global_batch; /* rows of a batch on all ranks together */
    uint64_t params_hash; /* for states: hash of the sampler's arrays and numbers, and of the ids of
                              the data */
    int32_t last;
    int cpus;
    dlpi_wait_rule wait;
    /* The layout. */
    dlpi_area areas[DLPI_AREAS]; /* by number; dlpi_layout has the order in which they lie */
    const dlpi_area *inputs;     /* areas of the source's cells of inputs; NULL: it has none */
    uint64_t region_bytes;
    dlpi_slot_layout slot;
    uint64_t off_tries, tries_bytes;   /* of a slot's counts of tries; bytes 0: no stage retries */
    uint64_t plan_private, plan_bytes; /* bytes: of private records; of them, region and buffers */
    int n_workers, n_threads, n_procs;
    int huge_pages;              /* DLP_HUGE_* */
    int needs_file;              /* 1: the region must be a file, because other processes map it */
    int others;                  /* 1: other processes work on the region */
    uint32_t used_at_first;      /* slot.used at publication. 0: the consumer gets no batch */
    uint64_t scheduler_sleep_ns; /* longest sleep of the scheduler's thread, ns; 0: there is none */
    void *shm;                   /* record of dlpipe_shm.h; NULL: none */
    dlpi_share *share;           /* in the region, for subscribers; NULL: none */
    /* The live pipe. */
    uint8_t *alive; /* a page that is zero in a process forked from this one */
    uint8_t *region;
    int memfd;         /* the region's file; -1: it has none */
    int name_fd;       /* dlpipe_shm.h: record and lock of the pipe's name; -1: none */
    char shm_name[64]; /* "": the pipe has no name */
    dlpi_ctl *ctl;
    dlpi_waiters *waiters;
    uint32_t *order_ring;
    dlpi_worker *workers;
    dlpi_worker *consumer;         /* a record for the consumer, with its trace and clock only */
    dlp_batch *out;                /* [n_out] the batches that the user gets */
    dlp_tensor *out_fields;        /* [n_out][fields] */
    uint8_t *ones;                 /* [batch_rows] dlp_batch.valid of a batch with all rows */
    uint64_t *counted;             /* memory of the rings of counters */
    dlpi_counter_rec *counter_now; /* [n_counters] in the region */
    uint8_t *lent;         /* [n_out] 1: lent; 2: lent, and the last of its epoch; 0: free */
    uint8_t *taken;        /* [ring] in the region; unordered: 1: delivered; consumer */
    uint8_t *own_rows;     /* [workers of fetch][rows at once] of source->row_bytes; NULL: none */
    uint64_t budget_bytes; /* bytes that the pipe has taken from the desc's budget */
    dlpi_exports exports;
    uint64_t deadline_ns; /* shortest deadline of the stages; 0: none has one */
    uint64_t stood_ns;    /* time at which next went on after the process was stopped; or 0 */
    int open_end; /* 1: a row tells where the epoch ends; the number of items is not known */
    uint32_t place_seek_no; /* number of the last seek; under dlpi_place_lock */
    dlpi_state place;       /* state to go on from, after that seek; under dlpi_place_lock */
    /* Fields that the consumer writes with every batch lie apart from those that workers read. If
       the scheduler has a thread, the thread writes `schedule`. */
    uint8_t pad0[DLPI_LINE];
    uint64_t base;        /* oldest batch that is not delivered; the consumer's copy of ctl.base */
    uint64_t n_lent;      /* batches that the user holds */
    uint64_t looked_ns;   /* time of the last look after worker processes */
    uint64_t epoch_begun; /* I2 generation of the epoch that set_epoch was called for last */
    dlpi_pace pace;
    uint32_t seek_no;       /* seeks, modulo 2^16 */
    uint32_t seeks;         /* seeks since the last batch was delivered */
    uint64_t epoch_now;     /* epoch of the batch that was delivered last */
    int epoch_open;         /* 1: a batch of epoch_now was delivered, and its last was not */
    uint64_t last_sequence; /* unordered: last batch of the epoch; UINT64_MAX: not known yet */
    dlpi_consumed consumed;
    dlpi_after after;
    dlpi_tuner tune;
    dlpi_awake awake;
    uint8_t pad1[DLPI_LINE];
    dlpi_scheduler schedule;
    uint8_t pad2[DLPI_LINE];
    uint32_t live_word; /* futex: counts threads that ended */
};

static inline const dlp_sampler_desc *dlpi_sampler_of(const dlp_pipe *p) {
    return p->sampler->self; /* each kind of sampler begins with it */
}

static inline uint64_t dlpi_area_bytes(const dlp_pipe *p, int id) {
    return dlpi_times(p->areas[id].stride, p->areas[id].count);
}
/* Add area `id` to the end of the region: count elements of stride bytes, aligned. */
DLPI_COLD static void dlpi_area_add(dlp_pipe *p, int id, uint64_t stride, uint64_t count,
                                    uint32_t align) {
    p->areas[id] = (dlpi_area){NULL, 0, dlpi_round_up(p->region_bytes, align), stride, count};
    p->region_bytes = dlpi_sum(p->areas[id].offset, dlpi_area_bytes(p, id));
}
/* Add an area that has a line in the plan, which is shown with these words, unless a lender has
   named the line before. */
DLPI_COLD static void dlpi_area_told(dlp_pipe *p, int id, int plan, const char *words,
                                     uint64_t stride, uint64_t count, uint32_t align) {
    const char *named = p->areas[id].words;
    dlpi_area_add(p, id, stride, count, align);
    p->areas[id].plan = plan;
    p->areas[id].words = named != NULL ? named : words;
}
/* Add memory outside the region to the plan: an area without an offset. */
static inline void dlpi_area_outside(dlp_pipe *p, int id, int plan, const char *words,
                                     uint64_t stride, uint64_t count) {
    p->areas[id] = (dlpi_area){words, plan, 0, stride, count};
}
/* Take bytes behind *at, which is the end of a slot, or of another record whose parts are laid out
   one after the other. *at moves to the new end. Returns where the bytes begin. */
static inline uint64_t dlpi_take_bytes(uint64_t *at, uint64_t bytes, uint64_t align) {
    uint64_t from = dlpi_round_up(*at, align);
    *at = dlpi_sum(from, bytes);
    return from;
}
static inline void *dlpi_area_at(const dlp_pipe *p, int id, uint64_t i) {
    return p->region + p->areas[id].offset + i * p->areas[id].stride;
}
/* The first element of an area, or NULL if it has none. */
static inline void *dlpi_area_if(const dlp_pipe *p, int id) {
    return p->areas[id].count > 0 ? dlpi_area_at(p, id, 0) : NULL;
}
static inline dlpi_bslot *dlpi_slot_at(const dlp_pipe *p, uint32_t s) {
    return dlpi_area_at(p, DLPI_REC_SLOTS, s);
}
static inline dlpi_stage_words *dlpi_stage_words_at(const dlp_pipe *p, uint32_t s,
                                                    const dlpi_stage *st) {
    return (dlpi_stage_words *)(void *)((uint8_t *)dlpi_slot_at(p, s) + st->stage_words_offset);
}
/* True if all that workers write of a batch lies in one cache line, that of the slot's header. */
static inline bool dlpi_slot_in_line(const dlp_pipe *p) {
    return p->work[0]->stage_words_offset == sizeof(dlpi_bslot);
}
static inline uint64_t *dlpi_done(dlpi_stage_words *t) { return t->words; }
static inline uint64_t *dlpi_owners(const dlp_pipe *p, dlpi_stage_words *t) {
    return t->words + p->words_max;
}
/* Return the record of source->slot_bytes that the source keeps with the batch in slot s. */
static inline void *dlpi_slot_source(const dlp_pipe *p, uint32_t s) {
    return (uint8_t *)dlpi_slot_at(p, s) + p->slot.source;
}
static inline uint64_t *dlpi_slot_index(const dlp_pipe *p, uint32_t s) {
    return (uint64_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.index);
}
static inline uint32_t *dlpi_slot_fate(const dlp_pipe *p, uint32_t s) {
    return (uint32_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.fate);
}
static inline uint64_t *dlpi_slot_lengths(const dlp_pipe *p, uint32_t s, uint32_t field,
                                          int items) {
    const uint64_t at = items ? p->slot.item_lengths : p->slot.lengths;
    return (uint64_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + at) + (size_t)field * p->batch_rows;
}
/* Return the numbers of a slot's rows, if they are traced: [batch_rows], and behind them 16-bit
   numbers of their lists. */
static inline uint32_t *dlpi_slot_numbers(const dlp_pipe *p, uint32_t s) {
    return (uint32_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.traced);
}
static inline uint64_t *dlpi_slot_offsets(const dlp_pipe *p, uint32_t s, uint32_t field) {
    uint8_t *base = (uint8_t *)dlpi_slot_at(p, s) + p->slot.offsets;
    return (uint64_t *)(void *)base + (size_t)field * ((size_t)p->batch_rows + 1);
}
static inline dlpi_fmeta *dlpi_slot_fmeta(const dlp_pipe *p, uint32_t s) {
    return (dlpi_fmeta *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->slot.fmeta);
}
static inline uint64_t dlpi_cells_bytes(const dlp_pipe *p) {
    return dlpi_sum(dlpi_area_bytes(p, DLPI_REC_CELLS), dlpi_area_bytes(p, DLPI_REC_ZEROS));
}
static inline uint32_t dlpi_slot_of(const dlp_pipe *p, uint64_t b) {
    return DLPI_LOAD_RLX(&p->order_ring[b & (p->ring - 1)]); /* T1 ordered by the tail after b */
}

/* The fate of a row: one word that says what became of the row so far. One store changes the word,
   so a worker that dies has made the change or has not. The row's index follows from this word.
   state (2) | tries of the present index in all stages (7) | which replacement (7) |
   workers killed (7) | by which stage (4) | 1: held its worker past the deadline (1) |
   1: its failure is raised (1) |
   1: left out, to be counted by max_skips of that stage when it is delivered (1) |
   1: an item of it was replaced because it failed, not because its callback left it out (1) */
enum { DLPI_ROW_OK = 0, DLPI_ROW_PAD = 1, DLPI_ROW_LEFT = 2, DLPI_ROW_END = 3 /* of the epoch */ };
#define DLPI_FATE_LATE (UINT32_C(1) << 27)
#define DLPI_FATE_RAISED (UINT32_C(1) << 28)
#define DLPI_FATE_COUNTS (UINT32_C(1) << 29)
#define DLPI_FATE_FAILED (UINT32_C(1) << 30)
static inline uint32_t dlpi_fate_state(uint32_t fate) { return fate & 3u; }
static inline uint32_t dlpi_fate_tries(uint32_t fate) { return fate >> 2 & 127u; }
static inline uint32_t dlpi_fate_repl(uint32_t fate) { return fate >> 9 & 127u; }
static inline uint32_t dlpi_fate_kills(uint32_t fate) { return fate >> 16 & 127u; }
static inline uint32_t dlpi_fate_stage(uint32_t fate) { return fate >> 23 & 15u; }
static inline uint32_t dlpi_fate(uint32_t state, uint32_t tries, uint32_t repl) {
    return state | tries << 2 | repl << 9;
}
/* Return the fate after one more failure of a row, a batch or an input that is tried again. */
static inline uint32_t dlpi_fate_tried(uint32_t fate) {
    uint32_t all = dlpi_fate_tries(fate);
    return dlpi_fate(dlpi_fate_state(fate), all < 127 ? all + 1 : all, dlpi_fate_repl(fate)) |
           (fate & DLPI_FATE_FAILED);
}
static inline uint32_t dlpi_fate_killed(uint32_t fate, uint32_t stage, bool late) {
    uint32_t kills = dlpi_fate_stage(fate) == stage ? dlpi_fate_kills(fate) : 0;
    if (kills < 127) kills++;
    return (fate & (0xffffu | DLPI_FATE_RAISED | DLPI_FATE_COUNTS | DLPI_FATE_FAILED)) |
           kills << 16 | stage << 23 | (late ? DLPI_FATE_LATE : 0);
}

static inline dlpi_policy dlpi_policy_of(const dlp_workers_desc *d) {
    return (dlpi_policy){d->max_skips, d->on_error, d->retries, d->retry_backoff_ms,
                         d->deadline_ms};
}

/* Return the row of the table with this name, or NULL. */
static const dlpi_table_row *dlpi_row_named(const dlp_pipe *p, const char *name) {
    uint32_t i = 0;
    while (i < DLP_MAX_NODES && strcmp(p->rows[i].name, name) != 0) i++;
    return i < DLP_MAX_NODES ? &p->rows[i] : NULL;
}

/* Return the row of the table with this number + 1, as dlpi_worker_block.op has it; or NULL. */
static inline const dlpi_table_row *dlpi_row_numbered(const dlp_pipe *p, uint32_t op) {
    return op > 0 && op <= DLP_MAX_NODES ? &p->rows[op - 1] : NULL;
}

/* Return the deadline_ms of the callback of this row in a stage, 0: none. NULL: the stage's own. */
static inline int32_t dlpi_limit_ms(const dlpi_stage *st, const dlpi_table_row *row) {
    return row != NULL && row->policy.deadline_ms > 0 ? row->policy.deadline_ms : st->w.deadline_ms;
}

/* Return what this row says of failures, or else what its stage says. NULL: the stage's own. */
static inline dlpi_policy dlpi_policy_in(const dlpi_stage *st, const dlpi_table_row *row) {
    return row != NULL && row->own ? row->policy : dlpi_policy_of(&st->w);
}

/* Return what holds for the row that failed last. */
static inline dlpi_policy dlpi_policy_now(const dlpi_worker *w) {
    return dlpi_policy_in(w->st, w->note.row);
}

/* Return how many rows a worker of the stage may have in callbacks at once, 1 at least. */
static inline uint64_t dlpi_at_once(const dlpi_stage *st) {
    return (uint64_t)st->in_flight + (st->in_flight == 0);
}

/* True if a worker of the stage makes several rows in one call, by a fetch_rows. */
static inline bool dlpi_makes_runs(const dlpi_stage *st) {
    return st->dataset != NULL && st->dataset->fetch_rows != NULL;
}

/* True if the worker's stage is the first, which writes rows for the first time. */
static inline bool dlpi_writes_first(const dlpi_worker *w) { return w->st->work == 0; }

/* What a word of recovery (X2) says: a row of slot s; n rows, of one done word, from there on; all
   of slot or cell s; nothing. A batch has at most 2^20 rows. */
#define DLPI_RUNS_ROW(s, row) ((uint64_t)(s) << 32 | ((row) + 1u))
#define DLPI_RUNS_ROWS(s, row, n) (DLPI_RUNS_ROW(s, row) | (uint64_t)((n)-1u) << 22)
#define DLPI_RUNS_ALL(s) ((uint64_t)(s) << 32 | UINT32_MAX)
#define DLPI_RUNS_NONE UINT64_C(0)

/* Store what is to blame if the worker dies from here on: what is in a callback, or DLPI_RUNS_NONE.
   A relaxed store: recovery reads the word when the kernel has said that its writer is dead. */
static inline void dlpi_runs(uint64_t *running, uint64_t what) {
    DLPI_STORE_RLX(running, what); /* X2 to recovery */
}

/* Return what the source keeps beside the i-th row that worker w has in callbacks. NULL: it keeps
   nothing, or w is no worker of fetch. */
static inline void *dlpi_row_extra_at(const dlp_pipe *p, const dlpi_worker *w, size_t i) {
    const size_t each = dlpi_at_once(p->fetch);
    if (p->own_rows == NULL || !dlpi_writes_first(w)) return NULL;
    return p->own_rows + ((size_t)w->id * each + i) * p->source->row_bytes;
}
