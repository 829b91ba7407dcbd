#pragma once
/* tests: system/s3/s3_list, fuzz/fuzz_s3 */
#include "s3/client.h"
#include "s3/page.h"
/* ---- lists ---- */

#define DLPI_S3_PAGE_FIRST (256u << 10) /* bytes for an answer at first; */
#define DLPI_S3_PAGE_MOST (16u << 20)   /* at most: 1,000 keys of 1,024 escaped bytes are 4 MiB */
#define DLPI_S3_LIST_QUERY (3 * (3 * DLPI_S3_LIST_TEXT + DLPI_S3_TOKEN) + 256)

#ifndef DLPI_S3_LIST_EMPTY
#define DLPI_S3_LIST_EMPTY 10000 /* so many pages without a key are no list */
#endif

enum { DLPI_S3_LIST_WANTS = 0, DLPI_S3_LIST_HAS, DLPI_S3_LIST_OVER };

struct dlp_s3_list {
    dlp_s3_io *io;
    char bucket[256];
    char prefix[DLPI_S3_LIST_TEXT + 1], delimiter[DLPI_S3_LIST_TEXT + 1];
    char start_after[DLPI_S3_LIST_TEXT + 1];
    int32_t page, state;
    bool any_order;            /* of keys */
    bool truncated;            /* there are more pages */
    char token[DLPI_S3_TOKEN]; /* of the next page to be fetched; "": the first */
    char query[DLPI_S3_LIST_QUERY];
    uint64_t pages, mark;           /* pages fetched; the page when marked was taken */
    uint32_t empty;                 /* pages without a key, one after the other */
    dlpi_s3_key last[3];            /* of this page's objects, its prefixes, and the pages before */
    uint8_t before[32], marked[32]; /* hashes of two tokens that no page may give again */
    char *body;
    size_t size, bytes;
    dlpi_s3_page now;    /* as it was parsed last */
    dlpi_s3_block *here; /* the page whose records are given out; NULL: none */
    char why[200];       /* what is wrong with a key of the page */
};

/* Say what is wrong with a page. */
static int dlpi_s3_list_bad(const dlp_s3_list *l, int code, dlp_s3_error *err, const char *what) {
    if (!err) return code;
    memset(err, 0, sizeof *err);
    dlpi_s3_copy(err->bucket, sizeof err->bucket, l->bucket);
    return dlpi_s3_set_error(err, code, 0, "page %llu of the list: %s",
                             (unsigned long long)l->pages + 1, what);
}

/* ---- A page. */

/* Compare a key with the one before it, and keep it. Returns whether it may come now. */
static bool dlpi_s3_list_follows(const dlp_s3_list *l, dlpi_s3_span key, dlpi_s3_key *last) {
    int order = last->bytes > 0 ? dlpi_s3_span_order(key, dlpi_s3_key_span(last)) : 1;
    if (order == 0 || (order < 0 && !l->any_order)) return false;
    dlpi_s3_key_set(last, key);
    return true;
}

/* Hold a key against the request: it begins with prefix, and lies behind start_after. A common
   prefix may be the beginning of start_after, since some of its keys lie behind. Returns NULL, or
   what is wrong. */
static const char *dlpi_s3_list_asked(dlp_s3_list *l, dlpi_s3_span key, bool is_prefix) {
    dlpi_s3_span after = {l->start_after, strlen(l->start_after)};
    const char *field = NULL;
    if (strncmp(key.at, l->prefix, strlen(l->prefix)) != 0)
        field = "prefix";
    else if (after.n > 0 && !l->any_order && dlpi_s3_span_order(key, after) <= 0 &&
             !(is_prefix && key.n < after.n && memcmp(key.at, after.at, key.n) == 0))
        field = "start_after";
    if (!field) return NULL;
    snprintf(l->why, sizeof l->why, "key '%.100s' was not asked for, by %s", key.at, field);
    dlpi_s3_one_line(l->why);
    return l->why;
}

/* Decode and check the records of one kind. last: in: of the pages before, out: of this one.
   Returns NULL, or what is wrong. */
static const char *dlpi_s3_list_check(dlp_s3_list *l, int kind, dlpi_s3_key *last) {
    dlpi_s3_run *run = &l->now.run[kind];
    const char *wrong = dlpi_s3_run_decode(run, l->now.escaped);
    dlpi_s3_record r;
    for (size_t at = 0; !wrong && at < run->n; at += dlpi_s3_record_size(&r)) {
        dlpi_s3_span key = dlpi_s3_record_at(run->at + at, &r);
        if (!dlpi_s3_list_follows(l, key, last))
            return "keys that come twice, or are not in order (any_order takes these)";
        wrong = dlpi_s3_list_asked(l, key, r.is_prefix);
    }
    return wrong;
}

/* The last key of a page that was taken is that of its objects, or that of its prefixes. */
static void dlpi_s3_list_goes(dlp_s3_list *l) {
    dlpi_s3_span objects = {l->last[0].at, l->last[0].bytes};
    dlpi_s3_span prefixes = {l->last[1].at, l->last[1].bytes};
    l->last[2] = l->last[dlpi_s3_span_order(objects, prefixes) < 0];
}

/* Refuse a token that leads back, or a list would have no end: the one before, and one that is
   taken again at the pages 1, 2, 4, 8.. (Brent 1980), which finds circles of any length. */
static bool dlpi_s3_list_turns(dlp_s3_list *l, const char *token) {
    uint8_t hash[32];
    dlpi_s3_sha256(token, strlen(token), hash);
    if (l->pages > 0 && (memcmp(hash, l->before, 32) == 0 || memcmp(hash, l->marked, 32) == 0))
        return true;
    memcpy(l->before, hash, sizeof hash);
    if (l->pages < l->mark) return false;
    memcpy(l->marked, hash, sizeof hash);
    l->mark = l->pages == 0 ? 1 : 2 * l->pages;
    return false;
}

/* Take in the page that has come to l->body. Returns NULL, or what is wrong; then the same page can
   be asked for again. */
static const char *dlpi_s3_list_take(dlp_s3_list *l) {
    dlpi_s3_page *p = &l->now;
    const char *wrong = dlpi_s3_page_parse(p, l->body, l->bytes);
    dlpi_s3_block *here = NULL;
    l->last[0] = l->last[1] = l->last[2];
    if (!wrong) wrong = dlpi_s3_list_check(l, DLPI_S3_OBJECTS, &l->last[0]);
    if (!wrong) wrong = dlpi_s3_list_check(l, DLPI_S3_PREFIXES, &l->last[1]);
    if (!wrong && !(here = dlpi_s3_page_merge(p))) wrong = dlpi_s3_page_memory;
    if (!wrong && p->truncated && dlpi_s3_list_turns(l, p->token))
        wrong = "the server repeats a NextContinuationToken";
    if (!wrong) l->empty = here->n > 0 ? 0 : l->empty + 1;
    if (!wrong && l->empty >= DLPI_S3_LIST_EMPTY)
        wrong = "page after page without a key, and no end";
    if (wrong) {
        free(here);
        return wrong;
    }
    l->here = here;
    l->truncated = p->truncated;
    memcpy(l->token, p->token, sizeof l->token);
    dlpi_s3_list_goes(l);
    l->pages++;
    l->state = DLPI_S3_LIST_HAS;
    return NULL;
}

/* ---- Requests. */

static void dlpi_s3_list_param(dlpi_s3_out *o, const char *name, const char *value) {
    if (!value[0]) return;
    if (o->n > 0) dlpi_s3_out_add(o, "&", 1);
    dlpi_s3_out_adds(o, name);
    dlpi_s3_out_add(o, "=", 1);
    dlpi_s3_out_escaped(o, value);
}

/* Write the query of the next page, its names in order. */
static void dlpi_s3_list_query(dlp_s3_list *l) {
    dlpi_s3_out o = {l->query, sizeof l->query, 0};
    char page[16];
    snprintf(page, sizeof page, "%d", (int)l->page);
    dlpi_s3_list_param(&o, "continuation-token", l->token);
    dlpi_s3_list_param(&o, "delimiter", l->delimiter);
    dlpi_s3_list_param(&o, "encoding-type", "url");
    dlpi_s3_list_param(&o, "list-type", "2");
    dlpi_s3_list_param(&o, "max-keys", page);
    dlpi_s3_list_param(&o, "prefix", l->prefix);
    if (!l->token[0]) dlpi_s3_list_param(&o, "start-after", l->start_after);
    dlpi_s3_out_end(&o);
}

/* Make room for at least want bytes of an answer. What was there is not kept. */
static int dlpi_s3_list_room(dlp_s3_list *l, uint64_t want, dlp_s3_error *err) {
    size_t size = l->size > 0 ? l->size : DLPI_S3_PAGE_FIRST;
    char *body;
    if (want > DLPI_S3_PAGE_MOST)
        return dlpi_s3_list_bad(l, DLP_ERR_LIMIT, err, "the answer is larger than 16 MiB");
    while (size < want) size *= 2;
    if (size == l->size) return DLP_OK;
    body = malloc(size);
    if (!body) return dlpi_s3_list_bad(l, DLP_ERR_MEMORY, err, "no memory for the answer");
    free(l->body);
    l->body = body;
    l->size = size;
    return DLP_OK;
}

/* Fetch the next page, with more room as long as it does not fit: as much as it takes, or twice as
   much where the server does not tell. */
static int dlpi_s3_list_fetch(dlp_s3_list *l, dlp_s3_error *err) {
    uint64_t want = 1;
    dlp_s3_request r;
    const char *wrong;
    int rc;
    dlpi_s3_list_query(l);
    for (;;) {
        rc = dlpi_s3_list_room(l, want, err);
        if (rc != DLP_OK) return rc;
        memset(&r, 0, sizeof r);
        r.method = DLP_S3_GET;
        r.bucket = l->bucket, r.key = "", r.query = l->query;
        r.body = l->body, r.capacity = l->size;
        rc = dlp_s3_do(l->io, &r);
        want = r.object_bytes > 0 ? r.object_bytes : 2 * (uint64_t)l->size;
        if (rc != DLP_ERR_LENGTH || want <= l->size) break;
    }
    if (rc != DLP_OK) {
        if (err) *err = r.error;
        if (err && !err->code) err->code = rc; /* FULL, FORKED: not of this request */
        return rc;
    }
    l->bytes = (size_t)r.received;
    wrong = dlpi_s3_list_take(l);
    if (!wrong) return DLP_OK;
    return dlpi_s3_list_bad(l, wrong == dlpi_s3_page_memory ? DLP_ERR_MEMORY : DLP_ERR_REMOTE, err,
                            wrong);
}

/* ---- Calls. */

static int dlpi_s3_list_refuse(dlp_s3_error *err, int code, const char *what) {
    if (err) memset(err, 0, sizeof *err);
    return dlpi_s3_set_error(err, code, 0, "%s", what);
}

/* Copy what of a description is given. Returns NULL, or what is wrong. */
static const char *dlpi_s3_list_texts(dlp_s3_list *l, const dlp_s3_list_desc *d) {
    if (!dlpi_s3_copy(l->bucket, sizeof l->bucket, d->bucket)) return "bucket is too long";
    if (d->prefix && !dlpi_s3_copy(l->prefix, sizeof l->prefix, d->prefix))
        return "prefix is longer than 1,024 bytes";
    if (d->delimiter && !dlpi_s3_copy(l->delimiter, sizeof l->delimiter, d->delimiter))
        return "delimiter is longer than 1,024 bytes";
    if (d->start_after && !dlpi_s3_copy(l->start_after, sizeof l->start_after, d->start_after))
        return "start_after is longer than 1,024 bytes";
    return NULL;
}

DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err) {
    dlp_s3_list *l;
    const char *wrong;
    if (!out || !io || !desc || !desc->bucket || !desc->bucket[0])
        return dlpi_s3_list_refuse(err, DLP_ERR_ARG, "a list needs out, io, desc and a bucket");
    wrong = dlpi_s3_bucket_beyond(&io->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    if (desc->page < 0 || desc->page > 1000)
        return dlpi_s3_list_refuse(err, DLP_ERR_ARG, "page is none of 0..1000");
    l = calloc(1, sizeof *l);
    if (!l) return dlpi_s3_list_refuse(err, DLP_ERR_MEMORY, "no memory for a list");
    wrong = dlpi_s3_list_texts(l, desc);
    if (wrong) {
        free(l);
        return dlpi_s3_list_refuse(err, DLP_ERR_ARG, wrong);
    }
    l->io = io;
    l->page = desc->page > 0 ? desc->page : 1000;
    l->any_order = desc->any_order != 0;
    *out = l;
    return DLP_OK;
}

DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err) {
    if (!list || !out) return dlpi_s3_list_refuse(err, DLP_ERR_ARG, "no list, or no object");
    for (;;) {
        int rc;
        if (list->here && dlpi_s3_block_take(list->here, out)) return DLP_OK;
        free(list->here);
        list->here = NULL;
        if (list->state == DLPI_S3_LIST_HAS)
            list->state = list->truncated ? DLPI_S3_LIST_WANTS : DLPI_S3_LIST_OVER;
        if (list->state == DLPI_S3_LIST_OVER) return DLP_END;
        rc = dlpi_s3_list_fetch(list, err);
        if (rc != DLP_OK) return rc;
    }
}

DLPDEF void dlp_s3_list_close(dlp_s3_list *list) {
    if (!list) return;
    free(list->here);
    free(list->now.run[0].at);
    free(list->now.run[1].at);
    free(list->body);
    free(list);
}
