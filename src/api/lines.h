/* needs: files lines */
#pragma once
#include "api/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>lines      LINES OF TEXT FILES: JSONL, CSV (examples/jsonl.c)
   The items of this source are lines. Several threads find the lines once, and an index file keeps
   their places (>>item-index). So lines come in any order, and a shuffle over all lines of all
   files costs no memory.

     dlp_lines_desc lines = {.path = "train.jsonl", .fields = fields, .n_fields = 2,
                             .parse = parse};
     dlp_lines_open(&source, &lines, &err);
     desc.source = source;  // of a loader; or of a fetch node
     ... the pipe, until it is closed
     dlp_source_close(source);

   A line ends with \n or \r\n, which does not belong to the line. The last line of a file may lack
   this end. An empty line is an item of 0 bytes; with no_empty it is no item. A record of a CSV
   file with a line break inside quotes is several lines: such a file needs another format.

   A worker reads one line when it needs the line. With in_flight it reads several lines at once,
   as >>files reads files: this is for a disk or a network that waits. If a file was cut, the item
   fails. Before a line is parsed, the bytes around it are compared with the index. If the index
   does not fit the file, the item fails. */

typedef struct dlp_lines_desc {
    const char *path;         /* path of one file; NULL: give paths */
    const char *const *paths; /* [n_paths] files, whose lines follow each other; copied. NULL: give
                                 path */
    uint64_t n_paths;         /* number of paths, 1..2^20. One descriptor is open for each file:
                                 ulimit -n */
    const dlp_field *fields; /* [n_fields] fields of an item; borrowed until close. NULL: one ragged
                                 field "line", DLP_U8, as long as the longest line */
    uint32_t n_fields;       /* number of fields, 0..DLP_MAX_FIELDS */
    /* Write the fields of an item out of a line of n bytes. The bytes are valid during the call and
       do not end with 0. Returns as fetch does. All workers call it at once. NULL: the line is the
       only field, which must be ragged, with one dimension and one byte an element. */
    int (*parse)(void *user, void *worker_state, dlp_item *item, const char *line, uint64_t n);
    void *user;         /* argument of all callbacks here; borrowed until close */
    uint64_t max_bytes; /* most bytes of a line, 1..2^40; a longer line is DLP_ERR_LENGTH of its
                             item. 0: the bytes of the longest line */
    uint32_t skip;      /* lines to skip at the beginning of each file, such as names of columns */
    int32_t no_empty;   /* 1: empty lines are no items */
    const char *index;  /* directory of index files; NULL: beside each file; "": no index files */
    int32_t threads;    /* threads that find the lines, 1..256; 0: one a CPU, at most 16 */
    int32_t in_flight; /* 0: a worker reads one line at a time, also inline (num_workers 0). 1..256:
                          a worker has that many lines in hand at once, by requests
                          (dlp_files_desc) */
    int32_t use_threads; /* as in dlp_files_desc */
    /* Make and free the worker_state of parse, as in dlp_workers_desc. May be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_lines_desc;

/* Open all files and find their lines, or take the lines from index files.
   out: close it with dlp_source_close. desc: copied. err: may be NULL; its message names the file.
   Returns DLP_OK, or:
     DLP_ERR_ARG       a field is wrong, or there are no lines
     DLP_ERR_SYSTEM    a file cannot be opened or read (errnum)
     DLP_ERR_CORRUPT   a file changed while its lines were found
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for its own threads. Allocates 8 bytes a line if no index
   file can be mapped, and some 150 bytes a file. */
DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err);
