/* needs: tokens */
/* A source of >>tokens, opened together with the pipe of it. */
#ifndef TOKENS_LOADER_H
#define TOKENS_LOADER_H
#include "sources.h"

typedef struct tokens_loader {
    dlp_tokens_desc tokens;
    dlp_loader_desc loader;
} tokens_loader;

static inline int tokens_loader_open(dlp_pipe **out, dlp_source **made, const tokens_loader *d,
                                     dlp_error *err) {
    dlp_source *s = NULL;
    const int rc = dlp_tokens_open(&s, &d->tokens, err);
    return rc != DLP_OK ? rc : source_pipe(out, made, s, &d->loader, err);
}
#endif
