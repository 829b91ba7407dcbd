#pragma once
/* tests: system/source/push, system/source/push_plan, system/shm/shm_push, model/model_links */
#include "api/push.h"
#include "cells/fields.h"
#include "work/workers.h"
#include "queue/credit.h"
#include "queue/mpsc.h"
#include "source/mapped.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-push       ITEMS THAT OTHERS PUSH
   One mapping: a head, a line for each producer, a bundle (>>queues). The order, and why a record
   is seen whole or not at all, are the lanes': a record is there when its lane's tail is beyond it
   (LT1 -> LT2), and a producer that dies before has pushed nothing. A record is a mark (an item, or
   the end of its producer's stream) and the fields, each at a multiple of 8. Only the pipe's one
   fetch worker reads, by peek, copy, release. The head is copied and checked once, by each producer
   that maps it; offsets are computed from the copy.

   label  atomic          written by            read by (partner)
   PU1    head.magic      open, last            producers (PU1): the head is whole
   PU2    head.over,      stop, close; left:    reader, before it looks whether lanes are empty;
          left            the pipe's worker     producers that wait (PU2)
   LO1    owners          >>queues              reader, producers: how many there are, a hint
   -      line.refused    its producer          statistics
   -      items, left     the reader            statistics
   -      begun           a worker that begins  itself: each pipe counts its rows from 0
   U4     users           see >>impl-mapped

   A row that a stage after fetch gives up, or has when it dies, is fetched again, and is to have
   the item that it had. So where there is such a stage the last items are kept, by the number of
   their row, as many as slots have rows: older ones are past all that asks again. They lie in the
   fetch stage's own area of the region. */

#include <signal.h>

#define DLPI_PUSH_MAGIC UINT64_C(0x3130687375706c64) /* "dlpush01" */
enum { DLPI_PUSH_ITEM = 0x69, DLPI_PUSH_END = 0x65, DLPI_PUSH_LOOK_MS = 100 };
enum { DLPI_PUSH_YIELDS = 200, DLPI_PUSH_SHORT_NS = 200000 };

typedef struct dlpi_push_head { /* in region */
    uint64_t magic;             /* PU1 */
    uint64_t total_bytes, lines_at, bundle_at, bundle_bytes, fields_id;
    uint32_t record_bytes, max_producers, n_fields, full;
    int32_t pid;   /* of the reader */
    uint32_t over; /* PU2 1: no more is wanted */
    uint32_t left; /* PU2 1: the pipe that read is closed, and no other one reads */
} dlpi_push_head;

typedef struct dlpi_push_line { /* in region: of a producer */
    uint64_t refused;
    uint8_t pad[DLPI_LINE - 8];
} dlpi_push_line;

typedef struct dlpi_push_fields { /* where each lies in a record */
    uint32_t n;
    uint64_t offset[DLP_MAX_FIELDS], bytes[DLP_MAX_FIELDS], record, id;
} dlpi_push_fields;

typedef struct dlpi_push_crowd {
    uint32_t attached, looks;
} dlpi_push_crowd;

struct dlp_push {
    dlpi_push_head *head;
    dlpi_push_head was; /* as open wrote it */
    dlpi_push_fields at;
    dlp_field fields[DLP_MAX_FIELDS];
    char names[DLP_MAX_FIELDS][32];
    char *path;
    uint64_t keep, capacity;
    uint32_t users; /* U4 */
    uint32_t writers, n_ended;
    bool over; /* the reader's, as all below */
    dlp_mpsc_rx rx;
    dlp_spsc_rx *lanes;
    uint64_t *items, *left; /* [max_producers] */
    const uint32_t *owners; /* the same, in region */
    uint32_t begun;         /* what follows is of the pipe that reads */
    uint64_t given;         /* rows that have their items */
    uint64_t damaged; /* 1 + the row at which a lane was: the last one, or rows that are left out
                         would have no end */
    uint8_t *kept; /* [n_kept] records of the pipe's region, the row's number as mark; NULL: nobody
                         asks again */
    uint64_t n_kept;
    uint32_t damaged_by; /* whose lane it was, while damaged */
    const dlp_pipe *by;  /* that reads, since begun */
    dlpi_push_crowd crowd;
};

struct dlp_pusher {
    void *map; /* NULL: the push's own */
    uint64_t map_bytes;
    dlpi_push_head *head;
    dlpi_push_line *line;
    dlpi_push_fields at;
    dlp_mpsc_tx tx;
    void *record; /* begun, not committed */
    uint32_t number, full, lanes;
    dlpi_push_crowd crowd;
    bool ended;
};

/* ---- what the desc may say ---- */

static int dlpi_push_bad(dlp_error *err, const char *field, const char *words) {
    return dlpi_error_set(err, DLP_ERR_ARG, field, "%s must be %s", field, words);
}

/* Where field i lies: its bytes, of which a record holds 2^20 at most. */
static int dlpi_push_field(dlpi_push_fields *at, uint32_t i, const dlp_field *f, dlp_error *err) {
    uint64_t bytes = dlpi_dtype_bytes(f->dtype);
    if (f->name == NULL || f->name[0] == 0 || strlen(f->name) > 31)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                              "fields[%" PRIu32 "].name must be of 1..31 bytes", i);
    if (bytes == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields", "fields \"%s\": no such dtype", f->name);
    if (f->ragged)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                              "field \"%s\" is ragged: what is pushed has one size; push the "
                              "longest and a length",
                              f->name);
    if (f->ndim < 0 || f->ndim > DLP_MAX_DIMS)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields", "field \"%s\": ndim must be 0..%d",
                              f->name, DLP_MAX_DIMS);
    for (int32_t k = 0; k < f->ndim; k++) {
        if (f->shape[k] < 1)
            return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                                  "field \"%s\": shape[%" PRId32 "] must be 1 or more", f->name, k);
        bytes = dlpi_times(bytes, (uint64_t)f->shape[k]);
    }
    at->offset[i] = at->record;
    at->bytes[i] = bytes;
    at->record = dlpi_sum(at->record, dlpi_round_up(bytes, 8));
    if (at->record > DLP_QUEUE_MAX_RECORD)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields", "an item has more than %d bytes",
                              DLP_QUEUE_MAX_RECORD - 8);
    for (const char *c = f->name; *c; c++) at->id = dlpi_absorb(at->id, (uint8_t)*c);
    at->id = dlpi_absorb(dlpi_absorb(at->id, (uint64_t)f->dtype), (uint64_t)f->ndim);
    for (int32_t k = 0; k < f->ndim; k++) at->id = dlpi_absorb(at->id, (uint64_t)f->shape[k]);
    return DLP_OK;
}

static int dlpi_push_layout(dlpi_push_fields *at, const dlp_field *fields, uint32_t n,
                            dlp_error *err) {
    int rc = DLP_OK;
    memset(at, 0, sizeof *at);
    at->n = n;
    at->record = 8; /* the mark */
    if (fields == NULL) return dlpi_push_bad(err, "fields", "given");
    if (n < 1 || n > DLP_MAX_FIELDS) return dlpi_push_bad(err, "n_fields", "1..16");
    for (uint32_t i = 0; i < n && rc == DLP_OK; i++) rc = dlpi_push_field(at, i, &fields[i], err);
    return rc;
}

static int dlpi_push_check(const dlp_push_desc *d, dlp_error *err) {
    if (d->max_producers > DLP_MPSC_MAX_PRODUCERS)
        return dlpi_push_bad(err, "max_producers", "0..4096");
    if (d->capacity > DLP_QUEUE_MAX_CAPACITY || (d->capacity & (d->capacity - 1)) != 0)
        return dlpi_push_bad(err, "capacity", "0, or a power of two up to 2^32");
    if (d->full < DLP_PUSH_WAIT || d->full > DLP_PUSH_NEWEST)
        return dlpi_push_bad(err, "full", "DLP_PUSH_WAIT, _REFUSE or _NEWEST");
    if (d->keep > (d->capacity ? d->capacity : 256) || (d->keep != 0 && d->full != DLP_PUSH_NEWEST))
        return dlpi_push_bad(err, "keep", "0, or with DLP_PUSH_NEWEST 1..capacity");
    return DLP_OK;
}

/* ---- the mapping ---- */

static int dlpi_push_system(dlp_error *err, const char *call, const char *path, int errnum) {
    dlpi_error_set(err, errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, "path", "%s%s%s: %s",
                   call, path ? " of " : "", path ? dlpi_path_end(path) : "",
                   errnum == EEXIST
                       ? "it is there already: another pipe's, or left by one that was "
                         "killed, then remove it"
                       : strerror(errnum));
    if (err) err->errnum = errnum;
    return errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM;
}

/* A new mapping of bytes zeros, of a new file if there is a path. */
static int dlpi_push_map(const char *path, uint64_t bytes, void **map, dlp_error *err) {
    int fd = -1, errnum = 0;
    if (path != NULL) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return dlpi_push_system(err, "open", path, errno);
        if ((errnum = posix_fallocate(fd, 0, (off_t)bytes)) != 0) {
            close(fd);
            unlink(path);
            return dlpi_push_system(err, "posix_fallocate", path, errnum);
        }
    }
    *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                path ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
    errnum = errno;
    if (fd >= 0) close(fd);
    if (*map != MAP_FAILED) return DLP_OK;
    if (path != NULL) unlink(path);
    return dlpi_push_system(err, "mmap", path, errnum);
}

static void dlpi_push_free(dlp_push *s) {
    if (s->head != NULL) {
        dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2 */
        munmap(s->head, (size_t)s->was.total_bytes);
        if (s->path) unlink(s->path);
    }
    free(s->path);
    free(s->lanes);
    free(s->items);
    free(s);
}

/* Sizes, as they will stand in the head. */
static dlpi_push_head dlpi_push_sizes(const dlp_push_desc *d, const dlpi_push_fields *at) {
    dlpi_push_head h;
    memset(&h, 0, sizeof h);
    h.max_producers = d->max_producers ? d->max_producers : 16;
    h.record_bytes = (uint32_t)at->record;
    h.n_fields = at->n;
    h.fields_id = at->id;
    h.full = (uint32_t)d->full;
    h.pid = (int32_t)getpid();
    h.lines_at = dlpi_round_up(sizeof h, DLP_QUEUE_ALIGN);
    h.bundle_at =
        dlpi_round_up(h.lines_at + h.max_producers * sizeof(dlpi_push_line), DLP_QUEUE_ALIGN);
    h.bundle_bytes =
        dlp_mpsc_bytes(h.record_bytes, d->capacity ? d->capacity : 256, h.max_producers);
    h.total_bytes = dlpi_sum(h.bundle_at, h.bundle_bytes);
    return h;
}

/* Producers that are attached, counted again at every wait or, of many lanes, now and then: a wait
   may be shorter than to look at all of them. One that was killed counts until another one has its
   place. */
static uint32_t dlpi_push_attached(dlpi_push_crowd *c, const uint32_t *owners, uint32_t lanes) {
    if (c->looks++ % (1 + lanes / 64) == 0) {
        c->attached = 0;
        for (uint32_t i = 0; i < lanes; i++)
            c->attached += DLPI_LOAD_RLX(&owners[i]) != 0; /* a hint */
    }
    return c->attached;
}

/* After a wait: how to wait next time. A lane holds a few microseconds of small items, a wake-up
   takes tens of them. So where waits are short, and producers, reader and consumer have not a core
   each, those two make way, but do not sleep. */
static void dlpi_push_waited(uint64_t ns, uint32_t producers, uint32_t *spin_ns, uint32_t *yields) {
    dlpi_wait_policy(producers + 2, spin_ns, yields);
    if (*yields == 0) return;
    *spin_ns = 0;
    if (ns < DLPI_PUSH_SHORT_NS) *yields = DLPI_PUSH_YIELDS;
}

static int dlpi_push_memory(dlp_push *s, const dlp_push_desc *d, dlp_error *err) {
    uint32_t n = s->was.max_producers;
    void *map = NULL;
    int rc;
    s->lanes = calloc(n, sizeof *s->lanes);
    s->items = calloc(n, 2 * sizeof *s->items);
    if (d->path) s->path = strdup(d->path);
    if (!s->lanes || !s->items || (d->path && !s->path))
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the reader failed");
    s->left = s->items + n;
    if ((rc = dlpi_push_map(d->path, s->was.total_bytes, &map, err)) != DLP_OK) return rc;
    s->head = map;
    rc = dlp_mpsc_init(dlpi_at(map, s->was.bundle_at), s->was.bundle_bytes, s->was.record_bytes,
                       s->capacity, n, 1);
    if (rc == DLP_OK)
        rc = dlp_mpsc_attach_rx(&s->rx, s->lanes, n, dlpi_at(map, s->was.bundle_at),
                                s->was.bundle_bytes);
    if (rc != DLP_OK) return dlpi_error_set(err, rc, "", "the lanes: %s", dlp_code_name(rc));
    /* others write what lies there: it is not asked where these are */
    s->owners =
        dlpi_at(s->rx.bundle, dlpi_mpsc_plan(s->was.record_bytes, s->capacity, n).owners_offset);
    *s->head = s->was;
    DLPI_STORE_REL(&s->head->magic, DLPI_PUSH_MAGIC); /* PU1 -> PU1 */
    return DLP_OK;
}

DLPDEF int dlp_push_open(dlp_push **out, const dlp_push_desc *desc, dlp_error *err) {
    dlpi_push_fields at;
    dlp_push *s;
    int rc;
    if (out == NULL || desc == NULL) return dlpi_push_bad(err, out ? "desc" : "out", "given");
    if ((rc = dlpi_push_layout(&at, desc->fields, desc->n_fields, err)) != DLP_OK) return rc;
    if ((rc = dlpi_push_check(desc, err)) != DLP_OK) return rc;
    if ((s = calloc(1, sizeof *s)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the reader failed");
    s->at = at;
    s->was = dlpi_push_sizes(desc, &at);
    s->capacity = desc->capacity ? desc->capacity : 256;
    s->keep = desc->keep ? desc->keep : 1;
    s->writers = desc->writers ? desc->writers : 1;
    for (uint32_t i = 0; i < at.n; i++) {
        s->fields[i] = desc->fields[i];
        dlpi_copy_text(s->names[i], sizeof s->names[i], desc->fields[i].name);
        s->fields[i].name = s->names[i];
    }
    if (s->was.bundle_bytes == 0 || s->was.total_bytes > (uint64_t)INT64_MAX)
        rc = dlpi_push_bad(err, "capacity", "smaller: the lanes have more bytes than there can be");
    else
        rc = dlpi_push_memory(s, desc, err);
    if (rc != DLP_OK) {
        dlpi_push_free(s);
        return rc;
    }
    *out = s;
    return DLP_OK;
}

DLPDEF void dlp_push_stop(dlp_push *s) {
    if (s != NULL) dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2 */
}

DLPDEF int dlp_push_close(dlp_push *s) {
    if (s == NULL) return DLP_OK;
    if (dlpi_users_any(&s->users)) return DLP_ERR_BUSY;
    dlpi_push_free(s);
    return DLP_OK;
}

/* ---- the reader ---- */

/* How many records of the lane come before its last `keep` items: ends of streams are none. The
   reader may look at all of them, as the tail that told of them was read with acquire (LT2). */
static uint64_t dlpi_push_older(const dlp_push *s, uint64_t stock) {
    const dlp_spsc_rx *rx = s->rx.at;
    for (uint64_t items = 0; stock > 0 && items < s->keep;) {
        uint64_t mark;
        memcpy(&mark, dlpi_slot(rx->slots, rx->capacity, rx->head + --stock, rx->record_bytes), 8);
        items += mark != DLPI_PUSH_END;
    }
    return stock;
}

/* Of the lane in turn, if it is full, all but the last `keep` items are left out; the end of a
   stream is not, nor what lies after it. */
static int dlpi_push_newest(dlp_push *s, uint32_t producer) {
    uint64_t stock = (uint64_t)dlpi_spsc_look_rx(s->rx.at, 0);
    if (stock > s->capacity) return DLP_ERR_CORRUPT;
    if (stock < s->capacity) return DLP_OK;
    for (uint64_t n = dlpi_push_older(s, stock); n > 0;) {
        const void *at = NULL;
        uint64_t mark;
        if (dlp_spsc_peek(s->rx.at, 1, &at) != 1) return DLP_ERR_CORRUPT;
        memcpy(&mark, at, 8);
        if (mark == DLPI_PUSH_END) break;
        dlp_spsc_release(s->rx.at, 1);
        DLPI_STORE_RLX(&s->left[producer], s->left[producer] + 1); /* statistics */
        n--;
    }
    dlp_spsc_publish(s->rx.at); /* its producer waits */
    return DLP_OK;
}

/* The end of a stream; of a lane there may be several, one after the other. Is it the last? */
static bool dlpi_push_ended(dlp_push *s) {
    DLPI_STORE_RLX(&s->n_ended, s->n_ended + 1); /* statistics */
    return s->n_ended >= s->writers;
}

/* Wait until a lane may have something. */
static void dlpi_push_wait(dlp_push *s, dlpi_worker *w) {
    uint64_t began = dlpi_now_ns(), now;
    dlp_mpsc_wait_rx(&s->rx, DLPI_PUSH_LOOK_MS);
    now = dlpi_now_ns();
    dlpi_push_waited(now - began, dlpi_push_attached(&s->crowd, s->owners, s->was.max_producers),
                     &s->rx.spin_ns, &s->rx.yields);
    dlpi_clock_waited(w, began, now);
}

/* Records of one lane, lent until they are released: how many, n at most; 0: all lanes are empty;
   DLP_ERR_CORRUPT. */
static int64_t dlpi_push_peek(dlp_push *s, uint64_t n, const uint8_t **records,
                              uint32_t *producer) {
    const void *at = NULL;
    int64_t rc, got = dlp_mpsc_peek(&s->rx, n, &at, producer);
    if (got > 0 && s->was.full == DLP_PUSH_NEWEST) {
        if ((rc = dlpi_push_newest(s, *producer)) < 0) return rc;
        got = dlp_mpsc_peek(&s->rx, n, &at, producer);
    }
    *records = at;
    return got > 0 && at == NULL ? 0 : got;
}

static int dlpi_push_damaged(const dlp_push *s, const dlp_item *it) {
    return dlp_fail(it->call, 0, "the lane of producer %u is damaged", s->damaged_by + 1);
}

/* The next item, lent until it is released. */
static int dlpi_push_next(dlp_push *s, dlp_item *it, const uint8_t **item, uint32_t *producer) {
    for (;;) {
        uint32_t over =
            dlpi_credit_closed(&s->head->over); /* PU2 <- PU2: before the lanes are empty */
        uint64_t mark;
        int64_t n = dlpi_push_peek(s, 1, item, producer);
        if (n < 0) {
            s->damaged = it->index + 1;
            s->damaged_by = *producer;
            return dlpi_push_damaged(s, it);
        }
        if (n > 0) {
            memcpy(&mark, *item, 8);
            if (mark == DLPI_PUSH_ITEM) return DLP_OK;
            dlp_mpsc_release(&s->rx, 1);
            if (mark != DLPI_PUSH_END)
                return dlp_fail(it->call, 0, "producer %u pushed what is no item", *producer + 1);
            if (dlpi_push_ended(s)) return DLP_END;
            continue;
        }
        if (over) return DLP_END;
        if (dlpi_stopped(it->call->w->p)) return DLP_STOPPED;
        dlpi_push_wait(s, it->call->w);
    }
}

/* The stream has ended, with all that was taken told to producers that wait. */
static void dlpi_push_over(dlp_push *s) {
    s->over = true;
    dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2: nobody waits for room from now on */
    for (uint32_t i = 0; i < s->was.max_producers; i++)
        if (s->lanes[i].published != s->lanes[i].head) dlp_spsc_publish(&s->lanes[i]);
}

/* Is p the pipe that reads, since an item of before? Where two are wired to it, both do not. */
static inline bool dlpi_push_reads(const dlp_push *s, const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&s->begun) != 0 && s->by == p; /* our own store */
}

static const char dlpi_push_words[] = "pushed items that may be asked for again";

/* The first item of a pipe: are rows asked for again in it? */
static int dlpi_push_begin(dlp_push *s, const dlp_item *it) {
    const dlp_pipe *p = it->call->w->p;
    const int area = DLPI_AREA_OWN + p->fetch->id;
    if (DLPI_LIKELY(dlpi_push_reads(s, p))) return 0;
    if (DLPI_LOAD_RLX(&s->begun) != 0) /* our own store */
        return dlp_fail(it->call, 0, "another pipe reads this push");
    s->given = s->damaged = 0;
    s->kept = p->areas[area].words == dlpi_push_words ? dlpi_area_if(p, area) : NULL;
    s->n_kept = p->areas[area].count;
    if (p->rows_end != p->fetch && s->kept == NULL)
        return dlp_fail(it->call, 0, "the dataset has not the reader that dlp_push_wire put there");
    s->by = p;
    DLPI_STORE_RLX(&s->begun, 1u);
    return 0;
}

static void dlpi_push_copy(const dlp_push *s, const dlp_item *it, const uint8_t *item) {
    for (uint32_t f = 0; f < s->at.n; f++)
        memcpy(it->data[f], item + s->at.offset[f], (size_t)s->at.bytes[f]);
}

/* Where the item of a row is kept. */
static uint8_t *dlpi_push_kept(const dlp_push *s, uint64_t row) {
    return s->kept + row % s->n_kept * s->at.record;
}

/* A row that had its item is asked for again. */
static int dlpi_push_again(const dlp_push *s, const dlp_item *it) {
    uint64_t row = UINT64_MAX;
    if (s->kept != NULL) memcpy(&row, dlpi_push_kept(s, it->index), 8);
    if (row != it->index)
        return dlp_fail(it->call, 0, "the item is gone: what is pushed comes once");
    dlpi_push_copy(s, it, dlpi_push_kept(s, it->index));
    return 0;
}

static int dlpi_push_fetch(void *user, dlp_item *it) {
    dlp_push *s = user;
    const uint8_t *item = NULL;
    uint32_t producer = 0;
    int rc;
    if (!dlpi_reads_on(it->call->w->st) || it->call->w->at_once != NULL)
        return dlp_fail(it->call, 0, "what is pushed is read by one worker, a thread or inline");
    if (it->epoch > 0) return dlp_fail(it->call, 0, "what is pushed has one epoch");
    if ((rc = dlpi_push_begin(s, it)) != 0) return rc;
    if (it->index < s->given) return dlpi_push_again(s, it);
    if (it->index + 1 == s->damaged) return dlpi_push_damaged(s, it);
    if (s->damaged > 0) dlpi_push_over(s);
    rc = s->over ? DLP_END : dlpi_push_next(s, it, &item, &producer);
    if (rc == DLP_END && !s->over) dlpi_push_over(s);
    if (rc != DLP_OK || item == NULL) return rc;
    dlpi_push_copy(s, it, item);
    if (s->kept != NULL) {
        memcpy(dlpi_push_kept(s, it->index), item, (size_t)s->at.record);
        memcpy(dlpi_push_kept(s, it->index), &it->index, 8);
    }
    s->given = it->index + 1;
    dlp_mpsc_release(&s->rx, 1);
    DLPI_STORE_RLX(&s->items[producer], s->items[producer] + 1); /* statistics */
    return 0;
}

/* ---- rows that nobody had, several at once: those that are neither the first of a pipe, nor asked
   for again, nor near an end or damage; these the callback has ---- */

/* A field of n items of a lane, into rows one after the other. */
static void dlpi_push_copy_field(uint8_t *to, const uint8_t *from, uint64_t record, uint64_t bytes,
                                 uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (bytes == 8)
            memcpy(to + i * 8, from + i * record, 8);
        else
            memcpy(to + i * bytes, from + i * record, (size_t)bytes);
    }
}

/* Items of a lane, into rows from `row` on; n: how many. */
static void dlpi_push_copy_rows(dlp_push *s, const dlpi_worker *w, uint32_t slot, uint32_t row,
                                const uint8_t *from, uint64_t n) {
    const dlp_pipe *p = w->p;
    const uint64_t *index = &dlpi_slot_index(p, slot)[row];
    for (uint32_t f = 0; f < s->at.n; f++)
        dlpi_push_copy_field(w->cell[f] + row * s->at.bytes[f], from + s->at.offset[f],
                             s->at.record, s->at.bytes[f], n);
    for (uint64_t i = 0; s->kept != NULL && i < n; i++) {
        uint8_t *kept = dlpi_push_kept(s, index[i]);
        memcpy(kept, from + i * s->at.record, (size_t)s->at.record);
        memcpy(kept, &index[i], 8);
    }
    s->given = index[n - 1] + 1;
}

/* The items that are there for rows of t from `row` on, as many as one lane has. Returns how many;
   0: there are none; negative: what comes next is none, or is damaged. */
static int64_t dlpi_push_burst(dlp_push *s, dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const uint8_t *from = NULL;
    uint32_t producer = 0;
    int64_t n = dlpi_push_peek(s, t->end - row, &from, &producer), items = 0;
    uint64_t mark;
    if (n <= 0) return n;
    for (; items < n; items++) {
        memcpy(&mark, from + (uint64_t)items * s->at.record, 8);
        if (mark != DLPI_PUSH_ITEM) break;
    }
    if (items == 0) return DLP_ERR_STATE;
    dlpi_push_copy_rows(s, w, t->slot, row, from, (uint64_t)items);
    dlp_mpsc_release(&s->rx, (uint64_t)items);
    DLPI_STORE_RLX(&s->items[producer], s->items[producer] + (uint64_t)items); /* statistics */
    return items;
}

static uint32_t dlpi_push_read(void *user, dlpi_worker *w, const dlpi_unit *t) {
    dlp_push *s = user;
    const uint64_t first = dlpi_slot_index(w->p, t->slot)[t->row];
    uint32_t row = t->row;
    if (!dlpi_push_reads(s, w->p) || s->over || s->damaged > 0 || first < s->given ||
        dlpi_slot_at(w->p, t->slot)->epoch > 0)
        return 0;
    dlpi_item_at(w, t);
    while (row < t->end && !dlpi_generation_cancelled(w->p->ctl, w->generation)) {
        uint32_t over =
            dlpi_credit_closed(&s->head->over); /* PU2 <- PU2: before the lanes are empty */
        int64_t n = dlpi_push_burst(s, w, t, row);
        if (n < 0 || (n == 0 && (over || dlpi_stopped(w->p)))) break;
        row += (uint32_t)n;
        if (n == 0) dlpi_push_wait(s, w);
    }
    return row - t->row;
}

/* A worker begins: another pipe's, perhaps. */
static int dlpi_push_enter(void *user, int worker, void **state) {
    dlp_push *s = user;
    if (!dlpi_users_any(&s->users)) DLPI_STORE_RLX(&s->begun, 0u);
    dlpi_credit_close(&s->head->left, 0u); /* PU2 -> PU2 */
    return dlpi_users_enter(&s->users, worker, state);
}

static void dlpi_push_leave(void *user, int worker, void *state) {
    dlp_push *s = user;
    dlpi_credit_close(&s->head->left, 1u); /* PU2 -> PU2 */
    dlpi_users_leave(&s->users, worker, state);
}

static uint32_t dlpi_push_writers(const void *user) { return ((const dlp_push *)user)->writers; }
static const dlpi_reader dlpi_push_reader = {dlpi_push_words, dlpi_push_fetch, dlpi_push_writers,
                                             dlpi_push_read};

DLPDEF void dlp_push_wire(dlp_push *s, dlp_dataset *dataset, dlp_workers_desc *workers) {
    dataset->n_items = 0;
    dataset->fields = s->fields;
    dataset->n_fields = s->at.n;
    dataset->writes_all_bytes = 1;
    dataset->fetch = dlpi_push_fetch;
    dataset->user = s;
    dataset->open_end = 1;
    dataset->reader = &dlpi_push_reader;
    workers->worker_init = dlpi_push_enter;
    workers->worker_exit = dlpi_push_leave;
    workers->worker_user = s;
}

static void dlpi_push_add(const dlp_push *s, uint32_t i, dlp_push_stats *to) {
    const dlpi_push_line *lines = dlpi_at(s->head, s->was.lines_at);
    const dlp_spsc *lane = s->lanes[i].lane;
    uint64_t head = DLPI_LOAD_RLX(&lane->head), tail = DLPI_LOAD_RLX(&lane->tail); /* statistics */
    to->items += DLPI_LOAD_RLX(&s->items[i]);
    to->left += DLPI_LOAD_RLX(&s->left[i]);
    to->refused += DLPI_LOAD_RLX(&lines[i].refused);
    to->waiting += tail - head <= s->capacity ? tail - head : 0;
    to->attached += DLPI_LOAD_RLX(&s->owners[i]) != 0;
}

DLPDEF int dlp_push_look(const dlp_push *s, uint32_t number, dlp_push_stats *stats) {
    if (s == NULL || stats == NULL || number > s->was.max_producers) return DLP_ERR_ARG;
    memset(stats, 0, sizeof *stats);
    for (uint32_t i = 0; i < s->was.max_producers; i++)
        if (number == 0 || number == i + 1) dlpi_push_add(s, i, stats);
    stats->ended = DLPI_LOAD_RLX(&s->n_ended); /* statistics */
    return DLP_OK;
}

DLPDEF int dlp_push_loader_open(dlp_pipe **out, dlp_push **push, const dlp_push_loader_desc *desc,
                                dlp_error *err) {
    dlp_loader_desc loader;
    dlp_push *s = NULL;
    int rc;
    if (out == NULL || push == NULL || desc == NULL)
        return dlpi_push_bad(err, out == NULL ? "out" : push == NULL ? "push" : "desc", "given");
    loader = desc->loader;
    if (loader.epochs > 1) return dlpi_push_bad(err, "epochs", "0 or 1: what is pushed comes once");
    if ((rc = dlp_push_open(&s, &desc->push, err)) != DLP_OK || s == NULL) return rc;
    dlp_push_wire(s, &loader.dataset, &loader.fetch.workers);
    if ((rc = dlp_loader_open(out, &loader, err)) != DLP_OK) {
        dlp_push_close(s);
        return rc;
    }
    *push = s;
    return DLP_OK;
}

/* ---- producers ---- */

/* Map the file of another program, and copy its head. */
static int dlpi_pusher_map(dlp_pusher *u, const char *path, dlpi_push_head *h, dlp_error *err) {
    struct stat st;
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK), errnum;
    if (fd < 0) return dlpi_push_system(err, "open", path, errno);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof *h) {
        close(fd);
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path", "%s is no file of a push",
                              dlpi_path_end(path));
    }
    u->map_bytes = (uint64_t)st.st_size;
    u->map = mmap(NULL, (size_t)u->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    errnum = errno;
    close(fd);
    if (u->map == MAP_FAILED) {
        u->map = NULL;
        return dlpi_push_system(err, "mmap", path, errnum);
    }
    u->head = u->map;
    h->magic = DLPI_LOAD_ACQ(&u->head->magic); /* PU1 <- PU1 */
    memcpy((uint8_t *)h + 8, (const uint8_t *)u->head + 8, sizeof *h - 8);
    return DLP_OK;
}

/* Is the head one of this version, and does all lie in the mapping? */
static bool dlpi_push_head_ok(const dlpi_push_head *h, uint64_t bytes) {
    return h->magic == DLPI_PUSH_MAGIC && h->total_bytes == bytes && h->max_producers >= 1 &&
           h->max_producers <= DLP_MPSC_MAX_PRODUCERS && h->full <= DLP_PUSH_NEWEST &&
           h->lines_at == dlpi_round_up(sizeof *h, DLP_QUEUE_ALIGN) &&
           h->bundle_at == dlpi_round_up(h->lines_at + h->max_producers * sizeof(dlpi_push_line),
                                         DLP_QUEUE_ALIGN) &&
           h->bundle_at < bytes && h->bundle_bytes == bytes - h->bundle_at;
}

static int dlpi_pusher_fields(dlp_pusher *u, const dlp_pusher_desc *d, const dlpi_push_head *h,
                              dlp_error *err) {
    int rc;
    if (d->push != NULL) {
        u->at = d->push->at;
        return DLP_OK;
    }
    if ((rc = dlpi_push_layout(&u->at, d->fields, d->n_fields, err)) != DLP_OK) return rc;
    if (u->at.record == h->record_bytes && u->at.n == h->n_fields && u->at.id == h->fields_id)
        return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                          "the pipe's fields are others: %" PRIu32 " fields, %" PRIu32
                          " bytes an item; yours: %" PRIu32 ", %" PRIu64
                          " (names, types and shapes must be the same)",
                          h->n_fields, h->record_bytes - 8, u->at.n, u->at.record - 8);
}

/* Is the last that was pushed into its lane the end of a stream? Whoever said that may have died
   before it could tell anybody, and a successor would say it for another producer, too. */
static bool dlpi_pusher_said_end(const dlp_pusher *u) {
    const dlp_spsc_tx *tx = &u->tx.lane;
    uint64_t mark;
    if (tx->tail == 0) return false;
    memcpy(&mark, dlpi_slot(tx->slots, tx->capacity, tx->tail - 1, tx->record_bytes), 8);
    return mark == DLPI_PUSH_END;
}

/* With this one. Its own owner word stands at its number among those of all. */
static uint32_t dlpi_pusher_attached(dlp_pusher *u) {
    return dlpi_push_attached(&u->crowd, u->tx.owner - (u->number - 1), u->lanes);
}

static int dlpi_pusher_attach(dlp_pusher *u, const dlp_pusher_desc *d, dlp_error *err) {
    dlpi_push_head h = {0};
    int rc = DLP_OK, number;
    memset(&h, 0, sizeof h);
    if (d->push != NULL) {
        u->head = d->push->head;
        h = d->push->was;
        h.magic = DLPI_PUSH_MAGIC;
    } else {
        rc = dlpi_pusher_map(u, d->path, &h, err);
        if (rc == DLP_OK && !dlpi_push_head_ok(&h, u->map_bytes))
            rc = dlpi_error_set(err, DLP_ERR_CORRUPT, "path",
                                "%s is no push of this version, or it is damaged",
                                dlpi_path_end(d->path));
    }
    if (rc == DLP_OK) rc = dlpi_pusher_fields(u, d, &h, err);
    if (rc != DLP_OK) return rc;
    if (dlpi_credit_closed(&u->head->over)) /* PU2 <- PU2 */
        return dlpi_error_set(err, DLP_STOPPED, "", "the pipe wants no more items");
    if (d->number > h.max_producers) return dlpi_push_bad(err, "number", "0..max_producers");
    number = dlp_mpsc_attach_tx(&u->tx, dlpi_at(u->head, h.bundle_at), h.bundle_bytes,
                                d->number ? (int)d->number - 1 : DLP_NONE);
    if (number < 0)
        return dlpi_error_set(err, number, "number",
                              number == DLP_ERR_BUSY ? "all %" PRIu32 " places are taken"
                                                     : "the lanes (%" PRIu32 ") are damaged",
                              h.max_producers);
    if (u->tx.lane.record_bytes != u->at.record ||
        dlp_mpsc_bytes(h.record_bytes, u->tx.lane.capacity, h.max_producers) != h.bundle_bytes)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path",
                              "the lanes are of another size, or number");
    if (d->number > 0 && dlpi_pusher_said_end(u)) {
        dlp_mpsc_detach_tx(&u->tx);
        return dlpi_error_set(err, DLP_ERR_STATE, "number",
                              "producer %" PRIu32 " has said the end of its stream", d->number);
    }
    u->number = (uint32_t)number + 1;
    u->full = h.full;
    u->lanes = h.max_producers;
    u->line = (dlpi_push_line *)dlpi_at(u->head, h.lines_at) + number;
    dlpi_wait_policy(dlpi_pusher_attached(u) + 2, &u->tx.lane.spin_ns, &u->tx.lane.yields);
    return DLP_OK;
}

static void dlpi_pusher_free(dlp_pusher *u) {
    if (u->map) munmap(u->map, (size_t)u->map_bytes);
    free(u);
}

DLPDEF int dlp_pusher_open(dlp_pusher **out, const dlp_pusher_desc *desc, dlp_error *err) {
    dlp_pusher *u = NULL;
    int rc;
    if (out == NULL || desc == NULL) return dlpi_push_bad(err, out ? "desc" : "out", "given");
    if ((desc->push != NULL) == (desc->path != NULL))
        return dlpi_push_bad(err, "path", "given, or push, not both");
    if (posix_memalign((void **)&u, 64, sizeof *u) != 0)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the producer");
    memset(u, 0, sizeof *u);
    if ((rc = dlpi_pusher_attach(u, desc, err)) != DLP_OK) {
        dlpi_pusher_free(u);
        return rc;
    }
    *out = u;
    return DLP_OK;
}

DLPDEF uint32_t dlp_pusher_number(const dlp_pusher *u) { return u->number; }

/* Will nobody make room? */
static bool dlpi_pusher_over(const dlp_pusher *u) {
    return dlpi_credit_closed(&u->head->over) ||
           dlpi_credit_closed(&u->head->left); /* PU2 <- PU2 */
}

/* Is there a reader? */
static bool dlpi_pusher_read(const dlp_pusher *u) {
    if (dlpi_pusher_over(u)) return false;
    return kill((pid_t)u->head->pid, 0) == 0 || errno != ESRCH;
}

/* Have a record, waiting for room; what is begun is had again. */
__attribute__((noinline)) static int dlpi_pusher_wait(dlp_pusher *u, int timeout_ms) {
    uint64_t until = timeout_ms > 0 ? dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u : UINT64_MAX;
    bool waited = false; /* in vain: is there still a reader? */
    while (u->record == NULL) {
        int64_t n = dlp_mpsc_reserve(&u->tx, 1, &u->record);
        uint64_t now, ms = DLPI_PUSH_LOOK_MS;
        if (n < 0) return (int)n;
        if (n > 0) break;
        u->record = NULL;
        if (u->full == DLP_PUSH_REFUSE || timeout_ms == DLP_NOWAIT) {
            DLPI_STORE_RLX(&u->line->refused, u->line->refused + 1); /* statistics */
            return dlpi_pusher_read(u) ? DLP_FULL : DLP_STOPPED;
        }
        if (dlpi_pusher_over(u)) return DLP_STOPPED;
        if (waited && !dlpi_pusher_read(u)) return DLP_STOPPED;
        if ((now = dlpi_now_ns()) >= until) return DLP_TIMEOUT;
        if ((until - now) / 1000000u < ms) ms = (until - now) / 1000000u + 1;
        n = dlp_mpsc_wait_tx(&u->tx, (int)ms);
        if (n < 0) return (int)n;
        dlpi_push_waited(dlpi_now_ns() - now, dlpi_pusher_attached(u), &u->tx.lane.spin_ns,
                         &u->tx.lane.yields);
        waited = n == DLP_TIMEOUT;
    }
    return DLP_OK;
}

/* The same; where room is known, without more ado. */
DLPI_INLINE int dlpi_pusher_reserve(dlp_pusher *u, int timeout_ms) {
    const dlp_spsc_tx *tx = &u->tx.lane;
    if (DLPI_LIKELY(u->record == NULL && tx->tail - tx->head_seen < tx->capacity))
        return dlp_mpsc_reserve(&u->tx, 1, &u->record) == 1 ? DLP_OK : DLP_ERR_CORRUPT;
    return dlpi_pusher_wait(u, timeout_ms);
}

static int dlpi_pusher_commit(dlp_pusher *u, uint64_t mark) {
    memcpy(u->record, &mark, 8);
    u->record = NULL;
    return dlp_mpsc_commit(&u->tx, 1);
}

/* Begin an item: u->record. */
DLPI_INLINE int dlpi_pusher_begin(dlp_pusher *u, const void *data, int timeout_ms) {
    if (DLPI_UNLIKELY(u == NULL || data == NULL)) return DLP_ERR_ARG;
    if (DLPI_UNLIKELY(u->ended)) return DLP_ERR_STATE;
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&u->head->over))) return DLP_STOPPED; /* PU2: a hint */
    return dlpi_pusher_reserve(u, timeout_ms);
}

DLPDEF int dlp_pusher_begin(dlp_pusher *u, void **data, int timeout_ms) {
    int rc = dlpi_pusher_begin(u, data, timeout_ms);
    if (rc != DLP_OK) return rc;
    for (uint32_t f = 0; f < u->at.n; f++) data[f] = (uint8_t *)u->record + u->at.offset[f];
    return DLP_OK;
}

DLPDEF int dlp_pusher_commit(dlp_pusher *u) {
    if (u == NULL) return DLP_ERR_ARG;
    return u->record == NULL ? DLP_ERR_STATE : dlpi_pusher_commit(u, DLPI_PUSH_ITEM);
}

DLPDEF int dlp_pusher_push(dlp_pusher *u, const void *const *data, int timeout_ms) {
    int rc = dlpi_pusher_begin(u, data, timeout_ms);
    if (DLPI_UNLIKELY(rc != DLP_OK)) return rc;
    for (uint32_t f = 0; f < u->at.n; f++) {
        uint8_t *to = (uint8_t *)u->record + u->at.offset[f];
        if (u->at.bytes[f] == 8)
            memcpy(to, data[f], 8);
        else
            memcpy(to, data[f], (size_t)u->at.bytes[f]);
    }
    return dlpi_pusher_commit(u, DLPI_PUSH_ITEM);
}

/* An end is never refused: it waits, as long as it may. */
DLPDEF int dlp_pusher_end(dlp_pusher *u, int timeout_ms) {
    uint32_t full;
    int rc;
    if (u == NULL) return DLP_ERR_ARG;
    if (u->ended) return DLP_ERR_STATE;
    full = u->full;
    u->full = DLP_PUSH_WAIT;
    rc = dlpi_pusher_reserve(u, timeout_ms);
    u->full = full;
    if (rc != DLP_OK) return rc;
    u->ended = true;
    return dlpi_pusher_commit(u, DLPI_PUSH_END);
}

DLPDEF void dlp_pusher_close(dlp_pusher *u) {
    if (u == NULL) return;
    if (u->record) dlp_mpsc_abort(&u->tx);
    dlp_mpsc_detach_tx(&u->tx);
    dlpi_pusher_free(u);
}
