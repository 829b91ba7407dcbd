/* The words of batch slots: who feeds, claims, completes, closes, sends back, recovers, takes and
   gives back, on the header's own code, in every interleaving of small pipes and with every value
   that a load's order permits (model.h tells how). First in pairs, without any bound; then all at
   once, with few preemptions.

   Checked: each row is run once for each time that its unit was given up, by one at a time, and
   not in a batch that is ready; a batch arrives once, in order, with all its bytes and fields; a
   slot's fields and rows are not written while somebody may read them; nobody sleeps for ever
   (sleeps have no time limit here) while there is something to do.

   Without arguments: a part that is short. SOAK=1: all. "weaken": each ordered access made relaxed,
   in turn. With a scenario's name: that one, and how it fails. */
#include "model_slots.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else
#include "../rig/pipe_rig.h"

/* ---- a pipe ---- */

enum { BATCHES = 4, ROWS = 2 };

typedef struct shape {
    uint32_t rows, batches;
    int fetchers, item_map, collate, batch_map; /* workers of each stage */
    int threaded;                               /* the sampler */
    int fed;                                    /* all batches are fed before the threads begin */
    uint32_t held;
    int fails; /* rows or batches of the last stage that fail, once each */
    int seek;  /* the consumer seeks back to batch 0 once it has so many; 0: never */
    int bound; /* preemptions + 1 */
} shape;

static shape is;
static dlp_pipe *pipe_;

/* What is true, beside what threads may know of it. */
typedef struct notes {
    uint8_t ran[BATCHES * 2][ROWS]; /* how often a row of this sequence was begun */
    uint8_t given[BATCHES * 2];     /* batches that the consumer has got */
    uint8_t failed, killed, got;
    uint32_t base_seen;
} notes;
static notes *note;

static const uint64_t *cell_of(uint32_t s) {
    return (const uint64_t *)(void *)dlpi_item_cell(pipe_, s);
}

static void list_stage(uint32_t s, const dlpi_stage *st) {
    dlpi_sst *sst = dlpi_sst_at(pipe_, s, st);
    uint32_t units = dlpi_is_item_stage(pipe_, st) ? is.rows : 1;
    model_list_atom("ready", &sst->ready, 8, 0);
    if (dlpi_is_item_stage(pipe_, st)) model_list_atom("done", &dlpi_done(sst)[0], 8, 0);
    for (uint32_t u = 0; u < units; u++)
        model_list_atom(u ? "own 1" : "own 0", &dlpi_own(pipe_, sst)[u], 8, 0);
    model_list_atom("next", &sst->next, 8, 0);
    model.atom[model.atoms - 1].many = 1; /* a hint */
}

static void list_slot(uint32_t s) {
    dlpi_bslot *slot = dlpi_slot_at(pipe_, s);
    model_list_atom("pub", &slot->pub, 8, 0);
    model_list_atom("used", &slot->used, 4, 0);
    model_list_atom("frees", &slot->frees, 4, 0);
    for (int k = 0; k < pipe_->n_work; k++) list_stage(s, pipe_->work[k]);
}

static void list_bells(void) {
    dlpi_ctl *ctl = pipe_->ctl;
    model_list_atom("want", &ctl->want, 8, 0);
    model.atom[model.atoms - 1].many = 1; /* its owner's store need not know of a ringer's swap */
    model_list_atom("caller_word", &ctl->caller_word, 4, 0);
    if (is.threaded) {
        model_list_atom("feeder_sleeps", &ctl->feeder_sleeps, 4, 0);
        model.atom[model.atoms - 1].many = 1; /* as want */
        model_list_atom("feeder_word", &ctl->feeder_word, 4, 0);
    }
    for (int k = 0; k < pipe_->n_work; k++) {
        model_list_atom("rewind", &pipe_->bells[k].rewind, 8, 0);
        model_list_atom("bell word", &pipe_->bells[k].bell[0].word, 4, 0);
        model_list_atom("bell mask", &pipe_->bells[k].bell[0].mask, 4, 0);
    }
}

static void list_places(void) {
    dlpi_ctl *ctl = pipe_->ctl;
    model_list_atom("tail", &ctl->tail, 8, 0);
    model_list_atom("fed_all", &ctl->fed_all, 4, 0);
    model_list_atom("delivered", &ctl->delivered, 8, 0);
    model_list_atom("base", &ctl->base, 8, 0);
    model_list_atom("cancel", &ctl->cancel, 8, 0);
    for (uint32_t i = 0; i < pipe_->ring; i++) model_list_atom("disp", &pipe_->disp[i], 4, 0);
    list_bells();
    for (uint32_t s = 0; s < pipe_->n_slots; s++) list_slot(s);
    for (uint32_t s = 0; s < pipe_->n_slots; s++) {
        int fields = M_ATOMS + 2 * model.slots;
        model_list_slot(&dlpi_slot_at(pipe_, s)->in_epoch, 8); /* stands for the fields */
        world.newest.at[fields] = 1;                           /* and all know them as they are */
        for (int i = 0; i < M_THREADS; i++) world.thread[i].view.at[fields] = 1;
        for (uint32_t r = 0; r < is.rows; r++)
            model_list_slot((unsigned char *)(uintptr_t)(cell_of(s) + r), 8);
    }
}

/* ---- callbacks: a row is 1000 + index, then times 3 by each map ---- */

static uint32_t slot_of(const void *data) {
    for (uint32_t s = 0; s < pipe_->n_slots; s++)
        if ((const uint64_t *)data >= cell_of(s) && (const uint64_t *)data < cell_of(s) + is.rows)
            return s;
    model_fail("no slot's row");
    return 0;
}

static void read_fields(uint32_t s) {
    model_read_slot(model_find_slot(&dlpi_slot_at(pipe_, s)->in_epoch));
}

/* The newest value of a word, whoever knows it. */
static uint64_t truth(const void *at) {
    int atom = model_find_atom(at);
    if (!model.use[atom].shared) return model_raw_load(at, model.atom[atom].size);
    return model_message_at(atom, world.newest.at[atom])->value;
}

static int fetch(void *user, dlp_item *it) {
    uint32_t s = slot_of(it->data[0]);
    const dlpi_bslot *slot = dlpi_slot_at(pipe_, s);
    dlpi_sst *last = dlpi_sst_at(pipe_, s, pipe_->work[pipe_->n_item_work - 1]);
    uint64_t b = slot->sequence;
    (void)user;
    read_fields(s);
    MODEL_CHECK(b < BATCHES * 2 && it->row < is.rows);
    MODEL_CHECK(note->ran[b][it->row]++ <= note->failed + note->killed);
    MODEL_CHECK(!dlpi_ready_past(truth(&last->ready), b));
    MODEL_CHECK(!note->given[b]);
    model_write_slot(model_find_slot(it->data[0]));
    *(uint64_t *)it->data[0] = 1000 + it->index;
    return 0;
}

/* ---- who moves ---- */

/* All that a thread still needs is in these words: what it read before does not matter. */
static void settled(uint64_t digest) {
    model_thread *t = &world.thread[model.running];
    if (t->waiting.kind != M_STORE) t->history = digest;
}

static void work(int i) {
    dlpi_worker *w = &pipe_->workers[i];
    for (;;) {
        uint64_t seen[4] = {w->low, w->tail_seen, w->rewind_seen, (uint64_t)w->n_parked};
        settled(model_digest(seen, sizeof seen, 1));
        if (!dlpi_step(w)) dlpi_worker_sleep(w);
    }
}
static void worker_0(void) { work(0); }
static void worker_1(void) { work(1); }

static void take(uint64_t n) {
    dlp_batch *b = NULL;
    int rc = dlp_pipe_next(pipe_, &b, DLP_FOREVER);
    if (rc != DLP_OK) model_fail("next returned %d", rc);
    uint32_t s = slot_of(b->fields[0].data);
    read_fields(s);
    MODEL_CHECK(b->in_epoch == n && b->count == is.rows);
    MODEL_CHECK(b->sequence < BATCHES * 2 && !note->given[b->sequence]);
    note->given[b->sequence] = 1;
    for (uint32_t r = 0; r < is.rows; r++) {
        model_read_slot(model_find_slot((const uint64_t *)b->fields[0].data + r));
        MODEL_CHECK(((const uint64_t *)b->fields[0].data)[r] == 1000 + n * is.rows + r);
        MODEL_CHECK(b->index[r] == n * is.rows + r);
    }
    MODEL_CHECK(dlp_pipe_release(pipe_, b) == DLP_OK);
}

static void consumer(void) {
    for (uint64_t n = 0; n < is.batches; n++) {
        const dlp_pipe *p = pipe_;
        uint64_t seen[5] = {n, p->base, p->life, p->feed.published * !is.threaded, p->n_held};
        settled(model_digest(seen, sizeof seen, 2));
        take(n);
    }
}

static void feeder(void) { dlpi_thread_feeder(pipe_->workers); }

/* ---- a scenario ---- */

static void setup(void) {
    static const dlp_field field = {"x", DLP_U64, 0, {0}, 0, 0};
    dlp_batch *none;
    rig r;
    pages_forget();
    if (pipe_) munmap(pipe_->region, pipe_->region_bytes);
    memset(arena, 0, arena_used);
    arena_used = 0;
    rig_init(&r, (uint64_t)is.rows * is.batches, is.rows);
    r.pipe.prefetch_factor = is.fed ? (int32_t)is.batches : 1;
    r.pipe.max_held = (int32_t)(is.held ? is.held : 1);
    r.sampler.threaded = is.threaded;
    r.dataset.fields = &field;
    r.dataset.n_fields = 1;
    r.dataset.fetch = fetch;
    r.fetch.num_workers = is.fetchers;
    if (rig_open(&r, &pipe_) != DLP_OK) abort();
    note = (notes *)arena_take(1, sizeof *note);
    pipe_->spin_rounds = pipe_->yield_rounds = 0;
    if (is.fed) dlpi_feed(pipe_, 1);
    if (!is.threaded && dlp_pipe_next(pipe_, &none, DLP_NOWAIT) != DLP_TIMEOUT) abort();
    list_places();
    model.notes = note;
    model.notes_bytes = sizeof *note;
    model.bound = is.bound;
    pages_watch(0, arena, arena_used);
    pages_watch(1, pipe_->region, pipe_->region_bytes);
}

static void finish(void) {
    for (uint64_t b = 0; b < is.batches; b++) MODEL_CHECK(note->given[b] == 1);
}

typedef struct trial {
    shape shape;
    int daemons;
    model_scenario scenario;
    int large; /* 1: not for "weaken"; 2: for SOAK=1 alone */
} trial;

#define TRIAL(label, large, a, b, c, d, daemons, mortal, ...) \
    { {__VA_ARGS__}, daemons, {label, setup, {a, b, c, d, NULL}, finish, mortal}, large }

static const trial trials[] = {
    TRIAL("worker_consumer__one_batch__arrives_whole", 0, worker_0, consumer, NULL, NULL, 1, 0,
          .rows = 1, .batches = 1, .fetchers = 2, .fed = 1),
    TRIAL("worker_consumer__two_rows__arrive_whole", 0, worker_0, consumer, NULL, NULL, 1, 0,
          .rows = 2, .batches = 1, .fetchers = 2, .fed = 1),
    TRIAL("worker_consumer__two_batches__arrive_in_order", 0, worker_0, consumer, NULL, NULL, 1, 0,
          .rows = 1, .batches = 2, .fetchers = 2, .fed = 1),
};
enum { TRIALS = sizeof trials / sizeof *trials };

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int try_one(const trial *t, int loud) {
    is = t->shape;
    model.loose = model.membarrier = model.find_shared = 1;
    model.daemons = t->daemons;
    model.keep = pages_keep;
    model.kept_bytes = pages_bytes;
    model.bring_back = pages_bring_back;
    return model_run(&t->scenario, loud);
}

static int check_all(const char *only) {
    int bad = 0, count = 0;
    double begin = seconds();
    for (int i = 0; i < TRIALS; i++) {
        const trial *t = &trials[i];
        double from = seconds();
        if (only ? strcmp(only, t->scenario.name) != 0 : t->large > 1 && !getenv("SOAK")) continue;
        int r = try_one(t, 1);
        bad += r;
        count++;
        printf("%-55s %8llu states %9llu steps %6llu ends %6.2f s %s\n", t->scenario.name,
               (unsigned long long)model.states, (unsigned long long)model.steps,
               (unsigned long long)model.ends, seconds() - from, r ? "FAILED" : "");
        fflush(stdout);
    }
    printf("%d scenarios, %.1f s\n", count, seconds() - begin);
    return bad || count == 0;
}

static int weaken_all(void) {
    int caught = 0, kept_ = 0;
    for (int i = 0; i < TRIALS; i++) /* to meet all accesses */
        if (!trials[i].large && try_one(&trials[i], 1)) return 1;
    int sites = model.sites;
    for (int i = 0; i < sites; i++) {
        if (model.site[i].order == M_RLX) continue;
        const char *by = NULL;
        model.site[i].weak = 1;
        for (int k = 0; k < TRIALS && !by; k++)
            if (!trials[k].large && try_one(&trials[k], 0)) by = trials[k].scenario.name;
        model.site[i].weak = 0;
        printf("weakened %s in %s, line %d: %s%s\n", model.site[i].name, model.site[i].func,
               model.site[i].line, by ? "caught by " : "NOT CAUGHT", by ? by : "");
        fflush(stdout);
        caught += by != NULL;
        kept_ += !by;
    }
    printf("%d orders weakened, %d caught, %d not noticed\n", caught + kept_, caught, kept_);
    return 0;
}

int main(int argc, char **argv) {
    int weaken = argc > 1 && strcmp(argv[1], "weaken") == 0;
    int bad = weaken ? weaken_all() : check_all(argc > 1 ? argv[1] : NULL);
    printf("model_slots: %s\n", bad ? "FAILED" : "passed");
    return bad != 0;
}
#endif
