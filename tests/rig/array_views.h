/* needs: arrays split */
/* Arrays and the chunks of them in one struct, for tables of tests. */
#ifndef ARRAY_VIEWS_H
#define ARRAY_VIEWS_H
#include "../../dlpipe.h"

typedef struct array_views {
    dlp_arrays_desc arrays;
    dlp_chunks_desc chunks;
} array_views;

static inline int array_views_open(dlp_pipe **out, dlp_source **made, const array_views *d,
                                   dlp_error *err) {
    return dlp_arrays_chunks_open(out, made, &d->arrays, &d->chunks, err);
}
#endif
