/* Pipelines as tables: nine of them, on data that are made up. For each table the program prints
   the plan, which says what the pipe will take before anything is allocated, and the rows a second.

     graph [-n items] [-w workers] [-k in_flight] [-q] [-g FILE] [TABLE ...]

   -n items of the list (20000), -w workers of each node that has some (2), -k reads at once (32),
   -q: no plans, -g: nothing runs, and FILE becomes a picture (SVG) of the last table's plan.
   TABLE: economic, classic, speeds, zipped, filtered, packed, mixture, shards, pushed; none: all.

   The checksum is that of all rows in their order. It does not depend on workers or on -k.
   cc -O2 graph.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 16, PIXELS = SIDE * SIDE, LONGEST = 256, PIECE = 16, T = 512, BATCH = 64 };

static uint64_t items = 20000;
static int32_t workers = 2, quiet;
static const char *picture_file;
static uint32_t in_flight = 32;

/* ---- the data: pictures, packed as runs of equal pixels; labels; documents of any length ---- */

static dlp_field packed = {
    .name = "packed", .dtype = DLP_U8, .ndim = 1, .shape = {2 * PIXELS}, .ragged = 1};
static dlp_field picture = {.name = "picture", .dtype = DLP_U8, .ndim = 2, .shape = {SIDE, SIDE}};
static dlp_field label = {.name = "label", .dtype = DLP_I32};
static dlp_field tokens = {
    .name = "tokens", .dtype = DLP_U16, .ndim = 1, .shape = {LONGEST}, .ragged = 1};
static dlp_field piece = {.name = "piece", .dtype = DLP_U16, .ndim = 1, .shape = {PIECE}};

static uint64_t pack(uint64_t index, uint8_t *to) {
    uint64_t n = 0;
    for (uint32_t left = PIXELS, run; left > 0; left -= run, n += 2) {
        run = 1 + (uint32_t)(dlp_hash(index, n, 0, 0) % 32);
        run = run < left ? run : left;
        to[n] = (uint8_t)run;
        to[n + 1] = (uint8_t)(index + n);
    }
    return n;
}

static void unpack(const uint8_t *from, uint64_t n, uint8_t *to) {
    for (uint64_t i = 0; i < n; to += from[i], i += 2) memset(to, from[i + 1], from[i]);
}

/* The bytes come from a store that answers after a millisecond. */
static int read_packed(void *user, dlp_item *item) {
    (void)user;
    poll(NULL, 0, 1);
    item->length[0] = pack(item->index, item->data[0]);
    return 0;
}

/* Sees the field that ends here, and behind it the field that this node adds. */
static int decode(void *user, dlp_item *item) {
    (void)user;
    unpack(item->data[0], item->length[0], item->data[1]);
    return 0;
}

static int read_picture(void *user, dlp_item *item) {
    uint8_t bytes[2 * PIXELS] = {0};
    (void)user;
    unpack(bytes, pack(item->index, bytes), item->data[0]);
    return 0;
}

static int read_label(void *user, dlp_item *item) {
    const int32_t value = (int32_t)(item->index % 10);
    (void)user;
    memcpy(item->data[0], &value, sizeof value);
    return 0;
}

static int read_document(void *user, dlp_item *item) {
    uint16_t *to = item->data[0];
    (void)user;
    item->length[0] = 1 + dlp_hash(item->index, 1, 0, 0) % LONGEST;
    for (uint64_t i = 0; i < item->length[0]; i++) to[i] = (uint16_t)(item->index + i * i);
    return 0;
}

static int is_long(void *user, const dlp_item *document) {
    (void)user;
    return document->length[0] >= LONGEST / 2;
}

/* Cut a document into pieces; what is left of it at its end is no piece. */
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

static int read_piece(void *user, dlp_item *item) {
    uint16_t *to = item->data[0];
    (void)user;
    for (uint64_t i = 0; i < PIECE; i++) to[i] = (uint16_t)(item->index * 3 + i);
    return 0;
}

static int is_even(void *user, const dlp_item *of_pieces) {
    (void)user;
    return *(const uint16_t *)of_pieces->data[0] % 2 == 0;
}

/* ---- a table: its plan, and all of its rows ---- */

static uint64_t hashed(uint64_t hash, const dlp_tensor *t) {
    const uint8_t *bytes = t->data;
    for (uint64_t i = 0; i < t->bytes; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static int said(const char *what, const dlp_error *err) {
    char text[768];
    dlp_error_format(err, text, sizeof text);
    return fprintf(stderr, "%s: %s\n", what, text), 1;
}

/* What a second out has, in a thread of its own: a log that looks at some batches. */
typedef struct logger {
    pthread_t thread;
    dlp_out *out;
    uint64_t batches, missed;
} logger;

static void *logs(void *arg) {
    logger *l = arg;
    dlp_batch *b;
    while (dlp_out_next(l->out, &b, -1) == DLP_OK) {
        poll(NULL, 0, 1); /* it is slow, and the trainer does not wait for it */
        l->batches++;
        dlp_out_release(l->out, b);
    }
    l->missed = dlp_out_missed(l->out);
    dlp_out_close(l->out);
    return NULL;
}

/* Begin a log if the table has one. */
static bool log_begins(logger *l, dlp_pipe *p) {
    if (dlp_out_find(p, "log", &l->out) != DLP_OK) return false;
    if (pthread_create(&l->thread, NULL, logs, l) == 0) return true;
    dlp_out_close(l->out);
    return false;
}

/* Returns 0, or 1 after an error. */
static int run(const char *what, const dlp_node *nodes, uint32_t n) {
    const dlp_pipe_desc desc = {.seed = 1};
    static char text[8192];
    uint64_t rows = 0, hash = 0;
    logger log = {.batches = 0};
    bool logged;
    dlp_error err;
    dlp_plan plan;
    dlp_stats stats;
    dlp_pipe *p;
    dlp_batch *b;
    int rc, closed;
    if (dlp_nodes_plan(nodes, n, &desc, &plan, &err) != DLP_OK) return said(what, &err);
    dlp_plan_format(&plan, text, sizeof text);
    if (!quiet) printf("---- %s\n%s", what, text);
    if (picture_file != NULL && dlp_pipe_write_graph(&plan, picture_file, &err) != DLP_OK)
        return said(what, &err);
    if (picture_file != NULL) return 0;
    if (dlp_pipe_open(&p, nodes, n, &desc, &err) != DLP_OK) return said(what, &err);
    logged = log_begins(&log, p);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t f = 0; f < b->n_fields; f++) hash = hashed(hash, &b->fields[f]);
        rows += b->count;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) said(what, dlp_pipe_error(p));
    if (rc == DLP_END && dlp_pipe_stats(p, &stats) == DLP_OK)
        printf("%s: %" PRIu64 " rows, %.0f rows/s, checksum %016" PRIx64 "\n", what, rows,
               (double)rows * 1e9 / (double)stats.elapsed_ns, hash);
    closed = dlp_pipe_close(p);
    if (logged && pthread_join(log.thread, NULL) == 0)
        printf("%s: the log had %" PRIu64 " batches and missed %" PRIu64 "\n", what, log.batches,
               log.missed);
    return closed != DLP_OK || rc != DLP_END;
}

/* ---- the tables ---- */

/* Any worker takes the next rows of the oldest batch. */
static int economic(const char *name) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_picture, .fields = &picture, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Whole batches to each worker in turn, and two batches ahead for each. */
static int classic(const char *name) {
    const dlp_node nodes[] = {{.name = "items",
                               .verb = DLP_LIST,
                               .list = {.n_items = items, .shuffle = 1},
                               .queue = {.deal = DLP_DEAL_TURNS}},
                              {.name = "read",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = read_picture, .fields = &picture, .n_fields = 1},
                               .workers = {.num_workers = workers}},
                              {.name = "batch",
                               .verb = DLP_BATCH,
                               .batch = {.batch_size = BATCH},
                               .queue = {.capacity = 2}}};
    return run(name, DLP_NODES(nodes));
}

/* One thread has many reads in flight. Workers decode, and the packed bytes end there. */
static int speeds(const char *name) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_packed, .fields = &packed, .n_fields = 1, .in_flight = in_flight},
         .workers = {.num_workers = 1}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = decode, .fields = &picture, .n_fields = 1, .ends = "packed"},
         .workers = {.num_workers = workers}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Two sources of the same items: pictures by workers, labels by the consumer. */
static int zipped(const char *name) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "pictures",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_picture, .fields = &picture, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "labels",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_label, .fields = &label, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Long documents are cut into pieces, and 1000 pieces at a time are shuffled. The four rows from
   read to even run in the same workers. */
static int filtered(const char *name) {
    const dlp_node nodes[] = {
        {.name = "documents", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_document, .fields = &tokens, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "long", .verb = DLP_FILTER, .filter = {.keep = is_long}},
        {.name = "cut",
         .verb = DLP_EXPAND,
         .expand = {.expand = cut, .max_out = LONGEST / PIECE, .fields = &piece, .n_fields = 1}},
        {.name = "even", .verb = DLP_FILTER, .filter = {.keep = is_even}},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 1000}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Documents fitted into rows of 512 tokens. */
static int packed_rows(const char *name) {
    const dlp_node nodes[] = {
        {.name = "documents", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_document, .fields = &tokens, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "rows", .verb = DLP_PACK, .pack = {.tokens = T, .rule = DLP_PACK_FIT}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Three pieces of documents to one piece of another list, each list in an order of its own. Nobody
   knows in advance how many pieces a document has. */
static int mixture(const char *name) {
    const char *const from[] = {"cut", "ready", NULL};
    const uint64_t weights[] = {3, 1};
    const dlp_node nodes[] = {
        {.name = "documents", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_document, .fields = &tokens, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "cut",
         .verb = DLP_EXPAND,
         .expand = {.expand = cut, .max_out = LONGEST / PIECE, .fields = &piece, .n_fields = 1}},
        {.name = "pieces", .verb = DLP_LIST, .list = {.n_items = 5 * items, .shuffle = 1}},
        {.name = "ready",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_piece, .fields = &piece, .n_fields = 1}},
        {.name = "both", .from = from, .verb = DLP_MIX, .mix = {.weights = weights}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return run(name, DLP_NODES(nodes));
}

/* Shards of many pieces; the trainer has each batch, and a log has the newest one whenever it is
   done with the batch before. */
static int shards(const char *name) {
    const dlp_node nodes[] = {
        {.name = "shards", .verb = DLP_LIST, .list = {.n_items = items, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_document, .fields = &tokens, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "cut",
         .verb = DLP_EXPAND,
         .expand = {.expand = cut, .max_out = LONGEST / PIECE, .fields = &piece, .n_fields = 1}},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 1000}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH, .last = DLP_LAST_DROP}},
        {.name = "train", .verb = DLP_OUT},
        {.name = "log",
         .from = (const char *[]){"batch", NULL},
         .verb = DLP_OUT,
         .queue = {.capacity = 1, .full = DLP_FULL_KEEP_NEWEST}}};
    return run(name, DLP_NODES(nodes));
}

/* Push all documents, as another program would, and say the end. */
static void *producer(void *push) {
    uint16_t text[LONGEST];
    void *data[] = {text};
    dlp_pusher *pusher;
    uint64_t length;
    int rc = dlp_pusher_open(&pusher, &(dlp_pusher_desc){.push = push}, NULL);
    for (uint64_t i = 0; i < items && rc == DLP_OK; i++) {
        dlp_item item = {.index = i, .data = data, .length = &length};
        read_document(NULL, &item);
        dlp_pusher_lengths(pusher, &length);
        rc = dlp_pusher_push(pusher, (const void *const *)data, DLP_FOREVER);
    }
    if (rc == DLP_OK) dlp_pusher_end(pusher, DLP_FOREVER);
    dlp_pusher_close(pusher);
    return NULL;
}

/* The long ones of the documents that a thread pushes, fitted into rows. */
static int pushed(const char *name) {
    const dlp_push_desc desc = {.fields = &tokens, .n_fields = 1, .writers = 1};
    dlp_push *push;
    dlp_error err;
    pthread_t thread;
    int rc = dlp_push_open(&push, &desc, &err);
    if (rc != DLP_OK) return said(name, &err);
    {
        const dlp_node nodes[] = {
            {.name = "documents", .verb = DLP_PUSH, .push = {.source = push}},
            {.name = "long",
             .verb = DLP_FILTER,
             .filter = {.keep = is_long},
             .workers = {.num_workers = workers}},
            {.name = "rows", .verb = DLP_PACK, .pack = {.tokens = T, .rule = DLP_PACK_FIT}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
        if (pthread_create(&thread, NULL, producer, push) != 0) return dlp_push_close(push), 1;
        rc = run(name, DLP_NODES(nodes));
    }
    dlp_push_stop(push); /* after an error the producer waits no longer */
    pthread_join(thread, NULL);
    return dlp_push_close(push) != DLP_OK || rc != 0;
}

static const struct {
    const char *name;
    int (*run)(const char *name);
} tables[] = {{"economic", economic}, {"classic", classic},   {"speeds", speeds},
              {"zipped", zipped},     {"filtered", filtered}, {"packed", packed_rows},
              {"mixture", mixture},   {"shards", shards},     {"pushed", pushed}};

/* Run the tables of this name, or all. Returns -1 if there is none, else as run. */
static int run_named(const char *name) {
    int rc = -1;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && rc <= 0; i++)
        if (name == NULL || strcmp(name, tables[i].name) == 0) rc = tables[i].run(tables[i].name);
    return rc;
}

int main(int argc, char **argv) {
    int c, rc = 0;
    while ((c = getopt(argc, argv, "n:w:k:qg:")) != -1) {
        if (c == 'n') items = strtoull(optarg, NULL, 10);
        if (c == 'w') workers = (int32_t)strtol(optarg, NULL, 10);
        if (c == 'k') in_flight = (uint32_t)strtol(optarg, NULL, 10);
        if (c == 'q') quiet = 1;
        if (c == 'g') picture_file = optarg;
        if (c == '?') rc = -1;
    }
    if (rc == 0 && optind == argc) rc = run_named(NULL);
    while (rc == 0 && optind < argc) rc = run_named(argv[optind++]);
    if (rc < 0)
        fputs("usage: graph [-n items] [-w workers] [-k in_flight] [-q] [-g FILE] [TABLE ...]\n",
              stderr);
    return rc < 0 ? 2 : rc;
}
