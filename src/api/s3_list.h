#pragma once
#include "api/s3_requests.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-list        WHAT IS IN A BUCKET */

/* What to list. Names are copied. They have at most 1,024 bytes (bucket: 255) and are not
   escaped. */
typedef struct dlp_s3_list_desc {
    const char *bucket;
    const char *prefix;      /* what all keys begin with; NULL: "" */
    const char *delimiter;   /* "/": list one level, as a directory; NULL: none */
    const char *start_after; /* key after which the list begins, which need not exist; NULL: from
                                the beginning */
    int32_t page;            /* keys in a page, 1..1000; 0: 1,000 */
    int32_t any_order;       /* 1: accept keys in the server's order, if it does not sort (directory
                                buckets); some keys that come twice are then not found */
    int32_t requests; /* pages that may be in flight at once; 1: one after the other, as always with
                         a delimiter or any_order. 0: 32, or half of max_requests if that is less,
                         on a store that is known to sort its lists; else 1 */
} dlp_s3_list_desc;

typedef struct dlp_s3_object {
    const char *key;    /* key, with a zero byte at its end; valid until the next call */
    uint64_t key_bytes; /* bytes of key without the zero byte */
    uint64_t bytes;     /* bytes of the object */
    int64_t modified_s; /* Unix time in seconds; 0: the server told none, -1: it is not readable */
    int32_t is_prefix;  /* 1: a common prefix, as a directory: no bytes, no time */
    char etag[72];      /* ETag with its quotes; "" if there was none, or it was longer */
} dlp_s3_object;

typedef struct dlp_s3_list dlp_s3_list;

/* Begin a list of objects and common prefixes, in the order of their bytes. No request is sent yet.
   Pages are requested side by side if the server sorts its lists. The header Server of the first
   page tells: AmazonS3, UploadServer (Google), cloudflare, MinIO or Ceph Object Gateway; older
   releases of Ceph are known by their request ids. On other servers pages are requested one after
   the other, unless "requests" is set. The list is split into ranges of keys, at folders that exist
   (one request with a delimiter finds up to a page of them), else where the first pages suggest.
   Each range is listed by itself (start-after). A range must begin with the key that the range in
   front of it sees behind its end. If it does not, the range in front goes on in its place, page
   after page, and the log is told. Each key is returned once, in order. A key that comes before its
   turn is kept. It takes about 100 bytes; all such keys take at most 256 MiB, half of which is for
   the ranges whose turn is next. At worst the list takes twice as many pages, and twice "requests"
   more, than one page after the other. Between calls its pages stay in flight. They count for
   max_requests, and dlp_s3_reap does not return them. Some servers refuse a start-after that is no
   key, or ignore it. Then the log is told, and pages are requested one after the other. A list from
   a key on may even end too early, or go on in another order. Then the whole list is requested once
   more, page after page; keys that were returned are not returned again.
   S3 sorts its lists, except those of directory buckets. Set any_order for a server that does not
   sort.
   out: to be closed, before io; desc: copied; err: zeroed, or what failed; may be NULL. Returns
   DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY. The thread of io calls it. It
   allocates and does not wait. Source: ListObjectsV2 of the S3 API. */
DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err);

/* Get the next object. It waits for a page, and may allocate memory for it.
   A page is checked as a whole before its first object is returned. It is an error if keys come
   twice, are out of order, or were not requested. It is also an error if the server leads in a
   circle. If a later page fails, its error is returned when its turn comes. The error of a request
   names the key after which its page begins.
   out: gets the object; err: written on failure, may be NULL. Returns DLP_OK; DLP_END after the
   last object; the codes of dlp_s3_do; or for a page: DLP_ERR_REMOTE (not what S3 sends),
   DLP_ERR_LIMIT (above 16 MiB), DLP_ERR_MEMORY. After an error a new call tries the page again. The
   thread of io calls it. */
DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err);

/* Free the list, at any point of it. list: NULL is fine. The thread of io calls it. */
DLPDEF void dlp_s3_list_close(dlp_s3_list *list);
