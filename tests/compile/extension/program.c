/* A kind of stage, an order and a list of paths that were added to a copy of src/: what they give,
   and in which order, with any number of workers. */
#define DLPIPE_IMPLEMENTATION
#include "dlpipe.h"
#define LINES_IMPLEMENTATION
#include "lines.h"

#include "check.h"

#define ITEMS 60u

/* ---- a pipe: all kinds in a row ---- */

static void numbers_of(uint64_t index, uint32_t x[3]) {
    for (uint32_t i = 0; i < 3; i++) x[i] = (uint32_t)index * 1000 + i;
}

static int fetch_numbers(void *user, dlp_item *it) {
    uint32_t x[3];
    const int *scratch = user;
    numbers_of(it->index, x);
    memcpy(it->data[0], x, sizeof x);
    if (*scratch) memset(it->data[1], (int)it->index + 1, 8);
    return 0;
}

/* Behind the checksum, which must not see what this one writes. Both see what fetch has read. */
static int change_numbers(void *user, dlp_item *it) {
    const int *scratch = user;
    CHECK(it->n_fields == 2 + (uint32_t)*scratch);
    CHECK(!*scratch || ((const unsigned char *)it->data[1])[7] == it->index + 1);
    ((uint32_t *)it->data[0])[0] ^= 0xffffffffu;
    return 0;
}

static uint64_t fnv(uint64_t sum, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return sum;
}

static uint64_t sum_of(uint64_t index, int scratch) {
    uint64_t sum = UINT64_C(14695981039346656037);
    unsigned char raw[8];
    uint32_t x[3];
    numbers_of(index, x);
    memset(raw, (int)index + 1, sizeof raw);
    sum = fnv(sum, x, sizeof x);
    return scratch ? fnv(sum, raw, sizeof raw) : sum;
}

static dlp_pipe *pipe_of(int scratch, int workers, const dlp_state *resume) {
    static int scratches[2] = {0, 1};
    static const dlp_field fields[] = {{"x", DLP_U32, 1, {3}, 0, 0}, {"raw", DLP_U8, 1, {8}, 0, 0}};
    const dlp_pipe_desc desc = {.resume = resume, .epochs = 2, .seed = 6};
    const dlp_sampler_desc strided = {.order = DLP_ORDER_STRIDED};
    const dlp_workers_desc some = {.num_workers = workers};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .order = &strided}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_numbers,
                   .user = &scratches[scratch],
                   .fields = fields,
                   .n_fields = scratch ? 2 : 1},
         .workers = some},
        {.name = "checksum", .verb = DLP_CHECKSUM, .checksum = {"sum"}, .workers = some},
        {.name = "map",
         .verb = DLP_MAP,
         .map = {.item = change_numbers,
                 .user = &scratches[scratch],
                 .ends = scratch ? "raw" : NULL},
         .workers = some},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    dlp_error err;
    dlp_pipe *p;
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err) == DLP_OK) return p;
    printf("%s: %s\n", err.stage, err.message);
    return NULL;
}

/* Write down the indices of all rows. state: after the 5th batch. Returns how many rows. */
static uint32_t run(int scratch, int workers, const dlp_state *resume, uint64_t *index,
                    dlp_state *state) {
    dlp_pipe *p = pipe_of(scratch, workers, resume);
    uint32_t rows = 0, batches = 0;
    dlp_batch *b;
    CHECK(p != NULL);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        const uint32_t *x = b->fields[0].data;
        const uint64_t *sums = b->fields[1].data;
        CHECK(b->n_fields == 2 && strcmp(b->fields[1].name, "sum") == 0);
        for (uint32_t r = 0; r < b->count; r++) {
            uint32_t want[3];
            numbers_of(b->index[r], want);
            want[0] ^= 0xffffffffu;
            CHECK(memcmp(&x[3 * r], want, sizeof want) == 0);
            CHECK(sums[r] == sum_of(b->index[r], scratch));
            if (rows < 2 * ITEMS) index[rows++] = b->index[r];
        }
        if (++batches == 5) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    return rows;
}

/* Each item once, one stride after the other. Returns the stride. */
static uint64_t stride_of(const uint64_t index[ITEMS]) {
    uint64_t stride = (index[1] + ITEMS - index[0]) % ITEMS, seen = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
        CHECK(index[i] < ITEMS && index[i] == (index[0] + i * stride) % ITEMS);
        seen |= UINT64_C(1) << index[i];
    }
    CHECK(seen == (UINT64_C(1) << ITEMS) - 1);
    return stride;
}

static void extended__kind_and_order__same_with_any_workers(void) {
    uint64_t want[2 * ITEMS], got[2 * ITEMS];
    dlp_state state, other;
    for (int scratch = 0; scratch < 2; scratch++) {
        CHECK(run(scratch, 0, NULL, want, &state) == 2 * ITEMS);
        CHECK(stride_of(want) != stride_of(want + ITEMS));
        for (int workers = 1; workers < 4; workers++) {
            CHECK(run(scratch, workers, NULL, got, &other) == 2 * ITEMS);
            CHECK(memcmp(got, want, sizeof got) == 0);
        }
        CHECK(run(scratch, 2, &state, got, &other) == 2 * ITEMS - 35);
        CHECK(memcmp(got, want + 35, (2 * ITEMS - 35) * sizeof *got) == 0);
    }
}

static void extended__field_without_a_name_or_of_one_that_is_there__refused(void) {
    static const dlp_field x = {"x", DLP_U32, 1, {3}, 0, 0};
    static int no_scratch;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_numbers, .user = &no_scratch, .fields = &x, .n_fields = 1}},
        {.name = "sums", .verb = DLP_CHECKSUM},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    dlp_pipe *p = NULL;
    dlp_error err;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) == DLP_ERR_ARG && p == NULL);
    CHECK(strcmp(err.stage, "sums") == 0);
    nodes[2].checksum.field = "x";
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) == DLP_ERR_ARG && p == NULL);
    CHECK(strstr(err.message, "\"x\"") != NULL);
}

/* ---- paths out of a text ---- */

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    if (f == NULL) return;
    fputs(text, f);
    fclose(f);
}

static void extended__paths_of_a_text__files_in_its_order(void) {
    static const dlp_field bytes = {"bytes", DLP_U8, 1, {32}, 1, 0};
    static const char *const words[3] = {"the third", "first", "and the second"};
    dlp_files_desc desc = {.fields = &bytes, .n_fields = 1};
    dlp_loader_desc loader = {.batch_size = 2};
    dlp_source *files;
    dlp_error err;
    dlp_batch *b;
    dlp_pipe *p;
    lines *list;
    uint32_t rows = 0;
    CHECK(lines_open(&list, "nowhere.txt", &err) == DLP_ERR_SYSTEM && err.errnum == ENOENT);
    write_text("list.txt", "\n\n");
    CHECK(lines_open(&list, "list.txt", &err) == DLP_ERR_ARG && strcmp(err.field, "path") == 0);
    write_text("list.txt", "c.bin\n\na.bin\nb.bin");
    write_text("c.bin", words[0]);
    write_text("a.bin", words[1]);
    write_text("b.bin", words[2]);
    CHECK(lines_open(&list, "list.txt", &err) == DLP_OK);
    CHECK(list->n_files == 3 && list->id != 0 && strcmp(list->paths[1], "a.bin") == 0);
    desc.n_items = list->n_files;
    desc.paths = list->paths;
    CHECK(dlp_files_open(&files, &desc, &err) == DLP_OK);
    loader.source = files;
    loader.num_workers = 2;
    CHECK(dlp_loader_open(&p, &loader, &err) == DLP_OK);
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++, rows++) {
            const char *at = (const char *)b->fields[0].data + 32 * r;
            CHECK(b->index[r] == rows && strcmp(at, words[b->index[r]]) == 0);
            CHECK(b->fields[0].lengths[r] == strlen(words[b->index[r]]));
        }
        dlp_pipe_release(p, b);
    }
    CHECK(rows == 3 && dlp_pipe_error(p)->code == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(files) == DLP_OK);
    lines_close(list);
}

int main(void) {
    extended__kind_and_order__same_with_any_workers();
    extended__field_without_a_name_or_of_one_that_is_there__refused();
    extended__paths_of_a_text__files_in_its_order();
    return test_end("extended");
}
