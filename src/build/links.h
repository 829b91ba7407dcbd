#pragma once
/* tests: system/build/pipe_plan, system/source/push_makers, system/shm/monitor */
#include "fail/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-links      THE TABLE OF LINKS
   Which queues join the stages of a pipe. The plan makes the table. Start writes the table behind
   the record of the pipe, where statistics and monitors read it. A stage with workers takes from
   the stage before it. If its workers claim, the link is a claim link. If one worker takes the
   batches in their order, it is a gather link, and an spsc link if one worker gives them, too. The
   bytes of a link are its words of the region: those by which the stage before says what is done
   (>>impl-gather), and those by which the next one claims. The lanes of a push are no memory of the
   pipe. The reader of the push describes them. */

/* Describe one end of a link: write the stage's id to *id and its name to `name`. st NULL: the
   consumer, with id -1. Returns how many threads or processes work at this end. */
static int32_t dlpi_link_end(const dlpi_stage *st, int32_t *id, char *name) {
    *id = st != NULL ? st->id : -1;
    dlpi_copy_text(name, sizeof((dlp_link *)0)->from, st != NULL ? st->name : "consumer");
    return st == NULL || st->work < 0 ? 1 : st->n_workers;
}

/* Append an spsc link to out[*n], and count it in *n. from, to: its ends; NULL is the consumer. The
   link has `records` places of `each` bytes. Returns the link, so that the caller can change it. If
   the table is full, the new link replaces the last one. */
static dlp_link *dlpi_link_add(dlp_link *out, uint32_t *n, const dlpi_stage *from,
                               const dlpi_stage *to, uint64_t records, uint64_t each) {
    dlp_link *l = &out[*n < DLP_MAX_LINKS ? (*n)++ : DLP_MAX_LINKS - 1];
    memset(l, 0, sizeof *l);
    l->writers = dlpi_link_end(from, &l->from_stage, l->from);
    l->readers = dlpi_link_end(to, &l->to_stage, l->to);
    l->kind = DLP_LINK_SPSC;
    l->capacity = records;
    l->bytes = dlpi_times(each, records);
    l->rule = to == NULL ? 0 : to->w.dispatch;
    return l;
}

/* Return the count of the area that a stage has for its link: cells of inputs, buffers of a sink,
   or batches that an out may hold. */
static uint64_t dlpi_link_own(const dlp_pipe *p, const dlpi_stage *st) {
    return p->areas[DLPI_OWN(st->id, DLPI_OWN_LINK)].count;
}

/* Append the links from producers to the stages that read pushed items. */
static void dlpi_links_lanes(const dlp_pipe *p, dlp_link *out, uint32_t *n) {
    for (const dlpi_stage *st = p->stages; st < p->stages + p->n_stages; st++) {
        dlp_link *l;
        if (st->dataset == NULL || !dlpi_reader_wired(st->dataset)) continue;
        if (st->item != st->dataset->fetch) continue; /* it copies what is made of the items */
        l = dlpi_link_add(out, n, NULL, st, 0, 0);
        dlpi_copy_text(l->from, sizeof l->from, "producers");
        l->from_stage = -2;
        st->dataset->reader->lanes(st->dataset->user, l);
    }
}

/* Append the links into the stages that work on cells of their own, such as inputs. */
static void dlpi_links_cells(const dlp_pipe *p, dlp_link *out, uint32_t *n) {
    const dlpi_stage *from = p->sampler;
    for (int i = p->n_work; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        const bool reads = st->ops->in_order, several = st->ops->cells != NULL;
        uint64_t at = 0;
        bool more;
        do {
            dlp_link *l = dlpi_link_add(out, n, reads || several ? p->sampler : from, st,
                                        dlpi_link_own(p, st), 0);
            l->kind = reads ? DLP_LINK_SPSC : DLP_LINK_CLAIM;
            more = several && st->ops->cells(st, at, l);
            l->bytes = dlpi_times(l->capacity, sizeof(dlpi_claim_word));
            at += l->capacity;
        } while (more);
        if (reads) from = st;
    }
}

/* Append the links into the stages that work on slots, and the link out of the last of them, to the
   consumer. */
static void dlpi_links_chain(const dlp_pipe *p, dlp_link *out, uint32_t *n) {
    const dlpi_stage *from = p->sampler;
    for (int k = 0; k <= p->n_work; k++) {
        const dlpi_stage *to = k < p->n_work ? p->work[k] : NULL;
        dlp_link *l = dlpi_link_add(out, n, from, to, p->prefetch, 0);
        uint64_t words = 1; /* the head; or by which a stage says what is done, */
        if (k > 0) words += p->words_max + (p->words_max > 1);
        if (to != NULL && !to->ops->in_order) {
            l->kind = DLP_LINK_CLAIM;
            words += 1 + (k < p->n_item_work ? p->units_max : 1u); /* and by which one claims */
        } else if (!from->ops->in_order) {
            l->kind = DLP_LINK_GATHER;
        }
        l->bytes = dlpi_times(words * 8, p->n_slots);
        from = to;
    }
}

/* Append a link to each stage that gives batches to others than the consumer. Such a stage has no
   workers, and an area for its link. buffers: how many the sink has; with a sink, these links begin
   at the stage before it. */
static void dlpi_links_shared(const dlp_pipe *p, uint64_t buffers, dlp_link *out, uint32_t *n) {
    const dlpi_stage *from = p->work[p->n_work - 1 - (p->n_work > 1 && buffers > 0)];
    for (const dlpi_stage *st = p->stages; st < p->stages + p->n_stages; st++) {
        dlp_link *l;
        if (st->work >= 0 || dlpi_link_own(p, st) == 0) continue;
        l = dlpi_link_add(out, n, from, st, p->n_slots, sizeof(uint64_t));
        if (!from->ops->in_order) l->kind = DLP_LINK_GATHER;
        l->capacity = dlpi_link_own(p, st);
    }
}

/* Write the table of links to out[DLP_MAX_LINKS], without depths. Returns how many links it has. */
static uint32_t dlpi_links(const dlp_pipe *p, dlp_link *out) {
    const dlpi_stage *last = p->work[p->n_work - 1];
    const uint64_t buffers = dlpi_link_own(p, last);
    uint32_t n = 0;
    dlpi_links_lanes(p, out, &n);
    dlpi_link_add(out, &n, NULL, p->sampler, p->n_slots, sizeof(uint32_t));
    dlpi_links_cells(p, out, &n);
    dlpi_links_chain(p, out, &n);
    dlpi_links_shared(p, buffers, out, &n);
    if (buffers > 0) /* its buffers come back */
        dlpi_link_add(out, &n, NULL, last, buffers, sizeof(uint32_t));
    return n;
}
