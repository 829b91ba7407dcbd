/* needs: out */
/* Worker processes are killed while outs hold batches: what is held stays as it is, and each out
   has all that it would have, whole. Callbacks write garbage that differs from life to life first,
   so that a row that is shown too early is seen. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <pthread.h>
#include <string.h>

enum { ITEMS = 1200, ROWS = 8, BATCHES = ITEMS / ROWS, EPOCHS = 2, ALL = BATCHES * EPOCHS, N = 16 };

static const dlp_field x_field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {N}};

static uint32_t *killed; /* [ITEMS] shared: this item has killed a worker */

/* The worker dies in the middle of each 40th item, once. */
static int write_x(void *user, dlp_item *it) {
    uint64_t *x = it->data[0];
    (void)user;
    for (uint64_t i = 0; i < N; i++) x[i] = (uint64_t)getpid() << 32 | i;
    for (uint64_t i = 0; i < N; i++) {
        if (i == N / 2 && it->index % 40 == 7 &&
            __atomic_exchange_n(&killed[it->index], 1, __ATOMIC_SEQ_CST) == 0)
            raise(SIGKILL);
        x[i] = it->index * N + i;
    }
    return 0;
}

static int is_whole(const dlp_batch *b) {
    const uint64_t *x = b->fields[0].data;
    int ok = b->count == ROWS && b->valid_count == ROWS;
    for (uint32_t r = 0; ok && r < b->count; r++)
        for (uint64_t i = 0; i < N; i++) ok &= x[r * N + i] == b->index[r] * N + i;
    return ok;
}

typedef struct reader {
    pthread_t thread;
    dlp_out *out;
    uint64_t holds; /* batches at once */
    uint64_t n, missed;
    int rc;
} reader;

/* Give back the oldest batch when it holds as many as it may; each is looked at twice. */
static void *reads(void *arg) {
    reader *r = arg;
    dlp_batch *held[8];
    uint64_t first = 0;
    while ((r->rc = dlp_out_next(r->out, &held[r->n % 8], 60000)) == DLP_OK) {
        CHECK(is_whole(held[r->n % 8]));
        if (++r->n - first < r->holds) continue;
        CHECK(is_whole(held[first % 8]));
        CHECK(dlp_out_release(r->out, held[first++ % 8]) == DLP_OK);
    }
    for (; first < r->n; first++) CHECK(is_whole(held[first % 8]));
    r->missed = dlp_out_missed(r->out);
    return NULL;
}

static void killed__outs_hold_batches__all_of_them_whole(int transfer) {
    const dlp_node list = {
        .name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
                           .workers = {.num_workers = 2, .placement = DLP_PLACE_PROCESSES}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}};
    const dlp_node gpu = {.name = "gpu", .verb = DLP_TRANSFER, .workers = {.num_workers = 1}};
    const dlp_node train = {.name = "train", .verb = DLP_OUT};
    const dlp_node log = {.name = "log",
                          .from = (const char *[]){"batch", NULL},
                          .verb = DLP_OUT,
                          .queue = {.capacity = 1, .full = DLP_FULL_KEEP_NEWEST}};
    const dlp_node eval = {.name = "eval",
                           .from = (const char *[]){"batch", NULL},
                           .verb = DLP_OUT,
                           .queue = {.capacity = 3}};
    dlp_node nodes[8] = {list, read, batch};
    dlp_error err = {.code = 0};
    reader r[2] = {{.holds = 1}, {.holds = 3}};
    static dlp_stats stats;
    uint32_t n = 3;
    dlp_pipe *p;
    dlp_batch *b;
    memset(killed, 0, ITEMS * sizeof *killed);
    if (transfer) nodes[n++] = gpu;
    nodes[n++] = train;
    nodes[n++] = log;
    nodes[n++] = eval;
    CHECK(dlp_pipe_open(&p, nodes, n, &(dlp_pipe_desc){.seed = 3, .epochs = EPOCHS}, &err) ==
          DLP_OK);
    if (err.code != 0) {
        printf("  %s.%s: %s\n", err.stage, err.field, err.message);
        return;
    }
    CHECK(dlp_out_find(p, "log", &r[0].out) == DLP_OK);
    CHECK(dlp_out_find(p, "eval", &r[1].out) == DLP_OK);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&r[i].thread, NULL, reads, &r[i]) == 0);
    for (uint64_t k = 0; k < ALL; k++) {
        int rc = dlp_pipe_next_timeout(p, &b, 60000);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) {
            printf("  batch %d: %s\n", (int)k, dlp_pipe_error(p)->message);
            break;
        }
        CHECK(b->sequence == k && is_whole(b));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_next_timeout(p, &b, 60000) == DLP_END);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
    CHECK(stats.stages[dlp_node_stage(p, "read")].restarts == ITEMS / 40);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(r[i].thread, NULL) == 0);
        CHECK(r[i].rc == DLP_END && r[i].n + r[i].missed == ALL);
    }
    CHECK(r[1].missed == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (int i = 0; i < 2; i++) dlp_out_close(r[i].out);
}

/* Outs and subscribers of other programs do not go together, and outs alone let no program in. */
static void shared__several_outs__refused(int share) {
    char name[64];
    dlp_shm_desc shm = {.name = name, .share = share};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}},
        {.name = "train", .verb = DLP_OUT},
        {.name = "log", .from = (const char *[]){"batch", NULL}, .verb = DLP_OUT}};
    dlp_subscriber *c = NULL;
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    int rc;
    snprintf(name, sizeof name, "test-outs-%d-%d", (int)getpid(), share);
    memset(killed, 1, ITEMS * sizeof *killed); /* nobody dies */
    rc = dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.shm = &shm}, &err);
    if (share != DLP_SHARE_NONE) {
        CHECK(rc == DLP_ERR_ARG && strcmp(err.field, "shm.share") == 0);
        return;
    }
    CHECK(rc == DLP_OK);
    CHECK(dlp_subscriber_open(&c, name, NULL, &err) == DLP_ERR_STATE && c == NULL);
    CHECK(strstr(err.message, "not shared") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    SHM_NEEDS("shm_outs");
    killed = shm_shared(ITEMS * sizeof *killed);
    killed__outs_hold_batches__all_of_them_whole(0);
    killed__outs_hold_batches__all_of_them_whole(1);
    shared__several_outs__refused(DLP_SHARE_NONE);
    shared__several_outs__refused(DLP_SHARE_EACH);
    shared__several_outs__refused(DLP_SHARE_ONE);
    return test_end("shm_outs");
}
