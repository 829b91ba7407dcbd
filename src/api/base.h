#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DLPDEF
#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 2
#define DLPIPE_VERSION_PATCH 0
#define DLPI_TEXT_(x) #x
#define DLPI_TEXT(x) DLPI_TEXT_(x)
#define DLPIPE_VERSION /* "0.2.0"; dlp_version() tells the implementation's */ \
    DLPI_TEXT(DLPIPE_VERSION_MAJOR) \
    "." DLPI_TEXT(DLPIPE_VERSION_MINOR) "." DLPI_TEXT(DLPIPE_VERSION_PATCH)

/* DLPIPE_STATIC [impl and all TUs]: make every function static. Each file that includes this header
   then has an implementation of its own. */
#if defined(DLPIPE_STATIC) && !defined(DLPIPE_IMPLEMENTATION)
#error DLPIPE_STATIC: define DLPIPE_IMPLEMENTATION, too, above the first include of this header
#undef DLPIPE_STATIC
#endif

/* Structs of the program and of the library must have one layout. */
struct dlpi_layout {
    char byte;
    uint64_t word;
};
#ifdef __cplusplus
static_assert(
#else
_Static_assert(
#endif
    sizeof(struct dlpi_layout) == 16,
    "dlpipe.h: compile without -fpack-struct, and include it outside of #pragma pack");

/* What a compiler's dialect adds to C stands here alone. DLPI_UNREAD marks a parameter, or a
   function, that some programs do not use. DLPI_USED: the object has it, used or not. DLPI_PRINTF:
   the format is argument `format`, and what it prints begins with argument `first`. */
#define DLPI_UNREAD __attribute__((unused))
#define DLPI_USED __attribute__((used))
#define DLPI_NOINLINE __attribute__((noinline))
#define DLPI_PRINTF(format, first) __attribute__((__format__(__printf__, format, first)))
#define DLPI_TARGET(features) __attribute__((target(features)))
#define DLPI_VECTOR(bytes) __attribute__((vector_size(bytes)))
#define DLPI_PREFETCH(at) __builtin_prefetch(at)
#define DLPI_CTZ(x) ((uint32_t)__builtin_ctzll(x)) /* zeros below the lowest one of 64 bits */
#define DLPI_CLZ(x) ((uint32_t)__builtin_clzll(x)) /* zeros above the highest one */
#define DLPI_ONES(x) __builtin_popcountll(x)
#define DLPI_BYTES_AT(at) __builtin_object_size(at, 0) /* SIZE_MAX: not known */
#define DLPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DLPI_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Marks a function that runs seldom: the compiler makes it small rather than fast. With -Os all
   functions are small already, and with this mark clang would make them larger. */
#ifdef __OPTIMIZE_SIZE__
#define DLPI_COLD
#else
#define DLPI_COLD __attribute__((cold))
#endif
#ifdef __OPTIMIZE__
#define DLPI_INLINE static inline __attribute__((always_inline))
#else /* without optimisation, always_inline makes gcc warn of branches that are dead */
#define DLPI_INLINE static inline __attribute__((unused))
#endif

#ifdef DLPIPE_STATIC
#define DLPDEF static DLPI_UNREAD
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif
#endif

/* Makes the use of a call an error: the call belongs to a part that is left out (>>options). */
#if defined(__clang__) && __clang_major__ < 14
#define DLPI_LESS(no, with) __attribute__((unavailable("compile without " no)))
#else
#define DLPI_LESS(no, with) \
    __attribute__((error("it is left out: compile without " no ", or beside " \
                         "DLPIPE_ONLY_LOADER with " with)))
#endif
