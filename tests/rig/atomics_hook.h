/* A call before and after every atomic access of dlpipe.h: include before it, and define
   atomics_hook. */
#ifndef ATOMICS_HOOK_H
#define ATOMICS_HOOK_H

enum { HOOK_LOAD, HOOK_LOAD_SEQ, HOOK_STORE, HOOK_CHANGE, HOOK_OR };

static void atomics_hook(int kind, const void *at);

/* The place is worked out once: it may count something on the way. */
#define HOOK_VALUE(kind, place, x) \
    __extension__({ \
        __auto_type hook_at = (place); \
        atomics_hook((kind), hook_at); \
        __auto_type hook_value = (x); \
        atomics_hook(-1, hook_at); \
        hook_value; \
    })
#define HOOK_STORE_N(place, v, order) \
    __extension__({ \
        __typeof__(*(place)) hook_new = (v); \
        __auto_type hook_at = (place); \
        atomics_hook(HOOK_STORE, hook_at); \
        __atomic_store_n(hook_at, hook_new, (order)); \
        atomics_hook(-1, hook_at); \
    })

#define DLPI_LOAD_RLX(p) HOOK_VALUE(HOOK_LOAD, p, __atomic_load_n(hook_at, __ATOMIC_RELAXED))
#define DLPI_LOAD_ACQ(p) HOOK_VALUE(HOOK_LOAD, p, __atomic_load_n(hook_at, __ATOMIC_ACQUIRE))
#define DLPI_LOAD_SEQ(p) HOOK_VALUE(HOOK_LOAD_SEQ, p, __atomic_load_n(hook_at, __ATOMIC_SEQ_CST))
#define DLPI_STORE_RLX(p, v) HOOK_STORE_N(p, v, __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) HOOK_STORE_N(p, v, __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) HOOK_STORE_N(p, v, __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) \
    HOOK_VALUE(HOOK_CHANGE, p, __atomic_exchange_n(hook_at, (v), __ATOMIC_SEQ_CST))
#define DLPI_ADD_SEQ(p, v) \
    HOOK_VALUE(HOOK_CHANGE, p, __atomic_fetch_add(hook_at, (v), __ATOMIC_SEQ_CST))
#define DLPI_ADD_RLX(p, v) \
    HOOK_VALUE(HOOK_CHANGE, p, __atomic_fetch_add(hook_at, (v), __ATOMIC_RELAXED))
#define DLPI_OR_SEQ(p, v) HOOK_VALUE(HOOK_OR, p, __atomic_fetch_or(hook_at, (v), __ATOMIC_SEQ_CST))
#define DLPI_AND_SEQ(p, v) \
    HOOK_VALUE(HOOK_CHANGE, p, __atomic_fetch_and(hook_at, (v), __ATOMIC_SEQ_CST))
#define DLPI_CAS_SEQ(p, e, v) \
    HOOK_VALUE( \
        HOOK_CHANGE, p, \
        __atomic_compare_exchange_n(hook_at, (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#define DLPI_CAS_ACQ(p, e, v) \
    HOOK_VALUE( \
        HOOK_CHANGE, p, \
        __atomic_compare_exchange_n(hook_at, (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))

#endif
