/* The implementation of dlpipe_formats.h in a file of its own: dlpipe.h gives no more than its
   declarations. */
#define _GNU_SOURCE
#define DLPIPE_IMPLEMENTATION
#define DLPIPE_IMPLEMENTATION_DONE
#include "../../dlpipe_formats.h"
