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

/* Print to the end of a text. t->len counts all bytes, also those cut for want of room, as snprintf
   does. The text may have no buffer. */
DLPI_PRINTF(2, 3) static void dlpi_text_add(dlpi_text *t, const char *format, ...) {
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

/* Return n / scale as text, with all digits of the rest, and a unit. scale: a power of ten, at most
   10^9. */
static dlpi_num dlpi_num_fixed(uint64_t n, uint64_t scale, char point, const char *unit) {
    dlpi_num r;
    int digits = 0;
    for (uint64_t q = scale; q > 1; q /= 10) digits++;
    if (digits == 0)
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%s", n, unit);
    else
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%c%0*u%s", n / scale, point, digits & 15,
                 (unsigned)(n % scale), unit);
    return r;
}

/* Return v as text with three digits or more: 0.12, 4.56, 12.3, 1234, 56,789, 1.23 million. */
static dlpi_num dlpi_num_of(double v) {
    const char *unit = "";
    if (!(v > 0)) { v = 0; }
    if (v >= 1e15) { v = 1e15; }
    if (v >= 1e6) {
        v /= 1e6;
        unit = " million";
    }
    const uint64_t q = v < 9.995 ? 100 : v < 99.95 ? 10 : 1;
    const uint64_t x = (uint64_t)(v * (double)q + 0.5);
    const bool large = q == 1 && x >= 10000 && x < 1000000;
    return dlpi_num_fixed(x, large ? 1000 : q, large ? ',' : '.', unit);
}

/* Return a share (0 to 1) as a percentage without its sign: 0, 0.4, 12, 99.6, 100. */
static dlpi_num dlpi_num_percent(double share) {
    const double p = share > 1 ? 100 : share > 0 ? share * 100 : 0;
    const uint64_t x = (uint64_t)(p * 10 + 0.5);
    const bool whole = x == 0 || x == 1000 || (x >= 100 && x < 990);
    return dlpi_num_fixed(whole ? (x + 5) / 10 : x, whole ? 1 : 10, '.', "");
}

static double dlpi_part_of(uint64_t n, uint64_t all) {
    return all > 0 ? (double)n / (double)all : 0;
}

/* Return a number of bytes as text, in bytes, KiB, MiB, GiB or TiB. */
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
    static const char *const names[] = {" s", " ms", " us", " ns"};
    const char *const *name = names;
    uint64_t unit = 1000000000u, q;
    for (; unit > 1 && reference < unit; unit /= 1000) name++;
    for (q = unit; q > resolution && q > 1; q /= 10) {}
    return dlpi_num_fixed(ns / q + (ns % q >= (q + 1) / 2 ? 1 : 0), unit / q, '.', *name);
}

/* Return a duration as text with about three digits. */
static dlpi_num dlpi_num_ns(uint64_t ns) { return dlpi_num_time(ns, ns, ns / 100); }
static dlpi_num dlpi_num_span(double ns) { return dlpi_num_ns(ns < 1e19 ? (uint64_t)ns : 0); }

static dlpi_num dlpi_num_int(double n) {
    dlpi_num r;
    snprintf(r.s, sizeof r.s, "%" PRId64, (int64_t)n);
    return r;
}

DLPI_COLD DLPDEF const char *dlp_link_name(int kind) {
    static const char *const names[] = {"?", "spsc", "mpsc", "claim", "gather"};
    return names[kind >= DLP_LINK_SPSC && kind <= DLP_LINK_GATHER ? kind : 0];
}
