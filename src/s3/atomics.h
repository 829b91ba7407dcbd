#pragma once
#include "s3/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-atomics      THE SHIM OVER THE COMPILER'S ATOMICS
   dlpipe.h's, for programs without it. Labels in this file: S and a number, one for each word or
   group of words that threads or processes share. */

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
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif
