#pragma once
/* tests: system/s3/s3_faults, system/s3/s3_hostile */
#include "s3/heads.h"
/* ---- requests, sent ---- */

/* Set the first and last byte that a connection asks for. Returns them as text ("bytes=0-9"), or
   NULL for the whole object. */
static const char *dlpi_s3_connection_range(const dlp_s3_io *io, dlpi_s3_connection *connection,
                                            const dlpi_s3_range *range, char *to, size_t size) {
    const dlpi_s3_op *op = range->op;
    uint64_t begin = op->r->offset + range->first, first = begin + range->done, last = UINT64_MAX;
    if (range->bytes != UINT64_MAX)
        last = begin + range->bytes - 1;
    else if (op->split)
        last = first + io->desc->part_bytes - 1;
    connection->ranged =
        op->r->method == DLP_S3_GET && !op->r->query && (first > 0 || op->r->length || op->split);
    connection->first = connection->ranged ? first : 0;
    connection->last = connection->ranged ? last : UINT64_MAX;
    if (!connection->ranged) return NULL;
    if (last == UINT64_MAX)
        snprintf(to, size, "bytes=%llu-", (unsigned long long)first);
    else
        snprintf(to, size, "bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)last);
    return to;
}

/* Return the query of a request: its own, that of a Location, or the version that is asked for.
   text: memory for it, as large as a line of a head. */
static const char *dlpi_s3_op_query(const dlpi_s3_op *op, char *text, size_t size) {
    const dlp_s3_request *r = op->r;
    dlpi_s3_out o = {text, size, 0};
    if (op->foreign && op->to_query) return op->to_query;
    if (!r->version_id) return r->query;
    dlpi_s3_out_adds(&o, "versionId=");
    dlpi_s3_out_escaped(&o, r->version_id);
    dlpi_s3_out_end(&o);
    return text;
}

/* Write a range's request into the connection's memory. Returns false if that is not possible. */
static bool dlpi_s3_connection_compose(dlp_s3_io *io, dlpi_s3_connection *connection,
                                       const dlpi_s3_range *range) {
    static const char *const methods[] = {"GET", "HEAD", "PUT"};
    const dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    dlpi_s3_head h;
    char text[64];
    int n;
    if (dlpi_s3_op_address(io, op) != DLP_OK) return false;
    memset(&h, 0, sizeof h);
    h.method = methods[r->method];
    h.host = io->host;
    h.path = io->path;
    h.query = dlpi_s3_op_query(op, io->scratch, DLPI_S3_HTTP_LINE);
    h.range = dlpi_s3_connection_range(io, connection, range, text, sizeof text);
    h.if_match = r->if_match && !op->bare ? r->if_match : op->opened && op->strong ? r->etag : NULL;
    h.extra = op->as_stored ? DLPI_S3_AGENT "Accept-Encoding: gzip\r\n" : DLPI_S3_AGENT;
    if (op->origin->proxy && !op->origin->tls) h.proxy = op->origin->proxy->header;
    h.has_body = r->method == DLP_S3_PUT;
    h.body = r->body;
    h.body_bytes = h.has_body ? r->capacity : 0;
    h.unsigned_payload = io->desc->unsigned_payload != 0;
    h.presign = io->desc->presign != 0;
    h.requester_pays = io->desc->requester_pays != 0;
    h.checksum = op->checksum && !op->foreign;
    h.region = dlpi_s3_op_region(io, op);
    h.who = op->foreign ? NULL : &io->who;
    connection->skew_s = DLPI_LOAD_RLX(&io->s3->common->shared.skew_s); /* S7 */
    h.now_s = dlpi_s3_real_s() + connection->skew_s;
    h.keys = &io->keys;
    n = dlpi_s3_head_write(&h, connection->out, DLPI_S3_OUT_BYTES);
    if (n < 0) return false;
    connection->out_at = 0;
    connection->out_n = (uint32_t)n;
    connection->put_at = 0;
    connection->skip = 0;
    if (h.has_body && r->capacity && r->capacity <= DLPI_S3_OUT_BYTES - connection->out_n) {
        memcpy(connection->out + connection->out_n, r->body, r->capacity);
        connection->out_n += (uint32_t)r->capacity;
        connection->put_at = r->capacity;
    }
    dlpi_s3_copy(connection->region, sizeof connection->region, h.region);
    connection->version = io->who.version;
    connection->turn = op->turn;
    return true;
}

/* Return how many bytes of the request can be sent next from *from; 0 if none are left. */
static uint64_t dlpi_s3_connection_unsent(const dlpi_s3_connection *connection, const char **from) {
    const dlp_s3_request *r = connection->range->op->r;
    *from = connection->out + connection->out_at;
    if (connection->deaf) return 0;
    if (connection->out_at < connection->out_n) return connection->out_n - connection->out_at;
    if (r->method != DLP_S3_PUT || connection->put_at == r->capacity) return 0;
    *from = (const char *)r->body + connection->put_at;
    return r->capacity - connection->put_at;
}

/* Note how much of a PUT is delivered: all that was written but for queued bytes in the kernel. */
static void dlpi_s3_connection_delivered(const dlp_s3_io *io, dlpi_s3_connection *connection,
                                         uint64_t queued) {
    connection->queued = queued;
    if (connection->put_at > queued)
        dlpi_s3_range_moved(io, connection->range, connection->put_at - queued);
}

/* Ask the kernel how much of a PUT it still has, and look again soon if it has some: the delivery
   of these bytes wakes nobody. */
static void dlpi_s3_connection_queued(dlp_s3_io *io, dlpi_s3_connection *connection) {
    int n = 0;
    if (connection->deaf || connection->range->op->r->method != DLP_S3_PUT) return;
    if (ioctl(connection->conn.fd, TIOCOUTQ, &n) != 0 || n < 0) n = 0;
    dlpi_s3_connection_delivered(io, connection, (uint64_t)n);
    connection->moved_ns = io->now;
    if (n > 0) dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_LOOK);
}

/* Set the state of a connection to waiting for the answer. All of the request is written, though
   the server may not have it yet. Does not block. */
static void dlpi_s3_connection_sent(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    connection->unsent = connection->deaf;
    if (connection->http.head_done) return; /* the answer came first, and is being read */
    connection->state = DLPI_S3_CONNECTION_WAITING;
    connection->sent_ns = io->now;
    dlpi_s3_due(io, &connection->timer, connection->deaf ? DLPI_S3_BY_DEAF : DLPI_S3_BY_FIRST);
    dlpi_s3_connection_queued(io, connection);
    dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP);
    dlpi_s3_range_await(io, range);
}

/* Send what the socket takes; no more than a share of it before others have their turn. */
static void dlpi_s3_connection_send(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t n, budget = DLPI_S3_AT_ONCE;
    const char *from;
    while ((n = dlpi_s3_connection_unsent(connection, &from)) > 0) {
        int64_t put =
            dlpi_s3_conn_write(&connection->conn, from, n > 1u << 20 ? 1u << 20 : (size_t)n);
        if (put == DLP_S3_WANT_WRITE || put == DLP_S3_WANT_READ) {
            dlpi_s3_connection_queued(io, connection);
            dlpi_s3_connection_watch(io, connection,
                                     put == DLP_S3_WANT_READ ? EPOLLIN | EPOLLRDHUP
                                                             : EPOLLIN | EPOLLRDHUP | EPOLLOUT);
            return;
        }
        if (put < 0) { /* the answer that says why may be there: it is read before this counts */
            connection->deaf = true;
            break;
        }
        if (connection->out_at < connection->out_n)
            connection->out_at += (uint32_t)put;
        else
            connection->put_at += (uint64_t)put;
        dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
        budget -= (uint64_t)put < budget ? (uint64_t)put : budget;
        if (budget == 0 && dlpi_s3_connection_unsent(connection, &from) > 0) {
            dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
            return;
        }
    }
    dlpi_s3_connection_sent(io, connection);
}

/* Send a range's request (or a hedge) over an idle connection. If it is too long, the op ends. */
static void dlpi_s3_connection_begin(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     dlpi_s3_range *range, bool hedge) {
    dlpi_s3_op *op = range->op;
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_out(&connection->age);
    io->n_idle--;
    if (!dlpi_s3_connection_compose(io, connection, range)) {
        dlpi_s3_connection_idle(io, connection);
        dlpi_s3_op_message(
            op, 0, "the request's head is too long, or has control bytes; shorten key and query");
        dlpi_s3_op_end(io, op, DLP_ERR_ARG);
        return;
    }
    dlpi_s3_http_begin(&connection->http, op->r->method == DLP_S3_HEAD);
    connection->range = range;
    connection->hedge = hedge;
    connection->deaf = false;
    connection->unsent = true;
    connection->sent_ns = connection->queued = 0;
    connection->error_n = 0;
    connection->state = DLPI_S3_CONNECTION_SENDING;
    if (range->n_connections == 0) io->on_wire++;
    if (range->attempts == 0 && !hedge)
        op->moved_ns = io->now; /* until now it waited for its turn */
    range->connections[range->n_connections++] = connection;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
    range->fresh = false;
    op->attempts++;
    dlpi_s3_tally(io, DLPI_S3_N_REQUESTS, 1);
    if (hedge)
        dlpi_s3_tally(io, DLPI_S3_N_HEDGES, 1);
    else
        dlpi_s3_sent(&io->patience);
    if (range->done > 0 && !hedge) dlpi_s3_tally(io, DLPI_S3_N_RESUMES, 1);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
    dlpi_s3_connection_send(io, connection);
}

/* ---- answers, read ---- */

/* Give the range to this connection, whose head was the first valid one. Its others are left. */
static void dlpi_s3_connection_wins(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    uint64_t expected =
        connection->http.has_length ? (uint64_t)connection->http.content_length : UINT64_MAX;
    uint64_t waited = 0;
    if (connection->sent_ns && dlpi_s3_may_hedge(range->op))
        dlpi_s3_first_byte(&io->patience, range->size_bytes, io->now - connection->sent_ns);
    for (unsigned i = range->n_connections; i-- > 0;) {
        dlpi_s3_connection *other = range->connections[i];
        if (other == connection) continue;
        if (other->hedge) dlpi_s3_hedge_over(&io->patience, range->size_bytes, false, 0);
        if (other->sent_ns && io->now - other->sent_ns > waited) waited = io->now - other->sent_ns;
        dlpi_s3_range_part(io, range, other);
        dlpi_s3_connection_abandon(io, other, expected);
    }
    if (connection->hedge) {
        dlpi_s3_hedge_over(&io->patience, range->size_bytes, true, waited);
        dlpi_s3_tally(io, DLPI_S3_N_HEDGES_WON, 1);
    }
    dlpi_s3_range_become(range, DLPI_S3_RANGE_BODY);
}

/* End the request with DLP_ERR_LENGTH, though its answer goes on. */
static void dlpi_s3_connection_final(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    dlpi_s3_op_answer(op, &connection->http);
    dlpi_s3_range_part(io, connection->range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_op_end(io, op, DLP_ERR_LENGTH);
}

/* Compare a head of 2xx with what was asked for, and give the connection the range. Returns whether
   the connection still serves its range. */
static bool dlpi_s3_connection_accept(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    int code = dlpi_s3_head_classify(connection);
    if (code == DLPI_S3_FINAL) {
        dlpi_s3_connection_final(io, connection);
        return false;
    }
    if (code != DLPI_S3_FINE) {
        dlpi_s3_connection_wrong(io, connection, code);
        return false;
    }
    io->bare = io->bare || op->bare; /* what was refused is what the answer tells */
    if (op->as_stored && op->turned)
        DLPI_STORE_RLX(&io->s3->common->shared.decodes, 1u); /* S10, any order serves */
    dlpi_s3_connection_wins(io, connection);
    connection->state = DLPI_S3_CONNECTION_BODY;
    connection->moved_ns = connection->body_ns = io->now;
    connection->body_from = connection->range->done;
    dlpi_s3_body_due(io, connection);
    if (op->next < op->size && dlpi_s3_ring_empty(&op->node))
        dlpi_s3_ring_last(&io->wanting, &op->node);
    return true;
}

/* True if the body that follows may be an error's document, in spite of a 200: a server of objects
   tells an object's ETag, time and length. Answers to a query, such as lists, lack them anyway. */
static bool dlpi_s3_head_doubtful(const dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    return h->status == 200 && connection->range->op->r->method == DLP_S3_GET &&
           (!h->etag_sum || !h->modified_sum || !h->has_length);
}

/* Judge a whole head. Returns whether the connection still serves its range. */
static bool dlpi_s3_connection_head(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    int code;
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
    if (h->status < 200 || h->status > 299) {
        connection->state = DLPI_S3_CONNECTION_ERROR;
        return true;
    }
    code = dlpi_s3_head_stranger(io, connection->range->op, h);
    if (code != DLPI_S3_FINE) {
        dlpi_s3_connection_wrong(io, connection, code);
        return false;
    }
    if (!dlpi_s3_head_doubtful(connection)) return dlpi_s3_connection_accept(io, connection);
    connection->state = DLPI_S3_CONNECTION_DOUBT;
    return true;
}

/* Return how a body has got on since it began, or was looked at last. */
static dlpi_s3_body_pace dlpi_s3_connection_pace(const dlp_s3_io *io,
                                                 const dlpi_s3_connection *connection) {
    const dlpi_s3_range *range = connection->range;
    dlpi_s3_body_pace b;
    b.size = range->size_bytes;
    b.got = range->done - connection->body_from;
    b.ns = io->now - connection->body_ns;
    b.left = range->bytes - range->done;
    b.afresh = dlpi_s3_range_keeps(range) ? b.left : range->bytes;
    b.moves = range->moves;
    return b;
}

/* End a range that has all of its bytes. The connection may serve another. */
static void dlpi_s3_connection_done(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    if (connection->state == DLPI_S3_CONNECTION_BODY && range->done > connection->body_from &&
        connection->body_ns > io->returned_ns) {
        dlpi_s3_body_pace pace = dlpi_s3_connection_pace(io, connection);
        dlpi_s3_paced(&io->patience, &pace);
    }
    dlpi_s3_heard(io);
    dlpi_s3_answered(&io->patience, io->now, false, true);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_done(io, range);
}

/* True if a 400 may be for the range in the request: the answer names no other cause. */
static bool dlpi_s3_connection_mistook(const dlpi_s3_connection *connection) {
    char code[64] = "";
    if (connection->http.status != 400) return false;
    dlpi_s3_xml_text(connection->error, connection->error_n, "Error/Code", code, sizeof code);
    return !code[0] || dlpi_s3_listed(" InvalidRange InvalidRequest InvalidArgument BadRequest"
                                      " NotImplemented ",
                                      code);
}

/* True if the server names the header that asks for a checksum, in an error. */
static bool dlpi_s3_connection_unsummed(const dlpi_s3_connection *connection) {
    static const char name[] = "x-amz-checksum";
    int32_t status = connection->http.status;
    return (status == 400 || status == 501) &&
           memmem(connection->error, connection->error_n, name, sizeof name - 1);
}

/* Ask again without what the client added and the server refuses. This is the checksum, unless the
   desc insists on it; then no request of the io asks for one. Or it is an If-Match with the list's
   ETag, which a proxy that weakens ETags may find too strong. Or it is the range, which gets a
   large object in parts. Returns true if it is asked again. */
static bool dlpi_s3_connection_plainer(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    int32_t status = connection->http.status;
    if (op->opened || range->n_connections > 1) return false;
    if (op->checksum && io->desc->checksums == DLPI_S3_CHECKSUMS_TRIED &&
        dlpi_s3_connection_unsummed(connection)) {
        dlpi_s3_say(io, "s3: the server answers %d; asked again without checksums, from now on",
                    (int)status);
        op->checksum = false;
        io->no_checksums = true;
    } else if (status == 412 && !op->bare && dlpi_s3_op_weakly(op)) {
        op->bare = true;
    } else if (op->split && connection->first == 0 && !op->r->length &&
               (status == 416 || status == 501 || dlpi_s3_connection_mistook(connection))) {
        op->split = false;
    } else {
        return false;
    }
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_again(io, range);
    return true;
}

/* Judge an answer that is not 2xx, whole or as much of it as the client reads: end the request, ask
   again in a plainer form, or fail. */
static void dlpi_s3_connection_told(dlp_s3_io *io, dlpi_s3_connection *connection) {
    if (dlpi_s3_connection_empty(connection) ||
        dlpi_s3_head_all(connection->range, &connection->http))
        dlpi_s3_connection_done(io, connection);
    else if (!dlpi_s3_connection_plainer(io, connection))
        dlpi_s3_connection_refused(io, connection);
}

static bool dlpi_s3_connection_body(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                    size_t n);

/* Take a body that was in doubt for the object's, with its first bytes, which were kept. Returns
   whether the connection still serves its range. */
static bool dlpi_s3_connection_trust(dlp_s3_io *io, dlpi_s3_connection *connection) {
    size_t n = connection->error_n;
    connection->error_n = 0;
    return dlpi_s3_connection_accept(io, connection) &&
           (n == 0 || dlpi_s3_connection_body(io, connection, connection->error, n));
}

/* Judge an answer that has ended: its range is done, or too short, or it tells an error. */
static void dlpi_s3_connection_end(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op;
    if (!range) {
        dlpi_s3_connection_free(io, connection);
        return;
    }
    op = range->op;
    if (connection->state == DLPI_S3_CONNECTION_DOUBT && !dlpi_s3_connection_trust(io, connection))
        return;
    if (connection->state == DLPI_S3_CONNECTION_ERROR) {
        dlpi_s3_connection_told(io, connection);
        return;
    }
    if (op->r->method == DLP_S3_GET) {
        if (range->bytes == UINT64_MAX) range->bytes = op->size = op->next = range->done;
        if (range->done != range->bytes) {
            dlpi_s3_op_message(op, 0, "the body ended after %llu bytes of %llu",
                               (unsigned long long)range->done, (unsigned long long)range->bytes);
            dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_SHORT);
            return;
        }
    } else {
        if (op->r->method == DLP_S3_PUT && connection->unsent) {
            dlpi_s3_op_message(op, 0, "the server says yes before it has all bytes");
            dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_BAD);
            return;
        }
        range->bytes = op->size = op->next = 0;
        if (op->r->method == DLP_S3_PUT) dlpi_s3_tally(io, DLPI_S3_N_BYTES, op->r->capacity);
    }
    dlpi_s3_connection_done(io, connection);
}

/* End a request of which more bytes come than there is room for, and no head had told that. */
static void dlpi_s3_connection_overflow(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    dlpi_s3_op_message(op, 0, "more bytes come than capacity, which is %llu; raise it",
                       (unsigned long long)op->bound);
    dlpi_s3_connection_final(io, connection);
}

/* Keep bytes of an error's document. Returns false if its room is full: it was judged as it is. */
static bool dlpi_s3_connection_error(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                     size_t n) {
    size_t room = DLPI_S3_ERROR_BYTES - connection->error_n;
    if (n > room) n = room;
    memcpy(connection->error + connection->error_n, at, n);
    connection->error_n += (uint32_t)n;
    if (n < room) return true;
    dlpi_s3_connection_told(io, connection); /* it might never end */
    return false;
}

/* Keep the first bytes of a body in doubt until they tell whether it is the object's. Returns
   whether the connection still serves its range. */
static bool dlpi_s3_connection_doubt(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                     size_t n) {
    const dlpi_s3_http *h = &connection->http;
    size_t room = DLPI_S3_DOUBT_BYTES - connection->error_n, kept = n < room ? n : room;
    int what;
    memcpy(connection->error + connection->error_n, at, kept);
    connection->error_n += (uint32_t)kept;
    what = dlpi_s3_document(connection->error, connection->error_n);
    if (what == DLPI_S3_DOC_PERHAPS && kept == n) return true;
    if (what != DLPI_S3_DOC_ERROR) /* a page may be an object, too */
        what = (what == DLPI_S3_DOC_PAGE || h->is_page) && !h->etag_sum && !h->modified_sum &&
                       !h->request_id[0]
                   ? DLPI_S3_DOC_PAGE
                   : DLPI_S3_DOC_NONE;
    if (what == DLPI_S3_DOC_ERROR || what == DLPI_S3_DOC_PAGE) {
        connection->state = DLPI_S3_CONNECTION_ERROR;
        return dlpi_s3_connection_error(io, connection, at + kept, n - kept);
    }
    return dlpi_s3_connection_trust(io, connection) &&
           (kept == n || dlpi_s3_connection_body(io, connection, at + kept, n - kept));
}

/* Count bytes that nobody wants. Returns false if they were too many: the connection is left. */
static bool dlpi_s3_connection_waste(dlp_s3_io *io, dlpi_s3_connection *connection, size_t n) {
    connection->error_n += (uint32_t)n;
    if (connection->error_n <= DLPI_S3_DRAIN) return true;
    if (!connection->range) {
        dlpi_s3_connection_close(io, connection);
        return false;
    }
    dlpi_s3_op_message(connection->range->op, 0,
                       "the answer's body is far too long; check the endpoint");
    dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_BAD);
    return false;
}

/* Take in n bytes of a body. Returns whether the connection still serves its range. */
static bool dlpi_s3_connection_body(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                    size_t n) {
    dlpi_s3_range *range = connection->range;
    if (!at) return true;
    if (connection->state == DLPI_S3_CONNECTION_ERROR)
        return dlpi_s3_connection_error(io, connection, at, n);
    if (connection->state == DLPI_S3_CONNECTION_DOUBT)
        return dlpi_s3_connection_doubt(io, connection, at, n);
    if (connection->state != DLPI_S3_CONNECTION_BODY || range->op->r->method != DLP_S3_GET)
        return dlpi_s3_connection_waste(io, connection, n);
    if (connection->skip) {
        uint64_t had = n < connection->skip ? n : connection->skip;
        connection->skip -= had;
        at += had;
        n -= (size_t)had;
    }
    if (dlpi_s3_range_lay(io, range, at, n) == n) return true;
    if (range->bytes == UINT64_MAX) {
        dlpi_s3_connection_overflow(io, connection);
    } else if (connection->http.has_range) { /* which then is not to be trusted in the rest */
        dlpi_s3_op_message(range->op, 0, "the body goes on after the range that was told");
        dlpi_s3_range_rewind(range);
        dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_SHORT);
    } else {
        dlpi_s3_connection_done(io, connection); /* a 200 went on after the range */
    }
    return false;
}

/* Parse bytes that were read. Returns whether reading may go on. */
static bool dlpi_s3_connection_feed(dlp_s3_io *io, dlpi_s3_connection *connection,
                                    const char *bytes, size_t n) {
    for (;;) {
        const char *body;
        size_t used, body_n;
        int code = dlpi_s3_http_feed(&connection->http, bytes, n, &used, &body, &body_n);
        bytes += used;
        n -= used;
        if (n > 0 && connection->http.done)
            connection->http.keep_alive = false; /* whosever those may be */
        switch (code) {
        case DLPI_S3_HTTP_HEAD:
            if (connection->range && !dlpi_s3_connection_head(io, connection)) return false;
            if (!connection->range && dlpi_s3_http_direct(&connection->http) > DLPI_S3_DRAIN) {
                dlpi_s3_connection_close(io, connection);
                return false;
            }
            break;
        case DLPI_S3_HTTP_BODY:
            if (!dlpi_s3_connection_body(io, connection, body, body_n)) return false;
            break;
        case DLPI_S3_HTTP_END: dlpi_s3_connection_end(io, connection); return false;
        case DLPI_S3_HTTP_BAD:
            dlpi_s3_connection_broken(io, connection, DLPI_S3_T_BAD, 0, connection->http.why);
            return false;
        default: return true;
        }
    }
}

/* True if the range has all of its bytes, and only the end mark of a chunked answer is missing. */
static bool dlpi_s3_connection_whole(const dlpi_s3_connection *connection) {
    return connection->state == DLPI_S3_CONNECTION_BODY && connection->range &&
           connection->range->done == connection->range->bytes;
}

/* Take in that a read got 0 (the stream's end) or failed: the range is done, or is in trouble. */
static void dlpi_s3_connection_ended(dlp_s3_io *io, dlpi_s3_connection *connection, int64_t got) {
    int errnum = got == 0 ? ECONNRESET : connection->conn.errnum;
    char why[160];
    if (got == 0 && dlpi_s3_http_eof(&connection->http) == DLPI_S3_HTTP_END) {
        dlpi_s3_connection_end(io, connection);
        return;
    }
    if (dlpi_s3_connection_whole(connection)) {
        dlpi_s3_connection_done(io, connection);
        return;
    }
    dlpi_s3_copy(why, sizeof why, got == 0 ? connection->http.why : connection->conn.why);
    dlpi_s3_connection_broken(io, connection, DLPI_S3_T_BROKEN, errnum, why);
}

/* Return where the next bytes of a connection go: to their place (*straight) if it is large enough
   and they are only body, else to the scratch memory. *n: how many at most. */
static char *dlpi_s3_connection_target(dlp_s3_io *io, dlpi_s3_connection *connection, uint64_t *n,
                                       bool *straight) {
    uint64_t direct = dlpi_s3_http_direct(&connection->http), room;
    char *to = NULL;
    *straight = false;
    *n = connection->http.head_done ? 16384 : DLPI_S3_HEAD_READ;
    if (direct == 0 || connection->state == DLPI_S3_CONNECTION_ERROR) return io->scratch;
    *n = direct < DLPI_S3_SCRATCH ? direct : DLPI_S3_SCRATCH;
    if (connection->state != DLPI_S3_CONNECTION_BODY || connection->skip ||
        connection->range->op->r->method != DLP_S3_GET)
        return io->scratch;
    to = dlpi_s3_range_room(connection->range, &room);
    if (room == 0 || (room < DLPI_S3_SMALL_PIECE && room < direct)) return io->scratch;
    *straight = true;
    *n = room < direct ? room : direct;
    if (!to && *n > DLPI_S3_SCRATCH) *n = DLPI_S3_SCRATCH;
    return to ? to : io->scratch;
}

/* Read what is there, at most a turn's share, and act on it. */
static void dlpi_s3_connection_read(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t budget = DLPI_S3_AT_ONCE, n;
    bool straight, moved = false;
    dlpi_s3_ring_out(&connection->node); /* of the hungry */
    do {
        char *to = dlpi_s3_connection_target(io, connection, &n, &straight);
        int64_t got;
        if (n > budget) n = budget;
        got = dlpi_s3_conn_read(&connection->conn, to, (size_t)n);
        if (got == DLP_S3_WANT_READ || got == DLP_S3_WANT_WRITE) break;
        if (got <= 0) {
            dlpi_s3_connection_ended(io, connection, got);
            return;
        }
        moved = true;
        if (straight) {
            dlpi_s3_range_took(io, connection->range, to, (uint64_t)got);
            if (dlpi_s3_http_took(&connection->http, (uint64_t)got) == DLPI_S3_HTTP_END) {
                dlpi_s3_connection_end(io, connection);
                return;
            }
            if (connection->range->done == connection->range->bytes && !connection->http.chunked) {
                dlpi_s3_connection_done(io, connection); /* a 200 goes on after the range */
                return;
            }
        } else if (!dlpi_s3_connection_feed(io, connection, to, (size_t)got)) {
            return;
        }
        budget -= (uint64_t)got < budget ? (uint64_t)got : budget;
        if (!connection->conn.tls && (uint64_t)got < n && connection->http.head_done)
            break; /* all that was */
    } while (budget);
    if (!budget && connection->conn.tls) dlpi_s3_ring_last(&io->hungry, &connection->node);
    if (moved) connection->moved_ns = io->now;
    dlpi_s3_connection_low_water(
        io, connection,
        connection->state == DLPI_S3_CONNECTION_BODY ? dlpi_s3_http_direct(&connection->http) : 1);
}
