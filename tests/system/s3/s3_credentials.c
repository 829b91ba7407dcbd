/* Where credentials, region and endpoint come from: options, environment, files, processes, and
   small servers in threads; and the credential cache that processes share. Nothing leaves
   127.0.0.1: each case begins with the machine's own variables unset, and metadata services
   switched off. */
/* own: hook: mappings fail, and are looked at when they go */
#define DLPIPE_IMPLEMENTATION
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
static int map_fails; /* counts down: the call that reaches 1 fails */
#define mmap(...) (map_fails && --map_fails == 0 ? MAP_FAILED : mmap(__VA_ARGS__))
static void check_wiped(const void *at, unsigned long n);
#define munmap(at, n) (check_wiped(at, n), munmap(at, n))
#include "../../../dlpipe_s3.h"
#include "../../rig/s3_mock.h"

#include "../../rig/check.h"
#include "../../rig/sanitizers.h"
#include <sys/auxv.h>
#include <sys/statvfs.h>

/* Of AWS' own documentation. No text that anybody may read has one of the last two. */
#define ID "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define TOKEN "IQoJb3JpZ2luX2VjEXAMPLETOKEN"
#define NOW 1369353600 /* 2013-05-24T00:00:00Z */

static int unmapped;
static bool clients; /* whose other mappings go, too; those hold heads with tokens */

/* What was mapped for a file or an answer goes without one byte that was not wiped. */
static void check_wiped(const void *at, unsigned long n) {
    const char *p = (const char *)at;
    if (n == sizeof(dlpi_s3_common)) return; /* children may go on with it */
    DLPI_ADD_RLX(&unmapped, 1);
    CHECK(clients || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0));
    CHECK(!memmem(at, n, SECRET, strlen(SECRET)));
}

static int64_t clock_s = NOW;

static int64_t test_clock(void) { return DLPI_LOAD_RLX(&clock_s); }

/* ---- what is said to people ---- */

static char logged[4096];
static int log_lines, texts_seen;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void no_secret_in(const char *text) {
    texts_seen += text[0] != '\0';
    CHECK(!strstr(text, SECRET) && !strstr(text, TOKEN) && !strstr(text, "wJalrXUtnFEMI"));
    CHECK(!strstr(text, "IQoJb3") && !strchr(text, '\n') && !strchr(text, '\r'));
}

static void test_log(void *user, const char *line) {
    (void)user;
    pthread_mutex_lock(&log_lock);
    no_secret_in(line);
    dlpi_s3_copy(logged, sizeof logged, line);
    log_lines++;
    pthread_mutex_unlock(&log_lock);
}

/* ---- an environment of our own ---- */

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_CA_BUNDLE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "AWS_METADATA_SERVICE_TIMEOUT",
    "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
    "AWS_DEFAULT_PROFILE",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_RETRY_MODE",
    "AWS_MAX_ATTEMPTS",
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static char home[64];

static void put_file(const char *name, const char *text) {
    char path[128];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", home, name);
    if (!text) {
        unlink(path);
        return;
    }
    f = fopen(path, "w");
    CHECK(f != NULL);
    if (!f) exit(1);
    fputs(text, f);
    fclose(f);
}

static void bare(void) {
    for (size_t i = 0; i < COUNT(variables); i++) unsetenv(variables[i]);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("HOME", home, 1);
    put_file(".aws/config", NULL);
    put_file(".aws/credentials", NULL);
    clock_s = NOW;
}

static dlpi_s3_config *config; /* in memory that processes share, as a client's is */
static dlpi_s3_cred_cache *cred_cache;
static dlp_s3_error error;

static int load(const dlp_s3_desc *desc) {
    dlp_s3_desc d = desc ? *desc : (dlp_s3_desc){0};
    int code;
    d.log = test_log;
    memset(config, 0, sizeof *config);
    memset(&error, 0, sizeof error);
    code = dlpi_s3_config_load(config, &d, &error);
    config->clock = test_clock;
    config->pause_ms = 1;
    config->patience_ms = 0; /* but where it is what is tested */
    CHECK((code != 0) == (error.message[0] != 0) && code == error.code);
    no_secret_in(error.message);
    return code;
}

/* Held by the server while it is busy with somebody. */
static pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;

static void server_rests(void) { /* then what it wrote may be read */
    pthread_mutex_lock(&serving);
    pthread_mutex_unlock(&serving);
}

static int refresh(uint64_t seen, bool force) {
    int code;
    memset(&error, 0, sizeof error);
    code = dlpi_s3_cred_cache_refresh(config, cred_cache, seen, force, &error);
    server_rests();
    CHECK(code == error.code && (code != 0) == (error.message[0] != 0));
    no_secret_in(error.message);
    return code;
}

/* A new credential cache, and a first fetch into it. */
static int fetch(void) {
    memset(cred_cache, 0, sizeof *cred_cache);
    CHECK(dlpi_s3_cred_cache_begin(cred_cache) == 0);
    return refresh(0, false);
}

static dlpi_s3_credentials got;

static int look(void) {
    int code = dlpi_s3_cred_cache_get(cred_cache, clock_s, &got);
    CHECK(got.version == cred_cache->version);
    return code;
}

static bool got_keys(const char *id) {
    memset(&got, 0, sizeof got);
    return look() >= 0 && strcmp(got.access, id) == 0 && strcmp(got.secret, SECRET) == 0;
}

/* ---- the format of the files ---- */

typedef struct format_case {
    const char *config, *credentials; /* NULL: no file */
    const char *profile, *name, *sub; /* sub: of [services PROFILE] */
    const char *want;                 /* NULL: not there; "!": refused */
} format_case;

static const format_case formats[] = {
    {"", NULL, "foo", "name", NULL, NULL},
    {"[profile foo]", NULL, "foo", "name", NULL, NULL},
    {"[profile foo", NULL, "foo", "name", NULL, "!"},
    {"[profile foo] rest\nname = v", NULL, "foo", "name", NULL, "!"},
    {"[]\n", NULL, "foo", "name", NULL, "!"},
    {"[profile \tfoo \t]\nname = value", NULL, "foo", "name", NULL, "value"},
    {"[profile\tfoo]\nname = value", NULL, "foo", "name", NULL, "value"},
    {"name = value", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\r\nname = value\r\n", NULL, "foo", "name", NULL, "value"},
    {"\xef\xbb\xbf[profile foo]\nname = value", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]\nname = val=ue", NULL, "foo", "name", NULL, "val=ue"},
    {"[profile foo]\nname = \xf0\x9f\x98\x82", NULL, "foo", "name", NULL, "\xf0\x9f\x98\x82"},
    {"[profile foo]\na = 1\nname = value2\nb = 2", NULL, "foo", "name", NULL, "value2"},
    {"[profile foo]\nname \t=  \tvalue \t", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]\nname=value", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]\nNAME = value", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]\nname =", NULL, "foo", "name", NULL, NULL},
    {"[profile foo]\n= value", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname : value", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname = 1\n[profile bar]\nname = 2", NULL, "bar", "name", NULL, "2"},
    {"[profile foo]\nname = 1\n[profile bar]\nname = 2", NULL, "foo", "name", NULL, "1"},
    {"\t \n[profile foo]\n\t\n \nname = value\n\t \n", NULL, "foo", "name", NULL, "value"},
    {"# c\n[profile foo] # c\nname = value # c with # sign", NULL, "foo", "name", NULL, "value"},
    {"; c\n[profile foo] ; c\nname = value ; c with ; sign", NULL, "foo", "name", NULL, "value"},
    {";\n[profile foo];\nname = value ;\n", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]; c\nname = value; c", NULL, "foo", "name", NULL, "value; c"},
    {"[profile foo]# c\nname = value# c", NULL, "foo", "name", NULL, "value# c"},
    {"[profile foo]\n#name = no\nname = value", NULL, "foo", "name", NULL, "value"},
    {"[profile foo]\nname = value\n -continued", NULL, "foo", "name", NULL, "value\n-continued"},
    {"[profile foo]\nname = 1\n 2\n\t3 \t\nb = c", NULL, "foo", "name", NULL, "1\n2\n3"},
    {"[profile foo]\nname = 1\n 2 # no c", NULL, "foo", "name", NULL, "1\n2 # no c"},
    {" -continued", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\n -continued", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname = v\n[profile foo]\n -continued", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname = 1\n[profile foo]\nb = 2", NULL, "foo", "name", NULL, "1"},
    {"[profile foo]\nname = 1\nname = 2", NULL, "foo", "name", NULL, "2"},
    {"[profile foo]\nname = 1\n[profile foo]\nname = 2", NULL, "foo", "name", NULL, "2"},
    {"[default]\nname = value", NULL, "default", "name", NULL, "value"},
    {"[profile default]\nname = 1\n[default]\nname = 2", NULL, "default", "name", NULL, "1"},
    {"[default]\nname = 2\n[profile default]\nname = 1", NULL, "default", "name", NULL, "1"},
    {"[default]\nname = 2\n[profile default]\nb = 1", NULL, "default", "name", NULL, NULL},
    {"[foo]\nname = value", NULL, "foo", "name", NULL, NULL},
    {"[profile foo]\nin valid = value\nname = 1", NULL, "foo", "name", NULL, "1"},
    {"[profile \"a b\"]\nname = value", NULL, "a b", "name", NULL, "value"},
    {"[profile a-b_C.9/@:+]\nname = value", NULL, "a-b_C.9/@:+", "name", NULL, "value"},
    {"[profile foo]\ns3 =\n name = nested", NULL, "foo", "name", NULL, NULL},
    {"[profile foo]\ns3 =\n invalid", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\ns3 =\n = value", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\ns3 =\n a =\n in valid = 1\nname = 2", NULL, "foo", "name", NULL, "2"},
    {"[services x]\ns3 =\n endpoint_url = http://a\n", NULL, "x", "s3", "endpoint_url", "http://a"},
    {"[services x]\ns3 = \n  a = b\n\n  # c\n  endpoint_url = http://a\nsts =\n  endpoint_url = b",
     NULL, "x", "s3", "endpoint_url", "http://a"},
    {"[services x]\ns3 =\n endpoint_url = a\nsts =\n endpoint_url = b", NULL, "x", "sts",
     "endpoint_url", "b"},
    {"[services y]\ns3 =\n endpoint_url = a", NULL, "x", "s3", "endpoint_url", NULL},
    {"[profile x]\ns3 =\n endpoint_url = a", NULL, "x", "s3", "endpoint_url", NULL},
    {NULL, "[foo]\nname = value", "foo", "name", NULL, "value"},
    {NULL, "[profile foo]\nname = value", "foo", "name", NULL, NULL},
    {NULL, "[default]\nname = value", "default", "name", NULL, "value"},
    {"[profile foo]\nname = 1", "[foo]\nname = 2", "foo", "name", NULL, "2"},
    {"[profile foo]\nname = 1", "[foo]\nb = 2", "foo", "name", NULL, "1"},
    {"[profile foo]\nname = 1", "[foo]\nname =", "foo", "name", NULL, "1"},
    {"[default]\nname = 1\n[profile default]\nb = 2", "[default]\nname = 3", "default", "name",
     NULL, "3"},
    {"[profile foo]\nname = 1", "[foo]\nname", "foo", "name", NULL, "!"},
    {"[profile foo]\nname = 12345678901234567890123456789012", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname = 12345678901234567890\n 12345678901", NULL, "foo", "name", NULL, "!"},
    {"[profile foo]\nname = 1234567890123456789012345678901", NULL, "foo", "name", NULL,
     "1234567890123456789012345678901"},
};

static void format_ask(const format_case *f, dlpi_s3_profiles *p) {
    char out[32] = "";
    int code = dlpi_s3_profiles_has(p, &error);
    if (code >= 0 && f->sub) {
        code = dlpi_s3_profiles_ask(p, 0, "services", f->profile, f->name, f->sub, out, sizeof out,
                                    &error);
    } else if (code >= 0) {
        code = dlpi_s3_profiles_get(p, f->name, out, sizeof out, &error);
    }
    if (f->want && f->want[0] == '!') {
        CHECK(code == DLP_ERR_ARG && strstr(error.message, "/.aws/"));
    } else {
        CHECK(code == (f->want != NULL));
        CHECK(strcmp(out, f->want ? f->want : "") == 0 || (!f->want && !*out));
    }
}

static void format__table__as_aws(void) {
    for (size_t i = 0; i < COUNT(formats); i++) {
        const format_case *f = &formats[i];
        int before = test_failures;
        char *config_text = f->config ? strdup(f->config) : NULL;
        char *credentials_text = f->credentials ? strdup(f->credentials) : NULL;
        dlpi_s3_profiles p = {
            .c = config, .profile = f->profile, .text = {config_text, credentials_text}};
        memset(config, 0, sizeof *config);
        memset(&error, 0, sizeof error);
        snprintf(config->file[0], sizeof config->file[0], "/.aws/config");
        snprintf(config->file[1], sizeof config->file[1], "/.aws/credentials");
        dlpi_s3_copy(config->profile, sizeof config->profile, f->profile);
        for (int k = 0; k < 2; k++) p.n[k] = p.text[k] ? strlen(p.text[k]) : 0;
        format_ask(f, &p);
        if (test_failures > before) printf("format %zu: %s\n", i, f->config ? f->config : "(none)");
        free(config_text);
        free(credentials_text);
    }
    CHECK(COUNT(formats) >= 60);
}

/* ---- what comes first ---- */

static void given__of_all_sorts__kept_or_refused(void) {
    dlp_s3_desc d = {.access_key = ID, .secret_key = SECRET};
    bare();
    CHECK(load(&d) == DLP_OK && config->source == DLPI_S3_GIVEN);
    CHECK(strcmp(config->given.access, ID) == 0);
    CHECK(strcmp(config->given.secret, SECRET) == 0 && config->given.token[0] == 0);
    CHECK(strcmp(config->region, "us-east-1") == 0 && config->endpoint[0] == 0);
    d.session_token = TOKEN;
    CHECK(load(&d) == DLP_OK && strcmp(config->given.token, TOKEN) == 0);
    d.secret_key = NULL;
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.secret_key = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.session_token = TOKEN};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.access_key = ID "\r\nHost: other", .secret_key = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.access_key = ID, .secret_key = SECRET " "};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.anonymous = 1};
    CHECK(load(&d) == DLP_OK && config->source == DLPI_S3_NOBODY && config->given.anonymous);
    d = (dlp_s3_desc){.anonymous = 1, .region = "a.b/c"};
    CHECK(load(&d) == DLP_ERR_ARG && strstr(error.message, "region"));
}

static void given__too_long__refused(void) {
    static char longer[9000];
    dlp_s3_desc d = {.access_key = ID, .secret_key = SECRET, .session_token = longer};
    bare();
    memset(longer, 'x', sizeof longer - 1);
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.access_key = longer, .secret_key = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.access_key = ID, .secret_key = longer};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.anonymous = 1, .endpoint = longer};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.anonymous = 1, .profile = longer};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.anonymous = 1, .ca_file = longer};
    CHECK(load(&d) == DLP_ERR_ARG);
    setenv("AWS_CONFIG_FILE", longer, 1);
    CHECK(load(NULL) == DLP_ERR_ARG);
}

/* Variables are "NAME=value", at most 6; SOURCE is a DLPI_S3_ value, or an error's. */
typedef struct source_case {
    const char *set[6];
    const char *config, *credentials;
    const char *profile; /* of the option */
    int source;
    const char *id, *says; /* what a fetch gives; part of an error's text, or of config->url */
} source_case;

#define KEYS(id) "aws_access_key_id = " id "\naws_secret_access_key = " SECRET "\n"
#define ENV_KEYS "AWS_ACCESS_KEY_ID=AKIDENV", "AWS_SECRET_ACCESS_KEY=" SECRET
#define WEB "AWS_WEB_IDENTITY_TOKEN_FILE=/t", "AWS_ROLE_ARN=arn:aws:iam::1:role/r"
#define RELATIVE "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x"
#define FULL "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1/y"
#define MACHINE "AWS_EC2_METADATA_DISABLED=false"

static const source_case sources[] = {
    {{NULL}, NULL, NULL, NULL, DLP_ERR_REMOTE, NULL, "there are none"},
    {{ENV_KEYS}, NULL, NULL, NULL, DLPI_S3_ENVIRONMENT, "AKIDENV", NULL},
    {{"AWS_ACCESS_KEY_ID=" ID}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "AWS_SECRET_ACCESS_KEY"},
    {{"AWS_SECRET_ACCESS_KEY=" SECRET}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "without an access"},
    {{ENV_KEYS, WEB, RELATIVE},
     NULL,
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLPI_S3_ENVIRONMENT,
     "AKIDENV",
     NULL},
    {{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="},
     NULL,
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLPI_S3_FILE,
     "AKIDFILE",
     NULL},
    {{WEB},
     NULL,
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts.us-east-1.amazonaws.com"},
    {{WEB, "AWS_REGION=cn-north-1"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts.cn-north-1.amazonaws.com.cn"},
    {{WEB, "AWS_USE_FIPS_ENDPOINT=true"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts-fips.us-east-1.amazonaws.com"},
    {{WEB, "AWS_USE_DUALSTACK_ENDPOINT=true"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts.us-east-1.api.aws"},
    {{WEB, "AWS_USE_DUALSTACK_ENDPOINT=true", "AWS_REGION=cn-north-1"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts.cn-north-1.api.amazonwebservices.com.cn"},
    {{WEB, "AWS_REGION=us-iso-east-1"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "https://sts.us-iso-east-1.c2s.ic.gov"},
    {{WEB, "AWS_ENDPOINT_URL=http://a", "AWS_ENDPOINT_URL_STS=http://b"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "http://b"},
    {{"AWS_WEB_IDENTITY_TOKEN_FILE=/t"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "AWS_ROLE_ARN"},
    {{"AWS_ROLE_ARN=arn"},
     NULL,
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLPI_S3_FILE,
     "AKIDFILE",
     NULL},
    {{NULL}, "[default]\n" KEYS("AKIDCONF"), NULL, NULL, DLPI_S3_FILE, "AKIDCONF", NULL},
    {{NULL},
     "[default]\n" KEYS("AKIDCONF"),
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLPI_S3_FILE,
     "AKIDFILE",
     NULL},
    {{NULL},
     NULL,
     "[default]\naws_access_key_id = " ID "\n",
     NULL,
     DLP_ERR_ARG,
     NULL,
     "without a secret key"},
    {{NULL},
     "[default]\naws_secret_access_key = " SECRET "\n",
     "[default]\naws_access_key_id = AKIDBOTH\n",
     NULL,
     DLPI_S3_FILE,
     "AKIDBOTH",
     NULL},
    {{"AWS_PROFILE=x"},
     NULL,
     "[default]\n" KEYS("AKIDFILE") "[x]\n" KEYS("AKIDX"),
     NULL,
     DLPI_S3_FILE,
     "AKIDX",
     NULL},
    {{"AWS_PROFILE=x"}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLP_ERR_ARG, NULL, "\"x\""},
    {{"AWS_PROFILE=x", ENV_KEYS}, NULL, NULL, NULL, DLPI_S3_ENVIRONMENT, "AKIDENV", NULL},
    {{"AWS_DEFAULT_PROFILE=x"},
     NULL,
     "[default]\n" KEYS("AKIDFILE") "[x]\n" KEYS("AKIDX"),
     NULL,
     DLPI_S3_FILE,
     "AKIDX",
     NULL},
    {{"AWS_DEFAULT_PROFILE=x"},
     NULL,
     "[default]\n" KEYS("AKIDFILE"),
     NULL,
     DLP_ERR_ARG,
     NULL,
     "\"x\""},
    {{"AWS_PROFILE=x", "AWS_DEFAULT_PROFILE=x"},
     NULL,
     "[x]\n" KEYS("AKIDX"),
     NULL,
     DLPI_S3_FILE,
     "AKIDX",
     NULL},
    {{"AWS_PROFILE=x", "AWS_DEFAULT_PROFILE=y"},
     NULL,
     "[x]\n" KEYS("AKIDX"),
     NULL,
     DLP_ERR_ARG,
     NULL,
     "\"x\", but AWS_DEFAULT_PROFILE is \"y\""},
    {{"AWS_PROFILE=x", "AWS_DEFAULT_PROFILE=y"},
     NULL,
     "[z]\n" KEYS("AKIDZ"),
     "z",
     DLPI_S3_FILE,
     "AKIDZ",
     NULL},
    {{WEB, "https_proxy=http://me:word@proxy:3128"},
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     NULL,
     "https_proxy is set"},
    {{"AWS_PROFILE=x", ENV_KEYS, WEB},
     NULL,
     "[y]\n" KEYS("AKIDY"),
     "y",
     DLPI_S3_FILE,
     "AKIDY",
     NULL},
    {{ENV_KEYS}, NULL, "[default]\n" KEYS("AKIDFILE"), "y", DLP_ERR_ARG, NULL, "\"y\""},
    {{RELATIVE}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_FILE, "AKIDFILE", NULL},
    {{RELATIVE, FULL, MACHINE},
     NULL,
     NULL,
     NULL,
     DLPI_S3_CONTAINER,
     NULL,
     "http://169.254.170.2/v2/x"},
    {{FULL, MACHINE},
     "[default]\nregion = a\n",
     NULL,
     NULL,
     DLPI_S3_CONTAINER,
     NULL,
     "http://127.0.0.1/y"},
    {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=x"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "'/'"},
    {{MACHINE}, NULL, NULL, NULL, DLPI_S3_MACHINE, NULL, "http://169.254.169.254"},
    {{MACHINE, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=ipv6"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_MACHINE,
     NULL,
     "http://[fd00:ec2::254]"},
    {{MACHINE, "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:9"},
     NULL,
     NULL,
     NULL,
     DLPI_S3_MACHINE,
     NULL,
     "http://127.0.0.1:9"},
    {{MACHINE, "AWS_METADATA_SERVICE_TIMEOUT=x"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "1..600"},
    {{MACHINE},
     "[default]\nmetadata_service_num_attempts = 0",
     NULL,
     NULL,
     DLP_ERR_ARG,
     NULL,
     "NUM_ATTEMPTS"},
    {{MACHINE},
     "[default]\nsso_session = s\n[sso-session s]\nsso_region = a\n",
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     NULL,
     "sso_session"},
    {{NULL},
     "[default]\nsso_session = s\ncredential_process = /bin/x\n",
     NULL,
     NULL,
     DLPI_S3_PROCESS,
     NULL,
     NULL},
    {{NULL},
     "[default]\ncredential_process = /bin/x\n" KEYS("AKIDCONF"),
     NULL,
     NULL,
     DLPI_S3_FILE,
     "AKIDCONF",
     NULL},
    {{"AWS_ROLE_ARN=other", "AWS_ENDPOINT_URL_STS=http://b"},
     "[default]\nweb_identity_token_file = /t\nrole_arn = arn\nrole_session_name = me\n",
     NULL,
     NULL,
     DLPI_S3_WEB,
     NULL,
     "http://b"},
    {{NULL}, "[default]\nweb_identity_token_file = /t\n", NULL, NULL, DLP_ERR_ARG, NULL, "role"},
};

static void set_all(const char *const *set, size_t n) {
    for (size_t i = 0; i < n && set[i]; i++) {
        char name[64];
        size_t k = strcspn(set[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)k, set[i]);
        setenv(name, set[i] + k + 1, 1);
    }
}

static void source_try(const source_case *c) {
    dlp_s3_desc d = {.profile = c->profile};
    int code;
    bare();
    set_all(c->set, 6);
    put_file(".aws/config", c->config);
    put_file(".aws/credentials", c->credentials);
    code = load(&d);
    if (c->source < 0) {
        CHECK(code == c->source && strstr(error.message, c->says));
        return;
    }
    CHECK(code == DLP_OK && config->source == c->source);
    if (c->says) CHECK(strcmp(config->url, c->says) == 0);
    if (c->id) CHECK(fetch() == DLP_OK && got_keys(c->id) && got.expires_s == 0);
}

static void source__table__order_of_aws(void) {
    for (size_t i = 0; i < COUNT(sources); i++) {
        int before = test_failures;
        source_try(&sources[i]);
        if (test_failures > before) printf("source %zu: %s\n", i, error.message);
    }
}

typedef struct where_case {
    const char *set[6];
    const char *config;
    const char *endpoint, *region;           /* options */
    const char *want_endpoint, *want_region; /* "!": refused */
} where_case;

#define BOTH \
    "[default]\nregion = eu-west-1\nendpoint_url = http://profile\nservices = s\n" \
    "[services s]\ns3 =\n  endpoint_url = http://service\n"

static const where_case places[] = {
    {{NULL}, NULL, NULL, NULL, "", "us-east-1"},
    {{NULL}, "[default]\nregion = eu-west-1", NULL, NULL, "", "eu-west-1"},
    {{"AWS_DEFAULT_REGION=b"}, "[default]\nregion = eu-west-1", NULL, NULL, "", "b"},
    {{"AWS_DEFAULT_REGION=b", "AWS_REGION=c"}, NULL, NULL, NULL, "", "c"},
    {{"AWS_DEFAULT_REGION=b", "AWS_REGION=c"}, NULL, NULL, "d", "", "d"},
    {{"AWS_REGION=RegionOne"}, NULL, NULL, NULL, "", "RegionOne"},
    {{"AWS_REGION=c/"}, NULL, NULL, NULL, "", "!"},
    {{NULL}, "[default]\nendpoint_url = http://profile", NULL, NULL, "http://profile", NULL},
    {{NULL}, BOTH, NULL, NULL, "http://service", "eu-west-1"},
    {{"AWS_ENDPOINT_URL=http://all"}, BOTH, NULL, NULL, "http://all", NULL},
    {{"AWS_ENDPOINT_URL=http://all", "AWS_ENDPOINT_URL_S3=http://s3"},
     BOTH,
     NULL,
     NULL,
     "http://s3",
     NULL},
    {{"AWS_ENDPOINT_URL_S3=http://s3"}, BOTH, "http://option", NULL, "http://option", NULL},
    {{"AWS_ENDPOINT_URL_STS=http://sts"}, NULL, NULL, NULL, "", NULL},
    {{"AWS_ENDPOINT_URL_S3=http://s3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=True"},
     BOTH,
     NULL,
     NULL,
     "",
     NULL},
    {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true"},
     BOTH,
     "http://option",
     NULL,
     "http://option",
     NULL},
    {{"AWS_ENDPOINT_URL=http://all"},
     "[default]\nignore_configured_endpoint_urls = true",
     NULL,
     NULL,
     "",
     NULL},
    {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false"},
     "[default]\nignore_configured_endpoint_urls = true\nendpoint_url = http://profile",
     NULL,
     NULL,
     "http://profile",
     NULL},
    {{NULL}, "[default]\nservices = none", NULL, NULL, "!", NULL},
    {{"AWS_ENDPOINT_URL=http://all"}, "[default]\nservices = none", NULL, NULL, "http://all", NULL},
    {{NULL},
     "[default]\nservices = s\nendpoint_url = a\n[services s]\nsts =\n endpoint_url = b",
     NULL,
     NULL,
     "a",
     NULL},
    {{"AWS_PROFILE=p"}, BOTH "[profile p]\nregion = p1", NULL, NULL, "", "p1"},
};

static void where__table__order_of_aws(void) {
    for (size_t i = 0; i < COUNT(places); i++) {
        const where_case *c = &places[i];
        dlp_s3_desc d = {.anonymous = 1, .endpoint = c->endpoint, .region = c->region};
        int before = test_failures, code;
        bare();
        set_all(c->set, 6);
        put_file(".aws/config", c->config);
        code = load(&d);
        if (c->want_endpoint[0] == '!' || (c->want_region && c->want_region[0] == '!')) {
            CHECK(code == DLP_ERR_ARG);
        } else {
            CHECK(code == DLP_OK && strcmp(config->endpoint, c->want_endpoint) == 0);
            if (c->want_region) CHECK(strcmp(config->region, c->want_region) == 0);
        }
        if (test_failures > before) printf("place %zu: %s\n", i, config->endpoint);
    }
}

/* ---- settings that lead elsewhere ---- */

typedef struct habit_case {
    const char *set[6];
    const char *config, *credentials;
    const char *endpoint, *region; /* options */
    int code;
    const char *says[2];     /* parts of the error's text: what is set, and where */
    int style, max_attempts; /* what comes of it */
} habit_case;

#define P "[profile p]\n"

static const habit_case habits[] = {
    {{NULL}, NULL, NULL, NULL, NULL, 0, {0}, DLP_S3_STYLE_AUTO, -1},
    {{NULL},
     "[default]\ns3 =\n use_accelerate_endpoint=true",
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"s3.use_accelerate_endpoint of", "acceleration"},
     0,
     0},
    {{NULL},
     NULL,
     "[default]\ns3 =\n a = b\n use_accelerate_endpoint = true",
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"s3.use_accelerate_endpoint of", "/.aws/credentials"},
     0,
     0},
    {{NULL}, "[default]\ns3 =\n use_accelerate_endpoint = false", NULL, NULL, NULL, 0, {0}, 0, -1},
    {{"AWS_RETRY_MODE=legacy"},
     NULL,
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"AWS_RETRY_MODE: \"legacy\"", "\"standard\""},
     0,
     0},
    {{"AWS_RETRY_MODE=adaptive"},
     "[default]\nretry_mode = legacy",
     NULL,
     NULL,
     NULL,
     0,
     {0},
     0,
     -1},
    {{NULL},
     "[default]\nretry_mode = legacy",
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"retry_mode of profile \"default\" in", "/.aws/config"},
     0,
     0},
    {{NULL}, "[default]\nretry_mode = standard", NULL, NULL, NULL, 0, {0}, 0, -1},
    {{"AWS_MAX_ATTEMPTS=7"}, "[default]\nmax_attempts = 3", NULL, NULL, NULL, 0, {0}, 0, 7},
    {{NULL}, "[default]\nmax_attempts = 3", NULL, NULL, NULL, 0, {0}, 0, 3},
    {{"AWS_MAX_ATTEMPTS=0"},
     NULL,
     NULL,
     NULL,
     NULL,
     DLP_ERR_ARG,
     {"AWS_MAX_ATTEMPTS", "1.."},
     0,
     0},
    {{"AWS_MAX_ATTEMPTS=many"},
     NULL,
     NULL,
     NULL,
     NULL,
     DLP_ERR_ARG,
     {"AWS_MAX_ATTEMPTS", "1.."},
     0,
     0},
    {{NULL},
     "[default]\ns3 =\n addressing_style = path",
     NULL,
     NULL,
     NULL,
     0,
     {0},
     DLP_S3_STYLE_PATH,
     -1},
    {{NULL},
     "[default]\ns3 =\n max_queue_size = 9\n addressing_style = Virtual",
     NULL,
     NULL,
     NULL,
     0,
     {0},
     DLP_S3_STYLE_VIRTUAL,
     -1},
    {{NULL}, "[default]\ns3 =\n addressing_style = auto", NULL, NULL, NULL, 0, {0}, 0, -1},
    {{NULL},
     "[default]\ns3 =\n addressing_style = paths",
     NULL,
     NULL,
     NULL,
     DLP_ERR_ARG,
     {"s3.addressing_style of profile", "/.aws/config"},
     0,
     0},
    {{NULL},
     NULL,
     NULL,
     NULL,
     "fips-us-east-1",
     DLP_ERR_UNSUPPORTED,
     {"region: \"fips-us-east-1\"", "no region"},
     0,
     0},
    {{"AWS_REGION=us-gov-west-1-fips"},
     NULL,
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"AWS_REGION: ", "\"us-gov-west-1-fips\""},
     0,
     0},
    {{"AWS_DEFAULT_REGION=aws-global"},
     NULL,
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"AWS_DEFAULT_REGION: ", "\"aws-global\""},
     0,
     0},
    {{NULL},
     "[default]\nregion = s3-external-1",
     NULL,
     NULL,
     NULL,
     DLP_ERR_UNSUPPORTED,
     {"/.aws/config: ", "\"s3-external-1\""},
     0,
     0},
    {{"AWS_REGION=aws-global"}, NULL, NULL, "http://a", NULL, 0, {0}, 0, -1},
};

static void habits__table__kept_or_refused_in_words(void) {
    for (size_t i = 0; i < COUNT(habits); i++) {
        const habit_case *c = &habits[i];
        dlp_s3_desc d = {.anonymous = 1, .endpoint = c->endpoint, .region = c->region};
        int before = test_failures, code;
        bare();
        set_all(c->set, 6);
        put_file(".aws/config", c->config);
        put_file(".aws/credentials", c->credentials);
        code = load(&d);
        CHECK(code == c->code);
        if (c->code == 0)
            CHECK(config->style == c->style && config->max_attempts == c->max_attempts);
        for (int k = 0; k < 2 && c->says[k]; k++) CHECK(strstr(error.message, c->says[k]) != NULL);
        if (test_failures > before) printf("habit %zu: %d, %s\n", i, code, error.message);
    }
}

typedef struct host_case {
    const char *set[6];
    const char *config, *credentials;
    int fips, dualstack; /* of the desc */
    const char *endpoint, *host;
} host_case;

static const host_case hosts[] = {
    {{NULL}, NULL, NULL, 0, 0, NULL, "s3.us-east-1."},
    {{NULL}, NULL, NULL, 1, 0, NULL, "s3-fips.us-east-1."},
    {{NULL}, NULL, NULL, 0, 1, NULL, "s3.dualstack.us-east-1."},
    {{NULL}, NULL, NULL, 1, 1, NULL, "s3-fips.dualstack.us-east-1."},
    {{"AWS_USE_FIPS_ENDPOINT=True"}, NULL, NULL, 0, 0, NULL, "s3-fips.us-east-1."},
    {{"AWS_USE_DUALSTACK_ENDPOINT=true"}, NULL, NULL, 0, 0, NULL, "s3.dualstack.us-east-1."},
    {{"AWS_USE_FIPS_ENDPOINT=true", "AWS_USE_DUALSTACK_ENDPOINT=true"},
     NULL,
     NULL,
     0,
     0,
     NULL,
     "s3-fips.dualstack.us-east-1."},
    {{"AWS_USE_FIPS_ENDPOINT=false"},
     "[default]\nuse_fips_endpoint = true",
     NULL,
     0,
     0,
     NULL,
     "s3.us-east-1."},
    {{NULL}, "[default]\nuse_fips_endpoint = true", NULL, 0, 0, NULL, "s3-fips.us-east-1."},
    {{NULL}, P "use_fips_endpoint = true", NULL, 0, 0, NULL, "s3.us-east-1."},
    {{"AWS_PROFILE=p"}, P "use_fips_endpoint = true", NULL, 0, 0, NULL, "s3-fips.us-east-1."},
    {{NULL},
     NULL,
     "[default]\nuse_dualstack_endpoint = TRUE",
     0,
     0,
     NULL,
     "s3.dualstack.us-east-1."},
    {{NULL},
     "[default]\ns3 =\n use_dualstack_endpoint = true",
     NULL,
     0,
     0,
     NULL,
     "s3.dualstack.us-east-1."},
    {{"AWS_USE_DUALSTACK_ENDPOINT=false"},
     "[default]\ns3 =\n use_dualstack_endpoint = true",
     NULL,
     0,
     0,
     NULL,
     "s3.us-east-1."},
    {{"AWS_USE_FIPS_ENDPOINT=true"}, NULL, NULL, 0, 0, "http://a", "fips (AWS_USE_FIPS_ENDPOINT)"},
    {{NULL}, NULL, NULL, 0, 1, "http://a", "dualstack (AWS_USE_DUALSTACK_ENDPOINT)"},
};

static const dlp_s3_transport no_tls = {.user = NULL}; /* nothing is sent */

static void hosts__table__by_program_environment_profile(void) {
    for (size_t i = 0; i < COUNT(hosts); i++) {
        const host_case *c = &hosts[i];
        dlp_s3_desc d = {.anonymous = 1,
                         .endpoint = c->endpoint,
                         .fips = c->fips,
                         .dualstack = c->dualstack,
                         .tls = &no_tls};
        dlp_s3 *s3 = NULL;
        int before = test_failures, code;
        bare();
        set_all(c->set, 6);
        put_file(".aws/config", c->config);
        put_file(".aws/credentials", c->credentials);
        code = dlp_s3_open(&s3, &d, &error);
        CHECK(code == (c->endpoint ? DLP_ERR_UNSUPPORTED : DLP_OK));
        if (code == DLP_OK)
            CHECK(strncmp(s3->endpoint.host, c->host, strlen(c->host)) == 0);
        else
            CHECK(strstr(error.message, c->host) != NULL);
        if (test_failures > before) printf("host %zu: %d, %s\n", i, code, error.message);
        CHECK(dlp_s3_close(s3) == DLP_OK);
    }
}

/* What the program sets comes before the profile, and before the environment. */
static void habits__of_the_program__first(void) {
    dlp_s3_desc d = {.anonymous = 1, .endpoint = "http://127.0.0.1:1"};
    dlp_s3 *s3 = NULL;
    bare();
    put_file(".aws/config", "[default]\nmax_attempts = 3\ns3 =\n addressing_style = path");
    CHECK(dlp_s3_open(&s3, &d, &error) == DLP_OK);
    CHECK(s3->desc.style == DLP_S3_STYLE_PATH && s3->desc.max_attempts == 3);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    d.style = DLP_S3_STYLE_VIRTUAL;
    d.max_attempts = 9;
    CHECK(dlp_s3_open(&s3, &d, &error) == DLP_OK);
    CHECK(s3->desc.style == DLP_S3_STYLE_VIRTUAL && s3->desc.max_attempts == 9);
    CHECK(dlp_s3_close(s3) == DLP_OK);
}

typedef struct proxy_case {
    const char *set[6];
    const char *endpoint;
    const char *by; /* the proxy's host; NULL: none; REFUSED: one that is none */
} proxy_case;

#define S3 "http://s3.example.com"
#define REFUSED "refused"
#define PROXY "http_proxy=http://me:hidden%2Fword@proxy:3128"

static const proxy_case proxies[] = {
    {{NULL}, S3, NULL},
    {{PROXY}, S3, "proxy"},
    {{"HTTP_PROXY=http://proxy:3128"}, S3, "proxy"},
    {{"HTTP_PROXY=http://proxy:3128"}, S3, "proxy"},
    {{"HTTP_PROXY=http://proxy:3128", "http_proxy="}, S3, NULL},
    {{"HTTP_PROXY="}, S3, NULL},
    {{"HTTPS_PROXY=http://proxy:3128"}, S3, NULL},
    {{"HTTPS_PROXY=http://proxy:3128"}, "https://s3.example.com", "proxy"},
    {{"HTTPS_PROXY=http://proxy:3128"}, NULL, "proxy"},
    {{PROXY}, "https://s3.example.com", NULL},
    {{"ALL_PROXY=socks5://proxy"}, S3, REFUSED},
    {{"all_proxy=socks5://proxy"}, "https://s3.example.com", REFUSED},
    {{PROXY, "ALL_PROXY=a"}, "http://127.0.0.1:9000", NULL},
    {{PROXY}, "http://127.8.0.1", NULL},
    {{PROXY}, "http://[::1]:9000", NULL},
    {{PROXY}, "http://localhost:9000", NULL},
    {{PROXY}, "http://128.0.0.1", "proxy"},
    {{PROXY, "NO_PROXY=*"}, S3, NULL},
    {{PROXY, "NO_PROXY=a, example.com ,b"}, S3, NULL},
    {{PROXY, "no_proxy=.Example.com"}, S3, NULL},
    {{PROXY, "no_proxy=*.example.com"}, S3, NULL},
    {{PROXY, "no_proxy=S3.example.com:80"}, S3, NULL},
    {{PROXY, "no_proxy=s3.example.com:81"}, S3, "proxy"},
    {{PROXY, "no_proxy=s3.example.com:81"}, S3 ":81", NULL},
    {{PROXY, "no_proxy=3.example.com"}, S3, "proxy"},
    {{PROXY, "no_proxy=a.s3.example.com"}, S3, "proxy"},
    {{PROXY, "no_proxy=other", "NO_PROXY=*"}, S3, "proxy"},
    {{PROXY, "no_proxy=,,"}, S3, "proxy"},
    {{PROXY, "no_proxy=10.1.2.3"}, "http://10.1.2.3:9000", NULL},
    {{PROXY, "no_proxy=10.0.0.0/8"}, "http://10.1.2.3:9000", NULL},
    {{PROXY, "no_proxy=10.1.3.0/23"}, "http://10.1.2.3:9000", NULL},
    {{PROXY, "no_proxy=10.1.3.0/24"}, "http://10.1.2.3:9000", "proxy"},
    {{PROXY, "no_proxy=10.1.2.3/33"}, "http://10.1.2.3:9000", "proxy"},
    {{PROXY, "no_proxy=fd00::/8"}, "http://[fd12::3]:9000", NULL},
    {{PROXY, "no_proxy=fd12::3"}, "http://[fd12::3]:9000", NULL},
    {{PROXY, "no_proxy=[fd12::3]:9000"}, "http://[fd12::3]:9000", NULL},
    {{PROXY, "no_proxy=0.0.0.0/0"}, "http://[fd12::3]:9000", "proxy"},
};

static void proxy__table__by_endpoint(void) {
    for (size_t i = 0; i < COUNT(proxies); i++) {
        const proxy_case *c = &proxies[i];
        const dlpi_s3_proxy *by = NULL;
        dlp_s3_desc d = {.anonymous = 1};
        dlpi_s3_endpoint e;
        const char *why = NULL;
        int before = test_failures, code;
        bare();
        set_all(c->set, 6);
        memset(config, 0, sizeof *config);
        dlpi_s3_endpoint_aws(&e, "us-east-1");
        if (c->endpoint) CHECK(dlpi_s3_endpoint_parse(&e, c->endpoint, &why) == DLP_OK);
        code = dlpi_s3_proxies_load(config, &d, &e, &error);
        CHECK(code == DLP_OK || !strstr(error.message, "hidden"));
        if (code == DLP_OK) by = dlpi_s3_proxy_of(config, e.host, e.port, e.tls != 0);
        if (c->by && strcmp(c->by, REFUSED) == 0)
            CHECK(code == DLP_ERR_UNSUPPORTED && strstr(error.message, "only a proxy of http"));
        else if (c->by)
            CHECK(code == DLP_OK && by && strcmp(by->host, c->by) == 0 && by->port == 3128);
        else
            CHECK(code == DLP_OK && !by);
        if (test_failures > before) printf("proxy %zu: %d, %s\n", i, code, error.message);
    }
    bare();
}

/* Names that other hosts than S3's stand for; elsewhere than at AWS most are names like others. */
static void buckets__of_another_kind__refused(void) {
    static const char *const aws[] = {"arn:aws:s3:us-west-2:1:accesspoint/a", "b--usw2-az1--x-s3",
                                      "ap--usw2-az1--xa-s3", "ap-o0p--op-s3"};
    dlpi_s3_endpoint s3, other, named;
    const char *why;
    dlpi_s3_endpoint_aws(&s3, "us-west-2");
    CHECK(dlpi_s3_endpoint_parse(&other, "http://127.0.0.1:9000", &why) == DLP_OK);
    CHECK(dlpi_s3_endpoint_parse(&named, "https://s3.eu-west-1.amazonaws.com", &why) == DLP_OK);
    for (size_t i = 0; i < COUNT(aws); i++) {
        CHECK(dlpi_s3_bucket_beyond(&s3, aws[i]) && dlpi_s3_bucket_beyond(&named, aws[i]));
        CHECK((dlpi_s3_bucket_beyond(&other, aws[i]) != NULL) == (i == 0));
    }
    CHECK(dlpi_s3_bucket_beyond(&other, ".") && dlpi_s3_bucket_beyond(&other, ".."));
    CHECK(!dlpi_s3_bucket_beyond(&s3, "usual") && !dlpi_s3_bucket_beyond(&s3, "--x-s3"));
    CHECK(!dlpi_s3_bucket_beyond(&s3, "ap-6fe-s3alias"));
}

static void files__missing_or_broken__told(void) {
    char path[128];
    dlp_s3_desc d = {.anonymous = 1};
    bare();
    unsetenv("HOME");
    CHECK(load(&d) == DLP_OK && config->file[0][0] == '\0');
    bare();
    put_file("other", "[profile x]\nregion = r1\n");
    setenv("AWS_CONFIG_FILE", "~/other", 1);
    setenv("AWS_PROFILE", "x", 1);
    CHECK(load(&d) == DLP_OK && strcmp(config->region, "r1") == 0);
    setenv("AWS_CONFIG_FILE", home, 1); /* a directory */
    CHECK(load(&d) == DLP_ERR_SYSTEM && error.errnum == EISDIR && strstr(error.message, home));
    put_file("other", "[default]\nregion\n");
    setenv("AWS_CONFIG_FILE", "~/other", 1);
    CHECK(load(&d) == DLP_ERR_ARG && strstr(error.message, "/other: line 2"));
    snprintf(path, sizeof path, "%s/other", home);
    CHECK(truncate(path, DLPI_S3_FILE_MAX) == 0);
    CHECK(load(&d) == DLP_ERR_SYSTEM && error.errnum == EFBIG);
    CHECK(truncate(path, 100) == 0);
    CHECK(load(&d) == DLP_ERR_SYSTEM && error.errnum == EILSEQ);
}

static void map__fails__said(void) { /* the n-th mapping, in load and in a fetch */
    int code = 1, n = 0;
    bare();
    put_file(".aws/credentials", "[default]\n" KEYS(ID));
    while (code) {
        map_fails = ++n;
        code = load(NULL);
        if (code) CHECK(code == DLP_ERR_MEMORY && n < 5);
        if (n > 9) break;
    }
    CHECK(n > 1);
    memset(cred_cache, 0, sizeof *cred_cache);
    CHECK(dlpi_s3_cred_cache_begin(cred_cache) == 0);
    for (n = 1, code = 1; code && n < 9; n++) {
        clock_s += 100; /* past the waiting after a failure */
        map_fails = n;
        code = refresh(0, false);
        if (code) CHECK(code == DLP_ERR_MEMORY && cred_cache->version == 0);
    }
    map_fails = 0;
    CHECK(n > 3 && got_keys(ID));
}

/* ---- credential_process ---- */

#define JSON(version, expiration) \
    "{\"Version\": " version ", \"AccessKeyId\": \"" ID "\", \"SecretAccessKey\": \"" SECRET \
    "\", \"SessionToken\": \"" TOKEN "\"" expiration "}"
#define UNTIL(date) ", \"Expiration\": \"" date "\""

/* Fetch by a command; %s in it is the home directory. */
static int process(const char *command, const char *answer) {
    char text[600], with_home[400];
    dlp_s3_desc d = {0};
    if (answer) put_file("answer", answer);
    snprintf(with_home, sizeof with_home, command, home, home, home);
    snprintf(text, sizeof text, "[default]\ncredential_process = %s\n", with_home);
    put_file(".aws/config", text);
    if (load(&d) != DLP_OK) return 1;
    CHECK(config->source == DLPI_S3_PROCESS && config->timeout_ms == 60000);
    config->timeout_ms = 20000;
    return fetch();
}

typedef struct process_case {
    const char *command, *answer;
    int code;
    const char *says;
} process_case;

static const process_case processes[] = {
    {"/bin/cat %s/answer", JSON("1", UNTIL("2013-05-24T01:00:00Z")), DLP_OK, NULL},
    {"cat %s/answer", JSON("1", UNTIL("2013-05-24T03:00:00+02:00")), DLP_OK, NULL},
    {"/bin/cat '%s'\"/answer\"", JSON("1", UNTIL("2013-05-24T01:00:00.5Z")), DLP_OK, NULL},
    {"/bin/cat %s/an\\swer", JSON("1", UNTIL("2013-05-24T01:00:00Z")), DLP_OK, NULL},
    {"/bin/cat %s/answer", JSON("2", ""), DLP_ERR_REMOTE, "Version 1"},
    {"/bin/cat %s/answer", "{\"Version\": 1}", DLP_ERR_REMOTE, "not the JSON"},
    {"/bin/cat %s/answer", JSON("1", UNTIL("2013-05-23T01:00:00Z")), DLP_ERR_REMOTE, "expired"},
    {"/bin/cat %s/answer", JSON("1", UNTIL("tomorrow")), DLP_ERR_REMOTE, "Expiration is no time"},
    {"/bin/cat %s/answer", "{\"Version\": 1, \"AccessKeyId\": \"" ID "\"}", DLP_ERR_REMOTE,
     "without a secret key"},
    {"/bin/cat %s/answer",
     "{\"Version\": 1, \"AccessKeyId\": \"a\\nb\", \"SecretAccessKey\": \"" SECRET "\"}",
     DLP_ERR_REMOTE, "characters"},
    {"/bin/cat %s/answer", "Password: " SECRET, DLP_ERR_REMOTE, "Version 1"},
    {"/bin/sh -c \"exit 3\"", "", DLP_ERR_REMOTE, "exit status 3"},
    {"/bin/sh -c \"cat %s/answer; exit 3\"", JSON("1", ""), DLP_ERR_REMOTE, "exit status 3"},
    {"/bin/sh -c 'kill -9 $$'", "", DLP_ERR_REMOTE, "signal 9"},
    {"/bin/sh -c 'cat /dev/zero'", "", DLP_ERR_REMOTE, "64 KiB"},
    {"/nowhere/program x", "", DLP_ERR_SYSTEM, "/nowhere/program"},
    {"'open", "", DLP_ERR_ARG, "quotes"},
    {"\"\"", "", DLP_ERR_SYSTEM, "credential_process"},
};

static void process__table__read_or_refused(void) {
    bare();
    for (size_t i = 0; i < COUNT(processes); i++) {
        const process_case *c = &processes[i];
        int before = test_failures, code = process(c->command, c->answer);
        CHECK(code == c->code);
        if (c->code == DLP_OK) {
            CHECK(got_keys(ID) && got.expires_s == NOW + 3600 && strcmp(got.token, TOKEN) == 0);
        } else {
            CHECK(strstr(error.message, c->says) && cred_cache->version == 0);
        }
        if (test_failures > before) printf("process %zu: %s\n", i, error.message);
    }
}

/* Whether a process has ended; somebody else may not have waited for it yet. */
static bool is_dead(int pid) {
    char path[64], state = 'Z';
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    if (f) fclose(f);
    return state == 'Z' || state == 'X';
}

static void process__hangs__killed_with_all_its_own(void) {
    static const char *const commands[] = {
        "/bin/sh -c 'sleep 60 & echo $! > %s/seen'", /* ended, but a child of its holds the pipe */
        "/bin/sh -c 'echo $$ > %s/seen; exec sleep 60'",
        "/bin/sh -c 'echo $$ > %s/seen; exec >&-; exec sleep 60'",
    };
    for (size_t i = 0; i < COUNT(commands); i++) {
        char text[400], path[96];
        uint64_t t0;
        int pid = 0;
        FILE *f;
        bare();
        snprintf(text, sizeof text, commands[i], home);
        put_file(".aws/config", "[default]\ncredential_process = x\n");
        put_file("seen", NULL);
        CHECK(load(NULL) == DLP_OK);
        dlpi_s3_copy(config->process, sizeof config->process, text);
        config->timeout_ms = 150;
        t0 = test_now_ns();
        CHECK(fetch() == DLP_ERR_REMOTE);
        CHECK_SOON(strstr(error.message, i == 2 ? "not end" : "too long"));
        CHECK_SOON(test_now_ns() - t0 < 3000 * DLPI_S3_MS);
        snprintf(path, sizeof path, "%s/seen", home);
        f = fopen(path, "r");
        CHECK_SOON(f && fscanf(f, "%d", &pid) == 1);
        if (f) fclose(f);
        t0 = test_now_ns();
        while (pid && !is_dead(pid) && test_now_ns() - t0 < 20000 * DLPI_S3_MS) poll(NULL, 0, 1);
        CHECK(pid == 0 || is_dead(pid));
    }
}

/* What the new program finds: descriptors, blocked and ignored signals, its input. */
static void process__started__inherits_nothing(void) {
    char path[96], line[256];
    int fd, fds = 0, clean = 0;
    sigset_t all, old;
    FILE *f;
    bare();
    fd = dup(2); /* not close-on-exec */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    signal(SIGUSR1, SIG_IGN);
    CHECK(process("cp /proc/self/status %s/answer", "") == DLP_ERR_REMOTE); /* shells clean up */
    CHECK(process("/bin/sh -c 'grep \"^Sig[BI]\" %s/answer > %s/seen; "
                  "ls /proc/self/fd >> %s/seen; cat; echo {}'",
                  NULL) == DLP_ERR_REMOTE);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    signal(SIGUSR1, SIG_DFL);
    close(fd);
    snprintf(path, sizeof path, "%s/seen", home);
    f = fopen(path, "r");
    CHECK(f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "Sig", 3) != 0)
            fds++; /* 0, 1, 2, and the directory that ls reads */
        else
            clean += (strtoull(line + 7, NULL, 16) & 0x7fffffff) == 0; /* above: of the libc */
    }
    if (f) fclose(f);
    CHECK(fds == 4 && clean == 2);
}

static void reap_all(int sig) {
    int e = errno;
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    errno = e;
}

/* A program that ignores SIGCHLD, or waits for all children in a handler: the status is lost. */
static void process__status_lost__answer_counts(void) {
    struct sigaction take, ignore, old;
    memset(&take, 0, sizeof take);
    memset(&ignore, 0, sizeof ignore);
    take.sa_handler = reap_all;
    ignore.sa_handler = SIG_IGN;
    bare();
    for (int i = 0; i < 2; i++) {
        sigaction(SIGCHLD, i ? &ignore : &take, &old);
        CHECK(process("/bin/cat %s/answer", JSON("1", "")) == DLP_OK && got_keys(ID));
        CHECK(process("/bin/sh -c 'exit 1'", "") == DLP_ERR_REMOTE);
        CHECK(strstr(error.message, "Version 1"));
        sigaction(SIGCHLD, &old, NULL);
    }
}

/* ---- servers: one thread that answers as STS, container or machine do ---- */

enum { NORMAL, SLOW, GARBAGE, HUGE_ONE, CUT, EMPTY, STATUS, NO_KEYS, SAME, LONG_SECRET, BUSY };

static struct {
    int fd;
    uint16_t port;
    pthread_t thread;
    uint32_t stop, requests, issued;
    int mode, status;          /* STATUS: of the next answers, */
    uint32_t times;            /* so many of them; 0: all */
    uint64_t free_ns;          /* BUSY: since when another request may be served */
    char until[32];            /* when credentials expire; "": never */
    int64_t date_s;            /* by its clock; 0: it does not say */
    const char *authorization; /* what containers must send; NULL: nothing */
    const char *role;
    const char *word; /* the error code of a container's */
    char last[24576]; /* the last request */
    char roles[4096]; /* "AKID1>arn AKID2>arn ": who assumed which */
} server;

static void answer_with(char *out, size_t size, int status, const char *body) {
    char date[64] = "";
    time_t now = (time_t)server.date_s;
    struct tm tm;
    if (now && gmtime_r(&now, &tm))
        strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
    snprintf(out, size, "HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n%s", status, date,
             strlen(body), body);
}

static const char *long_tail(void) { /* of a secret */
    static char tail[300];
    memset(tail, 'x', sizeof tail - 1);
    return tail;
}

static void answer_json(char *out, size_t size) {
    char body[2048], until[64] = "";
    unsigned n = server.mode == SAME ? 7 : ++server.issued;
    if (server.until[0]) snprintf(until, sizeof until, ", \"Expiration\": \"%s\"", server.until);
    snprintf(body, sizeof body,
             "{\"Code\": \"Success\", \"Type\": \"AWS-HMAC\", \"AccessKeyId\": "
             "\"AKID%u\", \"SecretAccessKey\": \"" SECRET "%s\", \"Token\": \"" TOKEN "%u\"%s}",
             n, server.mode == LONG_SECRET ? long_tail() : "", n, until);
    answer_with(out, size, 200, server.mode == NO_KEYS ? "{\"Code\": \"Success\"}" : body);
}

/* Note who assumes which role. Returns false: the request is not signed as STS wants it. */
static bool role_note(void) {
    const char *who = strstr(server.last, "Credential="), *arn = strstr(server.last, "RoleArn=");
    const char *body = strstr(server.last, "\r\n\r\n");
    char scope[160], sum[65];
    uint8_t hash[32];
    size_t n = strlen(server.roles);
    if (!who || !arn || !body) return false;
    snprintf(server.roles + n, sizeof server.roles - n, "%.*s>%.*s ", (int)strcspn(who + 11, "/"),
             who + 11, (int)strcspn(arn + 8, "&"), arn + 8);
    snprintf(scope, sizeof scope, "/%s/sts/aws4_request, SignedHeaders=host;x-amz-content-sha256",
             config->region);
    dlpi_s3_sha256(body + 4, strlen(body + 4), hash);
    dlpi_s3_hex(sum, hash, sizeof hash);
    return strstr(server.last, scope) && strstr(server.last, sum) && strstr(who, "Signature=");
}

static void answer_sts(char *out, size_t size) {
    const char *action = "AssumeRoleWithWebIdentity";
    char body[2048];
    if (strstr(server.last, "Action=AssumeRole&")) action = "AssumeRole";
    if (strcmp(action, "AssumeRole") == 0 && !role_note()) {
        answer_with(out, size, 403, SECRET);
        return;
    }
    if (server.mode == NO_KEYS) {
        answer_with(out, size, 200, "<AssumeRoleWithWebIdentityResponse/>");
        return;
    }
    snprintf(body, sizeof body,
             "<%sResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/"
             "\">\n<%sResult><SubjectFromWebIdentityToken>x"
             "</SubjectFromWebIdentityToken><Credentials><SessionToken>" TOKEN
             "%u</SessionToken><SecretAccessKey>" SECRET "%s</SecretAccessKey><Expiration>%s"
             "</Expiration><AccessKeyId>AKID%u</AccessKeyId></Credentials>"
             "</%sResult></%sResponse>\n",
             action, action, server.issued + 1, server.mode == LONG_SECRET ? long_tail() : "",
             server.until, server.issued + 1, action, action);
    server.issued++;
    answer_with(out, size, 200, body);
}

static void answer_machine(char *out, size_t size) {
    const char *r = server.last;
    bool token = strstr(r, "\r\nX-aws-ec2-metadata-token: METADATATOKEN\r\n") != NULL;
    if (strncmp(r, "PUT /latest/api/token HTTP/1.1\r\n", 32) == 0)
        answer_with(out, size, strstr(r, "-ttl-seconds: 21600\r\n") ? 200 : 400, "METADATATOKEN");
    else if (!token)
        answer_with(out, size, 401, SECRET);
    else if (strstr(r, "/security-credentials/ HTTP/1.1\r\n"))
        answer_with(out, size, server.role ? 200 : 404, server.role ? server.role : SECRET);
    else if (strstr(r, "/security-credentials/role@1 HTTP/1.1\r\n"))
        answer_json(out, size);
    else
        answer_with(out, size, 404, "");
}

static void answer_status(char *out, size_t size) {
    char body[400];
    snprintf(body, sizeof body, "{\"code\": \"%s\", \"message\": \"" SECRET "\"}", server.word);
    if (strncmp(server.last, "POST", 4) == 0)
        snprintf(body, sizeof body,
                 "<ErrorResponse><Error><Type>Sender</Type><Code>"
                 "%s</Code><Message>" TOKEN "</Message></Error></ErrorResponse>",
                 server.status == 400 && server.times ? "IDPCommunicationError"
                                                      : "InvalidIdentityToken");
    answer_with(out, size, server.status, body);
    if (server.times && --server.times == 0) server.mode = NORMAL;
}

/* A service that many ask at once: it serves one request in 4 ms, and refuses the others. */
static bool is_busy(void) {
    uint64_t now = test_now_ns();
    if (server.mode != BUSY || now >= server.free_ns) {
        server.free_ns = now + 4 * DLPI_S3_MS;
        return false;
    }
    return true;
}

/* Returns the bytes of the answer. */
static size_t answer(char *out, size_t size) {
    char line[600] = "";
    DLPI_ADD_RLX(&server.requests, 1);
    if (server.authorization)
        snprintf(line, sizeof line, "\r\nAuthorization: %s\r\n", server.authorization);
    if (server.mode == STATUS)
        answer_status(out, size);
    else if (is_busy())
        answer_with(out, size, 429, "");
    else if (strncmp(server.last, "POST / ", 7) == 0)
        answer_sts(out, size);
    else if (strstr(server.last, " /latest/"))
        answer_machine(out, size);
    else if (!strstr(server.last, line))
        answer_with(out, size, 401, "{\"code\": \"InvalidToken\", \"message\": \"" SECRET "\"}");
    else if (strncmp(server.last, "GET /container?a=b ", 19) == 0)
        answer_json(out, size);
    else
        answer_with(out, size, 404, SECRET);
    if (server.mode == GARBAGE) snprintf(out, size, "%s %s\r\n", SECRET, TOKEN);
    if (server.mode == EMPTY) out[0] = '\0';
    if (server.mode == CUT) return strlen(out) - 10;
    if (server.mode == HUGE_ONE) {
        int n = snprintf(out, size, "HTTP/1.1 200 X\r\nContent-Length: 70000\r\n\r\n");
        memset(out + n, ' ', 70000);
        return (size_t)n + 70000;
    }
    return strlen(out);
}

static bool readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!DLPI_LOAD_RLX(&server.stop))
        if (poll(&p, 1, 10) > 0) return true;
    return false;
}

/* Read a request with its body. */
static bool server_read(int fd) {
    size_t n = 0, whole = 0;
    while (n < sizeof server.last - 1 && (!whole || n < whole)) {
        const char *end, *length;
        ssize_t more = readable(fd) ? recv(fd, server.last + n, sizeof server.last - 1 - n, 0) : 0;
        if (more <= 0) return false;
        n += (size_t)more;
        server.last[n] = '\0';
        end = strstr(server.last, "\r\n\r\n");
        length = strstr(server.last, "Content-Length: ");
        if (end) whole = (size_t)(end + 4 - server.last) + (length ? (size_t)atoi(length + 16) : 0);
    }
    return true;
}

static void *serve(void *arg) {
    static char out[80000];
    (void)arg;
    while (readable(server.fd)) {
        int fd = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        pthread_mutex_lock(&serving);
        if (server_read(fd)) {
            size_t n = answer(out, sizeof out);
            if (DLPI_LOAD_RLX(&server.mode) == SLOW)
                readable(fd); /* until the client gives up */
            else if (n && send(fd, out, n, MSG_NOSIGNAL) == (ssize_t)n)
                shutdown(fd, SHUT_WR), readable(fd);
        }
        close(fd);
        pthread_mutex_unlock(&serving);
    }
    return NULL;
}

static void server_begin(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server.fd, (struct sockaddr *)&at, n) || listen(server.fd, 64) ||
        getsockname(server.fd, (struct sockaddr *)&at, &n))
        exit(1);
    server.port = ntohs(at.sin_port);
    pthread_create(&server.thread, NULL, serve, NULL);
}

static void server_end(void) {
    DLPI_STORE_RLX(&server.stop, 1);
    pthread_join(server.thread, NULL);
    close(server.fd);
}

/* As it is at first: credentials for an hour. */
static void server_plain(void) {
    DLPI_STORE_RLX(&server.mode, NORMAL);
    server_rests();
    server.requests = server.issued = server.times = 0;
    server.authorization = NULL;
    server.date_s = 0;
    server.role = "role@1\n";
    server.roles[0] = '\0';
    server.word = "AccessDenied";
    strcpy(server.until, "2013-05-24T01:00:00Z");
}

static void set_url(const char *name, const char *path) {
    char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)server.port, path);
    setenv(name, url, 1);
}

static void as_container(void) {
    bare();
    server_plain();
    set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/container?a=b");
    CHECK(load(NULL) == DLP_OK && config->source == DLPI_S3_CONTAINER);
    config->timeout_ms = 20000;
}

static void as_web(const char *token) {
    char path[96];
    bare();
    server_plain();
    put_file("token", token);
    snprintf(path, sizeof path, "%s/token", home);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/a+b", 1);
    setenv("AWS_ROLE_SESSION_NAME", "me@here", 1);
    set_url("AWS_ENDPOINT_URL_STS", "");
    CHECK(load(NULL) == DLP_OK && config->source == DLPI_S3_WEB);
    config->timeout_ms = 20000;
}

static void as_machine(void) {
    bare();
    server_plain();
    setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
    set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", "");
    CHECK(load(NULL) == DLP_OK && config->source == DLPI_S3_MACHINE);
    CHECK(config->timeout_ms == 1000 && config->attempts == 2);
    config->timeout_ms = 20000;
}

static void container__token__sent(void) {
    char path[96];
    as_container();
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && got.expires_s == NOW + 3600);
    CHECK(strcmp(got.token, TOKEN "1") == 0 && !strstr(server.last, "Authorization"));
    CHECK(strstr(server.last, "\r\nHost: 127.0.0.1:"));
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic " TOKEN, 1);
    CHECK(load(NULL) == DLP_OK);
    server.authorization = "Basic " TOKEN;
    CHECK(fetch() == DLP_OK && got_keys("AKID2"));
    put_file("token", "Other" TOKEN "\n");
    snprintf(path, sizeof path, "%s/token", home);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_ERR_REMOTE);
    CHECK(error.http_status == 401 && strstr(error.message, "answered 401 InvalidToken"));
    server.authorization = "Other" TOKEN;
    CHECK(fetch() == DLP_OK && got_keys("AKID3"));
    put_file("token", "Basic " TOKEN "\n"); /* as the variable takes it */
    server.authorization = "Basic " TOKEN;
    CHECK(fetch() == DLP_OK && got_keys("AKID4"));
    put_file("token", TOKEN "\r\nHost: other\r\n");
    CHECK(fetch() == DLP_ERR_ARG && strstr(error.message, path));
    put_file("token", " \n");
    CHECK(fetch() == DLP_ERR_ARG && strstr(error.message, path));
    put_file("token", "Basic \001" TOKEN);
    CHECK(fetch() == DLP_ERR_ARG && strstr(error.message, path));
    put_file("token", NULL);
    CHECK(fetch() == DLP_ERR_SYSTEM && error.errnum == ENOENT);
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN "\r\nHost: other", 1);
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_ERR_ARG);
    as_container();
    DLPI_STORE_RLX(&server.mode, STATUS);
    server.status = 400;
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "answered 400 AccessDenied"));
    server.word = SECRET; /* no code at all */
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "answered 400"));
}

/* Without TLS, credentials do not leave the machine; nothing is sent to learn that. */
static void container__far_or_odd__not_asked(void) {
    static const char *const urls[] = {"http://192.0.2.1/x",
                                       "http://[2001:db8::1]/x",
                                       "http://169.254.170.3/",
                                       "ftp://127.0.0.1/",
                                       "127.0.0.1/x",
                                       "http://",
                                       "http://127.0.0.1:99999/",
                                       "http://a@127.0.0.1/",
                                       "http://127.0.0.1/a\tb",
                                       "https://127.0.0.1/"};
    for (size_t i = 0; i < COUNT(urls); i++) {
        as_container();
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
        CHECK(load(NULL) == DLP_OK);
        config->attempts = 1;
        CHECK(fetch() == DLP_ERR_REMOTE && server.requests == 0);
        if (i < 3) CHECK(strstr(error.message, "without TLS"));
        if (i == 9) CHECK(strstr(error.message, "DLPIPE_S3_OPENSSL"));
    }
    if (!s3_mock_localhost()) {
        test_skip("localhost is no name here (/etc/hosts)");
        return;
    }
    as_container();
    snprintf(config->url, sizeof config->url, "http://localhost:%u/container?a=b",
             (unsigned)server.port);
    CHECK(fetch() == DLP_OK && got_keys("AKID1"));
}

typedef struct answer_case {
    int mode, status;
    uint32_t times; /* of that status */
    const char *until;
    int code;
    const char *says;
    uint32_t requests; /* of container and STS */
} answer_case;

static const answer_case answers[] = {
    {NORMAL, 0, 0, "2013-05-24T01:00:00Z", DLP_OK, "", 1},
    {STATUS, 404, 0, "", DLP_ERR_REMOTE, "answered 404", 1},
    {STATUS, 403, 0, "", DLP_ERR_REMOTE, "answered 403", 1},
    {STATUS, 302, 0, "", DLP_ERR_REMOTE, "answered 302", 1},
    {STATUS, 500, 0, "", DLP_ERR_REMOTE, "answered 500", 3},
    {STATUS, 503, 2, "2013-05-24T01:00:00Z", DLP_OK, "", 3},
    {STATUS, 429, 1, "2013-05-24T01:00:00Z", DLP_OK, "", 2},
    {GARBAGE, 0, 0, "", DLP_ERR_REMOTE, "", 3},
    {EMPTY, 0, 0, "", DLP_ERR_REMOTE, "", 3},
    {CUT, 0, 0, "2013-05-24T01:00:00Z", DLP_ERR_REMOTE, "", 3},
    {HUGE_ONE, 0, 0, "", DLP_ERR_REMOTE, "64 KiB", 3},
    {NO_KEYS, 0, 0, "", DLP_ERR_REMOTE, "", 1},
    {NORMAL, 0, 0, "2013-05-23T01:00:00Z", DLP_ERR_REMOTE, "expired", 1},
    {NORMAL, 0, 0, "yesterday", DLP_ERR_REMOTE, "Expiration is no time", 1},
    {SLOW, 0, 0, "", DLP_ERR_REMOTE, "in time", 3},
};

static const answer_case *answer_of; /* and source: container, STS, machine */
static int answer_source;

/* The machine is asked up to three things. */
static void answer_try(void) {
    const answer_case *c = answer_of;
    int code, source = answer_source, want = c->code;
    uint64_t t0 = test_now_ns();
    if (source == 0) as_container();
    if (source == 1) as_web(TOKEN "\n");
    if (source == 2) as_machine();
    server.status = c->status;
    server.times = c->times;
    strcpy(server.until, c->until);
    DLPI_STORE_RLX(&server.mode, c->mode);
    if (c->mode == SLOW) config->timeout_ms = 30;
    if (source == 2) config->attempts = 3;
    code = fetch();
    if (source == 2 && strstr(c->says, "expired")) want = DLP_OK;
    CHECK(code == want);
    CHECK_SOON(test_now_ns() - t0 < 4000 * DLPI_S3_MS);
    if (want == DLP_OK) {
        CHECK(got_keys("AKID1") && strcmp(got.token, TOKEN "1") == 0);
        CHECK(got.expires_s == NOW + (c->code ? 600 : 3600));
        CHECK(log_lines && (c->code || strstr(logged, "valid until 20130524T010000Z")));
    } else {
        CHECK(strstr(error.message, c->says) && cred_cache->version == 0);
        CHECK(source != 2 || c->mode != STATUS ||
              strstr(error.message, "; else set AWS_ACCESS_KEY_ID or AWS_PROFILE"));
        CHECK(c->mode != SLOW || (source == 2) == (strstr(error.message, "hop limit") != NULL));
        CHECK(error.http_status == (c->mode == STATUS ? c->status : 0));
    }
    for (int i = 0; i < 2000 && source < 2 && DLPI_LOAD_RLX(&server.requests) < c->requests; i++)
        poll(NULL, 0, 1); /* what was given up comes late */
    if (source < 2 && c->mode == SLOW)
        CHECK_SOON(DLPI_LOAD_RLX(&server.requests) == c->requests);
    else if (source < 2)
        CHECK(DLPI_LOAD_RLX(&server.requests) == c->requests);
}

static void answer__table__used_or_refused(void) {
    for (int source = 0; source < 3; source++) {
        for (size_t i = 0; i < COUNT(answers); i++) {
            int before = test_failures;
            answer_of = &answers[i];
            answer_source = source;
            test_tries(answer_try);
            if (test_failures > before) printf("answer %d, %zu: %s\n", source, i, error.message);
        }
    }
}

static void as_source(int source) {
    if (source == 0) as_container();
    if (source == 1) as_web(TOKEN "\n");
    if (source == 2) as_machine();
    if (source == 3) {
        as_web(TOKEN "\n"); /* for the URL of STS */
        unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
        put_file(".aws/config", "[default]\nrole_arn = a\nsource_profile = b\n"
                                "[profile b]\n" KEYS("AKIDB"));
        CHECK(load(NULL) == DLP_OK && config->n_roles == 1);
    }
    config->pause_max_ms = 20;
}

/* A service that says that it has too much to do is there: it is asked for longer than a silent
   one. Its time is over in the end. */
static void patience__service_refuses_for_now__asked_on(void) {
    static const int statuses[] = {429, 503, 500};
    for (int source = 0; source < 4; source++) {
        as_source(source);
        config->patience_ms = 20000;
        server.status = statuses[source % 3];
        server.times = 9; /* more than attempts */
        DLPI_STORE_RLX(&server.mode, STATUS);
        log_lines = 0;
        CHECK(fetch() == DLP_OK && got_keys("AKID1"));
        CHECK(DLPI_LOAD_RLX(&server.requests) == (source == 2 ? 12 : 10));
        CHECK(log_lines == 2); /* that it takes longer, and that they are there */
        if (error.message[0]) printf("source %d: %s\n", source, error.message);
    }
    for (int source = 2; source < 4; source++) {
        uint64_t t0 = test_now_ns();
        as_source(source);
        config->patience_ms = source == 2 ? 1000 : 100;
        server.status = 429;
        DLPI_STORE_RLX(&server.mode, STATUS);
        CHECK(fetch() == DLP_ERR_REMOTE && error.http_status == 429);
        CHECK(test_now_ns() - t0 >= (uint64_t)config->patience_ms * UINT64_C(1000000));
        CHECK(source != 2 || strstr(error.message, "answered 429 AccessDenied, for 1 s; else set"));
        CHECK(DLPI_LOAD_RLX(&server.requests) > 4 && strlen(error.message) <= 160);
    }
    as_machine(); /* a refusal for good is one */
    config->patience_ms = 20000;
    server.status = 403;
    DLPI_STORE_RLX(&server.mode, STATUS);
    CHECK(fetch() == DLP_ERR_REMOTE && DLPI_LOAD_RLX(&server.requests) == 1);
}

/* The ranks of a machine begin at the same time: each of them gets its credentials. */
static void patience__many_ranks__all_served(void) {
    static dlpi_s3_cred_cache own; /* each process has one */
    int served = 0;
    if (RIG_TSAN) return;
    as_machine();
    config->patience_ms = 20000;
    config->pause_max_ms = 100;
    DLPI_STORE_RLX(&server.mode, BUSY);
    for (int rank = 0; rank < 16; rank++) {
        int code;
        if (fork() != 0) continue;
        code = dlpi_s3_cred_cache_begin(&own);
        if (code == 0) code = dlpi_s3_cred_cache_refresh(config, &own, 0, false, NULL);
        _exit(code != 0);
    }
    for (int rank = 0; rank < 16; rank++) {
        int status = 1;
        CHECK(wait(&status) > 0);
        served += status == 0;
    }
    server_rests();
    CHECK(served == 16 && DLPI_LOAD_RLX(&server.requests) > 16 * 3);
    if (served < 16) printf("  %d of 16 ranks have credentials\n", served);
}

static void web__provider_silent__asked_again(void) {
    as_web(TOKEN "\n");
    config->attempts = 3;
    server.status = 400;
    server.times = 2;
    strcpy(server.until, "2013-05-24T01:00:00Z");
    DLPI_STORE_RLX(&server.mode, STATUS);
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && DLPI_LOAD_RLX(&server.requests) == 3);
}

/* A secret of 161 characters is too long, and not missing. */
static void answer__secret_too_long__said_so(void) {
    for (int source = 0; source < 2; source++) {
        if (source == 0) as_container();
        if (source == 1) as_web(TOKEN "\n");
        strcpy(server.until, "2013-05-24T01:00:00Z");
        DLPI_STORE_RLX(&server.mode, LONG_SECRET);
        CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "secret key that is too long"));
    }
}

static void web__form__encoded(void) {
    char longer[21000];
    as_web(TOKEN ".a/b+c=\n");
    CHECK(fetch() == DLP_OK && got_keys("AKID1"));
    CHECK(strstr(server.last, "\r\n\r\nAction=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn="
                              "arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa%2Bb&RoleSessionName="
                              "me%40here&WebIdentityToken=" TOKEN ".a%2Fb%2Bc%3D"));
    CHECK(strstr(server.last, "Content-Type: application/x-www-form-urlencoded\r\n"));
    DLPI_STORE_RLX(&server.mode, STATUS);
    server.status = 400;
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "400 InvalidIdentityToken"));
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    put_file("token", longer);
    CHECK(fetch() == DLP_ERR_SYSTEM && error.errnum == EFBIG);
    put_file("token", "");
    CHECK(fetch() == DLP_ERR_ARG);
    unsetenv("AWS_ENDPOINT_URL_STS");
    put_file("token", TOKEN);
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_ERR_REMOTE); /* nothing is sent: there is no TLS */
    CHECK(strstr(error.message, "sts.us-east-1.amazonaws.com") &&
          strstr(error.message, "DLPIPE_S3_OPENSSL"));
    unsetenv("AWS_ROLE_SESSION_NAME");
    CHECK(load(NULL) == DLP_OK && strncmp(config->session, "dlpipe-", 7) == 0);
}

static void machine__role__checked(void) {
    as_machine();
    server.role = NULL;
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "no role"));
    server.role = "../../user-data";
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "role's name"));
    server.role = "";
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "role's name"));
    server.role = "role@1";
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && server.requests == 9);
}

/* ---- roles ---- */

#define ROLE(arn, source) "role_arn = " arn "\nrole_session_name = me\n" source "\n"
#define FROM(profile) "source_profile = " profile

typedef struct role_case {
    const char *set[6];
    const char *config;
    int code;         /* of load, or else of a fetch */
    const char *says; /* its error's text, or who assumed which role */
    int source;       /* of what the first role is assumed with */
} role_case;

static const role_case roles[] = {
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" KEYS("AKIDB"),
     0,
     "AKIDB>a ",
     DLPI_S3_FILE},
    {{NULL},
     "[default]\n" ROLE("a", FROM("default")) KEYS("AKIDSELF"),
     0,
     "AKIDSELF>a ",
     DLPI_S3_FILE},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE("b", FROM("c")) "[profile c]\n" ROLE(
         "c", FROM("d")) "[profile d]\n" KEYS("AKIDD"),
     0,
     "AKIDD>c AKID1>b AKID2>a ",
     DLPI_S3_FILE},
    {{NULL}, /* keys of a source come before its own role */
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE("b", FROM("c")) KEYS("AKIDB"),
     0,
     "AKIDB>a ",
     DLPI_S3_FILE},
    {{"AWS_PROFILE=p", "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="},
     "[profile p]\n" ROLE("a", FROM("b")) "[profile b]\ncredential_process = false\n",
     DLP_ERR_REMOTE,
     "exit status",
     DLPI_S3_PROCESS},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\nregion = x\n",
     DLP_ERR_ARG,
     "\"default\", \"b\": it has no credentials",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")),
     DLP_ERR_ARG,
     "\"default\", \"b\": there is no such profile",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("default")),
     DLP_ERR_ARG,
     "\"default\", \"default\": they lead in a circle",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE("b", FROM("c")) "[profile c]\n" ROLE(
         "c", FROM("b")),
     DLP_ERR_ARG,
     "\"default\", \"b\", \"c\", \"b\": they lead in a circle",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE("b", FROM("c")) "[profile c]\n" ROLE(
         "c", FROM("d")) "[profile d]\n" ROLE("d", FROM("e")) "[profile e]\n" KEYS("AKIDE"),
     DLP_ERR_ARG,
     "\"default\", \"b\", \"c\", \"d\": more than 3 roles",
     0},
    {{NULL}, "[default]\nrole_arn = a\n" KEYS("AKIDX"), DLP_ERR_ARG, "needs source_profile or", 0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b") "\ncredential_source = Environment"),
     DLP_ERR_ARG,
     "needs source_profile or",
     0},
    {{NULL},
     "[default]\n" ROLE("a", "credential_source = Environment"),
     DLP_ERR_ARG,
     "Environment has no credentials",
     0},
    {{NULL},
     "[default]\n" ROLE("a", "credential_source = EcsContainer"),
     DLP_ERR_ARG,
     "EcsContainer has no credentials",
     0},
    {{NULL},
     "[default]\n" ROLE("a", "credential_source = Ec2InstanceMetadata"),
     DLP_ERR_ARG,
     "Ec2InstanceMetadata has no credentials",
     0},
    {{NULL},
     "[default]\n" ROLE("a", "credential_source = Magic"),
     DLP_ERR_ARG,
     "must be Environment",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b") "\nmfa_serial = arn:mfa") "[profile b]\n" KEYS("AKIDB"),
     DLP_ERR_UNSUPPORTED,
     "mfa_serial is not supported",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b") "\nduration_seconds = 899"),
     DLP_ERR_ARG,
     "duration_seconds: must be 900 or more",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b") "\nduration_seconds = 43201"),
     DLP_ERR_ARG,
     "duration_seconds: is \"43201\", must be a number of 1..43200",
     0},
    {{NULL},
     "[default]\n" ROLE("a", FROM("b")) "[profile b]\nsso_session = s\n",
     DLP_ERR_UNSUPPORTED,
     "\"b\": sso_session",
     0},
};

static int role_load(const char *const *set, size_t n, const char *text) {
    bare();
    server_plain();
    set_url("AWS_ENDPOINT_URL_STS", "");
    set_all(set, n);
    put_file(".aws/config", text);
    return load(NULL);
}

static void role__table__assumed_or_refused(void) {
    for (size_t i = 0; i < COUNT(roles); i++) {
        const role_case *c = &roles[i];
        int before = test_failures, code = role_load(c->set, 6, c->config);
        if (code == DLP_OK) code = fetch();
        CHECK(code == c->code);
        if (code == DLP_OK) {
            char id[16];
            CHECK(strcmp(server.roles, c->says) == 0 && config->source == c->source);
            snprintf(id, sizeof id, "AKID%u", server.issued);
            CHECK(got_keys(id) && got.expires_s == NOW + 3600 &&
                  strncmp(got.token, TOKEN, 10) == 0);
            CHECK(strstr(logged, "assumed role"));
        } else {
            CHECK(strstr(error.message, c->says));
            CHECK(server.requests == 0);
        }
        if (test_failures > before) printf("role %zu: %s %s\n", i, error.message, server.roles);
    }
}

/* Of the environment, a container, a machine, and a web identity. */
static void role__of_each_source__assumed(void) {
    static const char *const env[] = {ENV_KEYS};
    static const char *const none[] = {NULL};
    char text[400];
    CHECK(role_load(env, 2, NULL) == DLP_OK); /* keys of the environment come first */
    put_file(".aws/config", "[profile p]\n" ROLE("a", "credential_source = Environment"));
    setenv("AWS_PROFILE", "p", 1);
    CHECK(load(NULL) == DLP_OK && config->n_roles == 0);
    CHECK(load(&(dlp_s3_desc){.profile = "p"}) == DLP_OK && fetch() == DLP_OK && got_keys("AKID1"));
    CHECK(strcmp(server.roles, "AKIDENV>a ") == 0 && refresh(got.version, true) == DLP_OK);
    CHECK(strcmp(server.roles, "AKIDENV>a AKIDENV>a ") == 0 && got_keys("AKID2"));

    role_load(none, 1, "[default]\n" ROLE("a", "credential_source = EcsContainer"));
    set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/container?a=b");
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_OK && got_keys("AKID2"));
    CHECK(strcmp(server.roles, "AKID1>a ") == 0);
    CHECK(strstr(server.last, "\r\nx-amz-security-token: " TOKEN "1\r\n"));

    role_load(none, 1, "[default]\n" ROLE("a", "credential_source = Ec2InstanceMetadata"));
    setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
    set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", "");
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_OK && got_keys("AKID2"));
    CHECK(strcmp(server.roles, "AKID1>a ") == 0);

    put_file("token", TOKEN "\n");
    snprintf(text, sizeof text,
             "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE(
                 "b", "") "web_identity_token_file = %s/token\n",
             home);
    CHECK(role_load(none, 1, text) == DLP_OK && fetch() == DLP_OK && got_keys("AKID2"));
    CHECK(strcmp(server.roles, "AKID1>a ") == 0 && server.requests == 2);
}

static void role__form__all_it_says(void) {
    static const char *const none[] = {NULL};
    CHECK(role_load(none, 1,
                    "[default]\nregion = eu-west-1\nrole_arn = arn:aws:iam::1:role/a+b\n"
                    "source_profile = b\nexternal_id = x/y=1\nduration_seconds = 1800\n"
                    "[profile b]\n" KEYS("AKIDB")) == DLP_OK);
    CHECK(fetch() == DLP_OK && got_keys("AKID1"));
    CHECK(strstr(server.last, "\r\n\r\nAction=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3A"
                              "iam%3A%3A1%3Arole%2Fa%2Bb&RoleSessionName=dlpipe-"));
    CHECK(strstr(server.last, "&ExternalId=x%2Fy%3D1&DurationSeconds=1800"));
    CHECK(strstr(server.last, "/20130524/eu-west-1/sts/aws4_request"));
    CHECK(strstr(server.last, "x-amz-date: 20130524T000000Z"));
    unsetenv("AWS_ENDPOINT_URL_STS");
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_ERR_REMOTE);
    CHECK(strstr(error.message, "role of profile \"default\"): sts.eu-west-1.amazonaws.com"));
    setenv("https_proxy", "http://me:word@proxy:3128", 1);
    CHECK(load(NULL) == DLP_ERR_UNSUPPORTED && !strstr(error.message, "word@"));
    unsetenv("https_proxy");
}

/* What goes wrong on the way: said of whose role it is; asked again where that helps. */
static void role__server_fails__asked_again_or_said(void) {
    static const char *const none[] = {NULL};
    static const char text[] = "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" KEYS("AKIDB");
    CHECK(role_load(none, 1, text) == DLP_OK);
    server.status = 503, server.times = 2;
    DLPI_STORE_RLX(&server.mode, STATUS);
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && server.requests == 3);
    server.status = 403, server.times = 0;
    DLPI_STORE_RLX(&server.mode, STATUS);
    CHECK(fetch() == DLP_ERR_REMOTE && error.http_status == 403 && server.requests == 4);
    CHECK(strstr(error.message, "role of profile \"default\"") &&
          strstr(error.message, "answered 403 InvalidIdentityToken"));
    server_plain();
    server.date_s = NOW + 3600; /* an hour ahead: signed again by its clock */
    strcpy(server.until, "2013-05-24T02:00:00Z");
    server.status = 403, server.times = 1;
    DLPI_STORE_RLX(&server.mode, STATUS);
    CHECK(fetch() == DLP_OK && strstr(server.last, "x-amz-date: 20130524T010000Z"));
    server_plain();
    DLPI_STORE_RLX(&server.mode, NO_KEYS);
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "the answer has no AccessKeyId"));
    server_plain();
    strcpy(server.until, "2013-05-23T01:00:00Z");
    CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, "expired"));
}

static void role__before_it_expires__assumed_again(void) {
    static const char *const none[] = {NULL};
    CHECK(role_load(none, 1,
                    "[default]\n" ROLE("a", FROM("b")) "[profile b]\n" ROLE(
                        "b", FROM("c")) "[profile c]\n" KEYS("AKIDC")) == DLP_OK);
    CHECK(fetch() == DLP_OK && got_keys("AKID2") && look() == 0 && server.requests == 2);
    clock_s = NOW + 3301 + 60;
    strcpy(server.until, "2013-05-24T02:00:00Z");
    CHECK(look() == 1 && refresh(got.version, false) == DLP_OK && got_keys("AKID4"));
    CHECK(strcmp(server.roles, "AKIDC>b AKID1>a AKIDC>b AKID3>a ") == 0 && look() == 0);
    put_file(".aws/config", "[profile c]\nregion = x\n");
    CHECK(refresh(got.version, true) == DLP_ERR_REMOTE && strstr(error.message, "\"c\""));
}

/* ---- the credential cache ---- */

static void cred_cache__fixed_keys__one_version(void) {
    dlp_s3_desc d = {.access_key = ID, .secret_key = SECRET};
    bare();
    CHECK(load(&d) == DLP_OK);
    memset(&got, 0, sizeof got);
    memset(cred_cache, 0, sizeof *cred_cache);
    CHECK(dlpi_s3_cred_cache_begin(cred_cache) == 0);
    CHECK(look() == DLP_ERR_STATE && got.version == 0);
    CHECK(refresh(0, false) == DLP_OK && look() == 0 && got.version == 1);
    CHECK(strcmp(got.secret, SECRET) == 0);
    CHECK(refresh(1, false) == DLP_OK && cred_cache->version == 1);
    CHECK(refresh(1, true) == DLP_ERR_REMOTE && strstr(error.message, "no newer ones; replace"));
}

static void cred_cache__clock_goes_on__refreshed_in_time(void) {
    as_container();
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && look() == 0);
    clock_s = NOW + 3299;
    CHECK(look() == 0);
    clock_s = NOW + 3301 + 60;
    CHECK(look() == 1);
    strcpy(server.until, "2013-05-24T02:00:00Z");
    CHECK(refresh(got.version, false) == DLP_OK && got_keys("AKID2") && look() == 0);
    CHECK(got.version == 2 && server.requests == 2);
    CHECK(refresh(1, false) == DLP_OK && server.requests == 2); /* of one seen earlier: done */
    CHECK(refresh(1, true) == DLP_OK && server.requests == 2);
    CHECK(refresh(2, false) == DLP_OK && server.requests == 2); /* not due */
    CHECK(refresh(2, true) == DLP_OK && server.requests == 3 && got_keys("AKID3"));
    clock_s = NOW + 7200;
    CHECK(look() == DLP_ERR_STATE && got.version == 3);
    strcpy(server.until, "2013-05-24T02:01:00Z"); /* a minute: due after its half */
    CHECK(refresh(3, false) == DLP_OK && look() == 0);
    clock_s += 29;
    CHECK(look() == 0);
    clock_s += 1;
    CHECK(look() == 1);
}

/* By a clock that is two hours behind or ahead, they live for an hour all the same. */
static void cred_cache__clock_wrong__lives_as_long(void) {
    for (int64_t behind = -7200; behind <= 7200; behind += 7200) {
        for (int source = 0; source < 3; source++) {
            if (source == 0) as_container();
            if (source == 1) as_web(TOKEN);
            if (source == 2) as_machine();
            server.date_s = NOW;
            clock_s = NOW - behind;
            CHECK(fetch() == DLP_OK && got_keys("AKID1") && got.expires_s == clock_s + 3600);
        }
    }
    as_container();
    server.date_s = NOW - 60; /* nearly right is right */
    CHECK(fetch() == DLP_OK && got_keys("AKID1") && got.expires_s == NOW + 3600);
}

static void cred_cache__clock_set_back__no_long_wait(void) {
    as_container();
    CHECK(fetch() == DLP_OK);
    config->attempts = 1;
    DLPI_STORE_RLX(&server.mode, STATUS);
    server.status = 500;
    clock_s = NOW + 3500;
    CHECK(refresh(1, false) == DLP_OK && cred_cache->retry_s > clock_s);
    clock_s = NOW + 3400;
    DLPI_STORE_RLX(&server.mode, NORMAL);
    CHECK(refresh(1, false) == DLP_OK && got_keys("AKID2"));
}

static void cred_cache__refresh_fails__old_ones_stay(void) {
    uint32_t asked;
    as_container();
    CHECK(fetch() == DLP_OK);
    config->attempts = 1;
    memset(&got, 0, sizeof got);
    clock_s = NOW + 3400;
    CHECK(look() == 1);
    DLPI_STORE_RLX(&server.mode, STATUS);
    server.status = 500;
    for (int i = 0; i < 8; i++) { /* later and later */
        int64_t before = cred_cache->retry_s;
        CHECK(refresh(got.version, false) == DLP_OK && got.version == 1);
        CHECK(strstr(logged, "stay in use") && strstr(logged, "answered 500"));
        CHECK(cred_cache->retry_s > before && cred_cache->retry_s <= clock_s + 60 && look() == 0);
        asked = server.requests;
        CHECK(refresh(1, false) == DLP_OK && server.requests == asked);
        CHECK(refresh(1, true) == DLP_ERR_REMOTE && server.requests == asked);
        clock_s = cred_cache->retry_s;
        if (clock_s < NOW + 3600) CHECK(look() == 1);
    }
    clock_s = NOW + 3600 > clock_s ? NOW + 3600 : clock_s;
    CHECK(look() == DLP_ERR_STATE);
    CHECK(refresh(1, false) == DLP_ERR_REMOTE && strstr(logged, "no credentials are left"));
    CHECK(cred_cache->retry_s - clock_s <= 6);
    asked = server.requests;
    CHECK(refresh(1, false) == DLP_ERR_REMOTE && server.requests == asked);
    CHECK(strstr(error.message, "answered 500"));
    clock_s = cred_cache->retry_s;
    DLPI_STORE_RLX(&server.mode, NORMAL);
    strcpy(server.until, "2013-05-24T03:00:00Z");
    CHECK(refresh(1, false) == DLP_OK && got_keys("AKID2") && look() == 0);
}

static void cred_cache__same_ones_again__refused(void) {
    as_container();
    DLPI_STORE_RLX(&server.mode, SAME);
    CHECK(fetch() == DLP_OK && got_keys("AKID7"));
    CHECK(refresh(1, true) == DLP_ERR_REMOTE && strstr(error.message, "the same"));
    CHECK(server.requests == 2 && got_keys("AKID7") && got.version == 1);
    bare();
    put_file(".aws/credentials", "[default]\n" KEYS("AKIDOLD"));
    CHECK(load(NULL) == DLP_OK && fetch() == DLP_OK && got_keys("AKIDOLD"));
    CHECK(refresh(1, true) == DLP_ERR_REMOTE); /* keys of a file may be exchanged: */
    put_file(".aws/credentials", "[default]\n" KEYS("AKIDNEW") "aws_session_token = " TOKEN "\n");
    clock_s += 60;
    CHECK(refresh(1, true) == DLP_OK && got_keys("AKIDNEW") && strcmp(got.token, TOKEN) == 0);
    put_file(".aws/credentials", "[default]\n");
    CHECK(refresh(2, true) == DLP_ERR_REMOTE && strstr(error.message, "any more"));
}

static uint32_t stop_word;

static void *stop_soon(void *arg) {
    (void)arg;
    while (DLPI_LOAD_RLX(&server.requests) == 0) poll(NULL, 0, 1);
    DLPI_STORE_RLX(&stop_word, 1);
    return NULL;
}

static void cred_cache__stopped__at_once(void) {
    pthread_t t;
    uint64_t t0 = test_now_ns();
    as_container();
    DLPI_STORE_RLX(&server.mode, SLOW);
    config->timeout_ms = 20000;
    memset(cred_cache, 0, sizeof *cred_cache);
    CHECK(dlpi_s3_cred_cache_begin(cred_cache) == 0);
    pthread_create(&t, NULL, stop_soon, NULL);
    CHECK(dlpi_s3_cred_cache_refresh_until(config, cred_cache, 0, false, &stop_word, NULL) ==
          DLP_ERR_REMOTE);
    pthread_join(t, NULL);
    server_rests();
    CHECK_SOON(test_now_ns() - t0 < 3000 * DLPI_S3_MS);
    CHECK(cred_cache->retry_s == 0);
    bare(); /* what needs no waiting may still come, but is not said to who has closed */
    put_file(".aws/credentials", "[default]\n" KEYS("AKIDLATE"));
    CHECK(load(NULL) == DLP_OK);
    log_lines = 0;
    stop_word = 1;
    CHECK(dlpi_s3_cred_cache_refresh_until(config, cred_cache, 0, false, &stop_word, NULL) ==
          DLP_OK);
    CHECK(cred_cache->version == 1 && log_lines == 0);
    stop_word = 0;
}

typedef struct party {
    uint64_t seen;
    bool force;
    int code;
    uint64_t version;
} party;

static void *party_refresh(void *arg) {
    party *p = (party *)arg;
    dlpi_s3_credentials who;
    memset(&who, 0, sizeof who);
    p->code = dlpi_s3_cred_cache_refresh(config, cred_cache, p->seen, p->force, NULL);
    if (p->code == DLP_OK) p->code = dlpi_s3_cred_cache_get(cred_cache, clock_s, &who);
    p->version = who.version;
    return NULL;
}

/* 4 threads of each of `many` processes want the same at the same time. */
static void party_of(int many, uint64_t seen, bool force) {
    for (int k = 0; k < many; k++) {
        pid_t pid = many > 1 ? fork() : 0;
        pthread_t t[4];
        party p[4];
        if (pid) continue;
        for (int i = 0; i < 4; i++) {
            p[i] = (party){.seen = seen, .force = force};
            pthread_create(&t[i], NULL, party_refresh, &p[i]);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(t[i], NULL);
            CHECK(p[i].code == 0 && p[i].version == seen + 1);
        }
        if (many > 1) _exit(test_failures != 0);
    }
    for (int k = 0; k < many && many > 1; k++) {
        int status = 1;
        CHECK(wait(&status) > 0 && status == 0);
    }
}

static void cred_cache__many_want_it__fetched_once(void) {
    for (int many = 1; many <= (RIG_TSAN ? 1 : 4); many += 3) {
        as_container();
        memset(cred_cache, 0, sizeof *cred_cache);
        CHECK(dlpi_s3_cred_cache_begin(cred_cache) == 0);
        for (uint64_t seen = 0; seen < 6; seen++) {
            party_of(many, seen, seen % 2 == 1);
            server_rests();
            CHECK(DLPI_LOAD_RLX(&server.requests) == seen + 1 && cred_cache->version == seen + 1);
            if (seen % 2 == 0) continue;
            clock_s += 3600; /* expired for everybody */
            dlpi_s3_date(clock_s + 3600, server.until);
        }
    }
}

/* One is killed while it fetches: at the beginning, in the middle, while it publishes. What it held
   is free, what it was writing nobody sees. */
static void cred_cache__holder_killed__next_one_goes_on(void) {
    uint64_t random = 42;
    if (RIG_TSAN) return;
    as_container();
    CHECK(fetch() == DLP_OK);
    for (int i = 0; i < 40; i++) {
        uint64_t before = cred_cache->version;
        char token[64];
        pid_t pid;
        DLPI_STORE_RLX(&server.mode, i < 3 ? SLOW : NORMAL);
        DLPI_STORE_RLX(&server.requests, 0);
        pid = fork();
        if (pid == 0) {
            for (;;)
                dlpi_s3_cred_cache_refresh(config, cred_cache, cred_cache->version, true, NULL);
        }
        while (i < 3 && DLPI_LOAD_RLX(&server.requests) == 0) poll(NULL, 0, 1);
        if (i >= 3) usleep((useconds_t)(dlpi_s3_random(&random) % 2000));
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        DLPI_STORE_RLX(&server.mode, NORMAL);
        before = cred_cache->version;
        CHECK(refresh(before, true) == DLP_OK);
        memset(&got, 0, sizeof got);
        CHECK(look() == 0 && got.version == before + 1 && cred_cache->version == before + 1);
        snprintf(token, sizeof token, TOKEN "%.20s", got.access + 4);
        CHECK(strcmp(got.token, token) == 0 && strcmp(got.secret, SECRET) == 0);
    }
}

/* The same, placed by hand: it dies with both locks, in the middle of the slot that is next. */
static void cred_cache__publisher_killed__slot_not_seen(void) {
    if (RIG_TSAN) return;
    as_container();
    CHECK(fetch() == DLP_OK && refresh(1, true) == DLP_OK);
    for (uint64_t version = 2; version < 6; version++) {
        pid_t pid = fork();
        if (pid == 0) {
            dlpi_s3_mutex_lock(&cred_cache->fetching);
            dlpi_s3_mutex_lock(&cred_cache->looking);
            memset(&cred_cache->slot[(version + 1) % 2], 'x', sizeof cred_cache->slot[0] / 2);
            _exit(0);
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
        memset(&got, 0, sizeof got);
        CHECK(look() == 0 && got.version == version && got.expires_s == NOW + 3600);
        CHECK(refresh(version, true) == DLP_OK);
        memset(&got, 0, sizeof got);
        CHECK(look() == 0 && got.version == version + 1 && strcmp(got.secret, SECRET) == 0);
    }
}

/* ---- a client with them ---- */

typedef struct shop {
    s3_mock *mock;
    dlp_s3 *s3;
    char id[32]; /* whom it serves; others' tokens have expired, or: */
    const char *code;
    int waits; /* answers nothing before credentials were fetched again */
} shop;

static void shop_script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    shop *s = (shop *)user;
    char credential[64];
    const uint64_t *version = &s->s3->common->cred_cache.version;
    for (int i = 0; i < 5000 && s->waits && DLPI_LOAD_RLX(version) < 2; i++) poll(NULL, 0, 1);
    s->waits = 0;
    snprintf(credential, sizeof credential, " Credential=%s", s->id);
    if (!strstr(q->head, credential)) {
        r->status = 400;
        r->s3_code = s->code;
    }
}

static int shop_open(shop *s, const char *id) {
    dlp_s3_desc d = {.region = "us-east-1", .log = test_log, .hedge_percent = -1};
    as_container();
    dlpi_s3_date(dlpi_s3_real_s() + 3600, server.until);
    memset(s, 0, sizeof *s);
    s->code = "ExpiredToken";
    dlpi_s3_copy(s->id, sizeof s->id, id);
    s->mock = s3_mock_start();
    s->mock->default_bytes = 100;
    s->mock->script = shop_script;
    s->mock->user = s;
    d.endpoint = s->mock->url;
    return dlp_s3_open(&s->s3, &d, &error);
}

static void shop_close(shop *s) {
    s3_mock_stop(s->mock); /* its script looks at the client */
    CHECK(dlp_s3_close(s->s3) == DLP_OK);
}

/* 16 requests at once; each must end with code. */
static void shop_visit(shop *s, int code) {
    static char bodies[16][128];
    dlp_s3_request r[16], *done[16];
    dlp_s3_io *io;
    char line[1024];
    CHECK(dlp_s3_io_open(&io, s->s3, NULL) == DLP_OK);
    memset(r, 0, sizeof r);
    for (int i = 0; i < 16; i++) {
        r[i].bucket = "bucket";
        r[i].key = "key";
        r[i].body = bodies[i];
        r[i].capacity = sizeof bodies[i];
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    for (int n = 0, got_now; n < 16; n += got_now) {
        got_now = dlp_s3_reap(io, done, 16, 20000);
        CHECK(got_now > 0);
        if (got_now <= 0) break;
    }
    for (int i = 0; i < 16; i++) {
        CHECK(r[i].code == code && (code || r[i].received == 100));
        dlp_s3_error_format(&r[i].error, line, sizeof line);
        no_secret_in(line);
    }
    dlp_s3_io_close(io);
}

static uint64_t shop_refreshes(const shop *s) {
    dlp_s3_stats stats;
    dlp_s3_stats_get(s->s3, &stats);
    server_rests();
    CHECK(stats.refreshes + 1 == server.issued);
    return stats.refreshes;
}

static void client__token_expired__fetched_again_once(void) {
    for (int many = 1; many <= (RIG_TSAN ? 1 : 4); many += 3) {
        shop s;
        CHECK(shop_open(&s, "AKID2/") == DLP_OK);
        for (int k = 0; k < many; k++) {
            if (many > 1 && fork()) continue;
            shop_visit(&s, DLP_OK);
            if (many > 1) _exit(test_failures != 0);
        }
        for (int k = 0, status = 1; k < many && many > 1; k++)
            CHECK(wait(&status) > 0 && status == 0);
        CHECK(shop_refreshes(&s) == 1);
        shop_visit(&s, DLP_OK);
        CHECK(shop_refreshes(&s) == 1);
        shop_close(&s);
    }
}

/* In time, or too late: before anything is sent with the old ones. */
static void client__end_comes__fetched_again(void) {
    for (int late = 0; late < 2; late++) {
        shop s;
        CHECK(shop_open(&s, late ? "AKID2/" : "AKID") == DLP_OK);
        s.code = "AccessDenied";
        s.waits = !late;
        s.s3->common->cred_cache.refresh_s[1] = 0;
        if (late) s.s3->common->cred_cache.slot[1].expires_s = 1;
        shop_visit(&s, DLP_OK);
        CHECK(shop_refreshes(&s) == 1);
        CHECK(s3_mock_count(s.mock, NULL) % 16 == 0); /* none twice */
        shop_close(&s);
    }
}

static void client__nobody_to_be__said(void) {
    shop s;
    dlp_s3_desc d = {.endpoint = "http://127.0.0.1:1", .log = test_log};
    char line[1024];
    CHECK(shop_open(&s, "AKID9") == DLP_OK); /* never served: the second ones neither */
    shop_visit(&s, DLP_ERR_REMOTE);
    CHECK(shop_refreshes(&s) <= 3);
    shop_close(&s);
    as_container();
    DLPI_STORE_RLX(&server.mode, STATUS);
    server.status = 403;
    CHECK(dlp_s3_open(&s.s3, &d, &error) == DLP_ERR_REMOTE);
    dlp_s3_error_format(&error, line, sizeof line);
    no_secret_in(line);
    CHECK(strstr(line, "container") && strstr(line, "403"));
}

static void begin(void) {
    char dir[80];
    strcpy(home, "/tmp/dlpipe_s3credXXXXXX");
    if (!mkdtemp(home)) exit(1);
    snprintf(dir, sizeof dir, "%s/.aws", home);
    mkdir(dir, 0700);
    config = (dlpi_s3_config *)mmap(NULL, sizeof *config + sizeof *cred_cache,
                                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (config == MAP_FAILED) exit(1);
    cred_cache = (dlpi_s3_cred_cache *)(void *)(config + 1);
}

static void end(void) {
    static const char *const names[] = {".aws/config", ".aws/credentials", ".aws", "other",
                                        "token",       "answer",           "seen", ""};
    char path[96];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", home, names[i]);
        remove(path);
    }
}

/* A program with more rights than the user who started it believes nothing of its environment. Run
   by the case below, as such a program. */
static int as_setuid(void) {
    CHECK(getauxval(AT_SECURE) != 0 && getenv("AWS_PROFILE") != NULL);
    CHECK(dlpi_s3_env("AWS_PROFILE") == NULL);
    return test_failures != 0;
}

static void setuid__environment__not_believed(const char *program) {
    char copy[64], line[700];
    struct statvfs at;
    /* the leak sanitizer of a setuid program cannot look at it */
    if (RIG_ASAN || getuid() != 0 || statvfs("/tmp", &at) != 0 || (at.f_flag & ST_NOSUID) != 0)
        return;
    snprintf(copy, sizeof copy, "/tmp/s3_credentials.setuid.%d", (int)getpid());
    snprintf(line, sizeof line, "cp '%s' %s && chown 65534 %s && chmod 4755 %s", program, copy,
             copy, copy);
    CHECK(system(line) == 0);
    snprintf(line, sizeof line, "AWS_PROFILE=theirs %s setuid", copy);
    CHECK(system(line) == 0);
    remove(copy);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "setuid") == 0) return as_setuid();
    setuid__environment__not_believed(argv[0]);
    begin();
    format__table__as_aws();
    given__of_all_sorts__kept_or_refused();
    given__too_long__refused();
    source__table__order_of_aws();
    where__table__order_of_aws();
    habits__table__kept_or_refused_in_words();
    hosts__table__by_program_environment_profile();
    habits__of_the_program__first();
    proxy__table__by_endpoint();
    buckets__of_another_kind__refused();
    files__missing_or_broken__told();
    map__fails__said();
    process__table__read_or_refused();
    test_tries(process__hangs__killed_with_all_its_own);
    process__started__inherits_nothing();
    process__status_lost__answer_counts();
    cred_cache__fixed_keys__one_version();
    server_begin();
    container__token__sent();
    container__far_or_odd__not_asked();
    answer__table__used_or_refused();
    web__provider_silent__asked_again();
    patience__service_refuses_for_now__asked_on();
    patience__many_ranks__all_served();
    answer__secret_too_long__said_so();
    web__form__encoded();
    machine__role__checked();
    role__table__assumed_or_refused();
    role__of_each_source__assumed();
    role__form__all_it_says();
    role__server_fails__asked_again_or_said();
    role__before_it_expires__assumed_again();
    cred_cache__clock_goes_on__refreshed_in_time();
    cred_cache__clock_wrong__lives_as_long();
    cred_cache__clock_set_back__no_long_wait();
    cred_cache__refresh_fails__old_ones_stay();
    cred_cache__same_ones_again__refused();
    test_tries(cred_cache__stopped__at_once);
    cred_cache__many_want_it__fetched_once();
    cred_cache__holder_killed__next_one_goes_on();
    cred_cache__publisher_killed__slot_not_seen();
    clients = true;
    client__token_expired__fetched_again_once();
    client__end_comes__fetched_again();
    client__nobody_to_be__said();
    server_end();
    end();
    CHECK(unmapped > 100 && texts_seen > 100);
    printf("%d texts\n", texts_seen);
    return test_end("s3_credentials");
}
