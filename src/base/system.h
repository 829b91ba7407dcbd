#pragma once
/* tests: system/core/pipe_fault, compile/matrix */
#include "api/base.h"
#include "api/ranks.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-system     WHAT IS ASKED OF THE OPERATING SYSTEM
   Only base/ knows the operating system. The rest asks for the functions that stand here.
   system_posix.h and linux.h or darwin.h define them, and lacking.h those that a system lacks. A
   function that can fail returns 0 or an errno number, and does not set errno. */

#include <stdbool.h>

/* ---- the system, and what it has ---- */

#if defined(__APPLE__)
#define DLPI_SYSTEM "macOS"
#define DLPI_ON_LINUX 0
#elif defined(_WIN32)
#define DLPI_SYSTEM "Windows"
#define DLPI_ON_LINUX 0
#else
#define DLPI_SYSTEM "Linux"
#define DLPI_ON_LINUX 1
#endif

#ifdef DLPIPE_THREADS_ONLY /* see >>options */
#define DLPI_HAS_SHARING 0
#else
#define DLPI_HAS_SHARING DLPI_ON_LINUX /* processes may share memory */
#endif
#ifdef DLPIPE_PORTABLE_WAIT /* see >>options */
#define DLPI_PORTABLE_WAIT 1
#else
#define DLPI_PORTABLE_WAIT !DLPI_ON_LINUX
#endif
#ifndef DLPI_HAS_RING               /* on Linux a test may define these two */
#define DLPI_HAS_RING DLPI_ON_LINUX /* io_uring */
#ifdef _WIN32
#define DLPI_HAS_AFFINITY 1 /* a thread may be bound to a CPU */
#else
#define DLPI_HAS_AFFINITY DLPI_ON_LINUX
#endif
#endif

/* ---- time, in ns ---- */

static uint64_t dlpi_now_ns(void);    /* monotonic */
static uint64_t dlpi_coarse_ns(void); /* monotonic; moves in clock ticks, and costs little */
static uint64_t dlpi_real_ns(void);   /* since 1970 */
static void dlpi_sleep(uint64_t ns);
static void dlpi_yield(void);

/* ---- threads ---- */

typedef struct dlpi_thread dlpi_thread;
typedef struct dlpi_mutex dlpi_mutex; /* begins as DLPI_MUTEX_INIT, and needs no end */
typedef struct dlpi_cond dlpi_cond;   /* begins as DLPI_COND_INIT, and needs no end */

/* Start a thread that calls run(arg); its result is not used. stack_bytes: 0 means the default. */
static int dlpi_thread_start(dlpi_thread *t, void *(*run)(void *), void *arg, uint64_t stack_bytes);
static void dlpi_thread_join(const dlpi_thread *t);
static void dlpi_thread_name(const char *name); /* of the caller; 15 bytes are kept */
static void dlpi_thread_pin(uint32_t cpu);      /* the caller runs on this CPU alone, if it can */
static void dlpi_thread_prompt(void);     /* the caller's sleeps end within 1 us of their time */
static uint64_t dlpi_thread_number(void); /* of the caller, for people */
static void dlpi_mutex_lock(dlpi_mutex *m);
static bool dlpi_mutex_try(dlpi_mutex *m); /* false: another thread has it */
static void dlpi_mutex_unlock(dlpi_mutex *m);
static void dlpi_cond_wait(dlpi_cond *c, dlpi_mutex *m);
static void dlpi_cond_signal(dlpi_cond *c);
static void dlpi_cond_broadcast(dlpi_cond *c);

#if DLPI_PORTABLE_WAIT
/* A condition whose waits end. It begins and ends by calls. */
static void dlpi_cond_begin(dlpi_cond *c);
static void dlpi_cond_end(dlpi_cond *c);
static bool dlpi_cond_wait_until(dlpi_cond *c, dlpi_mutex *m, uint64_t until); /* false: too late */

static void dlpi_forked_call(void (*call)(void)); /* from now on, in each child of a fork */
#endif

/* ---- to sleep on a word ---- */

/* Sleep while *word is `expect`, until it is woken by one of these bits. Words are plain uint32_t.
   The waker changes the word before it wakes, so that a sleeper that has not slept yet sees another
   value than it expects. A sleep may end without a cause. shared: the waker may be another process.
   Returns 1 if timeout_ns are over, else 0. Keeps errno. */
static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared);
static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared);

/* The heavy barrier makes every other participant's LT1 or LH1 visible (>>impl-queues). The thread
   that goes to sleep pays for it. register: let this process take part. Both return 0 if the system
   has no such barrier or refuses it, else 1. */
static int dlpi_heavy_register(int shared);
static int dlpi_heavy_barrier(int shared);

/* ---- memory ---- */

static int dlpi_pages(void **at, uint64_t bytes); /* zeros */
static void dlpi_pages_free(void *at, uint64_t bytes);
static int dlpi_pages_huge(void *at, uint64_t bytes);    /* ask for huge pages */
static void *dlpi_aligned(size_t align, uint64_t bytes); /* NULL: none */
static void dlpi_aligned_free(void *at);

/* Mark a page of zeros as this process's; has it a mark of this process? A child that is forked
   later finds that it has none. An old system may not do it. */
static void dlpi_page_mark(void *at, uint64_t bytes);
static bool dlpi_page_marked(const void *at);

/* Map memory of a file that processes share, from byte `from` on, for reading and writing. */
static int dlpi_pages_of(void **at, uint64_t bytes, int fd, uint64_t from);

/* Map a new file of zeros in memory, whose size cannot change. huge: it has huge pages.
   *fd: the file; -1: none. *call: the call that failed. */
static int dlpi_memory_file(int *fd, void **at, const char *name, uint64_t bytes, bool huge,
                            const char **call);

/* Take all memory of such a file now. Else a process could be killed later for want of memory. */
static int dlpi_memory_file_fill(int fd, uint64_t bytes);

/* ---- texts and bytes, where ISO C has no call ---- */

static char *dlpi_string_copy(const char *s); /* to be freed; NULL: no memory */
static bool dlpi_string_alike(const char *a, const char *b, size_t n); /* but for capital letters */
static size_t dlpi_string_length(const char *s, size_t most);
static const void *dlpi_last_byte(const void *at, int byte, size_t n); /* NULL: it is not there */

/* ---- the machine ---- */

typedef struct dlpi_cpus { /* a set of CPUs */
    uint64_t word[DLP_MAX_CPUS / 64];
} dlpi_cpus;

static int32_t dlpi_process_number(void);
static uint32_t dlpi_user_number(void);
static void dlpi_host_name(char *to, size_t size);
static int dlpi_cpu_here(void); /* -1: not known */
static int dlpi_cpus_online(void);
static int dlpi_cpu_count(void);         /* CPUs that this process may use at once, at least 1 */
static uint64_t dlpi_cpu_quota(void);    /* UINT64_MAX: no limit is known */
static uint64_t dlpi_cpu_place(int cpu); /* sorts CPUs: a core's and a socket's lie together */
static bool dlpi_random(void *to, size_t n); /* false: not now */

/* Bytes; UINT64_MAX: not known. limit: of what this process may have; allowed: what the limit
   leaves; available: what the system has left. */
static uint64_t dlpi_memory_limit(void);
static uint64_t dlpi_memory_allowed(void);
static uint64_t dlpi_memory_available(void);

/* Write which CPUs a process may use, and return how many; 0: not known. process: 0 means this. */
static int dlpi_cpus_of(int64_t process, dlpi_cpus *to);

/* Read ns that the calling thread used a core, ns that it was ready to run while others had the
   cores, and its sleeps. NULL: not asked for. What the system does not tell stays. */
static void dlpi_thread_times(uint64_t *used_ns, uint64_t *waited_ns, uint64_t *sleeps);

/* Return the address of the lock for which a thread of a process sleeps; 0: none, or not known. */
static uint64_t dlpi_thread_lock(int64_t process, int64_t thread);

static int64_t dlpi_process_parent(int64_t process); /* of 0: of this process; 0: not known */
static bool dlpi_process_began_with(int64_t process, const char *entry); /* in its environment */

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
static void *dlpi_library(const char *name, const char **why); /* NULL: why says the reason */
static void *dlpi_library_symbol(void *library, const char *name);
#endif

/* ---- files ---- */

#define DLPI_PATH_MAX 4096 /* bytes of a path, at most */

/* Bytes that stand between the names of a path. On Windows no name has a backslash. */
#ifdef _WIN32
#define DLPI_SLASHES "/\\"
#else
#define DLPI_SLASHES "/"
#endif
DLPI_INLINE bool dlpi_is_slash(char c) {
    return c == '/' || (sizeof DLPI_SLASHES > 2 && c == '\\');
}

typedef int dlpi_handle; /* an open file or directory; -1: none */

enum { DLPI_IS_OTHER, DLPI_IS_FILE, DLPI_IS_DIRECTORY, DLPI_IS_LINK };
typedef struct dlpi_facts {
    uint64_t bytes, changed_ns, volume, number, links;
    uint32_t kind, owner;
    bool all_may_write;
} dlpi_facts;

/* How a file is opened: to read, to write, as a new file, cut to no bytes, not through a link, and
   a new file for this user alone. */
enum {
    DLPI_READ = 1,
    DLPI_WRITE = 2,
    DLPI_NEW = 4,
    DLPI_CUT = 8,
    DLPI_NO_LINK = 16,
    DLPI_OWN = 32
};
enum { DLPI_AS_USUAL, DLPI_AT_RANDOM, DLPI_IN_ORDER, DLPI_WILL_NEED }; /* how it is read */

/* Open above descriptor 2, not inherited. Only DLPI_CUT may wait for the other end of a pipe. */
static int dlpi_handle_open(dlpi_handle *to, const char *path, unsigned how);
static dlpi_handle dlpi_handle_from(int fd); /* of a descriptor of the C library; borrowed */

/* Give the user's code a descriptor of the C library for a file, until to_end. */
static int dlpi_handle_to(int *fd, dlpi_handle f);
static void dlpi_handle_to_end(int fd);
static int dlpi_handle_close(dlpi_handle f); /* -1: nothing is done */
static int dlpi_handle_facts(dlpi_handle f, dlpi_facts *to);
static int dlpi_path_facts(const char *path, bool follow, dlpi_facts *to);
static void dlpi_directory_of(char *dir, const char *path); /* dir: DLPI_PATH_MAX bytes */

/* Read n bytes from byte `at` on. *got: bytes that were read, also before a failure; fewer than n
   without a failure: the file ends. */
static int dlpi_handle_read(dlpi_handle f, void *to, uint64_t n, uint64_t at, uint64_t *got);
static void dlpi_handle_advise(dlpi_handle f, uint64_t at, uint64_t n, int advice); /* n 0: all */
static int dlpi_handle_map(dlpi_handle f, uint64_t bytes, const uint8_t **at);      /* to read it */
static void dlpi_handle_unmap(const uint8_t *at, uint64_t bytes);

/* Advise for n bytes of a mapping from `at` on, from the beginning of a page. */
static void dlpi_mapping_advise(const uint8_t *map, uint64_t at, uint64_t n, int advice);
static int dlpi_mapping_load(const uint8_t *map, uint64_t at,
                             uint64_t n); /* wait until it is there */

/* True if a byte is in memory, or if the system does not say. map: used if there is no handle. */
static bool dlpi_handle_is_here(dlpi_handle f, const uint8_t *map, uint64_t at);

/* Rings of io_uring. params, probe: the kernel's records. enter: *queued falls by the requests that
   the kernel takes. wait: until there is a completion. */
static int dlpi_ring_setup(dlpi_handle *to, uint32_t n, void *params);
static bool dlpi_ring_probe(dlpi_handle f, void *probe, uint32_t n);
static int dlpi_ring_enter(dlpi_handle f, uint32_t *queued);
static void dlpi_ring_wait(dlpi_handle f, int timeout_ms);

/* Return the file that a ring has opened, ready to be read by the ring, or -errno. */
static dlpi_handle dlpi_ring_handle(int fd);

/* Return the next byte from `at` on that is not in a hole; `at` if the system does not say;
   UINT64_MAX if nothing but a hole follows. */
static uint64_t dlpi_handle_data(dlpi_handle f, uint64_t at);

/* Let f be what `as` is, and close it. Let a mapping be one of f at the same place. */
static int dlpi_handle_become(dlpi_handle f, dlpi_handle as);
static void dlpi_handle_map_again(dlpi_handle f, const uint8_t *at, uint64_t bytes);

/* Call each(user, name) for the names of a directory, in any order, but not for "." and "..". Ends
   with what `each` returns, if that is not 0. *call: the call that failed, or NULL. */
static int dlpi_directory_list(const char *path, int (*each)(void *user, const char *name),
                               void *user, const char **call);

/* Write all n bytes from byte `at` on; UINT64_MAX: behind what was written, also into a pipe. */
static int dlpi_handle_write(dlpi_handle f, const void *from, uint64_t n, uint64_t at);
static int dlpi_handle_cut(dlpi_handle f);             /* to no bytes */
static int dlpi_handle_sync(dlpi_handle f);            /* its bytes are on disk */
static int dlpi_handle_lock(dlpi_handle f, bool wait); /* EWOULDBLOCK: another has the lock */
static void dlpi_handle_unlock(dlpi_handle f);
static int dlpi_path_rename(const char *from, const char *to); /* in place of a file `to` */
static int dlpi_path_remove(const char *path);
static int dlpi_directory_sync(const char *path); /* renames in it are on disk */
