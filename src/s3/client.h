#pragma once
/* tests: system/s3/s3_engine, system/s3/s3_servers */
#include "s3/engine.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-client       OPEN, CLOSE, ONE REQUEST AT A TIME */

typedef struct dlpi_s3_bound {
    const char *field;
    size_t at; /* in dlp_s3_desc */
    int32_t standard, least, most;
} dlpi_s3_bound;

#define DLPI_S3_NUMBER(field, standard, least, most) \
    { #field, offsetof(dlp_s3_desc, field), standard, least, most }

/* Set numbers of the desc that are 0 to defaults, and check all. Returns DLP_OK or DLP_ERR_ARG. */
static int dlpi_s3_resolve_numbers(dlp_s3_desc *d, dlp_s3_error *err) {
    static const dlpi_s3_bound numbers[] = {
        DLPI_S3_NUMBER(style, 0, 0, DLP_S3_STYLE_VIRTUAL),
        DLPI_S3_NUMBER(connect_timeout_ms, 3000, 1, INT32_MAX),
        DLPI_S3_NUMBER(first_byte_timeout_ms, 10000, 1, INT32_MAX),
        DLPI_S3_NUMBER(stall_timeout_ms, 5000, 1, INT32_MAX),
        DLPI_S3_NUMBER(request_timeout_ms, -1, -1, INT32_MAX),
        DLPI_S3_NUMBER(progress_timeout_ms, 120000, 1, INT32_MAX),
        DLPI_S3_NUMBER(max_attempts, -1, -1, 100),
        DLPI_S3_NUMBER(backoff_ms, 50, 1, 60000),
        DLPI_S3_NUMBER(backoff_max_ms, 5000, 1, 3600000),
        DLPI_S3_NUMBER(retry_tokens, 500, -1, INT32_MAX),
        DLPI_S3_NUMBER(hedge_percent, 5, -1, 100),
        DLPI_S3_NUMBER(max_requests, 64, 1, 4096),
        DLPI_S3_NUMBER(idle_timeout_ms, 20000, 1, INT32_MAX),
        DLPI_S3_NUMBER(max_idle, 0, 0, 8192),
        DLPI_S3_NUMBER(checksums, 0, -1, 1),
    };
    if (d->progress_timeout_ms == 0 && d->request_timeout_ms > 0)
        d->progress_timeout_ms = d->request_timeout_ms;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int32_t n;
        memcpy(&n, (char *)d + numbers[i].at, sizeof n);
        if (n == 0) n = numbers[i].standard;
        if (n < numbers[i].least || n > numbers[i].most)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: is %d, must be %d..%d",
                                     numbers[i].field, (int)n, (int)numbers[i].least,
                                     (int)numbers[i].most);
        memcpy((char *)d + numbers[i].at, &n, sizeof n);
    }
    if (d->max_idle == 0) d->max_idle = d->max_requests;
    if (d->part_bytes == 0) d->part_bytes = 8u << 20;
    if (d->part_bytes < 65536 || d->part_bytes > 1u << 30)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "part_bytes: is %llu, must be 64 KiB..1 GiB",
                                 (unsigned long long)d->part_bytes);
    return DLP_OK;
}

/* True if a host is of Google's: its server decodes objects that are stored as gzip. */
static bool dlpi_s3_host_google(const char *host) {
    static const char domain[] = ".googleapis.com";
    size_t n = strlen(host), k = sizeof domain - 1;
    return n > k && strcmp(host + n - k, domain) == 0;
}

/* Set the client's endpoint (desc->endpoint, or else AWS), load the proxies, and choose the TLS
   transport (desc->tls, or else OpenSSL if it is compiled in). Returns DLP_OK or an error code. */
static int dlpi_s3_open_endpoint(dlp_s3 *s3, const dlp_s3_desc *desc, dlp_s3_error *err) {
    dlpi_s3_config *c = &s3->common->config;
    const char *why = "";
    int code;
    if (!c->endpoint[0]) {
        dlpi_s3_endpoint_aws(&s3->endpoint, c->region);
        s3->endpoint.fips = c->fips;
        s3->endpoint.dualstack = c->dualstack;
        dlpi_s3_aws_host(&s3->endpoint, c->region, s3->endpoint.host, sizeof s3->endpoint.host);
    } else if (dlpi_s3_endpoint_parse(&s3->endpoint, c->endpoint, &why) != DLP_OK) {
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "endpoint: %s; it must be http(s)://HOST[:PORT][/PATH]", why);
    }
    s3->common->shared.decodes = dlpi_s3_host_google(s3->endpoint.host);
    code = dlpi_s3_proxies_load(c, desc, &s3->endpoint, err);
    if (code != DLP_OK) return code;
    if (desc->tls) {
        s3->tls = *desc->tls;
        s3->has_tls = true;
    } else {
        code = dlpi_s3_tls_new(&s3->tls, c->ca_file[0] ? c->ca_file : NULL, err);
        s3->has_tls = s3->own_tls = code == DLP_OK;
        if (code != DLP_OK && code != DLP_ERR_UNSUPPORTED) return code;
        if (code == DLP_ERR_UNSUPPORTED && err) memset(err, 0, sizeof *err);
    }
    if (s3->endpoint.tls && !s3->has_tls)
        return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                                 "endpoint: https needs DLPIPE_S3_OPENSSL, or desc.tls");
    c->tls = s3->has_tls ? &s3->tls : NULL;
    return DLP_OK;
}

/* Set requester_pays if AWS_REQUEST_PAYER is "requester". Returns DLP_OK, or DLP_ERR_ARG if the
   variable has another text, or if an anonymous client has requester_pays. */
static int dlpi_s3_open_payer(dlp_s3 *s3, dlp_s3_error *err) {
    const char *payer = dlpi_s3_env("AWS_REQUEST_PAYER");
    if (!s3->desc.requester_pays && payer && !s3->desc.anonymous) {
        if (strcasecmp(payer, "requester") != 0)
            return dlpi_s3_set_error(
                err, DLP_ERR_ARG, 0,
                "AWS_REQUEST_PAYER: is \"%.30s\", must be \"requester\", or unset", payer);
        s3->desc.requester_pays = 1;
    }
    if (s3->desc.requester_pays && s3->desc.anonymous)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "requester_pays: must be 0 with anonymous");
    return DLP_OK;
}

/* Fill in a client: numbers, configuration, checksums, endpoint, first credentials. Returns DLP_OK
   or an error code, which is DLP_ERR_REMOTE if a server gave no credentials. */
static int dlpi_s3_open_parts(dlp_s3 *s3, const dlp_s3_desc *desc, dlp_s3_error *err) {
    int code = dlpi_s3_resolve_numbers(&s3->desc, err);
    if (code != DLP_OK) return code;
    code = dlpi_s3_config_load(&s3->common->config, desc, err);
    if (code != DLP_OK) return code;
    s3->common->config.pause_ms = s3->desc.backoff_ms;
    s3->common->config.pause_max_ms = s3->desc.backoff_max_ms;
    code = dlpi_s3_open_payer(s3, err);
    if (code != DLP_OK) return code;
    if (desc->style == DLP_S3_STYLE_AUTO) s3->desc.style = s3->common->config.style;
    if (desc->max_attempts == 0) s3->desc.max_attempts = s3->common->config.max_attempts;
    if (!dlpi_s3_crc_begin() || s3->common->config.no_checksums)
        s3->desc.checksums = desc->checksums > 0 ? 1 : -1;
    else if (desc->checksums == 0)
        s3->desc.checksums = DLPI_S3_CHECKSUMS_TRIED;
    code = dlpi_s3_open_endpoint(s3, desc, err);
    if (code != DLP_OK) return code;
    code = dlpi_s3_cred_cache_refresh(&s3->common->config, &s3->common->cred_cache, 0, false, err);
    return code == DLP_OK || code == DLP_ERR_MEMORY || code == DLP_ERR_SYSTEM ||
                   code == DLP_ERR_ARG || code == DLP_ERR_UNSUPPORTED
               ? code
               : DLP_ERR_REMOTE;
}

DLPDEF int dlp_s3_open(dlp_s3 **out, const dlp_s3_desc *desc, dlp_s3_error *err) {
    static const dlp_s3_desc none = {0};
    dlp_s3 *s3;
    int code;
    if (err) memset(err, 0, sizeof *err);
    if (!out) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "out is NULL");
    if (!desc) desc = &none;
    s3 = (dlp_s3 *)calloc(1, sizeof *s3);
    if (!s3) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM, "no memory for a client");
    s3->common_bytes = sizeof *s3->common;
    s3->common = (dlpi_s3_common *)mmap(NULL, s3->common_bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s3->common == MAP_FAILED) {
        code = errno;
        free(s3);
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, code, "no memory for what clients share");
    }
    madvise(s3->common, s3->common_bytes, MADV_DONTDUMP);
    s3->users = 1;
    s3->desc = *desc;
    s3->desc.endpoint = s3->desc.region = s3->desc.profile = s3->desc.ca_file = NULL;
    s3->desc.proxy = NULL;
    s3->desc.access_key = s3->desc.secret_key = s3->desc.session_token = NULL;
    s3->desc.tls = NULL;
    code = dlpi_s3_cred_cache_begin(&s3->common->cred_cache);
    if (code != 0) {
        dlpi_s3_set_error(err, DLP_ERR_SYSTEM, code, "processes cannot share a lock here: %s",
                          strerror(code));
        munmap(s3->common, s3->common_bytes);
        free(s3);
        return DLP_ERR_SYSTEM;
    }
    code = dlpi_s3_open_parts(s3, desc, err);
    if (code != DLP_OK) {
        dlpi_s3_drop(s3);
        return code;
    }
    *out = s3;
    return DLP_OK;
}

DLPDEF int dlp_s3_close(dlp_s3 *s3) {
    uint64_t ios;
    if (!s3) return DLP_OK;
    ios = DLPI_LOAD_RLX(&s3->ios); /* S6 */
    if (ios >> 32 == (uint64_t)(uint32_t)getpid() && (uint32_t)ios > 0) return DLP_ERR_BUSY;
    dlpi_s3_drop(s3);
    return DLP_OK;
}

DLPDEF void dlp_s3_stats_get(const dlp_s3 *s3, dlp_s3_stats *out) {
    uint64_t count[DLPI_S3_COUNTS];
    for (int i = 0; i < DLPI_S3_COUNTS; i++)
        count[i] = DLPI_LOAD_RLX(&s3->common->shared.count[i]); /* S8, each by itself */
    count[DLPI_S3_N_AWAY] = dlpi_s3_away_for(&s3->common->shared, dlpi_s3_now_ns());
    count[DLPI_S3_N_REFRESHES] =
        DLPI_LOAD_RLX(&s3->common->cred_cache.version) - 1; /* open has one */
    memcpy(out, count, sizeof *out);
}

DLPDEF int dlp_s3_get(dlp_s3_io *io, const char *bucket, const char *key, void *body,
                      uint64_t capacity, uint64_t *received, dlp_s3_error *err) {
    dlp_s3_request r;
    int code;
    memset(&r, 0, sizeof r);
    r.bucket = bucket;
    r.key = key;
    r.body = body;
    r.capacity = capacity;
    code = dlp_s3_do(io, &r);
    if (err) *err = r.error;
    if (code == DLP_OK && received) *received = r.received;
    if (err && !err->code) err->code = code; /* FULL, FORKED: not of this request */
    return code;
}

/* Write "s3://bucket/key: bytes 0-9: message (HTTP 403 ...) [errno ...]", without empty parts. */
DLPDEF int dlp_s3_error_format(const dlp_s3_error *err, char *buf, size_t size) {
    char place[400] = "", range[64] = "", http[256] = "", os[96] = "";
    if (err->bucket[0])
        snprintf(place, sizeof place, "s3://%s/%s%s: ", err->bucket,
                 strlen(err->key) == sizeof err->key - 1 ? "..." : "", err->key);
    dlpi_s3_one_line(place);
    if (err->last == UINT64_MAX)
        snprintf(range, sizeof range, "bytes from %llu: ", (unsigned long long)err->first);
    else if (err->last)
        snprintf(range, sizeof range, "bytes %llu-%llu: ", (unsigned long long)err->first,
                 (unsigned long long)err->last);
    if (err->http_status)
        snprintf(http, sizeof http, " (HTTP %d%s%s%s%s)", (int)err->http_status,
                 err->s3_code[0] ? " " : "", err->s3_code, err->request_id[0] ? ", request " : "",
                 err->request_id);
    if (err->errnum) {
        const char *text = strerror(err->errnum);
        bool said = strstr(err->message, text) != NULL;
        snprintf(os, sizeof os, " [errno %d%s%s]", (int)err->errnum, said ? "" : ": ",
                 said ? "" : text);
    }
    return snprintf(buf, size, "%s%s%s%s%s%s", place, range,
                    err->message[0] ? err->message : "no error", http, os,
                    err->attempts > 1 ? "; tried more than once" : "");
}
