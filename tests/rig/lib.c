/* The implementation of all three headers, compiled once for each configuration of flags: tests
   that use public calls alone link it, as programs do. */
#define _GNU_SOURCE
#include <stdint.h>
/* As the headers have them, but variables: see inside.h. */
uint64_t inside_input_run_ns = 8000;
uint32_t inside_file_read_most = UINT32_C(1) << 30;
#define DLPI_INPUT_RUN_NS inside_input_run_ns
#define DLPI_FILE_READ_MOST inside_file_read_most
#define DLPIPE_IMPLEMENTATION
#define INSIDE_LIBRARY
#define DLPI_S3_ASSERT(fact) ((fact) ? (void)0 : abort())
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
#include "inside.h"
#include "inside_stages.h"
#include "inside_parts.h" /* needs: parts */
#include "inside_push.h"  /* needs: parts */
