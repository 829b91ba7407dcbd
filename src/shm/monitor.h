#pragma once
/* tests: system/shm/monitor, fuzz/fuzz_region */
#include "build/region_map.h"
#include "observe/seen.h"
#include "build/kinds.h"
#include "api/shm_monitor.h"
#include "shm/names.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-monitor     COPY, CHECK, THEN USE
   Everything is read by pread into private memory, checked there, and never read again. Each size,
   count, index and string is checked. Numbers that are only printed are not. Then a dlpi_seen
   (>>impl-seen) points to the checked copy, as it points to the memory of a live pipe. The copy has
   no slots, only the ready words of all stages, side by side. */

#define DLPI_VIEW_TRACE (UINT64_C(64) << 20) /* bytes of traces copied, at most */
#define DLPI_VIEW_SLOTS 65536u
#define DLPI_VIEW_RING (1u << 20)

struct dlp_monitor {
    int fd;           /* the region's file; -1: closed */
    int proc, number; /* descriptor of /proc/PID, and the memfd's number there; -1: not watched */
    dlp_monitor_info info;
    dlpi_area areas[DLPI_AREAS]; /* the areas that the region's records describe */
    dlpi_pipe_rec pipe;
    dlpi_seen seen;               /* points to the copies below */
    dlp_error error;              /* error of the pipe; code 0: none */
    uint64_t per_epoch;           /* batches of an epoch; UINT64_MAX: not known */
    dlpi_ctl *ctl;                /* [2] the checked copy; the copy that is being read */
    uint32_t *order;              /* [2][ring] as ctl */
    uint8_t *taken;               /* [ring] */
    uint64_t *ready;              /* [n_slots][n_work] */
    uint8_t *slot_seen;           /* [n_slots] */
    uint64_t *trace_head;         /* [n_workers + 1] in the region, when copied */
    uint64_t *trace_n;            /* [n_workers + 1] events that the copy has */
    dlp_trace_event *trace;       /* [n_workers + 1][seen.trace_events] */
    dlpi_worker_block *blocks;    /* [n_workers + 1] */
    uint64_t block_at, block_end; /* offsets of the region that block[] has a copy of */
    uint8_t block[4096];
};

#define DLPI_VIEW_FAULT(err, ...) dlpi_error_set(err, DLP_ERR_CORRUPT, "", __VA_ARGS__)

/* Read n bytes at an offset inside element i of an area. Returns false if they are not there. */
static bool dlpi_view_read(const dlp_monitor *m, int id, uint64_t i, uint64_t offset, void *to,
                           uint64_t n) {
    const dlpi_area *r = &m->areas[id];
    if (i >= r->count || offset > r->stride || n > r->stride - offset) return false;
    return dlpi_shm_read(m->fd, to, n, r->offset + i * r->stride + offset);
}

/* Check one record of the region's map, and note its area. A record of an unknown area is skipped.
   Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_view_record(dlp_monitor *m, const dlpi_record *r, uint64_t total, dlp_error *err) {
    const int id = dlpi_record_id(r);
    if (id == 0) return DLP_OK; /* of a newer version */
    if (m->areas[id].count != 0) return DLPI_VIEW_FAULT(err, "area %d is there twice", id);
    if (r->offset % 8 != 0 || r->offset > total ||
        (r->count > 0 && r->stride > (total - r->offset) / r->count))
        return DLPI_VIEW_FAULT(err, "area %d is outside the region", id);
    m->areas[id] = (dlpi_area){NULL, 0, r->offset, r->stride, r->count};
    return DLP_OK;
}

/* Read the region's header and its map of areas, and check both. Returns 0, or a DLP_ERR code with
   *err filled: DLP_ERR_STATE while the pipe starts, DLP_ERR_UNSUPPORTED for another layout. */
static int dlpi_view_header(dlp_monitor *m, dlp_error *err) {
    dlpi_region h;
    struct stat st;
    uint64_t bytes;
    memset(m->areas, 0, sizeof m->areas);
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        return DLPI_VIEW_FAULT(err, "this is no file of memory");
    bytes = (uint64_t)st.st_size;
    if (!dlpi_shm_read(m->fd, &h, offsetof(dlpi_region, records), 0))
        return DLPI_VIEW_FAULT(err, "the region has no header");
    if (h.magic == 0) return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe is still starting");
    if (h.magic != DLPI_MAGIC) return DLPI_VIEW_FAULT(err, "this memory is no pipe's");
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
        return DLPI_VIEW_FAULT(err, "the region's header is damaged");
    for (uint32_t i = 0; i < h.n_records; i++) {
        dlpi_record r;
        int rc;
        if (!dlpi_shm_read(m->fd, &r, sizeof r, h.records_at + (uint64_t)i * h.record_bytes))
            return DLPI_VIEW_FAULT(err, "record %u can't be read", i);
        if ((rc = dlpi_view_record(m, &r, h.total_bytes, err)) != DLP_OK) return rc;
    }
    return DLP_OK;
}

/* True if the area has `count` elements, each of at least `stride` bytes. */
static bool dlpi_view_has(const dlp_monitor *m, int id, uint64_t stride, uint64_t count) {
    return m->areas[id].stride >= stride && m->areas[id].count == count;
}

/* True if a pipe can have these numbers. All that is read later is counted by them. The bounds are
   those that start holds a pipe to, so that no damaged pipe makes a monitor read, or allocate,
   without end. */
static bool dlpi_view_numbers_ok(const dlpi_pipe_rec *r) {
    return r->n_stages >= 1 && r->n_stages <= DLP_MAX_STAGES && r->n_work >= 1 &&
           r->n_work <= r->n_stages && r->n_item_work <= r->n_work && r->n_workers >= 1 &&
           r->n_workers <= DLP_MAX_STAGES * DLP_MAX_WORKERS && r->batch_rows >= 1 &&
           r->batch_rows <= 1u << 30 && r->n_slots >= 1 && r->n_slots <= DLPI_VIEW_SLOTS &&
           r->prefetch < r->n_slots && r->max_held >= 1 &&
           r->max_held <= r->n_slots - r->prefetch && r->ring >= 1 && r->ring <= DLPI_VIEW_RING &&
           (r->ring & (r->ring - 1)) == 0 && r->trace_events >= 2 && r->trace_events <= 1u << 30 &&
           r->cpus >= 0;
}

/* True if the areas are there that every pipe has. Each must have as many elements as the pipe's
   record says, large enough to be read. There is one for each worker, and one for the consumer. */
static bool dlpi_view_areas_ok(const dlp_monitor *m, const dlpi_pipe_rec *r) {
    const uint64_t lanes = (uint64_t)r->n_workers + 1;
    return dlpi_view_has(m, DLPI_REC_STAGES, sizeof(dlpi_stage_rec), r->n_stages) &&
           dlpi_view_has(m, DLPI_REC_CTL, sizeof(dlpi_ctl), 1) &&
           dlpi_view_has(m, DLPI_REC_ORDER, 4, r->ring) && m->areas[DLPI_REC_ORDER].stride == 4 &&
           dlpi_view_has(m, DLPI_REC_TAKEN, 1, r->ring) && m->areas[DLPI_REC_TAKEN].stride == 1 &&
           dlpi_view_has(m, DLPI_REC_WORKERS, sizeof(dlpi_worker_block), lanes) &&
           m->areas[DLPI_REC_WORKERS].stride % 8 == 0 &&
           dlpi_view_has(m, DLPI_REC_SLOTS, 8, r->n_slots) &&
           dlpi_view_has(m, DLPI_REC_TRACE, r->trace_events * sizeof(dlp_trace_event), lanes);
}

/* Read the pipe's record, and check it against the map of areas. Returns 0, or a DLP_ERR code with
   *err filled. */
static int dlpi_view_pipe(dlp_monitor *m, dlp_error *err) {
    dlpi_pipe_rec *r = &m->pipe;
    if (!dlpi_view_has(m, DLPI_REC_PIPE, sizeof *r, 1) ||
        !dlpi_view_read(m, DLPI_REC_PIPE, 0, 0, r, sizeof *r))
        return DLPI_VIEW_FAULT(err, "the region does not describe its pipe");
    r->name[sizeof r->name - 1] = 0;
    if (dlpi_view_numbers_ok(r) && dlpi_view_areas_ok(m, r)) return DLP_OK;
    return DLPI_VIEW_FAULT(err, "the region's description of its pipe is damaged");
}

/* True if a stage's record is valid. owned[] and *works note which workers and places are taken. */
static bool dlpi_view_stage_ok(const dlp_monitor *m, dlpi_stage_rec *s, int32_t id, uint8_t *owned,
                               uint32_t *works) {
    const dlpi_pipe_rec *p = &m->pipe;
    const dlpi_stage_ops *ops = dlpi_kind_ops(s->kind);
    if (s->id != id || s->kind < 1 || s->kind > 255 || s->work < -1) return false;
    if (s->work < 0) s->first_worker = s->n_workers = s->num_workers = 0;
    if (s->work < 0) return true;
    if (s->work >= DLP_MAX_STAGES || (*works >> s->work & 1) != 0) return false;
    if (ops && ((uint32_t)s->work >= p->n_work) != (ops->unit == DLPI_UNIT_CELLS)) return false;
    *works |= 1u << s->work;
    if (s->n_workers < 1 || s->n_workers > DLP_MAX_WORKERS || s->first_worker < 0 ||
        (uint32_t)s->first_worker > p->n_workers ||
        (uint32_t)s->n_workers > p->n_workers - (uint32_t)s->first_worker)
        return false;
    for (int32_t k = 0; k < s->n_workers; k++)
        if (owned[s->first_worker + k]++ != 0) return false;
    if (s->num_workers != 0 && (uint32_t)(s->n_workers - s->num_workers) > 1) return false;
    return s->stage_words_offset % 8 == 0 &&
           s->stage_words_offset <= m->areas[DLPI_REC_SLOTS].stride - 8;
}

/* Read the records of all stages, and check them. Each worker and each place must belong to one
   stage. Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_view_stages(dlp_monitor *m, dlp_error *err) {
    uint8_t *owned = calloc((size_t)m->pipe.n_workers + 1, 1);
    uint32_t works = 0;
    bool ok = true;
    if (owned == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    for (uint32_t i = 0; ok && i < m->pipe.n_stages; i++) {
        dlpi_stage_rec *s = &m->seen.stages[i].r;
        ok = dlpi_view_read(m, DLPI_REC_STAGES, i, 0, s, sizeof *s) &&
             dlpi_view_stage_ok(m, s, (int32_t)i, owned, &works);
        s->name[sizeof s->name - 1] = 0;
    }
    for (uint32_t i = 0; ok && i < m->pipe.n_workers; i++) ok = owned[i] == 1;
    for (uint32_t i = 0; ok && i < m->pipe.n_work; i++) ok = (works >> i & 1) != 0;
    free(owned);
    return ok ? DLP_OK : DLPI_VIEW_FAULT(err, "the region's description of its stages is damaged");
}

/* Make stage i visible to readers of m->seen. Numbers that its record may have wrong are mended. */
static void dlpi_view_stage(dlp_monitor *m, uint32_t i) {
    dlpi_seen *s = &m->seen;
    dlpi_seen_stage *row = &s->stages[i];
    dlpi_stage_rec *r = &row->r;
    row->ops = dlpi_kind_ops(r->kind); /* NULL: of a newer version */
    r->workers_min = dlpi_seen_within(r->workers_min, r->n_workers, 0);
    r->active = (uint64_t)dlpi_seen_within((int32_t)r->active, r->n_workers, r->n_workers);
    r->in_flight = dlpi_seen_within(r->in_flight, 1024, 0);
    r->zeroes = r->zeroes != 0;
    r->placement = r->placement == DLP_PLACE_PROCESSES && r->num_workers > 0;
    if (r->work < 0 || (uint32_t)r->work >= s->n_work) return;
    row->ready_at = (uint64_t)r->work * sizeof *m->ready;
    s->work[r->work] = (int32_t)i;
}

/* Point the view of the pipe at the monitor's own copies of the region's areas. */
static void dlpi_view_point(dlp_monitor *m) {
    dlpi_seen *s = &m->seen;
    s->ctl = &m->ctl[0];
    s->delivered = &s->ctl->delivered;
    s->rec[DLPI_REC_ORDER] = (dlpi_seen_area){(const uint8_t *)m->order, sizeof *m->order};
    s->rec[DLPI_REC_TAKEN] = (dlpi_seen_area){m->taken, 1};
    s->rec[DLPI_REC_SLOTS] =
        (dlpi_seen_area){(const uint8_t *)m->ready, s->n_work * sizeof *m->ready};
    s->rec[DLPI_REC_WORKERS] = (dlpi_seen_area){(const uint8_t *)m->blocks, sizeof *m->blocks};
    s->rec[DLPI_REC_TRACE] =
        (dlpi_seen_area){(const uint8_t *)m->trace, s->trace_events * sizeof *m->trace};
    for (uint32_t i = 0; i < s->n_stages; i++) dlpi_view_stage(m, i);
    s->final = s->work[s->n_work - 1];
    s->areas = m->areas;
}

/* Allocate the copies, by checked numbers (have), or free them (!have). False: there is no
   memory. */
static bool dlpi_view_blocks(dlp_monitor *m, bool have) {
    const dlpi_pipe_rec *r = &m->pipe;
    const uint64_t lanes = (uint64_t)r->n_workers + 1;
    const dlpi_block all[] = {
        {offsetof(dlp_monitor, ctl), 2 * sizeof *m->ctl},
        {offsetof(dlp_monitor, order), (uint64_t)r->ring * 2 * sizeof *m->order},
        {offsetof(dlp_monitor, taken), r->ring},
        {offsetof(dlp_monitor, ready), (uint64_t)r->n_slots * r->n_work * sizeof *m->ready},
        {offsetof(dlp_monitor, slot_seen), r->n_slots},
        {offsetof(dlp_monitor, trace_head), lanes * sizeof *m->trace_head},
        {offsetof(dlp_monitor, trace_n), lanes * sizeof *m->trace_n},
        {offsetof(dlp_monitor, trace), lanes * m->seen.trace_events * sizeof *m->trace},
        {offsetof(dlp_monitor, blocks), lanes * sizeof *m->blocks},
    };
    return dlpi_blocks_keep(m, all, sizeof all / sizeof *all, have);
}

/* Make room for what the records say, still without its numbers. Returns 0 or DLP_ERR_MEMORY. */
static int dlpi_view_make(dlp_monitor *m, dlp_error *err) {
    const dlpi_pipe_rec *r = &m->pipe;
    dlpi_seen *s = &m->seen;
    size_t lanes = (size_t)r->n_workers + 1;
    uint64_t most = DLPI_VIEW_TRACE / sizeof(dlp_trace_event) / lanes;
    m->error.worker = -1;
    m->per_epoch =
        r->batches_per_epoch <= INT64_MAX || r->batches_per_epoch == (uint64_t)DLP_FOREVER
            ? r->batches_per_epoch
            : UINT64_MAX;
    s->n_stages = r->n_stages;
    s->n_work = r->n_work;
    s->n_item_work = r->n_item_work;
    s->n_workers = r->n_workers;
    s->shape = r->shape;
    s->cpus = (uint32_t)r->cpus;
    s->plan_bytes = r->plan_bytes;
    if (s->trace_events > most) s->trace_events = (uint32_t)most;
    if (!dlpi_view_blocks(m, true)) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
    dlpi_view_point(m);
    return DLP_OK;
}

/* Copy the words `ready` of all slots that hold batches from..to - 1. The order must be copied and
   checked. Returns false if a word cannot be read. */
static bool dlpi_view_ready(dlp_monitor *m, uint64_t from, uint64_t to) {
    const dlpi_seen *s = &m->seen;
    memset(m->slot_seen, 0, s->n_slots);
    for (uint64_t b = from; b < to; b++) {
        uint32_t slot = m->order[b & (s->ring - 1)];
        if (m->slot_seen[slot] != 0) continue;
        m->slot_seen[slot] = 1;
        for (uint32_t i = 0; i < s->n_stages; i++) {
            const dlpi_stage_rec *r = &s->stages[i].r;
            if (r->work < 0 || (uint32_t)r->work >= s->n_work) continue;
            if (!dlpi_view_read(m, DLPI_REC_SLOTS, slot,
                                r->stage_words_offset + offsetof(dlpi_stage_words, ready),
                                m->ready + (size_t)slot * s->n_work + r->work, 8))
                return false;
        }
    }
    return true;
}

/* Copy counters and slots: the tail first, the base last. So a batch that is counted as in flight
   was so all the time, and its slot was not given to another while we looked. False: they are
   torn. */
static bool dlpi_view_ctl(dlp_monitor *m) {
    const dlpi_seen *s = &m->seen;
    dlpi_ctl *c = &m->ctl[1];
    uint32_t *order = m->order + s->ring;
    uint64_t tail;
    if (!dlpi_view_read(m, DLPI_REC_CTL, 0, offsetof(dlpi_ctl, tail), &tail, 8) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c) ||
        !dlpi_shm_read(m->fd, order, s->ring * sizeof *order, m->areas[DLPI_REC_ORDER].offset))
        return false;
    for (uint32_t i = 0; i < s->ring; i++)
        if (order[i] >= s->n_slots) return false;
    if (c->base < tail && tail - c->base > s->ring) return false;
    memcpy(m->order, order, s->ring * sizeof *order);
    if (!dlpi_view_ready(m, c->base, tail)) return false;
    if (!dlpi_shm_read(m->fd, m->taken, s->ring, m->areas[DLPI_REC_TAKEN].offset) ||
        !dlpi_view_read(m, DLPI_REC_CTL, 0, 0, c, sizeof *c))
        return false;
    if (c->base < tail && tail - c->base > s->ring) return false;
    c->tail = tail;
    dlpi_error_end(&c->error);
    dlpi_error_end(&c->first_skip);
    m->ctl[0] = *c;
    if (c->error_ready != 0) m->error = c->error;
    return true;
}

/* Copy the newest events of lane i, if any are new. Returns false if they cannot be read. */
static bool dlpi_view_trace(dlp_monitor *m, uint32_t i) {
    const dlpi_seen *s = &m->seen;
    dlp_trace_event *to = m->trace + (size_t)i * s->trace_events;
    uint64_t head, now, ring = m->pipe.trace_events, n, from, first, drop;
    const uint64_t each = sizeof *to, at = offsetof(dlpi_worker_block, trace_head);
    if (!dlpi_view_read(m, DLPI_REC_WORKERS, i, at, &head, 8)) return false;
    if (head == m->trace_head[i]) return true;
    n = head < ring ? head : ring - 1;
    if (n > s->trace_events - 1) n = s->trace_events - 1;
    from = head - n;
    first = n < ring - from % ring ? n : ring - from % ring; /* up to the ring's end */
    if (!dlpi_view_read(m, DLPI_REC_TRACE, i, from % ring * each, to, first * each) ||
        !dlpi_view_read(m, DLPI_REC_TRACE, i, 0, to + first, (n - first) * each) ||
        !dlpi_view_read(m, DLPI_REC_WORKERS, i, at, &now, 8))
        return false;
    drop = now - from >= ring ? now - from - ring + 1 : 0; /* written over meanwhile */
    if (drop > n) drop = n;
    memmove(to, to + drop, (size_t)((n - drop) * each));
    m->trace_head[i] = head;
    m->trace_n[i] = n - drop;
    return true;
}

/* Copy the records and the newest events of all workers and of the consumer. Returns false if they
   cannot be read. */
static bool dlpi_view_workers(dlp_monitor *m) {
    for (uint32_t i = 0; i <= m->seen.n_workers; i++) {
        dlpi_worker_block *b = &m->blocks[i];
        if (!dlpi_view_trace(m, i) || !dlpi_view_read(m, DLPI_REC_WORKERS, i, 0, b, sizeof *b))
            return false;
        b->trace_head = m->trace_n[i];
        b->message[sizeof b->message - 1] = 0;
    }
    return true;
}

/* Copy how many workers of each stage are active. Returns false if a number cannot be read. */
static bool dlpi_view_tuned(dlp_monitor *m) {
    for (uint32_t i = 0; i < m->seen.n_stages; i++) {
        dlpi_stage_rec *r = &m->seen.stages[i].r;
        if (!dlpi_view_read(m, DLPI_REC_STAGES, i, offsetof(dlpi_stage_rec, active), &r->active,
                            sizeof r->active))
            return false;
        r->active = (uint64_t)dlpi_seen_within((int32_t)r->active, r->n_workers, r->n_workers);
    }
    return true;
}

/* Read a word, and keep those beside it for the next call. Returns false if it cannot be read. */
static bool dlpi_view_word(void *from, uint64_t at, uint64_t end, uint32_t bytes, uint64_t *to) {
    dlp_monitor *m = from;
    uint32_t half;
    if (at < m->block_at || at + bytes > m->block_end) {
        uint64_t n = end - at < sizeof m->block ? end - at : sizeof m->block;
        m->block_at = m->block_end = 0;
        if (!dlpi_shm_read(m->fd, m->block, n, at)) return false;
        m->block_at = at;
        m->block_end = at + n;
    }
    if (bytes == 8) {
        memcpy(to, m->block + (at - m->block_at), 8);
    } else {
        memcpy(&half, m->block + (at - m->block_at), sizeof half);
        *to = half;
    }
    return true;
}

static bool dlpi_view_kinds(dlp_monitor *m) {
    const dlpi_words words = {m->areas, dlpi_view_word, m};
    m->block_at = m->block_end = 0;
    return dlpi_seen_kinds(&words, &m->seen);
}

/* Copy all numbers. What is torn is read again; what stays so is damaged. Returns 0 or a code. */
static int dlpi_view_load(dlp_monitor *m, dlp_error *err) {
    dlpi_seen *s = &m->seen;
    bool ok = false;
    for (int tries = 0; !ok && tries < 4; tries++) ok = dlpi_view_ctl(m);
    if (!ok || !dlpi_view_workers(m) || !dlpi_view_tuned(m) || !dlpi_view_kinds(m))
        return DLPI_VIEW_FAULT(err, "the region's counters are damaged");
    s->now_ns = dlpi_now_ns();
    if (s->now_ns < s->ctl->started_ns) s->now_ns = s->ctl->started_ns;
    m->info.stopped = s->ctl->stop != 0;
    return DLP_OK;
}

/* Check and copy the region that is open as m->fd. Returns 0, or a code with *err filled. */
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
    m->info.trace_events = m->seen.trace_events - 1;
    return DLP_OK;
}

/* ---- find the region of a process or name ---- */

/* True if descriptor `number` of a process is a region's memory. proc: the process's directory of
   /proc, opened. */
static bool dlpi_proc_is_region(int proc, int number) {
    char path[24], link[32];
    ssize_t n;
    snprintf(path, sizeof path, "fd/%d", number);
    n = readlinkat(proc, path, link, sizeof link - 1);
    if (n < 0) return false;
    link[n] = 0;
    return strcmp(link, "/memfd:dlpipe (deleted)") == 0;
}

/* Open descriptor `number` of a process, read only. Returns a descriptor, or -1 with errno. */
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

/* True if a process still runs. proc: its directory of /proc, opened. A zombie does not run. */
static bool dlpi_proc_lives(int proc) {
    char stat[512];
    const char *state;
    int fd = dlpi_fd_above(openat(proc, "stat", O_RDONLY | O_CLOEXEC));
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    stat[n] = 0;
    state = strrchr(stat, ')'); /* after the command's name */
    return state != NULL && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

/* Check that the owner still has the pipe. Returns DLP_OK, or DLP_ERR_STATE with *err filled. */
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

/* Open the directory of process pid in /proc as m->proc. Returns 0, or a DLP_ERR code with *err
   filled. */
static int dlpi_proc_enter(dlp_monitor *m, int32_t pid, dlp_error *err) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    m->info.pid = pid;
    m->proc = dlpi_fd_above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return m->proc >= 0 ? DLP_OK
                        : dlpi_who_system(err, errno == ENOENT ? ESRCH : errno, "process", pid);
}

/* True if the region at fd is the wanted pipe's, whose name goes to name[32]. which: a name or a
   number; NULL means any. */
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

/* Find the wanted pipe of the process and open it. It fails unless there is just one. which: a name
   or a number; NULL means any. */
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

/* Read and check the record of a name whose owner lives. Returns 0, or a code with *err filled. */
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
        dlpi_error_set(err, DLP_ERR_SYSTEM, "who", "%s%s: %s",
                       errnum == ENOENT ? "no pipe of that name: " : "", path, strerror(errnum));
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

/* Find the region of a pipe by its shm.name, and open it. Returns 0, or a DLP_ERR code with *err
   filled. The region must have the token of the name's record. */
static int dlpi_who_by_name(dlp_monitor *m, const char *name, dlp_error *err) {
    dlpi_name_rec r;
    int rc;
    if (!dlpi_name_ok(name))
        return dlpi_error_set(err, DLP_ERR_ARG, "who",
                              "who is neither a process nor a name (A-Z a-z 0-9 . _ -)");
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
                          "\"%s\" is not visible in process %d, which may be another user's, or "
                          "in another container",
                          name, (int)r.pid);
}

/* Find the region of `who`: a name, a process, or a process and one of its pipes, as "pid:pipe".
   Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_who_find(dlp_monitor *m, const char *who, dlp_error *err) {
    size_t digits = strspn(who, "0123456789");
    int rc;
    if (digits == 0 || digits > 9 || (who[digits] != 0 && who[digits] != ':'))
        return dlpi_who_by_name(m, who, err);
    if ((rc = dlpi_proc_enter(m, (int32_t)atoi(who), err)) != DLP_OK) return rc;
    return dlpi_proc_find(m, who[digits] == ':' ? who + digits + 1 : NULL, err);
}

/* Open a monitor of the pipe `who`. Returns 0, or a DLP_ERR code with *err filled; *out is then
   untouched. */
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
