/* needs: lines */
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
   this end. An empty line is an item of 0 bytes; with no_empty it is no item. A UTF-8 byte order
   mark at the beginning of a file belongs to no line. A record of a CSV
   file with a line break inside quotes is several lines: such a file needs another format.

   A file that is no text is refused by name: a compressed file, Parquet, UTF-16, a pointer of git
   LFS, a page of HTML and so on. So is a file with 64 zero bytes in a row, or with zeros at its
   end: a part of it was not written. `insist` takes such files. A file that is empty, or that looks
   binary, is a warning: dlp_index_info.warning.

   A worker reads one line when it needs the line. With in_flight it reads several lines at once,
   as >>files reads files: this is for a disk or a network that waits. With maps it takes lines out
   of a mapping: this is for data in memory. If a file was cut, the item fails. Before a line is
   parsed, the bytes around it are compared with the index. If the index does not fit the file, the
   item fails. */

typedef dlp_indexed_desc dlp_lines_desc; /* >>item-index has its fields */

/* Open all files and find their lines, or take the lines from index files.
   out: close it with dlp_source_close. desc: copied. err: may be NULL; its message names the file.
   Returns DLP_OK, or:
     DLP_ERR_ARG       a field is wrong, or there are no lines
     DLP_ERR_SYSTEM    a file cannot be opened or read (errnum)
     DLP_ERR_CORRUPT   a file is no text, has zeros that were not written, or changed while its
                       lines were found
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for its own threads. Allocates 8 bytes a line if no index
   file can be mapped, and some 150 bytes a file. */
DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err);

/* Read the numbers of a line of a CSV into floats. A `parse` ends with it:
     return dlp_csv_floats(line, n, item->data[0], 3, item->call);
   line, n: one line without its end. It has count numbers with commas between them. Blanks and tabs
   may stand around them. A number is digits with or without a sign, a point and an exponent: 1,
   -.5, 2.5e-3. The point is a point in every locale.
   x: [count] gets the nearest floats, until a column fails. Numbers nearer to 0 than any float are
   0. call: of the running callback, or NULL.
   Returns DLP_OK, or as dlp_fail, whose message names the column, from 1. A column fails if it is
   empty, missing, surplus, no number (as nan and inf), or above all floats. Any thread. Does not
   wait or allocate. */
DLPDEF int dlp_csv_floats(const char *line, size_t n, float *x, uint32_t count, dlp_call *call);
