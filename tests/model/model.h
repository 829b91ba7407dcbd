/* An exhaustive checker for the header's own code. Included instead of ../dlpipe.h.

   The threads of a scenario are coroutines; every access through the DLPI_* shim, every futex call
   and every membarrier is a step. All orders of steps are tried, and for every load all values that
   its memory order permits. States that were met before are not gone into again, so that the search
   is finite also where threads poll. Nothing is bounded: no limit of preemptions, no sampling.

   Memory: C11's release/acquire machine without load buffering. Each location has a list of
   messages in modification order; a message carries the view of who wrote it, a view being the
   newest message known of each location.
     load       takes any message not older than the thread's view; acquire joins the message's view
     store      appends; release gives the message the thread's view, relaxed nothing
     rmw        takes the newest, and hands its view on (release sequences)
     seq_cst    as acquire and release, and a seq_cst load sees the newest seq_cst store (rmws are
                taken as acquire and release only: what holds so, holds with more)
     plain      slots must be known to the reader in their newest state, and every read of a slot to
                who overwrites it; all else is a data race
   Of store and load in program order the compiler may swap what nothing forbids: a store may wait
   until DLPI_KEEP_ORDER, a system call, or a later store or rmw that releases.
   membarrier: the caller knows all that the others know, they know what the caller does.
   futex: wait compares with the newest value and sleeps in one step; it does not time out, except
   (in scenarios with a death) when nobody can move; one time-out that brings nothing is an error.
   Nothing that the kernel orders beyond that is counted on.

   With model.reduce, orders of steps that come to the same are tried once; model_reduce.h says why
   that is right.

   What it cannot show: load buffering (a load that sees a store of its own future), and stores that
   land in the middle of a modification order: a store by who does not know the newest value is
   reported as an error, so that no such store goes unseen. */
#ifndef MODEL_H
#define MODEL_H

#undef _FORTIFY_SOURCE /* longjmp from stack to stack */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MODEL_UNAVAILABLE "sanitizers do not follow stacks that are copied"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define MODEL_UNAVAILABLE "sanitizers do not follow stacks that are copied"
#endif
#endif
#if !defined(MODEL_UNAVAILABLE) && !(defined(__linux__) && defined(__GLIBC__))
#define MODEL_UNAVAILABLE "this C library has no makecontext, or this system no futex"
#endif
#ifndef MODEL_UNAVAILABLE
#include <ucontext.h>
#ifndef MODEL_HEADER
#define MODEL_HEADER "../../dlpipe.h"
#endif
#ifndef MODEL_ATOMS /* who needs more says how many of each */
#define MODEL_THREADS 4
#define MODEL_ATOMS 16
#define MODEL_SLOTS 8
#define MODEL_MESSAGES 30
#define MODEL_SITES 128
#endif

/* ---- what the header sees ---- */

typedef enum model_kind {
    M_LOAD,
    M_STORE,
    M_XCHG,
    M_ADD,
    M_OR,
    M_AND,
    M_CAS,
    M_BARRIER,
    M_WAIT,
    M_WAKE,
    M_POLL,
    M_HERE,
    M_END,
    M_KILL,
    M_TIMEOUT,
    M_SPURIOUS,
    M_FLUSH,
    M_POSTPONE
} model_kind;
static const char *const model_kinds[] = {"load",
                                          "store",
                                          "xchg",
                                          "add",
                                          "or",
                                          "and",
                                          "cas",
                                          "membarrier",
                                          "futex wait",
                                          "futex wake",
                                          "polls",
                                          "goes on",
                                          "ends",
                                          "is killed",
                                          "times out",
                                          "wakes for no reason",
                                          "store becomes visible",
                                          "store stays behind"};
/* Orders, as bits. */
enum { M_RLX = 0, M_ACQ = 1, M_REL = 2, M_ACQREL = 3, M_SC = 4, M_SEQ = 7, M_KEEP = 8 };
/* Of a store that waited: it releases what its thread knew when it was begun (model_reduce.h). */
enum { M_WAITED = 16, M_ALIKE = 32 };
/* What a mutant does to an access: made relaxed; no longer seq_cst, but acquire or release; moved
   behind the next write of its thread. */
enum { M_AS_IS, M_RELAXED, M_NOT_SEQ, M_LATE };

static uint64_t model_atomic(model_kind kind, int order, const void *at, size_t size,
                             uint64_t value, void *expected, const char *name, const char *func,
                             int line);
static void model_keep_order(const char *func, int line);
static void model_show_store(void);
static void model_end_late(void);
static void *model_copy(void *to, const void *from, size_t n);
static long model_syscall(long number, ...);

#define MODEL_AT(kind, order, p, v, e, name) \
    ((__typeof__(*(p) + 0))model_atomic(kind, order, p, sizeof *(p), (uint64_t)(v), e, name, \
                                        __func__, __LINE__))
#define MODEL_DO(kind, order, p, v, name) \
    MODEL_AT(kind, order, p, (__typeof__(*(p) + 0))(v), NULL, name)
#define DLPI_LOAD_RLX(p) MODEL_AT(M_LOAD, M_RLX, p, 0, NULL, "LOAD_RLX")
#define DLPI_LOAD_ACQ(p) MODEL_AT(M_LOAD, M_ACQ, p, 0, NULL, "LOAD_ACQ")
#define DLPI_LOAD_SEQ(p) MODEL_AT(M_LOAD, M_ACQ | M_SC, p, 0, NULL, "LOAD_SEQ")
#define DLPI_STORE_RLX(p, v) ((void)MODEL_DO(M_STORE, M_RLX, p, v, "STORE_RLX"))
#define DLPI_STORE_REL(p, v) ((void)MODEL_DO(M_STORE, M_REL, p, v, "STORE_REL"))
#define DLPI_STORE_SEQ(p, v) ((void)MODEL_DO(M_STORE, M_REL | M_SC, p, v, "STORE_SEQ"))
#define DLPI_XCHG_SEQ(p, v) MODEL_DO(M_XCHG, M_SEQ, p, v, "XCHG_SEQ")
#define DLPI_ADD_SEQ(p, v) MODEL_DO(M_ADD, M_SEQ, p, v, "ADD_SEQ")
#define DLPI_ADD_RLX(p, v) MODEL_DO(M_ADD, M_RLX, p, v, "ADD_RLX")
#define DLPI_OR_SEQ(p, v) MODEL_DO(M_OR, M_SEQ, p, v, "OR_SEQ")
#define DLPI_AND_SEQ(p, v) MODEL_DO(M_AND, M_SEQ, p, v, "AND_SEQ")
#define MODEL_CAS(order, p, e, v, name) \
    ((int)model_atomic(M_CAS, order, p, sizeof *(p), (uint64_t)(v), e, name, __func__, __LINE__))
#define DLPI_CAS_SEQ(p, e, v) MODEL_CAS(M_SEQ, p, e, v, "CAS_SEQ")
#define DLPI_CAS_ACQ(p, e, v) MODEL_CAS(M_ACQ, p, e, v, "CAS_ACQ")
#define DLPI_KEEP_ORDER() model_keep_order(__func__, __LINE__)
static uint32_t model_scan = 16, model_sweep = 64;
#define DLPI_MPSC_SCAN model_scan
#define DLPI_MPSC_SWEEP model_sweep
#define memcpy(to, from, n) model_copy(to, from, n)
#define syscall model_syscall
#define clock_gettime(clock, t) ((void)(clock), (t)->tv_sec = 1, (t)->tv_nsec = 0)
#define DLPIPE_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-value" /* of a shim call whose result is not wanted */
#include MODEL_HEADER
#pragma GCC diagnostic pop
#undef memcpy
#undef syscall
#undef clock_gettime

/* ---- the world: all that a step can change, copied as a whole ---- */

enum {
    M_THREADS = MODEL_THREADS,
    M_ATOMS = MODEL_ATOMS,
    M_SLOTS = MODEL_SLOTS,
    M_PLACES = M_ATOMS + 2 * M_SLOTS, /* of a slot: its writes, its reads */
    M_MESSAGES = MODEL_MESSAGES,
    M_STACK = 65536,
    M_DEPTH = 4000,
    M_SITES = MODEL_SITES
};

typedef struct model_view {
    uint8_t at[M_PLACES];
} model_view;

typedef struct model_message {
    uint64_t value;
    model_view view;
} model_message;

typedef struct model_op {
    model_kind kind;
    int order, atom, site;
    uint64_t value, expected;
    model_view view; /* of a store that waited: what it releases */
} model_op;

typedef struct model_thread {
    model_op op;      /* the next step */
    model_op waiting; /* a store that is not yet visible; kind M_STORE, else M_END */
    model_op late;    /* of a mutant: a write that the next one overtakes; else M_END */
    uint64_t result;
    uint64_t history; /* stands for all private state: what was read since it was last taken down */
    model_view view;
    uint8_t read[M_ATOMS]; /* number of the message that it last loaded, for M_POLL */
    uint8_t holds;         /* 1 + counter whose value it holds, to wait with */
    uint64_t held;
    uint8_t started, ended, asleep;
    uint8_t left; /* it has left something behind since it could have died last */
    /* With model.reduce. waited: others made steps since its last one (2: the last of these woke
       it). Of its store that waits: is it to be decided now whether it becomes visible; has
       another used the place since it was begun? */
    uint8_t waited, fresh, touched;
    uint32_t stack_used;
    jmp_buf jump;
} model_thread;

typedef struct model_world {
    model_thread thread[M_THREADS];
    model_view newest, seq;
    uint8_t oldest[M_ATOMS]; /* messages that some thread may still read begin here */
    uint8_t deaths, spurious;
    uint8_t last, preempted; /* who moved last; how often one that could go on had to wait */
    uint8_t timeouts;        /* since somebody got on */
    model_message message[M_ATOMS][M_MESSAGES]; /* by number, modulo; last */
} model_world;

/* What a scenario keeps; its memory is part of the world. */
typedef struct model_scenario {
    const char *name;
    void (*setup)(void);
    void (*body[M_THREADS])(void);
    void (*end)(void); /* alone, when all have ended */
    int mortal;        /* 1 + thread that may die at any step; the next one then begins */
} model_scenario;

typedef struct model_use {
    uint32_t used, written;
    int shared;
    int weak; /* read other than by seq_cst loads, which do not go back behind seq */
} model_use;

/* A state that was met. Where preemptions are bounded: with how many at least, for each thread that
   may have moved last; 3 bits each, as far below 7 as that. */
typedef struct model_seen {
    uint64_t state;
    uint32_t spare;
    uint32_t sum; /* number of a model_sum; 0: not known yet */
} model_seen;
_Static_assert(4 * MODEL_THREADS <= 32, "4 bits of spare each");

static struct {
    const model_scenario *scenario;
    int running; /* thread, or -1: setup and end run alone, on raw memory */
    jmp_buf scheduler;
    ucontext_t start_context, main_context;
    char *stack[M_THREADS];
    unsigned char *memory; /* the scenario's */
    size_t memory_bytes;
    int atoms, slots;
    struct {
        void *at;
        size_t size;
        const char *name;
        uint64_t most;
        int many; /* stored by several who do not know of each other; such stores go to the end */
        int counter; /* only moves on, by additions, and is only compared for being the same: what
                        matters is how far the newest value is from what somebody has kept */
    } atom[M_ATOMS];
    /* Of each place, by number: who uses it, who writes it. Where that is one thread alone, or
       nobody writes, it is memory as any other, and no step. Found out as the search goes on:
       when one turns out to be shared it all begins again. */
    model_use use[M_ATOMS];
    int find_shared, found_shared, use_known; /* use_known: as a search before has left it */
    struct {
        unsigned char *at;
        size_t size;
    } slot[M_SLOTS];
    int membarrier; /* does the kernel have it? */
    int spurious;   /* wake-ups that nobody sent, at most */
    int daemons;    /* a bit for each thread that may sleep for ever once the others ended */
    int loose;      /* places that are not listed are memory that nobody races for */
    int bound;      /* preemptions, at most, + 1; 0: any number */
    int reduce;     /* leave out orders that come to the same: model_reduce.h */
    /* Memory that is not one block; NULL: it is. */
    size_t (*kept_bytes)(void);
    void (*keep)(unsigned char *to);
    void (*bring_back)(const unsigned char *from, size_t n);
    uint64_t (*mix_more)(uint64_t h); /* what the scenario keeps and no thread's history tells */
    void (*lead)(void);        /* places the threads by model_lead and model_lead_dies, or NULL */
    uint64_t (*at_wait)(void); /* all that the thread still uses once it is awake, or NULL */
    uint64_t (*counted)(int atom, uint64_t value); /* what of a counter's value is private state */
    char failure[256];
    uint64_t raw_writes; /* stores and rmws while nothing else ran */
    uint64_t states, steps, ends, seen_size;
    uint64_t most_states; /* 0: any number */
    int gave_up;
    model_seen *seen;
    struct {
        const char *func, *name, *place;
        int line, order, weak, met; /* met: in this search */
        model_kind kind;
    } site[M_SITES];
    int sites, weakened;
    int by_place; /* accesses of several places by one line are told apart */
} model;
static model_world world;

__extension__ typedef unsigned __int128 model_wide;

/* A product of 128 bits, its halves folded (as wyhash does). */
static uint64_t model_mix(uint64_t h, uint64_t x) {
    model_wide wide = (model_wide)(h ^ UINT64_C(0x9E3779B97F4A7C15));
    wide *= x ^ UINT64_C(0xD6E8FEB86659FD93);
    return (uint64_t)wide ^ (uint64_t)(wide >> 64);
}

static uint64_t model_hash(uint64_t h, const void *bytes, size_t n) {
    const unsigned char *at = (const unsigned char *)bytes;
    uint64_t word;
    for (; n >= 8; at += 8, n -= 8) {
        memcpy(&word, at, 8);
        h = model_mix(h, word);
    }
    for (; n > 0; at++, n--) h = model_mix(h, *at);
    return h;
}

#include "model_reduce.h"

/* ---- coroutines ---- */

/* The frame of this function is the lowest of a parked thread's stack. */
__attribute__((noinline)) static void model_park(void) {
    model_thread *t = &world.thread[model.running];
    char *top = model.stack[model.running] + M_STACK;
    char *low = (char *)__builtin_frame_address(0) - 768;
    if (low < model.stack[model.running]) abort();
    t->stack_used = (uint32_t)(top - low);
    if (_setjmp(t->jump) == 0) _longjmp(model.scheduler, 1);
}

__attribute__((noinline)) static void model_resume(int t) {
    model.running = t;
    if (_setjmp(model.scheduler) == 0) _longjmp(world.thread[t].jump, 1);
    model.running = -1;
}

static void model_fail(const char *format, ...) {
    if (!model.failure[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(model.failure, sizeof model.failure, format, args);
        va_end(args);
    }
    if (model.running >= 0) {
        world.thread[model.running].op.kind = M_END;
        model_park(); /* for good */
    }
}

/* The checker can go no further: no fault of what it checks. */
static void model_give_up(const char *what, const char *where) {
    model.gave_up = 1;
    model_fail("%s%s", what, where);
}

static uint64_t model_count(model_thread *t, const model_op *op) {
    if (op->kind != M_LOAD) return 0;
    if (model.counted) {
        uint64_t kept = model.counted(op->atom, t->result);
        if (kept) return kept;
    }
    t->holds = (uint8_t)(op->atom + 1);
    t->held = t->result;
    return 0;
}

static uint64_t model_step(model_op op) {
    model_thread *t = &world.thread[model.running];
    t->op = op;
    model_park();
    int counter = op.kind <= M_CAS && model.atom[op.atom].counter;
    /* + 1: each step leaves a trace, also one that reads 0 before anything else, or two looks at a
       place by one call would be one */
    t->history = model_mix(t->history + 1, counter ? model_count(t, &op) : t->result);
    if (op.kind == M_WAIT) t->holds = 0;
    return t->result;
}

static void model_entry(void) {
    int me = model.running;
    model_op begin;
    memset(&begin, 0, sizeof begin);
    begin.kind = M_HERE;
    model_step(begin);
    model.scenario->body[me]();
    model_end_late();
    model_show_store();
    begin.kind = M_END;
    model_step(begin);
    abort();
}

__attribute__((noinline)) static void model_start_thread(int t) {
    model.running = t;
    getcontext(&model.start_context);
    model.start_context.uc_stack.ss_sp = model.stack[t];
    model.start_context.uc_stack.ss_size = M_STACK;
    model.start_context.uc_link = NULL;
    makecontext(&model.start_context, model_entry, 0);
    if (_setjmp(model.scheduler) == 0) setcontext(&model.start_context);
    model.running = -1;
}

/* ---- the shim's side ---- */

static int model_find_atom(const void *at) {
    for (int i = 0; i < model.atoms; i++)
        if (model.atom[i].at == at) return i;
    return -1;
}

/* With by_place, a call of a link stands for accesses of several places, each of which is a site.
   Those that differ by a number at their end alone are one. */
static int model_same_place(const char *a, const char *b) {
    if (!model.by_place || a == b) return 1;
    if (!a || !b) return 0;
    size_t m = strlen(a), n = strlen(b);
    if (m > 2 && a[m - 2] == ' ' && a[m - 1] >= '0' && a[m - 1] <= '9') m -= 2;
    if (n > 2 && b[n - 2] == ' ' && b[n - 1] >= '0' && b[n - 1] <= '9') n -= 2;
    return m == n && memcmp(a, b, n) == 0;
}

static int model_find_site(const char *func, const char *name, int line, int order,
                           const char *place) {
    for (int i = 0; i < model.sites; i++)
        if (model.site[i].line == line && model.site[i].name == name &&
            (model.site[i].func == func || strcmp(model.site[i].func, func) == 0) &&
            model_same_place(model.site[i].place, place))
            return i;
    if (model.sites == M_SITES) abort();
    model.site[model.sites].func = func;
    model.site[model.sites].name = name;
    model.site[model.sites].line = line;
    model.site[model.sites].order = order;
    model.site[model.sites].place = place;
    return model.sites++;
}

static uint64_t model_raw_load(const void *at, size_t size) {
    uint64_t v8 = 0;
    uint32_t v4 = 0;
    uint16_t v2 = 0;
    switch (size) {
    case 8: memcpy(&v8, at, 8); return v8;
    case 4: memcpy(&v4, at, 4); return v4;
    case 2: memcpy(&v2, at, 2); return v2;
    default: return *(const uint8_t *)at;
    }
}

static void model_raw_store(void *at, size_t size, uint64_t value) {
    uint32_t v4 = (uint32_t)value;
    uint16_t v2 = (uint16_t)value;
    switch (size) {
    case 8: memcpy(at, &value, 8); break;
    case 4: memcpy(at, &v4, 4); break;
    case 2: memcpy(at, &v2, 2); break;
    default: *(uint8_t *)at = (uint8_t)value;
    }
}

static uint64_t model_modify(model_kind kind, uint64_t old, uint64_t value, size_t size) {
    uint64_t v = kind == M_ADD   ? old + value
                 : kind == M_OR  ? old | value
                 : kind == M_AND ? old & value
                                 : value;
    return size == 4 ? (uint32_t)v : v;
}

static uint64_t model_alone(model_kind kind, void *at, size_t size, uint64_t value,
                            void *expected) {
    uint64_t old = model_raw_load(at, size);
    if (kind == M_LOAD) return old;
    model.raw_writes++;
    if (model.running >= 0) world.thread[model.running].left = 1;
    if (kind == M_CAS) {
        int same = old == model_raw_load(expected, size);
        model_raw_store(same ? at : expected, size, same ? value : old);
        return (uint64_t)same;
    }
    model_raw_store(at, size, model_modify(kind, old, value, size));
    return old;
}

static int model_find_slot(const void *at) {
    for (int i = 0; i < model.slots; i++)
        if (model.slot[i].at == (const unsigned char *)at) return i;
    return -1;
}

/* One thread knows the newest state of a place. */
static int model_knows(int place) {
    return world.thread[model.running].view.at[place] == world.newest.at[place];
}

static void model_write_slot(int slot) {
    int writes = M_ATOMS + 2 * slot, reads = writes + 1;
    if (!model_knows(reads))
        model_fail("data race: slot %d is overwritten, and a reader may not be done with it", slot);
    if (!model_knows(writes)) model_fail("data race: slot %d is written twice", slot);
    world.thread[model.running].view.at[writes] = ++world.newest.at[writes];
}

static void model_read_slot(int slot) {
    int writes = M_ATOMS + 2 * slot, reads = writes + 1;
    if (world.newest.at[writes] == 0) model_fail("slot %d is read, but never was written", slot);
    if (!model_knows(writes))
        model_fail("data race: slot %d is read, and its record may not be there yet", slot);
    world.thread[model.running].view.at[reads] = ++world.newest.at[reads];
}

/* Does one thread alone use the place, or nobody write it, as far as is known? */
static int model_is_private(int atom, model_kind kind) {
    if (!model.find_shared || model.use[atom].shared) return 0;
    uint32_t used = model.use[atom].used |= 1u << model.running;
    if (kind != M_LOAD) model.use[atom].written |= 1u << model.running;
    if (model.use[atom].written == 0 || (used & (used - 1)) == 0) return 1;
    model.use[atom].shared = model.found_shared = 1;
    model_fail("%s is shared", model.atom[atom].name);
    return 0;
}

static void model_weak_load(int atom) {
    if (!model.find_shared || model.use[atom].weak) return;
    model.use[atom].weak = model.found_shared = 1;
    model_fail("%s is not always read in one order", model.atom[atom].name);
}

/* The order of an access, as the mutant has it. */
static int model_order(int site, int order) {
    model.site[site].met = 1;
    switch (model.site[site].weak) {
    case M_RELAXED: return M_RLX;
    case M_NOT_SEQ: return order & ~M_SC;
    default: return order;
    }
}

static uint64_t model_access(model_op op) {
    model_thread *t = &world.thread[model.running];
    /* What cannot pass a store that waits makes it visible first. */
    int may_pass = !(op.order & M_REL) && !(op.order & M_SC && op.kind != M_LOAD);
    if (t->waiting.kind == M_STORE && (!may_pass || t->waiting.atom == op.atom)) model_show_store();
    op.view = t->view; /* what was shown just now is in it */
    if (op.kind == M_STORE && !(op.order & M_SC) && t->waiting.kind != M_STORE) {
        t->waiting = op;
        t->waiting.order |= M_WAITED;
        t->history = model_mix(t->history, 1);
        t->fresh = (uint8_t)model.reduce;
        t->touched = 0;
        model_touch(0, UINT64_C(1) << op.atom);
        return 0;
    }
    return model_step(op);
}

static void model_end_late(void) {
    model_thread *t = &world.thread[model.running];
    model_op late = t->late;
    t->late.kind = M_END;
    if (late.kind != M_END) model_access(late);
}

/* The access, or a mutant's: the one before it that it overtakes comes behind it. */
static uint64_t model_do_late(model_op op) {
    model_thread *t = &world.thread[model.running];
    if (model.site[op.site].weak == M_LATE || (t->late.kind != M_END && t->late.atom == op.atom)) {
        model_end_late();
        if (model.site[op.site].weak != M_LATE) return model_access(op);
        t->late = op;
        t->history = model_mix(t->history, 3);
        return 0;
    }
    uint64_t r = model_access(op);
    if (op.kind != M_LOAD) model_end_late();
    return r;
}

static uint64_t model_atomic(model_kind kind, int order, const void *at, size_t size,
                             uint64_t value, void *expected, const char *name, const char *func,
                             int line) {
    void *own = (void *)(uintptr_t)at;
    if (model.running < 0) return model_alone(kind, own, size, value, expected);
    int atom = model_find_atom(at);
    if (atom < 0 && kind == M_LOAD && !model.loose)
        return model_raw_load(at, size); /* written before the threads began */
    if (atom < 0 && kind == M_STORE && order == M_RLX && model_find_slot(at) >= 0) {
        model_write_slot(model_find_slot(at)); /* as weak as a plain write */
        model_raw_store(own, size, value);
        return 0;
    }
    if (atom < 0 && model.loose) return model_alone(kind, own, size, value, expected);
    if (atom < 0)
        model_fail("%s line %d: %s of a place that the scenario does not list", func, line, name);
    if (model_is_private(atom, kind)) return model_alone(kind, own, size, value, expected);
    model_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.atom = atom;
    op.site = model_find_site(func, name, line, order, model.atom[atom].name);
    op.order = model_order(op.site, order);
    model.site[op.site].kind = kind;
    op.value = value;
    if (kind == M_LOAD && !(op.order & M_SC)) model_weak_load(atom);
    if (kind == M_CAS) op.expected = model_raw_load(expected, size);
    uint64_t r = model_do_late(op);
    if (kind != M_CAS) return r;
    int same = r == op.expected;
    if (!same) model_raw_store(expected, size, r);
    return (uint64_t)same;
}

static void model_show_store(void) {
    model_thread *t = &world.thread[model.running];
    if (t->waiting.kind != M_STORE) return;
    model_op op = t->waiting;
    t->waiting.kind = M_END;
    if (model.reduce && !t->fresh && !t->touched) op.order |= M_ALIKE;
    t->fresh = 0;
    model_step(op);
}

static void model_keep_order(const char *func, int line) {
    if (model.running < 0) return;
    int site = model_find_site(func, "KEEP_ORDER", line, M_KEEP, NULL);
    if (!model.site[site].weak) model_show_store();
}

static void *model_copy(void *to, const void *from, size_t n) {
    if (model.running >= 0)
        for (size_t done = 0; done < n;) {
            int into = model_find_slot((unsigned char *)to + done);
            int out = model_find_slot((const unsigned char *)from + done);
            if (into >= 0)
                model_write_slot(into);
            else if (out >= 0)
                model_read_slot(out);
            else
                break;
            done += model.slot[into >= 0 ? into : out].size;
        }
    return memcpy(to, from, n);
}

static void model_system(model_kind kind, const void *word, uint32_t value, uint32_t bits) {
    model_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.value = value;
    op.expected = bits;
    op.atom = word ? model_find_atom(word) : 0;
    if (op.atom < 0 && model.loose && kind == M_WAKE) return; /* nobody sleeps there */
    if (op.atom < 0) model_fail("a futex that the scenario does not list");
    if (word && model_is_private(op.atom, M_LOAD)) {
        model.use[op.atom].shared = model.found_shared = 1;
        model_fail("%s is shared", model.atom[op.atom].name);
    }
    model_end_late();
    model_show_store();
    if (kind == M_WAIT && model.at_wait) world.thread[model.running].history = model.at_wait();
    model_step(op);
}

static long model_syscall(long number, ...) {
    va_list args;
    va_start(args, number);
    if (number == SYS_membarrier) {
        int command = va_arg(args, int);
        va_end(args);
        int registers = command == DLPI_MB_REGISTER_GLOBAL || command == DLPI_MB_REGISTER_PRIVATE;
        if (model.membarrier && !registers && model.running >= 0)
            model_system(M_BARRIER, NULL, 0, 0);
        return model.membarrier ? 0 : -1;
    }
    if (model.loose && (number != SYS_futex || model.running < 0)) {
        va_end(args);
        return 0;
    }
    uint32_t *word = va_arg(args, uint32_t *);
    int command = va_arg(args, int) & ~DLPI_FUTEX_PRIVATE;
    uint32_t value = va_arg(args, uint32_t), bits;
    if (number != SYS_futex || model.running < 0) abort();
    (void)va_arg(args, void *);
    (void)va_arg(args, void *);
    bits = va_arg(args, uint32_t);
    va_end(args);
    model_system(command == DLPI_FUTEX_WAIT_BITSET ? M_WAIT : M_WAKE, word, value, bits);
    return 0;
}

/* ---- for scenarios ---- */

#define MODEL_CHECK(cond) \
    ((cond) ? (void)0 : model_fail("line %d of the scenario: %s", __LINE__, #cond))

/* Take down private state: all that the thread still uses, beside constants. */
__attribute__((unused)) static uint64_t model_digest(const void *private_state, size_t n,
                                                     uint64_t more) {
    return model_hash(more + 1, private_state, n);
}

static void model_here(uint64_t digest) {
    model_show_store();
    world.timeouts = 0;
    world.thread[model.running].history = digest;
}

/* A bit for model_poll. */
__attribute__((unused)) static uint32_t model_bit(const void *at) {
    return 1u << model_find_atom(at);
}

/* Go round again, once there is something that this thread has not seen at one of the places; it
   then sees the newest there (as it would in the end; but it acquires nothing by that). Once for
   each such thing, also where it does not look at that place then: else who goes round for ever
   would be no deadlock. */
__attribute__((unused)) static void model_poll(uint64_t digest, uint32_t places) {
    model_here(digest);
    model_system(M_POLL, NULL, places, 0);
    world.thread[model.running].history = digest;
}

/* List a place that threads use while they run. most: how far one store may advance it, 0: any. */
static void model_list_atom(const char *name, void *at, size_t size, uint64_t most) {
    if (model.atoms == M_ATOMS) abort();
    memset(&model.atom[model.atoms], 0, sizeof model.atom[0]); /* of the scenario before */
    model.atom[model.atoms].name = name;
    model.atom[model.atoms].at = at;
    model.atom[model.atoms].size = size;
    model.atom[model.atoms].most = most;
    world.message[model.atoms][0].value = model_raw_load(at, size);
    model.atoms++;
}

__attribute__((unused)) static void model_list_slot(void *at, size_t size) {
    if (model.slots == M_SLOTS) abort();
    model.slot[model.slots].at = (unsigned char *)at;
    model.slot[model.slots++].size = size;
}

/* ---- steps ---- */

static void model_join(model_view *to, const model_view *from, int places) {
    for (int i = 0; i < places; i++)
        if (to->at[i] < from->at[i]) to->at[i] = from->at[i];
}

static model_message *model_message_at(int atom, int number) {
    return &world.message[atom][number % M_MESSAGES];
}

static void model_append(int atom, uint64_t value, const model_view *view) {
    uint64_t old = model_message_at(atom, world.newest.at[atom])->value;
    if (model.atom[atom].most && value - old > model.atom[atom].most)
        model_fail("%s moves from %llx to %llx", model.atom[atom].name, (unsigned long long)old,
                   (unsigned long long)value);
    if (world.newest.at[atom] == 255 ||
        world.newest.at[atom] + 1 - world.oldest[atom] >= M_MESSAGES) {
        model_give_up("more messages than this checker can hold at ", model.atom[atom].name);
        return;
    }
    model_message *m = model_message_at(atom, ++world.newest.at[atom]);
    m->value = value;
    m->view = *view;
    m->view.at[atom] = world.newest.at[atom];
}

static void model_do_load(model_thread *t, const model_op *op, int number) {
    const model_message *m = model_message_at(op->atom, number);
    t->view.at[op->atom] = t->read[op->atom] = (uint8_t)number;
    if (op->order & M_ACQ) model_join(&t->view, &m->view, M_PLACES);
    t->result = m->value;
}

static void model_do_store(model_thread *t, const model_op *op) {
    static const model_view nothing;
    if (t->view.at[op->atom] != world.newest.at[op->atom] && !model.atom[op->atom].many)
        model_fail("%s is stored by two at once", model.atom[op->atom].name);
    const model_view *knows = op->order & M_WAITED ? &op->view : &t->view;
    model_append(op->atom, op->value, op->order & M_REL ? knows : &nothing);
    t->view.at[op->atom] = world.newest.at[op->atom];
    if (op->order & M_SC) world.seq.at[op->atom] = world.newest.at[op->atom];
    t->result = 0;
}

static void model_do_rmw(model_thread *t, const model_op *op) {
    model_do_load(t, op, world.newest.at[op->atom]);
    if (op->kind == M_CAS && t->result != op->expected) return;
    model_view view = model_message_at(op->atom, world.newest.at[op->atom])->view;
    if (op->order & M_REL) model_join(&view, &t->view, M_PLACES);
    model_append(op->atom, model_modify(op->kind, t->result, op->value, model.atom[op->atom].size),
                 &view);
    t->view.at[op->atom] = t->read[op->atom] = world.newest.at[op->atom];
    if (op->order & M_SC) world.seq.at[op->atom] = world.newest.at[op->atom];
}

static void model_do_barrier(model_thread *t) {
    model_view mine = t->view;
    for (int i = 0; i < M_THREADS; i++) {
        model_join(&t->view, &world.thread[i].view, M_ATOMS); /* slots stay as they are */
        model_join(&world.thread[i].view, &mine, M_ATOMS);
    }
}

static void model_get_up(model_thread *t) {
    t->asleep = 0;
    /* its death is another one now */
    t->waited = !model.reduce ? 0 : model_broken == 2 || model_broken == 4 ? 1 : 2;
    t->op.kind = M_HERE;
}

static void model_do_wake(const model_op *op) {
    uint64_t left = op->value;
    for (int i = 0; i < M_THREADS && left > 0; i++)
        if (world.thread[i].asleep && world.thread[i].op.atom == op->atom &&
            (world.thread[i].op.expected & op->expected) != 0) {
            model_get_up(&world.thread[i]);
            left--;
        }
}

/* A way on from a state: who, and, for a load, what is read. */
typedef struct model_move {
    uint8_t thread, how, number; /* how: 0 its step, else a model_kind */
    uint8_t atom, kind;
    int16_t site;
    uint64_t value;
} model_move;

static void model_do_move(model_move *move) {
    model_thread *t = &world.thread[move->thread];
    const model_op *op = &t->op;
    move->kind = move->how ? move->how : (uint8_t)op->kind;
    move->atom = (uint8_t)op->atom;
    move->site = (int16_t)op->site;
    t->result = 0;
    model_begin_step(move->thread, move->how);
    if (move->how == M_POSTPONE) {
        t->fresh = 0;
        return;
    }
    if (model_broken != 4) t->waited = 0;
    if (move->how != M_FLUSH)
        t->left = op->kind != M_LOAD; /* a death between two loads is one before the first */
    if (move->how == M_KILL) {
        model_thread *next = t + 1;
        t->ended = t->started = 1;
        t->asleep = 0;
        world.deaths++;
        next->started = 1;
        model_join(&next->view, &t->view, M_PLACES); /* the kernel has proved the death */
        return;
    }
    if (move->how == M_FLUSH) {
        move->atom = (uint8_t)t->waiting.atom;
        move->value = t->waiting.value;
        move->site = (int16_t)t->waiting.site;
        model_do_store(t, &t->waiting);
        t->waiting.kind = M_END;
        t->fresh = 0;
        t->history = model_mix(t->history, 2);
        return;
    }
    if (move->how == M_SPURIOUS) {
        world.spurious++;
        model_get_up(t);
        return;
    }
    if (move->how == M_TIMEOUT) {
        for (int i = 0; i < M_THREADS; i++)
            if (world.thread[i].asleep) model_get_up(&world.thread[i]);
        if (++world.timeouts > 1) model_fail("thread %d sleeps for ever", move->thread);
        return;
    }
    switch (op->kind) {
    case M_LOAD: model_do_load(t, op, move->number); break;
    case M_STORE: model_do_store(t, op); break;
    case M_XCHG:
    case M_ADD:
    case M_OR:
    case M_AND:
    case M_CAS: model_do_rmw(t, op); break;
    case M_BARRIER: model_do_barrier(t); break;
    case M_WAIT:
        t->view.at[op->atom] = world.newest.at[op->atom];
        t->asleep = model_message_at(op->atom, world.newest.at[op->atom])->value == op->value;
        break;
    case M_WAKE: model_do_wake(op); break;
    case M_POLL:
        for (int i = 0; i < model.atoms; i++)
            if (op->value >> i & 1) t->view.at[i] = t->read[i] = world.newest.at[i];
        break;
    case M_END: t->ended = 1; break;
    default: break;
    }
    move->value = op->kind == M_STORE || op->kind == M_WAIT ? op->value : t->result;
    if (!model.failure[0] && !t->ended && !t->asleep) model_resume(move->thread);
}

static int model_unseen(const model_thread *t) {
    for (int i = 0; i < model.atoms; i++)
        if (t->op.value >> i & 1 && t->read[i] != world.newest.at[i]) return 1;
    return 0;
}

static int model_push_move(model_move *to, int n, int thread, int how, int number) {
    memset(&to[n], 0, sizeof to[n]);
    to[n].thread = (uint8_t)thread;
    to[n].how = (uint8_t)how;
    to[n].number = (uint8_t)number;
    return n + 1;
}

enum { M_MOVES = M_THREADS * (M_MESSAGES + 4) };

/* A step that makes no switch. */
static int model_is_free(const model_move *m) { return m->how == M_FLUSH || m->how == M_POSTPONE; }

/* The store that must become visible now could have been from the beginning. */
static int model_is_alike(const model_thread *t) {
    return t->started && !t->ended && t->op.kind == M_STORE && (t->op.order & M_ALIKE) != 0;
}

static int model_moves_of(int i, model_move *to, int n) {
    const model_thread *t = &world.thread[i];
    if (!t->started || t->ended) return n;
    if (model.scenario->mortal == i + 1 && !t->waited && (t->op.kind != M_LOAD || t->left))
        n = model_push_move(to, n, i, M_KILL, 0);
    if (t->waiting.kind == M_STORE && !model.reduce) n = model_push_move(to, n, i, M_FLUSH, 0);
    if (t->asleep && world.spurious < model.spurious) n = model_push_move(to, n, i, M_SPURIOUS, 0);
    if (t->asleep || (t->op.kind == M_POLL && !model_unseen(t))) return n;
    if (model_is_alike(t)) return n;
    if (t->op.kind != M_LOAD) return model_push_move(to, n, i, 0, 0);
    int low = t->view.at[t->op.atom];
    if (t->op.order & M_SC && low < world.seq.at[t->op.atom]) low = world.seq.at[t->op.atom];
    for (int number = low; number <= world.newest.at[t->op.atom]; number++)
        n = model_push_move(to, n, i, 0, number);
    return n;
}

/* Can the thread make a step of its own? */
static int model_can_go(const model_thread *t) {
    return t->started && !t->ended && !t->asleep && (t->op.kind != M_POLL || model_unseen(t));
}

static int model_all_ended(void) {
    for (int i = 0; i < M_THREADS; i++) {
        const model_thread *t = &world.thread[i];
        if (!t->started || t->ended) continue;
        if (!(model.daemons >> i & 1) || model_can_go(t) || t->waiting.kind == M_STORE) return 0;
    }
    return 1;
}

/* Where preemptions are bounded, and used up: nobody else's steps. */
static int model_not_preempted(model_move *of, int n) {
    int kept = 0;
    if (!model.bound || world.preempted + 1 < model.bound ||
        !model_can_go(&world.thread[world.last]))
        return n;
    for (int k = 0; k < n; k++)
        if (of[k].thread == world.last || of[k].how == M_FLUSH) of[kept++] = of[k];
    return kept;
}

static void model_count_preemption(const model_move *m) {
    if (!model.bound || model_is_free(m) || m->thread == world.last) return;
    world.preempted = (uint8_t)(world.preempted + model_can_go(&world.thread[world.last]));
    world.last = m->thread;
}

/* Is it to be decided whether a store becomes visible? Then that comes first. */
static int model_decisions(model_move *to) {
    for (int i = 0; i < M_THREADS; i++) {
        const model_thread *t = &world.thread[i];
        if (!t->fresh || t->ended || t->waiting.kind != M_STORE) continue;
        int n = model_push_move(to, 0, i, M_FLUSH, 0);
        return model_broken == 5 ? n : model_push_move(to, n, i, M_POSTPONE, 0);
    }
    return 0;
}

static int model_moves(model_move *to) {
    int lives = 0, n = model_decisions(to);
    if (n) return n;
    for (int i = 0; i < M_THREADS; i++) {
        int before = n;
        n = model_moves_of(i, to, n);
        lives += model_is_alike(&world.thread[i]);
        for (int k = before; k < n; k++) /* what it can do by itself */
            lives += to[k].how != M_KILL && to[k].how != M_SPURIOUS;
    }
    if (lives == 0 && world.deaths > 0 && !model.loose)
        for (int i = 0; i < M_THREADS; i++)
            if (world.thread[i].asleep) lives = n = model_push_move(to, 0, i, M_TIMEOUT, 0);
    if (lives == 0 && !model_all_ended()) {
        char who[64] = "";
        for (int i = 0; i < M_THREADS; i++)
            if (world.thread[i].started && !world.thread[i].ended)
                snprintf(who + strlen(who), sizeof who - strlen(who), " %d %s", i,
                         world.thread[i].asleep ? "sleeps" : "polls");
        model_fail("deadlock, a wake-up or a publication is lost: thread%s", who);
    }
    return model_not_preempted(to, n);
}

/* ---- states ---- */

/* Forget messages that nobody can read any more. */
static void model_forget(void) {
    for (int a = 0; a < model.atoms; a++) {
        uint8_t low = world.newest.at[a];
        for (int i = 0; i < M_THREADS; i++) {
            const model_thread *t = &world.thread[i];
            if (t->started && !t->ended && t->view.at[a] < low) low = t->view.at[a];
        }
        if (model.find_shared && !model.use[a].weak && low < world.seq.at[a]) low = world.seq.at[a];
        world.oldest[a] = low;
    }
}

/* Bytes of views, 16 at once. */
typedef uint8_t model_bytes __attribute__((vector_size(16), aligned(1)));
_Static_assert(M_PLACES % 16 == 0, "views are hashed 16 places at once");

static struct {
    model_view oldest; /* of slots: the newest */
    model_view store;  /* all ones where who does not know the newest may not store, and may know
                          less than the oldest (which is so of threads with find_shared alone) */
    model_view atom;   /* all ones, of slots 0 */
} model_mask;

static void model_mask_views(void) {
    for (int i = 0; i < M_PLACES; i++) {
        int atom = i < M_ATOMS;
        model_mask.atom.at[i] = atom ? 255 : 0;
        model_mask.oldest.at[i] = atom ? world.oldest[i] : world.newest.at[i];
        model_mask.store.at[i] = model.find_shared && atom && !model.atom[i].many ? 128 : 0;
    }
}

/* A view, told by what it hides: how far behind the newest, as far as that can matter. */
static uint64_t model_hash_view(uint64_t h, const model_view *v) {
    uint64_t sum = 0;
    for (int i = 0; i < M_PLACES; i += 16) {
        const model_bytes is = *(const model_bytes *)(const void *)&v->at[i],
                          newest = *(const model_bytes *)(const void *)&world.newest.at[i],
                          oldest = *(const model_bytes *)(const void *)&model_mask.oldest.at[i],
                          atom = *(const model_bytes *)(const void *)&model_mask.atom.at[i],
                          store = *(const model_bytes *)(const void *)&model_mask.store.at[i];
        const model_bytes old = (model_bytes)(is < oldest);
        const model_bytes clipped = (oldest & old) | (is & ~old);
        model_bytes behind = ((newest - clipped) & atom) | (old & (store | (~atom & 1)));
        uint64_t words[2];
        memcpy(words, &behind, sizeof words);
        sum += model_mix(words[0] + UINT64_C(0x9FB21C651E98DF25) * (uint64_t)(i + 1), words[1]);
    }
    return model_mix(h, sum);
}

static uint64_t model_newest(int atom) {
    return model_message_at(atom, world.newest.at[atom])->value;
}

/* What a thread may do beside its next step. */
static uint64_t model_flags(const model_thread *t, int i) {
    uint64_t flags = (uint64_t)model_is_alike(t);
    if (t->op.kind == M_POLL) flags |= (uint64_t)model_unseen(t) << 6;
    if (t->waiting.kind == M_STORE) flags |= (uint64_t)t->fresh << 1 | (uint64_t)t->touched << 2;
    if (model.scenario->mortal == i + 1) flags |= (uint64_t)t->left << 3 | (uint64_t)t->waited << 4;
    return flags;
}

static uint64_t model_state(void) {
    uint64_t h = 7;
    model_mask_views();
    for (int i = 0; i < M_THREADS; i++) {
        const model_thread *t = &world.thread[i];
        uint64_t flags = (uint64_t)t->started | (uint64_t)t->ended << 1 | (uint64_t)t->asleep << 2;
        h = model_mix(h, flags);
        if (!t->started || t->ended) continue;
        h = model_mix(model_mix(h, model_flags(t, i)), t->history);
        if (t->holds && !t->asleep)
            h = model_mix(h, (uint64_t)t->holds << 1 | (t->held == model_newest(t->holds - 1)));
        h = model_mix(h, (uint64_t)t->op.kind << 32 | (uint64_t)t->op.atom << 16 |
                             (uint64_t)t->op.site);
        h = model_hash_view(h, &t->view);
        if (t->op.order & M_WAITED) h = model_hash_view(h, &t->op.view);
        h = model_mix(h, t->waiting.kind);
        if (t->waiting.kind == M_STORE) {
            h = model_mix(model_mix(h, t->waiting.value), (uint64_t)t->waiting.atom);
            h = model_hash_view(h, &t->waiting.view);
        }
        h = model_mix(h, t->late.kind == M_END ? 0 : 1 + (uint64_t)t->late.atom);
        if (t->late.kind != M_END) h = model_mix(h, t->late.value);
    }
    for (int a = 0; a < model.atoms; a++)
        for (int n = world.oldest[a]; n <= world.newest.at[a]; n++) {
            const uint64_t value = model_message_at(a, n)->value;
            h = model_mix(h, model.atom[a].counter ? model_newest(a) - value : value);
            h = model_hash_view(h, &model_message_at(a, n)->view);
        }
    h = model_hash_view(h, &world.seq);
    for (int i = 0; i < model.slots; i++) {
        h = model_mix(h, world.newest.at[M_ATOMS + 2 * i] != 0);
        h = model_hash(h, model.slot[i].at, model.slot[i].size);
    }
    for (int a = 0; model.find_shared && a < model.atoms; a++)
        if (!model.use[a].shared && model.use[a].written)
            h = model_mix(h, model_raw_load(model.atom[a].at, model.atom[a].size));
    if (model.mix_more) h = model.mix_more(h);
    h = model_mix(h, (uint64_t)world.deaths << 16 | (uint64_t)world.spurious << 8 | world.timeouts);
    return h | 1;
}

static model_seen *model_seen_at(uint64_t state) {
    uint64_t i = state >> 3 & (model.seen_size - 1);
    while (model.seen[i].state && model.seen[i].state != state) i = (i + 1) & (model.seen_size - 1);
    return &model.seen[i];
}

static void model_seen_grow(void) {
    uint64_t old_size = model.seen_size;
    model_seen *old = model.seen;
    model.seen_size = old_size ? old_size * 2 : 1 << 14;
    model.seen = (model_seen *)calloc(model.seen_size, sizeof *model.seen);
    if (!model.seen) abort();
    for (uint64_t i = 0; i < old_size; i++)
        if (old[i].state) *model_seen_at(old[i].state) = old[i];
    free(old);
}

/* Preemptions that are left, + 1, to the state as it was met, if thread i moved last. */
static uint64_t model_spare(const model_seen *at, int i) { return at->spare >> 4 * i & 15; }

/* Was a state met from which all could be done that can be now? Who moved last may be another one
   where one preemption more is left. */
static int model_covered(const model_seen *at, uint64_t spare) {
    if (!model.bound) return at->state != 0;
    for (int i = 0; i < M_THREADS; i++)
        if (model_spare(at, i) >= spare + (i != world.last)) return 1;
    return 0;
}

static int model_is_new(uint64_t state) {
    if (model.states >= model.seen_size / 4 * 3) model_seen_grow();
    model_seen *at = model_seen_at(state);
    uint64_t spare = model.bound ? (uint64_t)(model.bound - world.preempted) : 0;
    if (model_covered(at, spare)) return 0;
    model.states += at->state == 0;
    at->state = state;
    for (int i = 0; i < M_THREADS; i++) {
        if (i != world.last && model_can_go(&world.thread[world.last])) continue;
        at->spare &= ~(UINT32_C(15) << 4 * i);
        at->spare |= (uint32_t)spare << 4 * i;
    }
    return 1;
}

/* ---- search ---- */

typedef struct model_level {
    unsigned char *saved;
    size_t size, memory_bytes;
    int moves, next;
    model_move move[M_MOVES];
    /* With model.reduce. own: the first moves, of the thread that goes on, if one does. */
    int own, runs;
    uint64_t state;
    uint32_t sum_before; /* the state was met with fewer preemptions */
    model_uses used;     /* by the last move */
    model_uses own_used; /* by all of the first */
    model_uses rest;     /* what others could do after them while that thread rests */
    model_sum sum;
} model_level;
static model_level model_levels[M_DEPTH];

/* Of messages those that somebody may still read. */
static size_t model_world_bytes(void) {
    size_t bytes = offsetof(model_world, message);
    for (int a = 0; a < model.atoms; a++)
        bytes += (size_t)(world.newest.at[a] - world.oldest[a] + 1) * sizeof(model_message);
    return bytes;
}

static void model_save(model_level *l) {
    l->memory_bytes = model.keep ? model.kept_bytes() : model.memory_bytes;
    size_t need = model_world_bytes() + l->memory_bytes;
    for (int i = 0; i < M_THREADS; i++) need += world.thread[i].stack_used;
    if (l->size < need) {
        free(l->saved);
        l->saved = (unsigned char *)malloc(l->size = need + 1024);
        if (!l->saved) abort();
    }
    unsigned char *to = l->saved;
    memcpy(to, &world, offsetof(model_world, message));
    to += offsetof(model_world, message);
    for (int a = 0; a < model.atoms; a++)
        for (int n = world.oldest[a]; n <= world.newest.at[a]; n++, to += sizeof(model_message))
            memcpy(to, model_message_at(a, n), sizeof(model_message));
    if (model.keep)
        model.keep(to);
    else
        memcpy(to, model.memory, l->memory_bytes);
    to += l->memory_bytes;
    for (int i = 0; i < M_THREADS; i++) {
        uint32_t used = world.thread[i].stack_used;
        if (used) memcpy(to, model.stack[i] + M_STACK - used, used);
        to += used;
    }
}

static void model_restore(const model_level *l) {
    const unsigned char *from = l->saved;
    memcpy(&world, from, offsetof(model_world, message));
    from += offsetof(model_world, message);
    for (int a = 0; a < model.atoms; a++)
        for (int n = world.oldest[a]; n <= world.newest.at[a]; n++, from += sizeof(model_message))
            memcpy(model_message_at(a, n), from, sizeof(model_message));
    if (model.keep)
        model.bring_back(from, l->memory_bytes);
    else
        memcpy(model.memory, from, l->memory_bytes);
    from += l->memory_bytes;
    for (int i = 0; i < M_THREADS; i++) {
        uint32_t used = world.thread[i].stack_used;
        if (used) memcpy(model.stack[i] + M_STACK - used, from, used);
        from += used;
    }
}

/* The set of final states, whatever led there: how many (n), and all of them in one word. */
static struct { uint64_t *at, size, n, all; } model_outcomes;

static uint64_t *model_outcome_at(uint64_t outcome) {
    uint64_t i = outcome & (model_outcomes.size - 1);
    while (model_outcomes.at[i] && model_outcomes.at[i] != outcome)
        i = (i + 1) & (model_outcomes.size - 1);
    return &model_outcomes.at[i];
}

static void model_note_outcome(void) {
    for (int i = 0; i < M_THREADS; i++) { /* nothing is done any more */
        world.thread[i].left = world.thread[i].waited = 0;
        world.thread[i].history = 0;
    }
    uint64_t outcome = model_state(), *old = model_outcomes.at, size = model_outcomes.size;
    if (model_outcomes.n * 2 >= size) {
        model_outcomes.size = size ? size * 2 : 1 << 10;
        model_outcomes.at = (uint64_t *)calloc(model_outcomes.size, sizeof *old);
        if (!model_outcomes.at) abort();
        for (uint64_t i = 0; i < size; i++)
            if (old[i]) *model_outcome_at(old[i]) = old[i];
        free(old);
    }
    if (*model_outcome_at(outcome)) return;
    *model_outcome_at(outcome) = outcome;
    model_outcomes.n++;
    model_outcomes.all += model_mix(5, outcome);
}

/* Newest values into raw memory, and the scenario's last look at it, alone. */
static void model_finish(void) {
    model.ends++;
    model_note_outcome();
    for (int a = 0; a < model.atoms; a++)
        if (!model.find_shared || model.use[a].shared)
            model_raw_store(model.atom[a].at, model.atom[a].size,
                            model_message_at(a, world.newest.at[a])->value);
    if (model.scenario->end) model.scenario->end();
}

static void model_tell(int depth) {
    fprintf(stderr, "%s: %s\n", model.scenario->name, model.failure);
    for (int i = depth < 100 ? 0 : depth - 100; i <= depth; i++) {
        const model_level *l = &model_levels[i];
        const model_move *m = &l->move[l->next - 1];
        int access = m->kind <= M_CAS || m->kind == M_FLUSH;
        fprintf(stderr, "  %3d thread %d %s", i, m->thread, model_kinds[m->kind]);
        if (access || m->kind == M_WAIT || m->kind == M_WAKE)
            fprintf(stderr, " %s", model.atom[m->atom].name);
        if (access || m->kind == M_WAIT) fprintf(stderr, " %llx", (unsigned long long)m->value);
        if (access)
            fprintf(stderr, "  (%s:%d)", model.site[m->site].func, model.site[m->site].line);
        fprintf(stderr, "\n");
    }
}

static void model_begin(const model_scenario *s) {
    memset(&world, 0, sizeof world);
    if (!model.keep) memset(model.memory, 0, model.memory_bytes);
    model.scenario = s;
    model.running = -1;
    model.atoms = model.slots = 0;
    model.failure[0] = 0;
    model.gave_up = 0;
    model.states = model.steps = model.ends = 0;
    if (model_outcomes.at)
        memset(model_outcomes.at, 0, model_outcomes.size * sizeof *model_outcomes.at);
    model_outcomes.n = model_outcomes.all = 0;
    if (model.seen) memset(model.seen, 0, model.seen_size * sizeof *model.seen);
    s->setup();
    for (int i = 0; i < M_THREADS; i++) {
        world.thread[i].waiting.kind = world.thread[i].late.kind = M_END;
        if (!s->body[i]) continue;
        if (!model.stack[i]) model.stack[i] = (char *)malloc(M_STACK);
        if (!model.stack[i]) abort();
        model_start_thread(i);
        world.thread[i].started = i == 0 || s->mortal != i; /* a successor begins after the death */
    }
}

/* Before the search: the thread makes steps alone, at most so many, and sees the newest. Returns
   how many it made. */
__attribute__((unused)) static int model_lead(int thread, int steps) {
    const model_thread *t = &world.thread[thread];
    int n = 0;
    while (n < steps && model_can_go(t) && !model.failure[0]) {
        model_move move[M_MOVES];
        model_push_move(move, 0, thread, 0, 0);
        if (t->op.kind == M_LOAD) move[0].number = world.newest.at[t->op.atom];
        model_do_move(move);
        n++;
    }
    if (t->waiting.kind == M_STORE && !model.failure[0]) {
        model_move move[M_MOVES];
        model_push_move(move, 0, thread, M_FLUSH, 0);
        model_do_move(move);
    }
    return n;
}

__attribute__((unused)) static void model_lead_dies(int thread) {
    model_move move[M_MOVES];
    model_push_move(move, 0, thread, M_KILL, 0);
    if (!model.failure[0]) model_do_move(move);
}

/* The moves of the thread that can go on come first. */
static void model_own_first(model_level *l) {
    int n = 0;
    model_move other[M_MOVES];
    l->own = 0;
    l->runs = world.last;
    for (int i = 0; !model.bound && i < M_THREADS; i++)
        if (model_can_go(&world.thread[M_THREADS - 1 - i])) l->runs = M_THREADS - 1 - i;
    const model_thread *t = &world.thread[l->runs];
    if (!model_can_go(t) || model_is_alike(t) || model_is_free(&l->move[0])) return;
    for (int k = 0; k < l->moves; k++)
        if (l->move[k].thread == l->runs)
            l->move[l->own++] = l->move[k];
        else
            other[n++] = l->move[k];
    memcpy(l->move + l->own, other, (size_t)n * sizeof *other);
}

/* A level for the state that we have come to. Returns 0 if it has no way on. */
static int model_enter(model_level *l, uint64_t state) {
    l->next = l->own = 0;
    l->moves = model_moves(l->move);
    if (model.failure[0]) return 0;
    if (model.reduce) {
        model_seen *at = model_seen_at(state);
        l->state = state;
        l->sum_before = at->sum;
        at->sum = 0;
        memset(&l->own_used, 0, sizeof l->own_used);
        memset(&l->rest, 0, sizeof l->rest);
        memset(&l->sum, 0, sizeof l->sum);
        model_own_first(l);
    }
    if (l->moves > 1) model_save(l);
    return 1;
}

/* Others need not be let in before the step of the thread that goes on. */
static int model_is_needless(model_level *l) {
    if (!model.reduce || !l->own || l->next != l->own || l->next == l->moves) return 0;
    if (model_dependent(&l->own_used, &l->rest) && model_broken != 1) return 0;
    model_add_uses(&l->sum.of[l->runs], &l->rest);
    return 1;
}

/* The level's last move led to where others can do this. */
static void model_came_to(model_level *l, const model_sum *sum) {
    const model_move *m = &l->move[l->next - 1];
    int mover = model_is_free(m) || m->how == M_TIMEOUT ? -1 : m->thread;
    for (int i = 0; i < M_THREADS; i++) {
        if (i == mover) continue;
        model_add_uses(&l->sum.of[i], &l->used);
        model_add_uses(&l->sum.of[i], &sum->of[i]);
    }
    if (l->next > l->own) return;
    model_add_uses(&l->own_used, &l->used);
    model_add_uses(&l->rest, &sum->of[l->runs]);
}

static void model_leave(int depth) {
    model_level *l = &model_levels[depth];
    if (!model.reduce) return;
    if (l->sum_before)
        for (int i = 0; i < M_THREADS; i++)
            model_add_uses(&l->sum.of[i], &model_sums.sum[l->sum_before].of[i]);
    model_seen_at(l->state)->sum = model_sum_number(&l->sum);
    if (depth > 0) model_came_to(l - 1, &l->sum);
}

/* After a step: is there a level below? */
static int model_go_down(int depth) {
    static const model_sum nothing;
    model_level *l = &model_levels[depth];
    l->used = model_used;
    model_forget();
    if (model.failure[0]) return 0;
    uint64_t state = model_state();
    if (!model_is_new(state)) {
        if (!model.reduce) return 0;
        uint32_t sum = model_seen_at(state)->sum;
        model_came_to(l, &model_sums.sum[sum ? sum : 1]);
    } else if (model_all_ended()) {
        model_finish();
        model_seen_at(state)->sum = model_sum_number(&nothing);
        model_came_to(l, &nothing);
    } else if (depth + 1 == M_DEPTH) {
        model_give_up("more steps than this checker can hold", "");
    } else if (model.most_states && model.states > model.most_states) {
        model_give_up("more states than were asked for", "");
    } else {
        return model_enter(l + 1, state);
    }
    return 0;
}

/* Returns 0 if nothing is wrong; loud: show how it went wrong. */
static int model_search(const model_scenario *s, int loud) {
    int depth = 0;
    model_begin(s);
    if (model.lead) model.lead();
    model_forget();
    model_sums_begin();
    if (!model.failure[0]) {
        uint64_t state = model_state();
        model_is_new(state);
        model_enter(&model_levels[0], state);
    }
    if (model.failure[0]) {
        if (loud && !model.found_shared) model_tell(-1);
        return 1;
    }
    while (depth >= 0) {
        model_level *l = &model_levels[depth];
        if (l->next == l->moves || model_is_needless(l)) {
            model_leave(depth--);
            continue;
        }
        if (l->next > 0) model_restore(l); /* else it is what we have come to just now */
        model_count_preemption(&l->move[l->next]);
        model_do_move(&l->move[l->next++]);
        if (model.reduce)
            model_end_step(l->move[l->next - 1].thread, model_is_free(&l->move[l->next - 1]));
        model.steps++;
        depth += model_go_down(depth);
        if (model.failure[0]) {
            if (loud && !model.found_shared) model_tell(depth);
            return 1;
        }
    }
    if (model.ends == 0) model_fail("nothing ever ends");
    if (model.ends == 0 && loud) model_tell(-1);
    return model.ends == 0;
}

/* Try everything. */
static int model_run(const model_scenario *s, int loud) {
    int r;
    if (!model.use_known) memset(model.use, 0, sizeof model.use);
    do {
        model.found_shared = 0;
        r = model_search(s, loud);
    } while (model.found_shared);
    return r;
}
#endif /* MODEL_UNAVAILABLE */
#endif
