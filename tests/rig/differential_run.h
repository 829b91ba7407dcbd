/* One configuration: run, and compared with the model. */
#ifndef DIFFERENTIAL_RUN_H
#define DIFFERENTIAL_RUN_H

#define HELD_MOST 8
#define STATES_MOST 64

static int said_; /* what was wrong first is said, and no more */

static int wrong(const char *format, ...) {
    va_list args;
    if (said_++ == 0) {
        printf("  wrong: ");
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    return 1;
}

/* A place in the order: batches of the epoch before k are consumed, and those marked. end_due: the
   end of the epoch before is still to be told. */
typedef struct place {
    uint64_t epoch, k, n_done;
    int end_due;
    uint8_t done[MOST_ROWS];
} place;

typedef struct held {
    dlp_batch *batch;
    uint64_t sum;
} held;

/* Of an epoch whose items were all left out: the next call fails; it may, as others know more. */
enum { NONE_NO, NONE_MUST, NONE_MAY };

typedef struct run {
    cfg *c;
    dlp_pipe *p;
    place at;
    dice d;
    held held[HELD_MOST];
    int n_held, taken, moved, seeks, leaves, kills, epoch_end_due, last;
    int unseen; /* nothing came behind the last batch */
    int inside; /* the present epoch was entered behind its first batch, or by a seek */
    int none;   /* NONE_*: an error in place of what follows, since the epoch had no valid row */
    uint64_t last_epoch, last_k;
    uint64_t sequence; /* the least that the next batch may have */
    dlp_state state[STATES_MOST];
    place of[STATES_MOST];
    int n_states;
} run;

/* ---- bytes of a batch ---- */

static int tensor_is(const dlp_batch *b, uint32_t f, const void *bytes, uint64_t n, int ndim,
                     const int64_t *shape) {
    const dlp_tensor *t = &b->fields[f];
    const uint8_t *got = t->data, *want = bytes;
    if (t->ndim != ndim || t->bytes != n)
        return wrong("field %u has %d dimensions and %llu bytes, should be %d and %llu", f, t->ndim,
                     (unsigned long long)t->bytes, ndim, (unsigned long long)n);
    for (int i = 0; i < ndim; i++)
        if (t->shape[i] != shape[i])
            return wrong("field %u: shape[%d] is %d, not %d", f, i, (int)t->shape[i],
                         (int)shape[i]);
    for (uint64_t i = 0; i < n; i++)
        if (got[t->byte_offset + i] != want[i])
            return wrong("field %u: byte %llu of %llu is %#x, not %#x (row %llu of %u)", f,
                         (unsigned long long)i, (unsigned long long)n, got[i], want[i],
                         (unsigned long long)(b->count ? i / (n / b->count) : 0), b->count);
    return 0;
}

static int ragged_is(const cfg *c, const dlp_batch *b, const mbatch *e) {
    static uint16_t to[MOST_BATCH * RAGGED_MOST][2];
    const dlp_tensor *t = &b->fields[2];
    uint32_t wide = c->collate == C_PAD ? 0 : RAGGED_MOST, at = 0;
    int64_t shape[3] = {e->count, 0, 2};
    memset(to, 0, sizeof to);
    for (uint32_t r = 0; r < e->count && c->collate == C_PAD; r++)
        if (e->row[r].len > wide) wide = e->row[r].len;
    for (uint32_t r = 0; r < e->count; r++) {
        const mrow *row = &e->row[r];
        uint32_t from = c->collate == C_PACK ? at : r * wide;
        if (t->lengths == NULL || t->lengths[r] != row->len)
            return wrong("row %u: length is %d, not %u", r, t->lengths ? (int)t->lengths[r] : -1,
                         row->len);
        if (c->collate == C_PACK && (t->offsets == NULL || t->offsets[r] != at))
            return wrong("row %u: another offset", r);
        memcpy(to[from], row->rag, row->len * sizeof row->rag[0]);
        at += row->len;
    }
    shape[1] = wide;
    if (c->collate != C_PACK) return tensor_is(b, 2, to, 4ull * wide * e->count, 3, shape);
    if (t->offsets == NULL || t->offsets[e->count] != at) return wrong("another last offset");
    shape[0] = at;
    shape[1] = 2;
    return tensor_is(b, 2, to, 4ull * at, 2, shape);
}

static int own_is(const cfg *c, const dlp_batch *b, const mbatch *e, const uint64_t *was) {
    uint64_t sum[MOST_BATCH], head = e->epoch << 32 | e->position << 8 | e->count;
    int64_t shape[1] = {e->count}, one[1] = {1};
    for (uint32_t r = 0; r < e->count; r++) {
        const mrow *row = &e->row[r];
        sum[r] = was[r] ^ row->index ^ row->valid;
        if (c->ragged) sum[r] += row->len;
    }
    return tensor_is(b, 1, sum, 8ull * e->count, 1, shape) || tensor_is(b, 2, &head, 8, 1, one);
}

/* was: of each row what a collate saw, before batch maps. */
static int bytes_are(const cfg *c, const dlp_batch *b, const mbatch *e) {
    static uint64_t w[MOST_BATCH][4];
    static uint8_t tag[MOST_BATCH][5];
    int64_t four[2] = {e->count, 4}, five[2] = {e->count, 5};
    for (uint32_t r = 0; r < e->count; r++) {
        memcpy(w[r], e->row[r].w, sizeof w[r]);
        memcpy(tag[r], e->row[r].tag, sizeof tag[r]);
    }
    if (b->n_fields != (c->collate == C_OWN || c->ragged ? 3u : 2u) + (c->joined ? 1u : 0u))
        return wrong("%u fields", b->n_fields);
    for (uint32_t r = 0; c->joined && r < b->count; r++)
        if (b->valid[r] && ((const uint64_t *)b->fields[c->ragged ? 3 : 2].data)[r] !=
                               dlp_hash(b->index[r], 2, 3, 4))
            return wrong("row %u has another item's joined field", r);
    if (tensor_is(b, 0, w, 32ull * e->count, 2, four)) return 1;
    if (c->collate == C_OWN) return own_is(c, b, e, e->was);
    if (tensor_is(b, 1, tag, 5ull * e->count, 2, five)) return 1;
    return c->ragged ? ragged_is(c, b, e) : 0;
}

static int rows_are(const dlp_batch *b, const mbatch *e) {
    uint32_t valid = 0;
    for (uint32_t r = 0; r < e->count; r++) {
        valid += e->row[r].valid;
        if (b->index[r] != e->row[r].index)
            return wrong("index[%u] is %d, not %d", r, (int)b->index[r], (int)e->row[r].index);
        if (b->valid[r] != e->row[r].valid) return wrong("valid[%u] is %d", r, b->valid[r]);
    }
    if (b->valid_count != valid) return wrong("valid_count is %u, not %u", b->valid_count, valid);
    return 0;
}

/* Is b the batch that stands at this place? */
static int batch_is(run *r, const dlp_batch *b, mbatch *e) {
    const cfg *c = r->c;
    int exact = !r->moved && c->kind != K_STREAM; /* its end takes numbers, too */
    if (e->n_woes > 0)
        return wrong("a batch came where an error should: %s of stage %s, item %d",
                     dlp_code_name(e->woe[0].code), stage_names[e->woe[0].stage],
                     (int)e->woe[0].index);
    if (b->epoch != e->epoch || b->in_epoch != e->k || b->position != e->position)
        return wrong("epoch %d batch %d position %d came in place of %d, %d, %d", (int)b->epoch,
                     (int)b->in_epoch, (int)b->position, (int)e->epoch, (int)e->k,
                     (int)e->position);
    if (b->count != e->count) return wrong("%u rows, not %u", b->count, e->count);
    if ((b->flags & DLP_BATCH_LAST) != e->last) return wrong("flags are %u", b->flags);
    if (!c->unordered && (exact ? b->sequence != r->sequence : b->sequence < r->sequence))
        return wrong("sequence %d, not %d", (int)b->sequence, (int)r->sequence);
    r->sequence = b->sequence + 1;
    return rows_are(b, e) || bytes_are(c, b, e);
}

/* ---- errors ---- */

/* Does a woe tell this error? */
static int woe_is(const woe *w, uint64_t epoch, const dlp_error *err) {
    const int mixed = w->stage == S_FETCH && now_.mix_first > 0 && w->index >= now_.mix_first;
    if (w->code != err->code) return 0;
    if (strcmp(err->stage, mixed ? mixed_name : stage_names[w->stage]) != 0) return 0;
    if (err->epoch != epoch) return 0;
    if (w->stage == S_PARTS) return 1;
    if (w->has_item != err->has_item) return 0;
    return !w->has_item || (w->index == err->index && w->position == err->position);
}

/* All failures of the rows that this rank has. */
static uint64_t failures_all(const cfg *c, uint64_t *skips) {
    uint64_t n = 0;
    *skips = 0;
    for (uint64_t e = 0; e < (uint64_t)c->epochs; e++)
        for (uint64_t k = 0; k < model_.batches[e]; k++) {
            uint32_t from, begin = model_.begin[e][k];
            uint32_t count = rank_share(c, c->life, model_.begin[e][k + 1] - begin, &from);
            for (uint64_t at = begin + from; at < begin + from + count; at++) {
                fate f;
                if (c->kind == K_STREAM && at >= c->n_items) break;
                fate_of(&model_, e, at >= model_.samples ? at % model_.samples : at, 0, &f);
                n += (uint64_t)f.failures;
                *skips += (uint64_t)f.turns;
            }
        }
    return n;
}

static int error_expected(run *r, int rc) {
    const cfg *c = r->c;
    const dlp_error *err = dlp_pipe_error(r->p);
    uint64_t skips;
    mbatch e;
    if (rc != err->code) return wrong("next returned %s", dlp_code_name(rc));
    if (r->none != NONE_NO && strstr(err->message, "has no valid row") != NULL) return 0;
    if (err->code == DLP_ERR_BUDGET && c->max_skips &&
        failures_all(c, &skips) > (uint64_t)c->max_skips)
        return 0;
    if (err->code == DLP_ERR_KILLED && c->crash == CRASH_STAYS) return 0;
    for (uint64_t k = r->at.k; r->at.epoch < (uint64_t)c->epochs; k++) {
        if (k >= model_.batches[r->at.epoch]) break;
        if (r->at.done[k]) continue;
        expect(&model_, r->at.epoch, k, &e);
        for (int i = 0; i < e.n_woes; i++)
            if (woe_is(&e.woe[i], e.epoch, err)) return 0;
        if (!c->unordered) break;
    }
    {
        char text[700];
        dlp_error_format(err, text, sizeof text);
        return wrong("an error in place of epoch %d batch %d: %s (has_item %d, index %d)",
                     (int)r->at.epoch, (int)r->at.k, text, err->has_item, (int)err->index);
    }
}

/* ---- places ---- */

/* True if all items that this rank has in an epoch are left out, and it has some. */
static int epoch_is_none(uint64_t epoch) {
    static mbatch e;
    uint64_t left_out = 0;
    for (uint64_t k = 0; k < model_.batches[epoch]; k++) {
        expect(&model_, epoch, k, &e);
        for (uint32_t r = 0; r < e.count; r++) {
            if (e.row[r].valid) return 0;
            left_out += model_.c->kind == K_CHUNKS || e.position + r < model_.samples;
        }
    }
    return left_out > 0;
}

static void place_settle(run *r) { /* what comes next, epochs that are over gone by */
    place *at = &r->at;
    while (at->epoch < (uint64_t)r->c->epochs && !r->epoch_end_due) {
        while (at->k < model_.batches[at->epoch] && at->done[at->k]) at->k++;
        if (at->k < model_.batches[at->epoch]) return;
        if (at->n_done > 0 && epoch_is_none(at->epoch))
            r->none = r->inside || r->c->w[r->c->life].world > 1 ? NONE_MAY : NONE_MUST;
        r->inside = 0;
        at->epoch++;
        at->k = at->n_done = 0;
        memset(at->done, 0, sizeof at->done);
        r->epoch_end_due = r->c->epoch_end;
    }
}

static int place_take(run *r, const dlp_batch *b) {
    mbatch e;
    place *at = &r->at;
    uint64_t k = r->c->unordered ? b->in_epoch : at->k;
    if (r->epoch_end_due) return wrong("DLP_EPOCH_END did not come");
    if (at->epoch >= (uint64_t)r->c->epochs) return wrong("a batch behind the end");
    if (k >= model_.batches[at->epoch] || at->done[k])
        return wrong("batch %d of epoch %d came twice", (int)k, (int)b->epoch);
    expect(&model_, at->epoch, k, &e);
    at->n_done++;
    if (r->c->unordered) e.last = at->n_done == model_.batches[at->epoch];
    if (batch_is(r, b, &e)) return 1;
    at->done[k] = 1;
    place_settle(r);
    return 0;
}

/* ---- what a caller does beside taking batches ---- */

static void release_one(run *r) {
    int i = (int)roll(&r->d, (uint32_t)r->n_held);
    held h = r->held[i];
    r->held[i] = r->held[--r->n_held];
    if (digest_batch(h.batch) != h.sum) wrong("a batch that was held has changed");
    if (dlp_pipe_release(r->p, h.batch) != DLP_OK) wrong("release");
}

/* Where the caller is, as a state tells it: a stream whose end was not seen is still in its epoch;
   a rank that has more rows may go on there. */
static place told(const run *r) {
    place to = r->at;
    to.end_due = r->epoch_end_due;
    if (r->c->kind != K_STREAM || !r->unseen || r->last) return to;
    to.end_due = 0;
    to.epoch = r->last_epoch;
    to.k = to.n_done = r->last_k + 1;
    memset(to.done, 1, to.k);
    return to;
}

static void keep_state(run *r, const dlp_batch *last) {
    int i = r->n_states < STATES_MOST ? r->n_states++ : (int)roll(&r->d, STATES_MOST);
    int rc = dlp_pipe_state(r->p, r->c->unordered || one_in(&r->d, 2) ? NULL : last, &r->state[i]);
    r->of[i] = told(r);
    if (rc != DLP_OK) wrong("state: %s", dlp_code_name(rc));
}

static void do_seek(run *r) {
    dlp_state made;
    const dlp_state *to = &made;
    dlp_error err;
    int rc;
    if (r->n_states > 0 && one_in(&r->d, 2)) {
        int i = (int)roll(&r->d, (uint32_t)r->n_states);
        to = &r->state[i];
        r->at = r->of[i];
    } else {
        uint64_t e = roll(&r->d, (uint32_t)r->c->epochs), k = roll(&r->d, model_.batches[e]);
        rc = dlp_pipe_state_at(r->p, e, k, &made);
        if (rc != DLP_OK) wrong("state_at(%d, %d): %s", (int)e, (int)k, dlp_code_name(rc));
        memset(&r->at, 0, sizeof r->at);
        r->at.epoch = e;
        r->at.k = k;
        r->at.n_done = k;
        memset(r->at.done, 1, k);
    }
    rc = dlp_pipe_seek(r->p, to, &err);
    if (rc != DLP_OK) wrong("seek: %s: %s", dlp_code_name(rc), err.message);
    r->moved = 1;
    r->epoch_end_due = r->at.end_due;
    r->last = 0;
    r->inside = 1;
    if (r->none) r->none = NONE_MAY;
    r->unseen = r->at.k > 0 && r->at.epoch < (uint64_t)r->c->epochs &&
                r->at.k >= model_.batches[r->at.epoch]; /* of a stream */
    r->last_epoch = r->at.epoch;
    r->last_k = r->at.k - 1;
    place_settle(r);
}

static void do_leave(run *r) {
    int rc = dlp_pipe_next_epoch(r->p);
    if (rc != DLP_OK) wrong("next_epoch: %s", dlp_code_name(rc));
    r->epoch_end_due = r->unseen = 0;
    if (r->none) r->none = NONE_MAY;
    if (r->at.n_done == 0) return;
    memset(&r->at.done, 0, sizeof r->at.done);
    r->inside = 0;
    r->at.epoch++;
    r->at.k = r->at.n_done = 0;
    r->moved = 1;
    place_settle(r);
}

static void kill_one(run *r) {
    pid_t pid[64];
    uint32_t found = 0;
    dlp_worker_stats w;
    for (uint32_t i = 0; found < 64 && dlp_pipe_worker_stats(r->p, i, &w) == DLP_OK; i++)
        if (w.process && w.pid > 1) pid[found++] = w.pid;
    if (found > 0) kill(pid[roll(&r->d, found)], SIGKILL);
}

/* As a monitor from outside does. */
static void look_in(void) {
    dlp_monitor *m;
    dlp_error err;
    dlp_stats stats;
    char who[32];
    int rc;
    snprintf(who, sizeof who, "%d", (int)getpid());
    rc = dlp_monitor_open(&m, who, &err);
    if (rc != DLP_OK) {
        wrong("monitor_open: %s: %s", dlp_code_name(rc), err.message);
        return;
    }
    if (dlp_monitor_refresh(m, &err) != DLP_OK) wrong("monitor_refresh: %s", err.message);
    if (dlp_monitor_stats(m, &stats) != DLP_OK) wrong("a monitor's stats");
    dlp_monitor_close(m);
}

static void look_round(run *r) {
    static dlp_stats stats;
    static char text[4000];
    if (dlp_pipe_stats(r->p, &stats) != DLP_OK) wrong("stats");
    if (dlp_pipe_explain(r->p, text, sizeof text) < 0) wrong("explain");
    if (one_in(&r->d, 4)) look_in();
    if (r->c->kind == K_ITEMS && r->c->order != O_LISTS && r->c->order != O_BUCKETS &&
        dlp_pipe_batches_per_epoch(r->p) != (int64_t)model_.batches[0])
        wrong("batches_per_epoch");
}

static void set_workers(run *r) {
    const wiring *w = &r->c->w[r->c->life];
    if (w->topology != T_HAND || r->c->kind == K_CHUNKS) return;
    for (int s = 0; s < S_PARTS; s++)
        if (w->st[s].most > 0 && run_.id[s] >= 0 && one_in(&r->d, 3)) {
            int rc = dlp_pipe_set_workers(r->p, run_.id[s], between(&r->d, 0, w->st[s].most));
            if (rc != DLP_OK) wrong("set_workers: %s", dlp_code_name(rc));
        }
}

static void do_something(run *r) {
    cfg *c = r->c;
    const wiring *w = &c->w[c->life];
    if (r->kills < w->kills_outside && one_in(&r->d, 3)) r->kills++, kill_one(r);
    if (c->looks && one_in(&r->d, 6)) look_round(r);
    if (c->tunes && one_in(&r->d, 4)) set_workers(r);
    if (r->taken > 0 && r->seeks < c->seeks && one_in(&r->d, 5)) r->seeks++, do_seek(r);
    if (r->taken > 0 && r->leaves < c->leaves && one_in(&r->d, 5)) r->leaves++, do_leave(r);
    while (r->n_held > 0 && (r->n_held == w->held || !c->holds || one_in(&r->d, 3))) {
        dlp_batch *none;
        if (r->n_held == w->held && one_in(&r->d, 4) &&
            dlp_pipe_next_timeout(r->p, &none, 20000) != DLP_ERR_HELD && c->kind != K_STREAM &&
            dlp_pipe_error(r->p)->code == 0)
            wrong("next with max_held held");
        release_one(r);
    }
}

/* ---- a life ---- */

static int opened(run *r, const dlp_state *resume) {
    cfg *c = r->c;
    int rc;
    char text[700];
    memset(run_.id, 0xff, sizeof run_.id);
    run_.pipe = NULL;
    rc = c->kind == K_CHUNKS && c->split_by_hand ? open_split(c, resume)
         : c->kind == K_CHUNKS                   ? open_chunks(c, resume)
         : c->w[c->life].topology == T_HAND      ? open_by_hand(c, resume)
                                                 : open_loader(c, resume);
    r->p = run_.pipe;
    if (rc == DLP_OK) return 0;
    if (r->p)
        dlp_error_format(dlp_pipe_error(r->p), text, sizeof text);
    else
        snprintf(text, sizeof text, "(closed)");
    return wrong("start: %s %s %s: %s", dlp_code_name(rc), open_err_.field, open_err_.message,
                 text);
}

static int next_once(run *r, dlp_batch **b) {
    uint64_t before = __atomic_load_n(&words_->progress, __ATOMIC_SEQ_CST);
    for (int waits = 0, long_ones = 0;; waits++) {
        int ms = r->c->polls && waits < 50 ? between(&r->d, 0, 2) : 20000;
        int rc = dlp_pipe_next_timeout(r->p, b, ms);
        __atomic_add_fetch(&words_->progress, rc != DLP_TIMEOUT, __ATOMIC_SEQ_CST);
        if (rc != DLP_TIMEOUT) return rc;
        if (ms == 20000 && ++long_ones < 10 && /* they die, and are replaced bit by bit */
            before != __atomic_load_n(&words_->progress, __ATOMIC_SEQ_CST)) {
            before = __atomic_load_n(&words_->progress, __ATOMIC_SEQ_CST);
            continue;
        }
        if (ms == 20000) {
            static char text[3000];
            dlp_pipe_explain(r->p, text, sizeof text);
            wrong("hangs at epoch %d batch %d: %s", (int)r->at.epoch, (int)r->at.k, text);
            return DLP_TIMEOUT;
        }
    }
}

static void took(run *r, dlp_batch *b) {
    r->taken++;
    r->last = (b->flags & DLP_BATCH_LAST) != 0;
    r->last_epoch = b->epoch;
    r->last_k = b->in_epoch;
    if (place_take(r, b)) return;
    r->unseen = r->at.epoch != b->epoch;
    if (r->taken % 2 == 0 || r->c->stop_at == r->taken) keep_state(r, b);
    r->held[r->n_held].batch = b;
    r->held[r->n_held++].sum = digest_batch(b);
}

static void epoch_ended(run *r) {
    r->epoch_end_due = r->unseen = 0;
    place_settle(r);
}

/* Take batches until this life is over. Returns 1 if another is to follow. */
static int live(run *r) {
    cfg *c = r->c;
    while (said_ == 0) {
        dlp_batch *b;
        int rc;
        do_something(r);
        if (c->life == 0 && c->closes_at && r->taken == c->closes_at) return 0;
        if (c->life == 0 && c->stop_at && r->taken >= c->stop_at && r->n_states > 0) return 1;
        if (c->stops_at && r->taken == c->stops_at) dlp_pipe_stop(r->p);
        if (c->forever && r->at.epoch >= (uint64_t)c->epochs) return 0;
        rc = next_once(r, &b);
        if (rc >= 0 && rc != DLP_STOPPED && r->none == NONE_MUST)
            return wrong("no error behind epoch %d, all of which was left out", (int)r->last_epoch),
                   0;
        if (rc >= 0) r->none = NONE_NO;
        if (rc == DLP_OK)
            took(r, b);
        else if (rc == DLP_EPOCH_END && r->epoch_end_due)
            epoch_ended(r);
        else if (rc == DLP_STOPPED && c->stops_at && r->taken >= c->stops_at)
            return 0;
        else if (rc < 0)
            return error_expected(r, rc), 0;
        else if (rc == DLP_END && !r->epoch_end_due && r->at.epoch >= (uint64_t)c->epochs)
            return -1;
        else
            return wrong("next returned %s at epoch %d batch %d", dlp_code_name(rc),
                         (int)r->at.epoch, (int)r->at.k),
                   0;
    }
    return 0;
}

/* Is this what became of that position's items at some turn? */
static int skip_is(const run *r, const dlp_skip *k) {
    fate f;
    if (k->epoch >= (uint64_t)r->c->epochs || k->position >= MOST_ROWS) return 0;
    fate_of(&model_, k->epoch, k->position, 0, &f);
    for (int i = 0; i < f.turns; i++) {
        int last = i + 1 == f.turns;
        uint64_t next = !last ? f.was[i + 1] : f.left ? UINT64_MAX : f.index;
        if (k->index == f.was[i] && k->new_index == next && k->code == f.why[i]) return 1;
    }
    return 0;
}

/* The same by dlp_chunks_run. */
static int on_step(void *user, dlp_batch *b) {
    run *r = user;
    r->taken++;
    r->last_epoch = b->epoch;
    __atomic_add_fetch(&words_->progress, 1, __ATOMIC_SEQ_CST);
    return place_take(r, b);
}
static int on_epoch(void *user, uint64_t epoch) {
    const run *r = user;
    if (r->c->kind != K_STREAM && epoch != r->last_epoch)
        wrong("on_epoch of %d behind %d", (int)epoch, (int)r->last_epoch);
    return 0;
}
static int live_driven(run *r) {
    dlp_run_result result;
    dlp_run_desc d = {on_step, on_epoch, r, 0, &result};
    int rc;
    r->c->epoch_end = 0; /* it is on_epoch that is told */
    r->epoch_end_due = 0;
    place_settle(r);
    rc = dlp_chunks_run(r->p, &d);
    if (said_) return 0;
    if (rc < 0) return error_expected(r, rc), 0;
    if (r->none == NONE_MUST) wrong("no error behind an epoch, all of which was left out");
    if (rc != DLP_END || r->at.epoch < (uint64_t)r->c->epochs || result.steps != (uint64_t)r->taken)
        wrong("dlp_chunks_run returned %s at epoch %d batch %d", dlp_code_name(rc),
              (int)r->at.epoch, (int)r->at.k);
    return -1;
}

/* How many rows were replaced or left out, where nothing was done twice. */
static void check_skips(run *r) {
    const cfg *c = r->c;
    uint64_t total = 0, expected;
    dlp_skip ring[64];
    int n;
    if (c->kind == K_CHUNKS || r->moved || c->kills || c->poison || c->late || c->crash ||
        r->kills || c->stop_at || (c->kind == K_STREAM && c->last == DLP_LAST_DROP))
        return;
    failures_all(c, &expected);
    if (dlp_pipe_skips(r->p, NULL, 0, &total) < 0 || total != expected)
        wrong("%d skips, should be %d", (int)total, (int)expected);
    n = dlp_pipe_skips(r->p, ring, 64, NULL);
    for (int i = 0; i < n; i++)
        if (!skip_is(r, &ring[i]))
            wrong("a skip at epoch %d position %d of item %d to %d with code %d",
                  (int)ring[i].epoch, (int)ring[i].position, (int)ring[i].index,
                  (int)ring[i].new_index, ring[i].code);
}

static void closed(run *r) {
    int before = one_in(&r->d, 2), rc;
    while (before && r->n_held > 0) release_one(r);
    rc = dlp_pipe_close(r->p);
    if (rc != DLP_OK) wrong("close: %s", dlp_code_name(rc));
    while (r->n_held > 0) release_one(r);
    if (device_.live != 0) wrong("%d device buffers are left", device_.live);
    dlp_mix_close(run_.mix);
    dlp_buckets_close(run_.buckets);
    run_.mix = NULL;
    run_.buckets = NULL;
    __atomic_add_fetch(&words_->progress, 1, __ATOMIC_SEQ_CST);
}

/* ---- subscribers in processes of their own ---- */

static int share_open(dlp_subscriber **c, const char *name) {
    dlp_subscriber_desc d = {.max_held = 2};
    dlp_error err;
    int rc = DLP_ERR_SYSTEM;
    for (int ms = 0; ms < 20000 && (rc == DLP_ERR_SYSTEM || rc == DLP_ERR_STATE); ms++) {
        rc = dlp_subscriber_open(c, name, &d, &err);
        if (rc != DLP_OK) poll(NULL, 0, 1);
    }
    return rc == DLP_OK ? 0 : wrong("subscriber_open: %s: %s", dlp_code_name(rc), err.message);
}

/* One of several that share batches: is it what it says? */
static void share_took(run *r, const dlp_batch *b) {
    static mbatch e;
    if (b->epoch >= (uint64_t)r->c->epochs || b->in_epoch >= model_.batches[b->epoch]) {
        wrong("a subscriber got epoch %d batch %d", (int)b->epoch, (int)b->in_epoch);
        return;
    }
    expect(&model_, b->epoch, b->in_epoch, &e);
    r->moved = 1;
    r->sequence = 0;
    batch_is(r, b, &e);
    __atomic_add_fetch(&words_->taken[b->epoch][b->in_epoch], 1, __ATOMIC_SEQ_CST);
}

_Noreturn static void share_life(run *r, const char *name) {
    dlp_subscriber *c = NULL;
    dlp_batch *b;
    int rc = DLP_OK;
    now_.epoch_end = 0; /* that is for the pipe's caller */
    if (share_open(&c, name) != 0) rc = DLP_ERR_STATE;
    while (rc == DLP_OK && said_ == 0 &&
           (rc = dlp_subscriber_next_timeout(c, &b, 20000)) == DLP_OK) {
        if (r->c->share == DLP_SHARE_ONE)
            share_took(r, b);
        else
            place_take(r, b);
        __atomic_add_fetch(&words_->progress, 1, __ATOMIC_SEQ_CST);
        dlp_subscriber_release(c, b);
    }
    if (rc != DLP_END) wrong("a subscriber's next returned %s", dlp_code_name(rc));
    if (r->c->share == DLP_SHARE_EACH && r->at.epoch < (uint64_t)r->c->epochs)
        wrong("a subscriber was at epoch %d batch %d at the end", (int)r->at.epoch, (int)r->at.k);
    dlp_subscriber_close(c);
    if (said_) violation("in a subscriber");
    fflush(stdout);
    _exit(0);
}

static void share_begin(run *r, pid_t *pid) {
    char name[64];
    snprintf(name, sizeof name, "differential.%d", (int)getpid());
    for (int i = 0; i < r->c->sharers; i++) {
        fflush(stdout);
        pid[i] = fork();
        if (pid[i] == 0) share_life(r, name);
    }
}

/* All is consumed: wait for them, before close tells them to stop. */
static void share_end(run *r, const pid_t *pid) {
    for (int i = 0; i < r->c->sharers; i++) waitpid(pid[i], NULL, 0);
    if (r->c->share != DLP_SHARE_ONE || said_ || words_->violated) return;
    for (uint64_t e = 0; e < (uint64_t)r->c->epochs; e++)
        for (uint64_t k = 0; k < model_.batches[e]; k++)
            if (words_->taken[e][k] != 1)
                wrong("epoch %d batch %d was given %d times", (int)e, (int)k, words_->taken[e][k]);
}

static int serve(run *r) {
    int rc = dlp_shm_serve(r->p, 20000);
    while (rc == DLP_TIMEOUT && words_->violated == 0) rc = dlp_shm_serve(r->p, 20000);
    return rc == DLP_END ? -1 : (wrong("serve returned %s", dlp_code_name(rc)), 0);
}

/* Run it. Returns 0 if all was as the model says. */
static int run_configuration(cfg *c) {
    static run r;
    static dlp_state state;
    static place at;
    pid_t pid[2];
    int more = 0;
    memset(&r, 0, sizeof r);
    r.d.state = dlp_hash(c->seed, 0x1e5, 2, 2);
    caller_ = getpid();
    for (c->life = 0; c->life < 2 && said_ == 0; c->life++) {
        r.c = c;
        now_ = *c;
        r.c = &now_;
        if (model_open(&model_, &now_, now_.life) != 0) return wrong("the model's mix");
        r.at = at;
        r.sequence = 0;
        r.moved = r.kills = 0;
        r.epoch_end_due = at.end_due;
        r.unseen = r.none = 0;
        r.inside = at.n_done > 0;
        r.taken = 0;
        share_begin(&r, pid);
        if (opened(&r, c->life ? &state : NULL) != 0) return 1;
        place_settle(&r);
        more = now_.serves ? serve(&r) : now_.driven ? live_driven(&r) : live(&r);
        share_end(&r, pid);
        if (more < 0 && said_ == 0) check_skips(&r);
        if (more > 0) {
            if (dlp_pipe_state(r.p, NULL, &state) != DLP_OK) wrong("state");
            at = told(&r);
            r.n_states = 0;
        }
        closed(&r);
        model_close(&model_);
        if (more <= 0) break;
    }
    if (words_->violated) wrong("%s", words_->violation);
    return said_ != 0;
}

#endif
