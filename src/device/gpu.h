/* needs: transfer */
#pragma once
/* tests: system/device/device_cuda, system/device/device_opencl */
#include "api/devices.h"
#include "build/region_map.h"
#include "stages/transfer.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-devices    GPUS: CUDA, OPENCL
   Types and numbers of both are as their headers have had them since CUDA 4 and OpenCL 1.2; only
   the calls used here are declared, and looked up by name. Callbacks of a device run in one thread
   at a time (start; then the transfer thread, or next; then close), so its record has no atomics,
   but for the word that says whether a pipe has it. What dlp_pipe_release_after writes of a buffer
   is the consumer's until its release frees the buffer (C2), which the transfer then takes.

   A callback can return a number only. What it stands for is added to the device's name, which is
   in the message that the pipe makes of the number. */

typedef struct dlpi_gpu {
    char name[160]; /* dlp_device.name: "cuda:0", and after a failure the call that failed */
    char base[24];
    uint32_t used; /* U1: a pipe has it open */
    int dirty;     /* copies were enqueued since open */
    dlp_device_info info;
    uint8_t ordered[DLPI_DEVICE_BUFFERS]; /* a copy into the buffer has waited for its readers */
    uint8_t due[DLPI_DEVICE_BUFFERS];     /* release_after left an event for the next copy */
} dlpi_gpu;

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
typedef struct dlpi_symbol {
    const char *name;
    size_t at; /* of the pointer in the table of calls */
} dlpi_symbol;

/* Load a library and fill a table of calls. Returns 0, or DLP_ERR_UNSUPPORTED with *err filled. */
static int dlpi_gpu_load(void *calls, const dlpi_symbol *symbols, size_t n, const char *library,
                         dlp_error *err) {
    const char *why;
    void *lib = dlpi_library(library, &why);
    if (lib == NULL) {
        dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library", "no driver: %s", why ? why : library);
        return DLP_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlpi_library_symbol(lib, symbols[i].name);
        if (symbol == NULL) {
            dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library",
                           "%s has no %s: the driver is too old", library, symbols[i].name);
            return DLP_ERR_UNSUPPORTED;
        }
        memcpy((char *)calls + symbols[i].at, &symbol, sizeof symbol);
    }
    return DLP_OK;
}

/* Take the device for a pipe. Returns 0, or DLP_ERR_BUSY if a pipe has it. */
static int dlpi_gpu_open(dlpi_gpu *g) {
    if (DLPI_XCHG_SEQ(&g->used, 1u) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
    memcpy(g->name, g->base, sizeof g->base);
    memset(g->ordered, 0, sizeof g->ordered);
    memset(g->due, 0, sizeof g->due);
    g->dirty = 0;
    return 0;
}

static void dlpi_gpu_leave(void *user) {
    DLPI_STORE_SEQ(&((dlpi_gpu *)user)->used, 0u); /* U1 -> U1 */
}

static void dlpi_gpu_note(dlpi_gpu *g, const char *what) {
    size_t n = strlen(g->base);
    if (strcmp(g->name, g->base) == 0) /* the first failure stays */
        snprintf(g->name + n, sizeof g->name - n, ": %s", what);
}
#endif
