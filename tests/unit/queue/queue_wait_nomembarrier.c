/* The waiting tests where the kernel refuses membarrier: each push pays a read-modify-write. */
#define MEMBARRIER_REFUSED 1
#include "queue_wait.c"
