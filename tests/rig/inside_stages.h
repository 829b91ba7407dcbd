/* A pipe, stage by stage: what a table of nodes becomes (open/graph.h). Tests of one stage, and of
   what a stage refuses, need no table around it. As inside.h. */
#ifndef INSIDE_STAGES_H
#define INSIDE_STAGES_H

#include "inside.h"

/* As the library has them. */
typedef struct inside_map_desc {
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    void *user;
    dlp_workers_desc workers;
} inside_map_desc;

typedef struct inside_scratch_desc {
    const dlp_field *fields;
    uint32_t n_fields;
    uint32_t n_cells;
} inside_scratch_desc;

typedef struct inside_guard_desc {
    const struct dlp_guard_field *fields;
    uint32_t n_fields;
    dlp_workers_desc workers;
} inside_guard_desc;

/* What a run says (dlp_pipe_desc), as tests of one stage say it with that stage; 0: the pipe's desc
   says it. Each of these begins as the library's desc does. */
typedef struct inside_sampler_desc {
    int32_t order;
    int32_t threaded;
    uint64_t seed;
    uint64_t samples_per_epoch;
    const uint64_t *subset;
    uint64_t n_subset;
    const uint64_t *weights;
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position);
    void *function_user;
    uint64_t function_id;
    dlp_batch_sampler batches;
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
    uint32_t rank, world_size;
    int32_t allow_uneven;
} inside_sampler_desc;

typedef struct inside_repeat_desc {
    int64_t epochs;
    int32_t epoch_end;
    int (*set_epoch)(void *user, uint64_t epoch);
    void *set_epoch_user;
} inside_repeat_desc;

typedef struct inside_split_desc {        /* needs: split */
    uint64_t chunk_rows;                  /* needs: split */
    uint64_t n_rows;                      /* needs: split */
    const uint64_t *rows;                 /* needs: split */
    uint64_t n_chunks;                    /* needs: split */
    uint32_t batch_size;                  /* needs: split */
    int32_t last;                         /* needs: split */
    int32_t within_chunks;                /* needs: split */
    int32_t shuffle_rows;                 /* needs: split */
    const struct dlp_chunks_desc *chunks; /* needs: split */
    uint32_t rank, world_size;            /* needs: split */
    int32_t allow_uneven;                 /* needs: split */
} inside_split_desc;                      /* needs: split */

/* Each call by its kind, the desc of the tests, and that of the library. */
#define INSIDE_STAGES(STAGE) \
    STAGE(fetch, dlp_fetch_desc, dlp_fetch_desc) \
    STAGE(map, inside_map_desc, dlpi_map_desc) \
    STAGE(batch, dlp_batch_desc, dlp_batch_desc) \
    STAGE(transfer, dlp_transfer_desc, dlp_transfer_desc) \
    STAGE(cache, dlp_cache_desc, dlp_cache_desc)           /* needs: cache */ \
    STAGE(scratch, inside_scratch_desc, dlpi_scratch_desc) /* needs: scratch */ \
    STAGE(guard, inside_guard_desc, dlpi_guard_desc)       /* needs: guard */ \
    STAGE(join, dlp_join_desc, dlp_join_desc)              /* needs: join */

/* A pipe without stages, those that are added to it in their order, and its worker processes. A
   stage that is refused is an error of the pipe's. */
INSIDE int inside_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err);
#define INSIDE_STAGE(kind, type, inner) \
    INSIDE dlp_stage inside_add_##kind(dlp_pipe *p, const type *desc);
INSIDE_STAGES(INSIDE_STAGE)
#undef INSIDE_STAGE
/* Of either type. */
#define inside_add_sampler(p, ...) \
    _Generic((__VA_ARGS__), inside_sampler_desc *: inside_add_ranked, \
             const inside_sampler_desc *: inside_add_ranked, \
             default: inside_add_order)(p, __VA_ARGS__)
INSIDE dlp_stage inside_add_ranked(dlp_pipe *p, const inside_sampler_desc *desc);
INSIDE dlp_stage inside_add_order(dlp_pipe *p, const dlp_sampler_desc *desc);
INSIDE dlp_stage inside_add_repeat(dlp_pipe *p, const inside_repeat_desc *desc);
INSIDE dlp_stage inside_add_split(dlp_pipe *p, const inside_split_desc *desc); /* needs: split */
/* A later fetch that runs in the attempt of stage `of`. */
INSIDE int inside_chain_fetch(dlp_pipe *p, dlp_stage of, const dlp_dataset *dataset);
INSIDE int inside_pipe_fork(dlp_pipe *p);

#ifdef DLPIPE_IMPLEMENTATION_DONE

INSIDE int inside_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err) {
    return dlpi_pipe_make(out, desc, err);
}

#define INSIDE_STAGE(kind, type, inner) \
    _Static_assert(sizeof(type) == sizeof(inner), "desc of " #kind); \
    INSIDE dlp_stage inside_add_##kind(dlp_pipe *p, const type *desc) { \
        return dlpi_add_##kind(p, (const inner *)(const void *)desc); \
    }
INSIDE_STAGES(INSIDE_STAGE)
#undef INSIDE_STAGE

#define INSIDE_SAY(f) \
    if (desc->f) p->d.f = desc->f
#define INSIDE_RANKS \
    INSIDE_SAY(rank); \
    INSIDE_SAY(world_size); \
    INSIDE_SAY(allow_uneven)
INSIDE dlp_stage inside_add_ranked(dlp_pipe *p, const inside_sampler_desc *desc) {
    INSIDE_RANKS;
    return dlpi_add_sampler(p, (const dlp_sampler_desc *)(const void *)desc);
}

INSIDE dlp_stage inside_add_order(dlp_pipe *p, const dlp_sampler_desc *desc) {
    return dlpi_add_sampler(p, desc);
}

INSIDE dlp_stage inside_add_repeat(dlp_pipe *p, const inside_repeat_desc *desc) {
    INSIDE_SAY(epochs);
    INSIDE_SAY(epoch_end);
    INSIDE_SAY(set_epoch);
    INSIDE_SAY(set_epoch_user);
    return dlpi_add_repeat(p);
}

INSIDE dlp_stage inside_add_split(dlp_pipe *p, const inside_split_desc *desc) { /* needs: split */
    INSIDE_RANKS;                                                               /* needs: split */
    return dlpi_add_split(p, (const dlp_split_desc *)(const void *)desc);       /* needs: split */
} /* needs: split */

INSIDE int inside_chain_fetch(dlp_pipe *p, dlp_stage of, const dlp_dataset *d) {
    return dlpi_chain_add(
        p, &p->stages[of],
        &(dlpi_chained){.call = d->fetch, .user = d->user, .own = d->n_fields, .name = "chained"},
        d->fields, d->n_fields);
}

INSIDE int inside_pipe_fork(dlp_pipe *p) { return p->prepared ? p->err.code : dlpi_prepare(p); }

#endif
#include "inside_cells.h" /* needs: parts */
#endif
