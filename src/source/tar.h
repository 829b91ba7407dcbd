/* needs: tar */
#pragma once
/* tests: system/source/tar */
#include "api/tar.h"
#include "source/foreign.h"
#include "source/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-tar       MEMBERS OF A TAR
   Only this file reads numbers out of the bytes of a shard. All sizes and places are compared with
   the length of the shard before they are used. The shard lies in memory, or its headers alone are
   read from a file. */

enum {
    DLPI_TAR_BLOCK = 512,
    DLPI_TAR_NAME = 4096,              /* bytes of a name, its end included */
    DLPI_TAR_PAX = 64 << 10,           /* bytes of a pax header, at most */
    DLPI_TAR_MEMBERS = 256,            /* members of a sample, at most */
    DLPI_TAR_TEXT = 2 * DLPI_TAR_NAME, /* the key of a sample and its extensions */
    DLPI_TAR_GAP = 4 << 20 /* zeros between two archives, at most; more are data that are missing */
};

typedef struct dlpi_tar {
    const uint8_t *bytes;    /* the shard in memory; NULL: headers are read from `file` */
    uint8_t *room;           /* [DLPI_TAR_PAX] memory for a header that is read */
    uint64_t size;           /* bytes of the shard, or of a part of it */
    const dlpi_mapped *file; /* the file, if `bytes` is NULL */
    const dlp_tar_desc *d;   /* the fields that members are for */
    bool extent;             /* it is a part of a shard: it ends with its last member */
    /* Byte of the next header; byte at which the shard is wrong, if code is not 0. */
    uint64_t at, wrong_at;
    uint64_t gap; /* bytes of zeros in front of the header that was read last */
    int code, errnum;
    char why[160];
    char note[160]; /* what is doubtful, but no error; "": nothing is */
} dlpi_tar;

/* A member that is a regular file. */
typedef struct dlpi_tar_entry {
    uint64_t begins;      /* byte of the first header of this member */
    uint64_t link;        /* byte of the first link in front of it that was left out; else begins */
    uint64_t data, bytes; /* first byte of the member's data; number of its bytes */
    bool other;           /* another archive than that of the member before */
    size_t key; /* length of the key, the first part of name; behind it a dot and the extension */
    char name[DLPI_TAR_NAME];
} dlpi_tar_entry;

/* A header, as far as it matters. */
typedef struct dlpi_tar_head {
    uint64_t size;
    char type;
    char name[DLPI_TAR_BLOCK];
} dlpi_tar_head;

/* Note in t what is wrong at a byte. Returns -1. */
DLPI_COLD DLPI_PRINTF(4, 5) static int dlpi_tar_wrong(dlpi_tar *t, int code, uint64_t at,
                                                      const char *format, ...) {
    DLPI_PRINT(t->why, sizeof t->why, format);
    t->code = code;
    t->wrong_at = at;
    return -1;
}

/* Return n bytes from byte `at` on, which stay until the next call, or NULL if they are not there.
   what: their name for the error, which is noted in t. */
static const uint8_t *dlpi_tar_bytes(dlpi_tar *t, uint64_t at, uint64_t n, const char *what) {
    int64_t got;
    if (at > t->size || n > t->size - at) {
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->size, "it was cut: it ends in %s; copy it again",
                       what);
        return NULL;
    }
    if (t->bytes != NULL || t->file == NULL) return t->bytes + at;
    got = dlpi_mapped_pread(t->file, at, n, t->room);
    if (got == (int64_t)n) return t->room;
    t->errnum = got < 0 ? (int)-got : 0;
    dlpi_tar_wrong(t, got < 0 ? DLP_ERR_SYSTEM : DLP_ERR_CORRUPT, at, "%s",
                   got < 0 ? strerror(t->errnum) : "it was cut while it was read");
    return NULL;
}

/* ---- a header ---- */

/* Read a number of n bytes into *to: octal digits, with blanks before and a blank or 0 behind, or,
   if the first bit is set, base 256. Returns false if it is none. */
static bool dlpi_tar_number(const uint8_t *text, int n, uint64_t *to) {
    uint64_t value = 0;
    int i = 0;
    if (text[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (value >> 55 != 0) return false;
            value = value << 8 | text[i];
        }
        *to = value;
        return true;
    }
    while (i < n && text[i] == ' ') i++;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++) value = value * 8 + (text[i] - '0');
    *to = value;
    return i == n || text[i] == 0 || text[i] == ' ';
}

/* Return the sum of the bytes of the block h. It is taken in lanes of 16 bits, and a lane has 64
   bytes, so that none overflows, nor does the sum of two lanes. */
static uint32_t dlpi_tar_bytes_sum(const uint8_t *h) {
    typedef uint16_t lanes DLPI_VECTOR(16);
    const uint64_t low = UINT64_C(0x0000ffff0000ffff);
    lanes sums = {0}, some;
    uint64_t half[2], sum;
    for (int i = 0; i < DLPI_TAR_BLOCK; i += (int)sizeof some) {
        memcpy(&some, h + i, sizeof some);
        sums += (some & 255) + (some >> 8);
    }
    memcpy(half, &sums, sizeof half);
    sum = half[0] + half[1];
    sum = (sum & low) + (sum >> 16 & low);
    return (uint32_t)(sum + (sum >> 32));
}

/* True if the sum of the header h is right. Its own 8 bytes count as blanks. Old programs took
   bytes as signed: 256 less for each above 127. */
static bool dlpi_tar_sum(const uint8_t *h) {
    const uint64_t low = UINT64_C(0x00ff00ff00ff00ff);
    uint32_t sum = 8 * ' ' + dlpi_tar_bytes_sum(h), high = 0;
    uint64_t own, want;
    memcpy(&own, h + 148, sizeof own);
    own = (own & low) + (own >> 8 & low); /* 4 sums of 2 bytes, which are then added */
    sum -= (uint32_t)(own * UINT64_C(0x0001000100010001) >> 48);
    if (!dlpi_tar_number(h + 148, 8, &want)) return false;
    if (want == sum) return true;
    for (int i = 0; i < DLPI_TAR_BLOCK; i++) high += (i < 148 || i >= 156) && h[i] > 127;
    return (int64_t)want == (int64_t)sum - 256 * (int64_t)high;
}

/* Refuse a shard whose first bytes are no header. Returns 0, or -1 with the reason noted in t. */
DLPI_COLD static int dlpi_tar_foreign(dlpi_tar *t) {
    static const uint8_t zeros[DLPI_TAR_BLOCK];
    dlpi_looked l = {.size = t->size, .takes = DLPI_TAKES_TAR};
    dlpi_foreign f;
    l.n = t->size < DLPI_TAR_BLOCK ? t->size : DLPI_TAR_BLOCK;
    if ((l.head = dlpi_tar_bytes(t, 0, l.n, "a header")) == NULL) return -1;
    if (l.n == DLPI_TAR_BLOCK && (memcmp(l.head, zeros, sizeof zeros) == 0 || dlpi_tar_sum(l.head)))
        return 0;
    if (t->size >= DLPI_FOREIGN_END) {
        l.head = dlpi_tar_bytes(t, t->size - DLPI_FOREIGN_END, DLPI_FOREIGN_END, "its end");
        if (l.head == NULL) return -1;
        memcpy(l.end, l.head, sizeof l.end);
    }
    l.n = t->size < DLPI_TAR_PAX ? t->size : DLPI_TAR_PAX;
    if ((l.head = dlpi_tar_bytes(t, 0, l.n, "a header")) == NULL) return -1;
    f = dlpi_foreign_of(&l);
    if (f.name != NULL)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, 0, "is %s; it must be a tar. %s", f.name, f.cure);
    if (t->size < DLPI_TAR_BLOCK) return 0; /* it was cut, as its first header finds */
    return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, 0,
                          "is no tar: the sum of its first header is wrong; check the path");
}

/* Move *at, the byte of a block, to the next block that is not all zeros, or to the end of the
   shard. Returns false with the reason noted in t. */
DLPI_COLD static bool dlpi_tar_zeros(dlpi_tar *t, uint64_t *at) {
    static const uint8_t nothing[DLPI_TAR_BLOCK];
    uint64_t i = *at;
    while (i < t->size) {
        uint64_t n, zeros = 0;
        const uint8_t *b;
        if (t->bytes == NULL) i = dlpi_mapped_data(t->file, i, t->size);
        n = t->size - i < DLPI_TAR_PAX ? t->size - i : DLPI_TAR_PAX;
        if ((b = dlpi_tar_bytes(t, i, n, "zeros")) == NULL) return false;
        while (n - zeros >= sizeof nothing && memcmp(b + zeros, nothing, sizeof nothing) == 0)
            zeros += sizeof nothing;
        while (zeros < n && b[zeros] == 0) zeros++;
        i += zeros;
        if (zeros < n) break;
    }
    *at = i < t->size ? i - (i - *at) % DLPI_TAR_BLOCK : t->size;
    return true;
}

/* Look for a header behind the zeros at t->at: of another archive, or behind a lone block. Returns
   the header, with t->gap set and t->at moved to it; NULL at the end of the shard, or with the
   reason noted in t. */
DLPI_COLD static const uint8_t *dlpi_tar_behind(dlpi_tar *t) {
    const uint64_t zeros = t->at;
    uint64_t at = zeros;
    const uint8_t *h = NULL;
    if (!dlpi_tar_zeros(t, &at) || at == t->size) return NULL;
    if (t->size - at >= DLPI_TAR_BLOCK) {
        h = dlpi_tar_bytes(t, at, DLPI_TAR_BLOCK, "a header");
        if (h == NULL) return NULL;
        if (!dlpi_tar_sum(h)) h = NULL;
    }
    if (h == NULL && !t->d->insist)
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, at,
                       "no header, behind the end of the archive at byte %" PRIu64
                       "; remove what is behind it, or set insist = 1",
                       zeros);
    if (h != NULL && at - zeros > DLPI_TAR_GAP && !t->d->insist) {
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, zeros,
                       "zeros up to byte %" PRIu64 ", where members follow; copy the shard again",
                       at);
        h = NULL;
    }
    if (h == NULL) return NULL;
    t->gap = at - zeros;
    t->at = at;
    return h;
}

/* Read the header at t->at, or behind the zeros there. Returns 1; 0 at the end of the shard; -1
   with the reason noted in t. */
static int dlpi_tar_header(dlpi_tar *t, dlpi_tar_head *to) {
    static const uint8_t zeros[DLPI_TAR_BLOCK];
    const uint8_t *h;
    size_t n = 0;
    t->gap = 0;
    if (t->extent && t->at == t->size) return 0;
    h = dlpi_tar_bytes(t, t->at, DLPI_TAR_BLOCK,
                       t->at == t->size ? "no block of zeros" : "a header");
    if (h == NULL) return -1;
    if (memcmp(h, zeros, sizeof zeros) == 0 && (h = dlpi_tar_behind(t)) == NULL)
        return t->code != 0 ? -1 : 0;
    if (!dlpi_tar_sum(h))
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at,
                              "the sum of this header is wrong; copy it again, or remove its "
                              ".dlpidx");
    to->type = (char)h[156];
    if (!dlpi_tar_number(h + 124, 12, &to->size))
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "the size in this header is no number");
    if (memcmp(h + 257,
               "ustar\0"
               "00",
               8) == 0 &&
        h[345] != 0) { /* a prefix; not of GNU's */
        n = dlpi_string_length((const char *)h + 345, 155);
        memcpy(to->name, h + 345, n);
        to->name[n++] = '/';
    }
    memcpy(to->name + n, h, 100);
    to->name[n + 100] = 0;
    return 1;
}

/* Move t->at behind the data of a member of `size` bytes. Returns false if they are not there. */
static bool dlpi_tar_skip(dlpi_tar *t, uint64_t size, const char *name) {
    const uint64_t data = t->at + DLPI_TAR_BLOCK, rest = t->size - data;
    if (size > rest) {
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->size,
                       "it was cut: %.60s has %" PRIu64 " bytes, %" PRIu64 " are there", name, size,
                       rest);
        return false;
    }
    size += (DLPI_TAR_BLOCK - size % DLPI_TAR_BLOCK) % DLPI_TAR_BLOCK;
    t->at = data + size; /* at most a block behind the end, which the next header finds */
    return true;
}

/* ---- pax and GNU headers, which give the name and size of the next member ---- */

typedef struct dlpi_tar_next {
    bool name, size; /* such a header gave the name; gave the size */
    uint64_t bytes;  /* the size */
} dlpi_tar_next;

static int dlpi_tar_bad_pax(dlpi_tar *t, const char *what) {
    return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "the pax header here: %s", what);
}

/* Take a name of n bytes for the next member. Returns 0, or -1 with the reason noted in t. */
static int dlpi_tar_long_name(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e,
                              const uint8_t *text, uint64_t n) {
    if (n == 0 || n >= DLPI_TAR_NAME || memchr(text, 0, (size_t)n) != NULL)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at,
                              "a name here has no byte, a 0, or more "
                              "than %d bytes",
                              DLPI_TAR_NAME - 1);
    memcpy(e->name, text, (size_t)n);
    e->name[n] = 0;
    next->name = true;
    return 0;
}

/* Take a pax record "key=value" of n bytes. global: it holds for all members. Returns 0, or -1 with
   the reason noted in t. */
static int dlpi_tar_pax_record(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e,
                               const uint8_t *key, uint64_t n, bool global) {
    const uint8_t *equals = memchr(key, '=', (size_t)n), *value;
    uint64_t key_bytes;
    if (equals == NULL) return dlpi_tar_bad_pax(t, "a record without =");
    key_bytes = (uint64_t)(equals - key);
    value = equals + 1;
    n -= key_bytes + 1;
    if (key_bytes > 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at,
                              "a sparse file; make the shard without --sparse");
    if (key_bytes != 4 || (memcmp(key, "path", 4) != 0 && memcmp(key, "size", 4) != 0)) return 0;
    if (global) return dlpi_tar_bad_pax(t, "a path or size for all members");
    if (key[0] == 'p') return dlpi_tar_long_name(t, next, e, value, n);
    next->bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || next->bytes > UINT64_MAX / 20)
            return dlpi_tar_bad_pax(t, "a size that is no number");
        next->bytes = next->bytes * 10 + (value[i] - '0');
    }
    next->size = n > 0;
    return 0;
}

/* Take all records of a pax header: "LENGTH key=value\n". Returns 0, or -1 with the reason in t. */
static int dlpi_tar_pax(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e, const uint8_t *text,
                        uint64_t n, bool global) {
    while (n > 0) {
        uint64_t length = 0, i = 0;
        for (; i < n && i < 8 && text[i] >= '0' && text[i] <= '9'; i++)
            length = length * 10 + (text[i] - '0');
        if (i == 0 || i >= n || text[i] != ' ' || length > n || length < i + 3 ||
            text[length - 1] != '\n')
            return dlpi_tar_bad_pax(t, "a record of a wrong length");
        i++;
        if (dlpi_tar_pax_record(t, next, e, text + i, length - i - 1, global) != 0) return -1;
        text += length;
        n -= length;
    }
    return 0;
}

/* True if a header of this type is about other members. */
static inline bool dlpi_tar_extends(char type) {
    return type == 'x' || type == 'g' || type == 'L' || type == 'K';
}

/* Take a header that is about other members. Returns 1, or -1 with the reason noted in t. */
DLPI_COLD static int dlpi_tar_extended(dlpi_tar *t, const dlpi_tar_head *h, dlpi_tar_next *next,
                                       dlpi_tar_entry *e) {
    const uint64_t most = h->type == 'L' || h->type == 'K' ? DLPI_TAR_NAME : DLPI_TAR_PAX;
    const uint8_t *text;
    uint64_t n = h->size;
    int rc = 0;
    if (n > most)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at, "a header of %" PRIu64 " bytes", n);
    if ((text = dlpi_tar_bytes(t, t->at + DLPI_TAR_BLOCK, n, "a pax header or a long name")) ==
        NULL)
        return -1;
    while (h->type == 'L' && n > 0 && text[n - 1] == 0) n--;
    if (h->type == 'L') rc = dlpi_tar_long_name(t, next, e, text, n);
    if (h->type == 'x' || h->type == 'g') rc = dlpi_tar_pax(t, next, e, text, n, h->type == 'g');
    return rc == 0 && dlpi_tar_skip(t, h->size, "a header") ? 1 : -1;
}

/* ---- members ---- */

/* True if a name is not of a sample. It lies in a directory that an operating system or a tar
   program has made, or is __NAME__, by which WebDataset describes the shard. base: the last part of
   the name, with its first dot at `dot`. */
DLPI_NOINLINE static bool dlpi_tar_meta(const char *name, const char *base, const char *dot) {
    if (dot - base > 4 && memcmp(base, "__", 2) == 0 && memcmp(dot - 2, "__", 2) == 0) return true;
    for (const char *end; name < base; name = end + 1) {
        end = strchr(name, '/');
        if (dlpi_foreign_directory(name, (size_t)(end - name), true)) return true;
    }
    return false;
}

/* Set e->key, which parts the name into key and extension. Returns false if the name has none. */
static bool dlpi_tar_key(dlpi_tar_entry *e) {
    const char *slash = strrchr(e->name, '/'), *base = slash != NULL ? slash + 1 : e->name;
    const char *dot = strchr(base, '.');
    if (dot == NULL || dot == base || dlpi_tar_meta(e->name, base, dot)) return false;
    e->key = (size_t)(dot - e->name);
    return true;
}

/* Return a name without ./ or / in front, by which programs differ. */
static const char *dlpi_tar_bare(const char *name) {
    while (name[0] == '/' || (name[0] == '.' && name[1] == '/')) name += name[0] == '/' ? 1 : 2;
    return name;
}

/* Return the bytes of a member's key without what is in front of the bare name. */
static size_t dlpi_tar_key_bytes(const dlpi_tar_entry *e, const char *bare) {
    return e->key - (size_t)(bare - e->name);
}

/* Compare the keys of two members, as strcmp compares texts. */
static int dlpi_tar_compare(const dlpi_tar_entry *a, const dlpi_tar_entry *b) {
    const char *x = dlpi_tar_bare(a->name), *y = dlpi_tar_bare(b->name);
    const size_t n = dlpi_tar_key_bytes(a, x), m = dlpi_tar_key_bytes(b, y);
    const int rc = memcmp(x, y, n < m ? n : m);
    return rc != 0 ? rc : (n > m) - (n < m);
}

/* True if a list of extensions, with a blank between two, has this one. */
static bool dlpi_tar_listed(const char *list, const char *extension) {
    const size_t n = strlen(extension);
    for (size_t k; *list != 0; list += k + (list[k] == ' ')) {
        k = strcspn(list, " ");
        if (k == n && dlpi_string_alike(list, extension, n)) return true;
    }
    return false;
}

/* True if a member with this extension belongs to a field, or may be read by a decode. */
static bool dlpi_tar_wanted(const dlp_tar_desc *d, const char *extension) {
    if (d->decode != NULL) return true;
    for (uint32_t i = 0; i < d->n_fields; i++)
        if (dlpi_tar_listed(d->extensions != NULL ? d->extensions[i] : d->fields[i].name,
                            extension))
            return true;
    return false;
}

/* Note that a member, which a field wants, is no file. Returns -1. */
DLPI_COLD static int dlpi_tar_no_file(dlpi_tar *t, const dlpi_tar_entry *e, char type) {
    return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, e->begins, "%.60s is %s", e->name,
                          type == '1'   ? "a hard link, without bytes; make the shard with "
                                          "--hard-dereference"
                          : type == '2' ? "a symbolic link; make the shard with --dereference "
                                          "--hard-dereference"
                                        : "a device or a pipe, no file; leave it out");
}

/* Return 1 if a member of this type is left out; 0 if it is a file; -1 with the reason noted in t.
   *has_data: its size says how many bytes follow. */
static int dlpi_tar_left_out(dlpi_tar *t, char type, bool *has_data) {
    *has_data = type == 'D' || type == 'V';
    if (type == '0' || type == 0 || type == '7') return 0;
    if ((type >= '1' && type <= '6') || *has_data) return 1;
    if (type == 'S')
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at,
                              "a sparse file; make the shard without --sparse");
    return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at, "a member of type %d%s", type,
                          type == 'M' ? ", which began in another volume" : ", which is not known");
}

/* Go to the next file that has a key, and describe it in *e. Returns 1; 0 at the end of the shard;
   -1 with the reason noted in t. */
DLPI_NOINLINE static int dlpi_tar_file(dlpi_tar *t, dlpi_tar_entry *e) {
    dlpi_tar_next next = {false, false, 0};
    dlpi_tar_head h; /* a header that was read has filled it */
    uint64_t gap = 0;
    e->begins = t->at;
    e->link = UINT64_MAX;
    for (;;) {
        bool has_data;
        int rc = dlpi_tar_header(t, &h);
        if (rc >= 0 && (rc == 0 || t->gap > 0) && (next.name || next.size))
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "the shard ends behind a pax header");
        if (rc != 1) return rc;
        if (t->gap > 0) e->begins = t->at;
        gap += t->gap;
        if (dlpi_tar_extends(h.type)) {
            if (dlpi_tar_extended(t, &h, &next, e) < 0) return -1;
            continue;
        }
        if ((rc = dlpi_tar_left_out(t, h.type, &has_data)) < 0) return rc;
        if (!next.name) memcpy(e->name, h.name, sizeof h.name);
        e->data = t->at + DLPI_TAR_BLOCK;
        e->bytes = rc == 1 && !has_data ? 0 : next.size ? next.bytes : h.size;
        if (!dlpi_tar_skip(t, e->bytes, e->name)) return -1;
        e->other = gap > DLPI_TAR_BLOCK;
        if (rc == 0 && dlpi_tar_key(e)) {
            if (e->link > e->begins) e->link = e->begins;
            return 1;
        }
        if (rc == 1 && h.type >= '1' && h.type <= '6' && h.type != '5' && dlpi_tar_key(e)) {
            if (!t->d->insist && dlpi_tar_wanted(t->d, e->name + e->key + 1))
                return dlpi_tar_no_file(t, e, h.type);
            if (e->link > e->begins) e->link = e->begins;
        }
        next = (dlpi_tar_next){false, false, 0};
        e->begins = t->at;
    }
}

/* ---- samples ---- */

/* A sample that was found, as the search for keys that come again needs it. */
typedef struct dlpi_tar_seen {
    uint64_t key, members; /* hash of the key; sum of the hashes of the members' extensions */
    uint64_t at;           /* byte of the sample */
} dlpi_tar_seen;

typedef struct dlpi_tar_keys {
    dlpi_tar_seen *seen; /* [room] owned */
    uint64_t n, room;
    bool unsorted; /* a key is not above the key before it, so a key may come again */
} dlpi_tar_keys;

/* Return a hash of n bytes of text, which need not end in a zero. */
static uint64_t dlpi_tar_hash(const char *text, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, text + i, n - i < 8 ? n - i : 8);
        h = dlp_hash(h, word, i, 0);
    }
    return h;
}

/* Append a sample that begins with the member e. Returns 0, or -1 with the reason noted in t. */
DLPI_COLD static int dlpi_tar_keys_add(dlpi_tar *t, dlpi_tar_keys *k, const dlpi_tar_entry *e) {
    const char *bare = dlpi_tar_bare(e->name);
    dlpi_tar_seen *more = dlpi_room_for(k->seen, k->n, &k->room, sizeof *more);
    t->errnum = more == NULL ? ENOMEM : 0;
    if (more == NULL) return dlpi_tar_wrong(t, DLP_ERR_MEMORY, e->begins, "no memory"), -1;
    k->seen = more;
    k->seen[k->n++] =
        (dlpi_tar_seen){dlpi_tar_hash(bare, dlpi_tar_key_bytes(e, bare)), 0, e->begins};
    return 0;
}

static int dlpi_tar_by_key(const void *a, const void *b) {
    const dlpi_tar_seen *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Judge two samples whose keys have one hash. If their members differ, they are parts of one sample
   that is not in one place. Returns 0, or -1 with the reason noted in t. */
DLPI_COLD static int dlpi_tar_twice(dlpi_tar *t, const dlpi_tar_seen *first,
                                    const dlpi_tar_seen *second) {
    dlpi_tar_entry a, b;
    t->at = first->at;
    if (dlpi_tar_file(t, &a) != 1) return -1;
    t->at = second->at;
    if (dlpi_tar_file(t, &b) != 1) return -1;
    if (dlpi_tar_compare(&a, &b) != 0) return 0;
    if (first->members != second->members)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, second->at,
                              "%.50s has members at byte %" PRIu64
                              " too; they must lie together. Sort the shard by name",
                              (b.name[b.key] = 0, b.name), first->at);
    if (t->note[0] == 0)
        snprintf(t->note, sizeof t->note,
                 "byte %" PRIu64
                 ": the key %.50s comes again; it is 2 samples. insist = 1 takes it",
                 second->at, (b.name[b.key] = 0, b.name));
    return 0;
}

/* Look for keys that come again. Returns 0, or -1 with the reason noted in t. */
DLPI_COLD static int dlpi_tar_again(dlpi_tar *t, dlpi_tar_keys *k) {
    const uint64_t at = t->at;
    qsort(k->seen, (size_t)k->n, sizeof *k->seen, dlpi_tar_by_key);
    for (uint64_t i = 1; i < k->n; i++)
        if (k->seen[i].key == k->seen[i - 1].key &&
            dlpi_tar_twice(t, &k->seen[i - 1], &k->seen[i]) != 0)
            return -1;
    t->at = at;
    return 0;
}

/* Go through all members; add and to as in dlpi_tar_samples. Returns 0, or -1 with the reason noted
   in t. */
DLPI_COLD static int dlpi_tar_walk(dlpi_tar *t, dlpi_tar_keys *k,
                                   bool (*add)(void *to, uint64_t at), void *to) {
    dlpi_tar_entry pair[2];
    int rc, p = 0;
    while ((rc = dlpi_tar_file(t, &pair[p])) == 1) {
        const dlpi_tar_entry *e = &pair[p], *before = &pair[1 - p];
        const int order = k->seen != NULL ? dlpi_tar_compare(e, before) : 1;
        const char *extension = e->name + e->key + 1;
        if (order != 0 || e->other) {
            k->unsorted = k->unsorted || order <= 0;
            if (dlpi_tar_keys_add(t, k, e) != 0) return -1;
            /* Another open may want a link that this one leaves out: each lies in some sample. */
            if (!add(to, k->n == 1 ? e->link : e->begins))
                return dlpi_tar_wrong(t, DLP_ERR_MEMORY, e->begins, "no room for more samples");
        }
        k->seen[k->n - 1].members += dlpi_tar_hash(extension, strlen(extension));
        p = 1 - p;
    }
    return rc;
}

/* Find where samples begin. add: is given the place of each sample, and of the end; returns false
   to stop. Returns 0, or -1 with the reason noted in t. */
static int dlpi_tar_samples(dlpi_tar *t, bool (*add)(void *to, uint64_t at), void *to) {
    dlpi_tar_keys k = {NULL, 0, 0, false};
    int rc = dlpi_tar_foreign(t);
    if (rc == 0) rc = dlpi_tar_walk(t, &k, add, to);
    if (rc == 0 && k.unsorted && !t->d->insist) rc = dlpi_tar_again(t, &k);
    free(k.seen);
    if (rc == 0 && !add(to, t->at))
        return dlpi_tar_wrong(t, DLP_ERR_MEMORY, t->at, "no room for more samples");
    return rc;
}

typedef struct dlpi_tar_sample {
    dlp_tar_sample s;
    dlp_tar_member members[DLPI_TAR_MEMBERS];
    char text[DLPI_TAR_TEXT];
    size_t used; /* bytes of text */
} dlpi_tar_sample;

/* Copy a text of n bytes into the sample's memory. Returns the copy; NULL if there is no room. */
static const char *dlpi_tar_keep(dlpi_tar_sample *s, const char *text, size_t n) {
    char *to = s->text + s->used;
    if (n >= sizeof s->text - s->used) return NULL;
    memcpy(to, text, n);
    to[n] = 0;
    s->used += n + 1;
    return to;
}

/* Return the member of a sample with this extension of n bytes, or NULL. Case does not count. */
DLPI_NOINLINE static const dlp_tar_member *dlpi_tar_find(const dlp_tar_sample *s,
                                                         const char *extension, size_t n) {
    for (uint32_t i = 0; i < s->n_members; i++)
        if (dlpi_string_alike(s->members[i].extension, extension, n) &&
            s->members[i].extension[n] == 0)
            return &s->members[i];
    return NULL;
}

/* True if a member has this key. */
static bool dlpi_tar_same(const char *key, const dlpi_tar_entry *e) {
    const char *bare = dlpi_tar_bare(e->name);
    const size_t n = dlpi_tar_key_bytes(e, bare);
    key = dlpi_tar_bare(key);
    return strncmp(key, bare, n) == 0 && key[n] == 0;
}

/* Read the one sample that t has, in memory. Returns 0, or -1 with the reason noted in t. */
static int dlpi_tar_sample_read(dlpi_tar *t, dlpi_tar_sample *to) {
    dlpi_tar_entry e;
    int rc;
    to->s = (dlp_tar_sample){NULL, to->members, 0, 0};
    to->used = 0;
    while ((rc = dlpi_tar_file(t, &e)) == 1) {
        const char *extension = e.name + e.key + 1;
        dlp_tar_member *m = &to->members[to->s.n_members];
        if (to->s.key == NULL && (to->s.key = dlpi_tar_keep(to, e.name, e.key)) == NULL) break;
        if (!dlpi_tar_same(to->s.key, &e))
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, e.begins,
                                  "the index does not fit; remove its .dlpidx");
        if (to->s.n_members == DLPI_TAR_MEMBERS)
            return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, e.begins, "more than %d members of %.80s",
                                  DLPI_TAR_MEMBERS, to->s.key);
        if (dlpi_tar_find(&to->s, extension, strlen(extension)) != NULL)
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, e.begins, "a second member %.120s", e.name);
        m->extension = dlpi_tar_keep(to, extension, strlen(extension));
        if (m->extension == NULL) break;
        m->data = t->bytes + e.data;
        m->bytes = e.bytes;
        to->s.n_members++;
    }
    if (rc == 1)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, e.begins,
                              "the names of a sample have more "
                              "than %d bytes",
                              DLPI_TAR_TEXT);
    if (rc == 0 && to->s.key == NULL)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, 0, "the index does not fit; remove its .dlpidx");
    return rc;
}
