#pragma once
/* tests: system/core/fetchers, system/shm/shm_fetchers */
#include "work/recover.h"
#include "work/workers.h"
/* ---- the records of units that a worker has several of at once, and of a fetch stage ---- */

#define DLPI_WHOLE (UINT32_MAX - 1) /* the row of an attempt at a cell: DLPI_RUNS_ROW names all */

typedef struct dlpi_attempt { /* an attempt at a unit that a worker has claimed: a row, or a cell */
    dlp_item item;            /* first: the source gives back this address */
    dlpi_item_arrays fields;  /* those of the item */
    dlp_call note;
    char message[256];
    int32_t errnum;
    int32_t code;       /* what the item came to in a thread, or as the source says */
    uint64_t gen;       /* number of the row's batch, or ticket of the cell */
    uint32_t slot, row; /* of a cell: its number, DLPI_WHOLE */
    uint64_t since_ns;  /* time at which its callback or request began; 0: it did not */
    uint32_t in;        /* the list that it is in: DLPI_ATTEMPT_* */
    struct dlpi_attempt *next, *prev;
    void *extra; /* [source->row_bytes] */
} dlpi_attempt;

typedef struct dlpi_attempt_list {
    dlpi_attempt *first, *last;
    uint32_t n;
} dlpi_attempt_list;

enum {
    DLPI_ATTEMPT_FREE,
    DLPI_ATTEMPT_WAITS, /* until it is sent */
    DLPI_ATTEMPT_OUT,   /* its source has it */
    DLPI_ATTEMPT_BACK,  /* its source gave it back */
    DLPI_ATTEMPT_LISTS
};

/* What differs by the unit of attempts: dlpi_rows_units, dlpi_cells_units. */
typedef struct dlpi_unit_ops {
    bool whole; /* units are cells, and others are claimed and read before items are made of one */
    bool (*find)(dlpi_worker *w, dlpi_unit *t); /* claim a unit, if there is one */
    /* Let a free attempt take a unit that was claimed just now, unless the unit is done. */
    void (*take)(dlpi_worker *w, const dlpi_unit *t);
    bool (*full)(const dlpi_worker *w); /* it has no room for one more unit; NULL: it always has */
    uint32_t (*fate)(const dlpi_worker *w, const dlpi_attempt *a); /* DLPI_FATE_* of its unit */
    /* Prepare the item for its source. Or end the attempt without it, and return true. */
    bool (*ready)(dlpi_worker *w, dlpi_attempt *a, uint32_t fate);
    void (*refused)(dlpi_worker *w, const dlpi_attempt *a); /* the source has no room: take back */
    void (*ended)(dlpi_worker *w, dlpi_attempt *a, int code);  /* code: what the source returned */
    void (*show)(const dlpi_worker *w, const dlpi_attempt *a); /* to observers: which item it is */
} dlpi_unit_ops;

/* The threads of a worker with DLP_FETCH_THREADS, and what they are to do. */
typedef struct dlpi_fetch_threads {
    dlpi_mutex lock;          /* guards all fields of the worker while rows are out */
    bool full;                /* the worker fell asleep without room for rows: it sleeps long */
    bool parked;              /* a row was parked since it fell asleep */
    uint32_t word;            /* W2 futex: the worker sleeps on it */
    dlpi_mutex todo_lock;     /* guards todo, n_todo and n_begun */
    dlpi_cond come;           /* signalled if `todo` has an attempt, or the threads must end */
    dlpi_attempt **todo;      /* [n_all] ring of attempts that no thread has begun */
    uint64_t n_todo, n_begun; /* attempts put into the ring, and taken from it, so far */
    int over;                 /* 1: the threads must end; changed under both locks */
    uint32_t n_threads;
    dlpi_thread *threads; /* [n_all] */
} dlpi_fetch_threads;

typedef struct dlpi_in_flight { /* the units of one worker that are under way */
    const dlpi_unit_ops *units;
    const dlp_async *async;   /* the source; NULL: the worker's threads */
    void *user;               /* of the source */
    const void *by;           /* the source of the cells, a dlpi_expand, or NULL */
    const void *later;        /* the later fetch that makes the requests, a dlpi_later, or NULL */
    const dlpi_attempt *made; /* the attempt at a cell of which items are made, or NULL */
    const void *at;           /* the later fetch at which that cell is, or NULL */
    dlpi_attempt *all;        /* [n_all] */
    uint64_t *at_once;        /* X2 [n_all] the part of the worker's at_once for these attempts */
    uint32_t n_all, most;     /* attempts; how many of them the source may have */
    dlpi_attempt_list list[DLPI_ATTEMPT_LISTS];
    uint64_t oldest;  /* oldest batch that has a row here */
    bool oldest_left; /* a row of that batch was done, so `oldest` must be computed again */
    bool broken;      /* the source has failed */
    struct dlpi_in_flight *head,
        *next; /* the record of the worker's first seat; of the next seat */
    /* in the head, of all seats: */
    uint32_t n_busy; /* attempts that sources have, or gave back; of a later fetch also those that
                        wait */
    bool exclusive;  /* one unit is out alone, as it may kill */
    dlpi_fetch_threads threads;
} dlpi_in_flight;

typedef struct dlpi_fetch { /* the record of a stage that fetches */
    dlp_source d;
    dlp_dataset dataset;
    dlpi_in_flight *workers; /* [n_workers] if workers have several rows in flight; else NULL */
    dlpi_attempt *attempts;  /* memory of all workers for these lists, and below */
    dlpi_parked *parked;
    dlpi_attempt **todo;
    dlpi_thread *threads;
    dlpi_seeing seeing;
    uint8_t *runs; /* with a fetch_rows: a dlpi_many of each worker */
} dlpi_fetch;

/* True if a worker of the stage has one callback at a time: it has no threads in flight. */
static bool dlpi_one_at_once(const dlpi_stage *st) {
    return st->in_flight == 0 || st->item == NULL;
}

/* True if a callback of the stage, or of a row in its attempts, has a deadline. */
static inline bool dlpi_stage_limits(const dlpi_stage *st) {
    return (st->w.deadline_ms | st->timed) != 0;
}

static inline const dlpi_fetch *dlpi_fetch_of(const dlpi_worker *w) { return w->st->self; }
static inline dlpi_in_flight *dlpi_in_flight_of(const dlpi_worker *w) { return w->self; }

/* Return how many attempts the source has. */
static inline uint32_t dlpi_attempts_out(const dlpi_in_flight *in) {
    return in->list[DLPI_ATTEMPT_OUT].n;
}
