/* When to try again, when to ask twice, when to hold back: the policy alone, on a clock of the
   test's own. The runs at the end are of a small model of server and client, over many seeds. */
/* own: inside: deadlines, hedges and limits, by a clock that the test sets */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_s3.h"

#include "../../rig/check.h"

#define MS 1000000ull

static dlpi_s3_shared shared;
static dlpi_s3_patience patience;

static dlp_s3_desc defaults(void) {
    dlp_s3_desc d = {.first_byte_timeout_ms = 10000,
                     .max_attempts = -1,
                     .backoff_ms = 50,
                     .backoff_max_ms = 5000,
                     .retry_tokens = 500,
                     .hedge_percent = 5,
                     .max_requests = 64};
    return d;
}

static void begin(const dlp_s3_desc *d, uint64_t seed) {
    memset(&shared, 0, sizeof shared);
    dlpi_s3_patience_begin(&patience, &shared, d, seed * 0x9E3779B97F4A7C15u);
}

/* ---- verdicts ---- */

static int judged(dlpi_s3_trouble t) {
    dlpi_s3_tries tries = {0};
    return dlpi_s3_classify(&t, &tries);
}

static int answer(int status, const char *code) {
    return judged((dlpi_s3_trouble){.status = status, .s3_code = code});
}

/* How often the same trouble in one request is answered by this verdict, until it gives up. */
static int times(dlpi_s3_trouble t, int verdict) {
    dlpi_s3_tries tries = {0};
    int n = 0;
    while (n < 1000 && dlpi_s3_classify(&t, &tries) == verdict) n++;
    return n;
}

static void classify__answers__as_documented(void) {
    static const char *const again[] = {"RequestTimeout",
                                        "RequestTimeoutException",
                                        "PriorRequestNotComplete",
                                        "Throttling",
                                        "ThrottlingException",
                                        "ThrottledException",
                                        "RequestThrottledException",
                                        "TooManyRequestsException",
                                        "RequestLimitExceeded",
                                        "BandwidthLimitExceeded",
                                        "LimitExceededException",
                                        "RequestThrottled",
                                        "SlowDown",
                                        "EC2ThrottledException",
                                        "ProvisionedThroughputExceededException"};
    static const int statuses[] = {408, 429, 499, 500, 502, 503, 504,
                                   520, 521, 522, 523, 524, 529, 530};
    static const int final[] = {402, 404, 405, 406, 410, 411, 413, 414, 416,
                                417, 418, 422, 501, 505, 507, 304, 300};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++)
        CHECK(answer(400, again[i]) == DLPI_S3_RETRY);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        CHECK(answer(statuses[i], "") == DLPI_S3_RETRY);
        CHECK(answer(statuses[i], NULL) == DLPI_S3_RETRY);
        CHECK(answer(statuses[i], "InternalError") == DLPI_S3_RETRY);
    }
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        CHECK(answer(final[i], "") == DLPI_S3_GIVE_UP);
    CHECK(answer(404, "NoSuchKey") == DLPI_S3_GIVE_UP);
    CHECK(answer(403, "AccessDenied") == DLPI_S3_GIVE_UP);
    CHECK(answer(403, "SignatureDoesNotMatch") == DLPI_S3_GIVE_UP);
    CHECK(answer(400, "InvalidArgument") == DLPI_S3_GIVE_UP);
    CHECK(answer(409, "OperationAborted") == DLPI_S3_RETRY);
    CHECK(answer(409, "BucketNotEmpty") == DLPI_S3_GIVE_UP);
    CHECK(answer(412, "PreconditionFailed") == DLPI_S3_GIVE_UP);
    CHECK(dlpi_s3_is_throttle(503, "") && dlpi_s3_is_throttle(429, NULL));
    CHECK(dlpi_s3_is_throttle(400, "Throttling") && !dlpi_s3_is_throttle(500, "InternalError"));
}

static void classify__clock_region_token__once_or_twice(void) {
    dlpi_s3_trouble t = {.status = 403, .s3_code = "RequestTimeTooSkewed", .skew_s = 3600};
    CHECK(times(t, DLPI_S3_SKEW) == 2);
    t.s3_code = "", t.skew_s = -301; /* HEAD: no body, but a Date */
    CHECK(times(t, DLPI_S3_SKEW) == 2);
    t.skew_s = 200;
    CHECK(times(t, DLPI_S3_GIVE_UP) == 1000);
    t = (dlpi_s3_trouble){.status = 400, .s3_code = "AuthorizationHeaderMalformed"};
    CHECK(times(t, DLPI_S3_GIVE_UP) == 1000);
    t.has_region = true;
    CHECK(times(t, DLPI_S3_OTHER_REGION) == 2);
    t = (dlpi_s3_trouble){.status = 301, .s3_code = "PermanentRedirect", .has_region = true};
    CHECK(times(t, DLPI_S3_OTHER_REGION) == 2);
    t = (dlpi_s3_trouble){.status = 307, .has_location = true};
    CHECK(times(t, DLPI_S3_REDIRECT) == 5);
    t.has_location = false;
    CHECK(times(t, DLPI_S3_GIVE_UP) == 1000);
    t = (dlpi_s3_trouble){.status = 400, .s3_code = "ExpiredToken", .refreshable = true};
    CHECK(times(t, DLPI_S3_REFRESH) == 2);
    t.refreshable = false;
    CHECK(times(t, DLPI_S3_GIVE_UP) == 1000);
    t = (dlpi_s3_trouble){.status = 412, .resumed = true};
    CHECK(times(t, DLPI_S3_RESTART) == 3);
    t = (dlpi_s3_trouble){.what = DLPI_S3_T_CHANGED};
    CHECK(times(t, DLPI_S3_RESTART) == 3);
}

static void classify__connections__retried_but_what_stays_wrong(void) {
    dlpi_s3_trouble t = {.what = DLPI_S3_T_BROKEN, .errnum = ECONNRESET, .reused = true};
    CHECK(times(t, DLPI_S3_REPLAY) == 3);
    t.began = true;
    CHECK(judged(t) == DLPI_S3_RETRY);
    t.began = t.reused = false;
    CHECK(judged(t) == DLPI_S3_RETRY);
    t = (dlpi_s3_trouble){.what = DLPI_S3_T_CONNECT, .errnum = ECONNREFUSED};
    CHECK(times(t, DLPI_S3_RETRY) == 1000);
    t.errnum = EACCES;
    CHECK(judged(t) == DLPI_S3_GIVE_UP);
    t = (dlpi_s3_trouble){.what = DLPI_S3_T_TLS, .errnum = EKEYREJECTED};
    CHECK(judged(t) == DLPI_S3_GIVE_UP);
    t.errnum = ECONNRESET;
    CHECK(judged(t) == DLPI_S3_RETRY);
    CHECK(times((dlpi_s3_trouble){.what = DLPI_S3_T_TIMEOUT}, DLPI_S3_RETRY) == 1000);
    CHECK(times((dlpi_s3_trouble){.what = DLPI_S3_T_BAD}, DLPI_S3_RETRY) == 2);
    CHECK(times((dlpi_s3_trouble){.what = DLPI_S3_T_SHORT}, DLPI_S3_RETRY) == 2);
    t = (dlpi_s3_trouble){.what = DLPI_S3_T_RESOLVE, .errnum = EAGAIN};
    CHECK(times(t, DLPI_S3_RETRY) == 1000);
    t.errnum = ENXIO;
    CHECK(times(t, DLPI_S3_RETRY) == 2);
}

/* ---- deadlines ---- */

static void deadlines__of_a_desc__as_documented(void) {
    dlp_s3_desc d = defaults();
    d.connect_timeout_ms = 3000, d.stall_timeout_ms = 5000, d.idle_timeout_ms = 20000;
    d.progress_timeout_ms = 120000, d.request_timeout_ms = -1;
    begin(&d, 1);
    CHECK(patience.by[DLPI_S3_BY_CONNECT] == 3000 * MS && patience.by[DLPI_S3_BY_RACE] == 300 * MS);
    CHECK(patience.by[DLPI_S3_BY_FIRST] == 10000 * MS && patience.by[DLPI_S3_BY_DEAF] == 1000 * MS);
    CHECK(patience.by[DLPI_S3_BY_STALL] == 5000 * MS && patience.by[DLPI_S3_BY_DRAIN] == 3000 * MS);
    CHECK(patience.by[DLPI_S3_BY_LOOK] == 1001 * MS && patience.by[DLPI_S3_BY_IDLE] == 20000 * MS);
    CHECK(patience.by[DLPI_S3_BY_STILL] == 120000 * MS);
    CHECK(patience.by[DLPI_S3_BY_WHOLE] == UINT64_MAX);
    d.connect_timeout_ms = 200, d.first_byte_timeout_ms = 500, d.stall_timeout_ms = 2000;
    d.progress_timeout_ms = 100, d.request_timeout_ms = INT32_MAX;
    begin(&d, 1);
    CHECK(patience.by[DLPI_S3_BY_RACE] == 200 * MS && patience.by[DLPI_S3_BY_DEAF] == 500 * MS);
    CHECK(patience.by[DLPI_S3_BY_DRAIN] == 2000 * MS && patience.by[DLPI_S3_BY_LOOK] == 21 * MS);
    CHECK(patience.by[DLPI_S3_BY_WHOLE] == INT32_MAX * MS);
}

/* ---- retries ---- */

/* Half of each pause is fixed: so many retries last so long at least. */
static void retry__waits__equal_jitter_within_bounds(void) {
    dlp_s3_desc d = defaults();
    d.retry_tokens = -1;
    d.max_attempts = 100;
    begin(&d, 1);
    for (int n = 1; n < 20; n++) {
        uint64_t most = 50 * MS << (n < 7 ? n : 7), wait = 0, sum = 0, least = UINT64_MAX, top = 0;
        const char *why;
        if (most > 5000 * MS) most = 5000 * MS;
        for (int i = 0; i < 2000; i++) {
            CHECK(dlpi_s3_retry_take(&patience, n, -1, &wait, &why));
            sum += wait;
            if (wait < least) least = wait;
            if (wait > top) top = wait;
        }
        CHECK(top <= most && top > most / 100 * 98);
        CHECK(least >= most / 2 && least < most / 100 * 52);
        CHECK(sum / 2000 > most / 100 * 73 && sum / 2000 < most / 100 * 77);
    }
}

static void retry__retry_after__waited_at_least(void) {
    dlp_s3_desc d = defaults();
    uint64_t wait = 0;
    const char *why;
    begin(&d, 2);
    CHECK(dlpi_s3_retry_take(&patience, 1, 2, &wait, &why));
    CHECK(wait >= 2050 * MS && wait <= 2100 * MS);
    CHECK(dlpi_s3_retry_take(&patience, 1, INT64_MAX, &wait, &why)); /* no overflow */
    CHECK(wait >= 3600 * 1000 * MS && wait <= 3601 * 1000 * MS);
}

/* How many of a hundred first retries may be had at their own pause. */
static int at_once(void) {
    uint64_t wait = 0;
    const char *why;
    int n = 0;
    for (int i = 0; i < 100; i++) {
        CHECK(dlpi_s3_retry_take(&patience, 1, -1, &wait, &why));
        if (wait <= 100 * MS)
            n++;
        else
            CHECK(wait >= 2500 * MS && wait <= 5000 * MS);
    }
    return n;
}

static void retry__tokens_gone__waits_the_longest(void) {
    dlp_s3_desc d = defaults();
    d.retry_tokens = 10;
    begin(&d, 3);
    CHECK(at_once() == 10 && at_once() == 0);
    dlpi_s3_answered(&patience, 0, false, true);
    dlpi_s3_answered(&patience, 0, false, true);
    CHECK(at_once() == 2);
    for (int i = 0; i < 1000; i++) dlpi_s3_answered(&patience, 0, false, true);
    CHECK(at_once() == 10); /* successes are not saved up */
}

static void retry__attempts__a_bound_only_where_it_is_set(void) {
    dlp_s3_desc d = defaults();
    uint64_t wait = 77;
    const char *why = NULL;
    begin(&d, 3);
    CHECK(dlpi_s3_retry_take(&patience, INT32_MAX - 1, -1, &wait, &why));
    d.max_attempts = 8;
    begin(&d, 3);
    CHECK(dlpi_s3_retry_take(&patience, 7, -1, &wait, &why));
    CHECK(!dlpi_s3_retry_take(&patience, 8, -1, &wait, &why) && strstr(why, "max_attempts"));
}

/* ---- whether the server is away ---- */

static void away__failures__told_one_by_one_then_together_then_over(void) {
    uint64_t now = 500 * MS;
    int told[3] = {0};
    memset(&shared, 0, sizeof shared);
    CHECK(dlpi_s3_back(&shared, now) == 0 && dlpi_s3_away_for(&shared, now) == 0);
    for (; now < 12 * 1000 * MS; now += 10 * MS) told[dlpi_s3_away(&shared, 400 * MS, now)]++;
    CHECK(told[DLPI_S3_TELL_IT] == 16 && told[DLPI_S3_TELL_AWAY] == 3); /* 1.4, 6.4, 11.4 s */
    CHECK(dlpi_s3_away_for(&shared, now) == now - 400 * MS);
    CHECK(dlpi_s3_back(&shared, now) == now - 400 * MS && dlpi_s3_back(&shared, now) == 0);
    CHECK(dlpi_s3_away_for(&shared, now) == 0);
    CHECK(dlpi_s3_away(&shared, now, now) == DLPI_S3_TELL_IT);
    CHECK(dlpi_s3_back(&shared, now + MS) == 0); /* what was not told is not over */
}

/* ---- throttling ---- */

static void throttle__lone_503s__change_nothing(void) {
    dlp_s3_desc d = defaults();
    begin(&d, 4);
    for (uint64_t i = 0; i < 6400; i++) dlpi_s3_answered(&patience, i * MS, i % 8 == 0, i % 8 != 0);
    CHECK(dlpi_s3_limit(&patience) == 64);
    CHECK(dlpi_s3_hedge_take(&patience, 6400 * MS));
}

/* Nothing but 503 for so long, an answer each millisecond. Returns how often it was cut. */
static int throttled_for(uint64_t *now, uint64_t ms) {
    int cuts = 0, before = dlpi_s3_limit(&patience);
    for (uint64_t end = *now + ms * MS; *now < end; *now += MS) {
        int is;
        dlpi_s3_answered(&patience, *now, true, false);
        is = dlpi_s3_limit(&patience);
        cuts += is < before;
        CHECK(is <= before && is >= before * 7 / 10 - 1);
        before = is;
    }
    return cuts;
}

static void throttle__many__fewer_in_flight_down_to_a_floor(void) {
    dlp_s3_desc d = defaults();
    uint64_t now = 0;
    begin(&d, 5);
    CHECK(throttled_for(&now, 200) == 1 && dlpi_s3_limit(&patience) == 44);
    CHECK(throttled_for(&now, 1800) == 5); /* one in 4 * 50 ms, down to an eighth */
    CHECK(dlpi_s3_limit(&patience) == 8);
    now -= MS;
    CHECK(!dlpi_s3_hedge_take(&patience, now + 198 * MS) &&
          dlpi_s3_hedge_take(&patience, now + 200 * MS));
    dlpi_s3_answered(&patience, now + 198 * MS, false, true);
    CHECK(dlpi_s3_limit(&patience) == 8);
    dlpi_s3_answered(&patience, now + 200 * MS, false, true);
    CHECK(dlpi_s3_limit(&patience) == 9);
}

/* As many in flight as there may be, each answered well after answer_ms. Returns the time until
   there may be so many. */
static uint64_t until_again(uint64_t now, uint64_t answer_ms, int limit) {
    uint64_t due[4096], from = now;
    int n = 0;
    for (; dlpi_s3_limit(&patience) < limit && now < from + 60000 * MS; now += MS / 10) {
        for (int i = 0; i < n; i++)
            if (due[i] <= now) {
                due[i--] = due[--n];
                dlpi_s3_answered(&patience, now, false, true);
            }
        while (n < dlpi_s3_limit(&patience)) due[n++] = now + answer_ms * MS;
    }
    return (now - from) / MS;
}

static void throttle__over__twice_as_many_then_more_by_the_clock(void) {
    static const int full[] = {64, 1, 5, 1000}, answer_ms[] = {1, 20, 800};
    dlp_s3_desc d = defaults();
    for (int i = 0; i < 12; i++) {
        int all = d.max_requests = full[i / 3];
        uint64_t now = 0, most;
        begin(&d, 6);
        throttled_for(&now, 3000);
        most = until_again(now, (uint64_t)answer_ms[i % 3], all * 3 / 4);
        CHECK(most <= 5000);
        most += until_again(now + most * MS, (uint64_t)answer_ms[i % 3], all);
        CHECK(most <= 8000);
        CHECK(all < 8 || most >= 3200); /* quick answers do not make it hasty */
        CHECK(dlpi_s3_limit(&patience) == all);
    }
}

/* What a server refuses. */
typedef struct gate {
    double by_chance;
    int at_once;     /* lets so many pass at once; 0: all */
    double a_second; /* and so many a second; 0: all */
    double tokens;
} gate;

typedef struct passed {
    double refused; /* of all, in percent */
    double good;    /* a second */
    double limit;   /* on average */
} passed;

static bool gate_refuses(gate *g, int passing, uint64_t *random) {
    bool refuses = (double)(dlpi_s3_random(random) >> 11) / 9007199254740992.0 < g->by_chance;
    refuses =
        refuses || (g->at_once && passing >= g->at_once) || (g->a_second > 0 && g->tokens < 1);
    if (!refuses) g->tokens -= 1;
    return refuses;
}

/* As many in flight as there may be for a minute: a good answer takes 20 ms, a bad one 10. */
static passed pass(gate g, uint64_t seed) {
    dlp_s3_desc d = defaults();
    uint64_t now = 0, due[64], asked = 0, refused = 0, good = 0, sum = 0, random = seed;
    int n = 0, kind[64], passing;
    begin(&d, seed);
    for (; now < 60000 * MS; now += MS / 10) {
        g.tokens += g.a_second / 10000;
        if (g.tokens > g.a_second / 20) g.tokens = g.a_second / 20;
        for (int i = 0; i < n; i++)
            if (due[i] <= now) {
                dlpi_s3_answered(&patience, now, kind[i] == 0, kind[i] != 0);
                good += kind[i] != 0;
                due[i] = due[--n];
                kind[i--] = kind[n];
            }
        for (; n < dlpi_s3_limit(&patience); n++) {
            passing = 0;
            for (int i = 0; i < n; i++) passing += kind[i];
            kind[n] = !gate_refuses(&g, passing, &random);
            refused += !kind[n];
            asked++;
            due[n] = now + (kind[n] ? 20 : 10) * MS;
        }
        sum += (uint64_t)dlpi_s3_limit(&patience);
    }
    return (passed){(double)refused * 100 / (double)asked, (double)good / 60, (double)sum / 600000};
}

/* A server that lets 20 in flight pass: it is not asked for much more, nor for much less. */
static void throttle__some_pass__near_what_passes(void) {
    passed p = pass((gate){.at_once = 20}, 7);
    printf("20 pass: %.0f %% refused, %.1f pass on average\n", p.refused, p.good * 0.02);
    CHECK(p.refused < 15 && p.good * 0.02 >= 14);
}

static void throttle__so_many_a_second__near_what_passes(void) {
    for (uint64_t seed = 1; seed < 3; seed++) {
        passed p = pass((gate){.a_second = 400}, seed), q;
        CHECK(p.refused < 20 && p.good > 370);
        q = pass((gate){.a_second = 400, .by_chance = 0.05}, seed);
        CHECK(q.refused < 25 && q.good > 340);
        printf("400 a second: %.0f of them, %.0f %% refused; with 5 %% by chance %.0f, %.0f %%\n",
               p.good, p.refused, q.good, q.refused);
    }
}

/* A server that refuses at random: fewer in flight would help nobody. */
static void throttle__by_chance__as_many_in_flight(void) {
    static const double percent[] = {5, 10, 15, 20};
    for (int i = 0; i < 4; i++) {
        double least = 64;
        for (uint64_t seed = 1; seed < 3; seed++) {
            passed p = pass((gate){.by_chance = percent[i] / 100}, seed);
            if (p.limit < least) least = p.limit;
        }
        printf("%.0f %% by chance: %.1f in flight on average\n", percent[i], least);
        CHECK(least >= (i < 2 ? 63 : i < 3 ? 56 : 48));
    }
}

static void throttle__one_in_flight__stays_one(void) {
    dlp_s3_desc d = defaults();
    d.max_requests = 1;
    begin(&d, 6);
    for (uint64_t i = 0; i < 1000; i++) dlpi_s3_answered(&patience, i * 100 * MS, true, false);
    CHECK(dlpi_s3_limit(&patience) == 1);
}

/* ---- hedges ---- */

static void hedge__buckets__have_no_gaps(void) {
    for (unsigned i = 0; i < DLPI_S3_BUCKETS; i++) {
        CHECK(dlpi_s3_bucket(dlpi_s3_bucket_end(i) - 1) == i);
        if (i + 1 < DLPI_S3_BUCKETS) CHECK(dlpi_s3_bucket(dlpi_s3_bucket_end(i)) == i + 1);
    }
    CHECK(dlpi_s3_bucket(0) == 0 && dlpi_s3_bucket(UINT64_MAX) == DLPI_S3_BUCKETS - 1);
}

static void hedge__p95__trusted_when_known_and_follows(void) {
    dlp_s3_desc d = defaults();
    uint64_t after;
    begin(&d, 7);
    for (unsigned i = 0; i < DLPI_S3_SAMPLES_FEWEST; i++) {
        CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) == UINT64_MAX);
        dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    }
    after = dlpi_s3_hedge_after(&patience, 0, 100000); /* 1.5 p95, and wide yet */
    CHECK(after >= 30 * MS && after < 50 * MS);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 10 << 20) == UINT64_MAX); /* other classes */
    CHECK(dlpi_s3_hedge_after(&patience, 0, 16 << 10) == UINT64_MAX);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 1 << 20) == UINT64_MAX);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 0) == UINT64_MAX);
    for (int i = 0; i < 5000; i++)
        dlpi_s3_first_byte(&patience, 100000, i % 50 == 0 ? 1500 * MS : 10 * MS);
    after = dlpi_s3_hedge_after(&patience, 0, 100000);
    CHECK(after >= 15 * MS && after < 20 * MS); /* 2 % of late ones do not matter */
    for (int i = 0; i < 40; i++) dlpi_s3_first_byte(&patience, 100000, 40 * MS);
    after = dlpi_s3_hedge_after(&patience, 0, 100000);
    CHECK(after >= 60 * MS && after < 80 * MS); /* slower: believed after some dozens */
    for (int i = 0; i < 2500; i++) dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) < 20 * MS);
    for (int i = 0; i < 2500; i++) dlpi_s3_first_byte(&patience, 100000, 9999 * MS);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) == UINT64_MAX); /* the time-out comes first */
}

static void hedge__hasty__waits_longer(void) {
    dlp_s3_desc d = defaults();
    uint64_t at_first, later;
    begin(&d, 8);
    for (int i = 0; i < 400; i++) dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    at_first = dlpi_s3_hedge_after(&patience, 0, 100000);
    for (int i = 0; i < 12; i++) dlpi_s3_hedge_over(&patience, 100000, false, 0);
    later = dlpi_s3_hedge_after(&patience, 0, 100000);
    CHECK(later > at_first * 19 / 10 && later < at_first * 21 / 10);
    for (int i = 0; i < 1000; i++) dlpi_s3_hedge_over(&patience, 100000, false, 0);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) < at_first * 6);
    for (int i = 0; i < 110; i++) {
        dlpi_s3_hedge_over(&patience, 100000, true, 11 * MS);
        dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    }
    later = dlpi_s3_hedge_after(&patience, 0, 100000);
    CHECK(later < at_first && later > 11 * MS);
}

/* A slow while in which no hedge came first is over: soon they go out as early as before. */
static void hedge__hasty_for_a_while__forgotten(void) {
    dlp_s3_desc d = defaults();
    uint64_t at_first;
    begin(&d, 8);
    for (int i = 0; i < 3000; i++) dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    at_first = dlpi_s3_hedge_after(&patience, 0, 100000);
    for (int i = 0; i < 1000; i++) dlpi_s3_hedge_over(&patience, 100000, false, 0);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) > 4 * at_first);
    for (int i = 0; i < 2000; i++) dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) < at_first * 12 / 10);
}

static void hedge__budget__a_share_of_traffic(void) {
    dlp_s3_desc d = defaults();
    int hedges = 0;
    begin(&d, 9);
    for (int i = 0; i < 10000; i++) {
        dlpi_s3_sent(&patience);
        hedges += dlpi_s3_hedge_take(&patience, 0);
    }
    CHECK(hedges == 504); /* 5 %, and 4 to begin with */
    for (int i = 0; i < 10000; i++) dlpi_s3_sent(&patience);
    for (hedges = 0; dlpi_s3_hedge_take(&patience, 0);) hedges++;
    CHECK(hedges == 32); /* no more are saved up */
    d.hedge_percent = -1;
    begin(&d, 9);
    for (int i = 0; i < 100; i++) dlpi_s3_first_byte(&patience, 100000, 10 * MS);
    CHECK(!dlpi_s3_hedge_take(&patience, 0));
    CHECK(dlpi_s3_hedge_after(&patience, 0, 100000) == UINT64_MAX);
}

/* ---- slow bodies ---- */

/* The milliseconds of 64 KiB above which a body of 1 MiB, half of which has come, is slow. */
static unsigned slow_from(unsigned moves, bool afresh) {
    unsigned ms = 1;
    for (; ms < 1000000; ms++) {
        dlpi_s3_body_pace b = {1 << 20, 65536, ms * MS, 1 << 19, afresh ? 1 << 20 : 1 << 19, moves};
        if (dlpi_s3_slow(&patience, &b)) break;
    }
    return ms;
}

static void slow__body__by_its_class_and_its_moves(void) {
    dlp_s3_desc d = defaults();
    dlpi_s3_body_pace b = {1 << 20, 1 << 20, 0, 0, 0, 0};
    unsigned at;
    begin(&d, 10);
    CHECK(slow_from(0, false) == 8001 && slow_from(0, true) == 16001);
    CHECK(slow_from(1, false) == 16001);
    b.ns = 16 * 50 * MS; /* 50 ms for 64 KiB */
    for (unsigned i = 0; i < DLPI_S3_SAMPLES_FEWEST - 1; i++) dlpi_s3_paced(&patience, &b);
    CHECK(slow_from(0, false) == 8001);
    dlpi_s3_paced(&patience, &b);
    at = slow_from(0, false);
    CHECK(at >= 400 && at <= 460);
    CHECK(slow_from(2, false) >= 4 * at - 4 && slow_from(16, false) == 1000000);
    b.size = 1 << 12; /* another class */
    b.ns = 16 * 5000 * MS;
    for (int i = 0; i < 100; i++) dlpi_s3_paced(&patience, &b);
    CHECK(slow_from(0, false) == at);
    b.size = 1 << 20;
    for (int i = 0; i < 100; i++) dlpi_s3_paced(&patience, &b); /* all are slow now */
    CHECK(slow_from(0, false) > 40000);
    b.ns = 0; /* all at once: what is fast enough is never slow */
    for (int i = 0; i < 4000; i++) dlpi_s3_paced(&patience, &b);
    CHECK(slow_from(0, false) == 129);
    b.got = 0;
    b.ns = UINT64_MAX;
    dlpi_s3_paced(&patience, &b);
    CHECK(dlpi_s3_slow(&patience, &(dlpi_s3_body_pace){1 << 20, 0, 1000 * MS, 1, 1, 0}));
}

/* ---- a model of it all ---- */

enum { OBJECTS = 600, SENT_MOST = 2000, ATTEMPTS = 3 };

typedef struct attempt {
    uint64_t sent, due; /* due: reaches the server's queue, or is answered; 0: none */
    int fate;           /* 200, 503, 0: reset */
    int queued;
} attempt;

typedef struct model {
    double p503, preset, plate;
    uint64_t late, service, round_trip, spread;
    attempt at[OBJECTS][ATTEMPTS];
    uint64_t again[OBJECTS]; /* when the next attempt is due; 0: none */
    int failed[OBJECTS], done[OBJECTS];
    int wire, sent, hedges, won, lost, over, next;
    uint64_t now, server_free, random;
} model;

static model m;

static double chance(void) {
    return (double)(dlpi_s3_random(&m.random) >> 11) / 9007199254740992.0;
}

static void model_send(int i, int k) {
    attempt *a = &m.at[i][k];
    a->sent = m.now;
    a->due = m.now + m.round_trip + (uint64_t)((double)m.spread * chance());
    if (chance() < m.plate) a->due += m.late;
    a->fate = chance() < m.preset ? 0 : chance() < m.p503 ? 503 : 200;
    a->queued = a->fate == 200 && m.service;
    m.sent++;
}

static int model_live(int i) {
    int n = 0;
    for (int k = 0; k < ATTEMPTS; k++) n += m.at[i][k].due != 0;
    return n;
}

static void model_fail(int i, int k) {
    uint64_t wait;
    const char *why;
    if (m.at[i][k].fate == 503) dlpi_s3_answered(&patience, m.now, true, false);
    m.at[i][k].due = 0;
    if (model_live(i)) return;
    m.wire--;
    if (dlpi_s3_retry_take(&patience, ++m.failed[i], -1, &wait, &why)) {
        m.again[i] = m.now + wait + 1;
    } else {
        m.done[i] = -1;
        m.over++;
    }
}

static void model_answer(int i, int k) {
    attempt *a = m.at[i];
    dlpi_s3_first_byte(&patience, 100000, m.now - a[k].sent);
    dlpi_s3_answered(&patience, m.now, false, true);
    if (a[0].due && k > 0) {
        dlpi_s3_hedge_over(&patience, 100000, true, m.now - a[0].sent);
        m.won++;
    } else if (k == 0 && (a[1].due || a[2].due)) {
        dlpi_s3_hedge_over(&patience, 100000, false, 0);
        m.lost++;
    }
    for (int j = 0; j < ATTEMPTS; j++) a[j].due = 0;
    m.done[i] = 1;
    m.wire--;
    m.over++;
}

static void model_due(int i, int k) {
    attempt *a = &m.at[i][k];
    if (a->fate != 200) {
        model_fail(i, k);
    } else if (a->queued) {
        a->queued = 0;
        if (m.server_free < m.now) m.server_free = m.now;
        m.server_free += chance() < 0.02 ? 10 * m.service : m.service; /* it has its moods */
        a->due = m.server_free;
    } else {
        model_answer(i, k);
    }
}

/* Hedge what waits, as the engine does at each of its rounds. */
static void model_hedge(int i) {
    uint64_t after = dlpi_s3_hedge_after(&patience, m.now, 100000), newest = 0;
    int k = 0;
    for (int j = 0; j < ATTEMPTS; j++)
        if (m.at[i][j].due) {
            k = j + 1;
            if (m.at[i][j].sent > newest) newest = m.at[i][j].sent;
        }
    if (k == 0 || k == ATTEMPTS || after == UINT64_MAX || m.now - newest < after) return;
    if (!dlpi_s3_hedge_take(&patience, m.now)) return;
    model_send(i, k);
    m.hedges++;
}

/* Run it to its end, in steps of 0.25 ms, hedges looked at each 2 ms. Returns milliseconds. */
static double model_run(uint64_t seed) {
    int first = 0;
    m.random = seed * 0x9E3779B97F4A7C15u;
    for (m.now = 1; m.over < OBJECTS && m.now < 60000 * MS; m.now += MS / 4) {
        bool tick = (m.now / (MS / 4)) % 8 == 0;
        while (first < OBJECTS && m.done[first]) first++;
        while (m.next < OBJECTS && m.next - m.over < 64) m.again[m.next++] = m.now;
        for (int i = first; i < m.next; i++) {
            if (m.done[i]) continue;
            for (int k = 0; k < ATTEMPTS; k++)
                if (m.at[i][k].due && m.at[i][k].due <= m.now) model_due(i, k);
            if (m.again[i] && m.again[i] <= m.now && m.wire < dlpi_s3_limit(&patience)) {
                m.again[i] = 0;
                m.wire++;
                dlpi_s3_sent(&patience);
                model_send(i, 0);
            }
            if (tick && !m.done[i]) model_hedge(i);
        }
    }
    return (double)m.now / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct outcome {
    double time[2], sent[2]; /* the middle one, and the 95th of 100 */
    int lost, hedges, won;
} outcome;

static outcome runs(const char *name, const dlp_s3_desc *d, const model *kind) {
    int n = getenv("SHORT") ? 21 : getenv("SOAK") ? 1001 : 61; /* of 15 the 95th is the slowest */
    static double time[1001], sent[1001];
    outcome o = {{0}, {0}, 0, 0, 0};
    for (int i = 0; i < n; i++) {
        begin(d, (uint64_t)i + 1);
        m = *kind;
        time[i] = model_run((uint64_t)i + 1000);
        sent[i] = (double)m.sent / OBJECTS;
        for (int k = 0; k < OBJECTS; k++) o.lost += m.done[k] != 1;
        o.hedges += m.hedges;
        o.won += m.won;
    }
    qsort(time, (size_t)n, sizeof *time, by_size);
    qsort(sent, (size_t)n, sizeof *sent, by_size);
    o.time[0] = time[n / 2];
    o.time[1] = time[n * 95 / 100];
    o.sent[0] = sent[n / 2];
    o.sent[1] = sent[n * 95 / 100];
    o.hedges /= n;
    o.won /= n;
    printf("%s: %.0f ms (of 20 runs the slowest: %.0f), requests per object %.3f (%.3f), "
           "%d hedges, %d of them won\n",
           name, o.time[0], o.time[1], o.sent[0], o.sent[1], o.hedges, o.won);
    return o;
}

static void model__faulty_server__soon_over_and_few_requests(void) {
    dlp_s3_desc d = defaults();
    model faulty = {.p503 = 0.05,
                    .preset = 0.02,
                    .plate = 0.02,
                    .late = 1500 * MS,
                    .service = 450000,
                    .round_trip = MS / 5,
                    .spread = MS};
    model far = faulty, sound = faulty, tight = faulty;
    outcome o = runs("faulty, near", &d, &faulty);
    CHECK(o.time[0] < 600 && o.time[1] < 1000);
    CHECK(o.sent[0] < 1.13 && o.sent[1] < 1.15);
    CHECK(o.lost == 0);
    far.service = 100000;
    far.round_trip = 30 * MS;
    far.spread = 3 * MS;
    o = runs("faulty, 30 ms away", &d, &far);
    CHECK(o.time[0] < 900 && o.time[1] < 1100);
    CHECK(o.sent[0] < 1.13 && o.sent[1] < 1.15);
    CHECK(o.lost == 0);
    sound.p503 = sound.preset = sound.plate = 0;
    o = runs("sound, near", &d, &sound);
    CHECK(o.sent[0] < 1.01 && o.sent[1] < 1.02);
    tight = far;
    tight.p503 = tight.preset = tight.plate = 0;
    o = runs("sound, 30 ms away", &d, &tight);
    CHECK(o.sent[0] < 1.01 && o.sent[1] < 1.02);
    d.hedge_percent = -1;
    o = runs("faulty, near, without hedges", &d, &faulty);
    CHECK(o.time[0] > 1500 && o.hedges == 0);
}

int main(void) {
    classify__answers__as_documented();
    classify__clock_region_token__once_or_twice();
    classify__connections__retried_but_what_stays_wrong();
    deadlines__of_a_desc__as_documented();
    retry__waits__equal_jitter_within_bounds();
    retry__retry_after__waited_at_least();
    retry__tokens_gone__waits_the_longest();
    retry__attempts__a_bound_only_where_it_is_set();
    away__failures__told_one_by_one_then_together_then_over();
    throttle__lone_503s__change_nothing();
    throttle__many__fewer_in_flight_down_to_a_floor();
    throttle__over__twice_as_many_then_more_by_the_clock();
    throttle__some_pass__near_what_passes();
    throttle__so_many_a_second__near_what_passes();
    throttle__by_chance__as_many_in_flight();
    throttle__one_in_flight__stays_one();
    hedge__buckets__have_no_gaps();
    hedge__p95__trusted_when_known_and_follows();
    hedge__hasty__waits_longer();
    hedge__hasty_for_a_while__forgotten();
    hedge__budget__a_share_of_traffic();
    slow__body__by_its_class_and_its_moves();
    model__faulty_server__soon_over_and_few_requests();
    return test_end("s3_patience");
}
