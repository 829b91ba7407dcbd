/* Batches of pictures and labels out of a folder with a directory for each class. Prints the
   classes and the mean colour that each has.

   folder [-w workers] [-b batch] [-e epochs] [-t TRAINING] [FOLDER]
   cc -O2 folder.c -lpthread                     PPM alone (P6, 8 bits)
   cc -O2 -DUSE_JPEG folder.c -lpthread -ljpeg   and JPEG, by libjpeg-turbo
   cc -O2 -DUSE_STB folder.c -lpthread -lm       and all that stb_image.h reads, which lies beside

   -t: the classes have the numbers that they have in the folder TRAINING, as a validation needs it.
   Without FOLDER the program makes up one of PPMs, and removes it. Pictures that cannot be decoded
   are replaced by others and counted. Decoding is the program's, listing and reading are dlpipe's:
   dlp_folder_open tells paths and classes, dlp_files reads many files at once. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef USE_JPEG
#include <setjmp.h>
#include <jpeglib.h>
#endif
#ifdef USE_STB
#define STB_IMAGE_IMPLEMENTATION
#include "stb_image.h"
#endif

enum { SIDE = 64, MAX_BYTES = 64 << 20, MAX_SIDE = 1 << 14 };

/* ---- decoding: pixels [height][width][3], to be freed; NULL: not this format, or damaged ---- */

static unsigned char *decode_ppm(const unsigned char *bytes, uint64_t n, int *width, int *height) {
    char head[32] = "";
    int most, at = 0;
    memcpy(head, bytes, n < sizeof head - 1 ? n : sizeof head - 1);
    if (sscanf(head, "P6 %d %d %d%n", width, height, &most, &at) != 3 || most != 255) return NULL;
    if (*width < 1 || *width > MAX_SIDE || *height < 1 || *height > MAX_SIDE) return NULL;
    uint64_t want = (uint64_t)*width * (uint64_t)*height * 3, begin = (uint64_t)at + 1;
    if (n < begin || n - begin < want) return NULL;
    unsigned char *pixels = malloc(want);
    return pixels ? memcpy(pixels, bytes + begin, want) : NULL;
}

#ifdef USE_JPEG
typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *pixels;
    jmp_buf out;
} decoder;

static void give_up(j_common_ptr info) { /* libjpeg expects it not to return */
    longjmp(((decoder *)info->client_data)->out, 1);
}

static void say_nothing(j_common_ptr info) { (void)info; }

static unsigned char *decode_jpeg(const unsigned char *bytes, uint64_t n, int *width, int *height) {
    decoder *d = calloc(1, sizeof *d);
    unsigned char *pixels;
    if (d == NULL) return NULL;
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = give_up;
    d->errors.output_message = say_nothing;
    d->jpeg.client_data = d;
    if (setjmp(d->out) == 0) {
        jpeg_create_decompress(&d->jpeg);
        jpeg_mem_src(&d->jpeg, bytes, (unsigned long)n);
        jpeg_read_header(&d->jpeg, TRUE);
        d->jpeg.out_color_space = JCS_RGB;
        jpeg_start_decompress(&d->jpeg);
        *width = (int)d->jpeg.output_width;
        *height = (int)d->jpeg.output_height;
        size_t line = (size_t)*width * 3;
        d->pixels = malloc(line * (size_t)*height);
        while (d->pixels && d->jpeg.output_scanline < d->jpeg.output_height) {
            unsigned char *to = d->pixels + line * d->jpeg.output_scanline;
            jpeg_read_scanlines(&d->jpeg, &to, 1);
        }
    } else {
        free(d->pixels);
        d->pixels = NULL;
    }
    jpeg_destroy_decompress(&d->jpeg);
    pixels = d->pixels;
    free(d);
    return pixels;
}
#endif

static unsigned char *decode_any(const unsigned char *bytes, uint64_t n, int *width, int *height) {
    unsigned char *pixels = decode_ppm(bytes, n, width, height);
#ifdef USE_JPEG
    if (pixels == NULL) pixels = decode_jpeg(bytes, n, width, height);
#endif
#ifdef USE_STB
    if (pixels == NULL) pixels = stbi_load_from_memory(bytes, (int)n, width, height, NULL, 3);
#endif
    return pixels;
}

/* Write an item: the picture, scaled by taking the nearest pixels, and its label. */
static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const dlp_folder *folder = user;
    unsigned char *to = item->data[0], *pixels;
    int width, height;
    (void)state;
    pixels = decode_any(bytes, n, &width, &height);
    if (pixels == NULL)
        return dlp_fail(item->call, 0, "%s: not decoded", folder->paths[item->index]);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            size_t from = (size_t)(y * height / SIDE) * (size_t)width + (size_t)(x * width / SIDE);
            memcpy(to, pixels + 3 * from, 3);
            to += 3;
        }
    memcpy(item->data[1], &folder->labels[item->index], sizeof(uint32_t));
    free(pixels);
    return 0;
}

/* ---- a folder that is made up ---- */

static char made[32] = "/tmp/folder-XXXXXX";

static int make_or_remove(int remove) {
    static const char *const classes[] = {"blue", "green", "red"};
    char path[96];
    for (int c = 0; c < 3; c++) {
        snprintf(path, sizeof path, "%s/%s", made, classes[c]);
        if (!remove && mkdir(path, 0700) != 0) return 1;
        for (int i = 0; i < 40; i++) {
            snprintf(path, sizeof path, "%s/%s/%d.ppm", made, classes[c], i);
            FILE *f = remove ? NULL : fopen(path, "wb");
            if (f) fprintf(f, "P6\n%d %d\n255\n", 20 + i, 30);
            for (int k = 0; f && k < (20 + i) * 30; k++)
                for (int rgb = 0; rgb < 3; rgb++)
                    fputc((int)(dlp_hash(1, (uint64_t)k, (uint64_t)rgb, (uint64_t)i) % 100) +
                              (rgb == 2 - c ? 150 : 0),
                          f);
            if (remove ? unlink(path) != 0 : f == NULL || fclose(f) != 0) return 1;
        }
        snprintf(path, sizeof path, "%s/%s", made, classes[c]);
        if (remove) rmdir(path);
    }
    if (remove) rmdir(made);
    return 0;
}

/* ---- the program ---- */

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "folder: %s\n", line);
    return 1;
}

/* The sum of each class's colours; a training step would be here. */
static void step(const dlp_batch *b, double (*colour)[4]) {
    const unsigned char *x = b->fields[0].data; /* [count][SIDE][SIDE][3] */
    const uint32_t *label = b->fields[1].data;  /* [count] */
    for (uint32_t i = 0; i < b->count; i++) {
        double *sum = colour[label[i]];
        for (int k = 0; k < SIDE * SIDE; k++)
            for (int rgb = 0; rgb < 3; rgb++) sum[rgb] += *x++;
        sum[3] += SIDE * SIDE;
    }
}

static int run(const dlp_folder *folder, dlp_source *files, dlp_loader_desc *desc) {
    double(*colour)[4] = calloc(folder->n_classes, sizeof *colour);
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    uint64_t skipped = 0;
    int code;
    if (colour == NULL) return perror("folder"), 1;
    desc->source = files;
    fprintf(stderr, "files are read by %s\n", dlp_files_backend(files));
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return free(colour), say(&err);
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        step(batch, colour);
        dlp_pipe_release(pipe, batch);
    }
    int bad = code != DLP_END && say(dlp_pipe_error(pipe));
    dlp_pipe_skips(pipe, NULL, 0, &skipped);
    for (uint32_t c = 0; c < folder->n_classes && !bad; c++) {
        double pixels = colour[c][3] > 0 ? colour[c][3] : 1;
        printf("%-20s %6llu files, mean colour %3.0f %3.0f %3.0f\n", folder->classes[c],
               (unsigned long long)folder->class_files[c], colour[c][0] / pixels,
               colour[c][1] / pixels, colour[c][2] / pixels);
    }
    if (skipped > 0) printf("%llu could not be decoded\n", (unsigned long long)skipped);
    free(colour);
    return dlp_pipe_close(pipe) != DLP_OK || bad;
}

static int open_and_run(const dlp_folder_desc *folder_desc, dlp_loader_desc *desc) {
    const dlp_field fields[] = {
        {.name = "picture", .dtype = DLP_U8, .ndim = 3, .shape = {SIDE, SIDE, 3}},
        {.name = "label", .dtype = DLP_U32},
    };
    dlp_folder *folder = NULL;
    dlp_source *files = NULL;
    dlp_error err;
    if (dlp_folder_open(&folder, folder_desc, &err) != DLP_OK) return say(&err);
    const dlp_files_desc files_desc = {.n_items = folder->n_files,
                                       .paths = folder->paths,
                                       .fields = fields,
                                       .n_fields = 2,
                                       .decode = decode,
                                       .max_bytes = MAX_BYTES,
                                       .user = folder,
                                       .warning = folder->warning};
    int bad = dlp_files_open(&files, &files_desc, &err) != DLP_OK && say(&err);
    desc->sampler.function_id = folder->id; /* a saved state knows the folder by it */
    if (!bad) bad = run(folder, files, desc);
    bad |= dlp_source_close(files) != DLP_OK;
    dlp_folder_close(folder);
    return bad;
}

/* Run over the folder at `path`, with the classes of the folder at `training`, unless it is NULL.
   */
static int run_path(const char *path, const char *training, dlp_loader_desc *desc) {
    dlp_folder_desc folder_desc = {.path = path};
    dlp_folder *train = NULL;
    dlp_error err;
    if (training != NULL) {
        if (dlp_folder_open(&train, &(dlp_folder_desc){.path = training}, &err) != DLP_OK)
            return say(&err);
        folder_desc.classes = train->classes;
        folder_desc.n_classes = train->n_classes;
    }
    int bad = open_and_run(&folder_desc, desc);
    dlp_folder_close(train);
    return bad;
}

int main(int argc, char **argv) {
    const char *training = NULL;
    dlp_loader_desc desc = {.batch_size = 16,
                            .num_workers = 2,
                            .shuffle = 1,
                            .epochs = 1,
                            .pipe.log = dlp_log_stderr,
                            .workers = {.on_error = DLP_ON_ERROR_REPLACE}};
    int option;
    while ((option = getopt(argc, argv, "w:b:e:t:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == 'e') desc.epochs = atoi(optarg);
        if (option == 't') training = optarg;
        if (option == '?') return 2;
    }
    if (optind < argc) return run_path(argv[optind], training, &desc);
    if (mkdtemp(made) == NULL || make_or_remove(0) != 0) return perror("folder"), 1;
    int bad = run_path(made, training, &desc);
    return make_or_remove(1) != 0 || bad;
}
