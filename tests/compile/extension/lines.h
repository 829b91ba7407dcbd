/* A source of lists in one file: the paths in a text, one on each line, for dlp_files_desc.paths.
   It stands beside dlpipe.h, as dlpipe_s3.h does, and uses public calls alone. In one C file define
   LINES_IMPLEMENTATION before it is included.

     lines *list;
     lines_open(&list, "train.txt", &err);
     dlp_files_desc desc = {.n_items = list->n_files, .paths = list->paths, ...};
     ... as in >>files of dlpipe.h; close the pipe first, then lines_close(list); */
#ifndef LINES_H
#define LINES_H
#include "dlpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lines {
    uint64_t n_files;
    const char *const *paths; /* [n_files] in the order of the lines; empty lines do not count */
    uint64_t id; /* a number that differs where paths do: for dlp_sampler_desc.function_id */
} lines;

/* Read a list.
   out: to be closed; path: of the text; err: written on failure, may be NULL - returns DLP_OK,
   DLP_ERR_ARG (the text has no path), DLP_ERR_SYSTEM (it cannot be read), DLP_ERR_MEMORY. */
int lines_open(lines **out, const char *path, dlp_error *err);

/* Free it. list: NULL does nothing. */
void lines_close(lines *list);

#ifdef __cplusplus
}
#endif

#ifdef LINES_IMPLEMENTATION
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int lines_fail(dlp_error *err, int code, int errnum, const char *path, const char *what) {
    if (err == NULL) return code;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->errnum = errnum;
    err->worker = -1;
    snprintf(err->field, sizeof err->field, "path");
    snprintf(err->message, sizeof err->message, "%.150s: %s", path, what);
    return code;
}

/* All bytes of a file and a 0 behind them, to be freed; or NULL, and errno. */
static char *lines_text(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0, n = 0;
    while (f != NULL && !feof(f)) {
        char *more = n + 1 < room ? text : realloc(text, room = 2 * room + 4096);
        if (more == NULL || ferror(f)) {
            free(more != NULL ? more : text);
            fclose(f);
            return NULL;
        }
        text = more;
        n += fread(text + n, 1, room - 1 - n, f);
        text[n] = 0;
    }
    if (f != NULL) fclose(f);
    return text;
}

int lines_open(lines **out, const char *path, dlp_error *err) {
    char *text = lines_text(path), *at;
    uint64_t n = 1;
    char **paths;
    lines *l;
    if (text == NULL) return lines_fail(err, DLP_ERR_SYSTEM, errno, path, strerror(errno));
    for (at = text; *at; at++) n += *at == '\n';
    l = (lines *)calloc(1, sizeof *l + n * sizeof *paths + (size_t)(at - text) + 1);
    if (l == NULL) {
        free(text);
        return lines_fail(err, DLP_ERR_MEMORY, ENOMEM, path, "no memory for its paths");
    }
    paths = (char **)(void *)(l + 1);
    at = memcpy((char *)(paths + n), text, (size_t)(at - text) + 1);
    free(text);
    for (at = strtok(at, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        paths[l->n_files++] = at;
        for (const char *c = at; *c; c++) l->id = dlp_hash(l->id, (uint64_t)(uint8_t)*c, 0, 0);
        l->id = dlp_hash(l->id, 256, 0, 0); /* no byte: the end of a path */
    }
    l->paths = (const char *const *)paths;
    if (l->n_files > 0) {
        *out = l;
        return DLP_OK;
    }
    free(l);
    return lines_fail(err, DLP_ERR_ARG, 0, path, "it has no path");
}

void lines_close(lines *list) { free(list); }
#endif
#endif
