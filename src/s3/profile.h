#pragma once
/* tests: system/s3/s3_credentials, fuzz/fuzz_s3 */
#include "s3/proxy.h"
/* ---- profiles: the format that AWS' tools share ----
   A file is asked one question at a time, and read through for each: it is small, and read once.
   Sections are [profile NAME] (in the credentials file [NAME]), [default] and [services NAME]; of a
   setting that is there twice the last one counts. Indented lines continue a setting; below one
   without a value they are settings of their own, nested. A comment takes a whole line, or follows
   blanks. Source: the file format in AWS' SDK reference. */

typedef struct dlpi_s3_ini {
    const char *kind; /* "profile", "services"; NULL: sections are just names */
    const char *section;
    const char *name; /* NULL: only whether there is such a section */
    const char *sub;  /* NULL, or a setting nested below name */
    char *out;
    size_t size;
    bool strict_default;     /* there is a [profile default]: [default] says nothing */
    bool any, here;          /* a section was seen; it is the one */
    bool open, ours, nested; /* a setting may be continued; it is the one; its value was empty */
    bool found;
    bool cut; /* what was found is too long for out */
} dlpi_s3_ini;

static bool dlpi_s3_is_blank(char c) { return c == ' ' || c == '\t'; }

static void dlpi_s3_trim(const char **s, size_t *n) {
    while (*n && dlpi_s3_is_blank(**s)) (*s)++, (*n)--;
    while (*n && dlpi_s3_is_blank((*s)[*n - 1])) (*n)--;
}

static bool dlpi_s3_same(const char *s, size_t n, const char *word) {
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

static bool dlpi_s3_ini_is_section(const dlpi_s3_ini *q, const char *s, size_t n) {
    size_t k = q->kind ? strlen(q->kind) : 0;
    if (k && n > k && memcmp(s, q->kind, k) == 0 && dlpi_s3_is_blank(s[k])) {
        s += k;
        n -= k;
        dlpi_s3_trim(&s, &n);
    } else if (k && (q->strict_default || strcmp(q->kind, "profile") != 0 || n != 7 ||
                     memcmp(s, "default", 7) != 0)) {
        return false;
    }
    if (n > 1 && s[0] == '"' && s[n - 1] == '"') s++, n -= 2;
    return strlen(q->section) == n && memcmp(s, q->section, n) == 0;
}

/* "[name]", perhaps a comment. */
static int dlpi_s3_ini_header(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *end = memchr(s, ']', n), *inner = s + 1, *rest;
    size_t n_inner, n_rest;
    if (!end) return -1;
    n_inner = (size_t)(end - inner);
    rest = end + 1;
    n_rest = n - (size_t)(rest - s);
    dlpi_s3_trim(&inner, &n_inner);
    dlpi_s3_trim(&rest, &n_rest);
    if (n_inner == 0 || (n_rest && *rest != '#' && *rest != ';')) return -1;
    q->any = true;
    q->open = false;
    q->here = dlpi_s3_ini_is_section(q, inner, n_inner);
    if (q->here && !q->name) q->found = true;
    return 0;
}

static void dlpi_s3_ini_keep(dlpi_s3_ini *q, const char *s, size_t n) {
    q->found = true;
    q->cut = n >= q->size;
    if (q->cut) return;
    memcpy(q->out, s, n);
    q->out[n] = '\0';
}

/* Split "name = value". Returns false: there is no name, or no '='. */
static bool dlpi_s3_ini_split(const char *s, size_t n, size_t *n_name, const char **value,
                              size_t *n_value) {
    const char *equals = memchr(s, '=', n);
    if (!equals) return false;
    *value = equals + 1;
    *n_value = n - (size_t)(equals + 1 - s);
    *n_name = (size_t)(equals - s);
    dlpi_s3_trim(&s, n_name);
    dlpi_s3_trim(value, n_value);
    return *n_name != 0;
}

/* "name = value", perhaps a comment after blanks. */
static int dlpi_s3_ini_setting(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value;
    if (!q->any) return -1;
    for (size_t i = 1; i < n; i++)
        if ((s[i] == '#' || s[i] == ';') && dlpi_s3_is_blank(s[i - 1])) n = i;
    if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
    q->open = true;
    q->nested = n_value == 0;
    q->ours = q->here && q->name && dlpi_s3_same(s, n_name, q->name);
    if (q->ours && !q->sub) dlpi_s3_ini_keep(q, value, n_value);
    return 0;
}

/* An indented line, trimmed. */
static int dlpi_s3_ini_more(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value, have;
    if (!q->any || !q->open) return -1;
    if (q->nested) {
        if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
        if (q->ours && q->sub && dlpi_s3_same(s, n_name, q->sub))
            dlpi_s3_ini_keep(q, value, n_value);
    } else if (q->ours && !q->sub && !q->cut) {
        have = strlen(q->out);
        q->cut = have + 1 + n >= q->size;
        if (!q->cut) snprintf(q->out + have, q->size - have, "\n%.*s", (int)n, s);
    }
    return 0;
}

static int dlpi_s3_ini_line(dlpi_s3_ini *q, const char *s, size_t n) {
    bool indented = n && dlpi_s3_is_blank(*s);
    if (n && s[n - 1] == '\r') n--;
    dlpi_s3_trim(&s, &n);
    if (n == 0 || *s == '#' || *s == ';') return 0;
    if (indented) return dlpi_s3_ini_more(q, s, n);
    return *s == '[' ? dlpi_s3_ini_header(q, s, n) : dlpi_s3_ini_setting(q, s, n);
}

/* Ask. Returns 0 (see found, cut), or the number of the line that makes no sense. */
static int dlpi_s3_ini_ask(dlpi_s3_ini *q, const char *text, size_t n) {
    const char *at = text, *end = text + n, *stop;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) at += 3;
    for (int line = 1; at < end; line++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (dlpi_s3_ini_line(q, at, (size_t)(stop - at))) return line;
        at = stop + 1;
    }
    return 0;
}

/* ---- the two files ---- */

enum { DLPI_S3_FILE_MAX = 1 << 20 };

typedef struct dlpi_s3_profiles {
    const dlpi_s3_config *c;
    char *text[2]; /* of c->file, in mappings of DLPI_S3_FILE_MAX; NULL: not there */
    size_t n[2];
    bool strict_default;
} dlpi_s3_profiles;

static void dlpi_s3_profiles_close(dlpi_s3_profiles *p) {
    for (int i = 0; i < 2; i++) dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, p->n[i]);
    memset(p, 0, sizeof *p);
}

/* Ask file i. kind: "profile" or "services". Returns 1: found, 0: not, or an error. */
static int dlpi_s3_profiles_ask(const dlpi_s3_profiles *p, int i, const char *kind,
                                const char *section, const char *name, const char *sub, char *out,
                                size_t size, dlp_s3_error *err) {
    dlpi_s3_ini q;
    int line;
    memset(&q, 0, sizeof q);
    q.kind = i == 0 ? kind : NULL;
    q.section = section;
    q.name = name;
    q.sub = sub;
    q.out = out;
    q.size = size;
    q.strict_default = p->strict_default;
    if (!p->text[i]) return 0;
    line = dlpi_s3_ini_ask(&q, p->text[i], p->n[i]);
    if (line)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%.180s: line %d is none of its format",
                                 p->c->file[i], line);
    if (q.cut)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%.120s: [%.40s] %.40s is too long",
                                 p->c->file[i], section,
                                 sub    ? sub
                                 : name ? name
                                        : "");
    return q.found;
}

/* Find a setting of the profile, or one nested below it, the credentials file's first. Returns the
   number of the file, from 1: there, and not empty; 0: not; or an error. */
static int dlpi_s3_profiles_find(const dlpi_s3_profiles *p, const char *name, const char *sub,
                                 char *out, size_t size, dlp_s3_error *err) {
    for (int i = 1; i >= 0; i--) {
        int there = dlpi_s3_profiles_ask(p, i, "profile", p->c->profile, name, sub, out, size, err);
        if (there < 0) return there;
        if (there && *out) return i + 1;
    }
    return 0;
}

/* Get a setting of the profile. Returns 1, 0, or an error. */
static int dlpi_s3_profiles_get(const dlpi_s3_profiles *p, const char *name, char *out, size_t size,
                                dlp_s3_error *err) {
    int file = dlpi_s3_profiles_find(p, name, NULL, out, size, err);
    return file > 0 ? 1 : file;
}

/* Whether the profile is there. Also finds lines that make no sense, wherever they are. */
static int dlpi_s3_profiles_has(dlpi_s3_profiles *p, dlp_s3_error *err) {
    int there[2];
    p->strict_default = true;
    there[0] = dlpi_s3_profiles_ask(p, 0, "profile", "default", NULL, NULL, NULL, 0, err);
    if (there[0] < 0) return there[0];
    p->strict_default = there[0] == 1;
    for (int i = 0; i < 2; i++) {
        there[i] = dlpi_s3_profiles_ask(p, i, "profile", p->c->profile, NULL, NULL, NULL, 0, err);
        if (there[i] < 0) return there[i];
    }
    return there[0] || there[1];
}

/* Read them. A file that is not there is empty, and so is one in the home directory that may not be
   read: programs run under other users' homes. */
static int dlpi_s3_profiles_open(dlpi_s3_profiles *p, const dlpi_s3_config *c, dlp_s3_error *err) {
    static const char *const variables[2] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
    memset(p, 0, sizeof *p);
    p->c = c;
    for (int i = 0; i < 2; i++) {
        int e;
        if (!c->file[i][0]) continue;
        p->text[i] = (char *)dlpi_s3_private_map(DLPI_S3_FILE_MAX);
        e = p->text[i] ? dlpi_s3_file_read(c->file[i], p->text[i], DLPI_S3_FILE_MAX, &p->n[i])
                       : ENOMEM;
        if (!e) continue;
        dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, 0);
        p->text[i] = NULL;
        if (e == ENOENT || e == ENOTDIR) continue;
        if (e == EACCES && !dlpi_s3_env(variables[i])) continue;
        dlpi_s3_profiles_close(p);
        return dlpi_s3_set_error(err, e == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, e,
                                 "%.200s: %s", c->file[i],
                                 e == EILSEQ ? "not a text file" : strerror(e));
    }
    return DLP_OK;
}

/* ---- what is found when a client is opened ---- */

static bool dlpi_s3_is_true(const char *value) { return value && strcasecmp(value, "true") == 0; }

/* Find a setting: the variable's value (NULL: none), else the profile's. Returns 1, 0, or an error.
   */
static int dlpi_s3_config_find(const dlpi_s3_profiles *p, const char *variable, const char *name,
                               char *out, size_t size, dlp_s3_error *err) {
    const char *value = variable ? dlpi_s3_env(variable) : NULL;
    if (!value) return dlpi_s3_profiles_get(p, name, out, size, err);
    if (dlpi_s3_copy(out, size, value)) return 1;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is too long", variable);
}

/* The paths of the two files; "~/" is the home directory, as for AWS' tools. */
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
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is too long", variables[i]);
    }
    return DLP_OK;
}

static int dlpi_s3_config_profile(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    const char *name = d->profile && *d->profile ? d->profile : NULL;
    const char *one = dlpi_s3_env("AWS_PROFILE"), *other = dlpi_s3_env("AWS_DEFAULT_PROFILE");
    c->named_by_user = name != NULL;
    if (!name && one && other && strcmp(one, other) != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_PROFILE is \"%.60s\", "
                                 "AWS_DEFAULT_PROFILE is \"%.60s\", and AWS' own tools do not "
                                 "agree on which counts: unset one",
                                 one, other);
    if (!name) name = one ? one : other;
    c->named = name != NULL;
    if (!name) name = "default";
    if (dlpi_s3_copy(c->profile, sizeof c->profile, name)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "profile: the name is too long");
}

/* Whether it is the name of no region, but of endpoints, of which AWS' tools make one. */
static bool dlpi_s3_region_beyond(const char *region) {
    static const char *const ends[] = {"-fips", "-global"};
    size_t n = strlen(region);
    for (size_t i = 0; i < 2; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcmp(region + n - k, ends[i]) == 0) return true;
    }
    return strncmp(region, "fips-", 5) == 0 || strncmp(region, "s3-", 3) == 0;
}

/* A region becomes a part of what is signed, and of AWS' host names. Other servers' may have
   capitals. The endpoint is known. */
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
        return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                                 "%.100s: \"%.40s\" is no region but "
                                 "stands for other endpoints, which are not supported",
                                 from, region);
    if (!dlpi_s3_copy(c->region, sizeof c->region, region) ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")])
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "region: \"%.40s\" cannot be one", region);
    return DLP_OK;
}

/* Whether endpoints in environment and profile say nothing. */
static int dlpi_s3_config_ignores(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    char said[8] = "";
    int code = dlpi_s3_config_find(p, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                   "ignore_configured_endpoint_urls", said, sizeof said, err);
    return code < 0 ? code : dlpi_s3_is_true(said);
}

/* Find a service's endpoint: its own variable, the variable for all, its place in the profile's
   services section, the profile's for all. Returns 1, 0, or an error. */
static int dlpi_s3_config_url(const dlpi_s3_profiles *p, const char *variable, const char *service,
                              char *out, size_t size, dlp_s3_error *err) {
    const char *url = dlpi_s3_env(variable);
    char services[128];
    int code = dlpi_s3_config_ignores(p, err);
    if (code) return code < 0 ? code : 0;
    if (!url) url = dlpi_s3_env("AWS_ENDPOINT_URL");
    if (url && dlpi_s3_copy(out, size, url)) return 1;
    if (url) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "endpoint: the URL is too long");
    code = dlpi_s3_profiles_get(p, "services", services, sizeof services, err);
    if (code == 1) {
        code = dlpi_s3_profiles_ask(p, 0, "services", services, NULL, NULL, NULL, 0, err);
        if (code == 0)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                     "profile \"%.60s\": there is no section "
                                     "[services %.60s]",
                                     p->c->profile, services);
        if (code == 1)
            code = dlpi_s3_profiles_ask(p, 0, "services", services, service, "endpoint_url", out,
                                        size, err);
        if (code == 1 && !*out) code = 0;
    }
    return code ? code : dlpi_s3_profiles_get(p, "endpoint_url", out, size, err);
}

static int dlpi_s3_config_where(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                dlp_s3_error *err) {
    int code;
    if (d->endpoint && *d->endpoint) {
        if (!dlpi_s3_copy(c->endpoint, sizeof c->endpoint, d->endpoint))
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "endpoint: the URL is too long");
    } else {
        code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_S3", "s3", c->endpoint, sizeof c->endpoint,
                                  err);
        if (code < 0) return code;
    }
    code = dlpi_s3_config_region(c, d, p, err);
    if (code) return code;
    if (d->ca_file && *d->ca_file)
        return dlpi_s3_copy(c->ca_file, sizeof c->ca_file, d->ca_file)
                   ? DLP_OK
                   : dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "ca_file: the path is too long");
    code = dlpi_s3_config_find(p, "AWS_CA_BUNDLE", "ca_bundle", c->ca_file, sizeof c->ca_file, err);
    return code < 0 ? code : DLP_OK;
}

/* Find out which of AWS' hosts are asked for: by the desc, the environment, or the profile. */
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
                             "%s: set by program, environment or profile, but the endpoint is "
                             "given; only AWS' own has other hosts",
                             c->fips ? "fips (AWS_USE_FIPS_ENDPOINT)"
                                     : "dualstack (AWS_USE_DUALSTACK_ENDPOINT)");
}

/* ---- credentials ---- */

static int dlpi_s3_config_given(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    c->source = DLPI_S3_GIVEN;
    return dlpi_s3_who_set(&c->given, d->access_key, d->secret_key, d->session_token,
                           "access_key, secret_key", DLP_ERR_ARG, err);
}

/* From here on: each returns 1: this is the source; 0: it is not; or an error: it was meant to be,
   and is not whole. */
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

/* The token file is known; variables: whether they count. */
static int dlpi_s3_config_web(dlpi_s3_config *c, const dlpi_s3_profiles *p, bool variables,
                              dlp_s3_error *err) {
    dlpi_s3_endpoint sts;
    const char *why;
    int code = dlpi_s3_config_find(p, variables ? "AWS_ROLE_ARN" : NULL, "role_arn", c->role,
                                   sizeof c->role, err);
    if (code < 0) return code;
    if (code == 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "credentials: a web identity's token file "
                                 "without a role: set AWS_ROLE_ARN, or role_arn in the profile");
    code = dlpi_s3_config_find(p, variables ? "AWS_ROLE_SESSION_NAME" : NULL, "role_session_name",
                               c->session, sizeof c->session, err);
    if (code < 0) return code;
    if (code == 0)
        snprintf(c->session, sizeof c->session, "dlpipe-%lld", (long long)dlpi_s3_real_s());
    code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_STS", "sts", c->url, sizeof c->url, err);
    if (code < 0) return code;
    if (code == 0)
        snprintf(c->url, sizeof c->url, "https://sts%s.%s.%s", c->fips ? "-fips" : "", c->region,
                 !c->dualstack                       ? dlpi_s3_aws_domain(c->region)
                 : strncmp(c->region, "cn-", 3) == 0 ? "api.amazonwebservices.com.cn"
                                                     : "api.aws");
    if (dlpi_s3_endpoint_parse(&sts, c->url, &why) == DLP_OK &&
        dlpi_s3_proxy_beyond(&sts, err) != DLP_OK)
        return DLP_ERR_UNSUPPORTED;
    c->source = DLPI_S3_WEB;
    c->timeout_ms = 10000;
    c->attempts = 3;
    return 1;
}

/* Settings that ask for what this library does not do. */
static int dlpi_s3_config_beyond(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const names[] = {"source_profile", "credential_source", "sso_session",
                                        "sso_start_url", "login_session"};
    char said[1024];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int code = dlpi_s3_profiles_get(p, names[i], said, sizeof said, err);
        if (code < 0) return code;
        if (code)
            return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                                     "profile \"%.60s\": %s is not "
                                     "supported; let a credential_process do it, such as: aws "
                                     "configure export-credentials --profile NAME",
                                     p->c->profile, names[i]);
    }
    return 0;
}

/* Keys in the files. Returns 1, 0, or an error. */
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
    snprintf(from, sizeof from, "profile \"%.100s\"", p->c->profile);
    if (last >= 0 && (code || more)) {
        last = dlpi_s3_who_set(who, access, secret, last ? token : NULL, from, DLP_ERR_ARG, err);
        if (last == DLP_OK) last = 1;
    }
    dlpi_s3_wipe(secret, sizeof secret);
    return last < 0 ? last : code || more;
}

static int dlpi_s3_config_of_profile(dlpi_s3_config *c, dlpi_s3_profiles *p, dlp_s3_error *err) {
    int code = dlpi_s3_profiles_get(p, "web_identity_token_file", c->token_file,
                                    sizeof c->token_file, err);
    if (code) return code < 0 ? code : dlpi_s3_config_web(c, p, false, err);
    code = dlpi_s3_profiles_get(p, "role_arn", c->role, sizeof c->role, err);
    if (code == 1) code = dlpi_s3_config_beyond(p, err);
    if (code < 0) return code;
    c->source = DLPI_S3_FILE;
    code = dlpi_s3_profiles_keys(p, &c->given, err);
    dlpi_s3_who_wipe(&c->given); /* read again by each fetch */
    if (code) return code;
    c->source = DLPI_S3_PROCESS;
    c->timeout_ms = 60000;
    code = dlpi_s3_profiles_get(p, "credential_process", c->process, sizeof c->process, err);
    return code ? code : dlpi_s3_config_beyond(p, err);
}

static int dlpi_s3_config_container(dlpi_s3_config *c, dlp_s3_error *err) {
    const char *relative = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *file = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    int n;
    if (!relative && !full) return 0;
    if (relative && *relative != '/')
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: it begins with '/'");
    n = relative ? snprintf(c->url, sizeof c->url, "http://169.254.170.2%s", relative)
                 : snprintf(c->url, sizeof c->url, "%s", full);
    if (n >= (int)sizeof c->url ||
        (file && !dlpi_s3_copy(c->token_file, sizeof c->token_file, file)) ||
        (token && !dlpi_s3_copy(c->authorization, sizeof c->authorization, token)))
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "AWS_CONTAINER_...: a value is too long");
    c->source = DLPI_S3_CONTAINER;
    c->timeout_ms = 5000;
    c->attempts = 3;
    return 1;
}

/* A whole number, 1..most. */
static int dlpi_s3_config_number(const dlpi_s3_profiles *p, const char *variable, const char *name,
                                 int most, int otherwise, int *out, dlp_s3_error *err) {
    char said[16] = "", *end;
    long value;
    int code = dlpi_s3_config_find(p, variable, name, said, sizeof said, err);
    *out = otherwise;
    if (code <= 0) return code;
    value = strtol(said, &end, 10);
    if (*end || value < 1 || value > most)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: not a number of 1..%d", variable, most);
    *out = (int)value;
    return 1;
}

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
     "what else than \"standard\" and \"adaptive\" stands for is"},
};

/* Refuse what is set of a row of that table. */
static int dlpi_s3_config_refuse(const dlpi_s3_profiles *p, const dlpi_s3_beyond *b,
                                 dlp_s3_error *err) {
    const char *value = b->variable ? dlpi_s3_env(b->variable) : NULL;
    char said[64], word[70], where[240];
    int file = 0;
    snprintf(where, sizeof where, "%s", b->variable ? b->variable : b->name);
    if (!value) {
        file = dlpi_s3_profiles_find(p, b->name, b->sub, said, sizeof said, err);
        if (file <= 0) return file;
        value = said;
        snprintf(where, sizeof where, "%s%s%s of profile \"%.30s\" in \"%.60s\"", b->name,
                 b->sub ? "." : "", b->sub ? b->sub : "", p->c->profile, p->c->file[file - 1]);
    }
    snprintf(word, sizeof word, " %.60s ", value);
    if (b->fine ? strstr(b->fine, word) != NULL : !dlpi_s3_is_true(value)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%.160s: \"%.16s\"; but %s not "
                             "supported",
                             where, value, b->what);
}

/* How objects are addressed, how often they are asked for, and what is refused. */
static int dlpi_s3_config_habits(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const styles[] = {"auto", "path", "virtual"}; /* DLP_S3_STYLE_* */
    char said[64] = "";
    int code = dlpi_s3_profiles_find(p, "s3", "addressing_style", said, sizeof said, err);
    if (code < 0) return code;
    while (code && c->style < 3 && strcasecmp(said, styles[c->style]) != 0) c->style++;
    if (c->style == 3)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "s3.addressing_style of profile \"%.40s\" "
                                 "in \"%.80s\": none of auto, path, virtual",
                                 c->profile, c->file[code - 1]);
    code = dlpi_s3_config_number(p, "AWS_MAX_ATTEMPTS", "max_attempts", INT32_MAX, -1,
                                 &c->max_attempts, err);
    for (size_t i = 0; code >= 0 && i < sizeof dlpi_s3_beyonds / sizeof dlpi_s3_beyonds[0]; i++)
        code = dlpi_s3_config_refuse(p, &dlpi_s3_beyonds[i], err);
    return code < 0 ? code : DLP_OK;
}

static int dlpi_s3_config_missing(const dlpi_s3_config *c, dlp_s3_error *err) {
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                             "profile \"%.60s\" is neither in \"%.60s\" "
                             "nor in \"%.60s\"",
                             c->profile, c->file[0], c->file[1]);
}

/* The order is that of AWS' SDKs. A profile that the program names comes before the environment. */
static int dlpi_s3_config_source(dlpi_s3_config *c, dlpi_s3_profiles *p, int has_profile,
                                 dlp_s3_error *err) {
    const char *token = dlpi_s3_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    int code = 0;
    if (!c->named_by_user) {
        code = dlpi_s3_config_environment(c, err);
        if (code == 0 && token) {
            if (!dlpi_s3_copy(c->token_file, sizeof c->token_file, token))
                return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                         "AWS_WEB_IDENTITY_TOKEN_FILE is too long");
            code = dlpi_s3_config_web(c, p, true, err);
        }
    }
    if (code == 0 && !has_profile && c->named) return dlpi_s3_config_missing(c, err);
    if (code == 0) code = dlpi_s3_config_of_profile(c, p, err);
    if (code == 0) code = dlpi_s3_config_container(c, err);
    if (code == 0) code = dlpi_s3_config_machine(c, p, err);
    if (code) return code < 0 ? code : DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                             "credentials: there are none in environment, "
                             "profile \"%.60s\" or container, and AWS_EC2_METADATA_DISABLED is "
                             "set; for public buckets, set anonymous",
                             c->profile);
}

/* Find out where to go and who asks. c lies in the client's mapping, zeroed; it holds secrets.
   Reads environment and files, and waits for nothing else. */
static int dlpi_s3_config_load(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    dlpi_s3_profiles p;
    bool given = d->access_key || d->secret_key || d->session_token;
    int code, has;
    c->clock = dlpi_s3_real_s;
    c->pause_ms = 100;
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
