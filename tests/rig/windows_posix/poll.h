/* What examples want of POSIX, on Windows. */
#include "../windows.h"
