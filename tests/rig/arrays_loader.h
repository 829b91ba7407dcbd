/* needs: arrays */
/* A source of >>arrays, opened together with the pipe of it. */
#ifndef ARRAYS_LOADER_H
#define ARRAYS_LOADER_H
#include "sources.h"

typedef struct arrays_loader {
    dlp_arrays_desc arrays;
    dlp_loader_desc loader;
} arrays_loader;

static inline int arrays_loader_open(dlp_pipe **out, dlp_source **made, const arrays_loader *d,
                                     dlp_error *err) {
    dlp_source *s = NULL;
    const int rc = dlp_arrays_open(&s, &d->arrays, err);
    return rc != DLP_OK ? rc : source_pipe(out, made, s, &d->loader, err);
}
#endif
