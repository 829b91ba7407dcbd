#pragma once
#include "api/s3_requests.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-list        WHAT IS IN A BUCKET */

/* Names are of at most 1,024 bytes, as they are, not escaped; copied. */
typedef struct dlp_s3_list_desc {
    const char *bucket;
    const char *prefix;      /* NULL: "" */
    const char *delimiter;   /* NULL: none; "/": one level, as a directory */
    const char *start_after; /* NULL: from the beginning; it need not be there itself */
    int32_t page;            /* 0: 1,000 keys a request; 1..1000 */
    int32_t any_order;       /* 1: as a server has them that does not sort, such as one of directory
                                buckets; not all keys that come twice are found then */
    int32_t requests; /* pages asked for at once, at most; 0: 32, or half of max_requests if that is
                         less; 1: one after the other, as always with a delimiter or any_order */
} dlp_s3_list_desc;

typedef struct dlp_s3_object {
    const char *key;    /* until the next call; terminated */
    uint64_t key_bytes; /* without the terminator */
    uint64_t bytes;
    int64_t modified_s; /* Unix time; 0: none was told, -1: it could not be read */
    int32_t is_prefix;  /* 1: a common prefix, as a directory: no bytes, no time */
    char etag[72];      /* with its quotes; "" if there was none, or a longer one */
} dlp_s3_object;

typedef struct dlp_s3_list dlp_s3_list;

/* List objects and common prefixes in order of their bytes. Nothing is asked for yet.
   Pages are asked for side by side. The list is split into ranges of keys where the keys of its
   first pages suggest it, and each range is listed by itself (start-after). Keys are given out in
   order, each once. A key that comes before its turn is kept, in about 100 bytes, in 256 MiB at
   most; half of that is for the ranges whose turn is next. A list side by side takes more requests:
   twice as many pages and twice "requests", at the worst. Between calls pages stay under way; they
   count among max_requests, and no reap gives them out. Some servers refuse a start-after that is
   no key, or ignore it. Then the log is told, and the list is asked for page after page.
   S3 sorts a list (but that of a directory bucket); for servers that do not there is any_order.
   out: to be closed, before io; err: written on failure, may be NULL - returns DLP_OK, DLP_ERR_ARG
   (the message names the field), DLP_ERR_MEMORY - the thread of io - allocates; does not wait.
   Source: ListObjectsV2 of the S3 API. */
DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err);

/* Get the next object. A page is checked as a whole before anything of it is given out: keys that
   come twice, are not in order, or were not asked for, are an error, and so is a server that leads
   in a circle. An error of a page that is not next is told when its turn comes. The error of a
   request names the key behind which its page is.
   Returns DLP_OK, DLP_END, as dlp_s3_do, or for a page: DLP_ERR_REMOTE (not what S3 sends),
   DLP_ERR_LIMIT (above 16 MiB), DLP_ERR_MEMORY. After an error it may be called again, for the same
   page - the thread of io - waits for a page, and may allocate room for it. */
DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err);

/* Free it, at any point of the list. NULL is fine. */
DLPDEF void dlp_s3_list_close(dlp_s3_list *list);
