/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_life */
#include "base/door.h"
#include "source/push_memory.h"
/* ---- how another program comes in: words of its errors ---- */

static int dlpi_door_wrong_path(dlp_error *err) {
    return dlpi_error_set(err, DLP_ERR_ARG, "path", "path must have 1..%d bytes", DLPI_DOOR_PATH);
}

/* Fill *err: the socket at `path` could not be made. Returns a DLP_ERR code. */
static int dlpi_door_failed(const char *path, int errnum, dlp_error *err) {
    const char *why = errnum == EEXIST       ? "a file is there that is no push; remove it"
                      : errnum == EADDRINUSE ? "a program that runs has a push there"
                                             : NULL;
    if (errnum == ENOSYS)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "path",
                              "path: producers of other programs need memory that processes share "
                              "(no DLPIPE_THREADS_ONLY, on Linux); set it NULL");
    if (why == NULL) return dlpi_push_system(err, "making the socket", path, errnum);
    dlpi_error_set(err, DLP_ERR_SYSTEM, "path", "%s: %s, or give another path", dlpi_path_end(path),
                   why);
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

/* Make a socket at `path`, and start the thread that lets producers in. d: has the descriptors that
   it hands out, and must stay at its address until close. Returns 0 or a DLP_ERR code. */
static int dlpi_door_open(dlpi_door *d, const char *path, dlp_error *err) {
    int errnum;
    d->hello = DLPI_PUSH_MAGIC;
    if ((errnum = dlpi_door_begin(d, path)) == 0) return DLP_OK;
    return errnum == ENAMETOOLONG ? dlpi_door_wrong_path(err) : dlpi_door_failed(path, errnum, err);
}
