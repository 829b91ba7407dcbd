/* needs: pictures */
#pragma once
/* tests: system/report/pictures, system/core/any_thread */
#include "report/pictures.h"
#include "open/observe.h"
/* ---- pictures of a pipe ---- */

static void dlpi_curves_free(dlpi_curve *curves, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) { free(curves[i].samples); }
}

/* Copy the rings of all counters, oldest sample first. curves: [DLP_MAX_COUNTERS], zeroed; the
   caller frees them, also after a failure. Returns DLP_OK, or DLP_ERR_MEMORY. */
static int dlpi_curves_take(const dlp_pipe *p, dlpi_curve *curves) {
    const uint64_t room = dlpi_counter_room(p);
    for (uint32_t k = 0; k < p->d.n_counters; k++) {
        const dlpi_counter *c = &p->counters[k];
        dlpi_curve *out = &curves[k];
        uint64_t end = dlpi_credit_look(&c->n), first = end > room ? end - room : 0; /* W3 <- W3 */
        uint64_t lost, now;
        memcpy(out->name, c->name, sizeof out->name);
        memcpy(out->unit, c->unit, sizeof out->unit);
        out->most = c->most;
        out->n = 0;
        out->samples = malloc((room + 1) * sizeof *out->samples);
        if (out->samples == NULL) return DLP_ERR_MEMORY;
        for (uint64_t i = first; i < end; i++) {
            dlpi_sample *s = &out->samples[i - first];
            uint64_t bits = DLPI_LOAD_RLX(&c->words[2 * (i % room) + 1]); /* W3 */
            s->at_ns = DLPI_LOAD_RLX(&c->words[2 * (i % room)]);          /* W3 */
            memcpy(&s->value, &bits, sizeof bits);
        }
        now = dlpi_credit_look(&c->n) + 1u; /* W3 <- W3: one more may be half written */
        lost = now > room + first ? now - room - first : 0;
        lost = lost < end - first ? lost : end - first;
        out->n = end - first - lost;
        memmove(out->samples, out->samples + lost, out->n * sizeof *out->samples);
    }
    return DLP_OK;
}

/* Write a picture or a trace, with the user's counters, to `path`. pen: what writes it. Returns 0,
   or a DLP_ERR code and *err. */
static int dlpi_write_counted(dlp_pipe *p, const char *path, const dlp_trace_window *window,
                              dlpi_pen *pen, dlp_error *err) {
    dlpi_curve curves[DLP_MAX_COUNTERS];
    dlpi_picture with = {.curves = curves, .n_curves = 0, .stats = NULL, .window = window};
    dlpi_seen s;
    int rc = dlpi_picture_args("p", p, path, window, err);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_seen_now(p, true, true, &s)) != DLP_OK)
        return dlpi_error_set(err, rc, "p", "%s",
                              rc == DLP_ERR_STATE ? "the pipe has not started" : dlp_code_text(rc));
    memset(curves, 0, sizeof curves);
    with.n_curves = (int)p->d.n_counters;
    rc = dlpi_curves_take(p, curves);
    if (rc == DLP_OK)
        rc = dlpi_write_picture(&s, &with, pen, path, err);
    else
        dlpi_picture_error(err, rc, path, 0);
    dlpi_curves_free(curves, p->d.n_counters);
    return rc; /* NOLINT: the samples of all counters are freed */
}

DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path, dlp_error *err) {
    return dlpi_write_counted(p, path, NULL, dlpi_json_write, err);
}

DLPDEF int dlp_pipe_write_window(dlp_pipe *p, const char *path, const dlp_trace_window *window,
                                 dlp_error *err) {
    return dlpi_write_counted(p, path, window, dlpi_svg_write, err);
}

DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path, dlp_error *err) {
    return dlp_pipe_write_window(p, path, NULL, err);
}

DLPDEF int dlp_pipe_write_graph(const dlp_plan *plan, const char *path, dlp_error *err) {
    const int rc = dlpi_picture_args("plan", plan, path, NULL, err);
    if (rc != DLP_OK) return rc;
    if (!dlpi_plan_drawable(plan))
        return dlpi_error_set(err, DLP_ERR_ARG, "plan",
                              "plan: %u stages and %u links; give a plan that dlp_pipe_plan or "
                              "dlp_nodes_plan has filled",
                              (unsigned)plan->n_stages, (unsigned)plan->n_links);
    return dlpi_picture_write(&(dlpi_picture){.plan = plan}, dlpi_plan_draw, path, err);
}
