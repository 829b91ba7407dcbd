#define DLPIPE_IMPLEMENTATION
#include "dlpipe.h" /* before any system header */
