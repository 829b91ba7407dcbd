/* What the implementation asks of the system headers for itself is not left defined. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
#ifdef _GNU_SOURCE
#error "_GNU_SOURCE is left defined"
#endif
#if defined(DLPI_ASKED_GNU_SOURCE) || defined(DLPI_S3_ASKED_GNU_SOURCE)
#error "ASKED_GNU_SOURCE is left defined"
#endif
