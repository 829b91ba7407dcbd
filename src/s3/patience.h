#pragma once
/* tests: unit/s3/s3_patience, system/s3/s3_outage */
#include "api/atomics.h"
#include "s3/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-patience     RETRIES, HEDGES, THROTTLING
   Policy alone: no socket, no clock (the caller passes the time in), so that a test can run years
   of it. What workers share is counters and a count of retries; the rest is one thread's own.

   Retries. The n-th waits for backoff * 2^n, half of it fixed and half random ("equal jitter": M.
   Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), and not less than a
   Retry-After asks for. With all of it random a number of attempts would have no least duration:
   what bounds them is time. A retry is taken from a bucket that all workers share, a request that
   ends well puts one back (the standard retry mode of AWS' SDKs): where most requests fail, each
   waits the longest pause at once, and a server that comes back meets few of them a second. None
   fails for that: a server that is away empties the bucket in a moment. The bucket is a count of
   retries ahead of successes, so that a worker that dies takes nothing with it.

   Away. From a failure on until any request of the client's has its answer the server counts as
   away, since the request that failed was begun, or the last answer came. The first answer after a
   second without one wakes all requests of the client that wait to be tried again. They go out
   within DLPI_S3_WAKE_NS. A request that a Retry-After holds is not woken. Those are words that all
   share (S9), of which one is read with each answer; they are for people to read, and no order of
   theirs matters.

   label  where                                   what it orders
   S10    connection_accept stores, op_begin loads  nothing: a request that has not seen the word
                                                    "decodes" is sent twice

   Hedges. A request that waits for its first byte for longer than nearly all others is sent once
   more on another connection, and the first valid head wins (Dean and Barroso, The Tail at Scale,
   2013). "Nearly all": p95 of recent first-byte times of its size class, times a factor of 1.5 at
   first, which grows with hedges that were too hasty (the first answer came first) and shrinks with
   those that won; it goes half of the way back with every 256 samples, since few hedges go out that
   could prove it too wide; and wider as long as samples are few. Times that a winning hedge cut off
   count as long as they were seen to last. The budget is a share of requests, of which no more than
   DLPI_S3_HEDGE_SAVED are saved up; the hedges of hedges come out of it too.

   Slow bodies. A body that is far slower than most bodies of its size class goes on over another
   connection, since a path or a server may be bad. The client records the time that bodies need for
   64 KiB. "Far" is 8 times the time that 3 of 4 bodies need. Each move of a range doubles that
   factor, so that a slow line is soon left alone. A body that needs less than 128 ms for 64 KiB is
   never slow. Until a class is known, its bodies count as usual with 64 KiB a second. If the object
   has no strong ETag, the bytes that came are asked for again. That counts against the move.

   Throttling. One 503 among many good answers delays its own request only. The client keeps the
   share of throttled answers, as a mean in which the last answer weighs 1/64. If the share is above
   a quarter, the requests in flight are cut to 7/10. A cut comes at most once per 4 * backoff (a
   period), and an eighth of the requests always remains. After a cut a sixth is too much already.
   Until a period after the last such answer the limit does not rise, and there are no hedges. A
   server may let only so many requests a second pass. Then a cut lowers the share s: if r times as
   many answers come as before, the share becomes 1 - (1 - s) / r. A server that refuses at random
   keeps its share. So 128 answers after a cut the client looks which of both the share is nearer
   to. If the server refuses at random, the cut is undone. That share is then no sign of throttling
   for 16 periods. When throttling is over, the limit rises as TCP's window does (RFC 5681): with
   each good answer by one, up to half of what it was. From there it rises by the clock, by all of
   it in 32 periods, so that quick answers do not make it hasty. Time without answers counts for 5
   periods at most. */

enum { /* in the order of dlp_s3_stats */
       DLPI_S3_N_REQUESTS,
       DLPI_S3_N_OBJECTS,
       DLPI_S3_N_FAILED,
       DLPI_S3_N_BYTES,
       DLPI_S3_N_RETRIES,
       DLPI_S3_N_REPLAYS,
       DLPI_S3_N_RESUMES,
       DLPI_S3_N_HEDGES,
       DLPI_S3_N_HEDGES_WON,
       DLPI_S3_N_THROTTLED,
       DLPI_S3_N_CONNECTIONS,
       DLPI_S3_N_TIMEOUTS,
       DLPI_S3_N_REFRESHES,
       DLPI_S3_N_AWAY,
       DLPI_S3_COUNTS
};
_Static_assert(sizeof(dlp_s3_stats) == 8 * DLPI_S3_COUNTS, "a counter for each of dlp_s3_stats");

/* What all threads and processes of a client share. All zero is its start. (in region) */
typedef struct dlpi_s3_shared {
    uint64_t count[DLPI_S3_COUNTS];
    uint64_t ahead;   /* retries ahead of successes; a race can leave it a little below 0 */
    int64_t skew_s;   /* the servers' clock less ours */
    uint64_t away_ns; /* S9, since when requests fail and none has its answer; 0: they do not */
    uint64_t fails;   /* S9, since then */
    uint64_t told_ns; /* S9, when the log was told last; 0: not yet */
    uint64_t back_ns; /* S9, when it came back last, after DLPI_S3_AWAY_NS at least */
    uint64_t decodes; /* S10, 1: the server decodes gzip unless it is accepted */
} dlpi_s3_shared;

static inline void dlpi_s3_count(dlpi_s3_shared *s, int what, uint64_t n) {
    DLPI_ADD_RLX(&s->count[what], n);
}

#define DLPI_S3_CLASSES 4u   /* sizes up to 16 KiB, 256 KiB, 4 MiB, and larger or not known */
#define DLPI_S3_BUCKETS 176u /* microseconds, 8 buckets an octave, up to 16 s */
#define DLPI_S3_SAMPLES 512u /* then they are halved: the older, the less they count */
#define DLPI_S3_SAMPLES_FEWEST 16u
#define DLPI_S3_HEDGE_SAVED 32u  /* hedges that may be saved up */
#define DLPI_S3_HEDGE_FIRST 4u   /* and are there at the beginning */
#define DLPI_S3_FACTOR_FIRST 24u /* in sixteenths of p95 */
#define DLPI_S3_FACTOR_LEAST 18u
#define DLPI_S3_FACTOR_MOST 128u

#define DLPI_S3_SHARE 65536u              /* all answers */
#define DLPI_S3_SINCE_CUT 128u            /* answers that show whether a cut has helped */
#define DLPI_S3_PACE_BYTES 65536u         /* of which the time is kept */
#define DLPI_S3_PACE_FIRST_NS 1000000000u /* until it is known */
#define DLPI_S3_PACE_LEAST_NS 16000000u   /* what is faster counts as this */
#define DLPI_S3_PACE_FACTOR 8u
#define DLPI_S3_MOVES_MOST 16u

/* ALL DEADLINES, in nanoseconds: what each is counted from, and what follows when it is over. */
enum {
    DLPI_S3_BY_CONNECT, /* connect, until the handshake is done: another attempt */
    DLPI_S3_BY_RACE,    /* connect: another address is tried beside this one */
    DLPI_S3_BY_FIRST,   /* the request's last byte, delivered: another attempt */
    DLPI_S3_BY_DEAF,    /* the same, if the server takes no more: another attempt */
    DLPI_S3_BY_STALL,   /* the last byte, sent or come: another attempt, which goes on there */
    DLPI_S3_BY_LOOK,    /* the last look: at a body's rate, or at what the kernel has of a PUT */
    DLPI_S3_BY_DRAIN,   /* an answer that nobody wants: the connection is closed */
    DLPI_S3_BY_IDLE,    /* the last answer: the connection is closed */
    DLPI_S3_BY_STILL,   /* the op's last byte that was new: the request ends */
    DLPI_S3_BY_WHOLE,   /* submit: the request ends; UINT64_MAX: no such bound */
    DLPI_S3_DEADLINES
};

typedef struct dlpi_s3_times {
    uint32_t bucket[DLPI_S3_BUCKETS];
    uint32_t total;
    uint32_t factor;
} dlpi_s3_times;

/* One thread's. */
typedef struct dlpi_s3_patience {
    dlpi_s3_shared *shared;
    uint64_t backoff_ns, backoff_max_ns;
    uint64_t by[DLPI_S3_DEADLINES];
    uint64_t random;
    uint32_t share;     /* of answers that were throttled, in 65536ths */
    uint32_t share_cut; /* at the last cut; 0: whether that has helped is known */
    uint32_t by_chance; /* of it, what no cut helps against */
    uint32_t since_cut; /* answers; 128 are enough */
    uint64_t next_cut_ns, throttled_until_ns, risen_ns;
    uint64_t limit, full;        /* requests in flight, in 1024ths */
    uint64_t half;               /* of what limit was before it was cut */
    uint64_t uncut;              /* limit before the last cut */
    uint64_t answered_ns;        /* the last answer */
    uint64_t chance_until_ns;    /* for so long by_chance holds */
    uint64_t gap_ns, gap_cut_ns; /* between answers, lately; at the last cut */
    bool cutting;                /* no good answer since throttled_until_ns */
    uint64_t hedges;             /* that may be sent, in hundredths */
    int64_t retry_tokens;        /* -1: no limit */
    int32_t max_attempts;        /* -1: no limit */
    int32_t hedge_percent;
    dlpi_s3_times times[DLPI_S3_CLASSES];
    dlpi_s3_times paces[DLPI_S3_CLASSES]; /* of DLPI_S3_PACE_BYTES of bodies */
} dlpi_s3_patience;

static uint64_t dlpi_s3_ms(int32_t ms) { return (uint32_t)ms * DLPI_S3_MS; }

static uint64_t dlpi_s3_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Fill by[] with the time limits in ns that follow from the desc. */
static void dlpi_s3_deadlines(uint64_t by[DLPI_S3_DEADLINES], const dlp_s3_desc *d) {
    by[DLPI_S3_BY_CONNECT] = dlpi_s3_ms(d->connect_timeout_ms);
    by[DLPI_S3_BY_RACE] = dlpi_s3_least(by[DLPI_S3_BY_CONNECT], 300 * DLPI_S3_MS);
    by[DLPI_S3_BY_FIRST] = dlpi_s3_ms(d->first_byte_timeout_ms);
    by[DLPI_S3_BY_DEAF] = dlpi_s3_least(by[DLPI_S3_BY_FIRST], 1000 * DLPI_S3_MS);
    by[DLPI_S3_BY_STALL] = dlpi_s3_ms(d->stall_timeout_ms);
    by[DLPI_S3_BY_DRAIN] = dlpi_s3_least(by[DLPI_S3_BY_STALL], 3000 * DLPI_S3_MS);
    by[DLPI_S3_BY_IDLE] = dlpi_s3_ms(d->idle_timeout_ms);
    by[DLPI_S3_BY_STILL] = dlpi_s3_ms(d->progress_timeout_ms);
    by[DLPI_S3_BY_WHOLE] =
        d->request_timeout_ms > 0 ? dlpi_s3_ms(d->request_timeout_ms) : UINT64_MAX;
    by[DLPI_S3_BY_LOOK] =
        dlpi_s3_least(by[DLPI_S3_BY_STALL], by[DLPI_S3_BY_STILL]) / 5 + DLPI_S3_MS;
}

/* Return the time after which a request without any progress ends. *field: the field that sets it.
   d: all numbers resolved. */
static int32_t dlpi_s3_bound_ms(const dlp_s3_desc *d, const char **field) {
    bool whole = d->request_timeout_ms > 0 && d->request_timeout_ms <= d->progress_timeout_ms;
    *field = whole ? "request_timeout_ms" : "progress_timeout_ms";
    return whole ? d->request_timeout_ms : d->progress_timeout_ms;
}

/* Begin a thread's patience. d: all numbers resolved, -1 for no limit and for no hedges. */
static void dlpi_s3_patience_begin(dlpi_s3_patience *p, dlpi_s3_shared *shared,
                                   const dlp_s3_desc *d, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->shared = shared;
    p->backoff_ns = dlpi_s3_ms(d->backoff_ms);
    p->backoff_max_ns = dlpi_s3_ms(d->backoff_max_ms);
    dlpi_s3_deadlines(p->by, d);
    p->random = seed ? seed : 1;
    p->limit = p->full = (uint64_t)d->max_requests << 10;
    p->retry_tokens = d->retry_tokens;
    p->max_attempts = d->max_attempts;
    p->hedge_percent = d->hedge_percent > 0 ? d->hedge_percent : 0;
    p->hedges = DLPI_S3_HEDGE_FIRST * 100;
    for (unsigned i = 0; i < DLPI_S3_CLASSES; i++) p->times[i].factor = DLPI_S3_FACTOR_FIRST;
}

/* ---- what went wrong, and what to do ---- */

enum {
    DLPI_S3_GIVE_UP,
    DLPI_S3_RETRY,
    DLPI_S3_REPLAY,       /* free, at once, on a new connection: the idle one had been closed */
    DLPI_S3_OTHER_REGION, /* the answer tells which */
    DLPI_S3_REDIRECT,     /* to its Location */
    DLPI_S3_SKEW,         /* with the server's clock */
    DLPI_S3_REFRESH,      /* with new credentials */
    DLPI_S3_RESTART       /* from the object's beginning: it has changed */
};
enum {
    DLPI_S3_T_ANSWER, /* a whole answer, other than what was asked for */
    DLPI_S3_T_RESOLVE,
    DLPI_S3_T_CONNECT,
    DLPI_S3_T_TLS,
    DLPI_S3_T_TIMEOUT, /* to connect, to the first byte, or inside a body */
    DLPI_S3_T_BROKEN,  /* ended, reset, in head or body */
    DLPI_S3_T_BAD,     /* not HTTP */
    DLPI_S3_T_SHORT,   /* of the wrong length or range */
    DLPI_S3_T_CHANGED, /* a later answer for the same object has another ETag, or none */
    DLPI_S3_T_OTHER,   /* it is not the version that the user's If-Match names */
    DLPI_S3_T_SUM,     /* the bytes of an object do not have its checksum */
    DLPI_S3_T_FAILURE  /* in a rule: any but an answer */
};

typedef struct dlpi_s3_trouble {
    int32_t what, status, errnum, method;
    bool reused;  /* the connection had been idle */
    bool began;   /* a byte of the answer had come */
    bool resumed; /* If-Match was ours, not the user's */
    bool has_region, has_location;
    bool refreshable;    /* credentials are not fixed ones */
    int64_t skew_s;      /* the answer's Date less the clock that signed; 0: not known */
    const char *s3_code; /* "" or NULL: none; an answer to HEAD has no body to tell it */
} dlpi_s3_trouble;

/* How often a request was begun again for each reason but plain failure: none without end. */
typedef struct dlpi_s3_tries {
    uint8_t replays, regions, redirects, skews, refreshes, restarts, wrong, names, sums;
} dlpi_s3_tries;

/* True if an answer tells that there are too many requests. Codes: AWS' SDK reference, "Retry
   behavior"; SlowDownRead and -Write are MinIO's. */
static bool dlpi_s3_is_throttle(int status, const char *s3_code) {
    return status == 503 || status == 429 ||
           dlpi_s3_listed(" SlowDown SlowDownRead SlowDownWrite Throttling ThrottlingException"
                          " ThrottledException RequestThrottled RequestThrottledException"
                          " TooManyRequests TooManyRequestsException RequestLimitExceeded"
                          " BandwidthLimitExceeded LimitExceededException"
                          " ProvisionedThroughputExceededException EC2ThrottledException ",
                          s3_code);
}

enum { /* facts about trouble */
       DLPI_S3_IF_ANY = 0,
       DLPI_S3_IF_UNTRUSTED = 1, /* a certificate is refused */
       DLPI_S3_IF_STAYS = 2,     /* an errno that another attempt does not change */
       DLPI_S3_IF_NO_NAME = 4,   /* the resolver is sure of that */
       DLPI_S3_IF_IDLE = 8,      /* the connection had been idle, and no byte came */
       DLPI_S3_IF_OURS = 16,     /* the If-Match was ours */
       DLPI_S3_IF_REGION = 32,   /* the answer names another region, */
       DLPI_S3_IF_PLACE = 64,    /* or a Location */
       DLPI_S3_IF_KEYS = 128,    /* credentials can be fetched again */
       DLPI_S3_IF_CLOCK = 256,   /* the clocks are 4 minutes apart */
       DLPI_S3_IF_BARE = 512,    /* the server tells no code */
       DLPI_S3_IF_CROWD = 1024   /* it is throttled */
};

/* Return the facts (DLPI_S3_IF_*) that are true of a trouble. The rules ask for them. */
static unsigned dlpi_s3_facts(const dlpi_s3_trouble *t) {
    int e = t->errnum;
    unsigned facts = e == EAGAIN ? 0u : DLPI_S3_IF_NO_NAME;
    if (e == EKEYREJECTED) facts |= DLPI_S3_IF_UNTRUSTED;
    if (e == EACCES || e == EPERM || e == EAFNOSUPPORT || e == EPROTONOSUPPORT || e == EINVAL)
        facts |= DLPI_S3_IF_STAYS;
    if (t->reused && !t->began) facts |= DLPI_S3_IF_IDLE;
    if (t->resumed) facts |= DLPI_S3_IF_OURS;
    if (t->has_region) facts |= DLPI_S3_IF_REGION;
    if (t->has_location) facts |= DLPI_S3_IF_PLACE;
    if (t->refreshable) facts |= DLPI_S3_IF_KEYS;
    if (t->skew_s > 240 || t->skew_s < -240) facts |= DLPI_S3_IF_CLOCK;
    if (!t->s3_code || !t->s3_code[0]) facts |= DLPI_S3_IF_BARE;
    if (dlpi_s3_is_throttle(t->status, t->s3_code)) facts |= DLPI_S3_IF_CROWD;
    return facts;
}

/* ONE TABLE of what is sent again. The first rule that fits is followed. A rule that has been
   followed "most" times in one request ends it, or, if "most" is below 0, is passed over from then
   on.

     verdict       sent again                 what ends it              what counts from the start
     RETRY         after a pause of           max_attempts; the         attempts, if the range has
                   backoff_ms * 2^n, or       deadlines STILL, WHOLE    got on and keeps its bytes;
                   Retry-After if longer                                STILL, by each new byte
     REPLAY        at once, new connection    most, then RETRY          nothing
     OTHER_REGION  at once, in that region    most                      nothing; the client keeps it
     REDIRECT      at once, at the Location   most                      nothing
     SKEW          at once, by that clock     most                      nothing; the client keeps it
     REFRESH       when others are fetched    most                      nothing
     RESTART       at once, from byte 0       most                      nothing
     slow body     at once, new connection    DLPI_S3_MOVES_MOST        nothing (dlpi_s3_slow)
     hedge         beside the first           hedge_percent             see Hedges */
typedef struct dlpi_s3_rule {
    int16_t what;           /* DLPI_S3_T_* */
    uint16_t facts;         /* DLPI_S3_IF_*, all of which must hold */
    const char *status;     /* NULL: any; else each with blanks around it */
    const char *codes;      /* the same */
    int16_t verdict, count; /* count: which of dlpi_s3_tries; -1: without end */
    int16_t most;
} dlpi_s3_rule;

#define DLPI_S3_FAILED(what, facts, verdict, ...) \
    { DLPI_S3_T_##what, DLPI_S3_IF_##facts, NULL, NULL, DLPI_S3_##verdict, __VA_ARGS__ }
#define DLPI_S3_TOLD(status, codes, facts, verdict, ...) \
    { DLPI_S3_T_ANSWER, DLPI_S3_IF_##facts, status, codes, DLPI_S3_##verdict, __VA_ARGS__ }
#define DLPI_S3_TRIES(field, most) (int16_t) offsetof(dlpi_s3_tries, field), most
#define DLPI_S3_ALWAYS -1, 0
#define DLPI_S3_MOVED " 301 302 307 308 "
#define DLPI_S3_BARRED " 400 401 403 "

static const dlpi_s3_rule dlpi_s3_rules[] = {
    DLPI_S3_FAILED(FAILURE, UNTRUSTED, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(RESOLVE, NO_NAME, RETRY, DLPI_S3_TRIES(names, 2)),
    DLPI_S3_FAILED(CONNECT, STAYS, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(BROKEN, IDLE, REPLAY, DLPI_S3_TRIES(replays, -3)),
    /* A damaged answer may come once or twice, a wrong server comes always. */
    DLPI_S3_FAILED(BAD, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    DLPI_S3_FAILED(SHORT, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    DLPI_S3_FAILED(CHANGED, ANY, RESTART, DLPI_S3_TRIES(restarts, 3)),
    DLPI_S3_FAILED(OTHER, ANY, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(SUM, ANY, RESTART, DLPI_S3_TRIES(sums, 1)),
    DLPI_S3_FAILED(FAILURE, ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(NULL, NULL, CROWD, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(DLPI_S3_MOVED, NULL, REGION, OTHER_REGION, DLPI_S3_TRIES(regions, -2)),
    DLPI_S3_TOLD(DLPI_S3_MOVED, NULL, PLACE, REDIRECT, DLPI_S3_TRIES(redirects, 5)),
    DLPI_S3_TOLD(
        DLPI_S3_BARRED,
        " RequestTimeout RequestTimeoutException PriorRequestNotComplete IDPCommunicationError ",
        ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(DLPI_S3_BARRED, " RequestTimeTooSkewed RequestInTheFuture RequestExpired ", ANY,
                 SKEW, DLPI_S3_TRIES(skews, 2)),
    DLPI_S3_TOLD(DLPI_S3_BARRED, NULL, CLOCK, SKEW, DLPI_S3_TRIES(skews, 2)),
    DLPI_S3_TOLD(DLPI_S3_BARRED, NULL, REGION, OTHER_REGION, DLPI_S3_TRIES(regions, 2)),
    DLPI_S3_TOLD(
        DLPI_S3_BARRED,
        " ExpiredToken ExpiredTokenException InvalidToken TokenRefreshRequired InvalidAccessKeyId ",
        KEYS, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    DLPI_S3_TOLD(" 401 ", NULL, KEYS, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    DLPI_S3_TOLD(" 400 ", NULL, KEYS | DLPI_S3_IF_BARE, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    /* 499: nginx, whose client had given up; from 520 on: Cloudflare, of servers behind it. */
    DLPI_S3_TOLD(" 408 499 500 502 504 520 521 522 523 524 529 530 ", NULL, ANY, RETRY,
                 DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(" 409 ", " OperationAborted ConditionalRequestConflict ", ANY, RETRY,
                 DLPI_S3_ALWAYS),
    /* A document in place of the object. */
    DLPI_S3_TOLD(" 200 ", " InternalError ServiceUnavailable ", ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(" 200 ", NULL, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    /* 416: some servers look at the range before they look at If-Match. */
    DLPI_S3_TOLD(" 412 416 ", NULL, OURS, RESTART, DLPI_S3_TRIES(restarts, 3)),
    DLPI_S3_TOLD(NULL, NULL, ANY, GIVE_UP, DLPI_S3_ALWAYS),
};

/* True if a rule is for this trouble. facts: DLPI_S3_IF_* of the trouble. */
static bool dlpi_s3_rule_fits(const dlpi_s3_rule *rule, const dlpi_s3_trouble *t, unsigned facts) {
    char status[16];
    if (rule->what == DLPI_S3_T_FAILURE ? t->what == DLPI_S3_T_ANSWER : t->what != rule->what)
        return false;
    if ((facts & rule->facts) != rule->facts) return false;
    snprintf(status, sizeof status, "%d", (int)t->status);
    return (!rule->status || dlpi_s3_listed(rule->status, status)) &&
           (!rule->codes || dlpi_s3_listed(rule->codes, t->s3_code));
}

/* Return what to do about trouble: DLPI_S3_GIVE_UP, DLPI_S3_RETRY.. Only tries is changed, which
   counts what has a bound of its own; dlpi_s3_retry_take tells whether a RETRY may still be had. */
static int dlpi_s3_classify(const dlpi_s3_trouble *t, dlpi_s3_tries *tries) {
    unsigned facts = dlpi_s3_facts(t);
    for (const dlpi_s3_rule *rule = dlpi_s3_rules;; rule++) { /* the last one fits all */
        uint8_t *count = rule->count < 0 ? NULL : (uint8_t *)tries + rule->count;
        if (!dlpi_s3_rule_fits(rule, t, facts)) continue;
        if (count && *count >= abs(rule->most) && rule->most < 0) continue;
        if (count && *count >= rule->most && rule->most > 0) return DLPI_S3_GIVE_UP;
        if (count) ++*count;
        return rule->verdict;
    }
}

/* ---- retries ---- */

/* Return a pause of first_ns * 2^n (n from 1), at most most_ns, or down to half of that. */
static uint64_t dlpi_s3_pause_ns(uint64_t first_ns, uint64_t most_ns, int n, uint64_t *random) {
    uint64_t pause = first_ns;
    while (n-- > 0 && pause < most_ns) pause *= 2;
    pause = dlpi_s3_least(pause, most_ns);
    return pause - dlpi_s3_random(random) % (pause / 2 + 1);
}

static uint64_t dlpi_s3_backoff(dlpi_s3_patience *p, int n) {
    return dlpi_s3_pause_ns(p->backoff_ns, p->backoff_max_ns, n, &p->random);
}

/* Take a retry from the bucket. Returns false if it is empty: then the pause is the longest. */
static bool dlpi_s3_token_take(dlpi_s3_patience *p) {
    if (p->retry_tokens < 0 || (int64_t)DLPI_ADD_RLX(&p->shared->ahead, 1u) < p->retry_tokens)
        return true;
    DLPI_ADD_RLX(&p->shared->ahead, (uint64_t)-1);
    return false;
}

/* Take one more attempt. attempts: how many failed one after the other, 1 or more; retry_after_s:
   what the answer asked for, or -1. Returns true with *wait_ns, the pause before it; or false with
   *why if there is no attempt left. */
static bool dlpi_s3_retry_take(dlpi_s3_patience *p, int attempts, int64_t retry_after_s,
                               uint64_t *wait_ns, const char **why) {
    if (p->max_attempts >= 0 && attempts >= p->max_attempts) {
        *why = "after as many attempts as max_attempts allows";
        return false;
    }
    *wait_ns = dlpi_s3_backoff(p, dlpi_s3_token_take(p) ? attempts : INT32_MAX);
    if (retry_after_s > 0)
        *wait_ns += (uint64_t)(retry_after_s < 3600 ? retry_after_s : 3600) * 1000 * DLPI_S3_MS;
    return true;
}

/* ---- whether the server is away ---- */

#define DLPI_S3_AWAY_FEW 16u             /* failures that are told one by one */
#define DLPI_S3_AWAY_NS 1000000000u      /* what is shorter is not told */
#define DLPI_S3_AWAY_TELL_NS 5000000000u /* and then again */
#define DLPI_S3_AWAY_LOOK_NS 100000000u  /* between two looks whether it is back */
#define DLPI_S3_WAKE_NS 300000000u       /* over which those that waited are spread */

/* Return for how many ns the server has been away; 0: it is not. */
static uint64_t dlpi_s3_away_for(const dlpi_s3_shared *s, uint64_t now_ns) {
    uint64_t since = DLPI_LOAD_RLX(&s->away_ns); /* S9 */
    return since && now_ns > since ? now_ns - since : 0;
}

enum { DLPI_S3_TELL_IT = 0, DLPI_S3_TELL_NOTHING, DLPI_S3_TELL_AWAY };

/* Note that a request that has waited since since_ns has failed, and will be tried again. Returns
   what to tell the log: DLPI_S3_TELL_IT, DLPI_S3_TELL_AWAY or DLPI_S3_TELL_NOTHING. */
static int dlpi_s3_away(dlpi_s3_shared *s, uint64_t since_ns, uint64_t now_ns) {
    uint64_t none = 0, told = DLPI_LOAD_RLX(&s->told_ns); /* S9 */
    uint64_t fails = DLPI_ADD_RLX(&s->fails, 1u);         /* S9 */
    DLPI_CAS_SEQ(&s->away_ns, &none, since_ns);           /* S9 */
    if (fails < DLPI_S3_AWAY_FEW) return DLPI_S3_TELL_IT;
    if (dlpi_s3_away_for(s, now_ns) < DLPI_S3_AWAY_NS ||
        (told && now_ns < told + DLPI_S3_AWAY_TELL_NS))
        return DLPI_S3_TELL_NOTHING;
    if (!DLPI_CAS_SEQ(&s->told_ns, &told, now_ns)) return DLPI_S3_TELL_NOTHING; /* S9, by one */
    return DLPI_S3_TELL_AWAY;
}

/* Note an answer. Returns for how many ns there was none, if the log was told of that; else 0. */
static uint64_t dlpi_s3_back(dlpi_s3_shared *s, uint64_t now_ns) {
    uint64_t since = DLPI_LOAD_RLX(&s->away_ns); /* S9 */
    if (since == 0) return 0;
    since = DLPI_XCHG_SEQ(&s->away_ns, 0u); /* S9, by one */
    DLPI_STORE_RLX(&s->fails, 0u);          /* S9 */
    if (since && now_ns > since + DLPI_S3_AWAY_NS) DLPI_STORE_RLX(&s->back_ns, now_ns); /* S9 */
    if (since == 0 || DLPI_XCHG_SEQ(&s->told_ns, 0u) == 0) return 0;                    /* S9 */
    return now_ns > since ? now_ns - since : 1;
}

/* ---- throttling ---- */

static bool dlpi_s3_throttled(const dlpi_s3_patience *p, uint64_t now_ns) {
    return now_ns < p->throttled_until_ns;
}

static uint64_t dlpi_s3_period(const dlpi_s3_patience *p) { return 4 * p->backoff_ns; }

/* Return the share of throttled answers above which there are too many. */
static uint32_t dlpi_s3_share_most(const dlpi_s3_patience *p) {
    return (p->limit == p->full ? DLPI_S3_SHARE / 4 : DLPI_S3_SHARE / 6) + p->by_chance;
}

/* Judge, when enough answers have come after a cut, whether it has helped. If not, undo it. */
static void dlpi_s3_cut_judge(dlpi_s3_patience *p) {
    double s = p->share_cut, all = DLPI_S3_SHARE, fewer = (double)p->gap_cut_ns / (double)p->gap_ns;
    double helped = all - (all - s) / fewer; /* what the share is then */
    if (helped < 0) helped = 0;
    if (fewer < 0.85 && p->share < DLPI_S3_SHARE / 2 && p->share > (s + helped) / 2) {
        p->by_chance = p->share;
        p->chance_until_ns = p->answered_ns + 16 * dlpi_s3_period(p);
        p->limit = p->uncut;
    }
    p->share_cut = 0;
}

/* Note that an answer came, for the mean time between answers. */
static void dlpi_s3_gap(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t gap = now_ns - p->answered_ns, most = dlpi_s3_period(p) / 4;
    p->answered_ns = now_ns;
    if (gap > most) gap = most; /* nobody asked, or nobody looked */
    p->gap_ns += gap / 64;
    p->gap_ns -= p->gap_ns / 64;
}

/* Cut the number of requests in flight, if the last cut is a period ago. */
static void dlpi_s3_cut(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t period = dlpi_s3_period(p), floor = p->full / 8 > 1024 ? p->full / 8 : 1024;
    p->throttled_until_ns = now_ns + period;
    if (now_ns < p->next_cut_ns || (p->share_cut && p->share < DLPI_S3_SHARE / 2)) return;
    p->next_cut_ns = now_ns + period;
    p->share_cut = p->share;
    p->gap_cut_ns = p->gap_ns;
    p->since_cut = 0;
    p->uncut = p->limit;
    if (!p->cutting) p->half = p->limit / 2;
    p->cutting = true;
    p->limit = p->limit * 7 / 10;
    if (p->limit < floor) p->limit = floor;
}

/* Let there be more requests in flight, because a good answer came. */
static void dlpi_s3_rise(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t period = dlpi_s3_period(p), passed = now_ns - p->risen_ns, more;
    p->risen_ns = now_ns;
    if (p->limit == p->full || now_ns < p->throttled_until_ns) return;
    p->cutting = false;
    if (passed > 5 * period) passed = 5 * period;
    more = p->limit < p->half ? 1024 : p->full * passed / (32 * period);
    if (more == 0) p->risen_ns = now_ns - passed; /* until it is something */
    p->limit = p->limit + more < p->full ? p->limit + more : p->full;
}

/* Note a whole answer. throttled: it says so; ok: it ended a request of the user's well. */
static void dlpi_s3_answered(dlpi_s3_patience *p, uint64_t now_ns, bool throttled, bool ok) {
    dlpi_s3_gap(p, now_ns);
    p->share += (throttled ? DLPI_S3_SHARE / 64 : 0) - p->share / 64;
    if (now_ns >= p->chance_until_ns) p->by_chance = 0;
    if (p->share_cut && ++p->since_cut == DLPI_S3_SINCE_CUT) dlpi_s3_cut_judge(p);
    if (throttled) {
        if (p->share > dlpi_s3_share_most(p)) dlpi_s3_cut(p, now_ns);
        return;
    }
    dlpi_s3_rise(p, now_ns);
    if (ok && (int64_t)DLPI_LOAD_RLX(&p->shared->ahead) > 0)
        DLPI_ADD_RLX(&p->shared->ahead, (uint64_t)-1);
}

/* Return how many requests may be on the wire, hedges not counted. */
static int32_t dlpi_s3_limit(const dlpi_s3_patience *p) { return (int32_t)(p->limit >> 10); }

/* ---- hedges ---- */

static unsigned dlpi_s3_class(uint64_t bytes) {
    if (bytes == 0 || bytes > 4u << 20) return 3;
    return bytes <= 16u << 10 ? 0 : bytes <= 256u << 10 ? 1 : 2;
}

/* Return the number of a time's bucket. Each doubling of the time has 8 buckets, from 8 us on. */
static unsigned dlpi_s3_bucket(uint64_t ns) {
    uint64_t us = ns / 1000;
    unsigned shift;
    if (us < 8) return (unsigned)us;
    if (us >= 1u << 24) return DLPI_S3_BUCKETS - 1;
    shift = 60u - DLPI_CLZ(us);
    return 8 * shift + (unsigned)(us >> shift);
}

/* Return the least time, in ns, that is too long for bucket i. */
static uint64_t dlpi_s3_bucket_end(unsigned i) {
    if (i < 8) return (i + 1) * 1000ull;
    return (uint64_t)(i % 8 + 9) * 1000 << (i / 8 - 1);
}

static void dlpi_s3_halve(dlpi_s3_times *t) {
    if (t->factor > DLPI_S3_FACTOR_FIRST) t->factor -= (t->factor - DLPI_S3_FACTOR_FIRST + 1) / 2;
    t->total = 0;
    for (unsigned i = 0; i < DLPI_S3_BUCKETS; i++) t->total += t->bucket[i] /= 2;
}

static void dlpi_s3_times_add(dlpi_s3_times *t, uint64_t ns) {
    t->bucket[dlpi_s3_bucket(ns)]++;
    if (++t->total >= DLPI_S3_SAMPLES) dlpi_s3_halve(t);
}

/* Note that a valid head came ns after a request for so many bytes (0: not known) was sent. */
static void dlpi_s3_first_byte(dlpi_s3_patience *p, uint64_t bytes, uint64_t ns) {
    dlpi_s3_times_add(&p->times[dlpi_s3_class(bytes)], ns);
}

/* Return the time that percent of the samples do not exceed. There is at least one sample. */
static uint64_t dlpi_s3_percentile(const dlpi_s3_times *t, unsigned percent) {
    uint32_t want = (t->total * percent + 99) / 100, sum = 0;
    unsigned i = 0;
    for (; i < DLPI_S3_BUCKETS - 1; i++) {
        sum += t->bucket[i];
        if (sum >= want) break;
    }
    return dlpi_s3_bucket_end(i);
}

/* Note that a request went out that is no hedge. */
static void dlpi_s3_sent(dlpi_s3_patience *p) {
    p->hedges += (uint64_t)p->hedge_percent;
    if (p->hedges > DLPI_S3_HEDGE_SAVED * 100) p->hedges = DLPI_S3_HEDGE_SAVED * 100;
}

/* Return for how many ns a request for so many bytes waits for its first byte before it is hedged;
   UINT64_MAX: for ever. This changes as answers come. */
static uint64_t dlpi_s3_hedge_after(const dlpi_s3_patience *p, uint64_t now_ns, uint64_t bytes) {
    const dlpi_s3_times *t = &p->times[dlpi_s3_class(bytes)];
    uint64_t ns;
    if (!p->hedge_percent || t->total < DLPI_S3_SAMPLES_FEWEST || dlpi_s3_throttled(p, now_ns))
        return UINT64_MAX;
    ns = dlpi_s3_percentile(t, 95) * t->factor / 16;
    ns += ns * 2 * DLPI_S3_SAMPLES_FEWEST / t->total; /* few samples: their p95 may be off */
    if (ns < DLPI_S3_MS) ns = DLPI_S3_MS;
    return ns < p->by[DLPI_S3_BY_FIRST] ? ns : UINT64_MAX;
}

/* Take a hedge from the budget. Returns false if there is none. */
static bool dlpi_s3_hedge_take(dlpi_s3_patience *p, uint64_t now_ns) {
    if (!p->hedge_percent || p->hedges < 100 || dlpi_s3_throttled(p, now_ns)) return false;
    p->hedges -= 100;
    return true;
}

/* Note the end of a hedge. won: its head came first, when the first request had waited loser_ns. */
static void dlpi_s3_hedge_over(dlpi_s3_patience *p, uint64_t bytes, bool won, uint64_t loser_ns) {
    dlpi_s3_times *t = &p->times[dlpi_s3_class(bytes)];
    if (won) {
        dlpi_s3_first_byte(p, bytes, loser_ns);
        if (t->factor > DLPI_S3_FACTOR_LEAST) t->factor--;
    } else if (t->factor < DLPI_S3_FACTOR_MOST) {
        t->factor += 2;
    }
}

/* ---- slow bodies ---- */

/* How a body gets on. */
typedef struct dlpi_s3_body_pace {
    uint64_t size;    /* of the range, about */
    uint64_t got, ns; /* bytes, and the time that they took */
    uint64_t left;    /* bytes that are to come */
    uint64_t afresh;  /* bytes that would have to come over another connection */
    unsigned moves;   /* how often the range has gone on over another one */
} dlpi_s3_body_pace;

static double dlpi_s3_pace_ns(const dlpi_s3_body_pace *b) {
    return (double)b->ns * DLPI_S3_PACE_BYTES / (double)(b->got ? b->got : 1);
}

/* Record how fast a body, or a stretch of it, has come. */
static void dlpi_s3_paced(dlpi_s3_patience *p, const dlpi_s3_body_pace *b) {
    double ns = dlpi_s3_pace_ns(b);
    dlpi_s3_times_add(&p->paces[dlpi_s3_class(b->size)], ns < 1e12 ? (uint64_t)ns : UINT64_MAX);
}

/* True if the body should go on over another connection. */
static bool dlpi_s3_slow(const dlpi_s3_patience *p, const dlpi_s3_body_pace *b) {
    const dlpi_s3_times *t = &p->paces[dlpi_s3_class(b->size)];
    uint64_t usual_ns = DLPI_S3_PACE_FIRST_NS;
    if (b->moves >= DLPI_S3_MOVES_MOST) return false;
    if (t->total >= DLPI_S3_SAMPLES_FEWEST) usual_ns = dlpi_s3_percentile(t, 75);
    if (usual_ns < DLPI_S3_PACE_LEAST_NS) usual_ns = DLPI_S3_PACE_LEAST_NS;
    return (double)b->left * dlpi_s3_pace_ns(b) >
           (double)b->afresh * (double)usual_ns * (double)(DLPI_S3_PACE_FACTOR << b->moves);
}
