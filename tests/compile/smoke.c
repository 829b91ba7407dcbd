/* A stranger's program: one loader, each item seen once. Compiled by tests/compile/matrix in many
   ways, also with no flags at all. USER_ONLY: the implementation is in another file. WITH_SHM: its
   workers are processes. */
#ifndef USER_ONLY
#define DLPIPE_IMPLEMENTATION
#endif
#ifdef __has_include
#if __has_include("dlpipe.h")
#include "dlpipe.h"
#else
#include "../../dlpipe.h"
#endif
#else
#include "dlpipe.h"
#endif
#ifdef WITH_SHM
#ifdef __has_include
#if __has_include("dlpipe_shm.h")
#include "dlpipe_shm.h"
#else
#include "../../dlpipe_shm.h"
#endif
#else
#include "dlpipe_shm.h"
#endif
#endif
#include <stdio.h>

#define N_ITEMS 1000

static int fetch(void *user, dlp_item *item) {
    *(uint64_t *)item->data[0] = item->index + *(uint64_t *)user;
    return 0;
}

int main(void) {
    uint64_t offset = 7, seen[N_ITEMS] = {0}, rows = 0;
    dlp_field field = {.name = "x", .dtype = DLP_U64};
    dlp_loader_desc desc = {
        .dataset =
            {.n_items = N_ITEMS, .fields = &field, .n_fields = 1, .fetch = fetch, .user = &offset},
        .batch_size = 32,
        .num_workers = 3,
        .shuffle = 1,
#ifdef WITH_SHM
        .workers = {.placement = DLP_PLACE_PROCESSES},
#endif
    };
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code = dlp_loader_open(&pipe, &desc, &err);
    if (code != DLP_OK) {
        printf("open: %s: %s\n", dlp_code_name(code), err.message);
        return 1;
    }
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const uint64_t *x = batch->fields[0].data;
        for (uint32_t i = 0; i < batch->count; i++, rows++) {
            if (x[i] != batch->index[i] + offset || seen[batch->index[i]]++) {
                printf("row %u of batch %u is wrong\n", i, (unsigned)batch->sequence);
                return 1;
            }
        }
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END || rows != N_ITEMS) {
        printf("ended with %s after %u rows\n", dlp_code_name(code), (unsigned)rows);
        return 1;
    }
    return dlp_pipe_close(pipe) == DLP_OK ? 0 : 1;
}
