/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_life, system/source/push_waits */
#include "queue/credit.h"
#include "source/push.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pusher     PRODUCERS
   A producer takes a place of the memory's file before it touches its lane. The place is a lock of
   an open file description that only this producer has. So no two living producers have the same
   number, and the place of a killed producer is free at once. */

struct dlp_pusher {
    void *map; /* this producer's own mapping; NULL: it uses the mapping of the push */
    uint64_t map_bytes;
    dlpi_push_head *head;
    dlpi_push_line *line;
    dlpi_push_fields at;
    dlp_mpsc_tx tx;
    void *record; /* the record that is begun and not committed; NULL: none */
    int fd;       /* own descriptor of the memory's file, which holds the place; -1: none */
    int reader;   /* pidfd of the reader's process */
    bool borrows; /* that pidfd belongs to the push: do not close it */
    uint32_t number, full, lanes; /* its number, from 1; DLP_PUSH_*; number of lanes */
    dlpi_push_crowd crowd;
    uint64_t length[DLP_MAX_FIELDS]; /* rows of each ragged field in the next item */
    uint64_t plain_to; /* records below this number are known to have room: dlp_pusher_push */
    bool ended;        /* the producer has ended its stream */
};

/* ---- a producer attaches to the push ---- */

#if DLPI_HAS_SHARING
/* Fill *err: the door at `path` gave no memory. errnum: why. Returns DLP_ERR_CORRUPT if no push is
   there, else DLP_ERR_SYSTEM. */
static int dlpi_pusher_refused(const char *path, int errnum, dlp_error *err) {
    const char *why = strerror(errnum);
    if (errnum == ENAMETOOLONG) return dlpi_door_wrong_path(err);
    if (errnum == EPROTO || (errnum == ECONNREFUSED && dlpi_door_none(path)))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path", "%s is no push", dlpi_path_end(path));
    if (errnum == ECONNREFUSED) why = "the program that made the push is gone";
    if (errnum == ETIMEDOUT) why = "the program that made the push does not answer: is it stopped?";
    dlpi_error_set(err, DLP_ERR_SYSTEM, "path", "%s: %s", dlpi_path_end(path), why);
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

/* Map a file that another program handed out, and copy its head to *h. A file that may still be cut
   is refused. Returns 0 or a DLP_ERR code. */
static int dlpi_pusher_map(dlp_pusher *u, int fd, const char *path, dlpi_push_head *h,
                           dlp_error *err) {
    dlpi_facts st;
    int rc = dlpi_handle_facts(fd, &st);
    if (rc != 0 || st.kind != DLPI_IS_FILE || st.bytes < sizeof *h)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path", "%s is no push", dlpi_path_end(path));
    if (!dlpi_memory_file_stays(fd))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path",
                              "%s: the memory is not sealed, so it may be cut",
                              dlpi_path_end(path));
    u->map_bytes = st.bytes;
    rc = dlpi_pages_of(&u->map, u->map_bytes, fd, 0);
    if (rc != 0 || u->map == NULL) return dlpi_push_system(err, "mmap", path, rc);
    u->head = u->map;
    h->magic = DLPI_LOAD_ACQ(&u->head->magic); /* PU1 <- PU1 */
    memcpy((uint8_t *)h + 8, (const uint8_t *)u->head + 8, sizeof *h - 8);
    return DLP_OK;
}

/* Check that a head has this version, and that all that it describes lies in a mapping of `bytes`
   bytes. Returns 0 or a DLP_ERR code. */
static int dlpi_push_head_check(const dlpi_push_head *h, uint64_t bytes, dlp_error *err) {
    bool ok = h->magic == DLPI_PUSH_MAGIC && h->total_bytes == bytes && h->max_producers >= 1 &&
              h->max_producers <= DLP_MPSC_MAX_PRODUCERS && h->full <= DLP_PUSH_NEWEST &&
              h->lines_at == dlpi_round_up(sizeof *h, DLP_QUEUE_ALIGN) &&
              h->bundle_at == dlpi_round_up(h->lines_at + h->max_producers * sizeof(dlpi_push_line),
                                            DLP_QUEUE_ALIGN) &&
              h->bundle_at < bytes && h->bundle_bytes == bytes - h->bundle_at;
    if (h->magic == DLPI_PUSH_MAGIC && h->version != DLPI_PUSH_VERSION)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "path",
                              "the push has version %" PRIu32 ", this program knows version %u",
                              h->version, DLPI_PUSH_VERSION);
    if (h->magic == DLPI_PUSH_MAGIC && (h->flags & ~(uint32_t)DLPI_PUSH_RAGGED) != 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "path",
                              "the push has flags of a newer dlpipe");
    return ok ? DLP_OK : dlpi_error_set(err, DLP_ERR_CORRUPT, "path", "the push is damaged");
}

/* Get the memory's file and the reader's pidfd from the program that made the push at `path`, and
   map the file. Sets u->fd and u->reader, and copies the head to *h. Returns 0 or a DLP_ERR code.
   */
static int dlpi_pusher_enter(dlp_pusher *u, const char *path, dlpi_push_head *h, dlp_error *err) {
    int fds[2], errnum, rc = dlpi_door_ask(path, DLPI_PUSH_MAGIC, fds);
    u->reader = fds[1];
    rc = rc != 0 ? dlpi_pusher_refused(path, rc, err) : dlpi_pusher_map(u, fds[0], path, h, err);
    if (rc == DLP_OK) rc = dlpi_push_head_check(h, u->map_bytes, err);
    if (rc == DLP_OK && (errnum = dlpi_handle_again(&u->fd, fds[0])) != 0)
        rc = dlpi_push_system(err, "opening the memory again, by /proc/self/fd", path, errnum);
    dlpi_handle_close(fds[0]);
    return rc;
}
#else
static int dlpi_pusher_enter(dlp_pusher *u, const char *path, dlpi_push_head *h, dlp_error *err) {
    dlpi_door none = {.fd = -1};
    (void)h;
    u->reader = -1;
    return dlpi_door_open(&none, path, err);
}
#endif

/* Lay out the producer's fields, and check that they are the pipe's. Returns 0, or a DLP_ERR code
   with *err filled. */
static int dlpi_pusher_fields(dlp_pusher *u, const dlp_pusher_desc *d, const dlpi_push_head *h,
                              dlp_error *err) {
    int rc;
    if (d->push != NULL) {
        u->at = d->push->at;
        return DLP_OK;
    }
    if ((rc = dlpi_push_layout(&u->at, d->fields, d->n_fields, err)) != DLP_OK) return rc;
    if (u->at.record == h->record_bytes && u->at.n == h->n_fields && u->at.id == h->fields_id &&
        (u->at.ragged != 0) == ((h->flags & DLPI_PUSH_RAGGED) != 0))
        return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, "fields",
                          "the pipe has %" PRIu32 " fields, %" PRIu32 " bytes an item, the "
                          "producer %" PRIu32 ", %" PRIu64 "; names, types and shapes must be the "
                          "same",
                          h->n_fields, h->record_bytes - 8, u->at.n, u->at.record - 8);
}

/* True if the newest record of the lane is the end of a stream. The producer that said it may have
   died before it could tell anybody. A successor would say the end for another producer, too. */
static bool dlpi_pusher_said_end(const dlp_pusher *u) {
    const dlp_spsc_tx *tx = &u->tx.lane;
    uint64_t mark;
    if (tx->tail == 0) return false;
    memcpy(&mark, dlpi_slot(tx->slots, tx->capacity, tx->tail - 1, tx->record_bytes), 8);
    return mark == DLPI_PUSH_END;
}

/* Return how many producers are attached, this one included; a hint. The owner word of a producer
   is the one of its number. */
static uint32_t dlpi_pusher_attached(dlp_pusher *u) {
    return dlpi_push_attached(&u->crowd, u->tx.owner - (u->number - 1), u->lanes);
}

/* Take the place with this number. number 0: take the first free place whose lane has no owner
   word, which a killed producer leaves behind, or else the first free place. Returns the index of
   the place, or DLP_ERR_BUSY. */
static int dlpi_pusher_take(const dlp_pusher *u, const uint32_t *owners, uint32_t n,
                            uint32_t number) {
    if (number > 0)
        return dlpi_push_take(u->fd, u->line, number - 1) ? (int)number - 1 : DLP_ERR_BUSY;
    for (int any = 0; any < 2; any++)
        for (uint32_t i = 0; i < n; i++)
            if ((any || DLPI_LOAD_RLX(&owners[i]) == 0) && /* LO1 */
                dlpi_push_take(u->fd, u->line, i))
                return (int)i;
    return DLP_ERR_BUSY;
}

/* Take the place of a producer in the push, and attach to the lane of that place. number: 1..; 0:
   any free place. On failure dlpi_pusher_free gives the place back. Returns 0 or a DLP_ERR code. */
static int dlpi_pusher_lane(dlp_pusher *u, const dlpi_push_head *h, uint32_t number,
                            dlp_error *err) {
    dlp_mpsc *bundle = dlpi_at(u->head, h->bundle_at), copy;
    int i;
    if (dlpi_mpsc_check(bundle, h->bundle_bytes, &copy) != DLP_OK ||
        copy.producers != h->max_producers || copy.record_bytes != u->at.record ||
        copy.total_bytes != h->bundle_bytes)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "path", "the lanes are damaged");
    i = dlpi_pusher_take(u, dlpi_at(bundle, copy.owners_offset), copy.producers, number);
    if (i < 0 && number > 0)
        return dlpi_error_set(err, i, "number",
                              "producer %" PRIu32 " lives; a number has one producer at a time. "
                              "Wait for its end, or take another number",
                              number);
    if (i < 0)
        return dlpi_error_set(err, i, "number", "all %" PRIu32 " producers live", copy.producers);
    u->number = (uint32_t)i + 1;
    u->line += i;
    i = dlp_mpsc_attach_tx(&u->tx, bundle, h->bundle_bytes, i);
    return i >= 0 ? DLP_OK : dlpi_error_set(err, i, "path", "the lanes are damaged");
}

/* Begin a stream if there is none or the last one has ended; else go on with the open stream. A
   producer that is killed before the store changes nothing; its successor stores the same. */
static int dlpi_pusher_stream(dlp_pusher *u, uint32_t number, dlp_error *err) {
    bool ended = dlpi_pusher_said_end(u);
    if (number > 0 && ended) {
        dlp_mpsc_detach_tx(&u->tx);
        return dlpi_error_set(err, DLP_ERR_STATE, "number",
                              "producer %" PRIu32 " has ended its stream", number);
    }
    if (ended || DLPI_LOAD_RLX(&u->line->begun) == 0)          /* our own */
        DLPI_STORE_RLX(&u->line->begun, u->tx.lane.tail + 1u); /* ordered by the place */
    return DLP_OK;
}

/* Attach a producer to a push of this or another process, and take a lane. Returns 0, or a code
   with *err filled. If it fails, dlpi_pusher_free gives all back. */
static int dlpi_pusher_attach(dlp_pusher *u, const dlp_pusher_desc *d, dlp_error *err) {
    dlpi_push_head h;
    int rc = DLP_OK;
    memset(&h, 0, sizeof h);
    if (d->push != NULL) {
        u->head = d->push->head;
        u->reader = d->push->self;
        h = d->push->was;
        if ((rc = dlpi_push_reopen(&u->fd, d->push->fd)) != 0)
            rc = dlpi_push_system(err, "opening the memory again, by /proc/self/fd", NULL, rc);
    } else {
        rc = dlpi_pusher_enter(u, d->path, &h, err);
    }
    if (rc == DLP_OK) rc = dlpi_pusher_fields(u, d, &h, err);
    if (rc != DLP_OK) return rc;
    if (dlpi_credit_closed(&u->head->over)) /* PU2 <- PU2 */
        return dlpi_error_set(err, DLP_STOPPED, "", "the pipe is closed, or has all items");
    if (d->number > h.max_producers) return dlpi_push_bad(err, "number", "0..max_producers");
    u->line = dlpi_at(u->head, h.lines_at); /* the first; then its own */
    if ((rc = dlpi_pusher_lane(u, &h, d->number, err)) != DLP_OK) return rc;
    u->full = h.full;
    u->lanes = h.max_producers;
    if ((rc = dlpi_pusher_stream(u, d->number, err)) != DLP_OK) return rc;
    dlpi_wait_policy(dlpi_pusher_attached(u) + 2, &u->tx.lane.spin_ns, &u->tx.lane.yields);
    return DLP_OK;
}

/* Give the producer's place back, and free the producer. The lane keeps the items that it has. */
static void dlpi_pusher_free(dlp_pusher *u) {
    if (u->number > 0) dlpi_push_give(u->fd, u->line - (u->number - 1), u->number - 1);
    dlpi_handle_close(u->fd);
    if (u->map) dlpi_pages_free(u->map, u->map_bytes);
    if (!u->borrows) dlpi_handle_close(u->reader);
    dlpi_aligned_free(u);
}

DLPI_COLD DLPDEF int dlp_pusher_open(dlp_pusher **out, const dlp_pusher_desc *desc,
                                     dlp_error *err) {
    dlp_pusher *u = NULL;
    int rc;
    if (out == NULL || desc == NULL) return dlpi_push_bad(err, out ? "desc" : "out", "given");
    if ((desc->push != NULL) == (desc->path != NULL))
        return dlpi_push_bad(err, "path", "given, or push, not both");
    if ((u = dlpi_aligned(64, sizeof *u)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the producer");
    memset(u, 0, sizeof *u);
    u->fd = u->reader = -1;
    u->borrows = desc->push != NULL;
    if ((rc = dlpi_pusher_attach(u, desc, err)) != DLP_OK) {
        dlpi_pusher_free(u);
        return rc;
    }
    *out = u;
    return DLP_OK;
}

DLPDEF uint32_t dlp_pusher_number(const dlp_pusher *u) { return u->number; }

/* True if no reader makes room any more: the push is over, or its pipe has ended. */
static bool dlpi_pusher_over(const dlp_pusher *u) {
    return dlpi_credit_closed(&u->head->over) ||
           dlpi_credit_closed(&u->head->left); /* PU2 <- PU2 */
}

/* True if a reader may still make room: the push is not over, and the reader's process lives. */
static bool dlpi_pusher_read(const dlp_pusher *u) {
    return !dlpi_pusher_over(u) && !dlpi_push_gone(u->reader);
}

/* Reserve a record for the next item in u->record, and wait for room if the push waits. A record
   that is begun already is kept. Returns DLP_OK, DLP_FULL, DLP_TIMEOUT, DLP_STOPPED or a DLP_ERR
   code. */
DLPI_NOINLINE static int dlpi_pusher_reserve(dlp_pusher *u, int timeout_ms) {
    uint64_t until = 0;
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
        if (dlpi_pusher_over(u) || (waited && !dlpi_pusher_read(u))) return DLP_STOPPED;
        now = dlpi_now_ns();
        if (until == 0) until = timeout_ms > 0 ? now + (uint64_t)timeout_ms * 1000000u : UINT64_MAX;
        if (now >= until) return DLP_TIMEOUT;
        if ((until - now) / 1000000u < ms) ms = (until - now) / 1000000u + 1;
        n = dlp_mpsc_wait_tx(&u->tx, (int)ms);
        if (n < 0) return (int)n;
        dlpi_push_waited(dlpi_now_ns() - now, dlpi_pusher_attached(u), &u->tx.lane.spin_ns,
                         &u->tx.lane.yields);
        waited = n == DLP_TIMEOUT;
    }
    return DLP_OK;
}

/* Publish the record that is being written. mark: DLPI_PUSH_ITEM or DLPI_PUSH_END. Returns the code
   of dlp_mpsc_commit. */
static int dlpi_pusher_commit(dlp_pusher *u, uint64_t mark) {
    memcpy(u->record, &mark, 8);
    if (DLPI_UNLIKELY(u->at.ragged != 0)) {
        memcpy((uint8_t *)u->record + 8, u->length, u->at.n * sizeof *u->length);
        memset(u->length, 0, sizeof u->length);
    }
    u->record = NULL;
    return dlp_mpsc_commit(&u->tx, 1);
}

/* Check the arguments of a push, and reserve a record in u->record. data: only checked for NULL.
   Returns what dlpi_pusher_reserve returns, or DLP_ERR_ARG, DLP_ERR_STATE or DLP_STOPPED. */
static int dlpi_pusher_begin(dlp_pusher *u, const void *data, int timeout_ms) {
    if (DLPI_UNLIKELY(u == NULL || data == NULL)) return DLP_ERR_ARG;
    if (DLPI_UNLIKELY(u->ended)) return DLP_ERR_STATE;
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&u->head->over))) return DLP_STOPPED; /* PU2: a hint */
    return dlpi_pusher_reserve(u, timeout_ms);
}

DLPDEF int dlp_pusher_lengths(dlp_pusher *u, const uint64_t *length) {
    if (u == NULL || length == NULL || u->at.ragged == 0) return DLP_ERR_ARG;
    for (uint32_t f = 0; f < u->at.n; f++)
        if ((u->at.ragged >> f & 1) != 0 && length[f] > u->at.rows[f]) return DLP_ERR_LENGTH;
    for (uint32_t f = 0; f < u->at.n; f++)
        u->length[f] = (u->at.ragged >> f & 1) != 0 ? length[f] : 0;
    return DLP_OK;
}

DLPDEF int dlp_pusher_begin(dlp_pusher *u, void **data, int timeout_ms) {
    int rc = dlpi_pusher_begin(u, data, timeout_ms);
    if (rc != DLP_OK) return rc;
    u->plain_to = 0;
    for (uint32_t f = 0; f < u->at.n; f++) data[f] = (uint8_t *)u->record + u->at.offset[f];
    return DLP_OK;
}

DLPDEF int dlp_pusher_commit(dlp_pusher *u) {
    if (u == NULL) return DLP_ERR_ARG;
    return u->record == NULL ? DLP_ERR_STATE : dlpi_pusher_commit(u, DLPI_PUSH_ITEM);
}

/* Push a copy of an item. A record below plain_to has room, as the producer saw when it looked
   last. Then no record is begun, the stream has not ended, and no field is ragged: so the item is
   copied and published without further checks. */
DLPDEF int dlp_pusher_push(dlp_pusher *u, const void *const *data, int timeout_ms) {
    const uint64_t mark = DLPI_PUSH_ITEM;
    if (DLPI_UNLIKELY(u == NULL || data == NULL || u->tx.lane.tail >= u->plain_to ||
                      DLPI_LOAD_RLX(&u->head->over) != 0)) { /* PU2: a hint */
        int rc = dlpi_pusher_begin(u, data, timeout_ms);
        if (rc != DLP_OK) return rc;
        if (u->at.ragged == 0) u->plain_to = u->tx.lane.head_seen + u->tx.lane.capacity;
    }
    dlp_spsc_tx *tx = &u->tx.lane;
    uint8_t *record = dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes);
    for (uint32_t f = 0; f < u->at.n; f++) {
        uint64_t bytes = u->at.bytes[f];
        if (DLPI_UNLIKELY((u->at.ragged >> f & 1) != 0))
            bytes = dlpi_push_bytes(&u->at, f, u->length[f]);
        dlpi_push_copy_field(record + u->at.offset[f], data[f], 0, bytes, 1);
    }
    if (DLPI_UNLIKELY(u->record != NULL)) return dlpi_pusher_commit(u, DLPI_PUSH_ITEM);
    memcpy(record, &mark, 8); /* NOLINT: a lane has memory */
    dlpi_spsc_publish_tx(tx, 1);
    dlpi_mpsc_say_ready(&u->tx);
    return DLP_OK;
}

/* End the stream. The end is not refused by DLP_PUSH_REFUSE: the call waits for room, up to
   timeout_ms. */
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
    u->plain_to = 0;
    return dlpi_pusher_commit(u, DLPI_PUSH_END);
}

DLPI_COLD DLPDEF void dlp_pusher_close(dlp_pusher *u) {
    if (u == NULL) return;
    if (u->record) dlp_mpsc_abort(&u->tx);
    dlp_mpsc_detach_tx(&u->tx);
    dlpi_pusher_free(u);
}
