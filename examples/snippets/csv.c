/* Lines of a CSV file of any size; workers parse them. dlp_lines_open finds the lines once, and
   keeps them in an index file beside it. Lines of JSON: examples/jsonl.c.

   cc -O2 -I. examples/snippets/csv.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>

static int parse(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    (void)user, (void)state;
    return dlp_csv_floats(line, n, item->data[0], 3, item->call);
}

int main(void) {
    dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
    dlp_source *lines = NULL;
    dlp_lines_desc csv = {.path = "points.csv", .fields = &x, .n_fields = 1, .parse = parse};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_lines_open(&lines, &csv, &err)) return puts(err.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = lines},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const float *rows = (const float *)batch->fields[0].data; /* [count][3] */
        printf("epoch %d: %d items, the first %g\n", (int)batch->epoch, (int)batch->count,
               (double)rows[0]);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    code = dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
    dlp_source_close(lines); /* after the pipe */
    return code;
}
