/* needs: parts pack cache */
/* Packing what a load or an expand makes, where the random tests do not look: the fewest cells that
   get on, with and without min_documents; documents that fail; a push; a cache of documents; and
   what is refused. Random
   tables, states, ranks and deaths: inputs_random. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { INPUTS = 40, MOST = 6, LONGEST = 9, TOKENS = 4000, T = 8 };

static const dlp_field pair_[2] = {
    {.name = "tokens", .dtype = DLP_U32, .ndim = 1, .shape = {LONGEST}, .ragged = 1},
    {.name = "mask", .dtype = DLP_U8, .ndim = 1, .shape = {LONGEST}, .ragged = 1}};
static const dlp_field number_ = {.name = "number", .dtype = DLP_U64};

static struct {
    uint64_t documents, length; /* of each; 0: as many as the hashes say */
    uint64_t fails, item;       /* this document of input fails - 1, */
    int how;                    /* in this way */
    int gone;                   /* and the direct program leaves it out */
} now_;

enum { BY_CALLBACK, BY_MASK, BY_LENGTH };

static uint64_t documents_of(uint64_t input) {
    return now_.documents ? now_.documents : dlp_hash(input, 1, 0, 0) % (MOST + 1);
}
static uint64_t length_of(uint64_t input, uint64_t item) {
    return now_.length ? now_.length : dlp_hash(input, item, 2, 0) % (LONGEST + 1);
}
static uint32_t token_of(uint64_t input, uint64_t item, uint64_t k) {
    return (uint32_t)(input * 10000 + item * 100 + k + 1);
}
static int is_kept(uint64_t input, uint64_t item) { return (input + item) % 5 != 3; }

static int put(dlp_item *it, uint64_t input, uint64_t item) {
    const uint64_t n = length_of(input, item);
    const int bad = now_.fails == input + 1 && now_.item == item;
    for (uint64_t k = 0; k < n; k++) ((uint32_t *)it->data[0])[k] = token_of(input, item, k);
    it->length[0] = bad && now_.how == BY_LENGTH ? LONGEST + 1 : n;
    if (it->n_fields > 1) it->length[1] = n + (bad && now_.how == BY_MASK ? 1 : 0);
    return 0;
}

static int load(void *user, dlp_part *part) {
    (void)user;
    part->items = documents_of(part->index);
    part->bytes = 1;
    return 0;
}
static int read_document(void *user, dlp_item *it) {
    (void)user;
    if (now_.fails == it->index + 1 && now_.item == it->part->item && now_.how == BY_CALLBACK)
        return dlp_fail(it->call, 5, "torn");
    return put(it, it->index, it->part->item);
}
static int expand(void *user, dlp_expand *x) {
    const uint64_t input = user != NULL ? *(const uint64_t *)x->item->data[0] : x->item->index;
    for (uint64_t k = 0; k < documents_of(input); k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        put(it, input, k);
    }
    return 0;
}
static int keep(void *user, const dlp_item *it) {
    const uint64_t first = it->length[0] > 0 ? *(const uint32_t *)it->data[0] : 0;
    (void)user;
    return it->length[0] == 0 || is_kept(first / 10000, first / 100 % 100);
}
static int touch(void *user, dlp_item *it) { /* fails for a document that an expand made */
    const uint64_t first = it->length[0] > 0 ? *(const uint32_t *)it->data[0] : 0;
    (void)user;
    if (now_.fails == first / 10000 + 1 && now_.item == first / 100 % 100 && first > 0 &&
        now_.how == BY_CALLBACK)
        return dlp_fail(it->call, 5, "torn");
    return 0;
}

/* ---- tables ---- */

static dlp_node list_(void) {
    return (dlp_node){.name = "inputs", .verb = DLP_LIST, .list = {.n_items = INPUTS}};
}
static dlp_node load_(void) {
    return (dlp_node){.name = "load",
                      .verb = DLP_LOAD,
                      .load = {.load = load, .max_items = MOST, .max_part_bytes = 1}};
}
static dlp_node read_(void) {
    return (dlp_node){.name = "read",
                      .verb = DLP_FETCH,
                      .fetch = {.fetch = read_document, .fields = pair_, .n_fields = 2}};
}
static dlp_node expand_(void) {
    return (dlp_node){
        .name = "expand",
        .verb = DLP_EXPAND,
        .expand = {.expand = expand, .max_out = MOST, .fields = pair_, .n_fields = 2}};
}
static dlp_node keep_(void) {
    return (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep}};
}
static dlp_node touch_(void) {
    return (dlp_node){.name = "touch", .verb = DLP_MAP, .map = {.item = touch}};
}
static dlp_node pack_(void) {
    return (dlp_node){.name = "pack", .verb = DLP_PACK, .pack = {.tokens = T, .max_segments = 4}};
}
static dlp_node batch_(uint32_t size) {
    return (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = size}};
}

/* ---- runs ---- */

typedef struct told {
    uint32_t n, token[TOKENS];
    int rc;
    dlp_error err;
    uint64_t left_out;
} told;

static told want_, got_;

/* The tokens of all rows, end to end. */
static void run(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc, told *t) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_stats stats;
    memset(t, 0, sizeof *t);
    if ((t->rc = dlp_pipe_open(&p, nodes, n, desc, &t->err)) != DLP_OK) return;
    while ((t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++)
            for (uint64_t k = 0; b->valid[r] && k < b->fields[0].lengths[r] && t->n < TOKENS; k++)
                t->token[t->n++] = ((const uint32_t *)b->fields[0].data)[r * T + k];
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
    t->left_out = stats.stages[dlp_node_stage(p, "pack")].left_out;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void direct(int filtered, uint64_t inputs, told *t) {
    memset(t, 0, sizeof *t);
    for (uint64_t i = 0; i < inputs; i++)
        for (uint64_t k = 0; k < documents_of(i); k++) {
            if (filtered && !is_kept(i, k)) continue;
            if (now_.gone && now_.fails == i + 1 && now_.item == k) continue;
            for (uint64_t j = 0; j < length_of(i, k) && t->n < TOKENS; j++)
                t->token[t->n++] = token_of(i, k, j);
        }
}

static int same(const told *a, const told *b) {
    return a->n == b->n && memcmp(a->token, b->token, a->n * sizeof *a->token) == 0;
}

/* ---- cells ---- */

/* So many inputs at once are enough, and one fewer is refused by a number. */
static void cells__fewest__get_on(int fit, int overlap, uint32_t least) {
    dlp_node nodes[] = {list_(), load_(), read_(), pack_(), batch_(4)};
    const dlp_pipe_desc desc = {.epochs = 2, .steps_per_epoch = 20}; /* R is 4, S is 4 */
    uint64_t need = overlap ? 4 * 3 + 1 : 4 * 4;
    memset(&now_, 0, sizeof now_);
    now_.documents = least ? least : 1;
    now_.length = overlap ? 2 : 1;
    nodes[3].pack.overlap = overlap ? 2 : 0;
    if (fit) {
        nodes[3].pack.rule = DLP_PACK_FIT;
        nodes[3].pack.window = 7;
        need = 3 * 4 + 7;
    }
    nodes[3].pack.min_documents = least;
    if (least) need = 1 + ((fit ? 4 * 7 : need) - 1 + least - 1) / least;
    if (fit && need > 3 * 4 + 7) need = 3 * 4 + 7;
    nodes[3].queue.capacity = (uint32_t)need - 1;
    run(nodes, 5, &desc, &got_);
    CHECK(got_.rc == DLP_ERR_ARG && strcmp(got_.err.field, "queue.capacity") == 0);
    nodes[3].queue.capacity = (uint32_t)need;
    run(nodes, 5, &desc, &got_);
    if (got_.rc != DLP_END) printf("  %s: %s\n", got_.err.stage, got_.err.message);
    CHECK(got_.rc == DLP_END);
}

static void min_documents__fewer__an_error_of_the_input(void) {
    dlp_node nodes[] = {list_(), expand_(), pack_(), batch_(4)};
    uint64_t least = MOST;
    memset(&now_, 0, sizeof now_);
    now_.length = 3;
    for (uint64_t i = 0; i < INPUTS; i++)
        if (documents_of(i) > 0 && documents_of(i) < least) least = documents_of(i);
    nodes[2].pack.min_documents = (uint32_t)least + 1;
    run(nodes, 4, NULL, &got_);
    CHECK(got_.rc == DLP_ERR_LENGTH &&
          strstr(got_.err.message, "min_documents of \"pack\"") != NULL);
    CHECK(documents_of(got_.err.index) == least);
    nodes[1].workers.on_error = DLP_ON_ERROR_DROP;
    run(nodes, 4, &(dlp_pipe_desc){.epochs = 1}, &got_);
    CHECK(got_.rc == DLP_END && got_.n > 0 && got_.left_out > 0);
    nodes[2].pack.min_documents = MOST + 1;
    run(nodes, 4, NULL, &got_);
    CHECK(got_.rc == DLP_ERR_ARG && strcmp(got_.err.field, "min_documents") == 0);
}

/* ---- documents that fail ---- */

static void document__fails__named_or_left_out(int loads, int how) {
    dlp_node nodes[8];
    uint32_t n = 0, at;
    char words[40];
    nodes[n++] = list_();
    if (loads) nodes[n++] = load_();
    nodes[n++] = loads ? read_() : expand_();
    at = n - 1;
    if (loads) at = 1;
    if (!loads && how == BY_CALLBACK) nodes[n++] = touch_();
    nodes[n++] = keep_();
    nodes[n++] = pack_();
    nodes[n++] = batch_(4);
    memset(&now_, 0, sizeof now_);
    now_.how = how;
    for (uint64_t i = 0; now_.fails == 0; i++)
        for (uint64_t k = 1; k < documents_of(i) && now_.fails == 0; k++)
            if (length_of(i, k) > 2 && is_kept(i, k)) now_.fails = i + 1, now_.item = k;
    snprintf(words, sizeof words, "item %u", (unsigned)now_.item);
    nodes[at].workers.num_workers = 2;
    run(nodes, n, &(dlp_pipe_desc){.epochs = 1}, &got_);
    CHECK(got_.rc == (how == BY_CALLBACK ? DLP_ERR_CALLBACK : DLP_ERR_LENGTH));
    CHECK(got_.err.index == now_.fails - 1 && strstr(got_.err.message, words) != NULL);
    if (how == BY_MASK) CHECK(strcmp(got_.err.stage, "pack") == 0);
    nodes[at].workers.on_error = DLP_ON_ERROR_DROP;
    run(nodes, n, &(dlp_pipe_desc){.epochs = 1}, &got_);
    now_.gone = 1;
    direct(1, INPUTS, &want_);
    if (!same(&got_, &want_)) printf("  %d %d: %s\n", loads, how, got_.err.message);
    CHECK(got_.rc == DLP_END && same(&got_, &want_) && got_.left_out == 1);
}

/* ---- a push ---- */

static void push__documents_of_each_record__packed(int32_t workers) {
    const dlp_push_desc desc = {.fields = &number_, .n_fields = 1, .capacity = 64, .writers = 1};
    static int by_number;
    dlp_push *push = NULL;
    dlp_pusher *u = NULL;
    dlp_node nodes[] = {
        {.name = "numbers", .verb = DLP_PUSH}, expand_(), keep_(), pack_(), batch_(4)};
    memset(&now_, 0, sizeof now_);
    CHECK(dlp_push_open(&push, &desc, NULL) == DLP_OK);
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push, .number = 1}, NULL) == DLP_OK);
    for (uint64_t i = 0; i < INPUTS; i++) {
        const void *data = &i;
        CHECK(dlp_pusher_push(u, &data, 0) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, 0) == DLP_OK);
    dlp_pusher_close(u);
    nodes[0].push.source = push;
    nodes[1].expand.user = &by_number;
    nodes[1].workers.num_workers = workers;
    run(nodes, 5, NULL, &got_);
    direct(1, INPUTS, &want_);
    if (!same(&got_, &want_)) printf("  %s: %s\n", got_.err.stage, got_.err.message);
    CHECK(got_.rc == DLP_END && same(&got_, &want_));
    CHECK(dlp_push_close(push) == DLP_OK);
}

/* ---- a window behind the pack ---- */

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Write hashes of the rows, and the state after each. Returns how many there are. */
static uint32_t rows_of(dlp_node *nodes, uint32_t n, const dlp_state *resume, uint64_t *to,
                        dlp_state *states) {
    const dlp_pipe_desc desc = {.epochs = 1, .resume = resume};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t rows = 0;
    CHECK(dlp_pipe_open(&p, nodes, n, &desc, NULL) == DLP_OK);
    while (p != NULL && rows < TOKENS && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        to[rows] = 0;
        for (uint32_t k = 0; k < T; k++)
            to[rows] = dlp_hash(to[rows], ((const uint32_t *)b->fields[0].data)[k], 0, 0);
        CHECK(states == NULL || dlp_pipe_state(p, b, &states[rows]) == DLP_OK);
        rows++;
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rows;
}

/* All inputs lie in cells at once, so the stream is out long before its rows are laid out. */
static void window__behind_a_pack__each_row_once(int fit, uint32_t items) {
    static uint64_t plain[TOKENS], mixed[TOKENS], rest[TOKENS];
    static dlp_state states[TOKENS];
    dlp_node nodes[] = {list_(), expand_(), pack_(), batch_(1), batch_(1)};
    inside_state never, other;
    uint32_t n, moved = 0;
    memset(&now_, 0, sizeof now_);
    nodes[2].pack.rule = fit ? DLP_PACK_FIT : DLP_PACK_CUT;
    nodes[2].pack.window = fit ? 10 : 0;
    n = rows_of(nodes, 4, NULL, plain, NULL);
    nodes[3] = (dlp_node){.name = "rows", .verb = DLP_WINDOW, .window = {.items = items}};
    CHECK(n > 20 && rows_of(nodes, 5, NULL, mixed, states) == n);
    for (uint32_t k = 0; k + 1 < n; k += 3)
        CHECK(rows_of(nodes, 5, &states[k], rest, NULL) == n - k - 1 &&
              memcmp(rest, &mixed[k + 1], (n - k - 1) * sizeof *rest) == 0);
    memcpy(&other, &states[1], sizeof other);
    memcpy(&never, &states[0], sizeof never);
    memcpy(never.sampler, other.sampler, sizeof never.sampler);
    never.sampler_bytes = other.sampler_bytes;
    inside_state_seal(&never);
    memcpy(&states[0], &never, sizeof never); /* more rows of the window than were given */
    CHECK(items == 2 || rows_of(nodes, 5, &states[0], rest, NULL) == 0);
    for (uint32_t k = 0; k < n; k++) moved += plain[k] != mixed[k];
    CHECK(moved > n / 4);
    for (uint32_t k = 0; k < n; k += items) {
        const uint32_t many = n - k < items ? n - k : items;
        qsort(plain + k, many, sizeof *plain, by_value);
        qsort(mixed + k, many, sizeof *mixed, by_value);
    }
    CHECK(memcmp(plain, mixed, n * sizeof *plain) == 0);
}

/* ---- what is refused ---- */

/* ---- a cache of documents ---- */

static uint32_t *reads_; /* of all processes */

static int read_counted(void *user, dlp_item *it) {
    (void)user;
    __atomic_add_fetch(reads_, 1, __ATOMIC_SEQ_CST);
    if (it->index % 17 == 3 && __atomic_fetch_add(&reads_[1], 1, __ATOMIC_SEQ_CST) < reads_[2])
        raise(SIGKILL);
    return put(it, it->index, 0);
}

typedef struct kept { /* what the batches have, and the state after each of them */
    uint64_t hash;
    uint32_t n;
    dlp_state state[200];
    dlp_stats stats;
} kept;

static void run_kept(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc, kept *to) {
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc;
    to->hash = 0;
    to->n = 0;
    CHECK(dlp_pipe_open(&p, nodes, n, desc, &err) == DLP_OK);
    if (p == NULL) {
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
        return;
    }
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && to->n < 200) {
        for (uint32_t f = 0; f < b->n_fields; f++)
            for (uint64_t i = 0; i < b->fields[f].bytes; i++)
                to->hash = dlp_hash(to->hash, ((const uint8_t *)b->fields[f].data)[i], f, 0);
        CHECK(dlp_pipe_state(p, b, &to->state[to->n++]) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && dlp_pipe_stats(p, &to->stats) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* With the cache batches and states are as without, in each epoch, and after a resume. Documents
   are read once. how: 0: one of each input; 1: those that an expand makes; 2: fitted. */
static void cache__before_a_pack__the_same_rows(int how, int32_t workers, int processes) {
    static kept with, without;
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1};
    dlp_node nodes[7] = {list_()};
    dlp_pipe_desc desc = {.epochs = 3, .seed = 4, .shm = &shm};
    uint32_t n = 1, cache, reads;
    memset(&now_, 0, sizeof now_);
    memset(reads_, 0, 4 * sizeof *reads_);
    nodes[0].list.shuffle = 1;
    nodes[n] = how == 1 ? expand_() : read_();
    nodes[n].fetch.fetch = how == 1 ? nodes[n].fetch.fetch : read_counted;
    nodes[n].workers.num_workers = workers;
    nodes[n++].workers.placement = processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    if (how == 1) nodes[n++] = keep_();
    cache = n;
    nodes[n++] = pack_();
    if (how == 2) nodes[n - 1].pack.rule = DLP_PACK_FIT;
    nodes[n++] = batch_(4);
    run_kept(nodes, n, &desc, &without);
    reads = *reads_;
    memset(reads_, 0, 4 * sizeof *reads_);
    reads_[2] = processes ? 2 : 0; /* workers die in the callback */
    memmove(&nodes[cache + 1], &nodes[cache], (n++ - cache) * sizeof *nodes);
    nodes[cache] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 20}};
    run_kept(nodes, n, &desc, &with);
    CHECK(with.n == without.n && with.hash == without.hash);
    CHECK(memcmp(with.state, without.state, with.n * sizeof *with.state) == 0);
    CHECK(with.stats.cache_hits + with.stats.cache_misses >= 3 * INPUTS);
    CHECK(with.stats.cache_hits >= INPUTS && (how == 1 || *reads_ < reads * 3 / 4));
    for (uint32_t k = 5; k < without.n; k += 11) {
        static kept rest, want;
        desc.resume = &without.state[k];
        run_kept(nodes, n, &desc, &rest);
        memmove(&nodes[cache], &nodes[cache + 1], (n - 1 - cache) * sizeof *nodes);
        run_kept(nodes, n - 1, &desc, &want);
        memmove(&nodes[cache + 1], &nodes[cache], (n - 1 - cache) * sizeof *nodes);
        nodes[cache] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 20}};
        CHECK(rest.n == want.n && rest.hash == want.hash);
    }
}

static void refused(const dlp_node *nodes, uint32_t n, const char *stage, const char *field,
                    const char *words) {
    dlp_error err = {.code = 0};
    dlp_plan plan;
    CHECK(dlp_nodes_plan(nodes, n, NULL, &plan, &err) < 0);
    if (strcmp(err.stage, stage) != 0 || strcmp(err.field, field) != 0 ||
        strstr(err.message, words) == NULL)
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
    CHECK(strcmp(err.stage, stage) == 0 && strcmp(err.field, field) == 0);
    CHECK(strstr(err.message, words) != NULL);
}

static void table__what_is_not_possible__refused(void) {
    dlp_node nodes[] = {list_(), expand_(), pack_(), batch_(4)};
    dlp_node many[14] = {list_(), expand_()};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static const dlp_field fixed = {.name = "x", .dtype = DLP_U32, .ndim = 1, .shape = {4}};
    nodes[1].expand.shuffle_items = 1;
    refused(nodes, 4, "expand", "expand.shuffle_items", "before a pack");
    nodes[1].expand.shuffle_items = 0;
    nodes[1].expand.max_out = 1 << 30;
    refused(nodes, 4, "pack", "tokens", "2^31");
    nodes[1].expand.max_out = 4;
    nodes[1].expand.fields = &fixed;
    nodes[1].expand.n_fields = 1;
    refused(nodes, 4, "expand", "fields[].shape", "ragged");
    memcpy(many, nodes, 3 * sizeof *nodes);
    many[1] = read_();
    many[3] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 20}};
    many[4] = batch_(4);
    refused(many, 5, "kept", "", "stands behind a pack; write it above");
    many[3] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 4}};
    CHECK(dlp_nodes_plan(many, 5, NULL, &(dlp_plan){0}, NULL) == DLP_OK);
    many[3].window.items = 1 << 22; /* sequences, each of up to 8 documents */
    many[0].list.n_items = 1 << 24;
    refused(many, 5, "pack", "queue.capacity", "window.items");
    many[3].window.items = 1 << 24;
    many[2].pack.max_segments = 5;
    refused(many, 5, "pack", "window.items", "over 2^26 segments");
    many[0] = list_();
    many[1] = expand_();
    for (int i = 0; i < 8; i++) {
        many[2 + i] = keep_();
        many[2 + i].name = names[i];
    }
    many[10] = pack_();
    many[11] = batch_(4);
    refused(many, 12, "pack", "", "eight filters");
    memmove(&many[9], &many[10], 2 * sizeof *many);
    CHECK(dlp_nodes_plan(many, 11, NULL, &(dlp_plan){0}, NULL) == DLP_OK);
    memset(&now_, 0, sizeof now_);
}

int main(void) {
    reads_ = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reads_ == MAP_FAILED) return 1;
    for (int how = 0; how < 3; how++) {
        cache__before_a_pack__the_same_rows(how, DLP_NONE, 0);
        cache__before_a_pack__the_same_rows(how, 3, 0);
        cache__before_a_pack__the_same_rows(how, 2, 1);
    }
    for (int fit = 0; fit < 2; fit++)
        for (uint32_t least = 0; least <= MOST; least += 3) {
            cells__fewest__get_on(fit, 0, least);
            if (!fit) cells__fewest__get_on(fit, 1, least);
        }
    min_documents__fewer__an_error_of_the_input();
    for (int loads = 0; loads < 2; loads++)
        for (int how = BY_CALLBACK; how <= BY_LENGTH; how++)
            document__fails__named_or_left_out(loads, how);
    push__documents_of_each_record__packed(DLP_NONE);
    push__documents_of_each_record__packed(3);
    for (int fit = 0; fit < 2; fit++)
        for (uint32_t items = 2; items < 40; items += 9)
            window__behind_a_pack__each_row_once(fit, items);
    table__what_is_not_possible__refused();
    return test_end("packs");
}
