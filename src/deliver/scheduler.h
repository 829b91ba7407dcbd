#pragma once
/* tests: model/model_slots, system/core/pipe_close, system/core/pipe_wake */
#include "slot/feed.h"
#include "work/workers.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-scheduler  WHO SCHEDULES: THE CONSUMER, OR A THREAD OF ITS OWN
   What is to be scheduled next stands in >>impl-feed. Here: who does it, and how it learns that it
   may. A thread sleeps, and is woken; the consumer schedules when it comes by. */

/* True if dlpi_schedule would do no more than look ahead. The consumer asks at each step of a
   batch, and in most of them there is no credit. */
static inline bool dlpi_schedule_rests(const dlp_pipe *p, uint64_t burst) {
    const dlpi_scheduler *f = &p->schedule;
    uint64_t out = f->published - dlpi_credit_seen(&p->ctl->delivered); /* V1: our own */
    return !f->ended && out + burst > p->prefetch &&
           dlpi_generation_seek(DLPI_LOAD_RLX(&p->ctl->cancel)) == f->seek_no; /* N1: our own */
}

/* Schedule the batches that may be under way, if the consumer is the scheduler and room for `burst`
   of them is there. Does nothing if a thread schedules. */
static inline void dlpi_schedule_inline(dlp_pipe *p, uint64_t burst) {
    if (!dlpi_consumer_schedules(p) || dlpi_stopped(p)) return;
    if (!dlpi_schedule_rests(p, burst))
        dlpi_schedule(p, burst);
    else if (!p->bare)
        p->source->ahead(p);
}

/* Count one more batch as delivered, so that another may be scheduled. The scheduler's thread, if
   there is one, is woken. */
static inline void dlpi_scheduler_delivered(dlp_pipe *p) {
    uint64_t *delivered = &p->ctl->delivered, n = DLPI_LOAD_RLX(delivered) + 1; /* V1: our own */
    if (!dlpi_consumer_schedules(p)) {
        dlpi_credit_publish(delivered, n); /* V1 -> V1, B1 */
        dlpi_wake_scheduler(p->ctl);
    } else {
        dlpi_credit_publish_quiet(delivered, n); /* V1 -> V1 */
    }
}

/* Mark a slot as free by its word `used`. The scheduler's thread, if there is one, is woken. */
static inline void dlpi_scheduler_credit(dlp_pipe *p, uint32_t *used) {
    if (!dlpi_consumer_schedules(p)) {
        dlpi_credit_done(used, 0u); /* C1 -> C1 */
        dlpi_wake_scheduler(p->ctl);
    } else {
        dlpi_credit_done_quiet(used); /* C1 -> C1 */
    }
}

/* ---- its thread ---- */

/* Do what the scheduler can do now. If there are subscribers, it also keeps their books, until they
   have all. Returns 1 if it did something, 0 if there was nothing, or -1 if it is done for good:
   all is scheduled, and the subscribers have had all. Without subscribers this is never so, for the
   consumer may seek back. */
static int dlpi_scheduler_step(dlp_pipe *p) {
    int moved = p->sharing->keep(p);
    return moved >= 0 && dlpi_schedule(p, 1) > 0 ? 1 : moved;
}

/* Do what the scheduler can do now (who: the pipe). Returns true if it did something, or must
   stop. */
static bool dlpi_scheduler_look(void *who) {
    return dlpi_scheduler_step(who) != 0 || dlpi_stopped(who);
}

static uint64_t dlpi_scheduler_rest(void *who) { return ((dlp_pipe *)who)->scheduler_sleep_ns; }

static const dlpi_wait_ops dlpi_scheduler_waits = {dlpi_scheduler_look, dlpi_scheduler_rest, NULL,
                                                   NULL};

/* Schedule until all is scheduled, or the pipe stops: the scheduler's thread. arg: the consumer's
   record of a worker. The thread looks a few times more before it sleeps: to be woken for each
   batch would cost the one that takes the batch more than the batch. */
static void *dlpi_thread_scheduler(void *arg) {
    dlpi_worker *w = arg;
    dlp_pipe *p = w->p;
    int moved;
    dlpi_thread_dress(w);
    while (!dlpi_stopped(p) && (moved = dlpi_scheduler_step(p)) >= 0)
        if (moved == 0 &&
            !dlpi_wait_awake(dlpi_scheduler_look, p, &p->wait, false, false, UINT64_MAX))
            dlpi_wait_asleep(&dlpi_scheduler_waits, p, &p->ctl->scheduler, 1);
    dlpi_thread_over(w);
    return NULL;
}
