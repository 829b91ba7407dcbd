#pragma once
/* tests: system/report/pictures */
#include "base/platform.h"
#include "api/stats.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-texts      TEXTS AND NUMBERS
   No figure is printed with %f: the decimal point would follow the caller's locale, which neither
   JSON nor SVG allows. */

/* Text built by several calls, cut like snprintf's. */
typedef struct dlpi_text {
    char *buf;
    size_t size, len;
} dlpi_text;

__attribute__((format(printf, 2, 3))) static void dlpi_text_add(dlpi_text *t, const char *format,
                                                                ...) {
    size_t room = t->len < t->size ? t->size - t->len : 0;
    va_list a;
    va_start(a, format);
    int n = vsnprintf(room > 0 ? t->buf + t->len : NULL, room, format, a);
    va_end(a);
    t->len += n > 0 ? (size_t)n : 0;
}

/* Return the length of the whole text, also of what did not fit, as snprintf does. */
static int dlpi_text_length(const dlpi_text *t) { return t->len < INT_MAX ? (int)t->len : INT_MAX; }

/* A number as text, by value, to stand in an argument list. */
typedef struct dlpi_num {
    char s[40];
} dlpi_num;

/* Return v as text with three digits or more: 0.12, 4.56, 12.3, 1234, 56,789, 1.23 million. */
static dlpi_num dlpi_num_of(double v) {
    dlpi_num r;
    const char *unit = "";
    if (!(v > 0)) { v = 0; }
    if (v >= 1e15) { v = 1e15; }
    if (v >= 1e6) {
        v /= 1e6;
        unit = " million";
    }
    uint64_t q = v < 9.995 ? 100 : v < 99.95 ? 10 : 1;
    uint64_t x = (uint64_t)(v * (double)q + 0.5);
    const bool large = q == 1 && x >= 10000 && x < 1000000;
    const int digits = large ? 3 : q == 100 ? 2 : 1;
    q = large ? 1000 : q;
    if (q == 1)
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%s", x, unit);
    else
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%c%0*u%s", x / q, large ? ',' : '.', digits,
                 (unsigned)(x % q), unit);
    return r;
}

/* Return a share (0 to 1) as a percentage without its sign: 0, 0.4, 12, 99.6, 100. */
static dlpi_num dlpi_num_percent(double share) {
    dlpi_num r;
    double p = share > 1 ? 100 : share > 0 ? share * 100 : 0;
    uint64_t x = (uint64_t)(p * 10 + 0.5);
    if (x == 0 || x == 1000 || (x >= 100 && x < 990)) {
        snprintf(r.s, sizeof r.s, "%" PRIu64, (x + 5) / 10);
    } else {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%" PRIu64, x / 10, x % 10);
    }
    return r;
}

static double dlpi_part_of(uint64_t n, uint64_t all) {
    return all > 0 ? (double)n / (double)all : 0;
}

static dlpi_num dlpi_num_bytes(double v) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; v >= 1024 && u < 4; u++) { v /= 1024; }
    dlpi_num n = dlpi_num_of(v), r;
    if (u == 0) { snprintf(n.s, sizeof n.s, "%d", (int)(v + 0.5)); }
    snprintf(r.s, sizeof r.s, "%.24s %s", n.s, units[u]);
    return r;
}

/* Return a time in a unit that suits `reference`, with decimals enough to tell `resolution`
   apart. */
static dlpi_num dlpi_num_time(uint64_t ns, uint64_t reference, uint64_t resolution) {
    static const char *const names[] = {"s", "ms", "us", "ns"};
    const char *const *name = names;
    uint64_t unit = 1000000000u, q;
    int decimals = 0;
    dlpi_num r;
    for (; unit > 1 && reference < unit; unit /= 1000) name++;
    for (q = unit; q > resolution && q > 1 && decimals < 9; q /= 10) decimals++;
    const uint64_t v = ns / q + (ns % q >= (q + 1) / 2 ? 1 : 0), scale = unit / q;
    if (decimals > 0)
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%0*" PRIu64 " %s", v / scale, decimals, v % scale,
                 *name);
    else
        snprintf(r.s, sizeof r.s, "%" PRIu64 " %s", v, *name);
    return r;
}

/* Return a duration as text with about three digits. */
static dlpi_num dlpi_num_ns(uint64_t ns) { return dlpi_num_time(ns, ns, ns / 100); }
static dlpi_num dlpi_num_span(double ns) { return dlpi_num_ns(ns < 1e19 ? (uint64_t)ns : 0); }

static dlpi_num dlpi_num_int(double n) {
    dlpi_num r;
    snprintf(r.s, sizeof r.s, "%" PRId64, (int64_t)n);
    return r;
}
