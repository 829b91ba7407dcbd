/* needs: files */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>files      ITEMS OUT OF FILES, MANY AT ONCE
   A dataset whose items are local files, or stretches of files. Each worker keeps in_flight of them
   under way at once: by an io_uring of its own on Linux 5.6 and later, else (the kernel is older,
   or the system forbids it, or use_threads asks for it) by in_flight threads that pread. Orders and
   bytes are the same. It pays where reading waits, for a disk or a network; a file that is in
   memory already costs as much as by fetch, or a little more.

     dlp_files_desc files_desc = {.n_items = n, .paths = paths, .fields = &field, .n_fields = 1};
     dlp_files_open(&files, &files_desc, &err);
     desc.source = files; // of a loader
     ... the pipe, until it is closed; dlp_source_close(files);

   Without a decode the bytes go from the kernel into the row of field 0, with no copy between: a
   ragged field's length is set, one of fixed size wants exactly its bytes. Files are read through
   the page cache, never by direct I/O: a worker process that is killed then leaves no transfer
   that could still write into a row. What is no regular file is refused before it is read.
   Errors name path, errno, item, and bytes where they matter; stages' policies apply to them. */

enum { DLP_FILES_ROOM = 4096 /* bytes for a path, its end included */ };

/* Where an item's bytes are. locate finds fd -1, path at room, room empty, the rest 0. */
typedef struct dlp_extent {
    const char *path; /* written into room, or a string that stays until close */
    char *room;       /* DLP_FILES_ROOM bytes */
    int32_t fd;       /* not -1: read this open file and leave it open. Errors name it by path,
                         if path is set */
    uint64_t offset;  /* bytes from the file's beginning to the item's */
    uint64_t length;  /* bytes of the item; 0: to the file's end. With fd and a length the file may
                         be a block device */
} dlp_extent;

typedef struct dlp_files_desc {
    uint64_t n_items;        /* required, 1..2^48 */
    const dlp_field *fields; /* required; [n_fields] as in dlp_dataset; borrowed until start */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    int32_t use_threads;     /* 1: threads, also where io_uring is available */
    /* [n_items] item i is the whole file paths[i]; borrowed until close. Or locate: */
    const char *const *paths;
    /* Say where an item is. Returns as fetch does; pure; called by all workers
       at once. */
    int (*locate)(void *user, const dlp_item *item, dlp_extent *out);
    /* Write the item's fields out of the n bytes of its file, valid during the call. Returns as
       fetch does; runs in the worker itself. NULL: the bytes are field 0. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    void *user;               /* of all callbacks here; borrowed until close */
    uint64_t max_bytes;       /* required with a decode: most bytes of an item, 1..2^40; more is
                                 DLP_ERR_LENGTH. Else, and with direct, 0: field 0 says it */
    int32_t direct;           /* 1: bytes go into field 0 also with a decode, which finds them there
                                 and writes the other fields */
    int32_t in_flight;        /* files that a worker has in hand at once; 0: 16; 1..256; at least
                                 the stage's in_flight, of which more would wait */
    int32_t writes_all_bytes; /* 1: decode promises what dlp_dataset.writes_all_bytes says */
    /* For decode's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_files_desc;

/* Make a source, whose fetcher is DLP_FETCH_ASYNC.
   out: to be closed; desc: copied; err: written on failure, may be NULL - returns DLP_OK,
   DLP_ERR_ARG (err->field names it), DLP_ERR_MEMORY - any thread - allocates its own record; files
   are opened by workers. */
DLPDEF int dlp_files_open(dlp_source **out, const dlp_files_desc *desc, dlp_error *err);

/* Tell how files will be read: "io_uring", or "threads: " and why. A worker that gets no ring of
   its own (a limit on locked memory, say) has threads all the same. The text is the source's, until
   close; NULL if this is another source - any thread - does not wait. */
DLPDEF const char *dlp_files_backend(const dlp_source *files);

/* Return the bytes that each worker allocates when it begins; 0 if this is another source. They are
   not in the pipe's plan. Any thread; does not wait. */
DLPDEF uint64_t dlp_files_worker_bytes(const dlp_source *files);
