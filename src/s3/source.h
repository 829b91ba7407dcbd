#pragma once
#include "stages/cut.h"
#include "source/files.h"
#include "source/part_files.h"
#include "api/s3_source.h"
#include "s3/list.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-source       ITEMS, PARTS AND CHUNKS OF A PIPE
   A worker has in_flight records (dlpi_src_get). One is free; held, from submit to the next reap,
   so that neighbours can be found; out, asked for by its own request or by that of a neighbour,
   whose mate it is; or over, and free again once its item has been given back. Fetches that wait
   take a record, with a dlp_s3_io of its own, for as long as they take: the record used last comes
   first, since its connections are warm.

     label  who stores                     who loads
     SU1    workers: begun, ended          close: is there one of this process */

#ifdef DLPIPE_IMPLEMENTATION_DONE

/* ---- manifests ---- */

enum { DLPI_SRC_KEY_MOST = 1024, DLPI_SRC_KEYS_MOST = INT32_MAX };

struct dlp_s3_manifest {
    uint64_t n, room;
    uint64_t *offset, *length; /* [room] as in dlp_s3_entry */
    uint32_t *key;             /* [room] number of its key */
    uint64_t *items;           /* [room]; NULL: no entry has any */
    uint64_t n_keys, key_room;
    uint64_t *key_at; /* [key_room] where it begins in text */
    uint64_t text_bytes, text_room;
    char *text;     /* keys, each terminated */
    bool mixed;     /* keys did not always rise: a table finds them */
    uint64_t seats; /* a power of two; 0: the table is to be made */
    uint32_t *seat; /* [seats] number of a key + 1, 0: nobody's */
};

/* How much there was, to go back to. */
typedef struct dlpi_src_mark {
    uint64_t n, n_keys, text_bytes;
} dlpi_src_mark;

static const char *dlpi_src_key(const dlp_s3_manifest *m, uint64_t i) {
    return m->text + m->key_at[m->key[i]];
}

static uint64_t dlpi_src_key_hash(const char *key, size_t n) { /* FNV-1a, its bits mixed */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)key[i]) * UINT64_C(0x100000001b3);
    return (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

static void dlpi_src_seats_free(dlp_s3_manifest *m) {
    free(m->seat);
    m->seat = NULL;
    m->seats = 0;
}

/* The seat of a key, or the empty one that it would take. */
static uint32_t *dlpi_src_seat_of(const dlp_s3_manifest *m, const char *key, size_t n) {
    uint64_t mask = m->seats - 1;
    for (uint64_t i = dlpi_src_key_hash(key, n) >> 20;; i++) {
        uint32_t *seat = &m->seat[i & mask];
        if (*seat == 0 || strcmp(m->text + m->key_at[*seat - 1], key) == 0) return seat;
    }
}

/* Have a table that one more key leaves half empty at least. */
static bool dlpi_src_seats_ready(dlp_s3_manifest *m) {
    uint64_t seats = m->seats ? m->seats : 64;
    if (m->seats > 0 && (m->n_keys + 1) * 2 <= m->seats) return true;
    while ((m->n_keys + 1) * 2 > seats) seats *= 2;
    dlpi_src_seats_free(m);
    m->seat = calloc(seats, sizeof *m->seat);
    if (m->seat == NULL) return false;
    m->seats = seats;
    for (uint64_t k = 0; k < m->n_keys; k++) {
        const char *key = m->text + m->key_at[k];
        *dlpi_src_seat_of(m, key, strlen(key)) = (uint32_t)k + 1;
    }
    return true;
}

/* Make an array longer. Returns it, or NULL: there is no memory, and it is as it was. */
static void *dlpi_src_longer(void *old, uint64_t n, size_t each) {
    return n > SIZE_MAX / each ? NULL : realloc(old, n > 0 ? (size_t)n * each : 1);
}

static bool dlpi_src_entries_room(dlp_s3_manifest *m, uint64_t room) {
    void *offset = dlpi_src_longer(m->offset, room, sizeof *m->offset), *length, *key, *items;
    if (offset) m->offset = offset;
    length = dlpi_src_longer(m->length, room, sizeof *m->length);
    if (length) m->length = length;
    key = dlpi_src_longer(m->key, room, sizeof *m->key);
    if (key) m->key = key;
    items = m->items ? dlpi_src_longer(m->items, room, sizeof *m->items) : NULL;
    if (items) m->items = items;
    if (!offset || !length || !key || (m->items && !items)) return false;
    m->room = room;
    return true;
}

static bool dlpi_src_keys_room(dlp_s3_manifest *m, uint64_t keys, uint64_t bytes) {
    void *at = dlpi_src_longer(m->key_at, keys, sizeof *m->key_at), *text;
    if (at) m->key_at = at;
    text = dlpi_src_longer(m->text, bytes, 1);
    if (text) m->text = text;
    if (!at || !text) return false;
    m->key_room = keys;
    m->text_room = bytes;
    return true;
}

static uint64_t dlpi_src_more(uint64_t room, uint64_t want) { /* grown by half at least */
    uint64_t more = room + room / 2;
    return more > want ? more : want + 64;
}

/* Find a key, or keep it. Returns its number, or negative: there is no memory, or no number. As
   long as keys rise, as those of a list do, a key that is not the last one is new. */
static int64_t dlpi_src_key_number(dlp_s3_manifest *m, const char *key) {
    size_t n = strlen(key);
    uint32_t *seat = NULL;
    int order = m->n_keys ? strcmp(key, m->text + m->key_at[m->n_keys - 1]) : 1;
    if (order == 0) return (int64_t)m->n_keys - 1;
    m->mixed = m->mixed || order < 0;
    if (m->mixed) {
        if (m->n > 0 && strcmp(dlpi_src_key(m, m->n - 1), key) == 0) return m->key[m->n - 1];
        if (!dlpi_src_seats_ready(m)) return DLP_ERR_MEMORY;
        seat = dlpi_src_seat_of(m, key, n);
        if (*seat != 0) return *seat - 1;
    }
    if (m->n_keys == DLPI_SRC_KEYS_MOST) return DLP_ERR_LIMIT;
    if (m->n_keys == m->key_room &&
        !dlpi_src_keys_room(m, dlpi_src_more(m->key_room, m->n_keys + 1), m->text_room))
        return DLP_ERR_MEMORY;
    if (m->text_room - m->text_bytes <= n &&
        !dlpi_src_keys_room(m, m->key_room, dlpi_src_more(m->text_room, m->text_bytes + n + 1)))
        return DLP_ERR_MEMORY;
    m->key_at[m->n_keys] = m->text_bytes;
    memcpy(m->text + m->text_bytes, key, n + 1);
    m->text_bytes += n + 1;
    if (seat) *seat = (uint32_t)m->n_keys + 1;
    return (int64_t)m->n_keys++;
}

static bool dlpi_src_items_ready(dlp_s3_manifest *m) {
    if (m->items == NULL) m->items = calloc((size_t)m->room, sizeof *m->items);
    return m->items != NULL;
}

static dlpi_src_mark dlpi_src_mark_of(const dlp_s3_manifest *m) {
    return (dlpi_src_mark){m->n, m->n_keys, m->text_bytes};
}

/* Many entries were added, or, with a mark, are not to have been. What only adding wants goes. */
static void dlpi_src_manifest_settle(dlp_s3_manifest *m, const dlpi_src_mark *back) {
    if (back) {
        m->n = back->n;
        m->n_keys = back->n_keys;
        m->text_bytes = back->text_bytes;
    }
    dlpi_src_seats_free(m);
    if (m->n > 0) { /* shorter: cannot fail in a way that matters */
        (void)dlpi_src_entries_room(m, m->n);
        (void)dlpi_src_keys_room(m, m->n_keys, m->text_bytes);
    }
}

/* What is wrong with an entry, or NULL. */
static const char *dlpi_src_entry_wrong(const dlp_s3_entry *e) {
    uint64_t offset = e->offset == DLP_S3_WHOLE ? 0 : e->offset;
    size_t n = e->key ? strnlen(e->key, DLPI_SRC_KEY_MOST + 1) : 0;
    if (n == 0 || n > DLPI_SRC_KEY_MOST) return "a key has 1 to 1024 bytes";
    if (offset > INT64_MAX || e->length > INT64_MAX - offset) return "past the end of any object";
    return NULL;
}

/* As dlp_s3_manifest_add; the entry is in order. */
static int dlpi_src_manifest_put(dlp_s3_manifest *m, const dlp_s3_entry *e) {
    int64_t key;
    if (m->n == UINT64_C(1) << 40) return DLP_ERR_LIMIT;
    if (m->n == m->room && !dlpi_src_entries_room(m, dlpi_src_more(m->room, m->n + 1)))
        return DLP_ERR_MEMORY;
    if (e->items > 0 && !dlpi_src_items_ready(m)) return DLP_ERR_MEMORY;
    key = dlpi_src_key_number(m, e->key);
    if (key < 0) return (int)key;
    m->offset[m->n] = e->offset;
    m->length[m->n] = e->length;
    m->key[m->n] = (uint32_t)key;
    if (m->items) m->items[m->n] = e->items;
    m->n++;
    return DLP_OK;
}

static int dlpi_src_put_failed(dlp_s3_error *err, int rc) {
    return dlpi_s3_set_error(err, rc, 0,
                             rc == DLP_ERR_LIMIT ? "too many entries, or keys"
                                                 : "no memory for the manifest");
}

DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err) {
    dlp_s3_manifest *m;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "out is NULL");
    m = calloc(1, sizeof *m);
    if (m == NULL) return dlpi_src_put_failed(err, DLP_ERR_MEMORY);
    *out = m;
    return DLP_OK;
}

DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m) {
    if (m == NULL) return;
    dlpi_src_seats_free(m);
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
    wrong = dlpi_src_entry_wrong(entry);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "entry: %s", wrong);
    rc = dlpi_src_manifest_put(m, entry);
    return rc == DLP_OK ? DLP_OK : dlpi_src_put_failed(err, rc);
}

DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err) {
    dlp_s3_list *list = NULL;
    dlp_s3_object o = {0};
    dlpi_src_mark mark;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "manifest is NULL");
    mark = dlpi_src_mark_of(m);
    rc = dlp_s3_list_open(&list, io, desc, err);
    while (rc == DLP_OK && (rc = dlp_s3_list_next(list, &o, err)) == DLP_OK) {
        dlp_s3_entry e = {o.key, DLP_S3_WHOLE, o.bytes, 0};
        if (o.is_prefix || (o.bytes == 0 && o.key_bytes > 0 && o.key[o.key_bytes - 1] == '/'))
            continue;
        if (dlpi_src_entry_wrong(&e))
            rc = dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0, "the list has a key that none can be");
        else if ((rc = dlpi_src_manifest_put(m, &e)) != DLP_OK)
            dlpi_src_put_failed(err, rc);
    }
    dlp_s3_list_close(list);
    if (rc == DLP_END) rc = DLP_OK;
    dlpi_src_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

/* ---- manifests as files ---- */

enum { DLPI_SRC_LINE_MOST = 3 * DLPI_SRC_KEY_MOST + 80 };

/* Read a line without its end. Returns its bytes, -1: the file is over, -2: it is too long. */
static int dlpi_src_line(FILE *f, char *line) {
    int n = 0, c;
    while ((c = getc(f)) != EOF && c != '\n') {
        if (n == DLPI_SRC_LINE_MOST) return -2;
        line[n++] = (char)c;
    }
    line[n] = 0;
    return c == EOF && n == 0 ? -1 : n;
}

static int dlpi_src_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decode a key in its place. Returns what is wrong with it, or NULL. */
static const char *dlpi_src_key_decode(char *key) {
    char *to = key;
    for (const char *at = key; *at != 0; at++) {
        int high, low;
        if ((uint8_t)*at <= ' ' || *at == 0x7f) return "a key's character is not encoded";
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        high = dlpi_src_hex_digit(at[1]);
        low = high < 0 ? -1 : dlpi_src_hex_digit(at[2]);
        if (low < 0) return "'%' without two hexadecimal digits";
        if (high + low == 0) return "a key has no zero bytes";
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = 0;
    return NULL;
}

/* Read a number of digits alone. Returns false where there is none, or it is past INT64_MAX. */
static bool dlpi_src_digits(const char *text, uint64_t *out) {
    uint64_t n = 0;
    if (*text == 0) return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (n > INT64_MAX / 10) return false; /* or it would wrap */
        n = n * 10 + (uint64_t)(*text - '0');
        if (n > INT64_MAX) return false;
    }
    *out = n;
    return *text == 0;
}

/* Take a line of n bytes apart. Returns what is wrong with it, or NULL. */
static const char *dlpi_src_line_parse(char *line, int n, dlp_s3_entry *e) {
    char *column[5] = {line, NULL, NULL, NULL, NULL};
    int columns = 1;
    const char *wrong;
    memset(e, 0, sizeof *e);
    e->key = line;
    if (n == 0) return "an empty line";
    if (strlen(line) != (size_t)n) return "a zero byte";
    for (char *tab = strchr(line, '\t'); tab != NULL && columns < 5; tab = strchr(tab, '\t')) {
        *tab++ = 0;
        column[columns++] = tab;
    }
    if (columns == 2 || columns == 5) return "one column, three, or four";
    wrong = dlpi_src_key_decode(line);
    if (wrong) return wrong;
    if (columns > 1 && strcmp(column[1], "*") == 0)
        e->offset = DLP_S3_WHOLE;
    else if (columns > 1 && !dlpi_src_digits(column[1], &e->offset))
        return "the offset is no number, nor '*'";
    if (columns > 1 && !dlpi_src_digits(column[2], &e->length)) return "the length is no number";
    if (columns > 3 && !dlpi_src_digits(column[3], &e->items)) return "the items are no number";
    return dlpi_src_entry_wrong(e);
}

static int dlpi_src_manifest_lines(dlp_s3_manifest *m, FILE *f, const char *path,
                                   dlp_s3_error *err) {
    char line[DLPI_SRC_LINE_MOST + 1];
    const char *wrong;
    dlp_s3_entry e;
    int n, rc;
    for (uint64_t number = 1; (n = dlpi_src_line(f, line)) != -1; number++) {
        if (line[0] == '#' && n > 0) continue;
        wrong = n == -2 ? "a line is too long" : dlpi_src_line_parse(line, n, &e);
        if (wrong)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s:%llu: %s", path,
                                     (unsigned long long)number, wrong);
        if ((rc = dlpi_src_manifest_put(m, &e)) != DLP_OK) return dlpi_src_put_failed(err, rc);
    }
    if (ferror(f))
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    return DLP_OK;
}

DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err) {
    dlpi_src_mark mark;
    FILE *f;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || path == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", m ? "path" : "manifest");
    mark = dlpi_src_mark_of(m);
    f = dlpi_stream_open(path, O_RDONLY, "rb");
    if (f == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    rc = dlpi_src_manifest_lines(m, f, path, err);
    fclose(f);
    dlpi_src_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

static void dlpi_src_entry_write(const dlp_s3_entry *e, FILE *f) {
    char key[3 * DLPI_SRC_KEY_MOST + 1];
    dlpi_s3_uri_encode(key, sizeof key, e->key, strlen(e->key), true);
    fputs(key, f);
    if (e->offset == DLP_S3_WHOLE)
        fprintf(f, "\t*\t%llu", (unsigned long long)e->length);
    else if (e->offset > 0 || e->length > 0 || e->items > 0)
        fprintf(f, "\t%llu\t%llu", (unsigned long long)e->offset, (unsigned long long)e->length);
    if (e->items > 0) fprintf(f, "\t%llu", (unsigned long long)e->items);
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
                                 m ? "path: none, or too long" : "manifest is NULL");
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    fd = dlpi_file_anew(tmp);
    f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) {
        dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", tmp, strerror(errno));
        if (fd >= 0) close(fd);
        return DLP_ERR_SYSTEM;
    }
    fputs("# key, offset, length, items\n", f);
    for (uint64_t i = 0; good && i < m->n && dlp_s3_manifest_get(m, i, &e) == DLP_OK; i++) {
        good = dlpi_file_may_be((uint64_t)ftello(f) + DLPI_SRC_LINE_MOST);
        if (good)
            dlpi_src_entry_write(&e, f);
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
    *out =
        (dlp_s3_entry){dlpi_src_key(m, i), m->offset[i], m->length[i], m->items ? m->items[i] : 0};
    return DLP_OK;
}

DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m) { return m ? m->n : 0; }

DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m) {
    uint64_t h = 0;
    for (uint64_t i = 0; m && i < m->n; i++) {
        const char *key = dlpi_src_key(m, i);
        h = dlp_hash(h, m->offset[i], m->length[i], m->items ? m->items[i] : 0);
        h ^= dlpi_src_key_hash(key, strlen(key));
    }
    return h;
}

DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m) {
    if (m == NULL) return 0;
    return sizeof *m + m->room * (2 * sizeof *m->offset + sizeof *m->key) +
           (m->items ? m->room * sizeof *m->items : 0) + m->key_room * sizeof *m->key_at +
           m->text_room + m->seats * sizeof *m->seat;
}

/* ---- the source ---- */

enum {
    DLPI_SRC_HAND_MOST = 1024, /* records of a worker */
    DLPI_SRC_MATES_MOST = 64,  /* items in a joint request */
    DLPI_SRC_LOOK_MS = 50,     /* who waits looks so often whether the pipe was stopped */
    DLPI_SRC_STOP_LOOKS = 4    /* and waits on for so many looks: most requests are over by then */
};

enum { DLPI_SRC_FREE, DLPI_SRC_HELD, DLPI_SRC_OUT, DLPI_SRC_OVER };

enum { /* what became of an item */
       DLPI_SRC_FINE,
       DLPI_SRC_FAILED,  /* the request did */
       DLPI_SRC_CHANGED, /* the object has another size than the manifest says */
       DLPI_SRC_SIZE, /* it has more bytes than there is room for, or fewer than the field takes */
       DLPI_SRC_RAGGED, /* not a whole number of rows */
       DLPI_SRC_STOPPED
};

typedef struct dlpi_src_get {
    dlp_s3_request request;
    struct dlpi_src_get *next; /* in the list that it is in */
    struct dlpi_src_get *mate; /* the next one of a joint request */
    dlp_item *item;
    dlp_s3_entry at;
    dlp_s3_piece *piece; /* [2 * most mates] of a joint request; NULL: not asynchronous */
    dlp_s3_io *io;       /* of a fetch that waits; NULL: none yet */
    uint8_t *buffer;     /* for decode; NULL: direct */
    uint8_t *to;         /* where its bytes go */
    uint64_t got;
    int32_t where, what;
    bool alone; /* asked for by itself: with others it failed */
} dlpi_src_get;

typedef struct dlpi_src_list {
    dlpi_src_get *first, *last;
} dlpi_src_list;

struct dlp_s3_source {
    dlp_s3_source_desc d;
    char bucket[256];
    int asked;           /* for async */
    uint32_t users;      /* SU1: workers of this process */
    uint64_t capacity;   /* most bytes of an item; 0: not for items */
    uint64_t unit;       /* bytes of a row of field 0; of all of it, if that is not ragged */
    bool ragged;         /* field 0 is */
    uint64_t longest;    /* of the entries whose length is known */
    bool known;          /* all lengths are */
    uint64_t *first_row; /* [entries + 1] of chunks: rows of all entries before */
};

typedef struct dlpi_src_worker {
    dlp_s3_source *source;
    void *state;          /* what the user's worker_init left */
    const dlp_pipe *pipe; /* of the last item, to see that it was stopped */
    dlp_s3_io *io;        /* for async; NULL: not asked for, or given up */
    dlpi_src_get *get;    /* [in_flight] */
    void *memory;         /* buffers */
    dlp_s3_piece *pieces;
    pthread_mutex_t lock; /* of free, which threads of a fetcher share */
    pthread_cond_t room;  /* a record is free */
    dlpi_src_get *free;   /* the one used last first */
    dlpi_src_list held, over;
    int out; /* requests that io has */
    int mates_most;
    int stop_looks;
} dlpi_src_worker;

static void dlpi_src_put(dlpi_src_list *l, dlpi_src_get *q, int where) {
    q->where = where;
    q->next = NULL;
    if (l->first == NULL)
        l->first = q;
    else
        l->last->next = q;
    l->last = q;
}

static dlpi_src_get *dlpi_src_take(dlpi_src_list *l) {
    dlpi_src_get *q = l->first;
    if (q) l->first = q->next;
    return q;
}

/* Take q, which comes behind before (NULL: it is the first), out of its list. */
static void dlpi_src_unlink(dlpi_src_list *l, dlpi_src_get *before, dlpi_src_get *q) {
    if (before)
        before->next = q->next;
    else
        l->first = q->next;
    if (l->last == q) l->last = before;
}

static dlpi_src_get *dlpi_src_lend(dlpi_src_worker *w, bool waits) {
    dlpi_src_get *q;
    pthread_mutex_lock(&w->lock);
    while (waits && w->free == NULL) pthread_cond_wait(&w->room, &w->lock);
    q = w->free;
    if (q) w->free = q->next;
    pthread_mutex_unlock(&w->lock);
    return q;
}

static void dlpi_src_give(dlpi_src_worker *w, dlpi_src_get *q) {
    pthread_mutex_lock(&w->lock);
    q->where = DLPI_SRC_FREE;
    q->next = w->free;
    w->free = q;
    pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

static const dlp_pipe *dlpi_src_pipe_of(const dlp_item *item) {
    const dlpi_worker *w = ((const dlpi_note *)item->internal)->w;
    return w ? w->p : NULL;
}

static bool dlpi_src_stopped(const dlp_pipe *p) { return p != NULL && dlpi_stopped(p); }

/* ---- one item, step by step ---- */

static bool dlpi_src_fails(dlpi_src_get *q, int what) {
    q->what = what;
    return false;
}

/* Do bytes that came, or are known to come, fit? */
static bool dlpi_src_fits(const dlp_s3_source *s, dlpi_src_get *q, uint64_t bytes) {
    q->got = bytes;
    if (bytes > s->capacity) return dlpi_src_fails(q, DLPI_SRC_SIZE);
    if (!s->d.direct) return true;
    if (!s->ragged && bytes < s->capacity) return dlpi_src_fails(q, DLPI_SRC_SIZE);
    return bytes % s->unit == 0 || dlpi_src_fails(q, DLPI_SRC_RAGGED);
}

/* A whole object whose size is known has no more room than that: so it is known not to be larger
   than a part, where that is so, and asked for without a range, which some servers refuse. */
static void dlpi_src_ask(const dlp_s3_source *s, dlp_s3_request *r, const dlp_s3_entry *at,
                         void *to, uint64_t capacity) {
    memset(r, 0, sizeof *r);
    r->bucket = s->bucket;
    r->key = at->key;
    if (at->offset != DLP_S3_WHOLE) {
        r->offset = at->offset;
        r->length = at->length;
    } else if (at->length > 0 && at->length < capacity) {
        capacity = at->length;
    }
    r->body = to;
    r->capacity = capacity;
}

/* Whether a whole object turned out to be another size than the manifest's, which is *is. */
static bool dlpi_src_other_size(const dlp_s3_request *r, const dlp_s3_entry *at, uint64_t *is) {
    *is = r->code == DLP_OK ? r->received : r->object_bytes;
    return at->offset == DLP_S3_WHOLE && at->length > 0 && *is != at->length &&
           (r->code == DLP_OK || (r->code == DLP_ERR_LENGTH && *is > 0));
}

/* Set up for an item. Returns whether there is anything to ask for: what it has is in order. */
static bool dlpi_src_begin(const dlp_s3_source *s, dlpi_src_get *q, dlp_item *item) {
    q->item = item;
    q->mate = NULL;
    q->alone = false;
    q->what = DLPI_SRC_FINE;
    q->to = q->buffer ? q->buffer : item->data[0];
    if (dlp_s3_manifest_get(s->d.manifest, item->index, &q->at) != DLP_OK) {
        q->at = (dlp_s3_entry){"", 0, 0, 0};
        return dlpi_src_fails(q, DLPI_SRC_FAILED);
    }
    if (q->at.length > 0 && !dlpi_src_fits(s, q, q->at.length)) return false;
    q->got = 0;
    dlpi_src_ask(s, &q->request, &q->at, q->to, s->capacity);
    return true;
}

/* The request of one item is over: look at what came. */
static void dlpi_src_look(const dlp_s3_source *s, dlpi_src_get *q) {
    const dlp_s3_request *r = &q->request;
    if (dlpi_src_other_size(r, &q->at, &q->got))
        dlpi_src_fails(q, DLPI_SRC_CHANGED);
    else if (r->code != DLP_OK)
        dlpi_src_fails(q, DLPI_SRC_FAILED);
    else if (q->at.length == 0)
        dlpi_src_fits(s, q, r->received);
}

/* How messages call an object; the end of a long key says more than its beginning. */
static void dlpi_src_place(const char *bucket, const char *key, char *text, size_t size) {
    size_t n = strlen(key), most = 90;
    snprintf(text, size, "s3://%.63s/%s%s", bucket, n > most ? "..." : "",
             n > most ? key + n - most : key);
    dlpi_s3_one_line(text);
}

static size_t dlpi_src_add_text(char *text, size_t size, size_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static size_t dlpi_src_add_text(char *text, size_t size, size_t at, const char *format, ...) {
    va_list args;
    int n;
    if (at >= size) return at;
    va_start(args, format);
    n = vsnprintf(text + at, size - at, format, args);
    va_end(args);
    return n > 0 ? at + (size_t)n : at;
}

/* What went wrong with a request, in 255 bytes: what names it first, what explains it last. */
static void dlpi_src_words(const dlp_s3_request *r, char *text, size_t size) {
    const dlp_s3_error *e = &r->error;
    size_t n;
    dlpi_src_place(r->bucket, r->key, text, size);
    n = strlen(text);
    if (r->length > 0)
        n = dlpi_src_add_text(text, size, n, " bytes %llu-%llu", (unsigned long long)r->offset,
                              (unsigned long long)(r->offset + r->length - 1));
    else if (r->offset > 0)
        n = dlpi_src_add_text(text, size, n, " bytes %llu-", (unsigned long long)r->offset);
    n = dlpi_src_add_text(text, size, n, ":");
    if (e->http_status) n = dlpi_src_add_text(text, size, n, " HTTP %d", e->http_status);
    if (e->s3_code[0]) n = dlpi_src_add_text(text, size, n, " %s", e->s3_code);
    if (e->request_id[0]) n = dlpi_src_add_text(text, size, n, " (request %s)", e->request_id);
    if (e->message[0])
        dlpi_src_add_text(text, size, n, " %s", e->message);
    else if (e->errnum)
        dlpi_src_add_text(text, size, n, " %s", strerror(e->errnum));
    else if (e->http_status == 0)
        dlpi_src_add_text(text, size, n, " code %d", r->code);
}

/* The item failed: say why. Returns what fetch returns. */
static int dlpi_src_complain(const dlp_s3_source *s, const dlpi_src_get *q) {
    const bool fixed = s->d.direct && !s->ragged;
    char text[256];
    if (q->at.key[0] == 0)
        return dlp_item_fail(q->item, 0, "the manifest has %llu entries",
                             (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
    if (q->what == DLPI_SRC_FAILED) {
        dlpi_src_words(&q->request, text, sizeof text);
        dlp_item_fail(q->item, q->request.error.errnum, "%s", text);
        return q->request.code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
    }
    dlpi_src_place(s->bucket, q->at.key, text, sizeof text);
    switch (q->what) {
    case DLPI_SRC_CHANGED:
        return dlp_item_fail(q->item, 0, "%s: has %llu bytes, the manifest says %llu", text,
                             (unsigned long long)q->got, (unsigned long long)q->at.length);
    case DLPI_SRC_SIZE:
        dlp_item_fail(q->item, 0, "%s: %llu bytes, %s %llu", text, (unsigned long long)q->got,
                      fixed ? "the field takes" : "the most are", (unsigned long long)s->capacity);
        return DLP_ERR_LENGTH;
    case DLPI_SRC_RAGGED:
        dlp_item_fail(q->item, 0, "%s: %llu bytes are not whole rows of %llu", text,
                      (unsigned long long)q->got, (unsigned long long)s->unit);
        return DLP_ERR_LENGTH;
    default: return dlp_item_fail(q->item, 0, "%s: given up, the pipe was stopped", text);
    }
}

/* Make an item of what came. Returns what fetch returns. */
static int dlpi_src_settle(const dlpi_src_worker *w, const dlpi_src_get *q) {
    const dlp_s3_source *s = w->source;
    if (q->what != DLPI_SRC_FINE) return dlpi_src_complain(s, q);
    if (s->d.direct && s->ragged) q->item->length[0] = q->got / s->unit;
    if (s->d.decode == NULL) return 0;
    return s->d.decode(s->d.user, w->state, q->item, q->to, q->got);
}

/* ---- fetches that wait ---- */

/* Close the I/O: what it has is dropped. */
static void dlpi_src_drop(dlp_s3_io **io) {
    dlp_s3_io_close(*io);
    *io = NULL;
}

/* Has a pipe been stopped for longer than most requests take? Called every DLPI_SRC_LOOK_MS. */
static bool dlpi_src_given_up(const dlp_pipe *p, int *looks) {
    return dlpi_src_stopped(p) && ++*looks >= DLPI_SRC_STOP_LOOKS;
}

static int dlpi_src_io_ready(dlp_s3_io **io, const dlp_s3_source *s, dlp_s3_error *err) {
    return *io ? DLP_OK : dlp_s3_io_open(io, s->d.s3, err);
}

static int dlpi_src_broken(dlp_s3_request *r, int rc) {
    if (r->error.code == 0)
        dlpi_s3_set_error(&r->error, rc, 0,
                          rc == DLP_STOPPED ? "given up, the pipe was stopped"
                                            : "the client's I/O is broken");
    r->code = rc;
    return rc;
}

/* Do one request, with an I/O that has no other. Returns r->code, which may be DLP_STOPPED. */
static int dlpi_src_wait(const dlp_s3_source *s, dlp_s3_io **io, const dlp_pipe *p,
                         dlp_s3_request *r) {
    dlp_s3_request *done;
    int n, rc = dlpi_src_io_ready(io, s, &r->error), looks = 0;
    if (rc == DLP_OK) rc = dlp_s3_submit(*io, r);
    if (rc != DLP_OK) return dlpi_src_broken(r, rc);
    do n = dlp_s3_reap(*io, &done, 1, DLPI_SRC_LOOK_MS);
    while (n == 0 && !dlpi_src_given_up(p, &looks));
    if (n == 1) return r->code;
    dlpi_src_drop(io);
    return dlpi_src_broken(r, n == 0 ? DLP_STOPPED : n);
}

static int dlpi_src_worker_init(void *user, int worker, void **state);

/* Has a worker of a pipe what wire gives it? dw: NULL where no pipe calls. */
static bool dlpi_src_is_worker(const dlpi_worker *dw, const void *state) {
    return state != NULL && (dw == NULL || dw->st->w.worker_init == dlpi_src_worker_init);
}

static dlpi_src_worker *dlpi_src_worker_of(const dlp_s3_source *s, const dlp_item *item) {
    dlpi_src_worker *w = item->worker_state;
    const dlpi_note *note = item->internal;
    return dlpi_src_is_worker(note->w, w) && w->source == s ? w : NULL;
}

static int dlpi_src_no_worker(const dlp_item *item) {
    return dlp_item_fail(item, 0,
                         "a source of objects wants the workers that dlp_s3_source_wire "
                         "sets");
}

/* dlp_dataset.fetch. */
static int dlpi_src_fetch(void *user, dlp_item *item) {
    const dlp_s3_source *s = user;
    dlpi_src_worker *w = dlpi_src_worker_of(s, item);
    dlpi_src_get *q;
    int rc;
    if (w == NULL) return dlpi_src_no_worker(item);
    q = dlpi_src_lend(w, true);
    if (dlpi_src_begin(s, q, item)) {
        rc = dlpi_src_wait(s, &q->io, dlpi_src_pipe_of(item), &q->request);
        dlpi_src_look(s, q);
        if (rc == DLP_STOPPED) q->what = DLPI_SRC_STOPPED;
    }
    rc = dlpi_src_settle(w, q);
    dlpi_src_give(w, q);
    return rc;
}

/* ---- many at once: dlp_async ---- */

/* Ranges of one object: may b follow behind a in one request? */
static bool dlpi_src_joins(const dlp_s3_source *s, const dlpi_src_get *a, const dlpi_src_get *b) {
    uint64_t end = a->at.offset + a->at.length;
    return a->at.key == b->at.key && b->at.offset >= end &&
           b->at.offset - end <= (uint64_t)s->d.gap_bytes;
}

static bool dlpi_src_joinable(const dlp_s3_source *s, const dlpi_src_get *q) {
    return !q->alone && q->at.length > 0 && q->at.offset != DLP_S3_WHOLE && s->d.gap_bytes >= 0;
}

static uint64_t dlpi_src_span(const dlpi_src_get *a, const dlpi_src_get *b) {
    return b->at.offset + b->at.length - a->at.offset;
}

/* The nearest held neighbour of the ranges first..last: before them, or behind. NULL: none. */
static dlpi_src_get *dlpi_src_neighbour(dlpi_src_worker *w, const dlpi_src_get *first,
                                        const dlpi_src_get *last, bool *is_before) {
    const dlp_s3_source *s = w->source;
    dlpi_src_get *best = NULL, *best_before = NULL, *before = NULL;
    uint64_t least = UINT64_MAX;
    for (dlpi_src_get *q = w->held.first; q != NULL; before = q, q = q->next) {
        bool behind = dlpi_src_joins(s, last, q), front = !behind && dlpi_src_joins(s, q, first);
        uint64_t span;
        if (!dlpi_src_joinable(s, q) || (!behind && !front)) continue;
        span = behind ? dlpi_src_span(first, q) : dlpi_src_span(q, last);
        if (span >= least || span > s->d.joint_bytes) continue;
        least = span;
        best = q;
        best_before = before;
        *is_before = front;
    }
    if (best) dlpi_src_unlink(&w->held, best_before, best);
    return best;
}

/* Gather the oldest held item and its neighbours, in the order of their ranges. NULL: none. */
static dlpi_src_get *dlpi_src_gather(dlpi_src_worker *w) {
    dlpi_src_get *first = dlpi_src_take(&w->held), *last = first, *q;
    bool before;
    if (first == NULL || !dlpi_src_joinable(w->source, first)) return first;
    for (int n = 1; n < w->mates_most; n++) {
        q = dlpi_src_neighbour(w, first, last, &before);
        if (q == NULL) break;
        if (before) {
            q->mate = first;
            first = q;
        } else {
            last->mate = q;
            last = q;
        }
    }
    return first;
}

/* One request for first and its mates. */
static void dlpi_src_join(const dlp_s3_source *s, dlpi_src_get *first) {
    dlp_s3_request *r = &first->request;
    uint64_t at = first->at.offset;
    if (first->mate == NULL) {
        dlpi_src_ask(s, r, &first->at, first->to, s->capacity);
        return;
    }
    dlpi_src_ask(s, r, &first->at, NULL, 0);
    for (const dlpi_src_get *q = first; q != NULL; q = q->mate) {
        if (q->at.offset > at)
            first->piece[r->n_pieces++] = (dlp_s3_piece){NULL, q->at.offset - at};
        first->piece[r->n_pieces++] = (dlp_s3_piece){q->to, q->at.length};
        at = q->at.offset + q->at.length;
    }
    r->length = at - first->at.offset;
    r->pieces = first->piece;
}

/* Undo a gathering: each is held again. alone: and to be asked for by itself. */
static void dlpi_src_part(dlpi_src_worker *w, dlpi_src_get *first, bool alone) {
    dlpi_src_list apart = {NULL, NULL};
    for (dlpi_src_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        q->alone = q->alone || alone;
        dlpi_src_put(&apart, q, DLPI_SRC_HELD);
    }
    apart.last->next = w->held.first; /* in front: these waited longest */
    if (w->held.first == NULL) w->held.last = apart.last;
    w->held.first = apart.first;
}

/* A request is over, by its code. */
static void dlpi_src_came(dlpi_src_worker *w, dlpi_src_get *first) {
    bool joint = first->mate != NULL;
    if (joint && first->request.code != DLP_OK) {
        dlpi_src_part(w, first, true);
        return;
    }
    if (!joint) dlpi_src_look(w->source, first);
    for (dlpi_src_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        if (joint) q->got = q->at.length;
        dlpi_src_put(&w->over, q, DLPI_SRC_OVER);
    }
}

/* Begin requests for what is held, as many as there is room for. Returns 0, or negative: broken. */
static int dlpi_src_flush(dlpi_src_worker *w) {
    dlpi_src_get *first;
    int rc;
    while ((first = dlpi_src_gather(w)) != NULL) {
        dlpi_src_join(w->source, first);
        first->request.user = first;
        rc = dlp_s3_submit(w->io, &first->request);
        if (rc == DLP_FULL) {
            dlpi_src_part(w, first, false);
            return 0;
        }
        if (rc == DLP_ERR_FORKED || rc == DLP_ERR_SYSTEM) return rc;
        if (rc != DLP_OK) {
            dlpi_src_broken(&first->request, rc);
            dlpi_src_came(w, first);
            continue;
        }
        w->out++;
        for (dlpi_src_get *q = first; q != NULL; q = q->mate) q->where = DLPI_SRC_OUT;
    }
    return 0;
}

/* The pipe was stopped: nothing is waited for any more. */
static void dlpi_src_give_up(dlpi_src_worker *w) {
    dlpi_src_drop(&w->io);
    w->out = 0;
    w->held.first = w->over.first = NULL;
    for (int i = 0; i < w->source->d.in_flight; i++) {
        dlpi_src_get *q = &w->get[i];
        if (q->where == DLPI_SRC_FREE) continue;
        q->mate = NULL;
        q->what = DLPI_SRC_STOPPED;
        dlpi_src_put(&w->over, q, DLPI_SRC_OVER);
    }
}

/* Let requests move, for at most timeout_ms. Returns 0, or negative: broken. */
static int dlpi_src_move(dlpi_src_worker *w, int timeout_ms) {
    dlp_s3_request *done[64];
    int n, rc = dlpi_src_flush(w);
    if (rc != 0 || w->out == 0) return rc;
    if (w->over.first != NULL) timeout_ms = DLP_NOWAIT;
    n = dlp_s3_reap(w->io, done, 64, timeout_ms);
    if (n < 0) return n;
    for (int i = 0; i < n; i++) {
        w->out--;
        dlpi_src_came(w, done[i]->user);
    }
    return n > 0 ? dlpi_src_flush(w) : 0; /* there is room, and what is asked for anew */
}

static int dlpi_src_submit_item(void *user, void *worker_state, dlp_item *item) {
    const dlp_s3_source *s = user;
    dlpi_src_worker *w = dlpi_src_worker_of(s, item);
    dlpi_src_get *q;
    int rc;
    DLPI_UNUSED(worker_state);
    if (w == NULL || w->io == NULL) return dlpi_src_no_worker(item);
    q = dlpi_src_lend(w, false);
    if (q == NULL) return DLP_FULL;
    w->pipe = dlpi_src_pipe_of(item);
    if (dlpi_src_begin(s, q, item)) {
        dlpi_src_put(&w->held, q, DLPI_SRC_HELD);
        return 0;
    }
    rc = dlpi_src_complain(s, q);
    dlpi_src_give(w, q);
    return rc;
}

/* Settle what is over. With a decode one at a time: its place is free for the next request, and
   sockets are looked at, before the next decode. */
static int dlpi_src_hand_back(dlpi_src_worker *w, dlp_item **done, int *code, int max) {
    int n = 0, most = w->source->d.decode ? 1 : max;
    dlpi_src_get *q;
    while (n < most && n < max && (q = dlpi_src_take(&w->over)) != NULL) {
        done[n] = q->item;
        code[n++] = dlpi_src_settle(w, q);
        dlpi_src_give(w, q);
    }
    return n;
}

/* Behind a stop the first reap only takes note: what it gave back could still be taken for items
   that failed. From the second on the pipe wants nothing but the records. */
static int dlpi_src_reap_items(void *user, void *worker_state, dlp_item **done, int *code, int max,
                               int timeout_ms) {
    dlpi_src_worker *w = worker_state;
    bool stopped = dlpi_src_stopped(w->pipe);
    int rc;
    DLPI_UNUSED(user);
    if (timeout_ms == 0 || timeout_ms > DLPI_SRC_LOOK_MS) timeout_ms = DLPI_SRC_LOOK_MS;
    if (stopped && w->stop_looks++ == 0) return 0;
    if (stopped && w->io) dlpi_src_give_up(w);
    if (!stopped && (rc = dlpi_src_move(w, timeout_ms)) != 0) {
        dlpi_src_drop(&w->io);
        return rc;
    }
    return dlpi_src_hand_back(w, done, code, max);
}

/* ---- parts ---- */

static const dlp_pipe *dlpi_src_part_pipe(const dlp_part *part) {
    const dlpi_worker *w = part->internal;
    return w ? w->p : NULL;
}

static int dlpi_src_part_complain(const dlp_part *part, const dlp_s3_request *r) {
    char text[256];
    dlpi_src_words(r, text, sizeof text);
    dlp_part_fail(part, r->error.errnum, "%s", text);
    return r->code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
}

static int dlpi_src_part_entry(const dlp_s3_source *s, const dlp_part *part, dlp_s3_entry *at) {
    *at = (dlp_s3_entry){"", 0, 0, 0};
    if (dlp_s3_manifest_get(s->d.manifest, part->index, at) == DLP_OK) return 0;
    return dlp_part_fail(part, 0, "the manifest has %llu entries",
                         (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
}

static int dlpi_src_part_size(const dlp_s3_source *s, const dlp_part *part, const dlp_s3_entry *at,
                              uint64_t bytes) {
    char text[256];
    if (at->length == 0 || bytes == at->length) return 0;
    dlpi_src_place(s->bucket, at->key, text, sizeof text);
    return dlp_part_fail(part, 0, "%s: has %llu bytes, the manifest says %llu", text,
                         (unsigned long long)bytes, (unsigned long long)at->length);
}

/* Read the bytes of a part; etag: NULL, or the one that they must have, if it is a strong one. */
static int dlpi_src_part_get(const dlp_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                             const dlp_s3_entry *at, void *to, uint64_t capacity, const char *etag,
                             dlp_s3_request *r) {
    uint64_t is;
    dlpi_src_ask(s, r, at, to, capacity);
    if (etag && etag[0] == '"') r->if_match = etag;
    dlpi_src_wait(s, io, dlpi_src_part_pipe(part), r);
    if (dlpi_src_other_size(r, at, &is)) return dlpi_src_part_size(s, part, at, is);
    return r->code == DLP_OK ? 0 : dlpi_src_part_complain(part, r);
}

DLPDEF int dlp_s3_part_load(void *source, dlp_part *part) {
    dlp_s3_source *s = source;
    const dlpi_worker *dw = part->internal;
    dlpi_src_worker *w = part->worker_state;
    dlpi_src_get *q;
    dlp_s3_entry at;
    int rc = dlpi_src_part_entry(s, part, &at);
    if (rc != 0) return rc;
    if (!dlpi_src_is_worker(dw, w) || w->source != s)
        return dlp_part_fail(part, 0,
                             "parts out of objects want the workers that "
                             "dlp_s3_source_wire_parts sets");
    q = dlpi_src_lend(w, true);
    rc = dlpi_src_part_get(s, &q->io, part, &at, part->data, part->capacity, NULL, &q->request);
    if (rc == 0) part->bytes = q->request.received;
    dlpi_src_give(w, q);
    return rc;
}

/* Learn the size of what is to be downloaded, and the ETag that it has to have. */
static int dlpi_src_download_size(const dlp_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                                  dlp_s3_entry *at, dlp_s3_request *r) {
    int rc;
    dlpi_src_ask(s, r, at, NULL, 0);
    r->method = DLP_S3_HEAD;
    r->offset = r->length = 0;
    if (dlpi_src_wait(s, io, dlpi_src_part_pipe(part), r) != DLP_OK)
        return dlpi_src_part_complain(part, r);
    if (at->offset != DLP_S3_WHOLE && at->offset > r->object_bytes)
        return dlp_part_fail(part, 0, "%s: has %llu bytes, byte %llu was asked for", at->key,
                             (unsigned long long)r->object_bytes, (unsigned long long)at->offset);
    rc = at->offset == DLP_S3_WHOLE ? dlpi_src_part_size(s, part, at, r->object_bytes) : 0;
    if (at->length == 0 || at->offset == DLP_S3_WHOLE)
        at->length = r->object_bytes - (at->offset == DLP_S3_WHOLE ? 0 : at->offset);
    return rc;
}

/* The file's blocks are there before it is mapped: a full disk is an error here, and no SIGBUS. */
static int dlpi_src_download_to(const dlp_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                                const dlp_s3_entry *at, const char *etag, int fd) {
    dlp_s3_request r;
    void *map;
    int rc = dlpi_file_may_be(at->length) ? posix_fallocate(fd, 0, (off_t)at->length) : errno;
    if (rc != 0) return dlp_part_fail(part, rc, "%s: %s", at->key, strerror(rc));
    map = mmap(NULL, (size_t)at->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return dlp_part_fail(part, errno, "%s: mmap: %s", at->key, strerror(errno));
    rc = dlpi_src_part_get(s, io, part, at, map, at->length, etag, &r);
    munmap(map, (size_t)at->length);
    return rc;
}

static int dlpi_src_download(const dlp_s3_source *s, dlp_s3_io **io, const dlp_part *part, int fd) {
    dlp_s3_request head;
    dlp_s3_entry at;
    int rc = dlpi_src_part_entry(s, part, &at);
    if (rc == 0) rc = dlpi_src_download_size(s, io, part, &at, &head);
    if (rc != 0 || at.length == 0) return rc;
    return dlpi_src_download_to(s, io, part, &at, head.etag, fd);
}

DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path, int fd) {
    const dlp_s3_source *s = source;
    dlpi_src_worker *w = part->worker_state;
    dlp_s3_io *io = NULL;
    dlpi_src_get *q;
    int rc;
    DLPI_UNUSED(path);
    if (!dlpi_src_is_worker(part->internal, w) || w->source->d.s3 != s->d.s3) {
        rc = dlpi_src_download(s, &io, part, fd);
        dlp_s3_io_close(io);
        return rc;
    }
    q = dlpi_src_lend(w, true);
    rc = dlpi_src_download(s, &q->io, part, fd);
    dlpi_src_give(w, q);
    return rc;
}

static int dlpi_src_part_count(void *user, uint64_t part, uint64_t *items) {
    const dlp_s3_source *s = user;
    dlp_s3_entry e;
    int rc = dlp_s3_manifest_get(s->d.manifest, part, &e);
    if (rc == DLP_OK) *items = e.items;
    return rc;
}

/* ---- chunks ---- */

/* The rows of a chunk that are still to be asked for, in the order of the dataset. */
typedef struct dlpi_src_rows {
    const dlp_s3_source *s;
    dlp_chunk *c;
    uint8_t *to;
    uint64_t at, end;    /* dataset rows */
    uint32_t *place;     /* [chunk_rows] shuffled: where + 1, 0: not wanted; else NULL */
    dlp_s3_piece *piece; /* [2 * count] of shuffled ones */
    uint64_t n_pieces;   /* in use */
} dlpi_src_rows;

/* The entry that a row is in. */
static uint64_t dlpi_src_entry_of(const dlp_s3_source *s, uint64_t row) {
    uint64_t low = 0, high = dlp_s3_manifest_count(s->d.manifest);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (s->first_row[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Up to where may a request that begins with row at go? */
static uint64_t dlpi_src_rows_most(const dlpi_src_rows *x, uint64_t entry) {
    uint64_t most = x->s->d.joint_bytes / x->s->d.row_bytes, end = x->s->first_row[entry + 1];
    if (most == 0) most = 1;
    if (end > x->end) end = x->end;
    return end - x->at > most ? x->at + most : end;
}

/* A wanted row's piece, and one of what lies before it and is not wanted. */
static void dlpi_src_rows_piece(dlpi_src_rows *x, dlp_s3_request *r, uint64_t row, uint64_t gap) {
    uint64_t bytes = x->s->d.row_bytes;
    dlp_s3_piece *p = &x->piece[x->n_pieces];
    uint32_t n = 0;
    if (gap > 0) p[n++] = (dlp_s3_piece){NULL, gap * bytes};
    p[n++] = (dlp_s3_piece){x->to + (x->place[row - x->c->chunk_first] - 1u) * bytes, bytes};
    x->n_pieces += n;
    r->n_pieces += n;
    r->length += (gap + 1) * bytes;
}

static bool dlpi_src_rows_wants(const dlpi_src_rows *x, uint64_t row) {
    return x->place[row - x->c->chunk_first] != 0;
}

/* A request for wanted rows up to end, with gaps that are short enough. */
static void dlpi_src_rows_gather(dlpi_src_rows *x, dlp_s3_request *r, uint64_t end) {
    const dlp_s3_source *s = x->s;
    uint64_t gap = 0, bytes = s->d.row_bytes;
    uint64_t most = s->d.gap_bytes < 0 ? 0 : (uint64_t)s->d.gap_bytes / bytes;
    r->pieces = &x->piece[x->n_pieces];
    for (; x->at < end && gap <= most; x->at++) {
        if (!dlpi_src_rows_wants(x, x->at)) {
            gap++;
            continue;
        }
        dlpi_src_rows_piece(x, r, x->at, gap);
        gap = 0;
    }
}

/* Make the next request. Returns false: all were made. */
static bool dlpi_src_rows_next(dlpi_src_rows *x, dlp_s3_request *r) {
    const dlp_s3_source *s = x->s;
    uint64_t entry, end, bytes = s->d.row_bytes, first;
    dlp_s3_entry at = {"", 0, 0, 0};
    while (x->place && x->at < x->end && !dlpi_src_rows_wants(x, x->at)) x->at++;
    if (x->at == x->end) return false;
    entry = dlpi_src_entry_of(s, x->at);
    end = dlpi_src_rows_most(x, entry);
    (void)dlp_s3_manifest_get(s->d.manifest, entry, &at);
    first = (x->at - s->first_row[entry]) * bytes;
    at.offset = at.offset == DLP_S3_WHOLE ? first : at.offset + first;
    at.length = 0;
    dlpi_src_ask(s, r, &at, NULL, 0);
    if (x->place) {
        dlpi_src_rows_gather(x, r, end);
        return true;
    }
    r->length = r->capacity = (end - x->at) * bytes;
    r->body = x->to + (x->at - x->c->first) * bytes;
    x->at = end;
    return true;
}

static bool dlpi_src_rows_begin(dlpi_src_rows *x, const dlp_s3_source *s, dlp_chunk *c, void *to) {
    *x = (dlpi_src_rows){.s = s, .c = c, .to = to, .at = c->first, .end = c->first + c->count};
    if (!c->shuffled) return true;
    x->at = c->chunk_first;
    x->end = c->chunk_first + c->chunk_rows;
    x->place = calloc((size_t)c->chunk_rows, sizeof *x->place);
    x->piece = calloc((size_t)c->count, 2 * sizeof *x->piece);
    for (uint64_t k = 0; x->place && k < c->count; k++)
        x->place[dlp_chunk_row(c, k) - c->chunk_first] = (uint32_t)k + 1;
    return x->place != NULL && x->piece != NULL;
}

static void dlpi_src_rows_end(dlpi_src_rows *x) {
    free(x->place);
    free(x->piece);
}

static int dlpi_src_chunk_complain(const dlp_chunk *c, const dlp_s3_request *r) {
    char text[256];
    dlpi_src_words(r, text, sizeof text);
    return dlp_chunk_fail(c, r->error.errnum, "%s", text);
}

/* Requests of a chunk under way, with the I/O of the first record. */
typedef struct dlpi_src_crowd {
    dlpi_src_worker *w;
    dlpi_src_rows *rows;
    dlp_s3_io **io;
    dlpi_src_get *idle, *next; /* records without a request; one whose request found no room */
    int out;
} dlpi_src_crowd;

static int dlpi_src_crowd_send(dlpi_src_crowd *x) {
    for (int rc;;) {
        dlpi_src_get *q = x->next ? x->next : x->idle;
        if (q == NULL) return 0;
        if (x->next == NULL) {
            if (!dlpi_src_rows_next(x->rows, &q->request)) return 0;
            x->idle = q->next;
            q->request.user = q;
        }
        x->next = q;
        rc = dlp_s3_submit(*x->io, &q->request);
        if (rc == DLP_FULL && x->out > 0) return 0;
        if (rc != DLP_OK) {
            dlpi_src_broken(&q->request, rc);
            return dlpi_src_chunk_complain(x->rows->c, &q->request);
        }
        x->next = NULL;
        x->out++;
    }
}

/* Take back what is over. Returns 0, or failure. */
static int dlpi_src_crowd_reap(dlpi_src_crowd *x, int *looks) {
    const dlpi_load_call *call = x->rows->c->internal;
    dlp_s3_request *done[16];
    int n = dlp_s3_reap(*x->io, done, 16, DLPI_SRC_LOOK_MS), rc = 0;
    if (n < 0) return dlp_chunk_fail(x->rows->c, 0, "the client's I/O is broken, code %d", n);
    if (n == 0 && dlpi_src_given_up(call->w->p, looks))
        return dlp_chunk_fail(x->rows->c, 0, "given up, the pipe was stopped");
    for (int i = 0; i < n; i++) {
        dlpi_src_get *q = done[i]->user;
        x->out--;
        q->next = x->idle;
        x->idle = q;
        if (rc == 0 && done[i]->code != DLP_OK) rc = dlpi_src_chunk_complain(x->rows->c, done[i]);
    }
    return rc;
}

static int dlpi_src_rows_run(dlpi_src_worker *w, dlpi_src_rows *rows) {
    dlpi_src_get *lead = dlpi_src_lend(w, true), *q;
    dlpi_src_get *mine[DLPI_SRC_HAND_MOST];
    dlpi_src_crowd x = {w, rows, &lead->io, NULL, NULL, 0};
    int n = 0, looks = 0, rc = dlpi_src_io_ready(x.io, w->source, &lead->request.error);
    if (rc != DLP_OK) rc = dlp_chunk_fail(rows->c, 0, "%s", lead->request.error.message);
    for (q = lead; q != NULL; q = n < w->source->d.in_flight ? dlpi_src_lend(w, false) : NULL) {
        q->next = x.idle;
        x.idle = mine[n++] = q;
    }
    while (rc == 0) {
        rc = dlpi_src_crowd_send(&x);
        if (rc != 0 || x.out == 0) break;
        rc = dlpi_src_crowd_reap(&x, &looks);
    }
    if (rc != 0 && lead->io) dlpi_src_drop(&lead->io); /* with what is still out */
    while (n > 0) dlpi_src_give(w, mine[--n]);
    return rc;
}

DLPDEF int dlp_s3_chunk_read(dlp_s3_source *source, dlp_chunk *chunk, uint32_t field) {
    const dlpi_load_call *call = chunk->internal;
    dlpi_src_worker *w = chunk->worker_state;
    const dlpi_field *f;
    dlpi_src_rows rows;
    int rc;
    if (!dlpi_src_is_worker(call->w, w) || w->source->d.s3 != source->d.s3)
        return dlp_chunk_fail(chunk, 0,
                              "chunks out of objects want the workers that "
                              "dlp_s3_source_wire_chunks sets");
    if (field >= chunk->n_fields || source->first_row == NULL)
        return dlp_chunk_fail(chunk, 0, "there is no such field, or the source has no row_bytes");
    f = &call->w->p->items.at[field];
    if (f->row_bytes / (uint64_t)f->f.shape[0] != source->d.row_bytes)
        return dlp_chunk_fail(chunk, 0, "row_bytes is %llu, rows of field %s have another size",
                              (unsigned long long)source->d.row_bytes, f->name);
    if (chunk->chunk_first + chunk->chunk_rows >
        source->first_row[dlp_s3_manifest_count(source->d.manifest)])
        return dlp_chunk_fail(chunk, 0, "the objects end before row %llu",
                              (unsigned long long)(chunk->chunk_first + chunk->chunk_rows - 1));
    rc = dlpi_src_rows_begin(&rows, source, chunk, chunk->data[field])
             ? dlpi_src_rows_run(w, &rows)
             : dlp_chunk_fail(chunk, ENOMEM, "no memory for the order of %llu rows",
                              (unsigned long long)chunk->chunk_rows);
    dlpi_src_rows_end(&rows);
    return rc;
}

DLPDEF int dlp_s3_chunk_load(void *source, dlp_chunk *chunk) {
    return dlp_s3_chunk_read(source, chunk, 0);
}

/* ---- workers ---- */

static uint64_t dlpi_src_stride(const dlp_s3_source *s) { /* of a record's buffer */
    return s->capacity == 0 || s->d.direct ? 0 : dlpi_round_up(s->capacity, 64);
}

static int dlpi_src_mates(const dlp_s3_source *s) {
    int most = s->d.in_flight / 2 < DLPI_SRC_MATES_MOST ? s->d.in_flight / 2 : DLPI_SRC_MATES_MOST;
    return s->d.gap_bytes < 0 || most < 1 ? 1 : most;
}

static uint64_t dlpi_src_pieces(const dlp_s3_source *s) { /* of all records */
    return s->asked ? 2u * (uint64_t)dlpi_src_mates(s) * (uint64_t)s->d.in_flight : 0;
}

static void dlpi_src_worker_free(dlpi_src_worker *w) {
    if (w == NULL) return;
    for (int i = 0; w->get && i < w->source->d.in_flight; i++) dlp_s3_io_close(w->get[i].io);
    dlp_s3_io_close(w->io);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->room);
    DLPI_ADD_SEQ(&w->source->users, UINT32_MAX); /* SU1 -> SU1 */
    free(w->memory);
    free(w->pieces);
    free(w->get);
    free(w);
}

static dlpi_src_worker *dlpi_src_worker_new(dlp_s3_source *s) {
    size_t n = (size_t)s->d.in_flight, stride = (size_t)dlpi_src_stride(s);
    size_t buffers = (size_t)dlpi_times(n, stride); /* a manifest may say any length */
    size_t pieces = (size_t)dlpi_src_pieces(s);
    dlpi_src_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->source = s;
    w->mates_most = dlpi_src_mates(s);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, NULL);
    DLPI_ADD_SEQ(&s->users, 1u); /* SU1 -> SU1 */
    w->get = calloc(n, sizeof *w->get);
    if (pieces) w->pieces = calloc(pieces, sizeof *w->pieces);
    if (w->get == NULL || (pieces && w->pieces == NULL) ||
        (stride && posix_memalign(&w->memory, 64, buffers) != 0)) {
        dlpi_src_worker_free(w);
        return NULL;
    }
    for (size_t i = n; i-- > 0;) {
        dlpi_src_get *q = &w->get[i];
        if (stride) q->buffer = (uint8_t *)w->memory + i * stride;
        if (pieces) q->piece = w->pieces + i * (pieces / n);
        dlpi_src_give(w, q);
    }
    return w;
}

static int dlpi_src_worker_init(void *user, int worker, void **state) {
    dlp_s3_source *s = user;
    dlpi_src_worker *w = dlpi_src_worker_new(s);
    int rc = w ? 0 : ENOMEM;
    if (rc == 0 && s->asked) rc = dlp_s3_io_open(&w->io, s->d.s3, NULL);
    if (rc == 0 && s->d.worker_init) rc = s->d.worker_init(s->d.user, worker, &w->state);
    if (rc == 0)
        *state = w;
    else
        dlpi_src_worker_free(w);
    return rc;
}

static void dlpi_src_worker_exit(void *user, int worker, void *state) {
    dlp_s3_source *s = user;
    dlpi_src_worker *w = state;
    if (s->d.worker_exit) s->d.worker_exit(s->d.user, worker, w->state);
    dlpi_src_worker_free(w);
}

/* ---- open, wire, close ---- */

/* The first thing that is wrong with a desc, or NULL. */
static const char *dlpi_src_source_wrong(const dlp_s3_source_desc *d) {
    if (d->s3 == NULL) return "s3: required";
    if (d->bucket == NULL || d->bucket[0] == 0 || strlen(d->bucket) > 255)
        return "bucket: 1 to 255 bytes";
    if (dlp_s3_manifest_count(d->manifest) == 0) return "manifest: one entry at least";
    if (d->in_flight < 0 || d->in_flight > DLPI_SRC_HAND_MOST) return "in_flight: 0 to 1024";
    if (d->max_bytes > UINT64_C(1) << 40) return "max_bytes: up to 2^40";
    if (d->gap_bytes < DLP_NONE) return "gap_bytes: DLP_NONE, or 0 and more";
    if ((d->fields == NULL) != (d->n_fields == 0)) return "fields: none, or all of n_fields";
    if (d->fields && (d->direct || !d->decode) && dlpi_files_field_bytes(d->fields) == 0)
        return "fields[0]: a dtype of 8 to 64 bits, a shape of 1 and more";
    return NULL;
}

static void dlpi_src_lengths(dlp_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    s->known = true;
    for (uint64_t i = 0; i < m->n; i++) {
        if (m->length[i] > s->longest) s->longest = m->length[i];
        s->known = s->known && m->length[i] > 0;
    }
}

/* What is wrong with the room for items, or NULL. */
static const char *dlpi_src_room_wrong(dlp_s3_source *s) {
    const dlp_field *field = s->d.fields;
    if (field == NULL) return NULL;
    s->d.direct = s->d.direct || s->d.decode == NULL;
    if (s->d.direct) {
        s->ragged = field->ragged != 0;
        s->capacity = dlpi_files_field_bytes(field);
        s->unit = s->ragged ? s->capacity / (uint64_t)field->shape[0] : s->capacity;
        return NULL;
    }
    s->capacity = s->d.max_bytes ? s->d.max_bytes : s->known ? s->longest : 0;
    return s->capacity ? NULL : "max_bytes: required, as not all lengths are known";
}

/* Count the rows of all entries. What is wrong with them, or NULL. */
static const char *dlpi_src_rows_wrong(dlp_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    uint64_t rows = 0;
    if (s->d.row_bytes == 0) return NULL;
    if (!s->known) return "row_bytes: wants the length of every entry";
    s->first_row = calloc((size_t)m->n + 1, sizeof *s->first_row);
    if (s->first_row == NULL) return "no memory";
    for (uint64_t i = 0; i < m->n; i++) {
        if (m->length[i] % s->d.row_bytes != 0) return "row_bytes: an entry is not of whole rows";
        s->first_row[i] = rows;
        rows += m->length[i] / s->d.row_bytes;
    }
    s->first_row[m->n] = rows;
    return NULL;
}

DLPDEF int dlp_s3_source_open(dlp_s3_source **out, const dlp_s3_source_desc *desc,
                              dlp_s3_error *err) {
    const char *wrong;
    dlp_s3_source *s;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL || desc == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", out ? "desc" : "out");
    wrong = dlpi_src_source_wrong(desc);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    wrong = dlpi_s3_bucket_beyond(&desc->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, 0, "no memory for the source");
    s->d = *desc;
    dlpi_copy_text(s->bucket, sizeof s->bucket, desc->bucket);
    s->d.in_flight = desc->in_flight ? desc->in_flight : 16;
    s->d.gap_bytes = desc->gap_bytes ? desc->gap_bytes : 64 << 10;
    s->d.joint_bytes = desc->joint_bytes ? desc->joint_bytes : 8 << 20;
    dlpi_src_lengths(s);
    wrong = dlpi_src_room_wrong(s);
    if (wrong == NULL) wrong = dlpi_src_rows_wrong(s);
    if (wrong == NULL) {
        *out = s;
        return DLP_OK;
    }
    free(s->first_row);
    free(s);
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
}

/* tell: that the server is away. */
static int dlpi_src_tell(void *user, char *buf, size_t size) {
    const dlp_s3_source *s = (const dlp_s3_source *)user;
    uint64_t away_ns = dlpi_s3_away_for(&s->d.s3->common->shared, dlpi_s3_now_ns());
    if (away_ns < DLPI_S3_AWAY_NS) return 0;
    return snprintf(buf, size,
                    "no answer from the S3 server of bucket '%s' for %.1f s; requests "
                    "wait, and are sent again, for up to request_timeout_ms (%d ms)",
                    s->bucket, (double)away_ns / 1e9, (int)s->d.s3->desc.request_timeout_ms);
}

static void dlpi_src_wire_workers(dlp_s3_source *s, dlp_workers_desc *workers) {
    workers->worker_init = dlpi_src_worker_init;
    workers->worker_exit = dlpi_src_worker_exit;
    workers->worker_user = s;
    workers->tell = dlpi_src_tell;
}

DLPDEF void dlp_s3_source_wire(dlp_s3_source *s, dlp_dataset *dataset, dlp_workers_desc *workers) {
    dataset->n_items = dlp_s3_manifest_count(s->d.manifest);
    dataset->fields = s->d.fields;
    dataset->n_fields = s->d.n_fields;
    if (s->d.direct && s->d.n_fields == 1) dataset->fills_rows = 1;
    dataset->fetch = dlpi_src_fetch;
    dataset->user = s;
    dlpi_src_wire_workers(s, workers);
}

DLPDEF dlp_async dlp_s3_source_async(dlp_s3_source *s) {
    dlp_async async = {dlpi_src_submit_item, dlpi_src_reap_items};
    s->asked = 1;
    return async;
}

DLPDEF void dlp_s3_source_wire_parts(dlp_s3_source *s, dlp_part_desc *parts) {
    parts->n_parts = dlp_s3_manifest_count(s->d.manifest);
    if (parts->items == NULL && parts->count == NULL) parts->count = dlpi_src_part_count;
    if (parts->max_part_bytes == 0) parts->max_part_bytes = s->longest;
    parts->manifest_id = dlp_s3_manifest_id(s->d.manifest);
    parts->load = dlp_s3_part_load;
    parts->user = s;
    dlpi_src_wire_workers(s, &parts->workers);
}

DLPDEF void dlp_s3_source_wire_chunks(dlp_s3_source *s, dlp_chunks_desc *chunks) {
    if (s->first_row) chunks->n_items = s->first_row[dlp_s3_manifest_count(s->d.manifest)];
    chunks->load = dlp_s3_chunk_load;
    chunks->user = s;
    dlpi_src_wire_workers(s, &chunks->workers);
}

DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_s3_source *s) {
    uint64_t each = dlpi_sum(sizeof(dlpi_src_get), dlpi_src_stride(s));
    uint64_t pieces = dlpi_times(dlpi_src_pieces(s), sizeof(dlp_s3_piece));
    return dlpi_sum(sizeof(dlpi_src_worker) + pieces, dlpi_times((uint64_t)s->d.in_flight, each));
}

DLPDEF int dlp_s3_source_close(dlp_s3_source *s) {
    if (s == NULL) return DLP_OK;
    if (DLPI_LOAD_SEQ(&s->users) != 0) return DLP_ERR_BUSY; /* SU1 <- SU1 */
    free(s->first_row);
    free(s);
    return DLP_OK;
}
#endif /* DLPIPE_IMPLEMENTATION_DONE */
