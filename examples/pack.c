/* Documents of any length packed into rows of 1024 tokens, as language models are trained on: cut
   wherever a row ends, and fitted, so that no document is cut that need not be.

     pack               prints, for each rule, rows, segments and what share of the rows is padding,
                        and of whole rows' attention that inside segments

   Documents are made up here: a real program tokenizes a text in fetch, or reads its tokens. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <stdio.h>

enum { DOCUMENTS = 4000, LONGEST = 4096, T = 1024, BATCH = 16, SEGMENTS = 128 };

/* How long a document is: many short ones, few long ones. */
static uint32_t document_length(uint64_t i) {
    uint64_t random = dlp_hash(7, i, 0, 0);
    uint32_t most = 64u << random % 7;
    return most / 2 + (uint32_t)(random >> 32) % (most / 2);
}

static int fetch(void *user, dlp_item *item) {
    uint16_t *tokens = item->data[0];
    uint32_t n = document_length(item->index);
    (void)user;
    for (uint32_t i = 0; i < n; i++) tokens[i] = (uint16_t)dlp_hash(item->index, i, 0, 1);
    item->length[0] = n;
    return 0;
}

/* What a training step would do: attention inside segments, and for each token but the last of a
   segment the next one as its label. Returns how many of these there are. */
static uint64_t step(const dlp_batch *batch, uint64_t *sum) {
    const uint16_t *tokens = batch->fields[0].data;
    const int32_t *bounds = batch->fields[1].data; /* cu_seqlens [count][S + 1] */
    const int64_t segments = batch->fields[1].shape[1] - 1;
    uint64_t labels = 0;
    for (uint32_t r = 0; r < batch->count; r++, bounds += segments + 1, tokens += T)
        for (int64_t s = 0; s < segments; s++)
            for (int32_t i = bounds[s]; i + 1 < bounds[s + 1]; i++, labels++) *sum += tokens[i + 1];
    return labels;
}

/* What attention over segments takes, padding too, of that over whole rows: flash attention's
   varlen interface is given the batch's tokens as they lie, bounds and longest. */
static double attention(const dlp_batch *batch) {
    static int32_t bounds[BATCH * (SEGMENTS + 1) + 1];
    int32_t longest;
    int n = dlp_pack_flatten(batch, bounds, sizeof bounds / sizeof *bounds, &longest);
    double pairs = 0;
    for (int i = 0; i < n; i++) {
        double tokens = bounds[i + 1] - bounds[i];
        pairs += tokens * tokens;
    }
    return pairs / ((double)T * (double)T);
}

/* One epoch. Returns 0, or 1 after an error. */
static int epoch(const char *what, dlp_node_pack pack) {
    const dlp_field field = {"tokens", DLP_U16, 1, {LONGEST}, 1, 0};
    const dlp_node nodes[] = {
        {.name = "documents", .verb = DLP_LIST, .list = {.n_items = DOCUMENTS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1}},
        {.name = "pack", .verb = DLP_PACK, .pack = pack, .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}},
    };
    uint64_t labels = 0, sum = 0;
    double whole = 0;
    const uint64_t *own;
    dlp_pipe *pipe = NULL;
    dlp_batch *batch;
    dlp_error err;
    static dlp_stats stats;
    int rc;
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &(dlp_pipe_desc){.seed = 1}, &err) != DLP_OK)
        return puts(err.message), 1;
    while ((rc = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        labels += step(batch, &sum);
        whole += attention(batch);
        dlp_pipe_release(pipe, batch);
    }
    if (rc != DLP_END) puts(dlp_pipe_error(pipe)->message);
    if (rc == DLP_END) dlp_pipe_stats(pipe, &stats);
    own = stats.stages[dlp_node_stage(pipe, "pack")].own;
    dlp_pipe_close(pipe);
    if (rc != DLP_END) return 1;
    printf("%-25s %4d rows, %5d segments, %7d tokens, %5.2f %% padding; %7d labels, mean %d; "
           "%2.0f %% of attention\n",
           what, (int)own[DLP_PACK_ROWS], (int)own[DLP_PACK_SEGMENTS], (int)own[DLP_PACK_TOKENS],
           100.0 * (double)own[DLP_PACK_PADDING] / (double)(own[DLP_PACK_ROWS] * T), (int)labels,
           labels ? (int)(sum / labels) : 0, 100 * whole / (double)own[DLP_PACK_ROWS]);
    return 0;
}

int main(int argc, char **argv) {
    const dlp_node_pack cut = {.tokens = T, .max_segments = SEGMENTS};
    dlp_node_pack overlap = cut, fit = cut;
    if (argc > 1) return fprintf(stderr, "usage: %s\n", argv[0]), 2;
    overlap.overlap = 1;
    if (epoch("cut", cut) || epoch("cut, a token repeated", overlap)) return 1;
    fit.rule = DLP_PACK_FIT;
    fit.window = 64;
    if (epoch("fitted, of 64 documents", fit)) return 1;
    fit.window = 512;
    return epoch("fitted, of 512 documents", fit);
}
