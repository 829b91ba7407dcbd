/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/stages/chunk_seams, system/shm/shm_chunks */
#include "api/chunks.h"
#include "order/chunks.h"
#include "inputs/check.h"
#include "deliver/deliver.h"
#include "inputs/epoch.h"
#include "slot/item.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-split      CHUNKS LOADED, AND SPLIT INTO VIEWS
   With a split stage the items of the pipe are chunks, one in each batch of the core. The consumer
   gets views: the user's batches, which are rows of chunks. Where a view lies follows from counts
   alone (>>impl-chunk-rows). Workers load a chunk in the fetch stage. The consumer's thread splits:
   it takes a chunk as dlpi_next takes a batch, and hands out views of it. refs counts, for each
   slot, the views that the user holds, and one more while the chunk is being split. A chunk is
   taken only when the chunk before is split to its end. So each chunk that is out has a view that
   is held, except the chunk taken last, which at most max_held - 1 others can precede. So never
   more than max_held chunks are out, and the pipe has as many slots for them.
   A batch that spans chunks is copied into a seam buffer, chunk by chunk as the chunks come. Each
   view has a seam buffer of its own, and such a view keeps no chunk. If a call of next times out
   before the last of these chunks, the rows stay in the buffer for the next call. */

/* Numbers of the stage's areas in the region. */
enum { DLPI_SPLIT_REC = 1, DLPI_SPLIT_RESIDENT, DLPI_SPLIT_SEAM = DLPI_OWN_HIDDEN };

typedef struct dlpi_split { /* the stage's own record */
    dlp_node_split d;
    dlpi_chunk_plan plan;
    dlp_chunks_desc chunks; /* desc of dlp_chunks_open, if it has made the table; else zeros */
    bool in_place;          /* views point into the memory of rows_at; nothing is copied */
    uint32_t cpu_buffers;   /* with a device: host buffers of chunks; 0: prefetch_factor */
    dlpi_stage_ops loads;   /* ops of the fetch stage if loaders wait for free host buffers */
    int preload_auto;       /* 1: preload was chosen by DLP_PRELOAD_AUTO */
    uint64_t *first;        /* [n_chunks + 1] rows before each chunk; NULL: desc.rows is NULL */
    uint32_t view_rows;     /* rows of this rank's full batch */
    uint32_t slot;          /* slot of the chunk that is being split; DLPI_NO_SLOT: none is */
    dlpi_order order;       /* the order of chunks, as the consumer's thread computes it */
    dlpi_chunk_spot at;     /* where that chunk stands in the epoch */
    uint64_t chunk;         /* that chunk's number in the dataset */
    uint64_t sequence;      /* views handed out so far */
    uint32_t turn;          /* the view that is looked at first for the next batch, 0..n_out - 1 */
    struct {                /* the batch that is being copied together from several chunks */
        uint32_t v;         /* the view that it gets */
        uint32_t rows;      /* rows that are there; 0: there is no such batch now */
        bool waits;         /* the device's copy of rows from the present chunk is not over yet */
        uint32_t seek_no;   /* of the pipe when it was begun: after a seek it is dropped */
        uint64_t epoch, batch; /* its number */
    } seam;
    uint32_t *refs;              /* [n_slots] views that are held, and 1 more during the split */
    uint32_t *slot_of;           /* [n_out] slot of each view; DLPI_NO_SLOT: its seam buffer */
    dlpi_spot *after;            /* [n_out] the spot behind each view */
    uint64_t *index;             /* [n_out][view_rows] dlp_batch.indices of each view */
    uint8_t *valid;              /* [2][view_rows] of a view with all its rows, and one with none;
                                    then [n_out][view_rows] of the views in seam buffers */
    dlpi_chunk_spot *places;     /* [workers of fetch] each worker's last place in the order */
    dlp_permutation permutation; /* order of the rows in the chunk that is being split */
    uint8_t pad[DLPI_LINE];
    dlpi_order scheduled; /* the scheduler's copy, if each chunk has a cell of its own */
    uint8_t pad1[DLPI_LINE];
    dlpi_order copied; /* the copy of the sink's thread, and its last place */
    dlpi_chunk_spot copied_at;
} dlpi_split;

/* Chunks, for observers. Words of those that stay, and of the sink's buffers, have records of
   their own. */
typedef struct dlpi_chunk_rec {
    uint64_t per_epoch, cpu_buffers; /* chunks of an epoch; host buffers */
    int32_t preload;                 /* DLP_PRELOAD_NONE, _CPU, _DEVICE */
    uint32_t in_epoch_at, used_at; /* bytes from the start of a slot's record to two of its words */
    uint32_t view_rows;            /* rows of this rank's full batch; 0: an older version's */
    int32_t preload_auto;          /* 1: preload was chosen by DLP_PRELOAD_AUTO */
    uint32_t seam_buffers;
    uint64_t seams, seam_bytes; /* views copied together so far, and their bytes; the consumer's */
} dlpi_chunk_rec;

_Static_assert(sizeof(dlpi_chunk_rec) == 56, "region layout");

static dlpi_split *dlpi_split_of(const dlp_pipe *p) { return p->lender_stage->self; }

static uint64_t dlpi_chunk_count(const dlp_pipe *p) { return p->fetch->dataset->n_items; }

/* Return the end of the rows that a chunk's buffer holds of its axis. A chunk that stays is whole,
   because in another epoch the axis may end elsewhere. */
static uint64_t dlpi_chunk_filled(const dlpi_split *c, const dlpi_chunk_spot *x) {
    bool whole = c->plan.spans && c->plan.world == 1 && c->chunks.preload != DLP_PRELOAD_NONE;
    return whole ? x->from + x->size : dlpi_chunk_end(x);
}

/* Return the bytes of field f in a seam buffer, or 0 if there are no seam buffers. */
static uint64_t dlpi_seam_bytes(const dlp_pipe *p, uint32_t f) {
    const dlpi_split *c = dlpi_split_of(p);
    if (!c->plan.spans || f >= p->batches.n) return 0; /* the latter in a pipe that was refused */
    return c->view_rows * dlpi_row_bytes(&p->batches.at[f]);
}

/* Return the bytes of field f of the chunk in slot s. Only the sink's thread may call this. */
static uint64_t dlpi_chunk_bytes(const dlp_pipe *p, uint32_t s, uint32_t f) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlpi_chunk_spot *x = &c->copied_at;
    dlpi_chunk_goto(&c->plan, &c->copied, slot->epoch, slot->position, x);
    return dlpi_chunk_row_at(&c->plan, x, dlpi_chunk_filled(c, x)) *
           dlpi_row_bytes(&p->batches.at[f]);
}

static void dlpi_chunk_permute(const dlp_pipe *p, uint64_t epoch, uint64_t c,
                               dlp_permutation *out) {
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_ROWS, dlpi_sampler_of(p)->seed, c), 1);
    dlp_permutation_init(out, dlpi_chunk_size(&dlpi_split_of(p)->plan, c), key, epoch);
}

/* ---- chunks that stay (preload) ----
   A word of the region for each chunk says which batch loads it: batch + 1 (48 bits), the batch's
   slot (15 bits), and in the lowest bit whether the chunk is loaded. If the last batch of an epoch
   and the first of the next have the same chunk, and both are under way, it is loaded once. If the
   worker that loads a chunk is killed, the next worker of the batch loads it again, or after the
   batch is gone a worker of another batch.

   label  atomic            written by                      read by
   Q5     a chunk's word    a loader, before and after      loaders, the sink (Q5) */

static uint64_t *dlpi_chunk_word(const dlp_pipe *p, uint64_t c) {
    return dlpi_area_at(p, DLPI_OWN(p->lender_stage->id, DLPI_SPLIT_RESIDENT), c);
}
static uint64_t dlpi_chunk_key(const dlp_pipe *p, uint32_t s) {
    return (dlpi_slot_at(p, s)->sequence + 1) << 16 | (uint64_t)s << 1;
}

/* True if the chunk in slot s was left out. Its rows are zeros, and later epochs do not find it. */
static bool dlpi_chunk_left(const dlp_pipe *p, uint32_t s) {
    return DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) && /* ordered by ready */
           dlpi_fate_state(dlpi_slot_fate(p, s)[0]) == DLPI_ROW_LEFT;
}

/* Return the number of the chunk that the scheduler's present batch is: the number of its cell.
   Returns 0 if there are no cells. */
static uint32_t dlpi_chunk_cell(dlp_pipe *p) {
    uint64_t c = 0;
    if (dlpi_cells_none(p)) return 0;
    dlpi_order_block(&dlpi_split_of(p)->scheduled, p->schedule.epoch, p->schedule.in_epoch, 1, &c);
    return (uint32_t)c;
}

/* Return the chunk in slot s, by number, as its place on the device; DLPI_NO_SLOT: none. */
static uint32_t dlpi_chunk_place(const dlp_pipe *p, uint32_t s) {
    uint64_t c = dlpi_slot_index(p, s)[0];
    return c < dlpi_chunk_count(p) ? (uint32_t)c : DLPI_NO_SLOT;
}

/* Return the slot whose cell has the bytes of a chunk that the sink has not copied yet, for batch b
   in slot s. Returns DLPI_NO_SLOT if no cell has them.
   If two batches under way are the same chunk, either may have loaded it. The later batch shares
   its cell and keeps it, because it waits at the sink after b. The earlier one would have copied
   the chunk, had the copy not failed. */
static uint32_t dlpi_chunk_source(const dlp_pipe *p, uint32_t s, uint64_t b) {
    uint64_t word = dlpi_claim_owner(dlpi_chunk_word(p, dlpi_slot_index(p, s)[0])); /* Q5 <- Q5 */
    if (dlpi_chunk_left(p, s)) return s;                                            /* its zeros */
    if ((word & 1) == 0 || (word >> 16) - 1 < b) return DLPI_NO_SLOT;
    return (word >> 16) - 1 == b ? s : (uint32_t)(word >> 1 & 0x7fff);
}

static const dlpi_stay_ops dlpi_chunk_stay = {dlpi_chunk_place, dlpi_chunk_left, dlpi_chunk_source};

/* ---- the splitter ---- */

static void dlpi_split_unref(dlp_pipe *p, uint32_t s) {
    if (--dlpi_split_of(p)->refs[s] == 0) dlpi_slot_release(p, s);
}

static void dlpi_split_leave_chunk(dlp_pipe *p) {
    dlpi_split_unref(p, dlpi_split_of(p)->slot);
    dlpi_split_of(p)->slot = DLPI_NO_SLOT;
}

/* Begin to split the chunk in slot s, which the caller took from the pipe. The chunk has one
   reference then. */
static void dlpi_split_take(dlp_pipe *p, uint32_t s) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    c->slot = s;
    c->refs[s] = 1;
    c->chunk = dlpi_slot_index(p, s)[0];
    dlpi_chunk_goto(&c->plan, &c->order, slot->epoch, slot->position, &c->at);
    if (c->d.shuffle_rows) dlpi_chunk_permute(p, slot->epoch, c->chunk, &c->permutation);
}

/* Return the time in ns at which a call of dlp_pipe_next with this timeout_ms must return. *until:
   0 in the first call; keeps the time for later calls. */
static uint64_t dlpi_split_until(int timeout_ms, uint64_t *until) {
    if (*until == 0)
        *until = timeout_ms < 0 ? UINT64_MAX : dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    return *until;
}

/* Make sure that a chunk is at hand to be split; wait for one if not. Returns DLP_OK, or what
   dlp_pipe_next is to return: a time-out, the end, or an error. */
DLPI_COLD static int dlpi_split_have(dlp_pipe *p, int timeout_ms, uint64_t *until) {
    uint64_t b, now;
    uint32_t s;
    int rc;
    if (dlpi_split_of(p)->slot != DLPI_NO_SLOT) return DLP_OK;
    if (timeout_ms > 0) {
        now = dlpi_now_ns();
        timeout_ms = dlpi_split_until(timeout_ms, until) > now
                         ? (int)((*until - now + 999999u) / 1000000u)
                         : 0;
    }
    rc = dlpi_next_slot(p, timeout_ms, &b, &s);
    if (rc != DLP_OK) {
        dlpi_next_fails(p, rc, s);
        return rc;
    }
    dlpi_taken(p, b, dlpi_slot_at(p, s)->flags);
    dlpi_split_take(p, s);
    dlpi_schedule_inline(p, 1);
    return DLP_OK;
}

/* Write into index[] the dataset indices of rows [from, from + count) of the chunk's order. */
static void dlpi_split_indices(const dlpi_split *c, uint64_t from, uint32_t count,
                               uint64_t *index) {
    uint64_t first = dlpi_chunk_first(&c->plan, c->chunk);
    bool shuffled = c->d.shuffle_rows != 0;
    if (shuffled) dlp_permutation_block(&c->permutation, from, count, index);
    for (uint32_t i = 0; i < count; i++) index[i] = first + (shuffled ? index[i] : from + i);
}

/* Set the sizes of view v's fields for `count` rows. Returns the bytes of the view. */
static uint64_t dlpi_split_shape(dlp_pipe *p, uint32_t v, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        t->bytes = count * dlpi_row_bytes(&p->batches.at[f]);
        t->shape[0] = count;
        sum += t->bytes;
    }
    return sum;
}

/* True if the present chunk's rows lie where rows_at says. A chunk that was left out does not. */
static bool dlpi_split_elsewhere(const dlp_pipe *p) {
    const dlpi_split *c = dlpi_split_of(p);
    return c->in_place && !dlpi_chunk_left(p, c->slot);
}

/* Return the number of the row in the present chunk's bytes that is row g of its axis. */
static uint64_t dlpi_split_row_at(const dlp_pipe *p, uint64_t g) {
    const dlpi_split *c = dlpi_split_of(p);
    return dlpi_split_elsewhere(p) ? g - c->at.from : dlpi_chunk_row_at(&c->plan, &c->at, g);
}

/* Return the address of row `row` of field f in the present chunk. */
static uint8_t *dlpi_split_row(const dlp_pipe *p, uint32_t f, uint64_t row) {
    const dlpi_split *c = dlpi_split_of(p);
    const dlpi_field *d = &p->batches.at[f];
    if (dlpi_split_elsewhere(p))
        return (uint8_t *)(uintptr_t)c->chunks.rows_at(c->chunks.user, c->chunk, f) +
               row * dlpi_row_bytes(d);
    return dlpi_batch_cell(p, dlpi_split_of(p)->slot) + d->offset + row * dlpi_row_bytes(d);
}

/* Point the fields of view v at row `row` of the present chunk. */
static void dlpi_split_point(dlp_pipe *p, uint32_t v, uint64_t row) {
    for (uint32_t f = 0; f < p->batches.n; f++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        if (p->sink_stage)
            p->sink->data(p, dlpi_split_of(p)->slot, f, row * dlpi_row_bytes(&p->batches.at[f]), t);
        else
            t->data = dlpi_split_row(p, f, row);
    }
}

/* Return the number of a view that the consumer does not hold, in turn. The consumer must hold
   fewer than max_held views. */
static uint32_t dlpi_split_free_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    uint32_t v = c->turn;
    while (p->lent[v]) v = v + 1 == p->n_out ? 0 : v + 1; /* fewer than max_held are */
    c->turn = v + 1 == p->n_out ? 0 : v + 1;
    return v;
}

/* ---- batches that span chunks ---- */

static uint8_t *dlpi_split_valid(const dlpi_split *c, uint32_t v) {
    return c->valid + (2 + (size_t)v) * c->view_rows;
}

/* Return where field f of view v lies in the seam buffers of the region. */
static uint8_t *dlpi_seam_at(const dlp_pipe *p, uint32_t v, uint32_t f) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < f; i++) at += dlpi_line_up(dlpi_seam_bytes(p, i));
    return (uint8_t *)dlpi_area_at(p, DLPI_OWN(p->lender_stage->id, DLPI_SPLIT_SEAM), v) + at;
}

/* Copy `count` rows of the present chunk, from row `row` on, behind the rows in the seam buffer.
   With a device the copy is only begun (dlpi_seam_arrive). Returns 0 or a DLP_ERR code. */
static int dlpi_seam_copy(dlp_pipe *p, uint64_t row, uint32_t count) {
    dlpi_split *c = dlpi_split_of(p);
    dlpi_chunk_rec *r = dlpi_area_at(p, DLPI_OWN(p->lender_stage->id, DLPI_SPLIT_REC), 0);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        uint64_t unit = dlpi_row_bytes(&p->batches.at[f]);
        if (p->sink_stage == NULL)
            memcpy(dlpi_seam_at(p, c->seam.v, f) + c->seam.rows * unit, dlpi_split_row(p, f, row),
                   (size_t)(count * unit));
        dlpi_bump(&r->seam_bytes, count * unit);
    }
    if (p->sink_stage == NULL) return DLP_OK;
    c->seam.waits = true;
    return p->sink->join(p, c->seam.v, c->seam.rows, c->slot, row, count);
}

/* Wait for copies that are under way into the seam, even if nobody wants them any more: their chunk
   can't be given back before. Returns DLP_OK, DLP_TIMEOUT, DLP_STOPPED, or a DLP_ERR code. */
static int dlpi_seam_arrive(dlp_pipe *p, int timeout_ms, uint64_t *until) {
    dlpi_split *c = dlpi_split_of(p);
    int rc;
    if (!c->seam.waits) return DLP_OK;
    rc = p->sink->arrive(p, c->seam.v, dlpi_split_until(timeout_ms, until));
    if (rc == DLP_OK) c->seam.waits = false;
    return rc;
}

/* True if the rows in the seam belong to the batch that comes next. */
static bool dlpi_seam_begun(const dlp_pipe *p) {
    const dlpi_split *c = dlpi_split_of(p);
    return c->seam.rows > 0 && c->seam.seek_no == p->seek_no &&
           c->seam.epoch == p->after.spot.epoch && c->seam.batch == p->after.spot.batch;
}

/* Add rows [g, g + count) of the present chunk's axis to the seam. Returns 0 or a DLP_ERR code. */
static int dlpi_seam_add(dlp_pipe *p, uint64_t g, uint32_t count) {
    dlpi_split *c = dlpi_split_of(p);
    uint32_t at = c->seam.rows, v;
    bool left = dlpi_chunk_left(p, c->slot);
    int rc;
    if (count == 0) return DLP_OK;
    if (at == 0) {
        c->seam.v = dlpi_split_free_view(p);
        c->seam.seek_no = p->seek_no;
        c->seam.epoch = p->after.spot.epoch;
        c->seam.batch = p->after.spot.batch;
    }
    v = c->seam.v;
    rc = dlpi_seam_copy(p, dlpi_split_row_at(p, g), count);
    if (rc != DLP_OK) return rc;
    dlpi_split_indices(c, g - c->at.from, count, c->index + (size_t)v * c->view_rows + at);
    memset(dlpi_split_valid(c, v) + at, !left, count);
    c->seam.rows += count;
    return DLP_OK;
}

/* Make a view of the batch that is complete in the seam. Returns the view's number. */
static uint32_t dlpi_seam_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    dlpi_chunk_rec *r = dlpi_area_at(p, DLPI_OWN(p->lender_stage->id, DLPI_SPLIT_REC), 0);
    uint32_t v = c->seam.v;
    dlp_batch *b = &p->out[v];
    for (uint32_t f = 0; f < p->batches.n; f++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        t->data = p->sink_stage ? p->sink->seam(p, v, f) : dlpi_seam_at(p, v, f);
        t->byte_offset = 0;
    }
    b->valid = dlpi_split_valid(c, v);
    b->valid_count = 0;
    for (uint32_t i = 0; i < c->seam.rows; i++) b->valid_count += b->valid[i];
    c->slot_of[v] = DLPI_NO_SLOT;
    c->seam.rows = 0;
    dlpi_bump(&r->seams, 1);
    return v;
}

/* Make a view of rows [g, g + count) of the chunk's axis, where they lie. Returns its number. */
static uint32_t dlpi_split_view(dlp_pipe *p, uint64_t g, uint32_t count) {
    dlpi_split *c = dlpi_split_of(p);
    uint32_t v = dlpi_split_free_view(p);
    dlp_batch *b = &p->out[v];
    bool left = dlpi_chunk_left(p, c->slot);
    dlpi_split_point(p, v, dlpi_split_row_at(p, g));
    dlpi_split_indices(c, g - c->at.from, count, c->index + (size_t)v * c->view_rows);
    b->valid = left ? c->valid + c->view_rows : c->valid;
    b->valid_count = left ? 0 : count;
    c->slot_of[v] = c->slot;
    c->refs[c->slot]++;
    return v;
}

/* Fill in view v as batch k of the axis: rows [first, first + count). Returns what goes out. */
static dlpi_handed dlpi_split_hand(dlp_pipe *p, uint32_t v, uint64_t k, uint64_t first,
                                   uint32_t count) {
    dlpi_split *c = dlpi_split_of(p);
    dlp_batch *b = &p->out[v];
    uint64_t base = c->plan.spans ? 0 : c->at.rows, end = (k + 1) * c->plan.batch;
    b->count = count;
    b->sequence = c->sequence++;
    b->epoch = c->at.epoch;
    b->in_epoch = c->at.batches + k;
    b->position = base + first;
    b->flags = b->in_epoch + 1 == c->plan.batches ? DLP_BATCH_LAST : 0;
    b->index = c->index + (size_t)v * c->view_rows;
    b->number = NULL; /* of slots */
    b->list = NULL;
    end = base + (end < c->at.axis ? end : c->at.axis);
    c->after[v] = dlpi_spot_behind(b->epoch, b->in_epoch, end, (b->flags & DLP_BATCH_LAST) != 0);
    return (dlpi_handed){v, dlpi_split_shape(p, v, count), end};
}

/* True if the chunk has no rows of this rank's batches after batch k. */
static bool dlpi_split_through(const dlpi_split *c, uint64_t k) {
    uint64_t first;
    if ((k + 1) * c->plan.batch >= dlpi_chunk_end(&c->at)) return true;
    dlpi_chunk_share(&c->plan, c->at.axis, k + 1, &first);
    return first >= dlpi_chunk_end(&c->at);
}

/* Cut the next batch out of the present chunk into *to. Returns 0 if there is a view; DLP_EMPTY if
   the chunk has only a part, or the seam waits; or a DLP_ERR code. */
static int dlpi_split_cut(dlp_pipe *p, dlpi_handed *to) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_chunk_spot *x = &c->at;
    uint64_t k = p->after.spot.batch - x->batches, first, from, end = dlpi_chunk_end(x);
    uint32_t count, have, there = dlpi_seam_begun(p) ? c->seam.rows : 0;
    bool whole;
    int rc;
    count = dlpi_chunk_share(&c->plan, x->axis, k, &first);
    from = first + there;
    c->seam.rows = there;
    whole = there > 0 && there == count;
    if (x->epoch != p->after.spot.epoch || (end <= from && !whole)) {
        dlpi_split_leave_chunk(p);
        return DLP_EMPTY;
    }
    have = end - from < count - there ? (uint32_t)(end - from) : count - there;
    if (whole) {
        *to = dlpi_split_hand(p, dlpi_seam_view(p), k, first, count);
    } else if (have == count) {
        *to = dlpi_split_hand(p, dlpi_split_view(p, first, count), k, first, count);
    } else {
        rc = dlpi_seam_add(p, from, have);
        return rc != DLP_OK ? rc : DLP_EMPTY;
    }
    if (dlpi_split_through(c, k)) dlpi_split_leave_chunk(p);
    return DLP_OK;
}

/* Give the present chunk back if its epoch or place was left, as dlp_pipe_next begins. */
static void dlpi_split_resume(dlp_pipe *p) {
    const dlpi_split *c = dlpi_split_of(p);
    if (c->slot == DLPI_NO_SLOT) return;
    if (dlpi_cancelled(p->ctl, dlpi_slot_at(p, c->slot)))
        dlpi_split_leave_chunk(p);
    else
        dlpi_pace_call(p);
}

/* Hand out the next view into *to, within timeout_ms. Returns 0 or dlp_pipe_next's code. */
static int dlpi_split_next(dlp_pipe *p, dlpi_handed *to, int timeout_ms) {
    uint64_t until = 0;
    int rc;
    if ((rc = dlpi_seam_arrive(p, timeout_ms, &until)) != DLP_OK) return rc;
    dlpi_split_resume(p);
    do {
        if ((rc = dlpi_split_have(p, timeout_ms, &until)) != DLP_OK) return rc;
        if ((rc = dlpi_split_cut(p, to)) != DLP_EMPTY) return rc;
        rc = dlpi_seam_arrive(p, timeout_ms, &until);
    } while (rc == DLP_OK);
    return rc;
}

static void dlpi_split_state(const dlp_pipe *p, uint32_t v, dlpi_state *to) {
    dlpi_state_at(to, dlpi_split_of(p)->after[v]);
}

static void dlpi_split_drop(dlp_pipe *p, uint32_t v) {
    uint32_t s = dlpi_split_of(p)->slot_of[v];
    if (s != DLPI_NO_SLOT) dlpi_split_unref(p, s);
}

static uint32_t dlpi_split_slot(const dlp_pipe *p, uint32_t v) {
    return dlpi_split_of(p)->slot_of[v];
}

static uint64_t dlpi_split_batches(const dlp_pipe *p) { return dlpi_split_of(p)->plan.batches; }

/* Write into a state how chunks are cut into batches. The state counts rows and batches then, not
   chunks. */
DLPI_COLD static void dlpi_split_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_split *c = dlpi_split_of(p);
    const dlpi_chunk_plan *q = &c->plan;
    s->n_items = dlpi_chunk_all(q);
    s->params = dlp_hash(s->params, q->chunk_rows, (uint64_t)c->d.shuffle_rows, DLPI_STATE_MAGIC);
    if (q->first) s->params = dlpi_order_hash_array(s->params, q->first, q->n + 1);
    if (q->spans) s->params = dlp_hash(s->params, 1, 0, DLPI_STATE_MAGIC);
    s->global_batch = c->d.batch_size;
    s->last = dlpi_state_last(c->d.last);
}

static uint64_t dlpi_split_position(const dlp_pipe *p, uint64_t epoch, uint64_t k) {
    const dlpi_split *c = dlpi_split_of(p);
    dlpi_order order = c->order;
    return dlpi_chunk_rows_before(&c->plan, &order, epoch, k);
}

/* Change the state s from the batch that it names to the chunk in which this batch begins, so that
   the scheduler goes on there. */
DLPI_COLD static void dlpi_split_seek(dlp_pipe *p, dlpi_state *s) {
    dlpi_split *c = dlpi_split_of(p);
    dlpi_chunk_spot x = {0};
    dlpi_chunk_find(&c->plan, &c->order, s->epoch, s->batch, &x);
    s->batch = s->position = x.at;
}

/* ---- building ---- */

/* Check that the pipe's order and its batches can be split. Returns 0 or a DLP_ERR code. */
static int dlpi_split_chain(dlp_pipe *p, const dlpi_stage *st) {
    const char *batch = p->batcher->name, *sampler = p->sampler->name;
    dlpi_within(p, batch, "batch_size", (int64_t)p->global_batch, 1, 1,
                "1 before a split stage, whose batch_size counts rows");
    if (p->batcher->collate) dlpi_not_null(p, batch, "collate", "before a split stage");
    dlpi_within(p, batch, "last", p->last, DLP_LAST_PARTIAL, 0,
                "0 before a split stage, whose last is read");
    if (dlpi_sampler_of(p)->order == DLP_ORDER_BATCHES)
        dlpi_bad(p, sampler, "order", "another order than DLP_ORDER_BATCHES before a split stage",
                 DLP_ORDER_BATCHES);
    dlpi_within(p, st->name, "unordered", p->d.unordered, 0, 0, "0 with a split stage");
    return p->err.code;
}

/* Check the desc's counts of rows against the n chunks. Returns 0 or a DLP_ERR code. */
static int dlpi_split_items(dlp_pipe *p, const dlpi_stage *st, uint64_t n) {
    const dlp_node_split *d = &dlpi_split_of(p)->d;
    int64_t most = (int64_t)(DLPI_MAX_ITEMS / n);
    if (d->rows != NULL)
        return dlpi_within(p, st->name, "n_chunks", (int64_t)d->n_chunks, (int64_t)n, (int64_t)n,
                           "as many as there are items");
    if (most > INT64_MAX / 2 / (int64_t)p->batches_per_epoch)
        most = INT64_MAX / 2 / (int64_t)p->batches_per_epoch;
    dlpi_within(p, st->name, "chunk_rows", (int64_t)d->chunk_rows, 1, most,
                "1 or more, and all rows together at most 2^48");
    if (d->n_rows != 0 && (d->n_rows - 1) / d->chunk_rows + 1 != n)
        dlpi_bad(p, st->name, "n_rows", "such that items have chunk_rows, the last one fewer",
                 (int64_t)d->n_rows);
    return p->err.code;
}

/* Check the split against the order, the cache and the ranks: whether rows of chunks can be cut so.
   Returns 0 or the code of the first error. */
static int dlpi_split_rows(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_sampler_desc *order = dlpi_sampler_of(p);
    const dlpi_split *c = dlpi_split_of(p);
    const dlpi_chunk_plan *q = &c->plan;
    bool counted = dlpi_order_of(order->order)->once;
    bool alike = q->first == NULL && q->last_rows == q->chunk_rows;
    if (p->keeper_stage != NULL)
        dlpi_within(p, st->name, "shuffle_rows", c->d.shuffle_rows, 0, 0,
                    "0 with a cache: rows stay as they were fetched, not as an epoch has them");
    if (!alike && (!counted || order->subset))
        dlpi_bad(p, st->name, c->d.rows ? "rows" : "n_rows",
                 "alike in all items with this order of the list", (int64_t)c->d.n_rows);
    if (c->d.within_chunks)
        dlpi_within(p, st->name, "batch_size", c->d.batch_size, 1, (int64_t)q->chunk_rows,
                    "at most a chunk's rows with within_chunks");
    if (q->batches == 0 ||
        (!q->spans && q->first == NULL && dlpi_chunk_batches(q, q->last_rows) == 0))
        dlpi_bad(p, st->name, "last", "DLP_LAST_PARTIAL, as the last item has no full batch", 1);
    if (q->spans && q->world > 1 && c->chunks.load == NULL && c->chunks.rows_at == NULL)
        dlpi_bad(
            p, st->name, "within_chunks",
            "1 if world_size is not 1 and batches span items; or open the pipe by dlp_chunks_open",
            0);
    return p->err.code;
}

/* Check the split's desc, and compute how chunks are cut. Returns 0 or a DLP_ERR code. */
static int dlpi_split_resolve(dlp_pipe *p, const dlpi_stage *st) {
    dlpi_split *c = dlpi_split_of(p);
    const dlp_node_split *d = &c->d;
    const dlp_sampler_desc *order = dlpi_sampler_of(p);
    uint64_t n = dlpi_chunk_count(p), most;
    int rc = dlpi_split_chain(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_items(p, st, n)) != DLP_OK) return rc;
    dlpi_chunk_plan_of(d, &p->d, n, c->first, p->batches_per_epoch,
                       order->order == DLP_ORDER_SEQUENTIAL && order->subset == NULL &&
                           p->batches_per_epoch == n,
                       &c->plan);
    if ((rc = dlpi_split_rows(p, st)) != DLP_OK) return rc;
    most = c->plan.spans ? c->plan.axis : c->plan.chunk_rows;
    c->view_rows = (uint32_t)((d->batch_size + c->plan.world - 1) / c->plan.world);
    if (c->view_rows > most) c->view_rows = (uint32_t)most;
    return DLP_OK;
}

/* Check that each field can hold the rows of a chunk that this rank has. Ragged fields are refused.
   Returns 0 or a DLP_ERR code. */
static int dlpi_split_check_fields(dlp_pipe *p, const dlpi_stage *st) {
    uint64_t room = dlpi_chunk_room(&dlpi_split_of(p)->plan);
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlp_field *d = &p->items.at[f].f;
        int64_t rows = d->ndim ? d->shape[0] : 0;
        if (d->ragged)
            return dlpi_bad_field(p, st->name, f, d->name, "ragged",
                                  "ragged is 1, must be 0 before a split stage");
        if (rows < (int64_t)room)
            return dlpi_bad_field(p, st->name, f, d->name, "shape[0]",
                                  "shape[0] is %" PRId64 ", but a rank has %" PRIu64 " rows of a "
                                  "chunk",
                                  rows, room);
    }
    return DLP_OK;
}

/* Check that chunks can stay in memory, if the split preloads them. Returns 0 or the code of the
   first error. */
static int dlpi_split_check_preload(dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = dlpi_split_of(p);
    if (c->chunks.preload == DLP_PRELOAD_NONE) return DLP_OK;
    dlpi_within(p, st->name, "preload", (int64_t)dlpi_chunk_count(p), 1, UINT16_MAX,
                "of at most 65535 chunks");
    dlpi_within(p, st->name, "cpu_buffers", p->n_slots, 1, DLPI_DEVICE_BUFFERS,
                "together with max_held at most 64 with a preload");
    dlpi_within(p, st->name, "shuffle_rows", c->d.shuffle_rows, 0, 0,
                "0 with a preload: rows stay as they were loaded");
    dlpi_within(p, st->name, "on_error", p->fetch->w.on_error, 0, 0,
                "DLP_ON_ERROR_RAISE with a preload");
    if (c->plan.spans && c->plan.world > 1 && dlpi_sampler_of(p)->order != DLP_ORDER_SEQUENTIAL)
        dlpi_bad(p, st->name, "preload",
                 "0 if ranks share batches that span shuffled chunks; or set within_chunks = 1",
                 c->chunks.preload);
    return p->err.code;
}

/* ---- loaders wait for buffers, if more chunks are under way than there are host buffers ----
   Batches go to the device in their order, and cells are given in this order. So the oldest batch
   has its cell, and the pipe does not stand still. The transfer stage wakes a loader when a batch
   is on the device. */

/* Raise w->claim_end, up to where worker w may claim: batches from there on have no cell yet. */
static void dlpi_loads_bound(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail);             /* T1 <- T1 */
    uint64_t end = dlpi_credit_seen(&p->ctl->base) + p->n_cells; /* V1 <- V1 */
    if (end < w->claim_end) end = w->claim_end;
    for (; end < tail; end++) {
        uint64_t b = end - p->n_cells;
        dlpi_stage_words *words = dlpi_stage_words_at(p, dlpi_slot_of(p, b), p->cell_end);
        if (!dlpi_ready_past(dlpi_gather_ready(&words->ready), b)) break; /* Y1 <- Y1 */
    }
    w->claim_end = end;
}

static bool dlpi_loads_find(dlpi_worker *w, dlpi_unit *t) {
    dlpi_loads_bound(w);
    return dlpi_rows_find(w, t);
}

static bool dlpi_loads_step(dlpi_worker *w) {
    dlpi_loads_bound(w);
    return dlpi_rows_step(w);
}

/* Let workers of the fetch stage claim only batches that have a cell. The stage gets its own copy
   of its functions. A second call changes nothing. */
static void dlpi_loads_in_turn(dlp_pipe *p, dlpi_split *c) {
    if (p->fetch->ops == &c->loads) return;
    c->loads = *p->fetch->ops;
    c->loads.find = dlpi_loads_find;
    c->loads.step = dlpi_loads_step;
    p->fetch->ops = &c->loads;
}

/* Check the split, and decide where chunks lie: in cells that turn, in cells that stay, or where
   rows_at says. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_split_check_all(dlp_pipe *p, dlpi_stage *st) {
    dlpi_split *c = st->self;
    int rc = dlpi_split_resolve(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_check_fields(p, st)) != DLP_OK) return rc;
    p->n_out = p->max_held;
    p->areas[DLPI_REC_SLOTS].words = "chunk records";
    p->areas[DLPI_REC_CELLS].words = "CPU chunk buffers";
    p->areas[DLPI_REC_ZEROS].words = "CPU chunk buffer of zeros";
    c->in_place = c->chunks.rows_at != NULL && p->sink_stage == NULL &&
                  c->chunks.preload == DLP_PRELOAD_NONE && !c->d.shuffle_rows;
    if (c->in_place) {
        p->cells = DLPI_CELLS_STAY;
        p->n_cells = 0;
    } else if (c->chunks.preload == DLP_PRELOAD_CPU) {
        p->cells = DLPI_CELLS_STAY;
        p->n_cells = (uint32_t)dlpi_chunk_count(p);
    } else if (p->sink_stage) { /* what the sink has leaves its cell */
        p->cells = DLPI_CELLS_TURN;
        p->cell_end = p->sink_stage;
        p->n_cells = c->cpu_buffers ? c->cpu_buffers : p->prefetch;
        if (p->n_cells < p->prefetch) dlpi_loads_in_turn(p, c);
    }
    p->stay = c->chunks.preload == DLP_PRELOAD_DEVICE ? &dlpi_chunk_stay : NULL;
    if (c->plan.spans && p->sink_stage && (rc = p->sink->joins(p)) != DLP_OK) return rc;
    return dlpi_split_check_preload(p, st);
}

/* Add the areas of the split to the region: buffers for batches that span chunks, words of chunks
   that stay, and a record for observers. */
DLPI_COLD static void dlpi_split_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_split *c = st->self;
    const int area = DLPI_OWN(st->id, DLPI_SPLIT_SEAM);
    const uint64_t words = c->chunks.preload ? dlpi_chunk_count(p) : 0,
                   n = c->plan.spans ? p->n_out : 0;
    uint64_t bytes = 0, lines = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        bytes = dlpi_sum(bytes, dlpi_seam_bytes(p, f));
        lines = dlpi_sum(lines, dlpi_line_up(dlpi_seam_bytes(p, f)));
    }
    if (p->sink_stage != NULL)
        dlpi_area_outside(p, area, DLPI_PLAN_OWN, "device seam buffers", bytes, n);
    else
        dlpi_area_told(p, area, DLPI_PLAN_OWN, "seam buffers", lines, n, DLPI_LINE);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_SPLIT_RESIDENT), DLPI_PLAN_WORDS,
                   "chunks that stay: words", 8, words, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_SPLIT_REC), sizeof(dlpi_chunk_rec), 1, 8);
}

static uint64_t dlpi_split_valid_bytes(const dlp_pipe *p, const dlpi_split *c) {
    return (2 + (c->plan.spans ? (uint64_t)p->n_out : 0)) * c->view_rows;
}

/* Describe in `out` the heap memory of the split. Returns the number of blocks. */
DLPI_COLD static int dlpi_split_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_split *c = st->self;
    uint64_t rows = dlpi_times(p->n_out, c->view_rows);
    uint64_t loaders = p->fetch ? (uint64_t)p->fetch->n_workers : 0; /* NULL: it was refused */
    const dlpi_block all[] = {
        {offsetof(dlpi_split, refs), dlpi_times(p->n_slots, sizeof *c->refs)},
        {offsetof(dlpi_split, slot_of), dlpi_times(p->n_out, sizeof *c->slot_of)},
        {offsetof(dlpi_split, after), dlpi_times(p->n_out, sizeof *c->after)},
        {offsetof(dlpi_split, index), dlpi_times(rows, sizeof *c->index)},
        {offsetof(dlpi_split, valid), dlpi_split_valid_bytes(p, c)},
        {offsetof(dlpi_split, places), loaders * sizeof *c->places},
        {offsetof(dlpi_split, first), c->first ? (c->d.n_chunks + 1) * sizeof *c->first : 0},
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

/* Write, as the pipe starts, what stays the same in views, the orders and the observers' record. */
DLPI_COLD static void dlpi_split_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_split *c = st->self;
    dlpi_chunk_rec *r = dlpi_area_at(p, DLPI_OWN(p->lender_stage->id, DLPI_SPLIT_REC), 0);
    if (c->d.within_chunks == 0)
        dlpi_epoch_short(p, st->name, c->d.last, c->plan.axis, c->plan.batch);
    for (uint32_t v = 0; v < p->n_out; v++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n];
        for (uint32_t f = 0; f < p->batches.n; f++) {
            t[f].ndim = p->batches.at[f].f.ndim; /* the chunk's rows are the view's */
            for (int i = 1; i < t[f].ndim; i++) t[f].shape[i] = p->batches.at[f].f.shape[i];
        }
    }
    dlpi_epoch_order(p, &c->scheduled);
    dlpi_epoch_order(p, &c->order);
    memset(c->valid, 1, c->view_rows);
    dlpi_epoch_order(p, &c->copied);
    c->slot = DLPI_NO_SLOT;
    r->per_epoch = p->batches_per_epoch;
    r->cpu_buffers = c->in_place ? p->n_slots : p->n_cells;
    r->preload = c->chunks.preload;
    r->in_epoch_at = (uint32_t)offsetof(dlpi_bslot, in_epoch);
    r->used_at = (uint32_t)offsetof(dlpi_bslot, used);
    r->view_rows = c->view_rows;
    r->preload_auto = c->preload_auto;
    r->seam_buffers = c->plan.spans ? p->n_out : 0;
}

static const dlpi_lender_ops dlpi_split_lender = {
    .results = "device chunk buffers",
    .params = "params (rows, shuffle_rows, within_chunks)",
    .in_cells = true,
    .next = dlpi_split_next,
    .drop = dlpi_split_drop,
    .slot = dlpi_split_slot,
    .batches = dlpi_split_batches,
    .state = dlpi_split_state,
    .config = dlpi_split_config,
    .position = dlpi_split_position,
    .seek = dlpi_split_seek,
    .bytes = dlpi_chunk_bytes,
    .seam = dlpi_seam_bytes,
    .cell = dlpi_chunk_cell,
};

/* ---- for observers ---- */

typedef struct dlpi_chunk_counts {
    dlpi_chunk_rec r; /* per_epoch is that of the epoch of the last scheduled chunk */
    /* chunks of that epoch that are scheduled; chunks that stay and are loaded; slots in use */
    uint64_t scheduled, resident, out;
} dlpi_chunk_counts;

/* Observer: read the record of chunks, and count those that are scheduled, stay, or are out.
   Returns false if the region is not whole. */
static bool dlpi_chunk_counted(const dlpi_words *words, dlpi_seen *s, int32_t stage, uint64_t tail,
                               dlpi_chunk_counts *x) {
    const dlpi_chunk_rec *r = &x->r;
    uint64_t used;
    memset(x, 0, sizeof *x);
    if (!dlpi_words_copy(words, DLPI_OWN(stage, DLPI_SPLIT_REC), 0, 0, &x->r, sizeof x->r))
        return false;
    if (r->view_rows >= 1 && r->view_rows <= 1u << 30) s->batch_rows = r->view_rows;
    if (tail > 0) {
        uint32_t slot = dlpi_seen_slot(s, tail - 1);
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, r->in_epoch_at, 8, &x->scheduled))
            return false;
        x->scheduled++;
    }
    for (uint32_t slot = 0; slot < s->n_slots; slot++) {
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, r->used_at, 4, &used)) return false;
        x->out += used != 0;
    }
    return dlpi_words_count(words, DLPI_OWN(stage, DLPI_SPLIT_RESIDENT), 1, false, &x->resident);
}

/* Observer: count the chunks that are being loaded or are loaded. buffers: of a device, whose
   copies are the last stage. Returns how many are ready for the consumer. */
static uint64_t dlpi_chunks_under_way(const dlpi_seen *s, uint64_t tail, uint64_t buffers,
                                      dlp_chunk_stats *c) {
    const int32_t loaded = s->work[s->n_work - 1 - (s->n_work > 1 && buffers > 0)];
    uint64_t ready = 0;
    for (uint64_t b = dlpi_credit_look(&s->ctl->base); b < tail; b++) { /* V1 <- V1 */
        uint32_t slot = dlpi_seen_slot(s, b);
        bool there = dlpi_seen_left(s, b, slot, loaded);
        if (dlpi_seen_left(s, b, slot, s->final))
            ready++;
        else if (there)
            c->cpu_filled++;
        else
            c->cpu_loading++;
    }
    return ready;
}

/* Observer: count those scheduled chunks that still wait for a CPU buffer as loadable. */
static void dlpi_chunks_wait(const dlpi_chunk_counts *x, dlp_chunk_stats *c) {
    uint64_t room = x->r.cpu_buffers > c->cpu_filled ? x->r.cpu_buffers - c->cpu_filled : 0;
    if (x->r.preload != DLP_PRELOAD_NONE || c->cpu_loading <= room) return;
    c->loadable += c->cpu_loading - room;
    if (c->loadable > c->per_epoch) c->loadable = c->per_epoch;
    c->cpu_loading = room;
}

/* Observer: tell how many chunks are in each state. A chunk that is out and not under way is in the
   consumer's hands. Returns false if the region is not whole. */
DLPI_COLD static bool dlpi_chunks_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    dlp_chunk_stats *c = &s->figures.chunks;
    uint64_t tail = dlpi_credit_look(&s->ctl->tail), ready, used; /* T1 <- T1 */
    bool transfer = dlpi_seen_buffers(s) > 0;
    dlpi_chunk_counts x;
    s->delivered = &s->ctl->views;
    c->taken = DLPI_LOAD_RLX(&s->ctl->delivered); /* statistics */
    if (!dlpi_chunk_counted(words, s, stage, tail, &x)) return false;
    if (x.r.cpu_buffers == 0) return true;
    ready = dlpi_chunks_under_way(s, tail, dlpi_seen_buffers(s), c);
    c->preload = x.r.preload;
    c->preload_auto = x.r.preload_auto == 1;
    c->seam_buffers = x.r.seam_buffers;
    c->seams = x.r.seams;
    c->seam_bytes = x.r.seam_bytes;
    c->cpu_buffers = x.r.cpu_buffers;
    c->per_epoch = x.r.per_epoch;
    c->loadable = x.scheduled < x.r.per_epoch ? x.r.per_epoch - x.scheduled : 0;
    used = c->cpu_loading + c->cpu_filled + ready;
    c->in_use = x.out > used ? x.out - used : 0;
    dlpi_chunks_wait(&x, c);
    if (!transfer) c->cpu_filled += ready;
    used = c->cpu_loading + c->cpu_filled + (transfer ? 0 : c->in_use);
    if (x.r.preload == DLP_PRELOAD_CPU) used = x.resident;
    c->cpu_free = used < x.r.cpu_buffers ? x.r.cpu_buffers - used : 0; /* read while it changed? */
    if (!transfer) return true;
    c->device_buffers = dlpi_seen_buffers(s);
    c->device_free = s->sink_free;
    c->device_filled = ready;
    used = s->sink_free + ready + c->in_use;
    if (x.r.preload == DLP_PRELOAD_DEVICE) return true;
    c->device_copying = used < dlpi_seen_buffers(s) ? dlpi_seen_buffers(s) - used : 0;
    return true;
}

static const dlpi_stage_ops dlpi_split_ops = {
    .kind = DLP_STAGE_SPLIT,
    .rank = 10,
    .self_bytes = sizeof(dlpi_split),
    .check = dlpi_split_check_all,
    .seen = dlpi_chunks_seen,
    .layout = dlpi_split_layout,
    .blocks = dlpi_split_blocks,
    .live = dlpi_split_live,
    .lender = &dlpi_split_lender,
};
