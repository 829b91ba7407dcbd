/* needs: pictures */
#pragma once
/* tests: system/report/pictures */
#include "source/new_file.h"
#include "report/lanes.h"
/* ---- write a file that is complete, or not there at all ---- */

typedef struct dlpi_out {
    dlpi_handle fd;
    uint64_t at;     /* bytes written */
    int errnum;      /* errno of the first failure, after which nothing is written; 0: none */
    dlpi_text text;  /* in buf, not written yet */
    char *temporary; /* name that is renamed to path at the end; NULL: path itself is written */
    const char *path;
    char buf[8192];
} dlpi_out;

/* Write all buffered bytes to the file. The first failure is kept in o->errnum; after it nothing is
   written. A regular file must stay within the limits on its size. */
static void dlpi_out_flush(dlpi_out *o) {
    const size_t n = o->text.len;
    dlpi_facts st;
    const bool file = dlpi_handle_facts(o->fd, &st) == 0 && st.kind == DLPI_IS_FILE;
    if (n >= sizeof o->buf && o->errnum == 0) o->errnum = EOVERFLOW; /* it was cut */
    if (file && o->errnum == 0 && !dlpi_file_may_be(o->at + n)) o->errnum = EFBIG;
    if (o->errnum == 0) o->errnum = dlpi_handle_write(o->fd, o->buf, n, UINT64_MAX);
    o->at += n;
    o->text.len = 0;
}

/* Return the text of the file, with room for 1023 bytes more. */
static dlpi_text *dlpi_out_room(dlpi_out *o) {
    if (o->text.len + 1024 > sizeof o->buf) dlpi_out_flush(o);
    return &o->text;
}

/* Print at most 1023 bytes: strings of unknown length go through dlpi_out_escaped. */
#define dlpi_out_print(o, ...) dlpi_text_add(dlpi_out_room(o), __VA_ARGS__)

/* Open a file to write. Returns 0, DLP_ERR_MEMORY, or DLP_ERR_SYSTEM with o->errnum. A regular or
   new file is written beside itself and renamed, so that a failure leaves what was there. Anything
   else (a device, a pipe, a link such as /dev/stdout) is written in place: renaming over it would
   put a file where the device was. */
static int dlpi_out_open(dlpi_out *o, const char *path) {
    dlpi_facts st;
    o->at = 0;
    o->errnum = 0;
    o->text = (dlpi_text){o->buf, sizeof o->buf, 0};
    o->path = path;
    o->temporary = NULL;
    bool in_place = dlpi_path_facts(path, false, &st) == 0 && st.kind != DLPI_IS_FILE;
    if (!in_place) {
        const size_t size = strlen(path) + 5;
        if ((o->temporary = malloc(size)) == NULL) return DLP_ERR_MEMORY;
        snprintf(o->temporary, size, "%s.tmp", path);
    }
    if (!in_place)
        o->errnum = dlpi_file_afresh(&o->fd, o->temporary); /* NOLINT: close frees the name */
    else if (!dlpi_file_trusted(&st, path))
        o->errnum = EACCES;
    else
        o->errnum = dlpi_handle_open(&o->fd, path, DLPI_WRITE | DLPI_CUT);
    if (o->errnum == 0) return DLP_OK;
    free(o->temporary);
    return DLP_ERR_SYSTEM;
}

/* Write the rest and close; a new file gets its name. Returns 0, or DLP_ERR_SYSTEM with
   o->errnum. */
static int dlpi_out_close(dlpi_out *o) {
    int closed;
    dlpi_out_flush(o);
    if ((closed = dlpi_handle_close(o->fd)) != 0 && o->errnum == 0) o->errnum = closed;
    if (o->temporary != NULL) {
        if (o->errnum == 0) o->errnum = dlpi_path_rename(o->temporary, o->path);
        if (o->errnum != 0) dlpi_path_remove(o->temporary);
        free(o->temporary);
    }
    return o->errnum != 0 ? DLP_ERR_SYSTEM : DLP_OK;
}

/* Step over one character of a text and return its code point. Bytes that are not well-formed UTF-8
   give 0xFFFD. So do characters that no picture should carry: controls, marks that turn the writing
   direction, and characters that XML forbids. */
static uint32_t dlpi_utf8_next(const char **s, const char *end) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)*(*s)++;
    int more = c < 0x80 ? 0 : c >= 0xf0 && c < 0xf8 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c >= 0x80 && (c < 0xc2 || c >= 0xf8)) { return 0xfffd; }
    c &= more == 3 ? 7u : more == 2 ? 15u : more == 1 ? 31u : 127u;
    for (int i = 0; i < more; i++) {
        if (*s == end || ((unsigned char)**s & 0xc0) != 0x80) { return 0xfffd; }
        c = c << 6 | ((unsigned char)*(*s)++ & 0x3f);
    }
    bool bad = c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
               (c & 0xfffe) == 0xfffe || c < 0x20 || (c >= 0x7f && c < 0xa0) ||
               (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
    return bad ? 0xfffd : c;
}

/* Return the width of a text in units. No common sans-serif font exceeds 0.66 em for each unit. */
static int dlpi_text_units(const char *s, size_t n) {
    int units = 0;
    for (const char *end = s + n; s != end;) { units += dlpi_utf8_next(&s, end) < 0x250 ? 1 : 2; }
    return units;
}

/* Write a text of at most `max` bytes, cut to a width of `units`, escaped for JSON or for XML. */
static void dlpi_out_escaped(dlpi_out *o, const char *s, size_t max, int units, bool json) {
    const size_t n = dlpi_string_length(s, max);
    const char *const end = s + n, *at = s;
    const bool cut = dlpi_text_units(s, n) > units;
    for (int used = 0; at != end; s = at) {
        const uint32_t c = dlpi_utf8_next(&at, end);
        used += c < 0x250 ? 1 : 2;
        if (cut && used > units - 2) {
            dlpi_out_print(o, "\xe2\x80\xa6");
            return;
        }
        if (c < 0x80 && strchr(json ? "\"\\" : "<>&\"'", (int)c) != NULL)
            dlpi_out_print(o, json ? "\\%c" : "&#%d;", (int)c);
        else
            dlpi_out_print(o, "%.*s", (int)(c == 0xfffd ? 3 : at - s),
                           c == 0xfffd ? "\xef\xbf\xbd" : s);
    }
}

/* Write a picture: as a trace, or as a timeline. Returns 0 or a code (DLP_ERR_*). */
typedef int dlpi_pen(dlpi_out *o, const dlpi_picture *p);

/* Say in *err why a picture was not written, and set errno to errnum if this is not 0. Returns rc,
   a DLP_ERR code. */
DLPI_COLD static int dlpi_picture_error(dlp_error *err, int rc, const char *path, int errnum) {
    dlpi_error_set(err, rc, "path", "%s: %s%s", dlpi_path_end(path),
                   rc == DLP_ERR_SYSTEM ? strerror(errnum) : dlp_code_text(rc),
                   rc == DLP_ERR_SYSTEM ? dlpi_path_cure(errnum) : "");
    if (err != NULL) err->errnum = errnum;
    if (errnum != 0) errno = errnum; /* as the public calls say */
    return rc;
}

/* Write a picture into a file, by a pen. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_picture_write(const dlpi_picture *p, dlpi_pen *pen, const char *path,
                              dlp_error *err) {
    dlpi_out o;
    int closed, rc = dlpi_out_open(&o, path);
    if (rc == DLP_OK) {
        if ((rc = pen(&o, p)) != DLP_OK) o.errnum = ENOMEM;
        closed = dlpi_out_close(&o);
        if (rc == DLP_OK) rc = closed;
    }
    return rc == DLP_OK ? rc : dlpi_picture_error(err, rc, path, o.errnum);
}
