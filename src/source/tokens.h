/* needs: tokens */
#pragma once
/* tests: system/source/tokens */
#include "api/tokens.h"
#include "build/check.h"
#include "order/order.h"
#include "source/identity.h"
#include "source/foreign.h"
#include "source/mapped.h"
#include "source/pattern.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-tokens     TOKENS OUT OF SHARDS
   first[i] is the dataset index of the first item of shard i, and first[n_shards] is the number of
   all items. So the shard of an item is found by binary search. The place of the item in the shard
   follows by arithmetic. */

enum { DLPI_LLMC_WORDS = 256, DLPI_LLMC_BYTES = 4 * DLPI_LLMC_WORDS };
#define DLPI_TOKENS_SHARDS (UINT64_C(1) << 20)

typedef struct dlpi_tokens {
    dlp_source source; /* first */
    dlp_dataset dataset;
    dlp_identity identity;
    dlp_tokens_info info;
    dlp_field field;
    int32_t format, read_ahead;
    bool reads, insist;
    char warning[160];     /* "": none */
    uint64_t width;        /* bytes of a token in a shard */
    uint64_t item_step;    /* bytes from one item to the next */
    uint64_t row_bytes;    /* bytes of a window as it is delivered */
    uint64_t header_bytes; /* bytes of the header in DLP_TOKENS_U16 and _U32 */
    uint32_t users;        /* U4 */
    uint32_t multiple;     /* the number of items of each shard is a multiple of this */
    uint32_t cold;         /* above 0: not all data are in memory, so read-ahead is asked for */
    uint64_t *first;       /* [n_shards + 1] items before each shard */
    dlpi_mapped *files;    /* [n_shards] */
    dlp_tokens_shard *shards;
} dlpi_tokens;

/* ---- does a shard look like tokens? ---- */

enum {
    DLPI_TOKENS_SAMPLE = 4096,
    DLPI_TOKENS_FEW = 64,       /* words, or bytes: no judgement */
    DLPI_TOKENS_TAIL = 64 << 10 /* bytes at the end of a shard that are looked at for zeros */
};

/* True if n bytes have no control characters but white space. */
static bool dlpi_tokens_text(const uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (b[i] == 127 || (b[i] < 32 && (b[i] < '\t' || b[i] > '\r'))) return false;
    return n >= DLPI_TOKENS_FEW;
}

/* True if n bytes look like 16-bit ids of the other byte order. The first byte of an id then takes
   few values, as a high byte does. The second one takes all values. */
static bool dlpi_tokens_swapped(const uint8_t *b, uint64_t n) {
    uint8_t most[2] = {0, 0};
    for (uint64_t i = 0; i < n; i++)
        if (b[i] > most[i & 1]) most[i & 1] = b[i];
    if (n < 8 * DLPI_TOKENS_FEW) return false;
    return most[0] == 0 ? most[1] != 0 : most[0] < 0xe0 && most[1] >= 0xf0;
}

/* Return why n bytes do not look like tokens of `width` bytes, or NULL if they may be tokens. */
static const char *dlpi_tokens_doubt(const uint8_t *b, uint64_t n, uint64_t width) {
    uint64_t words = n / width, low[2] = {0, 0}, large = 0;
    bool paired;
    for (uint64_t i = 0; i < words; i++) {
        const uint8_t *w = b + i * width;
        uint32_t id = width == 4 ? dlpi_little32(w) : (uint32_t)w[0] | (uint32_t)w[1] << 8;
        low[i & 1] += id < 16;
        large += id >> 24 != 0;
    }
    if (dlpi_tokens_text(b, n)) return "all bytes are text; they must be token ids";
    if (words < DLPI_TOKENS_FEW) return NULL;
    paired = (low[0] == (words + 1) / 2) != (low[1] == words / 2);
    if (paired && width == 2)
        return "every other word is below 16, as in 32-bit ids (DLP_TOKENS_U32)";
    if (paired) return "every other word is below 16, as in 64-bit ids";
    if (width == 2 && dlpi_tokens_swapped(b, n))
        return "the high bytes come first, as in the other byte order; swap them";
    return large > words / 2
               ? "most ids are above 2^24, as in big-endian or 16-bit ids (DLP_TOKENS_U16)"
               : NULL;
}

static bool dlpi_tokens_zeros(const uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (b[i] != 0) return false;
    return n >= 2 * DLPI_TOKENS_FEW;
}

/* Set *zeros if the file's last DLPI_TOKENS_TAIL bytes are zeros, as two samples say. b: room for a
   sample. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_tail(const dlpi_mapped *m, uint64_t begins, uint8_t *b, bool *zeros,
                            dlp_error *err) {
    *zeros = m->size - begins > 2 * DLPI_TOKENS_TAIL;
    for (int i = 0; i < 2 && *zeros; i++) {
        const uint64_t back = i == 0 ? DLPI_TOKENS_SAMPLE : DLPI_TOKENS_TAIL;
        int64_t got = dlpi_mapped_pread(m, m->size - back, DLPI_TOKENS_SAMPLE, b);
        if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
        *zeros = dlpi_tokens_zeros(b, (uint64_t)got);
    }
    return DLP_OK;
}

/* Note a warning for the first shard that looks like something else. begins: the byte of its first
   token. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_look_at(dlpi_tokens *t, const dlpi_mapped *m, uint64_t begins,
                               uint64_t width, dlp_error *err) {
    uint8_t b[DLPI_TOKENS_SAMPLE];
    const char *other = NULL;
    bool zeros = false;
    int64_t got = dlpi_mapped_pread(m, begins, sizeof b, b);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    if (dlpi_tokens_zeros(b, (uint64_t)got)) {
        other = "its first ids are all 0; was it written?";
    } else {
        if (t->format != DLP_TOKENS_LLMC) other = dlpi_tokens_doubt(b, (uint64_t)got, width);
        if (other == NULL && dlpi_tokens_tail(m, begins, b, &zeros, err) != DLP_OK)
            return DLP_ERR_SYSTEM;
        if (zeros) other = "its last 64 KiB are zeros; was it written in full?";
    }
    if (m->size <= begins) other = "it has no tokens";
    if (other != NULL && t->warning[0] == 0) {
        uint64_t length = strlen(m->path), from = length > 50 ? length - 50 : 0;
        snprintf(t->warning, sizeof t->warning, "tokens: %s: %s. insist = 1 takes it as it is",
                 m->path + from, other);
        t->info.warning = t->warning;
    }
    return DLP_OK;
}

/* ---- the number of items of a shard ---- */

/* Set the format by what the first shard begins with. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_guess(dlpi_tokens *t, const dlpi_mapped *m, dlp_error *err) {
    uint8_t head[4] = {0};
    int64_t got = dlpi_mapped_pread(m, 0, sizeof head, head);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    t->format =
        got == 4 && dlpi_llmc_magic(dlpi_little32(head)) ? DLP_TOKENS_LLMC : DLP_TOKENS_NANOGPT;
    return DLP_OK;
}

/* Check that a shard's tokens are as wide as those of the first shard. The first call sets the
   width. Returns 0, or DLP_ERR_CORRUPT with *err filled. */
static int dlpi_tokens_width(dlpi_tokens *t, const dlpi_mapped *m, uint64_t width, dlp_error *err) {
    if (t->width != 0 && t->width != width)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "tokens of %" PRIu64 " bytes, the first shard's have %" PRIu64,
                                 width, t->width);
    t->width = width;
    return DLP_OK;
}

/* Read and check llm.c's header of a shard. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_llmc(dlpi_tokens *t, const dlpi_mapped *m, dlp_tokens_shard *s,
                            dlp_error *err) {
    uint8_t head[DLPI_LLMC_BYTES];
    uint32_t magic, version, tokens, known;
    int rc = dlpi_mapped_head(m, 0, sizeof head, head, "header", err);
    if (rc != DLP_OK) return rc;
    magic = dlpi_little32(head);
    version = dlpi_little32(head + 4);
    tokens = dlpi_little32(head + 8);
    if (!dlpi_llmc_magic(magic))
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "the magic is %" PRIu32 ", must be %d or %d for llm.c", magic,
                                 DLPI_LLMC_U16, DLPI_LLMC_U32);
    known = magic == DLPI_LLMC_U16 ? 1 : 7;
    if (version != known)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 4,
                                 "the version is %" PRIu32 ", must be %" PRIu32, version, known);
    if ((rc = dlpi_tokens_width(t, m, magic == DLPI_LLMC_U16 ? 2 : 4, err)) != DLP_OK) return rc;
    if (m->size != DLPI_LLMC_BYTES + tokens * t->width)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 8,
                                 "%" PRIu32 " tokens want %" PRIu64 " bytes, the file has %" PRIu64,
                                 tokens, DLPI_LLMC_BYTES + tokens * t->width, m->size);
    s->header_bytes = DLPI_LLMC_BYTES;
    s->tokens = tokens;
    return t->insist ? DLP_OK : dlpi_tokens_look_at(t, m, DLPI_LLMC_BYTES, t->width, err);
}

/* Measure a shard whose header, if any, says nothing. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_raw(dlpi_tokens *t, const dlpi_mapped *m, dlp_tokens_shard *s,
                           dlp_error *err) {
    uint64_t bytes, width = t->format == DLP_TOKENS_U32 ? 4 : 2;
    int rc = dlpi_tokens_width(t, m, width, err);
    if (rc != DLP_OK) return rc;
    if (m->size < t->header_bytes)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size,
                                 "the file ends in its header of %" PRIu64 " bytes",
                                 t->header_bytes);
    if (!t->insist && (rc = dlpi_tokens_look_at(t, m, t->header_bytes, width, err)) != DLP_OK)
        return rc;
    bytes = m->size - t->header_bytes;
    if (bytes % width != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size - bytes % width,
                                 "ends in %" PRIu64 " bytes of a token of %" PRIu64, bytes % width,
                                 width);
    s->header_bytes = t->header_bytes;
    s->tokens = bytes / width;
    return DLP_OK;
}

/* Compute the items of a shard, and the tokens that are left out. */
static void dlpi_tokens_count(const dlpi_tokens *t, dlp_tokens_shard *s) {
    uint64_t row = t->info.length + 1, windows = 0;
    if (s->tokens >= row) windows = (s->tokens - row) / t->info.stride + 1;
    s->items = windows / t->info.windows / t->multiple * t->multiple;
    s->left_out = s->tokens;
    if (s->items > 0) /* after the last window; tokens between windows do not count */
        s->left_out -= (s->items * t->info.windows - 1) * t->info.stride + row;
}

/* Open shard i, and count its items and tokens. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tokens_shard_open(dlpi_tokens *t, uint64_t i, const char *path, dlp_error *err) {
    dlpi_mapped *m = &t->files[i];
    dlp_tokens_shard *s = &t->shards[i];
    int rc = dlpi_mapped_open(m, path, t->reads, t->info.n_shards - i, err);
    s->path = m->path;
    if (rc == DLP_OK && t->format == DLP_TOKENS_AUTO) rc = dlpi_tokens_guess(t, m, err);
    if (rc == DLP_OK && !t->insist && t->header_bytes == 0)
        rc = dlpi_foreign_refuse(m, t->format == DLP_TOKENS_LLMC ? DLPI_TAKES_LLMC : 0, "token ids",
                                 true, NULL, err);
    if (rc == DLP_OK)
        rc = t->format == DLP_TOKENS_LLMC ? dlpi_tokens_llmc(t, m, s, err)
                                          : dlpi_tokens_raw(t, m, s, err);
    if (rc != DLP_OK) return rc;
    dlpi_mapped_spare(m);
    dlpi_tokens_count(t, s);
    if (s->items > DLPI_MAX_ITEMS - t->first[i])
        return dlpi_error_set(err, DLP_ERR_ARG, "paths",
                              "%s: with it there are more than 2^48 items", dlpi_path_end(path));
    s->first_item = t->first[i];
    t->first[i + 1] = t->first[i] + s->items;
    t->info.tokens = dlpi_sum(t->info.tokens, s->tokens);
    t->info.left_out = dlpi_sum(t->info.left_out, s->left_out);
    t->info.id = dlp_hash(t->info.id, s->tokens, i, 0);
    return DLP_OK;
}

/* ---- open, close ---- */

/* Return what is wrong with a desc, and the name of the field in *field; NULL: nothing is. */
static const char *dlpi_tokens_wrong(const dlp_tokens_desc *d, const char **field) {
    static const struct {
        const char *field, *text;
    } wrongs[] = {{"pattern", "give either pattern or paths"},
                  {"n_paths", "must be 1 to 2^20 with paths, 0 with a pattern"},
                  {"format", "must be DLP_TOKENS_*"},
                  {"windows", "must be 0 to 2^20"},
                  {"header_bytes", "must be 0 but for DLP_TOKENS_U16 and _U32; under 2^62"},
                  {"length", "must be 1 to 2^30 tokens of a window"},
                  {"stride", "must be 0 to 2^48"},
                  {"widen", "must be 0 or 1"},
                  {"reads", "must be 0 or 1"},
                  {"insist", "must be 0 or 1"},
                  {"moved", "must be 0 or 1"},
                  {"multiple", "must be 0 to 2^20"},
                  {"read_ahead", "must be DLP_NONE, or 0 and more"}};
    bool raw = d->format == DLP_TOKENS_U16 || d->format == DLP_TOKENS_U32;
    const bool is[] = {(d->pattern == NULL) == (d->paths == NULL),
                       d->paths ? d->n_paths == 0 || d->n_paths > DLPI_TOKENS_SHARDS
                                : d->n_paths != 0,
                       d->format < DLP_TOKENS_AUTO || d->format > DLP_TOKENS_U32,
                       d->windows > 1u << 20,
                       d->header_bytes > (raw ? UINT64_C(1) << 62 : 0),
                       d->length == 0 || d->length > UINT64_C(1) << 30,
                       d->stride > UINT64_C(1) << 48,
                       d->widen != 0 && d->widen != 1,
                       d->reads != 0 && d->reads != 1,
                       d->insist != 0 && d->insist != 1,
                       d->moved != 0 && d->moved != 1,
                       d->multiple > 1u << 20,
                       d->read_ahead < DLP_NONE};
    _Static_assert(sizeof is / sizeof *is == sizeof wrongs / sizeof *wrongs, "one for each");
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        if (is[i]) return *field = wrongs[i].field, wrongs[i].text;
    return NULL;
}

/* Close all shards, and free the source. No pipe may use it any more. */
DLPI_COLD static void dlpi_tokens_free(dlpi_tokens *t) {
    for (uint64_t i = 0; t->files && i < t->info.n_shards; i++) dlpi_mapped_close(&t->files[i]);
    free(t->files);
    free(t->shards);
    free(t->first);
    free(t);
}

/* Return a new source of n shards, none of them open yet, or NULL if there is no memory. */
static dlpi_tokens *dlpi_tokens_new(const dlp_tokens_desc *d, uint64_t n) {
    dlpi_tokens *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->format = d->format;
    t->reads = d->reads != 0;
    t->insist = d->insist != 0;
    t->read_ahead = d->read_ahead ? d->read_ahead : 256;
    t->header_bytes = d->header_bytes;
    t->multiple = d->multiple ? d->multiple : 1;
    t->info.length = d->length;
    t->info.stride = d->stride ? d->stride : d->length;
    t->info.windows = d->windows ? d->windows : 1;
    t->info.id = dlp_hash(UINT64_C(0x736e656b6f74), t->info.length, t->info.stride,
                          t->info.windows); /* "tokens" */
    if (t->multiple > 1) t->info.id = dlp_hash(t->info.id, t->multiple, 1, 0);
    t->files = calloc((size_t)n, sizeof *t->files);
    t->shards = calloc((size_t)n, sizeof *t->shards);
    t->first = calloc((size_t)n + 1, sizeof *t->first);
    if (t->files && t->shards && t->first) {
        for (uint64_t i = 0; i < n; i++) dlpi_mapped_begin(&t->files[i]);
        t->info.n_shards = n;
        t->info.shards = t->shards;
        return t;
    }
    dlpi_tokens_free(t);
    return NULL;
}

/* Set the field and the bytes of a row, once the shards are known. widen: to 32-bit tokens. */
static void dlpi_tokens_rows(dlpi_tokens *t, bool widen) {
    dlp_field *f = &t->field;
    t->info.stored = t->width == 4 ? DLP_U32 : DLP_U16;
    t->info.dtype = widen ? DLP_I32 : t->info.stored;
    t->info.n_items = t->first[t->info.n_shards];
    t->row_bytes = (t->info.length + 1) * (t->info.dtype == DLP_U16 ? 2 : 4);
    t->item_step = dlpi_times(dlpi_times(t->info.stride, t->info.windows), t->width);
    f->name = "tokens";
    f->dtype = t->info.dtype;
    if (t->info.windows > 1) f->shape[f->ndim++] = (int64_t)t->info.windows;
    f->shape[f->ndim++] = (int64_t)t->info.length + 1;
}

/* ---- rows ---- */

/* Return the number of the shard that has an item. */
static inline uint64_t dlpi_tokens_find(const dlpi_tokens *t, uint64_t index) {
    return dlpi_file_of(t->first, sizeof *t->first, t->info.n_shards, index);
}

/* Return the byte of its file at which an item begins. */
static inline uint64_t dlpi_tokens_at(const dlpi_tokens *t, uint64_t shard, uint64_t index) {
    return t->shards[shard].header_bytes + (index - t->first[shard]) * t->item_step;
}

/* Turn n tokens of 16 bits, not aligned, into 32 bits. `from` may be the second half of `to`, since
   a block is read whole before it is written, and writing never overtakes reading. */
static void dlpi_tokens_widen(const uint8_t *from, uint64_t n, uint8_t *to) {
    typedef uint16_t narrow DLPI_VECTOR(16);
    typedef uint32_t wide DLPI_VECTOR(32);
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        narrow v;
        wide w;
        memcpy(&v, from + 2 * i, sizeof v);
        w = __builtin_convertvector(v, wide);
        memcpy(to + 4 * i, &w, sizeof w);
    }
    for (; i < n; i++) {
        uint32_t w = (uint32_t)from[2 * i] | (uint32_t)from[2 * i + 1] << 8;
        memcpy(to + 4 * i, &w, sizeof w);
    }
}

/* Copy one window, from byte `at` on, to `to`, and widen it if need be. It is the only copy of the
   window. Returns 0 or a failure's code. */
static inline int dlpi_tokens_row(const dlpi_tokens *t, const dlpi_mapped *m, uint64_t at,
                                  uint8_t *to, const dlp_item *it) {
    uint64_t n = t->info.length + 1, bytes = n * t->width;
    uint8_t *behind = to + (t->row_bytes - bytes);
    int rc;
    if (t->row_bytes == bytes) return dlpi_mapped_copy(m, at, bytes, to, it);
    if (DLPI_LIKELY(m->bytes != NULL)) {
        dlpi_tokens_widen(m->bytes + at, n, to);
        return 0;
    }
    rc = dlpi_mapped_read(m, at, bytes, behind, it);
    if (rc == 0) dlpi_tokens_widen(behind, n, to);
    return rc;
}

/* Return the bytes of an item in its shard. */
static inline uint64_t dlpi_tokens_span(const dlpi_tokens *t) {
    return t->item_step + (t->info.length + 1) * t->width - t->info.stride * t->width;
}

/* Ask the processor for the rows that come soon. Windows out of order lie where nobody guesses
   them. Without this each waits for page tables and memory, a quarter of a row's cost. */
static inline void dlpi_tokens_touch(const dlpi_tokens *t, const dlp_item *it) {
    for (uint64_t next; (next = dlpi_item_ahead(it)) != UINT64_MAX;) {
        const uint64_t shard = dlpi_tokens_find(t, next);
        if (t->files[shard].bytes != NULL)
            dlpi_mapped_touch(t->files[shard].bytes + dlpi_tokens_at(t, shard, next),
                              dlpi_tokens_span(t));
    }
}

/* Ask the system for the item that comes read_ahead items after this one, if it is not in memory,
   or if other items were not a moment ago. probe: find out whether it is in memory. */
DLPI_NOINLINE static void dlpi_tokens_shuffled_ahead(dlpi_tokens *t, const dlp_item *it,
                                                     bool probe) {
    uint64_t next = it->position + (uint64_t)t->read_ahead, shard, at;
    uint32_t cold = DLPI_LOAD_RLX(&t->cold);
    dlp_permutation order;
    if (next >= t->info.n_items ||
        dlp_permutation_init(&order, t->info.n_items, it->seed, it->epoch) != DLP_OK ||
        dlp_permutation_at(&order, it->position) != it->index)
        return;
    next = dlp_permutation_at(&order, next);
    shard = dlpi_tokens_find(t, next);
    at = dlpi_tokens_at(t, shard, next);
    if (probe) {
        bool here = dlpi_mapped_is_here(&t->files[shard], at);
        cold = !here ? (uint32_t)DLPI_MAPPED_COLD : cold > 0 ? cold - 1 : 0;
        DLPI_STORE_RLX(&t->cold, cold);
    }
    if (cold > 0) dlpi_mapped_will_need(&t->files[shard], at, dlpi_tokens_span(t));
}

/* Prepare for items out of order: prefetch those that come soon, and have the system read ahead. */
static inline void dlpi_tokens_shuffled(dlpi_tokens *t, const dlp_item *it, dlpi_mapped *m) {
    /* one of 64 positions, whichever of them are this rank's */
    bool probe = it->position * UINT64_C(0x9e3779b97f4a7c15) >> 58 == 0;
    dlpi_mapped_advise(m, DLPI_AT_RANDOM);
    if (t->info.n_items >= DLP_PERMUTATION_TABLE && !t->reads) dlpi_tokens_touch(t, it);
    if (DLPI_LIKELY(!probe && DLPI_LOAD_RLX(&t->cold) == 0) || t->read_ahead == DLP_NONE) return;
    dlpi_tokens_shuffled_ahead(t, it, probe);
}

/* Read ahead for items in the dataset's order: a block's first item asks for the next block. */
static inline void dlpi_tokens_in_order(const dlpi_tokens *t, dlpi_mapped *m, uint64_t at) {
    dlpi_mapped_advise(m, DLPI_IN_ORDER);
    if (at % DLPI_MAPPED_BLOCK >= t->item_step || t->read_ahead == DLP_NONE) return;
    at += dlpi_tokens_span(t);
    if (!dlpi_mapped_is_here(m, at)) dlpi_mapped_will_need(m, at, DLPI_MAPPED_BLOCK);
}

/* The source's fetch callback: copy the windows of one item. Returns 0 or a failure's code. */
static int dlpi_tokens_fetch(void *user, dlp_item *it) {
    dlpi_tokens *t = user;
    uint64_t shard = dlpi_tokens_find(t, it->index), at = dlpi_tokens_at(t, shard, it->index);
    dlpi_mapped *m = &t->files[shard];
    uint8_t *to = it->data[0];
    int rc = m->bytes ? dlpi_mapped_check(m, it) : 0;
    if (DLPI_UNLIKELY(rc != 0)) return rc;
    if (it->position == it->index) /* the dataset's own order: the item tells */
        dlpi_tokens_in_order(t, m, at);
    else
        dlpi_tokens_shuffled(t, it, m);
    for (uint64_t i = 0; i < t->info.windows && rc == 0; i++)
        rc = dlpi_tokens_row(t, m, at + i * t->info.stride * t->width, to + i * t->row_bytes, it);
    return rc;
}

/* ---- open, close ---- */

static int dlpi_tokens_close(dlp_source *source) {
    dlpi_tokens *t = (dlpi_tokens *)(void *)source;
    if (dlpi_users_any(&t->users)) return DLP_ERR_BUSY;
    dlpi_tokens_free(t);
    return DLP_OK;
}

/* Fill the dataset and the source, once all shards are open. */
static void dlpi_tokens_source(dlpi_tokens *t) {
    t->dataset.n_items = t->info.n_items;
    t->dataset.fields = &t->field;
    t->dataset.n_fields = 1;
    t->dataset.warning = t->info.warning;
    t->dataset.identity = &t->identity;
    t->source.id = t->info.id;
    t->source.close = dlpi_tokens_close;
    dlpi_mapped_source(&t->source, &t->dataset, dlpi_tokens_fetch, &t->users);
}

/* Open the source of n shards. Returns 0, or a DLP_ERR code with *err filled; *out is then
   untouched. */
static int dlpi_tokens_open_paths(dlp_source **out, const dlp_tokens_desc *d,
                                  const char *const *paths, uint64_t n, dlp_error *err) {
    dlpi_tokens *t = dlpi_tokens_new(d, n);
    int rc = DLP_OK;
    if (t == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    for (uint64_t i = 0; i < n && rc == DLP_OK; i++)
        rc = dlpi_tokens_shard_open(t, i, paths[i], err);
    if (rc == DLP_OK && t->first[n] == 0)
        rc = dlpi_error_set(err, DLP_ERR_ARG, "length",
                            "%" PRIu64 " shards have %" PRIu64 " tokens, and none has %s of "
                            "%" PRIu64 " windows of %" PRIu64 " tokens; lower length",
                            n, t->info.tokens, t->multiple > 1 ? "'multiple' items" : "one item",
                            t->info.windows, t->info.length + 1);
    if (rc != DLP_OK) {
        dlpi_tokens_free(t);
        return rc;
    }
    dlpi_tokens_rows(t, d->widen != 0);
    dlpi_identity_files(&t->identity, t->files, n, sizeof *t->files, d->moved);
    dlpi_tokens_source(t);
    *out = &t->source;
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_tokens_open(dlp_source **out, const dlp_tokens_desc *desc,
                                     dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_pattern found = {.err = err};
    int rc;
    if ((rc = dlpi_open_args(out, out, "", desc, err)) != DLP_OK) return rc;
    wrong = dlpi_tokens_wrong(desc, &field);
    if (wrong) return dlpi_error_set(err, DLP_ERR_ARG, field, "%s: %s", field, wrong);
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "tokens need a little-endian CPU");
    if (desc->paths) return dlpi_tokens_open_paths(out, desc, desc->paths, desc->n_paths, err);
    rc = dlpi_pattern_paths(&found, desc->pattern);
    if (rc == DLP_OK && found.n > DLPI_TOKENS_SHARDS)
        rc = dlpi_error_set(err, DLP_ERR_ARG, "pattern",
                            "%" PRIu64 " files match, must be at most 2^20", found.n);
    if (rc == DLP_OK)
        rc = dlpi_tokens_open_paths(out, desc, (const char *const *)found.paths, found.n, err);
    for (uint64_t i = 0; i < found.n; i++) free(found.paths[i]);
    free(found.paths);
    return rc;
}

DLPDEF const dlp_tokens_info *dlp_tokens_describe(const dlp_source *source) {
    return source != NULL && source->close == dlpi_tokens_close
               ? &((const dlpi_tokens *)(const void *)source)->info
               : NULL;
}

/* ---- documents ---- */

/* Write into start[] the place after each eot token in tokens[0..length - 2], from start[1] on, up
   to `room`. Returns how many documents there are. If eot is a document's first token, `tokens`
   begins with the row's second token, so the place is the eot's own. */
static inline uint64_t dlpi_tokens_starts(const void *tokens, bool wide, uint64_t length,
                                          uint32_t eot, int32_t *start, uint64_t room) {
    const uint16_t *narrow = tokens;
    const uint32_t *words = tokens;
    uint64_t n = 1;
    for (uint64_t i = 0; i + 1 < length; i++) {
        if (DLPI_LIKELY((wide ? words[i] : narrow[i]) != eot)) continue;
        if (n < room) start[n] = (int32_t)i + 1;
        n++;
    }
    return n;
}

DLPDEF uint64_t dlp_tokens_documents(const void *tokens, dlp_dtype dtype, uint64_t length,
                                     uint32_t eot, int rule, int32_t *start, uint64_t room) {
    bool wide = dtype == DLP_U32 || dtype == DLP_I32;
    uint64_t n;
    if ((dtype != DLP_U16 && !wide) || length == 0 || length > INT32_MAX) return 0;
    if (rule != DLP_EOT_ENDS) tokens = (const uint8_t *)tokens + (wide ? 4 : 2);
    n = wide ? dlpi_tokens_starts(tokens, true, length, eot, start, room)
             : dlpi_tokens_starts(tokens, false, length, eot, start, room);
    if (room > 0) start[0] = 0;
    if (n < room) start[n] = (int32_t)length;
    return n;
}
