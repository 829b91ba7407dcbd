#pragma once
/* tests: system/s3/s3_engine, system/s3/s3_faults */
#include "s3/credential_cache.h"
#include "s3/answers.h"
/* ---- what is to be done next ---- */

/* Make the next range of an op, and queue it for a connection. */
static void dlpi_s3_op_next(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_range *range = DLPI_S3_OF(io->free_ranges.next, dlpi_s3_range, queue);
    uint64_t part = op->split ? io->desc->part_bytes : UINT64_MAX;
    dlpi_s3_ring_out(&range->queue);
    range->op = op;
    range->first = op->next;
    range->bytes = op->size == UINT64_MAX ? UINT64_MAX : op->size - op->next;
    if (op->size != UINT64_MAX && range->bytes > part) range->bytes = part;
    op->next = range->bytes == UINT64_MAX ? UINT64_MAX : op->next + range->bytes;
    range->done = range->tried_at = range->most = range->crc = 0;
    range->cursor = dlpi_s3_cursor_on(op->r, op->cursor, 0);
    op->cursor = range->bytes == UINT64_MAX ? op->cursor
                                            : dlpi_s3_cursor_on(op->r, op->cursor, range->bytes);
    range->n_connections = range->moves = 0;
    range->crc_is_told = false;
    range->fresh = op->tries.sums > 0;
    range->attempts = 0;
    range->begun_ns = io->now;
    range->size_bytes = range->bytes != UINT64_MAX ? range->bytes : op->split ? part : op->bound;
    if (op->r->method != DLP_S3_GET) range->size_bytes = 1;
    range->size_class = dlpi_s3_class(range->size_bytes);
    dlpi_s3_ring_last(&op->ranges, &range->sibling);
    op->n_ranges++;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
    dlpi_s3_ring_out(&range->queue); /* behind those that have waited before */
    dlpi_s3_ring_last(&op->origin->waiting, &range->queue);
}

/* True if an op may begin another range: further parts wait for the first head, with size and
   ETag. */
static bool dlpi_s3_op_ready(const dlpi_s3_op *op) {
    return op->n_ranges == 0 || op->opened || op->r->if_match;
}

/* Let ops begin ranges, in turn, while there are free range records. */
static void dlpi_s3_pump_ops(dlp_s3_io *io) {
    while (!dlpi_s3_ring_empty(&io->wanting) && !dlpi_s3_ring_empty(&io->free_ranges)) {
        dlpi_s3_op *op = DLPI_S3_OF(io->wanting.next, dlpi_s3_op, node);
        dlpi_s3_ring_out(&op->node);
        if (!dlpi_s3_op_ready(op)) continue; /* its first head puts it back */
        dlpi_s3_op_next(io, op);
        if (op->next < op->size) dlpi_s3_ring_last(&io->wanting, &op->node);
    }
}

/* Give a failed connection's trouble (what: DLPI_S3_T_*) to the range that waits longest. */
static void dlpi_s3_origin_failed(dlp_s3_io *io, dlpi_s3_origin *origin, int what, int errnum,
                                  const char *why) {
    dlpi_s3_case c = dlpi_s3_case_of(what, errnum);
    dlpi_s3_range *range;
    char by[300] = "";
    if (origin->proxy)
        snprintf(by, sizeof by, "; by proxy %s:%u", origin->proxy->host,
                 (unsigned)origin->proxy->port);
    if (origin->n_waiting) {
        range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
        dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
        dlpi_s3_op_message(range->op, errnum, "%.150s%s", why, by);
        dlpi_s3_op_answer(range->op, NULL);
        dlpi_s3_range_trouble(io, range, &c);
    } else if (origin->n_hedging) {
        range = DLPI_S3_OF(origin->hedging.next, dlpi_s3_range, queue);
        dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
        dlpi_s3_range_await(io, range); /* once more, but not at once */
        dlpi_s3_hedge_over(&io->patience, range->size_bytes, false, 0);
    }
}

/* If the origin has a proxy and TLS, have the connection ask the proxy for a tunnel (CONNECT). */
static void dlpi_s3_connection_by(dlpi_s3_connection *connection, const dlpi_s3_origin *origin) {
    const char *form = strchr(origin->host, ':') ? "[%s]:%u" : "%s:%u";
    char to[300];
    if (!origin->proxy || !origin->tls) return;
    snprintf(to, sizeof to, form, origin->host, (unsigned)origin->port);
    connection->conn.tunnel_n = (uint32_t)snprintf(connection->out, DLPI_S3_OUT_BYTES,
                                                   "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n",
                                                   to, to, DLPI_S3_AGENT, origin->proxy->header);
    connection->conn.tunnel = connection->out;
}

/* Begin one more connection to an origin. Returns whether yet another may be begun. */
static bool dlpi_s3_origin_connect(dlp_s3_io *io, dlpi_s3_origin *origin) {
    dlpi_s3_address address;
    dlpi_s3_connection *connection;
    int errnum = 0, code;
    io->text[0] = '\0';
    code = dlpi_s3_helper_address(io->helper, dlpi_s3_origin_peer(origin),
                                  origin->proxy ? origin->proxy->port : origin->port, &address,
                                  &errnum, io->text, sizeof io->text);
    origin->looking = code == 1;
    if (code == 1) return false;
    if (code != 0) {
        dlpi_s3_origin_failed(io, origin, DLPI_S3_T_RESOLVE, errnum, io->text);
        return true;
    }
    connection = DLPI_S3_OF(io->free_connections.next, dlpi_s3_connection, node);
    code = dlpi_s3_conn_open(&connection->conn, &address, origin->tls ? &io->s3->tls : NULL,
                             origin->host);
    if (code != 0) {
        bool none = connection->conn.errnum == EMFILE || connection->conn.errnum == ENFILE ||
                    connection->conn.errnum == ENOBUFS || connection->conn.errnum == ENOMEM;
        if (none && origin->connections > origin->opening)
            return false; /* those that there are must do */
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &address, false);
        dlpi_s3_copy(io->text, sizeof io->text, connection->conn.why);
        dlpi_s3_origin_failed(io, origin, DLPI_S3_T_CONNECT, connection->conn.errnum, io->text);
        return true;
    }
    dlpi_s3_connection_by(connection, origin);
    dlpi_s3_ring_out(&connection->node);
    connection->origin = origin;
    connection->range = NULL;
    connection->state = DLPI_S3_CONNECTION_OPENING;
    connection->served = 0;
    connection->low_water = 1;
    connection->unsent = connection->late = connection->raced = false;
    connection->sent_ns = io->now;
    origin->connections++;
    origin->opening++;
    io->connections_out++;
    dlpi_s3_tally(io, DLPI_S3_N_CONNECTIONS, 1);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_RACE);
    if (dlpi_s3_connection_watch(io, connection, EPOLLOUT)) return true;
    errnum = errno;
    snprintf(io->text, sizeof io->text, "cannot watch a socket: %s", strerror(errnum));
    dlpi_s3_connection_close(io, connection);
    dlpi_s3_origin_failed(io, origin, DLPI_S3_T_CONNECT, errnum, io->text);
    return true;
}

/* Go on opening a connection: it becomes idle, waits, or has failed. */
static void dlpi_s3_connection_open(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_origin *origin = connection->origin;
    int what = DLPI_S3_T_CONNECT, code = dlpi_s3_conn_step(&connection->conn), errnum;
    if (code == DLP_S3_WANT_READ || code == DLP_S3_WANT_WRITE) {
        dlpi_s3_connection_watch(io, connection, code == DLP_S3_WANT_READ ? EPOLLIN : EPOLLOUT);
        return;
    }
    if (code == 0) {
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &connection->conn.address,
                             true);
        origin->opening -= !connection->raced;
        dlpi_s3_connection_idle(io, connection);
        return;
    }
    if (connection->conn.state == DLPI_S3_HANDSHAKE) what = DLPI_S3_T_TLS;
    errnum = connection->conn.errnum;
    dlpi_s3_copy(io->text, sizeof io->text, connection->conn.why);
    code = connection->late ? connection->raced
                            : dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin),
                                                   &connection->conn.address, false);
    dlpi_s3_connection_close(io, connection);
    if (!code) dlpi_s3_origin_failed(io, origin, what, errnum, io->text);
}

/* If a connection takes long to open, let another be begun beside it, to an address that has not
   failed lately. The first that is open is used first (after RFC 8305); the late one counts for
   nothing until it is open. Returns whether the late one may still come. */
static bool dlpi_s3_connection_race(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t until = connection->sent_ns + io->patience.by[DLPI_S3_BY_CONNECT];
    if (connection->state != DLPI_S3_CONNECTION_OPENING || io->now >= until) return false;
    dlpi_s3_timer_set(&io->timers, &connection->timer, until);
    if (connection->late || connection->conn.state != DLPI_S3_CONNECTING) return true;
    connection->late = true;
    connection->raced = dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(connection->origin),
                                             &connection->conn.address, false);
    connection->origin->opening -= connection->raced;
    return true;
}

/* True if an idle connection may be used. It may have ended unnoticed, or be too old for a box in
   between. Bytes that nobody asked for may be there, which would be taken for the next answer. With
   TLS, bytes of the socket may be the session's own, so only what it has decrypted tells. A
   connection that has just been opened is not looked at. */
static bool dlpi_s3_connection_alive(const dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t idle_ns = io->now - connection->sent_ns;
    char byte;
    if (idle_ns >= io->patience.by[DLPI_S3_BY_IDLE]) return false;
    if (connection->served == 0 && idle_ns < DLPI_S3_STALE_MS * DLPI_S3_MS) return true;
    if (connection->conn.tls && dlpi_s3_conn_pending(&connection->conn)) return false;
    if (connection->conn.tls && idle_ns < DLPI_S3_STALE_MS * DLPI_S3_MS) return true;
    return recv(connection->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Return the idle connection of an origin to use next, or NULL if there is none. Dead ones are
   closed. fresh: take only one that has served no request. */
static dlpi_s3_connection *dlpi_s3_origin_idle(dlp_s3_io *io, dlpi_s3_origin *origin, bool fresh) {
    dlpi_s3_node *n = origin->idle.next;
    while (n != &origin->idle) {
        dlpi_s3_connection *connection = DLPI_S3_OF(n, dlpi_s3_connection, node);
        n = n->next;
        if (fresh && connection->served) continue;
        if (dlpi_s3_connection_alive(io, connection)) return connection;
        dlpi_s3_connection_close(io, connection);
    }
    return NULL;
}

/* True if there is room for one more connection. To make room, close the one that is idle longest,
   or else the one that has read an unwanted answer longest. */
static bool dlpi_s3_connections_room(dlp_s3_io *io) {
    dlpi_s3_node *least = dlpi_s3_ring_empty(&io->idle) ? &io->draining : &io->idle;
    if (io->connections_out == io->n_connections && !dlpi_s3_ring_empty(least))
        dlpi_s3_connection_close(io, DLPI_S3_OF(least->prev, dlpi_s3_connection, age));
    return io->connections_out < io->n_connections;
}

/* Send the ranges that wait at an origin over idle connections, and begin new ones for the rest. */
static void dlpi_s3_pump_origin(dlp_s3_io *io, dlpi_s3_origin *origin) {
    uint32_t limit = (uint32_t)dlpi_s3_limit(&io->patience), want;
    while (origin->n_waiting && io->on_wire < limit) {
        dlpi_s3_range *range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
        dlpi_s3_connection *connection = dlpi_s3_origin_idle(io, origin, range->fresh);
        if (!connection) break;
        dlpi_s3_connection_begin(io, connection, range, false);
    }
    while (origin->n_hedging) {
        dlpi_s3_connection *connection = dlpi_s3_origin_idle(io, origin, false);
        if (!connection) break;
        dlpi_s3_connection_begin(io, connection,
                                 DLPI_S3_OF(origin->hedging.next, dlpi_s3_range, queue), true);
    }
    do {
        want = io->on_wire < limit ? limit - io->on_wire : 0;
        if (want > origin->n_waiting) want = origin->n_waiting;
        want += origin->n_hedging;
    } while (want > origin->opening && dlpi_s3_connections_room(io) &&
             dlpi_s3_origin_connect(io, origin));
}

/* True if requests can be signed now. If not, a refresh of the credentials is begun. */
static bool dlpi_s3_who_ready(dlp_s3_io *io) {
    int code;
    if (io->held) return false;
    code = dlpi_s3_cred_cache_get(&io->s3->common->cred_cache, dlpi_s3_real_s(), &io->who);
    if (code != 0 && !io->refreshing) dlpi_s3_refresh(io, io->who.version, false);
    return code == 0 || code == 1;
}

/* Begin what can begin: waiting requests, then waiting ranges of each origin. Ranges wait for
   credentials. */
static void dlpi_s3_pump(dlp_s3_io *io) {
    dlpi_s3_pump_ops(io);
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) {
        dlpi_s3_origin *origin = &io->origins[i];
        if (origin->n_waiting + origin->n_hedging && dlpi_s3_who_ready(io))
            dlpi_s3_pump_origin(io, origin);
    }
}

/* ---- hedges ---- */

/* Return after how many ns without an answer to hedge a range of class c; UINT64_MAX: not now. */
static uint64_t dlpi_s3_hedge_ns(dlp_s3_io *io, unsigned c) {
    if (io->now - io->hedge_looked_ns > DLPI_S3_MS) {
        static const uint64_t bytes[DLPI_S3_CLASSES] = {1, 1u << 17, 1u << 20, 1u << 30};
        io->hedge_looked_ns = io->now;
        for (unsigned i = 0; i < DLPI_S3_CLASSES; i++)
            io->hedge_ns[i] = dlpi_s3_hedge_after(&io->patience, io->now, bytes[i]);
    }
    return io->hedge_ns[c];
}

/* Queue each range for a hedge whose answer has been awaited too long while somebody listened: the
   caller may have been away. Returns when to look again. */
static uint64_t dlpi_s3_hedge(dlp_s3_io *io) {
    uint64_t next = UINT64_MAX;
    for (unsigned c = 0; c < DLPI_S3_CLASSES; c++) {
        while (!dlpi_s3_ring_empty(&io->awaited[c])) {
            dlpi_s3_range *range = DLPI_S3_OF(io->awaited[c].next, dlpi_s3_range, awaited);
            uint64_t after = dlpi_s3_hedge_ns(io, c);
            if (after == UINT64_MAX) { /* not now; later, if that is for too many 503s */
                uint64_t until = io->patience.throttled_until_ns;
                if (io->now < until && until < next) next = until;
                break;
            }
            if (io->heard_ns < range->sent_ns + after) {
                if (range->sent_ns + after < next) next = range->sent_ns + after;
                break;
            }
            if (!dlpi_s3_hedge_take(&io->patience, io->now)) {
                if (io->now + 5 * DLPI_S3_MS < next) next = io->now + 5 * DLPI_S3_MS;
                break;
            }
            dlpi_s3_range_become(range, DLPI_S3_RANGE_HEDGING);
        }
    }
    return next;
}

/* ---- events, timers ---- */

/* The time of a connection is over: close it, or, if it has a range, treat it as broken. */
static void dlpi_s3_connection_timeout(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const char *what = "the connection was not there after", *field = "connect_timeout_ms";
    int by = DLPI_S3_BY_CONNECT;
    dlpi_s3_origin *origin = connection->origin;
    bool raced;
    if (dlpi_s3_connection_whole(connection)) {
        dlpi_s3_connection_done(io, connection);
        return;
    }
    switch (connection->state) {
    case DLPI_S3_CONNECTION_IDLE:
    case DLPI_S3_CONNECTION_DRAIN: dlpi_s3_connection_close(io, connection); return;
    case DLPI_S3_CONNECTION_OPENING: break;
    case DLPI_S3_CONNECTION_WAITING:
        by = DLPI_S3_BY_FIRST;
        what = connection->queued ? "no more of it was taken within" : "no answer began within";
        field = "first_byte_timeout_ms";
        break;
    default:
        what = "nothing moved for";
        field = "stall_timeout_ms";
        by = DLPI_S3_BY_STALL;
        break;
    }
    dlpi_s3_tally(io, DLPI_S3_N_TIMEOUTS, 1);
    snprintf(io->text, sizeof io->text, "%s %d ms (%s)", what,
             (int)(io->patience.by[by] / DLPI_S3_MS), field);
    if (connection->state != DLPI_S3_CONNECTION_OPENING) {
        dlpi_s3_connection_broken(io, connection, DLPI_S3_T_TIMEOUT, ETIMEDOUT, io->text);
        return;
    }
    if (!connection->late)
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &connection->conn.address,
                             false);
    raced = connection->raced;
    dlpi_s3_connection_close(io, connection);
    if (!raced) dlpi_s3_origin_failed(io, origin, DLPI_S3_T_TIMEOUT, ETIMEDOUT, io->text);
}

/* True if all ranges of the op wait for a turn: as many requests are on the wire as may be. */
static bool dlpi_s3_op_in_line(const dlp_s3_io *io, const dlpi_s3_op *op) {
    for (const dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next)
        if (DLPI_S3_OF(n, dlpi_s3_range, sibling)->state != DLPI_S3_RANGE_WAITING) return false;
    return io->on_wire >= (uint32_t)dlpi_s3_limit(&io->patience);
}

/* End the op if its request_timeout_ms or progress_timeout_ms is over; else set its timer again. */
static void dlpi_s3_op_timeout(dlp_s3_io *io, dlpi_s3_op *op) {
    const uint64_t *by = io->patience.by;
    uint64_t whole = by[DLPI_S3_BY_WHOLE], still;
    char text[64];
    if (dlpi_s3_op_in_line(io, op)) op->moved_ns = io->now;
    still = op->moved_ns + by[DLPI_S3_BY_STILL];
    if (whole != UINT64_MAX) whole += op->begun_ns;
    if (io->now < whole && io->now < still) {
        dlpi_s3_timer_set(&io->timers, &op->timer, dlpi_s3_least(whole, still));
        return;
    }
    dlpi_s3_tally(io, DLPI_S3_N_TIMEOUTS, 1);
    op->failed = true;
    op->r->error.errnum = ETIMEDOUT;
    snprintf(text, sizeof text, "%s (%d ms)",
             io->now >= whole ? "not done within request_timeout_ms"
                              : "no further for progress_timeout_ms",
             io->now >= whole ? (int)io->desc->request_timeout_ms
                              : (int)io->desc->progress_timeout_ms);
    dlpi_s3_op_add(op, text);
    dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
}

/* True if a PUT whose timer is due goes on: the kernel still delivers its bytes, or the answer may
   still come. The wait for the answer begins at the last byte. The timer is then set again. */
static bool dlpi_s3_connection_delivers(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t still = io->patience.by[DLPI_S3_BY_STALL], first = io->patience.by[DLPI_S3_BY_FIRST];
    bool sent = connection->state == DLPI_S3_CONNECTION_WAITING;
    int n = 0;
    if (!connection->queued || connection->deaf ||
        (!sent && connection->state != DLPI_S3_CONNECTION_SENDING))
        return false;
    if (ioctl(connection->conn.fd, TIOCOUTQ, &n) != 0 || n < 0) return false;
    if ((uint64_t)n < connection->queued) connection->moved_ns = io->now;
    dlpi_s3_connection_delivered(io, connection, (uint64_t)n);
    if (io->now - connection->moved_ns >= (sent && first > still ? first : still)) return false;
    dlpi_s3_due(io, &connection->timer,
                n > 0  ? DLPI_S3_BY_LOOK
                : sent ? DLPI_S3_BY_FIRST
                       : DLPI_S3_BY_STALL);
    return true;
}

/* Close a connection whose body is slow, and queue its range for another connection. */
static void dlpi_s3_connection_leave(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     const dlpi_s3_body_pace *pace) {
    dlpi_s3_range *range = connection->range;
    const dlp_s3_request *r = range->op->r;
    dlpi_s3_say(io, "s3: %s/%s: %.1f KB/s, on over another connection", r->bucket, r->key,
                (double)pace->got * 1e6 / (double)pace->ns);
    dlpi_s3_paced(&io->patience, pace);
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_close(io, connection);
    if (!dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    range->moves++;
    range->tried_at = range->done;
    range->fresh = true;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
}

/* Leave the connection of a body that comes too slowly. Returns whether that was so. Time in which
   the caller was elsewhere does not count, and a body that stands still is not judged. */
static bool dlpi_s3_connection_slow(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_range *range = connection->range;
    dlpi_s3_body_pace pace = dlpi_s3_connection_pace(io, connection);
    bool known = connection->body_ns > io->returned_ns && range->op->r->method == DLP_S3_GET &&
                 !connection->skip && (range->bytes != UINT64_MAX || dlpi_s3_range_keeps(range));
    if (known && (pace.ns < io->patience.by[DLPI_S3_BY_LOOK] || pace.got == 0)) return false;
    if (known && dlpi_s3_slow(&io->patience, &pace)) {
        dlpi_s3_connection_leave(io, connection, &pace);
        return true;
    }
    connection->body_ns = io->now;
    connection->body_from = range->done;
    return false;
}

/* True if a connection whose timer is due is not to be given up: its body has moved, or its state
   has changed. A body may have bytes that are too few to wake anybody, so it is read first. */
static bool dlpi_s3_connection_moves(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint32_t generation = connection->generation;
    if (dlpi_s3_connection_race(io, connection) || dlpi_s3_connection_delivers(io, connection))
        return true;
    if (connection->state != DLPI_S3_CONNECTION_BODY) return false;
    dlpi_s3_connection_read(io, connection);
    if (connection->generation != generation || connection->state != DLPI_S3_CONNECTION_BODY)
        return true;
    if (io->now - connection->moved_ns >= io->patience.by[DLPI_S3_BY_STALL]) return false;
    if (!dlpi_s3_connection_slow(io, connection)) dlpi_s3_body_due(io, connection);
    return true;
}

/* Handle each timer that is due: a pause that is over, or a request or connection that is too slow.
   */
static void dlpi_s3_timers_run(dlp_s3_io *io) {
    for (;;) {
        dlpi_s3_timer *t = dlpi_s3_heap_first(&io->timers);
        if (!t || t->due > io->now) return;
        t->due = UINT64_MAX;
        if (t->kind == DLPI_S3_TIMER_RANGE) {
            dlpi_s3_range_become((dlpi_s3_range *)t->of, DLPI_S3_RANGE_WAITING);
        } else if (t->kind == DLPI_S3_TIMER_OP) {
            dlpi_s3_op_timeout(io, (dlpi_s3_op *)t->of);
        } else if (!dlpi_s3_connection_moves(io, (dlpi_s3_connection *)t->of)) {
            dlpi_s3_connection_timeout(io, (dlpi_s3_connection *)t->of);
        }
    }
}

/* Close an idle connection on which something came: its end, or bytes that nobody asked for. With
   TLS it stays if they are the session's own, such as tickets; a read takes them in. */
static void dlpi_s3_connection_stirs(dlp_s3_io *io, dlpi_s3_connection *connection) {
    int64_t got = DLP_S3_BROKEN;
    if (connection->conn.tls) got = dlpi_s3_conn_read(&connection->conn, io->scratch, 1);
    if (got != DLP_S3_WANT_READ) dlpi_s3_connection_close(io, connection);
}

/* Handle the events that epoll has for a connection: open it, read an answer, or send more of a
   request. */
static void dlpi_s3_connection_event(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     uint32_t events) {
    uint32_t generation = connection->generation;
    switch (connection->state) {
    case DLPI_S3_CONNECTION_FREE: return;
    case DLPI_S3_CONNECTION_OPENING: dlpi_s3_connection_open(io, connection); return;
    case DLPI_S3_CONNECTION_IDLE: dlpi_s3_connection_stirs(io, connection); return;
    default: break;
    }
    if (events & ~(uint32_t)EPOLLOUT) dlpi_s3_connection_read(io, connection);
    if (connection->generation == generation && connection->range && connection->unsent &&
        !connection->deaf)
        dlpi_s3_connection_send(
            io, connection); /* also when the answer has begun: some servers read it all */
}

/* Take in the news of the helper: a name was looked up, or credentials were refreshed. If there are
   no credentials, the ranges that wait are in trouble. */
static void dlpi_s3_helper_event(dlp_s3_io *io) {
    dlp_s3_error err;
    dlpi_s3_helper_heard(io->helper);
    if (!io->refreshing || dlpi_s3_helper_refreshed(io->helper, &err) == io->refreshes) return;
    io->refreshing = io->held = false;
    if (err.code == 0 ||
        dlpi_s3_cred_cache_get(&io->s3->common->cred_cache, dlpi_s3_real_s(), &io->who) >= 0)
        return;
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) { /* nobody to sign for */
        dlpi_s3_origin *origin = &io->origins[i];
        for (uint32_t n = origin->n_waiting; n-- > 0 && origin->n_waiting;) {
            dlpi_s3_range *range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
            dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
            dlpi_s3_op_message(range->op, err.errnum, "no credentials: %.200s", err.message);
            dlpi_s3_range_retry(io, range, -1, DLP_ERR_REMOTE);
        }
    }
}

/* Return for how many ms (-1: no limit) to wait for events: to the next timer, hedge, or until. */
static int dlpi_s3_wait_ms(dlp_s3_io *io, uint64_t until) {
    dlpi_s3_timer *t = dlpi_s3_heap_first(&io->timers);
    uint64_t hedge = dlpi_s3_hedge(io);
    if (t && t->due < until) until = t->due;
    if (hedge < until) until = hedge;
    if (t && DLPI_LOAD_RLX(&io->s3->common->shared.away_ns) && /* S9 */
        io->now + DLPI_S3_AWAY_LOOK_NS < until)
        until = io->now + DLPI_S3_AWAY_LOOK_NS;
    if (until == UINT64_MAX) return -1;
    if (until <= io->now) return 0;
    until = (until - io->now + DLPI_S3_MS - 1) / DLPI_S3_MS;
    return until < 3600000 ? (int)until : 3600000;
}

/* Read on from connections that had more than a turn's share: decrypted bytes wake nobody. */
static void dlpi_s3_feast(dlp_s3_io *io) {
    uint32_t n = 0;
    for (const dlpi_s3_node *l = io->hungry.next; l != &io->hungry; l = l->next) n++;
    for (; n > 0 && !dlpi_s3_ring_empty(&io->hungry); n--) {
        dlpi_s3_connection_read(io, DLPI_S3_OF(io->hungry.next, dlpi_s3_connection, node));
        io->now = dlpi_s3_now_ns();
    }
}

/* End all back-offs soon if the server has come back, perhaps to another thread or process. */
static void dlpi_s3_wake(dlp_s3_io *io) {
    uint64_t back_ns = DLPI_LOAD_RLX(&io->s3->common->shared.back_ns); /* S9 */
    if (back_ns <= io->woken_ns) return;
    io->woken_ns = back_ns;
    for (uint32_t i = 0; i < io->n_ops; i++) {
        dlpi_s3_range *range = &io->ranges[i];
        uint64_t due = io->now + dlpi_s3_random(&io->patience.random) % DLPI_S3_WAKE_NS;
        if (range->state == DLPI_S3_RANGE_PAUSED && range->timer.due > due)
            dlpi_s3_timer_set(&io->timers, &range->timer, due);
    }
}

/* Wait for events until a time, serve them, and send what can be sent. Returns 0 or an errno. */
static int dlpi_s3_turn(dlp_s3_io *io, uint64_t until) {
    struct epoll_event e[DLPI_S3_EVENTS];
    uint64_t woken;
    int n, wait;
    if (io->now - io->turned_ns > io->patience.by[DLPI_S3_BY_LOOK] / 4) io->returned_ns = io->now;
    dlpi_s3_hedge(io);
    dlpi_s3_pump(io);
    wait = dlpi_s3_wait_ms(io, until); /* after it: what was sent now may be hedged again */
    if (!dlpi_s3_ring_empty(&io->hungry)) wait = 0;
    n = epoll_wait(io->epoll, e, DLPI_S3_EVENTS, wait);
    if (n < 0 && errno != EINTR) return errno;
    woken = io->now = dlpi_s3_now_ns();
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)e[i].data.u64;
        if (index == UINT32_MAX) {
            dlpi_s3_helper_event(io);
        } else if (io->connections[index].generation == (uint32_t)(e[i].data.u64 >> 32)) {
            dlpi_s3_connection_event(io, &io->connections[index], e[i].events);
            if (i + 1 < n) io->now = dlpi_s3_now_ns();
        }
    }
    dlpi_s3_feast(io);
    dlpi_s3_wake(io);
    dlpi_s3_timers_run(io);
    if (n >= 0 && n < DLPI_S3_EVENTS) io->heard_ns = woken;
    dlpi_s3_hedge(io);
    dlpi_s3_pump(io);
    while (io->n_idle > (uint32_t)io->desc->max_idle)
        dlpi_s3_connection_close(io, DLPI_S3_OF(io->idle.prev, dlpi_s3_connection, age));
    io->turned_ns = io->now;
    return 0;
}
