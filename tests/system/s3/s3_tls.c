/* TLS by OpenSSL: whom it trusts, what it says of those it does not, and that nothing the other end
   does can hang, kill or deceive it.

   Client and server run in one thread: the server's end is an SSL over memory, and the rig carries
   its bytes to the client's socket in pieces of the size that a case wants. */
/* own: hook: another one, with OpenSSL */
#if defined(__has_include)
#if __has_include(<openssl/ssl.h>)
#define DLPIPE_S3_OPENSSL
#endif
#endif
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_s3.h"

#ifndef DLPIPE_S3_OPENSSL
int main(void) {
    printf("skipped: OpenSSL's headers are not installed\n");
    return 77;
}
#else
#include "../../rig/s3_transport.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

/* ---- certificates ---- */

typedef struct {
    EVP_PKEY *key;
    X509 *cert;
} identity;

static char dir[64], ca_path[96], junk_path[96];
static identity ca, other_ca, good, wildcard, partial, wrong_host, expired, future, self_signed,
    by_ip, stranger, by_common_name;

static EVP_PKEY *make_key(void) {
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    CHECK(EVP_PKEY_keygen_init(ctx) == 1);
    CHECK(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(ctx, NID_X9_62_prime256v1) == 1);
    CHECK(EVP_PKEY_keygen(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static void extend(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509_EXTENSION *e;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    CHECK(e != NULL && X509_add_ext(cert, e, -1) == 1);
    X509_EXTENSION_free(e);
}

/* by: NULL: signed by itself; names: as "DNS:a,IP:b", NULL: an authority; days from now. */
static identity make(const identity *by, const char *common, const char *names, int from, int to) {
    static long serial = 1;
    identity id = {make_key(), X509_new()};
    X509_NAME *subject = X509_get_subject_name(id.cert);
    X509 *issuer = by ? by->cert : id.cert;
    X509_set_version(id.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), from * 86400L);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), to * 86400L);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)common, -1, -1,
                               0);
    X509_set_issuer_name(id.cert, X509_get_subject_name(issuer));
    X509_set_pubkey(id.cert, id.key);
    if (names) {
        extend(id.cert, issuer, NID_subject_alt_name, names);
    } else {
        extend(id.cert, issuer, NID_basic_constraints, "critical,CA:TRUE");
        extend(id.cert, issuer, NID_key_usage, "critical,keyCertSign");
    }
    CHECK(X509_sign(id.cert, by ? by->key : id.key, EVP_sha256()) > 0);
    return id;
}

static void forget(identity *id) {
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

static void make_all(void) {
    FILE *f;
    snprintf(dir, sizeof dir, "/tmp/dlpipe-tls-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(ca_path, sizeof ca_path, "%s/ca.pem", dir);
    snprintf(junk_path, sizeof junk_path, "%s/junk.pem", dir);
    ca = make(NULL, "own authority", NULL, -1, 30);
    other_ca = make(NULL, "other authority", NULL, -1, 30);
    good = make(&ca, "x", "DNS:s3.example,DNS:localhost", -1, 30);
    wildcard = make(&ca, "x", "DNS:*.s3.example", -1, 30);
    partial = make(&ca, "x", "DNS:s*.storage.example", -1, 30);
    wrong_host = make(&ca, "s3.example", "DNS:elsewhere.example", -1, 30);
    expired = make(&ca, "x", "DNS:s3.example", -30, -1);
    future = make(&ca, "x", "DNS:s3.example", 1, 30);
    self_signed = make(NULL, "x", "DNS:s3.example", -1, 30);
    by_ip = make(&ca, "x", "IP:127.0.0.1,IP:::1", -1, 30);
    by_common_name = make(&ca, "s3.example", "IP:127.0.0.1", -1, 30);
    stranger = make(&other_ca, "x", "DNS:s3.example", -1, 30);
    f = fopen(ca_path, "w");
    CHECK(f && PEM_write_X509(f, ca.cert) == 1 && fclose(f) == 0);
    f = fopen(junk_path, "w");
    CHECK(f && fputs("no certificate\n", f) >= 0 && fclose(f) == 0);
}

static void forget_all(void) {
    identity *all[] = {&ca,         &other_ca, &good,   &wildcard,    &partial, &stranger,
                       &wrong_host, &expired,  &future, &self_signed, &by_ip,   &by_common_name};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) forget(all[i]);
    unlink(ca_path);
    unlink(junk_path);
    rmdir(dir);
}

/* ---- both ends ---- */

typedef struct {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out;
    int fd, code, shaken; /* code: of the client's last step */
    uint64_t carried;     /* bytes to the client */
    char asked[256];      /* for which name (SNI) */
    dlpi_s3_conn c;
} rig;

static int saw_name(SSL *ssl, int *alert, void *user) {
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    if (name) dlpi_s3_copy(((rig *)user)->asked, sizeof((rig *)user)->asked, name);
    return SSL_TLSEXT_ERR_OK;
}

static int demanding; /* servers want a certificate of the client; the version of TLS */

static SSL_CTX *serve_as(const identity *id, int version) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    CHECK(SSL_CTX_use_certificate(ctx, id->cert) == 1);
    CHECK(SSL_CTX_use_PrivateKey(ctx, id->key) == 1);
    if (version == TLS1_1_VERSION) SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
    if (version) SSL_CTX_set_min_proto_version(ctx, version);
    if (version) SSL_CTX_set_max_proto_version(ctx, version);
    if (demanding) SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return ctx;
}

/* Connect the client; the server has accepted, and not yet read. */
static void rig_begin(rig *r, SSL_CTX *ctx, const dlp_s3_transport *t, const char *host) {
    dlpi_s3_address a;
    int listener = listen_on(AF_INET, &a);
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    CHECK(dlpi_s3_conn_open(&r->c, &a, t, host) == 0);
    r->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(r->fd >= 0);
    close(listener);
    SSL_CTX_set_tlsext_servername_callback(ctx, saw_name);
    SSL_CTX_set_tlsext_servername_arg(ctx, r);
    r->ssl = SSL_new(ctx);
    r->in = BIO_new(BIO_s_mem());
    r->out = BIO_new(BIO_s_mem());
    SSL_set_bio(r->ssl, r->in, r->out);
    SSL_set_accept_state(r->ssl);
    r->code = DLP_S3_WANT_WRITE;
}

/* Let the server take what has come. Returns whether anything had. */
static bool rig_serve(rig *r) {
    char bytes[16384];
    bool any = false;
    ssize_t n;
    while (r->fd >= 0 && (n = recv(r->fd, bytes, sizeof bytes, 0)) > 0) {
        CHECK(BIO_write(r->in, bytes, (int)n) == n);
        any = true;
    }
    if (!r->shaken) r->shaken = SSL_do_handshake(r->ssl) == 1;
    ERR_clear_error();
    return any;
}

/* Carry at most n bytes to the client, and see them arrive. Returns how many: 0: there are none, or
   its socket is full. */
static size_t rig_carry(rig *r, size_t n) {
    char *bytes;
    size_t there = (size_t)BIO_get_mem_data(r->out, &bytes);
    char unused[16384];
    ssize_t put;
    if (n > there) n = there;
    if (n > sizeof unused) n = sizeof unused;
    if (n == 0) return 0;
    put = send(r->fd, bytes, n, MSG_NOSIGNAL);
    if (put <= 0) return 0;
    CHECK(BIO_read(r->out, unused, (int)put) == put);
    r->carried += (uint64_t)put;
    CHECK(wait_for(&r->c, DLP_S3_WANT_READ));
    return (size_t)put;
}

/* Shake hands, in pieces of n bytes, until both are done, or one is broken, or so many bytes were
   carried. */
static int rig_shake(rig *r, size_t piece, uint64_t most) {
    while (r->carried < most) {
        struct pollfd p[2] = {{.fd = r->c.fd, .events = POLLIN}, {.fd = r->fd, .events = POLLIN}};
        uint64_t left = most - r->carried;
        bool moved;
        if (r->code != 0) r->code = dlpi_s3_conn_step(&r->c);
        if (r->code == DLP_S3_BROKEN) break;
        moved = rig_serve(r);
        moved = rig_carry(r, left < piece ? (size_t)left : piece) > 0 || moved;
        if (moved) continue;
        if ((r->code == 0 && r->shaken) || poll(p, 2, 2000) <= 0) break;
    }
    return r->code;
}

static int rig_connect(rig *r, SSL_CTX *ctx, const dlp_s3_transport *t, const char *host) {
    rig_begin(r, ctx, t, host);
    return rig_shake(r, 16384, UINT64_MAX);
}

static void rig_end(rig *r) {
    dlpi_s3_conn_close(&r->c);
    SSL_free(r->ssl);
    if (r->fd >= 0) close(r->fd);
}

/* A few bytes to the server and back. */
static void rig_echo(rig *r) {
    char bytes[64];
    int n;
    CHECK(dlpi_s3_conn_read(&r->c, bytes, sizeof bytes) == DLP_S3_WANT_READ);
    CHECK(dlpi_s3_conn_write(&r->c, "are you there", 13) == 13);
    rig_serve(r);
    n = SSL_read(r->ssl, bytes, sizeof bytes);
    CHECK(n == 13 && memcmp(bytes, "are you there", 13) == 0);
    CHECK(SSL_write(r->ssl, bytes, 13) == 13);
    while (rig_carry(r, 16384)) continue;
    memset(bytes, 0, sizeof bytes);
    CHECK(dlpi_s3_conn_read(&r->c, bytes, sizeof bytes) == 13);
    CHECK(memcmp(bytes, "are you there", 13) == 0);
}

static dlp_s3_transport trusting(void) {
    dlp_s3_transport t;
    dlp_s3_error err;
    CHECK(dlpi_s3_tls_new(&t, ca_path, &err) == 0);
    return t;
}

/* ---- whom it trusts ---- */

static void tls__trusted__accepted_and_named(void) {
    const struct {
        const identity *as;
        const char *host, *asked;
        int version;
    } cases[] = {
        {&good, "s3.example", "s3.example", 0},
        {&good, "s3.example", "s3.example", TLS1_2_VERSION},
        {&good, "localhost", "localhost", TLS1_3_VERSION},
        {&wildcard, "bucket.s3.example", "bucket.s3.example", 0},
        {&by_ip, "127.0.0.1", "", 0}, /* numbers are not asked for, but verified */
        {&by_ip, "::1", "", 0},
        {&good, "s3.example.", "s3.example", 0}, /* of the root, which is not asked for */
        {&wildcard, "bucket.s3.example.", "bucket.s3.example", 0},
    };
    dlp_s3_transport t = trusting();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SSL_CTX *ctx = serve_as(cases[i].as, cases[i].version);
        rig r;
        CHECK(rig_connect(&r, ctx, &t, cases[i].host) == 0);
        CHECK(strcmp(r.asked, cases[i].asked) == 0);
        CHECK(r.c.why[0] == '\0');
        rig_echo(&r);
        rig_end(&r);
        SSL_CTX_free(ctx);
    }
    dlpi_s3_tls_free(&t);
}

static void tls__not_trusted__refused_with_host_and_reason(void) {
    const struct {
        const identity *as;
        const char *host, *words;
        int errnum, version;
    } cases[] = {
        {&wrong_host, "s3.example", "ostname mismatch", EKEYREJECTED, 0},
        {&wrong_host, "s3.example", "ostname mismatch", EKEYREJECTED, TLS1_2_VERSION},
        {&wildcard, "a.b.s3.example", "ostname mismatch", EKEYREJECTED, 0},
        {&partial, "s3.storage.example", "ostname mismatch", EKEYREJECTED, 0},
        {&wildcard, "s3.example", "ostname mismatch", EKEYREJECTED, 0},
        {&good, "127.0.0.1", "IP address mismatch", EKEYREJECTED, 0},
        {&by_ip, "127.0.0.2", "IP address mismatch", EKEYREJECTED, 0},
        {&by_common_name, "s3.example", "ostname mismatch", EKEYREJECTED, 0},
        {&expired, "s3.example", "has expired", EKEYREJECTED, 0},
        {&future, "s3.example", "not yet valid", EKEYREJECTED, 0},
        {&self_signed, "s3.example", "signed certificate", EKEYREJECTED, 0},
        {&stranger, "s3.example", "local issuer", EKEYREJECTED, 0},
        {&good, "s3.example", "protocol", EPROTO, TLS1_1_VERSION},
    };
    dlp_s3_transport t = trusting();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SSL_CTX *ctx = serve_as(cases[i].as, cases[i].version);
        rig r;
        CHECK(rig_connect(&r, ctx, &t, cases[i].host) == DLP_S3_BROKEN);
        CHECK(r.c.errnum == cases[i].errnum);
        CHECK(strstr(r.c.why, cases[i].host) != NULL);
        CHECK(strstr(r.c.why, cases[i].words) != NULL);
        if (!strstr(r.c.why, cases[i].words)) printf("case %d: %s\n", (int)i, r.c.why);
        CHECK(ERR_peek_error() == 0);
        rig_end(&r);
        SSL_CTX_free(ctx);
    }
    dlpi_s3_tls_free(&t);
}

static void tls__no_host_to_verify__refused(void) {
    const char *hosts[] = {"", NULL};
    dlp_s3_transport t = trusting();
    for (int i = 0; i < 2; i++) {
        SSL_CTX *ctx = serve_as(&good, 0);
        rig r;
        CHECK(rig_connect(&r, ctx, &t, hosts[i]) == DLP_S3_BROKEN);
        CHECK(r.c.errnum == EKEYREJECTED && r.c.why[0]);
        rig_end(&r);
        SSL_CTX_free(ctx);
    }
    dlpi_s3_tls_free(&t);
}

static void tls__ca_file__wrong_ones_are_named(void) {
    dlp_s3_transport t;
    dlp_s3_error err;
    SSL_CTX *ctx = serve_as(&good, 0);
    char path[128];
    rig r;
    snprintf(path, sizeof path, "%s/none.pem", dir);
    CHECK(dlpi_s3_tls_new(&t, path, &err) == DLP_ERR_ARG);
    CHECK(strstr(err.message, "ca_file") && strstr(err.message, "none.pem"));
    CHECK(dlpi_s3_tls_new(&t, junk_path, &err) == 0); /* read when it is needed */
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == DLP_S3_BROKEN);
    CHECK(r.c.errnum == EKEYREJECTED && strstr(r.c.why, junk_path));
    CHECK(ERR_peek_error() == 0);
    rig_end(&r);
    dlpi_s3_tls_free(&t);

    CHECK(dlpi_s3_tls_new(&t, NULL, &err) == 0); /* the system's: it does not know ours */
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == DLP_S3_BROKEN);
    CHECK(r.c.errnum == EKEYREJECTED);
    rig_end(&r);
    dlpi_s3_tls_free(&t);

    setenv("AWS_CA_BUNDLE", ca_path, 1);
    CHECK(dlpi_s3_tls_new(&t, NULL, &err) == 0);
    unsetenv("AWS_CA_BUNDLE");
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    rig_end(&r);
    dlpi_s3_tls_free(&t);
    SSL_CTX_free(ctx);
}

/* ---- bytes ---- */

static void tls__single_bytes__same_bytes(void) {
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    dlp_s3_transport t = trusting();
    for (int v = 0; v < 2; v++) {
        SSL_CTX *ctx = serve_as(&good, versions[v]);
        char got[64];
        size_t n = 0;
        rig r;
        rig_begin(&r, ctx, &t, "s3.example");
        CHECK(rig_shake(&r, 1, UINT64_MAX) == 0);
        CHECK(SSL_write(r.ssl, "one at a time", 13) == 13);
        while (rig_carry(&r, 1)) {
            int64_t code = dlpi_s3_conn_read(&r.c, got + n, sizeof got - n);
            CHECK(code > 0 || code == DLP_S3_WANT_READ);
            if (code > 0) n += (size_t)code;
        }
        CHECK(n == 13 && memcmp(got, "one at a time", 13) == 0);
        rig_end(&r);
        SSL_CTX_free(ctx);
    }
    dlpi_s3_tls_free(&t);
}

static char *pattern(size_t n) {
    char *bytes = malloc(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    return bytes;
}

static void tls__long_body__read_in_odd_pieces(void) {
    enum { N = 300000 };
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, 0);
    char *sent = pattern(N), *got = calloc(1, N);
    size_t n = 0, piece = 1;
    bool pended = false;
    rig r;
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    CHECK(SSL_write(r.ssl, sent, N) == N);
    while (n < N) {
        int64_t code = dlpi_s3_conn_read(&r.c, got + n, piece < N - n ? piece : N - n);
        bool lost = code == DLP_S3_WANT_READ && !rig_carry(&r, 9999);
        CHECK(!lost);
        if (lost) break;
        CHECK(code > 0 || code == DLP_S3_WANT_READ);
        pended = pended || dlpi_s3_conn_pending(&r.c);
        if (code > 0) n += (size_t)code;
        piece = piece * 5 % 70001 + 1;
    }
    CHECK(n == N && memcmp(sent, got, N) == 0);
    CHECK(pended && !dlpi_s3_conn_pending(&r.c));
    free(sent);
    free(got);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

static void tls__slow_taker__writes_in_parts(void) {
    enum { N = 3000000 };
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, 0);
    char *sent = pattern(N), *got = calloc(1, N), *moved = malloc(N);
    size_t put = 0, n = 0;
    int wants = 0, size = 8192;
    rig r;
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    setsockopt(r.c.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    while (n < N) {
        int took = 0;
        int64_t code = DLP_S3_WANT_WRITE;
        if (put < N) {
            size_t some = N - put < 100000 ? N - put : 100000;
            memcpy(moved + wants % 64, sent + put, some);
            code = dlpi_s3_conn_write(&r.c, moved + wants % 64, some);
        }
        CHECK(code > 0 || code == DLP_S3_WANT_WRITE);
        if (code > 0) put += (size_t)code;
        wants += code == DLP_S3_WANT_WRITE;
        rig_serve(&r);
        while (n < N && (took = SSL_read(r.ssl, got + n, (int)(N - n))) > 0) n += (size_t)took;
        if (wants > 100000) break;
    }
    CHECK(wants > 0 && put == N && n == N && memcmp(sent, got, N) == 0);
    free(sent);
    free(got);
    free(moved);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

/* A write that must first hear from the other side says so. */
static void tls__write_before_handshake__wants_read(void) {
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, 0);
    char got[8];
    int64_t code;
    rig r;
    rig_begin(&r, ctx, &t, "s3.example");
    CHECK(dlpi_s3_conn_step(&r.c) == DLP_S3_WANT_READ);
    CHECK(dlpi_s3_conn_write(&r.c, "early", 5) == DLP_S3_WANT_READ);
    rig_serve(&r);
    while (rig_carry(&r, 16384)) continue;
    code = dlpi_s3_conn_write(&r.c, "early", 5);
    CHECK(code == 5);
    rig_serve(&r);
    CHECK(SSL_read(r.ssl, got, sizeof got) == 5 && memcmp(got, "early", 5) == 0);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

static void tls__others_errors_in_the_queue__not_taken_for_ours(void) {
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, 0);
    char got[8];
    rig r;
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    CHECK(dlpi_s3_conn_read(&r.c, got, sizeof got) == DLP_S3_WANT_READ); /* has taken tickets */
    ERR_put_error(ERR_LIB_USER, 0, 1, __FILE__, __LINE__);
    CHECK(dlpi_s3_conn_read(&r.c, got, sizeof got) == DLP_S3_WANT_READ);
    CHECK(ERR_peek_error() == 0);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

/* ---- ends ---- */

static void rig_cut(rig *r, bool reset) {
    struct linger now = {1, 0};
    if (reset) setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(r->fd);
    r->fd = -1;
}

/* The server is gone behind so many bytes of its own, which must be less than the handshake has. */
static void gone_after(const dlp_s3_transport *t, int version, uint64_t after, bool reset) {
    SSL_CTX *ctx = serve_as(&good, version);
    rig r;
    rig_begin(&r, ctx, t, "s3.example");
    CHECK(rig_shake(&r, 16384, after) < 0);
    rig_serve(&r); /* nothing unread, which would reset it */
    rig_cut(&r, reset);
    for (int k = 0; k < 5 && r.code != DLP_S3_BROKEN; k++) {
        CHECK(r.code != 0 && wait_for(&r.c, r.code));
        r.code = dlpi_s3_conn_step(&r.c);
    }
    CHECK(r.code == DLP_S3_BROKEN && (r.c.errnum == ECONNRESET || r.c.errnum == EPIPE));
    CHECK(strstr(r.c.why, "s3.example") || strstr(r.c.why, "127.0.0.1"));
    rig_end(&r);
    SSL_CTX_free(ctx);
}

static void tls__server_gone_in_handshake__broken(void) {
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int v = 0; v < 2; v++) {
        dlp_s3_transport t = trusting();
        SSL_CTX *ctx = serve_as(&good, versions[v]);
        rig r;
        rig_begin(&r, ctx, &t, "s3.example");
        for (uint64_t n = 1; n < 5000 && r.code != 0; n++) rig_shake(&r, 1, n);
        CHECK(r.code == 0);
        dlpi_s3_conn_close(&r.c);
        for (int reset = 0; reset < 2; reset++) {
            const uint64_t after[] = {0, 1, 4, 5, r.carried / 2, r.carried - 50};
            for (int i = 0; i < 6; i++) gone_after(&t, versions[v], after[i], reset);
        }
        rig_end(&r);
        SSL_CTX_free(ctx);
        dlpi_s3_tls_free(&t);
    }
}

/* how: 0: with a word (close_notify), 1: without, 2: reset, 3: inside a record, 4: not TLS. */
static void end_of_stream(int version, int how) {
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, version);
    char got[64];
    int64_t code;
    rig r;
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    CHECK(SSL_write(r.ssl, "the body", 8) == 8);
    if (how == 0) SSL_shutdown(r.ssl);
    while (rig_carry(&r, how == 3 ? 1 : 16384))
        if (how == 3 && BIO_ctrl_pending(r.out) == 3) break;
    if (how == 4) CHECK(send(r.fd, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL) == 26);
    if (how == 2) CHECK(read_on(&r.c, got, 4) == 4); /* a reset may take unread bytes along */
    rig_cut(&r, how == 2);
    code = how == 2 ? 4 : 0;
    while (code < 8 && how != 3) {
        int64_t n = read_on(&r.c, got + code, sizeof got - (size_t)code);
        CHECK(n > 0);
        if (n <= 0) break;
        code += n;
    }
    if (how != 3) CHECK(code == 8 && memcmp(got, "the body", 8) == 0);
    for (int again = 0; again < 3; again++) {
        code = read_on(&r.c, got, sizeof got);
        CHECK(code == (how == 0 ? 0 : DLP_S3_BROKEN));
        if (how != 0) CHECK(r.c.errnum == (how == 4 ? EPROTO : ECONNRESET));
        if (how != 0) CHECK(strstr(r.c.why, "s3.example") != NULL);
    }
    CHECK(ERR_peek_error() == 0);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

static void tls__end__whole_only_with_a_word(void) {
    for (int how = 0; how <= 4; how++) {
        end_of_stream(TLS1_2_VERSION, how);
        end_of_stream(TLS1_3_VERSION, how);
    }
}

/* With the signal's default action: this program would end here. */
static void tls__writes_to_nobody__no_sigpipe(void) {
    dlp_s3_transport t = trusting();
    for (int reset = 0; reset < 2; reset++) {
        SSL_CTX *ctx = serve_as(&good, 0);
        int64_t code = 1;
        rig r;
        signal(SIGPIPE, SIG_DFL);
        CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
        rig_cut(&r, reset);
        for (int i = 0; i < 1000 && code > 0; i++) code = dlpi_s3_conn_write(&r.c, "x", 1);
        CHECK(code == DLP_S3_BROKEN && (r.c.errnum == EPIPE || r.c.errnum == ECONNRESET));
        rig_end(&r); /* says goodbye to nobody */

        CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
        rig_cut(&r, reset);
        rig_end(&r);
        SSL_CTX_free(ctx);
    }
    dlpi_s3_tls_free(&t);
}

/* ---- sessions, processes, threads ---- */

static void tls__second_connection__session_resumed(void) {
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int v = 0; v < 2; v++) {
        dlp_s3_transport t = trusting();
        SSL_CTX *ctx = serve_as(&good, versions[v]), *refused = serve_as(&good, versions[v]);
        rig r;
        for (int i = 0; i < 3; i++) {
            CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
            CHECK(SSL_session_reused(r.ssl) == (i > 0));
            rig_echo(&r);
            rig_end(&r);
        }
        CHECK(rig_connect(&r, ctx, &t, "localhost") == 0); /* another name's is not offered */
        CHECK(!SSL_session_reused(r.ssl));
        rig_end(&r);
        CHECK(rig_connect(&r, refused, &t, "s3.example") == 0); /* the server does not know it */
        CHECK(!SSL_session_reused(r.ssl));
        rig_echo(&r);
        rig_end(&r);
        SSL_CTX_free(ctx);
        SSL_CTX_free(refused);
        dlpi_s3_tls_free(&t);
    }
}

static bool resumes(const dlp_s3_transport *t, SSL_CTX *ctx, int bucket) {
    char host[64];
    bool reused;
    rig r;
    snprintf(host, sizeof host, "bucket%d.s3.example", bucket);
    CHECK(rig_connect(&r, ctx, t, host) == 0);
    reused = SSL_session_reused(r.ssl);
    rig_echo(&r);
    rig_end(&r);
    return reused;
}

static void tls__many_hosts__tickets_bounded(void) {
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&wildcard, 0);
    for (int i = 0; i < DLPI_S3_TICKETS; i++) CHECK(!resumes(&t, ctx, i));
    CHECK(resumes(&t, ctx, 0));
    CHECK(!resumes(&t, ctx, DLPI_S3_TICKETS)); /* takes the place of 1 */
    CHECK(resumes(&t, ctx, 0));
    CHECK(resumes(&t, ctx, 2));
    CHECK(!resumes(&t, ctx, 1));
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

static void tls__child_closes__parent_goes_on(void) {
    dlp_s3_transport t = trusting();
    SSL_CTX *ctx = serve_as(&good, 0);
    int status = 1;
    pid_t pid;
    rig r;
    CHECK(rig_connect(&r, ctx, &t, "s3.example") == 0);
    rig_echo(&r);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int before = test_failures;
        const dlpi_s3_tls *shared = t.user;
        const dlpi_s3_tls_own *parents = shared->own;
        rig own;
        CHECK(!dlpi_s3_conn_mine(&r.c));
        dlpi_s3_conn_close(&r.c);
        CHECK(rig_connect(&own, ctx, &t, "s3.example") == 0);
        CHECK(shared->own != parents && shared->own->pid == getpid());
        rig_echo(&own);
        rig_end(&own);
        dlpi_s3_tls_free(&t);
        fflush(stdout);
        _exit(test_failures != before);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    rig_echo(&r);
    rig_end(&r);
    SSL_CTX_free(ctx);
    dlpi_s3_tls_free(&t);
}

static void *shake_often(void *user) {
    SSL_CTX *ctx = serve_as(&good, 0);
    const dlp_s3_transport *t = user;
    intptr_t bad = 0;
    for (int i = 0; i < 5; i++) {
        rig r;
        bad += rig_connect(&r, ctx, t, "s3.example") != 0;
        rig_end(&r);
    }
    SSL_CTX_free(ctx);
    return (void *)bad;
}

static void tls__many_threads__one_context(void) {
    dlp_s3_transport t = trusting();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, shake_often, &t) == 0);
    for (int i = 0; i < 4; i++) {
        void *bad = &t;
        CHECK(pthread_join(threads[i], &bad) == 0 && bad == NULL);
    }
    dlpi_s3_tls_free(&t);
}

/* ---- credentials for a web identity, of STS ---- */

typedef struct {
    SSL_CTX *ctx;
    int listener, requests;
    char body[2000]; /* of the last request */
} sts;

static bool sts_answer(sts *s, SSL *ssl) {
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nConnection: close\r\n\r\n"
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
        "<AccessKeyId>AKIDEXAMPLE</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
        "<SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    size_t n = 0;
    if (SSL_accept(ssl) != 1) return false;
    while (n < sizeof s->body - 1 && !(n && strstr(s->body, "WebIdentityToken=a.b.c"))) {
        int got = SSL_read(ssl, s->body + n, (int)(sizeof s->body - 1 - n));
        if (got <= 0) return false;
        n += (size_t)got;
        s->body[n] = '\0';
    }
    s->requests++;
    return SSL_write(ssl, answer, sizeof answer - 1) > 0 && SSL_shutdown(ssl) >= 0;
}

/* One connection. */
static void *sts_serve(void *user) {
    sts *s = user;
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    SSL *ssl = SSL_new(s->ctx);
    SSL_set_fd(ssl, fd);
    sts_answer(s, ssl);
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static void sts__over_tls__only_where_trusted(void) {
    static dlpi_s3_config c;
    static dlpi_s3_cred_cache v;
    dlp_s3_transport t = trusting();
    FILE *f = fopen(junk_path, "w");
    CHECK(f && fputs("a.b.c\n", f) >= 0 && fclose(f) == 0);
    signal(SIGPIPE, SIG_IGN); /* the server's own writes */
    for (int trusted = 0; trusted < 2; trusted++) {
        sts s = {.ctx = serve_as(trusted ? &by_ip : &stranger, 0)};
        dlpi_s3_credentials who;
        dlpi_s3_address at;
        dlp_s3_error err;
        pthread_t thread;
        int code;
        s.listener = listen_on(AF_INET, &at);
        memset(&c, 0, sizeof c);
        memset(&v, 0, sizeof v);
        memset(&who, 0, sizeof who);
        c.source = DLPI_S3_WEB;
        c.timeout_ms = 20000;
        c.attempts = 3; /* the server takes one connection only */
        c.pause_ms = 1;
        c.clock = dlpi_s3_real_s;
        c.tls = &t;
        snprintf(c.url, sizeof c.url, "https://127.0.0.1:%u", (unsigned)ntohs(at.at.v4.sin_port));
        snprintf(c.token_file, sizeof c.token_file, "%s", junk_path);
        snprintf(c.role, sizeof c.role, "arn:aws:iam::1:role/r");
        snprintf(c.session, sizeof c.session, "s");
        CHECK(dlpi_s3_cred_cache_begin(&v) == 0);
        CHECK(pthread_create(&thread, NULL, sts_serve, &s) == 0);
        code = dlpi_s3_cred_cache_refresh(&c, &v, 0, false, &err);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(code == (trusted ? DLP_OK : DLP_ERR_REMOTE) && s.requests == trusted);
        if (trusted)
            CHECK(dlpi_s3_cred_cache_get(&v, 0, &who) == 0 && strcmp(who.token, "session") == 0);
        else
            CHECK(strstr(err.message, "web identity") && strstr(err.message, "local issuer"));
        if (code && trusted) printf("%s\n", err.message);
        close(s.listener);
        SSL_CTX_free(s.ctx);
    }
    signal(SIGPIPE, SIG_DFL);
    dlpi_s3_tls_free(&t);
}

/* ---- objects through it ---- */

enum { OBJECT = 300000 };

typedef struct {
    SSL_CTX *ctx;
    int listener;
    uint64_t cut_after; /* bytes of the first body, then the socket is closed; 0: never */
    int connections, requests;
    char *object;
} server;

static bool send_all(SSL *ssl, const char *bytes, size_t n) {
    return n == 0 || SSL_write(ssl, bytes, (int)n) == (int)n;
}

/* Answer with what the request's Range asks for. Returns whether the connection goes on. */
static bool answer(server *s, SSL *ssl, const char *request) {
    const char *range = strstr(request, "Range: bytes=");
    unsigned long long first = 0, last = OBJECT - 1;
    uint64_t n, cut = s->cut_after;
    char head[256];
    if (!range) range = strstr(request, "range: bytes=");
    if (range) sscanf(range + 13, "%llu-%llu", &first, &last);
    if (last >= OBJECT) last = OBJECT - 1;
    n = last - first + 1;
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %llu\r\nETag: \"e\"\r\n",
             range ? "206 Partial Content" : "200 OK", (unsigned long long)n);
    s->requests++;
    if (range)
        snprintf(head + strlen(head), sizeof head - strlen(head),
                 "Content-Range: bytes %llu-%llu/%d\r\n", first, last, OBJECT);
    if (!send_all(ssl, head, strlen(head)) || !send_all(ssl, "\r\n", 2)) return false;
    s->cut_after = 0;
    return send_all(ssl, s->object + first, cut ? cut : n) && !cut;
}

static void serve_one(server *s, int fd) {
    SSL *ssl = SSL_new(s->ctx);
    char request[4096];
    int n = 0, got = 0;
    SSL_set_fd(ssl, fd);
    s->connections++;
    if (SSL_accept(ssl) == 1) {
        while ((got = SSL_read(ssl, request + n, (int)sizeof request - 1 - n)) > 0) {
            n += got;
            request[n] = '\0';
            if (!strstr(request, "\r\n\r\n")) continue;
            if (!answer(s, ssl, request)) break;
            n = 0;
        }
    }
    SSL_set_quiet_shutdown(ssl, 1);
    SSL_free(ssl);
    close(fd);
}

static void *serve(void *user) {
    server *s = user;
    sigset_t all;
    int fd;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) serve_one(s, fd);
    return NULL;
}

/* Get the object by this host name. Returns the request's code. */
static int get_from(server *s, const identity *as, const char *host, uint64_t cut,
                    dlp_s3_error *err, dlp_s3_stats *stats) {
    char url[64], *body = calloc(1, OBJECT);
    dlp_s3_desc desc = {.endpoint = url,
                        .anonymous = 1,
                        .ca_file = ca_path,
                        .hedge_percent = -1,
                        .max_requests = 1,
                        .backoff_ms = 1};
    dlpi_s3_address a;
    uint64_t received = 0;
    dlp_s3_io *io = NULL;
    dlp_s3 *s3 = NULL;
    pthread_t thread;
    int code;
    memset(s, 0, sizeof *s);
    s->ctx = serve_as(as, demanding);
    s->listener = listen_on(AF_INET, &a);
    s->object = pattern(OBJECT);
    s->cut_after = cut;
    snprintf(url, sizeof url, "https://%s:%d", host, (int)ntohs(a.at.v4.sin_port));
    CHECK(pthread_create(&thread, NULL, serve, s) == 0);
    CHECK(dlp_s3_open(&s3, &desc, err) == DLP_OK && dlp_s3_io_open(&io, s3, err) == DLP_OK);
    code = dlp_s3_get(io, "bucket", "key", body, OBJECT, &received, err);
    if (code == DLP_OK) CHECK(received == OBJECT && memcmp(body, s->object, OBJECT) == 0);
    dlp_s3_stats_get(s3, stats);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    shutdown(s->listener, SHUT_RDWR); /* ends the thread's accept */
    pthread_join(thread, NULL);
    close(s->listener);
    SSL_CTX_free(s->ctx);
    free(s->object);
    free(body);
    return code;
}

static void client__https__object_whole(void) {
    dlp_s3_error err;
    dlp_s3_stats stats;
    server s;
    CHECK(get_from(&s, &by_ip, "127.0.0.1", 0, &err, &stats) == DLP_OK);
    CHECK(s.connections == 1 && stats.retries == 0);
    CHECK(get_from(&s, &good, "localhost", 0, &err, &stats) == DLP_OK); /* by whichever address */
}

static void client__not_trusted__given_up_at_once(void) {
    dlp_s3_error err;
    dlp_s3_stats stats;
    char line[1024];
    server s;
    CHECK(get_from(&s, &good, "127.0.0.1", 0, &err, &stats) != DLP_OK);
    CHECK(s.requests == 0 && s.connections == 1 && stats.retries == 0);
    dlp_s3_error_format(&err, line, sizeof line);
    CHECK(strstr(line, "certificate of 127.0.0.1") && strstr(line, "IP address mismatch"));
    CHECK(err.errnum == EKEYREJECTED);
}

static void client__own_certificate_wanted__told_and_given_up(void) {
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    dlp_s3_error err;
    dlp_s3_stats stats;
    server s;
    for (int i = 0; i < 2; i++) {
        demanding = versions[i];
        CHECK(get_from(&s, &by_ip, "127.0.0.1", 0, &err, &stats) == DLP_ERR_REMOTE);
        CHECK(strstr(err.message, "wants a certificate of its clients") != NULL);
        CHECK(s.requests == 0 && (i == 1 || stats.retries == 0));
        /* TLS 1.3: a reset may come before the alert that says why */
    }
    demanding = 0;
}

static void client__cut_without_a_word__goes_on_where_it_was(void) {
    dlp_s3_error err;
    dlp_s3_stats stats;
    server s;
    CHECK(get_from(&s, &by_ip, "127.0.0.1", 123456, &err, &stats) == DLP_OK);
    CHECK(s.connections == 2 && s.requests == 2 && stats.resumes == 1);
}

int main(void) {
    make_all();
    client__https__object_whole();
    client__not_trusted__given_up_at_once();
    client__own_certificate_wanted__told_and_given_up();
    client__cut_without_a_word__goes_on_where_it_was();
    tls__trusted__accepted_and_named();
    tls__not_trusted__refused_with_host_and_reason();
    tls__no_host_to_verify__refused();
    tls__ca_file__wrong_ones_are_named();
    tls__single_bytes__same_bytes();
    tls__long_body__read_in_odd_pieces();
    tls__slow_taker__writes_in_parts();
    tls__write_before_handshake__wants_read();
    tls__others_errors_in_the_queue__not_taken_for_ours();
    tls__server_gone_in_handshake__broken();
    tls__end__whole_only_with_a_word();
    tls__writes_to_nobody__no_sigpipe();
    tls__second_connection__session_resumed();
    tls__many_hosts__tickets_bounded();
    tls__child_closes__parent_goes_on();
    tls__many_threads__one_context();
    sts__over_tls__only_where_trusted();
    forget_all();
    return test_end("s3_tls");
}
#endif
