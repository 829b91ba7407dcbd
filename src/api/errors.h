#pragma once
#include "api/base.h"
#define DLP_MAX_FIELDS 16
#define DLP_MAX_DIMS 8
#define DLP_MAX_STAGES 16
#define DLP_MAX_WORKERS 1024 /* per stage */

/* What went wrong first, with its place. Strings are always terminated. Fields that do not apply
   are 0, worker -1. */
typedef struct dlp_error {
    int32_t code;     /* DLP_ERR_*, or 0 */
    int32_t errnum;   /* errno, or 0 */
    int32_t worker;   /* worker number in its stage, -1: none */
    int32_t has_item; /* 1: index, epoch, position say which item */
    uint64_t index, epoch, position;
    char stage[32];    /* stage name, or "" */
    char field[48];    /* desc or dataset field at fault, or "" */
    char message[256]; /* what happened, in words; the user's own message where there is one */
} dlp_error;

/* A call of one of your callbacks, as what it is called with knows it (item->call, part->call,
   chunk->call, c->call of a collate, batch->call in a batch map). */
typedef struct dlp_call dlp_call;

/* Say why a callback fails.
   call: this call's, while it runs; NULL (a batch outside of a batch map): nothing is kept; errnum:
   errno or 0; format: as printf's, cut at 255 bytes - returns DLP_ERR_CALLBACK, to be returned by
   the callback - inside the callback only - does not wait or allocate. */
DLPDEF int dlp_fail(dlp_call *call, int errnum, const char *format, ...);

/* Name ("DLP_ERR_ARG"), text and hint of a code ("": it has none); "unknown code" for others. Any
   thread. */
DLPDEF const char *dlp_code_name(int code);
DLPDEF const char *dlp_code_text(int code);
DLPDEF const char *dlp_code_hint(int code);

/* Write one line that says all an error record knows, what errno means, and the hint if there is
   one; of a record without an error, its code 0. Returns the length that the whole line has, like
   snprintf. err, buf: borrowed. Any thread. */
DLPDEF int dlp_error_format(const dlp_error *err, char *buf, size_t size);
