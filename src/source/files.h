/* needs: files */
#pragma once
/* tests: system/source/files */
#include "api/files.h"
#include "work/collate.h"
#include "build/check.h"
#include "source/identity.h"
#include "source/new_file.h"
#include "source/uring.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-files      ITEMS OUT OF FILES, MANY AT ONCE
   A worker has in_flight records (dlpi_file), one for each file that it reads at once. A record is
   in one of three states. It is free. Or it is at work: the file is opened, measured, and read
   until all bytes are there. Or it is over; records that are over stand in the order in which they
   ended. The driver, which is the worker's own thread, settles such a record: it ends the item, and
   the record is free again. A record at work is with the kernel or with one of fetch_threads. With
   the kernel each record has at most one entry in the ring, so neither queue of the ring can
   overflow. An error is kept in the record as a number. The driver puts it into words when it
   settles the record: only the driver may call dlp_fail for an item.

   The kernel writes into rows only while the process lives: buffered reads copy in the context of
   one of its threads. worker_exit waits until no request is left, so that no row is written later.

     label  who stores                        who loads
     IO1    driver: tail of submissions       the kernel, in io_uring_enter
     IO2    the kernel: tail of completions   driver; the entries before it are written
     IO3    driver: head of completions       the kernel: room again
     IO4    fetch_threads: a file is over     driver, before it sleeps: one more in the list */

enum { DLPI_FILES_MOST = 256 }; /* files that a worker reads at once */

#ifndef DLPI_FILE_READ_MOST /* bytes that one read is asked for; tests want less */
#define DLPI_FILE_READ_MOST (UINT32_C(1) << 30)
#endif

enum {
    DLPI_FILE_FINE,
    DLPI_FILE_NO_OPEN,
    DLPI_FILE_NO_STAT,
    DLPI_FILE_IRREGULAR,
    DLPI_FILE_OUTSIDE, /* the stretch is not within the file */
    DLPI_FILE_TOO_BIG,
    DLPI_FILE_TOO_SMALL,
    DLPI_FILE_RAGGED, /* not a whole number of rows */
    DLPI_FILE_NO_READ,
    DLPI_FILE_SHRANK
};

typedef struct dlpi_file {
    struct dlpi_file *next; /* the next record of the list that it is in */
    dlp_item *item;
    dlp_extent at;
    uint8_t *buffer;          /* memory for bytes that decode gets; NULL: bytes go into the row */
    uint8_t *to;              /* where the bytes go: into the buffer or the row */
    uint64_t size, want, got; /* bytes of the file, once known; bytes to read; bytes read so far */
    int fd;                   /* -1: the file is not open */
    int what, errnum;         /* result, DLPI_FILE_*; errno of the failed call, or 0 */
} dlpi_file;

typedef struct dlpi_files_list {
    dlpi_file *first, *last;
} dlpi_files_list;

typedef struct dlpi_files {
    dlp_source source; /* first */
    dlp_files_desc d;
    dlp_dataset dataset; /* of the source */
    uint32_t users;      /* U2: workers of this process that use the source */
    uint64_t capacity;   /* bytes of an item, at most */
    uint64_t unit;       /* bytes of one row of field 0; if it is not ragged, of the whole field */
    bool ragged;         /* field 0 is ragged */
    bool ring;           /* this system has io_uring */
    /* opens the dead handle `used` of locate again; NULL: locate is the user's, and gives
       descriptors of the C library */
    int (*again)(void *user, const dlp_item *item, int used, int errnum);
    void *worker_user; /* argument of worker_init and worker_exit */
    char backend[96];
    dlp_identity identity;
} dlpi_files;

typedef struct dlpi_files_worker {
    dlpi_files *files;
    void *state;     /* the state that the user's worker_init made */
    dlpi_file *file; /* [in_flight] */
    void *memory;    /* one block for all records and buffers */
    dlpi_uring uring;
    dlpi_mutex lock; /* guards the lists and the fields behind them, but in the driver of a ring */
    dlpi_cond work;  /* signalled if `todo` has a record, or the threads must end */
    dlpi_cond room;  /* signalled if a record became free */
    dlpi_files_list free, todo, over;
    int at_work;        /* records in `todo`, in the ring or with a fetch thread */
    int stop, waits;    /* 1: the threads must end; 1: the driver sleeps */
    uint32_t over_word; /* IO4: counts records that are over */
    int n_fetch_threads;
    dlpi_thread *fetch_threads; /* [in_flight] */
} dlpi_files_worker;

/* Append q to a list. q must be in no list. */
static void dlpi_files_put(dlpi_files_list *l, dlpi_file *q) {
    q->next = NULL;
    if (l->first == NULL)
        l->first = q;
    else
        l->last->next = q;
    l->last = q;
}

static dlpi_file *dlpi_files_take(dlpi_files_list *l) {
    dlpi_file *q = l->first;
    if (q) l->first = q->next;
    return q;
}

/* ---- one file, step by step ---- */

static bool dlpi_file_fails(dlpi_file *q, int what, int errnum) {
    q->what = what;
    q->errnum = errnum;
    return false;
}

static void dlpi_file_close(dlpi_file *q) {
    if (q->at.fd < 0) dlpi_handle_close(q->fd);
    q->fd = -1;
}

/* True if an item of q->want bytes fits into its field or buffer. If not, q notes why. */
static bool dlpi_file_fits(const dlpi_files *f, dlpi_file *q) {
    if (q->want > f->capacity) return dlpi_file_fails(q, DLPI_FILE_TOO_BIG, 0);
    if (!f->d.direct) return true;
    if (!f->ragged && q->want < f->capacity) return dlpi_file_fails(q, DLPI_FILE_TOO_SMALL, 0);
    if (q->want % f->unit != 0) return dlpi_file_fails(q, DLPI_FILE_RAGGED, 0);
    return true;
}

/* Find how many bytes of an open file the item has. Returns true if there is something to read;
   false if there is nothing, or what is wrong is noted in q. */
static bool dlpi_file_measure(const dlpi_files *f, dlpi_file *q) {
    dlpi_facts st;
    int rc;
    q->want = q->at.length;
    if (q->at.fd < 0 || q->at.length == 0) {
        if ((rc = dlpi_handle_facts(q->fd, &st)) != 0)
            return dlpi_file_fails(q, DLPI_FILE_NO_STAT, rc);
        if (st.kind != DLPI_IS_FILE)
            return dlpi_file_fails(q, DLPI_FILE_IRREGULAR,
                                   st.kind == DLPI_IS_DIRECTORY ? EISDIR : 0);
        q->size = st.bytes;
        if (q->at.offset > q->size || q->at.length > q->size - q->at.offset)
            return dlpi_file_fails(q, DLPI_FILE_OUTSIDE, 0);
        if (q->want == 0) q->want = q->size - q->at.offset;
    }
    return dlpi_file_fits(f, q) && q->want > 0;
}

/* Go on after an open. fd: as open returned it, or -errno. Returns true if there is something to
   read; false if there is nothing, or what is wrong is noted in q. */
static bool dlpi_file_opened(const dlpi_files *f, dlpi_file *q, int fd) {
    if (fd >= 0 && q->at.fd < 0) fd = dlpi_ring_handle(fd);
    if (fd < 0) return dlpi_file_fails(q, DLPI_FILE_NO_OPEN, -fd);
    q->fd = fd;
    return dlpi_file_measure(f, q);
}

static uint32_t dlpi_file_rest(const dlpi_file *q) {
    uint64_t rest = q->want - q->got;
    return rest < DLPI_FILE_READ_MOST ? (uint32_t)rest : DLPI_FILE_READ_MOST;
}

/* Go on after a read. n: as pread returned it, or -errno. Returns true if there is more to read;
   false if all is read, or what is wrong is noted in q. */
static bool dlpi_file_got(dlpi_file *q, int64_t n) {
    if (n < 0) return dlpi_file_fails(q, DLPI_FILE_NO_READ, (int)-n);
    if (n == 0) return dlpi_file_fails(q, DLPI_FILE_SHRANK, 0);
    q->got += (uint64_t)n;
    return q->got < q->want;
}

/* Read the rest of an item in this thread. A failure is noted in q. */
static void dlpi_file_read_all(dlpi_file *q) {
    uint64_t n;
    const int rc =
        dlpi_handle_read(q->fd, q->to + q->got, q->want - q->got, q->at.offset + q->got, &n);
    q->got += n;
    if (rc != 0)
        dlpi_file_fails(q, DLPI_FILE_NO_READ, rc);
    else if (q->got < q->want)
        dlpi_file_fails(q, DLPI_FILE_SHRANK, 0);
}

/* Open the item's file in this thread, unless locate gave an open one. Returns the handle or
   -errno. */
static int dlpi_file_open_now(const dlpi_files *f, const dlpi_file *q) {
    dlpi_handle fd;
    int rc;
    if (q->at.fd >= 0) return f->again != NULL ? q->at.fd : dlpi_handle_from(q->at.fd);
    rc = dlpi_handle_open(&fd, q->at.path, DLPI_READ);
    return rc != 0 ? -rc : fd;
}

/* Open and read the whole item in this thread, and close its file. A failure is noted in q. */
static void dlpi_file_run(const dlpi_files *f, dlpi_file *q) {
    if (dlpi_file_opened(f, q, dlpi_file_open_now(f, q))) dlpi_file_read_all(q);
    dlpi_file_close(q);
}

/* Prepare record q for an item: ask where its bytes are. Returns 0 or a failure's code. */
static int dlpi_file_begin(const dlpi_files *f, dlpi_file *q, dlp_item *item) {
    int rc = 0;
    char *room = q->at.room;
    q->item = item;
    q->to = q->buffer ? q->buffer : item->data[0];
    q->size = q->want = q->got = 0;
    q->what = q->errnum = 0;
    q->fd = -1;
    memset(&q->at, 0, sizeof q->at);
    q->at.fd = -1;
    q->at.path = q->at.room = room;
    room[0] = 0;
    if (f->d.paths)
        q->at.path = f->d.paths[item->index];
    else
        rc = f->d.locate(f->d.user, item, &q->at);
    q->at.room = room;  /* whatever locate made of it */
    if (rc == DLP_FULL) /* which would be taken for a submit that has no room */
        return dlp_fail(item->call, 0, "locate returned %d (DLP_FULL)", rc);
    if (rc == 0 && q->at.path == NULL && q->at.fd < 0)
        return dlp_fail(item->call, EINVAL, "there is no path for this item");
    if (rc == 0 && q->at.offset > INT64_MAX)
        return dlp_fail(item->call, EINVAL, "offset %" PRIu64 " is past any file", q->at.offset);
    return rc;
}

/* Return the file's name for messages; of a long path its end. buf: memory for it. */
static const char *dlpi_file_name(const dlpi_file *q, char *buf, size_t size) {
    size_t n;
    if (q->at.fd >= 0 && (q->at.path == NULL || q->at.path[0] == 0)) {
        snprintf(buf, size, "file descriptor %d", q->at.fd);
        return buf;
    }
    n = strlen(q->at.path);
    if (n < size) return q->at.path;
    snprintf(buf, size, "...%s", q->at.path + n - (size - 4));
    return buf;
}

/* Say in the item's call what was noted in q as wrong. Returns the failure's code. */
static int dlpi_file_complain(const dlpi_files *f, const dlpi_file *q) {
    char buf[152];
    const char *name = dlpi_file_name(q, buf, sizeof buf);
    switch (q->what) {
    case DLPI_FILE_NO_OPEN:
        return dlp_fail(q->item->call, q->errnum, "%s: cannot be opened%s", name,
                        dlpi_path_cure(q->errnum));
    case DLPI_FILE_NO_STAT: return dlp_fail(q->item->call, q->errnum, "%s: fstat failed", name);
    case DLPI_FILE_IRREGULAR:
        return dlp_fail(q->item->call, q->errnum, "%s: %s", name,
                        q->errnum ? "is a directory" : "is no regular file");
    case DLPI_FILE_OUTSIDE:
        return dlp_fail(q->item->call, 0,
                        "%s: has %" PRIu64 " bytes, the item needs %" PRIu64 " from %" PRIu64, name,
                        q->size, q->at.length, q->at.offset);
    case DLPI_FILE_TOO_BIG:
    case DLPI_FILE_TOO_SMALL:
        dlp_fail(q->item->call, 0, "%s: has %" PRIu64 " bytes, %s %" PRIu64 "; %s", name, q->want,
                 f->d.direct && !f->ragged ? "the field takes" : "the most are", f->capacity,
                 f->d.direct ? "change its shape" : "raise max_bytes");
        return DLP_ERR_LENGTH;
    case DLPI_FILE_RAGGED:
        dlp_fail(q->item->call, 0, "%s: %" PRIu64 " bytes are not whole rows of %" PRIu64, name,
                 q->want, f->unit);
        return DLP_ERR_LENGTH;
    case DLPI_FILE_NO_READ:
        return dlp_fail(q->item->call, q->errnum, "%s: cannot be read, at byte %" PRIu64, name,
                        q->at.offset + q->got);
    default:
        return dlp_fail(q->item->call, 0, "%s: ended after %" PRIu64 " of %" PRIu64 " bytes", name,
                        q->got, q->want);
    }
}

/* Read an item again whose handle died. A path is opened again. A descriptor is first replaced by
   its source, unless it is the user's. Returns 0 or a failure's code. */
DLPI_COLD static int dlpi_file_again(const dlpi_files *f, dlpi_file *q) {
    int rc = 0;
    if (q->at.fd >= 0 && f->again == NULL) return 0;
    if (q->at.fd >= 0) rc = f->again(f->d.user, q->item, q->at.fd, q->errnum);
    if (rc == 0) rc = dlpi_file_begin(f, q, q->item);
    if (rc == 0) dlpi_file_run(f, q);
    return rc;
}

/* Make the item of the bytes that were read, by decode if given. Returns 0 or a failure's code. */
static int dlpi_file_settle(const dlpi_files_worker *w, dlpi_file *q) {
    const dlpi_files *f = w->files;
    if (DLPI_UNLIKELY(q->what != DLPI_FILE_FINE) && dlpi_handle_dead(q->errnum)) {
        const int rc = dlpi_file_again(f, q);
        if (rc != 0) return rc;
    }
    if (q->what != DLPI_FILE_FINE) return dlpi_file_complain(f, q);
    if (f->d.direct && f->ragged) q->item->length[0] = q->got / f->unit;
    if (f->d.decode == NULL) return 0;
    return f->d.decode(f->d.user, w->state, q->item, q->to, q->got);
}

/* ---- files by io_uring ---- */

/* Queue an empty request for q, and return it for the caller to fill. The ring must have room for
   it. */
static dlpi_sqe *dlpi_uring_put(dlpi_uring *u, uint8_t opcode, const dlpi_file *q) {
    dlpi_sqe *e = &u->sqe[u->tail++ & u->sq_mask];
    memset(e, 0, sizeof *e);
    e->opcode = opcode;
    e->user_data = (uint64_t)(uintptr_t)q;
    u->queued++;
    return e;
}

/* Take the next completion into *out. Returns false if there is none. */
static bool dlpi_uring_take(dlpi_uring *u, dlpi_cqe *out) {
    uint32_t head = DLPI_LOAD_RLX(u->cq_head);           /* ours */
    if (head == DLPI_LOAD_ACQ(u->cq_tail)) return false; /* IO2 <- IO2 */
    *out = u->cqe[head & u->cq_mask];
    DLPI_STORE_REL(u->cq_head, head + 1); /* IO3 -> IO3 */
    return true;
}

/* Close the file of q, and put q into the list of those that are over. With fetch threads the lock
   must be held. */
static void dlpi_files_over(dlpi_files_worker *w, dlpi_file *q) {
    dlpi_file_close(q);
    w->at_work--;
    dlpi_files_put(&w->over, q);
}

/* Queue a read of the rest of an item, by io_uring. */
static void dlpi_files_ring_read(dlpi_files_worker *w, const dlpi_file *q) {
    dlpi_sqe *e = dlpi_uring_put(&w->uring, DLPI_URING_READ, q);
    e->fd = q->fd;
    e->offset = q->at.offset + q->got;
    e->address = (uint64_t)(uintptr_t)(q->to + q->got);
    e->bytes = dlpi_file_rest(q);
}

/* Begin to open or read the file of q by the ring. */
static void dlpi_files_ring_begin(dlpi_files_worker *w, dlpi_file *q) {
    dlpi_sqe *e;
    w->at_work++;
    if (q->at.fd >= 0) {
        if (dlpi_file_opened(w->files, q, q->at.fd))
            dlpi_files_ring_read(w, q);
        else
            dlpi_files_over(w, q);
        return;
    }
    e = dlpi_uring_put(&w->uring, DLPI_URING_OPENAT, q);
    e->fd = DLPI_RING_HERE;
    e->address = (uint64_t)(uintptr_t)q->at.path;
    e->op_flags = DLPI_RING_OPEN;
}

/* Go on with q after its request came back with `result`. What the kernel would not do by the ring
   is done here, which is seldom. */
static void dlpi_files_ring_step(dlpi_files_worker *w, dlpi_file *q, int result) {
    bool refused = result == -EAGAIN || result == -EINTR || result == -EOPNOTSUPP;
    bool more;
    if (q->fd < 0)
        more = dlpi_file_opened(w->files, q, refused ? dlpi_file_open_now(w->files, q) : result);
    else if (refused)
        more = (dlpi_file_read_all(q), false);
    else
        more = dlpi_file_got(q, result);
    if (more)
        dlpi_files_ring_read(w, q);
    else
        dlpi_files_over(w, q);
}

/* Give requests to the kernel, and go on with those that came back. Returns 0 or errno. */
static int dlpi_files_ring_move(dlpi_files_worker *w) {
    dlpi_cqe e;
    int rc = dlpi_uring_enter(&w->uring);
    while (rc == 0 && dlpi_uring_take(&w->uring, &e))
        dlpi_files_ring_step(w, (dlpi_file *)(uintptr_t)e.user_data, e.result);
    if (rc == 0 && w->uring.queued > 0) rc = dlpi_uring_enter(&w->uring); /* their next steps */
    return rc;
}

/* Wait until the kernel has no request of ours, since it may write where requests point. */
static void dlpi_files_ring_drain(dlpi_files_worker *w) {
    dlpi_cqe e;
    while (w->at_work > (int)w->uring.queued) {
        while (dlpi_uring_take(&w->uring, &e)) {
            dlpi_file *q = (dlpi_file *)(uintptr_t)e.user_data;
            if (q->fd < 0) q->fd = e.result;
            dlpi_files_over(w, q);
        }
        if (w->at_work > (int)w->uring.queued) dlpi_uring_wait(&w->uring, 100);
    }
}

/* ---- files by threads ---- */

/* Run items of worker arg in a thread of its own, until the worker stops. */
static void *dlpi_files_fetch_threads_thread(void *arg) {
    dlpi_files_worker *w = arg;
    dlpi_file *q;
    dlpi_mutex_lock(&w->lock);
    for (;;) {
        while (w->todo.first == NULL && !w->stop) dlpi_cond_wait(&w->work, &w->lock);
        if (w->stop) break;
        q = dlpi_files_take(&w->todo);
        dlpi_mutex_unlock(&w->lock);
        dlpi_file_run(w->files, q);
        dlpi_mutex_lock(&w->lock);
        dlpi_files_over(w, q);
        dlpi_event_add(&w->over_word); /* IO4 -> IO4 */
        if (w->waits) dlpi_futex_wake(&w->over_word, 1, UINT32_MAX, 0);
    }
    dlpi_mutex_unlock(&w->lock);
    return NULL;
}

/* Hand an item to the worker's fetch threads. */
static void dlpi_files_fetch_threads_begin(dlpi_files_worker *w, dlpi_file *q) {
    dlpi_mutex_lock(&w->lock);
    w->at_work++;
    dlpi_files_put(&w->todo, q);
    dlpi_cond_signal(&w->work);
    dlpi_mutex_unlock(&w->lock);
}

/* Sleep until a file is over, or for ns. */
static void dlpi_files_fetch_threads_wait(dlpi_files_worker *w, uint64_t ns) {
    uint32_t word = dlpi_event_count(&w->over_word); /* IO4 <- IO4: before the list */
    dlpi_mutex_lock(&w->lock);
    w->waits = w->over.first == NULL;
    dlpi_mutex_unlock(&w->lock);
    if (w->waits) dlpi_futex_wait(&w->over_word, word, UINT32_MAX, ns, 0);
    dlpi_mutex_lock(&w->lock);
    w->waits = 0;
    dlpi_mutex_unlock(&w->lock);
}

/* Stop and join the worker's fetch threads. Each ends after its present item. */
static void dlpi_files_fetch_threads_end(dlpi_files_worker *w) {
    dlpi_mutex_lock(&w->lock);
    w->stop = 1;
    dlpi_cond_broadcast(&w->work);
    dlpi_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_fetch_threads; i++) dlpi_thread_join(&w->fetch_threads[i]);
    w->n_fetch_threads = 0;
}

/* Start the fetch threads. Returns 0 if there is at least one, else errno. */
static int dlpi_files_fetch_threads_start(dlpi_files_worker *w) {
    int rc = 0;
    while (w->n_fetch_threads < w->files->d.in_flight && rc == 0) {
        rc = dlpi_thread_start(&w->fetch_threads[w->n_fetch_threads],
                               dlpi_files_fetch_threads_thread, w, 0);
        if (rc == 0) w->n_fetch_threads++;
    }
    return w->n_fetch_threads > 0 ? 0 : rc;
}

/* ---- the calls that a pipe makes: submit, reap, workers ---- */

/* True if no other thread uses the lists of a worker while submit or reap runs. They run in the
   driver alone. With a ring there are no fetch threads, and the pipe then calls no fetch. */
static inline bool dlpi_files_alone(const dlpi_files_worker *w) { return w->uring.fd >= 0; }

static inline void dlpi_files_lock(dlpi_files_worker *w, bool alone) {
    if (!alone) dlpi_mutex_lock(&w->lock);
}

static inline void dlpi_files_unlock(dlpi_files_worker *w, bool alone) {
    if (!alone) dlpi_mutex_unlock(&w->lock);
}

/* Take a free record. waits: wait for one. Returns NULL if none is free and `waits` is false. */
static dlpi_file *dlpi_files_get(dlpi_files_worker *w, bool alone, bool waits) {
    dlpi_file *q;
    dlpi_files_lock(w, alone);
    while (waits && w->free.first == NULL) dlpi_cond_wait(&w->room, &w->lock);
    q = dlpi_files_take(&w->free);
    dlpi_files_unlock(w, alone);
    return q;
}

/* Make a record free. */
static void dlpi_files_give(dlpi_files_worker *w, dlpi_file *q, bool alone) {
    dlpi_files_lock(w, alone);
    dlpi_files_put(&w->free, q);
    if (!alone) dlpi_cond_signal(&w->room);
    dlpi_files_unlock(w, alone);
}

static int dlpi_files_no_worker(const dlp_item *item) {
    return dlp_fail(item->call, 0, "leave worker_init and worker_user to the source of files");
}

/* A dlp_dataset.fetch: read the whole file of the item now. Returns 0 or a failure's code. */
static int dlpi_files_fetch(void *user, dlp_item *item) {
    const dlpi_files *f = user;
    dlpi_files_worker *w = item->worker_state;
    dlpi_file *q;
    int rc;
    if (w == NULL || w->files != f) return dlpi_files_no_worker(item);
    q = dlpi_files_get(w, false, true);
    rc = dlpi_file_begin(f, q, item);
    if (rc == 0) {
        dlpi_file_run(f, q);
        rc = dlpi_file_settle(w, q);
    }
    dlpi_files_give(w, q, false);
    return rc;
}

/* A dlp_async.submit: begin to read the item's file. Returns 0, DLP_FULL or a failure's code. */
static int dlpi_files_submit(void *user, void *worker_state, dlp_item *item) {
    const dlpi_files *f = user;
    dlpi_files_worker *w = worker_state;
    dlpi_file *q;
    int rc;
    if (w == NULL || w->files != f) return dlpi_files_no_worker(item);
    q = dlpi_files_get(w, dlpi_files_alone(w), false);
    if (q == NULL) return DLP_FULL;
    rc = dlpi_file_begin(f, q, item);
    if (rc != 0)
        dlpi_files_give(w, q, dlpi_files_alone(w));
    else if (w->uring.fd >= 0)
        dlpi_files_ring_begin(w, q);
    else
        dlpi_files_fetch_threads_begin(w, q);
    return rc;
}

/* Make the items of those files that are over, at most `max`. The last may have failed: a worker
   keeps the words of one failure. done, code: get the items and their codes. Returns how many. */
static int dlpi_files_settle(dlpi_files_worker *w, dlp_item **done, int *code, int max) {
    const bool alone = dlpi_files_alone(w);
    int n = 0, rc = 0;
    while (n < max && rc == 0) {
        dlpi_file *q;
        dlpi_files_lock(w, alone);
        q = dlpi_files_take(&w->over);
        dlpi_files_unlock(w, alone);
        if (q == NULL) break;
        rc = dlpi_file_settle(w, q);
        done[n] = q->item;
        code[n++] = rc;
        dlpi_files_give(w, q, alone);
    }
    return n;
}

/* True if no item of the worker is being read, and none waits to be given back. */
static bool dlpi_files_idle(dlpi_files_worker *w) {
    const bool alone = dlpi_files_alone(w);
    bool idle;
    dlpi_files_lock(w, alone);
    idle = w->at_work == 0 && w->over.first == NULL;
    dlpi_files_unlock(w, alone);
    return idle;
}

/* Sleep until a file may have moved on, or for ns. */
static void dlpi_files_wait(dlpi_files_worker *w, uint64_t ns) {
    if (w->uring.fd >= 0) {
        if (w->at_work > (int)w->uring.queued)
            dlpi_uring_wait(&w->uring, (int)(ns / 1000000u) + 1);
        else
            dlpi_sleep(1000000); /* the kernel is short of memory for requests */
        return;
    }
    dlpi_files_fetch_threads_wait(w, ns);
}

/* A dlp_async.reap: give back at most `max` items that are read. Returns how many, 0 after
   timeout_ms, or DLP_ERR_SYSTEM. */
static int dlpi_files_reap(void *user DLPI_UNREAD, void *worker_state, dlp_item **done, int *code,
                           int max, int timeout_ms) {
    dlpi_files_worker *w = worker_state;
    uint64_t until = 0, now;
    int n;
    for (;;) {
        if (w->uring.fd >= 0 && dlpi_files_ring_move(w) != 0) return DLP_ERR_SYSTEM;
        n = dlpi_files_settle(w, done, code, max);
        if (n > 0 || timeout_ms == DLP_NOWAIT || dlpi_files_idle(w)) return n;
        now = dlpi_now_ns();
        if (until == 0)
            until = now + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000u : DLPI_SLEEP_NS);
        if (now >= until) return 0;
        dlpi_files_wait(w, until - now < DLPI_SLEEP_NS ? until - now : DLPI_SLEEP_NS);
    }
}

static uint64_t dlpi_files_stride(const dlpi_files *f) { /* of a record's room and buffer */
    return dlpi_sum(DLP_FILES_ROOM, f->d.direct ? 0 : dlpi_round_up(f->d.max_bytes, 64));
}

/* Free a worker's record, which may be made in part only, or NULL. Its threads must have ended. */
static void dlpi_files_worker_free(dlpi_files_worker *w) {
    if (w == NULL) return;
    if (w->files) {
        dlpi_uring_close(&w->uring);
        DLPI_ADD_SEQ(&w->files->users, UINT32_MAX); /* U2 -> U2 */
    }
    dlpi_aligned_free(w->memory);
    free(w->file);
    free(w->fetch_threads);
    free(w);
}

/* Allocate a worker's record with a free request for each item in flight. Returns NULL if there is
   no memory. */
static dlpi_files_worker *dlpi_files_worker_new(dlpi_files *f) {
    size_t n = (size_t)f->d.in_flight, stride = (size_t)dlpi_files_stride(f);
    dlpi_files_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->file = calloc(n, sizeof *w->file);
    w->fetch_threads = calloc(n, sizeof *w->fetch_threads);
    if (w->file == NULL || w->fetch_threads == NULL ||
        (w->memory = dlpi_aligned(64, dlpi_times(n, stride))) == NULL) {
        dlpi_files_worker_free(w);
        return NULL;
    }
    w->files = f;
    DLPI_ADD_SEQ(&f->users, 1u); /* U2 -> U2 */
    w->uring.fd = -1;
    w->lock = (dlpi_mutex)DLPI_MUTEX_INIT;
    w->work = (dlpi_cond)DLPI_COND_INIT;
    w->room = (dlpi_cond)DLPI_COND_INIT;
    for (size_t i = 0; i < n; i++) {
        dlpi_file *q = &w->file[i];
        q->at.room = (char *)w->memory + i * stride;
        q->buffer = f->d.direct ? NULL : (uint8_t *)w->memory + i * stride + DLP_FILES_ROOM;
        q->fd = -1;
        dlpi_files_put(&w->free, q);
    }
    return w;
}

/* Make sure that no request is left with the kernel or a thread, and no file is open. */
DLPI_COLD static void dlpi_files_worker_stop(dlpi_files_worker *w) {
    dlpi_files_fetch_threads_end(w);
    if (w->uring.fd >= 0) dlpi_files_ring_drain(w);
    for (int i = 0; i < w->files->d.in_flight; i++) dlpi_file_close(&w->file[i]);
}

/* Begin a worker: open its io_uring, or start its threads, then call the user's worker_init.
   Returns 0 or the code of the failure; nothing is left then. */
DLPI_COLD static int dlpi_files_worker_init(void *user, int worker, void **state) {
    dlpi_files *f = user;
    dlpi_files_worker *w = dlpi_files_worker_new(f);
    int rc = w ? 0 : ENOMEM;
    if (rc == 0)
        if (!f->ring || dlpi_uring_open(&w->uring, (uint32_t)f->d.in_flight) != 0)
            rc = dlpi_files_fetch_threads_start(w);
    if (rc == 0 && f->d.worker_init) rc = f->d.worker_init(f->worker_user, worker, &w->state);
    if (rc == 0) {
        *state = w;
        return 0;
    }
    if (w) dlpi_files_worker_stop(w);
    dlpi_files_worker_free(w);
    return rc;
}

/* End a worker: wait for all that is under way, call the user's worker_exit, and free the worker.
   */
static void dlpi_files_worker_exit(void *user, int worker, void *state) {
    dlpi_files *f = user;
    dlpi_files_worker *w = state;
    dlpi_files_worker_stop(w);
    if (f->d.worker_exit) f->d.worker_exit(f->worker_user, worker, w->state);
    dlpi_files_worker_free(w);
}

/* ---- the source ---- */

/* Return what is wrong with a desc, and the name of the field in *field; NULL: nothing is. */
static const char *dlpi_files_wrong(const dlp_files_desc *d, const char **field) {
    bool direct = d->direct || !d->decode;
    if (d->n_items == 0 || d->n_items > DLPI_MAX_ITEMS)
        return *field = "n_items", "must be 1 to 2^48";
    if (d->fields == NULL || d->n_fields == 0)
        return *field = "fields", "give one at least, and n_fields";
    if ((d->paths == NULL) == (d->locate == NULL))
        return *field = "paths", "give either paths or locate, which say where items are";
    if (d->moved != 0 && d->moved != 1) return *field = "moved", "must be 0 or 1";
    if (d->in_flight < 0 || d->in_flight > DLPI_FILES_MOST) return *field = "in_flight", "0 to 256";
    if (!direct && (d->max_bytes == 0 || d->max_bytes > UINT64_C(1) << 40))
        return *field = "max_bytes",
               "must be 1 to 2^40 with a decode: the most bytes of an item's file";
    if (direct && d->max_bytes != 0)
        return *field = "max_bytes", "must be 0 without a decode, or with direct: field 0 says it";
    if (direct && dlpi_field_item_bytes(d->fields) == 0)
        return *field = "fields[0]", "must have a dtype of 8 to 64 bits, and a shape of 1 and more";
    return NULL;
}

/* Find out if this system has io_uring, and set the text that names the backend. */
static void dlpi_files_choose(dlpi_files *f) {
    dlpi_uring u;
    int rc;
    if (f->d.use_threads) {
        dlpi_copy_text(f->backend, sizeof f->backend, "threads: use_threads is set");
        return;
    }
    rc = dlpi_uring_open(&u, 1);
    dlpi_uring_close(&u);
    f->ring = rc == 0;
    if (f->ring)
        dlpi_copy_text(f->backend, sizeof f->backend, "io_uring");
    else
        snprintf(f->backend, sizeof f->backend, "threads: io_uring is %s here (errno %d)",
                 rc == EPERM || rc == EACCES ? "forbidden" : "missing", rc);
}

static int dlpi_files_close(dlp_source *source) {
    dlpi_files *f = (dlpi_files *)(void *)source;
    if (DLPI_LOAD_SEQ(&f->users) != 0) return DLP_ERR_BUSY; /* U2 <- U2 */
    free(f);
    return DLP_OK;
}

static const dlpi_files *dlpi_files_of(const dlp_source *source) {
    return source != NULL && source->close == dlpi_files_close
               ? (const dlpi_files *)(const void *)source
               : NULL;
}

/* Fill the dataset and the source of files, from the desc that was checked. */
static void dlpi_files_source(dlpi_files *f) {
    f->dataset = (dlp_dataset){.n_items = f->d.n_items,
                               .fields = f->d.fields,
                               .n_fields = f->d.n_fields,
                               .writes_all_bytes =
                                   f->d.writes_all_bytes || (f->d.direct && f->d.n_fields == 1),
                               .fetch = dlpi_files_fetch,
                               .user = f,
                               .warning = f->d.warning};
    if (f->d.paths != NULL) {
        dlpi_identity_paths(&f->identity, f->d.paths, f->d.n_items, f->d.moved);
        f->dataset.identity = &f->identity;
    }
    f->source = (dlp_source){.dataset = &f->dataset,
                             .workers = {.worker_init = dlpi_files_worker_init,
                                         .worker_exit = dlpi_files_worker_exit,
                                         .worker_user = f},
                             .fetcher = DLP_FETCH_ASYNC,
                             .async = {dlpi_files_submit, dlpi_files_reap},
                             .in_flight = f->d.in_flight,
                             .close = dlpi_files_close};
}

DLPI_COLD DLPDEF int dlp_files_open(dlp_source **out, const dlp_files_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_files *f;
    int rc = dlpi_open_args(out, out, "", desc, err);
    if (rc != DLP_OK) return rc;
    wrong = dlpi_files_wrong(desc, &field);
    if (wrong) return dlpi_error_set(err, DLP_ERR_ARG, field, "%s: %s", field, wrong);
    f = calloc(1, sizeof *f);
    if (f == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    f->d = *desc;
    f->d.direct = desc->direct || desc->decode == NULL;
    f->d.in_flight = desc->in_flight ? desc->in_flight : 16;
    f->worker_user = desc->user;
    f->capacity = f->d.max_bytes;
    if (f->d.direct) {
        f->ragged = desc->fields[0].ragged != 0;
        f->capacity = dlpi_field_item_bytes(desc->fields);
        f->unit = f->ragged ? f->capacity / (uint64_t)desc->fields[0].shape[0] : f->capacity;
    }
    dlpi_files_choose(f);
    dlpi_files_source(f);
    f->dataset.worker_bytes = dlp_files_worker_bytes(&f->source);
    *out = &f->source;
    return DLP_OK;
}

DLPDEF const char *dlp_files_backend(const dlp_source *source) {
    const dlpi_files *f = dlpi_files_of(source);
    return f != NULL ? f->backend : NULL;
}

DLPI_COLD DLPDEF uint64_t dlp_files_worker_bytes(const dlp_source *source) {
    const dlpi_files *f = dlpi_files_of(source);
    uint64_t each;
    if (f == NULL) return 0;
    each = dlpi_files_stride(f) + sizeof(dlpi_file) + sizeof(dlpi_thread);
    if (f->ring) each += sizeof(dlpi_sqe) + 2 * sizeof(dlpi_cqe) + sizeof(uint32_t);
    return dlpi_sum(sizeof(dlpi_files_worker), dlpi_times((uint64_t)f->d.in_flight, each));
}
