/* needs: pictures */
#pragma once
/* tests: system/report/pictures */
#include "report/text.h"
#include "report/file.h"
/* ---- the timeline: one SVG ---- */

enum {
    DLPI_SVG_LEFT = 160, /* px: lane names */
    DLPI_SVG_PLOT = 1000,
    DLPI_SVG_WIDTH = 1200,
    DLPI_SVG_TOP = 84, /* title, window, legend */
    DLPI_SVG_AXIS = 20,
    DLPI_SVG_HEADING = 22,
    DLPI_SVG_GAP = 6,
    DLPI_SVG_BORDERS = 200,  /* epoch borders drawn at most */
    DLPI_SVG_BORDER = 14,    /* the line of epoch numbers */
    DLPI_SVG_LANES = 512,    /* drawn at most */
    DLPI_SVG_EVENTS = 16000, /* aimed at in the window */
    DLPI_SVG_STEPS = 32,     /* of the consumer, aimed at */
    DLPI_SVG_RECTS = 40000,  /* never more */
    DLPI_SVG_CURVE = 40,     /* height of a counter's lane, with its gap */
    DLPI_SVG_COLOURS = 6
};

/* What is drawn: a window of time, and how large. */
typedef struct dlpi_view {
    uint64_t t0, t1;   /* begin and end of the window, ns */
    uint64_t least_ns; /* a stretch shorter than this is merged with its neighbours */
    double scale;      /* hundredths of a pixel per ns */
    int pitch, font;
    int consumer_pitch;
    int per_group; /* lanes that are drawn of each group, at most */
    int height, n_borders, n_ticks;
    uint64_t step, ticks[12]; /* of the axis, ns */
    struct {
        int x;
        uint32_t epoch;
    } borders[DLPI_SVG_BORDERS];
    const char *which; /* words for the choice of the window */
} dlpi_view;

/* Count the lanes from lane i on that belong to its group. */
static int dlpi_group_size(const dlpi_lane *lanes, int n_lanes, int i) {
    int k = i;
    while (k < n_lanes && lanes[k].group == lanes[i].group) { k++; }
    return k - i;
}

/* Choose the newest stretch of time in which every lane has events, and no more of them than can be
   told apart. A worker's part has at most `limit` events, the consumer's a number of steps. If one
   lane reaches back far less than the others (tiny items), the middle lane decides, and that lane
   begins late. Returns 0 or DLP_ERR_MEMORY. */
static int dlpi_timeline_window(dlpi_view *v, const dlpi_lane *lanes, int n_lanes) {
    uint64_t *starts = malloc(((size_t)n_lanes + 1) * sizeof *starts), oldest = UINT64_MAX;
    uint64_t steps = 0; /* the consumer's first that is wanted */
    int limit = DLPI_SVG_EVENTS / (n_lanes + 1), m = 0;
    if (starts == NULL) { return DLP_ERR_MEMORY; }
    limit = limit > 240 ? 240 : limit < 40 ? 40 : limit;
    v->t0 = v->t1 = 0;
    for (int i = 0; i < n_lanes; i++) {
        const dlp_trace_event *e = lanes[i].events, *last, *first;
        const bool consumer = lanes[i].group < 0;
        int left = consumer ? DLPI_SVG_STEPS : limit;
        if (lanes[i].n <= 0) continue;
        last = e + lanes[i].n - 1;
        for (first = last + 1; first > e && left > 0;)
            left -= (--first)->kind == DLP_TRACE_STEP || !consumer;
        starts[m] = first->begin_ns;
        steps = consumer ? starts[m] : steps;
        m++;
        oldest = e->begin_ns < oldest ? e->begin_ns : oldest;
        v->t1 = last->end_ns > v->t1 ? last->end_ns : v->t1;
    }
    v->which = "all that is recorded";
    if (m > 0) {
        qsort(starts, (size_t)m, sizeof *starts, dlpi_u64_compare);
        uint64_t last = starts[m - 1], middle = starts[m / 2];
        bool most = last >= v->t1 || (v->t1 > middle && (v->t1 - last) < (v->t1 - middle) / 8);
        v->t0 = most ? middle : last;
        v->t0 = v->t0 < steps ? steps : v->t0; /* a picture of steps, however rarely others work */
        v->t0 = v->t0 < v->t1 ? v->t0 : oldest < v->t1 ? oldest : v->t1;
        if (v->t0 > oldest)
            v->which = most ? "the newest stretch that most lanes have recorded"
                            : "the newest stretch that all lanes have recorded";
    }
    free(starts);
    return DLP_OK;
}

/* True if the fields of a window fit together. NULL is good: it means the newest stretch. */
static bool dlpi_stretch_good(const dlp_trace_window *w) {
    if (w == NULL) { return true; }
    if (w->what < DLP_WINDOW_NEWEST || w->what > DLP_WINDOW_STALL) { return false; }
    bool both = w->what == DLP_WINDOW_TIME ? w->to != 0 : w->what == DLP_WINDOW_BATCHES;
    return !both || w->from < w->to || (w->what == DLP_WINDOW_BATCHES && w->from == w->to);
}

/* Set the view to the part of the consumer's lane with the window's batches, or its epoch. The wait
   for the first batch goes with it: it stands before the step, with the same sequence. */
static void dlpi_window_steps(dlpi_view *v, const dlpi_lane *consumer, const dlp_trace_window *w) {
    uint64_t wait = 0, waited_for = UINT64_MAX;
    for (int i = 0; i < consumer->n; i++) {
        const dlp_trace_event *e = &consumer->events[i];
        const bool epoch = w->what == DLP_WINDOW_EPOCH, waits = e->kind == DLP_TRACE_WAIT;
        if (waits && e->sequence != waited_for) {
            wait = e->begin_ns;
            waited_for = e->sequence;
        }
        if (e->kind != DLP_TRACE_STEP && (epoch || !waits)) continue;
        if (epoch ? e->epoch != w->from : e->sequence < w->from || e->sequence > w->to) continue;
        if (v->t1 == 0) { v->t0 = waited_for == e->sequence ? wait : e->begin_ns; }
        v->t1 = e->end_ns;
    }
}

/* Set the view to the consumer's longest wait, with `margin` ns (0: as long as the wait) around
   it. */
static void dlpi_window_stall(dlpi_view *v, const dlpi_lane *consumer, uint64_t margin) {
    const dlp_trace_event *stall = NULL;
    for (int i = 0; i < consumer->n; i++) {
        const dlp_trace_event *e = &consumer->events[i];
        bool first = e->sequence == 0; /* the start-up, which is known to be long */
        if (e->kind != DLP_TRACE_WAIT || e->end_ns <= e->begin_ns || first) { continue; }
        if (stall == NULL || e->end_ns - e->begin_ns > stall->end_ns - stall->begin_ns) stall = e;
    }
    if (stall == NULL) { return; }
    margin = margin == 0 ? stall->end_ns - stall->begin_ns : margin;
    v->t0 = stall->begin_ns > margin ? stall->begin_ns - margin : 0;
    v->t1 = stall->end_ns < UINT64_MAX - margin ? stall->end_ns + margin : UINT64_MAX;
}

/* Choose the window of the picture; t0 is t1 if nothing of it is recorded. Returns 0 or a code. */
static int dlpi_timeline_choose(dlpi_view *v, const dlpi_picture *p) {
    static const char *const which[] = {"", "as it was asked for", "the batches asked for",
                                        "the epoch asked for", "around the longest wait"};
    const dlp_trace_window *w = p->window;
    int rc = dlpi_timeline_window(v, p->lanes, p->n_lanes);
    uint64_t end = v->t1;
    if (rc != DLP_OK || w == NULL || w->what == DLP_WINDOW_NEWEST) { return rc; }
    v->t0 = v->t1 = 0;
    v->which = which[w->what];
    if (p->n_lanes == 0 || p->lanes[0].group >= 0) { return DLP_OK; }
    if (w->what == DLP_WINDOW_TIME) {
        v->t0 = w->from;
        v->t1 = w->to != 0 ? w->to : end;
    } else if (w->what == DLP_WINDOW_STALL) {
        dlpi_window_stall(v, &p->lanes[0], w->from);
    } else {
        dlpi_window_steps(v, &p->lanes[0], w);
    }
    if (v->t0 >= end || v->t0 >= v->t1) { v->t0 = v->t1 = 0; }
    return DLP_OK;
}

/* Return the x of a time, in hundredths of a pixel. It never falls as t grows. So stretches that do
   not overlap in time do not overlap in x. */
static int dlpi_timeline_x(const dlpi_view *v, uint64_t t) {
    t = t < v->t0 ? v->t0 : t > v->t1 ? v->t1 : t;
    return DLPI_SVG_LEFT * 100 + (int)((double)(t - v->t0) * v->scale);
}

/* Note the borders between epochs. A border is where the consumer's steps change epoch: at the
   event of the border if there is one between the two steps, else where the second step begins. A
   border outside the window or too near the last border is left out. */
static void dlpi_timeline_borders(dlpi_view *v, const dlpi_lane *consumer) {
    const dlp_trace_event *before = NULL; /* the last step */
    uint64_t border = UINT64_MAX;
    for (int i = 0; i < consumer->n; i++) {
        const dlp_trace_event *e = &consumer->events[i];
        const uint64_t t = border != UINT64_MAX ? border : e->begin_ns;
        const int x = dlpi_timeline_x(v, t) / 100, n = v->n_borders;
        if (e->kind == DLP_TRACE_EPOCH) border = e->begin_ns;
        if (e->kind != DLP_TRACE_STEP) continue;
        if (before != NULL && e->epoch != before->epoch && t > v->t0 && t < v->t1 &&
            n < DLPI_SVG_BORDERS && (n == 0 || x >= v->borders[n - 1].x + 4)) {
            v->borders[n].x = x;
            v->borders[v->n_borders++].epoch = e->epoch;
        }
        before = e;
        border = UINT64_MAX;
    }
}

/* Return 1, 2 or 5 times a power of ten ns, so that at most `most` of them fit. */
static uint64_t dlpi_tick_step(uint64_t length, uint64_t most) {
    uint64_t step = 1;
    for (int i = 0; length / step > most; i++) { step = i % 3 == 1 ? step / 2 * 5 : step * 2; }
    return step;
}

/* Note the ticks of the axis, which is time since the start. Far from it, numbers are long, and
   fewer fit. */
static void dlpi_timeline_ticks(dlpi_view *v) {
    const uint64_t length = v->t1 - v->t0;
    v->step = dlpi_tick_step(length, 10);
    if (strlen(dlpi_num_time(v->t1, v->t1, v->step).s) > 9) v->step = dlpi_tick_step(length, 5);
    uint64_t t = v->t0 + (v->t0 % v->step == 0 ? 0 : v->step - v->t0 % v->step);
    for (; t >= v->t0 && t <= v->t1; t += v->step) {
        v->ticks[v->n_ticks++] = t;
        if (v->t1 - t < v->step) break;
    }
}

/* Set the sizes of a timeline: lanes for each group, heights, scale and font. The window is set
   already. The picture gets smaller lanes if there are more of them. */
static void dlpi_timeline_layout(dlpi_view *v, const dlpi_lane *lanes, int n_lanes, int n_curves) {
    static const struct {
        int lanes, pitch;
    } sizes[] = {{6, 26}, {12, 20}, {24, 16}, {48, 13}, {100, 11}, {200, 6}, {INT_MAX, 4}};
    int groups = 0, drawn = 0, consumers = 0, s = 0;
    for (int i = 0; i < n_lanes; i++) groups += i == 0 || lanes[i].group != lanes[i - 1].group;
    v->per_group = groups > 0 && groups < DLPI_SVG_LANES ? DLPI_SVG_LANES / groups : 1;
    for (int i = 0, n, shown; i < n_lanes; i += n) {
        n = dlpi_group_size(lanes, n_lanes, i);
        shown = n < v->per_group ? n : v->per_group;
        drawn += shown;
        consumers += lanes[i].group < 0 ? shown : 0;
    }
    while (drawn > sizes[s].lanes) { s++; }
    v->pitch = sizes[s].pitch;
    v->consumer_pitch = v->pitch > 22 ? v->pitch : 22;
    v->font = v->pitch < 12 ? 9 : v->pitch < 15 ? 10 : 12;
    if (v->t1 > v->t0) {
        /* Two rects may follow for each least_ns of a lane: one merged, one that was wide. */
        const int most = DLPI_SVG_RECTS / 2 / (drawn + 1);
        v->least_ns = (v->t1 - v->t0) / (uint64_t)(most > 2000 ? 2000 : most < 20 ? 20 : most) + 1;
        v->scale = 100.0 * (int)DLPI_SVG_PLOT / (double)(v->t1 - v->t0);
        if (n_lanes > 0 && lanes[0].group < 0) dlpi_timeline_borders(v, &lanes[0]);
        dlpi_timeline_ticks(v);
    }
    v->height = DLPI_SVG_TOP + 2 * DLPI_SVG_AXIS + groups * (DLPI_SVG_HEADING + DLPI_SVG_GAP) +
                (drawn - consumers) * v->pitch + consumers * v->consumer_pitch +
                (v->n_borders > 0 ? DLPI_SVG_BORDER : 0) +
                (n_curves > 0 ? DLPI_SVG_HEADING + DLPI_SVG_GAP + n_curves * DLPI_SVG_CURVE : 0);
}

static void dlpi_svg_text(dlpi_out *o, const char *kind, int x, int y, const char *s, int units) {
    dlpi_out_print(o, "<text class=\"%s\" x=\"%d\" y=\"%d\">", kind, x, y);
    dlpi_out_escaped(o, s, 512, units, false);
    dlpi_out_print(o, "</text>\n");
}

/* Begin a rect; x and width are in hundredths of a pixel. end: what follows the attributes. */
static void dlpi_svg_rect(dlpi_out *o, const char *kind, int x, int width, int y, int height,
                          const char *end) {
    dlpi_out_print(o, "<rect class=\"%s\" x=\"%d.%02d\" y=\"%d\" width=\"%d.%02d\" height=\"%d\"%s",
                   kind, x / 100, x % 100, y, width / 100, width % 100, height, end);
}

/* Write a rect, in whole pixels. */
static void dlpi_svg_box(dlpi_out *o, const char *kind, int x, int y, int width, int height) {
    dlpi_out_print(o, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", kind,
                   x, y, width, height);
}

/* Write the beginning of an SVG file: its size, styles for light and dark pages, and the ground. */
static void dlpi_svg_style(dlpi_out *o, int width, int height, int font) {
    /* The palette of Okabe and Ito (https://jfly.uni-koeln.de/color), in an order in which
       neighbours differ in lightness too. */
    dlpi_out_print(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"Helvetica,Arial,sans-serif\">\n<style>\n"
        ".w0{fill:#0072b2}.w1{fill:#e69f00}.w2{fill:#009e73}.w3{fill:#56b4e9}.w4{fill:#d55e00}"
        ".w5{fill:#cc79a7}\n.q{fill:#333}.s{fill:#c9d3de}.b{fill:#d8d2c6}.e{fill:#888}"
        ".t{fill:#f4f5f6}.bg{fill:#fff}\n.c{fill:#a9b4c0}.n{fill:url(#n)}\n"
        ".grid{stroke:#dcdfe3;stroke-width:1}"
        ".border{stroke:#333;stroke-width:1.2;stroke-dasharray:5 3}\n",
        width, height, width, height);
    dlpi_out_print(
        o,
        "text{fill:#222;font-size:11px}.title{font-size:16px;font-weight:bold}\n"
        ".sub,.tick{fill:#555}.epoch{font-weight:bold}.tick,.epoch,.num0,.num1{text-anchor:middle}"
        ".head{font-size:12px;font-weight:bold}\n.lane{font-size:%dpx;text-anchor:end}"
        ".num0,.num1{font-size:9px;pointer-events:none}.num0{fill:#fff}\n"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.num0{fill:#fff}.num1{fill:#222}"
        ".sub,.tick,tspan{fill:#9aa4ae}.q{fill:#ccc}.border{stroke:#ccc}.s{fill:#4a5a6c}"
        ".b{fill:#6b6248}.c{fill:#5b6772}.t{fill:#1c2128}.bg{fill:#0d1117}.grid{stroke:#30363d}"
        "pattern path{stroke:#4a525b}}\n</style>\n"
        "<defs><pattern id=\"n\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><path d=\"M0 0v6\" stroke=\"#cfd3d8\" "
        "stroke-width=\"2\"/></pattern></defs>\n",
        font);
    dlpi_svg_box(o, "bg", 0, 0, width, height);
}

/* Return the next event of a lane, from *i on, and the part of it that lies in the window; NULL if
   there is none. Events need not be in order: each begins where the last one ended, or later. */
static const dlp_trace_event *dlpi_lane_next(const dlpi_lane *lane, const dlpi_view *v, int *i,
                                             uint64_t *begin, uint64_t *end) {
    const uint64_t seen = *i == 0 ? v->t0 : *end;
    while (*i < lane->n) {
        const dlp_trace_event *e = &lane->events[(*i)++];
        *begin = e->begin_ns < seen ? seen : e->begin_ns;
        *end = e->end_ns > v->t1 ? v->t1 : e->end_ns;
        if (e->kind > 0 && e->kind<DLPI_EVENT_KINDS && * end> * begin) return e;
    }
    return NULL;
}

/* Add to sum[kind] the time that a lane spent in each kind of event, inside the window. */
static void dlpi_lane_sums(const dlpi_lane *lane, const dlpi_view *v, uint64_t *sum) {
    const dlp_trace_event *e;
    uint64_t begin, end = 0;
    for (int i = 0; (e = dlpi_lane_next(lane, v, &i, &begin, &end)) != NULL;)
        sum[e->kind] += end - begin;
}

/* Return how many ns of the window the lane has recorded. */
static uint64_t dlpi_lane_recorded(const dlpi_lane *lane, const dlpi_view *v) {
    const uint64_t begin = lane->n > 0 ? lane->events[0].begin_ns : v->t1;
    const uint64_t end = lane->n > 0 ? lane->events[lane->n - 1].end_ns : v->t1;
    const uint64_t from = begin > v->t0 ? begin : v->t0, to = end < v->t1 ? end : v->t1;
    return to > from ? to - from : 0;
}

/* Write the title of a timeline: the rate and the consumer's waits, then what stretch is shown. */
static void dlpi_svg_header(dlpi_out *o, const dlpi_view *v, const dlpi_picture *p) {
    char line[400] = "";
    dlpi_text t = {line, sizeof line, 0};
    const dlp_stats *s = p->stats;
    const uint64_t length = v->t1 - v->t0;
    uint64_t sum[DLPI_EVENT_KINDS] = {0};
    if (p->n_lanes > 0 && p->lanes[0].group < 0) dlpi_lane_sums(&p->lanes[0], v, sum);
    const uint64_t consumer = sum[DLP_TRACE_WAIT] + sum[DLP_TRACE_STEP];
    const bool ran = s != NULL && s->items > 0 && s->elapsed_ns > 0;
    if (ran)
        dlpi_text_add(&t, "%s items/s; the consumer waited %s %% of the run",
                      dlpi_num_of((double)s->items * 1e9 / (double)s->elapsed_ns).s,
                      dlpi_num_percent(dlpi_part_of(s->wait_ns, s->wait_ns + s->step_ns)).s);
    else
        dlpi_text_add(&t, "%s", length > 0 ? "Timeline" : "Nothing is recorded yet");
    if (consumer > 0)
        dlpi_text_add(&t, "%s%s %% of this window", ran ? ", " : "; the consumer waited ",
                      dlpi_num_percent(dlpi_part_of(sum[DLP_TRACE_WAIT], consumer)).s);
    dlpi_svg_text(o, "title", 16, 27, line, 104);
    t.len = 0;
    if (length == 0 && p->window != NULL)
        dlpi_text_add(
            &t, p->window->what == DLP_WINDOW_STALL
                    ? "No wait of the consumer is recorded but for that for the first batch."
                    : "Nothing is recorded of the stretch that was asked for: it is overwritten "
                      "(trace_bytes), or not there yet.");
    if (length > 0)
        dlpi_text_add(&t, "Shown: %s, from %s after the start, %s.", dlpi_num_ns(length).s,
                      dlpi_num_time(v->t0, v->t1, length / 100).s, v->which);
    if (length > 0 && s != NULL)
        dlpi_text_add(&t, " batch_size %u, prefetch_factor %u, %u worker%s.", s->batch_size,
                      s->prefetch_factor, s->n_workers, s->n_workers == 1 ? "" : "s");
    if (t.len > 0) dlpi_svg_text(o, "sub", 16, 46, line, 158);
}

/* Write the legend: what each colour means. */
static void dlpi_svg_legend(dlpi_out *o) {
    static const struct {
        const char *kind, *text;
        int y, height;
    } keys[] = {{"w", "work and steps, by batch", 0, 0}, {"s", "starved: no input", 10, 4},
                {"b", "blocked: no free cell", 0, 4},    {"q", "the consumer waits", 0, 14},
                {"e", "between epochs", 0, 14},          {"n", "goes on, or not recorded", 0, 14}};
    int x = 16, y = 56;
    for (int i = 0; i < (int)(sizeof keys / sizeof *keys); i++) {
        char kind[] = "w0";
        for (; i == 0 && kind[1] < '0' + DLPI_SVG_COLOURS; kind[1]++, x += 10)
            dlpi_svg_box(o, kind, x, y, 9, 14);
        if (i > 0 && keys[i].kind[0] != 'n') dlpi_svg_box(o, "t", x, y, 18, 14);
        if (i > 0) dlpi_svg_box(o, keys[i].kind, x, y + keys[i].y, 18, keys[i].height);
        x += i > 0 ? 18 + 5 : 5;
        dlpi_svg_text(o, "key", x, y + 11, keys[i].text, 60);
        x += (int)strlen(keys[i].text) * 7 + 18;
    }
}

/* Write the times of the axis at height y. */
static void dlpi_svg_ticks(dlpi_out *o, const dlpi_view *v, int y) {
    for (int i = 0; i < v->n_ticks; i++) {
        const dlpi_num words = dlpi_num_time(v->ticks[i], v->t1, v->step);
        const int x = dlpi_timeline_x(v, v->ticks[i]) / 100, half = (int)strlen(words.s) * 4;
        if (x + half <= DLPI_SVG_WIDTH) dlpi_svg_text(o, "tick", x, y, words.s, 30);
    }
}

/* Draw the vertical lines of the grid, at the ticks of the axis. */
static void dlpi_svg_grid(dlpi_out *o, const dlpi_view *v, int y, int height) {
    for (int i = 0; i < v->n_ticks; i++)
        dlpi_out_print(o, "%sM%d.5 %dv%d", i == 0 ? "<path class=\"grid\" d=\"" : "",
                       dlpi_timeline_x(v, v->ticks[i]) / 100, y, height);
    if (v->n_ticks > 0) dlpi_out_print(o, "\"/>\n");
}

static void dlpi_svg_borders(dlpi_out *o, const dlpi_view *v, int y, int height) {
    for (int i = 0; i < v->n_borders; i++)
        dlpi_out_print(o, "<path class=\"border\" d=\"M%d.5 %dv%d\"/>\n", v->borders[i].x, y - 2,
                       height + 2);
}

/* Neighbouring stretches that are drawn as one rect. */
typedef struct dlpi_run {
    uint64_t begin, end;
    uint64_t sum[DLPI_EVENT_KINDS]; /* ns of each kind */
    uint64_t low, high;             /* first and last batch that was worked on */
    uint64_t sequence, longest;
    uint64_t items;
    uint32_t epoch;
    int n; /* stretches merged into it; 0: no run is open */
} dlpi_run;

/* Write the tooltip of a run: its lane, what it was, which batches, how many items, and how long.
   kind: the kind that takes most of the run. */
static void dlpi_run_title(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane,
                           const dlpi_run *r, int kind, bool on_batch) {
    const uint64_t length = r->end - r->begin;
    dlpi_out_print(o, "<title>");
    dlpi_out_escaped(o, lane->name, sizeof lane->name, 32, false);
    dlpi_out_print(o, ": ");
    if (r->n > 1)
        dlpi_out_print(o, "%d stretches, %s %% ", r->n,
                       dlpi_num_percent(dlpi_part_of(r->sum[kind], length)).s);
    dlpi_out_print(o, "%s", dlpi_event_kinds[kind].words);
    if (on_batch && r->low == r->high)
        dlpi_out_print(o, ", batch %" PRIu64 " of epoch %" PRIu32, r->sequence, r->epoch);
    else if (on_batch)
        dlpi_out_print(o, ", batches %" PRIu64 " to %" PRIu64, r->low, r->high);
    if (on_batch && r->items > 0)
        dlpi_out_print(o, ", %" PRIu64 " item%s", r->items, r->items == 1 ? "" : "s");
    dlpi_out_print(o, ", %s, at %s</title>", dlpi_num_ns(length).s,
                   dlpi_num_time(r->begin, v->t1, (v->t1 - v->t0) / 10000).s);
}

/* Draw a run as a bar, with a tooltip, and with the batch's number if there is room and no epoch
   border crosses the number. The kind that takes most of the run gives the colour. */
static void dlpi_run_draw(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, const dlpi_run *r,
                          int y, int h) {
    const int colour = (int)(r->sequence % DLPI_SVG_COLOURS);
    int kind = 1;
    for (int k = 2; k < DLPI_EVENT_KINDS; k++) kind = r->sum[k] > r->sum[kind] ? k : kind;
    const bool on_batch = kind == DLP_TRACE_WORK || kind == DLP_TRACE_STEP;
    int a = dlpi_timeline_x(v, r->begin), w = dlpi_timeline_x(v, r->end) - a;
    const int thin = h * 3 / 10 < 1 ? 1 : h * 3 / 10;
    const char css[] = {dlpi_event_kinds[kind].colour, on_batch ? (char)('0' + colour) : 0, 0};
    char number[24];
    if (w <= 0) { return; }
    w -= w > 300 ? 50 : 0; /* a hair of white between neighbours */
    y += kind == DLP_TRACE_STARVED ? h - thin : 0;
    h = kind == DLP_TRACE_STARVED || kind == DLP_TRACE_BLOCKED ? thin : h;
    dlpi_svg_rect(o, css, a, w, y, h, ">");
    dlpi_run_title(o, v, lane, r, kind, on_batch);
    dlpi_out_print(o, "</rect>\n");
    const int digits = snprintf(number, sizeof number, "%" PRIu64, r->sequence);
    const int x = (a + w / 2) / 100, half = digits * 3;
    if (!on_batch || r->n > 1 || h < 11 || w <= digits * 600 + 250) return;
    for (int i = 0; i < v->n_borders; i++)
        if (v->borders[i].x + 1 >= x - half && v->borders[i].x <= x + half) return;
    dlpi_svg_text(o, colour % 2 ? "num1" : "num0", x, y + h / 2 + 3, number, 24);
}

/* Add to a run the part of event e from `begin` to `end`. If no run is open, the event begins one.
   */
static void dlpi_run_add(dlpi_run *r, const dlp_trace_event *e, uint64_t begin, uint64_t end) {
    if (r->n == 0) {
        memset(r, 0, sizeof *r);
        r->begin = begin;
        r->low = UINT64_MAX;
    }
    r->n++;
    r->end = end;
    r->sum[e->kind] += end - begin;
    if (e->kind != DLP_TRACE_WORK && e->kind != DLP_TRACE_STEP) { return; }
    r->items += e->items;
    r->low = e->sequence < r->low ? e->sequence : r->low;
    r->high = e->sequence > r->high ? e->sequence : r->high;
    if (end - begin > r->longest) {
        r->longest = end - begin;
        r->sequence = e->sequence;
        r->epoch = e->epoch;
    }
}

/* Draw what lies in the window of a lane, in stretches of height h. Narrow neighbours are drawn as
   one. */
static void dlpi_svg_lane(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, int y, int h) {
    const dlp_trace_event *e;
    uint64_t begin, end = 0;
    dlpi_run r = {.n = 0};
    for (int i = 0; (e = dlpi_lane_next(lane, v, &i, &begin, &end)) != NULL;) {
        const bool wide = end - begin >= v->least_ns || r.end - r.begin >= v->least_ns;
        if (r.n > 0 && (wide || begin - r.end >= v->least_ns)) {
            dlpi_run_draw(o, v, lane, &r, y, h);
            r.n = 0;
        }
        dlpi_run_add(&r, e, begin, end);
    }
    if (r.n > 0) dlpi_run_draw(o, v, lane, &r, y, h);
}

/* Write the heading of a group of n lanes: its name, and the shares of its time. The shares are of
   the recorded time alone. */
static void dlpi_svg_heading(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                             const dlp_stats *s, int y) {
    const int group = lanes[0].group;
    const bool known =
        s != NULL && group >= 0 && group < DLP_MAX_STAGES && group < (int)s->n_stages;
    const dlp_stage_stats *st = known ? &s->stages[group] : NULL;
    uint64_t sum[DLPI_EVENT_KINDS] = {0};
    int silent = 0;
    double whole = 0; /* what is hatched is not known */
    for (int i = 0; i < n; i++) {
        whole += (double)dlpi_lane_recorded(&lanes[i], v);
        dlpi_lane_sums(&lanes[i], v, sum);
        silent += lanes[i].n == 0;
    }
    dlpi_out_print(o, "<text class=\"head\" x=\"16\" y=\"%d\">", y + 14);
    dlpi_out_escaped(o, group < 0 ? "consumer" : st ? st->name : "stage", 32, 24, false);
    dlpi_out_print(o, "<tspan font-weight=\"normal\" fill=\"#555\">");
    if (whole <= 0)
        dlpi_out_print(o, ": %d lane%s, nothing recorded in this window", n, n == 1 ? "" : "s");
    else if (group < 0)
        dlpi_out_print(o, ": in its step %s %%, waiting %s %% of this window%s",
                       dlpi_num_percent((double)sum[DLP_TRACE_STEP] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_WAIT] / whole).s,
                       s != NULL && s->n_workers == 0
                           ? "; without workers, that is where items are fetched"
                           : "");
    else
        dlpi_out_print(o, ": %d worker%s, at work %s %%, starved %s %%, blocked %s %%", n,
                       n == 1 ? "" : "s", dlpi_num_percent((double)sum[DLP_TRACE_WORK] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_STARVED] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_BLOCKED] / whole).s);
    /* What the stretches are if they are not one item after another of the consumer's batches. */
    if (st && st->in_flight > 1)
        dlpi_out_print(o, "; each has up to %d items under way", (int)st->in_flight);
    if (st && (st->cells > 0 || s->chunks.cpu_buffers > 0))
        dlpi_out_print(o, "; numbers are %s", st->cells > 0 ? "parts" : "chunks");
    if (silent > 0 && n > 1) dlpi_out_print(o, "; %d recorded nothing", silent);
    if (n > v->per_group) dlpi_out_print(o, "; the first %d are drawn", v->per_group);
    dlpi_out_print(o, "</tspan></text>\n");
}

/* Draw the ground of a lane. It is grey from begin to end, where events are recorded. It is hatched
   where older events were overwritten, and where an event goes on, which is recorded at its end. */
static void dlpi_svg_track(dlpi_out *o, const dlpi_view *v, uint64_t begin, uint64_t end, int y,
                           int height) {
    int left = DLPI_SVG_LEFT * 100, right = left + DLPI_SVG_PLOT * 100;
    int a = dlpi_timeline_x(v, begin), b = dlpi_timeline_x(v, end);
    a = a - left < 200 ? left : a; /* two pixels are not worth a pattern */
    b = right - b < 200 ? right : b;
    if (begin >= end || end <= v->t0 || begin >= v->t1) { a = b = right; }
    const int x[] = {left, a, b, right};
    for (int i = 0; i < 3; i++)
        if (x[i + 1] > x[i])
            dlpi_svg_rect(o, i == 1 ? "t" : "n", x[i], x[i + 1] - x[i], y, height, "/>\n");
}

/* Draw one group: heading, tracks, grid, lanes, epoch borders. Returns the y below it. */
static int dlpi_svg_group(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                          const dlp_stats *s, int y) {
    const int drawn = n < v->per_group ? n : v->per_group;
    const int pitch = lanes[0].group < 0 ? v->consumer_pitch : v->pitch;
    const int bar = pitch - (pitch >= 11 ? 3 : 1), font = pitch > v->font ? v->font : 9;
    const int every = pitch >= 11 ? 1 : (font + 1 + pitch) / pitch;
    dlpi_svg_heading(o, v, lanes, n, s, y);
    y += DLPI_SVG_HEADING;
    for (int i = 0; i < drawn; i++) {
        const dlp_trace_event *e = lanes[i].events;
        const int last = lanes[i].n - 1;
        dlpi_svg_track(o, v, last < 0 ? 0 : e[0].begin_ns, last < 0 ? 0 : e[last].end_ns,
                       y + i * pitch, bar);
    }
    dlpi_svg_grid(o, v, y, drawn * pitch);
    for (int i = 0; i < drawn; i++) {
        const int top = y + i * pitch;
        if (i % every == 0)
            dlpi_svg_text(o, "lane", DLPI_SVG_LEFT - 8, top + bar / 2 + font * 4 / 10,
                          lanes[i].name, (DLPI_SVG_LEFT - 16) * 100 / (66 * font));
        dlpi_svg_lane(o, v, &lanes[i], top, bar);
    }
    dlpi_svg_borders(o, v, y, drawn * pitch);
    return y + drawn * pitch + DLPI_SVG_GAP;
}

/* ---- counters ---- */

/* Return the mean of a curve over [from, to), by time. *i is the sample that holds at `from`; it
   moves on to the sample that holds at `to`. */
static double dlpi_curve_mean(const dlpi_curve *c, uint64_t *i, uint64_t from, uint64_t to) {
    double sum = 0;
    uint64_t at = from, end;
    while (*i + 1 < c->n && c->samples[*i + 1].at_ns <= from) { ++*i; }
    for (;; ++*i, at = end) {
        end = *i + 1 < c->n && c->samples[*i + 1].at_ns < to ? c->samples[*i + 1].at_ns : to;
        sum += c->samples[*i].value * (double)(end > at ? end - at : 0);
        if (end == to) { return to > from ? sum / (double)(to - from) : c->samples[*i].value; }
    }
}

/* Set means for columns of a pixel each. Returns the first column that has one. */
static int dlpi_curve_columns(const dlpi_view *v, const dlpi_curve *c, double *mean) {
    uint64_t length = v->t1 - v->t0, i = 0;
    int first = DLPI_SVG_PLOT;
    for (int x = 0; x < DLPI_SVG_PLOT && c->n > 0; x++) {
        uint64_t from = v->t0 + (uint64_t)((double)length * x / (int)DLPI_SVG_PLOT);
        uint64_t to = v->t0 + (uint64_t)((double)length * (x + 1) / (int)DLPI_SVG_PLOT);
        if (to <= c->samples[0].at_ns) { continue; }
        from = from < c->samples[0].at_ns ? c->samples[0].at_ns : from;
        first = first < x ? first : x;
        mean[x] = dlpi_curve_mean(c, &i, from, to);
    }
    return first;
}

/* Draw a counter as a filled curve, with its name and its mean; the tooltip has the extremes, too.
   The top is the counter's `most`, or the largest mean if `most` is 0. */
static void dlpi_svg_curve(dlpi_out *o, const dlpi_view *v, const dlpi_curve *c, int y) {
    double mean[DLPI_SVG_PLOT], low = 0, high = 0, sum = 0;
    const int first = dlpi_curve_columns(v, c, mean), height = DLPI_SVG_CURVE - 6;
    char words[80];
    int last = -1;
    for (int x = first; x < DLPI_SVG_PLOT; x++) {
        low = x == first || mean[x] < low ? mean[x] : low;
        high = x == first || mean[x] > high ? mean[x] : high;
        sum += mean[x];
    }
    const double top = c->most == 0 ? high : c->most;
    dlpi_svg_track(o, v, c->n > 0 ? c->samples[0].at_ns : 0, c->n > 0 ? v->t1 : 0, y, height);
    dlpi_svg_grid(o, v, y, height);
    dlpi_svg_text(o, "lane", DLPI_SVG_LEFT - 8, y + 14, c->name, 17);
    if (first == DLPI_SVG_PLOT) return;
    dlpi_out_print(o, "<path class=\"c\" d=\"M%d %d", DLPI_SVG_LEFT + first, y + height);
    for (int x = first; x < DLPI_SVG_PLOT; x++) {
        const double share = top > 0 ? mean[x] / top : 0;
        const int h = (int)((share < 1 ? share : 1) * height * 10 + 0.5), up = height * 10 - h;
        if (h != last) dlpi_out_print(o, "H%dV%d.%d", DLPI_SVG_LEFT + x, y + up / 10, up % 10);
        last = h;
    }
    snprintf(words, sizeof words, "%s %s", dlpi_num_of(sum / (DLPI_SVG_PLOT - first)).s, c->unit);
    dlpi_out_print(o, "H%dV%dz\"><title>", DLPI_SVG_LEFT + DLPI_SVG_PLOT, y + height);
    dlpi_out_escaped(o, c->name, sizeof c->name, 32, false);
    dlpi_out_print(o, ": mean ");
    dlpi_out_escaped(o, words, sizeof words, 60, false);
    dlpi_out_print(o, ", from %s to %s</title></path>\n", dlpi_num_of(low).s, dlpi_num_of(high).s);
    dlpi_svg_text(o, "lane", DLPI_SVG_LEFT - 8, y + 29, words, 17);
}

/* Draw the user's counters below the stages. Returns the y below them. */
static int dlpi_svg_curves(dlpi_out *o, const dlpi_view *v, const dlpi_picture *p, int y) {
    if (p->n_curves == 0) { return y; }
    dlpi_svg_text(o, "head", 16, y + 14, "counters", 24);
    y += DLPI_SVG_HEADING;
    for (int i = 0; i < p->n_curves; i++)
        dlpi_svg_curve(o, v, &p->curves[i], y + i * DLPI_SVG_CURVE);
    dlpi_svg_borders(o, v, y, p->n_curves * DLPI_SVG_CURVE);
    return y + p->n_curves * DLPI_SVG_CURVE + DLPI_SVG_GAP;
}

/* Number the epochs under their borders, as far as there is room. Returns the y below them. */
static int dlpi_svg_epochs(dlpi_out *o, const dlpi_view *v, int y) {
    const int right = DLPI_SVG_WIDTH - 60;
    for (int i = 0, last = -1000; i < v->n_borders; i++) {
        const int x = v->borders[i].x;
        char words[40];
        if (x < last + 140) continue;
        last = x;
        snprintf(words, sizeof words, "epoch %" PRIu32, v->borders[i].epoch);
        dlpi_svg_text(o, "epoch", x > right ? right : x, y + 6, words, 16);
    }
    return v->n_borders > 0 ? y + DLPI_SVG_BORDER : y;
}

/* Write a timeline as SVG. Returns DLP_OK, or the code of the choice of the window. Write failures
   are kept in *o. */
static int dlpi_svg_write(dlpi_out *o, const dlpi_picture *p) {
    dlpi_view v;
    memset(&v, 0, sizeof v);
    int rc = dlpi_timeline_choose(&v, p), y = DLPI_SVG_TOP + DLPI_SVG_AXIS;
    if (rc != DLP_OK) { return rc; }
    dlpi_timeline_layout(&v, p->lanes, p->n_lanes, p->n_curves);
    if (v.t1 == v.t0) { v.height = DLPI_SVG_TOP; }
    dlpi_svg_style(o, DLPI_SVG_WIDTH, v.height, v.font);
    dlpi_svg_header(o, &v, p);
    if (v.t1 > v.t0) {
        dlpi_svg_legend(o);
        dlpi_svg_ticks(o, &v, y - 4);
        for (int i = 0, n; i < p->n_lanes; i += n) {
            n = dlpi_group_size(p->lanes, p->n_lanes, i);
            y = dlpi_svg_group(o, &v, p->lanes + i, n, p->stats, y);
        }
        y = dlpi_svg_curves(o, &v, p, y);
        y = dlpi_svg_epochs(o, &v, y);
        dlpi_svg_ticks(o, &v, y + 10);
    }
    dlpi_out_print(o, "</svg>\n");
    return DLP_OK;
}
