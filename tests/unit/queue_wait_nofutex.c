/* The waiting tests with short sleeps and a parking lot instead of futexes. */
#ifndef DLPIPE_NO_FUTEX
#define DLPIPE_NO_FUTEX
#endif
#include "queue_wait.c"
