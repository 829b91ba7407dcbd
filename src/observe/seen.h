#pragma once
/* tests: system/report/pipe_stats, system/shm/monitor */
#include "base/cpus.h"
#include "pipe/pipe.h"
#include "fail/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-seen       WHAT OBSERVERS SEE
   Statistics, traces and words are made of a dlpi_seen alone. It is filled from a live pipe, whose
   memory it points into (dlpi_seen_pipe), or from a checked copy of a region (dlpipe_shm.h): so the
   same functions speak of both. The figures that only some kinds of stages have are counted by
   those kinds, out of words of the region, which are read in place or through a file. */

typedef struct dlpi_seen_stage {
    dlpi_stage_rec r;
    const dlpi_stage_ops *ops;                       /* NULL: this program does not know its kind */
    uint64_t ready_at;                               /* bytes from a slot's record to `ready` */
    int (*tell)(void *user, char *buf, size_t size); /* the user's callback, or NULL */
    void *tell_user;
} dlpi_seen_stage;

typedef struct dlpi_seen_area { /* of the region, or of a copy of what counts in it */
    const uint8_t *at;
    uint64_t stride;
} dlpi_seen_area;

struct dlpi_seen {
    uint64_t now_ns;
    const dlpi_ctl *ctl;
    const uint64_t *delivered;          /* batches, as the consumer counts them */
    dlpi_seen_area rec[DLPI_REC_COUNT]; /* SLOTS, WORKERS, TRACE, ORDER and TAKEN; of the workers'
                                           blocks and rings the last are the consumer's */
    uint32_t n_stages, n_work, n_item_work, n_workers;
    DLPI_SHAPE_MEMBERS;
    uint32_t cpus;
    const dlpi_area *areas; /* of the region */
    uint64_t sink_free;     /* free buffers of the sink */
    uint64_t plan_bytes;
    int32_t work[DLP_MAX_STAGES]; /* [n_work] stages with workers, in order */
    int32_t final;                /* the stage after which a batch is ready for the consumer */
    dlpi_seen_stage stages[DLP_MAX_STAGES];
    dlp_stats figures; /* only the fields that kinds of stages have filled in */
};

/* Words of the region, by the records that they are in. */
struct dlpi_words {
    const dlpi_area *areas; /* [DLPI_AREAS] */
    /* Read a word of `bytes` bytes at offset `at` of the region into *to. The record ends at `end`.
       Returns false if the word cannot be read. */
    bool (*read)(void *from, uint64_t at, uint64_t end, uint32_t bytes, uint64_t *to);
    void *from;
};

#define DLPI_WORDS_MAX (UINT64_C(1) << 24) /* words of an area that are counted, at most */

/* Read a word of 4 or 8 bytes at an offset in element i of an area. Returns false if it has
   none. */
static bool dlpi_word_at(const dlpi_words *w, int id, uint64_t i, uint64_t at, uint32_t bytes,
                         uint64_t *to) {
    const dlpi_area *r = &w->areas[id];
    if (i >= r->count || at > r->stride || bytes > r->stride - at) return false;
    at += r->offset + i * r->stride;
    return at % bytes == 0 && w->read(w->from, at, r->offset + r->count * r->stride, bytes, to);
}

/* Copy `bytes` bytes of element i of an area, from byte `from` on, in words of 8. If an element of
   an older version ends before, fewer are copied. Returns false if there are none. */
static bool dlpi_words_copy(const dlpi_words *w, int id, uint64_t i, uint64_t from, void *to,
                            uint64_t bytes) {
    const uint64_t stride = w->areas[id].stride;
    for (uint64_t at = 0, word; at < bytes && (at == 0 || from + at + 8 <= stride); at += 8) {
        if (!dlpi_word_at(w, id, i, from + at, 8, &word)) return false;
        memcpy((uint8_t *)to + at, &word, sizeof word);
    }
    return true;
}

/* Count the words of an area, of 4 or 8 bytes each, that have bits of the mask or, if `none` is
   set, have none of them. Returns false if they cannot be read. */
static bool dlpi_words_count(const dlpi_words *w, int id, uint64_t mask, bool none, uint64_t *n) {
    const dlpi_area *r = &w->areas[id];
    *n = 0;
    if (r->count == 0) return true;
    if (r->count > DLPI_WORDS_MAX || (r->stride != 4 && r->stride != 8)) return false;
    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t word;
        if (!dlpi_word_at(w, id, i, 0, (uint32_t)r->stride, &word)) return false;
        *n += ((word & mask) == 0) == none;
    }
    return true;
}

/* Return a figure of the user's, out of its bits; 0 if it is no number of 0 or more. */
static double dlpi_seen_figure(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v >= 0 && v <= 1e300 ? v : 0;
}

/* Read the user's counters into the figures. Returns false if the words are not valid. */
static bool dlpi_seen_counters(const dlpi_words *words, dlpi_seen *s) {
    dlpi_counter_rec r;
    uint64_t n = words->areas[DLPI_REC_COUNTERS].count;
    s->figures.n_counters = (uint32_t)(n < DLP_MAX_COUNTERS ? n : DLP_MAX_COUNTERS);
    for (uint32_t i = 0; i < s->figures.n_counters; i++) {
        dlp_counter_stats *c = &s->figures.counters[i];
        if (!dlpi_words_copy(words, DLPI_REC_COUNTERS, i, 0, &r, sizeof r)) return false;
        memcpy(c->name, r.name, sizeof c->name - 1);
        memcpy(c->unit, r.unit, sizeof c->unit - 1);
        c->value = dlpi_seen_figure(r.value);
        c->most = dlpi_seen_figure(r.most);
        c->at_ns = r.at_ns;
        c->noted = r.noted;
    }
    return true;
}

/* Return n if it is 1..most, else `otherwise`. */
static int32_t dlpi_seen_within(int32_t n, int32_t most, int32_t otherwise) {
    return n >= 1 && n <= most ? n : otherwise;
}

/* Copy the table of links (>>impl-links), which lies behind the record of the pipe. Returns false
   if it is not valid. */
static bool dlpi_seen_links(const dlpi_words *words, dlpi_seen *s) {
    const int32_t n_stages = (int32_t)s->n_stages;
    const uint64_t count_at = offsetof(dlpi_pipe_rec, n_links), at = sizeof(dlpi_pipe_rec);
    uint64_t n;
    if (!dlpi_word_at(words, DLPI_REC_PIPE, 0, count_at, 4, &n)) return false;
    s->figures.n_links = (uint32_t)(n < DLP_MAX_LINKS ? n : DLP_MAX_LINKS);
    for (uint32_t i = 0; i < s->figures.n_links; i++) {
        dlp_link *l = &s->figures.links[i];
        if (!dlpi_words_copy(words, DLPI_REC_PIPE, 0, at + i * sizeof *l, l, sizeof *l) ||
            l->from_stage < -2 || l->from_stage >= n_stages || l->to_stage < -1 ||
            l->to_stage >= n_stages)
            return false;
        l->from[sizeof l->from - 1] = l->to[sizeof l->to - 1] = 0;
        l->rule = dlpi_seen_within(l->rule, DLP_FULL_REFUSE, 0);
        l->depth = l->from_stage < -1 ? UINT64_MAX : 0;
    }
    return true;
}

/* Return the number of buffers of the sink; 0 if there is no sink. */
static uint64_t dlpi_seen_buffers(const dlpi_seen *s) {
    return s->areas[DLPI_OWN(s->final, DLPI_OWN_LINK)].count;
}

/* Fill in the figures that kinds of stages count. Returns false if words of the region are not
   valid. */
static bool dlpi_seen_kinds(const dlpi_words *words, dlpi_seen *s) {
    const int buffers = DLPI_OWN(s->final, DLPI_OWN_LINK);
    memset(&s->figures, 0, sizeof s->figures);
    if (!dlpi_seen_counters(words, s) || !dlpi_seen_links(words, s)) return false;
    if (!dlpi_words_count(words, buffers, UINT64_MAX, true, &s->sink_free)) return false;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_stage_ops *ops = s->stages[i].ops;
        if (ops && ops->seen && !ops->seen(words, s, (int32_t)i)) return false;
    }
    return true;
}

/* ---- a live pipe ---- */

/* Read a word of a live pipe's region. bytes: 4 or 8. Always returns true. */
static bool dlpi_word_live(void *region, uint64_t at, uint64_t end DLPI_UNREAD, uint32_t bytes,
                           uint64_t *to) {
    const uint8_t *word = (const uint8_t *)region + at;
    /* statistics, here and below */
    *to = bytes == 4 ? DLPI_LOAD_RLX((const uint32_t *)(const void *)word)
                     : DLPI_LOAD_RLX((const uint64_t *)(const void *)word);
    return true;
}

/* Write what a stage is into its record, for observers. A stage without work has no workers to tell
   of. */
static void dlpi_stage_describe(const dlpi_stage *st, dlpi_stage_rec *r) {
    dlpi_copy_text(r->name, sizeof r->name, st->name);
    r->kind = st->ops->kind;
    r->id = st->id;
    r->work = st->work;
    if (st->work < 0) return;
    r->first_worker = st->first_worker;
    r->n_workers = st->n_workers;
    r->num_workers = st->w.num_workers;
    r->placement = st->w.num_workers > 0 ? st->w.placement : DLP_PLACE_THREADS;
    r->zeroes = st->scope.zeroes == 1;
    r->stage_words_offset = st->stage_words_offset;
    r->in_flight = st->in_flight;
    r->active = (uint64_t)st->at_first;
    r->workers_min = st->w.workers_min;
}

/* Set the parts of a stage's row that never change while the pipe lives. */
static void dlpi_seen_shape_stage(const dlpi_stage *st, dlpi_seen_stage *row) {
    dlpi_stage_describe(st, &row->r);
    row->ops = st->ops;
    row->ready_at = st->stage_words_offset + offsetof(dlpi_stage_words, ready);
    row->tell = st->w.tell;
    row->tell_user = st->w.worker_user;
}

/* Fill *s with all of a pipe, started or not, that is not in its region. */
static void dlpi_seen_shape(const dlp_pipe *p, dlpi_seen *s) {
    memset(s, 0, offsetof(dlpi_seen, figures));
    s->n_stages = (uint32_t)p->n_stages;
    s->n_work = (uint32_t)p->n_work;
    s->n_item_work = (uint32_t)p->n_item_work;
    s->n_workers = (uint32_t)p->n_workers;
    s->shape = p->shape;
    s->areas = p->areas;
    s->cpus = (uint32_t)p->cpus;
    s->plan_bytes = p->plan_bytes;
    for (int i = 0; i < p->n_work; i++) s->work[i] = p->work[i]->id;
    s->final = s->work[p->n_work - 1];
    for (int i = 0; i < p->n_stages; i++) dlpi_seen_shape_stage(&p->stages[i], &s->stages[i]);
}

/* Fill *s from a started pipe, into whose memory it points. all: with the figures of kinds. */
static void dlpi_seen_pipe(const dlp_pipe *p, bool all, dlpi_seen *s) {
    const dlpi_words words = {p->areas, dlpi_word_live, p->region};
    dlpi_seen_shape(p, s);
    s->now_ns = dlpi_now_ns();
    s->ctl = p->ctl;
    s->delivered = &p->ctl->delivered;
    for (int id = 0; id < DLPI_REC_COUNT; id++)
        s->rec[id] = (dlpi_seen_area){dlpi_area_at(p, id, 0), p->areas[id].stride};
    for (uint32_t i = 0; i < s->n_stages; i++) /* with what the tuner has changed */
        dlpi_words_copy(&words, DLPI_REC_STAGES, i, 0, &s->stages[i].r, sizeof s->stages[i].r);
    if (!all) return;
    dlpi_seen_kinds(&words, s); /* true: its records are its own */
    for (dlp_link *l = s->figures.links; l->from_stage < -1; l++) { /* lanes, which come first */
        const dlp_dataset *d = p->stages[l->to_stage].dataset;
        l->depth = d->reader->lanes(d->user, l);
    }
}

/* ---- parts of a dlpi_seen ---- */

/* Return element i of what is seen of an area. */
static const void *dlpi_seen_at(const dlpi_seen *s, int id, uint64_t i) {
    return s->rec[id].at + i * s->rec[id].stride;
}

static const dlpi_worker_block *dlpi_seen_block(const dlpi_seen *s, uint32_t worker) {
    return dlpi_seen_at(s, DLPI_REC_WORKERS, worker);
}

/* Return the stage of a worker; NULL if the number is the consumer's. */
static const dlpi_seen_stage *dlpi_seen_owner(const dlpi_seen *s, uint32_t worker) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        const uint32_t first = (uint32_t)st->r.first_worker;
        if (st->r.work >= 0 && worker - first < (uint32_t)st->r.n_workers) return st;
    }
    return NULL;
}

static uint32_t dlpi_seen_slot(const dlpi_seen *s, uint64_t b) {
    const uint32_t *slot = dlpi_seen_at(s, DLPI_REC_ORDER, b & (s->ring - 1));
    return DLPI_LOAD_RLX(slot); /* T1 ordered by the tail that covers b */
}

/* True if batch b, which has this slot, has left the stage. */
static bool dlpi_seen_left(const dlpi_seen *s, uint64_t b, uint32_t slot, int32_t stage) {
    const uint8_t *words = dlpi_seen_at(s, DLPI_REC_SLOTS, slot);
    const void *ready = words + s->stages[stage].ready_at;
    return dlpi_ready_is(dlpi_gather_look(ready), b); /* Y1 <- Y1 */
}
