#pragma once
/* tests: unit/s3/s3_http, fuzz/fuzz_s3 */
#include "s3/base.h"
#include "s3/crc.h"
#include "s3/text.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-http         ANSWERS, PARSED AT ANY BYTE
   One parser per answer (HTTP/1.1, RFC 9112; meanings by RFC 9110). Bytes are fed as they come, cut
   anywhere, and what is found does not depend on where they were cut. Whole lines are looked at in
   the caller's bytes; only a line that is cut is put together in h->line. Bodies are not copied:
   feed says where a run of them lies, or the caller reads them straight to where they belong
   (direct, took).

       begin -> status line -> header lines -> HEAD -> body, by one of ---------------> END
                 ^                 |                   none     HEAD, 204, 304, length 0
                 +---- 1xx --------+                   length   Content-Length bytes
                                                       chunks   size line, bytes, CRLF; trailers
                                                       close    until the connection ends

   Anything that is not right ends it with BAD, for good, and h->why says it: a client has nobody in
   front of it whose mistakes it must live with, and a retry costs little. In particular:

   - A line ends with CR LF. A bare LF may be accepted (9112, 2.2); it is not: no server of objects
     sends it, and where two programs disagree on line ends, one's body is the other's header. A
     bare CR, NUL and other control bytes are refused (9112, 2.2; 9110, 5.5), in trailers and chunk
     extensions too, and so are folded lines (9112, 5.2) and white space before a colon (5.1).
   - "HTTP/1.1 200" without the space that should follow is accepted (9112, 4); versions are 1.x,
     of which all but 1.0 mean 1.1 (9110, 2.5); codes are 100..599 (9110, 15).
   - 1xx are passed over, a bounded number (9110, 15.2), but for 101: nobody asked for it (15.2.2).
   - Content-Length may be said twice, if it is the same twice (9110, 8.6). With Transfer-Encoding
     it is refused (9112, 6.1 and 6.3, "ought to be handled as an error"). The only transfer
     coding is "chunked", once, and not in HTTP/1.0 (9112, 6.1).
   - Answers to HEAD, 204 and 304 have no body whatever they say (9112, 6.3).
   - A body without a length ends with the connection (9112, 6.3), h->until_close: whether that is
     all of it, the caller must know otherwise.
   - Content-Range that makes no sense is refused in a 206 (9110, 14.4), and ignored elsewhere.
   - The connection is used again as 9112, 9.3 says: "close" wins; 1.1 stays; 1.0 only with
     "keep-alive"; not after a body until close; and not if bytes follow the answer, which nobody
     asked for: they would be taken for the next one.

   Limits: a line of 8 KiB, 64 KiB of head, all 1xx included, and again of trailers and of chunk
   extensions; 16 hexadecimal digits of a chunk's size, 256 bytes of its line. */

enum { /* what feed and eof return */
       DLPI_S3_HTTP_BAD = -1,
       DLPI_S3_HTTP_MORE,
       DLPI_S3_HTTP_HEAD,
       DLPI_S3_HTTP_BODY,
       DLPI_S3_HTTP_END
};

enum {
    DLPI_S3_HTTP_LINE = 8192, /* bytes, CR LF included */
    DLPI_S3_HTTP_CHUNK_LINE = 256,
    DLPI_S3_HTTP_HEAD_BYTES = 65536,
    DLPI_S3_HTTP_INTERIMS = 16,
    DLPI_S3_HTTP_DIGITS = 16
};

enum { /* what the next byte belongs to */
       DLPI_S3_AT_STATUS,
       DLPI_S3_AT_FIELD,
       DLPI_S3_AT_LENGTH, /* a body of known length */
       DLPI_S3_AT_CLOSE,  /* a body until the connection ends */
       DLPI_S3_AT_SIZE,   /* a chunk's line */
       DLPI_S3_AT_CHUNK,
       DLPI_S3_AT_CHUNK_END, /* the CR LF after it */
       DLPI_S3_AT_TRAILER,
       DLPI_S3_AT_END,
       DLPI_S3_AT_BAD
};

typedef struct dlpi_s3_http {
    /* What the answer says; valid once the head was reported. */
    int32_t status;
    int32_t version_minor; /* of HTTP/1.x */
    bool head_done;
    bool done;       /* its last byte was used */
    bool keep_alive; /* final when done: the connection may carry another request */
    bool chunked;
    bool has_length;
    bool until_close;
    bool has_range;      /* Content-Range: range_first..range_last */
    bool is_page;        /* Content-Type: text/html */
    bool encoded;        /* Content-Encoding, other than "identity" */
    bool stored_encoded; /* x-goog-stored-content-encoding, other than "identity" */
    bool sorts;          /* Server, or the request's id, is of a store that sorts its lists */
    bool began;          /* a byte of it came */
    bool no_body;
    int64_t content_length; /* -1: not said */
    uint64_t range_first, range_last;
    uint64_t range_total;       /* UINT64_MAX: not said; a 416 may give only this */
    uint64_t etag_sum;          /* of all its bytes, also of one that is not kept; 0: none */
    uint64_t encoding_sum;      /* of Content-Encoding, but "identity"; 0: none */
    uint64_t version_sum;       /* of x-amz-version-id */
    uint64_t modified_sum;      /* of Last-Modified */
    uint64_t crc[DLPI_S3_CRCS]; /* x-amz-checksum-crc32c, -crc64nvme, -crc32, */
    bool has_crc[DLPI_S3_CRCS];
    bool crc_whole;        /* which x-amz-checksum-type says are of the whole object */
    bool crc_google;       /* crc[DLPI_S3_CRC32C] is of the whole object, as x-goog-hash says */
    int64_t date_s;        /* the server's clock, Unix time; -1: not said */
    int64_t retry_after_s; /* from the answer on; -1: not said */
    const char *why;       /* BAD: in words, static or in line; else NULL */
    /* Where it stands. */
    uint64_t left;      /* of the body, or of this chunk */
    int64_t retry_at_s; /* Retry-After as a date; -1 */
    uint32_t head_bytes, interims, extension_bytes, line_n;
    int32_t at;       /* DLPI_S3_AT_* */
    bool close, stay; /* Connection said so */
    bool range_bad, range_seen;
    /* Of these only the first bytes are cleared. */
    char etag[72]; /* with its quotes; "": none, or a longer one */
    char request_id[96];
    char location[DLPI_S3_HTTP_LINE]; /* "": none, or not printable */
    char region[64];                  /* x-amz-bucket-region */
    char line[DLPI_S3_HTTP_LINE];     /* the beginning of a line that is cut */
} dlpi_s3_http;

/* ---- characters ---- */

static bool dlpi_s3_http_is_token(unsigned char c) { /* 9110, 5.6.2 */
    static const uint32_t set[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff, 0, 0, 0, 0};
    return (set[c >> 5] >> (c & 31)) & 1;
}

/* True if a text has no control bytes but tabs. It looks at eight bytes at a time: a byte below 32
   borrows, a byte of 127 becomes zero. */
static bool dlpi_s3_http_is_text(const char *s, size_t n) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x, del;
        memcpy(&x, s + i, 8);
        del = x ^ (ones * 127);
        if (((((x - ones * 32) & ~x) | ((del - ones) & ~del)) & highs) == 0) continue;
        for (size_t k = i; k < i + 8; k++)
            if (((unsigned char)s[k] < 32 && s[k] != '\t') || s[k] == 127) return false;
    }
    for (; i < n; i++)
        if (((unsigned char)s[i] < 32 && s[i] != '\t') || s[i] == 127) return false;
    return true;
}

/* True if the n bytes at s are word, which is in lower case; s may be in any case. */
static bool dlpi_s3_http_is(const char *s, const char *word, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c | 32);
        if (c != word[i]) return false;
    }
    return true;
}

/* Take the next element off a comma-separated list, *s (9110, 5.6.1). False: there is none. */
static bool dlpi_s3_http_element(const char **s, size_t *n, const char **element, size_t *length) {
    while (*n > 0) {
        const char *comma = memchr(*s, ',', *n);
        *element = *s;
        *length = comma ? (size_t)(comma - *s) : *n;
        *s += *length + (comma != NULL);
        *n -= *length + (comma != NULL);
        dlpi_s3_trim(element, length);
        if (*length > 0) return true;
    }
    return false;
}

/* ---- header fields ---- */

/* Refuse the answer, for good. Returns DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_bad(dlpi_s3_http *h, const char *why) {
    h->at = DLPI_S3_AT_BAD;
    h->keep_alive = false;
    h->why = why;
    return DLPI_S3_HTTP_BAD;
}

/* What to do about all of them. */
static const char dlpi_s3_http_cure[] = "; check endpoint and proxy, which must speak HTTP/1.1";

/* Keep a value that fits, else "". */
static void dlpi_s3_http_keep(char *to, size_t size, const char *s, size_t n) {
    to[0] = 0;
    if (n >= size) return;
    memcpy(to, s, n);
    to[n] = 0;
}

/* Keep as much of a value as fits, printable, to show it. */
static void dlpi_s3_http_keep_shown(char *to, size_t size, const char *s, size_t n) {
    if (n >= size) n = size - 1;
    for (size_t i = 0; i < n; i++) to[i] = s[i] > 32 && s[i] < 127 ? s[i] : '?';
    to[n] = 0;
}

/* Refuse an answer for the value s of a header; must: what it has to be. h->line, which is not
   needed any more, gets the message. Returns BAD. */
DLPI_COLD static int dlpi_s3_http_bad_value(dlpi_s3_http *h, const char *name, const char *s,
                                            size_t n, const char *must) {
    char said[32];
    dlpi_s3_http_keep_shown(said, sizeof said, s, n);
    snprintf(h->line, sizeof h->line, "%s is \"%s\", must be %s", name, said, must);
    return dlpi_s3_http_bad(h, h->line);
}

static void dlpi_s3_http_keep_location(dlpi_s3_http *h, const char *s, size_t n) {
    h->location[0] = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= 32 || s[i] >= 127) return;
    dlpi_s3_http_keep(h->location, sizeof h->location, s, n);
}

/* Return the FNV-1a hash of a value, which tells two values apart that are not kept. */
static uint64_t dlpi_s3_http_sum(const char *s, size_t n) {
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ (unsigned char)s[i]) * 1099511628211u;
    return sum;
}

static void dlpi_s3_http_keep_etag(dlpi_s3_http *h, const char *s, size_t n) {
    h->etag_sum = dlpi_s3_http_sum(s, n);
    dlpi_s3_http_keep(h->etag, sizeof h->etag, s, n);
}

static void dlpi_s3_http_keep_region(dlpi_s3_http *h, const char *s, size_t n) {
    h->region[0] = 0;
    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-') return;
    dlpi_s3_http_keep(h->region, sizeof h->region, s, n);
}

/* Take a Content-Length, which may be a list of equal numbers. Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_on_length(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    uint64_t x;
    if (n == 0) return dlpi_s3_http_bad(h, "Content-Length is empty");
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (!dlpi_s3_decimal(one, length, &x))
            return dlpi_s3_http_bad_value(h, "Content-Length", one, length, "a number below 2^63");
        if (h->has_length && h->content_length != (int64_t)x)
            return dlpi_s3_http_bad_value(h, "a second Content-Length", one, length,
                                          "as the first");
        h->has_length = true;
        h->content_length = (int64_t)x;
    }
    return h->has_length ? 0 : dlpi_s3_http_bad(h, "Content-Length is empty");
}

static int dlpi_s3_http_on_coding(dlpi_s3_http *h, const char *s, size_t n) {
    if (h->chunked || n != 7 || !dlpi_s3_http_is(s, "chunked", 7))
        return dlpi_s3_http_bad_value(h, "Transfer-Encoding", s, n, "chunked, once");
    h->chunked = true;
    return 0;
}

/* Take a Connection field: note if the server closes the connection, or keeps it. */
static void dlpi_s3_http_on_connection(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (length == 5 && dlpi_s3_http_is(one, "close", 5)) h->close = true;
        if (length == 10 && dlpi_s3_http_is(one, "keep-alive", 10)) h->stay = true;
    }
}

/* True if a list of encodings has another one than "identity". */
static bool dlpi_s3_http_encodes(const char *s, size_t n) {
    const char *one;
    size_t length;
    while (dlpi_s3_http_element(&s, &n, &one, &length))
        if (length != 8 || !dlpi_s3_http_is(one, "identity", 8)) return true;
    return false;
}

static void dlpi_s3_http_on_encoding(dlpi_s3_http *h, const char *s, size_t n) {
    if (!dlpi_s3_http_encodes(s, n)) return;
    h->encoded = true;
    h->encoding_sum = h->encoding_sum * 31 + dlpi_s3_http_sum(s, n);
}

/* Parse "bytes 0-9/100", or with a star for the total, or for first and last (9110, 14.4). Each
   number that a star replaces is UINT64_MAX. Returns false if it is no such text. */
static bool dlpi_s3_http_range(const char *s, size_t n, uint64_t *first, uint64_t *last,
                               uint64_t *total) {
    const char *slash, *dash;
    size_t before;
    if (n < 6 || !dlpi_s3_http_is(s, "bytes ", 6)) return false;
    s += 6;
    n -= 6;
    if ((slash = memchr(s, '/', n)) == NULL) return false;
    before = (size_t)(slash - s);
    *total = UINT64_MAX;
    if (n - before != 2 || slash[1] != '*')
        if (!dlpi_s3_decimal(slash + 1, n - before - 1, total)) return false;
    if (before == 1 && s[0] == '*') {
        *first = *last = UINT64_MAX;
        return *total != UINT64_MAX;
    }
    if ((dash = memchr(s, '-', before)) == NULL) return false;
    return dlpi_s3_decimal(s, (size_t)(dash - s), first) &&
           dlpi_s3_decimal(dash + 1, (size_t)(slash - dash) - 1, last) && *first <= *last &&
           *last < *total;
}

/* Take a Content-Range. If it is not valid, or differs from an earlier one, range_bad is set. */
static void dlpi_s3_http_on_range(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t first, last, total;
    if (!dlpi_s3_http_range(s, n, &first, &last, &total)) {
        h->range_bad = true;
        return;
    }
    if (h->range_seen &&
        (h->range_first != first || h->range_last != last || h->range_total != total))
        h->range_bad = true;
    h->range_seen = true;
    h->has_range = first != UINT64_MAX;
    h->range_first = first;
    h->range_last = last;
    h->range_total = total;
}

/* True if Server names a store that lists keys in the order of their bytes: Amazon's, Google's,
   Cloudflare's, MinIO or Ceph. */
static bool dlpi_s3_http_server_sorts(const char *s, size_t n) {
    static const struct {
        const char *name;
        bool version; /* '/' or a blank may follow, and what release it is */
    } all[] = {{"AmazonS3", false},
               {"UploadServer", false},
               {"cloudflare", false},
               {"MinIO", true},
               {"Ceph Object Gateway", true}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t k = strlen(all[i].name);
        if (n < k || memcmp(s, all[i].name, k) != 0) continue;
        if (n == k || (all[i].version && (s[k] == '/' || s[k] == ' '))) return true;
    }
    return false;
}

/* True if a request's id is one of Ceph's, whose older releases name no Server: "tx", 21 digits, 10
   digits, some digits and the zone's name, with '-' between them. Digits are hexadecimal. */
static bool dlpi_s3_http_id_sorts(const char *s, size_t n) {
    static const size_t want[] = {21, 10, 0};
    size_t at = 2;
    if (n < 2 || memcmp(s, "tx", 2) != 0) return false;
    for (int i = 0; i < 3; i++) {
        size_t from = at;
        while (at < n && ((s[at] >= '0' && s[at] <= '9') || (s[at] >= 'a' && s[at] <= 'f'))) at++;
        if (at == from || (want[i] > 0 && at - from != want[i])) return false;
        if (at == n || s[at++] != '-') return false;
    }
    return at < n;
}

static void dlpi_s3_http_on_id(dlpi_s3_http *h, const char *s, size_t n) {
    h->sorts = h->sorts || dlpi_s3_http_id_sorts(s, n);
    dlpi_s3_http_keep_shown(h->request_id, sizeof h->request_id, s, n);
}

/* Take a Retry-After, which is a number of seconds or a date. */
static void dlpi_s3_http_on_retry(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t x;
    if (dlpi_s3_decimal(s, n, &x))
        h->retry_after_s = (int64_t)x;
    else
        h->retry_at_s = dlpi_s3_time_http(s, n);
}

/* Read the CRC32C out of "crc32c=AAAAAA==,md5=..."; its line may come once for each of them. */
static void dlpi_s3_http_on_hash(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    uint64_t crc;
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (length < 7 || !dlpi_s3_http_is(one, "crc32c=", 7)) continue;
        if (!dlpi_s3_base64_number(one + 7, length - 7, 4, &crc)) continue;
        h->crc[DLPI_S3_CRC32C] = crc;
        h->has_crc[DLPI_S3_CRC32C] = h->crc_google = true;
    }
}

/* True if the head tells a checksum of this kind that is of the whole object, or of a whole part as
   it was uploaded. */
static bool dlpi_s3_http_tells(const dlpi_s3_http *h, int kind) {
    return h->has_crc[kind] && (h->crc_whole || (kind == DLPI_S3_CRC32C && h->crc_google));
}

/* Take in one header field, whose name has k bytes. Returns 0 or BAD. */
static int dlpi_s3_http_on_field(dlpi_s3_http *h, const char *name, size_t k, const char *s,
                                 size_t n) {
#define DLPI_S3_NAMED(word) (k == sizeof word - 1 && dlpi_s3_http_is(name, word, k))
    if (DLPI_S3_NAMED("content-length")) return dlpi_s3_http_on_length(h, s, n);
    if (DLPI_S3_NAMED("transfer-encoding")) return dlpi_s3_http_on_coding(h, s, n);
    if (DLPI_S3_NAMED("etag"))
        dlpi_s3_http_keep_etag(h, s, n);
    else if (DLPI_S3_NAMED("date"))
        h->date_s = dlpi_s3_time_http(s, n);
    else if (DLPI_S3_NAMED("location"))
        dlpi_s3_http_keep_location(h, s, n);
    else if (DLPI_S3_NAMED("connection"))
        dlpi_s3_http_on_connection(h, s, n);
    else if (DLPI_S3_NAMED("retry-after"))
        dlpi_s3_http_on_retry(h, s, n);
    else if (DLPI_S3_NAMED("content-range"))
        dlpi_s3_http_on_range(h, s, n);
    else if (DLPI_S3_NAMED("last-modified"))
        h->modified_sum = dlpi_s3_http_sum(s, n);
    else if (DLPI_S3_NAMED("server"))
        h->sorts = h->sorts || dlpi_s3_http_server_sorts(s, n);
    else if (DLPI_S3_NAMED("content-encoding"))
        dlpi_s3_http_on_encoding(h, s, n);
    else if (DLPI_S3_NAMED("content-type"))
        h->is_page = n >= 9 && dlpi_s3_http_is(s, "text/html", 9);
    else if (DLPI_S3_NAMED("x-amz-request-id"))
        dlpi_s3_http_on_id(h, s, n);
    else if (!h->request_id[0] &&
             (DLPI_S3_NAMED("x-guploader-uploadid") || DLPI_S3_NAMED("x-ms-request-id") ||
              DLPI_S3_NAMED("x-amz-cf-id")))
        dlpi_s3_http_keep_shown(h->request_id, sizeof h->request_id, s, n);
    else if (DLPI_S3_NAMED("x-amz-version-id"))
        h->version_sum = dlpi_s3_http_sum(s, n);
    else if (DLPI_S3_NAMED("x-amz-bucket-region"))
        dlpi_s3_http_keep_region(h, s, n);
    else if (DLPI_S3_NAMED("x-amz-checksum-type"))
        h->crc_whole = n == 11 && dlpi_s3_http_is(s, "full_object", 11);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc32c") && !h->crc_google)
        h->has_crc[DLPI_S3_CRC32C] = dlpi_s3_base64_number(s, n, 4, &h->crc[DLPI_S3_CRC32C]);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc32"))
        h->has_crc[DLPI_S3_CRC32] = dlpi_s3_base64_number(s, n, 4, &h->crc[DLPI_S3_CRC32]);
    else if (DLPI_S3_NAMED("x-goog-hash"))
        dlpi_s3_http_on_hash(h, s, n);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc64nvme"))
        h->has_crc[DLPI_S3_CRC64NVME] = dlpi_s3_base64_number(s, n, 8, &h->crc[DLPI_S3_CRC64NVME]);
    else if (DLPI_S3_NAMED("x-goog-stored-content-encoding"))
        h->stored_encoded = dlpi_s3_http_encodes(s, n);
    return 0;
#undef DLPI_S3_NAMED
}

/* Parse a line of the head or of trailers, which mean nothing (9110, 6.5). Returns 0 or BAD. */
static int dlpi_s3_http_field(dlpi_s3_http *h, const char *s, size_t n) {
    const char *value = s;
    size_t k = 0;
    while (k < n && dlpi_s3_http_is_token((unsigned char)s[k])) k++;
    if (k == 0 && (s[0] == ' ' || s[0] == '\t'))
        return dlpi_s3_http_bad(h, "a header line goes on in the next (folded)");
    if (k == 0 || k == n || s[k] != ':')
        return dlpi_s3_http_bad(h, "a header line has no name and colon");
    if (h->at == DLPI_S3_AT_TRAILER) return 0;
    value += k + 1;
    n -= k + 1;
    dlpi_s3_trim(&value, &n);
    return dlpi_s3_http_on_field(h, s, k, value, n);
}

/* ---- lines ---- */

/* Clear what a head tells, for the next head: also after a 1xx. */
static void dlpi_s3_http_clear(dlpi_s3_http *h) {
    h->chunked = h->has_length = h->has_range = h->encoded = h->stored_encoded = false;
    h->close = h->stay = h->range_bad = h->range_seen = h->crc_whole = h->is_page = false;
    h->crc_google = h->sorts = false;
    memset(h->has_crc, 0, sizeof h->has_crc);
    h->content_length = h->date_s = h->retry_after_s = h->retry_at_s = -1;
    h->range_first = h->range_last = h->range_total = UINT64_MAX;
    h->etag_sum = h->encoding_sum = h->version_sum = h->modified_sum = 0;
    h->etag[0] = h->request_id[0] = h->location[0] = h->region[0] = 0;
    h->at = DLPI_S3_AT_STATUS;
}

/* Take the status line of n bytes. Header fields follow. Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_status(dlpi_s3_http *h, const char *s, size_t n) {
    h->version_minor = n < 12 ? -1 : (int32_t)dlpi_s3_number(s + 7, 1);
    h->status = n < 12 ? -1 : (int32_t)dlpi_s3_number(s + 9, 3);
    if (h->version_minor < 0 || h->status < 0 || s[8] != ' ' || (n > 12 && s[12] != ' '))
        return dlpi_s3_http_bad(h, "the status line is not HTTP/1.x and a number");
    if (h->status < 100 || h->status > 599)
        return dlpi_s3_http_bad_value(h, "the status", s + 9, 3, "100..599");
    h->at = DLPI_S3_AT_FIELD;
    return 0;
}

/* Turn a Retry-After date into seconds from now, by the server's clock if it tells it. */
static void dlpi_s3_http_retry(dlpi_s3_http *h) {
    int64_t now = h->date_s >= 0 ? h->date_s : dlpi_s3_real_s();
    if (h->retry_at_s < 0 || h->retry_after_s >= 0) return;
    h->retry_after_s = h->retry_at_s > now ? h->retry_at_s - now : 0;
}

/* Find out how the body ends (9112, 6.3), and whether the connection stays (9112, 9.3). */
static void dlpi_s3_http_frame(dlpi_s3_http *h) {
    bool lies = h->status == 204 && (h->chunked || h->content_length > 0);
    h->no_body = h->no_body || h->status == 204 || h->status == 304;
    h->until_close = !h->no_body && !h->chunked && !h->has_length;
    h->keep_alive = !h->close && (h->version_minor > 0 || h->stay) && !h->until_close && !lies;
    h->left = h->has_length && !h->no_body ? (uint64_t)h->content_length : 0;
    h->at = h->until_close              ? DLPI_S3_AT_CLOSE
            : h->chunked && !h->no_body ? DLPI_S3_AT_SIZE
            : h->left                   ? DLPI_S3_AT_LENGTH
                                        : DLPI_S3_AT_END;
    h->done = h->at == DLPI_S3_AT_END;
    h->head_done = true;
}

/* Judge a head that is whole. Returns HEAD; 0 after a 1xx: another head follows; or BAD. */
static int dlpi_s3_http_head_end(dlpi_s3_http *h) {
    if (h->status == 101)
        return dlpi_s3_http_bad(h, "the answer is 101, and no other protocol was asked for");
    if (h->status < 200) {
        if (++h->interims > DLPI_S3_HTTP_INTERIMS)
            return dlpi_s3_http_bad(h, "more than 16 answers of 1xx");
        dlpi_s3_http_clear(h);
        return 0;
    }
    if (h->chunked && h->has_length)
        return dlpi_s3_http_bad(h, "the answer has both Content-Length and Transfer-Encoding");
    if (h->chunked && h->version_minor == 0)
        return dlpi_s3_http_bad(h, "the answer has Transfer-Encoding, but is HTTP/1.0");
    if (h->status == 206 && h->range_bad)
        return dlpi_s3_http_bad(h, "the answer is 206, but its Content-Range is damaged");
    if (h->range_bad) h->has_range = false;
    if (h->range_bad) h->range_first = h->range_last = h->range_total = UINT64_MAX;
    dlpi_s3_http_retry(h);
    dlpi_s3_http_frame(h);
    return DLPI_S3_HTTP_HEAD;
}

/* Parse a chunk's line: hexadecimal digits, perhaps extensions (9112, 7.1). Returns 0 or BAD. */
static int dlpi_s3_http_size(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t size = 0;
    size_t k = 0, digits;
    for (; k < n && k <= DLPI_S3_HTTP_DIGITS && dlpi_s3_hex_digit(s[k]) >= 0; k++)
        size = size << 4 | (uint64_t)dlpi_s3_hex_digit(s[k]); /* beyond 16 digits it is refused */
    digits = k;
    if (digits == 0) return dlpi_s3_http_bad(h, "a chunk of the body has no size");
    if (digits > DLPI_S3_HTTP_DIGITS || size > (uint64_t)INT64_MAX)
        return dlpi_s3_http_bad(h, "a chunk's size is not below 2^63");
    h->extension_bytes += (uint32_t)(n - digits);
    if (h->extension_bytes > DLPI_S3_HTTP_HEAD_BYTES)
        return dlpi_s3_http_bad(h, "chunk extensions have more than 64 KiB");
    while (k < n && (s[k] == ' ' || s[k] == '\t')) k++;
    if (digits < n && (k == n || s[k] != ';'))
        return dlpi_s3_http_bad(h, "a chunk's size is not a number");
    h->left = size;
    h->at = size ? DLPI_S3_AT_CHUNK : DLPI_S3_AT_TRAILER;
    h->head_bytes = 0; /* of the trailers */
    return 0;
}

/* Parse a whole line, its LF included. Returns 0 to go on, HEAD or BAD. */
static int dlpi_s3_http_line(dlpi_s3_http *h, const char *s, size_t n) {
    if (n < 2 || s[n - 2] != '\r') return dlpi_s3_http_bad(h, "a line ends without CR");
    if (!dlpi_s3_http_is_text(s, n - 2)) return dlpi_s3_http_bad(h, "a control byte in a line");
    if (h->at == DLPI_S3_AT_SIZE) return dlpi_s3_http_size(h, s, n - 2);
    h->head_bytes += (uint32_t)n;
    if (h->head_bytes > DLPI_S3_HTTP_HEAD_BYTES)
        return dlpi_s3_http_bad(h, "header lines have more than 64 KiB");
    if (h->at == DLPI_S3_AT_STATUS) return dlpi_s3_http_status(h, s, n - 2);
    if (n > 2) return dlpi_s3_http_field(h, s, n - 2);
    if (h->at == DLPI_S3_AT_FIELD) return dlpi_s3_http_head_end(h);
    h->at = DLPI_S3_AT_END;
    h->done = true;
    return 0;
}

/* True if a status line may begin with these bytes. It is asked before the line is whole, because
   what is not HTTP may never send a line's end. */
static bool dlpi_s3_http_begins(const dlpi_s3_http *h, const char *s, size_t n) {
    static const char words[] = "HTTP/1.";
    for (size_t i = h->line_n; i < 7 && i < h->line_n + n; i++)
        if (s[i - h->line_n] != words[i]) return false;
    return true;
}

/* Take a line, or keep its beginning; *used counts it. Returns 0 to go on, or HEAD, or BAD. */
static int dlpi_s3_http_take(dlpi_s3_http *h, const char *s, size_t n, size_t *used) {
    size_t most = h->at == DLPI_S3_AT_SIZE ? DLPI_S3_HTTP_CHUNK_LINE : DLPI_S3_HTTP_LINE;
    size_t look = n < most - h->line_n ? n : most - h->line_n;
    const char *lf = memchr(s, '\n', look);
    if (lf) look = (size_t)(lf - s) + 1;
    if (h->at == DLPI_S3_AT_STATUS && !dlpi_s3_http_begins(h, s, look))
        return dlpi_s3_http_bad(h,
                                "the answer does not begin with HTTP/1 (https, or another port?)");
    *used += look;
    if (lf && h->line_n == 0) return dlpi_s3_http_line(h, s, look);
    memcpy(h->line + h->line_n, s, look);
    h->line_n += (uint32_t)look;
    if (lf) {
        look = h->line_n;
        h->line_n = 0;
        return dlpi_s3_http_line(h, h->line, look);
    }
    if (h->line_n < most) return 0;
    return dlpi_s3_http_bad(h, h->at == DLPI_S3_AT_SIZE ? "a chunk's line is longer than 256 bytes"
                                                        : "a header line is longer than 8 KiB");
}

/* ---- bodies ---- */

/* Return how many body bytes may be read straight to their place before feed is called again; 0:
   feed must see what comes. */
static uint64_t dlpi_s3_http_direct(const dlpi_s3_http *h) {
    if (h->at == DLPI_S3_AT_LENGTH || h->at == DLPI_S3_AT_CHUNK) return h->left;
    return h->at == DLPI_S3_AT_CLOSE ? (uint64_t)INT64_MAX : 0;
}

/* Note that n bytes were read straight (dlpi_s3_http_direct). Returns MORE, END, BAD: too many. */
static int dlpi_s3_http_took(dlpi_s3_http *h, uint64_t n) {
    if (n > dlpi_s3_http_direct(h)) return dlpi_s3_http_bad(h, "more was read than the answer has");
    if (h->at == DLPI_S3_AT_CLOSE || n == 0) return DLPI_S3_HTTP_MORE;
    h->left -= n;
    if (h->left > 0) return DLPI_S3_HTTP_MORE;
    h->done = h->at == DLPI_S3_AT_LENGTH;
    h->at = h->done ? DLPI_S3_AT_END : DLPI_S3_AT_CHUNK_END;
    return h->done ? DLPI_S3_HTTP_END : DLPI_S3_HTTP_MORE;
}

/* Take one byte of the line end behind a chunk. The size of the next chunk follows the second byte.
   Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_chunk_end(dlpi_s3_http *h, char c) {
    if (c != "\r\n"[h->line_n]) return dlpi_s3_http_bad(h, "a chunk does not end where it should");
    h->line_n++;
    if (h->line_n < 2) return 0;
    h->line_n = 0;
    h->at = DLPI_S3_AT_SIZE;
    return 0;
}

/* Begin an answer. no_body: the request was HEAD. */
static void dlpi_s3_http_begin(dlpi_s3_http *h, bool no_body) {
    memset(h, 0, offsetof(dlpi_s3_http, etag));
    h->no_body = no_body;
    dlpi_s3_http_clear(h);
}

/* Parse n bytes more; *used of them belong to the answer and need not be offered again. Returns
   MORE: all are used; HEAD: the head is whole, once, before any byte of the body is used; BODY: a
   run of the body is at *body, inside the bytes given; END: the answer is whole, the rest belongs
   to nobody; or BAD. Call again, with the rest, until MORE, END or BAD. */
static int dlpi_s3_http_feed(dlpi_s3_http *h, const char *bytes, size_t n, size_t *used,
                             const char **body, size_t *body_n) {
    int rc = 0;
    *used = *body_n = 0;
    *body = NULL;
    h->began = h->began || n > 0;
    while (rc == 0) {
        size_t left = n - *used;
        uint64_t direct = dlpi_s3_http_direct(h);
        if (h->at == DLPI_S3_AT_BAD) return DLPI_S3_HTTP_BAD;
        if (h->at == DLPI_S3_AT_END) {
            h->keep_alive = h->keep_alive && left == 0;
            return DLPI_S3_HTTP_END;
        }
        if (left == 0) return DLPI_S3_HTTP_MORE;
        if (direct) {
            *body = bytes + *used;
            *body_n = left < direct ? left : (size_t)direct;
            *used += *body_n;
            dlpi_s3_http_took(h, *body_n);
            return DLPI_S3_HTTP_BODY;
        }
        if (h->at == DLPI_S3_AT_CHUNK_END)
            rc = dlpi_s3_http_chunk_end(h, bytes[(*used)++]);
        else
            rc = dlpi_s3_http_take(h, bytes + *used, left, used);
    }
    return rc;
}

/* Take in that the connection has ended. Returns END if the answer is whole, else BAD. */
static int dlpi_s3_http_eof(dlpi_s3_http *h) {
    if (h->at == DLPI_S3_AT_CLOSE) {
        h->at = DLPI_S3_AT_END;
        h->done = true;
    }
    if (h->at == DLPI_S3_AT_END) {
        h->keep_alive = false;
        return DLPI_S3_HTTP_END;
    }
    if (h->at == DLPI_S3_AT_BAD) return DLPI_S3_HTTP_BAD;
    return dlpi_s3_http_bad(h, h->head_done ? "the connection ended inside the body"
                               : h->began   ? "the connection ended inside the head"
                                            : "the connection ended before an answer");
}
