/* The client against a real server, which is in the environment (s3_servers.sh starts them).

   real radosgw | swift | seaweedfs | juicefs | rclone

   Bucket "given" has been filled by tests/servers/s3.py: "parts", an object of several parts; on
   radosgw it is public. What this program puts into "odd" is left for that to look at; the names of
   the keys, each ended by a zero byte, go to the file ODD_KEYS. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <netdb.h>
#include <stdbool.h>
#include <string.h>

/* Names that end so are this machine, as browsers and resolvers have it, but not all libraries. */
static int local_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                             struct addrinfo **out) {
    size_t n = strlen(name);
    bool local = n >= 9 && strcmp(name + n - 9, "localhost") == 0;
    return getaddrinfo(local ? "127.0.0.1" : name, service, hints, out);
}
#define getaddrinfo local_getaddrinfo
#define DLPIPE_IMPLEMENTATION
#define DLPIPE_S3_OPENSSL
#include "../../dlpipe_s3.h"

#include <inttypes.h>

#include "../rig/s3_mock.h"
#include "../rig/s3_proxy.h"

static int failures;
static const char *kind;
static bool swift, rclone;
static bool folders; /* the last three keep objects as files: not all keys, nor all of S3 */
static dlp_s3_error err;

static const char *env(const char *name) { return getenv(name) != NULL ? getenv(name) : ""; }

#define CHECK(what, ...) \
    do { \
        if (!(what)) { \
            char said_[1024]; \
            dlp_s3_error_format(&err, said_, sizeof said_); \
            printf("%s: %s:%d: %s: ", kind, __func__, __LINE__, #what); \
            printf(__VA_ARGS__); \
            printf(" [%s]\n", said_); \
            failures++; \
        } \
    } while (0)

/* A client and its I/O. Not to be had: the end. */
struct user {
    dlp_s3 *s3;
    dlp_s3_io *io;
};

static bool one_by_one; /* a list was not split: the server cannot list from any key on */

static void hear(void *user, const char *line) {
    (void)user;
    one_by_one = one_by_one || strstr(line, "page after page") != NULL;
}

static struct user user_of(const dlp_s3_desc *desc) {
    struct user u = {NULL, NULL};
    dlp_s3_desc d = desc != NULL ? *desc : (dlp_s3_desc){.log = NULL};
    d.log = hear;
    memset(&err, 0, sizeof err);
    if (dlp_s3_open(&u.s3, &d, &err) != DLP_OK || dlp_s3_io_open(&u.io, u.s3, &err) != DLP_OK) {
        printf("no client: %s\n", err.message);
        exit(1);
    }
    return u;
}

static void user_end(struct user *u) {
    dlp_s3_io_close(u->io);
    CHECK(dlp_s3_close(u->s3) == DLP_OK, "close");
}

static int put(struct user *u, const char *bucket, const char *key, const void *body, size_t n) {
    union {
        const void *from;
        void *to;
    } bytes = {body};
    dlp_s3_request r = {
        .method = DLP_S3_PUT, .bucket = bucket, .key = key, .body = bytes.to, .capacity = n};
    int code = dlp_s3_do(u->io, &r);
    err = r.error;
    return code;
}

/* Read a range, or all with length 0. Returns the bytes, or the code of a failure. */
static int64_t get(struct user *u, const char *bucket, const char *key, uint64_t offset,
                   uint64_t length, void *body, size_t n, char etag[72]) {
    dlp_s3_request r = {.bucket = bucket,
                        .key = key,
                        .offset = offset,
                        .length = length,
                        .body = body,
                        .capacity = n};
    int code = dlp_s3_do(u->io, &r);
    err = r.error;
    if (etag != NULL) { memcpy(etag, r.etag, sizeof r.etag); }
    return code == DLP_OK ? (int64_t)r.received : code;
}

/* Is an answer a refusal with this status and code? */
static bool refused(int64_t code, int status, const char *s3_code) {
    return code == DLP_ERR_REMOTE && err.http_status == status && strcmp(err.s3_code, s3_code) == 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static char long_key[1025]; /* the longest, and each of its characters is three in a request */

static const char *const odd_keys[] = {
    "plain",
    "a b",
    "a+b",
    "100%25",
    "%41",
    "a//b",
    "./a",
    "a/./b",
    "a/../b",
    "\xc3\xbcn\xc3\xaf"
    "code \xe6\x97\xa5\xe6\x9c\xac",
    "\xf0\x9f\x90\xa7",
    "quote\"s'",
    "<&amp;>",
    "semi;colon,comma=equals:at@dollar$",
    "question?mark#hash",
    "tab\tand\r\nlines",
    "\x01"
    "control\x1f\x7f",
    "back\\slash|pipe^caret`tick{}[]",
    "/leading",
    "trailing/",
    "tilde~star*(paren)!",
    long_key,
};
enum { N_ODD = sizeof odd_keys / sizeof *odd_keys };

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Is it a file's name as it stands, on systems of all kinds? */
static bool is_file_name(const char *key) {
    for (const char *p = key; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 127 || *p == '/' || *p == '\\') { return false; }
    }
    return strlen(key) < 256;
}

/* Put, list and get them; what is in each is its name. */
static void odd_keys__put__listed_and_read(void) {
    const char *sorted[N_ODD];
    char body[1100];
    int n_odd = 0;
    struct user u = user_of(NULL);
    memset(long_key, '\"', sizeof long_key - 1);
    CHECK(put(&u, "odd", "", NULL, 0) == DLP_OK, "a bucket");
    for (int i = 0; i < N_ODD; i++) {
        if (folders && !is_file_name(odd_keys[i])) { continue; }
        int code = put(&u, "odd", odd_keys[i], odd_keys[i], strlen(odd_keys[i]));
        CHECK(code == DLP_OK, "put '%.40s': %d", odd_keys[i], code);
        sorted[n_odd++] = odd_keys[i];
    }
    qsort(sorted, (size_t)n_odd, sizeof *sorted, by_bytes);

    dlp_s3_list *list = NULL;
    dlp_s3_list_desc desc = {.bucket = "odd", .page = 5};
    dlp_s3_object o;
    int code = dlp_s3_list_open(&list, u.io, &desc, &err), n = 0;
    CHECK(code == DLP_OK, "%d", code);
    while (code == DLP_OK && (code = dlp_s3_list_next(list, &o, &err)) == DLP_OK) {
        CHECK(n < n_odd && strcmp(o.key, sorted[n]) == 0 && o.key_bytes == strlen(o.key) &&
                  o.bytes == o.key_bytes && (rclone || o.etag[0] == '"') &&
                  o.modified_s > 1600000000,
              "listed as number %d: '%.40s', %" PRIu64 " bytes, %s, %" PRId64, n, o.key, o.bytes,
              o.etag, o.modified_s);
        n++;
    }
    CHECK(code == DLP_END && n == n_odd, "%d after %d keys", code, n);
    dlp_s3_list_close(list);

    FILE *f = fopen(env("ODD_KEYS"), "w");
    for (int i = 0; i < n_odd; i++) {
        size_t bytes = strlen(sorted[i]);
        int64_t got = get(&u, "odd", sorted[i], 0, 0, body, sizeof body, NULL);
        CHECK(got == (int64_t)bytes && memcmp(body, sorted[i], bytes) == 0, "got '%.40s': %" PRId64,
              sorted[i], got);
        CHECK(f == NULL || fwrite(sorted[i], bytes + 1, 1, f) == 1, "ODD_KEYS");
    }
    CHECK(f != NULL && fclose(f) == 0, "ODD_KEYS: %s", env("ODD_KEYS"));
    user_end(&u);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Put empty objects n0000 .., or so many in each of the folders d0, d1 .., many at once. */
static void put_many(struct user *u, const char *bucket, int n, int in_folder) {
    enum { AT_ONCE = 64 };
    static dlp_s3_request requests[AT_ONCE];
    static char keys[AT_ONCE][16];
    dlp_s3_request *done[AT_ONCE];
    int begun = 0, over = 0, idle = n < AT_ONCE ? n : AT_ONCE;
    for (int i = 0; i < idle; i++) { done[i] = &requests[i]; }
    while (over < n) {
        for (; idle > 0 && begun < n; begun++) {
            dlp_s3_request *r = done[--idle];
            char *key = keys[r - requests];
            if (in_folder > 0) {
                snprintf(key, sizeof keys[0], "d%d/%04d", begun / in_folder, begun);
            } else {
                snprintf(key, sizeof keys[0], "n%04d", begun);
            }
            *r = (dlp_s3_request){.method = DLP_S3_PUT, .bucket = bucket, .key = key};
            CHECK(dlp_s3_submit(u->io, r) == DLP_OK, "submit %s", key);
        }
        int got = dlp_s3_reap(u->io, done + idle, AT_ONCE - idle, 20000);
        if (got <= 0) {
            CHECK(got > 0, "reap: %d", got);
            return;
        }
        for (int i = 0; i < got; i++) {
            err = done[idle + i]->error;
            CHECK(done[idle + i]->code == DLP_OK, "put %s", done[idle + i]->key);
        }
        idle += got;
        over += got;
    }
}

/* List into a line of "key,key/,": those that are prefixes end so. Returns how many there are. */
static int list_into(struct user *u, const dlp_s3_list_desc *desc, char *line, size_t size) {
    dlp_s3_list *list = NULL;
    dlp_s3_object o;
    size_t at = 0;
    int n = 0, code = dlp_s3_list_open(&list, u->io, desc, &err);
    line[0] = '\0';
    while (code == DLP_OK && (code = dlp_s3_list_next(list, &o, &err)) == DLP_OK) {
        at += (size_t)snprintf(line + at, at < size ? size - at : 0, "%s%s,", o.key,
                               o.is_prefix ? "*" : "");
        at = at < size ? at : size - 1;
        n++;
    }
    dlp_s3_list_close(list);
    return code == DLP_END ? n : code;
}

static void lists__pages_prefixes_levels__whole_and_in_order(void) {
    static char line[32768], whole[32768];
    struct user u = user_of(NULL);
    int n = swift || folders ? 30 : 1105;
    CHECK(put(&u, "lists", "", NULL, 0) == DLP_OK, "a bucket");
    put_many(&u, "lists", n, 0);
    for (int i = 0, at = 0; i < n; i++) {
        at += snprintf(whole + at, sizeof whole - (size_t)at, "n%04d,", i);
    }
    dlp_s3_list_desc all = {.bucket = "lists"};
    CHECK(list_into(&u, &all, line, sizeof line) == n && strcmp(line, whole) == 0, "%.60s", line);
    dlp_s3_list_desc pages = {.bucket = "lists", .page = n == 30 ? 7 : 500};
    CHECK(list_into(&u, &pages, line, sizeof line) == n && strcmp(line, whole) == 0, "%.60s", line);
    for (int at_once = 2; at_once <= 32; at_once *= 4) {
        dlp_s3_list_desc few = {.bucket = "lists", .page = 3, .requests = at_once};
        CHECK(list_into(&u, &few, line, sizeof line) == n && strcmp(line, whole) == 0, "%.60s",
              line);
    }
    CHECK(!one_by_one, "a list that was split");
    dlp_s3_list_desc later = {.bucket = "lists", .start_after = "n0024", .prefix = "n002"};
    CHECK(list_into(&u, &later, line, sizeof line) == 5 &&
              strcmp(line, "n0025,n0026,n0027,n0028,n0029,") == 0,
          "%.60s", line);
    CHECK(put(&u, "lists", "a/one", "1", 1) == DLP_OK &&
              put(&u, "lists", "a/b c/two", "2", 1) == DLP_OK &&
              put(&u, "lists", "b", "", 0) == DLP_OK,
          "three more");
    dlp_s3_list_desc level = {.bucket = "lists", .delimiter = "/", .prefix = "a/"};
    CHECK(list_into(&u, &level, line, sizeof line) == 2 && strcmp(line, "a/b c/*,a/one,") == 0,
          "%.60s", line);
    dlp_s3_list_desc none = {.bucket = "lists", .prefix = "zzz"};
    CHECK(list_into(&u, &none, line, sizeof line) == 0, "%.60s", line);
    dlp_s3_list_desc nowhere = {.bucket = "nowhere"};
    CHECK(refused(list_into(&u, &nowhere, line, sizeof line), 404, "NoSuchBucket"), "%.60s", line);
    user_end(&u);
}

/* Folders, and splits of a list that are made up: as page after page. */
static void lists__folders_side_by_side__as_page_after_page(void) {
    static char line[32768], whole[32768];
    struct user u = user_of(NULL);
    int n = swift ? 60 : 120;
    CHECK(put(&u, "folders", "", NULL, 0) == DLP_OK, "a bucket");
    put_many(&u, "folders", n, n / 12);
    for (int page = 3; page <= 12; page *= 4) {
        dlp_s3_list_desc d = {.bucket = "folders", .page = page, .requests = 1};
        CHECK(list_into(&u, &d, whole, sizeof whole) == n, "%.60s", whole);
        for (d.requests = 0; d.requests <= 32; d.requests += 16) {
            CHECK(list_into(&u, &d, line, sizeof line) == n && strcmp(line, whole) == 0,
                  "page %d, %d at once: %.60s", page, d.requests, line);
        }
    }
    CHECK(!one_by_one, "a list that was split");
    user_end(&u);
}

/* ---- objects --------------------------------------------------------------------------------- */

enum { PART = 5 << 20, PARTS_BYTES = 2 * PART + 77777 };
static unsigned char body[PARTS_BYTES + 8];

static bool is_pattern(uint64_t offset, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word = ((uint64_t)7 << 32) + (offset + i) / 8;
        if (body[i] != (unsigned char)(word >> (offset + i) % 8 * 8)) { return false; }
    }
    return true;
}

static void parts__whole_and_ranges__as_they_were_sent(void) {
    char etag[72] = "";
    struct user u = user_of(&(dlp_s3_desc){.part_bytes = 1 << 20});
    int64_t got = get(&u, "given", "parts", 0, 0, body, sizeof body, etag);
    CHECK(got == PARTS_BYTES && is_pattern(0, PARTS_BYTES), "got %" PRId64, got);
    CHECK((rclone || strchr(etag, '-') != NULL) && etag[0] == '"', "its etag is %s", etag);
    static const uint64_t ranges[][2] = {
        {0, 1},        {PART - 1, 2}, {PART, 100}, {PARTS_BYTES - 1, 1}, {PART - 1000, PART + 2000},
        {12345, 67890}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        got = get(&u, "given", "parts", ranges[i][0], ranges[i][1], body, sizeof body, NULL);
        CHECK(got == (int64_t)ranges[i][1] && is_pattern(ranges[i][0], ranges[i][1]),
              "range %zu: %" PRId64, i, got);
    }
    got = get(&u, "given", "parts", PARTS_BYTES - 10, 0, body, sizeof body, NULL);
    CHECK(got == 10 && is_pattern(PARTS_BYTES - 10, 10), "its end: %" PRId64, got);
    got = get(&u, "given", "parts", PARTS_BYTES - 10, 11, body, sizeof body, NULL);
    CHECK(got < 0, "past its end: %" PRId64, got);
    got = get(&u, "given", "parts", PARTS_BYTES, 1, body, sizeof body, NULL);
    CHECK(got < 0, "behind its end: %" PRId64, got);
    user_end(&u);
}

static void objects__empty_missing_changed__told_apart(void) {
    char etag[72] = "";
    struct user u = user_of(NULL);
    CHECK(put(&u, "lists", "empty", NULL, 0) == DLP_OK, "an empty object");
    CHECK(get(&u, "lists", "empty", 0, 0, body, sizeof body, etag) == 0, "an empty object");
    dlp_s3_request r = {.method = DLP_S3_HEAD, .bucket = "given", .key = "parts"};
    CHECK(dlp_s3_do(u.io, &r) == DLP_OK && r.object_bytes == PARTS_BYTES &&
              (rclone || strchr(r.etag, '-')),
          "HEAD: %" PRIu64 " bytes, etag %s", r.object_bytes, r.etag);
    r = (dlp_s3_request){.method = DLP_S3_HEAD, .bucket = "lists", .key = "empty"};
    CHECK(dlp_s3_do(u.io, &r) == DLP_OK && r.object_bytes == 0, "HEAD: %" PRIu64, r.object_bytes);
    r = (dlp_s3_request){.method = DLP_S3_HEAD, .bucket = "lists", .key = "missing"};
    CHECK(dlp_s3_do(u.io, &r) == DLP_ERR_REMOTE && r.error.http_status == 404, "HEAD");
    CHECK(refused(get(&u, "lists", "missing", 0, 0, body, sizeof body, NULL), 404, "NoSuchKey"),
          "a missing key");
    CHECK(strcmp(err.bucket, "lists") == 0 && strcmp(err.key, "missing") == 0 &&
              err.request_id[0] != '\0',
          "its error names %s, %s, %s", err.bucket, err.key, err.request_id);
    CHECK(refused(get(&u, "nowhere", "x", 0, 0, body, sizeof body, NULL), 404, "NoSuchBucket"),
          "a missing bucket");
    r = (dlp_s3_request){.bucket = "given",
                         .key = "parts",
                         .if_match = "\"other\"",
                         .length = 9,
                         .body = body,
                         .capacity = 9};
    int code = dlp_s3_do(u.io, &r);
    CHECK(code == DLP_ERR_REMOTE && r.error.http_status == (rclone ? 200 : 412), "if-match: %d, %d",
          code, r.error.http_status); /* rclone takes no heed of it */
    r.if_match = etag;
    CHECK(get(&u, "given", "parts", 0, 1, body, 1, etag) == 1 && dlp_s3_do(u.io, &r) == DLP_OK,
          "if-match: %s", etag);
    user_end(&u);
}

/* ---- who may --------------------------------------------------------------------------------- */

static void signatures__wrong__refused(void) {
    struct user u = user_of(&(dlp_s3_desc){.access_key = env("AWS_ACCESS_KEY_ID"),
                                           .secret_key = "wJalrXUtnFEMI/K7MDENG/no"});
    CHECK(refused(get(&u, "given", "parts", 0, 10, body, 10, NULL), 403, "SignatureDoesNotMatch"),
          "a wrong secret");
    CHECK(strstr(err.message, "K7MDENG") == NULL, "the secret is told");
    user_end(&u);
    u = user_of(&(dlp_s3_desc){.access_key = "AKIDEXAMPLE", .secret_key = "EXAMPLEKEY"});
    CHECK(get(&u, "given", "parts", 0, 10, body, 10, NULL) == DLP_ERR_REMOTE &&
              err.http_status == 403,
          "a wrong name: %s", err.s3_code);
    user_end(&u);
}

static void signatures__each_form__accepted(void) {
    struct user u = user_of(&(dlp_s3_desc){.presign = 1});
    CHECK(get(&u, "given", "parts", 5, 10, body, 10, NULL) == 10 && is_pattern(5, 10), "presigned");
    user_end(&u);
    u = user_of(&(dlp_s3_desc){.unsigned_payload = 1});
    CHECK(put(&u, "lists", "not hashed", "bytes", 5) == DLP_OK, "an unsigned payload");
    CHECK(get(&u, "lists", "not hashed", 0, 0, body, 10, NULL) == 5, "an unsigned payload");
    user_end(&u);
}

/* Swift names its region in the refusal; the client asks again with that one. */
static void region__wrong__refused_once(void) {
    struct user u = user_of(&(dlp_s3_desc){.region = "eu-west-7"});
    dlp_s3_stats stats;
    int64_t got = get(&u, "given", "parts", 5, 10, body, 10, NULL);
    dlp_s3_stats_get(u.s3, &stats);
    CHECK(got == 10 && stats.requests == 2, "%" PRId64 ", %" PRIu64 " requests", got,
          stats.requests);
    CHECK(get(&u, "given", "parts", 5, 10, body, 10, NULL) == 10, "again");
    dlp_s3_stats_get(u.s3, &stats);
    CHECK(stats.requests == 3, "%" PRIu64 " requests", stats.requests);
    user_end(&u);
}

static void anonymous__public_bucket__read(void) {
    struct user u = user_of(&(dlp_s3_desc){.anonymous = 1});
    char line[256];
    CHECK(get(&u, "given", "parts", 5, 10, body, 10, NULL) == 10 && is_pattern(5, 10), "public");
    CHECK(list_into(&u, &(dlp_s3_list_desc){.bucket = "given"}, line, sizeof line) == 1, "list");
    CHECK(refused(get(&u, "odd", "plain", 0, 0, body, 10, NULL), 403, "AccessDenied"), "private");
    user_end(&u);
}

/* ---- names and TLS --------------------------------------------------------------------------- */

static const char *port_of(const char *url) { return strrchr(url, ':') + 1; }

static void virtual_host__names_of_buckets__served(void) {
    char url[64];
    snprintf(url, sizeof url, "http://s3.localhost:%s", port_of(env("AWS_ENDPOINT_URL")));
    struct user u = user_of(&(dlp_s3_desc){.endpoint = url, .style = DLP_S3_STYLE_VIRTUAL});
    char line[64];
    CHECK(get(&u, "given", "parts", 5, 10, body, 10, NULL) == 10 && is_pattern(5, 10), "a range");
    CHECK(get(&u, "odd", "a/../b", 0, 0, body, 10, NULL) == 6, "an odd key");
    CHECK(get(&u, "odd", "/leading", 0, 0, body, 10, NULL) == 8, "an odd key");
    CHECK(list_into(&u, &(dlp_s3_list_desc){.bucket = "given"}, line, sizeof line) == 1, "list");
    user_end(&u);
}

/* https to a port by a name. Returns what get does. */
static int64_t get_by_tls(const char *name, const char *port, const char *ca, int style) {
    char url[64];
    snprintf(url, sizeof url, "https://%s:%s", name, port);
    struct user u = user_of(&(dlp_s3_desc){.endpoint = url, .ca_file = ca, .style = style});
    int64_t got = get(&u, "given", "parts", PART - 100, 1000, body, 1000, NULL);
    if (got == 1000 && !is_pattern(PART - 100, 1000)) { got = -1000; }
    user_end(&u);
    return got;
}

static void tls__own_authority__verified(void) {
    const char *ca = env("CA_FILE"), *port = env("S3_TLS_PORT_1");
    int64_t got = get_by_tls("s3.localhost", port, ca, DLP_S3_STYLE_PATH);
    CHECK(got == 1000, "%" PRId64, got);
    got = get_by_tls("s3.localhost", port, ca, DLP_S3_STYLE_VIRTUAL);
    CHECK(got == 1000, "a name of a bucket: %" PRId64, got);
    got = get_by_tls("127.0.0.1", port, ca, DLP_S3_STYLE_AUTO);
    CHECK(got == 1000, "an address: %" PRId64, got);
    got = get_by_tls("other.localhost", port, ca, DLP_S3_STYLE_PATH);
    CHECK(got < 0 && strstr(err.message, "host") != NULL && err.attempts <= 1,
          "another name: %" PRId64 ", %d attempts", got, err.attempts);
    got = get_by_tls("s3.localhost", port, NULL, DLP_S3_STYLE_PATH);
    CHECK(got < 0 && err.attempts <= 1, "an unknown authority: %" PRId64 ", %d attempts", got,
          err.attempts);
    got = get_by_tls("s3.localhost", env("S3_TLS_PORT_2"), ca, DLP_S3_STYLE_PATH);
    CHECK(got < 0 && strstr(err.message, "expired") != NULL && err.attempts <= 1,
          "an expired certificate: %" PRId64 ", %d attempts", got, err.attempts);
}

/* By a proxy: what is encrypted through a tunnel, what is not with the whole URL. */
static void proxy__tls_and_plain__as_without(void) {
    proxy *by = proxy_start(atoi(env("S3_TLS_PORT_1")));
    char url[64];
    struct user u;
    snprintf(url, sizeof url, "http://me:word@127.0.0.1:%d", by->port);
    u = user_of(&(dlp_s3_desc){.endpoint = "https://s3.localhost",
                               .ca_file = env("CA_FILE"),
                               .style = DLP_S3_STYLE_PATH,
                               .proxy = url});
    for (int i = 0; i < 3; i++) {
        CHECK(get(&u, "given", "parts", PART - 100, 1000, body, 1000, NULL) == 1000 &&
                  is_pattern(PART - 100, 1000),
              "through a tunnel");
    }
    CHECK(by->tunnels == 1 && by->connections == 1, "%d tunnels", by->tunnels);
    user_end(&u);
    proxy_stop(by);
    by = proxy_start(atoi(strrchr(env("AWS_ENDPOINT_URL"), ':') + 1));
    snprintf(url, sizeof url, "http://127.0.0.1:%d", by->port);
    u = user_of(&(dlp_s3_desc){.proxy = url});
    CHECK(get(&u, "given", "parts", PART - 100, 1000, body, 1000, NULL) == 1000 &&
              is_pattern(PART - 100, 1000),
          "with the whole URL");
    CHECK(by->tunnels == 0 && by->connections == 1, "%d connections", by->connections);
    user_end(&u);
    proxy_stop(by);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fputs("real radosgw | swift | seaweedfs | juicefs | rclone\n", stderr);
        return 2;
    }
    kind = argv[1];
    swift = strcmp(kind, "swift") == 0;
    rclone = strcmp(kind, "rclone") == 0;
    folders = !swift && strcmp(kind, "radosgw") != 0;
    unsetenv("AWS_CA_BUNDLE"); /* its own authority is no one's else */
    odd_keys__put__listed_and_read();
    lists__pages_prefixes_levels__whole_and_in_order();
    lists__folders_side_by_side__as_page_after_page();
    parts__whole_and_ranges__as_they_were_sent();
    objects__empty_missing_changed__told_apart();
    signatures__wrong__refused();
    signatures__each_form__accepted();
    if (!folders) { virtual_host__names_of_buckets__served(); }
    if (swift) {
        region__wrong__refused_once();
    } else if (!folders) {
        anonymous__public_bucket__read();
        tls__own_authority__verified();
        proxy__tls_and_plain__as_without();
    }
    return failures == 0 ? 0 : 1;
}
