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

   No call of these tables is made for a single row, except those of a source or keeper that works
   on rows. A claimed run of rows, or a batch, costs one call. */

struct dlpi_worker;
struct dlpi_stage;
struct dlpi_unit;
struct dlpi_death;
struct dlpi_state;
struct dlpi_source_state;
typedef struct dlpi_words dlpi_words;
typedef struct dlpi_seen dlpi_seen;

/* The answer of `agreed` if the epoch is over. */
enum { DLPI_NEXT_EPOCH = INT32_MAX };

typedef struct dlpi_source_ops {
    /* Building, by the calling thread. */
    /* Set the samples and batches of an epoch. Returns 0 or the code of the pipe's error. */
    int (*sizes)(dlp_pipe *p);
    uint64_t (*slot_bytes)(const dlp_pipe *p); /* bytes that the source keeps in each slot */
    size_t row_bytes;                          /* bytes that `row` writes for one row */
    /* Scheduling, by the thread that schedules batches. */
    /* Set *rows to the rows of the present global batch; 0: the epoch has no further batch. */
    int (*rows)(dlp_pipe *p, uint64_t *rows);
    bool (*ready)(dlp_pipe *p, uint64_t rows); /* true if this batch may be scheduled now */
    void (*fill)(dlp_pipe *p, uint32_t s); /* write the source's part of this batch into slot s */
    /* Return how many batches from the present one on are full, wanted and not the last of their
       epoch: rows, ready, fill and step are not called for these. 0: call them for each batch. */
    uint64_t (*alike)(const dlp_pipe *p);
    int (*step)(dlp_pipe *p);   /* go on to the next batch, after the present one is scheduled */
    void (*ahead)(dlp_pipe *p); /* look beyond the present batch: have inputs loaded for others */
    /* True if no callback of the source runs or will run, so that set_epoch may be called. */
    bool (*quiet)(dlp_pipe *p);
    int (*seek)(dlp_pipe *p, const struct dlpi_state *to); /* go on at a state that was checked */
    /* By the consumer: batch b, in slot s, is about to be delivered, or code rc in its place.
       Returns the code that is delivered, or DLPI_NEXT_EPOCH: the epoch is over before batch b.
       NULL: rc is delivered. */
    int (*agreed)(dlp_pipe *p, int rc, uint64_t b, uint32_t s);
    void (*over)(dlp_pipe *p); /* by the consumer: an epoch is over. NULL: nothing is told of it */
    /* By a worker of the first stage. */
    /* Write the indices of a unit's rows, if fill did not write them. */
    void (*indices)(struct dlpi_worker *w, const struct dlpi_unit *t);
    /* Return the index of a row's item. k: 0 for its own item, 1.. for the k-th replacement. */
    uint64_t (*item)(struct dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                     uint64_t position, uint32_t k);
    /* Return the number of a row's item for dlp_batch.number, and set *list if it is not the
       dataset of the list's mix. epoch, position, k: as in item. */
    uint32_t (*origin)(struct dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                       uint64_t position, uint32_t k, uint32_t *list);
    /* Set what the callback of a row gets beside its fields. extra: [row_bytes] memory for it. */
    void (*row)(struct dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row, void *extra);
    /* States, by the calling thread. */
    const char *const *words; /* [n_words] names of the 8-byte words that config writes first */
    uint32_t n_words;
    /* Write the numbers of the source that change the order into a state. */
    void (*config)(const dlp_pipe *p, struct dlpi_state *s);
    /* Texts: the numbers that s->params is a hash of, for errors. For the plan: what decides the
       order, what random numbers depend on, and what a state saves. NULL: the position, or the
       place of a batch. */
    const char *params, *order, *path, *saves;
    /* Return the source's state before the batch in slot s (after: behind it); for DLPI_NO_SLOT
       p->after.source. NULL: the position tells all. */
    const struct dlpi_source_state *(*state)(const dlp_pipe *p, uint32_t s, int after);
    bool no_state_at; /* true: the place of a batch does not follow from its number */
    /* Return the name of a field of the state that has a value which is never saved, or NULL. */
    const char *(*never_saved)(const dlp_pipe *p, const struct dlpi_state *s);
    /* Cells of inputs, if the stage has any (inputs/cells.h). */
    const char *input; /* the name of an input, for errors: "part" */
    /* Try once to load the next input of a cell. Returns 0 or the code of the failure. */
    int (*load)(struct dlpi_worker *w, uint32_t cell);
    /* Try each input of a cell once, up to the first that fails. Returns 0 or its code. Or NULL. */
    int (*many)(struct dlpi_worker *w, uint32_t cell);
    /* Return the most bytes of an input's items in a list, for a cache that keeps inputs, and the
       number of the list's inputs; 0: there is no such list. NULL: no cache can. */
    uint64_t (*keeps)(const dlp_pipe *p, uint32_t list, uint64_t *inputs);
} dlpi_source_ops;

typedef struct dlpi_keeper_ops { /* by workers of the stages up to place p->kept_by */
    /* True if the row's item is kept. A worker of the first stage then writes it into the row. */
    bool (*get)(struct dlpi_worker *w, const struct dlpi_unit *t, uint32_t row);
    /* Keep the row, whose callback is done. used_random: the callback used random numbers. */
    void (*put)(struct dlpi_worker *w, uint32_t s, uint32_t row, bool used_random);
    /* By workers of cells: true if the items of an input of a list are kept. They are written to
       `to` (NULL: not), and their number to *items. */
    bool (*find)(struct dlpi_worker *w, uint32_t list, uint64_t input, uint8_t *to,
                 uint64_t *items);
    /* By workers of cells: keep the items of an input of a list, which lie at `from`. */
    void (*keep)(struct dlpi_worker *w, uint32_t list, uint64_t input, const uint8_t *from,
                 uint64_t items, uint64_t bytes);
} dlpi_keeper_ops;

/* What a stage of rows is to the holder's memory (dlpi_stage.held): bits. */
enum {
    DLPI_HELD_TAKES = 1,   /* a unit gets its memory before its claim here: the first that writes */
    DLPI_HELD_WRITES = 2,  /* writes them; in a mix each stage for the rows of its own items */
    DLPI_HELD_READS = 4,   /* reads them; the memory is freed with the last row of a unit */
    DLPI_HELD_SEES = 8,    /* reads them, before the stage that frees the memory */
    DLPI_HELD_LENGTHS = 16 /* `at` and `written` are called for each row */
};

/* A unit has cells from before its claim in the stage that takes them until just before its last
   row is done in the one that reads: whatever becomes of it in between. */
typedef struct dlpi_holder_ops { /* by workers of the stages that have such a flag */
    bool (*take)(struct dlpi_worker *w, const struct dlpi_unit *t); /* get memory for t; or false */
    /* Give the memory to unit t, which was claimed. NULL: nothing was claimed. */
    void (*claimed)(struct dlpi_worker *w, const struct dlpi_unit *t);
    /* Set w->held for the row's unit, and w->cell of its fields if `at` is not called. */
    void (*cells)(struct dlpi_worker *w, uint32_t s, uint32_t row);
    void (*at)(struct dlpi_worker *w, uint32_t row);     /* add the fields of the row to its item */
    int (*written)(struct dlpi_worker *w, uint32_t row); /* keep the lengths; returns 0 or a code */
    /* Free the memory if these rows (bits of their done word) are the unit's last in this stage. */
    void (*leave)(struct dlpi_worker *w, const struct dlpi_unit *t, uint32_t rows);
    bool (*has)(const dlp_pipe *p, const struct dlpi_unit *t); /* true if the unit has memory */
} dlpi_holder_ops;

/* What a lender has handed out: dlp_pipe.out[v], complete; the books are the core's. */
typedef struct dlpi_handed {
    uint32_t v;     /* number of the batch or view that is handed out */
    uint64_t bytes; /* its bytes */
    uint64_t after; /* global position at which it ends */
} dlpi_handed;

typedef struct dlpi_lender_ops { /* by the consumer; v: number of the batch that is handed out */
    const char *results;         /* the plan's words for the sink's buffers */
    const char *params;          /* for errors of states: the numbers of config; NULL: none */
    bool in_cells; /* a callback writes a whole cell, whose rows the core does not know */
    int (*next)(dlp_pipe *p, dlpi_handed *to, int timeout_ms); /* returns what dlp_pipe_next does */
    void (*drop)(dlp_pipe *p, uint32_t v);                     /* the user gave v back */
    uint32_t (*slot)(const dlp_pipe *p, uint32_t v); /* the slot that has the bytes of v */
    uint64_t (*batches)(const dlp_pipe *p);          /* batches of an epoch */
    void (*state)(const dlp_pipe *p, uint32_t v, struct dlpi_state *to); /* the state after v */
    /* Write the lender's numbers into a state. NULL: it has none. */
    void (*config)(const dlp_pipe *p, struct dlpi_state *s);
    uint64_t (*position)(const dlp_pipe *p, uint64_t epoch, uint64_t k); /* rows before batch k */
    /* Change a state of views into that at which the source goes on. NULL: it is the same. */
    void (*seek)(dlp_pipe *p, struct dlpi_state *s);
    uint64_t (*bytes)(const dlp_pipe *p, uint32_t s, uint32_t field); /* of slot s, for the sink */
    /* Return the bytes of a field in a seam buffer, of which there are n_out; 0: there are none. */
    uint64_t (*seam)(const dlp_pipe *p, uint32_t field);
    uint32_t (*cell)(dlp_pipe *p); /* DLPI_CELLS_STAY: the cell of the scheduler's present batch */
} dlpi_lender_ops;

/* What a lender says of results that stay where the sink has put them (p->stay): by the sink. */
typedef struct dlpi_stay_ops {
    uint32_t (*place)(const dlp_pipe *p, uint32_t s); /* buffer of slot s; DLPI_NO_SLOT: none */
    bool (*left)(const dlp_pipe *p, uint32_t s);      /* true if its batch was left out: not kept */
    /* Return the slot whose cell has the results of slot s for batch b, or DLPI_NO_SLOT. */
    uint32_t (*source)(const dlp_pipe *p, uint32_t s, uint64_t b);
} dlpi_stay_ops;

typedef struct dlpi_sink_ops { /* by the consumer */
    /* Point *t at byte `at` of a field of the batch in slot s. */
    void (*data)(const dlp_pipe *p, uint32_t s, uint32_t field, uint64_t at, dlp_tensor *t);
    void (*freed)(dlp_pipe *p, uint32_t s); /* slot s was given back: free its buffer */
    /* Building: check that join, arrive and seam are possible. Returns 0 or a DLP_ERR code. */
    int (*joins)(dlp_pipe *p);
    /* Begin to copy rows of slot s, from row `from` on, into seam buffer v, to row `row`. */
    int (*join)(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t s, uint64_t from, uint64_t rows);
    int (*arrive)(dlp_pipe *p, uint32_t v, uint64_t until); /* wait until v has all these rows */
    void *(*seam)(const dlp_pipe *p, uint32_t v, uint32_t field); /* address of field in buffer v */
} dlpi_sink_ops;

/* Others than the consumer take batches, too. By whoever schedules; looked at before each batch. */
typedef struct dlpi_sharing_ops {
    const char *words;        /* what the user has asked for by it */
    bool programs;            /* the others are programs */
    int (*keep)(dlp_pipe *p); /* by the scheduler's thread: who came, who went. 1: something has
                                  changed; -1: all is scheduled, and nobody has any of it */
    bool (*may_schedule)(dlp_pipe *p);
    bool (*slot_free)(dlp_pipe *p,
                      uint32_t s);        /* the consumer has given it back: the others, too? */
    uint64_t (*holds)(const dlp_pipe *p); /* slots that they may hold, beside the consumer's */
    bool (*leave)(dlp_pipe *p); /* the consumer is done with the pipe; false: another frees it */
} dlpi_sharing_ops;

/* What stands beside the threads of this process: worker processes and other programs. */
typedef struct dlpi_beside_ops {
    int (*open)(dlp_pipe *p); /* check and copy the desc's fields for them; 0 or a code */
    int (*processes)(dlp_pipe *p, const struct dlpi_stage *st); /* check a stage of processes */
    int (*resolve)(dlp_pipe *p); /* check that the chain of stages allows them; 0 or a code */
    void (*layout)(dlp_pipe *p); /* add their areas of the region */
    int (*begin)(dlp_pipe *p);   /* name the new region, start the processes */
    int (*look)(dlp_pipe *p);    /* while the consumer waits: DLP_OK, or the code of a failure */
    void (*nudge)(dlp_pipe *p);  /* a stop was asked for; in any thread or signal handler */
    void (*await)(dlp_pipe *p);  /* close: wait until no process is left */
    void (*end)(dlp_pipe *p);    /* free what open and begin took */
} dlpi_beside_ops;

/* What a source whose items are read on, by the one worker of a fetch stage, puts into
   the dataset beside its callback: a table that outlives the source, for such a dataset may get
   another callback, around that one or no longer the source's at all. */
typedef struct dlpi_reader {
    const char *words; /* the plan's words for rows kept because a later stage may ask again: one
                          for each row of all slots, of 8 bytes and the fields, rounded up to 8 */
    dlp_item_fn fetch; /* the dataset's callback. The calls below hold if no other replaces it. */
    uint32_t (*writers)(const void *user); /* threads, of any process, that write its items */
    /* Describe in *to the lanes that they write into. Returns how many records lie there. */
    uint64_t (*lanes)(const void *user, dlp_link *to);
    /* Read leading rows of t that nobody has had. Returns how many; fetch reads the others. */
    uint32_t (*read)(void *user, struct dlpi_worker *w, const struct dlpi_unit *t);
    bool (*more)(void *user);                      /* true if fetch need not wait for the next */
    void (*failed)(void *user, const dlp_pipe *p); /* the pipe has an error; by any thread */
} dlpi_reader;

#define DLPI_BLOCKS 130 /* blocks of heap memory of a stage, or of the pipe itself, at most */

enum { DLPI_UNIT_NONE, DLPI_UNIT_ROWS, DLPI_UNIT_BATCHES, DLPI_UNIT_CELLS };

/* What dlp_pipe_explain says of a kind; NULL: as of any stage. */
typedef struct dlpi_kind_words {
    const char *more;    /* the desc's field that gives the stage more workers */
    const char *out;     /* the setting that moves its work from the consumer to a thread */
    const char *many;    /* the setting that gives each worker many items at once */
    const char *slow;    /* advice for a stage that can have only one thread */
    const char *items;   /* name of the items that it makes of inputs; NULL: "items" */
    const char *windows; /* name of the items in its windows; NULL: "items" */
} dlpi_kind_words;

typedef struct dlpi_stage_ops {
    int kind;       /* DLP_STAGE_* */
    int rank;       /* place in a chain: no stage may follow one of a higher rank */
    int many;       /* 1: several stages of this rank may follow each other */
    int begins;     /* 1: a chain begins with it, and a pipe has one */
    int expands;    /* 1: the dataset of the fetch stage after it may leave items out */
    size_t at;      /* offset in dlp_pipe of a pointer to the chain's stage of this kind; 0: none */
    int unit;       /* DLPI_UNIT_*: what a worker claims; cells are the stage's own, not slots' */
    int in_place;   /* 1: it changes batches in their cells */
    int row_by_row; /* 1: rows are claimed one by one, since each row is waited for */
    int in_order;   /* 1: one worker, which takes batches in their order, and never dies */
    int held;       /* it may read the holder's fields: DLPI_HELD_READS, or _SEES; 0: it may not */
    int workers;    /* number of workers if num_workers is 0; 0: the consumer does the work */
    size_t self_bytes;
    size_t program_at; /* offset in self of the program to which later rows add ops; 0: none may */
    /* Building, by the calling thread. The call that adds the stage has checked its desc. These
       calls check it against other stages, once the whole chain is there: plan and start fail. */
    int (*adds)(dlp_pipe *p, struct dlpi_stage *st);   /* count items that the stage adds */
    int (*widens)(dlp_pipe *p, struct dlpi_stage *st); /* then: add its fields, set its scope */
    int (*check)(dlp_pipe *p, struct dlpi_stage *st);
    /* Before check: set how many workers the stage begins with. Returns false if it has no work
       for any. NULL: as its desc says. */
    bool (*staff)(dlp_pipe *p, struct dlpi_stage *st);
    void (*layout)(dlp_pipe *p, struct dlpi_stage *st); /* add its areas of the region */
    /* Write into `text`, for the plan, what the stage does. NULL: its kind tells it. */
    void (*what)(const struct dlpi_stage *st, char *text, size_t size);
    const char *private_words; /* the plan's words for its blocks of heap memory; NULL: no line */
    /* Return the bytes of these blocks that each worker has as room for an item. NULL: none. */
    uint64_t (*room)(const struct dlpi_stage *st);
    /* Describe the stage's blocks of heap memory in out[DLPI_BLOCKS]. Returns how many there are.
       It is called, too, for a refused stage, and for a pipe that is not laid out. */
    int (*blocks)(const dlp_pipe *p, const struct dlpi_stage *st, dlpi_block *out);
    /* Set up the stage, once the region is mapped. It writes there words that observers read. */
    void (*live)(dlp_pipe *p, struct dlpi_stage *st);
    int (*begin)(dlp_pipe *p, struct dlpi_stage *st); /* before threads start */
    void (*end)(dlp_pipe *p, struct dlpi_stage *st);  /* when all workers are gone */
    void (*worker)(struct dlpi_worker *w); /* set up the kind's part of a worker's record */
    /* Work, by a worker of the stage. */
    int (*enter)(struct dlpi_worker *w);  /* after worker_init; returns 0 or the pipe's error */
    void (*leave)(struct dlpi_worker *w); /* before worker_exit */
    bool (*step)(struct dlpi_worker *w); /* do what can be done at once; false: there was nothing */
    bool (*find)(struct dlpi_worker *w, struct dlpi_unit *t); /* claim a unit */
    void (*run)(struct dlpi_worker *w, const struct dlpi_unit *t);
    /* Do leading rows of t that nobody has had, in place of the callback. Returns how many. NULL:
       the callback does each row. */
    uint32_t (*bulk)(struct dlpi_worker *w, const struct dlpi_unit *t);
    /* If the stage has a program, or makes several rows in a call: run rows of t as dlpi_unit_plain
       does. tally: a dlpi_tally. */
    void (*chained)(struct dlpi_worker *w, const struct dlpi_unit *t, void *tally);
    int (*call)(struct dlpi_worker *w, const struct dlpi_unit *t); /* the callback of a batch */
    bool (*full)(const struct dlpi_worker *w); /* it takes no unit, whatever comes */
    bool (*owes)(const struct dlpi_worker *w); /* true if rows or requests are to come back */
    uint64_t (*due)(struct dlpi_worker *w, uint64_t ns); /* ns until it looks again, at most ns */
    /* By the supervisor: give up what dead worker w had. NULL: it had only units of slots. */
    void (*recover)(struct dlpi_worker *w, const struct dlpi_death *why);
    void (*lost)(struct dlpi_worker *w); /* before that, in each stage: any worker w died */
    /* If the stage has several queues of cells: set from, readers and capacity of the queue that
       begins with cell `at`. Returns true if another queue follows. NULL: there is one queue. */
    bool (*cells)(const struct dlpi_stage *st, uint64_t at, dlp_link *to);
    /* Write what is in a cell into `text`: " (part 7)". */
    void (*tell)(const dlp_pipe *p, uint32_t cell, char *text, size_t size);
    /* By observers: read the stage's figures from words of the region, live or copied. Returns
       false if the words are not valid. */
    bool (*seen)(const dlpi_words *words, dlpi_seen *s, int32_t stage);
    dlpi_kind_words words;
    /* Return the workers that a prediction asks for; 0: as measured. NULL: by number alone. */
    int32_t (*foretold)(const dlp_predict_desc *d);
    /* Tables of the roles that the stage has; NULL: it does not have the role. */
    const dlpi_source_ops *source;
    const dlpi_keeper_ops *keeper;
    const dlpi_holder_ops *holder;
    const dlpi_lender_ops *lender;
    const dlpi_sink_ops *sink;
    const dlpi_sharing_ops *sharing;
} dlpi_stage_ops;
