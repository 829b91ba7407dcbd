/* A language model trained from token shards, stopped anywhere and resumed exactly.

   tokens [-w workers] [-b batch] [-t length] [-e epochs] [-n steps] [-s STATE-FILE] [PATTERN]
   cc -O2 tokens.c -lpthread -lm

   PATTERN: shards of llm.c or nanoGPT, such as 'fineweb10B/fineweb_train_*.bin'. Without one the
   program makes up three small ones in a directory of its own, and removes them. The model counts
   which token follows which: small, but it learns. With -s it writes model and place at its end,
   and goes on from there the next time; -n ends it after so many steps. Ranks come from the
   launcher's environment (torchrun, mpirun, srun), workers may differ from run to run: the batches
   are those of a run that was never stopped. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { VOCAB = 256 /* tokens are taken modulo that */, EOT = 50256 };

typedef struct checkpoint {
    char magic[8];
    dlp_state place; /* what of the data is consumed */
    uint64_t steps;  /* 0: no place yet */
    float count[VOCAB][VOCAB];
} checkpoint;

static const char magic[8] = "dlptok1";

/* ---- a training step: rows of T + 1 tokens, inputs [0, T), targets [1, T + 1) ---- */

/* What the model says of the rows, then what it learns of them. Returns the mean loss. Documents do
   not look into each other: what follows the end of one is no target of it. */
static double train_step(checkpoint *c, const dlp_batch *b, int32_t *start) {
    const int32_t *row = b->fields[0].data;
    uint64_t T = (uint64_t)b->fields[0].shape[1] - 1;
    double loss = 0, n = 0;
    for (uint32_t i = 0; i < b->count; i++, row += T + 1) {
        uint64_t documents =
            dlp_tokens_documents(row, DLP_I32, T + 1, EOT, DLP_EOT_BEGINS, start, T + 2);
        for (uint64_t d = 0; d < documents; d++)
            for (int32_t k = start[d]; k + 1 < start[d + 1]; k++, n++) {
                float *counts = c->count[(uint32_t)row[k] % VOCAB], sum = 0;
                uint32_t target = (uint32_t)row[k + 1] % VOCAB;
                for (int v = 0; v < VOCAB; v++) sum += counts[v] + 0.01f;
                loss -= logf((counts[target] + 0.01f) / sum);
                counts[target]++;
            }
    }
    c->steps++;
    return n > 0 ? loss / n : 0;
}

/* ---- the checkpoint: beside the old one, then in its place ---- */

static bool checkpoint_load(const char *path, checkpoint *c) {
    FILE *f = path ? fopen(path, "rb") : NULL;
    memset(c, 0, sizeof *c);
    memcpy(c->magic, magic, sizeof magic);
    if (f == NULL) return true; /* the first time */
    bool ok = fread(c, sizeof *c, 1, f) == 1 && fgetc(f) == EOF;
    fclose(f);
    return ok && memcmp(c->magic, magic, sizeof magic) == 0;
}

static bool checkpoint_save(const char *path, const checkpoint *c) {
    char fresh[1024];
    if (snprintf(fresh, sizeof fresh, "%s.new", path) >= (int)sizeof fresh) return false;
    FILE *f = fopen(fresh, "wb");
    if (f == NULL) return false;
    bool ok = fwrite(c, sizeof *c, 1, f) == 1 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    ok = fclose(f) == 0 && ok;
    return ok && rename(fresh, path) == 0;
}

/* ---- shards that are made up, in llm.c's format ---- */

static char made[3][64], made_dir[32] = "/tmp/tokens-XXXXXX", made_pattern[64];

/* A text of sorts: after each token one of four that it likes. */
static bool make_shard(const char *path, uint64_t seed, int32_t n) {
    int32_t head[256] = {20240520, 1, n};
    FILE *f = fopen(path, "wb");
    uint16_t token = EOT;
    bool ok = f && fwrite(head, sizeof head, 1, f) == 1;
    for (int32_t i = 0; ok && i < n; i++) {
        uint64_t random = dlp_hash(seed, (uint64_t)i, 0, 0);
        ok = fwrite(&token, sizeof token, 1, f) == 1;
        token = random % 100 == 0 ? EOT : (uint16_t)(dlp_hash(1, token, random >> 32 & 3, 0) % 200);
    }
    return f && fclose(f) == 0 && ok;
}

static const char *make_shards(void) {
    if (mkdtemp(made_dir) == NULL) return NULL;
    snprintf(made_pattern, sizeof made_pattern, "%s/*.bin", made_dir);
    for (int i = 0; i < 3; i++) {
        snprintf(made[i], sizeof made[i], "%s/train_%06d.bin", made_dir, i);
        if (!make_shard(made[i], (uint64_t)i, 20000 + 7777 * i)) return NULL;
    }
    return made_pattern;
}

static void remove_shards(void) {
    for (int i = 0; i < 3 && made[i][0]; i++) unlink(made[i]);
    rmdir(made_dir);
}

/* ---- the program ---- */

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "tokens: %s\n", line);
    return 1;
}

/* Train until the epochs are over, or for so many steps. Returns 0, or says what is wrong. */
static int train(dlp_pipe *pipe, checkpoint *c, int64_t steps, const char *state) {
    dlp_batch *batch = NULL;
    int32_t *start = NULL;
    int code = DLP_OK;
    while (steps-- != 0 && (code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        if (start == NULL) start = malloc(((size_t)batch->fields[0].shape[1] + 1) * sizeof *start);
        if (start == NULL) return perror("tokens"), 1;
        uint64_t epoch = batch->epoch, step = c->steps;
        double loss = train_step(c, batch, start);
        if (step % 20 == 0 || (batch->flags & DLP_BATCH_LAST))
            printf("epoch %d, step %d: loss %.4f\n", (int)epoch, (int)step, loss);
        dlp_pipe_release(pipe, batch);
    }
    free(start);
    if (code != DLP_OK && code != DLP_END) return say(dlp_pipe_error(pipe));
    if (state == NULL || c->steps == 0) return 0;
    if (dlp_pipe_state(pipe, NULL, &c->place) == DLP_OK && checkpoint_save(state, c)) return 0;
    return perror(state), 1;
}

static int run(const dlp_tokens_desc *shards, const char *state, dlp_loader_desc *desc,
               int64_t steps) {
    static checkpoint c;
    dlp_source *tokens = NULL;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (!checkpoint_load(state, &c))
        return fprintf(stderr, "tokens: %s is no checkpoint of ours\n", state), 1;
    desc->pipe.resume = c.steps ? &c.place : NULL;
    if (dlp_ranks_from_env(&desc->pipe.rank, &desc->pipe.world_size, &err) != DLP_OK ||
        dlp_tokens_open(&tokens, shards, &err) != DLP_OK)
        return say(&err);
    desc->source = tokens;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return dlp_source_close(tokens), say(&err);
    const dlp_tokens_info *info = dlp_tokens_describe(tokens);
    fprintf(stderr, "%d shards, %llu tokens, %llu windows of %llu + 1; %llu tokens left out\n",
            (int)info->n_shards, (unsigned long long)info->tokens,
            (unsigned long long)info->n_items, (unsigned long long)info->length,
            (unsigned long long)info->left_out);
    int bad = train(pipe, &c, steps, state);
    bad |= dlp_pipe_close(pipe) != DLP_OK;
    return dlp_source_close(tokens) != DLP_OK || bad;
}

int main(int argc, char **argv) {
    dlp_tokens_desc shards = {.length = 64, .widen = 1}; /* rows are int32_t [65] */
    dlp_loader_desc desc = {
        .batch_size = 8, .num_workers = 1, .shuffle = 1, .seed = 1, .drop_last = 1, .epochs = 2};
    const char *state = NULL;
    int64_t steps = -1;
    int option;
    while ((option = getopt(argc, argv, "w:b:t:e:n:s:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == 't') shards.length = (uint64_t)atoll(optarg);
        if (option == 'e') desc.epochs = atoi(optarg);
        if (option == 'n') steps = atoll(optarg);
        if (option == 's') state = optarg;
        if (option == '?') return 2;
    }
    const char *pattern = optind < argc ? argv[optind] : make_shards();
    if (pattern == NULL) return perror("tokens"), 1;
    shards.pattern = pattern;
    int bad = run(&shards, state, &desc, steps);
    if (pattern == made_pattern) remove_shards();
    return bad;
}
