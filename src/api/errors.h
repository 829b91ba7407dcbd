#pragma once
#include "api/base.h"
#define DLP_MAX_FIELDS 16
#define DLP_MAX_DIMS 8
#define DLP_MAX_STAGES 16
#define DLP_MAX_WORKERS 1024 /* per stage */

/* The first error, with its place. Strings are always terminated. Fields that do not apply are 0;
   worker is -1. The policy (retries, on_error, max_skips) is that of the row that `stage` names. */
typedef struct dlp_error {
    int32_t code;     /* DLP_ERR_*; 0: no error */
    int32_t errnum;   /* errno, or 0 */
    int32_t worker;   /* worker number in its stage; -1: none */
    int32_t has_item; /* 1: index, epoch, position say which item */
    uint64_t index, epoch, position;
    char stage[32];    /* name of the row of the table, or of the stage, that failed; or "" */
    char field[48];    /* name of the wrong field of a desc or dataset, or "" */
    char message[256]; /* what happened, in words; the message of dlp_fail, if there is one */
} dlp_error;

/* A running call of one of your callbacks. The callback gets it as item->call, part->call,
   chunk->call, c->call of a collate, or batch->call of a batch map. */
typedef struct dlp_call dlp_call;

/* Say why a callback fails. The callback must return the result.
   call: of the running callback; NULL, as batch->call outside of a batch map: nothing is kept;
   errnum: errno or 0; format: as printf's; the message is cut at 255 bytes.
   Returns DLP_ERR_CALLBACK. Inside the callback only. Does not wait or allocate. */
DLPDEF int dlp_fail(dlp_call *call, int errnum, const char *format, ...);

/* Return the name of a code ("DLP_ERR_ARG"), its text, or its hint, "" if it has no hint. For other
   numbers name and text are "unknown code". Any thread. */
DLPDEF const char *dlp_code_name(int code);
DLPDEF const char *dlp_code_text(int code);
DLPDEF const char *dlp_code_hint(int code);

/* Write an error record as one line: all that it knows, what errno means, and what to do about the
   errno or the code, if that is known. If the record has no error, the line is about code 0.
   err, buf: borrowed. Returns the length of the whole line, as snprintf does. Any thread. */
DLPDEF int dlp_error_format(const dlp_error *err, char *buf, size_t size);
