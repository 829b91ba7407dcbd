/* needs: parts split join scratch guard cache pack tokens arrays files lines pictures */
/* Each field of each desc, with a value that no wiring of tests/system/open/fields.c has there.
   tests/system/open/fields_listed.sh holds the list against the structs of src/api. */
#ifndef FIELDS_H
#define FIELDS_H

#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

/* What a walk wants of a field. */
enum {
    EVERYWHERE,   /* in each wiring that has the desc it changes what is seen, or is refused */
    IN_ANY_WORDS, /* the same, but an error may name another: it is a whole desc, or its length */
    SOMEWHERE,    /* in one of them: alone it says nothing, as the user of a callback */
};

typedef struct field_row {
    const char *type, *name;
    size_t offset, size;
    const void *value; /* [size] */
    int rule;
} field_row;

#define FIELD_AT(type, field) #type, #field, offsetof(type, field), sizeof((type *)0)->field
#define VALUE(type, field, ...) \
    { FIELD_AT(type, field), &(const __typeof__(((type *)0)->field)){__VA_ARGS__}, EVERYWHERE }
#define WITH(type, field, ...) \
    { FIELD_AT(type, field), &(const __typeof__(((type *)0)->field)){__VA_ARGS__}, SOMEWHERE }

#define WHOLE(type, field, ...) \
    { FIELD_AT(type, field), &(const __typeof__(((type *)0)->field)){__VA_ARGS__}, IN_ANY_WORDS }

/* Of a row of a table. */
#define INNER VALUE
#define INNER_WITH WITH
#define INNER_WHOLE WHOLE

/* Fields that end, and the cells that they lie in. */
typedef struct walked_ends {
    const dlp_field *fields;
    uint32_t n_fields, n_cells;
} walked_ends;
typedef dlp_node_queue transfer_queue;

/* A second fetch. how: 1: its items are those of a mix. */
typedef struct walked_join {
    dlp_source fetch;
    int32_t how;
} walked_join;

static int walk_salt_ = 1; /* what user pointers of rows point to */
#define USER &walk_salt_

static int other_item(void *user, dlp_item *it);
static int other_batch(void *user, dlp_batch *b, void *state);
static int other_collate(void *user, dlp_collate *c);
static int other_init(void *user, int worker, void **state);
static void other_exit(void *user, int worker, void *state);
static int other_tell(void *user, char *buf, size_t size);
static uint64_t other_function(void *user, uint64_t epoch, uint64_t position);
static uint64_t other_replacement(void *user, uint64_t epoch, uint64_t position, uint64_t random);
static int other_set_epoch(void *user, uint64_t epoch);
static void other_log(void *user, const char *message);
static int other_count(void *user, uint64_t part, uint64_t *items);
static int other_load(void *user, dlp_part *part);
static int64_t other_agree(void *user, int64_t mine, int most);
static int other_expand(void *user, dlp_expand *x);
static int other_keep(void *user, const dlp_item *it);
static int other_chunk(void *user, dlp_chunk *c);
static const void *other_rows_at(void *user, uint64_t chunk, uint32_t field);
static int64_t other_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
static int other_begin(void *user, uint64_t epoch);
static int other_save(void *user, void *bytes);
static int other_restore(void *user, const void *bytes, size_t n);
static const char *other_why(void *user);
static int other_locate(void *user, const dlp_item *item, dlp_extent *out);
static int other_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n);
static uint32_t other_length(void *user, uint64_t index);

static const dlp_field other_fields_[8] = {{"p", DLP_U16, 1, {5}, 0, 0},
                                           {"q", DLP_I32, 0, {0}, 0, 0}};
static const uint64_t other_numbers_[64] = {2, 3, 5, 1, 4, 2, 2, 6, 1, 1, 3, 4, 2, 7, 1, 2,
                                            2, 3, 5, 1, 4, 2, 2, 6, 1, 1, 3, 4, 2, 7, 1, 2};
static const uint32_t other_lengths_[64] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 9, 9, 9, 1, 1, 2, 2};
static const int32_t other_cpus_[2] = {0, 0};
static const dlp_identity other_identity_ = {.names = 5, .order = 6, .sizes = 7, .content = 8};
static dlp_budget other_budget_;
static dlp_state other_state_; /* after a batch of the same wiring */
static dlp_shm_desc other_shm_;
static const dlp_counter other_counters_[1] = {{"load", "%", 100}};
static const dlp_guard_field other_guards_[2] = {{"g", 0, 3, 0, 0}, {"g", 0, 0, 1, 1}};
static const dlp_sampler_desc other_order_ = {.order = DLP_ORDER_REPLACEMENT, .seed = 77};
static dlp_dataset other_dataset_;
static dlp_device other_device_;
static dlp_node other_row_;
static const char *other_paths_[64];

static const field_row rows_[] = {
    VALUE(dlp_field, name, "other"),
    VALUE(dlp_field, dtype, DLP_U16),
    VALUE(dlp_field, ndim, 0),
    VALUE(dlp_field, shape, 2, 2),
    VALUE(dlp_field, ragged, 1),
    WITH(dlp_field, max_per_batch, 6),

    VALUE(dlp_dataset, n_items, 19),
    WHOLE(dlp_dataset, fields, other_fields_),
    WHOLE(dlp_dataset, n_fields, 2),
    VALUE(dlp_dataset, writes_all_bytes, 1),
    VALUE(dlp_dataset, fetch, other_item),
    VALUE(dlp_dataset, user, USER),
    VALUE(dlp_dataset, open_end, 1),
    VALUE(dlp_dataset, filter, 1),
    VALUE(dlp_dataset, warning, "a warning"),
    VALUE(dlp_dataset, worker_bytes, 4096),

    VALUE(dlp_workers_desc, num_workers, 3),
    VALUE(dlp_workers_desc, placement, 7),
    WITH(dlp_workers_desc, dispatch, DLP_DISPATCH_BATCHES),
    VALUE(dlp_workers_desc, on_error, DLP_ON_ERROR_DROP),
    VALUE(dlp_workers_desc, retries, 1),
    WITH(dlp_workers_desc, retry_backoff_ms, 100),
    WITH(dlp_workers_desc, max_skips, 1),
    VALUE(dlp_workers_desc, deadline_ms, 8),
    WITH(dlp_workers_desc, idempotent, 1),
    VALUE(dlp_workers_desc, worker_init, other_init),
    VALUE(dlp_workers_desc, worker_exit, other_exit),
    WITH(dlp_workers_desc, worker_user, USER),
    VALUE(dlp_workers_desc, affinity, other_cpus_),
    VALUE(dlp_workers_desc, n_affinity, 2),
    VALUE(dlp_workers_desc, consumer_helps, 1),
    VALUE(dlp_workers_desc, stack_bytes, 1 << 20),
    VALUE(dlp_workers_desc, name, "renamed"),
    VALUE(dlp_workers_desc, workers_min, 1),
    VALUE(dlp_workers_desc, workers_max, 5),
    VALUE(dlp_workers_desc, tell, other_tell),

    WHOLE(dlp_source, dataset, &other_dataset_),
    VALUE(dlp_source, fetcher, DLP_FETCH_THREADS),
    VALUE(dlp_source, in_flight, 5),
    VALUE(dlp_source, batch_pool, 9),

    INNER_WHOLE(walked_join, how, 1),

    INNER(dlp_node_map, item, other_item),
    INNER(dlp_node_map, batch, other_batch),
    INNER(dlp_node_map, user, USER),
    INNER(dlp_node_map, ends, "x"),
    INNER(dlp_node_filter, keep, other_keep),
    INNER(dlp_node_filter, id, 3),
    INNER(dlp_node_batch, batch_size, 6),
    INNER(dlp_node_batch, last, DLP_LAST_DROP),
    INNER(dlp_node_batch, collate, other_collate),
    INNER_WITH(dlp_node_batch, collate_user, USER),
    INNER(dlp_node_batch, out_fields, other_fields_),
    INNER(dlp_node_batch, n_out_fields, 2),
    INNER(dlp_node_batch, copy_workers, 1),
    INNER(dlp_node_transfer, device, &other_device_),
    INNER(transfer_queue, capacity, 4),
    INNER(walked_ends, fields, other_fields_),
    INNER(walked_ends, n_fields, 2),
    INNER(walked_ends, n_cells, 1),
    INNER(dlp_node_guard, fields, other_guards_),
    INNER(dlp_node_guard, n_fields, 2),

    VALUE(dlp_sampler_desc, order, DLP_ORDER_REPLACEMENT),
    VALUE(dlp_sampler_desc, threaded, 1),
    VALUE(dlp_sampler_desc, seed, 99),
    VALUE(dlp_sampler_desc, samples_per_epoch, 13),
    VALUE(dlp_sampler_desc, subset, other_numbers_),
    VALUE(dlp_sampler_desc, n_subset, 7),
    VALUE(dlp_sampler_desc, weights, other_numbers_),
    VALUE(dlp_sampler_desc, function, other_function),
    WITH(dlp_sampler_desc, function_user, USER),
    VALUE(dlp_sampler_desc, function_id, 5),
    VALUE(dlp_sampler_desc, replacement, other_replacement),

    VALUE(dlp_batch_sampler, next, other_next),
    VALUE(dlp_batch_sampler, begin, other_begin),
    VALUE(dlp_batch_sampler, save, other_save),
    VALUE(dlp_batch_sampler, restore, other_restore),
    WITH(dlp_batch_sampler, user, USER),
    WITH(dlp_batch_sampler, why, other_why),

    VALUE(dlp_pipe_desc, prefetch_factor, 5),
    VALUE(dlp_pipe_desc, max_held, 4),
    WITH(dlp_pipe_desc, unordered, 1),
    VALUE(dlp_pipe_desc, limit_bytes, 4096),
    VALUE(dlp_pipe_desc, budget, &other_budget_),
    VALUE(dlp_pipe_desc, trace_bytes, 16384),
    VALUE(dlp_pipe_desc, no_memfd, 1),
    VALUE(dlp_pipe_desc, resume, &other_state_),
    VALUE(dlp_pipe_desc, log, other_log),
    WITH(dlp_pipe_desc, log_user, USER),
    VALUE(dlp_pipe_desc, shm, &other_shm_),
    VALUE(dlp_pipe_desc, counters, other_counters_),
    VALUE(dlp_pipe_desc, n_counters, 1),
    /* of the run: some of it says nothing of items of known count, alone */
    WITH(dlp_pipe_desc, later, 1),
    WITH(dlp_pipe_desc, streams, 2),
    WITH(dlp_pipe_desc, seed, 5),
    WITH(dlp_pipe_desc, epochs, 3),
    WITH(dlp_pipe_desc, steps_per_epoch, 2),
    VALUE(dlp_pipe_desc, epoch_end, 1),
    WITH(dlp_pipe_desc, allow_uneven, 1),
    WITH(dlp_pipe_desc, uneven, 1),
    WITH(dlp_pipe_desc, shared_streams, 1),
    VALUE(dlp_pipe_desc, rank, 1),
    VALUE(dlp_pipe_desc, world_size, 2),
    VALUE(dlp_pipe_desc, set_epoch, other_set_epoch),
    WITH(dlp_pipe_desc, set_epoch_user, USER),
    WITH(dlp_pipe_desc, agree, other_agree),
    WITH(dlp_pipe_desc, agree_user, USER),

    VALUE(dlp_node_cache, bytes, 600),

    VALUE(dlp_guard_field, name, "x"),
    VALUE(dlp_guard_field, low, 1),
    VALUE(dlp_guard_field, high, 2),
    VALUE(dlp_guard_field, allow_nan, 1),
    VALUE(dlp_guard_field, allow_inf, 1),

    VALUE(dlp_node_split, chunk_rows, 2),
    VALUE(dlp_node_split, n_rows, 41),
    VALUE(dlp_node_split, rows, other_numbers_),
    VALUE(dlp_node_split, n_chunks, 5),
    VALUE(dlp_node_split, batch_size, 5),
    VALUE(dlp_node_split, last, DLP_LAST_DROP),
    VALUE(dlp_node_split, within_chunks, 1),
    VALUE(dlp_node_split, shuffle_rows, 1),

    VALUE(dlp_node_load, n_parts, 5),
    VALUE(dlp_node_load, items, other_numbers_),
    VALUE(dlp_node_load, count, other_count),
    VALUE(dlp_node_load, manifest_id, 3),
    VALUE(dlp_node_load, max_part_bytes, 9000),
    VALUE(dlp_node_load, queue_size, 40),
    VALUE(dlp_node_load, shuffle_parts, 1),
    VALUE(dlp_node_load, shuffle_items, 1),
    VALUE(dlp_node_load, load, other_load),
    VALUE(dlp_node_load, user, USER),
    VALUE(dlp_node_load, max_items, 7),
    VALUE(dlp_node_load, min_items, 2),
    VALUE(dlp_node_load, window, 5),
    VALUE(dlp_node_load, weights, other_numbers_),

    VALUE(dlp_node_expand, expand, other_expand),
    WITH(dlp_node_expand, user, USER),
    VALUE(dlp_node_expand, fields, other_fields_),
    VALUE(dlp_node_expand, n_fields, 1),
    VALUE(dlp_node_expand, max_out, 9),
    VALUE(dlp_node_expand, shuffle_items, 1),
    VALUE(dlp_node_expand, id, 3),
    VALUE(dlp_node_expand, writes_all_bytes, 1),
    VALUE(dlp_node_expand, max_bytes, 20),

    VALUE(dlp_node_pack, tokens, 9),
    VALUE(dlp_node_pack, rule, DLP_PACK_FIT),
    VALUE(dlp_node_pack, overlap, 1),
    VALUE(dlp_node_pack, max_segments, 3),
    VALUE(dlp_node_pack, window, 3),
    VALUE(dlp_node_pack, longer, DLP_PACK_LONGER_DROP),
    VALUE(dlp_node_pack, positions, 1),
    VALUE(dlp_node_pack, id, 3),
    VALUE(dlp_node_pack, min_documents, 2),

    VALUE(dlp_loader_desc, batch_size, 6),
    VALUE(dlp_loader_desc, num_workers, 3),
    VALUE(dlp_loader_desc, shuffle, 1),
    VALUE(dlp_loader_desc, drop_last, 1),
    VALUE(dlp_loader_desc, epochs, 3),
    VALUE(dlp_loader_desc, seed, 99),
    VALUE(dlp_loader_desc, topology, DLP_TOPOLOGY_CLASSIC),
    VALUE(dlp_loader_desc, fetcher, DLP_FETCH_THREADS),
    VALUE(dlp_loader_desc, in_flight, 5),
    VALUE(dlp_loader_desc, batch_pool, 9),
    VALUE(dlp_loader_desc, collate, other_collate),
    VALUE(dlp_loader_desc, out_fields, other_fields_),
    VALUE(dlp_loader_desc, n_out_fields, 2),
    VALUE(dlp_loader_desc, device, &other_device_),
    VALUE(dlp_loader_desc, device_buffers, 4),
    VALUE(dlp_loader_desc, transfer_thread, 1),
    VALUE(dlp_loader_desc, rows, &other_row_),
    VALUE(dlp_loader_desc, n_rows, 1),

    VALUE(dlp_chunks_desc, n_items, 37),
    VALUE(dlp_chunks_desc, fields, other_fields_),
    VALUE(dlp_chunks_desc, n_fields, 1),
    VALUE(dlp_chunks_desc, writes_all_bytes, 1),
    VALUE(dlp_chunks_desc, chunk_rows, 6),
    VALUE(dlp_chunks_desc, rows, other_numbers_),
    VALUE(dlp_chunks_desc, n_chunks, 5),
    VALUE(dlp_chunks_desc, batch_size, 6),
    VALUE(dlp_chunks_desc, last, DLP_LAST_DROP),
    VALUE(dlp_chunks_desc, within_chunks, 1),
    VALUE(dlp_chunks_desc, shuffle_chunks, 1),
    VALUE(dlp_chunks_desc, shuffle_rows, 1),
    VALUE(dlp_chunks_desc, load, other_chunk),
    VALUE(dlp_chunks_desc, user, USER),
    VALUE(dlp_chunks_desc, cpu_buffers, 6),
    VALUE(dlp_chunks_desc, device_buffers, 4),
    VALUE(dlp_chunks_desc, device, &other_device_),
    VALUE(dlp_chunks_desc, transfer_inline, 1),
    VALUE(dlp_chunks_desc, preload, DLP_PRELOAD_CPU),
    VALUE(dlp_chunks_desc, epochs, 3),
    VALUE(dlp_chunks_desc, pass, DLP_PASS_EVALUATE),
    VALUE(dlp_chunks_desc, seed, 99),
    VALUE(dlp_chunks_desc, rows_at, other_rows_at),
    VALUE(dlp_chunks_desc, identity, &other_identity_),

    VALUE(dlp_files_desc, n_items, 17),
    VALUE(dlp_files_desc, fields, other_fields_),
    WHOLE(dlp_files_desc, n_fields, 2),
    VALUE(dlp_files_desc, use_threads, 1),
    VALUE(dlp_files_desc, paths, other_paths_),
    VALUE(dlp_files_desc, locate, other_locate),
    VALUE(dlp_files_desc, decode, other_decode),
    WITH(dlp_files_desc, user, USER),
    VALUE(dlp_files_desc, max_bytes, 3),
    WITH(dlp_files_desc, direct, 1),
    VALUE(dlp_files_desc, in_flight, 5),
    WITH(dlp_files_desc, writes_all_bytes, 1),
    VALUE(dlp_files_desc, worker_init, other_init),
    VALUE(dlp_files_desc, worker_exit, other_exit),
    VALUE(dlp_files_desc, warning, "a warning"),

    VALUE(dlp_tokens_desc, pattern, "/nowhere/*.bin"),
    WHOLE(dlp_tokens_desc, paths, other_paths_),
    VALUE(dlp_tokens_desc, n_paths, 2),
    VALUE(dlp_tokens_desc, format, DLP_TOKENS_U32),
    VALUE(dlp_tokens_desc, windows, 2),
    VALUE(dlp_tokens_desc, header_bytes, 8),
    VALUE(dlp_tokens_desc, length, 5),
    VALUE(dlp_tokens_desc, stride, 3),
    VALUE(dlp_tokens_desc, widen, 1),
    VALUE(dlp_tokens_desc, multiple, 3),

    VALUE(dlp_arrays_desc, columns, NULL),
    VALUE(dlp_arrays_desc, n_columns, 2),
    WITH(dlp_arrays_desc, reads, 1),
    VALUE(dlp_array_column, name, "other"),
    VALUE(dlp_array_column, path, "/nowhere"),
    VALUE(dlp_array_column, paths, other_paths_),
    VALUE(dlp_array_column, n_paths, 1),
    WHOLE(dlp_array_column, format, DLP_ARRAY_CIFAR10),

    VALUE(dlp_buckets_desc, n_items, 19),
    VALUE(dlp_buckets_desc, lengths, other_lengths_),
    VALUE(dlp_buckets_desc, length, other_length),
    WITH(dlp_buckets_desc, length_user, USER),
    VALUE(dlp_buckets_desc, lengths_id, 5),
    VALUE(dlp_buckets_desc, batch_size, 6),
    VALUE(dlp_buckets_desc, window, 12),
    VALUE(dlp_buckets_desc, max_tokens, 40),
    VALUE(dlp_buckets_desc, divisible_by, 2),
    VALUE(dlp_buckets_desc, shuffle, 1),
    WITH(dlp_buckets_desc, seed, 99),
    VALUE(dlp_buckets_desc, last, DLP_LAST_DROP),
    VALUE(dlp_buckets_desc, order, &other_order_),

    VALUE(dlp_mix_desc, n, 3),
    VALUE(dlp_mix_desc, shuffle, 1),
    VALUE(dlp_mix_desc, n_items, other_numbers_),
    VALUE(dlp_mix_desc, weights, other_numbers_),
    VALUE(dlp_mix_desc, seed, 99),
    VALUE(dlp_mix_desc, samples_per_epoch, 13),
    VALUE(dlp_mix_desc, until, DLP_MIX_FIRST),
};

#define N_ROWS (sizeof rows_ / sizeof *rows_)

/* An array, and how many it has. */
typedef struct field_pair {
    const char *type, *name[2];
    size_t offset[2], size[2];
} field_pair;

#define PAIR(type, array, count) \
    { \
#type, {#array, #count }, {offsetof(type, array), offsetof(type, count) }, { \
            sizeof((type *)0)->array, sizeof((type *)0)->count \
        } \
    }

static const field_pair pairs_[] = {
    PAIR(dlp_dataset, fields, n_fields),
    PAIR(dlp_workers_desc, affinity, n_affinity),
    PAIR(dlp_sampler_desc, subset, n_subset),
    PAIR(dlp_pipe_desc, counters, n_counters),
    PAIR(dlp_node_batch, out_fields, n_out_fields),
    PAIR(dlp_node_guard, fields, n_fields),
    PAIR(dlp_node_split, rows, n_chunks),
    PAIR(dlp_node_load, items, n_parts),
    PAIR(dlp_node_expand, fields, n_fields),
    PAIR(dlp_loader_desc, out_fields, n_out_fields),
    PAIR(dlp_loader_desc, rows, n_rows),
    PAIR(dlp_chunks_desc, fields, n_fields),
    PAIR(dlp_chunks_desc, rows, n_chunks),
    PAIR(dlp_files_desc, fields, n_fields),
    PAIR(dlp_files_desc, paths, n_items),
    PAIR(dlp_tokens_desc, paths, n_paths),
    PAIR(dlp_arrays_desc, columns, n_columns),
    PAIR(dlp_array_column, paths, n_paths),
    PAIR(dlp_buckets_desc, lengths, n_items),
    PAIR(dlp_mix_desc, n_items, n),
};
#define N_PAIRS (sizeof pairs_ / sizeof *pairs_)

#endif
