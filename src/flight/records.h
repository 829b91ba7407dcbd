/* needs: fetchers */
#pragma once
/* tests: system/core/fetchers, system/shm/shm_fetchers */
#include "flight/in_flight.h"
/* ---- the memory of the stage ---- */

DLPI_COLD static void dlpi_fetch_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_OWN_HIDDEN), dlpi_line_up((uint64_t)st->in_flight * 8),
                  (uint64_t)st->n_workers, DLPI_LINE);
}

/* Describe in `out` the private memory of a fetch with several items in flight. Returns the number
   of blocks. */
DLPI_COLD static int dlpi_fetch_blocks(const dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st,
                                       dlpi_block *out) {
    const dlpi_fetch *f = st->self;
    uint64_t n = (uint64_t)st->n_workers, all = dlpi_times(n, (uint64_t)st->in_flight);
    uint64_t rows = dlpi_times(n, dlpi_in_flight_rows(st));
    out[0] = (dlpi_block){offsetof(dlpi_fetch, workers), dlpi_times(n, sizeof *f->workers)};
    out[1] = (dlpi_block){offsetof(dlpi_fetch, attempts), dlpi_times(all, sizeof *f->attempts)};
    out[2] = (dlpi_block){offsetof(dlpi_fetch, parked), dlpi_times(rows, sizeof *f->parked)};
    if (f->d.fetcher != DLP_FETCH_THREADS) return 3;
    out[3] = (dlpi_block){offsetof(dlpi_fetch, todo), dlpi_times(all, sizeof(void *))};
    out[4] = (dlpi_block){offsetof(dlpi_fetch, threads), dlpi_times(all, sizeof *f->threads)};
    return 5;
}

/* Set up a worker's record of attempts, all free: n attempts, of which the source may have `most`.
   async: the source, NULL: threads, or none at all. at_once: [n] words in the region. */
DLPI_COLD static void dlpi_in_flight_set(dlpi_in_flight *in, dlpi_worker *w,
                                         const dlpi_unit_ops *units, dlpi_attempt *all, uint32_t n,
                                         uint32_t most, const dlp_async *async, void *user,
                                         uint64_t *at_once) {
    memset(in, 0, sizeof *in);
    in->units = units;
    in->async = async;
    in->user = user;
    in->at_once = at_once;
    in->head = in;
    in->all = all;
    in->n_all = n;
    in->most = most;
    in->oldest = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        dlpi_attempt *a = &all[i];
        a->item = w->item;
        a->item.data = a->fields.data;
        a->item.length = a->fields.length;
        a->note.message = a->message;
        a->note.errnum = &a->errnum;
        a->note.w = w;
        a->item.call = &a->note;
        dlpi_attempt_put(in, a, DLPI_ATTEMPT_FREE);
    }
}

/* Give a worker its attempts, all free, and room for parked rows. */
DLPI_COLD static void dlpi_in_flight_init(dlpi_worker *w) {
    const dlpi_fetch *f = dlpi_fetch_of(w);
    dlpi_in_flight *in = &f->workers[w->id];
    size_t each = (size_t)w->st->in_flight, from = (size_t)w->id * each;
    const bool async = f->d.fetcher == DLP_FETCH_ASYNC;
    w->at_once = dlpi_area_at(w->p, DLPI_OWN(w->st->id, DLPI_OWN_HIDDEN), (uint64_t)w->id);
    w->n_at_once = (uint32_t)each;
    w->self = in;
    dlpi_in_flight_set(in, w, &dlpi_rows_units, f->attempts + from, (uint32_t)each, (uint32_t)each,
                       async ? &f->d.async : NULL, w->st->user, w->at_once);
    if (!async) {
        in->threads.todo = f->todo + from;
        in->threads.threads = f->threads + from;
    }
    for (size_t i = 0; i < each; i++) in->all[i].extra = dlpi_row_extra_at(w->p, w, i);
    w->parked_most = (int)dlpi_in_flight_rows(w->st);
    w->parked = f->parked + (size_t)w->id * (size_t)w->parked_most;
}

/* The functions of all kinds that keep several rows in flight. */
#define DLPI_OPS_OF_IN_FLIGHT \
    .row_by_row = 1, .unit = DLPI_UNIT_ROWS, .layout = dlpi_fetch_layout, \
    .blocks = dlpi_fetch_blocks, .private_words = "items in flight, and parked", \
    .worker = dlpi_in_flight_init, .enter = dlpi_fetch_threads_begin, .leave = dlpi_in_flight_end, \
    .step = dlpi_in_flight_step, .find = dlpi_in_flight_find, .run = dlpi_in_flight_run, \
    .full = dlpi_rows_no_room, .owes = dlpi_in_flight_owes, .due = dlpi_in_flight_due
