/* How many workers are kept awake, by what the consumer has measured and the cores there are; who
   is on whose core; what an item costs. */
/* own: inside: what the consumer measures, and who shares its core, set by hand */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"

#include "../../rig/check.h"

enum { WORKERS = 2, PREFETCH = 16, TAKEN = 10, FAR = 1000000 };

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

static int keep(void *user, dlp_item *item) {
    return item->index & 1 ? DLP_SKIP : fetch(user, item);
}

/* A worker that makes items of inputs says where it is as the others do, and is found there. */
static void awake__core_of_an_input_worker__is_seen(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = keep, .filter = 1},
        .batch_size = 4,
        .num_workers = 1};
    uint32_t here = 0;
    dlp_pipe *p = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    test_pause(100000000);
    if (p->cpus == 1) p->cpus = 2; /* there all are on the same */
    for (int i = 0; i < p->n_staffed; i++) {
        uint32_t was = DLPI_LOAD_RLX(&p->waiters[i].cpu);
        CHECK(!dlpi_awake_same_core(p, &here, FAR));
        DLPI_STORE_RLX(&p->waiters[i].cpu, FAR);
        CHECK(dlpi_awake_same_core(p, &here, FAR));
        CHECK(!dlpi_awake_same_core(p, &p->waiters[i].cpu, FAR));
        DLPI_STORE_RLX(&p->waiters[i].cpu, was);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static uint64_t average(uint64_t was, uint64_t each, uint64_t units) {
    static dlpi_worker_block block;
    block.item_ns = was;
    dlpi_item_took(&block, each, units);
    return block.item_ns;
}

/* Many cheap units at once bring a bad beginning down at once; one dear sample counts an eighth,
   since its worker may have lost the core. */
static void item_cost__samples_of_many_units__weigh_by_them_downwards(void) {
    CHECK(average(0, 5000, 1) == 5000 && average(0, 0, 1) == 1);
    CHECK(average(8000, 80, 1) == 7010);
    CHECK(average(8000, 80, 4) == 4040);
    CHECK(average(8000, 80, 8) == 80 && average(8000, 80, 32) == 80);
    CHECK(average(80, 8000, 1) == 1070 && average(80, 8000, 32) == 1070);
}

int main(void) {
    awake__cores_for_all__as_many_as_batches_want();
    awake__core_of_an_input_worker__is_seen();
    item_cost__samples_of_many_units__weigh_by_them_downwards();
    return test_end("awake");
}
