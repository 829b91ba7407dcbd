#pragma once
/* tests: system/s3/s3_list, system/s3/s3_list_split, fuzz/fuzz_s3 */
#include "s3/client.h"
#include "s3/split.h"
/* ---- lists ----
   A list is a chain of segments, in the order of their keys. A segment is a range of keys: those
   behind a split, up to and with the next split. There is one segment at first. It stays the only
   one, unless the store is known to sort its lists or the user has set requests. If fewer pages are
   under way than may be, the segment with most keys left is split. The new segment asks for its
   first page at once. The records of the first segment are given out; those of others are kept as
   blocks.

   A segment reads on until it sees a key behind its bound, or the end of the list. The key must be
   the first key that the next segment has seen. This is the seam of the two. If the seam holds, the
   server goes on behind the split as it would have gone on without it. So all segments together are
   the list that comes page after page. If it does not hold, the segment in front goes on over the
   range of the next one, which is dropped. No segment is split after that. A server that walks a
   tree of folders breaks seams. For it a split "a" lies behind all keys of the folder "a", and a
   split "a//" makes it name keys that do not exist.

   If the server does not start behind a split, or has keys there in another order, the segments
   behind the first one are dropped. If the first one itself began at a split and goes wrong, the
   list begins again, page after page. Keys that were given out are then passed over.

   A segment wastes at most one page: its last, which may have keys of the next segment. As many
   pages may be wasted as were given out, and twice l->most more. So a list takes at most twice as
   many pages as it has, and 2 * l->most. */

#define DLPI_S3_PAGE_FIRST (256u << 10) /* bytes for an answer at first; */
#define DLPI_S3_PAGE_MOST (16u << 20)   /* at most: 1,000 keys of 1,024 escaped bytes are 4 MiB */
#define DLPI_S3_LIST_QUERY (3 * (3 * DLPI_S3_LIST_TEXT + DLPI_S3_TOKEN) + 256)
#define DLPI_S3_LIST_REQUESTS 32
#define DLPI_S3_LEFT_UNKNOWN 1e300 /* keys, or a few times fewer */
#define DLPI_S3_NO_LEVEL SIZE_MAX
#define DLPI_S3_LIST_SURVEYS 64 /* of one list */

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
    bool bounded;              /* it ends at high, which is its own */
    bool split;                /* it begins behind a split, at low; else behind start_after */
    bool whole;                /* no split was found since its last page */
    bool ended;                /* the server has told that no key follows its last page */
    bool sealed;               /* OVER: its seam with the next segment holds */
    bool surveyed;             /* a survey of its range is under way */
    double left;               /* keys that it seems to have left; DLPI_S3_LEFT_UNKNOWN */
    size_t same;               /* bytes that all keys of its last page begin with */
    size_t level;              /* bytes of the folder to survey; DLPI_S3_NO_LEVEL: none */
    uint64_t groups;           /* folders of that level in its last page */
    uint64_t survey;           /* hash of the folder that was surveyed last; 0: none */
    size_t root;               /* bytes of a folder that all of its keys are in; 0: not known */
    char token[DLPI_S3_TOKEN]; /* of its next page; "": the first */
    uint64_t pages, mark;      /* pages that came; the page when marked was taken */
    uint32_t empty;            /* pages without a key, one after the other */
    uint8_t before[32], marked[32]; /* hashes of two tokens that no page may give again */
    dlpi_s3_block *blocks, *blocks_last;
    dlpi_s3_block *behind; /* OVER: records of its last page that lie behind high; NULL: none */
    dlpi_s3_key low, high, last; /* last: its last key so far */
    dlp_s3_error error;          /* FAILED */
} dlpi_s3_segment;

/* A page that is asked for. */
typedef struct dlpi_s3_page_request {
    struct dlpi_s3_page_request *next; /* of the list's */
    dlpi_s3_segment *of;               /* NULL: it is free */
    bool survey;                       /* it asks for the folders of a level, no page of keys */
    bool left;                         /* nobody wants what comes; of is gone */
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
    uint32_t most;   /* pages asked for at once; */
    uint32_t wanted; /* so many as soon as the store is known to sort its lists */
    bool any_order;  /* of keys */
    bool astray;     /* the last page shows that the server does not list from a split on */
    bool settled;    /* a seam did not hold: no more splits */
    dlpi_s3_over over;
    dlpi_s3_page_request *asks;
    dlpi_s3_segment *first;
    uint64_t asked;       /* pages and surveys */
    uint64_t kept, told;  /* keys of blocks; those that were given out */
    uint64_t full;        /* keys of the fullest page */
    uint64_t held;        /* bytes of blocks */
    dlpi_s3_block *marks; /* folders that surveys have found: where to split. keys: so many of them
                             are in a page */
    uint32_t segments, surveys;
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
    l->astray = s->split;
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
            dlpi_s3_one_line(l->why);
            l->astray = s->split;
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

/* Count the folders of a level, and the keys in none of them, in a block. n: bytes of the level's
   name, with which all keys begin. */
static uint64_t dlpi_s3_block_groups(const dlpi_s3_block *b, size_t n) {
    dlpi_s3_span last = {"", 0};
    dlpi_s3_record r;
    uint64_t groups = 0;
    for (size_t at = 0; at < b->n; at += dlpi_s3_record_size(&r)) {
        dlpi_s3_span key = dlpi_s3_record_at(b->records + at, &r);
        const char *slash = memchr(key.at + n, '/', key.n - n);
        if (slash) key.n = (size_t)(slash - key.at) + 1;
        groups += dlpi_s3_span_order(key, last) != 0;
        last = key;
    }
    return groups;
}

/* Return the bytes of a key's folder, in its first n bytes: up to the last '/', or least. */
static size_t dlpi_s3_folder(dlpi_s3_span key, size_t n, size_t least) {
    while (n > least && key.at[n - 1] != '/') n--;
    return n;
}

/* Choose the folder whose folders may be good splits of the segment. It is the one above the folder
   that its last page lies in. If the segment has no key outside of the latter, it is the latter.
   Returns the bytes of its name, or DLPI_S3_NO_LEVEL. */
static size_t dlpi_s3_list_level(const dlp_s3_list *l, const dlpi_s3_segment *s) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last);
    size_t base = strlen(l->prefix), all = base, in = dlpi_s3_folder(last, s->same, base);
    if (s->bounded)
        all = dlpi_s3_folder(last, dlpi_s3_span_common(last, dlpi_s3_key_span(&s->high)), base);
    if (in > all) return dlpi_s3_folder(last, in - 1, all);
    return memchr(last.at + in, '/', last.n - in) ? in : DLPI_S3_NO_LEVEL;
}

/* Return the key at which the range of the segment ends, or NULL if it ends with all keys that
   share its first bytes. *from: gets the number of these bytes. low: a key of it, or its split. */
static const dlpi_s3_key *dlpi_s3_list_range(const dlp_s3_list *l, const dlpi_s3_segment *s,
                                             dlpi_s3_span low, size_t *from) {
    *from = s->bounded ? dlpi_s3_span_common(low, dlpi_s3_key_span(&s->high)) : strlen(l->prefix);
    if (s->bounded && *from >= s->root) return &s->high;
    if (s->root > 0) *from = s->root;
    return s->root > 0 || !s->bounded ? NULL : &s->high;
}

/* Guess how many keys the segment has left (s->left) by the density of its last page, whose block
   is b. Learn, too, which bytes keys are made of. */
static void dlpi_s3_list_measure(dlp_s3_list *l, dlpi_s3_segment *s, const dlpi_s3_block *b) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last), first;
    const dlpi_s3_key *end;
    dlpi_s3_record r;
    double x, y, z, n = 0;
    size_t from;
    s->whole = false;
    first = dlpi_s3_record_at(b->records, &r);
    s->same = dlpi_s3_span_common(first, last);
    for (size_t at = 0; at < b->n; at += dlpi_s3_record_size(&r), n++)
        dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_record_at(b->records + at, &r), s->same, true);
    end = dlpi_s3_list_range(l, s, first, &from);
    x = dlpi_s3_alphabet_place(&l->alphabet, first, from);
    y = dlpi_s3_alphabet_place(&l->alphabet, last, from);
    z = end ? dlpi_s3_alphabet_place(&l->alphabet, dlpi_s3_key_span(end), from) : 1;
    s->left = y > x && z > y ? (z - y) / (y - x) * n : DLPI_S3_LEFT_UNKNOWN;
    s->level = dlpi_s3_list_level(l, s);
    s->groups = s->level == DLPI_S3_NO_LEVEL ? 1 : dlpi_s3_block_groups(b, s->level);
}

/* Append a block (NULL: none) to the segment's blocks. It is freed if it is empty. */
static void dlpi_s3_segment_add(dlp_s3_list *l, dlpi_s3_segment *s, dlpi_s3_block *b) {
    if (!b || b->n == 0) {
        free(b);
        return;
    }
    if (s->blocks)
        s->blocks_last->next = b;
    else
        s->blocks = b;
    s->blocks_last = b;
    l->held += b->n;
    l->kept += b->keys;
}

/* Move the segment on behind the page that was parsed last: its state, token and last key. The
   page's block b is appended to the segment's blocks. behind: the page's records behind its bound,
   or NULL. */
static void dlpi_s3_segment_on(dlp_s3_list *l, dlpi_s3_segment *s, dlpi_s3_block *b,
                               dlpi_s3_block *behind) {
    const dlpi_s3_key *last = &l->last[0];
    uint64_t keys = b->keys + (behind ? behind->keys : 0);
    if (dlpi_s3_span_order(dlpi_s3_key_span(last), dlpi_s3_key_span(&l->last[1])) < 0)
        last = &l->last[1];
    s->last = *last;
    s->pages++;
    s->ended = !l->now.truncated;
    s->behind = behind;
    s->state = s->ended || behind ? DLPI_S3_SEGMENT_OVER : DLPI_S3_SEGMENT_WANTS;
    memcpy(s->token, l->now.token, sizeof s->token);
    s->left = 0;
    if (keys > l->full) l->full = keys;
    if (s->state != DLPI_S3_SEGMENT_OVER && b->n > 0 && l->most > 1) dlpi_s3_list_measure(l, s, b);
    dlpi_s3_segment_add(l, s, b);
}

/* Parse and check a page of the segment that has come in body, and keep its records. Returns NULL
   or an error text; then the page can be asked for again. */
static const char *dlpi_s3_list_take(dlp_s3_list *l, dlpi_s3_segment *s, const char *body,
                                     size_t n) {
    dlpi_s3_page *p = &l->now;
    const char *wrong = dlpi_s3_page_parse(p, body, n);
    dlpi_s3_block *b = NULL, *behind = NULL;
    l->astray = false;
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_OBJECTS, &l->last[0]);
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_PREFIXES, &l->last[1]);
    if (!wrong && (!(b = dlpi_s3_page_merge(p, &l->upto)) ||
                   (s->bounded && !dlpi_s3_block_cut(b, &s->high, &behind))))
        wrong = dlpi_s3_page_memory;
    if (!wrong && p->truncated && dlpi_s3_segment_loops(s, p->token))
        wrong = "<NextContinuationToken> comes again";
    if (!wrong) s->empty = p->run[0].n + p->run[1].n > 0 ? 0 : s->empty + 1;
    if (!wrong && s->empty >= DLPI_S3_LIST_EMPTY) wrong = "too many pages without a key";
    if (!wrong) {
        dlpi_s3_segment_on(l, s, b, behind);
    } else {
        free(b);
        free(behind);
    }
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

/* Leave the requests of a segment: cancel them, or pass over those that have ended. */
static void dlpi_s3_segment_leave(dlp_s3_list *l, const dlpi_s3_segment *s) {
    for (dlpi_s3_page_request *a = l->asks; a; a = a->next) {
        if (a->of != s || a->left) continue;
        for (const dlp_s3_request *r = l->over.first; r && !a->left;
             r = (const dlp_s3_request *)r->internal)
            a->left = r == &a->r;
        if (a->left) continue;
        dlpi_s3_op_leave(l->io, (dlpi_s3_op *)a->r.internal);
        a->of = NULL;
    }
}

/* Drop all that the segment has, and leave its requests. */
static void dlpi_s3_segment_clear(dlp_s3_list *l, dlpi_s3_segment *s) {
    dlpi_s3_segment_leave(l, s);
    for (; s->blocks; dlpi_s3_list_drop_block(l, s)) l->kept -= s->blocks->keys;
    free(s->behind);
    s->behind = NULL;
}

/* Free the segment to which *at points, which is then the next one. */
static void dlpi_s3_list_drop(dlp_s3_list *l, dlpi_s3_segment **at) {
    dlpi_s3_segment *s = *at;
    dlpi_s3_segment_clear(l, s);
    *at = s->next;
    l->segments--;
    free(s);
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
    more->survey = s->survey;
    more->root = s->root;
    s->next = more;
    s->high = *split;
    s->bounded = true;
    l->segments++;
    return more;
}

/* ---- Seams. */

enum { DLPI_S3_SEAM_OPEN = 0, DLPI_S3_SEAM_HOLDS, DLPI_S3_SEAM_BROKEN };

/* Compare what a segment that is over saw behind its bound with the first key of the next segment.
   The seam is open as long as the next segment has seen neither a key nor the end of the list. */
static int dlpi_s3_seam(const dlpi_s3_segment *s) {
    const dlpi_s3_segment *next = s->next;
    if (s->sealed) return DLPI_S3_SEAM_HOLDS;
    if (!next->blocks && next->state != DLPI_S3_SEGMENT_OVER) return DLPI_S3_SEAM_OPEN;
    return dlpi_s3_span_order(dlpi_s3_block_first(s->behind),
                              dlpi_s3_block_first(next->blocks ? next->blocks : next->behind)) == 0
               ? DLPI_S3_SEAM_HOLDS
               : DLPI_S3_SEAM_BROKEN;
}

/* Join each segment that is over with the next one, if that is over, too, and their seam holds. */
static void dlpi_s3_list_join(dlp_s3_list *l) {
    for (dlpi_s3_segment **at = &l->first, *s, *next; (next = (s = *at)->next) != NULL;) {
        s->sealed = s->state == DLPI_S3_SEGMENT_OVER && dlpi_s3_seam(s) == DLPI_S3_SEAM_HOLDS;
        if (!s->sealed || next->state != DLPI_S3_SEGMENT_OVER) {
            at = &s->next;
            continue;
        }
        if (s->blocks) {
            s->blocks_last->next = next->blocks;
            if (!next->blocks) next->blocks_last = s->blocks_last;
            next->blocks = s->blocks;
            s->blocks = NULL;
        }
        dlpi_s3_list_drop(l, at);
    }
}

/* Go on page after page, because the server does not list from a key on, as a segment shows. The
   segments behind the first one are dropped. If that is the first one and began at a split, the
   list begins again, and keys that were given out are passed over. */
static void dlpi_s3_list_serial(dlp_s3_list *l, const dlpi_s3_segment *at, const char *why) {
    dlpi_s3_segment *s = l->first;
    const bool again = at == s && s->split;
    dlpi_s3_say(l->io, "s3: %s: the server cannot list from a key on (%s): page after page, then",
                l->bucket, why);
    while (s->next) dlpi_s3_list_drop(l, &s->next);
    if (again) {
        dlpi_s3_list_given(l, s);
        l->upto = l->given;
        dlpi_s3_segment_clear(l, s);
        memset(s, 0, sizeof *s);
    } else if (s->bounded) {
        dlpi_s3_segment_add(l, s, s->behind);
        s->behind = NULL;
        s->bounded = false;
        if (s->state == DLPI_S3_SEGMENT_OVER && !s->ended) s->state = DLPI_S3_SEGMENT_WANTS;
    }
    l->most = l->wanted = 1;
}

/* Let the first segment, which is over, go on over the range of the next one, because their seam
   does not hold. Returns DLP_OK or DLP_ERR_MEMORY. */
static int dlpi_s3_list_mend(dlp_s3_list *l) {
    dlpi_s3_segment *s = l->first, *next = s->next;
    dlpi_s3_block *behind = NULL;
    if (!s->behind) { /* the list has ended for it, but not for the next one */
        dlpi_s3_list_serial(l, s, "a list from a key on ends too early");
        return DLP_OK;
    }
    if (next->bounded && !dlpi_s3_block_cut(s->behind, &next->high, &behind)) return DLP_ERR_MEMORY;
    if (!l->settled)
        dlpi_s3_say(l->io,
                    "s3: %s: behind '%.60s' the server lists other keys than from there on: page "
                    "after page, then",
                    l->bucket, s->high.at);
    l->settled = true;
    dlpi_s3_segment_add(l, s, s->behind);
    s->behind = behind;
    s->bounded = next->bounded;
    s->high = next->high;
    s->state = s->ended || behind ? DLPI_S3_SEGMENT_OVER : DLPI_S3_SEGMENT_WANTS;
    dlpi_s3_list_drop(l, &s->next);
    return DLP_OK;
}

/* Pass the seam behind the first segment, which is over and has no records left. Returns DLP_OK;
   DLP_TIMEOUT: it is open; DLP_ERR_MEMORY. */
static int dlpi_s3_list_pass(dlp_s3_list *l) {
    switch (dlpi_s3_seam(l->first)) {
    case DLPI_S3_SEAM_OPEN: return DLP_TIMEOUT;
    case DLPI_S3_SEAM_BROKEN: return dlpi_s3_list_mend(l);
    default: dlpi_s3_list_drop(l, &l->first); return DLP_OK;
    }
}
