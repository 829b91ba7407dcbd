#pragma once
/* tests: system/s3/s3_proxy, system/s3/s3_credentials */
#include "s3/secrets.h"
/* ---- proxies ----
   A proxy carries connections of https to their servers (CONNECT), and requests of http, whose line
   then has the whole URL. Which proxy is for what is settled by dlp_s3_open. Its user and password
   are kept as the header that proxies want (Basic), and no message has them. */

/* Write the bytes of an address. Returns how many, or 0 if the text is none. */
static size_t dlpi_s3_address_bytes(const char *text, uint8_t bytes[16]) {
    if (inet_pton(AF_INET, text, bytes) == 1) return 4;
    return inet_pton(AF_INET6, text, bytes) == 1 ? 16 : 0;
}

/* True if host is an address of a net, "10.0.0.0/8". */
static bool dlpi_s3_net_has(const char *net, const char *host) {
    const char *slash = strchr(net, '/');
    uint8_t a[16], b[16];
    char first[64];
    size_t n, bits, digits = slash ? strlen(slash + 1) : 0;
    if (digits < 1 || digits > 3 || slash - net >= (int)sizeof first) return false;
    if (dlpi_s3_number(slash + 1, digits) < 0) return false;
    bits = (size_t)dlpi_s3_number(slash + 1, digits);
    snprintf(first, sizeof first, "%.*s", (int)(slash - net), net);
    n = dlpi_s3_address_bytes(first, a);
    if (n == 0 || n != dlpi_s3_address_bytes(host, b) || bits > 8 * n) return false;
    if (memcmp(a, b, bits / 8) != 0) return false;
    return bits % 8 == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8) == 0;
}

/* True if a word of NO_PROXY names an endpoint's host, or a domain or net that it is in. */
static bool dlpi_s3_word_covers(const char *word, const dlpi_s3_endpoint *e) {
    char host[256];
    uint16_t port = e->port;
    size_t n = strlen(e->host), m;
    if (strcmp(word, "*") == 0 || strcasecmp(word, e->host) == 0) return true;
    if (dlpi_s3_net_has(word, e->host)) return true;
    if (*word == '*') word++;
    if (*word == '.') word++;
    if (dlpi_s3_authority(word, strlen(word), host, &port) || port != e->port) return false;
    m = strlen(host);
    if (n <= m) return strcmp(host, e->host) == 0;
    return e->host[n - m - 1] == '.' && strcmp(e->host + n - m, host) == 0;
}

/* True if a word of the list covers the endpoint, so that no proxy is used. Commas or blanks
   separate words. The list may be NULL. */
static bool dlpi_s3_no_proxy(const char *list, const dlpi_s3_endpoint *e) {
    char word[300];
    while (list && *list) {
        size_t n = strcspn(list, ", \t");
        if (n && n < sizeof word) {
            snprintf(word, sizeof word, "%.*s", (int)n, list);
            if (dlpi_s3_word_covers(word, e)) return true;
        }
        list += n + (list[n] != '\0');
    }
    return false;
}

static bool dlpi_s3_is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || dlpi_s3_net_has("127.0.0.0/8", host) ||
           dlpi_s3_net_has("::1/128", host);
}

/* Return the value of a variable, in small letters or in capitals, or NULL if neither is set. */
static const char *dlpi_s3_setting(const char *lower, const char *capitals) {
    const char *value = secure_getenv(lower);
    return value ? value : secure_getenv(capitals);
}

/* Return the proxy that a variable (*name) names for a scheme; NULL or "" if there is none. */
static const char *dlpi_s3_proxy_named(bool tls, const char **name) {
    const char *const names[] = {tls ? "https_proxy" : "http_proxy",
                                 tls ? "HTTPS_PROXY" : "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
    const char *value = NULL;
    for (int i = 0; i < 4 && !value; i++) value = secure_getenv(*name = names[i]);
    return value;
}

/* Refuse an endpoint of credentials that would be reached by a proxy. No message has its URL, which
   might hold a password. Returns DLP_OK or DLP_ERR_UNSUPPORTED. */
static int dlpi_s3_proxy_beyond(const dlpi_s3_endpoint *e, dlp_s3_error *err) {
    const char *name, *value = dlpi_s3_proxy_named(e->tls != 0, &name);
    if (!value || !*value || dlpi_s3_is_loopback(e->host)) return DLP_OK;
    if (dlpi_s3_no_proxy(dlpi_s3_setting("no_proxy", "NO_PROXY"), e)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%s is set, but credentials are not fetched by a proxy; if %.100s can "
                             "be reached without one, add it to NO_PROXY",
                             name, e->host);
}

/* Append n bytes in base64, with padding. */
static void dlpi_s3_base64(dlpi_s3_out *o, const char *from, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(uint8_t)from[i] << 16;
        if (i + 1 < n) v |= (uint32_t)(uint8_t)from[i + 1] << 8;
        if (i + 2 < n) v |= (uint8_t)from[i + 2];
        for (size_t k = 0; k < 4; k++)
            dlpi_s3_out_add(o, i + k > n ? "=" : &digits[v >> (18 - 6 * k) & 63], 1);
    }
}

/* Keep "user:password" as the header of a proxy. Returns NULL or an error text. */
static const char *dlpi_s3_proxy_user(dlpi_s3_proxy *p, const char *at, size_t n) {
    char text[512];
    const char *colon = memchr(at, ':', n);
    size_t user_n = colon ? (size_t)(colon - at) : n;
    int64_t user = dlpi_s3_uri_decode(text, sizeof text - 1, at, user_n, false), word = 0;
    dlpi_s3_out o = {p->header, sizeof p->header, 0};
    if (user >= 0) text[user] = ':';
    if (user >= 0 && colon)
        word = dlpi_s3_uri_decode(text + user + 1, sizeof text - (size_t)user - 1, colon + 1,
                                  n - user_n - 1, false);
    if (user >= 0 && word >= 0) {
        dlpi_s3_out_adds(&o, "Proxy-Authorization: Basic ");
        dlpi_s3_base64(&o, text, (size_t)(user + 1 + word));
        dlpi_s3_out_adds(&o, "\r\n");
    }
    dlpi_s3_wipe(text, sizeof text);
    if (user < 0 || word < 0) return "its user and password are too long, or have a bad escape";
    return dlpi_s3_out_end(&o) ? NULL : "its user and password are too long";
}

/* Take a proxy's URL apart. Returns NULL or an error text, which has no part of the URL. */
static const char *dlpi_s3_proxy_parse(dlpi_s3_proxy *p, const char *url) {
    const char *scheme = strstr(url, "://"), *at = scheme ? scheme + 3 : url, *user;
    const char *wrong;
    size_t n = strcspn(at, "/?#");
    if (scheme && strncasecmp(url, "http://", 7) != 0)
        return "only a proxy of http is supported: http://HOST:PORT";
    if (at[n + (at[n] == '/')]) return "something follows HOST:PORT (a '/' in a password is %2F)";
    memset(p, 0, sizeof *p);
    p->port = 80;
    user = memrchr(at, '@', n);
    wrong = user ? dlpi_s3_proxy_user(p, at, (size_t)(user - at)) : NULL;
    if (user) n -= (size_t)(user + 1 - at), at = user + 1;
    if (!wrong) wrong = dlpi_s3_authority(at, n, p->host, &p->port);
    if (wrong) dlpi_s3_wipe(p, sizeof *p);
    return wrong;
}

/* True if connections to a host go by the proxies of the environment. */
static bool dlpi_s3_proxy_covers(const dlpi_s3_config *c, const char *host, uint16_t port) {
    dlpi_s3_endpoint e = {.port = port};
    dlpi_s3_copy(e.host, sizeof e.host, host);
    return !dlpi_s3_is_loopback(host) && !dlpi_s3_no_proxy(c->no_proxy, &e);
}

/* Return the proxy of a host, or NULL if there is none. */
static const dlpi_s3_proxy *dlpi_s3_proxy_of(const dlpi_s3_config *c, const char *host,
                                             uint16_t port, bool tls) {
    const dlpi_s3_proxy *p = &c->proxy[tls];
    return p->host[0] && (p->given || dlpi_s3_proxy_covers(c, host, port)) ? p : NULL;
}

/* Find the proxies: the desc's is for all hosts; else the environment names them. Only a proxy that
   the endpoint needs must be in order. Returns DLP_OK or an error code. */
static int dlpi_s3_proxies_load(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_endpoint *e,
                                dlp_s3_error *err) {
    const char *none = dlpi_s3_setting("no_proxy", "NO_PROXY"), *name, *url, *wrong;
    if (none && !d->proxy && !dlpi_s3_copy(c->no_proxy, sizeof c->no_proxy, none))
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "NO_PROXY: must have at most %d bytes",
                                 (int)sizeof c->no_proxy - 1);
    for (int tls = 0; tls < 2; tls++) {
        name = "proxy";
        url = d->proxy ? d->proxy : dlpi_s3_proxy_named(tls != 0, &name);
        if (!url || !*url) continue;
        wrong = dlpi_s3_proxy_parse(&c->proxy[tls], url);
        c->proxy[tls].given = d->proxy != NULL;
        if (wrong && (d->proxy || (tls == e->tls && dlpi_s3_proxy_covers(c, e->host, e->port))))
            return dlpi_s3_set_error(err, d->proxy ? DLP_ERR_ARG : DLP_ERR_UNSUPPORTED, 0,
                                     "%s: %s; if %.100s can be reached without it, %s", name, wrong,
                                     e->host, d->proxy ? "give \"\"" : "add it to NO_PROXY");
    }
    return DLP_OK;
}
