#pragma once
/* tests: system/s3/s3_list, fuzz/fuzz_s3 */
#include "api/s3_list.h"
#include "s3/records.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-list         PAGES
   A page is parsed once, into a run of records for its objects and one for its common prefixes,
   which servers write one after the other. The runs are decoded and checked, then merged into a
   block in the order of the keys. Nothing of a page that is bad in one place is given out. */

#define DLPI_S3_TOKEN 2048
#define DLPI_S3_LIST_TEXT 1024                   /* bytes of a prefix, delimiter, start_after */
#define DLPI_S3_KEY_TEXT (3 * DLPI_S3_LIST_TEXT) /* bytes of an escaped key */

/* A key, to compare others with. bytes 0: none. */
typedef struct dlpi_s3_key {
    size_t bytes;
    char at[DLPI_S3_KEY_TEXT + 1];
} dlpi_s3_key;

/* The head of a record; its key and its ETag follow, each terminated, up to a multiple of 8. */
typedef struct dlpi_s3_record {
    uint64_t bytes;
    int64_t modified_s;
    uint32_t key_bytes;
    uint16_t etag_bytes;
    uint16_t is_prefix;
} dlpi_s3_record;

/* Records, end to end. */
typedef struct dlpi_s3_run {
    char *at;
    size_t n, size;
} dlpi_s3_run;

/* Records in order that wait to be given out. */
typedef struct dlpi_s3_block {
    struct dlpi_s3_block *next;
    size_t n, at,
        given;     /* bytes of records; where the next one begins, and the last that was given */
    uint64_t keys; /* number of records */
    char records[];
} dlpi_s3_block;

enum { DLPI_S3_OBJECTS = 0, DLPI_S3_PREFIXES };

/* What a page says. The runs keep their memory for the next page. */
typedef struct dlpi_s3_page {
    bool told, truncated; /* it says whether there are more pages; there are */
    bool escaped;         /* keys are: it says EncodingType url */
    char token[DLPI_S3_TOKEN];
    dlpi_s3_run run[2];
    char why[120]; /* what is wrong, if it names an element */
} dlpi_s3_page;

static const char dlpi_s3_page_memory[] = "no memory for the page";

static dlpi_s3_span dlpi_s3_key_span(const dlpi_s3_key *k) {
    return (dlpi_s3_span){k->at, k->bytes};
}

static void dlpi_s3_key_set(dlpi_s3_key *k, dlpi_s3_span key) {
    memcpy(k->at, key.at, key.n);
    k->at[key.n] = '\0';
    k->bytes = key.n;
}

static size_t dlpi_s3_record_size(const dlpi_s3_record *r) {
    return (sizeof *r + r->key_bytes + 1 + r->etag_bytes + 1 + 7) / 8 * 8;
}

/* Read the record at a place: its head into *r. Returns its key, which stays where it is. */
static dlpi_s3_span dlpi_s3_record_at(const char *at, dlpi_s3_record *r) {
    memcpy(r, at, sizeof *r);
    return (dlpi_s3_span){at + sizeof *r, r->key_bytes};
}

/* Make room for one more record of any size. Returns its place, or NULL if there is no memory. */
static char *dlpi_s3_run_room(dlpi_s3_run *run) {
    size_t want = run->n + sizeof(dlpi_s3_record) + DLPI_S3_KEY_TEXT + 1 + 80 + 8;
    if (want > run->size) {
        size_t size = run->size > 0 ? 2 * run->size : 64u << 10;
        char *at = realloc(run->at, size > want ? size : want);
        if (!at) return NULL;
        run->at = at;
        run->size = size > want ? size : want;
    }
    return run->at + run->n;
}

/* Write "<name> what" into p->why, the page's error text. Returns that text. */
static const char *dlpi_s3_page_wrong(dlpi_s3_page *p, dlpi_s3_span name, const char *what) {
    snprintf(p->why, sizeof p->why, "<%.*s> %s", name.n < 40 ? (int)name.n : 40, name.at, what);
    return p->why;
}

/* Read the text of the element that x has just opened into to. n: gets its length, may be NULL.
   Returns NULL or an error text. */
static const char *dlpi_s3_page_text(dlpi_s3_page *p, dlpi_s3_xml *x, char *to, size_t size,
                                     size_t *n) {
    dlpi_s3_out o = {to, size, 0};
    const dlpi_s3_span name = x->name;
    if (!dlpi_s3_xml_inside(x, &o))
        return x->why ? x->why : dlpi_s3_page_wrong(p, name, "has a reference that XML lacks");
    if (!dlpi_s3_out_end(&o)) return dlpi_s3_page_wrong(p, name, "is too long");
    if (n) *n = o.n;
    return strlen(to) == o.n ? NULL : dlpi_s3_page_wrong(p, name, "has a zero byte");
}

/* Read the element Contents that x has just opened into a record. Returns NULL or an error text. */
static const char *dlpi_s3_page_object(dlpi_s3_page *p, dlpi_s3_xml *x) {
    dlpi_s3_run *run = &p->run[DLPI_S3_OBJECTS];
    char *at = dlpi_s3_run_room(run), text[80] = "", etag[80] = "";
    dlpi_s3_record r = {0};
    bool key = false, size = false;
    size_t n = 0;
    if (!at) return dlpi_s3_page_memory;
    for (;;) {
        int what = dlpi_s3_xml_next(x);
        const char *wrong = NULL;
        if (what <= DLPI_S3_XML_END) return x->why;
        if (what == DLPI_S3_XML_CLOSE && x->depth < 2) break;
        if (what != DLPI_S3_XML_OPEN || x->depth != 3) continue;
        if (dlpi_s3_span_is(x->name, "Key")) {
            wrong = dlpi_s3_page_text(p, x, at + sizeof r, DLPI_S3_KEY_TEXT + 1, &n);
            key = true;
        } else if (dlpi_s3_span_is(x->name, "Size")) {
            wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
            size = !wrong && dlpi_s3_decimal(text, strlen(text), &r.bytes);
        } else if (dlpi_s3_span_is(x->name, "LastModified")) {
            wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
            if (!wrong) r.modified_s = dlpi_s3_time_iso(text, strlen(text));
        } else if (dlpi_s3_span_is(x->name, "ETag")) {
            wrong = dlpi_s3_page_text(p, x, etag, sizeof etag, NULL);
        }
        if (wrong) return wrong;
    }
    if (!key) return "<Contents> has no <Key>";
    if (!size) return "<Contents> has no <Size> that is a number";
    if (strlen(etag) >= sizeof((dlp_s3_object *)NULL)->etag) etag[0] = '\0';
    r.key_bytes = (uint32_t)n;
    r.etag_bytes = (uint16_t)strlen(etag);
    memcpy(at, &r, sizeof r);
    memcpy(at + sizeof r + n + 1, etag, r.etag_bytes + 1u);
    run->n += dlpi_s3_record_size(&r);
    return NULL;
}

/* Read the common prefix that x has just opened into a record. Returns NULL or an error text. */
static const char *dlpi_s3_page_prefix(dlpi_s3_page *p, dlpi_s3_xml *x) {
    dlpi_s3_run *run = &p->run[DLPI_S3_PREFIXES];
    char *at = dlpi_s3_run_room(run);
    dlpi_s3_record r = {.is_prefix = 1};
    const char *wrong;
    size_t n = 0;
    if (!at) return dlpi_s3_page_memory;
    wrong = dlpi_s3_page_text(p, x, at + sizeof r, DLPI_S3_KEY_TEXT + 1, &n);
    if (wrong) return wrong;
    r.key_bytes = (uint32_t)n;
    memcpy(at, &r, sizeof r);
    at[sizeof r + n + 1] = '\0';
    run->n += dlpi_s3_record_size(&r);
    return NULL;
}

/* Read the element of the outermost level that x has just opened. Returns NULL or an error text. */
static const char *dlpi_s3_page_element(dlpi_s3_page *p, dlpi_s3_xml *x) {
    char text[16] = "";
    const char *wrong = NULL;
    if (dlpi_s3_span_is(x->name, "Contents")) {
        wrong = dlpi_s3_page_object(p, x);
    } else if (dlpi_s3_span_is(x->name, "IsTruncated")) {
        wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
        p->truncated = strcmp(text, "true") == 0;
        p->told = p->truncated || strcmp(text, "false") == 0;
    } else if (dlpi_s3_span_is(x->name, "EncodingType")) {
        wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
        p->escaped = strcmp(text, "url") == 0;
    } else if (dlpi_s3_span_is(x->name, "NextContinuationToken")) {
        wrong = dlpi_s3_page_text(p, x, p->token, sizeof p->token, NULL);
    }
    return wrong;
}

/* Parse a page into p: its records, whether there are more pages, and the token of the next one.
   Returns NULL or an error text. */
static const char *dlpi_s3_page_parse(dlpi_s3_page *p, const char *xml, size_t n) {
    dlpi_s3_xml x;
    bool inside = false; /* of CommonPrefixes */
    int what;
    p->told = p->truncated = p->escaped = false;
    p->token[0] = '\0';
    p->run[0].n = p->run[1].n = 0;
    dlpi_s3_xml_begin(&x, xml, n);
    while ((what = dlpi_s3_xml_next(&x)) > DLPI_S3_XML_END) {
        const char *wrong = NULL;
        if (what != DLPI_S3_XML_OPEN) continue;
        if (x.depth == 1 && !dlpi_s3_span_is(x.name, "ListBucketResult"))
            return dlpi_s3_page_wrong(p, x.name, "came, and no <ListBucketResult>");
        if (x.depth == 2) {
            inside = dlpi_s3_span_is(x.name, "CommonPrefixes");
            wrong = dlpi_s3_page_element(p, &x);
        } else if (x.depth == 3 && inside && dlpi_s3_span_is(x.name, "Prefix")) {
            wrong = dlpi_s3_page_prefix(p, &x);
        }
        if (wrong && wrong != x.why) return wrong;
        if (wrong) break;
    }
    if (x.why) {
        snprintf(p->why, sizeof p->why, "bad XML at byte %zu, after <%.*s>: %s",
                 (size_t)(x.where - xml), x.name.n < 40 ? (int)x.name.n : 40, x.name.at, x.why);
        return p->why;
    }
    if (!p->told) return "<IsTruncated> is neither true nor false";
    if (p->truncated && !p->token[0])
        return "<IsTruncated> is true, but <NextContinuationToken> is missing (no list-type 2?)";
    return NULL;
}

/* Undo escapes of a run's keys, if there are any; records move. Returns NULL or an error text. */
static const char *dlpi_s3_run_decode(dlpi_s3_run *run, bool escaped) {
    size_t to = 0;
    dlpi_s3_record r;
    for (size_t from = 0, step; from < run->n; from += step) {
        char *key = run->at + from + sizeof r;
        int64_t n = dlpi_s3_record_at(run->at + from, &r).n ? r.key_bytes : 0;
        const char *etag = key + r.key_bytes + 1;
        step = dlpi_s3_record_size(&r);
        if (escaped) n = dlpi_s3_uri_decode(key, r.key_bytes + 1u, key, r.key_bytes, true);
        if (n < 0) return "<Key> has a '%' without two hexadecimal digits";
        if (n == 0) return "<Key> is empty";
        if (memchr(key, '\0', (size_t)n)) return "<Key> has a zero byte";
        r.key_bytes = (uint32_t)n;
        memmove(run->at + to + sizeof r, key, r.key_bytes + 1u);
        memmove(run->at + to + sizeof r + r.key_bytes + 1, etag, r.etag_bytes + 1u);
        memcpy(run->at + to, &r, sizeof r);
        to += dlpi_s3_record_size(&r);
    }
    run->n = to;
    return NULL;
}

/* Choose the next record in the order of keys: the object at at[0] or the prefix at at[1]. Returns
   DLPI_S3_OBJECTS or DLPI_S3_PREFIXES, or -1 at the end of the page. */
static int dlpi_s3_page_next(const dlpi_s3_page *p, const size_t at[2]) {
    dlpi_s3_record r;
    bool object = at[0] < p->run[0].n, prefix = at[1] < p->run[1].n;
    if (!object || !prefix) return object ? DLPI_S3_OBJECTS : prefix ? DLPI_S3_PREFIXES : -1;
    return dlpi_s3_span_order(dlpi_s3_record_at(p->run[0].at + at[0], &r),
                              dlpi_s3_record_at(p->run[1].at + at[1], &r)) > 0;
}

/* Return a new block with room for n bytes of records, or NULL if there is no memory. */
static dlpi_s3_block *dlpi_s3_block_new(size_t n) {
    dlpi_s3_block *b = malloc(sizeof *b + n);
    if (b) memset(b, 0, sizeof *b);
    return b;
}

/* Merge a page's records into a new block, in the order of their keys. Keys up to low (if it has
   bytes) are left out. Returns NULL if there is no memory. */
static dlpi_s3_block *dlpi_s3_page_merge(const dlpi_s3_page *p, const dlpi_s3_key *low) {
    dlpi_s3_block *b = dlpi_s3_block_new(p->run[0].n + p->run[1].n);
    size_t at[2] = {0, 0};
    for (int which; b && (which = dlpi_s3_page_next(p, at)) >= 0;) {
        const char *from = p->run[which].at + at[which];
        dlpi_s3_record r;
        dlpi_s3_span key = dlpi_s3_record_at(from, &r);
        size_t n = dlpi_s3_record_size(&r);
        at[which] += n;
        if (low->bytes > 0 && dlpi_s3_span_order(key, dlpi_s3_key_span(low)) <= 0) continue;
        memcpy(b->records + b->n, from, n);
        b->n += n;
        b->keys++;
    }
    return b;
}

/* Move the records behind high out of a block into a new one, *out; NULL if there are none. Returns
   false if there is no memory; the block is then as it was. */
static bool dlpi_s3_block_cut(dlpi_s3_block *b, const dlpi_s3_key *high, dlpi_s3_block **out) {
    dlpi_s3_record r;
    uint64_t keys = 0;
    size_t at = 0;
    *out = NULL;
    for (; at < b->n; at += dlpi_s3_record_size(&r), keys++)
        if (dlpi_s3_span_order(dlpi_s3_record_at(b->records + at, &r), dlpi_s3_key_span(high)) > 0)
            break;
    if (at == b->n) return true;
    *out = dlpi_s3_block_new(b->n - at);
    if (!*out) return false;
    memcpy((*out)->records, b->records + at, b->n - at);
    (*out)->n = b->n - at;
    (*out)->keys = b->keys - keys;
    b->n = at;
    b->keys = keys;
    return true;
}

/* Return the block's first key; of no bytes if there is no block, or no key in it. */
static dlpi_s3_span dlpi_s3_block_first(const dlpi_s3_block *b) {
    dlpi_s3_record r;
    return b && b->n > 0 ? dlpi_s3_record_at(b->records, &r) : (dlpi_s3_span){"", 0};
}

/* Read the block's next record; its key stays in the block. Returns false if there is none. */
static bool dlpi_s3_block_take(dlpi_s3_block *b, dlp_s3_object *out) {
    dlpi_s3_record r;
    dlpi_s3_span key;
    if (b->at >= b->n) return false;
    key = dlpi_s3_record_at(b->records + b->at, &r);
    memset(out, 0, sizeof *out);
    out->key = key.at;
    out->key_bytes = key.n;
    out->bytes = r.bytes;
    out->modified_s = r.modified_s;
    out->is_prefix = r.is_prefix;
    memcpy(out->etag, key.at + key.n + 1, r.etag_bytes + 1u);
    b->given = b->at;
    b->at += dlpi_s3_record_size(&r);
    return true;
}
