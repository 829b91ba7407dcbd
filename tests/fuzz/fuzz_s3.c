/* What comes from outside, and is hostile until it was looked at: answers of HTTP, lists and errors
   in XML, JSON, profiles, URLs, escaped names, dates, commands. Whatever the bytes, nothing is read
   or written outside, and what comes out is whole: the same however the bytes are cut, bounded,
   terminated, and such that reading it again gives the same.

   FUZZ_SECONDS   how long at random (0.5; SHORT=1: 0.3); FUZZ_SEED: where to begin (1)
   FUZZ_SAVE      a file that holds the case being run: for the corpus, if it ends badly
   fuzz_s3 FILE   runs that one

   A case is a file of tests/fuzz/corpus/s3: its first line names the kind, the rest are its bytes.
   With FUZZ_COVERAGE (make fuzz) code that was never reached makes a case worth mutating, and
   manifests are read, too, which need dlpipe.h. */
#define DLPIPE_IMPLEMENTATION
#ifdef FUZZ_COVERAGE
#include "../../dlpipe.h"
#endif
#include "../../dlpipe_s3.h"
#include <dirent.h>
#include <inttypes.h>
#include "../rig/check.h"

#define CORPUS "tests/fuzz/corpus/s3"

enum { MOST = 6000 }; /* bytes of a case; more than a chunk's line, about that of a header line */

static uint64_t state = 1;

static size_t roll(size_t n) { return (size_t)(dlpi_s3_random(&state) % n); }

/* Memory of just this size, so that a step past its end is seen. */
static char *own(const char *bytes, size_t n, bool terminated) {
    char *at = malloc(n + (terminated || n == 0));
    if (at == NULL) abort();
    memcpy(at, bytes, n);
    if (terminated) at[n] = 0;
    return at;
}

static bool same(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

static uint64_t digest(uint64_t h, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211u;
    return h;
}

/* ---- HTTP ---- */

typedef struct walk {
    dlpi_s3_http h;
    int rc, heads;
    uint64_t body, body_n, head;
    size_t over;
} walk;

static uint64_t head_digest(const dlpi_s3_http *h) {
    int64_t n[] = {h->status,
                   h->version_minor,
                   h->chunked,
                   h->has_length,
                   h->until_close,
                   h->has_range,
                   h->encoded,
                   h->content_length,
                   (int64_t)h->range_first,
                   (int64_t)h->range_last,
                   (int64_t)h->range_total,
                   h->date_s,
                   h->retry_after_s,
                   h->has_crc[DLPI_S3_CRC32C],
                   h->has_crc[DLPI_S3_CRC64NVME],
                   h->crc_whole};
    uint64_t d = digest(1, n, sizeof n);
    d = digest(d, h->etag, strlen(h->etag));
    d = digest(d, h->request_id, strlen(h->request_id));
    d = digest(d, h->location, strlen(h->location));
    return digest(d, h->region, strlen(h->region));
}

static void head_is_sane(const dlpi_s3_http *h) {
    CHECK(h->status >= 200 && h->status <= 599);
    CHECK(h->has_length == (h->content_length >= 0));
    CHECK(!(h->has_length && h->chunked) && !(h->until_close && h->keep_alive));
    CHECK(!h->has_range || (h->range_first <= h->range_last && h->range_last < h->range_total));
    CHECK(h->range_last <= (uint64_t)INT64_MAX || h->range_last == UINT64_MAX);
    CHECK(memchr(h->etag, 0, sizeof h->etag) && memchr(h->request_id, 0, sizeof h->request_id));
    CHECK(memchr(h->location, 0, sizeof h->location) && memchr(h->region, 0, sizeof h->region));
    CHECK(h->date_s >= -1 && h->retry_after_s >= -1);
    CHECK(!h->has_crc[DLPI_S3_CRC32C] || h->crc[DLPI_S3_CRC32C] <= UINT32_MAX);
}

static void http_give(walk *w, const char *bytes, size_t n) {
    char *p = own(bytes, n, false);
    size_t at = 0;
    int rc = DLPI_S3_HTTP_MORE;
    if (w->rc != DLPI_S3_HTTP_MORE) w->over += n;
    for (size_t turns = 0; w->rc == DLPI_S3_HTTP_MORE; turns++) {
        const char *body;
        size_t used, body_n;
        rc = dlpi_s3_http_feed(&w->h, p + at, n - at, &used, &body, &body_n);
        if (used > n - at || turns > 2 * n + 4) abort();
        if (rc == DLPI_S3_HTTP_BODY) {
            if (!w->heads || body < p + at || body + body_n != p + at + used) abort();
            w->body = digest(w->body, body, body_n);
            w->body_n += body_n;
        }
        at += used;
        if (rc == DLPI_S3_HTTP_HEAD) {
            w->heads++;
            w->head = head_digest(&w->h);
            head_is_sane(&w->h);
        }
        if (rc == DLPI_S3_HTTP_END || rc == DLPI_S3_HTTP_BAD) {
            w->rc = rc;
            w->over += n - at;
        }
        if (rc == DLPI_S3_HTTP_MORE) {
            if (at != n) abort();
            break;
        }
    }
    free(p);
}

/* How: 0 whole, 1 byte by byte, 2 in random pieces, 3 with what may go past the parser past it. */
static void http_walk(walk *w, const char *s, size_t n, bool head, int how) {
    size_t at = 0, k, most = 1 + roll(n < 60 ? 20 : n / 3);
    memset(w, 0, offsetof(walk, rc));
    w->rc = w->heads = 0;
    w->body = w->body_n = w->head = 0;
    w->over = 0;
    dlpi_s3_http_begin(&w->h, head);
    while (at < n) {
        uint64_t direct = dlpi_s3_http_direct(&w->h);
        k = how == 0 ? n : how == 1 ? 1 : 1 + roll(most);
        if (k > n - at) k = n - at;
        if (how == 3 && direct && w->rc == 0 && roll(2)) {
            if (!w->heads) abort();
            if (k > direct) k = (size_t)direct;
            w->body = digest(w->body, s + at, k);
            w->body_n += k;
            CHECK(dlpi_s3_http_took(&w->h, k) ==
                  (w->h.done ? DLPI_S3_HTTP_END : DLPI_S3_HTTP_MORE));
        } else {
            http_give(w, s + at, k);
        }
        at += k;
    }
    http_give(w, s, 0);
    if (w->rc == DLPI_S3_HTTP_MORE) w->rc = dlpi_s3_http_eof(&w->h);
}

static bool same_words(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void run_http_as(const char *s, size_t n, bool head) {
    static walk first, w;
    http_walk(&first, s, n, head, 0);
    CHECK(first.rc == DLPI_S3_HTTP_END || first.rc == DLPI_S3_HTTP_BAD);
    CHECK((first.rc == DLPI_S3_HTTP_BAD) == (first.h.why != NULL));
    CHECK(first.heads == 1 || (first.heads == 0 && first.rc == DLPI_S3_HTTP_BAD));
    if (first.rc == DLPI_S3_HTTP_END) {
        bool none = head || first.h.status == 204 || first.h.status == 304;
        CHECK(first.h.done && head_digest(&first.h) == first.head);
        CHECK(!first.h.has_length || first.body_n == (none ? 0 : (uint64_t)first.h.content_length));
        CHECK(!none || first.body_n == 0);
    }
    for (int how = 1; how < 6; how++) {
        http_walk(&w, s, n, head, how < 4 ? how : 2 + how % 2);
        CHECK(w.rc == first.rc && w.heads == first.heads && w.head == first.head);
        CHECK(same_words(w.h.why, first.h.why));
        CHECK(w.body_n == first.body_n && w.body == first.body);
        CHECK(w.rc == DLPI_S3_HTTP_BAD || w.over == first.over);
        if (first.over == 0)
            CHECK(w.h.keep_alive == first.h.keep_alive);
        else
            CHECK(!first.h.keep_alive);
    }
}

static void run_http(const char *s, size_t n) { run_http_as(s, n, false); }
static void run_head(const char *s, size_t n) { run_http_as(s, n, true); }

/* ---- XML and JSON ---- */

static const size_t sizes[] = {1, 2, 7, 64, 2 * MOST};
static char outs[5][2 * MOST];

/* What fits is the beginning of what there is. */
static void prefixes(void) {
    for (size_t k = 0; k < 5; k++) {
        size_t n = strnlen(outs[k], sizes[k]);
        CHECK(n < sizes[k]);
        if (k < 4) CHECK(strncmp(outs[k], outs[4], n) == 0);
    }
}

static void run_xml(const char *s, size_t n) {
    static const char *const paths[] = {"Error/Code", "Error", "ListBucketResult/Contents/Key",
                                        "a"};
    dlpi_s3_xml x;
    int what = 1, depth = 0;
    dlpi_s3_xml_begin(&x, s, n);
    for (size_t turns = 0; what > DLPI_S3_XML_END; turns++) {
        dlpi_s3_span t;
        what = dlpi_s3_xml_next(&x);
        if (turns > 2 * n + 2 || x.at < s || x.at > s + n) abort();
        depth += (what == DLPI_S3_XML_OPEN) - (what == DLPI_S3_XML_CLOSE);
        if (what == DLPI_S3_XML_BAD) {
            CHECK(x.why != NULL);
            break;
        }
        CHECK(depth == x.depth && depth >= 0 && depth <= DLPI_S3_XML_DEPTH);
        if (what == DLPI_S3_XML_END) break;
        t = what == DLPI_S3_XML_OPEN || what == DLPI_S3_XML_CLOSE ? x.name : x.text;
        if (t.at < s || t.at + t.n > s + n) abort();
        if (what == DLPI_S3_XML_TEXT || what == DLPI_S3_XML_CDATA) CHECK(depth > 0);
    }
    for (int i = 0; i < 3; i++) CHECK(dlpi_s3_xml_next(&x) == what); /* it stays so */
    CHECK(what == DLPI_S3_XML_BAD || depth == 0);
    for (int i = 0; i < 4; i++) {
        bool all = false;
        for (size_t k = 0; k < 5; k++) {
            char *out = malloc(sizes[k]);
            bool whole = dlpi_s3_xml_text(s, n, paths[i], out, sizes[k]);
            CHECK(memchr(out, 0, sizes[k]) != NULL);
            memcpy(outs[k], out, sizes[k]);
            CHECK(!all || whole); /* what fitted into less fits into more */
            all = whole;
            free(out);
        }
        prefixes();
        CHECK(!dlpi_s3_xml_text(s, n, paths[i], NULL, 0));
    }
}

static void run_json(const char *s, size_t n) {
    static const char *const names[] = {"a", "AccessKeyId", "Token", "Expiration", ""};
    for (int i = 0; i < 5; i++) {
        bool whole[5];
        for (size_t k = 0; k < 5; k++) {
            char *out = malloc(sizes[k]);
            whole[k] = dlpi_s3_json_text(s, n, names[i], out, sizes[k]);
            CHECK(memchr(out, 0, sizes[k]) != NULL && (whole[k] || out[0] == 0));
            memcpy(outs[k], out, sizes[k]);
            free(out);
            if (k && whole[k - 1]) CHECK(whole[k] && strcmp(outs[k - 1], outs[k]) == 0);
        }
        CHECK(!dlpi_s3_json_text(s, n, names[i], NULL, 0));
    }
}

/* ---- profiles ---- */

typedef struct asked {
    int line;
    bool found, cut;
    char out[2 * MOST];
} asked;

static void ini_ask(asked *a, const char *s, size_t n, const char *kind, const char *section,
                    const char *name, const char *sub, size_t size) {
    dlpi_s3_ini q;
    char *text = own(s, n, false), *out = malloc(size);
    memset(&q, 0, sizeof q);
    memset(a, 0, offsetof(asked, out) + 1);
    out[0] = 0;
    q.kind = kind;
    q.section = section;
    q.name = name;
    q.sub = sub;
    q.out = out;
    q.size = size;
    q.strict_default = n % 2;
    a->line = dlpi_s3_ini_ask(&q, text, n);
    a->found = q.found;
    a->cut = q.cut;
    if (memchr(out, 0, size) == NULL) abort();
    if (!q.cut) memcpy(a->out, out, strlen(out) + 1);
    free(text);
    free(out);
}

/* The same text with every line ended by CR LF, or its last line ended. */
static size_t ini_other(const char *s, size_t n, char *to, bool cr) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (cr && s[i] == '\n') to[k++] = '\r';
        to[k++] = s[i];
    }
    if (!cr && k) to[k++] = '\n';
    return k;
}

static void run_ini(const char *s, size_t n) {
    static const char *const questions[][4] = {{"profile", "default", "region", NULL},
                                               {"profile", "p", "aws_access_key_id", NULL},
                                               {NULL, "default", "aws_secret_access_key", NULL},
                                               {"profile", "p", NULL, NULL},
                                               {"services", "here", "s3", "endpoint_url"}};
    static asked a, b;
    static char other[2 * MOST];
    size_t lines = 1;
    if (memchr(s, 0, n)) return; /* refused when the file is read */
    for (size_t i = 0; i < n; i++) lines += s[i] == '\n';
    for (int i = 0; i < 5; i++) {
        const char *const *q = questions[i];
        size_t k;
        ini_ask(&a, s, n, q[0], q[1], q[2], q[3], sizeof a.out);
        CHECK(a.line >= 0 && (size_t)a.line <= lines && !a.cut);
        CHECK(a.found || a.out[0] == 0);
        for (size_t z = 0; z < 4; z++) {
            ini_ask(&b, s, n, q[0], q[1], q[2], q[3], sizes[z]);
            CHECK(b.line == a.line && b.found == a.found);
            if (!b.cut) CHECK(strcmp(b.out, a.out) == 0);
        }
        if (memchr(s, '\r', n)) continue;
        k = ini_other(s, n, other, i % 2);
        ini_ask(&b, other, k, q[0], q[1], q[2], q[3], sizeof b.out);
        if (k % 2 == n % 2) CHECK(b.line == a.line && b.found == a.found && !strcmp(b.out, a.out));
    }
}

static void run_command(const char *s, size_t n) {
    char *text = own(s, n, true), *to = malloc(strlen(text) + 1), *argv[16];
    int k = dlpi_s3_process_split(text, to, argv, 16);
    CHECK(k >= -1 && k < 16);
    if (k >= 0) CHECK(argv[k] == NULL);
    for (int i = 0; i < k; i++) {
        if (argv[i] < to || argv[i] + strlen(argv[i]) > to + strlen(text)) abort();
        if (i > 0) CHECK(argv[i] == argv[i - 1] + strlen(argv[i - 1]) + 1);
    }
    free(text);
    free(to);
}

/* ---- URLs, names, dates ---- */

static void head_is_one(const char *head, int lines) {
    int seen = 0;
    size_t n = strlen(head);
    for (size_t i = 0; i < n; i++) {
        if (head[i] == '\r') {
            CHECK(head[i + 1] == '\n');
            seen++;
            i++;
        } else {
            CHECK((unsigned char)head[i] >= 32 && head[i] != 127);
        }
    }
    CHECK(seen == lines && n > 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0);
}

static void url_asked(const char *url) {
    static dlpi_s3_scratch scratch;
    static char longest[1024]; /* as in a config */
    dlpi_s3_ask a = {.url = longest, .method = "GET", .lines = ""};
    dlpi_s3_endpoint where;
    const char *why;
    snprintf(longest, sizeof longest, "%s", url);
    why = dlpi_s3_ask_head(&a, &scratch, &where);
    if (!why) scratch.out[scratch.out_n] = '\0';
    if (!why)
        head_is_one(scratch.out, 6);
    else
        CHECK(why[0] != 0);
}

/* The header of a proxy is one line, with whole words of base64. */
static void proxy_is_sane(const char *url) {
    dlpi_s3_proxy p;
    const char *wrong = dlpi_s3_proxy_parse(&p, url);
    size_t n = wrong ? 0 : strlen(p.header);
    if (wrong) return;
    CHECK(p.host[0] && strlen(p.host) < sizeof p.host && p.port > 0 && n < sizeof p.header);
    CHECK(n == 0 || (strncmp(p.header, "Proxy-Authorization: Basic ", 27) == 0 &&
                     strcspn(p.header, "\r\n") == n - 2 && (n - 29) % 4 == 0));
}

static void run_url(const char *s, size_t n) {
    char *url = own(s, n, true), again[1200];
    const char *why = "none";
    dlpi_s3_endpoint e, untouched, second;
    memset(&e, 0x55, sizeof e);
    untouched = e;
    if (dlpi_s3_endpoint_parse(&e, url, &why) == DLP_OK) {
        bool six = strchr(e.host, ':') != NULL;
        CHECK(why == NULL && e.port > 0 && e.host[0] && strlen(e.host) < sizeof e.host);
        CHECK(e.prefix[0] == 0 || e.prefix[0] == '/');
        CHECK(e.prefix[0] == 0 || e.prefix[strlen(e.prefix) - 1] != '/');
        CHECK(e.is_default_port == (e.port == (e.tls ? 443 : 80)));
        snprintf(again, sizeof again, "http%s://%s%s%s:%u%s", e.tls ? "s" : "", six ? "[" : "",
                 e.host, six ? "]" : "", e.port, e.prefix);
        CHECK(dlpi_s3_endpoint_parse(&second, again, &why) == DLP_OK);
        CHECK(same(&e, &second, sizeof e));
        for (const char *p = e.host; *p; p++) CHECK(*p > 32 && *p < 127 && *p != '/' && *p != '@');
        for (const char *p = e.prefix; *p; p++) CHECK(*p > 32 && *p < 127 && *p != '?');
    } else {
        CHECK(why && *why && same(&e, &untouched, sizeof e));
    }
    url_asked(url);
    proxy_is_sane(url);
    free(url);
}

/* A key, and a bucket before its first slash. */
static void run_key(const char *s, size_t n) {
    static const char *const urls[] = {"http://localhost:8000/x", "https://s3.amazonaws.com",
                                       "http://[::1]:9"};
    char *text = own(s, n, true), host[300], *path = malloc(3 * MOST + 400), *key;
    char *back = malloc(n + 1);
    size_t key_n;
    dlpi_s3_endpoint e;
    const char *why;
    int64_t got;
    n = strlen(text);
    key = memchr(text, '/', n);
    if (key)
        *key++ = 0;
    else
        key = text + n;
    key_n = strlen(key);
    for (int i = 0; i < 9; i++) {
        int style = i / 3;
        size_t prefix;
        CHECK(dlpi_s3_endpoint_parse(&e, urls[i % 3], &why) == DLP_OK);
        if (i % 2) dlpi_s3_endpoint_aws(&e, "eu-west-1");
        if (dlpi_s3_place(&e, "eu-west-1", style, text, key, host, sizeof host, path,
                          3 * MOST + 400) != DLP_OK)
            continue;
        for (const char *p = path; *p; p++) CHECK(*p > 32 && *p < 127 && *p != '?' && *p != '#');
        for (const char *p = host; *p; p++) CHECK(*p > 32 && *p < 127 && *p != '/' && *p != '@');
        prefix = strlen(path) - dlpi_s3_uri_encode(NULL, 0, key, key_n, true);
        CHECK(path[0] == '/' && prefix >= 1 && prefix <= strlen(path));
        got = dlpi_s3_uri_decode(back, n + 1, path + prefix, strlen(path + prefix), false);
        CHECK(got == (int64_t)key_n && memcmp(back, key, key_n) == 0);
    }
    free(text);
    free(path);
    free(back);
}

static void run_escaped(const char *s, size_t n) {
    char *out = malloc(n + 1), *again = malloc(3 * n + 1), *small;
    for (int plus = 0; plus < 2; plus++) {
        int64_t k = dlpi_s3_uri_decode(out, n + 1, s, n, plus), k2;
        size_t size = 1 + roll(n + 1), more;
        CHECK(k >= -1 && k <= (int64_t)n);
        if (k < 0) continue;
        CHECK(out[k] == 0);
        more = dlpi_s3_uri_encode(again, 3 * n + 1, out, (size_t)k, plus);
        CHECK(more <= 3 * (size_t)k && strlen(again) == more);
        k2 = dlpi_s3_uri_decode(out, n + 1, again, more, false);
        CHECK(k2 == k);
        small = malloc(size); /* cut at a whole character */
        CHECK(dlpi_s3_uri_encode(small, size, out, (size_t)k2, plus) == more);
        CHECK(strlen(small) < size && strncmp(small, again, strlen(small)) == 0);
        CHECK(more >= size || strlen(small) == more);
        free(small);
    }
    free(out);
    free(again);
}

static void run_date(const char *s, size_t n) {
    int64_t t[2];
    char iso[17];
    t[0] = dlpi_s3_time_http(s, n);
    t[1] = n == 0 ? -1 : dlpi_s3_time_iso(s, n);
    for (int i = 0; i < 2; i++) {
        CHECK(t[i] >= -1 && t[i] <= INT64_C(253402300800) + 86400);
        if (t[i] < 0 || t[i] > INT64_C(253402300799)) continue;
        dlpi_s3_date(t[i], iso);
        CHECK(strlen(iso) == 16 && dlpi_s3_time_iso(iso, 16) == t[i]);
    }
}

/* ---- pages of lists, redirects, manifests ---- */

static void run_list(const char *s, size_t n) {
    static dlp_s3_list l;
    static dlpi_s3_segment segment;
    const char *wrong;
    char *body = own(s, n, false);
    size_t objects = 0;
    dlp_s3_object o;
    segment.state = DLPI_S3_SEGMENT_WANTS;
    segment.pages = segment.mark = 0;
    l.most = 2;
    l.page = 1000;
    wrong = dlpi_s3_list_take(&l, &segment, body, n);
    if (wrong)
        CHECK(*wrong != 0 && segment.pages == 0 && !segment.blocks);
    else
        CHECK(segment.pages == 1 && memchr(segment.token, 0, sizeof segment.token));
    if (!wrong && segment.state == DLPI_S3_SEGMENT_WANTS)
        CHECK(segment.token[0] != 0 && segment.left >= 0);
    while (segment.blocks) {
        for (; dlpi_s3_block_take(segment.blocks, &o); objects++) {
            CHECK(o.key_bytes > 0 && strlen(o.key) == o.key_bytes && o.modified_s >= -1);
            CHECK(memchr(o.etag, 0, sizeof o.etag) && (o.is_prefix == 0 || o.bytes == 0));
            if (objects > n) abort();
        }
        dlpi_s3_list_drop_block(&l, &segment);
    }
    free(body);
}

/* A Location as the parser lets it through. */
static void run_location(const char *s, size_t n) {
    static dlp_s3 client;
    static dlp_s3_io io;
    static dlpi_s3_op op;
    char location[1024], from[32];
    const char *why;
    if (n >= sizeof location) return;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= 32 || s[i] == 127) return;
    memcpy(location, s, n);
    location[n] = 0;
    for (int tls = 0; tls < 2; tls++) {
        snprintf(from, sizeof from, "http%s://127.0.0.1:9000/p", tls ? "s" : "");
        CHECK(dlpi_s3_endpoint_parse(&client.endpoint, from, &why) == DLP_OK);
        client.has_tls = roll(2);
        io.s3 = &client;
        memset(&op, 0, sizeof op);
        if (dlpi_s3_op_redirect(&io, &op, location)) {
            CHECK(!op.moved);
            continue;
        }
        CHECK(op.moved && op.to_path[0] == '/' && strcspn(op.to_path, "?#") == strlen(op.to_path));
        CHECK(memchr(op.to_path, 0, sizeof op.to_path) && (!tls || op.to.tls));
        CHECK(!op.to.tls || client.has_tls);
        CHECK(op.foreign == (strcmp(op.to.host, "127.0.0.1") != 0 || op.to.port != 9000));
        CHECK(dlpi_s3_op_address(&io, &op) == DLP_OK && strcmp(io.path, op.to_path) == 0);
        for (const char *p = io.host; *p; p++) CHECK(*p > 32 && *p < 127 && *p != '/' && *p != '@');
    }
}

#ifdef FUZZ_COVERAGE
static void manifest_from(dlp_s3_manifest **m, const char *s, size_t n, int *rc) {
    dlp_s3_error err;
    FILE *f = n ? fmemopen((void *)(uintptr_t)s, n, "rb") : fopen("/dev/null", "rb");
    if (f == NULL || dlp_s3_manifest_open(m, NULL) != DLP_OK) abort();
    memset(&err, 0, sizeof err);
    *rc = dlpi_s3_manifest_lines(*m, f, "case", &err);
    CHECK(*rc == DLP_OK || (*rc == err.code && err.message[0]));
    fclose(f);
}

/* What is read is written so that it is read as the same. */
static void run_manifest(const char *s, size_t n) {
    dlp_s3_manifest *m, *again;
    dlp_s3_entry e;
    char *text = NULL;
    size_t bytes = 0;
    int rc, rc2;
    FILE *f;
    manifest_from(&m, s, n, &rc);
    if (rc == DLP_OK) {
        if ((f = open_memstream(&text, &bytes)) == NULL) abort();
        for (uint64_t i = 0; i < dlp_s3_manifest_count(m); i++) {
            CHECK(dlp_s3_manifest_get(m, i, &e) == DLP_OK && strlen(e.key) <= 1024 && e.key[0]);
            CHECK(e.offset == DLP_S3_WHOLE || e.offset <= INT64_MAX);
            CHECK(e.length <= INT64_MAX && e.items <= INT64_MAX);
            dlpi_s3_entry_write(&e, f);
        }
        fclose(f);
        manifest_from(&again, text, bytes, &rc2);
        CHECK(rc2 == DLP_OK && dlp_s3_manifest_id(m) == dlp_s3_manifest_id(again));
        CHECK(dlp_s3_manifest_count(m) == dlp_s3_manifest_count(again));
        dlp_s3_manifest_close(again);
        free(text);
    }
    dlp_s3_manifest_close(m);
}
#endif

/* ---- kinds ---- */

static const struct kind {
    const char *name;
    void (*run)(const char *s, size_t n);
    const char *words; /* what its texts are made of, each behind a bar */
} kinds[] = {
    {"http", run_http,
     "|HTTP/1.1 200 OK\r\n|HTTP/1.0 206 P\r\n|HTTP/1.1 100 C\r\n\r\n|HTTP/1.1 304 N\r\n|\r\n|\n|\r|"
     "\r\n\r\n|Content-Length: |Transfer-Encoding: chunked\r\n|Content-Range: bytes 0-9/10\r\n|"
     "Connection: close\r\n|ETag: \"x\"\r\n|Location: /|Retry-After: 5\r\n|Date: |: |, |0\r\n\r\n|"
     "5\r\nhello\r\n|;a=b|Content-Length: 5\r\n|x-amz-request-id: |9223372036854775807|"
     "18446744073709551616|7fffffffffffffff|ffffffffffffffff|-1|*/|/*|Content-Encoding: gzip\r\n"},
    {"head", run_head,
     "|HTTP/1.1 200 OK\r\n|\r\n|\r\n\r\n|Content-Length: 5\r\n|Transfer-Encoding: chunked\r\n|0"},
    {"xml", run_xml,
     "|<|>|</|/>|<Error>|</Error>|<Code>|</Code>|<a>|</a>|<a/>|<!--|-->|<![CDATA[|]]>|<?xml|?>|<!|"
     "&amp;|&#x41;|&#|&lt;|;|<Contents>|</Contents>|<Key>|</Key>|<ListBucketResult>|x:|='|\"|&#0;|"
     "&#1114112;|\xef\xbb\xbf|</ListBucketResult>"},
    {"json", run_json,
     "|{|}|[|]|:|,|\"|\\|\\u0041|\\ud83d\\ude00|\\ud800|\\u0000|\"a\"|\"a\":|\"AccessKeyId\":\"x\"|"
     "\"Token\":|null|true|false|-0.5e+10|1|{}|[]|[[[[[[[[| |\n|\"Expiration\":"},
    {"ini", run_ini,
     "|[|]|[default]\n|[profile p]\n|[services here]\n|=| = |#| #|;| ;|\n|\r\n| |  a = b\n|\t|"
     "region = x\n|aws_access_key_id = AKIDEXAMPLE\n|s3 =\n  endpoint_url = http://h\n|\"p\"|"
     "aws_secret_access_key=|[p]\n|profile |services "},
    {"command", run_command, "|\"|'|\\|\\\"| |\t|/bin/x|$HOME|a|\n"},
    {"url", run_url,
     "|http://|https://|HTTP://|[|]|::1|:|:80|:443|:65536|:0|/|//|@|?|#|%|%2F|.|..|-|localhost|"
     "127.0.0.1|fe80::1%25eth0|a.b|x"},
    {"key", run_key, "|/|//|.|..|+|%|%25| |?|#|\xc3\xa9|\n|&|=|bucket/|a|my.bucket/|-|1.2.3.4/"},
    {"escaped", run_escaped, "|%|%2|%20|%zz|+|%00|%ff|%2f|a"},
    {"list", run_list,
     "|<ListBucketResult>|</ListBucketResult>|<Contents>|</Contents>|<Key>a</Key>|<Size>1</Size>|"
     "<IsTruncated>true</IsTruncated>|<IsTruncated>false</IsTruncated>|<EncodingType>url</Enc"
     "odingType>|<NextContinuationToken>t</NextContinuationToken>|<CommonPrefixes><Prefix>a/<"
     "/Prefix></CommonPrefixes>|<ETag>&quot;x&quot;</ETag>|<Key>%41%00</Key>|<Size>-1</Size>|"
     "<LastModified>2009-10-12T17:50:30.000Z</LastModified>|<a>|</a>|<Key>|</Key>|%2F|%|+"},
    {"location", run_location,
     "|http://|https://|127.0.0.1|:9000|//|/|?|#|@|[::1]|localhost|://|..|%2F|x|http:|:99999"},
#ifdef FUZZ_COVERAGE
    {"manifest", run_manifest,
     "|key|\t|\n|*|0|1|%20|%00|#|9223372036854775807|18446744073709551616|36893488147419103232|"
     "a/b\t0\t5\n|c\t*\t7\t3\n|\r|+|/|key\t1\t2\t3\n"},
#endif
    {"date", run_date,
     "|Sun, 06 Nov 1994 08:49:37 GMT|Sunday, 06-Nov-94 08:49:37 GMT|Sun Nov  6 08:49:37 1994|"
     "2009-10-12T17:50:30.000Z|20130524T000000Z|+01:00|-23:59|Z|T|:|-|1970|9999|Feb 29|2000|12-31|"
     "23:59:60|."},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- coverage ---- */

static uint32_t n_reached;

#ifdef FUZZ_COVERAGE
static uint8_t reached[1 << 16];
void __sanitizer_cov_trace_pc(void);
#if defined(__clang__)
__attribute__((no_sanitize("coverage")))
#else
__attribute__((no_sanitize_coverage))
#endif
void __sanitizer_cov_trace_pc(void) {
    uintptr_t at = (uintptr_t)__builtin_return_address(0);
    uint8_t *bit = &reached[(at ^ at >> 16) & 0xffff];
    n_reached += *bit == 0;
    *bit = 1;
}
#endif

/* ---- cases ---- */

typedef struct fuzz_case {
    int kind;
    size_t n;
    char *bytes;
} fuzz_case;

enum { POOL = 3000 };
static fuzz_case pool[POOL];
static size_t pool_n;
static int save_fd = -1;

static void save(int kind, const char *s, size_t n) {
    char line[32];
    int k = snprintf(line, sizeof line, "%s\n", kinds[kind].name);
    if (save_fd < 0) return;
    if (pwrite(save_fd, line, (size_t)k, 0) != k || pwrite(save_fd, s, n, k) != (ssize_t)n ||
        ftruncate(save_fd, k + (off_t)n) != 0)
        exit(1);
}

static void run(int kind, const char *s, size_t n) {
    char *at = own(s, n, false);
    save(kind, s, n);
    kinds[kind].run(at, n);
    free(at);
}

static void keep(int kind, const char *s, size_t n) {
    size_t i = pool_n < POOL ? pool_n++ : roll(POOL);
    free(pool[i].bytes);
    pool[i].kind = kind;
    pool[i].n = n;
    pool[i].bytes = own(s, n, false);
}

static int corpus_file(const char *path) {
    static char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    char *line = memchr(bytes, '\n', n);
    if (f) fclose(f);
    if (line == NULL) {
        printf("%s: no such case\n", path);
        return 0;
    }
    *line++ = 0;
    n -= (size_t)(line - bytes);
    for (int k = 0; k < KINDS; k++)
        if (strcmp(kinds[k].name, bytes) == 0) {
            run(k, line, n);
            if (n <= MOST) keep(k, line, n);
            return 1;
        }
    printf("%s: what is a %.20s?\n", path, bytes);
    return 0;
}

static void corpus__replayed(void) {
    DIR *dir = opendir(CORPUS);
    const struct dirent *d;
    char path[512];
    int n = 0, files = 0;
    CHECK(dir != NULL);
    while (dir && (d = readdir(dir)) != NULL) {
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, CORPUS "/%.200s", d->d_name);
        n += corpus_file(path);
        files++;
    }
    if (dir) closedir(dir);
    CHECK(n >= 30 && n == files);
    printf("corpus: %d cases\n", n);
}

/* One of the words of a kind. */
static const char *word_of(int kind, size_t *n) {
    const char *words = kinds[kind].words, *at, *bar;
    size_t count = 0;
    for (at = words; *at; at++) count += *at == '|';
    count = roll(count);
    for (at = words; count > 0 || *at != '|'; at++) count -= *at == '|' && count > 0;
    at++;
    bar = strchr(at, '|');
    *n = bar ? (size_t)(bar - at) : strlen(at);
    return at;
}

static size_t put(char *to, size_t n, size_t at, const char *s, size_t k) { /* insert */
    if (n + k > MOST) return n;
    memmove(to + at + k, to + at, n - at);
    memcpy(to + at, s, k);
    return n + k;
}

static size_t mutate(int kind, char *to, size_t n) {
    size_t at = roll(n + 1), k;
    const char *word;
    char own_bytes[256];
    switch (roll(9)) {
    case 0: /* a bit */
        if (at < n) to[at] = (char)(to[at] ^ (1 << roll(8)));
        return n;
    case 1: /* a byte */
        if (at < n) to[at] = (char)roll(256);
        return n;
    case 2: /* fewer */
        k = at < n ? 1 + roll(n - at < 20 ? n - at : 20) : 0;
        memmove(to + at, to + at + k, n - at - k);
        return n - k;
    case 3: /* cut */ return roll(4) ? n : at;
    case 4: /* some again */
        k = at < n ? 1 + roll(n - at < 200 ? n - at : 200) : 0;
        memcpy(own_bytes, to + at, k);
        return put(to, n, roll(n + 1), own_bytes, k);
    case 5: /* a long run */
        k = 1 + roll(200);
        memset(own_bytes, at < n ? to[at] : 'x', k);
        return put(to, n, at, own_bytes, k);
    case 6: /* another one's end */
        for (int tries = 0; tries < 20 && pool_n; tries++) {
            const fuzz_case *o = &pool[roll(pool_n)];
            size_t from = roll(o->n + 1);
            if (o->kind != kind || at + o->n - from > MOST) continue;
            memcpy(to + at, o->bytes + from, o->n - from);
            return at + o->n - from;
        }
        return n;
    default: /* a word */
        word = word_of(kind, &k);
        if (roll(2) && at + k <= n) {
            memcpy(to + at, word, k);
            return n;
        }
        return put(to, n, at, word, k);
    }
}

static void case__at_random(void) {
    static char bytes[MOST];
    int kind = (int)roll(KINDS);
    uint32_t before = n_reached;
    size_t n = 0;
    if (roll(20) && pool_n) {
        const fuzz_case *from = &pool[roll(pool_n)];
        kind = from->kind;
        n = from->n;
        memcpy(bytes, from->bytes, n);
    }
    for (size_t k = 1 + roll(n ? 6 : 30); k > 0; k--) n = mutate(kind, bytes, n);
    run(kind, bytes, n);
    if (n_reached > before) keep(kind, bytes, n);
}

int main(int argc, char **argv) {
    const char *seconds = getenv("FUZZ_SECONDS"), *start = getenv("FUZZ_SEED");
    double most = seconds ? atof(seconds) : getenv("SHORT") ? 0.3 : 0.5;
    uint64_t cases = 0, until, every;
    state = start ? strtoull(start, NULL, 0) : 1;
    state += state == 0;
    if (argc > 1) return !corpus_file(argv[1]) || test_failures;
    if (getenv("FUZZ_SAVE"))
        save_fd = open(getenv("FUZZ_SAVE"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    corpus__replayed();
    until = dlpi_s3_now_ns() + (uint64_t)(most * 1e9);
    every = dlpi_s3_now_ns() + UINT64_C(60000000000);
    for (; dlpi_s3_now_ns() < until && test_failures == 0; cases++) {
        case__at_random();
        if (dlpi_s3_now_ns() < every) continue;
        every = dlpi_s3_now_ns() + UINT64_C(60000000000);
        printf("%" PRIu64 " cases, %zu kept, %u places\n", cases, pool_n, n_reached);
        fflush(stdout);
    }
    printf("at random: %" PRIu64 " cases, %zu kept, %u places, next seed %" PRIu64 "\n", cases,
           pool_n, n_reached, state);
    if (test_failures && save_fd >= 0) printf("the case is in %s\n", getenv("FUZZ_SAVE"));
    for (size_t i = 0; i < pool_n; i++) free(pool[i].bytes);
    return test_end("fuzz_s3");
}
