/* The implementation alone. */
#ifdef WITH_DEVICES
#define DLPIPE_CUDA
#define DLPIPE_OPENCL
#endif
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#ifdef WITH_SHM
#include "../../dlpipe_shm.h"
#endif
#ifdef WITH_S3
#include "../../dlpipe_s3.h"
#endif
