#pragma once
#include "build/region_map.h"
#include "report/stats.h"
#include "api/shm_monitor.h"
#include "shm/names.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-monitor     COPY, CHECK, THEN USE
   Everything is read by pread into private memory, checked there, and never read again. Numbers
   that are only printed are not checked; whatever is a size, a count, an index or a string is.
   The private pipe ("view") has just what >>impl-stats looks at; its "region" is the ready words
   of the slots alone, each stage's beside the other. */

#define DLPI_VIEW_TRACE (UINT64_C(64) << 20) /* bytes of traces copied, at most */
#define DLPI_VIEW_SLOTS 65536u
#define DLPI_VIEW_RING (1u << 20)
#define DLPI_VIEW_CELLS 4096u
#define DLPI_VIEW_WORDS (UINT64_C(1) << 24) /* of chunks that stay, or of device buffers */

struct dlp_monitor {
    int fd;           /* the region; -1: let go of */
    int proc, number; /* /proc/PID, and the memfd's number there; -1: not watched */
    dlp_monitor_info info;
    dlpi_record rec[DLPI_REC_COUNT];
    dlpi_pipe_rec pipe;
    dlpi_stage_rec stages[DLP_MAX_STAGES];
    dlp_pipe *view;
    dlpi_ctl ctl;           /* being read; view->ctl once it is checked */
    uint32_t *order;        /* [ring] being read; view->disp once it is checked */
    uint8_t *slot_seen;     /* [n_slots] */
    uint64_t *trace_head;   /* [n_workers + 1] in the region, when copied */
    uint64_t *trace_n;      /* [n_workers + 1] events that the copy has */
    dlp_trace_event *trace; /* [n_workers + 1][view->trace_events] */
    dlpi_wblock *blocks;    /* [n_workers + 1] */
};

/* Read n bytes at an offset inside element i of a record. */
static bool dlpi_view_read(const dlp_monitor *m, int type, uint64_t i, uint64_t offset, void *to,
                           uint64_t n) {
    const dlpi_record *r = &m->rec[type];
    if (i >= r->count || offset > r->stride || n > r->stride - offset) return false;
    return dlpi_read_at(m->fd, to, n, r->offset + i * r->stride + offset);
}

/* One line of the records' table. */
static int dlpi_view_record(dlp_monitor *m, const dlpi_record *r, uint64_t total, dlp_error *err) {
    if (r->type < 1 || r->type >= DLPI_REC_COUNT) return DLP_OK; /* of a newer version */
    if (m->rec[r->type].type != 0)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "record %u is there twice", r->type);
    if (r->offset % 8 != 0 || r->offset > total ||
        (r->count > 0 && r->stride > (total - r->offset) / r->count))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "record %u is outside the region", r->type);
    m->rec[r->type] = *r;
    return DLP_OK;
}

static int dlpi_view_header(dlp_monitor *m, dlp_error *err) {
    dlpi_region h;
    struct stat st;
    uint64_t bytes;
    memset(m->rec, 0, sizeof m->rec);
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "no file of memory");
    bytes = (uint64_t)st.st_size;
    if (!dlpi_read_at(m->fd, &h, offsetof(dlpi_region, records), 0))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "the region has no header");
    if (h.magic == 0) return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe is still starting");
    if (h.magic != DLPI_MAGIC)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "this memory is no pipe's");
    if (h.format != DLPI_FORMAT)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                              "the pipe's region has format %u, this program reads format %u",
                              h.format, DLPI_FORMAT);
    if (h.view != dlpi_view_hash())
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                              "the pipe's region has another layout than this program reads");
    if (h.total_bytes > bytes || h.n_records > 1024 || h.record_bytes < sizeof(dlpi_record) ||
        h.record_bytes > 4096 || h.records_at > h.total_bytes ||
        (uint64_t)h.n_records * h.record_bytes > h.total_bytes - h.records_at)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "the region's header is damaged");
    for (uint32_t i = 0; i < h.n_records; i++) {
        dlpi_record r;
        int rc;
        if (!dlpi_read_at(m->fd, &r, sizeof r, h.records_at + (uint64_t)i * h.record_bytes))
            return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "record %u can't be read", i);
        if ((rc = dlpi_view_record(m, &r, h.total_bytes, err)) != DLP_OK) return rc;
    }
    return DLP_OK;
}

/* Are there `count` of these, as large as they must be? */
static bool dlpi_view_has(const dlp_monitor *m, int type, uint64_t stride, uint64_t count) {
    return m->rec[type].type != 0 && m->rec[type].stride >= stride && m->rec[type].count == count;
}

static int dlpi_view_pipe(dlp_monitor *m, dlp_error *err) {
    dlpi_pipe_rec *r = &m->pipe;
    uint64_t lanes;
    bool ok;
    if (!dlpi_view_has(m, DLPI_REC_PIPE, sizeof *r, 1) ||
        !dlpi_view_read(m, DLPI_REC_PIPE, 0, 0, r, sizeof *r))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "the region does not describe its pipe");
    r->name[sizeof r->name - 1] = 0;
    lanes = (uint64_t)r->n_workers + 1;
    ok = r->n_stages >= 1 && r->n_stages <= DLP_MAX_STAGES && r->n_work >= 1 &&
         r->n_work <= r->n_stages && r->n_item_work <= r->n_work && r->n_workers >= 1 &&
         r->n_workers <= DLP_MAX_STAGES * DLP_MAX_WORKERS && r->batch_rows >= 1 &&
         r->batch_rows <= 1u << 30 && r->n_slots >= 1 && r->n_slots <= DLPI_VIEW_SLOTS &&
         r->prefetch < r->n_slots && r->max_held == r->n_slots - r->prefetch && r->ring >= 1 &&
         r->ring <= DLPI_VIEW_RING && (r->ring & (r->ring - 1)) == 0 && r->trace_events >= 2 &&
         r->trace_events <= 1u << 30 && r->cpus >= 0;
    ok = ok && dlpi_view_has(m, DLPI_REC_STAGES, sizeof(dlpi_stage_rec), r->n_stages) &&
         dlpi_view_has(m, DLPI_REC_CTL, sizeof(dlpi_ctl), 1) &&
         dlpi_view_has(m, DLPI_REC_ORDER, 4, r->ring) && m->rec[DLPI_REC_ORDER].stride == 4 &&
         dlpi_view_has(m, DLPI_REC_TAKEN, 1, r->ring) && m->rec[DLPI_REC_TAKEN].stride == 1 &&
         dlpi_view_has(m, DLPI_REC_WORKERS, sizeof(dlpi_wblock), lanes) &&
         m->rec[DLPI_REC_WORKERS].stride % 8 == 0 &&
         dlpi_view_has(m, DLPI_REC_SLOTS, 8, r->n_slots) &&
         dlpi_view_has(m, DLPI_REC_TRACE, r->trace_events * sizeof(dlp_trace_event), lanes);
    if (ok) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_CORRUPT, "",
                          "the region's description of its pipe is "
                          "damaged");
}

/* Does the stage have its place, its workers (none shared), its words in the slots? */
static bool dlpi_view_stage_ok(const dlp_monitor *m, const dlpi_stage_rec *s, int32_t id,
                               uint8_t *owned, uint32_t *works) {
    const dlpi_pipe_rec *p = &m->pipe;
    if (s->id != id || s->kind < 1 || s->kind > 255 || s->work < -1) return false;
    if (s->work < 0) return true;
    if ((uint32_t)s->work > p->n_work || (*works >> s->work & 1) != 0) return false;
    if (((uint32_t)s->work == p->n_work) != (s->kind == DLP_STAGE_PARTS)) return false;
    *works |= 1u << s->work;
    if (s->n_workers < 1 || s->n_workers > DLP_MAX_WORKERS || s->first_worker < 0 ||
        (uint32_t)s->first_worker > p->n_workers ||
        (uint32_t)s->n_workers > p->n_workers - (uint32_t)s->first_worker)
        return false;
    for (int32_t k = 0; k < s->n_workers; k++)
        if (owned[s->first_worker + k]++ != 0) return false;
    if (s->num_workers != 0 && s->num_workers != s->n_workers) return false;
    return s->sst_offset % 8 == 0 && s->sst_offset <= m->rec[DLPI_REC_SLOTS].stride - 8;
}

static int dlpi_view_stages(dlp_monitor *m, dlp_error *err) {
    uint8_t *owned = calloc((size_t)m->pipe.n_workers + 1, 1);
    uint32_t works = 0;
    bool ok = true;
    if (owned == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    for (uint32_t i = 0; ok && i < m->pipe.n_stages; i++) {
        dlpi_stage_rec *s = &m->stages[i];
        ok = dlpi_view_read(m, DLPI_REC_STAGES, i, 0, s, sizeof *s) &&
             dlpi_view_stage_ok(m, s, (int32_t)i, owned, &works);
        s->name[sizeof s->name - 1] = 0;
    }
    for (uint32_t i = 0; ok && i < m->pipe.n_workers; i++) ok = owned[i] == 1;
    for (uint32_t i = 0; ok && i < m->pipe.n_work; i++) ok = (works >> i & 1) != 0;
    free(owned);
    if (ok) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_CORRUPT, "",
                          "the region's description of its stages is "
                          "damaged");
}

static void dlpi_view_wire(dlp_monitor *m) {
    dlp_pipe *p = m->view;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        const dlpi_stage_rec *r = &m->stages[i];
        memcpy(st->name, r->name, sizeof st->name);
        st->w.name = st->name;
        st->kind = r->kind;
        st->id = i;
        st->next = st->prev = -1;
        st->work = r->work;
        st->w.placement = r->placement;
        st->w.deadline_ms = r->deadline_ms;
        st->in_flight = r->in_flight < 0 || r->in_flight > 1024 ? 0 : r->in_flight;
        if (st->kind == DLP_STAGE_SAMPLER) p->sampler = st;
        if (st->kind == DLP_STAGE_SPLIT) p->split = st;
        if (r->work < 0) continue;
        st->first_worker = r->first_worker;
        st->n_workers = r->n_workers;
        st->w.num_workers = st->transfer.threaded = r->num_workers;
        st->begin = r->n_workers;
        st->tuned = r->workers_min > 0 && r->workers_min <= r->n_workers;
        st->w.workers_min = r->workers_min;
        st->sst_offset = (uint64_t)r->work * sizeof(dlpi_sst);
        if (st->kind == DLP_STAGE_TRANSFER) p->xfer = st;
        if (r->work >= p->n_work)
            p->parts = st;
        else
            p->work[r->work] = st;
        for (int k = 0; k < st->n_workers; k++) {
            p->workers[st->first_worker + k].st = st;
            p->workers[st->first_worker + k].id = k;
        }
    }
    if (p->sampler == NULL) p->sampler = &p->stages[0];
    p->workers[p->n_workers].st = p->sampler;
    for (int i = 0; i <= p->n_workers; i++) {
        p->workers[i].p = p;
        p->workers[i].global = i;
        p->workers[i].wb = &m->blocks[i];
        p->workers[i].trace = m->trace + (size_t)i * p->trace_events;
    }
    p->trainer = &p->workers[p->n_workers];
}

static void dlpi_view_free(dlp_monitor *m) {
    if (m->view) {
        free(m->view->ctl);
        free(m->view->workers);
        free(m->view->region);
        free(m->view->disp);
        free(m->view->taken);
    }
    free(m->view);
    free(m->order);
    free(m->slot_seen);
    free(m->trace_head);
    free(m->trace_n);
    free(m->trace);
    free(m->blocks);
    m->view = NULL;
}

/* How large the cache is; what says nonsense is taken for none. */
static void dlpi_view_cache(dlp_monitor *m) {
    dlp_pipe *p = m->view;
    dlpi_cache_rec r;
    if (!dlpi_view_has(m, DLPI_REC_CACHE, sizeof r, 1) ||
        !dlpi_view_read(m, DLPI_REC_CACHE, 0, 0, &r, sizeof r) || r.cell_bytes == 0 ||
        r.n_cells > r.n_items || r.n_items > UINT64_MAX / r.cell_bytes)
        return;
    p->cache_cells = r.n_cells;
    p->cache_cell_bytes = r.cell_bytes;
    p->cache_items = r.n_items;
}

/* Make the private pipe for what the records say, still without its numbers. */
static int dlpi_view_make(dlp_monitor *m, dlp_error *err) {
    const dlpi_pipe_rec *r = &m->pipe;
    size_t lanes = (size_t)r->n_workers + 1;
    uint64_t most = DLPI_VIEW_TRACE / sizeof(dlp_trace_event) / lanes;
    dlp_pipe *p = m->view = calloc(1, sizeof *m->view);
    if (p == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    p->view = p->prepared = p->started = 1;
    p->memfd = p->name_fd = p->err.worker = -1;
    memcpy(p->name, r->name, sizeof p->name);
    p->d.name = p->name;
    p->d.unordered = r->unordered;
    p->n_stages = (int)r->n_stages;
    p->n_work = (int)r->n_work;
    p->n_item_work = (int)r->n_item_work;
    p->n_workers = (int)r->n_workers;
    p->prefetch = r->prefetch;
    p->max_held = r->max_held;
    p->n_slots = r->n_slots;
    p->ring = r->ring;
    p->batch_rows = r->batch_rows;
    p->words_max = r->words_max;
    p->units_max = r->units_max;
    p->cpus = r->cpus;
    p->plan_bytes = r->plan_bytes;
    p->batches_per_epoch = r->batches_per_epoch > INT64_MAX ? UINT64_MAX : r->batches_per_epoch;
    p->trace_events = r->trace_events < most ? r->trace_events : (uint32_t)most;
    p->areas[DLPI_REC_SLOTS].stride = r->n_work * sizeof(dlpi_sst);
    dlpi_view_cache(m);
    p->ctl = calloc(1, sizeof *p->ctl);
    p->workers = calloc(lanes, sizeof *p->workers);
    p->region = calloc(r->n_slots, (size_t)p->areas[DLPI_REC_SLOTS].stride);
    p->disp = calloc(r->ring, sizeof *p->disp);
    p->taken = calloc(r->ring, 1);
    m->order = calloc(r->ring, sizeof *m->order);
    m->slot_seen = calloc(r->n_slots, 1);
    m->trace_head = calloc(lanes, sizeof *m->trace_head);
    m->trace_n = calloc(lanes, sizeof *m->trace_n);
    m->trace = calloc(lanes * p->trace_events, sizeof *m->trace);
    m->blocks = calloc(lanes, sizeof *m->blocks);
    if (!p->ctl || !p->workers || !p->region || !p->disp || !p->taken || !m->order ||
        !m->slot_seen || !m->trace_head || !m->trace_n || !m->trace || !m->blocks)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    dlpi_view_wire(m);
    return DLP_OK;
}

/* The ready words of the batches in flight. */
static bool dlpi_view_ready(dlp_monitor *m, uint64_t from, uint64_t to) {
    dlp_pipe *p = m->view;
    memset(m->slot_seen, 0, p->n_slots);
    for (uint64_t b = from; b < to; b++) {
        uint32_t s = p->disp[b & (p->ring - 1)];
        if (m->slot_seen[s]++ != 0) continue;
        for (int i = 0; i < p->n_stages; i++) {
            const dlpi_stage *st = &p->stages[i];
            if (st->work >= 0 && st->work < p->n_work &&
                !dlpi_view_read(m, DLPI_REC_SLOTS, s,
                                m->stages[i].sst_offset + offsetof(dlpi_sst, ready),
                                &dlpi_sst_at(p, s, st)->ready, 8))
                return false;
            if (m->slot_seen[s] == 0) m->slot_seen[s] = 1;
        }
    }
    return true;
}

/* Counters and slots. The tail first, the base last: so a batch that is counted as in flight was
   so all the time, and its slot was not given to another while we looked. */
static bool dlpi_view_ctl(dlp_monitor *m) {
    dlp_pipe *p = m->view;
    dlpi_ctl *c = &m->ctl;
    uint64_t tail;
    if (!dlpi_view_read(m, DLPI_REC_CTL, 0, offsetof(dlpi_ctl, tail), &tail, 8) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c) ||
        !dlpi_read_at(m->fd, m->order, p->ring * sizeof *p->disp, m->rec[DLPI_REC_ORDER].offset))
        return false;
    for (uint32_t i = 0; i < p->ring; i++)
        if (m->order[i] >= p->n_slots) return false;
    if (c->base < tail && tail - c->base > p->ring) return false;
    memcpy(p->disp, m->order, p->ring * sizeof *p->disp);
    if (!dlpi_view_ready(m, c->base, tail)) return false;
    if (!dlpi_read_at(m->fd, p->taken, p->ring, m->rec[DLPI_REC_TAKEN].offset) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c))
        return false;
    if (c->base < tail && tail - c->base > p->ring) return false;
    c->tail = tail;
    c->error.stage[sizeof c->error.stage - 1] = 0;
    c->error.field[sizeof c->error.field - 1] = 0;
    c->error.message[sizeof c->error.message - 1] = 0;
    c->first_skip.stage[sizeof c->first_skip.stage - 1] = 0;
    c->first_skip.field[sizeof c->first_skip.field - 1] = 0;
    c->first_skip.message[sizeof c->first_skip.message - 1] = 0;
    *p->ctl = *c;
    if (c->error_ready != 0) p->err = c->error;
    return true;
}

/* The newest events of lane i, if there are any since the last time. */
static bool dlpi_view_trace(dlp_monitor *m, int i) {
    const dlp_pipe *p = m->view;
    dlp_trace_event *to = m->trace + (size_t)i * p->trace_events;
    uint64_t head, now, ring = m->pipe.trace_events, n, from, first, drop;
    const uint64_t each = sizeof *to, at = offsetof(dlpi_wblock, trace_head);
    if (!dlpi_view_read(m, DLPI_REC_WORKERS, (uint64_t)i, at, &head, 8)) return false;
    if (head == m->trace_head[i]) return true;
    n = head < ring ? head : ring - 1;
    if (n > p->trace_events - 1) n = p->trace_events - 1;
    from = head - n;
    first = n < ring - from % ring ? n : ring - from % ring; /* up to the ring's end */
    if (!dlpi_view_read(m, DLPI_REC_TRACE, (uint64_t)i, from % ring * each, to, first * each) ||
        !dlpi_view_read(m, DLPI_REC_TRACE, (uint64_t)i, 0, to + first, (n - first) * each) ||
        !dlpi_view_read(m, DLPI_REC_WORKERS, (uint64_t)i, at, &now, 8))
        return false;
    drop = now - from >= ring ? now - from - ring + 1 : 0; /* written over meanwhile */
    if (drop > n) drop = n;
    memmove(to, to + drop, (size_t)((n - drop) * each));
    m->trace_head[i] = head;
    m->trace_n[i] = n - drop;
    return true;
}

static bool dlpi_view_workers(dlp_monitor *m) {
    dlp_pipe *p = m->view;
    for (int i = 0; i <= p->n_workers; i++) {
        if (!dlpi_view_trace(m, i) || !dlpi_view_read(m, DLPI_REC_WORKERS, (uint64_t)i, 0,
                                                      &m->blocks[i], sizeof m->blocks[i]))
            return false;
        m->blocks[i].trace_head = m->trace_n[i];
        m->blocks[i].message[sizeof m->blocks[i].message - 1] = 0;
    }
    return true;
}

/* How many workers of the tuned stages work now. */
static bool dlpi_view_tuned(dlp_monitor *m) {
    for (int i = 0; i < m->view->n_stages; i++) {
        dlpi_stage *st = &m->view->stages[i];
        int32_t n;
        if (st->work < 0 || !st->tuned) continue;
        if (!dlpi_view_read(m, DLPI_REC_STAGES, (uint64_t)i, offsetof(dlpi_stage_rec, active), &n,
                            sizeof n))
            return false;
        st->begin = n >= 1 && n <= st->n_workers ? n : st->n_workers;
    }
    return true;
}

/* The part cells, counted. Those of an older version do not say for which batch they are. */
static bool dlpi_view_parts(dlp_monitor *m) {
    const dlpi_record *r = &m->rec[DLPI_REC_PARTS];
    const uint64_t at = offsetof(dlpi_pcell, used);
    uint64_t state, used = 0;
    if (r->type == 0) return true;
    if (r->stride < sizeof state || r->count > DLPI_VIEW_CELLS) return false;
    m->view->part_cells = (uint32_t)r->count;
    memset(&m->view->view_parts, 0, sizeof m->view->view_parts);
    for (uint64_t c = 0; c < r->count; c++) {
        if (!dlpi_view_read(m, DLPI_REC_PARTS, c, 0, &state, sizeof state) ||
            (r->stride >= at + 8 && !dlpi_view_read(m, DLPI_REC_PARTS, c, at, &used, 8)))
            return false;
        dlpi_part_count(&m->view->view_parts, state, used, m->view->ctl->base);
    }
    return true;
}

/* How many words of a record, each of them 4 or 8 bytes, have bits of the mask, or none of them? */
static bool dlpi_view_words(const dlp_monitor *m, int type, uint64_t mask, bool none, uint64_t *n) {
    const dlpi_record *r = &m->rec[type];
    uint8_t block[4096];
    uint64_t each = r->stride, in_block = each == 0 ? 0 : sizeof block / each;
    *n = 0;
    if (r->type == 0 || r->count == 0) return true;
    if (r->count > DLPI_VIEW_WORDS || (each != 4 && each != 8)) return false;
    for (uint64_t at = 0; at < r->count; at += in_block) {
        uint64_t k = r->count - at < in_block ? r->count - at : in_block;
        if (!dlpi_read_at(m->fd, block, k * each, r->offset + at * each)) return false;
        for (uint64_t i = 0; i < k; i++) {
            uint64_t word = 0;
            memcpy(&word, block + i * each, (size_t)each);
            *n += ((word & mask) == 0) == none;
        }
    }
    return true;
}

/* Where the chunks are: the words that say so. An older version has no record of them. */
static bool dlpi_view_chunks(dlp_monitor *m) {
    const dlp_pipe *p = m->view;
    dlpi_chunk_seen *x = &m->view->view_chunks;
    uint64_t tail = p->ctl->tail;
    dlpi_chunk_rec r;
    if (p->split == NULL || m->rec[DLPI_REC_CHUNKS].type == 0) return true;
    if (!dlpi_view_read(m, DLPI_REC_CHUNKS, 0, 0, &r, sizeof r)) return false;
    memset(x, 0, sizeof *x);
    x->preload = r.preload;
    x->cpu_buffers = r.cpu_buffers;
    x->per_epoch = r.per_epoch;
    if (tail > 0) {
        uint32_t s = dlpi_slot_of(p, tail - 1);
        if (!dlpi_view_read(m, DLPI_REC_SLOTS, s, r.in_epoch_at, &x->fed, 8)) return false;
        x->fed++;
    }
    for (uint32_t s = 0; s < p->n_slots; s++) {
        uint32_t used;
        if (!dlpi_view_read(m, DLPI_REC_SLOTS, s, r.used_at, &used, sizeof used)) return false;
        x->out += used != 0;
    }
    x->device_buffers = m->rec[DLPI_REC_DEVICE_SLOTS].count;
    return dlpi_view_words(m, DLPI_REC_RESIDENT, 1, false, &x->resident) &&
           dlpi_view_words(m, DLPI_REC_DEVICE_SLOTS, UINT64_MAX, true, &x->device_free);
}

/* Copy the numbers. What is torn is read again; what stays so is damaged. */
static int dlpi_view_load(dlp_monitor *m, dlp_error *err) {
    dlp_pipe *p = m->view;
    bool ok = false;
    for (int tries = 0; !ok && tries < 4; tries++) ok = dlpi_view_ctl(m);
    if (!ok || !dlpi_view_workers(m) || !dlpi_view_tuned(m) || !dlpi_view_parts(m) ||
        !dlpi_view_chunks(m))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "", "the region's counters are damaged");
    p->view_ns = dlpi_now_ns();
    if (p->view_ns < p->ctl->started_ns) p->view_ns = p->ctl->started_ns;
    m->info.stopped = p->ctl->stop != 0;
    return DLP_OK;
}

/* Everything but where the region comes from: m->fd is open. */
static int dlpi_view_open(dlp_monitor *m, dlp_error *err) {
    int rc = dlpi_view_header(m, err);
    if (rc == DLP_OK) rc = dlpi_view_pipe(m, err);
    if (rc == DLP_OK) rc = dlpi_view_stages(m, err);
    if (rc == DLP_OK) rc = dlpi_view_make(m, err);
    if (rc == DLP_OK) rc = dlpi_view_load(m, err);
    if (rc != DLP_OK) return rc;
    memcpy(m->info.name, m->pipe.name, sizeof m->info.name);
    m->info.uid = m->pipe.uid;
    m->info.started_ns = m->pipe.started_real;
    m->info.trace_events = m->view->trace_events - 1;
    return DLP_OK;
}

/* ---- whose region ---- */

/* Is descriptor `number` of the process a pipe's memory? */
static bool dlpi_proc_is_region(int proc, int number) {
    char path[24], link[32];
    ssize_t n;
    snprintf(path, sizeof path, "fd/%d", number);
    n = readlinkat(proc, path, link, sizeof link - 1);
    if (n < 0) return false;
    link[n] = 0;
    return strcmp(link, "/memfd:dlpipe (deleted)") == 0;
}

/* Open it, read only. Returns it, or -1 with errno. */
static int dlpi_proc_open(int proc, int number) {
    char path[24];
    int fd;
    snprintf(path, sizeof path, "fd/%d", number);
    fd = dlpi_fd_above(openat(proc, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) return -1;
    if (fcntl(fd, 1034) >= 0) return fd; /* F_GET_SEALS: memory, which cannot make us wait */
    close(fd);
    errno = EINVAL;
    return -1;
}

/* Is the process there, and no zombie? */
static bool dlpi_proc_lives(int proc) {
    char stat[512];
    const char *state;
    int fd = dlpi_fd_above(openat(proc, "stat", O_RDONLY | O_CLOEXEC));
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    stat[n] = 0;
    state = strrchr(stat, ')'); /* behind the command's name */
    return state != NULL && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

/* Is the pipe still its owner's? */
static int dlpi_owner_check(const dlp_monitor *m, dlp_error *err) {
    char path[24];
    struct stat ours, theirs;
    if (m->proc < 0) return DLP_OK; /* a region without an owner, in tests */
    snprintf(path, sizeof path, "fd/%d", m->number);
    if (m->fd >= 0 && fstat(m->fd, &ours) == 0 && fstatat(m->proc, path, &theirs, 0) == 0 &&
        ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
        return DLP_OK;
    if (dlpi_proc_lives(m->proc))
        return dlpi_error_set(err, DLP_ERR_STATE, "", "process %d has closed the pipe",
                              (int)m->info.pid);
    return dlpi_error_set(err, DLP_ERR_STATE, "", "process %d, the pipe's owner, is gone",
                          (int)m->info.pid);
}

static int dlpi_who_system(dlp_error *err, int errnum, const char *what, int pid) {
    dlpi_error_set(err, DLP_ERR_SYSTEM, "who", "%s %d: %s", what, pid, strerror(errnum));
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

static int dlpi_proc_enter(dlp_monitor *m, int32_t pid, dlp_error *err) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    m->info.pid = pid;
    m->proc = dlpi_fd_above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return m->proc >= 0 ? DLP_OK
                        : dlpi_who_system(err, errno == ENOENT ? ESRCH : errno, "process", pid);
}

/* Does the region at fd belong to the pipe that was asked for? which: NULL, a name or a number. */
static bool dlpi_proc_wanted(int fd, int number, const char *which, char *name) {
    dlp_monitor look;
    char digits[16];
    memset(&look, 0, sizeof look);
    look.fd = fd;
    snprintf(digits, sizeof digits, "%d", number);
    if (dlpi_view_header(&look, NULL) == DLP_OK && dlpi_view_pipe(&look, NULL) == DLP_OK)
        dlpi_copy_text(name, 32, look.pipe.name);
    else
        name[0] = 0;
    return which == NULL || strcmp(which, digits) == 0 || strcmp(which, name) == 0;
}

static bool dlpi_inode_seen(const ino_t *seen, int n, ino_t inode) {
    for (int i = 0; i < n; i++)
        if (seen[i] == inode) return true;
    return false;
}

/* Find the pipes of the process. Takes the only one that is wanted. */
static int dlpi_proc_find(dlp_monitor *m, const char *which, dlp_error *err) {
    DIR *dir = dlpi_dir_open(openat(m->proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int found = 0, used = 0;
    char list[160] = "";
    const struct dirent *d;
    struct stat st;
    ino_t seen[16];
    if (dir == NULL) return dlpi_who_system(err, errno, "looking into process", (int)m->info.pid);
    while ((d = readdir(dir)) != NULL) {
        int fd, number = d->d_name[0] >= '0' && d->d_name[0] <= '9' ? atoi(d->d_name) : -1;
        char name[32] = "";
        if (number < 0 || !dlpi_proc_is_region(m->proc, number)) continue;
        if ((fd = dlpi_proc_open(m->proc, number)) < 0) continue;
        if (found < 16 && fstat(fd, &st) == 0 && dlpi_proc_wanted(fd, number, which, name) &&
            !dlpi_inode_seen(seen, found, st.st_ino)) { /* not a second number of the same */
            seen[found++] = st.st_ino;
            if ((size_t)used < sizeof list)
                used += snprintf(list + used, sizeof list - (size_t)used, "%s%d \"%s\"",
                                 found > 1 ? ", " : "", number, name);
            if (m->fd >= 0) close(m->fd);
            m->fd = fd;
            m->number = number;
            continue;
        }
        close(fd);
    }
    closedir(dir);
    if (found == 1) return DLP_OK;
    if (found == 0)
        return dlpi_error_set(err, DLP_ERR_STATE, "who",
                              which ? "process %d has no pipe \"%.32s\" that runs"
                                    : "process %d has no pipe that runs and can be observed",
                              (int)m->info.pid, which ? which : "");
    return dlpi_error_set(err, DLP_ERR_ARG, "who",
                          "process %d has %d pipes; say %d:PIPE, one of %s", (int)m->info.pid,
                          found, (int)m->info.pid, list);
}

/* Where a name leads to: checked, alive. */
static int dlpi_who_name(const char *name, dlpi_name_rec *r, dlp_error *err) {
    char path[DLPI_NAME_PATH];
    int fd, rc, errnum = 0;
    bool alive, begun;
    struct stat st;
    dlpi_name_path(name, path);
    fd = dlpi_fd_above(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 || !dlpi_name_ours(fd, true)) errnum = errno;
    if (errnum != 0) {
        if (fd >= 0) close(fd);
        dlpi_error_set(err, DLP_ERR_SYSTEM, "who", "%s: %s", path, strerror(errnum));
        if (err) err->errnum = errnum;
        return DLP_ERR_SYSTEM;
    }
    alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
    begun = fstat(fd, &st) == 0 && st.st_size > 0; /* it is made, locked, then written */
    rc = dlpi_name_read(fd, r);
    close(fd);
    if (!alive)
        return dlpi_error_set(err, DLP_ERR_STATE, "who", "the owner of \"%s\" is gone", name);
    if (!begun) return dlpi_error_set(err, DLP_ERR_STATE, "who", "\"%s\" is still starting", name);
    if (rc == DLP_ERR_UNSUPPORTED)
        return dlpi_error_set(err, rc, "who", "the record of \"%s\" has another format", name);
    if (rc != DLP_OK || strcmp(r->name, name) != 0)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "who", "the record of \"%s\" is damaged", name);
    return DLP_OK;
}

static int dlpi_who_by_name(dlp_monitor *m, const char *name, dlp_error *err) {
    dlpi_name_rec r;
    int rc;
    if (!dlpi_name_ok(name))
        return dlpi_error_set(err, DLP_ERR_ARG, "who",
                              "neither a process nor a name (A-Z a-z 0-9 . _ -)");
    if ((rc = dlpi_who_name(name, &r, err)) != DLP_OK) return rc;
    if ((rc = dlpi_proc_enter(m, r.pid, err)) != DLP_OK) return rc;
    m->number = r.memfd;
    if (dlpi_proc_is_region(m->proc, r.memfd)) m->fd = dlpi_proc_open(m->proc, r.memfd);
    if (m->fd >= 0 && dlpi_view_header(m, err) == DLP_OK && dlpi_view_pipe(m, err) == DLP_OK &&
        memcmp(m->pipe.token, r.token, sizeof r.token) == 0) {
        dlpi_copy_text(m->info.shm_name, sizeof m->info.shm_name, name);
        return DLP_OK;
    }
    return dlpi_error_set(err, DLP_ERR_STATE, "who",
                          "\"%s\" is said to be in process %d, but is not to be seen there: "
                          "another user's, or in another container",
                          name, (int)r.pid);
}

static int dlpi_who_find(dlp_monitor *m, const char *who, dlp_error *err) {
    size_t digits = strspn(who, "0123456789");
    int rc;
    if (digits == 0 || digits > 9 || (who[digits] != 0 && who[digits] != ':'))
        return dlpi_who_by_name(m, who, err);
    if ((rc = dlpi_proc_enter(m, (int32_t)atoi(who), err)) != DLP_OK) return rc;
    return dlpi_proc_find(m, who[digits] == ':' ? who + digits + 1 : NULL, err);
}

static int dlpi_monitor_try(const char *who, dlp_monitor **out, dlp_error *err) {
    dlp_monitor *m = calloc(1, sizeof *m);
    int rc;
    if (m == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    m->fd = m->proc = m->number = -1;
    rc = dlpi_who_find(m, who, err);
    m->info.memfd = m->number;
    if (rc == DLP_OK) rc = dlpi_view_open(m, err);
    if (rc != DLP_OK) {
        dlp_monitor_close(m);
        return rc;
    }
    *out = m;
    return DLP_OK;
}
