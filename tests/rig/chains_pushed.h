/* needs: parts */
/* Chains of branches of which some begin with a push. Producers are threads, children, and children
   that know the path alone; some are killed, and successors go on. A thread may take the batches,
   too: as an out, or as a subscriber. For tests/system/stages/branch_chains.c, in its middle. */
#ifndef CHAINS_PUSHED_H
#define CHAINS_PUSHED_H

enum { SOON_MS = 20000, MOST_PRODUCERS = 3, MOST_GOT = 4 * MOST_ROWS };
enum { THREAD, CHILD, BY_PATH, WAYS };
enum { CLOSES, IS_KILLED, IS_KILLED_IN_A_RECORD, FATES };
enum { NOBODY, AN_OUT, A_SUBSCRIBER, TAKERS };

typedef struct producer {
    const branch *b;
    const char *path; /* NULL: the push has none */
    uint32_t number, pauses;
    int way[2], fate; /* two lives: fate is the end of the first */
    uint64_t until[2];
    int bad;
} producer;

static struct {
    uint32_t n, capacity[MOST_BRANCHES];
    int full[MOST_BRANCHES], has_path[MOST_BRANCHES];
    uint32_t writers[MOST_BRANCHES];
    producer of[MOST_BRANCHES * MOST_PRODUCERS];
    char path[MOST_BRANCHES][60];
    int taker, copies, turns, ahead;
} pushed_;

/* ---- producers ---- */

/* Push record k. Every other record is written in its place. */
static int push_record(dlp_pusher *u, const branch *b, uint64_t k) {
    uint64_t x = record_of(b, dlp_pusher_number(u), k), t = record_t(x);
    const uint64_t length[2] = {0, t % 4};
    uint8_t bytes[3] = {0xee, 0xee, 0xee};
    const void *data[2] = {&x, bytes};
    void *to[2];
    int rc;
    if (now_.ragged && dlp_pusher_lengths(u, length) != DLP_OK) return DLP_ERR_ARG;
    memset(bytes, (int)(t & 255), t % 4);
    if (k % 2 == 0) return dlp_pusher_push(u, data, SOON_MS);
    if ((rc = dlp_pusher_begin(u, to, SOON_MS)) != DLP_OK) return rc;
    memcpy(to[0], &x, sizeof x);
    if (now_.ragged) memcpy(to[1], bytes, sizeof bytes);
    return dlp_pusher_commit(u);
}

static dlp_pusher *open_producer(const producer *a, int way) {
    dlp_pusher_desc d = {.push = way == BY_PATH ? NULL : a->b->push, .number = a->number};
    dlp_pusher *u = NULL;
    dlp_error e = {0};
    int rc = DLP_ERR_BUSY;
    if (way == BY_PATH)
        d.path = a->path, d.fields = a->b->fields, d.n_fields = 1u + (uint32_t)now_.ragged;
    for (int i = 0; i < 10000 && (rc = dlp_pusher_open(&u, &d, &e)) == DLP_ERR_BUSY; i++)
        usleep(1000);
    if (rc != DLP_OK && rc != DLP_STOPPED && rc != DLP_ERR_SYSTEM)
        printf("  producer %u: %s\n", a->number, e.message);
    return u;
}

/* One life, from record `from` on. Returns 0 if all is well. */
static int live(const producer *a, int l, uint64_t from) {
    dlp_pusher *u = open_producer(a, a->way[l]);
    void *data[2];
    int rc = DLP_OK;
    if (u == NULL) return 0; /* the pipe is over, or the end shows that records are missing */
    while (from < a->until[l] && (rc == DLP_OK || rc == DLP_FULL)) {
        if ((rc = push_record(u, a->b, from)) == DLP_FULL) usleep(100);
        from += rc == DLP_OK;
        if (a->pauses > 0 && from % a->pauses == 0) usleep(300);
    }
    if (l == 1 && rc == DLP_OK) rc = dlp_pusher_end(u, SOON_MS);
    if (l == 0 && a->way[0] != THREAD && a->fate != CLOSES) {
        if (a->fate == IS_KILLED_IN_A_RECORD && dlp_pusher_begin(u, data, DLP_NOWAIT) == DLP_OK)
            *(uint64_t *)data[0] = 7; /* nobody is to see it */
        raise(SIGKILL);
    }
    dlp_pusher_close(u);
    return rc != DLP_OK && rc != DLP_STOPPED;
}

static void *produce(void *arg) {
    producer *a = arg;
    uint64_t from = 0;
    for (int l = 0; l < 2; from = a->until[l++]) {
        int status = 0;
        pid_t pid = 0;
        if (a->way[l] == THREAD) {
            a->bad |= live(a, l, from);
            continue;
        }
        if ((pid = fork()) == 0) _exit(live(a, l, from));
        if (pid < 0 || waitpid(pid, &status, 0) != pid) a->bad = 1;
        a->bad |= WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
    return NULL;
}

/* ---- who takes the batches ---- */

typedef struct got { /* a row, as it came */
    uint64_t index, x[MOST_BRANCHES], e[MOST_BRANCHES];
    uint32_t t[MOST_BRANCHES]; /* its length, and its bytes */
    uint32_t valid;
    uint8_t token[TOKENS]; /* of a pack, whose t[0] is the length */
} got;

static got got_[MOST_GOT], packed_[MOST_GOT];
static uint32_t n_got_;
static uint64_t had_, heard_; /* digests: of the consumer's batches, and of another taker's */

static got row_got(const dlp_batch *b, uint32_t r) {
    const uint32_t each = 1u + (uint32_t)now_.ragged + (uint32_t)now_.extra;
    got to = {.index = b->index[r], .valid = b->valid[r]};
    if (now_.packs) {
        to.index = 0;
        to.t[0] = b->valid[r] ? (uint32_t)b->fields[0].lengths[r] : 0;
        memcpy(to.token, (const uint8_t *)b->fields[0].data + (size_t)r * TOKENS, to.t[0]);
        return to;
    }
    for (uint32_t k = 0; b->valid[r] && k < (now_.zip ? now_.n : 1); k++) {
        const dlp_tensor *f = &b->fields[each * k];
        to.x[k] = ((const uint64_t *)f->data)[r];
        if (now_.extra) to.e[k] = ((const uint64_t *)f[1 + now_.ragged].data)[r];
        if (!now_.ragged) continue;
        memcpy(&to.t[k], (const uint8_t *)f[1].data + 3 * (size_t)r, 3);
        to.t[k] = to.t[k] << 8 | (uint32_t)f[1].lengths[r];
    }
    return to;
}

static got row_wanted(const item *it) {
    got to = {.index = it->input, .valid = 1};
    for (uint32_t k = 0; now_.zip && k < now_.n; k++) to.valid &= !it[k].place;
    for (uint32_t k = 0; to.valid && k < (now_.zip ? now_.n : 1); k++) {
        uint8_t bytes[3] = {0};
        to.x[k] = it[k].x;
        if (now_.extra) to.e[k] = it[k].e;
        if (!now_.ragged) continue;
        memset(bytes, (int)(it[k].t & 255), it[k].t % 4);
        memcpy(&to.t[k], bytes, 3);
        to.t[k] = to.t[k] << 8 | (uint32_t)(it[k].t % 4);
    }
    return to;
}

static uint64_t digest_of(uint64_t h, const dlp_batch *b) {
    h = dlp_hash(h, b->sequence, b->count, b->valid_count);
    for (uint32_t r = 0; r < b->count; r++) {
        const got row = row_got(b, r);
        h = dlp_hash(h, row.index, row.x[0], row.t[0]);
    }
    return h;
}

static void *takes_too(void *arg) {
    dlp_pipe *p = arg;
    dlp_subscriber *c = NULL;
    dlp_out *out = NULL;
    dlp_batch *b;
    char name[40];
    int rc;
    snprintf(name, sizeof name, "branch_chains.%d", (int)getpid());
    heard_ = 0;
    rc = pushed_.taker == AN_OUT ? dlp_out_find(p, "log", &out)
                                 : dlp_subscriber_open(&c, name, NULL, NULL);
    CHECK(rc == DLP_OK);
    while (rc == DLP_OK) {
        rc = out != NULL ? dlp_out_next(out, &b, SOON_MS)
                         : dlp_subscriber_next_timeout(c, &b, SOON_MS);
        if (rc != DLP_OK) break;
        heard_ = digest_of(heard_, b);
        rc = out != NULL ? dlp_out_release(out, b) : dlp_subscriber_release(c, b);
    }
    dlp_out_close(out);
    dlp_subscriber_close(c);
    return NULL;
}

/* Take all batches. Returns what ended them. */
static int take_batches(dlp_pipe *p) {
    dlp_batch *b;
    uint32_t k = 0;
    int rc;
    n_got_ = 0;
    had_ = 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, SOON_MS)) == DLP_OK) {
        CHECK(b->in_epoch == k && b->epoch == 0 && b->position == k * now_.batch);
        CHECK(n_got_ == k * now_.batch && b->count > 0 && b->count <= now_.batch);
        CHECK(b->count == now_.batch || now_.last <= DLP_LAST_DEFAULT);
        for (uint32_t r = 0; r < b->count && n_got_ < MOST_GOT; r++) got_[n_got_++] = row_got(b, r);
        had_ = digest_of(had_, b);
        k++;
        dlp_pipe_release(p, b);
    }
    return rc;
}

/* ---- which record came when ---- */

/* True if the records of each producer came in its order. Records that no row has noted are not
   known, but for those of a producer that is alone. */
static int learn_branch(const branch *b) {
    uint64_t due[MOST_PRODUCERS + 1] = {0}, *to = arrived_[b->id];
    int gap = 0, ok = 1;
    for (uint64_t k = 0; k < b->n; k++) {
        const uint64_t noted = shared_->arrived[b->id][k], who = noted >> 32 & 0xffff;
        to[k] = pushed_.writers[b->id] == 1 ? record_of(b, 1, k) : noted;
        ok &= noted == 0 || noted == to[k];
        gap |= noted == 0;
        if (noted == 0 || who == 0 || who > MOST_PRODUCERS) continue;
        ok &= (noted & UINT32_MAX) >= due[who] && (gap || (noted & UINT32_MAX) == due[who]);
        due[who] = (noted & UINT32_MAX) + 1;
    }
    return ok;
}

/* ---- a pack ---- */

/* Cut field t of the items into rows: TOKENS at a time, of so many segments at most, with some
   repeated. Returns how many rows. */
static uint32_t cut(const rows *x) {
    uint32_t n = 0, i = 0, from = 0;
    while (i < x->n) {
        got row = {.valid = 1};
        uint32_t segments = 0, k = from, all = 0;
        for (uint32_t at = i; at < x->n && all < TOKENS && segments < SEGMENTS; at++, k = 0) {
            const uint64_t t = x->at[at][0].t;
            segments += t % 4 > 0;
            for (; k < t % 4 && all < TOKENS; k++) row.token[all++] = (uint8_t)t;
            if (k < t % 4) break;
        }
        row.t[0] = all;
        const int full = all == TOKENS || segments == SEGMENTS;
        if (!full && all <= (n > 0 ? now_.overlap : 0)) return n; /* nothing new */
        packed_[n++] = row;
        if (!full) return n;
        for (uint32_t left = all - (all > now_.overlap ? now_.overlap : all - 1); left > 0;) {
            const uint32_t over = from == x->at[i][0].t % 4;
            i += over;
            from = over ? 0 : from + 1;
            left -= !over;
        }
        for (; i < x->n && from == x->at[i][0].t % 4; from = 0) i++;
    }
    return n;
}

/* ---- a run ---- */

static const char *compare(int rc) {
    rows *x = &rows_[0][0];
    const uint32_t n = now_.window > 0 ? now_.window : 1;
    uint32_t whole, valid = 0;
    static uint8_t taken[MOST_ROWS];
    if (rc != DLP_END && rc != DLP_ERR_CALLBACK) return "no end";
    for (uint32_t k = 0; k < now_.n; k++)
        if (now_.at[k].pushed && !learn_branch(&now_.at[k])) return "the order of records";
    if (shared_->strays > 0) return "a record with two numbers";
    write_stream(0, 0);
    if (x->n == MOST_ROWS) return NULL;
    if (lost_ && !out_) return "a record is lost";
    if (now_.packs) x->n = cut(x);
    whole = now_.last <= DLP_LAST_DEFAULT ? x->n
            : now_.last == DLP_LAST_DROP  ? x->n / now_.batch * now_.batch
                                          : (x->n + now_.batch - 1) / now_.batch * now_.batch;
    if (n_got_ != whole) return n_got_ < whole ? "fewer rows" : "more rows";
    memset(taken, 0, sizeof taken);
    for (uint32_t r = 0; r < n_got_; r++) {
        int found = r >= x->n && !got_[r].valid;
        for (uint32_t i = r / n * n; !found && i < r / n * n + n && i < x->n; i++) {
            const got want = now_.packs ? packed_[i] : row_wanted(x->at[i]);
            if (taken[i] || memcmp(&want, &got_[r], sizeof want) != 0) continue;
            taken[i] = 1;
            found = 1;
        }
        if (!found) return "a row";
        valid += got_[r].valid;
    }
    /* an error if there are rows, and all of them were left out */
    if ((rc == DLP_END) != (valid > 0 || n_got_ == 0)) return "no end";
    if (pushed_.taker != NOBODY && had_ != heard_) return "what another taker has";
    return NULL;
}

static int open_pushes(void) {
    dlp_error e;
    int ok = 1;
    for (uint32_t k = 0; k < now_.n; k++) {
        branch *b = &now_.at[k];
        const dlp_push_desc d = {.fields = b->fields,
                                 .n_fields = 1u + (uint32_t)now_.ragged,
                                 .writers = pushed_.writers[k],
                                 .capacity = pushed_.capacity[k],
                                 .full = pushed_.full[k],
                                 .path = pushed_.has_path[k] ? pushed_.path[k] : NULL};
        if (b->pushed && dlp_push_open(&b->push, &d, &e) != DLP_OK) {
            printf("push: %s: %s\n", e.field, e.message);
            ok = 0;
        }
    }
    return ok;
}

static dlp_pipe *open_pushed(void) {
    static const char *const batch[] = {"batch", NULL};
    char name[40];
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1,
                              .max_kills = 100,
                              .name = pushed_.taker == A_SUBSCRIBER ? name : NULL,
                              .share = pushed_.taker == A_SUBSCRIBER ? DLP_SHARE_EACH : 0,
                              .wait_subscribers = pushed_.taker == A_SUBSCRIBER};
    const dlp_pipe_desc d = {.seed = now_.seed, .shm = &shm};
    dlp_node nodes[DLP_MAX_NODES];
    const char *from[MOST_BRANCHES + 1];
    uint32_t n = table_of(nodes, &now_.life[0], from);
    dlp_pipe *p = NULL;
    dlp_error e;
    snprintf(name, sizeof name, "branch_chains.%d", (int)getpid());
    nodes[0].queue.deal = pushed_.turns ? DLP_DEAL_TURNS : DLP_DEAL_RUNS;
    nodes[n - 1].batch.copy_workers = pushed_.copies;
    nodes[n - 1].queue.capacity = (uint32_t)pushed_.ahead;
    if (pushed_.taker == AN_OUT) {
        nodes[n++] = (dlp_node){.name = "train", .verb = DLP_OUT};
        nodes[n++] = (dlp_node){.name = "log", .from = batch, .verb = DLP_OUT};
    }
    if (dlp_pipe_open(&p, nodes, n, &d, &e) == DLP_OK) return p;
    printf("open: %s, %s: %s\n", e.stage, e.field, e.message);
    return NULL;
}

/* Returns NULL, or what is wrong. */
static const char *run_pushes(void) {
    pthread_t t[MOST_BRANCHES * MOST_PRODUCERS], taker;
    const char *what = NULL;
    dlp_pipe *p;
    int rc = DLP_ERR_ARG;
    memset(shared_, 0, sizeof *shared_);
    p = open_pushes() ? open_pushed() : NULL;
    if (p != NULL) {
        if (pushed_.taker) CHECK(pthread_create(&taker, NULL, takes_too, p) == 0);
        for (uint32_t i = 0; i < pushed_.n; i++)
            CHECK(pthread_create(&t[i], NULL, produce, &pushed_.of[i]) == 0);
        rc = take_batches(p);
        if (rc != DLP_END) printf("%s: %s\n", dlp_code_name(rc), dlp_pipe_error(p)->message);
        if (rc == DLP_TIMEOUT) dlp_pipe_stop(p);
        if (pushed_.taker) CHECK(pthread_join(taker, NULL) == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        for (uint32_t i = 0; i < pushed_.n; i++)
            CHECK(pthread_join(t[i], NULL) == 0 && !pushed_.of[i].bad);
        what = compare(rc);
    }
    for (uint32_t k = 0; k < now_.n; k++)
        if (now_.at[k].push != NULL) CHECK(dlp_push_close(now_.at[k].push) == DLP_OK);
    deaths_ += shared_->deaths;
    return p == NULL ? "it is refused" : what;
}

/* ---- drawn ---- */

static void draw_producers(uint64_t *s, branch *b) {
    const uint32_t most = b->n_verbs > 0 ? MOST_PRODUCERS : 1, n = 1 + pick(s, most);
    uint64_t left = b->n;
    pushed_.writers[b->id] = n;
    pushed_.capacity[b->id] = 1u << pick(s, 7);
    pushed_.full[b->id] = pick(s, 3) == 0 ? DLP_PUSH_REFUSE : DLP_PUSH_WAIT;
    pushed_.has_path[b->id] = pick(s, 2) != 0;
    snprintf(pushed_.path[b->id], sizeof pushed_.path[0], "/tmp/branch_chains.%d.%u", (int)getpid(),
             b->id);
    for (uint32_t i = 1; i <= n; i++) {
        producer *a = &pushed_.of[pushed_.n++];
        *a = (producer){.b = b, .number = i, .pauses = pick(s, 3) ? 0 : 1 + pick(s, 9)};
        a->path = pushed_.has_path[b->id] ? pushed_.path[b->id] : NULL;
        for (int l = 0; l < 2; l++)
            a->way[l] = forks_ && !pick(s, 3) ? (int)pick(s, a->path ? WAYS : BY_PATH) : THREAD;
        a->fate = (int)pick(s, FATES);
        a->until[1] = i == n ? left : left / (n + 1 - i);
        a->until[0] = pick(s, (uint32_t)a->until[1] + 1);
        left -= a->until[1];
    }
}

/* True if a row can say what becomes of items that fail: a push can't. */
static int names_workers(void) {
    int some = 0;
    for (uint32_t k = 0; k < now_.n; k++) some |= !now_.at[k].pushed || now_.at[k].n_verbs > 0;
    return some;
}

/* A pack stands where a window may, if there is room for a map in which fields end. */
static void draw_pack(uint64_t *s) {
    const branch *b = now_.n == 1 ? &now_.at[0] : &now_.after;
    if (now_.zip || !now_.ragged || pick(s, 2)) return;
    if (now_.n > 1)
        for (uint32_t k = 0; k < now_.n; k++)
            if (now_.at[k].states || now_.at[k].reads == LATER) return;
    if (rows_of(b, EXPANDS) + rows_of(b, LOADS) > 2 || table_rows() + 2 > DLP_MAX_NODES) return;
    now_.packs = 1;
    now_.window = 0;
    now_.overlap = pick(s, 3);
}

static void draw_pushes(uint64_t seed) {
    const int lasts[] = {DLP_LAST_PARTIAL, DLP_LAST_DROP, DLP_LAST_PAD};
    uint64_t s = mixed(seed, 2);
    draw_table(seed, 1);
    memset(&pushed_, 0, sizeof pushed_);
    now_.last = lasts[pick(&s, 3)];
    for (uint32_t k = 0; k < now_.n; k++)
        if (now_.at[k].pushed) draw_producers(&s, &now_.at[k]);
    draw_pack(&s);
    now_.drops &= names_workers();
    now_.life[0].world = 1;
    pushed_.taker = pick(&s, 3) ? NOBODY : (int)pick(&s, TAKERS);
    if (!forks_ && pushed_.taker == A_SUBSCRIBER) pushed_.taker = AN_OUT;
    if (pushed_.taker == AN_OUT && table_rows() + 2 > DLP_MAX_NODES) pushed_.taker = NOBODY;
    pushed_.copies = (int)pick(&s, 4) - 1;
    pushed_.turns = pick(&s, 4) == 0;
    pushed_.ahead = (int)pick(&s, 4);
    if (pushed_.taker != A_SUBSCRIBER) return; /* it gets what workers have made */
    if (now_.life[0].workers == DLP_NONE) now_.life[0].workers = 1;
    if (pushed_.copies < 0) pushed_.copies = 1;
}

static void print_pushes(uint64_t seed) {
    print_table(seed);
    printf("  workers %d in %s; taker %d, copies %d, turns %d, ahead %d\n", now_.life[0].workers,
           now_.life[0].processes ? "processes" : "threads", pushed_.taker, pushed_.copies,
           pushed_.turns, pushed_.ahead);
    for (uint32_t i = 0; i < pushed_.n; i++) {
        const producer *a = &pushed_.of[i];
        printf("  branch %u, producer %u: way %d to %u, fate %d; way %d to %u; capacity %u\n",
               a->b->id, a->number, a->way[0], (unsigned)a->until[0], a->fate, a->way[1],
               (unsigned)a->until[1], pushed_.capacity[a->b->id]);
    }
}

#endif
