#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-client      ENDPOINT, REGION, CREDENTIALS, TIME-OUTS */

/* The client looks for credentials in this order, as AWS' own tools do. It takes the first place
   that has something; that place must be complete.

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

   If a program has more rights than the user who started it (setuid), the client reads none of its
   environment variables, not even HOME. If the program names a profile (desc.profile), the profile
   comes before the environment. AWS_DEFAULT_PROFILE names the profile if AWS_PROFILE is not set. If
   both are set and differ, dlp_s3_open refuses them. Profiles lie in two files:
   AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), which comes first, and AWS_CONFIG_FILE
   (~/.aws/config). The client starts a credential_process without a shell, in its own process
   group. The process has three open descriptors: its output, standard error and an empty input. It
   must end within a minute. The client supports neither single sign-on nor the codes of an MFA
   device (mfa_serial). It says so in an error; use a credential_process for them.

   STS gives the credentials of a role_arn. The client asks STS with the credentials of the profile
   source_profile, or of credential_source: Environment, EcsContainer or Ec2InstanceMetadata. STS
   also gets role_session_name, external_id and duration_seconds. The source profile may have a role
   too; at most 3 roles follow each other. If a source profile has keys and a role, its keys count.
   A profile that names itself as its source must have keys. If profiles lead in a circle, the error
   names them.

   dlp_s3_open refuses settings of AWS' tools that would send requests elsewhere and that it does
   not support. It returns DLP_ERR_UNSUPPORTED; the message says what is set, and where:

     profile: below s3 use_accelerate_endpoint, "true"
     AWS_RETRY_MODE; profile: retry_mode: all but "standard" and "adaptive"; this client's retries
     are a kind of both
     names of regions that stand for endpoints (fips-us-east-1, aws-global, ...), if no endpoint is
     set
     dualstack and fips together with an endpoint
     proxies that are reached by TLS or SOCKS; any proxy on the way to STS

   Requests and lists refuse some names of buckets with DLP_ERR_ARG: ARNs; at AWS also names of
   directory buckets (--x-s3: S3 Express) and of S3 on Outposts, which other hosts serve.

   Connections use a proxy if desc.proxy names one, or else if the environment names one:
   HTTPS_PROXY or HTTP_PROXY, by the scheme of the endpoint, or ALL_PROXY. The names of the
   variables may also be in small letters. NO_PROXY lists hosts that are reached without a proxy. An
   entry is "*", a host, a domain above it, an address, or a range of addresses such as 10.0.0.0/8.
   A host or domain may have a port. Connections to this machine use no proxy, unless desc.proxy
   names one. For https the client sends the proxy a CONNECT; for http it sends the proxy the whole
   URL. Credentials are never fetched through a proxy.

   Credentials that expire are fetched again about 5 minutes before. One process fetches them for
   all processes of the client. If that fails, the old credentials stay in use while they are valid.
   The next attempts come after 1 to 48 seconds. If the server says that keys of a profile have
   expired, the client reads the profile again. A metadata service, a container's service or STS may
   answer 429 or 5xx, because many ask it at once. The client asks it again for 15 seconds, with the
   pauses of requests (backoff_ms). If it is silent, the client asks 2 or 3 times. The variable
   AWS_METADATA_SERVICE_NUM_ATTEMPTS sets that number for the metadata service.

   Sources: AWS SDKs and Tools reference, "standardized credential providers", "file format",
   "service-specific endpoints", "container credential provider", "IMDS credential provider". */

/* What went wrong, and where. All strings end with a zero byte; a string that does not apply is "".
   No string has a secret in it. */
typedef struct dlp_s3_error {
    int32_t code;         /* DLP_ERR_*, or 0 */
    int32_t errnum;       /* errno, or 0 */
    int32_t http_status;  /* HTTP status, 100..599; 0: there was no answer */
    int32_t attempts;     /* number of requests that were sent */
    uint64_t first, last; /* first and last byte of the object that were requested; 0, 0: all; last
                                UINT64_MAX: to the end */
    char bucket[64];
    char key[256];    /* key of the object; the front is cut off if the key is longer */
    char s3_code[64]; /* error code of the server, such as "NoSuchKey" */
    char request_id[96];
    char message[256]; /* one line of text */
} dlp_s3_error;

/* Write the whole error record as one line of text.
   err: not NULL; buf: [size], may be NULL if size is 0. Returns the length of the whole line, as
   snprintf does. Any thread may call it. */
DLPDEF int dlp_s3_error_format(const dlp_s3_error *err, char *buf, size_t size);

/* Results of a transport's read and write, beside a number of bytes. */
enum { DLP_S3_WANT_READ = -1, DLP_S3_WANT_WRITE = -2, DLP_S3_BROKEN = -3 };

/* Functions of another TLS library, which replace OpenSSL. One thread at a time uses a session.
   Several threads call open, also in processes that are forked later. fd is a connected socket that
   does not block; the caller closes it. No function may wait, or raise SIGPIPE. why: [size]; a
   function that fails writes one line without secrets there, and sets errno. errno EKEYREJECTED
   means that the server is not trusted: the client does not try again. errno 0 counts as EPROTO.
   The child of a fork calls close too: what close writes there reaches no server. */
typedef struct dlp_s3_transport {
    void *user; /* passed to open */
    /* Begin a session. host: name of the server, to send (SNI) and to verify. Returns 0 or
       DLP_S3_BROKEN. */
    int (*open)(void *user, int fd, const char *host, void **session, char *why, size_t size);
    /* Go on with the handshake. Returns 0 if it is done and the server is verified; else
       DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
    int (*handshake)(void *session, char *why, size_t size);
    /* Read at most n bytes. Returns the number of bytes read, 1..n; 0 if the server ended the
       session; else DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
    int64_t (*read)(void *session, void *to, size_t n, char *why, size_t size);
    /* Write at most n bytes. Returns the number of bytes written, 1..n; else DLP_S3_BROKEN, or
       DLP_S3_WANT_*: the caller offers the same bytes again. */
    int64_t (*write)(void *session, const void *from, size_t n, char *why, size_t size);
    /* Return 1 if read may return bytes before the socket becomes readable. */
    int (*pending)(void *session);
    /* End the session and free it; fd stays open. */
    void (*close)(void *session);
} dlp_s3_transport;

enum { DLP_S3_STYLE_AUTO = 0, DLP_S3_STYLE_PATH, DLP_S3_STYLE_VIRTUAL };

/* Settings of a client. 0 and NULL select the default. A comment lists variables of the environment
   ("environment") and settings of the profile ("profile") that are read if the field is not set. */
typedef struct dlp_s3_desc {
    /* Where. NULL: the environment, then the profile, then AWS. */
    const char *endpoint; /* URL of the server: "http://host:port", "https://..."; environment:
                                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; profile: s3.endpoint_url
                                    of the section that "services" names, then endpoint_url; if
                                    AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is "true", none of these */
    const char *region;   /* name of the region; environment: AWS_REGION, AWS_DEFAULT_REGION;
                                    profile: region; else us-east-1 */
    const char *profile;  /* name of the profile; environment: AWS_PROFILE, AWS_DEFAULT_PROFILE;
                                    else "default" */
    int32_t style;        /* DLP_S3_STYLE_*: the bucket's name is in the path or host name. AUTO:
                                    profile: addressing_style below s3; else the path for a custom
                                    endpoint and for buckets that cannot be host names */
    /* Credentials. All NULL and 0: see above. */
    int32_t anonymous;      /* 1: requests are not signed */
    const char *access_key; /* key of the user, with secret_key; copied */
    const char *secret_key;
    const char *session_token; /* NULL: none */
    int32_t unsigned_payload;  /* 1: PUT bodies are not hashed (UNSIGNED-PAYLOAD) */
    int32_t presign;           /* 1: the signature is in the query, not in headers */
    /* TLS. */
    const char *ca_file;         /* path of a PEM file of trusted certificates; environment:
                                    AWS_CA_BUNDLE; profile: ca_bundle; else the system's file */
    const dlp_s3_transport *tls; /* TLS library; NULL: OpenSSL if it was compiled in; copied */
    /* Patience. */
    int32_t connect_timeout_ms;    /* milliseconds to connect, with the TLS handshake; 0: 3,000 */
    int32_t first_byte_timeout_ms; /* milliseconds from the delivery of the request's last byte to
                                    the answer's first byte; 0: 10,000 */
    int32_t stall_timeout_ms;      /* milliseconds without a byte inside a body; 0: 5,000 */
    int32_t request_timeout_ms;    /* milliseconds of a request with all its attempts, even if it
                                    makes progress; 0: no limit, but see progress_timeout_ms */
    int32_t max_attempts;          /* attempts of a request that make no progress, 1..100;
                                    environment: AWS_MAX_ATTEMPTS; profile: max_attempts; else no
                                    limit, but see progress_timeout_ms */
    int32_t backoff_ms;            /* milliseconds, 1..60,000; 0: 50. Retry n waits for backoff_ms *
                                    2^n, at most backoff_max_ms; half of that time is random */
    int32_t backoff_max_ms;        /* milliseconds, 1..3,600,000; 0: 5,000 */
    int32_t retry_tokens;          /* retries that all workers together may have ahead of successes;
                                    beyond it each retry waits as the last ones do; 0: 500;
                                    DLP_NONE (-1): no limit */
    int32_t hedge_percent; /* second requests for slow ones, 1..100 percent of all requests; 0: 5;
                              -1: none */
    /* Limits of each dlp_s3_io. */
    int32_t max_requests;    /* requests in flight, 1..4096; 0: 64. An io has as many connections at
                                    most, and max_requests / 8 + 4 for hedges */
    uint64_t max_bytes;      /* bytes of the bodies in flight; 0: no limit. One request alone may
                                    have more */
    uint64_t part_bytes;     /* bytes of a part, 64 KiB..1 GiB; 0: 8 MiB. Larger objects are fetched
                                    in parts, side by side */
    int32_t idle_timeout_ms; /* milliseconds until an unused connection is closed; 0: 20,000 */
    int32_t max_idle;        /* connections that are kept for later, up to 8,192; 0: max_requests */
    void (*log)(void *user, const char *line); /* function that gets a line for each retry,
                                    redirect and refresh of credentials; NULL: none; any thread that
                                    works for this client calls it, several at once */
    void *log_user;
    int32_t progress_timeout_ms; /* milliseconds in which a request, with all its attempts, gets no
                                    new byte; 0: request_timeout_ms if it is set, else 120,000 */
    int32_t requester_pays;      /* 1: the requester pays, as some buckets of others want; not with
                                    anonymous; environment: AWS_REQUEST_PAYER, "requester" */
    int32_t checksums;           /* 1: compare an object that is read whole with the CRC64NVME,
                                    CRC32C or CRC32 that the server tells. -1: do not. 0: compare if
                                    that is cheap (x86-64 with VPCLMULQDQ), unless "when_required"
                                    is set.
                                    environment: AWS_RESPONSE_CHECKSUM_VALIDATION; profile:
                                    response_checksum_validation */
    const char *proxy;           /* URL of the proxy of all connections: "http://host:port",
                                    "http://user:password@host:port", user and password URI-encoded;
                                    "": no proxy; NULL: as the environment says; copied */
    int32_t dualstack;           /* 1: use the hosts of AWS that also have IPv6 addresses;
                                    environment: AWS_USE_DUALSTACK_ENDPOINT; profile:
                                    use_dualstack_endpoint, also below s3 */
    int32_t fips;                /* 1: use the hosts of AWS with FIPS 140; environment:
                                    AWS_USE_FIPS_ENDPOINT; profile: use_fips_endpoint */
} dlp_s3_desc;

typedef struct dlp_s3 dlp_s3;

/* Make a client: find the endpoint, the region and the credentials. The client is one shared
   mapping: processes that are forked later share it, and core dumps leave it out. The call leaves
   no socket and no thread open.
   out: to be closed; desc: copied; NULL: all defaults; err: zeroed, or what failed; may be NULL.
   Returns DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY; DLP_ERR_UNSUPPORTED
   (https without TLS, or settings as above); DLP_ERR_SYSTEM; DLP_ERR_REMOTE (no credentials). Any
   thread may call it. It may wait for credentials. */
DLPDEF int dlp_s3_open(dlp_s3 **out, const dlp_s3_desc *desc, dlp_s3_error *err);

/* Free the client in this process. Other processes that share the client (parent and children) keep
   it. s3: NULL is fine. Returns DLP_OK; DLP_ERR_BUSY if a dlp_s3_io of this process is still open.
   Any thread may call it. It does not wait. */
DLPDEF int dlp_s3_close(dlp_s3 *s3);

/* Counters of a client, over all threads and processes that use it. */
typedef struct dlp_s3_stats {
    uint64_t requests; /* requests sent, with retries and hedges */
    uint64_t objects;  /* requests of the user that ended well */
    uint64_t failed;   /* requests of the user that failed */
    uint64_t bytes;    /* bytes of bodies, received or sent */
    uint64_t retries;  /* requests sent again, after a failure or because a body was slow */
    uint64_t replays;  /* those retries that cost nothing: an idle connection had been closed */
    uint64_t resumes;  /* those retries that went on inside a body */
    uint64_t hedges, hedges_won; /* second requests, and those that got the first answer */
    uint64_t throttled;   /* answers that ask for fewer requests: 503 SlowDown, 429 and the like */
    uint64_t connections; /* connections opened */
    uint64_t timeouts;
    uint64_t refreshes; /* refreshes of the credentials, without the first in dlp_s3_open */
    uint64_t away_ns;   /* nanoseconds for which requests have failed and none has had its answer;
                                 0: the last finished request had its answer */
} dlp_s3_stats;

/* Read the counters of a client. Each counter is exact; two counters may be a few requests apart.
   s3, out: not NULL. Any thread may call it. */
DLPDEF void dlp_s3_stats_get(const dlp_s3 *s3, dlp_s3_stats *out);
