/* What tests want of the system, on Windows: posix.h includes this in place of its headers. */
#ifndef WINDOWS_RIG_H
#define WINDOWS_RIG_H

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#undef near
#undef far
#undef small
#undef interface

#include <direct.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <io.h>
#include <limits.h>
#include <process.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sanitizers.h"

#define LONG test_long  /* a name of a type there, which tests give to numbers */
#define SIGKILL SIGABRT /* no test is killed here */
static inline int kill(int process, int sign) { return (void)process, raise(sign); }

/* ---- time ---- */

static inline uint64_t test_now_ns(void) {
    LARGE_INTEGER count, each;
    QueryPerformanceFrequency(&each);
    QueryPerformanceCounter(&count);
    return (uint64_t)((double)count.QuadPart * 1e9 / (double)each.QuadPart);
}
static inline void test_pause(uint64_t ns) { Sleep((DWORD)((ns + 999999u) / 1000000u)); }

#define poll(fds, n, ms) ((void)(fds), Sleep((DWORD)(ms)), 0) /* as a sleep */
static inline int pause(void) { return Sleep(INFINITE), 0; }

/* ---- processes, of which there is one: what they would share is memory as any ---- */

#define TEST_PROCESSES 0
#define TEST_FORKS 0
#define PROT_READ 1 /* the numbers of mprotect in libgcc */
#define PROT_WRITE 2
int mprotect(void *at, size_t bytes, int may);
#define MAP_SHARED 0
#define MAP_PRIVATE 0
#define MAP_ANONYMOUS 0
#define MAP_FAILED NULL

static inline void *test_map(size_t bytes) {
    return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
#define mmap(at, bytes, may, how, file, from) test_map(bytes)
static inline int munmap(void *at, size_t bytes) {
    return (void)bytes, VirtualFree(at, 0, MEM_RELEASE) ? 0 : -1;
}

/* ---- files ---- */

enum { TEST_PATH = 2048 };

/* Write a UTF-8 path as Windows wants it, absolute and with \\?\ in front. Returns L"" if it is
   none. */
static inline const wchar_t *test_wide(wchar_t *to, const char *path) {
    wchar_t wide[TEST_PATH];
    DWORD n;
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, TEST_PATH) == 0) return L"";
    wcscpy(to, L"\\\\?\\");
    n = GetFullPathNameW(wide, TEST_PATH - 4, to + 4, NULL);
    return n > 0 && n < TEST_PATH - 4 ? to : L"";
}
/* Write at an offset; the place of the descriptor moves. */
static inline int64_t pwrite(int fd, const void *from, size_t n, int64_t at) {
    return _lseeki64(fd, at, SEEK_SET) != at ? -1 : _write(fd, from, (unsigned)n);
}
static inline void *memmem(const void *in, size_t bytes, const void *what, size_t n) {
    for (size_t i = 0; i + n <= bytes; i++)
        if (memcmp((const char *)in + i, what, n) == 0) return (char *)(uintptr_t)in + i;
    return NULL;
}
static inline int test_mkdir(const char *path) {
    wchar_t wide[TEST_PATH];
    return CreateDirectoryW(test_wide(wide, path), NULL) ? 0 : -1;
}
static inline FILE *test_fopen(const char *path, const char *mode) {
    wchar_t wide[TEST_PATH], how[8];
    MultiByteToWideChar(CP_UTF8, 0, mode, -1, how, 8);
    return _wfopen(test_wide(wide, path), how);
}
#define mkdir(path, mode) test_mkdir(path)
#define fopen test_fopen

static inline int test_set_time(const char *path, long seconds) {
    wchar_t wide[TEST_PATH];
    const uint64_t t = ((uint64_t)seconds + UINT64_C(11644473600)) * 10000000u; /* since 1601 */
    const FILETIME time = {(DWORD)t, (DWORD)(t >> 32)};
    HANDLE f =
        CreateFileW(test_wide(wide, path), FILE_WRITE_ATTRIBUTES, 7, NULL, OPEN_EXISTING, 0, NULL);
    const BOOL set = f != INVALID_HANDLE_VALUE && SetFileTime(f, NULL, NULL, &time);
    if (f != INVALID_HANDLE_VALUE) CloseHandle(f);
    return set ? 0 : -1;
}

/* Remove a folder of a test with all that is in it. path: room for TEST_PATH characters. */
static inline bool test_remove_wide(wchar_t *path) {
    WIN32_FIND_DATAW found;
    const size_t n = wcslen(path);
    HANDLE list;
    if (n + MAX_PATH + 3 > TEST_PATH) return false;
    wcscpy(path + n, L"\\*");
    if ((list = FindFirstFileW(path, &found)) == INVALID_HANDLE_VALUE) return false;
    do {
        if (wcscmp(found.cFileName, L".") == 0 || wcscmp(found.cFileName, L"..") == 0) continue;
        wcscpy(path + n + 1, found.cFileName);
        if (!(found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
            DeleteFileW(path);
        else if (!(found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
            test_remove_wide(path);
    } while (FindNextFileW(list, &found));
    FindClose(list);
    path[n] = 0;
    return RemoveDirectoryW(path) != 0;
}

/* Remove what mkdtemp has made. The command rmdir of Wine loses its way in long paths, and removes
   the working directory. */
static inline bool test_remove(const char *path) {
    wchar_t wide[TEST_PATH];
    if (strncmp(path, "/tmp/dlpipe-", 12) != 0 || test_wide(wide, path) != wide) return false;
    return test_remove_wide(wide);
}

/* Make a folder whose name ends in a number of its own. */
static inline char *mkdtemp(char *path) {
    char *end = path + strlen(path) - 6;
    for (unsigned i = 0; i < 1000000; i++) {
        snprintf(end, 7, "%06u", (unsigned)(GetCurrentProcessId() * 7919u + i) % 1000000u);
        if (CreateDirectoryA(path, NULL)) return path;
    }
    return NULL;
}

#define lstat stat /* a link is made by nobody here */

static inline int setenv(const char *name, const char *value, int over) {
    return over || getenv(name) == NULL ? _putenv_s(name, value) : 0;
}
static inline int unsetenv(const char *name) { return _putenv_s(name, ""); }

#endif
