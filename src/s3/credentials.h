#pragma once
/* tests: system/s3/s3_credentials, fuzz/fuzz_s3 */
#include "s3/json.h"
#include "s3/http.h"
#include "s3/patience.h"
#include "s3/transport.h"
#include "s3/profile.h"
/* ---- what a fetch uses ---- */

enum { DLPI_S3_ANSWER_MAX = 1 << 16, DLPI_S3_TOKEN_MAX = 20000 };

typedef struct dlpi_s3_scratch {
    size_t n, out_n, body_n, sent; /* bytes in answer, out and body; of both, those sent */
    char answer[DLPI_S3_ANSWER_MAX + 1];
    char out[DLPI_S3_TOKEN_MAX + 12288]; /* a request's head */
    char body[3 * DLPI_S3_TOKEN_MAX + 8192];
    char token[DLPI_S3_TOKEN_MAX];       /* of a file, or of the metadata service */
    char lines[DLPI_S3_TOKEN_MAX + 256]; /* of a head, with a token */
    const char *from;                    /* what is asked, for messages */
    const dlpi_s3_role *role;            /* that is being assumed, or NULL */
    char access[8192], secret[8192], expires[64], word[128]; /* long enough to be called too long */
    char session[DLPI_S3_ANSWER_MAX + 1];
    char *argv[64];
    dlpi_s3_http http;
    dlpi_s3_conn conn;
} dlpi_s3_scratch;

static uint64_t dlpi_s3_in_ms(int64_t ms) { return dlpi_s3_now_ns() + (uint64_t)ms * 1000000u; }

static bool dlpi_s3_wait_over(const dlpi_s3_wait *w) {
    return dlpi_s3_now_ns() >= w->until_ns || (w->stop && DLPI_LOAD_RLX(w->stop));
}

/* Wait for events of a descriptor (-1: just wait), for at most most_ms and as long as w allows. It
   waits in turns of 50 ms, since a stop wakes nobody. Returns true if an event came. */
static bool dlpi_s3_wait_for(const dlpi_s3_wait *w, int fd, short events, int64_t most_ms) {
    uint64_t end = dlpi_s3_in_ms(most_ms);
    while (!dlpi_s3_wait_over(w)) {
        struct pollfd f = {.fd = fd, .events = events};
        uint64_t now = dlpi_s3_now_ns(), until = end < w->until_ns ? end : w->until_ns;
        uint64_t left_ms = until > now ? (until - now) / DLPI_S3_MS + 1 : 0;
        if (left_ms == 0) return false;
        if (poll(&f, 1, left_ms < 50 ? (int)left_ms : 50) > 0) return true;
    }
    return false;
}

/* ---- one request over HTTP, waited for ---- */

typedef struct dlpi_s3_ask {
    const char *url;  /* "http://host:port/path?query" */
    const char *path; /* in place of the URL's own; NULL: that */
    const char *method;
    const char *lines;              /* of the head, each with its end; "" */
    const char *body;               /* a form; NULL: none */
    const dlpi_s3_credentials *who; /* NULL: not signed; else for STS, in region */
    const char *region;
    int64_t now_s;     /* by which it is signed */
    int64_t skew_s;    /* the server's clock less ours, as far as it is known */
    bool nearby;       /* plain HTTP only to this host, or to where containers are served */
    bool went;         /* the whole request was sent, but no answer came in time */
    uint64_t until_ns; /* until then a service that has asked for patience is asked again */
    int32_t status;    /* of the answer; 0: none came */
    char why[192];     /* then */
    char host[300];    /* who was asked, once that is known */
} dlpi_s3_ask;

/* True for the addresses that AWS lets credentials travel to without TLS: loopback, and the
   connection-local services of containers. */
static bool dlpi_s3_is_near(const dlpi_s3_address *a) {
    static const uint8_t pods[16] = {0xfd, 0, 0x0e, 0xc2, [15] = 0x23};
    uint32_t v4;
    if (a->at.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->at.v6.sin6_addr) ||
               memcmp(&a->at.v6.sin6_addr, pods, 16) == 0;
    v4 = ntohl(a->at.v4.sin_addr.s_addr);
    return v4 >> 24 == 127 || v4 == 0xA9FEAA02u || v4 == 0xA9FEAA17u; /* 169.254.170.2, .23 */
}

/* Split the URL, and write the request into s->out. Returns NULL or an error text. */
static const char *dlpi_s3_ask_head(dlpi_s3_ask *a, dlpi_s3_scratch *s, dlpi_s3_endpoint *where) {
    const char *path, *why = dlpi_s3_url_split(where, a->url, &path);
    dlpi_s3_head h = {.method = a->method, .host = a->host, .close = true, .extra = a->lines};
    int n;
    if (why) return why;
    dlpi_s3_endpoint_host(where, a->host, sizeof a->host);
    h.path = a->path ? a->path : *path == '/' ? path : "/";
    h.query = *path == '?' && !a->path ? path + 1 : NULL;
    h.has_body = a->body != NULL;
    h.body = a->body;
    h.body_bytes = a->body ? strlen(a->body) : 0;
    h.who = a->who;
    h.region = a->region;
    h.service = "sts";
    h.now_s = a->now_s;
    n = dlpi_s3_head_write(&h, s->out, sizeof s->out);
    if (n < 2) return "URL, role or token is too long, or has control bytes";
    n -= 2; /* in place of the empty line */
    n += snprintf(s->out + n, sizeof s->out - (size_t)n, DLPI_S3_AGENT "Accept: */*\r\n%s\r\n",
                  a->body ? "Content-Type: application/x-www-form-urlencoded\r\n" : "");
    s->out_n = (size_t)n;
    s->body_n = (size_t)h.body_bytes;
    return s->out_n < sizeof s->out ? NULL : "URL, role and token are too long together";
}

/* Take in n bytes of the answer. Returns 1 if the answer is whole, 0 if more is to come, or
   DLP_S3_BROKEN with s->conn.why. */
static int64_t dlpi_s3_ask_feed(dlpi_s3_scratch *s, const char *bytes, size_t n) {
    const char *body;
    size_t used, n_body;
    int what;
    do {
        what = dlpi_s3_http_feed(&s->http, bytes, n, &used, &body, &n_body);
        bytes += used;
        n -= used;
        if (n_body > DLPI_S3_ANSWER_MAX - s->n) {
            dlpi_s3_copy(s->conn.why, sizeof s->conn.why,
                         "the answer is longer than 64 KiB; check the URL");
            return DLP_S3_BROKEN;
        }
        if (n_body) memcpy(s->answer + s->n, body, n_body);
        s->n += n_body;
    } while (what == DLPI_S3_HTTP_HEAD || what == DLPI_S3_HTTP_BODY);
    s->answer[s->n] = '\0';
    if (what != DLPI_S3_HTTP_BAD) return what == DLPI_S3_HTTP_END;
    snprintf(s->conn.why, sizeof s->conn.why, "%s%s", s->http.why, dlpi_s3_http_cure);
    return DLP_S3_BROKEN;
}

/* Connect, send and read as far as that goes without waiting. Returns 1 if the answer is whole, or
   DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
static int64_t dlpi_s3_ask_step(dlpi_s3_scratch *s) {
    char bytes[4096];
    int64_t n = dlpi_s3_conn_step(&s->conn);
    while (n == 0 && s->sent < s->out_n + s->body_n) {
        bool head = s->sent < s->out_n;
        n = dlpi_s3_conn_write(&s->conn, head ? s->out + s->sent : s->body + (s->sent - s->out_n),
                               s->out_n + (head ? 0 : s->body_n) - s->sent);
        if (n > 0) s->sent += (size_t)n, n = 0;
    }
    while (n == 0) {
        n = dlpi_s3_conn_read(&s->conn, bytes, sizeof bytes);
        if (n == 0) {
            n = dlpi_s3_http_eof(&s->http) == DLPI_S3_HTTP_END ? 1 : DLP_S3_BROKEN;
            dlpi_s3_copy(s->conn.why, sizeof s->conn.why, "the connection ended inside the answer");
        } else if (n > 0) {
            n = dlpi_s3_ask_feed(s, bytes, (size_t)n);
        }
    }
    dlpi_s3_wipe(bytes, sizeof bytes);
    return n;
}

/* Send the request to one address, and wait. Sets a->status, or a->why if no answer came. */
static void dlpi_s3_ask_at(dlpi_s3_ask *a, dlpi_s3_scratch *s, const dlpi_s3_address *address,
                           const dlp_s3_transport *tls, const char *host, const dlpi_s3_wait *w) {
    int64_t n = dlpi_s3_conn_open(&s->conn, address, tls, host);
    bool late = false;
    s->n = s->sent = 0;
    dlpi_s3_http_begin(&s->http, false);
    while (n > DLP_S3_BROKEN && n <= 0 && !late) {
        n = dlpi_s3_ask_step(s);
        if (n == DLP_S3_WANT_READ || n == DLP_S3_WANT_WRITE)
            late = !dlpi_s3_wait_for(w, s->conn.fd, n == DLP_S3_WANT_READ ? POLLIN : POLLOUT,
                                     INT32_MAX);
    }
    dlpi_s3_copy(a->why, sizeof a->why, late ? "no answer in time" : s->conn.why);
    a->went = late && s->sent == s->out_n + s->body_n;
    if (n == 1) a->status = s->http.status;
    dlpi_s3_conn_close(&s->conn);
}

/* Send the request to the server's addresses, one after the other, until one answers. Sets
   a->status, or a->why if none did. The answer is in s->answer, and ends there with a zero byte. */
static void dlpi_s3_ask_once(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                             const dlpi_s3_wait *w) {
    dlpi_s3_endpoint where;
    dlpi_s3_address at[4];
    const char *wrong = dlpi_s3_ask_head(a, s, &where);
    int n, e = 0;
    a->status = 0;
    a->went = false;
    s->conn.errnum = 0;
    if (!wrong && where.tls && !c->tls) wrong = "https needs DLPIPE_S3_OPENSSL, or desc.tls";
    n = wrong ? 0 : dlpi_s3_resolve(where.host, where.port, at, 4, &e, a->why, sizeof a->why);
    for (int i = 0; i < n && a->status == 0 && !wrong; i++) {
        if (i > 0 && dlpi_s3_wait_over(w)) return;
        if (a->nearby && !where.tls && !dlpi_s3_is_near(&at[i]))
            wrong = "without TLS, only this host and container services are asked; use https";
        else
            dlpi_s3_ask_at(a, s, &at[i], where.tls ? c->tls : NULL, where.host, w);
    }
    if (!wrong) return;
    dlpi_s3_copy(a->why, sizeof a->why, wrong);
    s->conn.errnum = EKEYREJECTED; /* no repetition mends it */
}

/* Send the request once, and let the classifier judge the answer. Returns the verdict; a->status is
   200 if the answer is good. s->word gets an error code out of the answer, or "". */
static int dlpi_s3_ask_try(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                           dlpi_s3_tries *tries, const uint32_t *stop) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(a->who ? DLPI_S3_STS_MS : c->timeout_ms), stop};
    dlpi_s3_trouble t = {.what = DLPI_S3_T_TIMEOUT, .s3_code = s->word};
    int verdict;
    a->now_s = c->clock() + a->skew_s;
    dlpi_s3_ask_once(c, a, s, &w);
    s->word[0] = '\0';
    if (a->status && a->status != 200) {
        t.what = DLPI_S3_T_ANSWER;
        if (!dlpi_s3_xml_text(s->answer, s->n, "ErrorResponse/Error/Code", s->word, sizeof s->word))
            dlpi_s3_json_text(s->answer, s->n, "code", s->word, sizeof s->word);
    }
    t.status = a->status;
    t.errnum = s->conn.errnum;
    if (a->who && a->status && s->http.date_s > 0) t.skew_s = s->http.date_s - a->now_s;
    verdict = dlpi_s3_classify(&t, tries);
    if (verdict == DLPI_S3_SKEW) a->skew_s += t.skew_s;
    return verdict;
}

/* Wait before the next attempt, as long as requests do (dlpi_s3_pause_ns), but for a tenth of
   c->patience_ms at most: the service must not be idle while all sleep. n: attempts so far.
   Returns false if there is none: n is reached, and no service that is there has patience left. */
static bool dlpi_s3_ask_pause(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                              const dlpi_s3_scratch *s, int n, uint64_t *random,
                              const uint32_t *stop) {
    const dlpi_s3_wait w = {UINT64_MAX, stop};
    uint64_t now = dlpi_s3_now_ns(), most_ns, wait_ns;
    if (now >= a->until_ns && n >= (a->who ? DLPI_S3_STS_ATTEMPTS : c->attempts)) return false;
    most_ns = dlpi_s3_least(dlpi_s3_ms(c->pause_max_ms), dlpi_s3_ms(c->patience_ms) / 10);
    wait_ns = dlpi_s3_pause_ns(dlpi_s3_ms(c->pause_ms), most_ns, n, random);
    if (a->status && s->http.retry_after_s > 0)
        wait_ns += dlpi_s3_least((uint64_t)s->http.retry_after_s, 3600) * 1000 * DLPI_S3_MS;
    if (now < a->until_ns) wait_ns = dlpi_s3_least(wait_ns, a->until_ns - now);
    dlpi_s3_wait_for(&w, -1, 0, (int64_t)dlpi_s3_least(wait_ns / DLPI_S3_MS, 60000));
    return true;
}

/* Begin the time for which a service that is there is asked again, and tell the log. */
static void dlpi_s3_ask_patiently(const dlpi_s3_config *c, dlpi_s3_ask *a,
                                  const dlpi_s3_scratch *s) {
    char line[200];
    a->until_ns = dlpi_s3_in_ms(c->patience_ms);
    snprintf(line, sizeof line, "s3: credentials (%.60s): %.80s answered %d; asked again for %d s",
             s->from, a->host, (int)a->status, (int)c->patience_ms / 1000);
    dlpi_s3_config_log(c, line);
}

/* Send the request, and again after a while if the classifier says so. A service that is silent is
   asked c->attempts times. An answer that asks for patience (429, 5xx) proves that the service is
   there. It is then asked again for c->patience_ms, since others may ask it at the same time.
   Returns true if the answer is 200. If not, s->word is an error code out of the answer, or "". */
static bool dlpi_s3_ask_well(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                             const uint32_t *stop) {
    uint64_t random = (dlpi_s3_now_ns() ^ (uint64_t)getpid() << 32) | 1;
    dlpi_s3_tries tries = {0};
    a->until_ns = 0;
    a->skew_s = 0;
    for (int n = 1; !(stop && DLPI_LOAD_RLX(stop)); n++) {
        int verdict = dlpi_s3_ask_try(c, a, s, &tries, stop);
        if (a->status == 200) return true;
        if (verdict != DLPI_S3_RETRY && verdict != DLPI_S3_SKEW) return false;
        if (verdict == DLPI_S3_RETRY && a->status && a->until_ns == 0)
            dlpi_s3_ask_patiently(c, a, s);
        if (!dlpi_s3_ask_pause(c, a, s, n, &random, stop)) break;
    }
    return false;
}

/* Fill in err: "credentials (source): what". Returns DLP_ERR_REMOTE. */
static int dlpi_s3_fetch_error(const dlpi_s3_scratch *s, const char *what, dlp_s3_error *err) {
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0, "credentials (%s): %s", s->from, what);
}

/* Fill in err for an answer that is no help. s->word: its code or "". Returns DLP_ERR_REMOTE. */
static int dlpi_s3_ask_error(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                             const dlpi_s3_scratch *s, dlp_s3_error *err) {
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.";
    bool plain = s->word[0] && !s->word[strspn(s->word, letters)];
    bool patient = a->until_ns && c->patience_ms >= 1000 && dlpi_s3_now_ns() >= a->until_ns;
    char what[240], times[24] = "";
    if (patient) snprintf(times, sizeof times, ", for %d s", (int)c->patience_ms / 1000);
    snprintf(what, sizeof what, "%.80s%s%.120s", a->host, a->host[0] ? ": " : "", a->why);
    if (a->status)
        snprintf(what, sizeof what, "%.80s answered %d%s%.60s%s", a->host, (int)a->status,
                 plain ? " " : "", plain ? s->word : "", times);
    if (a->status && err) err->http_status = a->status;
    return dlpi_s3_fetch_error(s, what, err);
}

/* ---- sources ---- */

/* Set who->expires_s by the answer (s->expires). clock_s: the time by the server's clock, or 0; if
   ours differs, the time from then on counts. Returns DLP_OK, or DLP_ERR_REMOTE if they have
   expired. */
static int dlpi_s3_fetched_until(const dlpi_s3_config *c, const dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, int64_t clock_s, dlp_s3_error *err) {
    const char *date = s->expires;
    int64_t now_s = c->clock();
    if (!*date) return DLP_OK;
    who->expires_s = dlpi_s3_time_iso(date, strlen(date));
    if (who->expires_s <= 0)
        return dlpi_s3_fetch_error(s, "Expiration is no time, such as 2030-01-31T12:00:00Z", err);
    if (clock_s > 0 && (clock_s - now_s > 240 || now_s - clock_s > 240))
        who->expires_s += now_s - clock_s;
    if (who->expires_s > now_s) return DLP_OK;
    if (c->source == DLPI_S3_MACHINE &&
        !s->role) { /* as AWS wants it: its services may go on to accept them */
        who->expires_s = now_s + 600;
        dlpi_s3_config_log(c, "s3: credentials (instance metadata) have expired; in use all the "
                              "same, until there are others");
        return DLP_OK;
    }
    return dlpi_s3_fetch_error(s, "the credentials have expired; renew them", err);
}

/* Read credentials from the JSON in s->answer. token: what their session token is called there. */
static int dlpi_s3_fetched_json(const dlpi_s3_config *c, dlpi_s3_scratch *s, const char *token,
                                int64_t clock_s, dlpi_s3_credentials *who, dlp_s3_error *err) {
    int code;
    /* Where a member is missing, or none of its kind, "" is left; both buffers would hold any. */
    dlpi_s3_json_text(s->answer, s->n, "Expiration", s->session, sizeof s->session);
    if (!dlpi_s3_copy(s->expires, sizeof s->expires, s->session))
        dlpi_s3_copy(s->expires, sizeof s->expires, "none");
    dlpi_s3_json_text(s->answer, s->n, token, s->session, sizeof s->session);
    dlpi_s3_json_text(s->answer, s->n, "SecretAccessKey", s->secret, sizeof s->secret);
    if (!dlpi_s3_json_text(s->answer, s->n, "AccessKeyId", s->access, sizeof s->access))
        return dlpi_s3_fetch_error(
            s, "the answer is not the JSON of credentials: AccessKeyId is missing", err);
    code = dlpi_s3_who_set(who, s->access, s->secret, s->session, s->from, DLP_ERR_REMOTE, err);
    return code ? code : dlpi_s3_fetched_until(c, s, who, clock_s, err);
}

/* Read the keys of the base profile from its files again. Returns 0, or a DLP_ERR code with *err
   filled. */
static int dlpi_s3_fetch_file(const dlpi_s3_config *c, dlpi_s3_credentials *who,
                              dlp_s3_error *err) {
    dlpi_s3_profiles p;
    int code = dlpi_s3_profiles_open(&p, c, err);
    if (code) return code;
    p.profile = c->base;
    code = dlpi_s3_profiles_has(&p, err);
    if (code >= 0) code = dlpi_s3_profiles_keys(&p, who, err);
    dlpi_s3_profiles_close(&p);
    if (code) return code < 0 ? code : DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                             "profile \"%.60s\" has no keys any more; add aws_access_key_id",
                             c->base);
}

/* Split a command into words (to: their memory) as a POSIX shell does with quotes and backslashes,
   and nothing else of a shell. Returns how many, or -1: a quote is open, or they are too many. */
static int dlpi_s3_process_split(const char *command, char *to, char **argv, int max) {
    int n = 0;
    const char *at = command;
    for (;;) {
        char quote = '\0';
        at += strspn(at, " \t\r\n");
        if (!*at) break;
        if (n == max - 1) return -1;
        argv[n++] = to;
        for (; *at && (quote || !strchr(" \t\r\n", *at)); at++) {
            if (quote ? *at == quote : *at == '\'' || *at == '"') {
                quote = quote ? '\0' : *at;
                continue;
            }
            if (*at == '\\' && quote != '\'' && at[1] && (!quote || at[1] == '"' || at[1] == '\\'))
                at++;
            *to++ = *at;
        }
        if (quote) return -1;
        *to++ = '\0';
    }
    argv[n] = NULL;
    return n;
}

/* Have the new program close descriptors that it would inherit, which other code opened without
   O_CLOEXEC. Returns 0 or an errno. */
static int dlpi_s3_process_closes(posix_spawn_file_actions_t *actions) {
    int self = dlpi_fd_above(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), e = 0;
    DIR *dir = self >= 0 ? fdopendir(self) : NULL;
    struct dirent *one;
    if (!dir) return errno == ENOENT ? 0 : errno; /* there may be no /proc */
    while (!e && (one = readdir(dir))) {
        int fd = atoi(one->d_name), flags = fd > 2 ? fcntl(fd, F_GETFD) : -1;
        if (flags >= 0 && !(flags & FD_CLOEXEC)) e = posix_spawn_file_actions_addclose(actions, fd);
    }
    closedir(dir);
    return e;
}

/* Start a program in a process group of its own, with default signals, no input, and its output in
   a pipe, *out. Returns 0 or an errno. */
static int dlpi_s3_process_spawn(char **argv, int *out, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int fd[2], e;
    if (dlpi_pair_above(pipe2(fd, O_CLOEXEC), fd)) return errno;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    e = posix_spawn_file_actions_init(&actions);
    if (e) goto no_actions;
    e = posix_spawnattr_init(&attr);
    if (e) goto no_attr;
    e = posix_spawn_file_actions_adddup2(&actions, fd[1], 1);
    if (!e) e = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!e) e = dlpi_s3_process_closes(&actions);
    if (!e) e = posix_spawnattr_setsigmask(&attr, &none);
    if (!e) e = posix_spawnattr_setsigdefault(&attr, &all);
    if (!e) e = posix_spawnattr_setpgroup(&attr, 0);
    if (!e)
        e = posix_spawnattr_setflags(
            &attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
    if (!e) e = posix_spawnp(pid, argv[0], &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
no_attr:
    posix_spawn_file_actions_destroy(&actions);
no_actions:
    close(fd[1]);
    if (e) close(fd[0]);
    *out = fd[0];
    return e;
}

/* Read all output of a program into s->answer. Returns NULL or an error text. */
static const char *dlpi_s3_process_read(int fd, dlpi_s3_scratch *s, const dlpi_s3_wait *w) {
    s->n = 0;
    for (;;) {
        ssize_t got;
        if (!dlpi_s3_wait_for(w, fd, POLLIN, INT32_MAX)) return "it takes too long";
        got = read(fd, s->answer + s->n, DLPI_S3_ANSWER_MAX - s->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return strerror(errno);
        s->n += (size_t)got;
        s->answer[s->n] = '\0';
        if (got == 0) return NULL;
        if (s->n == DLPI_S3_ANSWER_MAX) return "its output has more than 64 KiB";
    }
}

/* Kill the program's process group. As long as the child pid has not been waited for, dead or not,
   no other process or group has its number. */
static void dlpi_s3_process_kill(pid_t pid) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0) kill(-pid, SIGKILL);
}

/* Wait for the end of a program. If its time is over, kill it and set *late, which tells that it
   was killed. Returns its status; 0 if a waitpid of the user's, or SIGCHLD ignored, took the status
   away. */
static int dlpi_s3_process_end(pid_t pid, const dlpi_s3_wait *w, bool *late) {
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, *late ? 0 : WNOHANG);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return 0;
        if (got == 0 && !dlpi_s3_wait_for(w, -1, 0, 2) && dlpi_s3_wait_over(w)) {
            dlpi_s3_process_kill(pid);
            *late = true;
        }
    }
}

/* Run the profile's credential_process, and take the keys from its output. A process that does not
   end in time, or before a stop, is killed. Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_s3_fetch_process(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, const uint32_t *stop,
                                 dlp_s3_error *err) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(c->timeout_ms), stop};
    int n = dlpi_s3_process_split(c->process, s->body, s->argv, 64), fd = -1, status, e;
    const char *why;
    bool late = false;
    pid_t pid = 0;
    if (n < 1)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "profile \"%.60s\": credential_process: %s",
                                 c->base,
                                 n ? "its quotes do not match" : "it is empty; give a command");
    e = dlpi_s3_process_spawn(s->argv, &fd, &pid);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credential_process (%.60s): %s; check the command", s->argv[0],
                                 strerror(e));
    why = dlpi_s3_process_read(fd, s, &w);
    close(fd);
    if (why) dlpi_s3_process_kill(pid);
    late = why != NULL;
    status = dlpi_s3_process_end(pid, &w, &late);
    if (!why && late) why = "it does not end";
    if (why)
        return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                                 "credential_process (%.60s): %s; run it by hand", s->argv[0], why);
    if (status)
        return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                                 "credential_process (%.60s): %s %d; run it by hand", s->argv[0],
                                 WIFSIGNALED(status) ? "signal" : "exit status",
                                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (!dlpi_s3_json_text(s->answer, s->n, "Version", s->word, sizeof s->word) ||
        strcmp(s->word, "1") != 0)
        return dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credential_process (%.60s): its output is not JSON of Version 1; run it by hand",
            s->argv[0]);
    return dlpi_s3_fetched_json(c, s, "SessionToken", 0, who, err);
}

/* True if a token can be sent. A container's is a header's whole value; others are one word. */
static bool dlpi_s3_token_ok(const dlpi_s3_config *c, const char *token) {
    if (c->source != DLPI_S3_CONTAINER) return dlpi_s3_is_graphic(token);
    return token[strspn(token, " \t")] && dlpi_s3_http_is_text(token, strlen(token));
}

/* Read the token file into s->token, without its line end: a head or a form takes one line. */
static int dlpi_s3_fetch_token(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlp_s3_error *err) {
    size_t n = 0;
    int e = dlpi_s3_file_read(c->token_file, s->token, sizeof s->token, &n);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credentials (%s): token file %.60s: %s; check its path",
                                 dlpi_s3_source_name(c->source), c->token_file, strerror(e));
    while (n && (s->token[n - 1] == '\n' || s->token[n - 1] == '\r')) s->token[--n] = '\0';
    if (dlpi_s3_token_ok(c, s->token)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                             "credentials (%s): %.60s is not a token, which is one printable line",
                             dlpi_s3_source_name(c->source), c->token_file);
}

/* Write a form for STS into s->body, without fields that are NULL or "". False: it is too long. */
static bool dlpi_s3_sts_form(dlpi_s3_scratch *s, const char *action, const char *const fields[][2],
                             size_t n_fields) {
    dlpi_s3_out o = {s->body, sizeof s->body, 0};
    dlpi_s3_out_param(&o, "Action", action);
    dlpi_s3_out_param(&o, "Version", "2011-06-15");
    for (size_t i = 0; i < n_fields; i++) dlpi_s3_out_param(&o, fields[i][0], fields[i][1]);
    return dlpi_s3_out_end(&o);
}

/* Send the form in s->body to STS, and read the credentials in the answer to who. */
static int dlpi_s3_fetch_sts(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_ask *a,
                             const char *action, dlpi_s3_credentials *who, const uint32_t *stop,
                             dlp_s3_error *err) {
    char path[160];
    struct {
        const char *name;
        char *to;
        size_t size;
    } part[4] = {{"AccessKeyId", s->access, sizeof s->access},
                 {"SecretAccessKey", s->secret, sizeof s->secret},
                 {"SessionToken", s->session, sizeof s->session},
                 {"Expiration", s->expires, sizeof s->expires}};
    int code;
    a->method = "POST";
    a->lines = "";
    a->body = s->body;
    if (!dlpi_s3_ask_well(c, a, s, stop)) return dlpi_s3_ask_error(c, a, s, err);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%sResponse/%sResult/Credentials/%s", action, action,
                 part[i].name);
        if (dlpi_s3_xml_text(s->answer, s->n, path, part[i].to, part[i].size) && *part[i].to)
            continue;
        snprintf(path, sizeof path, "the answer has no %s; check the endpoint of STS",
                 part[i].name);
        return dlpi_s3_fetch_error(s, path, err);
    }
    code = dlpi_s3_who_set(who, s->access, s->secret, s->session, s->from, DLP_ERR_REMOTE, err);
    return code ? code : dlpi_s3_fetched_until(c, s, who, s->http.date_s, err);
}

/* Get credentials from STS for a web identity token. It is the proof: nothing is signed. */
static int dlpi_s3_fetch_web(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                             const uint32_t *stop, dlp_s3_error *err) {
    static const char action[] = "AssumeRoleWithWebIdentity";
    const char *const fields[][2] = {
        {"RoleArn", c->role}, {"RoleSessionName", c->session}, {"WebIdentityToken", s->token}};
    dlpi_s3_ask a = {.url = c->url};
    int code = dlpi_s3_fetch_token(c, s, err);
    if (code) return code;
    if (!dlpi_s3_sts_form(s, action, fields, 3))
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "credentials (web identity): role, session and token are too long");
    return dlpi_s3_fetch_sts(c, s, &a, action, who, stop, err);
}

/* Assume a role at STS with the credentials in who, and put those of the role there. */
static int dlpi_s3_fetch_role(const dlpi_s3_config *c, dlpi_s3_scratch *s, const dlpi_s3_role *role,
                              dlpi_s3_credentials *who, const uint32_t *stop, dlp_s3_error *err) {
    static const char action[] = "AssumeRole";
    char seconds[16] = "", from[96];
    const char *const fields[][2] = {{"RoleArn", role->arn},
                                     {"RoleSessionName", role->session},
                                     {"ExternalId", role->external_id},
                                     {"DurationSeconds", seconds}};
    dlpi_s3_ask a = {.url = c->sts, .who = who, .region = c->region};
    int code;
    if (role->duration_s) snprintf(seconds, sizeof seconds, "%d", (int)role->duration_s);
    snprintf(from, sizeof from, "role of profile \"%.60s\"", role->profile);
    s->from = from;
    s->role = role;
    if (!dlpi_s3_sts_form(s, action, fields, 4))
        return dlpi_s3_fetch_error(s, "role and session are too long", err);
    code = dlpi_s3_fetch_sts(c, s, &a, action, who, stop, err);
    s->from = "";
    return code;
}

/* Ask the container's server for keys, with the token of a file or of the environment. Returns 0,
   or a DLP_ERR code with *err filled. */
static int dlpi_s3_fetch_container(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                   dlpi_s3_credentials *who, const uint32_t *stop,
                                   dlp_s3_error *err) {
    dlpi_s3_ask a = {.url = c->url, .method = "GET", .lines = s->lines, .nearby = true};
    int code = c->token_file[0] ? dlpi_s3_fetch_token(c, s, err) : DLP_OK;
    if (code) return code;
    if (!c->token_file[0]) dlpi_s3_copy(s->token, sizeof s->token, c->authorization);
    if (s->token[0] && !dlpi_s3_token_ok(c, s->token))
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN is not a token, which is one printable line");
    snprintf(s->lines, sizeof s->lines, s->token[0] ? "Authorization: %s\r\n" : "%s", s->token);
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_ask_error(c, &a, s, err);
    return dlpi_s3_fetched_json(c, s, "Token", s->http.date_s, who, err);
}

/* Fill in err, and what to set instead: only AWS' machines have this. If the service has the whole
   request for a token and is silent, its answer may be lost on the way into a container. Its
   packets live for as many hops as the machine's hop limit says. Returns DLP_ERR_REMOTE. */
static int dlpi_s3_machine_error(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                                 const dlpi_s3_scratch *s, dlp_s3_error *err) {
    const int code = dlpi_s3_ask_error(c, a, s, err);
    const size_t n = err ? strlen(err->message) : 0;
    if (err)
        snprintf(err->message + n, sizeof err->message - n, "%s",
                 a->went ? "; in a container raise the hop limit (HttpPutResponseHopLimit) to 2; "
                           "else set AWS_PROFILE"
                         : "; else set AWS_ACCESS_KEY_ID or AWS_PROFILE");
    return code;
}

/* Ask the metadata service by IMDSv2: for a token that lives 6 hours, the role's name, its
   credentials. Version 1 is never used: a process that can be talked into a GET gives the
   credentials away. */
static int dlpi_s3_fetch_machine(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, const uint32_t *stop,
                                 dlp_s3_error *err) {
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    dlpi_s3_ask a = {.url = c->url,
                     .method = "PUT",
                     .path = "/latest/api/token",
                     .lines = "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"
                              "Content-Length: 0\r\n"};
    char path[sizeof roles + sizeof s->word];
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_machine_error(c, &a, s, err);
    if (!dlpi_s3_is_graphic(s->answer) || !dlpi_s3_copy(s->token, sizeof s->token, s->answer))
        return dlpi_s3_fetch_error(s, "the token is too long, or has odd bytes; check the endpoint",
                                   err);
    snprintf(s->lines, sizeof s->lines, "X-aws-ec2-metadata-token: %s\r\n", s->token);
    a.method = "GET";
    a.lines = s->lines;
    a.path = roles;
    if (!dlpi_s3_ask_well(c, &a, s, stop))
        return a.status == 404
                   ? dlpi_s3_fetch_error(
                         s, "this machine has no role; attach one, or set AWS_ACCESS_KEY_ID", err)
                   : dlpi_s3_ask_error(c, &a, s, err);
    s->answer[strcspn(s->answer, "\r\n")] = '\0';
    if (!s->answer[0] || !dlpi_s3_copy(s->word, sizeof s->word, s->answer) ||
        s->word[strspn(s->word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "+=,.@_-")])
        return dlpi_s3_fetch_error(s, "the role's name has odd bytes; check the endpoint", err);
    snprintf(path, sizeof path, "%s%s", roles, s->word);
    a.path = path;
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_ask_error(c, &a, s, err);
    if (dlpi_s3_json_text(s->answer, s->n, "Code", s->word, sizeof s->word) &&
        strcmp(s->word, "Success") != 0)
        return dlpi_s3_ask_error(c, &a, s, err);
    return dlpi_s3_fetched_json(c, s, "Token", s->http.date_s, who, err);
}

/* Fetch credentials from the configured source, without roles. s: zeroed. */
static int dlpi_s3_fetch_base(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                              const uint32_t *stop, dlp_s3_error *err) {
    s->from = dlpi_s3_source_name(c->source);
    switch (c->source) {
    case DLPI_S3_FILE: return dlpi_s3_fetch_file(c, who, err);
    case DLPI_S3_PROCESS: return dlpi_s3_fetch_process(c, s, who, stop, err);
    case DLPI_S3_WEB: return dlpi_s3_fetch_web(c, s, who, stop, err);
    case DLPI_S3_CONTAINER: return dlpi_s3_fetch_container(c, s, who, stop, err);
    case DLPI_S3_MACHINE: return dlpi_s3_fetch_machine(c, s, who, stop, err);
    default: *who = c->given; return DLP_OK;
    }
}

/* Fetch credentials, then assume the roles, each with the credentials of the one before it. */
static int dlpi_s3_fetch(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                         const uint32_t *stop, dlp_s3_error *err) {
    int code = dlpi_s3_fetch_base(c, s, who, stop, err);
    for (int i = c->n_roles; code == DLP_OK && i-- > 0;)
        code = dlpi_s3_fetch_role(c, s, &c->roles[i], who, stop, err);
    return code;
}
