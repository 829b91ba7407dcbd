/* needs: lines */
#pragma once
#include "api/files.h"
/* ---------------------------------------------------------------------------------------------
   >>item-index INDEX FILES OF LINES AND TAR SHARDS
   A source that reads items in any order must know where each item lies. When it is first opened,
   it finds the items, and writes their places into an index file: 8 bytes an item. The next open
   maps this file, which takes microseconds. It does so only if the data file still has its length
   and the time of its last change.

     train.jsonl  ->  train.jsonl.dlpidx                 beside the file, or
                      DIRECTORY/train.jsonl.HASH.dlpidx  .index = "DIRECTORY"; HASH: of the path

   If the index file cannot be written, the source keeps the places in memory, and each open finds
   them again. The pipe then has a warning, which names the file. .index = "" asks for no index
   files.

   If several processes open a file at once, such as the ranks of a job, one finds the items. The
   others wait for its index. If that process dies or fails, another one takes its place. A lock
   (flock) on PATH.dlpidx.lock decides, and the file is removed then. Where the file system has no
   locks each process finds the items itself, and the source has a warning. If the process that has
   the lock does nothing for 3 minutes, the others do so, too. `log` of the desc gets a line of
   progress after 2 seconds and every 10 seconds. examples/dlpipe_index.c makes index files before a
   job. An index gets its name only when it is whole. A process that is killed meanwhile leaves a
   file whose name ends in .new.

   An item whose place in the index is wrong is an error, which names the data file. Remove its
   index then. Lines compare the bytes before and at their ends. Samples of tar shards compare the
   sums of headers, and the keys. If the index file is cut while it is mapped, the process ends by
   SIGBUS. dlpipe itself never cuts one.

   A source has a descriptor open for each file. If there are too few, the error says what ulimit -n
   must be. If a server comes back with new handles, a file is opened again by its path. The item
   fails if the file's length or time differs from what it was. Another format needs two functions
   for dlp_files_open, which reads many items at once: locate (where is item i?) and decode (make
   the fields of item i out of these bytes). Or a program fills a dlp_source with a fetch of its
   own. */

struct dlp_tar_sample;

/* The desc of dlp_lines_open, which calls it dlp_lines_desc, and of dlp_tar_open, which calls it
   dlp_tar_desc. If a field's comment begins with "lines:" or "tar:", the field is for that call
   alone. In the other call the field must be 0 or NULL. */
typedef struct dlp_indexed_desc {
    const char *path;         /* path of one file; NULL: give paths */
    const char *const *paths; /* [n_paths] files, whose items follow each other; copied. NULL: give
                                 path. For dlp_tar_load and dlp_tar_expand: names of shards in
                                 errors, by the index of the part or input; may be NULL */
    uint64_t n_paths;         /* number of paths, 1..2^20. One descriptor is open for each file:
                                 ulimit -n */
    const dlp_field *fields;  /* [n_fields] fields of an item; borrowed until close. tar: required.
                                 lines: NULL: one ragged field "line", DLP_U8, as long as the
                                 longest line. The pipe warns of a line of over 32 times the mean */
    uint32_t n_fields;        /* number of fields, 0..DLP_MAX_FIELDS */
    int32_t optional; /* tar: 1: a ragged field without a member has length 0. 0: an item without
                         the member fails */
    const char *const *extensions; /* tar: [n_fields] extension of each field, or several
                                      with a blank between two: "jpg jpeg". Capital letters count
                                      as small letters. Borrowed until close. NULL: the names of
                                      the fields */
    /* lines: write the fields of an item out of a line of n bytes. The bytes are valid during the
       call and do not end with 0. Returns as fetch does. All workers call it at once. NULL: the
       line is the only field, which must be ragged, with one dimension and one byte an element. */
    int (*parse)(void *user, void *worker_state, dlp_item *item, const char *line, uint64_t n);
    /* tar: write the fields of an item out of a sample. Returns as fetch does. All workers call it
       at once. NULL: a field is the bytes of its member. A ragged field takes whole rows, up to
       shape[0]; a field of a fixed size takes exactly its bytes. */
    int (*decode)(void *user, void *worker_state, dlp_item *item,
                  const struct dlp_tar_sample *sample);
    void *user; /* argument of all callbacks here; borrowed until close */
    /* For dlp_tar_load and dlp_tar_expand, of the fields from here on only insist counts. */
    uint64_t max_bytes; /* most bytes of a line, or of a sample in its shard, with headers, and with
                            zeros in front of another archive, 1..2^40; a longer item is
                            DLP_ERR_LENGTH. 0: the bytes of the longest one */
    uint32_t skip;      /* lines: lines to skip at the beginning of each file, such as names of
                            columns */
    int32_t no_empty;   /* lines: 1: empty lines are no items */
    const char *index;  /* directory of index files; NULL: beside each file; "": no index files */
    int32_t threads;    /* threads that find the items, 1..256; 0: one a CPU, at most 16 */
    int32_t in_flight;  /* items that a worker has in hand at once, by requests, as in
                            dlp_files_desc. lines: 0: a worker reads one line at a time, also inline
                            (num_workers 0) */
    int32_t use_threads; /* as in dlp_files_desc */
    /* Make and free the worker_state of parse or decode, as in dlp_workers_desc. May be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
    void (*log)(void *user, const char *message); /* receives lines of progress while open finds
                            items, in one thread at a time; may be dlp_log_stderr. NULL: nothing is
                            told */
    void *log_user;                               /* user of log; valid during open */
    int32_t moved;  /* 1: the files may have other names than when a state was saved (>>state) */
    int32_t insist; /* 1: take the files as they are, whatever they look like. tar: a key that comes
                       again begins another sample. Links, and bytes behind the end that are no
                       member, are left out */
    int32_t maps;   /* 1: files are mapped, and items are made without a system call: for data in
                       memory, or on a local disk. in_flight is 0 then. If the disk fails, or a file
                       is cut while it is read, the process ends by SIGBUS, as with any mapping. A
                       file that was cut before is an error. 0: items are read */
} dlp_indexed_desc;

typedef struct dlp_index_info {
    uint64_t n_items;      /* items of all files, without lines that are skipped */
    uint64_t longest;      /* bytes of the longest item in its file, or a little more */
    uint64_t found;        /* files whose items this open found; the others had an index */
    uint64_t worker_bytes; /* bytes that each worker allocates when it begins */
    uint64_t id; /* number by which states know this source. It differs if the number of items or
                    bytes of a file differs */
    const char *warning; /* first file with a warning: its index file could not be written, it has
                            no items, or what is doubtful in it. NULL: none */
} dlp_index_info;

/* Return what dlp_lines_open or dlp_tar_open has found, or NULL if `source` is of another call. The
   record and its text are the source's, until its close. Any thread. Does not wait. */
DLPDEF const dlp_index_info *dlp_index_describe(const dlp_source *source);
