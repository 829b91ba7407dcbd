/* How many workers are kept awake, by what the consumer has measured and the cores there are. */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"

#include "../../rig/check.h"

enum { WORKERS = 2, PREFETCH = 16, TAKEN = 10 };

static int fetch(void *user, dlp_item *item) {
    (void)user;
    *(uint64_t *)item->data[0] = item->index;
    return 0;
}

static dlp_pipe *open_pipe(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 4,
        .num_workers = WORKERS,
        .epochs = DLP_FOREVER,
        .pipe = {.prefetch_factor = PREFETCH}};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    for (int i = 0; i < 2 * TAKEN && p != NULL; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    return p;
}

/* As if the last batches had each kept workers busy for so long, and steps had taken so long, on a
   machine of so many cores. */
static uint32_t kept(dlp_pipe *p, int cpus, uint64_t batch_ns, uint64_t step_ns) {
    dlpi_awake *a = &p->awake;
    int was = p->cpus;
    uint64_t busy = 0;
    for (int i = 0; i < p->n_workers; i++) busy += DLPI_LOAD_RLX(&p->workers[i].block->busy_ns);
    a->batch_ns = a->step_ns = 0;
    a->delivered = p->ctl->delivered - TAKEN;
    a->busy_ns = busy - TAKEN * batch_ns;
    a->steps_ns = p->ctl->step_ns - TAKEN * step_ns;
    p->cpus = cpus;
    dlpi_awake_note(p);
    p->cpus = was;
    return p->ctl->keep_awake;
}

static void awake__cores_for_all__as_many_as_batches_want(void) {
    dlp_pipe *p = open_pipe();
    if (p == NULL) return;
    test_pause(100000000); /* workers have nothing to do, and change nothing */
    CHECK(kept(p, 16, 100, 1000) == 1);
    CHECK(kept(p, 16, 5000, 1000) == PREFETCH * 5000 / DLPI_WAKE_NS + 1);
    CHECK(kept(p, WORKERS + 1, 5000, 1000) > 1);
    CHECK(kept(p, WORKERS, 5000, 1000) == 0); /* one that works wants the core of one that waits */
    CHECK(kept(p, 1, 100, 1000) == 1);        /* on one core they yield to each other */
    CHECK(kept(p, 16, 20000, 1000) == 0);
    CHECK(kept(p, 16, 100, 20000) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    awake__cores_for_all__as_many_as_batches_want();
    return test_end("awake");
}
