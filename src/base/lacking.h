#pragma once
/* tests: system/source/push_threads, compile/macos */
#include "base/system.h"
#include "base/platform.h"
/* ---- what a system lacks: these functions refuse, or do nothing ---- */

#if !DLPI_HAS_SHARING
/* Refuse: the region is then memory of this process alone. */
static int dlpi_memory_file(int *fd, void **at, const char *name, uint64_t bytes, bool huge,
                            const char **call) {
    (void)name, (void)bytes, (void)huge;
    *at = NULL;
    *fd = -1;
    *call = "memfd_create";
    return ENOSYS;
}
static int dlpi_memory_file_fill(int fd, uint64_t bytes) { return (void)fd, (void)bytes, ENOSYS; }
#endif

#if !DLPI_HAS_RING
enum { DLPI_RING_HERE = -1, DLPI_RING_OPEN = 0 };
static int dlpi_ring_setup(dlpi_handle *to, uint32_t n, void *params) {
    *to = -1;
    return (void)n, (void)params, ENOSYS;
}
static bool dlpi_ring_probe(dlpi_handle f, void *probe, uint32_t n) {
    return (void)f, (void)probe, (void)n, false;
}
static int dlpi_ring_enter(dlpi_handle f, uint32_t *queued) {
    return (void)f, (void)queued, ENOSYS;
}
static void dlpi_ring_wait(dlpi_handle f, int timeout_ms) { (void)f, (void)timeout_ms; }
static dlpi_handle dlpi_ring_handle(int fd) { return fd; }
#endif

#if !DLPI_HAS_AFFINITY
static void dlpi_thread_pin(uint32_t cpu) { (void)cpu; }
static int dlpi_cpus_of(int64_t process, dlpi_cpus *to) { return (void)process, (void)to, 0; }
#endif

#if !DLPI_ON_LINUX
static uint64_t dlpi_thread_lock(int64_t process, int64_t thread) {
    return (void)process, (void)thread, 0;
}

/* Go back from the end. */
static const void *dlpi_last_byte(const void *at, int byte, size_t n) {
    const uint8_t *bytes = at;
    while (n > 0)
        if (bytes[--n] == (uint8_t)byte) return bytes + n;
    return NULL;
}
#endif
