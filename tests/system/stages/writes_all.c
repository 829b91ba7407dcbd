/* needs: parts */
/* An expand that writes all bytes of its items (writes_all_bytes) gets places that are not cleared.
   Its rows are those of one whose places are cleared. Fields that maps add begin as zeros, and
   ragged fields have zeros behind their lengths. So is it with the items of a part that an item
   names. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <string.h>

enum { ITEMS = 300, MADE = 3, WIDE = 40 };

static const dlp_field x_ = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}},
                       r_ = {.name = "r",
                             .dtype = DLP_U64,
                             .ndim = 1,
                             .shape = {WIDE},
                             .ragged = 1},
                       y_ = {.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}};
static uint64_t used_, wrong_; /* places that had bytes; map fields that had */

static void fill(dlp_item *it, uint64_t number) {
    uint64_t *x = it->data[0], *r = it->data[1], any = 0;
    for (int k = 0; k < WIDE; k++) any |= x[k];
    __atomic_add_fetch(&used_, any != 0, __ATOMIC_RELAXED);
    for (uint64_t k = 0; k < WIDE; k++) x[k] = dlp_hash(number, k, 1, 1) | 1;
    it->length[1] = number % (WIDE + 1);
    for (uint64_t k = 0; k < it->length[1]; k++) r[k] = number + k + 1;
}
static int make(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t k = 0; k < MADE; k++) fill(dlp_expand_add(x), x->item->index * MADE + k);
    return x->item->index % 50 == 7 ? DLP_SKIP : 0;
}
static int load(void *user, dlp_part *part) { return (void)user, part->items = MADE, 0; }
static int fetch_made(void *user, dlp_item *it) {
    (void)user;
    fill(it, it->position % 100000);
    return 0;
}
static int first(void *user, dlp_item *it) { return (void)user, *(uint64_t *)it->data[0] = 5, 0; }
static int map(void *user, dlp_item *it) {
    uint64_t *y = it->data[2], any = 0;
    (void)user;
    for (int k = 0; k < WIDE; k++) any |= y[k], y[k] = 9;
    __atomic_add_fetch(&wrong_, any != 0, __ATOMIC_RELAXED);
    return 0;
}
static int keep(void *user, const dlp_item *it) {
    (void)user;
    return (*(const uint64_t *)it->data[0] & 6) != 0;
}

static uint64_t sum_of(const dlp_node *t, uint32_t n) {
    const dlp_pipe_desc d = {.seed = 3, .epochs = 2};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    uint64_t sum = 0;
    CHECK(dlp_pipe_open(&p, t, n, &d, &e) == DLP_OK);
    if (p == NULL) puts(e.message);
    for (int rc; p != NULL; dlp_pipe_release(p, b)) {
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_EPOCH_END) continue;
        CHECK(rc == DLP_OK || rc == DLP_END);
        if (rc != DLP_OK) break;
        for (uint32_t f = 0; f < b->n_fields; f++)
            for (uint64_t k = 0; k < b->fields[f].bytes; k++)
                sum = sum * 31 + ((const uint8_t *)b->fields[f].data)[k];
    }
    CHECK(p != NULL && dlp_pipe_close(p) == DLP_OK);
    return sum;
}

static void writes_all__of_an_expand_or_a_part__not_cleared(void) {
    const dlp_field made[] = {x_, r_}, part = {.name = "number", .dtype = DLP_U64};
    for (int i = 0; i < 16; i++) {
        const int32_t workers = i & 1 ? 2 : DLP_NONE;
        const int parts = i >> 1 & 1, maps = i >> 2 & 1, filters = i >> 3;
        uint64_t sums[2];
        for (int all = 0; all < 2; all++) {
            dlp_node t[8] = {
                {.name = "l", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}}};
            uint32_t n = 1;
            if (!parts) {
                t[n++] = (dlp_node){.name = "e",
                                    .verb = DLP_EXPAND,
                                    .expand = {.expand = make,
                                               .fields = made,
                                               .n_fields = 2,
                                               .max_out = MADE,
                                               .writes_all_bytes = all}};
            } else {
                t[n++] = (dlp_node){.name = "names",
                                    .verb = DLP_FETCH,
                                    .fetch = {.fetch = first, .fields = &part, .n_fields = 1}};
                t[n++] = (dlp_node){.name = "load",
                                    .verb = DLP_LOAD,
                                    .load = {.load = load, .max_part_bytes = 8, .max_items = MADE}};
                t[n++] = (dlp_node){.name = "f",
                                    .verb = DLP_FETCH,
                                    .fetch = {.fetch = fetch_made,
                                              .fields = made,
                                              .n_fields = 2,
                                              .writes_all_bytes = all}};
            }
            t[1].workers.num_workers = workers;
            if (maps)
                t[n++] = (dlp_node){.name = "m",
                                    .verb = DLP_MAP,
                                    .map = {.item = map, .fields = &y_, .n_fields = 1}};
            if (filters)
                t[n++] = (dlp_node){.name = "k", .verb = DLP_FILTER, .filter = {.keep = keep}};
            t[n++] = (dlp_node){.name = "b", .verb = DLP_BATCH, .batch = {.batch_size = 16}};
            used_ = wrong_ = 0;
            sums[all] = sum_of(t, n);
            CHECK(wrong_ == 0);
            CHECK(all ? used_ > ITEMS / 4 : used_ == 0);
        }
        CHECK(sums[0] == sums[1] && sums[0] != 0);
    }
}

int main(void) {
    dlp_plan plan;
    dlp_error e;
    dlp_node t[] = {{.name = "l", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                    {.name = "e",
                     .verb = DLP_EXPAND,
                     .expand = {.expand = make,
                                .fields = &x_,
                                .n_fields = 1,
                                .max_out = MADE,
                                .writes_all_bytes = 2}},
                    {.name = "b", .verb = DLP_BATCH, .batch = {.batch_size = 16}}};
    CHECK(dlp_nodes_plan(t, 3, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strstr(e.field, "writes_all_bytes") != NULL);
    writes_all__of_an_expand_or_a_part__not_cleared();
    return test_end("writes_all");
}
