#pragma once
/* tests: unit/s3/s3_sign, fuzz/fuzz_s3 */
#include "s3/platform.h"
#include "api/codes.h"
static bool dlpi_s3_is_blank(char c) { return c == ' ' || c == '\t'; }

/* Leave out the blanks at both ends of a text. */
static void dlpi_s3_trim(const char **s, size_t *n) {
    while (*n && dlpi_s3_is_blank(**s)) (*s)++, (*n)--;
    while (*n && dlpi_s3_is_blank((*s)[*n - 1])) (*n)--;
}

/* ---- URIs (RFC 3986). Signing wants exactly the unreserved characters left alone, and escapes
   in capitals. */

static inline bool dlpi_s3_uri_plain(unsigned char c) {
    static const uint64_t map[4] = {0x03ff600000000000u, 0x47fffffe87fffffeu, 0, 0}; /* -. 0-9... */
    return (map[c >> 6] >> (c & 63) & 1) != 0;
}

/* Escape n bytes, but not '/' with keep_slash. Writes what fits, whole characters and a terminator.
   Returns the whole length, as snprintf does. */
static size_t dlpi_s3_uri_encode(char *to, size_t size, const char *from, size_t n,
                                 bool keep_slash) {
    size_t at = 0, end = 0; /* end: of what was written */
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        bool plain = dlpi_s3_uri_plain(c) || (c == '/' && keep_slash);
        size_t more = plain ? 1 : 3;
        if (at + more < size) { /* if not, then none after it either */
            to[at] = plain ? (char)c : '%';
            if (!plain) to[at + 1] = "0123456789ABCDEF"[c >> 4];
            if (!plain) to[at + 2] = "0123456789ABCDEF"[c & 15];
            end += more;
        }
        at += more;
    }
    if (size > 0) to[end] = '\0';
    return at;
}

static int dlpi_s3_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Undo escapes, in place if to == from. plus: '+' is a space, as in forms. The text is terminated.
   Returns its length, or -1 if an escape is bad or there are more than size - 1 bytes. */
static int64_t dlpi_s3_uri_decode(char *to, size_t size, const char *from, size_t n, bool plus) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < n ? dlpi_s3_hex_digit(from[i + 1]) : -1;
            int low = i + 2 < n ? dlpi_s3_hex_digit(from[i + 2]) : -1;
            if (high < 0 || low < 0) return -1;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (at + 1 >= size) return -1;
        to[at++] = c;
    }
    if (size == 0) return -1;
    to[at] = '\0';
    return (int64_t)at;
}

/* Read a number of 4 or 8 bytes, the highest first, from its whole base64 with padding (RFC 4648).
   Returns false, and leaves *out as it is, if the text is none. */
static bool dlpi_s3_base64_number(const char *s, size_t n, size_t bytes, uint64_t *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bits = 8 * bytes;
    uint64_t value = 0;
    if (n != (bytes + 2) / 3 * 4) return false;
    for (size_t i = 0; i < n; i++) {
        size_t take = bits < 6 ? bits : 6; /* of the digit's bits; the others are 0 */
        const char *digit = s[i] ? strchr(digits, s[i]) : NULL;
        if (take == 0 ? s[i] != '=' : !digit) return false;
        if (take == 0) continue;
        if ((size_t)(digit - digits) & ((1u << (6 - take)) - 1)) return false;
        value = value << take | (uint64_t)(digit - digits) >> (6 - take);
        bits -= take;
    }
    *out = value;
    return true;
}

/* ---- Times. */

/* Return the days from 1970-01-01 to a date of the Gregorian calendar (Hinnant, "chrono-compatible
   low-level date algorithms"). */
static int64_t dlpi_s3_days(int64_t year, int64_t month, int64_t day) {
    int64_t y = year - (month <= 2), era = (y >= 0 ? y : y - 399) / 400, in_era = y - era * 400;
    int64_t in_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static void dlpi_s3_digits(char *to, int64_t value, int n) {
    for (int i = n - 1; i >= 0; i--, value /= 10) to[i] = (char)('0' + value % 10);
}

/* Write a time as "20130524T000000Z". unix_s: from year 0 to 9999; others become 1970. */
static void dlpi_s3_date(int64_t unix_s, char iso[17]) {
    int64_t days, z, era, in_era, y, in_year, m, second;
    if (unix_s < -62135596800 || unix_s > 253402300799) unix_s = 0;
    second = ((unix_s % 86400) + 86400) % 86400;
    days = (unix_s - second) / 86400;
    z = days + 719468;
    era = z / 146097;
    in_era = z - era * 146097;
    y = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    in_year = in_era - (365 * y + y / 4 - y / 100);
    m = (5 * in_year + 2) / 153;
    dlpi_s3_digits(iso + 6, in_year - (153 * m + 2) / 5 + 1, 2);
    m += m < 10 ? 3 : -9;
    dlpi_s3_digits(iso + 4, m, 2);
    dlpi_s3_digits(iso, y + era * 400 + (m <= 2), 4);
    dlpi_s3_digits(iso + 9, second / 3600, 2);
    dlpi_s3_digits(iso + 11, second / 60 % 60, 2);
    dlpi_s3_digits(iso + 13, second % 60, 2);
    iso[8] = 'T', iso[15] = 'Z', iso[16] = '\0';
}

/* Return a time in Unix seconds, or -1: out of range. A leap second is the one before it. */
static int64_t dlpi_s3_unix(int64_t year, int64_t month, int64_t day, int64_t h, int64_t min,
                            int64_t s) {
    static const int8_t most[12] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1) return -1;
    if (day > most[month - 1] || h < 0 || h > 23 || min < 0 || min > 59 || s < 0 || s > 60)
        return -1;
    if (month == 2 && day == 29 && (year % 4 != 0 || (year % 100 == 0 && year % 400 != 0)))
        return -1;
    return dlpi_s3_days(year, month, day) * 86400 + h * 3600 + min * 60 + (s == 60 ? 59 : s);
}

/* Read exactly n digits. Returns their value, or -1 if there is something else or it is above
   INT64_MAX. */
static int64_t dlpi_s3_number(const char *at, size_t n) {
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t digit = at[i] - '0';
        if (digit < 0 || digit > 9 || v > (INT64_MAX - digit) / 10) return -1;
        v = v * 10 + digit;
    }
    return v;
}

/* Read a number of n digits, at least one. Returns false if it is none, with *out as it was. */
static bool dlpi_s3_decimal(const char *at, size_t n, uint64_t *out) {
    int64_t v = n > 0 ? dlpi_s3_number(at, n) : -1;
    if (v >= 0) *out = (uint64_t)v;
    return v >= 0;
}

/* Read "2009-10-12T17:50:30.000Z", with or without a fraction, "+01:00" in place of Z; or
   "20091012T175030Z". Returns Unix seconds, or -1. */
static int64_t dlpi_s3_time_iso(const char *at, size_t n) {
    int64_t t, h, m;
    const char *zone;
    if (n == 16 && at[8] == 'T' && at[15] == 'Z')
        return dlpi_s3_unix(dlpi_s3_number(at, 4), dlpi_s3_number(at + 4, 2),
                            dlpi_s3_number(at + 6, 2), dlpi_s3_number(at + 9, 2),
                            dlpi_s3_number(at + 11, 2), dlpi_s3_number(at + 13, 2));
    if (n < 20 || at[4] != '-' || at[7] != '-' || (at[10] != 'T' && at[10] != ' ')) return -1;
    if (at[13] != ':' || at[16] != ':') return -1;
    t = dlpi_s3_unix(dlpi_s3_number(at, 4), dlpi_s3_number(at + 5, 2), dlpi_s3_number(at + 8, 2),
                     dlpi_s3_number(at + 11, 2), dlpi_s3_number(at + 14, 2),
                     dlpi_s3_number(at + 17, 2));
    zone = at + 19;
    if (*zone == '.') {
        zone++;
        while (zone < at + n && *zone >= '0' && *zone <= '9') zone++;
        if (zone == at + 20) return -1;
    }
    n -= (size_t)(zone - at);
    if (t < 0 || (n == 1 && *zone == 'Z')) return t;
    if (n != 6 || (*zone != '+' && *zone != '-') || zone[3] != ':') return -1;
    h = dlpi_s3_number(zone + 1, 2), m = dlpi_s3_number(zone + 4, 2);
    if (h < 0 || h > 23 || m < 0 || m > 59) return -1;
    t += (*zone == '-' ? 1 : -1) * (h * 3600 + m * 60);
    return t < 0 ? -1 : t;
}

/* Return the month 1..12 with this English name of three letters, or -1. */
static int dlpi_s3_month(const char *at, size_t n) {
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
    if (n != 3) return -1;
    for (int i = 0; i < 12; i++)
        if (strncasecmp(at, names + 3 * (size_t)i, 3) == 0) return i + 1;
    return -1;
}

/* Read a date of HTTP in any of its three forms (RFC 9110, 5.6.7): a month's name, a time, a day of
   one or two digits, then a year of two or four, in whatever order the others stand. Returns Unix
   seconds, or -1. */
static int64_t dlpi_s3_time_http(const char *at, size_t n) {
    const char *end = at + n;
    int64_t day = -1, month = -1, year = -1, h = -1, m = -1, s = -1;
    while (at < end) {
        const char *word = at;
        int64_t v;
        while (at < end && *at != ' ' && *at != ',' && *at != '-') at++;
        n = (size_t)(at - word);
        if (at < end) at++;
        v = n >= 1 && n <= 4 ? dlpi_s3_number(word, n) : -1;
        if (n == 8 && word[2] == ':' && word[5] == ':' && h < 0) {
            h = dlpi_s3_number(word, 2);
            m = dlpi_s3_number(word + 3, 2), s = dlpi_s3_number(word + 6, 2);
        } else if (v >= 0 && n <= 2 && day < 0) {
            day = v;
        } else if (v >= 0 && n == 2 && year < 0) {
            year = v + (v < 70 ? 2000 : 1900);
        } else if (v >= 0 && n == 4 && year < 0) {
            year = v;
        } else if (month < 0 && dlpi_s3_month(word, n) > 0) {
            month = dlpi_s3_month(word, n);
        }
    }
    return dlpi_s3_unix(year, month, day, h, m, s);
}

/* ---- Endpoints: "http://host:port/prefix". */

typedef struct dlpi_s3_endpoint {
    int32_t tls;
    int32_t is_default_port; /* 80, or 443 with tls */
    int32_t custom;          /* given by somebody; 0: AWS, by region */
    int32_t fips, dualstack; /* which of AWS' hosts */
    uint16_t port;
    char host[256];   /* without brackets, in small letters */
    char prefix[256]; /* of paths, before the bucket: "" or "/x", as it is sent */
} dlpi_s3_endpoint;

/* True if a host is a name in lower case, or an IP address. A name may end in a dot. */
static bool dlpi_s3_host_ok(const char *host) {
    unsigned char address[16];
    size_t label = 0;
    if (strchr(host, ':')) return inet_pton(AF_INET6, host, address) == 1;
    for (const char *p = host;; p++) {
        if (*p == '.' || *p == '\0') {
            if (label == 0 || label > 63) return *p == '\0' && p > host && label == 0;
            label = 0;
            if (*p == '\0') return true;
            continue;
        }
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && *p != '-' && *p != '_')
            return false;
        label++;
    }
}

/* Split "host", "host:80" or "[::1]:80" into the host, in small letters and without brackets, and
   *port, which stays as it is if there is none. Returns NULL or an error text. */
static const char *dlpi_s3_authority(const char *at, size_t n, char host[256], uint16_t *port) {
    const char *colon, *end = at + n;
    size_t host_n;
    int64_t number = 0;
    if (n > 0 && *at == '[') {
        const char *close = memchr(at, ']', n);
        if (!close) return "a bracket is not closed";
        at++;
        host_n = (size_t)(close - at);
        colon = close + 1;
        if (colon < end && *colon != ':') return "something follows the bracket";
        if (!memchr(at, ':', host_n)) return "no IPv6 address in brackets";
    } else {
        colon = memchr(at, ':', n);
        if (!colon) colon = end;
        host_n = (size_t)(colon - at);
    }
    if (host_n == 0) return "it has no host";
    if (host_n > 255) return "the host is too long";
    for (size_t i = 0; i < host_n; i++)
        host[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] - 'A' + 'a' : at[i]);
    host[host_n] = '\0';
    if (!dlpi_s3_host_ok(host)) return "the host is neither a name nor an address";
    if (colon == end) return NULL;
    n = (size_t)(end - colon) - 1;
    if (n >= 1 && n <= 5) number = dlpi_s3_number(colon + 1, n);
    if (number < 1 || number > 65535) return "the port must be 1..65535";
    *port = (uint16_t)number;
    return NULL;
}

/* Keep the path of an endpoint's URL as its prefix. Returns NULL or an error text. */
static const char *dlpi_s3_endpoint_path(dlpi_s3_endpoint *e, const char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n >= sizeof e->prefix) return "the path is too long";
    for (size_t i = 0; i < n; i++) {
        bool escape = path[i] == '%' && i + 2 < n && dlpi_s3_hex_digit(path[i + 1]) >= 0 &&
                      dlpi_s3_hex_digit(path[i + 2]) >= 0;
        if (!dlpi_s3_uri_plain((unsigned char)path[i]) && !strchr("/!$&'()*+,;=:@", path[i]) &&
            !escape)
            return "the path has a character that must be escaped";
    }
    memcpy(e->prefix, path, n);
    e->prefix[n] = '\0';
    return NULL;
}

/* Take an endpoint's URL apart. Returns DLP_OK, or DLP_ERR_ARG with *why, an error text without any
   of the URL, which might hold a password. */
static int dlpi_s3_endpoint_parse(dlpi_s3_endpoint *out, const char *url, const char **why) {
    dlpi_s3_endpoint e;
    const char *at = url;
    size_t n;
    memset(&e, 0, sizeof e);
    e.custom = 1;
    if (strncasecmp(url, "http://", 7) == 0) {
        at += 7, e.port = 80;
    } else if (strncasecmp(url, "https://", 8) == 0) {
        at += 8, e.port = 443, e.tls = 1;
    } else {
        *why = "it does not begin with http:// or https://";
        return DLP_ERR_ARG;
    }
    n = strcspn(at, "/?#");
    *why = NULL;
    if (memchr(at, '@', n)) *why = "it has a user's name, which is refused";
    if (strpbrk(at, "?#")) *why = "it has a query or a fragment";
    if (!*why) *why = dlpi_s3_authority(at, n, e.host, &e.port);
    if (!*why) *why = dlpi_s3_endpoint_path(&e, at + n);
    if (*why) return DLP_ERR_ARG;
    e.is_default_port = e.port == (e.tls ? 443 : 80);
    *out = e;
    return DLP_OK;
}

/* Write the Host header of an endpoint. */
static void dlpi_s3_endpoint_host(const dlpi_s3_endpoint *e, char *to, size_t size) {
    int n = snprintf(to, size, strchr(e->host, ':') ? "[%s]" : "%s", e->host);
    if (!e->is_default_port && n < (int)size)
        snprintf(to + n, size - (size_t)n, ":%u", (unsigned)e->port);
}

/* Split "http://host:port/path?query": e gets no prefix, and *rest begins with the path, or what is
   there of it. Returns NULL or an error text without any of the URL. */
static const char *dlpi_s3_url_split(dlpi_s3_endpoint *e, const char *url, const char **rest) {
    char front[300];
    const char *at = strstr(url, "://"), *why = NULL;
    size_t n = at ? (size_t)(at - url) + 3 + strcspn(at + 3, "/?#") : sizeof front;
    if (n >= sizeof front) return "the URL must be http(s)://HOST[:PORT][/PATH]";
    memcpy(front, url, n);
    front[n] = '\0';
    *rest = url + n;
    return dlpi_s3_endpoint_parse(e, front, &why) == DLP_OK ? NULL : why;
}

/* Return AWS' domain that a region is in. */
static const char *dlpi_s3_aws_domain(const char *region) {
    static const char *const partitions[][2] = {
        {"cn-", "amazonaws.com.cn"},    {"us-isob-", "sc2s.sgov.gov"},  {"us-iso-", "c2s.ic.gov"},
        {"eu-isoe-", "cloud.adc-e.uk"}, {"us-isof-", "csp.hci.ic.gov"}, {"eusc-", "amazonaws.eu"}};
    const char *domain = "amazonaws.com";
    for (size_t i = 0; i < sizeof partitions / sizeof partitions[0]; i++)
        if (strncmp(region, partitions[i][0], strlen(partitions[i][0])) == 0)
            domain = partitions[i][1];
    return domain;
}

/* Name AWS' endpoint of a region: "s3.eu-west-1.amazonaws.com", "s3-fips.dualstack...". */
static void dlpi_s3_aws_host(const dlpi_s3_endpoint *e, const char *region, char *host,
                             size_t size) {
    snprintf(host, size, "s3%s%s.%s.%s", e->fips ? "-fips" : "", e->dualstack ? ".dualstack" : "",
             region, dlpi_s3_aws_domain(region));
}

/* Make the endpoint of AWS in a region. */
static void dlpi_s3_endpoint_aws(dlpi_s3_endpoint *out, const char *region) {
    memset(out, 0, sizeof *out);
    out->tls = out->is_default_port = 1;
    out->port = 443;
    dlpi_s3_aws_host(out, region, out->host, sizeof out->host);
}
