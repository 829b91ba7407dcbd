#pragma once
/* tests: system/s3/s3_credentials, fuzz/fuzz_s3 */
#include "s3/ini.h"
#include "s3/proxy.h"
/* ---- what is found when a client is opened ---- */

static bool dlpi_s3_is_true(const char *value) { return value && strcasecmp(value, "true") == 0; }

static int dlpi_s3_config_copy(char *out, size_t size, const char *name, const char *value,
                               dlp_s3_error *err) {
    if (dlpi_s3_copy(out, size, value)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: must have at most %zu bytes", name,
                             size - 1);
}

/* Find a setting: the variable's value (variable may be NULL), else the profile's. Returns 1:
   found, 0: not, or an error code. */
static int dlpi_s3_config_find(const dlpi_s3_profiles *p, const char *variable, const char *name,
                               char *out, size_t size, dlp_s3_error *err) {
    const char *value = variable ? dlpi_s3_env(variable) : NULL;
    if (!value) return dlpi_s3_profiles_get(p, name, out, size, err);
    const int code = dlpi_s3_config_copy(out, size, variable, value, err);
    return code ? code : 1;
}

/* Set the paths of the two files; "~/" is the home directory, as for AWS' tools. */
static int dlpi_s3_config_files(dlpi_s3_config *c, dlp_s3_error *err) {
    static const char *const variables[2] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
    static const char *const standard[2] = {"~/.aws/config", "~/.aws/credentials"};
    const char *home = dlpi_s3_env("HOME");
    for (int i = 0; i < 2; i++) {
        const char *path = dlpi_s3_env(variables[i]);
        int n;
        if (!path) path = standard[i];
        if (strncmp(path, "~/", 2) != 0)
            n = snprintf(c->file[i], sizeof c->file[i], "%s", path);
        else
            n = home ? snprintf(c->file[i], sizeof c->file[i], "%s%s", home, path + 1) : 0;
        if (n >= (int)sizeof c->file[i])
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: must have at most %zu bytes",
                                     variables[i], sizeof c->file[i] - 1);
    }
    return DLP_OK;
}

/* Choose the profile: the desc's, the environment's, or "default". Returns 0, or DLP_ERR_ARG with
   *err filled if two variables name different profiles. */
static int dlpi_s3_config_profile(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    const char *name = d->profile && *d->profile ? d->profile : NULL;
    const char *one = dlpi_s3_env("AWS_PROFILE"), *other = dlpi_s3_env("AWS_DEFAULT_PROFILE");
    c->named_by_user = name != NULL;
    if (!name && one && other && strcmp(one, other) != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_PROFILE is \"%.30s\", but AWS_DEFAULT_PROFILE is \"%.30s\"; "
                                 "AWS' own tools differ in which counts, so unset one",
                                 one, other);
    if (!name) name = one ? one : other;
    c->named = name != NULL;
    if (!name) name = "default";
    return dlpi_s3_config_copy(c->profile, sizeof c->profile, "profile", name, err);
}

/* True if a region's name stands for special endpoints ("fips-", "-global"), as in AWS' tools. */
static bool dlpi_s3_region_beyond(const char *region) {
    static const char *const ends[] = {"-fips", "-global"};
    size_t n = strlen(region);
    for (size_t i = 0; i < 2; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcmp(region + n - k, ends[i]) == 0) return true;
    }
    return strncmp(region, "fips-", 5) == 0 || strncmp(region, "s3-", 3) == 0;
}

/* Find the region. It becomes a part of what is signed, and of AWS' host names; other servers'
   regions may have capitals. The endpoint is known already. Returns DLP_OK or an error code. */
static int dlpi_s3_config_region(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                 dlp_s3_error *err) {
    const char *region = d->region && *d->region ? d->region : NULL, *from = "region";
    char found[sizeof c->region];
    if (!region) region = dlpi_s3_env(from = "AWS_REGION");
    if (!region) region = dlpi_s3_env(from = "AWS_DEFAULT_REGION");
    if (!region) {
        int code = dlpi_s3_profiles_find(p, "region", NULL, found, sizeof found, err);
        if (code < 0) return code;
        region = code ? found : "us-east-1";
        from = code ? c->file[code - 1] : "region";
    }
    if (!c->endpoint[0] && dlpi_s3_region_beyond(region))
        return dlpi_s3_set_error(
            err, DLP_ERR_UNSUPPORTED, 0,
            "%.60s: \"%.30s\" names endpoints, no region; give a region, such as "
            "us-east-1, and set fips if it is wanted",
            from, region);
    if (!dlpi_s3_copy(c->region, sizeof c->region, region) ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")])
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "%.60s: \"%.40s\" is no region; use letters, digits, '-' and '_', at "
            "most %zu of them",
            from, region, sizeof c->region - 1);
    return DLP_OK;
}

/* Return 1 if endpoints in environment and profile do not count, 0 if they do, or an error code. */
static int dlpi_s3_config_ignores(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    char said[8] = "";
    int code = dlpi_s3_config_find(p, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                   "ignore_configured_endpoint_urls", said, sizeof said, err);
    return code < 0 ? code : dlpi_s3_is_true(said);
}

/* Find a service's endpoint: its own variable, the variable for all, its place in the profile's
   services section, the profile's for all. Returns 1: found, 0: not, or an error code. */
static int dlpi_s3_config_url(const dlpi_s3_profiles *p, const char *variable, const char *service,
                              char *out, size_t size, dlp_s3_error *err) {
    const char *url = dlpi_s3_env(variable);
    char services[128];
    int code = dlpi_s3_config_ignores(p, err);
    if (code) return code < 0 ? code : 0;
    if (!url) url = dlpi_s3_env("AWS_ENDPOINT_URL");
    if (url) code = dlpi_s3_config_copy(out, size, "endpoint", url, err);
    if (url) return code ? code : 1;
    code = dlpi_s3_profiles_get(p, "services", services, sizeof services, err);
    if (code == 1) {
        code = dlpi_s3_profiles_ask(p, 0, "services", services, NULL, NULL, NULL, 0, err);
        if (code == 0)
            return dlpi_s3_set_error(
                err, DLP_ERR_ARG, 0,
                "profile \"%.30s\": section [services %.30s] is missing; add it to %.60s",
                p->profile, services, p->c->file[0]);
        if (code == 1)
            code = dlpi_s3_profiles_ask(p, 0, "services", services, service, "endpoint_url", out,
                                        size, err);
        if (code == 1 && !*out) code = 0;
    }
    return code ? code : dlpi_s3_profiles_get(p, "endpoint_url", out, size, err);
}

/* Find the endpoint, the region and the CA file: in the desc, the environment or the profile.
   Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_s3_config_where(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                dlp_s3_error *err) {
    int code;
    if (d->endpoint && *d->endpoint)
        code = dlpi_s3_config_copy(c->endpoint, sizeof c->endpoint, "endpoint", d->endpoint, err);
    else
        code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_S3", "s3", c->endpoint, sizeof c->endpoint,
                                  err);
    if (code < 0) return code;
    code = dlpi_s3_config_region(c, d, p, err);
    if (code) return code;
    if (d->ca_file && *d->ca_file)
        return dlpi_s3_config_copy(c->ca_file, sizeof c->ca_file, "ca_file", d->ca_file, err);
    code = dlpi_s3_config_find(p, "AWS_CA_BUNDLE", "ca_bundle", c->ca_file, sizeof c->ca_file, err);
    return code < 0 ? code : DLP_OK;
}

/* Find out which of AWS' hosts are wanted (fips, dualstack): by desc, environment or profile. */
static int dlpi_s3_config_hosts(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                dlp_s3_error *err) {
    char said[3][16] = {"", "", ""};
    int code = dlpi_s3_config_find(p, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint", said[0],
                                   sizeof said[0], err);
    if (code >= 0)
        code = dlpi_s3_config_find(p, "AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint",
                                   said[1], sizeof said[1], err);
    if (code == 0)
        code =
            dlpi_s3_profiles_find(p, "s3", "use_dualstack_endpoint", said[2], sizeof said[2], err);
    if (code < 0) return code;
    c->fips = d->fips || dlpi_s3_is_true(said[0]);
    c->dualstack = d->dualstack || dlpi_s3_is_true(said[1]) || dlpi_s3_is_true(said[2]);
    if (!c->endpoint[0] || (!c->fips && !c->dualstack)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%s: is set, but so is an endpoint, which has one host; unset one of "
                             "the two",
                             c->fips ? "fips (AWS_USE_FIPS_ENDPOINT)"
                                     : "dualstack (AWS_USE_DUALSTACK_ENDPOINT)");
}

/* ---- credentials ---- */

static int dlpi_s3_config_given(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    c->source = DLPI_S3_GIVEN;
    return dlpi_s3_who_set(&c->given, d->access_key, d->secret_key, d->session_token,
                           "access_key, secret_key", DLP_ERR_ARG, err);
}

/* Choose the keys in the environment as source. Returns 1: this is it; 0: there are none; or an
   error code: one of them is missing or not valid. */
static int dlpi_s3_config_environment(dlpi_s3_config *c, dlp_s3_error *err) {
    const char *access = dlpi_s3_env("AWS_ACCESS_KEY_ID");
    const char *secret = dlpi_s3_env("AWS_SECRET_ACCESS_KEY");
    int code;
    if (!access && !secret) return 0;
    c->source = DLPI_S3_ENVIRONMENT;
    code = dlpi_s3_who_set(&c->given, access, secret, dlpi_s3_env("AWS_SESSION_TOKEN"),
                           "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", DLP_ERR_ARG, err);
    return code ? code : 1;
}

/* Find the URL of STS. Returns DLP_OK or an error code. */
static int dlpi_s3_config_sts(const dlpi_s3_config *c, const dlpi_s3_profiles *p, char *out,
                              size_t size, dlp_s3_error *err) {
    dlpi_s3_endpoint sts;
    const char *why;
    int code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_STS", "sts", out, size, err);
    if (code < 0) return code;
    if (code == 0)
        snprintf(out, size, "https://sts%s.%s.%s", c->fips ? "-fips" : "", c->region,
                 !c->dualstack                       ? dlpi_s3_aws_domain(c->region)
                 : strncmp(c->region, "cn-", 3) == 0 ? "api.amazonwebservices.com.cn"
                                                     : "api.aws");
    if (dlpi_s3_endpoint_parse(&sts, out, &why) == DLP_OK) return dlpi_s3_proxy_beyond(&sts, err);
    return DLP_OK; /* what is wrong is said when it is asked */
}

/* Find the name of a role's session, or make one. Returns DLP_OK or an error code. */
static int dlpi_s3_config_session(const dlpi_s3_profiles *p, const char *variable, char *out,
                                  size_t size, dlp_s3_error *err) {
    int code = dlpi_s3_config_find(p, variable, "role_session_name", out, size, err);
    if (code == 0) snprintf(out, size, "dlpipe-%lld", (long long)dlpi_s3_real_s());
    return code < 0 ? code : DLP_OK;
}

/* Choose a web identity, by c->token_file. variables: AWS_ROLE_* count. Returns 1 or an error
   code. */
static int dlpi_s3_config_web(dlpi_s3_config *c, const dlpi_s3_profiles *p, bool variables,
                              dlp_s3_error *err) {
    int code = dlpi_s3_config_find(p, variables ? "AWS_ROLE_ARN" : NULL, "role_arn", c->role,
                                   sizeof c->role, err);
    if (code < 0) return code;
    if (code == 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "credentials: a web identity's token file "
                                 "without a role: set AWS_ROLE_ARN, or role_arn in the profile");
    code = dlpi_s3_config_session(p, variables ? "AWS_ROLE_SESSION_NAME" : NULL, c->session,
                                  sizeof c->session, err);
    if (code == DLP_OK) code = dlpi_s3_config_sts(c, p, c->url, sizeof c->url, err);
    c->source = DLPI_S3_WEB;
    c->timeout_ms = DLPI_S3_STS_MS;
    c->attempts = DLPI_S3_STS_ATTEMPTS;
    return code ? code : 1;
}

/* Refuse settings that ask for what this library does not do. Returns 0 or an error code. */
static int dlpi_s3_config_beyond(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const names[] = {"sso_session", "sso_start_url", "login_session"};
    char said[1024];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int code = dlpi_s3_profiles_get(p, names[i], said, sizeof said, err);
        if (code < 0) return code;
        if (code)
            return dlpi_s3_set_error(
                err, DLP_ERR_UNSUPPORTED, 0,
                "profile \"%.30s\": %s is not supported; set credential_process = aws "
                "configure export-credentials --format process --profile NAME",
                p->profile, names[i]);
    }
    return 0;
}

/* Read the profile's keys. Returns 1: it has keys, 0: none, or an error code. */
static int dlpi_s3_profiles_keys(const dlpi_s3_profiles *p, dlpi_s3_credentials *who,
                                 dlp_s3_error *err) {
    char access[sizeof who->access] = "", secret[sizeof who->secret] = "", from[200];
    char *token = who->token;
    int code = dlpi_s3_profiles_get(p, "aws_access_key_id", access, sizeof access, err);
    int more = code < 0
                   ? code
                   : dlpi_s3_profiles_get(p, "aws_secret_access_key", secret, sizeof secret, err);
    int last = more < 0
                   ? more
                   : dlpi_s3_profiles_get(p, "aws_session_token", token, sizeof who->token, err);
    snprintf(from, sizeof from, "profile \"%.100s\"", p->profile);
    if (last >= 0 && (code || more)) {
        last = dlpi_s3_who_set(who, access, secret, last ? token : NULL, from, DLP_ERR_ARG, err);
        if (last == DLP_OK) last = 1;
    }
    dlpi_s3_wipe(secret, sizeof secret);
    return last < 0 ? last : code || more;
}

/* Choose a container's service as source. Returns 1: this is it, 0: it is not, or an error code. */
static int dlpi_s3_config_container(dlpi_s3_config *c, dlp_s3_error *err) {
    const char *relative = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *file = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    int n;
    if (!relative && !full) return 0;
    if (relative && *relative != '/')
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: must begin with '/'");
    n = relative ? snprintf(c->url, sizeof c->url, "http://169.254.170.2%s", relative)
                 : snprintf(c->url, sizeof c->url, "%s", full);
    if (n >= (int)sizeof c->url ||
        (file && !dlpi_s3_copy(c->token_file, sizeof c->token_file, file)) ||
        (token && !dlpi_s3_copy(c->authorization, sizeof c->authorization, token)))
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_CONTAINER_...: URI, token file or token is longer than %zu, "
                                 "%zu or %zu bytes; shorten it",
                                 sizeof c->url - 1, sizeof c->token_file - 1,
                                 sizeof c->authorization - 1);
    c->source = DLPI_S3_CONTAINER;
    c->timeout_ms = 5000;
    c->attempts = 3;
    return 1;
}

/* Find a number, 1..most; if there is none, *out = otherwise. Returns 1, 0, or an error code. */
static int dlpi_s3_config_number(const dlpi_s3_profiles *p, const char *variable, const char *name,
                                 int most, int otherwise, int *out, dlp_s3_error *err) {
    char said[16] = "", *end;
    long value;
    int code = dlpi_s3_config_find(p, variable, name, said, sizeof said, err);
    *out = otherwise;
    if (code <= 0) return code;
    value = strtol(said, &end, 10);
    if (*end || value < 1 || value > most)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: is \"%s\", must be a number of 1..%d",
                                 variable ? variable : name, said, most);
    *out = (int)value;
    return 1;
}

/* Choose the metadata service as source. Returns 1: this is it, 0: disabled, or an error code. */
static int dlpi_s3_config_machine(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    char mode[16] = "";
    int code, seconds;
    if (dlpi_s3_is_true(dlpi_s3_env("AWS_EC2_METADATA_DISABLED"))) return 0;
    code = dlpi_s3_config_find(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                               "ec2_metadata_service_endpoint", c->url, sizeof c->url, err);
    if (code < 0) return code;
    if (code == 0) {
        code = dlpi_s3_config_find(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                   "ec2_metadata_service_endpoint_mode", mode, sizeof mode, err);
        if (code < 0) return code;
        dlpi_s3_copy(c->url, sizeof c->url,
                     strcasecmp(mode, "IPv6") == 0 ? "http://[fd00:ec2::254]"
                                                   : "http://169.254.169.254");
    }
    code = dlpi_s3_config_number(p, "AWS_METADATA_SERVICE_TIMEOUT", "metadata_service_timeout", 600,
                                 1, &seconds, err);
    if (code < 0) return code;
    code = dlpi_s3_config_number(p, "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
                                 "metadata_service_num_attempts", 100, 2, &c->attempts, err);
    if (code < 0) return code;
    c->timeout_ms = seconds * 1000;
    c->source = DLPI_S3_MACHINE;
    return 1;
}

static int dlpi_s3_config_missing(const dlpi_s3_config *c, dlp_s3_error *err) {
    return dlpi_s3_set_error(
        err, DLP_ERR_ARG, 0,
        "profile \"%.30s\" is neither in \"%.40s\" nor in \"%.40s\"; add it there", c->profile,
        c->file[0], c->file[1]);
}

/* ---- roles ---- */

/* Refuse a chain of roles, and name the profiles that it leads through. Returns DLP_ERR_ARG. */
static int dlpi_s3_role_chain(const dlpi_s3_config *c, const char *last, const char *what,
                              dlp_s3_error *err) {
    char names[80] = "";
    for (int i = 0; i < c->n_roles; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "\"%.20s\", ",
                 c->roles[i].profile);
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "source_profile: %s\"%.30s\": %s", names, last,
                             what);
}

static int dlpi_s3_role_wrong(const dlpi_s3_profiles *p, int code, const char *what,
                              dlp_s3_error *err) {
    return dlpi_s3_set_error(err, code, 0, "profile \"%.60s\": %s", p->profile, what);
}

/* Read the profile's role. from: gets the profile, or credential_source, to assume it with. Returns
   2: from is a profile, 1: a source, 0: there is no role, or an error code. */
static int dlpi_s3_role_read(const dlpi_s3_profiles *p, dlpi_s3_role *role, char *from, size_t size,
                             dlp_s3_error *err) {
    char source[32] = "", mfa[256];
    int other, code = dlpi_s3_profiles_get(p, "role_arn", role->arn, sizeof role->arn, err);
    if (code <= 0) return code;
    other = dlpi_s3_profiles_get(p, "source_profile", from, size, err);
    if (other >= 0) code = dlpi_s3_profiles_get(p, "credential_source", source, sizeof source, err);
    if (other < 0 || code < 0) return other < 0 ? other : code;
    if (other + code != 1)
        return dlpi_s3_role_wrong(
            p, DLP_ERR_ARG, "role_arn needs source_profile or credential_source, one of the two",
            err);
    if (code) dlpi_s3_copy(from, size, source);
    code = dlpi_s3_profiles_get(p, "mfa_serial", mfa, sizeof mfa, err);
    if (code > 0)
        return dlpi_s3_role_wrong(p, DLP_ERR_UNSUPPORTED,
                                  "mfa_serial is not supported: nobody can type a code; let a "
                                  "credential_process do it",
                                  err);
    if (code == 0)
        code = dlpi_s3_profiles_get(p, "external_id", role->external_id, sizeof role->external_id,
                                    err);
    if (code >= 0)
        code = dlpi_s3_config_number(p, NULL, "duration_seconds", 43200, 0, &role->duration_s, err);
    if (code > 0 && role->duration_s < 900)
        return dlpi_s3_role_wrong(p, DLP_ERR_ARG, "duration_seconds: must be 900 or more", err);
    if (code >= 0) code = dlpi_s3_config_session(p, NULL, role->session, sizeof role->session, err);
    if (code < 0) return code;
    dlpi_s3_copy(role->profile, sizeof role->profile, p->profile);
    return other ? 2 : 1;
}

/* Choose the source that a credential_source stands for. Returns 1 or an error code. */
static int dlpi_s3_role_source(dlpi_s3_config *c, const dlpi_s3_profiles *p, const char *source,
                               dlp_s3_error *err) {
    char what[100];
    int code = -1;
    if (strcmp(source, "Environment") == 0)
        code = dlpi_s3_config_environment(c, err);
    else if (strcmp(source, "EcsContainer") == 0)
        code = dlpi_s3_config_container(c, err);
    else if (strcmp(source, "Ec2InstanceMetadata") == 0)
        code = dlpi_s3_config_machine(c, p, err);
    else
        return dlpi_s3_role_wrong(
            p, DLP_ERR_ARG,
            "credential_source: must be Environment, EcsContainer or Ec2InstanceMetadata", err);
    if (code) return code;
    snprintf(what, sizeof what, "credential_source: %.32s has no credentials; name another source",
             source);
    return dlpi_s3_role_wrong(p, DLP_ERR_ARG, what, err);
}

/* Choose the keys of the profile as source. Returns 1: it has keys, 0: none, or an error code. */
static int dlpi_s3_config_base(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    int code = dlpi_s3_profiles_keys(p, &c->given, err);
    dlpi_s3_copy(c->base, sizeof c->base, p->profile);
    dlpi_s3_who_wipe(&c->given); /* read again by each fetch */
    c->source = DLPI_S3_FILE;
    return code;
}

/* Go from the last role to the profile that it is assumed with. Returns 1: that has keys, which are
   the source; 0: it has none; or an error code. */
static int dlpi_s3_role_next(dlpi_s3_config *c, dlpi_s3_profiles *p, const char *next,
                             dlp_s3_error *err) {
    const dlpi_s3_role *last = &c->roles[c->n_roles - 1];
    int has, self = strcmp(next, last->profile) == 0;
    for (int i = 0; i < c->n_roles - self; i++)
        if (strcmp(next, c->roles[i].profile) == 0)
            return dlpi_s3_role_chain(c, next, "they lead in a circle; give one of them keys", err);
    dlpi_s3_copy(c->base, sizeof c->base, next);
    p->profile = c->base;
    has = dlpi_s3_profiles_has(p, err);
    if (has == 0) return dlpi_s3_role_chain(c, next, "there is no such profile; add it", err);
    if (has > 0) has = dlpi_s3_config_base(c, p, err); /* its keys come before a role of its own */
    if (has == 0 && self)
        return dlpi_s3_role_chain(c, next, "they lead in a circle; give one of them keys", err);
    return has;
}

/* Choose the source that a profile names: a web identity; a role, perhaps of a role; keys; a
   process. Returns 1: there is one, 0: none, or an error code. */
static int dlpi_s3_config_of_profile(dlpi_s3_config *c, dlpi_s3_profiles *p, dlp_s3_error *err) {
    char from[sizeof c->base];
    dlpi_s3_role more = {0};
    int code;
    for (;;) {
        dlpi_s3_role *role = c->n_roles < DLPI_S3_ROLES ? &c->roles[c->n_roles] : &more;
        int how;
        code = dlpi_s3_profiles_get(p, "web_identity_token_file", c->token_file,
                                    sizeof c->token_file, err);
        if (code) return code < 0 ? code : dlpi_s3_config_web(c, p, false, err);
        how = dlpi_s3_role_read(p, role, from, sizeof from, err);
        if (how < 0) return how;
        if (how == 0) break;
        if (role == &more)
            return dlpi_s3_role_chain(c, p->profile, "more than 3 roles; use fewer", err);
        if (c->n_roles++ == 0) code = dlpi_s3_config_sts(c, p, c->sts, sizeof c->sts, err);
        if (code) return code;
        code = how == 1 ? dlpi_s3_role_source(c, p, from, err) : dlpi_s3_role_next(c, p, from, err);
        if (code) return code;
    }
    code = c->n_roles ? 0 : dlpi_s3_config_base(c, p, err);
    if (code) return code;
    c->source = DLPI_S3_PROCESS;
    c->timeout_ms = 60000;
    code = dlpi_s3_profiles_get(p, "credential_process", c->process, sizeof c->process, err);
    if (code == 0) code = dlpi_s3_config_beyond(p, err);
    if (code || c->n_roles == 0) return code;
    return dlpi_s3_role_chain(c, p->profile,
                              "it has no credentials; give it keys or a credential_process", err);
}

/* ---- settings that AWS' tools go by ---- */

typedef struct dlpi_s3_beyond {
    const char *variable;   /* NULL: none */
    const char *name, *sub; /* in a profile; sub: NULL, or nested below name */
    const char *fine;       /* what it may say, each with blanks around it; NULL: all but "true" */
    const char *what;
} dlpi_s3_beyond;

/* What this library does not do, and may not ignore: requests would go to another host, or be other
   ones, than whoever set it thinks. */
static const dlpi_s3_beyond dlpi_s3_beyonds[] = {
    {NULL, "s3", "use_accelerate_endpoint", NULL, "transfer acceleration is"},
    {"AWS_RETRY_MODE", "retry_mode", NULL, " standard adaptive ",
     "other modes than \"standard\" and \"adaptive\" are"},
};

/* Refuse what is set of a row of dlpi_s3_beyonds. Returns DLP_OK or an error code. */
static int dlpi_s3_config_refuse(const dlpi_s3_profiles *p, const dlpi_s3_beyond *b,
                                 dlp_s3_error *err) {
    const char *value = b->variable ? dlpi_s3_env(b->variable) : NULL;
    char said[64], where[200];
    int file = 0;
    snprintf(where, sizeof where, "%s", b->variable ? b->variable : b->name);
    if (!value) {
        file = dlpi_s3_profiles_find(p, b->name, b->sub, said, sizeof said, err);
        if (file <= 0) return file;
        value = said;
        snprintf(where, sizeof where, "%s%s%s of profile \"%.20s\" in \"%.60s\"", b->name,
                 b->sub ? "." : "", b->sub ? b->sub : "", p->c->profile, p->c->file[file - 1]);
    }
    if (b->fine ? dlpi_s3_listed(b->fine, value) : !dlpi_s3_is_true(value)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%.140s: \"%.16s\"; but %s not supported; remove this setting", where,
                             value, b->what);
}

/* Find out how objects are addressed, how often they are asked for, and what is refused. */
static int dlpi_s3_config_habits(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const styles[] = {"auto", "path", "virtual"}; /* DLP_S3_STYLE_* */
    char said[64] = "";
    int code = dlpi_s3_profiles_find(p, "s3", "addressing_style", said, sizeof said, err);
    if (code < 0) return code;
    while (code && c->style < 3 && strcasecmp(said, styles[c->style]) != 0) c->style++;
    if (c->style == 3)
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "s3.addressing_style of profile \"%.20s\" in \"%.60s\": is \"%.16s\", "
            "must be auto, path or virtual",
            c->profile, c->file[code - 1], said);
    code = dlpi_s3_config_number(p, "AWS_MAX_ATTEMPTS", "max_attempts", INT32_MAX, -1,
                                 &c->max_attempts, err);
    said[0] = '\0';
    if (code >= 0)
        code = dlpi_s3_config_find(p, "AWS_RESPONSE_CHECKSUM_VALIDATION",
                                   "response_checksum_validation", said, sizeof said, err);
    c->no_checksums = strcasecmp(said, "when_required") == 0;
    if (code > 0 && !c->no_checksums && strcasecmp(said, "when_supported") != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "response_checksum_validation (AWS_RESPONSE_CHECKSUM_VALIDATION): "
                                 "is \"%.16s\", must be when_supported or when_required",
                                 said);
    for (size_t i = 0; code >= 0 && i < sizeof dlpi_s3_beyonds / sizeof dlpi_s3_beyonds[0]; i++)
        code = dlpi_s3_config_refuse(p, &dlpi_s3_beyonds[i], err);
    return code < 0 ? code : DLP_OK;
}

/* Choose the source of credentials, in the order of AWS' SDKs. A profile that the program names
   comes before the environment. Returns DLP_OK or an error code. */
static int dlpi_s3_config_source(dlpi_s3_config *c, dlpi_s3_profiles *p, int has_profile,
                                 dlp_s3_error *err) {
    const char *token = dlpi_s3_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    int code = 0;
    if (!c->named_by_user) {
        code = dlpi_s3_config_environment(c, err);
        if (code == 0 && token) {
            code = dlpi_s3_config_copy(c->token_file, sizeof c->token_file,
                                       "AWS_WEB_IDENTITY_TOKEN_FILE", token, err);
            if (code == 0) code = dlpi_s3_config_web(c, p, true, err);
        }
    }
    if (code == 0 && !has_profile && c->named) return dlpi_s3_config_missing(c, err);
    if (code == 0) code = dlpi_s3_config_of_profile(c, p, err);
    if (code == 0) code = dlpi_s3_config_container(c, err);
    if (code == 0) code = dlpi_s3_config_machine(c, p, err);
    if (code) return code < 0 ? code : DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                             "credentials: there are none in environment, profile \"%.20s\" or "
                             "container; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                             "anonymous for public buckets",
                             c->profile);
}

/* Find out where to go and who asks. c: zeroed, in the client's mapping; it holds secrets. Reads
   environment and files, and waits for nothing else. Returns DLP_OK or an error code. */
static int dlpi_s3_config_load(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    dlpi_s3_profiles p;
    bool given = d->access_key || d->secret_key || d->session_token;
    int code, has;
    c->clock = dlpi_s3_real_s;
    c->patience_ms = DLPI_S3_PATIENCE_MS;
    c->pause_ms = 50;
    c->pause_max_ms = 5000;
    c->log = d->log;
    c->log_user = d->log_user;
    c->given.anonymous = d->anonymous != 0;
    code = dlpi_s3_config_profile(c, d, err);
    if (!code) code = dlpi_s3_config_files(c, err);
    if (!code) code = dlpi_s3_profiles_open(&p, c, err);
    if (code) return code;
    has = dlpi_s3_profiles_has(&p, err);
    if (has == 0 && c->named_by_user) has = dlpi_s3_config_missing(c, err);
    code = has < 0 ? has : dlpi_s3_config_where(c, d, &p, err);
    if (!code) code = dlpi_s3_config_hosts(c, d, &p, err);
    if (!code) code = dlpi_s3_config_habits(c, &p, err);
    if (!code && !d->anonymous)
        code = given ? dlpi_s3_config_given(c, d, err) : dlpi_s3_config_source(c, &p, has, err);
    dlpi_s3_profiles_close(&p);
    return code;
}
