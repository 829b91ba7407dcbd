/* The implementation of all three headers, compiled once for each configuration of flags: tests
   that use public calls alone link it, as programs do. */
#define DLPIPE_IMPLEMENTATION
#define INSIDE_LIBRARY
#define DLPI_S3_ASSERT(fact) ((fact) ? (void)0 : abort())
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
#include "inside.h"
