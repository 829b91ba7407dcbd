#pragma once
/* tests: system/s3/s3_list, system/s3/s3_list_split, fuzz/fuzz_s3 */
#include "s3/segments.h"
#include "s3/split.h"
/* ---- where a segment is split ----
   A segment is split at folders that exist, if keys have folders. A survey asks for the folders of
   one level behind the segment's last key (delimiter "/"). If there are none in its range, the
   split is made up of bytes that keys have. */

/* Return how many pages more may turn out to be wasted. Each segment that is not over may waste
   one. */
static double dlpi_s3_list_spare(const dlp_s3_list *l) {
    double full = (double)(l->full > 0 ? l->full : (uint64_t)l->page);
    double wasted = (double)l->asked - (double)l->kept / full;
    for (const dlpi_s3_segment *s = l->first; s; s = s->next)
        wasted += (s->state != DLPI_S3_SEGMENT_OVER) - (s->state == DLPI_S3_SEGMENT_ASKED);
    return 2.0 * l->most + (double)l->told / full - wasted;
}

/* Count the folders of a survey that lie in the range of the segment. */
static uint64_t dlpi_s3_list_marked(const dlpi_s3_block *marks, const dlpi_s3_segment *s) {
    dlpi_s3_span low = dlpi_s3_key_span(s->pages > 0 ? &s->last : &s->low);
    dlpi_s3_record r;
    uint64_t n = 0;
    for (size_t at = 0; at < marks->n; at += dlpi_s3_record_size(&r))
        n += dlpi_s3_split_fits(dlpi_s3_record_at(marks->records + at, &r), low,
                                s->bounded ? &s->high : NULL);
    return n;
}

/* Split the segment at folders that surveys have found, into at most n more, a page of keys or more
   in each. Returns whether it was split. */
static bool dlpi_s3_list_at_marks(dlp_s3_list *l, dlpi_s3_segment *s, uint64_t n) {
    const dlpi_s3_block *best = NULL;
    dlpi_s3_segment *at = s;
    dlpi_s3_record r;
    uint64_t fit = 0, i = 0, cuts = 0;
    double share;
    for (const dlpi_s3_block *m = l->marks; m; m = m->next) {
        uint64_t more = dlpi_s3_list_marked(m, s);
        if (more < 2 * m->keys - 1 || (best && more / m->keys <= fit / best->keys)) continue;
        best = m;
        fit = more;
    }
    if (!best) return false;
    if (n > fit / best->keys) n = fit / best->keys;
    share = s->left < DLPI_S3_LEFT_UNKNOWN / 4 ? s->left / (double)(n + 1) : DLPI_S3_LEFT_UNKNOWN;
    s->left = share < DLPI_S3_LEFT_UNKNOWN ? share : 0;
    for (size_t where = 0; where < best->n && at && cuts < n; where += dlpi_s3_record_size(&r)) {
        dlpi_s3_span mark = dlpi_s3_record_at(best->records + where, &r);
        dlpi_s3_span low = dlpi_s3_key_span(at != s || s->pages == 0 ? &at->low : &s->last);
        if (!dlpi_s3_split_fits(mark, low, at->bounded ? &at->high : NULL)) continue;
        if (i++ < (cuts + 1) * fit / (n + 1)) continue;
        dlpi_s3_key_set(&l->last[0], mark);
        at = dlpi_s3_list_cut(l, at, &l->last[0], share);
        cuts++;
    }
    if (best->given && at) at->survey = 0; /* there may be more folders behind the last mark */
    return cuts > 0;
}

static int dlpi_s3_list_ask(dlp_s3_list *l, dlpi_s3_segment *s, size_t level, dlp_s3_error *err);

/* Ask for folders in the range of the segment, if it may have some that no survey has asked for.
   Returns whether that was done. If a survey has found no folder there, its keys are in one. */
static bool dlpi_s3_list_survey(dlp_s3_list *l, dlpi_s3_segment *s) {
    uint64_t survey;
    if (s->pages == 0 || s->level == DLPI_S3_NO_LEVEL || s->last.bytes > DLPI_S3_LIST_TEXT ||
        l->surveys == DLPI_S3_LIST_SURVEYS)
        return false;
    survey = dlpi_s3_http_sum(s->last.at, s->level) | 1;
    if (survey == s->survey) {
        size_t root = dlpi_s3_folder(dlpi_s3_key_span(&s->last), s->same, s->level);
        if (s->groups == 1 && root > s->root) s->root = root;
        return false;
    }
    s->survey = survey;
    return dlpi_s3_list_ask(l, s, s->level, NULL) == DLP_OK;
}

/* Take in the folders of a survey of the segment, as marks. They are left out if they are so small
   that those that came are few pages, and not all. */
static void dlpi_s3_list_surveyed(dlp_s3_list *l, dlpi_s3_segment *s, const char *body, size_t n) {
    dlpi_s3_page *p = &l->now;
    dlpi_s3_block *b;
    if (dlpi_s3_page_parse(p, body, n) || dlpi_s3_run_decode(&p->run[DLPI_S3_PREFIXES], p->escaped))
        return;
    p->run[DLPI_S3_OBJECTS].n = 0;
    b = dlpi_s3_page_merge(p, &s->last);
    if (!b) return;
    if (b->n == 0 || (p->truncated && s->groups > 1 && b->keys / s->groups < l->most)) {
        free(b);
        return;
    }
    b->keys = s->groups;
    b->given = p->truncated;
    b->next = l->marks;
    l->marks = b;
    l->surveys++;
}

/* Put '/' behind a made-up split, if the range's keys have folders: low has one behind the first
   bytes that all of the keys share (from: how many). A server that walks a tree goes on right
   behind the folder's name "a/", which need not exist. But it takes "a" for what follows the
   folder. Returns whether the split can be used. */
static bool dlpi_s3_split_made(dlpi_s3_key *split, size_t from, dlpi_s3_span low,
                               const dlpi_s3_key *high) {
    if (low.n > from && memchr(low.at + from, '/', low.n - from) &&
        split->bytes < DLPI_S3_LIST_TEXT) {
        split->at[split->bytes] = '/';
        split->at[split->bytes + 1] = '\0';
        if (dlpi_s3_split_fits((dlpi_s3_span){split->at, split->bytes + 1}, low, high))
            split->bytes++;
        split->at[split->bytes] = '\0';
    }
    return dlpi_s3_split_fits(dlpi_s3_key_span(split), low, high);
}

/* Split the segment behind groups of keys that begin as its last page does, at most n times. from:
   bytes that all of its keys share. Returns whether it was split. */
static bool dlpi_s3_list_ladder(dlp_s3_list *l, dlpi_s3_segment *s, size_t from, uint32_t n) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last);
    dlpi_s3_segment *at = s;
    dlpi_s3_key *split = &l->last[0];
    for (uint32_t i = 0; i < n && at; i++) {
        size_t steps = s->same - from, bytes;
        if (i >= steps) break;
        bytes = from + 1 + (steps <= n ? steps - 1 - i : (n - 1 - i) * steps / n);
        if (dlpi_s3_split_behind(last, at->bounded ? &at->high : NULL, bytes, split) &&
            dlpi_s3_split_made(split, from, last, at->bounded ? &at->high : NULL) &&
            (at == s ||
             dlpi_s3_span_order(dlpi_s3_key_span(split), dlpi_s3_key_span(&at->low)) > 0))
            at = dlpi_s3_list_cut(l, at, split, DLPI_S3_LEFT_UNKNOWN);
    }
    s->left = 0; /* until its next page */
    return at != s;
}

/* Split the segment into at most n more, or ask where it can be split. Returns false if that was
   not possible. */
static bool dlpi_s3_list_split(dlp_s3_list *l, dlpi_s3_segment *s, uint32_t n) {
    dlpi_s3_span low = dlpi_s3_key_span(s->pages > 0 ? &s->last : &s->low);
    const dlpi_s3_key *high;
    size_t from;
    if (dlpi_s3_list_at_marks(l, s, n) || dlpi_s3_list_survey(l, s)) return true;
    high = dlpi_s3_list_range(l, s, low, &from);
    if (s->pages > 0 && s->same >= from + 4) return dlpi_s3_list_ladder(l, s, from, n);
    dlpi_s3_alphabet_learn(&l->alphabet, low, from, false);
    if (high) dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_key_span(high), from, false);
    if (!dlpi_s3_split_middle(&l->alphabet, low, high, from, &l->last[0]) ||
        !dlpi_s3_split_made(&l->last[0], from, low, s->bounded ? &s->high : NULL) ||
        !dlpi_s3_list_cut(l, s, &l->last[0], s->left / 2))
        return false;
    s->left /= 2;
    return true;
}

/* True if the segment, the i-th, may have a page under way. Segments behind the first may not while
   too many bytes are kept before their turn. But if the first one is over, its seam needs the
   second. */
static bool dlpi_s3_list_may(const dlp_s3_list *l, const dlpi_s3_segment *s, uint32_t i) {
    if (s->state != DLPI_S3_SEGMENT_WANTS && s->state != DLPI_S3_SEGMENT_ASKED) return false;
    if (l->first->state == DLPI_S3_SEGMENT_OVER && s == l->first->next) return true;
    return s == l->first || l->held < DLPI_S3_LIST_HOLD / 2 ||
           (i < l->most && l->held < DLPI_S3_LIST_HOLD);
}

/* Return the segment that seems to have most keys left, or NULL if none is worth a split. *out gets
   the number of pages that may still be asked for. */
static dlpi_s3_segment *dlpi_s3_list_longest(const dlp_s3_list *l, uint32_t *out) {
    dlpi_s3_segment *longest = NULL;
    uint32_t i = 0, under_way = 0;
    double spare = dlpi_s3_list_spare(l);
    for (dlpi_s3_segment *s = l->first; s; s = s->next, i++) {
        if (!dlpi_s3_list_may(l, s, i)) continue;
        under_way += 1 + s->surveyed;
        if (s->whole || s->surveyed || s->left < 3.0 * l->page ||
            (s->pages == 0 && s->left >= DLPI_S3_LEFT_UNKNOWN / 4))
            continue;
        if (!longest || s->left > longest->left) longest = s;
    }
    *out = under_way < l->most ? l->most - under_way : 0;
    if (*out > spare) *out = spare > 0 ? (uint32_t)spare : 0;
    if (l->segments >= 4 * l->most || l->settled) *out = 0;
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

/* Write the query of the segment's next page, its parameters in the order of their names. level:
   DLPI_S3_NO_LEVEL, or the bytes of the folder to survey. */
static void dlpi_s3_list_query(const dlp_s3_list *l, const dlpi_s3_segment *s, size_t level,
                               char *to) {
    dlpi_s3_out o = {to, DLPI_S3_LIST_QUERY, 0};
    bool survey = level != DLPI_S3_NO_LEVEL, first = !s->token[0];
    char page[16], folder[DLPI_S3_LIST_TEXT + 1];
    snprintf(page, sizeof page, "%d", (int)l->page);
    if (survey) snprintf(folder, sizeof folder, "%.*s", (int)level, s->last.at);
    if (!survey) dlpi_s3_out_param(&o, "continuation-token", s->token);
    dlpi_s3_out_param(&o, "delimiter", survey ? "/" : l->delimiter);
    dlpi_s3_out_param(&o, "encoding-type", "url");
    dlpi_s3_out_param(&o, "list-type", "2");
    dlpi_s3_out_param(&o, "max-keys", page);
    dlpi_s3_out_param(&o, "prefix", survey ? folder : l->prefix);
    if (survey || first)
        dlpi_s3_out_param(&o, "start-after",
                          survey     ? s->last.at
                          : s->split ? s->low.at
                                     : l->start_after);
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

/* Send the request for the segment's next page, or for a survey of level (dlpi_s3_list_query).
   Returns DLP_OK, DLP_ERR_MEMORY, or a code of dlpi_s3_submit, such as DLP_FULL. */
static int dlpi_s3_list_ask(dlp_s3_list *l, dlpi_s3_segment *s, size_t level, dlp_s3_error *err) {
    dlpi_s3_page_request *a = dlpi_s3_list_ask_new(l);
    int rc;
    if (!a) return dlpi_s3_list_bad(l, s, DLP_ERR_MEMORY, err, "no memory for the answer");
    memset(&a->r, 0, sizeof a->r);
    a->r.bucket = l->bucket, a->r.key = "", a->r.query = a->query;
    a->r.body = a->body, a->r.capacity = a->size;
    a->r.user = a;
    dlpi_s3_list_query(l, s, level, a->query);
    rc = dlpi_s3_submit(l->io, &a->r, &l->over);
    if (rc == DLP_OK) {
        a->of = s;
        a->survey = level != DLPI_S3_NO_LEVEL;
        if (a->survey)
            s->surveyed = true;
        else
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
            rc = dlpi_s3_list_ask(l, s, DLPI_S3_NO_LEVEL, err);
    return l->over.out > 0 || l->over.first ? DLP_OK : rc;
}

/* Cancel all page requests of the list. */
static void dlpi_s3_list_cancel(dlp_s3_list *l) {
    for (const dlpi_s3_segment *s = l->first; s; s = s->next) dlpi_s3_segment_leave(l, s);
    while (dlpi_s3_over_take(&l->over)) continue;
}

/* Note that the request r of the segment's page failed. The segment tells it when its turn comes;
   but if the server refuses to start at a split, the list goes on page after page. */
static void dlpi_s3_list_failed(dlp_s3_list *l, dlpi_s3_segment *s, const dlp_s3_request *r) {
    int status = r->error.http_status;
    size_t n;
    if (s->split && s->pages == 0 && (status == 400 || status == 501)) {
        dlpi_s3_list_serial(l, s, r->error.message);
        return;
    }
    s->state = DLPI_S3_SEGMENT_FAILED;
    s->error = r->error;
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
    bool left = a->left;
    a->left = false;
    a->of = NULL;
    if (left) return;
    if (a->survey) {
        s->surveyed = false;
        if (a->r.code == DLP_OK) dlpi_s3_list_surveyed(l, s, a->body, (size_t)a->r.received);
        return;
    }
    s->state = DLPI_S3_SEGMENT_WANTS;
    if (l->over.sorts) l->most = l->wanted;
    if (a->r.code == DLP_ERR_LENGTH && want > a->size && want <= DLPI_S3_PAGE_MOST) {
        while (l->room < want) l->room *= 2;
    } else if (a->r.code == DLP_ERR_LENGTH && want > DLPI_S3_PAGE_MOST) {
        s->state = DLPI_S3_SEGMENT_FAILED;
        dlpi_s3_list_bad(l, s, DLP_ERR_LIMIT, &s->error,
                         "the answer is larger than 16 MiB; lower page");
    } else if (a->r.code != DLP_OK) {
        dlpi_s3_list_failed(l, s, &a->r);
    } else if ((wrong = dlpi_s3_list_take(l, s, a->body, (size_t)a->r.received)) != NULL) {
        int code = wrong == dlpi_s3_page_memory ? DLP_ERR_MEMORY : DLP_ERR_REMOTE;
        s->state = DLPI_S3_SEGMENT_FAILED;
        if (l->astray)
            dlpi_s3_list_serial(l, s, wrong);
        else
            dlpi_s3_list_bad(l, s, code, &s->error, wrong);
    }
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

/* Return how many pages to ask for at once, of an io's requests, if the store sorts its lists. It
   is 1 with any_order, and with a delimiter, since splits would fall into common prefixes. */
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
    l->wanted = dlpi_s3_list_most(desc, io->n_ops);
    l->most = desc->requests > 0 ? l->wanted : 1;
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
            list->told += s->blocks->keys;
            dlpi_s3_list_drop_block(list, s);
        } else if (s->state == DLPI_S3_SEGMENT_OVER) {
            if (!s->next) return DLP_END;
            rc = dlpi_s3_list_pass(list);
            if (rc == DLP_ERR_MEMORY)
                return dlpi_s3_list_bad(list, s, rc, err, "no memory for the page");
            if (rc == DLP_OK) continue;
            s = s->next;
        }
        if (!s->blocks && s->state == DLPI_S3_SEGMENT_FAILED) {
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
    if (list->io->pid == getpid()) dlpi_s3_list_cancel(list);
    for (dlpi_s3_page_request *a = list->asks; a; a = a->next) a->of = NULL; /* a fork's, too */
    while (list->first) dlpi_s3_list_drop(list, &list->first);
    while (list->asks) {
        dlpi_s3_page_request *next = list->asks->next;
        free(list->asks->body);
        free(list->asks);
        list->asks = next;
    }
    while (list->marks) {
        dlpi_s3_block *next = list->marks->next;
        free(list->marks);
        list->marks = next;
    }
    free(list->now.run[0].at);
    free(list->now.run[1].at);
    free(list);
}
