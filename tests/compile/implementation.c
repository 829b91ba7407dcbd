/* The implementation alone. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#ifdef WITH_SHM
#include "../../dlpipe_shm.h"
#endif
