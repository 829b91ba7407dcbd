/* Signatures, against those of the S3 documentation and of the published test suite of Signature
   Version 4; and what they stand on: hashes, URIs, times, endpoints, XML, JSON. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_s3.h"

static int failures, checks;

#define CHECK(x)                                                                     \
    do {                                                                             \
        checks++;                                                                    \
        if (!(x) && failures++ < 20)                                                 \
            printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x);     \
    } while (0)

static const char *shown(const uint8_t hash[32]) {
    static char hex[65];
    dlpi_s3_hex(hex, hash, 32);
    return hex;
}

/* ---- Signatures. */

static dlpi_s3_credentials example(void) { /* of the S3 documentation */
    dlpi_s3_credentials c = {0};
    strcpy(c.access, "AKIAIOSFODNN7EXAMPLE");
    strcpy(c.secret, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    return c;
}

static dlpi_s3_head example_head(const dlpi_s3_credentials *who, const char *path) {
    dlpi_s3_head h = {0};
    h.method = "GET", h.host = "examplebucket.s3.amazonaws.com", h.path = path;
    h.region = "us-east-1", h.who = who;
    h.now_s = dlpi_s3_time_iso("20130524T000000Z", 16);
    return h;
}

/* What follows mark in a head, up to the end of its line or the next space. */
static const char *after(const char *head, const char *mark) {
    static char value[9000];
    const char *at = strstr(head, mark);
    value[0] = '\0';
    if (at) snprintf(value, sizeof value, "%.*s", (int)strcspn(at + strlen(mark), " \r"),
                     at + strlen(mark));
    return value;
}

static const char *head_of(const dlpi_s3_head *h) {
    static char head[32768];
    int n = dlpi_s3_head_write(h, head, sizeof head - 1);
    CHECK(n > 0);
    head[n > 0 ? n : 0] = '\0';
    return head;
}

static void sign__s3_documentation__same_signatures(void) {
    dlpi_s3_credentials who = example();
    dlpi_s3_head h = example_head(&who, "/test.txt");
    h.range = "bytes=0-9";
    CHECK(strcmp(after(head_of(&h), "Signature="),
                 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41") == 0);
    h = example_head(&who, "/");
    h.query = "lifecycle";
    CHECK(strcmp(after(head_of(&h), "Signature="),
                 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543") == 0);
    h.query = "lifecycle=";
    CHECK(strcmp(after(head_of(&h), "Signature="),
                 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543") == 0);
    h.query = "max-keys=2&prefix=J";
    CHECK(strcmp(after(head_of(&h), "Signature="),
                 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7") == 0);
    h = example_head(&who, "/test.txt");
    h.presign = true, h.expires_s = 86400;
    CHECK(strcmp(after(head_of(&h), "Signature="),
                 "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404") == 0);
}

/* A case of the suite: headers in order, between host and x-amz-date but where that is said. */
typedef struct suite_case {
    const char *name, *method, *path, *query, *header, *value, *body, *signature;
} suite_case;

#define PLAIN "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define FORM "application/x-www-form-urlencoded"

static const suite_case suite[] = {
    {"get-vanilla", "GET", "/", "", NULL, NULL, "",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-slash", "GET", "//", "", NULL, NULL, "",
     "c88bcd3d312d75078c0cd961d6deae3f4c754924b01669efcfcb439fd5e5b76e"},
    {"get-slashes", "GET", "//example//", "", NULL, NULL, "",
     "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"},
    {"get-slash-dot-slash", "GET", "/./", "", NULL, NULL, "",
     "68714168e6557f8f2de0ef956fc24dc2593a4bd2961f8df51898d8a134695145"},
    {"get-slash-pointless-dot", "GET", "/./example", "", NULL, NULL, "",
     "beb03f223f7deae4146464f06e29eebbee9c8afbe15c290cf07aa8b119e14cff"},
    {"get-relative", "GET", "/example/..", "", NULL, NULL, "",
     "eca7ead57bb5aa5c8e28007acd4ff04e1ff9a0ff3b237ec1554a184887ff9282"},
    {"get-relative-relative", "GET", "/example1/example2/../..", "", NULL, NULL, "",
     "dc33e0856fd4baca4d7aa2146c38958283844764f38c74252a333df5e613003b"},
    {"get-space", "GET", "/example space/", "", NULL, NULL, "",
     "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
    {"get-unreserved", "GET", "/" PLAIN, "", NULL, NULL, "",
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-utf8", "GET", "/\xe1\x88\xb4", "", NULL, NULL, "",
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"get-vanilla-empty-query-key", "GET", "/", "Param1=value1", NULL, NULL, "",
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query-order-key-case", "GET", "/", "Param2=value2&Param1=value1", NULL, NULL, "",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-order-encoded", "GET", "/", "Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
     NULL, NULL, "", "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
    {"get-vanilla-query-unreserved", "GET", "/", PLAIN "=" PLAIN, NULL, NULL, "",
     "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-vanilla-utf8-query", "GET", "/", "%E1%88%B4=bar", NULL, NULL, "",
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"get-header-key-duplicate", "GET", "/", "", "my-header1", "value2,value2,value1", "",
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
    {"get-header-value-order", "GET", "/", "", "my-header1", "value4,value1,value3,value2", "",
     "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
    {"post-vanilla", "POST", "/", "", NULL, NULL, "",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-header-key-sort", "POST", "/", "", "my-header1", "value1", "",
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
    {"post-header-value-case", "POST", "/", "", "my-header1", "VALUE1", "",
     "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
    {"get-vanilla-with-session-token", "GET", "/", "", "x-amz-security-token",
     "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267", "",
     "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
    {"post-vanilla-query", "POST", "/", "Param1=value1", NULL, NULL, "",
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-vanilla-query-space", "POST", "/", "p", NULL, NULL, "",
     "e71688addb58a26418614085fb730ba3faa623b461c17f48f2fbdb9361b94a9b"},
    {"post-vanilla-query-nonunreserved", "POST", "/",
     "%40%23%24%25%5E=&%2B=%2F%2C%3F%3E%3C%60%22%3B%3A%5C%7C%5D%5B%7B%7D", NULL, NULL, "",
     "66c82657c86e26fb25238d0e69f011edc4c6df5ae71119d7cb98ed9b87393c1e"},
    {"post-x-www-form-urlencoded", "POST", "/", "", "content-type", FORM, "Param1=value1",
     "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
    {"post-x-www-form-urlencoded-parameters", "POST", "/", "", "content-type",
     FORM "; charset=utf8", "Param1=value1",
     "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
};

static void suite_sign(const suite_case *c, dlpi_s3_key_cache *keys, char out[65]) {
    dlpi_s3_credentials who = {0};
    dlpi_s3_header h[4];
    dlpi_s3_param params[8];
    dlpi_s3_signing g = {0};
    char path[256], payload[65];
    uint8_t hash[32];
    int n = dlpi_s3_query_split(c->query, params, 8);
    strcpy(who.access, "AKIDEXAMPLE");
    strcpy(who.secret, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    dlpi_s3_uri_encode(path, sizeof path, c->path, strlen(c->path), true);
    dlpi_s3_sha256(c->body, strlen(c->body), hash);
    dlpi_s3_hex(payload, hash, 32);
    g.method = c->method, g.path = path, g.payload = payload;
    g.headers = h, g.params = params, g.n_params = (size_t)n;
    g.iso = "20150830T123600Z", g.region = "us-east-1", g.service = "service";
    g.who = &who, g.keys = keys;
    if (c->header && strcmp(c->header, "host") < 0)
        h[g.n_headers++] = (dlpi_s3_header){c->header, c->value};
    h[g.n_headers++] = (dlpi_s3_header){"host", "example.amazonaws.com"};
    if (c->header && strcmp(c->header, "host") > 0 && strcmp(c->header, "x-amz-date") < 0)
        h[g.n_headers++] = (dlpi_s3_header){c->header, c->value};
    h[g.n_headers++] = (dlpi_s3_header){"x-amz-date", g.iso};
    if (c->header && strcmp(c->header, "x-amz-date") > 0)
        h[g.n_headers++] = (dlpi_s3_header){c->header, c->value};
    dlpi_s3_sign(&g, out);
}

static void sign__published_suite__same_signatures(void) {
    dlpi_s3_key_cache keys = {0};
    for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++) {
        char got[65];
        for (int cached = 0; cached < 2; cached++) {
            suite_sign(&suite[i], cached ? &keys : NULL, got);
            CHECK(strcmp(got, suite[i].signature) == 0);
            if (strcmp(got, suite[i].signature) != 0) printf("  %s: %s\n", suite[i].name, got);
        }
    }
}

int main(void) {
    uint8_t hash[32];
    dlpi_s3_sha256("abc", 3, hash);
    CHECK(strcmp(shown(hash),
                 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    sign__s3_documentation__same_signatures();
    sign__published_suite__same_signatures();
    printf("s3_sign: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
