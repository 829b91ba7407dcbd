/* needs: parts split join scratch guard cache pack */
/* The table of neighbours.h's kinds, and its pipe. */
#ifndef NEIGHBOURS_TABLE_H
#define NEIGHBOURS_TABLE_H

#include "neighbours.h"

/* ---- a table of the kinds of now_ ---- */

static dlp_node nodes_[24];
static uint32_t n_nodes_;
static dlp_mix *mixes_[2]; /* in turn, shuffled */

static dlp_node *add_node(const char *name, int32_t verb) {
    dlp_node *node = &nodes_[n_nodes_++];
    *node = (dlp_node){.name = name, .verb = verb};
    return node;
}

/* True if a node makes items of unknown count of an item. */
static int has_maker(void) { return has(FILTER) || has(EXPAND) || has(PACK); }

/* True if rows behind the fetch run in the cells of inputs. */
static int in_cells(void) {
    const int cached = has(CACHE) && !(has(GUARD) && comes_before(GUARD, CACHE));
    return has_maker() || (has(FOUND) && (has(PARTS) || cached || has(PUSH)));
}

static void add_list(wiring *w) {
    dlp_node *node = add_node("list", DLP_LIST);
    node->list.n_items = has(PARTS) ? w->parts.n_parts : has(MIX) ? 0 : ITEMS;
    node->list.shuffle = has(SHUFFLED) && !has(BUCKETS) && !has(MIX); /* these shuffle themselves */
    if (has(MIX)) node->list.mix = mixes_[has(SHUFFLED)];
    if (has(BUCKETS)) node->list.order = &w->sampler;
    if (has(CLASSIC)) node->queue.deal = DLP_DEAL_TURNS;
}

static void add_push(wiring *w) {
    dlp_node *node = add_node("push", DLP_PUSH);
    node->push.source = w->push;
    node->workers.num_workers = w->workers > 0;
    if (has(CLASSIC)) node->queue.deal = DLP_DEAL_TURNS;
}

static void add_load(const char *name, const dlp_node_load *desc) {
    dlp_node *node = add_node(name, DLP_LOAD);
    node->load = *desc;
    node->load.n_parts = node->load.window = node->load.queue_size = 0;
    node->load.workers = (dlp_workers_desc){.num_workers = 0};
    node->workers = desc->workers;
    node->queue.capacity = desc->queue_size;
}

static void add_fetch(wiring *w, const char *name, const dlp_dataset *ds, uint32_t of) {
    dlp_node *node = add_node(name, DLP_FETCH);
    static dlp_field fields[4];
    memcpy(fields, w->fields, n_fields() * sizeof *fields);
    const int ends = has(SCRATCH) && !zip_reads();
    if (ends) fields[n_fields()] = w->raw;
    node->fetch = (dlp_node_fetch){.fetch = ds->fetch,
                                   .fields = fields,
                                   .n_fields = n_fields() + (uint32_t)ends,
                                   .of = of,
                                   .in_flight = has(IN_FLIGHT) ? 3 : 0};
    if (has(PUSH)) node->fetch.fetch = fetch_item; /* ds is the push's */
    node->workers = has_maker() ? w->all : w->fetch.workers;
    node->workers.dispatch = 0; /* the list says it */
    if (has(PARTS) + has(FOUND) > 0 && in_cells())
        node->workers = (dlp_workers_desc){.num_workers = 0}; /* those of the load */
    if (ends && !has_maker()) node->queue.capacity = w->n_cells;
}

static int keep_some(void *user, const dlp_item *it) {
    uint64_t id = it->index;
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    if (has(MIX)) memcpy(&id, it->data[0], sizeof id);
    return has(MIX) ? id >= value_of(ITEMS) || !is_filtered((id - 7) / 1000) : !is_filtered(id);
}

static void add_row(wiring *w, int which);

/* True if fields end before a window or a pack. */
static int ends_early(void) { return has(SCRATCH) && (has(PACK) || (has(WINDOW) && has_maker())); }

static void add_makers(wiring *w) {
    if (has(PACK) && has(SCRATCH)) add_row(w, DECODE);
    if (has(FILTER)) add_node("filter", DLP_FILTER)->filter.keep = keep_some;
    if (has(EXPAND)) {
        dlp_node *node = add_node("expand", DLP_EXPAND);
        node->expand.expand = w->expand.expand;
        node->expand.max_out = w->expand.max_out;
    }
    if (has(PACK)) {
        dlp_node *node;
        if (has(CACHE)) add_row(w, CACHE); /* it keeps documents */
        node = add_node("pack", DLP_PACK);
        node->pack = w->pack;
    }
}

static void add_window(wiring *w) {
    if (!has(WINDOW) || has(PACK) || !has_maker()) return;
    if (ends_early()) add_row(w, DECODE);
    add_node("window", DLP_WINDOW)->window.items = w->window;
}

static void add_zipped(wiring *w) {
    static dlp_field fields[2];
    dlp_node *node = add_node("zip", DLP_FETCH);
    fields[0] = w->label;
    fields[1] = w->raw;
    node->fetch =
        (dlp_node_fetch){.fetch = fetch_label, .fields = fields, .n_fields = zip_reads() ? 2 : 1};
    if (zip_reads()) node->queue.capacity = w->n_cells;
    node->workers = w->few;
}

static void add_row(wiring *w, int which) {
    static const dlp_guard_field guarded[] = {{.name = "g"}, {.name = "tokens"}};
    dlp_node *node;
    if (which == ZIP) add_zipped(w);
    if (which == CACHE) add_node("cache", DLP_CACHE)->cache.bytes = w->cache.bytes;
    if (which != GUARD && which != MAP && which != DECODE) return;
    node = add_node(kinds_[which == DECODE ? SCRATCH : which].name,
                    which == GUARD ? DLP_GUARD : DLP_MAP);
    node->workers = w->few;
    if (which == GUARD) {
        node->guard = (dlp_node_guard){.fields = &guarded[has(PACK)], .n_fields = 1};
        node->workers.on_error = DLP_ON_ERROR_DROP;
    } else {
        node->map.item = which == MAP ? map_item : decode;
        if (which == DECODE) node->map.ends = "raw";
        node->workers.idempotent = which == DECODE;
        if (in_cells() && (which == DECODE || (has(CACHE) && comes_before(MAP, CACHE))))
            node->workers = (dlp_workers_desc){.num_workers = 0}; /* by the makers' workers */
    }
}

static void add_batches(wiring *w) {
    dlp_node *node = add_node("batch", DLP_BATCH);
    node->batch.batch_size = w->batch.batch_size;
    node->batch.collate = w->batch.collate;
    if (has_maker()) node->batch.copy_workers = so_many(w->workers > 0);
    node->workers.placement = has(COLLATE) ? w->batch_by.placement : 0;
    node->workers.num_workers = has(COLLATE) ? w->batch_by.num_workers : 0;
    if (has(BATCH_MAP)) {
        node = add_node("batch_map", DLP_MAP);
        node->map.batch = map_batch;
        node->workers = w->few;
    }
    if (has(TRANSFER)) add_node("transfer", DLP_TRANSFER)->workers.num_workers = w->workers & 1;
    if (has(SPLIT)) {
        node = add_node("split", DLP_SPLIT);
        node->split.chunk_rows = CHUNK;
        node->split.batch_size = 6;
    }
}

/* ---- the same pair as branches ---- */

/* A zip or a mix that meets items of unknown count, or pushed ones, joins branches: there is no
   item of the other branch to fetch by the number of an input. Of a zip both branches make items
   alike, so rows meet their labels. */
static int joins_branches(void) {
    if (has(PARTS) && has(PUSH)) return 1; /* counts are of a list, so that is another branch */
    return (has(MIX) || has(ZIP)) && (has_maker() || has(FOUND) || has(PARTS) || has(PUSH));
}

static int expand_label(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t j = 0; j < made_of(x->item->index); j++) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL) return -1;
        memcpy(to->data[0], x->item->data[0], sizeof(uint64_t));
    }
    return 0;
}

static int other_document(void *user, dlp_item *it) {
    (void)user;
    return document_put(it, it->index + (has(MIX) ? MIXED_FIRST : 0));
}

/* The rows between the second list and the row that joins. Returns the last of them. */
static const char *add_other_branch(wiring *w) {
    static dlp_field label;
    dlp_node *node;
    if (has(PARTS) && (has(ZIP) || has(PUSH))) add_load("other_parts", &w->parts);
    if (has(ZIP) && has(FOUND)) add_load("other_found", &w->found);
    label = has(PACK) ? w->fields[0] : w->label;
    label.name = "y";
    node = add_node("more", DLP_FETCH);
    if (node[-1].verb != DLP_LOAD) node->workers = w->all;
    node->fetch = (dlp_node_fetch){.fetch = has(MIX) ? fetch_mixed : fetch_label,
                                   .fields = has(MIX) ? w->fields : &label,
                                   .n_fields = has(MIX) ? n_fields() : 1};
    if (has(PACK)) node->fetch.fetch = other_document;
    if (has(PARTS) && has(PUSH)) {
        node->fetch =
            (dlp_node_fetch){.fetch = fetch_item, .fields = w->fields, .n_fields = n_fields()};
        return "more";
    }
    if (has(ZIP) && has(FILTER)) {
        add_node("other_filter", DLP_FILTER)->filter.keep = keep_some;
        return "other_filter";
    }
    if (has(MIX) || !has(EXPAND)) return "more";
    node = add_node("other_expand", DLP_EXPAND);
    node->expand.expand = expand_label;
    node->expand.max_out = CELL;
    return "other_expand";
}

static const dlp_workers_desc none; /* others say them */

static void join(wiring *w) {
    static const char *from[3];
    static uint64_t weights[2];
    dlp_node *node;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < ITEMS; i++)
        kept += has(EXPAND) || has(FOUND) ? made_of(i) : (uint64_t)!is_filtered(i);
    weights[0] = kept; /* so that both branches end with the same draw */
    weights[1] = MIXED;
    if (has(PUSH)) {
        add_push(w);
    } else {
        node = add_node("list", DLP_LIST);
        node->list.n_items = has(PARTS) ? w->parts.n_parts : ITEMS;
        if (has(PARTS)) add_load("parts", &w->parts);
        if (has(FOUND)) add_load("found", &w->found);
        add_fetch(w, "fetch", &w->dataset, 0);
    }
    if (has(PARTS) || has(FOUND)) nodes_[n_nodes_ - 1].workers = none;
    if (!has(PACK)) add_makers(w);
    from[0] = nodes_[n_nodes_ - 1].name;
    node = add_node("others", DLP_LIST);
    node->list.n_items = has(MIX) ? MIXED : has(PARTS) ? w->parts.n_parts : ITEMS;
    from[1] = add_other_branch(w);
    node = add_node("both", has(ZIP) ? DLP_ZIP : DLP_MIX);
    node->from = from;
    if (has(MIX)) node->mix.weights = weights;
    if (has(PACK)) add_makers(w);
    add_window(w);
}

static void table_of(wiring *w) {
    const int *rows = orders_[w->order];
    n_nodes_ = 0;
    if (joins_branches()) {
        join(w);
        add_batches(w);
        return;
    }
    if (!has(PUSH) || has(SHUFFLED) || has(BUCKETS) || has(MIX)) add_list(w);
    if (has(PUSH)) add_push(w);
    if (has(PARTS)) add_load("parts", &w->parts);
    if (has(FOUND)) add_load("found", &w->found);
    if (has(FOUND) && has(PARTS)) nodes_[n_nodes_ - 1].workers = none;
    if (has(FOUND) && has(WINDOW) && !has_maker() && !has(PARTS))
        add_node("mixed", DLP_WINDOW)->window.items = w->window;
    if (!has(PUSH) || has(FOUND) || has(PARTS))
        add_fetch(w, "fetch", &w->dataset, (uint32_t)has(MIX));
    if (has(MIX) && !has(PUSH)) add_fetch(w, "more", &w->mixed, 2);
    add_makers(w);
    add_window(w);
    for (int i = 0; i < ROW_STAGES; i++)
        if (has(rows[i] == DECODE ? SCRATCH : rows[i]) && !(rows[i] == DECODE && ends_early()) &&
            !(rows[i] == CACHE && has(PACK)))
            add_row(w, rows[i]);
    add_batches(w);
}

/* Fill in now_, of which kinds, order, workers and processes are given, and open its table. Returns
   a code, and then *err says why. */
static int wire(const dlp_state *resume, dlp_error *err) {
    wiring *w = &now_;
    int rc = prepare(resume, err);
    if (rc != DLP_OK) return rc;
    w->pipe.seed = w->sampler.seed;
    table_of(w);
    return dlp_pipe_open(&w->p, nodes_, n_nodes_, &w->pipe, err);
}

/* True if the direct program knows what the pair gives. Two sources of items in each other do not
   go by the number of the input alone, and filters behind parts are asked for the part's number. */
static int is_known(void) {
    if (has(PARTS) && joins_branches()) return has(PUSH); /* index is the part's */
    if (has(PARTS) && (has(FILTER) || has(EXPAND))) return 0;
    return !has(FOUND) || !(has(PARTS) || has(EXPAND));
}

/* Rows of branches have numbers of two lists. */
static void without_index(outcome *o, outcome *rows) {
    for (int i = 0; i < o->n_rows; i++) o->rows[i].index = 0;
    for (int i = 0; i < rows->n_rows; i++) rows->rows[i].index = 0;
}

static void mixes_open(void) {
    static const uint64_t n[] = {ITEMS, MIXED};
    dlp_mix_desc mix = {.n = 2, .n_items = n, .weights = n, .seed = 9};
    CHECK(dlp_mix_open(&mixes_[0], &mix, NULL) == DLP_OK);
    mix.shuffle = 1;
    CHECK(dlp_mix_open(&mixes_[1], &mix, NULL) == DLP_OK);
}

static void mixes_close(void) {
    dlp_mix_close(mixes_[0]);
    dlp_mix_close(mixes_[1]);
}

#endif
