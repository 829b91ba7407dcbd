/* needs: parts */
#pragma once
/* tests: system/core/tables, system/stages/stacks */
#include "open/node_load.h"
#include "stages/push.h"
/* ---- expand, filter, pack, and the rows before them in the same workers ---- */

/* The rows after the list up to the last one that makes items. */
typedef struct dlpi_makers {
    const dlp_node *rows;
    uint32_t n;
    const dlp_node *push, *load, *fetch; /* the first row of each verb; NULL: there is none */
    const dlp_node *joins; /* the zip or mix that they are behind; NULL: none. The first level has
                              the fields of its rows then */
    const dlp_node *maker; /* the last expand; NULL: none */
    const dlp_node *pack;  /* the pack; NULL: none */
    const dlp_node *cache; /* the cache of the pack's documents; NULL: none */
    uint32_t windows[2];   /* items of the windows before and behind the pack; 0: none */
    uint32_t n_levels;
    dlpi_level level[DLPI_LEVELS];
    dlp_field fields[DLPI_LEVELS][DLP_MAX_FIELDS]; /* fields of the items of each level */
    uint32_t n_fields[DLPI_LEVELS];
    dlp_node_load part;
    uint64_t id;       /* hash of the ids of all rows, for the fingerprint of a state */
    uint32_t capacity; /* cells of inputs; 0: no row says it */
    dlp_workers_desc workers;
    int32_t timed;               /* shortest deadline_ms of the other rows; 0: none gives one */
    const dlpi_table_row *drops; /* the first row that leaves out what fails; NULL: none says so */
    bool says;                   /* a row says the workers, so each row has a policy of its own */
    dlp_source f;                /* desc of the first fetch */
    dlp_dataset input;           /* dataset of the inputs, with all fields of the first level */
    uint32_t n_fetched; /* fields of the first level that fetch writes; maps write the others */
    bool reads;         /* an asynchronous source reads the inputs */
    dlpi_later later[DLPI_LATER];
    uint32_t n_later;  /* later fetches with seats */
    const char *waits; /* the last of them that makes requests, or NULL */
    dlpi_of of[DLPI_OF];
    uint32_t n_of; /* datasets, each with a fetch; 0: one fetch has all items */
} dlpi_makers;

/* Add the id of a row to the fingerprint. One id alone is the id of the stage. */
static void dlpi_makers_id(dlpi_makers *m, uint64_t id) {
    if (id != 0) m->id = m->id != 0 ? dlpi_absorb(m->id, id) : id;
}

/* Callback of an expand directly behind the list, whose inputs nobody reads. Returns 0. */
static int dlpi_no_input(void *user DLPI_UNREAD, dlp_item *it DLPI_UNREAD) { return 0; }

/* Add n fields to those of the present level. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_widen(dlpi_table *t, const dlp_node *node, dlpi_makers *m,
                             const dlp_field *f, uint32_t n) {
    uint32_t *all = &m->n_fields[m->n_levels - 1];
    if (n > DLP_MAX_FIELDS - *all)
        return dlpi_bad(t->p, node->name, "n_fields", "16 at most, with those of the rows above",
                        *all + n);
    if (n > 0) memcpy(&m->fields[m->n_levels - 1][*all], f, n * sizeof *f);
    *all += n;
    return DLP_OK;
}

/* Add a filter or map, as the last op, to the present level. The op sees the fields of the level
   from op.first on. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_op(dlpi_table *t, const dlp_node *node, dlpi_makers *m, dlpi_op op) {
    dlpi_program *g = &m->level[m->n_levels - 1].program;
    if (g->n == DLPI_OPS)
        return dlpi_node_bad(t, node, "is the ninth filter or map between makers; join two");
    op.n = (uint8_t)(m->n_fields[m->n_levels - 1] - op.first);
    op.row = dlpi_row_named(t->p, node->name);
    g->op[g->n++] = op;
    return DLP_OK;
}

#define DLPI_NO_PARTS "here: there is no list of parts; set max_items, and let load count"

/* Take a load. Behind a push or other rows each item is a part, whose items the next row fetches.
   Returns 0 or a DLP_ERR code. */
static int dlpi_makers_load(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node, load.items), 0, 0, DLPI_NO_PARTS},
        {DLPI_AT(dlp_node, load.count), 0, 0, DLPI_NO_PARTS},
        {DLPI_AT(dlp_node, load.weights), 0, 0, DLPI_NO_PARTS},
        {DLPI_AT(dlp_node, load.source), 0, 0, DLPI_NO_PARTS},
        {DLPI_AT(dlp_node, load.max_part_bytes), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_node, load.max_items), 1, INT64_C(1) << 31, "1..2^31: load says how many"},
        {DLPI_AT(dlp_node, load.shuffle_items), 0, 0, "0; shuffle by a window node"},
        {DLPI_AT(dlp_node, load.load), 1, 1, "what reads a part"},
    };
    dlpi_level *l = &m->level[m->n_levels - 1];
    const dlp_node_load *d = &node->load;
    int rc;
    if (node == m->rows && m->push == NULL) {
        m->load = node;
        return dlpi_load_desc(t, node, &m->part);
    }
    if (node + 1 == m->rows + m->n || node[1].verb != DLP_FETCH)
        return dlpi_node_bad(t, node, "must stand directly after the list, or before a fetch");
    rc = dlpi_check_bounds(t->p, node->name, node, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    dlpi_makers_id(m, d->manifest_id);
    l->maker = (dlp_node_expand){.expand = dlpi_making_load, .max_out = (uint32_t)d->max_items};
    l->part = *d;
    l->row = dlpi_row_named(t->p, node->name);
    m->n_levels++;
    return DLP_OK;
}

/* Check that an asynchronous source has its two calls. Returns 0 or a DLP_ERR code. */
static int dlpi_async_check(dlp_pipe *p, const char *name, const dlp_async *async) {
    if (async->submit != NULL && async->reap != NULL) return DLP_OK;
    return dlpi_missing(p, name, async->submit ? "async.reap" : "async.submit",
                        "submit and reap with async");
}

/* Refuse an asynchronous source in the consumer. Returns a DLP_ERR code. */
static int dlpi_async_inline(dlp_pipe *p, const char *name) {
    return dlpi_bad(p, name, "workers.num_workers",
                    "0..1024 with async: next can't wait for requests and batches at once",
                    DLP_NONE);
}

/* Return the name of the first row so far that makes many items of an input, or NULL. */
static const char *dlpi_makers_many(const dlpi_makers *m) {
    if (m->load != NULL) return m->load->name;
    for (uint32_t i = 0; i + 1 < m->n_levels; i++)
        if (m->level[i].maker.expand != NULL) return m->level[i].row->name;
    return NULL;
}

/* True if a later fetch, which says f, makes requests. A cell has one request at a time, so behind
   a row that makes many items of an input it makes none. */
static bool dlpi_later_reads(const dlpi_makers *m, const dlp_source *f) {
    return dlpi_fetch_requests(f) && dlpi_makers_many(m) == NULL;
}

/* Check a later fetch row, which says f and whose items are ds: what it needs to be an op, which
   reads by requests, or one item after the other. Returns 0 or a DLP_ERR code. */
static int dlpi_later_check(dlpi_table *t, const dlp_node *node, const dlpi_makers *m,
                            const dlp_source *f, const dlp_dataset *ds) {
    const bool reads = dlpi_later_reads(m, f), many = !reads && dlpi_fetch_row_many(node);
    const int rc = reads ? dlpi_async_check(t->p, node->name, &f->async) : DLP_OK;
    if (many && dlpi_fetch_requests(f))
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name,
                           node->fetch.async != NULL ? "fetch.async" : "fetch.in_flight",
                           "\"%s\" stands behind \"%s\", which makes many items of one request; "
                           "move its row up",
                           node->name, dlpi_makers_many(m));
    if (many)
        return dlpi_node_bad(t, node,
                             "is a second fetch before makers; give it async, or leave in_flight "
                             "out and set more num_workers");
    if (rc != DLP_OK || node->fetch.source == NULL) return rc;
    if (m->load != NULL)
        return dlpi_node_bad(t, node,
                             "fetches out of parts, whose items have no numbers; give it a fetch "
                             "callback, and no source");
    if ((ds->fetch == NULL && !reads) || ds->open_end || dlpi_reader_of(ds) != NULL)
        return dlpi_node_bad(
            t, node,
            "is a second fetch before makers, whose source only makes requests, or "
            "is a stream; write this row above the others");
    if (t->n_items != 0 && ds->n_items != t->n_items)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "fetch.source",
                           "the source has %" PRIu64 " items, must have %" PRIu64
                           ", as the list \"%s\"",
                           ds->n_items, t->n_items, t->list->name);
    return DLP_OK;
}

/* Warn of a source that could make requests, and makes none. */
static void dlpi_later_slow(const dlpi_table *t, const dlp_node *node) {
    dlpi_warn(t->p,
              "\"%s\" is a second fetch before makers, and reads one item after the other in "
              "each worker; set num_workers to the reads that are to be under way",
              node->name);
}

/* Note in *m the seat of a later fetch row, which is the last op, if the row makes requests or its
   source has a worker_init. f: what the row says. of: 1 + the dataset of several that it fetches,
   or 0. Returns 0 or a DLP_ERR code. */
static int dlpi_later_seat(dlpi_table *t, const dlp_node *node, dlpi_makers *m, const dlp_source *f,
                           uint32_t of) {
    const dlp_source *source = node->fetch.source;
    const bool enters = source != NULL && source->workers.worker_init != NULL;
    const bool reads = of == 0 && dlpi_later_reads(m, f);
    dlpi_later *l = &m->later[m->n_later];
    if (source != NULL) dlpi_makers_id(m, source->id);
    if (source != NULL && source->dataset->warning != NULL)
        dlpi_warn(t->p, "%s", source->dataset->warning);
    if (source != NULL && dlpi_fetch_is_many(f) && (node->fetch.of > 0 || !dlpi_later_reads(m, f)))
        dlpi_later_slow(t, node);
    if (!enters && !reads) return DLP_OK;
    if (m->n_later == DLPI_LATER)
        return dlpi_node_bad(t, node,
                             "is the third later fetch by a source with a worker_init, or with "
                             "async; a list has two at most");
    if (enters) l->calls = node->workers;
    l->bytes = enters ? source->dataset->worker_bytes : 0;
    l->of = of;
    l->level = m->n_levels - 1;
    l->op = of == 0 ? m->level[l->level].program.n - 1 : 0;
    l->row = dlpi_row_named(t->p, node->name);
    if (reads) {
        l->async = f->async;
        l->user = m->level[l->level].program.op[l->op].user;
        l->in_flight = (uint32_t)dlpi_fetch_many(f->in_flight);
        m->waits = node->name;
    }
    m->n_later++;
    return dlpi_fetch_workers(t, node, source, &l->calls);
}

/* Take a fetch row of one of several datasets into *m. Its items have the numbers behind those of
   the datasets above. Returns 0 or a DLP_ERR code. */
static int dlpi_of_take(dlpi_table *t, const dlp_node *node, dlpi_makers *m, dlp_source *f,
                        const dlp_dataset *ds) {
    const uint64_t first = m->n_of > 0 ? m->of[m->n_of - 1].end : 0;
    if (t->joins != NULL)
        return dlpi_node_bad(t, node,
                             "fetches one of several datasets in a branch; give each dataset a "
                             "list and a branch of its own");
    if (m->load != NULL)
        return dlpi_node_bad(t, node,
                             "fetches one of several datasets behind a load; list the parts of all "
                             "datasets there");
    if (dlpi_fetch_row_many(node) || ds->fetch == NULL || dlpi_reader_of(ds) != NULL)
        return dlpi_node_bad(t, node,
                             "fetches one of several datasets before makers, one item after the "
                             "other; give it a fetch callback, and no async or in_flight");
    if (node->fetch.of != m->n_of + 1 || m->n_of == DLPI_OF ||
        (m->n_of > 0 && m->rows + m->n_of != node))
        return dlpi_node_bad(t, node,
                             "fetches one of several datasets before makers, at most 16, whose "
                             "rows follow each other; move it");
    if (m->n_of > 0 && !dlpi_fields_same(ds->fields, ds->n_fields, m->fields[0], m->n_fetched))
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "fetch.fields",
                           "fields differ from those of \"%s\"; give all datasets the same fields",
                           m->rows->name);
    m->of[m->n_of++] = (dlpi_of){
        .first = first,
        .end = first + ds->n_items,
        .op = {.fn.call = ds->fetch, .user = ds->user, .row = dlpi_row_named(t->p, node->name)}};
    if (m->n_of == 1) {
        if (dlpi_fetch_is_many(f)) dlpi_later_slow(t, node);
        f->fetcher = DLP_FETCH_SEQUENTIAL;
        f->in_flight = 0;
        return DLP_OK;
    }
    if (ds->writes_all_bytes == 0) m->input.writes_all_bytes = 0;
    m->input.n_items = first + ds->n_items;
    return dlpi_later_seat(t, node, m, f, m->n_of);
}

/* Take a fetch row into *m: the first fetch, one of the items of parts, or one of more fields,
   which is an op. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_fetch(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    const uint32_t first = m->n_fields[m->n_levels - 1];
    const bool next = node + 1 < t->nodes + t->n && node[1].verb == DLP_FETCH;
    dlp_source f = {.fetcher = DLP_FETCH_SEQUENTIAL};
    dlp_dataset ds = {.n_fields = 0};
    int rc = dlpi_fetch_descs(t, node, &f, &ds);
    if (rc != DLP_OK) return rc;
    if (ds.fetch_rows != NULL)
        return dlpi_node_bad(t, node,
                             "stands before makers, whose inputs are fetched one by one; give it "
                             "fetch, and no fetch_rows");
    if ((node->fetch.of > 1 || (node->fetch.of == 1 && next && node[1].fetch.of == 2)) &&
        (rc = dlpi_of_take(t, node, m, &f, &ds)) != DLP_OK)
        return rc;
    if (node->fetch.of > 1) return DLP_OK;
    if (node[-1].verb == DLP_LOAD && m->load != node - 1) {
        dlpi_level *l = &m->level[m->n_levels - 2];
        if (node->fetch.source != NULL || dlpi_fetch_is_many(&f))
            return dlpi_node_bad(t, node,
                                 "fetches out of parts of items; give it a fetch callback, and no "
                                 "source, async or in_flight");
        l[0].maker.writes_all_bytes = node->fetch.writes_all_bytes;
        l[0].fetch = ds.fetch;
        l[0].fetch_user = ds.user;
        l[0].fetch_row = dlpi_row_named(t->p, node->name);
        l[1].n_made = ds.n_fields;
        return dlpi_makers_widen(t, node, m, ds.fields, ds.n_fields);
    }
    if (m->load == node - 1 || node == m->rows) {
        m->fetch = node;
        m->f = f;
        m->input = ds;
        m->n_fetched = ds.n_fields;
    } else if ((rc = dlpi_later_check(t, node, m, &f, &ds)) != DLP_OK) {
        return rc;
    }
    rc = dlpi_makers_widen(t, node, m, ds.fields, ds.n_fields);
    if (rc != DLP_OK || m->fetch == node) return rc;
    m->input.writes_all_bytes = 0;
    rc = dlpi_makers_op(t, node, m,
                        (dlpi_op){.fn.call = ds.fetch, .user = ds.user, .first = (uint8_t)first});
    return rc != DLP_OK ? rc : dlpi_later_seat(t, node, m, &f, 0);
}

/* Take a map in which fields end: it is the last op of its level, and the next level has the
   other fields. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_ends(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    dlpi_level *l = &m->level[m->n_levels - 1];
    const dlp_field *f = m->fields[m->n_levels - 1];
    const uint32_t n = m->n_fields[m->n_levels - 1];
    int rc;
    if (t->ops->which == NULL)
        return dlpi_not_null(t->p, node->name, "map.ends",
                             "with DLPIPE_NO_SCRATCH; compile without it");
    if ((rc = t->ops->which(t, node, f, n, &l->ends)) != DLP_OK) return rc;
    l->maker = (dlp_node_expand){.max_out = 1};
    m->n_levels++;
    for (uint32_t i = 0; i < n && rc == DLP_OK; i++)
        if ((l->ends >> i & 1) == 0) rc = dlpi_makers_widen(t, node, m, &f[i], 1);
    return rc;
}

/* Take a map row into *m: an op of the present level, with the fields that it adds. A map with
   `ends` also begins a new level. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_map(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    int rc = dlpi_map_given(t, node);
    if (rc != DLP_OK) return rc;
    if (m->n_fields[m->n_levels - 1] == 0)
        return dlpi_node_bad(t, node, "has no fields; write a fetch above it");
    rc = dlpi_makers_widen(t, node, m, node->map.fields, node->map.n_fields);
    if (rc != DLP_OK) return rc;
    if (node->map.n_fields > 0) m->input.writes_all_bytes = 0;
    rc = dlpi_makers_op(t, node, m, (dlpi_op){.fn.call = node->map.item, .user = node->map.user});
    return rc == DLP_OK && node->map.ends != NULL ? dlpi_makers_ends(t, node, m) : rc;
}

/* Take a filter row into *m, as an op of the present level. A row without a callback adds no op
   if the fetch filters. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_filter(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    if (node->filter.keep == NULL && m->fetch != NULL && m->input.filter == 1) return DLP_OK;
    if (node->filter.keep == NULL)
        return dlpi_missing(t->p, node->name, "filter.keep", "the function that keeps items");
    dlpi_makers_id(m, node->filter.id);
    return dlpi_makers_op(
        t, node, m,
        (dlpi_op){.fn.keep = node->filter.keep, .user = node->filter.user, .how = DLPI_OP_KEEP});
}

/* Take an expand row into *m: it begins the next level. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_expand(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    const uint32_t l = m->n_levels - 1;
    const dlp_node_expand d = node->expand;
    const dlp_node *shuffles = m->maker != NULL && m->maker->expand.shuffle_items != 0 ? m->maker
                               : m->maker != NULL || m->load != NULL                   ? node
                                                                                       : NULL;
    int rc;
    if (d.n_fields == 0 && m->n_fields[l] == 0)
        return dlpi_bad(t->p, node->name, "expand.n_fields", "1..16 without a fetch before it", 0);
    rc = dlpi_expand_bounds(t->p, node->name, &d);
    if (rc != DLP_OK) return rc;
    if (shuffles != NULL && shuffles->expand.shuffle_items != 0)
        return dlpi_bad(t->p, shuffles->name, "expand.shuffle_items",
                        "0 beside other makers; shuffle by a window node",
                        shuffles->expand.shuffle_items);
    m->maker = node;
    dlpi_makers_id(m, d.id);
    m->level[l].maker = d;
    m->level[l].row = dlpi_row_named(t->p, node->name);
    m->n_levels++;
    m->level[l + 1].n_made = d.n_fields > 0 ? d.n_fields : m->n_fields[l];
    return dlpi_makers_widen(t, node, m, d.n_fields > 0 ? d.fields : m->fields[l],
                             m->level[l + 1].n_made);
}

/* Take one of the rows up to the last maker into *m. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_take(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    int rc;
    if (m->pack != NULL)
        return dlpi_node_ends(node)
                   ? dlpi_not_null(
                         t->p, node->name, "map.ends",
                         "after pack, whose rows have tokens alone: let fields end before it")
                   : dlpi_node_bad(t, node, "stands behind a pack; write it above the pack");
    if (m->n_levels == DLPI_LEVELS &&
        (node->verb == DLP_EXPAND || node->verb == DLP_LOAD || dlpi_node_ends(node)))
        return dlpi_node_bad(t, node,
                             "is the fourth expand, or map in which fields end, of a cell; a cell "
                             "has three at most");
    if (node->verb == DLP_LOAD) return dlpi_makers_load(t, node, m);
    if (node->verb == DLP_FETCH) return dlpi_makers_fetch(t, node, m);
    if (node->verb == DLP_MAP) return dlpi_makers_map(t, node, m);
    if (node->verb == DLP_FILTER) return dlpi_makers_filter(t, node, m);
    if (node->verb == DLP_EXPAND) return dlpi_makers_expand(t, node, m);
    m->cache = node->verb == DLP_CACHE ? node : m->cache;
    if (node->verb == DLP_WINDOW) {
        m->windows[0] = node->window.items;
        return dlpi_window_ungrouped(t, node);
    }
    if (node->verb != DLP_PACK) return DLP_OK;
    m->pack = node;
    m->windows[1] = dlpi_window_after(t);
    if ((rc = dlpi_window_ungrouped(t, dlpi_table_window(t, t->at))) != DLP_OK) return rc;
    dlpi_makers_id(m, node->pack.id);
    if (m->maker != NULL && m->maker->expand.shuffle_items)
        return dlpi_bad(t->p, m->maker->name, "expand.shuffle_items",
                        "0 before a pack, which takes documents in their order",
                        m->maker->expand.shuffle_items);
    return DLP_OK;
}

/* Check what a row says of its failures, and note it in *m and in the row's record. by: the row
   that says the workers. If it says anything, each row that does not say what becomes of failures
   has the policy of this row. Behind a zip or mix it has that of the stage. Returns 0 or a DLP_ERR
   code. */
static int dlpi_makers_policy(dlpi_table *t, dlpi_makers *m, const dlp_node *node,
                              const dlp_node *by) {
    dlpi_table_row *row = &t->p->rows[node - t->nodes];
    const int32_t ms = row->policy.deadline_ms;
    int rc = DLP_OK;
    if (node != by) /* whose desc is checked as that of the stage, and has its deadline */
        rc = dlpi_check_bounds(t->p, node->name, &node->workers, DLPI_ROWS(dlpi_workers_bounds));
    if (rc != DLP_OK) return rc;
    if (node->workers.on_error == DLP_ON_ERROR_REPLACE)
        return dlpi_bad(t->p, node->name, "on_error",
                        "DLP_ON_ERROR_RAISE or _DROP: a row in a cell has no replacement",
                        DLP_ON_ERROR_REPLACE);
    if (node != by) dlpi_timed_least(&m->timed, ms);
    if (m->drops == NULL && node->workers.on_error == DLP_ON_ERROR_DROP) m->drops = row;
    if (m->says && !row->own) row->policy = dlpi_policy_of(&by->workers);
    row->policy.deadline_ms = ms;
    row->own |= m->says;
    return DLP_OK;
}

/* Take what stands before the rows: a list, a push with its fields, or a zip or mix with those of
   joined rows. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_begin(dlpi_table *t, dlpi_makers *m) {
    m->input = (dlp_dataset){.n_items = t->n_items, .fetch = dlpi_no_input};
    if (m->joins != NULL) {
        m->input.writes_all_bytes = 1;
        m->n_fetched = m->n_fields[0];
        return DLP_OK;
    }
    if (t->list->verb != DLP_PUSH) return DLP_OK;
    m->push = t->list;
    m->input = *dlp_push_source(m->push->push.source)->dataset;
    m->input.open_end = 0;
    m->input.n_items = DLPI_MAX_ITEMS; /* the number of a record is below it */
    m->n_fetched = m->input.n_fields;
    return dlpi_makers_widen(t, m->push, m, m->input.fields, m->input.n_fields);
}

/* Take all rows of *m, with their capacity and workers. The rows share workers: the row that says
   more says them, or the first of two. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_rows(dlpi_table *t, dlpi_makers *m) {
    const dlp_node *by = m->rows;
    int rc = dlpi_makers_begin(t, m);
    if (rc != DLP_OK) return rc;
    for (const dlp_node *node = m->rows; node < m->rows + m->n; node++) {
        const int says = dlpi_workers_say(&node->workers), before = dlpi_workers_say(&by->workers);
        t->p->node = node->name;
        if ((rc = dlpi_makers_take(t, node, m)) != DLP_OK) return rc;
        if (node->queue.capacity != 0 && m->capacity != 0)
            return dlpi_bad(t->p, node->name, "queue.capacity", "0: a row above has set it",
                            node->queue.capacity);
        m->capacity += node->queue.capacity;
        if (node != by && says == DLPI_SAY_WORKERS && before == DLPI_SAY_WORKERS)
            return dlpi_refuse(
                t->p, DLP_ERR_ARG, node->name, "workers",
                "workers is set in \"%s\", too, and both share workers; set it in one of the two",
                by->name);
        if (says > before) by = node;
    }
    if (m->n > 0) m->workers = by->workers;
    m->drops = NULL;
    m->says = m->n > 0 && m->joins == NULL && dlpi_workers_given(&by->workers);
    for (const dlp_node *node = m->rows; node < m->rows + m->n && rc == DLP_OK; node++)
        rc = dlpi_makers_policy(t, m, node, by);
    return rc;
}

/* Turn the in_flight threads of each worker that fetches into so many workers, each with a cell.
   Returns 0 or a DLP_ERR code. */
static int dlpi_makers_threads(dlpi_table *t, dlpi_makers *m) {
    dlp_source *f = &m->f;
    const int32_t n = m->workers.num_workers > 0 ? m->workers.num_workers : 1;
    const int rc =
        dlpi_within(t->p, m->fetch->name, "workers.num_workers", m->workers.num_workers, 0,
                    DLP_MAX_WORKERS, "0..1024 with in_flight: next makes one item after the other");
    const int32_t each = dlpi_fetch_many(f->in_flight);
    if (rc != DLP_OK) return rc;
    if (n > DLP_MAX_WORKERS / each)
        return dlpi_bad(t->p, m->fetch->name, "fetch.in_flight", "at most 1024 / num_workers",
                        each);
    m->workers.num_workers = n * each;
    f->fetcher = DLP_FETCH_SEQUENTIAL;
    f->in_flight = 0;
    return DLP_OK;
}

/* Add the stage that reads a push before makers. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_push(dlpi_table *t, const dlp_node *node) {
    const char *field = dlpi_run_given(t->d);
    const dlp_source *source = dlp_push_source(node->push.source);
    dlp_workers_desc w = node->workers;
    dlpi_stage *st;
    int rc;
    if (field != NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, "", field,
                           "%s is set, and the items of \"%s\" are pushed: they are one stream, "
                           "which ends; set 0",
                           field, node->name);
    if (t->d->world_size > 1)
        return dlpi_bad(t->p, "", "world_size", "1 with a push: pushed items go to one rank",
                        t->d->world_size);
    if ((rc = dlpi_fetch_workers(t, node, source, &w)) != DLP_OK) return rc;
    t->p->node = node->name;
    if ((st = dlpi_add(t->p, &dlpi_push_ops, "push", &w)) == NULL) return t->p->err.code;
    rc = dlpi_added(t->p, st, dlpi_check_workers(t->p, st));
    return rc < 0 ? rc : DLP_OK;
}

/* Let the stage that reads the push of these rows, if they have one, give its records to x. */
static void dlpi_makers_arrive(const dlpi_table *t, const dlpi_makers *m, dlpi_expand *x) {
    for (int i = 0; m->push != NULL && i < t->p->n_stages; i++) {
        dlpi_stage *st = &t->p->stages[i];
        if (st->ops != &dlpi_push_ops || strcmp(st->name, m->push->name) != 0) continue;
        x->found.arrivals = st->self;
        x->found.arrivals->x = x;
    }
}

/* Set up the inputs of the first level: who reads them, with which workers and fields. Returns 0 or
   a DLP_ERR code. */
static int dlpi_makers_inputs(dlpi_table *t, dlpi_makers *m) {
    int rc = DLP_OK;
    if (m->push != NULL && t->joins == NULL) rc = dlpi_makers_push(t, m->push);
    if (m->fetch != NULL) rc = dlpi_fetch_workers(t, m->fetch, m->fetch->fetch.source, &m->workers);
    if (rc == DLP_OK && m->load != NULL)
        rc = dlpi_fetch_workers(t, m->load, m->part.source, &m->workers);
    if (rc == DLP_OK && m->f.fetcher == DLP_FETCH_THREADS) rc = dlpi_makers_threads(t, m);
    if (rc != DLP_OK) return rc;
    m->reads = dlpi_fetch_requests(&m->f);
    if (m->reads && m->input.fetch == NULL) m->input.fetch = dlpi_no_input; /* nobody calls it */
    if (m->waits != NULL && m->workers.num_workers == DLP_NONE)
        return dlpi_async_inline(t->p, m->waits);
    if (m->load != NULL && m->reads)
        return dlpi_not_null(t->p, m->fetch->name, "fetch.async",
                             "between a load and other makers: items of a part are fetched one "
                             "after the other");
    if (m->load != NULL) m->input.n_items = t->n_items;
    m->input.fields = m->fields[0];
    m->input.n_fields = m->n_fields[0];
    m->f.dataset = &m->input;
    if (m->n_fields[m->n_levels - 1] > 0) return DLP_OK;
    return dlpi_node_bad(t, m->rows + m->n - 1, "has no fields; add a fetch node");
}

/* Return the row that names the stage: the pack or last expand, else the first filter, else the
   first row. Behind a push, a zip or a mix there may be no row. */
static const dlp_node *dlpi_makers_name(const dlpi_makers *m) {
    static const dlp_node pushed = {.name = "records"};
    if (m->n == 0) return m->joins != NULL ? m->joins : &pushed;
    if (m->pack != NULL) return m->pack;
    if (m->maker != NULL) return m->maker;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->rows[i].verb == DLP_FILTER) return &m->rows[i];
    return m->rows;
}

/* Add the stage that makes items, or let `behind`, the stage of a zip or mix, make them. behind may
   be NULL. Returns a stage number or 0, or a DLP_ERR code. */
static dlp_stage dlpi_makers_stage(dlpi_table *t, const dlpi_makers *m, dlpi_stage *behind) {
    dlp_workers_desc w = m->workers;
    dlpi_stage *st = behind;
    int rc;
    w.dispatch = 0; /* it says how the rows that are copied go to workers */
    t->p->node = dlpi_makers_name(m)->name;
    if (m->pack != NULL)
        return t->ops->pack(t->p, behind, &m->pack->pack, &w, m->capacity, m->windows);
    if (st == NULL) st = dlpi_add(t->p, &dlpi_expand_ops, "expand", &w);
    if (st == NULL) return t->p->err.code;
    st->ops = &dlpi_expand_ops;
    rc = dlpi_expand_take(t->p, st, m->capacity, dlpi_window_after(t));
    return behind != NULL ? rc : dlpi_added(t->p, st, rc);
}

#define DLPI_FILTER_INLINE 4096u  /* bytes of a batch up to which the consumer copies it */
#define DLPI_COPY_LARGE 0x100000u /* bytes above which a worker copies a batch, always */

/* Return how many workers copy items into rows if the table does not say it. They take the cores
   that the workers `w` of the makers leave. They are at most 2, and no more than the makers'
   workers. DLP_NONE: the consumer copies. Copies compute, so more threads than cores slow them. But
   a large batch has a worker, since the consumer would wait for a copy of milliseconds. */
static int32_t dlpi_copiers(const dlp_pipe *p, const dlp_workers_desc *w, uint64_t bytes) {
    const int32_t n = w->num_workers > 2 ? 2 : w->num_workers, spare = p->cpus - w->num_workers;
    if (n <= 0) return n;
    if (spare <= 0) return bytes > DLPI_COPY_LARGE ? 1 : DLP_NONE;
    return spare < n ? spare : n;
}

/* Add the fetch stage that copies made items into rows. w: the workers that make them. made: the
   items' fields. Returns a stage number or a DLP_ERR code. */
static int dlpi_copies_add(dlpi_table *t, const dlp_workers_desc *w, const dlp_dataset *made,
                           dlp_source *f) {
    const dlp_node *batch = t->nodes;
    uint64_t bytes =
        0; /* of a batch; without a meaning if fields are wrong, which are not checked */
    int32_t n;
    while (batch < t->nodes + t->n - 1 && batch->verb != DLP_BATCH) batch++;
    for (uint32_t i = 0; made->fields != NULL && i < made->n_fields && i < DLP_MAX_FIELDS; i++)
        bytes = dlpi_sum(bytes, dlpi_field_item_bytes(&made->fields[i]));
    bytes = dlpi_times(bytes, batch->batch.batch_size);
    n = dlpi_copiers(t->p, w, bytes);
    if (bytes <= DLPI_FILTER_INLINE || n == DLP_NONE)
        n = t->p->sharing->programs; /* which get what workers have made */
    if (batch->verb == DLP_BATCH && batch->batch.copy_workers != 0)
        n = batch->batch.copy_workers == DLP_NONE ? 0 : batch->batch.copy_workers;
    f->workers = (dlp_workers_desc){.num_workers = n, .placement = w->placement};
    f->workers.dispatch = dlpi_table_turns(t) ? DLP_DISPATCH_BATCHES : w->dispatch;
    t->fetchers = n;
    t->fetched = t->copies = true;
    return dlpi_add_fetch(t->p, f);
}

/* Set how many items may be made of an input at most. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_most(dlpi_table *t, const dlpi_makers *m, dlpi_expand *x) {
    uint64_t most = m->load != NULL ? x->found.most_items : 1;
    for (uint32_t i = 0; i + 1 < m->n_levels; i++)
        most = dlpi_times(most, m->level[i].maker.max_out);
    if (most > UINT64_C(1) << 31)
        return dlpi_refuse(t->p, DLP_ERR_ARG, m->maker ? m->maker->name : t->p->node,
                           m->maker ? "expand.max_out" : "load.max_items",
                           "an input has up to %" PRIu64 " items, must have at most 2^31; lower %s",
                           most, m->maker ? "max_out" : "max_items");
    x->found.most_items = x->found.plan.most = x->found.d.max_items = most > 0 ? most : 1;
    return DLP_OK;
}

/* Copy the levels and the id to x, and the fields of the levels above the first to all[], *n of
   them. Refuse max_bytes in an expand whose items do not stay in the cell, because a row behind
   makes other items of them. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_give(dlpi_table *t, const dlpi_makers *m, dlpi_expand *x, dlp_field *all,
                            uint32_t *n) {
    const dlpi_level *made = NULL;
    *n = 0;
    x->n_levels = m->n_levels;
    x->n_fetched = m->n_fetched;
    x->found.d.manifest_id = m->id;
    memcpy(x->level, m->level, sizeof x->level);
    memcpy(x->later, m->later, sizeof x->later);
    x->n_later = m->n_later;
    memcpy(x->of, m->of, sizeof x->of);
    x->n_of = m->n_of;
    x->drops = m->drops;
    x->says = m->says;
    for (uint32_t i = 1; i < m->n_levels; i++) {
        const dlpi_level *l = &m->level[i - 1];
        x->has_rooms |= l->ends != 0;
        if (l->ends == 0) {
            x->found.plan.shuffle_items = l->maker.shuffle_items != 0;
            x->found.max_bytes = l->maker.max_bytes;
        }
        x->level[i].first = *n;
        x->level[i].n = m->n_fields[i];
        memcpy(all + *n, m->fields[i], m->n_fields[i] * sizeof *all);
        *n += m->n_fields[i];
        if (l->maker.expand == NULL) continue;
        if (made != NULL && made->maker.max_bytes > 0)
            return dlpi_refuse(t->p, DLP_ERR_ARG, made->row->name, "expand.max_bytes",
                               "max_bytes is %" PRIu64 ", must be 0: \"%s\" makes other items of "
                               "the items; only the last expand of a list can have it",
                               made->maker.max_bytes, l->row->name);
        made = l;
    }
    return DLP_OK;
}

/* Give the stage its levels, and a copy of their fields. Returns 0 or a DLP_ERR code. */
static int dlpi_makers_levels(dlpi_table *t, const dlpi_makers *m, dlpi_stage *st) {
    dlp_field all[(DLPI_LEVELS - 1) * DLP_MAX_FIELDS];
    dlpi_expand *x = st->self;
    const dlp_node *window = m->pack == NULL ? dlpi_table_window(t, t->at) : NULL;
    uint32_t n;
    int rc = dlpi_makers_give(t, m, x, all, &n);
    if (rc == DLP_OK && window != NULL)
        rc = dlpi_window_groups(t, window, m->fields[m->n_levels - 1], m->n_fields[m->n_levels - 1],
                                &x->found.plan);
    if (rc != DLP_OK) return rc;
    x->row = m->fetch != NULL ? dlpi_row_named(t->p, m->fetch->name) : NULL;
    x->load = m->load != NULL ? dlpi_row_named(t->p, m->load->name) : NULL;
    if (t->list->verb == DLP_LIST && t->list->list.mix != NULL)
        x->found.plan.rule = DLPI_LIST_DRAWN; /* a mix goes on behind its epoch */
    if (m->pack != NULL && m->load == NULL && m->n_levels == 1 && m->cache == NULL)
        return DLP_OK; /* an input is a document */
    t->p->node = m->load != NULL ? m->load->name : t->p->node;
    rc = m->load != NULL ? dlpi_expand_take_parts(t->p, st, &m->part) : DLP_OK;
    if (rc == DLP_OK) rc = dlpi_makers_most(t, m, x);
    if (rc == DLP_OK && m->pack != NULL) rc = t->ops->pack_makers(t->p, st);
    return rc != DLP_OK ? rc : dlpi_keep_fields(t->p, st, all, n);
}

/* Add the fetch stage that copies the last level's items into rows, and the stage of their cache,
   if they have one. Returns a stage number or a DLP_ERR code. */
static int dlpi_makers_copies(dlpi_table *t, dlpi_makers *m) {
    const uint32_t last = m->n_levels - 1;
    const dlp_dataset made = {.fields = m->fields[last], .n_fields = m->n_fields[last]};
    int rc;
    t->p->node = m->fetch != NULL && m->fetch != dlpi_makers_name(m) ? m->fetch->name : "copy";
    rc = dlpi_copies_add(t, &m->workers, &made, &m->f);
    if (rc < 0 || m->cache == NULL) return rc;
    t->p->node = m->cache->name;
    return dlpi_verb_of(t, m->cache)->add(t, m->cache);
}

/* Let the workers of a stage of cells read inputs into their cells by asynchronous requests.
   Returns 0 or a DLP_ERR code. */
static int dlpi_makers_reads(dlpi_table *t, dlpi_makers *m, dlpi_stage *st) {
    dlp_source *f = &m->f;
    dlpi_expand *x = st->self;
    const int rc = dlpi_async_check(t->p, st->name, &f->async);
    if (rc != DLP_OK) return rc;
    if (st->w.num_workers == 0) return dlpi_async_inline(t->p, st->name);
    st->in_flight = dlpi_fetch_many(f->in_flight);
    f->fetcher = DLP_FETCH_SEQUENTIAL;
    f->in_flight = 0;
    x->async = f->async;
    x->found.in_flight = (uint32_t)st->in_flight;
    x->n_read = 1;
    x->seats.n = 1;
    x->seats.at[0] = (dlpi_seating){.by = &x->found, .in_flight = x->found.in_flight};
    return DLP_OK;
}

/* Give the later fetches of a stage seats beside that of its first fetch. The workers make the
   requests of all. */
static void dlpi_makers_sit(dlpi_makers *m, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    if (m->n_of > 0) m->input.fetch = dlpi_of_fetch, m->input.user = x;
    if (x->n_later == 0) return;
    x->calls = st->w;
    x->seats.n = 1;
    x->seats.at[0] = (dlpi_seating){.calls = &x->calls,
                                    .by = &x->found,
                                    .row = x->row != NULL ? x->row : x->load,
                                    .in_flight = x->found.in_flight,
                                    .bytes = m->input.worker_bytes};
    dlpi_seats_later(&x->seats, x, 0, 1);
    st->in_flight = (int32_t)x->found.in_flight;
    dlpi_seats_call(&x->seats, &st->w);
    m->input.worker_bytes = dlpi_seats_private(&x->seats);
}

/* Add the stages of all rows up to the last one that makes items, which is this row. Returns a
   stage number or a DLP_ERR code. */
static int dlpi_node_makes_add(dlpi_table *t, const dlp_node *node) {
    dlpi_makers m = {.rows = t->nodes + 1, .n = t->at, .n_levels = 1};
    const int32_t first = t->nodes[1].verb;
    dlpi_stage *st;
    int rc;
    if (t->at + 1 != t->makes || (t->nodes->verb != DLP_PUSH && first != DLP_FETCH &&
                                  first != DLP_LOAD && first != DLP_EXPAND))
        return dlpi_node_bad(t, node,
                             "must stand directly after the first fetch, a push, a map, an expand "
                             "or a filter (an expand also after the list)");
    rc = dlpi_makers_rows(t, &m);
    if (rc == DLP_OK) rc = dlpi_makers_inputs(t, &m);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_makers_stage(t, &m, NULL)) < 0) return rc;
    st = &t->p->stages[rc];
    dlpi_timed_least(&st->timed, m.timed);
    dlpi_makers_arrive(t, &m, st->self);
    if ((rc = dlpi_makers_levels(t, &m, st)) != DLP_OK) return rc;
    if (m.reads && (rc = dlpi_makers_reads(t, &m, st)) != DLP_OK) return rc;
    dlpi_makers_sit(&m, st);
    t->unknown = true;
    return dlpi_makers_copies(t, &m);
}
