#pragma once
/* tests: system/core/pipe_basic, system/core/pipe_wrap */
#include "api/queues.h"
#include "base/cpus.h"
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
    uint32_t any_ragged;
    uint64_t cell_bytes;
    dlpi_field at[DLP_MAX_FIELDS];
} dlpi_fields;

/* What a stage of rows works on: of these fields of the items, and of the items with these numbers.
   A row of another item passes it. */
typedef struct dlpi_scope {
    /* from field on; own: the first field that the stage itself adds; after the last: none */
    uint32_t field, n_fields, own;
    /* zeroes 1: the fields that it adds begin as zeros; 2: those from `own` on do, which other rows
       add to those of a fetch. ragged 1: some field of the pipe's items is. n_cells: of w->cell */
    uint8_t zeroes, ragged, n_cells;
    const dlpi_field *cells; /* row_bytes: from one row to the next; p->items.at, or the holder's */
    uint64_t first, n_items; /* from first on, which is its dataset's item 0 */
} dlpi_scope;

typedef struct dlpi_stage {
    const dlpi_stage_ops *ops;
    void *self; /* [ops->self_bytes] what its kind keeps; NULL: nothing */
    int id;     /* its place in the chain */
    char name[32];
    dlp_workers_desc w;
    int32_t *affinity;
    /* what it does */
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    dlp_collate_fn collate;
    void *user;
    dlp_dataset *dataset; /* in self; NULL: the stage fetches nothing */
    int32_t in_flight;    /* items at once in a worker, 0: one after the other */
    dlp_field *fields;    /* [n_fields] copies of the fields of its desc, with their names */
    uint32_t n_fields;
    /* laid out at start */
    int work;                    /* place among the stages with workers, -1: none */
    int first_worker, n_workers; /* n_workers counts an inline one */
    int begin, tuned;            /* num_workers at first; 1: n_workers is workers_max */
    int at_first;                /* of n_workers, how many may claim at first */
    uint64_t stage_words_offset; /* in a slot */
    dlpi_scope scope;
    int lets_pass; /* 1: rows of items that are not its own may pass it unseen */
    int held;      /* DLPI_HELD_*: what it is to fields that end before the batch; 0: nothing */
} dlpi_stage;

typedef struct dlpi_parked { /* a row between two attempts: see dlpi_park */
    /* DLPI_GOES_BACK: to the first stage, once no other row of its unit waits here */
    uint64_t due_ns;
    uint64_t gen;
    uint32_t slot, row;
} dlpi_parked;

/* Where dlp_fail writes. */
struct dlp_call {
    char *message; /* [256] */
    int32_t *errnum;
    struct dlpi_worker *w;
    uint32_t used_random; /* 1: the callback called dlp_item_random */
    uint32_t said;        /* row + 1 of the item whose words these are, 0: nothing was said */
};

/* What most workers never write. It lies behind the records of all: else its pages would be theirs,
   as threads and, each for itself, as processes. */
typedef struct dlpi_worker_rare {
    dlpi_parked parked[DLPI_PARK];
    dlp_batch batch;
    dlp_tensor tensors[DLP_MAX_FIELDS];
    struct dlp_collate_in in[DLP_MAX_FIELDS];
    struct dlp_collate_out out[DLP_MAX_FIELDS];
} dlpi_worker_rare;

typedef struct dlpi_worker {
    dlp_pipe *p;
    dlpi_stage *st;
    int id, global;
    dlpi_worker_block *block;
    dlp_trace_event *trace;
    dlpi_waiters *waiters;
    uint64_t generation;   /* of the batch that its item is in */
    const uint64_t *index; /* of that batch's rows */
    bool has_special;      /* see dlpi_row_special */
    bool singles, alone;   /* see dlpi_worker_singles, dlpi_worker_alone */
    uint32_t input_first;  /* of cells of inputs: the first that it may take, */
    uint64_t low;          /* every batch below has no unit to claim */
    uint64_t tail_seen;    /* ctl.tail when last read */
    uint64_t rescan_seen;
    uint32_t input_at;     /* the cell after the one that it took last, */
    uint32_t input_untold; /* and inputs loaded of which the scheduler has not been told */
    uint64_t claim_end;    /* batches from here on are not to be claimed; 0: none */
    void *self;            /* what its kind keeps for it, or NULL */
    void *source;          /* what the source keeps for it, or NULL */
    uint64_t
        *at_once; /* X2 [n_at_once] in the region: rows in callbacks, each as block->running has
                           the only one; NULL: there is but that */
    uint32_t n_at_once;
    uint32_t input_end; /* the end of the cells of inputs that it may take; 0: it may take all */
    dlp_call note;
    uint32_t until_clock, clock_every;
    uint32_t units_untimed, items_untimed;
    uint64_t last_ns;        /* last clock reading, 0: none since waiting */
    uint64_t wait_ns;        /* since when it waits, 0: it does not */
    bool blocked;            /* ... for want of free cells, not of input */
    const uint32_t *untimed; /* not 0: this call of the consumer, which runs it, is not timed */
    uint64_t limit_ns;       /* deadline that next looks after: threads' alone; 0: none */
    uint32_t waits;          /* while some wait awake */
    dlpi_cpu cpu;            /* of its own thread */
    dlp_trace_event event;
    int n_parked, parked_most;
    dlpi_parked *parked; /* [parked_most] */
    void *state;
    dlp_item item;
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
    const char *bad_field; /* the one whose length is wrong, or NULL */
    int returned;          /* by the callback that failed */
    uint32_t passed;       /* rows of this run that are not its stage's */
    /* item and data are what callbacks see, and may spoil; the library goes by index, and by: */
    dlp_item given;                /* what the batch's items have alike */
    uint64_t position;             /* of its first row */
    uint8_t *cell[DLP_MAX_FIELDS]; /* fields of its first row */
    uint64_t cursor;               /* of a stage in order: the next batch */
    pthread_t thread;
    int started, joined; /* joined -1: inline, has begun */
    int process;         /* 1: runs in a process of its own */
    uint32_t next_slot;  /* where the batch after the one found last lies, if they go in turn */
    void *extra;         /* [source->row_bytes] of the row in its callback */
    uint8_t *held;       /* cells of the run's rows that end before the batch, by the holder */
    dlpi_worker_rare *rare;
    uint8_t pad[DLPI_LINE]; /* workers lie side by side and share no line */
} dlpi_worker;

typedef struct dlpi_cell_use { /* the batch that item cells were given to last */
    uint64_t b;
    uint32_t slot;
    uint32_t given;
} dlpi_cell_use;

typedef struct dlpi_lost { /* what a dead worker had, and was not done */
    uint64_t b;            /* a unit of which no callback ran: its batch, or a cell's ticket */
    uint32_t slot, unit;
    uint32_t missing; /* its rows that were not done; 0: there is none */
    bool ran;         /* a callback ran, and has the blame */
} dlpi_lost;

typedef struct dlpi_death { /* of a worker process */
    uint32_t signal;        /* that ended it, 0: it called exit */
    bool late;              /* it was killed because an item was past its deadline */
    dlpi_lost *lost;        /* written by dlpi_recover; or NULL */
} dlpi_death;

/* The source's own part of a state: of bytes that it alone understands. */
typedef struct dlpi_source_state {
    uint32_t bytes;
    uint32_t note; /* of the batch, and not saved */
    uint8_t at[DLP_SAMPLER_STATE_BYTES];
} dlpi_source_state;

typedef struct dlpi_state {
    uint64_t magic;
    uint64_t check; /* hash of all that follows */
    uint64_t n_items, seed, params;
    uint32_t global_batch;
    uint16_t order, last;
    uint64_t epoch, batch, position; /* the first batch not consumed */
    uint32_t gaps_used, sampler_bytes;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t gaps[DLPI_GAPS_MAX / 8]; /* bit k: batch + k is consumed too */
} dlpi_state;

_Static_assert(sizeof(dlpi_state) <= sizeof(dlp_state), "a state must fit");

typedef struct dlpi_scheduler { /* used by whoever runs the sampler: the consumer or its thread */
    uint64_t epoch, in_epoch, position;
    uint64_t published;
    uint64_t alike; /* so many batches from here on: as source->alike says */
    uint32_t slot_turn;
    uint32_t cell_turn;
    dlpi_cell_use *cells; /* [prefetch] */
    int ended;
    uint32_t run_shift;
    uint64_t cost_ns;
    /* resume of an unordered pipe: bitmap of batches consumed after the prefix */
    uint64_t skip_base; /* UINT64_MAX: no bit is set */
    uint8_t skip_bits[DLPI_GAPS_MAX / 8];
    uint32_t seek_no, reach; /* seeks followed, modulo 2^16; batches under way at once, at most */
    uint64_t epoch_asked;    /* I2 generation of the epoch that it waits to begin */
} dlpi_scheduler;

typedef struct dlpi_awake {     /* what the consumer measures: see >>impl-awake */
    uint32_t calls;             /* timed since the last estimate */
    uint32_t put_off;           /* workers that the scheduler did not wake, for others are awake */
    uint64_t batch_ns, step_ns; /* averages */
    uint64_t busy_ns, steps_ns, delivered; /* as they were at the last estimate */
} dlpi_awake;

typedef struct dlpi_tuned {            /* a stage as the tuner saw it last */
    uint64_t busy_ns, done_ns, cpu_ns; /* busy with the present call, without it, CPU */
    uint64_t core_wait_ns;
    double share;     /* of its working workers' time that was busy */
    double cpu_share; /* of busy time, spent on a core, or ready to run on one */
    int active, set;  /* 1: by dlp_pipe_set_workers */
    int cores_said;
    uint32_t hot, cold; /* looks in a row that asked for more, for fewer */
    uint32_t patience;  /* how many it takes for fewer */
    uint64_t changed;   /* look of the last change */
} dlpi_tuned;

typedef struct dlpi_tuner {
    uint64_t every_ns; /* 0: nothing is tuned */
    uint64_t due_ns, last_ns, looks;
    uint64_t waited_ns;
    dlpi_tuned at[DLP_MAX_STAGES];
} dlpi_tuner;

/* What dlpipe_shm.h gives, where it is included; else NULL: pipes have dlpi_alone then. */
static const dlpi_beside_ops *dlpi_shm; /* defined again, with its value, by dlpipe_shm.h */

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
    const char *words; /* its line of the plan; NULL: it has none */
    int plan;          /* DLPI_PLAN_*, 0: none */
    uint64_t offset, stride, count;
} dlpi_area;

typedef struct dlpi_counter { /* of the user's */
    char name[32], unit[12];
    double most;
    uint64_t n;      /* W3 samples so far; consumer */
    uint64_t *words; /* [2 * room] of each: ns since start, the bits of the value */
} dlpi_counter;

typedef struct dlpi_datasets {        /* beside that of fetch: those that joins fetch from, too */
    dlp_field fields[DLP_MAX_FIELDS]; /* of all: names are those of their stages */
    uint32_t n_fields;
    uint64_t n_added; /* items after those of fetch, others' */
} dlpi_datasets;

typedef struct dlpi_exports {    /* batches given away as tensors: device/dlpack.h */
    struct dlpi_exported *slots; /* [n_out]; NULL: never any */
    uint32_t n;
    int closed;
} dlpi_exports;

typedef struct dlpi_pace { /* the consumer's books of its time: deliver/pace.h */
    uint64_t last_return_ns;
    uint64_t wait_from;        /* it waits since then, 0: it does not */
    uint64_t set_ns, began_ns; /* set_epoch: when, and when it had returned; 0: told already */
    uint64_t border_ns; /* since when it waits for an epoch; 0: the epoch's first batch is there */
    uint64_t inline_ns; /* inline: what the last call that was timed took */
    uint32_t calls_untimed, call_clock_every; /* 0: as 1 */
    uint32_t burst;       /* credits to gather before they are fed: see dlpi_consumer_step */
    uint32_t calls_timed; /* how many calls the work of this call stands for */
    uint64_t untimed_ns;  /* inline: no more time than this passed in the others of these calls */
    uint32_t clock_off;   /* inline: this call is not timed */
    bool source_waited;   /* this wait was for the source */
} dlpi_pace;

typedef struct dlpi_consumed { /* unordered: batches of the epoch that are delivered */
    uint64_t base;             /* without a gap, and after that: */
    uint8_t at[DLPI_GAPS_MAX];
} dlpi_consumed;

typedef struct dlpi_after { /* the state after all that was delivered */
    uint64_t high;          /* batches up to the highest one */
    uint64_t epoch, batch, position;
    dlpi_source_state source;
} dlpi_after;

typedef struct dlpi_warnings { /* the consumer's; explain, in any thread, reads the complete ones */
    uint64_t n;                /* V1: complete ones */
    char text[8][160];
    uint64_t skips_seen; /* entries of the list of skips that were read */
    uint32_t told_of;    /* a bit for each stage of which DLP_SKIP was told */
    bool first_seen;     /* the first batch was looked at */
} dlpi_warnings;

struct dlp_pipe {
    dlp_pipe_desc d;
    dlpi_counter counters[DLP_MAX_COUNTERS];
    char name[32];
    dlp_state resume;
    int prepared; /* the region is there, and its processes */
    int started, epoch_end_due;
    int closing;         /* 1: close was called, 2: no thread of the pipe is left */
    uint32_t stop_asked; /* S2: stop may be called from the first moment on */
    uint32_t can_wake;   /* S2: ctl and waiters are there */
    int in_worker;       /* 1: this is one of its worker processes: a callback may call stop */
    dlp_error err;
    dlp_error held_err; /* of the last next that returned DLP_ERR_HELD */
    dlpi_warnings warnings;
    int n_stages;
    dlpi_stage stages[DLP_MAX_STAGES];
    /* the chain, once checked */
    dlpi_stage *sampler, *fetch, *batcher;
    /* roles: their tables, which are always there (pipe/roles.h), and the stages of which these
       are; NULL: none */
    const dlpi_keeper_ops *keeper;
    const dlpi_holder_ops *holder;
    const dlpi_sink_ops *sink;
    const dlpi_lender_ops *lender;
    bool bare;    /* true: scheduling, delivery and release ask no role for anything */
    bool lends;   /* false: whole batches go out and come back without a call of the table */
    bool barrier; /* epochs begin by set_epoch; else they overlap */
    dlpi_stage *keeper_stage, *holder_stage, *sink_stage, *lender_stage;
    int kept_by;                      /* place of the last stage whose work the keeper keeps */
    const dlpi_stay_ops *stay;        /* the lender's, where the sink's results stay; or NULL */
    const dlpi_source_ops *source;    /* what the rows of batches are, and */
    dlpi_stage *source_stage;         /* whose table that is */
    const dlpi_beside_ops *beside;    /* processes, and other programs; always there */
    const dlpi_sharing_ops *sharing;  /* other programs take batches, too */
    dlpi_stage *rows_end;             /* after it nobody asks for a batch's rows again */
    dlpi_stage *work[DLP_MAX_STAGES]; /* stages with workers: */
    int n_item_work;                  /* first those of rows, in order; after them, up to */
    int n_work;                       /* those of batches; after them, up to */
    int n_staffed;                    /* those of cells of their own */
    dlpi_fields items, batches;       /* item cells; batch cells */
    dlpi_datasets datasets;
    const char *node;        /* while a row of a table is added: its name; else NULL */
    uint32_t run_shift_most; /* a run has 1 << this rows at most; 0: rows are claimed one by one */
    int has_item_cells;      /* items are written in cells of their own */
    int item_area;           /* whose cells items are written in */
    int cells_from;          /* place of the stage that writes batch cells whole */
    dlpi_stage *cell_end;    /* after it nobody needs what lies in turning cells */
    int cells;               /* DLPI_CELLS_*: where a slot's batch lies */
    uint32_t n_cells, n_out; /* batch cells; batches that can be lent at once */
    uint32_t max_kills;      /* as dlp_shm_desc */
    uint64_t samples, batches_per_epoch;
    DLPI_SHAPE_MEMBERS;
    uint32_t rank, world;
    int ranks_given; /* a desc says world_size */
    uint64_t global_batch;
    uint64_t params_hash; /* of the sampler's arrays and numbers, and whose items those
                             are, for states */
    int32_t last;
    int cpus;
    dlpi_wait_rule wait;
    int all_inline; /* nobody works but the consumer */
    int any_inline;
    /* layout */
    dlpi_area areas[DLPI_AREAS]; /* by id; dlpi_layout has the order in which they lie */
    const dlpi_area *inputs;     /* the source's own, if it has cells of inputs */
    uint64_t region_bytes;
    dlpi_slot_layout slot;
    uint64_t off_tries, tries_bytes;   /* in a slot; tries_bytes 0: no stage tries again */
    uint64_t plan_private, plan_bytes; /* plan_bytes: of region, private records, the sink's */
    int n_workers, n_threads, n_procs;
    int huge_pages;         /* DLP_HUGE_* */
    int needs_file;         /* 1: the region must be a file in memory, for others are to map it */
    int others;             /* 1: other processes work on the region */
    uint32_t used_at_first; /* of a slot: 1, the consumer gives it back; 0, it gets no batch */
    uint64_t scheduler_sleep_ns; /* of its thread, at most: nobody may wake it */
    void *shm;                   /* what dlpipe_shm.h keeps */
    dlpi_share *share;           /* or NULL */
    /* live */
    uint8_t *alive; /* a page that is zero in a process forked from this one */
    uint8_t *region;
    int memfd;
    int name_fd;       /* dlpipe_shm.h: record and lock of the pipe's name, -1: none */
    char shm_name[64]; /* "": none */
    dlpi_ctl *ctl;
    dlpi_waiters *waiters;
    uint32_t *order_ring;
    dlpi_worker *workers;
    dlpi_worker *consumer; /* its trace and clock only */
    dlp_batch *out;        /* [n_out] what the consumer sees */
    dlp_tensor *out_fields;
    uint8_t *ones;
    uint64_t *counted;             /* what counters have */
    dlpi_counter_rec *counter_now; /* [n_counters] in the region */
    uint8_t *lent;                 /* [n_out] 1: lent; 2: lent, and the last of its epoch */
    uint8_t *taken;                /* [ring] in the region; unordered: delivered; consumer */
    uint8_t *own_rows; /* [workers of fetch][rows at once] of source->row_bytes; NULL: none */
    uint64_t budget_bytes;
    dlpi_exports exports;
    uint64_t deadline_ns; /* the shortest of the stages, 0: none */
    int open_end;         /* 1: nobody knows where an epoch ends, until a row says so */
    dlpi_state place;     /* where to go on, from that seek: both under dlpi_place_lock */
    uint32_t place_seek_no;
    /* What the consumer writes with every batch lies apart from what workers read. The scheduler's
       own part is the sampler thread's where there is one. */
    uint8_t pad0[DLPI_LINE];
    uint64_t base;
    uint64_t n_lent;
    uint64_t looked_ns;   /* for the processes */
    uint64_t epoch_begun; /* I2 generation of the epoch that set_epoch was called for last */
    dlpi_pace pace;
    uint32_t seek_no;       /* seeks, modulo 2^16 */
    uint32_t seeks;         /* since the last batch was delivered */
    uint64_t epoch_now;     /* of the batch delivered last */
    int epoch_open;         /* some batch of epoch_now delivered, and not its last */
    uint64_t last_sequence; /* unordered: the last batch of the epoch, UINT64_MAX: not seen */
    dlpi_consumed consumed;
    dlpi_after after;
    dlpi_tuner tune;
    dlpi_awake awake;
    uint8_t pad1[DLPI_LINE];
    dlpi_scheduler schedule;
    uint8_t pad2[DLPI_LINE];
    uint32_t live_word; /* futex: threads that ended */
};

static inline const dlp_sampler_desc *dlpi_sampler_of(const dlp_pipe *p) {
    return p->sampler->self; /* each kind of sampler begins with it */
}

/* Return the bytes of one ring of trace events. Each worker and each counter has one. */
static inline uint64_t dlpi_ring_bytes(const dlp_pipe *p) {
    return (uint64_t)p->trace_events * sizeof(dlp_trace_event);
}

static inline uint64_t dlpi_area_bytes(const dlp_pipe *p, int id) {
    return dlpi_times(p->areas[id].stride, p->areas[id].count);
}
/* Add area `id` to the end of the region: count elements of stride bytes, aligned. */
static inline void dlpi_area_add(dlp_pipe *p, int id, uint64_t stride, uint64_t count,
                                 uint32_t align) {
    p->areas[id] = (dlpi_area){NULL, 0, dlpi_round_up(p->region_bytes, align), stride, count};
    p->region_bytes = dlpi_sum(p->areas[id].offset, dlpi_area_bytes(p, id));
}
/* Add an area that has a line in the plan, which is shown with these words, unless a lender has
   named the line before. */
static inline void dlpi_area_told(dlp_pipe *p, int id, int plan, const char *words, uint64_t stride,
                                  uint64_t count, uint32_t align) {
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
/* Prefetch the cache line of batch b's header for writing. Several such lines may be on their way
   at once. */
static inline void dlpi_slot_fetch(const dlp_pipe *p, uint64_t b) {
    dlpi_prefetch_write(&dlpi_slot_at(p, (uint32_t)(b % p->n_slots))->header);
}
static inline uint64_t *dlpi_done(dlpi_stage_words *t) { return t->words; }
static inline uint64_t *dlpi_owners(const dlp_pipe *p, dlpi_stage_words *t) {
    return t->words + p->words_max;
}
static inline uint64_t *dlpi_scan(const dlp_pipe *p, dlpi_stage_words *t) {
    return t->words + p->words_max + p->units_max;
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

/* Return how many rows a worker of the stage may have in callbacks at once, 1 at least. */
static inline uint64_t dlpi_at_once(const dlpi_stage *st) {
    return (uint64_t)st->in_flight + (st->in_flight == 0);
}

/* True if the worker's stage is the first, which writes rows for the first time. */
static inline bool dlpi_writes_first(const dlpi_worker *w) { return w->st->work == 0; }

/* What a word of recovery (X2) says: a row of slot s; all of slot or cell s; nothing. */
#define DLPI_RUNS_ROW(s, row) ((uint64_t)(s) << 32 | ((row) + 1u))
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
