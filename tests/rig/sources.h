/* What tests of sources share: a source in descs that a test then changes, and a source that is
   opened together with the pipe of it. */
#ifndef SOURCES_H
#define SOURCES_H

/* Enter a source into the desc of a fetch. */
static inline void source_into(const dlp_source *s, dlp_source *to) {
    const dlp_source was = *to;
    *to = *s;
    to->workers = was.workers;
    to->workers.worker_init = s->workers.worker_init;
    to->workers.worker_exit = s->workers.worker_exit;
    to->workers.worker_user = s->workers.worker_user;
    to->workers.tell = s->workers.tell;
    if (was.in_flight != 0) to->in_flight = was.in_flight;
}

/* A loader of a copy of a source, with the fetcher that the loader's desc has. Returns the copy. */
static inline dlp_source *source_own(dlp_loader_desc *d, const dlp_source *s) {
    static dlp_source all[16];
    static unsigned turn;
    dlp_source *own = &all[turn++ % 16];
    *own = *s;
    own->fetcher = d->fetcher;
    own->in_flight = d->in_flight;
    d->fetcher = d->in_flight = 0;
    d->source = own;
    return own;
}

/* Enter a source that fetches one item after the other into a dataset and workers. */
static inline void source_items(const dlp_source *s, dlp_dataset *dataset, dlp_workers_desc *w) {
    dlp_source fetch = {.workers = *w};
    const dlp_dataset was = *dataset;
    source_into(s, &fetch);
    *dataset = *fetch.dataset;
    dataset->filter = was.filter;
    if (was.open_end != 0) dataset->open_end = was.open_end;
    *w = fetch.workers;
}

/* Open a pipe of a source that is open; after a failure the source is closed, too. */
static inline int source_pipe(dlp_pipe **out, dlp_source **made, dlp_source *s,
                              const dlp_loader_desc *desc, dlp_error *err) {
    dlp_loader_desc loader = *desc;
    int rc;
    loader.source = s;
    if ((rc = dlp_loader_open(out, &loader, err)) != DLP_OK) {
        dlp_source_close(s);
        return rc;
    }
    *made = s;
    return DLP_OK;
}

#endif
