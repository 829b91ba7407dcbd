/* The waiting tests with short sleeps and a parking lot instead of futexes. */
#define DLPIPE_NO_FUTEX
#include "queue_wait.c"
