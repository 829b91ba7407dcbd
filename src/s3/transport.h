#pragma once
/* tests: system/s3/s3_transport, system/s3/s3_tls */
#include "api/codes.h"
#include "api/atomics.h"
#include "base/descriptors.h"
#include "s3/base.h"
#include "s3/text.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-transport    SOCKETS, TLS
   Connections that never block. One is begun by open, brought forward by step until that returns 0,
   and then read and written; whatever cannot go on says what it waits for. Nothing in here raises
   SIGPIPE, and no handler is set for it: each send carries MSG_NOSIGNAL. */

/* An address, of a size that is known. */
typedef struct dlpi_s3_address {
    socklen_t n;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
} dlpi_s3_address;

enum { DLPI_S3_CONNECTING = 1, DLPI_S3_TUNNEL, DLPI_S3_HANDSHAKE, DLPI_S3_READY };

typedef struct dlpi_s3_conn {
    int32_t fd; /* -1: none */
    int32_t state;
    int32_t errnum;              /* errno, if the connection is DLP_S3_BROKEN */
    pid_t pid;                   /* process that opened it */
    const dlp_s3_transport *tls; /* NULL: no TLS */
    const char *host;            /* borrowed until step has returned 0 */
    void *session;
    dlpi_s3_address address;
    const char *tunnel; /* request that a proxy gets first, borrowed as host; NULL: no proxy */
    uint32_t tunnel_n, tunnel_at, heard; /* its bytes; bytes sent; bytes of the answer */
    char line[13];                       /* the begin of the proxy's answer: "HTTP/1.1 200" */
    uint8_t ends;                        /* bytes of "\r\n\r\n" that have come */
    char why[160];                       /* text, if the connection is DLP_S3_BROKEN */
} dlpi_s3_conn;

/* Write an address as text: "127.0.0.1:80", "[::1]:80". */
static void dlpi_s3_address_text(const dlpi_s3_address *a, char *to, size_t size) {
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->at.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->at.v6.sin6_addr, ip, sizeof ip);
        snprintf(to, size, "[%s]:%u", ip, (unsigned)ntohs(a->at.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a->at.v4.sin_addr, ip, sizeof ip);
        snprintf(to, size, "%s:%u", ip, (unsigned)ntohs(a->at.v4.sin_port));
    }
}

/* True if two addresses are of the same host; their ports may differ. */
static bool dlpi_s3_address_same(const dlpi_s3_address *a, const dlpi_s3_address *b) {
    if (a->at.any.sa_family != b->at.any.sa_family) return false;
    if (a->at.any.sa_family == AF_INET6)
        return memcmp(&a->at.v6.sin6_addr, &b->at.v6.sin6_addr, 16) == 0 &&
               a->at.v6.sin6_scope_id == b->at.v6.sin6_scope_id;
    return a->at.v4.sin_addr.s_addr == b->at.v4.sin_addr.s_addr;
}

/* Make the address of a host that is given as a number. Returns false if host is a name. */
static bool dlpi_s3_address_numeric(const char *host, uint16_t port, dlpi_s3_address *out) {
    dlpi_s3_address a;
    memset(&a, 0, sizeof a);
    if (inet_pton(AF_INET, host, &a.at.v4.sin_addr) == 1) {
        a.at.v4.sin_family = AF_INET;
        a.at.v4.sin_port = htons(port);
        a.n = sizeof a.at.v4;
    } else if (inet_pton(AF_INET6, host, &a.at.v6.sin6_addr) == 1) {
        a.at.v6.sin6_family = AF_INET6;
        a.at.v6.sin6_port = htons(port);
        a.n = sizeof a.at.v6;
    } else {
        return false;
    }
    *out = a;
    return true;
}

/* Note an errno and an error text for a connection. Returns DLP_S3_BROKEN. */
static int dlpi_s3_conn_fail(dlpi_s3_conn *c, const char *what, int errnum) {
    char to[64];
    dlpi_s3_address_text(&c->address, to, sizeof to);
    snprintf(c->why, sizeof c->why, "%s %s: %s", what, to, strerror(errnum));
    c->errnum = errnum;
    return DLP_S3_BROKEN;
}

/* Set errnum, and why if the transport left it empty, for a transport that failed. EKEYREJECTED:
   the server is not trusted, which no retry mends. Returns DLP_S3_BROKEN. */
static int dlpi_s3_conn_fail_tls(dlpi_s3_conn *c) {
    c->errnum = errno ? errno : EPROTO;
    c->why[sizeof c->why - 1] = '\0';
    if (!c->why[0]) snprintf(c->why, sizeof c->why, "TLS: %s", strerror(c->errnum));
    return DLP_S3_BROKEN;
}

/* Return the code of a transport's read or write of n bytes; if invalid, or an error,
   DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_told(dlpi_s3_conn *c, int64_t code, size_t n) {
    if (code > DLP_S3_BROKEN && (code < 0 || (uint64_t)code <= n)) return code;
    return dlpi_s3_conn_fail_tls(c);
}

/* True if this process made the connection: a child leaves its parent's connections alone. */
static inline bool dlpi_s3_conn_mine(const dlpi_s3_conn *c) { return c->pid == getpid(); }

/* End the session and close the socket, if it is open. The child of a fork must not end a session
   that its parent goes on with: there the session's last bytes go to a file that takes none. */
static void dlpi_s3_conn_close(dlpi_s3_conn *c) {
    bool mute = true;
    if (c->fd < 0) return;
    if (c->session && !dlpi_s3_conn_mine(c)) {
        int null = dlpi_fd_above(open("/dev/null", O_RDONLY | O_CLOEXEC));
        mute = null >= 0 && dup3(null, c->fd, O_CLOEXEC) >= 0;
        if (null >= 0) close(null);
    }
    if (c->session && mute) c->tls->close(c->session);
    close(c->fd);
    c->session = NULL;
    c->fd = -1;
    c->state = 0;
}

/* Begin to connect. tls: NULL for a plain connection. host: the name that TLS verifies, borrowed
   until dlpi_s3_conn_step has returned 0. Returns 0: go on with dlpi_s3_conn_step, at once if you
   like; or DLP_S3_BROKEN with why and errnum, and nothing to close. */
static int dlpi_s3_conn_open(dlpi_s3_conn *c, const dlpi_s3_address *address,
                             const dlp_s3_transport *tls, const char *host) {
    int one = 1, errnum;
    memset(c, 0, sizeof *c);
    c->address = *address;
    c->tls = tls;
    c->host = host;
    c->pid = getpid();
    c->state = DLPI_S3_CONNECTING;
    c->fd = socket(address->at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    c->fd = dlpi_fd_above(c->fd);
    if (c->fd < 0) return dlpi_s3_conn_fail(c, "no socket for", errno);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, &address->at.any, address->n) == 0 || errno == EINPROGRESS || errno == EINTR)
        return 0;
    errnum = errno;
    dlpi_s3_conn_close(c);
    return dlpi_s3_conn_fail(c, "cannot connect to", errnum);
}

/* Look whether the socket is connected. Returns 0: it is; DLP_S3_WANT_WRITE; or DLP_S3_BROKEN. */
static int dlpi_s3_conn_connected(dlpi_s3_conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    int errnum = 0;
    socklen_t n = sizeof errnum;
    if (poll(&p, 1, 0) <= 0) return DLP_S3_WANT_WRITE; /* EINTR: asked again soon */
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errnum, &n) != 0) errnum = errno;
    if (errnum) return dlpi_s3_conn_fail(c, "cannot connect to", errnum);
    c->state = c->tunnel ? DLPI_S3_TUNNEL : c->tls ? DLPI_S3_HANDSHAKE : DLPI_S3_READY;
    return 0;
}

/* Judge a proxy's answer. why: NULL, or why it is not whole. Returns 0, or DLP_S3_BROKEN. */
static int dlpi_s3_conn_tunnelled(dlpi_s3_conn *c, const char *why) {
    int64_t status = memcmp(c->line, "HTTP/1.", 7) == 0 ? dlpi_s3_number(c->line + 9, 3) : -1;
    if (!why && status >= 200 && status < 300) {
        c->state = c->tls ? DLPI_S3_HANDSHAKE : DLPI_S3_READY;
        return 0;
    }
    c->errnum = status >= 400 && status < 500 ? EACCES : ECONNREFUSED;
    if (!why)
        why = status == 407   ? "it wants another user and password (http://USER:WORD@HOST:PORT)"
              : status == 403 ? "it may not connect there"
              : status >= 500 ? "it cannot reach the server"
                              : "that is no answer to CONNECT";
    if (status < 0)
        snprintf(c->why, sizeof c->why, "the proxy does not open a tunnel: %s", why);
    else
        snprintf(c->why, sizeof c->why, "the proxy answers %d: %s", (int)status, why);
    return DLP_S3_BROKEN;
}

/* Ask the proxy for a tunnel. A TLS server speaks only when it is asked, so nothing follows the
   head of the answer. Returns 0: the tunnel is open; DLP_S3_WANT_*; or DLP_S3_BROKEN. */
static int dlpi_s3_conn_tunnel(dlpi_s3_conn *c) {
    char byte;
    while (c->tunnel_at < c->tunnel_n) {
        ssize_t put =
            send(c->fd, c->tunnel + c->tunnel_at, c->tunnel_n - c->tunnel_at, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) return DLP_S3_WANT_WRITE;
        if (put < 0) return dlpi_s3_conn_fail(c, "writing to the proxy", errno);
        c->tunnel_at += (uint32_t)put;
    }
    while (c->ends < 4) {
        ssize_t got = recv(c->fd, &byte, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return DLP_S3_WANT_READ;
        if (got < 0) return dlpi_s3_conn_fail(c, "reading from the proxy", errno);
        if (got == 0) return dlpi_s3_conn_tunnelled(c, "it closes the connection");
        if (c->heard < sizeof c->line - 1) c->line[c->heard] = byte;
        if (++c->heard > 16384) return dlpi_s3_conn_tunnelled(c, "its answer does not end");
        if (byte != "\r\n"[c->ends % 2])
            c->ends = byte == '\r';
        else
            c->ends++;
    }
    return dlpi_s3_conn_tunnelled(c, NULL);
}

/* Go on opening a connection. Returns 0: it can be read and written; DLP_S3_WANT_READ or _WRITE:
   call again when the socket is ready for that; DLP_S3_BROKEN, with why and errnum: close it. */
static int dlpi_s3_conn_step(dlpi_s3_conn *c) {
    int code = 0;
    if (c->state == DLPI_S3_CONNECTING) code = dlpi_s3_conn_connected(c);
    if (code == 0 && c->state == DLPI_S3_TUNNEL) code = dlpi_s3_conn_tunnel(c);
    if (code != 0 || c->state == DLPI_S3_READY) return code;
    errno = 0;
    if (!c->session)
        code = c->tls->open(c->tls->user, c->fd, c->host, &c->session, c->why, sizeof c->why);
    if (code == 0) code = c->tls->handshake(c->session, c->why, sizeof c->why);
    if (code == DLP_S3_BROKEN) return dlpi_s3_conn_fail_tls(c);
    if (code == 0) c->state = DLPI_S3_READY;
    return code;
}

/* Read at most n bytes (not 0) that are there. Returns how many; 0 if the server has properly ended
   the stream; DLP_S3_WANT_*; or DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_read(dlpi_s3_conn *c, void *to, size_t n) {
    ssize_t got;
    if (c->tls) {
        errno = 0;
        return dlpi_s3_conn_told(c, c->tls->read(c->session, to, n, c->why, sizeof c->why), n);
    }
    do got = recv(c->fd, to, n, 0);
    while (got < 0 && errno == EINTR);
    if (got >= 0) return got;
    if (errno == EAGAIN) return DLP_S3_WANT_READ;
    return dlpi_s3_conn_fail(c, "reading from", errno);
}

/* Write what fits, of n bytes. Returns how many; DLP_S3_WANT_*: offer them again; DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_write(dlpi_s3_conn *c, const void *from, size_t n) {
    ssize_t put;
    if (c->tls) {
        errno = 0;
        return dlpi_s3_conn_told(c, c->tls->write(c->session, from, n, c->why, sizeof c->why), n);
    }
    do put = send(c->fd, from, n, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put >= 0) return put;
    if (errno == EAGAIN) return DLP_S3_WANT_WRITE;
    return dlpi_s3_conn_fail(c, "writing to", errno);
}

/* True if the session may have bytes of which the socket knows nothing: read before you wait. */
static bool dlpi_s3_conn_pending(dlpi_s3_conn *c) {
    return c->session && c->tls->pending(c->session) == 1;
}

/* ---- TLS by OpenSSL ----
   Certificates and host names are verified, always. Each process makes what its sessions share when
   it first needs it, never uses what its parent made (whose locks may be held for ever), and keeps
   the tickets by which servers take a session up again. Sockets are reached by functions of our
   own, because those of OpenSSL may raise SIGPIPE. */

#ifdef DLPIPE_S3_OPENSSL
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#if OPENSSL_VERSION_NUMBER < 0x10101000L
#error DLPIPE_S3_OPENSSL wants OpenSSL 1.1.1 or later
#endif

enum { DLPI_S3_TICKETS = 16, DLPI_S3_TLS_READ_AHEAD = 64 * 1024 };

typedef struct dlpi_s3_ticket {
    char host[256];
    SSL_SESSION *session;
    uint64_t used_ns;
} dlpi_s3_ticket;

/* What the sessions of one process share. */
typedef struct dlpi_s3_tls_own {
    pid_t pid;
    SSL_CTX *ctx;
    BIO_METHOD *method;
    pthread_mutex_t lock; /* guards tickets */
    dlpi_s3_ticket tickets[DLPI_S3_TICKETS];
} dlpi_s3_tls_own;

typedef struct dlpi_s3_tls {
    dlpi_s3_tls_own *own; /* replaced once in each process that needs one: O1, O2 */
    char ca_file[];       /* "": the system's */
} dlpi_s3_tls;

typedef struct dlpi_s3_session {
    SSL *ssl;
    dlpi_s3_tls_own *own;
    int fd;
    int errnum; /* errno of the last call of the socket */
    bool ended; /* the socket has no more bytes */
    int broken; /* errno of the failure, which each later call returns, with why; 0: none */
    char why[160];
    char host[256];
    bool demanded; /* the server has asked for a certificate of ours */
} dlpi_s3_session;

/* Callback of OpenSSL: send n bytes. Returns how many were sent, or -1. If the socket is full,
   OpenSSL is told to try again. */
static int dlpi_s3_bio_write(BIO *b, const char *from, int n) {
    dlpi_s3_session *s = (dlpi_s3_session *)BIO_get_data(b);
    ssize_t put;
    BIO_clear_retry_flags(b);
    do put = send(s->fd, from, (size_t)n, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put >= 0) return (int)put;
    if (errno == EAGAIN)
        BIO_set_retry_write(b);
    else
        s->errnum = errno;
    return -1;
}

/* Callback of OpenSSL: receive at most n bytes. Returns how many, 0 if the server has ended, or -1.
   If nothing has come, OpenSSL is told to try again. */
static int dlpi_s3_bio_read(BIO *b, char *to, int n) {
    dlpi_s3_session *s = (dlpi_s3_session *)BIO_get_data(b);
    ssize_t got;
    BIO_clear_retry_flags(b);
    do got = recv(s->fd, to, (size_t)n, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) return (int)got;
    if (got == 0)
        s->ended = true;
    else if (errno == EAGAIN)
        BIO_set_retry_read(b);
    else
        s->errnum = errno;
    return got == 0 ? 0 : -1;
}

/* Callback of OpenSSL: say whether the server has ended, and that a flush is done. */
static long dlpi_s3_bio_ctrl(BIO *b, int what, long number, void *at) {
    const dlpi_s3_session *s = (const dlpi_s3_session *)BIO_get_data(b);
    (void)number;
    (void)at;
    if (what == BIO_CTRL_FLUSH) return 1;
    return what == BIO_CTRL_EOF ? s->ended : 0;
}

/* Keep a new ticket that OpenSSL offers, in place of the host's last one or of the one unused for
   longest. Returns 1: the ticket is ours to free. */
static int dlpi_s3_ticket_keep(SSL *ssl, SSL_SESSION *session) {
    const dlpi_s3_session *s = (const dlpi_s3_session *)SSL_get_app_data(ssl);
    dlpi_s3_ticket *t = s->own->tickets;
    pthread_mutex_lock(&s->own->lock);
    for (int i = 0; i < DLPI_S3_TICKETS; i++) {
        dlpi_s3_ticket *k = &s->own->tickets[i];
        if (k->used_ns < t->used_ns) t = k;
        if (strcmp(k->host, s->host) == 0) {
            t = k;
            break;
        }
    }
    SSL_SESSION_free(t->session);
    t->session = session;
    t->used_ns = dlpi_s3_now_ns();
    dlpi_s3_copy(t->host, sizeof t->host, s->host);
    pthread_mutex_unlock(&s->own->lock);
    return 1;
}

/* Offer a copy of the host's ticket to the server: other threads' sessions may use it meanwhile. */
static void dlpi_s3_ticket_use(dlpi_s3_session *s) {
    SSL_SESSION *copy = NULL;
    pthread_mutex_lock(&s->own->lock);
    for (int i = 0; i < DLPI_S3_TICKETS; i++) {
        dlpi_s3_ticket *t = &s->own->tickets[i];
        if (!t->session || strcmp(t->host, s->host) != 0) continue;
        if (SSL_SESSION_is_resumable(t->session)) copy = SSL_SESSION_dup(t->session);
        t->used_ns = dlpi_s3_now_ns();
    }
    pthread_mutex_unlock(&s->own->lock);
    if (copy) SSL_set_session(s->ssl, copy);
    SSL_SESSION_free(copy);
}

/* Free a process's TLS state with its session tickets; NULL is allowed. No session may use it. */
static void dlpi_s3_tls_own_free(dlpi_s3_tls_own *own) {
    if (!own) return;
    for (int i = 0; i < DLPI_S3_TICKETS; i++) SSL_SESSION_free(own->tickets[i].session);
    SSL_CTX_free(own->ctx);
    BIO_meth_free(own->method);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* Note that the server asks for a certificate of the client. Returns 0: there is none. */
static int dlpi_s3_tls_demand(SSL *ssl, X509 **cert, EVP_PKEY **key) {
    (void)cert;
    (void)key;
    ((dlpi_s3_session *)SSL_get_app_data(ssl))->demanded = true;
    return 0;
}

/* Load the certificates that are trusted: of ca_file, or of the system if ca_file is "". Returns
   false, with the reason in `why` and errno, if there are none. */
static bool dlpi_s3_tls_trust(SSL_CTX *ctx, const char *ca_file, char *why, size_t size) {
    if (ca_file[0] ? SSL_CTX_load_verify_locations(ctx, ca_file, NULL) == 1
                   : SSL_CTX_set_default_verify_paths(ctx) == 1)
        return true;
    snprintf(why, size, "ca_file '%.80s' holds no certificates in PEM form; give another", ca_file);
    errno = EKEYREJECTED;
    return false;
}

/* Make what the sessions of this process share. Returns NULL, with why and errno, if that fails. */
static dlpi_s3_tls_own *dlpi_s3_tls_own_new(const char *ca_file, char *why, size_t size) {
    dlpi_s3_tls_own *own = (dlpi_s3_tls_own *)calloc(1, sizeof *own);
    dlpi_s3_copy(why, size, "no memory for TLS");
    errno = ENOMEM;
    if (!own) return NULL;
    pthread_mutex_init(&own->lock, NULL);
    own->pid = getpid();
    own->ctx = SSL_CTX_new(TLS_client_method());
    own->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "dlpipe socket");
    if (!own->ctx || !own->method || !dlpi_s3_tls_trust(own->ctx, ca_file, why, size)) {
        int errnum = errno;
        dlpi_s3_tls_own_free(own);
        ERR_clear_error();
        errno = errnum;
        return NULL;
    }
    BIO_meth_set_write(own->method, dlpi_s3_bio_write);
    BIO_meth_set_read(own->method, dlpi_s3_bio_read);
    BIO_meth_set_ctrl(own->method, dlpi_s3_bio_ctrl);
    SSL_CTX_set_min_proto_version(own->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(own->ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_verify(own->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(own->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(own->ctx, 1);
    SSL_CTX_set_default_read_buffer_len(own->ctx, DLPI_S3_TLS_READ_AHEAD);
    SSL_CTX_set_session_cache_mode(own->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(own->ctx, dlpi_s3_ticket_keep);
    SSL_CTX_set_client_cert_cb(own->ctx, dlpi_s3_tls_demand);
    return own;
}

/* Return what this process' sessions share, made here if there is none; NULL, with why and errno,
   if that fails. A parent's stays as it is: it cannot be freed safely. */
static dlpi_s3_tls_own *dlpi_s3_tls_mine(dlpi_s3_tls *tls, char *why, size_t size) {
    dlpi_s3_tls_own *found = DLPI_LOAD_ACQ(&tls->own), *own; /* O2 <- O1 */
    if (found && found->pid == getpid()) return found;
    own = dlpi_s3_tls_own_new(tls->ca_file, why, size);
    if (!own || DLPI_CAS_SEQ(&tls->own, &found, own)) return own; /* O1 -> O2 */
    dlpi_s3_tls_own_free(own);                                    /* another thread was first */
    return found;
}

/* Tell OpenSSL which host the certificate must be for; without a host nothing would be checked.
   Only alternative names count, no common name (RFC 9525, 6.3). Returns false if that fails. */
static bool dlpi_s3_tls_expect(SSL *ssl, const char *host) {
    dlpi_s3_address unused;
    if (!host[0]) return false;
    if (dlpi_s3_address_numeric(host, 0, &unused))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* Make the TLS object of a session, which expects the session's host. Returns false if OpenSSL
   cannot; the caller frees s->ssl. */
static bool dlpi_s3_tls_begin(dlpi_s3_session *s) {
    BIO *b;
    s->ssl = SSL_new(s->own->ctx);
    if (!s->ssl || !dlpi_s3_tls_expect(s->ssl, s->host)) return false;
    b = BIO_new(s->own->method);
    if (!b) return false;
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(s->ssl, b, b);
    SSL_set_app_data(s->ssl, s);
    SSL_set_connect_state(s->ssl);
    dlpi_s3_ticket_use(s);
    return true;
}

/* Open a TLS session on the connected socket fd. Returns 0, or DLP_S3_BROKEN with the reason in
   `why` and errno. The handshake comes later. */
static int dlpi_s3_tls_open(void *user, int fd, const char *host, void **session, char *why,
                            size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)calloc(1, sizeof *s);
    size_t n;
    dlpi_s3_copy(why, size, "no memory for TLS");
    errno = ENOMEM;
    if (!s) return DLP_S3_BROKEN;
    s->fd = fd;
    if (!host || !dlpi_s3_copy(s->host, sizeof s->host, host)) s->host[0] = '\0';
    n = strlen(s->host); /* the root's dot is in no certificate, and not in SNI: RFC 6066, 3 */
    if (n > 1 && s->host[n - 1] == '.') s->host[n - 1] = '\0';
    s->own = dlpi_s3_tls_mine((dlpi_s3_tls *)user, why, size);
    if (s->own && dlpi_s3_tls_begin(s)) {
        why[0] = '\0';
        *session = s;
        return 0;
    }
    if (s->own) {
        snprintf(why, size, "TLS cannot ask for host '%.100s'", s->host);
        errno = EKEYREJECTED;
    }
    fd = errno;
    SSL_free(s->ssl);
    free(s);
    ERR_clear_error();
    errno = fd;
    return DLP_S3_BROKEN;
}

/* Set s->why and s->broken, to be told at every further call. error: of SSL_get_error. */
static void dlpi_s3_tls_explain(dlpi_s3_session *s, int error) {
    unsigned long e = ERR_peek_error();
    const char *words = e ? ERR_reason_error_string(e) : NULL;
    const char *when = SSL_is_init_finished(s->ssl) ? "" : " in the TLS handshake";
    long verified = SSL_get_verify_result(s->ssl);
    bool alert =
        words && ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) >= SSL_AD_REASON_OFFSET;
    if (verified != X509_V_OK && !SSL_is_init_finished(s->ssl)) {
        s->broken = EKEYREJECTED;
        snprintf(s->why, sizeof s->why,
                 "certificate of %.60s is refused: %s; give its authority as ca_file", s->host,
                 X509_verify_cert_error_string(verified));
    } else if (s->demanded && (alert || !SSL_is_init_finished(s->ssl))) {
        s->broken = EKEYREJECTED;
        snprintf(s->why, sizeof s->why,
                 "%.60s wants a certificate of its clients, which is not supported%s%s", s->host,
                 alert ? ": " : "", alert ? words : "");
    } else if (s->errnum) {
        s->broken = s->errnum;
        snprintf(s->why, sizeof s->why, "%.60s%s: %s", s->host, when, strerror(s->errnum));
    } else if (s->ended) {
        s->broken = ECONNRESET;
        snprintf(s->why, sizeof s->why, "%.60s cut the connection%s", s->host, when);
    } else {
        s->broken = EPROTO;
        snprintf(s->why, sizeof s->why, "%.60s%s: %s", s->host, when[0] ? when : " in TLS",
                 words                    ? words
                 : error == SSL_ERROR_SSL ? "not TLS"
                                          : "failed");
    }
}

/* Find out why a call of OpenSSL got no further. Returns DLP_S3_WANT_*; 0 if the server has ended
   the session and may_end is set; or DLP_S3_BROKEN, with why and errno. */
static int dlpi_s3_tls_wants(dlpi_s3_session *s, bool may_end, char *why, size_t size) {
    int error = s->broken ? SSL_ERROR_NONE : SSL_get_error(s->ssl, 0);
    if (error == SSL_ERROR_WANT_READ) return DLP_S3_WANT_READ;
    if (error == SSL_ERROR_WANT_WRITE) return DLP_S3_WANT_WRITE;
    if (error == SSL_ERROR_ZERO_RETURN && may_end) return 0;
    if (error == SSL_ERROR_ZERO_RETURN) s->ended = true;
    if (!s->broken) dlpi_s3_tls_explain(s, error);
    ERR_clear_error();
    dlpi_s3_copy(why, size, s->why);
    errno = s->broken;
    return DLP_S3_BROKEN;
}

static int dlpi_s3_tls_handshake(void *session, char *why, size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    ERR_clear_error();
    return !s->broken && SSL_do_handshake(s->ssl) == 1 ? 0 : dlpi_s3_tls_wants(s, false, why, size);
}

/* Read as many TLS records as are there: dlp_s3_transport.read. If it fails after the first record,
   the next call tells it, because OpenSSL tells it only once. */
static int64_t dlpi_s3_tls_read(void *session, void *to, size_t n, char *why, size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    size_t got = 0, total = 0;
    int code;
    ERR_clear_error();
    do {
        if (s->broken || SSL_read_ex(s->ssl, (char *)to + total, n - total, &got) != 1) {
            code = dlpi_s3_tls_wants(s, true, why, size);
            return total ? (int64_t)total : code;
        }
        total += got;
    } while (total < n && SSL_has_pending(s->ssl));
    return (int64_t)total;
}

/* Write at most n bytes. Returns how many were written, or DLP_S3_WANT_* or DLP_S3_BROKEN if none
   was. */
static int64_t dlpi_s3_tls_write(void *session, const void *from, size_t n, char *why,
                                 size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    size_t put = 0, total = 0;
    int code;
    ERR_clear_error();
    do {
        if (s->broken || SSL_write_ex(s->ssl, (const char *)from + total, n - total, &put) != 1) {
            code = dlpi_s3_tls_wants(s, false, why, size);
            return total ? (int64_t)total : code;
        }
        total += put;
    } while (total < n);
    return (int64_t)total;
}

static int dlpi_s3_tls_pending(void *session) {
    return SSL_has_pending(((const dlpi_s3_session *)session)->ssl);
}

/* Free a session: dlp_s3_transport.close. If it went well, send the close_notify alert first,
   without which its ticket would be void. */
static void dlpi_s3_tls_close(void *session) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    ERR_clear_error();
    if (!s->broken && SSL_is_init_finished(s->ssl)) SSL_shutdown(s->ssl);
    SSL_free(s->ssl);
    ERR_clear_error();
    free(s);
}

/* Make a transport of OpenSSL, without calling it yet. ca_file: PEM, copied; NULL: AWS_CA_BUNDLE's,
   else the system's. Returns 0, DLP_ERR_ARG if it cannot be read, or DLP_ERR_MEMORY. */
static int dlpi_s3_tls_new(dlp_s3_transport *out, const char *ca_file, dlp_s3_error *err) {
    dlpi_s3_tls *tls;
    if (!ca_file || !ca_file[0]) ca_file = secure_getenv("AWS_CA_BUNDLE");
    if (!ca_file) ca_file = "";
    if (ca_file[0] && access(ca_file, R_OK) != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, errno, "ca_file '%.80s': %s; check the path",
                                 ca_file, strerror(errno));
    tls = (dlpi_s3_tls *)calloc(1, sizeof *tls + strlen(ca_file) + 1);
    if (!tls) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM, "no memory for TLS");
    memcpy(tls->ca_file, ca_file, strlen(ca_file) + 1);
    memset(out, 0, sizeof *out);
    out->user = tls;
    out->open = dlpi_s3_tls_open;
    out->handshake = dlpi_s3_tls_handshake;
    out->read = dlpi_s3_tls_read;
    out->write = dlpi_s3_tls_write;
    out->pending = dlpi_s3_tls_pending;
    out->close = dlpi_s3_tls_close;
    return 0;
}

/* Free a transport of OpenSSL, after its last session. Any other is left as it is. */
static void dlpi_s3_tls_free(dlp_s3_transport *out) {
    dlpi_s3_tls *tls = (dlpi_s3_tls *)out->user;
    if (out->open != dlpi_s3_tls_open) return;
    if (tls->own && tls->own->pid == getpid()) dlpi_s3_tls_own_free(tls->own);
    free(tls);
    memset(out, 0, sizeof *out);
}
#else
static int dlpi_s3_tls_new(dlp_s3_transport *out, const char *ca_file, dlp_s3_error *err) {
    (void)out;
    (void)ca_file;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "https: compile with DLPIPE_S3_OPENSSL, or give a transport (tls)");
}

static void dlpi_s3_tls_free(dlp_s3_transport *out) { (void)out; }
#endif

/* ---- names, by calls that wait ---- */

#ifndef DLPI_S3_GETADDRINFO /* tests define their own */
#define DLPI_S3_GETADDRINFO getaddrinfo
#define DLPI_S3_FREEADDRINFO freeaddrinfo
#endif

/* True if there is a route to an address: a datagram socket tells that without sending anything. */
static bool dlpi_s3_address_routed(const dlpi_s3_address *a) {
    int fd = dlpi_fd_above(socket(a->at.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)), rc;
    if (fd < 0) return false;
    rc = connect(fd, &a->at.any, a->n);
    close(fd);
    return rc == 0;
}

/* Set why and *errnum (EAGAIN: try later; ENXIO) for getaddrinfo's rc. Returns DLP_ERR_REMOTE. */
static int dlpi_s3_resolve_fail(const char *host, int rc, int *errnum, char *why, size_t size) {
    bool later = rc == EAI_AGAIN || rc == EAI_MEMORY || rc == EAI_SYSTEM;
    const char *words = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
    snprintf(why, size, "cannot find the address of '%.70s': %s; check endpoint and region", host,
             words);
    *errnum = later ? EAGAIN : ENXIO;
    return DLP_ERR_REMOTE;
}

/* Find the addresses of a host, a name or a number; those without a route only if all are. Returns
   how many, 1..max; or DLP_ERR_REMOTE with why, and errnum EAGAIN (may be found later) or ENXIO. A
   name waits for the resolver, for as long as that likes. */
static int dlpi_s3_resolve(const char *host, uint16_t port, dlpi_s3_address *out, uint32_t max,
                           int *errnum, char *why, size_t size) {
    struct addrinfo hints, *list = NULL;
    char service[8];
    uint32_t n = 0;
    int rc;
    if (dlpi_s3_address_numeric(host, port, out)) return 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    snprintf(service, sizeof service, "%u", (unsigned)port);
    rc = DLPI_S3_GETADDRINFO(host, service, &hints, &list);
    if (rc != 0) return dlpi_s3_resolve_fail(host, rc, errnum, why, size);
    for (int routed = 1; routed >= 0 && n == 0; routed--) {
        for (const struct addrinfo *a = list; a && n < max; a = a->ai_next) {
            if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
            if (a->ai_addrlen > sizeof out->at) continue;
            memset(&out[n], 0, sizeof out[n]);
            memcpy(&out[n].at, a->ai_addr, a->ai_addrlen);
            out[n].n = a->ai_addrlen;
            if (!routed || dlpi_s3_address_routed(&out[n])) n++;
        }
    }
    DLPI_S3_FREEADDRINFO(list);
    return n ? (int)n : dlpi_s3_resolve_fail(host, EAI_NONAME, errnum, why, size);
}
