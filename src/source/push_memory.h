/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_life */
#include "api/push.h"
#include "base/places.h"
#include "cells/cells.h"
#include "queue/credit.h"
#include "queue/first.h"
#include "queue/mpsc.h"
#include "source/new_file.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-push-memory    THE MEMORY OF A PUSH
   The memory has a head, a line for each producer, and a bundle of lanes (>>queues). It is a file
   without a name. The file is sealed, so that nobody can cut it while others have it mapped. Place
   i of the file (>>impl-places) belongs to the producer in lane i. The reader lives as long as its
   pidfd says so; a producer of another program gets that pidfd with the file (>>impl-push-door).
   If no memory is shared with other programs, there is no file, and a place is a word of the line.

   A producer copies the head once, checks it, and computes offsets from the copy. A record is a
   mark (an item, or the end of a stream) and the fields, each at a multiple of 8 bytes. If a field
   is ragged, a length of each field stands behind the mark.

   label  atomic          written by            read by (partner)
   PU1    head.magic      open, last            producers (PU1): the head is whole
   PU2    head.over,      stop, close; left:    reader, before it looks whether lanes are empty;
          left            the pipe's worker,    producers that wait (PU2)
                          and its consumer
   LO1    owners          >>queues              reader, producers: how many there are, a hint
   PU4    line.place      its producer          reader, producers (PU4); only without a file
   -      line.begun      its producer          reader, after it looked at the place: a lock of the
                                                kernel or PU4 orders them
   -      line.refused    its producer          statistics */

#define DLPI_PUSH_MAGIC UINT64_C(0x0068737570706c64) /* "dlppush" */
#define DLPI_PUSH_VERSION 1u
enum { DLPI_PUSH_ITEM = 0x69, DLPI_PUSH_END = 0x65, DLPI_PUSH_LOOK_MS = 100 };
enum { DLPI_PUSH_YIELDS = 200, DLPI_PUSH_SHORT_NS = 200000 };
enum { DLPI_PUSH_RAGGED = 1 }; /* flags: records have the lengths of their fields */

typedef struct dlpi_push_head { /* in region */
    uint64_t magic;             /* PU1 */
    uint32_t version, flags;    /* magic, version and flags lie here in every version */
    /* bytes of the memory; where the producers' lines and the lanes begin; hash of the fields */
    uint64_t total_bytes, lines_at, bundle_at, bundle_bytes, fields_id;
    uint32_t record_bytes, max_producers, n_fields, full; /* full: DLP_PUSH_* */
    uint32_t over;                                        /* PU2 1: no more items are wanted */
    uint32_t left; /* PU2 1: the pipe that read is closed or has an error, and no other reads yet */
} dlpi_push_head;
_Static_assert(offsetof(dlpi_push_head, version) == 8, "layout of every version");
_Static_assert(sizeof(dlpi_push_head) == 80, "layout of a push");

typedef struct dlpi_push_line { /* in region: of a producer */
    uint64_t refused; /* items that the producer could not push, because its lane was full */
    uint64_t begun; /* 1 + the record at which the newest stream of the lane begins; 0: none did */
    uint32_t place; /* PU4 1: a producer has it; without a file */
    uint8_t pad[DLPI_LINE - 20];
} dlpi_push_line;
_Static_assert(sizeof(dlpi_push_line) == DLPI_LINE, "layout of a push");

typedef struct dlpi_push_fields {  /* where each field lies in a record */
    uint32_t n, ragged;            /* number of fields; a bit for each ragged field */
    uint64_t rows[DLP_MAX_FIELDS]; /* rows of a ragged field, at most */
    /* of each field in a record; then the bytes of a record, and a hash of the fields */
    uint64_t offset[DLP_MAX_FIELDS], bytes[DLP_MAX_FIELDS], record, id;
} dlpi_push_fields;

typedef struct dlpi_push_crowd { /* producers that were attached at the last count */
    uint32_t attached, looks;    /* looks: how often the number was asked for */
} dlpi_push_crowd;

/* ---- check the desc ---- */

static int dlpi_push_bad(dlp_error *err, const char *field, const char *words) {
    return dlpi_error_set(err, DLP_ERR_ARG, field, "%s must be %s", field, words);
}

/* Check the desc of field i, and append the field to the record in *at. Returns 0 or a DLP_ERR
   code: also if the record becomes longer than DLP_QUEUE_MAX_RECORD. */
static int dlpi_push_field(dlpi_push_fields *at, uint32_t i, const dlp_field *f, dlp_error *err) {
    uint64_t bytes = dlpi_dtype_bytes(f->dtype);
    if (f->name == NULL || f->name[0] == 0 || strlen(f->name) > 31)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                              "fields[%" PRIu32 "].name must be of 1..31 bytes", i);
    if (bytes == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields", "field \"%s\": wrong dtype", f->name);
    if (f->ragged && f->ndim < 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                              "field \"%s\" is ragged: ndim must be 1 or more", f->name);
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
    if (!f->ragged) return DLP_OK;
    at->ragged |= 1u << i;
    at->rows[i] = (uint64_t)f->shape[0];
    at->id = dlpi_absorb(at->id, DLPI_PUSH_RAGGED);
    return DLP_OK;
}

/* Check the fields of a push, and lay them out in a record. Returns 0, or a DLP_ERR code with *err
   filled. */
static int dlpi_push_layout(dlpi_push_fields *at, const dlp_field *fields, uint32_t n,
                            dlp_error *err) {
    int rc = DLP_OK;
    memset(at, 0, sizeof *at);
    at->n = n;
    at->record = 8; /* the mark */
    if (fields == NULL) return dlpi_push_bad(err, "fields", "given");
    if (n < 1 || n > DLP_MAX_FIELDS) return dlpi_push_bad(err, "n_fields", "1..16");
    for (uint32_t i = 0; i < n; i++)
        if (fields[i].ragged) at->record = 8 + n * UINT64_C(8);
    for (uint32_t i = 0; i < n && rc == DLP_OK; i++) rc = dlpi_push_field(at, i, &fields[i], err);
    return rc;
}

/* Return the bytes of field f of a record with `rows` rows. A number above the field's most rows
   counts as that most. */
static uint64_t dlpi_push_bytes(const dlpi_push_fields *at, uint32_t f, uint64_t rows) {
    return rows < at->rows[f] ? rows * (at->bytes[f] / at->rows[f]) : at->bytes[f];
}

/* ---- the file ---- */

/* Fill *err with the failure of a system call. path: the push's path, or NULL. Returns
   DLP_ERR_MEMORY or DLP_ERR_SYSTEM. */
static int dlpi_push_system(dlp_error *err, const char *call, const char *path, int errnum) {
    int code = errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM;
    dlpi_error_set(err, code, path ? "path" : "", "%s%s%s: %s", call, path ? " of " : "",
                   path ? dlpi_path_end(path) : "",
                   errnum == EFBIG ? "more bytes than a file may have here (ulimit -f)"
                                   : strerror(errnum));
    if (err) err->errnum = errnum;
    return code;
}

#if DLPI_HAS_SHARING
/* Make the memory, as a file, and a pidfd of this process. Returns 0 or errno, and *call. */
static int dlpi_push_made(int *fd, int *self, void **at, uint64_t bytes, const char **call) {
    const int rc = dlpi_memory_file(fd, at, "dlpipe-push", bytes, false, call);
    if (rc != 0) return rc;
    *call = "pidfd_open (Linux 5.3)";
    return dlpi_process_watch(self, dlpi_process_number());
}

/* Open the file again: a place belongs to an open file description. Returns 0 or errno. */
static int dlpi_push_reopen(int *to, int fd) { return dlpi_handle_again(to, fd); }

static bool dlpi_push_take(int fd, dlpi_push_line *lines, uint32_t i) {
    return (void)lines, dlpi_place_take(fd, i);
}
static bool dlpi_push_taken(int fd, const dlpi_push_line *lines, uint32_t i) {
    return (void)lines, dlpi_place_taken(fd, i);
}
static void dlpi_push_give(int fd, dlpi_push_line *lines, uint32_t i) {
    (void)lines;
    dlpi_place_free(fd, i);
}
static bool dlpi_push_gone(int reader) { return dlpi_process_gone(reader); }
#else
static int dlpi_push_made(int *fd, int *self, void **at, uint64_t bytes, const char **call) {
    *fd = *self = -1;
    *call = "mmap";
    return dlpi_pages(at, bytes);
}
static int dlpi_push_reopen(int *to, int fd) { return *to = fd, 0; } /* there is none */

/* Take the place of a line. A thread that ends does not give it back by itself. */
static bool dlpi_push_take(int fd, dlpi_push_line *lines, uint32_t i) {
    (void)fd;
    return dlpi_first_take(&lines[i].place, 1u); /* PU4 <- PU4 */
}
static bool dlpi_push_taken(int fd, const dlpi_push_line *lines, uint32_t i) {
    (void)fd;
    return dlpi_credit_held(&lines[i].place) != 0; /* PU4 <- PU4 */
}
static void dlpi_push_give(int fd, dlpi_push_line *lines, uint32_t i) {
    (void)fd;
    dlpi_credit_done_quiet(&lines[i].place); /* PU4 -> PU4 */
}
static bool dlpi_push_gone(int reader) { return (void)reader, false; }
#endif

/* Return how many producers are attached: a hint, in which a killed producer counts until another
   has its place. They are counted at each call. If there are many lanes they are counted only now
   and then, because a wait may be shorter than a look at all of them. */
static uint32_t dlpi_push_attached(dlpi_push_crowd *c, const uint32_t *owners, uint32_t lanes) {
    if (c->looks++ % (1 + lanes / 64) == 0) {
        c->attached = 0;
        for (uint32_t i = 0; i < lanes; i++)
            c->attached += DLPI_LOAD_RLX(&owners[i]) != 0; /* a hint */
    }
    return c->attached;
}

/* Set how long the next wait spins, and how often it yields, before it sleeps. ns: the length of
   the last wait. A lane holds a few microseconds of small items, and a wake-up takes tens of them.
   So if waits are short, and producers, reader and consumer have no core each, a waiter yields many
   times and does not spin. */
static void dlpi_push_waited(uint64_t ns, uint32_t producers, uint32_t *spin_ns, uint32_t *yields) {
    dlpi_wait_policy(producers + 2, spin_ns, yields);
    if (*yields == 0) return;
    *spin_ns = 0;
    if (ns < DLPI_PUSH_SHORT_NS) *yields = DLPI_PUSH_YIELDS;
}
