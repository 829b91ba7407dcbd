/* What the implementation asks of the system headers for itself is not left defined. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#ifdef _GNU_SOURCE
#error "_GNU_SOURCE is left defined"
#endif
#ifdef DLPI_ASKED_GNU_SOURCE
#error "DLPI_ASKED_GNU_SOURCE is left defined"
#endif
