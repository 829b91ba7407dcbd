/* needs: parts split pictures */
/* Regions and names' records that are torn, damaged or hostile: a monitor says so, or tells numbers
   that may be nonsense; it never crashes, hangs, or reads what is not there. Real regions are
   changed and looked at: those of tests/fuzz/corpus/region, every field at its extremes, and then
   at random.

   FUZZ_SECONDS   how long at random (2; SHORT=1: 0.5); FUZZ_SEED: where to begin (1)
   FUZZ_SAVE      a file that holds the case being run: for the corpus, if it ends badly

   A case is a text file: "kind K" (which region), then lines
     set NAME[I] VALUE      a field by name, see fields[]; of element I, or of the record of area I
     at AREA I OFFSET BYTES VALUE      in element I of the area of that id (0: the header)
     size BYTES             the file is cut, or longer
     refresh                what follows happens after the first look, before a second one
   Files called raw-* are a whole region, files called name-* a name's record. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe_shm.h"
#include "../rig/pipe_rig.h"
#include <time.h>

#define CORPUS "tests/fuzz/corpus/region"

enum { KINDS = 5, PARTS = 3, CHUNKS };

static struct image {
    uint8_t *bytes;
    uint64_t n;
    int fd;
} images[KINDS];

static char *saved; /* the case being run */
static size_t saved_n;
enum { SAVED = 1 << 16 };

static uint64_t looks, opened;

/* ---- regions to begin with ---- */

static int fuzz_collate(void *user, dlp_collate *c) {
    (void)user;
    return dlp_collate_pad(NULL, c);
}

static int fuzz_fetch(void *user, dlp_item *it) {
    if (it->index % 9 == 4) return dlp_fail(it->call, EIO, "unreadable");
    return rig_fetch(user, it);
}

static int fuzz_part(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 8;
    memset(part->data, 1, 8);
    return 0;
}

static int fuzz_chunk(void *user, dlp_chunk *c) {
    (void)user;
    memset(c->data[0], 1, (size_t)c->count * 24);
    return 0;
}

/* A part queue, a cache, workers that are tuned and have several items in flight. */
static int parts_image(dlp_pipe **p) {
    static const uint64_t items[5] = {10, 10, 10, 10, 10};
    dlp_loader_desc d;
    memset(&d, 0, sizeof d);
    d.dataset =
        (dlp_dataset){.n_items = 50, .fields = rig_fields, .n_fields = 2, .fetch = rig_fetch};
    d.batch_size = 4;
    d.shuffle = 1;
    d.num_workers = 1;
    d.workers.workers_max = 3;
    d.fetcher = DLP_FETCH_THREADS;
    d.in_flight = 2;
    d.cache.bytes = 400;
    d.pipe.name = "image";
    d.pipe.trace_bytes = 160;
    d.parts = (dlp_node_load){.n_parts = 5, .items = items, .max_part_bytes = 8, .load = fuzz_part};
    d.parts.workers.num_workers = 2;
    return dlp_loader_open(p, &d, NULL);
}

static int chunks_image(dlp_pipe **p) {
    dlp_chunks_desc d;
    memset(&d, 0, sizeof d);
    d.n_items = 50;
    d.fields = rig_fields;
    d.n_fields = 1;
    d.chunk_rows = 10;
    d.batch_size = 4;
    d.load = fuzz_chunk;
    d.workers.num_workers = 2;
    d.preload = DLP_PRELOAD_CPU;
    d.device = dlp_device_host();
    d.pipe.name = "image";
    d.pipe.trace_bytes = 160;
    return dlp_chunks_open(p, &d, NULL);
}

/* Stopped in the middle of an epoch, with a batch held, and at rest. */
static void image_make(int kind) {
    struct image *im = &images[kind];
    struct timespec rest = {0, 30000000};
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    rig_init(&r, 50, 4);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    r.pipe.name = "image";
    r.pipe.prefetch_factor = 3;
    r.pipe.trace_bytes = 160;
    r.dataset.fetch = fuzz_fetch;
    r.fetch.on_error = DLP_ON_ERROR_REPLACE;
    rig_workers(&r, kind == 2 ? 0 : 2, kind == 1);
    r.pipe.unordered = kind == 1;
    r.n_item_maps = r.n_batch_maps = kind == 1;
    r.n_transfers = kind != 0;
    r.transfer.workers.num_workers = kind == 1;
    if (kind == 2) r.batch.collate = fuzz_collate;
    if ((kind == PARTS ? parts_image(&p) : kind == CHUNKS ? chunks_image(&p) : rig_open(&r, &p)))
        exit(1);
    for (int i = 0; i < 5; i++) {
        if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) exit(1);
        if (i < 4) dlp_pipe_release(p, b);
    }
    nanosleep(&rest, NULL);
    im->n = p->region_bytes;
    im->bytes = malloc(im->n);
    if (pread(p->memfd, im->bytes, im->n, 0) != (ssize_t)im->n) exit(p->memfd < 0 ? 78 : 1);
    im->fd = (int)syscall(SYS_memfd_create, "image", 1u);
    if (im->fd < 0) {
        printf("no memfd on this system\n");
        exit(78);
    }
    if (pwrite(im->fd, im->bytes, im->n, 0) != (ssize_t)im->n) exit(1);
    dlp_pipe_release(p, b);
    dlp_pipe_close(p);
    rig_free(&r);
}

static const dlpi_record *record_of(const struct image *im, int id) {
    const dlpi_region *h = (const dlpi_region *)(const void *)im->bytes;
    for (uint32_t i = 0; i < h->n_records; i++)
        if (dlpi_record_id(&h->records[i]) == id) return &h->records[i];
    return NULL;
}

/* ---- a case: changes ---- */

typedef struct change {
    uint64_t at, value;
    uint32_t bytes; /* 0: a size of the file */
    int late;       /* before the second look */
} change;

typedef struct fuzz_case {
    int kind, n;
    change c[64];
} fuzz_case;

static void add(fuzz_case *k, uint64_t at, uint32_t bytes, uint64_t value, int late) {
    if (k->n == 64) return;
    k->c[k->n].at = at;
    k->c[k->n].bytes = bytes;
    k->c[k->n].value = value;
    k->c[k->n++].late = late;
}

/* Which element of which record an offset is in, as "at" wants it. */
static void say(const struct image *im, const change *c) {
    const dlpi_region *h = (const dlpi_region *)(const void *)im->bytes;
    int id = 0;
    uint64_t i = 0, offset = c->at;
    for (uint32_t k = 0; k < h->n_records; k++) {
        const dlpi_record *r = &h->records[k];
        if (c->at < r->offset || c->at - r->offset >= r->stride * r->count) continue;
        id = dlpi_record_id(r);
        i = (c->at - r->offset) / r->stride;
        offset = (c->at - r->offset) % r->stride;
    }
    if (saved_n < SAVED - 200)
        saved_n += (size_t)snprintf(saved + saved_n, SAVED - saved_n,
                                    "at %d %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n", id, i, offset,
                                    c->bytes, c->value);
}

static void save(const fuzz_case *k) {
    int late = 0;
    if (saved == NULL) return;
    memset(saved, ' ', saved_n);
    saved_n = (size_t)snprintf(saved, SAVED, "kind %d\n", k->kind);
    for (int i = 0; i < k->n; i++) {
        if (k->c[i].late && !late++)
            saved_n += (size_t)snprintf(saved + saved_n, SAVED - saved_n, "refresh\n");
        if (k->c[i].bytes)
            say(&images[k->kind], &k->c[i]);
        else
            saved_n += (size_t)snprintf(saved + saved_n, SAVED - saved_n, "size %" PRIu64 "\n",
                                        k->c[i].value);
    }
}

/* ---- looking ---- */

static void look_worker(const dlp_monitor *m, uint32_t i, uint32_t n_stages) {
    dlp_worker_stats w;
    CHECK(dlp_monitor_worker_stats(m, i, &w) == DLP_OK);
    CHECK(w.stage >= 0 && (uint32_t)w.stage < n_stages && w.worker >= 0 &&
          w.worker < DLP_MAX_WORKERS);
}

static void look_lane(const dlp_monitor *m, int i, uint64_t most) {
    dlp_trace_event events[40];
    char name[32];
    int n = dlp_monitor_trace(m, i, events, 40, name);
    CHECK(n >= 0 && n <= 40 && (uint64_t)n <= most && strnlen(name, 32) < 32);
}

/* Everything that can be asked of a copy. */
static void look(dlp_monitor *m) {
    dlp_monitor_info about;
    dlp_stats s;
    dlp_skip skips[64];
    uint64_t total;
    char words[6000], cut[40], line[800];
    int n, lanes;
    CHECK(dlp_monitor_about(m, &about) == DLP_OK && strnlen(about.name, 32) < 32);
    CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
    CHECK(s.n_stages >= 1 && s.n_stages <= DLP_MAX_STAGES && s.n_workers >= 1);
    CHECK(s.ready <= s.in_flight && s.in_flight <= DLPI_VIEW_RING);
    CHECK(s.chunks.cpu_free <= s.chunks.cpu_buffers && s.chunks.loadable <= s.chunks.per_epoch);
    CHECK(s.chunks.device_free <= s.chunks.device_buffers);
    CHECK(s.batch_size >= 1 && s.batch_size <= 1u << 30);
    for (uint32_t i = 0; i < s.n_stages; i++) CHECK(strnlen(s.stages[i].name, 32) < 32);
    for (uint32_t i = 0; i < s.n_workers; i += 1 + s.n_workers / 64) look_worker(m, i, s.n_stages);
    CHECK(dlp_monitor_worker_stats(m, s.n_workers, NULL) == DLP_ERR_ARG);
    n = dlp_monitor_skips(m, skips, 64, &total);
    CHECK(n >= 0 && n <= 64);
    lanes = dlp_monitor_trace_lanes(m);
    CHECK(lanes == (int)s.n_workers + 1);
    for (int i = 0; i < lanes; i += 1 + lanes / 64) look_lane(m, i, about.trace_events);
    CHECK(dlp_monitor_batches_per_epoch(m) >= DLP_FOREVER);
    if (looks % 8 == 0) /* may simulate for tens of ms */
        CHECK(dlp_monitor_explain(m, words, sizeof words) > 0 && strncmp(words, "Limit: ", 7) == 0);
    if (looks % 16 == 0) CHECK(dlp_monitor_explain(m, cut, sizeof cut) > 0);
    CHECK(strnlen(dlp_monitor_error(m)->message, 256) < 256 &&
          strnlen(dlp_monitor_error(m)->stage, 32) < 32);
    CHECK(dlp_error_format(dlp_monitor_error(m), line, sizeof line) > 0);
    if (looks++ % 16 == 0 && s.n_workers < 64) {
        CHECK(dlp_monitor_write_trace(m, "/dev/null", NULL) == DLP_OK);
        CHECK(dlp_monitor_write_timeline(m, "/dev/null", NULL) == DLP_OK);
    }
}

static int code_ok(int rc, const dlp_error *e) {
    if (rc == DLP_OK) return 1;
    return (rc == DLP_ERR_CORRUPT || rc == DLP_ERR_UNSUPPORTED || rc == DLP_ERR_STATE) &&
           e->code == rc && e->message[0] != 0 && memchr(e->message, 0, sizeof e->message);
}

static void apply(const fuzz_case *k, int late) {
    const struct image *im = &images[k->kind];
    for (int i = 0; i < k->n; i++) {
        const change *c = &k->c[i];
        if (c->late != late) continue;
        if (c->bytes == 0) {
            if (ftruncate(im->fd, (off_t)c->value) != 0) continue;
        } else if (pwrite(im->fd, &c->value, c->bytes, (off_t)c->at) < 0) {
            continue;
        }
    }
}

static void restore(const fuzz_case *k) {
    const struct image *im = &images[k->kind];
    for (int i = 0; i < k->n; i++) {
        const change *c = &k->c[i];
        uint64_t left = c->at < im->n ? im->n - c->at : 0;
        if (c->bytes == 0 || left < c->bytes) { /* all of it */
            if (ftruncate(im->fd, (off_t)im->n) != 0 ||
                pwrite(im->fd, im->bytes, im->n, 0) != (ssize_t)im->n)
                exit(1);
            return;
        }
    }
    for (int i = 0; i < k->n; i++) {
        const change *c = &k->c[i];
        if (pwrite(im->fd, im->bytes + c->at, c->bytes, (off_t)c->at) != (ssize_t)c->bytes) exit(1);
    }
}

static void run_fd(int fd, const fuzz_case *k) {
    dlp_monitor *m = calloc(1, sizeof *m);
    uint64_t from = test_now_ns();
    dlp_error e;
    int rc;
    m->fd = dup(fd);
    m->proc = m->number = -1;
    memset(&e, 0x55, sizeof e);
    rc = dlpi_view_open(m, &e);
    CHECK(code_ok(rc, &e));
    if (rc == DLP_OK) {
        opened++;
        look(m);
        if (k) apply(k, 1);
        memset(&e, 0x55, sizeof e);
        rc = dlp_monitor_refresh(m, &e);
        CHECK(code_ok(rc, &e));
        look(m); /* of the last copy, if that one could not be made */
    }
    dlp_monitor_close(m);
    CHECK(test_now_ns() - from < UINT64_C(20000000000));
}

static void run(const fuzz_case *k) {
    save(k);
    apply(k, 0);
    run_fd(images[k->kind].fd, k);
    restore(k);
}

/* ---- named fields ---- */

#define OF(s, f) offsetof(s, f), (uint32_t)sizeof(((s *)0)->f)

/* Stages of the images of parts and of chunks. */
enum { PARTS_STAGE = 2, CACHE_STAGE = 4, TRANSFER_STAGE = 4, SPLIT_STAGE = 5 };

static const struct field {
    const char *name;
    int id; /* of the area; 0: header; 1000: the table of records */
    size_t at;
    uint32_t bytes;
} fields[] = {
    {"header.magic", 0, OF(dlpi_region, magic)},
    {"header.format", 0, OF(dlpi_region, format)},
    {"header.header_bytes", 0, OF(dlpi_region, header_bytes)},
    {"header.layout", 0, OF(dlpi_region, layout)},
    {"header.view", 0, OF(dlpi_region, view)},
    {"header.total_bytes", 0, OF(dlpi_region, total_bytes)},
    {"header.n_records", 0, OF(dlpi_region, n_records)},
    {"header.record_bytes", 0, OF(dlpi_region, record_bytes)},
    {"header.records_at", 0, OF(dlpi_region, records_at)},
    {"record.stage", 1000, OF(dlpi_record, stage)},
    {"record.number", 1000, OF(dlpi_record, number)},
    {"record.offset", 1000, OF(dlpi_record, offset)},
    {"record.stride", 1000, OF(dlpi_record, stride)},
    {"record.count", 1000, OF(dlpi_record, count)},
    {"pipe.pid", DLPI_REC_PIPE, OF(dlpi_pipe_rec, pid)},
    {"pipe.n_stages", DLPI_REC_PIPE, OF(dlpi_pipe_rec, n_stages)},
    {"pipe.n_workers", DLPI_REC_PIPE, OF(dlpi_pipe_rec, n_workers)},
    {"pipe.n_work", DLPI_REC_PIPE, OF(dlpi_pipe_rec, n_work)},
    {"pipe.n_item_work", DLPI_REC_PIPE, OF(dlpi_pipe_rec, n_item_work)},
    {"pipe.prefetch", DLPI_REC_PIPE, OF(dlpi_pipe_rec, prefetch)},
    {"pipe.max_held", DLPI_REC_PIPE, OF(dlpi_pipe_rec, max_held)},
    {"pipe.n_slots", DLPI_REC_PIPE, OF(dlpi_pipe_rec, n_slots)},
    {"pipe.ring", DLPI_REC_PIPE, OF(dlpi_pipe_rec, ring)},
    {"pipe.batch_rows", DLPI_REC_PIPE, OF(dlpi_pipe_rec, batch_rows)},
    {"pipe.words_max", DLPI_REC_PIPE, OF(dlpi_pipe_rec, words_max)},
    {"pipe.trace_events", DLPI_REC_PIPE, OF(dlpi_pipe_rec, trace_events)},
    {"pipe.cpus", DLPI_REC_PIPE, OF(dlpi_pipe_rec, cpus)},
    {"pipe.plan_bytes", DLPI_REC_PIPE, OF(dlpi_pipe_rec, plan_bytes)},
    {"pipe.batches_per_epoch", DLPI_REC_PIPE, OF(dlpi_pipe_rec, batches_per_epoch)},
    {"stage.kind", DLPI_REC_STAGES, OF(dlpi_stage_rec, kind)},
    {"stage.id", DLPI_REC_STAGES, OF(dlpi_stage_rec, id)},
    {"stage.work", DLPI_REC_STAGES, OF(dlpi_stage_rec, work)},
    {"stage.first_worker", DLPI_REC_STAGES, OF(dlpi_stage_rec, first_worker)},
    {"stage.n_workers", DLPI_REC_STAGES, OF(dlpi_stage_rec, n_workers)},
    {"stage.num_workers", DLPI_REC_STAGES, OF(dlpi_stage_rec, num_workers)},
    {"stage.sst_offset", DLPI_REC_STAGES, OF(dlpi_stage_rec, stage_words_offset)},
    {"ctl.tail", DLPI_REC_CTL, OF(dlpi_ctl, tail)},
    {"ctl.base", DLPI_REC_CTL, OF(dlpi_ctl, base)},
    {"ctl.delivered", DLPI_REC_CTL, OF(dlpi_ctl, delivered)},
    {"ctl.items", DLPI_REC_CTL, OF(dlpi_ctl, items)},
    {"ctl.bytes", DLPI_REC_CTL, OF(dlpi_ctl, bytes)},
    {"ctl.held", DLPI_REC_CTL, OF(dlpi_ctl, held)},
    {"ctl.wait_ns", DLPI_REC_CTL, OF(dlpi_ctl, wait_ns)},
    {"ctl.step_ns", DLPI_REC_CTL, OF(dlpi_ctl, step_ns)},
    {"ctl.started_ns", DLPI_REC_CTL, OF(dlpi_ctl, started_ns)},
    {"ctl.skips", DLPI_REC_CTL, OF(dlpi_ctl, skips)},
    {"ctl.error_ready", DLPI_REC_CTL, OF(dlpi_ctl, error_ready)},
    {"order", DLPI_REC_ORDER, 0, 4},
    {"taken", DLPI_REC_TAKEN, 0, 1},
    {"worker.state", DLPI_REC_WORKERS, OF(dlpi_worker_block, state)},
    {"worker.items", DLPI_REC_WORKERS, OF(dlpi_worker_block, items)},
    {"worker.busy_ns", DLPI_REC_WORKERS, OF(dlpi_worker_block, busy_ns)},
    {"worker.max_ns", DLPI_REC_WORKERS, OF(dlpi_worker_block, max_ns)},
    {"worker.trace_head", DLPI_REC_WORKERS, OF(dlpi_worker_block, trace_head)},
    {"worker.cache_hits", DLPI_REC_WORKERS, OF(dlpi_worker_block, kept_hits)},
    {"worker.cache_kept", DLPI_REC_WORKERS, OF(dlpi_worker_block, kept_items)},
    {"worker.in_flight_ns", DLPI_REC_WORKERS, OF(dlpi_worker_block, in_flight_ns)},
    {"stage.in_flight", DLPI_REC_STAGES, OF(dlpi_stage_rec, in_flight)},
    {"stage.active", DLPI_REC_STAGES, OF(dlpi_stage_rec, active)},
    {"stage.workers_min", DLPI_REC_STAGES, OF(dlpi_stage_rec, workers_min)},
    {"ctl.views", DLPI_REC_CTL, OF(dlpi_ctl, views)},
    {"ctl.tunes", DLPI_REC_CTL, OF(dlpi_ctl, tunes)},
    {"ctl.source_wait_ns", DLPI_REC_CTL, OF(dlpi_ctl, source_wait_ns)},
    {"ctl.source_moves", DLPI_REC_CTL, OF(dlpi_ctl, source_moves)},
    {"cache.n_items", DLPI_OWN(CACHE_STAGE, DLPI_CACHE_ITEMS), 0, 8},
    {"part.state", DLPI_OWN(PARTS_STAGE, DLPI_INPUTS_RECORDS), OF(dlpi_input, state)},
    {"part.used", DLPI_OWN(PARTS_STAGE, DLPI_INPUTS_RECORDS), OF(dlpi_input, used)},
    {"chunk.per_epoch", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, per_epoch)},
    {"chunk.cpu_buffers", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, cpu_buffers)},
    {"chunk.preload", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, preload)},
    {"chunk.in_epoch_at", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, in_epoch_at)},
    {"chunk.used_at", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, used_at)},
    {"chunk.view_rows", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_REC), OF(dlpi_chunk_rec, view_rows)},
    {"chunk.resident", DLPI_OWN(SPLIT_STAGE, DLPI_SPLIT_RESIDENT), 0, 8},
    {"chunk.device_slot", DLPI_OWN(TRANSFER_STAGE, DLPI_OWN_LINK), 0, 4},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* Offset of field f of element i; UINT64_MAX: there is none. */
static uint64_t field_at(const struct image *im, const struct field *f, uint64_t i) {
    const dlpi_record *r;
    if (f->id == 0) return i == 0 ? f->at : UINT64_MAX;
    if (f->id == 1000) {
        r = record_of(im, (int)i);
        return r ? (uint64_t)((const uint8_t *)r - im->bytes) + f->at : UINT64_MAX;
    }
    r = record_of(im, f->id);
    return r && i < r->count ? r->offset + i * r->stride + f->at : UINT64_MAX;
}

static const uint64_t extremes[] = {0,
                                    1,
                                    2,
                                    3,
                                    7,
                                    8,
                                    16,
                                    17,
                                    255,
                                    1023,
                                    1024,
                                    16384,
                                    65536,
                                    0x7fffffff,
                                    0x80000000,
                                    0xfffffffe,
                                    0xffffffff,
                                    UINT64_C(0x100000000),
                                    UINT64_C(1) << 40,
                                    INT64_MAX,
                                    UINT64_C(1) << 63,
                                    UINT64_MAX - 7,
                                    UINT64_MAX - 1,
                                    UINT64_MAX};
enum { N_EXTREMES = sizeof extremes / sizeof *extremes };

/* What the others do not have, and the stages. */
static int fields_own(const char *name) {
    return strncmp(name, "stage.", 6) == 0 || strncmp(name, "cache.", 6) == 0 ||
           strncmp(name, "part.", 5) == 0 || strncmp(name, "chunk.", 6) == 0 ||
           strncmp(name, "ctl.source", 10) == 0 || strstr(name, "cache_") ||
           strcmp(name, "ctl.views") == 0 || strstr(name, "tunes") || strstr(name, "in_flight");
}

static void fields__at_their_extremes(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int f = 0; f < N_FIELDS; f++)
            for (uint64_t i = 0; i < DLPI_AREAS; i++) {
                bool late = fields[f].id == 1000 && i >= DLPI_AREA_OWN; /* of their own too */
                uint64_t at = field_at(&images[kind], &fields[f], i);
                if (at == UINT64_MAX || (getenv("SHORT") && i % 8 > 0)) continue;
                if (kind >= PARTS && !late && !fields_own(fields[f].name)) continue;
                for (int v = 0; v < N_EXTREMES; v++) {
                    fuzz_case k = {kind, 0, {{0, 0, 0, 0}}};
                    add(&k, at, fields[f].bytes, extremes[v], v % 3 == 2);
                    run(&k);
                }
            }
}

/* Names and messages without an end. */
static void strings__not_terminated(void) {
    const struct image *im = &images[1];
    const dlpi_record *pipe = record_of(im, DLPI_REC_PIPE), *ctl = record_of(im, DLPI_REC_CTL);
    const dlpi_record *stages = record_of(im, DLPI_REC_STAGES);
    const dlpi_record *workers = record_of(im, DLPI_REC_WORKERS);
    const uint64_t text = UINT64_C(0x4141414141414141);
    fuzz_case names = {1, 0, {{0, 0, 0, 0}}}, error = names, message = names;
    for (uint64_t i = 0; i < 32; i += 8) {
        add(&names, pipe->offset + i, 8, text, 0);
        for (uint64_t k = 0; k < stages->count; k++)
            add(&names, stages->offset + k * stages->stride + i, 8, text, 0);
    }
    run(&names);
    for (size_t i = offsetof(dlp_error, stage); i < sizeof(dlp_error); i += 8)
        add(&error, ctl->offset + offsetof(dlpi_ctl, error) + i, 8, text, 0);
    add(&error, ctl->offset + offsetof(dlpi_ctl, error_ready), 4, 1, 0);
    run(&error);
    for (size_t i = 0; i < sizeof(((dlpi_worker_block *)0)->message); i += 8)
        add(&message, workers->offset + offsetof(dlpi_worker_block, message) + i, 8, text, 0);
    run(&message);
}

/* ---- a region that changes while it is read ---- */

static uint32_t looking; /* 1: go on changing */

static void *change_all_the_time(void *arg) {
    static const char *const which[] = {"ctl.tail", "ctl.base", "order", "worker.trace_head"};
    const struct image *im = arg;
    uint64_t seed = 7;
    while (__atomic_load_n(&looking, __ATOMIC_SEQ_CST) != 0)
        for (int f = 0; f < N_FIELDS; f++) {
            uint64_t at, value = 0, i = test_pick(&seed, 4);
            int wanted = 0;
            for (int k = 0; k < 4; k++) wanted |= strcmp(fields[f].name, which[k]) == 0;
            if (!wanted || (at = field_at(im, &fields[f], i)) == UINT64_MAX) continue;
            if (test_pick(&seed, 2))
                memcpy(&value, im->bytes + at, fields[f].bytes);
            else
                value = test_pick(&seed, 2) ? test_pick(&seed, 9) : test_random(&seed);
            if (pwrite(im->fd, &value, fields[f].bytes, (off_t)at) < 0) return NULL;
        }
    return NULL;
}

static void region__changed_while_looked_at(double seconds) {
    struct image *im = &images[1];
    fuzz_case whole = {1, 0, {{0, 0, 0, 0}}};
    uint64_t until = test_now_ns() + (uint64_t)(seconds * 1e9), n = 0;
    pthread_t other;
    looking = 1;
    if (pthread_create(&other, NULL, change_all_the_time, im) != 0) exit(1);
    for (; test_now_ns() < until; n++) run_fd(im->fd, NULL);
    __atomic_store_n(&looking, 0, __ATOMIC_SEQ_CST);
    pthread_join(other, NULL);
    add(&whole, im->n, 0, im->n, 0);
    restore(&whole);
    printf("changed while looked at: %" PRIu64 " times\n", n);
}

/* ---- the corpus ---- */

static int case_line(fuzz_case *k, const char *line, int *late) {
    char name[64], value[64];
    uint64_t i = 0, offset, id, bytes;
    const struct image *im = &images[k->kind];
    const dlpi_record *r;
    if (sscanf(line, "kind %d", &k->kind) == 1) return k->kind >= 0 && k->kind < KINDS;
    if (strncmp(line, "refresh", 7) == 0) return *late = 1;
    if (sscanf(line, "size %63s", value) == 1) {
        add(k, 0, 0, strtoull(value, NULL, 0), *late);
        return 1;
    }
    if (sscanf(line, "at %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %63s", &id, &i, &offset,
               &bytes, value) == 5) {
        if (bytes < 1 || bytes > 8) return 0;
        r = id ? record_of(im, (int)id) : NULL;
        if (id && (r == NULL || i >= r->count || offset >= r->stride)) return 1; /* gone */
        add(k, r ? r->offset + i * r->stride + offset : offset, (uint32_t)bytes,
            strtoull(value, NULL, 0), *late);
        return 1;
    }
    if (sscanf(line, "set %63[a-z._]%63s", name, value) == 2 && value[0] == '[') {
        if (sscanf(line, "set %63[a-z._][%" SCNu64 "] %63s", name, &i, value) != 3) return 0;
    } else if (sscanf(line, "set %63s %63s", name, value) != 2) {
        return line[0] == '#' || line[strspn(line, " \n")] == 0;
    }
    for (int f = 0; f < N_FIELDS; f++) {
        uint64_t at;
        if (strcmp(fields[f].name, name) != 0) continue;
        at = field_at(im, &fields[f], i);
        if (at != UINT64_MAX) add(k, at, fields[f].bytes, strtoull(value, NULL, 0), *late);
        return 1;
    }
    return 0;
}

static void name_parse(const void *bytes, size_t n) {
    dlpi_name_rec r;
    int rc;
    memset(&r, 0x55, sizeof r);
    rc = dlpi_name_parse(bytes, n, &r);
    CHECK(rc == DLP_OK || rc == DLP_ERR_CORRUPT || rc == DLP_ERR_UNSUPPORTED);
    if (rc == DLP_OK)
        CHECK(dlpi_name_ok(r.name) && r.pid > 0 && r.memfd >= 0);
    else
        CHECK(r.pid == 0x55555555);
}

static int corpus_file(const char *name) {
    static uint8_t bytes[1 << 16];
    fuzz_case k = {0, 0, {{0, 0, 0, 0}}};
    char path[512];
    int late = 0, ok = 1;
    size_t n;
    FILE *f;
    snprintf(path, sizeof path, CORPUS "/%.200s", name);
    if ((f = fopen(path, "rb")) == NULL) return 0;
    n = fread(bytes, 1, sizeof bytes - 1, f);
    fclose(f);
    bytes[n] = 0;
    if (strncmp(name, "name-", 5) == 0) {
        name_parse(bytes, n);
    } else if (strncmp(name, "raw-", 4) == 0) {
        int fd = (int)syscall(SYS_memfd_create, "raw", 1u);
        CHECK(pwrite(fd, bytes, n, 0) == (ssize_t)n);
        run_fd(fd, NULL);
        close(fd);
    } else {
        char *line = strtok((char *)bytes, "\n");
        for (; line && ok; line = strtok(NULL, "\n")) ok = case_line(&k, line, &late);
        if (!ok) printf("%s: what is \"%s\"?\n", path, line ? line : "");
        CHECK(ok);
        run(&k);
    }
    return 1;
}

static void corpus__replayed(void) {
    DIR *dir = opendir(CORPUS);
    const struct dirent *d;
    int n = 0;
    CHECK(dir != NULL);
    while (dir && (d = readdir(dir)) != NULL)
        if (d->d_name[0] != '.') n += corpus_file(d->d_name);
    if (dir) closedir(dir);
    CHECK(n >= 20);
    printf("corpus: %d cases, %" PRIu64 " opened\n", n, opened);
}

/* ---- at random ---- */

static uint64_t random_value(uint64_t *seed, uint64_t old) {
    switch (test_pick(seed, 6)) {
    case 0: return extremes[test_pick(seed, N_EXTREMES)];
    case 1: return test_random(seed);
    case 2: return old ^ (UINT64_C(1) << test_pick(seed, 64));
    case 3: return old + 1 - 2 * (uint64_t)test_pick(seed, 2);
    case 4: return old * 2;
    default: return test_pick(seed, 64);
    }
}

static void random_change(fuzz_case *k, uint64_t *seed, int late) {
    const struct image *im = &images[k->kind];
    const dlpi_region *h = (const dlpi_region *)(const void *)im->bytes;
    uint32_t bytes = 1u << test_pick(seed, 4), kind = test_pick(seed, 10);
    uint64_t at, old = 0;
    if (kind == 0) {
        at = test_random(seed) % (sizeof *h / bytes) * bytes;
    } else if (kind < 6) {
        const struct field *f = &fields[test_pick(seed, N_FIELDS)];
        at = field_at(im, f, test_pick(seed, 8));
        if (at == UINT64_MAX) at = field_at(im, f, 0);
        if (at == UINT64_MAX) return;
        bytes = f->bytes;
    } else {
        const dlpi_record *r = &h->records[test_pick(seed, h->n_records)];
        const int id = dlpi_record_id(r);
        if (id == DLPI_REC_CELLS || id == DLPI_REC_ITEM_CELLS || r->count == 0 || r->stride < 8)
            return;
        at = r->offset + test_random(seed) % r->count * r->stride +
             test_random(seed) % (r->stride / bytes) * bytes;
    }
    if (at + bytes > im->n) return;
    memcpy(&old, im->bytes + at, bytes);
    add(k, at, bytes, random_value(seed, old), late);
}

static void region__changed_at_random(uint64_t *seed) {
    fuzz_case k = {(int)test_pick(seed, KINDS), 0, {{0, 0, 0, 0}}};
    uint32_t n = 1 + test_pick(seed, 8), late = test_pick(seed, 3) == 0 ? test_pick(seed, 6) : 0;
    for (uint32_t i = 0; i < n; i++) random_change(&k, seed, 0);
    if (test_pick(seed, 50) == 0)
        add(&k, 0, 0, test_random(seed) % (2 * images[k.kind].n), (int)test_pick(seed, 2));
    for (uint32_t i = 0; i < late; i++) random_change(&k, seed, 1);
    run(&k);
}

static void name__changed_at_random(uint64_t *seed) {
    uint8_t bytes[sizeof(dlpi_name_rec) + 64];
    dlpi_name_rec r;
    size_t n = sizeof r;
    memset(&r, 0, sizeof r);
    memset(bytes, 0x7f, sizeof bytes);
    r.magic = DLPI_NAME_MAGIC;
    r.format = DLPI_NAME_FORMAT;
    r.bytes = sizeof r;
    dlpi_copy_text(r.name, sizeof r.name, "train-1.x");
    r.pid = 77;
    r.memfd = 3;
    for (uint32_t i = test_pick(seed, 4); i > 0; i--)
        ((uint8_t *)&r)[test_pick(seed, sizeof r)] = (uint8_t)random_value(seed, 65);
    if (test_pick(seed, 2)) r.check = dlpi_name_check(&r);
    if (test_pick(seed, 4) == 0) n = test_pick(seed, sizeof bytes);
    memcpy(bytes, &r, sizeof r);
    name_parse(bytes, n);
}

int main(void) {
    const char *seconds = getenv("FUZZ_SECONDS"), *start = getenv("FUZZ_SEED");
    double most = seconds ? atof(seconds) : getenv("SHORT") ? 0.5 : 2;
    uint64_t seed = start ? strtoull(start, NULL, 0) : 1, rounds = 0, until, every;
    if (getenv("FUZZ_SAVE")) {
        int fd = open(getenv("FUZZ_SAVE"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, SAVED) != 0) return 1;
        saved = mmap(NULL, SAVED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (saved == MAP_FAILED) return 1;
    }
    for (int kind = 0; kind < KINDS; kind++) image_make(kind);
    for (int kind = 0; kind < KINDS; kind++) { /* unchanged, all is well */
        fuzz_case k = {kind, 0, {{0, 0, 0, 0}}};
        uint64_t before = opened;
        run(&k);
        CHECK(opened == before + 1);
    }
    corpus__replayed();
    fields__at_their_extremes();
    strings__not_terminated();
    region__changed_while_looked_at(getenv("SHORT") ? 0.2 : 0.5);
    printf("extremes: %" PRIu64 " opened\n", opened);
    until = test_now_ns() + (uint64_t)(most * 1e9);
    every = test_now_ns() + UINT64_C(60000000000);
    for (opened = 0; (test_now_ns() < until || rounds < 200) && test_failures == 0; rounds++) {
        region__changed_at_random(&seed);
        name__changed_at_random(&seed);
        if (test_now_ns() < every) continue;
        every = test_now_ns() + UINT64_C(60000000000);
        printf("%" PRIu64 " cases, %" PRIu64 " opened\n", rounds, opened);
        fflush(stdout);
    }
    printf("at random: %" PRIu64 " cases, %" PRIu64 " opened, next seed %" PRIu64 "\n", rounds,
           opened, seed);
    CHECK(opened > rounds / 50); /* many of them are deep inside */
    if (test_failures && saved) printf("the case is in %s\n", getenv("FUZZ_SAVE"));
    for (int kind = 0; kind < KINDS; kind++) {
        free(images[kind].bytes);
        close(images[kind].fd);
    }
    return test_end("fuzz_region");
}
