/* Answers of HTTP/1: what is found in them, wherever they are cut; those that are not right, with
   why; limits, exactly at them and one above; bodies read past the parser; answers made up at
   random, whose contents are known. */
/* own: inside: the parser of answers */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_s3.h"
#include <inttypes.h>

#include "../../rig/check.h"

/* ---- an answer in words ---- */

typedef struct words {
    size_t n;
    char at[4096];
} words;

__attribute__((format(printf, 2, 3))) static void say(words *w, const char *format, ...) {
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(w->at + w->n, sizeof w->at - w->n, format, args);
    va_end(args);
    if (n > 0) w->n += (size_t)n;
    if (w->n >= sizeof w->at) abort();
}

static void say_head(words *w, const dlpi_s3_http *h) {
    say(w, "%d", h->status);
    if (h->version_minor != 1) say(w, " 1.%d", h->version_minor);
    if (h->chunked) say(w, " chunked");
    if (h->has_length) say(w, " length %" PRId64, h->content_length);
    if (!h->has_length && h->content_length != -1) say(w, " no length?");
    if (h->until_close) say(w, " until close");
    if (h->has_range) say(w, " range %" PRIu64 "-%" PRIu64, h->range_first, h->range_last);
    if (h->range_total != UINT64_MAX) say(w, " of %" PRIu64, h->range_total);
    if (h->date_s >= 0) say(w, " date %" PRId64, h->date_s);
    if (h->retry_after_s >= 0) say(w, " retry %" PRId64, h->retry_after_s);
    if (h->encoded) say(w, " encoded");
    for (int kind = 1; kind < DLPI_S3_CRCS; kind++)
        if (h->has_crc[kind]) say(w, " %s %" PRIx64, dlpi_s3_crc_name(kind), h->crc[kind]);
    if (h->crc_whole) say(w, " whole");
    if (h->etag[0]) say(w, " etag %s", h->etag);
    if (h->request_id[0]) say(w, " id %s", h->request_id);
    if (h->location[0]) say(w, " location %s", h->location);
    if (h->region[0]) say(w, " region %s", h->region);
}

/* One walk through an answer, and what was seen on it. */
typedef struct walk {
    dlpi_s3_http h;
    int rc; /* END or BAD in the end; MORE before */
    int heads;
    size_t body_n;
    char body[1 << 17];
    size_t over; /* bytes that were given, and belong to nobody */
    bool eof;    /* it needed the connection's end */
    words head;
} walk;

static void walk_begin(walk *w, bool head) {
    dlpi_s3_http_begin(&w->h, head);
    w->rc = w->heads = 0;
    w->body_n = w->over = w->head.n = 0;
    w->eof = false;
}

static void walk_body(walk *w, const char *bytes, size_t n) {
    if (n > sizeof w->body - w->body_n) abort();
    memcpy(w->body + w->body_n, bytes, n);
    w->body_n += n;
}

/* Give it bytes that lie in memory of just their size, so that a step past them is seen. */
static void walk_give(walk *w, const char *bytes, size_t n) {
    char *own = malloc(n ? n : 1);
    size_t at = 0;
    if (own == NULL) abort();
    memcpy(own, bytes, n);
    for (int turns = 0; w->rc == DLPI_S3_HTTP_MORE; turns++) {
        size_t used = 77, body_n = 77;
        const char *body = own - 1;
        int rc = dlpi_s3_http_feed(&w->h, own + at, n - at, &used, &body, &body_n);
        if (used > n - at || turns > 200000) abort();
        if (rc == DLPI_S3_HTTP_BODY) {
            if (body < own + at || body + body_n != own + at + used || body_n == 0) abort();
            if (w->heads == 0) abort();
            walk_body(w, body, body_n);
        } else if (body != NULL || body_n != 0) {
            abort();
        }
        at += used;
        if (rc == DLPI_S3_HTTP_HEAD) {
            w->heads++;
            say_head(&w->head, &w->h);
        }
        if (rc == DLPI_S3_HTTP_MORE && at != n) abort();
        if (rc == DLPI_S3_HTTP_END || rc == DLPI_S3_HTTP_BAD) w->rc = rc;
        if (rc == DLPI_S3_HTTP_MORE) break;
    }
    w->over += n - at;
    if (w->rc == DLPI_S3_HTTP_END && w->over) { /* nobody's bytes, seen or told */
        size_t used;
        const char *body;
        size_t body_n;
        dlpi_s3_http_feed(&w->h, own + at, n - at, &used, &body, &body_n);
    }
    free(own);
}

static void walk_end(walk *w) {
    if (w->rc == DLPI_S3_HTTP_MORE) {
        w->rc = dlpi_s3_http_eof(&w->h);
        w->eof = true;
    }
}

static const char *walk_words(const walk *w) {
    static words all;
    all.n = 0;
    if (w->rc == DLPI_S3_HTTP_BAD) {
        say(&all, "bad: %s", w->h.why ? w->h.why : "?");
        if (w->heads) say(&all, ", after %s", w->head.at);
    } else {
        words again = {0, ""};
        say_head(&again, &w->h);
        say(&all, "%s", w->head.at);
        if (strcmp(again.at, w->head.at) != 0) say(&all, ", then %s", again.at);
        if (w->heads != 1 || !w->h.done || w->h.why) say(&all, " %d heads?", w->heads);
        if (w->body_n) say(&all, " body %.*s", (int)(w->body_n < 200 ? w->body_n : 200), w->body);
        if (w->over) say(&all, " over");
        if (w->eof && w->h.keep_alive) say(&all, " kept at its end?");
        say(&all, w->h.keep_alive ? " keep" : " close");
    }
    if (strlen(w->h.etag) > 71 || strlen(w->h.request_id) > 95 || strlen(w->h.location) > 1023 ||
        strlen(w->h.region) > 63)
        abort();
    return all.at;
}

static walk walker;

/* In pieces: cut at a and b; in single bytes if a > n. */
static const char *walked(const char *s, size_t n, bool head, size_t a, size_t b) {
    walk_begin(&walker, head);
    if (a > n)
        for (size_t i = 0; i < n; i++) walk_give(&walker, s + i, 1);
    else {
        walk_give(&walker, s, a);
        walk_give(&walker, s + a, b - a);
        walk_give(&walker, s + b, n - b);
    }
    walk_end(&walker);
    return walk_words(&walker);
}

static uint64_t rolls = 88172645463325252u;

static size_t roll(size_t n) { return (size_t)(dlpi_s3_random(&rolls) % n); }

/* In pieces of any sizes, with what may go past the parser going past it at times. */
static const char *walked_past(const char *s, size_t n, bool head) {
    size_t at = 0, most = 1 + roll(40);
    walk_begin(&walker, head);
    while (at < n) {
        size_t k = 1 + roll(most);
        uint64_t direct = dlpi_s3_http_direct(&walker.h);
        if (k > n - at) k = n - at;
        if (walker.heads == 0 && direct) abort(); /* nothing goes past an untold head */
        if (direct > 0 && roll(2)) {
            int rc;
            if (k > direct) k = (size_t)direct;
            walk_body(&walker, s + at, k);
            rc = dlpi_s3_http_took(&walker.h, k);
            CHECK(rc == (walker.h.done ? DLPI_S3_HTTP_END : DLPI_S3_HTTP_MORE));
        } else {
            walk_give(&walker, s + at, k);
        }
        at += k;
    }
    walk_give(&walker, s, 0); /* the end of a body that went past is told */
    walk_end(&walker);
    return walk_words(&walker);
}

static void expect(const char *how, const char *s, size_t n, const char *got, const char *want) {
    test_checks++;
    if (strcmp(got, want) == 0 || test_failures++ >= 20) return;
    printf("%s, of:\n%.*s\n  is      %s\n  and not %s\n", how, (int)(n < 600 ? n : 600), s, got,
           want);
}

/* However it is cut, this is what it says. */
static void answer_is(const char *s, size_t n, bool head, const char *want) {
    size_t step = n < 400 ? 1 : n / 200;
    char how[64];
    expect("whole", s, n, walked(s, n, head, n, n), want);
    expect("byte by byte", s, n, walked(s, n, head, n + 1, 0), want);
    for (size_t a = 0; a < n; a += step) {
        snprintf(how, sizeof how, "cut at %zu", a);
        expect(how, s, n, walked(s, n, head, a, a), want);
    }
    for (size_t a = 0; n <= 110 && a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            snprintf(how, sizeof how, "cut at %zu and %zu", a, b);
            expect(how, s, n, walked(s, n, head, a, b), want);
        }
    for (int i = 0; i < 20; i++) expect("at random", s, n, walked_past(s, n, head), want);
}

/* ---- the table ---- */

#define TEXT(s) s, sizeof(s) - 1
#define OK "HTTP/1.1 200 OK\r\n"
#define CH "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define L0 "Content-Length: 0\r\n\r\n"

static const struct answer {
    const char *text;
    size_t n;
    bool head; /* to HEAD */
    const char *want;
} answers[] = {
    /* status lines */
    {TEXT(OK L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 200\r\n" L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 200 \r\n" L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 404 Not \xc3\xa9 found: 200\t\r\n" L0), 0, "404 length 0 keep"},
    {TEXT("HTTP/1.7 200 OK\r\n" L0), 0, "200 1.7 length 0 keep"},
    {TEXT("HTTP/1.1 599 x\r\n" L0), 0, "599 length 0 keep"},
    {TEXT("HTTP/1.1 600 x\r\n" L0), 0, "bad: the status is \"600\", must be 100..599"},
    {TEXT("HTTP/1.1 099 x\r\n" L0), 0, "bad: the status is \"099\", must be 100..599"},
    {TEXT("HTTP/1.1 20 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.1 2000 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.1 2x0 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.1  200 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.1\t200 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.10 200 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.x 200 OK\r\n" L0), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/1.1\r\n"), 0, "bad: the status line is not HTTP/1.x and a number"},
    {TEXT("HTTP/2.0 200 OK\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("HTTP/2 200\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("http/1.1 200 OK\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("HTTH/1.1 200 OK\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT(" HTTP/1.1 200 OK\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("\r\nHTTP/1.1 200 OK\r\n" L0), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("SSH-2.0-OpenSSH_9.2p1"), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("HTTP\n"), 0, "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("\x15\x03\x01\x00\x02\x02"), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("\0"), 0, "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT(""), 0, "bad: the connection ended before an answer"},
    {TEXT("HTTP/1.1 200 O"), 0, "bad: the connection ended inside the head"},
    {TEXT("HTTP/1.1 200 OK\r\nA: b\r\n"), 0, "bad: the connection ended inside the head"},
    {TEXT("HTTP/1.1 200 O\0K\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT("HTTP/1.1 200 O\x7fK\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT("HTTP/1.1 200 OK\n" L0), 0, "bad: a line ends without CR"},
    {TEXT("HTTP/1.1 200 O\rK\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT("HTTP/1.1 200 OK\r\r\n" L0), 0, "bad: a control byte in a line"},
    /* 1xx */
    {TEXT("HTTP/1.1 100 Continue\r\n\r\n" OK L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 103 Early\r\nLocation: /x\r\nETag: \"a\"\r\nContent-Length: 5\r\n"
          "Connection: close\r\nContent-Range: bytes 0-0/1\r\n\r\n" OK L0),
     0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 102 x\r\n\r\nHTTP/1.1 102 y\r\n\r\n" OK L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 100 Continue\r\n\r\n"), 0, "bad: the connection ended inside the head"},
    {TEXT("HTTP/1.1 100 Continue\r\n\r\nhello"), 0,
     "bad: the answer does not begin with HTTP/1 (https, or another port?)"},
    {TEXT("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), 0,
     "bad: the answer is 101, and no other protocol was asked for"},
    /* header lines */
    {TEXT(OK "content-LENGTH:3\r\n\r\nabc"), 0, "200 length 3 body abc keep"},
    {TEXT(OK "Content-Length: \t 3 \t \r\n\r\nabc"), 0, "200 length 3 body abc keep"},
    {TEXT(OK "Empty:\r\nBlank: \t\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "!#$%&'*+-.^_`|~09azAZ: odd name\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Server: \x80\xff\t\"x\"\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Content-Lengt: 9\r\nContent-Lengthy: 9\r\nXontent-Length: 9\r\n" L0), 0,
     "200 length 0 keep"},
    {TEXT(OK "A: b\r\n c\r\n" L0), 0, "bad: a header line goes on in the next (folded)"},
    {TEXT(OK "A: b\r\n\tc\r\n" L0), 0, "bad: a header line goes on in the next (folded)"},
    {TEXT(OK " A: b\r\n" L0), 0, "bad: a header line goes on in the next (folded)"},
    {TEXT(OK "A : b\r\n" L0), 0, "bad: a header line has no name and colon"},
    {TEXT(OK ": b\r\n" L0), 0, "bad: a header line has no name and colon"},
    {TEXT(OK "A\r\n" L0), 0, "bad: a header line has no name and colon"},
    {TEXT(OK "A(b): c\r\n" L0), 0, "bad: a header line has no name and colon"},
    {TEXT(OK "\xc3\xa9: c\r\n" L0), 0, "bad: a header line has no name and colon"},
    {TEXT(OK "A: b\n" L0), 0, "bad: a line ends without CR"},
    {TEXT(OK "A: b\r\n\n"), 0, "bad: a line ends without CR"},
    {TEXT(OK "A: b\rC: d\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT(OK "A: b\0\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT(OK "A: 12345678\x01 1234567\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT(OK "A: 12345678\x1f\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT(OK "A: 1234567890\x1f"
             "1234567890\r\n" L0),
     0, "bad: a control byte in a line"},
    {TEXT(OK "A: 1234\t678\t\x7f 1234567\r\n" L0), 0, "bad: a control byte in a line"},
    {TEXT(OK "A\0: b\r\n" L0), 0, "bad: a control byte in a line"},
    /* lengths */
    {TEXT(OK "Content-Length: 3\r\nContent-Length: 003\r\n\r\nabc"), 0,
     "200 length 3 body abc keep"},
    {TEXT(OK "Content-Length: 3, 3,,3\r\n\r\nabc"), 0, "200 length 3 body abc keep"},
    {TEXT(OK "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"), 0,
     "bad: a second Content-Length is \"4\", must be as the first"},
    {TEXT(OK "Content-Length: 3, 4\r\n\r\nabc"), 0,
     "bad: a second Content-Length is \"4\", must be as the first"},
    {TEXT(OK "Content-Length: 9223372036854775807\r\n\r\nabc"), 0,
     "bad: the connection ended inside the body, after 200 length 9223372036854775807"},
    {TEXT(OK "Content-Length: 9223372036854775808\r\n\r\nabc"), 0,
     "bad: Content-Length is \"9223372036854775808\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: 18446744073709551617\r\n\r\nabc"), 0,
     "bad: Content-Length is \"18446744073709551617\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: 99999999999999999999999999\r\n\r\nabc"), 0,
     "bad: Content-Length is \"99999999999999999999999999\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: -1\r\n\r\n"), 0,
     "bad: Content-Length is \"-1\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: +3\r\n\r\n"), 0,
     "bad: Content-Length is \"+3\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: 0x3\r\n\r\n"), 0,
     "bad: Content-Length is \"0x3\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: 3 3\r\n\r\n"), 0,
     "bad: Content-Length is \"3?3\", must be a number below 2^63"},
    {TEXT(OK "Content-Length: 3;\r\n\r\n"), 0,
     "bad: Content-Length is \"3;\", must be a number below 2^63"},
    {TEXT(OK "Content-Length:\r\n\r\n"), 0, "bad: Content-Length is empty"},
    {TEXT(OK "Content-Length: ,\r\n\r\n"), 0, "bad: Content-Length is empty"},
    {TEXT(OK "Content-Length: 3\r\n\r\nab"), 0,
     "bad: the connection ended inside the body, after 200 length 3"},
    {TEXT(OK "Content-Length: 3\r\n\r\nabcd"), 0, "200 length 3 body abc over close"},
    {TEXT(OK "Content-Length: 3\r\n\r\nabc\r\n"), 0, "200 length 3 body abc over close"},
    {TEXT(OK L0 OK), 0, "200 length 0 over close"},
    /* both, or until close */
    {TEXT(OK "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 0,
     "bad: the answer has both Content-Length and Transfer-Encoding"},
    {TEXT(OK "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 0,
     "bad: the answer has both Content-Length and Transfer-Encoding"},
    {TEXT(OK "\r\nhello"), 0, "200 until close body hello close"},
    {TEXT(OK "\r\n"), 0, "200 until close close"},
    {TEXT(OK "Connection: keep-alive\r\n\r\nhello"), 0, "200 until close body hello close"},
    {TEXT("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhi"), 0,
     "200 1.0 until close body hi close"},
    {TEXT("HTTP/1.1 500 x\r\n\r\nhello"), 0, "500 until close body hello close"},
    /* none */
    {TEXT(OK "Content-Length: 3\r\n\r\n"), 1, "200 length 3 keep"},
    {TEXT(OK "Content-Length: 3\r\n\r\nabc"), 1, "200 length 3 over close"},
    {TEXT(OK "Transfer-Encoding: chunked\r\n\r\n"), 1, "200 chunked keep"},
    {TEXT(OK "\r\n"), 1, "200 keep"},
    {TEXT("HTTP/1.1 404 No\r\nContent-Length: 300\r\n\r\n"), 1, "404 length 300 keep"},
    {TEXT("HTTP/1.1 204 No\r\n\r\n"), 0, "204 keep"},
    {TEXT("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n"), 0, "204 length 0 keep"},
    {TEXT("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n"), 0, "204 length 3 close"},
    {TEXT("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"), 0, "204 chunked close"},
    {TEXT("HTTP/1.1 304 No\r\nContent-Length: 3\r\nETag: \"x\"\r\n\r\n"), 0,
     "304 length 3 etag \"x\" keep"},
    {TEXT("HTTP/1.1 304 No\r\n\r\nbody"), 0, "304 over close"},
    {TEXT("HTTP/1.1 205 No\r\n" L0), 0, "205 length 0 keep"},
    /* keep-alive */
    {TEXT(OK "Connection: close\r\n" L0), 0, "200 length 0 close"},
    {TEXT(OK "Connection: keep-alive\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Connection: Keep-Alive, CLOSE\r\n" L0), 0, "200 length 0 close"},
    {TEXT(OK "Connection: close\r\nConnection: keep-alive\r\n" L0), 0, "200 length 0 close"},
    {TEXT(OK "Connection: , ,x ,\t close ,\r\n" L0), 0, "200 length 0 close"},
    {TEXT(OK "Connection: closed, clos, xclose\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Connection:\r\n" L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.0 200 OK\r\n" L0), 0, "200 1.0 length 0 close"},
    {TEXT("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n" L0), 0, "200 1.0 length 0 keep"},
    {TEXT("HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\n" L0), 0, "200 1.0 length 0 close"},
    /* chunks */
    {TEXT(CH "5\r\nhello\r\n0\r\n\r\n"), 0, "200 chunked body hello keep"},
    {TEXT(CH "0\r\n\r\n"), 0, "200 chunked keep"},
    {TEXT(CH "000\r\n\r\n"), 0, "200 chunked keep"},
    {TEXT(CH "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), 0, "200 chunked body hello keep"},
    {TEXT(CH "0000000000000005\r\nhello\r\n0\r\n\r\n"), 0, "200 chunked body hello keep"},
    {TEXT(CH "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), 0,
     "200 chunked body 01234567890123456789 keep"},
    {TEXT(CH "5;a\r\nhello\r\n0;b=c;d=\"e;f\"\r\n\r\n"), 0, "200 chunked body hello keep"},
    {TEXT(CH "5 \t; a = b\r\nhello\r\n0\t;\r\n\r\n"), 0, "200 chunked body hello keep"},
    {TEXT(CH "5\r\nhello\r\n0\r\nA: b\r\nContent-Length: 77\r\nETag: \"no\"\r\n\r\n"), 0,
     "200 chunked body hello keep"},
    {TEXT(CH "2\r\n\r\n\r\n0\r\n\r\n"), 0, "200 chunked body \r\n keep"},
    {TEXT(CH "5\r\nhello\r\n0\r\n\r\nx"), 0, "200 chunked body hello over close"},
    {TEXT(OK "transfer-encoding: CHUNKED\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n"), 0,
     "200 chunked body x close"},
    {TEXT(CH "5 \r\nhello\r\n0\r\n\r\n"), 0,
     "bad: a chunk's size is not a number, after 200 chunked"},
    {TEXT(CH " 5\r\nhello\r\n0\r\n\r\n"), 0,
     "bad: a chunk of the body has no size, after 200 chunked"},
    {TEXT(CH "\r\n"), 0, "bad: a chunk of the body has no size, after 200 chunked"},
    {TEXT(CH ";x\r\n"), 0, "bad: a chunk of the body has no size, after 200 chunked"},
    {TEXT(CH "-1\r\n"), 0, "bad: a chunk of the body has no size, after 200 chunked"},
    {TEXT(CH "0x5\r\nhello\r\n"), 0, "bad: a chunk's size is not a number, after 200 chunked"},
    {TEXT(CH "5g\r\nhello\r\n"), 0, "bad: a chunk's size is not a number, after 200 chunked"},
    {TEXT(CH "5,5\r\nhello\r\n"), 0, "bad: a chunk's size is not a number, after 200 chunked"},
    {TEXT(CH "5\nhello\r\n0\r\n\r\n"), 0, "bad: a line ends without CR, after 200 chunked"},
    {TEXT(CH "5;\0\r\nhello\r\n"), 0, "bad: a control byte in a line, after 200 chunked"},
    {TEXT(CH "5;\"\r\"\r\nhello\r\n"), 0, "bad: a control byte in a line, after 200 chunked"},
    {TEXT(CH "5\r\nhello!\r\n0\r\n\r\n"), 0,
     "bad: a chunk does not end where it should, after 200 chunked"},
    {TEXT(CH "5\r\nhell\r\n0\r\n\r\n"), 0,
     "bad: a chunk does not end where it should, after 200 chunked"},
    {TEXT(CH "5\r\nhello\n0\r\n\r\n"), 0,
     "bad: a chunk does not end where it should, after 200 chunked"},
    {TEXT(CH "5\r\nhello\r0\r\n\r\n"), 0,
     "bad: a chunk does not end where it should, after 200 chunked"},
    {TEXT(CH "7fffffffffffffff\r\nx"), 0,
     "bad: the connection ended inside the body, after 200 chunked"},
    {TEXT(CH "8000000000000000\r\nx"), 0,
     "bad: a chunk's size is not below 2^63, after 200 chunked"},
    {TEXT(CH "00000000000000005\r\nhello\r\n0\r\n\r\n"), 0,
     "bad: a chunk's size is not below 2^63, after 200 chunked"},
    {TEXT(CH "10000000000000005\r\nhello\r\n0\r\n\r\n"), 0,
     "bad: a chunk's size is not below 2^63, after 200 chunked"},
    {TEXT(CH "5\r\nhel"), 0, "bad: the connection ended inside the body, after 200 chunked"},
    {TEXT(CH "5\r\nhello\r\n"), 0, "bad: the connection ended inside the body, after 200 chunked"},
    {TEXT(CH "5\r\nhello\r\n0\r\n"), 0,
     "bad: the connection ended inside the body, after 200 chunked"},
    {TEXT(CH "0\r\n A: b\r\n\r\n"), 0,
     "bad: a header line goes on in the next (folded), after 200 chunked"},
    {TEXT(CH "0\r\nA b\r\n\r\n"), 0, "bad: a header line has no name and colon, after 200 chunked"},
    {TEXT(CH "0\r\nA: \x02\r\n\r\n"), 0, "bad: a control byte in a line, after 200 chunked"},
    {TEXT(CH "0\r\nA: b\n\r\n"), 0, "bad: a line ends without CR, after 200 chunked"},
    {TEXT("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 0,
     "bad: the answer has Transfer-Encoding, but is HTTP/1.0"},
    {TEXT(OK "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"gzip,?chunked\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: gzip\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"gzip\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: chunked, chunked\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"chunked,?chunked\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"chunked\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: identity\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"identity\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding:\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: xchunked\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"xchunked\", must be chunked, once"},
    {TEXT(OK "Transfer-Encoding: chunkee\r\n\r\n"), 0,
     "bad: Transfer-Encoding is \"chunkee\", must be chunked, once"},
/* ranges */
#define P2 "HTTP/1.1 206 Part\r\nContent-Length: 0\r\nContent-Range: "
#define NONSENSE "bad: the answer is 206, but its Content-Range is damaged"
    {TEXT(P2 "bytes 0-9/100\r\n\r\n"), 0, "206 length 0 range 0-9 of 100 keep"},
    {TEXT(P2 "BYTES 5-5/6\r\n\r\n"), 0, "206 length 0 range 5-5 of 6 keep"},
    {TEXT(P2 "bytes 0-9/*\r\n\r\n"), 0, "206 length 0 range 0-9 keep"},
    {TEXT(P2 "bytes 0-9223372036854775806/9223372036854775807\r\n\r\n"), 0,
     "206 length 0 range 0-9223372036854775806 of 9223372036854775807 keep"},
    {TEXT(P2 "bytes 0-9/100\r\nContent-Range: bytes 0-9/100\r\n\r\n"), 0,
     "206 length 0 range 0-9 of 100 keep"},
    {TEXT(P2 "bytes 0-9/100\r\nContent-Range: bytes 0-9/101\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/100\r\nContent-Range: bytes 0-8/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/100\r\nContent-Range: x\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes */100\r\n\r\n"), 0, "206 length 0 of 100 keep"},
    {TEXT(P2 "bytes */*\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/9\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/10\r\n\r\n"), 0, "206 length 0 range 0-9 of 10 keep"},
    {TEXT(P2 "bytes 9-8/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-/9\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes -9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0 - 9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-9/**\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes=0-9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "0-9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes \r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "items 0-9/100\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 0-18446744073709551616/*\r\n\r\n"), 0, NONSENSE},
    {TEXT(P2 "bytes 18446744073709551616-18446744073709551617/*\r\n\r\n"), 0, NONSENSE},
    {TEXT("HTTP/1.1 206 Part\r\nContent-Type: multipart/byteranges; boundary=x\r\n" L0), 0,
     "206 length 0 keep"},
    {TEXT("HTTP/1.1 416 No\r\nContent-Range: bytes */0\r\n" L0), 0, "416 length 0 of 0 keep"},
    {TEXT("HTTP/1.1 416 No\r\nContent-Range: bytes */x\r\n" L0), 0, "416 length 0 keep"},
    {TEXT(OK "Content-Range: bytes 0-9/100\r\n" L0), 0, "200 length 0 range 0-9 of 100 keep"},
    {TEXT(OK "Content-Range: bytes 0-9/100\r\nContent-Range: nonsense\r\n" L0), 0,
     "200 length 0 keep"},
    /* what is kept */
    {TEXT(OK "ETag: \"d41d8cd9\"\r\nx-amz-request-id: 4442587FB7D0A2F9\r\n"
             "Date: Fri, 24 May 2013 00:00:00 GMT\r\nX-AMZ-BUCKET-REGION: eu-west-1\r\n"
             "Location: http://b.s3.eu-west-1.amazonaws.com/k?x=%20\r\n" L0),
     0,
     "200 length 0 date 1369353600 etag \"d41d8cd9\" id 4442587FB7D0A2F9 "
     "location http://b.s3.eu-west-1.amazonaws.com/k?x=%20 region eu-west-1 keep"},
    {TEXT(OK "ETag: W/\"x\"\r\n" L0), 0, "200 length 0 etag W/\"x\" keep"},
    {TEXT(OK "x-amz-request-id: a b\tc\xc3\xa9\r\n" L0), 0, "200 length 0 id a?b?c?? keep"},
    {TEXT(OK "Location: /a b\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Location: /\xc3\xa9\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "x-amz-bucket-region: EU\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "x-amz-bucket-region: a/b\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Date: yesterday\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Date:\r\n" L0), 0, "200 length 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: 120\r\n" L0), 0, "503 length 0 retry 120 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: 0\r\n" L0), 0, "503 length 0 retry 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: -1\r\n" L0), 0, "503 length 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: 1.5\r\n" L0), 0, "503 length 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: 99999999999999999999\r\n" L0), 0, "503 length 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: Fri, 24 May 2013 00:02:00 GMT\r\n"
          "Date: Fri, 24 May 2013 00:00:00 GMT\r\n" L0),
     0, "503 length 0 date 1369353600 retry 120 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nDate: Fri, 24 May 2013 00:02:01 GMT\r\n"
          "Retry-After: Fri, 24 May 2013 00:02:00 GMT\r\n" L0),
     0, "503 length 0 date 1369353721 retry 0 keep"},
    {TEXT("HTTP/1.1 503 Slow\r\nRetry-After: Fri, 24 May 2013 00:02:00 GMT\r\n" L0), 0,
     "503 length 0 retry 0 keep"},
    {TEXT(OK "Content-Encoding: gzip\r\n" L0), 0, "200 length 0 encoded keep"},
    {TEXT(OK "Content-Encoding: aws-chunked\r\n" L0), 0, "200 length 0 encoded keep"},
    {TEXT(OK "Content-Encoding: Identity\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "Content-Encoding: identity, br\r\n" L0), 0, "200 length 0 encoded keep"},
    {TEXT(OK "Content-Encoding: identityx\r\n" L0), 0, "200 length 0 encoded keep"},
    {TEXT(OK "Content-Encoding:\r\n" L0), 0, "200 length 0 keep"},
    {TEXT(OK "X-Amz-Checksum-CRC64NVME: rosUhgp5mIg=\r\nx-amz-checksum-type: Full_Object\r\n" L0),
     0, "200 length 0 CRC64NVME ae8b14860a799888 whole keep"},
    {TEXT(OK "x-amz-checksum-crc32c: 4waSgw==\r\nx-amz-checksum-type: COMPOSITE\r\n" L0), 0,
     "200 length 0 CRC32C e3069283 keep"},
    {TEXT(OK "x-amz-checksum-crc32c: 4waSgw==-2\r\nx-amz-checksum-crc64nvme:\r\n" L0), 0,
     "200 length 0 keep"},
    {TEXT(OK "x-amz-checksum-crc32x: 4waSgw==\r\nx-amz-checksum-type: FULL_OBJECTS\r\n" L0), 0,
     "200 length 0 keep"},
    {TEXT("HTTP/1.1 100 Continue\r\nx-amz-checksum-crc32c: 4waSgw==\r\n"
          "x-amz-checksum-type: FULL_OBJECT\r\n\r\n" OK L0),
     0, "200 length 0 keep"},
};

static void answers__cut_anywhere__say_the_same(void) {
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        answer_is(answers[i].text, answers[i].n, answers[i].head, answers[i].want);
}

/* ---- limits ---- */

static char big[1 << 18];
static size_t big_n;

static void big_add(const char *s) {
    while (*s) big[big_n++] = *s++;
}
static void big_fill(char c, size_t n) {
    memset(big + big_n, c, n);
    big_n += n;
}
static void big_begin(const char *s) {
    big_n = 0;
    big_add(s);
}
static void big_is(const char *want) {
    size_t step = big_n / (getenv("SHORT") ? 7 : 25) + 1;
    expect("whole", big, big_n, walked(big, big_n, false, big_n, big_n), want);
    expect("byte by byte", big, big_n, walked(big, big_n, false, big_n + 1, 0), want);
    for (size_t a = 0; a < big_n; a += step)
        expect("cut", big, big_n, walked(big, big_n, false, a, a + (big_n - a) / 2), want);
    for (int i = 0; i < 3; i++)
        expect("at random", big, big_n, walked_past(big, big_n, false), want);
}

static void line__at_its_limit__is_the_longest(void) {
    for (size_t more = 0; more < 2; more++) {
        big_begin(OK "A: "); /* a header line of 8,192 bytes with its end */
        big_fill('x', 8192 - 3 - 2 + more);
        big_add("\r\n" L0);
        big_is(more ? "bad: a header line is longer than 8 KiB" : "200 length 0 keep");
        big_begin("HTTP/1.1 200 ");
        big_fill('x', 8192 - 13 - 2 + more);
        big_add("\r\n" L0);
        big_is(more ? "bad: a header line is longer than 8 KiB" : "200 length 0 keep");
        big_begin(CH "0\r\nA: ");
        big_fill('x', 8192 - 3 - 2 + more);
        big_add("\r\n\r\n");
        big_is(more ? "bad: a header line is longer than 8 KiB, after 200 chunked"
                    : "200 chunked keep");
        big_begin(CH "1;"); /* a chunk's of 256 */
        big_fill('x', 256 - 2 - 2 + more);
        big_add("\r\ny\r\n0\r\n\r\n");
        big_is(more ? "bad: a chunk's line is longer than 256 bytes, after 200 chunked"
                    : "200 chunked body y keep");
    }
    big_begin(OK "A: "); /* and one that never ends is not waited for */
    big_fill('x', 9000);
    walk_begin(&walker, false);
    walk_give(&walker, big, big_n);
    CHECK(walker.rc == DLPI_S3_HTTP_BAD);
}

static void lines__many__are_read_up_to_all_bytes(void) {
    for (int more = 0; more < 2; more++) {
        big_begin(OK);
        for (int i = 0; i < (more ? 11000 : 10000); i++) big_add("A: b\r\n");
        big_add(L0);
        big_is(more ? "bad: header lines have more than 64 KiB" : "200 length 0 keep");
        big_begin(CH "0\r\n");
        for (int i = 0; i < (more ? 11000 : 10000); i++) big_add("A: b\r\n");
        big_add("\r\n");
        big_is(more ? "bad: header lines have more than 64 KiB, after 200 chunked"
                    : "200 chunked keep");
        big_begin("");
        for (int i = 0; i < 16 + more; i++) big_add("HTTP/1.1 102 x\r\n\r\n");
        big_add(OK L0);
        big_is(more ? "bad: more than 16 answers of 1xx" : "200 length 0 keep");
    }
}

/* Lines of 8,000 bytes, and one that fills the rest up to all. */
static void fill_head(size_t all) {
    size_t from = big_n;
    while (big_n - from + 8000 + 100 < all) {
        big_add("A: ");
        big_fill('x', 8000 - 5);
        big_add("\r\n");
    }
    big_add("B: ");
    big_fill('x', all - (big_n - from) - 2);
    big_add("\r\n");
}

static void head__at_its_limit__is_the_largest(void) {
    for (size_t more = 0; more < 2; more++) {
        big_begin(OK);
        fill_head(65536 - strlen(OK L0) + more);
        big_add(L0);
        big_is(more ? "bad: header lines have more than 64 KiB" : "200 length 0 keep");
        big_begin("HTTP/1.1 103 x\r\n"); /* what 1xx say counts too */
        fill_head(65536 - strlen("HTTP/1.1 103 x\r\n\r\n" OK L0) + more);
        big_add("\r\n" OK L0);
        big_is(more ? "bad: header lines have more than 64 KiB" : "200 length 0 keep");
        big_begin(CH "0\r\n");
        fill_head(65536 - 2 + more);
        big_add("\r\n");
        big_is(more ? "bad: header lines have more than 64 KiB, after 200 chunked"
                    : "200 chunked keep");
    }
}

static void extensions__at_their_limit__are_the_most(void) {
    for (size_t more = 0; more < 2; more++) {
        big_begin(CH); /* 512 times 128 bytes */
        for (int i = 0; i < 512; i++) {
            big_add("0001;");
            big_fill('x', 127 + (i == 511 ? more : 0));
            big_add("\r\ny\r\n");
        }
        big_add("0\r\n\r\n");
        walked(big, big_n, false, big_n / 3, big_n / 2);
        CHECK(walker.rc == (more ? DLPI_S3_HTTP_BAD : DLPI_S3_HTTP_END));
        CHECK(walker.body_n == 512 - more);
        CHECK(!more || strstr(walker.h.why, "extensions"));
    }
}

static void kept__longer_than_there_is_room__is_cut_or_left_out(void) {
    static const struct {
        const char *name;
        size_t most;
        bool cut;
        size_t at;
    } f[] = {{"ETag: ", 71, false, offsetof(dlpi_s3_http, etag)},
             {"x-amz-request-id: ", 95, true, offsetof(dlpi_s3_http, request_id)},
             {"x-amz-bucket-region: ", 63, false, offsetof(dlpi_s3_http, region)}};
    for (size_t i = 0; i < 3; i++)
        for (size_t more = 0; more < 2; more++) {
            const char *kept = (const char *)&walker.h + f[i].at;
            big_begin(OK);
            big_add(f[i].name);
            big_fill('a', f[i].most + more);
            big_add("\r\n" L0);
            walked(big, big_n, false, 30, 50);
            CHECK(walker.rc == DLPI_S3_HTTP_END && walker.heads == 1);
            CHECK(strlen(kept) == (more && !f[i].cut ? 0 : f[i].most));
        }
}

/* ---- bodies that go past the parser ---- */

static void direct__says_what_may_go_past(void) {
    dlpi_s3_http h;
    size_t used, n;
    const char *body, chunk[] = CH, whole[] = OK "Content-Length: 5\r\n\r\n";
    dlpi_s3_http_begin(&h, false);
    CHECK(dlpi_s3_http_direct(&h) == 0 && !h.began);
    CHECK(dlpi_s3_http_feed(&h, chunk, 0, &used, &body, &n) == DLPI_S3_HTTP_MORE && !h.began);
    CHECK(dlpi_s3_http_feed(&h, chunk, sizeof CH - 1, &used, &body, &n) == DLPI_S3_HTTP_HEAD);
    CHECK(h.began && h.head_done && !h.done && dlpi_s3_http_direct(&h) == 0);
    CHECK(dlpi_s3_http_feed(&h, "5\r\n", 3, &used, &body, &n) == DLPI_S3_HTTP_MORE);
    CHECK(dlpi_s3_http_direct(&h) == 5 && dlpi_s3_http_took(&h, 0) == DLPI_S3_HTTP_MORE);
    CHECK(dlpi_s3_http_took(&h, 2) == DLPI_S3_HTTP_MORE && dlpi_s3_http_direct(&h) == 3);
    CHECK(dlpi_s3_http_took(&h, 3) == DLPI_S3_HTTP_MORE && dlpi_s3_http_direct(&h) == 0);
    CHECK(dlpi_s3_http_feed(&h, "\r\n0\r\n\r\n", 7, &used, &body, &n) == DLPI_S3_HTTP_END);
    CHECK(used == 7 && h.done && h.keep_alive);

    dlpi_s3_http_begin(&h, false);
    CHECK(dlpi_s3_http_feed(&h, whole, sizeof whole - 1, &used, &body, &n) == DLPI_S3_HTTP_HEAD);
    CHECK(dlpi_s3_http_direct(&h) == 5 && dlpi_s3_http_took(&h, 5) == DLPI_S3_HTTP_END && h.done);
    CHECK(h.keep_alive && dlpi_s3_http_direct(&h) == 0);
    CHECK(dlpi_s3_http_eof(&h) == DLPI_S3_HTTP_END && !h.keep_alive);

    dlpi_s3_http_begin(&h, false);
    CHECK(dlpi_s3_http_feed(&h, whole, sizeof whole - 1, &used, &body, &n) == DLPI_S3_HTTP_HEAD);
    CHECK(dlpi_s3_http_took(&h, 6) == DLPI_S3_HTTP_BAD && !h.keep_alive && h.why);
    CHECK(dlpi_s3_http_feed(&h, "x", 1, &used, &body, &n) == DLPI_S3_HTTP_BAD && used == 0);
    CHECK(dlpi_s3_http_eof(&h) == DLPI_S3_HTTP_BAD && dlpi_s3_http_direct(&h) == 0);

    dlpi_s3_http_begin(&h, false);
    CHECK(dlpi_s3_http_feed(&h, OK "\r\n", sizeof OK + 1, &used, &body, &n) == DLPI_S3_HTTP_HEAD);
    CHECK(h.until_close && dlpi_s3_http_direct(&h) == (uint64_t)INT64_MAX);
    CHECK(dlpi_s3_http_took(&h, 1000) == DLPI_S3_HTTP_MORE);
    CHECK(dlpi_s3_http_eof(&h) == DLPI_S3_HTTP_END && h.done && !h.keep_alive);
}

/* ---- made up ---- */

/* A head of random lines, a body of n bytes, whole or in chunks. */
static void make_up(size_t n, bool chunked, bool close) {
    char line[128];
    size_t at = 0;
    big_begin("HTTP/1.1 200 OK\r\n");
    for (size_t k = roll(6); k > 0; k--) {
        big_add("X-");
        big_fill((char)('a' + roll(26)), 1 + roll(20));
        big_add(":");
        big_fill(' ', roll(3));
        big_fill((char)(33 + roll(90)), roll(60));
        big_add("\r\n");
    }
    if (close) big_add("conNECTion: x, cloSe\r\n");
    snprintf(line, sizeof line, "%sontent-length: %zu\r\n\r\n", roll(2) ? "c" : "C", n);
    big_add(chunked ? "Transfer-Encoding: chunked\r\n\r\n" : line);
    while (chunked && at < n) {
        size_t k = 1 + roll(n - at), room = 1 + roll(16);
        snprintf(line, sizeof line, roll(2) ? "%0*zx%s\r\n" : "%0*zX%s\r\n", (int)room, k,
                 roll(3) ? "" : ";name=\"value\"");
        big_add(line);
        for (size_t i = 0; i < k; i++) big[big_n++] = (char)("ab\r\n"[(at + i) % 4]);
        big_add("\r\n");
        at += k;
    }
    for (size_t i = 0; !chunked && i < n; i++) big[big_n++] = "ab\r\n"[i % 4];
    if (chunked) big_add(roll(2) ? "0\r\n\r\n" : "000;x\r\nX-Sum: 1\r\nY:\r\n\r\n");
}

static void made_up__read_in_any_way__is_as_made(void) {
    int rounds = getenv("SHORT") ? 400 : 4000;
    for (int i = 0; i < rounds; i++) {
        size_t n = roll(4) ? roll(200) : roll(20000), wrong = 0;
        bool chunked = roll(2), close = roll(4) == 0, over = roll(4) == 0;
        make_up(n, chunked, close);
        if (over) big_add("x");
        walked_past(big, big_n, false);
        CHECK(walker.rc == DLPI_S3_HTTP_END && walker.body_n == n && walker.h.done);
        CHECK(walker.h.keep_alive == !(close || over) && walker.over == over);
        CHECK(walker.h.chunked == chunked);
        CHECK(walker.h.content_length == (chunked ? -1 : (int64_t)n));
        for (size_t k = 0; k < walker.body_n; k++)
            if (walker.body[k] != "ab\r\n"[k % 4]) wrong++;
        CHECK(wrong == 0);
    }
}

/* Not judged: machines differ. */
static void head__of_an_object__takes(void) {
    static const char s[] =
        "HTTP/1.1 206 Partial Content\r\nx-amz-id-2: eftixk72aD6Ap51TnqcoF8eFidJG9Z/2mkiDFu8yU9AS"
        "1ed4OpIszj7UDNEHGran\r\nx-amz-request-id: 318BC8BC148832E5\r\nDate: Mon, 28 Nov 2022 "
        "21:10:05 GMT\r\nLast-Modified: Wed, 12 Oct 2022 17:50:00 GMT\r\nETag: \"fba9dede5f27731c97"
        "71645a39863328\"\r\nx-amz-server-side-encryption: AES256\r\nAccept-Ranges: bytes\r\n"
        "Content-Range: bytes 0-99999/434234\r\nContent-Type: application/octet-stream\r\n"
        "Content-Length: 100000\r\nServer: AmazonS3\r\nConnection: keep-alive\r\n\r\n";
    int rounds = getenv("SHORT") ? 500 : 5000, rc = 0;
    uint64_t best = UINT64_MAX;
    dlpi_s3_http h = {0};
    size_t used, n;
    const char *body;
    for (int turn = 0; turn < 10; turn++) {
        uint64_t from = dlpi_s3_now_ns(), took;
        for (int i = 0; i < rounds; i++) {
            dlpi_s3_http_begin(&h, false);
            rc |= dlpi_s3_http_feed(&h, s, sizeof s - 1, &used, &body, &n) ^ DLPI_S3_HTTP_HEAD;
        }
        took = dlpi_s3_now_ns() - from;
        if (took < best) best = took;
    }
    CHECK(rc == 0 && h.range_last == 99999);
    printf("a head of %zu bytes in %.0f ns\n", sizeof s - 1, (double)best / rounds);
}

/* What a body is, by its first bytes: they may be few, and never tell one thing and then another.
   */
static void documents__cut_anywhere__never_judged_too_early(void) {
    static const struct {
        const char *text;
        int is;
    } docs[] = {{"<Error>", DLPI_S3_DOC_ERROR},
                {"\xef\xbb\xbf \r\n<?xml version='1.0'?>\n <Error xmlns='x'>", DLPI_S3_DOC_ERROR},
                {"<?xml version='1.0'?><Error/>", DLPI_S3_DOC_ERROR},
                {" <!DOCTYPE HTML PUBLIC>", DLPI_S3_DOC_PAGE},
                {"<Html lang='en'>", DLPI_S3_DOC_PAGE},
                {"<error>", DLPI_S3_DOC_NONE},
                {"<Errors>", DLPI_S3_DOC_NONE},
                {"<?xml version='1.0'?><ListBucketResult>", DLPI_S3_DOC_NONE},
                {"\xef\xbb text", DLPI_S3_DOC_NONE},
                {"<?php ?><Error>", DLPI_S3_DOC_NONE},
                {"<!DOCTYPE svg>", DLPI_S3_DOC_NONE}};
    for (size_t i = 0; i < sizeof docs / sizeof docs[0]; i++) {
        size_t all = strlen(docs[i].text);
        int known = DLPI_S3_DOC_PERHAPS;
        for (size_t n = 0; n <= all; n++) {
            char *cut = malloc(n + 1); /* so that sanitizers see where it ends */
            int is;
            if (!cut) abort();
            memcpy(cut, docs[i].text, n);
            cut = realloc(cut, n ? n : 1);
            is = dlpi_s3_document(cut, n);
            free(cut);
            CHECK(is == known || known == DLPI_S3_DOC_PERHAPS);
            known = is;
        }
        CHECK(known == docs[i].is);
    }
}

int main(void) {
    answers__cut_anywhere__say_the_same();
    line__at_its_limit__is_the_longest();
    lines__many__are_read_up_to_all_bytes();
    head__at_its_limit__is_the_largest();
    extensions__at_their_limit__are_the_most();
    kept__longer_than_there_is_room__is_cut_or_left_out();
    direct__says_what_may_go_past();
    made_up__read_in_any_way__is_as_made();
    head__of_an_object__takes();
    documents__cut_anywhere__never_judged_too_early();
    return test_end("s3_http");
}
