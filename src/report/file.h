/* needs: pictures */
#pragma once
/* tests: system/report/pictures */
#include "source/new_file.h"
#include "report/lanes.h"
/* ---- write a file that is complete, or not there at all ---- */

#include <sys/stat.h>

typedef struct dlpi_out {
    int fd;
    int errnum;      /* errno of the first failure, after which nothing is written; 0: none */
    size_t n;        /* bytes in buf */
    char *temporary; /* name that is renamed to path at the end; NULL: path itself is written */
    const char *path;
    char buf[8192];
} dlpi_out;

static void dlpi_out_flush(dlpi_out *o) {
    size_t done = 0;
    struct stat st;
    bool file = fstat(o->fd, &st) == 0 && S_ISREG(st.st_mode);
    off_t at = file ? lseek(o->fd, 0, SEEK_CUR) : 0;
    if (file && o->errnum == 0 && at >= 0 && !dlpi_file_may_be((uint64_t)at + o->n))
        o->errnum = errno;
    while (done < o->n && o->errnum == 0) {
        ssize_t k = write(o->fd, o->buf + done, o->n - done);
        if (k > 0) {
            done += (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            o->errnum = k == 0 ? EIO : errno;
        }
    }
    o->n = 0;
}

static void dlpi_out_bytes(dlpi_out *o, const char *s, size_t n) {
    if (n > sizeof o->buf - o->n) { dlpi_out_flush(o); }
    memcpy(o->buf + o->n, s, n);
    o->n += n;
}

/* Print at most 1023 bytes: strings of unknown length go through dlpi_out_escaped. */
__attribute__((format(printf, 2, 3))) static void dlpi_out_print(dlpi_out *o, const char *format,
                                                                 ...) {
    enum { MOST = 1024 };
    va_list a;
    if (sizeof o->buf - o->n < MOST) dlpi_out_flush(o);
    va_start(a, format);
    int n = vsnprintf(o->buf + o->n, MOST, format, a);
    va_end(a);
    if (n >= 0 && n < MOST)
        o->n += (size_t)n;
    else
        o->errnum = o->errnum ? o->errnum : EOVERFLOW;
}

/* Open a file to write. Returns 0, DLP_ERR_MEMORY, or DLP_ERR_SYSTEM with errno. A regular or new
   file is written beside itself and renamed, so that a failure leaves what was there. Anything else
   (a device, a pipe, a link such as /dev/stdout) is written in place: renaming over it would put a
   file where the device was. */
static int dlpi_out_open(dlpi_out *o, const char *path) {
    struct stat st;
    o->errnum = 0;
    o->n = 0;
    o->path = path;
    o->temporary = NULL;
    bool in_place = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (in_place && !dlpi_file_trusted(&st, path)) {
        errno = EACCES;
        return DLP_ERR_SYSTEM;
    }
    if (in_place) {
        o->fd = dlpi_fd_above(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
        return o->fd < 0 ? DLP_ERR_SYSTEM : DLP_OK;
    }
    size_t n = strlen(path);
    if ((o->temporary = malloc(n + 5)) == NULL) { return DLP_ERR_MEMORY; }
    memcpy(o->temporary, path, n);
    memcpy(o->temporary + n, ".tmp", 5);
    o->fd = dlpi_file_afresh(o->temporary);
    if (o->fd < 0) {
        int e = errno;
        free(o->temporary);
        errno = e;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
}

/* Write the rest and close; a new file gets its name. Returns 0, or DLP_ERR_SYSTEM with errno. */
static int dlpi_out_close(dlpi_out *o) {
    dlpi_out_flush(o);
    if (close(o->fd) != 0 && o->errnum == 0) { o->errnum = errno; }
    if (o->temporary != NULL) {
        if (o->errnum == 0 && rename(o->temporary, o->path) != 0) { o->errnum = errno; }
        if (o->errnum != 0) { unlink(o->temporary); }
        free(o->temporary);
    }
    if (o->errnum != 0) {
        errno = o->errnum;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
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

static void dlpi_out_char(dlpi_out *o, uint32_t c, bool json) {
    char b[8];
    if (json && (c == '"' || c == '\\')) {
        dlpi_out_print(o, "\\%c", (int)c);
    } else if (!json && (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')) {
        dlpi_out_print(o, "&#%d;", (int)c);
    } else if (c < 0x80) {
        b[0] = (char)c;
        dlpi_out_bytes(o, b, 1);
    } else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        b[0] = (char)((more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u) | c >> (6 * more));
        for (int i = 1; i <= more; i++) { b[i] = (char)(0x80u | (c >> (6 * (more - i)) & 0x3f)); }
        dlpi_out_bytes(o, b, (size_t)more + 1);
    }
}

/* Write a text of at most `max` bytes, cut to a width of `units`, as JSON or as XML. */
static void dlpi_out_escaped(dlpi_out *o, const char *s, size_t max, int units, bool json) {
    size_t n = strnlen(s, max);
    const char *end = s + n;
    bool cut = dlpi_text_units(s, n) > units;
    int used = 0;
    while (s != end) {
        uint32_t c = dlpi_utf8_next(&s, end);
        used += c < 0x250 ? 1 : 2;
        if (cut && used > units - 2) {
            dlpi_out_char(o, 0x2026, json);
            return;
        }
        dlpi_out_char(o, c, json);
    }
}

/* Write a picture: as a trace, or as a timeline. Returns 0 or a code (DLP_ERR_*). */
typedef int dlpi_pen(dlpi_out *o, const dlpi_picture *p);

/* Write a picture into a file, by a pen. Returns 0 or a code (DLP_ERR_*). */
static int dlpi_picture_write(const dlpi_picture *p, dlpi_pen *pen, const char *path) {
    dlpi_out o;
    int rc = dlpi_out_open(&o, path);
    if (rc != DLP_OK) return rc;
    rc = pen(&o, p);
    if (rc != DLP_OK) o.errnum = ENOMEM;
    int closed = dlpi_out_close(&o);
    return rc != DLP_OK ? rc : closed;
}
