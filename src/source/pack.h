/* needs: parts */
#pragma once
#include "api/pack.h"
#include "source/expand.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pack       DOCUMENTS INTO ROWS
   The same source, with a rule: an input is a document, its items are tokens, and a row is a list
   of segments, each (cell, first token, tokens). The scheduler makes these lists as counts become
   known, and writes them into the slot; fetch's workers copy. Two functions follow the rule CUT:
   one over the documents that become known, which counts rows, one when a row is given, which
   writes it. Both go from where a row begins to where the next one does, so a cursor is that place.

   Cells, by the argument of >>impl-found: a stream must have so many documents with tokens that are
   not given that R rows, those that must be known, are. CUT: a row ends with its S-th segment, and
   each of so many documents has a token at least, so S of them from where a row begins on make a
   row. The next begins behind the last, so R rows take R S; or, with overlap, in the last or one
   before it, so R (S - 1) + 1. One less is too few where documents have one token, or, with
   overlap, `overlap` tokens. Rows get on: one that S has closed has S tokens or more, and overlap
   is less. */

#define DLPI_PACK_WORDS 4 /* of dlp_stage_stats.own */

typedef struct dlpi_pack_segment {
    uint32_t cell, first, tokens;
} dlpi_pack_segment;

typedef struct dlpi_pack_row { /* in a slot */
    uint32_t n, tokens;
    dlpi_pack_segment at[]; /* [S] */
} dlpi_pack_row;

typedef struct dlpi_pack_stream { /* the row that is not complete, of a stream */
    bool begun, ended;
    uint32_t cell, tokens, segments; /* it begins in this cell, if it has tokens */
    uint64_t first;                  /* with this one of its tokens */
    uint64_t repeated;               /* of its tokens: those that the row before it has, too */
} dlpi_pack_stream;

typedef struct dlpi_pack {
    dlpi_expand x; /* first: what is said of inputs and their fields holds for this, too */
    dlp_pack_desc d;
    uint32_t most; /* S */
    uint32_t n;    /* fields of a document */
    uint64_t row_stride;
    uint64_t unit[DLP_MAX_FIELDS]; /* bytes of a token */
    uint8_t pad[DLPI_LINE];        /* workers read what is above; below is the scheduler's */
    dlpi_pack_stream *streams;     /* [cursors.n] */
    uint64_t *words;               /* [DLPI_PACK_WORDS] in region, for observers */
} dlpi_pack;

static inline dlpi_pack *dlpi_pack_of(const dlp_pipe *p) { return p->source_stage->self; }

static inline dlpi_pack_row *dlpi_pack_row_at(const dlp_pipe *p, uint32_t s, uint32_t r) {
    return (dlpi_pack_row *)(void *)((uint8_t *)dlpi_slot_source(p, s) + sizeof(dlpi_source_state) +
                                     r * dlpi_pack_of(p)->row_stride);
}

/* ---- the desc ---- */

static int dlpi_pack_bounds(dlp_pipe *p, const dlpi_stage *st, const dlp_pack_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pack_desc, tokens), 2, 1 << 24, "2..2^24"},
        {DLPI_AT(dlp_pack_desc, rule), 0, DLP_PACK_CUT, "DLP_PACK_CUT"},
        {DLPI_AT(dlp_pack_desc, max_segments), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_pack_desc, positions), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pack_desc, uneven), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pack_desc, queue_size), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_pack_desc, streams), 0, 1 << 16, "0..2^16, a divisor of batch_size"},
        {DLPI_AT(dlp_pack_desc, steps_per_epoch), 0, INT64_C(1) << 40, "0..2^40"},
    };
    int rc = dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (rc == DLP_OK && d->overlap >= d->tokens)
        rc = dlpi_bad(p, st->name, "overlap", "below tokens", (int64_t)d->overlap);
    if (rc == DLP_OK && d->max_segments > 0 && d->max_segments <= d->overlap)
        rc = dlpi_bad(p, st->name, "max_segments", "above overlap, or 0", d->max_segments);
    return rc == DLP_OK ? dlpi_check_input_workers(p, st) : rc;
}

static int dlpi_pack_take(dlp_pipe *p, dlpi_stage *st, const dlp_pack_desc *d) {
    dlpi_pack *k = st->self;
    dlpi_found *q = &k->x.found;
    int rc = dlpi_pack_bounds(p, st, d);
    if (rc != DLP_OK) return rc;
    k->d = *d;
    q->d = (dlp_part_desc){.manifest_id = d->id, .queue_size = d->queue_size, .uneven = d->uneven};
    q->least_items = 1;
    q->plan.streams = d->streams ? d->streams : 1;
    q->plan.steps = d->steps_per_epoch;
    return DLP_OK;
}

/* ---- fields ---- */

/* Are these fields of documents? */
static int dlpi_pack_documents(dlp_pipe *p, const dlpi_expand *x) {
    const dlp_field *f = x->input_fields;
    if (x->input.n_fields > DLP_MAX_FIELDS - 2)
        return dlpi_bad(p, p->fetch->name, "dataset.n_fields", "1..14 behind pack",
                        x->input.n_fields);
    for (uint32_t i = 0; i < x->input.n_fields; i++)
        if (!f[i].ragged || f[i].ndim < 1 || f[i].shape[0] != f[0].shape[0] || f[i].shape[0] < 1 ||
            f[i].shape[0] > INT32_MAX)
            return dlpi_bad_field(p, p->fetch->name, i, f[i].name, "shape",
                                  "behind pack each field is ragged, and has the shape[0] of the "
                                  "first one, the longest document, below 2^31");
    return DLP_OK;
}

static int dlpi_pack_copy(void *user, dlp_item *it);

/* Rows have the documents' fields, of T tokens, and two more. */
static int dlpi_pack_fields(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_stage *fetch = p->fetch;
    const uint32_t t = k->d.tokens;
    uint32_t n, least = k->d.overlap + 1 < 8 ? 8 : k->d.overlap + 1;
    uint64_t fit = 2048 / p->global_batch;
    int rc = dlpi_expand_adopt(p, st, dlpi_pack_copy);
    if (rc != DLP_OK || (rc = dlpi_pack_documents(p, &k->x)) != DLP_OK) return rc;
    k->most = k->d.max_segments ? k->d.max_segments : fit > least ? (uint32_t)fit : least;
    if (k->most > t) k->most = t;
    k->n = n = k->x.input.n_fields;
    k->x.found.most_items = k->x.found.plan.most = (uint64_t)k->x.input_fields[0].shape[0];
    for (uint32_t i = 0; i < n; i++) {
        fetch->fields[i].shape[0] = t;
        fetch->fields[i].max_per_batch = 0;
    }
    dlpi_copy_text(fetch->field_names[n], sizeof fetch->field_names[n], "cu_seqlens");
    dlpi_copy_text(fetch->field_names[n + 1], sizeof fetch->field_names[n], "position_ids");
    fetch->fields[n] = (dlp_field){fetch->field_names[n], DLP_I32, 1, {k->most + 1}, 0, 0};
    fetch->fields[n + 1] = (dlp_field){fetch->field_names[n + 1], DLP_I32, 1, {t}, 0, 0};
    fetch->dataset.n_fields = n + 2;
    return DLP_OK;
}

static int dlpi_pack_sizes(dlp_pipe *p) { return dlpi_expand_inputs(p, dlpi_pack_fields); }

/* ---- cells, memory ---- */

static const dlpi_found_rule dlpi_pack_cut;

/* Documents of a stream that hold the rows which must be known. */
static uint64_t dlpi_pack_need(const dlp_pipe *p, const dlpi_pack *k) {
    uint64_t rows = dlpi_found_look(p, &k->x.found);
    return k->d.overlap ? dlpi_times(rows, k->most - 1) + 1 : dlpi_times(rows, k->most);
}

static int dlpi_pack_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    dlpi_expand *x = &k->x;
    int rc = dlpi_fields_init(p, st->name, &x->in, x->input.fields, x->input.n_fields, false);
    if (rc != DLP_OK) return rc;
    x->in_bytes = dlpi_expand_places(&x->in, x->in_at);
    for (uint32_t f = 0; f < k->n; f++)
        k->unit[f] = x->in.at[f].row_bytes / (uint64_t)x->in.at[f].f.shape[0];
    k->row_stride = sizeof(dlpi_pack_row) + k->most * sizeof(dlpi_pack_segment);
    x->found.rule = &dlpi_pack_cut;
    x->found.d.max_part_bytes = x->in_bytes;
    return dlpi_found_cells(p, st, dlpi_pack_need(p, k), "batch_size, max_segments");
}

static uint64_t dlpi_pack_slot_bytes(const dlp_pipe *p) {
    return dlpi_sum(sizeof(dlpi_source_state),
                    dlpi_round_up(dlpi_times(p->batch_rows, dlpi_pack_of(p)->row_stride), 8));
}

static void dlpi_pack_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_found_layout(p, st);
    dlpi_area_add(p, DLPI_REC_OWN + st->id, NULL, DLPI_PACK_WORDS * 8, 1, DLPI_LINE);
}

static int dlpi_pack_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_pack *k = st->self;
    int n = dlpi_found_blocks(p, st, out);
    out[n] = (dlpi_block){offsetof(dlpi_pack, streams),
                          dlpi_times(k->x.found.cursors.n, sizeof *k->streams)};
    return n + 1;
}

static void dlpi_pack_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_pack *k = st->self;
    k->words = dlpi_area_at(p, DLPI_REC_OWN + st->id, 0);
    dlpi_found_live(p, st);
}

/* ---- CUT: rows that become known ---- */

static void dlpi_pack_cut_begin(dlpi_found *q, uint32_t i) {
    ((dlpi_pack *)(void *)q)->streams[i] = (dlpi_pack_stream){.cell = DLPI_FOUND_NONE};
}

/* A row is complete: the next one begins with what is repeated of it. */
static void dlpi_pack_cut_next(const dlpi_pack *k, dlpi_pack_stream *x) {
    const dlpi_found_cell *use = k->x.found.use;
    uint64_t skip = x->tokens - k->d.overlap;
    x->tokens = k->d.overlap;
    x->repeated = k->d.overlap;
    if (x->tokens == 0) {
        x->segments = 0;
        return;
    }
    while (skip >= use[x->cell].n - x->first) {
        skip -= use[x->cell].n - x->first;
        x->cell = use[x->cell].next;
        x->first = 0;
        x->segments--;
    }
    x->first += skip;
}

/* A document more is known: the rows that it completes. */
static uint64_t dlpi_pack_cut_learned(dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_pack *k = (dlpi_pack *)(void *)q;
    dlpi_pack_stream *x = &k->streams[i];
    const dlpi_found_stream *f = &q->streams[i];
    uint64_t at = q->use[c].taken, left = q->use[c].n - at, rows = 0;
    bool joined = false; /* the row has tokens of this document already */
    if (!x->begun) x->repeated = f->at.ordinal | f->at.used ? k->d.overlap : 0;
    x->begun = true;
    while (left > 0) {
        uint32_t room = k->d.tokens - x->tokens, n = left < room ? (uint32_t)left : room;
        if (x->tokens == 0) {
            x->cell = c;
            x->first = at;
        }
        x->tokens += n;
        x->segments += !joined;
        at += n;
        left -= n;
        if (x->tokens < k->d.tokens && x->segments < k->most) break;
        rows++;
        dlpi_pack_cut_next(k, x);
        joined = x->tokens > 0;
    }
    return rows;
}

/* The last row of a stream. */
static uint64_t dlpi_pack_cut_more(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack_stream *x = &dlpi_pack_of(p)->streams[i];
    if (!out || x->ended) return 0;
    x->ended = true;
    return x->tokens > x->repeated;
}

/* ---- a row is given ---- */

/* A piece of the document in cell c, behind what row r of slot s has. */
static void dlpi_pack_put(dlp_pipe *p, uint32_t s, uint32_t r, uint32_t c, uint64_t first,
                          uint32_t tokens) {
    dlpi_pack_row *row = dlpi_pack_row_at(p, s, r);
    if (row->n == 0) dlpi_slot_index(p, s)[r] = dlpi_input_at(p, c)->index;
    row->at[row->n++] = (dlpi_pack_segment){c, (uint32_t)first, tokens};
    row->tokens += tokens;
    dlpi_found_use(p, s, c);
    if (dlpi_found_of(p)->use[c].failed) dlpi_found_fail_row(p, s, r, c);
}

/* Row r of slot s is whole: it is counted. */
static void dlpi_pack_count(const dlp_pipe *p, const dlpi_pack_row *row) {
    const dlpi_pack *k = dlpi_pack_of(p);
    dlpi_bump(&k->words[DLP_PACK_ROWS], 1);
    dlpi_bump(&k->words[DLP_PACK_TOKENS], row->tokens);
    dlpi_bump(&k->words[DLP_PACK_PADDING], k->d.tokens - row->tokens);
    dlpi_bump(&k->words[DLP_PACK_SEGMENTS], row->n);
}

/* A stream gives its first tokens: the next row begins behind them. */
static void dlpi_pack_cut_skip(dlpi_found *q, dlpi_found_stream *x, uint64_t skip) {
    while (skip > 0) {
        dlpi_found_cell *u = &q->use[x->head];
        uint64_t n = u->n - u->taken < skip ? u->n - u->taken : skip;
        u->taken += n;
        skip -= n;
        x->at = (dlpi_cursor){u->ordinal, u->taken};
        if (u->taken == u->n) dlpi_found_given(q, x);
    }
}

/* A row that has neither T tokens nor S segments is the last: nothing of it is repeated. */
static void dlpi_pack_cut_give(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = &k->x.found;
    dlpi_found_stream *x = &q->streams[i];
    dlpi_pack_row *row = dlpi_pack_row_at(p, s, r);
    uint32_t c = x->head;
    uint64_t skip;
    row->n = row->tokens = 0;
    while (c != x->known && row->tokens < k->d.tokens && row->n < k->most) {
        const dlpi_found_cell *u = &q->use[c];
        uint64_t room = k->d.tokens - row->tokens, n = u->n - u->taken;
        dlpi_pack_put(p, s, r, c, u->taken, (uint32_t)(n < room ? n : room));
        c = u->next;
    }
    skip = row->tokens;
    if (row->tokens == k->d.tokens || row->n == k->most) skip -= k->d.overlap;
    dlpi_pack_cut_skip(q, x, skip);
    dlpi_pack_count(p, row);
}

static const dlpi_found_rule dlpi_pack_cut = {
    .begin = dlpi_pack_cut_begin,
    .learned = dlpi_pack_cut_learned,
    .more = dlpi_pack_cut_more,
    .give = dlpi_pack_cut_give,
};

/* ---- a row of a batch is fetched ---- */

typedef struct dlpi_pack_extra { /* of a row, for its copy */
    dlp_part part;               /* first: dlp_item.part */
    const dlp_pipe *p;
    const dlpi_pack_row *row;
} dlpi_pack_extra;

static void dlpi_pack_row_extra(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                                void *extra) {
    dlpi_pack_extra *e = extra;
    *e = (dlpi_pack_extra){.p = w->p, .row = dlpi_pack_row_at(w->p, s, row)};
    it->part = &e->part;
}

/* Where segments begin, and places of tokens. */
static void dlpi_pack_places(const dlpi_pack *k, const dlpi_pack_row *row, int32_t *bounds,
                             int32_t *places) {
    uint32_t at = 0;
    bounds[0] = 0;
    for (uint32_t i = 0; i < k->most; i++) {
        uint32_t n = i < row->n ? row->at[i].tokens : 0;
        int32_t from = n > 0 && k->d.positions ? (int32_t)row->at[i].first : 0;
        for (uint32_t j = 0; j < n; j++) places[at + j] = from + (int32_t)j;
        at += n;
        bounds[i + 1] = (int32_t)at;
    }
    memset(places + at, 0, (k->d.tokens - at) * sizeof *places);
}

/* The fetch stage's callback: segments, out of their cells. */
static int dlpi_pack_copy(void *user, dlp_item *it) {
    const dlpi_pack *k = user;
    const dlpi_pack_extra *e = (const dlpi_pack_extra *)(const void *)it->part;
    const dlpi_pack_row *row = e->row;
    for (uint32_t f = 0; f < k->n; f++) {
        uint8_t *to = it->data[f];
        for (uint32_t i = 0; i < row->n; i++) {
            const dlpi_pack_segment *g = &row->at[i];
            uint64_t bytes = g->tokens * k->unit[f];
            memcpy(to, dlpi_input_bytes(e->p, g->cell) + k->x.in_at[f] + g->first * k->unit[f],
                   (size_t)bytes);
            to += bytes;
        }
        memset(to, 0, (size_t)((k->d.tokens - row->tokens) * k->unit[f]));
        it->length[f] = row->tokens;
    }
    dlpi_pack_places(k, row, it->data[k->n], it->data[k->n + 1]);
    return 0;
}

/* ---- a document is read ---- */

/* One try. Returns 0, or what is wrong. */
static int dlpi_pack_load(dlpi_worker *w, uint32_t c) {
    const dlpi_pack *k = dlpi_pack_of(w->p);
    dlpi_input *cell = dlpi_input_at(w->p, c);
    dlp_item in = dlpi_expand_in(w, cell);
    void *data[DLP_MAX_FIELDS];
    int rc = dlpi_call_verdict(w, cell->killed_by, cell->rec);
    if (rc != 0) return rc;
    dlpi_expand_item(&in, dlpi_input_bytes(w->p, c), &k->x.in, k->x.in_at, data,
                     !k->x.input.writes_all_bytes);
    rc = k->x.input.fetch(k->x.input.user, &in);
    if (rc == 0) rc = dlpi_expand_lengths(w, &k->x.in, in.length);
    for (uint32_t f = 1; f < k->n && rc == 0; f++)
        if (in.length[f] != in.length[0])
            rc = dlpi_say(w, DLP_ERR_LENGTH,
                          "field \"%s\" has %" PRIu64 " rows, \"%s\" has %" PRIu64,
                          k->x.in.at[f].name, in.length[f], k->x.in.at[0].name, in.length[0]);
    if (rc == DLP_SKIP) rc = 0, in.length[0] = 0;
    rc = dlpi_guard_input(w, c, k->x.in_bytes, dlpi_item_returned(w, rc));
    if (rc != 0) return rc;
    cell->items = in.length[0];
    cell->bytes = cell->items * k->unit[0];
    return 0;
}

/* ---- states, statistics ---- */

static void dlpi_pack_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const uint64_t words[] = {
        k->d.tokens,           (uint64_t)k->d.rule,      k->d.overlap, k->most, k->d.window,
        (uint64_t)k->d.longer, (uint64_t)k->d.positions, k->d.id};
    s->params = dlpi_order_hash_array(s->params, words, sizeof words / sizeof *words);
    s->params = dlpi_found_hash(&k->x.found.plan, s->params);
}

static bool dlpi_pack_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int type = DLPI_REC_OWN + stage;
    if (!dlpi_inputs_seen(words, s, stage)) return false;
    for (uint64_t i = 0; i < DLPI_PACK_WORDS && words->rec[type].type != 0; i++)
        if (!dlpi_word_at(words, type, 0, i * 8, 8, &s->figures.stages[stage].own[i])) return false;
    return true;
}

static const dlpi_source_ops dlpi_pack_source = {
    .sizes = dlpi_pack_sizes,
    DLPI_FOUND_BATCHES,
    .slot_bytes = dlpi_pack_slot_bytes,
    .row_bytes = sizeof(dlpi_pack_extra),
    .row = dlpi_pack_row_extra,
    .config = dlpi_pack_config,
    .params = "streams, steps_per_epoch, fields, and all that pack says of rows",
    .input = "document",
    .load = dlpi_pack_load,
};

static const dlpi_stage_ops dlpi_pack_ops = {
    .kind = DLP_STAGE_PACK,
    DLPI_OPS_OF_LOADED_INPUTS,
    .seen = dlpi_pack_seen,
    .self_bytes = sizeof(dlpi_pack),
    .check = dlpi_pack_check,
    .layout = dlpi_pack_layout,
    .private_words = "document tables",
    .blocks = dlpi_pack_blocks,
    .live = dlpi_pack_live,
    .source = &dlpi_pack_source,
};
