/* The implementation alone. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
