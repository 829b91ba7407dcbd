/* Lines of JSON as items: the mean length of texts, and how many texts each label has.

   jsonl [-w workers] [-b batch] [-t THREADS] [FILE.jsonl ...]
   cc -O2 jsonl.c -lpthread                          reads simple lines: see parse
   cc -O2 -DUSE_CJSON jsonl.c -lcjson -lpthread      reads all of JSON (Debian: libcjson-dev)

   A line is {"text": "...", "label": N}. Lines are found once, by several threads, and kept in
   FILE.jsonl.dlpidx. Workers then read and parse lines in any order, so a shuffle costs nothing.
   Without a file the program makes one up, and removes it. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef USE_CJSON
#include <cjson/cJSON.h>
#endif

enum { TEXT = 512, LABELS = 10 };

/* Write an item: its text and its label. */
static int write_item(dlp_item *item, const char *text, uint64_t n, double label) {
    if (text == NULL || !(label >= 0 && label < LABELS))
        return dlp_fail(item->call, 0, "no text, or no label of 0 to %d", LABELS - 1);
    item->length[0] = n < TEXT ? n : TEXT; /* a longer text is cut */
    memcpy(item->data[0], text, item->length[0]);
    *(int32_t *)item->data[1] = (int32_t)label;
    return 0;
}

#ifdef USE_CJSON
static int parse(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    cJSON *json = cJSON_ParseWithLength(line, n);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(json, "text"));
    const cJSON *label = cJSON_GetObjectItem(json, "label");
    (void)user, (void)state;
    int rc = write_item(item, text, text ? strlen(text) : 0,
                        cJSON_IsNumber(label) ? label->valuedouble : -1);
    cJSON_Delete(json);
    return rc;
}
#else
/* What is behind "name": in a line that ends with 0. Texts are without escapes. */
static const char *value(const char *line, const char *name) {
    const char *at = strstr(line, name);
    at = at != NULL ? strchr(at, ':') : NULL;
    return at != NULL ? at + 1 + strspn(at + 1, " ") : NULL;
}

static int parse(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    char copy[8192], *end = NULL;
    (void)user, (void)state;
    if (n >= sizeof copy) return DLP_ERR_LENGTH;
    memcpy(copy, line, n);
    copy[n] = 0;
    const char *text = value(copy, "\"text\""), *label = value(copy, "\"label\"");
    if (text != NULL && *text++ == '"') end = strchr(text, '"');
    return write_item(item, end != NULL ? text : NULL, end != NULL ? (uint64_t)(end - text) : 0,
                      label != NULL ? atof(label) : -1);
}
#endif

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "jsonl: %s\n", line);
    return 1;
}

static int run(const dlp_lines_desc *lines, dlp_loader_desc *desc) {
    uint64_t of_label[LABELS] = {0}, bytes = 0, rows = 0;
    dlp_source *source = NULL;
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_lines_open(&source, lines, &err) != DLP_OK) return say(&err);
    desc->source = source;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return say(&err);
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const int32_t *label = batch->fields[1].data;
        for (uint32_t i = 0; i < batch->count; i++) {
            bytes += batch->fields[0].lengths[i];
            of_label[label[i]]++;
        }
        rows += batch->count;
        dlp_pipe_release(pipe, batch);
    }
    int bad = code != DLP_END && say(dlp_pipe_error(pipe));
    if (!bad)
        printf("%llu texts, %.2f bytes each;", (unsigned long long)rows,
               (double)bytes / (double)rows);
    for (int i = 0; i < LABELS && !bad; i++) printf(" %llu", (unsigned long long)of_label[i]);
    printf("\n");
    return dlp_pipe_close(pipe) != DLP_OK || dlp_source_close(source) != DLP_OK || bad;
}

static int make_up(char *path) {
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f == NULL) return perror(path), 1;
    for (int i = 0; i < 1000; i++)
        fprintf(f, "{\"label\": %d, \"text\": \"%0*d\"}\n", i % 7, i % 20 + 1, i % 10);
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    static const dlp_field fields[] = {
        {.name = "text", .dtype = DLP_U8, .ndim = 1, .shape = {TEXT}, .ragged = 1},
        {.name = "label", .dtype = DLP_I32},
    };
    dlp_loader_desc desc = {.batch_size = 64, .num_workers = 2, .shuffle = 1};
    dlp_lines_desc lines = {.fields = fields, .n_fields = 2, .parse = parse, .no_empty = 1};
    char made[] = "/tmp/jsonl-XXXXXX";
    int option;
    while ((option = getopt(argc, argv, "w:b:t:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == 't') lines.threads = atoi(optarg);
        if (option == '?') return 2;
    }
    if (optind < argc) {
        lines.paths = (const char *const *)&argv[optind];
        lines.n_paths = (uint64_t)(argc - optind);
        return run(&lines, &desc);
    }
    if (make_up(made) != 0) return 1;
    lines.path = made;
    lines.index = ""; /* no index file beside a file that is removed */
    int bad = run(&lines, &desc);
    return unlink(made) != 0 || bad;
}
