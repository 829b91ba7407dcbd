#pragma once
/* tests: system/s3/s3_hostile, fuzz/fuzz_s3 */
#include "s3/connection.h"
/* ---- where a request goes ---- */

static const char *dlpi_s3_op_region(const dlp_s3_io *io, const dlpi_s3_op *op) {
    return op->region[0] ? op->region : io->s3->common->config.region;
}

/* Write an op's Host header and path into io->host and io->path. Returns DLP_OK or DLP_ERR_ARG. */
static int dlpi_s3_op_address(dlp_s3_io *io, const dlpi_s3_op *op) {
    const dlpi_s3_endpoint *e = &op->to;
    if (!op->moved)
        return dlpi_s3_place(&io->s3->endpoint, dlpi_s3_op_region(io, op), io->desc->style,
                             op->r->bucket, op->r->key, io->host, sizeof io->host, io->path,
                             sizeof io->path);
    dlpi_s3_endpoint_host(e, io->host, sizeof io->host);
    dlpi_s3_copy(io->path, sizeof io->path, op->to_path);
    return DLP_OK;
}

/* Close the connections of origins that no op goes to: idle ones, and those that are being opened,
   or read to the end of an answer. */
static void dlpi_s3_origins_clear(dlp_s3_io *io) {
    for (uint32_t i = 0; i < io->n_connections; i++) {
        dlpi_s3_connection *connection = &io->connections[i];
        if (connection->state == DLPI_S3_CONNECTION_FREE || connection->range ||
            connection->origin->ops > 0)
            continue;
        dlpi_s3_connection_close(io, connection);
    }
}

/* Find the origin that an op goes to, and count the op there. None of its ranges is queued. Returns
   DLP_OK; DLP_ERR_ARG: there is no such place; DLP_FULL: all origins are in use. */
static int dlpi_s3_op_settle(dlp_s3_io *io, dlpi_s3_op *op) {
    bool tls = op->moved ? op->to.tls != 0 : io->s3->endpoint.tls != 0;
    dlpi_s3_origin *origin = io->last_origin;
    char name[256];
    uint16_t port;
    if (dlpi_s3_op_address(io, op) != DLP_OK ||
        dlpi_s3_place_address(io->host, tls, name, &port) != DLP_OK)
        return DLP_ERR_ARG;
    if (!origin || origin->port != port || origin->tls != tls || strcmp(origin->host, name) != 0) {
        origin = dlpi_s3_origin_get(io, name, port, tls);
        if (!origin) {
            dlpi_s3_origins_clear(io);
            origin = dlpi_s3_origin_get(io, name, port, tls);
        }
        if (!origin) return DLP_FULL;
        io->last_origin = origin;
    }
    if (op->origin) op->origin->ops--;
    op->origin = origin;
    origin->ops++;
    return DLP_OK;
}

/* Move an op to its new place, with those of its ranges that are not on a connection. If that place
   cannot be used, the op ends. */
static void dlpi_s3_op_move(dlp_s3_io *io, dlpi_s3_op *op) {
    int code;
    for (dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next) {
        dlpi_s3_range *range = DLPI_S3_OF(n, dlpi_s3_range, sibling);
        if (range->state == DLPI_S3_RANGE_WAITING)
            dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
        else if (range->state == DLPI_S3_RANGE_HEDGING)
            dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
    }
    code = dlpi_s3_op_settle(io, op);
    if (code != DLP_OK) {
        dlpi_s3_op_add(op, "and its Location cannot be used; give the endpoint that it leads to");
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    for (dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next) {
        dlpi_s3_range *range = DLPI_S3_OF(n, dlpi_s3_range, sibling);
        if (range->state == DLPI_S3_RANGE_NONE) dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
    }
}

/* Return in which of AWS' domains (0, 1) a host is S3's own: "s3.REGION", "BUCKET.s3-REGION",
   "BUCKET.s3.dualstack.REGION"; -1: none. Rented machines have names there, too. */
static int dlpi_s3_host_aws(const char *host) {
    static const char *const domains[] = {".amazonaws.com", ".amazonaws.com.cn"};
    size_t end = strlen(host), k = strlen(domains[0]);
    int which = end > k && strcmp(host + end - k, domains[0]) == 0 ? 0 : 1;
    k = strlen(domains[which]);
    if (end <= k || strcmp(host + end - k, domains[which]) != 0) return -1;
    end -= k;
    for (int label = 0; label < 3; label++) { /* from the last one on */
        size_t at = end, n;
        while (at > 0 && host[at - 1] != '.') at--;
        n = end - at;
        if (n >= 2 && memcmp(host + at, "s3", 2) == 0 && (n == 2 || host[at + 2] == '-'))
            return which;
        if (at == 0 || (label == 1 && (n != 9 || memcmp(host + at, "dualstack", 9) != 0))) break;
        end = at - 1;
    }
    return -1;
}

/* True if an address belongs to the service of the endpoint: the same port, and the same host or
   one below it. If the endpoint is S3 of AWS, its other hosts in that domain belong to it, too. */
static bool dlpi_s3_kin(const dlpi_s3_endpoint *to, const dlpi_s3_endpoint *endpoint) {
    const char *host = to->host, *own = endpoint->host;
    size_t n = strlen(host), m = strlen(own);
    if (to->port != endpoint->port && !(to->is_default_port && endpoint->is_default_port))
        return false;
    if (strcmp(host, own) == 0) return true;
    if (strspn(own, "0123456789.") == m) return false; /* addresses have no names below */
    if (n > m && host[n - m - 1] == '.' && strcmp(host + n - m, own) == 0) return true;
    return dlpi_s3_host_aws(host) >= 0 && dlpi_s3_host_aws(host) == dlpi_s3_host_aws(own);
}

/* Keep the path and the query of a Location (at: from its path on) in the op. */
static void dlpi_s3_op_target(dlpi_s3_op *op, const char *at) {
    size_t path = strcspn(at, "?#"), query = 0;
    op->to_query = NULL;
    if (path == 0) dlpi_s3_copy(op->to_path, sizeof op->to_path, "/");
    memcpy(op->to_path, at, path);
    if (path > 0) op->to_path[path] = '\0';
    if (at[path] != '?') return;
    query = strcspn(at + path + 1, "#");
    path = strlen(op->to_path) + 1;
    op->to_query = op->to_path + path;
    memcpy(op->to_path + path, strchr(at, '?') + 1, query);
    op->to_path[path + query] = '\0';
}

/* Have an op go to a Location: a URL, or a path on the server. Returns NULL or an error text. */
static const char *dlpi_s3_op_redirect(dlp_s3_io *io, dlpi_s3_op *op, const char *location) {
    const char *at = location, *why = NULL;
    const dlpi_s3_endpoint *from = op->moved ? &op->to : &io->s3->endpoint;
    dlpi_s3_endpoint to = *from;
    to.prefix[0] = '\0';
    if (location[0] != '/') why = dlpi_s3_url_split(&to, location, &at); /* else the same server */
    if (why) return why;
    if (from->tls && !to.tls)
        return "it leads from https to http; give the endpoint that it leads to";
    if (to.tls && !io->s3->has_tls)
        return "it leads to https; compile with DLPIPE_S3_OPENSSL, or give tls";
    dlpi_s3_op_target(op, at);
    op->to = to;
    op->foreign = !dlpi_s3_kin(&to, &io->s3->endpoint);
    op->moved = true;
    return NULL;
}
