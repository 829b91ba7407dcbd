/* What goes wrong between a client and a server, one thing at a time, on a scripted server whose
   count of requests is checked; and all of it at once. What the client says, in errors and to its
   log, is searched for secrets at the end. */
#define _GNU_SOURCE
#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"

#include "../../rig/check.h"

#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define TOKEN "IQoJb3JpZ2luEXAMPLEtoken"
#define MS 1000000ull

/* ---- the rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;
static char said[4 << 20]; /* every line of log and error */
static size_t said_n;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static void say(void *user, const char *line) {
    size_t n = strlen(line);
    (void)user;
    pthread_mutex_lock(&said_lock);
    if (said_n + n + 2 < sizeof said) {
        snprintf(said + said_n, sizeof said - said_n, "%s\n", line);
        said_n += n + 1;
    }
    pthread_mutex_unlock(&said_lock);
    if (getenv("LOUD")) printf("  %s\n", line);
}

static dlp_s3_desc usual(void) {
    dlp_s3_desc d = {.endpoint = mock->url,
                     .region = "us-east-1",
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = SECRET,
                     .session_token = TOKEN,
                     .max_attempts = 4,
                     .backoff_ms = 1,
                     .backoff_max_ms = 10,
                     .hedge_percent = -1,
                     .log = say};
    return d;
}

static void up(void) { mock = s3_mock_start(); }

static void connect_to(const dlp_s3_desc *d) {
    dlp_s3_error err;
    CHECK(dlp_s3_open(&s3, d, &err) == DLP_OK);
    CHECK(s3 && dlp_s3_io_open(&io, s3, &err) == DLP_OK);
    if (!io) exit(1);
}

static dlp_s3_stats stats(void) {
    dlp_s3_stats s;
    dlp_s3_stats_get(s3, &s);
    return s;
}

/* Requests that were sent have come: what the client counts, the server counts, but for those that
   went to a connection which it was closing. */
static void agree(void) {
    dlp_s3_stats s = stats();
    uint64_t least = s.requests - s.replays, came = 0, accepted = 0;
    for (int i = 0; i < 4000 && (came < least || accepted < s.connections); i++) {
        if (i) poll(NULL, 0, 5);
        came = (uint64_t)s3_mock_count(mock, NULL);
        accepted = (uint64_t)s3_mock_connections(mock);
    }
    CHECK(came >= least && came <= s.requests);
    CHECK(accepted == s.connections);
}

static void gone(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    io = NULL;
    s3 = NULL;
}

static void down(void) {
    if (s3) {
        agree();
        gone();
    }
    s3_mock_stop(mock);
    mock = NULL;
}

static char room[2 << 20];

static const char *words(const dlp_s3_error *e) {
    static char line[2048];
    dlp_s3_error_format(e, line, sizeof line);
    say(NULL, line);
    return line;
}

/* Ask for bytes of /bucket/key, and check what came if it went well. */
static int ask(dlp_s3_request *r, const char *key, uint64_t offset, uint64_t length) {
    char path[300];
    int code;
    memset(r, 0, sizeof *r);
    memset(room, 0xEE, sizeof room);
    r->bucket = "bucket";
    r->key = key;
    r->offset = offset;
    r->length = length;
    r->body = room;
    r->capacity = sizeof room;
    snprintf(path, sizeof path, "/bucket/%s", key);
    code = dlp_s3_do(io, r);
    CHECK(code == r->code);
    if (code != DLP_OK) {
        words(&r->error);
        CHECK(r->error.code == code);
        return code;
    }
    CHECK(r->error.code == 0 && r->error.message[0] == '\0');
    CHECK(length == 0 || r->received == length);
    return code;
}

static int whole(const char *path, const dlp_s3_request *r, int version, uint64_t bytes) {
    return r->received == bytes && s3_mock_check_version(path, version, r->offset, r->body, bytes);
}

static s3_mock_request seen(int i) {
    s3_mock_request q;
    memset(&q, 0, sizeof q);
    CHECK(s3_mock_seen(mock, i, &q));
    return q;
}

static double ms_since(uint64_t began) { return (double)(test_now_ns() - began) / 1e6; }

/* ---- time-outs ---- */

static void timeout__connect__tried_again_and_told(void) {
    int fds[3], port, refuses;
    char url[64];
    dlp_s3_request r;
    dlp_s3_desc d;
    uint64_t began;
    up();
    port = s3_mock_full_port(fds);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    d = usual();
    d.endpoint = url;
    d.connect_timeout_ms = 40;
    d.max_attempts = 2;
    connect_to(&d);
    began = test_now_ns();
    CHECK(ask(&r, "key", 0, 0) < 0);
    CHECK_SOON(ms_since(began) < 1500);
    CHECK(ms_since(began) >= 79);
    CHECK(stats().timeouts == 2 && stats().retries == 1 && stats().requests == 0);
    CHECK(strstr(words(&r.error), "connect") != NULL);
    gone();
    for (int i = 0; i < 3; i++) close(fds[i]);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s3_mock_refusing_port(&refuses));
    d.connect_timeout_ms = 0;
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) < 0);
    CHECK(r.error.errnum == ECONNREFUSED && stats().retries == 1);
    gone();
    close(refuses);
    down();
}

static void timeout__first_byte__sent_again(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.first_byte_timeout_ms = 60;
    s3_mock_object(mock, "/bucket/key", 1000);
    s3_mock_on(mock, "/bucket/key", 0, (s3_mock_reply){.delay_ms = 60000});
    connect_to(&d);
    CHECK_SOON(ask(&r, "key", 0, 0) == DLP_OK);
    CHECK(r.code != DLP_OK || whole("/bucket/key", &r, 0, 1000));
    CHECK_SOON(stats().timeouts == 1);
    CHECK(stats().retries == stats().timeouts - (r.code != DLP_OK));
    agree();
    for (int i = 1; i < s3_mock_count(mock, NULL); i++)
        CHECK(seen(i - 1).connection != seen(i).connection); /* the late answer finds nobody */
    down();
}

static void timeout__stall__goes_on_where_it_stopped(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.stall_timeout_ms = 60;
    s3_mock_object(mock, "/bucket/key", 5000);
    s3_mock_on(mock, "/bucket/key", 0,
               (s3_mock_reply){.cut = S3_MOCK_HANG, .cut_at = 2000, .cut_in_body = 1});
    s3_mock_on(mock, "/bucket/key", 2, (s3_mock_reply){.trickle = 250, .trickle_ms = 5});
    connect_to(&d);
    CHECK_SOON(ask(&r, "key", 0, 0) == DLP_OK);
    CHECK(r.code != DLP_OK || whole("/bucket/key", &r, 0, 5000));
    CHECK_SOON(stats().timeouts == 1 && stats().resumes == 1 && stats().requests == 2);
    CHECK_SOON(seen(1).first == 2000 && seen(1).if_match[0]);
    CHECK_SOON(ask(&r, "key", 0, 0) == DLP_OK);
    CHECK(r.code != DLP_OK || whole("/bucket/key", &r, 0, 5000));
    CHECK_SOON(stats().timeouts == 1 && stats().requests == 3); /* slow, but no stall */
    down();
}

static void timeout__request__ends_it(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    uint64_t began;
    up();
    d = usual();
    d.first_byte_timeout_ms = 30;
    d.request_timeout_ms = 100;
    d.max_attempts = 100;
    s3_mock_on(mock, NULL, -1, (s3_mock_reply){.delay_ms = 60000});
    connect_to(&d);
    began = test_now_ns();
    CHECK(ask(&r, "key", 0, 0) < 0);
    CHECK_SOON(ms_since(began) < 1000);
    CHECK(ms_since(began) > 95);
    CHECK(strstr(r.error.message, "request_timeout_ms") != NULL);
    CHECK_SOON(stats().requests >= 2);
    CHECK(stats().failed == 1);
    down();
}

/* 5,000 bytes in 20 pieces: 400 ms at least. */
static const s3_mock_reply slowly = {.trickle = 250, .trickle_ms = 20};

static void timeout__progress__a_request_that_gets_on_goes_on(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.progress_timeout_ms = 200;
    s3_mock_object(mock, "/bucket/key", 5000);
    s3_mock_on(mock, "/bucket/key", -1, slowly);
    connect_to(&d);
    CHECK_SOON(ask(&r, "key", 0, 0) == DLP_OK);
    CHECK(r.code != DLP_OK || whole("/bucket/key", &r, 0, 5000));
    gone();
    d.request_timeout_ms = 200; /* the user's bound on all of it */
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE && r.error.errnum == ETIMEDOUT);
    CHECK(strstr(r.error.message, "request_timeout_ms (200 ms)") != NULL);
    gone();
    s3_mock_stop(mock);
}

/* Each attempt brings the same half of an object that has no ETag. */
static void timeout__progress__the_same_bytes_again_are_none(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    uint64_t began;
    up();
    d = usual();
    d.progress_timeout_ms = 300;
    d.max_attempts = 0;
    s3_mock_object(mock, "/bucket/key", 5000);
    s3_mock_on(mock, "/bucket/key", -1,
               (s3_mock_reply){.etag = "", .cut = S3_MOCK_CLOSE, .cut_at = 2500, .cut_in_body = 1});
    connect_to(&d);
    began = test_now_ns();
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE);
    CHECK(ms_since(began) > 295);
    CHECK_SOON(ms_since(began) < 2000);
    CHECK(strstr(r.error.message, "progress_timeout_ms (300 ms)") != NULL);
    down();
}

static int never_read(void *user, int connection) {
    (void)user;
    (void)connection;
    return S3_MOCK_HANG;
}

/* A server that takes no more of a PUT than its buffers hold. */
static void timeout__progress__put_that_is_not_taken_ends(void) {
    static char big[32 << 20];
    dlp_s3_request r = {.method = DLP_S3_PUT,
                        .bucket = "bucket",
                        .key = "key",
                        .body = big,
                        .capacity = sizeof big};
    dlp_s3_desc d;
    uint64_t began;
    up();
    mock->accept = never_read;
    d = usual();
    d.stall_timeout_ms = 100;
    d.progress_timeout_ms = 400;
    d.max_attempts = 0;
    d.unsigned_payload = 1;
    connect_to(&d);
    began = test_now_ns();
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE);
    CHECK(ms_since(began) > 395);
    CHECK_SOON(ms_since(began) < 4000);
    CHECK(strstr(r.error.message, "progress_timeout_ms (400 ms)") != NULL);
    gone();
    s3_mock_stop(mock);
}

/* The first answer for a path comes with 5 KB/s: 40 s, or more. */
static void first_trickles(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    r->etag = user;
    if (q->nth_of_path > 0) return;
    r->trickle = 100;
    r->trickle_ms = 20;
}

static void trickle__one_connection__goes_on_over_another(void) {
    static char none[] = "";
    dlp_s3_request r;
    dlp_s3_desc d;
    uint64_t began;
    for (int strong = 1; strong >= 0; strong--) {
        up();
        d = usual();
        d.stall_timeout_ms = 1000;
        d.max_attempts = 1; /* it is no failure */
        mock->script = first_trickles;
        mock->user = strong ? NULL : none;
        s3_mock_object(mock, "/bucket/key", 200000);
        connect_to(&d);
        began = test_now_ns();
        CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 200000));
        CHECK_SOON(ms_since(began) < 4000);
        CHECK(stats().timeouts == 0 && stats().retries == stats().requests - 1);
        CHECK(s3_mock_count(mock, NULL) == 2 && seen(0).connection != seen(1).connection);
        CHECK(strong ? seen(1).first > 0 && seen(1).if_match[0] : !seen(1).has_range);
        down();
    }
}

static void all_trickle(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    (void)q;
    r->trickle = 60;
    r->trickle_ms = 20;
}

/* A slow line: another connection brings no more, so each is left a few times at most. */
static void trickle__all_connections__soon_left_alone(void) {
    enum { N = 16 };
    static char body[N][5000];
    static dlp_s3_request r[N];
    dlp_s3_request *done[N];
    dlp_s3_desc d;
    int over = 0;
    up();
    d = usual();
    d.stall_timeout_ms = 500;
    mock->script = all_trickle;
    s3_mock_object(mock, "/bucket/key", 5000);
    connect_to(&d);
    for (int i = 0; i < N; i++) {
        r[i] = (dlp_s3_request){
            .bucket = "bucket", .key = "key", .body = body[i], .capacity = sizeof body[i]};
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    while (over < N) over += dlp_s3_reap(io, done, N, 20000);
    for (int i = 0; i < N; i++) CHECK(r[i].code == DLP_OK && whole("/bucket/key", &r[i], 0, 5000));
    CHECK(stats().retries >= N && stats().retries <= 4 * N);
    down();
}

/* ---- errors of the server ---- */

static void answers__may_pass__tried_again(void) {
    static const struct {
        int status;
        const char *code;
    } kinds[] = {{500, "InternalError"},
                 {502, NULL},
                 {503, "SlowDown"},
                 {504, NULL},
                 {408, NULL},
                 {503, "ServiceUnavailable"},
                 {429, "TooManyRequests"},
                 {400, "RequestTimeout"},
                 {400, "Throttling"},
                 {409, "OperationAborted"},
                 {499, NULL},
                 {520, NULL},
                 {522, NULL},
                 {529, NULL},
                 {530, NULL}};
    dlp_s3_request r;
    dlp_s3_desc d;
    char key[32], path[64];
    up();
    d = usual();
    connect_to(&d);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        snprintf(key, sizeof key, "key%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        s3_mock_object(mock, path, 300);
        s3_mock_on(mock, path, 0,
                   (s3_mock_reply){.status = kinds[i].status, .s3_code = kinds[i].code});
        CHECK(ask(&r, key, 0, 0) == DLP_OK && whole(path, &r, 0, 300));
        CHECK(s3_mock_count(mock, path) == 2);
        CHECK(stats().retries == (uint64_t)i + 1);
    }
    CHECK(stats().throttled == 4);
    CHECK(stats().failed == 0 && stats().objects == sizeof kinds / sizeof *kinds);
    CHECK(stats().connections == 1); /* an answer of 500 is an answer: its connection is kept */
    down();
}

static void answers__final__told_once_with_all_names(void) {
    static const struct {
        int status;
        const char *code;
    } kinds[] = {{403, "AccessDenied"},          {404, "NoSuchKey"},       {404, "NoSuchBucket"},
                 {403, "SignatureDoesNotMatch"}, {400, "InvalidArgument"}, {400, "ExpiredToken"},
                 {405, "MethodNotAllowed"}};
    dlp_s3_request r;
    dlp_s3_desc d;
    char key[32], path[64], id[32];
    const char *line;
    up();
    d = usual();
    connect_to(&d);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        snprintf(key, sizeof key, "key%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        snprintf(id, sizeof id, "MOCK%08d", i);
        s3_mock_on(mock, path, -1,
                   (s3_mock_reply){.status = kinds[i].status, .s3_code = kinds[i].code});
        CHECK(ask(&r, key, 100, 50) == DLP_ERR_REMOTE);
        CHECK(s3_mock_count(mock, path) == 1);
        CHECK(r.error.http_status == kinds[i].status && r.error.attempts == 1);
        CHECK(strcmp(r.error.bucket, "bucket") == 0 && strcmp(r.error.key, key) == 0);
        CHECK(strcmp(r.error.s3_code, kinds[i].code) == 0 && strcmp(r.error.request_id, id) == 0);
        CHECK(r.error.first == 100 && r.error.last == 149);
        line = words(&r.error);
        CHECK(strstr(line, "bucket") && strstr(line, key) && strstr(line, kinds[i].code));
        CHECK(strstr(line, id) && strstr(line, "100") && strstr(line, "149"));
    }
    CHECK(stats().retries == 0 && stats().failed == sizeof kinds / sizeof *kinds);
    r = (dlp_s3_request){.method = DLP_S3_HEAD, .bucket = "bucket", .key = "key1"};
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && r.error.http_status == 404);
    CHECK(stats().connections == 1);
    down();
}

static void attempts__gone__told(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.backoff_ms = 4;
    s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 500, .s3_code = "InternalError"});
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE);
    CHECK(s3_mock_count(mock, NULL) == 4 && r.error.attempts == 4);
    CHECK(strstr(r.error.message, "max_attempts") && r.error.http_status == 500);
    CHECK_SOON(seen(3).came_ns - seen(0).came_ns < 1000 * MS); /* 8, 10, 10 ms at most, and room */
    down();
}

static void tokens__gone__waits_the_longest(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int late = 0;
    up();
    d = usual();
    d.retry_tokens = 5;
    d.max_attempts = 3;
    d.backoff_max_ms = 60;
    s3_mock_object(mock, "/bucket/good", 10);
    s3_mock_on(mock, "/bucket/good", -1, (s3_mock_reply){0});
    s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 500});
    connect_to(&d);
    for (int i = 0; i < 5; i++) {
        CHECK(ask(&r, "bad", 0, 0) == DLP_ERR_REMOTE && r.error.attempts == 3);
        CHECK(strstr(r.error.message, "max_attempts") != NULL);
    }
    for (int i = 1; i < 15; i++) late += i % 3 && seen(i).came_ns - seen(i - 1).came_ns >= 30 * MS;
    CHECK(s3_mock_count(mock, NULL) == 15 && late >= 5);
    CHECK_SOON(late == 5);
    for (int i = 0; i < 3; i++) CHECK(ask(&r, "good", 0, 0) == DLP_OK);
    CHECK(ask(&r, "bad", 0, 0) == DLP_ERR_REMOTE && r.error.attempts == 3);
    CHECK_SOON(seen(20).came_ns - seen(18).came_ns < 30 * MS); /* three are there again */
    down();
}

/* ---- connections ---- */

static void close_on_second(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    int how = *(int *)user;
    if (q->nth_on_connection == 0) return;
    r->cut = how;
    r->cut_at = 0;
}

static void idle__closed_by_the_server__replayed_free(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int how = S3_MOCK_CLOSE;
    up();
    d = usual();
    d.max_attempts = 1;
    d.retry_tokens = 1;
    mock->script = close_on_second;
    mock->user = &how;
    s3_mock_object(mock, "/bucket/key", 100);
    connect_to(&d);
    for (int i = 0; i < 10; i++) {
        if (i == 5) how = S3_MOCK_RESET;
        CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 100));
    }
    CHECK(stats().replays == 9 && stats().requests == 19 && stats().failed == 0);
    down();
}

static void idle__closed_before__found_out(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.max_attempts = 1;
    s3_mock_on(mock, "/bucket/close", -1, (s3_mock_reply){.body = "x", .close = 1});
    s3_mock_on(mock, "/bucket/old", -1, (s3_mock_reply){.body = "x", .http10 = 1});
    s3_mock_on(mock, "/bucket/gone", -1, (s3_mock_reply){.body = "x", .then = S3_MOCK_CLOSE});
    s3_mock_on(mock, "/bucket/more", -1, (s3_mock_reply){.body = "x", .extra = "HTTP/1.1 200 "});
    connect_to(&d);
    for (int i = 0; i < 12; i++) {
        static const char *const keys[] = {"close", "old", "gone", "more"};
        CHECK(ask(&r, keys[i % 4], 0, 0) == DLP_OK && r.received == 1 && room[0] == 'x');
        if (i % 4 == 2) poll(NULL, 0, 10);
    }
    CHECK(s3_mock_connections(mock) == 12);
    CHECK(stats().failed == 0);
    down();
}

/* ---- truncation ---- */

typedef struct cutting {
    int chunk, how;
} cutting;

static void cut_by_key(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    const cutting *c = user;
    r->chunk = c->chunk;
    if (q->nth_of_path > 0) return;
    r->cut = c->how;
    r->cut_at = atoi(q->path + strlen("/bucket/k"));
}

enum { CUTS = 400, CUT_BYTES = 48 };

/* One object each, cut after its own number of bytes; all at once. */
static void cut_all(cutting c) {
    static dlp_s3_request r[CUTS];
    static char body[CUTS][CUT_BYTES], key[CUTS][16];
    dlp_s3_request *done[16];
    dlp_s3_desc d;
    char path[40];
    int begun = 0, over = 0, n, resumed = 0;
    up();
    d = usual();
    d.retry_tokens = -1;
    mock->script = cut_by_key;
    mock->user = &c;
    mock->default_bytes = CUT_BYTES;
    connect_to(&d);
    memset(r, 0, sizeof r);
    while (over < CUTS) {
        for (; begun < CUTS; begun++) {
            snprintf(key[begun], sizeof key[begun], "k%03d", begun);
            r[begun].bucket = "bucket";
            r[begun].key = key[begun];
            r[begun].body = body[begun];
            r[begun].capacity = CUT_BYTES;
            n = dlp_s3_submit(io, &r[begun]);
            CHECK(n == DLP_OK || n == DLP_FULL);
            if (n != DLP_OK) break;
        }
        n = dlp_s3_reap(io, done, 16, 20000);
        CHECK(n > 0);
        if (n <= 0) break;
        over += n;
    }
    for (int i = 0; i < CUTS; i++) {
        snprintf(path, sizeof path, "/bucket/%.16s", key[i]);
        if (r[i].code) words(&r[i].error);
        CHECK(r[i].code == DLP_OK && r[i].received == CUT_BYTES);
        CHECK(s3_mock_check(path, 0, body[i], CUT_BYTES));
    }
    agree();
    for (int i = 0; i < s3_mock_count(mock, NULL); i++) {
        s3_mock_request q = seen(i);
        uint64_t had = 0;
        if (q.nth_of_path == 0) continue;
        CHECK(q.nth_of_path == 1);
        for (int k = 0; k < i; k++) {
            s3_mock_request before;
            if (s3_mock_seen(mock, k, &before) && strcmp(before.path, q.path) == 0)
                had = before.body_sent;
        }
        if (c.chunk) continue;                     /* body_sent counts the framing */
        CHECK(had == (q.has_range ? q.first : 0)); /* no byte of a body comes twice */
        CHECK(had == 0 || q.if_match[0]);
        resumed += had > 0;
    }
    CHECK(c.chunk || (resumed == CUT_BYTES - 1 && stats().resumes >= CUT_BYTES - 1));
    CHECK(stats().failed == 0 && stats().objects == CUTS);
    if (c.how == S3_MOCK_CLOSE) CHECK(stats().bytes == CUTS * CUT_BYTES);
    down();
}

static void truncated__at_every_byte__goes_on_there(void) {
    cut_all((cutting){0, S3_MOCK_CLOSE});
    cut_all((cutting){7, S3_MOCK_CLOSE});
    if (!getenv("SHORT")) cut_all((cutting){0, S3_MOCK_RESET});
}

static void cut_each_time(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    (void)q;
    r->cut = S3_MOCK_CLOSE;
    r->cut_at = 100;
    r->cut_in_body = 1;
}

static void truncated__again_and_again__progress_counts(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    mock->script = cut_each_time;
    s3_mock_object(mock, "/bucket/key", 1950);
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 1950));
    CHECK(stats().requests == 20 && stats().resumes == 19);
    down();
}

/* ---- objects that change ---- */

static void changed__between_attempts__never_mixed(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    s3_mock_reply cut = {.cut = S3_MOCK_CLOSE, .cut_at = 500, .cut_in_body = 1};
    s3_mock_reply second = {.version = 2}, deaf = {.version = 2, .ignore_match = 1};
    s3_mock_reply nameless = {.etag = "", .cut = S3_MOCK_CLOSE, .cut_at = 500, .cut_in_body = 1};
    up();
    d = usual();
    s3_mock_object(mock, "/bucket/a", 1000);
    s3_mock_on(mock, "/bucket/a", 0, cut);
    s3_mock_on(mock, "/bucket/a", -1, second);
    s3_mock_object(mock, "/bucket/b", 1000);
    s3_mock_on(mock, "/bucket/b", 0, cut);
    s3_mock_on(mock, "/bucket/b", -1, deaf);
    s3_mock_object(mock, "/bucket/c", 1000);
    s3_mock_on(mock, "/bucket/c", 0, nameless);
    s3_mock_on(mock, "/bucket/c", -1, (s3_mock_reply){.version = 2, .etag = ""});
    connect_to(&d);
    CHECK(ask(&r, "a", 0, 0) == DLP_OK && whole("/bucket/a", &r, 2, 1000));
    CHECK(s3_mock_count(mock, "/bucket/a") == 3); /* cut; 412; from the beginning */
    CHECK(seen(1).first == 500 && seen(2).first == 0);
    CHECK(ask(&r, "b", 0, 0) == DLP_OK && whole("/bucket/b", &r, 2, 1000));
    CHECK(s3_mock_count(mock, "/bucket/b") == 3); /* the second answer has another ETag */
    CHECK(ask(&r, "c", 0, 0) == DLP_OK && whole("/bucket/c", &r, 2, 1000));
    CHECK(s3_mock_count(mock, "/bucket/c") == 2); /* no ETag: not gone on with */
    memset(&r, 0, sizeof r);
    r = (dlp_s3_request){.bucket = "bucket",
                         .key = "a",
                         .body = room,
                         .capacity = sizeof room,
                         .if_match = "\"another\""};
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && r.error.http_status == 412);
    CHECK(s3_mock_count(mock, "/bucket/a") == 4);
    down();
}

/* Later answers without the ETag of the first, and the other way round, are of who knows what. */
static void changed__etag_comes_or_goes__never_mixed(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    s3_mock_reply cut = {.cut = S3_MOCK_CLOSE, .cut_at = 500, .cut_in_body = 1};
    s3_mock_reply nameless = {.version = 2, .etag = "", .ignore_match = 1};
    up();
    d = usual();
    d.part_bytes = 65536;
    s3_mock_object(mock, "/bucket/a", 1000);
    s3_mock_on(mock, "/bucket/a", 0, cut);
    s3_mock_on(mock, "/bucket/a", -1, nameless);
    s3_mock_object(mock, "/bucket/b", 300000);
    s3_mock_on(mock, "/bucket/b", 0, (s3_mock_reply){.version = 1});
    s3_mock_on(mock, "/bucket/b", -1, nameless);
    s3_mock_object(mock, "/bucket/c", 300000);
    s3_mock_on(mock, "/bucket/c", 0, nameless);
    s3_mock_on(mock, "/bucket/c", -1, (s3_mock_reply){.version = 1});
    connect_to(&d);
    CHECK(ask(&r, "a", 0, 0) == DLP_OK && whole("/bucket/a", &r, 2, 1000));
    CHECK(ask(&r, "b", 0, 0) == DLP_OK && whole("/bucket/b", &r, 2, 300000));
    CHECK(ask(&r, "c", 0, 0) == DLP_OK && whole("/bucket/c", &r, 1, 300000));
    for (int i = 0; i < 40; i++) /* now so, now so */
        s3_mock_on(mock, "/bucket/d", i, i & 1 ? nameless : (s3_mock_reply){.version = 1});
    s3_mock_object(mock, "/bucket/d", 300000);
    if (ask(&r, "d", 0, 0) == DLP_OK)
        CHECK(whole("/bucket/d", &r, 1, 300000) || whole("/bucket/d", &r, 2, 300000));
    down();
}

/* Who asks for a version gets that one, whatever the server makes of If-Match. */
/* An ETag that is too long to be kept is compared all the same. */
/* The first answer, which is cut, has one line; the later ones another. */
static void one_then_another(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    const char *const *lines = user;
    r->etag = lines[2];
    r->headers = q->nth_of_path == 0 ? lines[0] : lines[1];
    r->version = q->nth_of_path == 0 ? 1 : 2; /* of the bytes */
    if (q->nth_of_path > 0) return;
    r->cut = S3_MOCK_CLOSE;
    r->cut_at = 1000;
    r->cut_in_body = 1;
}

static void changed__encoding_version_or_time__never_mixed(void) {
    static const char *lines[][3] = {
        {"Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", "\"same\""},
        {"", "Content-Encoding: gzip\r\n", "\"same\""},
        {"x-amz-version-id: 1\r\n", "x-amz-version-id: 2\r\n", "\"same\""},
        {"x-amz-version-id: 1\r\n", "", "\"same\""}};
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    mock->script = one_then_another;
    connect_to(&d);
    for (int i = 0; i < 4; i++) {
        char key[8], path[32];
        snprintf(key, sizeof key, "key%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        s3_mock_object(mock, path, 5000);
        mock->user = lines[i];
        CHECK(ask(&r, key, 0, 0) == DLP_OK && whole(path, &r, 2, 5000));
        CHECK(s3_mock_count(mock, path) == 3);
    }
    down();
}

/* Parts of an object without an ETag: the first of one time, the others of another. */
static void by_part(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    bool first = q->nth_of_path < *(int *)user;
    r->etag = "";
    r->version = first ? 1 : 2;
    r->headers = first ? "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
                       : "Last-Modified: Wed, 21 Oct 2015 07:28:01 GMT\r\n";
}

static void changed__time_between_parts__never_mixed(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int first = 2;
    up();
    d = usual();
    d.part_bytes = 65536;
    mock->script = by_part;
    mock->user = &first;
    s3_mock_object(mock, "/bucket/key", 300000);
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 2, 300000));
    down();
}

static void by_version(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    r->headers =
        strstr(q->path, "odd") ? "x-amz-version-id: other\r\n" : "x-amz-version-id: a/b+c\r\n";
    if (strcmp(q->query, "versionId=a%2Fb%2Bc") != 0) r->s3_code = "InvalidArgument";
    if (q->nth_of_path > 0) return;
    r->cut = S3_MOCK_CLOSE;
    r->cut_at = 100;
    r->cut_in_body = 1;
}

static void version__asked_for__with_ranges_and_held_to_it(void) {
    static char body[1000];
    dlp_s3_request r = {
        .bucket = "bucket", .key = "key", .body = body, .capacity = 1000, .version_id = "a/b+c"};
    dlp_s3_desc d;
    up();
    d = usual();
    mock->script = by_version;
    s3_mock_object(mock, "/bucket/key", 1000);
    s3_mock_object(mock, "/bucket/odd", 1000);
    connect_to(&d);
    CHECK(dlp_s3_do(io, &r) == DLP_OK && whole("/bucket/key", &r, 0, 1000));
    CHECK(seen(1).has_range && seen(1).first == 100);
    r.offset = 500;
    r.length = 100;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && whole("/bucket/key", &r, 0, 100));
    r.key = "odd";
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && strstr(r.error.message, "version_id"));
    CHECK(strcmp(r.error.key, "odd") == 0 && s3_mock_count(mock, "/bucket/odd") == 1);
    r.query = "a=b";
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_ARG);
    down();
}

static void changed__long_etag__never_mixed(void) {
    static char etags[2][88];
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.part_bytes = 65536;
    for (int i = 0; i < 2; i++) snprintf(etags[i], sizeof etags[i], "\"%083d\"", i);
    s3_mock_object(mock, "/bucket/moving", 1000001);
    for (int i = 0; i < 6; i++)
        s3_mock_on(mock, "/bucket/moving", i, (s3_mock_reply){.version = 1, .etag = etags[0]});
    s3_mock_on(mock, "/bucket/moving", -1, (s3_mock_reply){.version = 2, .etag = etags[1]});
    connect_to(&d);
    CHECK(ask(&r, "moving", 0, 0) == DLP_OK && whole("/bucket/moving", &r, 2, 1000001));
    CHECK(r.etag[0] == '\0');
    down();
}

static void if_match__not_held__refused(void) {
    static const struct {
        const char *etag, *if_match;
        int same;
    } kinds[] = {
        {"\"a\"", "\"a\"", 1},
        {"\"a\"", "a", 1},
        {"\"a\"", "*", 1},
        {"", "*", 1},
        {"\"a\"", "\"b\", \"a\"", 1},
        {"\"a\"", "\"b\"", 0},
        {"\"a\"", "\"aa\"", 0},
        {"\"aa\"", "\"a\"", 0},
        {"\"a\"", "\"b\", \"c\"", 0},
        {"W/\"a\"", "\"a\"", 0},
        {"\"a\"", "W/\"a\"", 0},
        {"W/\"a\"", "W/\"a\"", 0},
        {"", "\"a\"", 0},
        {"\"\"", "", 0},
        {"\"a\"", "\"A\"", 0},
        {"\"a\"", "\"b", 0},
        {"\"W/\"", "\"W/\"", 1},
    };
    dlp_s3_request r;
    dlp_s3_desc d;
    char key[32], path[64];
    up();
    d = usual();
    d.part_bytes = 65536;
    connect_to(&d);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        snprintf(key, sizeof key, "key%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        s3_mock_object(mock, path, 200000);
        s3_mock_on(mock, path, -1, (s3_mock_reply){.ignore_match = 1, .etag = kinds[i].etag});
        for (int how = 0; how < 3; how++) { /* in parts, a range, HEAD */
            int before = s3_mock_count(mock, path), code;
            r = (dlp_s3_request){.bucket = "bucket",
                                 .key = key,
                                 .if_match = kinds[i].if_match,
                                 .method = how == 2 ? DLP_S3_HEAD : DLP_S3_GET};
            if (how < 2) r.body = room, r.capacity = sizeof room;
            if (how == 1) r.offset = 10, r.length = 20;
            code = dlp_s3_do(io, &r);
            CHECK((code == DLP_OK) == (kinds[i].same == 1));
            if (code == DLP_OK) continue;
            CHECK(code == DLP_ERR_REMOTE && r.received == 0 && strstr(words(&r.error), "if_match"));
            CHECK(s3_mock_count(mock, path) == before + 1);
        }
    }
    down();
}

/* An empty object's 416 says nothing of its version, where the server takes no heed of If-Match. */
static void if_match__now_empty__refused(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.part_bytes = 65536;
    s3_mock_object(mock, "/bucket/key", 0);
    s3_mock_on(mock, "/bucket/key", -1, (s3_mock_reply){.ignore_match = 1});
    connect_to(&d);
    r = (dlp_s3_request){.bucket = "bucket", .key = "key", .body = room, .capacity = sizeof room};
    r.if_match = "\"another version\"";
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE);
    words(&r.error);
    r.if_match = "*";
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.received == 0);
    down();
}

/* The object becomes shorter while it is read. This server looks at the range first: it answers 416
   where another one answers 412. */
static void shrinks(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    r->ignore_match = 1;
    if (q->nth_of_path == 0) r->version = 1;
    if (q->nth_of_path == *(int *)user) s3_mock_object(mock, q->path, 1000);
}

static void changed__shorter_416__from_the_beginning(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int later = 1;
    up();
    d = usual();
    d.part_bytes = 65536;
    mock->user = &later;
    mock->script = shrinks;
    connect_to(&d);
    s3_mock_object(mock, "/bucket/parts", 300000);
    CHECK(ask(&r, "parts", 0, 0) == DLP_OK && whole("/bucket/parts", &r, 0, 1000));
    CHECK(r.object_bytes == 1000);
    s3_mock_object(mock, "/bucket/cut", 50000); /* a body that breaks off */
    s3_mock_on(mock, "/bucket/cut", 0,
               (s3_mock_reply){.cut = S3_MOCK_CLOSE, .cut_at = 30000, .cut_in_body = 1});
    CHECK(ask(&r, "cut", 0, 0) == DLP_OK && whole("/bucket/cut", &r, 0, 1000));
    s3_mock_object(mock, "/bucket/held", 300000); /* one version, and no other */
    r = (dlp_s3_request){.bucket = "bucket", .key = "held", .body = room, .capacity = sizeof room};
    r.if_match = "*";
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE && r.error.http_status == 416);
    words(&r.error);
    CHECK(ask(&r, "parts", 5000, 0) == DLP_ERR_LENGTH); /* there was nothing before */
    down();
}

/* A server that has no ranges, or has them no more, sends all: what had come is passed over. */
static void resume__answered_200__goes_on_behind(void) {
    s3_mock_reply cut = {.cut = S3_MOCK_CLOSE, .cut_at = 70000, .cut_in_body = 1};
    s3_mock_reply all = {.ignore_range = 1, .ignore_match = 1}, other = all, again = all;
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    again.cut = S3_MOCK_CLOSE;
    again.cut_at = 90000;
    again.cut_in_body = 1;
    other.version = 2;
    connect_to(&d);
    for (int i = 0; i < 2; i++, all.chunk = again.chunk = 3000) {
        s3_mock_forget(mock);
        s3_mock_object(mock, "/bucket/k", 150000);
        s3_mock_on(mock, "/bucket/k", 0, cut);
        s3_mock_on(mock, "/bucket/k", 1, again);
        s3_mock_on(mock, "/bucket/k", -1, all);
        CHECK(ask(&r, "k", 0, 0) == DLP_OK && whole("/bucket/k", &r, 0, 150000));
        CHECK(seen(1).has_range && seen(1).first == 70000);
        CHECK(s3_mock_count(mock, NULL) == 3 && (i || seen(2).first == 90000));
    }
    s3_mock_forget(mock); /* of another version it is all that is taken */
    s3_mock_on(mock, "/bucket/k", 0, cut);
    s3_mock_on(mock, "/bucket/k", -1, other);
    CHECK(ask(&r, "k", 0, 0) == DLP_OK && whole("/bucket/k", &r, 2, 150000));
    s3_mock_forget(mock); /* no length is told, then or now: from the beginning */
    cut.chunk = 3000;
    s3_mock_on(mock, "/bucket/k", 0, cut);
    s3_mock_on(mock, "/bucket/k", -1, (s3_mock_reply){.ignore_range = 1, .chunk = 3000});
    CHECK(ask(&r, "k", 0, 0) == DLP_OK && whole("/bucket/k", &r, 0, 150000));
    gone();
    d.part_bytes = 65536; /* a first part, beside others */
    connect_to(&d);
    s3_mock_forget(mock);
    s3_mock_on(mock, "/bucket/k", 0,
               (s3_mock_reply){.cut = S3_MOCK_RESET,
                               .cut_at = 30000,
                               .cut_in_body = 1,
                               .pause_ms = 30,
                               .pause_at = 20000});
    for (int i = 1; i < 3; i++) s3_mock_on(mock, "/bucket/k", i, (s3_mock_reply){0});
    s3_mock_on(mock, "/bucket/k", -1, (s3_mock_reply){.ignore_range = 1});
    CHECK(ask(&r, "k", 0, 0) == DLP_OK && whole("/bucket/k", &r, 0, 150000));
    gone();
    down();
}

/* ---- clock, region, redirects, credentials ---- */

static int64_t signed_at(const s3_mock_request *q) {
    char date[32];
    struct tm tm;
    memset(&tm, 0, sizeof tm);
    if (!s3_mock_header(q, "x-amz-date", date, sizeof date)) return 0;
    if (sscanf(date, "%4d%2d%2dT%2d%2d%2dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) != 6)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (int64_t)timegm(&tm);
}

static void strict_clock(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    int64_t off = signed_at(q) - ((int64_t)time(NULL) + *(int64_t *)user);
    if (off > -300 && off < 300) return;
    r->status = 403;
    r->s3_code = "RequestTimeTooSkewed";
}

static void clock__wrong__corrected_once(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int64_t skew = -7200;
    up();
    d = usual();
    mock->script = strict_clock;
    mock->user = &skew;
    mock->skew_s = skew;
    s3_mock_object(mock, "/bucket/key", 100);
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && s3_mock_count(mock, NULL) == 2);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && s3_mock_count(mock, NULL) == 3);
    skew = 7200; /* its Date does not say so: another hour would be guesswork */
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) <= 6);
    CHECK(strcmp(r.error.s3_code, "RequestTimeTooSkewed") == 0);
    down();
}

static void strict_clock_together(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    strict_clock(user, q, r);
    if (r->status) r->together = 8;
}

/* Answers to HEAD have no code: what came before the clock was set right is told by its own. */
static void clock__wrong_for_many__corrected_for_all(void) {
    dlp_s3_request r[8], *done[8];
    dlp_s3_desc d;
    int64_t skew = -7200;
    int over = 0;
    up();
    d = usual();
    mock->script = strict_clock_together;
    mock->user = &skew;
    mock->skew_s = skew;
    s3_mock_object(mock, "/bucket/key", 100);
    connect_to(&d);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 8; i++) {
        r[i].method = DLP_S3_HEAD;
        r[i].bucket = "bucket";
        r[i].key = "key";
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int n; over < 8 && (n = dlp_s3_reap(io, done, 8, 20000)) > 0;) over += n;
    CHECK(over == 8);
    for (int i = 0; i < 8; i++) CHECK(r[i].code == DLP_OK && r[i].object_bytes == 100);
    CHECK(s3_mock_count(mock, NULL) == 16);
    down();
}

static void strict_region(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    const char *how = user;
    if (strstr(q->head, "/eu-west-1/s3/aws4_request")) return;
    r->status = how[0] == '3' ? 301 : 400;
    if (how[1] == 'h') r->headers = "x-amz-bucket-region: eu-west-1\r\n";
    if (strcmp(q->method, "HEAD") == 0)
        r->body = "";
    else
        r->body = "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>"
                  "The region is wrong</Message><Region>eu-west-1</Region></Error>";
}

static void region__wrong__asked_in_the_right_one_from_then_on(void) {
    static char hows[][3] = {"4h", "4x", "3h", "3x"};
    for (int i = 0; i < 4; i++) {
        dlp_s3_request r;
        dlp_s3_desc d;
        up();
        d = usual();
        mock->script = strict_region;
        mock->user = hows[i];
        s3_mock_object(mock, "/bucket/key", 100);
        connect_to(&d);
        CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 100));
        CHECK(s3_mock_count(mock, NULL) == 2);
        CHECK(ask(&r, "key", 0, 0) == DLP_OK && s3_mock_count(mock, NULL) == 3);
        down();
    }
}

static void redirects__followed__but_not_for_ever(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    s3_mock *other = s3_mock_start();
    char there[128], round_and_round[128], elsewhere[128];
    up();
    d = usual();
    snprintf(there, sizeof there, "Location: %s/bucket/key\r\n", other->url);
    snprintf(round_and_round, sizeof round_and_round, "Location: %s/bucket/loop\r\n", mock->url);
    snprintf(elsewhere, sizeof elsewhere, "Location: ftp://127.0.0.1:1/bucket/x\r\n");
    s3_mock_object(other, "/bucket/key", 100);
    s3_mock_on(mock, "/bucket/key", -1,
               (s3_mock_reply){.status = 307, .headers = there, .body = ""});
    s3_mock_on(mock, "/bucket/loop", -1,
               (s3_mock_reply){.status = 307, .headers = round_and_round, .body = ""});
    s3_mock_on(mock, "/bucket/bare", -1, (s3_mock_reply){.status = 301, .body = ""});
    s3_mock_on(mock, "/bucket/odd", -1,
               (s3_mock_reply){.status = 302, .headers = elsewhere, .body = ""});
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 100));
    CHECK(s3_mock_count(mock, NULL) == 1 && s3_mock_count(other, NULL) == 1);
    CHECK(ask(&r, "loop", 0, 0) == DLP_ERR_REMOTE && r.error.http_status == 307);
    CHECK(s3_mock_count(mock, "/bucket/loop") == 6);
    CHECK(ask(&r, "bare", 0, 0) == DLP_ERR_REMOTE && r.error.http_status == 301);
    CHECK(ask(&r, "odd", 0, 0) == DLP_ERR_REMOTE && s3_mock_count(mock, "/bucket/odd") == 1);
    CHECK(strstr(r.error.message, "http") != NULL);
    gone();
    s3_mock_stop(other);
    down();
}

/* Signed ones are long, and nothing without their query; those longer than a line may be are
   refused, and others that cannot be followed are said to be. */
static void redirects__long_ones__followed_with_their_query(void) {
    static const size_t most[] = {900, 1100, 2000, 5000, 8000};
    static char there[9000], line[9100];
    dlp_s3_request r;
    dlp_s3_desc d;
    s3_mock *other = s3_mock_start();
    up();
    d = usual();
    s3_mock_object(other, "/bucket/other", 100);
    connect_to(&d);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        s3_mock_request q;
        size_t n = (size_t)snprintf(there, sizeof there,
                                    "%s/bucket/other?X-Amz-Signature=a&b=", other->url);
        memset(there + n, 'c', most[i] - n);
        there[most[i]] = '\0';
        snprintf(line, sizeof line, "Location: %s#part\r\n", there);
        s3_mock_forget(mock);
        s3_mock_forget(other);
        s3_mock_on(mock, "/bucket/key", -1,
                   (s3_mock_reply){.status = 302, .headers = line, .body = ""});
        CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/other", &r, 0, 100));
        CHECK(s3_mock_count(mock, NULL) == 1 && s3_mock_seen(other, 0, &q));
        CHECK(strncmp(q.query, "X-Amz-Signature=a&b=ccc", 23) == 0 && !strchr(q.query, '#'));
        CHECK(strstr(q.head, SECRET) == NULL && strstr(q.head, "AKIDEXAMPLE") == NULL);
    }
    s3_mock_forget(mock);
    memset(there, 'c', sizeof there - 1);
    snprintf(line, sizeof line, "Location: http://127.0.0.1:1/%.8300s\r\n", there);
    s3_mock_on(mock, "/bucket/key", -1,
               (s3_mock_reply){.status = 302, .headers = line, .body = ""});
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE && strstr(r.error.message, "longer than 8 KiB"));
    s3_mock_on(
        mock, "/bucket/odd", -1,
        (s3_mock_reply){.status = 302, .headers = "Location: http://\xc3\xa4/\r\n", .body = ""});
    CHECK(ask(&r, "odd", 0, 0) == DLP_ERR_REMOTE && strstr(r.error.message, "Location"));
    gone();
    s3_mock_stop(other);
    down();
}

/* Servers that say much of an object may still be read. */
/* The page of a network that wants a login: somewhere else, without anything of an object. */
static void redirects__to_a_page__no_object(void) {
    s3_mock *portal = s3_mock_start();
    char where[200];
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    portal->request_id = "";
    s3_mock_on(portal, NULL, -1, (s3_mock_reply){.body = "<html>log in</html>"});
    snprintf(where, sizeof where, "Location: http://127.0.0.1:%d/login\r\n", portal->port);
    s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 302, .headers = where, .body = ""});
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE);
    CHECK(strstr(r.error.message, "no server of objects") != NULL);
    CHECK(s3_mock_count(portal, NULL) == 1);
    gone();
    s3_mock_stop(mock);
    s3_mock_stop(portal);
}

/* Anybody may redirect plain HTTP to a page of their own. What comes there is an object only if all
   is told that a server of objects tells. */
static void redirects__by_plain_http__to_objects_only(void) {
    static const struct {
        const char *id, *etag, *type, *query, *if_match;
        int good;
    } cases[] = {{"", "\"page\"", "", "", NULL, 0},
                 {NULL, "", "", "", NULL, 0},
                 {NULL, "\"page\"", "Content-Type: text/html; charset=utf-8\r\n", "", NULL, 0},
                 {NULL, "\"page\"", "", "", NULL, 1},
                 {"", "\"page\"", "x-ms-request-id: 7\r\n", "", NULL, 1},
                 {"", "\"page\"", "", "", "\"page\"", 1},
                 {"", "\"page\"", "", "", "\"other\"", 0},
                 {"", "\"page\"", "", "?a=b&X-Amz-Signature=c", NULL, 1},
                 {"", "\"page\"", "", "?a=b&sig=c", NULL, 1},
                 {"", "", "", "?a=b&sig=c", NULL, 0},
                 {"", "\"page\"", "", "?to=http%3A%2F%2Fh%2F%3FSignature%3Dc", NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s3_mock *portal = s3_mock_start();
        char where[200], page[100];
        dlp_s3_request r = {
            .bucket = "bucket", .key = "key", .body = page, .if_match = cases[i].if_match};
        dlp_s3_desc d;
        up();
        d = usual();
        r.capacity = sizeof page;
        portal->request_id = cases[i].id;
        s3_mock_on(
            portal, NULL, -1,
            (s3_mock_reply){.body = "hello", .etag = cases[i].etag, .headers = cases[i].type});
        snprintf(where, sizeof where, "Location: %s/login%s\r\n", portal->url, cases[i].query);
        s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 302, .headers = where, .body = ""});
        connect_to(&d);
        CHECK((dlp_s3_do(io, &r) == DLP_OK) == cases[i].good);
        if ((r.code == DLP_OK) != cases[i].good) printf("  %zu: %s\n", i, r.error.message);
        CHECK(cases[i].good || strstr(words(&r.error), cases[i].if_match ? "" : "no server of"));
        CHECK(s3_mock_count(portal, NULL) == 1);
        gone();
        s3_mock_stop(mock);
        s3_mock_stop(portal);
    }
}

/* An object of unknown size is asked for in parts, which this server does not like. */
static void no_ranges(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    if (q->has_range) r->s3_code = user;
}

static void unknown_size__400_to_the_range__asked_whole(void) {
    static char codes[][32] = {"InvalidRequest", "InvalidArgument", "ExpiredToken"};
    char agent[64];
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.part_bytes = 65536;
    mock->script = no_ranges;
    s3_mock_object(mock, "/bucket/key", 300000);
    connect_to(&d);
    for (int i = 0; i < 3; i++) {
        mock->user = codes[i];
        CHECK(ask(&r, "key", 0, 0) == (i < 2 ? DLP_OK : DLP_ERR_REMOTE));
        CHECK(i == 2 || whole("/bucket/key", &r, 0, 300000));
    }
    CHECK(s3_mock_count(mock, NULL) == 5);
    for (int i = 0; i < 5; i++) {
        s3_mock_request q = seen(i);
        CHECK(s3_mock_header(&q, "User-Agent", agent, sizeof agent));
        CHECK(strncmp(agent, "dlpipe/", 7) == 0);
    }
    r = (dlp_s3_request){.bucket = "..", .key = "key", .body = room, .capacity = 10};
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_ARG && strstr(r.error.message, "bucket"));
    down();
}

static void head__many_lines__read(void) {
    static char lines[500 * 40];
    dlp_s3_request r;
    dlp_s3_desc d;
    size_t n = 0;
    up();
    d = usual();
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, "x-amz-meta-%d: value %d\r\n", i, i);
    s3_mock_object(mock, "/bucket/key", 3000);
    s3_mock_on(mock, "/bucket/key", -1, (s3_mock_reply){.headers = lines});
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 3000));
    CHECK(ask(&r, "key", 10, 20) == DLP_OK && stats().retries == 0);
    down();
}

static int tokens_given;

static void give_tokens(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static char text[2][300];
    int k = tokens_given++ > 0;
    (void)user;
    (void)q;
    snprintf(text[k], sizeof text[k],
             "{\"AccessKeyId\":\"AKIDEXAMPLE\",\"SecretAccessKey\":\"" SECRET
             "\",\"Token\":\"" TOKEN "%d\",\"Expiration\":\"2099-01-01T00:00:00Z\"}",
             k);
    r->body = text[k];
}

static void want_second_token(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    char token[100];
    (void)user;
    if (s3_mock_header(q, "x-amz-security-token", token, sizeof token) &&
        strcmp(token, TOKEN "1") == 0)
        return;
    r->status = 400;
    r->s3_code = "ExpiredToken";
}

static void token__expired__fetched_again_once_for_all(void) {
    s3_mock *container = s3_mock_start();
    dlp_s3_request r[6], *done[6];
    dlp_s3_desc d;
    char url[100], body[6][100];
    int over = 0;
    up();
    d = usual();
    d.access_key = d.secret_key = d.session_token = NULL;
    tokens_given = 0;
    container->script = give_tokens;
    mock->script = want_second_token;
    s3_mock_object(mock, "/bucket/key", 100);
    snprintf(url, sizeof url, "%s/credentials", container->url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    connect_to(&d);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 6; i++) {
        r[i].bucket = "bucket";
        r[i].key = "key";
        r[i].body = body[i];
        r[i].capacity = sizeof body[i];
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    while (over < 6) {
        int n = dlp_s3_reap(io, done, 6, 20000);
        CHECK(n > 0);
        if (n <= 0) break;
        over += n;
    }
    for (int i = 0; i < 6; i++)
        CHECK(r[i].code == DLP_OK && s3_mock_check("/bucket/key", 0, body[i], 100));
    CHECK(s3_mock_count(container, NULL) == 2);
    CHECK(s3_mock_count(mock, NULL) <= 12);
    down();
    s3_mock_stop(container);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

/* The token that the first part is let in with is none for the others, which go out together. */
static void want_second_token_later(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    if (q->nth_of_path > 0) want_second_token(user, q, r);
}

static void parts__refused_together__counted_once(void) {
    static char malformed[] = "4h", moved[] = "3h";
    s3_mock *container = s3_mock_start(), *other = s3_mock_start();
    char url[100], location[128], etag[96];
    for (int i = 0; i < 4; i++) { /* token, region twice, redirect */
        dlp_s3_request r;
        dlp_s3_desc d;
        s3_mock *holder;
        up();
        d = usual();
        d.part_bytes = 65536;
        holder = i == 3 ? other : mock;
        s3_mock_object(holder, "/bucket/key", 1000001);
        snprintf(etag, sizeof etag, "\"%016" PRIx64 "\"", s3_mock_seed("/bucket/key", 0));
        snprintf(url, sizeof url, "%s/credentials", container->url);
        snprintf(location, sizeof location, "Location: %s/bucket/key\r\n", other->url);
        container->script = give_tokens;
        tokens_given = 0;
        if (i == 0) {
            setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
            d.access_key = d.secret_key = d.session_token = NULL;
            mock->script = want_second_token_later;
        } else if (i < 3) {
            mock->script = strict_region;
            mock->user = i == 1 ? malformed : moved;
        } else {
            s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 307, .headers = location});
        }
        connect_to(&d);
        memset(room, 0xEE, sizeof room);
        r = (dlp_s3_request){.bucket = "bucket", .key = "key", .body = room, .length = 1000001};
        r.capacity = sizeof room;
        r.if_match = i == 0 ? NULL : etag;
        CHECK(dlp_s3_do(io, &r) == DLP_OK && whole("/bucket/key", &r, 0, 1000001));
        if (r.code != DLP_OK) printf("%d: %s\n", i, words(&r.error));
        gone();
        s3_mock_stop(mock);
        unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    }
    s3_mock_stop(container);
    s3_mock_stop(other);
}

/* ---- bodies that are not what was asked for ---- */

static void wrong__bodies__never_delivered(void) {
    static const s3_mock_reply kinds[] = {
        {.shift = 7},                            /* other bytes, and it says so */
        {.ignore_range = 1},                     /* 200 and all */
        {.content_range = "bytes 100-148/1000"}, /* one fewer */
        {.content_range = "bytes 100-150/1000"},
        {.content_range = "bytes 99-148/1000"},
        {.status = 206,
         .content_range = "bytes 99-149/1000",
         .chunk = 60,
         .body = "012345678901234567890123456789012345678901234567890"},
        {.content_range = "bytes 100-149/120"}, /* of a shorter object */
        {.content_range = "bytes 149-100/1000"},
        {.content_range = "bytes */1000"},
        {.content_range = "pages 100-149/1000"},
        {.content_range = ""},
        {.content_length = 49},
        {.content_length = -1},
        {.content_length = -2, .close = 1, .cut = S3_MOCK_CLOSE, .cut_at = 20, .cut_in_body = 1},
        {.status = 206, .body = "less than fifty bytes"},
        {.status = 200, .body = "01234567890123456789012345678901234567890123456789"},
        {.status = 204, .body = ""},
        {.raw = "HTTP/1.1 206 OK\r\nContent-Length: 50\r\nContent-Length: 51\r\n\r\n", .close = 1},
        {.status = 200, .body = "to the end of the connection", .content_length = -2, .http10 = 1},
        {.raw = "SSH-2.0-OpenSSH_9.2\r\n", .close = 1},
    };
    const int cut = 13; /* each time, but what came was right: 20, 20, 10 bytes */
    dlp_s3_request r;
    dlp_s3_desc d;
    char key[32], path[64];
    up();
    d = usual();
    connect_to(&d);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        snprintf(key, sizeof key, "key%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        s3_mock_object(mock, path, 1000);
        s3_mock_on(mock, path, -1, kinds[i]);
        if (ask(&r, key, 100, 50) == DLP_OK) CHECK(i == cut && whole(path, &r, 0, 50));
    }
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) { /* the first time only */
        snprintf(key, sizeof key, "luck%d", i);
        snprintf(path, sizeof path, "/bucket/%s", key);
        s3_mock_object(mock, path, 1000);
        s3_mock_on(mock, path, 0, kinds[i]);
        if (ask(&r, key, 100, 50) == DLP_OK) {
            CHECK(whole(path, &r, 0, 50));
            continue;
        }
        CHECK(i == 16 || r.error.http_status == 204);
    }
    s3_mock_on(mock, "/bucket/endless", -1, /* whole, or cut? */
               (s3_mock_reply){.body = "to the end", .content_length = -2, .http10 = 1});
    CHECK(ask(&r, "endless", 0, 0) == DLP_ERR_LENGTH);
    s3_mock_object(mock, "/bucket/unmarked", 1000); /* the mark of the end is missing, no byte is */
    s3_mock_on(mock, "/bucket/unmarked", -1,
               (s3_mock_reply){.chunk = 10, .cut = S3_MOCK_CLOSE, .cut_at = 75, .cut_in_body = 1});
    CHECK(ask(&r, "unmarked", 100, 50) == DLP_OK && whole("/bucket/unmarked", &r, 0, 50));
    CHECK(s3_mock_count(mock, "/bucket/unmarked") == 1);
    down();
}

/* Google's server, with an object that is stored as gzip: "stored" has the bytes, 1,000 bytes of
   text what that decompresses to. "eager" is stored plain, and encoded where gzip is accepted.
   user: what makes it not heed Accept-Encoding. */
static void like_google(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static char text[1000];
    char accept[64];
    int eager = strstr(q->path, "eager") != NULL, plain = eager || strstr(q->path, "plain");
    memset(text, 't', sizeof text);
    r->headers = plain ? "x-goog-stored-content-encoding: identity\r\n"
                       : "x-goog-stored-content-encoding: gzip\r\nContent-Encoding: gzip\r\n";
    s3_mock_header(q, "Accept-Encoding", accept, sizeof accept);
    if (eager && strstr(accept, "gzip"))
        r->headers = "x-goog-stored-content-encoding: identity\r\nContent-Encoding: gzip\r\n";
    if (plain || (strstr(accept, "gzip") && !user)) return;
    r->headers = "x-goog-stored-content-encoding: gzip\r\nx-goog-stored-content-length: 400\r\n"
                 "Warning: 214 UploadServer gunzipped\r\n";
    r->body = text;
    r->body_bytes = q->has_range ? 100 : sizeof text;
    r->chunk = q->has_range ? 0 : 300;
    r->status = q->has_range ? 206 : 200;
    r->content_range = q->has_range ? "bytes 0-99/1000" : NULL;
}

static void stored_as_gzip__comes_as_stored_and_is_asked_for_once(void) {
    static char heedless[] = "";
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    mock->script = like_google;
    s3_mock_object(mock, "/bucket/key", 400);
    s3_mock_object(mock, "/bucket/plain", 400);
    s3_mock_object(mock, "/bucket/eager", 400);
    connect_to(&d);
    CHECK(ask(&r, "plain", 0, 0) == DLP_OK && !strstr(seen(0).head, "Accept-Encoding"));
    s3_mock_forget(mock);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 400));
    CHECK(ask(&r, "key", 0, 100) == DLP_OK && whole("/bucket/key", &r, 0, 100));
    CHECK(ask(&r, "key", 300, 0) == DLP_OK && whole("/bucket/key", &r, 0, 100));
    CHECK(s3_mock_count(mock, NULL) == 4); /* the first one told how this server is */
    dlp_s3_io_close(io);
    CHECK(dlp_s3_io_open(&io, s3, NULL) == DLP_OK); /* all threads and processes know it */
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && s3_mock_count(mock, NULL) == 5);
    CHECK(ask(&r, "eager", 0, 0) == DLP_OK && whole("/bucket/eager", &r, 0, 400));
    CHECK(s3_mock_count(mock, "/bucket/eager") == 2);
    r = (dlp_s3_request){.method = DLP_S3_HEAD, .bucket = "bucket", .key = "key"};
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.object_bytes == 400);
    CHECK(ask(&r, "plain", 0, 0) == DLP_OK && s3_mock_count(mock, "/bucket/plain") == 1);
    gone();
    s3_mock_stop(mock);
    up();
    mock->script = like_google;
    mock->user = heedless;
    d.endpoint = mock->url;
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 2);
    CHECK(strstr(r.error.message, "stored with a Content-Encoding") != NULL);
    CHECK(ask(&r, "key", 0, 100) == DLP_ERR_REMOTE);
    down();
}

/* The mark of a body's end does not come, or is damaged: no byte of it is missing. */
static void chunks__end_late_or_damaged__nothing_asked_behind_it(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    d.stall_timeout_ms = 200;
    connect_to(&d);
    s3_mock_object(mock, "/bucket/late", 1000);
    s3_mock_on(mock, "/bucket/late", -1,
               (s3_mock_reply){.chunk = 10, .cut = S3_MOCK_HANG, .cut_at = 75, .cut_in_body = 1});
    CHECK(ask(&r, "late", 100, 50) == DLP_OK && whole("/bucket/late", &r, 0, 50));
    CHECK(s3_mock_count(mock, "/bucket/late") == 1);
    s3_mock_object(mock, "/bucket/odd", 1000);
    s3_mock_on(mock, "/bucket/odd", 0, (s3_mock_reply){.chunk = 10, .trailer = "no colon\r\n"});
    CHECK(ask(&r, "odd", 100, 50) == DLP_OK && whole("/bucket/odd", &r, 0, 50));
    for (int i = 0; i < s3_mock_count(mock, NULL); i++) CHECK(seen(i).first <= seen(i).last);
    down();
}

static void length__more_than_room__told(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    up();
    d = usual();
    s3_mock_object(mock, "/bucket/key", 1000);
    s3_mock_object(mock, "/bucket/empty", 0);
    connect_to(&d);
    memset(room, 0x55, sizeof room);
    r = (dlp_s3_request){.bucket = "bucket", .key = "key", .body = room, .capacity = 999};
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_LENGTH && r.object_bytes == 1000);
    words(&r.error);
    CHECK(room[999] == 0x55 && s3_mock_count(mock, NULL) == 1);
    CHECK(ask(&r, "key", 900, 101) < 0); /* more than there is */
    CHECK(ask(&r, "key", 1000, 1) < 0);
    CHECK(ask(&r, "key", 1000, 0) <= 0);
    CHECK(ask(&r, "key", 999, 1) == DLP_OK && whole("/bucket/key", &r, 0, 1));
    CHECK(ask(&r, "key", 990, 0) == DLP_OK && whole("/bucket/key", &r, 0, 10));
    CHECK(ask(&r, "empty", 0, 0) == DLP_OK && r.received == 0);
    r = (dlp_s3_request){.bucket = "bucket", .key = "empty", .body = NULL, .capacity = 0};
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.received == 0);
    r = (dlp_s3_request){.bucket = "bucket", .key = "key", .body = room, .capacity = 1000};
    CHECK(dlp_s3_do(io, &r) == DLP_OK && whole("/bucket/key", &r, 0, 1000));
    CHECK(stats().retries == 0);
    down();
}

static void parts__one_fails__the_rest_stands(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    int n, if_match = 0;
    up();
    d = usual();
    d.part_bytes = 65536;
    s3_mock_object(mock, "/bucket/key", 1000001);
    s3_mock_on(mock, "/bucket/key", 5, (s3_mock_reply){.status = 500});
    s3_mock_on(mock, "/bucket/key", 9,
               (s3_mock_reply){.cut = S3_MOCK_RESET, .cut_at = 3000, .cut_in_body = 1});
    s3_mock_object(mock, "/bucket/moving", 1000001);
    for (int i = 0; i < 6; i++)
        s3_mock_on(mock, "/bucket/moving", i, (s3_mock_reply){.version = 1});
    s3_mock_on(mock, "/bucket/moving", -1, (s3_mock_reply){.version = 2});
    connect_to(&d);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 1000001));
    n = s3_mock_count(mock, "/bucket/key");
    CHECK(n == 16 + 2 && stats().retries == 2);
    for (int i = 0; i < n; i++) if_match += seen(i).if_match[0] != '\0';
    CHECK(if_match == n - 1);
    CHECK(r.object_bytes == 1000001);
    CHECK(ask(&r, "moving", 0, 0) == DLP_OK && whole("/bucket/moving", &r, 2, 1000001));
    s3_mock_on(mock, "/bucket/bad", 7, (s3_mock_reply){.status = 403, .s3_code = "AccessDenied"});
    s3_mock_object(mock, "/bucket/bad", 1000001);
    CHECK(ask(&r, "bad", 0, 0) == DLP_ERR_REMOTE && r.error.http_status == 403);
    CHECK(ask(&r, "key", 0, 0) == DLP_OK && whole("/bucket/key", &r, 0, 1000001));
    CHECK(s3_mock_count(mock, "/bucket/key") == n + 16);
    down();
}

static void bounds__requests_and_bytes__full(void) {
    dlp_s3_request r[6], *done[6];
    dlp_s3_desc d;
    int n = 0;
    up();
    d = usual();
    d.max_requests = 4;
    mock->default_bytes = 100;
    connect_to(&d);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 6; i++) {
        r[i].bucket = "bucket";
        r[i].key = "key";
        r[i].body = room + 1000 * i;
        r[i].capacity = 100;
        CHECK(dlp_s3_submit(io, &r[i]) == (i < 4 ? DLP_OK : DLP_FULL));
    }
    while (n < 4) n += dlp_s3_reap(io, done, 6, 1000);
    CHECK(n == 4 && dlp_s3_reap(io, done, 6, 0) == 0);
    CHECK(s3_mock_connections(mock) <= 4);
    agree();
    gone();
    s3_mock_forget(mock);
    d.max_requests = 64;
    d.max_bytes = 250;
    connect_to(&d);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 3; i++) {
        r[i].bucket = "bucket";
        r[i].key = "key";
        r[i].body = room + 1000 * i;
        r[i].capacity = r[i].length = 100;
        CHECK(dlp_s3_submit(io, &r[i]) == (i < 2 ? DLP_OK : DLP_FULL));
    }
    for (n = 0; n < 2;) n += dlp_s3_reap(io, done, 6, 1000);
    CHECK(ask(&r[0], "big", 0, 0) == DLP_OK); /* more than max_bytes, alone */
    gone();
    down();
}

/* ---- requester pays ---- */

/* A bucket of which who asks pays: to others it is closed. */
static void wants_payer(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    char payer[32], signers[400];
    s3_mock_header(q, "x-amz-request-payer", payer, sizeof payer);
    s3_mock_header(q, "Authorization", signers, sizeof signers);
    if (strcmp(payer, "requester") == 0 && strstr(signers, ";x-amz-request-payer;")) return;
    if (strstr(q->query, "x-amz-request-payer=requester") && strstr(q->query, "X-Amz-Signature="))
        return;
    r->status = 403;
    r->s3_code = user;
    if (!user) r->body = "";
}

static void requester_pays__by_field_or_environment__signed(void) {
    static char denied[] = "AccessDenied";
    dlp_s3_request r;
    dlp_s3_error err;
    dlp_s3_desc d;
    up();
    mock->script = wants_payer;
    mock->user = denied;
    s3_mock_object(mock, "/bucket/key", 100);
    for (int how = 0; how < 5; how++) { /* not at all, bare; field, presigned, environment */
        d = usual();
        d.requester_pays = how == 2 || how == 3;
        d.presign = how == 3;
        mock->user = how == 1 ? NULL : denied;
        if (how == 4) setenv("AWS_REQUEST_PAYER", "requester", 1);
        connect_to(&d);
        CHECK(ask(&r, "key", 0, 0) == (how < 2 ? DLP_ERR_REMOTE : DLP_OK));
        CHECK((strstr(r.error.message, "requester_pays") != NULL) == (how < 2));
        gone();
    }
    setenv("AWS_REQUEST_PAYER", "me", 1);
    d = usual();
    CHECK(dlp_s3_open(&s3, &d, &err) == DLP_ERR_ARG && strstr(err.message, "AWS_REQUEST_PAYER"));
    unsetenv("AWS_REQUEST_PAYER");
    d = (dlp_s3_desc){.endpoint = mock->url, .anonymous = 1, .requester_pays = 1};
    CHECK(dlp_s3_open(&s3, &d, &err) == DLP_ERR_ARG && strstr(err.message, "requester_pays"));
    s3_mock_stop(mock);
}

/* ---- throttling, hedges ---- */

static void throttle_for_a_while(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    r->delay_ms = 4;
    if (q->nth >= *(int *)user) return;
    r->status = 503;
    r->s3_code = "SlowDown";
}

enum { MANY = 64 };

/* Get n objects with all in flight at once that the client allows. Returns those that are right. */
static int get_many(int n, uint64_t bytes, int late_after, int *most_late) {
    static dlp_s3_request r[1000];
    static char key[1000][16];
    dlp_s3_request *done[32];
    char *body = malloc((size_t)n * bytes), path[40];
    int begun = 0, over = 0, k, good = 0;
    if (!body) abort();
    memset(r, 0, sizeof r);
    while (over < n) {
        for (; begun < n; begun++) {
            snprintf(key[begun], sizeof key[begun], "m%d", begun);
            r[begun].bucket = "bucket";
            r[begun].key = key[begun];
            r[begun].body = body + (size_t)begun * bytes;
            r[begun].capacity = bytes;
            if (dlp_s3_submit(io, &r[begun]) != DLP_OK) break;
        }
        if (most_late && s3_mock_count(mock, NULL) < late_after) s3_mock_most(mock);
        k = dlp_s3_reap(io, done, 32, most_late ? 2 : 20000);
        CHECK(k > 0 || (k == 0 && most_late));
        if (k < 0) break;
        over += k;
    }
    if (most_late) *most_late = s3_mock_most(mock);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/bucket/%.16s", key[i]);
        if (r[i].code != DLP_OK)
            words(&r[i].error);
        else
            good += r[i].received == bytes && s3_mock_check(path, 0, r[i].body, bytes);
    }
    free(body);
    return good;
}

static void throttled__slow_down__fewer_in_flight(void) {
    dlp_s3_desc d;
    int until = 300, most = 0;
    up();
    d = usual();
    d.max_attempts = 100;
    d.retry_tokens = -1;
    d.max_requests = MANY;
    mock->script = throttle_for_a_while;
    mock->user = &until;
    mock->default_bytes = 10;
    connect_to(&d);
    CHECK(get_many(MANY, 10, 250, &most) == MANY);
    CHECK_SOON(most <= MANY / 2);
    CHECK(stats().throttled == 300);
    down();
}

static void slow_twice(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    r->delay_ms = 1;
    if (strcmp(q->path, "/bucket/slow") == 0 && q->nth_of_path < 1) r->delay_ms = 2000;
    if (strcmp(q->path, "/bucket/slower") == 0 && q->nth_of_path < 2) r->delay_ms = 2000;
    if (strcmp(q->path, "/bucket/once") == 0) r->delay_ms = 150;
    if (strcmp(q->path, "/bucket/worse") != 0 || q->nth_of_path > 2) return;
    if (q->nth_of_path == 2)
        r->status = 503;
    else
        r->delay_ms = 2000;
}

static void hedge__slow_first_byte__answered_by_the_second(void) {
    dlp_s3_request r;
    dlp_s3_desc d;
    uint64_t began;
    dlp_s3_stats before;
    up();
    d = usual();
    d.hedge_percent = 5;
    d.max_requests = 16;
    mock->script = slow_twice;
    mock->default_bytes = 1000;
    connect_to(&d);
    CHECK(get_many(200, 1000, 0, NULL) == 200);
    before = stats();
    began = test_now_ns();
    CHECK(ask(&r, "slow", 0, 1000) == DLP_OK && whole("/bucket/slow", &r, 0, 1000));
    CHECK_SOON(ms_since(began) < 1500 && s3_mock_count(mock, "/bucket/slow") >= 2);
    began = test_now_ns();
    CHECK(ask(&r, "slower", 0, 1000) == DLP_OK && whole("/bucket/slower", &r, 0, 1000));
    CHECK_SOON(ms_since(began) < 1500 && s3_mock_count(mock, "/bucket/slower") == 3);
    began = test_now_ns();
    CHECK(ask(&r, "worse", 0, 1000) == DLP_OK && whole("/bucket/worse", &r, 0, 1000));
    CHECK_SOON(ms_since(began) < 1500 && s3_mock_count(mock, "/bucket/worse") == 4);
    CHECK_SOON(stats().hedges >= before.hedges + 6 && stats().hedges_won >= before.hedges_won + 3);
    CHECK_SOON(stats().retries == 0);
    CHECK(stats().timeouts == 0);
    memset(&r, 0, sizeof r);
    r = (dlp_s3_request){
        .bucket = "bucket", .key = "once", .body = room, .capacity = 1000, .no_hedge = 1};
    CHECK(dlp_s3_do(io, &r) == DLP_OK && s3_mock_count(mock, "/bucket/once") == 1);
    down();
}

static void at_once(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    r->delay_ms = 1;
    if (q->path[strlen("/bucket/")] == 'a') r->together = *(int *)user;
}

static int under_way(void) { /* requests that the server has not answered yet */
    int n = 0;
    for (int i = 0; i < s3_mock_count(mock, NULL); i++) n += seen(i).over_ns == 0;
    return n;
}

/* While the caller was doing something else, the answers came: they are looked at first. */
static void hedge__caller_was_away__not_for_what_came(void) {
    enum { AWAY = 4 };
    dlp_s3_request r[AWAY], *done[AWAY];
    char key[AWAY][8];
    uint64_t hedges;
    int n = 0, away = AWAY;
    dlp_s3_desc d;
    up();
    d = usual();
    d.hedge_percent = 5;
    d.max_requests = 16;
    mock->script = at_once;
    mock->user = &away;
    mock->default_bytes = 1000;
    connect_to(&d);
    CHECK(get_many(200, 1000, 0, NULL) == 200);
    s3_mock_most(mock);
    memset(r, 0, sizeof r);
    for (int i = 0; i < AWAY; i++) {
        snprintf(key[i], sizeof key[i], "a%d", i);
        r[i] = (dlp_s3_request){
            .bucket = "bucket", .key = key[i], .body = room + 1000 * i, .capacity = 1000};
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int i = 0; i < 20000 && s3_mock_count(mock, NULL) < 200 + AWAY; i++)
        n += dlp_s3_reap(io, done, AWAY, 1);
    for (int i = 0; i < 4000 && under_way(); i++) poll(NULL, 0, 5);
    poll(NULL, 0, 100);
    hedges = stats().hedges;
    while (n < AWAY) n += dlp_s3_reap(io, done, AWAY, 20000);
    CHECK(stats().hedges == hedges);
    for (int i = 0; i < AWAY; i++) CHECK(r[i].code == DLP_OK);
    down();
}

static void slow_among_503s(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    r->delay_ms = 1;
    if (strcmp(q->path, "/bucket/slow") == 0 && q->nth_of_path == 0) r->delay_ms = 3000;
    if (strncmp(q->path, "/bucket/bad", 11) == 0) r->status = 503;
}

static void hedge__throttled__comes_when_that_is_over(void) {
    dlp_s3_request slow, r, *done = NULL;
    dlp_s3_desc d;
    uint64_t began, last_503 = 0, hedged = 0;
    char body[1000], key[16];
    up();
    d = usual();
    d.hedge_percent = 5;
    d.backoff_ms = 50;
    d.max_attempts = 1;
    mock->script = slow_among_503s;
    mock->default_bytes = 1000;
    connect_to(&d);
    CHECK(get_many(100, 1000, 0, NULL) == 100);
    for (int i = 0; i < 24; i++) { /* more than a quarter of what counts */
        snprintf(key, sizeof key, "bad%d", i);
        r = (dlp_s3_request){.method = DLP_S3_PUT, .bucket = "bucket", .key = key, .body = body};
        CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE);
    }
    slow = (dlp_s3_request){.bucket = "bucket", .key = "slow", .body = body, .capacity = 1000};
    began = test_now_ns();
    CHECK(dlp_s3_submit(io, &slow) == DLP_OK);
    CHECK(dlp_s3_reap(io, &done, 1, 20000) == 1 && done == &slow && slow.code == DLP_OK);
    CHECK_SOON(ms_since(began) < 2500 && s3_mock_count(mock, "/bucket/slow") >= 2);
    for (int k = 0; k < s3_mock_count(mock, NULL); k++) {
        s3_mock_request q = seen(k);
        if (strncmp(q.path, "/bucket/bad", 11) == 0) last_503 = q.came_ns;
        if (strcmp(q.path, "/bucket/slow") == 0 && q.nth_of_path == 1) hedged = q.came_ns;
    }
    CHECK(hedged == 0 || hedged - last_503 > 199 * MS);
    down();
}

static void late_after_60(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    r->delay_ms = q->nth < 60 ? 1 : 40;
}

static void hedge__all_slow__within_its_share(void) {
    dlp_s3_desc d;
    up();
    d = usual();
    d.hedge_percent = 5;
    d.max_requests = 32;
    mock->script = late_after_60;
    mock->default_bytes = 100;
    connect_to(&d);
    CHECK(get_many(200, 100, 0, NULL) == 200);
    CHECK(stats().hedges <= 200 * 5 / 100 + 4);
    CHECK(stats().requests == 200 + stats().hedges + stats().retries);
    down();
}

/* ---- all of it at once ---- */

/* SplitMix64. */
static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void faulty(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    double x = (double)(random_next(user) >> 11) / 9007199254740992.0;
    double y = (double)(random_next(user) >> 11) / 9007199254740992.0;
    (void)q;
    r->delay_ms = x < 0.02 ? 1500 : 10;
    if (y < 0.02) {
        r->cut = S3_MOCK_RESET;
        r->cut_at = 0;
    } else if (y < 0.07) {
        r->status = 503;
        r->s3_code = "SlowDown";
    }
}

/* Objects that only an answer 1.5 s late brought. */
static int waited_for(void) {
    int n = s3_mock_count(mock, NULL), waited = 0;
    for (int i = 0; i < n; i++) {
        s3_mock_request late = seen(i), other;
        bool answered = late.over_ns && late.over_ns - late.came_ns < 1400 * MS;
        for (int k = 0; k < n && !answered; k++) {
            if (!s3_mock_seen(mock, k, &other)) break;
            answered = strcmp(other.path, late.path) == 0 && other.body_sent >= 100000 &&
                       other.over_ns - other.came_ns < 1400 * MS;
        }
        waited += !answered;
    }
    return waited;
}

/* Returns whether it was as soon over as it should be. */
static int faulty_run(uint64_t random) {
    dlp_s3_desc d;
    uint64_t began;
    int n = getenv("SHORT") ? 200 : 600;
    double ms, each;
    int waited;
    up();
    d = usual();
    d.max_attempts = d.backoff_ms = d.backoff_max_ms = d.hedge_percent = 0;
    d.log = NULL;
    mock->script = faulty;
    mock->user = &random;
    mock->default_bytes = 100000;
    connect_to(&d);
    began = test_now_ns();
    CHECK(get_many(n, 100000, 0, NULL) == n);
    ms = ms_since(began);
    each = (double)stats().requests / n;
    printf("faulty: %d objects of 100 KB in %.0f ms, %.3f requests each, %d retries, %d hedges, "
           "%d of them won\n",
           n, ms, each, (int)stats().retries, (int)stats().hedges, (int)stats().hedges_won);
    waited = waited_for();
    down();
    return getenv("SHORT") || ((ms < 1000 || waited == 0) && each <= 1.15);
}

static void faulty__600_objects__all_right_soon_and_few_requests(void) {
    int good = 0;
    for (uint64_t i = 0; i < 5 && !good; i++) /* again, where others keep the machine busy */
        good = faulty_run(88172645463325252u + i);
    CHECK(good);
}

/* ---- what was waited for on the side ---- */

static s3_mock *side_mock;
static dlp_s3 *side_s3;
static dlp_s3_io *side_io;
static dlp_s3_request side;
static char side_body[100];

static void retry_after__begun(void) {
    dlp_s3_desc d;
    dlp_s3_request *done;
    up();
    side_mock = mock;
    d = usual();
    s3_mock_object(mock, "/bucket/key", 100);
    s3_mock_on(mock, "/bucket/key", 0,
               (s3_mock_reply){.status = 503, .headers = "Retry-After: 1\r\n", .body = ""});
    connect_to(&d);
    side_s3 = s3;
    side_io = io;
    side = (dlp_s3_request){.bucket = "bucket", .key = "key", .body = side_body, .capacity = 100};
    CHECK(dlp_s3_submit(io, &side) == DLP_OK);
    CHECK(dlp_s3_reap(io, &done, 1, 50) == 0);
}

static void retry_after__seconds__waited_at_least(void) {
    dlp_s3_request *done = NULL;
    mock = side_mock;
    s3 = side_s3;
    io = side_io;
    CHECK(dlp_s3_reap(io, &done, 1, 20000) == 1 && done == &side && side.code == DLP_OK);
    CHECK(seen(1).came_ns - seen(0).came_ns >= 1000 * MS);
    down();
}

static void secrets__never_said(void) {
    static const char *const secrets[] = {SECRET, TOKEN,
                                          "Signature=", "Credential=", "aws4_request"};
    said[said_n] = '\0';
    CHECK(said_n > 1000);
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        CHECK(strstr(said, secrets[i]) == NULL);
}

int main(void) {
    setbuf(stdout, NULL);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_REQUEST_PAYER");
    retry_after__begun();
    test_tries(timeout__connect__tried_again_and_told);
    test_tries(timeout__first_byte__sent_again);
    test_tries(timeout__stall__goes_on_where_it_stopped);
    test_tries(timeout__request__ends_it);
    test_tries(timeout__progress__a_request_that_gets_on_goes_on);
    test_tries(timeout__progress__the_same_bytes_again_are_none);
    test_tries(timeout__progress__put_that_is_not_taken_ends);
    test_tries(trickle__one_connection__goes_on_over_another);
    trickle__all_connections__soon_left_alone();
    answers__may_pass__tried_again();
    answers__final__told_once_with_all_names();
    test_tries(attempts__gone__told);
    test_tries(tokens__gone__waits_the_longest);
    idle__closed_by_the_server__replayed_free();
    idle__closed_before__found_out();
    truncated__at_every_byte__goes_on_there();
    truncated__again_and_again__progress_counts();
    changed__between_attempts__never_mixed();
    changed__etag_comes_or_goes__never_mixed();
    changed__long_etag__never_mixed();
    changed__encoding_version_or_time__never_mixed();
    changed__time_between_parts__never_mixed();
    version__asked_for__with_ranges_and_held_to_it();
    if_match__not_held__refused();
    if_match__now_empty__refused();
    changed__shorter_416__from_the_beginning();
    resume__answered_200__goes_on_behind();
    clock__wrong__corrected_once();
    clock__wrong_for_many__corrected_for_all();
    region__wrong__asked_in_the_right_one_from_then_on();
    redirects__followed__but_not_for_ever();
    redirects__long_ones__followed_with_their_query();
    redirects__to_a_page__no_object();
    unknown_size__400_to_the_range__asked_whole();
    head__many_lines__read();
    token__expired__fetched_again_once_for_all();
    parts__refused_together__counted_once();
    wrong__bodies__never_delivered();
    stored_as_gzip__comes_as_stored_and_is_asked_for_once();
    redirects__by_plain_http__to_objects_only();
    chunks__end_late_or_damaged__nothing_asked_behind_it();
    length__more_than_room__told();
    parts__one_fails__the_rest_stands();
    bounds__requests_and_bytes__full();
    requester_pays__by_field_or_environment__signed();
    test_tries(throttled__slow_down__fewer_in_flight);
    test_tries(hedge__slow_first_byte__answered_by_the_second);
    hedge__caller_was_away__not_for_what_came();
    test_tries(hedge__throttled__comes_when_that_is_over);
    hedge__all_slow__within_its_share();
    faulty__600_objects__all_right_soon_and_few_requests();
    retry_after__seconds__waited_at_least();
    secrets__never_said();
    return test_end("s3_faults");
}
