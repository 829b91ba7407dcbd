#pragma once
/* tests: system/s3/s3_source, system/shm/shm_s3 */
#include "wait/waiters.h"
#include "api/s3_source.h"
#include "s3/manifest.h"
#include "s3/records.h"
/* ---- the source ---- */

enum {
    DLPI_S3_HAND_MOST = 1024, /* records of a worker */
    DLPI_S3_MATES_MOST = 64,  /* items in a joint request */
    DLPI_S3_LOOK_MS = 50,     /* a waiting thread looks this often whether the pipe was stopped */
    DLPI_S3_STOP_LOOKS = 4    /* and waits on for this many looks: most requests are over by then */
};

enum { DLPI_S3_SRC_FREE, DLPI_S3_SRC_HELD, DLPI_S3_SRC_OUT, DLPI_S3_SRC_OVER };

enum { /* what became of an item */
       DLPI_S3_SRC_FINE,
       DLPI_S3_SRC_FAILED,  /* its request failed */
       DLPI_S3_SRC_CHANGED, /* the object has another size than the manifest says */
       DLPI_S3_SRC_SIZE,    /* more bytes than its room, or fewer than its field takes */
       DLPI_S3_SRC_RAGGED,  /* not a whole number of rows */
       DLPI_S3_SRC_STOPPED
};

typedef struct dlpi_s3_get {
    dlp_s3_request request;
    struct dlpi_s3_get *next; /* the next record of the list that it is in */
    struct dlpi_s3_get *mate; /* the next record of a joint request; NULL: the last */
    dlp_item *item;
    dlp_s3_entry at;
    dlp_s3_piece *piece; /* [2 * most mates] pieces of a joint request; NULL: not asynchronous */
    dlp_s3_io *io;       /* the I/O of a fetch that waits; NULL: none is open yet */
    uint8_t *buffer;     /* memory for bytes that decode gets; NULL: bytes go into the row */
    uint8_t *to;         /* where the bytes go: into the buffer or the row */
    uint64_t got;        /* bytes that came */
    int32_t where, what; /* DLPI_S3_SRC_FREE .. _OVER; DLPI_S3_SRC_FINE .. _STOPPED */
    bool alone;          /* it is asked for by itself, because a joint request failed */
} dlpi_s3_get;

typedef struct dlpi_s3_src_list {
    dlpi_s3_get *first, *last;
} dlpi_s3_src_list;

typedef struct dlpi_s3_source {
    dlp_source source; /* first */
    dlp_s3_source_desc d;
    char bucket[256];
    dlp_dataset dataset;
    dlp_identity identity;
    uint32_t users;      /* SU1: workers of this process that use the source */
    uint64_t capacity;   /* bytes of an item, at most; 0: the source gives no items */
    uint64_t unit;       /* bytes of one row of field 0; if it is not ragged, of the whole field */
    bool ragged;         /* field 0 is ragged */
    uint64_t longest;    /* bytes of the longest entry whose length is known */
    bool known;          /* the lengths of all entries are known */
    uint64_t *first_row; /* [entries + 1] for chunks: rows of all entries before each; else NULL */
} dlpi_s3_source;

typedef struct dlpi_s3_worker {
    dlpi_s3_source *source;
    void *state;          /* the state that the user's worker_init made */
    const dlp_pipe *pipe; /* pipe of the last item, to see that it was stopped */
    dlp_s3_io *io;    /* I/O of asynchronous fetches; NULL: not asynchronous, or it has failed */
    dlpi_s3_get *get; /* [in_flight] */
    void *memory;     /* memory of all buffers */
    dlp_s3_piece *pieces; /* memory of all pieces */
    pthread_mutex_t lock; /* guards `free`, which threads of the worker share */
    pthread_cond_t room;  /* signalled if a record became free */
    dlpi_s3_get *free;    /* list of free records, the one used last first */
    dlpi_s3_src_list held, over;
    int out;        /* requests that io has */
    int mates_most; /* items of a joint request, at most */
    int stop_looks; /* looks since the pipe was stopped */
} dlpi_s3_worker;

/* Append q to a list. where: the list's DLPI_S3_SRC_* number. q must be in no list. */
static void dlpi_s3_src_put(dlpi_s3_src_list *l, dlpi_s3_get *q, int where) {
    q->where = where;
    q->next = NULL;
    if (l->first == NULL)
        l->first = q;
    else
        l->last->next = q;
    l->last = q;
}

static dlpi_s3_get *dlpi_s3_src_take(dlpi_s3_src_list *l) {
    dlpi_s3_get *q = l->first;
    if (q) l->first = q->next;
    return q;
}

/* Take q out of its list. before: the record in front of q, or NULL if q is the first. */
static void dlpi_s3_unlink(dlpi_s3_src_list *l, dlpi_s3_get *before, dlpi_s3_get *q) {
    if (before)
        before->next = q->next;
    else
        l->first = q->next;
    if (l->last == q) l->last = before;
}

/* Take a free record. If none is free, wait for one (waits), or return NULL. */
static dlpi_s3_get *dlpi_s3_lend(dlpi_s3_worker *w, bool waits) {
    dlpi_s3_get *q;
    pthread_mutex_lock(&w->lock);
    while (waits && w->free == NULL) pthread_cond_wait(&w->room, &w->lock);
    q = w->free;
    if (q) w->free = q->next;
    pthread_mutex_unlock(&w->lock);
    return q;
}

/* Give q back to the worker's free requests, and wake a thread that waits for one. */
static void dlpi_s3_src_give(dlpi_s3_worker *w, dlpi_s3_get *q) {
    pthread_mutex_lock(&w->lock);
    q->where = DLPI_S3_SRC_FREE;
    q->next = w->free;
    w->free = q;
    pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

/* Return the pipe that makes a call, or NULL if no pipe does. call may be NULL. */
static const dlp_pipe *dlpi_s3_pipe_of(const dlp_call *call) {
    return call != NULL && call->w != NULL ? call->w->p : NULL;
}

static bool dlpi_s3_stopped(const dlp_pipe *p) { return p != NULL && dlpi_stopped(p); }

/* ---- one item, step by step ---- */

/* Note in the record why its item failed (DLPI_S3_SRC_*). Returns false. */
static bool dlpi_s3_fails(dlpi_s3_get *q, int what) {
    q->what = what;
    return false;
}

/* True if an item of so many bytes fits into the room for items; if not, q->what tells why. The
   bytes have come, or the manifest tells their number. */
static bool dlpi_s3_src_fits(const dlpi_s3_source *s, dlpi_s3_get *q, uint64_t bytes) {
    q->got = bytes;
    if (bytes > s->capacity) return dlpi_s3_fails(q, DLPI_S3_SRC_SIZE);
    if (!s->d.direct) return true;
    if (!s->ragged && bytes < s->capacity) return dlpi_s3_fails(q, DLPI_S3_SRC_SIZE);
    return bytes % s->unit == 0 || dlpi_s3_fails(q, DLPI_S3_SRC_RAGGED);
}

/* Have a request held to an ETag, which comes from by, DLPI_S3_BY_*. */
static void dlpi_s3_held_to(dlp_s3_request *r, const char *etag, int by) {
    r->if_match = etag;
    r->internal = (void *)(uintptr_t)&dlpi_s3_etags_of[by];
}

/* Fill in a GET of a manifest's entry. For a whole object of known size, lower the capacity to
   that: one that is not larger than a part then needs no range, which some servers refuse. */
static void dlpi_s3_src_ask(const dlpi_s3_source *s, dlp_s3_request *r, const dlp_s3_entry *at,
                            void *to, uint64_t capacity) {
    memset(r, 0, sizeof *r);
    r->bucket = s->bucket;
    r->key = at->key;
    if (at->offset != DLP_S3_WHOLE) {
        r->offset = at->offset;
        r->length = at->length;
    } else if (at->length > 0 && dlpi_s3_bytes(at->length) < capacity) {
        capacity = dlpi_s3_bytes(at->length);
    }
    r->body = to;
    r->capacity = capacity;
    if (at->etag && at->etag[0] && !s->d.any_version)
        dlpi_s3_held_to(r, at->etag, DLPI_S3_BY_MANIFEST);
}

/* True if the answer to a request for a whole object shows another size than the manifest tells.
   *is gets the size in the answer, in any case. */
static bool dlpi_s3_other_size(const dlp_s3_request *r, const dlp_s3_entry *at, uint64_t *is) {
    *is = r->code == DLP_OK ? r->received : r->object_bytes;
    return at->offset == DLP_S3_WHOLE && at->length > 0 && *is != dlpi_s3_bytes(at->length) &&
           (r->code == DLP_OK || (r->code == DLP_ERR_LENGTH && *is > 0));
}

/* Set up a record for an item, and fill in its request. True if the request can be sent; false if
   the item has failed already, and q->what tells why. */
static bool dlpi_s3_src_begin(const dlpi_s3_source *s, dlpi_s3_get *q, dlp_item *item) {
    q->item = item;
    q->mate = NULL;
    q->alone = false;
    q->what = DLPI_S3_SRC_FINE;
    q->to = q->buffer ? q->buffer : item->data[0];
    if (dlp_s3_manifest_get(s->d.manifest, item->index, &q->at) != DLP_OK) {
        q->at = (dlp_s3_entry){"", 0, 0, 0, ""};
        return dlpi_s3_fails(q, DLPI_S3_SRC_FAILED);
    }
    if (q->at.length > 0 && !dlpi_s3_src_fits(s, q, dlpi_s3_bytes(q->at.length))) return false;
    q->got = 0;
    dlpi_s3_src_ask(s, &q->request, &q->at, q->to, s->capacity);
    return true;
}

/* Judge the ended request of a single item: set q->got, and q->what if the item failed. */
static void dlpi_s3_src_look(const dlpi_s3_source *s, dlpi_s3_get *q) {
    const dlp_s3_request *r = &q->request;
    if (dlpi_s3_other_size(r, &q->at, &q->got))
        dlpi_s3_fails(q, DLPI_S3_SRC_CHANGED);
    else if (r->code != DLP_OK)
        dlpi_s3_fails(q, DLPI_S3_SRC_FAILED);
    else if (q->at.length == 0)
        dlpi_s3_src_fits(s, q, r->received);
}

/* Write "s3://bucket/key" for a message; of a long key its end, which says more than the rest. */
static void dlpi_s3_src_place(const char *bucket, const char *key, char *text, size_t size) {
    size_t n = strlen(key), most = 90;
    snprintf(text, size, "s3://%.63s/%s%s", bucket, n > most ? "..." : "",
             n > most ? key + n - most : key);
    dlpi_s3_one_line(text);
}

/* Append formatted text at text + at. Returns the new length; size or more: it was cut. */
static size_t dlpi_s3_add_text(char *text, size_t size, size_t at, const char *format, ...)
    DLPI_PRINTF(4, 5);
static size_t dlpi_s3_add_text(char *text, size_t size, size_t at, const char *format, ...) {
    va_list args;
    int n;
    if (at >= size) return at;
    va_start(args, format);
    n = vsnprintf(text + at, size - at, format, args);
    va_end(args);
    return n > 0 ? at + (size_t)n : at;
}

/* Write in 255 bytes why a request failed: first the object's name, last what may be cut. */
static void dlpi_s3_words(const dlp_s3_request *r, char *text, size_t size) {
    const dlp_s3_error *e = &r->error;
    size_t n;
    dlpi_s3_src_place(r->bucket, r->key, text, size);
    n = strlen(text);
    if (r->length > 0)
        n = dlpi_s3_add_text(text, size, n, " bytes %llu-%llu", (unsigned long long)r->offset,
                             (unsigned long long)(r->offset + r->length - 1));
    else if (r->offset > 0)
        n = dlpi_s3_add_text(text, size, n, " bytes %llu-", (unsigned long long)r->offset);
    n = dlpi_s3_add_text(text, size, n, ":");
    if (e->http_status) n = dlpi_s3_add_text(text, size, n, " HTTP %d", e->http_status);
    if (e->s3_code[0]) n = dlpi_s3_add_text(text, size, n, " %s", e->s3_code);
    if (e->request_id[0]) n = dlpi_s3_add_text(text, size, n, " (request %s)", e->request_id);
    if (e->message[0])
        dlpi_s3_add_text(text, size, n, " %s", e->message);
    else if (e->errnum)
        dlpi_s3_add_text(text, size, n, " %s", strerror(e->errnum));
    else if (e->http_status == 0)
        dlpi_s3_add_text(text, size, n, " code %d", r->code);
}

/* Report by dlp_fail why an item failed. Returns DLP_ERR_LENGTH or DLP_ERR_CALLBACK, for fetch. */
static int dlpi_s3_complain(const dlpi_s3_source *s, const dlpi_s3_get *q) {
    const bool fixed = s->d.direct && !s->ragged;
    char text[256];
    if (q->at.key[0] == 0)
        return dlp_fail(q->item->call, 0, "the manifest has only %llu entries; lower n_items",
                        (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
    if (q->what == DLPI_S3_SRC_FAILED) {
        dlpi_s3_words(&q->request, text, sizeof text);
        dlp_fail(q->item->call, q->request.error.errnum, "%s", text);
        return q->request.code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
    }
    dlpi_s3_src_place(s->bucket, q->at.key, text, sizeof text);
    switch (q->what) {
    case DLPI_S3_SRC_CHANGED:
        return dlp_fail(
            q->item->call, 0, "%s: has %llu bytes, the manifest says %llu; list it again", text,
            (unsigned long long)q->got, (unsigned long long)dlpi_s3_bytes(q->at.length));
    case DLPI_S3_SRC_SIZE:
        dlp_fail(q->item->call, 0, "%s: has %llu bytes, %s %llu; %s", text,
                 (unsigned long long)q->got, fixed ? "the field takes" : "the most are",
                 (unsigned long long)s->capacity,
                 s->d.direct ? "change its shape" : "raise max_bytes");
        return DLP_ERR_LENGTH;
    case DLPI_S3_SRC_RAGGED:
        dlp_fail(q->item->call, 0, "%s: %llu bytes are not whole rows of %llu", text,
                 (unsigned long long)q->got, (unsigned long long)s->unit);
        return DLP_ERR_LENGTH;
    default: return dlp_fail(q->item->call, 0, "%s: given up, the pipe was stopped", text);
    }
}

/* Make an item of the bytes that came, by decode if there is one. Returns the code for fetch: 0,
   the one that decode returned, or an error code if the item failed. */
static int dlpi_s3_src_settle(const dlpi_s3_worker *w, const dlpi_s3_get *q) {
    const dlpi_s3_source *s = w->source;
    if (q->what != DLPI_S3_SRC_FINE) return dlpi_s3_complain(s, q);
    if (s->d.direct && s->ragged) q->item->length[0] = q->got / s->unit;
    if (s->d.decode == NULL) return 0;
    return s->d.decode(s->d.user, w->state, q->item, q->to, q->got);
}

/* ---- fetches that wait ---- */

/* Close the I/O and set *io to NULL. Its requests are dropped. */
static void dlpi_s3_src_drop(dlp_s3_io **io) {
    dlp_s3_io_close(*io);
    *io = NULL;
}

/* True if a pipe was found stopped in DLPI_S3_STOP_LOOKS calls, which *looks counts. Called every
   DLPI_S3_LOOK_MS, so most requests have ended by then. p may be NULL. */
static bool dlpi_s3_given_up(const dlp_pipe *p, int *looks) {
    return dlpi_s3_stopped(p) && ++*looks >= DLPI_S3_STOP_LOOKS;
}

static int dlpi_s3_io_ready(dlp_s3_io **io, const dlpi_s3_source *s, dlp_s3_error *err) {
    return *io ? DLP_OK : dlp_s3_io_open(io, s->d.s3, err);
}

/* Note in a request that it could not be sent or was given up. Returns rc, the code of that. */
static int dlpi_s3_broken(dlp_s3_request *r, int rc) {
    if (r->error.code == 0)
        dlpi_s3_set_error(&r->error, rc, 0,
                          rc == DLP_STOPPED ? "given up, the pipe was stopped"
                                            : "the client's I/O is broken");
    r->code = rc;
    return rc;
}

/* Send one request and wait for its end. *io has no other request; if it is NULL, it is opened. p:
   the pipe whose stop ends the wait, or NULL. Returns r->code, DLP_STOPPED if it was given up. */
static int dlpi_s3_src_wait(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_pipe *p,
                            dlp_s3_request *r) {
    dlp_s3_request *done;
    int n, rc = dlpi_s3_io_ready(io, s, &r->error), looks = 0;
    if (rc == DLP_OK) rc = dlp_s3_submit(*io, r);
    if (rc != DLP_OK) return dlpi_s3_broken(r, rc);
    do n = dlp_s3_reap(*io, &done, 1, DLPI_S3_LOOK_MS);
    while (n == 0 && !dlpi_s3_given_up(p, &looks));
    if (n == 1) return r->code;
    dlpi_s3_src_drop(io);
    return dlpi_s3_broken(r, n == 0 ? DLP_STOPPED : n);
}

/* ---- workers ---- */

/* Return the bytes of a record's decode buffer, a multiple of 64; 0 if it has none. */
static uint64_t dlpi_s3_stride(const dlpi_s3_source *s) {
    return s->capacity == 0 || s->d.direct ? 0 : dlpi_round_up(s->capacity, 64);
}

/* Return how many items a joint request may have; 1 if requests are not joined. */
static int dlpi_s3_mates(const dlpi_s3_source *s) {
    int most = s->d.in_flight / 2 < DLPI_S3_MATES_MOST ? s->d.in_flight / 2 : DLPI_S3_MATES_MOST;
    return s->d.gap_bytes < 0 || most < 1 ? 1 : most;
}

/* Return how many pieces all records of a worker need. */
static uint64_t dlpi_s3_pieces(const dlpi_s3_source *s) {
    return s->d.fields != NULL ? 2u * (uint64_t)dlpi_s3_mates(s) * (uint64_t)s->d.in_flight : 0;
}

/* Free a worker, which may be NULL or only partly made, and close its I/Os. */
static void dlpi_s3_worker_free(dlpi_s3_worker *w) {
    if (w == NULL) return;
    for (int i = 0; w->get && i < w->source->d.in_flight; i++) dlp_s3_io_close(w->get[i].io);
    dlp_s3_io_close(w->io);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->room);
    DLPI_ADD_SEQ(&w->source->users, UINT32_MAX); /* SU1 -> SU1 */
    free(w->memory);
    free(w->pieces);
    free(w->get);
    free(w);
}

/* Make a worker, whose records are all free. Returns NULL if there is no memory. */
static dlpi_s3_worker *dlpi_s3_worker_new(dlpi_s3_source *s) {
    size_t n = (size_t)s->d.in_flight, stride = (size_t)dlpi_s3_stride(s);
    size_t buffers = (size_t)dlpi_times(n, stride); /* a manifest may say any length */
    size_t pieces = (size_t)dlpi_s3_pieces(s);
    dlpi_s3_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->source = s;
    w->mates_most = dlpi_s3_mates(s);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, NULL);
    DLPI_ADD_SEQ(&s->users, 1u); /* SU1 -> SU1 */
    w->get = calloc(n, sizeof *w->get);
    if (pieces) w->pieces = calloc(pieces, sizeof *w->pieces);
    if (w->get == NULL || (pieces && w->pieces == NULL) ||
        (stride && posix_memalign(&w->memory, 64, buffers) != 0)) {
        dlpi_s3_worker_free(w);
        return NULL;
    }
    for (size_t i = n; i-- > 0;) {
        dlpi_s3_get *q = &w->get[i];
        if (stride) q->buffer = (uint8_t *)w->memory + i * stride;
        if (pieces) q->piece = w->pieces + i * (pieces / n);
        dlpi_s3_src_give(w, q);
    }
    return w;
}

/* Begin a worker: dlp_workers_desc.worker_init. Returns 0 or an error code, *state untouched. */
static int dlpi_s3_worker_init(void *user, int worker, void **state) {
    dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_new(s);
    int rc = w ? 0 : ENOMEM;
    if (rc == 0 && s->d.fields != NULL) rc = dlp_s3_io_open(&w->io, s->d.s3, NULL);
    if (rc == 0 && s->d.worker_init) rc = s->d.worker_init(s->d.user, worker, &w->state);
    if (rc == 0)
        *state = w;
    else
        dlpi_s3_worker_free(w);
    return rc;
}

static void dlpi_s3_worker_exit(void *user, int worker, void *state) {
    dlpi_s3_source *s = user;
    dlpi_s3_worker *w = state;
    if (s->d.worker_exit) s->d.worker_exit(s->d.user, worker, w->state);
    dlpi_s3_worker_free(w);
}

/* True if state was made by dlpi_s3_worker_init, as one of the worker's seats or its stage tells.
   If no pipe calls, any state but NULL is believed. */
static bool dlpi_s3_is_worker(const dlp_call *call, const void *state) {
    const dlpi_worker *dw = call != NULL ? call->w : NULL; /* NULL: no pipe calls */
    if (state == NULL || dw == NULL || dw->seat == NULL)
        return state != NULL && (dw == NULL || dw->st->w.worker_init == dlpi_s3_worker_init);
    for (uint32_t k = 0; k < dlpi_n_seats(dw); k++) {
        const dlpi_seat *seat = dlpi_seats(dw) + k;
        if (seat->state == state && seat->calls != NULL)
            return seat->calls->worker_init == dlpi_s3_worker_init;
    }
    return false;
}

/* Return the worker state of an item, or NULL if it is none of this source. */
static dlpi_s3_worker *dlpi_s3_worker_of(const dlpi_s3_source *s, const dlp_item *item) {
    dlpi_s3_worker *w = item->worker_state;
    return dlpi_s3_is_worker(item->call, w) && w->source == s ? w : NULL;
}

static int dlpi_s3_no_worker(const dlp_item *item) {
    return dlp_fail(item->call, 0, "leave worker_init and worker_user to the source of objects");
}

/* Fetch one item and wait for it: dlp_dataset.fetch. Returns 0 or an error code. */
static int dlpi_s3_src_fetch(void *user, dlp_item *item) {
    const dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_of(s, item);
    dlpi_s3_get *q;
    int rc;
    if (w == NULL) return dlpi_s3_no_worker(item);
    q = dlpi_s3_lend(w, true);
    if (dlpi_s3_src_begin(s, q, item)) {
        rc = dlpi_s3_src_wait(s, &q->io, dlpi_s3_pipe_of(item->call), &q->request);
        dlpi_s3_src_look(s, q);
        if (rc == DLP_STOPPED) q->what = DLPI_S3_SRC_STOPPED;
    }
    rc = dlpi_s3_src_settle(w, q);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* ---- many at once: dlp_async ---- */

/* True if one request may read range a and then b, of the same object: the gap is short enough. */
static bool dlpi_s3_joins(const dlpi_s3_source *s, const dlpi_s3_get *a, const dlpi_s3_get *b) {
    uint64_t end = a->at.offset + a->at.length;
    return a->at.key == b->at.key && b->at.offset >= end &&
           b->at.offset - end <= (uint64_t)s->d.gap_bytes;
}

/* True if an item may share a request: a range of known length, not to be requested by itself. */
static bool dlpi_s3_joinable(const dlpi_s3_source *s, const dlpi_s3_get *q) {
    return !q->alone && q->at.length > 0 && q->at.offset != DLP_S3_WHOLE && s->d.gap_bytes >= 0;
}

static uint64_t dlpi_s3_src_span(const dlpi_s3_get *a, const dlpi_s3_get *b) {
    return b->at.offset + b->at.length - a->at.offset;
}

/* Take the nearest held neighbour of the ranges first to last off its list, if one request can read
   them together. Returns it, or NULL. *is_before is set to true if it lies before first. */
static dlpi_s3_get *dlpi_s3_neighbour(dlpi_s3_worker *w, const dlpi_s3_get *first,
                                      const dlpi_s3_get *last, bool *is_before) {
    const dlpi_s3_source *s = w->source;
    dlpi_s3_get *best = NULL, *best_before = NULL, *before = NULL;
    uint64_t least = UINT64_MAX;
    for (dlpi_s3_get *q = w->held.first; q != NULL; before = q, q = q->next) {
        bool behind = dlpi_s3_joins(s, last, q), front = !behind && dlpi_s3_joins(s, q, first);
        uint64_t span;
        if (!dlpi_s3_joinable(s, q) || (!behind && !front)) continue;
        span = behind ? dlpi_s3_src_span(first, q) : dlpi_s3_src_span(q, last);
        if (span >= least || span > s->d.joint_bytes) continue;
        least = span;
        best = q;
        best_before = before;
        *is_before = front;
    }
    if (best) dlpi_s3_unlink(&w->held, best_before, best);
    return best;
}

/* Take the oldest held item and its neighbours off the list. Returns the record of the lowest
   range, whose mates follow in order, or NULL if nothing is held. */
static dlpi_s3_get *dlpi_s3_src_gather(dlpi_s3_worker *w) {
    dlpi_s3_get *first = dlpi_s3_src_take(&w->held), *last = first, *q;
    bool before = false;
    if (first == NULL || !dlpi_s3_joinable(w->source, first)) return first;
    for (int n = 1; n < w->mates_most; n++) {
        q = dlpi_s3_neighbour(w, first, last, &before);
        if (q == NULL) break;
        if (before) {
            q->mate = first;
            first = q;
        } else {
            last->mate = q;
            last = q;
        }
    }
    return first;
}

/* Fill in the request of first so that it reads the ranges of first and its mates. */
static void dlpi_s3_src_join(const dlpi_s3_source *s, dlpi_s3_get *first) {
    dlp_s3_request *r = &first->request;
    uint64_t at = first->at.offset;
    if (first->mate == NULL) {
        dlpi_s3_src_ask(s, r, &first->at, first->to, s->capacity);
        return;
    }
    dlpi_s3_src_ask(s, r, &first->at, NULL, 0);
    for (const dlpi_s3_get *q = first; q != NULL; q = q->mate) {
        if (q->at.offset > at)
            first->piece[r->n_pieces++] = (dlp_s3_piece){NULL, q->at.offset - at};
        first->piece[r->n_pieces++] = (dlp_s3_piece){q->to, q->at.length};
        at = q->at.offset + q->at.length;
    }
    r->length = at - first->at.offset;
    r->pieces = first->piece;
}

/* Undo a gathering: put first and its mates back at the front of the held list, because they waited
   longest. alone: from now on, each gets a request of its own. */
static void dlpi_s3_part(dlpi_s3_worker *w, dlpi_s3_get *first, bool alone) {
    dlpi_s3_src_list apart = {NULL, NULL};
    for (dlpi_s3_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        q->alone = q->alone || alone;
        dlpi_s3_src_put(&apart, q, DLPI_S3_SRC_HELD);
    }
    apart.last->next = w->held.first; /* in front: these waited longest */
    if (w->held.first == NULL) w->held.last = apart.last;
    w->held.first = apart.first;
}

/* Take in the end of the request of first and its mates. All go to w->over; but if a joint request
   failed, they are held again, each for a request of its own. */
static void dlpi_s3_src_came(dlpi_s3_worker *w, dlpi_s3_get *first) {
    bool joint = first->mate != NULL;
    if (joint && first->request.code != DLP_OK) {
        dlpi_s3_part(w, first, true);
        return;
    }
    if (!joint) dlpi_s3_src_look(w->source, first);
    for (dlpi_s3_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        if (joint) q->got = q->at.length;
        dlpi_s3_src_put(&w->over, q, DLPI_S3_SRC_OVER);
    }
}

/* Send requests for held items until the I/O is full. Returns 0, or negative if it is broken. */
static int dlpi_s3_src_flush(dlpi_s3_worker *w) {
    dlpi_s3_get *first;
    int rc;
    while ((first = dlpi_s3_src_gather(w)) != NULL) {
        dlpi_s3_src_join(w->source, first);
        first->request.user = first;
        rc = dlp_s3_submit(w->io, &first->request);
        if (rc == DLP_FULL) {
            dlpi_s3_part(w, first, false);
            return 0;
        }
        if (rc == DLP_ERR_FORKED || rc == DLP_ERR_SYSTEM) return rc;
        if (rc != DLP_OK) {
            dlpi_s3_broken(&first->request, rc);
            dlpi_s3_src_came(w, first);
            continue;
        }
        w->out++;
        for (dlpi_s3_get *q = first; q != NULL; q = q->mate) q->where = DLPI_S3_SRC_OUT;
    }
    return 0;
}

/* Close the I/O of a worker whose pipe was stopped. All of its items fail as stopped. */
static void dlpi_s3_src_give_up(dlpi_s3_worker *w) {
    dlpi_s3_src_drop(&w->io);
    w->out = 0;
    w->held.first = w->over.first = NULL;
    for (int i = 0; i < w->source->d.in_flight; i++) {
        dlpi_s3_get *q = &w->get[i];
        if (q->where == DLPI_S3_SRC_FREE) continue;
        q->mate = NULL;
        q->what = DLPI_S3_SRC_STOPPED;
        dlpi_s3_src_put(&w->over, q, DLPI_S3_SRC_OVER);
    }
}

/* Send held requests, and wait for ended ones, for at most timeout_ms; not at all if some item is
   over. Returns 0, or a negative code if the I/O is broken. */
static int dlpi_s3_src_move(dlpi_s3_worker *w, int timeout_ms) {
    dlp_s3_request *done[64];
    int n, rc = dlpi_s3_src_flush(w);
    if (rc != 0 || w->out == 0) return rc;
    if (w->over.first != NULL) timeout_ms = DLP_NOWAIT;
    n = dlp_s3_reap(w->io, done, 64, timeout_ms);
    if (n < 0) return n;
    for (int i = 0; i < n; i++) {
        w->out--;
        dlpi_s3_src_came(w, done[i]->user);
    }
    return n > 0 ? dlpi_s3_src_flush(w) : 0; /* there is room, and what is asked for again */
}

/* Begin to fetch an item: dlp_async.submit. Returns 0, DLP_FULL, or the code of a failure. */
static int dlpi_s3_submit_item(void *user, void *worker_state DLPI_UNREAD, dlp_item *item) {
    const dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_of(s, item);
    dlpi_s3_get *q;
    int rc;
    if (w == NULL || w->io == NULL) return dlpi_s3_no_worker(item);
    q = dlpi_s3_lend(w, false);
    if (q == NULL) return DLP_FULL;
    w->pipe = dlpi_s3_pipe_of(item->call);
    if (dlpi_s3_src_begin(s, q, item)) {
        dlpi_s3_src_put(&w->held, q, DLPI_S3_SRC_HELD);
        return 0;
    }
    rc = dlpi_s3_complain(s, q);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Settle ended items and give them back. Returns how many. With a decode it is one at a time: so
   its record serves the next request, and sockets are looked at, before the next decode. */
static int dlpi_s3_hand_back(dlpi_s3_worker *w, dlp_item **done, int *code, int max) {
    int n = 0, most = w->source->d.decode ? 1 : max;
    dlpi_s3_get *q;
    while (n < most && n < max && (q = dlpi_s3_src_take(&w->over)) != NULL) {
        done[n] = q->item;
        code[n++] = dlpi_s3_src_settle(w, q);
        dlpi_s3_src_give(w, q);
    }
    return n;
}

/* Give back ended items: dlp_async.reap. After a stop, the first call returns 0: its items could
   still be taken for failed ones. Later calls give all requests up: only the records are wanted. */
static int dlpi_s3_reap_items(void *user DLPI_UNREAD, void *worker_state, dlp_item **done,
                              int *code, int max, int timeout_ms) {
    dlpi_s3_worker *w = worker_state;
    bool stopped = dlpi_s3_stopped(w->pipe);
    int rc;
    if (timeout_ms == 0 || timeout_ms > DLPI_S3_LOOK_MS) timeout_ms = DLPI_S3_LOOK_MS;
    if (stopped && w->stop_looks++ == 0) return 0;
    if (stopped && w->io) dlpi_s3_src_give_up(w);
    if (!stopped && (rc = dlpi_s3_src_move(w, timeout_ms)) != 0) {
        dlpi_s3_src_drop(&w->io);
        return rc;
    }
    return dlpi_s3_hand_back(w, done, code, max);
}
