/* needs: parts */
/* Stages that load parts, or make items of inputs: of inside_stages.h. */
#ifndef INSIDE_CELLS_H
#define INSIDE_CELLS_H

typedef struct inside_part_desc {
    uint64_t n_parts;
    const uint64_t *items;
    int (*count)(void *user, uint64_t part, uint64_t *items);
    uint64_t manifest_id;
    uint64_t max_part_bytes;
    uint32_t queue_size;
    int32_t shuffle_parts;
    int32_t shuffle_items;
    dlp_part_fn load;
    void *user;
    dlp_workers_desc workers;
    uint64_t max_items;
    uint64_t min_items;
    uint32_t window;
    const uint64_t *weights;
    const struct dlp_source *source;
    uint32_t streams;
    int64_t steps_per_epoch;
    int32_t uneven, shared_streams;
    int64_t (*agree)(void *user, int64_t mine, int most);
    void *agree_user;
} inside_part_desc;

typedef struct inside_expand_desc {
    int (*expand)(void *user, dlp_expand *x);
    void *user;
    const dlp_field *fields;
    uint32_t n_fields;
    uint32_t max_out;
    int32_t shuffle_items;
    uint64_t id;
    dlp_workers_desc workers;
    uint32_t queue_size;
    uint32_t window;
    uint32_t streams;
    int64_t steps_per_epoch;
    int32_t uneven, shared_streams;
    int64_t (*agree)(void *user, int64_t mine, int most);
    void *agree_user;
} inside_expand_desc;

typedef struct inside_pack_desc {                         /* needs: pack */
    uint32_t tokens;                                      /* needs: pack */
    int32_t rule;                                         /* needs: pack */
    uint32_t overlap;                                     /* needs: pack */
    uint32_t max_segments;                                /* needs: pack */
    uint32_t window;                                      /* needs: pack */
    int32_t longer;                                       /* needs: pack */
    int32_t positions;                                    /* needs: pack */
    uint64_t id;                                          /* needs: pack */
    uint32_t min_documents;                               /* needs: pack */
    dlp_workers_desc workers;                             /* needs: pack */
    uint32_t queue_size;                                  /* needs: pack */
    uint32_t streams;                                     /* needs: pack */
    int64_t steps_per_epoch;                              /* needs: pack */
    int32_t uneven, shared_streams;                       /* needs: pack */
    int64_t (*agree)(void *user, int64_t mine, int most); /* needs: pack */
    void *agree_user;                                     /* needs: pack */
} inside_pack_desc;                                       /* needs: pack */

_Static_assert(offsetof(inside_part_desc, streams) + 7 >= sizeof(dlp_part_desc) &&
                   offsetof(inside_expand_desc, workers) == sizeof(dlp_expand_desc),
               "they begin as the library's");
_Static_assert(offsetof(inside_pack_desc, workers) == sizeof(dlp_pack_desc), /* needs: pack */
               "it begins as the library's");                                /* needs: pack */
INSIDE dlp_stage inside_add_parts(dlp_pipe *p, const inside_part_desc *desc);
INSIDE dlp_stage inside_add_expand(dlp_pipe *p, const inside_expand_desc *desc);
INSIDE dlp_stage inside_add_pack(dlp_pipe *p, const inside_pack_desc *desc); /* needs: pack */

#ifdef DLPIPE_IMPLEMENTATION_DONE

#define INSIDE_RUN \
    INSIDE_SAY(streams); \
    INSIDE_SAY(steps_per_epoch); \
    INSIDE_SAY(uneven); \
    INSIDE_SAY(shared_streams); \
    INSIDE_SAY(agree); \
    INSIDE_SAY(agree_user)

INSIDE dlp_stage inside_add_parts(dlp_pipe *p, const inside_part_desc *desc) {
    INSIDE_RUN;
    return dlpi_add_parts(p, (const dlp_part_desc *)(const void *)desc);
}

INSIDE dlp_stage inside_add_expand(dlp_pipe *p, const inside_expand_desc *desc) {
    const dlpi_cells_desc cells = {desc->workers, desc->queue_size, desc->window};
    INSIDE_RUN;
    return dlpi_add_expand(p, (const dlp_expand_desc *)(const void *)desc, &cells);
}

INSIDE dlp_stage inside_add_pack(dlp_pipe *p, const inside_pack_desc *desc) {   /* needs: pack */
    const dlpi_cells_desc cells = {desc->workers, desc->queue_size, 0};         /* needs: pack */
    INSIDE_RUN;                                                                 /* needs: pack */
    return dlpi_add_pack(p, (const dlp_pack_desc *)(const void *)desc, &cells); /* needs: pack */
} /* needs: pack */

#endif
#endif
