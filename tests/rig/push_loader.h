/* needs: parts */
/* A source of >>push, opened together with the pipe of it. */
#ifndef PUSH_LOADER_H
#define PUSH_LOADER_H
#include "sources.h"

typedef struct push_loader {
    dlp_push_desc push;
    dlp_loader_desc loader;
} push_loader;

static inline int push_loader_open(dlp_pipe **out, dlp_push **made, const push_loader *d,
                                   dlp_error *err) {
    dlp_loader_desc loader = d->loader;
    dlp_push *s = NULL;
    int rc = dlp_push_open(&s, &d->push, err);
    if (rc != DLP_OK) return rc;
    loader.source = dlp_push_source(s);
    if ((rc = dlp_loader_open(out, &loader, err)) != DLP_OK) {
        dlp_push_close(s);
        return rc;
    }
    *made = s;
    return DLP_OK;
}
#endif
