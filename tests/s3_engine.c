/* Requests in flight in one thread: order, bounds, memory, parts, connections, forks, and what
   happens where memory or system calls fail. A scripted server answers; what goes wrong between it
   and the client is in tests/s3_faults.c. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_s3.h"

#include "s3_mock.h"

static int test_failures, test_checks;

#define CHECK(x) \
    do { \
        test_checks++; \
        if (!(x) && ++test_failures < 30) \
            printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x); \
    } while (0)

/* ---- the rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;

static void say(void *user, const char *line) {
    (void)user;
    if (getenv("LOUD")) printf("  %s\n", line);
}

static dlp_s3_desc usual(void) {
    dlp_s3_desc d = {.endpoint = mock->url, .region = "us-east-1", .access_key = "AKIDEXAMPLE",
                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", .backoff_ms = 1,
                     .backoff_max_ms = 10, .hedge_percent = -1, .log = say};
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
        n = dlp_s3_reap(io, done, 16, 10000);
        CHECK(n > 0);
        if (n <= 0) break;
        for (int i = 0; i < n; i++) {
            char path[40];
            int which = (int)((char (*)[24])done[i]->user - key);
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

int main(void) {
    engine__get__bytes();
    engine__many__all_come();
    printf("s3_engine: %d checks, %d failed\n", test_checks, test_failures);
    return test_failures != 0;
}
