/* A small pipe, built by the header itself, under the checker of model.h. Included instead of
   ../../dlpipe.h.

   The pipe's private records and its region are pages that are written only between a level of the
   search and the next: a page is kept from its first write on. Words that order others are listed
   as places of the checker; all other memory (statistics, clocks, indices, records of rows) is as
   it is at the moment, which is right as long as the checks of slots' fields and rows below find
   no race. */
#ifndef MODEL_SLOTS_H
#define MODEL_SLOTS_H

#define MODEL_THREADS 5
#define MODEL_ATOMS 48
#define MODEL_SLOTS 16
#define MODEL_MESSAGES 20
#define MODEL_SITES 256
#define MODEL_HEADER "model_slots_header.h"

#undef _FORTIFY_SOURCE
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *arena_take(size_t n, size_t size);
static void arena_free(void *at) { (void)at; }
static int no_thread(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
    (void)a, (void)f, (void)arg;
    memset(t, 0, sizeof *t);
    return 0;
}

#include "model.h"

enum { PAGE = 4096, ARENA = 1 << 20, PAGES = 4096 };
static _Alignas(PAGE) unsigned char arena[ARENA];
static size_t arena_used;

static void *arena_take(size_t n, size_t size) {
    size_t bytes = (n * size + 127) & ~(size_t)127;
    void *at = arena + arena_used;
    if (arena_used + bytes > sizeof arena) abort();
    arena_used += bytes;
    return at;
}

#ifndef MODEL_UNAVAILABLE
/* ---- pages that change ---- */

static struct {
    unsigned char *at[2], *image[2]; /* the arena, the region; as they were at the beginning */
    size_t bytes[2];
    unsigned char *page[PAGES];
    const unsigned char *first[PAGES]; /* its image */
    size_t n;
} kept;

static void page_written(int signal_number, siginfo_t *info, void *context) {
    unsigned char *at = (unsigned char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    (void)context;
    for (int i = 0; i < 2; i++) {
        if (at < kept.at[i] || at >= kept.at[i] + kept.bytes[i]) continue;
        if (kept.n == PAGES || mprotect(at, PAGE, PROT_READ | PROT_WRITE) != 0) abort();
        kept.page[kept.n] = at;
        kept.first[kept.n++] = kept.image[i] + (at - kept.at[i]);
        return;
    }
    signal(signal_number, SIG_DFL);
}

static void pages_watch(int i, void *at, size_t bytes) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = page_written;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    bytes = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    free(kept.image[i]);
    kept.image[i] = (unsigned char *)malloc(bytes);
    if (!kept.image[i]) abort();
    memcpy(kept.image[i], at, bytes);
    kept.at[i] = (unsigned char *)at;
    kept.bytes[i] = bytes;
    if (mprotect(at, bytes, PROT_READ) != 0) abort();
}

static void pages_forget(void) {
    for (int i = 0; i < 2; i++)
        if (kept.bytes[i] && mprotect(kept.at[i], kept.bytes[i], PROT_READ | PROT_WRITE) != 0)
            abort();
    kept.n = 0;
    kept.bytes[0] = kept.bytes[1] = 0;
}

static size_t pages_bytes(void) { return kept.n * PAGE; }

static void pages_keep(unsigned char *to) {
    for (size_t i = 0; i < kept.n; i++) memcpy(to + i * PAGE, kept.page[i], PAGE);
}

/* A page that was not written when that was kept was as at the beginning. */
static void pages_bring_back(const unsigned char *from, size_t n) {
    for (size_t i = 0; i < kept.n; i++)
        memcpy(kept.page[i], i * PAGE < n ? from + i * PAGE : kept.first[i], PAGE);
}
#endif
#endif
