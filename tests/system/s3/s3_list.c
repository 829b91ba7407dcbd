/* Lists: every key once and in order whatever the pages are; what is asked for; pages that are too
   large, cut, malformed or hostile. A scripted server lists a bucket of its own. */
/* own: hook: each allocation may fail, and lists are held */
#define _GNU_SOURCE
#include <sched.h> /* musl declares calloc there */
#include <stdlib.h>

/* The fault_at-th allocation of the library fails. */
static int fault_at, fault_calls;
static int fault(void) { return fault_at > 0 && ++fault_calls == fault_at; }
#define calloc(...) (fault() ? NULL : calloc(__VA_ARGS__))
#define malloc(...) (fault() ? NULL : malloc(__VA_ARGS__))
#define realloc(...) (fault() ? NULL : realloc(__VA_ARGS__))
#define DLPI_S3_LIST_EMPTY 20
#define DLPI_S3_LIST_HOLD hold
static unsigned long long hold = 256u << 20;

#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_s3.h"

#undef calloc
#undef malloc
#undef realloc
#include "../../rig/s3_mock.h"

#include "../../rig/check.h"

/* ---- A server that lists ---- */

typedef struct bucket {
    const char *const *keys; /* in order */
    int n;
    int plain;          /* 1: it does not know encoding-type */
    int prefixes_first; /* 1: common prefixes stand before objects */
    int together;       /* 1: all common prefixes in one element */
    int chunked;
    size_t pad;  /* bytes of a comment in each page */
    int asked;   /* requests so far */
    int fail_at; /* the request of this number, from 1, is answered by fail */
    s3_mock_reply fail;
    char *page;
    size_t size, bytes;
} bucket;

static void put(bucket *b, const char *text, size_t n) {
    if (b->bytes + n + 1 > b->size) {
        b->size = 2 * (b->bytes + n + 1);
        b->page = realloc(b->page, b->size);
        if (!b->page) abort();
    }
    memcpy(b->page + b->bytes, text, n);
    b->bytes += n;
    b->page[b->bytes] = '\0';
}
static void puts_to(bucket *b, const char *text) { put(b, text, strlen(text)); }

/* A key as the server writes it: escaped as AWS does ('+' for a space), or as XML. */
static void put_key(bucket *b, const char *tag, const char *key, size_t n) {
    char text[8];
    puts_to(b, "<"), puts_to(b, tag), puts_to(b, ">");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)key[i];
        if (!b->plain && c == ' ')
            puts_to(b, "+");
        else if (!b->plain && c != '/' && !dlpi_s3_uri_plain(c))
            snprintf(text, sizeof text, "%%%02x", c), puts_to(b, text);
        else if (c < ' ' || c == '<' || c == '&' || c == '>' || c == '"')
            snprintf(text, sizeof text, c % 2 ? "&#%d;" : "&#x%x;", c), puts_to(b, text);
        else
            put(b, key + i, 1);
    }
    puts_to(b, "</"), puts_to(b, tag), puts_to(b, ">");
}

/* A parameter's value, unescaped; "" where there is none. */
static void param(const char *query, const char *name, char *to, size_t size) {
    size_t n = strlen(name);
    to[0] = '\0';
    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&')
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            dlpi_s3_uri_decode(to, size, at + n + 1, strcspn(at + n + 1, "&"), false);
}

/* The length of the common prefix of a key, or 0. */
static size_t common(const char *key, const char *prefix, const char *delimiter) {
    size_t n = strlen(prefix);
    const char *at;
    if (!delimiter[0] || strncmp(key, prefix, n) != 0) return 0;
    at = strstr(key + n, delimiter);
    return at ? (size_t)(at - key) + strlen(delimiter) : 0;
}

/* Write one page: as S3, objects and common prefixes count alike, and go on behind the last. */
static void list_page(bucket *b, const char *query) {
    char prefix[1100], delimiter[64], after[1100], token[1100], value[64], object[200];
    char dots[4096];
    const char *last = "";
    size_t last_n = 0;
    int most, given = 0, more = 0;
    param(query, "prefix", prefix, sizeof prefix);
    param(query, "delimiter", delimiter, sizeof delimiter);
    param(query, "start-after", after, sizeof after);
    param(query, "continuation-token", token, sizeof token);
    param(query, "max-keys", value, sizeof value);
    most = atoi(value);
    if (token[0]) snprintf(after, sizeof after, "%s", token + 5); /* "+/=t:" is before it */
    b->bytes = 0;
    puts_to(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3."
               "amazonaws.com/doc/2006-03-01/\"><Name>b</Name>");
    if (!b->plain) puts_to(b, "<EncodingType>url</EncodingType>");
    put_key(b, "Prefix", prefix, strlen(prefix));
    if (b->pad) puts_to(b, "<!--");
    memset(dots, '.', sizeof dots);
    for (size_t i = 0; i < b->pad; i += sizeof dots) put(b, dots, sizeof dots);
    if (b->pad) puts_to(b, "-->");
    for (int pass = 0; pass < 2; pass++) { /* objects in one, common prefixes in the other */
        int prefixes = pass == !b->prefixes_first, opened = 0;
        given = more = 0, last = "", last_n = 0;
        for (int i = 0; i < b->n; i++) {
            const char *key = b->keys[i];
            size_t n = common(key, prefix, delimiter);
            if (strncmp(key, prefix, strlen(prefix)) != 0 || strcmp(key, after) <= 0) continue;
            if (n && (n == last_n && strncmp(key, last, n) == 0)) continue;
            if (n && strlen(after) >= n && strncmp(key, after, n) == 0) continue;
            if (given == most) {
                more = 1;
                break;
            }
            given++;
            last = key, last_n = n ? n : strlen(key);
            if ((n > 0) != prefixes) continue;
            if (n) {
                if (!b->together || !opened++) puts_to(b, "<CommonPrefixes>");
                put_key(b, "Prefix", key, n);
                if (!b->together) puts_to(b, "</CommonPrefixes>");
                continue;
            }
            puts_to(b, "<Contents>");
            put_key(b, "Key", key, strlen(key));
            snprintf(object, sizeof object,
                     "<LastModified>2009-10-12T17:50:%02d.000Z</LastModified><ETag>&quot;e%d&quot;"
                     "</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>",
                     i % 60, i, i * 1000);
            puts_to(b, object);
        }
        if (opened) puts_to(b, "</CommonPrefixes>");
    }
    if (more) {
        snprintf(token, sizeof token, "%.*s", (int)last_n, last);
        puts_to(b, "<NextContinuationToken>+/=t:");
        for (const char *c = token; *c; c++) { /* it is opaque: only what XML wants is escaped */
            char one[8];
            snprintf(one, sizeof one, "&#%d;", (unsigned char)*c);
            if ((unsigned char)*c < 128)
                puts_to(b, one);
            else
                put(b, c, 1);
        }
        puts_to(b, "</NextContinuationToken>");
    }
    puts_to(b, more ? "<IsTruncated>true</IsTruncated>" : "<IsTruncated>false</IsTruncated>");
    puts_to(b, "</ListBucketResult>\n");
}

static void serve(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    bucket *b = user;
    if (++b->asked == b->fail_at) {
        *r = b->fail;
        if (r->status || r->raw) return;
    }
    list_page(b, q->query);
    r->status = 200;
    r->body = b->page, r->body_bytes = b->bytes;
    r->chunk = b->chunked;
}

/* ---- The rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;
static bucket room;

static void begin(void (*script)(void *, const s3_mock_request *, s3_mock_reply *)) {
    dlp_s3_desc d = {.region = "us-east-1",
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     .backoff_ms = 1,
                     .backoff_max_ms = 5,
                     .hedge_percent = -1};
    dlp_s3_error err;
    int rc;
    mock = s3_mock_start();
    mock->script = script, mock->user = &room;
    d.endpoint = mock->url;
    memset(&room, 0, sizeof room);
    rc = dlp_s3_open(&s3, &d, &err);
    if (rc == DLP_OK) rc = dlp_s3_io_open(&io, s3, &err);
    if (rc != DLP_OK) {
        printf("cannot begin: %d %s\n", rc, err.message);
        exit(1);
    }
}

static void end(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
    free(room.page);
}

static int in_disorder; /* dlp_s3_list_desc.any_order */

static dlp_s3_list *list(const char *prefix, const char *delimiter, const char *after, int page) {
    dlp_s3_list_desc d = {"b", prefix, delimiter, after, page, in_disorder, 1};
    dlp_s3_list *l = NULL;
    CHECK(dlp_s3_list_open(&l, io, &d, NULL) == DLP_OK);
    if (!l) exit(1);
    return l;
}

static const char *shown(const dlp_s3_error *err) {
    static char line[1000];
    dlp_s3_error_format(err, line, sizeof line);
    return line;
}

/* In order of bytes, with what stands inside strings of C: '/' sorts behind '-' and '.'. */
static const char *const odd[] = {"\x01"
                                  "control\x1f",
                                  " ",
                                  " leading",
                                  "\"quoted\"",
                                  "#hash",
                                  "%",
                                  "%25",
                                  "%2F",
                                  "&amp;",
                                  "'single'",
                                  "+",
                                  "+plus+",
                                  "-a",
                                  ".",
                                  "..",
                                  "./dot",
                                  "/",
                                  "//",
                                  "//two",
                                  "/lead",
                                  "<tag>",
                                  "?q=1&x",
                                  "A",
                                  "a",
                                  "a b",
                                  "a+b",
                                  "a-b/",
                                  "a-b/c",
                                  "a/",
                                  "a/../b",
                                  "a/./b",
                                  "a//b",
                                  "a/b",
                                  "a/b/c",
                                  "a0",
                                  "b\\c",
                                  "b|c",
                                  "new\nline",
                                  "tab\there",
                                  "z/1",
                                  "z/2",
                                  "z/3/4",
                                  "{}",
                                  "~",
                                  "\xc3\xbc"
                                  "ber",
                                  "\xe1\x88\xb4",
                                  "\xf0\x9f\x98\x80"};
#define N_ODD ((int)(sizeof odd / sizeof odd[0]))

/* What a list must give: objects and common prefixes of odd, in order; -1 - index: a prefix. */
static int wanted(const char *prefix, const char *delimiter, const char *after, int *out) {
    int n = 0;
    size_t last_n = 0;
    const char *last = "";
    for (int i = 0; i < N_ODD; i++) {
        size_t c = common(odd[i], prefix, delimiter);
        if (strncmp(odd[i], prefix, strlen(prefix)) != 0 || strcmp(odd[i], after) <= 0) continue;
        if (c && c == last_n && strncmp(odd[i], last, c) == 0) continue;
        if (c && strlen(after) >= c && strncmp(odd[i], after, c) == 0) continue;
        out[n++] = c ? -1 - i : i;
        last = odd[i], last_n = c;
    }
    return n;
}

/* Go through a list of odd and compare. Returns the number of requests. */
static int check_list(const char *prefix, const char *delimiter, const char *after, int page) {
    int want[N_ODD + 1],
        n = wanted(prefix ? prefix : "", delimiter ? delimiter : "", after ? after : "", want),
        at = 0, asked = room.asked;
    dlp_s3_list *l = list(prefix, delimiter, after, page);
    dlp_s3_object o;
    dlp_s3_error err;
    int rc;
    while ((rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK && at < n) {
        int i = want[at] < 0 ? -1 - want[at] : want[at];
        size_t len =
            want[at] < 0 ? common(odd[i], prefix ? prefix : "", delimiter) : strlen(odd[i]);
        char etag[16];
        snprintf(etag, sizeof etag, "\"e%d\"", i);
        CHECK(o.key_bytes == len && strncmp(o.key, odd[i], len) == 0 && o.key[len] == '\0');
        CHECK(o.is_prefix == (want[at] < 0));
        if (!o.is_prefix) {
            CHECK(o.bytes == (uint64_t)i * 1000 && strcmp(o.etag, etag) == 0);
            CHECK(o.modified_s == 1255369800 + i % 60);
        } else {
            CHECK(o.bytes == 0 && o.etag[0] == '\0' && o.modified_s == 0);
        }
        at++;
    }
    CHECK(rc == DLP_END && at == n);
    if (rc < 0) printf("  %s\n", shown(&err));
    CHECK(dlp_s3_list_next(l, &o, &err) == DLP_END);
    dlp_s3_list_close(l);
    return room.asked - asked;
}

/* ---- Cases ---- */

static void list__pages_of_any_size__each_key_once(void) {
    static const int sizes[] = {1, 2, 3, 7, 46, 47, 48, 1000, 0};
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int page = sizes[i] ? sizes[i] : 1000;
        room.plain = i % 2 == 1;
        room.chunked = i % 3 == 0 ? 100 : 0;
        CHECK(check_list(NULL, NULL, NULL, sizes[i]) == (N_ODD + page - 1) / page);
    }
    end();
}

static void list__prefix_delimiter_start_after__as_a_model(void) {
    static const char *const prefixes[] = {NULL, "a", "a/", "z/", "/", "%", "+", "\xc3", "none"};
    static const char *const delimiters[] = {NULL, "/", "b", "//", "\n"};
    static const char *const afters[] = {NULL, " ", "a-b/", "a/b", "z/1", "\xff"};
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++)
        for (size_t d = 0; d < sizeof delimiters / sizeof delimiters[0]; d++)
            for (size_t a = 0; a < sizeof afters / sizeof afters[0]; a++) {
                if (getenv("SHORT") && (p + d + a) % 4 != 1) continue;
                room.prefixes_first = (p + d + a) % 2 == 0;
                room.plain = (p + d + a) % 3 == 0;
                room.together = d % 2 == 0;
                check_list(prefixes[p], delimiters[d], afters[a], (p + d + a) % 4 < 2 ? 3 : 1000);
            }
    end();
}

static void list__its_requests__what_is_asked(void) {
    s3_mock_request q;
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    CHECK(check_list("a+b /", "/", "a", 5) == 1);
    CHECK(s3_mock_seen(mock, 0, &q) && strcmp(q.path, "/b") == 0 && q.has_authorization);
    CHECK(strcmp(q.query, "delimiter=%2F&encoding-type=url&list-type=2&max-keys=5&"
                          "prefix=a%2Bb%20%2F&start-after=a") == 0);
    CHECK(!q.has_range && strcmp(q.method, "GET") == 0);
    CHECK(check_list("a", NULL, "a", 4) == 3);
    CHECK(s3_mock_seen(mock, 2, &q)); /* start-after is for the first page only */
    CHECK(strcmp(q.query, "continuation-token=%2B%2F%3Dt%3Aa-b%2Fc&encoding-type=url&list-type=2&"
                          "max-keys=4&prefix=a") == 0);
    CHECK(check_list(NULL, NULL, NULL, 0) == 1);
    CHECK(s3_mock_seen(mock, s3_mock_count(mock, NULL) - 1, &q));
    CHECK(strcmp(q.query, "encoding-type=url&list-type=2&max-keys=1000") == 0);
    end();
}

static void list__large_pages__room_is_made(void) {
    dlp_s3_list *l;
    dlp_s3_object o;
    dlp_s3_error err;
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    room.pad = 600 << 10; /* the length is told: one more request */
    CHECK(check_list(NULL, NULL, NULL, 0) == 2);
    room.chunked = 5000; /* it is not: twice as much each time, 256 KiB to 1 MiB */
    CHECK(check_list(NULL, NULL, NULL, 0) == 3);
    room.chunked = 0;
    room.pad = 0;
    l = list(NULL, NULL, NULL, 20); /* the first page is small, the others are not */
    for (int i = 0; i < 20; i++) CHECK(dlp_s3_list_next(l, &o, &err) == DLP_OK);
    room.pad = 300 << 10;
    CHECK(dlp_s3_list_next(l, &o, &err) == DLP_OK && strcmp(o.key, odd[20]) == 0);
    room.pad = 17 << 20;
    for (int i = 21; i < 40; i++) CHECK(dlp_s3_list_next(l, &o, &err) == DLP_OK);
    CHECK(dlp_s3_list_next(l, &o, &err) == DLP_ERR_LIMIT && strstr(err.message, "16 MiB"));
    CHECK(strcmp(err.bucket, "b") == 0 && err.code == DLP_ERR_LIMIT);
    room.chunked = 1 << 16;
    if (!getenv("SHORT")) CHECK(dlp_s3_list_next(l, &o, &err) == DLP_ERR_LIMIT);
    room.pad = 0; /* and once it is small again it goes on */
    CHECK(dlp_s3_list_next(l, &o, &err) == DLP_OK && strcmp(o.key, odd[40]) == 0);
    dlp_s3_list_close(l);
    end();
}

/* An error leaves the list where it was. */
static void list__errors__the_same_page_again(void) {
    static const s3_mock_reply fails[] = {
        {.status = 403, .s3_code = "AccessDenied"},
        {.status = 200,
         .body = "<ListBucketResult><Contents><Key>no</Key><Size>1</Size>"
                 "</Contents><IsTruncated>false</IsTruncated>"},
        {.status = 200, .body = "<Error><Code>InternalError</Code></Error>"},
        {.status = 200, .body = "not XML"},
    };
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    for (size_t f = 0; f < sizeof fails / sizeof fails[0]; f++) {
        dlp_s3_list *l = list(NULL, NULL, NULL, 10);
        dlp_s3_object o;
        dlp_s3_error err;
        int at = 0, errors = 0, rc;
        room.asked = 0, room.fail_at = 3, room.fail = fails[f];
        while ((rc = dlp_s3_list_next(l, &o, &err)) != DLP_END && errors < 3) {
            if (rc == DLP_OK) {
                CHECK(at < N_ODD && strcmp(o.key, odd[at]) == 0);
                at++;
                continue;
            }
            errors++;
            CHECK(rc == DLP_ERR_REMOTE && err.code == rc && at == 20 && err.message[0]);
            CHECK(strcmp(err.bucket, "b") == 0);
        }
        CHECK(at == N_ODD && room.asked == 6);
        CHECK(errors == (f != 2)); /* an error of the server's that passes is not told */
        dlp_s3_list_close(l);
    }
    end();
}

/* What the client mends by itself: the pages come as if nothing had been. */
static void list__faults__mended(void) {
    static const s3_mock_reply fails[] = {
        {.status = 503, .s3_code = "SlowDown"},
        {.status = 500, .s3_code = "InternalError"},
        {.cut = S3_MOCK_RESET, .cut_at = 0},
        {.cut = S3_MOCK_CLOSE, .cut_at = 700, .cut_in_body = 1},
        {.cut = S3_MOCK_RESET, .cut_at = 1, .cut_in_body = 1},
        {.trickle = 100},
        {.close = 1},
    };
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    for (int chunked = 0; chunked < 2; chunked++)
        for (size_t f = 0; f < sizeof fails / sizeof fails[0]; f++) {
            int asked;
            room.chunked = chunked ? 333 : 0;
            room.asked = 0, room.fail_at = 2, room.fail = fails[f];
            asked = check_list(NULL, NULL, NULL, 20);
            CHECK(asked == (f < 5 ? 4 : 3));
            if (asked != (f < 5 ? 4 : 3)) printf("  fault %zu: %d requests\n", f, asked);
        }
    end();
}

/* Pages that only a script gives: by number. */
static const char *const *script_pages;
static int n_script_pages;

static void serve_script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    bucket *b = user;
    int i = b->asked++;
    (void)q;
    r->status = 200;
    r->body = script_pages[i < n_script_pages ? i : n_script_pages - 1];
}

/* Returns the code that ends the list; *given: objects before. */
static int run_script(const char *const *pages, int n, int *given, dlp_s3_error *err) {
    dlp_s3_list *l = list(NULL, NULL, NULL, 0);
    dlp_s3_object o;
    int rc;
    script_pages = pages, n_script_pages = n;
    room.asked = 0;
    *given = 0;
    memset(err, 0, sizeof *err);
    while ((rc = dlp_s3_list_next(l, &o, err)) == DLP_OK && *given < 1000) ++*given;
    dlp_s3_list_close(l);
    return rc;
}

#define PAGE(in, token) \
    "<ListBucketResult>" in "<IsTruncated>true</IsTruncated><NextContinuationToken>" token \
    "</NextContinuationToken></ListBucketResult>"
#define LAST(in) "<ListBucketResult>" in "<IsTruncated>false</IsTruncated></ListBucketResult>"
#define KEY(k) "<Contents><Key>" k "</Key><Size>1</Size></Contents>"
#define URL "<EncodingType>url</EncodingType>"

static void list__tokens_that_lead_back__refused(void) {
    static const char *const same[] = {PAGE(KEY("a"), "1"), PAGE(KEY("b"), "1")};
    static const char *const later[] = {PAGE(KEY("a"), "1"), PAGE(KEY("b"), "2"),
                                        PAGE(KEY("c"), "3"), PAGE(KEY("d"), "4"),
                                        PAGE(KEY("e"), "4")};
    static const char *const none[] = {PAGE(KEY("a"), "")};
    static const char *const missing[] = {
        "<ListBucketResult>" KEY("a") "<IsTruncated>true</IsTruncated></ListBucketResult>"};
    static const char *const not_told[] = {"<ListBucketResult>" KEY("a") "</ListBucketResult>"};
    static const char *const empty[] = {PAGE("", "1"), PAGE("", "2"), LAST(KEY("z"))};
    const char *circle[64];
    char pages[7][200];
    dlp_s3_error err;
    int given;
    begin(serve_script);
    CHECK(run_script(same, 2, &given, &err) == DLP_ERR_REMOTE && given == 1 && room.asked == 2);
    CHECK(strstr(err.message, "comes again") && strstr(err.message, "page 2"));
    CHECK(run_script(later, 5, &given, &err) == DLP_ERR_REMOTE && given == 4 && room.asked == 5);
    CHECK(run_script(none, 1, &given, &err) == DLP_ERR_REMOTE && given == 0 && room.asked == 1);
    CHECK(strstr(err.message, "NextContinuationToken") != NULL);
    CHECK(run_script(missing, 1, &given, &err) == DLP_ERR_REMOTE && given == 0);
    CHECK(run_script(not_told, 1, &given, &err) == DLP_ERR_REMOTE && given == 0);
    CHECK(strstr(err.message, "IsTruncated") != NULL);
    CHECK(run_script(empty, 3, &given, &err) == DLP_END && given == 1); /* that is allowed */
    for (int length = 2; length <= 7; length++) {                       /* of a circle */
        for (int i = 0; i < length; i++)
            snprintf(pages[i], sizeof pages[i], PAGE("", "t%d"), i); /* keys would tell, too */
        for (int i = 0; i < 64; i++) circle[i] = pages[i % length];
        CHECK(run_script(circle, 64, &given, &err) == DLP_ERR_REMOTE);
        CHECK(strstr(err.message, "comes again") && room.asked < 3 * length + 1);
    }
    end();
}

#define UNDER(k) "<CommonPrefixes><Prefix>" k "</Prefix></CommonPrefixes>"

/* What a server says twice, or in another order, is not given out: neither that page nor a later
   one, while it may be asked for again. */
static void list__keys_twice_or_in_disorder__refused(void) {
    static const struct {
        const char *pages[2];
        int n, given;
    } bad[] = {{{LAST(KEY("b") KEY("a"))}, 1, 0},
               {{LAST(KEY("a") KEY("a"))}, 1, 0},
               {{LAST(UNDER("b/") UNDER("a/"))}, 1, 0},
               {{LAST(UNDER("a/") KEY("x") UNDER("a/"))}, 1, 0},
               {{PAGE(KEY("a") KEY("b"), "1"), LAST(KEY("b") KEY("c"))}, 2, 2},
               {{PAGE(KEY("a") KEY("b"), "1"), LAST(KEY("c") UNDER("a/"))}, 2, 2},
               {{PAGE(UNDER("x/") KEY("b"), "1"), LAST(KEY("c"))}, 2, 2},
               {{PAGE(UNDER("x/"), "1"), LAST(UNDER("x/"))}, 2, 1}};
    static const char *const good[] = {PAGE(UNDER("x/") KEY("b"), "1"), PAGE("", "2"),
                                       LAST(KEY("x0") UNDER("x0/"))};
    static const char zero[] = LAST(KEY("a\0b"));
    dlp_s3_error err;
    int given;
    begin(serve_script);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(run_script(bad[i].pages, bad[i].n, &given, &err) == DLP_ERR_REMOTE);
        CHECK(given == bad[i].given && strstr(err.message, "out of order") != NULL);
    }
    CHECK(run_script(good, 3, &given, &err) == DLP_END && given == 4);
    in_disorder = 1; /* what comes twice side by side is seen all the same */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int twice = i == 1 || i == 3 || i == 4 || i == 7;
        CHECK(run_script(bad[i].pages, bad[i].n, &given, &err) ==
              (twice ? DLP_ERR_REMOTE : DLP_END));
    }
    in_disorder = 0;
    {
        dlp_s3_list *l = list(NULL, NULL, NULL, 0);
        CHECK(dlpi_s3_list_take(l, l->first, zero, sizeof zero - 1) != NULL);
        dlp_s3_list_close(l);
    }
    end();
}

/* Keys that prefix and start_after exclude, at the beginning, in the middle and on a later page. */
static void list__keys_not_asked_for__refused_with_the_key(void) {
    static const struct {
        const char *pages[2], *key;
        int given;
    } bad[] = {{{LAST(KEY("a"))}, "'a'", 0},
               {{LAST(KEY("p/b") KEY("q"))}, "'q'", 0},
               {{LAST(KEY("p/b") UNDER("q/"))}, "'q/'", 0},
               {{PAGE(KEY("p/b"), "1"), LAST(KEY("pa"))}, "'pa'", 1},
               {{LAST(KEY("p/a") KEY("p/b"))}, "'p/a'", 0},
               {{LAST(KEY("p/a/0"))}, "'p/a/0'", 0},
               {{LAST(UNDER("p/A/"))}, "'p/A/'", 0}};
    static const char *const good[] = {PAGE(UNDER("p/a/"), "1"), LAST(KEY("p/b"))};
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        const bool fine = i == sizeof bad / sizeof bad[0];
        dlp_s3_object o;
        dlp_s3_error err;
        dlp_s3_list *l;
        int given = 0, rc;
        begin(serve_script);
        script_pages = fine ? good : bad[i].pages, n_script_pages = 2;
        l = list("p/", "/", "p/a/1", 0);
        while ((rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK) given++;
        CHECK(rc == (fine ? DLP_END : DLP_ERR_REMOTE) && given == (fine ? 2 : bad[i].given));
        CHECK(fine || (strstr(err.message, bad[i].key) && strstr(err.message, "not asked for")));
        dlp_s3_list_close(l);
        end();
    }
}

static void list__pages_without_keys__not_for_ever(void) {
    static char text[2 * DLPI_S3_LIST_EMPTY][400];
    static const char *pages[2 * DLPI_S3_LIST_EMPTY];
    dlp_s3_error err;
    int given;
    for (int i = 0; i < 2 * DLPI_S3_LIST_EMPTY; i++) {
        snprintf(text[i], sizeof text[i], PAGE("", "t%d"), i);
        pages[i] = text[i];
    }
    begin(serve_script);
    CHECK(run_script(pages, 2 * DLPI_S3_LIST_EMPTY, &given, &err) == DLP_ERR_REMOTE);
    CHECK(given == 0 && room.asked == DLPI_S3_LIST_EMPTY && strstr(err.message, "without a key"));
    pages[DLPI_S3_LIST_EMPTY - 1] = PAGE(KEY("a"), "a"); /* few enough, twice */
    pages[2 * DLPI_S3_LIST_EMPTY - 1] = LAST(KEY("b"));
    CHECK(run_script(pages, 2 * DLPI_S3_LIST_EMPTY, &given, &err) == DLP_END && given == 2);
    end();
}

static void list__hostile_pages__refused(void) {
    static const char *const bad[] = {
        "",
        " ",
        "<html><body>Sign in</body></html>",
        "<Error><Code>x</Code></Error>",
        LAST("<Contents><Size>1</Size></Contents>"),
        LAST("<Contents><Key>a</Key></Contents>"),
        LAST(KEY("a") "<Contents><Size>1</Size></Contents>"),
        LAST(KEY("a") KEY("")),
        LAST("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
        LAST("<Contents><Key>a</Key><Size>1x</Size></Contents>"),
        LAST("<Contents><Key>a</Key><Size></Size></Contents>"),
        LAST("<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"),
        LAST(URL KEY("%")),
        LAST(URL KEY("a%0")),
        LAST(URL KEY("a%00b")),
        LAST(KEY("a%zz") URL),
        LAST(KEY("&bad;")),
        LAST(KEY("&#0;")),
        LAST(KEY("<b>")),
        LAST(KEY("a") "<Contents>"),
        LAST("<CommonPrefixes><Prefix></Prefix></CommonPrefixes>"),
        LAST("<CommonPrefixes><Prefix>&#xd800;</Prefix></CommonPrefixes>"),
        "<!DOCTYPE a [<!ENTITY x 'y'>]>" LAST(KEY("&x;")),
        LAST(KEY("a")) "<x/>",
        "<ListBucketResult>" KEY("a") "<IsTruncated>maybe</IsTruncated></ListBucketResult>",
        "<ListBucketResult>" KEY("a") "<IsTruncated>true-and-more-than-fits</IsTruncated>"
                                      "</ListBucketResult>"};
    static const char *const said[][2] = {
        {"<html><p/></html>", "page 1 of the list: <html> came, and no <ListBucketResult>"},
        {LAST("<Contents><Key>a</Kay></Contents>"), "bad XML at byte 40, after <Kay>: elements"},
        {LAST("<Contents><Size>1</Size></Contents>"), "<Contents> has no <Key>"},
        {LAST("<Contents><Key>a</Key></Contents>"), "<Contents> has no <Size> that is a number"},
        {LAST(KEY("&bad;")), "<Key> has a reference that XML lacks"},
        {LAST(KEY("a") KEY("a")), "key 'a' comes twice or out of order; set any_order"},
        {LAST(URL KEY("%")), "<Key> has a '%' without two hexadecimal digits"},
        {"<ListBucketResult/>", "<IsTruncated> is neither true nor false"},
        {PAGE("", ""), "<NextContinuationToken> is missing"}};
    static char long_key[8000], long_token[4000];
    const char *one[1];
    dlp_s3_error err;
    int given, rc;
    begin(serve_script);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rc = run_script(&bad[i], 1, &given, &err);
        CHECK(rc == DLP_ERR_REMOTE && given == 0 && err.message[0]);
        if (rc != DLP_ERR_REMOTE || given) printf("  taken (%d, %d): %s\n", rc, given, bad[i]);
    }
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) { /* the element, and what to do */
        CHECK(run_script(said[i], 1, &given, &err) == DLP_ERR_REMOTE && given == 0);
        CHECK(strstr(err.message, said[i][1]) && strstr(err.message, "; check the endpoint"));
        CHECK(strlen(err.message) <= 160);
        if (!strstr(err.message, said[i][1])) printf("  %zu: %s\n", i, err.message);
    }
    for (int n = 3072; n <= 3073; n++) { /* the longest key, all of it escaped, and one more */
        snprintf(long_key, sizeof long_key,
                 "<ListBucketResult>" URL "<Contents><Key>%0*d</Key>"
                 "<Size>1</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>",
                 n, 0);
        one[0] = long_key;
        CHECK(run_script(one, 1, &given, &err) == (n == 3072 ? DLP_END : DLP_ERR_REMOTE));
        CHECK(given == (n == 3072));
    }
    for (int n = DLPI_S3_TOKEN - 1; n <= DLPI_S3_TOKEN; n++) {
        const char *two[2];
        snprintf(long_token, sizeof long_token, PAGE(KEY("a"), "%0*d"), n, 0);
        two[0] = long_token, two[1] = LAST(KEY("b"));
        CHECK(run_script(two, 2, &given, &err) == (n < DLPI_S3_TOKEN ? DLP_END : DLP_ERR_REMOTE));
    }
    end();
}

/* What servers write in other ways than S3. */
static void list__other_servers__read(void) {
    static const char page[] =
        "\xef\xbb\xbf<s3:ListBucketResult xmlns:s3='x'>\r\n  <s3:IsTruncated>false</s3:IsTruncated>"
        "\n <s3:Contents>\n <s3:Size>12</s3:Size><s3:Key><![CDATA[a&b+c]]></s3:Key>"
        "<s3:Owner><s3:Key>no</s3:Key><s3:Size>7</s3:Size></s3:Owner><s3:LastModified/>"
        "<s3:ETag>0123456789012345678901234567890123456789012345678901234567890123456789012"
        "</s3:ETag></s3:Contents><s3:Contents><s3:Key>z</s3:Key><s3:Size>0</s3:Size>"
        "<s3:LastModified>2009-10-12T17:50:30+00:00</s3:LastModified></s3:Contents>"
        "<s3:CommonPrefixes><s3:Prefix>b/</s3:Prefix><s3:Prefix>c/</s3:Prefix></s3:CommonPrefixes>"
        "<s3:EncodingType></s3:EncodingType></s3:ListBucketResult>";
    const char *one[1] = {page};
    dlp_s3_list *l;
    dlp_s3_object o;
    begin(serve_script);
    script_pages = one, n_script_pages = 1;
    l = list(NULL, "/", NULL, 0);
    CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_OK && strcmp(o.key, "a&b+c") == 0);
    CHECK(o.bytes == 12 && o.etag[0] == '\0' && o.modified_s == -1 && o.is_prefix == 0);
    CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_OK && strcmp(o.key, "b/") == 0 && o.is_prefix);
    CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_OK && strcmp(o.key, "c/") == 0 && o.is_prefix);
    CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_OK && strcmp(o.key, "z") == 0 && !o.is_prefix);
    CHECK(o.modified_s == 1255369830 && o.bytes == 0);
    CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_END);
    dlp_s3_list_close(l);
    end();
}

/* A page cut at any byte is refused, in memory of exactly its size; so it is with bytes changed. */
static void page__cut_or_changed__no_harm(void) {
    dlp_s3_list *l;
    bucket b = {0};
    uint64_t random = 3;
    size_t whole;
    dlp_s3_object o;
    char *body;
    begin(serve);
    l = list(NULL, NULL, NULL, 0);
    b.keys = odd, b.n = N_ODD;
    list_page(&b, "delimiter=%2F&max-keys=30");
    whole = b.bytes - 1; /* its last line's end is no part of it */
    for (size_t cut = 0; cut <= whole; cut++) {
        body = malloc(cut > 0 ? cut : 1);
        memcpy(body, b.page, cut);
        l->first->pages = 0;
        CHECK((dlpi_s3_list_take(l, l->first, body, cut) == NULL) == (cut == whole));
        CHECK((l->first->pages == 1) == (cut == whole));
        free(body);
    }
    for (int turn = 0; turn < (getenv("SHORT") ? 300 : 2000); turn++) {
        static const char marks[] = "<>/&;!-[]\"'%+ CKPSx0a#:";
        int n = 0;
        body = malloc(whole);
        memcpy(body, b.page, whole);
        for (uint64_t i = 1 + dlpi_s3_random(&random) % 4; i > 0; i--)
            body[dlpi_s3_random(&random) % whole] =
                marks[dlpi_s3_random(&random) % (sizeof marks - 1)];
        l->first->pages = l->first->last.bytes = 0;
        dlpi_s3_list_take(l, l->first, body, whole);
        for (; l->first->blocks; dlpi_s3_list_drop_block(l, l->first))
            for (; dlpi_s3_block_take(l->first->blocks, &o); n++)
                CHECK(strlen(o.key) == o.key_bytes);
        CHECK(n <= 60);
        free(body);
    }
    free(b.page);
    dlp_s3_list_close(l);
    end();
}

/* Each allocation fails once; the list that was made goes on where it was. */
static void list__no_memory__told_and_tried_again(void) {
    int failed = 0;
    begin(serve);
    room.keys = odd, room.n = N_ODD;
    for (int at = 1;; at++) {
        dlp_s3_list_desc d = {"b", NULL, NULL, NULL, 20, 0, 1};
        dlp_s3_list *l = NULL;
        dlp_s3_object o;
        dlp_s3_error err = {0};
        int rc, n = 0, errors = 0;
        room.pad = 0, room.asked = 0;
        fault_at = at, fault_calls = 0;
        rc = dlp_s3_list_open(&l, io, &d, &err);
        if (rc == DLP_ERR_MEMORY) {
            CHECK(at <= 2 && !l && err.code == rc && err.message[0]);
            rc = dlp_s3_list_open(&l, io, &d, &err);
        }
        CHECK(rc == DLP_OK);
        while (l && (rc = dlp_s3_list_next(l, &o, &err)) != DLP_END && errors < 3) {
            if (rc == DLP_OK) CHECK(n < N_ODD && strcmp(o.key, odd[n]) == 0);
            if (rc == DLP_OK && ++n == 30) room.pad = 300 << 10; /* the third page is larger */
            if (rc == DLP_OK) continue;
            CHECK(rc == DLP_ERR_MEMORY && err.code == rc && strstr(err.message, "memory"));
            errors++;
        }
        CHECK(n == N_ODD && errors == (at > 2 && fault_calls >= at));
        failed += errors;
        dlp_s3_list_close(l);
        if (fault_calls < at) break;
    }
    fault_at = 0;
    CHECK(failed == 7); /* the answer's record, first room and the larger one; records; 3 blocks */
    end();
}

/* A bucket of 400 keys. */
static const char *const *many_keys(void) {
    static char text[400][16];
    static const char *many[400];
    for (int i = 0; i < 400; i++) {
        snprintf(text[i], sizeof text[i], "k%03d", i);
        many[i] = text[i];
    }
    return many;
}

/* The same side by side: whatever allocation fails, the list is whole, after errors that say so. */
static void list__side_by_side_no_memory__whole(void) {
    int failed = 0, at = 1, calls = 0;
    begin(serve);
    room.keys = many_keys(), room.n = 400;
    do {
        dlp_s3_list_desc d = {.bucket = "b", .page = 10, .requests = 8};
        dlp_s3_list *l = NULL;
        dlp_s3_object o;
        dlp_s3_error err = {0};
        int rc, n = 0, errors = 0;
        CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_OK);
        fault_at = at, fault_calls = 0;
        while (l && (rc = dlp_s3_list_next(l, &o, &err)) != DLP_END && errors < 3) {
            if (rc == DLP_OK) CHECK(n < 400 && strcmp(o.key, room.keys[n++]) == 0);
            if (rc == DLP_OK) continue;
            CHECK(rc == DLP_ERR_MEMORY && err.code == rc && strstr(err.message, "memory"));
            errors++;
        }
        calls = fault_calls;
        CHECK(n == 400 && errors <= 1);
        failed += errors;
        fault_at = 0;
        dlp_s3_list_close(l);
    } while (calls >= at++);
    CHECK(failed > 10 && at > 60);
    end();
}

/* A child has the keys that had come, and no more; the parent goes on. */
static void list__forked__the_parent_goes_on(void) {
    dlp_s3_list_desc d = {.bucket = "b", .page = 10, .requests = 8};
    dlp_s3_list *l = NULL;
    dlp_s3_object o;
    dlp_s3_error err = {0};
    int rc, n = 0, status = 1;
    pid_t pid;
    begin(serve);
    room.keys = many_keys(), room.n = 400;
    for (int t = 0; t < 50;
         t++) { /* on a busy machine all answers may come before they are wanted */
        CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_OK);
        for (n = 0; (n < 15 || l->over.out == 0) && dlp_s3_list_next(l, &o, &err) == DLP_OK;) n++;
        if (l->over.out > 0) break;
        dlp_s3_list_close(l);
        l = NULL;
    }
    CHECK(l != NULL && n < 400);
    if (l == NULL) {
        end();
        return;
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        while ((rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK) n++;
        dlp_s3_list_close(l);
        _exit(rc == DLP_ERR_FORKED && err.code == rc && n < 400 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    while (dlp_s3_list_next(l, &o, &err) == DLP_OK) CHECK(strcmp(o.key, room.keys[n++]) == 0);
    CHECK(n == 400);
    dlp_s3_list_close(l);
    end();
}

static void list_open__bad_arguments__refused(void) {
    char long_text[1026];
    dlp_s3_list *l = NULL;
    dlp_s3_error err;
    dlp_s3_object o;
    dlp_s3_list_desc d = {"b", NULL, NULL, NULL, 0, 0, 0};
    begin(serve);
    memset(long_text, 'x', 1025), long_text[1025] = '\0';
    CHECK(dlp_s3_list_open(NULL, io, &d, &err) == DLP_ERR_ARG && err.message[0]);
    CHECK(dlp_s3_list_open(&l, NULL, &d, &err) == DLP_ERR_ARG);
    CHECK(dlp_s3_list_open(&l, io, NULL, NULL) == DLP_ERR_ARG);
    d.bucket = NULL;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG);
    d.bucket = "";
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG);
    d.bucket = long_text;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG && strstr(err.message, "bucket"));
    d.bucket = "b", d.page = 1001;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG && strstr(err.message, "page"));
    d.page = -7;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message, "page: is -7, must be 0..1000") == 0);
    d.page = 0, d.requests = -2;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message, "requests: is -2, must be 0 or more") == 0);
    d.requests = 0, d.prefix = long_text;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG && strstr(err.message, "prefix"));
    d.prefix = NULL, d.delimiter = long_text;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG && strstr(err.message, "delimiter"));
    d.delimiter = NULL, d.start_after = long_text;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_ERR_ARG && strstr(err.message, "start_after"));
    CHECK(l == NULL);
    CHECK(dlp_s3_list_next(NULL, &o, &err) == DLP_ERR_ARG && err.code == DLP_ERR_ARG);
    dlp_s3_list_close(NULL);
    CHECK(s3_mock_count(mock, NULL) == 0);
    end();
}

/* With little room for what comes before its turn, it is as exact, and takes no more memory. */
static void list__little_room__held_back(void) {
    dlp_s3_list_desc d = {.bucket = "b", .page = 10, .requests = 4};
    static char text[3000][20];
    static const char *many[3000];
    dlp_s3_list *l = NULL;
    dlp_s3_object o;
    uint64_t most = 0;
    uint32_t at_once = 0;
    int n = 0;
    begin(serve);
    for (int i = 0; i < 3000; i++) {
        snprintf(text[i], sizeof text[i], "%04d/%d", i, i * i);
        many[i] = text[i];
    }
    room.keys = many, room.n = 3000;
    hold = 20000;
    CHECK(dlp_s3_list_open(&l, io, &d, NULL) == DLP_OK);
    while (dlp_s3_list_next(l, &o, NULL) == DLP_OK) {
        if (l->held > most) most = l->held;
        CHECK(l->segments <= 16);
        CHECK(strcmp(o.key, many[n++]) == 0);
        if (l->over.out > at_once) at_once = l->over.out;
    }
    CHECK(n == 3000 && most > 0 && most < 20000 + 5 * 10 * 120);
    dlp_s3_list_close(l);
    CHECK(at_once == 4);
    CHECK(dlp_s3_list_open(&l, io, &d, NULL) == DLP_OK); /* closed with pages under way */
    for (n = 0; n < 3000 && l->over.out == 0; n++) CHECK(dlp_s3_list_next(l, &o, NULL) == DLP_OK);
    CHECK(n < 3000);
    dlp_s3_list_close(l);
    hold = 256u << 20;
    end();
}

/* ---- Where ranges are split: between their ends, in whole characters, in the middle. ---- */

static uint64_t seed = 11;
static uint64_t roll(uint64_t n) { return dlpi_s3_random(&seed) % n; }

static dlpi_s3_span span(const char *text) { return (dlpi_s3_span){text, strlen(text)}; }

static void random_key(char *to, bool utf8) {
    size_t n = 1 + roll(10), at = 0;
    while (at < n) {
        dlpi_s3_out o = {to + at, 8, 0};
        uint32_t c = (uint32_t)(roll(2) ? 1 + roll(127) : roll(0x110000));
        if (!utf8)
            to[at++] = (char)(1 + roll(255));
        else if (dlpi_s3_out_char(&o, c))
            at += o.n;
    }
    to[at] = '\0';
}

static void split__any_range__inside_and_whole(void) {
    static dlpi_s3_key high, out;
    int found = 0, whole = 0, turns = getenv("SHORT") ? 20000 : 200000;
    for (int turn = 0; turn < turns; turn++) {
        dlpi_s3_alphabet a = {0};
        char low[64], text[64];
        bool utf8 = turn % 2 == 0, open = turn % 5 == 0;
        size_t from;
        random_key(low, utf8);
        random_key(text, utf8);
        if (turn % 3 == 0) memcpy(text, low, strlen(low) / 2); /* they begin alike */
        if (strcmp(low, text) >= 0) continue;
        dlpi_s3_key_set(&high, span(text));
        for (int i = 0; i < 4; i++) {
            char more[64];
            random_key(more, utf8);
            dlpi_s3_alphabet_learn(&a, span(more), 0, true);
        }
        from = open ? roll(strlen(low) + 1) : dlpi_s3_span_common(span(low), span(text));
        if (dlpi_s3_split_middle(&a, span(low), open ? NULL : &high, from, &out)) {
            found++;
            CHECK(strcmp(out.at, low) > 0 && (open || strcmp(out.at, text) < 0));
            CHECK(strlen(out.at) == out.bytes && (!utf8 || strncmp(out.at, low, from) == 0));
            CHECK(dlpi_s3_utf8_whole(out.at, out.bytes) == out.bytes);
            whole++;
        }
        if (dlpi_s3_split_behind(span(low), open ? NULL : &high, from, &out)) {
            CHECK(strcmp(out.at, low) > 0 && (open || strcmp(out.at, text) < 0));
            CHECK(out.bytes == from && strncmp(out.at, low, from - 1) == 0);
        }
    }
    CHECK(found > turns / 8 && whole == found);
}

static void split__digits__in_the_middle(void) {
    static dlpi_s3_key high, out;
    dlpi_s3_alphabet a = {0};
    dlpi_s3_alphabet_learn(&a, span("img0001"), 4, true);
    CHECK(a.n == 10 && a.has['9'] && !a.has['a']);
    dlpi_s3_key_set(&high, span("img1"));
    CHECK(dlpi_s3_split_middle(&a, span("img0001"), &high, 3, &out));
    CHECK(strcmp(out.at, "img04") >= 0 && strcmp(out.at, "img06") < 0);
    CHECK(dlpi_s3_split_behind(span("img0001"), &high, 5, &out) && strcmp(out.at, "img01") == 0);
    CHECK(!dlpi_s3_split_behind(span("img0001"), &high, 4, &out)); /* that is the end */
    CHECK(dlpi_s3_split_behind(span("img0001"), NULL, 4, &out) && strcmp(out.at, "img1") == 0);
    CHECK(!dlpi_s3_split_behind(span("\xc3\xa4"), NULL, 2, &out));
    CHECK(!dlpi_s3_split_behind(span("a~"), NULL, 2, &out));
    dlpi_s3_alphabet_learn(&a, span("beef"), 1, true);
    CHECK(a.n == 16 && a.has['a'] && !a.has['g']);
}

static void place__any_keys__in_their_order(void) {
    dlpi_s3_alphabet a = {0};
    char x[64], y[64];
    dlpi_s3_alphabet_learn(&a, span("a5Z"), 0, true);
    for (int turn = 0; turn < 20000; turn++) {
        double p, q;
        random_key(x, false), random_key(y, false);
        p = dlpi_s3_alphabet_place(&a, span(x), 0), q = dlpi_s3_alphabet_place(&a, span(y), 0);
        CHECK(p >= 0 && p <= 1 && (strcmp(x, y) < 0 ? p <= q : p >= q));
    }
}

static void utf8__what_is_no_character__is_not_whole(void) {
    static const struct {
        const char *text;
        size_t whole;
    } some[] = {{"abc", 3},
                {"a\xc3\xa4", 3},
                {"a\xc3", 1},
                {"\x80", 0},
                {"\xc0\x80", 0},
                {"\xe0\x80\x80", 0},
                {"\xe0\xa0\x80", 3},
                {"\xed\xa0\x80", 0},
                {"\xed\x9f\xbf", 3},
                {"\xf0\x80\x80\x80", 0},
                {"\xf0\x9f\x98\x80x", 5},
                {"\xf4\x90\x80\x80", 0},
                {"\xf5\x80\x80\x80", 0},
                {"x\xe2\x82", 1}};
    char text[16];
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        size_t n = strlen(some[i].text);
        CHECK(dlpi_s3_utf8_whole(some[i].text, n) == some[i].whole);
        memcpy(text, some[i].text, n);
        n = dlpi_s3_utf8_mend(text, n);
        CHECK(n >= some[i].whole && dlpi_s3_utf8_whole(text, n) == n);
    }
}

int main(void) {
    for (int i = 1; i < N_ODD; i++) CHECK(strcmp(odd[i - 1], odd[i]) < 0);
    list__pages_of_any_size__each_key_once();
    list__prefix_delimiter_start_after__as_a_model();
    list__its_requests__what_is_asked();
    list__large_pages__room_is_made();
    list__errors__the_same_page_again();
    list__faults__mended();
    list__tokens_that_lead_back__refused();
    list__keys_twice_or_in_disorder__refused();
    list__keys_not_asked_for__refused_with_the_key();
    list__pages_without_keys__not_for_ever();
    list__hostile_pages__refused();
    list__other_servers__read();
    page__cut_or_changed__no_harm();
    list__no_memory__told_and_tried_again();
    list__side_by_side_no_memory__whole();
    list__forked__the_parent_goes_on();
    list_open__bad_arguments__refused();
    list__little_room__held_back();
    split__any_range__inside_and_whole();
    split__digits__in_the_middle();
    place__any_keys__in_their_order();
    utf8__what_is_no_character__is_not_whole();
    return test_end("s3_list");
}
