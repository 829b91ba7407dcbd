#pragma once
#include "api/pipe.h"
#include "api/s3_list.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-source      ITEMS, PARTS AND CHUNKS OF A PIPE
   Only where dlpipe.h was included before. A manifest says which bytes of which objects there are:
   entry i is item i, part i, or a stretch of rows. A source fetches them for a pipe.

     dlp_s3_manifest_open(&manifest, &err);
     dlp_s3_manifest_list(manifest, io, &list_desc, &err);   // or _read a file, or _add entries
     dlp_s3_source_desc source_desc = {.s3 = s3, .bucket = "photos", .manifest = manifest,
                                       .fields = &field, .n_fields = 1};
     dlp_s3_source_open(&source, &source_desc, &err);
     desc.source = source; // a loader's
     ... the pipe, until it is closed; dlp_source_close(source)

   Every topology, placement and fetcher does: one item at a time in each worker, in_flight threads
   that each have a dlp_s3_io, or, asynchronous, one dlp_s3_io with in_flight items under way in the
   worker's one thread. Workers make their dlp_s3_io when they begin, so after a fork, and it ends
   with a process that is killed: nothing writes into a row after that. Without a decode bodies go
   from the socket into the row of field 0: a ragged field's length is set, one of fixed size wants
   exactly its bytes. Errors name bucket, key, range, status, code and request id. A pipe that is
   stopped waits for no server. */

#define DLP_S3_WHOLE UINT64_MAX
#define DLP_S3_EMPTY UINT64_MAX /* as a length: the whole object, and it has no bytes */

/* Bytes of an object. */
typedef struct dlp_s3_entry {
    const char *key;
    uint64_t offset;  /* first byte; DLP_S3_WHOLE: the whole object */
    uint64_t length;  /* bytes; 0: to the object's end. Of a whole object: what it is to
                                have, 0: whatever it has, DLP_S3_EMPTY: nothing */
    uint64_t items;   /* of a part: items in it; else not read */
    const char *etag; /* of the object, a strong one with its quotes: another version of the object
                               is an error; NULL or "": any version */
} dlp_s3_entry;

typedef struct dlp_s3_manifest dlp_s3_manifest;

/* Make an empty manifest, of 2^40 entries and 2^32 - 2 different keys at most. A key is kept once,
   whatever number of entries it has; an entry takes 20 bytes, a key 8, its own and
   those of its ETag.
   out: to be closed - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_MEMORY - any thread; a manifest is
   changed by one thread at a time, and not at all while a source has it - does not wait. */
DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err);
DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m);

/* Add an entry. entry: copied, its key and ETag too - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_MEMORY,
   DLP_ERR_LIMIT (too many); the manifest is then as it was - does not wait. */
DLPDEF int dlp_s3_manifest_add(dlp_s3_manifest *m, const dlp_s3_entry *entry, dlp_s3_error *err);

/* Add what a list call gives, in its order, as whole objects of the sizes and ETags that it tells;
   but no common prefixes, and none of the empty objects with '/' at the end that stand for
   directories. Returns as dlp_s3_list_open and _next, and as add; after a failure the manifest is
   as it was - the thread of io - waits for the pages. */
DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err);

/* Add what a file says. One entry a line, one of
     key
     key <tab> offset <tab> length
     key <tab> offset <tab> length <tab> items
     key <tab> offset <tab> length <tab> items <tab> etag
   with the key URI-encoded (control characters, space, '%' and '#' must be, '/' need not be),
   numbers in decimal digits, '*' as the offset of a whole object, and '-' as the
   length of an empty one. Lines that begin with '#' are
   remarks. Anything else is an error that names file and line.
   Returns DLP_OK, DLP_ERR_ARG (not such a file), DLP_ERR_SYSTEM (it cannot be read), and as add;
   after a failure the manifest is as it was - reads the file. */
DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Write a manifest as a file that read takes; beside path first (path.tmp), then renamed. Returns
   DLP_OK, DLP_ERR_ARG, DLP_ERR_SYSTEM. */
DLPDEF int dlp_s3_manifest_write(const dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Read entry i; its key and ETag ("": none) are the manifest's, until that is changed. Returns
   DLP_OK, DLP_ERR_ARG. Any thread. */
DLPDEF int dlp_s3_manifest_get(const dlp_s3_manifest *m, uint64_t i, dlp_s3_entry *out);

/* Number of entries; a number that says which (a hash of all, for a part queue's manifest_id);
   bytes of memory. Any thread. */
DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m);

typedef struct dlp_s3_source_desc {
    dlp_s3 *s3;                      /* required; borrowed until close */
    const char *bucket;              /* required; copied */
    const dlp_s3_manifest *manifest; /* required, with one entry at least; borrowed until close */
    const dlp_field *fields; /* [n_fields] as in dlp_dataset; borrowed until start; items only */
    uint32_t n_fields;
    /* Write the item's fields out of the n bytes of its object, valid during the call. Returns as
       fetch does; runs in the worker itself. NULL: the bytes are field 0. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    void *user;               /* of all callbacks here; borrowed until close */
    uint64_t max_bytes;       /* with a decode: most bytes of an item, up to 2^40; 0: the largest
                                entry's, if all are known. Direct: 0, field 0 says it */
    int32_t direct;           /* 1: bytes go into field 0 also with a decode, which finds them there
                                and writes the other fields */
    int32_t in_flight;        /* items (of chunks: requests) that a worker has in hand at once; 0:
                                16; 1..1024; at least the stage's in_flight: more would wait */
    int64_t gap_bytes;        /* ASYNC: ranges of one object, asked for at about the same time, with
                                at most so many bytes between them, are one request, whose other
                                bytes are thrown away; 0: 64 KiB; DLP_NONE: never. Up to in_flight /
                                2 of them, and joint_bytes. Should it fail, each is asked for by
                                itself */
    uint64_t joint_bytes;     /* 0: 8 MiB; of a joint request, and of each request of a chunk */
    uint64_t row_bytes;       /* for chunks: bytes of a row of the entries, laid end to end; all
                                their lengths are known, and whole rows. 0: not for chunks */
    int32_t writes_all_bytes; /* 1: decode promises what dlp_dataset.writes_all_bytes says */
    /* For decode's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
    int32_t any_version; /* 1: objects may be others than the manifest's ETags say */
} dlp_s3_source_desc;

/* Make a source, whose fetcher is DLP_FETCH_ASYNC.
   out: to be closed, before client and manifest; desc: copied; err: written on failure, may be NULL
   - returns DLP_OK, DLP_ERR_ARG (the message names the field), DLP_ERR_MEMORY - any thread -
   allocates its own record; workers make connections. */
DLPDEF int dlp_s3_source_open(dlp_source **out, const dlp_s3_source_desc *desc, dlp_s3_error *err);

/* Return the bytes that each worker allocates when it begins, but for those of its dlp_s3_io. They
   are not in the pipe's plan. Any thread. */
DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_source *source);
