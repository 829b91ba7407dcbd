#pragma once
/* tests: system/build/pipe_plan, system/shm/monitor */
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-links      THE TABLE OF LINKS
   Which queues join the stages of a pipe, made out of what observers see, so that plan, statistics
   and monitors have one table. A stage with workers takes from the stage before it. If its workers
   claim, the link is a claim link. If one worker takes the batches in their order, it is a gather
   link, and an spsc link if one worker gives them, too. The bytes of a link are its words of the
   region: those by which the stage before says what is done (>>impl-gather), and those by which the
   next one claims. */

/* Name an end of a link. Returns how many work there. */
static int32_t dlpi_link_end(const dlpi_seen *s, int32_t stage, int32_t *id, char *name) {
    const dlpi_stage_rec *r = stage < 0 ? NULL : &s->stages[stage].r;
    *id = stage;
    dlpi_copy_text(name, sizeof((dlp_link *)0)->from, r != NULL ? r->name : "consumer");
    return r != NULL && r->work >= 0 ? r->n_workers : 1;
}

/* Add a link of so many records, each of so many bytes. */
static dlp_link *dlpi_link_add(const dlpi_seen *s, dlp_link *out, uint32_t *n, int32_t from,
                               int32_t to, uint64_t records, uint64_t each) {
    dlp_link *l = &out[*n < DLP_MAX_LINKS ? (*n)++ : DLP_MAX_LINKS - 1];
    memset(l, 0, sizeof *l);
    l->writers = dlpi_link_end(s, from, &l->from_stage, l->from);
    l->readers = dlpi_link_end(s, to, &l->to_stage, l->to);
    l->kind = DLP_LINK_SPSC;
    l->capacity = records;
    l->bytes = dlpi_times(each, records);
    l->rule = to < 0 ? 0 : s->stages[to].r.rule;
    return l;
}

/* stage -1: a region may have no sampler that is known here. */
static bool dlpi_link_in_order(const dlpi_seen *s, int32_t stage) {
    return stage >= 0 && s->stages[stage].ops != NULL && s->stages[stage].ops->in_order;
}

/* Out of the last stage before the sink, to each that takes batches beside the consumer. */
static void dlpi_links_shared(const dlpi_seen *s, dlp_link *out, uint32_t *n) {
    const int32_t from = s->work[s->n_work - 1 - (s->n_work > 1 && dlpi_seen_buffers(s) > 0)];
    for (uint32_t i = 0; i < s->n_stages; i++) {
        dlp_link *l;
        if (s->stages[i].ops == NULL || s->stages[i].ops->sharing == NULL) continue;
        l = dlpi_link_add(s, out, n, from, (int32_t)i, s->n_slots, sizeof(uint64_t));
        if (!dlpi_link_in_order(s, from)) l->kind = DLP_LINK_GATHER;
        l->capacity = s->areas[DLPI_OWN(i, DLPI_OWN_LINK)].count;
    }
}

/* Into the stages that work on slots, and out of the last of them. */
static void dlpi_links_chain(const dlpi_seen *s, int32_t sampler, dlp_link *out, uint32_t *n) {
    for (uint32_t k = 0; k <= s->n_work; k++) {
        int32_t from = k > 0 ? s->work[k - 1] : sampler, to = k < s->n_work ? s->work[k] : -1;
        dlp_link *l = dlpi_link_add(s, out, n, from, to, s->prefetch, 0);
        uint64_t words = 1; /* of a slot: the head, or ready and what else says what is done */
        if (k > 0) words += (uint64_t)s->words_max + (s->words_max > 1);
        if (to >= 0 && !dlpi_link_in_order(s, to)) {
            l->kind = DLP_LINK_CLAIM;
            words += UINT64_C(1) + (k < s->n_item_work ? s->units_max : 1u);
        } else if (!dlpi_link_in_order(s, from)) {
            l->kind = DLP_LINK_GATHER;
        }
        l->bytes = dlpi_times(8 * words, s->n_slots);
    }
}

/* The table, without depths. out: [DLP_MAX_LINKS]. Returns how many. */
static uint32_t dlpi_links(const dlpi_seen *s, dlp_link *out) {
    int32_t sampler = -1;
    uint32_t n = 0;
    dlp_link *l;
    for (uint32_t i = 0; i < s->n_stages; i++)
        if (s->stages[i].ops && s->stages[i].ops->begins) sampler = (int32_t)i;
    dlpi_link_add(s, out, &n, -1, sampler, s->n_slots, sizeof(uint32_t));
    for (int32_t i = 0, from = sampler; i < (int32_t)s->n_stages; i++) { /* of cells of their own */
        if (s->stages[i].r.work < (int32_t)s->n_work) continue;
        l = dlpi_link_add(s, out, &n, from, i, s->areas[DLPI_OWN(i, DLPI_OWN_LINK)].count,
                          sizeof(dlpi_claim_word));
        l->kind = dlpi_link_in_order(s, i) ? DLP_LINK_SPSC : DLP_LINK_CLAIM;
        if (l->kind == DLP_LINK_SPSC) from = i;
    }
    dlpi_links_chain(s, sampler, out, &n);
    dlpi_links_shared(s, out, &n);
    if (dlpi_seen_buffers(s) > 0) /* its buffers come back */
        dlpi_link_add(s, out, &n, -1, s->final, dlpi_seen_buffers(s), sizeof(uint32_t));
    return n;
}

/* And how many records are in each. open: batches that have not left the first stage. */
static void dlpi_links_depth(const dlpi_seen *s, uint64_t open, dlp_stats *out) {
    uint64_t used = (uint64_t)out->in_flight + out->held;
    out->n_links = dlpi_links(s, out->links);
    for (uint32_t i = 0; i < out->n_links; i++) {
        dlp_link *l = &out->links[i];
        if (l->to_stage < 0)
            l->depth = out->ready;
        else if (l->from_stage < 0)
            l->depth = i > 0 ? s->sink_free : out->slots > used ? out->slots - used : 0;
        else if (s->stages[l->to_stage].r.work >= (int32_t)s->n_work)
            l->depth = out->stages[l->to_stage].loading;
        else
            l->depth = l->to_stage == s->work[0] ? open : out->stages[l->to_stage].ready;
    }
}
