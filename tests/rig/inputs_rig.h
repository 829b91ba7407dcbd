/* What expand.c and pack.c have in common: a pipe whose batches come out of inputs. */
#ifndef INPUTS_RIG_H
#define INPUTS_RIG_H

typedef struct rig2 {
    dlp_pipe_desc pipe;
    inside_sampler_desc sampler;
    inside_repeat_desc repeat;
    int packs; /* 1: pack is in the pipe, else expand is */
    inside_expand_desc expand;
    inside_pack_desc pack; /* needs: pack */
    dlp_dataset dataset;
    dlp_workers_desc fetch;
    dlp_batch_desc batch;
    dlp_item_fn map; /* NULL: there is none */
    int32_t map_on_error;
} rig2;

static int open_pipe(rig2 *r, dlp_pipe **p, dlp_error *err) {
    dlp_fetch_desc f = {.dataset = &r->dataset, .workers = r->fetch};
    inside_map_desc map = {.item = r->map, .workers = r->fetch};
    int rc = inside_pipe_open(p, &r->pipe, err);
    if (r->map_on_error) map.workers.on_error = r->map_on_error;
    if (rc != DLP_OK) return rc;
    inside_add_sampler(*p, &r->sampler);
    inside_add_repeat(*p, &r->repeat);
    if (r->packs) inside_add_pack(*p, &r->pack); /* needs: pack */
    if (!r->packs) inside_add_expand(*p, &r->expand);
    inside_add_fetch(*p, &f);
    if (r->map) inside_add_map(*p, &map);
    inside_add_batch(*p, &r->batch);
    if ((rc = dlp_pipe_start(*p)) == DLP_OK) return rc;
    *err = *dlp_pipe_error(*p);
    dlp_pipe_close(*p);
    return rc;
}

#endif
