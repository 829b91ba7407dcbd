/* The waiting tests without membarrier: each push pays a read-modify-write. */
#ifndef DLPIPE_NO_MEMBARRIER
#define DLPIPE_NO_MEMBARRIER
#endif
#include "queue_wait.c"
