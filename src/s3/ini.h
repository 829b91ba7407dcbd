#pragma once
/* tests: system/s3/s3_credentials, fuzz/fuzz_s3 */
#include "s3/secrets.h"
/* ---- profiles: the format that AWS' tools share ----
   A file is asked one question at a time, and read through for each: it is small, and read once.
   Sections are [profile NAME] (in the credentials file [NAME]), [default] and [services NAME]; of a
   setting that is there twice the last one counts. Indented lines continue a setting; below one
   without a value they are settings of their own, nested. A comment takes a whole line, or follows
   blanks. Source: the file format in AWS' SDK reference. */

typedef struct dlpi_s3_ini {
    const char *kind; /* "profile", "services"; NULL: sections are just names */
    const char *section;
    const char *name; /* NULL: only whether there is such a section */
    const char *sub;  /* NULL, or a setting nested below name */
    char *out;
    size_t size;
    bool strict_default;     /* there is a [profile default]: [default] says nothing */
    bool any, here;          /* a section was seen; it is the one */
    bool open, ours, nested; /* a setting may be continued; it is the one; its value was empty */
    bool found;
    bool cut; /* what was found is too long for out */
} dlpi_s3_ini;

static bool dlpi_s3_same(const char *s, size_t n, const char *word) {
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* True if a header names the wanted section. The header "default" needs no word "profile" before
   it, unless strict_default is set. */
static bool dlpi_s3_ini_is_section(const dlpi_s3_ini *q, const char *s, size_t n) {
    size_t k = q->kind ? strlen(q->kind) : 0;
    if (k && n > k && memcmp(s, q->kind, k) == 0 && dlpi_s3_is_blank(s[k])) {
        s += k;
        n -= k;
        dlpi_s3_trim(&s, &n);
    } else if (k && (q->strict_default || strcmp(q->kind, "profile") != 0 || n != 7 ||
                     memcmp(s, "default", 7) != 0)) {
        return false;
    }
    if (n > 1 && s[0] == '"' && s[n - 1] == '"') s++, n -= 2;
    return strlen(q->section) == n && memcmp(s, q->section, n) == 0;
}

/* Parse a line "[name]", perhaps with a comment. Returns -1 if it is no such line. */
static int dlpi_s3_ini_header(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *end = memchr(s, ']', n), *inner = s + 1, *rest;
    size_t n_inner, n_rest;
    if (!end) return -1;
    n_inner = (size_t)(end - inner);
    rest = end + 1;
    n_rest = n - (size_t)(rest - s);
    dlpi_s3_trim(&inner, &n_inner);
    dlpi_s3_trim(&rest, &n_rest);
    if (n_inner == 0 || (n_rest && *rest != '#' && *rest != ';')) return -1;
    q->any = true;
    q->open = false;
    q->here = dlpi_s3_ini_is_section(q, inner, n_inner);
    if (q->here && !q->name) q->found = true;
    return 0;
}

/* Copy a value to the caller's room. If it does not fit, `cut` is set and nothing is copied. */
static void dlpi_s3_ini_keep(dlpi_s3_ini *q, const char *s, size_t n) {
    q->found = true;
    q->cut = n >= q->size;
    if (q->cut) return;
    memcpy(q->out, s, n);
    q->out[n] = '\0';
}

/* Split "name = value". Returns false if there is no name, or no '='. */
static bool dlpi_s3_ini_split(const char *s, size_t n, size_t *n_name, const char **value,
                              size_t *n_value) {
    const char *equals = memchr(s, '=', n);
    if (!equals) return false;
    *value = equals + 1;
    *n_value = n - (size_t)(equals + 1 - s);
    *n_name = (size_t)(equals - s);
    dlpi_s3_trim(&s, n_name);
    dlpi_s3_trim(value, n_value);
    return *n_name != 0;
}

/* Parse a line "name = value", where a comment may follow a blank. Returns -1 if it is no such
   line. */
static int dlpi_s3_ini_setting(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value;
    if (!q->any) return -1;
    for (size_t i = 1; i < n; i++)
        if ((s[i] == '#' || s[i] == ';') && dlpi_s3_is_blank(s[i - 1])) n = i;
    if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
    q->open = true;
    q->nested = n_value == 0;
    q->ours = q->here && q->name && dlpi_s3_same(s, n_name, q->name);
    if (q->ours && !q->sub) dlpi_s3_ini_keep(q, value, n_value);
    return 0;
}

/* Parse an indented line, trimmed: it continues a setting. Returns -1 if it may not be here. */
static int dlpi_s3_ini_more(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value, have;
    if (!q->any || !q->open) return -1;
    if (q->nested) {
        if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
        if (q->ours && q->sub && dlpi_s3_same(s, n_name, q->sub))
            dlpi_s3_ini_keep(q, value, n_value);
    } else if (q->ours && !q->sub && !q->cut) {
        have = strlen(q->out);
        q->cut = have + 1 + n >= q->size;
        if (!q->cut) snprintf(q->out + have, q->size - have, "\n%.*s", (int)n, s);
    }
    return 0;
}

/* Parse one line: a comment, a header, a setting, or more of the setting above. Returns 0, or -1 if
   the line is none of these. */
static int dlpi_s3_ini_line(dlpi_s3_ini *q, const char *s, size_t n) {
    bool indented = n && dlpi_s3_is_blank(*s);
    if (n && s[n - 1] == '\r') n--;
    dlpi_s3_trim(&s, &n);
    if (n == 0 || *s == '#' || *s == ';') return 0;
    if (indented) return dlpi_s3_ini_more(q, s, n);
    return *s == '[' ? dlpi_s3_ini_header(q, s, n) : dlpi_s3_ini_setting(q, s, n);
}

/* Ask a text. Returns 0, with q->found and q->cut, or the number of a line that makes no sense. */
static int dlpi_s3_ini_ask(dlpi_s3_ini *q, const char *text, size_t n) {
    const char *at = text, *end = text + n, *stop;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) at += 3;
    for (int line = 1; at < end; line++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (dlpi_s3_ini_line(q, at, (size_t)(stop - at))) return line;
        at = stop + 1;
    }
    return 0;
}

/* ---- the two files ---- */

enum { DLPI_S3_FILE_MAX = 1 << 20 };

typedef struct dlpi_s3_profiles {
    const dlpi_s3_config *c;
    const char *profile; /* that is asked */
    char *text[2];       /* of c->file, in mappings of DLPI_S3_FILE_MAX; NULL: not there */
    size_t n[2];
    bool strict_default;
} dlpi_s3_profiles;

static void dlpi_s3_profiles_close(dlpi_s3_profiles *p) {
    for (int i = 0; i < 2; i++) dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, p->n[i]);
    memset(p, 0, sizeof *p);
}

/* Ask file i (0: config, 1: credentials). kind: "profile" or "services"; name NULL: only for the
   section. Returns 1: found, 0: not, or an error code. */
static int dlpi_s3_profiles_ask(const dlpi_s3_profiles *p, int i, const char *kind,
                                const char *section, const char *name, const char *sub, char *out,
                                size_t size, dlp_s3_error *err) {
    dlpi_s3_ini q;
    int line;
    memset(&q, 0, sizeof q);
    q.kind = i == 0 ? kind : NULL;
    q.section = section;
    q.name = name;
    q.sub = sub;
    q.out = out;
    q.size = size;
    q.strict_default = p->strict_default;
    if (!p->text[i]) return 0;
    line = dlpi_s3_ini_ask(&q, p->text[i], p->n[i]);
    if (line)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "%.90s: line %d must be [section], name = value or # comment",
                                 p->c->file[i], line);
    if (q.cut)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "%.60s: [%.30s] %.30s must have at most %zu bytes", p->c->file[i],
                                 section,
                                 sub    ? sub
                                 : name ? name
                                        : "",
                                 size - 1);
    return q.found;
}

/* Find a setting of the profile, or one nested below it (sub), first in the credentials file.
   Returns the file's number, from 1; 0: it is missing or empty; or an error code. */
static int dlpi_s3_profiles_find(const dlpi_s3_profiles *p, const char *name, const char *sub,
                                 char *out, size_t size, dlp_s3_error *err) {
    for (int i = 1; i >= 0; i--) {
        int there = dlpi_s3_profiles_ask(p, i, "profile", p->profile, name, sub, out, size, err);
        if (there < 0) return there;
        if (there && *out) return i + 1;
    }
    return 0;
}

/* Get a setting of the profile. Returns 1: it is there, 0: missing or empty, or an error code. */
static int dlpi_s3_profiles_get(const dlpi_s3_profiles *p, const char *name, char *out, size_t size,
                                dlp_s3_error *err) {
    int file = dlpi_s3_profiles_find(p, name, NULL, out, size, err);
    return file > 0 ? 1 : file;
}

/* Look for the profile, and for bad lines anywhere. Returns 1: there, 0: not, or an error code. */
static int dlpi_s3_profiles_has(dlpi_s3_profiles *p, dlp_s3_error *err) {
    int there[2];
    p->strict_default = true;
    there[0] = dlpi_s3_profiles_ask(p, 0, "profile", "default", NULL, NULL, NULL, 0, err);
    if (there[0] < 0) return there[0];
    p->strict_default = there[0] == 1;
    for (int i = 0; i < 2; i++) {
        there[i] = dlpi_s3_profiles_ask(p, i, "profile", p->profile, NULL, NULL, NULL, 0, err);
        if (there[i] < 0) return there[i];
    }
    return there[0] || there[1];
}

/* Read the two files. A missing one counts as empty; so does one in the home directory that may not
   be read, since programs run under other users' homes. */
static int dlpi_s3_profiles_open(dlpi_s3_profiles *p, const dlpi_s3_config *c, dlp_s3_error *err) {
    static const char *const variables[2] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
    memset(p, 0, sizeof *p);
    p->c = c;
    p->profile = c->profile;
    for (int i = 0; i < 2; i++) {
        int e;
        if (!c->file[i][0]) continue;
        p->text[i] = (char *)dlpi_s3_private_map(DLPI_S3_FILE_MAX);
        e = p->text[i] ? dlpi_s3_file_read(c->file[i], p->text[i], DLPI_S3_FILE_MAX, &p->n[i])
                       : ENOMEM;
        if (!e) continue;
        dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, 0);
        p->text[i] = NULL;
        if (e == ENOENT || e == ENOTDIR) continue;
        if (e == EACCES && !dlpi_s3_env(variables[i])) continue;
        dlpi_s3_profiles_close(p);
        return dlpi_s3_set_error(err, e == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, e,
                                 "%.60s: %s; mend it, or name another file in %s", c->file[i],
                                 e == EILSEQ ? "not a text file" : strerror(e), variables[i]);
    }
    return DLP_OK;
}
