/* Checksums of bodies: what the server tells of the whole object is compared with what came, in one
   piece or in parts, once more over another connection, and else not asked for. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"

enum { CRC32C = 1, CRC64NVME, CRC32, GOOGLE = 4 };

static const char *const names[] = {"", "CRC32C", "CRC64NVME", "CRC32", "CRC32C"};

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;
static dlp_s3_error error;
static char room[1 << 20], headers[200];

/* How the server answers: its head has headers; damaged: which answers have other bytes. */
static struct {
    int damaged;           /* so many answers, from the first on; -1: all */
    uint64_t damaged_from; /* only of ranges from here on */
    int by_part;           /* a range is told its own sum, as AWS does */
    s3_mock_reply usual;
} serving;

static void tell_part(const s3_mock_request *q);

static void script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    *r = serving.usual;
    r->headers = headers;
    if (serving.by_part) tell_part(q);
    r->etag = "\"one\"";
    if (serving.damaged == 0 || (serving.damaged_from && q->first < serving.damaged_from)) return;
    if (serving.damaged > 0) serving.damaged--;
    r->version = 2;
}

static const char *base64(uint64_t value, int bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[2][16];
    static int turn;
    char *at = text[turn = !turn];
    memset(at, 0, 16);
    for (int bit = 8 * bytes - 6; bit > -6; bit -= 6)
        *at++ = digits[(bit >= 0 ? value >> bit : value << -bit) & 63];
    while ((at - text[turn]) % 4) *at++ = '=';
    return text[turn];
}

static uint64_t sum_of(int kind, const char *path, uint64_t bytes) {
    s3_mock_fill(path, 0, 0, room, (size_t)bytes);
    return inside_s3_crc(kind, 0, room, (size_t)bytes);
}

enum { RIGHT = 0, WRONG, COMPOSITE, NO_TYPE, GARBAGE };

static void tell(int kind, const char *path, uint64_t bytes, int how) {
    uint64_t sum = sum_of(kind == GOOGLE ? CRC32C : kind, path, bytes) ^ (how != RIGHT);
    static const char *const headers_of[] = {
        "", "x-amz-checksum-crc32c: ", "x-amz-checksum-crc64nvme: ", "x-amz-checksum-crc32: ",
        "x-goog-hash: md5=AAAA,CRC32C="};
    const char *text = base64(sum, kind == CRC64NVME ? 8 : 4);
    if (kind == GOOGLE) {
        snprintf(headers, sizeof headers, "%s%s%s\r\nx-goog-hash: md5=BBBB\r\n", headers_of[kind],
                 text, how == GARBAGE ? "-2" : "");
        return;
    }
    snprintf(headers, sizeof headers, "%s%s%s\r\n%s", headers_of[kind], text,
             how == GARBAGE ? "-2" : "",
             how == COMPOSITE ? "x-amz-checksum-type: COMPOSITE\r\n"
             : how == NO_TYPE ? ""
                              : "x-amz-checksum-type: FULL_OBJECT\r\n");
}

static void tell_part(const s3_mock_request *q) {
    static char part[1 << 17];
    uint64_t end = q->last < 299999 ? q->last + 1 : 300000, n = end - q->first;
    s3_mock_fill(q->path, 0, q->first, part, (size_t)n);
    snprintf(headers, sizeof headers,
             "x-amz-checksum-crc64nvme: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n",
             base64(inside_s3_crc(CRC64NVME, 0, part, (size_t)n), 8));
}

static void up(const dlp_s3_desc *more) {
    dlp_s3_desc d = more ? *more : (dlp_s3_desc){.checksums = 1};
    memset(&serving, 0, sizeof serving);
    mock = s3_mock_start();
    mock->script = script;
    s3_mock_object(mock, "/bucket/key", 300000);
    s3_mock_object(mock, "/bucket/small", 5000);
    s3_mock_object(mock, "/bucket/empty", 0);
    d.endpoint = mock->url;
    d.access_key = "AKIDEXAMPLE";
    d.secret_key = "secret";
    d.hedge_percent = -1;
    d.backoff_ms = 1;
    CHECK(dlp_s3_open(&s3, &d, &error) == DLP_OK);
    CHECK(s3 && dlp_s3_io_open(&io, s3, &error) == DLP_OK);
    if (!io) exit(1);
}

static void down(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
    io = NULL;
}

static int ask(dlp_s3_request *r, const char *key) {
    memset(r, 0, sizeof *r);
    memset(room, 0xEE, sizeof room);
    s3_mock_forget(mock);
    r->bucket = "bucket";
    r->key = key;
    r->body = room;
    r->capacity = sizeof room;
    return dlp_s3_do(io, r);
}

static bool right(const char *path, uint64_t bytes) {
    return s3_mock_check_version(path, 0, 0, room, bytes);
}

static s3_mock_request seen(int i) {
    static s3_mock_request q;
    memset(&q, 0, sizeof q);
    CHECK(s3_mock_seen(mock, i, &q));
    return q;
}

static uint64_t retries(void) {
    dlp_s3_stats s;
    dlp_s3_stats_get(s3, &s);
    return s.retries;
}

static void sum__right__one_request(void) {
    dlp_s3_request r;
    up(NULL);
    for (int kind = CRC32C; kind <= GOOGLE; kind++) {
        s3_mock_request q;
        tell(kind, "/bucket/small", 5000, RIGHT);
        CHECK(ask(&r, "small") == DLP_OK && right("/bucket/small", 5000));
        CHECK(s3_mock_count(mock, NULL) == 1);
        q = seen(0);
        CHECK(strstr(q.head, "\r\nx-amz-checksum-mode: ENABLED\r\n"));
        CHECK(strstr(q.head, ";x-amz-checksum-mode;x-amz-content-sha256;"));
    }
    tell(CRC64NVME, "/bucket/empty", 0, RIGHT);
    CHECK(ask(&r, "empty") == DLP_OK && r.received == 0);
    tell(CRC64NVME, "/bucket/empty", 0, WRONG);
    CHECK(ask(&r, "empty") == DLP_ERR_REMOTE);
    down();
}

static void sum__wrong__asked_twice_then_an_error(void) {
    char line[1024];
    dlp_s3_request r;
    up(NULL);
    for (int kind = CRC32C; kind <= GOOGLE; kind++) {
        int first;
        tell(kind, "/bucket/small", 5000, WRONG);
        CHECK(ask(&r, "small") == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 2);
        first = seen(0).connection;
        CHECK(seen(1).connection != first);
        dlp_s3_error_format(&r.error, line, sizeof line);
        CHECK(strstr(line, "s3://bucket/small") && strstr(line, names[kind]));
        CHECK(r.error.attempts == 2);
    }
    CHECK(retries() == GOOGLE);
    down();
}

static void body__damaged_once__comes_right_from_another_connection(void) {
    dlp_s3_request r;
    int first;
    up(NULL);
    tell(CRC64NVME, "/bucket/small", 5000, RIGHT);
    CHECK(ask(&r, "small") == DLP_OK);
    serving.damaged = 1;
    CHECK(ask(&r, "small") == DLP_OK && right("/bucket/small", 5000) && r.received == 5000);
    CHECK(s3_mock_count(mock, NULL) == 2 && retries() == 1);
    first = seen(0).connection;
    CHECK(seen(1).connection != first);
    serving.damaged = -1;
    CHECK(ask(&r, "small") == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 2);
    down();
}

static void parts__damaged_or_not__sums_put_together(void) {
    dlp_s3_desc d = {.checksums = 1, .part_bytes = 65536};
    dlp_s3_request r;
    up(&d);
    tell(CRC64NVME, "/bucket/key", 300000, RIGHT);
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    CHECK(s3_mock_count(mock, NULL) == 5);
    tell(CRC32C, "/bucket/key", 300000, RIGHT);
    serving.damaged_from = 131072; /* one of the five */
    serving.damaged = 1;
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000) && r.received == 300000);
    CHECK(s3_mock_count(mock, NULL) == 10);
    serving.damaged = -1;
    CHECK(ask(&r, "key") == DLP_ERR_REMOTE && strstr(r.error.message, "CRC32C"));
    tell(GOOGLE, "/bucket/key", 300000, RIGHT); /* of the whole object, with each part */
    serving.damaged = 0;
    CHECK(ask(&r, "key") == DLP_OK && s3_mock_count(mock, NULL) == 5);
    serving.damaged = 1;
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000) && r.received == 300000);
    CHECK(s3_mock_count(mock, NULL) == 10);
    serving.damaged = -1;
    CHECK(ask(&r, "key") == DLP_ERR_REMOTE && strstr(r.error.message, "CRC32C"));
    down();
}

/* A part's own sum, under the same name as the object's. */
static void parts__told_their_own_sums__each_compared(void) {
    dlp_s3_desc d = {.checksums = 1, .part_bytes = 65536};
    dlp_s3_request r;
    up(&d);
    serving.by_part = 1;
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    CHECK(s3_mock_count(mock, NULL) == 5);
    serving.damaged_from = 65536;
    serving.damaged = 1;
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    CHECK(s3_mock_count(mock, NULL) == 10);
    serving.damaged = -1;
    CHECK(ask(&r, "key") == DLP_ERR_REMOTE && strstr(r.error.message, "CRC64NVME"));
    serving.damaged = 0;
    serving.usual = (s3_mock_reply){.cut = S3_MOCK_CLOSE, .cut_in_body = 1, .cut_at = 40000};
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    CHECK(s3_mock_count(mock, NULL) > 8);
    down();
}

/* Bodies that break off and go on, in chunks, slowly, and into pieces of which some are thrown
   away. */
static void body__in_any_way__summed_once(void) {
    static char a[70001], b[29999];
    dlp_s3_piece pieces[4] = {{a, sizeof a}, {NULL, 100000}, {b, sizeof b}, {NULL, 100000}};
    dlp_s3_request r;
    up(NULL);
    tell(CRC64NVME, "/bucket/key", 300000, RIGHT);
    serving.usual = (s3_mock_reply){.chunk = 1000};
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    serving.usual = (s3_mock_reply){.trickle = 37777, .trickle_ms = 1};
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    serving.usual = (s3_mock_reply){.cut = S3_MOCK_CLOSE, .cut_in_body = 1, .cut_at = 100001};
    CHECK(ask(&r, "key") == DLP_OK && right("/bucket/key", 300000));
    CHECK(s3_mock_count(mock, NULL) == 3 && retries() == 2);
    serving.usual = (s3_mock_reply){0};
    memset(&r, 0, sizeof r);
    r.bucket = "bucket", r.key = "key", r.length = 300000, r.pieces = pieces, r.n_pieces = 4;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && retries() == 2);
    CHECK(s3_mock_check_version("/bucket/key", 0, 0, a, sizeof a));
    CHECK(s3_mock_check_version("/bucket/key", 0, 170001, b, sizeof b));
    serving.damaged = 1;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && retries() == 3);
    CHECK(s3_mock_check_version("/bucket/key", 0, 170001, b, sizeof b));
    down();
}

/* What is no sum of the whole object, and what was not asked for. */
static void sum__of_something_else__not_compared(void) {
    static const int others[] = {COMPOSITE, NO_TYPE, GARBAGE};
    dlp_s3_desc off = {.checksums = -1};
    dlp_s3_request r;
    up(NULL);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tell(CRC64NVME, "/bucket/small", 5000, others[i]);
        CHECK(ask(&r, "small") == DLP_OK && s3_mock_count(mock, NULL) == 1);
    }
    tell(GOOGLE, "/bucket/small", 5000, GARBAGE);
    CHECK(ask(&r, "small") == DLP_OK && s3_mock_count(mock, NULL) == 1);
    tell(CRC64NVME, "/bucket/small", 5000, WRONG);
    memset(&r, 0, sizeof r);
    r.bucket = "bucket", r.key = "small", r.body = room, r.capacity = sizeof room;
    r.offset = 10;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.received == 4990);
    r.offset = 0, r.length = 4999;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && r.received == 4999);
    r.length = 5000; /* all of it again */
    CHECK(dlp_s3_do(io, &r) == DLP_ERR_REMOTE);
    memset(&r, 0, sizeof r);
    s3_mock_forget(mock);
    r.bucket = "bucket", r.key = "small", r.method = DLP_S3_HEAD;
    CHECK(dlp_s3_do(io, &r) == DLP_OK && !strstr(seen(0).head, "checksum"));
    down();
    up(&off);
    tell(CRC64NVME, "/bucket/small", 5000, WRONG);
    CHECK(ask(&r, "small") == DLP_OK && !strstr(seen(0).head, "checksum"));
    down();
}

static int said;

static void say(void *user, const char *line) {
    (void)user;
    said += strstr(line, "without checksums") != NULL;
}

static void refuses(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    if (!strstr(q->head, "x-amz-checksum-mode")) return;
    r->status = *(int *)user;
    r->body =
        "<Error><Code>InvalidArgument</Code><Message>Unsupported header 'x-amz-checksum-mode' "
        "received</Message></Error>";
}

/* A server that refuses the header: left out, unless the desc insists on it. */
static void server__refuses_to_be_asked__asked_without(void) {
    for (int how = 0; how < 3; how++) {
        dlp_s3_desc d = {.checksums = how == 2, .log = say};
        int status = how ? 400 : 501;
        dlp_s3_request r;
        up(&d);
        mock->script = refuses;
        mock->user = &status;
        said = 0;
        if (how == 2) {
            CHECK(ask(&r, "small") == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 1);
        } else if (inside_s3_crc_way(CRC32C, -1) == 2) {
            CHECK(ask(&r, "small") == DLP_OK && s3_mock_count(mock, NULL) == 2);
            CHECK(said == 1 && right("/bucket/small", 5000));
            CHECK(ask(&r, "small") == DLP_OK && s3_mock_count(mock, NULL) == 1);
            tell(GOOGLE, "/bucket/small", 5000, WRONG); /* told without being asked for */
            mock->script = script;
            CHECK(ask(&r, "small") == DLP_ERR_REMOTE && s3_mock_count(mock, NULL) == 2);
        }
        down();
    }
}

static void sum__by_environment_and_presigned__asked_for(void) {
    dlp_s3_desc d = {.checksums = 1, .presign = 1}, none = {0};
    dlp_s3_request r;
    up(&d);
    tell(CRC64NVME, "/bucket/small", 5000, RIGHT);
    CHECK(ask(&r, "small") == DLP_OK);
    CHECK(strstr(seen(0).query, "&x-amz-checksum-mode=ENABLED&"));
    CHECK(!strstr(seen(0).head, "\r\nx-amz-checksum-mode"));
    down();
    setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "WHEN_REQUIRED", 1);
    up(&none);
    tell(CRC64NVME, "/bucket/small", 5000, WRONG);
    CHECK(ask(&r, "small") == DLP_OK && !strstr(seen(0).head, "checksum"));
    down();
    setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported", 1);
    up(&none);
    CHECK(ask(&r, "small") == (inside_s3_crc_way(CRC32C, -1) == 2 ? DLP_ERR_REMOTE : DLP_OK));
    down();
    setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "never", 1);
    CHECK(dlp_s3_open(&s3, &none, &error) == DLP_ERR_ARG);
    CHECK(strstr(error.message, "AWS_RESPONSE_CHECKSUM_VALIDATION"));
    unsetenv("AWS_RESPONSE_CHECKSUM_VALIDATION");
    none.checksums = 2;
    none.anonymous = 1;
    CHECK(dlp_s3_open(&s3, &none, &error) == DLP_ERR_ARG && strstr(error.message, "checksums"));
}

int main(void) {
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_CONFIG_FILE", "/nowhere", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere", 1);
    sum__right__one_request();
    sum__wrong__asked_twice_then_an_error();
    body__damaged_once__comes_right_from_another_connection();
    parts__damaged_or_not__sums_put_together();
    parts__told_their_own_sums__each_compared();
    body__in_any_way__summed_once();
    sum__of_something_else__not_compared();
    server__refuses_to_be_asked__asked_without();
    sum__by_environment_and_presigned__asked_for();
    return test_end("s3_sums");
}
