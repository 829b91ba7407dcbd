/* needs: stats */
#pragma once
/* tests: system/report/pictures, system/examples/dlpipe_top */
#include "pipe/pipe.h"
#include "queue/credit.h"
#include "build/region_map.h"
/* ---- the user's own counters: rings of samples, which the consumer alone writes ----
   W3   counter.n   dlpi_credit_publish_quiet, after the sample   dlpi_credit_look, before and after
   a copy: what the writer may have overwritten meanwhile is left out of it. */

static uint64_t dlpi_counter_room(const dlp_pipe *p) {
    return p->areas[DLPI_REC_TRACE].stride / (2 * sizeof(uint64_t));
}

/* Append a sample to a counter's ring. A sample with the last value is left out. Only the consumer
   may call this. */
static void dlpi_counter_add(dlp_pipe *p, dlpi_counter *c, uint64_t at_ns, double value) {
    const uint64_t room = dlpi_counter_room(p), n = c->n;
    uint64_t bits, *to = &c->words[2 * (n % room)];
    memcpy(&bits, &value, sizeof bits);
    if (n > 0 && c->words[2 * ((n - 1) % room) + 1] == bits) return;
    DLPI_STORE_RLX(&to[0], at_ns);            /* W3: ordered by n */
    DLPI_STORE_RLX(&to[1], bits);             /* W3 */
    dlpi_credit_publish_quiet(&c->n, n + 1u); /* W3 -> W3 */
}

DLPDEF int dlp_pipe_count(dlp_pipe *p, uint32_t counter, double value) {
    uint64_t at_ns, bits;
    dlpi_counter_rec *r; /* of the region, for observers of other processes */
    if (p == NULL || counter >= p->d.n_counters || !(value >= 0) || value > 1e300)
        return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    at_ns = dlpi_now_ns() - p->ctl->started_ns;
    dlpi_counter_add(p, &p->counters[counter], at_ns, value);
    r = &p->counter_now[counter];
    memcpy(&bits, &value, sizeof bits);
    DLPI_STORE_RLX(&r->value, bits); /* statistics, here and below */
    DLPI_STORE_RLX(&r->at_ns, at_ns);
    dlpi_bump(&r->noted, 1);
    return DLP_OK;
}
