/* Three kinds of texts, of lengths known beforehand, mixed by weights and batched by length under a
   budget of tokens, padding counted; each batch is padded to its longest text.

     mixture            prints, for three ways to make batches of the same texts, what share of the
                        tokens is padding, and how the mix came out

   Texts are made up here: a real program has an array of their lengths from an index file. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <stdio.h>
#include <stdlib.h>

enum { BOOKS, CHATS, CODE, KINDS };
enum { LONGEST = 2048, BATCH = 128, BUDGET = 16384 };

static const char *const names[KINDS] = {"books", "chats", "code"};
static const uint64_t n_items[KINDS] = {20000, 3000, 9000};
static const uint64_t weights[KINDS] = {5, 2, 3}; /* of ten texts in a row */

typedef struct corpus {
    dlp_mix *mix;
    uint32_t *length; /* of all texts, kind after kind */
    uint32_t *kind;
} corpus;

/* How long a text is: many short ones, few long ones, chats the shortest. */
static uint32_t text_length(uint32_t kind, uint64_t item) {
    uint64_t random = dlp_hash(7, kind, item, 0);
    uint32_t octaves = random >> 32 & 1 ? (uint32_t)(random % 5) : 0;
    uint32_t most = (kind == CHATS ? 16u : 64u) << octaves;
    uint32_t length = most / 2 + (uint32_t)(random >> 44) % (most / 2);
    return length < LONGEST ? length : LONGEST;
}

static int fetch(void *user, dlp_item *item) {
    const corpus *c = user;
    uint32_t kind, *tokens = item->data[0], n = c->length[item->index];
    uint64_t text;
    if (dlp_mix_locate(c->mix, item->index, &kind, &text) != DLP_OK)
        return dlp_fail(item->call, 0, "no such text");
    for (uint32_t i = 0; i < n; i++) tokens[i] = (uint32_t)dlp_hash(kind, text, i, 1) % 50000;
    item->length[0] = n;
    return 0;
}

/* One epoch: print the padding and what came. Returns 0, or 1 after an error. */
static int epoch(const char *what, const dlp_loader_desc *desc, const corpus *c) {
    uint64_t tokens = 0, padded = 0, most = 0, batches = 0, count[KINDS] = {0};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch;
    dlp_error err;
    int rc;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return puts(err.message), 1;
    while ((rc = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const dlp_tensor *x = &batch->fields[0]; /* [count][longest of the batch] */
        uint64_t cells = (uint64_t)(x->shape[0] * x->shape[1]);
        for (uint32_t r = 0; r < batch->count; r++) {
            tokens += x->lengths[r];
            count[c->kind[batch->index[r]]]++;
        }
        padded += cells;
        most = cells > most ? cells : most;
        batches++;
        dlp_pipe_release(pipe, batch);
    }
    if (rc != DLP_END) puts(dlp_pipe_error(pipe)->message);
    dlp_pipe_close(pipe);
    if (rc != DLP_END || padded == 0) return 1;
    printf("%-26s %4d batches of up to %6d tokens, %4.1f %% padding;", what, (int)batches,
           (int)most, 100 * (double)(padded - tokens) / (double)padded);
    for (int k = 0; k < KINDS; k++) printf(" %d %s", (int)count[k], names[k]);
    puts("");
    return 0;
}

static int corpus_open(corpus *c) {
    dlp_mix_desc desc = {
        .n = KINDS, .n_items = n_items, .weights = weights, .shuffle = 1, .seed = 1};
    dlp_mix *mix = NULL;
    dlp_error err;
    if (dlp_mix_open(&mix, &desc, &err) != DLP_OK) return puts(err.message), 1;
    c->mix = mix;
    c->length = malloc(dlp_mix_items(mix) * sizeof *c->length);
    c->kind = malloc(dlp_mix_items(mix) * sizeof *c->kind);
    if (!c->length || !c->kind) return puts("no memory"), 1;
    for (uint64_t at = 0, item; at < 12; at++) { /* whose turn it is at the epoch's beginning */
        uint32_t kind;
        dlp_mix_locate(mix, dlp_mix_at(mix, 0, at), &kind, &item);
        fprintf(stderr, "%s%s", names[kind], at < 11 ? ", " : "\n");
    }
    for (uint64_t i = 0, item; i < dlp_mix_items(mix); i++) {
        dlp_mix_locate(mix, i, &c->kind[i], &item);
        c->length[i] = text_length(c->kind[i], item);
    }
    return 0;
}

/* The mix in buckets; budget: most tokens of a batch, 0: none. */
static int bucketed_epoch(const char *what, uint64_t budget, dlp_loader_desc desc,
                          const corpus *c) {
    dlp_buckets_desc bucketing = {.n_items = desc.dataset.n_items,
                                  .lengths = c->length,
                                  .batch_size = BATCH,
                                  .max_tokens = budget,
                                  .shuffle = 1,
                                  .order = &desc.sampler};
    dlp_buckets *buckets = NULL;
    dlp_error err;
    int wrong;
    if (dlp_buckets_open(&buckets, &bucketing, &err) != DLP_OK) return puts(err.message), 1;
    dlp_buckets_sampler(buckets, &desc.sampler);
    wrong = epoch(what, &desc, c);
    dlp_buckets_close(buckets);
    return wrong;
}

int main(int argc, char **argv) {
    dlp_field field = {
        .name = "tokens", .dtype = DLP_U32, .ndim = 1, .shape = {LONGEST}, .ragged = 1};
    dlp_loader_desc desc = {.dataset = {.fields = &field, .n_fields = 1, .fetch = fetch},
                            .batch_size = BATCH,
                            .num_workers = 2,
                            .collate = dlp_collate_pad};
    corpus c = {0};
    if (argc > 1) return fprintf(stderr, "usage: %s, without arguments\n", argv[0]), 2;
    int wrong = corpus_open(&c);
    if (!wrong) {
        desc.dataset.n_items = dlp_mix_items(c.mix);
        desc.dataset.user = &c;
        dlp_mix_sampler(c.mix, &desc.sampler);
        wrong = epoch("as they come", &desc, &c) || bucketed_epoch("by length", 0, desc, &c) ||
                bucketed_epoch("by length, with a budget", BUDGET, desc, &c);
    }
    dlp_mix_close(c.mix);
    free(c.length);
    free(c.kind);
    return wrong;
}
