#pragma once
/* tests: system/s3/s3_engine, system/s3/s3_transport */
#include "s3/records.h"
/* ---- connections ---- */

/* Have epoll watch a connection for events. Returns false if that fails: its timer is then due. */
static bool dlpi_s3_connection_watch(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     uint32_t events) {
    struct epoll_event e;
    if (connection->events == events) return true;
    e.events = events;
    e.data.u64 = (uint64_t)connection->generation << 32 | (uint64_t)(connection - io->connections);
    if (epoll_ctl(io->epoll, connection->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                  connection->conn.fd, &e) != 0) {
        dlpi_s3_timer_set(&io->timers, &connection->timer, io->now);
        return false;
    }
    connection->events = events;
    return true;
}

/* Set how many bytes must have come, unless the stream has ended, before epoll reports a
   connection. If the mark cannot be lowered, nobody may be woken, so the timer is due now. */
static void dlpi_s3_connection_low_water(dlp_s3_io *io, dlpi_s3_connection *connection,
                                         uint64_t bytes) {
    int n = bytes > DLPI_S3_LOW_WATER ? DLPI_S3_LOW_WATER : bytes > 0 ? (int)bytes : 1;
    if (connection->conn.tls || n == connection->low_water) return;
    if (setsockopt(connection->conn.fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n) == 0)
        connection->low_water = n;
    else if (n < connection->low_water)
        dlpi_s3_timer_set(&io->timers, &connection->timer, io->now);
}

/* Close a connection that has no range, and free its record. */
static void dlpi_s3_connection_close(dlp_s3_io *io, dlpi_s3_connection *connection) {
    if (connection->state == DLPI_S3_CONNECTION_OPENING && !connection->raced)
        connection->origin->opening--;
    if (connection->state == DLPI_S3_CONNECTION_IDLE) io->n_idle--;
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_out(&connection->age);
    dlpi_s3_timer_stop(&connection->timer);
    if (connection->events) /* closing is not enough: a child of a fork may have the socket, too */
        epoll_ctl(io->epoll, EPOLL_CTL_DEL, connection->conn.fd, NULL);
    dlpi_s3_conn_close(&connection->conn);
    connection->state = DLPI_S3_CONNECTION_FREE;
    connection->generation++;
    connection->events = 0;
    connection->origin->connections--;
    io->connections_out--;
    dlpi_s3_ring_first(&io->free_connections, &connection->node);
}

/* Put a connection among the idle ones: it may carry a request. */
static void dlpi_s3_connection_idle(dlp_s3_io *io, dlpi_s3_connection *connection) {
    io->n_idle++;
    connection->state = DLPI_S3_CONNECTION_IDLE;
    connection->sent_ns = io->now;
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_IDLE);
    dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP);
    dlpi_s3_connection_low_water(io, connection, 1);
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_first(&connection->origin->idle, &connection->node);
    dlpi_s3_ring_out(&connection->age);
    dlpi_s3_ring_first(&io->idle, &connection->age);
}

/* Read on what nobody wants, for a while: a new connection costs more than a few bytes. */
static void dlpi_s3_connection_drain(dlp_s3_io *io, dlpi_s3_connection *connection) {
    connection->state = DLPI_S3_CONNECTION_DRAIN;
    connection->error_n = 0; /* counts them */
    dlpi_s3_ring_first(&io->draining, &connection->age);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_DRAIN);
    dlpi_s3_connection_low_water(io, connection, 1);
}

/* Take a connection back whose answer has ended or is not wanted: it is idle, drained or closed. */
static void dlpi_s3_connection_free(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    bool sent = !connection->unsent;
    if (sent && h->done && h->keep_alive) {
        connection->served++;
        dlpi_s3_connection_idle(io, connection);
    } else if (sent && h->keep_alive && h->head_done && h->has_length &&
               dlpi_s3_http_direct(h) <= DLPI_S3_DRAIN) {
        dlpi_s3_connection_drain(io, connection);
    } else {
        dlpi_s3_connection_close(io, connection);
    }
}

/* Take back a connection whose answer is not wanted. expected: its length, or UINT64_MAX. */
static void dlpi_s3_connection_abandon(dlp_s3_io *io, dlpi_s3_connection *connection,
                                       uint64_t expected) {
    if (connection->state == DLPI_S3_CONNECTION_WAITING && expected <= DLPI_S3_DRAIN) {
        dlpi_s3_connection_drain(io, connection);
    } else {
        dlpi_s3_connection_free(io, connection);
    }
}

/* ---- the end of a request ---- */

/* Free a range. Its connections are abandoned. expected: the length of their answers. */
static void dlpi_s3_range_end(dlp_s3_io *io, dlpi_s3_range *range, uint64_t expected) {
    while (range->n_connections) {
        dlpi_s3_connection *connection = range->connections[range->n_connections - 1];
        dlpi_s3_range_part(io, range, connection);
        dlpi_s3_connection_abandon(io, connection, expected);
    }
    dlpi_s3_timer_stop(&range->timer);
    dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
    dlpi_s3_ring_out(&range->sibling);
    range->op->n_ranges--;
    dlpi_s3_ring_first(&io->free_ranges, &range->queue);
}

static void dlpi_s3_op_cancel(dlp_s3_io *io, dlpi_s3_op *op) {
    while (!dlpi_s3_ring_empty(&op->ranges))
        dlpi_s3_range_end(io, DLPI_S3_OF(op->ranges.next, dlpi_s3_range, sibling), UINT64_MAX);
}

/* Note in the request's error the code, and what was asked for: bucket, key and bytes. */
static void dlpi_s3_error_place(const dlpi_s3_op *op, int code) {
    dlp_s3_request *r = op->r;
    dlp_s3_error *e = &r->error;
    size_t n = strlen(r->key);
    e->code = code;
    e->attempts = op->attempts;
    dlpi_s3_copy(e->bucket, sizeof e->bucket, r->bucket);
    dlpi_s3_copy(e->key, sizeof e->key,
                 n < sizeof e->key ? r->key : r->key + n - (sizeof e->key - 1));
    if (r->length) {
        e->first = r->offset;
        e->last = r->offset + r->length - 1;
    } else if (r->offset) {
        e->first = r->offset;
        e->last = UINT64_MAX;
    }
}

/* Take an op out of all lists and free it. Its request is the caller's again. */
static void dlpi_s3_op_leave(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_op_cancel(io, op);
    dlpi_s3_timer_stop(&op->timer);
    dlpi_s3_ring_out(&op->node);
    op->origin->ops--;
    io->bytes_out -= op->cost;
    op->over->out--;
    op->r->internal = NULL;
    dlpi_s3_ring_first(&io->free_ops, &op->node);
}

/* End an op with a code, and append its request to the list of ended ones. */
static void dlpi_s3_op_end(dlp_s3_io *io, dlpi_s3_op *op, int code) {
    dlp_s3_request *r = op->r;
    dlpi_s3_over *over = op->over;
    dlpi_s3_op_leave(io, op);
    r->code = code;
    if (code != DLP_OK)
        dlpi_s3_error_place(op, code);
    else if (op->failed)
        memset(&r->error, 0, sizeof r->error);
    dlpi_s3_tally(io, code == DLP_OK ? DLPI_S3_N_OBJECTS : DLPI_S3_N_FAILED, 1);
    if (over->first)
        over->last->internal = r;
    else
        over->first = r;
    over->last = r;
}

/* Write the error of a request that has failed. errnum: errno, or 0. */
DLPI_PRINTF(3, 4)
static void dlpi_s3_op_message(dlpi_s3_op *op, int errnum, const char *format, ...) {
    dlp_s3_error *e = &op->r->error;
    va_list args;
    op->failed = true;
    e->errnum = errnum;
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
}

/* Note in the request's error what the last attempt's answer has told. h: NULL if it had none. */
static void dlpi_s3_op_answer(dlpi_s3_op *op, const dlpi_s3_http *h) {
    dlp_s3_error *e = &op->r->error;
    e->http_status = h ? h->status : 0;
    e->s3_code[0] = '\0';
    dlpi_s3_copy(e->request_id, sizeof e->request_id, h ? h->request_id : "");
}

/* Append words to the message of the request's error. */
static void dlpi_s3_op_add(dlpi_s3_op *op, const char *words) {
    dlp_s3_error *e = &op->r->error;
    size_t n = strlen(e->message);
    snprintf(e->message + n, sizeof e->message - n, "%s%s", n ? "; " : "", words);
}

/* ---- trouble ---- */

/* What went wrong with an attempt, for the classifier and for words. */
typedef struct dlpi_s3_case {
    dlpi_s3_trouble t;
    int64_t retry_after_s, date_s;
    uint64_t version;     /* of the credentials that signed */
    int64_t used_skew_s;  /* of the clock by which that was */
    uint32_t turn;        /* of the op, when it was sent */
    bool opened;          /* an answer has told the object's size */
    const char *region;   /* that the answer names, or "" */
    const char *location; /* or "" */
    const char *used_region;
} dlpi_s3_case;

/* Return the error code that a request has if it ends for this case. */
static int dlpi_s3_case_code(const dlpi_s3_case *c) {
    if (c->t.what == DLPI_S3_T_CONNECT && (c->t.errnum == EMFILE || c->t.errnum == ENFILE ||
                                           c->t.errnum == ENOMEM || c->t.errnum == ENOBUFS))
        return DLP_ERR_SYSTEM;
    if (c->t.what == DLPI_S3_T_SHORT) return DLP_ERR_LENGTH;
    if (c->t.status == 416 && !c->opened) return DLP_ERR_LENGTH;
    return DLP_ERR_REMOTE;
}

/* True if the next attempt may go on behind the bytes that have come: If-Match must make sure that
   they are of the same object. A range that has all bytes but no valid end of its answer begins
   again, because nothing can be asked for behind the last byte. */
static bool dlpi_s3_range_keeps(const dlpi_s3_range *range) {
    const dlpi_s3_op *op = range->op;
    return op->strong && !op->r->query && range->done != range->bytes;
}

/* Note that the server answers, be it by a refusal. */
static void dlpi_s3_heard(dlp_s3_io *io) {
    uint64_t away_ns = dlpi_s3_back(&io->s3->common->shared, io->now);
    io->good_ns = io->now;
    if (away_ns) dlpi_s3_say(io, "s3: answers come again, after %.1f s", (double)away_ns / 1e9);
}

/* Tell the log that a range will be tried again in wait_ns, or that the server is away. */
static void dlpi_s3_range_tell(dlp_s3_io *io, const dlpi_s3_range *range, uint64_t wait_ns) {
    dlpi_s3_shared *shared = &io->s3->common->shared;
    const dlp_s3_request *r = range->op->r;
    uint64_t since = range->begun_ns > io->good_ns ? range->begun_ns : io->good_ns;
    int what = dlpi_s3_away(shared, since, io->now);
    const char *field;
    int32_t ms = dlpi_s3_bound_ms(io->desc, &field);
    if (what == DLPI_S3_TELL_IT)
        dlpi_s3_say(io, "s3: %s/%s: %s; again in %u ms", r->bucket, r->key, r->error.message,
                    (unsigned)(wait_ns / DLPI_S3_MS));
    if (what == DLPI_S3_TELL_AWAY)
        dlpi_s3_say(io,
                    "s3: no answer for %.1f s, from %s port %u: %s; requests wait, and are "
                    "sent again, for up to %s (%d ms)",
                    (double)dlpi_s3_away_for(shared, io->now) / 1e9, range->op->origin->host,
                    (unsigned)range->op->origin->port, r->error.message, field, (int)ms);
}

/* Try the range again after a pause, or end the request with code. retry_after_s: -1: not told. */
static void dlpi_s3_range_retry(dlp_s3_io *io, dlpi_s3_range *range, int64_t retry_after_s,
                                int code) {
    dlpi_s3_op *op = range->op;
    const char *why = "";
    uint64_t wait_ns = 0;
    if (range->done > range->tried_at) range->begun_ns = io->now; /* it gets on */
    if (range->done > range->tried_at && dlpi_s3_range_keeps(range)) range->attempts = 0;
    range->tried_at = range->done;
    range->attempts++;
    if (!dlpi_s3_retry_take(&io->patience, range->attempts, retry_after_s, &wait_ns, &why)) {
        dlpi_s3_op_add(op, why);
        dlpi_s3_op_end(io, op, code);
        return;
    }
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_range_tell(io, range, wait_ns);
    if (range->done && !dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    dlpi_s3_timer_set(&io->timers, &range->timer, io->now + wait_ns);
    dlpi_s3_range_become(range, retry_after_s > 0 ? DLPI_S3_RANGE_HELD : DLPI_S3_RANGE_PAUSED);
}
