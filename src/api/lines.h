/* needs: files lines */
#pragma once
#include "api/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>lines      LINES OF TEXT FILES: JSONL, CSV (examples/jsonl.c)
   A source whose items are lines. Lines are found once, by several threads, and kept in an index
   file (>>item-index). So lines come in any order, and a shuffle over all lines of all files
   costs no memory.

     dlp_lines_desc lines = {.path = "train.jsonl", .fields = fields, .n_fields = 2,
                             .parse = parse};
     dlp_lines_open(&source, &lines, &err);
     desc.source = source;  // of a loader; or of a fetch node
     ... the pipe, until it is closed
     dlp_source_close(source);

   A line ends with \n or \r\n, which is no part of it. The last line of a file need not end so. An
   empty line is an item of 0 bytes, or no item (no_empty). A record of a CSV file that has a line
   break inside quotes is several lines: such a file needs another format.

   A worker reads a line when it needs the line, or in_flight lines at once, as >>files reads files:
   for a disk or a network that waits. A file that is cut is an error of the item. Before a line is
   parsed, the bytes around it are compared with the index. If the index does not fit the file, the
   item fails. */

typedef struct dlp_lines_desc {
    const char *path;         /* a file, or */
    const char *const *paths; /* [n_paths] files, whose lines follow each other; copied */
    uint64_t n_paths;         /* 1..2^20. One descriptor is open for each file: ulimit -n */
    const dlp_field *fields; /* [n_fields] of an item; borrowed until close. NULL: one field "line",
                                 DLP_U8, ragged, as long as the longest line */
    uint32_t n_fields;       /* 0..DLP_MAX_FIELDS */
    /* Write the fields of an item out of a line of n bytes, which are valid during the call and do
       not end with 0. Returns as fetch does; called by all workers at once. NULL: the line is the
       only field, which is ragged, of one dimension and one byte an element. */
    int (*parse)(void *user, void *worker_state, dlp_item *item, const char *line, uint64_t n);
    void *user;         /* of all callbacks here; borrowed until close */
    uint64_t max_bytes; /* most bytes of a line, 1..2^40; a longer one is DLP_ERR_LENGTH of its
                             item. 0: those of the longest line */
    uint32_t skip;     /* lines at the beginning of each file that are no items: names of columns */
    int32_t no_empty;  /* 1: empty lines are no items */
    const char *index; /* directory for index files; NULL: beside each file; "": no index files */
    int32_t threads;   /* that find the lines; 0: one a CPU, 16 at most; 1..256 */
    int32_t in_flight; /* 0: a worker reads one line at a time, also inline (num_workers 0).
                          1..256: it has so many in hand at once, by requests (dlp_files_desc) */
    int32_t use_threads; /* as in dlp_files_desc */
    /* For parse's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_lines_desc;

/* Open all files and find their lines, or take these from index files.
   out: to be closed by dlp_source_close. desc: copied. err: may be NULL; its message names the
   file. Returns DLP_OK, or:
     DLP_ERR_ARG       a field; no lines
     DLP_ERR_SYSTEM    a file cannot be opened or read (errnum)
     DLP_ERR_CORRUPT   a file changed while its lines were found
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for threads of its own. Allocates 8 bytes a line where no
   index file can be mapped, and some 150 bytes a file. */
DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err);
