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
   words at the right. Any other link is an arc at the left.

   Why no words lie on anything else:
   * Words of links stand between two boxes. Arcs bend beside boxes alone, so no level line is
     there.
   * Each arc has a lane, and its words are left of its line. The next lane begins left of all
     words of this lane, so no upright line of another lane meets them.
   * Arcs that share a lane have no height in common. Words stand within the height of their arc.
   * The arrow of producers begins in the gap above its box, where its words are. It has a lane like
     an arc, and its height has these words.
   * A box is as wide as its texts, which are cut to fit (dlpi_text_units). */

enum {
    DLPI_PLAN_TOP = 64,
    DLPI_PLAN_EDGE = 16,
    DLPI_PLAN_BOX_X = 310,    /* at least */
    DLPI_PLAN_BOX = 400,      /* width of a box */
    DLPI_PLAN_BOX_UNITS = 52, /* of text in a box (dlpi_text_units) */
    DLPI_PLAN_BOX_HEIGHT = 40,
    DLPI_PLAN_STUCK = 22, /* height of a box that sticks to the one above it */
    DLPI_PLAN_GAP = 44,
    DLPI_PLAN_FIRST = 24, /* from a box to the first lane of arcs */
    DLPI_PLAN_BESIDE = 6, /* from words to their arc */
    DLPI_PLAN_LINE = 14   /* from one line of text to the next */
};

/* A link that is drawn at the left. */
typedef struct dlpi_arc {
    const dlp_link *link;
    int y, end;      /* where it leaves its box, and where it comes in */
    int least, most; /* the same, sorted */
    int lane, words; /* its upright line; the top of the gap with its words */
} dlpi_arc;

/* Where the boxes are. The consumer is the last of them. */
typedef struct dlpi_boxes {
    const dlp_plan *plan;
    int n, x;         /* boxes; their left edge */
    int right, pitch; /* pixels from there to the end of words; from lane to lane */
    int y[DLP_MAX_STAGES + 1], height[DLP_MAX_STAGES + 1];
    int head[DLP_MAX_STAGES + 1]; /* the box that this one sticks to, or the box itself */
    const dlp_link *down[DLP_MAX_STAGES + 1]; /* the link from the box above it */
    int arcs;
    dlpi_arc arc[DLP_MAX_LINKS]; /* short ones first */
} dlpi_boxes;

static bool dlpi_plan_drawable(const dlp_plan *plan) {
    return plan->n_stages <= DLP_MAX_STAGES && plan->n_links <= DLP_MAX_LINKS;
}

/* Write the name of a kind of stage, in lower case, as documentation has it in tables of nodes. */
static void dlpi_plan_kind(int32_t kind, char *text, size_t size) {
#define DLPI_KIND_NAME(name, number, ops) [number] = #name,
    static const char *const kinds[] = {DLPI_STAGE_KINDS(DLPI_KIND_NAME)};
#undef DLPI_KIND_NAME
    static const char *const verbs[] = {
        [DLP_STAGE_SAMPLER] = "list", [DLP_STAGE_REPEAT] = "epochs",
        [DLP_STAGE_MAP_ITEM] = "map", [DLP_STAGE_MAP_BATCH] = "map of batches",
        [DLP_STAGE_PARTS] = "load",   [DLP_STAGE_FOUND] = "load",
        [DLP_STAGE_JOIN] = "fetch",   [DLP_STAGE_SCRATCH] = "fields that end",
    };
    const size_t k = (size_t)kind;
    const char *word = k < sizeof verbs / sizeof *verbs ? verbs[k] : NULL;
    if (word == NULL && k < sizeof kinds / sizeof *kinds) word = kinds[k];
    snprintf(text, size, "%s", word != NULL ? word : "?");
    for (char *c = text; *c != 0; c++) *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
}

/* Return the number of the box of a stage. A stage of -1 means the consumer. */
static int dlpi_box_of(const dlpi_boxes *b, int32_t stage) {
    int i = 0;
    while (i < b->n - 1 && (stage < 0 || b->plan->stages[i].stage != stage)) i++;
    return i;
}

/* Set the places and heights of the boxes: one for each stage, and the consumer's last. A stage
   without links sticks to the box above it. */
static void dlpi_boxes_lay(dlpi_boxes *b, const dlp_plan *plan) {
    bool linked[DLP_MAX_STAGES + 1] = {false};
    int y = DLPI_PLAN_TOP - DLPI_PLAN_GAP;
    b->plan = plan;
    b->n = (int)plan->n_stages + 1;
    for (uint32_t i = 0; i < plan->n_links; i++)
        linked[dlpi_box_of(b, plan->links[i].from_stage)] =
            linked[dlpi_box_of(b, plan->links[i].to_stage)] = true;
    for (int i = 0; i < b->n; i++) {
        const bool last = i == b->n - 1, head = i == 0 || last || linked[i];
        b->head[i] = head ? i : b->head[i - 1];
        b->height[i] = head && !last ? DLPI_PLAN_BOX_HEIGHT : DLPI_PLAN_STUCK;
        b->y[i] = head ? y + DLPI_PLAN_GAP : y;
        y = b->y[i] + b->height[i];
    }
}

/* Draw box i: the stage's name, what it does, and where its workers run. The last box is the
   consumer's. */
static void dlpi_box_draw(dlpi_out *o, const dlpi_boxes *b, int i) {
    const int y = b->y[i], x = b->x + 10;
    const dlp_plan_stage *st = i < b->n - 1 ? &b->plan->stages[i] : NULL;
    const bool head = b->head[i] == i, copies = st != NULL && strcmp(st->what, "copy") == 0;
    const char *name = st == NULL ? "consumer" : copies ? "copy into rows" : st->name;
    static const char *const runs_in[2][2] = {{"thread", "s"}, {"worker process", "es"}};
    char line[160], kind[48];
    dlpi_text t = {line, sizeof line, 0};
    dlpi_svg_box(o, st != NULL ? "box" : "box user", b->x, y, DLPI_PLAN_BOX, b->height[i]);
    if (head) dlpi_svg_text(o, "head", x, y + 16, name, 34);
    if (st == NULL) return;
    dlpi_plan_kind(st->kind, kind, sizeof kind);
    const char *what = st->what[0] != 0 ? st->what : kind;
    const bool said = !head && strcmp(what, st->name) == 0; /* by the name */
    if (!head) dlpi_text_add(&t, "%.31s%s", st->name, said ? "" : ": ");
    if (!said) dlpi_text_add(&t, "%s%.47s", copies ? "stage " : "", copies ? st->name : what);
    const char *const *run = runs_in[st->placement & 1];
    if (st->workers > 0)
        dlpi_text_add(&t, "; %d %s%s", (int)st->workers, run[0], st->workers > 1 ? run[1] : "");
    if (st->workers == 0) dlpi_text_add(&t, "; in the consumer");
    dlpi_svg_text(o, "sub", x, y + (head ? 32 : 16), line, DLPI_PLAN_BOX_UNITS);
}

/* Write the words of a link in two lines. They name the branch whose cells the link has, if these
   are not cells of the stage before it. Returns pixels that no common font exceeds. */
static int dlpi_link_lines(const dlpi_boxes *b, const dlp_link *l, char lines[2][100]) {
    const int from = dlpi_box_of(b, l->from_stage);
    const bool own = from == b->n - 1 || strcmp(b->plan->stages[from].name, l->from) == 0;
    const char *of = own ? "" : l->from;
    const char *writer = l->from_stage < -1 ? "producer" : "writer";
    const int n =
        snprintf(lines[0], 100, "%s: %" PRIu64 " record%s, %" PRIu64 " bytes",
                 dlp_link_name(l->kind), l->capacity, l->capacity == 1 ? "" : "s", l->bytes);
    const int m = snprintf(lines[1], 100, "%.31s%s%d %s%s, %d reader%s", of, of[0] != 0 ? ": " : "",
                           (int)l->writers, writer, l->writers == 1 ? "" : "s", (int)l->readers,
                           l->readers == 1 ? "" : "s");
    return (n > m ? n : m) * 726 / 100 + 1;
}

/* Draw the words of a link into a gap between two boxes. gap: the top of the gap, in pixels. */
static void dlpi_link_words(dlpi_out *o, const dlpi_boxes *b, const char *css, int x, int gap,
                            const dlp_link *l) {
    char lines[2][100];
    dlpi_link_lines(b, l, lines);
    dlpi_svg_text(o, css, x, gap + 18, lines[0], 100);
    dlpi_svg_text(o, css, x, gap + 18 + DLPI_PLAN_LINE, lines[1], 100);
}

/* Add an arc for a link, before all longer arcs. Its words come into the gap nearest to its middle.
   A link from producers has one box: from == to. */
static void dlpi_arc_add(dlpi_boxes *b, int from, int to, const dlp_link *l) {
    const int above = b->y[to] - DLPI_PLAN_GAP;
    const int y = from == to ? above : b->y[from] + b->height[from] * 3 / 4,
              end = b->y[to] + b->height[to] / 4;
    const int low = from < to ? from : to, high = from < to ? to : from;
    dlpi_arc a = {l, y, end, y < end ? y : end, y < end ? end : y, 0, b->y[high] - DLPI_PLAN_GAP};
    const int middle = (y + end - DLPI_PLAN_GAP) / 2;
    int i = b->arcs++;
    for (int k = low + 1; k < high; k++)
        if (b->head[k] == k && abs(b->y[k] - DLPI_PLAN_GAP - middle) < abs(a.words - middle))
            a.words = b->y[k] - DLPI_PLAN_GAP;
    for (; i > 0 && b->arc[i - 1].most - b->arc[i - 1].least > a.most - a.least; i--)
        b->arc[i] = b->arc[i - 1];
    b->arc[i] = a;
}

/* Give each arc the first lane in which it has no height in common with an arc before it. Returns
   the number of lanes. */
static int dlpi_arcs_lanes(dlpi_boxes *b) {
    int lanes = 0;
    for (int i = 0; i < b->arcs; i++) {
        dlpi_arc *a = &b->arc[i];
        for (int k = 0; k < i; k++) {
            const dlpi_arc *c = &b->arc[k];
            if (c->lane != a->lane || c->most < a->least || a->most < c->least) continue;
            a->lane++;
            k = -1; /* from the first again: the lane only grows */
        }
        lanes = a->lane < lanes ? lanes : a->lane + 1;
    }
    return lanes;
}

/* Make each link an arrow down or an arc. Lanes of arcs go from right to left, and the boxes come
   right of them. */
static void dlpi_links_lay(dlpi_boxes *b) {
    char lines[2][100];
    int left;
    b->right = DLPI_PLAN_BOX;
    for (uint32_t i = 0; i < b->plan->n_links; i++) {
        const dlp_link *l = &b->plan->links[i];
        const int to = dlpi_box_of(b, l->to_stage);
        const int from = l->from_stage < -1 ? to : dlpi_box_of(b, l->from_stage);
        const bool down = to > 0 && b->head[to - 1] == from && b->down[to] == NULL;
        const int pixels =
            dlpi_link_lines(b, l, lines) + (down ? DLPI_PLAN_BOX / 2 + 10 : 3 * DLPI_PLAN_BESIDE);
        int *const most = down ? &b->right : &b->pitch;
        *most = pixels > *most ? pixels : *most;
        if (down)
            b->down[to] = l;
        else
            dlpi_arc_add(b, from, to, l);
    }
    left = DLPI_PLAN_EDGE + DLPI_PLAN_FIRST + dlpi_arcs_lanes(b) * b->pitch;
    b->x = left > DLPI_PLAN_BOX_X ? left : DLPI_PLAN_BOX_X;
}

/* Draw all links with their words: the arcs beside the boxes, then the arrows between boxes. Data
   go to a box from the box above it, with a link or without: all stages but outs pass them on. */
static void dlpi_links_draw(dlpi_out *o, const dlpi_boxes *b) {
    for (int i = 0; i < b->arcs; i++) {
        const dlpi_arc *a = &b->arc[i];
        const int x = b->x - DLPI_PLAN_FIRST - a->lane * b->pitch;
        const int begin = a->link->from_stage < -1 ? x : b->x;
        dlpi_out_print(
            o, "<path class=\"link\" d=\"M%d %dH%dV%dH%d\"/>\n<path d=\"M%d %dl-8 -4v8z\"/>\n",
            begin, a->y, x, a->end, b->x - 7, b->x, a->end);
        dlpi_link_words(o, b, "arc", x - DLPI_PLAN_BESIDE, a->words, a->link);
    }
    for (int i = 1; i < b->n; i++) {
        const dlp_link *l = b->down[i];
        const int x = b->x + DLPI_PLAN_BOX / 2, y = b->y[i];
        const int32_t above = b->plan->stages[b->head[i - 1]].kind;
        if (b->head[i] != i || (l == NULL && (above == DLP_STAGE_OUT || above < 0))) continue;
        dlpi_out_print(o, "<path class=\"%s\" d=\"M%d %dV%d\"/>\n<path d=\"M%d %dl-4 -8h8z\"/>\n",
                       l != NULL ? "link" : "link none", x, y - DLPI_PLAN_GAP, y - 7, x, y);
        if (l != NULL) dlpi_link_words(o, b, "words", x + 10, y - DLPI_PLAN_GAP, l);
    }
}

/* Draw a plan as SVG. The plan must be drawable (dlpi_plan_drawable). Returns DLP_OK; write
   failures are kept in *o. */
static int dlpi_plan_draw(dlpi_out *o, const dlpi_picture *p) {
    const dlp_plan *plan = p->plan;
    dlpi_boxes b;
    char line[200];
    memset(&b, 0, sizeof b);
    dlpi_boxes_lay(&b, plan);
    dlpi_links_lay(&b);
    dlpi_svg_style(o, b.x + b.right + DLPI_PLAN_EDGE,
                   b.y[b.n - 1] + b.height[b.n - 1] + DLPI_PLAN_EDGE, 11);
    dlpi_out_print(o, "<style>.box{fill:#eef3f8;stroke:#0072b2}.user{fill:#fdf3e1;stroke:#e69f00}"
                      ".link{fill:none;stroke:#555}.none{stroke-dasharray:3 3}.arc{"
                      "text-anchor:end}\n@media(prefers-color-scheme:dark){.box{fill:#152532}"
                      ".user{fill:#332a18}path{fill:#9aa4ae}.link{stroke:#9aa4ae}}</style>\n");
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
