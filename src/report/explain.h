#pragma once
/* tests: system/report/texts, system/report/advice, system/report/pipe_stats */
#include "report/limit.h"
#include "report/outs.h" /* needs: out */
#include "report/packing.h"
#include "report/sentences.h"
#include "report/stats.h"
/* ---- explain: the table of sentences, told ---- */

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
    uint64_t others;            /* slots that outs may hold */
    const dlp_stage_stats *out; /* the out that the pipe waits for; NULL: it waits for none */
    bool open;                  /* a sentence's line is not ended */
} dlpi_tale;

typedef struct dlpi_counted {
    const char *name;
    int64_t value;
} dlpi_counted;

typedef struct dlpi_row {
    int group;
    bool holds;
    const char *says;
} dlpi_row;

/* True if the row is said now, while this group is told. *topic: the group's last begun
   sentence. */
static bool dlpi_row_next(dlpi_tale *x, const dlpi_row *row, int group, const char **topic) {
    const char *says = row->says;
    const bool begins = says[0] >= 'A' && says[0] <= 'Z';
    if (row->group != group || !row->holds || begins == x->open) return false;
    if (begins && strncmp(says, *topic, 4) == 0) return false;
    if (begins) *topic = says;
    x->open = says[strlen(says) - 1] != '\n';
    return true;
}

#define DLPI_IS(id) (n == sizeof #id - 1 && memcmp(at, #id, n) == 0)
#define DLPI_COUNT_OF(of, id) {#id, (int64_t)(of)->id},
#define DLPI_SAY_NUMBER(id, as, number) \
    if (DLPI_IS(id)) form = dlpi_num_##as, value = (double)(number);
#define DLPI_SAY_WORD(id, word) \
    if (DLPI_IS(id)) dlpi_text_add(x->t, DLPI_IS(name) ? "%.31s" : "%s", word);
#define DLPI_ROW_OF(of, condition, sentence) {DLPI_OF_##of, condition, sentence},

/* Append the sentences of a group whose conditions hold. The table's rows name these variables. */
static void dlpi_tell(dlpi_tale *x, int group) {
    const dlp_stats *s = x->s;
    const dlpi_load *l = x->l;
    const dlpi_verdict *v = x->v;
    const dlp_stage_stats *g = x->g;
    const dlp_tune_note *k = x->k;
    const dlp_stream_stats *y = &g->spread;
    const dlp_chunk_stats *c = &s->chunks;
    const dlp_worker_stats *w = &s->longest;
    const dlpi_kind_words *words = &dlpi_words_ops(g)->words;
    const dlpi_reader_words reader = dlpi_stage_reader(g), *r = &reader;
    const uint64_t age = w->current_age_ns;
    const int i = (int)(g - s->stages);
    const bool chunks = dlpi_of_chunks(s), batches = dlpi_stage_takes_batches(g);
    const bool last = v->next_limit == v->limiting_stage, uneven = y->most > y->least;
    const bool crowded = v->next_limit == DLPI_LIMIT_CORES || dlpi_cores_crowded(s);
    const bool none = x->f.n == 0 || (x->f.n < 0 && v->rate_plus_one < v->rate * 1.05);
    const bool taken = l->used < 0.9 && l->cores > l->used;
    const bool filters = words->items == NULL && g->inputs_items > 0 && g->inputs_empty > 0 &&
                         g->inputs_items + g->inputs_empty == g->inputs;
    const bool hangs = age >= 1000000000 || (age >= 100000000 && age / 2 >= g->p99_ns);
    const double out = (double)g->in_flight_ns / (double)g->busy_ns;
    const double batch_ns = l->ns / (double)s->batches, work = dlpi_batch_work(s, l);
    const double without = work + (double)s->step_ns / (double)s->batches;
    const bool hurried =
        work >= 1 && s->batches >= 200 && batch_ns <= 100000 && without <= 0.9 * batch_ns;
    const dlpi_counted counts[] = {DLPI_COUNTS(DLPI_COUNT_OF)};
    const dlpi_row rows[] = {DLPI_SENTENCES(DLPI_ROW_OF)};
    const char *topic = "";
    for (const dlpi_row *row = rows; row < rows + sizeof rows / sizeof *rows; row++) {
        if (!dlpi_row_next(x, row, group, &topic)) continue;
        for (const char *at = row->says; *at != 0;) {
            size_t n = strcspn(at, "{");
            dlpi_text_add(x->t, "%.*s", (int)n, at);
            if (at[n] == 0) break;
            at += n + 1;
            n = strcspn(at, "}");
            dlpi_num (*form)(double) = NULL;
            double value = 0;
            for (const dlpi_counted *m = counts; m < counts + sizeof counts / sizeof *counts; m++)
                if (strncmp(m->name, at, n) == 0 && m->name[n] == 0)
                    dlpi_text_add(x->t, "%" PRId64, m->value);
            DLPI_NUMBERS(DLPI_SAY_NUMBER)
            DLPI_WORDS(DLPI_SAY_WORD)
            if (form != NULL) dlpi_text_add(x->t, "%s", form(value).s);
            at += n + 1;
        }
    }
}

/* Tell the groups `from` to `to`. Groups about stages are told once for each stage. */
static void dlpi_tell_groups(dlpi_tale *x, int from, int to) {
    static const uint32_t each = 1u << DLPI_OF_SKEW | 1u << DLPI_OF_SLOW | 1u << DLPI_OF_INPUTS |
                                 1u << DLPI_OF_STREAMS | 1u << DLPI_OF_PACKING |
                                 1u << DLPI_OF_PARTS | 1u << DLPI_OF_TIME | 1u << DLPI_OF_IDLE |
                                 1u << DLPI_OF_ERRORS | 1u << DLPI_OF_TUNED;
    for (int group = from; group <= to; group++)
        for (int i = 0; i < ((each >> group & 1) ? x->l->n : 1); i++) {
            if (each >> group & 1) x->g = &x->s->stages[i];
            if (group == DLPI_OF_PACKING) dlpi_explain_packing(x->t, x->g); /* needs: parts pack */
            if (group == DLPI_OF_TUNED) dlpi_explain_out(x->t, x->g);       /* needs: out */
            dlpi_tell(x, group);
        }
}

/* Tell what limits the pipe, and what to change. */
static void dlpi_tell_limit(dlpi_tale *x) {
    static const int groups[] = {DLPI_OF_CONSUMER, DLPI_OF_CORES, DLPI_OF_PREFETCH, DLPI_OF_UNKNOWN,
                                 DLPI_OF_PRODUCERS};
    const int limit = x->v->limiting_stage, busiest = x->l->busiest;
    if ((x->g = x->out) != NULL) {
        dlpi_tell(x, DLPI_OF_OUT);
        return;
    }
    for (int i = 0; i < x->l->n; i++)
        if (dlpi_stage_reader(x->g = &x->s->stages[i]).alone != 0) {
            dlpi_tell(x, DLPI_OF_PRODUCERS);
            return;
        }
    x->g = &x->s->stages[limit >= 0                      ? limit
                         : limit == DLPI_LIMIT_PRODUCERS ? x->l->reader
                         : busiest >= 0                  ? busiest
                                                         : 0];
    if (limit == DLPI_LIMIT_PREFETCH && dlpi_stage_turns(x->g)) {
        dlpi_tell(x, DLPI_OF_TURNS);
        return;
    }
    if (limit == DLPI_LIMIT_PREFETCH)
        dlpi_prefetch_foretell(x->s, x->l, &x->f);
    else if (limit >= 0 && x->g->workers <= 0)
        dlpi_inline_foretell(x->s, x->l, limit, &x->f);
    else if (limit >= 0 && dlpi_stage_sleeps(x->s, x->g))
        dlpi_many_foretell(x->s, x->l, limit, &x->f);
    dlpi_tell(x, limit < 0                                        ? groups[-1 - limit]
                 : x->g->workers <= 0                             ? DLPI_OF_INLINE
                 : dlpi_stage_has_many(x->g) && x->g->busy_ns > 0 ? DLPI_OF_MANY
                                                                  : DLPI_OF_WORKERS);
    if (limit == DLPI_LIMIT_PREFETCH) dlpi_tell_groups(x, DLPI_OF_SKEW, DLPI_OF_SKEW);
}

DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_load l;
    if (s == NULL || (buf == NULL && size > 0)) return DLP_ERR_ARG;
    const dlpi_verdict v = dlpi_verdict_of(s);
    dlpi_tale x = {.t = &t, .s = s, .l = &l, .v = &v, .g = s->stages, .k = s->tune};
    const uint64_t kept = s->tunes < DLP_TUNE_NOTES ? s->tunes : DLP_TUNE_NOTES;
    dlpi_load_of(&l, s);
    x.others = dlpi_outs_slots(s); /* needs: out */
    x.out = dlpi_outs_limit(s);    /* needs: out */
    dlp_error_format(&s->first_skip, x.first_skip, sizeof x.first_skip);
    dlpi_tell_limit(&x);
    x.g = &s->stages[s->longest.stage >= 0 && s->longest.stage < l.n ? s->longest.stage : 0];
    dlpi_tell_groups(&x, DLPI_OF_LONGEST, DLPI_OF_TUNED);
    for (uint64_t i = kept > 4 ? kept - 4 : 0; i < kept; i++) {
        x.k = &s->tune[i];
        if (x.k->stage < 0 || x.k->stage >= l.n) continue;
        x.g = &s->stages[x.k->stage];
        dlpi_tell(&x, DLPI_OF_NOTE);
    }
    dlpi_tell(&x, DLPI_OF_REST);
    return dlpi_text_length(&t);
}

/* ---- explain a dlpi_seen ---- */

/* Append for each stage what its workers wait for, if the stage has a function that tells it. */
static void dlpi_explain_waits(dlpi_text *t, const dlpi_seen *s) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        char line[256] = ""; /* its end may be missing */
        if (st->tell && st->tell(st->tell_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %.255s.\n", st->r.name, line);
    }
}

static int dlpi_explain(dlpi_text *t, const dlpi_seen *s) {
    const size_t at = t->len < t->size ? t->len : t->size;
    dlp_stats stats;
    int n;
    dlpi_stats(s, &stats);
    n = dlp_stats_explain(&stats, t->buf ? t->buf + at : NULL, t->size - at);
    if (n < 0) return n;
    t->len += (size_t)n;
    dlpi_explain_waits(t, s);
    return DLP_OK;
}
