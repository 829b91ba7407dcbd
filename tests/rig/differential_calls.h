/* The callbacks of a configuration, in whatever process or thread they run; and the pipe wired as
   the configuration says. */
#ifndef DIFFERENTIAL_CALLS_H
#define DIFFERENTIAL_CALLS_H

#define LATE_MS 600 /* much more than any item takes, on a busy machine too */
#define COUNTS (1u << 15)

/* What all processes of a run share. */
typedef struct words {
    uint32_t count[COUNTS];                /* how often something was begun, by a hash of what */
    uint8_t taken[MOST_EPOCHS][MOST_ROWS]; /* by subscribers that share batches: how often */
    uint64_t progress;                     /* the watchdog looks at it */
    uint32_t violated;
    char violation[240];
} words;

static words *words_; /* mapped */
static cfg now_;      /* what runs */
static pid_t caller_; /* never to be killed */
static model model_;

static void violation(const char *format, ...) {
    va_list args;
    if (__atomic_fetch_add(&words_->violated, 1, __ATOMIC_SEQ_CST) != 0) return;
    va_start(args, format);
    vsnprintf(words_->violation, sizeof words_->violation, format, args);
    va_end(args);
}

/* How often this was asked before. */
static uint32_t times_before(uint64_t a, uint64_t b, uint64_t d) {
    return __atomic_fetch_add(&words_->count[dlp_hash(77, a, b, d) % COUNTS], 1, __ATOMIC_SEQ_CST);
}

static void die(void) {
    if (getpid() == caller_) violation("a callback of a worker process ran in the caller");
    __atomic_add_fetch(&words_->progress, 1, __ATOMIC_SEQ_CST);
    if (getpid() != caller_) raise(SIGKILL);
}

/* ---- a worker's state; with room for an asynchronous source ---- */

#define ROOM 16

typedef struct own_state {
    uint64_t magic;
    int worker, n, calls;
    uint64_t random;
    dlp_item *item[ROOM];
} own_state;

static int call_worker_init(void *user, int worker, void **state) {
    own_state *s = calloc(1, sizeof *s);
    if (user != &now_) violation("worker_init has another user");
    if (s == NULL) return 1;
    s->magic = 0x5eed;
    s->worker = worker;
    s->random = (uint64_t)worker + now_.seed;
    *state = s;
    return 0;
}
static void call_worker_exit(void *user, int worker, void *state) {
    own_state *s = state;
    if (user != &now_ || s->magic != 0x5eed || s->worker != worker || s->n != 0)
        violation("worker_exit of worker %d has another state", worker);
    s->magic = 0;
    free(s);
}
/* Of items whose dataset is mixed with that of fetch: their numbers are the pipe's here. */
static char mixed_;
static void of_mix(const void *user, dlp_item *it) {
    if (user == &mixed_) it->index += now_.mix_first;
}

static void check_state(const void *user, const void *state, int worker, int stage) {
    const own_state *s = state;
    if (user != &now_ && user != &mixed_) violation("%s has another user", stage_names[stage]);
    if (s == NULL || s->magic != 0x5eed || (worker >= 0 && s->worker != worker))
        violation("%s: worker %d has another state", stage_names[stage], worker);
}

static void doze(uint64_t key) {
    if (now_.slow && key % 5 == 1) test_pause(20000 + key % 7 * 30000);
}

/* ---- items ---- */

/* Say that an item fails: in words, or by a number that means nothing, or something else. */
static int item_says(const dlp_item *it) {
    switch (dlp_hash(now_.seed, it->index, 9, 9) % 6) {
    case 0: return 42;
    case 1: return DLP_ERR_KILLED;
    case 2: return DLP_ERR_BUDGET;
    case 3: return now_.kind == K_STREAM ? -1 : DLP_END;
    default: return dlp_fail(it->call, 5, "item %d fails", (int)it->index);
    }
}

/* What is done to an item itself is not looked at. */
static int spoiled(dlp_item *it, int rc) {
    if (now_.seed % 3 != 0) return rc;
    it->index = it->epoch = it->position = it->seed = UINT64_MAX / 3;
    it->row = it->attempt = 77777;
    return rc;
}

/* Does this one fail here? Returns what the callback is to return. */
static int item_fault(dlp_item *it, int s) {
    fault f = fault_at(&now_, now_.life, it->index, s);
    if (f.stage != s) return 0;
    switch (f.kind) {
    case FAULT_HEALS: return it->attempt < f.n ? item_says(it) : 0;
    case FAULT_FAILS: return item_says(it);
    case FAULT_SKIPS: return DLP_SKIP;
    case FAULT_LENGTH: it->length[2] = RAGGED_MOST + 1; return 0;
    case FAULT_KILLS:
        if (times_before((uint64_t)s << 32 | it->epoch, it->position, it->index) < f.n) die();
        return 0;
    case FAULT_POISON: die(); return 0;
    case FAULT_LATE:
        if (f.n == 0 || it->attempt == 0) sleep(60);
        return 0;
    default: return 0;
    }
}

static void row_put(const dlp_item *it, const mrow *r) {
    memcpy(it->data[0], r->w, now_.fills || r->w[3] ? sizeof r->w : 24); /* zeroed before */
    memcpy(it->data[1], r->tag, sizeof r->tag);
    if (!now_.ragged) return;
    memset(it->data[2], 0xab, sizeof r->rag); /* what is behind the length is cleared */
    memcpy(it->data[2], r->rag, r->len * sizeof r->rag[0]);
    it->length[2] = r->len;
}
static void row_get(const dlp_item *it, mrow *r) {
    memset(r, 0, sizeof *r);
    r->index = it->index;
    memcpy(r->w, it->data[0], sizeof r->w);
    memcpy(r->tag, it->data[1], sizeof r->tag);
    if (!now_.ragged) return;
    r->len = (uint32_t)it->length[2];
    memcpy(r->rag, it->data[2], r->len * sizeof r->rag[0]);
}

/* Fields that a stage sees, but scratch. */
static uint32_t fields_at(int s) {
    return (now_.ragged ? 3u : 2u) + (s != S_FETCH && now_.zip_at != ZIP_LAST ? 1u : 0u);
}

/* What fetch, or the zip, leaves for the first map, in the fields after its own. */
static void scratch_put(dlp_item *it, uint32_t f) {
    uint64_t raw[2] = {dlp_hash(it->index, 11, 12, 13), it->index};
    uint8_t *tail = it->data[f + 1];
    memcpy(it->data[f], raw, sizeof raw);
    it->length[f + 1] = it->index % 8;
    for (uint64_t i = 0; i < it->index % 8; i++) tail[i] = (uint8_t)(it->index * 31 + i);
}
static void scratch_check(dlp_item *it) {
    uint32_t f = fields_at(S_FETCH) + (now_.zip_at == ZIP_READS); /* in the table's order */
    const uint8_t *tail = it->data[f + 1];
    uint64_t raw[2];
    if (!now_.scratch) return;
    memcpy(raw, it->data[f], sizeof raw);
    if (raw[0] != dlp_hash(it->index, 11, 12, 13) || raw[1] != it->index ||
        it->length[f + 1] != it->index % 8)
        violation("item %d has the scratch of item %d", (int)it->index, (int)raw[1]);
    for (uint64_t i = 0; i < it->index % 8; i++)
        if (tail[i] != (uint8_t)(it->index * 31 + i))
            violation("item %d has other scratch bytes", (int)it->index);
    if (!now_.idem[S_MAP0]) memset(it->data[f], 0xdd, sizeof raw);
}

static void item_check(const dlp_item *it, int s) {
    const bool writes = s == S_FETCH && now_.zip_at != ZIP_READS;
    uint32_t held = now_.scratch && (writes || s == S_MAP0) ? 2 : 0;
    if (it->n_fields != fields_at(s) + held || it->seed != now_.order_seed ||
        (it->index >= now_.n_items && now_.kind != K_STREAM) || it->row >= now_.batch ||
        (it->epoch >= (uint64_t)now_.epochs && !now_.forever))
        violation("%s: item %d of epoch %d is not as it should be", stage_names[s], (int)it->index,
                  (int)it->epoch);
}

static int item_fetch(void *user, dlp_item *it) {
    mrow r;
    int rc;
    (void)user;
    item_check(it, S_FETCH);
    doze(it->index);
    if (now_.kind == K_STREAM && it->index >= now_.n_items) return DLP_END;
    row_make(&now_, it->index, it->epoch, it->position, now_.keeps ? 0 : dlp_item_random(it, 7),
             &r);
    if (now_.kind == K_PARTS) {
        const uint64_t *items = it->part ? it->part->data : NULL;
        if (!items || items[it->part->item] != it->index || it->part->bytes != 8 * it->part->items)
            violation("item %d is not in its part", (int)it->index);
    }
    row_put(it, &r);
    if (now_.scratch && now_.zip_at != ZIP_READS) scratch_put(it, fields_at(S_FETCH));
    rc = item_fault(it, S_FETCH);
    if (rc != 0) memset(it->data[0], 0xee, sizeof r.w);
    return rc;
}

static int call_fetch(void *user, dlp_item *it) {
    check_state(user, it->worker_state, (int)it->worker, S_FETCH);
    of_mix(user, it);
    return spoiled(it, item_fetch(user, it));
}

static int item_map(void *user, dlp_item *it, int s) {
    mrow r;
    int rc;
    check_state(user, it->worker_state, (int)it->worker, s);
    item_check(it, s);
    if (s == S_MAP0) scratch_check(it);
    doze(it->index + (uint64_t)s);
    row_get(it, &r);
    if (r.w[0] != it->index) violation("%s got another item's row", stage_names[s]);
    row_map(&now_, s, &r);
    rc = item_fault(it, s);
    if (rc != 0 || (now_.ragged && it->length[2] > RAGGED_MOST)) {
        if (!now_.idem[s]) memset(it->data[0], 0xdd, sizeof r.w); /* half a change */
        return rc;
    }
    memcpy(it->data[0], r.w, sizeof r.w);
    memcpy(it->data[1], r.tag, sizeof r.tag);
    if (now_.ragged) it->length[2] = r.len;
    return rc;
}
static int call_map0(void *user, dlp_item *it) { return spoiled(it, item_map(user, it, S_MAP0)); }
static int call_map1(void *user, dlp_item *it) { return spoiled(it, item_map(user, it, S_MAP1)); }

/* An asynchronous source: gives items back in any order, some at once, and has little room. */
static int call_submit(void *user, void *state, dlp_item *it) {
    own_state *s = state;
    check_state(user, state, (int)it->worker, S_FETCH);
    if (s->n > 0 && (s->n == ROOM || test_pick(&s->random, 8) == 0)) return DLP_FULL;
    of_mix(user, it);
    if (test_pick(&s->random, 6) == 0) { /* over at once, if it fails */
        fault f = fault_of(&now_, now_.life, it->index);
        if (f.stage == S_FETCH && f.kind == FAULT_FAILS) return item_fetch(user, it);
    }
    s->item[s->n++] = it;
    return 0;
}
static int call_reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    own_state *s = state;
    int n = 0;
    check_state(user, state, -1, S_FETCH);
    if (s->n > 0 && ++s->calls % 3 == 0 && timeout_ms > 0) return 0;
    for (; s->n > 0 && n < max && (n == 0 || test_pick(&s->random, 2)); n++) {
        int i = (int)test_pick(&s->random, (uint32_t)s->n);
        done[n] = s->item[i];
        s->item[i] = s->item[--s->n];
        code[n] = item_fetch(user, done[n]);
    }
    return n;
}

/* ---- orders ---- */

static void order_crash(uint64_t epoch, uint64_t position, int which) {
    const cfg *c = &now_;
    if (!c->crash || c->crash_in != which || getpid() == caller_) return;
    if (epoch != c->crash_epoch || position != c->crash_position) return;
    if (c->crash == CRASH_STAYS || times_before(99, epoch, position) + 1 < (uint32_t)c->max_kills)
        raise(SIGKILL);
}
static uint64_t call_function(void *user, uint64_t epoch, uint64_t position) {
    if (user != &now_) violation("sampler.function has another user");
    order_crash(epoch, position, 0);
    return function_of(&now_, epoch, position);
}
static uint64_t call_replacement(void *user, uint64_t epoch, uint64_t position, uint64_t random) {
    if (user != &now_) violation("sampler.replacement has another user");
    order_crash(epoch, position, 1);
    return replacement_of(&now_, epoch, position, random);
}

typedef struct lists {
    uint64_t epoch, k;
    int begun;
} lists;
static lists lists_;

static int64_t call_list(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    if (user != &lists_ || epoch != lists_.epoch || !lists_.begun || max != now_.batch)
        violation("the batch sampler was asked for another epoch");
    return list_of(&now_, epoch, lists_.k++, index);
}
static int call_list_begin(void *user, uint64_t epoch) {
    (void)user;
    lists_ = (lists){epoch, 0, 1};
    return 0;
}
static int call_list_save(void *user, void *bytes) {
    memcpy(bytes, user, sizeof lists_);
    return (int)sizeof lists_;
}
static int call_list_restore(void *user, const void *bytes, size_t n) {
    if (n != sizeof lists_) return -1;
    memcpy(user, bytes, n);
    return 0;
}

/* ---- parts, chunks, batches ---- */

static int call_load(void *user, dlp_part *part) {
    fault f = part_fault(&now_, now_.life, part->index);
    uint64_t *to = part->data;
    check_state(user, part->worker_state, (int)part->worker, S_PARTS);
    if (part->items != part_items(&now_, part->index) || part->capacity < 8 * part->items)
        violation("part %d is not as it should be", (int)part->index);
    doze(part->index);
    for (uint64_t i = 0; i < part->items; i++) to[i] = part->first + i;
    part->bytes = 8 * part->items;
    switch (f.kind) {
    case FAULT_HEALS:
        if (part->attempt >= f.n) return 0;
        memset(to, 0xcc, part->items ? 8 : 0);
        return dlp_fail(part->call, 6, "part %d heals", (int)part->index);
    case FAULT_FAILS: return dlp_fail(part->call, 7, "part %d fails", (int)part->index);
    case FAULT_SKIPS: return DLP_SKIP;
    case FAULT_KILLS:
        if (times_before(S_PARTS, part->index, 1) < f.n) die();
        return 0;
    case FAULT_POISON: die(); return 0;
    default: return 0;
    }
}

static int call_chunk(void *user, dlp_chunk *ch) {
    uint64_t(*w)[4] = ch->data[0];
    uint8_t(*tag)[5] = ch->data[1];
    fault f = fault_of(&now_, now_.life, ch->index);
    check_state(user, ch->worker_state, (int)ch->worker, S_FETCH);
    doze(ch->index);
    for (uint64_t k = 0; k < ch->count; k++) {
        mrow r;
        row_make(&now_, dlp_chunk_row(ch, k), 0, 0, 0, &r);
        memcpy(w[k], r.w, sizeof r.w);
        memcpy(tag[k], r.tag, sizeof r.tag);
    }
    if (f.kind == FAULT_HEALS && ch->attempt < f.n) {
        if (ch->count > 0) memset(w[0], 0xcc, sizeof w[0]);
        return dlp_fail(ch->call, 6, "chunk %d heals", (int)ch->index);
    }
    if (f.kind == FAULT_FAILS) return dlp_fail(ch->call, 7, "chunk %d fails", (int)ch->index);
    if (f.kind == FAULT_SKIPS) return DLP_SKIP;
    if (f.kind == FAULT_KILLS && times_before(S_FETCH, ch->epoch, ch->index) < f.n) die();
    if (f.kind == FAULT_POISON) die();
    return 0;
}

/* A chunk as an item, for a split stage that is added by hand. One that stands in for another has
   to have as many rows. */
static int call_split(void *user, dlp_item *it) {
    const cfg *c = &now_;
    uint32_t rows = chunk_size(c, it->index), needs = 0;
    uint64_t(*w)[4] = it->data[0];
    uint8_t(*tag)[5] = it->data[1];
    check_state(user, it->worker_state, (int)it->worker, S_FETCH);
    doze(it->index);
    if (it->epoch < MOST_EPOCHS) needs = chunk_size(c, model_.index[it->epoch][it->position]);
    if (c->fills) memset(w, 0, 32u * (size_t)c->chunk_rows);
    if (c->fills) memset(tag, 0, 5u * (size_t)c->chunk_rows);
    for (uint32_t k = 0; k < rows; k++) {
        mrow r;
        row_make(c, it->index * (uint64_t)c->chunk_rows + k, 0, 0, 0, &r);
        memcpy(w[k], r.w, sizeof r.w);
        memcpy(tag[k], r.tag, sizeof r.tag);
    }
    return rows < needs ? DLP_SKIP : item_fault(it, S_FETCH);
}

/* Does this batch fail here? */
static int batch_fails(int s, uint64_t epoch, uint64_t k) {
    fault f = batch_fault(&now_, now_.life, s, epoch, k);
    if (f.kind == FAULT_FAILS) return 1;
    if (f.kind == FAULT_POISON) die();
    if (f.kind == FAULT_HEALS) return times_before((uint64_t)s << 32 | epoch, k, 5) < f.n;
    if (f.kind == FAULT_KILLS && times_before((uint64_t)s << 32 | epoch, k, 6) < f.n) die();
    return 0;
}

/* The number of the batch that begins at a position. */
static uint64_t batch_at(uint64_t epoch, uint64_t position) {
    const model *m = &model_;
    uint64_t k = 0;
    if (epoch >= MOST_EPOCHS) return 0; /* nobody will see it */
    while (k + 1 < m->batches[epoch] && m->begin[epoch][k + 1] <= position) k++;
    return k;
}

/* With a collate of its own: the words, a sum of each row, a word of the batch. */
static void collate_own(dlp_collate *c) {
    uint64_t *out = c->out[0].data, *sum = c->out[1].data, *head = c->out[2].data;
    for (uint32_t r = 0; r < c->count; r++) {
        uint64_t w[4];
        memcpy(w, (const uint8_t *)c->in[0].data + r * c->in[0].stride, sizeof w);
        memcpy(out + 4 * (uint64_t)r, w, sizeof w);
        sum[r] = w[0] ^ w[2] ^ c->index[r] ^ c->valid[r];
        if (now_.ragged) sum[r] += c->in[2].lengths[r];
    }
    c->out[2].ndim = 1;
    c->out[2].shape[0] = 1;
    head[0] = c->epoch << 32 | c->position << 8 | c->count;
}

static int call_collate(void *user, dlp_collate *c) {
    int rc = 0;
    if (now_.w[now_.life].topology == T_HAND)
        check_state(user, c->worker_state, (int)c->worker, S_BATCH);
    doze(c->position);
    if (now_.collate == C_OWN)
        collate_own(c);
    else
        rc = (now_.collate == C_PAD ? dlp_collate_pad : dlp_collate_pack)(NULL, c);
    if (batch_fails(S_BATCH, c->epoch, batch_at(c->epoch, c->position))) {
        if (c->count > 0) memset(c->out[0].data, 0x77, 8);
        return dlp_fail(c->call, 5, "the collate fails");
    }
    return rc;
}

static int batch_map(void *user, dlp_batch *b, void *state, int s) {
    uint64_t *w = b->fields[0].data;
    check_state(user, state, -1, s);
    doze(b->in_epoch);
    if (batch_fails(s, b->epoch, b->in_epoch)) {
        if (!now_.idem[s] && b->count > 0) memset(w, 0x66, 32);
        return DLP_ERR_CALLBACK;
    }
    for (uint32_t r = 0; r < b->count; r++)
        words_bmap(&now_, s, w + 4 * (uint64_t)r, b->index[r], b->valid[r], b->in_epoch);
    return 0;
}
static int call_bmap0(void *user, dlp_batch *b, void *st) {
    return batch_map(user, b, st, S_BMAP0);
}
static int call_bmap1(void *user, dlp_batch *b, void *st) {
    return batch_map(user, b, st, S_BMAP1);
}

/* ---- a device: copies when it is asked whether it has ---- */

typedef struct slow_device {
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } copy[64][8];
    int n[64], asked[64], live;
} slow_device;
static slow_device device_;

static int call_alloc(void *user, uint64_t bytes, void **dev) {
    ((slow_device *)user)->live++;
    *dev = calloc(1, bytes);
    return *dev == NULL;
}
static void call_free(void *user, void *dev) {
    ((slow_device *)user)->live--;
    memset(((slow_device *)user)->n, 0, sizeof((slow_device *)user)->n); /* copies under way */
    free(dev);
}
static int call_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    slow_device *d = user;
    int i = d->n[buffer]++;
    if (i >= 8) return 5;
    d->copy[buffer][i].to = dev;
    d->copy[buffer][i].from = host;
    d->copy[buffer][i].bytes = bytes;
    return 0;
}
static int call_copy_within(void *user, void *to, uint64_t to_at, void *from, uint64_t from_at,
                            uint64_t bytes, uint32_t buffer) {
    return call_copy(user, (uint8_t *)to + to_at, (uint8_t *)from + from_at, bytes, buffer);
}
static int call_record(void *user, uint32_t buffer) {
    ((slow_device *)user)->asked[buffer] = 0;
    return 0;
}
static int call_done(void *user, uint32_t buffer) {
    slow_device *d = user;
    if (++d->asked[buffer] < 3) return 0;
    for (int i = 0; i < d->n[buffer]; i++)
        memcpy(d->copy[buffer][i].to, d->copy[buffer][i].from, d->copy[buffer][i].bytes);
    d->n[buffer] = 0;
    return 1;
}
static const dlp_device slow_ = {.name = "slow",
                                 .alloc = call_alloc,
                                 .free = call_free,
                                 .copy = call_copy,
                                 .record = call_record,
                                 .done = call_done,
                                 .copy_within = call_copy_within,
                                 .user = &device_};

/* ---- wiring ---- */

static const dlp_field item_fields[3] = {{"words", DLP_U64, 1, {4}, 0, 0},
                                         {"tag", DLP_U8, 1, {5}, 0, 0},
                                         {"ragged", DLP_U16, 2, {RAGGED_MOST, 2}, 1, 0}};
static const dlp_field own_fields[3] = {{"words", DLP_U64, 1, {4}, 0, 0},
                                        {"sum", DLP_U64, 0, {0}, 0, 0},
                                        {"head", DLP_U64, 0, {0}, 0, 0}};

static struct {
    dlp_pipe *pipe;
    dlp_stage id[STAGES_];
    dlp_mix *mix;
    dlp_buckets *buckets;
    uint64_t subset[MOST_ITEMS], weights[MOST_ITEMS], part_items[64];
    uint32_t lengths[MOST_ITEMS];
    dlp_shm_desc shm;
    char name[64];
} run_;

/* True if the consumer helps the workers of a stage: threads that take rows one by one. */
static int helped(const cfg *c, int s) {
    const wiring *w = &c->w[c->life];
    const stage_plan *p = &w->st[s];
    const int in_turn = p->dispatch != 0 || w->topology == T_CLASSIC || w->topology == T_CONCURRENT;
    return c->helps && c->kind != K_CHUNKS && s <= S_MAP1 && p->n > 0 && !p->procs && !in_turn &&
           p->most == 0 && (s != S_FETCH || w->fetcher == 0);
}

static void workers_desc(const cfg *c, int s, dlp_workers_desc *to) {
    const stage_plan *p = &c->w[c->life].st[s];
    memset(to, 0, sizeof *to);
    to->num_workers = p->n ? p->n : DLP_NONE;
    to->placement = p->procs ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    to->dispatch = p->dispatch;
    to->on_error = c->policy[s];
    to->retries = c->retries[s];
    to->retry_backoff_ms = c->backoff;
    to->max_skips = c->max_skips;
    to->idempotent = c->idem[s];
    to->deadline_ms = c->late && p->procs && s <= S_MAP1 ? LATE_MS : 0;
    to->worker_init = call_worker_init;
    to->worker_exit = call_worker_exit;
    to->worker_user = &now_;
    to->name = stage_names[s];
    if (p->most > 0) to->workers_min = 1, to->workers_max = p->most;
    to->consumer_helps = helped(c, s);
}

static int sampler_buckets(const cfg *c, dlp_sampler_desc *d) {
    dlp_buckets_desc b = {.n_items = c->n_items,
                          .lengths = run_.lengths,
                          .batch_size = c->batch,
                          .window = (uint32_t)c->bucket_window,
                          .shuffle = 1,
                          .max_tokens = (uint64_t)c->bucket_tokens,
                          .divisible_by = (uint32_t)c->bucket_by,
                          .seed = c->order_seed,
                          .last = c->bucket_last ? DLP_LAST_DROP : DLP_LAST_PARTIAL};
    for (uint64_t i = 0; i < c->n_items; i++) run_.lengths[i] = length_of(i);
    if (dlp_buckets_open(&run_.buckets, &b, NULL) != DLP_OK) return -1;
    return dlp_buckets_sampler(run_.buckets, d);
}

static int sampler_mix(const cfg *c, dlp_sampler_desc *d) {
    dlp_mix_desc desc;
    uint64_t n_items[3], weights[3];
    mix_desc(c, &desc, n_items, weights);
    if (dlp_mix_open(&run_.mix, &desc, NULL) != DLP_OK) return -1;
    return dlp_mix_sampler(run_.mix, d) == DLP_OK ? 0 : -1;
}

static int sampler_desc(const cfg *c, dlp_sampler_desc *d, dlp_pipe_desc *pipe) {
    const wiring *w = &c->w[c->life];
    static const int orders[ORDERS] = {
        DLP_ORDER_SEQUENTIAL, DLP_ORDER_SHUFFLED, DLP_ORDER_REPLACEMENT, DLP_ORDER_WEIGHTED,
        DLP_ORDER_FUNCTION,   DLP_ORDER_BATCHES,  DLP_ORDER_FUNCTION,    DLP_ORDER_BATCHES};
    memset(d, 0, sizeof *d);
    d->threaded = w->threaded;
    pipe->rank = w->rank;
    pipe->world_size = w->world;
    pipe->allow_uneven = c->uneven;
    if (c->order == O_BUCKETS) return sampler_buckets(c, d);
    if (c->order == O_MIX) return sampler_mix(c, d);
    d->order = c->kind == K_PARTS ? DLP_ORDER_PARTS : orders[c->order];
    d->seed = c->order_seed;
    d->samples_per_epoch = c->samples;
    if (c->n_subset) d->subset = run_.subset, d->n_subset = c->n_subset;
    for (uint64_t i = 0; i < c->n_subset; i++) run_.subset[i] = subset_of(c, i);
    for (uint64_t i = 0; i < domain_of(c); i++) run_.weights[i] = weight_of(i);
    if (c->order == O_WEIGHTED) d->weights = run_.weights;
    if (c->order == O_FUNCTION) {
        d->function = call_function;
        d->function_user = &now_;
        d->replacement = c->own_replacement ? call_replacement : NULL;
    }
    if (c->order != O_LISTS) return 0;
    d->batches = (dlp_batch_sampler){call_list, call_list_begin, NULL, NULL, &lists_, NULL};
    if (c->lists_save) d->batches.save = call_list_save, d->batches.restore = call_list_restore;
    return 0;
}

static void dataset_desc(const cfg *c, dlp_dataset *d) {
    memset(d, 0, sizeof *d);
    d->n_items = c->kind == K_STREAM ? 0 : c->mix_first ? c->mix_first : c->n_items;
    d->open_end = c->kind == K_STREAM;
    d->fields = item_fields;
    d->n_fields = c->ragged ? 3 : 2;
    d->writes_all_bytes = (uint32_t)c->fills;
    d->fetch = c->w[c->life].fetcher == DLP_FETCH_ASYNC ? NULL : call_fetch;
    d->user = &now_;
}

static void part_desc(const cfg *c, dlp_node_load *d, dlp_pipe_desc *pipe) {
    memset(d, 0, sizeof *d);
    d->n_parts = (uint64_t)c->n_parts;
    for (int i = 0; i < c->n_parts; i++) run_.part_items[i] = part_items(c, (uint64_t)i);
    d->items = run_.part_items;
    d->manifest_id = c->seed;
    d->max_part_bytes = 8 * MOST_ITEMS;
    pipe->streams = (uint32_t)c->streams;
    d->shuffle_parts = c->shuffle_parts;
    d->shuffle_items = c->shuffle_items;
    pipe->steps_per_epoch = c->steps;
    d->queue_size = (uint32_t)c->queue;
    d->load = call_load;
    d->user = &now_;
    workers_desc(c, S_PARTS, &d->workers);
}

static void pipe_desc(const cfg *c, const dlp_state *resume, dlp_pipe_desc *d) {
    const wiring *w = &c->w[c->life];
    memset(d, 0, sizeof *d);
    memset(&run_.shm, 0, sizeof run_.shm);
    d->prefetch_factor = c->kind == K_CHUNKS ? 0 : w->prefetch;
    d->max_held = w->held;
    d->unordered = c->unordered;
    d->resume = resume;
    d->close_timeout_ms = 15000;
    snprintf(run_.name, sizeof run_.name, "differential.%d", (int)getpid());
    run_.shm.name = w->named ? run_.name : NULL;
    run_.shm.max_kills = w->kills_outside ? 100 : c->max_kills;
    run_.shm.share = c->share;
    run_.shm.serve_only = c->serves;
    run_.shm.wait_subscribers = c->sharers;
    d->shm = any_stage(c, 2) || w->named ? &run_.shm : NULL;
}

static void add_batch(const cfg *c, rig_table *t) {
    dlp_node row = {.verb = DLP_BATCH,
                    .batch = {.batch_size = c->batch,
                              .last = c->last,
                              .collate = c->collate ? call_collate : NULL,
                              .collate_user = &now_}};
    if (c->collate == C_OWN) row.batch.out_fields = own_fields, row.batch.n_out_fields = 3;
    workers_desc(c, S_BATCH, &row.workers);
    if (c->collate == C_NONE) row.workers.worker_init = NULL;
    if (c->collate == C_NONE) row.workers.worker_exit = NULL;
    table_row(t, row);
}

static void add_map(const cfg *c, rig_table *t, int s) {
    dlp_node row = {.verb = DLP_MAP, .map = {.user = &now_}};
    if (s == S_MAP0) row.map.item = call_map0;
    if (s == S_MAP1) row.map.item = call_map1;
    if (s == S_BMAP0) row.map.batch = call_bmap0;
    if (s == S_BMAP1) row.map.batch = call_bmap1;
    workers_desc(c, s, &row.workers);
    table_row(t, row);
}

static void fetch_desc(const cfg *c, dlp_dataset *dataset, dlp_source *d) {
    const wiring *w = &c->w[c->life];
    memset(d, 0, sizeof *d);
    d->dataset = dataset;
    d->fetcher = w->fetcher;
    dataset_desc(c, dataset);
    workers_desc(c, S_FETCH, &d->workers);
    if (w->fetcher) d->in_flight = w->in_flight;
    d->async = (dlp_async){call_submit, call_reap};
}

static void add_scratch(const wiring *w, rig_table *t) {                /* needs: scratch */
    static const dlp_field fields[] = {{"raw", DLP_U64, 1, {2}, 0, 0},  /* needs: scratch */
                                       {"tail", DLP_U8, 1, {7}, 1, 0}}; /* needs: scratch */
    table_ends(t, fields, 2, (uint32_t)w->cells);                       /* needs: scratch */
} /* needs: scratch */

static void add_fetch(const cfg *c, rig_table *t, dlp_dataset *dataset) {
    dlp_source d;
    fetch_desc(c, dataset, &d);
    table_fetch(t, &d, c->mix_first ? 1 : 0);
    if (c->scratch && c->zip_at != ZIP_READS) add_scratch(&c->w[c->life], t); /* needs: scratch */
}

/* The same with the other items, by workers of its own. */
static void add_mixed(const cfg *c, rig_table *t, dlp_dataset *dataset) {     /* needs: join */
    dlp_source d;                                                             /* needs: join */
    fetch_desc(c, dataset, &d);                                               /* needs: join */
    dataset->n_items = c->n_items - c->mix_first;                             /* needs: join */
    dataset->user = &mixed_;                                                  /* needs: join */
    d.workers.name = mixed_name;                                              /* needs: join */
    table_fetch(t, &d, 2);                                                    /* needs: join */
    if (c->scratch && c->zip_at != ZIP_READS) add_scratch(&c->w[c->life], t); /* needs: scratch */
} /* needs: join */

static int call_join(void *user, dlp_item *it) {          /* needs: join */
    uint64_t word = dlp_hash(it->index, 2, 3, 4);         /* needs: join */
    const bool writes = now_.zip_at == ZIP_READS;         /* needs: join */
    (void)user;                                           /* needs: join */
    if (it->n_fields != (writes ? 3 : 1))                 /* needs: join */
        violation("a join sees %u fields", it->n_fields); /* needs: join */
    memcpy(it->data[0], &word, sizeof word);              /* needs: join */
    if (writes) scratch_put(it, 1);                       /* needs: join */
    return 0;                                             /* needs: join */
} /* needs: join */

/* A second fetch without workers runs in the attempt of the row before, of every other seed, where
   a table lets it. */
static int chains(const cfg *c) {                                           /* needs: join */
    const wiring *w = &c->w[c->life];                                       /* needs: join */
    const int behind = c->zip_at == ZIP_FIRST || c->n_maps == 0;            /* needs: join */
    return w->join.n == 0 && c->zip_at != ZIP_READS && behind &&            /* needs: join */
           w->fetcher != DLP_FETCH_ASYNC && w->cache == 0 && !c->scratch && /* needs: join */
           c->mix_first == 0 && c->seed % 2 == 0;                           /* needs: join */
} /* needs: join */

static void add_join(const cfg *c, rig_table *t, dlp_dataset *dataset) { /* needs: join */
    static const dlp_field field = {"joined", DLP_U64, 0, {0}, 0, 0};    /* needs: join */
    const wiring *w = &c->w[c->life];                                    /* needs: join */
    dlp_source d;                                                        /* needs: join */
    dlp_node *row;                                                       /* needs: join */
    memset(&d, 0, sizeof d);                                             /* needs: join */
    dataset_desc(c, dataset);                                            /* needs: join */
    dataset->n_items = c->n_items;                                       /* needs: join */
    dataset->fields = &field;                                            /* needs: join */
    dataset->n_fields = 1;                                               /* needs: join */
    dataset->fetch = call_join;                                          /* needs: join */
    d.dataset = dataset;                                                 /* needs: join */
    d.fetcher = w->join_fetcher;                                         /* needs: join */
    d.workers.num_workers = w->join.n ? w->join.n : DLP_NONE;            /* needs: join */
    d.workers.placement = w->join.procs ? DLP_PLACE_PROCESSES : 0;       /* needs: join */
    row = table_fetch(t, &d, 0);                                         /* needs: join */
    if (c->zip_at == ZIP_READS) add_scratch(w, t);                       /* needs: scratch */
    if (!chains(c)) return;                                              /* needs: join */
    row->workers = (dlp_workers_desc){.num_workers = 0};                 /* needs: join */
    row->fetch = (dlp_node_fetch){.fetch = call_join,                    /* needs: join */
                                  .user = dataset->user,                 /* needs: join */
                                  .fields = &field,                      /* needs: join */
                                  .n_fields = 1,                         /* needs: join */
                                  .writes_all_bytes = c->fills};         /* needs: join */
} /* needs: join */

static void add_transfer(const wiring *w, rig_table *t) {
    dlp_node row = {.verb = DLP_TRANSFER, .workers = {.num_workers = w->transfer == 2}};
    row.transfer.device = w->late_device ? &slow_ : NULL;
    row.queue.capacity = (uint32_t)(w->device_buffers ? w->held + w->device_buffers : 0);
    table_row(t, row);
}

/* Make the pipe of the table, and start it. */
static int open_table(const cfg *c, const rig_table *t, dlp_pipe_desc *pipe) {
    const wiring *w = &c->w[c->life];
    int rc;
    if (c->repeats) pipe->epochs = c->forever ? DLP_FOREVER : c->epochs;
    if (c->repeats) pipe->epoch_end = c->epoch_end;
    if ((rc = table_pipe(t, &run_.pipe, pipe, &open_err_)) != DLP_OK) return rc;
    for (int s = 0; s < STAGES_; s++) run_.id[s] = dlp_node_stage(run_.pipe, stage_names[s]);
    if (w->start == START_EARLY && (rc = inside_pipe_fork(run_.pipe)) != DLP_OK) return rc;
    return dlp_pipe_start(run_.pipe);
}

static int open_by_hand(const cfg *c, const dlp_state *resume) {
    const wiring *w = &c->w[c->life];
    rig_table t = {.n = 0};
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_dataset fetched, mixed, joined;
    dlp_node_load part;
    pipe_desc(c, resume, &pipe);
    if (sampler_desc(c, &sampler, &pipe) != 0) return DLP_ERR_MEMORY;
    table_list(&t, &sampler);
    if (c->kind == K_PARTS) {
        part_desc(c, &part, &pipe);
        table_load(&t, &part);
    }
    add_fetch(c, &t, &fetched);
    if (c->mix_first) add_mixed(c, &t, &mixed); /* needs: join */
    if (w->cache)
        table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = (uint64_t)w->cache * 128}});
    if (c->zip_at != ZIP_LAST) add_join(c, &t, &joined); /* needs: join */
    for (int i = 0; i < c->n_maps; i++) add_map(c, &t, S_MAP0 + i);
    if (c->joined && c->zip_at == ZIP_LAST) add_join(c, &t, &joined); /* needs: join */
    add_batch(c, &t);
    for (int i = 0; i < c->n_bmaps; i++) add_map(c, &t, S_BMAP0 + i);
    if (w->transfer) add_transfer(w, &t);
    return open_table(c, &t, &pipe);
}

static int open_loader(const cfg *c, const dlp_state *resume) {
    static const int topologies[] = {0, DLP_TOPOLOGY_ECONOMIC, DLP_TOPOLOGY_CLASSIC,
                                     DLP_TOPOLOGY_CONCURRENT};
    const wiring *w = &c->w[c->life];
    dlp_loader_desc desc, *d = &desc;
    memset(d, 0, sizeof *d);
    pipe_desc(c, resume, &d->pipe);
    dataset_desc(c, &d->dataset);
    d->batch_size = c->batch;
    d->num_workers = w->st[S_FETCH].n ? w->st[S_FETCH].n : DLP_NONE;
    d->drop_last = c->last;
    d->epochs = c->forever ? DLP_FOREVER : c->epochs;
    if (sampler_desc(c, &d->sampler, &d->pipe) != 0) return DLP_ERR_MEMORY;
    workers_desc(c, S_FETCH, &d->workers);
    d->workers.num_workers = 0;
    d->collate = c->collate == C_PAD    ? dlp_collate_pad
                 : c->collate == C_PACK ? dlp_collate_pack
                 : c->collate           ? call_collate
                                        : NULL;
    d->collate_user = &now_;
    if (c->collate == C_OWN) d->out_fields = own_fields, d->n_out_fields = 3;
    d->batch_workers.num_workers = w->st[S_BATCH].n ? w->st[S_BATCH].n : DLP_NONE;
    d->device = w->transfer == 0 ? NULL : w->late_device ? &slow_ : dlp_device_host();
    d->device_buffers = w->device_buffers && w->transfer ? w->held + w->device_buffers : 0;
    d->transfer_thread = w->transfer == 2;
    d->pipe.epoch_end = c->epoch_end;
    d->topology = topologies[w->topology];
    d->fetcher = w->fetcher;
    d->in_flight = w->fetcher ? w->in_flight : 0;
    d->batch_pool = (uint32_t)w->batch_pool;
    d->async = (dlp_async){call_submit, call_reap};
    d->cache.bytes = (uint64_t)w->cache * 128;
    if (c->kind == K_PARTS) {
        d->sampler.order = DLP_ORDER_SEQUENTIAL; /* of a loader, instead of DLP_ORDER_PARTS */
        part_desc(c, &d->parts, &d->pipe);
    }
    return dlp_loader_open(&run_.pipe, d, &open_err_);
}

/* sampler -> [repeat] -> fetch -> batch -> [transfer] -> split */
static int open_split(const cfg *c, const dlp_state *resume) {
    const wiring *w = &c->w[c->life];
    const dlp_field fields[2] = {{"words", DLP_U64, 2, {c->chunk_rows, 4}, 0, 0},
                                 {"tag", DLP_U8, 2, {c->chunk_rows, 5}, 0, 0}};
    uint64_t n = chunk_count(c), all = n * (uint64_t)c->chunk_rows;
    dlp_dataset dataset = {.n_items = n,
                           .fields = fields,
                           .n_fields = 2,
                           .fetch = call_split,
                           .user = &now_,
                           .writes_all_bytes = (uint32_t)c->fills};
    dlp_source fetch = {.dataset = &dataset};
    const dlp_sampler_desc sampler = {.order = c->order == O_SHUFFLED ? DLP_ORDER_SHUFFLED : 0,
                                      .seed = c->order_seed};
    const dlp_node_split split = {.chunk_rows = (uint64_t)c->chunk_rows,
                                  .batch_size = c->batch,
                                  .n_rows = c->n_items < all ? c->n_items : all,
                                  .last = c->last,
                                  .within_chunks = c->within};
    rig_table t = {.n = 0};
    dlp_pipe_desc pipe;
    pipe_desc(c, resume, &pipe);
    pipe.prefetch_factor = w->prefetch;
    workers_desc(c, S_FETCH, &fetch.workers);
    table_list(&t, &sampler);
    table_fetch(&t, &fetch, 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = 1},
                             .workers = {.num_workers = DLP_NONE}});
    if (w->transfer) add_transfer(w, &t);
    table_row(&t, (dlp_node){.verb = DLP_SPLIT, .split = split});
    return open_table(c, &t, &pipe);
}

static int open_chunks(const cfg *c, const dlp_state *resume) {
    const wiring *w = &c->w[c->life];
    dlp_chunks_desc d;
    memset(&d, 0, sizeof d);
    d.n_items = c->n_items;
    d.fields = item_fields;
    d.n_fields = 2;
    d.writes_all_bytes = (uint32_t)c->fills;
    d.chunk_rows = (uint64_t)c->chunk_rows;
    d.batch_size = c->batch;
    d.last = c->last;
    d.within_chunks = c->within;
    d.shuffle_chunks = c->order == O_SHUFFLED;
    d.shuffle_rows = c->shuffle_rows;
    d.load = call_chunk;
    d.user = &now_;
    workers_desc(c, S_FETCH, &d.workers);
    if (c->cpu_buffers && !c->preload) d.cpu_buffers = w->held + c->cpu_buffers;
    d.device = w->transfer == 0 ? NULL : w->late_device ? &slow_ : dlp_device_host();
    d.transfer_inline = w->transfer == 1;
    d.preload = c->preload;
    d.epochs = c->forever ? DLP_FOREVER : c->epochs;
    d.seed = c->order_seed;
    pipe_desc(c, resume, &d.pipe);
    d.pipe.epoch_end = c->epoch_end;
    d.pipe.rank = w->rank;
    d.pipe.world_size = w->world;
    d.pipe.allow_uneven = c->uneven;
    return dlp_chunks_open(&run_.pipe, &d, &open_err_);
}

#endif
