/* What tests want of POSIX, on Windows. */
#include "../../windows.h"
