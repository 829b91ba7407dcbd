/* needs: parts */
#pragma once
/* tests: system/stages/branches, system/stages/branch_chains */
#include "open/node_joined.h"
#include "open/node_push.h"
#include "stages/branches.h"
/* ---- zip, mix: branches, which are rows from a list or a push to the row before the next ---- */

/* Let a branch have the order of its list, if inputs can have it. Returns 0 or a DLP_ERR code. */
static int dlpi_table_order(const dlpi_table *t, dlpi_branch *b) {
    const char *list = t->list->name;
    const dlp_sampler_desc *d = t->list->verb == DLP_LIST ? &t->order : &b->order;
    dlp_error e;
    const int rc = dlpi_input_orders(t->p, list, d->order, t->joins->name);
    if (rc != DLP_OK) return rc;
    if (d != &b->order && dlpi_order_check(d, b->x.input.n_items, &e) != DLP_OK) {
        dlpi_copy_text(e.stage, sizeof e.stage, list);
        return dlpi_pipe_fail(t->p, &e);
    }
    b->order = *d;
    dlpi_input_rule(d, b->x.input.n_items, &b->x.found.plan);
    return DLP_OK;
}

/* Take a branch into *b. m: its rows. st: a stage with the branch's name and workers. Returns 0 or
   a DLP_ERR code. */
static int dlpi_table_branch(dlpi_table *t, const dlpi_stage *st, dlpi_branch *b, dlpi_makers *m) {
    const uint32_t n = m->input.n_fields;
    dlpi_stage one = *st, inputs = *st;
    dlpi_expand *x = &b->x;
    int rc;
    one.self = x;
    one.fields = inputs.fields = NULL;
    one.n_fields = inputs.n_fields = 0;
    dlpi_copy_text(b->name, sizeof b->name, st->name);
    rc = dlpi_expand_take(t->p, &one, m->capacity, 0);
    if (rc != DLP_OK) return rc;
    x->input = m->input;
    rc = dlpi_makers_levels(t, m, &one);
    if (rc == DLP_OK) rc = dlpi_table_order(t, b); /* a range has fewer inputs than the load */
    x->has_rooms = false; /* fields that end lie in cells: workers serve several branches */
    b->made = one.fields;
    b->n_made = one.n_fields;
    if (rc == DLP_OK) rc = dlpi_keep_fields(t->p, &inputs, m->input.fields, n);
    if (rc == DLP_OK && m->reads) rc = dlpi_makers_reads(t, m, &one);
    x->input.fields = b->in = inputs.fields;
    dlpi_makers_arrive(t, m, x);
    if (rc != DLP_OK) return rc;
    b->out = m->n_levels > 1 ? b->made + dlpi_input_last(x)->first : b->in;
    b->n_out = m->n_fields[m->n_levels - 1];
    return DLP_OK;
}

/* Append the next leg of a mix, with the schedule of its weights, which tells the branch of each
   row. weights: [j->n], or NULL if all are 1. Returns 0 or a DLP_ERR code with *e filled. */
static int dlpi_table_leg(dlpi_branches *j, uint32_t k, uint64_t from, const uint64_t *weights,
                          dlp_error *e) {
    uint64_t ones[DLPI_BRANCHES], begun = k > 0 ? j->legs[k - 1].begun : 0;
    dlp_mix *m = NULL;
    uint32_t *schedule;
    int rc;
    for (uint32_t b = 0; b < j->n; b++) ones[b] = 1;
    rc = dlp_mix_open(&m, &(dlp_mix_desc){.n = j->n, .n_items = ones, .weights = weights}, e);
    if (m == NULL) return rc;
    begun = dlpi_absorb(begun, from);
    for (uint32_t b = 0; b < j->n; b++) begun = dlpi_absorb(begun, m->part[b].weight);
    schedule = realloc(j->schedule, (size_t)(j->places + m->period) * sizeof *schedule);
    if (schedule != NULL) {
        memcpy(schedule + j->places, m->schedule, (size_t)m->period * sizeof *schedule);
        j->schedule = schedule;
        j->legs[k] = (dlpi_leg){.from = from, .period = m->period, .at = j->places, .begun = begun};
        j->places += m->period;
    }
    for (uint32_t b = 0; k == 0 && b < j->n; b++)
        j->weights_hash = dlpi_absorb(j->weights_hash, m->part[b].weight);
    dlp_mix_close(m);
    if (schedule != NULL) return DLP_OK;
    dlpi_error_set(e, DLP_ERR_MEMORY, "mix.weights", "no memory for the schedule");
    e->errnum = ENOMEM;
    return DLP_ERR_MEMORY;
}

/* Check where leg k of a mix begins, and that it has weights which are not all 0, and append it.
   Returns 0 or a DLP_ERR code. */
static int dlpi_table_next_leg(dlp_pipe *p, const char *name, dlpi_branches *j,
                               const dlp_node_mix *d, uint32_t k) {
    const dlp_mix_leg *leg = &d->legs[k];
    const uint64_t streams = p->d.streams > 0 ? p->d.streams : 1;
    const uint64_t before = k > 0 ? d->legs[k - 1].from : 0;
    dlp_error e;
    int rc;
    if (leg->from <= before || leg->from > UINT64_C(1) << (DLPI_DRAW_BITS - 1))
        return dlpi_refuse(p, DLP_ERR_ARG, name, "mix.legs",
                           "legs[%" PRIu32 "].from is %" PRIu64 ", must be %" PRIu64 "..2^43: legs "
                           "begin one after the other",
                           k, leg->from, before + 1);
    rc = dlpi_table_leg(j, k + 1, leg->from / streams, leg->weights, &e);
    if (rc != DLP_OK)
        return dlpi_refuse(p, rc, name, "mix.legs", "legs[%" PRIu32 "]: %s", k, e.message);
    j->n_legs++;
    return DLP_OK;
}

/* Compute the schedules of a mix, one for each leg. Each branch has a weight in some leg. Returns 0
   or a DLP_ERR code. */
static int dlpi_table_schedule(dlp_pipe *p, const char *name, dlpi_branches *j,
                               const dlp_node_mix *d) {
    dlp_error e;
    int rc = dlpi_within(p, name, "mix.n_legs", d->n_legs, 0, DLPI_LEGS, "0..64");
    if (rc == DLP_OK && d->n_legs > 0 && d->legs == NULL)
        rc = dlpi_refuse(p, DLP_ERR_ARG, name, "mix.legs",
                         "legs is NULL, and n_legs is %" PRIu32 "; give as many legs", d->n_legs);
    for (uint32_t b = 0; rc == DLP_OK && b < j->n; b++) {
        bool has = d->weights == NULL || d->weights[b] > 0;
        for (uint32_t k = 0; d->legs != NULL && k < d->n_legs; k++)
            has |= d->legs[k].weights == NULL || d->legs[k].weights[b] > 0;
        if (!has)
            rc = dlpi_refuse(p, DLP_ERR_ARG, name, "mix.weights",
                             "weights[%" PRIu32 "] is 0%s; set 1 or more, or leave \"%s\" out", b,
                             d->n_legs > 0 ? " in all legs" : "", j->at[b].name);
    }
    if (rc != DLP_OK) return rc;
    if (dlpi_table_leg(j, 0, 0, d->weights, &e) != DLP_OK) {
        dlpi_copy_text(e.stage, sizeof e.stage, name);
        return dlpi_pipe_fail(p, &e);
    }
    j->period = j->legs[0].period;
    j->has_legs = d->legs != NULL;
    for (uint32_t k = 0; rc == DLP_OK && k < d->n_legs; k++)
        rc = dlpi_table_next_leg(p, name, j, d, k);
    return rc;
}

/* Begin a branch at its list or push row. Check the list of a later branch, and take its count.
   Returns 0 or a DLP_ERR code. */
static int dlpi_table_begin(dlpi_table *t, const dlp_node *node) {
    const dlp_node_list *l = &node->list;
    const bool lists = node->verb == DLP_LIST;
    const bool counts = (node[1].verb == DLP_FETCH && node[1].fetch.source != NULL) ||
                        (node[1].verb == DLP_LOAD && node[1].load.source != NULL);
    const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node, queue.deal), 0, 0, "0: the first row of the table says it"},
        {DLPI_AT(dlp_node, list.n_items), lists && !counts && l->mix == NULL, DLPI_MAX_ITEMS,
         "1..2^48, or 0 with a source"},
        {DLPI_AT(dlp_node, list.open_end), 0, 0, "0 in a branch"},
        {DLPI_AT(dlp_node, workers.num_workers), 0, 0, "0: the first list of the table says it"},
    };
    int rc;
    t->list = node;
    t->load = lists && node[1].verb == DLP_LOAD ? &node[1] : NULL;
    if (node == t->nodes) return DLP_OK;
    t->order = (dlp_sampler_desc){.order = DLP_ORDER_SEQUENTIAL};
    t->n_items = 0;
    rc = dlpi_check_bounds(t->p, node->name, node, bounds, lists ? 4 : 1);
    if (rc != DLP_OK || !lists) return rc;
    if (l->order != NULL && l->order->seed != 0)
        return dlpi_bad(t->p, node->name, "list.order.seed",
                        "0 in a later branch: its seed follows from the pipe's",
                        (int64_t)l->order->seed);
    return dlpi_list_order(t, node, &t->order);
}

/* Refuse workers of a branch that differ from those of a branch before it, in what the one stage of
   all branches has once. said: the name of the branch before. Returns 0 or a DLP_ERR code. */
static int dlpi_table_workers(const dlpi_table *t, const dlp_node *node,
                              const dlp_workers_desc *all, const dlp_workers_desc *w,
                              const char *said) {
    const char *field = NULL;
    if ((all->num_workers == DLP_NONE) != (w->num_workers == DLP_NONE)) field = "num_workers";
    if (all->affinity != w->affinity) field = "affinity";
    for (const dlpi_bound *b = dlpi_workers_bounds + DLPI_WORKERS_ALIKE; b-- > dlpi_workers_bounds;)
        if (dlpi_bound_got(b, all) != dlpi_bound_got(b, w)) field = b->field;
    if (field == NULL) return DLP_OK;
    return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                       "workers.%s differs from that of \"%s\", and branches share workers; set it "
                       "alike in both",
                       field, said);
}

/* True if the workers of branch b can serve another branch in the same seat. w: the desc of that
   branch's workers; m: its rows. Their workers then call the same callbacks as they begin and end.
   If both make requests, their source is the same, too. */
static bool dlpi_table_sits(const dlpi_branch *b, const dlpi_makers *m, const dlp_workers_desc *w) {
    const bool alike = dlpi_called_alike(&b->w, w);
    if (m->reads != (b->x.async.submit != NULL)) return false;
    if (!m->reads) return alike || !dlpi_workers_given(w);
    return alike && b->x.async.submit == m->f.async.submit && b->x.async.reap == m->f.async.reap &&
           b->x.input.user == m->input.user;
}

/* Give the next branch, which has the rows m, a seat: that of a branch before it, or a new one.
   workers: how many workers it asks for. */
static void dlpi_table_seat(dlpi_branches *j, const dlpi_makers *m, int32_t workers) {
    dlpi_branch *b = &j->at[j->n];
    uint32_t k = 0;
    dlpi_seating *seat;
    while (k < j->n && !dlpi_table_sits(&j->at[k], m, &b->w)) k++;
    b->seat = k < j->n ? j->at[k].seat : j->seats.n++;
    seat = &j->seats.at[b->seat];
    if (k == j->n)
        *seat = (dlpi_seating){.calls = &b->w, .by = &b->x.found, .bytes = m->input.worker_bytes};
    if (workers == DLP_NONE) return;
    seat->n_workers += (uint32_t)workers;
    if (m->reads) seat->in_flight += (uint32_t)workers * (uint32_t)dlpi_fetch_many(m->f.in_flight);
}

/* Note in *f what is known of an input's items: without a row that makes items, an input has as
   many as load gives, or one. */
static void dlpi_table_counts(const dlpi_table *t, const dlpi_makers *m, dlpi_found *f) {
    for (uint32_t i = 0; i < m->n; i++)
        if (dlpi_node_is(t, &m->rows[i], DLPI_NODE_MAKES | DLPI_NODE_LOADS) &&
            &m->rows[i] != m->load)
            return;
    f->pairs = m->load == NULL;
    if (m->part.min_items > 0) f->least_items = m->part.min_items;
}

/* Decide which branches of a zip leave a row out for an input that is left out: those with one item
   in each input. In other branches nobody knows how many items a failed input has, so
   DLP_ON_ERROR_DROP is refused. Sets t->n_items to the most inputs of a branch. Returns 0 or a
   DLP_ERR code. */
static int dlpi_table_pairs(dlpi_table *t, const dlpi_stage *st, dlpi_branches *j) {
    t->n_items = 0;
    for (uint32_t k = 0; k < j->n; k++) {
        const dlpi_table_row *row = j->at[k].x.drops;
        dlpi_found *f = &j->at[k].x.found;
        if (t->joins->verb == DLP_MIX) f->pairs = false;
        if (j->at[k].x.input.n_items > t->n_items) t->n_items = j->at[k].x.input.n_items;
        if (!dlpi_input_drops(st, &j->at[k].x)) continue;
        f->least_items = 1; /* some may be left out */
        if (t->joins->verb == DLP_ZIP && !f->pairs)
            return dlpi_bad(t->p, row != NULL ? row->name : j->at[k].name, "workers.on_error",
                            "DLP_ON_ERROR_RAISE: this branch of a zip has a load, filter or expand",
                            DLP_ON_ERROR_DROP);
    }
    return DLP_OK;
}

/* Return how many workers the branches up to number j->n have together. Branches that do not say
   their number have one each, as long as a core is left; at least one. */
static int32_t dlpi_table_hired(const dlp_pipe *p, const dlpi_branches *j) {
    int32_t said = 0, unsaid = 0, spare;
    for (uint32_t k = 0; k <= j->n; k++) {
        said += j->at[k].w.num_workers;
        unsaid += j->at[k].w.num_workers == 0;
    }
    spare = p->cpus > said ? p->cpus - said : said == 0;
    return said + (unsaid < spare ? unsaid : spare);
}

/* Add the workers of the next branch, which has the rows m, to the workers `all` of the branches
   before it. Returns 0 or a DLP_ERR code. */
static int dlpi_table_hires(const dlpi_table *t, const dlp_node *node, dlpi_branches *j,
                            dlp_workers_desc *all, const dlpi_makers *m) {
    dlpi_branch *b = &j->at[j->n];
    const int32_t more = m->workers.num_workers != 0 ? m->workers.num_workers : 1;
    const int32_t before = j->n > 0 ? all->num_workers : 0;
    uint32_t said = 0; /* the first branch that says what workers do */
    int rc = DLP_OK;
    while (said < j->n && !dlpi_workers_given(&j->at[said].w)) said++;
    b->w = m->workers;
    dlpi_table_seat(j, m, more);
    if (said == j->n) {
        *all = b->w;
        all->num_workers = before;
    } else if (dlpi_workers_given(&b->w)) {
        rc = dlpi_table_workers(t, node, all, &b->w, j->at[said].name);
    }
    if (rc != DLP_OK) return rc;
    if (more == DLP_NONE || all->num_workers == DLP_NONE) {
        all->num_workers = DLP_NONE;
        return DLP_OK;
    }
    all->num_workers = dlpi_table_hired(t->p, j);
    return dlpi_within(t->p, node->name, "workers.num_workers", all->num_workers, 1,
                       DLP_MAX_WORKERS, "1024 at most, in all branches");
}

/* Divide the requests of each seat among all workers, and let each seat call its own callbacks.
   joined: the seat of rows behind the zip or mix, which have cells of their own; NULL: there are
   none. */
static void dlpi_table_seats(dlpi_stage *st, dlpi_branches *j, const dlpi_found *joined) {
    const uint32_t n = st->w.num_workers > 0 ? (uint32_t)st->w.num_workers : 1;
    dlpi_seatings *s = &j->seats;
    st->in_flight = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        const dlpi_expand *x = (const dlpi_expand *)(const void *)s->at[k].by;
        if (s->at[k].row == NULL) s->at[k].row = x->row != NULL ? x->row : x->load;
        s->at[k].in_flight = (s->at[k].in_flight + n - 1) / n;
        st->in_flight += (int32_t)s->at[k].in_flight;
    }
    if (joined != NULL && (s->n > 1 || st->in_flight > 0))
        s->at[s->n++] = (dlpi_seating){.by = joined};
    dlpi_seats_call(s, &st->w);
}

/* Take the rows of a branch into the next branch of j; t->at is the row behind the branch's list.
   Returns 0 or a DLP_ERR code. */
static int dlpi_table_take(dlpi_table *t, dlpi_stage *st, dlpi_branches *j) {
    const dlp_node *node = &t->nodes[t->at];
    dlpi_makers m = {.rows = node, .n_levels = 1};
    dlpi_branch *b = &j->at[j->n];
    dlpi_stage one = *st;
    const dlp_source *source;
    int rc;
    if (t->list->verb != DLP_PUSH && node->verb != DLP_LOAD && node->verb != DLP_FETCH &&
        node->verb != DLP_EXPAND)
        return dlpi_node_bad(t, t->list, "has no load, fetch or expand behind it; add one");
    while (!dlpi_node_is(t, &node[m.n], DLPI_NODE_BEGINS) && &node[m.n] != t->joins) m.n++;
    if ((rc = dlpi_makers_rows(t, &m)) != DLP_OK) return rc;
    if ((rc = dlpi_makers_inputs(t, &m)) != DLP_OK) return rc;
    node = m.n > 0 ? dlpi_makers_name(&m) : t->list;
    if ((rc = dlpi_table_hires(t, node, j, &st->w, &m)) != DLP_OK) return rc;
    dlpi_timed_least(&st->timed, m.timed);
    if (m.input.n_items == 0) m.input.n_items = t->n_items;
    one.w = st->w;
    dlpi_workers_begin(&one);
    dlpi_copy_text(one.name, sizeof one.name, node->name);
    source = m.fetch != NULL ? m.fetch->fetch.source : NULL;
    rc = dlpi_table_branch(t, &one, b, &m);
    dlpi_seats_later(&j->seats, &b->x, b->seat,
                     m.workers.num_workers > 0 ? (uint32_t)m.workers.num_workers : 1);
    dlpi_table_counts(t, &m, &b->x.found);
    if (j->n > 0 && source != NULL && source->id != 0) /* the first list has it already */
        b->x.found.d.manifest_id = dlpi_absorb(b->x.found.d.manifest_id, source->id);
    if (m.input.warning != NULL) dlpi_warn(t->p, "%s", m.input.warning);
    j->n++;
    t->at += m.n;
    return rc;
}

/* Check that `from` of the zip or mix names the last row of each branch, and that each row may
   stand in a branch. Sets *n to the number of branches. Returns 0 or a DLP_ERR code. */
static int dlpi_table_from(const dlpi_table *t, uint32_t *n) {
    const dlp_node *join = t->joins;
    uint32_t k = 0, lists = 0;
    for (const dlp_node *node = t->nodes; node < join; node++) {
        const bool last = node + 1 == join || dlpi_node_is(t, &node[1], DLPI_NODE_BEGINS);
        const int rc = dlpi_node_place(t, node, DLPI_IN_BRANCH);
        if (rc != DLP_OK) return rc;
        lists += dlpi_node_is(t, node, DLPI_NODE_BEGINS);
        if (!last) continue;
        if (join->from == NULL || join->from[k] == NULL || strcmp(join->from[k], node->name) != 0)
            return dlpi_refuse(t->p, DLP_ERR_GRAPH, join->name, "from",
                               "from[%" PRIu32 "] must be \"%s\"; name the last row of each "
                               "branch, in the table's order, then NULL",
                               k, node->name);
        k++;
    }
    if (join->from == NULL || join->from[k] != NULL || lists < 2 || lists > DLPI_BRANCHES)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, join->name, "from",
                           "from must name the last row of each branch; there are %" PRIu32 " "
                           "lists and pushes above \"%s\", must be 2..16",
                           lists, join->name);
    *n = lists;
    return DLP_OK;
}

/* Write the fields of a joined row into to[], and their number into *n. A zip has the fields of all
   branches. The branches of a mix must have the same fields. Returns 0 or a DLP_ERR code. */
static int dlpi_table_fields(dlpi_table *t, dlpi_branches *j, dlp_field *to, uint32_t *n) {
    *n = 0;
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_branch *b = &j->at[k];
        if (t->joins->verb == DLP_MIX && k > 0) {
            if (!dlpi_fields_same(b->out, b->n_out, to, *n))
                return dlpi_refuse(t->p, DLP_ERR_ARG, b->name, "fields",
                                   "fields differ from those of \"%s\"; give the branches of a "
                                   "mix the same fields, or use a zip",
                                   j->at[0].name);
            continue;
        }
        if (*n + b->n_out > DLP_MAX_FIELDS)
            return dlpi_bad(t->p, b->name, "n_fields", "16 at most, in all branches of a zip",
                            *n + b->n_out);
        for (uint32_t i = 0; i < b->n_out; i++)
            for (uint32_t f = 0; f < *n; f++)
                if (strcmp(b->out[i].name, to[f].name) == 0)
                    return dlpi_bad_field(
                        t->p, b->name, i, to[f].name, "name",
                        "another branch of the zip has a field of this name; rename one");
        b->first_field = *n;
        memcpy(to + *n, b->out, b->n_out * sizeof *to);
        *n += b->n_out;
    }
    return DLP_OK;
}

/* Add the fetch stage that copies items of the branches into rows. w: the workers of the branches.
   Returns a stage number or a DLP_ERR code. */
static int dlpi_table_copies(dlpi_table *t, dlpi_branches *j, const dlp_workers_desc *w) {
    dlp_field fields[DLP_MAX_FIELDS];
    dlp_dataset ds = {.n_items = t->n_items,
                      .fields = fields,
                      .writes_all_bytes = 1,
                      .worker_bytes = dlpi_seats_private(&j->seats),
                      .fetch = dlpi_branches_copy,
                      .user = j};
    dlp_source f = {.dataset = &ds};
    const int rc = dlpi_table_fields(t, j, fields, &ds.n_fields);
    if (rc != DLP_OK) return rc;
    t->p->node = "copy";
    return dlpi_copies_add(t, w, &ds, &f);
}

/* Add the stage that makes items of joined rows, as the rows behind the zip or mix say, and the
   stage that copies the items. Returns a stage number or a DLP_ERR code. */
static int dlpi_table_behind(dlpi_table *t, dlpi_stage *st, dlpi_joined *x,
                             const dlp_workers_desc *w) {
    const dlpi_behind b = dlpi_behind_rows(t);
    dlpi_makers m = {.joins = t->joins, .rows = b.rows, .n = b.makers, .n_levels = 1};
    dlpi_branches *j = &x->j;
    int rc;
    if ((rc = dlpi_table_fields(t, j, m.fields[0], &m.n_fields[0])) != DLP_OK) return rc;
    t->at = (uint32_t)(b.rows - t->nodes) + b.makers - 1;
    if ((rc = dlpi_makers_rows(t, &m)) == DLP_OK) {
        dlpi_timed_least(&m.timed, m.workers.deadline_ms); /* there, none of them names workers */
        dlpi_timed_least(&st->timed, m.timed);
        m.workers = st->w;
        m.input.fields = m.fields[0];
        m.input.n_fields = m.n_fields[0];
        m.f = (dlp_source){.dataset = &m.input};
        rc = dlpi_makers_stage(t, &m, st);
    }
    if (rc == DLP_OK) rc = dlpi_makers_levels(t, &m, st);
    if (rc != DLP_OK) {
        st->ops = dlpi_joined_begins; /* which frees the branches */
        return rc;
    }
    dlpi_joined_wrap(st, x);
    if ((rc = dlpi_added(t->p, st, DLP_OK)) < 0) return rc;
    t->at = (uint32_t)(b.rows - t->nodes) + b.n;
    t->unknown = true;
    m.workers = *w;
    m.input.worker_bytes = dlpi_seats_private(&j->seats);
    m.cache = b.rows > t->joins + 1 ? t->joins + 1 : NULL;
    return dlpi_makers_copies(t, &m);
}

/* Add the stages of all rows up to a zip or mix, and of makers behind it. Returns a stage number or
   a DLP_ERR code. */
static int dlpi_node_joins_add(dlpi_table *t, const dlp_node *node) {
    const bool behind = dlpi_behind_rows(t).n > 0;
    uint32_t lists = 0, many;
    dlp_workers_desc w;
    dlpi_branches *j;
    dlpi_joined *x;
    dlpi_stage *st;
    int rc = dlpi_table_from(t, &lists);
    if (rc == DLP_OK) rc = dlpi_behind_check(t);
    if (rc != DLP_OK) return rc;
    t->p->node = t->nodes[0].name;
    t->list = t->nodes;
    rc = (t->list->verb == DLP_PUSH ? dlpi_node_push_begin : dlpi_node_list_add)(t, t->nodes);
    for (const dlp_node *push = t->nodes; push < node && rc >= 0; push++)
        if (push->verb == DLP_PUSH && (rc = dlpi_node_push_check(t, push)) == DLP_OK)
            rc = dlpi_makers_push(t, push);
    if (rc < 0) return rc;
    t->p->node = node->name;
    many = lists > DLPI_FEW_BRANCHES;
    st = dlpi_add(t->p, behind ? &dlpi_joined_begins[many] : &dlpi_branches_ops[many], "branches",
                  NULL);
    if (st == NULL) return t->p->err.code;
    x = behind ? (dlpi_joined *)(void *)((uint8_t *)st->self + DLPI_JOINED_AT) : NULL;
    j = behind ? &x->j : st->self;
    j->most = dlpi_branches_room(lists);
    t->at = 1;
    do {
        rc = dlpi_table_begin(t, &t->nodes[j->n > 0 ? t->at++ : 0]);
        if (rc != DLP_OK) return rc;
        if ((rc = dlpi_table_take(t, st, j)) != DLP_OK) return rc;
    } while (&t->nodes[t->at] != node);
    if ((rc = dlpi_table_pairs(t, st, j)) != DLP_OK) return rc;
    w = st->w;
    st->w.dispatch = 0;
    dlpi_table_seats(st, j, behind ? st->self : NULL);
    dlpi_workers_begin(st);
    st->w.name = st->name;
    j->found.d = j->at[0].x.found.d;
    j->found.rule = &dlpi_branches_rule;
    j->found.least_items = 1;
    if (node->verb == DLP_MIX) rc = dlpi_table_schedule(t->p, node->name, j, &node->mix);
    if (rc == DLP_OK && behind) return dlpi_table_behind(t, st, x, &w);
    if (rc == DLP_OK) rc = dlpi_found_take_run(t->p, st, j->found.d.queue_size, 0);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_added(t->p, st, DLP_OK)) < 0) return rc;
    t->at++;
    t->unknown = true;
    return dlpi_table_copies(t, j, &w);
}
