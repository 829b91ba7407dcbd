/* needs: lines */
#pragma once
/* tests: unit/source/csv_floats */
#include "api/lines.h"
#include "base/platform.h"
#include "fail/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-csv     NUMBERS OF A CSV
   The first 19 digits give a double that is near the number: one rounding of the digits, and one
   for each power of ten, four at most. The digits that are left out add less than 2^-59. So the
   number lies within d * (1 - 2^-49) and d * (1 + 2^-49). If all of this interval rounds to one
   float, that is the float nearest to the number.
   Else the interval has one midpoint between two floats, which is a double. The digits are compared
   with it as whole numbers, without rounding. A midpoint has at most 113 significant digits. So
   behind the first DLPI_CSV_DIGITS digits only matters whether any digit is not 0. No locale and no
   function of the C library takes part. */

enum {
    DLPI_CSV_DIGITS = 120, /* that are kept, without leading zeros, and one for the rest */
    DLPI_CSV_WORDS = 32    /* of a whole number; the largest has 655 bits */
};
#define DLPI_CSV_ABOVE 0x1p128 /* a number that is above all floats */

/* The number 0.DDD * 10^point, whose first digit is not 0. n 0: the number is 0. */
typedef struct dlpi_csv_number {
    int64_t point;
    uint32_t n;
    bool minus;
    uint8_t digits[DLPI_CSV_DIGITS + 1];
} dlpi_csv_number;

static bool dlpi_csv_digit(const char *at, const char *end) {
    return at < end && *at >= '0' && *at <= '9';
}

/* Read the digits of a number, with a point or not. Returns the byte behind them, or NULL if there
   is no digit. */
static const char *dlpi_csv_digits(dlpi_csv_number *v, const char *at, const char *end) {
    const char *from = at;
    bool dot = false;
    for (; dlpi_csv_digit(at, end) || (at < end && *at == '.' && !dot); at++) {
        const bool leads = *at == '0' && v->n == 0;
        if (*at == '.') {
            dot = true;
            continue;
        }
        v->point += leads ? -(int)dot : !dot;
        if (v->n < DLPI_CSV_DIGITS && !leads)
            v->digits[v->n++] = (uint8_t)(*at - '0');
        else if (*at != '0')
            v->digits[DLPI_CSV_DIGITS] = 1, v->n = DLPI_CSV_DIGITS + 1;
    }
    return at - from > dot ? at : NULL;
}

/* Read a number: a sign or none, digits, and an exponent or none. Returns the byte behind it, or
   NULL if it is no number. */
static const char *dlpi_csv_read(dlpi_csv_number *v, const char *at, const char *end) {
    v->n = 0, v->point = 0;
    v->minus = at < end && *at == '-';
    at = dlpi_csv_digits(v, at + (at < end && (*at == '-' || *at == '+')), end);
    if (at == NULL || at == end || (*at != 'e' && *at != 'E')) return at;
    const bool below = ++at < end && *at == '-';
    int64_t e = 0;
    at += at < end && (*at == '-' || *at == '+');
    if (!dlpi_csv_digit(at, end)) return NULL;
    for (; dlpi_csv_digit(at, end); at++)
        if (e < INT64_C(1) << 50) e = e * 10 + (*at - '0');
    v->point += below ? -e : e;
    return at;
}

/* Return a double near the number, as the head of this section tells. */
static double dlpi_csv_near(const dlpi_csv_number *v) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t w = 0;
    uint32_t i = 0;
    for (; i < v->n && i < 19; i++) w = w * 10 + v->digits[i];
    double d = (double)w;
    int e = (int)v->point - (int)i;
    for (; e > 22; e -= 22) d *= 1e22;
    for (; e < -22; e += 22) d /= 1e22;
    return e < 0 ? d / tens[-e] : d * tens[e];
}

/* Multiply a whole number, and add to it. */
static void dlpi_csv_times(uint32_t *whole, uint32_t by, uint32_t add) {
    uint64_t carry = add;
    for (int i = 0; i < DLPI_CSV_WORDS; i++, carry >>= 32) {
        carry += (uint64_t)whole[i] * by;
        whole[i] = (uint32_t)carry;
    }
}

/* Compare the number with a midpoint, exactly. Returns -1, 0 or 1. */
static int dlpi_csv_compare(const dlpi_csv_number *v, double middle) {
    uint32_t number[DLPI_CSV_WORDS] = {0}, other[DLPI_CSV_WORDS] = {0};
    int64_t ten = v->point - v->n, two; /* digits * 10^ten, mantissa * 2^two */
    uint64_t bits;
    memcpy(&bits, &middle, sizeof bits); /* a positive double, and no denormal */
    two = (int64_t)(bits >> 52) - 1075;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    other[0] = (uint32_t)bits, other[1] = (uint32_t)(bits >> 32);
    for (uint32_t i = 0; i < v->n; i++) dlpi_csv_times(number, 10, v->digits[i]);
    for (; ten > 0; ten--) dlpi_csv_times(number, 10, 0);
    for (; ten < 0; ten++) dlpi_csv_times(other, 10, 0);
    for (; two > 0; two--) dlpi_csv_times(other, 2, 0);
    for (; two < 0; two++) dlpi_csv_times(number, 2, 0);
    for (int i = DLPI_CSV_WORDS; i-- > 0;)
        if (number[i] != other[i]) return number[i] > other[i] ? 1 : -1;
    return 0;
}

/* Round to a float, or to DLPI_CSV_ABOVE. */
static double dlpi_csv_round(double d) {
    return d < 0x1.ffffffp127 ? (double)(float)d : DLPI_CSV_ABOVE;
}

/* Return the float nearest to the number without its sign; of two at the same distance, the even
   one; or DLPI_CSV_ABOVE. */
static double dlpi_csv_nearest(const dlpi_csv_number *v) {
    if (v->n == 0 || v->point < -60) return 0;
    if (v->point > 40) return DLPI_CSV_ABOVE;
    const double d = dlpi_csv_near(v), slack = d * 0x1p-49;
    const double low = dlpi_csv_round(d - slack), high = dlpi_csv_round(d + slack);
    if (low >= high) return low;
    const int side = dlpi_csv_compare(v, low + (high - low) / 2);
    const float even = (float)low;
    uint32_t bits;
    memcpy(&bits, &even, sizeof bits);
    return side > 0 || (side == 0 && bits % 2 != 0) ? high : low;
}

static bool dlpi_csv_blank(char c) { return c == ' ' || c == '\t'; }

/* Read the text of one column. i: from 1; of count. Returns 0, or a failure's code. */
static int dlpi_csv_column(const char *at, const char *end, float *x, uint32_t i, uint32_t count,
                           dlp_call *call) {
    const char *odd = NULL;
    double value = 0;
    dlpi_csv_number v;
    while (at < end && dlpi_csv_blank(*at)) at++;
    while (at < end && dlpi_csv_blank(end[-1])) end--;
    if (at == end)
        odd = "is empty; it must be a number";
    else if (dlpi_csv_read(&v, at, end) != end)
        odd = "is no number";
    else if ((value = dlpi_csv_nearest(&v)) >= DLPI_CSV_ABOVE)
        odd = "is above all floats";
    if (odd != NULL)
        return dlp_fail(call, 0, "column %" PRIu32 " of %" PRIu32 ": \"%.*s\" %s", i, count,
                        (int)(end - at < 40 ? end - at : 40), at, odd);
    *x = v.minus ? -(float)value : (float)value;
    return DLP_OK;
}

DLPDEF int dlp_csv_floats(const char *line, size_t n, float *x, uint32_t count, dlp_call *call) {
    const char *at = line, *end = line + n, *comma = line;
    uint32_t i = 0;
    for (; i < count && comma != NULL; i++) {
        comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        const int rc = dlpi_csv_column(at, comma != NULL ? comma : end, &x[i], i + 1, count, call);
        if (rc != DLP_OK) return rc;
        if (comma != NULL) at = comma + 1;
    }
    if (i == count && comma == NULL) return DLP_OK;
    return dlp_fail(call, 0, "column %" PRIu32 ": %s; the line must have %" PRIu32 " columns",
                    i + 1, i < count ? "missing" : "surplus", count);
}
