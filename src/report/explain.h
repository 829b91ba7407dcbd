/* needs: explain */
#pragma once
/* tests: system/report/texts, system/report/advice, system/report/pipe_stats */
#include "report/limit.h"
#include "report/outs.h" /* needs: out */
#include "report/sentences.h"
#include "report/stats.h"
/* ---- explain: the table of sentences, told ---- */

/* The workers of a stage that were at work when explain looked. */
typedef struct dlpi_lock {
    uint32_t at_work; /* workers that looked at, and in a callback */
    uint32_t waits;   /* those that slept for one lock; 0: fewer than half, or not known */
} dlpi_lock;

#define DLPI_LOCK_LOOKS 64 /* workers that are looked at, at most */

/* Look for which lock the workers of a stage sleep in their callbacks. */
static void dlpi_lock_look(const dlpi_seen *s, const dlpi_seen_stage *st, dlpi_lock *to) {
    uint64_t at[DLPI_LOCK_LOOKS];
    uint32_t n = 0;
    for (int k = 0; k < st->r.n_workers && k < DLPI_LOCK_LOOKS; k++) {
        const dlpi_worker_block *b = dlpi_seen_block(s, (uint32_t)(st->r.first_worker + k));
        if (DLPI_LOAD_RLX(&b->state) != DLP_WORKER_BUSY) continue; /* statistics, here and below */
        to->at_work++;
        at[n] = dlpi_thread_lock(DLPI_LOAD_RLX(&b->pid), DLPI_LOAD_RLX(&b->tid));
        n += at[n] != 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < n; k++) same += at[k] == at[i];
        if (same > to->waits) to->waits = same;
    }
    if (to->waits < 2 || 2 * to->waits < to->at_work) to->waits = 0;
}

/* Return how many times longer an item takes than if its worker were alone. */
static double dlpi_lock_times(const dlpi_lock *k) {
    return k->at_work > k->waits ? (double)k->at_work / (k->at_work - k->waits) : k->at_work;
}

/* What is told, and of what. */
typedef struct dlpi_tale {
    dlpi_text *t;
    const dlp_stats *s;
    const dlpi_load *l;
    const dlpi_verdict *v;
    const dlp_stage_stats *g; /* the stage that a sentence is about */
    const dlp_tune_note *k;   /* the tuner's decision that it is about */
    dlpi_foretold f;
    char first_skip[640];       /* message of the first item that was left out; "": none was */
    dlpi_lock lock;             /* of the busiest stage */
    uint64_t others;            /* slots that outs may hold */
    const dlp_stage_stats *out; /* the out that the pipe waits for; NULL: it waits for none */
    int told;                   /* the group that said what limits */
} dlpi_tale;

typedef struct dlpi_row {
    int group;
    bool holds;
    const char *says;
} dlpi_row;

#define DLPI_IS(id) (n == sizeof #id - 1 && memcmp(at, #id, n) == 0)
#define DLPI_SAY(id, format, text) \
    if (DLPI_IS(id)) dlpi_text_add(x->t, format, text);
#define DLPI_SAY_COUNT(of, id) DLPI_SAY(id, "%" PRId64, (int64_t)(of)->id)
#define DLPI_SAY_NUMBER(id, as, number) DLPI_SAY(id, "%s", dlpi_num_##as((double)(number)).s)
#define DLPI_SAY_RATIO(id, as, part, all) \
    DLPI_SAY_NUMBER(id, as, (all) > 0 ? (double)(part) / (double)(all) : 0)
#define DLPI_SAY_WORD(id, word) DLPI_SAY(id, DLPI_IS(name) ? "%.31s" : "%s", word)
#define DLPI_SAY_IF(id, condition) \
    if (DLPI_IS(id)) holds = condition;
#define DLPI_ROW_OF(of, condition, sentence) {DLPI_OF_##of, condition, sentence},

/* Append the sentences of a group whose conditions hold. The table's rows name these variables. */
static void dlpi_tell(dlpi_tale *x, int group) {
    const dlp_stats *s = x->s;
    const dlpi_load *l = x->l;
    const dlpi_verdict *v = x->v;
    const dlp_stage_stats *g = x->g;
    const dlp_tune_note *k = x->k;
    DLPI_FACTS
    const dlpi_row rows[] = {DLPI_SENTENCES(DLPI_ROW_OF)};
    const char *topic = "";
    for (const dlpi_row *row = rows; row < rows + sizeof rows / sizeof *rows; row++) {
        if (row->group != group || !row->holds || strncmp(row->says, topic, 4) == 0) continue;
        for (const char *at = topic = row->says; *at != 0;) {
            size_t n = strcspn(at, "{[|]");
            const char mark = at[n];
            bool holds = false;
            dlpi_text_add(x->t, "%.*s", (int)n, at);
            if (mark == 0) break;
            at += n + 1;
            n = strcspn(at, mark == '{' ? "}" : mark == '[' ? "|" : "]");
            if (mark == '{') {
                DLPI_COUNTS(DLPI_SAY_COUNT)
                DLPI_NUMBERS(DLPI_SAY_NUMBER)
                DLPI_RATIOS(DLPI_SAY_RATIO)
                DLPI_WORDS(DLPI_SAY_WORD)
            }
            if (mark == '[') { DLPI_TRUTHS(DLPI_SAY_IF) }
            if (mark != ']') at += n + 1;
            if (mark == '[' && !holds) at += strcspn(at, "|]") + 1;
        }
    }
}

_Static_assert(DLPI_OF_CONSUMER == -1 - DLPI_LIMIT_CONSUMER, "groups are numbered as limits");
_Static_assert(DLPI_OF_PRODUCERS == -1 - DLPI_LIMIT_PRODUCERS, "groups are numbered as limits");

/* True if the oldest item has been in work for 1,000 times the p99 of its stage, and for a second.
   A tenth of a second is enough if it is twice what the slowest item has taken. Below that an item
   may only have lost its core: a CPU quota takes cores away for up to 100 ms. The reader of a push
   may wait for its producers as long. */
static bool dlpi_hangs(const dlp_stats *s) {
    const uint64_t age = s->longest.current_age_ns;
    const dlp_stage_stats *g = s->stages;
    if (age < 100000000 || (uint32_t)s->longest.stage >= DLP_MAX_STAGES) return false;
    g += s->longest.stage;
    return g->p99_ns > 0 && age / 1000 >= g->p99_ns && dlpi_stage_reader(g).writers == 0 &&
           (age >= 1000000000 || age / 2 >= g->max_ns);
}

/* Choose the group of sentences that says what limits the pipe, and what to change. x->g becomes
   the stage that they are about. */
static int dlpi_tale_limit(dlpi_tale *x) {
    const int limit = x->v->limiting_stage, busiest = x->l->busiest;
    if (dlpi_hangs(x->s)) {
        x->g = &x->s->stages[x->s->longest.stage];
        return DLPI_OF_HANGS;
    }
    if (dlpi_all_left_out(x->s) > 0) return DLPI_OF_NONE;
    if ((x->g = x->out) != NULL) return DLPI_OF_OUT;
    for (int i = 0; i < x->l->n; i++)
        if (dlpi_stage_reader(x->g = &x->s->stages[i]).alone != 0) return DLPI_OF_ALONE;
    x->g = &x->s->stages[limit >= 0                      ? limit
                         : limit == DLPI_LIMIT_PRODUCERS ? x->l->reader
                         : busiest >= 0                  ? busiest
                                                         : 0];
    if (x->lock.waits > 0 && (limit == busiest || limit == DLPI_LIMIT_PREFETCH)) {
        x->g = &x->s->stages[busiest];
        return DLPI_OF_LOCK;
    }
    if (limit == DLPI_LIMIT_PREFETCH && dlpi_stage_turns(x->g)) return DLPI_OF_TURNS;
    if ((limit >= 0 || limit == DLPI_LIMIT_CORES) && dlpi_clears_much(x->g)) return DLPI_OF_CLEARS;
    dlpi_foretell(x->s, x->l, limit, &x->f);
    if (limit < 0) return -1 - limit; /* as the groups are numbered */
    if (x->g->workers <= 0) return DLPI_OF_INLINE;
    return dlpi_stage_has_many(x->g) && x->g->busy_ns > 0 ? DLPI_OF_MANY : DLPI_OF_WORKERS;
}

/* Write the text of dlp_stats_explain, and return its length. seen: what s was read from; NULL: not
   known. Nothing is known of the locks of a worker whose items have threads of their own. */
static int dlpi_stats_explain(const dlp_stats *s, const dlpi_seen *seen, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_load l;
    const dlpi_verdict v = dlpi_verdict_of(s);
    dlpi_tale x = {.t = &t, .s = s, .l = &l, .v = &v, .g = s->stages, .k = s->tune};
    const uint64_t kept = s->tunes < DLP_TUNE_NOTES ? s->tunes : DLP_TUNE_NOTES;
    dlpi_load_of(&l, s);
    if (seen != NULL && l.busiest >= 0 && !dlpi_stage_has_many(&s->stages[l.busiest]))
        dlpi_lock_look(seen, &seen->stages[l.busiest], &x.lock);
    x.out = dlpi_outs_limit(s, &x.others); /* needs: out */
    dlp_error_format(&s->first_skip, x.first_skip, sizeof x.first_skip);
    dlpi_tell(&x, x.told = dlpi_tale_limit(&x));
    for (int group = DLPI_OF_BETTER; group <= DLPI_OF_TUNED; group++)
        for (int i = 0; i == 0 || i < l.n; i++) {
            x.g = &s->stages[i];
            dlpi_tell(&x, group);
        }
    for (uint64_t i = kept > 4 ? kept - 4 : 0; i < kept; i++) {
        x.k = &s->tune[i];
        if (x.k->stage < 0 || x.k->stage >= l.n) continue;
        x.g = &s->stages[x.k->stage];
        dlpi_tell(&x, DLPI_OF_NOTE);
    }
    dlpi_tell(&x, DLPI_OF_REST);
    return dlpi_text_length(&t);
}

DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size) {
    if (s == NULL || (buf == NULL && size > 0)) return DLP_ERR_ARG;
    return dlpi_stats_explain(s, NULL, buf, size);
}

/* ---- explain a dlpi_seen ---- */

/* Append to a text what limits the pipe, and what the workers of each stage wait for, if the stage
   has a function that tells it. */
static void dlpi_explain(dlpi_text *t, const dlpi_seen *s) {
    const size_t at = t->len < t->size ? t->len : t->size;
    dlp_stats stats;
    dlpi_stats(s, &stats);
    t->len += (size_t)dlpi_stats_explain(&stats, s, t->buf ? t->buf + at : NULL, t->size - at);
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        char line[256] = ""; /* its end may be missing */
        if (st->tell && st->tell(st->tell_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %.255s.\n", st->r.name, line);
    }
}
