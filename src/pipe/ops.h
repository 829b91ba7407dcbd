#pragma once
/* tests: system/inputs/neighbours, system/core/differential */
#include "api/kinds.h"
#include "api/pipe.h"
#include "api/predict.h"
#include "api/stats.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-ops        WHAT A KIND OF STAGE IS TO THE REST
   The core knows no kind of stage by its name. A stage carries the table of its kind, set when it
   is added, and what a kind keeps for itself lies in the stage's own block (self). A function that
   is NULL has nothing to do for that kind. Tables of roles are given by the one stage of a pipe
   that has the role, and are NULL everywhere else:

     source   what the rows of a batch are, and when a batch may be scheduled; of several stages
              that have the role the last one has it
     keeper   rows that need not be fetched again
     holder   memory that a row has from before the stage that writes it until the one that reads
              it is done
     lender   what the consumer gets in a batch's place, and the states that go with it
     sink     the last stage of a chain whose results lie elsewhere than in the slot's cell
     sharing  others than the consumer take batches, too: outs, or other programs (dlpipe_shm.h)

   One role is no stage's: what stands beside the threads of this process (p->beside, which each
   pipe has).

   Nothing here is called for a single row, but for what a source or a keeper that is there does
   with it: a claimed run of rows, or a batch, costs one call. */

struct dlpi_worker;
struct dlpi_stage;
struct dlpi_unit;
struct dlpi_death;
struct dlpi_state;
struct dlpi_source_state;
typedef struct dlpi_words dlpi_words;
typedef struct dlpi_seen dlpi_seen;

/* What the rows of batches are. */
enum { DLPI_NEXT_EPOCH = INT32_MAX };

typedef struct dlpi_source_ops {
    /* building, by the calling thread */
    int (*sizes)(dlp_pipe *p);                 /* samples and batches of an epoch; or it is wrong */
    uint64_t (*slot_bytes)(const dlp_pipe *p); /* it keeps in a slot */
    size_t row_bytes;                          /* of what `row` writes for one row */
    /* whoever schedules batches */
    int (*rows)(dlp_pipe *p, uint64_t *rows);  /* of the present global batch; 0: epoch's end */
    bool (*ready)(dlp_pipe *p, uint64_t rows); /* may it be scheduled now? */
    void (*fill)(dlp_pipe *p, uint32_t s);     /* what the source writes into slot s for it */
    uint64_t (*alike)(const dlp_pipe *p);      /* so many batches from the present one on are full,
                                                  wanted, and not the last of their epoch: nothing
                                                  is asked, filled or stepped of them. 0: ask */
    int (*step)(dlp_pipe *p);                  /* the present batch is scheduled: to the next */
    void (*ahead)(dlp_pipe *p);                /* look beyond it */
    bool (*quiet)(dlp_pipe *p); /* true: no callback of the source runs or will, so that set_epoch
                                   may be called */
    int (*seek)(dlp_pipe *p, const struct dlpi_state *to); /* one that is checked */
    /* the consumer: batch b, in slot s, is about to be delivered, or rc stands in its place.
       Returns what does then, or DLPI_NEXT_EPOCH: the epoch is over before batch b */
    int (*agreed)(dlp_pipe *p, int rc, uint64_t b, uint32_t s);
    /* a worker of the first stage */
    void (*indices)(struct dlpi_worker *w, const struct dlpi_unit *t); /* that fill did not write */
    uint64_t (*item)(struct dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                     uint64_t position, uint32_t k); /* the row's own: k 0; or in its place: 1.. */
    void (*row)(
        struct dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
        void *extra); /* what its callback has besides; extra: [row_bytes], while it is there */
    /* states, by the calling thread */
    const char *const *words; /* [n_words] of 8 bytes that config puts first in its own part */
    uint32_t n_words;
    void (*config)(const dlp_pipe *p, struct dlpi_state *s); /* what of it changes the order */
    /* what s->params is a hash of, for errors. Words of the plan: what the order goes by, what
       random numbers go by, and what a state saves; NULL: the position, and the place of a batch */
    const char *params, *order, *path, *saves;
    const struct dlpi_source_state *(*state)(const dlp_pipe *p, uint32_t s,
                                             int after); /* before, or after, the batch in slot s;
                                                            of DLPI_NO_SLOT p->after.source; NULL:
                                                            the position says all */
    bool no_state_at; /* true: where a batch stands does not follow from its number */
    const char *(*never_saved)(const dlp_pipe *p, const struct dlpi_state *s); /* the field that
                                                            has what is never saved, or NULL */
    /* cells of inputs, if its stage has any (inputs/cells.h) */
    const char *input;                                 /* what is in one, for errors */
    int (*load)(struct dlpi_worker *w, uint32_t cell); /* one try; 0, or what is wrong */
    int (*many)(struct dlpi_worker *w, uint32_t cell); /* one try of each, until one fails: load's
                                                          code of that; 0: none did. Or NULL */
    uint64_t (*keeps)(const dlp_pipe *p); /* bytes of the items of one, at most, of which it asks
                                             the keeper; NULL: it does not ask */
} dlpi_source_ops;

typedef struct dlpi_keeper_ops { /* by workers of the first stage, up to that of place p->kept_by */
    void (*ahead)(const dlp_pipe *p, const struct dlpi_unit *t); /* a run will ask for its rows */
    bool (*get)(struct dlpi_worker *w, const struct dlpi_unit *t,
                uint32_t row); /* is it kept? The first stage's worker writes it then */
    void (*put)(struct dlpi_worker *w, uint32_t s, uint32_t row,
                bool used_random); /* the callback is done; was it by the row's random numbers? */
    bool (*find)(
        struct dlpi_worker *w, uint64_t input, uint8_t *to,
        uint64_t *items); /* by workers of cells: is the input kept? to: where its items are
                                      written then; NULL: they are not */
    void (*keep)(struct dlpi_worker *w, uint64_t input, const uint8_t *from, uint64_t items,
                 uint64_t bytes); /* these are all items of the input */
} dlpi_keeper_ops;

/* What a stage of rows is to the holder's memory (dlpi_stage.held): bits. */
enum {
    DLPI_HELD_TAKES = 1,   /* a unit gets it before its claim here: the first that writes */
    DLPI_HELD_WRITES = 2,  /* of several, each the cells of the rows that are its own items */
    DLPI_HELD_READS = 4,   /* with its last row a unit gives it up */
    DLPI_HELD_SEES = 8,    /* it reads, and leaves it to a stage that reads after it */
    DLPI_HELD_LENGTHS = 16 /* `at` and `written` are called for each row */
};

/* A unit has cells from before its claim in the stage that takes them until just before its last
   row is done in the one that reads: whatever becomes of it in between. */
typedef struct dlpi_holder_ops { /* by workers of stages that are something to it */
    bool (*take)(struct dlpi_worker *w, const struct dlpi_unit *t); /* to claim t: is there one? */
    void (*claimed)(struct dlpi_worker *w, const struct dlpi_unit *t); /* t was; NULL: nothing */
    /* w->held, and w->cell of its fields if `at` is not called, are of the row's unit */
    void (*cells)(struct dlpi_worker *w, uint32_t s, uint32_t row);
    void (*at)(struct dlpi_worker *w, uint32_t row);     /* its fields are the item's, too */
    int (*written)(struct dlpi_worker *w, uint32_t row); /* or read; lengths are set. 0 or code */
    void (*leave)(struct dlpi_worker *w, const struct dlpi_unit *t,
                  uint32_t rows); /* about to be done where they are read; bits of their word */
    bool (*has)(const dlp_pipe *p, const struct dlpi_unit *t); /* its cells, still? */
} dlpi_holder_ops;

/* What a lender has handed out: dlp_pipe.out[v], complete; the books are the core's. */
typedef struct dlpi_handed {
    uint32_t v;
    uint64_t bytes;
    uint64_t after; /* global position where it ends */
} dlpi_handed;

typedef struct dlpi_lender_ops { /* by the consumer; v: number of what is handed out */
    const char *results;         /* the plan's line of the sink's buffers */
    const char *params;          /* of states: what config changes; NULL: nothing */
    bool in_cells; /* a callback writes a whole cell, of which there are no rows yet */
    int (*next)(dlp_pipe *p, dlpi_handed *to, int timeout_ms); /* as dlp_pipe_next */
    void (*drop)(dlp_pipe *p, uint32_t v);
    uint32_t (*slot)(const dlp_pipe *p, uint32_t v);                     /* whose cell it lies in */
    uint64_t (*batches)(const dlp_pipe *p);                              /* of an epoch */
    void (*state)(const dlp_pipe *p, uint32_t v, struct dlpi_state *to); /* after v */
    void (*config)(const dlp_pipe *p, struct dlpi_state *s);             /* NULL: nothing else */
    uint64_t (*position)(const dlp_pipe *p, uint64_t epoch, uint64_t k); /* rows before batch k */
    void (*seek)(dlp_pipe *p, struct dlpi_state *s); /* where the source goes on; NULL: there */
    uint64_t (*bytes)(const dlp_pipe *p, uint32_t s, uint32_t field); /* for the sink, of a slot */
    uint64_t (*seam)(const dlp_pipe *p, uint32_t field); /* of what is put together out of several
                                                 slots, n_out of them; 0: nothing is */
    uint32_t (*cell)(dlp_pipe *p); /* DLPI_CELLS_STAY: by the scheduler, of its present batch */
} dlpi_lender_ops;

/* What a lender says of results that stay where the sink has put them (p->stay): by the sink. */
typedef struct dlpi_stay_ops {
    uint32_t (*place)(const dlp_pipe *p, uint32_t s); /* its own; DLPI_NO_SLOT: it has none */
    bool (*left)(const dlp_pipe *p, uint32_t s);      /* left out: it does not stay */
    uint32_t (*source)(const dlp_pipe *p, uint32_t s, uint64_t b); /* in which slot's cell it is
                                                                 for batch b, or DLPI_NO_SLOT */
} dlpi_stay_ops;

typedef struct dlpi_sink_ops { /* by the consumer */
    void (*data)(const dlp_pipe *p, uint32_t s, uint32_t field, uint64_t at,
                 dlp_tensor *t);            /* point t at this byte of the batch in slot s */
    void (*freed)(dlp_pipe *p, uint32_t s); /* that slot was given back */
    int (*joins)(dlp_pipe *p); /* building: can it do the following? Else the pipe has the error */
    int (*join)(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t s, uint64_t from,
                uint64_t rows); /* begin to copy rows of slot s into seam buffer v, to its row */
    int (*arrive)(dlp_pipe *p, uint32_t v, uint64_t until);       /* wait until they are there */
    void *(*seam)(const dlp_pipe *p, uint32_t v, uint32_t field); /* that buffer */
} dlpi_sink_ops;

/* Others than the consumer take batches, too. By whoever schedules; looked at before each batch. */
typedef struct dlpi_sharing_ops {
    const char *words;         /* what the user has asked for by it */
    bool programs;             /* the others are programs */
    bool (*keep)(dlp_pipe *p); /* who came, who went; did anything change? */
    bool (*over)(dlp_pipe *p); /* all is scheduled, and nobody has any of it */
    bool (*may_schedule)(dlp_pipe *p);
    bool (*slot_free)(dlp_pipe *p,
                      uint32_t s);        /* the consumer has given it back: the others, too? */
    uint64_t (*holds)(const dlp_pipe *p); /* slots that they may hold, beside the consumer's */
    bool (*leave)(dlp_pipe *p); /* the consumer is done with the pipe; false: another frees it */
} dlpi_sharing_ops;

/* What stands beside the threads of this process: worker processes and other programs. */
typedef struct dlpi_beside_ops {
    int (*open)(dlp_pipe *p); /* check and copy what the desc says of them, if anything */
    int (*processes)(dlp_pipe *p, const struct dlpi_stage *st); /* may its workers be some? */
    int (*resolve)(dlp_pipe *p); /* the wiring is known: does it go with that? */
    void (*layout)(dlp_pipe *p); /* areas of the region */
    int (*begin)(dlp_pipe *p);   /* the region is there: name it, start the processes */
    int (*look)(dlp_pipe *p);    /* while the consumer waits: DLP_OK, or what is wrong */
    void (*nudge)(dlp_pipe *p);  /* stop was asked for; any thread, signal handlers */
    void (*await)(dlp_pipe *p);  /* close: until no process is left */
    void (*end)(dlp_pipe *p);    /* give up what open and begin took */
} dlpi_beside_ops;

/* What a source whose items are read on, by the one worker of a fetch stage, puts into
   the dataset beside its callback: a table that outlives the source, for such a dataset may get
   another callback, around that one or no longer the source's at all. */
typedef struct dlpi_reader {
    const char *words; /* the plan's line of rows that a later stage may ask for again: as many
                          as slots have rows, of 8 bytes and the fields, each rounded up to 8 */
    dlp_item_fn fetch; /* the callback. Where no other one is in its place: */
    uint32_t (*writers)(const void *user); /* threads, of any process, that write what is read */
    uint64_t (*lanes)(const void *user, dlp_link *to); /* what they write into, as a link: kind,
                        writers, rule, capacity, bytes. Returns how many records are there */
    uint32_t (*read)(void *user, struct dlpi_worker *w, const struct dlpi_unit *t); /* the first
                        rows of t, that nobody has had; how many. The callback has the others */
    bool (*more)(void *user);                      /* one is there: fetch has it at once */
    void (*failed)(void *user, const dlp_pipe *p); /* by any thread: the pipe has an error */
} dlpi_reader;

#define DLPI_BLOCKS 64 /* of a stage, or of the pipe itself */

enum { DLPI_UNIT_NONE, DLPI_UNIT_ROWS, DLPI_UNIT_BATCHES, DLPI_UNIT_CELLS };

/* What dlp_pipe_explain says of a kind; NULL: as of any stage. */
typedef struct dlpi_kind_words {
    const char *more;    /* the desc's field that gives it more workers */
    const char *out;     /* what takes it out of the consumer */
    const char *many;    /* what gives each worker many items at once */
    const char *slow;    /* of one that has one thread: what else could be changed */
    const char *items;   /* what it makes of inputs; NULL: "items" */
    const char *windows; /* what they are of; NULL: "items" */
} dlpi_kind_words;

typedef struct dlpi_stage_ops {
    int kind;       /* DLP_STAGE_* */
    int rank;       /* place in a chain: never falls */
    int many;       /* 1: several of them may follow each other */
    int begins;     /* 1: a chain begins with it, and a pipe has one */
    int expands;    /* 1: the dataset of the fetch stage after it may leave items out */
    size_t at;      /* in dlp_pipe: of the pointer to such a stage of the chain; 0: none */
    int unit;       /* DLPI_UNIT_*: what its workers take; cells: of its own, not of slots */
    int in_place;   /* 1: it changes batches in their cells */
    int row_by_row; /* 1: rows are claimed one by one: what is that beside the wait for them */
    int in_order;   /* 1: one worker, which takes batches in their order, and never dies */
    int held;       /* it may read the holder's fields: DLPI_HELD_READS, or _SEES; 0: it may not */
    int workers;    /* how many where num_workers is 0; 0: inline */
    size_t self_bytes;
    size_t chain_at; /* in self: of the callbacks that rows behind it add; 0: they may not */
    /* building, by the calling thread. What a desc says by itself is checked by the call that adds
       the stage, which fails; what it must be to other stages here, when the whole chain is there:
       that fails plan and start. */
    int (*adds)(dlp_pipe *p, struct dlpi_stage *st);   /* before rows are counted, in the chain's
                                                        order: items of its own */
    int (*widens)(dlp_pipe *p, struct dlpi_stage *st); /* after that: fields of its own, scope */
    int (*check)(dlp_pipe *p, struct dlpi_stage *st);
    bool (*staff)(dlp_pipe *p, struct dlpi_stage *st);  /* before that: set how many workers it has
                                                          at first; false: nobody need run it.
                                                          NULL: as its desc has them */
    void (*layout)(dlp_pipe *p, struct dlpi_stage *st); /* its areas of the region */
    void (*what)(const struct dlpi_stage *st, char *text, size_t size); /* of the plan: what the
                                                          stage does. NULL: its kind says it */
    const char *private_words;                     /* the plan's line of its blocks; NULL: none */
    uint64_t (*room)(const struct dlpi_stage *st); /* bytes of these that each worker has for the
                                                      item that it makes: a line. NULL: none */
    int (*blocks)(const dlp_pipe *p, const struct dlpi_stage *st,
                  dlpi_block *out); /* [DLPI_BLOCKS], written; returns how many. Also of a stage
                                       that was refused, or a pipe that is not laid out */
    void (*live)(dlp_pipe *p, struct dlpi_stage *st); /* the region is there: it writes there, too,
                                                         what observers read once */
    int (*begin)(dlp_pipe *p, struct dlpi_stage *st); /* before threads start */
    void (*end)(dlp_pipe *p, struct dlpi_stage *st);  /* when all workers are gone */
    void (*worker)(struct dlpi_worker *w); /* its record is set up: what is its kind's of it */
    /* work, by a worker of the stage */
    int (*enter)(struct dlpi_worker *w);  /* after worker_init; else the pipe has the error */
    void (*leave)(struct dlpi_worker *w); /* before worker_exit */
    bool (*step)(struct dlpi_worker *w);  /* what is there to do, without waiting: did it move? */
    bool (*find)(struct dlpi_worker *w, struct dlpi_unit *t); /* claim a unit */
    void (*run)(struct dlpi_worker *w, const struct dlpi_unit *t);
    uint32_t (*bulk)(struct dlpi_worker *w, const struct dlpi_unit *t); /* the first rows of t, that
                  nobody has had, all at once in a callback's place; how many. NULL: none */
    int (*call)(struct dlpi_worker *w, const struct dlpi_unit *t); /* of batches: the callback */
    bool (*full)(const struct dlpi_worker *w);           /* no room for a unit, whatever comes */
    bool (*owes)(const struct dlpi_worker *w);           /* something of its own is to come back */
    uint64_t (*due)(struct dlpi_worker *w, uint64_t ns); /* when it must look again: ns at most */
    void (*recover)(struct dlpi_worker *w,
                    const struct dlpi_death *why); /* by the supervisor. NULL: units of slots */
    void (*lost)(struct dlpi_worker *w);           /* before that: a worker of any stage died */
    /* if it has several queues of cells: from, readers and capacity of the queue that begins with
       cell `at`. Returns true if another queue follows. NULL: its cells are one queue */
    bool (*cells)(const struct dlpi_stage *st, uint64_t at, dlp_link *to);
    /* what is in one of its cells, in words: " (part 7)" */
    void (*tell)(const dlp_pipe *p, uint32_t cell, char *text, size_t size);
    /* by observers: its figures, out of words of the region, live or copied; false: they say what
       can't be */
    bool (*seen)(const dlpi_words *words, dlpi_seen *s, int32_t stage);
    dlpi_kind_words words;
    /* by predictions: how many workers the desc gives it, 0: as measured. NULL: by number alone */
    int32_t (*foretold)(const dlp_predict_desc *d);
    /* roles */
    const dlpi_source_ops *source;
    const dlpi_keeper_ops *keeper;
    const dlpi_holder_ops *holder;
    const dlpi_lender_ops *lender;
    const dlpi_sink_ops *sink;
    const dlpi_sharing_ops *sharing;
} dlpi_stage_ops;
