#pragma once
/* tests: system/s3/s3_transport, system/s3/s3_credentials */
#include "s3/transport.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-helper       WHAT MAY BLOCK: NAMES, CREDENTIALS
   A thread for each dlp_s3_io, started when it first has something to do, which may wait as long as
   resolvers and metadata services let it. Who has it ask never waits: it is told "later", and a
   news_fd (an eventfd) is readable when there is news.

   The record has two owners, the io and the thread, and is freed by the last. Closing does not wait
   for a resolver that hangs: the thread is left to itself, and takes the record, and its hold on
   the client, along when it ends. All of it but what is written once is behind the lock. */

enum { DLPI_S3_NAMES_MAX = 64, DLPI_S3_ADDRESSES_MAX = 16, DLPI_S3_HELPER_STACK = 512 * 1024 };

#define DLPI_S3_SECOND 1000000000ull
#define DLPI_S3_NAME_FRESH_NS (60 * DLPI_S3_SECOND) /* then they are asked for again; serve on, */
#define DLPI_S3_NAME_OLD_NS (660 * DLPI_S3_SECOND)  /* but no longer than this */
#define DLPI_S3_NAME_AGAIN_NS \
    (1 * DLPI_S3_SECOND)                             /* so long a failure is told, not retried, and
                                                        addresses that all fail are not doubted */
#define DLPI_S3_ADDRESS_BAD_NS (10 * DLPI_S3_SECOND) /* put last; doubled 5 times at most */

enum { DLPI_S3_NAME_KNOWN = 0, DLPI_S3_NAME_WANTED, DLPI_S3_NAME_ASKED };

typedef struct dlpi_s3_name {
    struct dlpi_s3_name *next;
    char host[256];
    uint16_t port;
    int32_t state;
    int32_t errnum;                        /* of the last failure, with why */
    uint32_t n, turn;                      /* addresses, and which is next */
    uint64_t found_ns, failed_ns, used_ns; /* 0: never */
    dlpi_s3_address at[DLPI_S3_ADDRESSES_MAX];
    uint64_t bad_until_ns[DLPI_S3_ADDRESSES_MAX];
    uint8_t fails[DLPI_S3_ADDRESSES_MAX]; /* one after the other */
    char why[200];
} dlpi_s3_name;

/* Whose credentials are refreshed; stop: 1: it is to be given up. keep and drop: the helper's hold
   on it, which may outlast the io's; drop may be called by the helper's thread. */
typedef struct dlpi_s3_owner {
    void *user;
    int (*refresh)(void *user, uint64_t seen_version, bool force, const uint32_t *stop,
                   dlp_s3_error *err);
    void (*keep)(void *user);
    void (*drop)(void *user);
} dlpi_s3_owner;

typedef struct dlpi_s3_helper {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    pid_t pid;
    int32_t news_fd; /* -1: nobody listens any more */
    uint32_t owners;
    uint32_t stop; /* read without the lock, too */
    bool started, busy;
    bool refreshing, refresh_wanted, refresh_force;
    uint64_t refresh_seen;      /* version */
    uint64_t refreshes;         /* ended */
    dlp_s3_error refresh_error; /* of the last; code 0: it went well */
    dlpi_s3_owner owner;
    dlpi_s3_name *names;
    uint32_t n_names;
} dlpi_s3_helper;

/* Make a helper, without a thread yet. owner: copied; NULL: it only looks up names. Returns NULL,
   with errno, if there is no memory or no descriptor. */
static dlpi_s3_helper *dlpi_s3_helper_new(const dlpi_s3_owner *owner) {
    dlpi_s3_helper *h = (dlpi_s3_helper *)calloc(1, sizeof *h);
    if (!h) return NULL;
    h->news_fd = dlpi_fd_above(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (h->news_fd < 0) {
        free(h);
        return NULL;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    h->pid = getpid();
    h->owners = 1;
    if (owner) h->owner = *owner;
    if (h->owner.keep) h->owner.keep(h->owner.user);
    return h;
}

/* Free a helper, by its last owner or in the child of a fork. The child must not destroy lock and
   condition: the thread seems to wait there still, and would be waited for. */
static void dlpi_s3_helper_destroy(dlpi_s3_helper *h) {
    bool forked = h->pid != getpid();
    while (h->names) {
        dlpi_s3_name *next = h->names->next;
        free(h->names);
        h->names = next;
    }
    if (!forked) pthread_cond_destroy(&h->work);
    if (!forked) pthread_mutex_destroy(&h->lock);
    if (h->owner.drop) h->owner.drop(h->owner.user);
    free(h);
}

/* Give up a share; the last owner frees the helper. The caller holds the lock; it is released. */
static void dlpi_s3_helper_leave(dlpi_s3_helper *h) {
    bool last = --h->owners == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) dlpi_s3_helper_destroy(h);
}

static void dlpi_s3_helper_ring(const dlpi_s3_helper *h) {
    uint64_t one = 1;
    if (h->news_fd >= 0 && write(h->news_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

/* ---- its thread ---- */

/* Refresh credentials, in the helper's thread. The lock is held, but released meanwhile. */
static void dlpi_s3_helper_refresh_run(dlpi_s3_helper *h) {
    uint64_t seen = h->refresh_seen;
    bool force = h->refresh_force;
    dlp_s3_error err;
    memset(&err, 0, sizeof err);
    h->refresh_wanted = h->refresh_force = false;
    h->refreshing = true;
    pthread_mutex_unlock(&h->lock);
    err.code = h->owner.refresh(h->owner.user, seen, force, &h->stop, &err);
    pthread_mutex_lock(&h->lock);
    h->refreshing = false;
    pthread_cond_broadcast(&h->work); /* for who closes it */
    h->refresh_error = err;
    h->refreshes++;
}

/* Take over a name's new addresses. What is known of those that it had before stays known. */
static void dlpi_s3_name_found(dlpi_s3_name *name, const dlpi_s3_address *at, uint32_t n) {
    uint64_t bad_until_ns[DLPI_S3_ADDRESSES_MAX] = {0};
    uint8_t fails[DLPI_S3_ADDRESSES_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < name->n; k++) {
            if (!dlpi_s3_address_same(&at[i], &name->at[k])) continue;
            bad_until_ns[i] = name->bad_until_ns[k];
            fails[i] = name->fails[k];
        }
    }
    memcpy(name->at, at, n * sizeof *at);
    memcpy(name->bad_until_ns, bad_until_ns, sizeof bad_until_ns);
    memcpy(name->fails, fails, sizeof fails);
    name->n = n;
    name->found_ns = dlpi_s3_now_ns();
    name->failed_ns = 0;
}

/* Look up a name, in the helper's thread. The lock is released meanwhile, but the name stays in its
   place: only names that nobody asks for make room for others. */
static void dlpi_s3_helper_name_run(dlpi_s3_helper *h, dlpi_s3_name *name) {
    dlpi_s3_address at[DLPI_S3_ADDRESSES_MAX];
    char why[sizeof name->why] = "";
    int n, errnum = 0;
    name->state = DLPI_S3_NAME_ASKED;
    pthread_mutex_unlock(&h->lock);
    n = dlpi_s3_resolve(name->host, name->port, at, DLPI_S3_ADDRESSES_MAX, &errnum, why,
                        sizeof why);
    pthread_mutex_lock(&h->lock);
    name->state = DLPI_S3_NAME_KNOWN;
    if (n > 0) {
        dlpi_s3_name_found(name, at, (uint32_t)n);
        return;
    }
    name->failed_ns = dlpi_s3_now_ns();
    name->errnum = errnum;
    dlpi_s3_copy(name->why, sizeof name->why, why);
}

/* Refresh credentials and look up names for the workers, until the helper is stopped. The lock is
   held except in these calls. */
static void *dlpi_s3_helper_thread(void *arg) {
    dlpi_s3_helper *h = (dlpi_s3_helper *)arg;
    pthread_mutex_lock(&h->lock);
    while (!DLPI_LOAD_RLX(&h->stop)) {
        dlpi_s3_name *name = h->names;
        while (name && name->state != DLPI_S3_NAME_WANTED) name = name->next;
        h->busy = h->refresh_wanted || name;
        if (h->refresh_wanted)
            dlpi_s3_helper_refresh_run(h);
        else if (name)
            dlpi_s3_helper_name_run(h, name);
        else
            pthread_cond_wait(&h->work, &h->lock);
        if (h->busy) dlpi_s3_helper_ring(h);
        h->busy = false;
    }
    dlpi_s3_helper_leave(h);
    return NULL;
}

/* Wake the thread, or start it, with all signals blocked, so that handlers run in the user's
   threads. The caller holds the lock. Returns 0 or an errno. */
static int dlpi_s3_helper_wake(dlpi_s3_helper *h) {
    pthread_attr_t attr;
    sigset_t all, before;
    int rc;
    pthread_cond_signal(&h->work);
    if (h->started) return 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, DLPI_S3_HELPER_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&h->thread, &attr, dlpi_s3_helper_thread, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) return rc;
    h->started = true;
    h->owners++;
    return 0;
}

/* ---- what the io asks of it ---- */

/* Wait at most 300 ms for the end of a refresh that was told to stop; it may still log. */
static void dlpi_s3_helper_calm(dlpi_s3_helper *h) {
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 300000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (h->refreshing && rc == 0) rc = pthread_cond_timedwait(&h->work, &h->lock, &until);
}

/* Give up the io's share of a helper. Its thread is joined if it is idle, and else left to itself.
   A refresh is waited for, at most 300 ms. In the child of a fork there is no thread, and what it
   held when the process forked is left as it is. */
static void dlpi_s3_helper_free(dlpi_s3_helper *h) {
    pthread_t thread;
    bool join;
    if (!h) return;
    if (h->pid != getpid()) {
        close(h->news_fd);
        if (pthread_mutex_trylock(&h->lock) != 0) return;
        pthread_mutex_unlock(&h->lock);
        if (!h->busy) dlpi_s3_helper_destroy(h);
        return;
    }
    pthread_mutex_lock(&h->lock);
    DLPI_STORE_RLX(&h->stop, 1u); /* what it guards is behind the lock */
    dlpi_s3_helper_calm(h);
    close(h->news_fd);
    h->news_fd = -1;
    pthread_cond_signal(&h->work);
    thread = h->thread;
    join = h->started && !h->busy;
    if (h->started && h->busy) pthread_detach(thread);
    dlpi_s3_helper_leave(h);
    if (join) pthread_join(thread, NULL);
}

/* Return the descriptor that is readable when there is news. */
static inline int dlpi_s3_helper_fd(const dlpi_s3_helper *h) { return h->news_fd; }

/* Reset news_fd, before the news is looked at. */
static void dlpi_s3_helper_heard(const dlpi_s3_helper *h) {
    uint64_t n;
    if (read(h->news_fd, &n, sizeof n) < 0) return; /* there was none */
}

/* Make room for one more name, perhaps that of one long unused. Returns NULL if there is none. */
static dlpi_s3_name *dlpi_s3_name_new(dlpi_s3_helper *h) {
    dlpi_s3_name **oldest = NULL, *name;
    if (h->n_names < DLPI_S3_NAMES_MAX) {
        name = (dlpi_s3_name *)calloc(1, sizeof *name);
        if (name) h->n_names++;
    } else {
        for (dlpi_s3_name **p = &h->names; *p; p = &(*p)->next)
            if ((*p)->state == DLPI_S3_NAME_KNOWN &&
                (!oldest || (*p)->used_ns < (*oldest)->used_ns))
                oldest = p;
        if (!oldest) return NULL;
        name = *oldest;
        *oldest = name->next;
        memset(name, 0, sizeof *name);
    }
    if (!name) return NULL;
    name->next = h->names;
    h->names = name;
    return name;
}

/* Find or make the record of a name. Returns NULL if there is no room. The lock is held. */
static dlpi_s3_name *dlpi_s3_name_get(dlpi_s3_helper *h, const char *host, uint16_t port) {
    dlpi_s3_name *name = h->names;
    uint64_t random = dlpi_s3_now_ns() ^ (uint64_t)h->pid << 40 ^ 1;
    while (name && (name->port != port || strcmp(name->host, host) != 0)) name = name->next;
    if (name) return name;
    name = dlpi_s3_name_new(h);
    if (!name) return NULL;
    name->port = port;
    name->turn = (uint32_t)(dlpi_s3_random(&random) >> 33); /* not all workers begin with one */
    dlpi_s3_copy(name->host, sizeof name->host, host);
    return name;
}

/* Choose the next address in turn that has not failed lately, else the one to be tried first. */
static void dlpi_s3_name_pick(dlpi_s3_name *name, uint64_t now, dlpi_s3_address *out) {
    uint32_t best = name->turn % name->n;
    for (uint32_t k = 0; k < name->n; k++) {
        uint32_t i = (name->turn + k) % name->n;
        if (name->bad_until_ns[best] <= now) break;
        if (name->bad_until_ns[i] < name->bad_until_ns[best]) best = i;
    }
    name->turn = best + 1;
    *out = name->at[best];
}

/* True if all addresses of a name have failed lately: the server may have moved. */
static bool dlpi_s3_name_lost(const dlpi_s3_name *name, uint64_t now) {
    for (uint32_t i = 0; i < name->n; i++)
        if (name->bad_until_ns[i] <= now) return false;
    return true;
}

/* Have the thread look up a name if that is due. Returns 0, or an errno if there is no thread. */
static int dlpi_s3_name_ask(dlpi_s3_helper *h, dlpi_s3_name *name, uint64_t now) {
    bool lost = dlpi_s3_name_lost(name, now);
    bool fresh =
        name->n && now - name->found_ns < (lost ? DLPI_S3_NAME_AGAIN_NS : DLPI_S3_NAME_FRESH_NS);
    bool failed = name->failed_ns && now - name->failed_ns < DLPI_S3_NAME_AGAIN_NS;
    int rc;
    if (name->state != DLPI_S3_NAME_KNOWN || fresh || failed) return 0;
    rc = dlpi_s3_helper_wake(h);
    if (rc == 0) name->state = DLPI_S3_NAME_WANTED;
    return rc;
}

/* Give an address of a name; the lock is held. Returns as dlpi_s3_helper_address does. */
static int dlpi_s3_name_answer(dlpi_s3_helper *h, const char *host, uint16_t port,
                               dlpi_s3_address *out, int *errnum, char *why, size_t size) {
    dlpi_s3_name *name = dlpi_s3_name_get(h, host, port);
    uint64_t now = dlpi_s3_now_ns();
    *errnum = ENOMEM;
    dlpi_s3_copy(why, size, "no memory for a name");
    if (!name) return DLP_ERR_MEMORY;
    name->used_ns = now;
    *errnum = dlpi_s3_name_ask(h, name, now);
    if (name->n && now - name->found_ns >= DLPI_S3_NAME_OLD_NS) name->n = 0;
    if (name->n) {
        dlpi_s3_name_pick(name, now, out);
        return 0;
    }
    snprintf(why, size, "no thread to look for '%.100s': %s", host, strerror(*errnum));
    if (*errnum) return DLP_ERR_SYSTEM;
    if (name->state != DLPI_S3_NAME_KNOWN) return 1;
    *errnum = name->errnum;
    dlpi_s3_copy(why, size, name->why);
    return DLP_ERR_REMOTE;
}

/* Give an address of a host: of a number at once, of a name in turn. Does not wait. Returns 0; 1:
   not known yet, ask again when news_fd is readable; DLP_ERR_REMOTE: not found (errnum EAGAIN:
   perhaps later, or ENXIO); or another error code. why and errnum are set with an error. */
static int dlpi_s3_helper_address(dlpi_s3_helper *h, const char *host, uint16_t port,
                                  dlpi_s3_address *out, int *errnum, char *why, size_t size) {
    int code = DLP_ERR_FORKED;
    *errnum = 0;
    if (dlpi_s3_address_numeric(host, port, out)) return 0;
    dlpi_s3_copy(why, size, "no host names in the child of a fork; open an io there");
    if (h->pid != getpid()) return code;
    snprintf(why, size, "host name '%.40s...' is too long; check the endpoint", host);
    if (strlen(host) >= sizeof h->names->host) return DLP_ERR_ARG;
    pthread_mutex_lock(&h->lock);
    code = dlpi_s3_name_answer(h, host, port, out, errnum, why, size);
    pthread_mutex_unlock(&h->lock);
    if (code >= 0 && size) why[0] = '\0';
    return code;
}

/* Note that an address has worked or failed. If it fails while it is put last already, that is the
   same failure: many connections are tried at once, and do not make the time longer. */
static void dlpi_s3_name_tried(dlpi_s3_name *name, uint32_t i, bool worked, uint64_t now) {
    bool again = name->bad_until_ns[i] > now;
    if (worked) {
        name->bad_until_ns[i] = name->fails[i] = 0;
        return;
    }
    if (!again && name->fails[i] < 6) name->fails[i]++;
    name->bad_until_ns[i] = now + (DLPI_S3_ADDRESS_BAD_NS << (name->fails[i] - 1));
}

/* Note how connecting to an address of a host went. One that failed is put last for a while. If all
   have failed, the name is looked up again. Returns true if an address did not fail lately: try
   that one at once. */
static bool dlpi_s3_helper_tried(dlpi_s3_helper *h, const char *host, const dlpi_s3_address *a,
                                 bool worked) {
    uint64_t now = dlpi_s3_now_ns();
    bool another = false;
    pthread_mutex_lock(&h->lock);
    for (dlpi_s3_name *name = h->names; name; name = name->next) {
        if (strcmp(name->host, host) != 0) continue;
        for (uint32_t i = 0; i < name->n; i++) {
            if (dlpi_s3_address_same(a, &name->at[i])) dlpi_s3_name_tried(name, i, worked, now);
        }
        another = another || !dlpi_s3_name_lost(name, now);
        if (!worked) (void)dlpi_s3_name_ask(h, name, now);
    }
    pthread_mutex_unlock(&h->lock);
    return another;
}

/* Have the credentials refreshed, unless that was done since version seen. news_fd is readable when
   it is over. Returns 0, DLP_ERR_FORKED, DLP_ERR_SYSTEM (no thread: errno), or DLP_ERR_ARG (no
   owner). */
static int dlpi_s3_helper_refresh(dlpi_s3_helper *h, uint64_t seen_version, bool force) {
    int rc;
    if (!h->owner.refresh) return DLP_ERR_ARG;
    if (h->pid != getpid()) return DLP_ERR_FORKED;
    pthread_mutex_lock(&h->lock);
    rc = dlpi_s3_helper_wake(h);
    if (rc == 0) {
        h->refresh_force = (h->refresh_wanted && h->refresh_force) || force;
        h->refresh_wanted = true;
        h->refresh_seen = seen_version;
    }
    pthread_mutex_unlock(&h->lock);
    errno = rc;
    return rc == 0 ? 0 : DLP_ERR_SYSTEM;
}

/* Return how many refreshes have ended. err: gets the last one's error, code 0 if it went well. */
static uint64_t dlpi_s3_helper_refreshed(dlpi_s3_helper *h, dlp_s3_error *err) {
    uint64_t n;
    pthread_mutex_lock(&h->lock);
    n = h->refreshes;
    if (err) *err = h->refresh_error;
    pthread_mutex_unlock(&h->lock);
    return n;
}
