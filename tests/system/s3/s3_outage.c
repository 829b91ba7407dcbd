/* A server that is away for a while and comes back: 8 threads with 64 requests each in flight lose
   none, with the numbers that a client has by default, and what they wait for is said. Away for 30
   seconds, all times divided by 10; SOAK=1: as they are. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_s3.h"

#include <sys/resource.h>

#include "../../rig/s3_mock.h"

#include "../../rig/check.h"
#include "../../rig/inside.h"

enum { THREADS = 8, IN_FLIGHT = 64, BYTES = 2000 };
enum { REFUSED, RESET, FAILING, SILENT, KINDS };
#define MS UINT64_C(1000000)

static const char *const names[KINDS] = {"connections refused", "connections reset",
                                         "answers of 500 and 503", "no answers"};
static s3_mock *mock;
static dlp_s3 *s3;
static int failing, over; /* atomic */
static int scale = 10;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static int said_away, said_back, said_retry;

static void say(void *user, const char *line) {
    (void)user;
    pthread_mutex_lock(&said_lock);
    said_away += strstr(line, "no answer for") != NULL;
    said_back += strstr(line, "answers come again") != NULL;
    said_retry += strstr(line, "; again in") != NULL;
    pthread_mutex_unlock(&said_lock);
    if (getenv("LOUD")) printf("  %s\n", line);
}

static void script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    if (__atomic_load_n(&failing, __ATOMIC_RELAXED))
        r->status = q->nth % 2 ? 500 : 503;
    else
        r->delay_ms = 200;
}

static dlp_s3_desc by_default(void) {
    dlp_s3_desc d = {
        .endpoint = mock->url, .access_key = "AKIDEXAMPLE", .secret_key = "secret", .log = say};
    if (scale == 1) return d;
    d.connect_timeout_ms = 3000 / scale;
    d.first_byte_timeout_ms = 10000 / scale;
    d.stall_timeout_ms = 5000 / scale;
    d.request_timeout_ms = 120000 / scale;
    d.backoff_ms = 50 / scale;
    d.backoff_max_ms = 5000 / scale;
    return d;
}

typedef struct in_flight {
    pthread_t thread;
    int number, good, bad;
} in_flight;

static void in_flight_begin(const in_flight *f, dlp_s3_io *io, dlp_s3_request *r, char *key,
                            char *body, int n) {
    snprintf(key, 32, "%d-%d", f->number, n);
    *r = (dlp_s3_request){.bucket = "b", .key = key, .body = body, .capacity = BYTES};
    CHECK(dlp_s3_submit(io, r) == DLP_OK);
}

/* Keep requests in flight until it is over; then take what is out. */
static void *in_flight_run(void *arg) {
    in_flight *f = arg;
    static char body[THREADS][IN_FLIGHT][BYTES], key[THREADS][IN_FLIGHT][32];
    dlp_s3_request r[IN_FLIGHT], *done[IN_FLIGHT];
    dlp_s3_io *io = NULL;
    int out = IN_FLIGHT, made = IN_FLIGHT;
    CHECK(dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    for (int i = 0; i < IN_FLIGHT; i++)
        in_flight_begin(f, io, &r[i], key[f->number][i], body[f->number][i], i);
    while (out > 0) {
        int n = dlp_s3_reap(io, done, IN_FLIGHT, 60000);
        CHECK(n > 0);
        if (n <= 0) break;
        for (int k = 0; k < n; k++) {
            int i = (int)(done[k] - r);
            char path[64], line[700];
            snprintf(path, sizeof path, "/b/%s", r[i].key);
            dlp_s3_error_format(&r[i].error, line, sizeof line);
            if (r[i].code && f->bad++ == 0) printf("  %s\n", line);
            f->good += r[i].code == 0 && s3_mock_check(path, 0, r[i].body, BYTES);
            out--;
            if (__atomic_load_n(&over, __ATOMIC_RELAXED)) continue;
            in_flight_begin(f, io, &r[i], key[f->number][i], body[f->number][i], made++);
            out++;
        }
    }
    dlp_s3_io_close(io);
    return NULL;
}

static uint64_t objects(void) {
    dlp_s3_stats s;
    dlp_s3_stats_get(s3, &s);
    return s.objects;
}

/* Returns the longest time without an answer that the counters told. */
static uint64_t wait_for(int ms) {
    uint64_t end = test_now_ns() + (uint64_t)ms * MS, most = 0;
    while (test_now_ns() < end) {
        dlp_s3_stats s;
        dlp_s3_stats_get(s3, &s);
        if (s.away_ns > most) most = s.away_ns;
        poll(NULL, 0, 20);
    }
    return most;
}

static void begin(int kind) {
    if (kind == REFUSED) s3_mock_away(mock, S3_MOCK_REFUSE);
    if (kind == RESET) s3_mock_away(mock, S3_MOCK_RESET);
    if (kind == SILENT) s3_mock_away(mock, S3_MOCK_HANG);
    __atomic_store_n(&failing, kind == FAILING, __ATOMIC_RELAXED);
}

static void end(int kind) {
    __atomic_store_n(&failing, 0, __ATOMIC_RELAXED);
    if (kind != FAILING) s3_mock_away(mock, S3_MOCK_KEEP);
}

static void outage(int kind) {
    static in_flight f[THREADS];
    int ms = 30000 / scale, good = 0, bad = 0;
    dlp_s3_desc d;
    dlp_s3_stats s;
    uint64_t away, before, back;
    memset(f, 0, sizeof f);
    over = said_away = said_back = said_retry = 0;
    mock = s3_mock_start();
    mock->script = script;
    mock->default_bytes = BYTES;
    d = by_default();
    CHECK(dlp_s3_open(&s3, &d, NULL) == DLP_OK);
    for (int i = 0; i < THREADS; i++) {
        f[i].number = i;
        CHECK(pthread_create(&f[i].thread, NULL, in_flight_run, &f[i]) == 0);
    }
    for (int i = 0; i < 2000 && objects() < THREADS * IN_FLIGHT; i++) poll(NULL, 0, 10);
    begin(kind);
    away = wait_for(ms);
    end(kind);
    back = test_now_ns();
    before = objects();
    for (int i = 0; i < 6000 && objects() < before + THREADS * IN_FLIGHT; i++) poll(NULL, 0, 5);
    back = (test_now_ns() - back) / MS;
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(f[i].thread, NULL) == 0);
        good += f[i].good;
        bad += f[i].bad;
    }
    dlp_s3_stats_get(s3, &s);
    printf("%s: %d ms, told as %d ms; %d objects, %d failed, %d of them %d ms after; %d requests; "
           "log: %d away, %d back, %d retries\n",
           names[kind], ms, (int)(away / MS), good, bad, THREADS * IN_FLIGHT, (int)back,
           (int)s.requests, said_away, said_back, said_retry);
    CHECK(bad == 0 && s.failed == 0);
    CHECK((uint64_t)good == s.objects && s.objects >= 2 * THREADS * IN_FLIGHT);
    CHECK(s.away_ns == 0);
    CHECK(away > (uint64_t)ms * MS / 2);
    CHECK(said_away >= 1 && said_back >= 1 && said_retry < 2000);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
}

/* ---- throttled ---- */

static uint64_t good_from; /* 503 until then; then answers after 800 ms */
static dlp_s3_request asked[IN_FLIGHT];

static void throttle(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    (void)user;
    if (q->came_ns < good_from)
        r->status = 503;
    else
        r->delay_ms = 800 / scale;
}

/* Of one thread, as many requests in flight as are let, until a time. */
static void ask_until(dlp_s3_io *io, uint64_t until) {
    static char body[IN_FLIGHT][BYTES];
    dlp_s3_request *done[IN_FLIGHT];
    while (test_now_ns() < until) {
        int n = dlp_s3_reap(io, done, IN_FLIGHT, 5);
        for (int i = 0; i < n; i++) CHECK(done[i]->code == DLP_OK);
        for (int i = 0; i < IN_FLIGHT; i++) {
            if (asked[i].internal) continue; /* out */
            asked[i] =
                (dlp_s3_request){.bucket = "b", .key = "key", .body = body[i], .capacity = BYTES};
            CHECK(dlp_s3_submit(io, &asked[i]) == DLP_OK);
        }
    }
}

static void throttled__over__soon_as_many_as_before(void) {
    dlp_s3_desc d;
    dlp_s3_io *io = NULL;
    uint64_t ms = MS / (uint64_t)scale;
    int after[2];
    mock = s3_mock_start();
    memset(asked, 0, sizeof asked);
    mock->script = throttle;
    mock->default_bytes = BYTES;
    d = by_default();
    d.first_byte_timeout_ms = 10000;
    d.hedge_percent = -1;
    CHECK(dlp_s3_open(&s3, &d, NULL) == DLP_OK && dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    good_from = test_now_ns() + 3000 * ms;
    ask_until(io, good_from);
    CHECK(inside_s3_limit(io) == IN_FLIGHT / 8);
    ask_until(io, good_from + 4000 * ms);
    s3_mock_most(mock);
    ask_until(io, good_from + 5000 * ms);
    after[0] = s3_mock_most(mock);
    CHECK_SOON(after[0] >= 48 && inside_s3_limit(io) >= 48);
    ask_until(io, good_from + 7200 * ms);
    s3_mock_most(mock);
    ask_until(io, good_from + 8000 * ms);
    after[1] = s3_mock_most(mock);
    CHECK_SOON(after[1] == IN_FLIGHT && inside_s3_limit(io) == IN_FLIGHT);
    printf("3 s of 503, times divided by %d: 5 s after %d in flight, 8 s after %d\n", scale,
           after[0], after[1]);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
}

/* ---- waiting for a turn ---- */

/* One request may be on the wire. The last of four waits longer for that than a request may be
   without progress, which it is not blamed for. */
static void turn__waited_for__no_time_out(void) {
    static char body[4][BYTES];
    dlp_s3_request r[4], *done[4];
    dlp_s3_desc d;
    dlp_s3_io *io = NULL;
    mock = s3_mock_start();
    mock->default_bytes = BYTES;
    s3_mock_on(mock, NULL, -1, (s3_mock_reply){.delay_ms = 300});
    d = (dlp_s3_desc){.endpoint = mock->url,
                      .access_key = "a",
                      .secret_key = "secret",
                      .hedge_percent = -1,
                      .progress_timeout_ms = 700};
    CHECK(dlp_s3_open(&s3, &d, NULL) == DLP_OK && dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    inside_s3_one_at_once(io);
    for (int i = 0; i < 4; i++) {
        r[i] = (dlp_s3_request){.bucket = "b", .key = "key", .body = body[i], .capacity = BYTES};
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int n = 0; n < 4;) n += dlp_s3_reap(io, done, 4, 20000);
    for (int i = 0; i < 4; i++) CHECK_SOON(r[i].code == DLP_OK);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
}

/* ---- the first answer wakes all ---- */

enum { IOS = 4 };

/* The server refuses for 1.5 s, and each retry waits for 2.5 to 5 s: of an io of many requests, and
   of others with one each. */
static void away__first_answer__wakes_all(void) {
    static char body[IN_FLIGHT + IOS][BYTES];
    static dlp_s3_request r[IN_FLIGHT + IOS];
    dlp_s3_request *done[IN_FLIGHT];
    dlp_s3_io *io[IOS] = {NULL};
    dlp_s3_desc d;
    uint64_t until, first = 0, last = 0;
    int n_over = 0, all = IN_FLIGHT + IOS - 1;
    mock = s3_mock_start();
    mock->default_bytes = BYTES;
    d = (dlp_s3_desc){
        .endpoint = mock->url, .access_key = "a", .secret_key = "secret", .retry_tokens = 1};
    CHECK(dlp_s3_open(&s3, &d, NULL) == DLP_OK);
    s3_mock_away(mock, S3_MOCK_REFUSE);
    until = test_now_ns() + 1500 * MS;
    for (int i = 0; i < IOS; i++) CHECK(dlp_s3_io_open(&io[i], s3, NULL) == DLP_OK);
    for (int i = 0; i < all; i++) {
        r[i] = (dlp_s3_request){.bucket = "b", .key = "key", .body = body[i], .capacity = BYTES};
        CHECK(dlp_s3_submit(io[i < IN_FLIGHT ? 0 : i - IN_FLIGHT + 1], &r[i]) == DLP_OK);
    }
    while (n_over < all) {
        if (until && test_now_ns() > until) {
            s3_mock_away(mock, S3_MOCK_KEEP);
            until = 0;
        }
        for (int i = 0; i < IOS; i++) {
            int n = dlp_s3_reap(io[i], done, IN_FLIGHT, 2);
            n_over += n;
            if (n > 0) last = test_now_ns();
            if (n > 0 && !first) first = last;
        }
    }
    for (int i = 0; i < all; i++) CHECK(r[i].code == DLP_OK);
    printf("the last of %d answers comes %d ms after the first\n", all, (int)((last - first) / MS));
    CHECK_SOON(last - first < 1000 * MS);
    for (int i = 0; i < IOS; i++) dlp_s3_io_close(io[i]);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
}

int main(void) {
    struct rlimit files;
    setbuf(stdout, NULL);
    if (getenv("SOAK")) scale = 1;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max < 16384 ? files.rlim_max : 16384;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int kind = 0; kind < KINDS; kind++) outage(kind);
    test_tries(away__first_answer__wakes_all);
    test_tries(turn__waited_for__no_time_out);
    if (scale > 1) scale = 5;
    test_tries(throttled__over__soon_as_many_as_before);
    return test_end("s3_outage");
}
