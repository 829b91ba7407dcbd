#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>errors     CODES AND ERROR RECORDS
   Code 0 is OK, a positive code is flow control, a negative code is an error. Codes of flow control
   begin at 4096. No errno of Linux is above 4095, so a callback that returns errno has failed. */

#ifndef DLP_CODES
#define DLP_CODES(X) \
    X(OK, 0, "ok", "") \
    X(FULL, 4096, "queue is full", "take records out, or wait") \
    X(EMPTY, 4097, "queue is empty", "put records in, or wait") \
    X(TIMEOUT, 4098, "nothing came within the time-out", \
      "call again, or look at dlp_pipe_explain") \
    X(END, 4099, "no more batches", "close the pipe") \
    X(EPOCH_END, 4100, "an epoch ended", "call next again for the next epoch") \
    X(STOPPED, 4101, "the pipe was stopped", "close the pipe") \
    X(SKIP, 4102, "this item is left out", "returned by a callback, see the error policies") \
    X(ERR_ARG, -1, "a parameter or desc field is out of range", "") \
    X(ERR_MEMORY, -2, "there is not enough memory", \
      "free memory, or ask for fewer or smaller batches") \
    X(ERR_LIMIT, -3, "the plan is above a byte limit", "lower prefetch_factor or batch_size") \
    X(ERR_GRAPH, -4, "the nodes do not form a pipeline", "write rows in the order of the data") \
    X(ERR_STATE, -5, "a call came at the wrong time, or a name is taken", \
      "open, start, then next and release, in one thread at a time; or choose another name") \
    X(ERR_HELD, -6, "max_held batches are held already", "release one, or raise max_held") \
    X(ERR_CALLBACK, -7, "a callback failed", "") \
    X(ERR_LENGTH, -8, "a callback wrote a wrong length", "") \
    X(ERR_DEADLINE, -9, "a callback is past its deadline", "raise deadline_ms") \
    X(ERR_BUSY, -10, "a callback is still running", "call close again when it has returned") \
    X(ERR_RESUME, -11, "a saved state does not fit", "open the pipe as it was opened then") \
    X(ERR_CORRUPT, -12, "shared memory or a state is damaged", "do not use it") \
    X(ERR_SYSTEM, -13, "a system call failed", "") \
    X(ERR_DEVICE, -14, "the device backend failed", "") \
    X(ERR_BUDGET, -15, "more items failed than max_skips allows", \
      "mend the data, or raise max_skips") \
    X(ERR_UNSUPPORTED, -16, "not available on this system", "") \
    X(ERR_KILLED, -17, "worker processes were killed", "look for crashes and memory limits") \
    X(ERR_FORKED, -18, "this process is a fork of the owner", "use the pipe in its own process") \
    X(ERR_REMOTE, -19, "the server refused, or did not answer", "")

enum {
#define DLPI_X(name, value, text, hint) DLP_##name = value,
    DLP_CODES(DLPI_X)
#undef DLPI_X
        DLP_CODES_END_ = 8191
};

/* Special values of fields and parameters. Zero always means the documented default. */
#define DLP_NONE (-1)    /* none; in some fields: inline */
#define DLP_FOREVER (-2) /* without end, without limit */
#define DLP_NOWAIT (-1)  /* for time-outs: do not wait */
#endif
