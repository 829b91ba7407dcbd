/* What tests of lines and tar shards share: all rows of a source, in the order of their index, and
   clocks of files. Behind dlpipe.h, check.h and source_rig.h. */
#ifndef INDEXED_RIG_H
#define INDEXED_RIG_H

#include "sanitizers.h"

enum { ROWS_MOST = 1 << 15 };

/* Rows as they came: field 0, ragged bytes. */
typedef struct rig_rows {
    uint64_t n;           /* rows that are valid */
    char *row[ROWS_MOST]; /* by index; NULL: it did not come */
    uint64_t bytes[ROWS_MOST];
    dlp_error err; /* of the pipe; code 0: none */
} rig_rows;

static inline void rows_free(rig_rows *r) {
    if (r == NULL) return;
    for (uint64_t i = 0; i < ROWS_MOST; i++) free(r->row[i]);
    free(r);
}

/* Drain a pipe of a source. desc: dataset and source are set here. */
static inline rig_rows *rows_of(const dlp_source *s, const dlp_loader_desc *desc) {
    rig_rows *r = calloc(1, sizeof *r);
    dlp_loader_desc d = *desc;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    d.source = s;
    if (d.batch_size == 0) d.batch_size = 7;
    CHECK(r != NULL);
    if (r == NULL) exit(1);
    if (dlp_loader_open(&p, &d, &r->err) != DLP_OK) return r;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        const dlp_tensor *t = &b->fields[0];
        uint64_t stride = (uint64_t)t->shape[1];
        for (uint32_t i = 0; i < b->count; i++) {
            uint64_t k = b->index[i], n = t->lengths[i];
            if (!b->valid[i]) continue;
            CHECK(k < ROWS_MOST && r->row[k] == NULL && n <= stride);
            r->row[k] = malloc((size_t)n + 1);
            memcpy(r->row[k], (const char *)t->data + i * stride, (size_t)n);
            r->row[k][n] = 0;
            r->bytes[k] = n;
            r->n++;
        }
        dlp_pipe_release(p, b);
    }
    r->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return r;
}

/* Set the time of a file's last change, in seconds. */
static inline void rig_time(const char *path, long seconds) {
    CHECK(test_set_time(path, seconds) == 0);
}

/* Cut a file that is open. Returns false if the system refuses it: Windows does while the file is
   mapped. */
static inline bool test_cut(const char *path, long bytes, int mapped) {
    const bool cut = truncate(path, bytes) == 0;
#ifdef _WIN32
    CHECK(cut == !mapped);
#else
    (void)mapped;
    CHECK(cut);
#endif
    return cut;
}

static inline uint64_t rig_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : UINT64_MAX;
}

static inline int rig_files(const char *directory) {
    DIR *d = opendir(directory);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

#endif
