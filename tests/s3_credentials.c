/* Where credentials, region and endpoint come from: options, environment, files, processes, and
   small servers in threads; and the vault that processes share. Nothing leaves 127.0.0.1: each case
   begins with the machine's own variables unset, and metadata services switched off. */
#define DLPIPE_IMPLEMENTATION
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
static int map_fails; /* counts down: the call that reaches 1 fails */
#define mmap(...) (map_fails && --map_fails == 0 ? MAP_FAILED : mmap(__VA_ARGS__))
#include "../dlpipe_s3.h"

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0 /* it follows no fork of a program that has threads */
#endif

static int checks, failures;

#define CHECK(x) \
    do { \
        checks++; \
        if (!(x) && failures++ < 30) \
            printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x); \
    } while (0)

/* Of AWS' own documentation. No text that anybody may read has one of the last two. */
#define ID "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define TOKEN "IQoJb3JpZ2luX2VjEXAMPLETOKEN"
#define NOW 1369353600 /* 2013-05-24T00:00:00Z */

static int64_t clock_s = NOW;

static int64_t test_clock(void) {
    return DLPI_LOAD_RLX(&clock_s);
}

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
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_CA_BUNDLE", "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "AWS_METADATA_SERVICE_TIMEOUT", "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
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

static dlpi_s3_config *config;  /* in memory that processes share, as a client's is */
static dlpi_s3_vault *vault;
static dlp_s3_error error;

static int load(const dlp_s3_desc *desc) {
    dlp_s3_desc d = desc ? *desc : (dlp_s3_desc){0};
    int code;
    d.log = test_log;
    memset(config, 0, sizeof *config);
    memset(&error, 0, sizeof error);
    code = dlpi_s3_config_load(config, &d, &error);
    config->clock = test_clock;
    CHECK((code != 0) == (error.message[0] != 0) && code == error.code);
    no_secret_in(error.message);
    return code;
}

static int refresh(uint64_t seen, bool force) {
    int code;
    memset(&error, 0, sizeof error);
    code = dlpi_s3_vault_refresh(config, vault, seen, force, &error);
    CHECK(code == error.code && (code != 0) == (error.message[0] != 0));
    no_secret_in(error.message);
    return code;
}

/* A new vault, and a first fetch into it. */
static int fetch(void) {
    memset(vault, 0, sizeof *vault);
    CHECK(dlpi_s3_vault_begin(vault) == 0);
    return refresh(0, false);
}

static dlpi_s3_credentials got;

static int look(void) {
    int code = dlpi_s3_vault_get(vault, clock_s, &got);
    CHECK(got.version == vault->version);
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
        int before = failures;
        char *config_text = f->config ? strdup(f->config) : NULL;
        char *credentials_text = f->credentials ? strdup(f->credentials) : NULL;
        dlpi_s3_profiles p = {.c = config, .text = {config_text, credentials_text}};
        memset(config, 0, sizeof *config);
        memset(&error, 0, sizeof error);
        snprintf(config->file[0], sizeof config->file[0], "/.aws/config");
        snprintf(config->file[1], sizeof config->file[1], "/.aws/credentials");
        dlpi_s3_copy(config->profile, sizeof config->profile, f->profile);
        for (int k = 0; k < 2; k++) p.n[k] = p.text[k] ? strlen(p.text[k]) : 0;
        format_ask(f, &p);
        if (failures > before) printf("format %zu: %s\n", i, f->config ? f->config : "(none)");
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
    {{ENV_KEYS, WEB, RELATIVE}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_ENVIRONMENT,
     "AKIDENV", NULL},
    {{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL,
     DLPI_S3_FILE, "AKIDFILE", NULL},
    {{WEB}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_WEB, NULL,
     "https://sts.us-east-1.amazonaws.com"},
    {{WEB, "AWS_REGION=cn-north-1"}, NULL, NULL, NULL, DLPI_S3_WEB, NULL,
     "https://sts.cn-north-1.amazonaws.com.cn"},
    {{WEB, "AWS_ENDPOINT_URL=http://a", "AWS_ENDPOINT_URL_STS=http://b"}, NULL, NULL, NULL,
     DLPI_S3_WEB, NULL, "http://b"},
    {{"AWS_WEB_IDENTITY_TOKEN_FILE=/t"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "AWS_ROLE_ARN"},
    {{"AWS_ROLE_ARN=arn"}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_FILE, "AKIDFILE",
     NULL},
    {{NULL}, "[default]\n" KEYS("AKIDCONF"), NULL, NULL, DLPI_S3_FILE, "AKIDCONF", NULL},
    {{NULL}, "[default]\n" KEYS("AKIDCONF"), "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_FILE,
     "AKIDFILE", NULL},
    {{NULL}, NULL, "[default]\naws_access_key_id = " ID "\n", NULL, DLP_ERR_ARG, NULL,
     "without a secret key"},
    {{NULL}, "[default]\naws_secret_access_key = " SECRET "\n",
     "[default]\naws_access_key_id = AKIDBOTH\n", NULL, DLPI_S3_FILE, "AKIDBOTH", NULL},
    {{"AWS_PROFILE=x"}, NULL, "[default]\n" KEYS("AKIDFILE") "[x]\n" KEYS("AKIDX"), NULL,
     DLPI_S3_FILE, "AKIDX", NULL},
    {{"AWS_PROFILE=x"}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLP_ERR_ARG, NULL, "\"x\""},
    {{"AWS_PROFILE=x", ENV_KEYS}, NULL, NULL, NULL, DLPI_S3_ENVIRONMENT, "AKIDENV", NULL},
    {{"AWS_PROFILE=x", ENV_KEYS, WEB}, NULL, "[y]\n" KEYS("AKIDY"), "y", DLPI_S3_FILE, "AKIDY",
     NULL},
    {{ENV_KEYS}, NULL, "[default]\n" KEYS("AKIDFILE"), "y", DLP_ERR_ARG, NULL, "\"y\""},
    {{RELATIVE}, NULL, "[default]\n" KEYS("AKIDFILE"), NULL, DLPI_S3_FILE, "AKIDFILE", NULL},
    {{RELATIVE, FULL, MACHINE}, NULL, NULL, NULL, DLPI_S3_CONTAINER, NULL,
     "http://169.254.170.2/v2/x"},
    {{FULL, MACHINE}, "[default]\nregion = a\n", NULL, NULL, DLPI_S3_CONTAINER, NULL,
     "http://127.0.0.1/y"},
    {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=x"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "'/'"},
    {{MACHINE}, NULL, NULL, NULL, DLPI_S3_MACHINE, NULL, "http://169.254.169.254"},
    {{MACHINE, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=ipv6"}, NULL, NULL, NULL, DLPI_S3_MACHINE,
     NULL, "http://[fd00:ec2::254]"},
    {{MACHINE, "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:9"}, NULL, NULL, NULL,
     DLPI_S3_MACHINE, NULL, "http://127.0.0.1:9"},
    {{MACHINE, "AWS_METADATA_SERVICE_TIMEOUT=x"}, NULL, NULL, NULL, DLP_ERR_ARG, NULL, "1..600"},
    {{MACHINE}, "[default]\nmetadata_service_num_attempts = 0", NULL, NULL, DLP_ERR_ARG, NULL,
     "NUM_ATTEMPTS"},
    {{NULL}, "[default]\nrole_arn = arn\nsource_profile = y\n" KEYS("AKIDCONF"), NULL, NULL,
     DLP_ERR_UNSUPPORTED, NULL, "source_profile is not supported"},
    {{NULL}, "[default]\nrole_arn = arn\ncredential_source = Environment\n", NULL, NULL,
     DLP_ERR_UNSUPPORTED, NULL, "credential_process"},
    {{MACHINE}, "[default]\nsso_session = s\n[sso-session s]\nsso_region = a\n", NULL, NULL,
     DLP_ERR_UNSUPPORTED, NULL, "sso_session"},
    {{NULL}, "[default]\nsso_session = s\ncredential_process = /bin/x\n", NULL, NULL,
     DLPI_S3_PROCESS, NULL, NULL},
    {{NULL}, "[default]\ncredential_process = /bin/x\n" KEYS("AKIDCONF"), NULL, NULL, DLPI_S3_FILE,
     "AKIDCONF", NULL},
    {{"AWS_ROLE_ARN=other", "AWS_ENDPOINT_URL_STS=http://b"},
     "[default]\nweb_identity_token_file = /t\nrole_arn = arn\nrole_session_name = me\n", NULL,
     NULL, DLPI_S3_WEB, NULL, "http://b"},
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
        int before = failures;
        source_try(&sources[i]);
        if (failures > before) printf("source %zu: %s\n", i, error.message);
    }
}

typedef struct where_case {
    const char *set[6];
    const char *config;
    const char *endpoint, *region;           /* options */
    const char *want_endpoint, *want_region; /* "!": refused */
} where_case;

#define BOTH "[default]\nregion = eu-west-1\nendpoint_url = http://profile\nservices = s\n" \
             "[services s]\ns3 =\n  endpoint_url = http://service\n"

static const where_case places[] = {
    {{NULL}, NULL, NULL, NULL, "", "us-east-1"},
    {{NULL}, "[default]\nregion = eu-west-1", NULL, NULL, "", "eu-west-1"},
    {{"AWS_DEFAULT_REGION=b"}, "[default]\nregion = eu-west-1", NULL, NULL, "", "b"},
    {{"AWS_DEFAULT_REGION=b", "AWS_REGION=c"}, NULL, NULL, NULL, "", "c"},
    {{"AWS_DEFAULT_REGION=b", "AWS_REGION=c"}, NULL, NULL, "d", "", "d"},
    {{"AWS_REGION=c/"}, NULL, NULL, NULL, "", "!"},
    {{NULL}, "[default]\nendpoint_url = http://profile", NULL, NULL, "http://profile", NULL},
    {{NULL}, BOTH, NULL, NULL, "http://service", "eu-west-1"},
    {{"AWS_ENDPOINT_URL=http://all"}, BOTH, NULL, NULL, "http://all", NULL},
    {{"AWS_ENDPOINT_URL=http://all", "AWS_ENDPOINT_URL_S3=http://s3"}, BOTH, NULL, NULL,
     "http://s3", NULL},
    {{"AWS_ENDPOINT_URL_S3=http://s3"}, BOTH, "http://option", NULL, "http://option", NULL},
    {{"AWS_ENDPOINT_URL_STS=http://sts"}, NULL, NULL, NULL, "", NULL},
    {{"AWS_ENDPOINT_URL_S3=http://s3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=True"}, BOTH, NULL,
     NULL, "", NULL},
    {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true"}, BOTH, "http://option", NULL, "http://option",
     NULL},
    {{"AWS_ENDPOINT_URL=http://all"}, "[default]\nignore_configured_endpoint_urls = true", NULL,
     NULL, "", NULL},
    {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false"},
     "[default]\nignore_configured_endpoint_urls = true\nendpoint_url = http://profile", NULL, NULL,
     "http://profile", NULL},
    {{NULL}, "[default]\nservices = none", NULL, NULL, "!", NULL},
    {{"AWS_ENDPOINT_URL=http://all"}, "[default]\nservices = none", NULL, NULL, "http://all", NULL},
    {{NULL}, "[default]\nservices = s\nendpoint_url = a\n[services s]\nsts =\n endpoint_url = b",
     NULL, NULL, "a", NULL},
    {{"AWS_PROFILE=p"}, BOTH "[profile p]\nregion = p1", NULL, NULL, "", "p1"},
};

static void where__table__order_of_aws(void) {
    for (size_t i = 0; i < COUNT(places); i++) {
        const where_case *c = &places[i];
        dlp_s3_desc d = {.anonymous = 1, .endpoint = c->endpoint, .region = c->region};
        int before = failures, code;
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
        if (failures > before) printf("place %zu: %s\n", i, config->endpoint);
    }
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
    memset(vault, 0, sizeof *vault);
    CHECK(dlpi_s3_vault_begin(vault) == 0);
    for (n = 1, code = 1; code && n < 9; n++) {
        clock_s += 100; /* past the waiting after a failure */
        map_fails = n;
        code = refresh(0, false);
        if (code) CHECK(code == DLP_ERR_MEMORY && vault->version == 0);
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
    put_file("answer", answer);
    snprintf(with_home, sizeof with_home, command, home, home);
    snprintf(text, sizeof text, "[default]\ncredential_process = %s\n", with_home);
    put_file(".aws/config", text);
    if (load(&d) != DLP_OK) return 1;
    CHECK(config->source == DLPI_S3_PROCESS && config->timeout_ms == 60000);
    config->timeout_ms = 5000;
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
    {"/bin/cat %s/answer", JSON("1", UNTIL("tomorrow")), DLP_ERR_REMOTE, "expiry"},
    {"/bin/cat %s/answer", "{\"Version\": 1, \"AccessKeyId\": \"" ID "\"}", DLP_ERR_REMOTE,
     "without a secret key"},
    {"/bin/cat %s/answer", "{\"Version\": 1, \"AccessKeyId\": \"a\\nb\", \"SecretAccessKey\": \""
     SECRET "\"}", DLP_ERR_REMOTE, "characters"},
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
        int before = failures, code = process(c->command, c->answer);
        CHECK(code == c->code);
        if (c->code == DLP_OK) {
            CHECK(got_keys(ID) && got.expires_s == NOW + 3600 && strcmp(got.token, TOKEN) == 0);
        } else {
            CHECK(strstr(error.message, c->says) && vault->version == 0);
        }
        if (failures > before) printf("process %zu: %s\n", i, error.message);
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
        CHECK(load(NULL) == DLP_OK);
        dlpi_s3_copy(config->process, sizeof config->process, text);
        config->timeout_ms = 150;
        t0 = dlpi_s3_now_ns();
        CHECK(fetch() == DLP_ERR_REMOTE && strstr(error.message, i == 2 ? "not end" : "too long"));
        CHECK(dlpi_s3_now_ns() - t0 < 3000 * DLPI_S3_MS);
        snprintf(path, sizeof path, "%s/seen", home);
        f = fopen(path, "r");
        CHECK(f && fscanf(f, "%d", &pid) == 1);
        if (f) fclose(f);
        t0 = dlpi_s3_now_ns();
        while (!is_dead(pid) && dlpi_s3_now_ns() - t0 < 2000 * DLPI_S3_MS) poll(NULL, 0, 1);
        CHECK(pid && is_dead(pid));
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
    CHECK(process("/bin/sh -c 'grep -E \"^Sig(Blk|Ign)\" /proc/self/status > %s/seen; "
                  "ls /proc/self/fd >> %s/seen; cat; echo {}'", "") == DLP_ERR_REMOTE);
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
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
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

static void begin(void) {
    char dir[80];
    strcpy(home, "/tmp/dlpipe_s3credXXXXXX");
    if (!mkdtemp(home)) exit(1);
    snprintf(dir, sizeof dir, "%s/.aws", home);
    mkdir(dir, 0700);
    config = (dlpi_s3_config *)mmap(NULL, sizeof *config + sizeof *vault, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (config == MAP_FAILED) exit(1);
    vault = (dlpi_s3_vault *)(void *)(config + 1);
}

static void end(void) {
    static const char *const names[] = {".aws/config", ".aws/credentials", ".aws", "other", "token",
                                        "answer", "seen", ""};
    char path[96];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", home, names[i]);
        remove(path);
    }
}

int main(void) {
    begin();
    format__table__as_aws();
    given__of_all_sorts__kept_or_refused();
    given__too_long__refused();
    source__table__order_of_aws();
    where__table__order_of_aws();
    files__missing_or_broken__told();
    map__fails__said();
    process__table__read_or_refused();
    process__hangs__killed_with_all_its_own();
    process__started__inherits_nothing();
    process__status_lost__answer_counts();
    end();
    printf("s3_credentials: %d checks, %d failed; %d texts\n", checks, failures, texts_seen);
    return failures != 0;
}
