#pragma once
#include "api/s3_client.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-requests    ONE OBJECT, OR MANY AT ONCE */

enum { DLP_S3_GET = 0, DLP_S3_HEAD, DLP_S3_PUT };

/* A piece of memory that gets a part of a body. */
typedef struct dlp_s3_piece {
    void *to; /* memory for the bytes; NULL: the bytes are thrown away */
    uint64_t bytes;
} dlp_s3_piece;

/* A request, and then its result. The record lies in the caller's memory. Set it to zero before you
   fill it in. The record and all that it points to must stay until dlp_s3_reap returns it. */
typedef struct dlp_s3_request {
    int32_t method;   /* DLP_S3_GET, _HEAD, _PUT */
    int32_t no_hedge; /* 1: never sent twice at once */
    const char *bucket;
    const char *key;   /* key of the object, 1..1024 bytes, any but NUL; PUT: "" makes the bucket;
                                GET, HEAD: "" only with query */
    const char *query; /* parameters as "a=b&c=", in order, values URI-encoded; NULL: none */
    uint64_t offset;   /* GET: first byte */
    uint64_t length;   /* GET: number of bytes, exactly; 0: to the object's end */
    const char *if_match; /* ETag that the object must have; the answer must tell it, too. A strong
                                ETag, a list of them, or "*": any; NULL: no condition */
    void *body;           /* GET: memory for the body; PUT: the body, which is not written to */
    uint64_t capacity; /* bytes at body; GET: a larger body is DLP_ERR_LENGTH; PUT: all are sent */
    const dlp_s3_piece *pieces; /* GET with length: memory for the body in place of body, in order;
                                the sum of their bytes is length; NULL: body is used */
    uint32_t n_pieces;
    void *user; /* for the caller; the library does not read it */

    int32_t code;          /* result: DLP_OK; DLP_ERR_REMOTE, _LENGTH, _ARG, _SYSTEM, _MEMORY */
    uint64_t received;     /* GET: bytes in body */
    uint64_t object_bytes; /* bytes of the whole object, if known; HEAD of a key: always */
    char etag[72];         /* ETag with its quotes; "" if there was none, or it was longer */
    dlp_s3_error error;    /* what went wrong; all zero if code is 0 */
    void *internal;
    const char *version_id; /* version of the object to read; an answer that tells another version
                                is refused; not with query or PUT; NULL: the newest */
} dlp_s3_request;

/* The sockets of one thread, and its requests in flight. After a fork, the child can only close it,
   or leave it alone. */
typedef struct dlp_s3_io dlp_s3_io;

/* Make the I/O of one thread. It allocates all that requests need later, except memory for TLS,
   names and lists.
   out: to be closed; s3: borrowed until close; any number of dlp_s3_io may use one client; err:
   zeroed, or what failed; may be NULL. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_MEMORY; DLP_ERR_SYSTEM.
   Any thread may call it; only that thread may then use the dlp_s3_io. It does not wait. */
DLPDEF int dlp_s3_io_open(dlp_s3_io **out, dlp_s3 *s3, dlp_s3_error *err);

/* Close the I/O of a thread and drop its requests in flight. The library does not touch their
   memory any more. io: NULL is fine. */
DLPDEF void dlp_s3_io_close(dlp_s3_io *io);

/* Begin a request. r: stays until dlp_s3_reap returns it. Returns DLP_OK: the request has begun;
   DLP_FULL: max_requests, max_bytes or 16 hosts are in use, so reap first; DLP_ERR_ARG (r->error
   names the field); DLP_ERR_FORKED. The thread of io calls it. It neither waits nor allocates. */
DLPDEF int dlp_s3_submit(dlp_s3_io *io, dlp_s3_request *r);

/* Return requests that have ended, with code, received and error set. It waits for the first one,
   and returns at once if no request is in flight. Requests make progress only in this call, in
   dlp_s3_submit and in dlp_s3_do.
   done: [max]; timeout_ms: longest wait; DLP_NOWAIT: no wait; 0: no limit. Returns the number of
   requests, 0..max; or DLP_ERR_ARG, DLP_ERR_FORKED, DLP_ERR_SYSTEM. The thread of io calls it. */
DLPDEF int dlp_s3_reap(dlp_s3_io *io, dlp_s3_request **done, int max, int timeout_ms);

/* Do one request and wait for its end. Other requests in flight go on meanwhile; a later
   dlp_s3_reap returns them. Returns r->code, or what dlp_s3_submit returns. The thread of io calls
   it. */
DLPDEF int dlp_s3_do(dlp_s3_io *io, dlp_s3_request *r);

/* Read a whole object into memory, and wait for it.
   body: [capacity]; received: gets the number of bytes in body, may be NULL; err: may be NULL.
   Returns the codes of dlp_s3_do. The thread of io calls it. */
DLPDEF int dlp_s3_get(dlp_s3_io *io, const char *bucket, const char *key, void *body,
                      uint64_t capacity, uint64_t *received, dlp_s3_error *err);
