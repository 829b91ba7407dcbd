/* Declarations, the implementation, and both once more: each is taken once. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
#undef DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"
