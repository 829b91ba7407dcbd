#pragma once
#include "api/pipe.h"
#include "api/s3_list.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-source      ITEMS, PARTS AND CHUNKS OF A PIPE
   This section needs dlpipe.h, included before. A manifest lists ranges of objects: its entries.
   Entry i is item i, part i, or a range of rows. A source fetches the entries for a pipe.

     dlp_s3_manifest_open(&manifest, &err);
     dlp_s3_manifest_list(manifest, io, &list_desc, &err);   // or _read a file, or _add entries
     dlp_s3_source_desc source_desc = {.s3 = s3, .bucket = "photos", .manifest = manifest,
                                       .fields = &field, .n_fields = 1};
     dlp_s3_source_open(&source, &source_desc, &err);
     desc.source = source; // a loader's
     ... the pipe, until it is closed; dlp_source_close(source)

   A source works with every topology, placement and fetcher. A worker fetches one item at a time;
   or it has in_flight threads, each with a dlp_s3_io; or, asynchronous, its one thread has one
   dlp_s3_io with in_flight items under way. Workers make each dlp_s3_io themselves, so after a
   fork. It ends with a killed process: nothing writes into a row after that. Without a decode,
   bodies go from the socket into the row of field 0. If the field is ragged, its length is set. If
   not, the body must have exactly the field's bytes. Errors name bucket, key, range, status, code
   and request id. If the pipe is stopped, it waits for no server. */

#define DLP_S3_WHOLE UINT64_MAX
#define DLP_S3_EMPTY UINT64_MAX /* length of a whole object that has no bytes */

/* An entry of a manifest: a whole object, or a range of its bytes. */
typedef struct dlp_s3_entry {
    const char *key;  /* key of the object, 1..1024 bytes */
    uint64_t offset;  /* first byte; DLP_S3_WHOLE: the whole object */
    uint64_t length;  /* bytes; 0: to the object's end; of a whole object: bytes that it must have,
                                0: any number, DLP_S3_EMPTY: none */
    uint64_t items;   /* items in a part; else not read; 0: not known */
    const char *etag; /* strong ETag that the object must have, with its quotes; another version
                               is an error; a whole object's may come back weak; NULL or "": any
                               version */
} dlp_s3_entry;

typedef struct dlp_s3_manifest dlp_s3_manifest;

/* Make an empty manifest. It may have 2^40 entries and 2^32 - 2 different keys. Each key is stored
   once. An entry takes 20 bytes, or 28 if an entry gives items. A key takes 8 bytes, its own bytes
   and those of its ETag.
   out: to be closed; err: written on failure, may be NULL. Returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_MEMORY. Any thread may call it. One thread at a time may change a manifest, and none
   while a source uses it. It does not wait. */
DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err);
/* Free a manifest. No source may still use it. m: NULL is fine. */
DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m);

/* Add an entry at the end. entry: copied, with its key and ETag. Returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_MEMORY; DLP_ERR_LIMIT (too many). After a failure the manifest is unchanged. It does not
   wait. */
DLPDEF int dlp_s3_manifest_add(dlp_s3_manifest *m, const dlp_s3_entry *entry, dlp_s3_error *err);

/* Add the objects of a list, in its order, as whole objects with their sizes and strong ETags.
   Common prefixes are left out. So are empty objects with '/' at the end, which stand for
   directories.
   Returns the codes of dlp_s3_list_open, dlp_s3_list_next and dlp_s3_manifest_add. After a failure
   the manifest is unchanged. The thread of io calls it. It waits for the pages. */
DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err);

/* Add the entries of a text file. Each line is one entry:
     key
     key <tab> offset <tab> length
     key <tab> offset <tab> length <tab> items
     key <tab> offset <tab> length <tab> items <tab> etag
   The key is URI-encoded: control characters, space, '%' and '#' must be escaped; '/' need not be.
   Numbers are decimal. '*' is the offset of a whole object, '-' the length of an empty one. Lines
   that begin with '#' are comments. Any other line is an error that names the file and the line.
   Returns DLP_OK; DLP_ERR_ARG (a wrong line); DLP_ERR_SYSTEM (the file cannot be read); the codes
   of dlp_s3_manifest_add. After a failure the manifest is unchanged. It reads the file. */
DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Write a manifest as a text file that dlp_s3_manifest_read reads. It writes path.tmp first and
   then renames it to path. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_SYSTEM. */
DLPDEF int dlp_s3_manifest_write(const dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Get entry i. out: its key and ETag ("": none) belong to the manifest, and are valid until it is
   changed. Returns DLP_OK; DLP_ERR_ARG. Any thread may call it. */
DLPDEF int dlp_s3_manifest_get(const dlp_s3_manifest *m, uint64_t i, dlp_s3_entry *out);

/* Return the number of entries (count); a hash of all entries without their ETags, for manifest_id
   of a part queue (id); the bytes of memory (bytes). m: NULL is 0. Any thread may call them. */
DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m);

typedef struct dlp_s3_source_desc {
    dlp_s3 *s3;                      /* client; required; borrowed until close */
    const char *bucket;              /* name of the bucket; required; copied */
    const dlp_s3_manifest *manifest; /* entries, at least one; required; borrowed until close */
    const dlp_field *fields; /* [n_fields] fields of an item, as in dlp_dataset; borrowed until
                                start; NULL: the source gives no items */
    uint32_t n_fields;
    /* Write the fields of an item, out of the n bytes of its object; valid during the call.
       Returns 0 or a failure, as dlp_dataset.fetch does. It runs in the worker itself. NULL: the
       bytes are field 0. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    void *user;           /* argument of all callbacks here; borrowed until close */
    uint64_t max_bytes;   /* with a decode: most bytes of an item, up to 2^40; 0: those of the
                                longest entry (all lengths must be known). Without a decode, or
                                with direct: 0 */
    int32_t direct;       /* 1: bytes go into field 0 even with a decode, which finds them there
                                and writes the other fields */
    int32_t in_flight;    /* items (of chunks: requests) that a worker fetches at once, 1..1024;
                                0: 16; if the stage's in_flight is larger, the rest waits */
    int64_t gap_bytes;    /* ASYNC: bytes between two ranges of one object that one request still
                                joins; it throws the gap away. 0: 64 KiB; DLP_NONE: never join. One
                                request joins up to in_flight / 2 ranges, 64 at most, that are
                                wanted at about the same time. If it fails, each range is requested
                                by itself */
    uint64_t joint_bytes; /* most bytes of a joint request, and of each request of a chunk; 0:
                                8 MiB */
    uint64_t row_bytes;   /* for chunks: bytes of a row. The entries, laid end to end, are the
                                rows; all lengths are known, and whole rows. 0: not for chunks */
    int32_t writes_all_bytes; /* 1: decode promises what dlp_dataset.writes_all_bytes says */
    /* Make and free decode's worker_state, as in dlp_workers_desc; NULL: none. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
    int32_t any_version; /* 1: the ETags of the manifest are not compared, nor with a state's;
                                needed if a proxy strips ETags from answers */
    int32_t moved;       /* 1: the keys may be others than when a state was saved (>>state). Not
                            for parts: dlp_s3_manifest_id has the keys */
} dlp_s3_source_desc;

/* Make a source. Its fetcher is DLP_FETCH_ASYNC.
   out: to be closed by dlp_source_close, before client and manifest; desc: copied; err: written on
   failure, may be NULL. Returns DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY.
   Any thread may call it. It allocates its own record; workers make the connections. */
DLPDEF int dlp_s3_source_open(dlp_source **out, const dlp_s3_source_desc *desc, dlp_s3_error *err);

/* Return the bytes that each worker allocates when it begins, without those of its dlp_s3_io. The
   bytes are not in the pipe's plan. source: not NULL. Any thread may call it. */
DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_source *source);
