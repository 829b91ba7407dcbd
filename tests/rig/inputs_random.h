/* needs: pictures */
/* A pipe whose batches are made of inputs, drawn at random; what its callbacks write; and whether a
   batch is what was written down. Needs inputs_model.h, check.h, shm_rig.h. */
#ifndef INPUTS_RANDOM_H
#define INPUTS_RANDOM_H

#define MOST_RANKS 6
#define MOST_LIVES 4

enum { GUARD_NONE, GUARD_FINE, GUARD_DROP, GUARD_REPLACE };
enum { SHARE_NONE, SHARE_WAIT, SHARE_DROP_NEW, SHARE_KEEP_NEWEST, SHARE_ONE };

typedef struct life {
    uint32_t world;
    uint32_t stop; /* batches that each rank takes; UINT32_MAX: to the end */
    int makers, fetchers, prefetch, held, threaded, processes, merged;
    uint32_t queue_more; /* cells beyond the default's; 0: the default */
    int turns;           /* a table's batches go to workers in turn */
    uint32_t reads;      /* requests for inputs at once in a worker; 0: one after the other */
} life;

typedef struct config {
    order_plan o;
    int guard, guard_first, maps, positions, heals, share, n_lives;
    int heals_behind; /* rows behind makers fail for some items, and heal */
    int shared;       /* shared_streams */
    int tells;        /* DLP_EPOCH_END is told */
    int raises;       /* inputs that can't be read are errors, and can be in the next life */
    int least;        /* min_items is given */
    int set;          /* each epoch begins by set_epoch */
    int stacked;      /* all ranks are tables, with more makers in a row than they need */
    int bare;         /* no filter stands before the window, but a fetch, or a map of the stack */
    int sharers, leaves; /* subscribers of SHARE_ONE; one of them leaves, with a batch */
    int events;          /* times that all ranks seek, or leave an epoch */
    uint32_t kill_every; /* calls of the makers' callback */
    uint64_t seed;
    life lives[MOST_LIVES];
} config;

typedef struct shared_words { /* of all processes */
    uint32_t calls, wrong;
    uint64_t epoch; /* that set_epoch began; UINT64_MAX: it runs, or was not called */
} shared_words;

static config now_;
static shared_words *words_;
static int torn_[MOST_INPUTS];
static pid_t caller_; /* never to be killed */

/* ---- what is in an item ---- */

static uint64_t word_of(uint64_t input, uint64_t number) { return mixed(mixed(99, input), number); }
static uint32_t tail_of(uint64_t input, uint64_t number) {
    return (uint32_t)(word_of(input, number) % 10);
}
/* Of an input with several items one is a NaN, at most. */
static int bad(uint64_t input, uint64_t number) {
    return now_.guard >= GUARD_DROP && now_.o.count[input] > 1 && input % 3 == 0 &&
           number == word_of(input, 77) % now_.o.count[input];
}
static float value_of(uint64_t input, uint64_t number) {
    return bad(input, number) ? (float)NAN : (float)(number + input);
}
static uint64_t drawn_of(uint64_t epoch, uint64_t position) {
    return mixed(mixed(keyed(5, now_.o.seed, epoch), position), 7);
}

/* Does the try of this input fail? */
static int fails(uint64_t input, uint32_t attempt) {
    return torn_[input] || (now_.heals && input % 4 == 1 && attempt < 2);
}

/* A callback for an item of this epoch, or, UINT64_MAX, of any: set_epoch has returned. */
static void callback_of(uint64_t epoch) {
    uint64_t now = __atomic_load_n(&words_->epoch, __ATOMIC_SEQ_CST);
    if (now_.set && (now == UINT64_MAX || (epoch != UINT64_MAX && epoch != now)))
        __atomic_add_fetch(&words_->wrong, 1, __ATOMIC_SEQ_CST);
}

static int epoch_set(void *user, uint64_t epoch) {
    (void)user;
    __atomic_store_n(&words_->epoch, UINT64_MAX, __ATOMIC_SEQ_CST);
    if (epoch % 2 == 0) poll(NULL, 0, 1);
    __atomic_store_n(&words_->epoch, epoch, __ATOMIC_SEQ_CST);
    return 0;
}

static void die_now_and_then(void *bytes, size_t n) {
    uint32_t call = __atomic_add_fetch(&words_->calls, 1, __ATOMIC_SEQ_CST);
    if (now_.kill_every == 0 || call % now_.kill_every != 0 || getpid() == caller_) return;
    memset(bytes, 0xee, n);
    raise(SIGKILL);
}

static void item_put(dlp_item *it, uint64_t input, uint64_t number, uint64_t random) {
    uint64_t w[2] = {word_of(input, number), random};
    float x = value_of(input, number);
    memcpy(it->data[0], w, sizeof w);
    memcpy(it->data[1], &x, sizeof x);
    memset(it->data[2], (int)(number + 1), tail_of(input, number));
    it->length[2] = tail_of(input, number);
}

static int load_part(void *user, dlp_part *part) {
    const order_plan *o = user;
    uint32_t n = o->count[part->index];
    die_now_and_then(part->data, (size_t)part->capacity);
    callback_of(UINT64_MAX);
    if (fails(part->index, part->attempt)) return dlp_fail(part->call, 5, "torn");
    for (uint32_t i = 0; i < n; i++) ((uint64_t *)part->data)[i] = word_of(part->index, i);
    part->items = n;
    part->bytes = 8 * (uint64_t)n;
    return 0;
}

static int fetch_of_part(void *user, dlp_item *it) {
    const uint64_t *words = it->part->data;
    (void)user;
    callback_of(it->epoch);
    if (words[it->part->item] != word_of(it->index, it->part->item) ||
        it->part->items != now_.o.count[it->index])
        __atomic_add_fetch(&words_->wrong, 1, __ATOMIC_SEQ_CST);
    item_put(it, it->index, it->part->item, dlp_item_random(it, 7));
    return 0;
}

static int fetch_input(void *user, dlp_item *it) { /* for expand */
    uint64_t random = dlp_item_random(it, 7);
    (void)user;
    die_now_and_then(it->data[0], 8);
    callback_of(it->epoch);
    if (fails(it->index, it->attempt)) return dlp_fail(it->call, 5, "torn");
    memcpy(it->data[0], &random, sizeof random);
    return 0;
}

/* Add an item. NULL is wrong here: no callback adds more than max_out items. */
static dlp_item *added(dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    if (it == NULL) __atomic_add_fetch(&words_->wrong, 1, __ATOMIC_SEQ_CST);
    return it;
}

static int expand_input(void *user, dlp_expand *x) {
    const order_plan *o = user;
    uint64_t random;
    callback_of(x->item->epoch);
    memcpy(&random, x->item->data[0], sizeof random);
    for (uint32_t i = 0; i < o->count[x->item->index]; i++) {
        dlp_item *it = added(x);
        if (it == NULL) return dlp_fail(x->call, 6, "no room");
        item_put(it, x->item->index, i, random);
        if (i % 5 == 1) die_now_and_then(it->data[0], 16);
    }
    return 0;
}

static int fetch_filtered(void *user, dlp_item *it) {
    const order_plan *o = user;
    die_now_and_then(it->data[0], 16);
    callback_of(it->epoch);
    if (fails(it->index, it->attempt)) return dlp_fail(it->call, 5, "torn");
    item_put(it, it->index, 0, dlp_item_random(it, 7));
    return o->count[it->index] ? 0 : DLP_SKIP;
}

static uint16_t token_of(uint64_t input, uint64_t i) {
    return (uint16_t)(word_of(input, i) % UINT16_MAX);
}

static int fetch_document(void *user, dlp_item *it) {
    const order_plan *o = user;
    uint32_t n = o->count[it->index];
    uint16_t random = (uint16_t)dlp_item_random(it, 7);
    die_now_and_then(it->data[0], 2 * LONGEST);
    callback_of(it->epoch);
    if (fails(it->index, it->attempt)) return dlp_fail(it->call, 5, "torn");
    for (uint32_t i = 0; i < n; i++) ((uint16_t *)it->data[0])[i] = token_of(it->index, i);
    for (uint32_t i = 0; i < n; i++) ((uint16_t *)it->data[1])[i] = (uint16_t)(random + i);
    it->length[0] = it->length[1] = n;
    return n == 0 && it->index % 2 ? DLP_SKIP : 0;
}

/* ---- several documents of an input ---- */

#define MOST_DOCUMENTS_OF (2 * LONGEST)

static void document_put(dlp_item *it, const document *d, uint16_t random) {
    const int left_out = !is_document(&now_.o, d->number) && d->number % 2;
    const uint32_t n = left_out ? 3 : d->n;
    for (uint32_t i = 0; i < n; i++) {
        ((uint16_t *)it->data[0])[i] = left_out ? UINT16_MAX : token_of(d->input, d->first + i);
        ((uint16_t *)it->data[1])[i] = (uint16_t)(random + d->first + i);
    }
    it->length[0] = it->length[1] = n;
}

static int expand_documents(void *user, dlp_expand *x) {
    const order_plan *o = user;
    uint64_t random;
    document d;
    callback_of(x->item->epoch);
    memcpy(&random, x->item->data[0], sizeof random);
    for (uint32_t k = 0; document_of(o, (uint32_t)x->item->index, k, &d); k++) {
        dlp_item *it = added(x);
        if (it == NULL) return dlp_fail(x->call, 6, "no room");
        document_put(it, &d, (uint16_t)random);
        if (k % 5 == 1) die_now_and_then(it->data[0], 16);
    }
    return 0;
}

static uint64_t documents_in(const order_plan *o, uint64_t input) {
    document d;
    uint64_t n = 0;
    while (document_of(o, (uint32_t)input, (uint32_t)n, &d)) n++;
    return n;
}

static int load_documents(void *user, dlp_part *part) {
    const order_plan *o = user;
    die_now_and_then(part->data, (size_t)part->capacity);
    callback_of(UINT64_MAX);
    if (fails(part->index, part->attempt)) return dlp_fail(part->call, 5, "torn");
    part->items = documents_in(o, part->index);
    part->bytes = 8;
    memcpy(part->data, &part->index, 8);
    return 0;
}

static int count_documents(void *user, uint64_t part, uint64_t *items) {
    *items = documents_in(user, part);
    return 0;
}

static int fetch_document_of_part(void *user, dlp_item *it) {
    const order_plan *o = user;
    document d;
    callback_of(it->epoch);
    if (*(const uint64_t *)it->part->data != it->index ||
        !document_of(o, (uint32_t)it->index, (uint32_t)it->part->item, &d))
        return dlp_fail(it->call, 6, "no such document");
    document_put(it, &d, (uint16_t)dlp_item_random(it, 7));
    return 0;
}

/* Does a row behind a maker fail for this try? Some items of some inputs do, twice. */
static int fails_behind(const dlp_item *it, uint64_t word) {
    return now_.heals_behind && it->index % 4 == 2 && word % 3 == 1 && it->attempt < 2;
}

static int keep_documents(void *user, const dlp_item *it) {
    (void)user;
    if (fails_behind(it, it->length[0])) return -1;
    return it->length[0] == 0 || *(const uint16_t *)it->data[0] != UINT16_MAX;
}

/* Not idempotent. */
static int map_item(void *user, dlp_item *it) {
    const order_plan *o = user;
    if (packs(o))
        ++*(uint16_t *)it->data[0];
    else
        *(uint64_t *)it->data[0] = *(uint64_t *)it->data[0] * 3 + it->index;
    return 0;
}

/* ---- is a batch what it should be? ---- */

static uint64_t mapped(uint64_t word, uint64_t input) {
    for (int i = 0; i < now_.maps; i++) word = word * 3 + input;
    return word;
}

static int bytes_are(const uint8_t *at, size_t n, int value) {
    for (size_t i = 0; i < n; i++)
        if (at[i] != value) return 0;
    return 1;
}

/* Item `number` of an input, in row r. */
static int item_is(const dlp_batch *b, uint32_t r, uint64_t input, uint64_t number,
                   uint64_t random) {
    const uint64_t *w = (const uint64_t *)b->fields[0].data + 2 * (size_t)r;
    const uint8_t *tail = (const uint8_t *)b->fields[2].data + 10 * (size_t)r;
    uint32_t n = tail_of(input, number);
    float x = value_of(input, number);
    return w[0] == mapped(word_of(input, number), input) && w[1] == random &&
           memcmp((const float *)b->fields[1].data + r, &x, sizeof x) == 0 &&
           b->fields[2].lengths[r] == n && bytes_are(tail, n, (int)(number + 1)) &&
           bytes_are(tail + n, 10 - n, 0);
}

static int zeros(const dlp_batch *b, uint32_t r) {
    int ok = b->valid[r] == 0;
    for (uint32_t f = 0; f < b->n_fields; f++) {
        size_t n = (size_t)b->fields[f].bytes / b->count;
        ok &= bytes_are((const uint8_t *)b->fields[f].data + r * n, n, 0);
    }
    return ok;
}

static int item_row_is(const dlp_batch *b, uint32_t r, const piece *p) {
    const order_plan *o = &now_.o;
    uint64_t random = drawn_of(b->epoch, (uint64_t)p->pass * o->inputs + p->input);
    if (o->kind == OF_PARTS) random = drawn_of(b->epoch, b->position + r);
    if (o->kind == OF_PARTS && now_.stacked)
        random = drawn_of(b->epoch, mixed((uint64_t)p->pass * o->inputs + p->input, p->first + 1));
    if (b->index[r] != p->input) return 0;
    if (!bad(p->input, p->first))
        return b->valid[r] == 1 && item_is(b, r, p->input, p->first, random);
    if (now_.guard == GUARD_DROP) return zeros(b, r);
    for (uint32_t k = 0; k < o->count[p->input]; k++) /* any other of it */
        if (b->valid[r] == 1 && !bad(p->input, k) && item_is(b, r, p->input, k, random)) return 1;
    return 0;
}

static int packed_row_is(const dlp_batch *b, uint32_t r, const stream *x, const row *want) {
    const order_plan *o = &now_.o;
    const uint32_t t = o->tokens, s = o->segments;
    const uint16_t *tokens = (const uint16_t *)b->fields[0].data + (size_t)r * t;
    const uint16_t *drawn = (const uint16_t *)b->fields[1].data + (size_t)r * t;
    const int32_t *cu = (const int32_t *)b->fields[2].data + (size_t)r * (s + 1);
    const int32_t *at = (const int32_t *)b->fields[3].data + (size_t)r * t;
    uint32_t n = 0;
    int ok = b->valid[r] == 1 && cu[0] == 0 && b->fields[0].lengths[r] == want->tokens;
    ok &= b->fields[1].lengths[r] == want->tokens && b->index[r] == x->pieces[want->at].input;
    for (uint32_t k = 0; k < want->n; k++) {
        const piece *p = &x->pieces[want->at + k];
        uint64_t key = (uint64_t)p->pass * o->inputs + p->input, random;
        if (o->made == OF_PARTS_FOUND || o->made == OF_PARTS_COUNTED)
            key = mixed(key, p->number + UINT64_C(1));
        random = drawn_of(b->epoch, key);
        for (uint32_t j = 0; j < p->n; j++, n++) {
            uint16_t more = (uint16_t)(n == 0 ? now_.maps : 0);
            ok &= tokens[n] == (uint16_t)(token_of(p->input, p->first + j) + more);
            ok &= drawn[n] == (uint16_t)(random + p->first + j);
            ok &= at[n] == (int32_t)(j + (now_.positions ? p->first - p->begins : 0));
        }
        ok &= cu[k + 1] == (int32_t)n;
    }
    for (uint32_t k = want->n; k < s; k++) ok &= cu[k + 1] == (int32_t)n;
    for (; n < t; n++) ok &= tokens[n] == 0 && at[n] == 0 && drawn[n] == 0;
    return ok;
}

/* Batch k of an epoch, of rank `rank` of `world`; `all` are the epoch's batches. Returns 0, or what
   is wrong with it. */
static const char *batch_wrong(const dlp_batch *b, uint64_t epoch, uint32_t k, uint32_t rank,
                               uint32_t world, uint32_t all) {
    const order_plan *o = &now_.o;
    uint32_t m = rows_each(o), rows = o->batch / world;
    if (b->epoch != epoch || b->in_epoch != k) return "another batch";
    if (b->position != (uint64_t)k * o->batch + (uint64_t)rank * rows) return "position";
    if (((b->flags & DLP_BATCH_LAST) != 0) != (k + 1 == all)) return "flags";
    if (o->streams == 1 && world == 1 && o->last <= DLP_LAST_DEFAULT && o->steps == 0 &&
        streams_[epoch][0].n_rows - k * m < m)
        rows = streams_[epoch][0].n_rows - k * m;
    if (b->count != rows) return "count";
    for (uint32_t r = 0; r < rows; r++) {
        uint64_t g = (uint64_t)rank * rows + r, at = (uint64_t)k * m + g % m;
        const stream *x = &streams_[epoch][g / m];
        if (at >= x->n_rows) {
            if (b->index[r] != UINT64_MAX || !zeros(b, r)) return "a hole";
        } else if (packs(o) ? !packed_row_is(b, r, x, &x->rows[at])
                            : !item_row_is(b, r, &x->pieces[x->rows[at].at])) {
            return "a row";
        }
    }
    return NULL;
}

/* ---- the pipe ---- */

static const dlp_field input_fields[1] = {{"base", DLP_U64, 0, {0}, 0, 0}};
static const dlp_field item_fields[3] = {{"words", DLP_U64, 1, {2}, 0, 0},
                                         {"value", DLP_F32, 0, {0}, 0, 0},
                                         {"tail", DLP_U8, 1, {10}, 1, 0}};
static const dlp_field document_fields[2] = {{"tokens", DLP_U16, 1, {LONGEST}, 1, 0},
                                             {"drawn", DLP_U16, 1, {LONGEST}, 1, 0}};

static int64_t all_reduce(void *user, int64_t mine, int most);

static dlp_workers_desc makers_desc(const life *l) {
    dlp_workers_desc w = {.num_workers = l->makers, .on_error = DLP_ON_ERROR_DROP, .retries = 2};
    if (now_.raises) w.on_error = DLP_ON_ERROR_RAISE;
    w.placement = l->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    return w;
}

static dlp_workers_desc rows_desc(const life *l) {
    dlp_workers_desc w = {.num_workers = l->fetchers};
    w.placement = l->processes && l->fetchers > 0 ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    return w;
}

/* What every part that is not empty has at least. */
static uint64_t least_items(const order_plan *o) {
    uint32_t least = MOST_COUNT;
    for (uint32_t i = 0; i < o->inputs; i++)
        if (o->count[i] > 0 && o->count[i] < least) least = o->count[i];
    return least;
}

/* What makes several documents of an input. */
static dlp_node table_parts(config *c, const life *l) {
    order_plan *o = &c->o;
    dlp_node node = {.name = "load",
                     .verb = DLP_LOAD,
                     .load = {.max_part_bytes = 8, .load = load_documents, .user = o},
                     .workers = makers_desc(l)};
    if (o->made == OF_PARTS_FOUND)
        node.load.max_items = MOST_DOCUMENTS_OF;
    else
        node.load.count = count_documents;
    return node;
}

static dlp_node table_documents(config *c) {
    return (dlp_node){.name = "documents",
                      .verb = DLP_EXPAND,
                      .expand = {.expand = expand_documents,
                                 .user = &c->o,
                                 .fields = document_fields,
                                 .n_fields = 2,
                                 .max_out = MOST_DOCUMENTS_OF}};
}

static const dlp_item_fn fetches_[KINDS] = {fetch_of_part, fetch_input, fetch_filtered,
                                            fetch_document, fetch_document};
static const dlp_field *const fetched_[KINDS] = {item_fields, input_fields, item_fields,
                                                 document_fields, document_fields};
static const uint32_t n_fetched_[KINDS] = {3, 1, 3, 2, 2};

/* ---- inputs read by requests ---- */

enum { READS_MOST = 24 };

typedef struct requests { /* of a worker */
    dlp_item *held[READS_MOST];
    uint32_t n, calls;
} requests;

static int requests_open(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    return (*state = calloc(1, sizeof(requests))) == NULL;
}

static void requests_close(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}

static int request(void *user, void *state, dlp_item *it) {
    requests *r = state;
    (void)user;
    if (r->n == READS_MOST || r->calls++ % 13 == 5) return DLP_FULL;
    r->held[r->n++] = it;
    return 0;
}

/* Answer some of them, by the callback that fetches, in another order. */
static int answers(requests *r, dlp_item_fn fetch, void *user, dlp_item **done, int *code,
                   int max) {
    uint32_t n = r->n > 0 ? 1 + r->calls++ % r->n : 0;
    int given = 0;
    for (; n > 0 && given < max; n--, given++) {
        const uint32_t at = r->calls * 7 % r->n;
        done[given] = r->held[at];
        r->held[at] = r->held[--r->n];
        code[given] = fetch(user, done[given]);
    }
    return given;
}

static int answer_inputs(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    (void)ms;
    return answers(state, fetch_input, user, done, code, max);
}
static int answer_filtered(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    (void)ms;
    return answers(state, fetch_filtered, user, done, code, max);
}
static int answer_documents(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    (void)ms;
    return answers(state, fetch_document, user, done, code, max);
}

static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    return fails_behind(it, packs(&now_.o) ? it->length[0] : *(const uint64_t *)it->data[0]) ? -1
                                                                                             : 1;
}

/* Two of it leave an item as it was. */
static int map_flip(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] ^= 0x5555;
    return fails_behind(it, *(const uint64_t *)it->data[0]) ? -1 : 0;
}

/* The same item again. */
static int expand_again(void *user, dlp_expand *x) {
    dlp_item *it = added(x);
    (void)user;
    if (it == NULL) return dlp_fail(x->call, 6, "no room");
    memcpy(it->data[0], x->item->data[0], 16);
    memcpy(it->data[1], x->item->data[1], 4);
    memcpy(it->data[2], x->item->data[2], 10);
    it->length[2] = x->item->length[2];
    return 0;
}

/* More makers in a row, behind which items are as they were. */
static uint32_t table_stack(const config *c, dlp_node *to) {
    const order_plan *o = &c->o;
    uint32_t n = 0;
    if (!c->stacked) return 0;
    to[n++] = (dlp_node){.name = "flip", .verb = DLP_MAP, .map = {.item = map_flip}};
    if (o->kind == OF_PARTS || !o->shuffle_items)
        to[n++] = (dlp_node){
            .name = "again", .verb = DLP_EXPAND, .expand = {.expand = expand_again, .max_out = 1}};
    to[n++] = (dlp_node){.name = "flop", .verb = DLP_MAP, .map = {.item = map_flip}};
    if (!c->bare)
        to[n++] = (dlp_node){.name = "last", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    return n;
}

/* The rows up to those that make items. Returns how many. */
static uint32_t table_inputs(config *c, const life *l, dlp_node *to) {
    static const dlp_async by[KINDS] = {[OF_EXPAND] = {request, answer_inputs},
                                        [OF_FILTER] = {request, answer_filtered},
                                        [OF_CUT] = {request, answer_documents},
                                        [OF_FIT] = {request, answer_documents}};
    order_plan *o = &c->o;
    uint32_t n = 0;
    to[n++] = (dlp_node){.name = "inputs",
                         .verb = DLP_LIST,
                         .list = {.n_items = o->inputs, .shuffle = o->shuffle},
                         .workers = {.num_workers = l->threaded},
                         .queue = {.deal = l->turns ? DLP_DEAL_TURNS : DLP_DEAL_RUNS}};
    if (o->kind == OF_PARTS) {
        to[n++] = (dlp_node){.name = "load",
                             .verb = DLP_LOAD,
                             .load = {.max_part_bytes = 8 * MOST_COUNT,
                                      .max_items = MOST_COUNT,
                                      .min_items = c->least ? least_items(o) : 0,
                                      .shuffle_items = o->shuffle_items,
                                      .load = load_part,
                                      .user = o,
                                      .weights = o->weighed ? o->weight : NULL},
                             .workers = makers_desc(l)};
        if (o->window > 0 && !c->stacked)
            to[n++] =
                (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = o->window}};
    }
    if (o->made == OF_PARTS_FOUND || o->made == OF_PARTS_COUNTED) to[n++] = table_parts(c, l);
    to[n++] = (dlp_node){.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = fetches_[o->kind],
                                   .user = o,
                                   .fields = fetched_[o->kind],
                                   .n_fields = n_fetched_[o->kind]},
                         .workers = o->kind == OF_PARTS ? rows_desc(l) : makers_desc(l)};
    if (o->made == OF_EXPANDED) {
        to[n - 1].fetch.fetch = fetch_input;
        to[n - 1].fetch.fields = input_fields;
        to[n - 1].fetch.n_fields = 1;
    } else if (o->made != OF_ONE) {
        to[n - 1].fetch.fetch = fetch_document_of_part;
        to[n - 1].workers = (dlp_workers_desc){.num_workers = 0};
        return n;
    }
    if (o->kind == OF_PARTS && c->stacked) to[n - 1].workers = (dlp_workers_desc){.num_workers = 0};
    if (o->kind != OF_PARTS && l->reads > 0 && l->makers != DLP_NONE) {
        dlp_node *read = &to[n - 1];
        read->fetch.fetch = NULL;
        read->fetch.async = &by[o->made == OF_EXPANDED ? OF_EXPAND : o->kind];
        read->fetch.in_flight = l->reads;
        read->workers.worker_init = requests_open;
        read->workers.worker_exit = requests_close;
    }
    return n;
}

static uint32_t table_makers(config *c, dlp_node *to) {
    order_plan *o = &c->o;
    uint32_t n = 0;
    if (o->kind == OF_PARTS && !c->stacked) return 0;
    if (o->kind == OF_FILTER ? !c->bare || c->stacked : o->seed % 3 == 0)
        to[n++] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    if (o->kind == OF_EXPAND)
        to[n++] = (dlp_node){.name = "expand",
                             .verb = DLP_EXPAND,
                             .expand = {.expand = expand_input,
                                        .user = o,
                                        .fields = item_fields,
                                        .n_fields = 3,
                                        .max_out = MOST_COUNT,
                                        .shuffle_items = o->shuffle_items}};
    if (o->made == OF_EXPANDED) to[n++] = table_documents(c);
    if (o->made != OF_ONE)
        to[n++] =
            (dlp_node){.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep_documents}};
    if (!packs(o)) n += table_stack(c, to + n);
    if (o->kind == OF_EXPAND && o->seed % 5 < 2 && !c->bare)
        to[n++] = (dlp_node){.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    if (packs(o) && o->seed % 4 == 1)
        to[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16}};
    if (o->before > 0)
        to[n++] = (dlp_node){.name = "docs", .verb = DLP_WINDOW, .window = {.items = o->before}};
    if (packs(o))
        to[n++] =
            (dlp_node){.name = "pack",
                       .verb = DLP_PACK,
                       .pack = {.tokens = o->tokens,
                                .rule = o->kind == OF_FIT ? DLP_PACK_FIT : DLP_PACK_CUT,
                                .overlap = o->overlap,
                                .max_segments = o->segments,
                                .window = o->kind == OF_FIT ? o->window : 0,
                                .longer = o->longer ? DLP_PACK_LONGER_DROP : DLP_PACK_LONGER_CUT,
                                .positions = c->positions}};
    if (o->behind > 0)
        to[n++] = (dlp_node){.name = "rows", .verb = DLP_WINDOW, .window = {.items = o->behind}};
    if (!packs(o) && o->window > 0)
        to[n++] = (dlp_node){
            .name = "mixed",
            .verb = DLP_WINDOW,
            .window = {.items = o->window, .group = o->group, .by = o->group > 0 ? "tail" : NULL}};
    return n;
}

static void table_guard(const config *c, const life *l, dlp_node *to) {
    static const dlp_guard_field value = {"value", 0, 0, 0, 0}, tokens = {"tokens", 0, 65535, 0, 0};
    *to = (dlp_node){.name = "guard",
                     .verb = DLP_GUARD,
                     .guard = {.fields = packs(&c->o) ? &tokens : &value, .n_fields = 1},
                     .workers = rows_desc(l)};
    if (c->guard == GUARD_DROP) to->workers.on_error = DLP_ON_ERROR_DROP;
    if (c->guard == GUARD_REPLACE) to->workers.on_error = DLP_ON_ERROR_REPLACE;
}

static int table_make(config *c, const life *l, uint32_t rank, dlp_pipe_desc desc, dlp_pipe **out,
                      dlp_error *err) {
    static const char *const maps[] = {"map 0", "map 1", "map 2", "map 3"};
    order_plan *o = &c->o;
    dlp_node nodes[16];
    uint32_t n = table_inputs(c, l, nodes);
    n += table_makers(c, nodes + n);
    if (c->guard && c->guard_first) table_guard(c, l, &nodes[n++]);
    for (int i = 0; i < c->maps && i < 4; i++)
        nodes[n++] = (dlp_node){.name = maps[i],
                                .verb = DLP_MAP,
                                .map = {.item = map_item, .user = o},
                                .workers = rows_desc(l)};
    if (c->guard && !c->guard_first) table_guard(c, l, &nodes[n++]);
    nodes[n++] =
        (dlp_node){.name = "batch",
                   .verb = DLP_BATCH,
                   .batch = {.batch_size = o->batch,
                             .last = o->last,
                             .copy_workers = o->kind == OF_PARTS && !c->stacked ? 0 : l->fetchers}};
    desc.seed = o->seed;
    desc.epochs = o->epochs;
    desc.epoch_end = c->tells;
    desc.set_epoch = c->set ? epoch_set : NULL;
    desc.rank = rank;
    desc.world_size = l->world;
    desc.streams = o->streams;
    desc.steps_per_epoch = o->steps;
    desc.uneven = o->ends == ENDS_UNEVEN;
    desc.shared_streams = c->shared;
    desc.agree = o->ends == ENDS_AGREE ? all_reduce : NULL;
    return dlp_pipe_open(out, nodes, n, &desc, err);
}

/* Ranks need not be wired alike. */
static life wired(const config *c, const life *l, uint32_t rank) {
    life own = *l;
    uint64_t h = mixed(mixed(c->seed, rank), l->stop);
    own.turns = h >> 50 & 1;
    own.reads = h >> 41 & 1 ? 1 + (uint32_t)(h >> 44) % READS_MOST : 0;
    if (rank == 0 || h % 2) return own;
    own.prefetch = 1 + (int)(h >> 8 & 7);
    own.makers = h >> 16 & 1 ? DLP_NONE : 1 + (int)(h >> 20 & 3);
    own.fetchers = h >> 24 & 1 ? DLP_NONE : 1 + (int)(h >> 28 & 1);
    own.threaded = (int)(h >> 32 & 1);
    return own;
}

static int pipe_make(config *c, const life *as, uint32_t rank, const dlp_state *resume,
                     dlp_pipe **out, dlp_error *err) {
    const life own = wired(c, as, rank), *l = &own;
    char name[64];
    dlp_shm_desc shm = {.max_kills = 100, .allow_fork_with_threads = 1};
    dlp_pipe_desc desc = {.prefetch_factor = l->prefetch, .max_held = l->held, .resume = resume};
    snprintf(name, sizeof name, "inputs_random.%d", (int)getpid());
    if (c->share) shm.name = name, shm.share = DLP_SHARE_EACH;
    if (c->share) shm.wait_subscribers = c->sharers;
    if (c->share == SHARE_ONE) {
        shm.share = DLP_SHARE_ONE;
        shm.serve_only = 1;
    }
    if (l->processes || c->share) desc.shm = &shm;
    return table_make(c, l, rank, desc, out, err);
}

#endif
