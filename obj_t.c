#define DLPIPE_IMPLEMENTATION
#include "dlpipe.h"
#include "dlpipe_shm.h"
#include "dlpipe_s3.h"
