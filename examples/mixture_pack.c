/* Two corpora of JSONL, mixed 7 : 3, their bytes as tokens, packed into rows, trained on, saved in
   the middle and gone on from; and the loss of each corpus.

     mixture_pack [FIRST.jsonl SECOND.jsonl]      without files it makes some up, and removes them

   A line is {"text": "..."}, without escapes: jsonl.c reads all of JSON. A row of the pack has
   pieces of many documents, so it has no list of its own. A second field tells the corpus of each
   token. A row of the validation is one document, and batch->list tells its corpus. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CORPORA = 2, LONGEST = 512, T = 256, STEPS = 300 };

static dlp_source *corpus[CORPORA];
static const uint8_t number[CORPORA] = {0, 1};

/* A model that learns how often each byte comes. A checkpoint has it and the state of the pipe. */
typedef struct model {
    uint64_t seen[256], all;
} model;

typedef struct losses {
    double bits[CORPORA], tokens[CORPORA];
} losses;

static void add_loss(losses *l, const model *m, uint8_t token, uint32_t of) {
    l->bits[of] += log2((double)(m->all + 256) / (double)(m->seen[token] + 1));
    l->tokens[of]++;
}

/* Write the document of a line: its tokens, and its corpus for each of them. user: the corpus. */
static int parse(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    static const char begin[] = "{\"text\": \"";
    const uint64_t from = sizeof begin - 1, end = from + 2;
    (void)state;
    if (n < end || memcmp(line, begin, from) != 0)
        return dlp_fail(item->call, 0, "no line {\"text\": \"...\"}");
    n = n - end < LONGEST ? n - end : LONGEST; /* a longer text is cut */
    memcpy(item->data[0], line + from, n);
    memset(item->data[1], *(const uint8_t *)user, n);
    item->length[0] = item->length[1] = n;
    return 0;
}

static int say(const dlp_error *err) {
    return fprintf(stderr, "mixture_pack: %s %s: %s\n", err->stage, err->field, err->message), 1;
}

/* Train on packed rows, from a state on if there is one, up to step `end`, and leave the state in
   *to; or, if to is NULL, validate on documents. Returns 0, or 1 after an error. */
static int run(model *m, losses *l, const dlp_state *from, uint64_t end, dlp_state *to) {
    static const uint64_t weights[CORPORA] = {7, 3};
    const dlp_pipe_desc desc = {.seed = to ? 1 : 2,
                                .steps_per_epoch = to ? STEPS : 0,
                                .trace_rows = to == NULL,
                                .resume = from};
    dlp_node nodes[] = {
        {.name = "first", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "a", .verb = DLP_FETCH, .fetch = {.source = corpus[0]}},
        {.name = "second", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "b", .verb = DLP_FETCH, .fetch = {.source = corpus[1]}},
        {.name = "mix",
         .verb = DLP_MIX,
         .from = (const char *[]){"a", "b", NULL},
         .mix = {.weights = weights}},
        {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = T}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    int bad, rc;
    if (to == NULL) nodes[5] = nodes[6];
    if (dlp_pipe_open(&p, nodes, to ? 7 : 6, &desc, &err) != DLP_OK) return say(&err);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint8_t *token = b->fields[0].data, *of = b->fields[1].data;
        const int64_t width = b->fields[0].shape[1]; /* T, or LONGEST */
        const int last = to && b->in_epoch + 1 == end;
        for (uint32_t r = 0; r < b->count; r++, token += width, of += width)
            for (uint64_t i = 0; i < b->fields[0].lengths[r]; i++) {
                add_loss(l, m, token[i], to ? of[i] : b->list[r]);
                if (to) m->seen[token[i]]++, m->all++;
            }
        if (last) rc = dlp_pipe_state(p, b, to);
        dlp_pipe_release(p, b);
        if (last) break;
    }
    bad = rc != DLP_OK && rc != DLP_END && say(dlp_pipe_error(p));
    return dlp_pipe_close(p) != DLP_OK || bad;
}

/* Make a file of documents up: words, or numbers. */
static int make_up(char *path, int numbers) {
    const int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f == NULL) return perror(path), 1;
    for (uint64_t i = 0; i < 2000; i++) {
        fputs("{\"text\": \"", f);
        for (uint64_t k = 0, n = 4 + dlp_hash(i, 1, 0, 0) % 60; k < n; k++)
            fprintf(f, numbers ? "%d " : "etaoin%x ", (int)(dlp_hash(i, k, 2, 0) % 9999));
        fputs("\"}\n", f);
    }
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    static const dlp_field fields[] = {{"tokens", DLP_U8, 1, {LONGEST}, 1, 0},
                                       {"corpus", DLP_U8, 1, {LONGEST}, 1, 0}};
    static model one, two; /* trained in one life, and in two */
    losses once = {{0}, {0}}, twice = once, held_out = once;
    char made[CORPORA][32] = {"/tmp/mixture-0-XXXXXX", "/tmp/mixture-1-XXXXXX"};
    dlp_state state;
    dlp_error err;
    int bad = 0, same;
    if (argc != 1 && argc != 3)
        return fprintf(stderr, "usage: %s [FIRST.jsonl SECOND.jsonl]\n", argv[0]), 2;
    for (int k = 0; k < CORPORA && !bad; k++) {
        const dlp_lines_desc lines = {.path = argc == 3 ? argv[k + 1] : made[k],
                                      .index = "",
                                      .fields = fields,
                                      .n_fields = 2,
                                      .parse = parse,
                                      .user = (void *)(uintptr_t)&number[k]};
        bad = (argc == 1 && make_up(made[k], k)) ||
              (dlp_lines_open(&corpus[k], &lines, &err) != DLP_OK && say(&err));
    }
    bad = bad || run(&one, &once, NULL, STEPS, &state) ||
          run(&two, &twice, NULL, STEPS / 2, &state) || run(&two, &twice, &state, STEPS, &state) ||
          run(&two, &held_out, NULL, 0, NULL);
    for (int k = 0; k < CORPORA && !bad; k++)
        printf("corpus %d: %.0f tokens, %.3f bits each; documents alone: %.3f\n", k,
               twice.tokens[k], twice.bits[k] / twice.tokens[k],
               held_out.bits[k] / held_out.tokens[k]);
    same = memcmp(&once, &twice, sizeof once) == 0 && memcmp(&one, &two, sizeof one) == 0;
    if (!bad) printf("two lives: %s\n", same ? "the same as one" : "not the same as one");
    for (int k = 0; k < CORPORA; k++) {
        bad |= corpus[k] != NULL && dlp_source_close(corpus[k]) != DLP_OK;
        if (argc == 1) unlink(made[k]);
    }
    return bad || !same;
}
