/* A table with more stages than a pipe can have: the error names the node that is one too many. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"

enum { MAPS = 16 };

static int touch(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

/* A list, a fetch, so many maps, a batch: 4 stages and one for each map. */
static int opened(int maps, dlp_error *err) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U32};
    static char names[MAPS][8];
    const dlp_pipe_desc later = {.later = 1};
    dlp_node nodes[3 + MAPS] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 8}},
                                {.name = "read",
                                 .verb = DLP_FETCH,
                                 .fetch = {.fetch = touch, .fields = &x, .n_fields = 1}}};
    dlp_pipe *p = NULL;
    int rc;
    for (int i = 0; i < maps; i++) {
        snprintf(names[i], sizeof names[i], "map%d", i);
        nodes[2 + i] = (dlp_node){.name = names[i],
                                  .verb = DLP_MAP,
                                  .map = {.item = touch},
                                  .workers = {.num_workers = 1}};
    }
    nodes[2 + maps] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
    memset(err, 0, sizeof *err);
    rc = dlp_pipe_open(&p, nodes, 3 + (uint32_t)maps, &later, err);
    if (rc == DLP_OK) CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

static void open__one_stage_too_many__its_node_is_named(void) {
    static const char *const names[] = {"batch", "map13", "map13"};
    dlp_error err;
    CHECK(opened(12, &err) == DLP_OK);
    for (int more = 0; more < 3; more++) {
        CHECK(opened(13 + more, &err) == DLP_ERR_GRAPH);
        CHECK(strstr(err.message, "at most 16 stages") != NULL);
        CHECK(strcmp(err.stage, names[more]) == 0);
        if (strcmp(err.stage, names[more]) != 0)
            printf("stage \"%s\": %s\n", err.stage, err.message);
    }
}

int main(void) {
    open__one_stage_too_many__its_node_is_named();
    return test_end("most_stages");
}
