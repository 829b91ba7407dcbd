#pragma once
/* tests: system/s3/s3_faults */
#include "s3/address.h"
/* ---- verdicts ---- */

/* True if a request is fetched in parts. bound: bytes that it may have if it gives no length. */
static bool dlpi_s3_op_splits(const dlp_s3_io *io, const dlp_s3_request *r, uint64_t bound) {
    if (r->method != DLP_S3_GET || r->query) return false;
    return (r->length ? r->length : bound) > io->desc->part_bytes;
}

/* True if a weak ETag in the answer is enough. The list's ETag of a whole object may come back
   weak, by a proxy that marks it so. The whole object is then still the version that was listed. */
static bool dlpi_s3_op_weakly(const dlpi_s3_op *op) {
    return op->by == DLPI_S3_BY_MANIFEST && op->r->offset == 0 && op->r->length == 0;
}

/* Set an op to its beginning: nothing of the object has come. */
static void dlpi_s3_op_reset(const dlp_s3_io *io, dlpi_s3_op *op) {
    dlp_s3_request *r = op->r;
    op->next = 0;
    op->cursor.piece = 0;
    op->cursor.at = 0;
    op->size = r->length ? r->length : UINT64_MAX;
    op->split = dlpi_s3_op_splits(io, r, op->bound);
    op->crc = 0;
    op->crc_doubt = false;
    op->crc_kind = DLPI_S3_CRC_NONE;
    op->opened = op->strong = false;
    r->received = r->object_bytes = 0;
    r->etag[0] = '\0';
}

/* Begin all of a request again. */
static void dlpi_s3_op_restart(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_op_cancel(io, op);
    dlpi_s3_op_reset(io, op);
    dlpi_s3_ring_out(&op->node);
    dlpi_s3_ring_first(&io->wanting, &op->node);
}

/* Restart an op whose bytes do not have the checksum that the server tells, or end it. */
static void dlpi_s3_op_damaged(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_trouble t = {.what = DLPI_S3_T_SUM};
    dlpi_s3_op_message(op, 0, "the bytes that came have %s %llx, and the object has %llx",
                       dlpi_s3_crc_name(op->crc_kind), (unsigned long long)op->crc,
                       (unsigned long long)op->crc_told);
    if (dlpi_s3_classify(&t, &op->tries) != DLPI_S3_RESTART) {
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    dlpi_s3_say(io, "s3: %s/%s: %s; again over another connection", op->r->bucket, op->r->key,
                op->r->error.message);
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_op_restart(io, op);
}

/* End a range that has all of its bytes, and its op if that was the last range. */
static void dlpi_s3_range_done(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_op *op = range->op;
    op->r->received += range->done;
    if (range->crc_is_told && range->crc != range->crc_told) {
        op->crc_doubt = true;
        op->crc_told = range->crc_told;
    }
    if (op->crc_kind)
        op->crc ^=
            dlpi_s3_crc_shift(op->crc_kind, range->crc, op->size - range->first - range->done);
    dlpi_s3_tally(io, DLPI_S3_N_BYTES, range->done);
    dlpi_s3_range_end(io, range, UINT64_MAX);
    if (op->n_ranges > 0 || op->next < op->size) return;
    if (op->crc_doubt && op->crc != op->crc_told)
        dlpi_s3_op_damaged(io, op);
    else
        dlpi_s3_op_end(io, op, DLP_OK);
}

/* Have the helper refresh the credentials of this version; force: even if they seem valid. */
static void dlpi_s3_refresh(dlp_s3_io *io, uint64_t version, bool force) {
    if (!io->refreshing) io->refreshes = dlpi_s3_helper_refreshed(io->helper, NULL);
    if (dlpi_s3_helper_refresh(io->helper, version, force) != 0) return;
    io->refreshing = true;
}

/* Fill in what the classifier needs to know of a case and its maker has not told. */
static void dlpi_s3_case_complete(const dlp_s3_io *io, const dlpi_s3_op *op, dlpi_s3_case *c) {
    const dlpi_s3_common *common = io->s3->common;
    int64_t now_s = dlpi_s3_real_s() + c->used_skew_s;
    c->t.method = op->r->method;
    c->t.resumed = op->opened && !op->r->if_match;
    c->opened = op->opened;
    c->t.refreshable = !dlpi_s3_config_fixed(&common->config);
    c->t.has_region = c->region[0] && strcmp(c->region, c->used_region) != 0;
    c->t.has_location = c->location[0] != '\0';
    c->t.skew_s = c->date_s < 0 ? 0 : c->date_s - now_s;
}

/* True if a part is refused for what another part was refused for, and which has been set right
   since this part was sent. Such refusals count once, however many parts are in flight. */
static bool dlpi_s3_case_stale(const dlpi_s3_op *op, const dlpi_s3_case *c) {
    int32_t status = c->t.status;
    if (c->t.what != DLPI_S3_T_ANSWER || c->turn == op->turn) return false;
    if (dlpi_s3_is_throttle(status, c->t.s3_code)) return false;
    return status / 100 == 3 || status == 400 || status == 401 || status == 403;
}

/* Send a range again at once, now that another region, place, clock or key is known. */
static void dlpi_s3_range_again(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    if (range->done && !dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    dlpi_s3_op_move(io, range->op);
}

/* Send a range again, to the region in which its bucket is. The client remembers the region. */
static void dlpi_s3_range_region(dlp_s3_io *io, dlpi_s3_range *range, const char *region) {
    dlpi_s3_op *op = range->op;
    dlpi_s3_say(io, "s3: bucket %s is in %s", op->r->bucket, region);
    dlpi_s3_region_learn(io->s3->common, op->r->bucket, region);
    dlpi_s3_copy(op->region, sizeof op->region, region);
    op->moved = op->foreign = false;
    dlpi_s3_range_again(io, range);
}

/* Send a range again, to the place that the server named. If the place is refused, the request ends
   with DLP_ERR_REMOTE. */
static void dlpi_s3_range_redirect(dlp_s3_io *io, dlpi_s3_range *range, const char *location) {
    dlpi_s3_op *op = range->op;
    const char *why = dlpi_s3_op_redirect(io, op, location);
    if (why) {
        dlpi_s3_op_add(op, why);
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    dlpi_s3_say(io, "s3: %s/%s: sent on to %s", op->r->bucket, op->r->key, op->to.host);
    dlpi_s3_range_again(io, range);
}

/* Send a range again at once, on a new connection: the idle one had been closed. */
static void dlpi_s3_range_replay(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_tally(io, DLPI_S3_N_REPLAYS, 1);
    range->fresh = true;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
}

/* Sign by the server's clock from now on. Requests signed by the old one learn the same. */
static void dlpi_s3_skew_learn(const dlp_s3_io *io, const dlpi_s3_case *c) {
    int64_t *skew_s = &io->s3->common->shared.skew_s, is = c->used_skew_s + c->t.skew_s;
    int64_t was = DLPI_LOAD_RLX(skew_s); /* S7 */
    if (c->date_s < 0 || (is - was <= 1 && was - is <= 1)) return;
    DLPI_STORE_RLX(skew_s, is); /* S7, any value serves */
    dlpi_s3_say(io, "s3: the server's clock differs by %lld s", (long long)is);
}

/* Do what the classifier says about a range that has no connection any more. */
static void dlpi_s3_range_trouble(dlp_s3_io *io, dlpi_s3_range *range, dlpi_s3_case *c) {
    dlpi_s3_op *op = range->op;
    int verdict;
    dlpi_s3_case_complete(io, op, c);
    if (dlpi_s3_case_stale(op, c)) {
        dlpi_s3_range_again(io, range);
        return;
    }
    verdict = dlpi_s3_classify(&c->t, &op->tries);
    op->turn += verdict >= DLPI_S3_OTHER_REGION && verdict <= DLPI_S3_REFRESH;
    switch (verdict) {
    case DLPI_S3_RETRY:
        dlpi_s3_range_retry(io, range, c->retry_after_s, dlpi_s3_case_code(c));
        return;
    case DLPI_S3_REPLAY: dlpi_s3_range_replay(io, range); return;
    case DLPI_S3_OTHER_REGION: dlpi_s3_range_region(io, range, c->region); return;
    case DLPI_S3_REDIRECT: dlpi_s3_range_redirect(io, range, c->location); return;
    case DLPI_S3_SKEW:
        dlpi_s3_skew_learn(io, c);
        dlpi_s3_range_again(io, range);
        return;
    case DLPI_S3_REFRESH:
        dlpi_s3_refresh(io, c->version, true);
        io->held = io->refreshing;
        dlpi_s3_range_again(io, range);
        return;
    case DLPI_S3_RESTART:
        dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
        dlpi_s3_op_restart(io, op);
        return;
    default:
        if (c->t.what == DLPI_S3_T_ANSWER && c->t.status / 100 == 3)
            dlpi_s3_op_add(op, c->t.has_location ? "and redirects, once too often"
                                                 : "without a Location that can be followed");
        dlpi_s3_op_end(io, op, dlpi_s3_case_code(c));
        return;
    }
}

/* Take in that a range has lost a connection: it goes on over its others, or is in trouble. */
static void dlpi_s3_range_lost(dlp_s3_io *io, dlpi_s3_range *range, dlpi_s3_case *c) {
    if (range->n_connections == 0)
        dlpi_s3_range_trouble(io, range, c);
    else
        dlpi_s3_range_await(io, range);
}

/* Return a case of which only the kind of trouble (DLPI_S3_T_*) and an errno are known. */
static dlpi_s3_case dlpi_s3_case_of(int what, int errnum) {
    dlpi_s3_case c;
    memset(&c, 0, sizeof c);
    c.t.what = what;
    c.t.errnum = errnum;
    c.retry_after_s = c.date_s = -1;
    c.region = c.location = c.used_region = "";
    return c;
}

/* Close a connection that has failed (what: DLPI_S3_T_*). Its range, if any, goes on over another,
   or is in trouble. */
static void dlpi_s3_connection_broken(dlp_s3_io *io, dlpi_s3_connection *connection, int what,
                                      int errnum, const char *why) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_case c = dlpi_s3_case_of(what, errnum);
    c.t.began = connection->http.began;
    c.t.reused = connection->served > 0;
    if (range) {
        dlpi_s3_range_part(io, range, connection);
        if (range->n_connections == 0) {
            dlpi_s3_op_message(range->op, errnum, "%s%s", why,
                               what == DLPI_S3_T_BAD ? dlpi_s3_http_cure : "");
            dlpi_s3_op_answer(range->op, connection->http.head_done ? &connection->http : NULL);
        }
    }
    dlpi_s3_connection_close(io, connection);
    if (range) dlpi_s3_range_lost(io, range, &c);
}

/* Refuse the answer on a connection (what: DLPI_S3_T_*), whose rest is not wanted. Its range goes
   on over another, or is in trouble. */
static void dlpi_s3_connection_wrong(dlp_s3_io *io, dlpi_s3_connection *connection, int what) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_case c = dlpi_s3_case_of(what, 0);
    c.t.began = true;
    c.t.status = connection->http.status;
    dlpi_s3_op_answer(range->op, &connection->http);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_lost(io, range, &c);
}

/* ---- errors that the server tells ---- */

enum { DLPI_S3_DOC_NONE, DLPI_S3_DOC_PERHAPS, DLPI_S3_DOC_ERROR, DLPI_S3_DOC_PAGE };

/* True if the text begins with a word, as far as the text goes. */
static bool dlpi_s3_document_has(const char *at, const char *end, const char *word) {
    size_t left = (size_t)(end - at), n = strlen(word);
    return memcmp(at, word, left < n ? left : n) == 0;
}

/* Pass over blanks, a byte order mark and "<?xml ...?>". Returns what follows; the end, if one of
   these is not whole. */
static const char *dlpi_s3_document_begin(const char *at, const char *end) {
    const char *close;
    if (at < end && dlpi_s3_document_has(at, end, "\xef\xbb\xbf"))
        at += end - at < 3 ? end - at : 3;
    while (at < end && dlpi_s3_is_space(*at)) at++;
    if (end - at < 2 || !dlpi_s3_document_has(at, end, "<?xml")) return at;
    close = memmem(at, (size_t)(end - at), "?>", 2);
    at = close ? close + 2 : end;
    while (at < end && dlpi_s3_is_space(*at)) at++;
    return at;
}

/* Return what a body begins with that begins with these n bytes: the document of an error
   (<Error>), a page of HTML, or neither of the two. PERHAPS: they are too few to tell. */
static int dlpi_s3_document(const char *text, size_t n) {
    static const char *const names[] = {"<Error", "<html", "<!doctype html"};
    const char *at = dlpi_s3_document_begin(text, text + n);
    size_t left = n - (size_t)(at - text);
    bool perhaps = left == 0;
    for (int i = 0; i < 3; i++) {
        size_t k = strlen(names[i]), same = left < k ? left : k;
        if ((i == 0 ? strncmp(at, names[i], same) : strncasecmp(at, names[i], same)) != 0) continue;
        if (left <= k)
            perhaps = true;
        else if (at[k] == '>' || at[k] == '/' || dlpi_s3_is_space(at[k]))
            return i == 0 ? DLPI_S3_DOC_ERROR : DLPI_S3_DOC_PAGE;
    }
    return perhaps ? DLPI_S3_DOC_PERHAPS : DLPI_S3_DOC_NONE;
}

/* Fill in the request's error from an answer's head and document. region: gets theirs, or "". */
static void dlpi_s3_error_read(dlpi_s3_op *op, const dlpi_s3_connection *connection, char *region,
                               size_t size) {
    const dlpi_s3_http *h = &connection->http;
    const dlpi_s3_proxy *by = connection->origin->proxy;
    dlp_s3_error *e = &op->r->error;
    char text[200] = "";
    memset(e, 0, sizeof *e);
    e->http_status = h->status;
    dlpi_s3_copy(e->request_id, sizeof e->request_id, h->request_id);
    dlpi_s3_copy(region, size, h->region);
    if (connection->error_n) {
        const char *xml = connection->error;
        size_t n = connection->error_n;
        dlpi_s3_xml_text(xml, n, "Error/Code", e->s3_code, sizeof e->s3_code);
        dlpi_s3_xml_text(xml, n, "Error/Message", text, sizeof text);
        if (!e->request_id[0])
            dlpi_s3_xml_text(xml, n, "Error/RequestId", e->request_id, sizeof e->request_id);
        if (!region[0]) dlpi_s3_xml_text(xml, n, "Error/Region", region, size);
        if (!dlpi_s3_region_ok(region)) region[0] = '\0';
    }
    dlpi_s3_http_keep_shown(e->request_id, sizeof e->request_id, e->request_id,
                            strlen(e->request_id));
    dlpi_s3_http_keep_shown(e->s3_code, sizeof e->s3_code, e->s3_code, strlen(e->s3_code));
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) *p = ' ';
    if (text[0])
        dlpi_s3_op_message(op, 0, "the server says%s: %s",
                           h->status == 200 ? ", though with 200" : "", text);
    else if (by && !connection->origin->tls)
        dlpi_s3_op_message(op, 0, "the server, or the proxy %.150s:%u, answered %d", by->host,
                           (unsigned)by->port, (int)h->status);
    else
        dlpi_s3_op_message(op, 0, "the server answered %d%s", (int)h->status,
                           h->status == 200 ? ", and an error's document" : "");
}

static const char dlpi_s3_overwritten[] =
    "it was overwritten since it was listed; list it again, or set any_version";

/* Say of a 412, or of a 416 in its place, which object is meant. */
static void dlpi_s3_error_version(dlpi_s3_op *op) {
    int32_t status = op->r->error.http_status;
    if (!op->r->if_match || (status != 412 && status != 416)) return;
    if (op->by == DLPI_S3_BY_MANIFEST && status == 416)
        dlpi_s3_op_message(op, 0, "it ends before these bytes: %s", dlpi_s3_overwritten);
    else if (op->by == DLPI_S3_BY_MANIFEST)
        dlpi_s3_op_message(op, 0, "%s", dlpi_s3_overwritten);
    else if (op->by == DLPI_S3_BY_HEAD)
        dlpi_s3_op_message(op, 0, "it was overwritten while it was downloaded; read it again");
    else if (status == 412)
        dlpi_s3_op_add(op, "its ETag is none that if_match names");
}

/* Add to the message what an answer may be that does not say it: a proxy's, or, if it is a 403,
   that of a bucket whose readers pay. */
static void dlpi_s3_error_hint(const dlp_s3_io *io, dlpi_s3_op *op,
                               const dlpi_s3_connection *connection) {
    const dlp_s3_error *e = &op->r->error;
    const dlpi_s3_proxy *by = connection->origin->proxy;
    dlpi_s3_error_version(op);
    if (e->http_status == 407) {
        dlpi_s3_op_add(op, by && by->header[0]
                               ? "it wants another user and password (http://USER:WORD@HOST:PORT)"
                               : "a proxy wants a user and password; set proxy to "
                                 "http://USER:WORD@HOST:PORT");
        return;
    }
    if ((connection->http.is_page && !e->s3_code[0]) ||
        dlpi_s3_document(connection->error, connection->error_n) == DLPI_S3_DOC_PAGE) {
        dlpi_s3_op_add(op, "it sent an HTML page, as proxies and logins do; check endpoint and "
                           "proxy");
        return;
    }
    if (e->http_status != 403 || io->desc->requester_pays || io->desc->anonymous) return;
    if (e->s3_code[0] && strcmp(e->s3_code, "AccessDenied") != 0) return;
    dlpi_s3_op_add(op, "if who asks for this bucket's objects pays, set requester_pays");
}

/* Judge a whole answer that tells an error: note the error, and give its range to the
   classifier. */
static void dlpi_s3_connection_refused(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    dlpi_s3_case c = dlpi_s3_case_of(DLPI_S3_T_ANSWER, 0);
    dlp_s3_error *e = &op->r->error;
    char region[64], used_region[64], location[sizeof connection->http.location];
    bool throttled;
    dlpi_s3_error_read(op, connection, region, sizeof region);
    dlpi_s3_error_hint(io, op, connection);
    throttled = dlpi_s3_is_throttle(e->http_status, e->s3_code);
    if (throttled)
        dlpi_s3_tally(io, DLPI_S3_N_THROTTLED, 1);
    else if (e->http_status < 500 && e->http_status != 408)
        dlpi_s3_heard(io);
    dlpi_s3_answered(&io->patience, io->now, throttled, false);
    c.t.began = true;
    c.t.status = e->http_status;
    c.t.s3_code = e->s3_code;
    c.retry_after_s = connection->http.retry_after_s;
    c.date_s = connection->http.date_s;
    c.version = connection->version;
    c.used_skew_s = connection->skew_s;
    c.turn = connection->turn;
    c.region = region;
    c.location = location;
    c.used_region = used_region;
    dlpi_s3_copy(location, sizeof location, connection->http.location);
    dlpi_s3_copy(used_region, sizeof used_region, connection->region);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_lost(io, range, &c);
}
