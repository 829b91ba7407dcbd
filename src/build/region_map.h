#pragma once
/* tests: system/build/pipe_plan, system/shm/monitor, system/core/pipe_fault */
#include "deliver/state.h"
#include "build/layout.h"
/* ---- the region: mapped, described for observers; and whether this process was forked ---- */

/* Map a page that has the mark of this process. So a process that is forked later knows that the
   pipe is not its own. Returns 0 or errno. */
static int dlpi_alive_page(uint8_t **alive) {
    void *at;
    int rc = dlpi_pages(&at, 4096);
    *alive = at;
    if (rc == 0) dlpi_page_mark(at, 4096);
    return rc;
}

/* True if this process is a fork of the one whose pipe this is. */
static inline bool dlpi_forked(const dlp_pipe *p) {
    return p->alive != NULL && !dlpi_page_marked(p->alive);
}

/* Set the pipe's error: the system allows no file of the region's size. Returns DLP_ERR_LIMIT. */
static int dlpi_region_too_large(dlp_pipe *p) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_LIMIT, "",
                   "the pipe's memory is a file of %" PRIu64 " bytes, above the limit of file "
                   "sizes; raise it (ulimit -f)",
                   p->region_bytes);
    e.errnum = EFBIG;
    return dlpi_pipe_fail(p, &e);
}

/* Map the region's memory. It is a sealed memfd if possible, so that other processes can map it,
   and else anonymous memory. If other processes must map it (needs_file), only a memfd will do.
   Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_region_map(dlp_pipe *p) {
    const bool must = p->needs_file != 0, huge = p->huge_pages > 1;
    const uint64_t bytes = p->region_bytes;
    const char *call = "";
    char text[100];
    void *at = NULL;
    int rc = 0;
    p->memfd = -1;
    if (must && !dlpi_file_may_be(bytes)) return dlpi_region_too_large(p);
    if (!p->d.no_memfd || must) rc = dlpi_memory_file(&p->memfd, &at, "dlpipe", bytes, huge, &call);
    if (at == NULL && must) {
        snprintf(text, sizeof text, "%s, for memory that several processes share,%s", call,
                 huge ? " in huge pages (see vm.nr_hugepages)" : "");
        return dlpi_system_fail(p, DLP_ERR_MEMORY, rc, text);
    }
    if (at == NULL) {
        dlpi_handle_close(p->memfd);
        p->memfd = -1;
        rc = dlpi_pages(&at, bytes);
    }
    if (rc != 0) return dlpi_system_fail(p, DLP_ERR_MEMORY, rc, "mmap of the region");
    p->region = at;
    if (p->huge_pages == 1 && (rc = dlpi_pages_huge(at, bytes)) != 0)
        dlpi_warn(p, "huge_pages: the kernel gives none: %s. Set DLP_HUGE_NONE, or enable them",
                  strerror(rc));
    if (p->n_procs == 0 || (rc = dlpi_memory_file_fill(p->memfd, bytes)) == 0) return DLP_OK;
    return dlpi_system_fail(p, DLP_ERR_MEMORY, rc, "reserving the region's memory");
}

/* Return a hash of the sizes of structs in the region. All processes that map the region to work on
   it must have the same hash. */
static uint64_t dlpi_layout_hash(void) {
    uint64_t sizes = sizeof(dlpi_region) + (sizeof(dlpi_ctl) << 16) +
                     ((uint64_t)sizeof(dlpi_worker_block) << 32);
    return dlp_hash(DLPI_MAGIC, sizes, sizeof(dlpi_bslot), DLPI_LINE + DLPI_REDZONE);
}

/* Return a hash of the places where observers find what they read. Sizes of structs are not in the
   hash, for structs may grow at their ends. */
static uint64_t dlpi_view_hash(void) {
#define DLPI_CTL(member) offsetof(dlpi_ctl, member)
#define DLPI_BLOCK(member) offsetof(dlpi_worker_block, member)
    /* clang-format off */
    static const size_t at[] = {
        DLPI_CTL(tail), DLPI_CTL(base), DLPI_CTL(delivered), DLPI_CTL(held), DLPI_CTL(items),
        DLPI_CTL(bytes), DLPI_CTL(wait_ns), DLPI_CTL(step_ns), DLPI_CTL(first_ns), DLPI_CTL(epoch),
        DLPI_CTL(started_ns), DLPI_CTL(stop), DLPI_CTL(error_ready), DLPI_CTL(error),
        DLPI_CTL(skips), DLPI_CTL(skip_ring),
        DLPI_BLOCK(items), DLPI_BLOCK(bytes), DLPI_BLOCK(busy_ns), DLPI_BLOCK(cpu_ns),
        DLPI_BLOCK(current), DLPI_BLOCK(since_ns), DLPI_BLOCK(retried), DLPI_BLOCK(left_out),
        DLPI_BLOCK(trace_head), DLPI_BLOCK(state), DLPI_BLOCK(max_ns), DLPI_BLOCK(hist),
        DLPI_BLOCK(max_index), DLPI_BLOCK(pid),
        offsetof(dlpi_stage_words, ready),
        sizeof(dlpi_skip), sizeof(dlp_error), sizeof(dlp_trace_event), DLPI_HIST, DLPI_SKIP_RING};
    /* clang-format on */
#undef DLPI_CTL
#undef DLPI_BLOCK
    uint64_t h = DLPI_FORMAT;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) h = dlp_hash(h, at[i], i, DLPI_MAGIC);
    return h;
}

/* Write two random numbers to token[2]. */
static void dlpi_token(uint64_t *token) {
    if (dlpi_random(token, 16)) return;
    token[0] = dlp_hash(dlpi_real_ns(), 0, (uint64_t)dlpi_process_number(), 1);
    token[1] = dlp_hash(token[0], dlpi_now_ns(), (uint64_t)(uintptr_t)token, 2);
}

/* Write the record that describes the pipe to observers, and the table of links behind the
   record. */
static void dlpi_pipe_describe(const dlp_pipe *p, dlpi_pipe_rec *r) {
    dlpi_copy_text(r->name, sizeof r->name, p->name);
    dlpi_token(r->token);
    r->started_real = dlpi_real_ns();
    r->pid = dlpi_process_number();
    r->memfd = p->memfd;
    r->uid = dlpi_user_number();
    r->n_stages = (uint32_t)p->n_stages;
    r->n_workers = (uint32_t)p->n_workers;
    r->n_work = (uint32_t)p->n_work;
    r->n_item_work = (uint32_t)p->n_item_work;
    r->shape = p->shape;
    r->cpus = p->cpus;
    r->has_item_cells = p->has_item_cells;
    r->plan_bytes = p->plan_bytes;
    r->global_batch = p->global_batch;
    r->batches_per_epoch = dlpi_epoch_batches(p);
    r->samples = p->samples;
    r->slot = p->slot;
    r->n_links = (int32_t)dlpi_links(p, (dlp_link *)(void *)(r + 1));
}

/* Write the fields of batches into the region's records r, for observers. */
static void dlpi_fields_describe(const dlp_pipe *p, dlpi_field_rec *r) {
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        dlpi_copy_text(r[f].name, sizeof r[f].name, d->name);
        r[f].dtype = d->f.dtype;
        r[f].ndim = d->f.ndim;
        r[f].ragged = d->f.ragged;
        memcpy(r[f].shape, d->f.shape, sizeof r[f].shape);
        r[f].elem_bytes = d->elem_bytes;
        r[f].row_bytes = d->row_bytes;
        r[f].capacity = d->capacity;
        r[f].offset = d->offset;
    }
}

/* Return the id of the area of the region that a record describes; 0 if observers do not know the
   area. */
static inline int dlpi_record_id(const dlpi_record *r) {
    if (r->stage == -1) return r->number < DLPI_REC_COUNT ? (int)r->number : 0;
    if (r->stage < 0 || r->stage >= DLP_MAX_STAGES || r->number >= DLPI_OWN_HIDDEN) return 0;
    return DLPI_OWN(r->stage, (int)r->number);
}

/* Write the region's header and its table of records. The magic is written last, so that an
   observer takes no half-made region for a complete one. */
static void dlpi_region_init(dlp_pipe *p) {
    dlpi_region *r = (dlpi_region *)(void *)p->region;
    dlpi_stage_rec *stages = dlpi_area_at(p, DLPI_REC_STAGES, 0);
    r->format = DLPI_FORMAT;
    r->header_bytes = sizeof *r;
    r->record_bytes = sizeof(dlpi_record);
    r->records_at = offsetof(dlpi_region, records);
    r->layout = dlpi_layout_hash();
    r->view = dlpi_view_hash();
    r->total_bytes = p->region_bytes;
    dlpi_pipe_describe(p, dlpi_area_at(p, DLPI_REC_PIPE, 0));
    for (int i = 0; i < p->n_stages; i++) dlpi_stage_describe(&p->stages[i], &stages[i]);
    dlpi_fields_describe(p, dlpi_area_at(p, DLPI_REC_FIELDS, 0));
    for (int id = 1; id < DLPI_AREAS && r->n_records < DLPI_RECORDS; id++) {
        const dlpi_area *a = &p->areas[id];
        const int own = id - DLPI_AREA_OWN, n = own < 0 ? id : own % DLPI_OWN_AREAS;
        const int32_t stage = own < 0 ? -1 : own / DLPI_OWN_AREAS;
        dlpi_record k = {stage, (uint32_t)n, a->offset, a->stride, a->count};
        if (a->count > 0 && dlpi_record_id(&k) == id) r->records[r->n_records++] = k;
    }
    DLPI_STORE_REL(&r->magic, DLPI_MAGIC); /* I1 -> I1 of an observer, which checks it first */
}
