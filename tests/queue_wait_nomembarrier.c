/* The waiting tests without membarrier: each push pays a read-modify-write. */
#define DLPIPE_NO_MEMBARRIER
#include "queue_wait.c"
