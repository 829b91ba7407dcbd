/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/agree */
#include "api/found.h"
#include "order/found.h"
#include "deliver/state.h"
/* ---- states of several ranks, joined ---- */

/* True if two states have one order and one place. Whether the end of an epoch is still to be told
   does not count. */
static bool dlpi_merge_equal(const dlpi_state *a, const dlpi_state *b) {
    const size_t from = offsetof(dlpi_state, n_items);
    const size_t bytes = DLPI_STATE_BYTES - from;
    return memcmp((const uint8_t *)a + from, (const uint8_t *)b + from, bytes) == 0 &&
           memcmp(a->identity, b->identity, sizeof a->identity) == 0;
}

/* True if two states differ in their streams alone. */
static bool dlpi_merge_alike(const dlpi_state *a, const dlpi_state *b) {
    dlpi_state x = *a, y = *b;
    x.sampler_bytes = y.sampler_bytes = 0;
    memset(x.sampler, 0, sizeof x.sampler);
    memset(y.sampler, 0, sizeof y.sampler);
    return dlpi_merge_equal(&x, &y);
}

static int dlpi_merge_bad(dlp_error *err, int code, uint32_t i, const char *what) {
    return dlpi_error_set(err, code, "states", "states[%" PRIu32 "] %s", i, what);
}

/* Copy state i to *s. Returns 0, or DLP_ERR_CORRUPT and *err. */
static int dlpi_merge_read(const dlp_state *states, uint32_t i, dlpi_state *s, dlp_error *err) {
    if (dlpi_state_read(&states[i], s)) return DLP_OK;
    return dlpi_merge_bad(err, DLP_ERR_CORRUPT, i,
                          "is damaged, or another version saved it; leave it out");
}

/* Write the places of all streams into `wide`, which has zeros. Returns DLP_OK, or DLP_ERR_RESUME
   if two states differ in a place or none has it. */
static int dlpi_merge_places(const dlp_state *states, uint32_t n, const dlpi_cursors *all,
                             uint8_t *wide, dlp_error *err) {
    uint8_t seen[DLPI_CURSORS_WIDE * 4] = {0}, own[DLPI_CURSORS_WIDE]; /* a place: 2 bits or more */
    for (uint32_t i = 0; i < n; i++) {
        dlpi_state from;
        dlpi_cursors c;
        if (!dlpi_state_read(&states[i], &from) ||
            !dlpi_cursors_read(&c, own, from.sampler, from.sampler_bytes))
            continue;
        for (uint32_t k = 0, s = c.first - all->first; k < c.n; k++, s++) {
            dlpi_path path = {.phase = 0}, was = {.phase = 0};
            dlpi_path_move(&c, own, dlpi_path_at(&c, k), &path, false);
            if (seen[s] == 0) dlpi_path_move(all, wide, dlpi_path_at(all, s), &path, true);
            seen[s] = 1;
            dlpi_path_move(all, wide, dlpi_path_at(all, s), &was, false);
            if (memcmp(&was, &path, sizeof path) != 0)
                return dlpi_error_set(err, DLP_ERR_RESUME, "states",
                                      "states[%" PRIu32 "] has stream %" PRIu32 " at another place "
                                      "than a state before; save all at one batch",
                                      i, c.first + k);
        }
    }
    for (uint32_t s = 0; s < all->n; s++)
        if (seen[s] == 0)
            return dlpi_error_set(err, DLP_ERR_RESUME, "states",
                                  "no state has stream %" PRIu32 "; give the states of all ranks",
                                  all->first + s);
    return DLP_OK;
}

/* Check that all states are of one batch, and set *all to the cursors of all their streams. Returns
   0, or a DLP_ERR code and *err. */
static int dlpi_merge_span(const dlp_state *states, uint32_t n, dlpi_state *to, dlpi_cursors *all,
                           dlp_error *err) {
    uint32_t end = 0;
    *all = (dlpi_cursors){.first = UINT32_MAX};
    for (uint32_t i = 0; i < n; i++) {
        uint8_t wide[DLPI_CURSORS_WIDE];
        dlpi_state s;
        dlpi_cursors c;
        int rc = dlpi_merge_read(states, i, &s, err);
        if (rc != DLP_OK) return rc;
        const bool has = dlpi_cursors_read(&c, wide, s.sampler, s.sampler_bytes);
        if (!dlpi_merge_alike(to, &s) || (i > 0 && has && !dlpi_cursors_alike(&c, all)))
            return dlpi_merge_bad(err, DLP_ERR_RESUME, i,
                                  "has another order, batch or data than states[0]");
        if (!has)
            return dlpi_merge_bad(err, DLP_ERR_RESUME, i, "has no streams; merge states of a job");
        if (c.first + c.n > end) end = c.first + c.n;
        if (all->first < c.first) c.first = all->first;
        *all = c;
    }
    all->n = end - all->first;
    return DLP_OK;
}

DLPDEF int dlp_state_merge(dlp_state *out, const dlp_state *states, uint32_t n, dlp_error *err) {
    dlpi_state to, s;
    uint8_t wide[DLPI_CURSORS_WIDE] = {0};
    dlpi_cursors all;
    bool same = true, few;
    int rc;
    if (out == NULL || states == NULL || n == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "states" : "out",
                              "out or states is NULL, or n is 0");
    if ((rc = dlpi_merge_read(states, 0, &to, err)) != DLP_OK) return rc;
    for (uint32_t i = 1; i < n; i++) {
        if ((rc = dlpi_merge_read(states, i, &s, err)) != DLP_OK) return rc;
        same = same && dlpi_merge_equal(&to, &s);
        to.end_due |= s.end_due; /* one rank lacks the end: better told twice than never */
    }
    if (same) {
        dlpi_state_give(&to, out);
        return DLP_OK;
    }
    if ((rc = dlpi_merge_span(states, n, &to, &all, err)) != DLP_OK) return rc;
    memset(to.sampler, 0, sizeof to.sampler);
    few = dlpi_cursors_bytes(&all) <= DLPI_CURSORS_WIDE;
    if (few && (rc = dlpi_merge_places(states, n, &all, wide, err)) != DLP_OK) return rc;
    to.sampler_bytes = few ? dlpi_cursors_save(&all, wide, to.sampler) : DLPI_CURSORS_LONG;
    if (to.sampler_bytes == DLPI_CURSORS_LONG)
        return dlpi_error_set(err, DLP_ERR_RESUME, "states",
                              "%" PRIu32 " streams stand too far apart for one state: merge fewer",
                              all.n);
    dlpi_state_give(&to, out);
    return DLP_OK;
}
