/* needs: parts */
/* Items that are pushed, with a stage behind them that may ask for them again: where they are kept
   stands in the plan, and nothing is allocated once the pipe runs. */
#include "../../rig/pipe_life.h"
#include "../../rig/sources.h"

enum { BATCH = 8, AHEAD = 3, ITEMS = 500, RECORD = 8 + 8 + 8 }; /* a mark, a word, 5 bytes */
enum { NO_MAP, ITEM_MAP, BATCH_MAP, IDEMPOTENT_BATCH_MAP, KINDS };

static const dlp_field FIELDS[2] = {{.name = "number", .dtype = DLP_U64},
                                    {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {5}}};

/* Every seventh call fails: its row, or batch, goes back to fetch. */
static int calls;
static int map_fails(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return ++calls % 7 == 0 ? -1 : 0;
}
static int batch_map_fails(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    (void)state;
    return ++calls % 7 == 0 ? -1 : 0;
}

static int wire(rig *r, int kind, int workers, dlp_push *push, dlp_pipe **p) {
    rig_default(r);
    source_items(dlp_push_source(push), &r->dataset, &r->fetch.workers);
    r->fetch.workers.num_workers = workers;
    r->pipe.prefetch_factor = AHEAD;
    r->batch.batch_size = BATCH;
    r->has_item_map = kind == ITEM_MAP;
    r->has_batch_map = kind == BATCH_MAP || kind == IDEMPOTENT_BATCH_MAP;
    r->item_map.map.item = map_fails;
    r->batch_map.map.batch = batch_map_fails;
    r->item_map.workers.retries = r->batch_map.workers.retries = 9;
    r->batch_map.workers.idempotent = kind == IDEMPOTENT_BATCH_MAP;
    return rig_wire(r, p, NULL);
}

/* The plan's line of kept items: as many as slots have rows, where rows may go back. */
static void check_plan(dlp_pipe *p, int kind) {
    const bool kept = kind == ITEM_MAP || kind == BATCH_MAP;
    uint64_t sum = 0;
    uint32_t lines = 0;
    dlp_plan plan;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++) {
        const dlp_plan_line *l = &plan.lines[i];
        sum += l->bytes;
        if (strstr(l->what, "asked for again") == NULL) continue;
        lines++;
        CHECK(l->count == (AHEAD + 1) * BATCH && l->bytes_each == RECORD);
    }
    CHECK(lines == kept && sum == plan.total_bytes);
}

static dlp_pusher *push_all(dlp_push *push) {
    dlp_pusher *u = NULL;
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint8_t x[5] = {(uint8_t)i, 1, 2, 3, (uint8_t)(i >> 8)};
        const void *data[2] = {&i, x};
        CHECK(dlp_pusher_push(u, data, 20000) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, 20000) == DLP_OK);
    return u;
}

static void take_all(dlp_pipe *p) {
    dlp_batch *b;
    uint64_t due = 0;
    int rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++, due++) {
            const uint8_t *x = (const uint8_t *)b->fields[1].data + (size_t)5 * i;
            CHECK(((const uint64_t *)b->fields[0].data)[i] == due);
            CHECK(x[0] == (uint8_t)due && x[3] == 3 && x[4] == (uint8_t)(due >> 8));
        }
        dlp_pipe_release(p, b);
    }
    if (rc < 0) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END && due == ITEMS);
}

static void kept__in_the_plan__nothing_allocated_since(void) {
    for (int i = 0; i < 2 * KINDS; i++) {
        const int kind = i / 2, workers = i % 2;
        seam_alive alive = seam_now();
        dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .capacity = 1024, .writers = 1};
        dlp_push *push = NULL;
        dlp_pusher *u;
        dlp_pipe *p = NULL;
        long before;
        rig r;
        CHECK(dlp_push_open(&push, &d, NULL) == DLP_OK);
        u = push_all(push);
        calls = 0;
        CHECK(wire(&r, kind, workers, push, &p) == DLP_OK);
        check_plan(p, kind);
        CHECK(dlp_pipe_start(p) == DLP_OK);
        check_plan(p, kind);
        before = seam_read(&seam.allocations);
        take_all(p);
        CHECK(seam_read(&seam.allocations) == before);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        dlp_pusher_close(u);
        CHECK(dlp_push_close(push) == DLP_OK);
        CHECK(seam_same(alive));
    }
}

/* A plan of a table that gets its map only then: no line, and then one. */
static void planned_without_the_map__line_comes_with_it(void) {
    dlp_push *push = NULL;
    dlp_pipe *p = NULL;
    rig r;
    CHECK(dlp_push_open(&push, &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .writers = 1},
                        NULL) == DLP_OK);
    CHECK(wire(&r, NO_MAP, 0, push, &p) == DLP_OK);
    check_plan(p, NO_MAP);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(wire(&r, BATCH_MAP, 0, push, &p) == DLP_OK);
    check_plan(p, BATCH_MAP);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_push_close(push) == DLP_OK);
}

/* The fetch stage must have the dataset as it was wired. */
static void by_hand__not_as_wired__told(void) {
    dlp_push *push = NULL;
    dlp_pusher *u = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    rig r;
    CHECK(dlp_push_open(&push, &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .writers = 1},
                        NULL) == DLP_OK);
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
    rig_default(&r);
    source_items(dlp_push_source(push), &r.dataset, &r.fetch.workers);
    r.dataset.reader = NULL;
    r.fetch.workers.num_workers = 1;
    r.has_item_map = 1;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "that of the push") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_pusher_close(u);
    CHECK(dlp_push_close(push) == DLP_OK);
}

static int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Each call of open, of either side, is made to fail once: an error in words, and nothing is left,
   nor at the path. */
static void open__each_call_fails__nothing_is_left(void) {
    for (int by_path = 0; by_path < 2; by_path++) {
        char path[64] = "/tmp/dlpipe-push-plan-XXXXXX";
        long n = 0;
        int failed = 1;
        CHECK(mkdtemp(path) != NULL);
        strcat(path, "/push");
        while (failed && ++n < 100) {
            const seam_alive was = seam_now();
            const int files = open_files();
            dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .writers = 1};
            dlp_pusher_desc to = {.fields = FIELDS, .n_fields = 2};
            dlp_push *push = NULL;
            dlp_pusher *u = NULL;
            dlp_error e = {0};
            int rc;
            d.path = to.path = by_path ? path : NULL;
            seam_arm(n, 0);
            rc = dlp_push_open(&push, &d, &e);
            to.push = by_path ? NULL : push;
            if (rc == DLP_OK) rc = dlp_pusher_open(&u, &to, &e);
            failed = seam.failed[0] != 0;
            seam_arm(0, 0);
            CHECK((rc == DLP_OK) == (u != NULL));
            CHECK(rc == DLP_OK || e.message[0] != 0); /* a quota unread, a place refused: it goes */
            dlp_pusher_close(u);
            CHECK(dlp_push_close(push) == DLP_OK);
            CHECK(open_files() == files && access(path, F_OK) != 0);
            CHECK(by_path || seam_read(&seam.blocks) == was.blocks); /* strdup is not counted */
            CHECK(seam_read(&seam.maps) == was.maps);
            CHECK(seam_read(&seam.threads) == was.threads);
        }
        CHECK(n > 8 && n < 100);
        *strrchr(path, '/') = 0;
        CHECK(rmdir(path) == 0);
    }
}

int main(void) {
    open__each_call_fails__nothing_is_left();
    kept__in_the_plan__nothing_allocated_since();
    planned_without_the_map__line_comes_with_it();
    by_hand__not_as_wired__told();
    return test_end("push_plan");
}
