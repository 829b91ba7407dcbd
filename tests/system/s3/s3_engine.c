/* Requests in flight in one thread: order, bounds, memory, parts, connections, forks, and what
   happens where memory or system calls fail. A scripted server answers; what goes wrong between it
   and the client is in tests/system/s3/s3_faults.c. */
/* own: hook: each system call may fail */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* Calls of the library that can fail; the fault_at-th does, in the test that asks for it. */
static int fault_at, fault_calls;
static int fault(int errnum) {
    if (fault_at == 0 || ++fault_calls != fault_at) return 0;
    errno = errnum;
    return 1;
}
#define calloc(...) (fault(ENOMEM) ? NULL : calloc(__VA_ARGS__))
#define mmap(...) (fault(ENOMEM) ? MAP_FAILED : mmap(__VA_ARGS__))
#define madvise(...) (fault(EINVAL) ? -1 : madvise(__VA_ARGS__))
#define eventfd(...) (fault(EMFILE) ? -1 : eventfd(__VA_ARGS__))
#define epoll_create1(...) (fault(EMFILE) ? -1 : epoll_create1(__VA_ARGS__))
#define epoll_ctl(...) (fault(ENOMEM) ? -1 : epoll_ctl(__VA_ARGS__))
#define epoll_wait(...) (fault(EINTR) ? -1 : epoll_wait(__VA_ARGS__))
#define socket(...) (fault(EMFILE) ? -1 : socket(__VA_ARGS__))
#define setsockopt(...) (fault(ENOBUFS) ? -1 : setsockopt(__VA_ARGS__))
#define getsockopt(...) (fault(ENOBUFS) ? -1 : getsockopt(__VA_ARGS__))
#define connect(...) (fault(ENETUNREACH) ? -1 : connect(__VA_ARGS__))
#define poll(...) (fault(EINTR) ? -1 : poll(__VA_ARGS__))
#define send(...) (fault(EPIPE) ? -1 : send(__VA_ARGS__))
#define recv(...) (fault(ECONNRESET) ? -1 : recv(__VA_ARGS__))

#define DLPIPE_IMPLEMENTATION
#define DLPI_S3_ASSERT(fact) ((fact) ? (void)0 : abort())
#include "../../../dlpipe_s3.h"

#undef calloc
#undef mmap
#undef madvise
#undef eventfd
#undef epoll_create1
#undef epoll_ctl
#undef epoll_wait
#undef socket
#undef setsockopt
#undef getsockopt
#undef connect
#undef poll
#undef send
#undef recv

#include <dirent.h>

#include "../../rig/s3_mock.h"

#include "../../rig/check.h"

/* ---- the rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;

static void say(void *user, const char *line) {
    (void)user;
    if (getenv("LOUD")) printf("  %s\n", line);
}

static dlp_s3_desc usual(void) {
    dlp_s3_desc d = {.endpoint = mock->url,
                     .region = "us-east-1",
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     .backoff_ms = 1,
                     .backoff_max_ms = 10,
                     .hedge_percent = -1,
                     .log = say};
    return d;
}

static void begin(const dlp_s3_desc *d) {
    dlp_s3_error err;
    int code = dlp_s3_open(&s3, d, &err);
    if (code == DLP_OK) code = dlp_s3_io_open(&io, s3, &err);
    if (code != DLP_OK) {
        printf("cannot begin: %d %s\n", code, err.message);
        exit(1);
    }
}

static void begin_usual(void) {
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = usual();
    begin(&d);
}

static void end(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
}

static dlp_s3_stats stats(void) {
    dlp_s3_stats s;
    dlp_s3_stats_get(s3, &s);
    return s;
}

static dlp_s3_request get(const char *key, void *body, uint64_t capacity) {
    dlp_s3_request r;
    memset(&r, 0, sizeof r);
    r.bucket = "b";
    r.key = key;
    r.body = body;
    r.capacity = capacity;
    return r;
}

static void show(const dlp_s3_request *r) {
    char line[900];
    if (r->code == DLP_OK) return;
    dlp_s3_error_format(&r->error, line, sizeof line);
    printf("  code %d: %s\n", (int)r->code, line);
}

/* ---- cases ---- */

static void engine__get__bytes(void) {
    static char body[200000];
    uint64_t n = 0;
    dlp_s3_error err;
    begin_usual();
    s3_mock_object(mock, "/b/one", 100000);
    CHECK(dlp_s3_get(io, "b", "one", body, sizeof body, &n, &err) == DLP_OK);
    CHECK(n == 100000 && s3_mock_check("/b/one", 0, body, n));
    CHECK(dlp_s3_get(io, "b", "none", body, sizeof body, &n, &err) == DLP_ERR_REMOTE);
    CHECK(err.http_status == 404 && strcmp(err.s3_code, "NoSuchKey") == 0);
    CHECK(strcmp(err.bucket, "b") == 0 && strcmp(err.key, "none") == 0 && err.request_id[0]);
    CHECK(n == 100000);
    CHECK(s3_mock_connections(mock) == 1);
    end();
}

/* Many at once: each comes back once, whole, over no more connections than there are requests. */
static void engine__many__all_come(void) {
    enum { N = 64, ROUNDS = 6, SIZE = 30000 };
    static char body[N][SIZE];
    static dlp_s3_request r[N];
    static char key[N * ROUNDS][24];
    int out = 0, begun = 0, over = 0;
    begin_usual();
    for (int i = 0; i < N * ROUNDS; i++) {
        char path[40];
        snprintf(key[i], sizeof key[i], "k%d", i);
        snprintf(path, sizeof path, "/b/k%d", i);
        s3_mock_object(mock, path, (uint64_t)(i * 977 % SIZE));
    }
    while (over < N * ROUNDS) {
        dlp_s3_request *done[16];
        int n;
        for (int i = 0; i < N && begun < N * ROUNDS; i++) {
            if (r[i].user) continue;
            r[i] = get(key[begun], body[i], SIZE);
            r[i].user = key[begun++];
            CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
            out++;
        }
        n = dlp_s3_reap(io, done, 16, 20000);
        CHECK(n > 0);
        if (n <= 0) break;
        for (int i = 0; i < n; i++) {
            char path[40];
            int which = (int)((char(*)[24])done[i]->user - key);
            snprintf(path, sizeof path, "/b/k%d", which);
            show(done[i]);
            CHECK(done[i]->code == DLP_OK);
            CHECK(done[i]->received == (uint64_t)(which * 977 % SIZE));
            CHECK(s3_mock_check(path, 0, done[i]->body, done[i]->received));
            done[i]->user = NULL;
            over++;
            out--;
        }
    }
    CHECK(out == 0 && s3_mock_count(mock, NULL) == N * ROUNDS);
    CHECK(s3_mock_connections(mock) <= N && s3_mock_most(mock) <= N);
    CHECK(stats().objects == N * ROUNDS && stats().failed == 0 && stats().retries == 0);
    end();
}

static char large[3 << 20];

/* Do one and say what came of it where that is a surprise. */
static int done(dlp_s3_request *r, int code) {
    int is = dlp_s3_do(io, r);
    if (is != code) show(r);
    return is;
}

static dlp_s3_request range(const char *key, uint64_t offset, uint64_t length) {
    dlp_s3_request r = get(key, large, length ? length : sizeof large);
    r.offset = offset;
    r.length = length;
    return r;
}

static int saw(int i, const char *method, int has_range, uint64_t first, uint64_t last) {
    s3_mock_request q;
    if (!s3_mock_seen(mock, i, &q) || strcmp(q.method, method) != 0) return 0;
    return q.has_range == has_range && (!has_range || (q.first == first && q.last == last));
}

static void engine__capacity__edges(void) {
    dlp_s3_request r;
    begin_usual();
    s3_mock_object(mock, "/b/k", 1000);
    s3_mock_object(mock, "/b/empty", 0);
    memset(large, 'x', 4096);
    r = get("k", large, 1000);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1000 && r.object_bytes == 1000);
    CHECK(s3_mock_check("/b/k", 0, large, 1000) && large[1000] == 'x' && r.etag[0] == '"');
    CHECK(saw(0, "GET", 0, 0, 0));
    r = get("k", large, 999);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.object_bytes == 1000 && r.received == 0);
    CHECK(strstr(r.error.message, "1000") && strstr(r.error.message, "999"));
    r = get("k", NULL, 0);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    r = get("empty", NULL, 0);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 0 && r.object_bytes == 0);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.chunk = 300});
    r = get("k", large, 1000);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1000);
    memset(large, 'x', 4096);
    r = get("k", large, 999);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && large[999] == 'x');
    CHECK(stats().retries == 0 && stats().failed == 3);
    end();
}

static void engine__range__exact_bytes(void) {
    dlp_s3_request r;
    begin_usual();
    s3_mock_object(mock, "/b/k", 5000);
    r = range("k", 10, 90);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 90 && r.object_bytes == 5000);
    CHECK(s3_mock_check("/b/k", 10, large, 90) && saw(0, "GET", 1, 10, 99));
    r = range("k", 0, 1);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1 && saw(1, "GET", 1, 0, 0));
    r = range("k", 4999, 1);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1);
    r = range("k", 4990, 11);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && strstr(r.error.message, "10 bytes"));
    CHECK(r.error.first == 4990 && r.error.last == 5000);
    r = range("k", 5000, 1);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.error.http_status == 416);
    r = range("k", 4000, 0); /* to the end */
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1000 && r.object_bytes == 5000);
    CHECK(s3_mock_check("/b/k", 4000, large, 1000));
    r = range("k", 5000, 0);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 0 && r.object_bytes == 5000);
    s3_mock_on(mock, "/b/dumb", -1,
               (s3_mock_reply){.raw = "HTTP/1.1 416 No\r\nContent-Length: 0"
                                      "\r\n\r\n"}); /* no size is told */
    r = range("dumb", 5000, 0);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    s3_mock_on(mock, "/b/aws", -1,
               (s3_mock_reply){.raw = "HTTP/1.1 416 No\r\nContent-Length: 105\r\n\r\n<Error><Code>"
                                      "InvalidRange</Code><ActualObjectSize>5000</ActualObjectSize>"
                                      "<RequestId>1</RequestId></Error>"});
    r = range("aws", 5000, 0);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.object_bytes == 5000);
    r = range("aws", 4990, 20);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.object_bytes == 5000);
    r = range("k", 5001, 0);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    r = range("k", 4000, 0);
    r.capacity = 999;
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.ignore_range = 1}); /* 200, from its beginning */
    memset(large, 'x', 4096);
    r = range("k", 0, 90);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 90 && large[90] == 'x');
    CHECK(s3_mock_check("/b/k", 0, large, 90));
    r = range("k", 1, 90);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    end();
}

static void engine__pieces__each_in_its_place(void) {
    enum { N = 40 };
    static dlp_s3_piece piece[N];
    static char copy[300000];
    uint64_t sum = 0, at = 7;
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    begin(&d);
    s3_mock_object(mock, "/b/k", 400000);
    for (int chunk = 0; chunk < 2; chunk++) {
        memset(large, 'x', sizeof large);
        sum = 0;
        for (int i = 0; i < N; i++) { /* none, few, many bytes; each fifth thrown away */
            piece[i].bytes = i % 7 == 0 ? 0 : i % 3 == 0 ? 11 : (uint64_t)(i * 331);
            piece[i].to = i % 5 == 4 ? NULL : large + sum + (uint64_t)i; /* a byte between them */
            sum += piece[i].bytes;
        }
        CHECK(sum > d.part_bytes);
        r = range("k", at, sum);
        r.body = NULL;
        r.capacity = 0;
        r.pieces = piece;
        r.n_pieces = N;
        if (chunk) s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.chunk = 1000});
        CHECK(done(&r, DLP_OK) == DLP_OK && r.received == sum);
        s3_mock_fill("/b/k", 0, at, copy, sum);
        sum = 0;
        for (int i = 0; i < N; i++) {
            if (piece[i].to) CHECK(memcmp(piece[i].to, copy + sum, piece[i].bytes) == 0);
            sum += piece[i].bytes;
            CHECK(large[sum + (uint64_t)i] == 'x');
        }
    }
    r.length--;
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_ARG && strstr(r.error.message, "pieces"));
    r.length += 2;
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_ARG);
    end();
}

/* Objects larger than a part, and those that only might have been. */
static void engine__parts__side_by_side(void) {
    static const uint64_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 1000000};
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    d.max_requests = 8;
    begin(&d);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t n = sizes[i];
        s3_mock_request q;
        int parts = n ? (int)((n + 65535) / 65536) : 1, matched = 0;
        s3_mock_forget(mock);
        s3_mock_object(mock, "/b/k", n);
        s3_mock_on(mock, "/b/k", 0, (s3_mock_reply){.delay_ms = 1});
        s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.delay_ms = 1, .together = parts > 8 ? 8 : 0});
        memset(large, 'x', n + 1);
        r = get("k", large, sizeof large);
        CHECK(done(&r, DLP_OK) == DLP_OK && r.received == n && r.object_bytes == n);
        CHECK(s3_mock_check("/b/k", 0, large, n) && large[n] == 'x');
        CHECK(s3_mock_count(mock, NULL) == parts && saw(0, "GET", 1, 0, 65535));
        for (int k = 0; k < parts; k++)
            matched += s3_mock_seen(mock, k, &q) && strcmp(q.if_match, r.etag) == 0;
        CHECK(n == 0 || matched == parts - 1);
        if (parts > 8) CHECK(s3_mock_most(mock) == 8);
    }
    CHECK(s3_mock_connections(mock) <= 8);
    s3_mock_forget(mock);
    r = range("k", 1000, 300000);
    CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_check("/b/k", 1000, large, 300000));
    r = range("k", 900000, 0);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 100000);
    CHECK(s3_mock_check("/b/k", 900000, large, 100000));
    r = get("k", large, 999999);
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.object_bytes == 1000000);
    s3_mock_on(mock, "/b/one", -1, (s3_mock_reply){.ignore_range = 1}); /* all at once, then */
    s3_mock_object(mock, "/b/one", 1000000);
    r = get("one", large, sizeof large);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 1000000);
    CHECK(s3_mock_check("/b/one", 0, large, 1000000) && s3_mock_count(mock, "/b/one") == 1);
    r = range("one", 0, 300000);
    CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_check("/b/one", 0, large, 300000));
    end();
}

/* What a server says of a range that it answers with 200: which it is; something else; nothing. */
static void engine__range_answered_200__never_cut(void) {
    static const uint64_t sizes[] = {1, 65535, 65536, 65537, 131072, 1000000};
    static dlp_s3_piece piece[2];
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    d.max_requests = 8;
    begin(&d);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        s3_mock_reply named = {.ok_range = 1}, chunks = {.ok_range = 1, .chunk = 5000};
        s3_mock_reply silent = {.status = 200}, silent_chunks = {.status = 200, .chunk = 5000};
        s3_mock_reply all = {.ignore_range = 1, .chunk = 5000};
        s3_mock_reply kinds[] = {named, chunks, silent, silent_chunks, all};
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            uint64_t n = sizes[i];
            s3_mock_forget(mock);
            s3_mock_object(mock, "/b/k", n);
            s3_mock_on(mock, "/b/k", -1, kinds[k]);
            r = get("k", large, sizeof large);
            memset(large, 'x', n + 1);
            CHECK(done(&r, DLP_OK) == DLP_OK && r.received == n && large[n] == 'x');
            CHECK(s3_mock_check("/b/k", 0, large, n));
            if (k < 2) CHECK(s3_mock_count(mock, NULL) == (int)((n + 65535) / 65536));
        }
    }
    s3_mock_forget(mock);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.ok_range = 1});
    r = range("k", 1000, 300000);
    CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_check("/b/k", 1000, large, 300000));
    r = range("k", 900000, 0);
    CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 100000);
    CHECK(s3_mock_check("/b/k", 900000, large, 100000));
    piece[0] = (dlp_s3_piece){NULL, 70000};
    piece[1] = (dlp_s3_piece){large, 80000};
    r = range("k", 30000, 150000);
    r.body = NULL;
    r.capacity = 0;
    r.pieces = piece;
    r.n_pieces = 2;
    CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_check("/b/k", 100000, large, 80000));
    end();
}

static void engine__range_answered_200__another_is_refused(void) {
    static const s3_mock_reply kinds[] = {
        {.ok_range = 1, .content_range = "bytes 0-99/5000"},
        {.ok_range = 1, .content_range = "bytes 0-999999/x"},
        {.ok_range = 1, .content_range = "bytes */5000"},
        {.ok_range = 1, .content_range = "bytes 1-5000/5001"},
        {.ok_range = 1, .shift = 10},
    };
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    begin(&d);
    s3_mock_object(mock, "/b/k", 5000);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        s3_mock_forget(mock);
        s3_mock_on(mock, "/b/k", -1, kinds[i]);
        for (int ask = 0; ask < 4; ask++) {
            if (i == 4 && ask < 2) continue; /* there is nowhere to shift all of it to */
            r = ask < 2 ? get("k", large, ask ? 60000 : sizeof large)
                        : range("k", 0, ask == 2 ? 1000 : 100000);
            CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.error.message[0]);
        }
    }
    s3_mock_forget(mock); /* HEAD asks for no range, and gets the size of all */
    s3_mock_on(mock, "/b/k", 0, (s3_mock_reply){.content_range = "bytes 0-99/5000"});
    s3_mock_on(mock, "/b/k", 1, (s3_mock_reply){.content_length = -2});
    r = get("k", NULL, 0);
    r.method = DLP_S3_HEAD;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.object_bytes == 5000);
    CHECK(s3_mock_count(mock, NULL) == 3);
    end();
}

/* A server that knows no ranges is asked for all. */
static void engine__range_refused__asked_without(void) {
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    begin(&d);
    for (int status = 416; status <= 501; status += 501 - 416) {
        s3_mock_forget(mock);
        s3_mock_object(mock, "/b/k", 200000);
        s3_mock_on(mock, "/b/k", 0, (s3_mock_reply){.status = status, .body = "no"});
        r = get("k", large, sizeof large);
        CHECK(done(&r, DLP_OK) == DLP_OK && r.received == 200000);
        CHECK(s3_mock_check("/b/k", 0, large, 200000) && s3_mock_count(mock, NULL) == 2);
        CHECK(saw(0, "GET", 1, 0, 65535) && saw(1, "GET", 0, 0, 0));
    }
    end();
}

/* A large object whose parts take all there is leaves room for small ones, in turn. */
static void engine__parts__small_ones_pass(void) {
    static char small[3][1000];
    static dlp_s3_request r[4];
    dlp_s3_request *over[4];
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = usual();
    d.part_bytes = 65536;
    d.max_requests = 4;
    begin(&d);
    s3_mock_object(mock, "/b/large", sizeof large);
    s3_mock_object(mock, "/b/small", 1000);
    s3_mock_on(mock, "/b/large", 0, (s3_mock_reply){.delay_ms = 4});
    s3_mock_on(mock, "/b/large", -1, (s3_mock_reply){.delay_ms = 4, .together = 4});
    r[0] = get("large", large, sizeof large);
    CHECK(dlp_s3_submit(io, &r[0]) == DLP_OK);
    for (int i = 0; i < 20000 && s3_mock_count(mock, NULL) < 5; i++)
        CHECK(dlp_s3_reap(io, over, 1, 1) == 0);
    for (int i = 1; i < 4; i++) {
        r[i] = get("small", small[i - 1], 1000);
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int n = 0; n < 4; n++) {
        CHECK(dlp_s3_reap(io, over, 1, 20000) == 1 && over[0]->code == DLP_OK);
        CHECK((over[0] == &r[0]) == (n == 3));
        if (n == 2) CHECK(s3_mock_count(mock, "/b/large") < 32); /* of 48 */
    }
    CHECK(s3_mock_check("/b/large", 0, large, sizeof large) && s3_mock_most(mock) == 4);
    end();
}

static void engine__head_put__work(void) {
    static char sent[200000];
    dlp_s3_request r;
    begin_usual();
    s3_mock_object(mock, "/b/k", 12345);
    r = get("k", NULL, 0);
    r.method = DLP_S3_HEAD;
    CHECK(done(&r, DLP_OK) == DLP_OK && r.object_bytes == 12345 && r.etag[0] == '"');
    r = get("none", NULL, 0);
    r.method = DLP_S3_HEAD;
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && r.error.http_status == 404);
    for (uint64_t n = 0; n <= sizeof sent; n = n ? n * 200000 : 1) {
        s3_mock_request q;
        s3_mock_fill("sent", 0, 0, sent, n);
        r = get("new", sent, n);
        r.method = DLP_S3_PUT;
        CHECK(done(&r, DLP_OK) == DLP_OK);
        CHECK(s3_mock_seen(mock, s3_mock_count(mock, NULL) - 1, &q) && q.body_bytes == n);
        CHECK(q.has_authorization && strstr(q.head, "x-amz-content-sha256"));
        memset(large, 'x', n + 1);
        r = get("new", large, n);
        CHECK(done(&r, DLP_OK) == DLP_OK && r.received == n && memcmp(large, sent, n) == 0);
    }
    r = get("", NULL, 0);
    r.method = DLP_S3_PUT; /* makes the bucket */
    CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_count(mock, "/b") == 1);
    CHECK(s3_mock_connections(mock) == 1 && stats().bytes >= 2 * sizeof sent);
    end();
}

/* A PUT that is refused before all of it was sent: the answer is heard. */
static void engine__put__refused_early(void) {
    static const char deny[] = "HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    char url[64], buf[1024];
    dlp_s3_desc d;
    dlp_s3_request r, *one;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
    mock = s3_mock_start();
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 4) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    d = usual();
    d.endpoint = url;
    d.unsigned_payload = 1;
    d.max_attempts = 1;
    begin(&d);
    r = get("k", calloc(1, 64 << 20), 64 << 20);
    r.method = DLP_S3_PUT;
    CHECK(dlp_s3_submit(io, &r) == DLP_OK);
    CHECK(dlp_s3_reap(io, &one, 1, 20) == 0);
    peer = accept(fd, NULL, NULL);
    for (int i = 0; i < 1000 && recv(peer, buf, 1, MSG_PEEK | MSG_DONTWAIT) < 1; i++)
        CHECK(dlp_s3_reap(io, &one, 1, 20) == 0);
    CHECK(recv(peer, buf, sizeof buf, MSG_DONTWAIT) > 0);
    CHECK(send(peer, deny, sizeof deny - 1, MSG_NOSIGNAL) > 0);
    shutdown(peer, SHUT_WR);
    CHECK(dlp_s3_reap(io, &one, 1, 20000) == 1 && r.code == DLP_ERR_REMOTE);
    CHECK(r.error.http_status == 403);
    free(r.body);
    close(peer);
    close(fd);
    end();
}

static void engine__bounds__full(void) {
    static char body[4][1000];
    dlp_s3_request r[4], *over[4];
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = usual();
    d.max_requests = 3;
    d.max_bytes = 2000;
    begin(&d);
    s3_mock_object(mock, "/b/k", 900);
    for (int i = 0; i < 4; i++) r[i] = get("k", body[i], 1000);
    CHECK(dlp_s3_reap(io, over, 4, 0) == 0); /* nothing is out: at once */
    CHECK(dlp_s3_submit(io, &r[0]) == DLP_OK && dlp_s3_submit(io, &r[1]) == DLP_OK);
    CHECK(dlp_s3_submit(io, &r[2]) == DLP_FULL); /* bytes */
    r[2].method = DLP_S3_HEAD;
    CHECK(dlp_s3_submit(io, &r[2]) == DLP_OK);
    r[3].method = DLP_S3_HEAD;
    CHECK(dlp_s3_submit(io, &r[3]) == DLP_FULL); /* requests */
    CHECK(dlp_s3_do(io, &r[3]) == DLP_FULL);
    for (int n = 0; n < 3;) {
        int k = dlp_s3_reap(io, over, 1, 20000);
        CHECK(k == 1);
        if (k != 1) break;
        n += k;
    }
    r[3] = get("k", large, sizeof large); /* more than max_bytes, but alone */
    CHECK(dlp_s3_submit(io, &r[3]) == DLP_OK);
    CHECK(dlp_s3_submit(io, &r[0]) == DLP_FULL);
    CHECK(dlp_s3_reap(io, over, 4, 20000) == 1 && over[0] == &r[3]);
    end();
}

/* dlp_s3_do beside others: they go on, and come later. */
static void engine__do__others_go_on(void) {
    static char body[8][3000];
    static dlp_s3_request r[8];
    dlp_s3_request one, *over[8];
    int n = 0;
    begin_usual();
    s3_mock_object(mock, "/b/k", 3000);
    s3_mock_object(mock, "/b/slow", 2000);
    s3_mock_on(mock, "/b/slow", -1, (s3_mock_reply){.behind = 8});
    for (int i = 0; i < 8; i++) {
        r[i] = get("k", body[i], 3000);
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    one = get("slow", large, sizeof large);
    CHECK(done(&one, DLP_OK) == DLP_OK && one.received == 2000);
    n = dlp_s3_reap(io, over, 8, DLP_NOWAIT); /* they were over before the slow one */
    CHECK(n == 8);
    for (int i = 0; i < n; i++) CHECK(over[i]->code == DLP_OK && over[i] != &one);
    end();
}

static void engine__arguments__refused(void) {
    static char long_key[1030];
    dlp_s3_desc d;
    dlp_s3_error err;
    dlp_s3 *other = NULL;
    dlp_s3_request r;
    begin_usual();
    memset(long_key, 'k', sizeof long_key - 1);
#define REFUSED(field, change) \
    do { \
        r = get("k", large, 100); \
        change; \
        CHECK(dlp_s3_submit(io, &r) == DLP_ERR_ARG && r.code == DLP_ERR_ARG); \
        CHECK(strncmp(r.error.message, field ":", sizeof field) == 0); \
    } while (0)
    REFUSED("method", r.method = 3);
    REFUSED("bucket", r.bucket = NULL);
    REFUSED("bucket", r.bucket = "a/b");
    REFUSED("bucket", r.bucket = "a\r\nb");
    REFUSED("bucket", r.bucket = "arn:aws:s3:us-west-2:1:accesspoint/mine");
    CHECK(strstr(r.error.message, "ARN") != NULL);
    r = get("k", large, 100);
    r.bucket = "name--usw2-az1--x-s3"; /* elsewhere than at AWS a name like others */
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 1);
    s3_mock_forget(mock);
    REFUSED("key", r.key = NULL);
    REFUSED("key", r.key = "");
    REFUSED("key", r.key = long_key);
    REFUSED("query", r.query = "a b");
    REFUSED("if_match", r.if_match = "\"a\"\r\nX: y");
    REFUSED("body", r.body = NULL);
    REFUSED("capacity", r.length = 101);
    REFUSED("length", r.offset = UINT64_MAX);
    REFUSED("offset", r.offset = 1; r.method = DLP_S3_PUT);
#define UNOPENED(field, change) \
    do { \
        d = usual(); \
        change; \
        CHECK(dlp_s3_open(&other, &d, &err) == DLP_ERR_ARG && !other); \
        CHECK(strncmp(err.message, field ":", sizeof field) == 0); \
    } while (0)
    UNOPENED("endpoint", d.endpoint = "ftp://x");
    UNOPENED("max_attempts", d.max_attempts = 101);
    UNOPENED("max_requests", d.max_requests = 5000);
    UNOPENED("hedge_percent", d.hedge_percent = -2);
    UNOPENED("part_bytes", d.part_bytes = 1000);
    d = usual();
    d.endpoint = "https://127.0.0.1:1";
#ifndef DLPIPE_S3_OPENSSL
    CHECK(dlp_s3_open(&other, &d, &err) == DLP_ERR_UNSUPPORTED);
#endif
    CHECK(s3_mock_count(mock, NULL) == 0);
    CHECK(dlp_s3_close(s3) == DLP_ERR_BUSY);
    end();
}

/* ---- connections ---- */

static void wait_ms(int ms) {
    dlp_s3_request slow = get("k", large, 1000), *over;
    s3_mock_on(mock, "/b/wait", -1, (s3_mock_reply){.delay_ms = ms});
    s3_mock_object(mock, "/b/wait", 1);
    slow.key = "wait";
    CHECK(dlp_s3_submit(io, &slow) == DLP_OK);
    CHECK(dlp_s3_reap(io, &over, 1, 20000) == 1);
}

static void engine__connections__kept_and_closed(void) {
    static char body[12][100];
    dlp_s3_request r[12], *over[12];
    dlp_s3_desc d;
    mock = s3_mock_start();
    d = usual();
    d.max_idle = 4;
    d.idle_timeout_ms = 60;
    begin(&d);
    s3_mock_object(mock, "/b/k", 100);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.delay_ms = 10});
    for (int i = 0; i < 12; i++) {
        r[i] = get("k", body[i], 100);
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int n = 0; n < 12;) n += dlp_s3_reap(io, over, 12, 20000);
    CHECK(s3_mock_connections(mock) == 12 && io->n_idle <= 4 && io->connections_out == io->n_idle);
    for (int i = 0; i < 20; i++) { /* one after the other: over the one used last */
        r[0] = get("k", body[0], 100);
        CHECK(done(&r[0], DLP_OK) == DLP_OK);
    }
    CHECK_SOON(s3_mock_connections(mock) == 12 && stats().connections == 12);
    CHECK(io->connections_out == 1); /* the others were idle for too long */
    end();
}

static int closes_the_second(void *user, int connection) {
    (void)user;
    return connection == 1 ? S3_MOCK_CLOSE : S3_MOCK_KEEP;
}

/* A connection is not used when it has been idle for too long, also where nobody looked meanwhile;
   nor one that ended before it was ever used: what that costs is no retry. */
static void engine__connections__too_old_or_gone__not_used(void) {
    dlp_s3_desc d;
    dlp_s3_request r;
    mock = s3_mock_start();
    d = usual();
    d.idle_timeout_ms = 50;
    begin(&d);
    s3_mock_object(mock, "/b/k", 100);
    for (int i = 0; i < 2; i++) {
        r = get("k", large, 100);
        CHECK(done(&r, DLP_OK) == DLP_OK && stats().connections == (uint64_t)i + 1);
        usleep(60000);
    }
    CHECK(stats().retries == 0);
    end();
    mock = s3_mock_start();
    mock->accept = closes_the_second;
    d = usual();
    begin(&d);
    s3_mock_object(mock, "/b/k", 100);
    r = get("k", large, 100);
    CHECK(done(&r, DLP_OK) == DLP_OK);
    CHECK(dlpi_s3_origin_connect(io, io->last_origin) && io->connections_out == 2);
    for (int i = 0; i < 2; i++)
        if (io->connections[i].state == DLPI_S3_CONNECTION_OPENING) {
            struct pollfd p = {.fd = io->connections[i].conn.fd, .events = POLLIN};
            CHECK(poll(&p, 1, 5000) == 1);
            dlpi_s3_connection_open(io, &io->connections[i]);
            io->connections[i].sent_ns -= 2000 * DLPI_S3_MS;
        }
    CHECK(io->n_idle == 2);
    r = get("k", large, 100);
    CHECK(done(&r, DLP_OK) == DLP_OK && stats().retries == 0);
    end();
}

/* The server closes idle connections: they are noticed, and nothing is lost. */
static void engine__connections__closed_by_server(void) {
    dlp_s3_request r;
    begin_usual();
    s3_mock_object(mock, "/b/k", 100);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.then = S3_MOCK_CLOSE});
    for (int i = 0; i < 10; i++) {
        r = get("k", large, 100);
        CHECK(done(&r, DLP_OK) == DLP_OK);
        wait_ms(1);
    }
    CHECK(stats().failed == 0 && stats().retries == stats().replays);
    s3_mock_forget(mock);
    s3_mock_on(mock, "/b/k", -1, (s3_mock_reply){.close = 1});
    for (int i = 0; i < 3; i++) {
        r = get("k", large, 100);
        CHECK(done(&r, DLP_OK) == DLP_OK);
    }
    s3_mock_on(mock, "/b/old", -1, (s3_mock_reply){.http10 = 1, .content_length = -2});
    s3_mock_object(mock, "/b/old", 10);
    r = get("old", large, 100); /* without a length: may be cut */
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH);
    end();
}

/* What is out when it is closed is not touched any more. */
static void engine__close__requests_out(void) {
    static char body[16][100000];
    static dlp_s3_request r[16];
    dlp_s3_request *over;
    begin_usual();
    s3_mock_object(mock, "/b/k", 100000);
    s3_mock_on(
        mock, "/b/k", -1,
        (s3_mock_reply){.trickle = 20000, .trickle_ms = 2, .cut = S3_MOCK_HANG, .cut_at = 90000});
    for (int i = 0; i < 16; i++) {
        r[i] = get("k", body[i], 100000);
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    CHECK(dlp_s3_reap(io, &over, 1, 3) == 0);
    dlp_s3_io_close(io);
    memset(body, 'x', sizeof body);
    CHECK(dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    s3_mock_forget(mock);
    r[0] = get("k", large, sizeof large);
    CHECK(done(&r[0], DLP_OK) == DLP_OK);
    for (int i = 0; i < 16; i++) CHECK(body[i][0] == 'x' && body[i][99999] == 'x');
    end();
    dlp_s3_io_close(NULL);
    CHECK(dlp_s3_close(NULL) == DLP_OK);
}

/* A child may close, and use the client for an io of its own, but not its parent's. */
static int in_child(void) {
    dlp_s3_request r = get("k", large, 5000), *over;
    dlp_s3_io *own;
    int bad = 0;
    bad |= dlp_s3_submit(io, &r) != DLP_ERR_FORKED;
    bad |= (dlp_s3_reap(io, &over, 1, 10) != DLP_ERR_FORKED) << 1;
    bad |= (dlp_s3_do(io, &r) != DLP_ERR_FORKED) << 2;
    dlp_s3_io_close(io);
    if (dlp_s3_io_open(&own, s3, NULL) != DLP_OK) return bad | 8;
    bad |= (dlp_s3_do(own, &r) != DLP_OK) << 4;
    bad |= (dlp_s3_close(s3) != DLP_ERR_BUSY) << 5;
    dlp_s3_io_close(own);
    bad |= (dlp_s3_close(s3) != DLP_OK) << 6;
    return bad;
}

static void engine__fork__child_and_parent(void) {
    dlp_s3_request r, slow, *over;
    int status = -1, before;
    pid_t child;
    begin_usual();
    s3_mock_object(mock, "/b/k", 5000);
    s3_mock_object(mock, "/b/slow", 5000);
    s3_mock_on(mock, "/b/slow", -1, (s3_mock_reply){.pause_ms = 30, .pause_at = 2000});
    r = get("k", large, 5000);
    CHECK(done(&r, DLP_OK) == DLP_OK);
    slow = get("slow", large + 10000, 5000);
    CHECK(dlp_s3_submit(io, &slow) == DLP_OK);
    before = s3_mock_count(mock, "/b/k");
    child = fork();
    if (child == 0) _exit(in_child());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (status) printf("  the child found %d\n", WEXITSTATUS(status));
    CHECK(status == 0 && s3_mock_count(mock, "/b/k") == before + 1);
    CHECK(dlp_s3_reap(io, &over, 1, 20000) == 1 && slow.code == DLP_OK);
    CHECK(s3_mock_check("/b/slow", 0, large + 10000, 5000));
    CHECK(stats().objects == 3); /* the child's counts, too */
    end();
}

/* Who opened the client may close it: children go on with what they have of it. */
static void engine__fork__opener_closes_first(void) {
    s3_mock_request q;
    int status = -1, go[2];
    pid_t child;
    char c;
    begin_usual();
    s3_mock_object(mock, "/b/k", 5000);
    CHECK(pipe2(go, O_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        dlp_s3_request r = get("k", large, 5000);
        dlp_s3_io_close(io);
        if (read(go[0], &c, 1) != 1 || dlp_s3_io_open(&io, s3, NULL) != DLP_OK) _exit(1);
        if (dlp_s3_do(io, &r) != DLP_OK) _exit(2);
        dlp_s3_io_close(io);
        _exit(dlp_s3_close(s3) == DLP_OK ? 0 : 3);
    }
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    CHECK(write(go[1], "g", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(s3_mock_seen(mock, 0, &q) && strstr(q.head, "Credential=AKIDEXAMPLE/") != NULL);
    CHECK(strstr(q.head, "/us-east-1/s3/aws4_request") != NULL);
    close(go[0]);
    close(go[1]);
    s3_mock_stop(mock);
}

/* A child that leaves its parent's sockets alone keeps them open: what still comes over one that
   the parent has closed wakes nobody. */
static void engine__fork__child_keeps_sockets(void) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    struct epoll_event e;
    char url[64], c;
    dlp_s3_desc d;
    dlp_s3_request r, *one;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer, go[2], status = -1;
    pid_t child;
    mock = s3_mock_start();
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 4) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0 && pipe2(go, O_CLOEXEC) == 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    d = usual();
    d.endpoint = url;
    begin(&d);
    r = get("k", large, 1);
    CHECK(dlp_s3_submit(io, &r) == DLP_OK);
    peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < 20000 && recv(peer, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 1; i++)
        CHECK(dlp_s3_reap(io, &one, 1, 1) == 0);
    CHECK(peer >= 0 && send(peer, answer, sizeof answer - 1, MSG_NOSIGNAL) > 0);
    CHECK(dlp_s3_reap(io, &one, 1, 20000) == 1 && r.code == DLP_OK && io->n_idle == 1);
    child = fork();
    if (child == 0) {
        close(peer);
        close(go[1]);
        _exit(read(go[0], &c, 1) != 0);
    }
    dlpi_s3_connection_close(io, DLPI_S3_OF(io->idle.next, dlpi_s3_connection, age));
    CHECK(send(peer, "?", 1, MSG_NOSIGNAL) == 1);
    close(peer);
    CHECK(epoll_wait(io->epoll, &e, 1, 20) < 1);
    close(go[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(go[0]);
    close(fd);
    end();
}

/* ---- names, threads ---- */

static void engine__name__found_by_helper(void) {
    char url[64];
    dlp_s3_desc d;
    dlp_s3_request r;
    if (!s3_mock_localhost()) {
        test_skip("localhost is no name here (/etc/hosts)");
        return;
    }
    mock = s3_mock_start();
    snprintf(url, sizeof url, "http://localhost:%d", mock->port); /* ::1 may come first: refused */
    d = usual();
    d.endpoint = url;
    begin(&d);
    s3_mock_object(mock, "/b/k", 5000);
    for (int i = 0; i < 3; i++) {
        r = get("k", large, 5000);
        CHECK(done(&r, DLP_OK) == DLP_OK && s3_mock_check("/b/k", 0, large, 5000));
    }
    CHECK(stats().retries == 0 && s3_mock_connections(mock) == 1);
    end();
}

enum { THREADS = 4, EACH = 60 };

static void *in_thread(void *arg) {
    char *body = arg;
    dlp_s3_io *own;
    intptr_t good = 0;
    if (dlp_s3_io_open(&own, s3, NULL) != DLP_OK) return NULL;
    for (int i = 0; i < EACH; i++) {
        dlp_s3_request r = get("k", body, 3000);
        good += dlp_s3_do(own, &r) == DLP_OK && s3_mock_check("/b/k", 0, body, 3000);
    }
    dlp_s3_io_close(own);
    return (void *)good;
}

static void engine__threads__one_client(void) {
    pthread_t thread[THREADS];
    static char body[THREADS][3000];
    begin_usual();
    s3_mock_object(mock, "/b/k", 3000);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, in_thread, body[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;
        pthread_join(thread[i], &good);
        CHECK((intptr_t)good == EACH);
    }
    CHECK(stats().objects == THREADS * EACH && stats().bytes == THREADS * EACH * 3000);
    CHECK(s3_mock_connections(mock) == THREADS);
    end();
}

/* Regions that buckets turned out to be in: kept for all who share the client, a bounded number. */
static void engine__regions__learned_once(void) {
    static dlpi_s3_common c;
    char bucket[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2 * DLPI_S3_REGIONS; i++) {
            snprintf(bucket, sizeof bucket, "bucket-%d", i);
            dlpi_s3_region_learn(&c, bucket, "eu-west-1");
        }
    CHECK(c.n_regions == DLPI_S3_REGIONS && dlpi_s3_region_find(&c, "bucket-31"));
    CHECK(!dlpi_s3_region_find(&c, "bucket-32") && !dlpi_s3_region_find(&c, "bucket-"));
    memset(&c, 0, sizeof c);
    dlpi_s3_region_learn(&c, "b", "eu-west-1");
    dlpi_s3_region_learn(&c, "b", "eu-west-2"); /* moved: the last counts */
    CHECK(strcmp(dlpi_s3_region_find(&c, "b"), "eu-west-2") == 0);
    c.regions[1].state = 1; /* its writer died in between */
    CHECK(strcmp(dlpi_s3_region_find(&c, "b"), "eu-west-1") == 0);
}

/* ---- what the system refuses ---- */

static int open_files(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

/* One life of a client. Returns how many of its four steps went well. */
static int one_life(const dlp_s3_desc *d, dlp_s3_error *err) {
    static dlp_s3_piece piece[2] = {{large, 50}, {NULL, 150000}};
    dlp_s3_request r;
    int good = 0;
    s3 = NULL;
    io = NULL;
    if (dlp_s3_open(&s3, d, err) != DLP_OK) return 0;
    if (dlp_s3_io_open(&io, s3, err) == DLP_OK) {
        r = get("k", large, sizeof large); /* in parts */
        good += dlp_s3_do(io, &r) == DLP_OK && s3_mock_check("/b/k", 0, large, 200000);
        *err = r.error;
        r = get("k", NULL, 0);
        r.length = 150050;
        r.pieces = piece;
        r.n_pieces = 2;
        good += dlp_s3_do(io, &r) == DLP_OK && s3_mock_check("/b/k", 0, large, 50);
        if (r.code) *err = r.error;
        r = get("new", large, 100);
        r.method = DLP_S3_PUT;
        good += dlp_s3_do(io, &r) == DLP_OK;
        if (r.code) *err = r.error;
        good++;
        dlp_s3_io_close(io);
    }
    if (dlp_s3_close(s3) != DLP_OK) good = -9;
    return good;
}

/* Each call that may fail does, one at a time. A client may not come to be; a request that was
   begun ends well, for all of these pass over; and nothing stays open. */
static void engine__system__each_call_fails(void) {
    dlp_s3_desc d;
    dlp_s3_error err;
    int files, step = getenv("SHORT") ? 3 : 1;
    mock = s3_mock_start();
    s3_mock_object(mock, "/b/k", 200000);
    d = usual();
    d.part_bytes = 65536;
    d.max_requests = 4;
    d.connect_timeout_ms = d.first_byte_timeout_ms = d.stall_timeout_ms = 100;
    d.max_attempts = 50;
    files = open_files();
    for (int n = 1; n < 2000; n += step) {
        int good;
        fault_at = n;
        fault_calls = 0;
        good = one_life(&d, &err);
        fault_at = 0;
        if (fault_calls < n) {
            CHECK(good == 4 && n > 30);
            break;
        }
        if (good != 0 && good != 4) printf("  call %d: %d: %s\n", n, good, err.message);
        CHECK(good == 0 || good == 4);
        CHECK(good == 4 || err.code == DLP_ERR_MEMORY || err.code == DLP_ERR_SYSTEM);
    }
    for (int i = 0; i < 4000 && open_files() > files; i++) poll(NULL, 0, 5); /* the mock's ends */
    CHECK(open_files() == files);
    s3_mock_stop(mock);
}

/* ---- timers ---- */

/* Against a plain array: the earliest comes first, whatever was put off or taken back. */
static void engine__timers__in_order(void) {
    enum { N = 50 };
    static dlpi_s3_timer t[N], *place[N + 1];
    dlpi_s3_heap h = {place, 0};
    uint64_t random = 7, now = 0;
    for (int i = 0; i < N; i++) dlpi_s3_timer_begin(&t[i], 0, &t[i]);
    for (int round = 0; round < 20000; round++) {
        dlpi_s3_timer *first, *least = NULL;
        dlpi_s3_timer *one = &t[dlpi_s3_random(&random) % N];
        if (dlpi_s3_random(&random) % 4 == 0)
            dlpi_s3_timer_stop(one);
        else
            dlpi_s3_timer_set(&h, one, now + dlpi_s3_random(&random) % 1000);
        for (int i = 0; i < N; i++)
            if (t[i].due != UINT64_MAX && (!least || t[i].due < least->due)) least = &t[i];
        first = dlpi_s3_heap_first(&h);
        CHECK(least ? first && first->due == least->due : !first);
        if (first && dlpi_s3_random(&random) % 3 == 0) {
            now = first->due;
            first->due = UINT64_MAX;
        }
    }
    CHECK(h.n <= N);
}

int main(void) {
    engine__timers__in_order();
    engine__get__bytes();
    engine__many__all_come();
    engine__capacity__edges();
    engine__range__exact_bytes();
    engine__pieces__each_in_its_place();
    engine__parts__side_by_side();
    engine__parts__small_ones_pass();
    engine__range_answered_200__never_cut();
    engine__range_answered_200__another_is_refused();
    engine__range_refused__asked_without();
    engine__head_put__work();
    engine__put__refused_early();
    engine__bounds__full();
    engine__do__others_go_on();
    engine__arguments__refused();
    test_tries(engine__connections__kept_and_closed);
    engine__connections__too_old_or_gone__not_used();
    engine__connections__closed_by_server();
    engine__close__requests_out();
    engine__fork__child_and_parent();
    engine__fork__opener_closes_first();
    engine__fork__child_keeps_sockets();
    engine__name__found_by_helper();
    engine__threads__one_client();
    engine__regions__learned_once();
    engine__system__each_call_fails();
    return test_end("s3_engine");
}
