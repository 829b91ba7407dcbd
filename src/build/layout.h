#pragma once
/* tests: system/build/pipe_plan, system/shm/monitor */
#include "build/links.h"
#include "build/check.h"
#include "build/placement.h"
#include "inputs/batch_fields.h" /* needs: parts */
/* ---- what follows from the descs; where all lies in the region; the plan ---- */

/* Set how many batches may be under way, how many slots and cells the pipe has, and how long its
   ring of batches is. Returns DLP_OK, or an error's code if an unordered pipe cannot have so
   many. */
static int dlpi_resolve_slots(dlp_pipe *p) {
    p->prefetch = dlpi_prefetch_least(p);
    if (p->d.prefetch_factor) p->prefetch = (uint32_t)p->d.prefetch_factor;
    p->max_held = p->d.max_held ? (uint32_t)p->d.max_held : 1;
    p->n_slots = p->prefetch + p->max_held + (uint32_t)p->sharing->holds(p);
    p->n_cells = p->n_out = p->n_slots;
    dlpi_gaps_resolve(p);
    if (p->reach >= p->prefetch) return DLP_OK;
    return dlpi_bad(p, "", "prefetch_factor", "at most 320 with unordered = 1",
                    (int64_t)p->prefetch);
}

/* List the stages that have workers, and check those whose workers the tuner may change. Returns
   DLP_OK, or the code of the pipe's error. */
static int dlpi_resolve_work(dlp_pipe *p) {
    dlpi_staff(p);
    return p->err.code != 0 ? p->err.code : p->beside->resolve(p);
}

/* Lay out the fields of a batch: the fields that a collate makes, else the fields of an item, and
   behind them those that maps of batches add. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_resolve_batches(dlp_pipe *p) {
    const dlpi_stage *st = p->batcher;
    const bool own = st->fields != NULL; /* which is refused without a collate */
    const dlp_field *f = own ? st->fields : p->datasets.fields;
    const uint32_t made = own ? st->n_fields : p->datasets.n_fields;
    uint32_t n = made;
    int rc = DLP_OK;
    dlp_field all[DLP_MAX_FIELDS];                                           /* needs: parts */
    if ((f = dlpi_batches_widen(p, all, f, &n)) == NULL) return p->err.code; /* needs: parts */
    rc = dlpi_fields_init(p, st->name, &p->batches, f, n, p->has_item_cells);
    p->batches.made = (uint16_t)made;
    return rc;
}

/* Count the items that later stages add after the items of the fetch stage. An earlier plan may
   have added them already, so they are first taken off. Returns DLP_OK, or the code of the pipe's
   error. */
static int dlpi_resolve_added(dlp_pipe *p) {
    int rc = DLP_OK;
    p->fetch->dataset->n_items -= p->datasets.n_added;
    p->datasets.n_added = 0;
    for (dlpi_stage *st = p->fetch; st < p->stages + p->n_stages && rc == DLP_OK; st++)
        if (st->ops->adds != NULL) rc = st->ops->adds(p, st);
    return rc;
}

/* List the fields of an item, and set which fields and items each stage works on (st->scope). A
   stage gets the fields that stages before it have; a stage that adds fields widens this. Returns
   DLP_OK, or the code of the pipe's error. */
static int dlpi_resolve_scopes(dlp_pipe *p) {
    const dlp_dataset *ds = p->fetch->dataset;
    int rc = DLP_OK;
    p->datasets.n_fields = 0;
    dlpi_datasets_widen(p, ds->fields, ds->n_fields);
    for (dlpi_stage *st = p->fetch; st < p->stages + p->n_stages && rc == DLP_OK; st++) {
        st->scope =
            (dlpi_scope){0, p->datasets.n_fields, p->datasets.n_fields, .n_items = ds->n_items};
        if (st == p->fetch) st->scope.own = 0;
        if (st == p->fetch) st->scope.zeroes = !ds->writes_all_bytes;
        if (st->ops->widens != NULL) rc = st->ops->widens(p, st);
        st->lets_pass = st->scope.n_items < ds->n_items;
    }
    p->fetch->scope.n_items -= p->datasets.n_added;
    return rc;
}

/* Compute everything that follows from the descs. Returns DLP_OK, or the code of the pipe's error,
   which tells what does not fit. Each line needs those above it. Roles follow from the chain,
   counts of items from what stages add, slots from the rows of a batch, workers and fields from
   both. Only then can a kind check its desc against others'. */
static int dlpi_resolve(dlp_pipe *p) {
    int rc;
    if ((rc = dlpi_check_graph(p)) != DLP_OK) return rc;
    dlpi_cells_resolve(p);
    if ((rc = dlpi_resolve_added(p)) != DLP_OK) return rc;
    if ((rc = dlpi_check_sizes(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_slots(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_work(p)) != DLP_OK) return rc;
    if ((rc = dlpi_resolve_scopes(p)) != DLP_OK) return rc;
    rc = dlpi_fields_init(p, p->fetch->name, &p->items, p->datasets.fields, p->datasets.n_fields,
                          false);
    if (rc != DLP_OK) return rc;
    dlpi_cells_ends(p);
    for (dlpi_stage *st = p->stages; st < p->stages + p->n_stages; st++) /* what kinds say of it */
        if (st->ops->check != NULL && (rc = st->ops->check(p, st)) != DLP_OK) return rc;
    return dlpi_resolve_batches(p);
}

/* Place the parts of a batch slot one after the other, and add the slots to the region. A slot has
   its words for each stage, then the row records: indices, lengths, fates, tries. */
static void dlpi_layout_slots(dlp_pipe *p) {
    uint64_t at = sizeof(dlpi_bslot), rows = p->batch_rows;
    uint64_t words8 = dlpi_times(rows, 8), cells = dlpi_times(rows, 4);
    p->words_max = (p->batch_rows + DLPI_WORD_ROWS - 1) / DLPI_WORD_ROWS;
    p->units_max = p->batch_rows;
    for (int i = 0; i < p->n_work; i++) {
        dlpi_stage *st = p->work[i];
        uint64_t words =
            i < p->n_item_work ? (uint64_t)p->words_max + p->units_max : p->words_max + 1u;
        words = dlpi_times(words + (p->words_max > 1 ? 1 : 0), 8);
        words = dlpi_sum(words, offsetof(dlpi_stage_words, words));
        /* the first stage's go on in the line of the header where they fit: see dlpi_bslot */
        st->stage_words_offset = dlpi_take_bytes(
            &at, words, i == 0 && words <= DLPI_HEADER_REST ? sizeof(uint64_t) : DLPI_LINE);
    }
    at = dlpi_line_up(at);
    p->slot.index = dlpi_take_bytes(&at, words8, 1);
    dlpi_cells_slot(p, &at);
    p->slot.source = dlpi_take_bytes(&at, p->source->slot_bytes(p), 1);
    p->slot.fate = dlpi_take_bytes(&at, cells, 1);
    p->tries_bytes = 0;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.retries > 0 || p->work[i]->retries)
            p->tries_bytes = dlpi_times(2u * (uint64_t)p->n_work, rows);
    p->off_tries = dlpi_take_bytes(&at, p->tries_bytes, 1);
    p->slot.valid = dlpi_take_bytes(&at, rows, 1);
    p->slot.traced = 0;
    if (p->d.trace_rows) p->slot.traced = dlpi_take_bytes(&at, dlpi_times(rows, 6), 8);
    dlpi_area_told(p, DLPI_REC_SLOTS, DLPI_PLAN_SLOTS, "batch slots: row records", dlpi_line_up(at),
                   p->n_slots, DLPI_LINE);
}

/* Return the bytes that the source keeps beside the rows that are in callbacks of the fetch stage:
   row_bytes for each row that can be there at once. */
static uint64_t dlpi_row_extras_bytes(const dlp_pipe *p) {
    const dlpi_stage *st = p->fetch;
    const uint64_t n = st ? dlpi_times((uint64_t)st->n_workers, dlpi_at_once(st)) : 0;
    return dlpi_times(n, p->source->row_bytes);
}

/* Return the bytes of the plan that are neither in the region nor in private records. */
static uint64_t dlpi_outside_bytes(const dlp_pipe *p) {
    uint64_t bytes = 0;
    for (int id = 0; id < DLPI_AREAS; id++)
        if (p->areas[id].offset == 0) bytes = dlpi_sum(bytes, dlpi_area_bytes(p, id));
    return bytes;
}

#define DLPI_WORKER_BYTES (sizeof(dlpi_worker) + sizeof(dlpi_worker_rare))

/* Return the bytes of the records of all workers, and of the consumer's. */
static uint64_t dlpi_worker_records(const dlp_pipe *p) {
    return dlpi_times((uint64_t)p->n_workers + 1, DLPI_WORKER_BYTES);
}

/* List the blocks of memory that this process keeps for a stage, or (st NULL) for the pipe itself.
   A block has its bytes, and where the pointer to it lies in the record. out: [DLPI_BLOCKS].
   Returns how many blocks there are. */
static int dlpi_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    if (st != NULL) return st->ops->blocks != NULL ? st->ops->blocks(p, st, out) : 0;
    const uint64_t slots = p->n_out, tensors = dlpi_times(slots, p->batches.n);
    const dlpi_block all[] = {
        {offsetof(dlp_pipe, workers), dlpi_worker_records(p)},
        {offsetof(dlp_pipe, rows), DLP_MAX_NODES * sizeof *p->rows}, /* allocated before */
        {offsetof(dlp_pipe, out), dlpi_times(slots, sizeof *p->out)},
        {offsetof(dlp_pipe, out_fields), dlpi_times(tensors, sizeof *p->out_fields)},
        {offsetof(dlp_pipe, ones), p->batch_rows},
        {offsetof(dlp_pipe, lent), slots + p->n_slots * (uint64_t)DLPI_DEBUG}, /* poisoned, too */
        {offsetof(dlp_pipe, schedule.cells), dlpi_times(p->prefetch, sizeof *p->schedule.cells)},
        {offsetof(dlp_pipe, own_rows), dlpi_row_extras_bytes(p)},
        {offsetof(dlp_pipe, datasets.origins), p->slot.traced > 0 ? sizeof *p->source : 0},
        {offsetof(dlp_pipe, counted), dlpi_times(p->d.n_counters, p->areas[DLPI_REC_TRACE].stride)},
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

static uint64_t dlpi_blocks_bytes(const dlp_pipe *p, const dlpi_stage *st) {
    dlpi_block k[DLPI_BLOCKS];
    uint64_t bytes = 0;
    for (int n = dlpi_blocks(p, st, k); n > 0; n--) bytes = dlpi_sum(bytes, k[n - 1].bytes);
    return bytes;
}

/* Allocate (have true) or free (have false) the blocks of a stage, or of the pipe if st is NULL.
   Returns false if an allocation fails; the blocks allocated by then stay. */
static bool dlpi_blocks_have(dlp_pipe *p, dlpi_stage *st, bool have) {
    dlpi_block k[DLPI_BLOCKS];
    const int n = dlpi_blocks(p, st, k);
    return dlpi_blocks_keep(st != NULL ? st->self : (void *)p, k, (size_t)n, have);
}

/* Return the bytes of all memory that this process keeps outside the region. */
static uint64_t dlpi_private_bytes(const dlp_pipe *p) {
    uint64_t bytes = dlpi_sum(sizeof *p + 4096, dlpi_blocks_bytes(p, NULL));
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage *st = &p->stages[i];
        bytes = dlpi_sum(bytes, (uint64_t)st->w.n_affinity * sizeof(int32_t));
        bytes = dlpi_sum(bytes, st->n_fields * DLPI_FIELD_KEPT);
        bytes = dlpi_sum(bytes, st->ops->self_bytes);
        bytes = dlpi_sum(bytes, dlpi_blocks_bytes(p, st));
    }
    return bytes;
}

/* Number the workers of the pipe, one stage after the other. */
static void dlpi_layout_workers(dlp_pipe *p) {
    p->n_workers = 0;
    for (int i = 0; i < p->n_staffed; i++) {
        p->work[i]->first_worker = p->n_workers;
        p->n_workers += p->work[i]->n_workers;
        dlpi_place_inline(p->work[i], p->n_workers);
    }
}

/* Add to the region: the control block, the words of waiting threads, the ring of batches, and the
   records that observers read. */
static void dlpi_layout_control(dlp_pipe *p) {
    uint64_t waiters = (uint64_t)p->n_staffed;
    dlpi_area_add(p, DLPI_REC_CTL, sizeof(dlpi_ctl), 1, DLPI_LINE);
    dlpi_area_add(p, DLPI_AREA_WAITERS, sizeof(dlpi_waiters), waiters, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_ORDER, sizeof(uint32_t), p->ring, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_TAKEN, 1, p->ring, DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_STAGES, sizeof(dlpi_stage_rec), (uint64_t)p->n_stages, 8);
    dlpi_area_add(p, DLPI_REC_FIELDS, sizeof(dlpi_field_rec), p->batches.n, 8);
    dlpi_area_add(p, DLPI_REC_COUNTERS, sizeof(dlpi_counter_rec), p->d.n_counters, 8);
    dlpi_area_add(p, DLPI_REC_WORKERS, dlpi_line_up(sizeof(dlpi_worker_block)),
                  (uint64_t)p->n_workers + 1, DLPI_LINE);
}

/* Add the sampler's order table to the region. The table's area ends at the end of a page. */
static void dlpi_layout_table(dlp_pipe *p) {
    uint64_t from = dlpi_round_up(p->region_bytes, DLPI_LINE);
    uint64_t bytes = dlpi_order_table_bytes(dlpi_sampler_of(p), p->fetch->dataset->n_items);
    bytes = dlpi_round_up(dlpi_sum(from, bytes), 4096) - from;
    dlpi_area_told(p, DLPI_REC_TABLE, DLPI_PLAN_RECORDS, "sampler table", bytes, 1, DLPI_LINE);
}

/* Add the trace rings to the region: one for each worker, and the consumer's. What a counter keeps
   in this process is as long as such a ring. */
static void dlpi_layout_trace(dlp_pipe *p) {
    const uint64_t given = (uint64_t)p->d.trace_bytes, each = sizeof(dlp_trace_event);
    uint64_t n = (given > 0 ? given : 4096) / each;
    if (n < 4) n = 4;
    p->trace_events = (uint32_t)n;
    dlpi_area_told(p, DLPI_REC_TRACE, DLPI_PLAN_RECORDS, "trace rings", n * each,
                   (uint64_t)p->n_workers + 1, 4096);
}

/* Add the record that describes the pipe to the region. The table of links lies behind the record.
   Its length depends on the areas of the stages, so they are added before. */
static void dlpi_layout_pipe(dlp_pipe *p) {
    dlp_link links[DLP_MAX_LINKS];
    const uint64_t bytes = sizeof(dlpi_pipe_rec) + dlpi_links(p, links) * sizeof *links;
    dlpi_area_add(p, DLPI_REC_PIPE, bytes, 1, DLPI_LINE);
}

/* Add to the plan what workers of sources allocate as they begin. The inputs of makers are fetched
   by the workers of the source stage. */
static void dlpi_layout_reads(dlp_pipe *p) {
    uint64_t all = 0, workers = 0, most = 0;
    for (const dlpi_stage *st = p->stages; st < p->stages + p->n_stages; st++) {
        const bool makes = st == p->fetch && p->source_stage->ops->expands;
        const uint64_t n = (uint64_t)(makes ? p->source_stage->n_workers : st->n_workers);
        const uint64_t each = st->dataset != NULL ? st->dataset->worker_bytes : 0;
        if (each == 0) continue;
        all = dlpi_sum(all, dlpi_times(n, each));
        workers += n;
        if (each > most) most = each;
    }
    if (dlpi_times(workers, most) != all) most = all, workers = 1; /* of several sources */
    dlpi_area_outside(p, DLPI_AREA_READS, DLPI_PLAN_OWN, "workers of the source: what they read",
                      most, workers);
}

/* Place all areas in the region, one after the other, and set the bytes of the plan. */
static void dlpi_layout(dlp_pipe *p) {
    p->region_bytes = sizeof(dlpi_region);
    dlpi_layout_workers(p);
    dlpi_layout_control(p);
    dlpi_layout_slots(p);
    dlpi_layout_table(p);
    dlpi_layout_trace(p);
    dlpi_layout_reads(p);
    p->beside->layout(p);
    for (int i = 0; i < p->n_stages; i++) /* what each kind has of its own */
        if (p->stages[i].ops->layout != NULL) p->stages[i].ops->layout(p, &p->stages[i]);
    dlpi_layout_pipe(p);
    dlpi_cells_layout(p);
    dlpi_marks_layout(p);
    dlpi_area_told(p, DLPI_AREA_GUARD, DLPI_PLAN_OWN, "guarded cells", dlpi_redzone_stride(p),
                   dlpi_redzone_cells(p), DLPI_LINE);
    p->region_bytes = dlpi_round_up(p->region_bytes, p->huge_pages > 0 ? 2u << 20 : 4096);
    p->plan_private = dlpi_private_bytes(p);
    p->plan_bytes = dlpi_sum(dlpi_sum(p->region_bytes, p->plan_private), dlpi_outside_bytes(p));
}

/* Append a line to the plan, and add its bytes to the total. A line of 0 bytes is left out. */
static void dlpi_plan_add(dlp_plan *plan, const char *what, uint64_t count, uint64_t each) {
    dlp_plan_line *l = &plan->lines[plan->n_lines];
    if (count == 0 || each == 0) return;
    dlpi_copy_text(l->what, sizeof l->what, what);
    l->count = count;
    l->bytes_each = each;
    l->bytes = dlpi_times(count, each);
    plan->total_bytes = dlpi_sum(plan->total_bytes, l->bytes);
    plan->n_lines++;
}

/* Add the areas of one class (DLPI_PLAN_*) to the plan, one line for each. */
static void dlpi_plan_areas(const dlp_pipe *p, dlp_plan *plan, int of) {
    for (const dlpi_area *a = p->areas; a < p->areas + DLPI_AREAS; a++) {
        uint64_t n = of == DLPI_PLAN_WORDS ? a->count : 1;
        if (a->plan != of || a->count == 0) continue;
        dlpi_plan_add(plan, a->words, a->count / n, dlpi_times(a->stride, n));
    }
}

/* Add to the plan the lines of memory that stages keep in this process: of each worker, or once for
   the stage. Returns the bytes of these lines together. */
static uint64_t dlpi_plan_kinds(const dlp_pipe *p, dlp_plan *plan) {
    uint64_t bytes = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage *st = &p->stages[i];
        uint64_t n = st->ops->worker != NULL ? (uint64_t)st->n_workers : 1;
        uint64_t each = st->ops->room != NULL ? st->ops->room(st) : 0, all;
        if (st->ops->private_words == NULL) continue;
        all = dlpi_blocks_bytes(p, st);
        bytes = dlpi_sum(bytes, all);
        dlpi_plan_add(plan, "rooms of workers: fields that end", (uint64_t)st->n_workers, each);
        all = dlpi_less(all, dlpi_times((uint64_t)st->n_workers, each));
        dlpi_plan_add(plan, st->ops->private_words, n, all / n);
    }
    return bytes;
}

/* Write in words what the order and the random numbers of the pipe follow from, and what a state
   saves. */
static void dlpi_plan_words(const dlp_pipe *p, dlp_plan *plan) {
    const dlp_sampler_desc *d = dlpi_sampler_of(p);
    const dlp_link *lanes = plan->links[0].from_stage < -1 ? plan->links : NULL;
    const char *path = p->source->path, *order = p->source->order, *saves = p->source->saves;
    dlpi_copy_text(plan->random, sizeof plan->random, path != NULL ? path : "position");
    snprintf(plan->order, sizeof plan->order, "by %s; \"%s\": %s, seed %" PRIu64,
             order != NULL ? order : "position", p->sampler->name, dlpi_order_of(d->order)->name,
             d->seed);
    snprintf(plan->state, sizeof plan->state, "%d bytes: %s", (int)sizeof(dlp_state),
             saves != NULL ? saves : "a place");
    if (lanes == NULL) return;
    dlpi_copy_text(plan->order, sizeof plan->order, "as items are pushed");
    snprintf(plan->state, sizeof plan->state, "none (push \"%s\")", lanes->to);
}

/* Write the whole plan of a pipe that is laid out. */
static void dlpi_plan_fill(const dlp_pipe *p, dlp_plan *plan) {
    uint64_t each = p->areas[DLPI_REC_WORKERS].stride + DLPI_WORKER_BYTES;
    uint64_t named, own, collators = p->batcher->work >= 0 ? (uint64_t)p->batcher->n_workers : 0;
    memset(plan, 0, sizeof *plan);
    plan->slots = p->n_slots;
    plan->slot_bytes = dlpi_sum(p->areas[DLPI_REC_CELLS].stride, p->areas[DLPI_REC_SLOTS].stride);
    plan->limit_bytes = p->d.limit_bytes;
    for (int of = DLPI_PLAN_SLOTS; of <= DLPI_PLAN_RECORDS; of++) dlpi_plan_areas(p, plan, of);
    dlpi_plan_add(plan, "worker records", (uint64_t)p->n_workers + 1 - collators, each);
    dlpi_plan_add(plan, "worker records: of the batch stage", collators, each);
    dlpi_plan_areas(p, plan, DLPI_PLAN_INPUTS);
    named = plan->total_bytes;
    own = dlpi_plan_kinds(p, plan);
    named = dlpi_less(named, dlpi_outside_bytes(p));
    named = dlpi_less(named, dlpi_worker_records(p));
    dlpi_plan_add(plan, "control and alignment", 1, dlpi_less(p->region_bytes, named));
    own = dlpi_less(dlpi_less(p->plan_private, dlpi_worker_records(p)), own);
    dlpi_plan_add(plan, "this process: pipe and views", 1, own);
    plan->n_links = dlpi_links(p, plan->links);
    dlpi_plan_words(p, plan);
    dlpi_plan_stages(p, plan);
}

/* Compute the plan of the pipe: resolve the descs and lay out the region. If the pipe is prepared,
   its plan is written as it is. Returns DLP_OK, or the code of the pipe's error, and leaves *out
   alone. */
static int dlpi_plan(dlp_pipe *p, dlp_plan *out) {
    dlp_plan plan;
    int rc;
    if (!p->prepared) {
        if (p->err.code != 0) return p->err.code;
        if ((rc = dlpi_resolve(p)) != DLP_OK) return rc;
        dlpi_layout(p);
    }
    dlpi_plan_fill(p, &plan);
    *out = plan;
    return DLP_OK;
}
