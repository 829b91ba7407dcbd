#pragma once
/* tests: system/shm/monitor, system/shm/names, system/shm/shm_subscriber */
#include "shm/subscriber.h"
#include "shm/start.h"
#include "report/explain.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-public      THE PUBLIC CALLS */

/* Call `each` for all names in /dev/shm. Returns DLP_OK, or DLP_ERR_SYSTEM if that is not there. */
static int dlpi_names_each(void (*each)(const char *name, const char *path, void *to), void *to) {
    DIR *dir = dlpi_dir_open(open(DLPI_SHM_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const struct dirent *d;
    const size_t n = sizeof DLPI_NAME_PREFIX - 1;
    if (dir == NULL) return DLP_ERR_SYSTEM;
    while ((d = readdir(dir)) != NULL) {
        char path[DLPI_NAME_PATH];
        if (strncmp(d->d_name, DLPI_NAME_PREFIX, n) != 0 || !dlpi_name_ok(d->d_name + n)) continue;
        dlpi_name_path(d->d_name + n, path);
        each(d->d_name + n, path, to);
    }
    closedir(dir);
    return DLP_OK;
}

typedef struct dlpi_names_list {
    dlp_shm_name *out;
    int n, max;
} dlpi_names_list;

/* Append a name to the list *to, if its record can be read. Names beyond the list's room are only
   counted. */
static void dlpi_shm_names_add(const char *name, const char *path, void *to) {
    dlpi_names_list *l = to;
    dlp_shm_name one;
    memset(&one, 0, sizeof one);
    dlpi_copy_text(one.name, sizeof one.name, name);
    if (dlpi_name_look(path, &one) != DLP_OK) return;
    if (l->n < l->max) l->out[l->n] = one;
    if (l->n < INT_MAX) l->n++;
}

static void dlpi_names_sweep(const char *name DLPI_UNREAD, const char *path, void *to) {
    if (dlpi_name_sweep(path) == 1) ++*(int *)to;
}

DLPDEF int dlp_shm_names(dlp_shm_name *out, int max) {
    dlpi_names_list l = {out, 0, max};
    if (max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    return dlpi_names_each(dlpi_shm_names_add, &l) == DLP_OK ? l.n : DLP_ERR_SYSTEM;
}

DLPDEF int dlp_shm_remove_stale(const char *name) {
    char path[DLPI_NAME_PATH];
    int n = 0;
    if (name == NULL) return dlpi_names_each(dlpi_names_sweep, &n) == DLP_OK ? n : DLP_ERR_SYSTEM;
    if (!dlpi_name_ok(name)) return DLP_ERR_ARG;
    dlpi_name_path(name, path);
    return dlpi_name_sweep(path);
}

DLPDEF int dlp_monitor_open(dlp_monitor **out, const char *who, dlp_error *err) {
    const struct timespec pause = {0, 10000000};
    if (out == NULL || who == NULL || who[0] == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "who" : "out", "%s is missing",
                              out ? "who" : "out");
    for (int tries = 0;; tries++) {
        dlp_error e;
        int rc = dlpi_monitor_try(who, out, &e);
        if (rc == DLP_OK) return rc;
        if (rc != DLP_ERR_STATE || tries == 20) { /* it may be about to start */
            if (err) *err = e;
            return rc;
        }
        nanosleep(&pause, NULL);
    }
}

DLPDEF int dlp_monitor_refresh(dlp_monitor *m, dlp_error *err) {
    int rc;
    if (m == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "m", "m is NULL");
    if ((rc = dlpi_owner_check(m, err)) == DLP_OK) return dlpi_view_load(m, err);
    if (m->fd >= 0) close(m->fd); /* else we would keep the pipe's memory */
    m->fd = -1;
    return rc;
}

DLPDEF int dlp_monitor_stats(const dlp_monitor *m, dlp_stats *out) {
    if (m == NULL || out == NULL) return DLP_ERR_ARG;
    dlpi_stats(&m->seen, out);
    return DLP_OK;
}

DLPDEF int dlp_monitor_worker_stats(const dlp_monitor *m, uint32_t i, dlp_worker_stats *out) {
    if (m == NULL || out == NULL || i >= m->seen.n_workers) return DLP_ERR_ARG;
    dlpi_worker_stats(&m->seen, i, out);
    return DLP_OK;
}

DLPDEF int dlp_monitor_skips(const dlp_monitor *m, dlp_skip *out, int max, uint64_t *total) {
    if (m == NULL || max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    return dlpi_skips(&m->seen, out, max, total);
}

DLPDEF int dlp_monitor_trace_lanes(const dlp_monitor *m) {
    return m == NULL ? DLP_ERR_ARG : (int)m->seen.n_workers + 1;
}

DLPDEF int dlp_monitor_trace(const dlp_monitor *m, int lane, dlp_trace_event *out, int max,
                             char *name) {
    if (m == NULL || max < 0 || (out == NULL && max > 0)) return DLP_ERR_ARG;
    if (lane < 0 || (uint32_t)lane > m->seen.n_workers) return DLP_ERR_ARG;
    return dlpi_trace_lane(&m->seen, (uint32_t)lane, out, max, name);
}

DLPDEF int64_t dlp_monitor_batches_per_epoch(const dlp_monitor *m) {
    return m == NULL ? -1 : (int64_t)m->per_epoch; /* UINT64_MAX: not known */
}

DLPDEF const dlp_error *dlp_monitor_error(const dlp_monitor *m) {
    static const dlp_error none = {DLP_ERR_ARG, 0, -1, 0, 0, 0, 0, "", "m", "the monitor is NULL"};
    return m == NULL ? &none : &m->error;
}

DLPDEF int dlp_monitor_about(const dlp_monitor *m, dlp_monitor_info *out) {
    if (m == NULL || out == NULL) return DLP_ERR_ARG;
    *out = m->info;
    return DLP_OK;
}

DLPDEF void dlp_monitor_close(dlp_monitor *m) {
    if (m == NULL) return;
    dlpi_view_blocks(m, false);
    if (m->fd >= 0) close(m->fd);
    if (m->proc >= 0) close(m->proc);
    free(m);
}

DLPDEF int dlp_subscriber_open(dlp_subscriber **out, const char *name,
                               const dlp_subscriber_desc *desc, dlp_error *err) {
    dlp_subscriber *c;
    int rc;
    if (out == NULL || name == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "name" : "out", "out or name is NULL");
    c = calloc(1, sizeof *c);
    if (c == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    c->fd = -1;
    c->s.ops = &dlpi_subscriber_outside;
    c->s.err.worker = -1;
    rc = dlp_monitor_open(&c->m, name, err);
    if (rc == DLP_OK && c->m == NULL) rc = DLP_ERR_STATE; /* an open monitor is one */
    if (rc == DLP_OK) rc = dlpi_subscriber_check(c, err);
    if (rc == DLP_OK) rc = dlpi_subscriber_loans(c, desc, err);
    if (rc == DLP_OK && dlpi_alive_page(&c->alive) != 0)
        rc = dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    if (rc == DLP_OK) rc = dlpi_subscriber_map(c, err);
    if (rc == DLP_OK) rc = dlpi_subscriber_place(c, err);
    if (rc != DLP_OK) {
        dlp_subscriber_close(c);
        return rc;
    }
    *out = c;
    return DLP_OK;
}

DLPDEF int dlp_subscriber_next(dlp_subscriber *c, dlp_batch **out) {
    return dlp_subscriber_next_timeout(c, out, -1);
}

DLPDEF int dlp_subscriber_next_timeout(dlp_subscriber *c, dlp_batch **out, int timeout_ms) {
    if (c == NULL || out == NULL) return DLP_ERR_ARG;
    if (!dlpi_page_marked(c->alive)) return DLP_ERR_FORKED;
    return dlpi_subscriber_next(&c->s, out, timeout_ms);
}

DLPDEF int dlp_subscriber_release(dlp_subscriber *c, dlp_batch *batch) {
    if (c == NULL || batch == NULL) return DLP_ERR_ARG;
    if (!dlpi_page_marked(c->alive)) return DLP_ERR_FORKED;
    return dlpi_subscriber_release(&c->s, batch);
}

DLPDEF uint64_t dlp_subscriber_missed(const dlp_subscriber *c) { return c ? c->s.missed : 0; }

DLPDEF const dlp_error *dlp_subscriber_error(const dlp_subscriber *c) {
    return c == NULL ? dlp_pipe_error(NULL) : &c->s.err;
}

DLPDEF void dlp_subscriber_close(dlp_subscriber *c) {
    if (c == NULL) return;
    if (c->s.mine != NULL && dlpi_page_marked(c->alive)) dlpi_subscriber_leave(&c->s);
    if (c->map != NULL) dlpi_pages_free(c->map, c->bytes);
    if (c->fd >= 0) close(c->fd);
    if (c->alive != NULL) dlpi_pages_free(c->alive, 4096);
    for (uint32_t i = 0; c->s.loans != NULL && i < c->s.max_held; i++) free(c->s.loans[i].valid);
    free(c->s.loans);
    dlp_monitor_close(c->m);
    free(c);
}

DLPDEF int dlp_shm_serve(dlp_pipe *p, int timeout_ms) {
    if (p == NULL || timeout_ms < DLP_FOREVER) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->err.code != 0) return p->err.code;
    if (p->share == NULL || !p->share->serve_only) return DLP_ERR_STATE;
    return dlpi_serve(p, timeout_ms);
}
