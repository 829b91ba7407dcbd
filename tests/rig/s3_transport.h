/* What the tests of connections share: checks, listeners, loops around calls that do not wait.
   Included behind dlpipe_s3.h's implementation. */
#ifndef S3_TRANSPORT_H
#define S3_TRANSPORT_H

#include "check.h"

/* A socket with a port of the loopback address of this family; -1: there is none. */
static int bound_to(int family, dlpi_s3_address *a) {
    int fd;
    CHECK(dlpi_s3_address_numeric(family == AF_INET6 ? "::1" : "127.0.0.1", 0, a));
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, &a->at.any, a->n) != 0 || getsockname(fd, &a->at.any, &a->n) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    return fd;
}

/* One that listens there. */
static int listen_on(int family, dlpi_s3_address *a) {
    int fd = bound_to(family, a);
    if (fd >= 0 && listen(fd, 64) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Until the socket is ready for what the call wants; false: twenty seconds have passed. */
static bool wait_for(const dlpi_s3_conn *c, int64_t wants) {
    struct pollfd p = {.fd = c->fd, .events = wants == DLP_S3_WANT_READ ? POLLIN : POLLOUT};
    int rc;
    do rc = poll(&p, 1, 20000);
    while (rc < 0 && errno == EINTR);
    return rc == 1;
}

__attribute__((unused)) static int step_on(dlpi_s3_conn *c) {
    int code;
    while ((code = dlpi_s3_conn_step(c)) != 0 && code != DLP_S3_BROKEN)
        if (!wait_for(c, code)) return DLP_S3_BROKEN;
    return code;
}

__attribute__((unused)) static int64_t read_on(dlpi_s3_conn *c, void *to, size_t n) {
    int64_t got;
    while ((got = dlpi_s3_conn_read(c, to, n)) < 0 && got != DLP_S3_BROKEN)
        if (!wait_for(c, got)) return DLP_S3_BROKEN;
    return got;
}

__attribute__((unused)) static int64_t write_on(dlpi_s3_conn *c, const void *from, size_t n) {
    int64_t put;
    while ((put = dlpi_s3_conn_write(c, from, n)) < 0 && put != DLP_S3_BROKEN)
        if (!wait_for(c, put)) return DLP_S3_BROKEN;
    return put;
}

#endif
