#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>version    WHICH HEADER, WHICH LIBRARY */

/* Return the version of the implementation, "0.2.0". DLPIPE_VERSION is that of this header: they
   differ where a program was compiled with another header than the library that it runs with. While
   the first number is 0, headers and library of different second numbers do not fit together.
   Static - any thread - does not wait or allocate. */
DLPDEF const char *dlp_version(void);
