#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DLPDEF
#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 1
#define DLPIPE_VERSION_PATCH 0
#define DLPI_TEXT_(x) #x
#define DLPI_TEXT(x) DLPI_TEXT_(x)
#define DLPIPE_VERSION /* "0.1.0"; dlp_version() tells the implementation's */ \
    DLPI_TEXT(DLPIPE_VERSION_MAJOR) \
    "." DLPI_TEXT(DLPIPE_VERSION_MINOR) "." DLPI_TEXT(DLPIPE_VERSION_PATCH)

/* DLPIPE_STATIC [impl and all TUs]: make every function static. Each file that includes this header
   then has an implementation of its own. */
#if defined(DLPIPE_STATIC) && !defined(DLPIPE_IMPLEMENTATION)
#error DLPIPE_STATIC: define DLPIPE_IMPLEMENTATION, too, above the first include of this header
#undef DLPIPE_STATIC
#endif
#ifdef DLPIPE_STATIC
#define DLPDEF static __attribute__((unused))
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif
#endif
