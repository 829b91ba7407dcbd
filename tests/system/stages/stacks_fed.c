/* needs: parts */
/* Makers behind each other in one cell whose inputs are not those of a list alone: records that are
   pushed, and the items of a branch. The rows are those of a plain loop, whatever the workers, and
   whoever dies. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RECORDS = 200, TAIL = 9, MOST = 4000 };

static const dlp_field record[] = {
    {.name = "x", .dtype = DLP_U64},
    {.name = "tail", .dtype = DLP_U8, .ndim = 1, .shape = {TAIL}, .ragged = 1}};
static const dlp_field y_field = {.name = "y", .dtype = DLP_U64};
static const dlp_field z_field = {.name = "z", .dtype = DLP_U64};
static const dlp_field w_field = {.name = "w", .dtype = DLP_U64};

static struct shared { uint32_t kills, wrong; } * all;
static pid_t caller;

static uint64_t x_of(uint64_t n) { return n * 37 % 101; }
static uint64_t length_of(uint64_t x) { return x % (TAIL + 1); }

/* ---- the rows ---- */

static int read_x(void *user, dlp_item *it) {
    const uint64_t x = x_of(it->index);
    (void)user;
    *(uint64_t *)it->data[0] = x;
    memset(it->data[1], (int)x, TAIL);
    it->length[1] = length_of(x);
    return 0;
}

static int read_w(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index * 7;
    return 0;
}

/* The field that it adds begins as zeros. What it does to the others is not seen if it dies. */
static int add_y(void *user, dlp_item *it) {
    uint64_t *x = it->data[0], *y = it->data[2];
    (void)user;
    if (it->n_fields != 3 || *y != 0 || it->length[1] != length_of(*x)) all->wrong++;
    for (uint64_t i = 0; i < it->length[1]; i++)
        if (((const uint8_t *)it->data[1])[i] != (uint8_t)*x) all->wrong++;
    *y = *x + it->length[1];
    if (*x % 10 != 4 || getpid() == caller || all->kills >= 5) return 0;
    all->kills++;
    *x = it->length[1] = 0;
    return kill(getpid(), SIGKILL);
}

static uint64_t y_of(const dlp_item *it) {
    return it->n_fields == 3 ? *(const uint64_t *)it->data[2]
                             : *(const uint64_t *)it->data[0] + it->length[1];
}

static int keep_y(void *user, const dlp_item *it) {
    (void)user;
    return y_of(it) % 3 != 1;
}

static int keep_z(void *user, const dlp_item *it) {
    (void)user;
    return *(const uint64_t *)it->data[0] % 4 != 2;
}

static int make_two(void *user, dlp_expand *x) {
    const uint64_t y = y_of(x->item);
    (void)user;
    for (uint64_t i = 0; i < y % 3; i++) *(uint64_t *)dlp_expand_add(x)->data[0] = y * 10 + i;
    return 0;
}

static int make_three(void *user, dlp_expand *x) {
    const uint64_t z = *(const uint64_t *)x->item->data[0];
    (void)user;
    for (uint64_t i = 0; i < 3; i++) *(uint64_t *)dlp_expand_add(x)->data[0] = z * 10 + i;
    return 0;
}

/* The values of all rows, of so many inputs. */
static uint32_t plain(uint64_t n, uint64_t *to) {
    uint32_t rows = 0;
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t y = x_of(k) + length_of(x_of(k));
        for (uint64_t i = 0; y % 3 != 1 && i < y % 3; i++)
            for (uint64_t j = 0; (y * 10 + i) % 4 != 2 && j < 3; j++)
                to[rows++] = (y * 10 + i) * 10 + j;
    }
    return rows;
}

#define MAKERS(w) \
    {.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep_y}, .workers = w}, \
        {.name = "two", \
         .verb = DLP_EXPAND, \
         .expand = {.expand = make_two, .max_out = 2, .fields = &z_field, .n_fields = 1}}, \
        {.name = "even", .verb = DLP_FILTER, .filter = {.keep = keep_z}}, { \
        .name = "three", .verb = DLP_EXPAND, .expand = {.expand = make_three, .max_out = 3 } \
    }

/* ---- runs ---- */

/* Take all rows: the values of the last field follow the numbers of rows, if there are two. */
static void take_all(dlp_pipe *p, const uint64_t *want, uint32_t n, int zip) {
    uint32_t rows = 0;
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        const uint64_t *z = b->fields[0].data;
        for (uint32_t r = 0; r < b->count; r++, rows++) {
            CHECK(rows < n && z[r] == want[rows]);
            if (zip) CHECK(((const uint64_t *)b->fields[1].data)[r] == rows * UINT64_C(7));
        }
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("  %s: %s\n", dlp_pipe_error(p)->stage, dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END && rows == n);
}

static void push_all(dlp_push *push) {
    dlp_pusher *u = NULL;
    dlp_error err;
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push, .number = 1}, &err) == DLP_OK);
    for (uint64_t k = 0; k < RECORDS; k++) {
        const uint64_t x = x_of(k), length[2] = {1, length_of(x)};
        uint8_t tail[TAIL];
        const void *data[2] = {&x, tail};
        memset(tail, (int)x, sizeof tail);
        CHECK(dlp_pusher_lengths(u, length) == DLP_OK);
        CHECK(dlp_pusher_push(u, data, 0) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, 0) == DLP_OK);
    dlp_pusher_close(u);
}

static void pushed__makers_in_one_cell__the_rows_of_a_loop(const dlp_workers_desc *w) {
    static uint64_t want[MOST];
    const dlp_push_desc desc = {.fields = record, .n_fields = 2, .capacity = 256, .writers = 1};
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 20};
    const dlp_workers_desc none = {.num_workers = 0};
    dlp_push *push = NULL;
    dlp_pipe *p = NULL;
    dlp_error err = {.code = 0};
    CHECK(dlp_push_open(&push, &desc, &err) == DLP_OK);
    const dlp_node nodes[] = {
        {.name = "docs", .verb = DLP_PUSH, .push = {.source = push}},
        {.name = "add",
         .verb = DLP_MAP,
         .map = {.item = add_y, .fields = &y_field, .n_fields = 1},
         .workers = *w},
        MAKERS(none),
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    push_all(push);
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.shm = &shm}, &err) == DLP_OK);
    if (p == NULL)
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
    else
        take_all(p, want, plain(RECORDS, want), 0);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_push_close(push) == DLP_OK);
}

static void branch__makers_in_one_cell__the_rows_of_a_loop(const dlp_workers_desc *w) {
    static uint64_t want[MOST];
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1};
    const dlp_node nodes[] = {
        {.name = "xs", .verb = DLP_LIST, .list = {.n_items = RECORDS}},
        {.name = "read_x",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_x, .fields = record, .n_fields = 2}},
        MAKERS(*w),
        {.name = "ws", .verb = DLP_LIST, .list = {.n_items = MOST}},
        {.name = "read_w",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_w, .fields = &w_field, .n_fields = 1},
         .workers = *w},
        {.name = "both", .verb = DLP_ZIP, .from = (const char *[]){"three", "read_w", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_pipe *p = NULL;
    dlp_error err = {.code = 0};
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.shm = &shm}, &err) == DLP_OK);
    if (p == NULL)
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
    else
        take_all(p, want, plain(RECORDS, want), 1);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    const dlp_workers_desc workers[] = {{.num_workers = DLP_NONE},
                                        {.num_workers = 1},
                                        {.num_workers = 3},
                                        {.num_workers = 2, .placement = DLP_PLACE_PROCESSES}};
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    caller = getpid();
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        pushed__makers_in_one_cell__the_rows_of_a_loop(&workers[i]);
        branch__makers_in_one_cell__the_rows_of_a_loop(&workers[i]);
    }
    CHECK(all->wrong == 0 && all->kills > 0);
    return test_end("stacks_fed");
}
