/* Where credentials, region and endpoint come from, and the vault that processes share. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_s3.h"

static int failures;

#define CHECK(x) \
    do { \
        if (!(x)) { \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #x); \
            failures++; \
        } \
    } while (0)

#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
};

/* No variable of the machine's, and no machine. */
static void bare(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("HOME", "/nowhere", 1);
}

static int64_t clock_s = 1369353600;

static int64_t test_clock(void) {
    return clock_s;
}

static dlpi_s3_config config;
static dlp_s3_error error;

static int load(const dlp_s3_desc *d) {
    int code;
    memset(&config, 0, sizeof config);
    memset(&error, 0, sizeof error);
    code = dlpi_s3_config_load(&config, d, &error);
    config.clock = test_clock;
    CHECK((code != 0) == (error.message[0] != 0));
    CHECK(!strstr(error.message, SECRET));
    return code;
}

static void given__of_all_sorts__kept_or_refused(void) {
    dlp_s3_desc d = {.access_key = "AKIDEXAMPLE", .secret_key = SECRET};
    bare();
    CHECK(load(&d) == DLP_OK && config.source == DLPI_S3_GIVEN);
    CHECK(strcmp(config.given.access, "AKIDEXAMPLE") == 0);
    CHECK(strcmp(config.given.secret, SECRET) == 0 && config.given.token[0] == 0);
    CHECK(strcmp(config.region, "us-east-1") == 0 && config.endpoint[0] == 0);
    d.session_token = "token";
    CHECK(load(&d) == DLP_OK && strcmp(config.given.token, "token") == 0);
    d.secret_key = NULL;
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.secret_key = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.session_token = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.access_key = "AKID\r\nHost: other", .secret_key = SECRET};
    CHECK(load(&d) == DLP_ERR_ARG);
    d = (dlp_s3_desc){.anonymous = 1};
    CHECK(load(&d) == DLP_OK && config.source == DLPI_S3_NOBODY && config.given.anonymous);
}

static void environment__half_there__said(void) {
    dlp_s3_desc d = {0};
    bare();
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    CHECK(load(&d) == DLP_ERR_ARG && strstr(error.message, "AWS_SECRET_ACCESS_KEY"));
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    CHECK(load(&d) == DLP_OK && config.source == DLPI_S3_ENVIRONMENT);
    setenv("AWS_SESSION_TOKEN", "token", 1);
    CHECK(load(&d) == DLP_OK && strcmp(config.given.token, "token") == 0);
    unsetenv("AWS_ACCESS_KEY_ID");
    CHECK(load(&d) == DLP_ERR_ARG);
}

static dlpi_s3_vault vault;

static void vault__fixed_keys__one_version(void) {
    dlp_s3_desc d = {.access_key = "AKIDEXAMPLE", .secret_key = SECRET};
    dlpi_s3_credentials who;
    bare();
    CHECK(load(&d) == DLP_OK);
    memset(&who, 0, sizeof who);
    CHECK(dlpi_s3_vault_begin(&vault) == 0);
    CHECK(dlpi_s3_vault_get(&vault, clock_s, &who) == DLP_ERR_STATE && who.version == 0);
    CHECK(dlpi_s3_vault_refresh(&config, &vault, 0, false, &error) == DLP_OK);
    CHECK(dlpi_s3_vault_get(&vault, clock_s, &who) == 0 && who.version == 1);
    CHECK(strcmp(who.secret, SECRET) == 0);
    CHECK(dlpi_s3_vault_refresh(&config, &vault, 1, false, &error) == DLP_OK);
    CHECK(dlpi_s3_vault_refresh(&config, &vault, 1, true, &error) == DLP_ERR_REMOTE);
    CHECK(strstr(error.message, "fixed"));
    dlpi_s3_vault_end(&vault);
}

int main(void) {
    given__of_all_sorts__kept_or_refused();
    environment__half_there__said();
    vault__fixed_keys__one_version();
    if (failures) printf("s3_credentials: %d failed\n", failures);
    return failures != 0;
}
