/* Connections that do not block: begun, brought forward, read, written, refused, reset, ended;
   plain ones and those of a TLS library that is plugged in. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_s3.h"

#include "s3_transport.h"

/* Connect to a listener of our own. Returns the server's end. */
static int connect_pair(dlpi_s3_conn *c, int listener, const dlpi_s3_address *a) {
    CHECK(dlpi_s3_conn_open(c, a, NULL, "localhost") == 0);
    CHECK(step_on(c) == 0);
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void echo_over(int family) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char bytes[16] = "";
    int one = 0, listener = listen_on(family, &a), server;
    socklen_t n = sizeof one;
    if (listener < 0) {
        printf("no loopback for family %d: left out\n", family);
        return;
    }
    server = connect_pair(&c, listener, &a);
    CHECK(fcntl(c.fd, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(c.fd, F_GETFD) & FD_CLOEXEC);
    CHECK(getsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, &n) == 0 && one != 0);
    CHECK(dlpi_s3_conn_read(&c, bytes, sizeof bytes) == DLP_S3_WANT_READ);
    CHECK(write_on(&c, "hello", 5) == 5);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "hello", 5) == 0);
    CHECK(send(server, "world", 5, MSG_NOSIGNAL) == 5);
    CHECK(read_on(&c, bytes, 3) == 3 && memcmp(bytes, "wor", 3) == 0);
    CHECK(read_on(&c, bytes, sizeof bytes) == 2 && memcmp(bytes, "ld", 2) == 0);
    CHECK(!dlpi_s3_conn_pending(&c));
    close(server);
    CHECK(read_on(&c, bytes, sizeof bytes) == 0);
    dlpi_s3_conn_close(&c);
    dlpi_s3_conn_close(&c);
    CHECK(c.fd == -1);
    close(listener);
}

static void conn__two_families__bytes_both_ways(void) {
    echo_over(AF_INET);
    echo_over(AF_INET6);
}

static void conn__nobody_listens__refused_with_address(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char text[64];
    int listener = listen_on(AF_INET, &a), code;
    close(listener);
    code = dlpi_s3_conn_open(&c, &a, NULL, "localhost");
    if (code == 0) code = step_on(&c);
    CHECK(code == DLP_S3_BROKEN && c.errnum == ECONNREFUSED);
    dlpi_s3_address_text(&a, text, sizeof text);
    CHECK(strstr(c.why, "cannot connect") != NULL && strstr(c.why, text) != NULL);
    dlpi_s3_conn_close(&c);
}

int main(void) {
    conn__two_families__bytes_both_ways();
    conn__nobody_listens__refused_with_address();
    return done("s3_transport");
}
