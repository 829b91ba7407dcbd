/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_life, system/shm/shm_push, model/model_links */
#include "api/graph.h"
#include "stages/fetch.h"
#include "queue/credit.h"
#include "source/mapped.h"
#include "source/push_door.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-push       ITEMS THAT OTHERS PUSH
   Producers write records into lanes of one mapping (>>impl-push-memory). The lanes keep the order,
   and show a record whole or not at all. A record is there when the tail of its lane is beyond it
   (LT1 -> LT2). A producer that dies before that has pushed nothing. Only one worker of the pipe
   reads, by peek, copy and release: the reader.

   The labels of >>impl-push-memory, and these:

   label  atomic          written by            read by (partner)
   PU3    begun           a worker that begins  itself: each pipe counts its rows from 0; the
                                                consumer, which has an error to tell (PU3)
   -      items, left     the reader            statistics
   U4     users           see >>impl-mapped

   A row is fetched again if a stage after fetch gives it up, or dies with it. The row must get the
   same item then. So if the pipe has such a stage, the last items are kept by the number of their
   row, as many as all slots have rows. Older items are never asked for again. The kept items lie in
   the fetch stage's own area of the region.

   While the reader waits, it looks at the places of the producers ten times a second. A stream of a
   lane has not ended if it began behind the last end that was read there. Its writer lives if the
   place is taken. If no stream has a living writer, the reader is alone. It says this in the log
   and, by words of the region, in explain. After lost_ms the next item is an error. */

struct dlp_push {
    dlp_source source;
    dlp_dataset dataset; /* of the source */
    dlpi_push_head *head;
    dlpi_push_head was; /* private copy of the head: producers may overwrite the shared one */
    dlpi_push_fields at;
    dlp_field fields[DLP_MAX_FIELDS];
    char names[DLP_MAX_FIELDS][32];
    char *path;
    int fd, self; /* the memory's file; a pidfd of this process */
    dlpi_door door;
    uint64_t keep, capacity, lost_ms; /* numbers of the desc, with their defaults */
    uint32_t users;                   /* U4 */
    uint32_t writers, n_ended; /* streams that the desc expects, 0: no end; those that ended */
    bool over; /* the stream has ended; this field and all below are written by the reader */
    dlp_mpsc_rx rx;
    dlp_spsc_rx *lanes;     /* [max_producers] */
    uint64_t *items, *left; /* [max_producers] items read from each lane; items dropped by keep */
    uint64_t *ended;        /* [max_producers] records up to the last end that was read */
    const uint32_t *owners; /* [max_producers] in the region: who has each lane */
    uint32_t begun;         /* PU3; the fields below belong to the pipe that reads now */
    uint64_t alone_ns;      /* time since which no writer lives; 0: one lives */
    bool lost;              /* `damaged` is set because no writer lived for lost_ms */
    uint64_t given;         /* rows that got their items */
    uint64_t damaged; /* 1 + the row at which reading failed for good; 0: it did not fail. This row
                         fails, and the stream ends behind it */
    uint8_t *kept; /* [n_kept] in the region: the last records, with the row's number as mark; NULL:
                      no stage asks again */
    uint64_t n_kept;
    uint32_t damaged_by; /* the producer whose lane is damaged, if `damaged` and not `lost` */
    const dlp_pipe *by;  /* the pipe that reads, since `begun` */
    dlpi_push_crowd crowd;
};

/* ---- the memory ---- */

/* Return how many items a lane has. Without a number of the desc's: 64 KiB of records, so that
   threads that share cores switch seldom, but 256 to 4096 of them. With DLP_PUSH_NEWEST it has 256:
   a full lane is what makes the reader skip old items. */
static uint64_t dlpi_push_capacity(const dlp_push_desc *d, uint64_t record) {
    uint64_t n = d->full == DLP_PUSH_NEWEST ? 256 : 4096;
    while (n > 256 && n * record > 65536) n /= 2;
    return d->capacity ? d->capacity : n;
}

/* Check a push desc, but not its fields. record: bytes of a record. Returns 0, or a DLP_ERR code
   with *err filled. */
static int dlpi_push_check(const dlp_push_desc *d, uint64_t record, dlp_error *err) {
    if (d->max_producers > DLP_MPSC_MAX_PRODUCERS)
        return dlpi_push_bad(err, "max_producers", "0..4096");
    if (d->capacity > DLP_QUEUE_MAX_CAPACITY || (d->capacity & (d->capacity - 1)) != 0)
        return dlpi_push_bad(err, "capacity", "0, or a power of two up to 2^32");
    if (d->writers == 0)
        return dlpi_push_bad(err, "writers",
                             "1 or more: how many producers say that their stream has ended");
    if (d->full < DLP_PUSH_WAIT || d->full > DLP_PUSH_NEWEST)
        return dlpi_push_bad(err, "full", "DLP_PUSH_WAIT, _REFUSE or _NEWEST");
    if (d->keep > dlpi_push_capacity(d, record) || (d->keep != 0 && d->full != DLP_PUSH_NEWEST))
        return dlpi_push_bad(err, "keep", "0, or with DLP_PUSH_NEWEST 1..capacity");
    return DLP_OK;
}

/* Close the door and the memory, and free the reader. Producers see that the push is over. */
static void dlpi_push_free(dlp_push *s) {
    if (s->path) dlpi_door_close(&s->door, s->path);
    if (s->head != NULL) {
        dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2 */
        dlpi_pages_free(s->head, s->was.total_bytes);
    }
    dlpi_handle_close(s->fd);
    dlpi_handle_close(s->self);
    free(s->path);
    free(s->lanes);
    free(s->items);
    free(s);
}

/* Return the head of a push with this desc: all sizes and offsets of its memory, without the magic.
   */
static dlpi_push_head dlpi_push_sizes(const dlp_push_desc *d, const dlpi_push_fields *at) {
    dlpi_push_head h;
    memset(&h, 0, sizeof h);
    h.version = DLPI_PUSH_VERSION;
    h.max_producers = d->max_producers ? d->max_producers : 16;
    h.record_bytes = (uint32_t)at->record;
    h.n_fields = at->n;
    h.fields_id = at->id;
    h.full = (uint32_t)d->full;
    h.flags = at->ragged != 0 ? DLPI_PUSH_RAGGED : 0;
    h.lines_at = dlpi_round_up(sizeof h, DLP_QUEUE_ALIGN);
    h.bundle_at =
        dlpi_round_up(h.lines_at + h.max_producers * sizeof(dlpi_push_line), DLP_QUEUE_ALIGN);
    h.bundle_bytes =
        dlp_mpsc_bytes(h.record_bytes, dlpi_push_capacity(d, at->record), h.max_producers);
    h.total_bytes = dlpi_sum(h.bundle_at, h.bundle_bytes);
    return h;
}

/* Make the memory that producers share, and open the door if the push has a path. Returns 0, or a
   DLP_ERR code with *err filled. If it fails, dlpi_push_free frees all. */
static int dlpi_push_memory(dlp_push *s, const dlp_push_desc *d, dlp_error *err) {
    uint32_t n = s->was.max_producers;
    const char *call = "";
    void *map = NULL;
    int rc;
    s->lanes = calloc(n, sizeof *s->lanes);
    s->items = calloc(n, 3 * sizeof *s->items);
    if (d->path) s->path = dlpi_string_copy(d->path);
    if (!s->lanes || !s->items || (d->path && !s->path))
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the reader failed");
    s->left = s->items + n;
    s->ended = s->left + n;
    rc = dlpi_push_made(&s->fd, &s->self, &map, s->was.total_bytes, &call);
    s->head = map;
    if (rc != 0) return dlpi_push_system(err, call, NULL, rc);
    rc = dlp_mpsc_init(dlpi_at(map, s->was.bundle_at), s->was.bundle_bytes, s->was.record_bytes,
                       s->capacity, n, DLPI_HAS_SHARING);
    if (rc == DLP_OK)
        rc = dlp_mpsc_attach_rx(&s->rx, s->lanes, n, dlpi_at(map, s->was.bundle_at),
                                s->was.bundle_bytes);
    if (rc != DLP_OK) return dlpi_error_set(err, rc, "", "the lanes: %s", dlp_code_name(rc));
    /* others write what lies there: it is not asked where these are */
    s->owners =
        dlpi_at(s->rx.bundle, dlpi_mpsc_plan(s->was.record_bytes, s->capacity, n).owners_offset);
    *s->head = s->was;
    DLPI_STORE_REL(&s->head->magic, DLPI_PUSH_MAGIC); /* PU1 -> PU1 */
    if (s->path == NULL) return DLP_OK;
    s->door.memory = s->fd;
    s->door.reader = s->self;
    return dlpi_door_open(&s->door, s->path, err);
}

DLPDEF void dlp_push_stop(dlp_push *s) {
    if (s != NULL) dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2 */
}

DLPI_COLD DLPDEF int dlp_push_close(dlp_push *s) {
    if (s == NULL) return DLP_OK;
    if (dlpi_users_any(&s->users)) return DLP_ERR_BUSY;
    dlpi_push_free(s);
    return DLP_OK;
}

/* Return how many records lie in lane i, for statistics. */
static uint64_t dlpi_push_in_lane(const dlp_push *s, uint32_t i) {
    const dlp_spsc *lane = s->lanes[i].lane;
    const uint64_t head = DLPI_LOAD_RLX(&lane->head), n = DLPI_LOAD_RLX(&lane->tail) - head;
    return n <= s->capacity ? n : 0;
}

/* ---- the reader ---- */

/* Return how many of the `stock` records of the present lane come before its last `keep` items.
   Ends of streams count as no items. The reader may look at all these records, because it read the
   tail behind them with acquire (LT2). */
static uint64_t dlpi_push_older(const dlp_push *s, uint64_t stock) {
    const dlp_spsc_rx *rx = s->rx.at;
    for (uint64_t items = 0; stock > 0 && items < s->keep;) {
        uint64_t mark;
        memcpy(&mark, dlpi_slot(rx->slots, rx->capacity, rx->head + --stock, rx->record_bytes), 8);
        items += mark != DLPI_PUSH_END;
    }
    return stock;
}

/* If the present lane is full, drop its items except the last `keep`. The end of a stream, and
   items behind it, are not dropped. Returns 0, or DLP_ERR_CORRUPT if the lane is damaged. */
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

/* Count an end of a stream, which was read in the lane of this producer. A lane may have several
   streams, one after the other. Returns true if it was the last end that the push waits for. */
static bool dlpi_push_ended(dlp_push *s, uint32_t producer) {
    s->ended[producer] = s->lanes[producer].head;
    DLPI_STORE_RLX(&s->n_ended, s->n_ended + 1); /* statistics */
    return s->n_ended >= s->writers;
}

/* ---- whether writers live ---- */

/* True if the lane has a stream that did not end, and records of it or a living producer. A place
   is looked at before the tail, so that what a dead producer pushed is seen. *lost: set if the lane
   has one whose producer is gone. *come: set if a producer was ever there. */
static bool dlpi_push_lives(const dlp_push *s, uint32_t i, bool *lost, bool *come) {
    const dlpi_push_line *lines = dlpi_at(s->head, s->was.lines_at);
    bool taken = DLPI_LOAD_RLX(&s->owners[i]) != 0 && dlpi_push_taken(s->fd, lines, i); /* LO1 */
    uint64_t begun = DLPI_LOAD_RLX(&lines[i].begun); /* ordered by the place */
    *come = begun > 0;
    *lost = begun > s->ended[i] && !taken;
    if (begun > 0 && begun <= s->ended[i]) return false;
    return taken || (begun > 0 && dlpi_spsc_look_rx(&s->lanes[i], 0) != 0);
}

/* True if writers came, and no writer lives whose stream has not ended: the reader is alone. *last:
   the number of a writer that is gone in the middle of its stream; 0: there is none. */
static bool dlpi_push_alone(const dlp_push *s, uint32_t *last) {
    bool any = false;
    *last = 0;
    for (uint32_t i = 0; i < s->was.max_producers; i++) {
        bool lost, come;
        if (dlpi_push_lives(s, i, &lost, &come)) return false;
        if (lost) *last = i + 1;
        any |= come;
    }
    return any;
}

/* Tell observers, and the log, that the reader is alone, or no longer. */
static void dlpi_push_tell(const dlp_push *s, const dlpi_worker *w, bool alone, uint32_t last) {
    char text[200];
    const dlp_pipe *p = w->p;
    dlpi_reader_words *words = dlpi_area_if(p, DLPI_OWN(w->st->id, DLPI_READER_WORDS));
    if (words != NULL) {
        DLPI_STORE_RLX(&words->ended, (uint64_t)s->n_ended); /* for people, here and below */
        DLPI_STORE_RLX(&words->writers, (uint64_t)s->writers);
        DLPI_STORE_RLX(&words->last, (uint64_t)last);
        DLPI_STORE_RLX(&words->alone, (uint64_t)alone);
    }
    if (p->d.log == NULL) return;
    if (!alone)
        snprintf(text, sizeof text, "push: a producer is there again");
    else
        snprintf(text, sizeof text,
                 "push: no producer lives, and %" PRIu32 " of %" PRIu32
                 " streams have ended%s%.0" PRIu32 "; start %s, else next fails in %" PRIu64
                 " ms (lost_ms)",
                 s->n_ended, s->writers, last ? "; the last was producer " : "", last,
                 last ? "it again with its number" : "the others", s->lost_ms);
    p->d.log(p->d.log_user, text);
}

/* Look whether a writer lives, after a wait. came: a record came in the wait. Tells the log when
   the last writer is gone, and when one is back. Returns false if no writer has lived for lost_ms.
   */
static bool dlpi_push_look_around(dlp_push *s, const dlpi_worker *w, bool came) {
    const uint64_t now = dlpi_now_ns();
    uint32_t last = 0;
    bool alone = !came && dlpi_push_alone(s, &last);
    if (alone && s->alone_ns != 0) return now - s->alone_ns < s->lost_ms * 1000000u;
    if (alone == (s->alone_ns != 0)) return true;
    s->alone_ns = alone ? now : 0;
    dlpi_push_tell(s, w, alone, last);
    return true;
}

/* Wait until a lane may have a record, for DLPI_PUSH_LOOK_MS at most. Returns false if no writer
   has lived for lost_ms. */
static bool dlpi_push_wait(dlp_push *s, dlpi_worker *w) {
    uint64_t began = dlpi_now_ns(), now;
    bool came = dlp_mpsc_wait_rx(&s->rx, DLPI_PUSH_LOOK_MS) != DLP_TIMEOUT;
    dlpi_reader_words *words = dlpi_area_if(w->p, DLPI_OWN(w->st->id, DLPI_READER_WORDS));
    const uint32_t attached = dlpi_push_attached(&s->crowd, s->owners, s->was.max_producers);
    now = dlpi_now_ns();
    dlpi_push_waited(now - began, attached, &s->rx.spin_ns, &s->rx.yields);
    if (words != NULL) DLPI_STORE_RLX(&words->attached, (uint64_t)attached); /* for people */
    dlpi_clock_waited(w, began, now);
    return (came && s->alone_ns == 0) || dlpi_push_look_around(s, w, came);
}

/* Point *records at the next records of one lane, n at most, which the reader may use until it
   releases them. *producer: the lane. Returns how many there are, 0 if all lanes are empty, or
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

/* Say in the item's call why no items come: no producer lives, or a lane is damaged. Returns the
   code of the failure. */
static int dlpi_push_damaged(const dlp_push *s, const dlp_item *it) {
    if (s->lost)
        return dlp_fail(it->call, 0,
                        "no producer has lived for %" PRIu64 " ms, and %" PRIu32 " of %" PRIu32
                        " streams have ended; start producers again in time, or raise push.lost_ms",
                        s->lost_ms, s->n_ended, s->writers);
    return dlp_fail(it->call, 0, "the lane of producer %u is damaged", s->damaged_by + 1);
}

/* Wait for the next item, and point *item at its record until it is released. *producer: its lane.
   Returns 0, DLP_END, DLP_STOPPED or a failure's code. */
static int dlpi_push_next(dlp_push *s, dlp_item *it, const uint8_t **item, uint32_t *producer) {
    for (;;) {
        /* PU2 <- PU2: before the lanes are empty */
        uint32_t over = dlpi_credit_closed(&s->head->over);
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
                return dlp_fail(it->call, 0, "producer %u pushed a damaged item", *producer + 1);
            if (dlpi_push_ended(s, *producer)) return DLP_END;
            continue;
        }
        if (over) return DLP_END;
        if (dlpi_stopped(it->call->w->p)) return DLP_STOPPED;
        if (dlpi_push_wait(s, it->call->w)) continue;
        s->lost = true;
        s->damaged = it->index + 1;
        return dlpi_push_damaged(s, it);
    }
}

/* End the push: no more items are wanted. Producers that wait are told, and see all the room. */
static void dlpi_push_over(dlp_push *s) {
    s->over = true;
    dlpi_credit_close(&s->head->over, 1u); /* PU2 -> PU2: nobody waits for room from now on */
    for (uint32_t i = 0; i < s->was.max_producers; i++)
        if (s->lanes[i].published != s->lanes[i].head) dlp_spsc_publish(&s->lanes[i]);
}

/* True if p is the pipe that reads the push: it has begun to. A second pipe may not read it. */
static inline bool dlpi_push_reads(const dlp_push *s, const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&s->begun) != 0 && s->by == p; /* our own store */
}

static const char dlpi_push_words[] = "pushed items that may be asked for again";

/* Begin to read for the pipe of this item, if it is the pipe's first. Finds the memory for items
   that a later stage may ask for again. Returns 0 or a failure's code: another pipe reads the push.
   */
static int dlpi_push_begin(dlp_push *s, const dlp_item *it) {
    const dlp_pipe *p = it->call->w->p;
    const dlpi_stage *st = it->call->w->st;
    const int area = DLPI_OWN(st->id, DLPI_READER_ROWS);
    dlpi_reader_words *words;
    if (DLPI_LIKELY(dlpi_push_reads(s, p))) return 0;
    if (DLPI_LOAD_RLX(&s->begun) != 0) /* our own store */
        return dlp_fail(it->call, 0, "another pipe reads this push; make a push for each");
    s->given = s->damaged = s->alone_ns = 0;
    s->lost = false;
    words = dlpi_area_if(p, DLPI_OWN(st->id, DLPI_READER_WORDS));
    s->kept = p->areas[area].words == dlpi_push_words ? dlpi_area_if(p, area) : NULL;
    s->n_kept = p->areas[area].count;
    if (st == p->fetch && p->rows_end != st && s->kept == NULL)
        return dlp_fail(it->call, 0, "the dataset's reader is not that of the push");
    s->by = p;
    if (words != NULL) DLPI_STORE_RLX(&words->writers, (uint64_t)s->writers); /* for people */
    dlpi_credit_close(&s->begun, 1u);                                         /* PU3 -> PU3 */
    return 0;
}

/* Copy a record into the fields of an item. Lengths are copied as the producer wrote them; the core
   checks them. */
static void dlpi_push_copy(const dlp_push *s, const dlp_item *it, const uint8_t *item) {
    for (uint32_t f = 0; f < s->at.n; f++) {
        uint64_t bytes = s->at.bytes[f];
        if ((s->at.ragged >> f & 1) != 0) {
            memcpy(&it->length[f], item + 8 + f * 8u, 8);
            bytes = dlpi_push_bytes(&s->at, f, it->length[f]);
        }
        memcpy(it->data[f], item + s->at.offset[f], (size_t)bytes);
    }
}

/* Return the address at which the item of a row is kept. */
static uint8_t *dlpi_push_kept(const dlp_push *s, uint64_t row) {
    return s->kept + row % s->n_kept * s->at.record;
}

/* Copy the kept item of a row that is asked for again. Returns 0, or a failure's code if the item
   is not kept any more. */
static int dlpi_push_again(const dlp_push *s, const dlp_item *it) {
    uint64_t row = UINT64_MAX;
    if (s->kept != NULL) memcpy(&row, dlpi_push_kept(s, it->index), 8);
    if (row != it->index) return dlp_fail(it->call, 0, "the item is gone: pushed items come once");
    dlpi_push_copy(s, it, dlpi_push_kept(s, it->index));
    return 0;
}

/* The dataset's fetch callback: wait for the next pushed item, and copy it. An item that was given
   before is copied again, if it is kept. Returns 0, DLP_END, DLP_STOPPED or a failure's code. */
static int dlpi_push_fetch(void *user, dlp_item *it) {
    dlp_push *s = user;
    const uint8_t *item = NULL;
    uint32_t producer = 0;
    int rc;
    if (!dlpi_reads_on(it->call->w->st) || it->call->w->at_once != NULL)
        return dlp_fail(it->call, 0, "a push needs one worker, a thread or inline");
    if (it->epoch > 0) return dlp_fail(it->call, 0, "a push has one epoch");
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

/* ---- several rows at once. The callback reads a row alone if it is the first of a pipe, is asked
   for again, or is near an end or damage ---- */

/* Copy one field of n records into n rows that lie one behind the other. record: bytes from record
   to record. bytes: of the field. */
DLPI_INLINE void dlpi_push_copy_field(uint8_t *to, const uint8_t *from, uint64_t record,
                                      uint64_t bytes, uint64_t n) {
    if (bytes == 8)
        for (; n > 0; n--, to += 8, from += record) memcpy(to, from, 8);
    for (; n > 0; n--, to += bytes, from += record) memcpy(to, from, (size_t)bytes);
}

/* Copy n items of a lane, which lie at `from`, into the rows of a slot from `row` on, and keep them
   if a later stage may ask again. */
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

/* Copy the items that one lane has now into rows of t, from `row` on. Returns how many, 0 if all
   lanes are empty, or a negative code if the next record is no item or is damaged. */
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

/* Copy pushed items into the leading rows of t, several at once. Returns how many rows are done;
   dlpi_push_fetch does the others. */
static uint32_t dlpi_push_read(void *user, dlpi_worker *w, const dlpi_unit *t) {
    dlp_push *s = user;
    const uint64_t first = dlpi_slot_index(w->p, t->slot)[t->row];
    uint32_t row = t->row;
    if (!dlpi_push_reads(s, w->p) || s->over || s->damaged > 0 || first < s->given ||
        dlpi_slot_at(w->p, t->slot)->epoch > 0)
        return 0;
    dlpi_item_at(w, t);
    while (row < t->end && !dlpi_generation_cancelled(w->p->ctl, w->generation)) {
        /* PU2 <- PU2: before the lanes are empty */
        uint32_t over = dlpi_credit_closed(&s->head->over);
        int64_t n = dlpi_push_burst(s, w, t, row);
        if (n < 0 || (n == 0 && (over || dlpi_stopped(w->p)))) break;
        row += (uint32_t)n;
        if (n == 0 && !dlpi_push_wait(s, w)) break;
    }
    return row - t->row;
}

/* True if the next record has come and is an item, so that fetch gets it without a wait. */
static bool dlpi_push_more(void *user) {
    dlp_push *s = user;
    const uint8_t *item = NULL;
    uint32_t producer = 0;
    uint64_t mark = 0;
    if (s->over || s->damaged > 0 || dlpi_push_peek(s, 1, &item, &producer) <= 0) return false;
    memcpy(&mark, item, 8);
    return mark == DLPI_PUSH_ITEM;
}

/* worker_init of the push: count the worker as a user. If there is no other user, a new pipe may
   begin to read. Returns 0 or a code. */
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

/* Tell producers, if pipe p reads the push, that it has an error and makes no more room. */
static void dlpi_push_failed(void *user, const dlp_pipe *p) {
    dlp_push *s = user;
    if (dlpi_credit_closed(&s->begun) && s->by == p) /* PU3 <- PU3 */
        dlpi_credit_close(&s->head->left, 1u);       /* PU2 -> PU2 */
}

/* Return the push's policy as the constant DLP_FULL_* of a node's queue. */
static int32_t dlpi_push_full(const dlp_push *s) {
    static const int32_t full[] = {[DLP_PUSH_WAIT] = DLP_FULL_WAIT,
                                   [DLP_PUSH_REFUSE] = DLP_FULL_REFUSE,
                                   [DLP_PUSH_NEWEST] = DLP_FULL_KEEP_NEWEST};
    return full[s->was.full];
}

static uint32_t dlpi_push_writers(const void *user) { return ((const dlp_push *)user)->writers; }

/* Describe the producers' lanes in *to. Returns how many records lie in the lanes. */
static uint64_t dlpi_push_lanes(const void *user, dlp_link *to) {
    const dlp_push *s = user;
    uint64_t n = 0;
    to->kind = DLP_LINK_MPSC;
    to->writers = (int32_t)s->was.max_producers;
    to->rule = dlpi_push_full(s);
    to->capacity = s->was.max_producers * s->capacity;
    to->bytes = s->was.bundle_bytes;
    for (uint32_t i = 0; i < s->was.max_producers; i++) n += dlpi_push_in_lane(s, i);
    return n;
}
static const dlpi_reader dlpi_push_reader = {.words = dlpi_push_words,
                                             .fetch = dlpi_push_fetch,
                                             .writers = dlpi_push_writers,
                                             .lanes = dlpi_push_lanes,
                                             .read = dlpi_push_read,
                                             .more = dlpi_push_more,
                                             .failed = dlpi_push_failed};

/* Fill the dataset and the source of a push, once its memory is made. */
static void dlpi_push_source(dlp_push *s) {
    s->dataset = (dlp_dataset){.fields = s->fields,
                               .n_fields = s->at.n,
                               .writes_all_bytes = 1,
                               .fetch = dlpi_push_fetch,
                               .user = s,
                               .open_end = 1,
                               .reader = &dlpi_push_reader};
    s->source = (dlp_source){.dataset = &s->dataset,
                             .workers = {.worker_init = dlpi_push_enter,
                                         .worker_exit = dlpi_push_leave,
                                         .worker_user = s}};
}

DLPDEF const dlp_source *dlp_push_source(const dlp_push *s) { return &s->source; }

DLPI_COLD DLPDEF int dlp_push_open(dlp_push **out, const dlp_push_desc *desc, dlp_error *err) {
    dlpi_push_fields at;
    dlp_push *s;
    int rc;
    if (out == NULL || desc == NULL) return dlpi_push_bad(err, out ? "desc" : "out", "given");
    if ((rc = dlpi_push_layout(&at, desc->fields, desc->n_fields, err)) != DLP_OK) return rc;
    if ((rc = dlpi_push_check(desc, at.record, err)) != DLP_OK) return rc;
    if ((s = calloc(1, sizeof *s)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the reader failed");
    s->fd = s->self = s->door.fd = -1;
    s->at = at;
    s->was = dlpi_push_sizes(desc, &at);
    s->capacity = dlpi_push_capacity(desc, at.record);
    s->keep = desc->keep ? desc->keep : 1;
    s->writers = desc->writers;
    s->lost_ms = desc->lost_ms ? desc->lost_ms : 60000;
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
    dlpi_push_source(s);
    *out = s;
    return DLP_OK;
}

/* Add the counts of producer i, numbered from 0, to *to. */
static void dlpi_push_add(const dlp_push *s, uint32_t i, dlp_push_stats *to) {
    const dlpi_push_line *lines = dlpi_at(s->head, s->was.lines_at);
    to->items += DLPI_LOAD_RLX(&s->items[i]); /* statistics, here and below */
    to->left += DLPI_LOAD_RLX(&s->left[i]);
    to->refused += DLPI_LOAD_RLX(&lines[i].refused);
    to->waiting += dlpi_push_in_lane(s, i);
    to->attached += DLPI_LOAD_RLX(&s->owners[i]) != 0 && dlpi_push_taken(s->fd, lines, i);
}

DLPDEF int dlp_push_look(const dlp_push *s, uint32_t number, dlp_push_stats *stats) {
    if (s == NULL || stats == NULL || number > s->was.max_producers) return DLP_ERR_ARG;
    memset(stats, 0, sizeof *stats);
    for (uint32_t i = 0; i < s->was.max_producers; i++)
        if (number == 0 || number == i + 1) dlpi_push_add(s, i, stats);
    stats->ended = DLPI_LOAD_RLX(&s->n_ended); /* statistics */
    return DLP_OK;
}
