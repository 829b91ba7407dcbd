/* needs: parts split join scratch guard cache pack pictures */
/* Each two kinds of nodes and options in one table (tests/rig/neighbours.h). The table either runs,
   with two numbers of workers, and gives the rows of a direct program; or it is refused with words
   that name a node. An option is set where the table has what it belongs to.
     pairs                   all pairs
     pairs list              all pairs, and for each refused pair its line of refused_ and the words
     pairs = KIND KIND       one of them */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include <stdarg.h>

#include "../../rig/neighbours_rows.h"

/* Pairs that are refused. This number may only fall. */
enum { MOST_REFUSED = 28 };

/* Each refused pair, and the node that the words name; "": two fields of one desc, which the words
   name, do not go together. If a pair runs, take its line away, and lower the number.
   Why they stay refused:
     buckets x ..    lists name items by numbers; what is made, loaded or pushed has none before
     split x ..      a view is a stretch of one chunk, in which nothing may write or leave out
     unordered x ..  a state has no room for the paths at the first gap and a bitmap
     shuffled, cache x push   what comes once has no order to permute, and no second time
     share x set_epoch        another program may hold the old epoch while the data change */
static const struct {
    int a, b;
    const char *node;
} refused_[] = {
    {PARTS, BUCKETS, "list"},      {FOUND, BUCKETS, "list"},  {FOUND, SPLIT, "found"},
    {FOUND, UNORDERED, "found"},   {FILTER, BUCKETS, "list"}, {FILTER, SPLIT, "filter"},
    {FILTER, UNORDERED, "filter"}, {EXPAND, BUCKETS, "list"}, {EXPAND, SPLIT, "expand"},
    {EXPAND, UNORDERED, "expand"}, {PACK, BUCKETS, "list"},   {PACK, SPLIT, "pack"},
    {PACK, UNORDERED, "pack"},     {SHUFFLED, PUSH, "push"},  {BUCKETS, SPLIT, "list"},
    {BUCKETS, PUSH, "push"},       {MIX, SPLIT, "more"},      {ZIP, SPLIT, "zip"},
    {SCRATCH, SPLIT, "scratch"},   {CACHE, PUSH, "cache"},    {COLLATE, SPLIT, "batch"},
    {SPLIT, UNORDERED, "split"},   {SPLIT, SHARE, "split"},   {SPLIT, RAGGED, "split"},
    {SPLIT, PUSH, "split"},        {UNORDERED, SHARE, ""},    {UNORDERED, PUSH, "push"},
    {SHARE, SET_EPOCH, ""},
};

static int processes_; /* worker processes can be started here */
static int list_;      /* 1: print each refusal */

/* ---- a table of the kinds of now_ ---- */

static dlp_node nodes_[24];
static uint32_t n_nodes_;
static dlp_mix *mixes_[2]; /* in turn, shuffled */

static dlp_node *add_node(const char *name, int32_t verb) {
    dlp_node *node = &nodes_[n_nodes_++];
    *node = (dlp_node){.name = name, .verb = verb};
    return node;
}

/* True if a node makes items of unknown count of an item. */
static int has_maker(void) { return has(FILTER) || has(EXPAND) || has(PACK); }

static void add_list(wiring *w) {
    dlp_node *node = add_node("list", DLP_LIST);
    node->list.n_items = has(PARTS) ? w->parts.n_parts : has(MIX) ? 0 : ITEMS;
    node->list.shuffle = has(SHUFFLED) && !has(BUCKETS) && !has(MIX); /* these shuffle themselves */
    if (has(MIX)) node->list.mix = mixes_[has(SHUFFLED)];
    if (has(BUCKETS)) node->list.order = (dlp_sampler_desc *)(void *)&w->sampler;
    if (has(CLASSIC)) node->queue.deal = DLP_DEAL_TURNS;
}

static void add_push(wiring *w) {
    dlp_node *node = add_node("push", DLP_PUSH);
    node->push.source = w->push;
    node->workers.num_workers = w->workers > 0;
    if (has(CLASSIC)) node->queue.deal = DLP_DEAL_TURNS;
}

static void add_load(const char *name, const inside_part_desc *desc) {
    dlp_node *node = add_node(name, DLP_LOAD);
    memcpy(&node->load, desc, sizeof node->load); /* it begins so */
    node->load.n_parts = node->load.window = node->load.queue_size = 0;
    node->load.workers = (dlp_workers_desc){.num_workers = 0};
    node->workers = desc->workers;
    node->queue.capacity = desc->queue_size;
}

static void add_fetch(wiring *w, const char *name, const dlp_dataset *ds, uint32_t of) {
    dlp_node *node = add_node(name, DLP_FETCH);
    static dlp_field fields[4];
    memcpy(fields, w->fields, n_fields() * sizeof *fields);
    if (has(SCRATCH)) fields[n_fields()] = w->raw;
    node->fetch = (dlp_node_fetch){.fetch = ds->fetch,
                                   .fields = fields,
                                   .n_fields = n_fields() + (uint32_t)has(SCRATCH),
                                   .of = of,
                                   .in_flight = has(IN_FLIGHT) ? 3 : 0};
    if (has(PUSH)) node->fetch.fetch = fetch_item; /* ds is the push's */
    node->workers = has_maker() ? w->expand.workers : w->fetch.workers;
    node->workers.dispatch = 0; /* the list says it */
    if (has(PARTS) + has(FOUND) > 0 &&
        (has_maker() || (has(FOUND) && (has(PARTS) || has(CACHE) || has(PUSH)))))
        node->workers = (dlp_workers_desc){.num_workers = 0}; /* those of the load */
    if (has(SCRATCH)) node->queue.capacity = w->scratch.n_cells;
}

static int keep_some(void *user, const dlp_item *it) {
    uint64_t id = it->index;
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    if (has(MIX)) memcpy(&id, it->data[0], sizeof id);
    return has(MIX) ? id >= value_of(ITEMS) || !is_filtered((id - 7) / 1000) : !is_filtered(id);
}

static void add_row(wiring *w, int which);

static void add_makers(wiring *w) {
    if (has(PACK) && has(SCRATCH)) add_row(w, DECODE);
    if (has(FILTER)) add_node("filter", DLP_FILTER)->filter.keep = keep_some;
    if (has(EXPAND)) {
        dlp_node *node = add_node("expand", DLP_EXPAND);
        node->expand.expand = w->expand.expand;
        node->expand.max_out = w->expand.max_out;
    }
    if (has(PACK)) {
        dlp_node *node;
        if (has(CACHE)) add_row(w, CACHE); /* it keeps documents */
        node = add_node("pack", DLP_PACK);
        memcpy(&node->pack, &w->pack, sizeof node->pack);
    }
    if (has(WINDOW) && (has(FILTER) || has(EXPAND)))
        add_node("window", DLP_WINDOW)->window.items = w->expand.window;
}

static void add_zipped(wiring *w) {
    dlp_node *node = add_node("zip", DLP_FETCH);
    node->fetch = (dlp_node_fetch){.fetch = fetch_label, .fields = &w->label, .n_fields = 1};
    node->workers = w->few;
}

static void add_row(wiring *w, int which) {
    static const dlp_guard_field guarded[] = {{.name = "g"}, {.name = "tokens"}};
    dlp_node *node;
    if (which == ZIP) add_zipped(w);
    if (which == CACHE) add_node("cache", DLP_CACHE)->cache.bytes = w->cache.bytes;
    if (which != GUARD && which != MAP && which != DECODE) return;
    node = add_node(kinds_[which == DECODE ? SCRATCH : which].name,
                    which == GUARD ? DLP_GUARD : DLP_MAP);
    node->workers = w->few;
    if (which == GUARD) {
        node->guard = (dlp_node_guard){.fields = &guarded[has(PACK)], .n_fields = 1};
        node->workers.on_error = DLP_ON_ERROR_DROP;
    } else {
        node->map.item = which == MAP ? map_item : decode;
        if (which == DECODE) node->map.ends = "raw";
        node->workers.idempotent = which == DECODE;
        if (which == DECODE && has_maker()) /* it runs in the cell, by the makers' workers */
            node->workers = (dlp_workers_desc){.num_workers = 0};
    }
}

static void add_batches(wiring *w) {
    dlp_node *node = add_node("batch", DLP_BATCH);
    node->batch.batch_size = w->batch.batch_size;
    node->batch.collate = w->batch.collate;
    if (has_maker()) node->batch.copy_workers = so_many(w->workers > 0);
    node->workers.placement = has(COLLATE) ? w->batch.workers.placement : 0;
    node->workers.num_workers = has(COLLATE) ? w->batch.batch_workers : 0;
    if (has(BATCH_MAP)) {
        node = add_node("batch_map", DLP_MAP);
        node->map.batch = map_batch;
        node->workers = w->few;
    }
    if (has(TRANSFER)) add_node("transfer", DLP_TRANSFER)->workers.num_workers = w->workers & 1;
    if (has(SPLIT)) {
        node = add_node("split", DLP_SPLIT);
        node->split.chunk_rows = CHUNK;
        node->split.batch_size = 6;
    }
}

/* ---- the same pair as branches ---- */

/* A zip or a mix that meets items of unknown count, or pushed ones, joins branches: there is no
   item of the other branch to fetch by the number of an input. Of a zip both branches make items
   alike, so rows meet their labels. */
static int joins_branches(void) {
    if (has(PARTS) && has(PUSH)) return 1; /* counts are of a list, so that is another branch */
    return (has(MIX) || has(ZIP)) && (has_maker() || has(FOUND) || has(PARTS) || has(PUSH));
}

static int expand_label(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t j = 0; j < made_of(x->item->index); j++) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL) return -1;
        memcpy(to->data[0], x->item->data[0], sizeof(uint64_t));
    }
    return 0;
}

static int other_document(void *user, dlp_item *it) {
    (void)user;
    return document_put(it, it->index + (has(MIX) ? MIXED_FIRST : 0));
}

/* The rows between the second list and the row that joins. Returns the last of them. */
static const char *add_other_branch(wiring *w) {
    static dlp_field label;
    dlp_node *node;
    if (has(PARTS) && (has(ZIP) || has(PUSH))) add_load("other_parts", &w->parts);
    if (has(ZIP) && has(FOUND)) add_load("other_found", &w->found);
    label = has(PACK) ? w->fields[0] : w->label;
    label.name = "y";
    node = add_node("more", DLP_FETCH);
    if (has(MIX) || !(has(PARTS) || has(FOUND))) node->workers = w->expand.workers;
    node->fetch = (dlp_node_fetch){.fetch = has(MIX) ? fetch_mixed : fetch_label,
                                   .fields = has(MIX) ? w->fields : &label,
                                   .n_fields = has(MIX) ? n_fields() : 1};
    if (has(PACK)) node->fetch.fetch = other_document;
    if (has(PARTS) && has(PUSH)) {
        node->fetch =
            (dlp_node_fetch){.fetch = fetch_item, .fields = w->fields, .n_fields = n_fields()};
        return "more";
    }
    if (has(ZIP) && has(FILTER)) {
        add_node("other_filter", DLP_FILTER)->filter.keep = keep_some;
        return "other_filter";
    }
    if (has(MIX) || !has(EXPAND)) return "more";
    node = add_node("other_expand", DLP_EXPAND);
    node->expand.expand = expand_label;
    node->expand.max_out = CELL;
    return "other_expand";
}

static void join(wiring *w) {
    static const char *from[3];
    static uint64_t weights[2];
    dlp_node *node;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < ITEMS; i++)
        kept += has(EXPAND) || has(FOUND) ? made_of(i) : (uint64_t)!is_filtered(i);
    weights[0] = kept; /* so that both branches end with the same draw */
    weights[1] = MIXED;
    if (has(PUSH)) {
        add_push(w);
    } else {
        node = add_node("list", DLP_LIST);
        node->list.n_items = has(PARTS) ? w->parts.n_parts : ITEMS;
        if (has(PARTS)) add_load("parts", &w->parts);
        if (has(FOUND)) add_load("found", &w->found);
        add_fetch(w, "fetch", &w->dataset, 0);
    }
    if (has(PARTS) || has(FOUND)) nodes_[n_nodes_ - 1].workers.num_workers = 0;
    if (!has(PACK)) add_makers(w);
    from[0] = nodes_[n_nodes_ - 1].name;
    node = add_node("others", DLP_LIST);
    node->list.n_items = has(MIX) ? MIXED : has(PARTS) ? w->parts.n_parts : ITEMS;
    from[1] = add_other_branch(w);
    node = add_node("both", has(ZIP) ? DLP_ZIP : DLP_MIX);
    node->from = from;
    if (has(MIX)) node->mix.weights = weights;
    if (has(PACK)) add_makers(w);
}

static void table_of(wiring *w) {
    n_nodes_ = 0;
    if (joins_branches()) {
        join(w);
        add_batches(w);
        return;
    }
    if (!has(PUSH) || has(SHUFFLED) || has(BUCKETS) || has(MIX)) add_list(w);
    if (has(PUSH)) add_push(w);
    if (has(PARTS)) add_load("parts", &w->parts);
    if (has(FOUND)) add_load("found", &w->found);
    if (has(FOUND) && has(PARTS)) nodes_[n_nodes_ - 1].workers.num_workers = 0;
    if (has(FOUND) && has(WINDOW)) add_node("mixed", DLP_WINDOW)->window.items = w->found.window;
    if (!has(PUSH) || has(FOUND) || has(PARTS))
        add_fetch(w, "fetch", &w->dataset, (uint32_t)has(MIX));
    if (has(MIX) && !has(PUSH)) add_fetch(w, "more", &w->mixed, 2);
    add_makers(w);
    for (int i = 0; i < ROW_STAGES; i++)
        if (has(orders_[0][i] == DECODE ? SCRATCH : orders_[0][i]) &&
            !((orders_[0][i] == DECODE || orders_[0][i] == CACHE) && has(PACK))) /* before it */
            add_row(w, orders_[0][i]);
    add_batches(w);
}

/* ---- a run ---- */

static dlp_pipe_desc run_of(const wiring *w) {
    dlp_pipe_desc d = w->pipe;
    d.seed = w->sampler.seed;
    d.epochs = w->repeat.epochs;
    d.set_epoch = w->repeat.set_epoch;
    if (has(PARTS) || has(FOUND) || has_maker()) d.streams = w->parts.streams;
    return d;
}

static void run(outcome *o, int workers) {
    wiring *w = &now_;
    w->workers = workers;
    w->processes = 0;
    o->rc = prepare(NULL, &o->error);
    if (o->rc == DLP_OK) {
        const dlp_pipe_desc d = run_of(w);
        table_of(w);
        o->rc = dlp_pipe_open(&w->p, nodes_, n_nodes_, &d, &o->error);
    }
    o->started = o->rc == DLP_OK;
    if (o->started) take_rest(o);
    unwire(NULL, 0);
}

/* The node that an error names, "" if it names none. */
static const char *named(const dlp_error *e) {
    for (uint32_t i = 0; i < n_nodes_; i++) {
        char quoted[40];
        snprintf(quoted, sizeof quoted, "\"%s\"", nodes_[i].name);
        if (strcmp(e->stage, nodes_[i].name) == 0 || strstr(e->message, quoted) != NULL)
            return nodes_[i].name;
    }
    return "";
}

/* The node that the list has for a pair; NULL: it should run. */
static const char *listed(int a, int b) {
    for (size_t i = 0; i < sizeof refused_ / sizeof *refused_; i++)
        if (refused_[i].a == a && refused_[i].b == b) return refused_[i].node;
    return NULL;
}

static int upper(const char *name, char *to) {
    int n = 0;
    for (; name[n] != 0; n++)
        to[n] = name[n] >= 'a' && name[n] <= 'z' ? (char)(name[n] - 32) : name[n];
    to[n] = 0;
    return n;
}

static int is_refusal_wrong(const outcome *o, int a, int b) {
    const char *node = named(&o->error), *want = listed(a, b);
    char first[40], second[40];
    upper(kinds_[a].name, first);
    upper(kinds_[b].name, second);
    if (list_)
        printf("    {%s, %s, \"%s\"},\n%s.%s: %s\n", first, second, node, o->error.stage,
               o->error.field, o->error.message);
    if (node[0] == 0 && (o->error.field[0] == 0 || o->error.message[0] == 0))
        return wrong("the words name no node and no field: %s", o->error.message);
    if (want == NULL)
        return wrong("it is refused, and stood here as one that runs: %s", o->error.message);
    return strcmp(want, node) != 0 ? wrong("the words name %s, not %s", node, want) : 0;
}

/* True if the direct program knows what the pair gives. Two sources of items in each other do not
   go by the number of the input alone, and filters behind parts are asked for the part's number. */
static int is_known(void) {
    if (has(PARTS) && joins_branches()) return has(PUSH); /* index is the part's */
    if (has(PARTS) && (has(FILTER) || has(EXPAND))) return 0;
    return !has(FOUND) || !(has(PARTS) || has(EXPAND));
}

/* Rows of branches have numbers of two lists. */
static void without_index(outcome *o, outcome *rows) {
    for (int i = 0; i < o->n_rows; i++) o->rows[i].index = 0;
    for (int i = 0; i < rows->n_rows; i++) rows->rows[i].index = 0;
}

/* Returns 1 if the pair is refused. */
static int one(int a, int b) {
    static outcome o, rows;
    const uint64_t shuffling =
        1 << SHUFFLED | 1 << BUCKETS | 1 << WINDOW | 1 << STREAMS | 1 << UNORDERED | 1 << MIX;
    int bad = 0, refused = 0, least, any_order;
    now_.order = 0;
    now_.kinds = UINT64_C(1) << a | UINT64_C(1) << b;
    least = has(SHARE) || has(IN_FLIGHT); /* they have no inline form */
    any_order = (now_.kinds & shuffling) != 0 || (has(PARTS) && has(PUSH));
    if (has(SHARE) && !processes_) return listed(a, b) != NULL;
    alarm(100);
    for (int workers = least; workers <= 2 && !bad && !refused; workers += 2 - least) {
        char what[40];
        snprintf(what, sizeof what, "%d workers", workers);
        run(&o, workers);
        refused = !o.started;
        write_all(&rows);
        if (joins_branches()) without_index(&o, &rows);
        if (refused)
            bad = is_refusal_wrong(&o, a, b);
        else if (is_known())
            bad = is_wrong(&o, &rows, 0, any_order, what);
        else if (o.rc != DLP_END)
            bad = wrong("%s: %s %s", what, o.error.stage, o.error.message);
    }
    alarm(0);
    if (!bad && !refused && listed(a, b) != NULL) bad = wrong("it runs: take its line away");
    CHECK(!bad);
    if (bad) printf("failed: pairs = %s %s: %s\n", kinds_[a].name, kinds_[b].name, wrong_);
    return refused;
}

static void hung(int signal_number) {
    (void)signal_number;
    printf("failed: %" PRIx64 " hangs\n", now_.kinds);
    fflush(stdout);
    _exit(1);
}

static int kind_of(const char *name) {
    int k = 0;
    while (k < KINDS && strcmp(kinds_[k].name, name) != 0) k++;
    return k;
}

static void all_pairs(void) {
    int refused = 0, pairs = 0;
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++, pairs++) refused += one(a, b);
    printf("  %d of %d pairs are refused\n", refused, pairs);
    CHECK(refused <= MOST_REFUSED);
}

int main(int argc, char **argv) {
    const uint64_t n[] = {ITEMS, MIXED};
    dlp_mix_desc mix = {.n = 2, .n_items = n, .weights = n, .seed = 9};
    signal(SIGALRM, hung);
    by_nodes_ = 1;
    epoch_ = shm_shared(sizeof *epoch_);
    processes_ = shm_missing() == NULL;
    list_ = argc > 1 && strcmp(argv[1], "list") == 0;
    CHECK(dlp_mix_open(&mixes_[0], &mix, NULL) == DLP_OK);
    mix.shuffle = 1;
    CHECK(dlp_mix_open(&mixes_[1], &mix, NULL) == DLP_OK);
    if (argc > 3 && kind_of(argv[2]) < kind_of(argv[3]) && kind_of(argv[3]) < KINDS)
        printf("  %s\n", one(kind_of(argv[2]), kind_of(argv[3])) ? "refused" : "runs");
    else
        all_pairs();
    dlp_mix_close(mixes_[0]);
    dlp_mix_close(mixes_[1]);
    return test_end("pairs");
}
