/* What expand.c and pack.c have in common: a pipe whose batches come out of inputs. */
#ifndef INPUTS_RIG_H
#define INPUTS_RIG_H

typedef struct rig2 {
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    int packs;              /* 1: pack is in the pipe, else expand is, or a filter */
    dlp_node_expand expand; /* all 0: fetch leaves items out */
    dlp_node_pack pack;     /* needs: pack */
    dlp_workers_desc by;    /* makes the items */
    uint32_t cells, window, group;
    const char *group_by;
    dlp_dataset dataset;
    dlp_workers_desc fetch; /* copies the items into rows, and maps them */
    dlp_node_batch batch;
    dlp_item_fn map; /* NULL: there is none */
    int32_t map_on_error;
} rig2;

static int open_pipe(rig2 *r, dlp_pipe **p, dlp_error *err) {
    const int filters = !r->packs && r->expand.expand == NULL && r->expand.n_fields == 0;
    rig_table t = {.n = 0};
    dlp_dataset dataset = r->dataset;
    dlp_node makes = {.verb = filters    ? DLP_FILTER
                              : r->packs ? DLP_PACK
                                         : DLP_EXPAND,
                      .name = r->packs ? "pack" : "expand",
                      .workers = r->by,
                      .queue = {.capacity = r->cells}};
    dlp_node map = {.verb = DLP_MAP, .map = {.item = r->map}, .workers = r->fetch};
    dlp_node batch = {.verb = DLP_BATCH, .batch = r->batch};
    int rc;
    if (r->map_on_error) map.workers.on_error = r->map_on_error;
    if (r->packs) makes.pack = r->pack; /* needs: pack */
    if (makes.verb == DLP_EXPAND) makes.expand = r->expand;
    dataset.filter = filters;
    batch.batch.copy_workers = r->fetch.num_workers > 0 ? r->fetch.num_workers : DLP_NONE;
    table_list(&t, &r->sampler);
    table_fetch(&t, &(dlp_source){.dataset = &dataset}, 0);
    table_row(&t, makes);
    if (r->window)
        table_row(&t, (dlp_node){.verb = DLP_WINDOW, .window = {r->window, r->group, r->group_by}});
    if (r->map) table_row(&t, map);
    table_row(&t, batch);
    if ((rc = table_pipe(&t, p, &r->pipe, err)) != DLP_OK) return rc;
    if ((rc = dlp_pipe_start(*p)) == DLP_OK) return rc;
    *err = *dlp_pipe_error(*p);
    dlp_pipe_close(*p);
    return rc;
}

#endif
