/* needs: parts scratch cache pack guard pictures */
/* DLPIPE_DEBUG: fields that end inside cells are 0xdb behind the map, and a callback that writes
   past them is named; tables of cell_ends give the same rows. */
/* own: hook: another one, with DLPIPE_DEBUG */
#define _GNU_SOURCE
#define DLPIPE_DEBUG
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_shm.h"

int cell_ends_main(int argc, char **argv);
#define main cell_ends_main
#include "cell_ends.c"
#undef main

enum { LENGTH = 100 };
static uint8_t *kept_raw; /* of the map before */
static int past;          /* decode writes this byte of raw */

static int read_raw(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 7, LENGTH);
    return 0;
}
static int decode(void *user, dlp_item *it) {
    uint8_t *raw = it->data[0];
    (void)user;
    *(uint8_t *)it->data[1] = raw[0];
    if (past != 0 && it->index == 3) raw[past]++;
    kept_raw = raw;
    return 0;
}
static int look(void *user, const dlp_item *it) {
    (void)user;
    for (int i = 0; i < LENGTH; i++) wrong_if(kept_raw[i] != 0xdb);
    return *(const uint8_t *)it->data[0] == 7;
}

static void debug__field_that_ends__poison_and_red_zone(int at) {
    const dlp_field raw = {.name = "raw", .dtype = DLP_U8, .ndim = 1, .shape = {LENGTH}};
    const dlp_field x = {.name = "x", .dtype = DLP_U8};
    const dlp_node nodes[] = {
        {.name = "docs", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_raw, .fields = &raw, .n_fields = 1}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = decode, .fields = &x, .n_fields = 1, .ends = "raw"}},
        {.name = "look", .verb = DLP_FILTER, .filter = {.keep = look}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}},
    };
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t rows = 0;
    int rc = DLP_ERR_STATE;
    past = at;
    all->wrong = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        rows += b->count;
        dlp_pipe_release(p, b);
    }
    if (p == NULL) return;
    CHECK(all->wrong == 0);
    CHECK(rows == (at == 0 ? ITEMS : 3) && rc == (at == 0 ? DLP_END : DLP_ERR_CORRUPT));
    if (at != 0) {
        CHECK(dlp_pipe_error(p)->index == 3);
        if (!well(strstr(dlp_pipe_error(p)->message, at > 0 ? "past" : "before") != NULL))
            printf("  %s\n", dlp_pipe_error(p)->message);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    static char few[] = "12", name[] = "cell_ends";
    char *argv[] = {name, few, NULL};
    int rc;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    debug__field_that_ends__poison_and_red_zone(0);
    debug__field_that_ends__poison_and_red_zone(250);
    debug__field_that_ends__poison_and_red_zone(-1);
    rc = cell_ends_main(2, argv);
    return rc != 0 ? rc : test_end("cell_ends_debug");
}
