/* needs: parts join scratch */
/* Where does a row run that names no workers, if a row above it has workers? Each of 63 tables is
   run, and the row's callback notes the thread in which it is called. It never is the consumer's,
   unless the row asks for it. A row with workers of its own is told of by one warning at open.
     where list         each table, and the words of the warning or refusal */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Tables that are refused. This number may only fall. */
enum { TABLES = 63, MOST_REFUSED = 7 };

enum { FETCH, FETCH_ASYNC, FETCH_THREADS, MAPPED, SECOND_FETCH, LOADED, FILTERED, ABOVE };
enum { MAP, ON_ERROR, RETRIES, INIT, ENDS, LATER, LATER_THREADS, TWO_MAPS, FETCH_MAP, ROWS };

static const char *const above_[] = {"fetch",        "fetch async", "fetch in_flight", "map",
                                     "second fetch", "load, fetch", "filter"};
static const char *const rows_[] = {"map",           "map on_error", "map retries",
                                    "map init",      "map ends",     "later fetch",
                                    "fetch threads", "two maps",     "fetch, map"};

static const dlp_field x_ = {.name = "x", .dtype = DLP_U64}, y_ = {.name = "y", .dtype = DLP_U64},
                       z_ = {.name = "z", .dtype = DLP_U64};
static pthread_t consumer_;
static int inline_, elsewhere_; /* calls of the row in question */

static int fetch_item(void *user, dlp_item *it) { return (void)user, (void)it, 0; }
static int keep_item(void *user, const dlp_item *it) { return (void)user, (void)it, 1; }
static int load_part(void *user, dlp_part *part) { return (void)user, part->items = 2, 0; }

static int row_item(void *user, dlp_item *it) {
    int *count = pthread_equal(pthread_self(), consumer_) ? &inline_ : &elsewhere_;
    __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    return (void)user, (void)it, 0;
}

/* ---- an asynchronous fetch that answers at once ---- */

typedef struct requests {
    dlp_item *item[64];
    int n;
} requests;

static int enter(void *user, int worker, void **state) {
    return (void)user, (void)worker, (*state = calloc(1, sizeof(requests))) == NULL;
}
static void leave(void *user, int worker, void *state) {
    (void)user, (void)worker;
    free(state);
}
static int submit(void *user, void *state, dlp_item *it) {
    requests *r = state;
    (void)user;
    if (r->n == 64) return DLP_FULL;
    return r->item[r->n++] = it, 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    requests *r = state;
    int n = 0;
    (void)user, (void)timeout_ms;
    for (; r->n > 0 && n < max; n++) {
        done[n] = r->item[--r->n];
        code[n] = 0;
    }
    return n;
}
static const dlp_async async_ = {submit, reap};

/* ---- a table ---- */

static dlp_node nodes_[12];
static uint32_t n_nodes_;
static char words_[512]; /* of the last warning */
static int warnings_;

static void note(void *user, const char *message) {
    (void)user;
    if (strstr(message, "workers of its own, like those of") == NULL) return;
    warnings_++;
    snprintf(words_, sizeof words_, "%s", message);
}

static dlp_node *row(const char *name, int32_t verb) {
    nodes_[n_nodes_] = (dlp_node){.name = name, .verb = verb};
    return &nodes_[n_nodes_++];
}

static dlp_node *fetch_row(const char *name, dlp_item_fn fetch, const dlp_field *field) {
    dlp_node *node = row(name, DLP_FETCH);
    node->fetch = (dlp_node_fetch){.fetch = fetch, .fields = field, .n_fields = 1};
    return node;
}

static dlp_node *map_row(const char *name, dlp_item_fn item) {
    dlp_node *node = row(name, DLP_MAP);
    node->map.item = item;
    return node;
}

static void above_rows(int above) {
    dlp_node *node;
    if (above == LOADED) {
        node = row("load", DLP_LOAD);
        node->load = (dlp_node_load){.load = load_part, .max_items = 2, .max_part_bytes = 64};
        node->workers.num_workers = 2;
    }
    node = fetch_row("fetch", fetch_item, &x_);
    node->workers.num_workers = above == LOADED ? 0 : 2;
    if (above == FETCH_THREADS) node->fetch.in_flight = 4;
    if (above == FETCH_ASYNC) {
        node->fetch.fetch = NULL;
        node->fetch.async = &async_;
        node->fetch.in_flight = 8;
        node->workers.worker_init = enter;
        node->workers.worker_exit = leave;
    }
    if (above == MAPPED) map_row("above", fetch_item)->workers.num_workers = 2;
    if (above == SECOND_FETCH) fetch_row("above", fetch_item, &z_)->workers.num_workers = 2;
    if (above == FILTERED) row("above", DLP_FILTER)->filter.keep = keep_item;
}

static void row_rows(int which) {
    dlp_node *node;
    if (which == LATER || which == LATER_THREADS || which == FETCH_MAP) {
        node = fetch_row("row", row_item, &y_);
        if (which == LATER_THREADS) node->fetch.in_flight = 4;
        if (which == FETCH_MAP) map_row("next", row_item);
        return;
    }
    node = map_row("row", row_item);
    if (which == ON_ERROR) node->workers.on_error = DLP_ON_ERROR_DROP;
    if (which == RETRIES) node->workers.retries = 2;
    if (which == INIT) {
        node->workers.worker_init = enter;
        node->workers.worker_exit = leave;
    }
    if (which == ENDS) {
        node->map.ends = "x";
        node->map.fields = &y_;
        node->map.n_fields = 1;
    }
    if (which == TWO_MAPS) map_row("next", row_item);
}

/* Run one table. Returns the code of open. */
static int run(int above, int which, int32_t workers, dlp_error *err) {
    const dlp_pipe_desc desc = {.seed = 3, .log = note};
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    inline_ = elsewhere_ = warnings_ = 0;
    n_nodes_ = 0;
    row("list", DLP_LIST)->list.n_items = 64;
    above_rows(above);
    row_rows(which);
    for (uint32_t i = 0; i < n_nodes_; i++)
        if (i > 0 && nodes_[i].workers.num_workers == 0 && nodes_[i].verb != DLP_FILTER)
            nodes_[i].workers.num_workers = workers;
    row("batch", DLP_BATCH)->batch.batch_size = 8;
    if ((rc = dlp_pipe_open(&p, nodes_, n_nodes_, &desc, err)) != DLP_OK) return rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == DLP_END);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return DLP_OK;
}

/* True if the last warning names the row, or the fetch in whose attempt the row runs. */
static int names_row(int above) {
    return strstr(words_, "\"row\"") != NULL || strstr(words_, "\"next\"") != NULL ||
           (above == LOADED && strstr(words_, "\"fetch\"") != NULL);
}

static void row__names_no_workers__never_in_the_consumer(int list) {
    int all = 0, refused = 0, in_consumer = 0;
    for (int above = 0; above < ABOVE; above++)
        for (int which = 0; which < ROWS; which++, all++) {
            dlp_error err = {.code = 0};
            const int code = run(above, which, 0, &err);
            refused += code != DLP_OK;
            in_consumer += inline_ > 0;
            CHECK(code != DLP_OK || inline_ + elsewhere_ > 0);
            CHECK(code != DLP_OK || which != INIT || warnings_ > 0);
            if (warnings_ > 0) CHECK(names_row(above));
            if (!list) continue;
            printf("%-16s %-14s %s: %s\n", above_[above], rows_[which],
                   code != DLP_OK ? "refused"
                   : inline_ > 0  ? "consumer"
                                  : "workers",
                   code != DLP_OK ? err.message : words_);
        }
    printf("where: %d tables, %d in the consumer, %d refused\n", all, in_consumer, refused);
    CHECK(all == TABLES && in_consumer == 0 && refused <= MOST_REFUSED);
}

/* DLP_NONE asks for the thread of the consumer: no warning comes. */
static void row__asks_for_the_consumer__not_told(void) {
    for (int above = 0; above < ABOVE; above++)
        for (int which = 0; which < ROWS; which++) {
            dlp_error err = {.code = 0};
            if (run(above, which, DLP_NONE, &err) != DLP_OK) continue;
            CHECK(warnings_ == 0 && (inline_ > 0 || above == FILTERED || above == LOADED));
        }
}

int main(int argc, char **argv) {
    consumer_ = pthread_self();
    row__names_no_workers__never_in_the_consumer(argc > 1 && strcmp(argv[1], "list") == 0);
    row__asks_for_the_consumer__not_told();
    return test_end("where");
}
