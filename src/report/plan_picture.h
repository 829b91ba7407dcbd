/* needs: pictures */
#pragma once
/* tests: system/report/plan_picture */
#include "api/kinds.h"
#include "api/pipe.h"
#include "report/timeline.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-plan-picture      A PLAN AS A PICTURE
   One column of boxes: the stages in the order of the data, and the consumer. A stage without a
   link of its own sticks to the box above it. A link to the next box is a straight arrow with its
   words at the right. Any other link is an arc at the left. */

enum {
    DLPI_PLAN_WIDTH = 840,
    DLPI_PLAN_TOP = 64,
    DLPI_PLAN_BOX_X = 310,
    DLPI_PLAN_BOX = 330, /* width of a box */
    DLPI_PLAN_BOX_HEIGHT = 40,
    DLPI_PLAN_STUCK = 22, /* height of a box that sticks to the one above it */
    DLPI_PLAN_GAP = 44,
    DLPI_PLAN_LANE = 16, /* from arc to arc */
    DLPI_PLAN_LINE = 14  /* from one line of text to the next */
};

/* Where the boxes are. The consumer is the last of them. */
typedef struct dlpi_boxes {
    const dlp_plan *plan;
    int n;
    int y[DLP_MAX_STAGES + 1], height[DLP_MAX_STAGES + 1];
    int head[DLP_MAX_STAGES + 1];   /* the box that this one sticks to, or the box itself */
    int arcs, words[DLP_MAX_LINKS]; /* words[arc]: where its words are */
    const dlp_link *arc[DLP_MAX_LINKS];
} dlpi_boxes;

static bool dlpi_plan_drawable(const dlp_plan *plan) {
    return plan->n_stages <= DLP_MAX_STAGES && plan->n_links <= DLP_MAX_LINKS;
}

/* What a kind does, by the word that tables of nodes have. */
static void dlpi_plan_kind(int32_t kind, char *text, size_t size) {
#define DLPI_KIND_NAME(name, number, ops) [number] = #name,
    static const char *const kinds[] = {DLPI_STAGE_KINDS(DLPI_KIND_NAME)};
#undef DLPI_KIND_NAME
    static const char *const verbs[] = {
        [DLP_STAGE_SAMPLER] = "list",
        [DLP_STAGE_REPEAT] = "epochs",
        [DLP_STAGE_MAP_ITEM] = "map",
        [DLP_STAGE_MAP_BATCH] = "map of batches",
        [DLP_STAGE_PARTS] = "load",              /* needs: parts */
        [DLP_STAGE_FOUND] = "load",              /* needs: parts */
        [DLP_STAGE_JOIN] = "fetch",              /* needs: join */
        [DLP_STAGE_SCRATCH] = "fields that end", /* needs: scratch */
    };
    const size_t k = (size_t)kind;
    const char *word = k < sizeof verbs / sizeof *verbs ? verbs[k] : NULL;
    if (word == NULL && k < sizeof kinds / sizeof *kinds) word = kinds[k];
    snprintf(text, size, "%s", word != NULL ? word : "?");
    for (char *c = text; *c != 0; c++) *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
}

static bool dlpi_plan_linked(const dlp_plan *plan, int32_t stage) {
    for (uint32_t i = 0; i < plan->n_links; i++)
        if (plan->links[i].from_stage == stage || plan->links[i].to_stage == stage) return true;
    return false;
}

/* The box of a stage; that of the consumer for -1. */
static int dlpi_box_of(const dlpi_boxes *b, int32_t stage) {
    int i = 0;
    while (i < b->n - 1 && (stage < 0 || b->plan->stages[i].stage != stage)) i++;
    return i;
}

static void dlpi_boxes_lay(dlpi_boxes *b, const dlp_plan *plan) {
    int y = DLPI_PLAN_TOP - DLPI_PLAN_GAP;
    b->plan = plan;
    b->arcs = 0;
    b->n = (int)plan->n_stages + 1;
    for (int i = 0; i < b->n; i++) {
        const bool last = i == b->n - 1;
        const bool head = i == 0 || last || dlpi_plan_linked(plan, plan->stages[i].stage);
        b->head[i] = head ? i : b->head[i - 1];
        b->height[i] = head && !last ? DLPI_PLAN_BOX_HEIGHT : DLPI_PLAN_STUCK;
        b->y[i] = head ? y + DLPI_PLAN_GAP : y;
        y = b->y[i] + b->height[i];
    }
}

static void dlpi_box_draw(dlpi_out *o, const dlpi_boxes *b, int i) {
    const int y = b->y[i], x = DLPI_PLAN_BOX_X + 10;
    const dlp_plan_stage *st = i < b->n - 1 ? &b->plan->stages[i] : NULL;
    const bool head = b->head[i] == i, copies = st != NULL && strcmp(st->what, "copy") == 0;
    const char *name = st == NULL ? "consumer" : copies ? "copy into rows" : st->name;
    static const char *const runs_in[2][2] = {{"thread", "threads"},
                                              {"worker process", "worker processes"}};
    const char *const *run;
    char line[120], what[48];
    dlpi_text t = {line, sizeof line, 0};
    dlpi_svg_box(o, st != NULL ? "box" : "box user", DLPI_PLAN_BOX_X, y, DLPI_PLAN_BOX,
                 b->height[i]);
    dlpi_svg_text(o, head ? "head" : "sub", x, y + 16, name, 34);
    if (st == NULL) return;
    dlpi_plan_kind(st->kind, what, sizeof what);
    dlpi_text_add(&t, "%s%.47s", copies ? "stage " : "",
                  copies             ? st->name
                  : st->what[0] != 0 ? st->what
                                     : what);
    run = runs_in[st->placement & 1];
    if (st->workers > 0) dlpi_text_add(&t, "; %d %s", (int)st->workers, run[st->workers > 1]);
    if (st->workers == 0) dlpi_text_add(&t, "; in the consumer");
    if (!head && strcmp(line, st->name) == 0) return;
    dlpi_svg_text(o, "sub", head ? x : DLPI_PLAN_BOX_X + DLPI_PLAN_BOX / 2, y + (head ? 32 : 16),
                  line, head ? 60 : 30);
}

static void dlpi_link_words(dlpi_out *o, const char *css, int x, int y, const dlp_link *l) {
    char line[100];
    snprintf(line, sizeof line, "%s: %" PRIu64 " record%s, %" PRIu64 " bytes",
             dlp_link_name(l->kind), l->capacity, l->capacity == 1 ? "" : "s", l->bytes);
    dlpi_svg_text(o, css, x, y, line, 60);
    snprintf(line, sizeof line, "%d writer%s, %d reader%s", (int)l->writers,
             l->writers == 1 ? "" : "s", (int)l->readers, l->readers == 1 ? "" : "s");
    dlpi_svg_text(o, css, x, y + DLPI_PLAN_LINE, line, 60);
}

/* An arrow down to this box from the box above. l: NULL: there is no link, but data go there. */
static void dlpi_link_down(dlpi_out *o, const dlpi_boxes *b, int to, const dlp_link *l) {
    const int x = DLPI_PLAN_BOX_X + DLPI_PLAN_BOX / 2, y = b->y[to] - DLPI_PLAN_GAP;
    dlpi_out_print(o, "<path class=\"%s\" d=\"M%d %dV%d\"/>\n", l != NULL ? "link" : "link none", x,
                   y, b->y[to] - 7);
    dlpi_out_print(o, "<path d=\"M%d %dl-4 -8h8z\"/>\n", x, b->y[to]);
    if (l != NULL) dlpi_link_words(o, "words", x + 10, y + 18, l);
}

/* The place of the next arc's words, near y, which no other words have. */
static int dlpi_arc_words(dlpi_boxes *b, int y) {
    for (int i = 0; i < b->arcs; i++) {
        if (abs(b->words[i] - y) >= 2 * DLPI_PLAN_LINE + 4) continue;
        y = b->words[i] + 2 * DLPI_PLAN_LINE + 4;
        i = -1; /* from the first again: y only grows */
    }
    return b->words[b->arcs++] = y;
}

/* An arrow at the left. */
static void dlpi_link_arc(dlpi_out *o, dlpi_boxes *b, int from, int to, const dlp_link *l) {
    const int n = b->arcs, x = DLPI_PLAN_BOX_X, lane = x - 24 - n * DLPI_PLAN_LANE;
    const int y = b->y[from] + b->height[from] * 3 / 4, end = b->y[to] + b->height[to] / 4;
    dlpi_out_print(o, "<path class=\"link\" d=\"M%d %dH%dV%dH%d\"/>\n", x, y, lane, end, x - 7);
    dlpi_out_print(o, "<path d=\"M%d %dl-8 -4v8z\"/>\n", x, end);
    b->arc[n] = l;
    dlpi_arc_words(b, (y + end) / 2);
}

static void dlpi_links_draw(dlpi_out *o, dlpi_boxes *b) {
    const dlp_link *down[DLP_MAX_STAGES + 1] = {NULL};
    for (uint32_t i = 0; i < b->plan->n_links; i++) {
        const dlp_link *l = &b->plan->links[i];
        const int from = dlpi_box_of(b, l->from_stage), to = dlpi_box_of(b, l->to_stage);
        if (to > 0 && b->head[to - 1] == from && down[to] == NULL)
            down[to] = l;
        else
            dlpi_link_arc(o, b, from, to, l);
    }
    for (int i = 0; i < b->arcs; i++) /* over the lines of all arcs */
        dlpi_link_words(o, "arc", DLPI_PLAN_BOX_X - 30 - i * DLPI_PLAN_LANE, b->words[i],
                        b->arc[i]);
    for (int i = 1; i < b->n; i++)
        if (b->head[i] == i) dlpi_link_down(o, b, i, down[i]);
}

static int dlpi_plan_draw(dlpi_out *o, const dlpi_picture *p) {
    const dlp_plan *plan = p->plan;
    dlpi_view v;
    dlpi_boxes b;
    char line[200];
    memset(&v, 0, sizeof v);
    dlpi_boxes_lay(&b, plan);
    v.width = DLPI_PLAN_WIDTH;
    v.height = b.y[b.n - 1] + b.height[b.n - 1] + 16;
    v.font = 11;
    dlpi_svg_style(o, &v);
    dlpi_out_print(o, "<style>.box{fill:#eef3f8;stroke:#0072b2}.user{fill:#fdf3e1;stroke:#e69f00}"
                      ".link{fill:none;stroke:#555}.none{stroke-dasharray:3 3}.arc{"
                      "text-anchor:end;paint-order:stroke;stroke:#fff;stroke-width:3px}</style>\n");
    snprintf(line, sizeof line, "%" PRIu32 " stages, %s in all", plan->n_stages,
             dlpi_num_bytes((double)plan->total_bytes).s);
    dlpi_svg_text(o, "title", 16, 27, line, 80);
    snprintf(line, sizeof line, "%" PRIu64 " batches of %s each", plan->slots,
             dlpi_num_bytes((double)plan->slot_bytes).s);
    dlpi_svg_text(o, "sub", 16, 46, line, 120);
    dlpi_links_draw(o, &b);
    for (int i = 0; i < b.n; i++) dlpi_box_draw(o, &b, i);
    dlpi_out_print(o, "</svg>\n");
    return DLP_OK;
}
