/* The implementation of dlpipe_s3.h alone, taken once however often it is included. What it asks of
   the system headers for itself is not left defined. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe_s3.h"
#include "../../dlpipe_s3.h"
#undef DLPIPE_IMPLEMENTATION
#include "../../dlpipe_s3.h"
#if defined(_GNU_SOURCE) || defined(DLPI_S3_ASKED_GNU_SOURCE)
#error "_GNU_SOURCE is left defined"
#endif
#ifdef DLPIPE_H
#error "dlpipe.h came along"
#endif
