/* A scripted S3 server for tests: one thread, many connections, on a free port of 127.0.0.1. It
   serves what no real server does on demand, and writes down each request.

     s3_mock *m = s3_mock_start();
     s3_mock_object(m, "/bucket/key", 100000);        a path as sent; its bytes come from its name
     s3_mock_on(m, "/bucket/key", 0, (s3_mock_reply){.status = 503, .s3_code = "SlowDown"});
     m->script = callback; m->user = ...              or for each request, before it is answered
     ... endpoint: m->url ...
     s3_mock_check(m, "/bucket/key", 0, bytes, n)         are these the bytes, from there on?
     s3_mock_count(m, NULL), s3_mock_seen(m, i, &request) what came
     s3_mock_away(m, S3_MOCK_REFUSE), ... (m, S3_MOCK_KEEP)  away, and back on the same port
     s3_mock_stop(m);

   A reply of all zeroes is what an S3 server does: 200, 206 for a range, 404 NoSuchKey, 412 where
   If-Match does not hold, 416, HEAD without a body, PUT keeps the body, keep-alive. Its fields bend
   that. Only m->script and m->user may be set while it runs, and only before the first request.
   Include behind dlpipe_s3.h with its implementation (which asks for what this needs). */
#ifndef S3_MOCK_H
#define S3_MOCK_H

#include "posix.h"
#include <inttypes.h>
#include <stdarg.h>

#define S3_MOCK static __attribute__((unused))

enum { S3_MOCK_KEEP = 0, S3_MOCK_CLOSE, S3_MOCK_RESET, S3_MOCK_HANG, S3_MOCK_REFUSE };

typedef struct s3_mock_reply {
    int status;          /* 0: by the object and the request */
    const char *s3_code; /* an error document with this code (status 0: 400) */
    const char *headers; /* more lines, each with \r\n */
    const char *body;    /* in place of the object, body_bytes of it (0: a string) */
    size_t body_bytes;
    const char *raw; /* all bytes of the answer, raw_bytes of it (0: a string) */
    size_t raw_bytes;
    const char *extra;         /* bytes behind the answer's end */
    int version;               /* of the object: other bytes, another ETag; 0: the object's own */
    int ignore_range;          /* 200 and all of it */
    int ok_range;              /* 200 and a part of it, with Content-Range */
    int ignore_match;          /* no 412 */
    int shift;                 /* Content-Range and bytes begin so many bytes later */
    const char *content_range; /* in place of the true one */
    int64_t content_length;    /* in place of the true one, if not 0; -1: 0; -2: no such line */
    const char *etag;          /* in place of the true one; "": none */
    int http10;                /* HTTP/1.0, closed at the end */
    int close;                 /* Connection: close, and so it is */
    int chunk;                 /* Transfer-Encoding: chunked, in chunks of this */
    const char *trailer;       /* of the last chunk: lines with \r\n */
    int delay_ms;              /* before the first byte */
    int together;              /* nor before so many requests have been under way at once, */
    int behind;                /* nor before so many have been answered; 5 s at most */
    int pause_ms;              /* after pause_at bytes of the answer */
    int64_t pause_at;
    int trickle;    /* so many bytes at once, */
    int trickle_ms; /* and then a pause of this */
    int cut;        /* after cut_at bytes of the answer, or of its body: S3_MOCK_CLOSE.. */
    int64_t cut_at;
    int cut_in_body;
    int then;    /* after the whole answer: S3_MOCK_CLOSE (without having said so), .. */
    int then_ms; /* later by this, if no request has come */
} s3_mock_reply;

typedef struct s3_mock_request {
    int connection;                          /* from 0 */
    int nth_on_connection, nth_of_path, nth; /* from 0 */
    uint64_t came_ns, over_ns; /* monotonic; over: 0 as long as bytes are to be sent */
    char method[16], path[1200], query[1200];
    int has_range;
    uint64_t first, last; /* last UINT64_MAX: to the end */
    char if_match[96];
    int has_authorization;
    uint64_t body_bytes; /* of the request */
    uint64_t body_sent;  /* of the answer, as far as the kernel took it */
    int status;          /* of the answer; 0: raw, or none */
    char head[2600];     /* the request as it came */
} s3_mock_request;

typedef struct s3_mock_thing {
    char path[1200];
    uint64_t bytes;
    int version;
    char *data; /* NULL: made from path and version */
} s3_mock_thing;

typedef struct s3_mock_line {
    char path[256];
    int nth; /* -1: each */
    s3_mock_reply reply;
} s3_mock_line;

typedef struct s3_mock_peer {
    int fd, number, requests;
    int busy, hangs; /* an answer is under way; nothing more is read or written */
    int record;      /* the request's place in m->seen */
    char *in;
    size_t in_n, in_size;
    char *out;
    size_t out_n, out_at, out_head, out_stop; /* stop: bytes until what end says */
    int end, end_ms;
    uint64_t wake_ns; /* nothing before; 0: at once */
    uint64_t end_ns;
    s3_mock_reply reply;
} s3_mock_peer;

typedef struct s3_mock s3_mock;
struct s3_mock {
    char url[64];
    int port;
    void (*script)(void *user, const s3_mock_request *q, s3_mock_reply *r);
    void *user;
    int (*accept)(void *user, int connection); /* S3_MOCK_KEEP; CLOSE, RESET; HANG: is not read */
    int64_t skew_s;                            /* of its Date */
    uint64_t default_bytes;                    /* of objects that are not known; 0: NoSuchKey */
    const char *request_id;                    /* NULL: MOCK and the request's number */

    int listener, wake_fd[2]; /* the rest is its own; lock: seen, n_seen, open, most, away */
    int away;
    pthread_t thread;
    pthread_mutex_t lock;
    s3_mock_request *seen;
    int n_seen, seen_size, open, most, over;
    s3_mock_thing *things;
    int n_things, things_size;
    s3_mock_line lines[64];
    int n_lines;
    s3_mock_peer *peers;
    int n_peers, peers_size, connections;
};

/* ---- contents ---- */

static uint64_t s3_mock_seed(const char *path, int version) {
    uint64_t h = 14695981039346656037u + (uint64_t)version * 7919;
    for (; *path; path++) h = (h ^ (unsigned char)*path) * 1099511628211u;
    return h;
}

/* Write bytes [at, at + n) of what path holds. */
S3_MOCK void s3_mock_fill(const char *path, int version, uint64_t at, void *to, size_t n) {
    uint64_t seed = s3_mock_seed(path, version), word = 0;
    unsigned char *b = to;
    for (size_t i = 0; i < n; i++, at++) {
        if (i == 0 || at % 8 == 0) {
            word = seed + (at / 8 + 1) * 0x9E3779B97F4A7C15u;
            word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
            word ^= word >> 27;
        }
        b[i] = (unsigned char)(word >> (at % 8 * 8));
    }
}

/* Whether bytes are those of path, from byte at on. */
S3_MOCK int s3_mock_check_version(const char *path, int version, uint64_t at, const void *bytes,
                                  uint64_t n) {
    unsigned char want[4096];
    const unsigned char *b = bytes;
    while (n > 0) {
        size_t k = n < sizeof want ? (size_t)n : sizeof want;
        s3_mock_fill(path, version, at, want, k);
        if (memcmp(want, b, k) != 0) return 0;
        b += k;
        at += k;
        n -= k;
    }
    return 1;
}

S3_MOCK int s3_mock_check(const char *path, uint64_t at, const void *bytes, uint64_t n) {
    return s3_mock_check_version(path, 0, at, bytes, n);
}

static s3_mock_thing *s3_mock_find(s3_mock *m, const char *path) {
    for (int i = 0; i < m->n_things; i++)
        if (strcmp(m->things[i].path, path) == 0) return &m->things[i];
    return NULL;
}

static s3_mock_thing *s3_mock_make(s3_mock *m, const char *path) {
    s3_mock_thing *t = s3_mock_find(m, path);
    if (t) return t;
    if (m->n_things == m->things_size) {
        m->things_size = m->things_size ? 2 * m->things_size : 16;
        m->things = realloc(m->things, (size_t)m->things_size * sizeof *m->things);
        if (!m->things) abort();
    }
    t = &m->things[m->n_things++];
    memset(t, 0, sizeof *t);
    snprintf(t->path, sizeof t->path, "%s", path);
    return t;
}

/* Let there be an object. path: "/bucket/key", encoded as requests have it. */
S3_MOCK void s3_mock_object(s3_mock *m, const char *path, uint64_t bytes) {
    pthread_mutex_lock(&m->lock);
    s3_mock_make(m, path)->bytes = bytes;
    pthread_mutex_unlock(&m->lock);
}

/* Let it be another one, with another ETag. */
S3_MOCK void s3_mock_change(s3_mock *m, const char *path, int version) {
    pthread_mutex_lock(&m->lock);
    s3_mock_make(m, path)->version = version;
    pthread_mutex_unlock(&m->lock);
}

/* Let it hold these bytes. */
S3_MOCK void s3_mock_data(s3_mock *m, const char *path, const void *data, size_t n) {
    s3_mock_thing *t;
    pthread_mutex_lock(&m->lock);
    t = s3_mock_make(m, path);
    free(t->data);
    t->data = malloc(n + 1);
    if (!t->data) abort();
    if (n) memcpy(t->data, data, n);
    t->bytes = n;
    t->version++;
    pthread_mutex_unlock(&m->lock);
}

/* Answer the nth request for path (from 0; -1: each; path NULL: any path) so. Strings are kept by
   reference. Of several lines the first that fits counts; m->script comes after them. */
S3_MOCK void s3_mock_on(s3_mock *m, const char *path, int nth, s3_mock_reply reply) {
    s3_mock_line *l;
    pthread_mutex_lock(&m->lock);
    if (m->n_lines == 64) abort();
    l = &m->lines[m->n_lines++];
    snprintf(l->path, sizeof l->path, "%s", path ? path : "");
    l->nth = nth;
    l->reply = reply;
    pthread_mutex_unlock(&m->lock);
}

/* ---- what came ---- */

/* Requests seen, for path, or all (NULL). */
S3_MOCK int s3_mock_count(s3_mock *m, const char *path) {
    int n = 0;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n_seen; i++) n += !path || strcmp(m->seen[i].path, path) == 0;
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* Copy the i-th request. Returns 0 if there was none. */
S3_MOCK int s3_mock_seen(s3_mock *m, int i, s3_mock_request *out) {
    int there;
    pthread_mutex_lock(&m->lock);
    there = i >= 0 && i < m->n_seen;
    if (there) *out = m->seen[i];
    pthread_mutex_unlock(&m->lock);
    return there;
}

/* Connections accepted so far. */
S3_MOCK int s3_mock_connections(s3_mock *m) {
    int n;
    pthread_mutex_lock(&m->lock);
    n = m->connections;
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* The most requests that were under way at once since the last call. */
S3_MOCK int s3_mock_most(s3_mock *m) {
    int n;
    pthread_mutex_lock(&m->lock);
    n = m->most;
    m->most = m->open;
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* Forget requests, script lines and counts; objects and connections stay. */
S3_MOCK void s3_mock_forget(s3_mock *m) {
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n_peers; i++) m->peers[i].record = -1;
    m->n_seen = m->n_lines = m->most = m->open = m->over = 0;
    pthread_mutex_unlock(&m->lock);
}

/* Copy a header line's value of a request. Returns 0 if there is none: out is "". */
S3_MOCK int s3_mock_header(const s3_mock_request *q, const char *name, char *out, size_t size) {
    size_t n = strlen(name), k = 0;
    const char *at = strstr(q->head, "\r\n");
    if (size) out[0] = '\0';
    while (at && at[2] && at[2] != '\r') {
        at += 2;
        if (strncasecmp(at, name, n) == 0 && at[n] == ':') {
            at += n + 1;
            while (*at == ' ') at++;
            for (; at[k] && at[k] != '\r' && k + 1 < size; k++) out[k] = at[k];
            if (size) out[k] = '\0';
            return 1;
        }
        at = strstr(at, "\r\n");
    }
    return 0;
}

/* ---- an answer ---- */

typedef struct s3_mock_text {
    char *at;
    size_t n, size;
} s3_mock_text;

static void s3_mock_add(s3_mock_text *t, const void *bytes, size_t n) {
    if (t->n + n + 1 > t->size) {
        t->size = 2 * (t->n + n + 1);
        t->at = realloc(t->at, t->size);
        if (!t->at) abort();
    }
    if (bytes && n) memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = '\0';
}

__attribute__((format(printf, 2, 3))) static void s3_mock_say(s3_mock_text *t, const char *format,
                                                              ...) {
    char line[1600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s3_mock_add(t, line, strlen(line));
}

static void s3_mock_date(int64_t unix_s, char out[40]) {
    time_t t = (time_t)unix_s;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* The object's bytes [first, first + n), as a part of the answer. */
static void s3_mock_object_bytes(s3_mock_text *t, const s3_mock_thing *o, int version,
                                 uint64_t first, uint64_t n) {
    if (o->data) {
        s3_mock_add(t, o->data + first, n);
        return;
    }
    s3_mock_add(t, NULL, n);
    s3_mock_fill(o->path, version, first, t->at + t->n - n, n);
}

/* What a server makes of it: status and the range. Returns the error's code, or NULL. */
static const char *s3_mock_serve(const s3_mock_request *q, s3_mock_reply *r, s3_mock_thing *o,
                                 const char *etag, uint64_t *first, uint64_t *n) {
    *first = 0;
    *n = o ? o->bytes : 0;
    if (!o) return r->status = r->status ? r->status : 404, "NoSuchKey";
    if (q->if_match[0] && !r->ignore_match && strcmp(q->if_match, etag) != 0)
        return r->status = 412, "PreconditionFailed";
    if (!q->has_range || r->ignore_range) {
        if (!r->status) r->status = 200;
        return NULL;
    }
    if (q->first >= o->bytes || q->first > q->last) return r->status = 416, "InvalidRange";
    *first = q->first;
    *n = (q->last >= o->bytes ? o->bytes - 1 : q->last) - q->first + 1;
    if (!r->status) r->status = r->ok_range ? 200 : 206;
    return NULL;
}

static void s3_mock_body(s3_mock_text *t, const s3_mock_reply *r, const s3_mock_text *body) {
    size_t n, k;
    if (!r->chunk) {
        s3_mock_add(t, body->at, body->n);
        return;
    }
    for (n = 0; n < body->n; n += k) {
        k = body->n - n < (size_t)r->chunk ? body->n - n : (size_t)r->chunk;
        s3_mock_say(t, "%zx\r\n", k);
        s3_mock_add(t, body->at + n, k);
        s3_mock_add(t, "\r\n", 2);
    }
    s3_mock_say(t, "0\r\n%s\r\n", r->trailer ? r->trailer : "");
}

static void s3_mock_head(s3_mock *m, s3_mock_text *t, const s3_mock_request *q,
                         const s3_mock_reply *r, const s3_mock_thing *o, const char *etag,
                         uint64_t first, uint64_t n) {
    char date[40];
    int64_t length = r->content_length ? r->content_length : (int64_t)n;
    s3_mock_date((int64_t)time(NULL) + m->skew_s, date);
    s3_mock_say(t, "HTTP/1.%d %d Mock\r\nDate: %s\r\n", !r->http10, r->status, date);
    if (m->request_id)
        s3_mock_say(t, "x-amz-request-id: %s\r\n", m->request_id);
    else
        s3_mock_say(t, "x-amz-request-id: MOCK%08d\r\n", q->nth);
    if (etag[0] && r->status < 300) s3_mock_say(t, "ETag: %s\r\n", etag);
    if (r->content_range)
        s3_mock_say(t, "Content-Range: %s\r\n", r->content_range);
    else if (r->status == 416 && o)
        s3_mock_say(t, "Content-Range: bytes */%" PRIu64 "\r\n", o->bytes);
    else if ((r->status == 206 || (r->ok_range && r->status == 200 && q->has_range)) && o)
        s3_mock_say(t, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", first,
                    first + n - 1, o->bytes);
    if (r->chunk)
        s3_mock_say(t, "Transfer-Encoding: chunked\r\n");
    else if (r->content_length != -2 && r->status != 204 && r->status != 304)
        s3_mock_say(t, "Content-Length: %" PRId64 "\r\n", length < 0 ? 0 : length);
    if (r->close) s3_mock_say(t, "Connection: close\r\n");
    if (r->headers) s3_mock_add(t, r->headers, strlen(r->headers));
    s3_mock_add(t, "\r\n", 2);
}

/* Lay the whole answer into p->out. */
static void s3_mock_answer(s3_mock *m, s3_mock_peer *p, s3_mock_request *q) {
    s3_mock_reply *r = &p->reply;
    s3_mock_text t = {0}, body = {0};
    s3_mock_thing *o = s3_mock_find(m, q->path), made = {0};
    const char *code = NULL;
    char etag[96] = "";
    uint64_t first = 0, n = 0;
    int version;
    if (!o && m->default_bytes && strcmp(q->method, "PUT") != 0) {
        snprintf(made.path, sizeof made.path, "%s", q->path);
        made.bytes = m->default_bytes;
        o = &made;
    }
    version = r->version ? r->version : o ? o->version : 0;
    if (r->etag)
        snprintf(etag, sizeof etag, "%s", r->etag);
    else if (o)
        snprintf(etag, sizeof etag, "\"%016" PRIx64 "\"", s3_mock_seed(o->path, version));
    if (r->raw) {
        s3_mock_add(&t, r->raw, r->raw_bytes ? r->raw_bytes : strlen(r->raw));
        p->out_head = 0;
        goto done;
    }
    if (r->s3_code) {
        code = r->s3_code;
        if (!r->status) r->status = 400;
    } else if (r->body) {
        s3_mock_add(&body, r->body, r->body_bytes ? r->body_bytes : strlen(r->body));
        if (!r->status) r->status = 200;
        o = NULL;
    } else if (strcmp(q->method, "PUT") == 0) {
        if (!r->status) r->status = 200;
    } else if (r->status < 300) {
        code = s3_mock_serve(q, r, o, etag, &first, &n);
        first += (uint64_t)r->shift;
        if (first + n > (o ? o->bytes : 0)) first = 0;
        if (!code) s3_mock_object_bytes(&body, o, version, first, n);
    }
    if (code) {
        body.n = 0;
        s3_mock_say(&body,
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code>"
                    "<Message>as scripted</Message><RequestId>MOCK%08d</RequestId></Error>",
                    code, q->nth);
    }
    s3_mock_head(m, &t, q, r, o, etag, first, body.n);
    p->out_head = t.n;
    q->status = r->status;
    if (strcmp(q->method, "HEAD") != 0) s3_mock_body(&t, r, &body);
done:
    if (r->extra) s3_mock_add(&t, r->extra, strlen(r->extra));
    free(body.at);
    p->out = t.at;
    p->out_n = t.n;
    p->out_at = 0;
}

/* ---- connections ---- */

static void s3_mock_drop(s3_mock_peer *p, int how) {
    struct linger hard = {1, 0};
    if (how == S3_MOCK_RESET) setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(p->fd);
    p->fd = -1;
    free(p->in);
    free(p->out);
    p->in = p->out = NULL;
}

static void s3_mock_over(s3_mock *m, s3_mock_peer *p) {
    if (p->record >= 0) {
        m->seen[p->record].over_ns = test_now_ns();
        m->open--;
        m->over++;
    }
    p->record = -1;
}

static void s3_mock_parse(s3_mock_request *q, const char *head, size_t n) {
    char value[200];
    size_t at = n < sizeof q->head - 1 ? n : sizeof q->head - 1;
    char *mark;
    memcpy(q->head, head, at);
    q->head[at] = '\0';
    sscanf(q->head, "%15s %1199s", q->method, q->path);
    mark = strchr(q->path, '?');
    if (mark) {
        snprintf(q->query, sizeof q->query, "%s", mark + 1);
        *mark = '\0';
    }
    if (s3_mock_header(q, "Range", value, sizeof value)) {
        q->last = UINT64_MAX;
        q->has_range = sscanf(value, "bytes=%" SCNu64 "-%" SCNu64, &q->first, &q->last) >= 1;
    }
    s3_mock_header(q, "If-Match", q->if_match, sizeof q->if_match);
    q->has_authorization = s3_mock_header(q, "Authorization", value, sizeof value) ||
                           strstr(q->query, "X-Amz-Signature=") != NULL;
    if (s3_mock_header(q, "Content-Length", value, sizeof value))
        q->body_bytes = strtoull(value, NULL, 10);
}

/* How this request is answered: a line of the script, then the callback. */
static void s3_mock_decide(s3_mock *m, s3_mock_peer *p, const s3_mock_request *q) {
    memset(&p->reply, 0, sizeof p->reply);
    for (int i = 0; i < m->n_lines; i++) {
        const s3_mock_line *l = &m->lines[i];
        int nth = l->path[0] ? q->nth_of_path : q->nth;
        if (l->path[0] && strcmp(l->path, q->path) != 0) continue;
        if (l->nth >= 0 && l->nth != nth) continue;
        p->reply = l->reply;
        break;
    }
    if (m->script) {
        s3_mock_request copy = *q; /* the callback may look at what was seen: not under the lock */
        pthread_mutex_unlock(&m->lock);
        m->script(m->user, &copy, &p->reply);
        pthread_mutex_lock(&m->lock);
    }
}

static s3_mock_request *s3_mock_record(s3_mock *m, s3_mock_peer *p) {
    s3_mock_request *q;
    if (m->n_seen == m->seen_size) {
        m->seen_size = m->seen_size ? 2 * m->seen_size : 64;
        m->seen = realloc(m->seen, (size_t)m->seen_size * sizeof *m->seen);
        if (!m->seen) abort();
    }
    q = &m->seen[m->n_seen];
    memset(q, 0, sizeof *q);
    q->connection = p->number;
    q->nth_on_connection = p->requests++;
    q->nth = m->n_seen++;
    q->came_ns = test_now_ns();
    p->record = q->nth;
    if (++m->open > m->most) m->most = m->open;
    return q;
}

/* Take the next whole request out of p->in, if there is one, and prepare its answer. */
static void s3_mock_take(s3_mock *m, s3_mock_peer *p) {
    char *end = p->in_n ? memmem(p->in, p->in_n, "\r\n\r\n", 4) : NULL;
    s3_mock_request *q, probe;
    size_t head, whole;
    if (p->busy || p->hangs || !end) return;
    head = (size_t)(end - p->in) + 4;
    memset(&probe, 0, sizeof probe);
    s3_mock_parse(&probe, p->in, head);
    whole = head + probe.body_bytes;
    if (p->in_n < whole) return;
    q = s3_mock_record(m, p);
    s3_mock_parse(q, p->in, head);
    for (int i = 0; i < m->n_seen - 1; i++) q->nth_of_path += strcmp(m->seen[i].path, q->path) == 0;
    s3_mock_decide(m, p, q);
    if (p->record < 0) return; /* without the lock: the connection was dropped meanwhile */
    q = &m->seen[p->record];
    if (strcmp(q->method, "PUT") == 0 && p->reply.status < 300 && !p->reply.s3_code) {
        pthread_mutex_unlock(&m->lock);
        s3_mock_data(m, q->path, p->in + head, whole - head);
        pthread_mutex_lock(&m->lock);
        if (p->record < 0) return;
        q = &m->seen[p->record];
    }
    s3_mock_answer(m, p, q);
    memmove(p->in, p->in + whole, p->in_n - whole);
    p->in_n -= whole;
    p->busy = 1;
    p->out_stop = p->out_n;
    p->end = p->reply.http10 || p->reply.close ? S3_MOCK_CLOSE : p->reply.then;
    p->end_ms = p->reply.http10 || p->reply.close ? 0 : p->reply.then_ms;
    if (p->reply.cut) {
        size_t at = (size_t)p->reply.cut_at + (p->reply.cut_in_body ? p->out_head : 0);
        if (at < p->out_n) p->out_stop = at;
        p->end = p->reply.cut;
        p->end_ms = 0;
    }
    if (p->reply.delay_ms) p->wake_ns = q->came_ns + (uint64_t)p->reply.delay_ms * 1000000u;
}

/* The answer is sent as far as it is to be. */
static void s3_mock_finish(s3_mock *m, s3_mock_peer *p) {
    int end = p->end;
    if (end == S3_MOCK_HANG) {
        p->hangs = 1;
        return;
    }
    s3_mock_over(m, p);
    p->busy = 0;
    free(p->out);
    p->out = NULL;
    p->out_n = p->out_at = 0;
    if (end && p->end_ms)
        p->end_ns = test_now_ns() + (uint64_t)p->end_ms * 1000000u;
    else if (end)
        s3_mock_drop(p, end);
}

/* Whether the answer has to wait for what others do. */
static int s3_mock_waits(const s3_mock *m, s3_mock_peer *p, uint64_t now) {
    const s3_mock_reply *r = &p->reply;
    if (p->out_at > 0 || p->record < 0) return 0;
    if (m->most >= r->together && m->over >= r->behind) return 0;
    if (now >= m->seen[p->record].came_ns + 5000000000u) return 0;
    p->wake_ns = now + 1000000u;
    return 1;
}

/* Send what may be sent now. */
static void s3_mock_send(s3_mock *m, s3_mock_peer *p, uint64_t now) {
    while (p->fd >= 0 && p->busy && !p->hangs && now >= p->wake_ns) {
        size_t upto = p->out_stop;
        const s3_mock_reply *r = &p->reply;
        ssize_t k;
        p->wake_ns = 0;
        if (p->out_at >= p->out_stop) {
            s3_mock_finish(m, p);
            return;
        }
        if (s3_mock_waits(m, p, now)) return;
        if (r->pause_ms && (int64_t)p->out_at < r->pause_at && (size_t)r->pause_at < upto)
            upto = (size_t)r->pause_at;
        if (r->trickle && upto - p->out_at > (size_t)r->trickle)
            upto = p->out_at + (size_t)r->trickle;
        k = send(p->fd, p->out + p->out_at, upto - p->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (k < 0) {
            s3_mock_over(m, p);
            s3_mock_drop(p, S3_MOCK_CLOSE);
            return;
        }
        p->out_at += (size_t)k;
        if (p->record >= 0 && p->out_at > p->out_head)
            m->seen[p->record].body_sent = p->out_at - p->out_head;
        if (r->pause_ms && (int64_t)p->out_at == r->pause_at)
            p->wake_ns = now + (uint64_t)r->pause_ms * 1000000u;
        else if (r->trickle && p->out_at < p->out_stop)
            p->wake_ns = now + (uint64_t)r->trickle_ms * 1000000u;
    }
}

static void s3_mock_read(s3_mock *m, s3_mock_peer *p) {
    ssize_t k;
    if (p->in_n + 65536 > p->in_size) {
        p->in_size = p->in_n + 131072;
        p->in = realloc(p->in, p->in_size);
        if (!p->in) abort();
    }
    k = recv(p->fd, p->in + p->in_n, p->in_size - p->in_n - 1, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (k <= 0) {
        s3_mock_over(m, p);
        s3_mock_drop(p, S3_MOCK_CLOSE);
        return;
    }
    p->in_n += (size_t)k;
    p->end_ns = 0;
}

static void s3_mock_accept(s3_mock *m) {
    int fd, how, one = 1;
    while ((fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        s3_mock_peer *p;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (m->n_peers == m->peers_size) {
            m->peers_size = m->peers_size ? 2 * m->peers_size : 32;
            m->peers = realloc(m->peers, (size_t)m->peers_size * sizeof *m->peers);
            if (!m->peers) abort();
        }
        p = &m->peers[m->n_peers++];
        memset(p, 0, sizeof *p);
        p->fd = fd;
        p->record = -1;
        p->number = m->connections++;
        how = m->accept ? m->accept(m->user, p->number) : m->away;
        if (how == S3_MOCK_HANG)
            p->hangs = 1;
        else if (how)
            s3_mock_drop(p, how);
    }
}

/* Milliseconds until something is due, for poll. */
static int s3_mock_due(const s3_mock *m, uint64_t now) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < m->n_peers; i++) {
        const s3_mock_peer *p = &m->peers[i];
        if (p->busy && !p->hangs && p->wake_ns && p->wake_ns < least) least = p->wake_ns;
        if (p->end_ns && p->end_ns < least) least = p->end_ns;
    }
    if (least == UINT64_MAX) return -1;
    return least <= now ? 0 : (int)((least - now) / 1000000u + 1);
}

static void s3_mock_round(s3_mock *m, const struct pollfd *set) {
    uint64_t now = test_now_ns();
    int kept = 0, n = m->n_peers;
    for (int i = 0; i < n; i++) {
        s3_mock_peer *p = &m->peers[i];
        if ((set[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) && p->fd >= 0) s3_mock_read(m, p);
        if (p->fd >= 0 && p->end_ns && now >= p->end_ns) s3_mock_drop(p, p->end);
        for (int before = -1; p->fd >= 0 && before != p->requests;) { /* requests may be queued */
            before = p->requests;
            s3_mock_take(m, p);
            s3_mock_send(m, p, now);
        }
    }
    if (set[0].revents & POLLIN) s3_mock_accept(m);
    for (int i = 0; i < m->n_peers; i++)
        if (m->peers[i].fd >= 0) m->peers[kept++] = m->peers[i];
    m->n_peers = kept;
}

static void *s3_mock_main(void *arg) {
    s3_mock *m = arg;
    struct pollfd *set = NULL;
    char word;
    for (;;) {
        int wait, n;
        pthread_mutex_lock(&m->lock);
        n = m->n_peers + 2;
        set = realloc(set, (size_t)n * sizeof *set);
        if (!set) abort();
        set[0] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        set[1] = (struct pollfd){.fd = m->wake_fd[0], .events = POLLIN};
        for (int i = 0; i < m->n_peers; i++) {
            const s3_mock_peer *p = &m->peers[i];
            short events = POLLIN;
            if (p->busy && !p->hangs && !p->wake_ns) events |= POLLOUT;
            set[i + 2] = (struct pollfd){.fd = p->hangs && !p->busy ? -1 : p->fd, .events = events};
        }
        wait = s3_mock_due(m, test_now_ns());
        pthread_mutex_unlock(&m->lock);
        poll(set, (nfds_t)n, wait);
        pthread_mutex_lock(&m->lock);
        if (set[1].revents && read(m->wake_fd[0], &word, 1) == 1 && word == 'x') break;
        s3_mock_round(m, set);
        pthread_mutex_unlock(&m->lock);
    }
    for (int i = 0; i < m->n_peers; i++) s3_mock_drop(&m->peers[i], S3_MOCK_CLOSE);
    pthread_mutex_unlock(&m->lock);
    free(set);
    return NULL;
}

/* Take a port of 127.0.0.1; *port 0: a free one, which it is set to. */
static int s3_mock_socket(int *port) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)*port);
    if (*port) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) ||
        getsockname(fd, (struct sockaddr *)&a, &n)) {
        perror("s3_mock: no port of 127.0.0.1");
        exit(1);
    }
    *port = ntohs(a.sin_port);
    return fd;
}

static int s3_mock_listen(int backlog, int *port) {
    int fd = s3_mock_socket(port);
    if (listen(fd, backlog)) abort();
    return fd;
}

/* Let it be away: connections are ended, new ones refused (S3_MOCK_REFUSE), reset, or never
   answered (S3_MOCK_HANG: those that there are, too); or be there again (S3_MOCK_KEEP). */
S3_MOCK void s3_mock_away(s3_mock *m, int how) {
    pthread_mutex_lock(&m->lock);
    if (how == S3_MOCK_REFUSE) close(m->listener);
    if (how == S3_MOCK_REFUSE)
        m->listener = -1;
    else if (m->listener < 0)
        m->listener = s3_mock_listen(1024, &m->port);
    m->away = how;
    for (int i = 0; i < m->n_peers; i++) {
        s3_mock_peer *p = &m->peers[i];
        if (p->fd < 0 || (how == S3_MOCK_KEEP && !p->hangs)) continue;
        s3_mock_over(m, p);
        p->busy = 0;
        p->hangs = 1;
        if (how != S3_MOCK_HANG) s3_mock_drop(p, S3_MOCK_RESET);
    }
    pthread_mutex_unlock(&m->lock);
    if (write(m->wake_fd[1], "w", 1) != 1) abort();
}

S3_MOCK s3_mock *s3_mock_start(void) {
    s3_mock *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->listener = s3_mock_listen(1024, &m->port);
    snprintf(m->url, sizeof m->url, "http://127.0.0.1:%d", m->port);
    pthread_mutex_init(&m->lock, NULL);
    if (pipe2(m->wake_fd, O_CLOEXEC) || pthread_create(&m->thread, NULL, s3_mock_main, m)) abort();
    return m;
}

S3_MOCK void s3_mock_stop(s3_mock *m) {
    if (write(m->wake_fd[1], "x", 1) != 1) abort();
    pthread_join(m->thread, NULL);
    close(m->wake_fd[0]);
    close(m->wake_fd[1]);
    if (m->listener >= 0) close(m->listener);
    for (int i = 0; i < m->n_things; i++) free(m->things[i].data);
    free(m->things);
    free(m->seen);
    free(m->peers);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Whether the name localhost leads to 127.0.0.1: where /etc/hosts is missing, it may not. */
S3_MOCK int s3_mock_localhost(void) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo("localhost", "80", &hints, &found) != 0) return 0;
    freeaddrinfo(found);
    return 1;
}

/* A port that refuses connections: nothing listens there, and nobody else can take it. Close *fd
   after. */
S3_MOCK int s3_mock_refusing_port(int *fd) {
    int port = 0;
    *fd = s3_mock_socket(&port);
    return port;
}

/* A port that lets connections wait: its queue is full. Close the three fds after. */
S3_MOCK int s3_mock_full_port(int fds[3]) {
    struct sockaddr_in a;
    struct pollfd set[2];
    int port = 0;
    fds[0] = s3_mock_listen(0, &port);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)port);
    for (int i = 1; i < 3; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fds[i], (struct sockaddr *)&a, sizeof a);
        set[i - 1] = (struct pollfd){.fd = fds[i], .events = POLLOUT};
    }
    if (poll(set, 2, 20000) < 1) abort(); /* one of them is in the queue */
    return port;
}

#endif
