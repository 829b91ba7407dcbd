/* The words of batch slots: who feeds, claims, completes, closes, sends back, recovers, takes and
   gives back, on the header's own code, in every interleaving of small pipes and with every value
   that a load's order permits (model.h tells how). First in pairs, without any bound; then all at
   once, with few preemptions.

   Checked: each row is run once for each time that its unit was given up, by one at a time, and
   not in a batch that is ready; a batch arrives once, in order, with all its bytes and fields; a
   slot's fields and rows are not written while somebody may read them; nobody sleeps for ever
   (sleeps have no time limit here) while there is something to do.

   Without arguments: a part that is short, and of the mutants those that small scenarios notice.
   SOAK=1: all scenarios. "weaken" ("make weaken"): each ordered access that a scenario meets is
   made relaxed, is made acquire or release where it was seq_cst, and each write comes behind the
   next of its thread; in turn. A scenario has to notice, or model_slots_header.h to say why none
   need. A number behind it, 0 or 1: every second access. With a scenario's name: that one, and how
   it fails.

   Orders that come to the same are left out (model_reduce.h); "compare": all scenarios but the
   large ones in all orders, too, which has to lead to the same final states. Without arguments the
   smaller of them. Of the rules that are broken on purpose (model_broken) it notices 4, by 8
   scenarios, and 5, by 7; what 2 and 3 leave out is so little that model_rules.c alone has scenes
   for it.

   All roles at once do not go without a bound. "placed": from each place that worker 0 can stand
   at with a batch in hand, where it dies, or the consumer seeks. Five threads (two workers, of
   which one may die and be replaced, consumer, who seeks, scheduler; one batch of one row) end
   with two preemptions: 0.12 million states with none, 6.6 with one (in all orders: 0.17, 16), 161
   with two (ten minutes, 4.3 GB: SOAK=1). With three, from each of the 8 places where worker 0 may
   have died, by its name, "all_with_seek__place_4": 156, 129, 75, 75, 61, 93, 86 and 86 million
   states (5 to 11 minutes of processor and 2.2 to 6.4 GB each). A state is known by 63 bits: that
   one of 61 million was taken for another, and what follows from it left out, has a probability of
   0.0002; of 156 million, 0.0013.

   With three preemptions end, too: worker, recovery, second worker, scheduler (2.1 million states;
   in all orders 6); worker, recovery, consumer, scheduler (1.3 million; 10). In all orders, with
   two: two workers, consumer who seeks, scheduler; worker, recovery, second worker, consumer who
   seeks; worker, recovery, consumer who seeks, scheduler (45 million each). */
#include "model_slots.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* of the checker's world */
#include "../rig/pipe_rig.h"
#pragma GCC diagnostic pop

/* ---- a pipe ---- */

enum { SEQUENCES = 8, ROWS = 33 };

typedef struct shape {
    uint32_t rows, batches;
    int fetchers, item_map, collate, batch_map; /* workers of each stage */
    int threaded;                               /* the sampler */
    /* all batches are fed before the threads begin */
    int scheduled;
    uint32_t held;
    int fails;      /* rows or batches of the last stage that fail, once each */
    int seek;       /* 1 + how many batches the consumer takes before it seeks back to the first */
    int ends;       /* the consumer also waits for the end */
    int dies;       /* number of the worker that may */
    uint32_t awake; /* workers that are kept awake: no others are woken while they are */
    int placed; /* 1: all is fed, and worker 0 has made some steps with it when the others begin; it
                   dies there if it is mortal. In turn after each number of steps. */
    int first;  /* of these places */
    int one;    /* 1: it alone */
    int cells;  /* scratch cells */
    int run;    /* both rows are one run */
    int idempotent; /* the item map: it reads nothing but scratch */
    int bound;      /* preemptions + 1 */
} shape;

static shape is;
static dlp_pipe *pipe_;

/* What is true, beside what threads may know of it. */
typedef struct notes {
    uint8_t ran[3][SEQUENCES][ROWS]; /* how often each callback was begun */
    uint8_t given[SEQUENCES];        /* batches that the consumer has got */
    uint8_t failed, killed;
    uint8_t next, sought; /* what the consumer is at */
    uint8_t kept;         /* 1 + slot of the batch that it has not released */
} notes;
static notes *note;
static const uint64_t NOTES = UINT64_C(1) << M_FREE_BIT;

static const uint64_t *cell_of(uint32_t s) {
    return (const uint64_t *)(void *)hdr_item_cell(pipe_, s);
}

/* Of rows these are watched for races: of more than 32 one in each done word. */
static int is_watched(uint32_t row) { return is.rows <= 32 || row % 32 == 0; }

static void list_stage(uint32_t s, const hdr_stage *st) {
    hdr_sst *words = hdr_sst_at(pipe_, s, st);
    uint32_t units = !hdr_is_item_stage(pipe_, st) ? 1 : is.rows <= 32 ? is.rows : 2;
    model_list_atom("ready", &words->ready, 8, 0);
    model_list_atom("done", &hdr_done(words)[0], 8, 0);
    if (is.rows > 32) {
        model_list_atom("done 1", &hdr_done(words)[1], 8, 0);
        model_list_atom("scan", hdr_scan(pipe_, words), 8, 0);
        model.atom[model.atoms - 1].many = 1; /* a hint */
    }
    for (uint32_t u = 0; u < units; u++)
        model_list_atom(u ? "own 1" : "own 0", &hdr_own(pipe_, words)[u], 8, 0);
    model_list_atom("next", &words->next, 8, 0);
    model.atom[model.atoms - 1].many = 1; /* a hint */
}

static void list_slot(uint32_t s) {
    hdr_bslot *slot = hdr_slot_at(pipe_, s);
    model_list_atom("header", &slot->header, 8, 0);
    model_list_atom("used", &slot->used, 4, 0);
    model_list_atom("frees", &slot->frees, 4, 0);
    for (int k = 0; k < pipe_->n_work; k++) list_stage(s, pipe_->work[k]);
}

static void list_counter(const char *name, void *at, size_t size) {
    model_list_atom(name, at, size, 0);
    model.atom[model.atoms - 1].counter = 1;
}

static void list_waiters(void) {
    hdr_ctl *ctl = pipe_->ctl;
    model_list_atom("want", &ctl->consumer.mask, 8, 0);
    model.atom[model.atoms - 1].many = 1; /* its owner's store need not know of a ringer's swap */
    list_counter("consumer_word", &ctl->consumer.word, 4);
    if (is.threaded) {
        model_list_atom("feeder_sleeps", &ctl->scheduler.mask, 8, 0);
        model.atom[model.atoms - 1].many = 1; /* as want */
        list_counter("feeder_word", &ctl->scheduler.word, 4);
    }
    for (int k = 0; k < pipe_->n_work; k++) {
        list_counter("rewind", &pipe_->waiters[k].rescan, 8);
        list_counter("waiters word", &pipe_->waiters[k].group[0].at.word, 4);
        model_list_atom("waiters mask", &pipe_->waiters[k].group[0].at.mask, 8, 0);
    }
}

#ifdef MODEL_SCRATCH
#define MUTANTS 0 /* "weaken" shows which are noticed */
/* Cells of the fields that end before the batch, of which slot 0's rows have some; they are one
   behind the other, whatever their groups. */
static unsigned char *scratch_bytes(uint32_t c) {
    const dlpi_scratch *k = dlpi_scratch_of(pipe_);
    unsigned char *cells =
        dlpi_area_at(pipe_, DLPI_OWN(pipe_->holder_stage->id, DLPI_SCRATCH_CELLS), 0);
    return cells + c * k->cell_bytes + k->f[0].offset;
}

/* One group for a run of two rows. */
static void scratch_run(void) {
    dlpi_scratch *k = pipe_->holder_stage->self;
    if (!is.run) return;
    MODEL_CHECK(k->n_groups == 2 && k->shift == 0);
    k->n_groups = 1;
    k->shift = pipe_->run_shift_most = 1;
    for (int i = 0; i < pipe_->n_workers; i++) pipe_->workers[i].block->item_ns = 1;
}

static void list_scratch(void) {
    const dlpi_scratch *k = dlpi_scratch_of(pipe_);
    for (uint32_t g = 0; g < k->n_groups; g++)
        model_list_atom(g ? "group 1" : "group 0", &dlpi_scratch_words(pipe_)[g], 8, 0);
    for (uint32_t c = 0; c < k->n_groups << k->shift; c++) model_list_slot(scratch_bytes(c), 8);
    for (uint32_t r = 0; r < is.rows; r++)
        model_list_atom(r ? "number 1" : "number 0", dlpi_scratch_number(pipe_, 0, r), 8, 0);
    model_list_atom("lacking", &dlpi_scratch_lacking(pipe_, 0)->mask, 8, 0);
}

static uint64_t mix_scratch(uint64_t h) {
    for (int i = 0; i < pipe_->work[0]->n_workers; i++) {
        const dlpi_scratch_hand *k = &dlpi_scratch_of(pipe_)->hands[i];
        h = model_mix(h, (uint64_t)k->group << 3 | (uint64_t)k->none << 2 |
                             (uint64_t)k->lacks << 1 | (uint64_t)k->passed);
    }
    return h;
}

/* The item's own, in whichever cell; written by fetch, read by the map. */
static void write_scratch(const dlp_item *it) {
    model_write_slot(model_find_slot(it->data[1]));
    *(uint64_t *)it->data[1] = 5000 + it->index;
}
static void read_scratch(const dlp_item *it) {
    model_read_slot(model_find_slot(it->data[1]));
    MODEL_CHECK(*(const uint64_t *)it->data[1] == 5000 + it->index);
}
/* The one that takes a dead fetcher's place is a process of its own: with empty hands. */
static void scratch_replace(const hdr_worker *dead) {
    if (dead->st != pipe_->work[0]) return;
    memset(&dlpi_scratch_of(pipe_)->hands[dead->id], 0, sizeof(dlpi_scratch_hand));
}
static void scratch_rig(rig *r, const dlp_field *field) {
    static dlp_field raw;
    raw = *field;
    raw.name = "raw";
    r->scratch = &raw;
    r->n_scratch = 1;
    r->n_cells = (uint32_t)is.cells;
    r->item_map[0].workers.idempotent = is.idempotent;
}
#else
#define MUTANTS 1
#define list_scratch() (void)0
#define mix_scratch(h) (h)
#define write_scratch(it) (void)(it)
#define read_scratch(it) (void)(it)
#define scratch_replace(dead) (void)0
#define scratch_run() (void)0
#define scratch_rig(r, field) (void)0
#endif

static void list_places(void) {
    hdr_ctl *ctl = pipe_->ctl;
    model_list_atom("tail", &ctl->tail, 8, 0);
    model_list_atom("end_of_input", &ctl->end_of_input, 4, 0);
    model_list_atom("delivered", &ctl->delivered, 8, 0);
    model_list_atom("base", &ctl->base, 8, 0);
    model_list_atom("cancel", &ctl->cancel, 8, 0);
    for (uint32_t i = 0; i < pipe_->ring; i++)
        model_list_atom("order_ring", &pipe_->order_ring[i], 4, 0);
    list_waiters();
    list_scratch();
    for (uint32_t s = 0; s < pipe_->n_slots; s++) list_slot(s);
    for (uint32_t s = 0; s < pipe_->n_slots; s++) {
        int fields = M_ATOMS + 2 * model.slots;
        model_list_slot(&hdr_slot_at(pipe_, s)->in_epoch, 8); /* stands for the fields */
        world.newest.at[fields] = 1;                          /* and all know them as they are */
        for (int i = 0; i < M_THREADS; i++) world.thread[i].view.at[fields] = 1;
        for (uint32_t r = 0; r < is.rows; r++)
            if (is_watched(r)) model_list_slot((unsigned char *)(uintptr_t)(cell_of(s) + r), 8);
    }
}

/* The newest value of a word, whoever knows it. */
static uint64_t truth(const void *at) {
    int atom = model_find_atom(at);
    if (!model.use[atom].shared) return model_raw_load(at, model.atom[atom].size);
    return model_message_at(atom, world.newest.at[atom])->value;
}

/* Records of rows and batches are their claim's owner's: they follow from what was done. */
static uint64_t mix_records(uint64_t h) {
    for (uint32_t s = 0; s < pipe_->n_slots; s++) {
        const hdr_bslot *slot = hdr_slot_at(pipe_, s);
        h = model_hash(h, hdr_slot_rec(pipe_, s), 4 * (size_t)is.rows);
        h = model_hash(h, (const uint8_t *)slot + pipe_->off_tries, (size_t)pipe_->tries_bytes);
        h = model_mix(h, (uint64_t)slot->batch_fate << 32 | slot->dirty);
        h = model_mix(h, (uint64_t)slot->failed << 32 | slot->killed_by);
    }
    for (int i = 0; i < pipe_->n_workers; i++) {
        const hdr_worker *w = &pipe_->workers[i];
        h = model_mix(h, w->block->running);
        if (w->waiters) h = model_mix(h, truth(&w->waiters->rescan) - w->rescan_seen);
    }
    return mix_scratch(model_hash(h, note, sizeof *note));
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
    model_read_slot(model_find_slot(&hdr_slot_at(pipe_, s)->in_epoch));
}

/* Another may go on here, or this one die. */
static void pause_here(void) {
    model_op op;
    memset(&op, 0, sizeof op);
    op.kind = M_HERE;
    if (model.scenario->mortal) model_step(op);
}

static void write_row(uint32_t s, uint32_t row, uint64_t value) {
    uint64_t *at = (uint64_t *)(uintptr_t)(cell_of(s) + row);
    if (is_watched(row)) {
        model_write_slot(model_find_slot(at));
        *at = 7; /* half of it */
        pause_here();
    }
    *at = value;
}

static uint64_t read_row(uint32_t s, uint32_t row) {
    if (is_watched(row)) model_read_slot(model_find_slot(cell_of(s) + row));
    return cell_of(s)[row];
}

/* A callback of stage k begins on batch b: it is not ready, and not with the consumer. */
static void begins(uint32_t s, int k) {
    const hdr_bslot *slot = hdr_slot_at(pipe_, s);
    int closes = k < pipe_->n_item_work ? pipe_->n_item_work - 1 : k;
    read_fields(s);
    MODEL_CHECK(slot->sequence < SEQUENCES && !note->given[slot->sequence]);
    const void *ready = &hdr_sst_at(pipe_, s, pipe_->work[closes])->ready;
    MODEL_CHECK(!hdr_ready_past(truth(ready), slot->sequence));
    model_touch(NOTES | UINT64_C(1) << model_find_atom(ready), 0);
}

static void count_run(uint8_t *ran) {
    MODEL_CHECK((*ran)++ <= note->failed + note->killed);
    model_touch(0, NOTES);
}

static int may_fail(void) {
    model_touch(0, NOTES);
    if (note->failed >= is.fails) return 0;
    note->failed++;
    return -1;
}

static int fetch(void *user, dlp_item *it) {
    uint32_t s = slot_of(it->data[0]);
    (void)user;
    begins(s, 0);
    count_run(&note->ran[0][hdr_slot_at(pipe_, s)->sequence][it->row]);
    write_scratch(it);
    write_row(s, it->row, 1000 + it->index);
    return 0;
}

static int item_map(void *user, dlp_item *it) {
    uint32_t s = slot_of(it->data[0]);
    (void)user;
    begins(s, 1);
    count_run(&note->ran[1][hdr_slot_at(pipe_, s)->sequence][it->row]);
    if (!is.idempotent) MODEL_CHECK(read_row(s, it->row) == 1000 + it->index);
    read_scratch(it);
    write_row(s, it->row, (1000 + it->index) * 3);
    return is.batch_map ? 0 : may_fail();
}

static int batch_map(void *user, dlp_batch *b, void *state) {
    uint32_t s = slot_of(b->fields[0].data);
    uint64_t from = is.item_map ? 3 : 1;
    (void)user, (void)state;
    begins(s, pipe_->n_work - 1);
    count_run(&note->ran[2][b->sequence][0]);
    for (uint32_t r = 0; r < is.rows; r++)
        MODEL_CHECK(read_row(s, r) == (1000 + b->index[r]) * from);
    for (uint32_t r = 0; r < is.rows; r++) write_row(s, r, (1000 + b->index[r]) * from * 3);
    return may_fail();
}

/* ---- who moves ---- */

/* All that a thread still needs is in these words: what it read before does not matter. */
static void settled(uint64_t digest) {
    model_thread *t = &world.thread[model.running];
    if (t->waiting.kind == M_STORE || t->late.kind != M_END) return;
    t->history = digest;
    t->holds = 0;
}

static void consumer(void);
static void scheduler(void);
static void worker_1(void);
static void worker_2(void);
static void supervisor(void);

/* The worker that the running thread is; an inline one is the consumer's. */
static hdr_worker *worker_here(void) {
    void (*body)(void) = model.scenario->body[model.running];
    return &pipe_->workers[body == worker_1     ? 1
                           : body == worker_2   ? 2
                           : body == supervisor ? is.dies
                                                : 0];
}

static uint64_t worker_knows(const hdr_worker *w) {
    uint64_t seen[4] = {w->low, w->tail_seen, (uint64_t)w->n_parked, w->next_slot};
    uint64_t parked = model_digest(w->parked, (size_t)w->n_parked * sizeof *w->parked, 1);
    return model_digest(seen, sizeof seen, parked);
}

static void work(int i) {
    hdr_worker *w = &pipe_->workers[i];
    for (;;) {
        settled(worker_knows(w));
        if (!hdr_step(w)) hdr_worker_sleep(w);
    }
}
static void worker_0(void) { work(0); }
static void worker_1(void) { work(1); }
static void worker_2(void) { work(2); }

/* A worker is dead: what it had is freed, and another takes its place. */
static void supervisor(void) {
    static const hdr_death why = {9, false, NULL};
    hdr_worker *w = &pipe_->workers[is.dies];
    note->killed++;
    model_touch(0, NOTES);
    hdr_recover(w, &why);
    memcpy(w, kept.image[0] + ((unsigned char *)w - arena), sizeof *w);
    scratch_replace(w);
    work(is.dies);
}

static void take(uint64_t n) {
    dlp_batch *b = NULL;
    uint64_t scale = (uint64_t)(is.item_map ? 3 : 1) * (uint64_t)(is.batch_map ? 3 : 1);
    int rc = dlp_pipe_next(pipe_, &b);
    if (rc != DLP_OK) model_fail("next returned %d", rc);
    uint32_t s = slot_of(b->fields[0].data);
    if (note->kept) MODEL_CHECK(dlp_pipe_release(pipe_, &pipe_->out[note->kept - 1]) == DLP_OK);
    note->kept = 0;
    read_fields(s);
    MODEL_CHECK(b->in_epoch == n && b->count == is.rows);
    MODEL_CHECK(b->sequence < SEQUENCES && !note->given[b->sequence]);
    note->given[b->sequence] = 1;
    model_touch(0, NOTES);
    for (uint32_t r = 0; r < is.rows; r++) {
        MODEL_CHECK(read_row(s, r) == (1000 + n * is.rows + r) * scale);
        MODEL_CHECK(b->index[r] == n * is.rows + r);
    }
    if (is.held > 1 && n + 1 < is.batches) { /* kept until the next is there */
        note->kept = (uint8_t)(1 + s);
        return;
    }
    MODEL_CHECK(dlp_pipe_release(pipe_, b) == DLP_OK);
}

static uint64_t scheduler_knows(void) {
    const hdr_scheduler *f = &pipe_->schedule;
    uint64_t seen[9] = {f->published,       f->epoch,     f->in_epoch,  f->position, f->seek_no,
                        (uint64_t)f->ended, f->slot_turn, f->run_shift, f->alike};
    return model_digest(seen, sizeof seen, 3);
}

static uint64_t consumer_knows(void) {
    const dlp_pipe *p = pipe_;
    uint64_t seen[7] = {note->next, note->sought, p->base,         p->seek_no,
                        p->n_lent,  p->seeks,     p->awake.put_off};
    uint64_t more = is.threaded ? 2 : scheduler_knows();
    if (is.fetchers == 0) more ^= worker_knows(&p->workers[0]);
    return model_digest(seen, sizeof seen, more);
}

/* Calls to look again are counted from the last that the worker has answered. */
static uint64_t counted(int atom, uint64_t value) {
    const hdr_worker *w = worker_here();
    return model.atom[atom].at == &w->waiters->rescan ? model_mix(4, value - w->rescan_seen) : 0;
}

/* Who sleeps has nothing in hand but what it knew before it looked for work. */
static uint64_t knows_asleep(void) {
    void (*body)(void) = model.scenario->body[model.running];
    if (body == consumer) return consumer_knows();
    if (body == scheduler) return scheduler_knows();
    return worker_knows(worker_here());
}

static void take_all(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; n++) {
        note->next = (uint8_t)n;
        settled(consumer_knows());
        take(n);
    }
}

static dlp_state beginning;

static void consumer(void) {
    if (is.seek) {
        take_all(0, (uint64_t)is.seek - 1);
        note->sought = 1;
        MODEL_CHECK(dlp_pipe_seek(pipe_, &beginning, NULL) == DLP_OK);
    }
    take_all(0, is.batches);
    if (is.ends) {
        dlp_batch *none;
        note->next = (uint8_t)is.batches;
        MODEL_CHECK(dlp_pipe_next(pipe_, &none) == DLP_END);
    }
}

static void scheduler(void) { hdr_thread_scheduler(pipe_->workers); }

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
    r.pipe.no_memfd = 1;
    r.pipe.prefetch_factor = is.scheduled ? (int32_t)is.batches : 1;
    r.pipe.max_held = (int32_t)(is.held ? is.held : 1);
    r.sampler.threaded = is.threaded || is.rows > 32 || is.run; /* start feeds nothing then */
    r.dataset.fields = &field;
    r.dataset.n_fields = 1;
    r.dataset.fetch = fetch;
    r.fetch.num_workers = is.fetchers;
    r.n_item_maps = is.item_map > 0;
    r.item_map[0].map.item = item_map;
    r.item_map[0].workers.num_workers = is.item_map;
    r.item_map[0].workers.retries = 3;
    r.n_batch_maps = is.batch_map > 0;
    r.batch_map[0].map.batch = batch_map;
    r.batch_map[0].workers.num_workers = is.batch_map;
    r.batch_map[0].workers.retries = 3;
    scratch_rig(&r, &field);
    if (rig_open(&r, &pipe_) != DLP_OK) abort();
    note = (notes *)arena_take(1, sizeof *note);
    pipe_->wait.spin_ns = pipe_->wait.yields = 0;
    if (is.rows > 32) { /* two runs, one in each word */
        pipe_->cpus = 1;
        for (int i = 0; i < is.fetchers; i++) pipe_->workers[i].block->item_ns = 1;
    }
    scratch_run();
    if (is.scheduled) hdr_schedule(pipe_, 1);
    if (!is.threaded && dlp_pipe_next_timeout(pipe_, &none, 0) != DLP_TIMEOUT) abort();
    if (is.seek && dlp_pipe_state_at(pipe_, 0, 0, &beginning) != DLP_OK) abort();
    if (is.awake) pipe_->cpus = 1; /* it does not spin */
    pipe_->wait.awake_ns = 0;
    pipe_->ctl->keep_awake = is.awake;
    list_places();
    model.bound = is.bound;
    pages_watch(0, arena, arena_used);
    pages_watch(1, pipe_->region, pipe_->region_bytes);
}

static void finish(void) {
    int given = 0, consumed = 0;
    for (int i = 0; i < M_THREADS; i++) consumed |= model.scenario->body[i] == consumer;
    for (int b = 0; b < SEQUENCES; b++) given += note->given[b];
    if (consumed) {
        MODEL_CHECK(given == (int)is.batches + (is.seek ? is.seek - 1 : 0));
        return;
    }
    for (uint64_t b = 0; b < is.batches; b++) /* left in its slot */
        MODEL_CHECK(hdr_ready(pipe_, b, hdr_slot_of(pipe_, b)));
}

/* Threads: worker 0, and last the scheduler. */
static struct { int steps, made; } place;

static void lead(void) {
    int last = 0;
    for (int i = 0; i < M_THREADS; i++)
        if (model.scenario->body[i] == scheduler) last = i;
    model_lead(last, INT_MAX);
    place.made = 0;
    for (int n = 0; n < place.steps; n++) { /* loads alone make no other place */
        do place.made += model_lead(0, 1);
        while (model_can_go(&world.thread[0]) && world.thread[0].op.kind == M_LOAD);
    }
    if (model.scenario->mortal) model_lead_dies(0);
}

typedef struct trial {
    shape shape;
    int daemons;
    model_scenario scenario;
    int large; /* 1: not for "weaken"; 2: for SOAK=1 alone; 3: only by its name */
} trial;

#define PAIR(label, large, a, b, daemons, ...) \
    { {__VA_ARGS__}, daemons, {label, setup, {a, b, NULL, NULL, NULL}, finish, 0}, large }
#define MORE(label, large, a, b, c, d, e, daemons, mortal, ...) \
    { {__VA_ARGS__}, daemons, {label, setup, {a, b, c, d, e}, finish, mortal}, large }
#define PLACED(label, large, a, b, c, d, e, daemons, mortal, ...) \
    { {__VA_ARGS__, .placed = 1}, daemons, {label, setup, {a, b, c, d, e}, finish, mortal}, large }
#define PREEMPTED(n) .bound = (n) + 1
/* All roles, worker 0 having died at its n-th place. */
#define ALL_AT(n) \
    PLACED("all_with_seek__place_" #n "_preempted_3_times__all_arrive", BY_NAME, worker_0, \
           supervisor, worker_1, consumer, scheduler, 23, 1, .rows = 1, .batches = 1, \
           .fetchers = 2, .threaded = 1, .seek = 2, .first = (n), .one = 1, PREEMPTED(3))

#define SHORT 0
#define LONG 2
#define BY_NAME 3

static const trial trials[] = {
#ifdef MODEL_SCRATCH
    PAIR("scratch__one_row__decoded", SHORT, worker_0, worker_1, 3, .rows = 1, .batches = 1,
         .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1),
    PAIR("scratch__two_rows_one_cell__decoded_in_turn", SHORT, worker_0, worker_1, 3, .rows = 2,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1),
    PAIR("scratch__map_fails__row_keeps_or_gets_a_cell", LONG, worker_0, worker_1, 3, .rows = 2,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1, .fails = 1),
    PAIR("scratch__map_fails_one_row__row_gets_a_cell", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1, .fails = 1),
    PAIR("scratch__idempotent_map_fails__row_keeps_its_cell", SHORT, worker_0, worker_1, 3,
         .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1,
         .fails = 1, .idempotent = 1),
    MORE("scratch__two_fetchers_one_cell__one_after_the_other", SHORT, worker_0, worker_1, worker_2,
         NULL, NULL, 7, 0, .rows = 2, .batches = 1, .fetchers = 2, .item_map = 1, .scheduled = 1,
         .cells = 1, PREEMPTED(1)),
    MORE("scratch__fetcher_dies__its_cell_is_free_or_the_rows", SHORT, worker_0, supervisor,
         worker_1, NULL, NULL, 7, 1, .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1,
         .scheduled = 1, .cells = 1, PREEMPTED(1)),
    MORE("scratch__map_dies__row_has_its_cell", SHORT, worker_1, supervisor, worker_0, NULL, NULL,
         7, 1, .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 1,
         .dies = 1, PREEMPTED(1)),
    MORE("scratch__idempotent_map_dies__row_has_its_cell", SHORT, worker_1, supervisor, worker_0,
         NULL, NULL, 7, 1, .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1,
         .cells = 1, .dies = 1, .idempotent = 1, PREEMPTED(1)),
    PAIR("scratch__run_of_two__decoded_with_one_group", SHORT, worker_0, worker_1, 3, .rows = 2,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 2, .run = 1),
    PAIR("scratch__map_fails_in_a_run__row_finds_its_cell", SHORT, worker_0, worker_1, 3, .rows = 2,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 2, .run = 1,
         .fails = 1),
    PAIR("scratch__idempotent_map_fails_in_a_run__row_keeps_its_cell", SHORT, worker_0, worker_1, 3,
         .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 2,
         .run = 1, .fails = 1, .idempotent = 1),
    PAIR("scratch__two_runs_one_group__in_turn", LONG, worker_0, worker_1, 3, .rows = 2,
         .batches = 2, .fetchers = 1, .item_map = 1, .scheduled = 1, .cells = 2, .run = 1),
    MORE("scratch__fetcher_dies_in_a_run__its_group_is_free_or_the_runs", SHORT, worker_0,
         supervisor, worker_1, NULL, NULL, 7, 1, .rows = 2, .batches = 1, .fetchers = 1,
         .item_map = 1, .scheduled = 1, .cells = 2, .run = 1, PREEMPTED(1)),
    MORE("scratch__map_dies_in_a_run__rows_have_their_cells", SHORT, worker_1, supervisor, worker_0,
         NULL, NULL, 7, 1, .rows = 2, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1,
         .cells = 2, .run = 1, .dies = 1, PREEMPTED(1)),
    MORE("scratch__idempotent_map_dies_in_a_run__rows_have_their_cells", SHORT, worker_1,
         supervisor, worker_0, NULL, NULL, 7, 1, .rows = 2, .batches = 1, .fetchers = 1,
         .item_map = 1, .scheduled = 1, .cells = 2, .run = 1, .dies = 1, .idempotent = 1,
         PREEMPTED(1)),
#else
    /* pairs, without a bound */
    PAIR("worker_consumer__one_batch__arrives_whole", SHORT, worker_0, consumer, 1, .rows = 1,
         .batches = 1, .fetchers = 2, .scheduled = 1),
    PAIR("worker_consumer__two_batches__arrive_in_order", SHORT, worker_0, consumer, 1, .rows = 1,
         .batches = 2, .fetchers = 2, .scheduled = 1),
    PAIR("worker_consumer__feeds_itself__all_arrive", SHORT, worker_0, consumer, 1, .rows = 1,
         .batches = 2, .fetchers = 2),
    /* worker 1 does not come, as in a callback that takes long */
    PAIR("worker_consumer__another_kept_awake__woken_all_the_same", SHORT, worker_0, consumer, 1,
         .rows = 1, .batches = 2, .fetchers = 2, .awake = 1),
    PAIR("worker_consumer__two_words__arrives_whole", SHORT, worker_0, consumer, 1, .rows = 33,
         .batches = 1, .fetchers = 2, .scheduled = 1),
    PAIR("worker_worker__two_rows__run_once", SHORT, worker_0, worker_1, 3, .rows = 2, .batches = 1,
         .fetchers = 2, .scheduled = 1),
    PAIR("worker_worker__two_words__close_once", SHORT, worker_0, worker_1, 3, .rows = 33,
         .batches = 1, .fetchers = 2, .scheduled = 1),
    PAIR("worker_worker__two_batches__run_once", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 2, .fetchers = 2, .scheduled = 1),
    PAIR("worker_worker__item_map__rows_passed_on", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1),
    PAIR("worker_worker__item_map_fails__row_goes_back", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1, .fails = 1),
    PAIR("worker_worker__batch_map__passed_on", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 1, .fetchers = 1, .batch_map = 1, .scheduled = 1),
    PAIR("worker_worker__batch_map_fails__batch_goes_back", SHORT, worker_0, worker_1, 3, .rows = 1,
         .batches = 1, .fetchers = 1, .batch_map = 1, .scheduled = 1, .fails = 1),
    PAIR("worker_feeder__one_batch__is_run", SHORT, worker_0, scheduler, 3, .rows = 1, .batches = 1,
         .fetchers = 2, .threaded = 1),
    PAIR("consumer_feeder__works_itself__end_is_told", SHORT, consumer, scheduler, 2, .rows = 1,
         .batches = 1, .threaded = 1, .ends = 1, PREEMPTED(2)),
    PAIR("consumer_feeder__credits__slots_go_round", SHORT, consumer, scheduler, 2, .rows = 1,
         .batches = 3, .threaded = 1, .ends = 1, PREEMPTED(1)),
    PAIR("seek_worker__feeds_itself__begins_again", SHORT, worker_0, consumer, 1, .rows = 1,
         .batches = 1, .fetchers = 2, .seek = 1),
    PAIR("seek_feeder__before_a_batch__begins_again", SHORT, consumer, scheduler, 2, .rows = 1,
         .batches = 1, .threaded = 1, .seek = 1, .ends = 1, PREEMPTED(1)),
    PAIR("seek_feeder__after_a_batch__begins_again", SHORT, consumer, scheduler, 2, .rows = 1,
         .batches = 1, .threaded = 1, .seek = 2, .ends = 1, PREEMPTED(1)),
    /* three, with few preemptions */
    MORE("worker_consumer_feeder__preempted_once__end_is_told", SHORT, worker_0, consumer,
         scheduler, NULL, NULL, 5, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
         .ends = 1, PREEMPTED(1)),
    MORE("worker_consumer_feeder__preempted_once__slots_go_round", SHORT, worker_0, consumer,
         scheduler, NULL, NULL, 5, 0, .rows = 1, .batches = 3, .fetchers = 2, .threaded = 1,
         PREEMPTED(1)),
    MORE("seek_worker_feeder__preempted_once__begins_again", SHORT, worker_0, consumer, scheduler,
         NULL, NULL, 5, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 1,
         PREEMPTED(1)),
    MORE("redo_claimers__preempted_once__row_run_again", SHORT, worker_0, worker_1, worker_2, NULL,
         NULL, 7, 0, .rows = 1, .batches = 1, .fetchers = 2, .item_map = 1, .scheduled = 1,
         .fails = 1, PREEMPTED(1)),
    MORE("redo_maps__preempted_once__batch_goes_back", SHORT, worker_0, worker_1, worker_2, NULL,
         NULL, 7, 0, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1, .batch_map = 1,
         .scheduled = 1, .fails = 1, PREEMPTED(1)),
    MORE("recovery_worker__preempted_once__run_again", SHORT, worker_0, supervisor, worker_1, NULL,
         NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 2, .scheduled = 1, PREEMPTED(1)),
    MORE("recovery_consumer__preempted_once__arrives", SHORT, worker_0, supervisor, consumer, NULL,
         NULL, 3, 1, .rows = 1, .batches = 1, .fetchers = 2, .scheduled = 1, PREEMPTED(1)),
    MORE("recovery_item_map__preempted_once__row_goes_back", SHORT, worker_1, supervisor, worker_0,
         NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1,
         .dies = 1, PREEMPTED(1)),
    MORE("recovery_of_a_redo__preempted_once__row_goes_back", SHORT, worker_1, supervisor, worker_0,
         NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1,
         .fails = 1, .dies = 1, PREEMPTED(1)),
    MORE("recovery_batch_map__preempted_once__batch_goes_back", SHORT, worker_1, supervisor,
         worker_0, NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .batch_map = 1,
         .scheduled = 1, .dies = 1, PREEMPTED(1)),
    MORE("recovery_of_a_batch_redo__preempted_once__goes_back", SHORT, worker_1, supervisor,
         worker_0, NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .batch_map = 1,
         .scheduled = 1, .fails = 1, .dies = 1, PREEMPTED(1)),
    MORE("worker_worker_consumer__two_words__arrives_whole", SHORT, worker_0, worker_1, consumer,
         NULL, NULL, 3, 0, .rows = 33, .batches = 1, .fetchers = 2, .scheduled = 1, PREEMPTED(1)),
    MORE("worker_worker_consumer__one_kept_awake__all_arrive", SHORT, worker_0, worker_1, consumer,
         NULL, NULL, 3, 0, .rows = 1, .batches = 2, .fetchers = 2, .awake = 1, PREEMPTED(1)),
    MORE("worker_worker_consumer__batch_map__arrives_whole", SHORT, worker_0, worker_1, consumer,
         NULL, NULL, 3, 0, .rows = 1, .batches = 1, .fetchers = 1, .batch_map = 1, .scheduled = 1,
         PREEMPTED(2)),
    MORE("redo_consumer__preempted_once__arrives_whole", SHORT, worker_0, worker_1, consumer, NULL,
         NULL, 3, 0, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1, .scheduled = 1,
         .fails = 1, PREEMPTED(1)),
    MORE("worker_consumer_feeder__one_is_held__slots_go_round", SHORT, worker_0, consumer,
         scheduler, NULL, NULL, 5, 0, .rows = 1, .batches = 3, .fetchers = 2, .threaded = 1,
         .held = 2, PREEMPTED(2)),
    MORE("recovery_against_a_redo__preempted_once__run_again", SHORT, worker_0, supervisor,
         worker_1, NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1,
         .scheduled = 1, .fails = 1, PREEMPTED(1)),
    MORE("recovery_against_a_batch_redo__preempted_once__run_again", SHORT, worker_0, supervisor,
         worker_1, NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .batch_map = 1,
         .scheduled = 1, .fails = 1, PREEMPTED(1)),
    MORE("recovery_of_a_batch_redo__two_stages__goes_back", SHORT, worker_2, supervisor, worker_0,
         worker_1, NULL, 15, 1, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1,
         .batch_map = 1, .scheduled = 1, .fails = 1, .dies = 2, PREEMPTED(0)),
    /* all */
    PLACED("recovery_all__placed_preempted_once__arrives", 1, worker_0, supervisor, worker_1,
           consumer, scheduler, 23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
           PREEMPTED(1)),
    PLACED("seek_all__placed_preempted_once__all_arrive", 1, worker_0, worker_1, consumer,
           scheduler, NULL, 11, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 1,
           PREEMPTED(1)),
    PLACED("recovery_all__placed_preempted_twice__arrives", LONG, worker_0, supervisor, worker_1,
           consumer, scheduler, 23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
           PREEMPTED(2)),
    PLACED("seek_all__placed_preempted_twice__all_arrive", LONG, worker_0, worker_1, consumer,
           scheduler, NULL, 11, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 1,
           PREEMPTED(2)),
    PLACED("recovery_all__placed_preempted_3_times__arrives", LONG, worker_0, supervisor, worker_1,
           consumer, scheduler, 23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
           .first = 6, PREEMPTED(3)),
    ALL_AT(0),
    ALL_AT(1),
    ALL_AT(2),
    ALL_AT(3),
    ALL_AT(4),
    ALL_AT(5),
    ALL_AT(6),
    ALL_AT(7),
    MORE("all_but_consumer__preempted_3_times__is_run", LONG, worker_0, supervisor, worker_1,
         scheduler, NULL, 15, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
         PREEMPTED(3)),
    MORE("recovery_consumer_feeder__preempted_3_times__arrives", LONG, worker_0, supervisor,
         consumer, scheduler, NULL, 11, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1,
         PREEMPTED(3)),
    MORE("all_but_seek__in_turn__arrives", 1, worker_0, supervisor, worker_1, consumer, scheduler,
         23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, PREEMPTED(0)),
    MORE("all__in_turn__all_arrive", 1, worker_0, supervisor, worker_1, consumer, scheduler, 23, 1,
         .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 2, PREEMPTED(0)),
    MORE("all__preempted_once__all_arrive", LONG, worker_0, supervisor, worker_1, consumer,
         scheduler, 23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 2,
         PREEMPTED(1)),
    MORE("all__preempted_twice__all_arrive", LONG, worker_0, supervisor, worker_1, consumer,
         scheduler, 23, 1, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 2,
         PREEMPTED(2)),
    PAIR("consumer_feeder__no_bound__end_is_told", LONG, consumer, scheduler, 2, .rows = 1,
         .batches = 1, .threaded = 1, .ends = 1),
    PAIR("consumer_feeder__preempted_3_times__slots_go_round", LONG, consumer, scheduler, 2,
         .rows = 1, .batches = 3, .threaded = 1, .ends = 1, PREEMPTED(3)),
    PAIR("seek_feeder__preempted_3_times__begins_again", LONG, consumer, scheduler, 2, .rows = 1,
         .batches = 1, .threaded = 1, .seek = 2, .ends = 1, PREEMPTED(3)),
    PAIR("worker_consumer__feeds_itself__slots_go_round", LONG, worker_0, consumer, 1, .rows = 1,
         .batches = 3, .fetchers = 2),
    MORE("recovery_consumer__one_batch__arrives_whole", LONG, worker_0, supervisor, consumer, NULL,
         NULL, 3, 1, .rows = 1, .batches = 1, .fetchers = 2, .scheduled = 1),
    MORE("recovery_worker__one_row__run_again", LONG, worker_0, supervisor, worker_1, NULL, NULL, 7,
         1, .rows = 1, .batches = 1, .fetchers = 2, .scheduled = 1),
    MORE("recovery_worker__two_rows__run_again", LONG, worker_0, supervisor, worker_1, NULL, NULL,
         7, 1, .rows = 2, .batches = 1, .fetchers = 2, .scheduled = 1, PREEMPTED(3)),
    MORE("recovery_of_a_redo__preempted_3_times__row_goes_back", LONG, worker_1, supervisor,
         worker_0, NULL, NULL, 7, 1, .rows = 1, .batches = 1, .fetchers = 1, .item_map = 1,
         .scheduled = 1, .fails = 1, .dies = 1, PREEMPTED(3)),
    MORE("redo_claimers__fails_twice__row_run_again", LONG, worker_0, worker_1, worker_2, NULL,
         NULL, 7, 0, .rows = 1, .batches = 1, .fetchers = 2, .item_map = 1, .scheduled = 1,
         .fails = 2, PREEMPTED(2)),
    PAIR("seek_worker__after_a_batch__begins_again", LONG, worker_0, consumer, 1, .rows = 1,
         .batches = 2, .fetchers = 2, .seek = 2),
    MORE("worker_consumer_feeder__one_batch__arrives_whole", LONG, worker_0, consumer, scheduler,
         NULL, NULL, 5, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1),
    MORE("worker_consumer_feeder__preempted__slots_go_round", LONG, worker_0, consumer, scheduler,
         NULL, NULL, 5, 0, .rows = 1, .batches = 3, .fetchers = 2, .threaded = 1, PREEMPTED(3)),
    MORE("seek_worker_feeder__preempted__begins_again", LONG, worker_0, consumer, scheduler, NULL,
         NULL, 5, 0, .rows = 1, .batches = 1, .fetchers = 2, .threaded = 1, .seek = 2, .ends = 1,
         PREEMPTED(3)),
#endif
};
enum { TRIALS = sizeof trials / sizeof *trials };

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of all places. outcomes: how many final states; which: all of them in one word. */
static struct { uint64_t states, steps, ends, outcomes, which; } sum;
static int in_full; /* all orders */

static int try_one(const trial *t, int loud) {
    is = t->shape;
    model.loose = model.membarrier = model.find_shared = model.by_place = 1;
    model.reduce = !in_full;
    model.daemons = t->daemons;
    model.mix_more = mix_records;
    model.at_wait = knows_asleep;
    model.counted = counted;
    model.lead = is.placed ? lead : NULL;
    model.keep = pages_keep;
    model.kept_bytes = pages_bytes;
    model.bring_back = pages_bring_back;
    memset(&sum, 0, sizeof sum);
    place.made = -1;
    for (place.steps = is.first;; place.steps++) {
        int made = place.made, r = model_run(&t->scenario, loud);
        sum.states += model.states;
        sum.steps += model.steps;
        sum.ends += model.ends;
        sum.outcomes += model_outcomes.n;
        sum.which += model_outcomes.all;
        if (r || !is.placed || is.one || place.made == made) return r;
    }
}

static int check_all(const char *only) {
    int bad = 0, count = 0;
    double begin = seconds();
    for (int i = 0; i < TRIALS; i++) {
        const trial *t = &trials[i];
        double from = seconds();
        if (only ? strncmp(only, t->scenario.name, strlen(only)) != 0
                 : t->large > (getenv("SOAK") ? LONG : 1))
            continue;
        int r = try_one(t, 1);
        bad += r;
        count++;
        printf("%-55s %8llu states %9llu steps %6llu ends %6.2f s %s\n", t->scenario.name,
               (unsigned long long)sum.states, (unsigned long long)sum.steps,
               (unsigned long long)sum.ends, seconds() - from, r ? "FAILED" : "");
        fflush(stdout);
    }
    printf("%d scenarios, %.1f s\n", count, seconds() - begin);
    return bad || count == 0;
}

/* Without the orders that come to the same as others the same final states are found: where all
   orders together have at most so many states, 0: any number. */
static int compare(uint64_t most) {
    int bad = 0, count = 0;
    for (int i = 0; i < TRIALS; i++) {
        if (trials[i].large) continue;
        model.most_states = most;
        in_full = 1;
        int r = try_one(&trials[i], 0), too_many = model.gave_up;
        uint64_t states = sum.states, outcomes = sum.outcomes, which = sum.which;
        in_full = 0;
        model.most_states = 0;
        if (too_many) continue;
        r |= try_one(&trials[i], 1);
        count++;
        if (!r && sum.outcomes == outcomes && sum.which == which) continue;
        printf("%s: %llu final states of %llu, and %llu of %llu\n", trials[i].scenario.name,
               (unsigned long long)outcomes, (unsigned long long)states,
               (unsigned long long)sum.outcomes, (unsigned long long)sum.states);
        bad++;
    }
    printf("%d scenarios in all orders, too: %d differ\n", count, bad);
    return bad || count < (MUTANTS ? 20 : 2);
}

/* ---- mutants ---- */

static const char *const how_names[] = {"as it is", "relaxed", "not seq_cst", "late"};

static int argued[NEEDLESS];

static const char *why_needless(int site, int how) {
    for (int i = 0; i < NEEDLESS; i++) {
        if (needless[i].how != how || strcmp(needless[i].func, model.site[site].func) != 0 ||
            strcmp(needless[i].access, model.site[site].name) != 0 ||
            strcmp(needless[i].place, model.site[site].place) != 0)
            continue;
        argued[i] = 1;
        return needless[i].why;
    }
    return NULL;
}

/* Writes whose result nobody reads may come later. */
static int may_be_late(int site) {
    const char *at = model.site[site].place;
    if (model.site[site].kind == M_STORE) return 1;
    return (model.site[site].kind == M_AND || model.site[site].kind == M_ADD) &&
           (strncmp(at, "done", 4) == 0 || strcmp(at, "rewind") == 0);
}

static int is_mutant(int site, int how) {
    int order = model.site[site].order;
    if (!model.site[site].place) return 0; /* DLPI_KEEP_ORDER: of the queues */
    if (how == M_RELAXED) return order != M_RLX;
    return how == M_NOT_SEQ ? (order & M_SC) != 0 : may_be_late(site);
}

static struct {
    uint64_t states;
    uint8_t met[M_SITES];
    model_use use[M_ATOMS];
} tried[TRIALS]; /* without a mutant */

/* The scenario, of those with at most so many states, smallest first, that notices the mutant. */
static const trial *noticed(int site, int how, uint64_t most) {
    const trial *by = NULL;
    uint64_t from = 0;
    model.site[site].weak = how;
    while (!by) {
        int next = -1;
        for (int k = 0; k < TRIALS; k++)
            if (tried[k].met[site] && tried[k].states > from && tried[k].states <= most &&
                (next < 0 || tried[k].states < tried[next].states))
                next = k;
        if (next < 0) break;
        from = tried[next].states;
        model.most_states = 2 * from + 20000;
        memcpy(model.use, tried[next].use, sizeof model.use);
        model.use_known = 1;
        if (try_one(&trials[next], 0) && !model.gave_up) by = &trials[next];
    }
    model.site[site].weak = M_AS_IS;
    model.use_known = 0;
    model.most_states = 0;
    return by;
}

static int try_all(uint64_t most) {
    for (int k = 0; k < TRIALS; k++) {
        for (int i = 0; i < M_SITES; i++) model.site[i].met = 0;
        if (trials[k].large) continue;
        model.most_states = most;
        if (try_one(&trials[k], 0) && !model.gave_up) return 1;
        model.most_states = 0;
        tried[k].states = model.gave_up ? 0 : sum.states;
        memcpy(tried[k].use, model.use, sizeof model.use);
        for (int i = 0; i < M_SITES; i++) tried[k].met[i] = (uint8_t)model.site[i].met;
    }
    return 0;
}

static int show_mutant(int site, int how, const trial *by, int brief) {
    const char *why = by ? NULL : why_needless(site, how);
    if (brief && !by) return 0;
    printf("%-20s %5d %-9s %-13s %-11s ", model.site[site].func, model.site[site].line,
           model.site[site].name, model.site[site].place, how_names[how]);
    if (by)
        printf("%s, %llu states: %s\n", by->scenario.name, (unsigned long long)sum.states,
               model.failure);
    else
        printf("%s%s\n", why ? "not needed: " : "NOT CAUGHT", why ? why : "");
    fflush(stdout);
    return !by && !why;
}

enum { FEW = 50000 };               /* states, in all orders */
enum { BRIEF = 4500, FEWEST = 30 }; /* states; mutants that are noticed with so many */

/* Each access of the header that a scenario meets: made relaxed, no longer seq_cst, late. brief:
   only what small scenarios notice. */
static int weaken_all(uint64_t most, int part, int parts) {
    int count = 0, caught = 0, bad = 0, brief = most != UINT64_MAX;
    if (try_all(most)) return 1;
    for (int i = 0, sites = model.sites; i < sites; i++) {
        int relaxed = 1;
        if (i % parts != part) continue;
        for (int how = M_RELAXED; how <= M_LATE; how++) {
            const trial *by;
            if (!is_mutant(i, how) || (how == M_NOT_SEQ && !relaxed)) continue;
            by = noticed(i, how, most);
            if (how == M_RELAXED) relaxed = by != NULL;
            bad += show_mutant(i, how, by, brief);
            caught += by != NULL;
            count++;
        }
    }
    for (int i = 0; !brief && parts == 1 && i < NEEDLESS; i++)
        if (!argued[i]) {
            printf("there is no such mutant, or it is noticed: %s %s %s %s\n", needless[i].func,
                   needless[i].access, needless[i].place, how_names[needless[i].how]);
            bad++;
        }
    printf("%d mutants, %d caught by %s, %d without a word why not\n", count, caught,
           brief ? "small scenarios" : "scenarios", bad);
    return bad || (brief && caught < FEWEST);
}

int main(int argc, char **argv) {
    int bad;
    if (argc > 1 && strcmp(argv[1], "weaken") == 0) {
        bad = weaken_all(UINT64_MAX, argc > 2 ? atoi(argv[2]) : 0, argc > 2 ? 2 : 1);
    } else {
        int compares = argc > 1 && strcmp(argv[1], "compare") == 0;
        bad = compares ? 0 : check_all(argc > 1 ? argv[1] : NULL);
        if (compares || argc == 1) bad += compare(compares ? 0 : FEW);
        if (argc == 1 && MUTANTS) bad += weaken_all(BRIEF, 0, 1);
    }
    printf("model_slots: %s\n", bad ? "FAILED" : "passed");
    return bad != 0;
}
#endif
