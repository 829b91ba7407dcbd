#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>atomics    THE ONE SHIM OVER THE COMPILER'S ATOMICS
   These macros stand before the queues, whose fast paths are inline in every file that includes
   this header. Each use carries a label and names its partner. A checker may define its own macros
   before it includes this header. */
#ifndef DLPI_LINE
#ifndef DLPI_LOAD_RLX
#define DLPI_LOAD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define DLPI_LOAD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define DLPI_STORE_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_SEQ(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_RLX(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DLPI_OR_SEQ(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_AND_SEQ(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Strong compare-and-swap. On failure *e gets the value that was found. */
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif

/* Keep the compiler from moving memory accesses across this point. It emits no instruction. It is
   enough only if the other side issues a heavy barrier (see dlpi_await), or if a crash must see
   stores in program order. */
#ifndef DLPI_KEEP_ORDER
#define DLPI_KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

#define DLPI_LINE 128u /* two cache lines: the adjacent-line prefetcher moves pairs */
#define DLPI_UNUSED(x) ((void)(x))

/* Tell the CPU that this thread spins. It saves power, and leaves more of the core to its other
   thread. */
DLPI_INLINE void dlpi_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Begin to fetch a cache line that is written soon, so that its other owner gives it up at once.
   __builtin_prefetch(at, 1) fetches the line for reading if the compiler may not use prefetchw, as
   on x86-64 by default. Then the write makes a trip of its own. 64-bit processors that do not know
   prefetchw take it for a nop. */
DLPI_INLINE void dlpi_prefetch_write(const void *at) {
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* A word of a record. The user may see any type there. */
typedef uint64_t __attribute__((may_alias)) dlpi_word;
#endif
