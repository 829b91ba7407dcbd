/* Rows of a table as items: the mean of each column of a CSV file, or of a .npy.

   table [-w workers] [-b batch] [FILE.csv | FILE.npy]
   cc -O2 table.c -lpthread

   CSV: a line of names, then lines of numbers between commas, without quotes. Where each line
   begins is found once; workers then read and parse lines in any order, so a shuffle costs nothing.
   A .npy of floats, [rows] or [rows][columns], takes no code at all. Without a file the program
   makes up a CSV, and removes it. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_COLUMNS = 256, MAX_LINE = 8192 };

/* ---- a CSV: where its lines are, and what is in one ---- */

typedef struct csv {
    int fd, columns;
    uint64_t rows;
    uint64_t *at; /* [rows + 1] where each line begins, and the last one ends */
} csv;

static int csv_open(csv *c, const char *path) {
    FILE *f = fopen(path, "rb");
    char *line = NULL;
    size_t size = 0, room = 0, n_lines = 0;
    int64_t n, at = 0;
    *c = (csv){.fd = open(path, O_RDONLY | O_CLOEXEC), .columns = 1};
    if (f == NULL || c->fd < 0) return perror(path), 1;
    while ((n = getline(&line, &size, f)) > 0) {
        for (int64_t i = 0; at == 0 && i < n; i++) c->columns += line[i] == ',';
        at += n;
        if (n_lines == room) {
            uint64_t *more = realloc(c->at, (room = 2 * room + 1024) * sizeof *more);
            if (more == NULL) return perror(path), 1;
            c->at = more;
        }
        c->at[n_lines++] = (uint64_t)at; /* the first is that of the names, no row */
    }
    free(line);
    fclose(f);
    c->rows = n_lines > 0 ? n_lines - 1 : 0;
    if (c->rows == 0 || c->columns > MAX_COLUMNS) {
        fprintf(stderr, "%s: no rows, or more than %d columns\n", path, MAX_COLUMNS);
        return 1;
    }
    return 0;
}

static void csv_close(csv *c) {
    if (c->fd >= 0) close(c->fd);
    free(c->at);
}

/* Where item->index lies. */
static int locate(void *user, const dlp_item *item, dlp_extent *out) {
    const csv *c = user;
    out->fd = c->fd;
    out->offset = c->at[item->index];
    out->length = c->at[item->index + 1] - out->offset;
    return 0;
}

/* Its numbers, out of its bytes. */
static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const csv *c = user;
    const char *line = bytes;
    (void)state;
    if (n > 0 && line[n - 1] == '\n') n--;
    if (n > 0 && line[n - 1] == '\r') n--;
    return dlp_csv_floats(line, n, item->data[0], (uint32_t)c->columns, item->call);
}

/* ---- the program ---- */

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "table: %s\n", line);
    return 1;
}

/* Drain a pipe of floats [count][columns]; a training step would be here. */
static int means(dlp_pipe *pipe) {
    double sum[MAX_COLUMNS] = {0}, rows = 0;
    int64_t columns = 0;
    dlp_batch *batch = NULL;
    int code;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const dlp_tensor *t = &batch->fields[0];
        const float *x = t->data;
        columns = t->ndim == 2 && t->shape[1] <= MAX_COLUMNS ? t->shape[1] : 1;
        for (uint32_t i = 0; i < batch->count; i++)
            for (int64_t k = 0; k < columns; k++) sum[k] += (double)*x++;
        rows += batch->count;
        dlp_pipe_release(pipe, batch);
    }
    int bad = code != DLP_END && say(dlp_pipe_error(pipe));
    if (!bad) printf("%.0f rows", rows);
    for (int64_t k = 0; !bad && k < columns; k++) printf(", %g", sum[k] / rows);
    if (!bad) printf("\n");
    return dlp_pipe_close(pipe) != DLP_OK || bad;
}

static int of_csv(const char *path, dlp_loader_desc *desc) {
    csv table;
    dlp_source *files = NULL;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    int bad = csv_open(&table, path);
    const dlp_field field = {.name = "row", .dtype = DLP_F32, .ndim = 1, .shape = {table.columns}};
    const dlp_files_desc lines = {.n_items = table.rows,
                                  .fields = &field,
                                  .n_fields = 1,
                                  .locate = locate,
                                  .decode = decode,
                                  .max_bytes = MAX_LINE,
                                  .user = &table};
    if (!bad) bad = dlp_files_open(&files, &lines, &err) != DLP_OK && say(&err);
    if (!bad) {
        desc->source = files;
        bad = dlp_loader_open(&pipe, desc, &err) != DLP_OK ? say(&err) : means(pipe);
    }
    bad |= dlp_source_close(files) != DLP_OK;
    csv_close(&table);
    return bad;
}

static int of_npy(const char *path, dlp_loader_desc *desc) {
    const dlp_array_column column = {.name = "row", .path = path};
    const dlp_arrays_desc file = {.columns = &column, .n_columns = 1};
    dlp_source *arrays = NULL;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (dlp_arrays_open(&arrays, &file, &err) != DLP_OK) return say(&err);
    const dlp_field *field = dlp_arrays_describe(arrays)->fields;
    int bad = field->dtype != DLP_F32 || field->ndim > 1;
    if (bad) fprintf(stderr, "%s: not rows of 32-bit floats\n", path);
    desc->source = arrays;
    if (!bad) bad = dlp_loader_open(&pipe, desc, &err) != DLP_OK ? say(&err) : means(pipe);
    return dlp_source_close(arrays) != DLP_OK || bad;
}

static int make_up(char *path) {
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f == NULL) return perror(path), 1;
    fprintf(f, "number,half,square\n");
    for (int i = 0; i < 1000; i++) fprintf(f, "%d,%g,%d\n", i, i * 0.5, i * i);
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    dlp_loader_desc desc = {.batch_size = 64, .num_workers = 2, .shuffle = 1};
    char made[] = "/tmp/table-XXXXXX";
    int option;
    while ((option = getopt(argc, argv, "w:b:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == '?') return 2;
    }
    if (optind < argc) {
        size_t n = strlen(argv[optind]);
        bool npy = n > 4 && strcmp(argv[optind] + n - 4, ".npy") == 0;
        return npy ? of_npy(argv[optind], &desc) : of_csv(argv[optind], &desc);
    }
    if (make_up(made) != 0) return 1;
    int bad = of_csv(made, &desc);
    return unlink(made) != 0 || bad;
}
