#pragma once
/* tests: system/core/pipe_basic, system/core/streams */
#include "base/errors.h"
#include "base/system.h"
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#define DLPI_ASKED_LEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#define DLPI_ASKED_NOMINMAX
#endif
#include <windows.h>
#ifdef DLPI_ASKED_LEAN
#undef DLPI_ASKED_LEAN
#undef WIN32_LEAN_AND_MEAN
#endif
#ifdef DLPI_ASKED_NOMINMAX
#undef DLPI_ASKED_NOMINMAX
#undef NOMINMAX
#endif
#include <fcntl.h>
#include <io.h>
#include <malloc.h>
/* ---------------------------------------------------------------------------------------------
   >>impl-windows    WINDOWS 10 AND LATER
   Files and directories by handles and by names of 16-bit characters, never by the C library's
   descriptors: it lists names in a code page, which loses letters. A handle of Windows has 32 bits
   that count, and so is an int. */

/* ---- errors ---- */

/* Return the errno number of an error of Windows. */
static int dlpi_windows_errno(DWORD error) {
    switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME: return ENOENT;
    case ERROR_ACCESS_DENIED: return EACCES;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: return EEXIST;
    case ERROR_DIRECTORY: return ENOTDIR;
    case ERROR_INVALID_FUNCTION: return EISDIR; /* a directory is read */
    case ERROR_TOO_MANY_OPEN_FILES: return EMFILE;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT: return ENOMEM;
    case ERROR_HANDLE_DISK_FULL:
    case ERROR_DISK_FULL: return ENOSPC;
    case ERROR_SHARING_VIOLATION:
    case ERROR_BUSY: return EBUSY;
    case ERROR_LOCK_VIOLATION:
    case ERROR_IO_PENDING: return EWOULDBLOCK;
    case ERROR_WRITE_PROTECT: return EROFS;
    case ERROR_NO_UNICODE_TRANSLATION: return EILSEQ;
    case ERROR_FILENAME_EXCED_RANGE:
    case ERROR_INSUFFICIENT_BUFFER: return ENAMETOOLONG;
    case ERROR_INVALID_HANDLE: return EBADF;
    default: return EIO;
    }
}
static int dlpi_windows_failed(void) { return dlpi_windows_errno(GetLastError()); }

/* Return 0 if a call went well, else the errno number of its error. */
static int dlpi_windows_rc(BOOL well) { return well ? 0 : dlpi_windows_failed(); }

/* ---- time ---- */

/* Return ns since the start of the system. A counter of less than 1 GHz is scaled without
   overflow. */
static inline uint64_t dlpi_now_ns(void) {
    LARGE_INTEGER count, each;
    QueryPerformanceFrequency(&each);
    QueryPerformanceCounter(&count);
    const uint64_t n = (uint64_t)count.QuadPart, hz = (uint64_t)each.QuadPart;
    return n / hz * 1000000000u + n % hz * 1000000000u / hz;
}
static inline uint64_t dlpi_coarse_ns(void) { return dlpi_now_ns(); }

/* Return ns since 1970 of a time of Windows: 100 ns since 1601. */
static uint64_t dlpi_windows_ns(FILETIME t) {
    const uint64_t n = (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime;
    const uint64_t begin = UINT64_C(116444736000000000);
    return n > begin ? (n - begin) * 100 : 0;
}

static inline uint64_t dlpi_real_ns(void) {
    FILETIME t;
    GetSystemTimePreciseAsFileTime(&t);
    return dlpi_windows_ns(t);
}

static inline uint64_t dlpi_wait_end(uint64_t timeout_ns) {
    return dlpi_now_ns() + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
}

/* Return a time in ms, rounded up, and less than INFINITE. */
static DWORD dlpi_windows_ms(uint64_t ns) {
    const uint64_t ms = ns / 1000000u + (ns % 1000000u != 0);
    return ms < 0x7fffffff ? (DWORD)ms : 0x7fffffff;
}
static void dlpi_sleep(uint64_t ns) { Sleep(dlpi_windows_ms(ns)); }
DLPI_INLINE void dlpi_yield(void) { SwitchToThread(); }

/* ---- threads ---- */

struct dlpi_thread {
    HANDLE at;
};
struct dlpi_mutex {
    SRWLOCK at;
};
struct dlpi_cond {
    CONDITION_VARIABLE at;
};
#define DLPI_MUTEX_INIT \
    { SRWLOCK_INIT }
#define DLPI_COND_INIT \
    { CONDITION_VARIABLE_INIT }

typedef struct dlpi_windows_run { /* what a new thread calls; the thread frees it */
    void *(*run)(void *);
    void *arg;
} dlpi_windows_run;

static DWORD WINAPI dlpi_windows_thread(void *arg) {
    const dlpi_windows_run it = *(dlpi_windows_run *)arg;
    free(arg);
    it.run(it.arg);
    return 0;
}

/* Start a thread; its record lives until the thread has read it. */
static int dlpi_thread_start(dlpi_thread *t, void *(*run)(void *), void *arg,
                             uint64_t stack_bytes) {
    dlpi_windows_run *it = malloc(sizeof *it);
    if (it == NULL) return ENOMEM;
    *it = (dlpi_windows_run){run, arg};
    t->at = CreateThread(NULL, (size_t)stack_bytes, dlpi_windows_thread, it,
                         STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (t->at != NULL) return 0;
    free(it);
    return EAGAIN;
}
static void dlpi_thread_join(const dlpi_thread *t) {
    WaitForSingleObject(t->at, INFINITE);
    CloseHandle(t->at);
}

WINBASEAPI HRESULT WINAPI SetThreadDescription(HANDLE, PCWSTR); /* older headers lack it */

static void dlpi_thread_name(const char *name) {
    wchar_t wide[16];
    if (MultiByteToWideChar(CP_UTF8, 0, name, -1, wide, 16) > 0)
        SetThreadDescription(GetCurrentThread(), wide);
}
static void dlpi_thread_pin(uint32_t cpu) {
    if (cpu < 64) SetThreadAffinityMask(GetCurrentThread(), (DWORD_PTR)1 << cpu);
}
static void dlpi_thread_prompt(void) {}
static uint64_t dlpi_thread_number(void) { return GetCurrentThreadId(); }

DLPI_INLINE void dlpi_mutex_lock(dlpi_mutex *m) { AcquireSRWLockExclusive(&m->at); }
DLPI_INLINE bool dlpi_mutex_try(dlpi_mutex *m) { return TryAcquireSRWLockExclusive(&m->at) != 0; }
DLPI_INLINE void dlpi_mutex_unlock(dlpi_mutex *m) { ReleaseSRWLockExclusive(&m->at); }
DLPI_INLINE void dlpi_cond_wait(dlpi_cond *c, dlpi_mutex *m) {
    SleepConditionVariableSRW(&c->at, &m->at, INFINITE, 0);
}
DLPI_INLINE void dlpi_cond_signal(dlpi_cond *c) { WakeConditionVariable(&c->at); }
DLPI_INLINE void dlpi_cond_broadcast(dlpi_cond *c) { WakeAllConditionVariable(&c->at); }

static void dlpi_cond_begin(dlpi_cond *c) { InitializeConditionVariable(&c->at); }
static void dlpi_cond_end(dlpi_cond *c) { (void)c; }
static bool dlpi_cond_wait_until(dlpi_cond *c, dlpi_mutex *m, uint64_t until) {
    const uint64_t now = dlpi_now_ns();
    return SleepConditionVariableSRW(&c->at, &m->at, dlpi_windows_ms(until > now ? until - now : 0),
                                     0) != 0;
}
static void dlpi_forked_call(void (*call)(void)) { (void)call; } /* there is no fork */

static int dlpi_heavy_register(int shared) { return !shared; }
static int dlpi_heavy_barrier(int shared) {
    if (!shared) FlushProcessWriteBuffers();
    return !shared;
}

/* ---- memory, texts ---- */

static int dlpi_pages(void **at, uint64_t bytes) {
    *at = VirtualAlloc(NULL, (size_t)bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return *at != NULL ? 0 : ENOMEM;
}
static int dlpi_pages_of(void **at, uint64_t bytes, int fd, uint64_t from) {
    (void)fd, (void)from, (void)bytes;
    *at = NULL;
    return ENOSYS;
}
static void dlpi_pages_free(void *at, uint64_t bytes) {
    (void)bytes;
    VirtualFree(at, 0, MEM_RELEASE);
}
static int dlpi_pages_huge(void *at, uint64_t bytes) { return (void)at, (void)bytes, ENOTSUP; }
static void dlpi_page_mark(void *at, uint64_t bytes) { (void)at, (void)bytes; }
static bool dlpi_page_marked(const void *at) { return (void)at, true; }
static void *dlpi_aligned(size_t align, uint64_t bytes) {
    return _aligned_malloc((size_t)bytes, align);
}
static void dlpi_aligned_free(void *at) { _aligned_free(at); }

static bool dlpi_string_alike(const char *a, const char *b, size_t n) {
    return _strnicmp(a, b, n) == 0;
}
static size_t dlpi_string_length(const char *s, size_t most) {
    const char *end = memchr(s, 0, most);
    return end != NULL ? (size_t)(end - s) : most;
}
static char *dlpi_string_copy(const char *s) {
    const size_t n = strlen(s) + 1;
    char *copy = malloc(n);
    return copy != NULL ? memcpy(copy, s, n) : NULL;
}

/* ---- the machine ---- */

static inline int32_t dlpi_process_number(void) { return (int32_t)GetCurrentProcessId(); }
static uint32_t dlpi_user_number(void) { return 0; }
static void dlpi_host_name(char *to, size_t size) {
    DWORD n = (DWORD)size;
    if (!GetComputerNameA(to, &n)) snprintf(to, size, "?");
}
DLPI_INLINE int dlpi_cpu_here(void) { return (int)GetCurrentProcessorNumber(); }
static int dlpi_cpus_online(void) { return (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS); }
static uint64_t dlpi_cpu_quota(void) { return UINT64_MAX; }

/* Ask for the mask of this process: up to 64 CPUs. */
static int dlpi_cpus_of(int64_t process, dlpi_cpus *to) {
    DWORD_PTR mask = 0, all = 0;
    if (process != 0 || !GetProcessAffinityMask(GetCurrentProcess(), &mask, &all)) return 0;
    *to = (dlpi_cpus){.word = {mask}};
    return DLPI_ONES(mask);
}

static int dlpi_cpu_count(void) {
    dlpi_cpus set;
    int n = dlpi_cpus_of(0, &set);
    if (n < 1) n = dlpi_cpus_online();
    return n < 1 ? 1 : n;
}

BOOLEAN NTAPI SystemFunction036(void *to, ULONG n); /* RtlGenRandom, of advapi32 */
static bool dlpi_random(void *to, size_t n) { return SystemFunction036(to, (ULONG)n) != 0; }

/* The system tells a thread's time alone, in its clock's ticks. */
static void dlpi_thread_times(uint64_t *used_ns, uint64_t *waited_ns, uint64_t *sleeps) {
    FILETIME begun, ended, kernel, user;
    (void)waited_ns, (void)sleeps;
    if (used_ns == NULL || !GetThreadTimes(GetCurrentThread(), &begun, &ended, &kernel, &user))
        return;
    *used_ns = ((uint64_t)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime) * 100 +
               ((uint64_t)user.dwHighDateTime << 32 | user.dwLowDateTime) * 100;
}

static uint64_t dlpi_cpu_place(int cpu) { return (uint64_t)cpu; }
static uint64_t dlpi_memory_limit(void) { return UINT64_MAX; }
static uint64_t dlpi_memory_allowed(void) { return UINT64_MAX; }
static uint64_t dlpi_memory_available(void) {
    MEMORYSTATUSEX s = {.dwLength = sizeof s};
    return GlobalMemoryStatusEx(&s) ? s.ullAvailPhys : UINT64_MAX;
}
static int64_t dlpi_process_parent(int64_t process) { return (void)process, 0; }
static bool dlpi_process_began_with(int64_t process, const char *entry) {
    return (void)process, (void)entry, false;
}

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
static void *dlpi_library(const char *name, const char **why) {
    HMODULE library = LoadLibraryA(name);
    *why = library == NULL ? "LoadLibrary does not find it" : NULL;
    return (void *)library;
}
static void *dlpi_library_symbol(void *library, const char *name) {
    FARPROC f = GetProcAddress((HMODULE)library, name);
    void *symbol;
    memcpy(&symbol, &f, sizeof symbol);
    return symbol;
}
#endif

/* ---- files ---- */

static HANDLE dlpi_windows_handle(dlpi_handle f) { return (HANDLE)(intptr_t)f; }
static uint64_t dlpi_fd_limit(void) { return UINT64_MAX; }
static bool dlpi_file_may_be(uint64_t bytes) { return (void)bytes, true; }
static dlpi_handle dlpi_handle_from(int fd) { return (dlpi_handle)_get_osfhandle(fd); }

/* The descriptor has a handle of its own, so that it can be closed. */
static int dlpi_handle_to(int *fd, dlpi_handle f) {
    HANDLE own, process = GetCurrentProcess();
    if (!DuplicateHandle(process, dlpi_windows_handle(f), process, &own, 0, FALSE,
                         DUPLICATE_SAME_ACCESS))
        return dlpi_windows_failed();
    *fd = _open_osfhandle((intptr_t)own, _O_BINARY);
    if (*fd >= 0) return 0;
    CloseHandle(own);
    return EMFILE;
}
static void dlpi_handle_to_end(int fd) { _close(fd); }

typedef struct dlpi_windows_path {
    wchar_t at[DLPI_PATH_MAX + 8];
} dlpi_windows_path;

/* Write a UTF-8 path as Windows wants it. A long path is made absolute, and gets \\?\ in front,
   without which it may have 259 characters. Returns 0, EILSEQ or ENAMETOOLONG. */
static int dlpi_windows_path_of(dlpi_windows_path *to, const char *path) {
    static const wchar_t local[] = L"\\\\?\\", remote[] = L"\\\\?\\UNC\\";
    dlpi_windows_path whole;
    DWORD n;
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, to->at, DLPI_PATH_MAX) == 0)
        return dlpi_windows_failed();
    if (wcslen(to->at) < 248 || wcsncmp(to->at, local, 4) == 0) return 0;
    n = GetFullPathNameW(to->at, DLPI_PATH_MAX, whole.at, NULL);
    if (n == 0 || n >= DLPI_PATH_MAX) return ENAMETOOLONG;
    if (wcsncmp(whole.at, L"\\\\", 2) == 0) {
        wcscpy(to->at, remote);
        wcscat(to->at, whole.at + 2);
    } else {
        wcscpy(to->at, local);
        wcscat(to->at, whole.at);
    }
    return 0;
}

/* Open a path, also of a directory. what: GENERIC_READ and so on. */
static int dlpi_windows_open(dlpi_handle *to, const char *path, DWORD what, DWORD how,
                             DWORD flags) {
    dlpi_windows_path wide;
    const int rc = dlpi_windows_path_of(&wide, path);
    HANDLE f;
    *to = -1;
    if (rc != 0) return rc;
    f = CreateFileW(wide.at, what, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    how, FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
    if (f == INVALID_HANDLE_VALUE) return dlpi_windows_failed();
    *to = (dlpi_handle)(intptr_t)f;
    return 0;
}

static int dlpi_handle_close(dlpi_handle f) {
    return f == -1 ? 0 : dlpi_windows_rc(CloseHandle(dlpi_windows_handle(f)));
}

/* A pipe or a console has no facts, and is another kind of file. */
static int dlpi_handle_facts(dlpi_handle f, dlpi_facts *to) {
    BY_HANDLE_FILE_INFORMATION st;
    HANDLE h = dlpi_windows_handle(f);
    *to = (dlpi_facts){.bytes = 0};
    if (GetFileType(h) == FILE_TYPE_PIPE || GetFileType(h) == FILE_TYPE_CHAR) return 0;
    if (!GetFileInformationByHandle(h, &st)) return dlpi_windows_failed();
    to->bytes = (uint64_t)st.nFileSizeHigh << 32 | st.nFileSizeLow;
    to->changed_ns = dlpi_windows_ns(st.ftLastWriteTime);
    to->volume = st.dwVolumeSerialNumber;
    to->number = (uint64_t)st.nFileIndexHigh << 32 | st.nFileIndexLow;
    to->links = st.nNumberOfLinks;
    to->kind = st.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT ? DLPI_IS_LINK
               : st.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY   ? DLPI_IS_DIRECTORY
                                                                  : DLPI_IS_FILE;
    return 0;
}

/* Look at a path by a handle that may neither read nor write. A reparse point that is followed is
   told as what it leads to. */
static int dlpi_path_facts(const char *path, bool follow, dlpi_facts *to) {
    dlpi_handle f;
    int rc = dlpi_windows_open(&f, path, FILE_READ_ATTRIBUTES, OPEN_EXISTING,
                               follow ? 0 : FILE_FLAG_OPEN_REPARSE_POINT);
    *to = (dlpi_facts){.bytes = 0};
    if (rc == 0) rc = dlpi_handle_facts(f, to);
    dlpi_handle_close(f);
    return rc;
}

/* Write the path up to its last slash of either kind, or ".". */
static void dlpi_directory_of(char *dir, const char *path) {
    size_t n = strlen(path);
    dlpi_copy_text(dir, DLPI_PATH_MAX, path);
    while (n > 0 && path[n - 1] != '/' && path[n - 1] != '\\') n--;
    if (n == 0)
        dlpi_copy_text(dir, DLPI_PATH_MAX, ".");
    else if (n <= DLPI_PATH_MAX)
        dir[n == 1 || path[n - 2] == ':' ? n : n - 1] = 0;
}

/* Open a file. Links are not followed if `how` says so. */
static int dlpi_handle_open(dlpi_handle *to, const char *path, unsigned how) {
    const DWORD what = (how & DLPI_READ || !(how & DLPI_WRITE) ? GENERIC_READ : 0) |
                       (how & DLPI_WRITE ? GENERIC_WRITE : 0);
    const DWORD begin = how & DLPI_NEW   ? CREATE_NEW
                        : how & DLPI_CUT ? TRUNCATE_EXISTING
                                         : OPEN_EXISTING;
    dlpi_facts st;
    int rc = dlpi_windows_open(to, path, what, begin,
                               how & DLPI_NO_LINK ? FILE_FLAG_OPEN_REPARSE_POINT : 0);
    if (rc != 0 || !(how & DLPI_NO_LINK)) return rc;
    rc = dlpi_handle_facts(*to, &st);
    if (rc == 0 && st.kind != DLPI_IS_LINK) return 0;
    dlpi_handle_close(*to);
    *to = -1;
    return rc != 0 ? rc : ELOOP;
}

static OVERLAPPED dlpi_windows_at(uint64_t at) {
    OVERLAPPED o = {0};
    o.Offset = (DWORD)at;
    o.OffsetHigh = (DWORD)(at >> 32);
    return o;
}

/* Read piece by piece: a call reads less than 4 GiB. */
static int dlpi_handle_read(dlpi_handle f, void *to, uint64_t n, uint64_t at, uint64_t *got) {
    for (*got = 0; *got < n;) {
        const DWORD rest = n - *got < (1u << 30) ? (DWORD)(n - *got) : 1u << 30;
        OVERLAPPED o = dlpi_windows_at(at + *got);
        DWORD k = 0, error;
        if (!ReadFile(dlpi_windows_handle(f), (uint8_t *)to + *got, rest, &k, &o)) {
            error = GetLastError();
            return error == ERROR_HANDLE_EOF || error == ERROR_BROKEN_PIPE
                       ? 0
                       : dlpi_windows_errno(error);
        }
        if (k == 0) return 0;
        *got += k;
    }
    return 0;
}

static void dlpi_handle_advise(dlpi_handle f, uint64_t at, uint64_t n, int advice) {
    (void)f, (void)at, (void)n, (void)advice;
}

/* The view keeps the mapping. */
static int dlpi_handle_map(dlpi_handle f, uint64_t bytes, const uint8_t **at) {
    HANDLE map = CreateFileMappingW(dlpi_windows_handle(f), NULL, PAGE_READONLY, 0, 0, NULL);
    int rc = 0;
    *at = NULL;
    if (map == NULL) return dlpi_windows_failed();
    *at = MapViewOfFile(map, FILE_MAP_READ, 0, 0, (size_t)bytes);
    if (*at == NULL) rc = dlpi_windows_failed();
    CloseHandle(map);
    return rc;
}
static void dlpi_handle_unmap(const uint8_t *at, uint64_t bytes) {
    (void)bytes;
    UnmapViewOfFile(at);
}
static void dlpi_handle_map_again(dlpi_handle f, const uint8_t *at, uint64_t bytes) {
    (void)f, (void)at, (void)bytes;
}

static void dlpi_mapping_advise(const uint8_t *map, uint64_t at, uint64_t n, int advice) {
    WIN32_MEMORY_RANGE_ENTRY range = {(void *)(uintptr_t)(map + at), (size_t)n};
    if (advice == DLPI_WILL_NEED) PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}
static int dlpi_mapping_load(const uint8_t *map, uint64_t at, uint64_t n) {
    return (void)map, (void)at, (void)n, ENOTSUP;
}
static bool dlpi_handle_is_here(dlpi_handle f, const uint8_t *map, uint64_t at) {
    return (void)f, (void)map, (void)at, true;
}
static uint64_t dlpi_handle_data(dlpi_handle f, uint64_t at) { return (void)f, at; }
static int dlpi_handle_become(dlpi_handle f, dlpi_handle as) {
    (void)f;
    dlpi_handle_close(as);
    return ENOTSUP;
}

/* Write piece by piece, as a read. */
static int dlpi_handle_write(dlpi_handle f, const void *from, uint64_t n, uint64_t at) {
    for (uint64_t done = 0; done < n;) {
        const DWORD rest = n - done < (1u << 30) ? (DWORD)(n - done) : 1u << 30;
        OVERLAPPED o = dlpi_windows_at(at + done);
        DWORD k = 0;
        if (!WriteFile(dlpi_windows_handle(f), (const uint8_t *)from + done, rest, &k,
                       at == UINT64_MAX ? NULL : &o))
            return dlpi_windows_failed();
        if (k == 0) return EIO;
        done += k;
    }
    return 0;
}

static int dlpi_handle_cut(dlpi_handle f) {
    const LARGE_INTEGER begin = {.QuadPart = 0};
    HANDLE h = dlpi_windows_handle(f);
    return dlpi_windows_rc(SetFilePointerEx(h, begin, NULL, FILE_BEGIN) && SetEndOfFile(h));
}
static int dlpi_handle_sync(dlpi_handle f) {
    return dlpi_windows_rc(FlushFileBuffers(dlpi_windows_handle(f)));
}

/* Lock a byte that no file has: the locks of Windows keep others from reading what is locked. */
static int dlpi_handle_lock(dlpi_handle f, bool wait) {
    OVERLAPPED o = dlpi_windows_at(UINT64_C(1) << 62);
    const DWORD how = LOCKFILE_EXCLUSIVE_LOCK | (wait ? 0 : LOCKFILE_FAIL_IMMEDIATELY);
    return dlpi_windows_rc(LockFileEx(dlpi_windows_handle(f), how, 0, 1, 0, &o));
}
static void dlpi_handle_unlock(dlpi_handle f) {
    OVERLAPPED o = dlpi_windows_at(UINT64_C(1) << 62);
    UnlockFileEx(dlpi_windows_handle(f), 0, 1, 0, &o);
}

static int dlpi_path_rename(const char *from, const char *to) {
    dlpi_windows_path a, b;
    int rc = dlpi_windows_path_of(&a, from);
    if (rc == 0) rc = dlpi_windows_path_of(&b, to);
    return rc != 0 ? rc : dlpi_windows_rc(MoveFileExW(a.at, b.at, MOVEFILE_REPLACE_EXISTING));
}
static int dlpi_path_remove(const char *path) {
    dlpi_windows_path wide;
    const int rc = dlpi_windows_path_of(&wide, path);
    return rc != 0 ? rc : dlpi_windows_rc(DeleteFileW(wide.at));
}
static int dlpi_directory_sync(const char *path) { return (void)path, 0; }

/* Call each for the names that were found, as UTF-8. */
static int dlpi_windows_names(HANDLE list, WIN32_FIND_DATAW *found,
                              int (*each)(void *user, const char *name), void *user,
                              const char **call) {
    char name[4 * MAX_PATH];
    int rc = 0;
    do {
        const wchar_t *wide = found->cFileName;
        if (wcscmp(wide, L".") == 0 || wcscmp(wide, L"..") == 0) continue;
        if (WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, name, sizeof name, NULL,
                                NULL) == 0) {
            *call = "read";
            return dlpi_windows_failed();
        }
        rc = each(user, name);
    } while (rc == 0 && FindNextFileW(list, found));
    if (rc != 0 || GetLastError() == ERROR_NO_MORE_FILES) return rc;
    *call = "read";
    return dlpi_windows_failed();
}

/* Find all names of the directory. */
static int dlpi_directory_list(const char *path, int (*each)(void *user, const char *name),
                               void *user, const char **call) {
    WIN32_FIND_DATAW found;
    dlpi_windows_path wide;
    HANDLE list;
    char all[DLPI_PATH_MAX];
    int rc;
    *call = "open";
    if ((size_t)snprintf(all, sizeof all, "%s\\*", path) >= sizeof all) return ENAMETOOLONG;
    if ((rc = dlpi_windows_path_of(&wide, all)) != 0) return rc;
    list = FindFirstFileW(wide.at, &found);
    if (list == INVALID_HANDLE_VALUE) return dlpi_windows_failed();
    *call = NULL;
    rc = dlpi_windows_names(list, &found, each, user, call);
    FindClose(list);
    return rc;
}
#endif
