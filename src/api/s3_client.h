#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-client      ENDPOINT, REGION, CREDENTIALS, TIME-OUTS */

/* Credentials are looked for as AWS' own tools do; the first place that has something is the one,
   and must be whole.

     dlp_s3_desc            anonymous; access_key with secret_key
     environment            AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
     web identity           AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME:
                            asked of STS (AWS_ENDPOINT_URL_STS), which wants TLS
     profile                web_identity_token_file with role_arn; role_arn with source_profile or
                            credential_source; aws_access_key_id with aws_secret_access_key;
                            credential_process
     container              AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI; with
                            AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, or _TOKEN
     machine                IMDSv2, unless AWS_EC2_METADATA_DISABLED is true

   A program with more rights than the user who started it (setuid) asks nothing of its environment,
   HOME included. A profile that the program names comes before the environment; AWS_DEFAULT_PROFILE
   serves where AWS_PROFILE is not set, and both are refused where they differ. Profiles are of the
   files AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config), the
   first before the second. A credential_process is started without a shell, in a group of its own,
   with no descriptors but its output, standard error and an empty input, and has a minute. Single
   sign-on and codes of a device (mfa_serial) are for a credential_process to do, and said to be.

   A role_arn is assumed of STS with the credentials of the profile source_profile, or of
   credential_source: Environment, EcsContainer, Ec2InstanceMetadata. role_session_name, external_id
   and duration_seconds are passed on. The source may have a role, too, up to 3 in all; its keys
   come before its role. A profile that names itself must have keys. Profiles that lead in a circle
   are refused, and named.

   Settings of AWS' tools that lead elsewhere, and are not supported, are refused by dlp_s3_open
   with DLP_ERR_UNSUPPORTED, in words that say what is set, and where:

     AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT; profile: use_fips_endpoint,
     use_dualstack_endpoint, and below s3 use_dualstack_endpoint, use_accelerate_endpoint: "true"
     AWS_RETRY_MODE; profile: retry_mode: others than "standard" and "adaptive", both of which what
     this client does is a kind of
     regions that stand for something else (fips-us-east-1, aws-global, ...), without an endpoint
     HTTPS_PROXY or HTTP_PROXY, by the endpoint, or ALL_PROXY, also in small letters, unless
     NO_PROXY covers the endpoint ("*", a host or a domain above it, with its port or without, an
     address, or addresses as 10.0.0.0/8), or it is on this machine

   and so are buckets that are none, with DLP_ERR_ARG, where they are named: ARNs; at AWS also names
   of directory buckets (--x-s3: S3 Express) and of S3 on Outposts, which other hosts serve.

   What expires is fetched again some 5 minutes before, by one of all processes for all; if that
   fails, what is at hand stays in use while it is valid, and the next attempts come after 1 to 48
   seconds. Keys in a profile are read again when the server says that they have expired.

   Sources: AWS SDKs and Tools reference, "standardized credential providers", "file format",
   "service-specific endpoints", "container credential provider", "IMDS credential provider". */

/* What went wrong, with its place. Strings are always terminated; those that do not apply are "".
   No secret is ever in one. */
typedef struct dlp_s3_error {
    int32_t code;         /* DLP_ERR_*, or 0 */
    int32_t errnum;       /* errno, or 0 */
    int32_t http_status;  /* 100..599, or 0: there was no answer */
    int32_t attempts;     /* requests sent for it */
    uint64_t first, last; /* bytes of the object that were asked for; 0, 0: all of it */
    char bucket[64];
    char key[256];    /* cut at its front, where it is longer */
    char s3_code[64]; /* such as "NoSuchKey" */
    char request_id[96];
    char message[256]; /* in words, one line */
} dlp_s3_error;

/* Write one line that says all of it. Returns the whole line's length, as snprintf. Any thread. */
DLPDEF int dlp_s3_error_format(const dlp_s3_error *err, char *buf, size_t size);

/* For reads and writes of a transport. */
enum { DLP_S3_WANT_READ = -1, DLP_S3_WANT_WRITE = -2, DLP_S3_BROKEN = -3 };

/* TLS of another library, in place of OpenSSL. Sessions are used by one thread each; open is called
   by several, also in processes forked later. Sockets are connected, do not block, and stay the
   caller's. No call waits, or raises SIGPIPE. why: for failures, a line without secrets; errno
   tells of what kind they are: EKEYREJECTED, a server that is not trusted, is not tried again; 0:
   EPROTO. close is called in the child of a fork, too: what it writes gets to no server then. */
typedef struct dlp_s3_transport {
    void *user;
    /* Begin a session; host: to be asked for (SNI) and verified. Returns 0 or DLP_S3_BROKEN. */
    int (*open)(void *user, int fd, const char *host, void **session, char *why, size_t size);
    /* Go on with the handshake. Returns 0: done and verified; DLP_S3_WANT_*; DLP_S3_BROKEN. */
    int (*handshake)(void *session, char *why, size_t size);
    /* Return bytes read, 1..n; 0: the server ended the session; DLP_S3_*. */
    int64_t (*read)(void *session, void *to, size_t n, char *why, size_t size);
    /* Return bytes written, 1..n; DLP_S3_*: offer the same bytes again. */
    int64_t (*write)(void *session, const void *from, size_t n, char *why, size_t size);
    /* 1: read may return bytes without the socket becoming readable. */
    int (*pending)(void *session);
    void (*close)(void *session);
} dlp_s3_transport;

enum { DLP_S3_STYLE_AUTO = 0, DLP_S3_STYLE_PATH, DLP_S3_STYLE_VIRTUAL };

typedef struct dlp_s3_desc {
    /* Where. NULL: from the environment, the profile, AWS, in this order. */
    const char *endpoint; /* "http://host:port", "https://..."; environment:
                                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; profile: services with
                                    s3 and endpoint_url, endpoint_url; none of these with
                                    AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, "true" */
    const char *region;   /* environment: AWS_REGION, AWS_DEFAULT_REGION; profile: region;
                                    else us-east-1 */
    const char *profile;  /* environment: AWS_PROFILE, AWS_DEFAULT_PROFILE; else "default" */
    int32_t style;        /* AUTO: as addressing_style below s3 in the profile says; else by
                                    path for a custom endpoint and for bucket names that cannot be
                                    host names, otherwise by host name */
    /* Credentials. All NULL and 0: see above. */
    int32_t anonymous;      /* 1: requests are not signed */
    const char *access_key; /* with secret_key; copied */
    const char *secret_key;
    const char *session_token; /* NULL: none */
    int32_t unsigned_payload;  /* 1: PUT bodies are not hashed (UNSIGNED-PAYLOAD) */
    int32_t presign;           /* 1: the signature is in the query, not in headers */
    /* TLS. */
    const char *ca_file;         /* PEM; environment: AWS_CA_BUNDLE; profile: ca_bundle; else the
                                    system's */
    const dlp_s3_transport *tls; /* NULL: OpenSSL where it was compiled in; copied */
    /* Patience. 0 is the default, DLP_NOWAIT never where it says so. */
    int32_t connect_timeout_ms;    /* 0: 3,000; the handshake included */
    int32_t first_byte_timeout_ms; /* 0: 10,000; from the request's last byte, delivered */
    int32_t stall_timeout_ms;      /* 0: 5,000; without a byte inside a body */
    int32_t request_timeout_ms;    /* a request with all its attempts, however well it gets on; 0:
                                    no such bound, see progress_timeout_ms */
    int32_t max_attempts;          /* 1..100; environment: AWS_MAX_ATTEMPTS; profile: max_attempts;
                                    0: else no such bound, progress_timeout_ms is one */
    int32_t backoff_ms;            /* 0: 50; the n-th retry waits for backoff_ms * 2^n, at most
                                    backoff_max_ms, or down to half of that */
    int32_t backoff_max_ms;        /* 0: 5,000 */
    int32_t retry_tokens;          /* 0: 500; retries that all workers together may have ahead of
                                    successes before each waits the longest; DLP_NONE (-1): no
                                    limit */
    int32_t hedge_percent; /* 0: 5; second requests for slow ones, of all requests; -1: no */
    /* Bounds, of each dlp_s3_io. */
    int32_t max_requests;    /* 0: 64; in flight; 1..4096. Connections are as many at most, and
                                    those of hedges */
    uint64_t max_bytes;      /* 0: no bound; bytes of bodies under way; one request may exceed
                                    it alone */
    uint64_t part_bytes;     /* 0: 8 MiB; larger objects are fetched in parts of this, side by
                                    side; 64 KiB..1 GiB */
    int32_t idle_timeout_ms; /* 0: 20,000; a connection unused for longer is closed */
    int32_t max_idle;        /* 0: max_requests; connections kept for later */
    void (*log)(void *user, const char *line); /* retries, redirects, refreshed credentials; may be
                                    NULL; called by any thread that works for this client */
    void *log_user;
    int32_t progress_timeout_ms; /* a request, with all its attempts, that gets no byte further; 0:
                                    request_timeout_ms if it is set, else 120,000 */
    int32_t requester_pays;      /* 1: who asks pays for it, as buckets of others want;
                                    environment: AWS_REQUEST_PAYER, "requester" */
    int32_t checksums;           /* 1: an object that is read whole is compared with the CRC64NVME
                                    or CRC32C that the server tells of it. -1: it is not. 0: where
                                    that is cheap (x86-64 with VPCLMULQDQ), unless one of these
                                    says "when_required": AWS_RESPONSE_CHECKSUM_VALIDATION;
                                    profile: response_checksum_validation */
} dlp_s3_desc;

typedef struct dlp_s3 dlp_s3;

/* Make a client: endpoint, region, credentials, and what its users share, in a mapping of its own,
   which processes forked later share too (and core dumps leave out). No socket and no thread is
   left open by it.
   out: to be closed; desc: copied; NULL: all defaults; err: zeroed, or what failed; may be NULL -
   returns DLP_OK, DLP_ERR_ARG (the message names the field), DLP_ERR_MEMORY, DLP_ERR_UNSUPPORTED
   (https without TLS; settings as above), DLP_ERR_SYSTEM, DLP_ERR_REMOTE (credentials) - any
   thread - may wait for credentials. */
DLPDEF int dlp_s3_open(dlp_s3 **out, const dlp_s3_desc *desc, dlp_s3_error *err);

/* Free the client; other processes, forked from this one or before it, go on with theirs. Returns
   DLP_OK (NULL too), or DLP_ERR_BUSY: a dlp_s3_io of this process is open. Any thread; does not
   wait. */
DLPDEF int dlp_s3_close(dlp_s3 *s3);

/* Counters of a client, over all threads and processes that use it. */
typedef struct dlp_s3_stats {
    uint64_t requests; /* sent, with retries and hedges */
    uint64_t objects;  /* requests of the user's that ended well */
    uint64_t failed;   /* and those that did not */
    uint64_t bytes;    /* of bodies, received or sent */
    uint64_t retries;  /* second attempts after a failure, or a slow body */
    uint64_t replays;  /* of those, free: an idle connection had been closed */
    uint64_t resumes;  /* of retries, those that went on inside a body */
    uint64_t hedges, hedges_won;
    uint64_t throttled;   /* answers 503 SlowDown, 429 and the like */
    uint64_t connections; /* opened */
    uint64_t timeouts;
    uint64_t refreshes; /* of credentials, after those of dlp_s3_open */
    uint64_t away_ns;   /* for so long requests have failed, and none has got its answer; 0:
                                 the last that was over had one */
} dlp_s3_stats;

/* Read the counters: each is right, together they are a few requests apart. Any thread. */
DLPDEF void dlp_s3_stats_get(const dlp_s3 *s3, dlp_s3_stats *out);
