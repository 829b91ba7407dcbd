#pragma once
/* tests: unit/s3/s3_sign, fuzz/fuzz_s3 */
#include "s3/sha256.h"
#include "s3/text.h"
/* ---- Characters of XML and JSON, into a buffer that keeps what fits. */

typedef struct dlpi_s3_out {
    char *to;
    size_t size, n; /* n: bytes that all of it would take */
} dlpi_s3_out;

static void dlpi_s3_out_add(dlpi_s3_out *o, const char *bytes, size_t n) {
    if (o->n < o->size) memcpy(o->to + o->n, bytes, n < o->size - o->n ? n : o->size - o->n);
    o->n += n;
}

/* Terminate the text. Returns true if all of it fitted. */
static bool dlpi_s3_out_end(dlpi_s3_out *o) {
    if (o->size == 0) return false;
    o->to[o->n < o->size ? o->n : o->size - 1] = '\0';
    return o->n < o->size;
}

/* Add a character as UTF-8. Returns false if there is none of this number, or it is NUL. */
static bool dlpi_s3_out_char(dlpi_s3_out *o, uint32_t c) {
    char u[4];
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return false;
    if (c < 0x80) {
        u[0] = (char)c;
        dlpi_s3_out_add(o, u, 1);
    } else if (c < 0x800) {
        u[0] = (char)(0xc0 | c >> 6), u[1] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 2);
    } else if (c < 0x10000) {
        u[0] = (char)(0xe0 | c >> 12), u[1] = (char)(0x80 | (c >> 6 & 63));
        u[2] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 3);
    } else {
        u[0] = (char)(0xf0 | c >> 18), u[1] = (char)(0x80 | (c >> 12 & 63));
        u[2] = (char)(0x80 | (c >> 6 & 63)), u[3] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 4);
    }
    return true;
}

/* ---- XML, as much of it as answers of S3 have: elements, text, CDATA; comments and attributes are
   passed over, a document type (and with it entities of one's own) is refused. */

#define DLPI_S3_XML_DEPTH 16

enum {
    DLPI_S3_XML_BAD = -1,
    DLPI_S3_XML_END = 0,
    DLPI_S3_XML_OPEN,  /* an element begins: name, depth with it */
    DLPI_S3_XML_TEXT,  /* a run of text: text, with references in it */
    DLPI_S3_XML_CDATA, /* the same, as it is */
    DLPI_S3_XML_CLOSE  /* name, depth without it */
};

typedef struct dlpi_s3_xml {
    const char *at, *end;
    const char *why;   /* BAD: in words */
    const char *where; /* BAD: the place */
    dlpi_s3_span name; /* without its namespace */
    dlpi_s3_span text;
    dlpi_s3_span open[DLPI_S3_XML_DEPTH]; /* whole names of what is open */
    int32_t depth;
    int32_t closes; /* 1: "<a/>" was opened, to be closed next */
    int32_t begun;  /* 1: the outermost element has been seen */
} dlpi_s3_xml;

static void dlpi_s3_xml_begin(dlpi_s3_xml *x, const char *xml, size_t n) {
    memset(x, 0, sizeof *x);
    if (n >= 3 && memcmp(xml, "\xef\xbb\xbf", 3) == 0) xml += 3, n -= 3;
    x->at = xml;
    x->end = xml + n;
}

/* Refuse the text, for good. Returns DLPI_S3_XML_BAD. */
static int dlpi_s3_xml_bad(dlpi_s3_xml *x, const char *why) {
    x->why = why;
    x->where = x->at;
    x->at = x->end;
    x->closes = 0;
    x->depth = x->begun = 0; /* it stays bad */
    return DLPI_S3_XML_BAD;
}

static bool dlpi_s3_is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Go on behind the next mark. Returns where the mark begins, or NULL if there is none. */
static const char *dlpi_s3_xml_pass(dlpi_s3_xml *x, const char *mark) {
    const char *found = memmem(x->at, (size_t)(x->end - x->at), mark, strlen(mark));
    if (found) x->at = found + strlen(mark);
    return found;
}

static bool dlpi_s3_xml_at(const dlpi_s3_xml *x, const char *text) {
    size_t n = strlen(text);
    return (size_t)(x->end - x->at) >= n && memcmp(x->at, text, n) == 0;
}

/* True if a byte ends a name: NUL, white space, any of "&'/<=>. */
static inline bool dlpi_s3_xml_ends(unsigned char c) {
    return c < 64 && ((uint64_t)0x700080c500002601u >> c & 1) != 0;
}

/* Read the name of a tag. Returns it whole; x->name gets it without its namespace. */
static dlpi_s3_span dlpi_s3_xml_name(dlpi_s3_xml *x) {
    dlpi_s3_span whole = {x->at, 0};
    x->name.at = x->at;
    while (x->at < x->end && !dlpi_s3_xml_ends((unsigned char)*x->at)) {
        if (*x->at == ':') x->name.at = x->at + 1;
        x->at++;
    }
    whole.n = (size_t)(x->at - whole.at);
    x->name.n = (size_t)(x->at - x->name.at);
    return whole;
}

/* Read an end tag, "</a>", from behind its slash. Returns DLPI_S3_XML_CLOSE or _BAD. */
static int dlpi_s3_xml_close(dlpi_s3_xml *x) {
    dlpi_s3_span whole = dlpi_s3_xml_name(x), *open;
    while (x->at < x->end && dlpi_s3_is_space(*x->at)) x->at++;
    if (x->at == x->end || *x->at != '>') return dlpi_s3_xml_bad(x, "a tag does not end");
    x->at++;
    if (x->depth == 0) return dlpi_s3_xml_bad(x, "an end without a beginning");
    open = &x->open[x->depth - 1];
    if (open->n != whole.n || memcmp(open->at, whole.at, whole.n) != 0)
        return dlpi_s3_xml_bad(x, "elements overlap");
    x->depth--;
    return DLPI_S3_XML_CLOSE;
}

/* Read a tag, "<a b='c'>", from behind its bracket. Returns DLPI_S3_XML_OPEN or _BAD. */
static int dlpi_s3_xml_open(dlpi_s3_xml *x) {
    dlpi_s3_span whole = dlpi_s3_xml_name(x);
    if (x->name.n == 0) return dlpi_s3_xml_bad(x, "a tag has no name");
    if (x->depth == 0 && x->begun) return dlpi_s3_xml_bad(x, "a second outermost element");
    if (x->depth == DLPI_S3_XML_DEPTH) return dlpi_s3_xml_bad(x, "elements are nested too deep");
    while (x->at < x->end && *x->at != '>') {
        char c = *x->at++;
        if (c == '<') return dlpi_s3_xml_bad(x, "a tag inside a tag");
        if (c == '"' || c == '\'') {
            const char *quote = memchr(x->at, c, (size_t)(x->end - x->at));
            if (!quote) return dlpi_s3_xml_bad(x, "an attribute does not end");
            x->at = quote + 1;
        }
        x->closes = c == '/' && x->at < x->end && *x->at == '>';
    }
    if (x->at == x->end) return dlpi_s3_xml_bad(x, "a tag does not end");
    x->at++;
    x->open[x->depth++] = whole;
    x->begun = 1;
    return DLPI_S3_XML_OPEN;
}

/* Read the next piece of the text. Returns DLPI_S3_XML_OPEN, TEXT, CDATA, CLOSE, END or BAD. */
static int dlpi_s3_xml_next(dlpi_s3_xml *x) {
    if (x->closes) {
        x->closes = 0;
        x->depth--;
        return DLPI_S3_XML_CLOSE;
    }
    while (x->at < x->end) {
        if (*x->at != '<') {
            const char *from = x->at, *to = memchr(from, '<', (size_t)(x->end - from));
            x->at = to ? to : x->end;
            x->text = (dlpi_s3_span){from, (size_t)(x->at - from)};
            if (x->depth > 0) return DLPI_S3_XML_TEXT;
            while (from < x->at && dlpi_s3_is_space(*from)) from++;
            if (from < x->at) return dlpi_s3_xml_bad(x, "text outside of all elements");
        } else if (dlpi_s3_xml_at(x, "<?")) {
            if (!dlpi_s3_xml_pass(x, "?>")) return dlpi_s3_xml_bad(x, "a comment does not end");
        } else if (dlpi_s3_xml_at(x, "<!--")) {
            x->at += 4;
            if (!dlpi_s3_xml_pass(x, "-->")) return dlpi_s3_xml_bad(x, "a comment does not end");
        } else if (dlpi_s3_xml_at(x, "<![CDATA[") && x->depth > 0) {
            x->at += 9;
            x->text.at = x->at;
            if (!dlpi_s3_xml_pass(x, "]]>")) return dlpi_s3_xml_bad(x, "CDATA does not end");
            x->text.n = (size_t)(x->at - 3 - x->text.at);
            return DLPI_S3_XML_CDATA;
        } else if (dlpi_s3_xml_at(x, "<!")) {
            return dlpi_s3_xml_bad(x, "a document type, which is refused");
        } else if (dlpi_s3_xml_at(x, "</")) {
            x->at += 2;
            return dlpi_s3_xml_close(x);
        } else {
            x->at++;
            return dlpi_s3_xml_open(x);
        }
    }
    if (x->why) return DLPI_S3_XML_BAD; /* it stays bad */
    if (x->depth > 0 || !x->begun) return dlpi_s3_xml_bad(x, "the answer ends early");
    return DLPI_S3_XML_END;
}

/* Add the character of "&name;". Returns false if XML itself has no such name. */
static bool dlpi_s3_xml_reference(dlpi_s3_out *o, dlpi_s3_span name) {
    static const char *const known[][2] = {
        {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
    bool hex = name.n > 1 && name.at[1] == 'x';
    uint32_t c = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!dlpi_s3_span_is(name, known[i][0])) continue;
        dlpi_s3_out_add(o, known[i][1], 1);
        return true;
    }
    if (name.n < (hex ? 3u : 2u) || name.n > 16 || name.at[0] != '#') return false;
    for (size_t i = hex ? 2 : 1; i < name.n; i++) {
        int d = dlpi_s3_hex_digit(name.at[i]);
        if (d < 0 || (d > 9 && !hex)) return false;
        c = c * (hex ? 16u : 10u) + (uint32_t)d;
        if (c > 0x10ffff) return false;
    }
    return dlpi_s3_out_char(o, c);
}

/* Add a run of text with its references resolved. Returns false if one of them is bad. */
static bool dlpi_s3_xml_decode(dlpi_s3_out *o, dlpi_s3_span text) {
    while (text.n > 0) {
        const char *and = memchr(text.at, '&', text.n), *end;
        size_t plain = and? (size_t)(and-text.at) : text.n;
        dlpi_s3_out_add(o, text.at, plain);
        if (!and) return true;
        end = memchr(and, ';', text.n - plain);
        if (!end) return false;
        if (!dlpi_s3_xml_reference(o, (dlpi_s3_span){and+1, (size_t)(end - and) - 1})) return false;
        text.n -= (size_t)(end + 1 - text.at);
        text.at = end + 1;
    }
    return true;
}

/* Add all text directly inside the element that was just opened, up to its end. Returns false if x
   or a reference is bad. */
static bool dlpi_s3_xml_inside(dlpi_s3_xml *x, dlpi_s3_out *o) {
    int32_t depth = x->depth;
    for (;;) {
        int what = dlpi_s3_xml_next(x);
        if (what <= DLPI_S3_XML_END) return false;
        if (what == DLPI_S3_XML_CLOSE && x->depth < depth) return true;
        if (x->depth > depth) continue;
        if (what == DLPI_S3_XML_TEXT && !dlpi_s3_xml_decode(o, x->text)) return false;
        if (what == DLPI_S3_XML_CDATA) dlpi_s3_out_add(o, x->text.at, x->text.n);
    }
}

/* Return the n-th part of a path, "a/b/c". */
static dlpi_s3_span dlpi_s3_path_part(const char *path, int32_t n) {
    for (; n > 0; n--) path += strcspn(path, "/") + 1;
    return (dlpi_s3_span){path, strcspn(path, "/")};
}

/* Read the text of the first element with a path, such as "Error/Code". out is always terminated,
   "" if there is none. Returns true if all of it fitted. */
static bool dlpi_s3_xml_text(const char *xml, size_t n, const char *path, char *out, size_t size) {
    dlpi_s3_xml x;
    dlpi_s3_out o = {out, size, 0};
    int32_t found = 0; /* levels of the path that are open */
    bool whole = false;
    dlpi_s3_xml_begin(&x, xml, n);
    for (;;) {
        int what = dlpi_s3_xml_next(&x);
        dlpi_s3_span part = dlpi_s3_path_part(path, found);
        if (what <= DLPI_S3_XML_END) break;
        if (what == DLPI_S3_XML_CLOSE && x.depth < found) found = x.depth;
        if (what != DLPI_S3_XML_OPEN || x.depth != found + 1) continue;
        if (x.name.n != part.n || memcmp(x.name.at, part.at, part.n) != 0) continue;
        found++;
        if (part.at[part.n] != '\0') continue;
        whole = dlpi_s3_xml_inside(&x, &o);
        break;
    }
    return dlpi_s3_out_end(&o) && whole;
}
