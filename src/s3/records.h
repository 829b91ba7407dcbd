#pragma once
/* tests: system/s3/s3_engine */
#include "api/s3_requests.h"
#include "s3/http.h"
#include "s3/secrets.h"
#include "s3/proxy.h"
#include "s3/helper.h"
#include "s3/patience.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-engine       MANY REQUESTS IN ONE THREAD
   A request of the user's (op) is fetched in one or more ranges; a range is asked for over a
   connection, or over two or three at once while its answer has not begun (hedges). All records are
   made by io_open; here they only move from list to list.

       submit --> wanting --> origin->waiting --> on a connection --> answer begins -> body -> done
                  (ops with    (ranges; also       (range->             (range->begun:     |
                  ranges yet    those that wait     connection)          it has won)       |
                  to begin)     again)                   |                                 |
                                ^                        |                                 |
                                +----- range->timer <----+------ trouble, classified ------+
                                       (back-off)

   Words:
     op       a request of the caller's
     range    a part of an op, or all of it, which has a request of its own on the wire
     origin   a server, by name and port
     hedge    a second request for a range whose answer is late
     turn     of an op: how often something was learned for it (place, region, clock, keys);
              of an io: one wait for events, and what they bring
     away     a server is away while requests fail and none has its answer (patience)
     pause    the time before a retry
     part     to take a connection from its range

   A range is in one of these states. range_become alone changes them, and asserts both the step
   and that lists, connections and timer fit the state.

       state     lists it is in              connections  timer  goes to
       NONE      free_ranges, or none: in    0            -      WAITING PAUSED HELD
                 the hands of a function
       WAITING   origin->waiting             0            -      ASKED
       ASKED     io->awaited, if it may be   1..3         -      HEDGING BODY
                 hedged
       HEDGING   origin->hedging             1..2         -      ASKED BODY
       BODY      -                           1            -      -
       PAUSED    -                           0            set    WAITING, at the latest when the
                                                                 server is back
       HELD      -                           0            set    WAITING, by Retry-After alone
       and all of them to NONE

   A range is not bound to a connection before it is sent: whichever connection of the origin is
   free first takes the range that waits longest, be it one that has ended a request or a new one.

   The caller's memory is written to only by the connection whose head was the first valid one, and
   only at the place that follows what the range has (range->done). So nothing needs to be taken
   back: a range that breaks off goes on from there, by Range and If-Match, or begins again from its
   first byte where the object has no ETag or another one. */

enum {
    DLPI_S3_OUT_BYTES = 32768,   /* a request's head, and a small body after it */
    DLPI_S3_ERROR_BYTES = 16384, /* bytes that are read of an error's document, at most */
    DLPI_S3_DOUBT_BYTES = 512,   /* bytes that tell whether a body is such a document, at most */
    DLPI_S3_CHECKSUMS_TRIED = 2, /* dlp_s3_desc.checksums, resolved: ask for them if possible */
    DLPI_S3_SCRATCH = 262144,    /* bytes of memory for unwanted bytes and small pieces */
    DLPI_S3_HEAD_READ = 2048,    /* bytes of a read for a head, so that little body is copied */
    DLPI_S3_DRAIN = 262144,      /* unwanted bytes that are read, at most; else it reconnects */
    DLPI_S3_SMALL_PIECE = 4096,  /* bytes of a piece up to which it is read into scratch memory */
    DLPI_S3_AT_ONCE = 4194304, /* bytes read or sent on one connection before others have a turn */
    DLPI_S3_EVENTS = 64,
    DLPI_S3_ORIGINS = 16,
    DLPI_S3_COPIES = 3, /* connections of a range: the first, and two hedges */
    DLPI_S3_REGIONS = 32,
    DLPI_S3_STALE_MS = 1000,   /* ms of idle time after which a connection is tested before use */
    DLPI_S3_LOW_WATER = 131072 /* bytes of SO_RCVLOWAT, at most */
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

enum { DLPI_S3_TIMER_CONNECTION, DLPI_S3_TIMER_RANGE, DLPI_S3_TIMER_OP };

/* Deadlines are put off with each answer and hardly ever met. So putting one off, or taking it
   back, only writes due; its place in the heap is mended when it comes up there. */
typedef struct dlpi_s3_timer {
    uint64_t due;   /* time in ns; UINT64_MAX: not set */
    uint64_t at;    /* key in the heap: a time not later than due */
    uint32_t place; /* place in the heap, from 1; 0: it is not in the heap */
    int32_t kind;   /* DLPI_S3_TIMER_*: kind of the record that has it */
    void *of;       /* that record */
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

/* Move a timer down from its place in the heap, until no timer below it is due earlier. */
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

/* Set when a timer is due; UINT64_MAX means never. A later time than before leaves the timer in its
   place: dlpi_s3_heap_first moves it. */
static void dlpi_s3_timer_set(dlpi_s3_heap *h, dlpi_s3_timer *t, uint64_t due) {
    t->due = due;
    if (due == UINT64_MAX || (t->place && t->at <= due)) return;
    t->at = due;
    if (!t->place) dlpi_s3_heap_put(h, ++h->n, t);
    dlpi_s3_heap_rise(h, t);
}

static void dlpi_s3_timer_stop(dlpi_s3_timer *t) { t->due = UINT64_MAX; }

/* Take the earliest timer out of the heap. */
static void dlpi_s3_heap_pop(dlpi_s3_heap *h) {
    dlpi_s3_timer *last = h->at[h->n--];
    h->at[1]->place = 0;
    if (h->n == 0) return;
    dlpi_s3_heap_put(h, 1, last);
    dlpi_s3_heap_sink(h, last);
}

/* Return the timer that is due first, after its place is put right, or NULL if none is set. */
static dlpi_s3_timer *dlpi_s3_heap_first(dlpi_s3_heap *h) {
    while (h->n) {
        dlpi_s3_timer *t = h->at[1];
        if (t->at == t->due) return t;
        if (t->due == UINT64_MAX) {
            dlpi_s3_heap_pop(h);
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
    dlpi_s3_cred_cache cred_cache;
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
typedef struct dlpi_s3_range dlpi_s3_range;

/* A server, by name and port. */
typedef struct dlpi_s3_origin {
    char host[256];
    uint16_t port;
    bool tls, used;
    bool looking;                       /* its name is being looked up */
    const dlpi_s3_proxy *proxy;         /* proxy for this server; NULL: none */
    uint32_t ops, connections, opening; /* ops, connections, and those that are being opened */
    uint32_t n_waiting, n_hedging;
    dlpi_s3_node idle;    /* connections, the one used last first */
    dlpi_s3_node waiting; /* ranges that want a connection */
    dlpi_s3_node hedging; /* ranges that want one more */
} dlpi_s3_origin;

enum {
    DLPI_S3_CONNECTION_FREE = 0,
    DLPI_S3_CONNECTION_OPENING,
    DLPI_S3_CONNECTION_IDLE,
    DLPI_S3_CONNECTION_SENDING,
    DLPI_S3_CONNECTION_WAITING, /* for the answer's head */
    DLPI_S3_CONNECTION_DOUBT,   /* its first bytes, to connection->error: they may be an error's */
    DLPI_S3_CONNECTION_BODY,    /* to the caller's memory */
    DLPI_S3_CONNECTION_ERROR,   /* of an error, to connection->error */
    DLPI_S3_CONNECTION_DRAIN    /* to nowhere */
};

typedef struct dlpi_s3_connection {
    dlpi_s3_conn conn;
    dlpi_s3_origin *origin;
    dlpi_s3_range *range; /* the range whose request is on it; NULL: none */
    dlpi_s3_node node;    /* in origin->idle, io->free_connections, or io->hungry */
    dlpi_s3_node age;     /* in io->idle, or io->draining */
    dlpi_s3_timer timer;  /* ends the wait of the present state */
    int32_t state;
    uint64_t body_ns;    /* time at which its body began, or was looked at last */
    uint64_t body_from;  /* bytes that its range had at that time */
    uint32_t generation; /* raised for each new connection: older events are dropped */
    uint32_t events;     /* events that epoll watches */
    uint32_t served;     /* answers that have ended on it */
    int32_t low_water;   /* SO_RCVLOWAT */
    bool late;           /* it has been opening for RACE ms, and the helper was told */
    bool raced;          /* another connection was begun beside it */
    bool hedge;
    bool ranged;            /* its request has a Range header */
    uint64_t first, last;   /* bytes asked for; 0 and UINT64_MAX: to the end of the object */
    uint64_t skip;          /* bytes at the beginning of the answer that had come before */
    bool unsent;            /* a part of the request is not sent yet */
    bool deaf;              /* the server takes no more of the request */
    uint64_t sent_ns;       /* time at which the request's last byte was sent */
    uint64_t put_at;        /* bytes of a PUT's body that are sent */
    uint64_t queued;        /* bytes of it that the kernel still had at the last look */
    uint64_t moved_ns;      /* time at which bytes of the body were delivered, or came, last */
    uint32_t out_at, out_n; /* bytes of `out` that are sent; bytes of it */
    uint32_t error_n;       /* bytes of `error` */
    char *out;
    char *error;
    char region[64];  /* region that the request on it was signed for */
    uint64_t version; /* version of the credentials that signed it */
    int64_t skew_s;   /* clock that it was signed by: the servers' time less ours */
    uint32_t turn;    /* turn of the op when it was sent */
    dlpi_s3_http http;
} dlpi_s3_connection;

enum { /* what a range waits for; see above */
       DLPI_S3_RANGE_NONE = 0,
       DLPI_S3_RANGE_WAITING,
       DLPI_S3_RANGE_ASKED,
       DLPI_S3_RANGE_HEDGING,
       DLPI_S3_RANGE_BODY,
       DLPI_S3_RANGE_PAUSED,
       DLPI_S3_RANGE_HELD
};

#ifndef DLPI_S3_ASSERT /* tests define their own */
#define DLPI_S3_ASSERT(fact) ((void)sizeof(fact))
#endif

/* A place in the pieces of a request. */
typedef struct dlpi_s3_cursor {
    uint32_t piece;
    uint64_t at; /* inside it */
} dlpi_s3_cursor;

struct dlpi_s3_range {
    dlpi_s3_op *op;
    dlpi_s3_node queue;   /* waiting or hedging of the origin, or none; or io->free_ranges */
    dlpi_s3_node sibling; /* op->ranges */
    dlpi_s3_node awaited; /* io->awaited: sent, no answer yet, may be hedged */
    dlpi_s3_timer timer;  /* back-off */
    uint64_t first;       /* where it begins, in bytes from the request's first byte */
    uint64_t bytes;       /* length of the range; UINT64_MAX: not known yet */
    uint64_t done;        /* bytes that are in the caller's memory */
    uint64_t crc;         /* CRC of these bytes, if op->crc_kind is one */
    uint64_t crc_told;    /* CRC of the range, or the object, as the server told it */
    bool crc_is_told;
    uint64_t most;         /* largest `done` of all attempts; for a PUT: bytes delivered */
    uint64_t tried_at;     /* `done` when the last attempt began */
    uint64_t sent_ns;      /* time at which its request, or the last hedge, was sent */
    dlpi_s3_cursor cursor; /* place of its next byte in the pieces */
    dlpi_s3_connection *connections[DLPI_S3_COPIES];
    uint8_t n_connections;
    uint8_t moves;       /* moves to another connection because the body was slow */
    bool fresh;          /* it must get a new connection */
    int32_t state;       /* DLPI_S3_RANGE_* */
    int32_t attempts;    /* attempts that failed without progress */
    uint64_t begun_ns;   /* time at which it was made, or made progress last */
    uint64_t size_bytes; /* its expected bytes, which decide how long its answer may take */
    unsigned size_class;
};

/* Requests of one user of an io: how many are out, and those that are over, linked by internal. */
typedef struct dlpi_s3_over {
    uint32_t out;
    dlp_s3_request *first, *last;
    bool sorts; /* an answer came from a store that sorts its lists */
} dlpi_s3_over;

/* Who says which ETag an object must have. The source of objects tells it before a request begins:
   r->internal is then the place of the value in dlpi_s3_etags_of. */
enum { DLPI_S3_BY_USER = 0, DLPI_S3_BY_MANIFEST, DLPI_S3_BY_HEAD };

static const char dlpi_s3_etags_of[] = {DLPI_S3_BY_USER, DLPI_S3_BY_MANIFEST, DLPI_S3_BY_HEAD};

struct dlpi_s3_op {
    dlp_s3_request *r;
    dlpi_s3_over *over; /* the list that it joins at its end */
    dlpi_s3_origin *origin;
    dlpi_s3_node node; /* in io->wanting or io->free_ops, or in none */
    dlpi_s3_node ranges;
    dlpi_s3_timer timer; /* deadline of the whole op */
    uint64_t begun_ns;   /* time at which it was submitted */
    uint64_t moved_ns;   /* time of its last progress */
    uint64_t bound;      /* bytes that the caller's memory has room for */
    uint64_t size;       /* bytes that come; UINT64_MAX: not known yet */
    uint64_t next;       /* where its next range begins, in bytes from its first byte */
    uint64_t cost;       /* bytes of max_bytes that it takes */
    uint64_t etag_sum;   /* hash of the first answer's ETag */
    uint64_t encoding_sum, version_sum, modified_sum; /* hashes of headers that must not differ */
    uint64_t crc;                                     /* CRC of the ranges that are done */
    uint64_t crc_told; /* if crc_doubt: the CRC that was told with a range */
    bool crc_doubt;    /* that CRC is not the range's; it may be the object's */
    int32_t crc_kind;  /* DLPI_S3_CRC_NONE: no CRC is told, or not the whole object is asked for */
    uint32_t n_ranges;
    int32_t attempts;      /* requests sent */
    uint32_t turn;         /* counts corrections of its place, region, clock or keys */
    dlpi_s3_cursor cursor; /* place of `next` in the pieces */
    dlpi_s3_tries tries;
    bool split;      /* it is fetched in several ranges */
    bool as_stored;  /* it accepts gzip, because the server would decode the object otherwise */
    bool turned;     /* as_stored is not what it was at first */
    uint8_t by;      /* DLPI_S3_BY_*: who says r->if_match */
    bool bare;       /* r->if_match is not sent, but compared */
    bool opened;     /* a first head told size and ETag */
    bool strong;     /* r->etag can be used in If-Match */
    bool failed;     /* r->error is written */
    bool moved;      /* an answer sent it to another place: to, to_path */
    bool sums;       /* the object's checksum is compared, if it is told */
    bool checksum;   /* and asked for */
    bool foreign;    /* that place is not the endpoint's: no secret is sent there */
    char region[64]; /* "": the region of the client */
    dlpi_s3_endpoint to;
    const char *to_query; /* after the path in to_path; NULL: there was none */
    char to_path[DLPI_S3_HTTP_LINE];
};

struct dlp_s3_io {
    dlp_s3 *s3;
    const dlp_s3_desc *desc;
    pid_t pid;
    int epoll;
    dlpi_s3_helper *helper;
    size_t bytes; /* bytes of the mapping that has this record */
    uint64_t now; /* time of the present turn, ns */
    dlpi_s3_heap timers;
    dlpi_s3_op *ops;
    dlpi_s3_range *ranges;
    dlpi_s3_connection *connections;
    uint32_t n_ops, n_connections;
    uint32_t connections_out, n_idle;
    uint32_t on_wire; /* ranges with a connection */
    uint64_t bytes_out;
    dlpi_s3_node free_ops, free_ranges, free_connections;
    dlpi_s3_node wanting;  /* ops that have ranges to begin */
    dlpi_s3_node idle;     /* all idle connections, the one used last first */
    dlpi_s3_node hungry;   /* connections whose session may have more than was read in this turn */
    dlpi_s3_node draining; /* connections with unwanted answers, the oldest last */
    dlpi_s3_node awaited[DLPI_S3_CLASSES];
    uint64_t hedge_ns[DLPI_S3_CLASSES], hedge_looked_ns;
    uint64_t woken_ns;               /* the return of the server that woke paused ranges last */
    uint64_t turned_ns, returned_ns; /* end of the last turn; time at which the caller came back */
    uint64_t heard_ns;               /* all that came up to this time was handled */
    uint64_t good_ns;                /* time of the last answer */
    dlpi_s3_over over;               /* requests of dlp_s3_submit */
    dlpi_s3_patience patience;
    dlpi_s3_key_cache keys;
    dlpi_s3_credentials who;
    bool refreshing, held; /* credentials are being fetched; nothing is sent before that ends */
    bool no_checksums;     /* the server refuses requests for checksums */
    bool bare;             /* it refuses an ETag in If-Match that its answers then tell */
    uint64_t refreshes;
    dlpi_s3_origin origins[DLPI_S3_ORIGINS];
    dlpi_s3_origin *last_origin;
    char *scratch;
    char path[DLPI_S3_HTTP_LINE], host[300], text[512];
};

/* Give one line of text to the user's log, if there is one. */
static void dlpi_s3_say(const dlp_s3_io *io, const char *format, ...) DLPI_PRINTF(2, 3);
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

/* Set a timer to be due after the deadline by, DLPI_S3_BY_*. */
static void dlpi_s3_due(dlp_s3_io *io, dlpi_s3_timer *t, int by) {
    dlpi_s3_timer_set(&io->timers, t, io->now + io->patience.by[by]);
}

/* Look at a body again soon: bytes that are too few to wake anybody may have come. */
static void dlpi_s3_body_due(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_timer_set(&io->timers, &connection->timer,
                      dlpi_s3_least(io->now + io->patience.by[DLPI_S3_BY_LOOK],
                                    connection->moved_ns + io->patience.by[DLPI_S3_BY_STALL]));
}

/* ---- regions ---- */

/* Return the region that a bucket turned out to be in, or NULL if that is not known. */
static const char *dlpi_s3_region_find(dlpi_s3_common *c, const char *bucket) {
    uint32_t n = DLPI_LOAD_RLX(&c->n_regions); /* S4, any value that was there */
    for (uint32_t i = n < DLPI_S3_REGIONS ? n : DLPI_S3_REGIONS; i-- > 0;)
        if (DLPI_LOAD_ACQ(&c->regions[i].state) == 2 && /* S3 <- S2 */
            strcmp(c->regions[i].bucket, bucket) == 0)
            return c->regions[i].name;
    return NULL;
}

/* Keep the region that a bucket turned out to be in, for all processes, if there is room. */
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

/* ---- where a range's bytes belong ---- */

/* Return the place n bytes behind a place in the pieces of a request. */
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

/* Return where the next byte goes; NULL: it is thrown away. *room: how many may follow there. */
static char *dlpi_s3_range_room(const dlpi_s3_range *range, uint64_t *room) {
    const dlp_s3_request *r = range->op->r;
    uint64_t end = range->bytes != UINT64_MAX ? range->bytes : range->op->bound - range->first;
    const dlp_s3_piece *piece;
    *room = end > range->done ? end - range->done : 0;
    if (!r->pieces) return (char *)r->body + range->first + range->done;
    if (range->cursor.piece >= r->n_pieces) return NULL;
    piece = &r->pieces[range->cursor.piece];
    if (*room > piece->bytes - range->cursor.at) *room = piece->bytes - range->cursor.at;
    return piece->to ? (char *)piece->to + range->cursor.at : NULL;
}

/* Note that so many bytes of the range have come, or were delivered. Only bytes beyond those of its
   earlier attempts are progress. */
static void dlpi_s3_range_moved(const dlp_s3_io *io, dlpi_s3_range *range, uint64_t bytes) {
    if (bytes <= range->most) return;
    range->most = bytes;
    range->op->moved_ns = io->now;
}

/* Take in n bytes of the range that lie at their place already, which is from. */
static void dlpi_s3_range_took(const dlp_s3_io *io, dlpi_s3_range *range, const char *from,
                               uint64_t n) {
    if (range->op->crc_kind)
        range->crc = dlpi_s3_crc_add(range->op->crc_kind, range->crc, from, (size_t)n);
    range->done += n;
    dlpi_s3_range_moved(io, range, range->done);
    range->cursor = dlpi_s3_cursor_on(range->op->r, range->cursor, n);
}

/* Copy n bytes of the range to their place. Returns how many there was room for. */
static uint64_t dlpi_s3_range_lay(const dlp_s3_io *io, dlpi_s3_range *range, const char *from,
                                  uint64_t n) {
    uint64_t left = n, room;
    while (left) {
        char *to = dlpi_s3_range_room(range, &room);
        if (room == 0) break;
        if (room > left) room = left;
        if (to) memcpy(to, from, room);
        dlpi_s3_range_took(io, range, from, room);
        from += room;
        left -= room;
    }
    return n - left;
}

/* Have a range begin again from its first byte. */
static void dlpi_s3_range_rewind(dlpi_s3_range *range) {
    dlpi_s3_cursor begin = {0, 0};
    range->done = range->tried_at = range->crc = 0;
    range->cursor = dlpi_s3_cursor_on(range->op->r, begin, range->first);
}

/* ---- origins ---- */

/* Find or make the origin of a host (as in a Host header). Returns NULL if all are in use. */
static dlpi_s3_origin *dlpi_s3_origin_get(dlp_s3_io *io, const char *host, uint16_t port,
                                          bool tls) {
    dlpi_s3_origin *s, *room = NULL;
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) {
        s = &io->origins[i];
        if (s->used && s->port == port && s->tls == tls && strcmp(s->host, host) == 0) return s;
        if (!s->used || (s->ops == 0 && s->connections == 0)) room = s;
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
    room->proxy = dlpi_s3_proxy_of(&io->s3->common->config, host, port, tls);
    return room;
}

/* Return the host that an origin's connections are made to: the proxy, if it has one. */
static const char *dlpi_s3_origin_peer(const dlpi_s3_origin *origin) {
    return origin->proxy ? origin->proxy->host : origin->host;
}

/* ---- queues of ranges ---- */

#define DLPI_S3_TO(state) (1u << DLPI_S3_RANGE_##state)

/* True if the range may go from one state to another. */
static inline bool dlpi_s3_range_may(int32_t from, int32_t to) {
    static const uint8_t next[] = {DLPI_S3_TO(WAITING) | DLPI_S3_TO(PAUSED) |
                                       DLPI_S3_TO(HELD),                   /* NONE */
                                   DLPI_S3_TO(ASKED),                      /* WAITING */
                                   DLPI_S3_TO(HEDGING) | DLPI_S3_TO(BODY), /* ASKED */
                                   DLPI_S3_TO(ASKED) | DLPI_S3_TO(BODY),   /* HEDGING */
                                   0,                                      /* BODY */
                                   DLPI_S3_TO(WAITING),                    /* PAUSED */
                                   DLPI_S3_TO(WAITING)};                   /* HELD */
    return to == DLPI_S3_RANGE_NONE || (next[from] >> to & 1);
}

/* True if lists, connections and timer of the range fit its state. */
static inline bool dlpi_s3_range_sound(const dlpi_s3_range *range) {
    int32_t s = range->state;
    bool queued = !dlpi_s3_ring_empty(&range->queue);
    bool awaited = !dlpi_s3_ring_empty(&range->awaited);
    bool asked = s == DLPI_S3_RANGE_ASKED || s == DLPI_S3_RANGE_HEDGING;
    if (queued != (s == DLPI_S3_RANGE_WAITING || s == DLPI_S3_RANGE_HEDGING)) return false;
    if (awaited && s != DLPI_S3_RANGE_ASKED) return false;
    if ((range->timer.due != UINT64_MAX) != (s >= DLPI_S3_RANGE_PAUSED)) return false;
    if (s == DLPI_S3_RANGE_BODY) return range->n_connections == 1;
    return asked ? range->n_connections > 0 : range->n_connections == 0;
}

/* Move a range to a state. The caller has seen to its connections and its timer. */
static void dlpi_s3_range_become(dlpi_s3_range *range, int32_t state) {
    dlpi_s3_origin *origin = range->op->origin;
    DLPI_S3_ASSERT(dlpi_s3_range_may(range->state, state));
    origin->n_waiting -= range->state == DLPI_S3_RANGE_WAITING;
    origin->n_hedging -= range->state == DLPI_S3_RANGE_HEDGING;
    dlpi_s3_ring_out(&range->queue);
    dlpi_s3_ring_out(&range->awaited);
    range->state = state;
    origin->n_waiting += state == DLPI_S3_RANGE_WAITING;
    origin->n_hedging += state == DLPI_S3_RANGE_HEDGING;
    if (state == DLPI_S3_RANGE_WAITING) dlpi_s3_ring_first(&origin->waiting, &range->queue);
    if (state == DLPI_S3_RANGE_HEDGING) dlpi_s3_ring_last(&origin->hedging, &range->queue);
    DLPI_S3_ASSERT(dlpi_s3_range_sound(range));
}

/* Remove a connection from the range that it works for. */
static void dlpi_s3_range_part(dlp_s3_io *io, dlpi_s3_range *range,
                               dlpi_s3_connection *connection) {
    unsigned i = 0;
    connection->range = NULL;
    while (range->connections[i] != connection) i++;
    range->n_connections--;
    for (; i < range->n_connections; i++) range->connections[i] = range->connections[i + 1];
    if (range->n_connections > 0) return;
    io->on_wire--;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
}

static bool dlpi_s3_may_hedge(const dlpi_s3_op *op) {
    return op->r->method != DLP_S3_PUT && !op->r->no_hedge;
}

/* Have a range hedged if its answer takes too long from now on. */
static void dlpi_s3_range_await(dlp_s3_io *io, dlpi_s3_range *range) {
    if (!dlpi_s3_may_hedge(range->op) || io->desc->hedge_percent < 0) return;
    if (range->state != DLPI_S3_RANGE_ASKED || range->n_connections >= DLPI_S3_COPIES) return;
    range->sent_ns = io->now;
    dlpi_s3_ring_out(&range->awaited);
    dlpi_s3_ring_last(&io->awaited[range->size_class], &range->awaited);
}
