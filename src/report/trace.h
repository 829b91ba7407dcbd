/* needs: pictures */
#pragma once
/* tests: system/report/pictures */
#include "report/text.h"
#include "report/file.h"
/* ---- Chrome trace-event JSON:
   https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ---- */

/* Write one event of lane tid. Times are in microseconds, with three digits behind the point. */
static void dlpi_json_event(dlpi_out *o, int tid, const dlp_trace_event *e) {
    const char *kind = dlpi_event_kinds[e->kind < DLPI_EVENT_KINDS ? e->kind : 0].name;
    uint64_t dur = e->end_ns > e->begin_ns ? e->end_ns - e->begin_ns : 0;
    dlpi_out_print(o,
                   ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64
                   ".%03u,\"cat\":\"%s\",\"name\":\"%s",
                   tid, e->begin_ns / 1000, (unsigned)(e->begin_ns % 1000), dur / 1000,
                   (unsigned)(dur % 1000), kind, e->kind == DLP_TRACE_WORK ? "batch" : kind);
    if (e->kind == DLP_TRACE_WORK || e->kind == DLP_TRACE_STEP)
        dlpi_out_print(o, " %" PRIu64, e->sequence);
    else if (e->kind == DLP_TRACE_EPOCH)
        dlpi_out_print(o, " %" PRIu32, e->epoch);
    dlpi_out_print(o, "\",\"args\":{\"sequence\":%" PRIu64 ",\"epoch\":%" PRIu32 ",\"items\":%u}}",
                   e->sequence, e->epoch, (unsigned)e->items);
}

/* Return a number as JSON has it, whatever the locale: six decimals, from 0 to 1e18. */
static dlpi_num dlpi_num_json(double v) {
    dlpi_num r;
    uint64_t whole, rest;
    double part;
    v = v > 0 ? v : 0;
    whole = v < 1e18 ? (uint64_t)v : UINT64_C(1000000000000000000);
    part = v < 1e15 ? v - (double)whole : 0; /* beyond it there is none */
    rest = (uint64_t)(part * 1e6 + 0.5);
    whole += rest / 1000000u;
    snprintf(r.s, sizeof r.s, "%" PRIu64 ".%06u", whole, (unsigned)(rest % 1000000u));
    return r;
}

/* Write all samples of a counter. */
static void dlpi_json_curve(dlpi_out *o, const dlpi_curve *c) {
    for (uint64_t i = 0; i < c->n; i++) {
        uint64_t at = c->samples[i].at_ns;
        dlpi_out_print(o, ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":%" PRIu64 ".%03u,\"name\":\"",
                       at / 1000, (unsigned)(at % 1000));
        dlpi_out_escaped(o, c->name, sizeof c->name, INT_MAX, true);
        dlpi_out_print(o, "\",\"args\":{\"");
        dlpi_out_escaped(o, c->unit[0] ? c->unit : "value", sizeof c->unit, INT_MAX, true);
        dlpi_out_print(o, "\":%s}}", dlpi_num_json(c->samples[i].value).s);
    }
}

/* Write all lanes and counters as Chrome trace-event JSON. Returns DLP_OK; write failures are kept
   in *o. */
static int dlpi_json_write(dlpi_out *o, const dlpi_picture *p) {
    const dlpi_lane *lanes = p->lanes;
    dlpi_out_print(
        o,
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"writer\":\"dlpipe "
        "%d.%d.%d\"},\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"dlpipe\"}}",
        DLPIPE_VERSION_MAJOR, DLPIPE_VERSION_MINOR, DLPIPE_VERSION_PATCH);
    for (int i = 0; i < p->n_lanes; i++) {
        dlpi_out_print(
            o,
            ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"",
            i + 1);
        dlpi_out_escaped(o, lanes[i].name, sizeof lanes[i].name, INT_MAX, true);
        dlpi_out_print(o,
                       "\"}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\","
                       "\"args\":{\"sort_index\":%d}}",
                       i + 1, i);
        for (int k = 0; k < lanes[i].n; k++) { dlpi_json_event(o, i + 1, &lanes[i].events[k]); }
    }
    for (int i = 0; i < p->n_curves; i++) { dlpi_json_curve(o, &p->curves[i]); }
    dlpi_out_print(o, "\n]}\n");
    return DLP_OK;
}
