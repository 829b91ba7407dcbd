/* needs: parts */
/* The seam between two rows of a table: a row behind a maker fails, and the maker, which is in the
   middle of an input, goes on. A callback that keeps to max_out gets a place for each item,
   whatever became of the item before. The error is that of the row that failed. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <string.h>

enum { INPUTS = 8, MOST = 3, BAD_INPUT = 5 };
enum { FILTER, MAP, FETCH, EXPAND, LOAD, BEHINDS };

static struct {
    uint32_t bad_item;        /* the row behind fails for this item of BAD_INPUT, and later ones */
    int asks, tries;          /* the expand adds until NULL; attempts that fail */
    uint32_t nulls, too_many; /* NULLs within max_out; places beyond it */
    uint32_t dirty, attempts; /* places that were not zeros; failed calls */
} now_;

static const dlp_field x_ = {.name = "x", .dtype = DLP_U64}, y_ = {.name = "y", .dtype = DLP_U64};

static int fetch_input(void *user, dlp_item *it) {
    return (void)user, *(uint64_t *)it->data[0] = it->index, 0;
}

/* Add MOST items; or, if it asks, as many as it gets. */
static int expand_item(void *user, dlp_expand *x) {
    const uint64_t base = *(const uint64_t *)x->item->data[0];
    (void)user;
    for (uint64_t i = 0; i < MOST || (now_.asks && base == BAD_INPUT && i < 100); i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL && i < MOST) now_.nulls++;
        if (it == NULL) return 0;
        if (i >= MOST) now_.too_many++;
        now_.dirty += *(uint64_t *)it->data[0] != 0;
        *(uint64_t *)it->data[0] = base * 10 + i;
    }
    return 0;
}

/* Fail for the items that are to fail, in as many attempts as are to fail. */
static int fails(uint64_t value, dlp_call *call) {
    if (value / 10 != BAD_INPUT || value % 10 < now_.bad_item) return 0;
    if (now_.attempts >= (uint32_t)now_.tries) return 0;
    if (value % 10 == now_.bad_item) now_.attempts++;
    return dlp_fail(call, 5, "bad luck");
}

static int keep(void *user, const dlp_item *it) {
    const int rc = fails(*(const uint64_t *)it->data[0], it->call);
    return (void)user, rc != 0 ? rc : 1;
}
static int touch(void *user, dlp_item *it) {
    return (void)user, fails(*(const uint64_t *)it->data[0], it->call);
}
static int fetch_more(void *user, dlp_item *it) {
    return (void)user, *(uint64_t *)it->data[0] = it->index, 0;
}
static int again(void *user, dlp_expand *x) {
    const uint64_t value = *(const uint64_t *)x->item->data[0];
    dlp_item *it;
    const int rc = fails(value, x->call);
    (void)user;
    if (rc != 0) return rc;
    if ((it = dlp_expand_add(x)) == NULL) return now_.nulls++, 0;
    *(uint64_t *)it->data[0] = value;
    return 0;
}
static int load(void *user, dlp_part *part) {
    const uint64_t value = *(const uint64_t *)part->of->data[0];
    (void)user;
    memcpy(part->data, &value, sizeof value);
    part->bytes = sizeof value;
    part->items = 1;
    return fails(value, part->call);
}
static int fetch_loaded(void *user, dlp_item *it) {
    return (void)user, memcpy(it->data[0], it->part->data, sizeof(uint64_t)), 0;
}

typedef struct told {
    uint64_t rows, wrong;
    int rc;
    dlp_error err;
} told;

static uint32_t table(dlp_node *t, int behind, const dlp_workers_desc *w) {
    uint32_t n = 0;
    t[n++] = (dlp_node){.name = "list", .verb = DLP_LIST, .list = {.n_items = INPUTS}};
    t[n++] = (dlp_node){.name = "read",
                        .verb = DLP_FETCH,
                        .fetch = {.fetch = fetch_input, .fields = &x_, .n_fields = 1},
                        .workers = *w};
    t[n++] = (dlp_node){
        .name = "expand", .verb = DLP_EXPAND, .expand = {.expand = expand_item, .max_out = MOST}};
    if (behind == FETCH)
        t[n++] = (dlp_node){.name = "more",
                            .verb = DLP_FETCH,
                            .fetch = {.fetch = fetch_more, .fields = &y_, .n_fields = 1}};
    if (behind == MAP || behind == FETCH)
        t[n++] = (dlp_node){.name = "row", .verb = DLP_MAP, .map = {.item = touch}};
    if (behind == EXPAND)
        t[n++] = (dlp_node){
            .name = "row", .verb = DLP_EXPAND, .expand = {.expand = again, .max_out = 1}};
    if (behind == LOAD) {
        t[n++] = (dlp_node){.name = "row",
                            .verb = DLP_LOAD,
                            .load = {.load = load, .max_items = 1, .max_part_bytes = 64}};
        t[n++] = (dlp_node){.name = "loaded",
                            .verb = DLP_FETCH,
                            .fetch = {.fetch = fetch_loaded, .fields = &x_, .n_fields = 1}};
    }
    t[n++] = (dlp_node){
        .name = behind == FILTER ? "row" : "last", .verb = DLP_FILTER, .filter = {.keep = keep}};
    t[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}};
    return n;
}

static void run(int behind, const dlp_workers_desc *w, told *to) {
    dlp_node t[10];
    const uint32_t n = table(t, behind, w);
    const dlp_pipe_desc desc = {.epochs = 1};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t value = 0;
    memset(to, 0, sizeof *to);
    now_.nulls = now_.too_many = now_.dirty = now_.attempts = 0;
    if ((to->rc = dlp_pipe_open(&p, t, n, &desc, &to->err)) != DLP_OK) return;
    while ((to->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++, to->rows++, value++) {
            if (w->on_error == DLP_ON_ERROR_DROP && value == BAD_INPUT * MOST + now_.bad_item)
                value += MOST - now_.bad_item;
            to->wrong +=
                ((const uint64_t *)b->fields[0].data)[r] != value / MOST * 10 + value % MOST;
        }
        dlp_pipe_release(p, b);
    }
    to->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void expand__row_behind_fails__still_gets_places(int behind, int32_t workers, int asks) {
    for (uint32_t bad = 0; bad < MOST; bad++) {
        dlp_workers_desc w = {.num_workers = workers};
        told to;
        now_.bad_item = bad;
        now_.asks = asks;
        now_.tries = 1000;
        run(behind, &w, &to);
        CHECK(to.rc == DLP_ERR_CALLBACK && to.wrong == 0);
        CHECK(strstr(to.err.message, "bad luck") != NULL);
        CHECK(strstr(to.err.message, "\"row\"") != NULL || strcmp(to.err.stage, "row") == 0);
        CHECK(now_.nulls == 0 && now_.too_many == 0 && now_.dirty == 0);
        if (asks) continue;
        w.retries = 2;
        now_.tries = 2;
        run(behind, &w, &to);
        CHECK(to.rc == DLP_END && to.rows == INPUTS * MOST && to.wrong == 0);
        CHECK(now_.nulls == 0 && now_.attempts == 2);
        w.retries = 0;
        w.on_error = DLP_ON_ERROR_DROP;
        now_.tries = 1000;
        run(behind, &w, &to);
        CHECK(to.rc == DLP_END && to.rows == INPUTS * MOST - (MOST - bad) && to.wrong == 0);
        CHECK(now_.nulls == 0 && now_.too_many == 0);
    }
}

/* Until an error of a fetch in front of a maker is told under the fetch's own name. These are
   shapes in which error.stage is another row; the number may only fall. */
enum { SHAPES = 4, MOST_MISNAMED = 4 };

static int broken(void *user, dlp_item *it) {
    return (void)user, it->index == 1 ? dlp_fail(it->call, 5, "no such file") : 0;
}

static void error__of_a_fetch_before_a_maker__names_the_fetch(void) {
    static const dlp_field document = {
        .name = "t", .dtype = DLP_U8, .ndim = 1, .shape = {4}, .ragged = 1};
    const dlp_node behind[SHAPES] = {
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep}},
        {.name = "expand", .verb = DLP_EXPAND, .expand = {.expand = again, .max_out = 1}},
        {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 8}},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = 2}}};
    int misnamed = 0;
    for (int k = 0; k < SHAPES; k++) {
        dlp_node t[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = INPUTS}},
                        {.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = broken, .fields = &document, .n_fields = 1}},
                        {.name = "first", .verb = DLP_FILTER, .filter = {.keep = keep}},
                        behind[k],
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int rc = dlp_pipe_open(&p, t, 5, NULL, NULL);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) continue;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_CALLBACK && strstr(dlp_pipe_error(p)->message, "no such file") != NULL);
        misnamed += strcmp(dlp_pipe_error(p)->stage, "read") != 0;
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    printf("seams: %d of %d errors of a fetch name another row as their stage\n", misnamed, SHAPES);
    CHECK(misnamed <= MOST_MISNAMED);
}

int main(void) {
    for (int behind = 0; behind < BEHINDS; behind++)
        for (int asks = 0; asks < 2; asks++) {
            expand__row_behind_fails__still_gets_places(behind, DLP_NONE, asks);
            expand__row_behind_fails__still_gets_places(behind, 2, asks);
        }
    error__of_a_fetch_before_a_maker__names_the_fetch();
    return test_end("seams");
}
