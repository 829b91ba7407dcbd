/* needs: parts */
#pragma once
/* tests: system/stages/found, system/stages/expand, system/stages/pack */
#include "inputs/agree.h"
/* What sources of items that nobody has counted have in common beside their batches. */

/* ---- states ---- */

DLPI_COLD static void dlpi_found_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_found *q = dlpi_found_of(p);
    s->params = dlpi_found_hash(&q->plan, dlpi_absorb(s->params, q->d.manifest_id));
}

/* Return the source's state at a batch: after the batch in slot s, or, if s is DLPI_NO_SLOT, after
   the last batch that was delivered. after: not used, because batches are delivered in order. */
static const dlpi_source_state *dlpi_found_state(const dlp_pipe *p, uint32_t s,
                                                 int after DLPI_UNREAD) {
    return s == DLPI_NO_SLOT ? &p->after.source : dlpi_slot_source(p, s);
}

/* True if a state may have stream s of all at that place. set: stream s, one of this rank, goes on
   from there. */
static bool dlpi_found_stand(dlpi_found *q, uint64_t s, const dlpi_path *path, bool set) {
    if (q->joins != NULL) return q->joins->take(q, s, path, set);
    if (q->rule != NULL && q->rule->take != NULL) return q->rule->take(q, s, path, set);
    return dlpi_found_go(q, s, &path->row, set);
}

/* Check a state that the caller gave. Returns NULL if this pipe may have saved it, else the name of
   the first part that is impossible. mix.legs: the legs that had begun are others. */
DLPI_COLD static const char *dlpi_found_never_saved(const dlp_pipe *p, const dlpi_state *s) {
    const dlpi_found *q = dlpi_found_of(p);
    uint8_t wide[DLPI_CURSORS_WIDE];
    dlpi_cursors c;
    if (q->arrives) return "n_items"; /* records come once */
    if (s->position != s->batch * p->global_batch) return "position";
    if (s->batch == 0) return s->sampler_bytes == 0 ? NULL : "sampler_bytes";
    if (q->plan.steps && s->batch >= q->plan.steps) return "batch";
    if (!dlpi_cursors_read(&c, wide, s->sampler, s->sampler_bytes)) return "sampler_bytes";
    if (!dlpi_cursors_alike(&c, &q->cursors) || (uint64_t)c.first + c.n > q->plan.streams)
        return "sampler";
    for (uint32_t i = 0, bit = dlpi_path_at(&c, 0); i < c.n; i++) {
        dlpi_path path = {.phase = 0};
        bit = dlpi_path_move(&c, wide, bit, &path, false);
        if (!dlpi_found_stand(dlpi_found_of(p), c.first + i, &path, false))
            return c.phase_bits > DLPI_DRAW_BITS ? "mix.legs" : "sampler";
        if (q->rule == NULL && path.row.place > s->batch * q->each) return "sampler";
    }
    return NULL;
}

/* Go on at the place of a state. Inputs that were asked for are dropped. Returns DLP_OK, or
   DLP_ERR_RESUME if a stream is missing in the state. */
DLPI_COLD static int dlpi_found_seek(dlp_pipe *p, const dlpi_state *to) {
    dlpi_found *q = dlpi_found_of(p), *b = q;
    uint8_t wide[DLPI_CURSORS_WIDE];
    dlpi_cursors c;
    p->schedule.in_epoch = to->batch;
    p->schedule.position = to->position;
    do {
        for (uint32_t i = 0; i < b->cursors.n; i++) {
            dlpi_found_close_window(b, i);
            dlpi_found_clear(b, &b->streams[i], UINT64_MAX);
        }
        dlpi_found_begin(b, to->epoch);
    } while ((b = b->next) != NULL);
    if (to->batch == 0) return DLP_OK;
    q->any = true;
    q->whole = false;
    if (!dlpi_cursors_read(&c, wide, to->sampler, to->sampler_bytes)) c.n = 0;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        const uint32_t s = q->cursors.first + i;
        dlpi_path path = {.phase = 0};
        if (s < c.first || s >= c.first + c.n)
            return dlpi_found_fail(p, DLP_ERR_RESUME,
                                   "stream %" PRIu32 " is missing, the state has %" PRIu32
                                   "..%" PRIu32 "; merge the states of all ranks (dlp_state_merge)",
                                   s, c.first, c.first + c.n - 1);
        q->streams[i].given = to->batch * q->each;
        dlpi_path_move(&c, wide, dlpi_path_at(&c, s - c.first), &path, false);
        dlpi_found_stand(q, s, &path, true);
    }
    return DLP_OK;
}

/* ---- observers ---- */

/* Return how many of the `items` items of a pass are left out at the end of each epoch, which gives
   `rows` of them. 0 if not all streams of this rank are counted yet. */
static uint64_t dlpi_found_left_out(const dlp_stream_stats *to, uint64_t items, uint64_t rows) {
    return to->counted == to->streams && items > rows ? items - rows : 0;
}

/* Observer: copy the statistics of streams into *to. Nothing is written for what is not known, or
   has another layout. */
static void dlpi_found_spread_seen(const dlpi_words *words, int id, dlp_stream_stats *to) {
    dlpi_found_spread h;
    const uint64_t items = DLPI_FOUND_SPREAD + sizeof h;
    uint64_t n = 0;
    memset(&h, 0, sizeof h);
    if (!dlpi_words_copy(words, id, 0, DLPI_FOUND_SPREAD, &h, sizeof h)) return;
    if (h.streams > words->areas[id].stride / 8 || h.streams > DLPI_WORDS_MAX) return;
    to->streams = (uint32_t)h.streams;
    to->all = (uint32_t)h.all;
    to->weights = h.weights;
    to->weights_least = h.weights_least;
    to->weights_most = h.weights_most;
    for (uint64_t i = 0; i < h.streams; i++) {
        if (!dlpi_word_at(words, id, 0, items + i * 8, 8, &n)) return;
        if (n-- == 0) continue;
        if (to->counted == 0 || n < to->least) to->least = n;
        if (n > to->most) to->most = n;
        to->items += n;
        to->counted++;
    }
    to->drops = (int32_t)(h.drops & 3);
    if (h.each > 0 && h.drops)
        to->left_out =
            dlpi_found_left_out(to, to->items, h.streams * (to->least / h.each * h.each));
    for (uint64_t i = 0; h.each > 0 && h.rows > 0 && i < h.streams; i++)
        if (dlpi_word_at(words, id, 0, items + i * 8, 8, &n) && n > 0)
            to->left_out += dlpi_found_left_out(to, n - 1, h.rows);
}

/* Observer: read the counts of cells, inputs and streams of a stage. Returns false if the region is
   not whole. */
DLPI_COLD static bool dlpi_found_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const dlpi_area *cells = &words->areas[DLPI_OWN(stage, DLPI_INPUTS_CELLS)];
    const int id = DLPI_OWN(stage, DLPI_INPUTS_COUNTS);
    dlp_stage_stats *out = &s->figures.stages[stage];
    uint64_t *const to[] = {&out->inputs, &out->inputs_items, &out->inputs_empty, &out->window};
    if (!dlpi_inputs_seen(words, s, stage)) return false;
    out->cell_bytes = dlpi_times(cells->stride, cells->count);
    if (words->areas[id].count == 0) return true;
    for (uint64_t i = 0; i < sizeof to / sizeof *to; i++)
        if (!dlpi_word_at(words, id, 0, i * 8, 8, to[i])) return false;
    dlpi_found_spread_seen(words, id, &out->spread);
    return true;
}

/* What all sources have whose items nobody has counted; of their self dlpi_found is the first. */
#define DLPI_FOUND_BATCHES \
    .step = dlpi_role_well, .indices = dlpi_source_filled, .rows = dlpi_found_rows, \
    .alike = dlpi_role_none, .ready = dlpi_found_ready, .fill = dlpi_found_fill, \
    .ahead = dlpi_found_ahead, .quiet = dlpi_found_quiet, .seek = dlpi_found_seek, \
    .item = dlpi_found_item, .state = dlpi_found_state, .agreed = dlpi_found_agreed, \
    .over = dlpi_found_tell, .no_state_at = true, .never_saved = dlpi_found_never_saved, \
    .order = "stream", .saves = "a place in each stream of this rank"

/* ... and those whose rows are items. */
#define DLPI_FOUND_SOURCE \
    DLPI_FOUND_BATCHES, .slot_bytes = dlpi_found_slot_bytes, .row_bytes = sizeof(dlp_part), \
                        .config = dlpi_found_config

#define DLPI_MAKERS_PATH "path up to the last maker, position behind it"

/* The stages of both. */
#define DLPI_OPS_OF_FOUND \
    DLPI_OPS_OF_INPUTS, .layout = dlpi_found_layout, .blocks = dlpi_found_blocks, \
                        .live = dlpi_found_live, .seen = dlpi_found_seen
