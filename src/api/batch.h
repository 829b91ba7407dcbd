#pragma once
#include "api/dataset.h"
/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CONSUMER GETS */

/* One field of a batch. shape, dtype and data are what a DLTensor of DLPack needs; the strides are
   those of a dense array in C order. */
typedef struct dlp_tensor {
    const char *name;
    void *data;     /* the array, aligned to 64 bytes; each row is aligned to its dtype. After a
                                     transfer stage: where the device's alloc put the array */
    uint64_t bytes; /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS]; /* [count, item shape...], or as a collate set it */
    const uint64_t *lengths;     /* [count] rows of each item, in host memory; NULL: not ragged */
    const uint64_t *offsets;     /* [count + 1] row where each item begins, in host memory; NULL:
                                     not packed */
    uint64_t byte_offset;        /* bytes from data to the array, for views into a chunk on a device
                                     whose addresses are handles; else 0 */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch that is lent to the consumer until its release. The consumer may write to the data of its
   fields until then. Behind the rows of a ragged item it may pad: from the first byte behind them
   on. If the first 64 bytes of this padding are zeros, all of it must be zeros, since the library
   looks at these bytes alone before it clears the rest. A batch map may do the same. The consumer
   must not change the members of this struct. */
typedef struct dlp_batch {
    uint64_t sequence; /* number in the life of the pipe, from 0, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;    /* place of the first row in the global order of the epoch */
    uint64_t in_epoch;    /* number of the batch in its epoch */
    uint32_t count;       /* rows; 0 only if ranks share a short batch */
    uint32_t valid_count; /* rows with valid[] = 1 */
    uint32_t flags;       /* DLP_BATCH_LAST, or 0 */
    uint32_t n_fields;
    const dlp_tensor *fields; /* [n_fields] */
    const uint64_t *index;    /* [count] dataset index of each row */
    /* With dlp_pipe_desc.trace_rows: where each row came from. NULL without it, in views of chunks,
       and behind a pack, as a packed row is made of several items. A retried or replaced row tells
       of the item that stands there. A row with valid[] = 0 may have zeros.
       list: which list or push of the table, from 0 on in the table's order; for a zip the
       first of it. If the one list has a mix, or a sampler made by dlp_mix_sampler: the dataset.
       Buckets over a mix: 0, unless list.mix names the mix, too.
       number: of the item, from 0 on, among those that the last load or expand has made of the
       input that `index` names. Filters leave out items, not numbers. 0: no load or expand makes
       items. Shuffled items of a load before an expand are counted in the order of the pass.
       Behind a zip or mix a maker there counts, or else those of the first branch. */
    const uint32_t *number; /* [count] */
    const uint16_t *list;   /* [count] */
    const uint8_t *valid;   /* [count] 1: the row has an item; 0: padding, or an item left out
                                 (DLP_ON_ERROR_DROP, DLP_SKIP) */
    dlp_call *call;         /* for dlp_fail, in a batch map; else NULL */
    void *internal;
    /* The pipe's record, for dlp_batch_data. NULL in a batch map and in a subscriber's batch. */
    dlp_error *error;
} dlp_batch;

/* Return the data of a field, if the field has this name and this dtype. Each dtype has a macro
   that returns a pointer of its type:
     const float *x = dlp_f32(batch, "x");   // [count][the shape of an item]
   Half floats, of DLP_F16 and DLP_BF16, are uint16_t, and DLP_BOOL is uint8_t. After a transfer
   stage the data lie on the device.
   batch: held by the caller, or of a running batch map.
   Returns NULL if no field has the name, if its dtype is another, or if the device has handles in
   place of addresses (byte_offset). Then dlp_pipe_error tells it until the next call of next. In a
   batch map it is the message of dlp_fail. Consumer, or in a batch map. Does not wait or allocate.
   */
DLPDEF void *dlp_batch_data(const dlp_batch *batch, const char *name, dlp_dtype dtype);

#define dlp_u8(batch, name) ((uint8_t *)dlp_batch_data(batch, name, DLP_U8))
#define dlp_u16(batch, name) ((uint16_t *)dlp_batch_data(batch, name, DLP_U16))
#define dlp_u32(batch, name) ((uint32_t *)dlp_batch_data(batch, name, DLP_U32))
#define dlp_u64(batch, name) ((uint64_t *)dlp_batch_data(batch, name, DLP_U64))
#define dlp_i8(batch, name) ((int8_t *)dlp_batch_data(batch, name, DLP_I8))
#define dlp_i16(batch, name) ((int16_t *)dlp_batch_data(batch, name, DLP_I16))
#define dlp_i32(batch, name) ((int32_t *)dlp_batch_data(batch, name, DLP_I32))
#define dlp_i64(batch, name) ((int64_t *)dlp_batch_data(batch, name, DLP_I64))
#define dlp_f16(batch, name) ((uint16_t *)dlp_batch_data(batch, name, DLP_F16))
#define dlp_f32(batch, name) ((float *)dlp_batch_data(batch, name, DLP_F32))
#define dlp_f64(batch, name) ((double *)dlp_batch_data(batch, name, DLP_F64))
#define dlp_bf16(batch, name) ((uint16_t *)dlp_batch_data(batch, name, DLP_BF16))
#define dlp_bool(batch, name) ((uint8_t *)dlp_batch_data(batch, name, DLP_BOOL))
