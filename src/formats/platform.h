#pragma once
/* tests: compile/matrix */
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>formats-impl-platform  SYSTEM HEADERS
   This implementation calls no dlpi_* of dlpipe.h: it is built on what a program may call. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
