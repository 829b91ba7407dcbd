/* The implementation of all three headers, compiled once for each configuration of flags: tests
   that use public calls alone link it, as programs do. */
#define _GNU_SOURCE
#include <stdint.h>
#define INSIDE_BOXES (INT64_C(1) << 20)
/* As the headers have them, but variables: see inside.h. */
uint64_t inside_input_run_ns = 8000;
uint32_t inside_file_read_most = UINT32_C(1) << 30;
uint64_t inside_index_tell_ns = UINT64_C(2000000000),
         inside_index_stall_ns = UINT64_C(180000000000);
int64_t inside_boxes = INSIDE_BOXES;
#define DLPI_INPUT_RUN_NS inside_input_run_ns
void (*inside_box_copies)(void *to, uint64_t bytes);
#define DLPI_BOX_COPIES(to, bytes) (inside_box_copies ? inside_box_copies(to, bytes) : (void)0)
#define DLPI_BOXES_SPARE(n) (inside_boxes < INSIDE_BOXES ? inside_boxes : (n))
#define DLPI_FILE_READ_MOST inside_file_read_most
#define DLPI_INDEX_TELL_NS inside_index_tell_ns
#define DLPI_INDEX_STALL_NS inside_index_stall_ns
#define DLPIPE_IMPLEMENTATION
#define INSIDE_LIBRARY
#define DLPI_S3_ASSERT(fact) ((fact) ? (void)0 : abort())
#include "../../dlpipe.h"
#ifdef __linux__
#ifndef DLPIPE_THREADS_ONLY
#include "../../dlpipe_shm.h"
#endif
#include "../../dlpipe_s3.h"
#endif
#include "inside.h"
#include "inside_parts.h" /* needs: parts */
#include "inside_push.h"  /* needs: parts */
