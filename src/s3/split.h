#pragma once
/* tests: system/s3/s3_list, system/s3/s3_list_split */
#include "s3/page.h"
/* ---- where a range of keys is split ----
   Keys are numbers, written in the bytes that keys have where they differ. A range is split in its
   middle. If all keys of a page begin alike, it is split behind groups instead. A group has all
   keys that begin with the same n bytes as the page's last key; several n are tried at once. So the
   end of a common prefix is found in one step. A split need not be a key. A bad one costs a request
   that finds nothing. */

typedef struct dlpi_s3_alphabet {
    bool has[256];
    uint16_t rank[256]; /* members below it */
    uint16_t n;
} dlpi_s3_alphabet;

/* Count the bytes that two texts have in common at their front. */
static size_t dlpi_s3_span_common(dlpi_s3_span a, dlpi_s3_span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.at[n] == b.at[n]) n++;
    return n;
}

/* Add three bytes of a key, the one at from and the next ones, to the alphabet. kinds: a letter or
   digit adds all of its kind. A '/' is never added: only keys tell where folders end. */
static void dlpi_s3_alphabet_learn(dlpi_s3_alphabet *a, dlpi_s3_span key, size_t from, bool kinds) {
    static const char *const all[] = {"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF",
                                      "GHIJKLMNOPQRSTUVWXYZ"};
    bool more = false;
    for (size_t i = from; i < key.n && i < from + 3; i++) {
        uint8_t c = (uint8_t)key.at[i];
        if (a->has[c] || c == '/') continue;
        a->has[c] = more = true;
        for (size_t k = 0; kinds && k < sizeof all / sizeof all[0]; k++)
            for (const char *m = strchr(all[k], c) ? all[k] : ""; *m; m++)
                a->has[(uint8_t)*m] = true;
    }
    if (!more) return;
    a->n = 0;
    for (int c = 0; c < 256; c++) {
        a->rank[c] = a->n;
        a->n = (uint16_t)(a->n + a->has[c]);
    }
}

/* Return where a key lies, 0 to 1, among all keys that share its first bytes (from: how many). */
static double dlpi_s3_alphabet_place(const dlpi_s3_alphabet *a, dlpi_s3_span key, size_t from) {
    double at = 0, unit = 1;
    for (size_t i = from; i < key.n && unit > 1e-17; i++) {
        uint8_t c = (uint8_t)key.at[i];
        unit /= a->n + 1; /* 0 is a key's end */
        at += unit * (a->rank[c] + 1);
        if (!a->has[c]) break;
    }
    return at;
}

/* Count the bytes at the front of a text that are whole characters of UTF-8. */
static size_t dlpi_s3_utf8_whole(const char *at, size_t n) {
    size_t whole = 0;
    while (whole < n) {
        uint8_t c = (uint8_t)at[whole];
        size_t more = c < 0x80 ? 0 : c < 0xc2 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : 9;
        uint8_t next = more > 0 && whole + 1 < n ? (uint8_t)at[whole + 1] : 0x80;
        if (more > n - whole - 1) break;
        if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90))
            break;
        if (c == 0xf4 && next > 0x8f) break;
        for (size_t i = 1; i <= more; i++)
            if (((uint8_t)at[whole + i] & 0xc0) != 0x80) return whole;
        whole += more + 1;
    }
    return whole;
}

/* Make the first character that is not whole UTF-8 whole, and cut the text behind it; or in front
   of it, if that is not possible. Returns the new length. There must be room for 3 more bytes. */
static size_t dlpi_s3_utf8_mend(char *at, size_t n) {
    size_t whole = dlpi_s3_utf8_whole(at, n);
    uint8_t lead = whole < n ? (uint8_t)at[whole] : 0;
    size_t end = whole + (lead < 0xc2 || lead > 0xf4 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
    for (size_t i = whole + 1; i < end; i++)
        if (i >= n || ((uint8_t)at[i] & 0xc0) != 0x80)
            at[i] = i == whole + 1 && (lead == 0xed || lead == 0xf4) ? '\x80' : '\xa0';
    return dlpi_s3_utf8_whole(at, end);
}

/* True if a text lies behind low and before high (NULL: no end): it can split this range. */
static bool dlpi_s3_split_fits(dlpi_s3_span split, dlpi_s3_span low, const dlpi_s3_key *high) {
    if (split.n == 0 || dlpi_s3_span_order(split, low) <= 0) return false;
    return !high || dlpi_s3_span_order(split, dlpi_s3_key_span(high)) < 0;
}

/* Find a split near the middle of a range whose keys share their first bytes (from: how many).
   Returns false if there is none. */
static bool dlpi_s3_split_middle(const dlpi_s3_alphabet *a, dlpi_s3_span low,
                                 const dlpi_s3_key *high, size_t from, dlpi_s3_key *out) {
    double x = dlpi_s3_alphabet_place(a, low, from), y = 1;
    size_t n = from, fits = 0;
    if (high) y = dlpi_s3_alphabet_place(a, dlpi_s3_key_span(high), from);
    if (a->n == 0 || from > low.n || from + 12 > DLPI_S3_LIST_TEXT) return false;
    memcpy(out->at, low.at, from);
    x += (y - x) / 2;
    for (int i = 0; i < 12 && (fits == 0 || n < fits + 2); i++) {
        int digit, c = 0;
        x *= a->n + 1;
        digit = x >= a->n ? a->n : x < 1 ? 1 : (int)x;
        x = x > digit ? x - digit : 0;
        while (!a->has[c] || a->rank[c] + 1 < digit) c++;
        out->at[n++] = (char)c;
        if (fits == 0 && dlpi_s3_split_fits((dlpi_s3_span){out->at, n}, low, high)) fits = n;
    }
    out->bytes = dlpi_s3_utf8_mend(out->at, n);
    out->at[out->bytes] = '\0';
    return dlpi_s3_split_fits(dlpi_s3_key_span(out), low, high);
}

/* Make the split that lies right behind all keys that begin with the first n bytes of low. Returns
   false if it cannot split the range. */
static bool dlpi_s3_split_behind(dlpi_s3_span low, const dlpi_s3_key *high, size_t n,
                                 dlpi_s3_key *out) {
    if (n == 0 || n > low.n || n > DLPI_S3_LIST_TEXT) return false;
    if (low.at[n - 1] < ' ' || low.at[n - 1] > '}') return false;
    dlpi_s3_key_set(out, (dlpi_s3_span){low.at, n});
    out->at[n - 1]++;
    return dlpi_s3_split_fits(dlpi_s3_key_span(out), low, high);
}
