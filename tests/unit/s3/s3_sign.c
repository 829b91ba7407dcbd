/* Signatures, against those of the S3 documentation and of the published test suite of Signature
   Version 4; and what they stand on: hashes, URIs, times, endpoints, XML, JSON. */
/* own: inside: hashes, signatures and parsers, against published cases */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_s3.h"
#include <ctype.h>

#include "../../rig/check.h"

static const char *shown(const uint8_t hash[32]) {
    static char hex[65];
    dlpi_s3_hex(hex, hash, 32);
    return hex;
}

/* ---- Hashes. */

static void sha256__nist_vectors__same(void) {
    static const struct {
        const char *text, *hash;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
         "lmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    dlpi_s3_sha s;
    uint8_t hash[32];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dlpi_s3_sha256(known[i].text, strlen(known[i].text), hash);
        CHECK(strcmp(shown(hash), known[i].hash) == 0);
    }
    dlpi_s3_sha_begin(&s);
    for (int i = 0; i < 100000; i++) dlpi_s3_sha_add(&s, "aaaaaaaaaa", 10);
    dlpi_s3_sha_end(&s, hash);
    CHECK(strcmp(shown(hash), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") ==
          0);
}

/* 0 to 599 bytes, each length hashed whole and in two pieces; the results hashed into one, which
   Python's hashlib gave too. */
static void sha256__all_lengths__as_hashlib(void) {
    uint8_t chain[64], data[600], two[32];
    size_t have = 0;
    for (size_t n = 0; n < 600; n++) {
        dlpi_s3_sha s;
        size_t cut = n > 0 ? n * 7 % n + n % 5 % n : 0;
        for (size_t i = 0; i < n; i++) data[i] = (uint8_t)(i * 7 + n * 13);
        dlpi_s3_sha256(data, n, chain + have);
        dlpi_s3_sha_begin(&s);
        dlpi_s3_sha_add(&s, data, cut);
        dlpi_s3_sha_add(&s, data + cut, n - cut);
        dlpi_s3_sha_end(&s, two);
        CHECK(memcmp(two, chain + have, 32) == 0);
        dlpi_s3_sha256(chain, have + 32, chain);
        have = 32;
    }
    CHECK(strcmp(shown(chain),
                 "4efc99c0a44c25a149aa77c5595e88bdd0ab0d3a26c72f016684a2d0f9855f76") == 0);
}

/* What the processor's instructions give, and what is done without them. */
static void sha256__both_ways__same(void) {
    uint8_t data[64 * 9];
    uint64_t random = 7;
    if (!dlpi_s3_sha_has_fast()) return;
    for (int turn = 0; turn < 200; turn++) {
        uint32_t a[8], b[8];
        for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(dlpi_s3_random(&random) >> 40);
        for (int i = 0; i < 8; i++) a[i] = b[i] = (uint32_t)(dlpi_s3_random(&random) >> 20);
        dlpi_s3_sha_plain(a, data, (size_t)turn % 10);
        dlpi_s3_sha_fast(b, data, (size_t)turn % 10);
        CHECK(memcmp(a, b, sizeof a) == 0);
    }
}

static void hmac__rfc_4231__same(void) {
    static const struct {
        int key_byte, key_n;
        const char *key, *data, *hash;
    } known[] = {
        {0x0b, 20, NULL, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {0, 4, "Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {0xaa, 131, NULL, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {0xaa, 131, NULL,
         "This is a test using a larger than block-size key and a larger than block-size data. The "
         "key needs to be hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
    uint8_t key[131], data[50], hash[32];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        memset(key, known[i].key_byte, sizeof key);
        if (known[i].key) memcpy(key, known[i].key, (size_t)known[i].key_n);
        dlpi_s3_hmac(key, (size_t)known[i].key_n, known[i].data, strlen(known[i].data), hash);
        CHECK(strcmp(shown(hash), known[i].hash) == 0);
    }
    memset(key, 0xaa, 20), memset(data, 0xdd, 50); /* cases 3 and 4 */
    dlpi_s3_hmac(key, 20, data, 50, hash);
    CHECK(strcmp(shown(hash), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe") ==
          0);
    for (int i = 0; i < 25; i++) key[i] = (uint8_t)(i + 1);
    memset(data, 0xcd, 50);
    dlpi_s3_hmac(key, 25, data, 50, hash);
    CHECK(strcmp(shown(hash), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b") ==
          0);
}

static void hmac__all_lengths__as_python(void) {
    uint8_t chain[64], key[200], data[600];
    size_t have = 0;
    for (size_t n = 0; n < 200; n++) {
        for (size_t i = 0; i < n; i++) key[i] = (uint8_t)(i * 11 + n);
        for (size_t i = 0; i < 3 * n; i++) data[i] = (uint8_t)(i * 7 + n * 13);
        dlpi_s3_hmac(key, n, data, 3 * n, chain + have);
        dlpi_s3_sha256(chain, have + 32, chain);
        have = 32;
    }
    CHECK(strcmp(shown(chain),
                 "59cd694cb2cfb531d7697309b0292b0a3980a48fac5feb5bdad274ad59e25f61") == 0);
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
    if (at)
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at + strlen(mark), " \r"),
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

/* The documentation's PUT signs a Date and a storage class, which heads here do not have. */
static void sign__s3_documentation_put__same_signature(void) {
    static const char payload[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    static const dlpi_s3_header headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                             {"host", "examplebucket.s3.amazonaws.com"},
                                             {"x-amz-content-sha256", payload},
                                             {"x-amz-date", "20130524T000000Z"},
                                             {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    dlpi_s3_credentials who = example();
    dlpi_s3_signing g = {0};
    uint8_t hash[32];
    char got[65];
    dlpi_s3_sha256("Welcome to Amazon S3.", 21, hash);
    CHECK(strcmp(shown(hash), payload) == 0);
    g.method = "PUT", g.path = "/test%24file.text", g.payload = payload;
    g.headers = headers, g.n_headers = 5;
    g.iso = "20130524T000000Z", g.region = "us-east-1", g.service = "s3", g.who = &who;
    dlpi_s3_sign(&g, got);
    CHECK(strcmp(got, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd") == 0);
}

/* Requests as botocore's S3SigV4Auth and S3SigV4QueryAuth sign them (those with another head than
   botocore makes: as the same steps in Python do). */
#define TOKEN "FwoGZXIvYXdzEXAMPLE//////////token+with/odd=="

static dlpi_s3_head local_head(const dlpi_s3_credentials *who, const char *path) {
    dlpi_s3_head h = example_head(who, path);
    h.host = "127.0.0.1:9000";
    return h;
}

static void check_signature(const dlpi_s3_head *h, const char *signature) {
    const char *head = head_of(h);
    CHECK(strcmp(after(head, "Signature="), signature) == 0);
    CHECK(strstr(head, "wJalr") == NULL);
    CHECK(strlen(head) > 4 && strcmp(head + strlen(head) - 4, "\r\n\r\n") == 0);
}

static void sign__headers__as_botocore(void) {
    dlpi_s3_credentials who = example(), with_token = example();
    dlpi_s3_head h = local_head(&with_token, "/b/a%20b/%2B/%25/%2F/..//./%C3%BC%27");
    strcpy(with_token.token, TOKEN);
    h.range = "bytes=5-";
    check_signature(&h, "8517a4be32ebf9967edfad4c49a45c2af3eb5ee4ce3c1d67ea0be96819720db1");
    h = local_head(&who, "/b/k");
    h.range = "bytes=8388608-16777215", h.if_match = "\"abc\"";
    check_signature(&h, "c16c3b1f7d22045a9589f7900d096f32ebf3776f14efa67f344a99c8152998b1");
    h = local_head(&who, "/b/k");
    h.method = "HEAD", h.host = "[::1]:9000";
    check_signature(&h, "ff75db8dfc08ea09a92f6cd79c882dce9d80267ef349dbf34bd046c46ddede75");
    h = local_head(&with_token, "/b");
    h.query = "continuation-token=a%2Bb%2F%3D&encoding-type=url&list-type=2&prefix=x%20y";
    check_signature(&h, "35ecfba27dbdac41c69ed61ff8a98ca2a3d928a3dfa6b5275277b03157bde1f6");
    for (size_t i = 0; i < 6000; i++) with_token.token[i] = "A+/="[i % 4];
    with_token.token[6000] = '\0';
    h = local_head(&with_token, "/b/k");
    check_signature(&h, "8796fb52d16c1a54c5f3cf58452ed1b19433c387d291ac6c49e992469bda50a5");
}

static void sign__put__as_botocore(void) {
    dlpi_s3_credentials who = example();
    dlpi_s3_head h = local_head(&who, "/b/k");
    const char *head;
    h.method = "PUT", h.has_body = true, h.body = "Welcome to Amazon S3.", h.body_bytes = 21;
    check_signature(&h, "9c6e0d3d9f0ac5ea62dfedc72f997db2755be06494455b3fa39a360992f8f377");
    CHECK(strcmp(after(head_of(&h), "Content-Length: "), "21") == 0);
    h.unsigned_payload = true;
    check_signature(&h, "fd37347737e5acdc145897bbadb9d40e3551e14f7f4d4017ff188e85229ad7e4");
    h.unsigned_payload = false, h.body_bytes = 0;
    head = head_of(&h);
    CHECK(strcmp(after(head, "Content-Length: "), "0") == 0);
    CHECK(strcmp(after(head, "x-amz-content-sha256: "), DLPI_S3_EMPTY_SHA256) == 0);
}

static void sign__presigned__as_botocore(void) {
    dlpi_s3_credentials who = example(), with_token = example();
    dlpi_s3_head h = local_head(&with_token, "/b/k");
    const char *head;
    strcpy(with_token.token, TOKEN);
    h.presign = true, h.expires_s = 3600;
    h.range = "bytes=0-9"; /* sent, but no part of it */
    check_signature(&h, "ff95c2fe753d7be3ad782b62a2a2b4837833730af090d4710093be574b650ffe");
    head = head_of(&h);
    CHECK(strstr(head, "\r\nRange: bytes=0-9\r\n") && !strstr(head, "Authorization"));
    CHECK(strstr(head, "X-Amz-Security-Token=FwoGZXIvYXdzEXAMPLE%2F%2F") != NULL);
    CHECK(strncmp(head, "GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&", 42) == 0);
    h = local_head(&who, "/b/k");
    h.presign = true, h.query = "A=1&acl&versionId=3";
    check_signature(&h, "b5a1253dec43e65e0a13678c4dd909e658b021c40183e72d51b71be62eb589f4");
    for (size_t i = 0; i < 6000; i++) with_token.token[i] = "A+/="[i % 4];
    h = local_head(&with_token, "/b/k");
    h.presign = true;
    check_signature(&h, "0d0c1faa6ddefc24a05c614ecade1028db06ef4788fedd1ae632c25a03edab2a");
}

static void head__anonymous__has_no_signature(void) {
    dlpi_s3_credentials who = example();
    dlpi_s3_head h = local_head(&who, "/b/k");
    static const char wanted[] = "GET /b/k?list-type=2 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n"
                                 "Range: bytes=1-2\r\nIf-Match: \"e\"\r\nConnection: close\r\n"
                                 "X-A: 1\r\n\r\n";
    who.anonymous = 1;
    h.query = "list-type=2", h.range = "bytes=1-2", h.if_match = "\"e\"", h.close = true;
    h.extra = "X-A: 1\r\n";
    CHECK(strcmp(head_of(&h), wanted) == 0);
    h.presign = true;
    CHECK(strcmp(head_of(&h), wanted) == 0);
    h.who = NULL;
    CHECK(strcmp(head_of(&h), wanted) == 0);
}

/* Every size that is too small gives -1 and nothing behind it is written. */
static void head__no_room__refused(void) {
    dlpi_s3_credentials who = example();
    dlpi_s3_head h = local_head(&who, "/b/k");
    char *whole = malloc(4096), *cut;
    int n;
    for (int presign = 0; presign < 2; presign++) {
        h.presign = presign != 0;
        n = dlpi_s3_head_write(&h, whole, 4096);
        CHECK(n > 0);
        for (int size = 0; size <= n; size++) {
            cut = malloc((size_t)size + 1);
            cut[size] = 'x';
            CHECK(dlpi_s3_head_write(&h, cut, (size_t)size) == (size < n ? -1 : n));
            CHECK(cut[size] == 'x');
            if (size == n) CHECK(memcmp(cut, whole, (size_t)n) == 0);
            free(cut);
        }
    }
    free(whole);
}

static void head__hostile_values__refused(void) {
    dlpi_s3_credentials who = example(), bad;
    dlpi_s3_head h;
    char buf[4096], query[256] = "";
    h = local_head(&who, "/b/k"), h.if_match = "\"a\"\r\nX-Evil: 1";
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h = local_head(&who, "/b/k"), h.host = "h\r\n";
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h = local_head(&who, "/b/k"), h.range = "bytes=0-\n";
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h = local_head(&who, "/b/k"), h.region = "us\r\n";
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h = local_head(&who, "/b k");
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h = local_head(&who, "/b/k"), h.query = "a=b c";
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    bad = who;
    strcpy(bad.token, "a\nb");
    h = local_head(&bad, "/b/k");
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    bad = who;
    strcpy(bad.access, "a\tb");
    h = local_head(&bad, "/b/k");
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    memset(buf, 'r', 64), buf[64] = '\0'; /* a region of 64 bytes, and of 63 */
    dlpi_s3_copy(query, sizeof query, buf);
    h = local_head(&who, "/b/k"), h.region = query;
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h.region = query + 1;
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) > 0);
    query[0] = '\0';
    for (int i = 0; i < 65; i++) strcat(query, i ? "&a" : "a");
    h = local_head(&who, "/b/k"), h.query = query;
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) == -1);
    h.query = query + 2;
    CHECK(dlpi_s3_head_write(&h, buf, sizeof buf) > 0);
}

/* The key is made again when anything changes that it is made of, and only then. */
static void key_cache__anything_changes__made_again(void) {
    dlpi_s3_credentials who = example();
    dlpi_s3_key_cache keys = {0};
    dlpi_s3_head h = local_head(&who, "/b/k");
    char fresh[65], cached[65];
    for (int step = 0; step < 7; step++) {
        if (step == 1) h.now_s += 3600 * 23;
        if (step == 2) h.now_s += 3600; /* the next day */
        if (step == 3) h.region = "eu-west-1";
        if (step == 4) who.secret[3] = 'X';
        if (step == 5) h.service = "other";
        if (step == 6) h.now_s -= 3600 * 24;
        h.keys = NULL;
        dlpi_s3_copy(fresh, sizeof fresh, after(head_of(&h), "Signature="));
        h.keys = &keys;
        dlpi_s3_copy(cached, sizeof cached, after(head_of(&h), "Signature="));
        CHECK(strlen(fresh) == 64 && strcmp(fresh, cached) == 0);
    }
    keys.key.inner[0] ^= 1; /* it is used: a wrong one gives a wrong signature */
    CHECK(strcmp(after(head_of(&h), "Signature="), fresh) != 0);
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

/* ---- URIs. */

static void uri__all_bytes__as_rfc_3986(void) {
    static const char plain[] = PLAIN;
    char all[256], coded[1024], back[257], wanted[4];
    uint8_t hash[32];
    size_t n;
    for (int c = 0; c < 256; c++) {
        char one = (char)c;
        all[c] = one;
        if (c != 0 && strchr(plain, c))
            snprintf(wanted, sizeof wanted, "%c", c);
        else
            snprintf(wanted, sizeof wanted, "%%%02X", (unsigned)c);
        CHECK(dlpi_s3_uri_encode(coded, sizeof coded, &one, 1, false) == strlen(wanted));
        CHECK(strcmp(coded, wanted) == 0);
        CHECK(dlpi_s3_uri_encode(coded, sizeof coded, &one, 1, true) ==
              (c == '/' ? 1 : strlen(wanted)));
        CHECK(strcmp(coded, c == '/' ? "/" : wanted) == 0);
    }
    n = dlpi_s3_uri_encode(coded, sizeof coded, all, 256, false);
    dlpi_s3_sha256(coded, n, hash); /* Python's urllib.parse.quote */
    CHECK(strcmp(shown(hash), "c57cfa443e460b93b5bf5e0d4b49dd5d0068139c4195ebc4fee587858ea532c3") ==
          0);
    for (int plus = 0; plus < 2; plus++) {
        CHECK(dlpi_s3_uri_decode(back, sizeof back, coded, n, plus != 0) == 256);
        CHECK(memcmp(back, all, 256) == 0 && back[256] == '\0');
    }
    CHECK(dlpi_s3_uri_decode(back, 256, coded, n, false) == -1);
    CHECK(dlpi_s3_uri_decode(coded, sizeof coded, coded, n, false) == 256); /* in place */
    CHECK(memcmp(coded, all, 256) == 0);
}

static void uri__random_bytes__back_again(void) {
    uint64_t random = 11;
    for (int turn = 0; turn < 300; turn++) {
        size_t n = dlpi_s3_random(&random) % 200, coded_n;
        char bytes[200], coded[601], back[201];
        for (size_t i = 0; i < n; i++) bytes[i] = (char)(dlpi_s3_random(&random) >> 33);
        coded_n = dlpi_s3_uri_encode(coded, sizeof coded, bytes, n, turn % 2 == 0);
        CHECK(strlen(coded) == coded_n);
        CHECK(dlpi_s3_uri_decode(back, sizeof back, coded, coded_n, turn % 3 == 0) == (int64_t)n);
        CHECK(memcmp(back, bytes, n) == 0);
        for (size_t i = 0; i < coded_n; i++) coded[i] = (char)tolower(coded[i]);
        CHECK(turn > 0 || dlpi_s3_uri_decode(back, sizeof back, coded, coded_n, false) >= 0);
    }
}

static void uri__little_room__whole_characters(void) {
    char to[16];
    for (size_t size = 0; size < 9; size++) {
        memset(to, 'x', sizeof to);
        CHECK(dlpi_s3_uri_encode(to, size, "a b/c", 5, false) == 9);
        for (size_t i = size; i < sizeof to; i++) CHECK(to[i] == 'x');
        if (size > 0) CHECK(strncmp("a%20b%2Fc", to, strlen(to)) == 0 && strlen(to) < size);
        if (size == 3) CHECK(strcmp(to, "a") == 0);
        if (size == 5) CHECK(strcmp(to, "a%20") == 0);
    }
}

static void uri__bad_escapes__refused(void) {
    static const char *const bad[] = {"%", "%4", "a%", "%G0", "%0G", "%%41", "% 1", "%-1", "abc%a"};
    char to[16];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t n = strlen(bad[i]);
        char *exact = malloc(n);
        memcpy(exact, bad[i], n);
        CHECK(dlpi_s3_uri_decode(to, sizeof to, exact, n, false) == -1);
        free(exact);
    }
    CHECK(dlpi_s3_uri_decode(to, sizeof to, "a+%2b%2B", 8, true) == 4 && strcmp(to, "a ++") == 0);
    CHECK(dlpi_s3_uri_decode(to, sizeof to, "a+%2b%2B", 8, false) == 4 && strcmp(to, "a+++") == 0);
    CHECK(dlpi_s3_uri_decode(to, sizeof to, "", 0, false) == 0 && to[0] == '\0');
}

/* ---- Times. */

static void time__dates__as_the_calendar(void) {
    static const struct {
        int64_t s;
        const char *iso;
    } known[] = {{0, "19700101T000000Z"},
                 {1369353600, "20130524T000000Z"},
                 {951782399, "20000228T235959Z"},
                 {951782400, "20000229T000000Z"},
                 {951868800, "20000301T000000Z"},
                 {1735603200, "20241231T000000Z"},
                 {4107542399, "21000228T235959Z"},
                 {4107542400, "21000301T000000Z"},
                 {253402214400, "99991231T000000Z"},
                 {-1, "19691231T235959Z"},
                 {-62135596800, "00010101T000000Z"},
                 {INT64_MAX, "19700101T000000Z"},
                 {INT64_MIN, "19700101T000000Z"}};
    char iso[17];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dlpi_s3_date(known[i].s, iso);
        CHECK(strcmp(iso, known[i].iso) == 0);
        if (known[i].s >= 0 && known[i].s < INT64_MAX)
            CHECK(dlpi_s3_time_iso(iso, 16) == known[i].s);
    }
    for (int64_t t = 0; t < 253402300800; t += 86400 * 97 + 12345) {
        struct tm tm;
        time_t c = (time_t)t;
        char wanted[17];
        gmtime_r(&c, &tm);
        strftime(wanted, sizeof wanted, "%Y%m%dT%H%M%SZ", &tm);
        dlpi_s3_date(t, iso);
        CHECK(strcmp(iso, wanted) == 0 && dlpi_s3_time_iso(iso, 16) == t);
    }
}

typedef struct time_case {
    const char *text;
    int64_t s;
} time_case;

static void time__iso__read(void) {
    static const time_case known[] = {{"2009-10-12T17:50:30.000Z", 1255369830},
                                      {"2009-10-12T17:50:30Z", 1255369830},
                                      {"2009-10-12T17:50:30.1Z", 1255369830},
                                      {"2009-10-12T17:50:30.123456789Z", 1255369830},
                                      {"2009-10-12T17:50:30+00:00", 1255369830},
                                      {"2009-10-12T19:50:30+02:00", 1255369830},
                                      {"2009-10-12T12:20:30.5-05:30", 1255369830},
                                      {"2009-10-12 17:50:30Z", 1255369830},
                                      {"2016-12-31T23:59:60Z", 1483228799},
                                      {"2000-02-29T00:00:00Z", 951782400},
                                      {"1900-02-29T00:00:00Z", -1},
                                      {"2100-02-29T00:00:00Z", -1},
                                      {"2023-02-29T00:00:00Z", -1},
                                      {"2009-13-12T17:50:30Z", -1},
                                      {"2009-00-12T17:50:30Z", -1},
                                      {"2009-10-32T17:50:30Z", -1},
                                      {"2009-10-00T17:50:30Z", -1},
                                      {"2009-10-12T24:00:00Z", -1},
                                      {"2009-10-12T23:60:00Z", -1},
                                      {"2009-10-12T23:00:61Z", -1},
                                      {"2009-10-12T17:50:30", -1},
                                      {"2009-10-12T17:50:30.Z", -1},
                                      {"2009-10-12T17:50:30z", -1},
                                      {"2009-10-12T17:50:30+0000", -1},
                                      {"2009-10-12T17:50:30+00:60", -1},
                                      {"2009-10-12T17:50:30+24:00", -1},
                                      {"2009-10-1xT17:50:30Z", -1},
                                      {"2009/10/12T17:50:30Z", -1},
                                      {"", -1},
                                      {"Z", -1},
                                      {"20091012T175030Z", 1255369830},
                                      {"20091312T175030Z", -1},
                                      {"2009-10-12T17:50:30.12", -1},
                                      {"2009-10-12T17:50:30.000Zx", -1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i].text);
        char *exact = malloc(n + 1);
        int64_t got;
        memcpy(exact, known[i].text, n);
        got = dlpi_s3_time_iso(exact, n);
        CHECK(got == known[i].s);
        if (got != known[i].s) printf("  %s: %lld\n", known[i].text, (long long)got);
        for (size_t cut = 0; cut < n; cut++) { /* nothing behind its end is read */
            char *part = malloc(cut ? cut : 1);
            memcpy(part, known[i].text, cut);
            dlpi_s3_time_iso(part, cut);
            free(part);
        }
        free(exact);
    }
}

static void time__http__read(void) {
    static const time_case known[] = {{"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
                                      {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
                                      {"Sun Nov  6 08:49:37 1994", 784111777},
                                      {"Fri, 24 May 2013 00:00:00 GMT", 1369353600},
                                      {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
                                      {"Sat, 31-Jan-26 00:00:00 GMT", 1769817600},
                                      {"sun, 06 nov 1994 08:49:37 gmt", 784111777},
                                      {"", -1},
                                      {"Sun, 06 Nov 1994", -1},
                                      {"06 Nov 1994 08:49 GMT", -1},
                                      {"Sun, 31 Feb 2020 00:00:00 GMT", -1},
                                      {"Sun, 06 Foo 1994 08:49:37 GMT", -1},
                                      {"Sun, 06 Nov 99999 08:49:37 GMT", -1},
                                      {"Sun, 06 Nov 1994 25:49:37 GMT", -1},
                                      {"Sun, 06 Nov 1994 08:4a:37 GMT", -1},
                                      {"-1", -1},
                                      {"0", -1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int64_t got = dlpi_s3_time_http(known[i].text, strlen(known[i].text));
        CHECK(got == known[i].s);
        if (got != known[i].s) printf("  %s: %lld\n", known[i].text, (long long)got);
    }
}

/* ---- Endpoints and places. */

static void endpoint__table__taken_apart(void) {
    static const struct {
        const char *url, *host;
        int port, tls, usual;
        const char *prefix;
    } t[] = {{"http://localhost", "localhost", 80, 0, 1, ""},
             {"http://localhost/", "localhost", 80, 0, 1, ""},
             {"http://localhost:80", "localhost", 80, 0, 1, ""},
             {"http://localhost:443", "localhost", 443, 0, 0, ""},
             {"https://localhost", "localhost", 443, 1, 1, ""},
             {"https://localhost:443", "localhost", 443, 1, 1, ""},
             {"https://localhost:80/", "localhost", 80, 1, 0, ""},
             {"HTTPS://S3.Example.COM:9000", "s3.example.com", 9000, 1, 0, ""},
             {"http://127.0.0.1:7480", "127.0.0.1", 7480, 0, 0, ""},
             {"http://[::1]:7480", "::1", 7480, 0, 0, ""},
             {"http://[::1]", "::1", 80, 0, 1, ""},
             {"https://[2001:DB8::1]/x", "2001:db8::1", 443, 1, 1, "/x"},
             {"http://[::ffff:1.2.3.4]:1", "::ffff:1.2.3.4", 1, 0, 0, ""},
             {"http://h:65535/a/b/", "h", 65535, 0, 0, "/a/b"},
             {"http://h/a//b", "h", 80, 0, 1, "/a//b"},
             {"http://h///", "h", 80, 0, 1, ""},
             {"http://h/%20a", "h", 80, 0, 1, "/%20a"},
             {"http://my_service.local.:80", "my_service.local.", 80, 0, 1, ""},
             {"http://h:00080", "h", 80, 0, 1, ""}};
    const char *why;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        dlpi_s3_endpoint e;
        CHECK(dlpi_s3_endpoint_parse(&e, t[i].url, &why) == DLP_OK);
        CHECK(strcmp(e.host, t[i].host) == 0 && e.port == t[i].port && e.tls == t[i].tls);
        CHECK(e.is_default_port == t[i].usual && strcmp(e.prefix, t[i].prefix) == 0);
        CHECK(e.custom == 1);
        if (strcmp(e.host, t[i].host) != 0) printf("  %s: %s\n", t[i].url, e.host);
    }
}

static void endpoint__bad__refused(void) {
    static const char *const bad[] = {
        "",
        "localhost",
        "localhost:80",
        "ftp://h",
        "http:/h",
        "http//h",
        "http://",
        "http:///x",
        "http://:80",
        "http://h:",
        "http://h:0",
        "http://h:65536",
        "http://h:99999999999",
        "http://h:8a",
        "http://h:-1",
        "http://h:+1",
        "http://h: 80",
        "http://user@h",
        "http://user:secret@h",
        "http://h?x",
        "http://h/?x=1",
        "http://h#f",
        "http://h/a#b",
        "http://a b",
        "http://h/a b",
        "http://h/%",
        "http://h/%2",
        "http://h/%zz",
        "http://h/\"",
        "http://h/\xc3\xa9",
        "http://\xc3\xa9",
        "http://h%41",
        "http://[::1",
        "http://::1",
        "http://[::1]x",
        "http://[::1]80",
        "http://[]",
        "http://[1.2.3.4]",
        "http://[h]",
        "http://[::g]",
        "http://[:::]",
        "http://[fe80::1%25lo]",
        "http://a..b",
        "http://.a",
        "http://h\n",
        "http://h/a\r\nX: y",
        "http://h\\x",
        "http://<h>",
        " http://h",
        "http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b"};
    char url[700];
    const char *why;
    dlpi_s3_endpoint e, before;
    memset(&e, 7, sizeof e);
    before = e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        why = NULL;
        CHECK(dlpi_s3_endpoint_parse(&e, bad[i], &why) == DLP_ERR_ARG);
        CHECK(why && !strstr(why, "secret"));
        CHECK(!strchr(bad[i], '@') || strstr(why, "user's name"));
        CHECK(memcmp(&e, &before, sizeof e) == 0);
        if (!why) printf("  taken: %s\n", bad[i]);
    }
    for (int path = 0; path < 2; path++) { /* 255 bytes of host or path are the most */
        int most = path ? 255 : 254;       /* in labels of 1 */
        for (int n = most; n < most + 3; n++) {
            size_t at = (size_t)snprintf(url, sizeof url, path ? "http://h" : "http://");
            for (int i = 0; i < n; i++)
                url[at++] = path ? (i == 0 ? '/' : 'a') : (char)(i % 2 ? '.' : 'a');
            url[at] = '\0';
            if (!path && n % 2 == 0) url[at - 1] = 'a';
            CHECK(dlpi_s3_endpoint_parse(&e, url, &why) == (n <= 255 ? DLP_OK : DLP_ERR_ARG));
        }
    }
}

static void place__table__hosts_and_paths(void) {
    static const struct {
        const char *endpoint, *region;
        int style;
        const char *bucket, *key, *host, *path;
    } t[] = {{NULL, "eu-west-1", 0, "bucket", "a/b", "bucket.s3.eu-west-1.amazonaws.com", "/a/b"},
             {NULL, "us-east-1", 0, "bucket", "", "bucket.s3.us-east-1.amazonaws.com", "/"},
             {NULL, "cn-north-1", 0, "bucket", "k", "bucket.s3.cn-north-1.amazonaws.com.cn", "/k"},
             {NULL, "us-east-1", 0, "my.bucket", "k", "s3.us-east-1.amazonaws.com", "/my.bucket/k"},
             {NULL, "us-east-1", 0, "My_Bucket", "k", "s3.us-east-1.amazonaws.com", "/My_Bucket/k"},
             {NULL, "us-east-1", 0, "ab", "k", "s3.us-east-1.amazonaws.com", "/ab/k"},
             {NULL, "us-east-1", 0, "-abc", "k", "s3.us-east-1.amazonaws.com", "/-abc/k"},
             {NULL, "us-east-1", 1, "bucket", "k", "s3.us-east-1.amazonaws.com", "/bucket/k"},
             {"http://127.0.0.1:9000", "x", 0, "bucket", "k", "127.0.0.1:9000", "/bucket/k"},
             {"http://[::1]:9000", "x", 0, "bucket", "", "[::1]:9000", "/bucket"},
             {"http://[::1]", "x", 0, "bucket", "", "[::1]", "/bucket"},
             {"https://h:443/p", "x", 0, "bucket", "k", "h", "/p/bucket/k"},
             {"http://localhost:80/p", "x", 2, "bucket", "k", "bucket.localhost", "/p/k"},
             {"http://localhost:7480", "x", 2, "a.bucket", "k", "a.bucket.localhost:7480", "/k"},
             {"http://h:1", "", 0, "b", "//a/./../b", "h:1", "/b///a/./../b"},
             {"http://h:1", "", 0, "b", "/", "h:1", "/b//"},
             {"http://h:1", "", 0, "b", "a+b c%25d", "h:1", "/b/a%2Bb%20c%2525d"},
             {"http://h:1", "", 0, "b", "\xc3\xbc'\"?#&=;:@!$*(),\x01\x7f~", "h:1",
              "/b/%C3%BC%27%22%3F%23%26%3D%3B%3A%40%21%24%2A%28%29%2C%01%7F~"},
             {"http://h:1", "", 0, "t:b/c", "k", "h:1", "/t%3Ab%2Fc/k"}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        dlpi_s3_endpoint e;
        const char *why;
        char host[320], path[4096];
        int rc = DLP_OK;
        if (t[i].endpoint)
            rc = dlpi_s3_endpoint_parse(&e, t[i].endpoint, &why);
        else
            dlpi_s3_endpoint_aws(&e, "us-east-1"); /* the region of the call counts */
        CHECK(rc == DLP_OK);
        CHECK(dlpi_s3_place(&e, t[i].region, t[i].style, t[i].bucket, t[i].key, host, sizeof host,
                            path, sizeof path) == DLP_OK);
        CHECK(strcmp(host, t[i].host) == 0);
        CHECK(strcmp(path, t[i].path) == 0);
        if (strcmp(host, t[i].host) != 0 || strcmp(path, t[i].path) != 0)
            printf("  %s %s\n", host, path);
    }
}

static void place__other_hosts_of_aws__by_name_and_path(void) {
    static const struct {
        int fips, dualstack;
        const char *region, *bucket, *host;
    } t[] = {{1, 0, "us-west-2", "bucket", "bucket.s3-fips.us-west-2.amazonaws.com"},
             {0, 1, "eu-west-1", "bucket", "bucket.s3.dualstack.eu-west-1.amazonaws.com"},
             {1, 1, "us-gov-west-1", "my.bucket", "s3-fips.dualstack.us-gov-west-1.amazonaws.com"},
             {0, 1, "cn-north-1", "bucket", "bucket.s3.dualstack.cn-north-1.amazonaws.com.cn"}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        dlpi_s3_endpoint e;
        char host[320], path[100];
        dlpi_s3_endpoint_aws(&e, "us-east-1");
        e.fips = t[i].fips, e.dualstack = t[i].dualstack;
        CHECK(dlpi_s3_place(&e, t[i].region, 0, t[i].bucket, "k", host, sizeof host, path,
                            sizeof path) == DLP_OK);
        CHECK(strcmp(host, t[i].host) == 0);
    }
}

static void place__bad__refused(void) {
    static const struct {
        const char *endpoint, *region;
        int style;
        const char *bucket;
    } t[] = {{NULL, "us-east-1", 0, ""},           {NULL, "", 0, "bucket"},
             {NULL, "evil.example/", 0, "bucket"}, {NULL, "US", 0, "bucket"},
             {NULL, "a\r\nb", 0, "bucket"},        {NULL, "us-east-1", 2, "a.b"},
             {NULL, "us-east-1", 2, "A_B"},        {"http://127.0.0.1", "", 2, "bucket"},
             {"http://[::1]", "", 2, "bucket"},    {"http://h", "", 2, "1.2.3.4"},
             {"http://h", "", 2, "a..b"},          {"http://h", "", 2, "a.-b"},
             {"http://h", "", 2, "a-.b"}};
    dlpi_s3_endpoint e;
    const char *why;
    char host[320], path[4096], key[1025];
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        if (!t[i].endpoint)
            dlpi_s3_endpoint_aws(&e, "us-east-1");
        else
            CHECK(dlpi_s3_endpoint_parse(&e, t[i].endpoint, &why) == DLP_OK);
        CHECK(dlpi_s3_place(&e, t[i].region, t[i].style, t[i].bucket, "k", host, sizeof host, path,
                            sizeof path) == DLP_ERR_ARG);
    }
    memset(key, '+', 1024), key[1024] = '\0'; /* the longest key fits */
    CHECK(dlpi_s3_endpoint_parse(&e, "http://h", &why) == DLP_OK);
    CHECK(dlpi_s3_place(&e, "", 0, "bucket", key, host, sizeof host, path, sizeof path) == DLP_OK);
    CHECK(strlen(path) == 8 + 3 * 1024);
    for (size_t size = 0; size < 12; size++) {
        char *cut = malloc(size + 1);
        cut[size] = 'x';
        CHECK(dlpi_s3_place(&e, "", 0, "bucket", "k+", host, sizeof host, cut, size) ==
              DLP_ERR_ARG);
        CHECK(dlpi_s3_place(&e, "", 0, "bucket", "k", cut, size < 2 ? size : 1, path,
                            sizeof path) == DLP_ERR_ARG);
        CHECK(cut[size] == 'x');
        free(cut);
    }
}

static void place__its_host__can_be_looked_up(void) {
    static const struct {
        const char *host;
        int tls;
        const char *name;
        int port;
    } t[] = {{"h", 0, "h", 80},
             {"h", 1, "h", 443},
             {"b.h:9", 1, "b.h", 9},
             {"[::1]:9", 0, "::1", 9},
             {"[::1]", 0, "::1", 80}};
    char name[256];
    uint16_t port;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        CHECK(dlpi_s3_place_address(t[i].host, t[i].tls != 0, name, &port) == DLP_OK);
        CHECK(strcmp(name, t[i].name) == 0 && port == t[i].port);
    }
    CHECK(dlpi_s3_place_address("h:x", false, name, &port) == DLP_ERR_ARG);
}

/* ---- XML and JSON. Texts lie in memory of exactly their size. */

static bool xml_is(const char *xml, size_t n, const char *path, const char *wanted) {
    char *exact = malloc(n ? n : 1), out[64];
    bool found;
    memcpy(exact, xml, n);
    found = dlpi_s3_xml_text(exact, n, path, out, sizeof out);
    free(exact);
    return wanted ? found && strcmp(out, wanted) == 0 : !found;
}

static const char error_xml[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a <remark> -->\n"
    "<Error xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Code>NoSuchKey</Code>"
    "<Message>The &lt;key&gt; &amp;&quot;&apos;&#65;&#x42;&#xe9;&#x20AC;&#128512; is "
    "<![CDATA[<not> &amp; ]]>there</Message><Empty/><a:Key a:x='>' y=\"/>\">p/<b>no</b>q</a:Key>"
    "<Resource>\n</Resource></Error>\n";

static void xml__error_body__read(void) {
    size_t n = strlen(error_xml);
    char bom[600] = "\xef\xbb\xbf", tiny[4];
    CHECK(xml_is(error_xml, n, "Error/Code", "NoSuchKey"));
    CHECK(xml_is(error_xml, n, "Error/Message",
                 "The <key> &\"'AB\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 is <not> &amp; there"));
    CHECK(xml_is(error_xml, n, "Error/Key", "p/q"));
    CHECK(xml_is(error_xml, n, "Error/Key/b", "no"));
    CHECK(xml_is(error_xml, n, "Error/Empty", ""));
    CHECK(xml_is(error_xml, n, "Error/Resource", "\n"));
    CHECK(xml_is(error_xml, n, "Error/code", NULL));
    CHECK(xml_is(error_xml, n, "Code", NULL));
    CHECK(xml_is(error_xml, n, "Error/Code/More", NULL));
    CHECK(xml_is(error_xml, n, "Err/Code", NULL));
    CHECK(xml_is("<a><b><c>1</c></b><b><d>2</d></b></a>", 37, "a/b/d", "2"));
    CHECK(xml_is("<a><b>1</b><b>2</b></a>", 23, "a/b", "1"));
    CHECK(xml_is("<a><b></b><c><d>2</d></c></a>", 29, "a/b/d", NULL));
    strcat(bom, error_xml);
    CHECK(xml_is(bom, strlen(bom), "Error/Code", "NoSuchKey"));
    CHECK(!dlpi_s3_xml_text(error_xml, n, "Error/Code", tiny, sizeof tiny));
    CHECK(strcmp(tiny, "NoS") == 0); /* cut, and told */
    CHECK(!dlpi_s3_xml_text(error_xml, n, "Error/Nothing", tiny, sizeof tiny) && tiny[0] == '\0');
    CHECK(!dlpi_s3_xml_text(error_xml, n, "Error/Code", tiny, 0));
}

/* What all of a text gives: its end, or that it is bad; the depth never leaves its bounds. */
static int xml_walk(const char *xml, size_t n) {
    char *exact = malloc(n ? n : 1), buf[64];
    dlpi_s3_xml x;
    int what, steps = 0;
    memcpy(exact, xml, n);
    dlpi_s3_xml_begin(&x, exact, n);
    do {
        dlpi_s3_out o = {buf, sizeof buf, 0};
        what = dlpi_s3_xml_next(&x);
        CHECK(x.depth >= 0 && x.depth <= DLPI_S3_XML_DEPTH);
        if (what == DLPI_S3_XML_TEXT) {
            dlpi_s3_xml_decode(&o, x.text);
            dlpi_s3_out_end(&o);
        }
    } while (what > DLPI_S3_XML_END && ++steps < 10000);
    if (what == DLPI_S3_XML_BAD) CHECK(x.why && dlpi_s3_xml_next(&x) == DLPI_S3_XML_BAD);
    if (what == DLPI_S3_XML_END) CHECK(dlpi_s3_xml_next(&x) == DLPI_S3_XML_END);
    free(exact);
    return what;
}

static void xml__cut_anywhere__bad(void) {
    size_t n = strlen(error_xml), whole = n - 1; /* without the last line's end it is whole */
    CHECK(xml_walk(error_xml, n) == DLPI_S3_XML_END);
    for (size_t cut = 0; cut < n; cut++)
        CHECK(xml_walk(error_xml, cut) == (cut < whole ? DLPI_S3_XML_BAD : DLPI_S3_XML_END));
    for (size_t cut = 0; cut < whole; cut++) {
        size_t code = (size_t)(strstr(error_xml, "</Code>") + 7 - error_xml);
        CHECK(xml_is(error_xml, cut, "Error/Code", cut < code ? NULL : "NoSuchKey"));
    }
}

static void xml__hostile__refused(void) {
    static const char *const bad[] = {"",
                                      " ",
                                      "text",
                                      "<",
                                      "<a",
                                      "<a>",
                                      "</a>",
                                      "<a></b>",
                                      "<a><b></a></b>",
                                      "<a/><b/>",
                                      "<a/>x",
                                      "x<a/>",
                                      "<>x</>",
                                      "<a b='></a>",
                                      "<a <b></a>",
                                      "<a>&",
                                      "<a><!-- </a>",
                                      "<a><![CDATA[x]]</a>",
                                      "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
                                      "<a><!ENTITY x></a>",
                                      "<? <a></a>",
                                      "<![CDATA[x]]>",
                                      "<a></a",
                                      "<a></ a>",
                                      "<a></a x>",
                                      "<a/ ><b>",
                                      "< a></a>"};
    static const char *const bad_text[] = {
        "&nbsp;", "&",        "&amp",     "&;",         "&#;",        "&#x;",           "&#0;",
        "&#x0;",  "&#xd800;", "&#xDFFF;", "&#x110000;", "&#1114112;", "&#99999999999;", "&#-1;",
        "&#x-1;", "&#12a;",   "&#xfffg;", "&lt",        "& lt;",      "&lt ;",          "&LT;"};
    char deep[16 * DLPI_S3_XML_DEPTH], text[64];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int what = xml_walk(bad[i], strlen(bad[i]));
        CHECK(what == DLPI_S3_XML_BAD);
        if (what != DLPI_S3_XML_BAD) printf("  taken: %s\n", bad[i]);
    }
    for (size_t i = 0; i < sizeof bad_text / sizeof bad_text[0]; i++) {
        int n = snprintf(text, sizeof text, "<a>x%sy</a>", bad_text[i]);
        CHECK(xml_is(text, (size_t)n, "a", NULL));
    }
    for (int depth = DLPI_S3_XML_DEPTH - 1; depth <= DLPI_S3_XML_DEPTH + 1; depth++) {
        deep[0] = '\0';
        for (int i = 0; i < depth; i++) strcat(deep, "<a>");
        for (int i = 0; i < depth; i++) strcat(deep, "</a>");
        CHECK(xml_walk(deep, strlen(deep)) ==
              (depth <= DLPI_S3_XML_DEPTH ? DLPI_S3_XML_END : DLPI_S3_XML_BAD));
    }
}

static bool json_is(const char *json, const char *name, const char *wanted) {
    size_t n = strlen(json);
    char *exact = malloc(n ? n : 1), out[64];
    bool found;
    memcpy(exact, json, n);
    found = dlpi_s3_json_text(exact, n, name, out, sizeof out);
    free(exact);
    if (!found && out[0] != '\0') return false;
    return wanted ? found && strcmp(out, wanted) == 0 : !found;
}

static const char secret_json[] =
    "\n{ \"Version\": 1, \"AccessKeyId\" : \"AKID\\u0045XAMPLE\", \"SecretAccessKey\":"
    "\"a\\/b\\\\c\\\"\\t\\u00e9\\u20AC\\uD83D\\uDE00\", \"SessionToken\":null,"
    "\"Expiration\":\"2026-01-01T00:00:00Z\","
    "\"x\":{\"AccessKeyId\":\"no\",\"y\":[1,{},[],{\"z\":[true,false,null,-1.5e+3]},\"]}\"]},"
    "\"n\":-12.5E-3,\"t\":true,\"\\u006eam\\u0065\":\"v\",\"Version\":2,\"e\":\"\"}\r\n";

static void json__credentials__read(void) {
    char tiny[4];
    size_t n = strlen(secret_json);
    CHECK(json_is(secret_json, "Version", "1"));
    CHECK(json_is(secret_json, "AccessKeyId", "AKIDEXAMPLE"));
    CHECK(
        json_is(secret_json, "SecretAccessKey", "a/b\\c\"\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
    CHECK(json_is(secret_json, "SessionToken", NULL));
    CHECK(json_is(secret_json, "Expiration", "2026-01-01T00:00:00Z"));
    CHECK(json_is(secret_json, "n", "-12.5E-3"));
    CHECK(json_is(secret_json, "t", "true"));
    CHECK(json_is(secret_json, "name", "v"));
    CHECK(json_is(secret_json, "e", ""));
    CHECK(json_is(secret_json, "x", NULL));
    CHECK(json_is(secret_json, "y", NULL));
    CHECK(json_is("{}", "x", NULL));
    CHECK(!dlpi_s3_json_text(secret_json, n, "AccessKeyId", tiny, sizeof tiny) && tiny[0] == '\0');
    CHECK(dlpi_s3_json_text(secret_json, n, "Version", tiny, sizeof tiny));
    CHECK(!dlpi_s3_json_text(secret_json, n, "Version", tiny, 0));
    CHECK(!dlpi_s3_json_text("{\"a\":1}\0", 8, "a", tiny, sizeof tiny));
    CHECK(!dlpi_s3_json_text("{\"a\0\":1}", 9, "a", tiny, sizeof tiny));
}

static void json__cut_or_hostile__refused(void) {
    static const char *const bad[] = {"",
                                      " ",
                                      "[]",
                                      "\"x\"",
                                      "1",
                                      "{",
                                      "}",
                                      "{,}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{\"a\":1}x",
                                      "{\"a\":1}{}",
                                      "{\"a\" 1}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "{\"a\":1 \"b\":2}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":.5}",
                                      "{\"a\":+1}",
                                      "{\"a\":1e}",
                                      "{\"a\":-}",
                                      "{\"a\":tru}",
                                      "{\"a\":True}",
                                      "{\"a\":nul}",
                                      "{\"a\":[1,]}",
                                      "{\"a\":[1}",
                                      "{\"a\":[1 2]}",
                                      "{\"a\":{\"b\"}}",
                                      "{\"a\":{\"b\":1]}",
                                      "{\"a\":\"x}",
                                      "{\"a\":\"x\n\"}",
                                      "{\"a\":\"\\q\"}",
                                      "{\"a\":\"\\u12\"}",
                                      "{\"a\":\"\\u12g4\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{\"a\":\"\\ud800\\u0041\"}",
                                      "{\"a\":\"\\udc00\"}",
                                      "{\"a\":\"\\u0000\"}",
                                      "{\"a\":\"\\",
                                      "{\"a\":NaN}",
                                      "{\"a\":1}\x01"};
    char deep[8 * DLPI_S3_JSON_DEPTH], *part;
    size_t n = strlen(secret_json);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(json_is(bad[i], "a", NULL));
        if (!json_is(bad[i], "a", NULL)) printf("  taken: %s\n", bad[i]);
    }
    for (size_t cut = 0; cut + 2 < n; cut++) {
        part = malloc(cut + 1);
        memcpy(part, secret_json, cut);
        part[cut] = '\0';
        CHECK(json_is(part, "Version", NULL));
        free(part);
    }
    for (int depth = DLPI_S3_JSON_DEPTH - 1; depth <= DLPI_S3_JSON_DEPTH + 1; depth++) {
        strcpy(deep, "{\"a\":\"v\",\"b\":");
        for (int i = 0; i < depth; i++) strcat(deep, i % 2 ? "[" : "{\"c\":");
        strcat(deep, "1");
        for (int i = depth - 1; i >= 0; i--) strcat(deep, i % 2 ? "]" : "}");
        strcat(deep, "}");
        CHECK(json_is(deep, "a", depth <= DLPI_S3_JSON_DEPTH ? "v" : NULL));
    }
}

/* Texts with bytes changed at random: whatever comes of it, nothing outside is touched. */
static void texts__bytes_changed__no_harm(void) {
    static const char marks[] = "<>/&;!-[]\"'{}:,\\ ux0a#";
    uint64_t random = 5;
    for (int turn = 0; turn < (getenv("SHORT") ? 500 : 4000); turn++) {
        char text[sizeof error_xml + sizeof secret_json], out[64];
        const char *from = turn % 2 ? error_xml : secret_json;
        size_t n = strlen(from), changes = 1 + dlpi_s3_random(&random) % 4;
        memcpy(text, from, n);
        for (size_t i = 0; i < changes; i++)
            text[dlpi_s3_random(&random) % n] = marks[dlpi_s3_random(&random) % 22];
        if (turn % 2) {
            xml_walk(text, n);
            dlpi_s3_xml_text(text, n, "Error/Message", out, 16);
        } else {
            char *exact = malloc(n);
            memcpy(exact, text, n);
            dlpi_s3_json_text(exact, n, "SecretAccessKey", out, sizeof out);
            free(exact);
        }
    }
}

int main(void) {
    sha256__nist_vectors__same();
    sha256__all_lengths__as_hashlib();
    sha256__both_ways__same();
    hmac__rfc_4231__same();
    hmac__all_lengths__as_python();
    sign__s3_documentation__same_signatures();
    sign__s3_documentation_put__same_signature();
    sign__headers__as_botocore();
    sign__put__as_botocore();
    sign__presigned__as_botocore();
    head__anonymous__has_no_signature();
    head__no_room__refused();
    head__hostile_values__refused();
    key_cache__anything_changes__made_again();
    sign__published_suite__same_signatures();
    uri__all_bytes__as_rfc_3986();
    uri__random_bytes__back_again();
    uri__little_room__whole_characters();
    uri__bad_escapes__refused();
    time__dates__as_the_calendar();
    time__iso__read();
    time__http__read();
    endpoint__table__taken_apart();
    endpoint__bad__refused();
    place__table__hosts_and_paths();
    place__other_hosts_of_aws__by_name_and_path();
    place__bad__refused();
    place__its_host__can_be_looked_up();
    xml__error_body__read();
    xml__cut_anywhere__bad();
    xml__hostile__refused();
    json__credentials__read();
    json__cut_or_hostile__refused();
    texts__bytes_changed__no_harm();
    return test_end("s3_sign");
}
