/* needs: parts split join scratch guard cache pack */
/* The rows of neighbours.h's pipes: what a direct program writes down, and what batches have. */
#ifndef NEIGHBOURS_ROWS_H
#define NEIGHBOURS_ROWS_H

#include "neighbours.h"

#define MOST_ROWS 4000
#define MOST_BATCHES 300

typedef struct row {
    uint64_t epoch, index, valid; /* the last two: not of packed tokens and of chunks */
    uint64_t x, y;                /* the value or token, and the zip's */
    uint64_t bytes;               /* digest of the ragged field */
} row;

typedef struct outcome {
    int started; /* else it was refused */
    int rc;      /* what ended it */
    dlp_error error;
    row rows[MOST_ROWS];
    int n_rows, n_batches;
    int ends[MOST_BATCHES]; /* rows up to the end of each batch */
    dlp_state states[MOST_BATCHES];
} outcome;

static char wrong_[900];

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(wrong_, sizeof wrong_, format, args);
    va_end(args);
    return 1;
}

/* ---- the direct program ---- */

static inline uint64_t bytes_digest(uint64_t id) {
    uint64_t digest = bytes_of(id);
    for (uint64_t k = 0; k < bytes_of(id); k++) digest = digest * 257 + (uint8_t)(id + k);
    return digest;
}

static inline void write_document(outcome *o, uint64_t epoch, uint64_t index, uint64_t document) {
    (void)index;
    for (uint64_t k = 0; k < tokens_of(document); k++) {
        uint64_t x = document * 100 + k + 1;
        if (has(MAP)) x = mapped(x);
        if (has(BATCH_MAP)) x = batch_mapped(x);
        o->rows[o->n_rows++] = (row){epoch, 0, 1, x, 0, 0};
    }
}

static inline void write_row(outcome *o, uint64_t epoch, uint64_t index, uint64_t id) {
    const int left_out = has(GUARD) && is_nan(id);
    for (uint32_t e = 0; e < width(); e++) {
        row r = {epoch, has(SPLIT) ? 0 : index, 1, value_of(id) + e, 0, bytes_digest(id)};
        if (has(MAP)) r.x = mapped(r.x);
        if (has(BATCH_MAP)) r.x = batch_mapped(r.x);
        if (has(ZIP)) r.y = label_of(index);
        o->rows[o->n_rows++] = left_out ? (row){epoch, index, 0, 0, 0, 0} : r;
    }
}

static inline void write_all(outcome *o) {
    const uint64_t epochs = has(PUSH) ? 1 : EPOCHS;
    o->n_rows = 0;
    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        for (uint64_t i = 0; i < ITEMS; i++) {
            if (is_filtered(i)) continue;
            if (has(FOUND) || has(EXPAND))
                for (uint64_t j = 0; j < made_of(i); j++)
                    (has(PACK) ? write_document : write_row)(o, epoch, i, i * CELL + j);
            else
                (has(PACK) ? write_document : write_row)(o, epoch, i, i);
        }
        for (uint64_t i = 0; has(PARTS) && has(PUSH) && i < ITEMS; i++) /* of the other branch */
            write_row(o, epoch, i, i);
        for (uint64_t j = 0; has(MIX) && j < MIXED; j++)
            if (has(PACK))
                write_document(o, epoch, ITEMS + j, MIXED_FIRST + j);
            else
                write_row(o, epoch, ITEMS + j, MIXED_FIRST + j);
    }
}

/* ---- rows of batches ---- */

static inline const dlp_tensor *tensor_of(const dlp_batch *b, const char *name) {
    for (uint32_t i = 0; i < b->n_fields; i++)
        if (strcmp(b->fields[i].name, name) == 0) return &b->fields[i];
    return NULL;
}

static inline uint64_t word_of(const dlp_tensor *t, uint64_t i) {
    uint64_t word;
    memcpy(&word, (const char *)t->data + t->byte_offset + i * sizeof word, sizeof word);
    return word;
}

static inline void take_tokens(outcome *o, const dlp_batch *b) {
    const dlp_tensor *t = tensor_of(b, "tokens");
    const uint32_t *token = t->data;
    const uint64_t most = (uint64_t)t->shape[1]; /* a collate's are as long as its longest */
    for (uint32_t i = 0; i < b->count; i++)
        for (uint64_t k = 0; b->valid[i] && k < t->lengths[i] && o->n_rows < MOST_ROWS; k++)
            o->rows[o->n_rows++] = (row){b->epoch, 0, 1, token[i * most + k], 0, 0};
}

static inline void take_row(outcome *o, const dlp_batch *b, uint32_t i) {
    const dlp_tensor *y = tensor_of(b, "y"), *bytes = tensor_of(b, "bytes");
    row r = {b->epoch, has(SPLIT) ? 0 : b->index[i], 1, word_of(&b->fields[0], i), 0, 0};
    if (y) r.y = word_of(y, i);
    if (bytes) {
        const uint8_t *at = (const uint8_t *)bytes->data + i * (uint64_t)bytes->shape[1];
        r.bytes = bytes->lengths[i];
        for (uint64_t k = 0; k < bytes->lengths[i]; k++) r.bytes = r.bytes * 257 + at[k];
    }
    if (!has(SPLIT) && !b->valid[i]) r = (row){b->epoch, b->index[i], 0, 0, 0, 0};
    o->rows[o->n_rows++] = r;
}

static inline void take(outcome *o, const dlp_batch *b) {
    if (has(PACK)) take_tokens(o, b);
    for (uint32_t i = 0; !has(PACK) && i < b->count && o->n_rows < MOST_ROWS; i++)
        if (has(SPLIT) || b->index[i] != UINT64_MAX) take_row(o, b, i);
    o->ends[o->n_batches++] = o->n_rows;
}

/* ---- the rows of a run ---- */

static inline void take_rest(outcome *o) {
    dlp_pipe *p = now_.p;
    dlp_batch *b;
    o->n_rows = o->n_batches = 0;
    while ((o->rc = dlp_pipe_next_timeout(p, &b, 30000)) == DLP_OK && o->n_batches < MOST_BATCHES) {
        take(o, b);
        if (!has(PUSH))
            CHECK(dlp_pipe_state(p, has(UNORDERED) ? NULL : b, &o->states[o->n_batches - 1]) ==
                  DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    o->error = *dlp_pipe_error(p);
}

static inline int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(row)); }

/* Are they those that are wanted, of which so many have come before? */
static inline int is_wrong(const outcome *o, const outcome *want, int from, int in_any_order,
                           const char *what) {
    static row got[MOST_ROWS], all[MOST_ROWS];
    const int n = want->n_rows - from;
    if (!o->started || o->rc != DLP_END)
        return wrong("%s: %s %s: %s", what, dlp_code_name(o->rc), o->error.stage, o->error.message);
    if (o->n_rows != n) return wrong("%s: %d rows, not %d", what, o->n_rows, n);
    memcpy(got, o->rows, (size_t)n * sizeof *got);
    memcpy(all, want->rows + from, (size_t)n * sizeof *all);
    if (in_any_order) qsort(got, (size_t)n, sizeof *got, by_bytes);
    if (in_any_order) qsort(all, (size_t)n, sizeof *all, by_bytes);
    for (int i = 0; i < n; i++)
        if (by_bytes(&got[i], &all[i]) != 0)
            return wrong("%s: row %d is %d of epoch %d, %" PRIu64 ", not %d of %d, %" PRIu64, what,
                         i, (int)got[i].index, (int)got[i].epoch, got[i].x, (int)all[i].index,
                         (int)all[i].epoch, all[i].x);
    return 0;
}

#endif
