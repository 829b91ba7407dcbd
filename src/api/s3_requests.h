#pragma once
#include "api/s3_client.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-requests    ONE OBJECT, OR MANY AT ONCE */

enum { DLP_S3_GET = 0, DLP_S3_HEAD, DLP_S3_PUT };

/* A piece of memory that a body is laid into. */
typedef struct dlp_s3_piece {
    void *to; /* NULL: these bytes are thrown away */
    uint64_t bytes;
} dlp_s3_piece;

/* A request: what is asked for, then what came of it. It lies in the caller's memory, zeroed before
   it is filled in, and stays until reap gives it back, as does all that it points to. */
typedef struct dlp_s3_request {
    int32_t method;   /* DLP_S3_GET, _HEAD, _PUT */
    int32_t no_hedge; /* 1: never sent twice at once */
    const char *bucket;
    const char *key;      /* any bytes but NUL, 1..1024; PUT: "" makes the bucket */
    const char *query;    /* NULL, or parameters as "a=b&c=", in order, values URI-encoded */
    uint64_t offset;      /* GET: first byte */
    uint64_t length;      /* GET: bytes, exactly; 0: to the object's end */
    const char *if_match; /* NULL, or the ETag that the object must have: a strong one, which the
                                answer must tell, too; a list of them; "*": any */
    void *body;           /* GET: laid here; PUT: sent from here (not written to) */
    uint64_t capacity;    /* GET: bytes at body, more is DLP_ERR_LENGTH; PUT: bytes to send */
    const dlp_s3_piece *pieces; /* GET with length: in place of body, in order; sum: length */
    uint32_t n_pieces;
    void *user; /* not read */

    int32_t code;          /* DLP_OK; DLP_ERR_REMOTE, _LENGTH, _ARG, _SYSTEM, _MEMORY */
    uint64_t received;     /* GET: bytes in body */
    uint64_t object_bytes; /* of the whole object, where the server told; HEAD of a key: always */
    char etag[72];         /* with its quotes; "" if there was none, or a longer one */
    dlp_s3_error error;    /* all zero if code is 0 */
    void *internal;
    const char *version_id; /* NULL, or which version of the object; not with query; an answer that
                                tells another one is refused */
} dlp_s3_request;

/* The I/O of one thread: its sockets, its requests in flight. Not to be used after a fork, but to
   be closed. */
typedef struct dlp_s3_io dlp_s3_io;

/* Make one. s3: borrowed; any number of io may use one client - returns DLP_OK, DLP_ERR_ARG,
   DLP_ERR_MEMORY, DLP_ERR_SYSTEM - any thread, which is then the only one to use it - allocates all
   that requests need later, but TLS, names and lists; does not wait. */
DLPDEF int dlp_s3_io_open(dlp_s3_io **out, dlp_s3 *s3, dlp_s3_error *err);

/* Close it; requests that are out are dropped: their memory is not touched any more. NULL is
   fine. */
DLPDEF void dlp_s3_io_close(dlp_s3_io *io);

/* Begin a request. Returns DLP_OK: begun, reap will give it back; DLP_FULL: max_requests, max_bytes
   or 16 hosts are under way, reap first; DLP_ERR_ARG (r->error names the field); DLP_ERR_FORKED.
   Does not wait, or allocate. */
DLPDEF int dlp_s3_submit(dlp_s3_io *io, dlp_s3_request *r);

/* Give back requests that are over, with code, received and error set: 0..max of them. Waits at
   most timeout_ms (DLP_NOWAIT: not at all; 0: as long as it takes) for the first; returns at once
   if nothing is out. Requests only move on in here and in submit. Returns their number, or
   DLP_ERR_ARG, DLP_ERR_FORKED, DLP_ERR_SYSTEM. */
DLPDEF int dlp_s3_reap(dlp_s3_io *io, dlp_s3_request **done, int max, int timeout_ms);

/* Do one request and wait for it. Others that are out go on meanwhile, and are given back by a
   later reap. Returns r->code, or what submit returns. */
DLPDEF int dlp_s3_do(dlp_s3_io *io, dlp_s3_request *r);

/* Read an object whole: *received bytes of it are at body. Returns dlp_s3_do's codes; received and
   err may be NULL. The thread of io; waits. */
DLPDEF int dlp_s3_get(dlp_s3_io *io, const char *bucket, const char *key, void *body,
                      uint64_t capacity, uint64_t *received, dlp_s3_error *err);
