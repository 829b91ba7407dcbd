/* Random crops of sound files: item i is a second of file i that begins anywhere, another one in
   each epoch. A shorter file is followed by zeros; several channels become their mean.

     audio FILE...      all that libsndfile reads: WAV, FLAC, OGG
     cc -O2 audio.c -lsndfile -lpthread -lm

   The crops are the same for any number of workers, and in a run that is resumed. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <math.h>
#include <sndfile.h>
#include <stdio.h>

enum { FRAMES = 16000, MOST_CHANNELS = 8 };

static int fetch(void *paths, dlp_item *item) {
    const char *path = ((char **)paths)[item->index];
    float *out = item->data[0], frame[MOST_CHANNELS];
    SF_INFO info = {0};
    SNDFILE *f = sf_open(path, SFM_READ, &info);
    sf_count_t first = 0;
    int bad = f == NULL || info.channels > MOST_CHANNELS;
    if (!bad && info.frames > FRAMES)
        first = (sf_count_t)(dlp_item_random(item, 0) % (uint64_t)(info.frames - FRAMES + 1));
    bad = bad || sf_seek(f, first, SEEK_SET) != first;
    for (int i = 0; !bad && i < FRAMES && sf_readf_float(f, frame, 1) == 1; i++) {
        for (int k = 0; k < info.channels; k++) out[i] += frame[k];
        out[i] /= (float)info.channels;
    }
    if (bad) bad = dlp_fail(item->call, 0, "%s: %s", path, sf_strerror(f));
    if (f) sf_close(f);
    *(uint64_t *)item->data[1] = (uint64_t)first;
    return bad;
}

int main(int argc, char **argv) {
    const dlp_field fields[] = {{.name = "sound", .dtype = DLP_F32, .ndim = 1, .shape = {FRAMES}},
                                {.name = "first", .dtype = DLP_U64}};
    const dlp_loader_desc desc = {
        .dataset = {.n_items = (uint64_t)(argc - 1),
                    .fields = fields,
                    .n_fields = 2,
                    .fetch = fetch,
                    .user = argv + 1},
        .batch_size = 8,
        .num_workers = 4,
        .shuffle = 1,
        .epochs = 2,
        .seed = 1,
    };
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (argc < 2) return puts("audio FILE..."), 2;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        for (uint32_t i = 0; i < batch->count; i++) {
            const float *x = (const float *)batch->fields[0].data + i * FRAMES;
            double power = 0;
            for (int k = 0; k < FRAMES; k++) power += (double)(x[k] * x[k]);
            printf("epoch %d: %s from frame %llu, loudness %.4f\n", (int)batch->epoch,
                   argv[1 + batch->index[i]], ((unsigned long long *)batch->fields[1].data)[i],
                   sqrt(power / FRAMES));
        }
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
