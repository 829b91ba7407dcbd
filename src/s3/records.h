#pragma once
#include "api/s3_requests.h"
#include "s3/http.h"
#include "s3/secrets.h"
#include "s3/helper.h"
#include "s3/patience.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-engine       MANY REQUESTS IN ONE THREAD
   A request of the user's (op) is fetched in one or more ranges (legs); a leg is asked for over a
   connection (link), or over two or three at once while its answer has not begun (hedges). All
   records are made by io_open; here they only move from list to list.

       submit --> wanting --> site->waiting --> on a link --> answer begins --> body --> done
                  (ops that   (legs; also       (leg->link)   (leg->begun:     |
                  have legs   those that wait                 it has won)      |
                  to begin)   again)                                           |
                                ^                  |                           |
                                +-- leg->timer <---+------- trouble, judged ---+
                                    (back-off)

   A leg is not bound to a connection before it is sent: whichever connection of the site is free
   first takes the leg that waits longest, be it one that has ended a request or a new one.

   The caller's memory is written to only by the link whose head was the first valid one, and only
   at the place that follows what the leg has (leg->done). So nothing needs to be taken back: a leg
   that breaks off goes on from there, by Range and If-Match, or begins again from its first byte
   where the object has no ETag or another one. */

enum {
    DLPI_S3_OUT_BYTES = 32768,   /* a request's head, and a small body behind it */
    DLPI_S3_ERROR_BYTES = 16384, /* what is read of an error's document */
    DLPI_S3_SCRATCH = 262144,    /* for bytes that nobody wants, and for small pieces */
    DLPI_S3_HEAD_READ = 2048,    /* so that little of a body is copied */
    DLPI_S3_DRAIN = 262144,      /* unwanted bytes that are read rather than connected anew for */
    DLPI_S3_SMALL_PIECE = 4096,  /* read by way of the scratch memory */
    DLPI_S3_AT_ONCE = 4194304,   /* read or sent on one connection before others have a turn */
    DLPI_S3_EVENTS = 64,
    DLPI_S3_SITES = 16,
    DLPI_S3_COPIES = 3, /* links of a leg: the first, and two hedges */
    DLPI_S3_REGIONS = 32,
    DLPI_S3_RACE_MS = 300, /* a connection that takes longer has another address tried, too */
    DLPI_S3_DRAIN_MS = 3000,
    DLPI_S3_DEAF_MS = 1000,    /* for an answer from a server that takes no more */
    DLPI_S3_STALE_MS = 1000,   /* idle for longer: looked at before it is used */
    DLPI_S3_LOW_WATER = 131072 /* of SO_RCVLOWAT, at most */
};

/* ---- lists, timers ---- */

/* Rings with a head: a node that is in none points to itself. */
typedef struct dlpi_s3_node {
    struct dlpi_s3_node *prev, *next;
} dlpi_s3_node;

#define DLPI_S3_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static void dlpi_s3_ring_begin(dlpi_s3_node *n) { n->prev = n->next = n; }

static bool dlpi_s3_ring_empty(const dlpi_s3_node *n) { return n->next == n; }

static void dlpi_s3_ring_out(dlpi_s3_node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = n;
}

static void dlpi_s3_ring_last(dlpi_s3_node *ring, dlpi_s3_node *n) {
    n->prev = ring->prev;
    n->next = ring;
    ring->prev->next = n;
    ring->prev = n;
}

static void dlpi_s3_ring_first(dlpi_s3_node *ring, dlpi_s3_node *n) {
    dlpi_s3_ring_last(ring->next, n);
}

enum { DLPI_S3_TIMER_LINK, DLPI_S3_TIMER_LEG, DLPI_S3_TIMER_OP };

/* Deadlines are put off with each answer and hardly ever met. So putting one off, or taking it
   back, only writes due; its place in the heap is mended when it comes up there. */
typedef struct dlpi_s3_timer {
    uint64_t due;   /* UINT64_MAX: not set */
    uint64_t at;    /* what the heap goes by: not later than due */
    uint32_t place; /* in the heap, from 1; 0: not in it */
    int32_t kind;
    void *of;
} dlpi_s3_timer;

typedef struct dlpi_s3_heap {
    dlpi_s3_timer **at; /* at[1] is the earliest */
    uint32_t n;
} dlpi_s3_heap;

static void dlpi_s3_heap_put(dlpi_s3_heap *h, uint32_t place, dlpi_s3_timer *t) {
    h->at[place] = t;
    t->place = place;
}

static void dlpi_s3_heap_rise(dlpi_s3_heap *h, dlpi_s3_timer *t) {
    uint32_t i = t->place;
    for (; i > 1 && h->at[i / 2]->at > t->at; i /= 2) dlpi_s3_heap_put(h, i, h->at[i / 2]);
    dlpi_s3_heap_put(h, i, t);
}

static void dlpi_s3_heap_sink(dlpi_s3_heap *h, dlpi_s3_timer *t) {
    uint32_t i = t->place;
    for (;;) {
        uint32_t k = 2 * i;
        if (k > h->n) break;
        if (k < h->n && h->at[k + 1]->at < h->at[k]->at) k++;
        if (h->at[k]->at >= t->at) break;
        dlpi_s3_heap_put(h, i, h->at[k]);
        i = k;
    }
    dlpi_s3_heap_put(h, i, t);
}

static void dlpi_s3_timer_set(dlpi_s3_heap *h, dlpi_s3_timer *t, uint64_t due) {
    t->due = due;
    if (due == UINT64_MAX || (t->place && t->at <= due)) return;
    t->at = due;
    if (!t->place) dlpi_s3_heap_put(h, ++h->n, t);
    dlpi_s3_heap_rise(h, t);
}

static void dlpi_s3_timer_stop(dlpi_s3_timer *t) { t->due = UINT64_MAX; }

/* Take the earliest timer out. */
static void dlpi_s3_heap_drop(dlpi_s3_heap *h) {
    dlpi_s3_timer *last = h->at[h->n--];
    h->at[1]->place = 0;
    if (h->n == 0) return;
    dlpi_s3_heap_put(h, 1, last);
    dlpi_s3_heap_sink(h, last);
}

/* The timer that is due first, its place put right; NULL: none is set. */
static dlpi_s3_timer *dlpi_s3_heap_first(dlpi_s3_heap *h) {
    while (h->n) {
        dlpi_s3_timer *t = h->at[1];
        if (t->at == t->due) return t;
        if (t->due == UINT64_MAX) {
            dlpi_s3_heap_drop(h);
        } else {
            t->at = t->due;
            dlpi_s3_heap_sink(h, t);
        }
    }
    return NULL;
}

/* ---- records ---- */

/* What processes of one client share, beside its credentials: regions that buckets turned out to be
   in. An entry is written once: claimed (1), filled in, made visible (2, S2 -> S3). One whose
   writer died in between is lost, and nothing else. (in region) */
typedef struct dlpi_s3_region {
    uint32_t state, pad;
    char bucket[64];
    char name[64];
} dlpi_s3_region;

typedef struct dlpi_s3_common {
    dlpi_s3_shared shared;
    dlpi_s3_region regions[DLPI_S3_REGIONS];
    uint32_t n_regions; /* S4, claimed or more */
    uint32_t pad;
    dlpi_s3_config config;
    dlpi_s3_vault vault;
} dlpi_s3_common;

struct dlp_s3 {
    dlp_s3_desc desc; /* numbers resolved; strings NULL */
    dlpi_s3_endpoint endpoint;
    dlpi_s3_common *common;
    size_t common_bytes;
    dlp_s3_transport tls;
    bool has_tls, own_tls;
    uint64_t users; /* S5: 1, and those that the helpers hold */
    uint64_t ios;   /* S6: pid in the upper half, open dlp_s3_io in the lower */
};

typedef struct dlpi_s3_op dlpi_s3_op;
typedef struct dlpi_s3_leg dlpi_s3_leg;

/* A server, by name and port. */
typedef struct dlpi_s3_site {
    char host[256];
    uint16_t port;
    bool tls, used;
    bool looking;                 /* its name is being looked up */
    uint32_t ops, links, opening; /* that belong to it */
    uint32_t n_waiting, n_hedging;
    dlpi_s3_node idle;    /* links, the one used last first */
    dlpi_s3_node waiting; /* legs that want a link */
    dlpi_s3_node hedging; /* legs that want one more */
} dlpi_s3_site;

enum {
    DLPI_S3_LINK_FREE = 0,
    DLPI_S3_LINK_OPENING,
    DLPI_S3_LINK_IDLE,
    DLPI_S3_LINK_SENDING,
    DLPI_S3_LINK_WAITING, /* for the answer's head */
    DLPI_S3_LINK_BODY,    /* to the caller's memory */
    DLPI_S3_LINK_ERROR,   /* of an error, to link->error */
    DLPI_S3_LINK_DRAIN    /* to nowhere */
};

typedef struct dlpi_s3_link {
    dlpi_s3_conn conn;
    dlpi_s3_site *site;
    dlpi_s3_leg *leg;    /* whose request is on it */
    dlpi_s3_node node;   /* site->idle, io->free_links, or io->hungry */
    dlpi_s3_node age;    /* io->idle, or io->draining */
    dlpi_s3_timer timer; /* what the state waits for */
    int32_t state;
    uint32_t generation; /* events of an earlier connection do not count */
    uint32_t events;     /* what epoll watches */
    uint32_t served;     /* answers that ended */
    int32_t low_water;   /* SO_RCVLOWAT */
    bool late;           /* opening for DLPI_S3_RACE_MS, and the helper knows */
    bool raced;          /* and another is begun in its place */
    bool hedge;
    bool ranged;          /* the request has a Range, */
    uint64_t first, last; /* of these bytes; 0 and UINT64_MAX: the object, its end */
    uint64_t skip;        /* bytes of the answer that are before them, and had come */
    bool unsent;          /* some of it is not sent yet */
    bool deaf;            /* the server takes no more of it */
    uint64_t sent_ns;     /* the request's last byte */
    uint64_t put_at;      /* bytes of a PUT's body that are sent, */
    uint64_t queued;      /* and those that the kernel still had at the last look, */
    uint64_t moved_ns;    /* and when there were more */
    uint32_t out_at, out_n;
    uint32_t error_n;
    char *out;
    char *error;
    char region[64];  /* the request on it was signed for */
    uint64_t version; /* and with these credentials */
    int64_t skew_s;   /* and by this clock: the servers' less ours */
    uint32_t turn;    /* the op's, then */
    dlpi_s3_http http;
} dlpi_s3_link;

/* A place in the pieces of a request. */
typedef struct dlpi_s3_cursor {
    uint32_t piece;
    uint64_t at; /* inside it */
} dlpi_s3_cursor;

struct dlpi_s3_leg {
    dlpi_s3_op *op;
    dlpi_s3_node queue;    /* waiting or hedging of the site, or none; or io->free_legs */
    dlpi_s3_node sibling;  /* op->legs */
    dlpi_s3_node awaited;  /* io->awaited: sent, no answer yet, may be hedged */
    dlpi_s3_timer timer;   /* back-off */
    uint64_t first;        /* from the request's first byte */
    uint64_t bytes;        /* UINT64_MAX: not known yet */
    uint64_t done;         /* that lie where they belong */
    uint64_t tried_at;     /* done, when the last attempt began */
    uint64_t sent_ns;      /* the request, or its last hedge */
    dlpi_s3_cursor cursor; /* of its next byte */
    dlpi_s3_link *links[DLPI_S3_COPIES];
    uint8_t n_links;
    bool begun; /* links[0] has won */
    bool fresh; /* only on a new connection */
    bool in_hedging, in_waiting;
    int32_t attempts;    /* that failed without progress */
    uint64_t begun_ns;   /* when it was made, or had got on last */
    uint64_t size_bytes; /* about so many, for how long its answer may take */
    unsigned size_class;
};

struct dlpi_s3_op {
    dlp_s3_request *r;
    dlpi_s3_site *site;
    dlpi_s3_node node; /* io->wanting, or none; or io->free_ops */
    dlpi_s3_node legs;
    dlpi_s3_timer timer; /* of all of it */
    uint64_t bound;      /* bytes that there is room for */
    uint64_t size;       /* bytes that come; UINT64_MAX: not known yet */
    uint64_t next;       /* where its next leg begins */
    uint64_t cost;       /* of max_bytes */
    uint64_t etag_sum;   /* of the first answer's ETag */
    uint32_t n_legs;
    int32_t attempts;      /* requests sent */
    uint32_t turn;         /* how often place, region, clock or keys turned out to be others */
    dlpi_s3_cursor cursor; /* of next */
    dlpi_s3_tries tries;
    bool split;      /* in parts */
    bool opened;     /* a first head told size and ETag */
    bool strong;     /* r->etag can be used in If-Match */
    bool failed;     /* r->error is written to */
    bool moved;      /* to, to_path: where an answer sent it */
    bool foreign;    /* and that is not the endpoint's: nothing secret goes there */
    char region[64]; /* "": the client's */
    dlpi_s3_endpoint to;
    const char *to_query; /* behind the path in to_path; NULL: there was none */
    char to_path[DLPI_S3_HTTP_LINE];
};

struct dlp_s3_io {
    dlp_s3 *s3;
    const dlp_s3_desc *desc;
    pid_t pid;
    int epoll;
    dlpi_s3_helper *helper;
    size_t bytes; /* of this mapping */
    uint64_t now;
    dlpi_s3_heap timers;
    dlpi_s3_op *ops;
    dlpi_s3_leg *legs;
    dlpi_s3_link *links;
    uint32_t n_ops, n_links;
    uint32_t ops_out, links_out, n_idle;
    uint32_t on_wire; /* legs with a link */
    uint64_t bytes_out;
    dlpi_s3_node free_ops, free_legs, free_links;
    dlpi_s3_node wanting;  /* ops that have legs to begin */
    dlpi_s3_node idle;     /* all idle links, the one used last first */
    dlpi_s3_node hungry;   /* links whose session may have more than was read in this turn */
    dlpi_s3_node draining; /* links whose answers nobody wants, the oldest last */
    dlpi_s3_node awaited[DLPI_S3_CLASSES];
    uint64_t hedge_ns[DLPI_S3_CLASSES], hedge_looked_ns;
    uint64_t heard_ns;                /* what had come by then has been seen to */
    uint64_t good_ns;                 /* when the last answer came */
    dlp_s3_request *done, *done_last; /* linked by internal */
    dlp_s3_request *awaited_one;      /* by dlp_s3_do */
    dlpi_s3_patience patience;
    dlpi_s3_key_cache keys;
    dlpi_s3_credentials who;
    bool refreshing, held; /* held: until that is over nothing is sent */
    uint64_t refreshes;
    dlpi_s3_site sites[DLPI_S3_SITES];
    dlpi_s3_site *last_site;
    char *scratch;
    char path[DLPI_S3_HTTP_LINE], host[300], text[512];
};

static void dlpi_s3_say(const dlp_s3_io *io, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void dlpi_s3_say(const dlp_s3_io *io, const char *format, ...) {
    char line[512];
    va_list args;
    if (!io->desc->log) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    dlpi_s3_one_line(line);
    io->desc->log(io->desc->log_user, line);
}

static void dlpi_s3_tally(const dlp_s3_io *io, int what, uint64_t n) {
    dlpi_s3_count(&io->s3->common->shared, what, n);
}

static void dlpi_s3_due(dlp_s3_io *io, dlpi_s3_timer *t, int32_t ms) {
    dlpi_s3_timer_set(&io->timers, t, io->now + (uint64_t)(uint32_t)ms * DLPI_S3_MS);
}

/* ---- regions ---- */

static const char *dlpi_s3_region_find(dlpi_s3_common *c, const char *bucket) {
    uint32_t n = DLPI_LOAD_RLX(&c->n_regions); /* S4, any value that was there */
    for (uint32_t i = n < DLPI_S3_REGIONS ? n : DLPI_S3_REGIONS; i-- > 0;)
        if (DLPI_LOAD_ACQ(&c->regions[i].state) == 2 && /* S3 <- S2 */
            strcmp(c->regions[i].bucket, bucket) == 0)
            return c->regions[i].name;
    return NULL;
}

static void dlpi_s3_region_learn(dlpi_s3_common *c, const char *bucket, const char *name) {
    const char *known = dlpi_s3_region_find(c, bucket);
    uint32_t i;
    if ((known && strcmp(known, name) == 0) || strlen(bucket) >= sizeof c->regions[0].bucket)
        return;
    if (DLPI_LOAD_RLX(&c->n_regions) >= DLPI_S3_REGIONS) return; /* S4 */
    i = DLPI_ADD_RLX(&c->n_regions, 1u);                         /* S4, whose entry it is */
    if (i >= DLPI_S3_REGIONS) return;
    dlpi_s3_copy(c->regions[i].bucket, sizeof c->regions[i].bucket, bucket);
    dlpi_s3_copy(c->regions[i].name, sizeof c->regions[i].name, name);
    DLPI_STORE_REL(&c->regions[i].state, 2u); /* S2 -> S3 */
}

/* ---- where a leg's bytes belong ---- */

static dlpi_s3_cursor dlpi_s3_cursor_on(const dlp_s3_request *r, dlpi_s3_cursor c, uint64_t n) {
    if (!r->pieces) return c;
    while (c.piece < r->n_pieces && n >= r->pieces[c.piece].bytes - c.at) {
        n -= r->pieces[c.piece].bytes - c.at;
        c.piece++;
        c.at = 0;
    }
    c.at += n;
    return c;
}

/* Where its next byte goes, and how many may follow there; NULL: they are thrown away. */
static char *dlpi_s3_leg_room(const dlpi_s3_leg *leg, uint64_t *room) {
    const dlp_s3_request *r = leg->op->r;
    uint64_t end = leg->bytes != UINT64_MAX ? leg->bytes : leg->op->bound - leg->first;
    const dlp_s3_piece *piece;
    *room = end > leg->done ? end - leg->done : 0;
    if (!r->pieces) return (char *)r->body + leg->first + leg->done;
    if (leg->cursor.piece >= r->n_pieces) return NULL;
    piece = &r->pieces[leg->cursor.piece];
    if (*room > piece->bytes - leg->cursor.at) *room = piece->bytes - leg->cursor.at;
    return piece->to ? (char *)piece->to + leg->cursor.at : NULL;
}

static void dlpi_s3_leg_took(dlpi_s3_leg *leg, uint64_t n) {
    leg->done += n;
    leg->cursor = dlpi_s3_cursor_on(leg->op->r, leg->cursor, n);
}

/* Copy bytes to where they belong. Returns how many there was room for. */
static uint64_t dlpi_s3_leg_lay(dlpi_s3_leg *leg, const char *from, uint64_t n) {
    uint64_t left = n, room;
    while (left) {
        char *to = dlpi_s3_leg_room(leg, &room);
        if (room == 0) break;
        if (room > left) room = left;
        if (to) memcpy(to, from, room);
        from += room;
        left -= room;
        dlpi_s3_leg_took(leg, room);
    }
    return n - left;
}

/* Begin it again from its first byte. */
static void dlpi_s3_leg_rewind(dlpi_s3_leg *leg) {
    dlpi_s3_cursor begin = {0, 0};
    leg->done = leg->tried_at = 0;
    leg->cursor = dlpi_s3_cursor_on(leg->op->r, begin, leg->first);
}

/* ---- sites ---- */

/* The site of a host (as in a Host header) that an op goes to; NULL: all are in use. */
static dlpi_s3_site *dlpi_s3_site_get(dlp_s3_io *io, const char *host, uint16_t port, bool tls) {
    dlpi_s3_site *s, *room = NULL;
    for (int i = 0; i < DLPI_S3_SITES; i++) {
        s = &io->sites[i];
        if (s->used && s->port == port && s->tls == tls && strcmp(s->host, host) == 0) return s;
        if (!s->used || (s->ops == 0 && s->links == 0)) room = s;
    }
    if (!room) return NULL;
    memset(room, 0, sizeof *room);
    dlpi_s3_ring_begin(&room->idle);
    dlpi_s3_ring_begin(&room->waiting);
    dlpi_s3_ring_begin(&room->hedging);
    dlpi_s3_copy(room->host, sizeof room->host, host);
    room->port = port;
    room->tls = tls;
    room->used = true;
    return room;
}

/* ---- queues of legs ---- */

static void dlpi_s3_leg_unqueue(dlpi_s3_leg *leg) {
    if (leg->in_waiting) leg->op->site->n_waiting--;
    if (leg->in_hedging) leg->op->site->n_hedging--;
    leg->in_waiting = leg->in_hedging = false;
    dlpi_s3_ring_out(&leg->queue);
}

/* first: it has waited before. */
static void dlpi_s3_leg_wait(dlpi_s3_leg *leg, bool first) {
    dlpi_s3_site *site = leg->op->site;
    dlpi_s3_leg_unqueue(leg);
    leg->in_waiting = true;
    site->n_waiting++;
    if (first)
        dlpi_s3_ring_first(&site->waiting, &leg->queue);
    else
        dlpi_s3_ring_last(&site->waiting, &leg->queue);
}

static void dlpi_s3_leg_wait_hedge(dlpi_s3_leg *leg) {
    dlpi_s3_leg_unqueue(leg);
    leg->in_hedging = true;
    leg->op->site->n_hedging++;
    dlpi_s3_ring_last(&leg->op->site->hedging, &leg->queue);
}

/* Its answer is not waited for any more, or has begun. */
static void dlpi_s3_leg_calm(dlpi_s3_leg *leg) {
    dlpi_s3_ring_out(&leg->awaited);
    if (leg->in_hedging) dlpi_s3_leg_unqueue(leg);
}

/* Take a link from its leg. */
static void dlpi_s3_leg_part(dlp_s3_io *io, dlpi_s3_leg *leg, dlpi_s3_link *link) {
    unsigned i = 0;
    link->leg = NULL;
    while (leg->links[i] != link) i++;
    leg->n_links--;
    for (; i < leg->n_links; i++) leg->links[i] = leg->links[i + 1];
    if (leg->n_links > 0) return;
    io->on_wire--;
    leg->begun = false;
    dlpi_s3_leg_calm(leg);
}

static bool dlpi_s3_may_hedge(const dlpi_s3_op *op) {
    return op->r->method != DLP_S3_PUT && !op->r->no_hedge;
}

/* From now on it is seen to that the leg's answer does not take too long. */
static void dlpi_s3_leg_await(dlp_s3_io *io, dlpi_s3_leg *leg) {
    if (!dlpi_s3_may_hedge(leg->op) || io->desc->hedge_percent < 0) return;
    if (leg->begun || leg->in_hedging || leg->n_links >= DLPI_S3_COPIES) return;
    leg->sent_ns = io->now;
    dlpi_s3_ring_out(&leg->awaited);
    dlpi_s3_ring_last(&io->awaited[leg->size_class], &leg->awaited);
}
