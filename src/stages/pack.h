/* needs: pack */
#pragma once
/* tests: system/stages/pack */
#include "inputs/packed_window.h"
#include "inputs/making.h"
#include "inputs/table.h"
/* ---- the desc ---- */

_Static_assert(offsetof(dlpi_pack, x.found) == 0, "dlpi_found_of");

/* Check a pack desc by itself. Returns 0 or a DLP_ERR code. */
static int dlpi_pack_bounds(dlp_pipe *p, const dlpi_stage *st, const dlp_node_pack *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node_pack, tokens), 2, 1 << 24, "2..2^24"},
        {DLPI_AT(dlp_node_pack, rule), 0, DLP_PACK_FIT, "DLP_PACK_*"},
        {DLPI_AT(dlp_node_pack, window), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_node_pack, longer), 0, DLP_PACK_LONGER_ERROR, "DLP_PACK_LONGER_*"},
        {DLPI_AT(dlp_node_pack, max_segments), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_node_pack, positions), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_pack, min_documents), 0, INT64_C(1) << 31, "0..2^31"},
    };
    int rc = dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (rc == DLP_OK && d->overlap >= d->tokens)
        rc = dlpi_bad(p, st->name, "overlap", "below tokens", (int64_t)d->overlap);
    if (rc == DLP_OK && d->max_segments > 0 && d->max_segments <= d->overlap)
        rc = dlpi_bad(p, st->name, "max_segments", "above overlap, or 0", d->max_segments);
    if (rc == DLP_OK && d->rule == DLP_PACK_FIT && d->overlap > 0)
        rc = dlpi_bad(p, st->name, "overlap", "0 with DLP_PACK_FIT", (int64_t)d->overlap);
    if (rc == DLP_OK && d->rule == DLP_PACK_CUT && d->window > 0)
        rc = dlpi_bad(p, st->name, "window", "0 with DLP_PACK_CUT", (int64_t)d->window);
    if (rc == DLP_OK && d->rule == DLP_PACK_CUT && d->longer != 0)
        rc = dlpi_bad(p, st->name, "longer", "0 with DLP_PACK_CUT", d->longer);
    return rc == DLP_OK ? dlpi_check_input_workers(p, st) : rc;
}

/* Check a pack desc, and copy it into the stage, which has `capacity` cells. Sets the default
   window of DLP_PACK_FIT. windows: items of the windows before and behind the pack, or 0. Returns 0
   or a DLP_ERR code. */
static int dlpi_pack_take(dlp_pipe *p, dlpi_stage *st, const dlp_node_pack *d, uint32_t capacity,
                          const uint32_t *windows) {
    dlpi_pack *k = st->self;
    dlpi_found *q = &k->x.found;
    int rc = dlpi_pack_bounds(p, st, d);
    if (rc != DLP_OK) return rc;
    k->d = *d;
    if (d->rule == DLP_PACK_FIT && d->window == 0) k->d.window = 256;
    q->least_items = d->min_documents ? d->min_documents : 1;
    k->most_documents = 1;
    k->x.n_levels = 1;
    k->packed.window = windows[1];
    dlpi_within(p, st->name, "window", windows[1], 0, DLPI_FOUND_WINDOW, "0..2^24");
    return dlpi_found_take_run(p, st, capacity, windows[0]);
}

/* ---- fields ---- */

/* Check that the n fields f can be documents: ragged, all with the same longest length. Errors name
   the last row that adds fields. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_pack_documents(dlp_pipe *p, const dlpi_expand *x, const dlp_field *f,
                                         uint32_t n) {
    const char *node = p->fetch->name;
    for (uint32_t i = 0; i + 1 < x->n_levels; i++)
        if (x->level[i].row != NULL) node = x->level[i].row->name;
    if (n > DLP_MAX_FIELDS - 2) return dlpi_bad(p, node, "fetch.n_fields", "1..14 for pack", n);
    for (uint32_t i = 0; i < n; i++)
        if (!f[i].ragged || f[i].ndim < 1 || f[i].shape[0] != f[0].shape[0] || f[i].shape[0] < 1 ||
            f[i].shape[0] > INT32_MAX)
            return dlpi_bad_field(p, node, i, f[i].name, "shape",
                                  "before a pack each field must be ragged, and all have one "
                                  "shape[0]: the longest document, below 2^31");
    return DLP_OK;
}

static int dlpi_pack_copy(void *user, dlp_item *it);

/* Let the fetch stage copy rows out of cells, and give it the fields of rows: those of documents,
   with T tokens, and two more. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_pack_fields(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_stage *fetch = p->fetch;
    const dlp_field *from;
    const uint32_t t = k->d.tokens;
    uint32_t n, least = k->d.overlap + 1 < 8 ? 8 : k->d.overlap + 1;
    uint64_t fit = 2048 / p->global_batch;
    int rc = dlpi_input_adopt(p, &k->x, dlpi_pack_copy, k);
    if (rc != DLP_OK) return rc;
    from = dlpi_input_made(st, &k->x, &n);
    if ((rc = dlpi_pack_documents(p, &k->x, from, n)) != DLP_OK) return rc;
    k->most = k->d.max_segments ? k->d.max_segments : fit > least ? (uint32_t)fit : least;
    if (k->most > t) k->most = t;
    k->n = n;
    k->longest = (uint64_t)from[0].shape[0];
    k->x.found.most_items = k->x.found.plan.most = dlpi_times(k->most_documents, k->longest);
    if (k->d.min_documents > k->most_documents)
        return dlpi_bad(p, st->name, "min_documents", "at most what load or expand may make",
                        k->d.min_documents);
    if (k->x.found.most_items > UINT64_C(1) << 31)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "tokens",
                           "an input has up to %" PRIu64 " documents of %" PRIu64 " tokens, must "
                           "be at most 2^31 tokens; lower shape[0]",
                           k->most_documents, k->longest);
    for (uint32_t i = 0; i < n; i++) {
        k->fields[i] = from[i];
        k->fields[i].shape[0] = t;
        k->fields[i].max_per_batch = 0;
    }
    k->fields[n] = (dlp_field){"cu_seqlens", DLP_I32, 1, {k->most + 1}, 0, 0};
    k->fields[n + 1] = (dlp_field){"position_ids", DLP_I32, 1, {t}, 0, 0};
    fetch->dataset->fields = k->fields;
    fetch->dataset->n_fields = n + 2;
    return DLP_OK;
}

/* Return how many documents in a row are enough for so many rows, if documents are cut. */
static uint64_t dlpi_pack_cut_need(const dlpi_pack *k, uint64_t rows) {
    return k->d.overlap ? dlpi_times(rows, k->most - 1) + 1 : dlpi_times(rows, k->most);
}

/* Set the fields of packed rows and the epoch's length, and with DLP_PACK_FIT the sizes of its
   windows. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_pack_sizes(dlp_pipe *p) {
    dlpi_pack *k = dlpi_pack_of(p);
    int rc = dlpi_inputs_sizes(p, &k->x.found, dlpi_pack_fields);
    if (rc != DLP_OK) return rc;
    if (k->d.rule == DLP_PACK_FIT) dlpi_fit_sizes(k, dlpi_pack_look(p, k));
    if (k->d.rule == DLP_PACK_FIT)
        dlpi_pack_turns_sizes(k, k->d.window, k->fit_most_items);
    else
        dlpi_pack_turns_sizes(k, dlpi_pack_cut_need(k, dlpi_pack_look(p, k)), k->longest + 1);
    return dlpi_packed_sizes(p, k);
}

/* ---- cells, memory ---- */

/* Return how many inputs of a stream must be in cells, so that the library knows what lies in all
   rows that it looks ahead to. It is the lesser of two bounds. One is the number of documents that
   these rows can hold. The other counts the cells of all documents from which they are packed. */
static uint64_t dlpi_pack_need(const dlp_pipe *p, const dlpi_pack *k) {
    const dlpi_found *q = &k->x.found;
    const uint64_t rows = dlpi_pack_look(p, k), n = k->d.window, window = q->plan.window;
    const uint64_t left = dlpi_packed_left(p, k, rows), most = k->most < n ? k->most : n;
    const uint64_t span = left > 0 ? dlpi_sum(rows, k->packed.window) : rows;
    uint64_t each = dlpi_sum(dlpi_pack_cut_need(k, rows), dlpi_times(left, k->most));
    uint64_t all = dlpi_pack_cut_need(k, span);
    if (k->d.rule == DLP_PACK_FIT) {
        each = dlpi_sum(dlpi_times(left + rows - 1, most), n);
        all = dlpi_times(span, n);
    }
    if (window > 0) {
        each = dlpi_sum(each - 1, dlpi_found_lie_in(q, window));
        all = dlpi_sum(all, 2 * window - 2);
    }
    all = dlpi_found_lie_in(q, all);
    if (all < each) each = all;
    all = dlpi_found_most_inputs(&q->plan); /* in an epoch of one pass */
    return k->packed.window > 0 && q->plan.steps == 0 && all < each ? all : each;
}

/* Lay out a cell: a document, or all documents that are made of an input and where each ends.
   Returns 0 or a DLP_ERR code. */
static int dlpi_pack_cell(dlp_pipe *p, const dlpi_stage *st, dlpi_pack *k) {
    dlpi_found *q = &k->x.found;
    int rc;
    q->most_items = k->most_documents; /* the items of a cell; to the scheduler they are tokens */
    rc = dlpi_input_sizes(p, st, &k->x, st->fields);
    q->most_items = q->plan.most;
    if (!k->makes) return rc;
    k->ends = dlpi_round_up(q->d.max_part_bytes, 8);
    q->d.max_part_bytes =
        dlpi_sum(k->ends, sizeof(dlpi_pack_ends) + dlpi_times(k->most_documents, 4));
    return rc;
}

/* Choose the packing rule, and compute the bytes of rows and the cells that the stage needs.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_pack_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_expand *x = &k->x;
    const dlpi_fields *fs = &x->level[x->n_levels - 1].fs;
    int rc;
    x->found.rule = k->d.rule == DLP_PACK_FIT  ? &dlpi_pack_fit
                    : x->found.plan.window > 0 ? &dlpi_pack_cut_mixed
                                               : &dlpi_pack_cut;
    k->take = k->d.rule == DLP_PACK_FIT ? dlpi_fit_take : dlpi_pack_cut_take;
    dlpi_packed_rule(k);
    x->cached = p->keeper_stage != NULL && x->found.joins == NULL;
    if ((rc = dlpi_pack_cell(p, st, k)) != DLP_OK) return rc;
    for (uint32_t f = 0; f < k->n; f++)
        k->unit[f] = fs->at[f].row_bytes / (uint64_t)fs->at[f].f.shape[0];
    k->row_stride = sizeof(dlpi_pack_row) + k->most * sizeof(dlpi_pack_segment);
    return dlpi_found_cells(p, st, dlpi_pack_need(p, k),
                            "batch_size, max_segments, window.items, pack.window, min_documents");
}

DLPI_COLD static uint64_t dlpi_pack_slot_bytes(const dlp_pipe *p) {
    return dlpi_sum(sizeof(dlpi_source_state),
                    dlpi_round_up(dlpi_times(p->batch_rows, dlpi_pack_of(p)->row_stride), 8));
}

/* Describe in `out` the heap memory of the stage and of its packing rule. Returns the number of
   blocks. */
DLPI_COLD static int dlpi_pack_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_pack *k = st->self;
    int n = dlpi_input_blocks(p, st, out);
    n += dlpi_pack_turns_blocks(k, out + n);
    n += dlpi_packed_blocks(k, out + n);
    if (k->d.rule == DLP_PACK_FIT) return n + dlpi_fit_blocks(k, out + n);
    out[n] = (dlpi_block){offsetof(dlpi_pack, streams),
                          dlpi_times(k->x.found.cursors.n, sizeof *k->streams)};
    return n + 1;
}

/* Set up the stage, its readers and its packing rule, once the region is mapped. */
DLPI_COLD static void dlpi_pack_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_found_live(p, st);
    dlpi_reads_live(p, st, &k->x);
    if (k->d.window > 0) k->x.found.counts->window = k->d.window;
    k->words = (uint64_t *)(void *)(k->x.found.counts + 1);
    if (k->d.rule == DLP_PACK_FIT) dlpi_fit_live(k);
}

/* ---- a row of a batch is fetched ---- */

/* Set it->part->data to the pieces of documents of row `row` of slot s. extra: memory for the
   dlp_part. */
static void dlpi_pack_row_extra(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                                void *extra) {
    dlp_part *part = extra;
    part->data = dlpi_pack_row_at(w->p, s, row);
    it->part = part;
}

/* Write the fields cu_seqlens and position_ids of a row into `bounds` and `places`. */
static void dlpi_pack_places(const dlp_pipe *p, const dlpi_pack *k, const dlpi_pack_row *row,
                             int32_t *bounds, int32_t *places) {
    uint32_t at = 0;
    bounds[0] = 0;
    for (uint32_t i = 0; i < k->most; i++) {
        const dlpi_pack_segment *g = &row->at[i];
        uint32_t n = i < row->n ? g->tokens : 0;
        int32_t from = 0;
        if (n > 0 && k->d.positions)
            from = (int32_t)(g->first - dlpi_pack_find(p, g->cell, g->first).first);
        for (uint32_t j = 0; j < n; j++) places[at + j] = from + (int32_t)j;
        at += n;
        bounds[i + 1] = (int32_t)at;
    }
    memset(places + at, 0, (k->d.tokens - at) * sizeof *places);
}

/* Callback of the fetch stage: copy a row's segments out of their cells. user: a pack. Returns
   0. */
static int dlpi_pack_copy(void *user, dlp_item *it) {
    const dlpi_pack *k = user;
    const dlp_pipe *p = it->call->w->p;
    const dlpi_pack_row *row = it->part->data;
    const dlpi_level *l = &k->x.level[k->x.n_levels - 1];
    uint64_t at = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        const dlpi_pack_segment *g = &row->at[i];
        const dlpi_pack_document from = dlpi_pack_find(p, g->cell, g->first);
        const bool tight = k->x.found.max_bytes > 0;
        const uint8_t *item =
            dlpi_found_item_at(dlpi_input_bytes(p, g->cell), from.number, l->bytes, tight);
        const uint8_t *next = item + dlpi_tight_head(l);
        for (uint32_t f = 0; f < k->n; f++) {
            memcpy((uint8_t *)it->data[f] + at * k->unit[f],
                   (tight ? next : item + l->at[f]) + (g->first - from.first) * k->unit[f],
                   (size_t)(g->tokens * k->unit[f]));
            next += (from.end - from.first) * k->unit[f];
        }
        at += g->tokens;
    }
    for (uint32_t f = 0; f < k->n; f++)
        it->length[f] = row->tokens; /* what is after it is zeroed, as of any ragged field */
    dlpi_pack_places(p, k, row, it->data[k->n], it->data[k->n + 1]);
    return 0;
}

/* ---- a document is read ---- */

/* Check the lengths of a document's fields. Returns 0; DLP_SKIP if it has no tokens, or too many
   that are to be dropped; or the code of a failure. */
static int dlpi_pack_length(dlpi_worker *w, const dlpi_pack *k, const uint64_t *lengths) {
    const dlpi_fields *fs = &dlpi_input_last(&k->x)->fs;
    const bool longer = lengths[0] > k->d.tokens;
    for (uint32_t f = 1; f < k->n; f++)
        if (lengths[f] != lengths[0])
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "field \"%s\" has %" PRIu64 " rows, but \"%s\" has %" PRIu64,
                            fs->at[f].name, lengths[f], fs->at[0].name, lengths[0]);
    if (longer && k->d.longer == DLP_PACK_LONGER_ERROR)
        return dlpi_say(w, DLP_ERR_LENGTH,
                        "the document has %" PRIu64 " tokens, a row has %" PRIu32 "; set "
                        "pack.longer, or raise tokens",
                        lengths[0], k->d.tokens);
    return lengths[0] == 0 || (longer && k->d.longer == DLP_PACK_LONGER_DROP) ? DLP_SKIP : 0;
}

/* Callback of a cell's last step, if an input has several documents: check a document's lengths.
   Returns as dlpi_pack_length does: 0, DLP_SKIP or a code. */
static int dlpi_pack_step(void *user, dlp_item *it) {
    return dlpi_pack_length(it->call->w, user, it->length);
}

/* Make the documents of the input that cell c has to load next. Count their tokens, and note where
   each document ends if an input may have several. Returns 0 or a failure's code. */
static int dlpi_pack_load(dlpi_worker *w, uint32_t c) {
    const dlpi_pack *k = dlpi_pack_of(w->p);
    const uint64_t stride = dlpi_input_last(&k->x)->bytes;
    const uint8_t *bytes = dlpi_input_bytes(w->p, c);
    dlpi_pack_ends *to = dlpi_pack_ends_of(w->p, k, c);
    dlpi_input *cell = dlpi_input_at(w->p, c);
    int rc = dlpi_input_load_by(w, &k->x, c);
    uint64_t tokens = 0;
    if (rc == 0 && !k->makes && cell->items > 0)
        rc = dlpi_pack_length(w, k, (const uint64_t *)(const void *)bytes);
    if (rc == DLP_SKIP) rc = 0, cell->items = 0;
    if (rc != 0) return rc;
    if (k->makes) to->n = (uint32_t)cell->items;
    for (uint32_t i = 0; i < cell->items; i++) {
        tokens += *(const uint64_t *)(const void *)dlpi_found_item_at(bytes, i, stride,
                                                                      k->x.found.max_bytes > 0);
        if (k->makes) to->end[i] = (uint32_t)tokens;
    }
    if (cell->items > 0 && cell->items < k->x.found.least_items)
        return dlpi_say(w, DLP_ERR_LENGTH,
                        "the input made %" PRIu64 " documents with tokens, min_documents of "
                        "\"%s\" is %" PRIu64 "; lower it",
                        cell->items, w->st->name, k->x.found.least_items);
    cell->items = tokens;
    cell->bytes = tokens * k->unit[0];
    return 0;
}

/* ---- states, statistics ---- */

/* Add all that the packed rows follow from to the state's hash of parameters. A state then fits
   only a pipe that packs alike. */
DLPI_COLD static void dlpi_pack_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const uint64_t words[] = {k->d.tokens,
                              (uint64_t)k->d.rule,
                              k->d.overlap,
                              k->most,
                              k->d.window,
                              (uint64_t)k->d.longer,
                              (uint64_t)k->d.positions,
                              k->x.found.d.manifest_id};
    s->params = dlpi_order_hash_array(s->params, words, sizeof words / sizeof *words);
    s->params = dlpi_found_hash(&k->x.found.plan, s->params);
    if (k->packed.window > 0) s->params = dlpi_absorb(dlpi_absorb(s->params, 0), k->packed.window);
}

/* Read the stage's figures of its streams, and its counts of rows, segments and tokens. Returns
   false if the words are not valid. */
DLPI_COLD static bool dlpi_pack_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_INPUTS_COUNTS);
    const uint64_t at = sizeof(dlpi_found_counts);
    uint64_t *own = s->figures.stages[stage].own;
    if (!dlpi_found_seen(words, s, stage)) return false;
    return words->areas[id].count == 0 ||
           dlpi_words_copy(words, id, 0, at, own, DLPI_PACK_WORDS * sizeof *own);
}

/* Return the bytes of the documents of an input, as a cache keeps them. *inputs: their number. */
static uint64_t dlpi_pack_keeps(const dlp_pipe *p, uint32_t list, uint64_t *inputs) {
    *inputs = list == 0 ? p->fetch->dataset->n_items : 0;
    return dlpi_pack_of(p)->x.one_bytes;
}

#define DLPI_PACK_SOURCE \
    .sizes = dlpi_pack_sizes, DLPI_FOUND_BATCHES, .slot_bytes = dlpi_pack_slot_bytes, \
    .row_bytes = sizeof(dlp_part), .row = dlpi_pack_row_extra, .config = dlpi_pack_config, \
    .params = "streams, steps_per_epoch, fields, and all that pack says of rows", \
    .path = DLPI_MAKERS_PATH, .load = dlpi_pack_load

static const dlpi_source_ops dlpi_pack_source = {DLPI_PACK_SOURCE, .input = "document"};

/* Behind a load, an expand or a cache. */
static const dlpi_source_ops dlpi_pack_made_source = {DLPI_PACK_SOURCE, .input = "input",
                                                      .keeps = dlpi_pack_keeps};

#define DLPI_PACK_OPS \
    .kind = DLP_STAGE_PACK, .expands = 1, DLPI_OPS_OF_READS, .seen = dlpi_pack_seen, \
    .words = {.items = "tokens", .windows = "documents"}, .self_bytes = sizeof(dlpi_pack), \
    .check = dlpi_pack_check, .layout = dlpi_found_layout, .private_words = "document tables", \
    .room = dlpi_rooms_each, .blocks = dlpi_pack_blocks, .live = dlpi_pack_live

static const dlpi_stage_ops dlpi_pack_ops = {DLPI_PACK_OPS, .source = &dlpi_pack_source};
static const dlpi_stage_ops dlpi_pack_made_ops = {DLPI_PACK_OPS, .source = &dlpi_pack_made_source};

/* Let the levels of the stage make several documents of an input. Returns 0 or a DLP_ERR code. */
static int dlpi_pack_take_makers(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_program *g = &k->x.level[k->x.n_levels - 1].program;
    if (g->n == DLPI_OPS)
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                           "node \"%s\" stands behind eight filters and maps; leave one out",
                           st->name);
    g->op[g->n++] =
        (dlpi_op){.fn.call = dlpi_pack_step, .user = k, .row = dlpi_row_named(p, st->name)};
    st->ops = &dlpi_pack_made_ops;
    k->makes = true;
    k->most_documents = k->x.found.most_items;
    return DLP_OK;
}
