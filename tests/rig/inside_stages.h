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

/* Each call by its kind, the desc of the tests, and that of the library. */
#define INSIDE_STAGES(STAGE) \
    STAGE(sampler, dlp_sampler_desc, dlp_sampler_desc) \
    STAGE(repeat, dlp_repeat_desc, dlp_repeat_desc) \
    STAGE(fetch, dlp_fetch_desc, dlp_fetch_desc) \
    STAGE(map, inside_map_desc, dlpi_map_desc) \
    STAGE(batch, dlp_batch_desc, dlp_batch_desc) \
    STAGE(transfer, dlp_transfer_desc, dlp_transfer_desc) \
    STAGE(cache, dlp_cache_desc, dlp_cache_desc)           /* needs: cache */ \
    STAGE(split, dlp_split_desc, dlp_split_desc)           /* needs: split */ \
    STAGE(parts, dlp_part_desc, dlp_part_desc)             /* needs: parts */ \
    STAGE(expand, dlp_expand_desc, dlp_expand_desc)        /* needs: parts */ \
    STAGE(pack, dlp_pack_desc, dlp_pack_desc)              /* needs: parts pack */ \
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

INSIDE int inside_pipe_fork(dlp_pipe *p) { return p->prepared ? p->err.code : dlpi_prepare(p); }

#endif
#endif
