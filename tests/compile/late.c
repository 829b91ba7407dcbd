/* A system header first: the implementation must refuse in one clear #error, unless the file is
   compiled with -D_GNU_SOURCE. WANTED: "../../dlpipe.h", or another. */
#include <stdio.h>
#define DLPIPE_IMPLEMENTATION
#include WANTED
