#pragma once
/* tests: unit/s3/s3_sign, fuzz/fuzz_s3 */
#include "s3/xml.h"
/* ---- JSON (RFC 8259): one member of the outermost object. The whole text must be right. */

#define DLPI_S3_JSON_DEPTH 32

typedef struct dlpi_s3_json {
    const char *at, *end;
} dlpi_s3_json;

/* Return the next character that is no white space; NUL at the end. */
static char dlpi_s3_json_peek(dlpi_s3_json *j) {
    while (j->at < j->end && dlpi_s3_is_space(*j->at)) j->at++;
    return j->at < j->end ? *j->at : '\0';
}

/* Pass over c, if it is the next character. Returns whether it was. */
static bool dlpi_s3_json_take(dlpi_s3_json *j, char c) {
    if (c == '\0' || dlpi_s3_json_peek(j) != c) return false;
    j->at++;
    return true;
}

/* Pass over a string. inside: gets what is between its quotes. Returns false if there is none. */
static bool dlpi_s3_json_string(dlpi_s3_json *j, dlpi_s3_span *inside) {
    if (!dlpi_s3_json_take(j, '"')) return false;
    inside->at = j->at;
    for (; j->at < j->end; j->at++) {
        if (*j->at == '"') {
            inside->n = (size_t)(j->at - inside->at);
            j->at++;
            return true;
        }
        if ((unsigned char)*j->at < 0x20) return false;
        if (*j->at == '\\' && ++j->at == j->end) return false;
    }
    return false;
}

static size_t dlpi_s3_json_digits(dlpi_s3_json *j) {
    const char *from = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
    return (size_t)(j->at - from);
}

/* Pass over a number. Returns false if the text is no number of JSON. */
static bool dlpi_s3_json_number(dlpi_s3_json *j) {
    const char *from;
    if (j->at < j->end && *j->at == '-') j->at++;
    from = j->at;
    if (dlpi_s3_json_digits(j) == 0 || (*from == '0' && j->at > from + 1)) return false;
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (dlpi_s3_json_digits(j) == 0) return false;
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
        if (dlpi_s3_json_digits(j) == 0) return false;
    }
    return true;
}

/* Pass over a value that is neither an object nor an array. */
static bool dlpi_s3_json_scalar(dlpi_s3_json *j) {
    static const char *const words[] = {"true", "false", "null"};
    dlpi_s3_span s;
    if (dlpi_s3_json_peek(j) == '"') return dlpi_s3_json_string(j, &s);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(j->end - j->at) < n || memcmp(j->at, words[i], n) != 0) continue;
        j->at += n;
        return true;
    }
    return dlpi_s3_json_number(j);
}

static bool dlpi_s3_json_name(dlpi_s3_json *j, dlpi_s3_span *name) {
    return dlpi_s3_json_string(j, name) && dlpi_s3_json_take(j, ':');
}

/* Pass over a value and all that is in it, without recursion: objects has a bit for each level that
   is open. Returns false if that is no JSON. */
static bool dlpi_s3_json_value(dlpi_s3_json *j) {
    uint64_t objects = 0;
    int depth = 0;
    dlpi_s3_span name;
    for (;;) {
        char c = dlpi_s3_json_peek(j);
        bool opened = c == '{' || c == '[';
        if (opened) {
            if (depth++ == DLPI_S3_JSON_DEPTH) return false;
            objects = objects << 1 | (c == '{');
            j->at++;
            if (dlpi_s3_json_peek(j) != (c == '{' ? '}' : ']')) {
                if (c == '{' && !dlpi_s3_json_name(j, &name)) return false;
                continue;
            }
        } else if (!dlpi_s3_json_scalar(j)) {
            return false;
        }
        while (depth > 0 && dlpi_s3_json_take(j, (objects & 1) ? '}' : ']')) {
            depth--;
            objects >>= 1;
        }
        if (depth == 0) return true;
        if (!dlpi_s3_json_take(j, ',')) return false;
        if ((objects & 1) && !dlpi_s3_json_name(j, &name)) return false;
    }
}

/* Read four hex digits after "\u". Returns their value, or -1. */
static int32_t dlpi_s3_json_hex(const char *at, const char *end) {
    int32_t v = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int d = dlpi_s3_hex_digit(at[i]);
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Add the inside of a string, with its escapes resolved. Returns false if an escape is bad. */
static bool dlpi_s3_json_decode(dlpi_s3_out *o, dlpi_s3_span s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *end = s.at + s.n;
    for (const char *p = s.at; p < end; p++) {
        const char *known;
        int32_t c, low;
        if (*p != '\\') {
            dlpi_s3_out_add(o, p, 1);
            continue;
        }
        if (++p == end || *p == '\0') return false;
        known = strchr(from, *p);
        if (known) {
            dlpi_s3_out_add(o, &to[known - from], 1);
            continue;
        }
        c = *p == 'u' ? dlpi_s3_json_hex(p + 1, end) : -1;
        if (c < 0) return false;
        p += 4;
        if (c >= 0xd800 && c <= 0xdbff && end - p > 2 && p[1] == '\\' && p[2] == 'u') {
            low = dlpi_s3_json_hex(p + 3, end);
            if (low < 0xdc00 || low > 0xdfff) return false;
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            p += 6;
        }
        if (!dlpi_s3_out_char(o, (uint32_t)c)) return false;
    }
    return true;
}

static bool dlpi_s3_json_same(dlpi_s3_span name, const char *wanted) {
    char buf[128];
    dlpi_s3_out o = {buf, sizeof buf, 0};
    return dlpi_s3_json_decode(&o, name) && dlpi_s3_out_end(&o) && strcmp(buf, wanted) == 0;
}

/* Read a member of the outermost object as text: a string, a number, true or false. out is always
   terminated. Returns false, with "" in out, if the member is missing, is something else (null),
   does not fit, or the text is not JSON. Of two members of one name the first counts. */
static bool dlpi_s3_json_text(const char *json, size_t n, const char *name, char *out,
                              size_t size) {
    dlpi_s3_json j = {json, json + n};
    dlpi_s3_span member, value = {NULL, 0};
    dlpi_s3_out o = {out, size, 0};
    bool good = false;
    if (size > 0) out[0] = '\0';
    if (!dlpi_s3_json_take(&j, '{')) return false;
    if (!dlpi_s3_json_take(&j, '}')) {
        do {
            const char *from;
            if (!dlpi_s3_json_name(&j, &member)) return false;
            dlpi_s3_json_peek(&j);
            from = j.at;
            if (!dlpi_s3_json_value(&j)) return false;
            if (!value.at && dlpi_s3_json_same(member, name))
                value = (dlpi_s3_span){from, (size_t)(j.at - from)};
        } while (dlpi_s3_json_take(&j, ','));
        if (!dlpi_s3_json_take(&j, '}')) return false;
    }
    if (dlpi_s3_json_peek(&j) != '\0' || j.at != j.end || !value.at) return false;
    if (*value.at == '"') {
        good = dlpi_s3_json_decode(&o, (dlpi_s3_span){value.at + 1, value.n - 2});
    } else if (*value.at != '{' && *value.at != '[' && *value.at != 'n') {
        dlpi_s3_out_add(&o, value.at, value.n);
        good = true;
    }
    if (dlpi_s3_out_end(&o) && good) return true;
    if (size > 0) out[0] = '\0';
    return false;
}
