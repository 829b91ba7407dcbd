#pragma once
/* tests: system/core/pipe_badinput, system/inputs/neighbours */
#include "inputs/dataset.h"
#include "inputs/add.h"
#include "deliver/state.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-build      CHECKS, LAYOUT, PLAN, START, CLOSE */

/* Check the pointers of an open call. made: where the call writes its second result, which errors
   call `what`; `out` again if there is none. Returns DLP_OK, or DLP_ERR_ARG with *err filled for
   the first pointer that is NULL. err may be NULL. */
static int dlpi_open_args(const void *out, const void *made, const char *what, const void *desc,
                          dlp_error *err) {
    const char *name = out == NULL ? "out" : made == NULL ? what : desc == NULL ? "desc" : NULL;
    return name == NULL ? DLP_OK : dlpi_error_set(err, DLP_ERR_ARG, name, "%s is NULL", name);
}

/* Check that the stages stand in an order that is allowed, and set the pipe's pointers to stages
   and its roles. Plan and start each call this. Returns DLP_OK, or DLP_ERR_GRAPH, which is then the
   pipe's error. */
static int dlpi_check_graph(dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        const int rank = st->ops->rank, before = i > 0 ? p->stages[i - 1].ops->rank : 0;
        st->held = 0;
        if (i > 0 && (rank < before || (rank == before && !st->ops->many)))
            return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                               rank < before
                                   ? "node \"%s\" must stand before node \"%s\"; move its row up"
                                   : "node \"%s\" does what \"%s\" does; leave one of the two out",
                               st->name, p->stages[i - 1].name);
        if (st->ops->at != 0) memcpy((uint8_t *)p + st->ops->at, &st, sizeof(void *));
        dlpi_roles_take(p, st);
    }
    return DLP_OK;
}

/* Check that rank is below world_size, and that world_size divides the rows of a batch, unless
   allow_uneven is set. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_check_ranks(dlp_pipe *p, uint64_t batch_size) {
    const uint32_t world = p->d.world_size;
    int rc = dlpi_within(p, "", "rank", p->d.rank, 0, world ? (int64_t)world - 1 : 0,
                         "0..world_size - 1");
    if (world != 0) p->ranks_given = 1;
    if (rc != DLP_OK || world == 0 || p->d.allow_uneven || batch_size % world == 0) return rc;
    return dlpi_refuse(p, DLP_ERR_ARG, "", "world_size",
                       "batch_size %" PRIu64 " can't be divided by world_size %" PRIu32
                       "; set allow_uneven for ranks of different counts",
                       batch_size, world);
}

/* Set how many ranks share a batch and how many rows this rank gets, and let the source count
   samples and batches of an epoch. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_check_sizes(dlp_pipe *p) {
    const dlp_pipe_desc *d = &p->d;
    int rc = dlpi_within(p, "", "allow_uneven", d->allow_uneven, 0, 1, "0 or 1");
    if (rc != DLP_OK) return rc;
    p->world = dlpi_roles_world(p);
    p->rank = p->world > 1 ? d->rank : 0;
    p->batch_rows = (uint32_t)((p->global_batch + p->world - 1) / p->world);
    rc = dlpi_check_ranks(p, p->world == d->world_size ? p->global_batch : d->world_size);
    return rc == DLP_OK ? p->source->sizes(p) : rc;
}

/* ---- a saved state ---- */

/* Fill *e: a number of the state (was) differs from that of this pipe (is). Returns
   DLP_ERR_RESUME. */
static int dlpi_state_differs(dlp_error *e, const char *field, uint64_t was, uint64_t is) {
    return dlpi_error_set(e, DLP_ERR_RESUME, field,
                          "the state was saved with %s %" PRIu64 ", this pipe has %" PRIu64, field,
                          was, is);
}

/* Fill *e: one of the values with these names differs, whose hash the state has. The error's field
   is as many of the names as fit, each whole. Returns DLP_ERR_RESUME. */
static int dlpi_state_unlike(dlp_error *e, const char *names) {
    char field[sizeof((dlp_error *)0)->field];
    dlpi_copy_text(field, sizeof field, names);
    if (strlen(names) >= sizeof field) {
        char *last = strrchr(field, ',');
        if (last != NULL) *last = 0;
    }
    return dlpi_error_set(e, DLP_ERR_RESUME, field,
                          "the state is of a pipe with other values of %s; give the same, or do "
                          "not resume",
                          names);
}

/* Return the name of a field of the state that no pipe saves in this way, or NULL. A name with a
   dot is one of the table: a pipe whose table has another value saves it. The state has this pipe's
   order. A resume from such a state would leave batches out, or give them twice, and
   nobody would be told. */
static const char *dlpi_state_never_saved(const dlp_pipe *p, const dlpi_state *s) {
    for (uint32_t i = s->sampler_bytes; i < DLP_SAMPLER_STATE_BYTES; i++)
        if (s->sampler[i] != 0) return "sampler";
    if (s->end_due && (s->epoch == 0 || s->batch != 0)) return "epoch";
    return p->source->never_saved(p, s);
}

/* Check that the data of a state (was) are those of this pipe (is), as far as both are known.
   Returns DLP_OK, or DLP_ERR_RESUME with *e filled. */
static int dlpi_state_data(const dlp_pipe *p, const dlpi_state *was, const dlpi_state *is,
                           dlp_error *e) {
    static const char *const field[] = {"source.names", "source.order", "source.sizes",
                                        "source.content"};
    static const char *const words[] = {
        "other names than when the state was saved; if they were renamed, set moved = 1",
        "another order than when the state was saved; give the list as it was",
        "other sizes than when the state was saved; give the files of then",
        "other bytes than when the state was saved; give the files of then"};
    for (int i = p->datasets.identity.moved ? DLPI_SIZES : 0; i < DLPI_HASHES; i++)
        if (was->identity[i] != 0 && is->identity[i] != 0 && was->identity[i] != is->identity[i])
            return dlpi_error_set(e, DLP_ERR_RESUME, field[i], "%s: the files have %s", field[i],
                                  words[i]);
    return DLP_OK;
}

/* Warn once if a state that the pipe goes on from cannot be compared with the pipe's data. */
static void dlpi_state_unknown(dlp_pipe *p, const dlpi_state *s) {
    static const uint32_t none[DLPI_HASHES];
    uint32_t mine[DLPI_HASHES];
    dlpi_identity_short(&p->datasets.identity, mine);
    const bool has = memcmp(s->identity, none, sizeof none) != 0;
    if (p->warnings.data_said || has == (memcmp(mine, none, sizeof none) != 0)) return;
    p->warnings.data_said = true;
    dlpi_warn(p,
              has ? "resume: no source of this pipe says what its files are, and the state does; "
                    "check that they are the same files"
                  : "resume: the state does not say from which files it was saved; check that they "
                    "are the same files, in the same order");
}

/* Copy a saved state to *s, and check that it is whole and has this pipe's order. field: what
   errors call the state. Returns DLP_OK, or with *e filled DLP_ERR_CORRUPT if the state is damaged,
   or DLP_ERR_RESUME if it is another order's. e may be NULL. */
static int dlpi_state_check_all(const dlp_pipe *p, const dlp_state *state, dlpi_state *s,
                                const char *field, dlp_error *e) {
    dlpi_state mine;
    const char *wrong;
    int rc;
    const size_t n_words = p->source->n_words;
    dlpi_state_config(p, &mine);
    if (!dlpi_state_read(state, s) || !dlpi_gaps_canonical(s) || s->epoch >= DLPI_MAX_EPOCH)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "the state is damaged, or another version of dlpipe saved it");
    if (s->n_items != mine.n_items)
        return dlpi_state_differs(e, "n_items", s->n_items, mine.n_items);
    if (s->order != mine.order) return dlpi_state_differs(e, "order", s->order, mine.order);
    if (s->seed != mine.seed) return dlpi_state_differs(e, "seed", s->seed, mine.seed);
    if (s->global_batch != mine.global_batch)
        return dlpi_state_differs(e, "batch_size", s->global_batch, mine.global_batch);
    if (s->last != mine.last) return dlpi_state_differs(e, "last", s->last, mine.last);
    if ((rc = dlpi_state_data(p, s, &mine, e)) != DLP_OK) return rc;
    for (size_t i = 0; i < n_words; i++) {
        uint64_t was, is;
        memcpy(&was, s->sampler + i * 8, 8);
        memcpy(&is, mine.sampler + i * 8, 8);
        if (was != is) return dlpi_state_differs(e, p->source->words[i], was, is);
    }
    if (s->params != mine.params)
        return dlpi_state_unlike(e, p->lender->params ? p->lender->params : p->source->params);
    if (dlpi_gaps_strange(p, s)) return dlpi_state_differs(e, "unordered", 1, 0);
    wrong = dlpi_state_never_saved(p, s);
    if (wrong != NULL && strchr(wrong, '.') != NULL) return dlpi_state_unlike(e, wrong);
    if (wrong != NULL)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "the state is damaged: no pipe saves such a %s", wrong);
    return DLP_OK;
}
