/* needs: parts */
/* Credits, offers, cells of inputs, and pushed items of which a full lane keeps the newest: in
   every interleaving of small cases, with every value that a load's order permits (model.h tells
   how), on the header's own code. Threads begin in a state that is placed by hand; each one has
   two or three. In lanes an item and its mark are written before the tail, and read, or left out,
   before the head: each of these stores made relaxed is noticed.

   Checked: what is read is there, whole, and of whom it should be; a cell is not written while
   somebody may read or write it; nothing comes twice or is lost; nobody waits for ever for what
   has come.

   Without arguments: all that is short, and each mutant (an access made relaxed, a write behind the
   next one): a scenario has to notice it, or `needless` to say why none needs to. That they are in
   one order, seq_cst, is for who sleeps: model.c and model_slots.c go through that, and through the
   lanes. SOAK=1: larger ones, too. "weaken": mutants alone. A scenario's name: that one, and how
   it fails. */
#define MODEL_HEADER "../../dlpipe_shm.h"
#define MODEL_THREADS 4
#define MODEL_ATOMS 16
#define MODEL_SLOTS 8
#define MODEL_MESSAGES 30
#define MODEL_SITES 128
#include "model.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else
#include "model_mutants.h"

enum { CELLS = 2 };

typedef struct shape {
    uint64_t n;     /* batches, inputs, records */
    uint32_t cells; /* 0: 2 */
    int withdraws;  /* offers: those of readers are taken back where the cell is needed */
    int closes;     /* inputs: one that is still open is given up */
    int cheap;      /* inputs take less than to wake somebody */
    uint32_t run;   /* inputs: so many of each cell; 0: 1 */
    int offered;    /* inputs: all are open when the threads begin */
    uint64_t keep;  /* newest: items of a full lane that are not left out; cells: its capacity */
    uint32_t ends;  /* newest: ends of streams in a lane, each after n items; 0: 1 */
} shape;

static shape is;

typedef struct cell { /* 8 bytes that stand for what is in it */
    uint64_t fields, bytes, more;
} cell;

/* All that the threads of a scenario use lies here; and what is true. */
static struct {
    _Alignas(128) uint64_t counter[2]; /* what is there, what was given back */
    uint32_t end, used[CELLS];
    uint64_t header[CELLS], offer[2][CELLS];
    cell cell[CELLS];
    uint32_t word; /* who waits looks at it before */
    uint32_t over;
    /* inputs */
    _Alignas(128) struct {
        dlpi_input cell[CELLS];
        uint64_t bits[DLPI_LINE / 8];
    } region;
    dlpi_ctl ctl;
    struct {
        uint32_t input_at, input_untold;
    } own[2];
    /* newest: capacity 4 at most */
    _Alignas(128) unsigned char queue[4096];
    dlpi_push_head head;
    dlpi_push_line line[2];
    dlp_push push;
    dlp_pusher pusher[3];
    dlp_spsc_rx lanes[2];
    uint64_t counts[4], ended[2], item;
    /* notes */
    uint64_t taken[2], loads[16], deaths;
} w;

static uint32_t cells(void) { return is.cells ? is.cells : CELLS; }

static void list_n(const char *const *names, void *at, size_t size, size_t stride, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) model_list_atom(names[i], (char *)at + i * stride, size, 0);
}

static const char *const header_names[] = {"header", "header 1"};
static const char *const used_names[] = {"used", "used 1"};
static const char *const offer_names[] = {"offer", "offer 1", "offer 2", "offer 3"};
static const char *const state_names[] = {"state", "state 1"};

/* All know the cells as they are. */
static void list_cells(void) {
    for (uint32_t c = 0; c < cells(); c++) {
        for (int i = 0; i < 3; i++) {
            int at = M_ATOMS + 2 * model.slots;
            model_list_slot(&w.cell[c].fields + i, 8);
            world.newest.at[at] = 1;
            for (int t = 0; t < M_THREADS; t++) world.thread[t].view.at[at] = 1;
        }
    }
}

/* Who is mortal may die here. */
static void pause_here(void) {
    model_op op;
    memset(&op, 0, sizeof op);
    op.kind = M_HERE;
    if (model.scenario->mortal) model_step(op);
}

static void write_cell(uint64_t *at, uint64_t value) {
    model_write_slot(model_find_slot(at));
    *at = 7777; /* half of it */
    pause_here();
    *at = value;
}

static uint64_t read_cell(uint64_t *at) {
    model_read_slot(model_find_slot(at));
    return *at;
}

/* ---- credits: one counts what is there, the other what it gives back ---- */

static void credits_setup(void) {
    model_list_atom("there", &w.counter[0], 8, 1);
    model_list_atom("back", &w.counter[1], 8, 1);
    model_list_atom("end", &w.end, 4, 0);
    list_cells();
}

static void credits_writer(void) {
    for (uint64_t i = 0; i < is.n; i++) {
        while (i - dlpi_credit_seen(&w.counter[1]) >= cells())
            model_poll(i, model_bit(&w.counter[1]));
        write_cell(&w.cell[i % cells()].bytes, 100 + i);
        dlpi_credit_publish(&w.counter[0], i + 1);
        model_here(i + 1);
    }
    dlpi_credit_close(&w.end, 1);
}

static void credits_read(int quiet) {
    for (;;) {
        uint32_t end = dlpi_credit_closed(&w.end);
        uint64_t i = w.taken[0];
        if (dlpi_credit_seen(&w.counter[0]) == i) {
            if (end) return;
            model_here(i); /* nothing makes the newest of both visible at once */
            continue;
        }
        MODEL_CHECK(read_cell(&w.cell[i % cells()].bytes) == 100 + i);
        w.taken[0] = i + 1;
        if (quiet)
            dlpi_credit_publish_quiet(&w.counter[1], i + 1);
        else
            dlpi_credit_publish(&w.counter[1], i + 1);
        model_here(i + 1);
    }
}
static void credits_reader(void) { credits_read(0); }
static void credits_quiet_reader(void) { credits_read(1); }

/* Another looks on, who neither writes nor takes. */
static void credits_observer(void) {
    uint64_t back = dlpi_credit_look(&w.counter[1]), there = dlpi_credit_look(&w.counter[0]);
    MODEL_CHECK(there >= back && there - back <= is.n);
}

/* What was taken, but not given back, comes again. */
static void credits_successor(void) {
    uint64_t back = dlpi_credit_seen(&w.counter[1]);
    MODEL_CHECK(back <= w.taken[0] && w.taken[0] - back <= 1);
    w.taken[0] = back;
    model_here(back);
    credits_read(0);
}

static void credits_end(void) {
    MODEL_CHECK(w.taken[0] == is.n && w.counter[0] == is.n && w.counter[1] == is.n);
}

/* ---- cells that come back: taken by one, given back by another ---- */

static void cells_setup(void) {
    model_list_atom("there", &w.counter[0], 8, 1);
    list_n(used_names, w.used, 4, 4, cells());
    list_n(header_names, w.header, 8, 8, cells());
    list_cells();
}

static void cells_taker(void) {
    for (uint64_t i = 0; i < is.n; i++) {
        uint32_t c = (uint32_t)(i % cells());
        uint32_t held = i & 1 ? dlpi_credit_held(&w.used[c]) : dlpi_credit_held_look(&w.used[c]);
        while (held != 0) {
            model_poll(i, model_bit(&w.used[c]));
            held = i & 1 ? dlpi_credit_held(&w.used[c]) : dlpi_credit_held_look(&w.used[c]);
        }
        dlpi_credit_take(&w.used[c], 1);
        write_cell(&w.cell[c].bytes, 100 + i);
        dlpi_credit_publish_quiet(&w.counter[0], i + 1);
        model_here(i + 1);
    }
}

static void cells_give(int quiet) {
    for (uint64_t i = w.taken[0]; i < is.n; i++) {
        while (dlpi_credit_seen(&w.counter[0]) <= i) model_poll(i, model_bit(&w.counter[0]));
        w.taken[0] = i + 1;
        MODEL_CHECK(read_cell(&w.cell[i % cells()].bytes) == 100 + i);
        if (quiet)
            dlpi_credit_done_quiet(&w.used[i % cells()]);
        else
            dlpi_credit_done(&w.used[i % cells()], 0);
        w.taken[1] = i + 1; /* its own record */
        model_here(i + 1);
    }
}
static void cells_giver(void) { cells_give(0); }
static void cells_quiet_giver(void) { cells_give(1); }

/* Whoever comes after a dead one gives back what that one had by its own records; the word of a
   cell that was given back says so, whatever the record. */
static void cells_recovery(void) {
    uint64_t i = w.taken[1];
    if (i < w.taken[0] && dlpi_credit_held(&w.used[i % cells()]) != 0) {
        dlpi_credit_done(&w.used[i % cells()], 0);
    }
    w.taken[1] = w.taken[0];
    model_here(w.taken[0]);
    cells_give(0);
}

static void cells_end(void) {
    MODEL_CHECK(w.taken[0] == is.n);
    for (uint32_t c = 0; c < cells(); c++) MODEL_CHECK(w.used[c] == 0);
}

/* ---- a counter with many writers ---- */

static void counts_setup(void) {
    model_list_atom("moves", &w.counter[0], 8, 1);
    list_cells();
}

static void counts_of(uint32_t c) {
    write_cell(&w.cell[c].bytes, 100 + c);
    dlpi_credit_add(&w.counter[0]);
}
static void counts_worker_0(void) { counts_of(0); }
static void counts_worker_1(void) { counts_of(1); }

static void counts_scheduler(void) {
    while (dlpi_credit_seen(&w.counter[0]) < 2) model_poll(5, model_bit(&w.counter[0]));
    for (uint32_t c = 0; c < 2; c++) MODEL_CHECK(read_cell(&w.cell[c].bytes) == 100 + c);
}

/* ---- offers: cell b % cells is offered to each reader, and used again ---- */

static void offers_setup(void) {
    model_list_atom("there", &w.counter[0], 8, 1);
    list_n(header_names, w.header, 8, 8, cells());
    for (int r = 0; r < 2; r++) {
        list_n(offer_names + 2 * r, w.offer[r], 8, 8, cells());
        w.taken[r] = 0;
    }
    model_list_atom("word", &w.word, 4, 0);
    list_cells();
    for (uint32_t c = 0; c < cells(); c++) w.header[c] = world.message[1 + c][0].value = UINT64_MAX;
}

static int readers(void) {
    int n = 0;
    for (int i = 0; i < M_THREADS; i++) n += model.scenario->body[i] != NULL;
    return n - 1 - (model.scenario->mortal != 0);
}

/* Is the cell of batch b over for all? */
static int offers_over(uint64_t b) {
    for (int r = 0; r < readers(); r++)
        if (!(is.withdraws >> r & 1) && !dlpi_offer_over(&w.offer[r][b % cells()], b)) return 0;
    for (int r = 0; r < readers(); r++)
        if ((is.withdraws >> r & 1) && !dlpi_offer_withdraw(&w.offer[r][b % cells()], b)) return 0;
    return 1;
}

static void offers_scheduler(void) {
    for (uint64_t b = 0; b < is.n; b++) {
        uint32_t c = (uint32_t)(b % cells());
        for (;;) {
            (void)dlpi_event_count(&w.word);
            if (b < cells() || offers_over(b - cells())) break;
            model_poll(b, model_bit(&w.word));
        }
        write_cell(&w.cell[c].bytes, 100 + b);
        dlpi_claim_publish(&w.header[c], b);
        dlpi_credit_publish(&w.counter[0], b + 1);
        model_here(b + 1);
    }
}

/* The batches that it finds, in order: of one that waits all; else the last at least. */
static void offers_read(int r) {
    while (w.taken[r] < is.n) {
        uint64_t tail = dlpi_credit_seen(&w.counter[0]), b = w.taken[r];
        if (b >= tail) {
            model_poll(b, model_bit(&w.counter[0]));
            continue;
        }
        uint32_t c = (uint32_t)(b % cells());
        uint64_t has = dlpi_claim_head_now(&w.header[c]);
        int late = is.withdraws >> r & 1;
        MODEL_CHECK(late ? has == b || has > b : has == b);
        int mine = has == b && (!late || dlpi_offer_take(&w.offer[r][c], b));
        MODEL_CHECK(mine || b + cells() < is.n); /* nobody needs the last cells */
        if (mine) {
            MODEL_CHECK(read_cell(&w.cell[c].bytes) == 100 + b);
            dlpi_offer_give(&w.offer[r][c], b);
            dlpi_event_add(&w.word); /* as who wakes the scheduler */
        }
        w.taken[r] = b + 1;
        model_here(b + 1);
    }
}
static void offers_reader_0(void) { offers_read(0); }
static void offers_reader_1(void) { offers_read(1); }

/* The reader before this one is dead: what it held is over, the rest is offered to this one. */
static void offers_successor(void) {
    for (uint32_t c = 0; c < cells(); c++) {
        uint64_t word = dlpi_offer_look(&w.offer[0][c]);
        if (word & DLPI_OFFER_TAKEN)
            dlpi_offer_give(&w.offer[0][c], (word & ~DLPI_OFFER_TAKEN) - 1);
        if ((word & ~DLPI_OFFER_TAKEN) > w.taken[0]) w.taken[0] = word & ~DLPI_OFFER_TAKEN;
    }
    dlpi_event_add(&w.word);
    model_here(w.taken[0]);
    offers_read(0);
}

static void offers_end(void) {
    for (int r = 0; r < readers(); r++) MODEL_CHECK(w.taken[r] == is.n);
}

/* ---- cells of inputs ---- */

static dlp_pipe pipe_; /* what of it changes is elsewhere, or only told to people */
static dlpi_worker workers[2];
static dlpi_worker_block blocks[2];

static uint64_t worker_knows(int i) {
    return model_digest(&w.own[i], sizeof w.own[i], is.n) + w.taken[0];
}

static uint32_t runs(void) { return is.run ? is.run : 1; }

/* Alone with the cell: nobody else writes it, its fields are those of the ticket. */
static int inputs_load(struct dlpi_worker *wk, uint32_t c) {
    uint64_t t = read_cell(&w.cell[c].fields), one = w.region.cell[c].index;
    (void)wk;
    MODEL_CHECK(t == dlpi_gen(model_newest(model_find_atom(&w.region.cell[c].state))));
    MODEL_CHECK(one / 2 == t && one < 16 && w.loads[one]++ <= w.deaths);
    write_cell(one & 1 ? &w.cell[c].more : &w.cell[c].bytes, 100 + one);
    pause_here();
    return 0;
}

static void inputs_fill(uint64_t t) {
    dlpi_input *at = &w.region.cell[(t - 1) % cells()];
    dlpi_input_reset(at, 0, runs());
    for (uint32_t i = 0; i < runs(); i++) dlpi_input_indices(at)[i] = 2 * t + i;
}

static void inputs_offer(uint64_t t) {
    uint32_t c = (uint32_t)(t - 1) % cells();
    write_cell(&w.cell[c].fields, t);
    inputs_fill(t);
    dlpi_input_offer(&pipe_, c, t);
    dlpi_event_add(&w.word); /* as who wakes workers */
}

static void inputs_worker_setup(int i) {
    dlpi_worker *wk = &workers[i];
    memset(wk, 0, sizeof *wk);
    wk->p = &pipe_;
    wk->st = pipe_.source_stage;
    wk->global = wk->id = i;
    wk->block = &blocks[i];
    wk->block->item_ns = is.cheap ? 1 : 10000;
    wk->last_ns = 1; /* no clocks */
    wk->until_clock = wk->clock_every = UINT32_MAX;
}

static void inputs_setup(void) {
    static dlpi_source_ops source;
    source.load = inputs_load;
    source.input = "input";
    memset(&pipe_, 0, sizeof pipe_);
    pipe_.source = &source;
    pipe_.source_stage = &pipe_.stages[0];
    pipe_.sampler = &pipe_.stages[1];
    pipe_.region = (uint8_t *)&w.region;
    pipe_.ctl = &w.ctl;
    pipe_.workers = workers;
    pipe_.inputs = &pipe_.areas[DLPI_OWN(0, 0)];
    pipe_.areas[DLPI_OWN(0, DLPI_INPUTS_CELLS)].count = cells();
    pipe_.areas[DLPI_OWN(0, DLPI_INPUTS_RECORDS)].count = cells();
    pipe_.areas[DLPI_OWN(0, DLPI_INPUTS_RECORDS)].stride = sizeof(dlpi_input);
    pipe_.areas[DLPI_OWN(0, DLPI_INPUTS_BITS)].offset =
        (uint64_t)((uint8_t *)w.region.bits - pipe_.region);
    for (int i = 0; i < 2; i++) inputs_worker_setup(i);
    for (uint64_t t = 1; is.offered && t <= is.n; t++) {
        w.cell[t - 1].fields = t;
        inputs_fill(t);
        dlpi_input_offer(&pipe_, (uint32_t)t - 1, t);
    }
    list_n(state_names, &w.region.cell[0].state, 8, sizeof(dlpi_input), cells());
    model_list_atom("bits", w.region.bits, 8, 0);
    model_list_atom("moves", &w.ctl.source_moves, 8, 1);
    model_list_atom("word", &w.word, 4, 0);
    model_list_atom("over", &w.over, 4, 0);
    list_cells();
}

static void inputs_work(int i) {
    dlpi_worker *wk = &workers[i];
    for (;;) {
        (void)dlpi_event_count(&w.word);
        uint32_t over = DLPI_LOAD_SEQ(&w.over);
        wk->input_at = w.own[i].input_at;
        wk->input_untold = w.own[i].input_untold;
        bool moved = dlpi_input_step(wk);
        w.own[i].input_at = wk->input_at;
        w.own[i].input_untold = wk->input_untold;
        if (moved) {
            model_here(worker_knows(i));
            continue;
        }
        MODEL_CHECK(!is.cheap || wk->input_untold == 0);
        if (over) return;
        model_poll(worker_knows(i), model_bit(&w.word));
    }
}
static void inputs_worker_0(void) { inputs_work(0); }
static void inputs_worker_1(void) { inputs_work(1); }

/* Worker 0 is dead; another takes its place. */
static void inputs_recovery(void) {
    static const dlpi_death why = {9, false, NULL};
    w.deaths++;
    dlpi_input_recover(&workers[0], &why);
    dlpi_event_add(&w.word);
    memset(&w.own[0], 0, sizeof w.own[0]);
    inputs_worker_setup(0);
    model_here(worker_knows(0));
    inputs_work(0);
}

/* All that is open is loaded, or was taken back; then its bytes may be read. */
static void inputs_await(uint64_t t) {
    uint32_t c = (uint32_t)(t - 1) % cells();
    uint64_t *state = &w.region.cell[c].state, seen;
    for (;;) {
        (void)dlpi_credit_seen(&w.ctl.source_moves);
        seen = dlpi_claim_owner(state);
        MODEL_CHECK(dlpi_gen(seen) == t);
        if (dlpi_gen_low(seen) == DLPI_INPUT_LOADED) break;
        if (is.closes && dlpi_gen_low(seen) == DLPI_INPUT_OPEN && t + cells() <= is.n &&
            dlpi_claim_take(state, seen, dlpi_gen_word(t, DLPI_INPUT_CLOSED)))
            return;
        model_poll(t, model_bit(&w.ctl.source_moves));
    }
    MODEL_CHECK(read_cell(&w.cell[c].bytes) == 100 + 2 * t);
    if (runs() > 1) MODEL_CHECK(read_cell(&w.cell[c].more) == 100 + 2 * t + 1);
    MODEL_CHECK(w.region.cell[c].made == runs());
}

static void inputs_scheduler(void) {
    for (uint64_t t = 1; t <= is.n + cells(); t++) {
        if (t > cells()) inputs_await(t - cells());
        if (t <= is.n) inputs_offer(t);
        w.taken[0] = t;
        model_here(t);
    }
    DLPI_STORE_SEQ(&w.over, 1);
    dlpi_event_add(&w.word);
}

/* All were open from the beginning. */
static void inputs_reader(void) {
    for (uint64_t t = 1; t <= is.n; t++) inputs_await(t);
    DLPI_STORE_SEQ(&w.over, 1);
    dlpi_event_add(&w.word);
}

static void inputs_end(void) {
    for (uint32_t c = 0; c < cells(); c++) {
        uint32_t low = dlpi_gen_low(w.region.cell[c].state);
        MODEL_CHECK(low == DLPI_INPUT_LOADED || low == DLPI_INPUT_CLOSED);
        MODEL_CHECK(dlpi_input_next(&pipe_, c) != c || is.closes || w.deaths > 0);
    }
}

/* ---- the newest items of lanes that are full ---- */

enum { ITEM = 16 }; /* bytes: a mark, and the item */

static int producers(void) {
    int n = 0;
    for (int i = 0; i < M_THREADS; i++) n += model.scenario->body[i] != NULL;
    return n - 1 - (model.scenario->mortal != 0);
}

static uint32_t ends(void) { return is.ends ? is.ends : 1; }

static uint64_t item_of(uint32_t lane, uint64_t number) { return 1000 * (lane + 1) + number; }

static dlp_spsc *newest_lane(uint32_t i) {
    const dlp_mpsc *b = (const dlp_mpsc *)(void *)w.queue;
    return (dlp_spsc *)(void *)(w.queue + b->lanes_offset + i * b->lane_bytes);
}

static void newest_pusher(dlp_pusher *u, uint32_t lane) {
    memset(u, 0, sizeof *u);
    MODEL_CHECK(dlp_mpsc_attach_tx(&u->tx, w.queue, sizeof w.queue, (int)lane) == (int)lane);
    u->head = &w.head;
    u->line = &w.line[lane];
    u->at = w.push.at;
    u->number = lane + 1;
    u->full = DLP_PUSH_NEWEST;
    u->lanes = (uint32_t)producers();
    u->fd = u->reader = -1; /* the reader lives */
}

static void newest_list_lane(uint32_t i) {
    dlp_spsc *lane = newest_lane(i);
    model_list_atom(i ? "tail 1" : "tail", &lane->tail, 8, cells());
    model_list_atom(i ? "head 1" : "head", &lane->head, 8, cells());
    for (uint32_t k = 0; k < 2 * cells(); k++)
        model_list_slot((unsigned char *)lane + lane->slots_offset + k * 8, 8);
}

static void newest_setup(void) {
    const uint32_t n = (uint32_t)producers();
    dlp_push *s = &w.push;
    s->head = &w.head;
    s->was.full = DLP_PUSH_NEWEST;
    s->was.max_producers = n;
    s->at.n = 1;
    s->at.offset[0] = s->at.bytes[0] = 8;
    s->at.record = ITEM;
    s->capacity = cells();
    s->keep = is.keep;
    s->writers = n * ends();
    s->lanes = w.lanes;
    s->items = w.counts;
    s->left = w.counts + 2;
    s->ended = w.ended;
    MODEL_CHECK(dlp_mpsc_init(w.queue, sizeof w.queue, ITEM, cells(), n, 0) == DLP_OK);
    MODEL_CHECK(dlp_mpsc_attach_rx(&s->rx, w.lanes, 2, w.queue, sizeof w.queue) == DLP_OK);
    for (uint32_t i = 0; i < n; i++) {
        newest_pusher(&w.pusher[i], i);
        newest_list_lane(i);
    }
}

static uint64_t newest_knows(const dlp_pusher *u) {
    return model_digest(&u->tx.lane, sizeof u->tx.lane, u->number);
}

/* How far it is follows from the lane: n items and an end, `ends` times. */
static void newest_push(dlp_pusher *u) {
    const uint64_t each = is.n + 1;
    for (uint64_t at; (at = u->tx.lane.tail) < each * ends();) {
        void *item;
        int rc;
        u->ended = false; /* else it is another producer in this lane */
        if (at % each == is.n) {
            rc = dlp_pusher_end(u, DLP_NOWAIT);
        } else if ((rc = dlp_pusher_begin(u, &item, DLP_NOWAIT)) == DLP_OK) {
            write_cell((uint64_t *)item, item_of(u->number - 1, at - at / each));
            rc = dlp_pusher_commit(u);
        }
        MODEL_CHECK(rc == DLP_OK || rc == DLP_FULL);
        if (rc == DLP_OK)
            model_here(newest_knows(u));
        else
            model_poll(newest_knows(u), model_bit(&u->tx.lane.lane->head));
    }
}
static void newest_producer_0(void) { newest_push(&w.pusher[0]); }
static void newest_producer_1(void) { newest_push(&w.pusher[1]); }
static void newest_successor(void) { /* of producer 0: what was begun was not pushed */
    newest_pusher(&w.pusher[2], 0);
    model_here(newest_knows(&w.pusher[2]));
    newest_push(&w.pusher[2]);
}

/* All that was taken or left out, each once, in order. */
static void newest_took(uint32_t lane, uint64_t item) {
    MODEL_CHECK(item == item_of(lane, w.taken[lane] + w.counts[2 + lane]));
    w.taken[lane]++;
}

static uint64_t newest_reader_knows(void) {
    uint64_t h = model_digest(&w.push.rx, sizeof w.push.rx, w.push.n_ended);
    h = model_digest(w.lanes, sizeof w.lanes, h);
    return model_digest(w.taken, sizeof w.taken, model_digest(w.counts, sizeof w.counts, h));
}

static void newest_reader(void) {
    dlp_push *s = &w.push;
    for (;;) {
        const uint8_t *at = NULL;
        uint32_t lane = 0, tails = model_bit(&newest_lane(0)->tail);
        uint64_t mark;
        int64_t n = dlpi_push_peek(s, 1, &at, &lane);
        MODEL_CHECK(n >= 0);
        if (n == 0) {
            if (producers() > 1) tails |= model_bit(&newest_lane(1)->tail);
            model_poll(newest_reader_knows(), tails);
            continue;
        }
        model_copy(&mark, at, 8);
        MODEL_CHECK(mark == DLPI_PUSH_END || mark == DLPI_PUSH_ITEM);
        if (mark == DLPI_PUSH_ITEM) {
            dlp_item it = {.data = (void *[]){&w.item}};
            dlpi_push_copy(s, &it, at);
            newest_took(lane, w.item);
        }
        dlp_mpsc_release(&s->rx, 1);
        if (mark == DLPI_PUSH_END && dlpi_push_ended(s, lane)) return;
        model_here(newest_reader_knows());
    }
}

static void newest_end(void) {
    for (uint32_t i = 0; i < (uint32_t)producers(); i++) {
        const uint64_t items = is.n * ends();
        MODEL_CHECK(w.taken[i] + w.counts[2 + i] == items);
        MODEL_CHECK(w.taken[i] >= (items < is.keep ? items : is.keep));
        MODEL_CHECK(newest_lane(i)->tail == items + ends());
    }
    MODEL_CHECK(w.push.n_ended == w.push.writers);
}

/* ---- scenarios ---- */

#define SHAPE(...) (&(const shape){__VA_ARGS__})
#define TWO(label, large, kind, a, b, ...) \
    { \
        {label, kind##_setup, {kind##_##a, kind##_##b, NULL, NULL}, kind##_end, 0}, \
            SHAPE(__VA_ARGS__), large \
    }
#define THREE(label, large, kind, a, b, c, ...) \
    { \
        {label, kind##_setup, {kind##_##a, kind##_##b, kind##_##c, NULL}, kind##_end, 0}, \
            SHAPE(__VA_ARGS__), large \
    }
/* Thread 0 may die; thread 1 then begins. */
#define DIES(label, large, kind, a, next, b, c, ...) \
    { \
        {label, kind##_setup, {kind##_##a, kind##_##next, kind##_##b, c}, kind##_end, 1}, \
            SHAPE(__VA_ARGS__), large \
    }

static void counts_end(void) { MODEL_CHECK(w.counter[0] == 2); }

static const trial trials[] = {
    TWO("credits__one_cell__go_round", 0, credits, writer, reader, .n = 3, .cells = 1),
    TWO("credits__two_cells__go_round", 0, credits, writer, reader, .n = 4),
    TWO("credits__given_back_quietly__go_round", 0, credits, writer, quiet_reader, .n = 4),
    THREE("credits__observer__sees_no_more_back_than_there", 0, credits, writer, reader, observer,
          .n = 3),
    DIES("credits__reader_dies__comes_again", 0, credits, reader, successor, writer, NULL, .n = 3),
    TWO("cells__come_back__taken_again", 0, cells, taker, giver, .n = 4),
    TWO("cells__come_back_quietly__taken_again", 0, cells, taker, quiet_giver, .n = 4),
    DIES("cells__giver_dies__given_back_for_it", 0, cells, giver, recovery, taker, NULL, .n = 4),
    THREE("counts__two_workers__both_are_there", 0, counts, worker_0, worker_1, scheduler, .n = 2),
    TWO("offers__reader_that_waits__has_all", 0, offers, scheduler, reader_0, .n = 4),
    TWO("offers__one_cell__has_all", 0, offers, scheduler, reader_0, .n = 3, .cells = 1),
    TWO("offers__withdrawn__read_or_missed", 0, offers, scheduler, reader_0, .n = 4,
        .withdraws = 1),
    TWO("offers__withdrawn_one_cell__read_or_missed", 0, offers, scheduler, reader_0, .n = 3,
        .cells = 1, .withdraws = 1),
    THREE("offers__one_waited_for_one_not__each_its_own", 0, offers, scheduler, reader_0, reader_1,
          .n = 3, .cells = 1, .withdraws = 2),
    THREE("offers__nobody_waited_for__each_its_own", 0, offers, scheduler, reader_0, reader_1,
          .n = 3, .cells = 1, .withdraws = 3),
    DIES("offers__reader_dies__next_one_goes_on", 0, offers, reader_0, successor, scheduler, NULL,
         .n = 3, .withdraws = 1, .cells = 1),
    TWO("inputs__scheduler_worker__cells_go_round", 0, inputs, scheduler, worker_0, .n = 3),
    TWO("inputs__scheduler_worker_cheap__cells_go_round", 0, inputs, scheduler, worker_0, .n = 3,
        .cheap = 1),
    TWO("inputs__one_cell__goes_round", 0, inputs, scheduler, worker_0, .n = 3, .cells = 1),
    TWO("inputs__given_up_while_open__not_loaded", 0, inputs, scheduler, worker_0, .n = 3,
        .cells = 1, .closes = 1),
    THREE("inputs__worker_worker_one_cell__loaded_once", 0, inputs, worker_0, worker_1, reader,
          .n = 1, .cells = 1, .offered = 1),
    THREE("inputs__worker_worker__loaded_once", 1, inputs, worker_0, worker_1, reader, .n = 2,
          .offered = 1),
    THREE("inputs__scheduler_two_workers__one_cell", 2, inputs, scheduler, worker_0, worker_1,
          .n = 2, .cells = 1),
    DIES("inputs__worker_dies__loaded_again", 0, inputs, worker_0, recovery, reader, NULL, .n = 2,
         .offered = 1),
    DIES("inputs__worker_dies_in_a_run__goes_on_behind_what_is_made", 0, inputs, worker_0, recovery,
         reader, NULL, .n = 1, .cells = 1, .run = 2, .offered = 1),
    TWO("inputs__runs__cells_go_round", 0, inputs, scheduler, worker_0, .n = 2, .cells = 1,
        .run = 2),
    DIES("inputs__worker_dies__cells_go_round", 0, inputs, worker_0, recovery, scheduler, NULL,
         .n = 2, .cells = 1),
    DIES("inputs__worker_dies_beside_another__loaded_again", 1, inputs, worker_0, recovery, reader,
         inputs_worker_1, .n = 1, .cells = 1, .offered = 1),
    TWO("newest__full__skips_to_the_last", 0, newest, producer_0, reader, .n = 4, .keep = 1),
    TWO("newest__full_of_four__skips_to_the_last_two", 0, newest, producer_0, reader, .n = 6,
        .cells = 4, .keep = 2),
    TWO("newest__two_streams_in_turn__end_is_not_skipped", 0, newest, producer_0, reader, .n = 2,
        .keep = 1, .ends = 2),
    TWO("newest__end_in_a_full_lane__items_before_it_are_skipped", 1, newest, producer_0, reader,
        .n = 3, .cells = 4, .keep = 1, .ends = 2),
    DIES("newest__producer_dies__nothing_half_is_read", 0, newest, producer_0, successor, reader,
         NULL, .n = 4, .keep = 1),
    THREE("newest__two_producers__each_its_own", 1, newest, producer_0, producer_1, reader, .n = 2,
          .keep = 1),
    DIES("newest__one_of_two_producers_dies__other_goes_on", 2, newest, producer_0, successor,
         reader, newest_producer_1, .n = 2, .keep = 1),
    DIES("inputs__one_dies_of_two__cell_goes_round", 2, inputs, worker_0, recovery, scheduler,
         inputs_worker_1, .n = 2, .cells = 1, .closes = 1),
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* Mutants that nothing need notice: what orders it all the same. */
static const needless_mutant needless[] = {
    {"dlpi_credit_closed", "LOAD_SEQ", "end", M_RELAXED,
     "needed: keeps the look at the counter behind it, which this checker does in any case"},
    {"dlpi_credit_close", "STORE_SEQ", "end", M_RELAXED,
     "the counter before it and its look are in one order; the store itself keeps behind it"},
    {"dlpi_credit_close", "STORE_SEQ", "end", M_LATE, "only comes later"},
    {"dlpi_credit_publish_quiet", "STORE_REL", "back", M_LATE, "only comes later"},
    {"dlpi_credit_publish_quiet", "STORE_REL", "there", M_LATE, "only comes later"},
    {"dlpi_credit_done_quiet", "STORE_REL", "used", M_LATE, "only comes later"},
    {"dlpi_credit_add", "ADD_SEQ", "moves", M_LATE, "only comes later"},
    {"dlpi_credit_look", "LOAD_ACQ", "there", M_RELAXED,
     "needed: keeps looks behind it there, which this checker does in any case"},
    {"dlpi_claim_publish", "STORE_REL", "header", M_RELAXED,
     "whoever looks at a batch has acquired a tail behind it (T1)"},
    {"dlpi_claim_head_now", "LOAD_SEQ", "header", M_RELAXED, "as above"},
    {"dlpi_offer_withdraw", "CAS_SEQ", "offer", M_RELAXED,
     "nobody has touched what it takes back; what was given the look before it has acquired"},
    {"dlpi_offer_take", "CAS_SEQ", "offer", M_RELAXED,
     "the tail and the header brought the batch, and what is read dlpi_offer_give releases"},
    {"dlpi_claim_may", "OR_SEQ", "bits", M_RELAXED, "who wakes comes behind it (B1)"},
    {"dlpi_claim_may", "OR_SEQ", "bits", M_LATE, "before the wake all the same (B1)"},
    {"dlpi_claim_those", "LOAD_SEQ", "bits", M_RELAXED,
     "a count of wakes was acquired before it (B1); what is open dlpi_claim_owner acquires"},
    {"dlpi_claim_take", "CAS_SEQ", "state", M_RELAXED, "dlpi_claim_owner has acquired the ticket"},
    {"dlpi_claim_taken", "AND_SEQ", "bits", M_RELAXED, "before LOADED, which releases it"},
    {"dlpi_spsc_publish_tx", "STORE_REL", "tail", M_LATE, "only comes later"},
    {"dlp_spsc_publish", "STORE_REL", "head", M_LATE, "only comes later"},
    {"dlpi_spsc_check", "LOAD_ACQ", "tail", M_RELAXED,
     "the death of who stored it has brought it, and what was pushed the successor does not read"},
};

static int try_one(const trial *t, int loud) {
    is = *(const shape *)t->shape;
    model.loose = model.membarrier = model.by_place = 1;
    return model_run(&t->scenario, loud);
}

int main(int argc, char **argv) {
    static const char *const of[] = {"dlpi_credit", "dlpi_offer", "dlpi_claim", "dlpi_push",
                                     "dlp_push",    "dlpi_spsc",  "dlp_spsc",   NULL};
    static const trial_list all = {
        "model_links", trials, TRIALS, try_one, of, needless, sizeof needless / sizeof *needless};
    model.memory = (unsigned char *)&w;
    model.memory_bytes = sizeof w;
    return model_main(&all, argc, argv);
}
#endif
