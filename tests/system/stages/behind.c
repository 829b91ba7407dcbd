/* needs: parts pack pictures scratch guard cache */
/* Filters, expands, windows and packs behind a zip or mix, drawn at random. The rows of the join
   alone are read first, of each stream; what is behind it is done to them by a plain program. A
   table gives the same, whatever the workers, ranks and placement, and whoever dies; resumed behind
   any batch by other workers or other ranks, with the same states.
     behind [N [SEED]]     N tables, drawn from that seed on */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STREAMS = 4, MOST = 900, LONG = 6, BATCHES = 400, EPOCHS = 2, T = 8, SEGMENTS = 3 };
enum { A_FETCH, AN_EXPAND, A_FILTER };
enum { A_CUT = 1, A_FIT };
enum { A_LITTLE = 3000, A_LOT = 1 << 20 }; /* bytes of a cache */

static struct {
    int zip;
    int kind[2];
    uint32_t inputs[2];
    uint64_t weights[2];
    int shuffle[2];
    int filters, expands, window, packs;
    int maps; /* 1: directly behind the join; 2: before the window, or behind the last maker */
    uint32_t fitted; /* documents of a window that a pack by DLP_PACK_FIT lays out */
    uint32_t behind; /* rows of a window behind the pack; 0: there is none */
    uint64_t cached; /* bytes of a cache behind the join; 0: there is none */
    int ends;        /* fields end behind the join: 1: above the filter, 2: in the last map */
    uint32_t streams, rows; /* rows of a stream in a batch */
    int last, shared;
    int64_t steps;
    uint64_t seed;
} how;

static struct shared { uint32_t calls, kills; } * all;
static uint32_t kill_every, cells;
static uint64_t fails, drops; /* + 1: this input of the first branch; this joined row */
static pid_t caller;
static uint32_t all_moved; /* rows that windows have moved */

static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- items of the branches ---- */

static uint64_t id_of(uint64_t branch, uint64_t input, uint64_t item) {
    return branch * 1000000 + input * 10 + item + 1;
}
static uint64_t length_of(uint64_t id) { return dlp_hash(id, 3, 0, 0) % (LONG + 1); }
static uint64_t made_of(uint64_t branch, uint64_t input) {
    return dlp_hash(branch, input, 4, 0) % 4;
}
static int is_kept(uint64_t id) { return dlp_hash(id, 5, 0, 0) % 3 != 0; }

static void die_now_and_then(void) {
    const uint32_t call = __atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED);
    if (kill_every == 0 || call % kill_every != 0 || getpid() == caller) return;
    __atomic_add_fetch(&all->kills, 1, __ATOMIC_RELAXED);
    kill(getpid(), SIGKILL);
}

/* A packed document has tokens alone; another item has its number, too. */
static void put(dlp_item *it, uint64_t id) {
    const uint32_t f = it->n_fields - 1;
    if (f > 0) *(uint64_t *)it->data[0] = id;
    for (uint64_t k = 0; k < length_of(id); k++)
        ((uint32_t *)it->data[f])[k] = (uint32_t)(id * 8 + k);
    it->length[f] = length_of(id);
}

static int fetch_any(void *user, dlp_item *it) {
    const uint64_t branch = *(const uint64_t *)user;
    die_now_and_then();
    if (branch == 0 && fails == it->index + 1) return dlp_fail(it->call, 5, "torn");
    put(it, id_of(branch, it->index, 0));
    return 0;
}
static int expand_any(void *user, dlp_expand *x) {
    const uint64_t branch = *(const uint64_t *)user;
    die_now_and_then();
    if (branch == 0 && fails == x->item->index + 1) return dlp_fail(x->call, 5, "torn");
    for (uint64_t k = 0; k < made_of(branch, x->item->index); k++)
        put(dlp_expand_add(x), id_of(branch, x->item->index, k));
    return 0;
}
static uint64_t id_seen(const dlp_item *it) {
    if (it->n_fields > 1) return *(const uint64_t *)it->data[0];
    return it->length[0] > 0 ? *(const uint32_t *)it->data[0] / 8 : 0;
}
static int keep_input(void *user, const dlp_item *it) {
    (void)user;
    return id_seen(it) % 4 != 1;
}

/* ---- behind the join ---- */

static int keep_row(void *user, const dlp_item *it) {
    const uint64_t id = id_seen(it);
    (void)user;
    die_now_and_then();
    if (drops == id && id > 0) return dlp_fail(it->call, 6, "bad row");
    if (how.zip && how.ends != 1)
        CHECK(it->n_fields == 4 && *(const uint64_t *)it->data[2] > 1000000);
    return id == 0 || is_kept(id);
}
static int keep_tokens(void *user, const dlp_item *it) { return (void)user, it->length[0] > 0; }
static int touch(void *user, dlp_item *it) {
    (void)user;
    die_now_and_then();
    if (it->n_fields > 1) *(uint64_t *)it->data[0] += 500000;
    return 0;
}
/* All fields but the number end, and one is made of them. Before a pack the number ends, too. */
static int leave(void *user, dlp_item *it) {
    const uint32_t from = how.zip ? 3 : 1, to = it->n_fields - 1;
    (void)user;
    die_now_and_then();
    CHECK(to == from + 1 && it->length[to] == 0);
    for (uint64_t k = 0; k < it->length[from]; k++)
        ((uint32_t *)it->data[to])[k] = ((const uint32_t *)it->data[from])[k] + 1;
    it->length[to] = it->length[from];
    if (how.zip) *(uint64_t *)it->data[0] += 1000000000 * *(const uint64_t *)it->data[2];
    return 0;
}
static int twice(void *user, dlp_expand *x) {
    const uint32_t f = x->item->n_fields - 1;
    (void)user;
    for (uint64_t k = 0; k < id_seen(x->item) % 3; k++) {
        dlp_item *it = dlp_expand_add(x);
        for (uint32_t i = 0; i <= f; i++)
            memcpy(it->data[i], x->item->data[i], i % 2 != f % 2 ? 8 : LONG * 4);
        for (uint32_t i = 0; i <= f; i++) it->length[i] = x->item->length[i];
        if (f > 0) *(uint64_t *)it->data[0] += 10000000 * (k + 1);
    }
    return 0;
}

/* ---- tables ---- */

static const dlp_field fields_[2][2] = {
    {{.name = "id", .dtype = DLP_U64},
     {.name = "tokens", .dtype = DLP_U32, .ndim = 1, .shape = {LONG}, .ragged = 1}},
    {{.name = "other", .dtype = DLP_U64},
     {.name = "words", .dtype = DLP_U32, .ndim = 1, .shape = {LONG}, .ragged = 1}}};

static dlp_node leave_row(void) {
    static const dlp_field left = {
        .name = "left", .dtype = DLP_U32, .ndim = 1, .shape = {LONG}, .ragged = 1};
    dlp_node node = {.name = "leave", .verb = DLP_MAP, .map = {.item = leave}};
    node.map.fields = &left;
    node.map.n_fields = 1;
    node.map.ends = how.packs ? "id tokens other words" : how.zip ? "tokens other words" : "tokens";
    return node;
}

static uint32_t branch(dlp_node *to, uint64_t b, const dlp_workers_desc *w) {
    static const uint64_t number[2] = {0, 1};
    static const char *const names[2][3] = {{"as", "a", "good a"}, {"bs", "b", "good b"}};
    const dlp_field *fields = fields_[how.zip ? b : 0] + (how.packs && !how.zip);
    const uint32_t n_fields = how.packs && !how.zip ? 1 : 2;
    void *user = (void *)(uintptr_t)&number[b];
    to[0] = (dlp_node){.name = names[b][0],
                       .verb = DLP_LIST,
                       .list = {.n_items = how.inputs[b], .shuffle = how.shuffle[b]}};
    to[1] = (dlp_node){.name = names[b][1], .verb = DLP_FETCH, .workers = *w};
    to[1].fetch =
        (dlp_node_fetch){.fetch = fetch_any, .user = user, .fields = fields, .n_fields = n_fields};
    if (how.kind[b] == AN_EXPAND) {
        to[1].verb = DLP_EXPAND;
        to[1].expand = (dlp_node_expand){.expand = expand_any,
                                         .user = user,
                                         .max_out = 3,
                                         .fields = fields,
                                         .n_fields = n_fields};
    }
    if (how.kind[b] != A_FILTER) return 2;
    to[2] = (dlp_node){.name = names[b][2], .verb = DLP_FILTER, .filter = {.keep = keep_input}};
    return 3;
}

enum { ALL, JOIN_ALONE, NO_PACK }; /* rows of a table */

/* plain: ALL; JOIN_ALONE or NO_PACK: with one row of each stream in a batch. */
static uint32_t table(dlp_node *to, const dlp_workers_desc *w, int plain) {
    static const char *from[3];
    uint32_t n = branch(to, 0, w);
    from[0] = to[n - 1].name;
    n += branch(to + n, 1, w);
    from[1] = to[n - 1].name;
    to[n++] = (dlp_node){.name = "both", .verb = how.zip ? DLP_ZIP : DLP_MIX, .from = from};
    if (!how.zip) to[n - 1].mix.weights = how.weights;
    if (plain == ALL && how.cached > 0)
        to[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {how.cached}};
    if (plain != JOIN_ALONE && how.maps == 1)
        to[n++] = (dlp_node){.name = "touch", .verb = DLP_MAP, .map = {.item = touch}};
    if (plain != JOIN_ALONE && how.ends == 1) to[n++] = leave_row();
    if (plain != JOIN_ALONE && how.filters)
        to[n++] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_row}};
    if (plain != JOIN_ALONE && how.expands)
        to[n++] = (dlp_node){
            .name = "twice", .verb = DLP_EXPAND, .expand = {.expand = twice, .max_out = 2}};
    if (plain != JOIN_ALONE && how.ends == 2) to[n++] = leave_row();
    if (plain != JOIN_ALONE && how.maps == 2)
        to[n++] = (dlp_node){.name = "touch", .verb = DLP_MAP, .map = {.item = touch}};
    if (plain == NO_PACK)
        to[n++] = (dlp_node){.name = "some", .verb = DLP_FILTER, .filter = {.keep = keep_tokens}};
    if (plain != JOIN_ALONE && how.window)
        to[n++] = (dlp_node){
            .name = "window", .verb = DLP_WINDOW, .window = {.items = (uint32_t)how.window}};
    if (plain == ALL && how.packs)
        to[n++] = (dlp_node){.name = "pack",
                             .verb = DLP_PACK,
                             .pack = {.tokens = T,
                                      .overlap = how.packs == A_CUT,
                                      .max_segments = SEGMENTS,
                                      .rule = how.packs == A_FIT ? DLP_PACK_FIT : DLP_PACK_CUT,
                                      .window = how.packs == A_FIT ? how.fitted : 0}};
    if (plain == ALL && how.behind)
        to[n++] = (dlp_node){.name = "rows", .verb = DLP_WINDOW, .window = {.items = how.behind}};
    if (plain == ALL && cells > 0) {
        uint32_t last = n - 1;
        while (to[last].verb == DLP_WINDOW || to[last].verb == DLP_MAP ||
               to[last].verb == DLP_CACHE)
            last--;
        if (to[last].verb != DLP_ZIP && to[last].verb != DLP_MIX) to[last].queue.capacity = cells;
        to[1].queue.capacity = how.streams;
    }
    to[n++] = (dlp_node){.name = "batch",
                         .verb = DLP_BATCH,
                         .batch = {.batch_size = how.streams * (plain ? 1 : how.rows),
                                   .last = plain ? DLP_LAST_PAD : how.last}};
    return n;
}

/* ---- the plain program ---- */

typedef struct row {
    uint64_t id; /* 0: a hole */
    uint32_t n, token[T];
    uint64_t other; /* of a zip: the fields of the second branch */
    uint32_t m, word[T];
} row;

static row plain_[EPOCHS][STREAMS][MOST], mixed_[EPOCHS][STREAMS][MOST];
static row made_[EPOCHS][STREAMS][2 * MOST];
static uint32_t n_plain_[EPOCHS][STREAMS], n_mixed_[EPOCHS][STREAMS], n_made_[EPOCHS][STREAMS];

static row row_of(const dlp_batch *b, uint32_t r) {
    const uint32_t f = b->n_fields > 1 && b->fields[1].lengths != NULL;
    const uint64_t each = (uint64_t)b->fields[f].shape[1];
    row x = {.id = 0};
    if (!b->valid[r]) return x;
    x.n = (uint32_t)b->fields[f].lengths[r];
    memcpy(x.token, (const uint32_t *)b->fields[f].data + r * each, x.n * 4);
    x.id = f ? ((const uint64_t *)b->fields[0].data)[r] : 1;
    if (b->n_fields < 4) return x;
    x.other = ((const uint64_t *)b->fields[2].data)[r];
    x.m = (uint32_t)b->fields[3].lengths[r];
    memcpy(x.word, (const uint32_t *)b->fields[3].data + r * LONG, x.m * 4);
    return x;
}

/* Read the rows of each stream: joined ones, or the documents of a window before a pack. */
static int read_plain(int plain, row (*to)[STREAMS][MOST], uint32_t (*n)[STREAMS]) {
    const dlp_workers_desc w = {.num_workers = DLP_NONE};
    const dlp_pipe_desc desc = {.seed = how.seed,
                                .epochs = EPOCHS,
                                .streams = how.streams,
                                .steps_per_epoch = how.steps ? MOST - 1 : 0};
    dlp_node nodes[16];
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_pipe_open(&p, nodes, table(nodes, &w, plain), &desc, &err);
    memset(n, 0, EPOCHS * sizeof *n);
    if (rc != DLP_OK) printf("  %s: %s\n", err.stage, err.message);
    while (rc == DLP_OK && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++) {
            uint32_t *many = &n[b->epoch][r];
            if (b->valid[r] && *many < MOST) to[b->epoch][r][(*many)++] = row_of(b, r);
        }
        dlp_pipe_release(p, b);
    }
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc == DLP_END;
}

/* Cut what rows have, T tokens at a time, with one repeated. */
static uint32_t cut(const row *in, uint32_t n, row *out) {
    uint32_t rows = 0, i = 0, from = 0;
    int fresh = 1;
    while (i < n) {
        uint32_t segments = 0, at, k = from;
        row x = {.id = 1};
        int full;
        for (at = i; at < n && x.n < T && segments < SEGMENTS; at++, k = 0) {
            if (in[at].n == 0) continue;
            for (segments++; k < in[at].n && x.n < T; k++) x.token[x.n++] = in[at].token[k];
            if (k < in[at].n) break;
        }
        full = x.n == T || segments == SEGMENTS;
        if (!full && x.n <= (fresh ? 0u : 1u)) return rows;
        out[rows++] = x;
        fresh = 0;
        if (!full) return rows;
        for (uint32_t left = x.n - 1; left > 0;) { /* tokens that are given for good */
            if (from == in[i].n)
                i++, from = 0;
            else
                from++, left--;
        }
        while (from == in[i].n) i++, from = 0;
    }
    return rows;
}

/* Pack what rows have by best fit, in windows: the longest piece first, each into the fullest row
   that has room. */
static uint32_t fit(const row *in, uint32_t n, row *out) {
    uint32_t rows = 0, i = 0;
    while (i < n) {
        uint32_t piece[MOST], pieces = 0, segments[MOST] = {0};
        const uint32_t first = rows;
        for (; i < n && pieces < how.fitted; i++)
            if (in[i].n > 0) piece[pieces++] = i;
        for (uint32_t length = LONG; length > 0; length--)
            for (uint32_t k = 0; k < pieces; k++) {
                uint32_t best = rows;
                if (in[piece[k]].n != length) continue;
                for (uint32_t r = first; r < rows; r++)
                    if (out[r].n + length <= T && segments[r - first] < SEGMENTS &&
                        (best == rows || out[r].n > out[best].n))
                        best = r;
                if (best == rows) out[rows++] = (row){.id = 1};
                memcpy(out[best].token + out[best].n, in[piece[k]].token, length * 4);
                out[best].n += length;
                segments[best - first]++;
            }
    }
    return rows;
}

/* The number by which the filter knows a row. */
static uint64_t id_at_filter(const row *x) {
    const int alone = how.packs && !how.zip; /* tokens alone */
    uint64_t id = alone ? (x->n > 0 ? x->token[0] / 8 : 0) : x->id;
    if (how.maps == 1 && !alone) id += 500000;
    if (how.ends == 1 && how.zip) id += 1000000000 * x->other;
    return id;
}

/* What a row becomes in the map in which fields end. */
static row left_of(row x) {
    if (how.ends == 0) return x;
    if (how.zip) {
        x.id += 1000000000 * x.other * (how.ends == 2);
        x.n = x.m;
        memcpy(x.token, x.word, sizeof x.token);
        x.other = x.m = 0;
        memset(x.word, 0, sizeof x.word);
    }
    for (uint32_t k = 0; k < x.n; k++) x.token[k]++;
    return x;
}

static void do_plain(void) {
    static row kept[2 * MOST];
    for (int e = 0; e < EPOCHS; e++)
        for (uint32_t s = 0; s < how.streams; s++) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < n_plain_[e][s]; i++) {
                row x = plain_[e][s][i];
                const uint64_t id = id_at_filter(&x);
                if (!how.packs) x.id = how.maps == 2 ? id + 500000 : id;
                if (how.filters && id > 0 && (!is_kept(id) || drops == id)) continue;
                if (!how.expands) kept[n++] = left_of(x);
                for (uint64_t k = 0; how.expands && k < id % 3 && n < 2 * MOST; k++) {
                    kept[n] = left_of(x);
                    if (!how.packs) kept[n].id += 10000000 * (k + 1);
                    n++;
                }
            }
            if (how.packs && how.window)
                memcpy(kept, mixed_[e][s], (n = n_mixed_[e][s]) * sizeof *kept);
            if (how.packs)
                n = (how.packs == A_FIT ? fit : cut)(kept, n, made_[e][s]);
            else
                memcpy(made_[e][s], kept, n * sizeof *kept);
            n_made_[e][s] = n;
        }
}

static int by_id(const void *a, const void *b) { return memcmp(a, b, sizeof(row)); }

/* Rows of a window in which rows of a stream are shuffled; 1: there is none. */
static uint32_t mixed(void) {
    if (how.packs) return how.behind ? how.behind : 1;
    return how.window ? (uint32_t)how.window : 1;
}

/* Row k of stream s, with windows: one that no other row of the window is. */
static int is_row(const row *x, uint64_t e, uint32_t s, uint64_t k) {
    const uint64_t n = mixed(), first = k / n * n;
    uint64_t end = first + n;
    if (k >= n_made_[e][s]) return x->id == 0;
    if (end > n_made_[e][s]) end = n_made_[e][s];
    for (uint64_t i = first; i < end; i++)
        if (by_id(x, &made_[e][s][i]) == 0) return 1;
    return 0;
}

/* Batches of an epoch. */
static uint32_t batches(uint64_t e) {
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t s = 0; s < how.streams; s++) {
        const uint32_t n = n_made_[e][s];
        if (n / how.rows < least) least = n / how.rows;
        if ((n + how.rows - 1) / how.rows > most) most = (n + how.rows - 1) / how.rows;
    }
    if (how.steps) return (uint32_t)how.steps;
    return how.last == DLP_LAST_DROP ? least : most;
}

/* Rows of each window come once: those that the batches have, of those that the last window may
   have. */
static int once(row (*rows)[STREAMS * 8], uint32_t n, uint64_t e, uint32_t s) {
    static row came[MOST], made[MOST];
    uint32_t many = 0, moved = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < how.rows && many < MOST; r++)
            if (many < n_made_[e][s]) came[many++] = rows[i][s * how.rows + r];
    for (uint32_t first = 0; first < many; first += mixed()) {
        uint32_t end = first + mixed() < n_made_[e][s] ? first + mixed() : n_made_[e][s];
        if (how.steps && end > how.steps * how.rows) end = (uint32_t)how.steps * how.rows;
        if (end > many) break;
        memcpy(made + first, made_[e][s] + first, (end - first) * sizeof *made);
        for (uint32_t k = first; k < end; k++) moved += by_id(&came[k], &made[k]) != 0;
        qsort(came + first, end - first, sizeof *came, by_id);
        qsort(made + first, end - first, sizeof *made, by_id);
        if (memcmp(came + first, made + first, (end - first) * sizeof *made) != 0) return 0;
    }
    all_moved += moved;
    return 1;
}

static int each_once(row (*rows)[STREAMS * 8]) {
    for (uint64_t e = 0; e < EPOCHS; e++)
        for (uint32_t s = 0; s < how.streams; s++)
            if (!once(rows + (e > 0 ? batches(0) : 0), batches(e), e, s)) return 0;
    return 1;
}

/* ---- runs ---- */

typedef struct told {
    uint32_t n;
    int rc, wrong;
    row rows[BATCHES][STREAMS * 8];
    dlp_state state[BATCHES];
    dlp_error err;
    uint64_t left_out, hits;
} told;

static told first, got;

/* Run rank `rank` of `world`, at most `most` batches. */
static void run(const dlp_workers_desc *w, uint32_t rank, uint32_t world, const dlp_state *resume,
                uint32_t most, told *t) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 100};
    const dlp_pipe_desc desc = {.seed = how.seed,
                                .epochs = EPOCHS,
                                .streams = how.streams,
                                .steps_per_epoch = how.steps,
                                .rank = rank,
                                .world_size = world,
                                .uneven = world > 1 && how.steps == 0,
                                .shared_streams = how.shared,
                                .resume = resume,
                                .shm = &shm};
    const uint32_t all_rows = how.streams * how.rows, own = all_rows / world;
    dlp_node nodes[16];
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_stats stats;
    const uint32_t n = table(nodes, w, ALL);
    t->n = 0;
    t->wrong = 0;
    t->rc = dlp_pipe_open(&p, nodes, n, &desc, &t->err);
    if (t->rc != DLP_OK) return;
    while (t->n < most && (t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK &&
           t->n < BATCHES) {
        for (uint32_t r = 0; r < b->count; r++) {
            const uint32_t g = rank * own + r;
            const row x = row_of(b, r);
            t->rows[t->n][r] = x;
            if (!is_row(&x, b->epoch, g / how.rows, b->in_epoch * how.rows + g % how.rows))
                t->wrong++;
        }
        CHECK(dlp_pipe_state(p, b, &t->state[t->n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
    t->left_out = stats.stages[2].left_out;
    t->hits = stats.cache_hits;
    CHECK(stats.cache_bytes <= stats.cache_capacity);
    CHECK(how.cached > 0 || t->hits + stats.cache_misses == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void print(uint64_t seed, const char *what, const told *t) {
    printf("  seed %d, %s: %u batches, %d wrong (%d): %s %s: %s\n    zip %d, kinds %d %d, inputs "
           "%u %u, shuffle %d %d, filters %d expands %d window %d packs %d maps %d "
           "ends %d, behind %u, cached %u, C %u, m %u, "
           "last %d, steps %d; %u and %u batches\n",
           (int)seed, what, t->n, t->wrong, t->rc, t->err.stage, t->err.field, t->err.message,
           how.zip, how.kind[0], how.kind[1], how.inputs[0], how.inputs[1], how.shuffle[0],
           how.shuffle[1], how.filters, how.expands, how.window, how.packs, how.maps, how.ends,
           how.behind, (unsigned)how.cached, how.streams, how.rows, how.last, (int)how.steps,
           batches(0), batches(1));
}

/* The batches of a are those of `first` from `from` on, with the same states. */
static int alike(const told *a, uint32_t from) {
    if (a->rc != first.rc || a->n != first.n - from || a->wrong > 0) return 0;
    for (uint32_t i = 0; i < a->n; i++)
        if (memcmp(a->rows[i], first.rows[from + i],
                   how.streams * how.rows * sizeof(row) *
                       (how.last > DLP_LAST_DEFAULT || how.streams > 1)) != 0 ||
            memcmp(&a->state[i], &first.state[from + i], sizeof(dlp_state)) != 0)
            return 0;
    return 1;
}

static uint32_t draw_below(uint64_t *h, uint32_t n) {
    *h = dlp_hash(*h, 1, 2, 3);
    return (uint32_t)(*h % n);
}

static void draw(uint64_t seed) {
    static const uint32_t streams[] = {1, 2, 4};
    uint64_t h = seed;
    memset(&how, 0, sizeof how);
    fails = drops = 0;
    how.seed = seed + 1;
    how.zip = (int)draw_below(&h, 2);
    for (int b = 0; b < 2; b++) {
        how.kind[b] = (int)draw_below(&h, 3);
        how.inputs[b] = 8 + draw_below(&h, 40);
        how.weights[b] = 1 + draw_below(&h, 4);
        how.shuffle[b] = (int)draw_below(&h, 2);
    }
    how.filters = draw_below(&h, 4) != 0;
    how.maps = (int)draw_below(&h, 2);
    how.expands = draw_below(&h, 3) == 0;
    how.packs = (!how.zip && draw_below(&h, 2)) || (how.zip && dlp_hash(seed, 12, 0, 0) % 4 == 0);
    if (how.packs) how.packs = A_CUT + (int)(dlp_hash(seed, 10, 0, 0) % 2);
    how.cached = dlp_hash(seed, 13, 0, 0) % 3 > 0 ? 0 : seed % 2 ? A_LITTLE : A_LOT;
    how.fitted = 1 + (uint32_t)(dlp_hash(seed, 11, 0, 0) % 12);
    how.window = how.packs || draw_below(&h, 2) ? 0 : 1 + (int)draw_below(&h, 9);
    if (how.packs && dlp_hash(seed, 14, 0, 0) % 2)
        how.window = 1 + (int)(dlp_hash(seed, 15, 0, 0) % 9);
    if (how.packs && dlp_hash(seed, 16, 0, 0) % 2)
        how.behind = 1 + (uint32_t)(dlp_hash(seed, 17, 0, 0) % 9);
    how.ends = (int)(dlp_hash(seed, 9, 0, 0) % 4);
    if (how.ends == 3 || how.packs) how.ends = how.packs && how.zip ? 2 : 0;
    if (!how.filters && !how.expands && !how.packs && !how.window && !how.ends) how.filters = 1;
    if (how.maps && !how.filters && !how.expands && !how.packs && !how.ends && !how.window)
        how.maps = 0;
    if (how.maps && !how.packs) how.maps = 1 + (int)(dlp_hash(seed, 13, 0, 0) % 2);
    how.streams = streams[draw_below(&h, 3)];
    how.rows = 1 + draw_below(&h, 4);
    how.steps = draw_below(&h, 3) ? 0 : 1 + draw_below(&h, 12);
    how.last = draw_below(&h, 2) ? DLP_LAST_DROP : DLP_LAST_PAD;
    how.shared = (int)draw_below(&h, 2);
}

/* Returns 0: a table of which an epoch has no batch. */
static int same_as_plain(uint64_t seed) {
    const int32_t workers[] = {DLP_NONE, 1, 4, 1, 3};
    draw(seed);
    if (!read_plain(JOIN_ALONE, plain_, n_plain_)) return 0;
    if (how.packs && how.window && !read_plain(NO_PACK, mixed_, n_mixed_)) return 0;
    do_plain();
    if (batches(0) == 0 || batches(1) == 0 || batches(0) + batches(1) > BATCHES) return 0;
    for (int e = 0; e < EPOCHS && how.steps; e++)
        for (uint32_t s = 0; s < how.streams; s++)
            if (n_made_[e][s] < how.steps * how.rows + how.window + how.behind) return 0;
    for (uint32_t i = 0; i < 5; i++) {
        const dlp_workers_desc w = {.num_workers = workers[i],
                                    .placement = i > 2 ? DLP_PLACE_PROCESSES : 0};
        told *t = i == 0 ? &first : &got;
        kill_every = i == 4 ? 37 + (uint32_t)seed % 50 : 0;
        run(&w, 0, 1, NULL, UINT32_MAX, t);
        kill_every = 0;
        CHECK(how.cached < A_LOT || how.steps > 0 || t->hits > 0);
        if (!well(t->rc == DLP_END && t->wrong == 0 && t->n == batches(0) + batches(1) &&
                  (i == 0 ? each_once(t->rows) : alike(t, 0)))) {
            print(seed, "workers", t);
            return 0;
        }
    }
    return 1;
}

static void resumed(uint64_t seed) {
    for (uint32_t k = 0; k + 1 < first.n; k += 1 + first.n / 20) {
        const dlp_workers_desc w = {.num_workers = k % 4 == 0 ? DLP_NONE : (int32_t)(k % 4)};
        run(&w, 0, 1, &first.state[k], UINT32_MAX, &got);
        if (!well(alike(&got, k + 1))) print(seed, "resumed", &got);
    }
}

/* Behind each batch there are other ranks. */
static void other_ranks(uint64_t seed) {
    static const uint32_t worlds[] = {4, 1, 2};
    dlp_state merged = {{0}}, last[4];
    uint32_t n = batches(0);
    if (how.streams < 4 && !(how.shared && how.streams * how.rows % 4 == 0)) return;
    for (uint32_t s = 0; s < how.streams; s++)
        if (n_made_[0][s] / how.rows < n) n = n_made_[0][s] / how.rows;
    for (uint32_t k = 0; k + 1 < n && k < 9; k++) {
        const uint32_t world = worlds[k % 3];
        for (uint32_t rank = 0; rank < world; rank++) {
            const dlp_workers_desc w = {.num_workers = (int32_t)((k + rank) % 4) - 1};
            run(&w, rank, world, k > 0 ? &merged : NULL, 1, &got);
            if (!well(got.n == 1 && got.wrong == 0)) {
                print(seed, "ranks", &got);
                return;
            }
            last[rank] = got.state[0];
        }
        if (!well(dlp_state_merge(&merged, last, world, &got.err) == DLP_OK &&
                  memcmp(&merged, &first.state[k], sizeof merged) == 0)) {
            print(seed, "merged", &got);
            return;
        }
    }
}

/* An input of a branch, and a joined row, fail: the batches before come, and the error names the
   node. What a filter fails for is left out if that is asked for. */
static void failing(uint64_t seed) {
    dlp_workers_desc w = {.num_workers = 2};
    uint32_t at;
    fails = 1 + seed % how.inputs[0];
    run(&w, 0, 1, NULL, UINT32_MAX, &got);
    at = got.n;
    if (!well(got.wrong == 0 && (got.rc == DLP_ERR_CALLBACK || got.rc == DLP_END) &&
              (got.rc == DLP_END || /* or it fails in a last batch that is dropped */
               ((at < first.n || (how.last == DLP_LAST_DROP && at == first.n)) &&
                got.err.index == fails - 1))))
        print(seed, "an input fails", &got);
    fails = 0;
    if (!how.filters) return;
    for (uint32_t s = 0; s < how.streams && drops == 0; s++)
        for (uint32_t i = 0; i < n_plain_[0][s] && drops == 0; i++) {
            const row *x = &plain_[0][s][i];
            const uint64_t id = id_at_filter(x);
            if (id > 0 && is_kept(id)) drops = id;
        }
    if (drops == 0) return;
    run(&w, 0, 1, NULL, UINT32_MAX, &got);
    if (!well(got.rc == DLP_END ||
              (got.rc == DLP_ERR_CALLBACK && got.wrong == 0 && strcmp(got.err.stage, "keep") == 0)))
        print(seed, "a row fails", &got);
    if (how.zip && how.kind[0] + how.kind[1] > 0) {
        drops = 0;
        return; /* nobody knows how many items a failed input has */
    }
    if (how.packs && how.window) {
        drops = 0;
        return; /* the window has been read with the row */
    }
    w.on_error = DLP_ON_ERROR_DROP;
    do_plain();
    run(&w, 0, 1, NULL, UINT32_MAX, &got);
    if (batches(0) > 0 && batches(1) > 0 && /* else that is an error */
        !well(got.rc == DLP_END && got.wrong == 0 && got.n == batches(0) + batches(1)))
        print(seed, "left out", &got);
    drops = 0;
    do_plain();
}

/* As many cells as a table says that it needs are enough, of rows and of both branches. */
static void fewest_cells(uint64_t seed) {
    const dlp_workers_desc w = {.num_workers = 2};
    unsigned need = 0;
    cells = 1;
    run(&w, 0, 1, NULL, UINT32_MAX, &got);
    if (got.rc == DLP_ERR_ARG) {
        const char *at = strstr(got.err.message, "may need ");
        CHECK(strcmp(got.err.field, "queue.capacity") == 0);
        if (!well(at != NULL && sscanf(at, "may need %u", &need) == 1)) print(seed, "cells", &got);
        cells = need - 1;
        run(&w, 0, 1, NULL, UINT32_MAX, &got);
        CHECK(got.rc == DLP_ERR_ARG);
        cells = need;
        run(&w, 0, 1, NULL, UINT32_MAX, &got);
    }
    if (!well(alike(&got, 0))) print(seed, "fewest cells", &got);
    cells = 0;
}

static void refused_behind(const dlp_node *before, dlp_node node, const char *field,
                           const char *words) {
    uint32_t at = 5;
    const dlp_workers_desc w = {.num_workers = 1};
    dlp_node nodes[16];
    dlp_error err = {.code = 0};
    uint32_t n = table(nodes, &w, JOIN_ALONE);
    if (before != NULL) {
        memmove(&nodes[at + 1], &nodes[at], (n++ - at) * sizeof *nodes);
        nodes[at++] = *before;
    }
    memmove(&nodes[at + 1], &nodes[at], (n - at) * sizeof *nodes);
    nodes[at] = node;
    CHECK(dlp_nodes_plan(nodes, n + 1, NULL, &(dlp_plan){0}, &err) < 0);
    if (!well(strcmp(err.stage, node.name) == 0 && strcmp(err.field, field) == 0 &&
              strstr(err.message, words) != NULL))
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
}

static void rows__out_of_place__refused_by_name(void) {
    const dlp_node keep = {.name = "keep",
                           .verb = DLP_FILTER,
                           .filter = {.keep = keep_row},
                           .workers = {.num_workers = 2}};
    dlp_node window = {.name = "window", .verb = DLP_WINDOW}, ends;
    const dlp_node all_keep = {.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_row}};
    const dlp_node touches = {.name = "touches", .verb = DLP_MAP, .map = {.item = touch}};
    const dlp_node kept = {.name = "kept", .verb = DLP_CACHE, .cache = {A_LOT}};
    dlp_node more = {.name = "more", .verb = DLP_CACHE, .cache = {A_LOT}};
    const dlp_guard_field id_guard = {.name = "id"};
    const dlp_node guard = {
        .name = "guard", .verb = DLP_GUARD, .guard = {.fields = &id_guard, .n_fields = 1}};
    memset(&how, 0, sizeof how);
    how.inputs[0] = how.inputs[1] = 9;
    how.weights[0] = how.weights[1] = how.streams = 1;
    how.packs = 1;
    refused_behind(NULL, keep, "workers", "set it there");
    refused_behind(NULL, (dlp_node){.name = "load", .verb = DLP_LOAD}, "", "may stand");
    refused_behind(NULL, window, "window.items", "1..2^24");
    window.window.items = 4;
    how.packs = 0;
    refused_behind(&all_keep, kept, "", "directly behind \"both\"");
    refused_behind(&touches, kept, "", "directly behind \"both\"");
    refused_behind(&kept, more, "", "directly behind \"both\"");
    more.cache.bytes = 40;
    refused_behind(NULL, more, "cache.bytes", "one input");
    ends = leave_row();
    ends.map.ends = "tokens nothing";
    refused_behind(NULL, ends, "map.ends", "each once");
    ends.map.ends = "tokens";
    refused_behind(&window, ends, "map.ends", "must end above \"window\"");
    refused_behind(&guard, ends, "map.ends", "must end above \"guard\"");
    ends.workers.num_workers = 2;
    refused_behind(NULL, ends, "workers", "set it there");
}

/* ---- rows behind a zip that nobody keeps for long ---- */

static int number_fetch(void *user, dlp_item *it) {
    const uint64_t *every = user; /* DLP_SKIP of all items but these; NULL: of none */
    memcpy(it->data[0], &it->index, sizeof it->index);
    return every != NULL && it->index % *every != *every - 1 ? DLP_SKIP : 0;
}
static int hundredth_keep(void *user, const dlp_item *it) {
    uint64_t y;
    (void)user;
    memcpy(&y, it->data[1], sizeof y);
    return y >= 100;
}
static int slow_keep(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    usleep(500);
    return 1;
}

/* A zip of so many items and others, with so many steps; a filter behind it. Returns what ended
   it. */
static int zip_steps(uint64_t n, uint64_t others, const uint64_t *every,
                     int (*keep)(void *, const dlp_item *), int steps, uint32_t *rows,
                     dlp_error *err) {
    static const dlp_field x = {"x", DLP_U64, 0, {0}, 0, 0}, y = {"y", DLP_U64, 0, {0}, 0, 0};
    const char *const from[] = {"a", "b", NULL};
    const dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = n}},
                              {.name = "a",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = number_fetch, .fields = &x, .n_fields = 1}},
                              {.name = "list2", .verb = DLP_LIST, .list = {.n_items = others}},
                              {.name = "b",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = number_fetch,
                                         .user = (void *)(uintptr_t)every,
                                         .fields = &y,
                                         .n_fields = 1}},
                              {.name = "zip", .verb = DLP_ZIP, .from = from},
                              {.name = "keep",
                               .verb = DLP_FILTER,
                               .filter = {.keep = keep},
                               .queue = {.capacity = cells}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
    const dlp_pipe_desc desc = {.streams = steps > 0 ? 0 : 2, .steps_per_epoch = steps};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_pipe_open(&p, DLP_NODES(nodes), &desc, err);
    CHECK(rc == DLP_OK);
    *rows = 0;
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        *rows += b->valid_count;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (p != NULL) *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

static void zip__short_branch__begins_again_until_the_long_one_gives(void) {
    const uint64_t none = UINT64_MAX;
    dlp_error err;
    uint32_t rows;
    CHECK(zip_steps(2, 1000, NULL, hundredth_keep, 20, &rows, &err) == DLP_END && rows == 40);
    CHECK(zip_steps(10, 10, &none, hundredth_keep, 20, &rows, &err) == DLP_ERR_CALLBACK &&
          rows == 0);
    CHECK(strstr(err.message, "gave no item") != NULL);
}

static int token_fetch(void *user, dlp_item *it) {
    it->length[0] = 1;
    return number_fetch(user, it);
}

/* A window behind a zip shuffles joined rows, and none of its branches. The last branch has no row
   but its push. */
static void zip__window_and_pack_behind_a_bare_push__shuffle_pairs(void) {
    enum { N = 20, W = 7, PER = 4 };
    static const dlp_field x = {"x", DLP_U64, 1, {1}, 1, 0}, y = {"y", DLP_U64, 1, {1}, 1, 0};
    const char *const from[] = {"a", "pushed", NULL};
    const dlp_push_desc desc = {.fields = &y, .n_fields = 1, .writers = 1};
    const uint64_t one = 1;
    dlp_push *push;
    dlp_pusher *pusher;
    CHECK(dlp_push_open(&push, &desc, NULL) == DLP_OK);
    CHECK(dlp_pusher_open(&pusher, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
    for (uint64_t i = 0; i < N; i++)
        CHECK(dlp_pusher_lengths(pusher, &one) == DLP_OK &&
              dlp_pusher_push(pusher, (const void *const[]){&i}, 0) == DLP_OK);
    CHECK(dlp_pusher_end(pusher, 0) == DLP_OK);
    dlp_pusher_close(pusher);
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = N}},
        {.name = "a",
         .verb = DLP_FETCH,
         .fetch = {.fetch = token_fetch, .fields = &x, .n_fields = 1}},
        {.name = "pushed", .verb = DLP_PUSH, .push = {.source = push}},
        {.name = "zip", .verb = DLP_ZIP, .from = from},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = W}},
        {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = PER}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1, .last = DLP_LAST_PARTIAL}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t n = 0, seen = 0, moved = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint64_t *pair[2] = {b->fields[0].data, b->fields[1].data};
        CHECK(b->fields[0].lengths[0] == PER);
        for (uint32_t k = 0; k < PER; k++, n++) {
            CHECK(pair[0][k] == pair[1][k] && pair[0][k] / W == n / W);
            moved += pair[0][k] != n;
            seen |= UINT64_C(1) << pair[0][k] % 64;
        }
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(n == N && seen == (UINT64_C(1) << N) - 1 && moved > 4);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_push_close(push) == DLP_OK);
}

/* Rows that are left out prove nothing while the rows before them are filtered. */
static void zip__rows_left_out_before_others_are_known__no_error(void) {
    const uint64_t eighth = 8;
    dlp_error err;
    uint32_t rows;
    CHECK(zip_steps(8, 8, &eighth, slow_keep, 20, &rows, &err) == DLP_END && rows == 40);
}

/* A stream whose rows are all left out has its end, and the other stream has its rows: the odd
   numbers, or those from 1 to 49. */
static void zip__all_rows_of_a_stream_left_out__the_others_come(void) {
    const uint64_t odd = 2;
    dlp_error err;
    uint32_t rows;
    for (uint64_t n = 300; n > 20; n /= 2)
        for (cells = 0; cells < 10; cells += 4)
            CHECK(zip_steps(300, n, &odd, slow_keep, 0, &rows, &err) == DLP_END && rows == n / 2);
    cells = 0;
}

static int late_keep(void *user, const dlp_item *it) {
    uint64_t x;
    memcpy(&x, it->data[0], sizeof x);
    return x >= *(const uint64_t *)user;
}
static int one_expand(void *user, dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    (void)user;
    if (it == NULL) return DLP_ERR_LENGTH;
    memcpy(it->data[0], &x->item->index, sizeof x->item->index);
    return 0;
}

/* Rows of a mix of branches with so many items, behind which a filter keeps numbers from one on.
   The items of the first branch may be made, of inputs that could have 2^17 items. */
static uint32_t mix_seldom(const uint64_t *items, const uint64_t *weights, int n, uint64_t kept,
                           int makes) {
    static const dlp_field x = {"x", DLP_U64, 0, {0}, 0, 0};
    static const char *const names[] = {"a", "b", "c"}, *const lists[] = {"as", "bs", "cs"};
    const char *const from[] = {"a", "b", n > 2 ? "c" : NULL, NULL};
    const dlp_pipe_desc desc = {.steps_per_epoch = 3};
    dlp_node nodes[9];
    uint32_t rows = 0, at = 0;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    for (int k = 0; k < n; k++) {
        nodes[at++] = (dlp_node){.name = lists[k], .verb = DLP_LIST, .list = {.n_items = items[k]}};
        nodes[at++] = (dlp_node){.name = names[k],
                                 .verb = DLP_FETCH,
                                 .fetch = {.fetch = number_fetch, .fields = &x, .n_fields = 1}};
    }
    if (makes) {
        nodes[1].verb = DLP_EXPAND;
        nodes[1].expand = (dlp_node_expand){
            .expand = one_expand, .max_out = 1 << 17, .fields = &x, .n_fields = 1};
    }
    nodes[at++] =
        (dlp_node){.name = "mix", .verb = DLP_MIX, .from = from, .mix = {.weights = weights}};
    nodes[at++] = (dlp_node){
        .name = "keep", .verb = DLP_FILTER, .filter = {.keep = late_keep, .user = &kept}};
    nodes[at++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}};
    CHECK(dlp_pipe_open(&p, nodes, at, &desc, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        rows += b->valid_count;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (p != NULL && dlp_pipe_error(p)->code != 0) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rows;
}

/* A branch that is drawn once in 51 rows has its last item after 510 rows; the third of three,
   which is drawn once in 52 rows, after 5200. Inputs that could have more than 2^64 items in a pass
   prove nothing soon. */
static void mix__seldom_branch__waited_for(void) {
    static const uint64_t seldom[] = {1, 50, 1}, ten[] = {10, 2}, hundred[] = {1, 2, 100};
    static const uint64_t endless[] = {UINT64_C(1) << 48, 2};
    CHECK(mix_seldom(ten, seldom, 2, 9, 0) == 6);
    CHECK(mix_seldom(hundred, seldom, 3, 99, 0) == 6);
    CHECK(mix_seldom(endless, seldom, 2, 40, 1) == 6);
}

static int none_keep(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}
static int slow_fetch(void *user, dlp_item *it) {
    usleep(200);
    return number_fetch(user, it);
}

/* A mix of 50 items and one of a branch that gives none, in batches of 2. Returns what ended it. */
static int mix_barren(uint64_t seed, int64_t steps, int slow, uint32_t *rows, dlp_error *err) {
    static const dlp_field x = {"x", DLP_U64, 0, {0}, 0, 0};
    static const uint64_t weights[] = {50, 1};
    const char *const from[] = {"a", "keep", NULL};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 100}},
        {.name = "a",
         .verb = DLP_FETCH,
         .fetch = {.fetch = slow ? slow_fetch : number_fetch, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = slow}},
        {.name = "list2", .verb = DLP_LIST, .list = {.n_items = 4}},
        {.name = "b",
         .verb = DLP_FETCH,
         .fetch = {.fetch = number_fetch, .fields = &x, .n_fields = 1}},
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = none_keep}},
        {.name = "mix", .verb = DLP_MIX, .from = from, .mix = {.weights = weights}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
    const dlp_pipe_desc desc = {.steps_per_epoch = steps, .seed = seed};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_pipe_open(&p, DLP_NODES(nodes), &desc, err);
    CHECK(rc == DLP_OK);
    *rows = 0;
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        *rows += b->valid_count;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (p != NULL) *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

/* The batch that wants an item of the branch fails. Those before it come, however fast it is known
   that the branch gives none; and an epoch that ends before it has no error. */
static void mix__branch_without_items__fails_where_it_is_drawn(void) {
    uint32_t before = 0;
    for (uint64_t seed = 1; seed < 5; seed++) {
        uint32_t rows, came = 0;
        dlp_error err;
        for (int slow = 0; slow < 3; slow++) {
            CHECK(mix_barren(seed, 40, slow, &rows, &err) == DLP_ERR_CALLBACK);
            CHECK(strstr(err.message,
                         "the last 8 inputs of branch \"keep\" on rank 0 gave no item") != NULL);
            CHECK(err.position / 2 == rows / 2);
            if (slow > 0) CHECK(rows == came);
            came = rows;
        }
        before += came;
        if (came > 0) CHECK(mix_barren(seed, came / 2, 0, &rows, &err) == DLP_END);
        if (came > 0) CHECK(rows == came);
    }
    CHECK(before > 0);
}

/* ---- more streams than a rank of four reads, or than a state has room for at any place ---- */

static uint64_t many_of = 2; /* one of so many items behind the mix is kept */
static uint32_t many_stateless;

static int keep_some(void *user, const dlp_item *it) {
    uint64_t x;
    (void)user;
    memcpy(&x, it->data[0], sizeof x);
    return dlp_hash(x, 7, 0, 0) % many_of == 0;
}
static int third_keep(void *user, const dlp_item *it) {
    uint64_t x;
    (void)user;
    memcpy(&x, it->data[0], sizeof x);
    return dlp_hash(x, 6, 0, 0) % 3 != 0;
}

enum { MANY = 32, EACH = 2, ON_FOUR = 5, ROOM = 60 };

/* Open a rank of a filtered mix of 32 streams. */
static int many_open(dlp_pipe **out, int64_t steps, uint32_t rank, uint32_t world,
                     const dlp_state *resume, dlp_error *err) {
    static const dlp_field x = {"x", DLP_U64, 0, {0}, 0, 0};
    static const uint64_t weights[] = {3, 1};
    const char *const from[] = {"kept", "b", NULL};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 3000, .shuffle = 1}},
        {.name = "a",
         .verb = DLP_FETCH,
         .fetch = {.fetch = number_fetch, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = 1 + (int32_t)rank % 3}},
        {.name = "kept", .verb = DLP_FILTER, .filter = {.keep = third_keep}},
        {.name = "list2", .verb = DLP_LIST, .list = {.n_items = 1000, .shuffle = 1}},
        {.name = "b",
         .verb = DLP_FETCH,
         .fetch = {.fetch = number_fetch, .fields = &x, .n_fields = 1}},
        {.name = "mix", .verb = DLP_MIX, .from = from, .mix = {.weights = weights}},
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_some}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = MANY * EACH, .last = DLP_LAST_DROP}}};
    const dlp_pipe_desc desc = {.seed = 3,
                                .epochs = EPOCHS,
                                .streams = MANY,
                                .steps_per_epoch = steps,
                                .uneven = world > 1 && steps == 0,
                                .rank = rank,
                                .world_size = world,
                                .resume = resume};
    return dlp_pipe_open(out, DLP_NODES(nodes), &desc, err);
}

/* At most `most` batches of such a rank: its rows, and the state after the last one. Returns how
   many batches there were. */
static uint32_t many_streams(int64_t steps, uint32_t rank, uint32_t world, const dlp_state *resume,
                             uint32_t most, uint64_t (*rows)[MANY * EACH], dlp_state *state) {
    dlp_pipe *p = NULL;
    dlp_error err = {.code = 0};
    dlp_batch *b;
    uint32_t n = 0;
    int rc;
    CHECK(many_open(&p, steps, rank, world, resume, &err) == DLP_OK);
    if (p == NULL) puts(err.message);
    while (p != NULL && n < most && n < ROOM && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        CHECK(b->valid_count == MANY * EACH / world);
        memcpy(rows[n++] + rank * (MANY * EACH / world), b->fields[0].data, b->count * 8u);
        rc = dlp_pipe_state(p, b, state);
        CHECK(rc == DLP_OK || (rc == DLP_ERR_UNSUPPORTED && many_of > 2));
        CHECK(rc == DLP_OK || (b->flags & DLP_BATCH_LAST) == 0);
        many_stateless += rc != DLP_OK;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

/* One rank, then four that go on from its state, then one that goes on from theirs: the rows of one
   rank alone. With steps the paths of 32 streams are longer than a state, and are brought near. */
static void mix__32_streams__one_rank_then_four_then_one(int64_t steps) {
    static uint64_t alone[ROOM][MANY * EACH], parts[ROOM][MANY * EACH];
    dlp_state one, last[4], merged;
    memset(alone, 0, sizeof alone);
    const uint32_t n = many_streams(steps, 0, 1, NULL, ROOM, alone, &one);
    CHECK(steps > 0 ? n == EPOCHS * steps : n >= 20 && n < ROOM);
    for (uint32_t at = 1; at + ON_FOUR<(steps > 0 ? n : 15); at += steps> 0 ? 1 : 4) {
        memset(parts, 0, sizeof parts);
        CHECK(many_streams(steps, 0, 1, NULL, at, parts, &one) == at);
        for (uint32_t rank = 0; rank < 4; rank++)
            CHECK(many_streams(steps, rank, 4, &one, ON_FOUR, parts + at, &last[rank]) == ON_FOUR);
        CHECK(dlp_state_merge(&merged, last, 4, NULL) == DLP_OK);
        CHECK(many_streams(steps, 0, 1, NULL, at + ON_FOUR, parts, &one) == at + ON_FOUR);
        CHECK(memcmp(&merged, &one, sizeof one) == 0);
        CHECK(many_streams(steps, 0, 1, &merged, ROOM - at - ON_FOUR, parts + at + ON_FOUR, &one) ==
              n - at - ON_FOUR);
        CHECK(memcmp(parts, alone, sizeof parts) == 0);
    }
}

/* A filter that keeps almost nothing drives streams so far apart that one state has no room for
   them. The rows come all the same, and at the end of an epoch there is a state. */
static void mix__streams_far_apart__no_state_but_rows(void) {
    static uint64_t rows[ROOM][MANY * EACH];
    dlp_state state, last[4];
    dlp_error err;
    dlp_pipe *p = NULL;
    many_of = 1000;
    CHECK(many_streams(19, 0, 1, NULL, ROOM, rows, &state) == EPOCHS * 19);
    CHECK(many_stateless > 0 && many_stateless < EPOCHS * 18);
    for (uint32_t rank = 0; rank < 4; rank++)
        CHECK(many_streams(19, rank, 4, NULL, 18, rows, &last[rank]) == 18);
    CHECK(dlp_state_merge(&state, last, 4, &err) == DLP_ERR_RESUME);
    CHECK(strstr(err.message, "32 streams stand too far apart") != NULL);
    CHECK(dlp_state_merge(&state, last, 2, &err) == DLP_OK);
    many_of = 2;
    CHECK(many_open(&p, 16383, 0, 1, NULL, &err) == DLP_OK);
    CHECK(dlp_pipe_warning(p, 0) != NULL && strstr(dlp_pipe_warning(p, 0), "near each other"));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(many_open(&p, 19, 0, 4, NULL, &err) == DLP_OK && dlp_pipe_warning(p, 0) == NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(many_open(&p, 16384, 0, 1, NULL, &err) == DLP_ERR_ARG);
    CHECK(strstr(err.message, "32 streams, a state has room for ") != NULL);
}

static uint32_t pick(uint64_t *random, uint32_t n) {
    return (uint32_t)(dlp_hash(++*random, 1, 2, 3) % n);
}

/* A state with anything in it, and a right checksum: refused or resumed, merged or not. */
static void state__anything_in_it__no_harm(void) {
    static uint64_t rows[ROOM][MANY * EACH];
    uint64_t random = 5;
    dlp_state near, some, merged;
    dlp_pipe *p;
    dlp_batch *b;
    uint32_t joined = 0;
    const uint32_t n = many_streams(19, 0, 1, NULL, 7, rows, &near);
    CHECK(n == 7);
    for (int i = 0; n == 7 && i < 3000; i++) {
        inside_state s;
        memcpy(&s, near.bytes, sizeof s);
        CHECK(i > 0 || (s.sampler[3] & 0x80) != 0); /* brought near */
        for (uint32_t k = pick(&random, 3) + 1; k > 0; k--)
            s.sampler[pick(&random, pick(&random, 2) ? 24 : s.sampler_bytes)] ^=
                (uint8_t)(1u << pick(&random, 8));
        if (pick(&random, 8) == 0) s.sampler_bytes = pick(&random, 129);
        inside_state_seal(&s);
        memcpy(some.bytes, &s, sizeof s);
        joined += dlp_state_merge(&merged, (dlp_state[]){near, some}, 2, NULL) == DLP_OK;
        if (i % 10 != 0 || many_open(&p, 19, 0, 1, &some, NULL) != DLP_OK) continue;
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(joined < 3000);
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 60;
    const uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t ran = 0;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    caller = getpid();
    for (uint64_t seed = from; seed < from + n; seed++) {
        alarm(100);
        if (!same_as_plain(seed)) continue;
        ran++;
        resumed(seed);
        other_ranks(seed);
        failing(seed);
        fewest_cells(seed);
    }
    rows__out_of_place__refused_by_name();
    zip__short_branch__begins_again_until_the_long_one_gives();
    zip__window_and_pack_behind_a_bare_push__shuffle_pairs();
    zip__rows_left_out_before_others_are_known__no_error();
    zip__all_rows_of_a_stream_left_out__the_others_come();
    mix__seldom_branch__waited_for();
    mix__branch_without_items__fails_where_it_is_drawn();
    mix__32_streams__one_rank_then_four_then_one(0);
    mix__32_streams__one_rank_then_four_then_one(19);
    mix__streams_far_apart__no_state_but_rows();
    state__anything_in_it__no_harm();
    printf("  %u of %u tables ran, %u workers died\n", ran, (unsigned)n, all->kills);
    CHECK(n < 20 || (ran > n / 2 && all->kills > 0));
    return test_end("behind");
}
