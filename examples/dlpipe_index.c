/* Index files of lines and tar shards, made before a job: its ranks then find them at once.

   dlpipe_index [-d DIRECTORY] [-e] [-t THREADS] FILE ...
   cc -O2 dlpipe_index.c -lpthread

   A FILE whose name ends in .tar is a tar shard; each other one is a file of lines. -d: where index
   files lie, as in dlp_lines_desc.index; else beside each file. -e: empty lines are no items
   (no_empty). Prints the items of each file, and how far it is. Ends with 1 if a file cannot be
   read, or its index cannot be written. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Open a file, which makes its index. Returns 0, or 1 after it said what is wrong. */
static int make_index(const char *path, const char *directory, int no_empty, int threads) {
    const dlp_field bytes = {.name = "any", .dtype = DLP_U8, .ndim = 1, .shape = {1}, .ragged = 1};
    const size_t n = strlen(path);
    const int tar = n > 4 && strcmp(path + n - 4, ".tar") == 0;
    const dlp_indexed_desc desc = {.path = path,
                                   .fields = tar ? &bytes : NULL, /* the index is the same */
                                   .n_fields = tar ? 1 : 0,
                                   .no_empty = !tar && no_empty,
                                   .index = directory,
                                   .threads = threads,
                                   .log = dlp_log_stderr};
    dlp_source *source = NULL;
    dlp_error err = {.code = 0};
    const int rc = (tar ? dlp_tar_open : dlp_lines_open)(&source, &desc, &err);
    if (rc != DLP_OK) {
        char line[512];
        dlp_error_format(&err, line, sizeof line);
        fprintf(stderr, "dlpipe_index: %s\n", line);
        return 1;
    }
    const dlp_index_info *info = dlp_index_describe(source);
    const char *warning = info->warning;
    printf("%s: %llu items, the longest has %llu bytes%s\n", path,
           (unsigned long long)info->n_items, (unsigned long long)info->longest,
           info->found > 0 ? "" : "; its index was there");
    if (warning != NULL) fprintf(stderr, "dlpipe_index: %s\n", warning);
    return dlp_source_close(source) != DLP_OK || warning != NULL;
}

int main(int argc, char **argv) {
    const char *directory = NULL;
    int no_empty = 0, threads = 0, option, bad = 0;
    while ((option = getopt(argc, argv, "d:et:")) != -1) {
        if (option == 'd') directory = optarg;
        if (option == 'e') no_empty = 1;
        if (option == 't') threads = atoi(optarg);
        if (option == '?') return 2;
    }
    if (optind == argc)
        return fprintf(stderr, "usage: dlpipe_index [-d DIRECTORY] [-e] FILE ...\n"), 2;
    for (; optind < argc; optind++) bad |= make_index(argv[optind], directory, no_empty, threads);
    return bad;
}
