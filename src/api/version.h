#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>version    WHICH HEADER, WHICH LIBRARY */

/* A file that includes this header needs a symbol of the implementation, whose name has a number
   made of all structs, unions, enums and numbers of the header. So the linker refuses a library of
   another version, or of a header with one more field: "undefined reference to
   dlpipe_needs_DLPIPE_IMPLEMENTATION_of_this_header_in_one_C_file_" and the number. No desc is read
   that the library would read otherwise. Compile the library and the program again with one
   header. */

/* Return the version of the implementation, "0.2.0". DLPIPE_VERSION is that of this header: they
   differ where a program was compiled with another header than the library that it runs with. While
   the first number is 0, headers and library of different second numbers do not fit together.
   Static - any thread - does not wait or allocate. */
DLPDEF const char *dlp_version(void);
