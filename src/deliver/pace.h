#pragma once
/* tests: unit/core/awake, system/report/pipe_stats */
#include "work/tune.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pace       THE CONSUMER'S PACE, AND ITS CLOCK */

/* True if this call of the consumer need not read the clock. The call is counted. The next reading
   of the clock stands for this call, too. */
static inline bool dlpi_pace_skips(dlp_pipe *p) {
    if (p->pace.calls_untimed + 1 >= p->pace.call_clock_every) return false;
    p->pace.calls_untimed++;
    return true;
}

/* Book the time since the last return as a step of the consumer. now: the clock. Set how often
   calls read the clock from here on: once a call, or more rarely if calls are close together. If
   everything is inline, a call not timed takes the time of the last timed call, and all together no
   more than the time that passed. A call that takes long to make its batch is always timed. */
static void dlpi_consumer_step(dlp_pipe *p, uint64_t now) {
    dlpi_worker *w = p->consumer;
    uint64_t from = p->pace.last_return_ns, each, waited;
    uint32_t calls = p->pace.calls_untimed + 1, *step;
    p->pace.calls_untimed = 0;
    p->pace.calls_timed = p->wait.threads == 1 ? calls : 1;
    p->pace.untimed_ns = from != 0 && now > from ? now - from : 0;
    p->pace.last_return_ns = now;
    if (from == 0 || now <= from) return;
    each = (now - from) / calls;
    waited = p->pace.inline_ns * (calls - 1);
    if (waited > now - from) waited = now - from;
    dlpi_bump(&p->ctl->wait_ns, waited);
    step = &w->block->hist[dlpi_hist_bucket((now - from - waited) / calls)];
    DLPI_STORE_RLX(step, *step + calls);
    dlpi_stretch(w, &p->ctl->step_ns, now - from - waited, DLP_TRACE_STEP, from, now, p->base - 1,
                 p->epoch_now, calls);
    if (p->pace.inline_ns / 4 > each) each = p->pace.inline_ns / 4; /* it reads the clock, too */
    p->pace.call_clock_every = each >= 2000 ? 1 : each >= 500 ? 4 : 32;
    /* How many credits to gather before they are fed. The tail is read by every worker, so each
       publication costs a trip of its line between cores; a consumer that takes batches faster than
       that feeds several at once. At most a quarter of the credits wait, and none while the
       consumer waits. */
    if (p->reach > 1) /* needs: parts */
        p->pace.burst = p->pace.call_clock_every >= 32 && p->prefetch >= 8 ? p->prefetch / 4 : 1;
    if (p->wait.threads > 1) dlpi_awake_call(p);
}

/* Book a call of next that found a batch ready, if the call is timed, and let the tuner look. */
static void dlpi_pace_call(dlp_pipe *p) {
    if (dlpi_pace_skips(p)) return;
    dlpi_consumer_step(p, dlpi_now_ns());
    dlpi_tune(p, p->pace.last_return_ns); /* needs: tune */
}

/* Begin a wait of the consumer: book its step before. may: false if the call must be timed. Returns
   the clock, or 0 if the call need not read it (pace.clock_off). This is so only if the consumer
   does all the work: the call works instead of waiting. */
static inline uint64_t dlpi_consumer_waits(dlp_pipe *p, bool may) {
    p->pace.clock_off = may && p->wait.threads == 1 && dlpi_pace_skips(p);
    if (p->pace.clock_off) return 0;
    p->pace.wait_from = dlpi_now_ns();
    dlpi_consumer_step(p, p->pace.wait_from);
    return p->pace.wait_from;
}

/* Book that the consumer waited, or called set_epoch meanwhile (kind), in this epoch. */
static void dlpi_consumer_booked(dlp_pipe *p, int kind, uint64_t from, uint64_t to,
                                 uint64_t epoch) {
    if (to <= from) return;
    dlpi_stretch(p->consumer, &p->ctl->wait_ns, to - from, kind, from, to, p->base, epoch, 0);
}

/* Book a wait since `from` in which set_epoch was called: the wait before that call, and the call.
   Returns from when on the rest of the wait is still to be booked. */
static uint64_t dlpi_consumer_began(dlp_pipe *p, uint64_t from) {
    uint64_t set = p->pace.set_ns, began = p->pace.began_ns;
    p->pace.began_ns = 0;
    if (set < from) return from; /* told as a step */
    dlpi_consumer_booked(p, DLP_TRACE_WAIT, from, set, p->epoch_now);
    dlpi_consumer_booked(p, DLP_TRACE_EPOCH, set, began, p->epoch_begun & DLPI_EPOCH_MASK);
    return began;
}

/* Book the wait of the consumer since `from`, which is over, and let the tuner look. came: true if
   it ended with a batch. */
static void dlpi_consumer_waited(dlp_pipe *p, uint64_t from, bool came) {
    bool for_source = p->pace.source_waited;
    uint64_t to;
    dlpi_inline_rest(p);
    p->pace.last_return_ns = to = dlpi_now_ns();
    p->pace.wait_from = 0;
    p->pace.source_waited = false;
    if (p->wait.threads == 1) p->pace.inline_ns = to - from;
    if (p->pace.border_ns != 0 && came) { /* the first batch of an epoch that had to begin */
        dlpi_bump(&p->ctl->borders, 1);
        dlpi_bump(&p->ctl->border_ns, to - p->pace.border_ns);
        p->pace.border_ns = 0;
    }
    if (p->pace.began_ns != 0) from = dlpi_consumer_began(p, from);
    if (for_source && to > from) dlpi_bump(&p->ctl->source_wait_ns, to - from);
    dlpi_consumer_booked(p, DLP_TRACE_WAIT, from, to, p->epoch_now);
    dlpi_tune(p, to); /* needs: tune */
}
