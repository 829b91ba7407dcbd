/* Subscribers that come, leave and die, and the scheduler that admits them (>>impl-subscriber), on
   the header's own code: in every interleaving of small cases, with every value that a load's order
   permits (model.h tells how). What the kernel does with locks is a word here.

   Checked: who is admitted gets each batch from there on, once, in order, whole; its slot is not
   written while it reads; a slot is used again whoever has left or died; nobody polls for ever, and
   the pipe ends. Of those that share (DLP_SHARE_ONE) one gets each batch; if it dies, another may.
   Sleeping is left out: model.c and model_slots.c go through that.

   Without arguments: all that is short, and each mutant (an access made relaxed, a write behind the
   next one): a scenario has to notice it, or `needless` to say why none needs to. SOAK=1: larger
   ones, too. "weaken": mutants alone. A scenario's name: that one, and how it fails. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <fcntl.h>
static int locks(int fd, int command, ...);
#define fcntl(fd, ...) locks(fd, __VA_ARGS__)
#define MODEL_HEADER "../../dlpipe_shm.h"
#define MODEL_THREADS 4
#define MODEL_ATOMS 40
#define MODEL_SLOTS 4
#define MODEL_MESSAGES 30
#define MODEL_SITES 128
#include "model.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else
#include "model_mutants.h"

enum { SLOTS = 2, PLACES = 2, RING = 4 };

typedef struct shape {
    uint64_t n;          /* batches */
    uint32_t slots;      /* 0: 1 */
    uint32_t places;     /* for subscribers; 0: 1 */
    uint32_t serve_only; /* the pipe waits while nobody is here */
    uint64_t leaves;     /* thread 0 leaves after so many batches, 0: with the last */
    uint32_t behind;     /* of thread 0: DLP_BEHIND_*; nobody waits for it */
    int again;           /* it then comes back; or, where it may die, another in its place */
    int inside;          /* subscribers are outs of the process: attached from the start */
    int one;             /* DLP_SHARE_ONE, of subscribers that are admitted from the start */
} shape;

static shape is;

typedef struct slot {
    dlpi_bslot slot;
    dlpi_stage_words words;
    uint32_t rec[2];
    uint64_t cell;
} slot;

static dlp_pipe pipe_; /* its schedule is kept with w */
static dlp_monitor monitor;

static struct {
    _Alignas(128) dlpi_ctl ctl;
    slot slot[SLOTS];
    uint32_t order_ring[RING];
    _Alignas(128) unsigned char share[4096];
    dlpi_shm_state shm;
    uint32_t lock[PLACES];   /* what the kernel knows */
    uint32_t has[M_THREADS]; /* 1 + the lock that a thread has */
    uint32_t reads[4];       /* how often each batch was read */
    struct {
        dlp_subscriber c;
        dlpi_loan loan;
        uint8_t valid[2];
        uint64_t next; /* batch, UINT64_MAX: not admitted yet */
        uint64_t taken;
    } own[3];
} w;

static uint32_t slots(void) { return is.slots ? is.slots : 1; }
static uint32_t places(void) { return is.places ? is.places : 1; }
static dlpi_share *share(void) { return pipe_.share; }

static int locks(int fd, int command, ...) {
    struct flock *f;
    uint32_t nobody = 0;
    va_list args;
    (void)fd;
    va_start(args, command);
    f = va_arg(args, struct flock *);
    va_end(args);
    if (command == F_OFD_SETLK) {
        if (!DLPI_CAS_SEQ(&w.lock[f->l_start], &nobody, 1u)) return -1;
        w.has[model.running] = 1 + (uint32_t)f->l_start;
        return 0;
    }
    f->l_type = DLPI_LOAD_SEQ(&w.lock[f->l_start]) ? F_WRLCK : F_UNLCK;
    return 0;
}

/* The lock that the thread has, as the kernel gives it back. */
static void unlock(int thread) {
    uint32_t lock = w.has[thread];
    if (lock) DLPI_STORE_SEQ(&w.lock[lock - 1], 0u);
    w.has[thread] = 0; /* in the same step */
}

static uint64_t mix_locks(uint64_t h) {
    return model_hash(model_hash(h, w.has, sizeof w.has), w.reads, is.one ? sizeof w.reads : 0);
}

/* ---- the memory of a scenario ---- */

static size_t kept_bytes(void) { return sizeof w + sizeof pipe_.schedule; }
static void keep(unsigned char *to) {
    memcpy(to, &w, sizeof w);
    memcpy(to + sizeof w, &pipe_.schedule, sizeof pipe_.schedule);
}
static void bring_back(const unsigned char *from, size_t n) {
    (void)n;
    memcpy(&w, from, sizeof w);
    memcpy(&pipe_.schedule, from + sizeof w, sizeof pipe_.schedule);
}

static const char *const lock_names[] = {"lock", "lock 1"};
static const char *const present_names[] = {"present", "present 1"};
static const char *const keep_names[] = {"keep", "keep 1"};
static const char *const cursor_names[] = {"cursor", "cursor 1"};
static const char *const admitted_names[] = {"admitted", "admitted 1"};
static const char *const join_names[] = {"join", "join 1"};
static const char *const released_names[] = {"released", "released 1"};
static const char *const header_names[] = {"header", "header 1"};
static const char *const ready_names[] = {"ready", "ready 1"};
static const char *const taker_names[] = {"taker", "taker 1"};

static void list_all(void) {
    model_list_atom("tail", &w.ctl.tail, 8, 1);
    model_list_atom("end_of_input", &w.ctl.end_of_input, 4, 0);
    model_list_atom("over", &share()->over, 4, 0);
    for (uint32_t k = 0; k < slots(); k++) {
        model_list_atom(header_names[k], &w.slot[k].slot.header, 8, 0);
        model_list_atom(ready_names[k], &w.slot[k].words.ready, 8, 0);
        model_list_slot(&w.slot[k].cell, 8);
        if (is.one) model_list_atom(taker_names[k], dlpi_shm_taker(share(), k), 8, 0);
    }
    if (is.one) model_list_atom("handed_back", &share()->handed_back, 8, 0);
    for (uint32_t i = 0; i < places(); i++) {
        model_list_atom(lock_names[i], &w.lock[i], 4, 0);
        model_list_atom(present_names[i], &dlpi_share_block(share(), i)->present, 8, 0);
        model_list_atom(keep_names[i], &dlpi_share_block(share(), i)->keep, 8, 0);
        model_list_atom(cursor_names[i], &dlpi_share_block(share(), i)->cursor, 8, 0);
        model_list_atom(admitted_names[i], &dlpi_share_admit(share(), i)->present, 8, 0);
        model_list_atom(join_names[i], &dlpi_share_admit(share(), i)->join, 8, 0);
        for (uint32_t k = 0; k < slots(); k++)
            model_list_atom(released_names[k], &dlpi_share_released(share(), i)[k], 8, 0);
    }
}

static void setup_pipe(void) {
    static dlpi_stage last;
    dlp_pipe *p = &pipe_;
    memset(p, 0, sizeof *p);
    last.stage_words_offset = offsetof(slot, words);
    p->work[0] = &last;
    p->n_work = 1;
    p->region = (uint8_t *)&w;
    p->ctl = &w.ctl;
    p->share = (dlpi_share *)(void *)w.share;
    p->shm = &w.shm;
    p->order_ring = w.order_ring;
    p->ring = RING;
    p->n_slots = slots();
    p->areas[DLPI_REC_SLOTS].offset = (uint64_t)((uint8_t *)w.slot - p->region);
    p->areas[DLPI_REC_SLOTS].stride = sizeof(slot);
    p->areas[DLPI_REC_SLOTS].count = slots();
    dlpi_share_layout(p->share, is.one ? DLP_SHARE_ONE : DLP_SHARE_EACH, places(), slots());
    p->share->serve_only = is.serve_only;
    p->share->one_each = (uint32_t)is.one;
    for (uint32_t k = 0; is.one && k < slots(); k++)
        *dlpi_shm_taker(p->share, k) = dlpi_gen_word(DLPI_GEN_MASK, 1);
    for (uint32_t i = 0; is.one && i < places(); i++) {
        dlpi_share_block(p->share, i)->present = dlpi_share_admit(p->share, i)->present = 1;
        w.shm.bound |= UINT64_C(1) << i;
        w.lock[i] = 1;
    }
    for (uint32_t k = 0; k < slots(); k++) w.slot[k].slot.header = dlpi_gen_word(DLPI_GEN_MASK, 0);
    for (uint32_t i = 0; is.inside && i < places(); i++) {
        dlpi_cblock *block = dlpi_share_block(p->share, i);
        block->present = 1;
        block->behind = i == 1 ? (uint32_t)DLP_BEHIND_WAIT : is.behind;
        block->keep = block->behind != DLP_BEHIND_WAIT;
    }
}

static void setup(void) {
    memset(&w, 0, sizeof w);
    setup_pipe();
    memset(&monitor, 0, sizeof monitor);
    monitor.pipe.batch_rows = 1;
    monitor.pipe.slot.fate = offsetof(slot, rec);
    monitor.areas[DLPI_REC_SLOTS].offset = (uint64_t)((uint8_t *)w.slot - pipe_.region);
    monitor.areas[DLPI_REC_SLOTS].stride = sizeof(slot);
    monitor.areas[DLPI_REC_ORDER].offset = (uint64_t)((uint8_t *)w.order_ring - pipe_.region);
    list_all();
}

/* ---- the scheduler ---- */

static void write_batch(uint64_t b) {
    uint32_t k = (uint32_t)(b % slots());
    slot *s = &w.slot[k];
    model_write_slot(model_find_slot(&s->cell));
    s->cell = 100 + b;
    s->slot.sequence = b;
    s->slot.count = 1;
    dlpi_claim_publish(&s->slot.header, dlpi_gen_word(b, 1));
    DLPI_STORE_SEQ(&s->words.ready, b + 1);
    w.order_ring[b % RING] = k;
    pipe_.schedule.published = b + 1;
    dlpi_credit_publish(&w.ctl.tail, b + 1);
}

static uint64_t scheduler_knows(void) {
    uint64_t seen[7] = {w.shm.bound,  w.shm.left_at, pipe_.schedule.published,
                        w.shm.enough, w.ctl.base,    (uint64_t)pipe_.schedule.ended,
                        w.shm.frees};
    return model_digest(seen, sizeof seen, 1);
}

static uint32_t scheduler_looks_at(void) {
    uint32_t bits = 0;
    for (uint32_t k = 0; is.one && k < slots(); k++) bits |= model_bit(dlpi_shm_taker(share(), k));
    for (uint32_t i = 0; i < places(); i++) {
        bits |= model_bit(&w.lock[i]) | model_bit(&dlpi_share_block(share(), i)->present) |
                model_bit(&dlpi_share_block(share(), i)->cursor) |
                model_bit(&dlpi_share_block(share(), i)->keep);
        for (uint32_t k = 0; k < slots(); k++)
            bits |= model_bit(&dlpi_share_released(share(), i)[k]);
    }
    return bits;
}

/* As the sampler's thread: what subscribers did, then a batch, if there is a slot for it. Returns
   what dlpi_scheduler_step returns. */
static int schedules(void) {
    uint64_t b = pipe_.schedule.published;
    w.shm.looked_ns = 0; /* at locks, each time */
    const int moved = dlpi_shm_keep(&pipe_);
    if (moved < 0) return moved;
    if (b == is.n && !pipe_.schedule.ended) {
        pipe_.schedule.ended = true;
        dlpi_credit_close(&w.ctl.end_of_input, 1u);
        return 1;
    }
    if (b == is.n || !dlpi_shm_may_schedule(&pipe_)) return moved;
    if (!dlpi_shm_slot_free(&pipe_, (uint32_t)(b % slots()))) return moved;
    write_batch(b);
    return 1;
}

/* For outs: whoever schedules looks at their words, each time. */
static void scheduler_of_outs(void) {
    uint64_t b;
    while ((b = pipe_.schedule.published) < is.n) {
        if (dlpi_outs_slot_free(&pipe_, (uint32_t)(b % slots()))) {
            write_batch(b);
            model_here(scheduler_knows());
        } else {
            model_poll(scheduler_knows(), scheduler_looks_at());
        }
    }
    dlpi_credit_close(&w.ctl.end_of_input, 1u);
}

static void scheduler(void) {
    for (;;) {
        const int moved = schedules();
        if (moved < 0) return;
        if (moved > 0)
            model_here(scheduler_knows());
        else
            model_poll(scheduler_knows(), scheduler_looks_at());
    }
}

/* ---- subscribers ---- */

static int inside_try(dlpi_subscriber *c, dlp_batch **out) {
    return c->behind ? dlpi_subscriber_late(c, out) : dlpi_subscriber_each(c, out);
}

static const dlpi_subscriber_ops inside_ops = {inside_try, dlpi_subscriber_show,
                                               dlpi_subscriber_wake, dlpi_subscriber_watch};

/* As dlpi_out_live does it; the words of the region are those of setup. */
static void is_inside(int i) {
    dlpi_subscriber *c = &w.own[i].c.s;
    c->ops = &inside_ops;
    c->index = (uint32_t)i;
    c->mine = dlpi_share_block(share(), (uint32_t)i);
    c->released = dlpi_share_released(share(), (uint32_t)i);
    c->admitted = true;
    c->present = 1;
    w.own[i].next = 0;
}

static void places_itself(int i) {
    static uint8_t alive = 1;
    dlp_subscriber *c = &w.own[i].c;
    memset(&w.own[i], 0, sizeof w.own[i]);
    c->m = &monitor;
    c->alive = &alive;
    c->map = pipe_.region;
    c->s.ops = &dlpi_subscriber_outside;
    c->s.slots = (uint8_t *)w.slot;
    c->s.slot_stride = sizeof(slot);
    c->s.n_slots = slots();
    c->s.order = w.order_ring;
    c->s.paces = is.serve_only != 0;
    c->s.share = share();
    c->takers = dlpi_shm_taker(share(), 0);
    memcpy(&c->layout, share(), sizeof c->layout);
    c->s.ctl = &w.ctl;
    c->s.ring = RING;
    c->s.max_held = 1;
    c->s.behind = i == 1 ? (uint32_t)DLP_BEHIND_WAIT : is.behind;
    c->s.waits = c->s.behind == DLP_BEHIND_KEEP_NEWEST; /* whenever it has none */
    c->s.final_at = offsetof(slot, words);
    c->s.loans = &w.own[i].loan;
    w.own[i].loan.valid = w.own[i].valid;
    w.own[i].next = UINT64_MAX;
    if (is.inside) {
        is_inside(i);
    } else if (is.one) {
        is_inside(i);
        c->s.ops = &dlpi_subscriber_outside;
        w.own[i].next = UINT64_MAX;
        w.has[model.running] = 1 + (uint32_t)i;
    } else {
        MODEL_CHECK(dlpi_subscriber_place(c, NULL) == DLP_OK);
    }
}

static uint64_t subscriber_knows(int i) {
    const dlp_subscriber *c = &w.own[i].c;
    uint64_t seen[7] = {c->s.present,  c->s.cursor,    c->s.admitted, c->s.index,
                        w.own[i].next, w.own[i].taken, c->back};
    return model_digest(seen, sizeof seen, 2);
}

static uint32_t subscriber_looks_at(int i) {
    uint32_t bits = is.one ? model_bit(&share()->handed_back) : 0;
    for (uint32_t k = 0; is.one && k < slots(); k++)
        bits |= model_bit(&w.slot[k].slot.header) | model_bit(&w.slot[k].words.ready) |
                model_bit(dlpi_shm_taker(share(), k));
    return bits | model_bit(&dlpi_share_admit(share(), w.own[i].c.s.index)->present) |
           model_bit(&w.ctl.tail) | model_bit(&w.ctl.end_of_input) | model_bit(&share()->over);
}

/* The batch at hand; where it is waited for none is left out from where it was admitted on. Of
   those that share, a batch is read again only if one may have died with it. */
static void reads(int i, dlp_batch *b) {
    slot *s = &w.slot[w.own[i].loan.slot];
    if (w.own[i].next == UINT64_MAX || (is.one && model.scenario->mortal))
        w.own[i].next = b->sequence;
    MODEL_CHECK(b->sequence == w.own[i].next ||
                ((is.one || w.own[i].c.s.behind) && b->sequence > w.own[i].next));
    MODEL_CHECK(!is.one || w.reads[b->sequence]++ == 0 || model.scenario->mortal);
    MODEL_CHECK(b->count == 1);
    w.own[i].next = b->sequence + 1;
    w.own[i].taken++;
    model_read_slot(model_find_slot(&s->cell));
    MODEL_CHECK(s->cell == 100 + b->sequence);
    MODEL_CHECK(dlp_subscriber_release(&w.own[i].c, b) == DLP_OK);
}

/* Until it leaves, after so many batches, or there are no more. */
static void subscribes(int i, uint64_t leaves) {
    places_itself(i);
    model_here(subscriber_knows(i));
    while (leaves == 0 || w.own[i].taken < leaves) {
        dlp_batch *b = NULL;
        int rc = w.own[i].c.s.ops->next(&w.own[i].c.s, &b);
        MODEL_CHECK(rc == DLP_OK || rc == DLP_EMPTY || rc == DLP_END);
        if (rc == DLP_END) break;
        if (rc == DLP_OK) {
            reads(i, b);
            model_here(subscriber_knows(i));
        } else {
            model_poll(subscriber_knows(i), subscriber_looks_at(i));
        }
    }
    if (w.own[i].next != UINT64_MAX && leaves == 0 && !w.own[i].c.s.behind && !is.one)
        MODEL_CHECK(w.own[i].next == is.n);
    dlpi_subscriber_leave(&w.own[i].c.s);
    unlock(model.running); /* as closing the file does */
    model_here(subscriber_knows(i));
}

static void subscriber(void) {
    subscribes(0, is.leaves);
    if (is.again && !model.scenario->mortal) subscribes(0, 0);
}
static void other(void) { subscribes(1, 0); }

/* Thread 0 is dead. */
static void successor(void) {
    unlock(0);
    if (is.again) subscribes(2, 0);
}

static void end(void) {
    MODEL_CHECK(w.ctl.tail == is.n && (is.inside || share()->over == 1));
    MODEL_CHECK(!is.serve_only || w.ctl.base == is.n);
    for (uint64_t b = 0; is.one && b < is.n; b++) MODEL_CHECK(w.reads[b] > 0);
}

/* ---- scenarios ---- */

#define SHAPE(...) (&(const shape){__VA_ARGS__})
#define SUBSCRIBERS(label, large, a, b, c, d, mortal, ...) \
    { {label, setup, {a, b, c, d}, end, mortal}, SHAPE(__VA_ARGS__), large }

static const trial trials[] = {
    SUBSCRIBERS("comes__admitted_at_some_batch__has_the_rest", 0, subscriber, scheduler, NULL, NULL,
                0, .n = 2),
    SUBSCRIBERS("served__comes__has_all", 0, subscriber, scheduler, NULL, NULL, 0, .n = 2,
                .serve_only = 1),
    SUBSCRIBERS("leaves__slots_are_used_again", 0, subscriber, scheduler, NULL, NULL, 0, .n = 3,
                .leaves = 1),
    SUBSCRIBERS("leaves_and_comes_back__admitted_again", 0, subscriber, scheduler, NULL, NULL, 0,
                .n = 2, .leaves = 1, .again = 1),
    SUBSCRIBERS("served__leaves_and_comes_back__pipe_waits_between", 0, subscriber, scheduler, NULL,
                NULL, 0, .n = 2, .leaves = 1, .again = 1, .serve_only = 1),
    SUBSCRIBERS("dies__none_kept_for_the_dead", 0, subscriber, successor, scheduler, NULL, 1,
                .n = 2),
    SUBSCRIBERS("dies__another_takes_its_place", 1, subscriber, successor, scheduler, NULL, 1,
                .n = 2, .again = 1),
    SUBSCRIBERS("served__dies__another_takes_its_place", 1, subscriber, successor, scheduler, NULL,
                1, .n = 2, .again = 1, .serve_only = 1),
    SUBSCRIBERS("not_waited_for__keeps_the_newest__reads_or_misses", 1, subscriber, scheduler, NULL,
                NULL, 0, .n = 2, .behind = DLP_BEHIND_KEEP_NEWEST),
    SUBSCRIBERS("not_waited_for__drops_new_ones__reads_or_misses", 1, subscriber, scheduler, NULL,
                NULL, 0, .n = 2, .behind = DLP_BEHIND_DROP_NEW),
    SUBSCRIBERS("not_waited_for__dies__none_kept_for_the_dead", 1, subscriber, successor, scheduler,
                NULL, 1, .n = 2, .behind = DLP_BEHIND_DROP_NEW),
    SUBSCRIBERS("not_waited_for__dies__place_is_taken_again", 1, subscriber, successor, scheduler,
                NULL, 1, .n = 2, .behind = DLP_BEHIND_DROP_NEW, .again = 1),
    SUBSCRIBERS("two_come__each_has_its_own", 2, subscriber, other, scheduler, NULL, 0, .n = 1,
                .places = 2),
    SUBSCRIBERS("two_come__one_leaves__other_has_the_rest", 2, subscriber, other, scheduler, NULL,
                0, .n = 2, .leaves = 1, .places = 2),
    SUBSCRIBERS("two_slots__leaves__slots_go_round", 1, subscriber, scheduler, NULL, NULL, 0,
                .n = 3, .slots = 2, .leaves = 1),
    SUBSCRIBERS("inside__has_all", 0, subscriber, scheduler_of_outs, NULL, NULL, 0, .n = 3,
                .inside = 1),
    SUBSCRIBERS("inside__leaves__slots_are_used_again", 0, subscriber, scheduler_of_outs, NULL,
                NULL, 0, .n = 3, .leaves = 1, .inside = 1),
    SUBSCRIBERS("inside__keeps_the_newest__reads_or_misses", 1, subscriber, scheduler_of_outs, NULL,
                NULL, 0, .n = 3, .behind = DLP_BEHIND_KEEP_NEWEST, .inside = 1),
    SUBSCRIBERS("inside__drops_new_ones__reads_or_misses", 1, subscriber, scheduler_of_outs, NULL,
                NULL, 0, .n = 3, .behind = DLP_BEHIND_DROP_NEW, .inside = 1),
    SUBSCRIBERS("inside__two__each_has_its_own", 1, subscriber, other, scheduler_of_outs, NULL, 0,
                .n = 2, .places = 2, .inside = 1),
    SUBSCRIBERS("inside__one_leaves__other_has_all", 2, subscriber, other, scheduler_of_outs, NULL,
                0, .n = 2, .slots = 2, .leaves = 1, .places = 2, .inside = 1),
    SUBSCRIBERS("one_of_two_dies__other_has_the_rest", 2, subscriber, successor, scheduler, other,
                1, .n = 1, .places = 2),
    SUBSCRIBERS("share__one_alone__has_all", 0, subscriber, scheduler, NULL, NULL, 0, .n = 3,
                .slots = 2, .serve_only = 1, .one = 1),
    SUBSCRIBERS("share__two__a_batch_is_one_s", 2, subscriber, other, scheduler, NULL, 0, .n = 1,
                .slots = 2, .places = 2, .serve_only = 1, .one = 1),
    SUBSCRIBERS("share__dies_with_a_batch__other_has_it", 2, subscriber, successor, scheduler,
                other, 1, .n = 1, .places = 2, .serve_only = 1, .one = 1),
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* Mutants that nothing need notice: what orders it all the same. */
static const needless_mutant needless[] = {
    {"dlpi_credit_publish", "STORE_SEQ", "cursor", M_RELAXED,
     "advice: slots go by what was given back"},
    {"dlpi_credit_publish", "STORE_SEQ", "cursor", M_LATE,
     "advice; that of who was here before counts as join, which is not less"},
    {"dlpi_credit_seen", "LOAD_SEQ", "cursor", M_RELAXED, "advice, as above"},
    {"dlpi_credit_seen", "LOAD_SEQ", "handed_back", M_RELAXED,
     "needed: keeps the looks at takers behind it, which this checker does in any case"},
    {"dlpi_credit_publish", "STORE_SEQ", "present", M_LATE, "only comes later"},
    {"dlpi_credit_publish", "STORE_SEQ", "admitted", M_LATE, "only comes later"},
    {"dlpi_offer_give", "STORE_SEQ", "released", M_LATE, "only comes later"},
    {"dlpi_credit_closed", "LOAD_SEQ", "over", M_RELAXED, "nothing is read by it"},
    {"dlpi_credit_close", "STORE_SEQ", "over", M_RELAXED, "nothing is read by it"},
    {"dlpi_credit_close", "STORE_SEQ", "over", M_LATE, "only comes later"},
    {"dlpi_credit_closed", "LOAD_SEQ", "end_of_input", M_RELAXED,
     "needed: keeps the look at the tail behind it, which this checker does in any case"},
    {"dlpi_credit_close", "STORE_SEQ", "end_of_input", M_RELAXED,
     "the tail before it and its look are in one order; the store itself keeps behind it"},
    {"dlpi_credit_close", "STORE_SEQ", "end_of_input", M_LATE, "only comes later"},
};

static int try_one(const trial *t, int loud) {
    is = *(const shape *)t->shape;
    model.loose = model.membarrier = model.by_place = 1;
    return model_run(&t->scenario, loud);
}

int main(int argc, char **argv) {
    static const char *const of[] = {"dlpi_credit",     "dlpi_offer", "dlpi_share",
                                     "dlpi_subscriber", "dlpi_outs",  NULL};
    static const trial_list all = {"model_subscribers",
                                   trials,
                                   TRIALS,
                                   try_one,
                                   of,
                                   needless,
                                   sizeof needless / sizeof *needless};
    model.memory = (unsigned char *)&w;
    model.memory_bytes = sizeof w;
    model.keep = keep;
    model.kept_bytes = kept_bytes;
    model.bring_back = bring_back;
    model.mix_more = mix_locks;
    return model_main(&all, argc, argv);
}
#endif
