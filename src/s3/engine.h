#pragma once
/* tests: system/s3/s3_engine */
#include "s3/turn.h"
/* ---- requests, taken in ---- */

/* Refuse a request: r->error gets "field: why". Returns DLP_ERR_ARG. */
static int dlpi_s3_bad(dlp_s3_request *r, const char *field, const char *why) {
    memset(&r->error, 0, sizeof r->error);
    return r->code = dlpi_s3_set_error(&r->error, DLP_ERR_ARG, 0, "%s: %s", field, why);
}

/* True if a text is printable ASCII: it may stand in the head of a request. */
static bool dlpi_s3_is_printable(const char *s) {
    while (*s >= 32 && *s < 127) s++;
    return *s == '\0';
}

/* Check a request's body and capacity, or its pieces. Returns DLP_OK or DLP_ERR_ARG. */
static int dlpi_s3_check_memory(dlp_s3_request *r) {
    uint64_t sum = 0;
    if (r->n_pieces > 0 && !r->pieces)
        return dlpi_s3_bad(r, "pieces", "is NULL, but n_pieces is not 0");
    if (!r->pieces) {
        if (r->capacity > 0 && !r->body && r->method != DLP_S3_HEAD)
            return dlpi_s3_bad(r, "body", "is NULL, but capacity is not 0");
        if (r->method == DLP_S3_GET && r->length > r->capacity)
            return dlpi_s3_bad(r, "capacity", "must be at least length");
        return DLP_OK;
    }
    if (r->method != DLP_S3_GET) return dlpi_s3_bad(r, "pieces", "must be NULL, but for GET");
    if (r->length == 0) return dlpi_s3_bad(r, "length", "must be set with pieces");
    for (uint32_t i = 0; i < r->n_pieces; i++) {
        if (r->pieces[i].bytes > r->length - sum)
            return dlpi_s3_bad(r, "pieces", "have more bytes than length");
        sum += r->pieces[i].bytes;
    }
    return sum == r->length ? DLP_OK : dlpi_s3_bad(r, "pieces", "have fewer bytes than length");
}

/* Check the fields of a request. Returns DLP_OK, or DLP_ERR_ARG with r->error filled in. */
static int dlpi_s3_check(dlp_s3_request *r) {
    if (r->method < DLP_S3_GET || r->method > DLP_S3_PUT)
        return dlpi_s3_bad(r, "method", "must be DLP_S3_GET, _HEAD or _PUT");
    if (!r->bucket || !r->bucket[0] || strnlen(r->bucket, 256) > 255)
        return dlpi_s3_bad(r, "bucket", "must have 1 to 255 bytes");
    for (const char *p = r->bucket; *p; p++)
        if (*p <= 32 || *p >= 127 || *p == '/')
            return dlpi_s3_bad(r, "bucket",
                               "must be printable, without blanks and '/'; leave out s3://");
    if (!r->key) return dlpi_s3_bad(r, "key", "is NULL");
    if (!r->key[0] && r->method != DLP_S3_PUT && !r->query)
        return dlpi_s3_bad(r, "key", "is empty; name an object, or give a query");
    if (strnlen(r->key, 1025) > 1024) return dlpi_s3_bad(r, "key", "must have at most 1024 bytes");
    if (r->query && (!dlpi_s3_is_printable(r->query) || strpbrk(r->query, " #")))
        return dlpi_s3_bad(r, "query",
                           "must be printable, without blanks and '#'; escape them (%20)");
    if (r->if_match && !dlpi_s3_is_printable(r->if_match))
        return dlpi_s3_bad(r, "if_match", "must be printable");
    if (r->offset > INT64_MAX || r->length > INT64_MAX - r->offset)
        return dlpi_s3_bad(r, "length", "offset and length must end below 2^63");
    if (r->method != DLP_S3_GET && (r->offset || r->length))
        return dlpi_s3_bad(r, "offset", "offset and length must be 0, but for GET");
    if (r->query && (r->offset || r->length))
        return dlpi_s3_bad(r, "query", "must be NULL with offset or length");
    if (r->version_id && (r->query || r->method == DLP_S3_PUT))
        return dlpi_s3_bad(r, "version_id", "must be NULL with query, or for PUT");
    if (r->version_id && (!r->version_id[0] || strnlen(r->version_id, 1025) > 1024 ||
                          !dlpi_s3_is_printable(r->version_id)))
        return dlpi_s3_bad(r, "version_id", "must be 1 to 1024 printable characters");
    return dlpi_s3_check_memory(r);
}

/* Fill in a free op for a request. Nothing is sent, and the op stays on the list of free ops. */
static void dlpi_s3_op_begin(const dlp_s3_io *io, dlpi_s3_op *op, dlp_s3_request *r) {
    const char *region = NULL;
    op->r = r;
    op->origin = NULL;
    op->bound = r->length ? r->length : r->method == DLP_S3_GET ? r->capacity : 0;
    op->cost = r->length ? r->length : r->method == DLP_S3_HEAD ? 0 : r->capacity;
    op->n_ranges = 0;
    op->attempts = 0;
    op->turn = 0;
    memset(&op->tries, 0, sizeof op->tries);
    op->turned = op->failed = op->moved = op->foreign = false;
    op->as_stored = r->method != DLP_S3_PUT && !r->query &&
                    DLPI_LOAD_RLX(&io->s3->common->shared.decodes); /* S10 */
    op->by = DLPI_S3_BY_USER;
    for (int by = DLPI_S3_BY_MANIFEST; by <= DLPI_S3_BY_HEAD; by++)
        if (r->internal == &dlpi_s3_etags_of[by]) op->by = (uint8_t)by;
    op->bare = io->bare && dlpi_s3_op_weakly(op);
    op->sums = io->desc->checksums > 0 && r->method == DLP_S3_GET && !r->query;
    op->checksum = op->sums && !io->no_checksums;
    op->region[0] = '\0';
    if (DLPI_LOAD_RLX(&io->s3->common->n_regions)) /* S4 */
        region = dlpi_s3_region_find(io->s3->common, r->bucket);
    if (region) dlpi_s3_copy(op->region, sizeof op->region, region);
}

/* Begin a request, as dlp_s3_submit does. At its end it goes to the list over, which counts it
   until then. Returns DLP_OK; DLP_FULL: no op is free, or max_bytes is reached; an error code. */
static int dlpi_s3_submit(dlp_s3_io *io, dlp_s3_request *r, dlpi_s3_over *over) {
    dlpi_s3_op *op;
    const char *why;
    int code;
    if (!io || !r) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    why = r->bucket ? dlpi_s3_bucket_beyond(&io->s3->endpoint, r->bucket) : NULL;
    code = why ? dlpi_s3_bad(r, "bucket", why) : dlpi_s3_check(r);
    if (code != DLP_OK) return code;
    if (dlpi_s3_ring_empty(&io->free_ops)) return DLP_FULL;
    op = DLPI_S3_OF(io->free_ops.next, dlpi_s3_op, node);
    dlpi_s3_op_begin(io, op, r);
    if (io->desc->max_bytes && io->bytes_out &&
        (op->cost > io->desc->max_bytes || io->bytes_out > io->desc->max_bytes - op->cost))
        return DLP_FULL;
    code = dlpi_s3_op_settle(io, op);
    if (code == DLP_ERR_ARG)
        return dlpi_s3_bad(
            r, "bucket",
            "does not fit into the host's name; set style to DLP_S3_STYLE_PATH, or mend region");
    if (code != DLP_OK) return code;
    r->code = 0;
    dlpi_s3_op_reset(io, op);
    memset(&r->error, 0, sizeof r->error);
    r->internal = op;
    op->over = over;
    over->out++;
    io->bytes_out += op->cost;
    io->now = dlpi_s3_now_ns();
    dlpi_s3_ring_out(&op->node);
    dlpi_s3_ring_last(&io->wanting, &op->node);
    op->begun_ns = op->moved_ns = io->now;
    dlpi_s3_timer_set(&io->timers, &op->timer,
                      io->now + dlpi_s3_ms(dlpi_s3_bound_ms(io->desc, &why)));
    dlpi_s3_pump(io);
    return DLP_OK;
}

DLPDEF int dlp_s3_submit(dlp_s3_io *io, dlp_s3_request *r) {
    return dlpi_s3_submit(io, r, io ? &io->over : NULL);
}

/* Take the first ended request off the list. Returns the request, or NULL if the list is empty. */
static dlp_s3_request *dlpi_s3_over_take(dlpi_s3_over *over) {
    dlp_s3_request *r = over->first;
    if (!r) return NULL;
    over->first = (dlp_s3_request *)r->internal;
    r->internal = NULL;
    return r;
}

/* Return the time until which a wait of timeout_ms lasts: 0 is for ever, below 0 is not at all. */
static uint64_t dlpi_s3_until(const dlp_s3_io *io, int timeout_ms) {
    if (timeout_ms == 0) return UINT64_MAX;
    return timeout_ms < 0 ? io->now : io->now + (uint32_t)timeout_ms * DLPI_S3_MS;
}

DLPDEF int dlp_s3_reap(dlp_s3_io *io, dlp_s3_request **done, int max, int timeout_ms) {
    uint64_t until;
    int n = 0;
    if (!io || (!done && max > 0)) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    if (max <= 0) return 0;
    io->now = dlpi_s3_now_ns();
    until = dlpi_s3_until(io, timeout_ms);
    while (!io->over.first && io->over.out > 0) {
        if (dlpi_s3_turn(io, until) != 0) return DLP_ERR_SYSTEM;
        if (io->now >= until) break;
    }
    while (n < max && (done[n] = dlpi_s3_over_take(&io->over)) != NULL) n++;
    return n;
}

/* End a request, because waiting for sockets failed with errnum. Returns DLP_ERR_SYSTEM. */
static int dlpi_s3_give_up(dlp_s3_io *io, dlp_s3_request *r, int errnum) {
    dlpi_s3_op *op = (dlpi_s3_op *)r->internal;
    dlpi_s3_op_message(op, errnum, "cannot wait for sockets: %s", strerror(errnum));
    dlpi_s3_op_end(io, op, DLP_ERR_SYSTEM);
    return r->code;
}

DLPDEF int dlp_s3_do(dlp_s3_io *io, dlp_s3_request *r) {
    dlpi_s3_over mine = {0, NULL, NULL, false};
    int code;
    if (!io || !r) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    code = dlpi_s3_submit(io, r, &mine);
    while (code == DLP_OK && !mine.first) {
        int errnum = dlpi_s3_turn(io, UINT64_MAX);
        if (errnum != 0 && !mine.first) return dlpi_s3_give_up(io, r, errnum);
    }
    return code != DLP_OK ? code : r->code;
}

/* ---- made and ended ---- */

/* Return the place of the next part, of n bytes, in the mapping at base, and move *at, which counts
   the bytes, behind it. base NULL: only count, and return NULL. */
static void *dlpi_s3_carve(char *base, size_t *at, size_t n) {
    void *p = base ? base + *at : NULL;
    *at += (n + DLPI_S3_LINE - 1) / DLPI_S3_LINE * DLPI_S3_LINE;
    return p;
}

/* Lay out an io in the zeroed mapping at base; NULL: only count. Returns the mapping's bytes. */
static size_t dlpi_s3_io_lay(char *base, uint32_t n_ops, uint32_t n_connections) {
    size_t at = 0;
    dlp_s3_io *io = (dlp_s3_io *)dlpi_s3_carve(base, &at, sizeof *io);
    dlpi_s3_op *ops = (dlpi_s3_op *)dlpi_s3_carve(base, &at, n_ops * sizeof *ops);
    dlpi_s3_range *ranges = (dlpi_s3_range *)dlpi_s3_carve(base, &at, n_ops * sizeof *ranges);
    dlpi_s3_connection *connections =
        (dlpi_s3_connection *)dlpi_s3_carve(base, &at, n_connections * sizeof *connections);
    void *heap =
        dlpi_s3_carve(base, &at, (2 * n_ops + n_connections + 1) * sizeof(dlpi_s3_timer *));
    void *scratch = dlpi_s3_carve(base, &at, DLPI_S3_SCRATCH);
    char *each = (char *)dlpi_s3_carve(
        base, &at, n_connections * (size_t)(DLPI_S3_OUT_BYTES + DLPI_S3_ERROR_BYTES));
    if (!base) return at;
    io->ops = ops;
    io->ranges = ranges;
    io->connections = connections;
    io->n_ops = n_ops;
    io->n_connections = n_connections;
    io->timers.at = (dlpi_s3_timer **)heap;
    io->scratch = (char *)scratch;
    io->bytes = at;
    for (uint32_t i = 0; i < n_connections; i++) {
        connections[i].out = each + i * (size_t)(DLPI_S3_OUT_BYTES + DLPI_S3_ERROR_BYTES);
        connections[i].error = connections[i].out + DLPI_S3_OUT_BYTES;
    }
    return at;
}

static void dlpi_s3_timer_begin(dlpi_s3_timer *t, int kind, void *of) {
    t->due = UINT64_MAX;
    t->kind = kind;
    t->of = of;
}

/* Begin the lists and timers of an io, and put its records on the lists of free records. */
static void dlpi_s3_io_records(dlp_s3_io *io) {
    dlpi_s3_node *lists[] = {&io->free_ops, &io->free_ranges, &io->free_connections, &io->wanting,
                             &io->idle,     &io->hungry,      &io->draining};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) dlpi_s3_ring_begin(lists[i]);
    for (unsigned i = 0; i < DLPI_S3_CLASSES; i++) dlpi_s3_ring_begin(&io->awaited[i]);
    for (uint32_t i = 0; i < io->n_ops; i++) {
        dlpi_s3_op *op = &io->ops[i];
        dlpi_s3_range *range = &io->ranges[i];
        dlpi_s3_timer_begin(&op->timer, DLPI_S3_TIMER_OP, op);
        dlpi_s3_timer_begin(&range->timer, DLPI_S3_TIMER_RANGE, range);
        dlpi_s3_ring_begin(&op->ranges);
        dlpi_s3_ring_begin(&range->sibling);
        dlpi_s3_ring_begin(&range->awaited);
        dlpi_s3_ring_last(&io->free_ops, &op->node);
        dlpi_s3_ring_last(&io->free_ranges, &range->queue);
    }
    for (uint32_t i = 0; i < io->n_connections; i++) {
        dlpi_s3_connection *connection = &io->connections[i];
        dlpi_s3_timer_begin(&connection->timer, DLPI_S3_TIMER_CONNECTION, connection);
        connection->conn.fd = -1;
        dlpi_s3_ring_begin(&connection->age);
        dlpi_s3_ring_last(&io->free_connections, &connection->node);
    }
}

/* Count one more user of a client (user is the dlp_s3). Any thread of this process may call it. */
static void dlpi_s3_keep(void *user) {
    dlp_s3 *s3 = (dlp_s3 *)user;
    DLPI_ADD_SEQ(&s3->users, 1u); /* S5 -> S5 */
}

/* Count one user of a client less, and free the client if that was the last. Any thread of this
   process may call it. The shared memory is not wiped: other processes may still use it. */
static void dlpi_s3_drop(void *user) {
    dlp_s3 *s3 = (dlp_s3 *)user;
    if (DLPI_ADD_SEQ(&s3->users, (uint64_t)-1) != 1) return; /* S5 <- S5, by the last */
    if (s3->own_tls) dlpi_s3_tls_free(&s3->tls);
    munmap(s3->common, s3->common_bytes);
    free(s3);
}

/* Add change to the number of this process' open dlp_s3_io. A fork's parent's do not count. */
static void dlpi_s3_count_io(dlp_s3 *s3, int32_t change) {
    uint64_t pid = (uint64_t)(uint32_t)getpid(), is = DLPI_LOAD_RLX(&s3->ios), then; /* S6 */
    do then = (is >> 32 == pid ? is : pid << 32) + (uint64_t)(int64_t)change;
    while (!DLPI_CAS_SEQ(&s3->ios, &is, then)); /* S6, nothing depends on its order */
}

/* Refresh the credentials of user, a dlp_s3, in the helper's thread: dlpi_s3_owner.refresh. */
static int dlpi_s3_refresh_run(void *user, uint64_t seen, bool force, const uint32_t *stop,
                               dlp_s3_error *err) {
    dlpi_s3_common *common = ((dlp_s3 *)user)->common;
    return dlpi_s3_cred_cache_refresh_until(&common->config, &common->cred_cache, seen, force, stop,
                                            err);
}

DLPDEF int dlp_s3_io_open(dlp_s3_io **out, dlp_s3 *s3, dlp_s3_error *err) {
    const dlpi_s3_owner owner = {s3, dlpi_s3_refresh_run, dlpi_s3_keep, dlpi_s3_drop};
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = UINT32_MAX};
    uint32_t n, spare;
    size_t bytes;
    char *base;
    dlp_s3_io *io;
    if (err) memset(err, 0, sizeof *err);
    if (!out || !s3) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: NULL", out ? "s3" : "out");
    n = (uint32_t)s3->desc.max_requests;
    spare = s3->desc.hedge_percent > 0 ? n / 8 + 4 : 0;
    bytes = dlpi_s3_io_lay(NULL, n, n + spare);
    base = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, errno,
                                 "no %zu bytes for requests; lower max_requests", bytes);
    madvise(base, bytes, MADV_DONTDUMP); /* keys are in it */
    dlpi_s3_io_lay(base, n, n + spare);
    io = (dlp_s3_io *)(void *)base;
    io->s3 = s3;
    io->desc = &s3->desc;
    io->pid = getpid();
    io->now = dlpi_s3_now_ns();
    io->woken_ns = io->now;
    dlpi_s3_io_records(io);
    dlpi_s3_patience_begin(&io->patience, &s3->common->shared, &s3->desc,
                           io->now ^ (uint64_t)(uintptr_t)io ^ (uint64_t)io->pid << 32);
    io->helper = dlpi_s3_helper_new(&owner);
    io->epoll = dlpi_fd_above(epoll_create1(EPOLL_CLOEXEC));
    if (!io->helper || io->epoll < 0 ||
        epoll_ctl(io->epoll, EPOLL_CTL_ADD, dlpi_s3_helper_fd(io->helper), &e) != 0) {
        int errnum = errno;
        dlpi_s3_helper_free(io->helper);
        if (io->epoll >= 0) close(io->epoll);
        munmap(base, bytes);
        return dlpi_s3_set_error(err, errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, errnum,
                                 "no epoll set: %s; raise the limit of open files",
                                 strerror(errnum));
    }
    dlpi_s3_count_io(s3, 1);
    *out = io;
    return DLP_OK;
}

DLPDEF void dlp_s3_io_close(dlp_s3_io *io) {
    if (!io) return;
    for (uint32_t i = 0; i < io->n_connections; i++) dlpi_s3_conn_close(&io->connections[i].conn);
    close(io->epoll);
    if (io->pid == getpid()) dlpi_s3_count_io(io->s3, -1);
    dlpi_s3_helper_free(io->helper);
    dlpi_s3_wipe(&io->who, sizeof io->who);
    dlpi_s3_wipe(&io->keys, sizeof io->keys);
    munmap(io, io->bytes);
}
