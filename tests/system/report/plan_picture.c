/* needs: parts guard pictures out pack join scratch */
/* The picture of a plan: of a made-up plan, byte for byte as plan_picture.svg has it (`plan_picture
   write` writes it again); of tables that never run, each stage and each link of the plan; and of
   these, of all tables of examples/graph.c and of random plans: no text lies on an arrow, on the
   border of a box, or on another text (`plan_picture look FILE.svg` says what does). */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#define DLPIPE_IMPLEMENTATION_DONE     /* it is in the archive */
int graph_main(int argc, char **argv); /* not called */
#define main graph_main
#include "../../../examples/graph.c"
#undef main

#include "../../rig/check.h"
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/system/report/plan_picture.svg"
#define FILE_NAME "build/plan_picture.svg"

static char file[1 << 16];

static const char *read_file(const char *name) {
    FILE *f = fopen(name, "r");
    size_t n;
    if (f == NULL) {
        printf("%s cannot be read; start this program in the root of the project\n", name);
        exit(1);
    }
    n = fread(file, 1, sizeof file - 1, f);
    fclose(f);
    file[n] = 0;
    return file;
}

/* ---- what lies where ---- */

typedef struct shape {
    int left, right, top, bottom; /* pixels; of a line: left is right, or top is bottom */
    bool text;
    char line[200]; /* of the file */
} shape;
static shape shapes[1024];
static int n_shapes;

static void shape_add(bool text, int x, int end, int y, int below, const char *line) {
    shape *s = &shapes[n_shapes];
    CHECK(n_shapes + 1 < (int)(sizeof shapes / sizeof *shapes));
    n_shapes += n_shapes + 1 < (int)(sizeof shapes / sizeof *shapes);
    *s = (shape){.left = x < end ? x : end, .right = x < end ? end : x, .text = text};
    s->top = y < below ? y : below;
    s->bottom = y < below ? below : y;
    snprintf(s->line, sizeof s->line, "%.*s", (int)strcspn(line, "\n"), line);
}

/* Characters between > and <; &#38; is one. */
static int letters(const char *s) {
    int n = 0;
    for (s = strchr(s, '>') + 1; *s != '<' && *s != 0; s++, n++)
        if (*s == '&') s += strcspn(s, ";");
    return n;
}

/* A text has 0.64 em for each letter, as digits have in the widest of common fonts; 0.7 if bold. */
static void text_add(const char *line) {
    int x, y;
    char css[16];
    if (sscanf(line, "<text class=\"%15[^\"]\" x=\"%d\" y=\"%d\"", css, &x, &y) != 3) return;
    const bool title = strcmp(css, "title") == 0, bold = title || strcmp(css, "head") == 0;
    const int size = title ? 16 : bold ? 12 : 11;
    const int width = letters(line) * size * (bold ? 70 : 64) / 100;
    x -= strcmp(css, "arc") == 0 ? width : 0;
    shape_add(true, x, x + width, y - size * 3 / 4, y + size / 4, line);
}

/* Four borders. */
static void box_add(const char *line) {
    int x, y, w, h;
    const char *at = strstr(line, " x=");
    if (at == NULL ||
        sscanf(at, " x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", &x, &y, &w, &h) != 4)
        return;
    shape_add(false, x, x, y, y + h, line);
    shape_add(false, x + w, x + w, y, y + h, line);
    shape_add(false, x, x + w, y, y, line);
    shape_add(false, x, x + w, y + h, y + h, line);
}

/* The lines of an arrow: M, then H and V. */
static void path_add(const char *line) {
    int x = 0, y = 0, n = 0;
    const char *at = strstr(line, " d=\"M");
    if (at == NULL || sscanf(at, " d=\"M%d %d%n", &x, &y, &n) != 2) return;
    for (at += n; *at == 'H' || *at == 'V'; at += n) {
        const int old_x = x, old_y = y;
        if (sscanf(at + 1, "%d%n", *at == 'H' ? &x : &y, &n) != 1) return;
        n++;
        shape_add(false, old_x, x, old_y, y, line);
    }
}

/* True if two shapes share a point. */
static bool shapes_meet(const shape *a, const shape *b) {
    return a->left <= b->right && b->left <= a->right && a->top <= b->bottom && b->top <= a->bottom;
}

/* How many pairs of shapes, of which one is a text, lie over each other. */
static int overlaps(const char *svg, bool aloud) {
    int n = 0, width = 0, height = 0;
    n_shapes = 0;
    sscanf(strstr(svg, "<svg "), "<svg xmlns=%*s width=\"%d\" height=\"%d\"", &width, &height);
    for (const char *line = svg; line != NULL && *line != 0;
         line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, "<text ", 6) == 0) text_add(line);
        if (strncmp(line, "<rect class=\"box", 16) == 0) box_add(line);
        if (strncmp(line, "<path ", 6) == 0) path_add(line);
    }
    CHECK(n_shapes > 4);
    for (int i = 0; i < n_shapes; i++) {
        const shape *a = &shapes[i];
        for (int k = 0; k < n_shapes && a->text; k++) {
            if (k == i || (k < i && shapes[k].text) || !shapes_meet(a, &shapes[k])) continue;
            if (aloud || n == 0) printf("%s\nlies on\n%s\n", a->line, shapes[k].line);
            n++;
        }
        if (a->left < 0 || a->top < 0 || a->right > width || a->bottom > height) {
            printf("%s\nleaves a picture of %d x %d\n", a->line, width, height);
            n++;
        }
    }
    return n;
}

/* The picture of a plan. */
static const char *drawn(const dlp_plan *plan) {
    CHECK(dlp_pipe_write_graph(plan, FILE_NAME, NULL) == DLP_OK);
    return read_file(FILE_NAME);
}

static void link_of(dlp_plan *plan, int32_t from, int32_t to, int kind, int writers, int readers,
                    uint64_t capacity) {
    plan->links[plan->n_links++] = (dlp_link){.from_stage = from,
                                              .to_stage = to,
                                              .kind = kind,
                                              .writers = writers,
                                              .readers = readers,
                                              .capacity = capacity,
                                              .bytes = capacity * 24};
}

/* Stages that are numbered against their order; of each kind of words one; a link that two boxes
   have twice; and arcs whose middles are in one place. */
static dlp_plan made_up(void) {
    static const dlp_plan_stage stages[] = {
        {"shards", "", 7, DLP_STAGE_SAMPLER, 1, 0},
        {"repeat", "", 6, DLP_STAGE_REPEAT, -1, 0},
        {"load", "load, window 500", 5, DLP_STAGE_FOUND, 4, DLP_PLACE_PROCESSES},
        {"read <\"&'> of thirty-one letters", "", 4, DLP_STAGE_FETCH, 0, 0},
        {"sound", "", 3, DLP_STAGE_GUARD, 1, DLP_PLACE_PROCESSES},
        {"batch", "", 2, DLP_STAGE_BATCH, -1, 0},
        {"later", "", 1, 9999, 2, 0},
        {"gpu", "", 0, DLP_STAGE_TRANSFER, 1, 0}};
    dlp_plan plan = {.total_bytes = 5 << 20, .slots = 4, .slot_bytes = 1 << 20, .n_stages = 8};
    memcpy(plan.stages, stages, sizeof stages);
    link_of(&plan, -2, 4, DLP_LINK_MPSC, 16, 1, 4096);
    link_of(&plan, -1, 7, DLP_LINK_SPSC, 1, 1, 4);
    link_of(&plan, -1, 7, DLP_LINK_MPSC, 2, 1, 5);
    link_of(&plan, 7, 5, DLP_LINK_CLAIM, 1, 4, 40);
    link_of(&plan, 7, 4, DLP_LINK_CLAIM, 1, 1, 3);
    link_of(&plan, 4, 3, DLP_LINK_MPSC, 1, 1, 1);
    link_of(&plan, 3, 1, DLP_LINK_CLAIM, 1, 2, 3);
    link_of(&plan, 3, 1, 77, 1, 2, 3);
    link_of(&plan, 1, 0, DLP_LINK_GATHER, 2, 1, 3);
    link_of(&plan, 0, -1, DLP_LINK_SPSC, 1, 1, UINT64_C(1) << 40);
    link_of(&plan, -1, 0, DLP_LINK_SPSC, 1, 1, 2);
    return plan;
}

static void write_graph__made_up_plan__the_golden_picture(void) {
    static char got[sizeof file];
    const dlp_plan plan = made_up();
    snprintf(got, sizeof got, "%s", drawn(&plan));
    CHECK(strlen(got) > 2000 && strcmp(got, read_file(GOLDEN)) == 0);
    CHECK(overlaps(got, false) == 0);
}

static uint32_t count_of(const char *text, const char *what) {
    uint32_t n = 0;
    while ((text = strstr(text, what)) != NULL) n++, text++;
    return n;
}

/* All that the plan has is in the picture, once for each stage and link. */
static void plan_is_drawn(const dlp_plan *plan) {
    const char *svg = drawn(plan);
    char text[128];
    CHECK(count_of(svg, "<rect class=\"box") == plan->n_stages + 1);
    CHECK(count_of(svg, "class=\"words\"") + count_of(svg, "class=\"arc\"") == 2 * plan->n_links);
    CHECK(overlaps(svg, false) == 0);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const dlp_plan_stage *st = &plan->stages[i];
        const int copies = strcmp(st->what, "copy") == 0;
        snprintf(text, sizeof text, copies ? ">stage %s" : ">%s", st->name);
        CHECK(count_of(svg, text) >= 1);
        CHECK(!copies || count_of(svg, ">copy into rows</text>") == 1);
    }
    for (uint32_t i = 0; i < plan->n_links; i++) {
        const dlp_link *l = &plan->links[i];
        snprintf(text, sizeof text, ">%s: %" PRIu64 " record", dlp_link_name(l->kind), l->capacity);
        CHECK(count_of(svg, text) >= 1);
        snprintf(text, sizeof text, "%d %s%s, %d reader", l->writers,
                 l->from_stage == -2 ? "producer" : "writer", l->writers == 1 ? "" : "s",
                 l->readers);
        CHECK(count_of(svg, text) >= 1);
    }
}

static int nothing(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}
static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}
static int make_none(void *user, dlp_expand *x) {
    (void)user;
    (void)x;
    return 0;
}
static int load_none(void *user, dlp_part *part) {
    (void)user;
    part->items = 0;
    return 0;
}

static const dlp_field field = {.name = "x", .dtype = DLP_U32};

static dlp_plan planned(const dlp_node *nodes, uint32_t n) {
    dlp_error err;
    dlp_plan plan = {.n_stages = 0};
    CHECK(dlp_nodes_plan(nodes, n, NULL, &plan, &err) == DLP_OK);
    return plan;
}

static const dlp_plan_stage *stage_of(const dlp_plan *plan, const char *name) {
    static const dlp_plan_stage none;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        if (strcmp(plan->stages[i].name, name) == 0) return &plan->stages[i];
    return &none;
}

static void write_graph__tables__all_of_the_plan(void) {
    const dlp_node list = {.name = "items", .verb = DLP_LIST, .list = {.n_items = 100}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = nothing, .fields = &field, .n_fields = 1},
                           .workers = {.num_workers = 3}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}};
    const dlp_node keep = {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    dlp_node more = keep, last = keep, window = keep, map = {.name = "map", .verb = DLP_MAP};
    dlp_node expand = {.name = "make", .verb = DLP_EXPAND};
    dlp_node load = {.name = "load", .verb = DLP_LOAD};
    dlp_plan plan;
    more.name = "more";
    last.name = "last";
    window = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 7}};
    map.map.item = nothing;
    expand.expand = (dlp_node_expand){.expand = make_none, .max_out = 2};
    load.load = (dlp_node_load){.load = load_none, .max_items = 2, .max_part_bytes = 8};
    {
        const dlp_node nodes[] = {list, read, map, batch};
        plan = planned(DLP_NODES(nodes));
        plan_is_drawn(&plan);
        CHECK(strcmp(stage_of(&plan, "read")->what, "read, map") == 0 && plan.n_stages == 4);
    }
    map.workers.num_workers = DLP_NONE;
    {
        const dlp_node nodes[] = {list, read, map, batch};
        plan = planned(DLP_NODES(nodes));
        plan_is_drawn(&plan);
        CHECK(stage_of(&plan, "read")->workers == 3 && stage_of(&plan, "map")->workers == 0);
        CHECK(stage_of(&plan, "items")->workers == 0 && stage_of(&plan, "batch")->workers == -1);
        CHECK(stage_of(&plan, "batch")->kind == DLP_STAGE_BATCH);
        CHECK(stage_of(&plan, "map")->what[0] == 0 && plan.n_stages == 5);
    }
    {
        const dlp_node nodes[] = {list, read, keep, more, expand, last, window, batch};
        plan = planned(DLP_NODES(nodes));
        plan_is_drawn(&plan);
        CHECK(strcmp(stage_of(&plan, "make")->what, "2 filters, expand, filter, window 7") == 0);
        CHECK(stage_of(&plan, "make")->workers == 3);
    }
    {
        const dlp_node nodes[] = {list, read, keep, batch};
        plan = planned(DLP_NODES(nodes));
        CHECK(strcmp(stage_of(&plan, "keep")->what, "filter") == 0);
    }
    {
        static const char *const from[] = {"read", "more", NULL};
        static const dlp_field y = {.name = "y", .dtype = DLP_U64};
        dlp_node others = list, other = read;
        others.name = "others";
        other.name = "more";
        other.fetch.fields = &y;
        const dlp_node zip = {.name = "both", .from = from, .verb = DLP_ZIP};
        const dlp_node nodes[] = {list, read, others, other, zip, batch};
        plan = planned(DLP_NODES(nodes));
        plan_is_drawn(&plan);
        CHECK(count_of(file, ">read: 1 writer, 6 readers<") == 1);
        CHECK(count_of(file, ">more: 1 writer, 6 readers<") == 1);
    }
    {
        const dlp_node nodes[] = {list, load, window, read, batch};
        plan = planned(DLP_NODES(nodes));
        plan_is_drawn(&plan);
        CHECK(strcmp(stage_of(&plan, "load")->what, "load, window 7") == 0);
        CHECK(stage_of(&plan, "load")->workers == 1 && plan.n_stages == 5);
    }
}

/* The plan that a table of this example has. A second out passes nothing on. */
static void write_graph__tables_of_the_example__no_text_on_anything(void) {
    const size_t n = sizeof tables / sizeof *tables;
    quiet = 1;
    picture_file = FILE_NAME;
    for (size_t i = 0; i < n; i++) {
        CHECK(run_named(tables[i].name) == 0);
        CHECK(overlaps(read_file(FILE_NAME), false) == 0);
        CHECK(count_of(file, "link none") == (i < 4 ? 0 : 1));
    }
    CHECK(n == 9);
}

static int32_t draw(uint32_t n) {
    static uint64_t k;
    return (int32_t)(dlp_hash(1, k++, 0, 0) % n);
}

/* Links between any two boxes, as many as there may be. */
static void write_graph__random_plans__no_text_on_anything(void) {
    static const char *const names[] = {"a", "read", "copy", "thirty-one letters and of any width"};
    for (int i = 0; i < 200; i++) {
        dlp_plan plan = {.total_bytes = 5 << 20, .slots = 4, .slot_bytes = 1 << 20};
        plan.n_stages = 1 + (uint32_t)draw(DLP_MAX_STAGES);
        for (uint32_t j = 0; j < plan.n_stages; j++) {
            dlp_plan_stage *st = &plan.stages[j];
            *st = (dlp_plan_stage){.stage = (int32_t)j, .kind = draw(20), .workers = draw(66) - 1};
            snprintf(st->name, sizeof st->name, "%.31s", names[draw(4)]);
            snprintf(st->what, sizeof st->what, "%s", draw(2) ? "" : "2 filters, expand, copy");
        }
        const uint32_t links = (uint32_t)draw(DLP_MAX_LINKS + 1);
        while (plan.n_links < links) {
            const int32_t from = draw(plan.n_stages + 2) - 2, to = draw(plan.n_stages + 1) - 1;
            if (from == to || (from == -2 && to <= 0)) continue; /* no producer of the first box */
            link_of(&plan, from, to, draw(5), draw(65), draw(65), UINT64_C(1) << draw(58));
        }
        CHECK(overlaps(drawn(&plan), false) == 0);
    }
}

static void write_graph__wrong__refused(void) {
    dlp_plan plan = made_up();
    dlp_error err = {0};
    CHECK(dlp_pipe_write_graph(NULL, FILE_NAME, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_write_graph(&plan, NULL, &err) == DLP_ERR_ARG && err.code == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "path") == 0 && strcmp(err.message, "path is NULL") == 0);
    errno = 0;
    CHECK(dlp_pipe_write_graph(&plan, "build/none/x.svg", &err) == DLP_ERR_SYSTEM &&
          errno == ENOENT && err.errnum == ENOENT);
    CHECK(strcmp(err.message, "build/none/x.svg: No such file or directory; check the path") == 0);
    errno = 0;
    CHECK(dlp_pipe_write_graph(&plan, "build/none/x.svg", NULL) == DLP_ERR_SYSTEM &&
          errno == ENOENT);
    plan.n_links = DLP_MAX_LINKS + 1;
    CHECK(dlp_pipe_write_graph(&plan, FILE_NAME, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "plan") == 0 && strstr(err.message, "dlp_nodes_plan") != NULL);
    plan.n_links = DLP_MAX_LINKS;
    plan.n_stages = DLP_MAX_STAGES;
    CHECK(dlp_pipe_write_graph(&plan, FILE_NAME, NULL) == DLP_OK);
    plan.n_stages = DLP_MAX_STAGES + 1;
    CHECK(dlp_pipe_write_graph(&plan, FILE_NAME, NULL) == DLP_ERR_ARG);
    plan = (dlp_plan){.n_stages = 0};
    CHECK(dlp_pipe_write_graph(&plan, FILE_NAME, NULL) == DLP_OK);
}

int main(int argc, char **argv) {
    const dlp_plan plan = made_up();
    if (argc > 1 && strcmp(argv[1], "write") == 0)
        return dlp_pipe_write_graph(&plan, GOLDEN, NULL) != 0;
    if (argc > 2 && strcmp(argv[1], "look") == 0) return overlaps(read_file(argv[2]), true) != 0;
    write_graph__made_up_plan__the_golden_picture();
    write_graph__tables__all_of_the_plan();
    write_graph__tables_of_the_example__no_text_on_anything();
    write_graph__random_plans__no_text_on_anything();
    write_graph__wrong__refused();
    return test_end("plan_picture");
}
