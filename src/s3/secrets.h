#pragma once
/* tests: system/s3/s3_credentials */
#include "base/descriptors.h"
#include "s3/sign.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-credentials  PROFILES, ROLES, METADATA SERVICES */

/* Two things: what was found once, when the client was opened (dlpi_s3_config: where to go, and
   from which source credentials come), and the credentials that are valid now (dlpi_s3_cred_cache).
   Both lie in the client's own mapping, which all its processes share and core dumps leave out. So
   do files, answers and tokens while they are read: in a mapping that is wiped before it goes.

   Locks of the credential cache are robust: a process killed while it holds one costs nothing. What
   it may have been writing is a slot that nobody reads, until one store of the version makes it the
   one that everybody reads. "fetching" is held through a whole fetch, so that one process asks for
   all; "looking" only for a copy. Readers that hold the current version take neither.

   label  where                              what it orders
   V1     cred_cache_publish stores the version   the slot's dates are there before its number
   V2     cred_cache_get loads it                 and are read after it; partner V1

   No message has more of a secret than whose it is: no value, no line of a file, no byte of an
   answer but its status and an error code made of letters. */

enum { /* sources, in the order in which they are asked; _FILE to _WEB are of one profile */
       DLPI_S3_NOBODY = 0, /* anonymous */
       DLPI_S3_GIVEN,      /* by the user */
       DLPI_S3_ENVIRONMENT,
       DLPI_S3_FILE, /* keys in a profile */
       DLPI_S3_PROCESS,
       DLPI_S3_WEB, /* STS, for a web identity's token; of the environment: before files */
       DLPI_S3_CONTAINER,
       DLPI_S3_MACHINE /* IMDSv2 */
};

enum {
    DLPI_S3_ROLES = 3,
    DLPI_S3_STS_MS = 10000,
    DLPI_S3_STS_ATTEMPTS = 3,
    DLPI_S3_PATIENCE_MS = 15000
};

/* A role that is assumed with the credentials before it, as a profile says. */
typedef struct dlpi_s3_role {
    int32_t duration_s; /* 0: not said */
    char profile[128];
    char arn[2049], session[65], external_id[1225]; /* external_id "": none */
} dlpi_s3_role;

/* A proxy. */
typedef struct dlpi_s3_proxy {
    char host[256]; /* "": none */
    uint16_t port;
    bool given;       /* by the desc: for all hosts */
    char header[768]; /* with user and password, a whole line; "": none */
} dlpi_s3_proxy;

typedef struct dlpi_s3_config {
    int32_t source;        /* DLPI_S3_NOBODY .. DLPI_S3_MACHINE: where credentials come from */
    int32_t timeout_ms;    /* of one attempt to fetch credentials */
    int32_t attempts;      /* attempts to fetch them from a service that is silent */
    int32_t patience_ms;   /* time for which a service that answers 429 or 5xx is asked again */
    int32_t pause_ms;      /* first pause between attempts; then doubled */
    int32_t pause_max_ms;  /* longest pause between attempts */
    int32_t named_by_user; /* 1: the desc names the profile, so the profile must exist */
    int32_t named;         /* 1: the desc or the environment names the profile */
    int32_t style;         /* DLP_S3_STYLE_* that the profile asks for */
    int32_t max_attempts;  /* attempts of a request; -1: no setting says it */
    int32_t no_checksums;  /* 1: environment or profile say not to ask for checksums of bodies */
    int32_t fips, dualstack;
    char endpoint[512]; /* "": AWS */
    char region[64];
    char ca_file[1024]; /* "": the system's */
    char profile[128];
    char file[2][1024];           /* config, credentials; "": none */
    char base[128];               /* name of the profile that has the keys, or the process */
    char process[4096];           /* command of credential_process */
    char url[1024];               /* URL of STS, container or machine, by `source` */
    char token_file[1024];        /* file with the token: web identity, container */
    char role[2049], session[65]; /* role and session name: web identity */
    char sts[1024];               /* URL at which roles are assumed */
    int32_t n_roles;
    dlpi_s3_role roles[DLPI_S3_ROLES]; /* the last one is assumed first */
    dlpi_s3_proxy proxy[2];            /* proxies for http and https */
    char no_proxy[4096];               /* list of hosts that are reached without a proxy */
    char authorization[8192];          /* container: the token from the environment */
    dlpi_s3_credentials given;         /* the keys, if source is _GIVEN or _ENVIRONMENT */
    const dlp_s3_transport *tls;       /* set by the client, which owns it; NULL: no https */
    void (*log)(void *user, const char *line);
    void *log_user;
    int64_t (*clock)(void); /* Unix time */
} dlpi_s3_config;

typedef struct dlpi_s3_cred_cache {
    pthread_mutex_t fetching;
    pthread_mutex_t looking;
    uint64_t version;     /* slot[version % 2] has the newest credentials; 0: there are none yet */
    int64_t refresh_s[2]; /* Unix time from which new credentials are fetched, of each slot */
    int64_t retry_s;      /* Unix time before which no fetch is tried again after a failure */
    uint64_t random;
    uint32_t failures; /* failures since the last success */
    int32_t failed_code;
    char failed[256]; /* message of the last failure */
    dlpi_s3_credentials slot[2];
} dlpi_s3_cred_cache;

/* How long to wait, and a word that ends the waiting (NULL: none). */
typedef struct dlpi_s3_wait {
    uint64_t until_ns;
    const uint32_t *stop;
} dlpi_s3_wait;

static const char *dlpi_s3_source_name(int source) {
    static const char *const names[] = {"anonymous", "given by the program", "environment",
                                        "profile",   "credential_process",   "web identity",
                                        "container", "instance metadata"};
    return names[source];
}

/* Return where the credentials come from in the end, for messages. */
static const char *dlpi_s3_config_from(const dlpi_s3_config *c) {
    return c->n_roles ? "assumed role" : dlpi_s3_source_name(c->source);
}

/* True if there are no newer credentials to fetch. */
static bool dlpi_s3_config_fixed(const dlpi_s3_config *c) {
    return !c->n_roles && c->source <= DLPI_S3_ENVIRONMENT;
}

static void dlpi_s3_config_log(const dlpi_s3_config *c, const char *line) {
    if (c->log) c->log(c->log_user, line);
}

/* Return the value of a variable. It is NULL if the variable is unset or empty, or if the program
   has more rights than the user who started it (setuid) and wrote the variable: secure_getenv. */
static const char *dlpi_s3_env(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* True if a text is not empty, and printable without blanks, as credentials in heads must be. */
static bool dlpi_s3_is_graphic(const char *s) {
    const char *at = s;
    while (*at > ' ' && *at < 127) at++;
    return at != s && !*at;
}

/* Wipe credentials. Not inline: gcc 12 with sanitizers would take the struct for its first member,
   and warn. */
DLPI_NOINLINE static void dlpi_s3_who_wipe(dlpi_s3_credentials *who) {
    dlpi_s3_wipe(who, sizeof *who);
}

/* Copy id, secret and token (may be NULL) into who. from: where they came from, for messages.
   Returns DLP_OK, or code if they are not valid. */
static int dlpi_s3_who_set(dlpi_s3_credentials *who, const char *access, const char *secret,
                           const char *token, const char *from, int code, dlp_s3_error *err) {
    const char *wrong = NULL;
    if (!access || !*access)
        wrong = "a secret key without an access key; set both";
    else if (!secret || !*secret)
        wrong = "an access key without a secret key; set both";
    else if (!dlpi_s3_is_graphic(access) || !dlpi_s3_copy(who->access, sizeof who->access, access))
        wrong = "an access key that is too long, or has blanks or odd characters; copy it again";
    else if (!dlpi_s3_is_graphic(secret) || !dlpi_s3_copy(who->secret, sizeof who->secret, secret))
        wrong = "a secret key that is too long, or has blanks or odd characters; copy it again";
    else if (token && *token &&
             (!dlpi_s3_is_graphic(token) || !dlpi_s3_copy(who->token, sizeof who->token, token)))
        wrong = "a session token that is too long, or has blanks or odd characters; copy it again";
    if (!wrong) return DLP_OK;
    dlpi_s3_who_wipe(who);
    return dlpi_s3_set_error(err, code, 0, "credentials: %s: %s", from, wrong);
}

/* ---- memory and files that may hold secrets ---- */

static void *dlpi_s3_private_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, bytes, MADV_DONTDUMP); /* where it fails, a core dump is a little larger */
    return at;
}

/* Wipe and unmap memory (may be NULL). used: bytes from the front that may have been written. */
static void dlpi_s3_private_unmap(void *at, size_t bytes, size_t used) {
    if (!at) return;
    dlpi_s3_wipe(at, used);
    munmap(at, bytes);
}

/* Read a file whole, and terminate it. Returns 0 or an errno: EFBIG for more than size - 1 bytes,
   EILSEQ for one that is not text. */
static int dlpi_s3_file_read(const char *path, char *to, size_t size, size_t *n) {
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC)), e = 0;
    size_t have = 0;
    ssize_t got = 1;
    if (fd < 0) return errno;
    while (got != 0 && have < size) {
        got = read(fd, to + have, size - have);
        if (got < 0 && errno != EINTR) {
            e = errno;
            break;
        }
        if (got > 0) have += (size_t)got;
    }
    close(fd);
    if (!e && have == size) e = EFBIG;
    if (!e && memchr(to, '\0', have)) e = EILSEQ;
    if (e) {
        dlpi_s3_wipe(to, have);
        return e;
    }
    to[have] = '\0';
    *n = have;
    return 0;
}
