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
#include "../../rig/neighbours_table.h"

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

/* ---- a run ---- */

static void run(outcome *o, int workers) {
    wiring *w = &now_;
    w->workers = workers;
    w->processes = 0;
    o->rc = wire(NULL, &o->error);
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
    signal(SIGALRM, hung);
    epoch_ = shm_shared(sizeof *epoch_);
    processes_ = shm_missing() == NULL;
    list_ = argc > 1 && strcmp(argv[1], "list") == 0;
    mixes_open();
    if (argc > 3 && kind_of(argv[2]) < kind_of(argv[3]) && kind_of(argv[3]) < KINDS)
        printf("  %s\n", one(kind_of(argv[2]), kind_of(argv[3])) ? "refused" : "runs");
    else
        all_pairs();
    mixes_close();
    return test_end("pairs");
}
