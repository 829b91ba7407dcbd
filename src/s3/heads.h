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
   either side, never matches. weakly: the weak comparison (8.8.3.2), in which the ETag may be weak.
   S3 takes ETags without quotes, too. */
static bool dlpi_s3_etag_named(const char *if_match, const char *etag, bool weakly) {
    const char *bare, *at = if_match;
    size_t n, k;
    bool weak, quoted;
    if (strcmp(at + strspn(at, " "), "*") == 0) return true;
    if (weakly && strncmp(etag, "W/", 2) == 0) etag += 2;
    if (!etag[0] || strncmp(etag, "W/", 2) == 0) return false;
    bare = etag[0] == '"' ? etag + 1 : etag;
    n = strcspn(bare, "\"");
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

/* Refuse an answer whose ETag is not what it must be. Returns DLPI_S3_T_OTHER. */
static int dlpi_s3_etag_wrong(dlpi_s3_op *op, const char *etag) {
    if (op->by == DLPI_S3_BY_USER)
        dlpi_s3_op_message(op, 0,
                           etag[0] ? "its ETag is %s, which if_match does not name"
                                   : "if_match is given, and the server tells no ETag%s",
                           etag);
    else if (op->by == DLPI_S3_BY_HEAD)
        dlpi_s3_op_message(op, 0, "its ETag has changed while it was downloaded; read it again");
    else if (!etag[0])
        dlpi_s3_op_message(op, 0,
                           "the answer has no ETag, and the list has one; if a proxy strips it, do "
                           "without the proxy, or set any_version");
    else if (dlpi_s3_etag_named(op->r->if_match, etag, true))
        dlpi_s3_op_message(
            op, 0,
            "its ETag is weak (W/), which is not enough for a range; if a proxy weakens "
            "it, do without the proxy, or set any_version");
    else
        dlpi_s3_op_message(op, 0, "its ETag is not that of the list: %s", dlpi_s3_overwritten);
    return DLPI_S3_T_OTHER;
}

/* Compare the ETag with if_match, and with that of the earlier answers, which must be the same, or
   missing in all. The first one is kept. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_etag(dlpi_s3_op *op, const dlpi_s3_http *h) {
    dlp_s3_request *r = op->r;
    if (r->if_match && !dlpi_s3_etag_named(r->if_match, h->etag, dlpi_s3_op_weakly(op)))
        return dlpi_s3_etag_wrong(op, h->etag);
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

/* True if anybody may have led the op to where it is: its endpoint has no TLS. A Location that is
   signed, as those of AWS, Google and Azure are, is taken for the server's own. */
static bool dlpi_s3_op_led_away(const dlp_s3_io *io, const dlpi_s3_op *op) {
    const char *query = op->to_query ? op->to_query : "";
    return !io->s3->endpoint.tls && !strstr(query, "Signature=") && !strstr(query, "&sig=");
}

/* Refuse an answer without ETag and request id after a redirect to another host: it may be a login
   page of a network. If anybody may have led it there, a whole object must have both, and be no
   page, unless if_match names its ETag. Returns DLPI_S3_FINE or DLPI_S3_T_OTHER. */
static int dlpi_s3_head_stranger(const dlp_s3_io *io, dlpi_s3_op *op, const dlpi_s3_http *h) {
    const dlp_s3_request *r = op->r;
    const char *lacks = !h->etag_sum ? "no ETag" : "no request id";
    if (!op->foreign || r->method == DLP_S3_PUT) return DLPI_S3_FINE;
    if (r->query || h->status == 206 || !dlpi_s3_op_led_away(io, op)) {
        if (h->etag_sum || h->request_id[0]) return DLPI_S3_FINE;
        lacks = "no ETag, no request id";
    } else if (h->is_page) {
        lacks = "an HTML page";
    } else if (h->etag_sum) {
        if (h->request_id[0]) return DLPI_S3_FINE;
        if (r->if_match && dlpi_s3_etag_named(r->if_match, h->etag, true)) return DLPI_S3_FINE;
    }
    dlpi_s3_op_message(op, 0,
                       "a redirect led to %.60s, which is no server of objects (%s); check the "
                       "endpoint",
                       op->to.host, lacks);
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
   begins again, and accepts gzip, as later requests do from their beginning. If a server encodes
   what it has stored plain, for clients that accept gzip, the request begins again without that.
   Returns DLPI_S3_FINE or DLPI_S3_T_*. */
static int dlpi_s3_head_stored(dlpi_s3_op *op, const dlpi_s3_http *h) {
    if (h->stored_encoded == h->encoded || (!op->as_stored && !h->stored_encoded))
        return DLPI_S3_FINE;
    dlpi_s3_op_message(
        op, 0,
        h->encoded ? "the server encodes the object, which is stored plain; turn compression off"
                   : "the server decodes the object, which is stored with a "
                     "Content-Encoding");
    if (op->turned) return DLPI_S3_T_OTHER;
    op->turned = true;
    op->as_stored = !op->as_stored;
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
        if (op->sums && all && dlpi_s3_http_tells(h, kind)) op->crc_kind = kind;
    range->crc_is_told = op->crc_kind && dlpi_s3_http_tells(h, op->crc_kind);
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
    code = dlpi_s3_head_stored(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_same(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_etag(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_extent_of(op, h, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_bounds(range, connection, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_size(op, &x);
    if (code != DLPI_S3_FINE) return code;
    dlpi_s3_head_checksum(range, h, &x);
    op->opened = true;
    op->over->sorts = op->over->sorts || h->sorts;
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
    return r->if_match && !dlpi_s3_etag_named(r->if_match, connection->http.etag, false) &&
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
