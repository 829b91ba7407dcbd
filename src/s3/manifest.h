#pragma once
/* tests: system/s3/s3_source, fuzz/fuzz_s3 */
#include "source/new_file.h"
#include "api/s3_source.h"
#include "s3/list.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-source       ITEMS, PARTS AND CHUNKS OF A PIPE
   A worker has in_flight records (dlpi_s3_get). One is free; held, from submit to the next reap,
   so that neighbours can be found; out, asked for by its own request or by that of a neighbour,
   whose mate it is; or over, and free again once its item has been given back. Fetches that wait
   take a record, with a dlp_s3_io of its own, for as long as they take: the record used last comes
   first, since its connections are warm.

     label  who stores                     who loads
     SU1    workers: begun, ended          close: is there one of this process */

/* ---- manifests ---- */

enum { DLPI_S3_KEY_MOST = 1024, DLPI_S3_KEYS_MOST = INT32_MAX };

struct dlp_s3_manifest {
    uint64_t n, room;
    uint64_t *offset, *length; /* [room] as in dlp_s3_entry */
    uint32_t *key;             /* [room] number of its key */
    uint64_t *items;           /* [room]; NULL: no entry has any */
    uint64_t n_keys, key_room;
    uint64_t *key_at; /* [key_room] where it begins in text */
    uint64_t text_bytes, text_room;
    char *text;      /* keys with their ETags, each of both terminated */
    bool mixed;      /* keys did not always rise: a table finds them */
    uint64_t places; /* a power of two; 0: the table is to be made */
    uint32_t *place; /* [places] number of a key + 1, 0: nobody's */
};

/* How much there was, to go back to. */
typedef struct dlpi_s3_mark {
    uint64_t n, n_keys, text_bytes;
} dlpi_s3_mark;

/* Return the bytes of an entry with this length field; 0: it has none, or they are not known. */
static uint64_t dlpi_s3_bytes(uint64_t length) { return length == DLP_S3_EMPTY ? 0 : length; }

static const char *dlpi_s3_src_key(const dlp_s3_manifest *m, uint64_t i) {
    return m->text + m->key_at[m->key[i]];
}

static uint64_t dlpi_s3_key_hash(const char *key, size_t n) { /* FNV-1a, its bits mixed */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)key[i]) * UINT64_C(0x100000001b3);
    return (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

static void dlpi_s3_places_free(dlp_s3_manifest *m) {
    free(m->place);
    m->place = NULL;
    m->places = 0;
}

/* Return the ETag that stands behind a key in the manifest's text; it may be "". */
static const char *dlpi_s3_key_etag(const char *key) { return key + strlen(key) + 1; }

static bool dlpi_s3_key_same(const char *known, const char *key, const char *etag) {
    return strcmp(known, key) == 0 && strcmp(dlpi_s3_key_etag(known), etag) == 0;
}

/* Return the place in the table of a key with this ETag. If the table lacks the key, it is the
   empty place that the key would take. n: bytes of the key. */
static uint32_t *dlpi_s3_place_of(const dlp_s3_manifest *m, const char *key, size_t n,
                                  const char *etag) {
    uint64_t mask = m->places - 1;
    for (uint64_t i = dlpi_s3_key_hash(key, n) >> 20;; i++) {
        uint32_t *place = &m->place[i & mask];
        if (*place == 0 || dlpi_s3_key_same(m->text + m->key_at[*place - 1], key, etag))
            return place;
    }
}

/* Make the table so large that one more key leaves half of it empty. False: there is no memory. */
static bool dlpi_s3_places_ready(dlp_s3_manifest *m) {
    uint64_t places = m->places ? m->places : 64;
    if (m->places > 0 && (m->n_keys + 1) * 2 <= m->places) return true;
    while ((m->n_keys + 1) * 2 > places) places *= 2;
    dlpi_s3_places_free(m);
    m->place = calloc(places, sizeof *m->place);
    if (m->place == NULL) return false;
    m->places = places;
    for (uint64_t k = 0; k < m->n_keys; k++) {
        const char *key = m->text + m->key_at[k];
        *dlpi_s3_place_of(m, key, strlen(key), dlpi_s3_key_etag(key)) = (uint32_t)k + 1;
    }
    return true;
}

/* Change the length of an array to n elements. Returns the array, or NULL if there is no memory:
   the old array is then untouched. */
static void *dlpi_s3_longer(void *old, uint64_t n, size_t each) {
    return n > SIZE_MAX / each ? NULL : realloc(old, n > 0 ? (size_t)n * each : 1);
}

/* Change the room for entries. Returns false if there is no memory; m->room is then as it was. */
static bool dlpi_s3_entries_room(dlp_s3_manifest *m, uint64_t room) {
    void *offset = dlpi_s3_longer(m->offset, room, sizeof *m->offset), *length, *key, *items;
    if (offset) m->offset = offset;
    length = dlpi_s3_longer(m->length, room, sizeof *m->length);
    if (length) m->length = length;
    key = dlpi_s3_longer(m->key, room, sizeof *m->key);
    if (key) m->key = key;
    items = m->items ? dlpi_s3_longer(m->items, room, sizeof *m->items) : NULL;
    if (items) m->items = items;
    if (!offset || !length || !key || (m->items && !items)) return false;
    m->room = room;
    return true;
}

/* Make room for `keys` keys and `bytes` bytes of their text. Returns false if there is no memory;
   the keys stay valid then. */
static bool dlpi_s3_keys_room(dlp_s3_manifest *m, uint64_t keys, uint64_t bytes) {
    void *at = dlpi_s3_longer(m->key_at, keys, sizeof *m->key_at), *text;
    if (at) m->key_at = at;
    text = dlpi_s3_longer(m->text, bytes, 1);
    if (text) m->text = text;
    if (!at || !text) return false;
    m->key_room = keys;
    m->text_room = bytes;
    return true;
}

static uint64_t dlpi_s3_src_more(uint64_t room, uint64_t want) { /* grown by half at least */
    uint64_t more = room + room / 2;
    return more > want ? more : want + 64;
}

/* Find a key with this ETag, or add it. Returns its number, DLP_ERR_MEMORY or DLP_ERR_LIMIT. As
   long as keys rise, as they do in a list, a key that is not the last one is new. */
static int64_t dlpi_s3_key_number(dlp_s3_manifest *m, const char *key, const char *etag) {
    size_t n = strlen(key), bytes = n + 1 + strlen(etag);
    uint32_t *place = NULL;
    const char *last = m->n_keys ? m->text + m->key_at[m->n_keys - 1] : NULL;
    if (last && dlpi_s3_key_same(last, key, etag)) return (int64_t)m->n_keys - 1;
    m->mixed = m->mixed || (last && strcmp(key, last) <= 0);
    if (m->mixed) {
        if (m->n > 0 && dlpi_s3_key_same(dlpi_s3_src_key(m, m->n - 1), key, etag))
            return m->key[m->n - 1];
        if (!dlpi_s3_places_ready(m)) return DLP_ERR_MEMORY;
        place = dlpi_s3_place_of(m, key, n, etag);
        if (*place != 0) return *place - 1;
    }
    if (m->n_keys == DLPI_S3_KEYS_MOST) return DLP_ERR_LIMIT;
    if (m->n_keys == m->key_room &&
        !dlpi_s3_keys_room(m, dlpi_s3_src_more(m->key_room, m->n_keys + 1), m->text_room))
        return DLP_ERR_MEMORY;
    if (m->text_room - m->text_bytes <= bytes &&
        !dlpi_s3_keys_room(m, m->key_room,
                           dlpi_s3_src_more(m->text_room, m->text_bytes + bytes + 1)))
        return DLP_ERR_MEMORY;
    m->key_at[m->n_keys] = m->text_bytes;
    memcpy(m->text + m->text_bytes, key, n + 1);
    memcpy(m->text + m->text_bytes + n + 1, etag, bytes - n);
    m->text_bytes += bytes + 1;
    if (place) *place = (uint32_t)m->n_keys + 1;
    return (int64_t)m->n_keys++;
}

static bool dlpi_s3_items_ready(dlp_s3_manifest *m) {
    if (m->items == NULL) m->items = calloc((size_t)m->room, sizeof *m->items);
    return m->items != NULL;
}

static dlpi_s3_mark dlpi_s3_mark_of(const dlp_s3_manifest *m) {
    return (dlpi_s3_mark){m->n, m->n_keys, m->text_bytes};
}

/* End the adding of many entries: free the table of keys and the unused room. back: where the
   manifest returns to, so that later entries are undone; NULL: all entries stay. */
static void dlpi_s3_manifest_settle(dlp_s3_manifest *m, const dlpi_s3_mark *back) {
    if (back) {
        m->n = back->n;
        m->n_keys = back->n_keys;
        m->text_bytes = back->text_bytes;
    }
    dlpi_s3_places_free(m);
    if (m->n > 0) { /* shorter: cannot fail in a way that matters */
        (void)dlpi_s3_entries_room(m, m->n);
        (void)dlpi_s3_keys_room(m, m->n_keys, m->text_bytes);
    }
}

/* True if an ETag may be sent in If-Match: it is strong, and of characters that a head may have. */
static bool dlpi_s3_etag_good(const char *etag) {
    size_t n = strnlen(etag, sizeof((dlp_s3_object *)NULL)->etag);
    return n >= 2 && n < sizeof((dlp_s3_object *)NULL)->etag && dlpi_s3_is_graphic(etag) &&
           etag[0] == '"' && strchr(etag + 1, '"') == etag + n - 1;
}

/* Return a text that tells what is wrong with an entry, or NULL if nothing is. */
static const char *dlpi_s3_entry_wrong(const dlp_s3_entry *e) {
    uint64_t offset = e->offset == DLP_S3_WHOLE ? 0 : e->offset;
    size_t n = e->key ? strnlen(e->key, DLPI_S3_KEY_MOST + 1) : 0;
    if (n == 0 || n > DLPI_S3_KEY_MOST) return "a key must have 1 to 1024 bytes";
    if (e->length == DLP_S3_EMPTY && e->offset != DLP_S3_WHOLE)
        return "length DLP_S3_EMPTY needs offset DLP_S3_WHOLE";
    if (offset > INT64_MAX || (e->length != DLP_S3_EMPTY && e->length > INT64_MAX - offset))
        return "offset and length must end below 2^63";
    if (e->etag && e->etag[0] && !dlpi_s3_etag_good(e->etag))
        return "an ETag must be strong, in quotes, of at most 71 bytes";
    return NULL;
}

/* Add an entry in which nothing is wrong. Returns DLP_OK, DLP_ERR_MEMORY or DLP_ERR_LIMIT. */
static int dlpi_s3_manifest_put(dlp_s3_manifest *m, const dlp_s3_entry *e) {
    int64_t key;
    if (m->n == UINT64_C(1) << 40) return DLP_ERR_LIMIT;
    if (m->n == m->room && !dlpi_s3_entries_room(m, dlpi_s3_src_more(m->room, m->n + 1)))
        return DLP_ERR_MEMORY;
    if (e->items > 0 && !dlpi_s3_items_ready(m)) return DLP_ERR_MEMORY;
    key = dlpi_s3_key_number(m, e->key, e->etag ? e->etag : "");
    if (key < 0) return (int)key;
    m->offset[m->n] = e->offset;
    m->length[m->n] = e->length;
    m->key[m->n] = (uint32_t)key;
    if (m->items) m->items[m->n] = e->items;
    m->n++;
    return DLP_OK;
}

static int dlpi_s3_src_put_failed(dlp_s3_error *err, int rc) {
    return dlpi_s3_set_error(err, rc, 0,
                             rc == DLP_ERR_LIMIT
                                 ? "too many entries, or keys; use several manifests"
                                 : "no memory for the manifest");
}

DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err) {
    dlp_s3_manifest *m;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "out is NULL");
    m = calloc(1, sizeof *m);
    if (m == NULL) return dlpi_s3_src_put_failed(err, DLP_ERR_MEMORY);
    *out = m;
    return DLP_OK;
}

DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m) {
    if (m == NULL) return;
    dlpi_s3_places_free(m);
    free(m->offset);
    free(m->length);
    free(m->key);
    free(m->items);
    free(m->key_at);
    free(m->text);
    free(m);
}

DLPDEF int dlp_s3_manifest_add(dlp_s3_manifest *m, const dlp_s3_entry *entry, dlp_s3_error *err) {
    const char *wrong;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || entry == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", m ? "entry" : "manifest");
    wrong = dlpi_s3_entry_wrong(entry);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "entry: %s", wrong);
    rc = dlpi_s3_manifest_put(m, entry);
    return rc == DLP_OK ? DLP_OK : dlpi_s3_src_put_failed(err, rc);
}

DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err) {
    dlp_s3_list *list = NULL;
    dlp_s3_object o = {0};
    dlpi_s3_mark mark;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "manifest is NULL");
    mark = dlpi_s3_mark_of(m);
    rc = dlp_s3_list_open(&list, io, desc, err);
    while (rc == DLP_OK && (rc = dlp_s3_list_next(list, &o, err)) == DLP_OK) {
        dlp_s3_entry e = {o.key, DLP_S3_WHOLE, o.bytes ? o.bytes : DLP_S3_EMPTY, 0,
                          dlpi_s3_etag_good(o.etag) ? o.etag : ""};
        if (o.is_prefix || (o.bytes == 0 && o.key_bytes > 0 && o.key[o.key_bytes - 1] == '/'))
            continue;
        if (dlpi_s3_entry_wrong(&e))
            rc = dlpi_s3_set_error(
                err, DLP_ERR_REMOTE, 0,
                "the list has a key that is empty or above 1024 bytes; narrow prefix");
        else if ((rc = dlpi_s3_manifest_put(m, &e)) != DLP_OK)
            dlpi_s3_src_put_failed(err, rc);
    }
    dlp_s3_list_close(list);
    if (rc == DLP_END) rc = DLP_OK;
    dlpi_s3_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

/* ---- manifests as files ---- */

enum { DLPI_S3_LINE_MOST = 3 * DLPI_S3_KEY_MOST + 160, DLPI_S3_COLUMNS = 5 };

/* Read a line without its end. Returns the number of its bytes, -1 at the end of the file, or -2 if
   the line is longer than DLPI_S3_LINE_MOST. */
static int dlpi_s3_line(FILE *f, char *line) {
    int n = 0, c;
    while ((c = getc(f)) != EOF && c != '\n') {
        if (n == DLPI_S3_LINE_MOST) return -2;
        line[n++] = (char)c;
    }
    line[n] = 0;
    return c == EOF && n == 0 ? -1 : n;
}

/* Decode the %XX of a key in its place. Returns NULL or an error text. */
static const char *dlpi_s3_key_decode(char *key) {
    char *to = key;
    for (const char *at = key; *at != 0; at++) {
        int high, low;
        if ((uint8_t)*at <= ' ' || *at == 0x7f)
            return "a blank or control character in a key; write it as %XX";
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        high = dlpi_s3_hex_digit(at[1]);
        low = high < 0 ? -1 : dlpi_s3_hex_digit(at[2]);
        if (low < 0) return "'%' without two hexadecimal digits; write '%' as %25";
        if (high + low == 0) return "%00 in a key, which cannot have it";
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = 0;
    return NULL;
}

/* Parse a line of n bytes into an entry; its texts stay there. Returns NULL or an error text. */
static const char *dlpi_s3_line_parse(char *line, int n, dlp_s3_entry *e) {
    char *column[DLPI_S3_COLUMNS + 1] = {line};
    int columns = 1;
    const char *wrong;
    memset(e, 0, sizeof *e);
    e->key = line;
    if (n == 0) return "an empty line; remove it";
    if (strlen(line) != (size_t)n) return "a zero byte; is it a text file?";
    for (char *tab = strchr(line, '\t'); tab != NULL && columns <= DLPI_S3_COLUMNS;
         tab = strchr(tab, '\t')) {
        *tab++ = 0;
        column[columns++] = tab;
    }
    if (columns == 2 || columns > DLPI_S3_COLUMNS)
        return "a line must have 1, 3, 4 or 5 columns, with tabs between";
    e->etag = columns > 4 ? column[4] : NULL;
    wrong = dlpi_s3_key_decode(line);
    if (wrong) return wrong;
    if (columns > 1 && strcmp(column[1], "*") == 0)
        e->offset = DLP_S3_WHOLE;
    else if (columns > 1 && !dlpi_s3_decimal(column[1], strlen(column[1]), &e->offset))
        return "the offset (column 2) must be a number, or '*'";
    if (columns > 1 && strcmp(column[2], "-") == 0)
        e->length = DLP_S3_EMPTY;
    else if (columns > 1 && !dlpi_s3_decimal(column[2], strlen(column[2]), &e->length))
        return "the length (column 3) must be a number, or '-'";
    if (columns > 3 && !dlpi_s3_decimal(column[3], strlen(column[3]), &e->items))
        return "the items (column 4) must be a number";
    return dlpi_s3_entry_wrong(e);
}

/* Add an entry for each line of a file that is no comment. Returns DLP_OK or an error code. */
static int dlpi_s3_manifest_lines(dlp_s3_manifest *m, FILE *f, const char *path,
                                  dlp_s3_error *err) {
    char line[DLPI_S3_LINE_MOST + 1];
    const char *wrong;
    dlp_s3_entry e;
    int n, rc;
    for (uint64_t number = 1; (n = dlpi_s3_line(f, line)) != -1; number++) {
        if (line[0] == '#' && n > 0) continue;
        wrong = n == -2 ? "a line of more than 3232 bytes" : dlpi_s3_line_parse(line, n, &e);
        if (wrong)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%.90s:%llu: %s", path,
                                     (unsigned long long)number, wrong);
        if ((rc = dlpi_s3_manifest_put(m, &e)) != DLP_OK) return dlpi_s3_src_put_failed(err, rc);
    }
    if (ferror(f))
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    return DLP_OK;
}

DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err) {
    dlpi_s3_mark mark;
    FILE *f;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || path == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", m ? "path" : "manifest");
    mark = dlpi_s3_mark_of(m);
    f = dlpi_stream_open(path, O_RDONLY, "rb");
    if (f == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    rc = dlpi_s3_manifest_lines(m, f, path, err);
    fclose(f);
    dlpi_s3_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

/* Write an entry as a line: its key escaped, without the columns that say nothing. */
static void dlpi_s3_entry_write(const dlp_s3_entry *e, FILE *f) {
    char key[3 * DLPI_S3_KEY_MOST + 1];
    dlpi_s3_uri_encode(key, sizeof key, e->key, strlen(e->key), true);
    fputs(key, f);
    if (e->length == DLP_S3_EMPTY)
        fputs("\t*\t-", f);
    else if (e->offset == DLP_S3_WHOLE)
        fprintf(f, "\t*\t%llu", (unsigned long long)e->length);
    else if (e->offset > 0 || e->length > 0 || e->items > 0 || e->etag[0])
        fprintf(f, "\t%llu\t%llu", (unsigned long long)e->offset, (unsigned long long)e->length);
    if (e->items > 0 || e->etag[0]) fprintf(f, "\t%llu", (unsigned long long)e->items);
    if (e->etag[0]) fprintf(f, "\t%s", e->etag);
    putc('\n', f);
}

DLPDEF int dlp_s3_manifest_write(const dlp_s3_manifest *m, const char *path, dlp_s3_error *err) {
    char tmp[4096];
    dlp_s3_entry e;
    FILE *f;
    bool good = true;
    int fd, errnum = 0;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || path == NULL || strlen(path) > sizeof tmp - 5)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s",
                                 m ? "path: must have 1 to 4091 bytes" : "manifest is NULL");
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    errno = dlpi_file_afresh(&fd, tmp);
    f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) {
        dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", tmp, strerror(errno));
        if (fd >= 0) close(fd);
        return DLP_ERR_SYSTEM;
    }
    fputs("# key, offset, length, items, etag\n", f);
    for (uint64_t i = 0; good && i < m->n && dlp_s3_manifest_get(m, i, &e) == DLP_OK; i++) {
        good = dlpi_file_may_be((uint64_t)ftello(f) + DLPI_S3_LINE_MOST);
        if (good)
            dlpi_s3_entry_write(&e, f);
        else
            errnum = errno;
    }
    good = good && !ferror(f) && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (!good && errnum == 0) errnum = errno ? errno : EIO;
    if ((fclose(f) != 0 || (good && rename(tmp, path) != 0)) && errnum == 0) errnum = errno;
    if (errnum == 0) return DLP_OK;
    dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errnum, "%s: %s", path, strerror(errnum));
    unlink(tmp);
    return DLP_ERR_SYSTEM;
}

DLPDEF int dlp_s3_manifest_get(const dlp_s3_manifest *m, uint64_t i, dlp_s3_entry *out) {
    if (m == NULL || i >= m->n || out == NULL) return DLP_ERR_ARG;
    out->key = dlpi_s3_src_key(m, i);
    out->offset = m->offset[i];
    out->length = m->length[i];
    out->items = m->items ? m->items[i] : 0;
    out->etag = dlpi_s3_key_etag(out->key);
    return DLP_OK;
}

DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m) { return m ? m->n : 0; }

DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m) {
    uint64_t h = 0;
    for (uint64_t i = 0; m && i < m->n; i++) {
        const char *key = dlpi_s3_src_key(m, i);
        h = dlp_hash(h, m->offset[i], dlpi_s3_bytes(m->length[i]), m->items ? m->items[i] : 0);
        h ^= dlpi_s3_key_hash(key, strlen(key));
    }
    return h;
}

DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m) {
    if (m == NULL) return 0;
    return sizeof *m + m->room * (2 * sizeof *m->offset + sizeof *m->key) +
           (m->items ? m->room * sizeof *m->items : 0) + m->key_room * sizeof *m->key_at +
           m->text_room + m->places * sizeof *m->place;
}
