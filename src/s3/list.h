#pragma once
/* tests: system/s3/s3_list, system/s3/s3_list_split, fuzz/fuzz_s3 */
#include "s3/client.h"
#include "s3/split.h"
/* ---- lists ----
   A list is a chain of segments, in the order of their keys. A segment is a range of keys: those
   behind a split, up to and with the next split. There is one segment at first. If fewer pages are
   under way than may be, the segment with most keys left is split. The new segment asks for its
   first page at once. The records of the first segment are given out; those of others are kept as
   blocks.

   If the server does not start behind a split, the segments are dropped. The list is then asked for
   from its beginning, page after page, and keys that were given out are passed over. */

#define DLPI_S3_PAGE_FIRST (256u << 10) /* bytes for an answer at first; */
#define DLPI_S3_PAGE_MOST (16u << 20)   /* at most: 1,000 keys of 1,024 escaped bytes are 4 MiB */
#define DLPI_S3_LIST_QUERY (3 * (3 * DLPI_S3_LIST_TEXT + DLPI_S3_TOKEN) + 256)
#define DLPI_S3_LIST_REQUESTS 32
#define DLPI_S3_LEFT_UNKNOWN 1e300 /* keys, or a few times fewer */

#ifndef DLPI_S3_LIST_EMPTY
#define DLPI_S3_LIST_EMPTY 10000 /* so many pages without a key are no list */
#endif
#ifndef DLPI_S3_LIST_HOLD
#define DLPI_S3_LIST_HOLD (256u << 20) /* bytes of records kept before their turn */
#endif

enum {
    DLPI_S3_SEGMENT_WANTS = 0, /* its next page is to be asked for */
    DLPI_S3_SEGMENT_ASKED,
    DLPI_S3_SEGMENT_FAILED, /* which is told when its turn comes; then it wants its page again */
    DLPI_S3_SEGMENT_OVER
};

typedef struct dlpi_s3_segment {
    struct dlpi_s3_segment *next;
    int32_t state;
    bool bounded;                   /* it ends at high, which is its own */
    bool split;                     /* it begins behind a split, at low; else behind start_after */
    bool whole;                     /* no split was found since its last page */
    double left;                    /* keys that it seems to have left; DLPI_S3_LEFT_UNKNOWN */
    size_t same;                    /* bytes that all keys of its last page begin with */
    char token[DLPI_S3_TOKEN];      /* of its next page; "": the first */
    uint64_t pages, mark;           /* pages that came; the page when marked was taken */
    uint32_t empty;                 /* pages without a key, one after the other */
    uint8_t before[32], marked[32]; /* hashes of two tokens that no page may give again */
    dlpi_s3_block *blocks, *blocks_last;
    dlpi_s3_key low, high, last; /* last: its last key so far */
    dlp_s3_error error;          /* FAILED */
} dlpi_s3_segment;

/* A page that is asked for. */
typedef struct dlpi_s3_page_request {
    struct dlpi_s3_page_request *next; /* of the list's */
    dlpi_s3_segment *of;               /* NULL: it is free */
    dlp_s3_request r;
    size_t size;
    char *body;
    char query[DLPI_S3_LIST_QUERY];
} dlpi_s3_page_request;

struct dlp_s3_list {
    dlp_s3_io *io;
    char bucket[256];
    char prefix[DLPI_S3_LIST_TEXT + 1], delimiter[DLPI_S3_LIST_TEXT + 1];
    char start_after[DLPI_S3_LIST_TEXT + 1];
    int32_t page;
    uint32_t most;  /* pages asked for at once */
    bool any_order; /* of keys */
    bool ignored;   /* the last page has a key that is not behind where it was to start */
    dlpi_s3_over over;
    dlpi_s3_page_request *asks;
    dlpi_s3_segment *first;
    uint64_t asked, useful; /* pages; those that had keys */
    uint64_t held;          /* bytes of blocks */
    uint32_t segments;
    size_t room; /* bytes for an answer, as answers have needed */
    dlpi_s3_alphabet alphabet;
    dlpi_s3_page now;    /* the page that was parsed last */
    dlpi_s3_key last[2]; /* of its objects and prefixes */
    dlpi_s3_key given;   /* the last key of the blocks that were given out, */
    dlpi_s3_key upto;    /* and up to which keys are passed over */
    char why[200];       /* what is wrong with a key of the page */
};

/* ---- A page. */

/* True if a key may come after *last, the key before it, which it then replaces. It must lie
   behind, or with any_order only differ. */
static bool dlpi_s3_list_follows(const dlp_s3_list *l, dlpi_s3_span key, dlpi_s3_key *last) {
    int order = last->bytes > 0 ? dlpi_s3_span_order(key, dlpi_s3_key_span(last)) : 1;
    if (order == 0 || (order < 0 && !l->any_order)) return false;
    dlpi_s3_key_set(last, key);
    return true;
}

/* Check that the segment's request asked for a key: it begins with prefix, and lies behind
   start_after or the segment's split. A common prefix may also be the beginning of start_after,
   since some of its keys lie behind. Returns NULL or an error text. */
static const char *dlpi_s3_list_asked(dlp_s3_list *l, const dlpi_s3_segment *s, dlpi_s3_span key,
                                      bool is_prefix) {
    dlpi_s3_span after = {l->start_after, strlen(l->start_after)};
    const char *field = NULL;
    if (s->split) after = dlpi_s3_key_span(&s->low);
    if (strncmp(key.at, l->prefix, strlen(l->prefix)) != 0)
        field = "prefix";
    else if (after.n > 0 && !l->any_order && dlpi_s3_span_order(key, after) <= 0 &&
             !(is_prefix && key.n < after.n && memcmp(key.at, after.at, key.n) == 0))
        field = "start_after";
    if (!field) return NULL;
    l->ignored = s->split;
    snprintf(l->why, sizeof l->why, "key '%.60s' was not asked for, by %s", key.at, field);
    dlpi_s3_one_line(l->why);
    return l->why;
}

/* Decode and check a page's records of one kind. *last gets the last of their keys, or that of the
   pages before. Returns NULL or an error text. */
static const char *dlpi_s3_list_check(dlp_s3_list *l, const dlpi_s3_segment *s, int kind,
                                      dlpi_s3_key *last) {
    dlpi_s3_run *run = &l->now.run[kind];
    const char *wrong = dlpi_s3_run_decode(run, l->now.escaped);
    dlpi_s3_record r;
    *last = s->last;
    for (size_t at = 0; !wrong && at < run->n; at += dlpi_s3_record_size(&r)) {
        dlpi_s3_span key = dlpi_s3_record_at(run->at + at, &r);
        if (!dlpi_s3_list_follows(l, key, last)) {
            snprintf(l->why, sizeof l->why,
                     "key '%.60s' comes twice or out of order; set any_order", key.at);
            return l->why;
        }
        wrong = dlpi_s3_list_asked(l, s, key, r.is_prefix);
    }
    return wrong;
}

/* True if a token leads back to an earlier page: such a list would have no end. Compared are the
   last token and one kept at pages 1, 2, 4, 8.. (Brent 1980): that finds circles of any length. */
static bool dlpi_s3_segment_loops(dlpi_s3_segment *s, const char *token) {
    uint8_t hash[32];
    dlpi_s3_sha256(token, strlen(token), hash);
    if (s->pages > 0 && (memcmp(hash, s->before, 32) == 0 || memcmp(hash, s->marked, 32) == 0))
        return true;
    memcpy(s->before, hash, sizeof hash);
    if (s->pages < s->mark) return false;
    memcpy(s->marked, hash, sizeof hash);
    s->mark = s->pages == 0 ? 1 : 2 * s->pages;
    return false;
}

/* Guess how many keys the segment has left (s->left) by the density of its last page, whose block
   is b. Learn, too, which bytes keys are made of. */
static void dlpi_s3_list_measure(dlp_s3_list *l, dlpi_s3_segment *s, const dlpi_s3_block *b) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last), first, high = dlpi_s3_key_span(&s->high);
    dlpi_s3_record r;
    double x, y, z, n = 0;
    size_t from;
    s->whole = false;
    first = dlpi_s3_record_at(b->records, &r);
    s->same = dlpi_s3_span_common(first, last);
    for (size_t at = 0; at < b->n; at += dlpi_s3_record_size(&r), n++)
        dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_record_at(b->records + at, &r), s->same, true);
    from = s->bounded ? dlpi_s3_span_common(first, high) : strlen(l->prefix);
    x = dlpi_s3_alphabet_place(&l->alphabet, first, from);
    y = dlpi_s3_alphabet_place(&l->alphabet, last, from);
    z = s->bounded ? dlpi_s3_alphabet_place(&l->alphabet, high, from) : 1;
    s->left = y > x && z > y ? (z - y) / (y - x) * n : DLPI_S3_LEFT_UNKNOWN;
}

/* Move the segment on behind the page that was parsed last: its state, token and last key. The
   page's block b is appended to the segment's blocks, or freed if it is empty. */
static void dlpi_s3_segment_on(dlp_s3_list *l, dlpi_s3_segment *s, dlpi_s3_block *b) {
    const dlpi_s3_key *last = &l->last[0];
    if (dlpi_s3_span_order(dlpi_s3_key_span(last), dlpi_s3_key_span(&l->last[1])) < 0)
        last = &l->last[1];
    s->last = *last;
    s->pages++;
    s->state = l->now.truncated ? DLPI_S3_SEGMENT_WANTS : DLPI_S3_SEGMENT_OVER;
    if (s->bounded && dlpi_s3_span_order(dlpi_s3_key_span(last), dlpi_s3_key_span(&s->high)) >= 0)
        s->state = DLPI_S3_SEGMENT_OVER;
    memcpy(s->token, l->now.token, sizeof s->token);
    s->left = 0;
    l->useful += b->n > 0;
    if (s->state != DLPI_S3_SEGMENT_OVER && b->n > 0 && l->most > 1) dlpi_s3_list_measure(l, s, b);
    if (b->n == 0) {
        free(b);
        return;
    }
    if (s->blocks)
        s->blocks_last->next = b;
    else
        s->blocks = b;
    s->blocks_last = b;
    l->held += b->n;
}

/* Parse and check a page of the segment that has come in body, and keep its records. Returns NULL
   or an error text; then the page can be asked for again. */
static const char *dlpi_s3_list_take(dlp_s3_list *l, dlpi_s3_segment *s, const char *body,
                                     size_t n) {
    dlpi_s3_page *p = &l->now;
    const char *wrong = dlpi_s3_page_parse(p, body, n);
    dlpi_s3_block *b = NULL;
    l->ignored = false;
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_OBJECTS, &l->last[0]);
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_PREFIXES, &l->last[1]);
    if (!wrong && !(b = dlpi_s3_page_merge(p, &l->upto, s->bounded ? &s->high : NULL)))
        wrong = dlpi_s3_page_memory;
    if (!wrong && p->truncated && dlpi_s3_segment_loops(s, p->token))
        wrong = "<NextContinuationToken> comes again";
    if (!wrong) s->empty = p->run[0].n + p->run[1].n > 0 ? 0 : s->empty + 1;
    if (!wrong && s->empty >= DLPI_S3_LIST_EMPTY) wrong = "too many pages without a key";
    if (wrong)
        free(b);
    else
        dlpi_s3_segment_on(l, s, b);
    return wrong;
}

/* ---- Segments. */

static dlpi_s3_segment *dlpi_s3_segment_new(void) {
    return (dlpi_s3_segment *)calloc(1, sizeof(dlpi_s3_segment));
}

/* Remember the last key that was given out of the segment's first block, if any was. */
static void dlpi_s3_list_given(dlp_s3_list *l, const dlpi_s3_segment *s) {
    dlpi_s3_record r;
    if (!s->blocks || s->blocks->at == 0) return;
    dlpi_s3_key_set(&l->given, dlpi_s3_record_at(s->blocks->records + s->blocks->given, &r));
}

/* Free the segment's first block. Its records were given out, or the segment is being dropped. */
static void dlpi_s3_list_drop_block(dlp_s3_list *l, dlpi_s3_segment *s) {
    dlpi_s3_block *b = s->blocks;
    l->held -= b->n;
    s->blocks = b->next;
    free(b);
}

/* Free the list's first segment. */
static void dlpi_s3_list_drop(dlp_s3_list *l) {
    dlpi_s3_segment *s = l->first;
    while (s->blocks) dlpi_s3_list_drop_block(l, s);
    l->first = s->next;
    l->segments--;
    free(s);
}

/* Join each segment that is over with the segments right behind it that are over, too. */
static void dlpi_s3_list_join(dlp_s3_list *l) {
    for (dlpi_s3_segment *s = l->first, *next; (next = s->next) != NULL;) {
        if (s->state != DLPI_S3_SEGMENT_OVER || next->state != DLPI_S3_SEGMENT_OVER) {
            s = next;
            continue;
        }
        if (!s->blocks)
            s->blocks = next->blocks;
        else
            s->blocks_last->next = next->blocks;
        if (next->blocks) s->blocks_last = next->blocks_last;
        s->next = next->next;
        l->segments--;
        free(next);
    }
}

/* Split the segment in two at a key. left: how many keys the second seems to have. Returns the
   second segment, or NULL if there is no memory. */
static dlpi_s3_segment *dlpi_s3_list_cut(dlp_s3_list *l, dlpi_s3_segment *s,
                                         const dlpi_s3_key *split, double left) {
    dlpi_s3_segment *more = dlpi_s3_segment_new();
    if (!more) return NULL;
    more->next = s->next;
    more->low = *split;
    more->split = true;
    more->high = s->high;
    more->bounded = s->bounded;
    more->left = left;
    s->next = more;
    s->high = *split;
    s->bounded = true;
    l->segments++;
    return more;
}

/* Split the segment behind groups of keys that begin as its last page does, at most n times. from:
   bytes that all of its keys share. Returns whether it was split. */
static bool dlpi_s3_list_ladder(dlp_s3_list *l, dlpi_s3_segment *s, size_t from, uint32_t n) {
    dlpi_s3_segment *at = s;
    dlpi_s3_key *split = &l->last[0];
    for (uint32_t i = 0; i < n && at; i++) {
        size_t steps = s->same - from, bytes;
        if (i >= steps) break;
        bytes = from + 1 + (steps <= n ? steps - 1 - i : (n - 1 - i) * steps / n);
        if (dlpi_s3_split_behind(dlpi_s3_key_span(&s->last), at->bounded ? &at->high : NULL, bytes,
                                 split) &&
            (at == s ||
             dlpi_s3_span_order(dlpi_s3_key_span(split), dlpi_s3_key_span(&at->low)) > 0))
            at = dlpi_s3_list_cut(l, at, split, DLPI_S3_LEFT_UNKNOWN);
    }
    s->left = 0; /* until its next page */
    return at != s;
}

/* Split the segment into at most n more. Returns false if that was not possible. */
static bool dlpi_s3_list_split(dlp_s3_list *l, dlpi_s3_segment *s, uint32_t n) {
    dlpi_s3_span low = dlpi_s3_key_span(s->pages > 0 ? &s->last : &s->low);
    const dlpi_s3_key *high = s->bounded ? &s->high : NULL;
    size_t from = high ? dlpi_s3_span_common(low, dlpi_s3_key_span(high)) : strlen(l->prefix);
    if (s->pages > 0 && s->same >= from + 4) return dlpi_s3_list_ladder(l, s, from, n);
    dlpi_s3_alphabet_learn(&l->alphabet, low, from, false);
    if (high) dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_key_span(high), from, false);
    if (!dlpi_s3_split_middle(&l->alphabet, low, high, from, &l->last[0])) return false;
    if (!dlpi_s3_list_cut(l, s, &l->last[0], s->left / 2)) return false;
    s->left /= 2;
    return true;
}

/* True if the segment, the i-th, may have a page under way. Segments behind the first may not while
   too many bytes are kept before their turn. */
static bool dlpi_s3_list_may(const dlp_s3_list *l, const dlpi_s3_segment *s, uint32_t i) {
    if (s->state != DLPI_S3_SEGMENT_WANTS && s->state != DLPI_S3_SEGMENT_ASKED) return false;
    return s == l->first || l->held < DLPI_S3_LIST_HOLD / 2 ||
           (i < l->most && l->held < DLPI_S3_LIST_HOLD);
}

/* Return the segment that seems to have most keys left, or NULL if none is worth a split. *out gets
   the number of pages that may still be asked for. */
static dlpi_s3_segment *dlpi_s3_list_longest(const dlp_s3_list *l, uint32_t *out) {
    dlpi_s3_segment *longest = NULL;
    uint32_t i = 0, under_way = 0;
    for (dlpi_s3_segment *s = l->first; s; s = s->next, i++) {
        if (!dlpi_s3_list_may(l, s, i)) continue;
        under_way++;
        if (s->whole || s->left < 3.0 * l->page ||
            (s->pages == 0 && s->left >= DLPI_S3_LEFT_UNKNOWN / 4))
            continue;
        if (!longest || s->left > longest->left) longest = s;
    }
    *out = under_way < l->most ? l->most - under_way : 0;
    if (l->segments >= 4 * l->most || l->asked + under_way >= 2 * (l->useful + l->most)) *out = 0;
    return *out > 0 ? longest : NULL;
}

/* Split segments until as many pages can be asked for as are allowed at once. */
static void dlpi_s3_list_spread(dlp_s3_list *l) {
    dlpi_s3_segment *s;
    uint32_t n;
    dlpi_s3_list_join(l);
    while (l->most > 1 && (s = dlpi_s3_list_longest(l, &n)) != NULL)
        s->whole = !dlpi_s3_list_split(l, s, n);
}

/* ---- Requests. */

/* Write the query of the segment's next page, its parameters in the order of their names. */
static void dlpi_s3_list_query(const dlp_s3_list *l, const dlpi_s3_segment *s, char *to) {
    dlpi_s3_out o = {to, DLPI_S3_LIST_QUERY, 0};
    char page[16];
    snprintf(page, sizeof page, "%d", (int)l->page);
    dlpi_s3_out_param(&o, "continuation-token", s->token);
    dlpi_s3_out_param(&o, "delimiter", l->delimiter);
    dlpi_s3_out_param(&o, "encoding-type", "url");
    dlpi_s3_out_param(&o, "list-type", "2");
    dlpi_s3_out_param(&o, "max-keys", page);
    dlpi_s3_out_param(&o, "prefix", l->prefix);
    if (!s->token[0]) dlpi_s3_out_param(&o, "start-after", s->split ? s->low.at : l->start_after);
    dlpi_s3_out_end(&o);
}

/* Tell in *err (if not NULL) what is wrong with the segment's next page. Returns code. */
static int dlpi_s3_list_bad(const dlp_s3_list *l, const dlpi_s3_segment *s, int code,
                            dlp_s3_error *err, const char *what) {
    char place[120] = "";
    if (!err) return code;
    memset(err, 0, sizeof *err);
    dlpi_s3_copy(err->bucket, sizeof err->bucket, l->bucket);
    if (s->split || s->last.bytes > 0)
        snprintf(place, sizeof place, " behind '%.40s'", s->last.bytes ? s->last.at : s->low.at);
    dlpi_s3_set_error(err, code, 0, "page %llu of the list%s: %s%s",
                      (unsigned long long)s->pages + 1, place, what,
                      code == DLP_ERR_REMOTE ? "; check the endpoint" : "");
    dlpi_s3_one_line(err->message);
    return code;
}

/* Return a record for a page request, with room for the answer, or NULL if there is no memory. */
static dlpi_s3_page_request *dlpi_s3_list_ask_new(dlp_s3_list *l) {
    dlpi_s3_page_request *a = l->asks;
    while (a && a->of) a = a->next;
    if (!a) {
        a = (dlpi_s3_page_request *)calloc(1, sizeof *a);
        if (!a) return NULL;
        a->next = l->asks;
        l->asks = a;
    }
    if (a->size >= l->room) return a;
    free(a->body);
    a->body = (char *)malloc(l->room);
    a->size = a->body ? l->room : 0;
    return a->body ? a : NULL;
}

/* Send the request for the segment's next page. Returns DLP_OK, DLP_ERR_MEMORY, or a code of
   dlpi_s3_submit, such as DLP_FULL. */
static int dlpi_s3_list_ask(dlp_s3_list *l, dlpi_s3_segment *s, dlp_s3_error *err) {
    dlpi_s3_page_request *a = dlpi_s3_list_ask_new(l);
    int rc;
    if (!a) return dlpi_s3_list_bad(l, s, DLP_ERR_MEMORY, err, "no memory for the answer");
    memset(&a->r, 0, sizeof a->r);
    a->r.bucket = l->bucket, a->r.key = "", a->r.query = a->query;
    a->r.body = a->body, a->r.capacity = a->size;
    a->r.user = a;
    dlpi_s3_list_query(l, s, a->query);
    rc = dlpi_s3_submit(l->io, &a->r, &l->over);
    if (rc == DLP_OK) {
        a->of = s;
        s->state = DLPI_S3_SEGMENT_ASKED;
        l->asked++;
    } else if (err) {
        *err = a->r.error;
        if (!err->code) err->code = rc; /* FULL: not of this request */
    }
    return rc;
}

/* Send page requests for all segments that may have one. Returns DLP_OK if any page is under way,
   else the code of what failed. */
static int dlpi_s3_list_ask_all(dlp_s3_list *l, dlp_s3_error *err) {
    uint32_t i = 0;
    int rc = DLP_OK;
    for (dlpi_s3_segment *s = l->first; s && rc == DLP_OK && l->over.out < l->most; s = s->next)
        if (dlpi_s3_list_may(l, s, i++) && s->state == DLPI_S3_SEGMENT_WANTS)
            rc = dlpi_s3_list_ask(l, s, err);
    return l->over.out > 0 || l->over.first ? DLP_OK : rc;
}

/* Cancel all page requests of the list. */
static void dlpi_s3_list_cancel(dlp_s3_list *l) {
    while (dlpi_s3_over_take(&l->over)) continue;
    for (dlpi_s3_page_request *a = l->asks; a; a = a->next) {
        if (a->r.internal) dlpi_s3_op_leave(l->io, (dlpi_s3_op *)a->r.internal);
        a->of = NULL;
    }
}

/* Begin the list again in one segment, page after page, because the server does not list from a key
   on. Keys that were given out are passed over. */
static void dlpi_s3_list_serial(dlp_s3_list *l, const char *why) {
    dlpi_s3_segment *s = l->first;
    dlpi_s3_say(l->io, "s3: %s: the server cannot list from a key on (%s): page after page, then",
                l->bucket, why);
    dlpi_s3_list_cancel(l);
    dlpi_s3_list_given(l, s);
    l->upto = l->given;
    while (l->first->next) dlpi_s3_list_drop(l);
    s = l->first;
    while (s->blocks) dlpi_s3_list_drop_block(l, s);
    memset(s, 0, sizeof *s);
    l->most = 1;
}

/* Note that the request of a page failed. The segment tells it when its turn comes; but if the
   server refuses to start at a split, the list goes on page after page. */
static void dlpi_s3_list_failed(dlp_s3_list *l, dlpi_s3_page_request *a) {
    dlpi_s3_segment *s = a->of;
    int status = a->r.error.http_status;
    size_t n;
    if (s->split && s->pages == 0 && (status == 400 || status == 501)) {
        dlpi_s3_list_serial(l, a->r.error.message);
        return;
    }
    s->state = DLPI_S3_SEGMENT_FAILED;
    s->error = a->r.error;
    n = strlen(s->error.message);
    if (s->last.bytes > 0 || s->split)
        snprintf(s->error.message + n, sizeof s->error.message - n, "; page behind '%.100s'",
                 s->last.bytes > 0 ? s->last.at : s->low.at);
    dlpi_s3_one_line(s->error.message);
}

/* Take in the end of a page's request. If the answer did not fit, the next request has more room:
   as much as the answer takes, or twice as much if the server does not tell. */
static void dlpi_s3_list_came(dlp_s3_list *l, dlpi_s3_page_request *a) {
    uint64_t want = a->r.object_bytes > 0 ? a->r.object_bytes : 2 * (uint64_t)a->size;
    dlpi_s3_segment *s = a->of;
    const char *wrong;
    int code = DLP_ERR_REMOTE;
    s->state = DLPI_S3_SEGMENT_WANTS;
    if (a->r.code == DLP_ERR_LENGTH && want > a->size && want <= DLPI_S3_PAGE_MOST) {
        while (l->room < want) l->room *= 2;
    } else if (a->r.code == DLP_ERR_LENGTH && want > DLPI_S3_PAGE_MOST) {
        s->state = DLPI_S3_SEGMENT_FAILED;
        dlpi_s3_list_bad(l, s, DLP_ERR_LIMIT, &s->error,
                         "the answer is larger than 16 MiB; lower page");
    } else if (a->r.code != DLP_OK) {
        dlpi_s3_list_failed(l, a);
    } else if ((wrong = dlpi_s3_list_take(l, s, a->body, (size_t)a->r.received)) != NULL) {
        if (l->ignored) {
            dlpi_s3_list_serial(l, wrong);
        } else {
            if (wrong == dlpi_s3_page_memory) code = DLP_ERR_MEMORY;
            s->state = DLPI_S3_SEGMENT_FAILED;
            dlpi_s3_list_bad(l, s, code, &s->error, wrong);
        }
    }
    a->of = NULL;
}

/* Ask for pages, and take in those that have come. wait: wait until at least one comes. Returns
   DLP_OK, or the code of what failed. */
static int dlpi_s3_list_work(dlp_s3_list *l, bool wait, dlp_s3_error *err) {
    dlp_s3_request *r;
    int rc;
    l->io->now = dlpi_s3_now_ns();
    if (l->io->pid != getpid())
        return dlpi_s3_list_bad(l, l->first, DLP_ERR_FORKED, err,
                                "this is a fork; open an io of its own here");
    dlpi_s3_list_spread(l);
    rc = dlpi_s3_list_ask_all(l, err);
    if (rc != DLP_OK) return rc;
    while (l->over.out > 0 && !l->over.first) {
        int errnum = dlpi_s3_turn(l->io, wait ? UINT64_MAX : l->io->now);
        if (errnum != 0 && !l->over.first)
            return dlpi_s3_list_bad(l, l->first, DLP_ERR_SYSTEM, err, strerror(errnum));
        if (!wait) break;
    }
    while ((r = dlpi_s3_over_take(&l->over)) != NULL)
        dlpi_s3_list_came(l, (dlpi_s3_page_request *)r->user);
    return DLP_OK;
}

/* ---- Calls. */

/* Copy the texts of a desc. Returns NULL or an error text. */
static const char *dlpi_s3_list_texts(dlp_s3_list *l, const dlp_s3_list_desc *d) {
    if (!dlpi_s3_copy(l->bucket, sizeof l->bucket, d->bucket))
        return "bucket: must have at most 255 bytes";
    if (d->prefix && !dlpi_s3_copy(l->prefix, sizeof l->prefix, d->prefix))
        return "prefix: must have at most 1,024 bytes";
    if (d->delimiter && !dlpi_s3_copy(l->delimiter, sizeof l->delimiter, d->delimiter))
        return "delimiter: must have at most 1,024 bytes";
    if (d->start_after && !dlpi_s3_copy(l->start_after, sizeof l->start_after, d->start_after))
        return "start_after: must have at most 1,024 bytes";
    return NULL;
}

/* Return how many pages to ask for at once, of an io's requests. It is 1 with any_order, and with a
   delimiter, since splits would fall into common prefixes. */
static uint32_t dlpi_s3_list_most(const dlp_s3_list_desc *d, uint32_t requests) {
    uint32_t most = requests / 2 < DLPI_S3_LIST_REQUESTS ? requests / 2 : DLPI_S3_LIST_REQUESTS;
    if (d->any_order || (d->delimiter && d->delimiter[0])) return 1;
    if (d->requests > 0) most = (uint32_t)d->requests < requests ? (uint32_t)d->requests : requests;
    return most > 0 ? most : 1;
}

DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err) {
    dlp_s3_list *l;
    const char *wrong = !out    ? "out is NULL"
                        : !io   ? "io is NULL; use dlp_s3_io_open"
                        : !desc ? "desc is NULL"
                                : NULL;
    if (err) memset(err, 0, sizeof *err);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    if (!desc->bucket || !desc->bucket[0])
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: is missing; name one");
    wrong = dlpi_s3_bucket_beyond(&io->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    if (desc->page < 0 || desc->page > 1000)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "page: is %d, must be 0..1000",
                                 (int)desc->page);
    if (desc->requests < 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "requests: is %d, must be 0 or more",
                                 (int)desc->requests);
    l = calloc(1, sizeof *l);
    if (l) l->first = dlpi_s3_segment_new();
    if (!l || !l->first) {
        free(l);
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, 0, "no memory for a list");
    }
    l->io = io;
    l->segments = 1;
    l->page = desc->page > 0 ? desc->page : 1000;
    l->any_order = desc->any_order != 0;
    l->most = dlpi_s3_list_most(desc, io->n_ops);
    l->room = DLPI_S3_PAGE_FIRST;
    wrong = dlpi_s3_list_texts(l, desc);
    if (wrong) {
        dlp_s3_list_close(l);
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    }
    *out = l;
    return DLP_OK;
}

DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err) {
    if (!list || !out) {
        if (err) memset(err, 0, sizeof *err);
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, list ? "out is NULL" : "list is NULL");
    }
    for (;;) {
        dlpi_s3_segment *s = list->first;
        bool wait;
        int rc;
        if (s->blocks && dlpi_s3_block_take(s->blocks, out)) return DLP_OK;
        if (s->blocks) {
            dlpi_s3_list_given(list, s);
            dlpi_s3_list_drop_block(list, s);
        } else if (s->state == DLPI_S3_SEGMENT_OVER) {
            if (!s->next) return DLP_END;
            dlpi_s3_list_drop(list);
            continue;
        } else if (s->state == DLPI_S3_SEGMENT_FAILED) {
            s->state = DLPI_S3_SEGMENT_WANTS;
            if (err) *err = s->error;
            return s->error.code;
        }
        wait = !s->blocks && s->state < DLPI_S3_SEGMENT_FAILED;
        rc = dlpi_s3_list_work(list, wait, err);
        if (rc != DLP_OK && wait) return rc;
    }
}

DLPDEF void dlp_s3_list_close(dlp_s3_list *list) {
    if (!list) return;
    if (list->over.out > 0 && list->io->pid == getpid()) dlpi_s3_list_cancel(list);
    while (list->first) dlpi_s3_list_drop(list);
    while (list->asks) {
        dlpi_s3_page_request *next = list->asks->next;
        free(list->asks->body);
        free(list->asks);
        list->asks = next;
    }
    free(list->now.run[0].at);
    free(list->now.run[1].at);
    free(list);
}
