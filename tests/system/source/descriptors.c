/* needs: lines parts */
/* Files by descriptors of the C library, where the library has handles of its own (on Windows these
   differ): a download writes to one, and a locate gives one. Lines are read by the library's own
   handles. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"

enum { PARTS = 4, EACH = 25, LINES = 60 };

static const dlp_field number_ = {.name = "number", .dtype = DLP_U32};

/* Sum all items of a loader, which are numbers. */
static uint64_t sum_of(const dlp_loader_desc *d) {
    uint64_t sum = 0;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e = {.code = 0};
    int rc;
    CHECK(dlp_loader_open(&p, d, &e) == DLP_OK);
    if (p == NULL) printf("%s\n", e.message);
    if (p == NULL) return 0;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint32_t *x = b->fields[0].data;
        for (uint32_t i = 0; i < b->count; i++) sum += x[i];
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END);
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return sum;
}

/* ---- downloads ---- */

static uint32_t downloads_;

/* Write bytes that a descriptor of text would change: 10 becomes 13, 10. */
static int download(void *user, const dlp_part *part, const char *path, int fd) {
    uint32_t numbers[EACH];
    (void)user, (void)path;
    __atomic_add_fetch(&downloads_, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < EACH; i++) numbers[i] = (uint32_t)part->index * EACH + i;
    return write(fd, numbers, sizeof numbers) == (int)sizeof numbers
               ? 0
               : dlp_fail(part->call, errno, "write");
}

static int fetch_number(void *user, dlp_item *item) {
    (void)user;
    memcpy(item->data[0], (const uint32_t *)item->part->data + item->part->item, 4);
    return 0;
}

static void download__writes_by_a_descriptor__whole_files(void) {
    static const dlp_part_file list[PARTS] = {{"0", 0, 0}, {"1", 0, 0}, {"2", 0, 0}, {"3", 0, 0}};
    static const uint64_t items[PARTS] = {EACH, EACH, EACH, EACH};
    dlp_part_files files = {.files = list, .n_files = PARTS, .dir = rig_dir, .download = download};
    const dlp_loader_desc d = {
        .dataset = {.fields = &number_, .n_fields = 1, .fetch = fetch_number},
        .batch_size = 10,
        .num_workers = 1,
        .parts = {.n_parts = PARTS,
                  .items = items,
                  .max_part_bytes = sizeof(uint32_t) * EACH,
                  .load = dlp_part_files_load,
                  .user = &files,
                  .workers = {.num_workers = 2}}};
    for (int twice = 0; twice < 2; twice++) {
        CHECK(sum_of(&d) == (uint64_t)PARTS * EACH * (PARTS * EACH - 1) / 2);
        CHECK(downloads_ == PARTS); /* the second run finds the files */
    }
}

/* ---- a locate that gives a descriptor ---- */

static int fd_;

static int locate(void *user, const dlp_item *item, dlp_extent *out) {
    (void)user;
    out->fd = fd_;
    out->offset = 4 * item->index;
    out->length = 4;
    return 0;
}

static int decode(void *user, void *own, dlp_item *item, const void *bytes, uint64_t n) {
    (void)user, (void)own;
    memcpy(item->data[0], bytes, (size_t)n);
    return 0;
}

static void locate__gives_a_descriptor__read(void) {
    dlp_source *source = NULL;
    const dlp_files_desc files = {.n_items = EACH,
                                  .fields = &number_,
                                  .n_fields = 1,
                                  .locate = locate,
                                  .decode = decode,
                                  .max_bytes = 4};
    fd_ = open(in_rig("1"), O_RDONLY | O_BINARY);
    CHECK(fd_ >= 0 && dlp_files_open(&source, &files, NULL) == DLP_OK);
    const dlp_loader_desc d = {.source = source, .batch_size = 4, .num_workers = 2};
    CHECK(sum_of(&d) == (uint64_t)EACH * EACH + EACH * (EACH - 1) / 2);
    CHECK(dlp_source_close(source) == DLP_OK && close(fd_) == 0);
}

/* ---- lines ---- */

static int parse(void *user, void *own, dlp_item *item, const char *line, uint64_t n) {
    uint32_t number = 0;
    (void)user, (void)own;
    for (uint64_t i = 0; i < n; i++) number = 10 * number + (uint32_t)(line[i] - '0');
    memcpy(item->data[0], &number, sizeof number);
    return 0;
}

static void lines__by_requests_or_one_by_one__read(void) {
    char text[10 * LINES];
    size_t n = 0;
    for (int i = 0; i < LINES; i++) n += (size_t)snprintf(text + n, sizeof text - n, "%d\n", i);
    rig_write("lines", text, n);
    for (int in_flight = 0; in_flight < 8; in_flight += 4) {
        dlp_source *source = NULL;
        const dlp_lines_desc lines = {.path = in_rig("lines"),
                                      .fields = &number_,
                                      .n_fields = 1,
                                      .parse = parse,
                                      .in_flight = in_flight};
        CHECK(dlp_lines_open(&source, &lines, NULL) == DLP_OK);
        const dlp_loader_desc d = {
            .source = source, .batch_size = 4, .num_workers = 2, .shuffle = 1};
        CHECK(sum_of(&d) == LINES * (LINES - 1) / 2);
        CHECK(dlp_source_close(source) == DLP_OK);
    }
}

int main(void) {
    rig_begin("descriptors");
    download__writes_by_a_descriptor__whole_files();
    locate__gives_a_descriptor__read();
    lines__by_requests_or_one_by_one__read();
    rig_end();
    return test_end("descriptors");
}
