/* Proxies: what goes by them and what does not, what they refuse, and that nobody hears their
   password. A proxy of a few lines leads all hosts to one scripted server; "TLS" is none. */
#define _GNU_SOURCE
#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"
#include "../../rig/s3_proxy.h"

#include "../../rig/check.h"

/* ---- a transport that encrypts nothing ---- */

static int plain_open(void *user, int fd, const char *host, void **session, char *why,
                      size_t size) {
    int *own = malloc(sizeof *own);
    (void)user, (void)host, (void)why, (void)size;
    if (!own) return DLP_S3_BROKEN;
    *own = fd;
    *session = own;
    return 0;
}

static int plain_handshake(void *session, char *why, size_t size) {
    (void)session, (void)why, (void)size;
    return 0;
}

static int64_t plain_read(void *session, void *to, size_t n, char *why, size_t size) {
    ssize_t got = recv(*(int *)session, to, n, 0);
    (void)why, (void)size;
    return got >= 0 ? got : errno == EAGAIN ? DLP_S3_WANT_READ : DLP_S3_BROKEN;
}

static int64_t plain_write(void *session, const void *from, size_t n, char *why, size_t size) {
    ssize_t put = send(*(int *)session, from, n, MSG_NOSIGNAL);
    (void)why, (void)size;
    return put >= 0 ? put : errno == EAGAIN ? DLP_S3_WANT_WRITE : DLP_S3_BROKEN;
}

static int plain_pending(void *session) { return session == NULL; }
static void plain_close(void *session) { free(session); }

static const dlp_s3_transport plain = {NULL,        plain_open,    plain_handshake, plain_read,
                                       plain_write, plain_pending, plain_close};

static s3_mock *mock;

/* ---- the rig ---- */

#define WORD "sesame%3Aword"         /* of the proxy, as a URL has it, */
#define BASIC "bWU6c2VzYW1lOndvcmQ=" /* and "me:sesame:word" as the header has it */

static proxy *by;
static char url[128], with_word[128];
static const char *const variables[] = {"http_proxy",
                                        "HTTP_PROXY",
                                        "https_proxy",
                                        "HTTPS_PROXY",
                                        "all_proxy",
                                        "ALL_PROXY",
                                        "no_proxy",
                                        "NO_PROXY",
                                        "AWS_USE_DUALSTACK_ENDPOINT",
                                        "AWS_USE_FIPS_ENDPOINT"};

static dlp_s3_error error;

static void begin(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    mock = s3_mock_start();
    mock->default_bytes = 3000;
    by = proxy_start(mock->port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", by->port);
    snprintf(with_word, sizeof with_word, "http://me:%s@127.0.0.1:%d/", WORD, by->port);
}

static void end(void) {
    s3_mock_stop(mock);
    proxy_stop(by);
}

static dlp_s3_desc desc_of(const char *endpoint, const char *proxy_url) {
    return (dlp_s3_desc){.endpoint = endpoint,
                         .region = "eu-west-1",
                         .access_key = "AKIDEXAMPLE",
                         .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                         .proxy = proxy_url,
                         .tls = &plain,
                         .backoff_ms = 1,
                         .backoff_max_ms = 5,
                         .max_attempts = 4,
                         .hedge_percent = -1};
}

/* Get an object. Returns the code; error: what went wrong. */
static int get_by(const dlp_s3_desc *d) {
    static char body[3000];
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = NULL;
    uint64_t n = 0;
    int code = dlp_s3_open(&s3, d, &error);
    char line[1000];
    if (code != DLP_OK) return code;
    CHECK(dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    code = dlp_s3_get(io, "bucket", "key", body, sizeof body, &n, &error);
    if (code == DLP_OK) CHECK(n == 3000);
    dlp_s3_error_format(&error, line, sizeof line);
    CHECK(!strstr(line, "sesame") && !strstr(line, BASIC));
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    return code;
}

static bool head_has(const char *text) {
    bool has;
    pthread_mutex_lock(&by->lock);
    has = strstr(by->head, text) != NULL;
    pthread_mutex_unlock(&by->lock);
    return has;
}

static int connections(void) {
    int n;
    pthread_mutex_lock(&by->lock);
    n = by->connections;
    by->connections = by->tunnels = 0;
    by->head[0] = '\0';
    pthread_mutex_unlock(&by->lock);
    return n;
}

static void proxy_says(const char *text, int times) {
    pthread_mutex_lock(&by->lock);
    by->answer = text;
    by->answers = times;
    pthread_mutex_unlock(&by->lock);
}

/* ---- cases ---- */

static void https__by_a_tunnel(void) {
    dlp_s3_desc d = desc_of("https://s3.example.com:8443", url);
    begin();
    d.proxy = url;
    CHECK(get_by(&d) == DLP_OK);
    CHECK(head_has("CONNECT s3.example.com:8443 HTTP/1.1\r\nHost: s3.example.com:8443\r\n"));
    CHECK(!head_has("Proxy-Authorization") && !head_has("AWS4") && connections() == 1);
    d.proxy = with_word;
    by->slow = 1;
    CHECK(get_by(&d) == DLP_OK && head_has("\r\nProxy-Authorization: Basic " BASIC "\r\n"));
    by->slow = 0;
    d.endpoint = "https://[fd00::1]";
    CHECK(get_by(&d) == DLP_OK && head_has("CONNECT [fd00::1]:443 HTTP/1.1\r\n"));
    connections();
    d.endpoint = NULL; /* AWS, the bucket in the host's name */
    CHECK(get_by(&d) == DLP_OK);
    CHECK(head_has("CONNECT bucket.s3.eu-west-1.amazonaws.com:443 ") && connections() == 1);
    {
        s3_mock_request q;
        int n = s3_mock_count(mock, NULL);
        CHECK(s3_mock_seen(mock, n - 1, &q) && q.has_authorization);
        CHECK(!strstr(q.head, "Proxy-Authorization") && strstr(q.head, "GET /key HTTP/1.1"));
    }
    end();
}

static void http__with_the_whole_url(void) {
    dlp_s3_desc d = desc_of("http://s3.example.com:9000", NULL);
    s3_mock_request q;
    begin();
    d.proxy = with_word;
    CHECK(get_by(&d) == DLP_OK);
    CHECK(head_has(
        "GET http://s3.example.com:9000/bucket/key HTTP/1.1\r\nHost: s3.example.com:9000"));
    CHECK(head_has("\r\nProxy-Authorization: Basic " BASIC "\r\n") && head_has("AWS4-HMAC-SHA256"));
    CHECK(s3_mock_seen(mock, 0, &q) && strcmp(q.path, "/bucket/key") == 0);
    CHECK(by->tunnels == 0 && connections() == 1);
    end();
}

static void environment__by_scheme_and_host(void) {
    static const struct {
        const char *variable, *endpoint, *no_proxy;
        int goes;
    } cases[] = {{"https_proxy", "https://s3.example.com", NULL, 1},
                 {"HTTPS_PROXY", "https://s3.example.com", NULL, 1},
                 {"ALL_PROXY", "https://s3.example.com", "example.org", 1},
                 {"http_proxy", "http://s3.example.com", NULL, 1},
                 {"HTTPS_PROXY", "https://s3.example.com", "other,.Example.com", 0},
                 {"HTTPS_PROXY", "https://s3.example.com", "s3.example.com:443", 0},
                 {"HTTPS_PROXY", "https://s3.example.com", "s3.example.com:444", 1},
                 {"HTTPS_PROXY", "https://s3.example.com", "*", 0},
                 {"HTTPS_PROXY", "https://10.1.2.3", "10.0.0.0/8", 0},
                 {"HTTPS_PROXY", "https://10.1.2.3", "10.2.0.0/16", 1},
                 {"HTTP_PROXY", "https://s3.example.com", NULL, 0}};
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlp_s3_desc d = desc_of(cases[i].endpoint, NULL);
        int code;
        d.connect_timeout_ms = 50, d.max_attempts = 1;
        setenv(cases[i].variable, with_word, 1);
        if (cases[i].no_proxy) setenv("NO_PROXY", cases[i].no_proxy, 1);
        connections();
        code = get_by(&d);
        CHECK((code == DLP_OK) == cases[i].goes && connections() == cases[i].goes);
        if ((code == DLP_OK) != cases[i].goes) printf("  %zu: %d %s\n", i, code, error.message);
        d.proxy = ""; /* overrides the environment */
        if (cases[i].goes) CHECK(get_by(&d) != DLP_OK && connections() == 0);
        unsetenv(cases[i].variable);
        unsetenv("NO_PROXY");
    }
    { /* a machine's own addresses: not by the environment's, but by the desc's */
        dlp_s3_desc d = desc_of(mock->url, NULL);
        setenv("http_proxy", url, 1);
        CHECK(get_by(&d) == DLP_OK && connections() == 0);
        setenv("NO_PROXY", "*", 1);
        d.proxy = url;
        CHECK(get_by(&d) == DLP_OK && connections() == 1);
    }
    end();
}

static void refusals__name_the_proxy(void) {
    static const struct {
        const char *answer, *says;
        int attempts;
    } cases[] = {{"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n"
                  "Content-Length: 4\r\n\r\nnope",
                  "answers 407: it wants another user and password", 0},
                 {"HTTP/1.1 403 Forbidden\r\n\r\n", "answers 403: it may not connect there", 0},
                 {"HTTP/1.0 502 Bad Gateway\r\n\r\n", "answers 502: it cannot reach the server", 1},
                 {"HTTP/1.1 503 Unavailable\r\n\r\n", "answers 503: it cannot reach the server", 1},
                 {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no answer to CONNECT", 1},
                 {"HTTP/1.1 20", "closes the connection", 1},
                 {"", "closes the connection", 1}};
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlp_s3_desc d = desc_of("https://s3.example.com", with_word);
        char name[64];
        int code, n;
        snprintf(name, sizeof name, "by proxy 127.0.0.1:%d", by->port);
        connections();
        proxy_says(cases[i].answer, 0);
        code = get_by(&d);
        n = connections();
        CHECK(code == DLP_ERR_REMOTE && strstr(error.message, cases[i].says));
        CHECK(strstr(error.message, name) && (n > 1) == cases[i].attempts);
        if (!strstr(error.message, cases[i].says)) printf("  %s\n", error.message);
        if (!cases[i].attempts) continue;
        proxy_says(cases[i].answer, 1); /* once only: tried again */
        CHECK(get_by(&d) == DLP_OK);
    }
    { /* it says nothing, or does not come to an end */
        static char endless[20000];
        dlp_s3_desc d = desc_of("https://s3.example.com", with_word);
        d.connect_timeout_ms = 100, d.max_attempts = 2;
        proxy_says("hang", 0);
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "not there after 100 ms"));
        CHECK(strstr(error.message, "by proxy 127.0.0.1:") != NULL);
        memset(endless, 'x', sizeof endless - 1);
        memcpy(endless, "HTTP/1.1 200 OK\r\na: ", 20);
        d.connect_timeout_ms = 2000;
        proxy_says(endless, 0);
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "its answer does not end"));
    }
    {
        dlp_s3_desc d = desc_of("http://s3.example.com", with_word);
        proxy_says("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", 0);
        CHECK(get_by(&d) == DLP_ERR_REMOTE && error.http_status == 407);
        CHECK(strstr(error.message, "the proxy 127.0.0.1:"));
        CHECK(strstr(error.message, "another user and password (http://USER:WORD@HOST:PORT)"));
        d.proxy = url;
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "wants a user and password"));
        d.endpoint = mock->url; /* a proxy that nobody has named */
        d.proxy = NULL;
        s3_mock_on(mock, NULL, -1, (s3_mock_reply){.status = 407, .body = ""});
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "set proxy to http://USER"));
    }
    { /* a page is no word of S3 about who pays */
        dlp_s3_desc d = desc_of("http://s3.example.com", url);
        proxy_says("HTTP/1.1 403 No\r\nContent-Length: 27\r\n\r\n<HTML><body>blocked</body>..", 0);
        CHECK(get_by(&d) == DLP_ERR_REMOTE && error.http_status == 403);
        CHECK(strstr(error.message, "HTML page") && !strstr(error.message, "requester_pays"));
        CHECK(strlen(error.message) <= 160);
        proxy_says("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", 0);
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "requester_pays"));
    }
    { /* nobody is there */
        dlp_s3_desc d = desc_of("https://s3.example.com", "http://me:sesame@127.0.0.1:1");
        CHECK(get_by(&d) == DLP_ERR_REMOTE && strstr(error.message, "by proxy 127.0.0.1:1"));
    }
    end();
}

static void urls__that_are_none__refused(void) {
    static const struct {
        const char *url, *says;
    } bad[] = {{"https://me:sesame@127.0.0.1:1", "only a proxy of http"},
               {"socks5://me:sesame@127.0.0.1:1", "only a proxy of http"},
               {"http://me:sesame@", "no host"},
               {"http://me:sesame@host:99999", "port"},
               {"http://me:sesame@host:1/path", "something follows HOST:PORT"},
               {"http://me:sesame%zz@host:1", "bad escape"},
               {"http://me:sesame@ho st:1", "neither a name nor an address"}};
    char long_word[800];
    dlp_s3_desc d = desc_of("https://s3.example.com", NULL);
    begin();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        d.proxy = bad[i].url;
        CHECK(get_by(&d) == DLP_ERR_ARG && strstr(error.message, bad[i].says));
        CHECK(strncmp(error.message, "proxy: ", 7) == 0 && !strstr(error.message, "sesame"));
        d.proxy = NULL;
        setenv("HTTPS_PROXY", bad[i].url, 1);
        CHECK(get_by(&d) == DLP_ERR_UNSUPPORTED && strstr(error.message, "HTTPS_PROXY: "));
        CHECK(!strstr(error.message, "sesame") && strstr(error.message, "NO_PROXY"));
    }
    unsetenv("HTTPS_PROXY");
    memset(long_word, 'x', sizeof long_word);
    memcpy(long_word, "http://me:", 10);
    memcpy(long_word + sizeof long_word - 6, "@h:1", 5);
    d.proxy = long_word;
    CHECK(get_by(&d) == DLP_ERR_ARG && strstr(error.message, "too long"));
    end();
}

int main(void) {
    https__by_a_tunnel();
    http__with_the_whole_url();
    environment__by_scheme_and_host();
    refusals__name_the_proxy();
    urls__that_are_none__refused();
    return test_end("s3_proxy");
}
