/* needs: split arrays */
/* Rows of mapped files as batches, without a copy: where they lie, in what order, by threads and
   processes, and what is refused. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/array_views.h"

/* ---- files: row r of x is 4 floats from 4 r on, of y the number r ---- */

static char dir[] = "/tmp/array-chunks-XXXXXX";
static char paths[16][64];
static int n_paths;

static const char *put(const void *head, size_t head_bytes, const void *bytes, size_t n) {
    char *path = paths[n_paths];
    FILE *f;
    snprintf(path, sizeof paths[0], "%s/%d", dir, n_paths++);
    f = fopen(path, "wb");
    if (f == NULL || fwrite(head, 1, head_bytes, f) != head_bytes || fwrite(bytes, 1, n, f) != n ||
        fclose(f) != 0)
        exit(2);
    return path;
}

/* A .npy whose header ends at byte `data`, of rows [from, from + n). */
static const char *put_npy(int y, int data, uint64_t from, uint64_t n) {
    static float x[4 * 1000];
    static int64_t number[1000];
    char head[256] = "\x93NUMPY\x01", text[128];
    for (uint64_t i = 0; i < 4 * n; i++) x[i] = (float)(4 * from + i);
    for (uint64_t i = 0; i < n; i++) number[i] = (int64_t)(from + i);
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%d%s), }",
             y ? "<i8" : "<f4", (int)n, y ? "," : ", 4");
    head[8] = (char)(data - 10);
    snprintf(head + 10, sizeof head - 10, "%-*s\n", data - 11, text);
    return put(head, (size_t)data, y ? (void *)number : (void *)x,
               (size_t)n * (y ? sizeof *number : 4 * sizeof *x));
}

static int right(const dlp_batch *b) {
    const float *x = b->fields[0].data;
    const int64_t *y = b->fields[1].data;
    for (uint32_t r = 0; r < b->count; r++) {
        if (y[r] != (int64_t)b->index[r]) return 0;
        for (uint64_t i = 0; i < 4; i++)
            if (x[4 * r + i] != (float)(4 * b->index[r] + i)) return 0;
    }
    return 1;
}

/* ---- tests ---- */

/* Is an address in a mapping of that file? */
static int is_mapped(const void *at, const char *path) {
    char line[512];
    unsigned long from, to;
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%lx-%lx r--", &from, &to) == 2 && (uintptr_t)at >= from &&
            (uintptr_t)at < to)
            found = strstr(line, path) != NULL && strstr(line, " r--s ") != NULL;
    if (f != NULL) fclose(f);
    return found;
}

/* Two epochs: each row once in each; of batches in one piece the bytes are the files'. */
static void drain(dlp_pipe *p, uint64_t n, const char *x, const char *y, bool in_place) {
    static uint8_t seen[1000];
    uint64_t rows = 0;
    dlp_batch *b;
    int rc;
    memset(seen, 0, sizeof seen);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(right(b) && b->valid_count == b->count);
        CHECK(!in_place || (is_mapped(b->fields[0].data, x) && is_mapped(b->fields[1].data, y)));
        for (uint32_t r = 0; r < b->count; r++) seen[b->index[r]]++;
        rows += b->count;
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && rows == 2 * n);
    for (uint64_t r = 0; r < n; r++) CHECK(seen[r] == 2);
}

static void npy__of_one_file__is_not_copied(void) {
    const char *x = put_npy(0, 128, 0, 1000), *y = put_npy(1, 128, 0, 1000);
    const dlp_array_column columns[] = {{.name = "x", .path = x}, {.name = "y", .path = y}};
    for (int kind = 0; kind < 16; kind++) {
        array_views d = {.arrays = {.columns = columns, .n_columns = 2},
                         .chunks = {.batch_size = 10, .chunk_rows = 100, .epochs = 2}};
        dlp_source *arrays = NULL;
        dlp_pipe *p = NULL;
        dlp_error err;
        d.chunks.workers.num_workers = kind % 4 == 0 ? DLP_NONE : kind % 4;
        d.chunks.shuffle_chunks = kind >> 2 & 1;
        d.chunks.shuffle_rows = kind >= 12;
        if (kind == 5) d.chunks.chunk_rows = 0; /* all of it */
        if (kind % 4 == 2) d.chunks.workers.placement = DLP_PLACE_PROCESSES;
        if (array_views_open(&p, &arrays, &d, &err) != DLP_OK) {
            printf("%s\n", err.message);
            CHECK(0);
            return;
        }
        CHECK(dlp_arrays_describe(arrays)->n_items == 1000);
        drain(p, 1000, x, y, kind < 12);
        if (kind % 4 == 1) CHECK(dlp_source_close(arrays) == DLP_ERR_BUSY);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(arrays) == DLP_OK);
    }
}

/* Files that end where those of the other column do not: no chunk has rows of two. */
static void npy__of_many_files__chunks_end_with_them(void) {
    const char *xs[3], *ys[2];
    dlp_array_column columns[] = {{.name = "x", .paths = xs, .n_paths = 3},
                                  {.name = "y", .paths = ys, .n_paths = 2}};
    xs[0] = put_npy(0, 128, 0, 37);
    xs[1] = put_npy(0, 192, 37, 1);
    xs[2] = put_npy(0, 128, 38, 102);
    ys[0] = put_npy(1, 128, 0, 77);
    ys[1] = put_npy(1, 192, 77, 63);
    for (int kind = 0; kind < 4; kind++) {
        array_views d = {.arrays = {.columns = columns, .n_columns = 2},
                         .chunks = {.batch_size = 10, .chunk_rows = 30, .epochs = 2}};
        dlp_source *arrays = NULL;
        dlp_pipe *p = NULL;
        d.chunks.shuffle_chunks = kind & 1;
        d.chunks.shuffle_rows = kind >> 1;
        CHECK(array_views_open(&p, &arrays, &d, NULL) == DLP_OK);
        if (p == NULL) return;
        drain(p, 140, NULL, NULL, false);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(arrays) == DLP_OK);
    }
}

static void cifar__records__with_their_labels(void) {
    static uint8_t records[20][3073];
    dlp_array_column column = {.format = DLP_ARRAY_CIFAR10};
    array_views d = {.arrays = {.columns = &column, .n_columns = 1},
                     .chunks = {.batch_size = 4, .within_chunks = 1}};
    dlp_source *arrays = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    for (int i = 0; i < 20; i++) memset(records[i], i, sizeof records[i]);
    column.path = put(records, 0, records, sizeof records);
    CHECK(array_views_open(&p, &arrays, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    CHECK(strcmp(b->fields[0].name, "record") == 0 && b->n_fields == 1);
    CHECK(b->fields[0].ndim == 2 && b->fields[0].shape[1] == 3073 && b->count == 4);
    CHECK(memcmp(b->fields[0].data, records, 4 * 3073) == 0);
    CHECK(is_mapped(b->fields[0].data, column.path));
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(arrays) == DLP_OK);
}

/* What cannot be a view says why. */
static void descs__of_what_must_be_copied__are_refused(void) {
    static const uint8_t ints[] = {0, 0, 12, 1, 0, 0, 0, 2}, numbers[8] = {0};
    const struct {
        const char *path;
        int32_t reads;
        int code;
        const char *words;
    } bad[] = {
        {put(ints, sizeof ints, numbers, sizeof numbers), 0, DLP_ERR_UNSUPPORTED, "big-endian"},
        {put_npy(1, 100, 0, 10), 0, DLP_ERR_UNSUPPORTED, "multiple of 8"},
        {put_npy(1, 128, 0, 10), 1, DLP_ERR_ARG, "reads"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const dlp_array_column column = {.name = "y", .path = bad[i].path};
        const array_views d = {
            .arrays = {.columns = &column, .n_columns = 1, .reads = bad[i].reads},
            .chunks = {.batch_size = 2}};
        dlp_source *arrays = NULL;
        dlp_pipe *p = NULL;
        dlp_error err;
        CHECK(array_views_open(&p, &arrays, &d, &err) == bad[i].code);
        CHECK(strstr(err.message, bad[i].words) != NULL && p == NULL && arrays == NULL);
    }
}

/* A file that is cut is an error before the consumer comes to it. */
static void file__cut_meanwhile__is_an_error(void) {
    const char *path = put_npy(1, 128, 0, 1000);
    const dlp_array_column column = {.name = "y", .path = path};
    const array_views d = {
        .arrays = {.columns = &column, .n_columns = 1},
        .chunks = {.batch_size = 10, .chunk_rows = 10, .workers = {.num_workers = DLP_NONE}}};
    dlp_source *arrays = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    CHECK(array_views_open(&p, &arrays, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(truncate(path, 200) == 0);
    usleep(30000); /* a tick of the coarse clock */
    int rc = DLP_OK;
    for (int i = 0; i < 100 && rc == DLP_OK; i++)
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == DLP_ERR_CALLBACK && strstr(dlp_pipe_error(p)->message, "was cut") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(arrays) == DLP_OK);
}

int main(void) {
    if (mkdtemp(dir) == NULL) return 2;
    npy__of_one_file__is_not_copied();
    npy__of_many_files__chunks_end_with_them();
    cifar__records__with_their_labels();
    descs__of_what_must_be_copied__are_refused();
    file__cut_meanwhile__is_an_error();
    for (int i = 0; i < n_paths; i++) unlink(paths[i]);
    rmdir(dir);
    return test_end("shm_array_chunks");
}
