#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-base        WHAT DLPIPE.H WOULD HAVE BROUGHT
   The same names and values, for programs that use the client alone. */

#ifndef DLPIPE_H
#define DLPIPE_S3_ALONE
#ifdef DLPIPE_STATIC
#define DLPDEF static __attribute__((unused))
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif
enum {
    DLP_OK = 0,
    DLP_FULL = 1,
    DLP_TIMEOUT = 3,
    DLP_END = 4,
    DLP_ERR_ARG = -1,
    DLP_ERR_MEMORY = -2,
    DLP_ERR_LIMIT = -3,
    DLP_ERR_STATE = -5,
    DLP_ERR_CALLBACK = -7,
    DLP_ERR_LENGTH = -8,
    DLP_ERR_BUSY = -10,
    DLP_ERR_SYSTEM = -13,
    DLP_ERR_UNSUPPORTED = -16,
    DLP_ERR_FORKED = -18,
    DLP_ERR_REMOTE = -19
};
#define DLP_NONE (-1)   /* none of it */
#define DLP_NOWAIT (-1) /* for time-outs: do not wait */
#endif
