/* needs: files */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>files      ITEMS OUT OF FILES, MANY AT ONCE
   The items of this dataset are local files, or ranges of files. Each worker reads in_flight of
   them at once. It does so by its own io_uring on Linux 5.6 and later. It uses in_flight threads
   with pread instead, if the kernel is older, if the system forbids io_uring, or if use_threads is
   1. The order and the bytes are the same. Use it if reading waits for a disk or a network. A file
   that is in memory already costs as much as with fetch, or a little more. io_uring takes less of
   the processor than threads do. But a worker's ring copies files that are in memory one after the
   other. So with fewer workers than cores its threads, which use more cores, may be faster.

     dlp_files_desc files_desc = {.n_items = n, .paths = paths, .fields = &field, .n_fields = 1};
     dlp_files_open(&files, &files_desc, &err);
     desc.source = files; // of a loader
     ... the pipe, until it is closed; dlp_source_close(files);

   Without a decode the bytes go from the kernel into the row of field 0, without another copy. The
   length of a ragged field is set. A field of fixed size needs exactly its bytes. Files are read
   through the page cache, never by direct I/O. So a killed worker process leaves no transfer that
   could still write into a row. A file that is not regular is refused before it is read. Errors
   name path, errno, item and, where they matter, bytes. The policies of the stage apply to them. */

enum { DLP_FILES_ROOM = 4096 /* bytes of room for a path with its final 0 */ };

/* Place of an item's bytes. Before locate runs, fd is -1, path is room, room is an empty string,
   and the rest is 0. */
typedef struct dlp_extent {
    const char *path; /* path of the file: written into room, or a string that stays until close */
    char *room;       /* room for a path, DLP_FILES_ROOM bytes */
    int32_t fd;       /* an open file, which is read and left open. Errors name it by path, if path
                         is set. -1: path is opened */
    uint64_t offset;  /* bytes from the beginning of the file to the item */
    uint64_t length;  /* bytes of the item; 0: to the end of the file. With fd and a length the file
                         may be a block device */
} dlp_extent;

typedef struct dlp_files_desc {
    uint64_t n_items;        /* number of items; required, 1..2^48 */
    const dlp_field *fields; /* [n_fields] fields as in dlp_dataset; required; borrowed until
                                start */
    uint32_t n_fields;       /* number of fields, 1..DLP_MAX_FIELDS */
    int32_t use_threads;     /* 1: read by threads, even if io_uring is available */
    /* [n_items] item i is the whole file paths[i]; borrowed until close. NULL: give locate. */
    const char *const *paths;
    /* Write the place of an item to *out. Returns as fetch does. Pure; all workers call it at once.
       NULL: give paths. */
    int (*locate)(void *user, const dlp_item *item, dlp_extent *out);
    /* Write the fields of an item out of the n bytes of its file, which are valid during the call.
       Returns as fetch does. Runs in the worker itself. NULL: the bytes are field 0. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    void *user;               /* argument of all callbacks here; borrowed until close */
    uint64_t max_bytes;       /* most bytes of an item. With a decode: required, 1..2^40; a longer
                                 item is DLP_ERR_LENGTH. Without a decode, or with direct: 0, and
                                 field 0 gives the limit */
    int32_t direct;           /* 1: bytes go into field 0 even with a decode, which finds them there
                                 and writes the other fields */
    int32_t in_flight;        /* files that a worker has in hand at once, 1..256; 0: 16. At least
                                 in_flight of the stage: more items of the stage would wait */
    int32_t writes_all_bytes; /* 1: decode keeps the promise of dlp_dataset.writes_all_bytes */
    /* Make and free the worker_state of decode, as in dlp_workers_desc. May be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
    const char *warning; /* text of a warning that each pipe of the source gives, such as
                            dlp_folder.warning; borrowed until close. NULL: none */
    int32_t moved;       /* 1: the files of `paths` may have other names than when a state was saved
                      (>>state) */
} dlp_files_desc;

/* Make a source whose fetcher is DLP_FETCH_ASYNC.
   out: close it with dlp_source_close. desc: copied. err: written on failure; may be NULL. Returns
   DLP_OK; DLP_ERR_ARG (err->field names the field); DLP_ERR_MEMORY. Any thread. Allocates its own
   record. Asks for the sizes of at most 256 of `paths` (>>state), so it waits for the disk. Workers
   open the files. */
DLPDEF int dlp_files_open(dlp_source **out, const dlp_files_desc *desc, dlp_error *err);

/* Return how files will be read: "io_uring", or "threads: " and the reason. A worker that gets no
   ring of its own, for example by a limit on locked memory, uses threads all the same. The text
   belongs to the source, until close. NULL if `files` is another source. Any thread. Does not
   wait. */
DLPDEF const char *dlp_files_backend(const dlp_source *files);

/* Return the bytes that each worker allocates when it begins. They are not in the pipe's plan. 0 if
   `files` is another source. Any thread. Does not wait. */
DLPDEF uint64_t dlp_files_worker_bytes(const dlp_source *files);
