/* needs: parts pack mix join cache out */
/* Where rows came from: each item says itself of which list, input and number it is, and each row
   of a batch with trace_rows must tell the same. So it is in tables of all kinds, with retries and
   replacements, killed workers, resumes, outs and subscribers. Rows, order and states are those of
   the table without trace_rows. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../rig/digest.h"
#include "../../rig/sanitizers.h"

enum { ITEMS = 90, ROWS = 8, BATCHES = 600, STEP = RIG_ASAN || RIG_TSAN ? 60 : 13 };

static struct shared { uint32_t calls, kills; } * all_;
static uint32_t kill_every_;
static pid_t caller_;
static dlp_mix *mix_;

static void die_now_and_then(void) {
    const uint32_t n = __atomic_add_fetch(&all_->calls, 1, __ATOMIC_RELAXED);
    /* Not every so many calls: a run of rows is done again if its worker dies in it, and each time
       at the same row. */
    if (kill_every_ == 0 || dlp_hash(n, 9, 0, 0) % kill_every_ != 0 || getpid() == caller_) return;
    __atomic_add_fetch(&all_->kills, 1, __ATOMIC_RELAXED);
    kill(getpid(), SIGKILL);
}

/* ---- items ---- */

#define AT(field) \
    { \
        .name = field, .dtype = DLP_U64, .ndim = 1, .shape = { 3 } \
    }
static const dlp_field at_[1] = {AT("at")}, bt_[1] = {AT("bt")};
static const dlp_field ragged_[2] = {
    AT("at"), {.name = "text", .dtype = DLP_U8, .ndim = 1, .shape = {9}, .ragged = 1}};
static const dlp_field long_[2] = {AT("at"),
                                   {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {900}}};
static const uint64_t lists_[2] = {0, 1};

static uint64_t made_of(uint64_t list, uint64_t index, uint64_t item) {
    return dlp_hash(list, index, item, 1) % 5;
}
static int is_kept(const uint64_t *at) { return dlp_hash(at[0], at[1], at[2], 2) % 3 != 0; }

static void put(dlp_item *it, uint64_t list, uint64_t index, uint64_t number) {
    uint64_t *at = it->data[0];
    at[0] = list, at[1] = index, at[2] = number;
    if (it->n_fields > 1 && it->length != NULL) it->length[1] = (index + number) % 9;
}

/* Some inputs come at the second try. user: the number of the list. */
static int fetch(void *user, dlp_item *it) {
    die_now_and_then();
    if (it->attempt == 0 && dlp_hash(it->index, 3, 0, 0) % 6 == 0)
        return dlp_fail(it->call, 5, "once");
    put(it, *(const uint64_t *)user, it->index, it->part != NULL ? it->part->item : 0);
    return 0;
}
static int fetch_mixed(void *user, dlp_item *it) {
    uint32_t list;
    uint64_t item;
    (void)user;
    die_now_and_then();
    dlp_mix_locate(mix_, it->index, &list, &item);
    put(it, list, it->index, 0);
    return 0;
}
static int fetch_text(void *user, dlp_item *it) {
    (void)user;
    it->length[0] = it->index % 9;
    return 0;
}
static int load(void *user, dlp_part *part) {
    die_now_and_then();
    if (part->attempt == 0 && part->index % 9 == 4) return dlp_fail(part->call, 5, "once");
    if (user == NULL) part->items = made_of(7, part->index, 0);
    return 0;
}
static int count(void *user, uint64_t part, uint64_t *items) {
    (void)user;
    *items = made_of(7, part, 0);
    return 0;
}
static int fetch_counted(void *user, dlp_item *it) {
    (void)user;
    die_now_and_then();
    put(it, 0, it->index, it->part != NULL ? it->part->item : 0);
    return 0;
}
/* An expand behind a load numbers the items of the whole part. */
static int expand(void *user, dlp_expand *x) {
    const uint64_t *at = x->item->data[0];
    const uint64_t item = x->item->part != NULL ? x->item->part->item : 0;
    uint64_t before = 0;
    (void)user;
    die_now_and_then();
    for (uint64_t i = 0; i < item; i++) before += made_of(at[0], at[1], i);
    for (uint64_t k = 0; k < made_of(at[0], at[1], item); k++)
        put(dlp_expand_add(x), at[0], at[1], before + k);
    return 0;
}
static int twice(void *user, dlp_expand *x) {
    const uint64_t *at = x->item->data[0];
    (void)user;
    die_now_and_then();
    for (uint64_t k = 0; k < 2; k++) put(dlp_expand_add(x), at[0], at[1], k);
    return 0;
}
static int keep(void *user, const dlp_item *it) {
    (void)user;
    die_now_and_then();
    return is_kept(it->data[0]);
}
/* Some items never come, so that another one takes their row. user: they are of parts. */
static int never(void *user, dlp_item *it) {
    const uint64_t *at = it->data[0];
    const int bad = user != NULL ? at[2] == 1 : dlp_hash(at[0], at[1], 4, 4) % 5 == 0;
    die_now_and_then();
    return bad ? dlp_fail(it->call, 6, "never") : 0;
}

/* ---- tables ---- */

enum {
    PLAIN,
    MIXED,      /* the datasets of a list's mix, in one fetch */
    OF_MIX,     /* and in two */
    MIXED_KEPT, /* and before a filter */
    COUNTED,    /* parts whose items are counted */
    LOADED,     /* parts whose items nobody has counted; some rows are given to other items */
    LOAD_KEPT,  /* and a filter */
    LOAD_MADE,  /* and an expand and a filter */
    MADE,       /* an expand, a filter, a window */
    CACHED,     /* and a cache */
    RAGGED,
    BOXED, /* cells would take too much memory */
    MIX,   /* branches: an expand and a filter; a fetch */
    ZIP,
    MIX_KEPT, /* and a filter and a window behind them */
    MIX_MADE, /* and an expand */
    ZIP_MADE,
    PACKED,
    KINDS
};
static const char *const names_[KINDS] = {
    "plain",        "mixed",        "of mix",    "mixed, kept", "counted",   "loaded",
    "loaded, kept", "loaded, made", "made",      "cached",      "ragged",    "boxed",
    "mix",          "zip",          "mix, kept", "mix, made",   "zip, made", "packed"};

typedef struct table {
    int kind, processes, traced;
    uint32_t streams, outs;
    const dlp_state *resume;
    const dlp_shm_desc *shm;
} table;

static int joins(int kind) { return kind >= MIX && kind <= ZIP_MADE; }
static int zips(int kind) { return kind == ZIP || kind == ZIP_MADE; }

#define ADD(...) \
    nodes[n++] = (dlp_node) { __VA_ARGS__ }

static int open_table(const table *t, dlp_pipe **p, dlp_error *err) {
    static const dlp_shm_desc shm = {.max_kills = 100};
    static const char *from[] = {"kept", "more", NULL}, *of_batch[] = {"batch", NULL};
    static const uint64_t weights[] = {3, 2};
    const dlp_workers_desc works = {
        .num_workers = 2, .retries = 2, .placement = t->processes ? DLP_PLACE_PROCESSES : 0};
    const int kind = t->kind, loads = kind >= COUNTED && kind <= LOAD_MADE;
    const int mixed = kind >= MIXED && kind <= MIXED_KEPT;
    const dlp_field *f = kind == RAGGED ? ragged_ : kind == BOXED ? long_ : at_;
    const dlp_node_fetch own = {.fetch = fetch,
                                .user = (void *)(uintptr_t)&lists_[0],
                                .fields = f,
                                .n_fields = f == at_ ? 1 : 2};
    const dlp_pipe_desc d = {.seed = 5,
                             .epochs = 2,
                             .streams = t->streams,
                             .trace_rows = t->traced,
                             .resume = t->resume,
                             .shm = t->shm != NULL ? t->shm
                                    : t->processes ? &shm
                                                   : NULL};
    dlp_node nodes[16];
    uint32_t n = 0;
    ADD(.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1});
    if (mixed) nodes[0].list = (dlp_node_list){.mix = mix_};
    if (loads) {
        ADD(.name = "load", .verb = DLP_LOAD, .workers = works,
            .load = {.load = load,
                     .max_part_bytes = 8,
                     .max_items = 4,
                     .shuffle_items = kind != LOAD_MADE});
        if (kind == COUNTED) {
            nodes[1].load.max_items = 0;
            nodes[1].load.count = count;
            nodes[1].load.user = all_;
        }
    }
    ADD(.name = "read", .verb = DLP_FETCH, .fetch = own, .workers = works);
    if (mixed && kind != OF_MIX) nodes[n - 1].fetch.fetch = fetch_mixed;
    if (kind == OF_MIX) {
        nodes[n - 1].fetch.of = 1;
        ADD(.name = "second", .verb = DLP_FETCH, .fetch = own, .workers = works);
        nodes[n - 1].fetch.user = (void *)(uintptr_t)&lists_[1];
        nodes[n - 1].fetch.of = 2;
    }
    if (loads) nodes[n - 1].fetch.fetch = fetch_counted;
    if (loads) nodes[n - 1].workers = (dlp_workers_desc){.num_workers = kind < LOAD_KEPT};
    if (kind < MIXED_KEPT || kind == COUNTED || kind == LOADED) {
        if (t->processes) nodes[n - 1].workers.placement = DLP_PLACE_PROCESSES;
        if (kind != OF_MIX) nodes[n - 1].workers.retries = 0;
        if (!loads && kind != OF_MIX)
            nodes[n - 1].fetch.fetch = kind == PLAIN ? fetch_counted : fetch_mixed;
    }
    if (kind == LOAD_MADE || kind >= MADE)
        if (kind != PACKED)
            ADD(.name = "made", .verb = DLP_EXPAND,
                .expand = {.expand = expand,
                           .max_out = kind == BOXED ? 4000 : 4,
                           .fields = f,
                           .n_fields = f == at_ ? 1 : 2});
    if (kind == MIXED_KEPT || kind == LOAD_KEPT || kind == LOAD_MADE ||
        (kind >= MADE && kind != PACKED))
        ADD(.name = "kept", .verb = DLP_FILTER, .filter = {.keep = keep});
    if (joins(kind)) {
        ADD(.name = "others", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1});
        ADD(.name = "more", .verb = DLP_FETCH, .fetch = own, .workers = works);
        nodes[n - 1].fetch.user = (void *)(uintptr_t)&lists_[1];
        if (zips(kind)) nodes[n - 1].fetch.fields = bt_;
        ADD(.name = "both", .verb = zips(kind) ? DLP_ZIP : DLP_MIX, .from = from);
        if (!zips(kind)) nodes[n - 1].mix.weights = weights;
    }
    if (kind == MIX_MADE || kind == ZIP_MADE)
        ADD(.name = "twice", .verb = DLP_EXPAND,
            .expand = {.expand = twice, .max_out = 2, .fields = at_, .n_fields = 1});
    if (kind == MIX_KEPT || kind == MIX_MADE || kind == ZIP_MADE)
        ADD(.name = "again", .verb = DLP_FILTER, .filter = {.keep = keep});
    if (kind == CACHED) ADD(.name = "cache", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16});
    if (kind == MADE || kind == CACHED || kind == RAGGED || kind == BOXED || kind == MIX_KEPT)
        ADD(.name = "window", .verb = DLP_WINDOW, .window = {.items = 20});
    if (kind == PACKED) {
        nodes[n - 1].fetch.fields = &ragged_[1];
        nodes[n - 1].fetch.n_fields = 1;
        nodes[n - 1].fetch.fetch = fetch_text;
        ADD(.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 4});
    }
    if (kind < MIXED_KEPT || kind == COUNTED || kind == LOADED)
        ADD(.name = "never", .verb = DLP_MAP, .map = {.item = never, .user = loads ? all_ : NULL},
            .workers = {
                .num_workers = 1, .on_error = DLP_ON_ERROR_REPLACE, .placement = works.placement});
    ADD(.name = "batch", .verb = DLP_BATCH,
        .batch = {.batch_size = ROWS * (t->streams ? t->streams : 1), .last = DLP_LAST_PARTIAL});
    if (t->outs) {
        ADD(.name = "train", .verb = DLP_OUT);
        ADD(.name = "log", .from = of_batch, .verb = DLP_OUT);
    }
    return dlp_pipe_open(p, nodes, n, &d, err);
}

/* ---- runs ---- */

typedef struct kept {
    uint64_t rows;
    dlp_state state;
} kept;
static kept base_[BATCHES], other_[BATCHES];
static uint64_t seen_[2], numbers_; /* rows of each list; rows with a number above 0 */

/* True if each row of a batch tells where it came from. */
static bool tells(const table *t, const dlp_batch *b) {
    bool ok = true;
    if (!t->traced || t->kind == PACKED) return b->list == NULL && b->number == NULL;
    if (b->list == NULL || b->number == NULL) return false;
    for (uint32_t r = 0; r < b->count && ok; r++) {
        const uint64_t *at = (const uint64_t *)b->fields[0].data + (size_t)r * 3;
        uint64_t index = b->index[r];
        uint32_t list = 0;
        if (!b->valid[r]) continue;
        if (t->kind == OF_MIX) ok &= dlp_mix_locate(mix_, index, &list, &index) == DLP_OK;
        ok &= b->list[r] == at[0] && index == at[1] && b->number[r] == at[2];
        if (!ok)
            printf("row %d: list %d, input %d, number %d; told: %d, %d, %d\n", (int)r, (int)at[0],
                   (int)at[1], (int)at[2], b->list[r], (int)index, (int)b->number[r]);
        seen_[at[0] & 1]++;
        numbers_ += at[2] > 0;
    }
    return ok;
}

/* Run a table, and note its batches in `to`. Returns how many there are, or a code. */
static int run(const table *t, kept *to) {
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int n = 0, rc = open_table(t, &p, &err);
    bool ok = true;
    while (rc == DLP_OK && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && n < BATCHES) {
        ok &= tells(t, b);
        to[n].rows = digest_batch(b);
        CHECK(dlp_pipe_state(p, b, &to[n++].state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    if (p != NULL && rc != DLP_END) err = *dlp_pipe_error(p);
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
    if (!ok || rc != DLP_END)
        printf("%s: %s %s: %s\n", names_[t->kind], err.stage, err.field, err.message);
    return !ok ? -1 : rc == DLP_END ? n : rc;
}

static int alike(const kept *a, const kept *b, int n) {
    int same = 0;
    while (same < n && a[same].rows == b[same].rows &&
           memcmp(&a[same].state, &b[same].state, sizeof a->state) == 0)
        same++;
    return same;
}

static void rows__any_table__tell_their_items(int kind) {
    table t = {.kind = kind, .streams = kind > COUNTED ? 2 : 0};
    kill_every_ = 0;
    const int n = run(&t, base_);
    CHECK(n > 4);
    t.traced = 1;
    seen_[0] = seen_[1] = numbers_ = 0;
    CHECK(run(&t, other_) == n && alike(base_, other_, n) == n);
    CHECK(kind == PACKED || seen_[0] > 20);
    CHECK((seen_[1] > 20) ==
          ((kind >= MIXED && kind <= MIXED_KEPT) || (joins(kind) && !zips(kind))));
    CHECK((numbers_ > 20) == (kind >= COUNTED && kind != PACKED));
    for (int at = STEP / 2; at < n - 1; at += STEP) {
        t.resume = &base_[at].state;
        t.processes = at / STEP % 2;
        kill_every_ = t.processes ? 29 : 0;
        CHECK(run(&t, other_) == n - at - 1);
        CHECK(alike(base_ + at + 1, other_, n - at - 1) == n - at - 1);
    }
}

/* An out, and a program that subscribes, are told the same as the consumer. */
static void others__take_batches__told_alike(int kind, int subscribes) {
    char name[64];
    const dlp_shm_desc share = {.name = name, .share = DLP_SHARE_EACH, .wait_subscribers = 1};
    table t = {.kind = kind, .traced = 1, .outs = !subscribes, .shm = subscribes ? &share : NULL};
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_out *out = NULL;
    dlp_subscriber *other = NULL;
    dlp_batch *b, *o;
    int n = 0, rc;
    snprintf(name, sizeof name, "traced-%d", (int)getpid());
    kill_every_ = 0;
    CHECK(open_table(&t, &p, &err) == DLP_OK);
    if (p == NULL) return;
    if (subscribes) CHECK(dlp_subscriber_open(&other, name, NULL, &err) == DLP_OK);
    if (!subscribes) CHECK(dlp_out_find(p, "log", &out) == DLP_OK);
    if (subscribes && other == NULL) {
        printf("%s: %s\n", names_[kind], err.message);
        dlp_pipe_close(p);
        return;
    }
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        rc = subscribes ? dlp_subscriber_next_timeout(other, &o, 20000)
                        : dlp_out_next(out, &o, 20000);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) break;
        CHECK(tells(&t, b) && tells(&t, o) && b->list != NULL && b->count == o->count);
        CHECK(memcmp(b->list, o->list, b->count * sizeof *b->list) == 0);
        CHECK(memcmp(b->number, o->number, b->count * sizeof *b->number) == 0);
        if (subscribes)
            dlp_subscriber_release(other, o);
        else
            dlp_out_release(out, o);
        dlp_pipe_release(p, b);
        n++;
    }
    CHECK(rc == DLP_END && n > 4);
    if (subscribes) dlp_subscriber_close(other);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    const uint64_t n_items[2] = {ITEMS - 25, 25}, weights[2] = {3, 2};
    dlp_error err;
    caller_ = getpid();
    all_ = mmap(NULL, sizeof *all_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(dlp_mix_open(&mix_,
                       &(dlp_mix_desc){
                           .n = 2, .n_items = n_items, .weights = weights, .shuffle = 1, .seed = 5},
                       &err) == DLP_OK);
    for (int kind = 0; kind < KINDS; kind++) rows__any_table__tell_their_items(kind);
    for (int subscribes = 0; subscribes < 2; subscribes++)
        others__take_batches__told_alike(MIX_MADE, subscribes);
    for (int kind = MIXED; kind < PACKED; kind++) /* the parts of a slot lie elsewhere in each */
        others__take_batches__told_alike(kind, 1);
    CHECK(all_->kills > (STEP > 13 ? 5 : 50));
    dlp_mix_close(mix_);
    return test_end("traced");
}
