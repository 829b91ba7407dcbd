/* needs: parts out split */
/* What explain says of clearing: pipes whose time goes into setting bytes to 0. The first line must
   name the stage, the field and its room. The change that it names, made here, must make the line
   go away, and the rate rise. Argument: a part of the names of the cases to run. CLEARS_SAY=1
   prints each text. If others take the cores, the test says so and judges nothing, but with
   CLEARS_JUDGE=1. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/others.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 20, PART = 65536, ITEMS = 4, TRIES = 4, RUN_MS = 250 };

/* What a pipe is: of which nodes, and what its callbacks do. */
typedef struct pipe_of {
    enum { ROWS, FILTERED, EXPANDED, COLLATED, MAPPED } kind;
    int32_t workers, place, in_flight;
    int32_t ragged; /* 1: rows of 100 B; 2: each second one has the length of its room; 3: a byte
                       behind the length is written, too */
    int32_t small;  /* 1: the room is 8 bytes, or 128 if it is ragged */
    int32_t works;  /* the callback goes over this many bytes more */
    int32_t writes_all;
} pipe_of;

static pipe_of now;
static char text[8192];
static uint8_t work[1 << 20];
static dlp_field fields[2], part, sum;

static int fetch(void *user, dlp_item *it) {
    const uint64_t room = now.small ? (now.ragged ? 128 : 8) : ROOM;
    uint64_t n =
        now.ragged == 0 ? 8 : 100; /* with writes_all it breaks its word, to take no time */
    if (now.ragged == 2 && it->index % 2 == 1) n = room;
    if (now.ragged) it->length[1] = n;
    (void)user;
    memset(it->data[0], 1, 8);
    if (it->n_fields > 1) memset(it->data[1], 1, now.ragged == 3 ? 101 : 8);
    for (int32_t k = 0; k < now.works; k += 8) {
        uint64_t word;
        memcpy(&word, work + k % (int32_t)sizeof work, 8);
        __asm__ volatile("" : : "r"(word));
    }
    return 0;
}

static int fetch_id(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 1, 8);
    return 0;
}

static int keep(void *user, const dlp_item *it) {
    (void)user;
    return it->index % 16 == 0; /* those that are left out are not copied into rows */
}

static int expand(void *user, dlp_expand *x) {
    (void)user;
    for (int i = 0; i < ITEMS; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return -1;
        memset(it->data[0], 1, 8);
    }
    return 0;
}

static int map(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[1], 1, 8);
    return 0;
}

static int collate(void *user, dlp_collate *c) {
    (void)user;
    for (uint32_t f = 0; f < c->n_out; f++) memset(c->out[f].data, 1, 8);
    return 0;
}

static int open_pipe(dlp_pipe **p, dlp_error *err) {
    const dlp_workers_desc w = {.num_workers = now.workers, .placement = now.place};
    const dlp_node list = {.name = "items", .verb = DLP_LIST, .list = {.n_items = 1 << 24}};
    const dlp_node batch = {
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}, .queue = {.capacity = 4}};
    dlp_node r = {.name = "r",
                  .verb = DLP_FETCH,
                  .fetch = {.fetch = fetch,
                            .fields = fields,
                            .n_fields = 2,
                            .writes_all_bytes = now.writes_all},
                  .workers = w};
    const dlp_node filter = {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep}};
    dlp_node nodes[6] = {list, r, batch};
    uint32_t n = 3;
    if (now.in_flight > 0) nodes[1].fetch.in_flight = (uint32_t)now.in_flight;
    if (now.kind == FILTERED) {
        nodes[n++] = batch;
        nodes[2] = filter;
    } else if (now.kind == EXPANDED) {
        nodes[n++] = filter;
        nodes[n++] = batch;
        nodes[1].fetch = (dlp_node_fetch){.fetch = fetch_id, .fields = fields, .n_fields = 1};
        nodes[2] = (dlp_node){.name = "cut",
                              .verb = DLP_EXPAND,
                              .expand = {.expand = expand,
                                         .fields = &part,
                                         .n_fields = 1,
                                         .max_out = ITEMS,
                                         .writes_all_bytes = now.writes_all}};
    } else if (now.kind == MAPPED) {
        nodes[n++] = batch;
        nodes[1].fetch = (dlp_node_fetch){.fetch = fetch_id, .fields = fields, .n_fields = 1};
        nodes[2] = (dlp_node){.name = "wide",
                              .verb = DLP_MAP,
                              .map = {.item = map, .fields = &fields[1], .n_fields = 1}};
    } else if (now.kind == COLLATED) {
        nodes[1].fetch = (dlp_node_fetch){.fetch = fetch_id, .fields = fields, .n_fields = 1};
        nodes[2].batch.collate = collate;
        nodes[2].batch.out_fields = &sum;
        nodes[2].batch.n_out_fields = 1;
        nodes[2].workers = w;
    }
    nodes[n++] = (dlp_node){.name = "train", .verb = DLP_OUT};
    return dlp_pipe_open(p, nodes, n, NULL, err);
}

/* Run the pipe for a while. Returns its items a second; text is what explain says of it. */
static double rate_of(const pipe_of *as, dlp_stats *s) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err = {0};
    uint64_t until;
    int rc;
    now = *as;
    memset(fields, 0, sizeof fields);
    fields[0] = (dlp_field){.name = "id", .dtype = DLP_U64};
    fields[1] =
        (dlp_field){.name = "tokens", .dtype = DLP_U8, .ndim = 1, .ragged = now.ragged != 0};
    fields[1].shape[0] = now.small ? (now.ragged ? 128 : 8) : ROOM;
    part = (dlp_field){.name = "piece", .dtype = DLP_U8, .ndim = 1, .shape = {PART}};
    sum = (dlp_field){.name = "sum", .dtype = DLP_U8, .ndim = 1, .shape = {now.small ? 8 : ROOM}};
    rc = open_pipe(&p, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("open: %s: %s\n", err.field, err.message);
    until = test_now_ns() + RUN_MS * UINT64_C(1000000);
    while (rc == DLP_OK && test_now_ns() < until) {
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_OK);
    memset(s, 0, sizeof *s);
    text[0] = 0;
    if (rc == DLP_OK) {
        CHECK(dlp_pipe_stats(p, s) == DLP_OK);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    }
    dlp_pipe_close(p);
    return s->wait_ns > 0 ? (double)s->items * 1e9 / (double)(s->wait_ns + s->step_ns) : 1;
}

/* ---- the cases ---- */

static void writes_all(pipe_of *as) { as->writes_all = 1; }
static void small(pipe_of *as) { as->small = 1; }
static void not_padded(pipe_of *as) { as->ragged = 1; }

#define PLAIN_CURE "Change: set writes_all_bytes = 1 "
#define SAYS "Limit: clearing: "
#define OF_FIELD " goes into setting bytes to 0, most of it for field "
#define TOKENS " % of the time of 'r'" OF_FIELD "'tokens': 1.00 MiB for each item"

typedef struct expected {
    const char *name;
    pipe_of as;
    const char *cause, *cure;    /* cause NULL: nothing is said of clearing */
    void (*change)(pipe_of *as); /* after it, nothing is said */
    double least;                /* ratio of the rates after the change and before */
} expected;

static const expected all[] = {
    {"rows, inline", {.kind = ROWS, .workers = DLP_NONE}, TOKENS, PLAIN_CURE, writes_all, 4},
    {"rows, smaller", {.kind = ROWS, .workers = DLP_NONE}, TOKENS, PLAIN_CURE, small, 4},
    {"rows, a thread", {.kind = ROWS, .workers = 1}, TOKENS, PLAIN_CURE, writes_all, 2},
    {"rows, processes",
     {.kind = ROWS, .workers = 1, .place = DLP_PLACE_PROCESSES},
     TOKENS,
     PLAIN_CURE,
     writes_all,
     2},
    {"rows, requests",
     {.kind = ROWS, .workers = 1, .in_flight = 4},
     TOKENS,
     PLAIN_CURE,
     writes_all,
     1.2},
    {"filter, inline",
     {.kind = FILTERED, .workers = DLP_NONE},
     "'keep'" OF_FIELD "'tokens'",
     PLAIN_CURE,
     writes_all,
     1.5},
    {"filter, a thread",
     {.kind = FILTERED, .workers = 1},
     "'keep'" OF_FIELD "'tokens'",
     PLAIN_CURE,
     writes_all,
     1.5},
    {"expand",
     {.kind = EXPANDED, .workers = 1},
     "'cut'" OF_FIELD "'piece': 64.0 KiB for each item",
     PLAIN_CURE,
     writes_all,
     1.5},
    {"map",
     {.kind = MAPPED, .workers = 1},
     "'r'" OF_FIELD "'tokens': 1.00 MiB for each item",
     "Change: declare a smaller 'tokens', or raise num_workers",
     small,
     2},
    {"padded",
     {.kind = ROWS, .workers = 1, .ragged = 3},
     " for each item, which uses 100 bytes of a room of 1.00 MiB",
     "Change: write no bytes behind the length of 'tokens'",
     not_padded,
     2},
    {"some are long",
     {.kind = ROWS, .workers = 1, .ragged = 2},
     " KiB of a room of 1.00 MiB",
     PLAIN_CURE,
     NULL,
     0},
    {"collate",
     {.kind = COLLATED, .workers = 1},
     "'batch'" OF_FIELD "'sum': 1.00 MiB for each item",
     "Change: declare a smaller 'sum', or raise workers.num_workers",
     small,
     2},
    {"collate, inline",
     {.kind = COLLATED, .workers = DLP_NONE},
     "'batch'" OF_FIELD "'sum'",
     "Change: declare a smaller 'sum'; no setting leaves",
     small,
     2},
    {"work, a thread", {.kind = ROWS, .workers = 1, .works = 1 << 24}, NULL, "Limit: ", NULL, 0},
    {"work, inline",
     {.kind = ROWS, .workers = DLP_NONE, .works = 1 << 24},
     NULL,
     "Limit: stage 'r' runs inline",
     NULL,
     0},
    {"small, a thread", {.kind = ROWS, .workers = 1, .small = 1}, NULL, "Limit: ", NULL, 0},
    {"small, inline", {.kind = ROWS, .workers = DLP_NONE, .small = 1}, NULL, "Limit: ", NULL, 0},
    {"small, filter", {.kind = FILTERED, .workers = 1, .small = 1}, NULL, "Limit: ", NULL, 0},
    {"small, ragged",
     {.kind = ROWS, .workers = DLP_NONE, .small = 1, .ragged = 1},
     NULL,
     "Limit: ",
     NULL,
     0},
    {"all bytes", {.kind = ROWS, .workers = 1, .writes_all = 1}, NULL, "Limit: ", NULL, 0},
};
enum { N = sizeof all / sizeof *all };

static bool says_clearing(void) { return strstr(text, SAYS) != NULL; }

static bool one_try(const expected *e, bool *quiet) {
    const bool say = getenv("CLEARS_SAY") != NULL;
    const double others = test_others_s();
    const uint64_t from = test_now_ns();
    pipe_of as = e->as;
    dlp_stats s;
    double before = rate_of(&as, &s), after = 0;
    bool ok =
        e->cause != NULL ? says_clearing() && strstr(text, e->cause) != NULL : !says_clearing();
    ok = ok && strstr(text, e->cure) != NULL;
    if (!ok && e->cause != NULL && strstr(text, "Limit: prefetch_factor") != NULL)
        ok = strstr(text, "Better: writes_all_bytes = 1 in ") != NULL; /* others have the cores */
    if (!ok || say) {
        printf("%s: %.0f items/s\n", e->name, before);
        for (uint32_t i = 0; i < s.n_stages; i++)
            if (s.stages[i].busy_ns > 0)
                printf("  %s: busy %.3f s, clears %.3f s, spared %.3f s, '%s' %.0f: %.0f of %.0f\n",
                       s.stages[i].name, (double)s.stages[i].busy_ns * 1e-9,
                       (double)s.stages[i].clears.ns * 1e-9,
                       (double)s.stages[i].clears.spared_ns * 1e-9, s.stages[i].clears.field,
                       (double)s.stages[i].clears.room, (double)s.stages[i].clears.cleared,
                       (double)s.stages[i].clears.used);
        printf("%s", text);
    }
    if (ok && e->change != NULL) {
        e->change(&as);
        after = rate_of(&as, &s);
        ok = !says_clearing() && after >= e->least * before;
        if (!ok || say) printf("%s: then %.0f items/s\n%s", e->name, after, text);
    }
    *quiet = getenv("CLEARS_JUDGE") != NULL ||
             test_others_s() - others < 0.1 * (double)(test_now_ns() - from) / 1e9;
    return ok;
}

int main(int argc, char **argv) {
    int unjudged = 0;
    for (int i = 0; i < N; i++) {
        int quiet = 0;
        bool ok = false;
        if (argc > 1 && strstr(all[i].name, argv[1]) == NULL) continue;
        for (int k = 0; k < TRIES && !ok; k++) {
            bool was_quiet;
            ok = one_try(&all[i], &was_quiet);
            quiet += was_quiet;
        }
        if (!ok && quiet < 2) unjudged++;
        if (!ok && quiet < 2) printf("%s: not judged, the machine is too busy\n", all[i].name);
        CHECK(ok || quiet < 2);
    }
    if (unjudged) printf("clears: %d of %d not judged\n", unjudged, (int)N);
    return test_end("clears");
}
