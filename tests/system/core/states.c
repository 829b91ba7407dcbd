/* needs: pack lines tokens */
/* Eight pipes: the bytes of their batches and their states are the same on each system, and a state
   that one system saved is resumed by another.

     states              the bytes and the states against the numbers below; each state is resumed
     states DIR          ... and DIR gets the states, which another system is to resume
     states DIR OTHER    ... and the states that another system has left in OTHER are resumed, too

   tests/compile/matrix has two systems do so in turn: windows/states, musl/states. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/digest.h"
#include "../../rig/source_rig.h"

#define SEED UINT64_C(0xcbf29ce484222325)
#define SIZE \
    "gr\xc3\xb6\xc3\x9f" \
    "e" /* a name beyond ASCII */

enum { ITEMS = 600, LONGEST = 48, PIECE = 8, BATCH = 8, SAVED = 7, WORKERS = 2 };

/* ---- items that are made up ---- */

static const dlp_field text_ = {
    .name = "text", .dtype = DLP_U16, .ndim = 1, .shape = {LONGEST}, .ragged = 1};
static const dlp_field piece_ = {.name = "piece", .dtype = DLP_U16, .ndim = 1, .shape = {PIECE}};
static const dlp_field number_ = {.name = "number", .dtype = DLP_U64};
static const dlp_field bytes_ = {.name = "bytes", .dtype = DLP_U8, .ndim = 1, .shape = {32}};

static int fetch_text(void *user, dlp_item *item) {
    uint16_t *to = item->data[0];
    (void)user;
    item->length[0] = 1 + dlp_hash(item->index, 1, 0, 0) % LONGEST;
    for (uint64_t i = 0; i < item->length[0]; i++) to[i] = (uint16_t)(item->index + i * i);
    return 0;
}

static int fetch_number(void *user, dlp_item *item) {
    const uint64_t random = dlp_item_random(item, 3);
    (void)user;
    memcpy(item->data[0], &random, sizeof random);
    return 0;
}

static int is_long(void *user, const dlp_item *item) {
    return (void)user, item->length[0] >= LONGEST / 3;
}

static int cut(void *user, dlp_expand *x) {
    const uint16_t *from = x->item->data[0];
    (void)user;
    for (uint64_t i = 0; i + PIECE <= x->item->length[0]; i += PIECE) {
        dlp_item *made = dlp_expand_add(x);
        if (made == NULL) return DLP_ERR_LENGTH;
        memcpy(made->data[0], from + i, PIECE * sizeof *from);
    }
    return 0;
}

static int decode(void *user, void *own, dlp_item *item, const void *bytes, uint64_t n) {
    (void)user, (void)own;
    memset(item->data[0], 0, 32);
    memcpy(item->data[0], bytes, n < 32 ? (size_t)n : 32);
    return 0;
}

/* ---- the pipes ---- */

typedef struct opened { /* a pipe, and what it borrows */
    dlp_pipe *pipe;
    dlp_source *source;
    dlp_folder *folder;
    dlp_mix *mix;
    dlp_error err;
} opened;

static const dlp_node batch_ = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}};

static dlp_node list_of(uint64_t n) {
    return (dlp_node){.name = "items", .verb = DLP_LIST, .list = {.n_items = n, .shuffle = 1}};
}
static dlp_node text_by(int32_t workers) {
    return (dlp_node){.name = "text",
                      .verb = DLP_FETCH,
                      .fetch = {.fetch = fetch_text, .fields = &text_, .n_fields = 1},
                      .workers = {.num_workers = workers}};
}
static int table(opened *o, const dlp_node *nodes, uint32_t n, const dlp_state *from) {
    const dlp_pipe_desc desc = {.seed = 5, .epochs = 2, .resume = from};
    return dlp_pipe_open(&o->pipe, nodes, n, &desc, &o->err);
}

/* A loader of d, with what all loaders here have. */
static int loaded(opened *o, dlp_loader_desc d, const dlp_state *from, int32_t workers) {
    d.batch_size = BATCH;
    d.num_workers = workers;
    d.epochs = 2;
    d.pipe.resume = from;
    return dlp_loader_open(&o->pipe, &d, &o->err);
}

/* All items of the source, which was opened with this result. */
static int sourced(opened *o, int rc, const dlp_state *from, int32_t workers) {
    const dlp_loader_desc d = {.source = o->source, .shuffle = 1, .seed = 5};
    return rc == DLP_OK ? loaded(o, d, from, workers) : rc;
}

static int loader(opened *o, const dlp_state *from, int32_t workers) {
    const dlp_loader_desc d = {
        .dataset = {.fields = &number_, .n_fields = 1, .n_items = 100, .fetch = fetch_number},
        .shuffle = 1,
        .seed = 5};
    return loaded(o, d, from, workers);
}

static int mixture(opened *o, const dlp_state *from, int32_t workers) {
    static const uint64_t n_items[] = {90, 40, 70}, weights[] = {5, 2, 3};
    const dlp_mix_desc m = {
        .n = 3, .n_items = n_items, .weights = weights, .shuffle = 1, .seed = 5};
    dlp_loader_desc d = {.dataset = {.fields = &number_, .n_fields = 1, .fetch = fetch_number}};
    int rc = dlp_mix_open(&o->mix, &m, &o->err);
    if (rc != DLP_OK) return rc;
    d.dataset.n_items = dlp_mix_items(o->mix);
    dlp_mix_sampler(o->mix, &d.sampler);
    return loaded(o, d, from, workers);
}

static int pack(opened *o, const dlp_state *from, int32_t workers) {
    const dlp_node nodes[] = {
        list_of(ITEMS),
        text_by(workers),
        {.name = "rows", .verb = DLP_PACK, .pack = {.tokens = 64, .rule = DLP_PACK_FIT}},
        batch_};
    return table(o, DLP_NODES(nodes), from);
}

static int makers(opened *o, const dlp_state *from, int32_t workers) {
    const dlp_node nodes[] = {
        list_of(ITEMS),
        text_by(workers),
        {.name = "long", .verb = DLP_FILTER, .filter = {.keep = is_long}},
        {.name = "cut",
         .verb = DLP_EXPAND,
         .expand = {.expand = cut, .max_out = LONGEST / PIECE, .fields = &piece_, .n_fields = 1}},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = 50}},
        batch_};
    return table(o, DLP_NODES(nodes), from);
}

static int zip(opened *o, const dlp_state *from, int32_t workers) {
    static const char *const from_both[] = {"long", "numbers", NULL};
    const dlp_node nodes[] = {
        list_of(ITEMS),
        text_by(workers),
        {.name = "long", .verb = DLP_FILTER, .filter = {.keep = is_long}},
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "numbers",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_number, .fields = &number_, .n_fields = 1}},
        {.name = "both", .from = from_both, .verb = DLP_ZIP},
        batch_};
    return table(o, DLP_NODES(nodes), from);
}

static int tokens(opened *o, const dlp_state *from, int32_t workers) {
    const dlp_tokens_desc d = {.pattern = in_rig(SIZE "/shard_?.bin"), .length = 15};
    return sourced(o, dlp_tokens_open(&o->source, &d, &o->err), from, workers);
}

static int folder(opened *o, const dlp_state *from, int32_t workers) {
    static const char *const raw[] = {"raw"};
    const dlp_folder_desc f = {.path = in_rig("classes"), .extensions = raw, .n_extensions = 1};
    int rc = dlp_folder_open(&o->folder, &f, &o->err);
    if (rc != DLP_OK) return rc;
    const dlp_files_desc d = {.n_items = o->folder->n_files,
                              .paths = o->folder->paths,
                              .fields = &bytes_,
                              .n_fields = 1,
                              .decode = decode,
                              .max_bytes = 32};
    return sourced(o, dlp_files_open(&o->source, &d, &o->err), from, workers);
}

static int lines(opened *o, const dlp_state *from, int32_t workers) {
    const dlp_lines_desc d = {.path = in_rig("lines"), .index = ""};
    return sourced(o, dlp_lines_open(&o->source, &d, &o->err), from, workers);
}

/* The sum of all batches, and of the state behind batch SAVED. */
static const struct {
    const char *name;
    int (*open)(opened *o, const dlp_state *from, int32_t workers);
    uint64_t batches, state;
} pipes_[] = {
    {"loader", loader, UINT64_C(0x709057d3497ef8b9), UINT64_C(0xb1abb526cd54ce73)},
    {"mixture", mixture, UINT64_C(0xdc70b94905fb789d), UINT64_C(0xe8fd05d1ae954881)},
    {"pack", pack, UINT64_C(0x4faa4866b3d1b502), UINT64_C(0x0df2f11fea7ffa8c)},
    {"makers", makers, UINT64_C(0xb4fca34577797647), UINT64_C(0x930f767d6480ac68)},
    {"zip", zip, UINT64_C(0x1ce983f597461ac6), UINT64_C(0x8411f412fea9df5a)},
    {"tokens", tokens, UINT64_C(0x87937e25e35ae635), UINT64_C(0xa0649982231cece0)},
    {"folder", folder, UINT64_C(0xa9f77f2e9632a79a), UINT64_C(0x575bae2116d50840)},
    {"lines", lines, UINT64_C(0x4f82db275f527da9), UINT64_C(0xed59093c97b96812)},
};
enum { PIPES = sizeof pipes_ / sizeof *pipes_ };

/* ---- the files ---- */

static void directory(const char *name) { CHECK(mkdir(in_rig(name), 0700) == 0); }

static void write_files(void) {
    static const char *const classes[] = {"a", SIZE, "\xe6\x97\xa5\xe6\x9c\xac"};
    char text[4000], name[100];
    uint16_t shard[500];
    size_t n = 0;
    directory(SIZE);
    for (unsigned s = 0; s < 3; s++) {
        for (unsigned i = 0; i < 500; i++) shard[i] = (uint16_t)(dlp_hash(s, i, 0, 0) % 50000);
        snprintf(name, sizeof name, SIZE "/shard_%u.bin", s);
        rig_write(name, shard, sizeof shard - 100 * s);
    }
    directory("classes");
    for (unsigned c = 0; c < 3; c++) {
        snprintf(name, sizeof name, "classes/%s", classes[c]);
        directory(name);
        for (unsigned i = 0; i < 30; i++) {
            snprintf(name, sizeof name, "classes/%s/%u.raw", classes[c], i);
            rig_write(name, name, 16 + i % 8);
        }
    }
    for (unsigned i = 0; i < 90; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "line %u%.*s\n", i, (int)(i % 9),
                              "#########");
    rig_write("lines", text, n);
}

/* ---- runs ---- */

static bool begin(opened *o, unsigned which, const dlp_state *from, int32_t workers) {
    *o = (opened){.pipe = NULL};
    CHECK(pipes_[which].open(o, from, workers) == DLP_OK);
    if (o->pipe == NULL) printf("%s: %s: %s\n", pipes_[which].name, o->err.field, o->err.message);
    return o->pipe != NULL;
}

static void end(opened *o) {
    if (o->pipe != NULL) CHECK(dlp_pipe_close(o->pipe) == DLP_OK);
    if (o->source != NULL) CHECK(dlp_source_close(o->source) == DLP_OK);
    if (o->folder != NULL) dlp_folder_close(o->folder);
    if (o->mix != NULL) dlp_mix_close(o->mix);
}

/* Take all batches that are left, and return their sum. saved: the state behind batch SAVED. rest:
   the sum of the batches behind it. Both may be NULL. */
static uint64_t sum_of(dlp_pipe *p, dlp_state *saved, uint64_t *rest) {
    uint64_t sum = SEED;
    dlp_batch *b = NULL;
    int n = 0, rc;
    for (; (rc = dlp_pipe_next(p, &b)) == DLP_OK; n++) {
        const uint64_t one = digest_batch(b);
        sum = dlp_hash(sum, one, 0, 0);
        if (rest != NULL && n > SAVED) *rest = dlp_hash(*rest, one, 0, 0);
        if (saved != NULL && n == SAVED) CHECK(dlp_pipe_state(p, b, saved) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && n > 2);
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    return sum;
}

/* Check that the batches that follow a state are those that followed it there, where it
   was saved. */
static void resumed(unsigned which, const dlp_state *from, uint64_t rest) {
    opened o;
    if (begin(&o, which, from, WORKERS + 1)) CHECK(sum_of(o.pipe, NULL, NULL) == rest);
    end(&o);
}

/* The path of a pipe's state in a directory. */
static const char *state_path(const char *dir, unsigned which) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, pipes_[which].name);
    return path;
}

static void leave(const char *dir, unsigned which, const dlp_state *state) {
    FILE *f = fopen(state_path(dir, which), "wb");
    CHECK(f != NULL && fwrite(state, 1, sizeof *state, f) == sizeof *state);
    if (f != NULL) CHECK(fclose(f) == 0);
}

static bool found(const char *dir, unsigned which, dlp_state *to) {
    FILE *f = fopen(state_path(dir, which), "rb");
    const bool whole = f != NULL && fread(to, 1, sizeof *to, f) == sizeof *to;
    CHECK(whole);
    if (f != NULL) fclose(f);
    return whole;
}

static void one(unsigned which, const char *dir, const char *other) {
    opened o;
    dlp_state state = {.bytes = {0}}, theirs;
    uint64_t rest = SEED, sum = 0, of_state;
    if (begin(&o, which, NULL, WORKERS)) sum = sum_of(o.pipe, &state, &rest);
    end(&o);
    of_state = digest_add(SEED, &state, sizeof state);
    printf("%-8s batches %016" PRIx64 ", state %016" PRIx64 "\n", pipes_[which].name, sum,
           of_state);
    CHECK(sum == pipes_[which].batches && of_state == pipes_[which].state);
    resumed(which, &state, rest);
    if (dir != NULL) leave(dir, which, &state);
    if (other != NULL && found(other, which, &theirs)) {
        CHECK(memcmp(&theirs, &state, sizeof state) == 0);
        resumed(which, &theirs, rest);
    }
}

int main(int argc, char **argv) {
    rig_begin("states");
    write_files();
    for (unsigned i = 0; i < PIPES; i++)
        one(i, argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL);
    rig_end();
    return test_end("states");
}
