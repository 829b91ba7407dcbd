/* A server that means harm, or is broken in ways that look like it: whatever it sends, no bytes are
   given out that are not the object's, nothing goes on for ever, nothing of one answer is taken for
   another, and what it says about itself cannot spoil messages or later requests. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"

/* ---- the rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;
static unsigned char memory[300000];

static void say(void *user, const char *line) {
    (void)user;
    for (const char *p = line; *p; p++) CHECK((unsigned char)*p >= 32); /* one line, always */
    if (getenv("LOUD")) printf("  %s\n", line);
}

static dlp_s3_desc patient(const char *endpoint) {
    dlp_s3_desc d = {.endpoint = endpoint,
                     .region = "us-east-1",
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     .backoff_ms = 1,
                     .backoff_max_ms = 5,
                     .hedge_percent = -1,
                     .max_attempts = mock ? 3 : 1,
                     .first_byte_timeout_ms = 20000,
                     .stall_timeout_ms = 20000,
                     .part_bytes = 65536,
                     .unsigned_payload = 1,
                     .log = say};
    return d;
}

static void begin_as(const dlp_s3_desc *d) {
    dlp_s3_error err;
    if (dlp_s3_open(&s3, d, &err) != DLP_OK || dlp_s3_io_open(&io, s3, &err) != DLP_OK) {
        printf("cannot begin: %s\n", err.message);
        exit(1);
    }
}

static void begin(void) {
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = patient(mock->url);
    begin_as(&d);
}

/* Where it is the time-outs that end an answer. */
static void begin_impatient(void) {
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = patient(mock->url);
    d.first_byte_timeout_ms = 300;
    d.stall_timeout_ms = 200;
    d.request_timeout_ms = 4000;
    begin_as(&d);
}

static void end(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    if (mock) s3_mock_stop(mock);
    mock = NULL;
}

static uint64_t from_ns;

/* Ask for bytes of "bucket/KEY", into memory of at most room bytes. */
static int ask(dlp_s3_request *r, const char *key, uint64_t offset, uint64_t length, size_t room) {
    int code;
    memset(r, 0, sizeof *r);
    memset(memory, 0xee, sizeof memory);
    r->bucket = "bucket";
    r->key = key;
    r->offset = offset;
    r->length = length;
    r->body = memory;
    r->capacity = room;
    from_ns = test_now_ns();
    code = dlp_s3_do(io, r);
    CHECK(room == sizeof memory || memory[room] == 0xee);
    for (const char *p = r->error.request_id; *p; p++) CHECK(*p > 32 && *p < 127);
    for (const char *p = r->error.s3_code; *p; p++) CHECK(*p > 32 && *p < 127);
    for (const char *p = r->error.message; *p; p++) CHECK((unsigned char)*p >= 32 && *p != 127);
    return code;
}

static int took_ms(void) { return (int)((test_now_ns() - from_ns) / 1000000); }

static int connections_out(void) {
    uint32_t n;
    inside_s3_out(io, &n);
    return (int)n;
}

static uint64_t put_at(void) {
    uint64_t at_once;
    return inside_s3_put_at(io, &at_once);
}

/* ---- answers that are never the object ---- */

#define HEAD_200 "HTTP/1.1 200 OK\r\n"
#define HEAD_206 "HTTP/1.1 206 P\r\n"
#define TEN "0123456789"

static void answer__not_the_object__never_given_out(void) {
    static const struct {
        const char *raw;
        uint64_t offset, length;
        int then;
    } bad[] = {
        /* of a whole object */
        {HEAD_206 "Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n" TEN, 0, 0, 0},
        {HEAD_206 "Content-Length: 10\r\n\r\n" TEN, 0, 0, 0},
        {HEAD_206 "Content-Type: multipart/byteranges\r\nContent-Length: 10\r\n\r\n" TEN, 0, 0, 0},
        {"HTTP/1.1 204 No\r\n\r\n", 0, 0, 0},
        {"HTTP/1.1 205 No\r\nContent-Length: 0\r\n\r\n", 0, 0, 0},
        {"HTTP/1.1 304 No\r\n\r\n", 0, 0, 0},
        {"HTTP/1.1 201 Made\r\nContent-Length: 10\r\n\r\n" TEN, 0, 0, 0},
        {"HTTP/1.1 416 No\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n", 0, 0, 0},
        {"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n", 0, 0, 0},
        {HEAD_200 "\r\n" TEN, 0, 0, S3_MOCK_CLOSE},
        {HEAD_200 "Content-Length: 11\r\n\r\n" TEN, 0, 0, S3_MOCK_CLOSE},
        {HEAD_200 "Content-Length: 18446744073709551626\r\n\r\n" TEN, 0, 0, 0},
        {HEAD_200 "Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\na\r\n" TEN
                  "\r\n0\r\n\r\n",
         0, 0, 0},
        {HEAD_200 "Transfer-Encoding: gzip, chunked\r\n\r\na\r\n" TEN "\r\n0\r\n\r\n", 0, 0, 0},
        {HEAD_200 "Transfer-Encoding: chunked\r\n\r\nb\r\n" TEN "\r\n0\r\n\r\n", 0, 0, 0},
        {HEAD_200 "Transfer-Encoding: chunked\r\n\r\n9\r\n" TEN "\r\n0\r\n\r\n", 0, 0, 0},
        {HEAD_200 "Transfer-Encoding: chunked\r\n\r\na\r\n" TEN "\r\n", 0, 0, S3_MOCK_CLOSE},
        {HEAD_200 "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff6\r\n" TEN, 0, 0, 0},
        {HEAD_200 "Content-Length: 10\n\n" TEN, 0, 0, 0},
        {"HTTP/1.1 101 Switching\r\n\r\n" TEN, 0, 0, 0},
        {"HTTP/2.0 200 OK\r\nContent-Length: 10\r\n\r\n" TEN, 0, 0, 0},
        {TEN, 0, 0, 0},
        {"HTTP", 0, 0, S3_MOCK_CLOSE},
        {"\x15\x03\x03\x00\x02\x02\x46", 0, 0, S3_MOCK_CLOSE},
        /* of bytes 5..14 */
        {HEAD_200 "Content-Length: 10\r\n\r\n" TEN, 5, 10, 0},
        {HEAD_206 "Content-Length: 10\r\n\r\n" TEN, 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 4-13/100\r\nContent-Length: 10\r\n\r\n" TEN, 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-13/100\r\nContent-Length: 9\r\n\r\n012345678", 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/14\r\nContent-Length: 10\r\n\r\n" TEN, 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\nContent-Length: 11\r\n\r\n" TEN "x", 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\nContent-Length: 9\r\n\r\n" TEN, 5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\n\r\n"
                  "01234567",
         5, 10, S3_MOCK_CLOSE},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n" TEN
                  "x\r\n0\r\n\r\n",
         5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n"
                  "012345678\r\n0\r\n\r\n",
         5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-14/100\r\nContent-Range: bytes 0-9/100\r\n"
                  "Content-Length: 10\r\n\r\n" TEN,
         5, 10, 0},
        {HEAD_206 "Content-Range: bytes 5-18446744073709551615/*\r\nContent-Length: 10\r\n\r\n" TEN,
         5, 10, 0},
    };
    dlp_s3_request r;
    char key[32], path[64];
    begin_impatient();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int before = s3_mock_count(mock, NULL), code;
        snprintf(key, sizeof key, "k%zu", i);
        snprintf(path, sizeof path, "/bucket/k%zu", i);
        s3_mock_on(mock, path, -1, (s3_mock_reply){.raw = bad[i].raw, .then = bad[i].then});
        code = ask(&r, key, bad[i].offset, bad[i].length, 10);
        if (code == DLP_OK) printf("given out:\n%s\n", bad[i].raw);
        CHECK(code != DLP_OK && r.error.message[0]);
        CHECK_SOON(took_ms() < 3500);
        CHECK_SOON(s3_mock_count(mock, NULL) - before <= 4);
        if (i % 20 == 19) s3_mock_forget(mock);
    }
    end();
}

/* An error's document, or a page, comes with a 200: by a server that could not take the status
   back, or by a proxy. It is no object, however its bytes are cut. */
static void document__with_a_200__is_no_object(void) {
    static const struct {
        const char *lines, *body, *says;
        int asked; /* 0: it is an object */
    } docs[] = {
        {"", "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>m</Message></Error>",
         "though with 200: m", 3},
        {"", "\xef\xbb\xbf <Error/>", "error's document", 3},
        {"ETag: \"a\"\r\n", "<Error xmlns='x'><Code>A</Code></Error>", "error's document", 3},
        {"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "<Error><Code>A</Code></Error>",
         "error's document", 3},
        {"", "<!DOCTYPE html><html>log in</html>", "HTML page", 3},
        {"", "\n<HTML>", "HTML page", 3},
        {"Content-Type: text/html\r\n", "<!-- by us --><p>", "HTML page", 3},
        {"", "<Errors/>", NULL, 0},
        {"", "<Erro", NULL, 0},
        {"", "<", NULL, 0},
        {"", "<error>", NULL, 0},
        {"", " \n", NULL, 0},
        {"", "<?xml version=\"1.0\"?><ListBucketResult/>", NULL, 0},
        {"", "<?xml", NULL, 0},
        {"ETag: \"a\"\r\n", "<html>", NULL, 0}, /* which people keep, too */
        {"x-amz-request-id: 1\r\n", "<!doctype html >", NULL, 0}};
    char raw[600], path[32], key[16];
    dlp_s3_request r;
    begin();
    for (int i = 0; i < (int)(sizeof docs / sizeof *docs) * 4; i++) {
        size_t n = strlen(docs[i / 4].body), at = 0;
        s3_mock_reply reply = {.raw = raw, .trickle = i % 2, .trickle_ms = 0};
        at = (size_t)snprintf(raw, sizeof raw, HEAD_200 "%s", docs[i / 4].lines);
        if (i % 4 < 2) /* unknown size, then a told one */
            snprintf(raw + at, sizeof raw - at,
                     "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n", n,
                     docs[i / 4].body);
        else
            snprintf(raw + at, sizeof raw - at, "Content-Length: %zu\r\n\r\n%s", n,
                     docs[i / 4].body);
        snprintf(key, sizeof key, "d%d", i);
        snprintf(path, sizeof path, "/bucket/d%d", i);
        s3_mock_forget(mock);
        s3_mock_on(mock, path, -1, reply);
        ask(&r, key, 0, 0, 600);
        CHECK((r.code == DLP_OK) == (docs[i / 4].asked == 0));
        if ((r.code == DLP_OK) != (docs[i / 4].asked == 0))
            printf("  %d: %s\n", i, r.error.message);
        if (r.code == DLP_OK) {
            CHECK(r.received == n && memcmp(memory, docs[i / 4].body, n) == 0);
            continue;
        }
        CHECK(docs[i / 4].says && strstr(r.error.message, docs[i / 4].says));
        CHECK(r.error.http_status == 200 && s3_mock_count(mock, path) == docs[i / 4].asked);
    }
    s3_mock_forget(mock); /* the server had no time: the object comes later */
    s3_mock_object(mock, "/bucket/k", 150000);
    for (int i = 0; i < 2; i++)
        s3_mock_on(mock, "/bucket/k", i,
                   (s3_mock_reply){.status = 200,
                                   .s3_code = i ? "SlowDown" : "InternalError",
                                   .chunk = i ? 0 : 50});
    CHECK(ask(&r, "k", 0, 0, 200000) == DLP_OK && r.received == 150000);
    CHECK(s3_mock_check("/bucket/k", 0, memory, 150000));
    s3_mock_forget(mock); /* to a range, too */
    s3_mock_on(mock, "/bucket/k", 0, (s3_mock_reply){.status = 200, .s3_code = "InternalError"});
    CHECK(ask(&r, "k", 0, 20, 200000) == DLP_OK && s3_mock_check("/bucket/k", 0, memory, 20));
    end();
}

/* What a bad answer said of the size is forgotten with it. */
static void range__wrong_once__the_next_one_counts(void) {
    dlp_s3_request r;
    begin();
    s3_mock_object(mock, "/bucket/k", 100);
    s3_mock_on(
        mock, "/bucket/k", 0,
        (s3_mock_reply){.raw = HEAD_206
                        "Content-Range: bytes 0-9/150000\r\nContent-Length: 10\r\n\r\n" TEN});
    CHECK(ask(&r, "k", 0, 0, 200000) == DLP_OK && r.received == 100 && r.object_bytes == 100);
    CHECK(s3_mock_check("/bucket/k", 0, memory, 100));
    s3_mock_forget(mock);
    s3_mock_object(mock, "/bucket/l", 150000);
    s3_mock_on(mock, "/bucket/l", 0,
               (s3_mock_reply){.raw = HEAD_206 "Content-Range: bytes 0-99999/100000\r\n"
                                               "Content-Length: 100000\r\n\r\n" TEN});
    CHECK(ask(&r, "l", 0, 0, 200000) == DLP_OK && r.received == 150000);
    CHECK(s3_mock_check("/bucket/l", 0, memory, 150000));
    end();
}

/* ---- bytes that belong to nobody ---- */

/* A second answer behind the first is not that to the next request. */
static void answer__followed_by_another__which_nobody_takes(void) {
    static char second[20100], first[20100];
    dlp_s3_request r;
    begin();
    for (int big = 0; big < 2; big++) {
        size_t n = big ? 20000 : 10, at;
        s3_mock_object(mock, "/bucket/a", n);
        s3_mock_object(mock, "/bucket/b", n);
        at = (size_t)snprintf(second, sizeof second, HEAD_200 "Content-Length: %zu\r\n\r\n", n);
        memcpy(first, second, at);
        s3_mock_fill("/bucket/a", 0, 0, first + at, n);
        memset(second + at, 'x', n);
        second[at + n] = 0;
        for (int i = 0; i < 20; i++) {
            s3_mock_on(mock, "/bucket/a", i, (s3_mock_reply){.extra = second});
            CHECK(ask(&r, "a", 0, 0, n) == DLP_OK && s3_mock_check("/bucket/a", 0, memory, n));
            CHECK(ask(&r, "b", 0, 0, n) == DLP_OK && s3_mock_check("/bucket/b", 0, memory, n));
        }
        s3_mock_forget(mock);
    }
    end();
}

/* Nor is the body that an answer to HEAD must not have. */
static void head__with_a_body__which_nobody_takes(void) {
    dlp_s3_request r;
    begin();
    s3_mock_object(mock, "/bucket/b", 10);
    for (int i = 0; i < 20; i++) {
        s3_mock_on(mock, "/bucket/h", i,
                   (s3_mock_reply){.raw = HEAD_200 "Content-Length: 49\r\n\r\n" HEAD_200
                                                   "Content-Length: 10\r\n\r\n" TEN});
        memset(&r, 0, sizeof r);
        r.method = DLP_S3_HEAD;
        r.bucket = "bucket";
        r.key = "h";
        CHECK(dlp_s3_do(io, &r) == DLP_OK && r.object_bytes == 49);
        CHECK(ask(&r, "b", 0, 0, 10) == DLP_OK && s3_mock_check("/bucket/b", 0, memory, 10));
    }
    end();
}

/* Where bytes follow in one read, the connection is not used again, whoever ended the answer. */
static void answer__refused_with_bytes_behind__is_the_last(void) {
    static const char *const raw[] = {
        "HTTP/1.1 204 No\r\n\r\n" TEN,
        HEAD_206 "Content-Range: bytes 0-9/10\r\nContent-Length: 0\r\n\r\n" TEN,
        "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n" TEN,
        HEAD_200 "Content-Length: 30\r\n\r\n" TEN TEN TEN TEN};
    dlp_s3_request r;
    begin();
    for (int i = 0; i < 4; i++) {
        int before;
        s3_mock_on(mock, "/bucket/k", -1, (s3_mock_reply){.raw = raw[i]});
        before = s3_mock_connections(mock);
        ask(&r, "k", 0, 10, 10);
        CHECK(connections_out() == 0 &&
              s3_mock_connections(mock) - before == s3_mock_count(mock, NULL));
        s3_mock_forget(mock);
    }
    end();
}

/* ---- without an end ---- */

static char *bomb;
static size_t bomb_n;

static void bomb_begin(const char *s) {
    if (!bomb) bomb = malloc(8 << 20);
    if (!bomb) abort();
    bomb_n = strlen(s);
    memcpy(bomb, s, bomb_n);
}

static void bomb_fill(const char *s, size_t most) {
    size_t n = strlen(s);
    for (size_t i = 0; bomb_n + n < most || i % n > 0; i++) bomb[bomb_n++] = s[i % n];
}

/* Sent, and then the server says nothing any more. */
static int bomb_ask(dlp_s3_request *r, uint64_t length) {
    int code;
    s3_mock_on(mock, "/bucket/k", -1,
               (s3_mock_reply){.raw = bomb, .raw_bytes = bomb_n, .then = S3_MOCK_HANG});
    code = ask(r, "k", 0, length, 100);
    s3_mock_forget(mock);
    return code;
}

static void answer__without_an_end__given_up_early(void) {
    dlp_s3_request r;
    begin();
    bomb_begin("");
    bomb_fill("HTTP/1.1 102 Wait\r\n\r\n", 1 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE);
    CHECK_SOON(took_ms() < 3500);
    bomb_begin(HEAD_200);
    bomb_fill("X-Bomb: boom\r\n", 1 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE);
    CHECK_SOON(took_ms() < 3500);
    bomb_begin(HEAD_200 "X-Bomb: ");
    bomb_fill("boom", 1 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE);
    CHECK_SOON(took_ms() < 3500);
    bomb_begin(HEAD_200 "Transfer-Encoding: chunked\r\n\r\n1;");
    bomb_fill("boom", 1 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE);
    CHECK_SOON(took_ms() < 3500);
    bomb_begin(HEAD_200 "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    bomb_fill("X-Bomb: boom\r\n", 1 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE);
    CHECK_SOON(took_ms() < 3500);
    bomb_begin(HEAD_200 "Transfer-Encoding: chunked\r\n\r\n");
    bomb_fill("8\r\nboom    \r\n", 4 << 20); /* there is room for 100 */
    CHECK(bomb_ask(&r, 0) == DLP_ERR_LENGTH);
    CHECK_SOON(took_ms() < 3500);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_LENGTH && r.error.http_status == 200);
    end();
}

/* What an error is, is known from its beginning. */
static void error__without_an_end__is_told(void) {
    dlp_s3_request r;
    begin();
    bomb_begin("HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n"
               "36\r\n<Error><Code>AccessDenied</Code><Message>no</Message> \r\n");
    bomb_fill("8\r\n<Boom/> \r\n", 4 << 20);
    CHECK(bomb_ask(&r, 0) == DLP_ERR_REMOTE && r.error.attempts == 1);
    CHECK(r.error.http_status == 403 && strcmp(r.error.s3_code, "AccessDenied") == 0);
    CHECK(connections_out() == 0);
    end();
}

static void put__answered_without_an_end__is_not_read_on(void) {
    dlp_s3_request r;
    begin();
    bomb_begin(HEAD_200 "Transfer-Encoding: chunked\r\n\r\n");
    bomb_fill("8\r\nboom    \r\n", 4 << 20);
    s3_mock_on(mock, "/bucket/p", -1,
               (s3_mock_reply){.raw = bomb, .raw_bytes = bomb_n, .then = S3_MOCK_HANG});
    memset(&r, 0, sizeof r);
    r.method = DLP_S3_PUT;
    r.bucket = "bucket";
    r.key = "p";
    r.body = memory;
    r.capacity = 10;
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && strstr(r.error.message, "far too long"));
    end();
}

/* What nobody wants is read for a while, however slowly it comes. */
static void drain__trickling__ends(void) {
    dlp_s3_request r;
    begin_impatient();
    s3_mock_object(mock, "/bucket/k", 100);
    bomb_begin(HEAD_206 "Content-Range: bytes 7-100006/200000\r\nContent-Length: 100000\r\n\r\n");
    bomb_fill("boom", bomb_n + 100000);
    s3_mock_on(mock, "/bucket/k", 0,
               (s3_mock_reply){.raw = bomb, .raw_bytes = bomb_n, .trickle = 100, .trickle_ms = 5});
    CHECK_SOON(ask(&r, "k", 0, 100, 100) == DLP_OK);
    CHECK_SOON(connections_out() == 2);
    from_ns = test_now_ns();
    while (connections_out() == 2 && took_ms() < 1500) inside_s3_turn(io, test_now_ns() + 20000000);
    CHECK_SOON(connections_out() == 1);
    end();
}

/* ---- what a server says of itself ---- */

static void error__with_odd_names__is_one_line(void) {
    static const char bad[] = "<Error><Code>A&#10;B&#xe9;</Code><Message>x&#13;&#10;y</Message>"
                              "<RequestId>r&#10;s</RequestId><Region>a/b c</Region></Error>";
    static const char region[] =
        "<Error><Code>AuthorizationHeaderMalformed</Code><Region>x y&#10;z</Region></Error>";
    dlp_s3_request r;
    begin();
    mock->request_id = "";
    s3_mock_object(mock, "/bucket/good", 100);
    s3_mock_on(mock, "/bucket/k", -1,
               (s3_mock_reply){.status = 403, .body = bad, .headers = "x-amz-request-id: \r\n"});
    CHECK(ask(&r, "k", 0, 0, 100) == DLP_ERR_REMOTE && r.error.http_status == 403);
    CHECK(strcmp(r.error.request_id, "r?s") == 0 && strcmp(r.error.s3_code, "A?B??") == 0);
    s3_mock_on(mock, "/bucket/l", -1, (s3_mock_reply){.status = 400, .body = region});
    CHECK(ask(&r, "l", 0, 0, 100) == DLP_ERR_REMOTE && r.error.http_status == 400);
    CHECK(ask(&r, "good", 0, 0, 100) == DLP_OK); /* later requests are no worse for it */
    CHECK(!inside_s3_knows_region(s3, "bucket"));
    end();
}

/* Nor do control bytes of a key begin another line, of a message or of the log. */
static void key__with_control_bytes__is_one_line(void) {
    dlp_s3_request r;
    char line[900];
    int n;
    begin();
    s3_mock_on(mock, "/bucket/a%0Ab%1B%7Fc", -1, (s3_mock_reply){.status = 500, .body = "x"});
    CHECK(ask(&r,
              "a\nb\x1b\x7f"
              "c",
              0, 0, 100) == DLP_ERR_REMOTE &&
          r.error.attempts == 3);
    CHECK(strcmp(r.error.key, "a\nb\x1b\x7f"
                              "c") == 0);
    n = dlp_s3_error_format(&r.error, line, sizeof line);
    CHECK(n > 0 && strstr(line, "s3://bucket/a?b??c: ") != NULL);
    say(NULL, line);
    end();
}

/* What an error says of an answer is that of the last attempt, and all of it. */
static void error__of_the_last_attempt__not_of_earlier_ones(void) {
    static const struct {
        const char *raw;
        int status, then;
        const char *id;
    } last[] = {{HEAD_206 "x-amz-request-id: ID9\r\nContent-Range: bytes 7-9/10\r\n"
                          "Content-Length: 3\r\n\r\n012",
                 206, 0, "ID9"},
                {HEAD_200 "x-amz-request-id: ID9\r\nContent-Length: 10\r\n\r\n012", 200,
                 S3_MOCK_CLOSE, "ID9"},
                {HEAD_200 "x-amz-re", 0, S3_MOCK_CLOSE, ""}};
    dlp_s3_request r;
    begin();
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < 2; n++)
            s3_mock_on(mock, "/bucket/k", n, (s3_mock_reply){.status = 503, .s3_code = "SlowDown"});
        s3_mock_on(mock, "/bucket/k", -1,
                   (s3_mock_reply){.raw = last[i].raw, .then = last[i].then});
        CHECK(ask(&r, "k", 0, 0, 100) != DLP_OK && r.error.attempts >= 3);
        CHECK(r.error.http_status == last[i].status && r.error.s3_code[0] == 0);
        CHECK(strcmp(r.error.request_id, last[i].id) == 0);
        s3_mock_forget(mock);
    }
    end();
}

static void etag__odd__is_not_sent_back(void) {
    static const char *const odd[] = {"\"a\xff\"", "\"a b\"", "\"", "W/\"x\"", "x\"y"};
    dlp_s3_request r;
    s3_mock_request q;
    begin();
    for (int i = 0; i < 5; i++) {
        char path[32], key[16];
        snprintf(key, sizeof key, "e%d", i);
        snprintf(path, sizeof path, "/bucket/e%d", i);
        s3_mock_object(mock, path, 200000);
        s3_mock_on(mock, path, -1, (s3_mock_reply){.etag = odd[i]});
        CHECK(ask(&r, key, 0, 0, 200000) == DLP_OK && s3_mock_check(path, 0, memory, 200000));
    }
    for (int i = 0; s3_mock_seen(mock, i, &q); i++) CHECK(q.if_match[0] == 0);
    end();
}

static void redirect__anywhere__nothing_secret_goes_there(void) {
    static const char *const nowhere[] = {
        "javascript:x",          "http://",   "http://[::1",     "https://127.0.0.1/x",
        "http://u:p@127.0.0.1/", "ftp://h/x", "http://h:99999/", "?x",
        "http://127.0.0.1:1/%zz"};
    dlp_s3_request r;
    s3_mock_request q;
    char lines[200], path[32], key[16];
    begin();
    for (int i = 0; i < 9; i++) {
        char(*text)[200] = malloc(sizeof *text);
        snprintf(*text, sizeof *text, "Location: %s\r\n", nowhere[i]);
        snprintf(path, sizeof path, "/bucket/r%d", i);
        snprintf(key, sizeof key, "r%d", i);
        s3_mock_on(mock, path, -1, (s3_mock_reply){.status = 307, .headers = *text, .body = "x"});
        CHECK(ask(&r, key, 0, 0, 100) != DLP_OK && r.error.message[0]);
        CHECK_SOON(took_ms() < 3500);
        CHECK(s3_mock_count(mock, path) == 1);
        free(text);
    }
    s3_mock_object(mock, "/there", 100); /* by another name it is another server */
    snprintf(lines, sizeof lines, "Location: http://localhost:%d/there\r\n", mock->port);
    s3_mock_on(mock, "/bucket/k", -1,
               (s3_mock_reply){.status = 307, .headers = lines, .body = "x"});
    if (ask(&r, "k", 0, 0, 100) == DLP_OK) CHECK(s3_mock_check("/there", 0, memory, 100));
    for (int i = 0; s3_mock_seen(mock, i, &q); i++)
        if (strcmp(q.path, "/there") == 0) {
            CHECK(!q.has_authorization && strstr(q.head, "AKIDEXAMPLE") == NULL);
            CHECK(strstr(q.head, "x-amz-") == NULL);
        }
    end();
}

/* Another port of the same host is another server; so is what others have in the domain of AWS. */
static void redirect__near_by__is_told_apart(void) {
    static const struct {
        const char *endpoint, *to;
        int kin;
    } pairs[] = {
        {"http://h:9000", "http://h:9000", 1},
        {"http://h:9000", "http://h:9001", 0},
        {"http://h:9000", "http://h", 0},
        {"http://h", "https://h", 1},
        {"http://h:9000", "http://b.h:9000", 1},
        {"http://h:9000", "http://b.h:81", 0},
        {"https://h", "https://bh", 0},
        {"https://h", "https://h.evil", 0},
        {"http://127.0.0.1", "http://x.127.0.0.1", 0},
        {"http://[::1]", "http://[::1]", 1},
        {"http://[::1]", "http://[::2]", 0},
        {"http://h", "http://h.", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://b.s3.eu-west-1.amazonaws.com", 1},
        {"https://s3.amazonaws.com", "https://b.s3-eu-west-1.amazonaws.com", 1},
        {"https://s3.us-east-1.amazonaws.com", "https://b.s3.amazonaws.com", 1},
        {"https://s3.us-east-1.amazonaws.com", "https://s3.dualstack.eu-west-1.amazonaws.com", 1},
        {"https://s3.us-east-1.amazonaws.com", "https://s3.cn-north-1.amazonaws.com.cn", 0},
        {"https://s3.cn-north-1.amazonaws.com.cn", "https://b.s3.cn-north-1.amazonaws.com.cn", 1},
        {"https://s3.us-east-1.amazonaws.com", "https://ec2-1-2-3-4.compute-1.amazonaws.com", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://s3-x.elb.us-east-1.amazonaws.com", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://s3-x.us-east-1.elb.amazonaws.com", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://x3.us-east-1.amazonaws.com", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://amazonaws.com", 0},
        {"https://s3.us-east-1.amazonaws.com", "https://s3.us-east-1.amazonaws.com.evil", 0}};
    s3_mock *other = s3_mock_start();
    dlp_s3_request r;
    s3_mock_request q;
    char lines[200];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        int kin = inside_s3_kin(pairs[i].to, pairs[i].endpoint);
        if (kin != pairs[i].kin) printf("  %s\n", pairs[i].to);
        CHECK(kin == pairs[i].kin);
    }
    begin();
    s3_mock_object(other, "/there", 100);
    snprintf(lines, sizeof lines, "Location: %s/there\r\n", other->url);
    s3_mock_on(mock, "/bucket/k", -1,
               (s3_mock_reply){.status = 307, .headers = lines, .body = "x"});
    CHECK(ask(&r, "k", 0, 0, 100) == DLP_OK && s3_mock_check("/there", 0, memory, 100));
    CHECK(s3_mock_seen(mock, 0, &q) && q.has_authorization);
    CHECK(s3_mock_seen(other, 0, &q) && !q.has_authorization && !strstr(q.head, "x-amz-"));
    s3_mock_stop(other);
    end();
}

/* ---- answers before the request was sent ---- */

static int listener, peer;

static void listen_by_hand(struct sockaddr_in *a) {
    socklen_t n = sizeof *a;
    memset(a, 0, sizeof *a);
    a->sin_family = AF_INET;
    a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)a, n) != 0 || listen(listener, 4) != 0 ||
        getsockname(listener, (struct sockaddr *)a, &n) != 0)
        exit(1);
}

static void begin_by_hand(void) {
    struct sockaddr_in a;
    char url[64];
    dlp_s3_desc d;
    listen_by_hand(&a);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    d = patient(url);
    begin_as(&d);
}

static int turns(dlp_s3_request **one, int n) { /* of the client */
    int got = 0;
    while (n-- > 0 && got == 0) got = dlp_s3_reap(io, one, 1, 5);
    return got;
}

/* A PUT of which the server reads on, while its answer comes in two pieces. once: it has read all
   that was sent when the client sees the first. Returns bytes that are sent without being read. */
static size_t put_answered_early(const char *first, const char *second, int status, size_t bytes,
                                 bool once) {
    static char sink[1 << 20];
    dlp_s3_request r, *one = NULL;
    char *body = calloc(1, bytes);
    size_t got = 0, taken;
    begin_by_hand();
    memset(&r, 0, sizeof r);
    r.method = DLP_S3_PUT;
    r.bucket = "bucket";
    r.key = "k";
    r.body = body;
    r.capacity = bytes;
    CHECK(dlp_s3_submit(io, &r) == DLP_OK && turns(&one, 2) == 0);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(peer >= 0 && turns(&one, 4) == 0);
    taken = put_at();
    for (ssize_t n = 1; n > 0 && (once || got == 0); got += n > 0 ? (size_t)n : 0)
        n = recv(peer, sink, sizeof sink, MSG_DONTWAIT);
    CHECK(send(peer, first, strlen(first), MSG_NOSIGNAL) > 0);
    while (got < r.capacity && turns(&one, 1) == 0) { /* now it takes all of the rest */
        ssize_t n = 1;
        for (; n > 0; got += n > 0 ? (size_t)n : 0) n = recv(peer, sink, sizeof sink, MSG_DONTWAIT);
        if (n == 0) break;
    }
    if (!one) CHECK(send(peer, second, strlen(second), MSG_NOSIGNAL) > 0);
    CHECK(one == &r || turns(&one, 4000) == 1);
    CHECK(r.code == DLP_ERR_REMOTE && r.error.http_status == status);
    CHECK(status != 403 || strcmp(r.error.s3_code, "AccessDenied") == 0);
    close(peer);
    close(listener);
    free(body);
    end();
    return taken;
}

static void put__refused_while_it_is_sent__is_refused(void) {
    const char *first = "HTTP/1.1 403 No\r\nContent-Length: 46\r\n\r\n<Error>";
    const char *second = "<Code>AccessDenied</Code></Error>      ";
    size_t n = put_answered_early(first, second, 403, 24 << 20, false);
    put_answered_early(first, second, 403, n + 20000, true); /* the rest goes at once */
}

/* Nor is a yes one that comes before the server can know. */
static void put__accepted_before_it_is_sent__is_not(void) {
    put_answered_early(HEAD_200 "Content-Length: 0\r\n\r\n", "", 200, 24 << 20, false);
}

/* A server that takes the body slowly: step bytes whenever the client had a turn, up to most bytes,
   and answers when it has all. Returns the client's code; *stats: its counters. */
static int put_taken_slowly(size_t bytes, size_t step, size_t most, dlp_s3_stats *stats) {
    static char sink[1 << 20];
    char *body = calloc(1, bytes), url[64], head[2048] = "";
    int small = 32768;
    struct sockaddr_in a;
    dlp_s3_desc d;
    dlp_s3_request r = {
        .method = DLP_S3_PUT, .bucket = "bucket", .key = "k", .body = body, .capacity = bytes};
    dlp_s3_request *one = NULL;
    size_t got = 0;
    listen_by_hand(&a);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    d = patient(url);
    d.first_byte_timeout_ms = 100;
    d.stall_timeout_ms = 300;
    begin_as(&d);
    CHECK(dlp_s3_submit(io, &r) == DLP_OK && turns(&one, 2) == 0);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (got < bytes && got < most && !one) {
        ssize_t n = recv(peer, sink, step, MSG_DONTWAIT);
        char *end;
        if (n > 0 && !head[0]) {
            memcpy(head, sink, (size_t)n < sizeof head ? (size_t)n : sizeof head - 1);
            end = strstr(head, "\r\n\r\n");
            n -= end ? end + 4 - head : 0;
        }
        got += n > 0 ? (size_t)n : 0;
        turns(&one, 1);
    }
    if (got == bytes) send(peer, HEAD_200 "Content-Length: 0\r\n\r\n", 38, MSG_NOSIGNAL);
    from_ns = test_now_ns();
    if (!one) CHECK(turns(&one, 4000) == 1);
    dlp_s3_stats_get(s3, stats);
    close(peer);
    close(listener);
    free(body);
    end();
    return r.code;
}

/* The answer's time begins when the body has been delivered, not when the kernel has taken it. */
static void put__delivered_slowly__is_waited_for(void) {
    dlp_s3_stats stats;
    CHECK_SOON(put_taken_slowly(1 << 20, 8192, SIZE_MAX, &stats) == DLP_OK);
    CHECK_SOON(stats.timeouts == 0);
    CHECK_SOON(put_taken_slowly(12 << 20, 65536, SIZE_MAX, &stats) == DLP_OK);
    CHECK_SOON(stats.timeouts == 0);
}

static void put__delivered_no_more__times_out(void) {
    dlp_s3_stats stats;
    CHECK(put_taken_slowly(1 << 20, 8192, 300000, &stats) == DLP_ERR_REMOTE);
    CHECK(stats.timeouts == 1);
    CHECK_SOON(took_ms() > 150 && took_ms() < 1500);
    CHECK(put_taken_slowly(12 << 20, 65536, 300000, &stats) == DLP_ERR_REMOTE);
    CHECK(stats.timeouts == 1);
    CHECK_SOON(took_ms() > 150 && took_ms() < 1500);
}

/* ---- a TLS library of one's own ---- */

static int fake_open(void *user, int fd, const char *host, void **session, char *why, size_t n) {
    (void)fd;
    (void)host;
    (void)why;
    (void)n;
    *session = user;
    return 0;
}
static int fake_handshake(void *session, char *why, size_t n) {
    (void)session;
    (void)why;
    (void)n;
    return 0;
}

/* An answer that never ends, and never has to be waited for. */
static int64_t fake_read(void *session, void *to, size_t n, char *why, size_t size) {
    static const char head[] = HEAD_206 "Content-Range: bytes 0-1073741823/1073741824\r\n"
                                        "Content-Length: 1073741824\r\n\r\n";
    int *told = session;
    (void)why;
    (void)size;
    if (!*told && n >= sizeof head - 1) {
        *told = 1;
        memcpy(to, head, sizeof head - 1);
        return sizeof head - 1;
    }
    if (n > 64) n = 64;
    memset(to, 'x', n);
    return (int64_t)n;
}
static int64_t fake_write(void *session, const void *from, size_t n, char *why, size_t size) {
    (void)session;
    (void)from;
    (void)why;
    (void)size;
    return (int64_t)n;
}
static int fake_pending(void *session) {
    (void)session;
    return 1;
}
static void fake_close(void *session) { (void)session; }

static void tls__faster_than_it_is_read__times_out(void) {
    int told = 0;
    dlp_s3_transport fake = {&told,      fake_open,    fake_handshake, fake_read,
                             fake_write, fake_pending, fake_close};
    const dlp_s3_piece waste = {NULL, UINT64_C(1) << 30};
    struct sockaddr_in a;
    dlp_s3_request r, *one = NULL;
    dlp_s3_error err;
    dlp_s3_desc d;
    char url[64];
    listen_by_hand(&a);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", ntohs(a.sin_port));
    d = patient(url);
    d.tls = &fake;
    d.request_timeout_ms = 200;
    d.part_bytes = 1 << 30;
    CHECK(dlp_s3_open(&s3, &d, &err) == DLP_OK && dlp_s3_io_open(&io, s3, &err) == DLP_OK);
    memset(&r, 0, sizeof r);
    r.bucket = "bucket";
    r.key = "k";
    r.length = waste.bytes;
    r.pieces = &waste;
    r.n_pieces = 1;
    CHECK(dlp_s3_submit(io, &r) == DLP_OK);
    CHECK_SOON(turns(&one, 2) == 0);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(peer >= 0);
    (void)send(peer, "x", 1, MSG_NOSIGNAL); /* there is something to be read */
    CHECK(one || dlp_s3_reap(io, &one, 1, 20000) == 1);
    CHECK(r.code != DLP_OK); /* not all of it */
    close(peer);
    close(listener);
    end();
}

/* A PUT to who takes all at once is sent in turns, between which others go on. */
static void tls__takes_all_at_once__is_given_a_share(void) {
    int told = 0;
    dlp_s3_transport fake = {&told,      fake_open,    fake_handshake, fake_read,
                             fake_write, fake_pending, fake_close};
    struct sockaddr_in a;
    dlp_s3_request r;
    uint32_t connections;
    dlp_s3_desc d;
    char url[64];
    listen_by_hand(&a);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", ntohs(a.sin_port));
    d = patient(url);
    d.tls = &fake;
    begin_as(&d);
    memset(&r, 0, sizeof r);
    r.method = DLP_S3_PUT;
    r.bucket = "bucket";
    r.key = "k";
    r.body = memory; /* which nobody reads */
    r.capacity = UINT64_C(1) << 46;
    CHECK(dlp_s3_submit(io, &r) == DLP_OK);
    for (uint64_t i = 0, before = 0, at_once; i < 5 || before == 0; i++, before = put_at()) {
        CHECK(inside_s3_turn(io, UINT64_MAX) == 0);
        CHECK(inside_s3_put_at(io, &at_once) - before <= 2 * at_once);
        if (put_at() == r.capacity || i == 1000) break;
    }
    CHECK(inside_s3_out(io, &connections) == 1 && put_at() > 0 && put_at() < r.capacity);
    close(listener);
    end();
}

int main(void) {
    test_tries(answer__not_the_object__never_given_out);
    document__with_a_200__is_no_object();
    range__wrong_once__the_next_one_counts();
    answer__followed_by_another__which_nobody_takes();
    head__with_a_body__which_nobody_takes();
    answer__refused_with_bytes_behind__is_the_last();
    test_tries(answer__without_an_end__given_up_early);
    error__without_an_end__is_told();
    put__answered_without_an_end__is_not_read_on();
    test_tries(drain__trickling__ends);
    error__with_odd_names__is_one_line();
    key__with_control_bytes__is_one_line();
    error__of_the_last_attempt__not_of_earlier_ones();
    etag__odd__is_not_sent_back();
    test_tries(redirect__anywhere__nothing_secret_goes_there);
    redirect__near_by__is_told_apart();
    put__refused_while_it_is_sent__is_refused();
    put__accepted_before_it_is_sent__is_not();
    test_tries(put__delivered_slowly__is_waited_for);
    test_tries(put__delivered_no_more__times_out);
    test_tries(tls__faster_than_it_is_read__times_out);
    tls__takes_all_at_once__is_given_a_share();
    free(bomb);
    return test_end("s3_hostile");
}
