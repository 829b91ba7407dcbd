#pragma once
/* tests: unit/s3/s3_sign */
#include "s3/xml.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-sign         REQUESTS, SIGNED */

typedef struct dlpi_s3_credentials {
    int32_t anonymous, pad;
    int64_t expires_s; /* Unix time; 0: never */
    uint64_t version;
    char access[160], secret[160], token[8192]; /* token "": none */
} dlpi_s3_credentials;

/* The signing key of a day: four HMACs that need not be done for each request. Zeroed before its
   first use; used by one thread; holds secrets. */
typedef struct dlpi_s3_key_cache {
    char date[9], region[64], service[32], secret[160]; /* what it was made of */
    dlpi_s3_hmac_key key;
} dlpi_s3_key_cache;

/* A request, as it is to be sent. Strings are borrowed. */
typedef struct dlpi_s3_head {
    const char *method;
    const char *host;     /* with the port, unless it is the scheme's usual port */
    const char *path;     /* escaped */
    const char *query;    /* NULL or "": none; else as dlp_s3_request's */
    const char *range;    /* "bytes=0-9", or NULL */
    const char *if_match; /* an ETag, or NULL */
    const void *body;
    uint64_t body_bytes;
    bool has_body; /* Content-Length is sent, for 0 bytes too */
    bool unsigned_payload;
    bool presign; /* the signature is in the query */
    bool requester_pays;
    bool checksum; /* the answer should have the checksum of its body */
    bool close;
    int32_t expires_s;              /* presign: seconds for which the URL is valid; 0: 900 */
    const char *region;             /* at most 63 bytes; not NULL if the request is signed */
    const char *service;            /* NULL: "s3" */
    const dlpi_s3_credentials *who; /* NULL: anonymous */
    int64_t now_s;
    dlpi_s3_key_cache *keys; /* or NULL */
    const char *proxy;       /* header line for a proxy, which gets the whole URL; NULL: no proxy */
    const char *extra;       /* "Name: value\r\n" lines that need no signature, or NULL */
} dlpi_s3_head;

/* ---- Signature Version 4 ("Create a signed AWS API request", "Authenticating Requests" in the S3
   API reference). The canonical request is never laid out: it is hashed as it is walked through. */

#define DLPI_S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DLPI_S3_MAX_PARAMS 64
#define DLPI_S3_AGENT "User-Agent: dlpipe/" DLPIPE_VERSION "\r\n"

typedef struct dlpi_s3_header {
    const char *name; /* in small letters, which is how it is sent too */
    const char *value;
} dlpi_s3_header;

/* A parameter of a query, escaped. */
typedef struct dlpi_s3_param {
    dlpi_s3_span name, value;
} dlpi_s3_param;

typedef struct dlpi_s3_signing {
    const char *method, *path;
    const char *payload;           /* hash of the body in hex, or UNSIGNED-PAYLOAD */
    const dlpi_s3_header *headers; /* in order of their names */
    size_t n_headers;
    dlpi_s3_param *params; /* sorted by signing */
    size_t n_params;
    const char *iso; /* the time, as dlpi_s3_date */
    const char *region, *service;
    const dlpi_s3_credentials *who;
    dlpi_s3_key_cache *keys;
} dlpi_s3_signing;

static int dlpi_s3_span_order(dlpi_s3_span a, dlpi_s3_span b) {
    int order = memcmp(a.at, b.at, a.n < b.n ? a.n : b.n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

/* Split "a=b&c&d=". Returns the number of parameters, or -1 if there are more than max. */
static int dlpi_s3_query_split(const char *query, dlpi_s3_param *params, int max) {
    int n = 0;
    if (!query || *query == '\0') return 0;
    for (const char *at = query;; at++) {
        size_t all = strcspn(at, "&");
        const char *is = memchr(at, '=', all);
        size_t name = is ? (size_t)(is - at) : all;
        if (n == max) return -1;
        params[n].name = (dlpi_s3_span){at, name};
        params[n++].value = (dlpi_s3_span){is ? is + 1 : at + all, is ? all - name - 1 : 0};
        at += all;
        if (*at == '\0') return n;
    }
}

/* Sort parameters by name, then value: they are few, and mostly in order. */
static void dlpi_s3_params_sort(dlpi_s3_param *p, size_t n) {
    for (size_t i = 1; i < n; i++) {
        dlpi_s3_param moved = p[i];
        size_t at = i;
        for (; at > 0; at--) {
            int order = dlpi_s3_span_order(p[at - 1].name, moved.name);
            if (order == 0) order = dlpi_s3_span_order(p[at - 1].value, moved.value);
            if (order <= 0) break;
            p[at] = p[at - 1];
        }
        p[at] = moved;
    }
}

/* Hash a header's value without the spaces around it, and with one space for each run of them. */
static void dlpi_s3_sha_value(dlpi_s3_sha *s, const char *v) {
    size_t n;
    v += strspn(v, " ");
    for (;; v += n) {
        n = strcspn(v, " ");
        dlpi_s3_sha_add(s, v, n);
        v += n;
        n = strspn(v, " ");
        if (v[n] == '\0') return;
        dlpi_s3_sha_add(s, " ", 1);
    }
}

static void dlpi_s3_sha_names(dlpi_s3_sha *s, const dlpi_s3_signing *g) {
    for (size_t i = 0; i < g->n_headers; i++) {
        if (i > 0) dlpi_s3_sha_add(s, ";", 1);
        dlpi_s3_sha_adds(s, g->headers[i].name);
    }
}

/* Write the hash of the canonical request, as Signature Version 4 has it. The parameters are sorted
   in place. */
static void dlpi_s3_canonical(const dlpi_s3_signing *g, uint8_t out[32]) {
    dlpi_s3_sha s;
    dlpi_s3_sha_begin(&s);
    dlpi_s3_sha_adds(&s, g->method);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_adds(&s, g->path);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_params_sort(g->params, g->n_params);
    for (size_t i = 0; i < g->n_params; i++) {
        const dlpi_s3_param *p = &g->params[i];
        if (i > 0) dlpi_s3_sha_add(&s, "&", 1);
        dlpi_s3_sha_add(&s, p->name.at, p->name.n);
        dlpi_s3_sha_add(&s, "=", 1);
        dlpi_s3_sha_add(&s, p->value.at, p->value.n);
    }
    dlpi_s3_sha_add(&s, "\n", 1);
    for (size_t i = 0; i < g->n_headers; i++) {
        dlpi_s3_sha_adds(&s, g->headers[i].name);
        dlpi_s3_sha_add(&s, ":", 1);
        dlpi_s3_sha_value(&s, g->headers[i].value);
        dlpi_s3_sha_add(&s, "\n", 1);
    }
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_names(&s, g);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_adds(&s, g->payload);
    dlpi_s3_sha_end(&s, out);
}

/* Derive the signing key of a day, region and service. */
static void dlpi_s3_key_make(dlpi_s3_key_cache *c) {
    char first[4 + sizeof c->secret];
    uint8_t key[32];
    int n = snprintf(first, sizeof first, "AWS4%s", c->secret);
    dlpi_s3_hmac(first, (size_t)n, c->date, strlen(c->date), key);
    dlpi_s3_hmac(key, sizeof key, c->region, strlen(c->region), key);
    dlpi_s3_hmac(key, sizeof key, c->service, strlen(c->service), key);
    dlpi_s3_hmac(key, sizeof key, "aws4_request", 12, key);
    dlpi_s3_hmac_begin(&c->key, key, sizeof key);
    dlpi_s3_wipe(first, sizeof first);
    dlpi_s3_wipe(key, sizeof key);
}

/* Get the signing key, from the cache if it was made of the same secret, day, region, service. */
static void dlpi_s3_key_get(const dlpi_s3_signing *g, dlpi_s3_hmac_key *out) {
    dlpi_s3_key_cache own, *c = g->keys;
    if (!c) {
        c = &own;
        memset(c, 0, sizeof *c);
    }
    if (memcmp(c->date, g->iso, 8) != 0 || strcmp(c->region, g->region) != 0 ||
        strcmp(c->service, g->service) != 0 || strcmp(c->secret, g->who->secret) != 0) {
        memcpy(c->date, g->iso, 8);
        c->date[8] = '\0';
        dlpi_s3_copy(c->region, sizeof c->region, g->region);
        dlpi_s3_copy(c->service, sizeof c->service, g->service);
        dlpi_s3_copy(c->secret, sizeof c->secret, g->who->secret);
        dlpi_s3_key_make(c);
    }
    *out = c->key;
    if (c == &own) dlpi_s3_wipe(c, sizeof *c);
}

/* Write a request's signature: 64 hex digits and a terminator. */
static void dlpi_s3_sign(const dlpi_s3_signing *g, char out[65]) {
    uint8_t hash[32];
    char hex[65];
    dlpi_s3_hmac_key key;
    dlpi_s3_sha s;
    dlpi_s3_canonical(g, hash);
    dlpi_s3_hex(hex, hash, sizeof hash);
    dlpi_s3_key_get(g, &key);
    dlpi_s3_hmac_message(&s, &key);
    dlpi_s3_sha_adds(&s, "AWS4-HMAC-SHA256\n");
    dlpi_s3_sha_adds(&s, g->iso);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_add(&s, g->iso, 8);
    dlpi_s3_sha_add(&s, "/", 1);
    dlpi_s3_sha_adds(&s, g->region);
    dlpi_s3_sha_add(&s, "/", 1);
    dlpi_s3_sha_adds(&s, g->service);
    dlpi_s3_sha_adds(&s, "/aws4_request\n");
    dlpi_s3_sha_add(&s, hex, 64);
    dlpi_s3_hmac_end(&s, &key, hash);
    dlpi_s3_hex(out, hash, sizeof hash);
    dlpi_s3_wipe(&key, sizeof key);
}

/* ---- Heads. */

static void dlpi_s3_out_adds(dlpi_s3_out *o, const char *text) {
    dlpi_s3_out_add(o, text, strlen(text));
}

static void dlpi_s3_out_escaped(dlpi_s3_out *o, const char *text) {
    size_t n = strlen(text), room = o->n < o->size ? o->size - o->n : 0;
    o->n += dlpi_s3_uri_encode(room > 0 ? o->to + o->n : NULL, room, text, n, false);
}
/* Add a parameter to a query or form, unless its value is NULL or "". */
static void dlpi_s3_out_param(dlpi_s3_out *o, const char *name, const char *value) {
    if (!value || !value[0]) return;
    if (o->n > 0) dlpi_s3_out_add(o, "&", 1);
    dlpi_s3_out_adds(o, name);
    dlpi_s3_out_add(o, "=", 1);
    dlpi_s3_out_escaped(o, value);
}

static void dlpi_s3_out_header(dlpi_s3_out *o, const char *name, const char *value) {
    dlpi_s3_out_adds(o, name);
    dlpi_s3_out_add(o, ": ", 2);
    dlpi_s3_out_adds(o, value);
    dlpi_s3_out_add(o, "\r\n", 2);
}

/* Parts of a request's head that are used while it is written. */
typedef struct dlpi_s3_head_parts {
    dlpi_s3_header headers[8];
    size_t n_headers;
    dlpi_s3_param params[DLPI_S3_MAX_PARAMS + 8];
    size_t n_params;
    char iso[17], payload[65], credential[352], names[128], expires[16];
} dlpi_s3_head_parts;

static void dlpi_s3_head_header(dlpi_s3_head_parts *p, const char *name, const char *value) {
    if (!value) return;
    p->headers[p->n_headers].name = name;
    p->headers[p->n_headers++].value = value;
}

static void dlpi_s3_head_param(dlpi_s3_head_parts *p, const char *name, const char *value) {
    dlpi_s3_param *q = &p->params[p->n_params++];
    q->name = (dlpi_s3_span){name, strlen(name)};
    q->value = (dlpi_s3_span){value, strlen(value)};
}

/* Write the hash of the body in hex, or the words that stand for it in the signature. */
static void dlpi_s3_head_payload(const dlpi_s3_head *h, char out[65]) {
    uint8_t hash[32];
    if (h->presign || (h->unsigned_payload && h->has_body)) {
        dlpi_s3_copy(out, 65, "UNSIGNED-PAYLOAD");
    } else if (!h->has_body || h->body_bytes == 0) {
        dlpi_s3_copy(out, 65, DLPI_S3_EMPTY_SHA256);
    } else {
        dlpi_s3_sha256(h->body, (size_t)h->body_bytes, hash);
        dlpi_s3_hex(out, hash, sizeof hash);
    }
}

/* Write "AKIDEXAMPLE/20130524/us-east-1/s3/aws4_request". Returns false if it is too long. */
static bool dlpi_s3_head_credential(const dlpi_s3_head *h, dlpi_s3_head_parts *p) {
    const char *service = h->service ? h->service : "s3";
    int n = snprintf(p->credential, sizeof p->credential, "%s/%.8s/%s/%s/aws4_request",
                     h->who->access, p->iso, h->region, service);
    return n > 0 && (size_t)n < sizeof p->credential &&
           strlen(h->region) < sizeof h->keys->region && /* or a key would be made of less */
           strlen(service) < sizeof h->keys->service;
}

/* Write the signature of a request in hex. The parts must be complete. */
static void dlpi_s3_head_sign(const dlpi_s3_head *h, dlpi_s3_head_parts *p, char out[65]) {
    dlpi_s3_signing g = {0};
    g.method = h->method, g.path = h->path, g.payload = p->payload;
    g.headers = p->headers, g.n_headers = p->n_headers;
    g.params = p->params, g.n_params = p->n_params;
    g.iso = p->iso, g.region = h->region, g.service = h->service ? h->service : "s3";
    g.who = h->who, g.keys = h->keys;
    dlpi_s3_sign(&g, out);
}

/* List the headers to sign, in order: those for the service, and what changes the answer. */
static void dlpi_s3_head_signed(const dlpi_s3_head *h, dlpi_s3_head_parts *p) {
    dlpi_s3_out names = {p->names, sizeof p->names, 0};
    dlpi_s3_head_header(p, "host", h->host);
    if (!h->presign) {
        dlpi_s3_head_header(p, "if-match", h->if_match);
        dlpi_s3_head_header(p, "range", h->range);
        dlpi_s3_head_header(p, "x-amz-checksum-mode", h->checksum ? "ENABLED" : NULL);
        dlpi_s3_head_header(p, "x-amz-content-sha256", p->payload);
        dlpi_s3_head_header(p, "x-amz-date", p->iso);
        dlpi_s3_head_header(p, "x-amz-request-payer", h->requester_pays ? "requester" : NULL);
        dlpi_s3_head_header(p, "x-amz-security-token", h->who->token[0] ? h->who->token : NULL);
    }
    for (size_t i = 0; i < p->n_headers; i++) {
        if (i > 0) dlpi_s3_out_add(&names, ";", 1);
        dlpi_s3_out_adds(&names, p->headers[i].name);
    }
    dlpi_s3_out_end(&names);
}

/* Write "GET /path?query". The query has all that presigning adds, but for the signature. */
static void dlpi_s3_head_line(const dlpi_s3_head *h, dlpi_s3_head_parts *p, dlpi_s3_out *o) {
    size_t before = p->n_params;
    const char *mark = "?";
    dlpi_s3_out_adds(o, h->method);
    dlpi_s3_out_adds(o, h->proxy ? " http://" : " ");
    if (h->proxy) dlpi_s3_out_adds(o, h->host);
    dlpi_s3_out_adds(o, h->path);
    if (h->query && h->query[0]) {
        dlpi_s3_out_add(o, "?", 1);
        dlpi_s3_out_adds(o, h->query);
        mark = "&";
    }
    if (!p->iso[0] || !h->presign) return;
    snprintf(p->expires, sizeof p->expires, "%d", h->expires_s > 0 ? (int)h->expires_s : 900);
    dlpi_s3_head_param(p, "X-Amz-Algorithm", "AWS4-HMAC-SHA256");
    dlpi_s3_head_param(p, "X-Amz-Credential", p->credential);
    dlpi_s3_head_param(p, "X-Amz-Date", p->iso);
    dlpi_s3_head_param(p, "X-Amz-Expires", p->expires);
    if (h->who->token[0]) dlpi_s3_head_param(p, "X-Amz-Security-Token", h->who->token);
    dlpi_s3_head_param(p, "X-Amz-SignedHeaders", p->names);
    if (h->checksum) dlpi_s3_head_param(p, "x-amz-checksum-mode", "ENABLED");
    if (h->requester_pays) dlpi_s3_head_param(p, "x-amz-request-payer", "requester");
    for (size_t i = before; i < p->n_params; i++, mark = "&") {
        size_t from;
        dlpi_s3_out_adds(o, mark);
        dlpi_s3_out_adds(o, p->params[i].name.at);
        dlpi_s3_out_add(o, "=", 1);
        from = o->n;
        dlpi_s3_out_escaped(o, p->params[i].value.at);
        if (o->n >= o->size) return;
        p->params[i].value = (dlpi_s3_span){o->to + from, o->n - from}; /* to be signed as sent */
    }
}

/* True if a value (may be NULL) has no control bytes, one of which would end its header. */
static bool dlpi_s3_head_ok(const char *value) {
    if (!value) return true;
    for (; *value; value++)
        if ((unsigned char)*value < ' ' || *value == 127) return false;
    return true;
}

/* True if a text (may be NULL) has no blanks and is printable ASCII, for the first line. */
static bool dlpi_s3_head_line_ok(const char *escaped) {
    if (!escaped) return true;
    for (; *escaped; escaped++)
        if ((unsigned char)*escaped <= ' ' || (unsigned char)*escaped >= 127) return false;
    return true;
}

/* Write the headers behind the line: host, signed ones, those of the body and the connection. */
static void dlpi_s3_head_rest(const dlpi_s3_head *h, const dlpi_s3_head_parts *p, bool sign,
                              const char *signature, dlpi_s3_out *o) {
    char length[24];
    dlpi_s3_out_adds(o, " HTTP/1.1\r\n");
    dlpi_s3_out_header(o, "Host", h->host);
    if (h->range) dlpi_s3_out_header(o, "Range", h->range);
    if (h->if_match) dlpi_s3_out_header(o, "If-Match", h->if_match);
    if (h->checksum && !(sign && h->presign))
        dlpi_s3_out_header(o, "x-amz-checksum-mode", "ENABLED");
    if (sign && !h->presign) {
        dlpi_s3_out_header(o, "x-amz-content-sha256", p->payload);
        dlpi_s3_out_header(o, "x-amz-date", p->iso);
        if (h->requester_pays) dlpi_s3_out_header(o, "x-amz-request-payer", "requester");
        if (h->who->token[0]) dlpi_s3_out_header(o, "x-amz-security-token", h->who->token);
        dlpi_s3_out_adds(o, "Authorization: AWS4-HMAC-SHA256 Credential=");
        dlpi_s3_out_adds(o, p->credential);
        dlpi_s3_out_adds(o, ", SignedHeaders=");
        dlpi_s3_out_adds(o, p->names);
        dlpi_s3_out_adds(o, ", Signature=");
        dlpi_s3_out_add(o, signature, 64);
        dlpi_s3_out_add(o, "\r\n", 2);
    }
    if (h->has_body) {
        snprintf(length, sizeof length, "%llu", (unsigned long long)h->body_bytes);
        dlpi_s3_out_header(o, "Content-Length", length);
    }
    if (h->close) dlpi_s3_out_header(o, "Connection", "close");
    if (h->extra) dlpi_s3_out_adds(o, h->extra);
    if (h->proxy) dlpi_s3_out_adds(o, h->proxy);
    dlpi_s3_out_add(o, "\r\n", 2);
}

/* Write the head of a request, signed, up to its empty line; it need not be terminated. Returns its
   bytes, or -1 if it does not fit, has more than 64 parameters, or a value that its line cannot
   hold. */
static int dlpi_s3_head_write(const dlpi_s3_head *h, char *to, size_t size) {
    dlpi_s3_head_parts p;
    dlpi_s3_out o = {to, size, 0};
    bool sign = h->who && !h->who->anonymous;
    char signature[65] = "";
    int n = dlpi_s3_query_split(h->query, p.params, DLPI_S3_MAX_PARAMS);
    if (n < 0 || !dlpi_s3_head_ok(h->host)) return -1;
    if (!dlpi_s3_head_ok(h->range) || !dlpi_s3_head_ok(h->if_match)) return -1;
    if (!dlpi_s3_head_line_ok(h->path) || !dlpi_s3_head_line_ok(h->query)) return -1;
    p.n_params = (size_t)n;
    p.n_headers = 0;
    p.iso[0] = '\0';
    if (sign) {
        dlpi_s3_date(h->now_s, p.iso);
        if (!dlpi_s3_head_credential(h, &p)) return -1;
        if (!dlpi_s3_head_ok(p.credential) || !dlpi_s3_head_ok(h->who->token)) return -1;
        dlpi_s3_head_payload(h, p.payload);
        dlpi_s3_head_signed(h, &p);
    }
    dlpi_s3_head_line(h, &p, &o);
    if (o.n >= o.size) return -1;
    if (sign) dlpi_s3_head_sign(h, &p, signature);
    if (sign && h->presign) {
        dlpi_s3_out_adds(&o, "&X-Amz-Signature=");
        dlpi_s3_out_adds(&o, signature);
    }
    dlpi_s3_head_rest(h, &p, sign, signature, &o);
    return o.n <= o.size && o.n <= INT32_MAX ? (int)o.n : -1;
}

/* ---- Where a bucket is. */

/* True if a bucket's name can be the first label of a host's name. With TLS it must have no dots,
   which certificates do not cover. */
static bool dlpi_s3_bucket_fits(const char *bucket, bool tls) {
    size_t n = strlen(bucket);
    if (n < 3 || n > 63) return false;
    for (size_t i = 0; i < n; i++) {
        char c = bucket[i];
        bool sign = c == '-' || (c == '.' && !tls);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && !sign) return false;
        if (sign && (i == 0 || i == n - 1 || bucket[i - 1] == '.')) return false;
        if (c == '.' && bucket[i - 1] == '-') return false;
    }
    return strspn(bucket, "0123456789.") < n || !strchr(bucket, '.');
}

static bool dlpi_s3_region_ok(const char *region) {
    size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n < 64 && region[n] == '\0';
}

/* Return an error text if a bucket's name stands for something else, or NULL. Endings such as
   "--x-s3" do so only at AWS; elsewhere they are names like any other. */
static const char *dlpi_s3_bucket_beyond(const dlpi_s3_endpoint *e, const char *bucket) {
    static const char *const kinds[][2] = {
        {"--x-s3", "a directory bucket (S3 Express), which is not supported; use another bucket"},
        {"--xa-s3", "an access point of S3 Express, which is not supported; use another bucket"},
        {"--op-s3",
         "an access point of S3 on Outposts, which is not supported; use another bucket"}};
    size_t n = strlen(bucket);
    if (strcmp(bucket, ".") == 0 || strcmp(bucket, "..") == 0)
        return "must not be '.' or '..', which are steps of a path";
    if (strncmp(bucket, "arn:", 4) == 0) return "an ARN; give the alias of the access point";
    if (e->custom && !strstr(e->host, ".amazonaws.com")) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t k = strlen(kinds[i][0]);
        if (n > k && strcmp(bucket + n - k, kinds[i][0]) == 0) return kinds[i][1];
    }
    return NULL;
}

/* Write the host and the path of an object, or of the bucket itself (key ""). host: the Host
   header, with an unusual port. path: escaped once and never made simpler, so that "a//b", "./c"
   and "a+b" stay other keys than "a/b", "c" and "a b". Returns DLP_OK, or DLP_ERR_ARG: no bucket,
   one that cannot be in a host's name but must be, a region that is no name, or too long. */
static int dlpi_s3_place(const dlpi_s3_endpoint *e, const char *region, int style,
                         const char *bucket, const char *key, char *host, size_t host_size,
                         char *path, size_t path_size) {
    bool address = strchr(e->host, ':') || strspn(e->host, "0123456789.") == strlen(e->host);
    bool fits = !address && dlpi_s3_bucket_fits(bucket, e->tls != 0), in_host;
    char name[300];
    dlpi_s3_out h = {host, host_size, 0}, p = {path, path_size, 0};
    if (bucket[0] == '\0' || (!e->custom && !dlpi_s3_region_ok(region))) return DLP_ERR_ARG;
    if (style == DLP_S3_STYLE_VIRTUAL && !fits) return DLP_ERR_ARG;
    in_host = style == DLP_S3_STYLE_VIRTUAL || (style == DLP_S3_STYLE_AUTO && !e->custom && fits);
    if (e->custom)
        dlpi_s3_endpoint_host(e, name, sizeof name);
    else
        dlpi_s3_aws_host(e, region, name, sizeof name);
    if (in_host) {
        dlpi_s3_out_adds(&h, bucket);
        dlpi_s3_out_add(&h, ".", 1);
    }
    dlpi_s3_out_adds(&h, name);
    dlpi_s3_out_adds(&p, e->prefix);
    dlpi_s3_out_add(&p, "/", 1);
    if (!in_host) {
        dlpi_s3_out_escaped(&p, bucket);
        if (key[0]) dlpi_s3_out_add(&p, "/", 1);
    }
    if (p.n < p.size) p.n += dlpi_s3_uri_encode(path + p.n, p.size - p.n, key, strlen(key), true);
    return dlpi_s3_out_end(&h) && dlpi_s3_out_end(&p) ? DLP_OK : DLP_ERR_ARG;
}

/* Split a Host header into the name to look up and the port. Returns DLP_OK or DLP_ERR_ARG. */
static int dlpi_s3_place_address(const char *host, bool tls, char name[256], uint16_t *port) {
    *port = tls ? 443 : 80;
    return dlpi_s3_authority(host, strlen(host), name, port) ? DLP_ERR_ARG : DLP_OK;
}
