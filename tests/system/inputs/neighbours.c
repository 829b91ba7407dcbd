/* needs: parts split join scratch guard cache pack */
/* Each kind and option of nodes beside each other one (tests/rig/neighbours.h): a wiring is either
   refused, by a node or a field that the error names, or it gives the rows that a direct program
   writes down: inline, then with workers in threads and in processes, resumed and sought after any
   batch with another number of workers, closed while it is full. Which pairs are refused stands
   below.
     neighbours                  all pairs, resumed once (SOAK=1: and all triples, and all of that)
     neighbours N [SEED]         N wirings of several kinds, drawn from that seed on
     neighbours = KINDS          one of them, as failures print it: filter+map+2 */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include <stdarg.h>

#include "../../rig/neighbours_rows.h"
#include "../../rig/neighbours_table.h"

/* Pairs in the first order that are refused, each once. */
static const char *const refused_[KINDS] = {
    [PARTS] = "buckets",
    [FOUND] = "buckets split unordered",
    [FILTER] = "buckets split unordered",
    [EXPAND] = "buckets split unordered",
    [PACK] = "buckets split unordered",
    [SHUFFLED] = "push",
    [BUCKETS] = "split push",
    [MIX] = "split",
    [ZIP] = "split",
    [SCRATCH] = "split",
    [CACHE] = "push",
    [COLLATE] = "split",
    [SPLIT] = "unordered share ragged push",
    [UNORDERED] = "share push",
    [SHARE] = "set_epoch",
};

static int processes_; /* they are to be had */
static long accepted_, runs_;
/* ---- a run ---- */

static void run(outcome *o, int workers, int processes, const dlp_state *resume) {
    now_.workers = workers;
    now_.processes = processes;
    o->rc = wire(resume, &o->error);
    o->started = o->rc == DLP_OK;
    if (o->started) take_rest(o);
    if (joins_branches()) without_index(o, o);
    /* What reads pushed items looks at its worker as that begins. */
    if (has(PUSH) && o->started && o->n_batches == 0) o->started = o->rc != DLP_ERR_CALLBACK;
    unwire(NULL, 0);
    runs_++;
}

/* ---- a wiring ---- */

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Is the word in the text, as a whole? */
static int has_word(const char *text, const char *word, size_t n) {
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || !is_letter(at[-1])) && !is_letter(at[n])) return 1;
    return 0;
}

/* Which of these kinds a text speaks of: bits. */
static uint64_t kinds_in(const char *text, uint64_t among) {
    uint64_t kinds = 0;
    for (int k = 0; k <= KINDS; k++) {
        char words[100];
        if (!(among >> k & 1)) continue;
        snprintf(words, sizeof words, "%s", kinds_[k].words);
        for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
            if (has_word(text, word, strlen(word))) kinds |= UINT64_C(1) << k;
    }
    return kinds;
}

/* Is a word of the text one of this kind's, and of no kind that is wired? */
static int is_stranger(const char *text, int k, uint64_t wired) {
    char words[100];
    snprintf(words, sizeof words, "%s", kinds_[k].words);
    for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        if (has_word(text, word, strlen(word)) && kinds_in(word, wired) == 0) return 1;
    return 0;
}

/* Is a number that the text says of a field the one that was given? Of other fields: yes. */
static int is_given(const char *field, long long is) {
    const wiring *w = &now_;
    const struct {
        const char *field;
        long long given[4];
    } all[] = {
        {"num_workers", {w->all.num_workers, w->few.num_workers, 0, 1}},
        {"order", {w->sampler.order}},
        {"unordered", {w->pipe.unordered}},
        {"in_flight", {w->fetch.in_flight}},
        {"fetcher", {w->fetch.fetcher}},
        {"dispatch", {w->fetch.workers.dispatch}},
        {"retries", {w->fetch.workers.retries, w->all.retries}},
        {"batch_size", {w->batch.batch_size, 6}},
        {"streams", {w->pipe.streams, 1}},
        {"window", {w->window, w->pack.window}},
        {"filter", {w->dataset.filter}},
        {"open_end", {w->dataset.open_end}},
        {"n_items", {(long long)w->dataset.n_items, ITEMS, MIXED, ITEMS + MIXED}},
        {"prefetch_factor", {w->pipe.prefetch_factor}},
        {"max_held", {w->pipe.max_held}},
    };
    if (w->workers > 0 && strcmp(field, "num_workers") == 0 && is <= 0) return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].field, field) != 0) continue;
        for (int k = 0; k < 4; k++)
            if (all[i].given[k] == is) return 1;
        return 0;
    }
    return 1;
}

/* Each "field is 5" of a text: the first that is not as it was given, or NULL. */
static const char *not_given(const char *text) {
    static char field[40];
    for (const char *at = strstr(text, " is "); at; at = strstr(at + 1, " is ")) {
        const char *from = at;
        char *end;
        long long is = strtoll(at + 4, &end, 10);
        while (from > text && is_letter(from[-1])) from--;
        snprintf(field, sizeof field, "%.*s", (int)(at - from), from);
        if (end != at + 4 && !is_given(field, is)) return field;
    }
    return NULL;
}

/* Who refuses says where, by what is wired, and by nothing else; numbers are those given. */
static int is_nameless(const outcome *o, const char *what) {
    const dlp_error *e = &o->error;
    const uint64_t wired = now_.kinds | (has(SCRATCH) ? UINT64_C(1) << DECODE : 0);
    char text[512], *cure;
    const char *field;
    snprintf(text, sizeof text, "%s: %s: %s", e->stage, e->field, e->message);
    if ((cure = strstr(text, ", or use ")) != NULL) *cure = 0; /* it may name what is not there */
    if (o->rc >= 0 || e->code != o->rc || !e->message[0] || (!e->stage[0] && !e->field[0]))
        return wrong("%s: refused with %s: %s", what, dlp_code_name(o->rc), text);
    if (kinds_in(text, wired) == 0 && !(now_.processes && has_word(text, "placement", 9)))
        return wrong("%s: the refusal names nothing that is wired: %s", what, text);
    for (int k = 0; k <= KINDS; k++)
        if (!(wired >> k & 1) && is_stranger(text, k, wired))
            return wrong("%s: the refusal speaks of %s: %s", what, kinds_[k].name, text);
    if ((field = not_given(text)) != NULL)
        return wrong("%s: the refusal says another %s than was given: %s", what, field, text);
    if (getenv("WORDS")) printf("  %s\n", text);
    return 0;
}

static int workers_wrong(const outcome *want, int workers, int processes) {
    static outcome o;
    char what[60];
    snprintf(what, sizeof what, "%d workers in %s", workers, processes ? "processes" : "threads");
    run(&o, workers, processes, NULL);
    if (processes && !o.started) return is_nameless(&o, what);
    return is_wrong(&o, want, 0, has(UNORDERED), what);
}

static int resume_wrong(const outcome *want, int at, int workers, int processes) {
    static outcome o;
    char what[80];
    snprintf(what, sizeof what, "resumed after batch %d with %d workers%s", at, workers,
             processes ? " in processes" : "");
    run(&o, workers, processes, &want->states[at]);
    return is_wrong(&o, want, want->ends[at], has(UNORDERED), what);
}

/* Backwards, in one pipe, with or without a batch taken before. */
static int seeks_wrong(const outcome *want, int workers) {
    static outcome o;
    int bad = 0;
    now_.workers = workers;
    now_.processes = 0;
    o.rc = wire(NULL, &o.error);
    o.started = o.rc == DLP_OK;
    for (int k = want->n_batches - 1; k >= 0 && o.started && !bad; k -= 2) {
        char what[60];
        dlp_batch *b = NULL;
        if (k & 2) CHECK(dlp_pipe_next_timeout(now_.p, &b, 30000) >= DLP_OK);
        o.rc = dlp_pipe_seek(now_.p, &want->states[k], &o.error);
        if (b) CHECK(dlp_pipe_release(now_.p, b) == DLP_OK);
        if (o.rc == DLP_ERR_UNSUPPORTED) break;
        if (o.rc == DLP_OK) take_rest(&o);
        if (joins_branches()) without_index(&o, &o);
        snprintf(what, sizeof what, "sought to batch %d with %d workers", k, workers);
        bad = is_wrong(&o, want, want->ends[k], has(UNORDERED), what);
    }
    unwire(NULL, 0);
    runs_++;
    return bad;
}

/* Closed while full, with batches held. */
static void close_early(int workers, int processes, int held) {
    dlp_batch *b[2];
    dlp_error err;
    int n = 0;
    now_.workers = workers;
    now_.processes = processes;
    if (wire(NULL, &err) == DLP_OK)
        while (n < held && dlp_pipe_next_timeout(now_.p, &b[n], 30000) == DLP_OK) n++;
    unwire(b, n);
    runs_++;
}

static int deep_wrong(const outcome *want, int least) {
    static const int workers[] = {4, 0, 2};
    for (int n = 1; n <= 4; n *= 2)
        if (workers_wrong(want, n, 0)) return 1;
    for (int n = 1; n <= 4 && processes_; n *= 4)
        if (workers_wrong(want, n, 1)) return 1;
    for (int k = 0; k < want->n_batches && !has(PUSH); k++) {
        int n = workers[k % 3] > least ? workers[k % 3] : least;
        if (resume_wrong(want, k, n, processes_ && k % 5 == 4)) return 1;
    }
    if (!has(PUSH) && (seeks_wrong(want, least) || seeks_wrong(want, 4))) return 1;
    for (int held = 0; held <= 2; held += 2)
        for (int processes = 0; processes <= processes_; processes++)
            close_early(4, processes, held);
    return 0;
}

/* Returns whether it is wrong, and why in wrong_; *refused: whether it was refused. */
static int is_wiring_wrong(int deep, int turn, int *refused) {
    static outcome first, rows;
    const int least = has(SHARE) || has(IN_FLIGHT); /* what has no inline form */
    const int other_order = has(SHUFFLED) || has(BUCKETS) || has(WINDOW) || has(STREAMS) ||
                            has(MIX) || (has(PARTS) && has(PUSH));
    run(&first, least, 0, NULL);
    *refused = !first.started;
    if (*refused) return is_nameless(&first, "no workers");
    accepted_++;
    write_all(&rows);
    if (joins_branches()) without_index(&rows, &rows);
    if (is_known() && is_wrong(&first, &rows, 0, other_order || has(UNORDERED), "no workers"))
        return 1;
    if (deep) return deep_wrong(&first, least);
    for (int n = 1; n <= 4; n *= 2)
        if (workers_wrong(&first, n, 0)) return 1;
    if (processes_ && workers_wrong(&first, 2, 1)) return 1;
    if (!has(PUSH) && resume_wrong(&first, first.n_batches / 2, 2, 0)) return 1;
    close_early(2, 0, turn % 3);
    return 0;
}

static const char *describe(void) {
    static char text[400];
    text[0] = 0;
    for (int k = 0; k < KINDS; k++)
        if (has(k)) strcat(strcat(text, kinds_[k].name), "+");
    snprintf(text + strlen(text), 12, "%d", now_.order);
    return text;
}

static void hung(int signal_number) {
    (void)signal_number;
    printf("failed: build/tests/neighbours = %s hangs\n", describe());
    fflush(stdout);
    _exit(1);
}

/* Returns 1: refused, 0: not, -1: it is not run. */
static int one(uint64_t kinds, int order, int deep, int turn) {
    int refused = 0, bad;
    now_.kinds = kinds;
    now_.order = order;
    if (has(SHARE) && !processes_) return -1;
    if (joins_branches() && __builtin_popcountll(kinds) > 2) return -1; /* of pairs alone */
    alarm(200);
    bad = is_wiring_wrong(deep, turn, &refused);
    alarm(0);
    CHECK(!bad);
    if (bad) printf("failed: build/tests/neighbours = %s: %s\n", describe(), wrong_);
    return refused;
}

/* ---- which ---- */

static int is_listed(int a, int b) {
    char list[400], name[40];
    snprintf(list, sizeof list, " %s ", refused_[a] ? refused_[a] : "");
    snprintf(name, sizeof name, " %s ", kinds_[b].name);
    return strstr(list, name) != NULL;
}

static void pairs(int deep, int step) {
    int turn = 0;
    for (int a = 0; a < KINDS; a++)
        for (int b = a; b < KINDS; b++) {
            int refused;
            if (turn++ % step != 0) continue;
            refused = one(UINT64_C(1) << a | UINT64_C(1) << b, 0, deep, turn);
            CHECK(refused < 0 || refused == is_listed(a, b));
            if (refused >= 0 && refused != is_listed(a, b))
                printf("%s is %s\n", describe(), refused ? "refused" : "accepted");
        }
}

static void triples(void) {
    int turn = 0;
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++)
            for (int c = b + 1; c < KINDS; c++, turn++)
                one(UINT64_C(1) << a | UINT64_C(1) << b | UINT64_C(1) << c, turn % ORDERS, 1, turn);
}

/* Three to eight kinds, of which no two are refused. */
static void drawn(uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t d = dlp_hash(seed + i, 0x2026, 1, 1), kinds = 0;
        for (uint32_t k = 3 + test_pick(&d, 6), tries = 0; k > 0 && tries < 50; tries++) {
            int x = (int)test_pick(&d, KINDS), fits = !(kinds >> x & 1);
            for (int y = 0; y < KINDS && fits; y++)
                fits = !(kinds >> y & 1) || !(is_listed(x, y) || is_listed(y, x));
            if (!fits) continue;
            kinds |= UINT64_C(1) << x;
            k--;
        }
        one(kinds, (int)test_pick(&d, ORDERS), 1, 0);
    }
}

static void named(char *text) {
    uint64_t kinds = 0;
    int order = 0, refused;
    for (char *word = strtok(text, "+"); word; word = strtok(NULL, "+")) {
        if (word[0] >= '0' && word[0] < '0' + ORDERS) order = word[0] - '0';
        for (int k = 0; k < KINDS; k++)
            if (strcmp(word, kinds_[k].name) == 0) kinds |= UINT64_C(1) << k;
    }
    refused = one(kinds, order, 1, 0);
    printf("  %s is %s\n", describe(), refused ? "refused" : "accepted");
}

int main(int argc, char **argv) {
    signal(SIGALRM, hung);
    epoch_ = shm_shared(sizeof *epoch_);
    mixes_open();
    processes_ = shm_missing() == NULL;
    if (argc > 2 && argv[1][0] == '=') {
        named(argv[2]);
    } else if (argc > 1) {
        drawn(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    } else {
        pairs(getenv("SOAK") != NULL, getenv("SHORT") ? 8 : 1);
        if (getenv("SOAK")) triples();
    }
    mixes_close();
    printf("  %ld wirings accepted, %ld runs\n", accepted_, runs_);
    CHECK(runs_ > 0);
    return test_end("neighbours");
}
