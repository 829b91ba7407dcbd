#pragma once
/* tests: system/s3/s3_faults, system/s3/s3_hostile */
#include "s3/classify.h"
/* ---- heads of answers ---- */

enum { DLPI_S3_FINE = 0, DLPI_S3_FINAL = -1 }; /* else DLPI_S3_T_* */

/* Fail a request because of the object's bytes from the offset on (is): too many for the memory, or
   fewer than asked for. what, wanted: the end of the message. Returns DLPI_S3_FINAL. */
static int dlpi_s3_op_length(dlpi_s3_op *op, uint64_t is, const char *what, uint64_t wanted) {
    dlpi_s3_op_message(op, 0, "the object has %llu bytes from offset on, %s %llu",
                       (unsigned long long)is, what, (unsigned long long)wanted);
    return DLPI_S3_FINAL;
}

/* Refuse an answer that makes no sense. Returns DLPI_S3_T_SHORT. */
static int dlpi_s3_op_wrong(dlpi_s3_op *op, const char *words) {
    dlpi_s3_op_message(op, 0, "%s; compare with: curl -i -r 0-9 URL", words);
    return DLPI_S3_T_SHORT;
}

/* What an answer to GET or HEAD has of the object. */
typedef struct dlpi_s3_extent {
    bool part; /* Content-Range says which: a 206, and a 200 that has one */
    uint64_t first;
    uint64_t bytes; /* UINT64_MAX: as many as come */
    uint64_t total; /* of the whole object; UINT64_MAX: not told */
} dlpi_s3_extent;

/* Read from a head which bytes of the object the answer has. Returns FINE or a DLPI_S3_T_*. */
static int dlpi_s3_extent_of(dlpi_s3_op *op, const dlpi_s3_http *h, dlpi_s3_extent *x) {
    uint64_t length = h->has_length ? (uint64_t)h->content_length : UINT64_MAX;
    if (!h->has_range && (h->status == 206 || h->range_seen || h->range_bad))
        return dlpi_s3_op_wrong(op, "the server does not tell which range it sends");
    x->part = h->has_range;
    x->first = x->part ? h->range_first : 0;
    x->bytes = x->part ? h->range_last - h->range_first + 1 : length;
    x->total = x->part ? h->range_total : length;
    if (h->has_length && length != x->bytes)
        return dlpi_s3_op_wrong(op, "Content-Range and Content-Length differ");
    return DLPI_S3_FINE;
}

/* Check an answer that has the whole object, though a range may have been asked for. It serves a
   range that begins with the object: a range that goes on passes over what it has, if the object
   has as many bytes as before. If it is as long as the range, or of no told length, it may be just
   that range. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_whole(dlpi_s3_range *range, const dlpi_s3_connection *connection,
                              const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    if (r->offset + range->first > 0)
        return dlpi_s3_op_wrong(op, "the server sent the whole object instead of a range");
    if (x->bytes == UINT64_MAX && !r->query &&
        (connection->http.until_close || (r->method == DLP_S3_HEAD && r->key[0])))
        return dlpi_s3_op_wrong(op, "the server does not tell the length of what it sends");
    if (!connection->ranged || op->size != UINT64_MAX) return DLPI_S3_FINE;
    if (connection->first > 0)
        op->strong = false;
    else if (x->bytes != UINT64_MAX && x->bytes != connection->last + 1)
        return DLPI_S3_FINE;
    op->split = false; /* asked for from the beginning, and without a range, then */
    return dlpi_s3_op_wrong(op, "the server does not tell whether it sends all, or a range");
}

/* Check that the answer has the bytes that were asked for: all of the range, or all of it that
   exists. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_bounds(dlpi_s3_range *range, const dlpi_s3_connection *connection,
                               const dlpi_s3_extent *x) {
    uint64_t end = x->first + x->bytes, until = connection->last + 1; /* 0: to the object's end */
    if (!x->part) return dlpi_s3_head_whole(range, connection, x);
    if (connection->last == UINT64_MAX || until > x->total) until = x->total;
    if (until == UINT64_MAX || (range->op->size == UINT64_MAX && x->total == UINT64_MAX))
        return dlpi_s3_op_wrong(range->op, "the server does not tell the object's size");
    if (x->first != connection->first || end != until ||
        (!connection->ranged && connection->http.status == 206))
        return dlpi_s3_op_wrong(range->op, "the server sent another range than it was asked for");
    return DLPI_S3_FINE;
}

/* Check the object's size: as before, enough, with room. Returns FINE, FINAL or a DLPI_S3_T_*. */
static int dlpi_s3_head_size(dlpi_s3_op *op, const dlpi_s3_extent *x) {
    dlp_s3_request *r = op->r;
    uint64_t total = x->total;
    if (total == UINT64_MAX) return DLPI_S3_FINE;
    if (op->opened && r->object_bytes && r->object_bytes != total) {
        dlpi_s3_op_message(op, 0, "the object's size has changed while it was read; read it again");
        return DLPI_S3_T_CHANGED;
    }
    r->object_bytes = total;
    if (r->method != DLP_S3_GET) return DLPI_S3_FINE;
    if (r->length && total < r->offset + r->length)
        return dlpi_s3_op_length(op, total - r->offset, "so lower length, which is", r->length);
    if (!r->length && total - r->offset > op->bound)
        return dlpi_s3_op_length(op, total - r->offset, "so raise capacity, which is", op->bound);
    return DLPI_S3_FINE;
}

/* Set how many bytes the range has to bring, and where the next range begins. There is no next one
   if this answer brings all and no other range has begun. */
static void dlpi_s3_head_settle(dlpi_s3_range *range, dlpi_s3_connection *connection,
                                const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    uint64_t begin = op->r->offset + range->first;
    connection->skip = connection->first - x->first;
    if (range->bytes == UINT64_MAX) {
        op->size = x->total == UINT64_MAX ? UINT64_MAX : x->total - op->r->offset;
        range->bytes = x->bytes == UINT64_MAX ? UINT64_MAX : x->first + x->bytes - begin;
        op->next = range->bytes;
    } else if (!x->part && op->next == range->first + range->bytes) {
        op->next = range->bytes = op->size;
    }
    if (op->next == op->size) dlpi_s3_ring_out(&op->node);
}

/* True if if_match names an ETag, by the strong comparison (RFC 9110, 13.1.1): a weak one, on
   either side, never matches. S3 takes ETags without quotes, too. */
static bool dlpi_s3_etag_named(const char *if_match, const char *etag) {
    const char *bare = etag[0] == '"' ? etag + 1 : etag, *at = if_match;
    size_t n = strcspn(bare, "\""), k;
    bool weak, quoted;
    if (strcmp(at + strspn(at, " "), "*") == 0) return true;
    if (!etag[0] || strncmp(etag, "W/", 2) == 0) return false;
    for (at += strspn(at, " ,"); *at; at += strspn(at, " ,")) {
        weak = strncmp(at, "W/", 2) == 0;
        if (weak) at += 2;
        quoted = *at == '"';
        at += quoted;
        k = strcspn(at, quoted ? "\"" : " ,");
        if (!weak && k == n && memcmp(at, bare, n) == 0) return true;
        at += k;
        at += *at == '"';
    }
    return false;
}

/* Compare the ETag with if_match, and with that of the earlier answers, which must be the same, or
   missing in all. The first one is kept. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_etag(dlpi_s3_op *op, const dlpi_s3_http *h) {
    dlp_s3_request *r = op->r;
    if (r->if_match && !dlpi_s3_etag_named(r->if_match, h->etag)) {
        dlpi_s3_op_message(op, 0,
                           h->etag[0] ? "its ETag is %s, which if_match does not name"
                                      : "if_match is given, and the server tells no ETag%s",
                           h->etag);
        return DLPI_S3_T_OTHER;
    }
    if (op->opened && (strcmp(h->etag, r->etag) != 0 || h->etag_sum != op->etag_sum)) {
        dlpi_s3_op_message(op, 0, "the object has changed while it was read; read it again");
        return DLPI_S3_T_CHANGED;
    }
    if (op->opened) return DLPI_S3_FINE;
    dlpi_s3_copy(r->etag, sizeof r->etag, h->etag);
    op->etag_sum = h->etag_sum;
    op->strong = r->etag[0] == '"' && dlpi_s3_is_graphic(r->etag) &&
                 strchr(r->etag + 1, '"') == r->etag + strlen(r->etag) - 1;
    /* a weak one never matches: RFC 9110, 13.1.1; an odd one is better not sent back */
    return DLPI_S3_FINE;
}

/* Refuse an answer without ETag and request id after a redirect to another host: it may be a login
   page of a network. Returns DLPI_S3_FINE or DLPI_S3_T_OTHER. */
static int dlpi_s3_head_stranger(dlpi_s3_op *op, const dlpi_s3_http *h) {
    if (!op->foreign || h->etag_sum || h->request_id[0]) return DLPI_S3_FINE;
    dlpi_s3_op_message(op, 0,
                       "a redirect led to %.60s, which is no server of objects (no ETag, no "
                       "request id); check the endpoint",
                       op->to.host);
    return DLPI_S3_T_OTHER;
}

/* Compare Content-Encoding, version id and, if there is no ETag, Last-Modified with the first
   answer's, which are kept: the bytes must not be joined if one differs. Returns DLPI_S3_FINE or
   DLPI_S3_T_*. */
static int dlpi_s3_head_same(dlpi_s3_op *op, const dlpi_s3_http *h) {
    uint64_t modified = h->etag_sum ? 0 : h->modified_sum;
    uint64_t asked =
        op->r->version_id ? dlpi_s3_http_sum(op->r->version_id, strlen(op->r->version_id)) : 0;
    if (asked && h->version_sum && h->version_sum != asked) {
        dlpi_s3_op_message(
            op, 0,
            "the server sends another version than version_id; does the bucket keep versions?");
        return DLPI_S3_T_OTHER;
    }
    if (!op->opened) {
        op->encoding_sum = h->encoding_sum;
        op->version_sum = h->version_sum;
        op->modified_sum = modified;
    } else if (op->encoding_sum != h->encoding_sum || op->version_sum != h->version_sum ||
               op->modified_sum != modified) {
        dlpi_s3_op_message(
            op, 0,
            "the object's Content-Encoding, version or Last-Modified has changed; read it "
            "again");
        return DLPI_S3_T_CHANGED;
    }
    return DLPI_S3_FINE;
}

/* Refuse a body that is not what is stored. Google's server undoes a Content-Encoding of gzip for
   clients that do not accept gzip, and counts a range in the bytes that it makes. So the request
   begins again, and accepts gzip. A server that encodes what it has stored plain is refused.
   Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_stored(dlpi_s3_op *op, const dlpi_s3_http *h) {
    if (h->stored_encoded == h->encoded || (!op->as_stored && !h->stored_encoded))
        return DLPI_S3_FINE;
    dlpi_s3_op_message(
        op, 0,
        h->encoded ? "the server encodes the object, which is stored plain; turn compression off"
                   : "the server decodes the object, which is stored with a "
                     "Content-Encoding");
    if (op->as_stored) return DLPI_S3_T_OTHER;
    op->as_stored = true;
    return DLPI_S3_T_CHANGED;
}

/* Keep the checksum that is told with a range, if all of the object is asked for. It may be that of
   the object. If the range is a part as it was uploaded, AWS tells that of the part, under the same
   name ("Checking object integrity", part-level checksums). */
static void dlpi_s3_head_checksum(dlpi_s3_range *range, const dlpi_s3_http *h,
                                  const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    bool all = r->offset == 0 && (r->length == 0 || r->length == x->total);
    if (range->done > 0) return; /* it goes on after what an earlier answer has told of */
    for (int kind = 1; kind < DLPI_S3_CRCS && !op->opened; kind++)
        if (op->checksum && all && h->crc_whole && h->has_crc[kind]) op->crc_kind = kind;
    range->crc_is_told = op->crc_kind && h->crc_whole && h->has_crc[op->crc_kind];
    range->crc_told = h->crc[op->crc_kind];
}

/* Compare a head of 2xx with what was asked for on its connection: status, version, range and
   lengths. Every answer passes here before a byte of its body is used. Returns DLPI_S3_FINE;
   DLPI_S3_FINAL: the request ends with DLP_ERR_LENGTH; or DLPI_S3_T_*. */
static int dlpi_s3_head_classify(dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    const dlpi_s3_http *h = &connection->http;
    dlpi_s3_extent x;
    int code;
    if (op->r->method == DLP_S3_PUT) {
        dlpi_s3_copy(op->r->etag, sizeof op->r->etag, h->etag);
        return DLPI_S3_FINE;
    }
    if (h->status != 200 && h->status != 206)
        return dlpi_s3_op_wrong(op, "an answer without an object");
    code = dlpi_s3_head_stranger(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_stored(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_same(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_etag(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_extent_of(op, h, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_bounds(range, connection, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_size(op, &x);
    if (code != DLPI_S3_FINE) return code;
    dlpi_s3_head_checksum(range, h, &x);
    op->opened = true;
    if (op->r->method == DLP_S3_GET) dlpi_s3_head_settle(range, connection, &x);
    return DLPI_S3_FINE;
}

/* Return the object's size as a 416 tells it, in a head or a document; UINT64_MAX: it does not. */
static uint64_t dlpi_s3_connection_total(const dlpi_s3_connection *connection) {
    char text[24];
    uint64_t n = 0;
    if (connection->http.range_total != UINT64_MAX) return connection->http.range_total;
    if (!dlpi_s3_xml_text(connection->error, connection->error_n, "Error/ActualObjectSize", text,
                          sizeof text))
        return UINT64_MAX;
    return dlpi_s3_decimal(text, strlen(text), &n) ? n : UINT64_MAX;
}

/* True if a 416 may be of another version than if_match names. It need not tell an ETag: then only
   a request from byte 0 is in doubt, because it can be sent without a range. */
static bool dlpi_s3_connection_doubtful(const dlpi_s3_connection *connection,
                                        const dlp_s3_request *r) {
    return r->if_match && !dlpi_s3_etag_named(r->if_match, connection->http.etag) &&
           (connection->http.etag[0] || r->offset == 0);
}

/* True if a 416 tells, without an error, that there are no bytes to read: the object is empty, or a
   request without a length begins at its end. The op is then complete. */
static bool dlpi_s3_connection_empty(const dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    dlp_s3_request *r = op->r;
    uint64_t total;
    if (connection->http.status != 416 || r->method != DLP_S3_GET || op->opened ||
        !connection->ranged)
        return false;
    if (dlpi_s3_connection_doubtful(connection, r)) return false;
    total = dlpi_s3_connection_total(connection);
    if (total != UINT64_MAX) r->object_bytes = total;
    if (r->length || total != r->offset) return false;
    r->object_bytes = r->offset;
    op->size = op->next = range->bytes = 0;
    op->opened = true;
    return true;
}

/* True if a 416 tells that all of a range, whose end had not been told, has come. */
static bool dlpi_s3_head_all(dlpi_s3_range *range, const dlpi_s3_http *h) {
    dlpi_s3_op *op = range->op;
    if (h->status != 416 || !op->opened || range->bytes != UINT64_MAX || range->done == 0)
        return false;
    if (h->range_total != op->r->offset + range->done) return false;
    op->r->object_bytes = h->range_total;
    op->size = op->next = range->bytes = range->done;
    return true;
}

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
    h.if_match = r->if_match ? r->if_match : op->opened && op->strong ? r->etag : NULL;
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

/* Judge a whole head. Returns whether the connection still serves its range. */
static bool dlpi_s3_connection_head(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    const dlpi_s3_http *h = &connection->http;
    int code;
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
    if (h->status < 200 || h->status > 299) {
        connection->state = DLPI_S3_CONNECTION_ERROR;
        return true;
    }
    code = dlpi_s3_head_classify(connection);
    if (code == DLPI_S3_FINAL) {
        dlpi_s3_connection_final(io, connection);
        return false;
    }
    if (code != DLPI_S3_FINE) {
        dlpi_s3_connection_wrong(io, connection, code);
        return false;
    }
    dlpi_s3_connection_wins(io, connection);
    connection->state = DLPI_S3_CONNECTION_BODY;
    connection->moved_ns = connection->body_ns = io->now;
    connection->body_from = connection->range->done;
    dlpi_s3_body_due(io, connection);
    if (op->next < op->size && dlpi_s3_ring_empty(&op->node))
        dlpi_s3_ring_last(&io->wanting, &op->node);
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
   desc insists on it; then no request of the io asks for one. Or it is the range, which gets a
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

/* Judge an answer that has ended: its range is done, or too short, or it tells an error. */
static void dlpi_s3_connection_end(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op;
    if (!range) {
        dlpi_s3_connection_free(io, connection);
        return;
    }
    op = range->op;
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
