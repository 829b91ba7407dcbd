#pragma once
/* tests: system/s3/s3_credentials */
#include "s3/credentials.h"
/* ---- the credential cache ---- */

/* Begin a robust mutex that processes share. Returns 0 or an errno. */
static int dlpi_s3_mutex_begin(pthread_mutex_t *m) {
    pthread_mutexattr_t a;
    int e = pthread_mutexattr_init(&a);
    if (e) return e;
    e = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (!e) e = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (!e) e = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    return e;
}

/* Turn e, the result of locking m, into 0 or an errno. If the last holder died, m is put in order:
   the data that it left are whole, see above. */
static int dlpi_s3_mutex_taken(pthread_mutex_t *m, int e) {
    return e == EOWNERDEAD ? pthread_mutex_consistent(m) : e;
}

static int dlpi_s3_mutex_lock(pthread_mutex_t *m) {
    return dlpi_s3_mutex_taken(m, pthread_mutex_lock(m));
}

/* Lock a mutex. Give up after two minutes, or when *stop is set. Returns 0 or an errno. */
static int dlpi_s3_mutex_wait(pthread_mutex_t *m, const uint32_t *stop) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(120000), stop};
    for (;;) {
        struct timespec t;
        int e;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 50000000;
        if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        e = dlpi_s3_mutex_taken(m, pthread_mutex_timedlock(m, &t));
        if (e != ETIMEDOUT || dlpi_s3_wait_over(&w)) return e;
    }
}

/* Begin a cache, which is zeroed and in memory that processes share. Returns 0 or an errno. */
static int dlpi_s3_cred_cache_begin(dlpi_s3_cred_cache *v) {
    int e = dlpi_s3_mutex_begin(&v->fetching);
    v->random = dlpi_s3_now_ns() | 1;
    return e ? e : dlpi_s3_mutex_begin(&v->looking);
}

/* True if the last failure is too recent to try again, even if the clock was set back: 60 s at
   most. */
static bool dlpi_s3_cred_cache_waits(const dlpi_s3_cred_cache *v, int64_t now_s) {
    int64_t left_s = DLPI_LOAD_RLX(&v->retry_s) - now_s;
    return left_s > 0 && left_s <= 60;
}

/* Get the credentials that are valid at now_s. out: zeroed before the first call, then as the last
   call left it; copied only if not current. Returns 0: valid; 1: valid, but begin a refresh;
   DLP_ERR_STATE: a refresh of out->version must come first. Does not wait for a refresh. */
static int dlpi_s3_cred_cache_get(dlpi_s3_cred_cache *v, int64_t now_s, dlpi_s3_credentials *out) {
    uint64_t version = DLPI_LOAD_ACQ(&v->version); /* V2 <- V1 */
    int64_t refresh_s;
    if (version == 0) return DLP_ERR_STATE;
    if (out->version != version) {
        if (dlpi_s3_mutex_lock(&v->looking)) return DLP_ERR_STATE;
        version = DLPI_LOAD_RLX(&v->version);
        *out = v->slot[version % 2];
        pthread_mutex_unlock(&v->looking);
    }
    if (out->expires_s == 0) return 0;
    if (now_s >= out->expires_s) return DLP_ERR_STATE;
    refresh_s = DLPI_LOAD_RLX(&v->refresh_s[version % 2]);
    return now_s >= refresh_s && !dlpi_s3_cred_cache_waits(v, now_s);
}

/* Return when credentials are to be fetched again: some 5 minutes before they expire, not at the
   same second everywhere, and not in the first half of a short life. */
static int64_t dlpi_s3_refresh_at(dlpi_s3_cred_cache *v, int64_t now_s, int64_t expires_s) {
    int64_t before = 300 - (int64_t)(dlpi_s3_random(&v->random) % 60);
    int64_t half = (expires_s - now_s) / 2;
    return expires_s - (half < before ? half : before);
}

/* Make who the current credentials. The caller holds the lock "fetching". Returns 0 or an errno. */
static int dlpi_s3_cred_cache_publish(dlpi_s3_cred_cache *v, const dlpi_s3_credentials *who,
                                      int64_t now_s) {
    uint64_t version = DLPI_LOAD_RLX(&v->version) + 1;
    int64_t refresh_s = who->expires_s ? dlpi_s3_refresh_at(v, now_s, who->expires_s) : INT64_MAX;
    int e = dlpi_s3_mutex_lock(&v->looking);
    if (e) return e;
    v->slot[version % 2] = *who;
    v->slot[version % 2].version = version;
    DLPI_STORE_RLX(&v->refresh_s[version % 2], refresh_s);
    DLPI_STORE_REL(&v->version, version); /* V1 -> V2 */
    pthread_mutex_unlock(&v->looking);
    v->failures = 0;
    return 0;
}

static bool dlpi_s3_cred_cache_valid(const dlpi_s3_cred_cache *v, int64_t now_s) {
    uint64_t version = DLPI_LOAD_RLX(&v->version);
    int64_t expires_s = v->slot[version % 2].expires_s;
    return version && (expires_s == 0 || now_s < expires_s);
}

/* Decide whether a refresh has to fetch. The caller holds the lock "fetching". Returns 1: fetch; 0:
   there are good credentials; or an error code: none can be had. */
static int dlpi_s3_cred_cache_wants(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, uint64_t seen,
                                    bool force, dlp_s3_error *err) {
    uint64_t version = DLPI_LOAD_RLX(&v->version);
    int64_t now_s = c->clock();
    bool valid = dlpi_s3_cred_cache_valid(v, now_s);
    if (valid && version != seen) return 0; /* somebody else did it */
    if (valid && !force && now_s < DLPI_LOAD_RLX(&v->refresh_s[version % 2])) return 0;
    if (version && dlpi_s3_config_fixed(c))
        return dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credentials (%s): refused or over, and there are no newer ones; replace them",
            dlpi_s3_config_from(c));
    if (!dlpi_s3_cred_cache_waits(v, now_s)) return 1;
    if (valid && !force) return 0;
    return dlpi_s3_set_error(err, v->failed_code, 0, "%s", v->failed);
}

/* Note a failure to fetch: the old credentials stay. The next attempt comes later each time, but
   within a minute; within 6 s if no valid credentials are left. */
static void dlpi_s3_cred_cache_failed(const dlpi_s3_config *c, dlpi_s3_cred_cache *v,
                                      const dlp_s3_error *why) {
    bool valid = dlpi_s3_cred_cache_valid(v, c->clock());
    uint32_t most = valid ? 5 : 2, doubled = v->failures < most ? v->failures : most;
    int64_t wait_s = (int64_t)1 << doubled;
    char line[400];
    wait_s += (int64_t)(dlpi_s3_random(&v->random) % (uint64_t)wait_s) / 2;
    v->failures++;
    v->failed_code = why->code;
    dlpi_s3_copy(v->failed, sizeof v->failed, why->message);
    DLPI_STORE_RLX(&v->retry_s, c->clock() + wait_s);
    snprintf(line, sizeof line, "s3: %s; %s, the next attempt is in %d s", why->message,
             valid ? "the present ones stay in use" : "no credentials are left", (int)wait_s);
    dlpi_s3_config_log(c, line);
}

/* Fetch and publish credentials. The caller holds "fetching". Returns DLP_OK or an error code. */
static int dlpi_s3_cred_cache_renew(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, bool force,
                                    const uint32_t *stop, dlp_s3_error *err) {
    struct both {
        dlpi_s3_credentials who;
        dlpi_s3_scratch scratch;
    } * b;
    const dlpi_s3_credentials *old = &v->slot[DLPI_LOAD_RLX(&v->version) % 2];
    int code, e;
    b = (struct both *)dlpi_s3_private_map(sizeof *b);
    if (!b)
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM,
                                 "credentials: no memory to fetch them");
    code = dlpi_s3_fetch(c, &b->scratch, &b->who, stop, err);
    if (!code && force && strcmp(old->secret, b->who.secret) == 0 &&
        strcmp(old->token, b->who.token) == 0)
        code = dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credentials (%s): the same ones again, which the server refuses; renew them",
            dlpi_s3_config_from(c));
    if (!code && (e = dlpi_s3_cred_cache_publish(v, &b->who, c->clock())) != 0)
        code = dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e, "credentials: cannot lock them: %s",
                                 strerror(e));
    dlpi_s3_private_unmap(b, sizeof *b, sizeof *b);
    return code;
}

/* Log that credentials were fetched, from where, and until when they are valid. Fixed credentials
   are not logged. */
static void dlpi_s3_cred_cache_tell(const dlpi_s3_config *c, const dlpi_s3_cred_cache *v) {
    const dlpi_s3_credentials *who = &v->slot[DLPI_LOAD_RLX(&v->version) % 2];
    char line[160], date[17] = "";
    if (dlpi_s3_config_fixed(c)) return;
    if (who->expires_s) dlpi_s3_date(who->expires_s, date);
    snprintf(line, sizeof line, "s3: credentials fetched (%s)%s%s", dlpi_s3_config_from(c),
             *date ? ", valid until " : "", date);
    dlpi_s3_config_log(c, line);
}

/* Fetch credentials, once for all processes: if there are valid ones other than version seen, do
   nothing. force: replace version seen, though it is valid by the clock (the server refused it).
   stop: NULL, or a word that ends the waiting when it is set. Returns DLP_OK or an error code;
   without force also DLP_OK if fetching failed and the old ones are valid. Waits for files,
   processes, names, the network, with time-outs for all but names: not in the thread that does
   I/O. */
static int dlpi_s3_cred_cache_refresh_until(const dlpi_s3_config *c, dlpi_s3_cred_cache *v,
                                            uint64_t seen, bool force, const uint32_t *stop,
                                            dlp_s3_error *err) {
    dlp_s3_error why;
    bool stopped;
    int code, e = dlpi_s3_mutex_wait(&v->fetching, stop);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credentials: others are fetching them: %s", strerror(e));
    memset(&why, 0, sizeof why);
    code = dlpi_s3_cred_cache_wants(c, v, seen, force, &why);
    if (code == 1) {
        code = dlpi_s3_cred_cache_renew(c, v, force, stop, &why);
        stopped = stop && DLPI_LOAD_RLX(stop); /* whose log it is may be gone then */
        if (!stopped && code == DLP_OK) dlpi_s3_cred_cache_tell(c, v);
        if (!stopped && code != DLP_OK) dlpi_s3_cred_cache_failed(c, v, &why);
        if (code && !force && dlpi_s3_cred_cache_valid(v, c->clock())) code = DLP_OK;
    }
    pthread_mutex_unlock(&v->fetching);
    if (code && err) *err = why;
    return code;
}

static int dlpi_s3_cred_cache_refresh(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, uint64_t seen,
                                      bool force, dlp_s3_error *err) {
    return dlpi_s3_cred_cache_refresh_until(c, v, seen, force, NULL, err);
}
